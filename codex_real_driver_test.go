package main

// codex_real_driver_test.go holds the app-server driver to one conversation with
// every real Codex of CODEX_BINS, and with the mock of each of those versions: what
// an ACP front needs of it beyond turns. What they do differently stands here.

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
	if servers, err := d.b.catalog(ctx, "mcp", ""); err != nil || string(rawField(servers, "data")) != "[]" {
		t.Errorf("servers %s, %v", servers, err)
	}

	d.open(threadSpec{Settings: narrow})
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
