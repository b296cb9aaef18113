package main

// mcp_turns.go owns codex and codex-reply: from their arguments to the turn that
// the hub is asked for, and from what came of a turn to the result that every tool
// tells of it. callTool runs them on the reading goroutine, so an agent file is read
// in a goroutine of its own. The answer must stand both in the text block, for
// callers of the removed `codex mcp-server`, and in structuredContent, since Claude
// Code shows a model only that where it is present.

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// runs reads what both tools that run a turn take. A background turn has no
// request that its approvals could be put before: its caller decides them.
func (a toolArgs) runs(req *turnRequest) *rpcError {
	req.timeout = a.secs("timeout_secs")
	if a.yes("background") {
		req.background, req.approvals = true, "caller"
	}
	if req.notify = strings.TrimSpace(a.str("notify")); !a.has("notify") {
		return nil
	}
	switch {
	case req.notify == "":
		return invalidSession("notify is empty: name the member who is mailed the answer, or leave it out")
	case !req.background:
		return invalidSession("notify %q is of a background turn: give background: true too, or leave notify out and wait for the answer", cutName(req.notify))
	}
	return nil
}

// readCodex turns the arguments of codex into a request; file is the agent
// file still to be read for its prompt.
func readCodex(a toolArgs) (req turnRequest, file string, e *rpcError) {
	req = turnRequest{mode: modeNew, source: sourceClient, run: true, prompt: a.str("prompt"),
		identity: a.str("identity"), role: a.str("role"), tag: a.str("tag"), cwd: a.str("cwd"),
		options: sessionOptions{
			Model: a.str("model"), Config: a["config"], Profile: a.str("profile"),
			BaseInstructions: a.str("base-instructions"), DeveloperInstructions: a.str("developer-instructions"),
			CompactPrompt: a.str("compact-prompt"),
		},
	}
	if e = a.runs(&req); e != nil {
		return req, "", e
	}
	if req.ref, e = a.reference(); e != nil {
		return req, "", e
	}
	file = a.str("agent_file")
	switch {
	case a.has("agent_file") && a.has("prompt"):
		return req, "", invalidSession("agent_file and prompt exclude each other: give the task in one of them")
	case a.has("agent_file") && req.ref != "":
		return req, "", invalidSession("agent_file starts a new agent and agent_id %q reopens one: give one of them", req.ref)
	case a.has("agent_file") && file == "":
		return req, "", invalidSession("agent_file is empty: give the path of a file, or prompt instead")
	case a.has("prompt") && strings.TrimSpace(req.prompt) == "":
		return req, "", invalidSession("prompt is empty: say what the agent is to do")
	case !a.has("prompt") && file == "" && req.ref == "":
		return req, "", invalidSession("no prompt: give prompt, agent_file or agent_id")
	}
	if req.ref != "" {
		req.mode, req.run = modeRevive, a.has("prompt")
	}
	if !req.run { // nothing to do in the background: reopening is answered at once anyway
		if req.notify != "" {
			return req, "", invalidSession("notify %q is of a turn, and without prompt none runs", cutName(req.notify))
		}
		req.background, req.approvals = false, ""
	}
	if a.has("identity") {
		if err := validIdentity(req.identity); err != nil {
			return req, "", invalidSession("%v", err)
		}
	}
	var err error
	if word := a.str("approval-policy"); word != "" {
		if req.options.Approval, err = normalizePolicy(word); err != nil {
			return req, "", badParams("argument \"approval-policy\" of tool codex: %v", err)
		}
	}
	if word := a.str("sandbox"); word != "" {
		if req.options.Sandbox, err = normalizeSandbox(word); err != nil {
			return req, "", badParams("argument \"sandbox\" of tool codex: %v", err)
		}
	}
	return req, file, nil
}

func (f *mcpFront) callCodex(c *mcpCall, a toolArgs) *rpcError {
	req, file, e := readCodex(a)
	if e != nil {
		return e
	}
	if file == "" {
		f.submitCall(c, req)
		return nil
	}
	return f.work(func() {
		if e := f.useAgentFile(&req, file); e != nil {
			f.fail(c, e)
			return
		}
		f.submitCall(c, req)
	})
}

// useAgentFile reads the file and lets it speak where the call is silent
// (FR-16.1): its name implies an identity, its model and effort apply.
func (f *mcpFront) useAgentFile(req *turnRequest, path string) *rpcError {
	base := req.cwd
	if base == "" {
		base = f.DefaultCwd
	} else if !filepath.IsAbs(base) {
		base = filepath.Join(f.DefaultCwd, base)
	}
	file, err := readAgentFile(path, base)
	if err != nil {
		return proxyError(codeAgentFile, err.Error(), "agent_file", path)
	}
	req.prompt, req.agentName, req.agentSource = file.Body, file.Name, file.Source
	if file.Name == "" { // FR-10.1
		req.agentName = strings.TrimSuffix(filepath.Base(file.Source), filepath.Ext(file.Source))
	}
	if req.identity == "" {
		req.implied = impliedIdentity(file.Name)
	}
	if req.options.Model == "" {
		req.options.Model = file.Model
		if file.ModelNote != "" {
			req.notes = append(req.notes, file.ModelNote)
		}
	}
	if file.Effort != "" && rawField(req.options.Config, "model_reasoning_effort") == nil {
		req.options.Config = addField(req.options.Config, "model_reasoning_effort", file.Effort)
	}
	return nil
}

