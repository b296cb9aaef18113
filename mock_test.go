package main

// mock_test.go drives the mock Codex over pipes: the same client input as in recordings of real 0.104.0 and 0.169.0
// (testdata/mock) must bring the same messages in the same order, with no other fields. Then it holds the mock to what
// it refuses, keeps on disk, writes into the user's configuration and gives to a server. What the directives of the
// tests' codex do is held by the recordings and by the scripts that use them.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mockRun is a client of one mock in this process.
type mockRun struct {
	t      *testing.T
	in     io.WriteCloser
	lines  chan json.RawMessage
	code   chan int
	stderr *peerLog
	nextID int
	doing  func() string // for the failure
}

// startMock runs a mock of the version; home "" makes a new one.
func startMock(t *testing.T, version, home string) *mockRun {
	t.Helper()
	if home == "" {
		home = t.TempDir()
	}
	t.Setenv("CODEX_HOME", home)
	t.Setenv("MOCK_CODEX_VERSION", version)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan struct{})
	r := &mockRun{t: t, in: inW, lines: make(chan json.RawMessage, 1<<16), code: make(chan int, 1),
		stderr: &peerLog{}}
	go func() {
		defer close(ended)
		r.code <- runCodex(context.Background(), []string{"-c", "check=false", "app-server"}, inR, outW, r.stderr)
		_ = outW.Close()
	}()
	go func() {
		defer close(r.lines)
		in := bufio.NewReader(outR)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			r.lines <- line
		}
	}()
	t.Cleanup(func() { // it must write into no folder that is being removed
		_ = inW.Close()
		<-ended
		_ = inR.Close()
	})
	return r
}

func (r *mockRun) send(v any) {
	r.t.Helper()
	if _, err := r.in.Write(append(toJSON(v), '\n')); err != nil {
		r.t.Fatalf("the mock reads no more: %v", err)
	}
}

// read returns the next message; a silent mock fails the test.
func (r *mockRun) read() json.RawMessage {
	r.t.Helper()
	select {
	case m, ok := <-r.lines:
		if !ok {
			r.t.Fatalf("the mock ended; stderr: %s", r.stderr)
		}
		return m
	case <-time.After(20 * time.Second):
		doing := ""
		if r.doing != nil {
			doing = r.doing()
		}
		r.t.Fatalf("nothing more came; stderr: %s\n%s", r.stderr, doing)
	}
	return nil
}

// until reads up to a message of the method.
func (r *mockRun) until(method string) {
	r.t.Helper()
	for stringField(r.read(), "method") != method {
	}
}

// call sends a request and returns its response, reading over the rest.
func (r *mockRun) call(method string, params any) json.RawMessage {
	r.t.Helper()
	r.nextID++
	r.send(map[string]any{"id": r.nextID, "method": method, "params": params})
	for {
		m := r.read()
		if rawField(m, "method") == nil && string(rawField(m, "id")) == fmt.Sprint(r.nextID) {
			return m
		}
	}
}

func (r *mockRun) initialize() {
	r.t.Helper()
	r.call("initialize", map[string]any{"clientInfo": map[string]any{"name": "test", "version": "1"},
		"capabilities": map[string]any{"experimentalApi": true}})
}

func (r *mockRun) thread(params map[string]any) string {
	r.t.Helper()
	res := r.call("thread/start", params)
	id := stringField(res, "result", "thread", "id")
	if id == "" {
		r.t.Fatalf("thread/start: %s", res)
	}
	return id
}

func mockPrompt(thread, text string) map[string]any {
	return map[string]any{"threadId": thread, "input": []any{map[string]any{"type": "text", "text": text}}}
}

