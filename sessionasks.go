package main

// sessionasks.go owns the approvals of one session: who is asked, what is
// declined at once, and the one decision (FR-18). It runs on the session's own
// goroutine. A decision is audited before it is sent to the child.

// asked handles an approval: to the front, or declined at once.
func (s *session) asked(q *approval) {
	if q == nil {
		return
	}
	s.asks.add(*q, s.h.cfg.approvalTimeout, func() {
		s.box.post(func() {
			if s.decide(q.id, "nobody answered within "+s.h.cfg.approvalTimeout.String(), deny, nil) {
				s.log.Warn("approval timed out, declined", "approval", q.id, "kind", q.kind, "thread", q.thread, "turn", q.turn, "item", q.item)
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
	case s.h.cfg.maxSandbox == "read-only" && (q.kind == askCommand || q.kind == askFileChange || q.kind == askPermissions):
		why = "this server is read-only (--readonly or max_sandbox), whoever approves" // an approved command leaves the sandbox
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
		s.place.be.do(0, s.thread, command{kind: cmdAnswer, ask: id, decision: d, answers: answers, why: "declined (" + by + ")"})
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
