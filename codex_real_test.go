package main

// codex_real_test.go holds the drivers to every real Codex of CODEX_BINS: app-server
// to one conversation with all that an ACP front needs of it beyond turns, also with
// the mock of each of those versions; mcp-server, where there is one, to the rules
// of proxy_real_serve_test.go and those that only mcp-server makes necessary. And one
// MCP conversation over both backends must read the same to the client: ids, times
// and counts of tokens are made neutral, every other byte is compared.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// driven is a driver in a test, with what its sink and its accounts heard.
type driven struct {
	t       *testing.T
	b       backend
	heard   chan event
	account chan string
	thread  string
	op      opID
	kept    []event // since the last op
}

// driverRig is what drivers of a test are started with.
type driverRig struct {
	o    appServerOptions
	repo string
	mock bool
}

func TestCodexDriver(t *testing.T) {
	for _, bin := range codexBinaries(t) {
		t.Run(bin.version, func(t *testing.T) {
			l := newCodexLab(t, bin, "")
			converse(t, driverRig{o: appServerOptions{linkOptions: linkOptions{Path: bin.path, Env: l.env(), Dir: l.repo}}, repo: l.repo})
		})
	}
}

func TestCodexDriverOverTheMock(t *testing.T) {
	codex, err := exec.LookPath("codex") // the tests' own
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"0.104.0", "0.153.0", "0.169.0"} {
		t.Run(version, func(t *testing.T) {
			home := t.TempDir()
			repo := filepath.Join(home, "repo")
			if err := makeGitRepo(repo, "main"); err != nil {
				t.Fatal(err)
			}
			config := "model_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n"
			if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "USERPROFILE=" + home, "CODEX_HOME=" + home, "MOCK_CODEX_VERSION=" + version, "MOCK_CODEX_PAGE=3"}
			converse(t, driverRig{o: appServerOptions{linkOptions: linkOptions{Path: codex, Env: env, Dir: repo}}, repo: repo, mock: true})
		})
	}
}

func (r driverRig) start(t *testing.T) *driven {
	t.Helper()
	d := &driven{t: t, heard: make(chan event, 10000), account: make(chan string, 100)}
	r.o.OnAccount = func(method string, params json.RawMessage) { d.account <- method + " " + string(params) }
	b, err := startAppServer(context.Background(), r.o)
	if err != nil {
		t.Fatal(err)
	}
	d.b = b
	t.Cleanup(func() { b.stop(5 * time.Second) })
	return d
}

// until reads events up to one that matches.
func (d *driven) until(what string, match func(e event) bool) event {
	d.t.Helper()
	limit := time.After(waitLimit(d.t))
	for {
		select {
		case e := <-d.heard:
			if d.kept = append(d.kept, e); match(e) {
				return e
			}
		case <-limit:
			d.t.Fatalf("waited for %s; heard:\n%s", what, d.lines())
		}
	}
}

func (d *driven) lines() string {
	var lines []string
	for _, e := range d.kept {
		lines = append(lines, eventLine(e))
	}
	return strings.Join(lines, "\n")
}

func (d *driven) open(spec threadSpec) event {
	d.t.Helper()
	d.op, d.kept = d.op+1, nil
	d.b.open(d.op, spec, func(e event) { d.heard <- e })
	e := d.until("the thread", func(e event) bool { return e.op == d.op })
	if e.kind != evOpened {
		d.t.Fatal(eventLine(e))
	}
	d.thread = e.thread
	return e
}

// begin sends a turn and returns when its id is known; end waits for its end and
// holds that there was one of each. answer is the last message.
func (d *driven) begin(c command) (turn string) {
	d.t.Helper()
	d.op, d.kept = d.op+1, nil
	c.kind = cmdTurn
	d.b.do(d.op, d.thread, c)
	e := d.until("the turn", func(e event) bool { return e.op == d.op })
	if e.kind != evStarted || e.turn == "" {
		d.t.Fatal(eventLine(e))
	}
	return e.turn
}

