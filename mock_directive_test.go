package main

// mock_directive_test.go holds the tests' codex to the meaning of its directives and
// its environment: what other tests build on must itself be sure. What real ones
// show stands in testdata/mock.

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMockAnswersAndContext(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir(), "developerInstructions": "DEV", "baseInstructions": "BASE", "sandbox": "read-only"})
	for prompt, want := range map[string]string{
		"hello":                                  "MOCK: hello",
		"<context>\nSAYING\n</context>\n\nSAY a": "a",
		"COMMENTARY working\nSAY done":           "done",
		"SHELL printf hi":                        "hi",
		"BIG 40000":                              strings.Repeat("0123456789abcde\n", 2500),
		"SLOW 4 slowly":                          "slowly",
		"RETRY 2\nSAY after":                     "after",
	} {
		got, turn := r.turn(th, prompt)
		if !strings.HasSuffix(got, want) || stringField(turn, "status") != "completed" {
			t.Errorf("%q: answer %.200q, turn %s", prompt, got, stringField(turn, "status"))
		}
	}
	r.call("turn/start", map[string]any{"threadId": th, "input": json.RawMessage(`[{"type":"text","text":"ECHO_INSTRUCTIONS"}]`), "effort": "high", "approvalPolicy": "never", "sandboxPolicy": map[string]any{"type": "workspaceWrite"}})
	m, _ := r.until("turn/completed")
	var items []json.RawMessage
	_ = json.Unmarshal(rawField(m, "params", "turn", "items"), &items) // checked by what follows
	echo := json.RawMessage(stringField(items[0], "text"))
	for _, c := range [][2]string{{string(rawField(echo, "developer")), `["DEV"]`}, {stringField(echo, "instructions"), "BASE"}, {stringField(echo, "settings", "effort"), "high"},
		{stringField(echo, "settings", "approval"), "never"}, {stringField(echo, "settings", "sandboxPolicy", "type"), "workspaceWrite"}} {
		if c[0] != c[1] {
			t.Errorf("echo has %s, want %s: %s", c[0], c[1], echo)
		}
	}
	if !strings.Contains(string(rawField(echo, "user")), "SHELL printf hi") {
		t.Errorf("echo has not all user texts: %s", echo)
	}
}

// ENDING is kept for the prompt that asks for a summary, which has no directives
// of its own.
func TestMockEnding(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir()})
	for _, c := range []struct{ prompt, want string }{
		{"Session ending. SAY x", "MOCK: Session ending. SAY x"},
		{"ENDING COMMENTARY well\nENDING SAY the end\nSAY now", "now"},
		{"Session ending.\nSAY mine", "the end"},
		{"SAY on", "on"},
	} {
		if got, _ := r.turn(th, c.prompt); got != c.want {
			t.Errorf("%q: %q, want %q", c.prompt, got, c.want)
		}
	}
}

