package main

// mock_directive.go owns the directives of the mock Codex's prompts: their
// table, and those by which the model says and asks for something;
// mock_exec.go has what it does, mock_fault.go what goes wrong. They run on the
// turn's goroutine. A wait must go through mockTurn.wait, or an interrupt would
// find nobody.

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mockDirectives are the words that a prompt line can begin with.
func mockDirectives() map[string]func(*mockTurn, string) mockEnd {
	return map[string]func(*mockTurn, string) mockEnd{
		"SAY":               func(t *mockTurn, a string) mockEnd { return t.say(a, nil) },
		"COMMENTARY":        func(t *mockTurn, a string) mockEnd { return t.say(a, "commentary") },
		"SLOW":              slowDirective,
		"STAMP":             stampDirective,
		"BIG":               bigDirective,
		"REASON":            reasonDirective,
		"ECHO_INSTRUCTIONS": echoDirective,
		"ECHO_INPUT":        echoInputDirective,
		"ECHO_SETTINGS":     func(t *mockTurn, _ string) mockEnd { return t.say(string(toJSON(t.settings)), nil) },
		"USAGE":             func(*mockTurn, string) mockEnd { return goOn }, // heed has read it
		"SHELL":             shellDirective,
		"SHELLESC":          shellEscDirective,
		"BACKGROUND":        backgroundDirective,
		"GRANDCHILD":        grandchildDirective,
		"PATCH":             patchDirective,
		"EDIT":              editDirective,
		"DELETE":            deleteDirective,
		"MOVE":              moveDirective,
		"OUTPUT":            outputDirective,
		"VIEW":              viewDirective,
		"WEBSEARCH":         webSearchDirective,
		"PLAN":              planDirective,
		"PLANITEM":          planItemDirective,
		"CALL":              callDirective,
		"CALLMCP":           mcpToolDirective,
		"PERMISSIONS":       permissionsDirective,
		"ASK":               askDirective,
		"MCPASK":            mcpAskDirective,
		"TOOL":              toolDirective,
		"TOOLS":             toolsDirective,
		"MCPTOOL":           mcpToolDirective,
		"SUBAGENT":          subagentDirective,
		"FAIL":              failDirective,
		"NOTLOGGEDIN": func(t *mockTurn, _ string) mockEnd {
			return failDirective(t, "401 Missing bearer or basic authentication in header")
		},
		"RETRY":            retryDirective,
		"OFFLINE":          offlineDirective,
		"HANG":             func(t *mockTurn, _ string) mockEnd { return t.wait(nil, true) },
		"STALL":            stallDirective,
		"ENDING":           endingDirective,
		"ON_MAIL":          onMailDirective,
		"IGNORE_INTERRUPT": func(*mockTurn, string) mockEnd { return goOn }, // heed has read it
		"DROP":             dropDirective,
		"REFUSE":           func(t *mockTurn, a string) mockEnd { return dropDirective(t, "refuse "+a) },
		"MUTE":             func(t *mockTurn, a string) mockEnd { return dropDirective(t, "mute "+a) },
		"GATE":             gateDirective,
		"FLOOD":            floodDirective,
		"UNKNOWN":          unknownDirective,
		"LATE":             lateDirective,
		"DIE":              dieDirective,
		"KILLSELF":         killSelfDirective,
		"CLOSEOUT":         closeOutDirective,
		"NOEOF":            func(t *mockTurn, _ string) mockEnd { t.m.noEOF.Store(true); t.told("EOF is ignored"); return goOn },
		"NOTERM": func(t *mockTurn, _ string) mockEnd {
			signal.Ignore(syscall.SIGTERM)
			t.told("TERM is ignored")
			return goOn
		},
	}
}

// endingDirective keeps a line for the prompt that will ask for a summary.
func endingDirective(t *mockTurn, arg string) mockEnd {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.th.ending = append(t.th.ending, arg)
	return goOn
}

// onMailDirective: ON_MAIL directive, which prompts that bring mail then have:
// what stands in the mail itself is in JSON, and none.
func onMailDirective(t *mockTurn, arg string) mockEnd {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.th.onMail = append(t.th.onMail, arg)
	return goOn
}

// mockCount reads a leading number, with a fallback.
func mockCount(arg string, fallback int) (int, string) {
	word, rest, _ := strings.Cut(arg, " ")
	n, err := strconv.Atoi(word)
	if err != nil {
		return fallback, arg
	}
	return n, strings.TrimSpace(rest)
}

// slowDirective spreads a text over some milliseconds.
func slowDirective(t *mockTurn, arg string) mockEnd {
	ms, text := mockCount(arg, 1000)
	if text == "" {
		text = fmt.Sprintf("slow answer after %d ms, in small pieces", ms)
	}
	n := max(4, (ms+499)/500)
	it := t.messageBegin(nil)
	for _, p := range mockPieces(text, n) {
		t.delta(it, p)
		if end := t.pause(time.Duration(ms)*time.Millisecond/time.Duration(n), true); end != goOn {
			return end // the partial message never completes
		}
	}
	t.messageEnd(it, text)
	return goOn
}

