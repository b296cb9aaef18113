package main

// session.go owns the session: one goroutine that owns its state, fed through
// its postbox by the child's events, the fronts and timers. The hub makes it,
// hands it its thread's opening and forgets it when it ends. It must never
// wait for the child, a client or another session; what takes time runs in
// the hub's goroutines and comes back as a letter.

import (
	"cmp"
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
	// turn it belongs to, 0 for none. e is valid during the call only. false: it
	// was dropped.
	event(a agentRef, w waiterID, e *event) bool
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
	wanted  string // the identity that was asked for, "" for any
	log     *slog.Logger
	box     *postbox
	ended   chan struct{} // closed when the loop has ended
	shown   atomic.Pointer[sessionView]
	ref     atomic.Pointer[agentRef]

	// the loop's own
	m       turnMachine
	opening bool   // the hub prepares, or the child opens, the thread
	startup string // what that waits for, in words: "" once there is a place
	place   *opening
	thread  string
	unnamed bool // thread is the driver's name for it: Codex gives its own with the first turn
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
	settled func()   // once nobody waits for a turn's answer any more, as the proxy stops
	after   []func() // answers that wait until identity and thread are free
	unseen  bool     // a turn was kept since the last publish
	keeps   []func() // what is kept of them, before the session is seen to have ended
	free    bool     // they are
	stopped bool     // a turn was cut short by the end

	closedBy string // the correlation of agent_close

	calls  agentCalls
	acting actingTurn // the newest turn, for the tools the agent calls

	mail   mailPump
	client clientPart

	joining    bool                // it is to be a member, and isn't known to be one or not to become one
	unanswered []func(note string) // answers that wait for that

	byCaller bool // the newest turn is a background one: its caller decides approvals, not the client
}

// newSession starts the loop of a session that the hub is about to open.
func newSession(h *hub, agentID, wanted string) *session {
	s := &session{h: h, agentID: agentID, wanted: wanted, log: h.log.With("agent", agentID), box: newPostbox(&h.waiting),
		ended: make(chan struct{}), opening: true, clock: turnClock{silence: h.cfg.requestTimeout, limit: h.cfg.turnLimit}}
	s.ref.Store(&agentRef{AgentID: agentID})
	s.shown.Store(&sessionView{AgentID: agentID, Backend: "codex", Status: statusBusy, Team: h.cfg.team,
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
		if s.m.ending == endClose && req.mode == modeRevive { // it is being closed: opened again once it is
			if s.free {
				s.h.resubmit(req, w)
				return
			}
			s.after = append(s.after, func() { s.h.resubmit(req, w) })
			return
		}
		t := &turn{req: req, waiter: w, asked: time.Now()}
		if !req.run && s.m.phase != phaseOpening && s.m.ending == endNone {
			s.rebind(t)
			return
		}
		s.boundOpening(t)
		if req.run {
			s.h.kept.asked(s.agentID)
			s.byCaller = req.background
			s.mailResumes()
		}
		s.carry(s.m.submit(t))
		s.accept(t)
	})
}

// cancel ends the turn of a waiter that has been retired.
func (s *session) cancel(w waiterID) {
	s.box.post(func() {
		s.carry(s.m.cancel(w))
		s.abandon()
	})
}

// detach has the result of a waiter's turn kept as that of a background turn is.
func (s *session) detach(w waiterID) { s.box.post(func() { s.m.detach(w) }) }

// end asks the session to end; done is called once it has. false: it had
// ended before.
func (s *session) end(why ending, correlation string, done func(closeResult, *rpcError)) bool {
	return s.box.post(func() {
		s.closedBy = cmp.Or(s.closedBy, correlation)
		if done != nil {
			s.closers = append(s.closers, done)
		}
		if why != endPark {
			s.denyAll(decider{byNobody, "before the session was closed"}) // FR-18.5: before anything else
		}
		s.windUp(why, closingLimit)
		if s.m.ending == endNone && done != nil { // parking refused: it is busy again
			s.closers = s.closers[:len(s.closers)-1]
			done(closeResult{AgentID: s.agentID, Status: statusBusy}, nil)
		}
	})
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
				s.take(e, now)
			}
			if s.m.phase == phaseOver {
				s.leave(letters[i+1:])
				return
			}
		}
		s.yieldMail()
		s.advance()
		s.fetchMail()
		if s.m.phase == phaseOpening && !s.opening && len(s.m.queue) > 0 {
			s.opening = true
			s.h.goWork(func() { s.h.opener.reopen(s) })
		}
		if told || s.dropped+s.box.lost() != s.shown.Load().Dropped {
			s.publish()
		}
	}
	s.leave(nil)
}

