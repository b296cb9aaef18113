package main

// mock_work_test.go owns the directives that only tests need: what goes wrong in a turn
// (it fails, retries, stalls, floods, talks nonsense, kills the process), what the model
// shows rather than does (images, plans, searches, large outputs, edits, what it was
// handed), what it asks, and the tools of MCP servers. It starts a server as Codex does,
// one process a thread, with next to nothing of its own environment, but at the first
// call, so that a thread costs no process. They run on the turn's goroutine. A wait must
// go through mockTurn.wait, or an interrupt would find nobody, and no server may be left
// that its thread's closers can't find.

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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
		if end := t.pause(time.Duration(ms) * time.Millisecond); end != goOn {
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
	return t.say(string(toJSON(map[string]any{"instructions": base, "developer": developer, "user": user,
		"settings": t.settings})), nil)
}

// permissionsDirective asks for permissions, a JSON object.
func permissionsDirective(t *mockTurn, arg string) mockEnd {
	wanted := json.RawMessage(`{"network":{"enabled":true},"fileSystem":null}`)
	if validJSON([]byte(arg)) && arg != "" {
		wanted = json.RawMessage(arg)
	}
	t.setStatus("active", "waitingOnApproval")
	result, end := t.ask("item/permissions/requestApproval",
		map[string]any{"itemId": t.m.newID("call"), "environmentId": "local",
			"startedAtMs": time.Now().UnixMilli(), "cwd": t.settings.Cwd, "reason": "need", "permissions": wanted},
		"waitingOnApproval")
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
	params := map[string]any{"itemId": t.m.newID("call"),
		"questions": []any{map[string]any{"id": "q1", "header": "Pick", "question": question, "isOther": true,
			"isSecret": false,
			"options": []any{map[string]any{"label": "A", "description": "a"},
				map[string]any{"label": "B", "description": "b"}}}}}
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
	result, end := t.ask("mcpServer/elicitation/request",
		map[string]any{"serverName": "mock", "mode": "form", "_meta": nil, "message": message,
			"requestedSchema": map[string]any{"type": "object",
				"properties": map[string]any{"answer": map[string]any{"type": "string"}}}}, "waitingOnApproval")
	return t.heard(result, end, `{"action":"decline"}`)
}

