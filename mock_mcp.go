package main

// mock_mcp.go owns the mock Codex as `codex mcp-server`: its two tools, and the codex/event notifications in which it
// tells what app-server tells by notifications of its own. The events and answers of a thread come out of one queue
// that every open call reads, a cancelled call too. Hence the traps of the real one: a cancelled call is never
// answered and takes the next turn's answer, and a failed turn leaves one end behind that answers the next call.
// mock_turn.go runs the turns of both dialects.

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
)

// mockMCP is what only mcp-server has. mockServer.mu guards it.
type mockMCP struct {
	m      *mockServer
	queues map[string]*mockQueue // by thread
	eof    bool                  // stdin has ended: the process ends when no call is open any more
}

// mockQueue is a thread's events and the calls that read them.
type mockQueue struct {
	events  []mockEvent
	readers []json.RawMessage // ids of tools/call
	active  *mockTurn         // the turn that runs, from task_started on: before that a cancel is lost
}

// mockEvent is one codex/event of a turn. fields have the kind as their type.
type mockEvent struct {
	turn, kind string
	fields     map[string]any
}

// requests are the requests and notifications that mcp-server takes.
func (c *mockMCP) requests() map[string]mockRequest {
	return map[string]mockRequest{
		"initialize": func(_ *mockServer, msg *message) { c.initialize(msg) },
		"tools/list": func(_ *mockServer, msg *message) { c.m.reply(msg, map[string]any{"tools": mockMCPTools()}) },
		"tools/call": func(_ *mockServer, msg *message) { c.call(msg) },
		"notifications/cancelled": func(_ *mockServer, msg *message) {
			c.cancel(rawField(msg.params, "requestId"))
		},
	}
}

