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
	"strings"
	"syscall"
	"testing"
	"time"
)

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