func TestMockRefusesAsTheRealOnes(t *testing.T) {
	for _, version := range []string{"0.104.0", "0.169.0"} {
		r := startMock(t, version, "")
		if e := r.call("model/list", map[string]any{}); stringField(e, "error", "message") != "Not initialized" {
			t.Errorf("%s: %s", version, e)
		}
		r.initialize()
		th := r.thread(map[string]any{"cwd": t.TempDir()})
		with := func(k string, v any) map[string]any {
			p := mockPrompt(th, "x")
			p[k] = v
			return p
		}
		old := version == "0.104.0"
		for _, c := range []struct {
			method string
			params any
			want   string // "" when it must succeed
		}{
			{"initialize", map[string]any{"clientInfo": map[string]any{"name": "x", "version": "1"}}, "Already initialized"},
			{"foo/bar", map[string]any{}, "Invalid request: unknown variant `foo/bar`, expected one of `account/login/cancel`"},
			{"turn/start", map[string]any{"threadId": 5, "input": []any{}}, "Invalid request: invalid type: 5, expected a string"},
			{"turn/start", map[string]any{"threadId": "nope", "input": []any{}}, "invalid thread id: expected a UUID"},
			{"turn/start", map[string]any{"threadId": "01a1fd65-0000-7000-8000-000000000000", "input": []any{}}, "thread not found: 01a1fd65-0000-7000-8000-000000000000"},
			{"turn/start", map[string]any{"threadId": th}, "Invalid request: missing field `input`"},
			{"turn/start", with("sandboxPolicy", map[string]any{"type": "zzz"}), "Invalid request: unknown variant `zzz`, expected one of `dangerFullAccess`"},
			{"turn/start", with("sandboxPolicy", "read-only"), "Invalid request: invalid type: string \"read-only\""},
			{"thread/start", map[string]any{"sandbox": "workspaceWrite"}, "Invalid request: unknown variant `workspaceWrite`, expected one of `read-only`"},
			{"thread/start", map[string]any{"approvalPolicy": "on-failure"}, map[bool]string{false: "Invalid request: unknown variant `on-failure`, expected one of `untrusted`, `on-request`"}[old]},
			{"thread/start", map[string]any{"config": map[string]any{"mcp_servers": 5}}, "failed to load configuration: invalid type: integer `5`"},
			{"thread/start", map[string]any{"config": map[string]any{"profile": "nope"}}, map[bool]string{true: "error deriving config: config profile `nope` not found", false: "failed to load configuration: legacy `profile"}[old]},
			{"thread/resume", map[string]any{"threadId": "01a1fd65-0000-7000-8000-000000000000"}, "no rollout found for thread id"},
			{"thread/unsubscribe", map[string]any{"threadId": th}, map[bool]string{true: "Invalid request: unknown variant `thread/unsubscribe`"}[old]},
		} {
			e := r.call(c.method, c.params)
			if got := stringField(e, "error", "message"); !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("%s %s %s: %.200s", version, c.method, toJSON(c.params), e)
			} else if got != "" && string(rawField(e, "error", "code")) != "-32600" {
				t.Errorf("%s %s: code %s", version, c.method, rawField(e, "error", "code"))
			}
		}
		if e := r.call("turn/start", mockPrompt(th, strings.Repeat("x", 1<<20+1))); (stringField(e, "error", "data", "input_error_code") == "input_too_large") == old {
			t.Errorf("%s: 1 MiB and 1 byte: %.200s", version, e)
		}
		if code := r.end(); code != 0 {
			t.Errorf("%s: exit %d", version, code)
		}
	}
}

func TestMockQuestionsReachTheClient(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir(), "approvalPolicy": "on-request", "sandbox": "read-only",
		"dynamicTools": []any{map[string]any{"type": "function", "name": "atm_send", "description": "d", "inputSchema": map[string]any{"type": "object"}}}})
	for _, c := range []struct{ prompt, method, reply, want string }{
		{`PERMISSIONS {"network":{"enabled":true}}`, "item/permissions/requestApproval", `{"permissions":{},"scope":"turn"}`, `{"permissions":{},"scope":"turn"}`},
		{"ASK Which?", "item/tool/requestUserInput", `{"answers":{"q1":{"answers":["B"]}}}`, `"B"`},
		{"MCPASK Sure?", "mcpServer/elicitation/request", `{"action":"decline"}`, `{"action":"decline"}`},
		{`TOOL atm_send {"to":"bob"}`, "item/tool/call", `{"contentItems":[{"type":"inputText","text":"sent"}],"success":true}`, "sent"},
		{`TOOL atm_send {"to":"bob"}`, "item/tool/call", `{"nonsense":1}`, "dynamic tool response was invalid"},
		{"UNKNOWN 3", "", `{"weird":1}`, `answered with {"weird":1}`},
	} {
		r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(th, c.prompt)})
		answer := ""
		for answer == "" {
			m := r.read()
			if id := rawField(m, "id"); id != nil && rawField(m, "method") != nil {
				if c.method != "" && stringField(m, "method") != c.method {
					t.Fatalf("%s asks %s", c.prompt, m)
				}
				r.send(map[string]any{"id": id, "result": json.RawMessage(c.reply)})
			}
			if stringField(m, "method") == "item/completed" && stringField(m, "params", "item", "type") == "agentMessage" {
				answer = stringField(m, "params", "item", "text")
			}
		}
		if !strings.Contains(answer, c.want) {
			t.Errorf("%s: %q", c.prompt, answer)
		}
		r.until("turn/completed")
	}
	if got, _ := r.turn(th, "TOOL nobody {}"); got != "DONE: unsupported call: nobody" {
		t.Errorf("unknown tool: %q", got)
	}
}