// addField puts one string field in front of an object, or makes one.
func addField(obj json.RawMessage, key, val string) json.RawMessage {
	b := append(appendJSONString([]byte{'{'}, key), ':')
	b = appendJSONString(b, val)
	rest := skipSpace(obj, 0) + 1 // behind the brace
	if len(obj) == 0 || obj[skipSpace(obj, rest)] == '}' {
		return append(b, '}')
	}
	return append(append(b, ','), obj[rest:]...)
}

func (f *mcpFront) callReply(c *mcpCall, a toolArgs) *rpcError {
	req := turnRequest{mode: modeReply, source: sourceClient, run: true, prompt: a.str("prompt")}
	e := a.runs(&req)
	if e == nil {
		req.ref, e = a.agent()
	}
	switch {
	case e != nil:
		return e
	case req.ref == "":
		return invalidSession("no agent: give agent_id or identity of the agent to continue; agent_sessions lists them, codex starts a new one")
	case !a.has("prompt"):
		return invalidSession("no prompt: say what %s is to do next", req.ref)
	case strings.TrimSpace(req.prompt) == "":
		return invalidSession("prompt is empty: say what %s is to do next", req.ref)
	}
	f.submitCall(c, req)
	return nil
}

// turnShown is what came of a turn, as every result tells it: that of codex and
// codex-reply, and agent_wait's of each turn.
type turnShown struct {
	Content    *string     `json:"content,omitempty" doc:"The agent's final answer, or why the turn failed"` // nil: there is none yet
	Usage      *tokenUsage `json:"usage,omitempty" doc:"Tokens used by the thread"`
	DurationMS *int64      `json:"duration_ms,omitempty"` // nil: the turn has not ended
	Sandbox    string      `json:"sandbox,omitempty" doc:"The sandbox that applied"`
	Approval   string      `json:"approval_policy,omitempty" doc:"The approval policy that applied"`
	Declined   []declined  `json:"declined,omitempty" doc:"Actions that were not approved"`
	Notes      []string    `json:"notes,omitempty" doc:"What the caller should know"`
}

func shownTurn(r *turnResult) turnShown {
	ms := r.Duration.Milliseconds()
	return turnShown{&r.Content, r.Usage, &ms, r.Sandbox, r.Approval, r.Declined, r.Notes}
}

// agentTurnShown is the result of codex and codex-reply.
type agentTurnShown struct {
	AgentID    string `json:"agent_id" doc:"The agent, for codex-reply"`
	ThreadID   string `json:"threadId,omitempty" doc:"The Codex thread"` // "": the agent is new and has none yet
	Identity   string `json:"identity"`
	Team       string `json:"team"`
	Status     string `json:"status" doc:"Of the agent: busy, idle, parked, closed, stale or broken"`
	TurnID     string `json:"turn_id,omitempty"`
	TurnStatus string `json:"turn_status,omitempty" doc:"completed, failed or interrupted; queued or running while it has no result; absent when no turn ran"`
	turnShown
}

// turnAnswer is a turn's result, what a rebinding without a turn tells, or that
// a background turn was accepted. A turn that ran and did not complete is a
// result in both eras, not an error of the call.
func (f *mcpFront) turnAnswer(r *turnResult, modern bool) json.RawMessage {
	structured := agentTurnShown{r.AgentID, r.ThreadID, r.Identity, r.Team, r.Status, r.TurnID, r.TurnStatus, shownTurn(r)}
	if r.TurnStatus == "queued" || r.TurnStatus == "running" {
		text := aboutAccepted(r)
		structured.Content, structured.DurationMS = &text, nil // a model may be shown nothing else
		return f.toolAnswer(modern, false, structured, strings.Join(append([]string{text}, r.Notes...), " "))
	}
	if r.failed() {
		// A model is shown the text of an error and not its structure, so the
		// second block says what it needs to go on.
		return f.toolAnswer(modern, true, structured, contentOrWhy(r), aboutFailure(r))
	}
	text := r.Content
	if r.TurnStatus == "" && text == "" {
		text = fmt.Sprintf("Agent %s (identity %s) is open; no turn was run. Send it a message with codex-reply.", r.AgentID, r.Identity)
	}
	return f.toolAnswer(modern, false, structured, text)
}

// aboutAccepted tells whoever started a background turn how to get its answer.
func aboutAccepted(r *turnResult) string {
	what := "works on it in the background"
	if r.TurnStatus == "queued" {
		what = "begins it as soon as the turns before it are done"
	}
	return fmt.Sprintf("No answer yet: agent %s %s. Call agent_wait with agent_id %s for its answer, or for what it asks approval for.",
		agentShownAs(r.AgentID, r.Identity), what, r.AgentID)
}

// agentShownAs is an agent in a sentence: one that still waits for Codex may
// have no identity yet.
func agentShownAs(agentID, identity string) string {
	if identity == "" {
		return agentID
	}
	return agentID + " (identity " + identity + ")"
}

// contentOrWhy is a turn's answer, or that it failed without one.
func contentOrWhy(r *turnResult) string {
	if r.Content == "" && r.failed() {
		return "the turn " + ended(r.TurnStatus) + " without an answer"
	}
	return r.Content
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
