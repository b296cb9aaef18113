package main

// mock_requests_test.go owns the requests that only the tests' codex answers (who is
// logged in, the list of threads, their names and archive), what tests put around those
// that ship (what is swallowed, what each version did and which words it takes), and how
// a thread arrives at its settings: config.toml, `-c`, its own config, what a resume
// restores. MOCK_CODEX_AUTH=1 makes it want a login of every turn; with MOCK_CODEX_LOGIN=ok
// a login that needs a person succeeds at once. It must never talk to anybody, nor write
// config.toml except where the real 0.169 does.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// adaptRequests has the requests that only tests need, and around those that ship
// what goes wrong and what other versions did.
func (x *testMock) adaptRequests() {
	m := x.m
	around := func(method string, run func(inner mockRequest, msg *message)) {
		inner := m.requests[method]
		if inner == nil { // the version hasn't it
			return
		}
		m.requests[method] = func(_ *mockServer, msg *message) { run(inner, msg) }
	}
	if m.mcp != nil {
		x.adaptMCP(around)
	} else {
		maps.Copy(m.requests, map[string]mockRequest{
			"mcpServerStatus/list": x.serverList, "config/read": x.configRead,
			"account/read": x.accountRead, "account/rateLimits/read": limitsRead, "account/login/start": x.loginStart,
			"account/login/cancel": x.loginCancel, "account/logout": x.logout,
			"thread/list": x.threadList, "thread/name/set": x.nameSet, "thread/archive": x.archive,
		})
		if x.old() {
			delete(m.requests, "thread/unsubscribe")
		}
		if x.minor < 153 {
			delete(m.requests, "thread/settings/update")
		}
		around("initialize", x.initialize)
		around("thread/start", x.threadStart)
		around("thread/resume", x.threadResume)
		around("thread/settings/update", func(inner mockRequest, msg *message) {
			if x.checkWords(msg) {
				inner(m, msg)
			}
		})
		around("thread/read", x.threadRead)
		around("turn/start", x.turnStart)
		around("turn/interrupt", x.turnInterrupt)
	}
	for method := range m.requests {
		around(method, func(inner mockRequest, msg *message) {
			x.mu.Lock()
			dropped, refused := x.drop[method] > 0, x.drop["refuse "+method] > 0
			if dropped {
				x.drop[method]--
			}
			if refused {
				x.drop["refuse "+method]--
			}
			x.mu.Unlock()
			switch {
			case dropped:
			case refused:
				m.refuse(msg, "REFUSE "+method)
			default:
				inner(m, msg)
			}
		})
	}
}

// limitsRead: only a login with ChatGPT has limits.
func limitsRead(m *mockServer, msg *message) {
	if limits := os.Getenv("MOCK_CODEX_LIMITS"); limits != "" {
		m.reply(msg, map[string]any{"rateLimits": json.RawMessage(limits), "rateLimitsByLimitId": nil})
		return
	}
	m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "chatgpt authentication required to read rate " +
		"limits"})
}

func (x *testMock) initialize(inner mockRequest, msg *message) {
	if x.noInit {
		return
	}
	inner(x.m, msg)
	if x.old() {
		return
	}
	summary, details := "Codex could not find bubblewrap on PATH. Install bubblewrap with your OS package manager.",
		any(nil)
	if x.config.broken != nil {
		summary, details = "Invalid configuration; using defaults.", x.config.broken.Error()
	}
	x.m.notify("configWarning", map[string]any{"summary": summary, "details": details})
}

// threadStart: 0.169 trusts the repository of a thread that may write, unless the
// nested projects table says otherwise (fact 16; not for sandboxPolicy).
func (x *testMock) threadStart(inner mockRequest, msg *message) {
	if !x.checkWords(msg) {
		return
	}
	s, cfg, failed := x.settle(msg.params, nil)
	if failed != "" {
		x.m.refuse(msg, failed)
		return
	}
	if root := mockRepoRoot(s.Cwd); x.new() && root != "" && !isNull(rawField(msg.params, "sandbox")) &&
		s.sandbox() != "readOnly" &&
		mockString(cfg, "projects", root, "trust_level") == "" &&
		mockString(cfg, "projects", s.Cwd, "trust_level") == "" {
		if err := x.config.trust(root); err != nil {
			x.m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "error creating thread: " + err.Error()})
			return
		}
	}
	x.open(inner, msg)
}

