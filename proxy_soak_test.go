package main

// proxy_soak_test.go drives one proxy for as long as it is told to, with everything
// that clients do to it at once, and holds it to the program's invariants
// afterwards: whatever was asked was answered once, nothing is held, busy or
// running any more, files are whole, and the process is as small as it was.
// All of it runs in this process, front, hub, driver and mock Codex over pipes,
// so that goroutines can be counted. Its client is that of proxy_client_test.go.

import (
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

const (
	soakAgents  = 20 // known at once; fewer may be open
	soakOpen    = 12
	soakDrivers = 8                      // goroutines that ask
	soakRound   = 10 * time.Second       // of one proxy, at most
	soakKill    = 400 * time.Millisecond // between two deaths of the child, about
	// soakPatience is how long a driver waits for an answer: it may stand behind
	// one that never comes.
	soakPatience = 50 * time.Millisecond
)

func TestSoak(t *testing.T) {
	length, seed := pick(2*time.Second, time.Minute), testSeed(t)
	defer func() {
		if t.Failed() {
			t.Logf("repeat with %s=%d", longVar, seed)
		}
	}()
	dir := t.TempDir()
	t.Setenv("CODEX_HOME", dir)
	before := takeFootprint()
	known := &soakBook{}
	end := time.Now().Add(length)
	for round := 0; round == 0 || time.Now().Before(end) && !t.Failed(); round++ {
		restart := round%2 == 0 // or else nothing runs after a child's death but a new proxy
		s := newSoak(t, dir, restart, known, rand.New(rand.NewPCG(seed, uint64(round))))
		s.long = longTests()
		s.run(min(soakRound, max(length/2, time.Until(end))), restart)
		s.quiesce()
		s.end()
		s.checkFiles()
	}
	before.compare(t)
	t.Logf("%v: %s", length, known)
}

// run has the drivers ask until the time is up.
func (s *soak) run(length time.Duration, restart bool) {
	over := make(chan struct{})
	timer := time.AfterFunc(length, func() { close(over) })
	defer timer.Stop()
	var drivers sync.WaitGroup
	for range soakDrivers {
		rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), 1))
		drivers.Go(func() { // until over
			for {
				select {
				case <-over:
					return
				default:
				}
				s.act(rnd, over)
			}
		})
	}
	drivers.Go(func() { // kills the child, until over
		for kills := 0; ; kills++ {
			pause := time.NewTimer(soakKill)
			select {
			case <-over:
				pause.Stop()
				return
			case <-pause.C:
			}
			if restart || kills == 2 {
				s.killChild()
			}
		}
	})
	drivers.Wait()
}

// act does one thing that a client may do.
func (s *soak) act(rnd *rand.Rand, over <-chan struct{}) {
	word := "w" + strconv.Itoa(int(s.words.Add(1)))
	agent := s.known.pick(rnd)
	var c *soakCall
	switch n := rnd.IntN(100); {
	case agent == "" || n < 8 && s.known.size() < soakAgents:
		args := map[string]any{"prompt": "SAY " + word}
		if rnd.IntN(4) == 0 {
			args["identity"] = "named-" + word
		}
		c = s.tool("codex", args)
	case n < 30:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SAY " + word})
	case n < 36:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SHELLESC true\nSAY " + word})
	case n < 40:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SLOW 40 " + word})
	case n < 43:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "FLOOD 500\nSAY " + word})
	case n < 45:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "BIG 40000"})
	case n < 47:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SUBAGENT SAY sub ;; SHELLESC true\nSAY " + word})
	case n < 49:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "FAIL 500"})
	case n < 50:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "BACKGROUND exec sleep 1000\nSAY " + word})
	case n < 55:
		s.stuck(s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SAY half\n" + []string{"HANG", "SHELL exec sleep 1000"}[rnd.IntN(2)]}))
		return
	case n < 57:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "HANG", "timeout_secs": 0.05})
	case n < 63:
		prompt := []string{"SAY " + word, "SLOW 40 " + word, "SHELLESC true\nSAY " + word, "HANG"}[rnd.IntN(4)]
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": prompt, "background": true})
	case n < 68:
		c = s.tool("agent_wait", map[string]any{"agent_id": agent, "timeout_secs": 0.1})
	case n < 70:
		c = s.tool("agent_interrupt", map[string]any{"agent_id": agent})
	case n < 76:
		s.cancelOne(rnd)
		return
	case n < 84:
		s.answerOne(rnd)
		return
	case n < 88:
		c = s.tool("agent_close", map[string]any{"agent_id": agent})
	case n < 92:
		c = s.tool("codex", map[string]any{"agent_id": agent, "prompt": "SAY " + word, "tag": word})
	case n < 94:
		c = s.tool("codex", map[string]any{"agent_id": agent})
	case n < 97:
		c = s.tool("agent_status", map[string]any{})
	case n < 99:
		c = s.tool("agent_sessions", map[string]any{"limit": 30})
	case s.long && rnd.IntN(20) == 0: // the session is broken after ten seconds, and recovered by a later codex
		s.stuck(s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "IGNORE_INTERRUPT\nHANG"}))
		return
	default:
		c = s.request("tools/list", map[string]any{})
	}
	if rnd.IntN(10) > 0 {
		s.waitFor(c, soakPatience, over)
	}
}