func TestMockUnknownRepeats(t *testing.T) {
	run := func() string {
		r := startMock(t, "0.169.0", "")
		r.initialize()
		th := r.thread(map[string]any{"cwd": t.TempDir()})
		r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(th, "UNKNOWN 7")})
		var methods []string
		for {
			m := r.read()
			methods = append(methods, stringField(m, "method"))
			if strings.HasSuffix(stringField(m, "method"), "/requestApproval") {
				r.end()
				return strings.Join(methods[slices.Index(methods, "turn/started"):], " ")
			}
		}
	}
	if a, b := run(), run(); a != b {
		t.Errorf("one seed, two runs:\n%s\n%s", a, b)
	}
}

// A subagent's thread shows events before any item names it, asks approvals
// and outlives its parent's turn.
func TestMockSubagent(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	cwd := t.TempDir()
	th := r.thread(map[string]any{"cwd": cwd, "approvalPolicy": "on-request", "sandbox": "read-only", "model": "other-model"})
	gate := filepath.Join(cwd, "gate")
	r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(th, "SUBAGENT GATE "+gate+" ;; SHELLESC touch sub ;; SAY child\nSAY parent")})
	child, named := "", false
	for {
		m := r.read()
		id := stringField(m, "params", "threadId")
		if id != "" && id != th && child == "" {
			child = id
			if named {
				t.Error("the item named the child before its first event")
			}
		}
		if stringField(m, "params", "item", "type") == "collabAgentToolCall" && strings.Contains(string(rawField(m, "params", "item", "receiverThreadIds")), "-") {
			named = true
		}
		if stringField(m, "method") == "turn/completed" && id == th {
			break
		}
	}
	if !named || child == "" {
		t.Fatalf("child %q, named %v", child, named)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, _ := r.until("item/commandExecution/requestApproval")
	if stringField(m, "params", "threadId") != child {
		t.Fatalf("asked by %s", m)
	}
	r.send(map[string]any{"id": rawField(m, "id"), "result": map[string]any{"decision": "accept"}})
	m, _ = r.until("turn/completed")
	if stringField(m, "params", "threadId") != child {
		t.Fatalf("completed %s", m)
	}
	if _, err := os.Stat(filepath.Join(cwd, "sub")); err != nil {
		t.Error(err)
	}
}

// IGNORE_INTERRUPT, DROP, OFFLINE and a busy thread, by version.
func TestMockInterruptsAndBusy(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir()})
	begin := func(prompt string) string {
		return stringField(r.call("turn/start", mockPrompt(th, prompt)), "result", "turn", "id")
	}
	id := begin("OFFLINE")
	r.until("error")
	r.until("error")
	if e := r.call("turn/interrupt", map[string]any{"threadId": th, "turnId": "other"}); !strings.Contains(stringField(e, "error", "message"), "expected active turn id other but found "+id) {
		t.Errorf("wrong id: %s", e)
	}
	r.call("turn/interrupt", map[string]any{"threadId": th, "turnId": id})
	r.until("turn/completed")
	if e := r.call("turn/interrupt", map[string]any{"threadId": th, "turnId": id}); stringField(e, "error", "message") != "no active turn to interrupt" {
		t.Errorf("idle: %s", e)
	}
	gate := filepath.Join(t.TempDir(), "gate")
	id = begin("IGNORE_INTERRUPT\nGATE " + gate + "\nSAY finished anyway")
	r.until("item/completed")
	r.call("turn/interrupt", map[string]any{"threadId": th, "turnId": id})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if m, _ := r.until("turn/completed"); stringField(m, "params", "turn", "status") != "completed" {
		t.Errorf("IGNORE_INTERRUPT: %s", m)
	}
	r.turn(th, "DROP model/list")
	r.send(map[string]any{"id": "lost", "method": "model/list", "params": map[string]any{}})
	if m := r.call("model/list", map[string]any{}); rawField(m, "result") == nil {
		t.Errorf("after DROP: %s", m)
	}
	id = begin("HANG")
	r.until("item/completed")
	if busy := begin("SAY steered"); busy != id {
		t.Errorf("a busy thread answers %s, want %s", busy, id)
	}
	if m, _ := r.until("turn/completed"); !strings.Contains(string(rawField(m, "params", "turn", "items")), "steered") {
		t.Errorf("steered: %s", m)
	}
	r.end()

	r = startMock(t, "0.104.0", "")
	r.initialize()
	th = r.thread(map[string]any{"cwd": t.TempDir()})
	r.send(map[string]any{"id": "idle", "method": "turn/interrupt", "params": map[string]any{"threadId": th, "turnId": ""}})
	if m := r.call("model/list", map[string]any{}); rawField(m, "result") == nil { // came back first: the interrupt hangs
		t.Error("0.104 answers an idle interrupt")
	}
	gate = filepath.Join(t.TempDir(), "gate")
	id = begin("GATE " + gate + "\nSAY first")
	r.until("item/completed")
	if ghost := begin("SAY second"); ghost == id {
		t.Error("0.104 gives a busy thread's turn/start a new id")
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if m, _ := r.until("turn/completed"); stringField(m, "params", "turn", "id") != id {
		t.Errorf("the ghost turn completed: %s", m)
	}
}

