package main

// session.go owns the session: one goroutine that owns its state, fed through its postbox by the child's events, the
// fronts and timers; and the opening of its thread. The hub makes it, hands it its place and forgets it when it ends.
// The session must never wait for the child, a client or another session; what takes time runs in the hub's goroutines
// and comes back as a letter.

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// Whoever has our lock on a thread owns it, but another Codex may hold on to it for a moment: 0.169 unloads a thread a
// second after it was let go, and one whose proxy was killed ends by EOF, not at once. So long a resume waits.
const (
	heldTries = 25
	heldPause = 200 * time.Millisecond
)

// session is one named Codex agent while it is open here. It holds the parts that do its work, each in its file.
type session struct {
	// fixed at birth
	h       *hub
	agentID string
	wanted  string // the identity that was asked for, "" for any
	log     *slog.Logger
	box     *postbox
	ended   chan struct{}               // closed when the loop has ended
	shown   atomic.Pointer[sessionView] // what others may read of the session; publish renews it

	// the loop's own
	m       turnMachine
	place   *place   // as hasPlace says: until then it has no more than the agent's id
	ref     agentRef // what the front is shown of the session
	opening bool     // the hub prepares, or the child opens, the thread
	startup string   // what the opening waits for, in words: "" once there is a place
	thread  string   // "" until the child has opened one
	unnamed bool     // thread is the driver's name for it: Codex gives its own with the first turn
	op      opID     // the open or turn command whose outcome is awaited
	ops     opID     // the newest command
	openErr *rpcError
	held    int      // how often another Codex still had the thread
	notes   []string // for the next result
	tokens  int64    // used by the thread, as Codex counts them
	dropped int64    // events the front did not take

	turns   turnRunner
	steers  turnSteers
	asks    sessionAsks
	tools   ownTools
	mail    mailPump
	client  clientPart
	member  memberWait
	closing sessionClosing
	others  nowTeller
}

// newSession makes a session that the hub is about to open for a request, by the agent's record, nil for a new agent;
// wanted is the identity that it asks for, "" for any. The hub starts its loop.
func newSession(h *hub, agentID, wanted string, req *turnRequest, rec *record) *session {
	now := time.Now()
	s := &session{h: h, agentID: agentID, wanted: wanted, log: h.log.With("agent", agentID),
		box: newPostbox(&h.letters), ended: make(chan struct{}), opening: true, ref: agentRef{AgentID: agentID},
		place: &place{rec: record{AgentID: agentID, Team: h.cfg.team, StartedAt: now,
			turnNote: turnNote{LastActive: now}}}}
	s.turns = turnRunner{s: s, clock: turnClock{silence: h.cfg.requestTimeout, limit: h.cfg.turnLimit, after: s.after}}
	s.asks.s, s.tools.s, s.mail.s, s.client.s, s.member.s, s.closing.s = s, s, s, s, s, s
	s.others.s, s.steers.s = s, s
	s.client.shape = newShape(req, rec)
	v := newView(&s.place.rec)
	v.Status, v.Activity, v.Mine = statusBusy, "opening", true
	s.shown.Store(&v)
	return s
}

// hasPlace reports that the hub has got the session its place ready.
func (s *session) hasPlace() bool { return s.place.be != nil }

