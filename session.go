package main

// session.go owns the session: one goroutine that owns its state, fed through
// its postbox by the child's events, the fronts and timers. The hub makes it,
// hands it its thread's opening and forgets it when it ends. It must never
// wait for the child, a client or another session; what takes time runs in
// the hub's goroutines and comes back as a letter.

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Whoever has our lock on a thread owns it, but another Codex may hold on to it
// for a moment: 0.169 unloads a thread a second after it was let go, and one
// whose proxy was killed ends by EOF, not at once. So long a resume waits.
const (
	heldTries = 25
	heldPause = 200 * time.Millisecond
)

// front is the way up: an MCP or ACP client. Every method returns at once.
type front interface {
	// event offers an event of a session to the client; w is the waiter of the
	// turn it belongs to, 0 for none. false: it was dropped.
	event(a agentRef, w waiterID, e event) bool
	// ask puts an approval before the client. false: this client can't be
	// asked, so the approval is declined at once.
	ask(a agentRef, w waiterID, q approval) bool
	// askGone withdraws an ask that was put: decided elsewhere, or timed out.
	askGone(a agentRef, ask, why string)
	// done gives a waiter its result, exactly once.
	done(w waiterID, r turnResult)
}

// agentRef is what a front may show of a session.
type agentRef struct {
	AgentID  string
	Thread   string
	Identity string
}

// session is one named Codex agent while it is open here.
type session struct {
	// fixed at birth
	h       *hub
	agentID string
	log     *slog.Logger
	box     *postbox
	ended   chan struct{} // closed when the loop has ended
	shown   atomic.Pointer[sessionView]
	ref     atomic.Pointer[agentRef]

	// the loop's own
	m       turnMachine
	opening bool // the hub prepares, or the child opens, the thread
	place   *opening
	thread  string
	op      opID // the open or turn command whose outcome is awaited
	ops     opID
	asks    askBook
	repo    repoCache
	told    contextFacts // what the agent knows of its surroundings
	resume  string       // block in front of the next prompt: the past, where Codex lost it
	notes   []string     // for the next result
	openErr *rpcError    // why it could not be opened
	held    int          // how often another Codex still had the thread
	tokens  int64
	dropped int64 // events the front did not take
	lastErr string
	clock   turnClock
	closers []func(closeResult, *rpcError)
	after   []func() // answers that wait until identity and thread are free
	free    bool     // they are
	stopped bool     // a turn was cut short by the end
}

// newSession starts the loop of a session that the hub is about to open.
func newSession(h *hub, agentID string) *session {
	s := &session{h: h, agentID: agentID, log: h.log.With("agent", agentID), box: newPostbox(),
		ended: make(chan struct{}), opening: true, clock: turnClock{silence: h.cfg.requestTimeout, limit: h.cfg.turnLimit}}
	s.ref.Store(&agentRef{AgentID: agentID})
	s.shown.Store(&sessionView{AgentID: agentID, Backend: "codex", Status: "busy", Team: h.cfg.team,
		StartedAt: time.Now(), LastActive: time.Now(), Activity: "opening", Mine: true})
	go s.loop()
	return s
}

// submit queues a turn. false: the session has ended, ask the hub again.
func (s *session) submit(req turnRequest, w waiterID) bool {
	return s.box.post(func() {
		if !s.h.waits(w) {
			s.carry([]effect{{kind: effFinish, turn: &turn{req: req}, finish: finishDropped}}) // cancelled on its way here
			return
		}
		t := &turn{req: req, waiter: w}
		if !req.run && s.m.phase != phaseOpening && s.m.ending == endNone {
			s.rebind(t)
			return
		}
		s.carry(s.m.submit(t))
	})
}

// cancel ends the turn of a waiter that has been retired.
func (s *session) cancel(w waiterID) { s.box.post(func() { s.carry(s.m.cancel(w)) }) }

// end asks the session to end; done is called once it has. false: it had
// ended before.
func (s *session) end(why ending, done func(closeResult, *rpcError)) bool {
	return s.box.post(func() {
		if done != nil {
			s.closers = append(s.closers, done)
		}
		if why != endPark {
			s.denyAll("the session was closed") // FR-18.5: before anything else
		}
		s.carry(s.m.end(why))
		if s.m.ending == endNone && done != nil { // parking refused: it is busy again
			s.closers = s.closers[:len(s.closers)-1]
			done(closeResult{AgentID: s.agentID, Status: "busy"}, nil)
		}
	})
}