func TestMockKeepsThreads(t *testing.T) {
	for _, version := range []string{"0.104.0", "0.169.0"} {
		home, cwd := t.TempDir(), t.TempDir()
		a := startMock(t, version, home)
		a.initialize()
		th := a.thread(map[string]any{"cwd": cwd, "approvalPolicy": "never", "sandbox": "danger-full-access", "developerInstructions": "DEV"})
		unused := a.thread(map[string]any{"cwd": cwd})
		a.turn(th, "remember me")
		b := startMock(t, version, home)
		b.initialize()
		second := b.call("thread/resume", map[string]any{"threadId": th})
		if refused := stringField(second, "error", "message") == "thread "+th+" already has an active writer"; refused != (version == "0.169.0") {
			t.Errorf("%s second writer: %.300s", version, second)
		}
		a.call("turn/start", mockPrompt(th, "HANG"))
		a.end()
		b.end()
		c := startMock(t, version, home)
		c.initialize()
		res := c.call("thread/resume", map[string]any{"threadId": th})
		policy := map[bool]string{true: "on-request", false: "never"}[version == "0.104.0"]
		if got := stringField(res, "result", "approvalPolicy"); got != policy {
			t.Errorf("%s resumes with %q: %.300s", version, got, res)
		}
		var turns []json.RawMessage
		_ = json.Unmarshal(rawField(res, "result", "thread", "turns"), &turns) // checked by its length
		cut := map[bool]string{true: "completed", false: "interrupted"}[version == "0.104.0"]
		if len(turns) != 2 || stringField(turns[1], "status") != cut {
			t.Errorf("%s turns: %.600s", version, rawField(res, "result", "thread", "turns"))
		}
		if got, _ := c.turn(th, "ECHO_INSTRUCTIONS"); !strings.Contains(got, "remember me") || !strings.Contains(got, "DEV") {
			t.Errorf("%s forgot: %s", version, got)
		}
		if e := c.call("thread/resume", map[string]any{"threadId": unused}); stringField(e, "error", "message") != "no rollout found for thread id "+unused {
			t.Errorf("%s never used: %s", version, e)
		}
		c.end()
	}
}