// submit queues a turn. false: the session has ended, ask the hub again.
func (s *session) submit(req turnRequest, w waiterID) bool {
	return s.box.do(func() {
		t := &turn{req: req, waiter: w, asked: time.Now()}
		switch {
		case !s.h.waiters.waits(w): // cancelled on its way here
			s.carry([]effect{{kind: effFinish, turn: t, finish: finishDropped}})
			return
		case req.steer && s.steers.take(t):
			return
		case s.hasPlace() && req.formRefused(s.place.be.info()) != nil:
			s.turns.answer(t, turnResult{err: req.formRefused(s.place.be.info())})
			return
		case s.m.ending == endClose && req.mode == modeRevive && s.closing.freed:
			s.h.resubmit(req, w)
			return
		case s.m.ending == endClose && req.mode == modeRevive: // it is being closed: opened again once it is
			s.closing.hold(heldAnswer{t: t, w: w, again: true})
			return
		case !req.run && s.m.phase != phaseOpening && s.m.ending == endNone: // codex {agent_id} without a prompt
			s.carry([]effect{{kind: effFinish, turn: t, finish: finishRebound}})
			return
		}
		s.turns.limitOpening(t)
		if req.run && s.m.ending == endNone { // else no turn comes of it, and the newest is the one before
			s.h.kept.asked(s.agentID)
			s.asks.byCaller = req.background
			s.mail.resume()
		}
		s.carry(s.m.submit(t))
		s.turns.accept(t)
	})
}

// cancel ends the turn of a waiter that has been retired.
func (s *session) cancel(w waiterID) {
	s.box.do(func() {
		if s.steers.leave(w) {
			return
		}
		s.carry(s.m.cancel(w))
		s.turns.abandon()
	})
}

// end asks the session to end; done, nil for nobody, is called once it has. false: it had ended before.
func (s *session) end(why ending, correlation string, done func(closeResult)) bool {
	return s.box.do(func() {
		e := &s.closing
		e.askedBy = cmp.Or(e.askedBy, correlation)
		if done != nil {
			e.waiting = append(e.waiting, done)
		}
		if why != endPark {
			s.asks.denyAll(decider{byNobody, "before the session was closed"}) // FR-18.5: before anything else
		}
		e.begin(why)
		if s.m.ending == endNone && done != nil { // parking refused: it is busy again
			e.waiting = e.waiting[:len(e.waiting)-1]
			done(closeResult{AgentID: s.agentID, Status: statusBusy})
		}
	})
}

// shutdown ends the session as the proxy stops; see sessionClosing.shutdown. false: it had ended before.
func (s *session) shutdown(grace time.Duration, answered func()) bool {
	return s.box.do(func() { s.closing.shutdown(grace, answered) })
}

// endUnwanted ends a session that has no place yet and that nobody wants any more.
func (s *session) endUnwanted() {
	if !s.hasPlace() && len(s.m.queue) == 0 {
		s.carry(s.m.end(endFailed))
	}
}

// loop is the session's one goroutine.
func (s *session) loop() {
	var letters []letter
	for s.m.phase != phaseOver {
		letters = s.box.take(letters)
		now, told := time.Now(), false // told: there is more than deltas, whose publishing would cost more than they
		for i := range letters {
			if do := letters[i].do; do != nil {
				do()
				told = true
			} else {
				e := &letters[i].ev
				told = told || e.kind != evDelta || s.retrying()
				e.more = i+1 < len(letters) && letters[i+1].ev.kind == evDelta
				s.handle(e, now)
			}
			if s.m.phase == phaseOver {
				s.leave(letters[i+1:])
				return
			}
		}
		s.mail.giveWay()
		s.advance()
		s.mail.fetch()
		if s.m.phase == phaseOpening && !s.opening && len(s.m.queue) > 0 {
			s.opening = true
			s.h.work.start(func() { s.reopened(s.h.child.ready()) })
		}
		if told || s.dropped+s.box.lost() != s.shown.Load().Dropped {
			s.publish()
		}
	}
	s.leave(nil)
}

// advance starts the next turn, unless it has to wait for what it runs with.
func (s *session) advance() {
	if !s.mail.delaysTurn() && !s.client.deciding && !s.steers.undecided() {
		s.carry(s.m.advance())
	}
}

// retrying reports that the child's last word was of a retry, which its next delta takes back.
func (s *session) retrying() bool {
	return s.m.cur != nil && s.m.cur.run != nil && s.m.cur.run.retry != ""
}

