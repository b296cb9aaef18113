package main

// proxy_soakrig_test.go owns the proxy of proxy_soak_test.go and its client: the ledger of
// what was asked and answered, the approvals that are open, the child that is
// killed, and what must be as it was when all is over. The client reads for
// itself and never decodes by the program's own peer, which forgives a second
// answer.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// soak is one proxy and its client.
type soak struct {
	t     *testing.T
	rnd   *rand.Rand
	known *soakBook
	root  string // agent-sessions
	hub   *hub
	limit time.Duration
	long  bool // there is time for what takes ten seconds
	words atomic.Int64

	in      *io.PipeWriter
	takeOff func()

	writing sync.Mutex // keeps records whole
	mu      sync.Mutex // guards the fields below
	lastID  int
	calls   map[string]*soakCall
	hanging []*soakCall
	late    []json.RawMessage // ids of approvals that may be answered later
	child   func()            // kills it
}

// soakCall is one request.
type soakCall struct {
	id, what  string
	prompt    string // "SAY w": what the agent must say, if it completes
	done      chan struct{}
	answers   int
	cancelled bool
	result    json.RawMessage
}

// newSoak starts a proxy on the state that the ones before it left.
func newSoak(t *testing.T, dir string, restart bool, known *soakBook, rnd *rand.Rand) *soak {
	t.Helper()
	env := map[string]string{"HOME": dir, "ATM_HOME": filepath.Join(dir, "atm"), "ATM_AGENT_MCP_MAX_CONCURRENT_THREADS": strconv.Itoa(soakOpen),
		"ATM_AGENT_MCP_APPROVAL_TIMEOUT_SECS": "1", "ATM_AGENT_MCP_RESTART_CHILD": strconv.FormatBool(restart)}
	cfg, err := loadConfig(func(name string) string { return env[name] }, dir, flagValues{})
	if err != nil || len(cfg.warnings) > 0 {
		t.Fatal(err, cfg.warnings)
	}
	s := &soak{t: t, rnd: rnd, known: known, root: cfg.sessionsRoot, limit: waitLimit(t), calls: map[string]*soakCall{}}
	h, audit := newProxyHub(cfg, quietLog(), nil)
	s.hub = h
	h.child.spawn = s.spawn
	toFront, fromClient := io.Pipe()
	toClient, fromFront := io.Pipe()
	s.in = fromClient
	front := newMCPFront(mcpOptions{R: toFront, W: fromFront, Log: quietLog(), Version: "test", ForwardEvents: cfg.forwardEvents, DefaultCwd: cfg.cwd,
		submit: h.submit, cancel: h.cancel, decide: h.decide, close: h.close, sessions: h.sessions, status: h.status,
		interrupt: h.interrupt, wait: h.wait, approve: h.approve, turn: h.turn})
	h.front = front
	h.start()
	var running sync.WaitGroup
	running.Go(func() { _ = front.run() })  // until the client closes its side
	running.Go(func() { s.read(toClient) }) // until the front closes its own
	s.takeOff = func() {
		fromClient.Close()
		h.settle(cfg.shutdownGrace)
		front.flush(time.Second)
		h.stop(cfg.shutdownGrace)
		front.shutdown(time.Second)
		fromFront.Close()
		audit.close()
		running.Wait()
	}
	s.answer("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo": map[string]any{"name": "soak", "version": "1"}})
	return s
}

// spawn starts a mock Codex that killChild can take away at any moment.
func (s *soak) spawn(ctx context.Context, gone func(*childDeath)) (backend, error) {
	stdin, toChild := io.Pipe()
	fromChild, stdout := io.Pipe()
	go func() { // ends with its stdin
		runCodex(context.Background(), []string{"app-server"}, stdin, stdout, io.Discard)
		stdout.Close()
		stdin.Close()
	}()
	s.mu.Lock()
	s.child = func() {
		stdout.CloseWithError(io.EOF)
		stdin.CloseWithError(io.ErrClosedPipe)
		toChild.Close()
	}
	s.mu.Unlock()
	a := newAppServer(fromChild, toChild, nil, appServerOptions{linkOptions: linkOptions{OnGone: gone}})
	if err := a.initialize(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

func (s *soak) killChild() {
	s.mu.Lock()
	kill := s.child
	s.child = nil
	s.mu.Unlock()
	if kill != nil {
		kill()
		s.known.mu.Lock()
		s.known.deaths++
		s.known.mu.Unlock()
	}
}

// read takes what the front says until it ends.
func (s *soak) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		rec, err := readRecord(in, false)
		if err != nil {
			if err != io.EOF {
				s.t.Errorf("reading: %v", err)
			}
			return
		}
		if bytes.HasPrefix(rec, []byte(`{"jsonrpc":"2.0","method":"codex/event"`)) || bytes.HasPrefix(rec, []byte(`{"jsonrpc":"2.0","method":"notifications/`)) {
			continue
		}
		var m wireMessage
		if err := json.Unmarshal(rec, &m); err != nil {
			s.t.Errorf("no JSON: %s", rec)
			continue
		}
		if m.Method == "" {
			s.answered(&m)
			continue
		}
		if m.Method != "elicitation/create" {
			continue
		}
		s.known.mu.Lock()
		s.known.approvals++
		s.known.mu.Unlock()
		s.mu.Lock()
		s.late = append(s.late, m.ID)
		s.mu.Unlock()
	}
}

