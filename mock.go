package main

// mock.go owns the mock Codex process: its command line, environment, life and
// death, and which method belongs to which Codex version. `mock-codex ARGS…`
// takes what a real codex gets and behaves like the recordings of 0.104.0,
// 0.153.0 and 0.169.0, so that every trap of the wire can be tested offline
// and without an account. main calls runMock. It must never use more of the
// program than frames and the peer: it stands for somebody else's program.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// mockFlush is how long an ending mock waits for a client that doesn't read.
const mockFlush = 250 * time.Millisecond

// mockPersona is the Codex version that is played.
type mockPersona struct {
	version string
	minor   int
}

func (p mockPersona) old() bool { return p.minor < 148 }  // 0.104: codex/event doubles, no status events
func (p mockPersona) new() bool { return p.minor >= 158 } // 0.169: steers preempt, idle interrupts are refused

// mockServer is one `codex app-server` process, or with mcp set mcp-server.
type mockServer struct {
	mockPersona
	peer   *peer
	home   mockHome
	stderr io.Writer
	out    *mockStdout
	quit   chan int      // one exit code ends the process
	done   chan struct{} // closed when it ends: every turn goroutine leaves
	turns  sync.WaitGroup
	noInit bool
	noEOF  atomic.Bool
	ids    atomic.Int64 // items and calls

	mu      sync.Mutex // guards the fields below and everything in a mockThread
	client  mockClient
	threads map[string]*mockThread
	drop    map[string]int // method: how many requests to swallow
	shells  map[*mockShell]bool
	login   *mockLogin // that waits for a person
	ended   bool       // no turn and no shell begins any more
	mcp     *mockMCP   // nil for app-server
}

// mockClient is what initialize told.
type mockClient struct {
	ready        bool
	name         string
	experimental bool
	optOut       map[string]bool
}

// mockStdout tells FLOOD when bytes have left, so that it holds no more than
// a bounded part of them in memory.
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

// runMock is `mock-codex args…`. It returns the exit code.
func runMock(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	persona := mockPersona{version: os.Getenv("MOCK_CODEX_VERSION")}
	if persona.version == "" {
		persona.version = "0.169.0"
	}
	parts := strings.Split(persona.version, ".")
	if len(parts) == 3 {
		persona.minor, _ = strconv.Atoi(parts[1])
	}
	if persona.minor == 0 {
		fmt.Fprintf(stderr, "Error: MOCK_CODEX_VERSION is %q, not a version like 0.169.0\n", persona.version)
		return 1
	}
	var overrides []string
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		flag, value, joined := strings.Cut(args[0], "=")
		switch flag {
		case "--version", "-V":
			fmt.Fprintf(stdout, "codex-cli %s-mock\n", persona.version)
			return 0
		case "--help", "-h":
			fmt.Fprint(stdout, "Codex CLI (mock)\n\nUsage: codex [OPTIONS] <COMMAND> [ARGS]\n\nCommands:\n  app-server  [experimental] Run the app server or related tooling\n")
			return 0
		case "-c", "--config", "-m", "--model":
		default:
			return mockUsage(stderr, fmt.Sprintf("unexpected argument '%s' found", args[0]), "codex [OPTIONS] [PROMPT]")
		}
		args = args[1:]
		if !joined {
			if len(args) == 0 {
				return mockUsage(stderr, fmt.Sprintf("a value is required for '%s' but none was supplied", flag), "codex [OPTIONS] [PROMPT]")
			}
			value, args = args[0], args[1:]
		}
		if flag == "-m" || flag == "--model" {
			value = "model=" + strconv.Quote(value)
		}
		overrides = append(overrides, value)
	}
	appServer := os.Getenv("MOCK_CODEX_NO_APP_SERVER") == "" // a Codex from before it
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "app-server":
		if !appServer {
			break
		}
		return mockAppServer(ctx, persona, overrides, args, stdin, stdout, stderr)
	case "mcp-server":
		if persona.hasMCP() {
			return mockMCPServer(ctx, persona, args, stdin, stdout, stderr)
		}
	case "help":
		if len(args) > 0 && args[0] == "mcp-server" && persona.hasMCP() {
			fmt.Fprint(stdout, "Start Codex as an MCP server (stdio)\n\nUsage: codex mcp-server [OPTIONS]\n")
			return 0
		}
		if len(args) == 0 || args[0] == "app-server" && appServer {
			fmt.Fprint(stdout, "[experimental] Run the app server or related tooling\n\nUsage: codex app-server [OPTIONS] [COMMAND]\n")
			return 0
		}
		return mockUsage(stderr, fmt.Sprintf("unrecognized subcommand '%s'", args[0]), "codex [OPTIONS] [PROMPT]")
	}
	// A real codex of 0.154 and later takes `mcp-server` and any other word
	// for a prompt and says "stdin is not a terminal" (rc 1); only
	// `help mcp-server` is told as below. The clear answer is kept for both.
	return mockUsage(stderr, fmt.Sprintf("unrecognized subcommand '%s'", command), "codex [OPTIONS] [PROMPT]")
}