// stampDirective: STAMP n ms sends n deltas, one every ms milliseconds. Each is
// an @ and the wall clock's nanoseconds at that moment, so that whoever reads it
// knows how old it is.
func stampDirective(t *mockTurn, arg string) mockEnd {
	n, rest := mockCount(arg, 100)
	ms, _ := mockCount(rest, 5)
	it := t.messageBegin(nil)
	var text strings.Builder
	for range n {
		if end := t.pause(time.Duration(ms)*time.Millisecond, true); end != goOn {
			return end
		}
		stamp := "@" + strconv.FormatInt(time.Now().UnixNano(), 10) + " "
		text.WriteString(stamp)
		t.delta(it, stamp)
	}
	t.messageEnd(it, text.String())
	return goOn
}

// bigDirective answers with n bytes in deltas of 16 KiB.
func bigDirective(t *mockTurn, arg string) mockEnd {
	n, _ := mockCount(arg, 1<<20)
	text := strings.Repeat("0123456789abcde\n", n/16+1)[:n]
	it := t.messageBegin(nil)
	for _, p := range mockPieces(text, n/(16<<10)+1) {
		t.delta(it, p)
	}
	t.messageEnd(it, text)
	return goOn
}

func reasonDirective(t *mockTurn, text string) mockEnd {
	it := t.item("reasoning", t.m.newID("rs"), map[string]any{"summary": []string{}, "content": []string{}})
	t.started(it)
	t.tell("item/reasoning/summaryPartAdded", map[string]any{"itemId": it["id"], "summaryIndex": 0})
	t.event("reasoning_content_delta", map[string]any{"thread_id": t.th.ID, "turn_id": t.id, "item_id": it["id"], "delta": text, "summary_index": 0})
	t.tell("item/reasoning/summaryTextDelta", map[string]any{"itemId": it["id"], "delta": text, "summaryIndex": 0})
	t.event("agent_reasoning_delta", map[string]any{"delta": text})
	it["summary"] = []string{text}
	t.completed(it)
	return goOn
}

// echoDirective says what the model was told.
func echoDirective(t *mockTurn, _ string) mockEnd {
	t.m.mu.Lock()
	developer := append(append([]string{}, t.th.Developer...), t.extra...)
	var user []string
	for _, turn := range t.th.turns {
		user = append(user, turn.Texts...)
	}
	base := t.th.Base
	t.m.mu.Unlock()
	return t.say(string(toJSON(map[string]any{"instructions": base, "developer": developer, "user": user, "settings": t.settings})), nil)
}

// grandchildDirective starts a process in the mock's own process group that
// outlives turn and mock: only a signal to the group ends it.
func grandchildDirective(t *mockTurn, line string) mockEnd {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir = t.settings.Cwd
	if err := cmd.Start(); err != nil {
		t.told("not started: " + err.Error())
		return goOn
	}
	go func() { _ = cmd.Wait() }() // nobody asks; it only keeps zombies away while we live
	t.told(strconv.Itoa(cmd.Process.Pid))
	return goOn
}

// permissionsDirective asks for permissions, a JSON object.
func permissionsDirective(t *mockTurn, arg string) mockEnd {
	if t.m.tellsEvents() {
		t.told("unsupported call: request_permissions")
		return goOn
	}
	wanted := json.RawMessage(`{"network":{"enabled":true},"fileSystem":null}`)
	if validJSON([]byte(arg)) && arg != "" {
		wanted = json.RawMessage(arg)
	}
	t.setStatus("active", "waitingOnApproval")
	result, end := t.ask("item/permissions/requestApproval", map[string]any{"itemId": t.m.newID("call"), "environmentId": "local",
		"startedAtMs": time.Now().UnixMilli(), "cwd": t.settings.Cwd, "reason": "need", "permissions": wanted}, "waitingOnApproval")
	return t.heard(result, end, `{"permissions":{}}`)
}

// heard ends a question: its answer, or what stands for none, is told to the
// model.
func (t *mockTurn) heard(result json.RawMessage, end mockEnd, none string) mockEnd {
	if end != goOn {
		return end
	}
	t.setStatus("active")
	if result == nil {
		result = json.RawMessage(none)
	}
	t.told(string(result))
	t.toolEnded()
	return goOn
}

// askDirective asks the user one question with two options.
func askDirective(t *mockTurn, question string) mockEnd {
	params := map[string]any{"itemId": t.m.newID("call"), "questions": []any{map[string]any{"id": "q1", "header": "Pick", "question": question, "isOther": true, "isSecret": false,
		"options": []any{map[string]any{"label": "A", "description": "a"}, map[string]any{"label": "B", "description": "b"}}}}}
	if !t.m.old() {
		t.setStatus("active", "waitingOnUserInput")
		params["isBlocking"], params["autoResolutionMs"] = false, nil
	}
	result, end := t.ask("item/tool/requestUserInput", params, "waitingOnUserInput")
	return t.heard(result, end, `{"answers":{}}`)
}

