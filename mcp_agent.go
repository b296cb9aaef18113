package main

// mcp_agent.go owns the tools that reach into an agent beside its turns,
// agent_approve and agent_interrupt, and the one shape in which every tool
// shows a pending approval. mcp_toolargs.go's callTool runs them on the reading
// goroutine; the hub answers from another one. It must never approve anything
// by itself: a decision is the caller's word, repeated action and all, and the
// hub checks it against what is pending.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// askShown is a pending approval in a result.
type askShown struct {
	ID        string          `json:"approval_id"`
	Kind      string          `json:"kind"`
	Action    string          `json:"action"`
	Command   string          `json:"command,omitempty"`
	Cwd       string          `json:"cwd,omitempty"`
	Diff      string          `json:"diff,omitempty"`
	Questions []questionShown `json:"questions,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Subagent  string          `json:"subagent,omitempty"`

	ForSession bool `json:"for_session,omitempty"` // approve_for_session would mean something
}

type questionShown struct {
	ID      string   `json:"id"`
	Header  string   `json:"header,omitempty"`
	Text    string   `json:"text"`
	Options []string `json:"options,omitempty"`
}

// askShape shows a pending approval of the agent whose own thread is given: an
// approval of another thread is a subagent's.
func askShape(thread string, v askView) askShown {
	s := askShown{ID: v.ApprovalID, Kind: v.Kind, Action: v.Action, Command: v.q.command, Cwd: v.Cwd, Reason: v.Reason, Diff: v.q.diff(), ForSession: v.q.forSession}
	if thread != "" && v.q.thread != thread { // over mcp-server a thread is unnamed at first
		if s.Subagent = v.q.asker(); s.Subagent == "" {
			s.Subagent = v.q.thread
		}
	}
	for _, q := range v.q.questions {
		s.Questions = append(s.Questions, questionShown{q.id, q.header, q.text, q.options})
	}
	return s
}

// askShapes is never nil: an empty list says that nothing waits.
func askShapes(v *sessionView) []askShown {
	out := make([]askShown, 0, len(v.Pending))
	for _, p := range v.Pending {
		out = append(out, askShape(v.BackendID, p))
	}
	return out
}

// aboutAsk tells a reader of text what is asked and the exact call that
// decides it.
func aboutAsk(agentID string, a *askShown) string {
	var b strings.Builder
	fmt.Fprintf(&b, "It asks for approval %s (%s): %s", a.ID, a.Kind, a.Action)
	if a.Cwd != "" {
		fmt.Fprintf(&b, "\n  in %s", a.Cwd)
	}
	if a.Subagent != "" {
		fmt.Fprintf(&b, "\n  asked by its subagent %s", a.Subagent)
	}
	if a.Reason != "" {
		fmt.Fprintf(&b, "\n  its reason: %s", a.Reason)
	}
	answers := map[string]string{}
	for _, q := range a.Questions {
		fmt.Fprintf(&b, "\n  question %s: %s", q.ID, q.Text)
		if len(q.Options) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(q.Options, " | "))
		}
		answers[q.ID] = "…"
	}
	if a.Diff != "" {
		b.WriteString("\n" + a.Diff)
	}
	call := struct {
		Agent    string            `json:"agent_id"`
		ID       string            `json:"approval_id"`
		Action   string            `json:"action"`
		Decision string            `json:"decision"`
		Answers  map[string]string `json:"answers,omitempty"`
	}{agentID, a.ID, a.Action, approve.String(), answers}
	fmt.Fprintf(&b, "\nDecide it: agent_approve %s (or decision %q, %q)", toJSON(call), approveForSession.String(), deny.String())
	return b.String()
}

// readApprove turns the arguments of agent_approve into a decision.
func readApprove(a toolArgs) (q approveQuery, e *rpcError) {
	q = approveQuery{Ask: strings.TrimSpace(a.str("approval_id")), Action: a.str("action"), By: decider{byCaller, clip(a.str("reason"), 300)}}
	if q.Agent, e = a.agent(); e != nil {
		return q, e
	}
	const look = "agent_wait and agent_status show what is pending"
	switch {
	case q.Agent == "":
		return q, invalidSession("no agent: give agent_id or identity of the agent that asks; %s", look)
	case q.Ask == "":
		return q, invalidSession("no approval_id: say which approval of %s is decided; %s", q.Agent, look)
	case q.Action == "":
		return q, invalidSession("no action: repeat the action of approval %q word for word; %s", q.Ask, look)
	case !a.has("decision"):
		return q, invalidSession("no decision on approval %q: give one of %s", q.Ask, strings.Join(decisionWords(), ", "))
	}
	for _, d := range []decision{approve, approveForSession} { // whatever else it says denies
		if a.str("decision") == d.String() {
			q.Decision = d
		}
	}
	if q.Answers, e = readAnswers(a["answers"]); e != nil {
		return q, e
	}
	switch {
	case q.Decision == deny && len(q.Answers) > 0:
		return q, invalidSession("decision deny and answers exclude each other: answer the question with decision approve, or leave answers out")
	case q.Decision != deny && q.By.said != "":
		return q, invalidSession("reason is of a denial and the decision is %s: leave one of them out", q.Decision)
	}
	return q, nil
}

// readAnswers reads question id to a string or several.
func readAnswers(raw json.RawMessage) (map[string][]string, *rpcError) {
	var out map[string][]string
	var e *rpcError
	_ = eachField(raw, func(id string, val json.RawMessage) bool {
		var list []string
		if s, ok := rawString(val); ok {
			list = []string{s}
		} else if rawKind(val) != '[' || json.Unmarshal(val, &list) != nil || len(list) == 0 || slices.Contains(list, "") {
			e = badParams("argument \"answers\" of tool agent_approve: the answer to %q must be a string or an array of strings, not %s", id, shorten(string(val), 80))
			return false
		}
		if out == nil {
			out = map[string][]string{}
		}
		out[id] = list
		return true
	})
	return out, e
}

func (f *mcpFront) callApprove(c *mcpCall, a toolArgs) {
	q, e := readApprove(a)
	if e != nil {
		f.fail(c, e)
		return
	}
	f.approve(q, func(as decision, e *rpcError) {
		if e != nil {
			f.fail(c, e)
			return
		}
		q.Decision = as
		f.finish(c, f.approveAnswer(q, c.modern), nil)
	})
}

func (f *mcpFront) approveAnswer(q approveQuery, modern bool) json.RawMessage {
	agentID, identity := q.Agent, ""
	if v := f.liveView(q.Agent); v != nil {
		agentID, identity = v.AgentID, v.Identity
	}
	done := "approved"
	switch q.Decision {
	case approveForSession:
		done = "approved for the whole session"
	case deny:
		done = "denied"
	}
	text := fmt.Sprintf("%s is %s: %s. The agent goes on; agent_wait with agent_id %s tells what comes of it.", q.Ask, done, shorten(oneLine(q.Action), 200), agentID)
	return f.toolAnswer(modern, false, struct {
		AgentID  string `json:"agent_id"`
		Identity string `json:"identity,omitempty"`
		Ask      string `json:"approval_id"`
		Action   string `json:"action"`
		Decision string `json:"decision"`
	}{agentID, identity, q.Ask, q.Action, q.Decision.String()}, text)
}

// liveView is what an agent open here shows of itself, nil for one that isn't.
func (f *mcpFront) liveView(ref string) *sessionView {
	agents := f.status().Agents
	i := slices.IndexFunc(agents, func(v sessionView) bool { return v.named(ref) })
	if i < 0 {
		return nil
	}
	return &agents[i]
}

// named reports whether ref is one of the session's names.
func (v *sessionView) named(ref string) bool {
	return ref != "" && (v.AgentID == ref || v.BackendID == ref || strings.EqualFold(v.Identity, ref))
}

func (f *mcpFront) callInterrupt(c *mcpCall, a toolArgs) {
	ref, e := a.target("interrupt")
	turn := strings.TrimSpace(a.str("turn_id"))
	if e == nil && a.has("turn_id") && turn == "" {
		e = invalidSession("turn_id is empty: leave it out to stop whatever runs")
	}
	if e != nil {
		f.fail(c, e)
		return
	}
	f.interrupt(ref, turn, func(r interruptResult, e *rpcError) {
		if e != nil {
			f.fail(c, e)
			return
		}
		f.finish(c, f.interruptAnswer(r, c.modern), nil)
	})
}

func (f *mcpFront) interruptAnswer(r interruptResult, modern bool) json.RawMessage {
	status := ""
	if v := f.liveView(r.AgentID); v != nil {
		status = v.Status
	}
	text := fmt.Sprintf("Agent %s (identity %s) had no such turn to stop.", r.AgentID, r.Identity)
	if r.Interrupted {
		text = fmt.Sprintf("The turn %s of agent %s (identity %s) is stopped. The agent stays; codex-reply continues it.", r.TurnID, r.AgentID, r.Identity)
	}
	if r.Queued > 0 {
		text += fmt.Sprintf(" Turns that still wait for it: %d.", r.Queued)
	}
	return f.toolAnswer(modern, false, struct {
		AgentID     string `json:"agent_id"`
		Identity    string `json:"identity"`
		TurnID      string `json:"turn_id,omitempty"`
		Interrupted bool   `json:"interrupted"`
		Queued      int    `json:"queued"`
		Status      string `json:"status,omitempty"`
	}{r.AgentID, r.Identity, r.TurnID, r.Interrupted, r.Queued, status}, text)
}