// threadResume: 0.104 lets a second process write a thread, and the history suffers.
func (x *testMock) threadResume(inner mockRequest, msg *message) {
	if !x.checkWords(msg) {
		return
	}
	id := stringField(msg.params, "threadId")
	_, err := os.Stat(x.m.home.path(id))
	locks := err == nil && x.m.thread(id) == nil
	if locks && !x.lock(id) && !x.old() {
		x.m.refuse(msg, "thread "+id+" already has an active writer")
		return
	}
	x.open(inner, msg)
	if locks && x.m.thread(id) == nil { // refused
		x.unlock(id)
	}
}

// open opens a thread and tells how its servers start.
func (x *testMock) open(inner mockRequest, msg *message) {
	id := stringField(msg.params, "threadId")
	x.m.mu.Lock()
	again := x.m.threads[id] != nil
	x.m.mu.Unlock()
	x.opened = ""
	inner(x.m, msg)
	x.m.mu.Lock()
	th := x.m.threads[x.opened]
	x.m.mu.Unlock()
	if th != nil && !again && (id == "" || !x.old() || len(threadServers(th)) > 0) {
		x.startUps(th)
	}
}

// threadRead: what had no turn yet isn't on disk.
func (x *testMock) threadRead(inner mockRequest, msg *message) {
	id := stringField(msg.params, "threadId")
	x.m.mu.Lock()
	th := x.m.threads[id]
	unused := th != nil && !th.used
	x.m.mu.Unlock()
	if x.old() && unused && string(rawField(msg.params, "includeTurns")) == "true" {
		x.m.refuse(msg, "thread "+id+" is not materialized yet; includeTurns is unavailable before first user message")
		return
	}
	inner(x.m, msg)
}

// turnStart: 0.169 heeds the length of an input.
func (x *testMock) turnStart(inner mockRequest, msg *message) {
	m, input := x.m, rawField(msg.params, "input")
	if !x.checkWords(msg) {
		return
	}
	if n := utf8.RuneCountInString(mockText(input)); x.new() && n > 1<<20 {
		m.peer.replyError(msg.id, &rpcError{Code: codeInvalidParams,
			Message: "Input exceeds the maximum length of 1048576 characters.",
			Data: toJSON(map[string]any{"input_error_code": "input_too_large", "max_chars": 1 << 20,
				"actual_chars": n})})
		return
	}
	inner(m, msg)
	if th, t := x.running(msg); t != nil {
		x.heed(th, t, mockText(input))
	}
}

// running is the thread of a request, and the turn that runs in it; nil for none.
func (x *testMock) running(msg *message) (th *mockThread, t *mockTurn) {
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	if th = x.m.threads[stringField(msg.params, "threadId")]; th != nil {
		t = th.active
	}
	return th, t
}

// turnInterrupt: up to 0.157 nothing active means no answer, ever; 0.104 doesn't
// look at the id.
func (x *testMock) turnInterrupt(inner mockRequest, msg *message) {
	m := x.m
	th, t := x.running(msg)
	if th == nil {
		inner(m, msg)
		return
	}
	m.mu.Lock()
	stopped := t != nil && t.stopped
	m.mu.Unlock()
	x.mu.Lock()
	of := x.of(th)
	deaf := t != nil && of.deaf == t
	x.mu.Unlock()
	id := stringField(msg.params, "turnId")
	switch {
	case t == nil && !x.new() || stopped && x.old():
		return
	case x.old():
		id = ""
	}
	if deaf && (id == "" || id == t.id) {
		m.peer.reply(msg.id, struct{}{})
		return
	}
	msg.params = toJSON(map[string]any{"threadId": th.ID, "turnId": id})
	inner(m, msg)
}

