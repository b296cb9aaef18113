package main

// proxy_real_test.go owns what tests with a real Codex stand on: which binaries, a
// home and a repository for each test, the program over a binary. It also
// holds the scripted model API against every binary directly, without this
// program in between, so that a failure of the suite (proxy_real_serve_test.go) is a
// failure of this program. Gated by CODEX_BINS; nothing here needs a network.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// realCodex is one real Codex.
type realCodex struct {
	path    string
	version string // 0.104.0
}

// atLeast compares the minor version.
func (b realCodex) atLeast(minor int) bool {
	var major, have int
	_, err := fmt.Sscanf(b.version, "%d.%d", &major, &have)
	return err == nil && (major > 0 || have >= minor)
}

// codexBinaries asks each binary of CODEX_BINS for its version.
func codexBinaries(t testing.TB) []realCodex {
	t.Helper()
	list := filepath.SplitList(os.Getenv("CODEX_BINS"))
	if len(list) == 0 {
		t.Skip("needs real Codex binaries: set CODEX_BINS to a list of their paths, as CONTRIBUTING.md says")
	}
	if testing.Short() {
		t.Skip("real Codex binaries are not for -short")
	}
	number := regexp.MustCompile(`\d+\.\d+\.\d+\S*`)
	var bins []realCodex
	for _, path := range list {
		cmd := exec.Command(path, "--version")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		out, err := cmd.Output()
		version := number.FindString(string(out))
		if err != nil || version == "" {
			t.Fatalf("CODEX_BINS: %s --version: %v, %q", path, err, out)
		}
		bins = append(bins, realCodex{path: path, version: version})
	}
	return bins
}

// codexLab is where one test of one binary happens.
type codexLab struct {
	t      *testing.T
	bin    realCodex
	prog   string // this program, built
	api    *modelAPI
	codex  string // CODEX_HOME
	home   string
	repo   string // a git repository on the branch main
	config []byte // $CODEX_HOME/config.toml as it was

	backend string   // of the configuration, "app-server" unless a test says otherwise
	more    []string // of the environment
}

func newCodexLab(t *testing.T, bin realCodex, prog string) *codexLab {
	t.Helper()
	l := &codexLab{t: t, bin: bin, prog: prog, api: startModelAPI(t), backend: "app-server"}
	l.codex = codexHome(t, l.api.port())
	l.home = filepath.Join(l.codex, "home") // not under the temporary directory either
	l.repo = filepath.Join(l.home, "work", "lab-repo")
	if err := os.MkdirAll(l.repo, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeGitRepo(l.repo, "main"); err != nil {
		t.Fatal(err)
	}
	var err error
	if l.config, err = os.ReadFile(l.configPath()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *codexLab) configPath() string { return filepath.Join(l.codex, "config.toml") }

// env is the whole environment of what the lab starts.
func (l *codexLab) env() []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "TERM=dumb", "LANG=C.UTF-8", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"),
		"HOME=" + l.home, "CODEX_HOME=" + l.codex, "ATM_HOME=" + filepath.Join(l.home, "atm"),
	}, l.more...)
}

// serve starts the program over the binary, with the handshake done.
func (l *codexLab) serve(capabilities map[string]any, flags ...string) *testClient {
	l.t.Helper()
	c := startClient(l.t, peerConfig{
		name: "atm-agent-mcp", path: l.prog, args: append([]string{"serve", "--codex-bin", l.bin.path, "--backend", l.backend}, flags...),
		env: l.env(), dir: l.repo,
	})
	c.initialize("2025-06-18", capabilities)
	return c
}

// configUnchanged: Codex must not have written trust, or anything else, into the
// user's own configuration behind their back.
func (l *codexLab) configUnchanged() {
	l.t.Helper()
	now, err := os.ReadFile(l.configPath())
	if err != nil {
		l.t.Fatal(err)
	}
	if !bytes.Equal(now, l.config) {
		l.t.Errorf("config.toml was changed; before:\n%s\nnow:\n%s", l.config, now)
	}
}

// finish ends a client and holds what is left against the invariants.
func (l *codexLab) finish(c *testClient) {
	l.t.Helper()
	c.finish()
	l.configUnchanged()
}

// codexThread talks to a codex app-server directly.
type codexThread struct {
	*testClient
	id string
}

