package main

// session_asks.go owns the approvals of one session: who is asked, what is declined at once, and the one decision
// (FR-18). It runs on the session's own goroutine, which never waits for the audit log: a decision is audited, then
// sent to the child, beside the loop. Every approval gets exactly one answer.

import (
	"fmt"
	"strings"
)

// sessionAsks are the approvals of one session.
type sessionAsks struct {
	approvalTable
	s        *session
	byCaller bool // the newest turn is a background one: its caller decides approvals, not the client
}

// put handles an approval: to the front, or declined at once.
func (a *sessionAsks) put(q *approval) {
	if q == nil {
		return
	}
	if !a.mayKeepRule() {
		q.rule = nil
	}
	a.add(*q, a.s.h.cfg.approvalTimeout, func() {
		a.s.box.do(func() {
			late := decider{byNobody, "within " + a.s.h.cfg.approvalTimeout.String() + " (approval_timeout_secs)"}
			if a.decideHere(q.id, late, deny, nil) {
				a.s.log.Warn("approval timed out, declined", "approval", q.id, "kind", q.kind, "subagent", q.asker(),
					"thread", q.thread, "turn", q.turn, "item", q.item)
			}
		})
	})
	a.pending[q.id].correlation = a.s.tools.acting.correlation
	var w waiterID // a subagent may ask after the turn that spawned it: then nobody's request is behind it
	var why decider
	switch {
	case q.kind == askUnknown:
		why = decider{byUs, "this kind of request is not known here"}
	case a.s.m.ending != endNone:
		why = decider{byPolicy, "a session that ends is given nothing more"} // its summary neither
	case a.s.m.cur == nil && q.thread == a.s.thread:
		why = decider{byUs, "it was asked while no turn was running"}
	case a.s.m.cur != nil && a.s.m.cur.req.review != nil:
		why = decider{byPolicy, "a review is read-only and asks for nothing"}
	case a.s.h.cfg.maxSandbox == "read-only" && (q.kind == askCommand || q.kind == askFileChange ||
		q.kind == askPermissions):
		// an approved command leaves the sandbox
		top := a.s.h.cfg.top
		why = decider{byPolicy, fmt.Sprintf("%s allows %s, whoever approves", top.name, top.word)}
	case a.s.m.cur != nil:
		w = a.s.m.cur.asker()
	}
	if why != (decider{}) {
		a.decide(q.id, why, deny, nil)
		return
	}
	a.s.log.Debug("approval asked", "approval", q.id, "kind", q.kind, "subagent", q.asker(), "thread", q.thread, "turn",
		q.turn, "item", q.item)
	if cur := a.s.m.cur; cur != nil && cur.req.background || cur == nil && a.byCaller {
		a.pending[q.id].offered, a.pending[q.id].byCaller = true, true
		a.s.publish()
		return // agent_wait shows it, agent_approve decides it, or the timer does
	}
	a.s.publish() // whoever asks for the status next sees what the client is asked
	if !a.s.h.front.ask(a.s.ref, w, *q) {
		a.decide(q.id, decider{byNoWay, a.noAsker()}, deny, nil)
		return
	}
	if p := a.pending[q.id]; p != nil {
		p.offered = true // now it is news for agent_wait
		a.s.publish()
	}
}

// mayKeepRule reports whether the rule that Codex proposes, which outlives the session, may be offered: where the user
// has turned allow_rules on. Where the user said nothing, it may be to the person whose client has this session for its
// own and began the turn: it is that person's machine. But for other sessions a rule would pass a ceiling.
func (a *sessionAsks) mayKeepRule() bool {
	cfg, cur := a.s.h.cfg, a.s.m.cur
	if _, said := cfg.origin["allow_rules"]; said {
		return cfg.allowRules
	}
	return a.s.client.shape.named && cur != nil && cur.req.source == sourceClient && !cfg.top.binds()
}

// noAsker says why the front could put an approval to nobody.
func (a *sessionAsks) noAsker() string {
	switch cur := a.s.m.cur; {
	case cur != nil && cur.req.source == sourceMail:
		return "mail began this turn, so no call waits for it and nobody watches"
	case cur == nil || cur.asker() == 0:
		return "no call waits for this turn"
	}
	return "it declared no elicitation"
}

// decide answers an approval, as the approval can be answered; false when it was decided before.
func (a *sessionAsks) decide(id string, by decider, d decision, answers map[string][]string) bool {
	p := a.take(id)
	if p == nil {
		return false
	}
	if d = p.limit(d, by); d == deny {
		a.noteDeclined(p, by)
	}
	a.s.turns.alive()
	a.tellAudited(p, by, d, answers)
	return true
}