// leave runs what was posted before the postbox closed: every turn in there gets its answer, or goes back to the hub.
func (s *session) leave(rest []letter) {
	s.publish()
	rest = append(rest, s.box.close()...)
	for i := range rest {
		if rest[i].do != nil {
			rest[i].do()
		} else if s.hasPlace() {
			undo(s.place.be, &rest[i].ev)
		}
	}
	for _, done := range s.closing.waiting { // asked to close while it ended otherwise
		done(closeResult{AgentID: s.agentID, Identity: s.place.rec.Identity, Status: statusClosed, Already: true})
	}
	close(s.ended)
}

// sink is what the child's events go into, on the reading goroutine.
func (s *session) sink(be backend) func(event) {
	return func(e event) {
		if !s.box.event(e) {
			undo(be, &e)
		}
	}
}

// undo is done about an event that its session, which has ended, can't take: a thread that opens too late is let go, an
// approval declined, a tool's call refused.
func undo(be backend, e *event) {
	switch {
	case e.kind == evOpened:
		be.do(0, e.thread, command{kind: cmdUnload})
	case e.kind == evAsk && e.ask != nil:
		be.do(0, e.thread, command{kind: cmdAnswer, ask: e.ask.id, decision: deny})
	case e.kind == evTool && e.tool != nil:
		be.do(0, e.thread, command{kind: cmdToolResult, ask: e.tool.id, text: "the session has ended, so " +
			e.tool.name + " was not done"})
	}
}

func (s *session) carry(effects []effect) {
	for _, e := range effects {
		switch e.kind {
		case effStart:
			s.turns.start(e.turn)
		case effInterrupt:
			s.turns.interrupt(e.turn)
		case effFinish:
			s.turns.finish(e.turn, e.finish)
		case effEnd:
			s.closing.finish(e.end)
		}
	}
}

func (s *session) nextOp() opID { s.ops++; return s.ops }

// after has the loop run f in d, unless the timer is stopped or the session has ended by then.
func (s *session) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { s.box.do(f) })
}

// prepared takes the hub's preparation: lease, thread lock, child and policy are there, or an error is. false: the
// session has ended, p is still the caller's.
func (s *session) prepared(p *place) bool {
	return s.box.do(func() {
		if s.m.phase == phaseOver {
			s.h.giveBack(p)
			s.h.forget(s) // its name may have been entered after its end took it out
			return
		}
		if p.err != nil {
			p.release()
			s.failOpening(p.err)
			return
		}
		s.place, s.member.joining = p, s.joins(p)
		s.client.placed()
		if !s.h.notesTold.Swap(true) {
			s.notes = append(s.notes, s.h.cfg.notes...)
		}
		s.notes = append(s.notes, p.notes...)
		s.turns.told = p.told
		s.ref.Thread, s.ref.Identity = p.spec.Thread, p.rec.Identity
		s.openThread()
		for _, t := range s.m.queue {
			s.turns.accept(t)
		}
	})
}

// joins reports a session that becomes a member of the team as it opens: one whose name nobody asked for joins when it
// first uses mail.
func (s *session) joins(p *place) bool { return !p.rec.Implied && !s.h.cfg.teamless }

func (s *session) openThread() {
	s.op = s.nextOp()
	s.place.be.open(s.op, s.place.spec, s.sink(s.place.be))
}

func (s *session) failOpening(err *rpcError) {
	s.openErr = err
	s.carry(s.m.end(endFailed))
}