// quiesce ends what would never end, until everything is answered; then nothing
// may be busy, and what is closed must be free.
func (s *soak) quiesce() {
	s.t.Helper()
	if !poll(s.limit, func() bool {
		for _, v := range s.busy() {
			s.waitFor(s.tool("agent_interrupt", map[string]any{"agent_id": v.ID}), s.limit, nil)
		}
		s.answerAll()
		return len(s.unanswered()) == 0 && len(s.busy()) == 0
	}) {
		s.t.Fatalf("after %v these have no answer: %s\nand %s", s.limit, strings.Join(s.unanswered(), "\n\t"), toJSON(s.busy()))
	}
	var closed []*soakCall
	for _, v := range s.sessions() { // also those whose first turn died with the child: nobody was told of them
		closed = append(closed, s.tool("agent_close", map[string]any{"agent_id": v.ID}))
	}
	for _, c := range closed {
		s.waitFor(c, s.limit, nil)
	}
	for _, v := range s.sessions() {
		if v.Here || v.Status != statusClosed {
			s.t.Errorf("%s is %s after agent_close, here: %v", v.ID, v.Status, v.Here)
		}
		if _, pid, held := s.hub.reg.holder(v.Identity); held {
			s.t.Errorf("identity %s of %s, which is closed, is held by process %d", v.Identity, v.ID, pid)
		}
	}
	status := s.ask("agent_status", map[string]any{})
	if names := rawField(status, "identities"); string(names) != "{}" {
		s.t.Errorf("every agent is closed, and these names are in use: %s", names)
	}
	s.known.forget(s.rnd)
}

// soakSession is a session as agent_sessions tells it.
type soakSession struct {
	ID       string `json:"agent_id"`
	Identity string
	Status   string
	Activity string
	Queued   int
	Here     bool `json:"open_here"`
}

func (s *soak) sessions() []soakSession {
	s.t.Helper()
	var list struct{ Sessions []soakSession }
	if err := json.Unmarshal(s.ask("agent_sessions", map[string]any{"limit": 1000}), &list); err != nil {
		s.t.Fatal(err)
	}
	return list.Sessions
}

// busy are the agents that are still at work.
func (s *soak) busy() (busy []soakSession) {
	s.t.Helper()
	for _, v := range s.sessions() {
		if v.Status == statusBusy {
			busy = append(busy, v)
		}
	}
	return busy
}

// soakBook is what the clients of all rounds know and have counted.
type soakBook struct {
	mu     sync.Mutex // guards the fields below
	agents []string

	asked, answered, cancelled, deaths, approvals int
}

func (b *soakBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%d requests, %d answers, %d cancelled, %d approvals, %d deaths of the child", b.asked, b.answered, b.cancelled, b.approvals, b.deaths)
}

func (b *soakBook) add(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.agents {
		if a == agent {
			return
		}
	}
	b.agents = append(b.agents, agent)
}

func (b *soakBook) pick(rnd *rand.Rand) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.agents) == 0 {
		return ""
	}
	return b.agents[rnd.IntN(len(b.agents))]
}

func (b *soakBook) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.agents)
}