func (d *driven) end(turn string) (status, answer string) {
	d.t.Helper()
	e := d.until("the end", func(e event) bool { return e.kind == evEnded })
	started, ended := 0, 0
	for _, k := range d.kept {
		switch {
		case k.kind == evStarted:
			started++
		case k.kind == evEnded:
			ended++
		case k.kind == evItem && k.turn != turn, k.method == "turn/started" && k.turn != turn:
			d.t.Errorf("of another turn than %s: %s", turn, eventLine(k))
		case k.kind == evItem && k.phase == "completed" && k.body.kind == "agentMessage":
			answer = k.body.text
		}
	}
	if e.turn != turn || started != 1 || ended != 1 {
		d.t.Errorf("turn %s ended as %s, after %d beginnings and %d ends", turn, eventLine(e), started, ended)
	}
	return e.status, answer
}

func (d *driven) run(c command) (status, answer string) {
	d.t.Helper()
	return d.end(d.begin(c))
}

// item is the completed item of a kind in the last turn.
func (d *driven) item(kind string) *event {
	d.t.Helper()
	for i, e := range d.kept {
		if e.kind == evItem && e.phase == "completed" && e.body.kind == kind {
			return &d.kept[i]
		}
	}
	d.t.Fatalf("no %s in\n%s", kind, d.lines())
	return nil
}

