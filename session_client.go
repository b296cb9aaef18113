package main

// session_client.go owns what is done for a client that has a name of its own for each session (ACP): which agent is
// behind a name, what a session was opened with, what a person chooses for it while it is open or kept, its title, its
// past. The ACP front calls it through the hub; a session's part runs on the session's goroutine. What reads the
// child's configuration runs in the hub's goroutines: turns wait for it, the loop must never.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// threadsWait is how long a list of sessions waits for the threads that only Codex knows, its start included.
const threadsWait = 5 * time.Second

// clientSession is a session that a client has its own id for, as it is kept; or a thread that only Codex knows, whose
// id is the client's id too.
type clientSession struct {
	Session string // the client's id
	AgentID string // "" for a thread that no agent has
	Thread  string // Codex's id, "" where there is none yet
	Cwd     string
	Roots   []string
	Title   string
	Preview string // how a thread's first prompt begins, where that is all that is known
	Updated time.Time
	Turns   int
	Status  string
}

// clientAgents are the agents of such a client. Its methods may be called from any goroutine.
type clientAgents struct {
	*common
	agents *agentDirectory
	opener *opener

	ids sync.Map // agent_id by the client's id

	removing sync.Mutex // held while remove deletes: the second of two for one session finds nothing to delete
}

// listAll tells what a client can open, newest first: its sessions, and the threads that somebody began with another
// client of Codex, in dir, or in any directory for "". Where Codex can't be asked it tells the sessions alone. It waits
// for the child.
func (n *clientAgents) listAll(ctx context.Context, dir string) ([]clientSession, error) {
	ctx, cancel := context.WithTimeout(ctx, threadsWait)
	defer cancel()
	// Codex first: a thread that becomes a session meanwhile is told as that one.
	list, cerr := n.opener.child.catalog(ctx, "threads", dir)
	if cerr != nil {
		n.log.Debug("Codex's threads could not be listed", "err", cerr)
	}
	all, err := n.list()
	ours := map[string]*clientSession{} // by thread
	for i := range all {
		ours[all[i].Thread] = &all[i]
	}
	var others []clientSession
	eachElement(rawField(list, "data"), func(th json.RawMessage) {
		name, seconds := stringField(th, "name"), int64(0)
		_ = json.Unmarshal(rawField(th, "updatedAt"), &seconds) // missing: it is the oldest
		v := clientSession{Session: stringField(th, "id"), Thread: stringField(th, "id"), Cwd: stringField(th, "cwd"),
			Title: name, Preview: stringField(th, "preview"), Updated: time.Unix(seconds, 0)}
		if known := ours[v.Thread]; known == nil {
			others = append(others, v)
		} else if name != "" { // somebody named it elsewhere
			known.Title = name
		}
	})
	return append(all, others...), err
}

// list tells the team's sessions that a client has ids for, newest first, other processes' too. It reads the disk.
func (n *clientAgents) list() ([]clientSession, error) {
	<-n.agents.marked // else a session of a process that just died may look busy
	recs, err := n.ledger.records(0)
	var out []clientSession
	for i := range recs {
		if rec := &recs[i]; rec.ClientSession != "" {
			n.ids.Store(rec.ClientSession, rec.AgentID)
			out = append(out, n.view(rec))
		}
	}
	slices.SortStableFunc(out, func(a, b clientSession) int { return b.Updated.Compare(a.Updated) })
	if err != nil {
		return out, fmt.Errorf("listing sessions: %w", err)
	}
	return out, nil
}

// find is the session of a client's id. The id of a thread that no client has another id for means that thread, which
// Codex may have or not. It may read the disk.
func (n *clientAgents) find(session string) (clientSession, *rpcError) {
	for range 2 {
		if id, known := n.ids.Load(session); known {
			if rec := n.ledger.record(id.(string)); rec != nil && rec.ClientSession == session {
				return n.view(rec), nil
			}
		}
		if _, err := n.list(); err != nil { // another process may have made it
			n.log.Warn("records could not be listed", "err", err)
		}
	}
	if threadRule.MatchString(session) {
		rec := n.ledger.record(n.agents.agentID(session)) // of an agent that another program's client began
		switch {
		case rec == nil:
			return clientSession{Session: session, Thread: session}, nil
		case rec.ClientSession == "":
			v := n.view(rec)
			v.Session = session
			return v, nil
		}
	}
	return clientSession{}, proxyError(codeSessionNotFound, fmt.Sprintf("there is no session %q", clip(session, 200)),
		"session_id", clip(session, 200))
}

