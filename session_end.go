package main

// session_end.go owns how a session ends: by agent_close, parking, shutdown, the child's death, or because it never
// came to be; and the summary it is asked for before it does. It runs on the session's own goroutine. Whoever waits for
// the end is told when record, thread and identity are free, never before, except by shutdown, which has no time for
// that.

import (
	"cmp"
	"strings"
	"time"
)

// sessionClosing is the end of one session. Its fields are the loop's.
type sessionClosing struct {
	s        *session
	askedBy  string              // the correlation of agent_close, "" where nothing else ends the session
	cut      bool                // a turn was cut short by the end
	freed    bool                // identity and thread lock are released
	waiting  []func(closeResult) // who waits for the end
	held     []heldAnswer        // what waits until identity and thread are free
	answered func()              // shutdown's, nil for none: called once nobody waits for a turn's answer any more
}

// heldAnswer is a turn that is answered, or submitted again, once its session's identity and thread are free.
type heldAnswer struct {
	t      *turn
	w      waiterID
	result turnResult
	again  bool // the turn opens the agent again: there is no result
}

// pending reports a session that is over and whose identity and thread are not free yet.
func (e *sessionClosing) pending() bool { return e.s.m.phase == phaseOver && !e.freed }

func (e *sessionClosing) hold(a heldAnswer) { e.held = append(e.held, a) }

// begin ends the session within closingLimit, after its last turn if it is to have one. One deadline holds for the
// interrupt's confirmation and that turn.
func (e *sessionClosing) begin(why ending) {
	s := e.s
	s.carry(s.m.endWith(why, e.lastTurn(why)))
	if s.m.ending == endNone || s.m.phase == phaseOver {
		return
	}
	s.turns.clock.within(closingLimit, func() {
		if s.m.phase != phaseOver {
			s.log.Warn("session ended without waiting for Codex any longer", "why", s.m.ending.String(), "limit",
				closingLimit, "thread", s.thread)
		}
		s.carry(s.m.expire())
	})
}

// lastTurn is the turn that asks for a summary, nil where none is worth its time: an idle session closes at once
// (FR-17.3), and one that we stop is asked only if it completed a turn since its last summary.
func (e *sessionClosing) lastTurn(why ending) *turn {
	s, p := e.s, e.s.place
	switch {
	case s.thread == "" || s.unnamed || s.client.unsummed || s.h.cfg.noSummaries ||
		s.h.ledger.summaryPath(&p.rec) == "":
		return nil
	case s.turns.past != "": // Codex lost its history, and no turn has told the new thread of it
		return nil
	case p.be.info().kind == "mcp-server" && p.policy.Settings.Sandbox != "read-only":
		return nil // its codex-reply takes no settings, so nothing would keep that turn from writing
	case why == endClose && s.m.cur != nil, why == endShutdown && p.rec.SummaryDue:
		return &turn{req: turnRequest{source: sourceSummary, prompt: summaryPrompt, run: true, correlation: e.askedBy}}
	}
	return nil
}

// startSummary sends the summary turn. Its settings are as complete as every turn's, so nothing of them sticks to the
// next one.
func (e *sessionClosing) startSummary(t *turn) {
	s, p := e.s, e.s.place
	t.run = newTurnRun(s.thread, time.Now())
	settings := p.turnSettings().leavePlan()
	settings.Sandbox, settings.WritableRoots, settings.Network = "read-only", nil, false
	s.op = s.nextOp()
	p.be.do(s.op, s.thread, command{kind: cmdTurn, prompt: t.req.prompt, settings: settings})
	s.turns.checkTime(t)
	s.h.ledger.auditTurn(s, "turn", t, "")
	s.log.Info("summary asked for", "why", s.m.ending.String(), "thread", s.thread)
}

// takeSummary keeps what the summary turn brought. Text of a turn that was cut short is no summary: the digest is
// better than half of one.
func (e *sessionClosing) takeSummary(t *turn, how finishKind) {
	s, p, text := e.s, e.s.place, strings.TrimSpace(t.run.text())
	if how != finishEnded || !t.done() || text == "" {
		e.cut = true // FR-17.4, FR-7.2
		s.log.Warn("session ends without a summary", "status", t.status(how), "thread", s.thread)
		return
	}
	path := s.h.ledger.summaryPath(&p.rec)
	if err := writeWhole(path, []byte(clipUTF8(text, maxSummaryBytes-1)+"\n")); err != nil {
		s.log.Warn("the summary could not be written", "path", path, "err", err)
		return
	}
	p.rec.SummaryDue = false
}