func (s *soak) answered(m *wireMessage) {
	s.mu.Lock()
	c := s.calls[string(m.ID)]
	if c == nil {
		s.mu.Unlock()
		s.t.Errorf("an answer to nobody: %s %s", m.ID, m.Result)
		return
	}
	c.answers++
	c.result = m.Result
	first := c.answers == 1
	s.mu.Unlock()
	if !first {
		s.t.Errorf("%s was answered twice", c.what)
		return
	}
	if id := stringField(m.Result, "structuredContent", "agent_id"); id != "" {
		s.known.add(id)
	}
	prompt, says := strings.CutPrefix(c.prompt, "SAY ")
	if content := stringField(m.Result, "structuredContent", "content"); says && stringField(m.Result, "structuredContent", "turn_status") == "completed" && content != prompt {
		s.t.Errorf("%s was answered %q", c.what, content)
	}
	close(c.done)
}

func (s *soak) send(v any) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, err := s.in.Write(append([]byte(compact(v)), '\n')); err != nil {
		s.t.Errorf("writing: %v", err)
	}
}

func (s *soak) request(method string, params any) *soakCall {
	s.mu.Lock()
	s.lastID++
	c := &soakCall{id: strconv.Itoa(s.lastID), what: method + " " + compact(params), prompt: stringField(toJSON(params), "arguments", "prompt"), done: make(chan struct{})}
	s.calls[c.id] = c
	s.mu.Unlock()
	s.send(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(c.id), "method": method, "params": params})
	return c
}

func (s *soak) tool(name string, args map[string]any) *soakCall {
	return s.request("tools/call", map[string]any{"name": name, "arguments": args})
}

// answer waits for a result that there must be.
func (s *soak) answer(name string, args map[string]any) json.RawMessage {
	s.t.Helper()
	var c *soakCall
	if name == "initialize" {
		c = s.request(name, args)
	} else {
		c = s.tool(name, args)
	}
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.result
	case <-timer.C:
		s.t.Fatalf("no answer to %s within %v", c.what, s.limit)
		return nil
	}
}

// waitFor waits for an answer so long, or until over. Open approvals that it
// shows are given.
func (s *soak) waitFor(c *soakCall, limit time.Duration, over <-chan struct{}) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-over:
		return
	case <-timer.C:
		return // quiesce tells of what is never answered
	}
	eachElement(rawField(c.result, "structuredContent", "agents"), func(a json.RawMessage) {
		eachElement(rawField(a, "pending_approvals"), func(p json.RawMessage) {
			s.tool("agent_approve", map[string]any{"agent_id": stringField(a, "agent_id"), "approval_id": stringField(p, "approval_id"),
				"action": stringField(p, "action"), "decision": "approve"})
		})
	})
}

// stuck keeps a call that ends by a cancel only.
func (s *soak) stuck(c *soakCall) {
	s.mu.Lock()
	s.hanging = append(s.hanging, c)
	s.mu.Unlock()
}

func (s *soak) cancelOne(rnd *rand.Rand) {
	s.mu.Lock()
	if len(s.hanging) == 0 {
		s.mu.Unlock()
		return
	}
	i := rnd.IntN(len(s.hanging))
	c := s.hanging[i]
	s.hanging = append(s.hanging[:i], s.hanging[i+1:]...)
	c.cancelled = true
	s.mu.Unlock()
	s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": json.RawMessage(c.id), "reason": "soak"}})
}

// answerOne answers an approval: yes, no or nonsense. One that isn't picked in
// time is declined by the timer; an answer after that is a late one.
func (s *soak) answerOne(rnd *rand.Rand) {
	s.mu.Lock()
	if len(s.late) == 0 {
		s.mu.Unlock()
		return
	}
	i := rnd.IntN(len(s.late))
	id := s.late[i]
	s.late = append(s.late[:i], s.late[i+1:]...)
	s.mu.Unlock()
	s.reply(id, rnd.IntN(4))
}

func (s *soak) reply(id json.RawMessage, how int) {
	result := []string{`{"action":"accept","content":{}}`, `{"action":"decline"}`, `{"action":"cancel"}`, `{"nonsense":[1]}`}[how]
	s.send(map[string]any{"jsonrpc": "2.0", "id": id, "result": json.RawMessage(result)})
}

