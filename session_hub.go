package main

// session_hub.go owns the table of sessions and who waits for which turn. A front
// talks to nothing else. It hands out pointers and never calls a session under
// its lock; session_opener.go makes sessions ready, session_slot.go has the one child.
// Nothing in it waits on a client or on the child, except where a comment says
// so.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// hub is the only thing a front talks to. Its methods may be called from any
// goroutine and don't block, except where they say so.
type hub struct {
	// fixed at birth
	cfg     *config
	log     *slog.Logger
	reg     *registry
	front   front
	child   childSlot
	book    *ledger
	kept    *keptTurns
	post    *post
	clients clientIndex
	opener  opener
	resume  resumption
	mail    mailroom
	started time.Time
	// The tools of the agents themselves, set by the composition root: without
	// agentTool agents have none and are told of none.
	agentTool  agentToolFunc
	agentSpecs []clientTool
	toolServer toolServerEntry
	notesTold  atomic.Bool    // cfg.notes were handed to a session
	tellsMail  bool           // the front tells the client of its own mail; set by the composition root
	waiting    atomic.Int64   // bytes in all sessions' postboxes
	marked     chan struct{}  // closed when sessions of dead processes are marked
	work       sync.WaitGroup // opening and reopening sessions, look-ups
	life       context.Context
	endLife    context.CancelFunc
	endsBy     string // why everything ends: set before settle

	mu       sync.Mutex            // guards the fields below
	live     map[string]*session   // by agent_id
	threads  map[string]*session   // by threadId
	names    map[string]*session   // by lower-case identity
	waiters  map[waiterID]*session // nil while it is being routed
	asks     map[string]*session
	lookups  map[string][]lookup // by the id asked for, oldest first
	reserved *lease              // --identity, until the first session takes it
	stopped  bool                // work is no longer waited for

	waitCalls int           // open agent_wait calls, which end with life
	waitsOver chan struct{} // closed when there is none left
	leaving   []*session    // those that were open when settle began
	until     time.Time     // when the grace is over, zero until settle
}

// newHub makes the hub; the composition root sets front and the
// child's spawn before the first call.
func newHub(cfg *config, log *slog.Logger, reg *registry, audit *auditLog) *hub {
	h := &hub{cfg: cfg, log: log, reg: reg, book: newLedger(cfg, log, reg, audit), started: time.Now(), endsBy: "asked to stop",
		live: map[string]*session{}, threads: map[string]*session{}, names: map[string]*session{},
		waiters: map[waiterID]*session{}, asks: map[string]*session{}, lookups: map[string][]lookup{}}
	h.kept = newKeptTurns(reg, log)
	h.post = newPost(h)
	h.mail.init(h)
	h.child.restart, h.child.log = cfg.restartChild, log
	h.opener.h, h.opener.tried, h.marked = h, make(chan struct{}), make(chan struct{})
	h.life, h.endLife = context.WithCancel(context.Background())
	return h
}

// submit runs one turn (or rebinds). The waiter gets exactly one result by
// front.done, errors included, unless it is cancelled first. Two submits for
// one agent keep their order.
func (h *hub) submit(req turnRequest, w waiterID) {
	if req.background && req.handle == "" {
		req.handle = newTurnHandle()
	}
	h.mu.Lock()
	if w != 0 {
		h.waiters[w] = nil
	}
	h.mu.Unlock()
	if req.notify != "" {
		h.goWork(func() { // a name that can't be mailed is a mistake of this call
			if err := h.post.reachable(req.identity, req.notify); err != nil {
				h.answered(w, turnResult{err: err})
				return
			}
			h.routeFirst(req, w)
		})
		return
	}
	h.routeFirst(req, w)
}

// routeFirst routes a request that may be the one that continues a session.
func (h *hub) routeFirst(req turnRequest, w waiterID) {
	if !h.resumes(req, w) {
		h.route(req, w)
	}
}