func TestMockTrustsLikeTheRealOne(t *testing.T) {
	repo := t.TempDir()
	if err := os.Mkdir(filepath.Join(repo, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	config := func() string {
		b, err := os.ReadFile(filepath.Join(home, "config.toml"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const mine = "model = \"m\"\n[sandbox_workspace_write]\nwritable_roots = [\"/x\"]\n"
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startMock(t, "0.169.0", home)
	r.initialize()
	th := r.thread(map[string]any{"cwd": repo, "sandbox": "read-only"})
	p := mockPrompt(th, "SAY x")
	p["sandboxPolicy"] = map[string]any{"type": "dangerFullAccess"}
	r.call("turn/start", p)
	r.until("turn/completed")
	r.thread(map[string]any{"cwd": repo, "sandbox": "workspace-write", "config": map[string]any{"projects": map[string]any{repo: map[string]any{"trust_level": "untrusted"}}}})
	if config() != mine {
		t.Errorf("config.toml was written: %s", config())
	}
	r.thread(map[string]any{"cwd": repo, "sandbox": "workspace-write"})
	if !strings.HasSuffix(config(), fmt.Sprintf("[projects.%q]\ntrust_level = \"trusted\"\n", repo)) {
		t.Errorf("no trust written: %s", config())
	}
	read := r.call("config/read", map[string]any{})
	if stringField(read, "result", "config", "model") != "m" || string(rawField(read, "result", "config", "approval_policy")) != "null" ||
		string(rawField(read, "result", "config", "sandbox_workspace_write", "writable_roots")) != `["/x"]` {
		t.Errorf("config/read: %s", read)
	}
}

func TestMockLateAndBackground(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir(), "approvalPolicy": "never", "sandbox": "danger-full-access"})
	r.turn(th, "SAY now\nLATE too late")
	if m, _ := r.until("item/completed"); stringField(m, "params", "item", "text") != "too late" {
		t.Errorf("LATE: %s", m)
	}
	r.turn(th, "BACKGROUND sleep 100\nSAY bg")
	r.send(map[string]any{"id": "c", "method": "thread/backgroundTerminals/clean", "params": map[string]any{"threadId": th}})
	if m, _ := r.until("item/completed"); stringField(m, "params", "item", "status") != "failed" || stringField(m, "params", "item", "type") != "commandExecution" {
		t.Errorf("clean: %s", m)
	}
	if _, turn := r.turn(th, "NOTLOGGEDIN"); stringField(turn, "status") != "failed" || !strings.Contains(stringField(turn, "error", "message"), "401 Unauthorized") {
		t.Errorf("NOTLOGGEDIN: %s", turn)
	}
}

func TestMockFloodIsWholeAndFast(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir()})
	r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(th, "FLOOD 50000 40")})
	next := 0
	for {
		m := r.read()
		if stringField(m, "method") == "item/agentMessage/delta" {
			if d := stringField(m, "params", "delta"); len(d) != 40 || d[:8] != fmt.Sprintf("%08d", next) {
				t.Fatalf("delta %d is %q", next, d)
			}
			next++
		}
		if stringField(m, "method") == "turn/completed" {
			break
		}
	}
	if next != 50000 {
		t.Errorf("%d deltas", next)
	}
}

// What is measured by STAMP is only as true as its clock.
func TestMockStampsItsDeltas(t *testing.T) {
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir()})
	begun := time.Now().UnixNano()
	last, stamps := begun, int64(0)
	r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(th, "STAMP 5 1")})
	said := ""
	for m := r.read(); stringField(m, "method") != "item/completed" || said == ""; m = r.read() {
		if stringField(m, "method") != "item/agentMessage/delta" {
			continue
		}
		d := stringField(m, "params", "delta")
		var at int64
		if n, err := fmt.Sscanf(d, "@%d ", &at); n != 1 || err != nil || at < last || at-begun < stamps*1e6/2 || at > time.Now().UnixNano() {
			t.Fatalf("delta %q, %d ns behind the one before it, %d behind the prompt: %v", d, at-last, at-begun, err)
		}
		stamps++ // one that is late shortens the pause to the next, so the pauses count together
		last, said = at, said+d
	}
	if got := strings.Count(said, "@"); got != 5 {
		t.Errorf("%d stamps: %q", got, said)
	}
}

func TestMockCommandLine(t *testing.T) {
	t.Setenv("CODEX_HOME", t.TempDir())
	for _, c := range []struct {
		args, env string
		code      int
		out       string
	}{
		{"--version", "", 0, "codex-cli 0.169.0-mock\n"},
		{"-c a=b help app-server", "", 0, "Usage: codex app-server"},
		{"mcp-server", "", 2, "error: unrecognized subcommand 'mcp-server'"},
		{"app-server --frob", "", 2, "error: unexpected argument '--frob' found"},
		{"app-server", "MOCK_CODEX_START=exit:3:no luck", 3, "no luck\n"},
		{"app-server", "CODEX_HOME=/nonexistent/home", 1, `CODEX_HOME points to "/nonexistent/home", but that path does not exist`},
		{"app-server", "MOCK_CODEX_START=hang", 0, ""},
		{"app-server", "MOCK_CODEX_START=garbage", 0, "not JSON"},
		{"app-server", "MOCK_CODEX_START=nonsense", 1, "MOCK_CODEX_START"},
	} {
		t.Run(c.args+c.env, func(t *testing.T) {
			if k, v, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(k, v)
			}
			var out lockedBuffer
			code := runCodex(t.Context(), strings.Fields(c.args), strings.NewReader(""), &out, &out)
			if code != c.code || !strings.Contains(out.String(), c.out) {
				t.Errorf("code %d, said %q", code, out.String())
			}
		})
	}
}