// decideHere decides what the front's client need not decide any more.
func (a *sessionAsks) decideHere(id string, by decider, d decision, answers map[string][]string) bool {
	decided := a.decide(id, by, d, answers)
	if decided {
		a.s.h.front.askGone(a.s.ref, id, by.words(d))
	}
	return decided
}

// tellAudited has the child hear a decision when its audit line is on disk. Neither the session nor what it sends
// meanwhile waits for that disk, so an interrupt may come before the no to what its turn asked.
func (a *sessionAsks) tellAudited(p *pendingAsk, by decider, d decision, answers map[string][]string) {
	line, v := a.s.h.ledger.decisionLine(a.s, p, by, d), a.addVerdict(p, d)
	c := command{kind: cmdAnswer, ask: p.id, decision: d, answers: answers, why: "declined (" + by.words(d) + ")"}
	thread, be := a.s.thread, a.s.place.be
	a.s.h.work.start(func() {
		a.s.h.ledger.auditNow(line)
		if !v.sent.Swap(true) && be != nil {
			be.do(0, thread, c)
		}
		close(v.done)
		a.s.box.do(func() {
			a.dropVerdict(v)
			a.s.turns.alive()
		})
	})
}

// overrule declines what was approved and not sent yet.
func (a *sessionAsks) overrule(why decider, own bool) {
	for _, v := range a.verdicts {
		if v.says != deny && (!own || v.ask.thread == a.s.thread) && !v.sent.Swap(true) {
			a.noteDeclined(v.ask, why)
			a.tellAudited(v.ask, why, deny, nil)
		}
	}
}

// withdrawn: the child wants no answer any more.
func (a *sessionAsks) withdraw(id string) {
	if v := a.verdicts[id]; v != nil {
		v.sent.Store(true)
		a.dropVerdict(v)
	}
	if a.take(id) != nil {
		a.s.h.front.askGone(a.s.ref, id, "Codex withdrew it")
		a.s.turns.alive()
	}
}

// awaitDecisions returns when the child has heard every decision (FR-18.5). It
// is for the session's end, which waits for its record's disk as well.
func (a *sessionAsks) awaitDecisions() {
	for _, v := range a.verdicts {
		<-v.done
	}
}

// noteDeclined keeps for the turn's result what was not done.
func (a *sessionAsks) noteDeclined(p *pendingAsk, by decider) {
	if a.s.m.cur != nil && a.s.m.cur.run != nil && len(a.s.m.cur.run.declined) < maxNotices {
		a.s.m.cur.run.declined = append(a.s.m.cur.run.declined,
			declined{Kind: p.kind, Action: clip(p.action, 500), Reason: by.words(deny)})
	}
}

// approve decides what a caller has read and repeats, and tells what its word
// came to: a yes for the session is a yes for once where Codex can't keep it.
func (a *sessionAsks) approve(q approveQuery) (decision, *rpcError) {
	p := a.pending[q.Ask]
	if p == nil {
		return deny, notPending(a.s.agentID, q.Ask)
	}
	id := []any{"agent_id", a.s.agentID, "approval_id", q.Ask}
	if strings.TrimSpace(p.action) != strings.TrimSpace(q.Action) {
		return deny, proxyError(codeInvalidSession, fmt.Sprintf("action %q isn't what approval %s is about; nothing "+
			"was decided. Its action is %q: repeat that exactly", clip(q.Action, 200), q.Ask, p.action), id...)
	}
	if p.kind == askQuestion && q.Decision != deny {
		for _, each := range p.questions {
			if len(q.Answers[each.id]) == 0 && !each.optional {
				return deny, proxyError(codeInvalidSession, fmt.Sprintf("question %q (%s) has no answer; nothing was "+
					"decided. Give answers as an object of question id and text, or deny", each.id,
					clip(each.text, 200)), id...)
			}
		}
	}
	as := p.limit(q.Decision, q.By)
	a.decideHere(q.Ask, q.By, as, q.Answers)
	a.s.publish()
	return as, nil
}

// denyAll declines whatever is pending.
func (a *sessionAsks) denyAll(why decider) { a.deny(why, false) }

// denyOwn declines what the ended turn itself still asks; a subagent's approval outlives it.
func (a *sessionAsks) denyOwn(why decider) { a.deny(why, true) }

func (a *sessionAsks) deny(why decider, own bool) {
	a.overrule(why, own)
	for _, id := range a.ids() {
		if !own || a.pending[id].thread == a.s.thread {
			a.decideHere(id, why, deny, nil)
		}
	}
}
