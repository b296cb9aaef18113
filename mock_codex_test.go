package main

// mock_codex_test.go owns the tests' codex: the mock that ships, with everything
// that only tests need. The scripts find it on PATH as `codex`, worlds and soaks run
// it in their own process. Its environment says more: MOCK_CODEX_VERSION which
// recorded version it plays, MOCK_CODEX_START how it begins, MOCK_CODEX_LOG where
// received frames go, MOCK_CODEX_NO_APP_SERVER that it is from before app-server,
// MOCK_CODEX_REVIEW what a reviewer does after what the instructions say,
// MOCK_CODEX_PAGE, MOCK_CODEX_TEXT_ONLY what lists hold. Here is also what 0.104 and
// 0.153 told otherwise than the one that ships, and the fields that only tests read;
// those that nobody reads are left out. Recordings in testdata/mock hold it to that
// (mock_test.go).

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// testMock is what the tests' codex has beyond the mock that ships.
type testMock struct {
	m       *mockServer
	out     *mockStdout
	version string
	minor   int
	config  mockConfig
	noInit  bool
	opened  string // the thread that the request in hand has opened

	mu      sync.Mutex     // guards the fields below
	drop    map[string]int // method: how many requests to swallow; "refuse " or "mute " before it: to treat so
	login   *mockLogin     // that waits for a person
	threads map[*mockThread]*testThread
	held    map[string]*os.File // the writer locks that this process has, by thread
}

// testThread is what only tests need of a thread. testMock.mu guards it.
type testThread struct {
	onMail  []string // ON_MAIL: what is done when mail comes
	ending  []string // ENDING: what is done when asked for a summary
	running map[string]*mockToolServer
	deaf    *mockTurn // IGNORE_INTERRUPT
	closers []func()  // called as the thread is unloaded
}

func (x *testMock) old() bool { return x.minor < 148 }  // 0.104
func (x *testMock) new() bool { return x.minor >= 158 } // 0.169

// of is what only tests need of a thread, until it is unloaded. mu is held.
func (x *testMock) of(th *mockThread) *testThread {
	if x.threads[th] == nil {
		x.threads[th] = &testThread{running: map[string]*mockToolServer{}}
	}
	return x.threads[th]
}

// runCodex is the tests' `codex args…`. It returns the exit code.
func runCodex(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	x := &testMock{version: cmp.Or(os.Getenv("MOCK_CODEX_VERSION"), mockVersion), drop: map[string]int{},
		threads: map[*mockThread]*testThread{}, held: map[string]*os.File{}}
	parts := strings.Split(x.version, ".")
	if len(parts) == 3 {
		x.minor, _ = strconv.Atoi(parts[1])
	}
	if x.minor == 0 {
		fmt.Fprintf(stderr, "Error: MOCK_CODEX_VERSION is %q, not a version like 0.169.0\n", x.version)
		return 1
	}
	words := slices.Clone(args) // without the flags
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		if words[0] == "--version" {
			fmt.Fprintf(stdout, "codex-cli %s-mock\n", x.version)
			return 0
		}
		words = words[min(2, len(words)):]
	}
	// A real codex of 0.154 and later takes `mcp-server` and any other word
	// for a prompt and says "stdin is not a terminal" (rc 1); only
	// `help mcp-server` is told as here. The clear answer is kept for both.
	for _, word := range words[:min(2, len(words))] {
		if word == "mcp-server" && x.minor >= 154 || word == "app-server" &&
			os.Getenv("MOCK_CODEX_NO_APP_SERVER") != "" {
			fmt.Fprintf(stderr, "error: unrecognized subcommand '%s'\n\nUsage: codex [OPTIONS] [PROMPT]\n", word)
			return 2
		}
	}
	closeLog := func() {}
	code := runMock(ctx, func(m *mockServer) { closeLog = x.adapt(m) }, args, stdin, stdout, stderr)
	closeLog()
	return code
}

