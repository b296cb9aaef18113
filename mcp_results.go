package main

// mcp_results.go owns the shape of tool results in both eras: turns, lists,
// status, closes and errors. mcp.go and mcp_toolargs.go call it with what the hub
// said. The answer's text must stand both in the text block, for callers of
// the removed `codex mcp-server`, and in structuredContent, since Claude Code
// shows a model only that where it is present.

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// toolResult is the result of a tools/call.
type toolResult struct {
	Type       string         `json:"resultType,omitempty"` // modern only
	Content    []textBlock    `json:"content"`
	Structured any            `json:"structuredContent"`
	IsError    bool           `json:"isError,omitempty"`
	Meta       map[string]any `json:"_meta,omitempty"` // modern only
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// toolAnswer is the result of a tool, with a line about the client's own unread
// mail: Claude Code shows its lead none while no native teammate runs (2.1.329).
func (f *mcpFront) toolAnswer(modern, isError bool, structured any, texts ...string) json.RawMessage {
	if f.ownMail == nil {
		return f.plainAnswer(modern, isError, structured, texts...)
	}
	own, raw := f.ownMail(), toJSON(structured)
	if own.Unread == 0 || len(raw) < 3 || raw[len(raw)-1] != '}' {
		return f.plainAnswer(modern, isError, structured, texts...)
	}
	line := fmt.Sprintf("You (%s) have %s: atm_read {} brings your mail.", own.Name, counted(own.Unread, "unread message"))
	raw = append(appendJSONString(append(raw[:len(raw)-1:len(raw)-1], `,"your_mail":`...), line), '}')
	return f.plainAnswer(modern, isError, raw, append(texts, line)...)
}

// plainAnswer is a result that says nothing but itself.
func (f *mcpFront) plainAnswer(modern, isError bool, structured any, texts ...string) json.RawMessage {
	r := toolResult{Structured: structured, IsError: isError}
	for _, t := range texts {
		r.Content = append(r.Content, textBlock{"text", t})
	}
	if modern {
		r.Type, r.Meta = "complete", f.modernMeta()
	}
	return toJSON(r)
}

// turnAnswer is a turn's result, what a rebinding without a turn tells, or that
// a background turn was accepted. A turn that ran and did not complete is a
// result in both eras, not an error of the call.
func (f *mcpFront) turnAnswer(r *turnResult, modern bool) json.RawMessage {
	if r.TurnStatus == "queued" || r.TurnStatus == "running" {
		return f.acceptedAnswer(r, modern)
	}
	structured := struct {
		AgentID    string      `json:"agent_id"`
		ThreadID   string      `json:"threadId"`
		TurnID     string      `json:"turn_id,omitempty"`
		Content    string      `json:"content"`
		Identity   string      `json:"identity"`
		Team       string      `json:"team"`
		Status     string      `json:"status"`
		TurnStatus string      `json:"turn_status,omitempty"`
		Usage      *tokenUsage `json:"usage,omitempty"`
		DurationMS int64       `json:"duration_ms"`
		Sandbox    string      `json:"sandbox"`
		Approval   string      `json:"approval_policy"`
		Declined   []declined  `json:"declined,omitempty"`
		Notes      []string    `json:"notes,omitempty"`
	}{r.AgentID, r.ThreadID, r.TurnID, r.Content, r.Identity, r.Team, r.Status, r.TurnStatus, r.Usage,
		r.Duration.Milliseconds(), r.Sandbox, r.Approval, r.Declined, r.Notes}
	if r.failed() {
		// A model is shown the text of an error and not its structure, so the
		// second block says what it needs to go on.
		first := r.Content
		if first == "" {
			first = "the turn " + ended(r.TurnStatus) + " without an answer"
		}
		return f.toolAnswer(modern, true, structured, first, aboutFailure(r))
	}
	text := r.Content
	if r.TurnStatus == "" && text == "" {
		text = fmt.Sprintf("Agent %s (identity %s) is open; no turn was run. Send it a message with codex-reply.", r.AgentID, r.Identity)
	}
	return f.toolAnswer(modern, false, structured, text)
}

// acceptedAnswer tells whoever started a background turn how to get its answer,
// in content too: a model may be shown nothing else.
func (f *mcpFront) acceptedAnswer(r *turnResult, modern bool) json.RawMessage {
	what := "works on it in the background"
	if r.TurnStatus == "queued" {
		what = "begins it as soon as the turns before it are done"
	}
	text := fmt.Sprintf("No answer yet: agent %s %s. Call agent_wait with agent_id %s for its answer, or for what it asks approval for.",
		agentShownAs(r.AgentID, r.Identity), what, r.AgentID)
	return f.toolAnswer(modern, false, struct {
		AgentID    string   `json:"agent_id"`
		ThreadID   string   `json:"threadId,omitempty"` // a new agent may have none yet
		TurnID     string   `json:"turn_id"`
		Content    string   `json:"content"`
		Identity   string   `json:"identity"`
		Team       string   `json:"team"`
		Status     string   `json:"status"`
		TurnStatus string   `json:"turn_status"`
		Sandbox    string   `json:"sandbox,omitempty"`
		Approval   string   `json:"approval_policy,omitempty"`
		Notes      []string `json:"notes,omitempty"`
	}{r.AgentID, r.ThreadID, r.TurnID, text, r.Identity, r.Team, r.Status, r.TurnStatus, r.Sandbox, r.Approval, r.Notes},
		strings.Join(append([]string{text}, r.Notes...), " "))
}

// agentShownAs is an agent in a sentence: one that still waits for Codex may
// have no identity yet.
func agentShownAs(agentID, identity string) string {
	if identity == "" {
		return agentID
	}
	return agentID + " (identity " + identity + ")"
}

func ended(turnStatus string) string {
	if turnStatus == "interrupted" {
		return "was interrupted"
	}
	return turnStatus
}

func aboutFailure(r *turnResult) string {
	var b strings.Builder
	tool := "codex-reply"
	if r.Status == statusClosed || r.Status == statusBroken { // codex-reply refuses those
		tool = "codex"
	}
	fmt.Fprintf(&b, "(The turn of agent %s, identity %s, %s. The agent is %s; %s with agent_id %s continues it.",
		r.AgentID, r.Identity, ended(r.TurnStatus), r.Status, tool, r.AgentID)
	for _, d := range r.Declined {
		fmt.Fprintf(&b, " Declined (%s): %s.", d.Reason, shorten(d.Action, 200))
	}
	for _, n := range r.Notes {
		b.WriteString(" " + n)
	}
	return b.String() + ")"
}

// protocolCode reports an error of the protocol, which stays a JSON-RPC error
// in the modern era. Ours and the child's carry an error_source.
func protocolCode(e *rpcError) bool {
	return codeName(e.Code) == "" && rawField(e.Data, "error_source") == nil
}

// errorAnswer is an error as a modern client gets it: a tool result, since
// the 2026 revision forbids the codes of NFR-6.
func (f *mcpFront) errorAnswer(e *rpcError) json.RawMessage {
	return f.plainAnswer(true, true, map[string]any{"error": errorDetail(e)}, e.Message)
}

// errorDetail is an error as structuredContent has it.
func errorDetail(e *rpcError) map[string]any {
	detail := map[string]any{}
	_ = eachField(e.Data, func(key string, val json.RawMessage) bool {
		detail[key] = val
		return true
	})
	name := codeName(e.Code)
	if name == "" {
		name = stringField(e.Data, "name") // ours, of what is nobody's fault
	}
	if name == "" {
		name = "CODEX_ERROR" // the child's own code
	}
	detail["name"], detail["code"], detail["message"] = name, e.Code, e.Message
	if detail["error_source"] == nil {
		detail["error_source"] = "proxy"
	}
	return detail
}

// sessionsAnswer is agent_sessions' result, in words too for clients that show
// only text.
func (f *mcpFront) sessionsAnswer(views []sessionView, modern bool) json.RawMessage {
	shown := viewShapes(views)
	texts := []string{"No agents: codex starts one."}
	if len(shown) > 0 {
		texts = viewTexts(nil, shown)
	}
	return f.toolAnswer(modern, false, map[string]any{"sessions": shown}, strings.Join(texts, "\n"))
}

// viewShown is a session in agent_sessions and agent_status: what it published,
// its approvals in the shape of every tool.
type viewShown struct {
	sessionView
	Pending []askShown `json:"pending_approvals,omitempty"`
}

func viewShapes(views []sessionView) []viewShown {
	out := make([]viewShown, 0, len(views))
	for i := range views {
		out = append(out, viewShown{views[i], askShapes(&views[i])})
	}
	return out
}

// viewTexts adds a line for each session, and what decides its approvals.
func viewTexts(texts []string, views []viewShown) []string {
	for i := range views {
		texts = append(texts, views[i].line())
		for j := range views[i].Pending {
			texts = append(texts, aboutAsk(views[i].AgentID, &views[i].Pending[j]))
		}
	}
	return texts
}

// line is a session in one line.
func (v *viewShown) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Agent %s is %s", agentShownAs(v.AgentID, v.Identity), v.Status)
	if v.Activity != "" {
		b.WriteString(": " + oneLine(v.Activity))
	}
	add := func(some bool, format string, args ...any) {
		if some {
			fmt.Fprintf(&b, "; "+format, args...)
		}
	}
	add(v.Interrupted, "it was interrupted")
	add(v.LastError != "", "its last error: %s", oneLine(v.LastError))
	add(v.Queued > 0, "turns waiting: %d", v.Queued)
	add(v.Cwd != "", "in %s", v.Cwd)
	add(true, "turns: %d", v.Turns)
	add(v.Tag != "", "tag %s", v.Tag)
	add(v.Role != "", "role %s", v.Role)
	add(v.PendingMail != nil && *v.PendingMail > 0, "unread messages: %d", deref(v.PendingMail))
	add(strings.HasPrefix(v.AutoMail, "paused"), "automatic mail %s", v.AutoMail)
	add(!v.Mine && v.Resumable, "not open here, can be resumed")
	add(v.BackendID != "", "thread %s", v.BackendID)
	add(true, "last active %s", v.LastActive.UTC().Format(time.RFC3339))
	return b.String() + "."
}