// loop is the session's one goroutine.
func (s *session) loop() {
	var letters []letter
	for s.m.phase != phaseOver {
		letters = s.box.take(letters)
		for i := range letters {
			if do := letters[i].do; do != nil {
				do()
			} else {
				s.take(&letters[i].ev)
			}
			if s.m.phase == phaseOver {
				s.leave(letters[i+1:])
				return
			}
		}
		s.carry(s.m.advance())
		if s.m.phase == phaseOpening && !s.opening && len(s.m.queue) > 0 {
			s.opening = true
			s.h.goWork(func() { s.h.opener.reopen(s) })
		}
		s.publish()
	}
	s.leave(nil)
}

// leave runs what was posted before the postbox closed: every turn in there
// gets its answer, or goes back to the hub.
func (s *session) leave(rest []letter) {
	s.publish()
	rest = append(rest, s.box.close()...)
	for i := range rest {
		if rest[i].do != nil {
			rest[i].do()
		}
	}
	for _, done := range s.closers { // asked to close while it ended otherwise
		done(closeResult{AgentID: s.agentID, Identity: s.place.identity(), Status: "closed", Already: true}, nil)
	}
	close(s.ended)
}

// sink is what the child's events go into, on the reading goroutine.
func (s *session) sink(e event) { s.box.event(e) }

// prepared takes the hub's preparation: lease, thread lock, child and policy
// are there, or an error is. false: the session has ended, p is still the
// caller's.
func (s *session) prepared(p *opening) bool {
	return s.box.post(func() {
		if s.m.phase == phaseOver || p.err != nil {
			p.release()
			s.openErr = p.err
			s.carry(s.m.end(endFailed))
			return
		}
		s.place = p
		s.notes = append(s.notes, p.notes...)
		s.told, s.resume = p.told, p.resume
		s.ref.Store(&agentRef{AgentID: s.agentID, Thread: p.spec.Thread, Identity: p.rec.Identity})
		s.op = s.nextOp()
		p.be.open(s.op, p.spec, s.sink)
	})
}

func (s *session) nextOp() opID { s.ops++; return s.ops }

// take handles one event of the child.
func (s *session) take(e *event) {
	now := time.Now()
	cur := s.m.cur
	if cur != nil && cur.run != nil {
		cur.run.take(e, now)
	}
	if e.kind != evOpened { // before what it leads to: an answer must not overtake the event that ended its turn
		s.tell(e, cur)
	}
	switch e.kind {
	case evOpened:
		if e.op == s.op {
			s.threadOpened(e)
			s.tell(e, s.m.cur) // behind it: the front learns the thread from it
		}
	case evRefused:
		if e.op == s.op && s.opening {
			s.openRefused(e.err)
		} else if e.op == s.op && cur != nil {
			cur.run.err = e.err
			s.carry(s.m.refused(e.unknown))
		}
	case evStarted:
		if e.op == s.op {
			s.carry(s.m.started(e.turn))
		}
	case evEnded:
		if e.thread == s.thread {
			s.carry(s.m.ended(e.turn))
		}
	case evUsage:
		if e.thread == s.thread && e.usage != nil {
			s.tokens = e.usage.Total
		}
	case evAsk:
		s.asked(e.ask)
	case evAskGone:
		if p := s.asks.take(e.ask.id); p != nil {
			s.h.askDone(p.id)
			s.h.front.askGone(*s.ref.Load(), p.id, "Codex withdrew it")
			s.alive()
		}
	case evGone:
		s.childGone(e.err)
	case evItem, evDelta, evPlan, evDiff, evNotice, evTool, evSubthread, evRaw:
	}
}

// tell offers an event to the front, for the waiter of the turn it belongs to.
func (s *session) tell(e *event, cur *turn) {
	var w waiterID
	if cur != nil {
		w = cur.waiter
	}
	if !s.h.front.event(*s.ref.Load(), w, *e) {
		s.dropped++
	}
}