func converse(t *testing.T, rig driverRig) {
	ctx := context.Background()
	full := turnSettings{Cwd: rig.repo, Approval: "never", Sandbox: "danger-full-access"}
	narrow := turnSettings{Cwd: rig.repo, Approval: "on-request", Sandbox: "read-only"}
	d := rig.start(t)
	keeps := d.b.info().atLeast(148) // commands, in what is kept of a thread

	models, err := d.b.catalog(ctx, "models", "")
	n := 0
	eachElement(rawField(models, "data"), func(m json.RawMessage) {
		if n++; stringField(m, "id") == "" || rawField(m, "supportedReasoningEfforts") == nil || rawField(m, "inputModalities") == nil {
			t.Errorf("model %s", m)
		}
	})
	if err != nil || n < 4 {
		t.Errorf("%d models, %v", n, err)
	}
	for what, field := range map[string]string{"config": "config", "account": "requiresOpenaiAuth"} {
		if res, err := d.b.catalog(ctx, what, rig.repo); err != nil || rawField(res, field) == nil {
			t.Errorf("%s: %.200s %v", what, res, err)
		}
	}
	if servers, err := d.b.catalog(ctx, "mcp", ""); err != nil || string(rawField(servers, "data")) != "[]" {
		t.Errorf("servers %s, %v", servers, err)
	}

	d.op++
	d.b.open(d.op, threadSpec{Thread: "01999999-0000-7000-8000-000000000000", Settings: narrow}, func(e event) { d.heard <- e })
	if e := d.until("a refusal", func(e event) bool { return e.op == d.op }); e.kind != evRefused || !e.err.Missing {
		t.Errorf("a thread that is none: %s", eventLine(e))
	}

	if e := d.open(threadSpec{Settings: narrow}); e.opened.model == "" {
		t.Errorf("no model: %s", eventLine(e))
	}
	thread := d.thread
	if err := d.b.history(ctx, thread, func(e *event) error { return errors.New("something: " + eventLine(*e)) }); err != nil {
		t.Errorf("the history of a thread never used: %v", err)
	}

	// Images.
	image := "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGP4z8AARwzEcQCukw/x0F8jngAAAABJRU5ErkJggg=="
	status, answer := d.run(command{prompt: "SAY seen", parts: []promptPart{{kind: "image", url: image}}, settings: full})
	if status != "completed" || !strings.Contains(answer, "seen") || !strings.Contains(string(d.item("userMessage").raw), image) {
		t.Errorf("%s %q: %s", status, answer, d.item("userMessage").raw)
	}

	// A command.
	d.run(command{prompt: "SHELL echo out-$((40+2))", settings: full})
	if c := d.item("commandExecution").body; c.output != "out-42\n" || c.exitCode == nil || *c.exitCode != 0 || len(c.actions) == 0 {
		t.Errorf("%s", eventLine(*d.item("commandExecution")))
	}

	// A compaction.
	if status, _ := d.run(command{action: actCompact, settings: full}); status != "completed" {
		t.Errorf("compaction: %s", status)
	}
	d.item("contextCompaction")

	// A review, which nobody is asked in, under the session's settings.
	status, answer = d.run(command{action: actReview, prompt: "SHELL touch forbidden; ls -a\nSAY looks fine", settings: narrow})
	if status != "completed" || answer != "looks fine" || d.item("exitedReviewMode").body.text != "looks fine" {
		t.Errorf("review: %s %q", status, answer)
	}
	if _, err := os.Stat(filepath.Join(rig.repo, "forbidden")); err == nil && !rig.mock { // the mock has no sandbox
		t.Error("a review under read-only wrote")
	}

	// Reviews that are stopped: one that runs, one that has just been asked for.
	turn := d.begin(command{action: actReview, prompt: "HANG", settings: narrow})
	d.until("its prompt", func(e event) bool { return e.kind == evItem && e.body.kind == "userMessage" })
	d.b.do(0, d.thread, command{kind: cmdInterrupt, turn: turn})
	if status, _ := d.end(turn); status != "interrupted" {
		t.Errorf("a stopped review: %s", status)
	}
	turn = d.begin(command{action: actReview, prompt: "HANG", settings: narrow})
	d.b.do(0, d.thread, command{kind: cmdInterrupt, turn: turn})
	if status, _ := d.end(turn); status != "interrupted" {
		t.Errorf("a review stopped at once: %s", status)
	}
	d.op, d.kept = d.op+1, nil
	d.b.do(d.op, d.thread, command{kind: cmdTurn, action: actCompact, settings: full})
	d.b.do(0, d.thread, command{kind: cmdInterrupt})
	e := d.until("the compaction", func(e event) bool { return e.op == d.op })
	if e.kind != evStarted {
		t.Fatal(eventLine(e))
	}
	if status, _ := d.end(e.turn); status != "interrupted" && status != "completed" { // it may have been too quick
		t.Errorf("a compaction stopped at once: %s", status)
	}
	if status, answer := d.run(command{prompt: "SAY still here", settings: full}); status != "completed" || answer != "still here" {
		t.Errorf("afterwards: %s %q", status, answer)
	}

	// The past, in another process.
	d.b.stop(5 * time.Second)
	d = rig.start(t)
	d.thread = thread
	var told []string
	err = d.b.history(ctx, thread, func(e *event) error {
		switch e.kind {
		case evItem:
			told = append(told, e.body.kind+" "+e.body.text+e.body.output)
		case evEnded:
			told = append(told, e.status)
		case evStarted:
		default:
			t.Errorf("history: %s", eventLine(*e))
		}
		return nil
	})
	past := strings.Join(told, "\n") + "\n"
	for _, line := range []string{"userMessage SAY seen\n", "exitedReviewMode looks fine\nagentMessage looks fine\ncompleted\n", "agentMessage still here\ncompleted\n", "interrupted\n"} {
		if !strings.Contains(past, line) {
			t.Errorf("the history has no %q", line)
		}
	}
	if keeps != strings.Contains(past, "commandExecution out-42\n") || err != nil {
		t.Errorf("history, %v:\n%s", err, past)
	}
	if strings.Count(past, "enteredReviewMode") != 3 {
		t.Errorf("three reviews:\n%s", past)
	}
	var be *backendError
	if err := d.b.history(ctx, "01999999-0000-7000-8000-000000000000", nil); !errors.As(err, &be) || !be.Missing {
		t.Errorf("the history of no thread: %v", err)
	}

	// MCP servers of a thread.
	shell, err := exec.LookPath("cat") // starts, and says nothing that is MCP
	if err != nil {
		t.Skip("there is no cat")
	}
	d.open(threadSpec{Thread: thread, Settings: narrow, Config: toJSON(map[string]any{"mcp_servers": map[string]any{
		"gone": map[string]any{"command": "/nonexistent/server"},
		"mute": map[string]any{"command": shell, "startup_timeout_sec": 1, "env": map[string]any{"MOCK_MCP_START": "fail:request timed out"}},
	}})})
	failed := map[string]string{}
	d.until("two servers that fail", func(e event) bool {
		if e.kind == evServer && e.status == "failed" {
			failed[e.item] = e.text
		}
		return len(failed) == 2
	})
	if !strings.Contains(failed["gone"], "No such file or directory") || failed["mute"] == "" {
		t.Errorf("%q", failed)
	}

	// Accounts.
	if _, err := d.b.account(ctx, "login", map[string]any{"type": "apiKey", "apiKey": "sk-of-a-test"}); err != nil {
		t.Error(err)
	}
	if note := <-d.account; !strings.HasPrefix(note, "account/login/completed ") || !strings.Contains(note, `"success":true`) {
		t.Error(note)
	}
	if note := <-d.account; !strings.HasPrefix(note, `account/updated {"authMode":"apikey"`) {
		t.Error(note)
	}
	if _, err := d.b.account(ctx, "login", map[string]any{"type": "nonsense"}); !errors.As(err, &be) || !strings.Contains(be.Message, "unknown variant") {
		t.Error(err)
	}
	if _, err := d.b.account(ctx, "logout", nil); err != nil {
		t.Error(err)
	}
	if note := <-d.account; !strings.HasPrefix(note, `account/updated {"authMode":null`) {
		t.Error(note)
	}
}

