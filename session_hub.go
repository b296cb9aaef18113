package main

// session_hub.go owns the hub: it makes the parts that serve all sessions, brings every turn to the session whose it
// is, and ends everything, first what must be done before somebody kills us (answers, records, the index), then what
// may take its time (summaries, the child). The fronts call the hub and its parts; proxy.go calls beginStop and stop,
// in this order and from one goroutine. The hub must never call a session while it holds a lock, nor wait for a client
// or the child on a caller's goroutine. Whoever is told "closed" must find a closed record, whatever the session was
// just about.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// settleLimit is how long those who wait may have to wait for their answers as we stop: a fraction of it, unless the
// machine is overloaded. Claude Code kills us half a second after its first signal.
const settleLimit = 200 * time.Millisecond

// hub, with its parts, is the only thing a front talks to. Its methods may be called from any goroutine and don't
// block, except where they say so. Where a comment says that done is called "once, from another goroutine", the method
// has returned by then.
type hub struct {
	*common
	front   front // set by the composition root before the first call
	started time.Time

	child   childSlot
	waiters *waiterTable
	agents  *agentDirectory
	names   *identities
	team    *teamAgents
	mail    *mailroom
	tools   agentToolSet
	opener  *opener
	trees   *worktrees
	clients *clientAgents
	waits   *agentWaits
	resume  resumption
	limits  accountLimits

	tellsMail bool         // the front tells the client of its own mail; set by the composition root
	notesTold atomic.Bool  // cfg.notes were handed to a session
	letters   atomic.Int64 // bytes that wait in the postboxes of all sessions
	endLife   context.CancelFunc
	endsBy    string // why everything ends: set before beginStop

	leaving []*session // the sessions that were open when beginStop began, for stop
	until   time.Time  // when the grace that beginStop grants is over; zero before beginStop
}

// common is what the hub and its parts all have, and none of them changes.
type common struct {
	cfg    *config
	log    *slog.Logger
	reg    *registry
	ledger *ledger
	kept   *keptTurns
	table  *sessionTable
	life   context.Context // ends with beginStop, at which goroutines that wait give up
	work   workGroup
}

// newHub makes the hub; the composition root sets front, the child's spawn and the agents' tools before the first call.
func newHub(cfg *config, log *slog.Logger, reg *registry, audit *auditLog) *hub {
	life, endLife := context.WithCancel(context.Background())
	c := &common{cfg: cfg, log: log, reg: reg, ledger: newLedger(cfg, log, reg, audit), kept: newKeptTurns(reg, log),
		table: newSessionTable(), life: life}
	h := &hub{common: c, started: time.Now(), endLife: endLife, endsBy: "asked to stop",
		waiters: &waiterTable{turns: map[waiterID]*session{}},
		child:   childSlot{common: c}}
	file := newTeamFile(cfg.teamsRoot, cfg.team, cfg.sessionsRoot)
	h.names = &identities{common: c, tried: make(chan struct{}),
		addresses: addressBook{own: file, root: cfg.teamsRoot, aliases: cfg.aliases, roles: cfg.atmRoles}}
	h.agents = &agentDirectory{common: c, marked: make(chan struct{}),
		boxes: newInboxes(cfg.teamsRoot, atmSpool(cfg), reg.disk, log)}
	h.team = newTeamAgents(h.agents, h.names, file)
	h.mail = newMailroom(c, h.team)
	h.trees = &worktrees{common: c, agents: h.agents}
	h.opener = &opener{common: c, child: &h.child, names: h.names, tools: &h.tools, trees: h.trees}
	h.clients = &clientAgents{common: c, agents: h.agents, opener: h.opener}
	h.waits = &agentWaits{common: c, agents: h.agents, team: h.team, mail: h.mail}
	return h
}

