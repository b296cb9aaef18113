package main

// session_hub.go owns the way of every call to the agent that it is about: a turn on its way to a session's queue, a
// decision, an interrupt, a cancel. The fronts call the hub. It finds open agents by session_table.go and all others by
// session_find.go, and session_opener.go gets a new session its place. The hub must never call a session
// while it holds a lock, nor wait for a client or the child on a caller's goroutine.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// hub is the only thing a front talks to. Its methods may be called from any goroutine and don't block, except where
// they say so. Where a comment says that done is called "once, from another goroutine", the method has returned by then.
type hub struct {
	// set before the first call and never changed
	cfg     *config
	log     *slog.Logger
	reg     *registry
	front   front // set by the composition root before the first call
	started time.Time

	child   childSlot
	ledger  *ledger
	kept    *keptTurns
	table   *sessionTable
	waiters *waiterTable
	agents  *agentDirectory
	clients clientNames
	team    *teamAgents
	mail    mailroom
	tools   agentToolSet
	names   *identities
	opener  *opener
	resume  resumption
	work    workGroup
	waits   openWaits

	tellsMail bool            // the front tells the client of its own mail; set by the composition root
	notesTold atomic.Bool     // cfg.notes were handed to a session
	letters   atomic.Int64    // bytes that wait in the postboxes of all sessions
	life      context.Context // ends with beginStop, at which goroutines that wait give up
	endLife   context.CancelFunc
	endsBy    string // why everything ends: set before beginStop

	leaving []*session // the sessions that were open when beginStop began, for stop
	until   time.Time  // when the grace that beginStop grants is over; zero before beginStop
}

// newHub makes the hub; the composition root sets front, the child's spawn and the agents' tools before the first call.
func newHub(cfg *config, log *slog.Logger, reg *registry, audit *auditLog) *hub {
	h := &hub{cfg: cfg, log: log, reg: reg, started: time.Now(), endsBy: "asked to stop", ledger: newLedger(cfg, log, reg, audit),
		kept: newKeptTurns(reg, log), table: newSessionTable(), waiters: newWaiterTable()}
	h.life, h.endLife = context.WithCancel(context.Background())
	h.child = childSlot{restart: cfg.restartChild, log: log, life: h.life, work: &h.work}
	h.agents = &agentDirectory{cfg: cfg, log: log, reg: reg, ledger: h.ledger, kept: h.kept, table: h.table, mail: &h.mail, marked: make(chan struct{})}
	h.clients = clientNames{agents: h.agents, ids: map[string]string{}}
	h.team = newTeamAgents(h)
	h.mail.init(h)
	h.names = &identities{cfg: cfg, log: log, reg: reg, ledger: h.ledger, table: h.table, team: h.team, life: h.life, tried: make(chan struct{})}
	h.opener = &opener{cfg: cfg, log: log, reg: reg, ledger: h.ledger, child: &h.child, names: h.names, tools: &h.tools, life: h.life}
	return h
}

// start begins what serve needs beside calls: the lease of --identity, the marking of sessions whose process died,
// the look-up of --resume. None of them delays the first answer.
func (h *hub) start() {
	h.names.reserve(&h.work)
	if h.cfg.clientIdentity != "" && h.tellsMail {
		h.mail.joinClient(h.cfg.clientIdentity)
	}
	h.work.start(func() {
		h.agents.markDead()
		if !h.cfg.teamless {
			h.team.file.tidy()
			h.team.sweep(sweepTries)
		}
	})
	if h.cfg.resume != nil {
		h.resume.found = make(chan struct{})
		h.resume.open.Store(true)
		h.work.start(func() { h.resume.find(h.agents, *h.cfg.resume) })
	}
}

// submit runs one turn, or reopens an agent without a turn. The waiter gets exactly one result by front.done, errors
// included, unless the waiter is cancelled first. Turns for one agent are queued in the order in which they were submitted.
func (h *hub) submit(req turnRequest, w waiterID) {
	if req.background && req.handle == "" {
		req.handle = newTurnHandle()
	}
	h.waiters.add(w)
	h.findOrOpen(req, w)
}