// openCalls is called at the end of stdin, and tells whether a call has no answer yet.
func (c *mockMCP) openCalls() bool {
	if c == nil { // app-server
		return false
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.eof = true
	return c.open()
}

func (c *mockMCP) open() bool {
	for _, q := range c.queues {
		if len(q.readers) > 0 {
			return true
		}
	}
	return false
}

func (c *mockMCP) initialize(msg *message) {
	version := c.m.version
	c.m.reply(msg, map[string]any{"protocolVersion": rawField(msg.params, "protocolVersion"),
		"capabilities": map[string]any{"tools": map[string]any{"listChanged": true}},
		"serverInfo": map[string]any{"name": "codex-mcp-server", "title": "Codex", "version": version,
			"user_agent": "codex_cli_rs/" + version + " (Mock 1.0; x86_64) dumb (mock; 0)"}})
}

func mockMCPTools() []any {
	text := map[string]any{"type": "string"}
	enum := func(words ...string) any { return map[string]any{"type": "string", "enum": words} }
	start := map[string]any{"type": "object", "required": []string{"prompt"}, "additionalProperties": false,
		"properties": map[string]any{
			"prompt": text, "model": text, "cwd": text,
			"base-instructions": text, "developer-instructions": text, "compact-prompt": text,
			"sandbox":         enum("read-only", "workspace-write", "danger-full-access"),
			"approval-policy": enum("on-request", "never"),
			"config":          map[string]any{"type": "object", "additionalProperties": true}}}
	reply := map[string]any{"type": "object", "required": []string{"prompt"},
		"properties": map[string]any{"prompt": text, "threadId": text, "conversationId": text}}
	out := map[string]any{"type": "object", "required": []string{"threadId", "content"},
		"properties": map[string]any{"threadId": text, "content": text}}
	return []any{
		map[string]any{"name": "codex", "title": "Codex", "description": "Run a Codex session.", "inputSchema": start,
			"outputSchema": out},
		map[string]any{"name": "codex-reply", "title": "Codex Reply", "description": "Continue a Codex conversation.",
			"inputSchema": reply, "outputSchema": out},
	}
}

// answer answers a tools/call. Without a thread the result has no structuredContent.
func (c *mockMCP) answer(id json.RawMessage, thread, text string, isError bool) {
	r := map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
	if thread != "" {
		r["structuredContent"] = map[string]any{"threadId": thread, "content": text}
	}
	if isError {
		r["isError"] = true
	}
	c.m.peer.reply(id, r)
}

func (c *mockMCP) call(msg *message) {
	args := rawField(msg.params, "arguments")
	if stringField(msg.params, "name") == "codex" {
		c.start(msg.id, args)
		return
	}
	id := cmp.Or(stringField(args, "threadId"), stringField(args, "conversationId"))
	th := c.m.thread(id)
	if th == nil {
		c.answer(msg.id, id, "Session not found for thread_id: "+id, true)
		return
	}
	c.turn(msg.id, th, stringField(args, "prompt"))
}

// start is the codex tool: a thread and its first turn.
func (c *mockMCP) start(call, args json.RawMessage) {
	m := c.m
	params := map[string]json.RawMessage{}
	for ours, theirs := range map[string]string{"cwd": "cwd", "model": "model", "approvalPolicy": "approval-policy",
		"sandbox": "sandbox", "config": "config"} {
		if v := rawField(args, theirs); v != nil {
			params[ours] = v
		}
	}
	s, config, failure := m.settle(toJSON(params), nil)
	if failure != "" {
		c.answer(call, "", "Failed to load Codex configuration from overrides: "+failure, true)
		return
	}
	th := m.newThread(s, config, stringField(args, "base-instructions"), stringField(args, "developer-instructions"))
	m.load(th)
	m.mu.Lock()
	c.queues[th.ID] = &mockQueue{readers: []json.RawMessage{slices.Clone(call)}}
	m.mu.Unlock()
	m.event(th.ID, "", "session_configured", map[string]any{"session_id": th.ID, "model": s.Model,
		"model_provider_id": "mock", "approval_policy": s.approval(),
		"sandbox_policy": map[string]any{"type": s.sandbox()}, "cwd": s.Cwd, "rollout_path": m.home.path(th.ID)})
	m.event(th.ID, "", "mcp_startup_complete", map[string]any{"ready": []any{}, "failed": []any{},
		"cancelled": []any{}})
	c.turn(nil, th, stringField(args, "prompt"))
}

// turn runs a turn, or steers the turn that runs. call, if not nil, becomes one more reader of the thread.
func (c *mockMCP) turn(call json.RawMessage, th *mockThread, prompt string) {
	m, input := c.m, toJSON([]any{map[string]any{"type": "text", "text": prompt}})
	m.mu.Lock()
	q := c.queues[th.ID]
	if call != nil {
		q.readers = append(q.readers, slices.Clone(call))
	}
	active := th.active
	m.mu.Unlock()
	if active == nil || !active.steer(input, func() {}) {
		t := th.newTurn()
		if !t.begin("", nil) {
			return
		}
		go t.run(input) // ends with the turn or the process; turns counts it
	}
	m.mu.Lock()
	c.pumpLocked(th.ID, q)
	m.mu.Unlock()
}

// event tells one codex/event: mcp-server puts it into the thread's queue, app-server sends it at once.
func (m *mockServer) event(thread, turn, kind string, fields map[string]any) {
	fields["type"] = kind
	if m.mcp == nil {
		m.send("codex/event/"+kind, map[string]any{"id": turn, "msg": fields, "conversationId": thread})
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.mcp.queues[thread]
	if q == nil {
		return // a subagent's thread, of which mcp-server tells nothing
	}
	switch th := m.threads[thread]; kind {
	case "task_started":
		q.active = th.active
	case "task_complete", "turn_aborted":
		q.active = nil
	}
	q.events = append(q.events, mockEvent{turn, kind, fields})
	m.mcp.pumpLocked(thread, q)
}

// pumpLocked gives each event to any one of the calls that read the thread, and answers the call that read an end.
func (c *mockMCP) pumpLocked(thread string, q *mockQueue) {
	for len(q.events) > 0 && len(q.readers) > 0 {
		e := q.events[0]
		q.events = q.events[1:]
		i := rand.IntN(len(q.readers))
		call := q.readers[i]
		c.m.peer.notify("codex/event", map[string]any{"_meta": map[string]any{"requestId": call, "threadId": thread},
			"id": e.turn, "msg": e.fields})
		switch text, _ := e.fields["message"].(string); e.kind {
		case "error":
			c.answer(call, thread, text, true)
		case "task_complete":
			last, _ := e.fields["last_agent_message"].(string)
			c.answer(call, thread, last, false)
		default:
			continue
		}
		q.readers = slices.Delete(q.readers, i, i+1)
	}
	if c.eof && !c.open() {
		c.m.exit(0)
	}
}

// cancel interrupts the turn of the thread that a call reads. The call stays a reader.
func (c *mockMCP) cancel(call json.RawMessage) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	for _, q := range c.queues {
		if q.active != nil && slices.ContainsFunc(q.readers,
			func(r json.RawMessage) bool { return string(r) == string(call) }) {
			q.active.interruptLocked(nil)
		}
	}
}

// elicit asks for an approval by an elicitation, and gives the answer in app-server's words. An error as the answer
// hangs the turn, as it does the real one's. So does every question but an approval, which mcp-server asks nobody.
func (t *mockTurn) elicit(method string, params map[string]any) (json.RawMessage, mockEnd) {
	ask := map[string]any{"threadId": t.th.ID, "requestedSchema": map[string]any{"type": "object",
		"properties": map[string]any{}},
		"codex_mcp_tool_call_id": "0", "codex_event_id": t.id, "codex_call_id": params["itemId"]}
	switch method {
	case "item/commandExecution/requestApproval":
		ask["codex_elicitation"], ask["codex_command"] = "exec-approval", mockArgv(params)
		ask["codex_cwd"] = t.settings.Cwd
		ask["message"] = fmt.Sprintf("Allow Codex to run `%s` in `%s`?", params["command"], t.settings.Cwd)
	case "item/fileChange/requestApproval":
		ask["codex_elicitation"], ask["codex_changes"] = "patch-approval", mockChanges(t.shown)
		ask["message"] = "Allow Codex to apply proposed code changes?"
	default:
		return nil, t.wait(nil, false)
	}
	var result json.RawMessage
	answered := make(chan struct{})
	t.m.peer.call("elicitation/create", ask, 0, func(r json.RawMessage, err error) {
		if err == nil {
			result = r
			close(answered)
		}
	})
	if end := t.wait(answered, false); end != goOn {
		return nil, end
	}
	word, why := "failed", ""
	switch d := rawField(result, "decision"); {
	case rawKind(d) == '"':
		said, _ := rawString(d)
		word = map[string]string{"approved": "accept", "approved_for_session": "acceptForSession",
			"abort": "cancel"}[said]
		if said == "denied" && t.m.early {
			word = "decline"
		}
	case rawField(d, "approved_execpolicy_amendment") != nil:
		word = "acceptForSession"
	case rawField(d, "denied", "rejection") != nil && !t.m.early:
		word, why = "decline", stringField(d, "denied", "rejection")
	}
	return toJSON(map[string]any{"decision": word, "rejection": why}), goOn
}

// mockArgv is the command of an item, or of a question about an item.
func mockArgv(of map[string]any) []string {
	action, _ := of["commandActions"].([]any)[0].(map[string]any)
	line, _ := action["command"].(string)
	return []string{"/bin/bash", "-lc", line}
}

// mockChanges are an item's changes in the words of the first protocol.
func mockChanges(item map[string]any) map[string]any {
	changes := map[string]any{}
	for _, c := range item["changes"].([]any) {
		change := c.(map[string]any)
		kind := change["kind"].(map[string]any)
		old := map[string]any{"type": kind["type"], "content": change["diff"]}
		if kind["type"] == "update" {
			old = map[string]any{"type": "update", "unified_diff": change["diff"], "move_path": kind["move_path"]}
		}
		changes[change["path"].(string)] = old
	}
	return changes
}

// double tells by mcp-server's events what app-server tells by a notification or asks by a request.
func (m *mockServer) double(method string, params map[string]any) {
	if m.mcp == nil {
		return
	}
	thread, _ := params["threadId"].(string)
	turn, _ := params["turnId"].(string)
	view, _ := params["turn"].(map[string]any)
	if view != nil {
		turn = view["id"].(string)
	}
	item, _ := params["item"].(map[string]any)
	tell := func(kind string, fields map[string]any) { m.event(thread, turn, kind, fields) }
	switch method {
	case "turn/started":
		tell("task_started", map[string]any{"turn_id": turn, "model_context_window": 258400,
			"collaboration_mode_kind": "default"})
	case "turn/completed":
		if view["status"] == "interrupted" {
			tell("turn_aborted", map[string]any{"turn_id": turn, "reason": "interrupted"})
			return
		}
		last := ""
		for _, it := range view["items"].([]json.RawMessage) {
			last = stringField(it, "text")
		}
		tell("task_complete", map[string]any{"turn_id": turn, "last_agent_message": mockNull(last)})
	case "item/started", "item/completed":
		m.doubleItem(thread, turn, item, method == "item/completed")
	case "item/agentMessage/delta":
		tell("agent_message_content_delta", map[string]any{"thread_id": thread, "turn_id": turn,
			"item_id": params["itemId"], "delta": params["delta"]})
	case "item/reasoning/summaryTextDelta":
		tell("reasoning_content_delta", map[string]any{"thread_id": thread, "turn_id": turn,
			"item_id": params["itemId"], "delta": params["delta"], "summary_index": 0})
	case "item/commandExecution/outputDelta":
		chunk := base64.StdEncoding.EncodeToString([]byte(params["delta"].(string)))
		tell("exec_command_output_delta", map[string]any{"call_id": params["itemId"], "stream": "stdout",
			"chunk": chunk})
	case "turn/diff/updated":
		tell("turn_diff", map[string]any{"unified_diff": params["diff"]})
	case "thread/tokenUsage/updated":
		total := params["tokenUsage"].(map[string]any)["total"].(map[string]any)
		tell("token_count", map[string]any{
			"info": map[string]any{"model_context_window": 258400, "total_token_usage": map[string]any{
				"input_tokens": total["inputTokens"], "total_tokens": total["totalTokens"]}}})
	case "item/commandExecution/requestApproval":
		tell("exec_approval_request", map[string]any{"call_id": params["itemId"], "turn_id": turn,
			"command": mockArgv(params), "cwd": params["cwd"], "reason": params["reason"],
			"proposed_execpolicy_amendment": params["proposedExecpolicyAmendment"]})
	case "item/fileChange/requestApproval":
		m.mu.Lock()
		t := m.threads[thread].active
		m.mu.Unlock()
		tell("apply_patch_approval_request", map[string]any{"call_id": params["itemId"], "turn_id": turn,
			"changes": mockChanges(t.shown)})
	}
}

// doubleItem tells an item's start or end by events. Other kinds of items had none.
func (m *mockServer) doubleItem(thread, turn string, it map[string]any, completed bool) {
	tell := func(kind string, fields map[string]any) { m.event(thread, turn, kind, fields) }
	kind, end := "item_started", "begin"
	if completed {
		kind, end = "item_completed", "end"
	}
	item := map[string]any{"id": it["id"]}
	switch it["type"] {
	case "userMessage":
		item["type"], item["content"] = "UserMessage", it["content"]
	case "agentMessage":
		item["type"], item["content"] = "AgentMessage", []any{}
		if completed {
			item["content"] = []any{map[string]any{"type": "Text", "text": it["text"]}}
		}
	case "reasoning":
		item["type"], item["summary_text"], item["raw_content"] = "Reasoning", it["summary"], []any{}
	case "commandExecution":
		if it["status"] == "declined" || it["processId"] == nil { // it never ran
			return
		}
		e := map[string]any{"call_id": it["id"], "turn_id": turn, "command": mockArgv(it), "cwd": it["cwd"],
			"parsed_cmd": []any{map[string]any{"type": "unknown", "cmd": mockArgv(it)[2]}}}
		if completed {
			e["status"], e["aggregated_output"], e["exit_code"] = it["status"], it["aggregatedOutput"], it["exitCode"]
		}
		tell("exec_command_"+end, e)
		return
	case "fileChange":
		e := map[string]any{"call_id": it["id"], "turn_id": turn, "changes": mockChanges(it)}
		if completed {
			e["status"], e["success"] = it["status"], it["status"] == "completed"
		}
		tell("patch_apply_"+end, e)
		return
	default:
		return
	}
	tell(kind, map[string]any{"thread_id": thread, "turn_id": turn, "item": item})
}
