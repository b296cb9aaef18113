package main

// mock_faults_test.go owns the directives that only tests need: what goes wrong in
// a turn (it fails, retries, stalls, floods, talks nonsense, kills the process),
// what the model shows rather than does (images, plans, searches, large outputs,
// edits, what it was handed), and what it asks. They run on the turn's goroutine. A
// wait must go through mockTurn.wait, or an interrupt would find nobody.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

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

// echoDirective says what the model was told.
func echoDirective(t *mockTurn, _ string) mockEnd {
	t.m.mu.Lock()
	developer := []string{}
	if t.th.Developer != "" {
		developer = append(developer, t.th.Developer)
	}
	var user []string
	for _, turn := range t.th.turns {
		for _, it := range turn.Items {
			if stringField(it, "type") == "userMessage" {
				user = append(user, mockText(rawField(it, "content")))
			}
		}
	}
	base := t.th.Base
	t.m.mu.Unlock()
	return t.say(string(toJSON(map[string]any{"instructions": base, "developer": developer, "user": user, "settings": t.settings})), nil)
}

// permissionsDirective asks for permissions, a JSON object.
func permissionsDirective(t *mockTurn, arg string) mockEnd {
	if t.m.mcp != nil || t.m.early {
		return t.toolAnswered("unsupported call: request_permissions")
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
	return t.toolAnswered(string(result))
}

// askDirective asks the user one question with two options.
func askDirective(t *mockTurn, question string) mockEnd {
	params := map[string]any{"itemId": t.m.newID("call"), "questions": []any{map[string]any{"id": "q1", "header": "Pick", "question": question, "isOther": true, "isSecret": false,
		"options": []any{map[string]any{"label": "A", "description": "a"}, map[string]any{"label": "B", "description": "b"}}}}}
	t.setStatus("active", "waitingOnUserInput")
	params["isBlocking"], params["autoResolutionMs"] = false, nil
	result, end := t.ask("item/tool/requestUserInput", params, "waitingOnUserInput")
	return t.heard(result, end, `{"answers":{}}`)
}

// mcpAskDirective is an MCP server's question. 0.104 can't ask a client: the
// call hangs until it is interrupted.
func mcpAskDirective(t *mockTurn, message string) mockEnd {
	if t.m.mcp != nil || t.m.early {
		t.event("elicitation_request", map[string]any{"server_name": "mock", "message": message})
		return t.wait(nil, false)
	}
	t.setStatus("active", "waitingOnApproval")
	result, end := t.ask("mcpServer/elicitation/request", map[string]any{"serverName": "mock", "mode": "form", "_meta": nil, "message": message,
		"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}}}}, "waitingOnApproval")
	return t.heard(result, end, `{"action":"decline"}`)
}

// event tells one codex/event of the turn, where events are told at all.
func (t *mockTurn) event(kind string, fields map[string]any) {
	if t.m.mcp != nil || t.m.early {
		t.m.event(t.th.ID, t.id, kind, fields)
	}
}

// subagentDirective spawns a thread that does the given directives, which are
// separated by " ;; ". Models of the 5.6 and 6 families show it as
// subAgentActivity, others as collabAgentToolCall, which names the thread only
// after its first event. It may outlive the parent's turn.
func subagentDirective(t *mockTurn, arg string) mockEnd {
	m := t.m
	prompt := strings.ReplaceAll(arg, " ;; ", "\n")
	child := &mockThread{mockThreadState: mockThreadState{ID: newMockID(), Parent: t.th.ID, Created: time.Now().Unix(), Settings: t.settings, Base: t.th.Base, Preview: prompt}, used: true, config: t.th.config}
	v2 := !t.m.patient && (strings.HasPrefix(t.settings.Model, "gpt-6") || strings.HasPrefix(t.settings.Model, "gpt-5.6"))
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
	return t.toolAnswered(string(toJSON(map[string]any{"agent_id": child.ID})))
}

// toolDirective calls one of the thread's dynamicTools: TOOL name {json}.
func toolDirective(t *mockTurn, arg string) mockEnd {
	name, args, _ := strings.Cut(arg, " ")
	if args == "" || !validJSON([]byte(args)) {
		args = "{}"
	}
	if !slices.ContainsFunc(t.th.Tools, func(tool json.RawMessage) bool { return stringField(tool, "name") == name }) { // fixed at birth
		return t.toolAnswered("unsupported call: " + name)
	}
	call := t.m.newID("call")
	it := t.item("dynamicToolCall", call, map[string]any{"namespace": nil, "tool": name,
		"arguments": json.RawMessage(args), "status": "inProgress", "contentItems": nil, "success": nil, "durationMs": nil})
	t.started(it)
	result, end := t.ask("item/tool/call", map[string]any{"callId": call, "tool": name,
		"arguments": json.RawMessage(args), "namespace": nil}, "")
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
	t.completed(it) // before the interrupt's answer, as measured
	if end != goOn {
		return end
	}
	return t.toolAnswered(said)
}

// toolsDirective calls several dynamic tools at once, as code mode can:
// TOOLS name {json} ;; name {json}. The model hears the answers in that order.
func toolsDirective(t *mockTurn, arg string) mockEnd {
	calls := strings.Split(arg, " ;; ")
	said := make([]string, len(calls))
	answered := make(chan struct{}, len(calls))
	for i, call := range calls {
		name, args, _ := strings.Cut(call, " ")
		t.m.peer.call("item/tool/call", map[string]any{"threadId": t.th.ID, "turnId": t.id, "callId": fmt.Sprintf("exec-%d", i), "namespace": nil, "tool": name, "arguments": json.RawMessage(args)}, 0, func(r json.RawMessage, err error) {
			var items []json.RawMessage
			_ = json.Unmarshal(rawField(r, "contentItems"), &items) // none: nothing was said
			for _, c := range items {
				said[i] += stringField(c, "text")
			}
			answered <- struct{}{}
		})
	}
	for range calls {
		if end := t.wait(answered, false); end != goOn {
			return end
		}
	}
	return t.toolAnswered(strings.Join(said, " | "))
}

// failDirective ends the turn with the model API's error: an HTTP status, or a word such as context_length_exceeded, and
// a message.
func failDirective(t *mockTurn, arg string) mockEnd {
	code, msg, _ := strings.Cut(arg, " ")
	n, _ := strconv.Atoi(code)
	status := func(kind string) any { return map[string]any{kind: map[string]any{"httpStatusCode": n}} }
	switch code {
	case "500":
		return t.fail("We're currently experiencing high demand, which may cause temporary errors.", "internalServerError")
	case "429":
		return t.fail("exceeded retry limit, last status: 429 Too Many Requests", status("responseTooManyFailedAttempts"))
	case "context_length_exceeded":
		return t.fail("Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.", "contextWindowExceeded")
	case "insufficient_quota":
		return t.fail("Quota exceeded. Check your plan and billing details.", "usageLimitExceeded")
	}
	if !slices.Contains([]int{401, 403, 404, 503}, n) {
		return t.fail(strings.TrimSpace(msg), "other")
	}
	text := fmt.Sprintf("unexpected status %d %s: %s, url: https://api.openai.com/v1/responses", n, http.StatusText(n), msg)
	if t.m.early {
		return t.fail(text, "other")
	}
	return t.fail(text, status("httpConnectionFailed"))
}

// retrying shows an error that Codex gets over by itself.
func (t *mockTurn) retrying(message string, details any) {
	info := map[string]any{"responseStreamDisconnected": map[string]any{"httpStatusCode": nil}}
	t.tell("error", map[string]any{"error": mockError(message, info, details), "willRetry": true})
}

// retryDirective shows n errors that Codex gets over.
func retryDirective(t *mockTurn, arg string) mockEnd {
	n, _ := mockCount(arg, 2)
	for i := range n {
		t.retrying(fmt.Sprintf("Reconnecting... %d/%d", i+1, n), "stream disconnected before completion: Transport error: network error: error decoding response body")
	}
	return goOn
}

// offlineDirective is a network that never comes back (fact 17).
func offlineDirective(t *mockTurn, _ string) mockEnd {
	for {
		t.retrying("Reconnecting... waiting for network", "Connection failed: error sending request")
		if end := t.pause(50*time.Millisecond, true); end != goOn {
			return end
		}
	}
}

// gateDirective waits until a file exists.
func gateDirective(t *mockTurn, path string) mockEnd {
	for {
		if _, err := os.Stat(path); err == nil {
			return goOn
		}
		if end := t.pause(2*time.Millisecond, true); end != goOn {
			return end
		}
	}
}

// mockStdout tells when bytes have left, so that FLOOD holds no more than a bounded
// part of them in memory.
type mockStdout struct {
	w       io.Writer
	written chan struct{}
}

func (o *mockStdout) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	select {
	case o.written <- struct{}{}:
	default:
	}
	return n, err
}

// floodDirective sends n deltas as fast as the client reads, numbered, each
// of some bytes: the child of the benchmarks.
func (x *testMock) floodDirective(t *mockTurn, arg string) mockEnd {
	n, rest := mockCount(arg, 20000)
	size, _ := mockCount(rest, 32)
	size = max(size, 9)
	it := t.messageBegin(nil)
	pad := " " + strings.Repeat("x", size-9)
	params := map[string]any{"threadId": t.th.ID, "turnId": t.id, "itemId": it["id"], "delta": "########" + pad}
	rec := string(toJSON(map[string]any{"method": "item/agentMessage/delta", "params": params}))
	if !t.m.early {
		rec = rec[:len(rec)-1] + `,"emittedAtMs":` + strconv.FormatInt(time.Now().UnixMilli(), 10) + "}"
	}
	head, tail, _ := strings.Cut(rec, "########")
	var text strings.Builder
	chunk := make([]byte, 0, chunkSize)
	for i := range n {
		num := fmt.Appendf(nil, "%08d", i)
		if text.Len() < 1<<20 {
			text.Write(num)
			text.WriteString(pad)
		}
		chunk = append(append(append(chunk, head...), num...), tail...)
		if len(chunk)+len(rec)+64 > chunkSize || i == n-1 {
			t.m.peer.put(chunk, keepAlways) // the newline between two records is the frame's
			chunk = chunk[:0]
			for t.m.peer.queued() > 4<<20 {
				if end := t.wait(x.out.written, true); end != goOn {
					return end
				}
			}
			continue
		}
		chunk = append(chunk, '\n')
	}
	t.messageEnd(it, text.String())
	return goOn
}

// unknownDirective sends what no version knows, repeatable by its seed:
// notifications, fields, item types, enum words, and one server request.
func unknownDirective(t *mockTurn, arg string) mockEnd {
	seed, _ := mockCount(arg, 1)
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	word := func() string { return fmt.Sprintf("zz%x", r.Uint32()) }
	junk := func() any {
		return []any{nil, true, -1.5e300, word(), []any{word(), []any{}}, map[string]any{word(): map[string]any{}}, "\u2028\U0001f600\\\"\n"}[r.IntN(7)]
	}
	for range 4 + r.IntN(8) {
		switch r.IntN(6) {
		case 0:
			t.m.notify(word()+"/"+word(), map[string]any{word(): junk()})
		case 1:
			t.tell("item/"+word()+"/delta", map[string]any{"itemId": word(), "delta": junk()})
		case 2:
			it := t.item(word(), t.m.newID("zz"), map[string]any{word(): junk(), "status": word()})
			t.started(it)
			t.completed(it)
		case 3:
			t.tell("item/agentMessage/delta", map[string]any{"itemId": word(), "delta": "", word(): junk()})
		case 4:
			t.m.notify("thread/status/changed", map[string]any{"threadId": t.th.ID, "status": map[string]any{"type": word(), word(): junk()}})
		case 5:
			t.m.notify("error", map[string]any{"threadId": t.th.ID, "turnId": t.id, "willRetry": true, "error": map[string]any{"message": word(), "codexErrorInfo": map[string]any{word(): junk()}}})
		}
	}
	said := "answered with an error"
	answered := make(chan struct{})
	t.m.peer.call("item/"+word()+"/requestApproval", map[string]any{"threadId": t.th.ID, "turnId": t.id, "itemId": word(), word(): junk()}, 0, func(result json.RawMessage, err error) {
		if err == nil {
			said = "answered with " + string(result)
		}
		close(answered)
	})
	if end := t.wait(answered, false); end != goOn {
		return end
	}
	return t.toolAnswered("the unknown request was " + said)
}

// lateDirective says something after turn/completed, with the old turn id.
func lateDirective(t *mockTurn, text string) mockEnd {
	t.after = append(t.after, func() { t.lateMessage(text) })
	return goOn
}

// lateMessage is an item after its turn has ended.
func (t *mockTurn) lateMessage(text string) {
	it := t.item("agentMessage", t.m.newID("msg"), map[string]any{"text": ""})
	t.started(it)
	it["text"] = text
	t.completed(it)
}

// dieDirective ends the process: DIE code [stderr line].
func dieDirective(t *mockTurn, arg string) mockEnd {
	code, line := mockCount(arg, 1)
	if line != "" {
		fmt.Fprintln(t.m.stderr, line)
	}
	t.m.exit(code)
	<-t.m.done
	return gone
}

// killSelfDirective dies by a signal, given by number or by one of these names.
func killSelfDirective(t *mockTurn, arg string) mockEnd {
	n, _ := mockCount(arg, map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "SEGV": 11, "TERM": 15}[strings.TrimPrefix(arg, "SIG")])
	t.m.peer.closeOut(mockFlush)
	signal.Reset(syscall.Signal(n))
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Signal(syscall.Signal(n)) // if it fails we live on, and the test sees that
	}
	<-t.m.done
	return gone
}

