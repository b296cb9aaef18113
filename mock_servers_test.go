package main

// mock_servers_test.go owns the MCP servers of the tests' codex: the entries of
// config.mcp_servers, which it starts as Codex does, one process a thread, with
// next to nothing of its own environment, and calls by newline JSON; and what it
// tells of how they start. Unlike Codex it starts a server at the first call, so
// that a thread costs no process. It must never leave one that its thread's closers
// can't find.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
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

// threadServers are the entries of a thread, fixed as it was opened.
func threadServers(th *mockThread) map[string]any {
	servers, _ := th.config["mcp_servers"].(map[string]any)
	return servers
}

// mcpToolDirective calls a tool of one of the thread's MCP servers:
// MCPTOOL server tool {json}.
func (x *testMock) mcpToolDirective(t *mockTurn, arg string) mockEnd {
	server, rest, _ := strings.Cut(arg, " ")
	tool, args, _ := strings.Cut(rest, " ")
	if args == "" || !validJSON([]byte(args)) {
		args = "{}"
	}
	entry, _ := threadServers(t.th)[server].(map[string]any) // fixed as the thread was opened
	s, err := x.toolServer(t, server, entry)
	if err == nil && !slices.Contains(s.tools, tool) {
		err = errors.New("no such tool")
	}
	if err != nil { // a server that doesn't start fails no thread: its tools are just not there
		fmt.Fprintf(t.m.stderr, "ERROR codex_core::mcp: MCP client for `%s` failed to start: %v\n", server, err)
		return t.toolAnswered("unsupported call: mcp__" + server + "__" + tool)
	}
	call := t.m.newID("call")
	it := t.item("mcpToolCall", call, map[string]any{"server": server, "tool": tool, "status": "inProgress", "arguments": json.RawMessage(args), "result": nil, "error": nil, "durationMs": nil})
	readOnly := s.readOnly(tool)
	it["appContext"], it["mcpAppUi"], it["pluginId"], it["readOnlyHint"] = nil, nil, nil, nil
	if readOnly {
		it["readOnlyHint"] = true
	}
	invocation := map[string]any{"server": server, "tool": tool, "arguments": json.RawMessage(args)}
	t.event("mcp_tool_call_begin", map[string]any{"call_id": call, "invocation": invocation})
	t.started(it) // before it is asked about, as measured
	ended := func(said string, outcome map[string]any) mockEnd {
		t.event("mcp_tool_call_end", map[string]any{"call_id": call, "invocation": invocation, "duration": map[string]any{"secs": 0, "nanos": 1}, "result": outcome})
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
	if !t.m.patient {
		shown["_meta"] = rawField(result, "_meta")
	}
	return shown
}

// askMCPTool: from 0.148 on a tool without annotations needs approval, unless its
// server's entry says otherwise; over mcp-server nobody can give it. 0.104 never
// asks. why says why it may not run, "" if it may.
func (x *testMock) askMCPTool(t *mockTurn, entry map[string]any, readOnly bool, server, tool, args string) (why string, end mockEnd) {
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
	x.mu.Unlock()
	m.mu.Lock()
	t.th.closers = append(t.th.closers, func() { s.end(m) })
	m.mu.Unlock()
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
	if m.mcp != nil && x.old() {
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
	s := &mockToolServer{stdin: stdin, kill: func() { _ = group.kill() }, ended: make(chan struct{})}
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

// startUps tells how a thread's servers start, as far as can be seen without
// starting them: whether the command exists, or somebody listens at the address.
// MOCK_MCP_START in a server's env says more: "slow:MS", "fail:WHY", "cancel" or
// "hang" (it is never ready).
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
		x.startedUp(th, nil, nil, nil)
		return
	}
	x.goWork(func() {
		var ready, failed, cancelled []any
		for _, name := range names {
			entry := threadServers(th)[name].(map[string]any)
			how, rest, _ := strings.Cut(mockString(entry, "env", "MOCK_MCP_START"), ":")
			why := mockUnstartable(entry)
			switch how {
			case "hang":
				<-x.m.done
				return
			case "slow":
				ms, _ := strconv.Atoi(rest)
				select {
				case <-time.After(time.Duration(ms) * time.Millisecond):
				case <-x.m.done:
					return
				}
			case "fail":
				why = rest
			case "cancel":
				cancelled = append(cancelled, name)
				if !x.old() { // 0.104 tells it in the sum alone
					x.serverStatus(th, name, "cancelled", "")
				}
				continue
			}
			if why != "" {
				failed = append(failed, map[string]any{"server": name, "error": why})
				x.serverStatus(th, name, "failed", "MCP client for `"+name+"` failed to start: MCP startup failed: "+why)
				continue
			}
			ready = append(ready, name)
			x.serverStatus(th, name, "ready", "")
		}
		x.startedUp(th, ready, failed, cancelled)
	})
}

// mockUnstartable says why a server can't start, "" if it may.
func mockUnstartable(entry map[string]any) string {
	if address := mockString(entry, "url"); address != "" {
		u, err := url.Parse(address)
		if err != nil {
			return err.Error()
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"https": "443"}[u.Scheme]
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), cmp.Or(port, "80")), time.Second)
		if err != nil {
			return "handshaking with MCP server failed: Send message error Transport: error sending request for url (" + address + "), when send initialize request"
		}
		_ = c.Close() // it only was to be seen
		return ""
	}
	if _, err := exec.LookPath(mockString(entry, "command")); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return "No such file or directory (os error 2)"
		}
		return err.Error()
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
	x.m.tell(th, mockStatusMethod, map[string]any{"threadId": th.ID, "name": name, "status": status, "error": mockNull(why), "failureReason": nil})
}