func TestCodexMCPServer(t *testing.T) {
	bins := codexBinaries(t)
	needProcFS(t)
	prog := programPath(t)
	rules := []codexRule{
		{"a conversation", aConversation},
		{"context and instructions reach the model", contextReachesTheModel},
		{"two agents at once", twoAgentsAtOnce},
		{"a failed model is told and survived", failedModel},
		{"an approved command runs", approvedCommand},
		{"a permanent rule is what Codex proposed", permanentRule},
		{"a declined command does not end the turn", declinedCommand},
		{"nobody to ask means declined at once", nobodyToAsk},
		{"a cancelled turn's reply is nobody else's", cancelThenReply},
		{"end of input stops a running shell", endOfInput},
		{"end of input with cancelled calls leaves no process", endWithZombies},
		{"a killed proxy leaves no process and its digest", killedProxyMCP},
		{"a killed child is told to every caller", killedChild},
		{"changed settings go to a fresh thread", changedSettings},
		{"untrusted asks on every version", untrustedAsks},
		{"config.toml is nobody's but the user's", configStays},
	}
	for _, bin := range bins {
		if exec.Command(bin.path, "help", "mcp-server").Run() != nil {
			t.Run(bin.version+"/has none, and says so", func(t *testing.T) { noMCPServer(mcpLab(t, bin, prog)) })
			continue
		}
		if !bin.atLeast(148) { // later ones leave the shell to itself, and have no call that ends it
			t.Run(bin.version+"/a cancelled call stops its shell", func(t *testing.T) { cancelledCall(mcpLab(t, bin, prog)) })
		}
		for _, rule := range rules {
			t.Run(bin.version+"/"+rule.name, func(t *testing.T) { rule.run(mcpLab(t, bin, prog)) })
		}
	}
}

func mcpLab(t *testing.T, bin realCodex, prog string) *codexLab {
	l := newCodexLab(t, bin, prog)
	l.backend = "mcp-server"
	return l
}

func noMCPServer(l *codexLab) {
	c := l.serve(map[string]any{})
	if e := c.call("codex", map[string]any{"prompt": "SAY x"}).fault(-32005); !strings.Contains(e.Message, "has no mcp-server command") {
		l.t.Errorf("got %q", e.Message)
	}
	l.finish(c)
}

// cancelThenReply: a cancelled call of Codex still reads the thread, and the
// answer to the next turn comes under its id or the new one's, as it happens.
func cancelThenReply(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY ready"}).turn()
	other := c.call("codex", map[string]any{"prompt": "SAY other"}).turn()
	var slowest time.Duration
	for i := range 20 {
		hang := fmt.Sprintf("HANG %d", i)
		call := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": hang})
		l.api.await(t, hang)
		call.cancel("user")
		one := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": fmt.Sprintf("SAY mine %d", i)})
		two := c.call("codex-reply", map[string]any{"agent_id": other.AgentID, "prompt": fmt.Sprintf("SAY theirs %d", i)})
		began := time.Now()
		if r := one.turn(); r.Content != fmt.Sprintf("mine %d", i) || r.ThreadID != first.ThreadID {
			t.Errorf("reply %d after a cancel: %+v", i, r)
		}
		if took := time.Since(began); took > slowest {
			slowest = took
		}
		if r := two.turn(); r.Content != fmt.Sprintf("theirs %d", i) || r.ThreadID != other.ThreadID {
			t.Errorf("reply %d of the other agent: %+v", i, r)
		}
	}
	c.noStrays()
	t.Logf("Codex %s: 20 cancels, 20 right answers, the slowest after %v", l.bin.version, slowest)
	l.finish(c)
}

func endWithZombies(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY ready"}).turn()
	call := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "HANG on"})
	l.api.await(t, "HANG on")
	call.cancel("user")
	if r := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY usable"}).turn(); r.Content != "usable" {
		t.Errorf("after the cancel: %+v", r)
	}
	began := time.Now()
	l.finish(c)
	t.Logf("Codex %s: ended in %v with a zombie", l.bin.version, time.Since(began))
}