// threadOpened: the child has the thread. A new one is locked and recorded
// before its first turn can be answered.
func (s *session) threadOpened(e *event) {
	p := s.place
	s.opening = false
	if s.thread = e.thread; s.thread != p.rec.BackendID || p.tlock == nil {
		if err := s.h.opener.bindThread(p, s.agentID, s.thread); err != nil {
			s.openErr = err
			s.carry(s.m.end(endFailed))
			return
		}
	}
	s.ref.Store(&agentRef{AgentID: s.agentID, Thread: s.thread, Identity: p.rec.Identity})
	s.h.threadOf(s, s.thread)
	p.rec.Status, p.rec.Interrupted = "idle", false
	s.m.opened()
	if len(s.m.queue) == 0 && p.rec.Turns == 0 && !p.revived {
		s.carry(s.m.end(endFailed)) // cancelled meanwhile: nobody knows of it
		return
	}
	s.carry(s.m.advance())
	s.h.book.save(&p.rec, true) // kill -9 after this loses neither thread nor session
	s.log.Info("session open", "identity", p.rec.Identity, "thread", s.thread, "resumed", p.spec.Thread != "", "sandbox", p.policy.Settings.Sandbox)
}

// openRefused: the child has no such thread, or won't make one. A history
// that is gone is replaced by what we know of it ourselves (FR-6).
func (s *session) openRefused(err *backendError) {
	p := s.place
	if err.Missing && p.spec.Thread != "" && p.adopted {
		s.openErr = proxyError(codeSessionNotFound, fmt.Sprintf("no session has the id %q, and Codex has no thread of that id; agent_sessions lists what there is", p.spec.Thread))
		s.carry(s.m.end(endFailed))
		return
	}
	if err.Missing && p.spec.Thread != "" {
		s.notes = append(s.notes, "Codex's own history of thread "+p.spec.Thread+" is gone; the agent continues in a new thread with a digest of the old one")
		s.log.Warn("history gone, continuing from the digest", "thread", p.spec.Thread)
		s.resume = p.past()
		p.spec.Thread = ""
		p.unlockThread()
		p.spec.DeveloperInstructions = p.fresh
		s.op = s.nextOp()
		p.be.open(s.op, p.spec, s.sink)
		return
	}
	if err.Held && p.spec.Thread != "" && s.held < heldTries {
		s.held++
		time.AfterFunc(heldPause, func() { s.box.post(s.openAgain) })
		return
	}
	s.openErr = childError("open the thread", err)
	s.carry(s.m.end(endFailed))
}

// openAgain asks once more for a thread that another Codex had not let go yet.
func (s *session) openAgain() {
	if s.m.phase != phaseOver {
		s.op = s.nextOp()
		s.place.be.open(s.op, s.place.spec, s.sink)
	}
}

// rebind answers codex {agent_id} without a prompt for a session that is open.
func (s *session) rebind(t *turn) {
	s.carry([]effect{{kind: effFinish, turn: t, finish: finishRebound}})
}

// carry carries effects out, in order.
func (s *session) carry(effects []effect) {
	for _, e := range effects {
		switch e.kind {
		case effStart:
			s.start(e.turn)
		case effInterrupt:
			s.interrupt(e.turn)
		case effFinish:
			s.finish(e.turn, e.finish)
		case effEnd:
			s.over(e.end)
		}
	}
}

// reopened takes the next child after the last one died (restart_child).
func (s *session) reopened(be backend, err *rpcError) {
	s.box.post(func() {
		if s.m.phase == phaseOver {
			return
		}
		if err != nil {
			s.opening, s.openErr = false, err
			s.carry(s.m.end(endGone))
			return
		}
		s.place.be, s.place.spec.Thread = be, s.thread
		s.op = s.nextOp()
		be.open(s.op, s.place.spec, s.sink)
	})
}

// start sends a turn to the child. What the turn doesn't depend on (record,
// audit) is written behind it.
func (s *session) start(t *turn) {
	p, now := s.place, time.Now()
	t.run = newTurnRun(s.thread, now)
	facts := s.h.book.facts(&s.repo, p.rec.Identity, p.policy.Settings.Cwd)
	prompt := t.req.prompt
	if block, changed := contextChange(s.told, facts); changed {
		prompt = withContext(block, prompt)
	}
	if s.resume != "" {
		prompt = s.resume + "\n\n" + prompt
	}
	s.told, s.resume = facts, ""
	s.op = s.nextOp()
	p.be.do(s.op, s.thread, command{kind: cmdTurn, prompt: prompt, settings: p.policy.Settings})
	s.checkTime(t)

	p.noteStart(t, facts, now)
	s.save()
	s.h.book.auditTurn(s, t)
}