const mockStatusMethod = "mcpServer/startupStatus/updated"

// startedUp is 0.104's sum.
func (x *testMock) startedUp(th *mockThread, ready, failed, cancelled []any) {
	if x.m.mcp != nil || x.old() {
		x.m.event(th.ID, "", "mcp_startup_complete", map[string]any{"ready": append([]any{}, ready...), "failed": append([]any{}, failed...), "cancelled": append([]any{}, cancelled...)})
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

// serverList asks every server of config.toml for its tools, as the real ones do.
func (x *testMock) serverList(m *mockServer, msg *message) {
	x.config.load()
	servers, _ := x.config.keys["mcp_servers"].(map[string]any)
	x.goWork(func() {
		data := []any{}
		for _, name := range slices.Sorted(maps.Keys(servers)) {
			entry, _ := servers[name].(map[string]any)
			data = append(data, x.serverView(name, entry))
		}
		m.reply(msg, map[string]any{"data": data})
	})
}

// serverView is one entry of the list.
func (x *testMock) serverView(name string, entry map[string]any) map[string]any {
	tools, failure := map[string]any{}, any(nil)
	v := map[string]any{"name": name, "resources": []any{}, "resourceTemplates": []any{}, "authStatus": "unsupported"}
	if x.new() {
		for _, k := range []string{"runtimeStatus", "pluginId", "httpOrigin", "serverInfo", "serverCapabilities", "toolListMeta"} {
			v[k] = nil
		}
	}
	if entry["enabled"] != false && mockString(entry, "command") != "" {
		s, err := x.startServer(x.m, "", entry)
		if err == nil {
			err = s.greet(x.m, mockSeconds(entry, "startup_timeout_sec", 10*time.Second))
			for _, tool := range s.listed {
				tools[stringField(tool, "name")] = tool
			}
			_ = s.stdin.Close() // gone already is as good
			late := time.AfterFunc(mockServerEnd, s.kill)
			<-s.ended
			late.Stop()
			if x.new() && s.info != nil {
				v["serverInfo"], v["serverCapabilities"] = s.info, map[string]any{"tools": map[string]any{}}
			}
		}
		if err != nil {
			failure = "MCP startup failed: " + err.Error()
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
				failure = "MCP startup failed: No such file or directory (os error 2)"
			}
		}
	}
	v["tools"] = tools
	if x.new() {
		v["toolsError"] = failure
	}
	return v
}

// A server gets the variables of its entry and hardly any of Codex's own, so a script that works with the tests' codex
// doesn't depend on what the real one would keep from its servers.
func TestMockServersEnvironment(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its server is a shell")
	}
	t.Setenv("SECRET", "ours")
	told := filepath.Join(t.TempDir(), "told")
	entry := map[string]any{"command": "/bin/sh", "args": []string{"-c", `echo "ATM_HOME=$ATM_HOME SECRET=$SECRET" > "$0"`, told},
		"env": map[string]string{"ATM_HOME": "/a"}}
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir(), "config": map[string]any{"mcp_servers": map[string]any{"atm": entry}}})
	if got, _ := r.turn(th, "MCPTOOL atm atm_send {}"); got != "DONE: unsupported call: mcp__atm__atm_send" {
		t.Errorf("a server that ends at once: %q", got)
	}
	if got := readText(t, told); got != "ATM_HOME=/a SECRET=\n" {
		t.Errorf("the server was told %q", got)
	}
}
