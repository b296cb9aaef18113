package main

// sessionend.go owns how a session ends: by agent_close, parking, shutdown, the
// child's death, or because it never came to be. It runs on the session's own
// goroutine. Whoever waits for the end is told when record, thread and identity
// are free, never before.

import "time"

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
		} else {
			s.unsaveEarly()
		}
		p.release()
	}
	s.free = true
	s.publish()
	s.h.forget(s)
	s.log.Info("session ended", "why", why.String(), "identity", p.identity(), "thread", s.thread)
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
