package main

// session_table.go owns who is open here, and under which name: the table of agents, by agent_id, thread and name, with
// the line of calls that wait for each; the table of who waits for which turn; the lease of an identity for a session
// that opens, --identity until the first session takes it, the parking of idle sessions where the table is full. A
// table takes no lock but its own, and never calls a session. What gives out names runs in the hub's goroutines, which
// may wait, and must never give one name to two, nor a name of a member who is no agent of ours.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// sessionTable is who is open here. A session is in it from before its first turn is queued until it has ended.
type sessionTable struct {
	mu      sync.Mutex             // guards the fields below
	agents  map[string]*session    // by agent_id
	threads map[string]*session    // by threadId
	names   map[string]*session    // by lower-case identity, of sessions that have leased theirs
	lines   map[string][]agentCall // calls that wait, oldest first, by the reference that they name their agent with
}

// agentCall is one call on an agent. Calls on one agent are received in the order in which they came.
type agentCall struct {
	open   func(s *session, mayWait bool) reception // hands the call to the agent's session, which is open here
	stored func(ref string)                         // serves the call where the agent isn't open here; it may wait
}

// reception is what became of a call that was handed to a session.
type reception int

const (
	received reception = iota // the session has the call, or its caller is answered
	mustWait                  // receiving the call takes time: it joins the agent's line
	missed                    // the session has ended: its record serves the call
)

func newSessionTable() *sessionTable {
	return &sessionTable{agents: map[string]*session{}, threads: map[string]*session{}, names: map[string]*session{},
		lines: map[string][]agentCall{}}
}

// find is the open session that a reference of any tool means, nil for none: an agent_id, a threadId or a name,
// which may be one that is just being taken.
func (t *sessionTable) find(ref string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.findLocked(ref)
}

func (t *sessionTable) findLocked(ref string) *session {
	for _, s := range []*session{t.agents[ref], t.threads[ref], t.names[strings.ToLower(ref)]} {
		if s != nil {
			return s
		}
	}
	if ref == "" {
		return nil
	}
	for _, s := range t.agents {
		if strings.EqualFold(s.wanted, ref) && s.shown.Load().Identity == "" {
			return s
		}
	}
	return nil
}

// agent is the open session of an agent_id, nil for none.
func (t *sessionTable) agent(agentID string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.agents[agentID]
}

// named is the session that has leased an identity, nil for none.
func (t *sessionTable) named(identity string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[strings.ToLower(identity)]
}

// all are the open sessions, in no order.
func (t *sessionTable) all() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.agents))
}

// leased are the sessions that have leased their identity: those that count for max_concurrent_threads.
func (t *sessionTable) leased() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.names))
}

// enter puts a new session into the table, with its thread where that is known. Where the agent is open already, it
// returns that session instead, and the new one is nobody's.
func (t *sessionTable) enter(s *session, thread string) (was *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was = t.agents[s.agentID]; was == nil && thread != "" {
		was = t.threads[thread]
	}
	if was == nil {
		t.agents[s.agentID] = s
		if thread != "" {
			t.threads[thread] = s
		}
	}
	return was
}

func (t *sessionTable) enterThread(s *session, thread string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.threads[thread] = s
}

func (t *sessionTable) enterName(s *session, identity string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[strings.ToLower(identity)] = s
}

// remove takes an ended session out. again: the agent is open again, as a newer session.
func (t *sessionTable) remove(s *session) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, by := range []map[string]*session{t.agents, t.threads, t.names} {
		maps.DeleteFunc(by, func(_ string, other *session) bool { return other == s })
	}
	return t.agents[s.agentID] != nil
}

// meet returns the open session that a reference means, unless calls wait in the agent's line: then, or where no such
// session is open, the call joins that line. serve: nobody serves the line yet.
func (t *sessionTable) meet(ref string, c agentCall) (s *session, line string, serve bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s = t.findLocked(ref); s != nil {
		ref = t.lineLocked(s)
	}
	if _, waiting := t.lines[ref]; s != nil && !waiting {
		return s, ref, false
	}
	return nil, ref, t.joinLocked(ref, c)
}

// lineLocked is the line of an open agent, whatever a call names the agent by. Calls may still wait in one that was
// begun with the agent's thread, before anybody knew whose thread that was.
func (t *sessionTable) lineLocked(s *session) string {
	if _, waiting := t.lines[s.agentID]; waiting {
		return s.agentID
	}
	for line := range t.lines {
		if t.findLocked(line) == s {
			return line
		}
	}
	return s.agentID
}

