package main

// mock_requests_test.go owns the requests that only the tests' codex answers, who is
// logged in and reviews above all, and what tests put around those that ship: what
// is swallowed, and what each version did. MOCK_CODEX_AUTH=1 makes it want a login
// of every turn; MOCK_CODEX_LOGIN says how a login that needs a person ends. It
// never talks to anybody: no browser comes to the addresses it names.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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
			"review/start": x.reviewStart, "mcpServerStatus/list": x.serverList, "config/read": x.configRead,
			"account/read": x.accountRead, "account/login/start": x.loginStart, "account/login/cancel": x.loginCancel, "account/logout": x.logout,
		})
		if x.old() {
			delete(m.requests, "thread/unsubscribe")
		}
		if x.minor < 153 {
			delete(m.requests, "thread/settings/update")
		}
		around("initialize", x.initialize)
		around("thread/start", x.threadStart)
		around("thread/resume", func(inner mockRequest, msg *message) {
			if x.checkWords(msg) {
				x.open(inner, msg)
			}
		})
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
			case (method == "thread/settings/update" || method == "thread/backgroundTerminals/clean") && !x.experimental:
				m.refuse(msg, method+" requires experimentalApi capability")
			default:
				inner(m, msg)
			}
		})
	}
}

func (x *testMock) initialize(inner mockRequest, msg *message) {
	if x.noInit {
		return
	}
	x.experimental = string(rawField(msg.params, "capabilities", "experimentalApi")) == "true"
	inner(x.m, msg)
	if x.old() {
		return
	}
	summary, details := "Codex could not find bubblewrap on PATH. Install bubblewrap with your OS package manager.", any(nil)
	if x.config.broken != nil {
		summary, details = "Invalid configuration; using defaults.", x.config.broken.Error()
	}
	x.m.notify("configWarning", map[string]any{"summary": summary, "details": details})
	x.m.notify("remoteControl/status/changed", map[string]any{"status": "disabled", "serverName": "mock", "installationId": "00000000-0000-4000-8000-000000000000", "environmentId": nil})
}

// threadStart: 0.169 trusts the repository of a thread that may write, unless the
// nested projects table says otherwise (fact 16; not for sandboxPolicy).
func (x *testMock) threadStart(inner mockRequest, msg *message) {
	if !x.checkWords(msg) {
		return
	}
	s, cfg, failed := x.settle(msg.params, nil)
	if failed == "" {
		failed = x.badTools(rawField(msg.params, "dynamicTools"))
	}
	if failed != "" {
		x.m.refuse(msg, failed)
		return
	}
	if root := mockRepoRoot(s.Cwd); x.new() && root != "" && !isNull(rawField(msg.params, "sandbox")) && s.sandbox() != "readOnly" &&
		mockString(cfg, "projects", root, "trust_level") == "" && mockString(cfg, "projects", s.Cwd, "trust_level") == "" {
		if err := x.config.trust(root); err != nil {
			x.m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "error creating thread: " + err.Error()})
			return
		}
	}
	x.open(inner, msg)
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

// turnStart: on a busy thread 0.104 invents an id that never completes.
func (x *testMock) turnStart(inner mockRequest, msg *message) {
	m, input := x.m, rawField(msg.params, "input")
	if !x.checkWords(msg) {
		return
	}
	if x.new() {
		remote := false
		eachElement(input, func(p json.RawMessage) {
			remote = remote || stringField(p, "type") == "image" && !strings.HasPrefix(stringField(p, "url"), "data:")
		})
		if remote {
			m.refuse(msg, "remote image URLs are not supported; use an inline data URL instead")
			return
		}
		if n := utf8.RuneCountInString(mockText(input)); n > 1<<20 {
			m.peer.replyError(msg.id, &rpcError{Code: codeInvalidParams, Message: "Input exceeds the maximum length of 1048576 characters.",
				Data: toJSON(map[string]any{"input_error_code": "input_too_large", "max_chars": 1 << 20, "actual_chars": n})})
			return
		}
	}
	m.mu.Lock()
	th := m.threads[stringField(msg.params, "threadId")]
	var active *mockTurn
	if th != nil {
		active = th.active
	}
	m.mu.Unlock()
	if active != nil && x.old() {
		ghost := mockTurnView(newMockID(), "inProgress", []json.RawMessage{}, nil)
		if active.steer(input, func() { m.peer.reply(msg.id, x.stripped(toJSON(map[string]any{"turn": ghost}))) }) {
			m.notify("turn/started", map[string]any{"threadId": th.ID, "turn": ghost})
			return
		}
	}
	inner(m, msg)
	if th == nil {
		return
	}
	m.mu.Lock()
	t := th.active
	m.mu.Unlock()
	if t != nil {
		x.heed(th, t, mockText(input))
	}
}