// direct starts an app-server of the binary and a thread.
func (l *codexLab) direct(params map[string]any) *codexThread {
	l.t.Helper()
	c := &codexThread{testClient: startClient(l.t, peerConfig{
		name: "codex app-server", path: l.bin.path, args: []string{"app-server"}, env: l.env(), dir: l.repo,
	})}
	c.start("initialize", map[string]any{"clientInfo": map[string]any{"name": "suite", "title": nil, "version": "1"},
		"capabilities": map[string]any{"experimentalApi": true}}).result(nil)
	c.notify("initialized", map[string]any{})
	var res struct{ Thread struct{ ID string } }
	c.start("thread/start", params).result(&res)
	c.id = res.Thread.ID
	return c
}

// directTurn is how a turn ended.
type directTurn struct {
	status, failure, text string
	items                 []string // types of the completed items
	plain                 string   // all completed items
}

func (c *codexThread) turn(prompt string) directTurn {
	c.tb.Helper()
	c.mu.Lock()
	from := len(c.notes)
	c.mu.Unlock()
	var started struct{ Turn struct{ ID string } }
	c.start("turn/start", map[string]any{"threadId": c.id, "input": []any{map[string]any{"type": "text", "text": prompt}}}).result(&started)
	var done directTurn
	c.awaitNote("the end of "+prompt, func(m wireMessage) bool {
		var p struct {
			TurnID string
			Item   struct{ Type, Text string }
			Turn   struct {
				ID, Status string
				Error      *struct{ Message string }
			}
		}
		if from--; from >= 0 || json.Unmarshal(m.Params, &p) != nil {
			return false
		}
		switch m.Method {
		case "item/completed":
			done.items = append(done.items, p.Item.Type)
			done.plain += string(m.Params) + "\n"
			if p.Item.Type == "agentMessage" {
				done.text = p.Item.Text
			}
		case "turn/completed":
			done.status = p.Turn.Status
			if p.Turn.Error != nil {
				done.failure = p.Turn.Error.Message
			}
			return p.Turn.ID == started.Turn.ID
		}
		return false
	})
	return done
}

// TestModelAPIWithCodex holds the model's directives against real binaries.
func TestModelAPIWithCodex(t *testing.T) {
	for _, bin := range codexBinaries(t) {
		t.Run(bin.version, func(t *testing.T) {
			l := newCodexLab(t, bin, "")
			c := l.direct(map[string]any{"cwd": l.repo, "approvalPolicy": "never", "sandbox": "danger-full-access",
				"developerInstructions": "RULE-OF-THE-TEST"})
			for _, tt := range []struct{ prompt, status, want string }{
				{"SAY hello ünïcode world", "completed", "hello ünïcode world"},
				{"hello there", "completed", "FAKE: hello there"},
				{"REASON thinking\nSAY thought", "completed", "thought"},
				{"SLOW 0.2 slowly now", "completed", "slowly now"},
				{"ECHO_INSTRUCTIONS", "completed", "RULE-OF-THE-TEST"},
				{"ECHO_TOOLS", "completed", `"`},
				{"SHELL echo $((40+2))-from-shell", "completed", "42-from-shell"},
				{"SHELL echo one\nSHELL echo two\nSAY three", "completed", "three"},
				{"FAILSTREAM server_error stream-broke", "failed", "stream-broke"},
				{"FAIL 400 request-broke", "failed", "request-broke"},
				{"FAIL 500 server-broke", "failed", ""},
				{"DROP", "failed", ""},
				{"USAGE 4321\nSAY counted", "completed", "counted"},
			} {
				got := c.turn(tt.prompt)
				if text := got.text + got.failure; got.status != tt.status || !strings.Contains(text, tt.want) || text == "" {
					t.Errorf("%q: %s %q, want %s %q", tt.prompt, got.status, text, tt.status, tt.want)
				}
			}
			if got := c.turn("PATCH new.txt patched-text"); got.status != "completed" || !strings.Contains(got.plain, "fileChange") {
				t.Errorf("PATCH: %s %v %q", got.status, got.items, got.text)
			}
			if text, err := os.ReadFile(filepath.Join(l.repo, "new.txt")); string(text) != "patched-text\n" {
				t.Errorf("new.txt = %q, %v", text, err)
			}
			tokens := c.awaitNote("token usage", func(m wireMessage) bool {
				return m.Method == "thread/tokenUsage/updated" && strings.Contains(string(m.Params), `"inputTokens":4321`)
			})
			if tokens.Method == "" {
				t.Error("USAGE was not told")
			}

			// GATE and HANG end only when they are told to.
			held := c.start("turn/start", map[string]any{"threadId": c.id, "input": []any{map[string]any{"type": "text", "text": "GATE door went-through"}}})
			l.api.await(t, "GATE door")
			l.api.open("door")
			held.result(nil)
			c.awaitNote("the gated text", func(m wireMessage) bool {
				return m.Method == "item/completed" && strings.Contains(string(m.Params), "went-through")
			})
			c.finish()
		})
	}
}

