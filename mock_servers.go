package main

// mock_servers.go owns the MCP servers of a mock Codex's threads: the entries of
// config.mcp_servers, which it starts as Codex does, one process a thread, with
// next to nothing of its own environment, and calls by newline JSON. The MCPTOOL
// directive in mock_chaos.go leads here, on the turn's goroutine. Unlike Codex it
// starts a server at the first call, so that a thread costs no process. It must
// never leave one that stopServers can't find.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// mockServerEnd is how long a server may take to end by the end of its stdin.
const mockServerEnd = 2 * time.Second

// mockToolServer is one running MCP server of a thread.
type mockToolServer struct {
	stdin io.WriteCloser
	peer  *peer
	kill  func()
	ended chan struct{} // closed when the process has ended
	tools []string

	info   json.RawMessage // serverInfo
	listed []json.RawMessage
}

// mcpToolDirective calls a tool of one of the thread's MCP servers:
// MCPTOOL server tool {json}.
func mcpToolDirective(t *mockTurn, arg string) mockEnd {
	server, rest, _ := strings.Cut(arg, " ")
	tool, args, _ := strings.Cut(rest, " ")
	if args == "" || !validJSON([]byte(args)) {
		args = "{}"
	}
	t.toolBegins()
	entry, _ := t.th.servers[server].(map[string]any) // fixed as the thread was opened
	s, err := t.m.toolServer(t, server, entry)
	if err == nil && !slices.Contains(s.tools, tool) {
		err = errors.New("no such tool")
	}
	if err != nil { // a server that doesn't start fails no thread: its tools are just not there
		fmt.Fprintf(t.m.stderr, "ERROR codex_core::mcp: MCP client for `%s` failed to start: %v\n", server, err)
		t.told("unsupported call: mcp__" + server + "__" + tool)
		t.toolEnded()
		return goOn
	}
	call := t.m.newID("call")
	it := t.item("mcpToolCall", call, map[string]any{"server": server, "tool": tool, "status": "inProgress", "arguments": json.RawMessage(args), "result": nil, "error": nil, "durationMs": nil})
	readOnly := s.readOnly(tool)
	if t.m.new() && readOnly {
		it["readOnlyHint"] = true
	}
	invocation := map[string]any{"server": server, "tool": tool, "arguments": json.RawMessage(args)}
	t.event("mcp_tool_call_begin", map[string]any{"call_id": call, "invocation": invocation})
	t.started(it) // before it is asked about, as measured
	ended := func(said string, outcome map[string]any) mockEnd {
		t.event("mcp_tool_call_end", map[string]any{"call_id": call, "invocation": invocation, "duration": map[string]any{"secs": 0, "nanos": 1}, "result": outcome})
		t.completed(it)
		t.told(said)
		t.toolEnded()
		return goOn
	}
	if why, end := t.askMCPTool(entry, readOnly, server, tool, args); end != goOn {
		return end
	} else if why != "" {
		it["status"], it["error"], it["durationMs"] = "failed", map[string]any{"message": why}, 0
		return ended(why, map[string]any{"Err": why})
	}
	meta := map[string]any{"progressToken": 0}
	if !t.m.old() {
		meta["threadId"], meta["callId"] = t.th.ID, call
	}
	var result json.RawMessage
	var failed error
	answered := make(chan struct{})
	s.peer.call("tools/call", map[string]any{"name": tool, "arguments": json.RawMessage(args), "_meta": meta}, mockSeconds(entry, "tool_timeout_sec", time.Minute), func(r json.RawMessage, err error) {
		result, failed = r, err
		close(answered)
	})
	if end := t.wait(answered, false); end != goOn {
		return end // the server isn't told, and the item never completes
	}
	it["status"], it["result"], it["durationMs"] = "completed", t.toolResult(result), 1
	said := ""
	var parts []json.RawMessage
	_ = json.Unmarshal(rawField(result, "content"), &parts) // none: nothing was said
	for _, p := range parts {
		said += stringField(p, "text")
	}
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
	shown := map[string]any{"content": rawField(result, "content"), "structuredContent": rawField(result, "structuredContent")}
	if t.m.new() {
		shown["_meta"] = rawField(result, "_meta")
	}
	return shown
}

