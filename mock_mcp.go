package main

// mock_mcp.go owns the mock Codex as `codex mcp-server`, up to 0.153: its two
// tools, whose events and answers come out of one queue a thread that every
// open call reads, cancelled ones too. That is what makes its traps: a
// cancelled call is never answered and takes the next turn's answer, and a
// failed turn leaves one end behind that answers the next call. mock.go
// dispatches to it; the turns are the same as app-server's.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mockMCP is what only mcp-server has. mockServer.mu guards it.
type mockMCP struct {
	queues map[string]*mockQueue // by thread
	eof    bool                  // ends when no call is open any more
}

// mockQueue is a thread's events and the calls that read them.
type mockQueue struct {
	events  []mockQueued
	readers []json.RawMessage // ids of tools/call
	active  *mockTurn         // after task_started: before that a cancel is lost
}

type mockQueued struct {
	turn, kind string
	fields     map[string]any
}

// hasMCP: 0.154 removed the command.
func (p mockPersona) hasMCP() bool { return p.minor < 154 }

// mockMCPServer is `codex mcp-server`, from first byte to exit code.
func mockMCPServer(ctx context.Context, persona mockPersona, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		return mockUsage(stderr, fmt.Sprintf("unexpected argument '%s' found", args[0]), "codex mcp-server [OPTIONS]")
	}
	home, err := openMockHome(nil) // overrides on the command line are not applied
	if err != nil {
		fmt.Fprintf(stderr, "Error: %v\n", err)
		return 1
	}
	if persona.minor >= 149 {
		fmt.Fprintln(stderr, "warning: `codex mcp-server` is deprecated and will be removed in a future release.")
	}
	m := &mockServer{
		mockPersona: persona, home: home, stderr: stderr,
		out:  &mockStdout{w: stdout, written: make(chan struct{}, 1)},
		quit: make(chan int, 1), done: make(chan struct{}),
		threads: map[string]*mockThread{}, drop: map[string]int{}, shells: map[*mockShell]bool{},
		mcp: &mockMCP{queues: map[string]*mockQueue{}},
	}
	m.mcpSignals()
	mockSurviveSIGPIPE() // as Rust does: a client that was killed must not keep us from ending our shells
	if code, ended := m.startUp(ctx, stdin, stdout); ended {
		return code
	}
	trace, closeLog, err := mockLog()
	if err != nil {
		fmt.Fprintf(stderr, "Error: opening MOCK_CODEX_LOG: %v\n", err)
		return 1
	}
	defer closeLog()
	m.peer = newPeer(stdin, m.out, peerOptions{mode: framingNewline, handle: m.mcpHandle, trace: trace})
	m.peer.nextID = -1
	go func() { // ends with stdin; nobody waits for it, since only the client can close stdin
		_ = m.peer.run()
		m.mu.Lock()
		m.mcp.eof = true
		open := m.mcp.open()
		m.mu.Unlock()
		if !open && !m.noEOF.Load() {
			m.exit(0)
		}
	}()
	code := 0
	select {
	case code = <-m.quit:
	case <-ctx.Done():
	}
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	close(m.done)
	m.killShells(nil)
	m.stopServers(nil)
	m.turns.Wait()
	m.peer.closeOut(mockFlush)
	m.home.release()
	if code == dieOfTERM {
		code = 143
		signal.Reset(syscall.SIGTERM)
		if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(syscall.SIGTERM) == nil {
			<-make(chan struct{}) // the signal is on its way
		}
	}
	return code
}

// dieOfTERM stands for an exit code: the process ends by the signal, once no
// turn can start a shell any more.
const dieOfTERM = -15