// start begins what serve needs beside calls: the lease of --identity, the marking of sessions whose process died,
// the look-up of --resume. None of them delays the first answer.
func (h *hub) start() {
	h.names.reserve()
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
// included, unless the waiter is cancelled first. Turns for one agent are queued in the order in which they were
// submitted.
func (h *hub) submit(req turnRequest, w waiterID) {
	if req.background && req.handle == "" {
		req.handle = newTurnHandle()
	}
	h.waiters.add(w)
	h.findOrOpen(req, w)
}

// findOrOpen has a turn's session take the turn: the one that is open, or one that it opens.
func (h *hub) findOrOpen(req turnRequest, w waiterID) {
	err, atOnce := h.child.refusal(), req.notify == "" && req.forkOf == ""
	switch {
	case err != nil:
		h.answer(w, turnResult{err: err})
	case req.mode != modeNew:
		h.agents.withAgent(req.ref, agentCall{
			open:   func(s *session, mayWait bool) reception { return h.handTurn(s, req, w, mayWait) },
			stored: func(ref string) { h.openStored(ref, req, w) },
		})
	case atOnce && !h.resume.takes(&req):
		h.enterNew(req, w)
	default:
		h.work.start(func() { h.openNew(req, w, atOnce) })
	}
}

// openNew opens a new agent for a turn, or the one of --resume. resumes: resumption.takes has given the turn that one
// already. It may wait.
func (h *hub) openNew(req turnRequest, w waiterID, resumes bool) {
	var err *rpcError
	switch {
	case !h.mayNotify(req, w):
		return
	case req.forkOf != "":
		req.fork, err = h.agents.source(req.forkOf, req.client != nil)
	case resumes || h.resume.takes(&req):
		err = h.resume.into(&req)
	}
	switch {
	case err != nil:
		h.answer(w, turnResult{err: err})
	case req.mode != modeNew:
		h.findOrOpen(req, w)
	default:
		h.enterNew(req, w)
	}
}

// review finds the change that a review is of, where the agent that is to review works, or where a new one would, and
// that agent's id. It reads the disk and runs git.
func (h *hub) review(ref, cwd string, task reviewTask) (*review, string, *rpcError) {
	var agent sessionView
	if ref != "" {
		_, agentID, err := h.agents.find(ref)
		if err != nil {
			return nil, "", err
		}
		agent = h.agents.view(agentID)
	}
	dir, err := h.opener.cwdFor(cwd, agent.Cwd)
	if err != nil {
		return nil, "", err
	}
	r, cause := h.findChange(h.life, dir, task)
	if cause != nil {
		return nil, "", proxyError(codeInvalidSession, cause.Error(), "cwd", dir)
	}
	r.busy = agent.Mine && agent.Status == statusBusy
	return r, agent.AgentID, nil
}

// findChange finds the change that a review in a directory is of, with what the review won't hold back. It reads the
// disk and runs git.
func (h *hub) findChange(ctx context.Context, dir string, task reviewTask) (*review, error) {
	r, err := findReview(ctx, dir, task)
	if err == nil {
		r.rules = allowingRules(codexHomeDir(h.cfg.home), filepath.Join(r.top, ".codex"))
	}
	return r, err
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

// resubmit looks for the session of a turn once more: the session that had the turn was parked or closed before the
// turn could run.
func (h *hub) resubmit(req turnRequest, w waiterID) {
	h.work.start(func() { h.findOrOpen(req, w) })
}

// parkToReopen parks an open session so that it can be opened anew with other settings. It waits until the session is
// parked.
func (h *hub) parkToReopen(s *session) *rpcError {
	parked := make(chan closeResult, 1)
	if s.end(endPark, "", func(r closeResult) { parked <- r }) && (<-parked).Status == statusBusy {
		return proxyAdvice(codeInvalidSession, remedyNone, fmt.Sprintf("session %s is busy; its settings can be "+
			"changed when its turn has ended", s.agentID), ". codex-reply needs no settings and waits in its queue",
			"agent_id", s.agentID)
	}
	return nil
}

// mayNotify refuses a turn, and answers its waiter, where notify names nobody who can be mailed: that is a mistake in
// the call. It reads the disk.
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

// enterNew makes the session of a new agent.
func (h *hub) enterNew(req turnRequest, w waiterID) {
	if req.agentID == "" {
		req.agentID = h.reg.newAgentID()
	}
	s := newSession(h, req.agentID, req.identity, &req, nil)
	if h.table.enter(s, "") != nil {
		h.answer(w, turnResult{err: proxyError(codeInvalidSession, fmt.Sprintf("agent %s exists already", req.agentID),
			"agent_id", req.agentID)})
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
	switch {
	case err != nil:
	case rec.Status == "":
		rec.AgentID = cmp.Or(req.agentID, rec.AgentID)
	case req.mode == modeReply:
		err = replyRefusal(rec)
	}
	err = cmp.Or(err, h.child.refusal())
	if err != nil {
		h.answer(w, turnResult{err: err})
		return
	}
	s := newSession(h, rec.AgentID, cmp.Or(req.identity, rec.Identity), &req, rec)
	if was := h.table.enter(s, rec.BackendID); was == nil {
		h.open(s, req, w, rec)
	} else if h.queueTurn(was, req, w) == missed { // somebody else's call was quicker, and its session has ended since
		h.resubmit(req, w)
	}
}

// open gives a new session its first turn and then its place: in this order, so that the turn is answered even if the
// session gets no place. rec is the agent's record, nil for a new agent.
func (h *hub) open(s *session, req turnRequest, w waiterID, rec *record) {
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
			h.giveBack(p)
			h.forget(s)
		}
	})
}

