package main

// acp_front_test.go holds the ACP front to what its client may send and gets
// for it: the handshake, codes and words of what is refused, logging in, lists.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestACPInitialize: the answer doesn't wait for Codex, is ours for any version,
// and claims what there is.
func TestACPInitialize(t *testing.T) {
	for _, tt := range []struct {
		name, params string
		kept         bool
		want, absent []string
	}{
		{"newest", `{"protocolVersion":99}`, true, []string{`"protocolVersion":1`, `"loadSession":true`, `"list":{}`, `"resume":{}`, `"close":{}`, `"embeddedContext":true`, `"image":true`, `"audio":false`, `"sse":false`, `"logout":{}`, `"id":"chatgpt"`, `"id":"openai-api-key"`, `"version":"1.2.3"`}, []string{"codex-login"}},
		{"oldest", `{"protocolVersion":0}`, true, []string{`"protocolVersion":1`}, nil},
		{"terminal", `{"protocolVersion":1,"clientCapabilities":{"auth":{"terminal":true}}}`, true, []string{`"type":"terminal","id":"codex-login"`, `"args":["acp","login"]`}, nil},
		{"nothing kept", `{"protocolVersion":1}`, false, []string{`"loadSession":false`, `"close":{}`}, []string{`"list"`, `"resume"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newACPFrontRig(t, func(r *acpFrontRig, o *acpOptions) { o.Kept, r.ready = tt.kept, make(chan struct{}) })
			got := string(rawField(r.call("initialize", tt.params), "result"))
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("%s lacks %s", got, w)
				}
			}
			for _, w := range tt.absent {
				if strings.Contains(got, w) {
					t.Errorf("%s has %s", got, w)
				}
			}
			if !tt.kept {
				failsWith(t, r.call("session/load", `{"sessionId":"s","cwd":"/w"}`), codeNoMethod)
			}
		})
	}
}

func TestACPBadInput(t *testing.T) {
	r := newACPFrontRig(t, nil)
	r.notify("session/cancel", `{"sessionId":"x"}`)
	failsWith(t, r.call("session/new", `{"cwd":"/w","mcpServers":[]}`), codeInvalidRequest, "before initialize")
	for _, rec := range []struct {
		text string
		code int
	}{{"{bad", codeParse}, {"\xff", codeParse}, {`[]`, codeInvalidRequest}, {`{"jsonrpc":"2.0","id":[],"method":"x"}`, codeInvalidRequest}} {
		r.send(rec.text)
		got := r.next()
		failsWith(t, got, rec.code)
		if string(rawField(got, "id")) != "null" {
			t.Errorf("%q is answered with %s, want id null", rec.text, got)
		}
	}
	failsWith(t, r.call("initialize", `{}`), codeInvalidParams, "protocolVersion")
	failsWith(t, r.call("initialize", `{"protocolVersion":"1"}`), codeInvalidParams, "a string")
	r.hello("{}")
	session, _ := r.open()
	r.notify("$/unknown", `{}`)
	r.f.retune = func(_ string, change settingsChange, done func(sessionSettings, *rpcError)) {
		t.Errorf("changed %+v", change)
		done(sessionSettings{}, nil)
	}
	option := func(fields string) string { return fmt.Sprintf(`{"sessionId":%q,%s}`, session, fields) }
	prompt := func(blocks string) string { return fmt.Sprintf(`{"sessionId":%q,"prompt":%s}`, session, blocks) }
	for _, tt := range []struct {
		method, params string
		code           int
		words          string
	}{
		{"nope", `{}`, codeNoMethod, "nope"},
		{"session/new", `[]`, codeInvalidParams, "an array"},
		{"session/new", `{"mcpServers":[]}`, codeInvalidParams, "cwd is missing"},
		{"session/new", `{"cwd":"rel","mcpServers":[]}`, codeInvalidParams, `"rel" is not an absolute path`},
		{"session/new", `{"cwd":7,"mcpServers":[]}`, codeInvalidParams, "a number"},
		{"session/new", `{"cwd":"/w","mcpServers":{}}`, codeInvalidParams, "mcpServers must be an array"},
		{"session/new", `{"cwd":"/w","mcpServers":[],"additionalDirectories":["a"]}`, codeInvalidParams, "additionalDirectories[0]"},
		{"session/new", `{"cwd":"/w","mcpServers":[],"additionalDirectories":[true]}`, codeInvalidParams, "a boolean"},
		{"session/load", `{"sessionId":"nope","cwd":"/w","mcpServers":[]}`, codeSessionNotFound, "nope"},
		{"session/resume", `{"sessionId":"nope","cwd":"/w"}`, codeSessionNotFound, "nope"},
		{"session/load", `{"cwd":"/w","mcpServers":[]}`, codeInvalidParams, "sessionId is missing"},
		{"session/close", `{"sessionId":"nope"}`, codeSessionNotFound, "nope"},
		{"session/prompt", `{"sessionId":"nope","prompt":[]}`, codeSessionNotFound, "nope"},
		{"session/list", `{"cwd":"rel"}`, codeInvalidParams, "rel"},
		{"session/list", `{"cursor":"AAAA"}`, codeInvalidParams, "cursor"},
		{"session/list", `{"cursor":5}`, codeInvalidParams, "cursor 5"},
		{"session/prompt", prompt(`"hi"`), codeInvalidParams, "a string"},
		{"session/prompt", prompt(`[]`), codeInvalidParams, "nothing in it"},
		{"session/prompt", prompt(`[{"type":"audio","data":"","mimeType":"audio/wav"}]`), codeInvalidParams, "audio"},
		{"session/set_config_option", option(`"configId":"mode","value":"yolo"`), codeInvalidParams, "read-only, ask, auto, full"},
		{"session/set_config_option", option(`"configId":"colour","value":"red"`), codeInvalidParams, "colour"},
		{"session/set_config_option", option(`"configId":"mode","type":"boolean","value":true`), codeInvalidParams, "a boolean"},
		{"session/set_config_option", option(`"configId":"mode"`), codeInvalidParams, "missing"},
		{"session/set_config_option", option(`"value":"ask"`), codeInvalidParams, "configId"},
		{"session/set_config_option", option(`"configId":7,"value":"ask"`), codeInvalidParams, "a number"},
		{"session/set_config_option", `{"sessionId":"nope","configId":"mode","value":"ask"}`, codeSessionNotFound, "nope"},
		{"session/set_mode", option(`"modeId":"yolo"`), codeInvalidParams, "yolo"},
		{"session/set_mode", option(`"modeId":7`), codeInvalidParams, "modeId"},
		{"session/set_mode", `{"sessionId":"nope","modeId":"ask"}`, codeSessionNotFound, "nope"},
		{"authenticate", `{}`, codeInvalidParams, "methodId is missing"},
		{"authenticate", `{"methodId":"x"}`, codeInvalidParams, "chatgpt"},
		{"authenticate", `{"methodId":"codex-login"}`, codeInvalidParams, "acp login"},
		{"authenticate", `{"methodId":"openai-api-key"}`, codeAuthRequired, "OPENAI_API_KEY"},
	} {
		failsWith(t, r.call(tt.method, tt.params), tt.code, tt.words)
	}
	id := r.start("session/new", `{"cwd":"/w","mcpServers":[]}`)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"logout"}`)
	failsWith(t, r.next(), codeInvalidRequest, "already in use")
	r.f.done(receive(t, r.submits).w, turnResult{err: proxyError(codeInvalidSession, "cwd /w does not exist")})
	got, _ := r.answerTo(id)
	failsWith(t, got, codeInvalidParams, "cwd /w does not exist")
	none(t, "submitted", r.submits)
}

// TestACPOversizedRequest: a record over the limit is no reason to leave its
// sender waiting, nor to answer what it asked itself under that id.
func TestACPOversizedRequest(t *testing.T) {
	r := newACPFrontRig(t, nil)
	r.hello(`{}`)
	long := strings.Repeat("x", maxRecord)
	r.send(`{"jsonrpc":"2.0","id":"big","method":"session/prompt","params":{"text":"` + long + `"}}`)
	got := r.next()
	failsWith(t, got, codeInvalidRequest, "64 MiB")
	if stringField(got, "id") != "big" {
		t.Errorf("answered %s", got)
	}
	r.send(`{"jsonrpc":"2.0","id":1,"result":"` + long + `"}`)
	if got := r.next(); string(rawField(got, "id")) != "null" {
		t.Errorf("answered %s", got)
	}
}

// TestACPErrors: what the hub says is told with ACP's codes, in words for who
// has an editor and no MCP tools.
func TestACPErrors(t *testing.T) {
	f := newACPFrontRig(t, nil).f
	child := func(code int, msg, data string) *rpcError {
		return childError("start the turn", withLogin(&backendError{Code: code, Message: msg, Data: json.RawMessage(data)}))
	}
	for _, tt := range []struct {
		name  string
		e     *rpcError
		code  int
		words string
	}{
		{"death", deathError(&childDeath{Reason: "exit code 3"}, true), codeInternal, "the next prompt starts Codex again"},
		{"never began", deathError(&childDeath{Never: true, Reason: "could not be started: no codex"}, true), codeInternal, "no codex"},
		{"closed", closedError("codex:a", "session a is broken: x", "recover"), codeInternal, "the next prompt opens it again"},
		{"stopping", stoppingError(), codeInternal, "load the session"},
		{"timeout", proxyAdvice(codeTimeout, remedyGoOn, "silent for 5m; it was interrupted", ". Agent a keeps its context: continue with codex-reply. Its answer so far: half", "limit", "request_timeout_secs", "partial", "half"), codeInternal, "the next prompt goes on, --timeout sets the limit. Its answer so far: half"},
		{"directory", proxyError(codeInvalidSession, "cwd /x does not exist"), codeInvalidParams, "cwd /x does not exist"},
		{"child's parameters", child(-32602, "Input exceeds the maximum length of 1048576 characters.", `{"code":-32602,"data":{"input_error_code":"input_too_large"}}`), codeInvalidParams, "Send less at once"},
		{"child's refusal", child(-32600, "busy", `{"code":-32600}`), codeInternal, "busy"},
		{"no login", child(-32600, "x (Codex is not logged in, or its key was refused: run `codex login` in a terminal and try again)", `{"code":-32600}`), codeAuthRequired, "not logged in"},
		{"ours already", &rpcError{Code: codeInvalidParams, Message: "m"}, codeInvalidParams, "m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := f.acpError(tt.e)
			failsWith(t, toJSON(map[string]any{"error": got}), tt.code, tt.words)
			for _, w := range []string{"codex-reply", "agent_id\":", "CHILD_PROCESS_DEAD:", "restart_child"} {
				if strings.Contains(got.Message, w) {
					t.Errorf("message %q has %q", got.Message, w)
				}
			}
		})
	}
}

func TestACPNotLoggedIn(t *testing.T) {
	r := newACPFrontRig(t, func(r *acpFrontRig, _ *acpOptions) { r.account = `{"account":null,"requiresOpenaiAuth":true}` })
	r.hello(`{"auth":{"terminal":true}}`)
	got := r.call("session/new", `{"cwd":"/w","mcpServers":[]}`)
	failsWith(t, got, codeAuthRequired, "codex login")
	if methods := string(rawField(got, "error", "data", "authMethods")); !strings.Contains(methods, "codex-login") || !strings.Contains(methods, "chatgpt") {
		t.Errorf("methods %s", methods)
	}
	none(t, "submitted", r.submits)
}

func TestACPNeedsAppServer(t *testing.T) {
	r := newACPFrontRig(t, func(r *acpFrontRig, _ *acpOptions) { r.backend = "mcp-server" })
	r.hello(`{}`)
	failsWith(t, r.call("session/new", `{"cwd":"/w","mcpServers":[]}`), codeInternal, "app-server")
}

func TestACPLoginByKey(t *testing.T) {
	r := newACPFrontRig(t, func(_ *acpFrontRig, o *acpOptions) {
		o.Env = func(name string) string { return map[string]string{"OPENAI_API_KEY": "sk-1"}[name] }
	})
	r.hello(`{}`)
	id := r.start("authenticate", `{"methodId":"openai-api-key"}`)
	a := receive(t, r.accounts)
	if a.action != "login" || stringField(a.params, "apiKey") != "sk-1" || stringField(a.params, "type") != "apiKey" {
		t.Errorf("%s %s", a.action, a.params)
	}
	a.answer <- acpAnswered{raw: json.RawMessage(`{"type":"apiKey"}`)}
	if got, _ := r.answerTo(id); string(rawField(got, "result")) != "{}" {
		t.Errorf("answered %s", got)
	}
	id = r.start("logout", `{}`)
	if a = receive(t, r.accounts); a.action != "logout" {
		t.Errorf("%s", a.action)
	}
	a.answer <- acpAnswered{}
	if got, _ := r.answerTo(id); string(rawField(got, "result")) != "{}" {
		t.Errorf("answered %s", got)
	}
}

// TestACPLoginByPage: the page is put before the user, and the answer waits for
// the user: for this login's own end.
func TestACPLoginByPage(t *testing.T) {
	begin := func(t *testing.T, caps string) (r *acpFrontRig, id string, ask json.RawMessage) {
		r = newACPFrontRig(t, nil)
		r.hello(caps)
		id = r.start("authenticate", `{"methodId":"chatgpt"}`)
		a := receive(t, r.accounts)
		a.answer <- acpAnswered{raw: json.RawMessage(`{"type":"chatgpt","loginId":"L","authUrl":"https://login.example/x"}`)}
		if strings.Contains(caps, "url") {
			ask = r.next()
			if stringField(ask, "method") != "elicitation/create" || stringField(ask, "params", "url") != "https://login.example/x" ||
				stringField(ask, "params", "mode") != "url" || string(rawField(ask, "params", "requestId")) != id {
				t.Fatalf("asked %s", ask)
			}
		}
		return r, id, ask
	}
	const url = `{"elicitation":{"url":{}}}`
	t.Run("done", func(t *testing.T) {
		r, id, ask := begin(t, url)
		r.send(`{"jsonrpc":"2.0","id":` + string(rawField(ask, "id")) + `,"result":{"action":"accept"}}`)
		r.f.logins.onAccount("account/login/completed", json.RawMessage(`{"loginId":"other","success":false,"error":"no"}`))
		r.f.logins.onAccount("account/login/completed", json.RawMessage(`{"loginId":"L","success":true}`))
		got, before := r.answerTo(id)
		if string(rawField(got, "result")) != "{}" || len(before) != 1 || stringField(before[0], "method") != "elicitation/complete" {
			t.Errorf("answered %s after %s", got, before)
		}
	})
	t.Run("failed, without elicitation", func(t *testing.T) {
		r, id, _ := begin(t, `{}`)
		r.f.logins.onAccount("account/login/completed", json.RawMessage(`{"loginId":"L","success":false,"error":"denied there"}`))
		got, _ := r.answerTo(id)
		failsWith(t, got, codeAuthRequired, "denied there")
	})
	for _, how := range []string{"declined", "cancelled"} {
		t.Run(how, func(t *testing.T) {
			r, id, ask := begin(t, url)
			if how == "declined" {
				r.send(`{"jsonrpc":"2.0","id":` + string(rawField(ask, "id")) + `,"result":{"action":"decline"}}`)
			} else {
				r.cancelRequest(id)
			}
			a := receive(t, r.accounts)
			if a.action != "cancelLogin" || stringField(a.params, "loginId") != "L" {
				t.Errorf("%s %s", a.action, a.params)
			}
			a.answer <- acpAnswered{}
			got, _ := r.answerTo(id)
			failsWith(t, got, map[string]int{"declined": codeAuthRequired, "cancelled": codeCancelled}[how])
		})
	}
}

// TestACPListPages: a cursor goes on where its page ended, though newer sessions
// come and one of them is prompted meanwhile.
func TestACPListPages(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newACPFrontRig(t, nil)
	add := func(n int, dir string, when time.Time) {
		id := fmt.Sprintf("sess_%03d", n)
		r.known[id] = clientSession{Session: id, Cwd: dir, Updated: when, Title: "t", Roots: []string{"/r"}}
	}
	for n := range 120 {
		add(n, "/a", at.Add(time.Duration(n/3)*time.Second)) // three of each moment
	}
	add(500, "/b", at)
	r.hello(`{}`)
	list := func(params string) (ids []string, next string) {
		got := rawField(r.call("session/list", params), "result")
		eachElement(rawField(got, "sessions"), func(s json.RawMessage) { ids = append(ids, stringField(s, "sessionId")) })
		return ids, stringField(got, "nextCursor")
	}
	var all []string
	cursor := ""
	for page := 0; ; page++ {
		params := `{"cwd":"/a/./x/.."}`
		if cursor != "" {
			params = `{"cwd":"/a","cursor":"` + cursor + `"}`
		}
		ids, next := list(params)
		all = append(all, ids...)
		if page == 0 {
			add(900, "/a", at.Add(time.Hour))
			if len(ids) != sessionsPage || ids[0] != "sess_117" {
				t.Errorf("first page has %d, from %s", len(ids), ids[0])
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	seen := map[string]bool{}
	for _, id := range all {
		if seen[id] {
			t.Errorf("%s is told twice", id)
		}
		seen[id] = true
	}
	if len(all) != 120 || seen["sess_500"] || seen["sess_900"] {
		t.Errorf("told %d sessions: %q", len(all), all)
	}
	if ids, _ := list(`{"cwd":"/b"}`); len(ids) != 1 {
		t.Errorf("of /b: %q", ids)
	}
	if got := string(rawField(r.call("session/list", `{"cwd":"/none"}`), "result")); got != `{"sessions":[]}` {
		t.Errorf("of nowhere: %s", got)
	}
}

func TestACPSessionNames(t *testing.T) {
	a, b := newSessionName(time.UnixMilli(1_700_000_000_000)), newSessionName(time.UnixMilli(1_700_000_000_001))
	if a >= b || len(a) != 41 || !strings.HasPrefix(a, "sess_018bcfe5-6800-7") || !strings.ContainsRune("89ab", rune(a[24])) {
		t.Errorf("%s, %s", a, b)
	}
}