// TestCodexWritesTrust is the control of configUnchanged: asked in the way that
// this program avoids, newer versions do change the user's file.
func TestCodexWritesTrust(t *testing.T) {
	for _, bin := range codexBinaries(t) {
		if !bin.atLeast(154) {
			continue // measured with 0.169; 0.104 writes none
		}
		t.Run(bin.version, func(t *testing.T) {
			l := newCodexLab(t, bin, "")
			c := l.direct(map[string]any{"cwd": l.repo, "sandbox": "workspace-write"})
			c.turn("SAY hello")
			c.finish()
			if now, err := os.ReadFile(l.configPath()); err != nil || bytes.Equal(now, l.config) {
				t.Errorf("config.toml was not changed (%v): configUnchanged proves nothing with %s", err, bin.version)
			}
		})
	}
}

// TestModelAPIOverHTTP needs no Codex: what a client of the API gets.
func TestModelAPIOverHTTP(t *testing.T) {
	api := startModelAPI(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/v1/responses", api.port())
	tests := []struct{ name, input, want string }{
		{"say", `[{"type":"message","role":"user","content":"SAY hi"}]`, `"status":"completed"`},
		{"the last user message counts", `[{"role":"user","content":"SAY no"},{"role":"user","content":[{"text":"SAY yes"}]}]`, `"text":"yes"`},
		{"stamps", `[{"role":"user","content":"STAMP 2 1"}]`, `"delta":"@`},
		{"second step", `[{"role":"user","content":"SHELL ls\nSAY two"},{"type":"function_call_output","output":"x"}]`, `"text":"two"`},
		{"all steps done", `[{"role":"user","content":"SHELL ls"},{"type":"function_call_output","output":"listing"}]`, `"text":"DONE: listing"`},
		{"shell", `[{"role":"user","content":"SHELL ls"}]`, `"arguments":"{\"cmd\":\"ls\"}"`},
		{"escalated", `[{"role":"user","content":"SHELLESC ls"}]`, `require_escalated`},
		{"patch", `[{"role":"user","content":"PATCH a.txt b"}]`, `"input":"*** Begin Patch\n*** Add File: a.txt\n+b\n*** End Patch\n"`},
		{"mcp", `[{"role":"user","content":"CALLMCP atm send {\"a\":1}"}]`, `"arguments":"{\"a\":1}","call_id":`},
		{"call", `[{"role":"user","content":"CALL send {}"}]`, `"namespace":"mcp__atm"`},
		{"custom", `[{"role":"user","content":"CUSTOM apply_patch x y"}]`, `"input":"x y"`},
		{"usage", `[{"role":"user","content":"USAGE 7\nSAY x"}]`, `"input_tokens":7`},
		{"reason goes with its step", `[{"role":"user","content":"SHELL a\nREASON why\nSAY b"},{"type":"x_output","output":""}]`, `"delta":"why"`},
		{"failed stream", `[{"role":"user","content":"FAILSTREAM rate_limit slow down"}]`, `"message":"slow down"`},
		{"failed request", `[{"role":"user","content":"FAIL 429 too many"}]`, `"message":"too many"`},
		{"unknown tool kind", `[{"role":"user","content":"RAWPATCH nojson"}]`, `FAKE-ERROR: RAWPATCH wants`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := `{"model":"m","stream":true,"tools":[{"type":"function","name":"exec_command"},{"type":"custom","name":"apply_patch"},
				{"type":"namespace","name":"mcp__atm","tools":[{"type":"function","name":"send"}]}],"input":` + tt.input + `}`
			resp, err := http.Post(url, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), tt.want) {
				t.Errorf("answer has no %s:\n%s", tt.want, text)
			}
			if tt.name == "failed request" && resp.StatusCode != 429 {
				t.Errorf("status = %d", resp.StatusCode)
			}
		})
	}
	if got := len(api.requests()); got != len(tests) {
		t.Errorf("%d requests were kept, want %d", got, len(tests))
	}

	resp, err := http.Post(url, "application/json", strings.NewReader(`{"input":[{"role":"user","content":"DROP"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(bufio.NewReader(resp.Body)); err == nil {
		t.Errorf("DROP ended well: %s", text)
	}
}