func (n *clientAgents) view(rec *record) clientSession {
	v := clientSession{Session: rec.ClientSession, AgentID: rec.AgentID, Thread: rec.BackendID, Cwd: rec.CWD,
		Roots: rec.Roots, Title: rec.Title, Updated: rec.LastActive, Turns: rec.Turns}
	if v.Updated.IsZero() {
		v.Updated = rec.StartedAt
	}
	if s := n.table.agent(rec.AgentID); s != nil {
		v.Status = s.shown.Load().Status
	} else {
		v.Status, _, _ = n.reg.told(rec)
	}
	return v
}

// settings is what the next turn of an open session runs with; nil: it isn't open here, or not yet.
func (n *clientAgents) settings(agentID string) *sessionSettings {
	if s := n.table.agent(agentID); s != nil {
		return s.client.settings.Load()
	}
	return nil
}

// retune changes what the turns after the running one run with, and keeps it: also those that are submitted while it
// is being decided. done is called once, from another goroutine.
func (n *clientAgents) retune(agentID string, change settingsChange, done func(sessionSettings, *rpcError)) {
	if err := change.check(); err != nil {
		n.work.start(func() { done(sessionSettings{}, err) })
		return
	}
	n.choose(agentID, choice{change, done})
}

func (n *clientAgents) choose(agentID string, c choice) {
	n.agents.onLoop(agentID, func(s *session) { s.client.decideNext(c) }, func(string) { n.chooseStored(agentID, c) })
}

// chooseStored keeps a choice for a session that isn't open here. It waits for the child.
func (n *clientAgents) chooseStored(agentID string, c choice) {
	rec := n.ledger.record(agentID)
	if rec == nil {
		c.done(sessionSettings{}, n.agents.unknown(agentID))
		return
	}
	be, err := n.opener.child.ready()
	next := (&place{rec: *rec, be: be, revived: true, client: true}).withChoice(c.change)
	if err == nil {
		err = n.opener.decideAnew(next)
	}
	if err == nil {
		err = n.agents.change(agentID, func(r *record) { c.change.into(&r.Settings) })
		if err != nil && n.table.agent(agentID) != nil { // opened meanwhile
			n.choose(agentID, c)
			return
		}
	}
	if err != nil {
		c.done(sessionSettings{}, err)
		return
	}
	n.ledger.auditChoice(&next.rec, next.settings())
	c.done(next.settings(), nil)
}

// setTitle keeps a title that nobody chose for a session of a client's.
func (n *clientAgents) setTitle(agentID, title string) {
	n.keepTitle(agentID, clipUTF8(strings.TrimSpace(title), maxTitle), func(err *rpcError) {
		if err != nil {
			n.log.Warn("a session's title is not kept", "agent", agentID, "err", err.Message)
		}
	})
}

// keepTitle keeps a title, and then calls done, once, from another goroutine.
func (n *clientAgents) keepTitle(agentID, title string, done func(*rpcError)) {
	n.agents.onLoop(agentID, func(s *session) {
		s.client.setTitle(title)
		done(nil)
	}, func(string) {
		done(n.agents.change(agentID, func(r *record) { r.Title = title }))
	})
}

// rename gives what a client's id means, open or not, a title that a person chose, and has Codex call the thread so:
// then each client of Codex shows it. It returns the title as it is kept. It waits for the child.
func (n *clientAgents) rename(ctx context.Context, session, title string) (string, *rpcError) {
	title = clipUTF8(visible(strings.Join(strings.Fields(title), " ")), maxTitle)
	if title == "" {
		return "", proxyError(codeInvalidSession, "the title is empty: a session's title has at least one character")
	}
	known, err := n.find(session)
	if err != nil {
		return "", err
	}
	if known.AgentID != "" {
		kept := make(chan *rpcError, 1)
		n.keepTitle(known.AgentID, title, func(err *rpcError) { kept <- err })
		if err := <-kept; err != nil {
			return "", err
		}
		if known.Thread == "" {
			return title, nil
		}
	}
	_, err = n.opener.child.change(ctx, "rename", map[string]any{"threadId": known.Thread, "name": title})
	if err != nil && err.Code == codeSessionNotFound && known.AgentID != "" {
		err = nil // a thread that was never prompted: Codex has let go of it
	}
	return title, err
}