// giveBack gives a place back that no session has taken.
func (h *hub) giveBack(p *place) {
	if h.opener.letGo(p); p.made {
		h.work.start(func() { h.trees.unmake(p.rec) })
	}
}

// forget takes an ended session out of the table; who looks for the agent finds its record from then on.
func (h *hub) forget(s *session) {
	if !h.table.remove(s) { // else index and results are the newer session's
		h.ledger.leave(s.agentID)
		h.kept.forget(s.agentID)
	}
	h.kept.poke()
}

// replyRefusal is why codex-reply can't open a session again, nil if it can.
func replyRefusal(rec *record) *rpcError {
	switch rec.Status {
	case statusClosed:
		return closedError(rec.AgentID, fmt.Sprintf("session %s (identity %q) is closed", rec.AgentID, rec.Identity),
			"resume")
	case statusBroken:
		return closedError(rec.AgentID, fmt.Sprintf("session %s is broken: Codex did not confirm that its last turn "+
			"stopped", rec.AgentID), "recover")
	}
	return nil
}

// closedError refuses a turn of a session that takes no turn until the tool codex has opened the session again. verb is
// the word for that: resume or recover.
func closedError(agentID, what, verb string) *rpcError {
	return proxyAdvice(codeSessionClosed, remedyReopen, what,
		fmt.Sprintf("; call codex with {\"agent_id\": %q, \"prompt\": …} to %s it", agentID, verb), "agent_id",
		agentID)
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

// decide takes the decision on an approval of an agent's that front.ask has put to somebody; by says who decided. What
// was decided already, or withdrawn, stays as it is.
func (h *hub) decide(agentID, ask string, by decider, d decision, answers map[string][]string) {
	if s := h.table.agent(agentID); s != nil {
		s.box.do(func() { s.asks.decide(ask, by, d, answers) })
	}
}

// interrupt stops a turn and keeps its session: the turn that runs or, where turn names one, that turn, queued or
// running. done is called once, from another goroutine, when the turn has stopped; where there was nothing to stop, the
// result says so.
func (h *hub) interrupt(ref, turn string, done func(interruptResult, *rpcError)) {
	h.agents.onLoop(ref, func(s *session) { s.turns.interruptTurn(turn, func(r interruptResult) { done(r, nil) }) },
		func(ref string) {
			v, err := h.agents.closedView(ref)
			done(interruptResult{AgentID: v.AgentID, Identity: v.Identity}, err)
		})
}

// approve decides a pending approval for a caller that repeats the action which it decides on. done is called once,
// from another goroutine, with the decision as it took effect. The first decision wins; a later one gets an error.
func (h *hub) approve(q approveQuery, done func(decision, *rpcError)) {
	h.agents.onLoop(q.Agent, func(s *session) { done(s.asks.approve(q)) }, func(ref string) {
		v, err := h.agents.closedView(ref)
		done(deny, cmp.Or(err, notPending(v.AgentID, q.Ask)))
	})
}

func notPending(agentID, ask string) *rpcError {
	return proxyAdvice(codeInvalidSession, remedyNone, fmt.Sprintf("approval %q of %s isn't pending: it was decided "+
		"already, withdrawn or timed out", ask, agentID), "; agent_status lists what is pending", "agent_id", agentID,
		"approval_id", ask)
}

// setMail turns auto-mail on or off for one session; it is kept in its record. auto true also resumes what the runaway
// guard has paused. done is called once, from another goroutine.
func (h *hub) setMail(ref string, auto bool, done func(sessionView, *rpcError)) {
	h.agents.onLoop(ref, func(s *session) { done(s.mail.set(auto), nil) }, func(ref string) {
		done(h.agents.setMail(ref, auto))
	})
}

// close closes the agent that a reference means, open or not, and calls done exactly once, from another goroutine.
// correlation follows the request through the audit trail.
func (h *hub) close(ref, correlation string, done func(closeResult, *rpcError)) {
	h.closeAs(ref, correlation, false, done)
}

// leave closes a session without a summary: it may be opened again by modeRevive. done is called once, from another
// goroutine.
func (h *hub) leave(agentID string, done func(closeResult, *rpcError)) {
	h.closeAs(agentID, "", true, done)
}

func (h *hub) closeAs(ref, correlation string, unsummed bool, done func(closeResult, *rpcError)) {
	h.agents.withAgent(ref, agentCall{
		open: func(s *session, _ bool) reception {
			if unsummed {
				s.box.do(func() { s.client.unsummed = true })
			}
			return h.closeOpen(s, correlation, done)
		},
		stored: func(ref string) {
			r, err := h.agents.close(ref, correlation)
			h.endTree(&r)
			done(r, err)
		},
	})
}

// closeOpen closes an open session. One that had no place yet left its record as it was, and one that was just parked
// is no closed one: those are closed by their records.
func (h *hub) closeOpen(s *session, correlation string, done func(closeResult, *rpcError)) reception {
	if !s.end(endClose, correlation, func(r closeResult) {
		closed := r.Identity != "" && !r.Already
		if closed && r.Worktree == nil {
			done(r, nil)
			return
		}
		h.work.start(func() {
			stored, err := r, (*rpcError)(nil)
			if !closed {
				stored, err = h.agents.close(s.agentID, correlation)
			}
			if err != nil && err.Code == codeSessionNotFound { // it had no record either
				stored, err = r, nil
			}
			h.endTree(&stored)
			done(stored, err)
		})
	}) {
		return missed
	}
	return received
}

// endTree ends the worktree of an agent that was closed, if it has one.
func (h *hub) endTree(r *closeResult) {
	if r.Worktree != nil {
		r.Worktree = h.trees.end(r.AgentID, false)
	}
}

// beginStop begins the end, and does what matters of it: new turns are refused, running ones interrupted, whoever waits
// is answered, records say how things stand. It takes settleLimit at most. Summaries, which have until grace is over,
// are under way when it returns.
func (h *hub) beginStop(grace time.Duration) {
	h.child.close()
	h.endLife() // work that waits gives up
	h.names.stop()
	h.until = time.Now().Add(grace)
	h.leaving = h.table.all()
	limit, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	told := make(chan struct{}, len(h.leaving))
	for _, s := range h.leaving {
		if !s.shutdown(grace, func() { told <- struct{}{} }) {
			told <- struct{}{} // it has just ended, and answers
		}
	}
	for range h.leaving {
		select {
		case <-told:
		case <-limit.Done():
		}
	}
	h.waits.open.wait(limit.Done())
	for _, w := range h.waiters.all() { // on their way to a session
		h.answer(w, turnResult{err: h.child.refusal()})
	}
}

// stop ends everything after beginStop: what was saved is flushed, summaries have what is left of the grace, the child
// is ended. It waits, at most about that and the child's ladder.
func (h *hub) stop(grace time.Duration) {
	if h.until.IsZero() {
		h.beginStop(grace)
	}
	h.team.leaveAll()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	h.ledger.flush(ctx)
	cancel()
	limit, cancel := context.WithDeadline(context.Background(), h.until)
	defer cancel()
	for _, s := range h.leaving {
		select {
		case <-s.ended:
		case <-limit.Done():
		}
	}
	if be := h.child.close(); be != nil {
		be.stop(min(grace, shutdownLimit))
	}
	for _, s := range h.leaving { // the child's end ends whoever still waited for it
		<-s.ended
	}
	h.work.wait(nil)
	h.waits.open.wait(nil)
	ctx, cancel = context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	h.ledger.close(ctx)
}

// status tells the whole proxy. It reads no disk.
func (h *hub) status() statusView {
	v := statusView{Team: h.cfg.team, TeamFrom: h.cfg.teamFrom, Unsaved: h.ledger.unsaved(),
		Uptime: time.Since(h.started), Sessions: len(h.table.leased()), Identities: map[string]string{},
		EventBytes: h.letters.Load(), EventBytesLimit: maxWaitingBytes, Limits: h.limits.view()}
	h.child.show(&v)
	for _, s := range h.table.all() {
		view := *s.shown.Load()
		v.Agents = append(v.Agents, view)
		if view.Identity != "" {
			v.Identities[view.Identity] = view.AgentID
		}
		if view.PendingMail != nil {
			sum := *view.PendingMail + deref(v.PendingMail)
			v.PendingMail = &sum
		}
	}
	sort.Slice(v.Agents, func(i, j int) bool { return v.Agents[i].StartedAt.Before(v.Agents[j].StartedAt) })
	return v
}

// hearLimits takes what Codex says of a limit.
func (h *hub) hearLimits(limit json.RawMessage) {
	h.limits.take(limit, time.Now())
	h.keepLimits()
}

// keepLimits has other processes read the limits as they are known here, soon.
func (h *hub) keepLimits() {
	if path := limitsFile(h.cfg.sessionsRoot); h.cfg.persistThreads {
		h.reg.disk.later(path, func() {
			known := h.limits.view()
			if known == nil { // what Codex said was about none
				return
			}
			if err := writeWhole(path, toJSON(known)); err != nil {
				h.log.Debug("other processes aren't told the limits", "err", err)
			}
		})
	}
}

// limitsAskFor is how long agent_status may wait for the account's limits.
const limitsAskFor = 3 * time.Second

// statusWithLimits tells the whole proxy. Where Codex runs and has told no limits yet, it is asked for them, once; then
// done is called from another goroutine.
func (h *hub) statusWithLimits(done func(statusView)) {
	if !h.child.up() || !h.limits.mayAsk() {
		done(h.status())
		return
	}
	h.work.start(func() {
		ctx, cancel := context.WithTimeout(h.life, limitsAskFor)
		defer cancel()
		if answer, err := h.child.catalog(ctx, "limits", ""); err != nil { // an API key has none
			h.log.Debug("Codex tells no limits", "err", err.Message)
		} else {
			h.limits.takeAll(answer, time.Now())
			h.keepLimits()
		}
		done(h.status())
	})
}

// runTool is how a front runs an ATM tool. It waits for files.
func (h *hub) runTool(ctx context.Context, who atmCaller, tool string, args json.RawMessage) (any, string, *rpcError) {
	own := looksIntoInbox(tool) && h.team.isClient(who.Identity)
	if own { // who named the client may spell it otherwise than who made its inbox
		h.mail.spell()
		who.Identity = h.mail.spelt(who.Identity)
	}
	structured, text, err := h.team.tools.run(ctx, who, tool, args)
	if own {
		h.mail.recount(who.Identity) // the next result must not tell of what was just read
	}
	return structured, text, err
}

// workGroup are goroutines, the hub's or a front's: what waits for files, the child or a session runs in one of them.
type workGroup struct {
	mu      sync.Mutex // guards the fields below
	stopped bool
	running sync.WaitGroup
}

// spawn runs f in a goroutine that wait waits for. false: the group has been stopped, and f does not run.
func (g *workGroup) spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.running.Go(f)
	}
	return !g.stopped
}

// start is spawn of what must run in any case: once the group has been stopped nothing waits for f, which only answers,
// since the child refuses everything by then.
func (g *workGroup) start(f func()) {
	if !g.spawn(f) {
		go f()
	}
}

func (g *workGroup) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
}

// wait stops the group and waits for what runs in it, until giveUp is closed; nil is never.
func (g *workGroup) wait(giveUp <-chan struct{}) {
	g.stop()
	done := make(chan struct{})
	go func() { g.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-giveUp:
	}
}