// checkTime ends a turn that has run or been silent for too long (FR-14).
func (s *session) checkTime(t *turn) {
	if s.m.cur != t || s.m.phase == phaseStopping {
		return
	}
	now := time.Now()
	why, next := s.clock.overdue(t, len(s.asks.pending) > 0, now)
	if why == "" {
		s.clock.arm(next.Sub(now), func() { s.box.post(func() { s.checkTime(t) }) })
		return
	}
	t.why = why
	s.log.Warn("turn timed out", "turn", t.id, "thread", s.thread, "why", why)
	s.denyAll("the turn timed out")
	s.carry(s.m.stopTurn(stopTimeout))
	s.soon(t)
}

// alive restarts the inactivity clock after an approval was decided.
func (s *session) alive() {
	if s.m.cur != nil && s.m.cur.run != nil {
		s.m.cur.run.last = time.Now()
	}
}

// interrupt asks the child to stop the turn and what it left running, and
// gives it confirmLimit to say so.
func (s *session) interrupt(t *turn) {
	s.place.be.do(0, s.thread, command{kind: cmdInterrupt, turn: t.id})
	s.clock.confirm(func() {
		s.box.post(func() {
			if s.m.cur == t {
				s.log.Warn("interrupt not confirmed, session is broken", "turn", t.id, "thread", s.thread)
				s.carry(s.m.end(endBroken))
			}
		})
	})
	if t.stop == stopUnknown {
		t.why = "Codex did not acknowledge the turn in time; it was interrupted and not sent again"
		s.soon(t)
	}
}

// soon answers a timed-out caller even where the child doesn't confirm.
func (s *session) soon(t *turn) {
	s.clock.soon(func() {
		s.box.post(func() {
			if s.m.cur == t {
				s.answer(t, s.result(t, finishEnded))
			}
		})
	})
}

// answer gives a turn's waiter its result, once. While the session ends, it
// waits until identity and thread are free: whoever is answered may want them.
func (s *session) answer(t *turn, r turnResult) {
	w := t.waiter
	t.waiter = 0
	if s.m.phase == phaseOver && !s.free {
		s.after = append(s.after, func() { s.h.answered(w, r) })
		return
	}
	s.publish() // whoever asks for the status next sees what the answer says
	s.h.answered(w, r)
}

// finish ends a turn: answer first, then the record.
func (s *session) finish(t *turn, how finishKind) {
	if how == finishOver && s.m.ending == endPark { // parked while this was on its way here
		s.h.resubmit(t.req, t.waiter)
		return
	}
	if t.run == nil {
		if how != finishDropped {
			s.answer(t, s.result(t, how))
		}
		if how == finishDropped && s.place == nil && len(s.m.queue) == 0 {
			s.carry(s.m.end(endFailed)) // the call that wanted this session is gone
		}
		return
	}
	s.clock.stop()
	s.stopped = s.stopped || s.m.ending != endNone
	s.denyOwn("the turn is over")
	p := s.place
	p.noteEnd(t, how, time.Now())
	if t.run.err != nil {
		s.lastErr = clip(t.run.err.Message, 300)
	}
	// A first turn that came to nothing leaves nobody who knows the session:
	// its identity is freed, its thread can still be continued.
	first := p.rec.Turns == 1 && !p.revived
	if s.m.ending == endNone && first && len(s.m.queue) == 0 && how != finishGone && !t.done() && t.stop != stopTimeout && t.stop != stopUnknown {
		r := s.result(t, how)
		r.Status = statusParked
		s.carry(s.m.end(endPark))
		s.answer(t, r)
		return
	}
	s.answer(t, s.result(t, how))
	if s.m.phase != phaseOver {
		s.save()
	}
}

// childGone ends the session with its child, or waits for the next one.
func (s *session) childGone(err *backendError) {
	for _, id := range s.asks.ids() {
		s.asks.take(id)
		s.h.askDone(id)
		s.h.front.askGone(*s.ref.Load(), id, "Codex is gone")
	}
	s.openErr = childError("run the turn", err)
	if s.h.cfg.restartChild && s.thread != "" {
		s.opening = false
		s.carry(s.m.lost())
		return
	}
	if s.opening { // the thread never came to be
		s.carry(s.m.end(endFailed))
		return
	}
	s.carry(s.m.end(endGone))
}