// findOrOpen has a turn's session take the turn: the one that is open, or one that it opens.
func (h *hub) findOrOpen(req turnRequest, w waiterID) {
	err := h.child.refusal()
	switch {
	case err != nil:
		h.answer(w, turnResult{err: err})
	case req.mode == modeNew && req.notify != "":
		h.work.start(func() {
			if h.mayNotify(req, w) {
				h.openNew(req, w)
			}
		})
	case req.mode == modeNew:
		h.openNew(req, w)
	default:
		h.withAgent(req.ref, agentCall{
			open:   func(s *session, mayWait bool) reception { return h.handTurn(s, req, w, mayWait) },
			stored: func(ref string) { h.openStored(ref, req, w) },
		})
	}
}

// withAgent hands a call to the agent that a reference means, behind all calls on that agent that came before: at once
// where the agent is open and nothing waits in its line, else from that line's goroutine.
func (h *hub) withAgent(ref string, c agentCall) {
	s, line, serve := h.table.meet(ref, c)
	if s != nil {
		if c.open(s, false) == received {
			return
		}
		serve = h.table.join(line, c)
	}
	if serve {
		h.work.start(func() { h.serveLine(line) })
	}
}

// serveLine hands over the calls of one line until the line is empty. serveLine may wait, as each call may.
func (h *hub) serveLine(line string) {
	for {
		c, s, ok := h.table.next(line)
		if !ok {
			return
		}
		if s == nil || c.open(s, true) != received {
			c.stored(line)
		}
	}
}

// onLoop has the loop of an agent's session run do, behind the calls on the agent that came before; where the agent
// isn't open here, stored serves the call in a goroutine that may wait.
func (h *hub) onLoop(ref string, do func(*session), stored func(ref string)) {
	c := agentCall{stored: stored}
	c.open = func(s *session, _ bool) reception {
		if s.box.do(func() {
			if s.m.phase == phaseOver { // the session has ended since: its record may belong to a newer session by now
				h.withAgent(s.agentID, c)
				return
			}
			do(s)
		}) {
			return received
		}
		return missed
	}
	h.withAgent(ref, c)
}

// handTurn hands a turn to an open session. Where the turn asks for other settings than the session has, the session is
// parked first, and missed then says that the record opens the session anew.
func (h *hub) handTurn(s *session, req turnRequest, w waiterID, mayWait bool) reception {
	anew := req.reshapes() && !s.client.fits(&req)
	switch {
	case (anew || req.notify != "") && !mayWait:
		return mustWait
	case !h.mayNotify(req, w):
		return received
	case !anew:
		return h.queueTurn(s, req, w)
	}
	err := h.opener.vet(s.agentID, req)
	if err == nil {
		err = h.parkToReopen(s)
	}
	if err != nil {
		h.answer(w, turnResult{err: err})
		return received
	}
	return missed
}

// queueTurn puts a turn into the session's queue, unless its waiter has cancelled it.
func (h *hub) queueTurn(s *session, req turnRequest, w waiterID) reception {
	if !h.waiters.assign(w, s) || s.submit(req, w) {
		return received
	}
	return missed
}

// resubmit looks for the session of a turn once more: the session that had the turn was parked or closed before the turn
// could run.
func (h *hub) resubmit(req turnRequest, w waiterID) {
	h.work.start(func() { h.findOrOpen(req, w) })
}

// parkToReopen parks an open session so that it can be opened anew with other settings. It waits until the session is
// parked.
func (h *hub) parkToReopen(s *session) *rpcError {
	parked := make(chan closeResult, 1)
	if s.end(endPark, "", func(r closeResult) { parked <- r }) && (<-parked).Status == statusBusy {
		return proxyError(codeInvalidSession, fmt.Sprintf("session %s is busy; its settings can be changed when its turn has ended. codex-reply needs no settings and waits in its queue", s.agentID), "agent_id", s.agentID)
	}
	return nil
}