// shutdown ends the session as the proxy stops. answered is called as soon as nobody waits for an answer of its turns
// and its record says how it stands: a kill can come any time after that. Its summary has what is left of grace.
func (e *sessionClosing) shutdown(grace time.Duration, answered func()) {
	s := e.s
	s.member.settled(nil)
	s.asks.denyAll(decider{byNobody, "before this server ended (" + s.h.endsBy + ")"})
	running := s.m.cur != nil
	limit := min(grace, shutdownLimit)
	var last *turn
	if grace > 0 {
		last = e.lastTurn(endShutdown)
	}
	s.carry(s.m.endWith(endShutdown, last))
	if s.m.phase == phaseOver {
		answered()
		return
	}
	e.answered = answered
	for _, told := range e.waiting { // they wait for what we have no time for
		told(closeResult{AgentID: s.agentID, Identity: s.place.rec.Identity, Status: statusClosed, Interrupted: true})
	}
	e.waiting = nil
	s.place.noteOver(s.m.ending, e.cut || running, time.Now()) // true of what runs, until it completes all the same
	s.h.ledger.save(&s.place.rec)
	s.h.ledger.leave(s.agentID)
	if t := s.m.cur; t != nil && t.asker() != 0 {
		s.turns.answerWithin(t, shutdownAnswer)
	}
	s.turns.clock.within(limit, func() { e.giveUp(grace - limit) })
	e.tellAnswered()
}

// giveUp: what was interrupted for shutdown has not ended. A summary that runs has the rest of the grace.
func (e *sessionClosing) giveUp(rest time.Duration) {
	s := e.s
	if t := s.m.cur; rest > 0 && t != nil && t.req.source == sourceSummary {
		s.turns.clock.over()
		s.turns.clock.within(rest, func() { s.carry(s.m.expire()) })
		return
	}
	s.carry(s.m.expire())
}

// tellAnswered tells shutdown once nobody waits for a turn any more.
func (e *sessionClosing) tellAnswered() {
	if cur := e.s.m.cur; e.answered != nil && (cur == nil || cur.asker() == 0) {
		e.answered()
		e.answered = nil
	}
}

// finish is the end: record, thread and identity, then whoever waits for that. After it the loop leaves.
func (e *sessionClosing) finish(why ending) {
	s, p := e.s, e.s.place
	s.member.settled(nil)
	s.asks.denyAll(decider{byNobody, "before the session ended"})
	s.asks.awaitDecisions()
	s.tools.refuseAll("the session ended")
	s.steers.end(true)
	s.turns.clock.over()
	s.mail.leave()
	if s.hasPlace() {
		e.free(why)
	}
	s.h.team.ended(s.agentID)
	e.freed = true
	for i := range e.held {
		if a := &e.held[i]; !a.again {
			s.turns.keep(a.t, &a.result, nil)
		}
	}
	s.publish()
	if why == endFailed {
		s.h.kept.unasked(s.agentID)
	}
	s.h.forget(s)
	s.client.ended()
	s.log.Info("session ended", "why", why.String(), "identity", p.rec.Identity, "thread", s.thread)
	s.h.ledger.auditClose(s.agentID, p.rec.Identity, s.thread, why.String(), e.askedBy)
	done := closeResult{AgentID: s.agentID, Identity: p.rec.Identity, Status: cmp.Or(why.status(), statusClosed),
		Interrupted: e.cut, Worktree: endOf(&p.rec)}
	for _, a := range e.held {
		if a.again {
			s.h.resubmit(a.t.req, a.w)
		} else {
			s.h.answer(a.w, a.result)
		}
	}
	for _, told := range e.waiting {
		told(done)
	}
	e.held, e.waiting = nil, nil
	e.tellAnswered()
}

// free lets go of the thread, writes the record, and releases identity and thread.
func (e *sessionClosing) free(why ending) {
	s, p := e.s, e.s.place
	if s.thread != "" && (why == endClose || why == endBroken) {
		p.be.do(0, s.thread, command{kind: cmdClean}) // shells that outlived their turns
	}
	if s.thread != "" && why != endGone && !(why == endPark && p.spec.Ephemeral) {
		p.be.do(0, s.thread, command{kind: cmdUnload})
	}
	// it has a record, though Codex hasn't opened it yet
	known := s.thread != "" || why == endClose && p.revived && !p.adopted
	if known && (why != endFailed || p.rec.Turns > 0) {
		p.noteOver(why, e.cut || why == endBroken, time.Now())
		s.h.ledger.save(&p.rec) // before somebody else may have the lease
	} else if s.thread == "" && p.undoEarly() { // its thread never came
		s.h.ledger.save(&p.rec)
	}
	p.release()
	if rec := p.rec; p.made && why == endFailed {
		s.h.work.start(func() { s.h.trees.unmake(rec) })
	}
}