// adapt makes a shipped mock the tests'. What it returns is for the end.
func (x *testMock) adapt(m *mockServer) func() {
	x.m, x.out = m, &mockStdout{w: m.out, written: make(chan struct{}, 1)}
	m.out = x.out
	m.version, m.early, m.patient = x.version, x.old(), !x.new() || m.mcp != nil
	m.settle, m.steps, m.begin, m.told, m.answered = x.settle, x.steps, x.begin, x.told, x.answered
	m.unloaded = x.unloaded
	x.config = mockConfig{dir: os.Getenv("CODEX_HOME")}
	if m.mcp == nil { // mcp-server doesn't apply them
		x.config.overrides = m.overrides
	}
	x.config.load()
	if runtime.GOOS == "windows" { // whose own shell is none of Unix's
		m.shell = func(ctx context.Context, line string) *exec.Cmd {
			return exec.CommandContext(ctx, "harness-peer", "sh", line)
		}
	}
	maps.Copy(m.directives, x.directives())
	x.adaptRequests()
	m.trace = x.keepRule
	path := os.Getenv("MOCK_CODEX_LOG")
	if path == "" {
		return x.unlockAll
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintf(m.stderr, "Error: opening MOCK_CODEX_LOG: %v\n", err) // who looks into it sees that
		return x.unlockAll
	}
	m.trace = func(dir string, rec []byte) {
		x.keepRule(dir, rec)
		if dir != "<" {
			return
		}
		if !validJSON(rec) {
			rec = appendJSONString(nil, string(rec))
		}
		_, _ = f.Write(append(slices.Clone(rec), '\n')) // a test reads it; what is lost fails the test
	}
	return func() {
		x.unlockAll()
		_ = f.Close()
	}
}

// keepRule keeps a rule that a frame of the client's gives consent to.
func (x *testMock) keepRule(dir string, rec []byte) {
	if dir != "<" || !bytes.Contains(rec, []byte("execpolicy_amendment")) {
		return
	}
	said := rawField(rec, "result", "decision")
	rule := rawField(said, "acceptWithExecpolicyAmendment", "execpolicy_amendment")
	if rule == nil {
		rule = rawField(said, "approved_execpolicy_amendment", "proposed_execpolicy_amendment")
	}
	if rule == nil {
		return
	}
	dir = filepath.Join(x.config.dir, "rules")
	_ = os.MkdirAll(dir, 0o700) // who looks for the rule finds none
	f, err := os.OpenFile(filepath.Join(dir, "default.rules"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, _ = fmt.Fprintf(f, "prefix_rule(pattern=%s, decision=\"allow\")\n", rule)
		_ = f.Close()
	}
}

// lock takes the writer lock of a thread; false if another process has it.
func (x *testMock) lock(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	f, err := openMaking(strings.TrimSuffix(x.m.home.path(id), "jsonl")+"lock", 0)
	if err != nil {
		return false
	}
	if lockFile(f, true, false) != nil {
		_ = f.Close()
		return false
	}
	x.held[id] = f
	return true
}

func (x *testMock) unlock(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := x.held[id]; f != nil {
		_ = f.Close()
		delete(x.held, id)
	}
}

func (x *testMock) unlockAll() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.held {
		_ = f.Close()
	}
}

// unloaded ends the servers of a thread and lets others write it; nil: of all, as the process ends.
func (x *testMock) unloaded(th *mockThread) {
	x.mu.Lock()
	var closers []func()
	for each, of := range x.threads {
		if th == nil || each == th {
			closers = append(closers, of.closers...)
		}
	}
	x.mu.Unlock()
	for _, end := range closers {
		end()
	}
	if th != nil {
		x.unlock(th.ID)
	}
}