// over ends the session: record, thread and identity, then whoever waits for
// that. After it the loop leaves.
func (s *session) over(why ending) {
	s.denyAll("the session ended")
	s.clock.stop()
	p := s.place
	if p != nil {
		if s.thread != "" && (why == endClose || why == endBroken) {
			p.be.do(0, s.thread, command{kind: cmdClean}) // shells that outlived their turns
		}
		if s.thread != "" && why != endGone && !(why == endPark && p.spec.Ephemeral) {
			p.be.do(0, s.thread, command{kind: cmdUnload})
		}
		if s.thread != "" && (why != endFailed || p.rec.Turns > 0) {
			p.noteOver(why, s.stopped || why == endBroken, time.Now())
			s.h.book.save(&p.rec, true) // before somebody else may have the lease
		}
		p.release()
	}
	s.free = true
	s.publish()
	s.h.forget(s)
	s.log.Info("session ended", "why", why.String())
	s.h.book.auditEnd(s, why)
	done := closeResult{AgentID: s.agentID, Identity: p.identity(), Status: why.status(), Interrupted: s.stopped}
	if done.Status == "" {
		done.Status = "closed"
	}
	for _, f := range s.after {
		f()
	}
	for _, f := range s.closers {
		f(done, nil)
	}
	s.after, s.closers = nil, nil
}

// asked handles an approval: to the front, or declined at once.
func (s *session) asked(q *approval) {
	if q == nil {
		return
	}
	s.asks.add(*q, s.h.cfg.approvalTimeout, func() {
		s.box.post(func() {
			if s.decide(q.id, "nobody answered within "+s.h.cfg.approvalTimeout.String(), deny, nil) {
				s.h.front.askGone(*s.ref.Load(), q.id, "timed out")
			}
		})
	})
	var w waiterID // a subagent may ask after the turn that spawned it: then nobody's request is behind it
	why := ""
	switch {
	case q.kind == askUnknown:
		why = "this kind of request is not known here"
	case s.m.ending != endNone || s.m.cur == nil && q.thread == s.thread:
		why = "no turn is running"
	case s.m.cur != nil:
		w = s.m.cur.waiter
	}
	if why != "" {
		s.decide(q.id, why, deny, nil)
		return
	}
	s.h.askOpen(q.id, s)
	s.publish() // whoever asks for the status next sees what the client is asked
	if !s.h.front.ask(*s.ref.Load(), w, *q) {
		s.decide(q.id, "the client can't be asked for approval", deny, nil)
	}
}

// decide answers an approval; false when it was decided before. It is
// audited before it is sent.
func (s *session) decide(id, by string, d decision, answers map[string][]string) bool {
	p := s.asks.take(id)
	if p == nil {
		return false
	}
	s.h.askDone(id)
	s.h.book.auditDecision(s, p, by, d)
	if s.place != nil && s.place.be != nil {
		s.place.be.do(0, s.thread, command{kind: cmdAnswer, ask: id, decision: d, answers: answers})
	}
	if d == deny && s.m.cur != nil && s.m.cur.run != nil && len(s.m.cur.run.declined) < maxNotices {
		s.m.cur.run.declined = append(s.m.cur.run.declined, declined{Kind: p.kind, Action: clip(p.action, 500), Reason: by})
	}
	s.alive()
	return true
}

// denyAll declines whatever is pending.
func (s *session) denyAll(why string) {
	for _, id := range s.asks.ids() {
		s.decide(id, why, deny, nil)
		s.h.front.askGone(*s.ref.Load(), id, why)
	}
}

// denyOwn declines what the ended turn itself still asks; a subagent's
// approval outlives it.
func (s *session) denyOwn(why string) {
	for _, id := range s.asks.ids() {
		if p := s.asks.pending[id]; p.thread == s.thread {
			s.decide(id, why, deny, nil)
			s.h.front.askGone(*s.ref.Load(), id, why)
		}
	}
}

// save has the record written, without waiting for it.
func (s *session) save() { s.h.book.save(&s.place.rec, false) }