// turn runs a prompt to its end and returns its answer and the completed turn.
func (r *mockRun) turn(thread, text string) (string, json.RawMessage) {
	r.t.Helper()
	r.call("turn/start", mockPrompt(thread, text))
	answer := ""
	for {
		m := r.read()
		if stringField(m, "method") == "item/completed" && stringField(m, "params", "item", "type") == "agentMessage" {
			answer = stringField(m, "params", "item", "text")
		}
		if stringField(m, "method") == "turn/completed" {
			return answer, rawField(m, "params", "turn")
		}
	}
}

// end closes stdin and returns the exit code.
func (r *mockRun) end() int {
	r.t.Helper()
	_ = r.in.Close()
	select {
	case c := <-r.code:
		return c
	case <-time.After(20 * time.Second):
		r.t.Fatal("the mock didn't end at EOF")
		return 0
	}
}

// kind is what of a message the order is compared by; "" leaves it out.
func recordingKind(m json.RawMessage, old bool) string {
	method := stringField(m, "method")
	if strings.HasPrefix(method, "codex/event/") && !strings.HasPrefix(method, "codex/event/mcp_startup_") {
		return "" // the driver has opted out of them
	}
	switch method {
	case "account/rateLimits/updated", "item/commandExecution/outputDelta", "item/fileChange/outputDelta",
		"configWarning":
		return "" // timing decides how many there are
	case "remoteControl/status/changed", "thread/readState/changed", "thread/settings/updated", "warning":
		return "" // what only a newer Codex or a model unknown to it brings is not played
	case "thread/tokenUsage/updated":
		if old {
			return "" // races with what the tool does
		}
	case "":
		if e := rawField(m, "error"); e != nil {
			return fmt.Sprintf("error %s %s", rawField(m, "id"), rawField(e, "code"))
		}
		return fmt.Sprintf("result %s", rawField(m, "id"))
	}
	kind := method
	if id := rawField(m, "id"); id != nil {
		kind += " #" + string(id)
	}
	for _, path := range [][]string{{"item", "type"}, {"item", "status"}, {"turn", "status"}, {"status", "type"},
		{"msg", "type"}} {
		if s := stringField(m, append([]string{"params"}, path...)...); s != "" {
			kind += " " + s
		}
	}
	if f := rawField(m, "params", "status", "activeFlags"); f != nil {
		kind += " " + string(f)
	}
	return kind
}

// recordingShape is the set of fields of a message, as deep as clients look.
func recordingShape(m json.RawMessage) (keys []string) {
	var walk func(prefix string, raw json.RawMessage, depth int)
	walk = func(prefix string, raw json.RawMessage, depth int) {
		_ = eachField(raw, func(key string, val json.RawMessage) bool {
			keys = append(keys, prefix+key)
			if depth > 0 && key != "tokenUsage" && key != "rateLimits" {
				walk(prefix+key+".", val, depth-1)
			}
			return true
		})
	}
	walk("", m, 3)
	return keys
}

// conversation gathers what came after one client message: notifications and
// the old events apart, since their interleaving is a race in 0.104.
type conversation struct {
	kinds, events []string
	shapes        map[string][]string
	delta         bool
}

func (c *conversation) add(m json.RawMessage, old bool) {
	kind := recordingKind(m, old)
	if kind == "" {
		return
	}
	if strings.HasPrefix(kind, "codex/event/") {
		c.events = append(c.events, kind)
		return
	}
	again := c.delta && strings.HasPrefix(kind, "item/agentMessage/delta")
	c.delta = strings.HasPrefix(kind, "item/agentMessage/delta")
	if again {
		return
	}
	c.shapes[kind] = recordingShape(m)
	c.kinds = append(c.kinds, kind)
	if at := slices.Index(c.kinds, "turn/started inProgress"); old && at == len(c.kinds)-1 {
		for ; at > 0 && !strings.HasPrefix(c.kinds[at-1], "result"); at-- { // comes when it likes
			c.kinds[at], c.kinds[at-1] = c.kinds[at-1], c.kinds[at]
		}
	}
}

func TestMockFollowsTheRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/mock/*.jsonl")
	if err != nil || len(files) < 13 {
		t.Fatalf("recordings: %v %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { replayRecording(t, file) })
	}
}

// recordedServer is the MCP server that was there when it was recorded.
const recordedServer = `#!/bin/sh
while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	case "$line" in
	*'"initialize"'*) r='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}' ;;
	*'"tools/list"'*) r='{"tools":[{"name":"whoami","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"bad","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}' ;;
	*'"whoami"'*) r='{"content":[{"type":"text","text":"me"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}],"structuredContent":{"a":1}}' ;;
	*'"bad"'*) r='{"content":[{"type":"text","text":"it broke"}],"isError":true}' ;;
	*) continue ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
`

func replayRecording(t *testing.T, file string) {
	version, what, _ := strings.Cut(filepath.Base(file), "-")
	if what == "approvals.jsonl" || what == "interrupt.jsonl" || what == "servers.jsonl" {
		needUnix(t, "its commands are a shell's")
	}
	old := version == "0.104.0"
	home, cwd := t.TempDir(), t.TempDir()
	config := "model = \"fake-model\"\nmodel_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n"
	wantNil(t, os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600))
	r := startMock(t, version, home)
	text, err := os.ReadFile(file)
	wantNil(t, err)
	type step struct {
		sent json.RawMessage
		want []json.RawMessage
	}
	var steps []step
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		if msg := rawField(line, "msg"); stringField(line, "dir") == ">" {
			steps = append(steps, step{sent: msg})
		} else {
			steps[len(steps)-1].want = append(steps[len(steps)-1].want, msg)
		}
	}
	wantNil(t, os.WriteFile(filepath.Join(cwd, "server"), []byte(recordedServer), 0o700))
	wantNil(t, os.WriteFile(filepath.Join(cwd, "pic.png"), []byte("a picture"), 0o600))
	ids := map[string]string{"$CWD": filepath.ToSlash(cwd)}
	learn := func(recorded, mine json.RawMessage) {
		for _, path := range [][]string{{"result", "thread", "id"}, {"result", "turn", "id"}, {"result", "loginId"}} {
			if a, b := stringField(recorded, path...), stringField(mine, path...); a != "" && b != "" {
				ids[a] = b
			}
		}
	}
	var begun []json.RawMessage // turn/started, as recorded
	for _, s := range steps {
		sent := string(s.sent)
		for from, to := range ids {
			sent = strings.ReplaceAll(sent, from, to)
		}
		r.send(json.RawMessage(sent))
		want := conversation{shapes: map[string][]string{}}
		got := conversation{shapes: map[string][]string{}}
		r.doing = func() string {
			return fmt.Sprintf("after %s\nreal: %s\nmock: %s\nreal events: %s\nmock events: %s", sent, want.kinds,
				got.kinds, want.events, got.events)
		}
		answers := map[string]json.RawMessage{}
		for _, m := range s.want {
			want.add(m, old)
			if stringField(m, "method") == "turn/started" {
				begun = append(begun, m)
			}
			if rawField(m, "result") != nil {
				answers[string(rawField(m, "id"))] = m
			}
		}
		for len(got.kinds) < len(want.kinds) || len(got.events) < len(want.events) {
			m := r.read()
			got.add(m, old)
			if stringField(m, "method") == "turn/started" && len(begun) > 0 {
				ids[stringField(begun[0], "params", "turn", "id")] = stringField(m, "params", "turn", "id")
				begun = begun[1:]
			}
			if rawField(m, "result") != nil {
				learn(answers[string(rawField(m, "id"))], m)
			}
		}
		if !slices.Equal(want.kinds, got.kinds) || !slices.Equal(want.events, got.events) {
			t.Fatalf("after %s\nreal: %s\nmock: %s\nreal events: %s\nmock events: %s", sent,
				strings.Join(want.kinds, "\n      "), strings.Join(got.kinds, "\n      "), want.events, got.events)
		}
		for kind, fields := range got.shapes { // it may leave out what nobody reads
			for _, field := range fields {
				if !slices.Contains(want.shapes[kind], field) {
					t.Errorf("after %s\nthe real %q has no field %s: %s", sent, kind, field, want.shapes[kind])
				}
			}
		}
	}
	if code := r.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for m := range r.lines {
		if kind := recordingKind(m, old); kind != "" {
			t.Errorf("came too much: %s", kind)
		}
	}
}

func TestMockRefusesAsTheRealOnes(t *testing.T) {
	const variant = "Invalid request: unknown variant `%s`, expected one of `%s`"
	unknown := func(word, first string) string { return fmt.Sprintf(variant, word, first) }
	for _, version := range []string{"0.104.0", "0.169.0"} {
		old := version == "0.104.0"
		of := func(word, other string) string { return map[bool]string{true: word, false: other}[old] }
		r := startMock(t, version, "")
		if e := r.call("model/list", map[string]any{}); stringField(e, "error", "message") != "Not initialized" {
			t.Errorf("%s: %s", version, e)
		}
		r.initialize()
		th := r.thread(map[string]any{"cwd": t.TempDir()})
		for _, c := range []struct{ method, params, want string }{ // want "": it succeeds
			{"initialize", `{"clientInfo":{"name":"x","version":"1"}}`, "Already initialized"},
			{"foo/bar", `{}`, unknown("foo/bar", "account/login/cancel")},
			{"turn/start", `{"threadId":"nope","input":[]}`, "invalid thread id: expected a UUID"},
			{"turn/start", `{"threadId":"01a1fd65-0000-7000-8000-000000000000","input":[]}`,
				"thread not found: 01a1fd65"},
			{"turn/start", `{"threadId":"$TH"}`, "Invalid request: missing field `input`"},
			{"turn/start", `{"threadId":"$TH","input":[],"sandboxPolicy":{"type":"zzz"}}`,
				unknown("zzz", "dangerFullAccess")},
			{"turn/start", `{"threadId":"$TH","input":[],"sandboxPolicy":"read-only"}`, "Invalid request: invalid " +
				"type: string"},
			{"turn/start", `{"threadId":"$TH","input":[],"effort":"ultra"}`, of(unknown("ultra", "none"), "")},
			{"thread/start", `{"sandbox":"workspaceWrite"}`, unknown("workspaceWrite", "read-only")},
			{"thread/start", `{"approvalPolicy":"on-failure"}`, of("", unknown("on-failure", "untrusted"))},
			{"thread/start", `{"config":{"profile":"nope"}}`,
				of("error deriving config: config profile", "failed to load configuration: legacy `profile")},
			{"thread/resume", `{"threadId":"01a1fd65-0000-7000-8000-000000000000"}`, "no rollout found for thread id"},
			{"thread/unsubscribe", `{"threadId":"$TH"}`, of(unknown("thread/unsubscribe", "account/login/cancel"), "")},
		} {
			e := r.call(c.method, json.RawMessage(strings.ReplaceAll(c.params, "$TH", th)))
			got := stringField(e, "error", "message")
			if !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") ||
				got != "" && string(rawField(e, "error", "code")) != "-32600" {
				t.Errorf("%s %s %s: %.200s", version, c.method, c.params, e)
			}
		}
		if code := r.end(); code != 0 {
			t.Errorf("%s: exit %d", version, code)
		}
	}
}

func TestMockKeepsThreads(t *testing.T) {
	for _, version := range []string{"0.104.0", "0.169.0"} {
		home, cwd := t.TempDir(), t.TempDir()
		a := startMock(t, version, home)
		a.initialize()
		th := a.thread(map[string]any{"cwd": cwd, "approvalPolicy": "never", "sandbox": "danger-full-access",
			"developerInstructions": "DEV"})
		unused := a.thread(map[string]any{"cwd": cwd})
		a.turn(th, "remember me")
		b := startMock(t, version, home)
		b.initialize()
		second := b.call("thread/resume", map[string]any{"threadId": th})
		if refused := stringField(second, "error", "message") == "thread "+th+
			" already has an active writer"; refused != (version == "0.169.0") {
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
		if got, _ := c.turn(th, "ECHO_INSTRUCTIONS"); !strings.Contains(got, "remember me") ||
			!strings.Contains(got, "DEV") {
			t.Errorf("%s forgot: %s", version, got)
		}
		if e := c.call("thread/resume", map[string]any{"threadId": unused}); stringField(e, "error",
			"message") != "no rollout found for thread id "+unused {
			t.Errorf("%s never used: %s", version, e)
		}
		c.end()
	}
}

// 0.169 trusts the repository of a thread that may write, unless the thread's own table
// says otherwise: a program that lets it would change the user's config.toml unseen.
func TestMockTrustsLikeTheRealOne(t *testing.T) {
	repo, home := t.TempDir(), t.TempDir()
	wantNil(t, os.Mkdir(filepath.Join(repo, ".git"), 0o755))
	path := filepath.Join(home, "config.toml")
	const mine = "model = \"m\"\n"
	wantNil(t, os.WriteFile(path, []byte(mine), 0o600))
	r := startMock(t, "0.169.0", home)
	r.initialize()
	p := mockPrompt(r.thread(map[string]any{"cwd": repo, "sandbox": "read-only"}), "SAY x")
	p["sandboxPolicy"] = map[string]any{"type": "dangerFullAccess"}
	r.call("turn/start", p)
	r.until("turn/completed")
	wide := map[string]any{"cwd": repo, "sandbox": "workspace-write"}
	wide["config"] = map[string]any{"projects": map[string]any{repo: map[string]any{"trust_level": "untrusted"}}}
	r.thread(wide)
	want(t, readText(t, path), mine)
	delete(wide, "config")
	r.thread(wide)
	want(t, readText(t, path), mine+fmt.Sprintf("\n[projects.%q]\ntrust_level = \"trusted\"\n", repo))
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
		{"app-server --frob", "", 2, "error: unrecognized subcommand 'app-server --frob'"},
		{"app-server", "CODEX_HOME=" + filepath.Join(t.TempDir(), "none"), 1, "CODEX_HOME points to"},
		{"app-server", "MOCK_CODEX_START=nonsense", 1, "MOCK_CODEX_START"},
	} {
		t.Run(c.args+c.env[:min(len(c.env), 16)], func(t *testing.T) {
			if k, v, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(k, v)
			}
			var out peerLog
			code := runCodex(t.Context(), strings.Fields(c.args), strings.NewReader(""), &out, &out)
			if code != c.code || !strings.Contains(out.String(), c.out) {
				t.Errorf("code %d, said %q", code, out.String())
			}
		})
	}
}

// A server gets the variables of its entry and hardly any of Codex's own, so a script that works with the tests' codex
// doesn't depend on what the real one would keep from its servers.
func TestMockServersEnvironment(t *testing.T) {
	needUnix(t, "its server is a shell")
	t.Setenv("SECRET", "ours")
	told := filepath.Join(t.TempDir(), "told")
	entry := map[string]any{"command": "/bin/sh", "args": []string{"-c",
		`echo "ATM_HOME=$ATM_HOME SECRET=$SECRET" > "$0"`, told},
		"env": map[string]string{"ATM_HOME": "/a"}}
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir(),
		"config": map[string]any{"mcp_servers": map[string]any{"atm": entry}}})
	if got, _ := r.turn(th, "CALLMCP atm atm_send {}"); got != "DONE: unsupported call: mcp__atm__atm_send" {
		t.Errorf("a server that ends at once: %q", got)
	}
	if got := readText(t, told); got != "ATM_HOME=/a SECRET=\n" {
		t.Errorf("the server was told %q", got)
	}
}