// join puts a call into a line. serve: nobody serves that line yet.
func (t *sessionTable) join(line string, c agentCall) (serve bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joinLocked(line, c)
}

func (t *sessionTable) joinLocked(line string, c agentCall) (serve bool) {
	_, served := t.lines[line]
	t.lines[line] = append(t.lines[line], c)
	return !served
}

// next takes the oldest call out of a line, with the session that it is for, nil where none is open. false: the line
// is empty, and gone.
func (t *sessionTable) next(line string) (c agentCall, s *session, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.lines[line]
	if len(calls) == 0 {
		delete(t.lines, line)
		return c, nil, false
	}
	t.lines[line] = calls[1:]
	return calls[0], t.findLocked(line), true
}

// waiterTable is who waits for which turn.
type waiterTable struct {
	mu    sync.Mutex            // guards the fields below
	turns map[waiterID]*session // nil while the turn is on its way to a session
}

// add notes a waiter whose turn has no session yet; 0 is nobody.
func (t *waiterTable) add(w waiterID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w != 0 {
		t.turns[w] = nil
	}
}

// assign notes the session that a waiter's turn goes to. false: the waiter has been retired.
func (t *waiterTable) assign(w waiterID, s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, waits := t.turns[w]; waits {
		t.turns[w] = s
		return true
	}
	return w == 0
}

// waits reports whether a turn is still wanted; that of nobody always is.
func (t *waiterTable) waits(w waiterID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, waits := t.turns[w]
	return waits || w == 0
}

// retire takes a waiter out. false: it was out already, so it must get no result.
func (t *waiterTable) retire(w waiterID) (s *session, waited bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, waited = t.turns[w]
	delete(t.turns, w)
	return s, waited
}

// all are the waiters that have no result yet.
func (t *waiterTable) all() []waiterID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.turns))
}

const (
	reserveLimit = 2 * time.Second // how long a start tries for --identity
	leaverLimit  = 2 * time.Second // how long a call waits for an identity that is about to be free
)

// identities are the names of the agents that are open here.
type identities struct {
	*common
	addresses addressBook

	tried chan struct{} // closed when --identity is leased, or could not be
	one   sync.Mutex    // held while a session finds room and a name: one at a time

	mu       sync.Mutex // guards the field below
	reserved *lease     // --identity, until the first session takes it
}

// reserve leases --identity at start, trying for 2 s: a client that restarts us may not have let the old process die
// yet. Held longer, every call that wants it is answered with who holds it.
func (n *identities) reserve() {
	if !n.cfg.identityExplicit {
		close(n.tried)
		return
	}
	n.work.start(func() {
		defer close(n.tried)
		if taken := n.addresses.strange(n.cfg.identity); taken != nil { // each call that wants it is told
			n.log.Warn("identity is a member's who is no agent of this program", "identity", n.cfg.identity, "err",
				taken.who())
			return
		}
		for until := time.Now().Add(reserveLimit); ; {
			l, err := n.reg.acquire(n.cfg.identity, "")
			if err == nil {
				n.setReserved(l)
				n.ledger.named(n.cfg.identity)
				return
			}
			if time.Now().After(until) {
				n.log.Warn("identity is held", "identity", n.cfg.identity, "err", err)
				return
			}
			if pauseUntil(n.life, time.Now().Add(100*time.Millisecond)) != nil {
				return
			}
		}
	})
}

// setReserved replaces the lease of --identity and returns the one before.
func (n *identities) setReserved(l *lease) (was *lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, n.reserved = n.reserved, l
	return was
}

// reserves reports the identity that is leased and no session's yet.
func (n *identities) reserves(identity string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reserved != nil && strings.EqualFold(identity, n.reserved.name)
}

// stop lets --identity go.
func (n *identities) stop() {
	<-n.tried
	if l := n.setReserved(nil); l != nil {
		l.release()
	}
}

// give finds room for a session and leases its identity, which p then has.
func (n *identities) give(s *session, p *place, req turnRequest) *rpcError {
	<-n.tried // a first call may come while the process before us still holds the name
	name, implied := n.wanted(p, req)
	if !implied {
		n.awaitLeaver(name, s)
	}
	n.reg.awaitKeeper(name)   // git may be looking into the worktree of the agent that had the name last
	n.addresses.strange(name) // reads what is half written, if need be, while nobody waits for us
	n.one.Lock()
	defer n.one.Unlock()
	if n.table.agent(s.agentID) != s {
		return proxyError(codeSessionClosed, "the call was cancelled before its session was open")
	}
	if err := n.makeRoom(); err != nil {
		return err
	}
	name, implied = n.wanted(p, req)
	l, err := n.lease(name, implied, s.agentID, p)
	if err != nil {
		return err
	}
	p.lease, p.rec.Identity, p.rec.Implied = l, name, implied
	if implied {
		p.rec.Identity = l.name
	}
	n.table.enterName(s, p.rec.Identity)
	n.ledger.named(p.rec.Identity)
	return nil
}

