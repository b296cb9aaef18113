package main

// acp_plan.go owns what comes of a plan in an ACP session: whether the user wants it carried out and in which mode, the
// command /plan, and the questions of an agent that plans where the client has no forms. acp_prompt.go calls it when
// the turn of a prompt has ended with a plan. Nothing but an option that was offered may carry a plan out: an error,
// nonsense, silence, a cancel or a client that is gone leave the session in plan mode.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// carryOutPrompt has Codex carry out the plan before it, in the words of its own terminal.
const carryOutPrompt = "Implement the plan."

// planFirst is /plan: the mode changes when the prompt's place in the queue has come, and what stands behind the
// command is the prompt.
func (p *acpPrompt) planFirst(what string) {
	p.title = promptTitle(what)
	p.local = func(context.Context) string {
		if e := p.s.options.choose(modePlan); e != nil {
			return "The session is not in plan mode: " + e.Message + "."
		}
		if what == "" && len(p.parts) == 0 {
			return "The session is in plan mode: say what to plan."
		}
		p.text = cmp.Or(what, "Plan this.")
		p.parts = withText(p.text, p.parts)
		return ""
	}
}

// asksAboutPlan has the user asked about the plan that the turn of a prompt has ended with, and the prompt answered
// after that, with result where the plan is not carried out. false: there is nothing to ask.
func (p *acpPrompt) asksAboutPlan(result *acpStopped) bool {
	s := p.s
	set := s.options.settings()
	if result == nil || result.Reason != "end_turn" || set == nil || !set.Plan || !s.f.isOpen(p.c) {
		return false
	}
	options := planOptions(set)
	s.mu.Lock()
	plan := p.plan
	// One that went to the hub before plan mode was chosen runs already.
	another := slices.ContainsFunc(s.queue.prompts, func(o *acpPrompt) bool {
		return o != p && !o.steered && promptGoing <= o.stage && o.stage <= promptRunning
	})
	open := !p.steered && !p.inWords && !p.cancelled && !s.closing && !s.leaving
	asks := open && plan != "" && len(options) > 1 && !another
	var shared []*acpPrompt // those that went into the turn
	if asks {
		p.stage = promptAsking
		for _, o := range s.queue.prompts {
			if o.steered {
				shared = append(shared, o)
			}
		}
	}
	s.mu.Unlock()
	for _, o := range shared { // none is to be answered while the question is open
		o.finish(turnResult{TurnStatus: "completed"})
	}
	return asks && s.f.jobs.spawn(func() { p.askAboutPlan(plan, options, result) })
}

// planOptions are what the user can say about a plan: each mode that can write, and to go on planning. A mode that asks
// no further is one that allows more than once.
func planOptions(set *sessionSettings) []acpPermission {
	var options []acpPermission
	modes, _ := offeredModes(set)
	for _, m := range modes {
		if m.sandbox == sandboxRead {
			continue
		}
		kind := "allow_once"
		if m.approval == "never" {
			kind = "allow_always"
		}
		options = append(options, acpPermission{m.id, "Yes, in mode " + m.name, kind,
			acpVerdict{d: approve, mode: m.id, words: "Carried out in mode " + m.name + "."}})
	}
	return append(options, acpPermission{"reject_once", "No, go on planning", "reject_once",
		acpVerdict{words: "Not carried out: the user goes on planning."}})
}