// remove deletes what a client's id means, unless some process has it open: Codex archives the thread, and the record
// goes. What there isn't, or not any more, is deleted. It waits for the child.
func (n *clientAgents) remove(ctx context.Context, session string) *rpcError {
	n.removing.Lock()
	defer n.removing.Unlock()
	known, err := n.find(session)
	if err != nil {
		return nil
	}
	rec := n.ledger.record(known.AgentID)
	if rec == nil {
		// Else another process could make a session of the thread meanwhile.
		lock, lerr := n.reg.lockThread(known.Thread, n.reg.newAgentID())
		if lerr != nil {
			return heldError(lerr, "", "", "")
		}
		defer lock.release()
	} else {
		release, gone := n.reg.holdLongIfGone(rec.AgentID, rec.Identity, rec.BackendID)
		if !gone {
			_, pid, _ := n.reg.holder(rec.Identity)
			return heldError(nameHeld(rec.Identity, rec.AgentID, pid), rec.AgentID, rec.Identity, "")
		}
		defer release()
	}
	if known.Thread != "" {
		_, err := n.opener.child.change(ctx, "archive", map[string]any{"threadId": known.Thread})
		if err != nil && err.Code != codeSessionNotFound { // never prompted, or archived before
			return err
		}
	}
	if rec == nil {
		return nil
	}
	n.ids.Delete(session)
	if err := n.reg.remove(*rec, false); err != nil {
		return proxyError(codeInvalidSession, "the session could not be deleted: "+errorText(err), "agent_id",
			rec.AgentID)
	}
	n.ledger.auditClose(rec.AgentID, rec.Identity, rec.BackendID, "deleted", "")
	return nil
}

// history tells the past turns of a session's thread: none where it was never prompted. It waits for the child, and
// for each.
func (n *clientAgents) history(ctx context.Context, agentID string, each func(*event) error) *rpcError {
	rec := n.ledger.record(agentID)
	if rec == nil {
		return n.agents.unknown(agentID)
	}
	if rec.BackendID == "" || !rec.hasPast() {
		return nil
	}
	be, err := n.opener.child.readyWithin(ctx)
	if err != nil {
		return err
	}
	var told sync.Once
	return refusal("read the history of thread "+rec.BackendID, be.history(ctx, rec.BackendID, func(e *event) error {
		told.Do(func() { n.passEvents(ctx, agentID) })
		return each(e)
	}))
}

// passEvents waits until an open session has told its front all that came before: a turn that began while the history
// was read may stand in that as well, and the front is to know by then that the turn runs.
func (n *clientAgents) passEvents(ctx context.Context, agentID string) {
	passed := make(chan struct{})
	if s := n.table.agent(agentID); s != nil && s.box.do(func() { close(passed) }) {
		select {
		case <-passed:
		case <-ctx.Done():
		}
	}
}

// sessionSettings is what the next turn of a session runs with, and what else it could: copies, for who lets a person
// choose.
type sessionSettings struct {
	Model, Effort     string // as chosen, else as Codex opened the thread with; "" where nobody said
	Sandbox, Approval string
	Plan              bool // Codex plans, and the sandbox is read-only for that
	// What they would be if nobody had chosen them for this session.
	BaseSandbox, BaseApproval string
	MaxSandbox                string   // the ceiling
	Notes                     []string // why they aren't what was chosen, a sentence each
}

// settingsChange is what a person chose; nil leaves as it is, "" goes back to what it is without a choice.
type settingsChange struct {
	Model, Effort     *string
	Sandbox, Approval *string
	Plan              *bool
}

func (c settingsChange) into(r *sessionOptions) {
	for _, f := range []struct {
		into *string
		from *string
	}{{&r.Model, c.Model}, {&r.Effort, c.Effort}, {&r.Sandbox, c.Sandbox}, {&r.Approval, c.Approval}} {
		if f.from != nil {
			*f.into = *f.from
		}
	}
	switch {
	case c.Plan == nil:
	case *c.Plan:
		r.Collaboration = collabPlan
	case r.Collaboration != "": // a thread that was never in plan mode is told nothing of modes
		r.Collaboration = collabDefault
	}
}

// check finds a word that no turn could carry.
func (c settingsChange) check() *rpcError {
	for _, f := range []struct {
		word  *string
		check func(string) (string, error)
	}{{c.Model, checkLine}, {c.Effort, checkEffort}, {c.Sandbox, normalizeSandbox}, {c.Approval, normalizePolicy}} {
		if f.word == nil || *f.word == "" {
			continue
		}
		if word, err := f.check(*f.word); err != nil {
			return proxyError(codeInvalidSession, errorText(err))
		} else if word != *f.word {
			return proxyError(codeInvalidSession, fmt.Sprintf("%q is written %q", *f.word, word))
		}
	}
	return nil
}

// choice is a change that a person made and that is not decided yet. done is called once, never on the loop.
type choice struct {
	change settingsChange
	done   func(sessionSettings, *rpcError)
}

