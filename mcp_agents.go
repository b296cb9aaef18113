package main

// mcp_agents.go owns the tools about agents beside their turns: agent_sessions, agent_status, agent_close,
// agent_interrupt, agent_approve and agent_mail, each with its arguments and its result, and the one shape in which
// every tool shows a pending approval. callTool runs them on the reading goroutine; the hub answers from another one.
// They must never approve anything by themselves: a decision is the caller's word, repeated action and all, and the hub
// checks it against what is pending.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// listAgents serves agent_sessions. The hub reads records from disk for that, so the call leaves the reading goroutine.
func listAgents(c *mcpCall, a toolArgs) *rpcError {
	limit := defaultSessions
	if a.has("limit") {
		limit = int(a.num("limit"))
	}
	return c.work(func() {
		shown := viewShapes(c.f.sessions(limit))
		texts := []string{"No agents: codex starts one."}
		if len(shown) > 0 {
			texts = viewTexts(c.f.Names, nil, shown)
		}
		c.end(nil, sessionsShown{shown}, strings.Join(texts, "\n"))
	})
}

// sessionsShown is the result of agent_sessions.
type sessionsShown struct {
	Sessions []viewShown `json:"sessions"`
}

// viewShown is a session in agent_sessions and agent_status: what the session
// published, and its approvals in the shape of every tool.
type viewShown struct {
	sessionView
	Asks []askShown `json:"pending_approvals,omitempty" doc:"What waits for a decision: agent_approve with agent_id, approval_id and the same action"`
}

func viewShapes(views []sessionView) []viewShown {
	out := make([]viewShown, 0, len(views))
	for i := range views {
		out = append(out, viewShown{views[i], askShapes(&views[i])})
	}
	return out
}

// viewTexts adds a line for each session, and what decides its approvals.
func viewTexts(n *names, texts []string, views []viewShown) []string {
	for i := range views {
		texts = append(texts, views[i].line())
		for j := range views[i].Asks {
			texts = append(texts, aboutAsk(n, views[i].AgentID, &views[i].Asks[j]))
		}
	}
	return texts
}

// line is a session in one line.
func (v *viewShown) line() string {
	var s prose
	s.add(true, "Agent %s is %s", agentShownAs(v.AgentID, v.Identity), v.Status)
	s.add(v.Activity != "", ": %s", oneLine(v.Activity))
	s.add(v.Interrupted, "; it was interrupted")
	s.add(v.LastError != "", "; its last error: %s", oneLine(v.LastError))
	s.add(v.Queued > 0, "; turns waiting: %d", v.Queued)
	s.add(v.Cwd != "", "; in %s", v.Cwd)
	if v.Worktree != nil {
		s.add(true, "; worktree %s, branch %s", v.Worktree.Path, v.Worktree.Branch)
	}
	s.add(true, "; turns: %d", v.Turns)
	s.add(v.Tag != "", "; tag %s", v.Tag)
	s.add(v.Role != "", "; role %s", v.Role)
	s.add(deref(v.PendingMail) > 0, "; unread messages: %d", deref(v.PendingMail))
	s.add(strings.HasPrefix(v.AutoMail, "paused"), "; automatic mail %s", v.AutoMail)
	s.add(!v.Mine && v.Resumable, "; not open here, can be resumed")
	s.add(v.BackendID != "", "; thread %s", v.BackendID)
	s.add(true, "; last active %s.", v.LastActive.UTC().Format(time.RFC3339))
	return s.String()
}

// prose is a text of what there is to say.
type prose struct{ strings.Builder }

// add says something if there is some of it.
func (s *prose) add(some bool, format string, args ...any) {
	if some {
		fmt.Fprintf(s, format, args...)
	}
}

// statusShown is the result of agent_status.
type statusShown struct {
	statusView
	ChildVersion *string     `json:"child_version"`
	Backend      *string     `json:"backend" doc:"app-server or mcp-server; null before the first turn"`
	Uptime       int64       `json:"uptime_secs"`
	Agents       []viewShown `json:"agents"`
	Budget       budgetShown `json:"budget" doc:"How full this server's buffers are"`
}

// budgetShown is how full the buffers on both sides are: events of the child
// that sessions have not taken in, and output that the client has not read.
type budgetShown struct {
	Events          int64 `json:"event_bytes_waiting" doc:"Bytes of Codex events not taken in yet"`
	EventBytesLimit int64 `json:"event_bytes_limit"`
	Output          int   `json:"output_bytes_waiting" doc:"Bytes this client has not read yet"`
	OutputLimit     int   `json:"output_bytes_limit"`
}

