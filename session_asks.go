package main

// session_asks.go owns the approvals of one session: who is asked, what is
// declined at once, and the one decision (FR-18). It runs on the session's own
// goroutine, which never waits for the audit log: a decision is audited, then
// sent to the child, beside it.

import (
	"fmt"
	"strings"
)

// asked handles an approval: to the front, or declined at once.
func (s *session) asked(q *approval) {
	if q == nil {
		return
	}
	if !s.h.cfg.allowRules {
		q.rule = nil // a rule that outlives the session is the user's to allow first
	}
	s.asks.add(*q, s.h.cfg.approvalTimeout, func() {
		s.box.post(func() {
			late := decider{byNobody, "within " + s.h.cfg.approvalTimeout.String() + " (approval_timeout_secs)"}
			if s.decide(q.id, late, deny, nil) {
				s.log.Warn("approval timed out, declined", "approval", q.id, "kind", q.kind, "subagent", q.asker(), "thread", q.thread, "turn", q.turn, "item", q.item)
				s.h.front.askGone(*s.ref.Load(), q.id, late.words(deny))
			}
		})
	})
	s.asks.pending[q.id].correlation = s.acting.correlation
	var w waiterID // a subagent may ask after the turn that spawned it: then nobody's request is behind it
	var why decider
	switch {
	case q.kind == askUnknown:
		why = decider{byUs, "this kind of request is not known here"}
	case s.m.ending != endNone:
		why = decider{byPolicy, "a session that ends is given nothing more"} // its summary neither
	case s.m.cur == nil && q.thread == s.thread:
		why = decider{byUs, "it was asked while no turn was running"}
	case s.h.cfg.maxSandbox == "read-only" && (q.kind == askCommand || q.kind == askFileChange || q.kind == askPermissions):
		why = decider{byPolicy, "this server is read-only (--readonly or max_sandbox), whoever approves"} // an approved command leaves the sandbox
	case s.m.cur != nil:
		w = s.m.cur.waiter
	}
	if why != (decider{}) {
		s.decide(q.id, why, deny, nil)
		return
	}
	s.log.Debug("approval asked", "approval", q.id, "kind", q.kind, "subagent", q.asker(), "thread", q.thread, "turn", q.turn, "item", q.item)
	s.h.askOpen(q.id, s)
	s.publish() // whoever asks for the status next sees what the client is asked
	if cur := s.m.cur; cur != nil && cur.req.background || cur == nil && s.byCaller {
		return // agent_wait shows it, agent_approve decides it, or the timer does
	}
	if !s.h.front.ask(*s.ref.Load(), w, *q) {
		s.decide(q.id, decider{byNoWay, s.unasked()}, deny, nil)
	}
}

// unasked says why the front could put an approval to nobody.
func (s *session) unasked() string {
	switch cur := s.m.cur; {
	case cur != nil && cur.req.source == sourceMail:
		return "mail began this turn, so no call waits for it and nobody watches"
	case cur == nil || cur.waiter == 0:
		return "no call waits for this turn"
	}
	return "it declared no elicitation"
}

// decide answers an approval; false when it was decided before.
func (s *session) decide(id string, by decider, d decision, answers map[string][]string) bool {
	p := s.settleAsk(id, by, &d)
	if p == nil {
		return false
	}
	s.tellAudited(p, by, d, answers)
	return true
}

// tellAudited has the child hear a decision when its audit line is on disk.
// Neither the session nor what it sends meanwhile waits for that disk, so an
// interrupt may come before the no to what its turn asked.
func (s *session) tellAudited(p *pendingAsk, by decider, d decision, answers map[string][]string) {
	line, v := s.h.book.decisionLine(s, p, by, d), s.asks.settle(p, d)
	c := command{kind: cmdAnswer, ask: p.id, decision: d, answers: answers, why: "declined (" + by.words(d) + ")"}
	thread := s.thread
	var be backend
	if s.place != nil {
		be = s.place.be
	}
	s.h.goWork(func() {
		s.h.book.auditNow(line)
		if !v.sent.Swap(true) && be != nil {
			be.do(0, thread, c)
		}
		close(v.done)
		s.box.post(func() {
			s.asks.settled(v)
			s.alive()
		})
	})
}

