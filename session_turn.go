package main

// session_turn.go owns how a session runs its turns: sending them, ending those that take too long, answering and
// keeping what they brought, and accepting background turns. It carries out the effects of the turn machine on the
// session's own goroutine. Whoever is answered may act at once, so what an answer says must be true before it is given;
// a background turn is on disk before its name is given out, and no turn ends without a result.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// acceptLimit is how long a background call waits for its session's place, so that a name that is taken or a Codex that
// won't start is an error of the call.
const acceptLimit = time.Second

// turnRunner runs the turns of one session. Its fields are the loop's.
type turnRunner struct {
	s      *session
	clock  turnClock
	repo   repoCache    // with which reading .git costs a few stats
	told   contextFacts // what the agent knows of its surroundings
	past   string       // block in front of the next prompt: the past, where Codex lost it
	unseen bool         // a turn was kept since the last publish
}

// start sends a turn to the child. What the turn doesn't depend on (record, audit) is written behind it.
func (r *turnRunner) start(t *turn) {
	if t.req.source == sourceSummary {
		r.s.closing.startSummary(t)
		return
	}
	s, p, now := r.s, r.s.place, time.Now()
	t.run, t.under = newTurnRun(s.thread, now), p.policy.Settings
	if p.client {
		t.run.most = s.h.cfg.maxAnswerBytes
	}
	s.tools.actFor(actingTurn{t.req.correlation, s.mail.automatic()})
	if t.limit != nil {
		t.limit.Stop()
	}
	cwd := p.policy.Settings.Cwd
	facts := contextFacts{Identity: p.rec.Identity, Team: s.h.cfg.team, Repo: r.repo.read(cwd), Cwd: cwd}
	s.op = s.nextOp()
	p.be.do(s.op, s.thread, r.command(t, facts))
	r.checkTime(t)

	p.noteStart(t, facts, r.told, now)
	s.h.ledger.noteTurn(&p.rec)
	s.h.ledger.auditTurn(s, "turn", t, "")
	s.h.mail.active()
}

// command is what the child is told to do for a turn. Blocks of ours stand in front of what the user says; an action
// other than a prompt has no room for any, so they wait for the next one that has.
func (r *turnRunner) command(t *turn, facts contextFacts) command {
	c := command{kind: cmdTurn, action: t.req.action, prompt: t.req.prompt, parts: t.req.parts,
		settings: r.s.place.turnSettings()}
	if t.req.schema != nil {
		c.schema = t.req.schema.raw
	}
	switch {
	case c.action == actCompact:
		return c
	case t.req.review != nil:
		c.action, c.settings, c.schema = actPrompt, t.req.review.settings(c.settings), reviewSchema()
	}
	change := ""
	if !r.s.h.cfg.teamless { // else a person's own branch is no news to anybody
		change = contextChange(r.told, facts)
	}
	block := strings.TrimSpace(withContext(r.past, withContext(change, t.mailText)))
	r.told, r.past = facts, ""
	if c.parts != nil {
		c.prompt = block
	} else {
		c.prompt = withContext(block, c.prompt)
	}
	return c
}

// checkTime ends a turn that has run or been silent for too long (FR-14).
func (r *turnRunner) checkTime(t *turn) {
	s := r.s
	if s.m.cur != t || s.m.phase == phaseStopping {
		return
	}
	now := time.Now()
	over, next := r.clock.overdue(t, len(s.asks.pending) > 0 || s.tools.unanswered(), now)
	if over.why == "" {
		if !next.IsZero() {
			r.clock.arm(next.Sub(now), func() { r.checkTime(t) })
		}
		return
	}
	t.over = over
	s.log.Warn("turn timed out", "turn", t.id, "thread", s.thread, "correlation", t.req.correlation, "why", over.why)
	s.asks.denyAll(decider{byNobody, "before the turn timed out"})
	r.answerWithin(t, answerLimit)
	r.stop(stopTimeout)
}

// limitOpening answers a caller whose timeout_secs is over while its session still waits for Codex: the turn has not
// begun and never will.
func (r *turnRunner) limitOpening(t *turn) {
	s := r.s
	if t.req.timeout <= 0 || s.m.phase != phaseOpening {
		return
	}
	t.limit = s.after(t.req.timeout, func() {
		if s.m.phase == phaseOpening && s.m.drop(t) {
			r.answer(t, turnResult{err: proxyError(codeTimeout, fmt.Sprintf("Codex was not ready within timeout_secs "+
				"(%s), so the turn did not start; try again, or let it wait longer", t.req.timeout), "agent_id",
				s.agentID)})
			s.endUnwanted()
		}
	})
}

