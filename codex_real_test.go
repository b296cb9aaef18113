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
	"runtime"
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
			converse(t, driverRig{o: appServerOptions{linkOptions: linkOptions{Path: bin.path, Env: l.env(),
				Dir: l.repo}}, repo: l.repo})
		})
	}
}

func TestCodexDriverOverTheMock(t *testing.T) {
	codex, err := exec.LookPath("codex") // the tests' own
	wantNil(t, err)
	for _, version := range []string{"0.104.0", "0.153.0", "0.169.0"} {
		t.Run(version, func(t *testing.T) {
			home, repo, env := homeOfMock(t, version)
			plant(t, home, map[string]string{"config.toml": "model_provider = \"fake\"\n[model_providers.fake]\nname " +
				"= \"fake\"\n"})
			link := linkOptions{Path: codex, Env: append(env, "MOCK_CODEX_PAGE=3"), Dir: repo}
			converse(t, driverRig{o: appServerOptions{linkOptions: link}, repo: repo, mock: true})
		})
	}
}

// homeOfMock is a home of the mock of a version, with a repository in it.
func homeOfMock(t *testing.T, version string) (home, repo string, env []string) {
	t.Helper()
	home = t.TempDir()
	repo = filepath.Join(home, "repo")
	wantNil(t, makeGitRepo(repo, "main"))
	return home, repo, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "USERPROFILE=" + home, "CODEX_HOME=" +
		home,
		"ATM_HOME=" + filepath.Join(home, "atm"), "MOCK_CODEX_VERSION=" + version}
}

func (r driverRig) start(t *testing.T) *driven {
	t.Helper()
	d := &driven{t: t, heard: make(chan event, 10000), account: make(chan string, 100)}
	r.o.OnNews = func(method string, params json.RawMessage) { d.account <- method + " " + string(params) }
	b, err := startAppServer(context.Background(), r.o)
	wantNil(t, err)
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
			d.t.Fatalf("waited for %s; heard:\n%s", what, eventLines(d.kept))
		}
	}
}

// opens asks for a thread and returns the answer.
func (d *driven) opens(spec threadSpec) event {
	d.t.Helper()
	d.op, d.kept = d.op+1, nil
	d.b.open(d.op, spec, func(e event) { d.heard <- e })
	return d.until("the thread", func(e event) bool { return e.op == d.op })
}

func (d *driven) open(spec threadSpec) event {
	d.t.Helper()
	e := d.opens(spec)
	if e.kind != evOpened {
		d.t.Fatal(eventLine(e))
	}
	d.thread = e.thread
	return e
}

