package main

// mock.go owns the mock Codex that ships, for the demo, for `--codex-bin mock` and for whoever tries the program
// without Codex: the command line, the process from its start to its end, the table of requests and the way out for
// whatever the mock tells. `mock-codex ARGS…` takes the arguments of a real codex, and answers as app-server of 0.169
// and mcp-server of 0.153 do. main calls runMock. The mock must never use more of the program than the wire and the
// operating system, since it stands for somebody else's program.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

const (
	mockVersion    = "0.169.0" // of the app-server that is played
	mockMCPVersion = "0.153.0" // of the mcp-server: the last that had one

	mockFlush = 250 * time.Millisecond // how long an ending mock waits for a client that doesn't read
)

type mockRequest func(*mockServer, *message)

type mockDirective func(t *mockTurn, arg string) mockEnd

// mockExtras are the places where the tests' codex changes the mock that ships: faults, and the odd ways of other
// versions. It sets the fields before anything is read; what it leaves as it is changes nothing.
type mockExtras struct {
	version    string                   // of Codex, as clients are told
	requests   map[string]mockRequest   // by method
	directives map[string]mockDirective // by the word that a line begins with

	// settle works out a thread's settings, and the configuration that holds, from a request and what is kept of the
	// thread. failure says why that can't be.
	settle func(params json.RawMessage, kept *mockSettings) (s mockSettings, config map[string]any, failure string)
	// steps are the directives of a prompt.
	steps func(t *mockTurn, prompt string) []mockStep
	// begin is called before anything is read; over ends the process.
	begin func(ctx context.Context, stdin io.Reader, stdout io.Writer) (code int, over bool)
	// told sees each notification and request before it leaves; false holds a notification back.
	told func(method string, params map[string]any) bool
	// answered is what leaves in place of result; nil: no answer leaves at all.
	answered func(msg *message, result any) any
	// unloaded is called when a thread is unloaded, and with nil when the process ends.
	unloaded func(th *mockThread)
	// trace sees every frame.
	trace func(dir string, rec []byte)
	// shell is the command that runs a line of a shell.
	shell func(ctx context.Context, line string) *exec.Cmd

	early   bool        // 0.104: tells codex/event beside notifications, starts items late
	patient bool        // before 0.158: a steer waits for the model's answer
	noEOF   atomic.Bool // the end of stdin ends nothing
}

// mockServer is one `codex app-server` process, or with mcp set mcp-server.
type mockServer struct {
	mockExtras

	peer      *peer
	home      *mockHome
	overrides []string // -c key=value, in order
	stderr    io.Writer
	out       io.Writer
	quit      chan int      // an exit code, which ends the process
	done      chan struct{} // closed when the process ends: every turn's goroutine leaves
	turns     sync.WaitGroup
	ids       atomic.Int64 // items and calls

	mu      sync.Mutex // guards the fields below and everything in a mockThread
	client  mockClient
	threads map[string]*mockThread
	shells  map[*mockShell]bool
	ended   bool     // no turn and no shell may begin any more
	mcp     *mockMCP // nil for app-server
}

// mockClient is what initialize told of the client.
type mockClient struct {
	ready  bool
	name   string
	optOut map[string]bool
}

// runMock is `mock-codex args…`. It returns the exit code. adapt, if not nil, is called once with the server, before
// the server reads anything.
func runMock(ctx context.Context, adapt func(*mockServer), args []string,
	stdin io.Reader, stdout, stderr io.Writer) int {
	m := &mockServer{
		mockExtras: mockExtras{version: mockVersion, directives: mockDirectives(), steps: (*mockTurn).steps,
			settle: settleThread, shell: shellCommand,
			told:     func(string, map[string]any) bool { return true },
			answered: func(_ *message, result any) any { return result },
			unloaded: func(*mockThread) {}},
		stderr: stderr, out: stdout,
		quit: make(chan int, 1), done: make(chan struct{}),
		threads: map[string]*mockThread{}, shells: map[*mockShell]bool{},
	}
	var words []string
	for ; len(args) > 0; args = args[1:] {
		if args[0] == "-c" && len(args) > 1 {
			m.overrides, args = append(m.overrides, args[1]), args[1:]
			continue
		}
		words = append(words, args[0])
	}
	switch command := strings.Join(words, " "); command {
	case "app-server":
		m.requests = mockRequests()
	case "mcp-server":
		m.mcp = &mockMCP{m: m, queues: map[string]*mockQueue{}}
		m.version, m.requests, m.patient = mockMCPVersion, m.mcp.requests(), true
		fmt.Fprintln(stderr, "warning: `codex mcp-server` is deprecated and will be removed in a future release.")
	case "help app-server", "help mcp-server":
		fmt.Fprintln(stdout, "Usage: codex", words[1], "[OPTIONS]")
		return 0
	default:
		fmt.Fprintf(stderr, "error: unrecognized subcommand '%s'\n\nUsage: codex [OPTIONS] [PROMPT]\n", command)
		return 2
	}
	if adapt != nil {
		adapt(m)
	}
	return m.serve(ctx, stdin, stdout)
}

