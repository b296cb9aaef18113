package main

// proxy_real_test.go owns what tests with a real Codex stand on: which binaries, a home and a repository for each test,
// the program over a binary, a shell that runs for long. It also holds the scripted model API against every binary
// directly, without this program in between, so that a failure of the suites (proxy_real_*_test.go, codex_real_test.go)
// is a failure of this program. Gated by CODEX_BINS; nothing here needs a network.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// hasMCPServer: up to 0.153.
func (b realCodex) hasMCPServer() bool {
	return exec.Command(b.path, "help", "mcp-server").Run() == nil
}

// codexBinaries asks each binary of CODEX_BINS for its version.
func codexBinaries(t testing.TB) (bins []realCodex) {
	t.Helper()
	list := filepath.SplitList(os.Getenv("CODEX_BINS"))
	if len(list) == 0 || testing.Short() {
		t.Skip("needs real Codex binaries: set CODEX_BINS to a list of their paths, as CONTRIBUTING.md says")
	}
	number := regexp.MustCompile(`\d+\.\d+\.\d+\S*`)
	for _, path := range list {
		cmd := exec.Command(path, "--version")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		out, err := cmd.Output()
		version := number.FindString(string(out))
		if err != nil || version == "" {
			t.Fatalf("CODEX_BINS: %s --version: %v, %q", path, err, out)
		}
		bins = append(bins, realCodex{path, version})
	}
	return bins
}

// codexRule is one thing that every Codex is held to.
type codexRule struct {
	name string
	run  func(*codexLab)
}

// runCodexRules runs each rule with each Codex of CODEX_BINS.
func runCodexRules(t *testing.T, rules []codexRule) {
	t.Helper()
	bins := codexBinaries(t)
	needProcFS(t)
	prog := programPath(t)
	for _, bin := range bins {
		for _, rule := range rules {
			t.Run(bin.version+"/"+rule.name, func(t *testing.T) { rule.run(newCodexLab(t, bin, prog)) })
		}
	}
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
	config string // $CODEX_HOME/config.toml as it was

	backend string   // of the configuration, "app-server" unless a test says otherwise
	more    []string // of the environment
}

