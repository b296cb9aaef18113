package main

// session_turn.go owns how a session runs its turns: sending them, ending those
// that take too long, answering their callers. These are the effects of the
// turn machine, carried out on the session's own goroutine. Whoever is
// answered may act at once, so what an answer says must be true before it is
// given. session_asks.go has the approvals, session_end.go the session's end.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// start sends a turn to the child. What the turn doesn't depend on (record,
// audit) is written behind it.
func (s *session) start(t *turn) {
	if t.req.source == sourceSummary {
		s.startSummary(t)
		return
	}
	p, now := s.place, time.Now()
	t.run = newTurnRun(s.thread, now)
	if p.client {
		t.run.most = s.h.cfg.maxAnswerBytes
	}
	s.act(actingTurn{t.req.correlation, s.automaticMail()})
	if t.limit != nil {
		t.limit.Stop()
	}
	facts := s.h.book.facts(&s.repo, p.rec.Identity, p.policy.Settings.Cwd)
	s.op = s.nextOp()
	p.be.do(s.op, s.thread, s.turnCommand(t, facts))
	s.checkTime(t)

	p.noteStart(t, facts, s.told, now)
	s.h.book.noteTurn(&p.rec)
	s.h.book.auditTurn(s, t)
	s.h.mail.active()
}

// turnCommand is what the child is told to do for a turn. Blocks of ours stand in
// front of what the user says; an action other than a prompt has no room for
// any, so they wait for the next one that has.
func (s *session) turnCommand(t *turn, facts contextFacts) command {
	c := command{kind: cmdTurn, action: t.req.action, prompt: t.req.prompt, parts: t.req.parts, settings: s.place.policy.Settings}
	if c.action != actPrompt {
		return c
	}
	block := ""
	if !s.h.cfg.teamless { // else a person's own branch is no news to anybody
		block, _ = contextChange(s.told, facts)
	}
	if s.resume != "" {
		block = strings.TrimSpace(withContext(s.resume, block))
	}
	if t.offer != "" {
		block = strings.TrimSpace(withContext(block, t.offer))
	}
	s.told, s.resume = facts, ""
	if c.parts != nil {
		c.prompt = block
	} else {
		c.prompt = withContext(block, c.prompt)
	}
	return c
}

// checkTime ends a turn that has run or been silent for too long (FR-14).
func (s *session) checkTime(t *turn) {
	if s.m.cur != t || s.m.phase == phaseStopping {
		return
	}
	now := time.Now()
	over, next := s.clock.overdue(t, len(s.asks.pending) > 0 || s.calls.open(), now)
	if over.why == "" {
		if !next.IsZero() {
			s.clock.arm(next.Sub(now), func() { s.box.post(func() { s.checkTime(t) }) })
		}
		return
	}
	t.over = over
	s.log.Warn("turn timed out", "turn", t.id, "thread", s.thread, "correlation", t.req.correlation, "why", over.why)
	s.denyAll(decider{byNobody, "before the turn timed out"})
	s.soon(t)
	s.stopTurn(stopTimeout)
}

// boundOpening answers a caller whose timeout_secs is over while its session
// still waits for Codex: the turn has not begun and never will.
func (s *session) boundOpening(t *turn) {
	if t.req.timeout <= 0 || s.m.phase != phaseOpening {
		return
	}
	t.limit = time.AfterFunc(t.req.timeout, func() {
		s.box.post(func() {
			if s.m.phase == phaseOpening && s.m.drop(t) {
				s.answer(t, turnResult{err: proxyError(codeTimeout, fmt.Sprintf("Codex was not ready within timeout_secs (%s), so the turn did not start; try again, or let it wait longer", t.req.timeout), "agent_id", s.agentID)})
				s.lonely()
			}
		})
	})
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
				s.carry(s.m.giveUp())
			}
		})
	})
	if t.stop == stopUnknown {
		t.over.why = "Codex did not acknowledge the turn in time, so it is not sent again"
		s.soon(t)
	}
}

// soon answers a timed-out caller even where the child doesn't confirm.
func (s *session) soon(t *turn) { s.within(t, answerLimit) }

func (s *session) within(t *turn, d time.Duration) {
	s.clock.soon(d, func() {
		s.box.post(func() {
			if s.m.cur == t {
				s.answer(t, s.result(t, finishEnded))
			}
		})
	})
}

// stopTurn ends the running turn early; see abandon for one whose thread has no
// name yet.
func (s *session) stopTurn(why stopReason) {
	s.carry(s.m.stopTurn(why))
	s.abandon()
}