func (s *session) handle(e *event, now time.Time) {
	cur := s.m.cur
	if cur != nil && cur.req.review != nil && e.thread == s.thread && !cur.req.review.retell(e) {
		cur.run.last = now
		return
	}
	if cur != nil && cur.run != nil {
		cur.run.note(e, now)
	}
	// as good as turn/start's answer, which may be lost
	if e.method == "turn/started" && e.thread == s.thread && cur != nil && cur.id == "" {
		s.mail.acknowledge(cur, e.turn)
	}
	// Before what it leads to: an answer must not overtake the event that ended its turn. The sender of a message hears
	// alone that the turn has it.
	if e.kind != evOpened && e.kind != evSteered {
		if e.kind == evItem {
			s.publish() // whoever is told of the item and asks for the activity next sees it
		}
		s.tell(e, cur)
	}
	switch e.kind {
	case evOpened:
		if e.op == s.op {
			s.threadOpened(e)
			s.tell(e, s.m.cur) // behind it: the front learns the thread from it
		} else if e.op == 0 && s.unnamed {
			s.threadNamed(e)
			s.tell(e, s.m.cur)
		}
	case evSteered:
		s.steers.learn(e)
	case evRefused:
		if s.steers.learn(e) {
			break
		}
		if e.op == s.op && s.opening {
			s.openRefused(e.err)
		} else if e.op == s.op && cur != nil {
			cur.run.err = e.err
			s.carry(s.m.refused(e.unknown))
			s.turns.abandon()
		}
	case evStarted:
		if e.op == s.op {
			if cur != nil {
				s.log.Debug("turn started", "turn", e.turn, "thread", s.thread, "correlation", cur.req.correlation)
			}
			s.mail.acknowledge(cur, e.turn)
			s.carry(s.m.started(e.turn))
			s.steers.send()
			if cur != nil && cur.accepted {
				s.h.kept.running(s.agentID, cur.req.handle)
			}
		}
	case evEnded:
		if e.thread == s.thread {
			if s.m.adrift && e.turn != "" { // the start that had no answer ran all the same
				s.mail.acknowledge(cur, e.turn)
			}
			s.carry(s.m.ended(e.turn))
			if e.spent {
				s.m.spent() // the next turn opens the thread again, or one in its place
			}
		}
	case evUsage:
		if e.thread == s.thread && e.usage != nil {
			s.tokens = e.usage.Total
		}
	case evAsk:
		s.asks.put(e.ask)
	case evAskGone:
		s.asks.withdraw(e.ask.id)
	case evGone:
		s.childGone(e.err)
	case evTool:
		s.tools.add(e)
	case evItem, evDelta, evPlan, evDiff, evNotice, evServer, evRaw:
	}
}

// tell offers an event to the front, for the waiter of the turn it belongs to.
func (s *session) tell(e *event, cur *turn) {
	var w waiterID
	if cur != nil {
		w = cur.waiter
		for _, joined := range cur.joined {
			s.h.front.event(s.ref, joined, e)
		}
	}
	if !s.h.front.event(s.ref, w, e) {
		s.dropped++
	}
}

// startsChild tells whoever waits that Codex itself has to be started first, which may take seconds (npm's Node shim on
// a cold disk).
func (s *session) startsChild() {
	s.startup = startingCodex
	for _, t := range s.m.queue {
		s.tell(&event{kind: evNotice, phase: startingCodex}, t)
	}
	s.publish()
}

// threadOpened: the child has the thread. A new one is locked and recorded before its first turn can be answered.
func (s *session) threadOpened(e *event) {
	p := s.place
	s.opening, s.thread = false, e.thread
	if e.opened != nil {
		p.model, p.effort = e.opened.model, e.opened.effort
		p.noteMode(e.opened.plans)
	}
	if s.unnamed = e.opened != nil && e.opened.unnamed; !s.unnamed && !s.bind() {
		return
	}
	p.rec.Status, p.rec.Interrupted = statusIdle, false
	s.m.opened()
	s.mail.join()
	if len(s.m.queue) == 0 && p.rec.Turns == 0 && !p.revived {
		s.carry(s.m.end(endFailed)) // cancelled meanwhile: nobody knows of it
		return
	}
	if s.client.showSettings(); p.client {
		s.client.keep()
		s.advance()
	} else {
		s.advance()
		s.h.ledger.save(&p.rec) // kill -9 after this loses neither thread nor session
	}
	if s.joins(p) {
		s.h.team.join(newMember{name: p.rec.Identity, agentID: s.agentID, model: p.policy.Settings.Model,
			cwd: p.policy.Settings.Cwd, sessionID: s.threadID()})
	}
	s.log.Info("session open", "identity", p.rec.Identity, "thread", s.thread, "resumed", p.spec.Thread != "",
		"sandbox", p.policy.Settings.Sandbox)
}