// alive restarts the inactivity clock after an approval was decided.
func (r *turnRunner) alive() {
	if cur := r.s.m.cur; cur != nil && cur.run != nil {
		cur.run.last = time.Now()
	}
}

// interrupt asks the child to stop the turn and what it left running, and gives it confirmLimit to say so.
func (r *turnRunner) interrupt(t *turn) {
	s := r.s
	s.place.be.do(0, s.thread, command{kind: cmdInterrupt, turn: t.id})
	r.clock.confirm(func() {
		if s.m.cur == t {
			s.log.Warn("interrupt not confirmed, session is broken", "turn", t.id, "thread", s.thread)
			s.carry(s.m.giveUp())
		}
	})
	if t.stop == stopUnknown {
		t.over.why = "Codex did not acknowledge the turn in time, so it is not sent again"
		r.answerWithin(t, answerLimit)
	}
}

// answerWithin answers the caller of a stopped turn after d, even where the child doesn't confirm the stop.
func (r *turnRunner) answerWithin(t *turn, d time.Duration) {
	r.clock.soon(d, func() {
		if r.s.m.cur == t {
			r.answer(t, r.result(t, finishEnded))
		}
	})
}

// stop ends the running turn early; see abandon for one whose thread has no name yet.
func (r *turnRunner) stop(why stopReason) {
	r.s.carry(r.s.m.stopTurn(why))
	r.abandon()
}

// abandon lets go of a stopped turn, and of its thread, that Codex (mcp-server) has not named: there is nothing to
// interrupt and nothing to lose, and Codex may take any time to say more. The driver cancels whatever comes of the
// call.
func (r *turnRunner) abandon() {
	s, t := r.s, r.s.m.cur
	if !s.unnamed || t == nil || t.id != "" || s.m.phase != phaseStopping || s.m.ending != endNone {
		return
	}
	s.asks.denyAll(decider{byNobody, "before the turn was stopped"})
	s.place.be.do(0, s.thread, command{kind: cmdUnload})
	s.carry(s.m.abandon())
	r.takePast("the first turn was stopped before Codex had a thread for it")
}

// takePast has the next prompt say what is known of a thread that is gone.
func (r *turnRunner) takePast(why string) (of string) {
	r.past, of = r.s.place.past()
	r.s.notes = append(r.s.notes, why+"; the agent continues in a new thread with "+of)
	return of
}

// accept answers the caller of a background turn once the session has a place, or after acceptLimit.
func (r *turnRunner) accept(t *turn) {
	s := r.s
	if !t.req.background || t.accepted || !slices.Contains(s.m.queue, t) {
		return
	}
	if s.hasPlace() || s.m.phase != phaseOpening {
		r.acceptNow(t)
	} else if t.accept == nil {
		t.accept = s.after(acceptLimit, func() {
			if !t.accepted && slices.Contains(s.m.queue, t) {
				r.acceptNow(t)
			}
		})
	}
}

// acceptNow makes a queued background turn durable and gives out its name.
func (r *turnRunner) acceptNow(t *turn) {
	s := r.s
	if t.accept != nil {
		t.accept.Stop()
	}
	status := "queued"
	if s.m.cur == nil && s.m.queue[0] == t {
		status = "running" // as soon as there is a thread
	}
	k := keptTurn{AgentID: s.agentID, Identity: s.place.rec.Identity, TurnID: t.req.handle, Source: t.req.source,
		Status: status, Created: t.asked, Updated: time.Now(), Task: t.req.task}
	if err := s.h.kept.begin(k); err != nil {
		s.m.drop(t)
		r.answer(t, turnResult{err: proxyError(codeInvalidSession, "the turn was not started, since it can't be kept "+
			"on disk: "+errorText(err)+"; or leave out background", "agent_id", s.agentID)})
		s.endUnwanted()
		return
	}
	// its thread isn't there yet, but its name is given out
	if p := s.place; s.hasPlace() && s.m.phase == phaseOpening && p.noteEarly() {
		s.h.ledger.save(&p.rec)
	}
	t.accepted = true
	w := t.waiter
	t.waiter = 0
	s.publish()
	accepted := s.newResult(t)
	accepted.Status, accepted.TurnStatus, accepted.Notes, accepted.asked = statusBusy, status, s.takeNotes(), t.asked
	s.h.answer(w, accepted)
}

// answer gives a turn's waiter its result, once. While the session ends, the answer waits until identity and thread are
// free: whoever is answered may want them.
func (r *turnRunner) answer(t *turn, res turnResult) {
	s, waiting := r.s, append([]waiterID{t.waiter}, t.joined...)
	t.waiter, t.joined = 0, nil
	if t.accept != nil {
		t.accept.Stop()
	}
	if s.closing.pending() {
		for _, w := range waiting {
			s.closing.hold(heldAnswer{t: t, w: w, result: res})
		}
		return
	}
	r.keep(t, &res, nil)
	s.publish() // whoever asks for the status next sees what the answer says
	for _, w := range waiting {
		s.member.answer(w, res)
	}
	s.closing.tellAnswered()
}

