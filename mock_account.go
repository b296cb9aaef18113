package main

// mock_account.go owns who is logged in to the mock Codex: reading it, logging in
// by a key, a browser or a device, cancelling that, logging out. mock.go dispatches
// to it on the reading goroutine. MOCK_CODEX_AUTH=1 makes it want a login of every
// turn; MOCK_CODEX_LOGIN says how a login that needs a person ends. It must never
// talk to anybody: no browser comes to the addresses it names.

import (
	"os"
	"path/filepath"
	"time"
)

// mockLogin is a login that waits for a person. mockServer.mu guards it.
type mockLogin struct{ id string }

func (m *mockServer) authFile() string { return filepath.Join(m.home.dir, "auth.json") }

// wantsAuth: the provider is OpenAI's, or a test says so.
func (m *mockServer) wantsAuth() bool {
	return os.Getenv("MOCK_CODEX_AUTH") == "1" || mockString(m.home.config, "model_provider") == ""
}

// loggedIn says what auth.json says, "" without one.
func (m *mockServer) loggedIn() string {
	text, err := os.ReadFile(m.authFile())
	if err != nil {
		return ""
	}
	if mode := stringField(text, "auth_mode"); mode != "" {
		return mode
	}
	return "apikey" // whatever is in it
}

// accountRead tells of no account where the provider wants none.
func (m *mockServer) accountRead(msg *message) {
	result := map[string]any{"account": nil, "requiresOpenaiAuth": m.wantsAuth()}
	switch mode := m.loggedIn(); {
	case !m.wantsAuth():
	case mode == "apikey":
		result["account"] = map[string]any{"type": "apiKey"}
	case mode != "":
		result["account"] = map[string]any{"type": "chatgpt", "email": "mock@example.com", "planType": "plus"}
	}
	if m.new() {
		result["userId"], result["workspaceRouting"] = nil, nil
	}
	m.peer.reply(msg.id, result)
}

func (m *mockServer) loginStart(msg *message) {
	kinds := []string{"apiKey", "chatgpt", "chatgptAuthTokens"}
	if m.new() {
		kinds = []string{"apiKey", "chatgpt", "chatgptDeviceCode", "chatgptAuthTokens", "amazonBedrock", "amazonBedrockAccessKeys"}
	}
	switch kind := stringField(msg.params, "type"); kind {
	case "apiKey":
		key, ok := rawString(rawField(msg.params, "apiKey"))
		if !ok {
			m.refuse(msg, "Invalid request: missing field `apiKey`")
			return
		}
		if err := m.keepAuth(map[string]any{"auth_mode": "apikey", "OPENAI_API_KEY": key}); err != nil {
			m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "failed to save api key: " + err.Error()})
			return
		}
		m.peer.reply(msg.id, map[string]any{"type": "apiKey"})
		m.loginDone("", "")
		m.accountUpdated()
	case "chatgpt":
		m.waitForLogin(msg, map[string]any{"type": kind, "authUrl": "https://auth.openai.com/oauth/authorize?mock=1"})
	case "chatgptDeviceCode":
		if m.new() {
			m.waitForLogin(msg, map[string]any{"type": kind, "verificationUrl": "https://auth.openai.com/codex/device", "userCode": "MOCK-1234"})
			return
		}
		m.refuse(msg, mockVariant(kind, kinds...))
	default:
		m.refuse(msg, mockVariant(kind, kinds...))
	}
}

// waitForLogin answers with where a person is to go. Another login that waits
// still is cancelled first.
func (m *mockServer) waitForLogin(msg *message, result map[string]any) {
	login := &mockLogin{id: newMockID()}
	m.mu.Lock()
	before := m.login
	m.login = login
	m.mu.Unlock()
	if before != nil {
		m.loginDone(before.id, "Login server error: Login cancelled")
	}
	result["loginId"] = login.id
	m.peer.reply(msg.id, result)
	switch os.Getenv("MOCK_CODEX_LOGIN") {
	case "ok":
		m.finishLogin(login, "")
	case "fail":
		m.finishLogin(login, "Login server error: Login was denied")
	}
}

// finishLogin ends a login that waits, as the person did.
func (m *mockServer) finishLogin(login *mockLogin, failure string) {
	m.mu.Lock()
	still := m.login == login
	if still {
		m.login = nil
	}
	m.mu.Unlock()
	if !still {
		return
	}
	if failure == "" {
		if err := m.keepAuth(map[string]any{"auth_mode": "chatgpt", "tokens": map[string]any{"access_token": "mock"}, "last_refresh": time.Now()}); err != nil {
			failure = err.Error()
		}
	}
	m.loginDone(login.id, failure)
	if failure == "" {
		m.accountUpdated()
	}
}

func (m *mockServer) loginCancel(msg *message) {
	id := stringField(msg.params, "loginId")
	m.mu.Lock()
	login := m.login
	if login != nil && login.id == id {
		m.login = nil
	} else {
		login = nil
	}
	m.mu.Unlock()
	if login == nil {
		m.peer.reply(msg.id, map[string]any{"status": "notFound"})
		return
	}
	m.peer.reply(msg.id, map[string]any{"status": "canceled"})
	m.loginDone(id, "Login server error: Login was not completed")
}

func (m *mockServer) logout(msg *message) {
	_ = os.Remove(m.authFile()) // none is as good
	m.peer.reply(msg.id, struct{}{})
	m.accountUpdated()
}

func (m *mockServer) keepAuth(auth map[string]any) error {
	return os.WriteFile(m.authFile(), toJSON(auth), 0o600)
}

// loginDone: the login of a key has no id.
func (m *mockServer) loginDone(id, failure string) {
	params := map[string]any{"loginId": mockNull(id), "success": failure == "", "error": mockNull(failure)}
	if m.new() {
		params["onboardingEntrypoint"] = nil
	}
	m.notify("account/login/completed", params)
}

func (m *mockServer) accountUpdated() {
	params := map[string]any{"authMode": mockNull(m.loggedIn())}
	if m.new() {
		params["planType"] = nil
		if m.loggedIn() == "chatgpt" {
			params["planType"] = "plus"
		}
	}
	m.notify("account/updated", params)
}