// directives are those that only tests need.
func (x *testMock) directives() map[string]mockDirective {
	nothing := func(*mockTurn, string) mockEnd { return goOn }
	counted := func(before string) mockDirective { // the next request of a method
		return func(t *mockTurn, method string) mockEnd {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.drop[before+method]++
			return goOn
		}
	}
	// In 0.104 some commands run unasked.
	shell := func(t *mockTurn, line string) mockEnd {
		word, _, _ := strings.Cut(line, " ")
		if x.old() && slices.Contains([]string{"cat", "echo", "ls", "pwd", "true", "wc"}, word) &&
			!strings.ContainsAny(line, "><|;&$`(") {
			t.m.mu.Lock()
			t.th.allowed[line] = true
			t.m.mu.Unlock()
		}
		return t.shell(line, false, false)
	}
	return map[string]mockDirective{
		"COMMENTARY":        func(t *mockTurn, a string) mockEnd { return t.say(a, "commentary") },
		"SHELL":             shell,
		"STAMP":             stampDirective,
		"BIG":               bigDirective,
		"ECHO_INSTRUCTIONS": echoDirective,
		"ECHO_INPUT":        echoInputDirective,
		"ECHO_SETTINGS":     func(t *mockTurn, _ string) mockEnd { return t.say(string(toJSON(t.settings)), nil) },
		"USAGE":             func(t *mockTurn, a string) mockEnd { t.usage, _ = mockCount(a, t.usage); return goOn },
		"EDIT":              editDirective,
		"DELETE":            deleteDirective,
		"MOVE":              moveDirective,
		"OUTPUT":            outputDirective,
		"WEBSEARCH":         webSearchDirective,
		"PLAN":              (*mockTurn).plan,
		"PROPOSE":           proposeDirective,
		"CALL":              callDirective,
		"CALLMCP":           x.mcpToolDirective,
		"PERMISSIONS":       permissionsDirective,
		"ASK":               askDirective,
		"MCPASK":            mcpAskDirective,
		"BACKGROUND":        func(t *mockTurn, line string) mockEnd { return t.shell(line, false, true) },
		"SUBAGENT":          subagentDirective,
		"FAIL":              failDirective,
		"RETRY":             retryDirective,
		"OFFLINE":           offlineDirective,
		"GATE":              gateDirective,
		"FLOOD":             x.floodDirective,
		"UNKNOWN":           unknownDirective,
		"LIMITS":            limitsDirective,
		"DIE":               dieDirective,
		"KILLSELF":          killSelfDirective,
		"CLOSEOUT":          x.closeOutDirective,
		"IGNORE_INTERRUPT":  nothing, // heed has read it
		"DROP":              counted(""),
		"REFUSE":            counted("refuse "),
		"MUTE":              counted("mute "), // carried out and not answered
		"ENDING":            x.keptDirective(func(of *testThread) *[]string { return &of.ending }),
		"ON_MAIL":           x.keptDirective(func(of *testThread) *[]string { return &of.onMail }),
		"NOEOF":             func(t *mockTurn, _ string) mockEnd { t.m.noEOF.Store(true); t.last = "EOF is ignored"; return goOn },
	}
}

// keptDirective keeps a directive for a prompt that has none of its own: ENDING for
// the one that asks for a summary, ON_MAIL for those that bring mail.
func (x *testMock) keptDirective(list func(*testThread) *[]string) mockDirective {
	return func(t *mockTurn, arg string) mockEnd {
		x.mu.Lock()
		defer x.mu.Unlock()
		into := list(x.of(t.th))
		*into = append(*into, arg)
		return goOn
	}
}

// steps are a prompt's directives. What stands in mail is in JSON, and none.
func (x *testMock) steps(t *mockTurn, prompt string) []mockStep {
	text := prompt
	x.mu.Lock()
	if strings.Contains(prompt, "\n<atm-mail to=") {
		text = strings.Join(x.of(t.th).onMail, "\n")
	} else if strings.HasPrefix(prompt, "Session ending.") {
		text = strings.Join(x.of(t.th).ending, "\n")
	} else if strings.Contains(prompt, reviewRubric) {
		text += "\n" + os.Getenv("MOCK_CODEX_REVIEW")
	}
	x.mu.Unlock()
	steps := t.mockSteps(text)
	switch {
	case os.Getenv("MOCK_CODEX_AUTH") == "1" && x.loggedIn() == "":
		return []mockStep{{"FAIL", "401 Missing bearer or basic authentication in header"}}
	case len(steps) == 0:
		return []mockStep{{"SAY", "MOCK: " + prompt}}
	}
	return steps
}

// heed takes IGNORE_INTERRUPT, which holds for a whole turn, before the client's next
// request is read, or its interrupt could come first.
func (x *testMock) heed(th *mockThread, t *mockTurn, prompt string) {
	for _, s := range x.steps(t, prompt) {
		if s.word == "IGNORE_INTERRUPT" {
			x.mu.Lock()
			x.of(th).deaf = t
			x.mu.Unlock()
		}
	}
}

// begin plays MOCK_CODEX_START. The second result says that the process
// ends here.
func (x *testMock) begin(ctx context.Context, stdin io.Reader, stdout io.Writer) (int, bool) {
	if x.old() {
		signal.Reset(syscall.SIGTERM) // 0.104 dies by the signal and leaves its shells
	}
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
			fmt.Fprintln(x.m.stderr, text)
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
		case <-x.m.quit:
		}
		return 0, true
	case "garbage":
		fmt.Fprint(stdout, "warning: this line is not JSON\n{\"half\":\n[]\n\x00\x01\xff\n\"a string\"\n42\n{}\n")
	case "noinit":
		x.noInit = true
	default:
		fmt.Fprintf(x.m.stderr, "Error: MOCK_CODEX_START is %q; it can be exit:CODE:TEXT, hang, garbage or noinit\n",
			how)
		return 1, true
	}
	return 0, false
}