// route finds or makes the session of a request. It reads no file: what must
// look a record up goes on in its own goroutine.
func (h *hub) route(req turnRequest, w waiterID) {
	var agentID string
	if req.mode == modeNew {
		if agentID = req.agentID; agentID == "" {
			agentID = h.reg.newAgentID()
		}
	}
	if err := h.child.refusal(); err != nil {
		h.answered(w, turnResult{err: err})
		return
	}
	h.mu.Lock()
	if req.mode == modeNew {
		if h.live[agentID] != nil {
			h.mu.Unlock()
			h.answered(w, turnResult{err: proxyError(codeInvalidSession, fmt.Sprintf("agent %s exists already", agentID), "agent_id", agentID)})
			return
		}
		s := h.addLocked(agentID, req.identity)
		h.mu.Unlock()
		h.openWith(s, req, w, nil)
		return
	}
	s := h.findLocked(req.ref)
	if s != nil {
		req.ref = s.agentID // whatever it was called by, calls for it stand in one line
	}
	if s != nil && !h.lookingLocked(req.ref) && (!req.reshapes() || s.client.fits(&req)) {
		h.mu.Unlock()
		h.give(s, req, w)
		return
	}
	h.lookUpLocked(req.ref, lookup{req: req, w: w})
	h.mu.Unlock()
}

// lookup is a turn, a close or another order whose session must first be looked
// up on disk.
type lookup struct {
	req   turnRequest
	w     waiterID
	close func(closeResult, *rpcError) // nil: a turn
	leave bool                         // the close asks for no summary
	order func(*session)               // nil: a turn or a close; nil is handed in where it isn't open here

	correlation string // of a close
}

func (h *hub) lookingLocked(ref string) bool {
	_, looking := h.lookups[ref]
	return looking
}

// lookUpLocked has a look-up done behind those for the same id.
func (h *hub) lookUpLocked(ref string, l lookup) {
	looking := h.lookingLocked(ref)
	h.lookups[ref] = append(h.lookups[ref], l)
	if !looking {
		h.goWorkLocked(func() { h.lookAll(ref) })
	}
}

// lookAll routes the turns for one id in the order they came.
func (h *hub) lookAll(ref string) {
	for {
		h.mu.Lock()
		queue := h.lookups[ref]
		if len(queue) == 0 {
			delete(h.lookups, ref)
			h.mu.Unlock()
			return
		}
		next := queue[0]
		h.lookups[ref] = queue[1:]
		s := h.findLocked(ref)
		h.mu.Unlock()
		if next.order != nil {
			next.order(s)
			continue
		}
		if next.close != nil {
			if s == nil || !h.endFor(s, next.leave, next.correlation, next.close) {
				next.close(h.closeRecord(ref, next.correlation))
			}
			continue
		}
		if s != nil && next.req.reshapes() && !s.client.fits(&next.req) {
			err := h.opener.vet(s.agentID, next.req)
			if err == nil {
				err = h.setAside(s)
			}
			if err != nil {
				h.answered(next.w, turnResult{err: err})
				continue
			}
		}
		h.revive(next.req, next.w)
	}
}

// setAside parks an open session so that it is opened anew with other
// settings. It waits for that.
func (h *hub) setAside(s *session) *rpcError {
	done := make(chan closeResult, 1)
	if s.end(endPark, "", func(r closeResult, _ *rpcError) { done <- r }) && (<-done).Status == statusBusy {
		return proxyError(codeInvalidSession, fmt.Sprintf("session %s is busy; its settings can be changed when its turn has ended. codex-reply needs no settings and waits in its queue", s.agentID), "agent_id", s.agentID)
	}
	return nil
}

// goWork runs f in a goroutine of the hub's, waited for by stop.
func (h *hub) goWork(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.goWorkLocked(f)
}

func (h *hub) goWorkLocked(f func()) {
	if h.stopped { // the child refuses everything by now: f only answers
		go f()
		return
	}
	h.work.Add(1)
	go func() {
		defer h.work.Done()
		f()
	}()
}

// addLocked makes a session, which is to have the given name unless "", and puts
// it into the table.
func (h *hub) addLocked(agentID, name string) *session {
	s := newSession(h, agentID, name)
	h.live[agentID] = s
	return s
}

// give hands a turn to a session, unless its asker has cancelled it. A
// session that has just ended sends it back to be looked up again. false: it
// was cancelled.
func (h *hub) give(s *session, req turnRequest, w waiterID) bool {
	h.mu.Lock()
	if _, waits := h.waiters[w]; w != 0 && !waits {
		h.mu.Unlock()
		return false
	}
	if w != 0 {
		h.waiters[w] = s
	}
	h.mu.Unlock()
	if !s.submit(req, w) {
		h.resubmit(req, w)
	}
	return true
}