// The ways a child can end, seen from its parent.
func TestMockProcessEnds(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("signals")
	}
	const hello = `{"id":1,"method":"initialize","params":{"clientInfo":{"name":"t","version":"1"}}}` + "\n" + `{"id":2,"method":"thread/start","params":{}}` + "\n"
	for _, c := range []struct {
		name, version, prompt string
		signal                syscall.Signal
		want, says            string
	}{
		{"die", "0.169.0", "DIE 7 boom", 0, "exit status 7", "boom"},
		{"killself", "0.169.0", "KILLSELF KILL", 0, "signal: killed", ""},
		{"eof mid-turn", "0.169.0", "SHELL sleep 100", 0, "", ""},
		{"term 0.169", "0.169.0", "SHELL sleep 100", syscall.SIGTERM, "", ""},
		{"term 0.104", "0.104.0", "HANG", syscall.SIGTERM, "signal: terminated", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			cmd := mockProcess(t, "app-server", "MOCK_CODEX_VERSION="+c.version, "MOCK_CODEX_LOG="+log)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr lockedBuffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(in, hello) // a dead child shows below
			fr := newFrameReader(out, maxRecord, framingNewline)
			begun := map[string]bool{}
			for {
				m, err := fr.read()
				if err != nil {
					break
				}
				if id := stringField(m, "result", "thread", "id"); id != "" {
					_, _ = in.Write(append(toJSON(map[string]any{"id": 3, "method": "turn/start", "params": mockPrompt(id, c.prompt)}), '\n'))
				}
				kind := stringField(m, "method") + stringField(m, "params", "item", "type")
				ready := kind == "item/startedcommandExecution" || kind == "item/completedagentMessage" || c.prompt == "HANG" && kind == "item/completeduserMessage"
				if ready && !begun["end"] {
					begun["end"] = true
					if c.signal != 0 {
						_ = cmd.Process.Signal(c.signal)
					}
					if c.signal == 0 {
						_ = in.Close()
					}
				}
			}
			got := ""
			started := time.Now()
			if err := cmd.Wait(); err != nil {
				got = err.Error()
			}
			if got != c.want || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("ended %q after %v, stderr %q", got, time.Since(started), stderr.String())
			}
			if b, err := os.ReadFile(log); err != nil || strings.Count(string(b), "\n") != 3 {
				t.Errorf("log %q %v", b, err)
			}
		})
	}
}

// BenchmarkMockFlood is the ceiling of every burst benchmark.
func BenchmarkMockFlood(b *testing.B) {
	n := 0
	for b.Loop() {
		home := b.TempDir()
		b.Setenv("CODEX_HOME", home)
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		go func() { _ = runCodex(b.Context(), []string{"app-server"}, inR, outW, io.Discard); _ = outW.Close() }()
		go func() {
			_, _ = io.WriteString(inW, `{"id":1,"method":"initialize","params":{"clientInfo":{"name":"t","version":"1"}}}`+"\n"+`{"id":2,"method":"thread/start","params":{}}`+"\n")
		}()
		fr := newFrameReader(outR, maxRecord, framingNewline)
		for {
			m, err := fr.read()
			if err != nil {
				b.Fatal(err)
			}
			if strings.HasPrefix(string(m), `{"method":"item/agentMessage/delta"`) {
				n++
				continue
			}
			if id := stringField(m, "result", "thread", "id"); id != "" {
				_, _ = inW.Write(append(toJSON(map[string]any{"id": 3, "method": "turn/start", "params": mockPrompt(id, "FLOOD 200000")}), '\n'))
			}
			if stringField(m, "method") == "turn/completed" {
				break
			}
		}
		_ = inW.Close()
		_, _ = io.Copy(io.Discard, outR)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// items runs a turn and returns its completed items, by type, and all methods.
func (r *mockRun) items(thread, prompt string) (map[string]json.RawMessage, string) {
	r.t.Helper()
	r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(thread, prompt)})
	items, methods := map[string]json.RawMessage{}, ""
	for {
		m := r.read()
		method := stringField(m, "method")
		methods += method + "\n"
		switch method {
		case "item/completed":
			it := rawField(m, "params", "item")
			items[stringField(it, "type")] = it
		case "turn/completed":
			return items, methods
		}
	}
}

