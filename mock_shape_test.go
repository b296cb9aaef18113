package main

// mock_shape_test.go owns how the tests' codex looks as each version. The mock that ships
// says what clients of ours read; here stands what the real ones say besides: the fields
// that 0.148 and later add to threads, turns, items and questions, the marks that only
// they keep (what is unread, which settings hold), and what 0.104 doesn't say.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// addNulls adds the fields that the mock has nothing for.
func addNulls(to map[string]any, names string) {
	for _, name := range strings.Fields(names) {
		if _, has := to[name]; !has {
			to[name] = nil
		}
	}
}

// dress adds to what is told, asked or answered the fields that the version has.
func (x *testMock) dress(method string, params map[string]any) {
	if thread, ok := params["thread"].(map[string]any); ok {
		x.dressThread(thread)
	}
	if item, ok := params["item"].(map[string]any); ok {
		x.dressItem(item)
	}
	switch method {
	case "item/commandExecution/requestApproval":
		line := mockArgv(params)[2]
		amend := []string{"/bin/bash", "-lc", line}
		if !strings.ContainsAny(line, "><|;&$`'\"") {
			amend = strings.Fields(line)
		}
		params["proposedExecpolicyAmendment"] = amend
		if !x.old() {
			params["kind"], params["environmentId"] = "command", "local"
			rule := map[string]any{"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": amend}}
			params["availableDecisions"] = []any{"accept", rule, "cancel"}
		}
	case "item/fileChange/requestApproval":
		addNulls(params, "reason grantRoot")
	}
	if x.old() {
		return
	}
	if turn, ok := params["turn"].(map[string]any); ok {
		dressTurn(turn)
	}
	now := time.Now().UnixMilli()
	switch method {
	case "item/started", "item/commandExecution/requestApproval", "item/fileChange/requestApproval":
		params["startedAtMs"] = now
	case "item/completed":
		params["completedAtMs"], params["contentTokenCount"] = now, nil
	}
}

func (x *testMock) dressItem(item map[string]any) {
	if input, ok := item["content"].(json.RawMessage); ok { // of a userMessage
		var parts []map[string]any
		_ = json.Unmarshal(input, &parts) // the mock has seen that it is an array
		content := []any{}
		for _, p := range parts {
			if p["type"] == "text" && p["text_elements"] == nil {
				p["text_elements"] = []any{}
			}
			if p["type"] != "text" && !x.old() {
				addNulls(p, "detail")
			}
			content = append(content, p)
		}
		item["content"] = content
	}
	if !x.old() {
		addNulls(item, "startedAtMs completedAtMs "+map[string]string{"userMessage": "clientId",
			"agentMessage":     "phase memoryCitation delivery questions moderation",
			"commandExecution": "pluginId scriptPath"}[item["type"].(string)])
	}
}

func dressTurn(turn map[string]any) {
	turn["itemsView"], turn["rootTurnId"] = "full", turn["id"]
	addNulls(turn, "startedAt completedAt durationMs")
}