// threadNamed: the child named the thread as its first turn began.
func (s *session) threadNamed(e *event) {
	s.thread, s.unnamed = e.thread, false
	if e.opened != nil {
		s.place.model, s.place.effort = e.opened.model, e.opened.effort
		s.client.showSettings()
	}
	if cur := s.m.cur; cur != nil && cur.run != nil {
		cur.run.thread = s.thread
	}
	if s.bind() {
		s.h.ledger.save(&s.place.rec)
	}
}

// bind makes the thread this session's: its lock, its record, who is asked about it. false: it can't be had, and the
// session has ended.
func (s *session) bind() bool {
	p := s.place
	if s.thread != p.rec.BackendID || p.tlock == nil {
		if err := s.h.opener.bindThread(p, s.agentID, s.thread); err != nil {
			s.failOpening(err)
			return false
		}
	}
	s.ref.Thread = s.thread
	s.h.table.enterThread(s, s.thread)
	return true
}

// threadID is Codex's id of the thread, "" while it has none.
func (s *session) threadID() string {
	if s.unnamed {
		return ""
	}
	return s.thread
}

// openRefused: the child has no such thread, or won't make one. A history that is gone is replaced by what we know of
// it ourselves (FR-6).
func (s *session) openRefused(err *backendError) {
	p := s.place
	switch {
	case err.Missing && (p.spec.Thread != "" && p.adopted && p.summary == "" ||
		p.spec.Fork != "" && p.fork.Status == ""):
		s.failOpening(proxyAdvice(codeSessionNotFound, remedyFind, fmt.Sprintf("no session has the id %q, and Codex "+
			"has no thread of that id", cmp.Or(p.spec.Fork, p.spec.Thread)), "; agent_sessions lists what there is"))
	case err.Missing && p.spec.Fork != "":
		s.turns.takePast("Codex has no history of agent " + p.fork.AgentID + " that another one could begin with")
		p.spec.Fork, p.spec.DeveloperInstructions, p.rec.Inherited = "", p.fresh, false
		s.openThread()
	case err.Missing && p.spec.Thread != "":
		why := "Codex's own history of thread " + p.spec.Thread + " is gone"
		if err.Code == 0 { // the driver's words: it didn't even ask
			why = "thread " + p.spec.Thread + " can't go on: " + err.Message
		}
		if p.rec.hasPast() { // else there is nothing to lose
			of := s.turns.takePast(why)
			s.log.Warn("continuing in a new thread", "thread", p.spec.Thread, "why", err.Message, "with", of)
		}
		p.spec.Thread, p.rec.Inherited = "", false
		p.spec.DeveloperInstructions = p.fresh
		s.openThread()
	case err.Held && p.spec.Thread != "" && s.held < heldTries && !p.adopted: // else its other user may well stay
		s.held++
		op := s.op
		s.after(heldPause, func() {
			// Unless the child of that open is gone and the next one is asked already.
			if s.m.phase == phaseOpening && s.opening && s.op == op {
				s.openThread()
			}
		})
	default:
		s.failOpening(childError("open the thread", err))
	}
}

// reopened takes the next child after the last one died (restart_child).
func (s *session) reopened(be backend, err *rpcError) {
	s.box.do(func() {
		if s.m.phase == phaseOver {
			return
		}
		if err != nil {
			s.opening, s.openErr = false, err
			s.carry(s.m.end(endGone))
			return
		}
		s.place.be, s.place.spec.Thread = be, s.thread
		if s.unnamed {
			s.place.spec.Thread = s.place.rec.BackendID
		}
		s.openThread()
	})
}