// retrying reports that the child's last word was of a retry, which its next
// delta takes back.
func (s *session) retrying() bool {
	return s.m.cur != nil && s.m.cur.run != nil && s.m.cur.run.retry != ""
}

// leave runs what was posted before the postbox closed: every turn in there
// gets its answer, or goes back to the hub.
func (s *session) leave(rest []letter) {
	s.publish()
	rest = append(rest, s.box.close()...)
	for i := range rest {
		if rest[i].do != nil {
			rest[i].do()
		} else if s.place != nil {
			late(s.place.be, &rest[i].ev)
		}
	}
	for _, done := range s.closers { // asked to close while it ended otherwise
		done(closeResult{AgentID: s.agentID, Identity: s.place.identity(), Status: statusClosed, Already: true}, nil)
	}
	close(s.ended)
}

// sink is what the child's events go into, on the reading goroutine. What a
// session that has ended can't take is undone: a thread that opens too late
// is let go, an approval declined.
func (s *session) sink(be backend) func(event) {
	return func(e event) {
		if !s.box.event(e) {
			late(be, &e)
		}
	}
}

func late(be backend, e *event) {
	switch {
	case e.kind == evOpened:
		be.do(0, e.thread, command{kind: cmdUnload})
	case e.kind == evAsk && e.ask != nil:
		be.do(0, e.thread, command{kind: cmdAnswer, ask: e.ask.id, decision: deny})
	case e.kind == evTool && e.tool != nil:
		be.do(0, e.thread, command{kind: cmdToolResult, ask: e.tool.id, text: "the session has ended, so " + e.tool.name + " was not done"})
	}
}

// prepared takes the hub's preparation: lease, thread lock, child and policy
// are there, or an error is. false: the session has ended, p is still the
// caller's.
func (s *session) prepared(p *opening) bool {
	return s.box.post(func() {
		if s.m.phase == phaseOver {
			p.release()
			s.h.forget(s) // its name may have been entered after over took it out
			return
		}
		if p.err != nil {
			p.release()
			s.openErr = p.err
			s.carry(s.m.end(endFailed))
			return
		}
		s.place, s.joining = p, !p.rec.Implied
		s.placed()
		s.notes = append(append(s.notes, s.h.firstNotes()...), p.notes...)
		s.told, s.resume = p.told, p.resume
		s.ref.Store(&agentRef{AgentID: s.agentID, Thread: p.spec.Thread, Identity: p.rec.Identity})
		s.op = s.nextOp()
		p.be.open(s.op, p.spec, s.sink(p.be))
		for _, t := range s.m.queue {
			s.accept(t)
		}
	})
}

func (s *session) nextOp() opID { s.ops++; return s.ops }