// answered is a result as it leaves.
func (x *testMock) answered(msg *message, result any) any {
	x.mu.Lock()
	mute := x.drop["mute "+msg.method] > 0
	if mute {
		x.drop["mute "+msg.method]--
	}
	x.mu.Unlock()
	fields, _ := result.(map[string]any)
	switch msg.method {
	case "thread/start", "thread/resume", "thread/fork":
		x.dressOpened(msg, fields)
	case "thread/read":
		x.dressThread(fields["thread"].(map[string]any))
		if string(rawField(msg.params, "includeTurns")) == "true" && !x.old() {
			x.m.notify("deprecationNotice", map[string]any{"summary": "Full-history hydration is deprecated for " +
				"paginated threads; omit `includeTurns` or set it to `false`, then page with `thread/turns/list` and " +
				"`thread/items/list`.", "details": nil})
		}
	case "turn/start":
		x.dress(msg.method, fields)
	case "model/list":
		x.listed(fields["data"].([]any))
		result = x.paged(msg, fields["data"].([]any))
	case "mcpServerStatus/list":
		result = x.paged(msg, fields["data"].([]any))
	}
	switch {
	case mute || result == nil:
		return nil
	case x.old() && x.m.mcp == nil && msg.method != "config/read" && fields != nil:
		return x.stripped(toJSON(result))
	}
	return result
}

// told looks at what is told and asked before it leaves; false holds it back.
func (x *testMock) told(method string, params map[string]any) bool {
	x.dress(method, params)
	id, _ := params["threadId"].(string)
	x.m.mu.Lock()
	th := x.m.threads[id]
	var t *mockTurn
	if th != nil {
		t = th.active
	}
	x.m.mu.Unlock()
	item, _ := params["item"].(map[string]any)
	switch {
	case x.m.mcp != nil && method == "item/tool/requestUserInput":
		x.m.event(id, t.id, "request_user_input", map[string]any{"call_id": params["itemId"], "turn_id": t.id,
			"questions": params["questions"]})
	case x.m.mcp != nil && method == "mcpServer/elicitation/request":
		x.m.event(id, t.id, "elicitation_request",
			map[string]any{"server_name": params["serverName"], "message": params["message"]})
	case x.m.mcp != nil && !strings.HasSuffix(method, "/requestApproval"):
		x.double(method, params)
		return false
	case x.m.mcp == nil && x.old():
		return x.toldBy104(method, params, th, t, item)
	}
	return true
}

// toldBy104 tells in the shape of 0.104, which is what it was, and not more. What it says besides in the first
// protocol's words the driver has opted out of.
func (x *testMock) toldBy104(method string, params map[string]any, th *mockThread, t *mockTurn,
	item map[string]any) bool {
	m := x.m
	switch method {
	case "thread/status/changed", "serverRequest/resolved", "thread/closed":
		return false
	case "item/commandExecution/requestApproval", "item/fileChange/requestApproval", "item/tool/call",
		"item/tool/requestUserInput":
		for _, k := range []string{"namespace", "isBlocking", "autoResolutionMs"} {
			delete(params, k)
		}
		return true
	case "turn/started":
		if t != nil && t.mute { // a compaction
			return false
		}
	case "turn/completed":
		view := params["turn"].(map[string]any)
		if view["status"] == "interrupted" {
			m.killShells(th)
		}
		view["items"] = []any{}
		m.send(method, x.stripped(toJSON(params)).(map[string]any))
		return false
	case "item/started", "item/completed":
		code, _ := item["exitCode"].(int)
		switch {
		case item["type"] == "dynamicToolCall", // it shows none
			// its interrupt killed it
			item["type"] == "commandExecution" && code < 0,
			// it starts once it may run
			item["type"] == "commandExecution" && method == "item/started" && item["processId"] == nil:
			return false
		}
	}
	shown := x.stripped(toJSON(params)).(map[string]any)
	m.send(method, shown)
	switch {
	case method == "item/completed" && item["type"] == "fileChange" && item["status"] == "declined":
		m.send(method, shown) // twice
	case method == "item/completed" && item["type"] == "contextCompaction":
		m.send("thread/compacted", map[string]any{"threadId": th.ID, "turnId": params["turnId"]})
	}
	return false
}

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
