package main

// mock_item.go owns how the mock Codex shows a turn: items and deltas in each
// version's shape, status, token counts, the codex/event doubles of 0.104,
// and what the model says. The turn's goroutine calls it, shells' goroutines
// for their late items. It must never wait.

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// tell sends a notification about a thread. Who has unsubscribed hears only
// of its status (0.169).
func (m *mockServer) tell(th *mockThread, method string, params any) {
	m.mu.Lock()
	deaf := th.deaf
	m.mu.Unlock()
	if !deaf || method == "thread/status/changed" {
		m.notify(method, params)
	}
}

// tell sends a notification with threadId and turnId put in.
func (t *mockTurn) tell(method string, params map[string]any) {
	params["threadId"] = t.th.ID
	if params["turn"] == nil && params["status"] == nil && params["readState"] == nil {
		params["turnId"] = t.id
	}
	t.m.tell(t.th, method, params)
}

// event sends the codex/event/* double that 0.104 puts beside its
// notifications.
func (m *mockServer) event(thread, turn, kind string, fields map[string]any) {
	fields["type"] = kind
	if m.mcp != nil {
		m.mcpEvent(thread, turn, kind, fields)
		return
	}
	m.notify("codex/event/"+kind, map[string]any{"id": turn, "msg": fields, "conversationId": thread})
}

// tellsEvents: in the words of the first protocol.
func (m *mockServer) tellsEvents() bool { return m.old() || m.mcp != nil }

func (t *mockTurn) event(kind string, fields map[string]any) {
	if t.m.tellsEvents() {
		t.m.event(t.th.ID, t.id, kind, fields)
	}
}

// setStatus makes and tells a thread's status; versions before 0.148 have none.
func (m *mockServer) setStatus(th *mockThread, status any) {
	m.mu.Lock()
	th.status = status
	m.mu.Unlock()
	if !m.old() {
		m.tell(th, "thread/status/changed", map[string]any{"threadId": th.ID, "status": status})
	}
}

func (t *mockTurn) setStatus(kind string, flags ...string) {
	status := map[string]any{"type": kind}
	if kind == "active" {
		status["activeFlags"] = append([]string{}, flags...)
	}
	t.m.setStatus(t.th, status)
}

// warn tells that the model is unknown, before every turn.
func (t *mockTurn) warn() {
	if slices.Contains(t.m.models(), t.settings.Model) {
		return
	}
	text := "Model metadata for `" + t.settings.Model + "` not found. Defaulting to fallback metadata; this can degrade performance and cause issues."
	if t.m.tellsEvents() {
		t.event("warning", map[string]any{"message": text})
		return
	}
	t.m.tell(t.th, "warning", map[string]any{"threadId": t.th.ID, "message": text})
}

// item makes an item with the fields that the version has for its type.
func (t *mockTurn) item(kind, id string, fields map[string]any) map[string]any {
	it := map[string]any{"type": kind, "id": id}
	maps.Copy(it, fields)
	if t.m.old() {
		return it
	}
	switch kind {
	case "agentMessage":
		for _, k := range []string{"phase", "memoryCitation", "delivery", "questions"} {
			if it[k] == nil {
				it[k] = nil
			}
		}
		if t.m.new() {
			it["moderation"] = nil
		}
	case "userMessage":
		it["clientId"] = nil
	case "commandExecution":
		it["pluginId"], it["scriptPath"] = nil, nil
	case "mcpToolCall":
		if t.m.new() {
			it["appContext"], it["mcpAppUi"], it["pluginId"], it["readOnlyHint"] = nil, nil, nil, nil
		}
	}
	if t.m.new() {
		it["startedAtMs"], it["completedAtMs"] = nil, nil
	}
	return it
}

func (t *mockTurn) started(it map[string]any) {
	params := map[string]any{"item": it}
	if !t.m.old() {
		now := time.Now().UnixMilli()
		params["startedAtMs"] = now
		if t.m.new() {
			it["startedAtMs"] = now
		}
	}
	t.double(it, false)
	t.tell("item/started", params)
	if t.m.old() && it["type"] == "reasoning" {
		t.event("agent_reasoning_section_break", map[string]any{"item_id": it["id"], "summary_index": 0})
	}
}

func (t *mockTurn) completed(it map[string]any) {
	params := map[string]any{"item": it}
	if !t.m.old() {
		now := time.Now().UnixMilli()
		params["completedAtMs"] = now
		if t.m.new() {
			it["completedAtMs"] = now
			params["contentTokenCount"] = nil
		}
	}
	t.double(it, true)
	raw := toJSON(it)
	t.m.mu.Lock()
	t.rec.Items = append(t.rec.Items, raw)
	t.m.mu.Unlock()
	t.tell("item/completed", params)
	switch text, _ := it["text"].(string); it["type"] {
	case "userMessage":
		for n := 0; n == 0 || n == 1 && t.review; n++ { // in a review 0.104 says it twice
			t.event("user_message", map[string]any{"message": mockText(toJSON(it["content"])), "images": []any{}, "local_images": []any{}, "text_elements": []any{}})
		}
	case "agentMessage":
		t.event("agent_message", map[string]any{"message": text})
	case "reasoning":
		t.event("agent_reasoning", map[string]any{"text": it["summary"].([]string)[0]})
	}
}