// clientPart is what a session knows of such a client. All but the first three fields are its loop's.
type clientPart struct {
	s        *session
	settings atomic.Pointer[sessionSettings] // published; nil until the thread is open
	shape    sessionShape                    // fixed at birth

	choices  []choice // that are not decided yet, oldest first
	deciding bool     // the first of them is being decided: no turn starts
	title    string   // a title that came before the session had a place
	unsummed bool     // the session's end asks for no summary
}

// sessionShape is what a client's session was opened with, and can't change while it is open.
type sessionShape struct {
	named   bool // the client has a name of its own for it
	cwd     string
	roots   []string
	servers json.RawMessage
}

func newShape(req *turnRequest, rec *record) sessionShape {
	shape := sessionShape{cwd: req.cwd, servers: someServers(req.servers)}
	if rec != nil && shape.cwd == "" {
		shape.cwd = rec.CWD
	}
	if req.client != nil {
		shape.named, shape.roots = true, req.client.roots
	} else if rec != nil {
		shape.roots = rec.Roots
	}
	return shape
}

// fits reports a request that asks of an open session nothing but what it has: a client says all it knows of a session
// with every call.
func (c *clientPart) fits(req *turnRequest) bool {
	shape, rest := &c.shape, *req
	rest.cwd, rest.servers, rest.client = "", nil, nil
	return req.client != nil && !rest.reshapes() &&
		(req.cwd == "" || filepath.Clean(req.cwd) == filepath.Clean(shape.cwd)) &&
		slices.Equal(req.client.roots, shape.roots) &&
		(req.servers == nil || bytes.Equal(someServers(req.servers), shape.servers))
}

// someServers is nil for an object without any.
func someServers(raw json.RawMessage) json.RawMessage {
	some := false
	_ = eachField(raw, func(string, json.RawMessage) bool { some = true; return false })
	if some {
		return raw
	}
	return nil
}

// placed goes on with what waited for the session's place.
func (c *clientPart) placed() {
	if c.title != "" {
		c.s.place.rec.Title = c.title
	}
	if name := c.s.place.rec.ClientSession; name != "" {
		c.s.log = c.s.log.With("sessionId", name)
	}
	c.decideNext()
}

// keep puts the client's session on disk before the client is told of it: it may ask for the session after a restart,
// never having prompted it.
func (c *clientPart) keep() {
	p := c.s.place
	c.s.h.ledger.save(&p.rec)
	c.s.h.clients.ids.Store(p.rec.ClientSession, c.s.agentID)
	p.revived = true // a cancel leaves it there from now on
}

func (c *clientPart) showSettings() {
	v := c.s.place.settings()
	c.settings.Store(&v)
}

// decideNext has the oldest choice decided, unless one is or there is no place yet. more are new ones.
func (c *clientPart) decideNext(more ...choice) {
	s := c.s
	c.choices = append(c.choices, more...)
	if c.deciding || len(c.choices) == 0 || !s.hasPlace() || s.m.phase == phaseOver {
		return
	}
	c.deciding = true
	next := s.place.withChoice(c.choices[0].change)
	s.h.work.start(func() {
		err := s.h.opener.decideAnew(next)
		s.box.do(func() { c.decided(next, err) }) // if the loop has ended, the choice is the record's by now
	})
}

// decided takes over what the oldest choice came to; it is on disk before it is answered.
func (c *clientPart) decided(next *place, err *rpcError) {
	s := c.s
	if s.m.phase == phaseOver {
		return // ended has handed the choice to the record
	}
	made := c.choices[0]
	c.deciding, c.choices = false, slices.Delete(c.choices, 0, 1)
	if err == nil {
		s.place.takeOver(next)
		if s.thread != "" {
			c.showSettings()
		}
		if s.thread != "" || s.place.revived && !s.place.adopted {
			s.h.ledger.save(&s.place.rec)
		}
		s.h.ledger.auditChoice(&s.place.rec, s.place.settings())
	}
	v := s.place.settings()
	s.h.work.start(func() { made.done(v, err) })
	c.decideNext()
}

func (c *clientPart) setTitle(title string) {
	p := c.s.place
	switch {
	case !c.s.hasPlace():
		c.title = title
	case p.rec.Title != title:
		p.rec.Title = title
		if c.s.thread != "" {
			c.s.h.ledger.save(&p.rec)
		}
	}
}

// ended hands what is not decided to the record, which is free by then: also the choice that is being decided, since
// the record must have it before the newer ones.
func (c *clientPart) ended() {
	for _, open := range c.choices {
		c.s.h.clients.choose(c.s.agentID, open)
	}
	if !c.s.hasPlace() && c.title != "" {
		c.s.h.clients.setTitle(c.s.agentID, c.title)
	}
	c.choices = nil
}
