package main

// sessionasks.go owns the approvals of one session: who is asked, what is
// declined at once, and the one decision (FR-18). It runs on the session's own
// goroutine. A decision is audited before it is sent to the child.

import (
	"fmt"
	"strings"
)

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
	if cur := s.m.cur; cur != nil && cur.req.background || cur == nil && s.byCaller {
		return // agent_wait shows it, agent_approve decides it, or the timer does
	}
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

// approve decides what a caller has read and repeats.
func (s *session) approve(q approveQuery) *rpcError {
	p := s.asks.pending[q.Ask]
	if p == nil {
		return notPending(s.agentID, q.Ask)
	}
	id := []any{"agent_id", s.agentID, "approval_id", q.Ask}
	if strings.TrimSpace(p.action) != strings.TrimSpace(q.Action) {
		return proxyError(codeInvalidSession, fmt.Sprintf("action %q isn't what approval %s is about; nothing was decided. Its action is %q: repeat that exactly", clip(q.Action, 200), q.Ask, p.action), id...)
	}
	if p.kind == askQuestion && q.Decision != deny {
		for _, each := range p.questions {
			if len(q.Answers[each.id]) == 0 {
				return proxyError(codeInvalidSession, fmt.Sprintf("question %q (%s) has no answer; nothing was decided. Give answers as an object of question id and text, or deny", each.id, clip(each.text, 200)), id...)
			}
		}
	}
	by := q.By
	if q.Reason != "" {
		by += ": " + clip(q.Reason, 300)
	}
	s.decide(q.Ask, by, q.Decision, q.Answers)
	s.h.front.askGone(*s.ref.Load(), q.Ask, "decided by "+q.By)
	s.publish()
	return nil
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