// adaptMCP: each version of mcp-server has words of its own.
func (x *testMock) adaptMCP(around func(string, func(mockRequest, *message))) {
	m := x.m
	words := []string{"on-request", "never"}
	if x.minor < 149 {
		words = append([]string{"untrusted"}, words...)
	}
	if x.old() {
		words = append(words, "on-failure")
	}
	tools := mockMCPTools()
	start := tools[0].(map[string]any)["inputSchema"].(map[string]any)
	props := start["properties"].(map[string]any)
	props["approval-policy"] = map[string]any{"type": "string", "enum": words}
	if x.old() {
		props["profile"] = map[string]any{"type": "string"}
		delete(start, "additionalProperties")
	}
	around("initialize", func(inner mockRequest, msg *message) {
		if !x.noInit {
			inner(m, msg)
		}
	})
	around("tools/list", func(_ mockRequest, msg *message) { m.reply(msg, map[string]any{"tools": tools}) })
	around("tools/call", func(inner mockRequest, msg *message) {
		args, bad := rawField(msg.params, "arguments"), ""
		_ = eachField(args, func(key string, _ json.RawMessage) bool { // no object: refused by inner
			if props[key] == nil && !x.old() {
				bad = "unknown field `" + key + "`"
			}
			return true
		})
		if w := stringField(args, "approval-policy"); w != "" && !slices.Contains(words, w) {
			bad = strings.TrimPrefix(mockVariant(w, words...), "Invalid request: ")
		}
		if stringField(msg.params, "name") == "codex" && bad != "" {
			m.mcp.answer(msg.id, "", "Failed to parse configuration for Codex tool: "+bad, true)
			return
		}
		inner(m, msg)
	})
}

// models are the visible models of a version; others get a warning.
func (x *testMock) models() []string {
	if x.old() {
		return []string{"gpt-5.2-codex", "gpt-5.1-codex-max", "gpt-5.2", "gpt-5.1-codex-mini"}
	}
	return mockModels()
}

// listed is model/list as the version has it; MOCK_CODEX_TEXT_ONLY names a model
// that takes no images.
func (x *testMock) listed(models []any) {
	for i, name := range x.models() {
		model := models[i].(map[string]any)
		model["id"], model["model"], model["displayName"] = name, name, name
		if name == os.Getenv("MOCK_CODEX_TEXT_ONLY") {
			model["inputModalities"] = []string{"text"}
		}
	}
}

// page is a part of a list: of the client's limit, or of MOCK_CODEX_PAGE. The
// cursor is where the next one begins. nil: it was refused.
func (x *testMock) paged(msg *message, data []any) any {
	size, _ := strconv.Atoi(string(rawField(msg.params, "limit")))
	if size == 0 {
		size, _ = strconv.Atoi(os.Getenv("MOCK_CODEX_PAGE")) // none: all
	}
	from, err := strconv.Atoi(cmp.Or(stringField(msg.params, "cursor"), "0"))
	if err != nil || from > len(data) {
		x.m.refuse(msg, "invalid cursor: "+stringField(msg.params, "cursor"))
		return nil
	}
	to, next := len(data), any(nil)
	if size > 0 && from+size < to {
		to = from + size
		next = strconv.Itoa(to)
	}
	return map[string]any{"data": data[from:to], "nextCursor": next}
}

// mockLogin is a login that waits for a person. testMock.mu guards it.
type mockLogin struct{ id string }

func (x *testMock) authFile() string { return filepath.Join(x.config.dir, "auth.json") }

// wantsAuth: the provider is OpenAI's, or a test says so.
func (x *testMock) wantsAuth() bool {
	return os.Getenv("MOCK_CODEX_AUTH") == "1" || mockString(x.config.keys, "model_provider") == ""
}

// loggedIn says what auth.json says, "" without one.
func (x *testMock) loggedIn() string {
	text, err := os.ReadFile(x.authFile())
	if err != nil {
		return ""
	}
	if mode := stringField(text, "auth_mode"); mode != "" {
		return mode
	}
	return "apikey" // whatever is in it
}

// accountRead tells of no account where the provider wants none.
func (x *testMock) accountRead(_ *mockServer, msg *message) {
	result := map[string]any{"account": nil, "requiresOpenaiAuth": x.wantsAuth()}
	switch mode := x.loggedIn(); {
	case !x.wantsAuth():
	case mode == "apikey":
		result["account"] = map[string]any{"type": "apiKey"}
	case mode != "":
		result["account"] = map[string]any{"type": "chatgpt", "email": "mock@example.com", "planType": "plus"}
	}
	x.m.reply(msg, result)
}

func (x *testMock) loginStart(_ *mockServer, msg *message) {
	switch kind := stringField(msg.params, "type"); kind {
	case "apiKey":
		key, ok := rawString(rawField(msg.params, "apiKey"))
		if !ok {
			x.m.refuse(msg, "Invalid request: missing field `apiKey`")
			return
		}
		if err := x.keepAuth(map[string]any{"auth_mode": "apikey", "OPENAI_API_KEY": key}); err != nil {
			x.m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "failed to save api key: " +
				err.Error()})
			return
		}
		x.m.reply(msg, map[string]any{"type": "apiKey"})
		x.loginDone("", "")
		x.accountUpdated()
	case "chatgpt":
		x.waitForLogin(msg, map[string]any{"type": kind, "authUrl": "https://auth.openai.com/oauth/authorize?mock=1"})
	default:
		x.m.refuse(msg, mockVariant(kind, "apiKey", "chatgpt", "chatgptDeviceCode", "chatgptAuthTokens",
			"amazonBedrock",
			"amazonBedrockAccessKeys"))
	}
}