// askAboutPlan asks, changes the mode after a yes, and has the prompt go to the hub again to carry the plan out; else
// it answers the prompt.
func (p *acpPrompt) askAboutPlan(plan string, options []acpPermission, result *acpStopped) {
	s, f, about := p.s, p.s.f, planTitle(plan)
	id, call := s.enc.askOwn("Carry out this plan?", "switch_mode", about)
	v := s.awaitVerdict(p.ctx, id, call, options)
	chosen := v.mode
	if chosen != "" {
		if e := s.options.choose(v.mode); e != nil {
			v = acpVerdict{words: "Not carried out, since the mode could not be changed: " + e.Message}
		}
	}
	if p.ctx.Err() != nil {
		v = acpVerdict{words: "Not carried out: nobody has decided."}
		if chosen != "" {
			v.words = "Not carried out: the yes was taken back."
			if e := s.options.choose(modePlan); e != nil {
				v.words += " The session is not in plan mode any more: " + e.Message + "."
			}
		}
	}
	status := callDone
	if v.mode == "" {
		status = callFailed
	}
	s.enc.endOwn(id, status, about, v.words)
	s.mu.Lock()
	if v.mode != "" && !p.cancelled {
		p.text, p.parts, p.plan, p.carries = carryOutPrompt, nil, "", true
		p.stage, p.waiter, p.turn, p.failure = promptWaiting, 0, "", nil
		p.queues = true
		s.mu.Unlock()
		p.goOn()
		return
	}
	if p.cancelled || v.stop {
		result.Reason = "cancelled"
	}
	s.mu.Unlock()
	if f.life.Err() != nil {
		f.answer(p.c, nil, errACPClosing())
		return
	}
	f.answer(p.c, result, nil)
}

// awaitVerdict asks the client about a plan, and waits for the user's word.
func (s *acpSession) awaitVerdict(ctx context.Context, id string, call json.RawMessage,
	options []acpPermission) acpVerdict {
	f, verdicts := s.f, make(chan acpVerdict, 1)
	var late <-chan time.Time
	if f.AskLimit > 0 {
		limit := time.NewTimer(f.AskLimit)
		defer limit.Stop()
		late = limit.C
	}
	params := acpPermissionRequest{s.id, call, options}
	if !f.askClient(id, "session/request_permission", params, func(result json.RawMessage, err error) {
		v := acpVerdict{words: "Not carried out: the client answered with an error."}
		if err == nil {
			v = readPermission(result, options)
		}
		verdicts <- v
	}, func(call int64, _ string) { f.p.notify("$/cancel_request", map[string]any{"requestId": call}) }) {
		return acpVerdict{words: "Not carried out: the client is gone."}
	}
	var v acpVerdict
	select {
	case v = <-verdicts:
		return v
	case <-late:
		v.words = fmt.Sprintf("Not carried out: nobody answered within %s (approval_timeout_secs).", f.AskLimit)
	case <-ctx.Done():
	}
	f.withdrawAsk(id, v.words)
	return v
}

// leavePlans ends what is asked about plans, as a no, for a load of the session.
func (q *acpQueue) leavePlans() {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.s.leaving = true
	for _, p := range q.prompts {
		if p.stage == promptAsking {
			p.stop()
		}
	}
}

// planTitle is the first line of a plan, which is its title as a rule.
func planTitle(plan string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(plan), "\n")
	return clip(visible(strings.TrimSpace(strings.TrimLeft(line, "#"))), acpTitle)
}

// askInWords tells the questions of an agent as its message, and stops the turn: the next prompt has the answer. With
// no answer, or one of ours, Codex would go on and plan what nobody asked for. false: nobody reads the message as the
// answer to a prompt, or it isn't the agent that asks.
func (o *acpAsk) askInWords() bool {
	s, q := o.s, &o.q
	s.mu.Lock()
	p := s.queue.byWaiterLocked(o.w)
	asks := q.byAgent && q.subagent == nil && p != nil && p.stage == promptRunning
	for _, each := range s.queue.prompts {
		each.inWords = each.inWords || asks && each.stage == promptRunning
	}
	s.mu.Unlock()
	if !asks {
		return false
	}
	s.enc.say(agentChunk, questionWords(q))
	s.f.interrupt(o.a.AgentID, q.turn, func(r interruptResult, e *rpcError) {
		if e != nil || !r.Interrupted {
			s.f.decide(o.a.AgentID, q.id, decider{byUs, "the client has no forms"}, deny, nil)
		}
	})
	return true
}

// questionWords are questions as a message.
func questionWords(q *approval) string {
	var b strings.Builder
	for _, each := range q.questions {
		fmt.Fprintf(&b, "\n\n**%s**\n", strings.TrimSpace(each.text))
		for i, choice := range each.choices() {
			fmt.Fprintf(&b, "\n%d. %s", i+1, choice)
		}
	}
	return b.String() + "\n\nAnswer with your next message."
}