// turnInterrupt: up to 0.157 nothing active means no answer, ever; 0.104 doesn't
// look at the id. A review goes by an id of its own.
func (x *testMock) turnInterrupt(inner mockRequest, msg *message) {
	m := x.m
	m.mu.Lock()
	th := m.threads[stringField(msg.params, "threadId")]
	var t *mockTurn
	if th != nil {
		t = th.active
	}
	stopped := t != nil && t.stopped
	m.mu.Unlock()
	if th == nil {
		inner(m, msg)
		return
	}
	x.mu.Lock()
	of := x.of(th)
	deaf, review, own := t != nil && of.deaf == t, t != nil && of.review == t, of.inner
	x.mu.Unlock()
	id := stringField(msg.params, "turnId")
	switch {
	case t == nil && !x.new() || stopped && x.old():
		return
	case x.old():
		id = ""
	case review && own != "" && id == own:
		id = t.id
	case review && own != "" && id != "":
		m.refuse(msg, "expected active turn id "+id+" but found "+own)
		return
	}
	switch {
	case t != nil && id != "" && id != t.id: // refused below
	case deaf:
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
		words = []string{"untrusted", "on-request", "never"}
	}
	if x.old() {
		words = []string{"untrusted", "on-failure", "on-request", "never"}
	}
	around("initialize", func(inner mockRequest, msg *message) {
		if !x.noInit {
			inner(m, msg)
		}
	})
	around("tools/list", func(_ mockRequest, msg *message) {
		tools := m.mcpTools()
		start := tools[0].(map[string]any)["inputSchema"].(map[string]any)
		props := start["properties"].(map[string]any)
		props["approval-policy"] = map[string]any{"type": "string", "enum": words}
		if x.old() {
			props["profile"] = map[string]any{"type": "string"}
			delete(start, "additionalProperties")
		}
		m.reply(msg, map[string]any{"tools": tools})
	})
	around("tools/call", func(inner mockRequest, msg *message) {
		name, args := stringField(msg.params, "name"), rawField(msg.params, "arguments")
		known := []string{"approval-policy", "base-instructions", "compact-prompt", "config", "cwd", "developer-instructions", "model", "prompt", "sandbox"}
		bad := ""
		_ = eachField(args, func(key string, _ json.RawMessage) bool { // no object: refused by inner
			if !x.old() && !slices.Contains(known, key) {
				bad = fmt.Sprintf("unknown field `%s`, expected one of `%s`", key, strings.Join(known, "`, `"))
			}
			return true
		})
		if w := stringField(args, "approval-policy"); w != "" && !slices.Contains(words, w) {
			bad = strings.TrimPrefix(mockVariant(w, words...), "Invalid request: ")
		}
		if name == "codex" && bad != "" {
			m.mcpAnswer(msg.id, "", "Failed to parse configuration for Codex tool: "+bad, true)
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
		if x.new() {
			continue
		}
		model["supportedReasoningEfforts"] = model["supportedReasoningEfforts"].([]any)[:4]
		for _, k := range []string{"upgradeInfo", "availabilityNux", "modelSpecialty", "defaultServiceTier", "availableAccessPrograms", "multiAgentVersion", "additionalSpeedTiers", "serviceTiers"} {
			delete(model, k)
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
	if x.new() {
		result["userId"], result["workspaceRouting"] = nil, nil
	}
	x.m.reply(msg, result)
}

func (x *testMock) loginStart(_ *mockServer, msg *message) {
	kinds := []string{"apiKey", "chatgpt", "chatgptAuthTokens"}
	if x.new() {
		kinds = []string{"apiKey", "chatgpt", "chatgptDeviceCode", "chatgptAuthTokens", "amazonBedrock", "amazonBedrockAccessKeys"}
	}
	switch kind := stringField(msg.params, "type"); kind {
	case "apiKey":
		key, ok := rawString(rawField(msg.params, "apiKey"))
		if !ok {
			x.m.refuse(msg, "Invalid request: missing field `apiKey`")
			return
		}
		if err := x.keepAuth(map[string]any{"auth_mode": "apikey", "OPENAI_API_KEY": key}); err != nil {
			x.m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "failed to save api key: " + err.Error()})
			return
		}
		x.m.reply(msg, map[string]any{"type": "apiKey"})
		x.loginDone("", "")
		x.accountUpdated()
	case "chatgpt":
		x.waitForLogin(msg, map[string]any{"type": kind, "authUrl": "https://auth.openai.com/oauth/authorize?mock=1"})
	case "chatgptDeviceCode":
		if x.new() {
			x.waitForLogin(msg, map[string]any{"type": kind, "verificationUrl": "https://auth.openai.com/codex/device", "userCode": "MOCK-1234"})
			return
		}
		x.m.refuse(msg, mockVariant(kind, kinds...))
	default:
		x.m.refuse(msg, mockVariant(kind, kinds...))
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
	switch os.Getenv("MOCK_CODEX_LOGIN") {
	case "ok":
		x.finishLogin(login, "")
	case "fail":
		x.finishLogin(login, "Login server error: Login was denied")
	}
}

// finishLogin ends a login that waits, as the person did.
func (x *testMock) finishLogin(login *mockLogin, failure string) {
	x.mu.Lock()
	still := x.login == login
	if still {
		x.login = nil
	}
	x.mu.Unlock()
	if !still {
		return
	}
	if failure == "" {
		if err := x.keepAuth(map[string]any{"auth_mode": "chatgpt", "tokens": map[string]any{"access_token": "mock"}, "last_refresh": time.Now()}); err != nil {
			failure = err.Error()
		}
	}
	x.loginDone(login.id, failure)
	if failure == "" {
		x.accountUpdated()
	}
}

func (x *testMock) loginCancel(_ *mockServer, msg *message) {
	id := stringField(msg.params, "loginId")
	x.mu.Lock()
	login := x.login
	if login != nil && login.id == id {
		x.login = nil
	} else {
		login = nil
	}
	x.mu.Unlock()
	if login == nil {
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
	params := map[string]any{"loginId": mockNull(id), "success": failure == "", "error": mockNull(failure)}
	if x.new() {
		params["onboardingEntrypoint"] = nil
	}
	x.m.notify("account/login/completed", params)
}

func (x *testMock) accountUpdated() {
	params := map[string]any{"authMode": mockNull(x.loggedIn())}
	if x.new() {
		params["planType"] = nil
		if x.loggedIn() == "chatgpt" {
			params["planType"] = "plus"
		}
	}
	x.m.notify("account/updated", params)
}

// mockReviewPrompt is what Codex makes of {"type": "uncommittedChanges"}.
const mockReviewPrompt = "Review the current code changes (staged, unstaged, and untracked files) and provide prioritized findings."

// reviewStart is a turn in which another model's answer becomes the agent's.
func (x *testMock) reviewStart(m *mockServer, msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	prompt, label := mockReviewPrompt, "current changes"
	switch kind := stringField(msg.params, "target", "type"); kind {
	case "uncommittedChanges":
	case "custom":
		prompt = stringField(msg.params, "target", "instructions")
		if label = prompt; strings.TrimSpace(prompt) == "" {
			m.refuse(msg, "instructions must not be empty")
			return
		}
	default: // the real ones have baseBranch and commit too
		m.refuse(msg, mockVariant(kind, "uncommittedChanges", "custom"))
		return
	}
	if d := stringField(msg.params, "delivery"); d != "" && d != "inline" {
		m.refuse(msg, mockVariant(d, "inline"))
		return
	}
	t := m.newTurn(th)
	x.mu.Lock()
	of := x.of(th)
	x.mu.Unlock()
	asked := map[string]any{"type": "userMessage", "id": t.id, "content": []any{map[string]any{"type": "text", "text": label, "text_elements": []any{}}},
		"clientId": nil, "startedAtMs": nil, "completedAtMs": nil}
	inner := ""
	if !x.old() {
		inner = newMockID()
	}
	view := t.view("inProgress", []json.RawMessage{toJSON(asked)}, false)
	view["itemsView"], view["rootTurnId"] = "notLoaded", nil
	answered := make(chan struct{})
	t.occupy(prompt, func() {
		<-answered
		x.mu.Lock()
		of.review, of.inner = t, inner
		x.mu.Unlock()
		end := x.runReview(t, prompt, label, inner, view)
		x.mu.Lock()
		of.review, of.inner = nil, ""
		x.mu.Unlock()
		t.close(end)
	})
	m.reply(msg, map[string]any{"turn": view, "reviewThreadId": th.ID})
	close(answered)
}

// runReview does what the prompt says, without asking for anything.
func (x *testMock) runReview(t *mockTurn, prompt, label, inner string, view map[string]any) mockEnd {
	m, outer := t.m, t.rec
	t.settings.Approval = json.RawMessage(`"never"`)
	mark := func(kind, text, event string, fields map[string]any) {
		id := t.id // 0.104 gives both marks the turn's
		if !x.old() {
			id = newMockID()
		}
		t.event(event, fields)
		it := t.item(kind, id, map[string]any{"review": text})
		t.started(it)
		t.completed(it)
	}
	// What is done in it is kept before the turn in which it stands, and never
	// ends; 0.104 cuts off its beginning instead.
	aside := &mockTurnRecord{ID: inner, Root: t.id, Status: "interrupted", Started: outer.Started, Items: []json.RawMessage{}}
	if x.old() {
		aside.ID, aside.Root, aside.Status = newMockID(), "", "completed"
		t.rec = aside
	}
	x.warn(t)
	if x.old() {
		m.send("turn/started", map[string]any{"threadId": t.th.ID, "turn": x.stripped(toJSON(view))})
	}
	mark("enteredReviewMode", label, "entered_review_mode", map[string]any{"target": map[string]any{"type": "custom", "instructions": prompt}, "user_facing_hint": label})
	m.mu.Lock()
	t.th.turns = append(t.th.turns[:len(t.th.turns)-1:len(t.th.turns)-1], aside, outer)
	m.mu.Unlock()
	if t.rec = aside; x.old() {
		t.rec = outer
		m.event(t.th.ID, t.id, "mcp_startup_complete", map[string]any{"ready": []any{}, "failed": []any{}, "cancelled": []any{}})
	}
	x.warn(t)
	t.setStatus("active")
	if !x.old() {
		begun := mockTurnView(inner, "inProgress", []json.RawMessage{}, nil)
		begun["startedAt"], begun["rootTurnId"] = t.begun.Unix(), t.id
		t.tell("turn/started", map[string]any{"turn": begun})
	}
	t.event("task_started", map[string]any{"turn_id": t.id, "model_context_window": 258400, "collaboration_mode_kind": "default"})
	end := t.check()
	if end == goOn {
		x.mu.Lock()
		x.of(t.th).quiet = true
		x.mu.Unlock()
		end = t.prompt(toJSON([]any{map[string]any{"type": "text", "text": prompt}}))
	}
	if end == goOn {
		end = t.check() // stopped in the last moment
	}
	if end == gone {
		return end
	}
	m.mu.Lock()
	t.rec.Items = slices.DeleteFunc(t.rec.Items, func(it json.RawMessage) bool { return stringField(it, "type") == "agentMessage" }) // only Codex has heard it
	if x.old() && len(outer.Items) > 0 {
		outer.Items = append(outer.Items[:1:1], outer.Items...) // what was asked for is kept twice
	}
	kept := *aside
	t.rec = outer
	m.mu.Unlock()
	m.keep(t.th, mockRecord{Turn: &kept})
	verdict, said := stringField(t.final, "text"), stringField(t.final, "text")
	if end != goOn {
		verdict, said = "Reviewer failed to output a response.", "Review was interrupted. Please re-run /review and wait for it to complete."
	}
	x.mu.Lock()
	x.of(t.th).quiet = false
	x.mu.Unlock()
	mark("exitedReviewMode", verdict, "exited_review_mode", map[string]any{"review_output": map[string]any{"overall_explanation": verdict}})
	id := "msg_" + newMockID()
	if x.old() {
		id = "review_rollout_assistant"
	}
	answer := t.item("agentMessage", id, map[string]any{"text": said})
	t.started(answer)
	t.completed(answer)
	t.final = nil
	if end == goOn {
		t.final = toJSON(answer)
	}
	if end == interrupted {
		t.tell("thread/readState/changed", map[string]any{"readState": m.readState(t.th)})
	}
	return end
}
