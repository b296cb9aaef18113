package main

// mock_version_test.go owns how the tests' codex looks as another version than the
// one that ships: what 0.104 and 0.153 told and answered, in which shape, and what
// 0.169 says beside. Recordings in testdata/mock hold it to that (mock_test.go).

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// answered is a result as it leaves.
func (x *testMock) answered(msg *message, result any) any {
	x.mu.Lock()
	mute := x.drop["mute "+msg.method] > 0
	if mute {
		x.drop["mute "+msg.method]--
	}
	x.mu.Unlock()
	fields, _ := result.(map[string]any)
	switch msg.method {
	case "thread/start", "thread/resume":
		x.opened = fields["thread"].(map[string]any)["id"].(string)
	case "thread/read":
		if string(rawField(msg.params, "includeTurns")) == "true" && !x.old() {
			x.m.notify("deprecationNotice", map[string]any{"summary": "Full-history hydration is deprecated for paginated threads; omit `includeTurns` or set it to `false`, then page with `thread/turns/list` and `thread/items/list`.", "details": nil})
		}
	case "turn/start":
		x.m.mu.Lock()
		th := x.m.threads[stringField(msg.params, "threadId")]
		t := th.active
		x.m.mu.Unlock()
		if !x.old() && t != nil {
			x.warn(t)
		}
	case "model/list":
		x.listed(fields["data"].([]any))
		result = x.paged(msg, fields["data"].([]any))
	case "mcpServerStatus/list":
		result = x.paged(msg, fields["data"].([]any))
	}
	switch {
	case mute || result == nil:
		return nil
	case x.old() && x.m.mcp == nil && msg.method != "config/read" && fields != nil:
		return x.stripped(toJSON(result))
	}
	return result
}

// warn tells that the model is unknown, before every turn.
func (x *testMock) warn(t *mockTurn) {
	if slices.Contains(x.models(), t.settings.Model) {
		return
	}
	text := "Model metadata for `" + t.settings.Model + "` not found. Defaulting to fallback metadata; this can degrade performance and cause issues."
	if x.m.mcp != nil || x.old() {
		t.event("warning", map[string]any{"message": text})
		return
	}
	x.m.tell(t.th, "warning", map[string]any{"threadId": t.th.ID, "message": text})
}

// told looks at what is told and asked before it leaves; false holds it back.
func (x *testMock) told(method string, params map[string]any) bool {
	if method == "thread/readState/changed" && !x.experimental {
		return false
	}
	id, _ := params["threadId"].(string)
	x.m.mu.Lock()
	th := x.m.threads[id]
	var t *mockTurn
	if th != nil {
		t = th.active
	}
	x.m.mu.Unlock()
	item, _ := params["item"].(map[string]any)
	if th != nil {
		x.mu.Lock()
		quiet := x.of(th).quiet
		x.mu.Unlock()
		if quiet && (method == "item/agentMessage/delta" || method == "thread/tokenUsage/updated" || method == "item/completed" && item["type"] == "agentMessage") {
			return false
		}
	}
	if method == "turn/started" && t != nil && !t.mute && (x.m.mcp != nil || x.old()) && stringField(toJSON(params["turn"]), "id") == t.id {
		x.warn(t)
	}
	switch {
	case x.m.mcp != nil && method == "item/tool/requestUserInput":
		x.m.event(id, t.id, "request_user_input", map[string]any{"call_id": params["itemId"], "turn_id": t.id, "questions": params["questions"]})
	case x.m.mcp != nil && method == "mcpServer/elicitation/request":
		x.m.event(id, t.id, "elicitation_request", map[string]any{"server_name": params["serverName"], "message": params["message"]})
	case x.m.mcp != nil:
	case x.old():
		return x.toldBy104(method, params, th, t, item)
	case !x.new():
		return method != "thread/settings/updated" && method != "thread/readState/changed"
	}
	return true
}

