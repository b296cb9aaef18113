package main

// hub.go owns the table of sessions, who waits for which turn, and the one
// child. A front talks to nothing else. It hands out pointers and never calls
// a session under its lock; opening.go makes sessions ready, child.go the
// process. Nothing in it waits on a client or on the child, except where a
// comment says so.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// hub is the only thing a front talks to. Its methods may be called from any
// goroutine and don't block, except where they say so.
type hub struct {
	// fixed at birth
	cfg     *config
	log     *slog.Logger
	reg     *registry
	audit   *auditLog
	front   front
	canAsk  func() bool // whether the client can be asked for approvals
	spawn   func(ctx context.Context, gone func(*childDeath)) (backend, error)
	repos   *repoCache
	started time.Time
	work    sync.WaitGroup // opening and reopening sessions, look-ups
	life    context.Context
	endLife context.CancelFunc

	openMu sync.Mutex // one session at a time finds room and a name

	mu       sync.Mutex            // guards the fields below
	live     map[string]*session   // by agent_id
	threads  map[string]*session   // by threadId
	names    map[string]*session   // by lower-case identity
	waiters  map[waiterID]*session // nil while it is being routed
	open     map[string]record     // records of the open sessions, for the index
	asks     map[string]*session
	lookups  map[string][]lookup // by the id asked for, oldest first
	kept     map[string]record   // ended sessions under persist_threads = false
	child    childSlot
	stopping bool
	instance string // identity that names this instance's index
	reserved *lease // --identity, until the first session takes it

	warnSave, warnAudit sync.Once // a full disk is told once
}

// childSlot is the one child, or why there is none.
type childSlot struct {
	be       backend
	starting chan struct{} // closed when the start under way has ended
	death    *childDeath   // how the last one ended
	kind     string
	version  string
}

// newHub makes the hub; the composition root sets front before the first call.
func newHub(cfg *config, log *slog.Logger, reg *registry, audit *auditLog) *hub {
	h := &hub{cfg: cfg, log: log, reg: reg, audit: audit, repos: newRepoCache(), started: time.Now(),
		live: map[string]*session{}, threads: map[string]*session{}, names: map[string]*session{},
		waiters: map[waiterID]*session{}, asks: map[string]*session{}, open: map[string]record{}, lookups: map[string][]lookup{}, kept: map[string]record{}}
	h.life, h.endLife = context.WithCancel(context.Background())
	return h
}

// submit runs one turn (or rebinds). The waiter gets exactly one result by
// front.done, errors included, unless it is cancelled first. Two submits for
// one agent keep their order.
func (h *hub) submit(req turnRequest, w waiterID) {
	h.mu.Lock()
	if w != 0 {
		h.waiters[w] = nil
	}
	h.mu.Unlock()
	h.route(req, w)
}

// route finds or makes the session of a request. It reads no disk: what must
// look a record up goes on in its own goroutine.
func (h *hub) route(req turnRequest, w waiterID) {
	var agentID string
	if req.mode == modeNew {
		agentID = h.reg.newAgentID()
	}
	h.mu.Lock()
	if err := h.refusalLocked(); err != nil {
		h.mu.Unlock()
		h.answered(w, turnResult{err: err})
		return
	}
	if req.mode == modeNew {
		s := h.addLocked(agentID)
		h.mu.Unlock()
		h.openWith(s, req, w, nil)
		return
	}
	s := h.findLocked(req.ref)
	queue, looking := h.lookups[req.ref]
	if s != nil && !looking && !req.reshapes() {
		h.mu.Unlock()
		h.give(s, req, w)
		return
	}
	h.lookups[req.ref] = append(queue, lookup{req, w})
	h.mu.Unlock()
	if !looking {
		h.goWork(func() { h.lookAll(req.ref) })
	}
}