// waitForLogin answers with where a person is to go. Another login that waits
// still is cancelled first.
func (x *testMock) waitForLogin(msg *message, result map[string]any) {
	login := &mockLogin{id: newMockID()}
	x.mu.Lock()
	before := x.login
	x.login = login
	x.mu.Unlock()
	if before != nil {
		x.loginDone(before.id, "Login server error: Login cancelled")
	}
	result["loginId"] = login.id
	x.m.reply(msg, result)
	if os.Getenv("MOCK_CODEX_LOGIN") != "ok" {
		return
	}
	x.mu.Lock()
	x.login = nil
	x.mu.Unlock()
	_ = x.keepAuth(map[string]any{"auth_mode": "chatgpt"}) // whoever asks for the account sees that it failed
	x.loginDone(login.id, "")
	x.accountUpdated()
}

func (x *testMock) loginCancel(_ *mockServer, msg *message) {
	id := stringField(msg.params, "loginId")
	x.mu.Lock()
	waits := x.login != nil && x.login.id == id
	if waits {
		x.login = nil
	}
	x.mu.Unlock()
	if !waits {
		x.m.reply(msg, map[string]any{"status": "notFound"})
		return
	}
	x.m.reply(msg, map[string]any{"status": "canceled"})
	x.loginDone(id, "Login server error: Login was not completed")
}

func (x *testMock) logout(_ *mockServer, msg *message) {
	_ = os.Remove(x.authFile()) // none is as good
	x.m.reply(msg, struct{}{})
	x.accountUpdated()
}

func (x *testMock) keepAuth(auth map[string]any) error {
	return os.WriteFile(x.authFile(), toJSON(auth), 0o600)
}

// loginDone: the login of a key has no id.
func (x *testMock) loginDone(id, failure string) {
	x.m.notify("account/login/completed", map[string]any{"loginId": mockNull(id), "success": failure == "",
		"error": mockNull(failure)})
}

func (x *testMock) accountUpdated() {
	plan := map[string]any{"chatgpt": "plus"}
	x.m.notify("account/updated", map[string]any{"authMode": mockNull(x.loggedIn()), "planType": plan[x.loggedIn()]})
}

// mockConfig is config.toml with -c applied.
type mockConfig struct {
	dir       string
	keys      map[string]any
	broken    error    // it couldn't be read: threads can't start
	overrides []string // -c key=value, in order
}

// load reads config.toml anew, as Codex does for every thread it starts.
func (h *mockConfig) load() {
	path := filepath.Join(h.dir, "config.toml")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	h.keys = map[string]any{}
	if table, wrong := parseTOML(path, text); wrong == nil {
		h.keys = table.plain()
	} else {
		err = wrong
	}
	h.broken = err
	for _, o := range h.overrides {
		key, text, ok := strings.Cut(o, "=")
		if !ok {
			continue
		}
		value := any(text) // as in the real one: what is no TOML is a string
		if table, err := parseTOML("-c", []byte("v = "+text)); err == nil {
			value = table.plain()["v"]
		}
		mockSet(h.keys, strings.Split(strings.TrimSpace(key), "."), value)
	}
}

func mockSet(m map[string]any, keys []string, v any) {
	for _, k := range keys[:len(keys)-1] {
		next, ok := m[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[k] = next
		}
		m = next
	}
	m[keys[len(keys)-1]] = v
}

// with returns the configuration with a thread's `config` laid over it. Its dotted keys, which the real one takes too,
// count for nothing: nobody may send any.
func (h *mockConfig) with(raw json.RawMessage) map[string]any {
	var extra map[string]any
	_ = json.Unmarshal(raw, &extra) // absent or null: nothing to lay over
	return mockMerge(h.keys, extra)
}

func mockMerge(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range a {
		if sub, ok := v.(map[string]any); ok {
			v = mockMerge(sub, nil)
		}
		out[k] = v
	}
	for k, v := range b {
		sub, ok := v.(map[string]any)
		if old, both := out[k].(map[string]any); ok && both {
			v = mockMerge(old, sub)
		}
		out[k] = v
	}
	return out
}