// begin sends a turn, and meanwhile what comes right after it, and returns when its id is known; end waits for its end
// and holds that there was one of each. answer is the last message.
func (d *driven) begin(c command, after ...command) (turn string) {
	d.t.Helper()
	d.op, d.kept = d.op+1, nil
	c.kind = cmdTurn
	d.b.do(d.op, d.thread, c)
	for _, next := range after {
		d.b.do(0, d.thread, next)
	}
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

// run holds a turn to its status and answer.
func (d *driven) run(what, status, answer string, c command) {
	d.t.Helper()
	d.ends(what, status, answer, d.begin(c))
}

func (d *driven) ends(what, status, answer, turn string) {
	d.t.Helper()
	if s, a := d.end(turn); !strings.Contains(status, s) || !strings.Contains(a, answer) {
		d.t.Errorf("%s: %s %q, want %s %q", what, s, a, status, answer)
	}
}

// item is the completed item of a kind in the last turn.
func (d *driven) item(kind string) *event {
	d.t.Helper()
	for i, e := range d.kept {
		if e.kind == evItem && e.phase == "completed" && e.body.kind == kind {
			return &d.kept[i]
		}
	}
	d.t.Fatalf("no %s in\n%s", kind, eventLines(d.kept))
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
		if n++; stringField(m, "id") == "" || rawField(m, "supportedReasoningEfforts") == nil ||
			rawField(m, "inputModalities") == nil {
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

	e := d.opens(threadSpec{Thread: "01999999-0000-7000-8000-000000000000", Settings: narrow})
	if e.kind != evRefused || !e.err.Missing {
		t.Errorf("a thread that is none: %s", eventLine(e))
	}
	if e := d.open(threadSpec{Settings: narrow}); e.opened.model == "" {
		t.Errorf("no model: %s", eventLine(e))
	}
	thread := d.thread
	if err := d.b.history(ctx, thread, func(e *event) error {
		return errors.New("something: " +
			eventLine(*e))
	}); err != nil {
		t.Errorf("the history of a thread never used: %v", err)
	}

	image := "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGP4z8AARwzEcQCukw/x0F8jngAAAABJRU5ErkJggg=="
	parts := []promptPart{{kind: "image", url: image}}
	d.run("an image", "completed", "seen", command{prompt: "SAY seen", parts: parts, settings: full})
	mustContain(t, string(d.item("userMessage").raw), image)

	sum := "$((40+2))"
	if rig.mock && runtime.GOOS == "windows" {
		sum = "42" // the mock's shell is cmd.exe there, which does no sums
	}
	d.run("a command", "completed", "", command{prompt: "SHELL echo out-" + sum, settings: full})
	if c := d.item("commandExecution").body; strings.TrimSpace(c.output) != "out-42" || c.exitCode == nil || *c.exitCode != 0 ||
		len(c.actions) == 0 {
		t.Errorf("%s", eventLine(*d.item("commandExecution")))
	}

	d.run("a compaction", "completed", "", command{action: actCompact, settings: full})
	d.item("contextCompaction")

	d.ends("a compaction stopped at once", "interrupted completed", "",
		d.begin(command{action: actCompact, settings: full}, command{kind: cmdInterrupt}))
	d.run("afterwards", "completed", "still here", command{prompt: "SAY still here", settings: full})

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
	mustContain(t, past, "userMessage SAY seen\n", "agentMessage still here\ncompleted\n")
	if err != nil || keeps != strings.Contains(past, "commandExecution out-42") {
		t.Errorf("history, %v:\n%s", err, past)
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
		"mute": map[string]any{"command": shell, "startup_timeout_sec": 1,
			"env": map[string]any{"MOCK_MCP_START": "fail:request timed out"}},
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
	account := func(what string, params map[string]any, notes ...string) {
		t.Helper()
		_, err := d.b.change(ctx, what, params)
		wantNil(t, err)
		for _, note := range notes {
			if got := <-d.account; !strings.HasPrefix(got, note) {
				t.Errorf("told %s, want %s", got, note)
			}
		}
	}
	account("login", map[string]any{"type": "apiKey", "apiKey": "sk-of-a-test"}, "account/login/completed ",
		`account/updated {"authMode":"apikey"`)
	_, err = d.b.change(ctx, "login", map[string]any{"type": "nonsense"})
	if !errors.As(err, &be) || !strings.Contains(be.Message, "unknown variant") {
		t.Error(err)
	}
	account("logout", nil, `account/updated {"authMode":null`)
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
			t.Run(bin.version+"/a cancelled call stops its shell",
				func(t *testing.T) { cancelledCall(mcpLab(t, bin, prog)) })
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
	mustContain(l.t, c.call("codex", map[string]any{"prompt": "SAY x"}).fault(-32005).Message,
		"has no mcp-server command")
	l.finish(c)
}

// hanging is a cancelled call that hangs: it stays open in Codex.
func (l *codexLab) hanging(c *testClient, agent, prompt string) {
	l.t.Helper()
	call := c.call("codex-reply", map[string]any{"agent_id": agent, "prompt": prompt})
	l.api.await(l.t, prompt)
	call.cancel("user")
}

// cancelThenReply: a cancelled call of Codex still reads the thread, and the
// answer to the next turn comes under its id or the new one's, as it happens.
func cancelThenReply(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY ready"}).turn()
	other := c.call("codex", map[string]any{"prompt": "SAY other"}).turn()
	for i := range 20 {
		l.hanging(c, first.AgentID, fmt.Sprintf("HANG %d", i))
		one := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": fmt.Sprintf("SAY mine %d", i)})
		two := c.call("codex-reply", map[string]any{"agent_id": other.AgentID,
			"prompt": fmt.Sprintf("SAY theirs %d", i)})
		if r := one.turn(); r.Content != fmt.Sprintf("mine %d", i) || r.ThreadID != first.ThreadID {
			t.Errorf("reply %d after a cancel: %+v", i, r)
		}
		if r := two.turn(); r.Content != fmt.Sprintf("theirs %d", i) || r.ThreadID != other.ThreadID {
			t.Errorf("reply %d of the other agent: %+v", i, r)
		}
	}
	c.noStrays()
	l.finish(c)
}

func endWithZombies(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY ready"}).turn()
	l.hanging(c, first.AgentID, "HANG on")
	if r := c.call("codex-reply", map[string]any{"agent_id": first.AgentID,
		"prompt": "SAY usable"}).turn(); r.Content != "usable" {
		t.Errorf("after the cancel: %+v", r)
	}
	l.finish(c)
}

func killedProxyMCP(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY remember-the-answer", "identity": "keeper"}).turn()
	l.hanging(c, first.AgentID, "HANG on") // so the end of its stdin alone would not end Codex
	c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY last-words"}).turn()
	wantNil(t, c.signal("KILL"))
	wantNil(t, c.waitAllGone(c.limit))
	c = l.serve(map[string]any{})
	again := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY after restart"}).turn()
	if again.AgentID != first.AgentID || again.ThreadID == first.ThreadID || again.Identity != "keeper" ||
		again.Content != "after restart" {
		t.Errorf("after kill -9: %+v, before: %+v", again, first)
	}
	mustContain(t, l.api.await(t, "SAY after restart").Prompt, "last-words") // the digest
	l.finish(c)
}

func changedSettings(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY narrow-answer", "sandbox": "read-only"}).turn()
	same := c.call("codex", map[string]any{"agent_id": first.AgentID, "prompt": "SAY same",
		"sandbox": "read-only"}).turn()
	if same.ThreadID != first.ThreadID {
		t.Errorf("nothing changed, but the thread did: %+v", same)
	}
	wide := c.call("codex", map[string]any{"agent_id": first.AgentID, "prompt": "SHELL echo hi > wide.txt\nSAY wide",
		"sandbox": "danger-full-access", "approval-policy": "never"}).turn()
	if wide.ThreadID == first.ThreadID || wide.Sandbox != "danger-full-access" || wide.Content != "wide" {
		t.Errorf("changed settings: %+v", wide)
	}
	if _, err := os.Stat(l.repo + "/wide.txt"); err != nil {
		t.Errorf("the wider sandbox does not hold: %v", err)
	}
	told := func(r modelRequest) bool { return strings.Contains(r.Prompt, "Last answer:\nsame") }
	if !slices.ContainsFunc(l.api.requests(), told) {
		t.Error("the model was not given the digest")
	}
	l.finish(c)
}

// untrustedAsks: the word is gone from 0.153's schema, and still means that
// what isn't known to be safe is asked for.
func untrustedAsks(l *codexLab) {
	t, c := l.t, l.serve(askable())
	call := c.call("codex", map[string]any{"prompt": "SHELL touch asked.txt\nSAY done", "approval-policy": "untrusted",
		"sandbox": "workspace-write"})
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
				home, repo, env := homeOfMock(t, version)
				return startClient(t, peerConfig{name: "atm-agent-mcp", path: prog, dir: repo, env: env,
					args: []string{"serve", "--backend", backend}}), home
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
				return startClient(t, peerConfig{name: "atm-agent-mcp", path: prog, dir: l.repo, env: l.env(),
					args: []string{"serve", "--codex-bin", bin.path, "--backend", backend}}), l.home
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
				t.Errorf("agents went to a fresh thread %d times, want %d: after the failure and for changed settings",
					r.moved, want)
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
	wantNil(r.c.tb, json.Unmarshal(raw, &v))
	r.steps = append(r.steps, step+": "+string(toJSON(r.neutral("", v))))
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
		r.keep(step, toJSON(m.Error))
		return turn
	}
	r.keep(step, m.Result)
	var res callResult
	_ = json.Unmarshal(m.Result, &res) // or the structuredContent is another tool's
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
			v = countTexts.ReplaceAllString(childTexts.ReplaceAllString(timeTexts.ReplaceAllString(v, "a time"),
				"(a child)"), "turns: a number")
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

	first := r.call("start", "codex", args{"prompt": "SAY first", "identity": "ann", "sandbox": "workspace-write",
		"approval-policy": "on-request"})
	ann := first.AgentID
	reply := func(step, prompt string) {
		t.Helper()
		r.call(step, "codex-reply", args{"agent_id": ann, "prompt": prompt})
	}
	reply("reply", "SAY second")
	for _, key := range []string{"threadId", "conversationId"} {
		r.call("reply by "+key, "codex-reply", args{key: first.ThreadID, "prompt": "SAY " + key})
	}
	reply("a command", "SHELL true\nSAY ran it")

	for _, answer := range []args{{"action": "accept", "content": args{}}, {"action": "decline"}, {"action": "cancel"},
		{"decision": "denied"}} {
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

	reply("the model fails", "FAIL 500 boom")
	reply("reply after a failure", "SAY well again")
	hang := c.call("codex-reply", args{"agent_id": ann, "prompt": "HANG"})
	c.awaitNote("the turn", func(m wireMessage) bool {
		return m.Method == "codex/event" && (strings.Contains(string(m.Params), `"turn/started"`) ||
			strings.Contains(string(m.Params), `"task_started"`))
	})
	hang.cancel("user")
	reply("reply after a cancel", "SAY mine")
	reply("reply after that", "SAY mine too")

	bob := r.call("a second agent", "codex", args{"prompt": "SAY hello", "identity": "bob", "sandbox": "read-only",
		"approval-policy": "never"}).AgentID
	for _, c := range []struct {
		step string
		args args
	}{
		{"one's settings changed", args{"agent_id": bob, "prompt": "SAY wider", "sandbox": "workspace-write"}},
		{"rebound without a turn", args{"agent_id": bob}},
		{"a name that is taken", args{"prompt": "SAY x", "identity": "ann"}},
		{"a bad sandbox", args{"prompt": "SAY x", "sandbox": "readonly"}},
		{"an unknown argument", args{"prompt": "SAY x", "promt": "x"}},
		{"no prompt", args{}},
		{"a cwd that is none", args{"prompt": "SAY x", "cwd": "no/such/dir"}},
		{"a role that is none", args{"prompt": "SAY x", "role": "nobody"}},
	} {
		r.call(c.step, "codex", c.args)
	}
	r.call("an agent that is none", "codex-reply", args{"agent_id": "nobody-at-all", "prompt": "SAY x"})
	r.call("status", "agent_status", args{})
	r.call("sessions", "agent_sessions", args{})
	r.call("close", "agent_close", args{"agent_id": ann})
	reply("a closed one", "SAY x")
	r.call("reopened", "codex", args{"agent_id": ann, "prompt": "SAY back"})
	r.call("close by name", "agent_close", args{"identity": "bob"})
	var tools json.RawMessage
	c.start("tools/list", args{}).result(&tools)
	r.keep("tools", tools)
	c.noStrays()
	c.finish()
}
