package main

// session_end.go owns how a session ends: by agent_close, parking, shutdown, the
// child's death, or because it never came to be; and the summary it is asked for
// before it does. It runs on the session's own goroutine. Whoever waits for the
// end is told when record, thread and identity are free, never before, except by
// shutdown, which has no time for that.

import (
	"strings"
	"time"
)

// windUp ends the session within limit, after its last turn if it is to have
// one. One deadline holds for the interrupt's confirmation and that turn.
func (s *session) windUp(why ending, limit time.Duration) {
	s.carry(s.m.endWith(why, s.lastTurn(why)))
	if s.m.ending != endNone && s.m.phase != phaseOver {
		s.clock.within(limit, func() {
			s.box.post(func() {
				if s.m.phase != phaseOver {
					s.log.Warn("session ended without waiting for Codex any longer", "why", s.m.ending.String(), "limit", limit, "thread", s.thread)
				}
				s.carry(s.m.expire())
			})
		})
	}
}

// lastTurn is the turn that asks for a summary, nil where none is worth its
// time: an idle session closes at once (FR-17.3), and one that we stop is asked
// only if it completed a turn since its last summary.
func (s *session) lastTurn(why ending) *turn {
	p := s.place
	switch {
	case p == nil || s.thread == "" || s.unnamed || s.client.unsummed || s.h.cfg.noSummaries || s.h.book.summaryPath(&p.rec) == "":
		return nil
	case s.resume != "": // Codex lost its history, and no turn has told the new thread of it
		return nil
	case p.be.info().kind == "mcp-server" && p.policy.Settings.Sandbox != "read-only":
		return nil // its codex-reply takes no settings, so nothing would keep that turn from writing
	case why == endClose && s.m.cur != nil, why == endShutdown && p.rec.SummaryDue:
		return &turn{req: turnRequest{source: sourceSummary, prompt: summaryPrompt, run: true, correlation: s.closedBy}}
	}
	return nil
}

// startSummary sends the summary turn. Its settings are as complete as every
// turn's, so nothing of them sticks to the next one.
func (s *session) startSummary(t *turn) {
	p := s.place
	t.run = newTurnRun(s.thread, time.Now())
	settings := p.policy.Settings
	settings.Sandbox, settings.WritableRoots, settings.Network = "read-only", nil, false
	s.op = s.nextOp()
	p.be.do(s.op, s.thread, command{kind: cmdTurn, prompt: t.req.prompt, settings: settings})
	s.checkTime(t)
	s.h.book.auditTurn(s, t)
	s.log.Info("summary asked for", "why", s.m.ending.String(), "thread", s.thread)
}

// summed keeps what the summary turn brought. Text of a turn that was cut short
// is no summary: the digest is better than half of one.
func (s *session) summed(t *turn, how finishKind) {
	p, text := s.place, strings.TrimSpace(t.run.text())
	if how != finishEnded || !t.done() || text == "" {
		s.stopped = true // FR-17.4, FR-7.2
		s.log.Warn("session ends without a summary", "status", t.status(how), "thread", s.thread)
		return
	}
	path := s.h.book.summaryPath(&p.rec)
	if err := writeWhole(path, []byte(clipUTF8(text, maxSummaryBytes-1)+"\n")); err != nil {
		s.log.Warn("the summary could not be written", "path", path, "err", err)
		return
	}
	p.rec.SummaryDue = false
}