// line is the proxy in one line.
func (s *statusView) line() string {
	text := "Codex is not running: the next turn starts it"
	if s.ChildAlive {
		text = fmt.Sprintf("Codex %s runs (%s, pid %d)", s.ChildVersion, s.Backend, s.ChildPID)
	} else if s.ChildError != "" {
		text = "Codex is not running: " + s.ChildError
	}
	text += fmt.Sprintf(". Team %s. Agents open here: %d.", s.Team, s.Sessions)
	if s.PendingMail != nil {
		text += fmt.Sprintf(" Their unread messages: %d.", *s.PendingMail)
	}
	if s.Unsaved != "" {
		text += " " + s.Unsaved + "."
	}
	return text
}

func (f *mcpFront) statusAnswer(s statusView, modern bool) json.RawMessage {
	orNull := func(word string) *string {
		if word == "" {
			return nil
		}
		return &word
	}
	if s.Identities == nil {
		s.Identities = map[string]string{}
	}
	agents := viewShapes(s.Agents)
	return f.toolAnswer(modern, false, struct {
		Alive      bool              `json:"child_alive"`
		Version    *string           `json:"child_version"`
		PID        int               `json:"child_pid,omitempty"`
		Error      string            `json:"child_error,omitempty"`
		Unsaved    string            `json:"records_error,omitempty"`
		Backend    *string           `json:"backend"`
		Team       string            `json:"team"`
		TeamFrom   string            `json:"team_from,omitempty"`
		Uptime     int64             `json:"uptime_secs"`
		Sessions   int               `json:"sessions"`
		Identities map[string]string `json:"identities"`
		Agents     []viewShown       `json:"agents"`
		Budget     budgetShown       `json:"budget"`
		Mail       *int              `json:"pending_mail"` // null: there is no mail
	}{s.ChildAlive, orNull(s.ChildVersion), s.ChildPID, s.ChildError, s.Unsaved, orNull(s.Backend), s.Team, s.TeamFrom,
		int64(s.Uptime.Seconds()), s.Sessions, s.Identities, agents,
		budgetShown{s.EventBytes, s.EventBytesLimit, f.p.queued(), f.p.budget}, s.PendingMail}, strings.Join(viewTexts([]string{s.line()}, agents), "\n"))
}

// budgetShown is how full the buffers on both sides are: events of the child
// that sessions have not taken in, and output that the client has not read.
type budgetShown struct {
	Events          int64 `json:"event_bytes_waiting"`
	EventBytesLimit int64 `json:"event_bytes_limit"`
	Output          int   `json:"output_bytes_waiting"`
	OutputLimit     int   `json:"output_bytes_limit"`
}

func (f *mcpFront) closeAnswer(r closeResult, modern bool) json.RawMessage {
	text := fmt.Sprintf("Agent %s (identity %s) is closed", r.AgentID, r.Identity)
	switch {
	case r.Already:
		text += "; it was before"
	case r.Interrupted:
		text += "; its running turn was interrupted"
	}
	return f.toolAnswer(modern, false, struct {
		AgentID     string `json:"agent_id"`
		Identity    string `json:"identity"`
		Status      string `json:"status"`
		Already     bool   `json:"already_closed"`
		Interrupted bool   `json:"interrupted"`
	}{r.AgentID, r.Identity, r.Status, r.Already, r.Interrupted}, text+".")
}