// double is the codex/event that comes before item/started or completed.
func (t *mockTurn) double(it map[string]any, completed bool) {
	if !t.m.tellsEvents() {
		return
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
	case "contextCompaction":
		item["type"] = "ContextCompaction"
	case "webSearch":
		item["type"], item["query"], item["action"] = "WebSearch", it["query"], it["action"]
	case "commandExecution":
		if it["status"] == "declined" || it["processId"] == nil {
			return
		}
		line := stringField(toJSON(it["commandActions"].([]any)[0]), "command")
		e := map[string]any{"call_id": it["id"], "process_id": it["processId"], "turn_id": t.id, "command": []string{"/bin/bash", "-lc", line},
			"cwd": it["cwd"], "parsed_cmd": []any{map[string]any{"type": "unknown", "cmd": line}}, "source": "unified_exec_startup"}
		if !completed {
			t.event("exec_command_begin", e)
			return
		}
		for k, v := range map[string]any{"stdout": it["aggregatedOutput"], "stderr": "", "aggregated_output": it["aggregatedOutput"], "exit_code": it["exitCode"],
			"duration": map[string]any{"secs": 0, "nanos": 1}, "formatted_output": it["aggregatedOutput"], "status": it["status"]} {
			e[k] = v
		}
		t.event("exec_command_end", e)
		return
	case "fileChange":
		changes := t.change.old()
		if !completed {
			t.event("patch_apply_begin", map[string]any{"call_id": it["id"], "turn_id": t.id, "auto_approved": t.settings.sandbox() != "readOnly", "changes": changes})
			return
		}
		t.event("patch_apply_end", map[string]any{"call_id": it["id"], "turn_id": t.id, "stdout": "", "stderr": "", "success": it["status"] == "completed", "changes": changes, "status": it["status"]})
		return
	default:
		return // 0.104 has no item events for the others
	}
	kind := "item_started"
	if completed {
		kind = "item_completed"
	}
	t.event(kind, map[string]any{"thread_id": t.th.ID, "turn_id": t.id, "item": item})
}

func (t *mockTurn) userMessage(input json.RawMessage, text string) {
	var parts []map[string]any
	_ = json.Unmarshal(input, &parts) // turnStart has seen that it is an array
	content := []any{}
	for _, p := range parts {
		if p["type"] == "text" && p["text_elements"] == nil {
			p["text_elements"] = []any{}
		}
		if p["type"] != "text" && p["detail"] == nil && !t.m.old() {
			p["detail"] = nil
		}
		content = append(content, p)
	}
	t.m.mu.Lock()
	t.rec.Texts = append(t.rec.Texts, text)
	t.m.mu.Unlock()
	it := t.item("userMessage", newMockID(), map[string]any{"content": content})
	t.started(it)
	t.completed(it)
	t.requested()
}

// requested is what 0.104 shows as a model request begins: the counts so far.
func (t *mockTurn) requested() {
	if !t.m.old() || t.review { // not 0.153 over mcp-server either
		return
	}
	t.m.mu.Lock()
	some := t.th.total > 0
	t.m.mu.Unlock()
	if some {
		t.showCounts(0)
		return
	}
	t.event("token_count", map[string]any{"info": nil, "rate_limits": mockLimits(true)})
	t.m.notify("account/rateLimits/updated", map[string]any{"rateLimits": mockLimits(false)})
}

// counts adds one model request to the thread's tokens and shows them.
func (t *mockTurn) counts() {
	if t.review {
		return
	}
	t.m.mu.Lock()
	t.th.totalIn += t.usage
	t.th.total += t.usage + 20
	t.m.mu.Unlock()
	t.showCounts(t.usage)
}

func (t *mockTurn) showCounts(in int) {
	t.m.mu.Lock()
	totalIn, total := t.th.totalIn, t.th.total
	t.m.mu.Unlock()
	use := func(in, all int) map[string]any {
		u := map[string]any{"totalTokens": all, "inputTokens": in, "cachedInputTokens": 0, "outputTokens": all - in, "reasoningOutputTokens": 0}
		if t.m.new() {
			u["cacheWriteInputTokens"] = 0
		}
		return u
	}
	if in == 0 {
		in = t.usage
	}
	t.event("token_count", map[string]any{"info": map[string]any{"total_token_usage": map[string]any{"input_tokens": totalIn, "total_tokens": total}, "model_context_window": 258400}, "rate_limits": mockLimits(true)})
	t.tell("thread/tokenUsage/updated", map[string]any{"tokenUsage": map[string]any{"total": use(totalIn, total), "last": use(in, in+20), "modelContextWindow": 258400}})
	t.m.notify("account/rateLimits/updated", map[string]any{"rateLimits": mockLimits(false)})
}