// mcpAskDirective is an MCP server's question. 0.104 can't ask a client: the
// call hangs until it is interrupted.
func mcpAskDirective(t *mockTurn, message string) mockEnd {
	if t.m.tellsEvents() {
		t.event("elicitation_request", map[string]any{"server_name": "mock", "message": message})
		return t.wait(nil, false)
	}
	t.setStatus("active", "waitingOnApproval")
	result, end := t.ask("mcpServer/elicitation/request", map[string]any{"serverName": "mock", "mode": "form", "_meta": nil, "message": message,
		"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}}}}, "waitingOnApproval")
	return t.heard(result, end, `{"action":"decline"}`)
}

// toolDirective calls one of the thread's dynamicTools.
func toolDirective(t *mockTurn, arg string) mockEnd {
	name, args, _ := strings.Cut(arg, " ")
	if args == "" || !validJSON([]byte(args)) {
		args = "{}"
	}
	known := false
	for _, tool := range t.th.Tools { // fixed at birth
		known = known || stringField(tool, "name") == name
	}
	t.toolBegins()
	if !known {
		t.told("unsupported call: " + name)
		t.toolEnded()
		return goOn
	}
	call := t.m.newID("call")
	it := t.item("dynamicToolCall", call, map[string]any{"namespace": nil, "tool": name, "arguments": json.RawMessage(args), "status": "inProgress", "contentItems": nil, "success": nil, "durationMs": nil})
	params := map[string]any{"callId": call, "tool": name, "arguments": json.RawMessage(args)}
	if !t.m.old() { // 0.104 shows no item
		t.started(it)
		params["namespace"] = nil
	}
	t.event("dynamic_tool_call_request", map[string]any{"callId": call, "turnId": t.id, "tool": name, "arguments": json.RawMessage(args)})
	result, end := t.ask("item/tool/call", params, "")
	said, success := "dynamic tool request failed", false
	if result != nil {
		var items []json.RawMessage
		said = "dynamic tool response was invalid"
		if json.Unmarshal(rawField(result, "contentItems"), &items) == nil && rawField(result, "success") != nil {
			said, success = "", string(rawField(result, "success")) == "true"
			for _, c := range items {
				said += stringField(c, "text")
			}
			it["contentItems"] = items
		}
	}
	if end == gone {
		return end
	}
	it["status"], it["success"], it["durationMs"] = "completed", success, 1
	if !success {
		it["status"] = "failed"
	}
	if !t.m.old() {
		t.completed(it) // before the interrupt's answer, as measured
	}
	if end != goOn {
		return end
	}
	t.told(said)
	t.toolEnded()
	return goOn
}

// subagentDirective spawns a thread that does the given directives, which are
// separated by " ;; ". Models of the 5.6 and 6 families show it as
// subAgentActivity, others as collabAgentToolCall, which names the thread only
// after its first event. It may outlive the parent's turn.
func subagentDirective(t *mockTurn, arg string) mockEnd {
	m := t.m
	prompt := strings.ReplaceAll(arg, " ;; ", "\n")
	child := &mockThread{mockThreadState: mockThreadState{ID: newMockID(), Parent: t.th.ID, Created: time.Now().Unix(), Settings: t.settings, Base: t.th.Base, Preview: prompt}, used: true, servers: t.th.servers}
	t.toolBegins()
	v2 := m.new() && (strings.HasPrefix(t.settings.Model, "gpt-6") || strings.HasPrefix(t.settings.Model, "gpt-5.6"))
	activity := func(t *mockTurn, id, kind string) map[string]any {
		return t.item("subAgentActivity", id, map[string]any{"model": mockNull(t.settings.Model), "reasoningEffort": mockNull(t.settings.Effort), "kind": kind, "agentThreadId": child.ID, "agentPath": "/root/" + child.ID[:8]})
	}
	call := m.newID("call")
	it := t.item("collabAgentToolCall", call, map[string]any{"tool": "spawnAgent", "status": "inProgress", "senderThreadId": t.th.ID, "receiverThreadIds": []string{},
		"prompt": prompt, "model": "", "reasoningEffort": "medium", "agentsStates": map[string]any{}})
	if v2 {
		it = activity(t, call, "started")
	}
	t.started(it)
	m.load(child)
	m.setStatus(child, child.status)
	if !v2 {
		it["status"], it["receiverThreadIds"], it["model"], it["reasoningEffort"] = "completed", []string{child.ID}, t.settings.Model, mockNull(t.settings.Effort)
		it["agentsStates"] = map[string]any{child.ID: map[string]any{"status": "pendingInit", "message": nil}}
	}
	t.completed(it)
	sub := m.newTurn(child)
	sub.settings = t.settings
	if v2 {
		sub.after = append(sub.after, func() {
			done := activity(t, "subagent-completed-"+sub.id, "completed")
			t.started(done)
			t.completed(done)
		})
	}
	m.mu.Lock()
	child.active, child.turns = sub, append(child.turns, sub.rec)
	m.mu.Unlock()
	m.turns.Add(1)
	go sub.run(toJSON([]any{map[string]any{"type": "text", "text": prompt}})) // ends with its turn or the process; turns counts it
	t.told(string(toJSON(map[string]any{"agent_id": child.ID})))
	t.toolEnded()
	return goOn
}