// event tells one event of mcp-server's, to its client.
func (t *mockTurn) event(kind string, fields map[string]any) {
	if t.m.mcp != nil {
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
	child := &mockThread{mockThreadState: mockThreadState{ID: newMockID(), Parent: t.th.ID, Created: time.Now().Unix(),
		Settings: t.settings, Base: t.th.Base, Preview: prompt}, used: true, config: t.th.config}
	v2 := !t.m.patient && (strings.HasPrefix(t.settings.Model, "gpt-6") ||
		strings.HasPrefix(t.settings.Model, "gpt-5.6"))
	activity := func(t *mockTurn, id, kind string) map[string]any {
		return t.item("subAgentActivity", id, map[string]any{"model": mockNull(t.settings.Model),
			"reasoningEffort": mockNull(t.settings.Effort), "kind": kind, "agentThreadId": child.ID,
			"agentPath": "/root/" + child.ID[:8]})
	}
	call := m.newID("call")
	it := t.item("collabAgentToolCall", call, map[string]any{"tool": "spawnAgent", "status": "inProgress",
		"senderThreadId": t.th.ID, "receiverThreadIds": []string{},
		"prompt": prompt, "model": "", "reasoningEffort": "medium", "agentsStates": map[string]any{}})
	if v2 {
		it = activity(t, call, "started")
	}
	t.started(it)
	m.load(child)
	child.setStatus(child.status)
	if !v2 {
		it["status"], it["receiverThreadIds"], it["model"], it["reasoningEffort"] = "completed", []string{child.ID},
			t.settings.Model, mockNull(t.settings.Effort)
		it["agentsStates"] = map[string]any{child.ID: map[string]any{"status": "pendingInit", "message": nil}}
	}
	t.completed(it)
	sub := child.newTurn()
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
	// ends with its turn or the process; turns counts it
	go sub.run(toJSON([]any{map[string]any{"type": "text", "text": prompt}}))
	return t.toolAnswered(string(toJSON(map[string]any{"agent_id": child.ID})))
}

// callTool calls one of the thread's dynamicTools.
func (t *mockTurn) callTool(name, args string) mockEnd {
	// fixed at birth
	if !slices.ContainsFunc(t.th.Tools, func(tool json.RawMessage) bool { return stringField(tool, "name") == name }) {
		return t.toolAnswered("unsupported call: " + name)
	}
	call := t.m.newID("call")
	it := t.item("dynamicToolCall", call, map[string]any{"namespace": nil, "tool": name,
		"arguments": json.RawMessage(args), "status": "inProgress", "contentItems": nil, "success": nil,
		"durationMs": nil})
	t.started(it)
	result, end := t.ask("item/tool/call", map[string]any{"callId": call, "tool": name,
		"arguments": json.RawMessage(args), "namespace": nil}, "")
	said, success := "dynamic tool request failed", false
	if items := rawField(result, "contentItems"); items != nil {
		said, success = mockToolText(result), string(rawField(result, "success")) == "true"
		it["contentItems"] = items
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

// mockToolText is what the answer to a dynamic tool's call says.
func mockToolText(result json.RawMessage) (said string) {
	eachElement(rawField(result, "contentItems"), func(c json.RawMessage) { said += stringField(c, "text") })
	return said
}

// callAtOnce calls several dynamic tools at once, as code mode can. The model hears the
// answers in the order of the calls.
func (t *mockTurn) callAtOnce(calls []string) mockEnd {
	said := make([]string, len(calls))
	answered := make(chan struct{}, len(calls))
	for i, call := range calls {
		name, args, _ := strings.Cut(call, " ")
		t.m.peer.call("item/tool/call", map[string]any{"threadId": t.th.ID, "turnId": t.id, "namespace": nil,
			"callId": fmt.Sprintf("exec-%d", i), "tool": name, "arguments": json.RawMessage(args)}, 0,
			func(r json.RawMessage, err error) {
				said[i] = mockToolText(r)
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

// limitsDirective tells of one limit of the account as the newest answer of the model did: LIMITS {object}.
func limitsDirective(t *mockTurn, arg string) mockEnd {
	t.m.notify("account/rateLimits/updated", map[string]any{"rateLimits": json.RawMessage(arg)})
	return goOn
}

// failDirective ends the turn with the model API's error: an HTTP status, or a word such as context_length_exceeded,
// and a message.
func failDirective(t *mockTurn, arg string) mockEnd {
	code, msg, _ := strings.Cut(arg, " ")
	n, _ := strconv.Atoi(code)
	status := func(kind string) any { return map[string]any{kind: map[string]any{"httpStatusCode": n}} }
	switch code {
	case "500":
		return t.fail("We're currently experiencing high demand, which may cause temporary errors.",
			"internalServerError")
	case "429":
		return t.fail("exceeded retry limit, last status: 429 Too Many Requests",
			status("responseTooManyFailedAttempts"))
	case "context_length_exceeded":
		return t.fail("Codex ran out of room in the model's context window. Start a new thread or clear earlier "+
			"history before retrying.", "contextWindowExceeded")
	case "insufficient_quota":
		return t.fail("Quota exceeded. Check your plan and billing details.", "usageLimitExceeded")
	}
	if !slices.Contains([]int{401, 403, 404, 503}, n) {
		return t.fail(strings.TrimSpace(msg), "other")
	}
	text := fmt.Sprintf("unexpected status %d %s: %s, url: https://api.openai.com/v1/responses", n, http.StatusText(n),
		msg)
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
		t.retrying(fmt.Sprintf("Reconnecting... %d/%d", i+1, n), "stream disconnected before completion: Transport "+
			"error: network error: error decoding response body")
	}
	return goOn
}

// offlineDirective is a network that never comes back (fact 17).
func offlineDirective(t *mockTurn, _ string) mockEnd {
	for {
		t.retrying("Reconnecting... waiting for network", "Connection failed: error sending request")
		if end := t.pause(50 * time.Millisecond); end != goOn {
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
		if end := t.pause(2 * time.Millisecond); end != goOn {
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
		return []any{nil, true, -1.5e300, word(), []any{word(), []any{}}, map[string]any{word(): map[string]any{}},
			"\u2028\U0001f600\\\"\n"}[r.IntN(7)]
	}
	for range 4 + r.IntN(8) {
		item := t.item(word(), t.m.newID("zz"), map[string]any{word(): junk(), "status": word()})
		of := map[string]any{"itemId": word(), "delta": "", word(): junk()}
		switch r.IntN(5) {
		case 0:
			t.m.notify(word()+"/"+word(), map[string]any{word(): junk()})
		case 1:
			t.tell("item/"+word()+"/delta", of)
			t.tell("item/agentMessage/delta", of)
		case 2:
			t.started(item)
			t.completed(item)
		case 3:
			t.m.notify("thread/status/changed", map[string]any{"threadId": t.th.ID,
				"status": map[string]any{"type": word(), word(): junk()}})
		case 4:
			t.retrying(word(), junk())
		}
	}
	said := "answered with an error"
	answered := make(chan struct{})
	t.m.peer.call("item/"+word()+"/requestApproval",
		map[string]any{"threadId": t.th.ID, "turnId": t.id, "itemId": word(), word(): junk()}, 0,
		func(result json.RawMessage, err error) {
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

// killSelfDirective dies by SIGKILL.
func killSelfDirective(t *mockTurn, _ string) mockEnd {
	t.m.peer.closeOut(mockFlush)
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill() // if it fails we live on, and the test sees that
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

// callDirective calls a function by its name, as the scripted model API does: CALL name
// {json}; view_image, update_plan (which newer models don't have), or a dynamic tool of
// the thread, or with " ;; " between them several.
func callDirective(t *mockTurn, arg string) mockEnd {
	if calls := strings.Split(arg, " ;; "); len(calls) > 1 {
		return t.callAtOnce(calls)
	}
	name, args, _ := strings.Cut(arg, " ")
	switch {
	case name == "view_image":
		return t.viewImage(t.inCwd(stringField(json.RawMessage(args), "path")))
	case name == "update_plan" && t.m.early:
		return t.plan(args)
	}
	return t.callTool(name, args)
}

// viewImage looks at an image. 0.104 hands it to the model in a message of the user.
func (t *mockTurn) viewImage(path string) mockEnd {
	data, err := os.ReadFile(path)
	if err != nil {
		return t.toolAnswered(fmt.Sprintf("unable to locate image at `%s`: %v", path, err))
	}
	it := t.item("imageView", t.m.newID("call"), map[string]any{"path": path})
	t.started(it)
	t.completed(it)
	if t.m.early {
		url := "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)
		message := t.item("userMessage", newMockID(),
			map[string]any{"content": []any{map[string]any{"type": "image", "url": url}}})
		t.started(message)
		t.completed(message)
	}
	return t.toolAnswered("attached local image path")
}

// webSearchDirective: WEBSEARCH query. The search is the model's own, so no
// request of it follows.
func webSearchDirective(t *mockTurn, query string) mockEnd {
	it := t.item("webSearch", t.m.newID("ws"), map[string]any{"query": query,
		"action": map[string]any{"type": "search", "query": query, "queries": nil}})
	t.started(it)
	t.completed(it)
	return t.say("searched", nil)
}

// proposeDirective proposes a plan, whose lines are told apart by \n: in plan mode an item of its own, else words.
func proposeDirective(t *mockTurn, text string) mockEnd {
	text = strings.ReplaceAll(text, `\n`, "\n") + "\n"
	if t.settings.Collaboration != "plan" {
		return t.say("<proposed_plan>\n"+text+"</proposed_plan>", nil)
	}
	it := t.item("plan", t.id+"-plan", map[string]any{"text": ""})
	t.started(it)
	for _, p := range mockPieces(text, 0) {
		t.tell("item/plan/delta", map[string]any{"itemId": it["id"], "delta": p})
	}
	it["text"] = text
	t.toolLast, t.said = false, true
	t.completed(it)
	t.counts()
	return goOn
}

// plan shows the plan of a call of update_plan.
func (t *mockTurn) plan(args string) mockEnd {
	var call struct {
		Explanation any
		Plan        []struct{ Step, Status string }
	}
	_ = json.Unmarshal([]byte(args), &call) // no plan is an empty one
	steps := []any{}
	for _, s := range call.Plan {
		steps = append(steps, map[string]any{"step": s.Step,
			"status": strings.Replace(s.Status, "in_progress", "inProgress", 1)})
	}
	t.tell("turn/plan/updated", map[string]any{"explanation": call.Explanation, "plan": steps})
	return t.toolAnswered("Plan updated")
}

// outputDirective is a command that says n bytes in deltas of k, numbered lines
// of 16, without running anything: OUTPUT n [k].
func outputDirective(t *mockTurn, arg string) mockEnd {
	n, rest := mockCount(arg, 100<<10)
	k, _ := mockCount(rest, 8<<10)
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
	}
	it["status"], it["exitCode"], it["durationMs"], it["aggregatedOutput"] = "completed", 0, 1, out
	t.completed(it)
	return t.toolAnswered("Process exited with code 0\nOutput:\n" + out[:min(n, 400)])
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
	text, _ := os.ReadFile(path) // a file without such a line fails the test
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, from) })
	now := strings.Replace(string(text), from, to, 1)
	first, last := max(0, at-3), min(len(lines), at+4) // three lines around it, as Codex writes it
	hunk := fmt.Sprintf("@@ -%d,%d +%[1]d,%[2]d @@\n", first+1, last-first)
	for i, l := range lines[first:last] {
		l = strings.TrimSuffix(l, "\n") + "\n"
		if i == at-first {
			l = "-" + l + "+" + strings.Replace(l, from, to, 1)
		} else {
			l = " " + l
		}
		hunk += l
	}
	return t.patchFile(mockChange{name: "M " + name, path: path,
		kind: map[string]any{"type": "update", "move_path": nil}, text: hunk, diff: mockDiff(name, hunk),
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
	return t.patchFile(mockChange{name: "D " + name, path: path, kind: map[string]any{"type": "delete"},
		text: string(text), diff: mockDiff(name, ""), apply: func() error { return os.Remove(path) }})
}

func moveDirective(t *mockTurn, arg string) mockEnd {
	name, to, _ := strings.Cut(arg, " ")
	path, dest := t.inCwd(name), t.inCwd(to)
	moved := "\n\nMoved to: " + dest
	return t.patchFile(mockChange{name: "M " + to, path: path,
		kind: map[string]any{"type": "update", "move_path": dest}, text: moved, diff: mockDiff(to, moved),
		apply: func() error { return os.Rename(path, dest) }})
}

// mockServerEnd is how long a server may take to end by the end of its stdin.
const mockServerEnd = 2 * time.Second

// mockToolServer is one running MCP server of a thread.
type mockToolServer struct {
	stdin io.WriteCloser
	peer  *peer
	kill  func()
	ended chan struct{} // closed when the process has ended
	tools []string

	listed []json.RawMessage
}

// threadServers are the entries of a thread, fixed as it was opened.
func threadServers(th *mockThread) map[string]any {
	servers, _ := th.config["mcp_servers"].(map[string]any)
	return servers
}

// mcpToolDirective calls a tool of one of the thread's MCP servers:
// CALLMCP server tool {json}.
func (x *testMock) mcpToolDirective(t *mockTurn, arg string) mockEnd {
	server, rest, _ := strings.Cut(arg, " ")
	tool, args, _ := strings.Cut(rest, " ")
	if args == "" || !validJSON([]byte(args)) {
		args = "{}"
	}
	entry, _ := threadServers(t.th)[server].(map[string]any) // fixed as the thread was opened
	s, err := x.toolServer(t, server, entry)
	if err != nil { // a server that doesn't start fails no thread: its tools are just not there
		fmt.Fprintf(t.m.stderr, "ERROR codex_core::mcp: MCP client for `%s` failed to start: %v\n", server, err)
		return t.toolAnswered("unsupported call: mcp__" + server + "__" + tool)
	}
	call := t.m.newID("call")
	it := t.item("mcpToolCall", call, map[string]any{"server": server, "tool": tool, "status": "inProgress",
		"arguments": json.RawMessage(args), "result": nil, "error": nil, "durationMs": nil})
	readOnly := s.readOnly(tool)
	invocation := map[string]any{"server": server, "tool": tool, "arguments": json.RawMessage(args)}
	t.event("mcp_tool_call_begin", map[string]any{"call_id": call, "invocation": invocation})
	t.started(it) // before it is asked about, as measured
	ended := func(said string, outcome map[string]any) mockEnd {
		t.event("mcp_tool_call_end", map[string]any{"call_id": call, "invocation": invocation,
			"duration": map[string]any{"secs": 0, "nanos": 1}, "result": outcome})
		t.completed(it)
		return t.toolAnswered(said)
	}
	if why, end := x.askMCPTool(t, entry, readOnly, server, tool, args); end != goOn {
		return end
	} else if why != "" {
		it["status"], it["error"], it["durationMs"] = "failed", map[string]any{"message": why}, 0
		return ended(why, map[string]any{"Err": why})
	}
	meta := map[string]any{"progressToken": 0}
	if !x.old() {
		meta["threadId"], meta["callId"] = t.th.ID, call
	}
	var result json.RawMessage
	var failed error
	answered := make(chan struct{})
	s.peer.call("tools/call", map[string]any{"name": tool, "arguments": json.RawMessage(args), "_meta": meta},
		mockSeconds(entry, "tool_timeout_sec", time.Minute), func(r json.RawMessage, err error) {
			result, failed = r, err
			close(answered)
		})
	if end := t.wait(answered, false); end != goOn {
		return end // the server isn't told, and the item never completes
	}
	it["status"], it["result"], it["durationMs"] = "completed", t.toolResult(result), 1
	said := ""
	eachElement(rawField(result, "content"), func(p json.RawMessage) { said += stringField(p, "text") })
	outcome := map[string]any{"Ok": result}
	switch {
	case failed != nil:
		said = "tool call error: " + failed.Error()
		it["status"], it["result"], it["error"] = "failed", nil, map[string]any{"message": said}
		outcome = map[string]any{"Err": said}
	case string(rawField(result, "isError")) == "true":
		it["status"] = "failed"
	}
	return ended(said, outcome)
}

func (s *mockToolServer) readOnly(tool string) (hint bool) {
	for _, t := range s.listed {
		hint = hint || stringField(t, "name") == tool && string(rawField(t, "annotations", "readOnlyHint")) == "true"
	}
	return hint
}

// toolResult is what an item shows of a tool's result: the parts that it knows.
func (t *mockTurn) toolResult(result json.RawMessage) any {
	if result == nil {
		return nil
	}
	shown := map[string]any{"content": rawField(result, "content"),
		"structuredContent": rawField(result, "structuredContent")}
	if !t.m.patient {
		shown["_meta"] = rawField(result, "_meta")
	}
	return shown
}

// askMCPTool: from 0.148 on a tool without annotations needs approval, unless its
// server's entry says otherwise; over mcp-server nobody can give it. 0.104 never
// asks. why says why it may not run, "" if it may.
func (x *testMock) askMCPTool(t *mockTurn, entry map[string]any, readOnly bool, server, tool, args string) (why string,
	end mockEnd) {
	if x.old() || readOnly || mockString(entry, "default_tools_approval_mode") == "approve" {
		return "", goOn
	}
	if t.settings.approval() == "never" {
		if t.settings.sandbox() == "dangerFullAccess" {
			return "", goOn
		}
		return "MCP tool call requires approval, but approval policy is never", goOn
	}
	t.setStatus("active", "waitingOnApproval")
	result, end := t.ask("mcpServer/elicitation/request", map[string]any{"serverName": server, "mode": "form",
		"_meta": map[string]any{"codex_approval_kind": "mcp_tool_call", "tool_name": tool,
			"tool_params": json.RawMessage(args), "persist": []string{"session", "always"}},
		"message":         fmt.Sprintf("Allow the %s MCP server to run tool %q?", server, tool),
		"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}}}, "waitingOnApproval")
	if end == goOn {
		t.setStatus("active")
		switch stringField(result, "action") {
		case "accept":
		case "cancel":
			why = "user cancelled MCP tool call"
		default:
			why = "user rejected MCP tool call"
		}
	}
	return why, end
}

// toolServer is the running server of that name of a turn's thread.
func (x *testMock) toolServer(t *mockTurn, name string, entry map[string]any) (*mockToolServer, error) {
	m := t.m
	x.mu.Lock()
	of := x.of(t.th)
	s := of.running[name]
	x.mu.Unlock()
	switch {
	case s != nil:
		return s, nil
	case entry == nil || entry["enabled"] == false || !t.alive():
		return nil, errors.New("there is none")
	}
	s, err := x.startServer(m, t.settings.Cwd, entry)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	of.running[name] = s
	of.closers = append(of.closers, func() { s.end(m) })
	x.mu.Unlock()
	return s, s.greet(m, mockSeconds(entry, "startup_timeout_sec", 10*time.Second))
}

// end ends the server by the end of its stdin, or by force.
func (s *mockToolServer) end(m *mockServer) {
	_ = s.stdin.Close() // gone already is as good
	m.turns.Go(func() { // ends with the process
		late := time.AfterFunc(mockServerEnd, s.kill)
		defer late.Stop()
		<-s.ended
	})
}

// startServer runs an entry's command.
func (x *testMock) startServer(m *mockServer, cwd string, entry map[string]any) (*mockToolServer, error) {
	cmd := exec.Command(mockString(entry, "command"), mockStrings(entry["args"])...)
	cmd.Dir = cwd
	if dir := mockString(entry, "cwd"); dir != "" {
		cmd.Dir = dir
	}
	for _, key := range append([]string{"HOME", "USERPROFILE", "PATH", "LANG", "TERM"}, mockStrings(entry["env_vars"])...) {
		if val, set := os.LookupEnv(key); set {
			cmd.Env = append(cmd.Env, key+"="+val)
		}
	}
	env, _ := entry["env"].(map[string]any)
	for key, val := range env {
		if text, ok := val.(string); ok {
			cmd.Env = append(cmd.Env, key+"="+text)
		}
	}
	group := newProcGroup(cmd)
	cmd.Stderr, cmd.WaitDelay = m.stderr, 100*time.Millisecond
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, toUs := io.Pipe()
	cmd.Stdout = toUs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = group.attach(cmd) // never fails here
	s := &mockToolServer{stdin: stdin, kill: func() { group.kill() }, ended: make(chan struct{})}
	s.peer = newPeer(stdout, stdin, peerOptions{mode: framingNewline, handle: func(msg *message) {
		if msg.isRequest() { // Codex answers its servers' questions by asking its client, which the mock doesn't
			s.peer.replyError(msg.id, &rpcError{Code: codeNoMethod, Message: "method not found"})
		}
	}})
	m.turns.Add(2)
	go func() { // ends with the process; turns counts it
		defer m.turns.Done()
		_ = cmd.Wait() // whoever waits for an answer is told by the stream's end
		toUs.Close()
		close(s.ended)
	}()
	go func() { // ends with the process's stdout; turns counts it
		defer m.turns.Done()
		_ = s.peer.run()
		s.peer.closeOut(0)
	}()
	return s, nil
}

// greet is the handshake, as Codex has it.
func (s *mockToolServer) greet(m *mockServer, limit time.Duration) error {
	var result json.RawMessage
	ask := func(method string, params any) error {
		var failed error
		answered := make(chan struct{})
		s.peer.call(method, params, limit, func(r json.RawMessage, err error) {
			result, failed = r, err
			close(answered)
		})
		select {
		case <-answered:
			return failed
		case <-m.done:
			return errors.New("the mock ends")
		}
	}
	err := ask("initialize", map[string]any{"protocolVersion": "2025-06-18",
		"capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo":   map[string]any{"name": "codex-mcp-client", "title": "Codex", "version": m.version}})
	if err != nil {
		return err
	}
	s.peer.notify("notifications/initialized", nil)
	if err := ask("tools/list", map[string]any{}); err != nil {
		return err
	}
	_ = json.Unmarshal(rawField(result, "tools"), &s.listed) // no list: no tools
	for _, tool := range s.listed {
		s.tools = append(s.tools, stringField(tool, "name"))
	}
	return nil
}

func mockStrings(v any) (out []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// mockSeconds reads a limit, in JSON's numbers or TOML's.
func mockSeconds(entry map[string]any, key string, usual time.Duration) time.Duration {
	switch n := entry[key].(type) {
	case float64:
		return time.Duration(n * float64(time.Second))
	case int64:
		return time.Duration(n) * time.Second
	}
	return usual
}

// startUps tells how a thread's servers start, as far as can be seen without starting
// them: whether the command exists, or somebody listens at the address. MOCK_MCP_START in
// a server's env says more: "fail:WHY" or "hang" (the server is never ready).
func (x *testMock) startUps(th *mockThread) {
	names := slices.Sorted(maps.Keys(threadServers(th)))
	names = slices.DeleteFunc(names, func(name string) bool {
		entry, _ := threadServers(th)[name].(map[string]any)
		return entry == nil || entry["enabled"] == false
	})
	for _, name := range names {
		x.serverStatus(th, name, "starting", "")
	}
	if len(names) == 0 {
		x.startedUp(th, nil, nil)
		return
	}
	x.goWork(func() {
		var ready, failed []any
		for _, name := range names {
			entry := threadServers(th)[name].(map[string]any)
			how, why, _ := strings.Cut(mockString(entry, "env", "MOCK_MCP_START"), ":")
			if how == "hang" {
				<-x.m.done
				return
			}
			if why = cmp.Or(why, mockUnstartable(entry)); why == "" {
				ready = append(ready, name)
				x.serverStatus(th, name, "ready", "")
				continue
			}
			failed = append(failed, map[string]any{"server": name, "error": why})
			x.serverStatus(th, name, "failed", "MCP client for `"+name+"` failed to start: MCP startup failed: "+why)
		}
		x.startedUp(th, ready, failed)
	})
}

// mockUnstartable says why a server can't start, "" if it may.
func mockUnstartable(entry map[string]any) string {
	if address := mockString(entry, "url"); address != "" {
		host, _, _ := strings.Cut(strings.TrimPrefix(address, "http://"), "/")
		c, err := net.DialTimeout("tcp", host, time.Second)
		if err != nil {
			return "handshaking with MCP server failed: Send message error Transport: error sending request for url (" +
				address + "), when send initialize request"
		}
		_ = c.Close() // it only was to be seen
		return ""
	}
	if _, err := exec.LookPath(mockString(entry, "command")); err != nil {
		return "No such file or directory (os error 2)"
	}
	return ""
}

func (x *testMock) serverStatus(th *mockThread, name, status, why string) {
	if x.m.mcp != nil || x.old() {
		state := map[string]any{"state": status}
		if why != "" {
			state["error"] = why
		}
		x.m.event(th.ID, "", "mcp_startup_update", map[string]any{"server": name, "status": state})
		return
	}
	th.tell(mockStatusMethod, map[string]any{"threadId": th.ID, "name": name, "status": status,
		"error": mockNull(why), "failureReason": nil})
}

const mockStatusMethod = "mcpServer/startupStatus/updated"

// startedUp is 0.104's sum.
func (x *testMock) startedUp(th *mockThread, ready, failed []any) {
	if x.m.mcp != nil || x.old() {
		x.m.event(th.ID, "", "mcp_startup_complete", map[string]any{"ready": append([]any{}, ready...),
			"failed": append([]any{}, failed...), "cancelled": []any{}})
	}
}

// goWork runs what waits for servers, unless the process ends. It ends by itself
// or with the process, which waits for it.
func (x *testMock) goWork(work func()) {
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	if !x.m.ended {
		x.m.turns.Go(work)
	}
}

// serverList tells of the servers of config.toml as far as can be seen without starting them.
func (x *testMock) serverList(m *mockServer, msg *message) {
	x.config.load()
	servers, _ := x.config.keys["mcp_servers"].(map[string]any)
	data := []any{}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		entry, _ := servers[name].(map[string]any)
		data = append(data, map[string]any{"name": name, "authStatus": "unsupported", "tools": map[string]any{},
			"toolsError": mockNull(mockUnstartable(entry))})
	}
	m.reply(msg, map[string]any{"data": data})
}

// fail shows an error and ends the turn. info is its kind in Codex's words.
func (t *mockTurn) fail(message string, info any) mockEnd {
	t.err = mockError(message, info, nil)
	t.setStatus("systemError")
	t.tell("error", map[string]any{"error": t.err, "willRetry": false})
	return failed
}

func mockError(message string, info, details any) map[string]any {
	return map[string]any{"message": message, "codexErrorInfo": info, "additionalDetails": details}
}