// shutdown ends the session as the proxy stops. told is called as soon as nobody
// waits for an answer of its turns and its record says how it stands: a kill can
// come any time after that. Its summary has what is left of grace.
func (s *session) shutdown(grace time.Duration, told func()) bool {
	return s.box.post(func() {
		s.enrolled(nil)
		s.denyAll(decider{byNobody, "before atm-agent-mcp ended (" + s.h.endsBy + ")"})
		cut := s.m.cur
		limit := min(grace, shutdownLimit)
		var last *turn
		if grace > 0 {
			last = s.lastTurn(endShutdown)
		}
		s.carry(s.m.endWith(endShutdown, last))
		if s.m.phase == phaseOver {
			told()
			return
		}
		s.settled = told
		for _, f := range s.closers { // they wait for what we have no time for
			f(closeResult{AgentID: s.agentID, Identity: s.place.identity(), Status: statusClosed, Interrupted: true}, nil)
		}
		s.closers = nil
		s.stopped = s.stopped || cut != nil
		s.place.noteOver(s.m.ending, s.stopped, time.Now())
		s.h.book.save(&s.place.rec)
		s.h.book.leave(s.agentID)
		if t := s.m.cur; t != nil && t.waiter != 0 {
			s.within(t, shutdownAnswer)
		}
		s.clock.within(limit, func() { s.box.post(func() { s.late(grace - limit) }) })
		s.settle()
	})
}

// late: what was interrupted for shutdown has not ended. A summary that runs has
// the rest of the grace.
func (s *session) late(rest time.Duration) {
	if t := s.m.cur; rest > 0 && t != nil && t.req.source == sourceSummary {
		s.clock.over()
		s.clock.within(rest, func() { s.box.post(func() { s.carry(s.m.expire()) }) })
		return
	}
	s.carry(s.m.expire())
}

// settle tells shutdown once nobody waits for a turn any more.
func (s *session) settle() {
	if s.settled != nil && (s.m.cur == nil || s.m.cur.waiter == 0) {
		s.settled()
		s.settled = nil
	}
}

// lonely ends a session that has no place yet and that nobody wants any more.
func (s *session) lonely() {
	if s.place == nil && len(s.m.queue) == 0 {
		s.carry(s.m.end(endFailed))
	}
}

// childGone ends the session with its child, or waits for the next one.
func (s *session) childGone(err *backendError) {
	for _, id := range s.asks.ids() {
		s.asks.take(id)
		s.h.askDone(id)
		s.h.front.askGone(*s.ref.Load(), id, "Codex is gone")
	}
	s.calls.waiting = nil // nobody is left to be answered
	s.openErr = childError("run the turn", err)
	if err != nil && err.Death != nil {
		s.openErr = deathError(err.Death, s.h.cfg.restartChild)
	}
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
	s.enrolled(nil)
	s.denyAll(decider{byNobody, "before the session ended"})
	s.awaitDecisions()
	s.dropCalls("the session ended")
	s.clock.over()
	s.closeMail()
	p := s.place
	if p != nil {
		if s.thread != "" && (why == endClose || why == endBroken) {
			p.be.do(0, s.thread, command{kind: cmdClean}) // shells that outlived their turns
		}
		if s.thread != "" && why != endGone && !(why == endPark && p.spec.Ephemeral) {
			p.be.do(0, s.thread, command{kind: cmdUnload})
		}
		known := s.thread != "" || why == endClose && p.revived && !p.adopted // it has a record, though Codex hasn't opened it yet
		if known && (why != endFailed || p.rec.Turns > 0) {
			p.noteOver(why, s.stopped || why == endBroken, time.Now())
			s.h.book.save(&p.rec) // before somebody else may have the lease
		} else {
			s.unsaveEarly()
		}
		p.release()
	}
	s.h.post.ended(s.agentID)
	s.free = true
	s.clientLeft()
	for _, f := range s.keeps {
		f()
	}
	s.publish()
	if why == endFailed {
		s.h.kept.unasked(s.agentID)
	}
	s.h.forget(s)
	s.log.Info("session ended", "why", why.String(), "identity", p.identity(), "thread", s.thread)
	s.h.book.auditEnd(s, why)
	done := closeResult{AgentID: s.agentID, Identity: p.identity(), Status: why.status(), Interrupted: s.stopped}
	if done.Status == "" {
		done.Status = statusClosed
	}
	for _, f := range s.after {
		f()
	}
	for _, f := range s.closers {
		f(done, nil)
	}
	s.keeps, s.after, s.closers = nil, nil, nil
	s.settle()
}