// overrule declines what was approved and not sent yet.
func (s *session) overrule(why decider, own bool) {
	for _, v := range s.asks.settling {
		if v.says != deny && (!own || v.ask.thread == s.thread) && !v.sent.Swap(true) {
			s.noteDeclined(v.ask, why)
			s.tellAudited(v.ask, why, deny, nil)
		}
	}
}

// withdrawn: the child wants no answer any more.
func (s *session) withdrawn(id string) {
	if v := s.asks.settling[id]; v != nil {
		v.sent.Store(true)
		s.asks.settled(v)
	}
	if s.asks.take(id) != nil {
		s.h.askDone(id)
		s.h.front.askGone(*s.ref.Load(), id, "Codex withdrew it")
		s.alive()
	}
}

// awaitDecisions returns when the child has heard every decision (FR-18.5). It
// is for the session's end, which waits for its record's disk as well.
func (s *session) awaitDecisions() {
	for _, v := range s.asks.settling {
		<-v.done
	}
}

// settleAsk takes an approval for its one decision, which it makes one that the
// approval can have; nil when somebody else has decided it.
func (s *session) settleAsk(id string, by decider, d *decision) *pendingAsk {
	p := s.asks.take(id)
	if p == nil {
		return nil
	}
	s.h.askDone(id)
	*d = p.settle(*d, by)
	if *d == deny {
		s.noteDeclined(p, by)
	}
	s.alive()
	return p
}

// noteDeclined keeps for the turn's result what was not done.
func (s *session) noteDeclined(p *pendingAsk, by decider) {
	if s.m.cur != nil && s.m.cur.run != nil && len(s.m.cur.run.declined) < maxNotices {
		s.m.cur.run.declined = append(s.m.cur.run.declined, declined{Kind: p.kind, Action: clip(p.action, 500), Reason: by.words(deny)})
	}
}

// approve decides what a caller has read and repeats, and tells what its word
// came to: a yes for the session is a yes for once where Codex can't keep it.
func (s *session) approve(q approveQuery) (decision, *rpcError) {
	p := s.asks.pending[q.Ask]
	if p == nil {
		return deny, notPending(s.agentID, q.Ask)
	}
	id := []any{"agent_id", s.agentID, "approval_id", q.Ask}
	if strings.TrimSpace(p.action) != strings.TrimSpace(q.Action) {
		return deny, proxyError(codeInvalidSession, fmt.Sprintf("action %q isn't what approval %s is about; nothing was decided. Its action is %q: repeat that exactly", clip(q.Action, 200), q.Ask, p.action), id...)
	}
	if p.kind == askQuestion && q.Decision != deny {
		for _, each := range p.questions {
			if len(q.Answers[each.id]) == 0 && !each.optional {
				return deny, proxyError(codeInvalidSession, fmt.Sprintf("question %q (%s) has no answer; nothing was decided. Give answers as an object of question id and text, or deny", each.id, clip(each.text, 200)), id...)
			}
		}
	}
	as := p.settle(q.Decision, q.By)
	s.decide(q.Ask, q.By, q.Decision, q.Answers)
	s.h.front.askGone(*s.ref.Load(), q.Ask, q.By.words(as))
	s.publish()
	return as, nil
}

// denyAll declines whatever is pending.
func (s *session) denyAll(why decider) { s.denyEach(why, false) }

// denyOwn declines what the ended turn itself still asks; a subagent's
// approval outlives it.
func (s *session) denyOwn(why decider) { s.denyEach(why, true) }

func (s *session) denyEach(why decider, own bool) {
	s.overrule(why, own)
	for _, id := range s.asks.ids() {
		if (!own || s.asks.pending[id].thread == s.thread) && s.decide(id, why, deny, nil) {
			s.h.front.askGone(*s.ref.Load(), id, why.words(deny))
		}
	}
}