// mockRepoRoot is the directory with .git at or above dir, "" without one.
func mockRepoRoot(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// trust does what 0.169 does behind the user's back: it writes the repository
// as trusted into config.toml.
func (h *mockConfig) trust(root string) error {
	f, err := os.OpenFile(filepath.Join(h.dir, "config.toml"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\n[projects.%q]\ntrust_level = \"trusted\"\n", root)
	mockSet(h.keys, []string{"projects", root, "trust_level"}, "trusted")
	return errors.Join(err, f.Close())
}

// checkWords refuses enum words that the version doesn't have.
func (x *testMock) checkWords(msg *message) bool {
	approvals := []string{"untrusted", "on-request", "granular", "never"}
	if x.old() {
		approvals[1], approvals[2] = "on-failure", "on-request"
	}
	policies := []string{"dangerFullAccess", "readOnly", "externalSandbox", "workspaceWrite"}
	policy := rawField(msg.params, "sandboxPolicy")
	for _, f := range []struct {
		val   json.RawMessage
		words []string
	}{
		{rawField(msg.params, "approvalPolicy"), approvals},
		{rawField(msg.params, "sandbox"), []string{"read-only", "workspace-write", "danger-full-access"}},
		{rawField(policy, "type"), policies},
		{rawField(msg.params, "effort"), []string{"none", "minimal", "low", "medium", "high", "xhigh"}},
	} {
		word, ok := rawString(f.val)
		if ok && !slices.Contains(f.words, word) && (x.old() || f.words[0] != "none") || word == "granular" {
			x.m.refuse(msg, mockVariant(word, f.words...))
			return false
		}
	}
	if isNull(policy) || rawKind(policy) == '{' {
		return true
	}
	x.m.refuse(msg, "Invalid request: invalid type: string "+string(policy)+
		", expected internally tagged enum SandboxPolicyDeserialize")
	return false
}

// sandbox is the policy of a word, in the version's shape.
func (x *testMock) sandbox(kind string, cfg map[string]any) json.RawMessage {
	table, _ := cfg["sandbox_workspace_write"].(map[string]any)
	p := map[string]any{}
	_ = json.Unmarshal(mockSandbox(kind, nil), &p) // our own
	if kind == "workspaceWrite" {
		p["writableRoots"] = cmp.Or[any](table["writable_roots"], []any{})
		p["networkAccess"] = table["network_access"] == true
		p["excludeTmpdirEnvVar"] = table["exclude_tmpdir_env_var"] == true
		p["excludeSlashTmp"] = table["exclude_slash_tmp"] == true
	}
	if x.old() && kind == "readOnly" {
		delete(p, "networkAccess")
	}
	return toJSON(p)
}

// settle works out the settings of a thread from the request, what is kept of
// it, and the configuration. A text says why it can't be.
func (x *testMock) settle(params json.RawMessage, kept *mockSettings) (mockSettings, map[string]any, string) {
	x.config.load()
	failed := "failed to load configuration: "
	if x.old() {
		failed = "error deriving config: "
	}
	if x.config.broken != nil {
		return mockSettings{}, nil, "failed to load configuration: " + x.config.broken.Error()
	}
	raw := rawField(params, "config")
	cfg := x.config.with(raw)
	if profile := mockString(cfg, "profile"); profile != "" {
		profiles, _ := cfg["profiles"].(map[string]any)
		p, found := profiles[profile].(map[string]any)
		switch {
		case !x.old():
			return mockSettings{}, nil, failed + fmt.Sprintf("legacy `profile = %q` config is no longer supported",
				profile)
		case !found:
			return mockSettings{}, nil, failed + fmt.Sprintf("config profile `%s` not found", profile)
		}
		cfg = mockMerge(cfg, p)
	}
	s := mockSettings{Approval: toJSON(cmp.Or(mockString(cfg, "approval_policy"), "on-request"))}
	word := mockString(cfg, "sandbox_mode")
	if kept != nil {
		s.Cwd, s.Model, s.Effort = kept.Cwd, kept.Model, kept.Effort
		if !x.old() { // 0.104 restores neither policy: it falls back to the configuration
			s.Approval, s.Sandbox, word = kept.Approval, kept.Sandbox, ""
		}
		if x.new() {
			s.Collaboration = kept.Collaboration
		}
	}
	if cwd := stringField(params, "cwd"); cwd != "" {
		s.Cwd = cwd
	}
	if abs, err := filepath.Abs(s.Cwd); err == nil { // not validated, only made absolute, as in every version
		s.Cwd = abs
	}
	s.Model = cmp.Or(stringField(params, "model"), s.Model, mockString(cfg, "model"), x.models()[0])
	s.Effort = cmp.Or(stringField(params, "effort"), s.Effort, mockString(cfg, "model_reasoning_effort"))
	if a := rawField(params, "approvalPolicy"); !isNull(a) {
		s.Approval = a
	}
	if w := stringField(params, "sandbox"); w != "" {
		word = w
	}
	if word == "" && s.Sandbox == nil {
		word = "read-only"
	}
	if word != "" {
		kind := mockSandboxKind(word)
		if kind == "" {
			return mockSettings{}, nil, strings.Replace(mockVariant(word, "read-only", "workspace-write",
				"danger-full-access"), "Invalid request: ", failed, 1)
		}
		s.Sandbox = x.sandbox(kind, cfg)
	}
	return s, cfg, ""
}

// configRead answers with what config.toml has. The real one has some 120 keys besides.
func (x *testMock) configRead(m *mockServer, msg *message) {
	x.config.load()
	if x.config.broken != nil {
		m.refuse(msg, "failed to load configuration: "+x.config.broken.Error())
		return
	}
	m.reply(msg, map[string]any{"config": x.config.keys, "origins": map[string]any{}})
}

// threadList lists what has a history, newest first. Its cursor is a number, unlike the real one.
func (x *testMock) threadList(m *mockServer, msg *message) {
	var dirs []string
	if dir, ok := rawString(rawField(msg.params, "cwd")); ok {
		dirs = []string{dir}
	} else if raw := rawField(msg.params, "cwd"); !isNull(raw) && x.old() {
		m.refuse(msg, "Invalid request: invalid type: sequence, expected a string")
		return
	} else {
		_ = json.Unmarshal(raw, &dirs) // absent: every directory
	}
	for i := range dirs {
		dirs[i] = filepath.Clean(dirs[i]) // as Windows spells it
	}
	files, _ := filepath.Glob(filepath.Join(m.home.dir, "sessions", "mock", "*.jsonl"))
	list := []any{}
	for _, file := range files {
		th, err := m.home.read(strings.TrimSuffix(filepath.Base(file), ".jsonl"))
		if err != nil || th.Parent != "" || dirs != nil && !slices.Contains(dirs, th.Settings.Cwd) {
			continue
		}
		th.m = m
		view := th.view(nil)
		x.dressThread(view)
		list = append(list, view)
	}
	slices.SortStableFunc(list, func(a, b any) int {
		return cmp.Compare(b.(map[string]any)["updatedAt"].(int64), a.(map[string]any)["updatedAt"].(int64))
	})
	if page := x.paged(msg, list); page != nil {
		m.reply(msg, page)
	}
}

// nameSet names a thread, also one that was never used.
func (x *testMock) nameSet(m *mockServer, msg *message) {
	th, _ := m.find(msg, "no rollout found for thread id ")
	if th == nil {
		return
	}
	m.mu.Lock()
	th.Name = stringField(msg.params, "name")
	state := th.mockThreadState
	m.mu.Unlock()
	if th.used {
		th.keep(mockRecord{Thread: &state})
	}
	m.reply(msg, struct{}{})
	m.notify("thread/name/updated", map[string]any{"threadId": th.ID, "threadName": state.Name})
}

// archive moves a history away. From 0.148 on another process's thread is refused.
func (x *testMock) archive(m *mockServer, msg *message) {
	th, loaded := m.find(msg, "no rollout found for thread id ")
	switch {
	case th == nil:
		return
	case !loaded && !x.lock(th.ID) && !x.old():
		m.refuse(msg, "thread "+th.ID+" already has an active writer")
		return
	}
	if loaded {
		m.mu.Lock()
		delete(m.threads, th.ID)
		m.mu.Unlock()
		m.killShells(th)
	}
	path := m.home.path(th.ID)
	x.unlock(th.ID)
	away := filepath.Join(m.home.dir, "archived_sessions", filepath.Base(path))
	err := os.MkdirAll(filepath.Dir(away), 0o700)
	if err == nil && th.used {
		err = os.Rename(path, away)
	}
	if err != nil {
		m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: err.Error()})
		return
	}
	m.reply(msg, struct{}{})
	m.notify("thread/archived", map[string]any{"threadId": th.ID})
}