func newCodexLab(t *testing.T, bin realCodex, prog string) *codexLab {
	t.Helper()
	l := &codexLab{t: t, bin: bin, prog: prog, api: startModelAPI(t), backend: "app-server"}
	l.codex = codexHome(t, l.api.port())
	l.home = filepath.Join(l.codex, "home") // not under the temporary directory either
	l.repo = filepath.Join(l.home, "work", "lab-repo")
	wantNil(t, os.MkdirAll(l.repo, 0o700))
	wantNil(t, makeGitRepo(l.repo, "main"))
	l.config = readText(t, l.configPath())
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

// peer is what starts the program over the binary.
func (l *codexLab) peer(command string, flags ...string) peerConfig {
	return peerConfig{name: "atm-agent-mcp " + command, path: l.prog, env: l.env(), dir: l.repo,
		args: append([]string{command, "--codex-bin", l.bin.path}, flags...)}
}

func (l *codexLab) start(command string, flags ...string) *testClient {
	l.t.Helper()
	return startClient(l.t, l.peer(command, flags...))
}

// serve starts the program as an MCP server, with the handshake done.
func (l *codexLab) serve(capabilities map[string]any, flags ...string) *testClient {
	l.t.Helper()
	c := l.start("serve", append([]string{"--backend", l.backend}, flags...)...)
	c.initialize("2025-06-18", capabilities)
	return c
}

// configUnchanged: Codex must not have written trust, or anything else, into the
// user's own configuration behind their back.
func (l *codexLab) configUnchanged() {
	l.t.Helper()
	if now := readText(l.t, l.configPath()); now != l.config {
		l.t.Errorf("config.toml was changed; before:\n%s\nnow:\n%s", l.config, now)
	}
}

// finish ends a client and holds what is left against the invariants.
func (l *codexLab) finish(c interface{ finish() }) {
	l.t.Helper()
	c.finish()
	l.configUnchanged()
}

// kill kills the program, and nothing else: what it started ends by itself.
func (l *codexLab) kill(c *testClient) {
	l.t.Helper()
	wantNil(l.t, c.signal("KILL"))
	wantNil(l.t, c.waitAllGone(c.limit))
}

// killCodex kills the program's child.
func (l *codexLab) killCodex(c *testClient) {
	l.t.Helper()
	var pids []int
	for _, pid := range childProcesses(c.cmd.Process.Pid) {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil &&
			filepath.Base(exe) == filepath.Base(l.bin.path) {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 1 {
		l.t.Fatalf("the program has %d Codex children, want one%s", len(pids), describeProcesses(pids))
	}
	proc, err := os.FindProcess(pids[0])
	wantNil(l.t, err)
	wantNil(l.t, proc.Kill())
}

// sleeps is a prompt whose shell runs for long.
func (l *codexLab) sleeps() string {
	file := filepath.Join(l.home, "pid")
	return "SHELL echo $$ > " + file + ".new; mv " + file + ".new " + file + "; exec sleep 600\nSAY never said"
}

// sleeping waits for the shell of sleeps, and returns its pid.
func (l *codexLab) sleeping(c *testClient) (pid int) {
	l.t.Helper()
	if !poll(c.limit, func() bool {
		text, err := os.ReadFile(filepath.Join(l.home, "pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	}) || !processAlive(pid) {
		l.t.Fatalf("the shell, process %d, does not run%s", pid, c.told())
	}
	return pid
}

// dies waits for the end of the process.
func (l *codexLab) dies(c *testClient, pid int) {
	l.t.Helper()
	if !poll(c.limit, func() bool { return !processAlive(pid) }) {
		l.t.Errorf("still running:%s", describeProcesses([]int{pid}))
	}
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

func (c *codexThread) begin(prompt string) *pendingCall {
	c.tb.Helper()
	return c.start("turn/start", map[string]any{"threadId": c.id,
		"input": []any{map[string]any{"type": "text", "text": prompt}}})
}

// turn runs a turn and tells how it ended, the last message or else the failure, and all completed items.
func (c *codexThread) turn(prompt string) (status, text, items string) {
	c.tb.Helper()
	c.mu.Lock()
	from := len(c.notes)
	c.mu.Unlock()
	var started struct{ Turn struct{ ID string } }
	c.begin(prompt).result(&started)
	c.awaitNote("the end of "+prompt, func(m wireMessage) bool {
		if from--; from >= 0 {
			return false
		}
		switch m.Method {
		case "item/completed":
			items += string(m.Params) + "\n"
			if stringField(m.Params, "item", "type") == "agentMessage" {
				text = stringField(m.Params, "item", "text")
			}
		case "turn/completed":
			status, text = stringField(m.Params, "turn", "status"), text+stringField(m.Params, "turn", "error",
				"message")
			return stringField(m.Params, "turn", "id") == started.Turn.ID
		}
		return false
	})
	return status, text, items
}

// TestModelAPIWithCodex holds the model's directives against real binaries.
func TestModelAPIWithCodex(t *testing.T) {
	runCodexRules(t, []codexRule{{"directives", func(l *codexLab) {
		c := l.direct(map[string]any{"cwd": l.repo, "approvalPolicy": "never", "sandbox": "danger-full-access",
			"developerInstructions": "RULE-OF-THE-TEST"})
		for _, tt := range []struct{ prompt, status, want string }{
			{"SAY hello ünïcode world", "completed", "hello ünïcode world"},
			{"hello there", "completed", "FAKE: hello there"},
			{"REASON thinking\nSAY thought", "completed", "thought"},
			{"STAMP 2 1", "completed", "@"},
			{"ECHO_INSTRUCTIONS", "completed", "RULE-OF-THE-TEST"},
			{"SHELL echo $((40+2))-from-shell", "completed", "42-from-shell"},
			{"SHELL echo one\nSHELL echo two\nSAY three", "completed", "three"},
			{"RAWPATCH nojson", "completed", "FAKE-ERROR: RAWPATCH wants"},
			{"FAILSTREAM server_error stream-broke", "failed", "stream-broke"},
			{"FAIL 400 request-broke", "failed", "request-broke"},
			{"FAIL 500 server-broke", "failed", ""},
		} {
			if status, text, _ := c.turn(tt.prompt); status != tt.status || !strings.Contains(text, tt.want) ||
				text == "" {
				l.t.Errorf("%q: %s %q, want %s %q", tt.prompt, status, text, tt.status, tt.want)
			}
		}
		if status, text, items := c.turn("PATCH new.txt patched-text"); status != "completed" ||
			!strings.Contains(items, "fileChange") {
			l.t.Errorf("PATCH: %s %q %s", status, text, items)
		}
		want(l.t, readText(l.t, filepath.Join(l.repo, "new.txt")), "patched-text\n")
		held := c.begin("GATE door went-through") // ends only when it is told to
		l.api.await(l.t, "GATE door")
		l.api.open("door")
		held.result(nil)
		c.awaitNote("the gated text", func(m wireMessage) bool {
			return m.Method == "item/completed" && strings.Contains(string(m.Params), "went-through")
		})
		c.finish()
	}}})
}

// TestCodexWritesTrust is the control of configUnchanged: asked in the way that
// this program avoids, newer versions do change the user's file.
func TestCodexWritesTrust(t *testing.T) {
	runCodexRules(t, []codexRule{{"trust", func(l *codexLab) {
		if !l.bin.atLeast(154) {
			return // measured with 0.169; 0.104 writes none
		}
		c := l.direct(map[string]any{"cwd": l.repo, "sandbox": "workspace-write"})
		c.turn("SAY hello")
		c.finish()
		if readText(l.t, l.configPath()) == l.config {
			l.t.Errorf("config.toml was not changed: configUnchanged proves nothing with %s", l.bin.version)
		}
	}}})
}
