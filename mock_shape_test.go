package main

// mock_shape_test.go owns how the tests' codex looks as each version. The mock that ships
// says what clients of its own need; here stands what only tests read of the real ones, and
// what 0.104 doesn't say. Fields that nobody reads are left out.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// dress adds to what is told, asked or answered the fields that the version has.
func (x *testMock) dress(method string, params map[string]any) {
	if thread, ok := params["thread"].(map[string]any); ok {
		x.dressThread(thread)
	}
	if method == "item/commandExecution/requestApproval" {
		line := mockArgv(params)[2]
		amend := []string{"/bin/bash", "-lc", line}
		if !strings.ContainsAny(line, "><|;&$`'\"") {
			amend = strings.Fields(line)
		}
		params["proposedExecpolicyAmendment"] = amend
		if !x.old() {
			rule := map[string]any{"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": amend}}
			params["availableDecisions"] = []any{"accept", rule, "cancel"}
		}
	}
	if turn, ok := params["turn"].(map[string]any); ok && !x.old() {
		turn["rootTurnId"] = turn["id"]
	}
}

// dressThread makes a thread's view that of the version.
func (x *testMock) dressThread(view map[string]any) {
	m := x.m
	th := m.thread(view["id"].(string))
	if th == nil {
		th, _ = m.home.read(view["id"].(string)) // a view is of a thread that is there
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	updated := th.Created
	if n := len(th.turns); n > 0 {
		updated = th.turns[n-1].Started
	}
	view["cwd"], view["updatedAt"] = th.Settings.Cwd, updated
	turns, _ := view["turns"].([]any)
	if !x.old() {
		view["parentThreadId"] = mockNull(th.Parent)
		for _, turn := range turns {
			turn.(map[string]any)["rootTurnId"] = turn.(map[string]any)["id"]
		}
		return
	}
	delete(view, "status")
	delete(view, "name")
	n := 0
	for _, turn := range turns {
		x.stripKept(turn.(map[string]any), &n)
	}
}

// dressOpened makes the answer to the opening of a thread that of the version, and keeps others from the thread.
func (x *testMock) dressOpened(msg *message, opened map[string]any) {
	view := opened["thread"].(map[string]any)
	x.opened = view["id"].(string)
	x.dressThread(view)
	th := x.m.thread(x.opened)
	opened["approvalPolicy"], opened["sandbox"] = th.Settings.Approval, th.Settings.Sandbox
	if msg.method != "thread/resume" && !th.Ephemeral { // nothing of an ephemeral thread is on disk
		x.lock(th.ID)
	}
	if x.old() {
		delete(opened, "collaborationMode")
	}
}

// double tells by events what is told by a notification, and what the mock that ships has no events for: errors,
// searches, compactions, and what the first protocol said a second time.
func (x *testMock) double(method string, params map[string]any) {
	m := x.m
	m.double(method, params)
	thread, _ := params["threadId"].(string)
	turn, _ := params["turnId"].(string)
	item, _ := params["item"].(map[string]any)
	tell := func(kind string, fields map[string]any) { m.event(thread, turn, kind, fields) }
	switch method {
	case "error":
		e := params["error"].(map[string]any)
		if params["willRetry"] == true {
			info := map[string]any{"response_stream_disconnected": map[string]any{"http_status_code": nil}}
			tell("stream_error", map[string]any{"message": e["message"], "codex_error_info": info,
				"additional_details": e["additionalDetails"]})
			return
		}
		tell("error", map[string]any{"message": e["message"], "codex_error_info": mockSnake(e["codexErrorInfo"])})
	case "item/reasoning/summaryTextDelta":
		tell("agent_reasoning_delta", map[string]any{"delta": params["delta"]})
	case "item/started", "item/completed":
		old := map[string]any{"id": item["id"]}
		switch item["type"] {
		case "contextCompaction":
			old["type"] = "ContextCompaction"
		case "webSearch":
			old["type"], old["query"], old["action"] = "WebSearch", item["query"], item["action"]
		}
		if old["type"] != nil {
			tell(strings.Replace(method, "/", "_", 1), map[string]any{"thread_id": thread, "turn_id": turn,
				"item": old})
		}
		if method == "item/started" {
			return
		}
		switch item["type"] {
		case "userMessage":
			tell("user_message", map[string]any{"message": mockText(toJSON(item["content"])), "images": []any{},
				"local_images": []any{}, "text_elements": []any{}})
		case "agentMessage":
			tell("agent_message", map[string]any{"message": item["text"]})
		case "reasoning":
			tell("agent_reasoning", map[string]any{"text": item["summary"].([]string)[0]})
		}
	}
}

// mockSnake is the word of an error's kind as the first protocol writes it.
func mockSnake(info any) any {
	word, ok := info.(string)
	if !ok {
		return "other"
	}
	var snake strings.Builder
	for _, r := range word {
		if r >= 'A' && r <= 'Z' {
			snake.WriteByte('_')
			r += 'a' - 'A'
		}
		snake.WriteRune(r)
	}
	return snake.String()
}

// stripped takes out of a message what 0.104 didn't have.
func (x *testMock) stripped(raw json.RawMessage) any {
	v := map[string]any{}
	_ = json.Unmarshal(raw, &v) // our own
	for _, k := range []string{"codexHome", "platformFamily", "platformOs"} {
		delete(v, k)
	}
	x.strip(v)
	return v
}

// strip goes through items and what holds them.
func (x *testMock) strip(v map[string]any) {
	if v["type"] != nil && v["id"] != nil {
		delete(v, "phase")
		delete(v, "source")
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
				x.strip(sub)
			}
		}
	}
}

// stripKept: 0.104 keeps of a turn what was said in it, under ids of its own, and
// doesn't know that one failed, was cut off by the end of its process or still runs.
func (x *testMock) stripKept(turn map[string]any, n *int) {
	items := []any{}
	for _, raw := range turn["items"].([]json.RawMessage) {
		item := map[string]any{}
		_ = json.Unmarshal(raw, &item) // our own
		if slices.Contains([]string{"userMessage", "agentMessage", "reasoning", "enteredReviewMode", "exitedReviewMode",
			"contextCompaction"}, item["type"].(string)) {
			*n++
			item["id"] = fmt.Sprintf("item-%d", *n)
			items = append(items, item)
		}
	}
	turn["items"], turn["error"] = items, nil
	if turn["status"] != "interrupted" || turn["completedAt"] == nil {
		turn["status"] = "completed"
	}
	delete(turn, "completedAt")
}