// mcpSignals: every version dies by the signal, and takes its shells along.
func (m *mockServer) mcpSignals() {
	signal.Reset(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() { // one for the process, ends with it
		select {
		case <-term:
			m.exit(dieOfTERM)
		case <-m.done:
		}
	}()
}

// open reports a call without an answer.
func (c *mockMCP) open() bool {
	for _, q := range c.queues {
		if len(q.readers) > 0 {
			return true
		}
	}
	return false
}

// mcpHandle takes one message, on the reading goroutine. What isn't here gets
// no answer at all from the real ones, or -32601.
func (m *mockServer) mcpHandle(msg *message) {
	switch msg.method {
	case "initialize":
		switch {
		case m.noInit:
		case m.client.ready:
			m.peer.replyError(msg.id, &rpcError{Code: codeInvalidRequest, Message: "initialize called more than once"})
		default:
			m.client.ready = true
			m.peer.reply(msg.id, map[string]any{"protocolVersion": rawField(msg.params, "protocolVersion"),
				"capabilities": map[string]any{"tools": map[string]any{"listChanged": true}},
				"serverInfo":   map[string]any{"name": "codex-mcp-server", "title": "Codex", "version": m.version, "user_agent": "codex_cli_rs/" + m.version + " (Mock 1.0; x86_64) dumb (mock; 0)"}})
		}
	case "ping":
		m.peer.reply(msg.id, struct{}{})
	case "tools/list":
		m.peer.reply(msg.id, map[string]any{"tools": m.mcpTools()})
	case "tools/call":
		if !m.heeds(msg.method) {
			m.mcpCall(msg)
		}
	case "notifications/cancelled":
		m.mcpCancel(rawField(msg.params, "requestId"))
	case "resources/list", "resources/templates/list", "resources/read", "prompts/list", "prompts/get", "logging/setLevel", "completion/complete":
	default:
		if msg.isRequest() {
			m.peer.replyError(msg.id, &rpcError{Code: codeNoMethod, Message: "method not found: " + msg.method})
		}
	}
}

func (m *mockServer) mcpWords() []string {
	switch {
	case m.old():
		return []string{"untrusted", "on-failure", "on-request", "never"}
	case m.minor < 149:
		return []string{"untrusted", "on-request", "never"}
	}
	return []string{"on-request", "never"}
}

// mcpTools is tools/list in the version's schema.
func (m *mockServer) mcpTools() []any {
	text := map[string]any{"type": "string"}
	enum := func(words ...string) any { return map[string]any{"type": "string", "enum": words} }
	props := map[string]any{"prompt": text, "model": text, "cwd": text, "base-instructions": text, "developer-instructions": text, "compact-prompt": text,
		"sandbox": enum("read-only", "workspace-write", "danger-full-access"), "approval-policy": enum(m.mcpWords()...),
		"config": map[string]any{"type": "object", "additionalProperties": true}}
	start := map[string]any{"type": "object", "required": []string{"prompt"}, "properties": props}
	if m.old() {
		props["profile"] = text
	} else {
		start["additionalProperties"] = false
	}
	out := map[string]any{"type": "object", "required": []string{"threadId", "content"}, "properties": map[string]any{"threadId": text, "content": text}}
	return []any{
		map[string]any{"name": "codex", "title": "Codex", "description": "Run a Codex session.", "inputSchema": start, "outputSchema": out},
		map[string]any{"name": "codex-reply", "title": "Codex Reply", "description": "Continue a Codex conversation.", "outputSchema": out,
			"inputSchema": map[string]any{"type": "object", "required": []string{"prompt"}, "properties": map[string]any{"prompt": text, "threadId": text, "conversationId": text}}},
	}
}

// mcpAnswer is a tool's result; structured is left out where there is no thread.
func (m *mockServer) mcpAnswer(id json.RawMessage, thread, text string, isError bool) {
	r := map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
	if thread != "" {
		r["structuredContent"] = map[string]any{"threadId": thread, "content": text}
	}
	if isError {
		r["isError"] = true
	}
	m.peer.reply(id, r)
}

func (m *mockServer) mcpCall(msg *message) {
	args := rawField(msg.params, "arguments")
	refuse := func(text string) { m.mcpAnswer(msg.id, "", text, true) }
	const parsing = "Failed to parse configuration for Codex tool: "
	switch name := stringField(msg.params, "name"); {
	case name != "codex" && name != "codex-reply":
		refuse(fmt.Sprintf("Unknown tool '%s'", name))
	case args == nil:
		refuse("Missing arguments for codex tool-call; the `prompt` field is required.")
	case rawField(args, "prompt") == nil:
		refuse(parsing + "missing field `prompt`")
	case name == "codex-reply":
		id := cmp.Or(stringField(args, "threadId"), stringField(args, "conversationId"))
		m.mu.Lock()
		th := m.threads[id]
		m.mu.Unlock()
		if th == nil {
			m.mcpAnswer(msg.id, id, "Session not found for thread_id: "+id, true)
			return
		}
		m.mcpTurn(msg.id, th, stringField(args, "prompt"), newMockID())
	default:
		known := []string{"approval-policy", "base-instructions", "compact-prompt", "config", "cwd", "developer-instructions", "model", "prompt", "sandbox"}
		bad := ""
		_ = eachField(args, func(key string, _ json.RawMessage) bool {
			if !m.old() && !slices.Contains(known, key) {
				bad = fmt.Sprintf("unknown field `%s`, expected one of `%s`", key, strings.Join(known, "`, `"))
			}
			return true
		})
		if w := stringField(args, "approval-policy"); w != "" && !slices.Contains(m.mcpWords(), w) {
			bad = strings.TrimPrefix(mockVariant(w, m.mcpWords()...), "Invalid request: ")
		}
		if bad != "" {
			refuse(parsing + bad)
			return
		}
		m.mcpStart(msg.id, args)
	}
}

// mcpStart is the codex tool: a thread and its first turn.
func (m *mockServer) mcpStart(call, args json.RawMessage) {
	params := map[string]json.RawMessage{}
	for ours, theirs := range map[string]string{"cwd": "cwd", "model": "model", "approvalPolicy": "approval-policy", "sandbox": "sandbox", "config": "config"} {
		if v := rawField(args, theirs); v != nil {
			params[ours] = v
		}
	}
	s, cfg, failed := m.settle(toJSON(params), nil)
	if failed != "" {
		m.mcpAnswer(call, "", "Failed to load Codex configuration from overrides: "+failed, true)
		return
	}
	if mockString(cfg, "projects", s.Cwd, "trust_level") == "untrusted" && params["approvalPolicy"] == nil {
		s.Approval = toJSON("untrusted")
	}
	th := &mockThread{mockThreadState: mockThreadState{ID: newMockID(), Created: time.Now().Unix(), Settings: s,
		Base: cmp.Or(stringField(args, "base-instructions"), mockString(cfg, "instructions"))}}
	th.servers, _ = cfg["mcp_servers"].(map[string]any)
	if d := cmp.Or(stringField(args, "developer-instructions"), mockString(cfg, "developer_instructions")); d != "" {
		th.Developer = []string{d}
	}
	m.load(th)
	m.mu.Lock()
	m.mcp.queues[th.ID] = &mockQueue{readers: []json.RawMessage{slices.Clone(call)}}
	m.mu.Unlock()
	m.event(th.ID, "", "session_configured", map[string]any{"session_id": th.ID, "model": s.Model, "model_provider_id": "mock", "approval_policy": s.approval(),
		"sandbox_policy": map[string]any{"type": s.sandbox()}, "cwd": s.Cwd, "rollout_path": m.home.path(th.ID)})
	m.event(th.ID, "", "mcp_startup_complete", map[string]any{"ready": []any{}, "failed": []any{}, "cancelled": []any{}})
	id := newMockID()
	if m.old() { // the first turn is named like the call
		id, _ = strconv.Unquote(string(call))
		id = cmp.Or(id, string(call))
	}
	m.mcpTurn(nil, th, stringField(args, "prompt"), id)
}

// mcpTurn runs a turn, or steers the one that runs; call becomes one more
// reader of the thread.
func (m *mockServer) mcpTurn(call json.RawMessage, th *mockThread, prompt, id string) {
	input := toJSON([]any{map[string]any{"type": "text", "text": prompt}})
	m.mu.Lock()
	q := m.mcp.queues[th.ID]
	if call != nil {
		q.readers = append(q.readers, slices.Clone(call))
	}
	active := th.active
	m.mu.Unlock()
	if active == nil || !active.steer(input, func() {}) {
		t := m.newTurn(th)
		t.id, t.rec.ID = id, id
		m.mu.Lock()
		if m.ended {
			m.mu.Unlock()
			return
		}
		m.turns.Add(1)
		th.active, th.used, th.turns = t, true, append(th.turns, t.rec)
		m.mu.Unlock()
		t.heed(t.steps(prompt))
		go t.run(input) // ends with the turn or the process; turns counts it
	}
	m.mu.Lock()
	m.pumpLocked(th.ID, q)
	m.mu.Unlock()
}

// mcpEvent puts an event into its thread's queue.
func (m *mockServer) mcpEvent(thread, turn, kind string, fields map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.mcp.queues[thread]
	if q == nil {
		return // a subagent's: those are not told
	}
	switch th := m.threads[thread]; kind {
	case "task_started":
		q.active = th.active
	case "task_complete", "turn_aborted":
		q.active = nil
	}
	q.events = append(q.events, mockQueued{turn, kind, fields})
	m.pumpLocked(thread, q)
}

// pumpLocked gives each event to one of the calls that read the thread, as it
// happens, and answers the call that read an end.
func (m *mockServer) pumpLocked(thread string, q *mockQueue) {
	for len(q.events) > 0 && len(q.readers) > 0 {
		e := q.events[0]
		q.events = q.events[1:]
		i := rand.IntN(len(q.readers))
		call := q.readers[i]
		m.peer.notify("codex/event", map[string]any{"_meta": map[string]any{"requestId": call, "threadId": thread}, "id": e.turn, "msg": e.fields}, false)
		switch text, _ := e.fields["message"].(string); e.kind {
		case "error":
			m.mcpAnswer(call, thread, text, true)
		case "task_complete":
			last, _ := e.fields["last_agent_message"].(string)
			m.mcpAnswer(call, thread, last, false)
		default:
			continue
		}
		q.readers = slices.Delete(q.readers, i, i+1)
	}
	if m.mcp.eof && !m.mcp.open() {
		m.exit(0)
	}
}

// mcpCancel interrupts the turn of a thread that the call reads. The call
// stays a reader.
func (m *mockServer) mcpCancel(call json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.mcp.queues {
		if q.active != nil && slices.ContainsFunc(q.readers, func(r json.RawMessage) bool { return string(r) == string(call) }) {
			q.active.interruptLocked(nil)
		}
	}
}

// mcpAsk is an approval as an elicitation, with the answer in app-server's
// words. An error for an answer hangs the turn, as it does the real one.
func (t *mockTurn) mcpAsk(method string, params map[string]any) (json.RawMessage, mockEnd) {
	ask := map[string]any{"threadId": t.th.ID, "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}},
		"codex_mcp_tool_call_id": "0", "codex_event_id": t.id, "codex_call_id": params["itemId"]}
	switch method {
	case "item/commandExecution/requestApproval":
		line := stringField(toJSON(params["commandActions"].([]any)[0]), "command")
		ask["codex_elicitation"], ask["codex_command"], ask["codex_cwd"] = "exec-approval", []string{"/bin/bash", "-lc", line}, t.settings.Cwd
		ask["message"] = fmt.Sprintf("Allow Codex to run `%s` in `%s`?", params["command"], t.settings.Cwd)
	case "item/fileChange/requestApproval":
		ask["codex_elicitation"], ask["codex_changes"], ask["message"] = "patch-approval", params["changes"], "Allow Codex to apply proposed code changes?"
	case "item/tool/requestUserInput":
		t.event("request_user_input", map[string]any{"call_id": params["itemId"], "turn_id": t.id, "questions": params["questions"]})
		return nil, t.wait(nil, false)
	default:
		t.event("elicitation_request", map[string]any{"server_name": params["serverName"], "message": params["message"]})
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
	case string(d) == `"approved"`:
		word = "accept"
	case string(d) == `"approved_for_session"`:
		word = "acceptForSession"
	case string(d) == `"abort"`:
		word = "cancel"
	case string(d) == `"denied"` && t.m.old():
		word = "decline"
	case rawField(d, "approved_execpolicy_amendment", "proposed_execpolicy_amendment") != nil:
		return toJSON(map[string]any{"decision": map[string]any{"acceptWithExecpolicyAmendment": map[string]any{
			"execpolicy_amendment": rawField(d, "approved_execpolicy_amendment", "proposed_execpolicy_amendment")}}}), goOn
	case rawField(d, "denied", "rejection") != nil && !t.m.old():
		word, why = "decline", stringField(d, "denied", "rejection")
	}
	return toJSON(map[string]any{"decision": word, "rejection": why}), goOn
}