func TestMockShows(t *testing.T) {
	for _, version := range []string{"0.104.0", "0.169.0"} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"pic.png": "x", "edit.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "del.txt": "gone\n", "move.txt": "moved\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := startMock(t, version, "")
			r.initialize()
			th := r.thread(map[string]any{"cwd": dir, "sandbox": "workspace-write"})
			for _, tc := range []struct{ prompt, kind, path, want string }{
				{"VIEW pic.png", "imageView", "path", filepath.Join(dir, "pic.png")},
				{"WEBSEARCH how to", "webSearch", "query", "how to"},
				{"OUTPUT 40 16", "commandExecution", "aggregatedOutput", "000000000000000\n000000000000001\n00000000"},
				{"OUTPUT 5 5 7", "commandExecution", "status", "failed"},
			} {
				items, _ := r.items(th, tc.prompt)
				if got := stringField(items[tc.kind], tc.path); got != tc.want {
					t.Errorf("%s: %q in %s", tc.prompt, got, items[tc.kind])
				}
			}
			if _, methods := r.items(th, "OUTPUT 40 16"); strings.Count(methods, "item/commandExecution/outputDelta") != 3 {
				t.Errorf("40 bytes in deltas of 16:\n%s", methods)
			}
			r.send(map[string]any{"id": "p", "method": "turn/start", "params": mockPrompt(th, "PLAN [x] one ;; [>] two ;; [ ] three")})
			plan, _ := r.until("turn/plan/updated")
			sameJSON(t, rawField(plan, "params", "plan"), `[{"step":"one","status":"completed"},{"step":"two","status":"inProgress"},{"step":"three","status":"pending"}]`)
			r.until("turn/completed")

			for _, tc := range []struct{ prompt, kind, diff string }{
				{"EDIT edit.txt 5 => five", "update", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"},
				{"DELETE del.txt", "delete", "gone\n"},
				{"MOVE move.txt there.txt", "update", "\n\nMoved to: " + filepath.Join(dir, "there.txt")},
			} {
				items, _ := r.items(th, tc.prompt)
				var change struct {
					Changes []struct {
						Kind struct{ Type string }
						Diff string
					}
					Status string
				}
				if err := json.Unmarshal(items["fileChange"], &change); err != nil || len(change.Changes) != 1 || change.Status != "completed" ||
					change.Changes[0].Kind.Type != tc.kind || change.Changes[0].Diff != tc.diff {
					t.Errorf("%s: %s, %v", tc.prompt, items["fileChange"], err)
				}
			}
			for name, want := range map[string]string{"edit.txt": "1\n2\n3\n4\nfive\n6\n7\n8\n9\n", "there.txt": "moved\n", "del.txt": "", "move.txt": ""} {
				if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
					t.Errorf("%s: %q", name, got)
				}
			}
			if answer, _ := r.turn(th, "EDIT edit.txt nowhere => x"); !strings.Contains(answer, "Failed to find expected lines") {
				t.Errorf("an edit of nothing: %q", answer)
			}

			r.send(map[string]any{"id": "i", "method": "turn/start", "params": map[string]any{"threadId": th, "input": []any{
				map[string]any{"type": "text", "text": "ECHO_INPUT"}, map[string]any{"type": "image", "url": "data:image/png;base64,AAAA"}, map[string]any{"type": "localImage", "path": "/x.png"}}}})
			var said string
			for said == "" {
				if m := r.read(); stringField(m, "method") == "item/completed" && stringField(m, "params", "item", "type") == "agentMessage" {
					said = stringField(m, "params", "item", "text")
				}
			}
			sameJSON(t, json.RawMessage(said), `[{"type":"text","text":"ECHO_INPUT"},{"type":"image","mime":"image/png","base64":4},{"type":"localImage","path":"/x.png"}]`)
			r.until("turn/completed")
		})
	}
}