// take handles one event of the child.
func (s *session) take(e *event, now time.Time) {
	cur := s.m.cur
	if cur != nil && cur.run != nil {
		cur.run.take(e, now)
	}
	if e.method == "turn/started" && e.thread == s.thread && cur != nil && cur.id == "" { // as good as turn/start's answer, which may be lost
		s.mailTaken(cur, e.turn)
	}
	if e.kind != evOpened { // before what it leads to: an answer must not overtake the event that ended its turn
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
	case evRefused:
		if e.op == s.op && s.opening {
			s.openRefused(e.err)
		} else if e.op == s.op && cur != nil {
			cur.run.err = e.err
			s.carry(s.m.refused(e.unknown))
			s.abandon()
		}
	case evStarted:
		if e.op == s.op {
			if cur != nil {
				s.log.Debug("turn started", "turn", e.turn, "thread", s.thread, "correlation", cur.req.correlation)
			}
			s.mailTaken(cur, e.turn)
			s.carry(s.m.started(e.turn))
			if cur != nil && cur.accepted {
				s.h.kept.running(s.agentID, cur.req.handle)
			}
		}
	case evEnded:
		if e.thread == s.thread {
			if s.m.adrift && e.turn != "" { // the start that had no answer ran all the same
				s.mailTaken(cur, e.turn)
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
		s.asked(e.ask)
	case evAskGone:
		s.withdrawn(e.ask.id)
	case evGone:
		s.childGone(e.err)
	case evTool:
		s.called(e)
	case evItem, evDelta, evPlan, evNotice, evServer, evRaw:
	}
}

// tell offers an event to the front, for the waiter of the turn it belongs to.
func (s *session) tell(e *event, cur *turn) {
	var w waiterID
	if cur != nil {
		w = cur.waiter
	}
	if !s.h.front.event(*s.ref.Load(), w, e) {
		s.dropped++
	}
}

// startsChild tells whoever waits that Codex itself has to be started first,
// which may take seconds (npm's Node shim on a cold disk).
func (s *session) startsChild() {
	if s.place != nil {
		return
	}
	s.startup = startingCodex
	for _, t := range s.m.queue {
		s.tell(&event{kind: evNotice, phase: startingCodex}, t)
	}
	s.publish()
}

// threadOpened: the child has the thread. A new one is locked and recorded
// before its first turn can be answered.
func (s *session) threadOpened(e *event) {
	p := s.place
	s.opening, s.thread = false, e.thread
	if e.opened != nil {
		p.model, p.effort = e.opened.model, e.opened.effort
	}
	if s.unnamed = e.opened != nil && e.opened.unnamed; !s.unnamed && !s.bind() {
		return
	}
	p.rec.Status, p.rec.Interrupted = statusIdle, false
	s.m.opened()
	s.openMail()
	if len(s.m.queue) == 0 && p.rec.Turns == 0 && !p.revived && !p.born {
		s.carry(s.m.end(endFailed)) // cancelled meanwhile: nobody knows of it
		return
	}
	if s.showSettings(); p.client {
		s.born()
		s.advance()
	} else {
		s.advance()
		s.h.book.save(&p.rec) // kill -9 after this loses neither thread nor session
	}
	s.h.post.opened(newMember{name: p.rec.Identity, agentID: s.agentID, model: p.policy.Settings.Model, cwd: p.policy.Settings.Cwd, sessionID: s.threadID()}, !p.rec.Implied && !s.h.cfg.teamless)
	s.log.Info("session open", "identity", p.rec.Identity, "thread", s.thread, "resumed", p.spec.Thread != "", "sandbox", p.policy.Settings.Sandbox)
}

// threadNamed: the child named the thread as its first turn began.
func (s *session) threadNamed(e *event) {
	s.thread, s.unnamed = e.thread, false
	if e.opened != nil {
		s.place.model, s.place.effort = e.opened.model, e.opened.effort
		s.showSettings()
	}
	if cur := s.m.cur; cur != nil && cur.run != nil {
		cur.run.thread = s.thread
	}
	if s.bind() {
		s.h.book.save(&s.place.rec)
	}
}

// bind makes the thread this session's: its lock, its record, who is asked
// about it. false: it can't be had, and the session has ended.
func (s *session) bind() bool {
	p := s.place
	if s.thread != p.rec.BackendID || p.tlock == nil {
		if err := s.h.opener.bindThread(p, s.agentID, s.thread); err != nil {
			s.openErr = err
			s.carry(s.m.end(endFailed))
			return false
		}
	}
	s.ref.Store(&agentRef{AgentID: s.agentID, Thread: s.thread, Identity: p.rec.Identity})
	s.h.threadOf(s, s.thread)
	return true
}

// threadID is Codex's id of the thread, "" while it has none.
func (s *session) threadID() string {
	if s.unnamed {
		return ""
	}
	return s.thread
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
		why := "Codex's own history of thread " + p.spec.Thread + " is gone"
		if err.Code == 0 { // the driver's words: it didn't even ask
			why = "thread " + p.spec.Thread + " can't go on: " + err.Message
		}
		if p.rec.Turns > 0 { // else there is nothing to lose: Codex keeps no thread that was never prompted
			of := s.takePast(why)
			s.log.Warn("continuing in a new thread", "thread", p.spec.Thread, "why", err.Message, "with", of)
		}
		p.spec.Thread = ""
		p.unlockThread()
		p.spec.DeveloperInstructions = p.fresh
		s.op = s.nextOp()
		p.be.open(s.op, p.spec, s.sink(p.be))
		return
	}
	if err.Held && p.spec.Thread != "" && s.held < heldTries {
		s.held++
		op := s.op
		time.AfterFunc(heldPause, func() { s.box.post(func() { s.openAgain(op) }) })
		return
	}
	s.openErr = childError("open the thread", err)
	s.carry(s.m.end(endFailed))
}

// openAgain asks once more for a thread that another Codex had not let go yet,
// unless the child of that open is gone and the next one is asked already.
func (s *session) openAgain(op opID) {
	if s.m.phase == phaseOpening && s.opening && s.op == op {
		s.op = s.nextOp()
		s.place.be.open(s.op, s.place.spec, s.sink(s.place.be))
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
		if s.unnamed {
			s.place.spec.Thread = s.place.rec.BackendID
		}
		s.op = s.nextOp()
		be.open(s.op, s.place.spec, s.sink(be))
	})
}
