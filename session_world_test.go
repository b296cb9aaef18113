package main

// session_world_test.go owns the world in one process, in a synctest bubble: a client, the MCP front, the hub, the
// app-server driver and the mock Codex over pipes; or, for clients with sessions of their own names (ACP), the same
// with a front that only notes what it is told. Nothing in it is a process, so the clock is fake: a test of five
// minutes takes a millisecond, and a time limit can be held to the second. What users do stands in testdata/script.

import (
	"context"
	"encoding/json"
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

const noElicitation, elicits = `{}`, `{"elicitation":{}}`

// world is one client with its proxy.
type world struct {
	t     *testing.T
	cfg   *config
	hub   *hub
	began time.Time
	log   string // MOCK_CODEX_LOG: what the child was sent
	calls *peer
	out   *pausableReader
	heard func(rec []byte) // told of every record that the client gets; or nil

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

// inBubble runs f with a world that has no hub yet. settings are configuration keys.
func inBubble(t *testing.T, settings map[string]string, f func(w *world)) {
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
		if err != nil || len(cfg.warnings) > 0 {
			t.Fatalf("%v, warnings: %q", err, cfg.warnings)
		}
		f(&world{t: t, cfg: cfg, log: logPath, began: time.Now()})
	})
}

// inWorld runs f in a world with the MCP front. caps are the client's capabilities.
// Processes never run in it: no SHELL that is approved.
func inWorld(t *testing.T, settings map[string]string, caps string, f func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, settings, func(w *world) {
		defer w.build(w.cfg)()
		w.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+caps+
			`,"clientInfo":{"name":"world","version":"1"}}`).ok(w.t)
		f(w.t, w)
	})
}

// newHub makes the world's hub.
func (w *world) newHub(cfg *config) *auditLog {
	h, audit := newProxyHub(cfg, slog.New(slog.DiscardHandler), nil)
	h.child.spawn = spawnMock
	// A bubble can't wait for the kernel: mail is polled for.
	h.mail.newWatcher = func() (*watcher, error) { return nil, errNoWatch }
	w.hub = h
	return audit
}