func TestMockWantsLogin(t *testing.T) {
	t.Setenv("MOCK_CODEX_AUTH", "1")
	t.Setenv("MOCK_CODEX_LOGIN", "ok")
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir()})
	_, turn := r.turn(th, "SAY hi")
	if stringField(turn, "status") != "failed" || !strings.Contains(stringField(turn, "error", "message"), "401 Unauthorized") {
		t.Errorf("not logged in: %s", turn)
	}
	sameJSON(t, rawField(r.call("account/read", map[string]any{}), "result"), `{"account":null,"requiresOpenaiAuth":true,"userId":null,"workspaceRouting":null}`)
	r.send(map[string]any{"id": "l", "method": "account/login/start", "params": map[string]any{"type": "chatgptDeviceCode"}})
	done, _ := r.until("account/login/completed")
	if string(rawField(done, "params", "success")) != "true" || stringField(done, "params", "loginId") == "" {
		t.Errorf("%s", done)
	}
	r.until("account/updated")
	if got, _ := r.turn(th, "SAY hi"); got != "hi" {
		t.Errorf("logged in: %q", got)
	}
	r.call("account/logout", nil)
	if _, turn := r.turn(th, "SAY hi"); stringField(turn, "status") != "failed" {
		t.Errorf("logged out: %s", turn)
	}
}

func TestMockModels(t *testing.T) {
	t.Setenv("MOCK_CODEX_PAGE", "3")
	t.Setenv("MOCK_CODEX_TEXT_ONLY", "gpt-5.5")
	r := startMock(t, "0.169.0", "")
	r.initialize()
	page := rawField(r.call("model/list", map[string]any{}), "result")
	if stringField(page, "nextCursor") != "3" || strings.Count(string(page), `"inputModalities":["text","image"]`) != 3 {
		t.Errorf("%s", page)
	}
	page = rawField(r.call("model/list", map[string]any{"cursor": "3"}), "result")
	if !isNull(rawField(page, "nextCursor")) || !strings.Contains(string(page), `"inputModalities":["text"]`) {
		t.Errorf("%s", page)
	}
}

// How a thread's servers start, MOCK_MCP_START in their env says.
func TestMockServersStart(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := func(how string) map[string]any {
		return map[string]any{"command": exe, "env": map[string]any{"MOCK_MCP_START": how}}
	}
	r := startMock(t, "0.169.0", "")
	r.initialize()
	r.send(map[string]any{"id": "s", "method": "thread/start", "params": map[string]any{"cwd": t.TempDir(), "config": map[string]any{"mcp_servers": map[string]any{
		"a": server(""), "b": server("fail:why not"), "c": server("cancel"), "d": map[string]any{"command": "/nonexistent/x"},
		"e": map[string]any{"url": "http://127.0.0.1:1/mcp"}, "f": map[string]any{"command": exe, "enabled": false}, "g": server("slow:5")}}}})
	got := map[string]string{}
	for len(got) < 6 {
		m, _ := r.until(mockStatusMethod)
		if s := stringField(m, "params", "status"); s != "starting" {
			got[stringField(m, "params", "name")] = strings.TrimSpace(s + " " + stringField(m, "params", "error"))
		}
	}
	for name, want := range map[string]string{"a": "ready", "b": "failed MCP client for `b` failed to start: MCP startup failed: why not", "c": "cancelled",
		"d": "failed MCP client for `d` failed to start: MCP startup failed: No such file or directory (os error 2)", "g": "ready"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if !strings.HasPrefix(got["e"], "failed") {
		t.Errorf("e: %q", got["e"])
	}
}

// What a busy thread is asked to compact or review interrupts what runs there.
func TestMockActionsInterrupt(t *testing.T) {
	for _, method := range []string{"thread/compact/start", "review/start"} {
		r := startMock(t, "0.169.0", "")
		r.initialize()
		th := r.thread(map[string]any{"cwd": t.TempDir(), "config": map[string]any{"compact_prompt": "HANG"}})
		r.send(map[string]any{"id": "t", "method": "turn/start", "params": mockPrompt(th, "HANG")})
		r.until("turn/started")
		r.send(map[string]any{"id": "a", "method": method, "params": map[string]any{"threadId": th, "target": map[string]any{"type": "custom", "instructions": "HANG"}}})
		ended, _ := r.until("turn/completed")
		if s := stringField(ended, "params", "turn", "status"); s != "interrupted" {
			t.Errorf("%s: %s", method, s)
		}
		r.until("turn/started")
		r.send(map[string]any{"id": "i", "method": "turn/interrupt", "params": map[string]any{"threadId": th, "turnId": ""}})
		if ended, _ := r.until("turn/completed"); stringField(ended, "params", "turn", "status") != "interrupted" {
			t.Errorf("%s: %s", method, ended)
		}
		r.end()
	}
}