func killedProxyMCP(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY remember-the-answer", "identity": "keeper"}).turn()
	call := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "HANG on"})
	l.api.await(t, "HANG on")
	call.cancel("user") // its call stays open, so the end of its stdin alone would not end Codex
	c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY last-words"}).turn()
	if err := c.signal("KILL"); err != nil {
		t.Fatal(err)
	}
	if err := c.waitAllGone(c.limit); err != nil {
		t.Fatal(err)
	}
	c = l.serve(map[string]any{})
	again := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY after restart"}).turn()
	if again.AgentID != first.AgentID || again.ThreadID == first.ThreadID || again.Identity != "keeper" || again.Content != "after restart" {
		t.Errorf("after kill -9: %+v, before: %+v", again, first)
	}
	if req := l.api.await(t, "SAY after restart"); !strings.Contains(req.Prompt, "last-words") {
		t.Errorf("the model was not given the digest: %q", req.Prompt)
	}
	l.finish(c)
}

func changedSettings(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY narrow-answer", "sandbox": "read-only"}).turn()
	same := c.call("codex", map[string]any{"agent_id": first.AgentID, "prompt": "SAY same", "sandbox": "read-only"}).turn()
	if same.ThreadID != first.ThreadID {
		t.Errorf("nothing changed, but the thread did: %+v", same)
	}
	wide := c.call("codex", map[string]any{"agent_id": first.AgentID, "prompt": "SHELL echo hi > wide.txt\nSAY wide", "sandbox": "danger-full-access", "approval-policy": "never"}).turn()
	if wide.ThreadID == first.ThreadID || wide.Sandbox != "danger-full-access" || wide.Content != "wide" {
		t.Errorf("changed settings: %+v", wide)
	}
	if _, err := os.Stat(l.repo + "/wide.txt"); err != nil {
		t.Errorf("the wider sandbox does not hold: %v", err)
	}
	if at := slices.IndexFunc(l.api.requests(), func(r modelRequest) bool { return strings.Contains(r.Prompt, "Last answer:\nsame") }); at < 0 {
		t.Error("the model was not given the digest")
	}
	l.finish(c)
}

// untrustedAsks: the word is gone from 0.153's schema, and still means that
// what isn't known to be safe is asked for.
func untrustedAsks(l *codexLab) {
	t, c := l.t, l.serve(askable())
	call := c.call("codex", map[string]any{"prompt": "SHELL touch asked.txt\nSAY done", "approval-policy": "untrusted", "sandbox": "workspace-write"})
	c.reply(c.awaitAsk("elicitation/create"), map[string]any{"action": "decline"})
	if r := call.turn(); r.Approval != "untrusted" || len(r.Declined) != 1 {
		t.Errorf("turn = %+v", r)
	}
	if _, err := os.Stat(l.repo + "/asked.txt"); err == nil {
		t.Error("the declined command ran")
	}
	l.finish(c)
}

func TestCodexBackendsAgreeOverTheMock(t *testing.T) {
	prog := programPath(t)
	for _, version := range []string{"0.104.0", "0.153.0"} {
		t.Run(version, func(t *testing.T) {
			agree(t, func(t *testing.T, backend string) (*testClient, string) {
				home := t.TempDir()
				repo := filepath.Join(home, "repo")
				if err := makeGitRepo(repo, "main"); err != nil {
					t.Fatal(err)
				}
				c := startClient(t, peerConfig{name: "atm-agent-mcp", path: prog, dir: repo,
					args: []string{"serve", "--backend", backend},
					env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "USERPROFILE=" + home, "CODEX_HOME=" + home,
						"ATM_HOME=" + filepath.Join(home, "atm"), "MOCK_CODEX_VERSION=" + version}})
				return c, home
			})
		})
	}
}

func TestCodexBackendsAgree(t *testing.T) {
	bins := codexBinaries(t)
	prog := programPath(t)
	for _, bin := range bins {
		if exec.Command(bin.path, "help", "mcp-server").Run() != nil {
			continue
		}
		t.Run(bin.version, func(t *testing.T) {
			agree(t, func(t *testing.T, backend string) (*testClient, string) {
				l := newCodexLab(t, bin, prog)
				c := startClient(t, peerConfig{name: "atm-agent-mcp", path: prog, dir: l.repo, env: l.env(),
					args: []string{"serve", "--codex-bin", bin.path, "--backend", backend}})
				return c, l.home
			})
		})
	}
}