// keep puts a turn's result where agent_wait and tasks find it, and what its end changes in the record on disk with it,
// if rec is given. false: there is nothing to keep, and rec was not looked at.
func (r *turnRunner) keep(t *turn, res *turnResult, rec *record) bool {
	if t.kept || t.name() == "" || t.run == nil && !t.accepted || t.req.source == sourceSummary {
		return false
	}
	s := r.s
	t.kept = true
	kept := *res
	kept.TurnID = t.name()
	k := keptTurn{AgentID: s.agentID, Identity: res.Identity, TurnID: t.name(), Source: t.req.source,
		Status: res.TurnStatus, Created: t.asked,
		Task: t.req.task, Stopped: t.stop == stopInterrupt || t.stop == stopCancel, Result: &kept}
	if k.Status == "" {
		k.Status = "failed"
		if t.stop != stopNone {
			k.Status = "interrupted"
		}
	}
	err := s.h.kept.finish(k, rec)
	if rec != nil {
		s.h.ledger.noted(rec, err)
	} else if err != nil {
		s.h.ledger.warnUnsaved(err)
	}
	r.unseen = true
	if t.req.notify != "" {
		s.h.team.notify(s.agentID, k, t.req.notify, t.req.correlation)
	}
	return true
}

// finish ends a turn: what a kill -9 must not lose goes to disk in one line, then comes the answer.
func (r *turnRunner) finish(t *turn, how finishKind) {
	s := r.s
	if t.req.mail != nil {
		s.mail.ended(t, how)
	}
	switch {
	// parked while this was on its way here
	case how == finishOver && s.m.ending == endPark && t.req.source != sourceMail:
		t.req.mail = nil
		s.h.resubmit(t.req, t.waiter)
		return
	case how == finishDropped:
		s.endUnwanted()
		return
	case t.run == nil:
		r.answer(t, r.result(t, how))
		return
	}
	r.clock.stop()
	s.asks.denyOwn(decider{byNobody, "before the turn was over"})
	if t.req.source == sourceSummary {
		s.closing.takeSummary(t, how)
		t.tellStopped()
		return
	}
	s.closing.cut = s.closing.cut || s.m.ending != endNone && !t.done()
	if t.run.limit = s.h.limits.why(t.run.err, time.Now()); t.run.limit != nil && t.run.limit.ResetsAt != "" {
		t.run.err.Message += " (resets at " + t.run.limit.ResetsAt + ")"
	}
	p := s.place
	p.noteEnd(t, how, time.Now())
	if s.m.ending != endNone { // its summary may still be asked for; a kill meanwhile must find this
		p.noteOver(s.m.ending, s.closing.cut, time.Now())
	}
	s.log.Debug("turn ended", "turn", t.id, "thread", s.thread, "correlation", t.req.correlation, "status",
		t.status(how), "latency_ms", time.Since(t.run.started).Milliseconds())
	if how == finishRefused && s.unnamed {
		r.takePast("Codex made no thread for the turn before")
	}
	res := r.result(t, how)
	// its result is kept later, or was when its caller was answered
	if s.closing.pending() || !r.keep(t, &res, &p.rec) {
		s.h.ledger.noteTurn(&p.rec)
	}
	if s.m.ending == endShutdown { // the file says already that the session has ended, so no note is read any more
		s.h.ledger.save(&p.rec)
	}
	r.answer(t, res)
	t.tellStopped()
	s.steers.end(false)
	if s.mail.inbox != nil {
		s.mail.inbox.look() // FR-8.1, also where nothing is noticed
	}
}

func (r *turnRunner) result(t *turn, how finishKind) turnResult {
	s := r.s
	res := s.newResult(t)
	if res.err = r.failure(t, how); res.err != nil {
		return res
	}
	if t.asker() != 0 || t.accepted { // else nobody would read them
		res.Notes = s.takeNotes()
		if lost := s.h.ledger.unsaved(); lost != "" {
			res.Notes = append(res.Notes, lost)
		}
		if near := s.h.limits.warning(time.Now()); near != "" {
			res.Notes = append(res.Notes, near)
		}
	}
	if t.run != nil {
		t.fill(&res, how)
		r.tellReview(t, &res)
		res.Limit = t.run.limit
		r.tellChanges(t, &res)
		whole := res.Content
		res.Content = s.h.ledger.fit(whole, s.place, t.id)
		if t.req.schema != nil && res.TurnStatus == "completed" {
			res.Output, res.OutputError = t.req.schema.read(whole, len(res.Content) < len(whole))
		}
	}
	return res
}