// mayNotify refuses a turn, and answers its waiter, where notify names nobody who can be mailed: that is a mistake in the
// call. It reads the disk.
func (h *hub) mayNotify(req turnRequest, w waiterID) bool {
	if req.notify == "" {
		return true
	}
	err := h.team.reachable(req.identity, req.notify)
	if err != nil {
		h.answer(w, turnResult{err: err})
	}
	return err == nil
}

// openNew opens a new agent for a turn, or the one of --resume.
func (h *hub) openNew(req turnRequest, w waiterID) {
	if h.resume.takes(&req) {
		h.work.start(func() {
			if err := h.resume.into(&req); err != nil {
				h.answer(w, turnResult{err: err})
			} else if req.mode != modeNew {
				h.findOrOpen(req, w)
			} else {
				h.enterNew(req, w)
			}
		})
		return
	}
	h.enterNew(req, w)
}

// enterNew makes the session of a new agent.
func (h *hub) enterNew(req turnRequest, w waiterID) {
	if req.agentID == "" {
		req.agentID = h.reg.newAgentID()
	}
	s := newSession(h, req.agentID, req.identity)
	if h.table.enter(s, "") != nil {
		h.answer(w, turnResult{err: proxyError(codeInvalidSession, fmt.Sprintf("agent %s exists already", req.agentID), "agent_id", req.agentID)})
		return
	}
	h.open(s, req, w, nil)
}

// openStored opens an agent that isn't open here, by its record. It reads the disk.
func (h *hub) openStored(ref string, req turnRequest, w waiterID) {
	if !h.mayNotify(req, w) {
		return
	}
	rec, err := h.agents.record(ref)
	if err == nil && req.mode == modeReply {
		err = replyRefusal(rec)
	}
	err = cmp.Or(err, h.child.refusal())
	if err != nil {
		h.answer(w, turnResult{err: err})
		return
	}
	s := newSession(h, rec.AgentID, cmp.Or(req.identity, rec.Identity))
	if was := h.table.enter(s, rec.BackendID); was == nil {
		h.open(s, req, w, rec)
	} else if h.queueTurn(was, req, w) == missed { // somebody else's call was quicker, and its session has ended since
		h.resubmit(req, w)
	}
}

// open gives a new session its first turn and then its place: in this order, so that the turn is answered even if the
// session gets no place. rec is the agent's record, nil for a new agent.
func (h *hub) open(s *session, req turnRequest, w waiterID, rec *record) {
	s.client.setShape(&req, rec)
	go s.loop()
	if !h.waiters.assign(w, s) { // cancelled before it began
		s.end(endFailed, "", nil)
		return
	}
	if !s.submit(req, w) {
		h.resubmit(req, w)
	}
	h.work.start(func() {
		p := h.opener.prepare(s, req, rec)
		if !s.prepared(p) { // the session had ended before its name was entered into the table
			p.release()
			h.forget(s)
		}
	})
}

// forget takes an ended session out of the table; who looks for the agent finds its record from then on.
func (h *hub) forget(s *session) {
	h.table.remove(s)
	h.ledger.leave(s.agentID)
	h.kept.forget(s.agentID)
	h.kept.poke()
}

// replyRefusal is why codex-reply can't open a session again, nil if it can.
func replyRefusal(rec *record) *rpcError {
	switch rec.Status {
	case statusClosed:
		return closedError(rec.AgentID, fmt.Sprintf("session %s (identity %q) is closed", rec.AgentID, rec.Identity), "resume")
	case statusBroken:
		return closedError(rec.AgentID, fmt.Sprintf("session %s is broken: Codex did not confirm that its last turn stopped", rec.AgentID), "recover")
	}
	return nil
}