// answerAll answers what is still asked.
func (s *soak) answerAll() {
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	for _, id := range late {
		s.reply(id, 1)
	}
}

// open counts the requests that want an answer.
func (s *soak) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c.answers == 0 && !c.cancelled {
			n++
		}
	}
	return n
}

func (s *soak) openOnes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, c := range s.calls {
		if c.answers == 0 && !c.cancelled {
			fmt.Fprintf(&b, "\n\t%s %s", c.id, c.what)
		}
	}
	return b.String()
}

// end hangs up and takes everything down. Then the ledger must be even.
func (s *soak) end() {
	s.t.Helper()
	s.takeOff()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	for _, c := range s.calls {
		s.known.asked++
		s.known.answered += c.answers
		if c.cancelled {
			s.known.cancelled++
		} else if c.answers != 1 {
			s.t.Errorf("%s was answered %d times", c.what, c.answers)
		}
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if n := len(s.hub.live) + len(s.hub.threads) + len(s.hub.names) + len(s.hub.waiters) + len(s.hub.asks) + len(s.hub.lookups); n != 0 {
		s.t.Errorf("the hub still keeps %d live, %d threads, %d names, %d waiters, %d asks, %d look-ups", len(s.hub.live), len(s.hub.threads),
			len(s.hub.names), len(s.hub.waiters), len(s.hub.asks), len(s.hub.lookups))
	}
	if n := s.hub.waiting.Load(); n != 0 {
		s.t.Errorf("%d bytes of letters are counted that nobody will take", n)
	}
}

// checkFiles reads everything that was written: whole, and nothing beside it.
func (s *soak) checkFiles() {
	s.t.Helper()
	err := filepath.WalkDir(s.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := e.Name()
		data, err := os.ReadFile(path)
		switch {
		case err != nil:
			s.t.Error(err)
		case strings.HasPrefix(name, tempPrefix) || strings.Contains(name, ".corrupt-"):
			s.t.Errorf("%s was left", path)
		case strings.HasSuffix(name, ".jsonl"):
			for _, line := range bytes.Split(bytes.TrimSpace(data), []byte{'\n'}) {
				if len(line) > 0 && !json.Valid(line) {
					s.t.Errorf("%s: %q is no JSON", path, line)
				}
			}
		case strings.HasSuffix(name, ".json"):
			if !json.Valid(data) {
				s.t.Errorf("%s is no JSON: %q", path, clipText(string(data), 300))
			}
		}
		if filepath.Base(filepath.Dir(path)) == ".records" && strings.HasSuffix(name, ".json") {
			if rec, err := decodeRecord(data, agentOfFile(name)); err != nil || rec.Status == statusBusy || rec.Status == statusIdle {
				s.t.Errorf("%s after the end: %v, %s", path, err, clipText(string(data), 300))
			}
		}
		if name == "registry.json" && len(rawField(data, "sessions")) > 2 {
			s.t.Errorf("%s lists sessions, and none is open: %s", path, data)
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
}

// footprint is what this process holds.
type footprint struct {
	goroutines, files int
	heap              uint64
	children          map[int]bool
}

// takeFootprint counts. Goroutines that are born once and never end, like
// os/signal's, are born before.
func takeFootprint() footprint {
	early := make(chan os.Signal, 1)
	signal.Notify(early, syscall.SIGHUP)
	signal.Stop(early)
	f := footprint{children: map[int]bool{}}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.goroutines, f.files, f.heap = runtime.NumGoroutine(), openFiles(), m.HeapAlloc
	for _, pid := range childProcesses(os.Getpid()) {
		f.children[pid] = true
	}
	return f
}

// openFiles is 0 where there is no /proc.
func openFiles() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// compare wants everything back to what it was, soon.
func (f footprint) compare(t *testing.T) {
	t.Helper()
	limit := waitLimit(t)
	if !poll(limit, func() bool { return runtime.NumGoroutine() <= f.goroutines }) {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		t.Errorf("%d goroutines were %d before:\n%s", runtime.NumGoroutine(), f.goroutines, stacks)
	}
	if !poll(limit, func() bool { return openFiles() <= f.files }) {
		t.Errorf("%d open files were %d before", openFiles(), f.files)
	}
	var left []int
	if !poll(limit, func() bool {
		left = nil
		for _, pid := range childProcesses(os.Getpid()) {
			if !f.children[pid] {
				left = append(left, pid)
			}
		}
		return len(left) == 0
	}) {
		t.Errorf("left running:%s", describeProcesses(left))
	}
	const room = 24 << 20
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > f.heap+room {
		t.Errorf("the heap has %d KiB and had %d", m.HeapAlloc>>10, f.heap>>10)
	}
}