// lookup is a turn whose session must first be looked up on disk.
type lookup struct {
	req turnRequest
	w   waiterID
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
		if s != nil && next.req.reshapes() {
			if err := h.setAside(s); err != nil {
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
	if s.end(endPark, func(r closeResult, _ *rpcError) { done <- r }) && (<-done).Status == statusBusy {
		return proxyError(codeInvalidSession, fmt.Sprintf("session %s is busy; its settings can be changed when its turn has ended. codex-reply needs no settings and waits in its queue", s.agentID), "agent_id", s.agentID)
	}
	return nil
}

// goWork runs f in a goroutine of the hub's, waited for by stop.
func (h *hub) goWork(f func()) {
	h.work.Add(1)
	go func() {
		defer h.work.Done()
		f()
	}()
}

// refusalLocked is why no turn can run at all.
func (h *hub) refusalLocked() *rpcError {
	if h.stopping {
		return proxyError(codeSessionClosed, "atm-agent-mcp is shutting down; start it again and call codex-reply with the same agent_id")
	}
	if d := h.child.death; d != nil && !d.Never && !h.cfg.restartChild {
		return deathError(d)
	}
	return nil
}

// addLocked makes a session and puts it into the table.
func (h *hub) addLocked(agentID string) *session {
	s := newSession(h, agentID)
	h.live[agentID] = s
	return s
}

func (h *hub) findLocked(ref string) *session {
	if s := h.live[ref]; s != nil {
		return s
	}
	return h.threads[ref]
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
	h.mu.Lock()
	if err := h.refusalLocked(); err != nil {
		h.mu.Unlock()
		h.answered(w, turnResult{err: err})
		return
	}
	s := h.findLocked(rec.AgentID)
	if s == nil {
		s = h.findLocked(rec.BackendID)
	}
	if s != nil { // somebody else's call was quicker
		h.mu.Unlock()
		h.give(s, req, w)
		return
	}
	s = h.addLocked(rec.AgentID)
	if rec.BackendID != "" {
		h.threads[rec.BackendID] = s
	}
	h.mu.Unlock()
	h.openWith(s, req, w, rec)
}

// openWith gives a new session its first turn and then its place: in this
// order, so that a place that can't be had still answers the turn.
func (h *hub) openWith(s *session, req turnRequest, w waiterID, rec *record) {
	if !h.give(s, req, w) {
		s.end(endFailed, nil) // cancelled before it began
		return
	}
	h.prepare(s, req, rec)
}

// replyRefusal is why codex-reply can't revive a session, nil if it can.
func replyRefusal(rec *record) *rpcError {
	switch rec.Status {
	case "closed":
		return proxyError(codeSessionClosed, fmt.Sprintf("session %s (identity %q) is closed; call codex with {\"agent_id\": %q, \"prompt\": …} to resume it", rec.AgentID, rec.Identity, rec.AgentID), "agent_id", rec.AgentID)
	case "broken":
		return proxyError(codeSessionClosed, fmt.Sprintf("session %s is broken: Codex did not confirm that its last turn stopped; call codex with {\"agent_id\": %q, \"prompt\": …} to recover it", rec.AgentID, rec.AgentID), "agent_id", rec.AgentID)
	}
	return nil
}

// lookUp finds the record of an agent_id or threadId. A thread that only
// Codex knows gets a new record. It reads the disk.
func (h *hub) lookUp(ref string) (*record, *rpcError) {
	agentID := ref
	if !validAgentID(ref) {
		agentID, _ = h.reg.agentOfThread(ref)
	}
	h.mu.Lock()
	rec, ok := h.kept[agentID]
	h.mu.Unlock()
	if ok {
		return &rec, nil
	}
	if agentID != "" {
		if rec, err := h.reg.load(agentID); err == nil && rec != nil {
			return rec, nil
		}
	}
	if looksLikeThread(ref) { // known to Codex alone, from before or another client
		return &record{AgentID: h.reg.newAgentID(), Backend: "codex", BackendID: ref, Implied: true, Team: h.cfg.team}, nil
	}
	return nil, h.unknown(ref)
}

// looksLikeThread tells a Codex thread id (a UUID) from a mistyped agent_id.
func looksLikeThread(s string) bool {
	return len(s) == 36 && strings.Count(s, "-") == 4 && validThreadID(s)
}

// unknown says that there is no such session, with the nearest there are.
func (h *hub) unknown(ref string) *rpcError {
	var known []string
	for _, v := range h.sessions(50) {
		known = append(known, v.AgentID)
	}
	msg := fmt.Sprintf("no session has the id %q", ref)
	if near := nearest(ref, known); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	} else if len(known) > 0 {
		msg += "; the newest are " + strings.Join(known[:min(3, len(known))], ", ")
	} else {
		msg += "; there are none yet"
	}
	return proxyError(codeSessionNotFound, msg+". agent_sessions lists them, codex {prompt} starts a new one", "agent_id", ref)
}

// cancel retires a waiter: it gets no result any more. A queued turn is never
// run, a running one is interrupted. With detach only the front has forgotten
// the waiter, since the client itself timed out: the turn goes on, and what it
// brings is kept in the session.
func (h *hub) cancel(w waiterID, detach bool) {
	if detach {
		return
	}
	h.mu.Lock()
	s := h.waiters[w]
	delete(h.waiters, w)
	h.mu.Unlock()
	if s != nil {
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
func (h *hub) decide(ask, by string, d decision, answers map[string][]string) bool {
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

// close closes a session by agent_id, threadId or identity (one non-empty) and
// calls done exactly once, from another goroutine.
func (h *hub) close(ref, identity string, done func(closeResult, *rpcError)) {
	h.mu.Lock()
	s := h.names[strings.ToLower(identity)]
	if ref != "" {
		s = h.findLocked(ref)
	}
	h.mu.Unlock()
	if s != nil && s.end(endClose, done) {
		return
	}
	h.goWork(func() { done(h.closeRecord(ref, identity)) })
}

// closeRecord closes a session that isn't open here.
func (h *hub) closeRecord(ref, identity string) (closeResult, *rpcError) {
	var rec *record
	if ref != "" {
		r, err := h.lookUp(ref)
		if err != nil {
			return closeResult{}, err
		}
		if r.Status == "" {
			return closeResult{}, h.unknown(ref)
		}
		rec = r
	} else {
		all, err := h.reg.list(0)
		if err != nil {
			return closeResult{}, proxyError(codeInvalidSession, err.Error())
		}
		for _, r := range all {
			if strings.EqualFold(r.Identity, identity) && (rec == nil || rec.Status == "closed") {
				rec = &r
				if r.Status != "closed" {
					break
				}
			}
		}
		if rec == nil {
			return closeResult{}, proxyError(codeSessionNotFound, fmt.Sprintf("no session has the identity %q; agent_sessions lists what there is", identity), "identity", identity)
		}
	}
	res := closeResult{AgentID: rec.AgentID, Identity: rec.Identity, Status: "closed", Already: rec.Status == "closed"}
	if res.Already {
		return res, nil
	}
	if rec.BackendID != "" {
		lock, err := h.reg.lockThread(rec.BackendID, rec.AgentID)
		if err != nil {
			return closeResult{}, heldError(err, rec.Identity, "")
		}
		defer lock.release()
	}
	rec.Status, rec.LastActive = "closed", time.Now().UTC()
	if err := h.reg.save(*rec); err != nil {
		return closeResult{}, proxyError(codeInvalidSession, "the session's record can't be written: "+err.Error(), "agent_id", rec.AgentID)
	}
	h.auditClose(rec.AgentID, rec.Identity, rec.BackendID, "closed")
	return res, nil
}

// backendNow returns the child, starting it if there is none: lazily, on the
// first turn (FR-1.3). It waits for the start.
func (h *hub) backendNow(ctx context.Context) (backend, *rpcError) {
	for {
		h.mu.Lock()
		if err := h.refusalLocked(); err != nil {
			h.mu.Unlock()
			return nil, err
		}
		if be := h.child.be; be != nil {
			h.mu.Unlock()
			return be, nil
		}
		wait := h.child.starting
		mine := wait == nil
		if mine {
			wait = make(chan struct{})
			h.child.starting = wait
		}
		h.mu.Unlock()
		if mine {
			return h.startChild(ctx, wait)
		}
		select {
		case <-wait:
			h.mu.Lock()
			be, death := h.child.be, h.child.death
			h.mu.Unlock()
			if be == nil && death != nil {
				return nil, deathError(death)
			}
		case <-ctx.Done():
			return nil, proxyError(codeSessionClosed, "atm-agent-mcp is shutting down")
		}
	}
}

func (h *hub) startChild(ctx context.Context, started chan struct{}) (backend, *rpcError) {
	var be backend
	var dead *childDeath // it died between its answer and our noticing
	be, err := h.spawn(ctx, func(d *childDeath) {
		h.mu.Lock()
		h.child.be, h.child.death, dead = nil, d, d
		h.mu.Unlock()
		h.log.Error("codex child gone", "reason", d.Reason, "stderr", d.Stderr)
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.child.starting = nil
	close(started)
	if err != nil {
		d := &childDeath{Reason: "could not be started: " + err.Error(), Never: true}
		_ = errors.As(err, &d)
		h.child.death = d
		return nil, deathError(d)
	}
	if dead != nil {
		return nil, deathError(dead)
	}
	if h.stopping {
		h.mu.Unlock()
		be.stop(shutdownLimit) // nobody else knows of it
		h.mu.Lock()
		return nil, h.refusalLocked()
	}
	info := be.info()
	h.child.be, h.child.death, h.child.kind, h.child.version = be, nil, info.kind, info.version
	return be, nil
}

// deathError is the -32005 every caller gets (FR-11): what happened, with
// which code or signal, and what to do.
func deathError(d *childDeath) *rpcError {
	msg := d.Error()
	if !d.Never {
		msg += ". Sessions are kept: restart this MCP server and call codex-reply with the same agent_id, or set restart_child = true"
	}
	return proxyError(codeChildDead, msg, "reason", d.Reason, "stderr", d.Stderr)
}

// childError makes the error of a call from what the child answered; what
// says what was tried.
func (h *hub) childError(what string, e *backendError) *rpcError {
	switch {
	case e == nil:
		return proxyError(codeChildDead, "Codex is gone")
	case e.Death != nil:
		return deathError(e.Death)
	case e.Timeout:
		return proxyError(codeTimeout, "Codex had no answer in time when asked to "+what, "child_error", e.Data)
	case e.Held:
		return childSays(codeIdentityConflict, "another process has this thread open: "+e.Message, e)
	case e.Missing:
		return childSays(codeSessionNotFound, "Codex has no such thread: "+e.Message, e)
	}
	return childSays(codeInvalidSession, "Codex refused to "+what+": "+e.Message, e)
}

// childSays is an error whose words are the child's (NFR-6).
func childSays(code int, msg string, e *backendError) *rpcError {
	err := proxyError(code, msg)
	data := map[string]any{"error_source": "child", "name": codeName(code), "child_error": map[string]any{"code": e.Code, "message": e.Message}}
	if e.Data != nil {
		data["child_error"] = e.Data
	}
	err.Data = toJSON(data)
	return err
}

// threadOf and forget keep the table in step with a session's life.
func (h *hub) threadOf(s *session, thread string) {
	h.mu.Lock()
	h.threads[thread] = s
	h.mu.Unlock()
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
		delete(h.open, s.agentID)
	}
	h.indexLocked()
	h.mu.Unlock()
}
