package main

// session_world_test.go owns the world in one process: a client, the MCP front, the hub,
// the app-server driver and the mock Codex over pipes, in a synctest bubble.
// Nothing in it is a process, so the clock is fake: a test of five minutes takes
// a millisecond, and a time limit can be held to the second. Tests of time and
// order use it (session_turn_test.go); what users do stands in testdata/script.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// world is one client with its proxy.
type world struct {
	t     *testing.T
	hub   *hub
	began time.Time
	log   string // MOCK_CODEX_LOG: what the child was sent
	calls *peer
	out   *pausableReader

	mu    sync.Mutex // guards the fields below
	notes []worldNote
	asked []json.RawMessage // ids of open elicitations
}

// worldNote is one notification that the client got.
type worldNote struct {
	at     time.Duration
	method string
	params json.RawMessage
}

// worldAnswer is one answer that the client got.
type worldAnswer struct {
	at     time.Duration
	result json.RawMessage
	err    *rpcError
}

// inWorld runs f in a world. settings are configuration keys; caps the client's
// capabilities. Processes never run in it: no SHELL that is approved.
func inWorld(t *testing.T, settings map[string]string, caps string, f func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	env := map[string]string{"HOME": dir, "ATM_HOME": filepath.Join(dir, "atm")}
	for key, val := range settings {
		env["ATM_AGENT_MCP_"+strings.ToUpper(key)] = val
	}
	logPath := filepath.Join(dir, "log.jsonl")
	t.Setenv("CODEX_HOME", dir)
	t.Setenv("MOCK_CODEX_LOG", logPath)
	// os/signal's own goroutine must not be born in a bubble: it never ends.
	early := make(chan os.Signal, 1)
	signal.Notify(early, syscall.SIGHUP)
	signal.Stop(early)
	synctest.Test(t, func(t *testing.T) {
		cfg, err := loadConfig(func(name string) string { return env[name] }, dir, flagValues{})
		if err != nil {
			t.Fatal(err)
		}
		if len(cfg.warnings) > 0 {
			t.Fatalf("warnings: %q", cfg.warnings)
		}
		w := &world{t: t, log: logPath, began: time.Now()}
		defer w.build(cfg)()
		w.request("initialize", fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":%s,"clientInfo":{"name":"world","version":"1"}}`, caps)).ok(t)
		f(w)
	})
}

// build wires everything and returns what takes it down.
func (w *world) build(cfg *config) func() {
	log := slog.New(slog.DiscardHandler)
	h, audit := newProxyHub(cfg, log, nil)
	w.hub = h
	h.child.spawn = spawnMock
	h.mail.newWatcher = func() (*watcher, error) { return nil, errNoWatch } // a bubble can't wait for the kernel: mail is polled for
	toFront, fromClient := io.Pipe()
	toClient, fromFront := io.Pipe()
	front := newMCPFront(mcpOptions{R: toFront, W: fromFront, Log: log, Version: "test", ForwardEvents: cfg.forwardEvents, DefaultCwd: cfg.cwd,
		submit: h.submit, cancel: h.cancel, decide: h.decide, close: h.close, sessions: h.agents.list, status: h.status,
		interrupt: h.interrupt, wait: h.waits.wait, approve: h.approve, turn: h.agents.turn,
		mailAs: h.team.caller, atm: h.runTool, setMail: h.setMail, ownMail: h.mail.own})
	h.front = front
	h.start()
	w.out = newPausableReader(toClient)
	w.calls = newPeer(w.out, fromClient, peerOptions{mode: framingNewline, handle: w.handle})
	var running sync.WaitGroup
	running.Go(func() { _ = front.run() })   // until the client closes its side
	running.Go(func() { _ = w.calls.run() }) // until the front closes its own
	return func() {
		w.calls.closeOut(time.Second)
		fromClient.Close()
		h.stop(time.Second)
		front.shutdown(time.Second)
		fromFront.Close()
		audit.close()
		running.Wait()
	}
}

// spawnMock starts a mock Codex in a goroutine, which ends with its stdin.
func spawnMock(ctx context.Context, gone func(*childDeath)) (backend, error) {
	stdin, toChild := io.Pipe()
	fromChild, stdout := io.Pipe()
	go func() {
		runCodex(context.Background(), []string{"app-server"}, stdin, stdout, io.Discard)
		stdout.Close()
		stdin.Close()
	}()
	a := newAppServer(fromChild, toChild, nil, appServerOptions{linkOptions: linkOptions{OnGone: gone}})
	if err := a.initialize(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

func (w *world) handle(m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, worldNote{time.Since(w.began), m.method, m.params})
	if m.isRequest() {
		w.asked = append(w.asked, m.id)
	}
}

// worldCall is a request under way.
type worldCall struct {
	id  int64
	got chan worldAnswer
}

func (w *world) request(method, params string) *worldCall {
	c := &worldCall{got: make(chan worldAnswer, 1)}
	c.id = w.calls.call(method, json.RawMessage(params), 0, func(res json.RawMessage, err error) {
		ans := worldAnswer{at: time.Since(w.began), result: res}
		if err != nil {
			re, ok := err.(*rpcError)
			if !ok {
				re = &rpcError{Message: err.Error()}
			}
			ans.err = re
		}
		c.got <- ans
	})
	return c
}

// tool calls a tool; the arguments are pairs of key and value.
func (w *world) tool(name string, args ...any) *worldCall {
	m := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		m[args[i].(string)] = args[i+1]
	}
	return w.request("tools/call", string(toJSON(map[string]any{"name": name, "arguments": m, "_meta": map[string]any{"progressToken": name}})))
}

// agent starts an agent that has said hello, and returns its id.
func (w *world) agent(prompt string) string {
	return stringField(w.tool("codex", "prompt", prompt).ok(w.t), "structuredContent", "agent_id")
}

// wait waits for the answer. In a bubble the clock runs on to the next timer
// whenever everybody waits, so a call that is never answered is a deadlock
// that synctest reports.
func (c *worldCall) wait() worldAnswer { return <-c.got }

// ok waits for a result.
func (c *worldCall) ok(t *testing.T) json.RawMessage {
	t.Helper()
	a := c.wait()
	if a.err != nil {
		t.Fatalf("error %d: %s", a.err.Code, a.err.Message)
	}
	return a.result
}

// fails waits for an error of a code whose message has all the words.
func (c *worldCall) fails(t *testing.T, code int, words ...string) worldAnswer {
	t.Helper()
	a := c.wait()
	if a.err == nil {
		t.Fatalf("want error %d, got %s", code, a.result)
	}
	if a.err.Code != code {
		t.Fatalf("want error %d, got %d: %s", code, a.err.Code, a.err.Message)
	}
	for _, word := range words {
		if !strings.Contains(a.err.Message, word) {
			t.Errorf("message has no %q: %s", word, a.err.Message)
		}
	}
	return a
}

// now is the time since the world began.
func (w *world) now() time.Duration { return time.Since(w.began) }

// status is the word agent_sessions has for an agent.
func (w *world) status(agent string) string {
	w.t.Helper()
	synctest.Wait() // what was told a moment ago is shown
	res := w.tool("agent_sessions").ok(w.t)
	var word string
	eachElement(rawField(res, "structuredContent", "sessions"), func(s json.RawMessage) {
		if stringField(s, "agent_id") == agent {
			word = stringField(s, "status")
		}
	})
	return word
}

// sent counts the requests of a method that reached the child.
func (w *world) sent(method string) int {
	w.t.Helper()
	data, err := os.ReadFile(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Count(string(data), `"method":"`+method+`"`)
}

// times are when notifications of a method came.
func (w *world) times(method string) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []time.Duration
	for _, n := range w.notes {
		if n.method == method {
			out = append(out, n.at)
		}
	}
	return out
}

// about checks a time against what it should be, with room for the moments in
// which events pass, which the fake clock takes no time for but pieces of an
// answer do.
func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < 0 || d > 100*time.Millisecond {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}