// dressThread makes a thread's view that of the version.
func (x *testMock) dressThread(view map[string]any) {
	m := x.m
	th, loaded := m.thread(view["id"].(string)), true
	if th == nil {
		loaded = false
		th, _ = m.home.read(view["id"].(string)) // a view is of a thread that is there
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	updated, s := th.Created, th.Settings
	if n := len(th.turns); n > 0 {
		updated = th.turns[n-1].Started
	}
	maps.Copy(view, map[string]any{"modelProvider": mockProvider(th), "cwd": s.Cwd, "createdAt": th.Created,
		"updatedAt": updated, "cliVersion": m.version, "source": "vscode", "gitInfo": nil, "path": nil})
	if !th.Ephemeral {
		view["path"] = m.home.path(th.ID)
	}
	turns, _ := view["turns"].([]any)
	if x.old() {
		delete(view, "status")
		delete(view, "name")
		n := 0
		for _, turn := range turns {
			x.stripKept(turn.(map[string]any), &n)
		}
		return
	}
	for _, turn := range turns {
		dressTurn(turn.(map[string]any))
	}
	maps.Copy(view, map[string]any{"model": s.Model, "reasoningEffort": mockNull(s.Effort), "recencyAt": updated,
		"sessionId": th.ID, "parentThreadId": mockNull(th.Parent), "ephemeral": th.Ephemeral,
		"historyMode": "paginated", "originator": m.client.name})
	if loaded {
		view["canAcceptDirectInput"] = th.Parent == ""
		view["environments"] = []any{map[string]any{"environmentId": "local", "cwd": s.Cwd,
			"runtimeWorkspaceRoots": []any{s.Cwd}}}
	}
	addNulls(view, "extra forkedFromId section sectionEnteredAt projectId threadSource agentNickname agentRole "+
		"attachedToThreadId daybreakEnabled canAcceptDirectInput environments")
}

func mockProvider(th *mockThread) string {
	return cmp.Or(mockString(th.config, "model_provider"), "openai")
}

// dressOpened makes the answer to the opening of a thread that of the version, and keeps others from the thread.
func (x *testMock) dressOpened(msg *message, opened map[string]any) {
	view := opened["thread"].(map[string]any)
	x.opened = view["id"].(string)
	x.dressThread(view)
	th := x.m.thread(x.opened)
	s := th.Settings
	maps.Copy(opened, map[string]any{"modelProvider": mockProvider(th), "cwd": s.Cwd, "approvalPolicy": s.Approval,
		"sandbox": s.Sandbox})
	if msg.method != "thread/resume" && !th.Ephemeral { // nothing of an ephemeral thread is on disk
		x.lock(th.ID)
	}
	x.mu.Lock()
	of := x.of(th)
	of.settings = string(toJSON(s))
	if msg.method == "thread/start" {
		of.byDefault = isNull(rawField(msg.params, "sandbox")) && mockString(th.config, "sandbox_mode") == ""
	}
	byDefault := of.byDefault
	x.mu.Unlock()
	if x.old() {
		delete(opened, "collaborationMode")
		return
	}
	profile := map[string]string{"readOnly": ":read-only", "workspaceWrite": ":workspace"}[s.sandbox()]
	if opened["activePermissionProfile"] = nil; byDefault && profile != "" {
		opened["activePermissionProfile"] = map[string]any{"id": profile, "extends": nil}
	}
	maps.Copy(opened, map[string]any{"serviceTier": nil, "runtimeWorkspaceRoots": []any{s.Cwd},
		"instructionSources": []any{}, "approvalsReviewer": "user", "multiAgentMode": "explicitRequestOnly",
		"disabledPluginIds": []any{}})
	if s.Collaboration != "" {
		opened["collaborationMode"] = s.collaborationMode()
	}
}

func (s mockSettings) collaborationMode() any {
	return map[string]any{"mode": cmp.Or(s.Collaboration, "default"), "settings": map[string]any{"model": s.Model,
		"reasoning_effort": mockNull(s.Effort), "developer_instructions": nil}}
}

// dressRead does the same for thread/read.
func (x *testMock) dressRead(read map[string]any) {
	view := read["thread"].(map[string]any)
	x.dressThread(view)
	if !x.old() {
		turns, _ := view["turns"].([]any)
		read["readState"] = readState(turns)
	}
}

// readState is the mark of what a person hasn't read yet.
func readState(turns []any) map[string]any {
	var first any
	if len(turns) > 0 {
		first = map[string]any{"type": "turn", "turnId": turns[0].(map[string]any)["id"]}
	}
	return map[string]any{"firstUnread": first, "revision": newMockID()}
}

// ending tells that there is something to read.
func (x *testMock) ending(t *mockTurn, end mockEnd) {
	if end != interrupted && !t.mute && x.experimental && x.new() && x.m.mcp == nil {
		t.th.tell("thread/readState/changed", map[string]any{"threadId": t.th.ID,
			"readState": readState(t.th.turnViews(true))})
	}
}

// settingsChanged tells the settings of a thread if a request with params has changed them.
func (x *testMock) settingsChanged(th *mockThread, params json.RawMessage) {
	x.m.mu.Lock()
	s := th.Settings
	x.m.mu.Unlock()
	x.mu.Lock()
	of, now := x.of(th), string(toJSON(s))
	asked := of.byDefault && !isNull(rawField(params, "sandboxPolicy"))
	changed := asked || of.settings != now
	of.settings, of.byDefault = now, of.byDefault && !asked
	x.mu.Unlock()
	if !changed || !x.new() {
		return
	}
	settings := map[string]any{"approvalPolicy": s.Approval, "approvalsReviewer": "user", "cwd": s.Cwd,
		"effort": mockNull(s.Effort), "disabledPluginIds": []any{}, "environments": []any{},
		"collaborationMode": s.collaborationMode(), "model": s.Model, "modelProvider": "openai",
		"multiAgentMode": "explicitRequestOnly", "sandboxPolicy": s.Sandbox, "summary": "auto"}
	addNulls(settings, "activePermissionProfile personality serviceTier")
	th.tell("thread/settings/updated", map[string]any{"threadId": th.ID, "threadSettings": settings})
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

// strip goes through items, errors and what holds them.
func (x *testMock) strip(v map[string]any) {
	switch {
	case v["type"] != nil && v["id"] != nil:
		for _, k := range []string{"phase", "appContext", "mcpAppUi", "pluginId", "readOnlyHint", "results", "source"} {
			delete(v, k)
		}
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