// showStatus serves agent_status.
func showStatus(c *mcpCall, _ toolArgs) *rpcError {
	orNull := func(word string) *string {
		if word == "" {
			return nil
		}
		return &word
	}
	c.f.limited(func(s statusView) {
		shown := statusShown{statusView: s, ChildVersion: orNull(s.ChildVersion), Backend: orNull(s.Backend),
			Uptime: int64(s.Uptime.Seconds()), Agents: viewShapes(s.Agents),
			Budget: budgetShown{s.EventBytes, s.EventBytesLimit, c.f.p.queued(), c.f.p.budget}}
		lines := append([]string{s.line()}, s.Limits.lines()...)
		c.end(nil, shown, strings.Join(viewTexts(c.f.Names, lines, shown.Agents), "\n"))
	})
	return nil
}

// line is the proxy in one line.
func (s *statusView) line() string {
	text := "Codex is not running: the next turn starts it"
	if s.ChildAlive {
		text = fmt.Sprintf("Codex %s runs (%s, pid %d)", s.ChildVersion, s.Backend, s.ChildPID)
	} else if s.ChildError != "" {
		text = "Codex is not running: " + s.ChildError
	}
	var t prose
	t.add(true, "%s. Team %s. Agents open here: %d.", text, s.Team, s.Sessions)
	t.add(s.PendingMail != nil, " Their unread messages: %d.", deref(s.PendingMail))
	t.add(s.Unsaved != "", " %s.", s.Unsaved)
	return t.String()
}

// closeAgent serves agent_close.
func closeAgent(c *mcpCall, a toolArgs) *rpcError {
	ref, e := a.target("close")
	if e != nil {
		return e
	}
	named := c.f.correlation(c.f.nextWaiter()) // in the audit trail; nobody waits for it
	c.f.close(ref, named, func(r closeResult, e *rpcError) {
		text := fmt.Sprintf("Agent %s (identity %s) is closed", r.AgentID, r.Identity)
		switch {
		case r.Already:
			text += "; it was before"
		case r.Interrupted:
			text += "; its running turn was interrupted"
		}
		if text += "."; r.Worktree != nil {
			text += " " + r.Worktree.words()
		}
		c.end(e, r, text)
	})
	return nil
}

// mailSwitchShown is the result of agent_mail.
type mailSwitchShown struct {
	AgentID  string `json:"agent_id"`
	Identity string `json:"identity"`
	AutoMail string `json:"auto_mail" doc:"Whether mail starts turns: on, off, or paused and why"`
	Pending  *int   `json:"pending_mail,omitempty" doc:"Unread messages"`
}

// switchMail serves agent_mail.
func switchMail(c *mcpCall, a toolArgs) *rpcError {
	ref, e := a.target("switch the automatic mail of")
	if e == nil && !a.has("auto") {
		e = invalidSession("no auto: give true, so that mail starts turns of the agent, or false, so that it waits " +
			"unread")
	}
	if e != nil {
		return e
	}
	c.f.setMail(ref, a.yes("auto"), func(v sessionView, e *rpcError) {
		var text prose
		text.add(true, "Automatic mail of agent %s (identity %s) is %s.", v.AgentID, v.Identity, v.AutoMail)
		text.add(v.PendingMail != nil, " Unread messages: %d.", deref(v.PendingMail))
		c.end(e, mailSwitchShown{v.AgentID, v.Identity, v.AutoMail, v.PendingMail}, text.String())
	})
	return nil
}