func mockUsage(stderr io.Writer, what, usage string) int {
	fmt.Fprintf(stderr, "error: %s\n\nUsage: %s\n\nFor more information, try '--help'.\n", what, usage)
	return 2
}

// mockAppServer is `codex app-server`, from first byte to exit code.
func mockAppServer(ctx context.Context, persona mockPersona, overrides, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-c" && i+1 < len(args):
			i++
			overrides = append(overrides, args[i])
		case args[i] == "--stdio" && !persona.old():
		default:
			return mockUsage(stderr, fmt.Sprintf("unexpected argument '%s' found", args[i]), "codex app-server [OPTIONS] [COMMAND]")
		}
	}
	home, err := openMockHome(overrides)
	if err != nil {
		fmt.Fprintf(stderr, "WARNING: proceeding, even though we could not create PATH aliases: %v\nError: %v\n", err, err)
		return 1
	}
	m := &mockServer{
		mockPersona: persona, home: home, stderr: stderr,
		out:  &mockStdout{w: stdout, written: make(chan struct{}, 1)},
		quit: make(chan int, 1), done: make(chan struct{}),
		threads: map[string]*mockThread{}, drop: map[string]int{}, shells: map[*mockShell]bool{},
	}
	m.signals()
	defer signal.Reset(syscall.SIGTERM)
	if code, ended := m.startUp(ctx, stdin, stdout); ended {
		return code
	}
	trace, closeLog, err := mockLog()
	if err != nil {
		fmt.Fprintf(stderr, "Error: opening MOCK_CODEX_LOG: %v\n", err)
		return 1
	}
	defer closeLog()
	m.peer = newPeer(stdin, m.out, peerOptions{mode: framingNewline, noVersion: true, handle: m.handle, trace: trace})
	m.peer.nextID = -1 // Codex counts its own requests from 0, which collides with the client's ids
	go func() {        // ends with stdin; nobody waits for it, since only the client can close stdin
		_ = m.peer.run()
		if !m.noEOF.Load() {
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
	if code == 0 {
		m.killShells(nil)
		m.stopServers(nil)
		m.turns.Wait()
	}
	m.peer.closeOut(mockFlush)
	m.home.release()
	return code
}

// exit ends the process with a code. The first one counts.
func (m *mockServer) exit(code int) {
	select {
	case m.quit <- code:
	default:
	}
}

// signals: 0.169 answers TERM with exit 0 and clean children, 0.104 dies by
// the signal and leaves its shells; INT and HUP kill both.
func (m *mockServer) signals() {
	signal.Reset(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	mockSurviveSIGPIPE() // as Rust does: a client that was killed must not keep us from ending our shells
	if m.old() {
		return
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() { // one for the process, ends with it
		select {
		case <-term:
			m.exit(0)
		case <-m.done:
		}
	}()
}

// startUp plays MOCK_CODEX_START. The second result says that the process
// ends here.
func (m *mockServer) startUp(ctx context.Context, stdin io.Reader, stdout io.Writer) (int, bool) {
	how, rest, _ := strings.Cut(os.Getenv("MOCK_CODEX_START"), ":")
	switch how {
	case "":
	case "exit":
		code, text, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(code)
		if err != nil {
			n = 1
		}
		if text != "" {
			fmt.Fprintln(m.stderr, text)
		}
		return n, true
	case "hang":
		ended := make(chan struct{})
		go func() { // ends with stdin, like the reader it stands for
			_, _ = io.Copy(io.Discard, stdin)
			close(ended)
		}()
		select {
		case <-ended:
		case <-ctx.Done():
		case <-m.quit:
		}
		return 0, true
	case "slow":
		ms, _ := strconv.Atoi(rest)
		t := time.NewTimer(time.Duration(ms) * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return 0, true
		case code := <-m.quit:
			return code, true
		}
	case "garbage":
		fmt.Fprint(stdout, "warning: this line is not JSON\n{\"half\":\n[]\n\x00\x01\xff\n\"a string\"\n42\n{}\n")
	case "noinit":
		m.noInit = true
	default:
		fmt.Fprintf(m.stderr, "Error: MOCK_CODEX_START is %q; it can be exit:CODE:TEXT, hang, slow:MS, garbage or noinit\n", how)
		return 1, true
	}
	return 0, false
}

// mockLog returns the trace func that appends received frames to
// MOCK_CODEX_LOG, nil without it.
func mockLog() (func(string, []byte), func(), error) {
	path := os.Getenv("MOCK_CODEX_LOG")
	if path == "" {
		return nil, func() {}, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return func(dir string, rec []byte) {
		if dir != "<" {
			return
		}
		if !validJSON(rec) {
			rec = appendJSONString(nil, string(rec))
		}
		_, _ = f.Write(append(slices.Clone(rec), '\n')) // a test reads it; what is lost fails the test
	}, func() { _ = f.Close() }, nil
}

// mockMethod is one client method and the versions that have it.
type mockMethod struct {
	name         string
	from         int  // first minor version
	experimental bool // needs capabilities.experimentalApi
	run          func(*mockServer, *message)
}

// mockMethods are those the mock has. The real programs have more; their
// error text lists them all, this one what can be used.
func mockMethods() []mockMethod {
	return []mockMethod{
		{"initialize", 0, false, (*mockServer).initialize},
		{"thread/start", 0, false, (*mockServer).threadStart},
		{"thread/resume", 0, false, (*mockServer).threadResume},
		{"thread/fork", 0, false, (*mockServer).threadFork},
		{"thread/archive", 0, false, (*mockServer).threadArchive},
		{"thread/unsubscribe", 148, false, (*mockServer).threadUnsubscribe},
		{"thread/name/set", 0, false, (*mockServer).threadName},
		{"thread/inject_items", 148, false, (*mockServer).threadInject},
		{"thread/compact/start", 0, false, (*mockServer).threadCompact},
		{"thread/settings/update", 153, true, (*mockServer).settingsUpdate},
		{"review/start", 0, false, (*mockServer).reviewStart},
		{"thread/backgroundTerminals/clean", 0, true, (*mockServer).threadClean},
		{"thread/list", 0, false, (*mockServer).threadList},
		{"thread/loaded/list", 0, false, (*mockServer).threadLoaded},
		{"thread/read", 0, false, (*mockServer).threadRead},
		{"turn/start", 0, false, (*mockServer).turnStart},
		{"turn/steer", 0, false, (*mockServer).turnSteer},
		{"turn/interrupt", 0, false, (*mockServer).turnInterrupt},
		{"model/list", 0, false, (*mockServer).modelList},
		{"mcpServerStatus/list", 0, false, (*mockServer).serverList},
		{"account/read", 0, false, (*mockServer).accountRead},
		{"account/login/start", 0, false, (*mockServer).loginStart},
		{"account/login/cancel", 0, false, (*mockServer).loginCancel},
		{"account/logout", 0, false, (*mockServer).logout},
		{"config/read", 0, false, (*mockServer).configRead},
	}
}

// heeds uses up one of what a prompt has ordered for a method (DROP, REFUSE).
func (m *mockServer) heeds(order string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drop[order] == 0 {
		return false
	}
	m.drop[order]--
	return true
}

// handle takes one request or notification, on the reading goroutine.
func (m *mockServer) handle(msg *message) {
	if !msg.isRequest() {
		return // initialized, and whatever else: never an answer
	}
	if m.heeds(msg.method) {
		return
	}
	m.mu.Lock()
	ready, experimental := m.client.ready, m.client.experimental
	m.mu.Unlock()
	if m.heeds("refuse " + msg.method) {
		m.refuse(msg, "REFUSE "+msg.method)
		return
	}
	methods := mockMethods()
	var names []string
	for _, it := range methods {
		if m.minor < it.from {
			continue
		}
		if it.name != msg.method {
			names = append(names, it.name)
			continue
		}
		switch {
		case !ready && msg.method != "initialize":
			m.refuse(msg, "Not initialized")
		case rawKind(msg.params) != '{' && !(msg.method == "account/logout" && isNull(msg.params)):
			m.refuse(msg, "Invalid request: missing field `params`")
		case it.experimental && !experimental:
			m.refuse(msg, msg.method+" requires experimentalApi capability")
		default:
			it.run(m, msg)
		}
		return
	}
	m.refuse(msg, mockVariant(msg.method, names...))
}

// mockVariant is serde's text for a word that an enum doesn't have.
func mockVariant(word string, known ...string) string {
	text := "Invalid request: unknown variant `" + word + "`, expected "
	if len(known) > 1 {
		text += "one of "
	}
	return text + "`" + strings.Join(known, "`, `") + "`"
}

// refuse answers with -32600, Codex's code for everything that is wrong with
// a request.
func (m *mockServer) refuse(msg *message, text string) {
	m.peer.replyError(msg.id, &rpcError{Code: codeInvalidRequest, Message: text})
}

func (m *mockServer) initialize(msg *message) {
	info := rawField(msg.params, "clientInfo")
	switch {
	case info == nil:
		m.refuse(msg, "Invalid request: missing field `clientInfo`")
		return
	case rawField(info, "name") == nil:
		m.refuse(msg, "Invalid request: missing field `name`")
		return
	case rawField(info, "version") == nil:
		m.refuse(msg, "Invalid request: missing field `version`")
		return
	case m.noInit:
		return
	}
	var optOut []string
	_ = json.Unmarshal(rawField(msg.params, "capabilities", "optOutNotificationMethods"), &optOut) // absent or null: none
	m.mu.Lock()
	again := m.client.ready
	if !again {
		m.client = mockClient{ready: true, name: stringField(info, "name"), optOut: map[string]bool{},
			experimental: string(rawField(msg.params, "capabilities", "experimentalApi")) == "true"}
		for _, name := range optOut {
			m.client.optOut[name] = true
		}
	}
	m.mu.Unlock()
	if again {
		m.refuse(msg, "Already initialized")
		return
	}
	result := map[string]any{"userAgent": fmt.Sprintf("%s/%s (Mock 1.0; x86_64) dumb (%[1]s; %[3]s)", stringField(info, "name"), m.version, stringField(info, "version"))}
	if !m.old() {
		result["codexHome"], result["platformFamily"], result["platformOs"] = m.home.dir, "unix", "linux"
	}
	m.peer.reply(msg.id, result)
	if m.old() {
		return
	}
	summary, details := "Codex could not find bubblewrap on PATH. Install bubblewrap with your OS package manager.", any(nil)
	if m.home.broken != nil {
		summary, details = "Invalid configuration; using defaults.", m.home.broken.Error()
	}
	m.notify("configWarning", map[string]any{"summary": summary, "details": details})
	m.notify("remoteControl/status/changed", map[string]any{"status": "disabled", "serverName": "mock", "installationId": "00000000-0000-4000-8000-000000000000", "environmentId": nil})
}

// notify sends a notification unless the client opted out of it. 0.148 and
// later put emittedAtMs beside method and params.
func (m *mockServer) notify(method string, params any) {
	if m.mcp != nil {
		return // mcp-server tells events only
	}
	m.mu.Lock()
	out := m.client.optOut[method]
	m.mu.Unlock()
	if out {
		return
	}
	b := append(make([]byte, 0, 512), `{"method":`...)
	b = append(appendJSONString(b, method), `,"params":`...)
	b = append(b, toJSON(params)...)
	if !m.old() {
		b = strconv.AppendInt(append(b, `,"emittedAtMs":`...), time.Now().UnixMilli(), 10)
	}
	m.peer.write(append(b, '}'), false)
}

// newID makes an id for an item or a call.
func (m *mockServer) newID(prefix string) string {
	return fmt.Sprintf("%s_mock_%06d", prefix, m.ids.Add(1))
}

// mockCommand is a command line run by the shell, in its own session.
func mockCommand(line, dir string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir = dir
	cmd.WaitDelay = 100 * time.Millisecond // a grandchild may hold the pipe
	return cmd
}