// toldBy104 tells in the shape of 0.104, which is what it was, and not more.
func (x *testMock) toldBy104(method string, params map[string]any, th *mockThread, t *mockTurn, item map[string]any) bool {
	m := x.m
	turn, _ := params["turnId"].(string)
	switch method {
	case "thread/status/changed", "thread/settings/updated", "thread/readState/changed", "serverRequest/resolved", "thread/closed":
		return false
	case "item/commandExecution/requestApproval", "item/fileChange/requestApproval", "item/tool/call", "item/tool/requestUserInput":
		for _, k := range []string{"kind", "environmentId", "startedAtMs", "availableDecisions", "namespace", "isBlocking", "autoResolutionMs"} {
			delete(params, k)
		}
		if method == "item/tool/call" {
			m.event(th.ID, turn, "dynamic_tool_call_request", map[string]any{"callId": params["callId"], "turnId": turn, "tool": params["tool"], "arguments": params["arguments"]})
		}
		return true
	case "turn/started":
		if t != nil && t.mute { // a compaction
			m.double(method, params)
			return false
		}
		if view := params["turn"].(map[string]any); t != nil && view["id"] != t.id { // a turn that nobody runs
			m.send(method, x.stripped(toJSON(params)).(map[string]any))
			return false
		}
	case "turn/completed":
		view := params["turn"].(map[string]any)
		if view["status"] == "interrupted" {
			m.killShells(th)
		}
		m.double(method, params)
		view["items"] = []any{}
		m.send(method, x.stripped(toJSON(params)).(map[string]any))
		return false
	case "item/started", "item/completed":
		code, _ := item["exitCode"].(int)
		switch {
		case item["type"] == "dynamicToolCall", // it shows none
			item["type"] == "commandExecution" && code < 0,                                             // its interrupt killed it
			item["type"] == "commandExecution" && method == "item/started" && item["processId"] == nil: // it starts once it may run
			return false
		}
	}
	m.double(method, params)
	shown := x.stripped(toJSON(params)).(map[string]any)
	m.send(method, shown)
	switch {
	case method == "item/completed" && item["type"] == "fileChange" && item["status"] == "declined":
		m.send(method, shown) // twice
	case method == "item/completed" && item["type"] == "userMessage" && x.reviewed(th):
		m.event(th.ID, turn, "user_message", map[string]any{"message": mockText(toJSON(item["content"])), "images": []any{}}) // twice
	case method == "item/started" && item["type"] == "reasoning":
		m.event(th.ID, turn, "agent_reasoning_section_break", map[string]any{"item_id": item["id"], "summary_index": 0})
	case method == "item/completed" && item["type"] == "contextCompaction":
		m.event(th.ID, turn, "context_compacted", map[string]any{})
		m.send("thread/compacted", map[string]any{"threadId": th.ID, "turnId": turn})
		m.event(th.ID, turn, "warning", map[string]any{"message": "Heads up: Long threads and multiple compactions can cause the model to be less accurate."})
	}
	return false
}

func (x *testMock) reviewed(th *mockThread) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of(th).review != nil
}

// stripped takes out of a message what 0.104 didn't have.
func (x *testMock) stripped(raw json.RawMessage) any {
	v := map[string]any{}
	_ = json.Unmarshal(raw, &v) // our own
	if thread, _ := v["thread"].(map[string]any); thread != nil && v["sandbox"] != nil {
		keepOnly(v, "thread", "model", "modelProvider", "cwd", "approvalPolicy", "sandbox", "reasoningEffort")
	}
	for _, k := range []string{"readState", "codexHome", "platformFamily", "platformOs", "startedAtMs", "completedAtMs", "contentTokenCount"} {
		delete(v, k)
	}
	x.strip(v)
	return v
}

func keepOnly(v map[string]any, keys ...string) {
	maps.DeleteFunc(v, func(k string, _ any) bool { return !slices.Contains(keys, k) })
}

// strip goes through threads, turns, items and what they hold.
func (x *testMock) strip(v map[string]any) {
	_, isItem := v["startedAtMs"]
	switch {
	case v["cliVersion"] != nil:
		keepOnly(v, "id", "preview", "modelProvider", "createdAt", "updatedAt", "path", "cwd", "cliVersion", "source", "gitInfo", "turns")
		if turns, _ := v["turns"].([]any); len(turns) > 0 {
			n := 0
			for _, turn := range turns {
				x.stripKept(turn.(map[string]any), &n)
			}
		}
	case v["itemsView"] != nil:
		keepOnly(v, "id", "items", "status", "error")
	case isItem && v["type"] != nil:
		for _, k := range []string{"phase", "memoryCitation", "delivery", "questions", "moderation", "clientId", "pluginId", "scriptPath", "startedAtMs", "completedAtMs",
			"appContext", "mcpAppUi", "readOnlyHint", "results", "source"} {
			delete(v, k)
		}
	case v["totalTokens"] != nil:
		delete(v, "cacheWriteInputTokens")
	case v["codexErrorInfo"] != nil:
		delete(v, "misalignment")
	}
	for k, val := range v {
		if k == "arguments" { // a tool's own
			continue
		}
		if sub, ok := val.(map[string]any); ok {
			x.strip(sub)
		}
		list, _ := val.([]any)
		for _, e := range list {
			if sub, ok := e.(map[string]any); ok {
				if k == "content" && sub["type"] != "text" && sub["detail"] == nil {
					delete(sub, "detail")
				}
				x.strip(sub)
			}
		}
	}
}

// stripKept: 0.104 keeps of a turn what was said in it, under ids of its own, and
// doesn't know that one failed, was cut off by the end of its process or still runs.
func (x *testMock) stripKept(turn map[string]any, n *int) {
	items := []any{}
	for _, it := range turn["items"].([]any) {
		item := it.(map[string]any)
		switch item["type"] {
		case "userMessage", "agentMessage", "reasoning", "enteredReviewMode", "exitedReviewMode", "contextCompaction":
			*n++
			item["id"] = fmt.Sprintf("item-%d", *n)
			items = append(items, item)
		}
	}
	turn["items"], turn["error"] = items, nil
	if turn["status"] != "interrupted" || turn["completedAt"] == nil {
		turn["status"] = "completed"
	}
}