// askMCPTool: from 0.148 on a tool without annotations needs approval, unless its
// server's entry says otherwise; over mcp-server nobody can give it. 0.104 never
// asks. why says why it may not run, "" if it may.
func (t *mockTurn) askMCPTool(entry map[string]any, readOnly bool, server, tool, args string) (why string, end mockEnd) {
	if t.m.old() || readOnly || mockString(entry, "default_tools_approval_mode") == "approve" {
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
		"_meta":   map[string]any{"codex_approval_kind": "mcp_tool_call", "tool_name": tool, "tool_params": json.RawMessage(args), "persist": []string{"session", "always"}},
		"message": fmt.Sprintf("Allow the %s MCP server to run tool %q?", server, tool), "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}}}, "waitingOnApproval")
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
func (m *mockServer) toolServer(t *mockTurn, name string, entry map[string]any) (*mockToolServer, error) {
	m.mu.Lock()
	s, ended := t.th.running[name], m.ended
	m.mu.Unlock()
	switch {
	case s != nil:
		return s, nil
	case entry == nil || entry["enabled"] == false || ended:
		return nil, errors.New("there is none")
	}
	s, err := m.startServer(t.settings.Cwd, entry)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	if t.th.running == nil {
		t.th.running = map[string]*mockToolServer{}
	}
	t.th.running[name] = s
	m.mu.Unlock()
	return s, s.greet(m, mockSeconds(entry, "startup_timeout_sec", 10*time.Second))
}

// startServer runs an entry's command.
func (m *mockServer) startServer(cwd string, entry map[string]any) (*mockToolServer, error) {
	cmd := exec.Command(mockString(entry, "command"), mockStrings(entry["args"])...)
	cmd.Dir = cwd
	if m.mcp != nil && m.old() {
		cmd.Dir = "" // the mcp-server of 0.104 hands down its own
	}
	if dir := mockString(entry, "cwd"); dir != "" {
		cmd.Dir = dir
	}
	for _, key := range append([]string{"HOME", "PATH", "LANG", "TERM"}, mockStrings(entry["env_vars"])...) {
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
	mockOwnSession(cmd)
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
	s := &mockToolServer{stdin: stdin, kill: func() { mockKillSession(cmd) }, ended: make(chan struct{})}
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
	err := ask("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo": map[string]any{"name": "codex-mcp-client", "title": "Codex", "version": m.version}})
	if err != nil {
		return err
	}
	s.info = rawField(result, "serverInfo")
	s.peer.notify("notifications/initialized", nil, false)
	if err := ask("tools/list", map[string]any{}); err != nil {
		return err
	}
	_ = json.Unmarshal(rawField(result, "tools"), &s.listed) // no list: no tools
	for _, tool := range s.listed {
		s.tools = append(s.tools, stringField(tool, "name"))
	}
	return nil
}

// stopServers ends the servers of a thread, nil: of all.
func (m *mockServer) stopServers(th *mockThread) {
	m.mu.Lock()
	var stop []*mockToolServer
	for _, each := range m.threads {
		if th == nil || each == th {
			for _, s := range each.running {
				stop = append(stop, s)
			}
			each.running = nil
		}
	}
	m.mu.Unlock()
	for _, s := range stop {
		_ = s.stdin.Close() // gone already is as good
		m.turns.Add(1)
		go func() { // ends with the process; turns counts it
			defer m.turns.Done()
			late := time.AfterFunc(mockServerEnd, s.kill)
			defer late.Stop()
			<-s.ended
		}()
	}
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

// toolsDirective calls several dynamic tools at once, as code mode can:
// TOOLS name {json} ;; name {json}. The model hears the answers in that order.
func toolsDirective(t *mockTurn, arg string) mockEnd {
	calls := strings.Split(arg, " ;; ")
	said := make([]string, len(calls))
	answered := make(chan struct{}, len(calls))
	t.toolBegins()
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
	t.told(strings.Join(said, " | "))
	t.toolEnded()
	return goOn
}