// closedError refuses a turn of a session that takes no turn until the tool codex has opened the session again. verb is
// the word for that: resume or recover.
func closedError(agentID, what, verb string) *rpcError {
	return proxyAdvice(codeSessionClosed, remedyReopen, what,
		fmt.Sprintf("; call codex with {\"agent_id\": %q, \"prompt\": …} to %s it", agentID, verb), "agent_id", agentID)
}

// answer gives a waiter its result. The table of waiters sees to it that a waiter gets only one.
func (h *hub) answer(w waiterID, r turnResult) {
	if _, waited := h.waiters.retire(w); waited && w != 0 {
		h.front.done(w, r)
	}
}

// cancel retires a waiter: it gets no result any more. A queued turn is never run, a running one is interrupted. For a
// client that merely timed out the front does not call cancel: the turn goes on, and its result is kept in the session.
func (h *hub) cancel(w waiterID) {
	if s, _ := h.waiters.retire(w); s != nil {
		s.cancel(w)
	}
}

// decide takes the decision on an approval that front.ask has put to somebody; by says who decided. false: the approval
// was decided already, or withdrawn.
func (h *hub) decide(ask string, by decider, d decision, answers map[string][]string) bool {
	s := h.waiters.takeAsk(ask)
	return s != nil && s.box.do(func() { s.asks.decide(ask, by, d, answers) })
}

// interrupt stops a turn and keeps its session: the turn that runs or, where turn names one, that turn, queued or running.
// done is called once, from another goroutine, when the turn has stopped; where there was nothing to stop, the result says so.
func (h *hub) interrupt(ref, turn string, done func(interruptResult, *rpcError)) {
	h.onLoop(ref, func(s *session) { s.turns.interruptTurn(turn, func(r interruptResult) { done(r, nil) }) }, func(ref string) {
		v, err := h.agents.closedView(ref)
		done(interruptResult{AgentID: v.AgentID, Identity: v.Identity}, err)
	})
}

// approve decides a pending approval for a caller that repeats the action which it decides on. done is called once, from
// another goroutine, with the decision as it took effect. The first decision wins; a later one gets an error.
func (h *hub) approve(q approveQuery, done func(decision, *rpcError)) {
	h.onLoop(q.Agent, func(s *session) { done(s.asks.approve(q)) }, func(ref string) {
		v, err := h.agents.closedView(ref)
		done(deny, cmp.Or(err, notPending(v.AgentID, q.Ask)))
	})
}

func notPending(agentID, ask string) *rpcError {
	return proxyError(codeInvalidSession, fmt.Sprintf("approval %q of %s isn't pending: it was decided already, withdrawn or timed out; agent_status lists what is pending", ask, agentID), "agent_id", agentID, "approval_id", ask)
}

// setMail turns auto-mail on or off for one session; it is kept in its record. auto true also resumes what the runaway
// guard has paused. done is called once, from another goroutine.
func (h *hub) setMail(ref string, auto bool, done func(sessionView, *rpcError)) {
	h.onLoop(ref, func(s *session) { done(s.mail.set(auto), nil) }, func(ref string) {
		done(h.agents.setMail(ref, auto))
	})
}

// firstNotes are what the first session's first result is to say of the configuration, nil for every later session.
func (h *hub) firstNotes() []string {
	if len(h.cfg.notes) == 0 || !h.notesTold.CompareAndSwap(false, true) {
		return nil
	}
	return h.cfg.notes
}

// workGroup are the goroutines of the hub: what waits for files, the child or a session runs in one of them.
type workGroup struct {
	mu      sync.Mutex // guards the fields below
	stopped bool       // work is no longer waited for
	running sync.WaitGroup
}

// start runs f in a goroutine that wait waits for.
func (g *workGroup) start(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped { // the child refuses everything by now: f only answers
		go f()
		return
	}
	g.running.Go(f)
}

// wait waits for all that was started before it.
func (g *workGroup) wait() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.running.Wait()
}