// resubmit routes a turn again whose session was parked under it.
func (h *hub) resubmit(req turnRequest, w waiterID) {
	h.goWork(func() { h.route(req, w) })
}

// revive looks up a session that isn't open here and opens it.
func (h *hub) revive(req turnRequest, w waiterID) {
	rec, err := h.lookUp(req.ref)
	if err == nil && req.mode == modeReply {
		err = replyRefusal(rec)
	}
	if err != nil {
		h.answered(w, turnResult{err: err})
		return
	}
	if err := h.child.refusal(); err != nil {
		h.answered(w, turnResult{err: err})
		return
	}
	h.mu.Lock()
	s := h.findLocked(rec.AgentID)
	if s == nil {
		s = h.findLocked(rec.BackendID)
	}
	if s != nil { // somebody else's call was quicker
		h.mu.Unlock()
		h.give(s, req, w)
		return
	}
	s = h.addLocked(rec.AgentID, cmp.Or(req.identity, rec.Identity))
	if rec.BackendID != "" {
		h.threads[rec.BackendID] = s
	}
	h.mu.Unlock()
	h.openWith(s, req, w, rec)
}

// openWith gives a new session its first turn and then its place: in this
// order, so that a place that can't be had still answers the turn.
func (h *hub) openWith(s *session, req turnRequest, w waiterID, rec *record) {
	s.client.shaped(&req, rec)
	if !h.give(s, req, w) {
		s.end(endFailed, "", nil) // cancelled before it began
		return
	}
	h.goWork(func() { h.opener.prepare(s, req, rec) })
}

// replyRefusal is why codex-reply can't revive a session, nil if it can.
func replyRefusal(rec *record) *rpcError {
	switch rec.Status {
	case statusClosed:
		return closedError(rec.AgentID, fmt.Sprintf("session %s (identity %q) is closed", rec.AgentID, rec.Identity), "resume")
	case statusBroken:
		return closedError(rec.AgentID, fmt.Sprintf("session %s is broken: Codex did not confirm that its last turn stopped", rec.AgentID), "recover")
	}
	return nil
}

// closedError refuses a turn of a session that takes none until codex has
// opened it again; verb is what that does to it.
func closedError(agentID, what, verb string) *rpcError {
	return proxyAdvice(codeSessionClosed, remedyReopen, what,
		fmt.Sprintf("; call codex with {\"agent_id\": %q, \"prompt\": …} to %s it", agentID, verb), "agent_id", agentID)
}

// cancel retires a waiter: it gets no result any more. A queued turn is never
// run, a running one is interrupted. With detach only the front has forgotten
// the waiter, since the client itself timed out: the turn goes on, and what it
// brings is kept in the session.
func (h *hub) cancel(w waiterID, detach bool) {
	h.mu.Lock()
	s := h.waiters[w]
	if !detach {
		delete(h.waiters, w)
	}
	h.mu.Unlock()
	switch {
	case s == nil:
	case detach:
		s.detach(w)
	default:
		s.cancel(w)
	}
}

// waits reports whether a turn is still wanted; 0 is always.
func (h *hub) waits(w waiterID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.waiters[w]
	return ok || w == 0
}

// answered gives a waiter its result. The table is what makes it exactly once.
func (h *hub) answered(w waiterID, r turnResult) {
	h.mu.Lock()
	_, ok := h.waiters[w]
	delete(h.waiters, w)
	h.mu.Unlock()
	if ok && w != 0 {
		h.front.done(w, r)
	}
}

// decide answers an approval that front.ask put; by says who. false: it was
// already decided or withdrawn.
func (h *hub) decide(ask string, by decider, d decision, answers map[string][]string) bool {
	h.mu.Lock()
	s := h.asks[ask]
	delete(h.asks, ask)
	h.mu.Unlock()
	return s != nil && s.box.post(func() { s.decide(ask, by, d, answers) })
}

// askOpen and askDone keep the way from an approval to its session.
func (h *hub) askOpen(id string, s *session) {
	h.mu.Lock()
	h.asks[id] = s
	h.mu.Unlock()
}

func (h *hub) askDone(id string) {
	h.mu.Lock()
	delete(h.asks, id)
	h.mu.Unlock()
}