// result builds what a turn's waiter gets.
func (s *session) result(t *turn, how finishKind) turnResult {
	r := turnResult{AgentID: s.agentID, ThreadID: s.thread, TurnID: t.id, Identity: s.place.identity(), Team: s.h.cfg.team,
		Status: s.statusNow()}
	if s.place != nil {
		r.Sandbox, r.Approval = s.place.policy.Settings.Sandbox, s.place.policy.Settings.Approval
	}
	if r.err = s.failure(t, how); r.err != nil {
		return r
	}
	r.Notes, s.notes = s.notes, nil
	if t.run != nil {
		t.fill(&r, how)
		r.Content = s.h.book.fit(r.Content, s.place, t.id)
	}
	return r
}

// failure is the error a turn ends with, nil when it has a result: a turn
// that ran and failed or was interrupted has one.
func (s *session) failure(t *turn, how finishKind) *rpcError {
	id := []any{"agent_id", s.agentID}
	switch how {
	case finishEnded:
		if t.stop == stopTimeout || t.stop == stopUnknown {
			return timeoutError(s.agentID, t)
		}
	case finishRefused:
		return childError("start the turn", t.run.err)
	case finishFull:
		return proxyError(codeMaxSessions, fmt.Sprintf("%d turns already wait for %s; wait for one to end, or start another agent", maxQueue, s.agentID), id...)
	case finishOver:
		if s.m.ending == endShutdown {
			return proxyError(codeSessionClosed, "atm-agent-mcp is shutting down; start it again and call codex-reply with the same agent_id", id...)
		}
		return proxyError(codeSessionClosed, fmt.Sprintf("session %s was closed before this turn ran; call codex with {\"agent_id\": %q, \"prompt\": …} to resume it", s.agentID, s.agentID), id...)
	case finishGone, finishUnopened:
		if s.openErr != nil {
			return s.openErr
		}
		return proxyError(codeSessionClosed, "the session could not be opened", id...)
	case finishBroken:
		if t.stop == stopTimeout || t.stop == stopUnknown {
			return timeoutError(s.agentID, t)
		}
		return proxyError(codeSessionClosed, fmt.Sprintf("session %s is broken: Codex did not confirm within %s that its turn stopped; call codex with {\"agent_id\": %q, \"prompt\": …} to recover it", s.agentID, confirmLimit, s.agentID), id...)
	case finishRebound, finishDropped:
	}
	return nil
}

// statusNow is the session's word as a result tells it.
func (s *session) statusNow() string {
	switch {
	case s.m.ending != endNone:
		if w := s.m.ending.status(); w != "" {
			return w
		}
		return "closed"
	case s.m.cur != nil || len(s.m.queue) > 0 || s.m.phase == phaseOpening && s.opening:
		return "busy"
	}
	return "idle"
}

// publish renews what others may read of this session.
func (s *session) publish() {
	v := sessionView{AgentID: s.agentID, Backend: "codex", BackendID: s.thread, Team: s.h.cfg.team, Status: s.statusNow(),
		Queued: len(s.m.queue), Dropped: s.dropped + s.box.lost(), Tokens: s.tokens, LastError: s.lastErr, Mine: true,
		Interrupted: s.stopped, LastActive: s.shown.Load().LastActive, StartedAt: s.shown.Load().StartedAt}
	if p := s.place; p != nil {
		r := &p.rec
		v.Identity, v.AgentName, v.AgentSource, v.Tag, v.Role = r.Identity, r.AgentName, r.AgentSource, r.Tag, r.Role
		v.Cwd, v.Turns, v.LastActive, v.StartedAt, v.implied = r.CWD, r.Turns, r.LastActive, r.StartedAt, r.Implied
		v.Resumable = s.h.cfg.persistThreads
	} else {
		v.Activity = "opening"
	}
	if t := s.m.cur; t != nil && t.run != nil {
		v.Activity = t.run.activity()
	}
	for _, id := range s.asks.ids() {
		p := s.asks.pending[id]
		v.Pending = append(v.Pending, askView{ApprovalID: id, Kind: p.kind, Action: p.action, Cwd: p.cwd, Reason: p.reason})
		v.Activity = "waiting for approval of " + clip(p.action, 120)
	}
	s.shown.Store(&v)
}