// forget lets half of the agents go, so that the next round starts new ones.
func (b *soakBook) forget(rnd *rand.Rand) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rnd.Shuffle(len(b.agents), func(i, j int) { b.agents[i], b.agents[j] = b.agents[j], b.agents[i] })
	b.agents = b.agents[:len(b.agents)/2]
}

// soak is one proxy and its client.
type soak struct {
	*testClient
	t     *testing.T
	rnd   *rand.Rand
	known *soakBook
	root  string // agent-sessions
	hub   *hub
	long  bool // there is time for what takes ten seconds
	words atomic.Int64

	holds   sync.Mutex // guards the fields below
	asked   []*soakCall
	hanging []*soakCall
	late    []wireMessage // approvals that may be answered later
	child   func()        // kills it
}

// soakCall is one request.
type soakCall struct {
	*pendingCall
	prompt    string        // "SAY w": what the agent must say, if it completes
	done      chan struct{} // closed with the answer
	result    json.RawMessage
	cancelled bool // guarded by holds
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
	s := &soak{testClient: newTestClient(t), t: t, rnd: rnd, known: known, root: cfg.sessionsRoot}
	s.heard = s.note
	s.skip = func(raw []byte) bool { // there are too many to keep
		return bytes.HasPrefix(raw, []byte(`{"jsonrpc":"2.0","method":"codex/event"`)) || bytes.HasPrefix(raw, []byte(`{"jsonrpc":"2.0","method":"notifications/`))
	}
	h, audit := newProxyHub(cfg, quietLog(), nil)
	s.hub = h
	h.child.spawn = s.spawn
	s.servePipe("serve", func(in io.Reader, out io.Writer) {
		front := newMCPFront(mcpOptions{R: in, W: out, Log: quietLog(), Version: "test", ForwardEvents: cfg.forwardEvents, DefaultCwd: cfg.cwd,
			submit: h.submit, cancel: h.cancel, decide: h.decide, close: h.close, sessions: h.agents.list, status: h.status,
			interrupt: h.interrupt, wait: h.waits.wait, approve: h.approve, turn: h.agents.turn})
		h.front = front
		h.start()
		_ = front.run() // until the client closes its side
		h.beginStop(cfg.shutdownGrace)
		front.flush(time.Second)
		h.stop(cfg.shutdownGrace)
		front.shutdown(time.Second)
		audit.close()
	})
	s.initialize("2025-11-25", askable())
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
	s.holds.Lock()
	s.child = func() {
		stdout.CloseWithError(io.EOF)
		stdin.CloseWithError(io.ErrClosedPipe)
		toChild.Close()
	}
	s.holds.Unlock()
	a := newAppServer(fromChild, toChild, nil, appServerOptions{linkOptions: linkOptions{OnGone: gone}})
	if err := a.initialize(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

func (s *soak) killChild() {
	s.holds.Lock()
	kill := s.child
	s.child = nil
	s.holds.Unlock()
	if kill != nil {
		kill()
		s.known.mu.Lock()
		s.known.deaths++
		s.known.mu.Unlock()
	}
}

// note takes in what is asked and answered, on the reading goroutine.
func (s *soak) note(m wireMessage, call *pendingCall) {
	if m.Method == "elicitation/create" {
		s.known.mu.Lock()
		s.known.approvals++
		s.known.mu.Unlock()
		s.holds.Lock()
		s.late = append(s.late, m)
		s.holds.Unlock()
		return
	}
	if call == nil || call.about == nil {
		return
	}
	c := call.about.(*soakCall)
	c.result = m.Result
	if id := stringField(m.Result, "structuredContent", "agent_id"); id != "" {
		s.known.add(id)
	}
	prompt, says := strings.CutPrefix(c.prompt, "SAY ")
	if content := stringField(m.Result, "structuredContent", "content"); says && stringField(m.Result, "structuredContent", "turn_status") == "completed" && content != prompt {
		s.t.Errorf("%s was answered %q", c.prompt, content)
	}
	close(c.done)
}

func (s *soak) tool(name string, args map[string]any) *soakCall {
	return s.request("tools/call", map[string]any{"name": name, "arguments": args})
}

func (s *soak) request(method string, params any) *soakCall {
	c := &soakCall{prompt: stringField(toJSON(params), "arguments", "prompt"), done: make(chan struct{})}
	s.holds.Lock()
	defer s.holds.Unlock() // over the start: whoever finds the call among those asked finds it whole
	c.pendingCall = s.startAbout(c, method, params)
	c.what = method + " " + compact(params)
	s.asked = append(s.asked, c)
	return c
}

// ask waits for a tool's structured content, which there must be.
func (s *soak) ask(name string, args map[string]any) json.RawMessage {
	s.t.Helper()
	c := s.tool(name, args)
	s.waitFor(c, s.limit, nil)
	if c.isOpen() {
		s.t.Fatalf("no answer to %s within %v", c.what, s.limit)
	}
	return rawField(c.result, "structuredContent")
}

// isOpen tells whether the call has no answer yet.
func (c *soakCall) isOpen() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
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
	s.holds.Lock()
	s.hanging = append(s.hanging, c)
	s.holds.Unlock()
}

func (s *soak) cancelOne(rnd *rand.Rand) {
	s.holds.Lock()
	if len(s.hanging) == 0 {
		s.holds.Unlock()
		return
	}
	i := rnd.IntN(len(s.hanging))
	c := s.hanging[i]
	s.hanging = append(s.hanging[:i], s.hanging[i+1:]...)
	c.cancelled = true
	s.holds.Unlock()
	s.notify("notifications/cancelled", map[string]any{"requestId": c.id, "reason": "soak"})
}

// answerOne answers an approval: yes, no or nonsense. One that isn't picked in
// time is declined by the timer; an answer after that is a late one.
func (s *soak) answerOne(rnd *rand.Rand) {
	s.holds.Lock()
	if len(s.late) == 0 {
		s.holds.Unlock()
		return
	}
	i := rnd.IntN(len(s.late))
	ask := s.late[i]
	s.late = append(s.late[:i], s.late[i+1:]...)
	s.holds.Unlock()
	s.decide(ask, rnd.IntN(4))
}

func (s *soak) decide(ask wireMessage, how int) {
	result := []string{`{"action":"accept","content":{}}`, `{"action":"decline"}`, `{"action":"cancel"}`, `{"nonsense":[1]}`}[how]
	s.reply(ask, json.RawMessage(result))
}

// answerAll answers what is still asked.
func (s *soak) answerAll() {
	s.holds.Lock()
	late := s.late
	s.late = nil
	s.holds.Unlock()
	for _, ask := range late {
		s.decide(ask, 1)
	}
}

// unanswered are the requests that want an answer still.
func (s *soak) unanswered() (what []string) {
	s.holds.Lock()
	defer s.holds.Unlock()
	for _, c := range s.asked {
		if c.isOpen() && !c.cancelled {
			what = append(what, c.what)
		}
	}
	return what
}

// end hangs up and takes everything down. Then the ledger must be even.
func (s *soak) end() {
	s.t.Helper()
	s.hangup()
	if err := s.waitExit(s.limit); err != nil {
		s.t.Error(err)
	}
	s.noStrays() // a second answer is one
	s.holds.Lock()
	defer s.holds.Unlock()
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	for _, c := range s.asked {
		s.known.asked++
		switch {
		case c.cancelled:
			s.known.cancelled++
		case c.isOpen():
			s.t.Errorf("%s was never answered", c.what)
		}
		if !c.isOpen() {
			s.known.answered++
		}
	}
	t, w := s.hub.table, s.hub.waiters
	if n := len(t.agents) + len(t.threads) + len(t.names) + len(t.lines) + len(w.turns) + len(w.asks); n != 0 {
		s.t.Errorf("the hub still keeps %d agents, %d threads, %d names, %d lines, %d waiters, %d asks", len(t.agents), len(t.threads),
			len(t.names), len(t.lines), len(w.turns), len(w.asks))
	}
	if n := s.hub.letters.Load(); n != 0 {
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

// takeFootprint counts. What is made once and stays, os/signal's goroutine and the files that the runtime polls with, is
// made before.
func takeFootprint() footprint {
	early := make(chan os.Signal, 1)
	signal.Notify(early, syscall.SIGHUP)
	signal.Stop(early)
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
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