// closeOutDirective closes stdout and lives on.
func (x *testMock) closeOutDirective(t *mockTurn, _ string) mockEnd {
	t.m.peer.closeOut(mockFlush)
	if c, ok := x.out.w.(io.Closer); ok {
		_ = c.Close() // the reader sees the end either way
	}
	return t.wait(nil, false)
}

// callDirective calls a function by its name, as the scripted model API does:
// CALL name {json}; view_image, update_plan (which newer models don't have), or
// a dynamic tool of the thread.
func callDirective(t *mockTurn, arg string) mockEnd {
	name, args, _ := strings.Cut(arg, " ")
	switch {
	case name == "view_image":
		return viewDirective(t, stringField(json.RawMessage(args), "path"))
	case name == "update_plan" && t.m.early:
		return t.plan(json.RawMessage(args))
	}
	return toolDirective(t, arg)
}

// viewDirective looks at an image: VIEW path. 0.104 hands it to the model in a
// message of the user.
func viewDirective(t *mockTurn, path string) mockEnd {
	path = t.inCwd(path)
	data, err := os.ReadFile(path)
	if err != nil {
		return t.toolAnswered(fmt.Sprintf("unable to locate image at `%s`: %v", path, err))
	}
	it := t.item("imageView", t.m.newID("call"), map[string]any{"path": path})
	t.event("view_image_tool_call", map[string]any{"call_id": it["id"], "path": path})
	t.started(it)
	t.completed(it)
	if t.m.early {
		message := t.item("userMessage", newMockID(), map[string]any{"content": []any{map[string]any{"type": "image", "url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)}}})
		t.started(message)
		t.completed(message)
	}
	return t.toolAnswered("attached local image path")
}

// webSearchDirective: WEBSEARCH query. The search is the model's own, so no
// request of it follows.
func webSearchDirective(t *mockTurn, query string) mockEnd {
	fields := map[string]any{"query": query, "action": map[string]any{"type": "search", "query": query, "queries": nil}, "results": nil}
	it := t.item("webSearch", t.m.newID("ws"), fields)
	t.started(it)
	t.event("web_search_begin", map[string]any{"call_id": it["id"]})
	t.completed(it)
	t.event("web_search_end", map[string]any{"call_id": it["id"], "query": query, "action": map[string]any{"type": "search", "query": query}})
	return t.say("searched", nil)
}

// planDirective: PLAN [x] one ;; [>] two ;; [ ] three.
func planDirective(t *mockTurn, arg string) mockEnd {
	steps := []any{}
	for _, line := range strings.Split(arg, " ;; ") {
		status := "pending"
		switch {
		case strings.HasPrefix(line, "[x] "):
			status = "completed"
		case strings.HasPrefix(line, "[>] "):
			status = "in_progress"
		}
		_, step, _ := strings.Cut(line, "] ")
		steps = append(steps, map[string]any{"step": step, "status": status})
	}
	return t.plan(toJSON(map[string]any{"explanation": nil, "plan": steps}))
}

// plan shows the plan of a call of update_plan.
func (t *mockTurn) plan(args json.RawMessage) mockEnd {
	var call struct {
		Explanation any
		Plan        []struct{ Step, Status string }
	}
	_ = json.Unmarshal(args, &call) // no plan is an empty one
	steps := []any{}
	for _, s := range call.Plan {
		steps = append(steps, map[string]any{"step": s.Step, "status": strings.Replace(s.Status, "in_progress", "inProgress", 1)})
	}
	t.event("plan_update", map[string]any{"explanation": call.Explanation, "plan": call.Plan})
	t.tell("turn/plan/updated", map[string]any{"explanation": call.Explanation, "plan": steps})
	return t.toolAnswered("Plan updated")
}

// outputDirective is a command that says n bytes in deltas of k, numbered lines
// of 16, without running anything: OUTPUT n [k] [exit code].
func outputDirective(t *mockTurn, arg string) mockEnd {
	n, rest := mockCount(arg, 100<<10)
	k, rest := mockCount(rest, 8<<10)
	code, _ := mockCount(rest, 0)
	it := t.commandItem(fmt.Sprintf("mock-output %d", n))
	it["processId"], it["source"] = "1", "unifiedExecStartup"
	t.started(it)
	var all strings.Builder
	for i := 0; all.Len() < n; i++ {
		fmt.Fprintf(&all, "%015d\n", i)
	}
	out := all.String()[:n]
	for at := 0; at < n; at += max(1, k) {
		t.outputDelta(it["id"].(string), out[at:min(n, at+max(1, k))])
		if end := t.check(); end != goOn {
			t.counts()
			return end
		}
	}
	it["status"], it["exitCode"], it["durationMs"], it["aggregatedOutput"] = "completed", code, 1, out
	if code != 0 {
		it["status"] = "failed"
	}
	t.completed(it)
	return t.toolAnswered(fmt.Sprintf("Process exited with code %d\nOutput:\n%s", code, out[:min(n, 400)]))
}

// echoInputDirective says what a prompt was made of: ECHO_INPUT. Of an inline
// image its type and how many characters of base64 it has.
func echoInputDirective(t *mockTurn, _ string) mockEnd {
	var parts []map[string]any
	_ = json.Unmarshal(t.input, &parts) // turnStart has seen that it is an array
	for _, p := range parts {
		delete(p, "text_elements")
		if url, _ := p["url"].(string); strings.HasPrefix(url, "data:") {
			kind, data, _ := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
			delete(p, "url")
			p["mime"], p["base64"] = kind, len(data)
		}
	}
	return t.say(string(toJSON(parts)), nil)
}

// editDirective changes lines of a file: EDIT path old => new.
func editDirective(t *mockTurn, arg string) mockEnd {
	name, change, _ := strings.Cut(arg, " ")
	from, to, _ := strings.Cut(change, " => ")
	path := t.inCwd(name)
	text, err := os.ReadFile(path)
	if err != nil || from == "" || !strings.Contains(string(text), from) {
		return t.toolAnswered("apply_patch verification failed: Failed to find expected lines in " + path)
	}
	now := strings.Replace(string(text), from, to, 1)
	hunk := mockHunk(string(text), now)
	return t.patchFile(mockChange{name: "M " + name, path: path, kind: map[string]any{"type": "update", "move_path": nil}, text: hunk, diff: mockDiff(name, hunk),
		apply: func() error { return os.WriteFile(path, []byte(now), 0o644) }})
}

// mockDiff is a change as git shows it; no hunk: the file is gone.
func mockDiff(name, hunk string) string {
	if hunk == "" {
		return fmt.Sprintf("diff --git a/%s b/%[1]s\ndeleted file mode 100644\n--- a/%[1]s\n+++ /dev/null\n", name)
	}
	return fmt.Sprintf("diff --git a/%s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n%s", name, hunk)
}

// deleteDirective: DELETE path. moveDirective: MOVE path path.
func deleteDirective(t *mockTurn, name string) mockEnd {
	path := t.inCwd(name)
	text, _ := os.ReadFile(path) // if there is none, its removal fails
	return t.patchFile(mockChange{name: "D " + name, path: path, kind: map[string]any{"type": "delete"}, text: string(text), diff: mockDiff(name, ""), apply: func() error { return os.Remove(path) }})
}

func moveDirective(t *mockTurn, arg string) mockEnd {
	name, to, _ := strings.Cut(arg, " ")
	path, dest := t.inCwd(name), t.inCwd(to)
	moved := "\n\nMoved to: " + dest
	return t.patchFile(mockChange{name: "M " + to, path: path, kind: map[string]any{"type": "update", "move_path": dest}, text: moved, diff: mockDiff(to, moved),
		apply: func() error { return os.Rename(path, dest) }})
}

// mockHunk is the one hunk between two texts that differ in one place, with
// three lines around it, as Codex writes the diff of an update.
func mockHunk(before, after string) string {
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	from, to := max(0, head-3), min(tail, 3)
	lines := func(list []string) int {
		n := len(list)
		if n > 0 && list[n-1] == "" {
			n--
		}
		return n
	}
	var hunk strings.Builder
	show := func(mark string, list []string) {
		for _, l := range list {
			if l != "" {
				hunk.WriteString(mark + strings.TrimSuffix(l, "\n") + "\n")
			}
		}
	}
	fmt.Fprintf(&hunk, "@@ -%d,%d +%d,%d @@\n", from+1, lines(a[from:len(a)-tail+to]), from+1, lines(b[from:len(b)-tail+to]))
	show(" ", a[from:head])
	show("-", a[head:len(a)-tail])
	show("+", b[head:len(b)-tail])
	show(" ", a[len(a)-tail:len(a)-tail+to])
	return hunk.String()
}