// threadOf and forget keep the table in step with a session's life.
func (h *hub) threadOf(s *session, thread string) {
	h.mu.Lock()
	h.threads[thread] = s
	h.mu.Unlock()
}

// holds reports whether a session is still in the table.
func (h *hub) holds(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[s.agentID] == s
}

// forget takes a session out of the table; look-ups go to its record.
func (h *hub) forget(s *session) {
	h.mu.Lock()
	for key, other := range h.threads {
		if other == s {
			delete(h.threads, key)
		}
	}
	for key, other := range h.names {
		if other == s {
			delete(h.names, key)
		}
	}
	if h.live[s.agentID] == s {
		delete(h.live, s.agentID)
	}
	h.mu.Unlock()
	h.book.leave(s.agentID)
	h.kept.forget(s.agentID)
	h.kept.poke()
}

// sessions lists what is open here and the team's other sessions, newest
// first. It reads records from disk and may wait for them.
func (h *hub) sessions(limit int) []sessionView {
	h.mu.Lock()
	out := make([]sessionView, 0, len(h.live))
	open := map[string]bool{}
	for id, s := range h.live {
		if v := s.shown.Load(); v.Identity != "" {
			out = append(out, *v)
			open[id] = true
		}
	}
	h.mu.Unlock()
	<-h.marked // else a session of a process that just died may look busy
	recs, err := h.book.records(limit)
	if err != nil {
		h.log.Warn("records could not be listed", "err", err)
	}
	for _, r := range recs {
		if open[r.AgentID] {
			continue
		}
		out = append(out, h.viewOfRecord(&r))
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].LastActive.After(out[j].LastActive) })
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	return out
}

// viewOfRecord is a session that isn't open here.
func (h *hub) viewOfRecord(r *record) sessionView {
	v := sessionView{AgentID: r.AgentID, Backend: "codex", BackendID: r.BackendID, Team: r.Team, Identity: r.Identity,
		AgentName: r.AgentName, AgentSource: r.AgentSource, LastActive: r.LastActive,
		StartedAt: r.StartedAt, Tag: r.Tag, Role: r.Role, Cwd: r.CWD, Turns: r.Turns, LastError: r.LastError, Resumable: r.BackendID != ""}
	v.Status, v.Interrupted, v.pid = h.reg.told(r)
	if v.Status == statusParked { // it comes back by its next reply, and so does its mail
		v.PendingMail, v.AutoMail = h.mail.waitingFor(r.Identity), onOff(h.autoMail(r))
	}
	return v
}

// status tells the whole proxy. It reads no disk.
func (h *hub) status() statusView {
	v := statusView{Team: h.cfg.team, TeamFrom: h.cfg.teamFrom, Unsaved: h.book.unsaved(), Uptime: time.Since(h.started), Identities: map[string]string{}}
	h.child.show(&v)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.names {
		if view := s.shown.Load(); view.Identity != "" {
			v.Identities[view.Identity] = view.AgentID
		}
	}
	v.Sessions = len(h.names)
	for _, s := range h.live {
		view := *s.shown.Load()
		v.Agents = append(v.Agents, view)
		if view.PendingMail != nil {
			sum := *view.PendingMail
			if v.PendingMail != nil {
				sum += *v.PendingMail
			}
			v.PendingMail = &sum
		}
	}
	sort.Slice(v.Agents, func(i, j int) bool { return v.Agents[i].StartedAt.Before(v.Agents[j].StartedAt) })
	v.EventBytes, v.EventBytesLimit = h.waiting.Load(), maxWaitingBytes
	return v
}

// start begins what serve needs beside calls: the lease of --identity and the
// marking of sessions whose process died. Neither delays the first answer.
func (h *hub) start() {
	h.opener.reserve()
	if h.cfg.clientIdentity != "" && h.tellsMail {
		h.mail.joinClient(h.cfg.clientIdentity)
	}
	h.goWork(func() {
		n := h.reg.markStale()
		h.reg.markIndexes()
		if close(h.marked); n > 0 {
			h.log.Warn("sessions of dead processes marked stale", "sessions", n)
		}
		if !h.cfg.teamless {
			h.post.file.tidy()
			h.post.sweep(sweepTries)
		}
	})
	if h.cfg.resume != nil {
		h.resume.found = make(chan struct{})
		h.resume.open.Store(true)
		h.goWork(h.findResumed)
	}
}