// agree has the conversation over both and compares what was recorded, step by step.
func agree(t *testing.T, start func(*testing.T, string) (*testClient, string)) {
	heard := map[string][]string{}
	for _, backend := range []string{"app-server", "mcp-server"} {
		t.Run(backend, func(t *testing.T) {
			c, home := start(t, backend)
			r := &recording{c: c, home: home, names: map[string]string{}}
			r.converse()
			heard[backend] = r.steps
			if want := map[string]int{"mcp-server": 2}[backend]; r.moved != want {
				t.Errorf("agents went to a fresh thread %d times, want %d: after the failure and for changed settings", r.moved, want)
			}
		})
	}
	one, two := heard["app-server"], heard["mcp-server"]
	if t.Failed() || len(one) != len(two) || len(one) < 20 {
		t.Fatalf("%d steps over app-server, %d over mcp-server", len(one), len(two))
	}
	for i := range one {
		if one[i] != two[i] {
			t.Errorf("they differ\nover app-server: %s\nover mcp-server: %s", one[i], two[i])
		}
	}
	if !t.Failed() {
		t.Logf("%d steps alike", len(one))
	}
}

// recording is a conversation with what the client saw in it.
type recording struct {
	c     *testClient
	home  string
	names map[string]string // agent ids, in the order of their first appearance
	steps []string
	moved int // how often an agent went to a fresh thread
}

func (r *recording) keep(step string, raw json.RawMessage) {
	r.c.tb.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		r.c.tb.Fatalf("%s: %v in %s", step, err, raw)
	}
	text, err := json.Marshal(r.neutral("", v))
	if err != nil {
		r.c.tb.Fatal(err)
	}
	r.steps = append(r.steps, step+": "+string(text))
}

// call keeps a call's answer, a result or an error, and returns it.
func (r *recording) call(step, tool string, args map[string]any) turnReply {
	r.c.tb.Helper()
	return r.end(step, r.c.call(tool, args))
}

func (r *recording) end(step string, p *pendingCall) (turn turnReply) {
	r.c.tb.Helper()
	m := p.wait()
	if m.Error != nil {
		raw, err := json.Marshal(m.Error)
		if err != nil {
			r.c.tb.Fatal(err)
		}
		r.keep(step, raw)
		return turn
	}
	r.keep(step, m.Result)
	var res callResult
	if err := json.Unmarshal(m.Result, &res); err != nil {
		return turn // structuredContent of another tool
	}
	return res.Turn
}

var (
	agentIDs    = regexp.MustCompile(`codex:[a-z0-9]{7}`)
	freshThread = regexp.MustCompile(`^\[thread \S+ can't go on: .*\(mcp-server\).*\]$`)
	countTexts  = regexp.MustCompile(`turns: \d+`)
	childTexts  = regexp.MustCompile(`\((app|mcp)-server, pid \d+\)`)
	timeTexts   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	uuidTexts   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// neutral takes out what differs from run to run, and the thread's id, which after a failed turn is a new one over
// mcp-server by design.
func (r *recording) neutral(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) { // in order, so that agents are numbered alike
			if k == "notes" && freshThread.MatchString(fmt.Sprint(v[k])) {
				r.moved++ // only mcp-server must do that, and says so
				continue
			}
			out[k] = r.neutral(k, v[k])
		}
		return out
	case []any:
		list := []any{}
		for _, e := range v {
			list = append(list, r.neutral(key, e))
		}
		return list
	case float64:
		if key == "code" || key == "sessions" || strings.HasPrefix(key, "max") {
			return v
		}
		return "a number"
	case string:
		switch key {
		case "backend", "backend_kind", "threadId", "backend_id", "turn_id", "approval_id":
			return "a word"
		}
		if strings.HasSuffix(key, "_at") || key == "last_active" {
			return "a time"
		}
		if key == "text" { // a session in one line
			v = countTexts.ReplaceAllString(childTexts.ReplaceAllString(timeTexts.ReplaceAllString(v, "a time"), "(a child)"), "turns: a number")
		}
		v = strings.ReplaceAll(v, r.home, "HOME")
		v = agentIDs.ReplaceAllStringFunc(v, func(id string) string {
			if r.names[id] == "" {
				r.names[id] = fmt.Sprintf("agent-%d", len(r.names)+1)
			}
			return r.names[id]
		})
		return uuidTexts.ReplaceAllString(v, "UUID")
	}
	return v
}