// build wires everything and returns what takes it down.
func (w *world) build(cfg *config) func() {
	log := slog.New(slog.DiscardHandler)
	audit := w.newHub(cfg)
	h := w.hub
	toFront, fromClient := io.Pipe()
	toClient, fromFront := io.Pipe()
	front := newMCPFront(mcpOptions{clientOptions: clientOptions{R: toFront, W: fromFront, Names: cfg.names, Log: log, Version: "test",
		submit: h.submit, cancel: h.cancel, decide: h.decide, interrupt: h.interrupt, status: h.status},
		ForwardEvents: cfg.forwardEvents, DefaultCwd: cfg.cwd, close: h.close, review: h.review,
		sessions: h.agents.list,
		limited:  h.statusWithLimits, wait: h.waits.wait, approve: h.approve, turn: h.agents.turn,
		mailAs: h.team.caller, atm: h.runTool, setMail: h.setMail, ownMail: h.mail.own})
	h.front = front
	h.start()
	w.out = newPausableReader(toClient)
	w.calls = newPeer(w.out, fromClient, peerOptions{mode: framingNewline, handle: w.handle, trace: w.trace()})
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

// trace is what the client's stream is told to, nil where nobody listens.
func (w *world) trace() func(dir string, rec []byte) {
	if w.heard == nil {
		return nil
	}
	return func(dir string, rec []byte) {
		if dir == "<" {
			w.heard(rec)
		}
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
	return w.request("tools/call", string(toJSON(map[string]any{"name": name, "arguments": m,
		"_meta": map[string]any{"progressToken": name}})))
}

// agent starts an agent, and returns its id.
func (w *world) agent(prompt string) string {
	w.t.Helper()
	return resultField(w.tool("codex", "prompt", prompt).ok(w.t), "agent_id")
}

// named starts an agent of an identity, and returns its id.
func (w *world) named(identity, prompt string) string {
	w.t.Helper()
	return resultField(w.tool("codex", "identity", identity, "prompt", prompt).ok(w.t), "agent_id")
}

// reply sends an agent a prompt.
func (w *world) reply(agent, prompt string) *worldCall {
	return w.tool("codex-reply", "agent_id", agent, "prompt", prompt)
}

// resultField is a field of a tool's result.
func resultField(result json.RawMessage, key string) string {
	return stringField(result, "structuredContent", key)
}

// wait waits for the answer. In a bubble the clock runs on to the next timer whenever everybody waits: a call that is
// never answered fails after two hours of it, since timers that start one another would drive the clock on for ever.
func (c *worldCall) wait() worldAnswer {
	select {
	case a := <-c.got:
		return a
	case <-time.After(2 * time.Hour):
		return worldAnswer{err: &rpcError{Message: "the call had no answer within two hours"}}
	}
}

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

// after lets the clock run, and then everything that it set off.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// is holds what was got to what was wanted: values of one type that compare.
func (w *world) is(what string, got, want any) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// view is a session as agent_sessions tells it.
func (w *world) view(agent string) sessionView {
	w.t.Helper()
	synctest.Wait() // what was told a moment ago is shown
	return w.hub.agents.view(agent)
}

// wantStatus holds an agent to the word that agent_sessions has for it.
func (w *world) wantStatus(agent, want string) {
	w.t.Helper()
	synctest.Wait()
	for _, v := range w.hub.agents.list(0) {
		if v.AgentID == agent && v.Status != want {
			w.t.Fatalf("status %q, want %q", v.Status, want)
		}
	}
	w.is("status", w.view(agent).Status, want)
}

// record is a session's record as it is on disk.
func (w *world) record(agent string) *record {
	w.t.Helper()
	rec, err := w.hub.reg.load(agent)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// params is what the child was sent by a method, newest last.
func (w *world) params(method string) (all []json.RawMessage) {
	w.t.Helper()
	synctest.Wait()
	for line := range strings.Lines(readText(w.t, w.log)) {
		if stringField(json.RawMessage(line), "method") == method {
			all = append(all, rawField(json.RawMessage(line), "params"))
		}
	}
	return all
}

// sent counts the requests of a method that reached the child.
func (w *world) sent(method string) int {
	w.t.Helper()
	return len(w.params(method))
}

// lastSent is the newest of them.
func (w *world) lastSent(method string) json.RawMessage {
	w.t.Helper()
	all := w.params(method)
	if len(all) == 0 {
		w.t.Fatalf("the child was sent no %s", method)
	}
	return all[len(all)-1]
}

// gate is what a turn's GATE waits for.
func (w *world) gate() (path string, open func()) {
	path = filepath.Join(w.t.TempDir(), "gate")
	return path, func() { wantNil(w.t, os.WriteFile(path, nil, 0o600)) }
}

// hold keeps an agent's session busy with nothing until release is called: what comes meanwhile, comes at once.
func (w *world) hold(agent string) (s *session, release func()) {
	s = w.hub.table.agent(agent)
	gate := make(chan struct{})
	s.box.do(func() { <-gate })
	return s, func() { close(gate) }
}

// childDies ends the child that an agent's session has.
func (w *world) childDies(agent string) {
	s, was := w.hub.table.agent(agent), make(chan backend, 1)
	s.box.do(func() { was <- s.place.be })
	(<-was).stop(0)
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

// about checks a time against what it should be, with room for the moments in which events pass, which the fake clock
// takes no time for but pieces of an answer do.
func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < 0 || d > 100*time.Millisecond {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

// clientWorld is a world whose client has sessions of its own names, in a repository. Its restarts are real ones:
// another hub over the same files, and another child.
type clientWorld struct {
	*world
	end   func()
	cwd   string
	notes *clientNotes
}

// clientNotes is a front that notes what it is told.
type clientNotes struct {
	mu    sync.Mutex // guards the fields below
	last  waiterID
	waits map[waiterID]chan turnResult
	ended []waiterID // in the order of their results
}

func (n *clientNotes) event(agentRef, waiterID, *event) bool { return true }

func (n *clientNotes) ask(agentRef, waiterID, approval) bool { return true }

func (n *clientNotes) askGone(agentRef, string, string) {}

func (n *clientNotes) done(w waiterID, r turnResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = append(n.ended, w)
	n.waits[w] <- r // twice: it has room for one, so a second answer is a deadlock that synctest reports
}

func (n *clientNotes) waiter() (waiterID, chan turnResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	n.waits[n.last] = make(chan turnResult, 1)
	return n.last, n.waits[n.last]
}

// inClientWorld runs f in such a world.
func inClientWorld(t *testing.T, settings map[string]string, f func(t *testing.T, w *clientWorld)) {
	t.Helper()
	inBubble(t, settings, func(inner *world) {
		w := &clientWorld{world: inner, cwd: filepath.Join(filepath.Dir(inner.log), "repo"),
			notes: &clientNotes{waits: map[waiterID]chan turnResult{}}}
		plant(w.t, w.cwd, map[string]string{".git/objects/": "", ".git/refs/": "",
			".git/HEAD": "ref: refs/heads/main\n"})
		w.cfg.restartChild, w.cfg.noSummaries = true, true
		w.start()
		defer func() { w.end() }()
		f(w.t, w)
	})
}

func (w *clientWorld) start() {
	audit := w.newHub(w.cfg)
	h := w.hub
	h.front = w.notes
	h.start()
	w.end = func() {
		h.stop(time.Second)
		audit.close()
	}
}

// restart ends the process and starts another.
func (w *clientWorld) restart() {
	w.end()
	w.start()
}

// submit asks for a turn of the session, as an editor does: with all it knows.
func (w *clientWorld) submit(req turnRequest) (waiterID, chan turnResult) {
	id, got := w.notes.waiter()
	w.hub.submit(req, id)
	return id, got
}

// birth is the request of session/new, and the id that the client gets for it.
func (w *clientWorld) birth(session string) turnRequest {
	return turnRequest{mode: modeNew, agentID: w.hub.reg.newAgentID(), cwd: w.cwd, approvals: "client",
		client: &clientBirth{session: session}}
}

// born is a session of the client that has answered "hello" to a prompt; none where that is "".
func (w *clientWorld) born(session, prompt string) turnRequest {
	w.t.Helper()
	req := w.birth(session)
	w.good(req)
	if prompt != "" {
		w.says(again(req, prompt), "hello")
	}
	return req
}

// again makes of that the request of a prompt, or of session/load without one.
func again(born turnRequest, prompt string) turnRequest {
	born.mode, born.ref, born.agentID, born.prompt, born.run = modeRevive, born.agentID, "", prompt, prompt != ""
	return born
}

// good waits for a result that is none of our errors.
func (w *clientWorld) good(req turnRequest) turnResult {
	w.t.Helper()
	_, got := w.submit(req)
	r := <-got
	if r.err != nil {
		w.t.Fatalf("error %d: %s", r.err.Code, r.err.Message)
	}
	return r
}

func (w *clientWorld) bad(req turnRequest, code int, words string) {
	w.t.Helper()
	_, got := w.submit(req)
	if r := <-got; r.err == nil || r.err.Code != code || !strings.Contains(r.err.Message, words) {
		w.t.Fatalf("got %+v, want error %d with %q", r, code, words)
	}
}

// says waits for an answer.
func (w *clientWorld) says(req turnRequest, want string) {
	w.t.Helper()
	if r := w.good(req); r.Content != want || len(r.Notes) > 0 {
		w.t.Fatalf("got %q with notes %q, want %q", r.Content, r.Notes, want)
	}
}
