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

// double tells by mcp-server's events what is told by a notification; of errors the mock that ships has none.
func (x *testMock) double(method string, params map[string]any) {
	x.m.double(method, params)
	if method != "error" {
		return
	}
	thread, _ := params["threadId"].(string)
	turn, _ := params["turnId"].(string)
	e := params["error"].(map[string]any)
	x.m.event(thread, turn, "error", map[string]any{"message": e["message"], "codex_error_info": "other"})
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