// serve is the process from its first byte to its exit code.
func (m *mockServer) serve(ctx context.Context, stdin io.Reader, stdout io.Writer) int {
	var err error
	if m.home, err = openMockHome(); err != nil {
		fmt.Fprintf(m.stderr, "Error: %v\n", err)
		return 1
	}
	m.signals()
	defer signal.Reset(syscall.SIGTERM)
	if m.begin != nil {
		if code, over := m.begin(ctx, stdin, stdout); over {
			return code
		}
	}
	m.peer = newPeer(stdin, m.out, peerOptions{mode: framingNewline, noVersion: m.mcp == nil, handle: m.handle,
		trace: m.trace})
	m.peer.nextID = -1 // Codex counts its own requests from 0, which collides with the client's ids
	go func() {        // ends with stdin; nobody waits for it, since only the client can close stdin
		_ = m.peer.run()
		if !m.noEOF.Load() && !m.mcp.openCalls() {
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
		m.unloaded(nil)
		m.turns.Wait()
	}
	m.peer.closeOut(mockFlush)
	return code
}

// exit ends the process with a code. The first one counts.
func (m *mockServer) exit(code int) {
	select {
	case m.quit <- code:
	default:
	}
}

// signals: TERM ends the process and its shells; INT and HUP kill it.
func (m *mockServer) signals() {
	signal.Reset(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
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

// mockRequests are the requests of app-server that ship.
func mockRequests() map[string]mockRequest {
	return map[string]mockRequest{
		"initialize":                       (*mockServer).initialize,
		"thread/start":                     (*mockServer).threadStart,
		"thread/resume":                    (*mockServer).threadResume,
		"thread/read":                      (*mockServer).threadRead,
		"thread/unsubscribe":               (*mockServer).threadUnsubscribe,
		"thread/settings/update":           onThread((*mockThread).updateSettings),
		"thread/compact/start":             onThread((*mockThread).compact),
		"thread/backgroundTerminals/clean": onThread((*mockThread).clean),
		"turn/start":                       onThread((*mockThread).startTurn),
		"thread/fork":                      (*mockServer).threadFork,
		"turn/steer":                       onThread((*mockThread).steerTurn),
		"turn/interrupt":                   onThread((*mockThread).interruptTurn),
		"model/list":                       (*mockServer).modelList,
		"mcpServerStatus/list": func(m *mockServer, msg *message) {
			m.reply(msg, map[string]any{"data": []any{}, "nextCursor": nil})
		},
		"account/read": (*mockServer).accountRead,
		"config/read": func(m *mockServer, msg *message) {
			m.reply(msg, map[string]any{"config": map[string]any{}, "origins": map[string]any{}})
		},
	}
}

// onThread answers a request about a loaded thread, and refuses one about any other.
func onThread(run func(*mockThread, *message)) mockRequest {
	return func(m *mockServer, msg *message) {
		if th := m.loaded(msg); th != nil {
			run(th, msg)
		}
	}
}

// handle takes one request or notification, on the reading goroutine.
func (m *mockServer) handle(msg *message) {
	run := m.requests[msg.method]
	m.mu.Lock()
	ready := m.client.ready
	m.mu.Unlock()
	switch {
	case run != nil && (ready || msg.method == "initialize" || m.mcp != nil):
		run(m, msg)
	case !msg.isRequest(): // initialized, and whatever else: never an answer
	case m.mcp != nil:
		m.peer.replyError(msg.id, noMethod(msg.method))
	case run != nil:
		m.refuse(msg, "Not initialized")
	default: // the real text lists all methods of the real Codex, this one the methods of the mock
		m.refuse(msg, mockVariant(msg.method, slices.Sorted(maps.Keys(m.requests))...))
	}
}

// mockVariant is serde's text for a word that an enum doesn't have.
func mockVariant(word string, known ...string) string {
	text := "Invalid request: unknown variant `" + word + "`, expected "
	if len(known) > 1 {
		text += "one of "
	}
	return text + "`" + strings.Join(known, "`, `") + "`"
}

func (m *mockServer) reply(msg *message, result any) {
	if result = m.answered(msg, result); result != nil {
		m.peer.reply(msg.id, result)
	}
}

// refuse answers with -32600, Codex's code for everything that is wrong with a request.
func (m *mockServer) refuse(msg *message, text string) {
	m.peer.replyError(msg.id, &rpcError{Code: codeInvalidRequest, Message: text})
}

func (m *mockServer) initialize(msg *message) {
	info := rawField(msg.params, "clientInfo")
	var optOut []string
	list := rawField(msg.params, "capabilities", "optOutNotificationMethods")
	_ = json.Unmarshal(list, &optOut) // absent or null: none
	m.mu.Lock()
	again := m.client.ready
	if !again {
		m.client = mockClient{ready: true, name: stringField(info, "name"), optOut: map[string]bool{}}
		for _, name := range optOut {
			m.client.optOut[name] = true
		}
	}
	m.mu.Unlock()
	if again {
		m.refuse(msg, "Already initialized")
		return
	}
	m.reply(msg, map[string]any{"codexHome": m.home.dir, "platformFamily": "unix", "platformOs": "linux",
		"userAgent": fmt.Sprintf("%s/%s (Mock 1.0; x86_64) dumb (%[1]s; %[3]s)", stringField(info, "name"), m.version,
			stringField(info, "version"))})
}

// mockModels are the models of the list; the first one is the default.
func mockModels() []string { return []string{"gpt-6.1-sol", "gpt-6-astra", "gpt-5.6-sol", "gpt-5.5"} }

func (m *mockServer) modelList(msg *message) {
	efforts := []any{}
	for _, e := range []string{"low", "medium", "high", "xhigh", "max", "ultra"} {
		efforts = append(efforts, map[string]any{"reasoningEffort": e, "description": e + " reasoning"})
	}
	data := []any{}
	for i, name := range mockModels() {
		data = append(data, map[string]any{"id": name, "model": name, "displayName": name, "description": "mock",
			"hidden": false, "isDefault": i == 0, "inputModalities": []string{"text", "image"},
			"supportedReasoningEfforts": efforts, "defaultReasoningEffort": "medium"})
	}
	m.reply(msg, map[string]any{"data": data, "nextCursor": nil})
}

// accountRead: nobody has to log in to the mock.
func (m *mockServer) accountRead(msg *message) {
	m.reply(msg, map[string]any{"account": nil, "requiresOpenaiAuth": false, "userId": nil, "workspaceRouting": nil})
}

// notify tells the client something, in each dialect that it is told in.
func (m *mockServer) notify(method string, params map[string]any) {
	if m.told(method, params) {
		m.double(method, params)
		m.send(method, params)
	}
}

// send sends a notification, unless the client opted out of it. mcp-server sends only events.
func (m *mockServer) send(method string, params map[string]any) {
	if m.mcp != nil {
		return
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
	if !m.early {
		b = strconv.AppendInt(append(b, `,"emittedAtMs":`...), time.Now().UnixMilli(), 10)
	}
	m.peer.put(append(b, '}'), keepAlways)
}

func (m *mockServer) newID(prefix string) string {
	return fmt.Sprintf("%s_mock_%06d", prefix, m.ids.Add(1))
}

// mockString finds a text in nested maps.
func mockString(in map[string]any, keys ...string) string {
	var v any = in
	for _, k := range keys {
		sub, _ := v.(map[string]any)
		v = sub[k]
	}
	s, _ := v.(string)
	return s
}

// mockNull is nil for "", which JSON shows as null.
func mockNull(s string) any {
	if s == "" {
		return nil
	}
	return s
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