// tellReview puts what a review found into its result.
func (r *turnRunner) tellReview(t *turn, res *turnResult) {
	if t.req.review == nil {
		return
	}
	info, window := "", int64(0)
	if t.run.err != nil {
		info = t.run.err.Info
	}
	if t.run.usage != nil {
		window = t.run.usage.ContextWindow
	}
	var notes []string
	res.Review, notes = t.req.review.shown(res.TurnStatus, info, window)
	res.Notes = append(res.Notes, notes...)
	under := t.req.review.settings(r.s.place.policy.Settings)
	res.Sandbox, res.Approval = under.Sandbox, under.Approval
}

// tellChanges puts what a turn changed into its result, and its diff into a file where its caller wants it.
func (r *turnRunner) tellChanges(t *turn, res *turnResult) {
	changes, diff, whole := t.run.changes(r.s.place.policy.Settings.Cwd)
	res.Changes = changes
	switch {
	case !t.req.diff || changes == nil:
	case !whole:
		res.Notes = append(res.Notes, fmt.Sprintf("diff: the whole diff is not kept, since it has more than %d MiB",
			maxDiffBytes>>20))
	default:
		path, err := r.s.h.ledger.keepBeside(r.s.place, t.id+".diff", diff)
		if err != nil {
			res.Notes = append(res.Notes, "diff: the whole diff is not kept: "+errorText(err))
		}
		changes.DiffFile = path
	}
}

// failure is the error a turn ends with, nil when it has a result: a turn that ran and failed or was interrupted has
// one.
func (r *turnRunner) failure(t *turn, how finishKind) *rpcError {
	s := r.s
	id := []any{"agent_id", s.agentID}
	late := t.stop == stopTimeout || t.stop == stopUnknown
	switch how {
	case finishEnded:
		if late {
			return timeoutError(s.agentID, t)
		}
	case finishRefused:
		err := childError("start the turn", t.run.err)
		err.Message += fmt.Sprintf("; agent %s (identity %q) stays idle: codex-reply with its agent_id tries again",
			s.agentID, s.place.rec.Identity)
		return err
	case finishFull:
		return proxyError(codeMaxSessions, fmt.Sprintf("%d turns already wait for %s; wait for one to end, or start "+
			"another agent", maxQueue, s.agentID), id...)
	case finishOver:
		if s.m.ending == endShutdown {
			return stoppingError(id...)
		}
		return closedError(s.agentID, fmt.Sprintf("session %s was closed before this turn ran", s.agentID), "resume")
	case finishGone, finishUnopened:
		if s.openErr != nil {
			return s.openErr
		}
		return proxyError(codeSessionClosed, "the session could not be opened", id...)
	case finishBroken:
		switch {
		case late:
			return timeoutError(s.agentID, t)
		case s.m.ending != endClose && s.m.ending != endShutdown:
			return closedError(s.agentID, fmt.Sprintf("session %s is broken: Codex did not confirm within %s that "+
				"its turn stopped", s.agentID, confirmLimit), "recover")
		}
	case finishRebound, finishDropped:
	}
	return nil
}

// interruptTurn stops the turn of that name, or what runs for "", and keeps the session. done is called once it has
// stopped.
func (r *turnRunner) interruptTurn(name string, done func(interruptResult)) {
	s := r.s
	res := interruptResult{AgentID: s.agentID, Identity: cmp.Or(s.place.rec.Identity, s.wanted)}
	tell := func() {
		res.Queued = len(s.m.queue)
		s.publish()
		done(res)
	}
	for i, t := range s.m.queue {
		// about to run, once its thread is open
		if name != "" && t.name() == name || name == "" && i == 0 && s.m.cur == nil {
			s.m.drop(t)
			res.Interrupted, res.TurnID = true, t.name()
			t.stop = stopInterrupt
			stopped := s.newResult(t)
			stopped.Content, stopped.TurnStatus = t.stop.words(), "interrupted"
			r.answer(t, stopped)
			tell()
			s.endUnwanted()
			return
		}
	}
	cur := s.m.cur
	if cur == nil || name != "" && cur.name() != name && cur.id != name {
		tell()
		return
	}
	res.Interrupted, res.TurnID = true, cur.name()
	cur.stoppers = append(cur.stoppers, tell)
	// The interrupt first: a turn that is only told no goes on, and may be through
	// with its work before the interrupt comes.
	r.stop(stopInterrupt)
	s.asks.denyAll(decider{byNobody, "before the turn was interrupted"})
}