// lease leases a name that was asked for, or one like it where it is implied.
func (n *identities) lease(name string, implied bool, agentID string, p *place) (*lease, *rpcError) {
	taken := n.addresses.strange(name)
	known := ""
	if p.revived {
		known = p.rec.AgentID
	}
	switch {
	case taken == nil:
		l, err := n.acquire(name, agentID)
		if err == nil {
			return l, nil
		}
		if !implied {
			return nil, heldError(err, p.rec.AgentID, name, n.free(name))
		}
		if !errors.As(err, new(*heldBy)) {
			return nil, heldError(err, p.rec.AgentID, name, "")
		}
	case !implied:
		return nil, heldError(taken, known, name, n.free(name))
	case p.rec.Identity != "":
		p.notes = append(p.notes, fmt.Sprintf("the agent, which was %s, has another name now: %s", name, taken.who()))
	}
	l, err := n.reg.acquireFree(name, agentID, n.addresses.isStrange)
	if err != nil {
		return nil, heldError(err, p.rec.AgentID, name, "")
	}
	return l, nil
}

// acquire leases a name, taking over the lease that --identity made at start.
func (n *identities) acquire(name, agentID string) (*lease, error) {
	var l *lease
	if n.reserves(name) {
		l = n.setReserved(nil)
	}
	if l == nil {
		return n.reg.acquire(name, agentID)
	}
	if err := l.assign(agentID); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// wanted is the identity a session is to have, and whether nobody asked for it by name (FR-2.5).
func (n *identities) wanted(p *place, req turnRequest) (name string, implied bool) {
	switch {
	case req.identity != "":
		return req.identity, false
	case p.rec.Identity != "":
		return p.rec.Identity, p.rec.Implied
	case req.implied != "":
		return req.implied, true
	case n.cfg.identityExplicit: // asked for by name, once: the first session takes it
		return n.cfg.identity, n.table.named(n.cfg.identity) != nil
	}
	return n.cfg.identity, true
}

// free is a name that a call could have instead, for an error's advice.
func (n *identities) free(name string) string {
	return n.reg.freeIdentity(name, n.addresses.isStrange)
}

// refusal is why an agent can't have another name than it has, nil where it can.
func (n *identities) refusal(agentID, had, name string) *rpcError {
	if name == "" || strings.EqualFold(name, had) {
		return nil
	}
	if holder, pid, held := n.reg.holder(name); held {
		return heldError(nameHeld(name, holder, pid), agentID, name, n.free(name))
	}
	if taken := n.addresses.strange(name); taken != nil {
		return heldError(taken, agentID, name, n.free(name))
	}
	return nil
}

// awaitLeaver waits for a session that holds a name and is about to end: whoever ends an agent and starts another
// under its name means that order.
func (n *identities) awaitLeaver(name string, s *session) {
	holder := n.table.named(name)
	if holder == nil || holder == s {
		return
	}
	stays := make(chan struct{}) // its loop says so, behind a cancel that came before
	if !holder.box.do(func() {
		if holder.m.ending == endNone {
			close(stays)
		}
	}) {
		return
	}
	limit := time.NewTimer(leaverLimit)
	defer limit.Stop()
	select {
	case <-stays:
	case <-holder.ended:
	case <-limit.C:
	case <-n.life.Done():
	}
}

// makeRoom parks the least recently used idle session with an implied identity while the table is full (FR-3.3). It
// waits for the parking.
func (n *identities) makeRoom() *rpcError {
	for {
		var oldest *session
		all := n.table.leased()
		for _, s := range all {
			v := s.shown.Load()
			if v.Status == statusIdle && v.implied &&
				(oldest == nil || v.LastActive.Before(oldest.shown.Load().LastActive)) {
				oldest = s
			}
		}
		if len(all) < n.cfg.maxConcurrentThreads {
			return nil
		}
		if oldest == nil {
			return proxyAdvice(codeMaxSessions, remedyRoom, fmt.Sprintf("%d sessions are open and none can be parked "+
				"(max_concurrent_threads = %d)", len(all), n.cfg.maxConcurrentThreads), "; close one with agent_close")
		}
		done := make(chan struct{})
		if oldest.end(endPark, "", func(closeResult) { close(done) }) {
			<-done
		}
	}
}