// abandon lets go of a stopped turn, and of its thread, that Codex (mcp-server) has
// not named: there is nothing to interrupt and nothing to lose, and Codex may
// take any time to say more. The driver cancels whatever comes of the call.
func (s *session) abandon() {
	t := s.m.cur
	if !s.unnamed || t == nil || t.id != "" || s.m.phase != phaseStopping || s.m.ending != endNone {
		return
	}
	s.denyAll(decider{byNobody, "before the turn was stopped"})
	s.place.be.do(0, s.thread, command{kind: cmdUnload})
	s.carry(s.m.abandon())
	s.takePast("the first turn was stopped before Codex had a thread for it")
}

// takePast has the next prompt say what is known of a thread that is gone.
func (s *session) takePast(why string) (of string) {
	s.resume, of = s.place.past()
	s.notes = append(s.notes, why+"; the agent continues in a new thread with "+of)
	return of
}

// answer gives a turn's waiter its result, once. While the session ends, it
// waits until identity and thread are free: whoever is answered may want them.
func (s *session) answer(t *turn, r turnResult) {
	w := t.waiter
	t.waiter = 0
	if t.accept != nil {
		t.accept.Stop()
	}
	if s.m.phase == phaseOver && !s.free {
		s.keeps = append(s.keeps, func() { s.keep(t, &r, nil) })
		s.after = append(s.after, func() { s.h.answered(w, r) })
		return
	}
	s.keep(t, &r, nil)
	s.publish() // whoever asks for the status next sees what the answer says
	s.answerMember(w, r)
	s.settle()
}

// memberLimit is how long a session's first answer waits until it is a member.
const memberLimit = 2 * time.Second

// answerMember answers, once the session is a member of its team if it is to be
// one: whoever knows its name may have teammates write to it.
func (s *session) answerMember(w waiterID, r turnResult) {
	if !s.joining || w == 0 {
		s.h.answered(w, r)
		return
	}
	if len(s.unanswered) == 0 {
		time.AfterFunc(memberLimit, func() { s.box.post(func() { s.enrolled(context.DeadlineExceeded) }) })
	}
	s.unanswered = append(s.unanswered, func(note string) {
		if note != "" {
			r.Notes = append(r.Notes, note)
		}
		s.h.answered(w, r)
	})
}

// enrolled lets the answers go that waited for the session to become a member;
// err says why it is none.
func (s *session) enrolled(err error) {
	note, waited := "", s.unanswered
	switch {
	case errors.Is(err, errNoTeam) && s.h.cfg.teamFrom == "default": // nobody meant a team
	case errors.Is(err, context.DeadlineExceeded):
		note = fmt.Sprintf("%s is not listed in team %q yet, since others hold its files: until then Claude Code and atm can't write to it", s.place.identity(), s.h.cfg.team)
	case err != nil:
		note = fmt.Sprintf("%s is not listed in team %q, so Claude Code and atm can't write to it: %v", s.place.identity(), s.h.cfg.team, err)
	}
	if note != "" && s.joining && len(waited) == 0 {
		s.notes = append(s.notes, note)
	}
	s.joining, s.unanswered = false, nil
	for _, answer := range waited {
		answer(note)
	}
}

// finish ends a turn: what a kill -9 must not lose goes to disk in one line, then
// comes the answer.
func (s *session) finish(t *turn, how finishKind) {
	if t.req.mail != nil {
		s.mailEnded(t, how)
	}
	if how == finishOver && s.m.ending == endPark && t.req.source != sourceMail { // parked while this was on its way here
		t.req.mail = nil
		s.h.resubmit(t.req, t.waiter)
		return
	}
	if t.run == nil {
		if how != finishDropped {
			s.answer(t, s.result(t, how))
		}
		if how == finishDropped {
			s.lonely()
		}
		return
	}
	s.clock.stop()
	s.denyOwn(decider{byNobody, "before the turn was over"})
	if t.req.source == sourceSummary {
		s.summed(t, how)
		s.toldStopped(t)
		return
	}
	s.stopped = s.stopped || s.m.ending != endNone && !t.done()
	p := s.place
	p.noteEnd(t, how, time.Now())
	if s.m.ending != endNone { // its summary may still be asked for; a kill meanwhile must find this
		p.noteOver(s.m.ending, s.stopped, time.Now())
	}
	s.log.Debug("turn ended", "turn", t.id, "thread", s.thread, "correlation", t.req.correlation, "status", t.status(how),
		"latency_ms", time.Since(t.run.started).Milliseconds())
	if how == finishRefused && s.unnamed {
		s.takePast("Codex made no thread for the turn before")
	}
	if t.run.err != nil {
		s.lastErr = clip(t.run.err.Message, 300)
	}
	r := s.result(t, how)
	if s.m.phase == phaseOver && !s.free || !s.keep(t, &r, &p.rec) { // its result is kept later, or was when its caller was answered
		s.h.book.noteTurn(&p.rec)
	}
	s.answer(t, r)
	s.toldStopped(t)
	s.h.mail.look(p.rec.Identity) // FR-8.1, also where nothing is noticed
}