// askShown is a pending approval in a result.
type askShown struct {
	askView
	Command    string          `json:"command,omitempty"`
	Diff       string          `json:"diff,omitempty"` // of a file_change
	Questions  []questionShown `json:"questions,omitempty"`
	Subagent   string          `json:"subagent,omitempty"`    // that asks
	ForSession bool            `json:"for_session,omitempty"` // approve_for_session means more than approve
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
	s := askShown{askView: v, Command: v.q.command, Diff: v.q.diff(), ForSession: v.q.forSession}
	if thread != "" && v.q.thread != thread { // over mcp-server a thread is unnamed at first
		s.Subagent = cmp.Or(v.q.asker(), v.q.thread)
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

// aboutAsk tells a reader of text what is asked and the exact call that decides it.
func aboutAsk(n *names, agentID string, a *askShown) string {
	var s prose
	s.add(true, "It asks for approval %s (%s): %s", a.ApprovalID, a.Kind, a.Action)
	s.add(a.Cwd != "", "\n  in %s", a.Cwd)
	s.add(a.Subagent != "", "\n  asked by its subagent %s", a.Subagent)
	s.add(a.Reason != "", "\n  its reason: %s", a.Reason)
	answers := map[string]string{}
	for _, q := range a.Questions {
		s.add(true, "\n  question %s: %s", q.ID, q.Text)
		s.add(len(q.Options) > 0, " (%s)", strings.Join(q.Options, " | "))
		answers[q.ID] = "…"
	}
	s.add(a.Diff != "", "\n%s", a.Diff)
	call := struct {
		Agent    string            `json:"agent_id"`
		ID       string            `json:"approval_id"`
		Action   string            `json:"action"`
		Decision string            `json:"decision"`
		Answers  map[string]string `json:"answers,omitempty"`
	}{agentID, a.ApprovalID, a.Action, approve.String(), answers}
	s.add(true, "\nDecide it: agent_approve %s (or decision %q, %q)", n.fields(toJSON(call), listed),
		approveForSession.String(), deny.String())
	return s.String()
}

// readApprove turns the arguments of agent_approve into a decision.
func readApprove(a toolArgs) (q approveQuery, e *rpcError) {
	q = approveQuery{Ask: strings.TrimSpace(a.str("approval_id")), Action: a.str("action"),
		By: decider{byCaller, clip(a.str("reason"), 300)}}
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
		return q, invalidSession("no decision on approval %q: give one of %s", q.Ask,
			strings.Join(decisionWords(), ", "))
	}
	for _, d := range []decision{approve, approveForSession} { // every other word denies
		if a.str("decision") == d.String() {
			q.Decision = d
		}
	}
	if q.Answers, e = readAnswers(a["answers"]); e != nil {
		return q, e
	}
	switch {
	case q.Decision == deny && len(q.Answers) > 0:
		return q, invalidSession("decision deny and answers exclude each other: answer the question with decision " +
			"approve, or leave answers out")
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
		} else if rawKind(val) != '[' || json.Unmarshal(val, &list) != nil || len(list) == 0 ||
			slices.Contains(list, "") {
			e = badParams("argument \"answers\" of tool agent_approve: the answer to %q must be a string or an array "+
				"of strings, not %s", id, clipChars(string(val), 80))
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

// approvedShown is the result of agent_approve.
type approvedShown struct {
	AgentID  string `json:"agent_id"`
	Identity string `json:"identity,omitempty"`
	Ask      string `json:"approval_id"`
	Action   string `json:"action"`
	Decision string `json:"decision"`
}

// decideApproval serves agent_approve.
func decideApproval(c *mcpCall, a toolArgs) *rpcError {
	q, e := readApprove(a)
	if e != nil {
		return e
	}
	c.f.approve(q, func(as decision, e *rpcError) {
		agentID, identity := q.Agent, ""
		if v := liveView(c, q.Agent); v != nil {
			agentID, identity = v.AgentID, v.Identity
		}
		done := map[decision]string{approve: "approved", approveForSession: "approved for the whole session",
			deny: "denied"}[as]
		c.end(e, approvedShown{agentID, identity, q.Ask, q.Action, as.String()},
			fmt.Sprintf("%s is %s: %s. The agent goes on; agent_wait with %s %s tells what comes of it.", q.Ask,
				done, clipChars(oneLine(q.Action), 200), c.f.Names.word("agent_id"), agentID))
	})
	return nil
}

// liveView is what an agent open here shows of itself, nil for one that isn't.
func liveView(c *mcpCall, ref string) *sessionView {
	agents := c.f.status().Agents
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

// interruptShown is the result of agent_interrupt.
type interruptShown struct {
	interruptResult
	Status string `json:"status,omitempty"`
}

// interruptAgent serves agent_interrupt.
func interruptAgent(c *mcpCall, a toolArgs) *rpcError {
	ref, e := a.target("interrupt")
	turn := strings.TrimSpace(a.str("turn_id"))
	if e == nil && a.has("turn_id") && turn == "" {
		e = invalidSession("turn_id is empty: leave it out to stop whatever runs")
	}
	if e != nil {
		return e
	}
	c.f.interrupt(ref, turn, func(r interruptResult, e *rpcError) {
		shown := interruptShown{interruptResult: r}
		if v := liveView(c, r.AgentID); v != nil {
			shown.Status = v.Status
		}
		text := fmt.Sprintf("Agent %s (identity %s) had no such turn to stop.", r.AgentID, r.Identity)
		if r.Interrupted {
			what := "The turn"
			if r.TurnID != "" { // else it was stopped before Codex gave it a name
				what += " " + r.TurnID
			}
			text = fmt.Sprintf("%s of agent %s (identity %s) is stopped. The agent stays; codex-reply continues it.",
				what, r.AgentID, r.Identity)
		}
		if r.Queued > 0 {
			text += fmt.Sprintf(" Turns that still wait for it: %d.", r.Queued)
		}
		c.end(e, shown, text)
	})
	return nil
}