func (r *recording) converse() {
	t, c := r.c.tb, r.c
	c.initialize("2025-06-18", askable())
	type args = map[string]any

	first := r.call("start", "codex", args{"prompt": "SAY first", "identity": "ann", "sandbox": "workspace-write", "approval-policy": "on-request"})
	ann := first.AgentID
	r.call("reply", "codex-reply", args{"agent_id": ann, "prompt": "SAY second"})
	r.call("reply by threadId", "codex-reply", args{"threadId": first.ThreadID, "prompt": "SAY third"})
	r.call("reply by conversationId", "codex-reply", args{"conversationId": first.ThreadID, "prompt": "SAY fourth"})
	r.call("a command", "codex-reply", args{"agent_id": ann, "prompt": "SHELL true\nSAY ran it"})

	for _, answer := range []args{{"action": "accept", "content": args{}}, {"action": "decline"}, {"action": "cancel"}, {"decision": "denied"}} {
		step := "an approval answered " + compact(answer)
		file := filepath.Join(r.home, "asked-for")
		call := c.call("codex-reply", args{"agent_id": ann, "prompt": "SHELLESC touch " + file + "\nSAY after it"})
		ask := c.awaitAsk("elicitation/create")
		c.reply(ask, answer)
		var p struct{ Message string }
		if err := json.Unmarshal(ask.Params, &p); err != nil || !strings.Contains(p.Message, "touch") {
			t.Errorf("%s: %v in %s", step, err, ask.Params)
		}
		r.end(step, call)
		_, err := os.Stat(file)
		r.steps = append(r.steps, fmt.Sprintf("%s: it ran: %v", step, err == nil))
		os.Remove(file)
	}

	r.call("the model fails", "codex-reply", args{"agent_id": ann, "prompt": "FAIL 500 boom"})
	r.call("reply after a failure", "codex-reply", args{"agent_id": ann, "prompt": "SAY well again"})
	hang := c.call("codex-reply", args{"agent_id": ann, "prompt": "HANG"})
	c.awaitNote("the turn", func(m wireMessage) bool {
		return m.Method == "codex/event" && (strings.Contains(string(m.Params), `"turn/started"`) || strings.Contains(string(m.Params), `"task_started"`))
	})
	hang.cancel("user")
	r.call("reply after a cancel", "codex-reply", args{"agent_id": ann, "prompt": "SAY mine"})
	r.call("reply after that", "codex-reply", args{"agent_id": ann, "prompt": "SAY mine too"})

	bob := r.call("a second agent", "codex", args{"prompt": "SAY hello", "identity": "bob", "sandbox": "read-only", "approval-policy": "never"}).AgentID
	r.call("one's settings changed", "codex", args{"agent_id": bob, "prompt": "SAY wider", "sandbox": "workspace-write"})
	r.call("rebound without a turn", "codex", args{"agent_id": bob})
	r.call("a name that is taken", "codex", args{"prompt": "SAY x", "identity": "ann"})
	r.call("an agent that is none", "codex-reply", args{"agent_id": "nobody-at-all", "prompt": "SAY x"})
	r.call("a bad sandbox", "codex", args{"prompt": "SAY x", "sandbox": "readonly"})
	r.call("an unknown argument", "codex", args{"prompt": "SAY x", "promt": "x"})
	r.call("no prompt", "codex", args{})
	r.call("a cwd that is none", "codex", args{"prompt": "SAY x", "cwd": "no/such/dir"})
	r.call("a role that is none", "codex", args{"prompt": "SAY x", "role": "nobody"})
	r.call("status", "agent_status", args{})
	r.call("sessions", "agent_sessions", args{})
	r.call("close", "agent_close", args{"agent_id": ann})
	r.call("a closed one", "codex-reply", args{"agent_id": ann, "prompt": "SAY x"})
	r.call("reopened", "codex", args{"agent_id": ann, "prompt": "SAY back"})
	r.call("close by name", "agent_close", args{"identity": "bob"})
	var tools json.RawMessage
	c.start("tools/list", args{}).result(&tools)
	r.keep("tools", tools)
	c.noStrays()
	c.finish()
}