// toldStopped answers who waits until a turn has stopped: whichever way it went,
// each of them once.
func (s *session) toldStopped(t *turn) {
	for _, stopped := range t.stoppers {
		stopped()
	}
	t.stoppers = nil
}

// result builds what a turn's waiter gets.
func (s *session) result(t *turn, how finishKind) turnResult {
	r := turnResult{AgentID: s.agentID, ThreadID: s.threadID(), TurnID: t.name(), Identity: s.place.identity(), Team: s.h.cfg.team,
		Status: s.statusNow()}
	if s.place != nil {
		r.Sandbox, r.Approval = s.place.sandbox(), s.place.approval()
	}
	if r.err = s.failure(t, how); r.err != nil {
		return r
	}
	if t.waiter != 0 || t.accepted { // else nobody would read them
		r.Notes = s.takeNotes()
		if lost := s.h.book.unsaved(); lost != "" {
			r.Notes = append(r.Notes, lost)
		}
	}
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
		err := childError("start the turn", t.run.err)
		err.Message += fmt.Sprintf("; agent %s (identity %q) stays idle: codex-reply with its agent_id tries again", s.agentID, s.place.identity())
		return err
	case finishFull:
		return proxyError(codeMaxSessions, fmt.Sprintf("%d turns already wait for %s; wait for one to end, or start another agent", maxQueue, s.agentID), id...)
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
		if t.stop == stopTimeout || t.stop == stopUnknown {
			return timeoutError(s.agentID, t)
		}
		if s.m.ending == endClose || s.m.ending == endShutdown {
			return nil
		}
		return closedError(s.agentID, fmt.Sprintf("session %s is broken: Codex did not confirm within %s that its turn stopped", s.agentID, confirmLimit), "recover")
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
		return statusClosed
	case s.m.cur != nil || len(s.m.queue) > 0 || s.m.phase == phaseOpening && s.opening:
		return statusBusy
	}
	return statusIdle
}

// publish renews what others may read of this session.
func (s *session) publish() {
	v := sessionView{AgentID: s.agentID, Backend: "codex", BackendID: s.threadID(), Team: s.h.cfg.team, Status: s.statusNow(),
		Queued: len(s.m.queue), Dropped: s.dropped + s.box.lost(), Tokens: s.tokens, LastError: s.lastErr, Mine: true,
		Interrupted: s.stopped, LastActive: s.shown.Load().LastActive, StartedAt: s.shown.Load().StartedAt}
	if p := s.place; p != nil {
		r := &p.rec
		v.Identity, v.AgentName, v.AgentSource, v.Tag, v.Role = r.Identity, r.AgentName, r.AgentSource, r.Tag, r.Role
		v.Cwd, v.Turns, v.LastActive, v.StartedAt, v.implied = r.CWD, r.Turns, r.LastActive, r.StartedAt, r.Implied
		v.Resumable = s.h.cfg.persistThreads
		v.PendingMail, v.AutoMail, v.barred = s.mail.pending(), s.autoMailWord(), s.mail.refused != ""
	} else {
		v.Activity, v.opening = cmp.Or(s.startup, "opening"), true
	}
	if t := s.m.cur; t != nil && t.run != nil {
		v.Activity, v.Source = t.run.activity(), t.req.source.String()
		if t.req.source == sourceSummary {
			v.Activity = "writing its summary"
		}
	}
	for _, id := range s.asks.ids() {
		p := s.asks.pending[id]
		v.Pending = append(v.Pending, askView{ApprovalID: id, Kind: p.kind, Action: p.action, Cwd: p.cwd, Reason: p.reason, q: p.approval})
		v.Activity = "waiting for approval of " + clip(p.action, 120)
	}
	old := s.shown.Load()
	if v.mailSeq = old.mailSeq; v.PendingMail != nil && *v.PendingMail > 0 && (old.PendingMail == nil || *v.PendingMail > *old.PendingMail) {
		s.h.kept.stamp(func(seq int64) { v.mailSeq = seq; s.shown.Store(&v) })
	} else {
		s.shown.Store(&v)
	}
	if old.Status != v.Status || old.Queued != v.Queued || len(old.Pending) != len(v.Pending) || !samePending(old.PendingMail, v.PendingMail) {
		s.h.kept.poke()
	}
	if s.unseen {
		s.unseen = false
		s.h.kept.seen(s.agentID)
	}
}