func mockLimits(snake bool) map[string]any {
	if snake {
		return map[string]any{"limit_id": "codex", "limit_name": nil, "primary": nil, "secondary": nil, "credits": nil, "plan_type": nil}
	}
	return map[string]any{"limitId": "codex", "limitName": nil, "primary": nil, "secondary": nil, "credits": nil, "planType": nil}
}

// mockPieces cuts a text as the scripted model API does, into deltas.
func mockPieces(text string, n int) []string {
	runes := []rune(text)
	if n == 0 {
		n = min(6, max(3, (len(runes)+39)/40))
	}
	size := max(1, (len(runes)+n-1)/n)
	var pieces []string
	for len(runes) > 0 {
		k := min(size, len(runes))
		pieces = append(pieces, string(runes[:k]))
		runes = runes[k:]
	}
	return pieces
}

// say is the model's answer: item, deltas, item, counts.
func (t *mockTurn) say(text string, phase any) mockEnd {
	it := t.messageBegin(phase)
	for _, p := range mockPieces(text, 0) {
		t.delta(it, p)
	}
	t.messageEnd(it, text)
	return goOn
}

func (t *mockTurn) messageBegin(phase any) map[string]any {
	if t.toolLast {
		t.requested()
	}
	fields := map[string]any{"text": ""}
	if phase != nil {
		fields["phase"] = phase
	}
	it := t.item("agentMessage", t.m.newID("msg"), fields)
	t.started(it)
	return it
}

func (t *mockTurn) delta(it map[string]any, piece string) {
	if t.review {
		return
	}
	t.event("agent_message_content_delta", map[string]any{"thread_id": t.th.ID, "turn_id": t.id, "item_id": it["id"], "delta": piece})
	t.tell("item/agentMessage/delta", map[string]any{"itemId": it["id"], "delta": piece})
	if t.m.old() {
		t.event("agent_message_delta", map[string]any{"delta": piece})
	}
}

func (t *mockTurn) messageEnd(it map[string]any, text string) {
	it["text"] = text
	t.final, t.toolLast, t.said = toJSON(it), false, true
	if t.review {
		return // of what it says only the beginning is told
	}
	t.completed(it)
	t.counts()
}

// lateMessage is an item after its turn has ended.
func (t *mockTurn) lateMessage(text string) {
	it := t.item("agentMessage", t.m.newID("msg"), map[string]any{"text": ""})
	t.started(it)
	it["text"] = text
	t.completed(it)
}

// fail shows an error and ends the turn.
func (t *mockTurn) fail(message string, info any, snake any) mockEnd {
	t.err = t.errorView(message, info, nil)
	t.event("error", map[string]any{"message": message, "codex_error_info": snake})
	if !t.m.old() {
		t.setStatus("systemError")
	}
	t.tell("error", map[string]any{"error": t.err, "willRetry": false})
	return failed
}

// retrying shows an error that Codex gets over by itself.
func (t *mockTurn) retrying(message string, details any) {
	t.event("stream_error", map[string]any{"message": message, "additional_details": details,
		"codex_error_info": map[string]any{"response_stream_disconnected": map[string]any{"http_status_code": nil}}})
	info := map[string]any{"responseStreamDisconnected": map[string]any{"httpStatusCode": nil}}
	t.tell("error", map[string]any{"error": t.errorView(message, info, details), "willRetry": true})
}

func (t *mockTurn) errorView(message string, info, details any) map[string]any {
	v := map[string]any{"message": message, "codexErrorInfo": info, "additionalDetails": details}
	if !t.m.old() {
		v["misalignment"] = nil
	}
	return v
}

// toolBegins is a model request whose answer is a tool call. 0.104 shows its
// tokens before the tool runs, later ones behind (toolEnded).
func (t *mockTurn) toolBegins() {
	if t.toolLast {
		t.requested()
	}
	if t.m.old() {
		t.counts()
	}
}

func (t *mockTurn) toolEnded() {
	if !t.m.old() {
		t.counts()
	}
}

// told is what a tool answered the model.
func (t *mockTurn) told(text string) {
	t.last, t.toolLast = text, true
}

// outputDelta shows output of a command as it comes.
func (t *mockTurn) outputDelta(id, text string) {
	t.event("exec_command_output_delta", map[string]any{"call_id": id, "stream": "stdout", "chunk": base64.StdEncoding.EncodeToString([]byte(text))})
	t.tell("item/commandExecution/outputDelta", map[string]any{"itemId": id, "delta": text})
}