// childGone ends the session with its child, or waits for the next one.
func (s *session) childGone(err *backendError) {
	for _, id := range s.asks.ids() {
		s.asks.take(id)
		s.h.front.askGone(s.ref, id, "Codex is gone")
	}
	s.tools.waiting = nil // nobody is left to be answered
	s.openErr = childError("run the turn", err)
	if err != nil && err.Death != nil {
		s.openErr = deathError(err.Death, s.h.cfg.restartChild)
	}
	s.steers.end(true)
	switch {
	case s.h.cfg.restartChild && s.thread != "":
		s.opening = false
		s.carry(s.m.lost())
	case s.opening: // the thread never came to be
		s.carry(s.m.end(endFailed))
	default:
		s.carry(s.m.end(endGone))
	}
}

// takeNotes are what the next answer is to say.
func (s *session) takeNotes() []string {
	notes := s.notes
	s.notes = nil
	return notes
}

// newResult is what every result of a turn says of its session.
func (s *session) newResult(t *turn) turnResult {
	rec, set := &s.place.rec, &s.place.policy.Settings
	return turnResult{AgentID: s.agentID, ThreadID: s.threadID(), TurnID: t.name(), Identity: rec.Identity,
		Team: s.h.cfg.team, Status: s.status(), turnFacts: turnFacts{Sandbox: set.Sandbox, Approval: set.Approval,
			Worktree: rec.Worktree.place()}}
}

// status is the session's word as a result tells it.
func (s *session) status() string {
	switch {
	case s.m.ending != endNone:
		return cmp.Or(s.m.ending.status(), statusClosed)
	case s.m.cur != nil || len(s.m.queue) > 0 || s.m.phase == phaseOpening && s.opening:
		return statusBusy
	}
	return statusIdle
}

// publish renews what others may read of this session.
func (s *session) publish() {
	old := s.shown.Load()
	v := newView(&s.place.rec)
	if s.hasPlace() {
		v.Resumable = s.h.cfg.persistThreads
		v.PendingMail, v.AutoMail, v.barred = s.mail.pending(), s.mail.word(), s.mail.refused != ""
	} else {
		v.Activity, v.opening = cmp.Or(s.startup, "opening"), true
	}
	v.BackendID, v.Status, v.Queued, v.Mine, v.Interrupted = s.threadID(), s.status(), len(s.m.queue), true,
		s.closing.cut
	v.Dropped, v.Tokens = s.dropped+s.box.lost(), s.tokens
	if t := s.m.cur; t != nil && t.run != nil {
		v.Activity, v.Source = t.run.activity(), t.req.source.String()
		if t.req.source == sourceSummary {
			v.Activity = "writing its summary"
		}
	}
	for _, id := range s.asks.ids() {
		p := s.asks.pending[id]
		v.Pending = append(v.Pending, askView{ApprovalID: id, Kind: p.kind, Action: p.action, Cwd: p.cwd,
			Reason: p.reason, q: p.approval, offered: p.offered, byCaller: p.byCaller})
		v.Activity = "waiting for approval of " + clip(p.action, 120)
	}
	if v.mailSeq = old.mailSeq; deref(v.PendingMail) > deref(old.PendingMail) {
		s.h.kept.stamp(func(seq int64) { v.mailSeq = seq; s.shown.Store(&v) })
	} else {
		s.shown.Store(&v)
	}
	if old.Status != v.Status || old.Queued != v.Queued || !slices.EqualFunc(old.Pending, v.Pending, sameAsk) ||
		(old.PendingMail == nil) != (v.PendingMail == nil) || deref(old.PendingMail) != deref(v.PendingMail) {
		s.h.kept.poke()
	}
	if s.turns.unseen {
		s.turns.unseen = false
		s.h.kept.seen(s.agentID)
	}
	s.others.tell(&v)
}
