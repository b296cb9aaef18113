package main

// proxy_soak_test.go owns the client that does at random what clients do, with the ledger of what it was told, and
// holds one proxy to the program's invariants by it: whatever was asked was answered once, nothing is held, busy or
// running any more, files are whole, and the process is as small as it was. All of the proxy runs in this process,
// front, hub, driver and mock Codex over pipes, so that goroutines can be counted. proxy_kill_test.go has the same
// client play with processes that are killed.

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// gameLedger is what the clients of one state directory were told, over all lives of the proxy.
type gameLedger struct {
	said peerLog // the conversations, for a failure

	mu     sync.Mutex // guards the fields below, and everything in agents, turns and calls
	rnd    *rand.Rand
	words  int
	agents []*gameAgent   // as they came
	counts map[string]int // of what happened, for the log
}

// gameAgent is what clients know of one agent.
type gameAgent struct {
	id      string
	turns   []*gameTurn // as they were asked for
	ended   int         // turns that were told to have run
	closing bool        // a close is under way, or was when its proxy died
	closed  bool        // told so, and not asked for anything since
	revives int         // how often it was asked to reopen
	named   bool        // by its client: it is never parked
	touched bool        // in the life that ended last
}

// gameTurn is one turn that was asked for.
type gameTurn struct {
	word       string // what it says, "" if that isn't known
	status     string // as answered, "" while it isn't
	background bool
	id         string // of a background turn that was taken on
}

func newGameLedger(seed uint64) *gameLedger {
	return &gameLedger{rnd: rand.New(rand.NewPCG(seed, 4)), counts: map[string]int{}}
}

func (l *gameLedger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d agents, %v", len(l.agents), l.counts)
}

func (l *gameLedger) intN(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rnd.IntN(n)
}

// word is said once in all lives.
func (l *gameLedger) word() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.words++
	return "word-" + strconv.Itoa(l.words)
}

// meetLocked notes an agent that a client has heard of.
func (l *gameLedger) meetLocked(id string) *gameAgent {
	i := slices.IndexFunc(l.agents, func(a *gameAgent) bool { return a.id == id })
	if i < 0 && id != "" {
		i = len(l.agents)
		l.agents = append(l.agents, &gameAgent{id: id})
	}
	if i < 0 {
		return nil
	}
	l.agents[i].touched = true
	return l.agents[i]
}

// player is a client of one proxy.
type player struct {
	*testClient
	l      *gameLedger
	newest int // one of so many agents is asked for something

	// Guarded by the ledger's lock.
	calls   []*playedCall
	hanging []*playedCall // those that end by a cancel only
	asks    []wireMessage // approvals that nobody has answered yet
	records int           // read
	writes  int           // requests and answers written
	dieAt   int           // records after which the proxy dies, 0 for never
	dieSent int           // writes after which it dies, 0 for never
	dead    bool
}

// playedCall is one request, and what it asks for.
type playedCall struct {
	*pendingCall
	agent     *gameAgent // nil: it is new, or the call isn't about one
	turn      *gameTurn  // nil: none
	closes    bool
	revives   int // of a close: the agent's when it was asked for; a later one wins
	cancelled bool
	done      chan struct{} // closed with the answer
	m         wireMessage   // the answer
}

func newPlayer(tb testing.TB, l *gameLedger, newest int) *player {
	p := &player{testClient: newTestClient(tb), l: l, newest: newest}
	p.heard, p.mayEnd = p.note, true
	p.tap = func(ours bool, raw []byte) {
		if !bytes.Contains(raw, []byte(`"method":"codex/event"`)) { // there are too many to keep
			fmt.Fprintln(&l.said, map[bool]string{true: "<", false: ">"}[ours], clipText(string(raw), 300))
		}
	}
	return p
}

// note takes in one message on the reading goroutine, and kills the proxy if it was the one.
func (p *player) note(m wireMessage, call *pendingCall) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.records++; p.records == p.dieAt {
		p.killLocked()
	}
	switch {
	case m.Method == "elicitation/create":
		p.l.meetLocked(stringField(m.Params, "agent_id"))
		p.l.counts["approvals"]++
		if p.l.rnd.IntN(3) == 0 {
			p.asks = append(p.asks, m) // answered by a later move, or by the timer
		} else {
			p.answerLocked(m)
		}
	case m.Method != "":
		p.l.meetLocked(stringField(m.Params, "_meta", "agent_id"))
	case call != nil && call.about != nil:
		c := call.about.(*playedCall)
		c.m = m
		p.learnLocked(c)
		close(c.done)
	}
}

// learnLocked takes in what an answer tells.
func (p *player) learnLocked(c *playedCall) {
	p.l.counts["answers"]++
	if c.m.Error != nil {
		return
	}
	var r turnReply
	c.structured(&r)
	a := c.agent
	if c.turn != nil && a == nil {
		a = p.l.meetLocked(r.AgentID)
		a.turns = slices.Insert(a.turns, 0, c.turn) // its first, whatever was asked since its events told of it
	}
	switch {
	case c.turn != nil && c.turn.background:
		if r.TurnStatus != "interrupted" { // else it was stopped before it was taken on
			c.turn.id = r.TurnID
		}
	case c.turn != nil:
		a.named = a.named || strings.HasPrefix(r.Identity, "word-")
		if r.TurnID != "" { // else it was stopped before it began
			a.ended++
		}
		if c.turn.status = r.TurnStatus; r.TurnStatus == "completed" && c.turn.word != "" && r.Content != c.turn.word {
			p.tb.Errorf("%s: %s was answered %q, want %q", p.name, r.AgentID, r.Content, c.turn.word)
		}
	case c.closes && a.revives == c.revives:
		a.closed, a.closing = true, false
	}
}

// structured decodes the answer's structured content.
func (c *playedCall) structured(into any) {
	_ = json.Unmarshal(rawField(c.m.Result, "structuredContent"), into)
}

// killLocked kills the proxy, and nothing but it: what it started has to end by itself.
func (p *player) killLocked() {
	if !p.dead {
		p.dead = true
		fmt.Fprintln(&p.l.said, "killed", p.name)
		_ = p.cmd.Process.Kill()
	}
}

func (p *player) wroteLocked() {
	if p.writes++; p.writes == p.dieSent {
		p.killLocked()
	}
}

// answerLocked answers an approval: yes, no or nonsense.
func (p *player) answerLocked(ask wireMessage) {
	answers := []string{`{"action":"accept","content":{}}`, `{"action":"decline"}`, `{"action":"cancel"}`,
		`{"nonsense":[1]}`}
	p.reply(ask, json.RawMessage(answers[p.l.rnd.IntN(len(answers))]))
	p.wroteLocked()
}

// ask calls a tool, and notes what for.
func (p *player) ask(tool string, call playedCall, args ...any) *playedCall {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	c := &call
	c.done = make(chan struct{})
	if c.agent != nil {
		c.agent.touched = true
		args = append(args, "agent_id", c.agent.id)
		if c.turn != nil {
			c.agent.turns = append(c.agent.turns, c.turn)
		}
		if c.closes {
			c.agent.closing, c.revives = true, c.agent.revives
		}
	}
	p.calls = append(p.calls, c)
	p.l.counts["requests"]++
	c.pendingCall = p.startAbout(c, "tools/call", map[string]any{"name": tool, "arguments": argsOf(args)})
	c.what = tool + " " + fmt.Sprint(args...)
	p.wroteLocked()
	return c
}

// turnOf is the turn that a prompt asks for: it says the word of its last line.
func turnOf(prompt string) *gameTurn {
	_, word, _ := strings.Cut(prompt[strings.LastIndex(prompt, "\n")+1:], "SAY ")
	return &gameTurn{word: word}
}

func (p *player) begin(prompt string, more ...any) *playedCall {
	return p.ask("codex", playedCall{turn: turnOf(prompt)}, append(more, "prompt", prompt)...)
}

func (p *player) says(a *gameAgent, prompt string, more ...any) *playedCall {
	return p.ask("codex-reply", playedCall{agent: a, turn: turnOf(prompt)}, append(more, "prompt", prompt)...)
}

// revive asks a closed agent to go on.
func (p *player) revive(a *gameAgent, prompt string) *playedCall {
	p.l.mu.Lock()
	a.closed, a.closing = false, true // it may stay closed if nobody comes to it
	a.revives++
	p.l.mu.Unlock()
	if prompt == "" {
		return p.ask("codex", playedCall{agent: a})
	}
	return p.ask("codex", playedCall{agent: a, turn: turnOf(prompt)}, "prompt", prompt, "tag", prompt)
}

func (p *player) closes(a *gameAgent) *playedCall {
	return p.ask("agent_close", playedCall{agent: a, closes: true})
}

// move does one thing that a client may do, and waits for its answer so long as a client may: the call may stand behind
// one that never ends.
func (p *player) move(over <-chan struct{}) {
	const patience = 50 * time.Millisecond
	word := p.l.word()
	prompts := []string{"SAY %", "SAY %", "SAY %", "SAY %", "SHELLESC true\nSAY %", "SHELLESC true\nSAY %",
		"SLOW 40 %", "FLOOD 100\nSAY %",
		"BIG 40000", "SUBAGENT SAY sub ;; SHELLESC true\nSAY %", "FAIL 500", "BACKGROUND exec sleep 1000\nSAY %"}
	prompt := strings.ReplaceAll(prompts[p.l.intN(len(prompts))], "%", word)
	var c *playedCall
	a := p.pick()
	switch n := p.l.intN(100); {
	case a == nil || n < 12:
		var named []any
		if p.l.intN(4) == 0 {
			named = []any{"identity", word}
		}
		c = p.begin("SAY "+word, named...)
	case n < 45:
		c = p.says(a, prompt)
	case n < 52:
		c = p.ask("codex-reply", playedCall{agent: a, turn: &gameTurn{word: turnOf(prompt).word, background: true}},
			"prompt", prompt, "background", true)
	case n < 58:
		c = p.says(a, []string{"HANG", "SHELL exec sleep 1000"}[p.l.intN(2)]+"\nSAY "+word)
		p.l.mu.Lock()
		p.hanging = append(p.hanging, c)
		p.l.mu.Unlock()
		return
	case n < 60:
		c = p.says(a, "HANG", "timeout_secs", 0.05)
	case n < 66:
		c = p.ask("agent_wait", playedCall{agent: a}, "timeout_secs", 0.1)
	case n < 69:
		c = p.ask("agent_interrupt", playedCall{agent: a})
	case n < 84:
		p.settle(n < 76)
		return
	case n < 88:
		c = p.closes(a)
	case n < 93:
		c = p.revive(a, "SAY "+word)
	case n < 95:
		c = p.revive(a, "")
	case n < 97:
		c = p.ask("agent_status", playedCall{})
	default:
		c = p.ask("agent_sessions", playedCall{}, "limit", 30)
	}
	if p.l.intN(10) > 0 {
		p.waitFor(c, patience, over)
	}
}

// pick is one of the newest agents, nil if there is none.
func (p *player) pick() *gameAgent {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	newest := p.l.agents[max(0, len(p.l.agents)-p.newest):]
	if len(newest) == 0 {
		return nil
	}
	return newest[p.l.rnd.IntN(len(newest))]
}

// settle cancels a call that hangs, or answers an approval that waits; it may be too late for either.
func (p *player) settle(cancel bool) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if n := len(p.hanging); cancel && n > 0 {
		i := p.l.rnd.IntN(n)
		p.hanging[i].cancelled = true
		p.l.counts["cancelled"]++
		p.notify("notifications/cancelled", map[string]any{"requestId": p.hanging[i].id, "reason": "soak"})
		p.hanging = slices.Delete(p.hanging, i, i+1)
		p.wroteLocked()
	}
	if n := len(p.asks); !cancel && n > 0 {
		i := p.l.rnd.IntN(n)
		p.answerLocked(p.asks[i])
		p.asks = slices.Delete(p.asks, i, i+1)
	}
}

// waitFor waits for an answer, for so long, until over or the proxy's end. Approvals that the answer shows are given.
func (p *player) waitFor(c *playedCall, limit time.Duration, over <-chan struct{}) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-over:
		return
	case <-p.exited:
		return
	case <-timer.C:
		return // whoever needs the answer looks whether it is there
	}
	eachElement(rawField(c.m.Result, "structuredContent", "agents"), func(a json.RawMessage) {
		eachElement(rawField(a, "pending_approvals"), func(ask json.RawMessage) {
			p.ask("agent_approve", playedCall{}, "agent_id", stringField(a, "agent_id"), "approval_id",
				stringField(ask, "approval_id"),
				"action", stringField(ask, "action"), "decision", "approve")
		})
	})
}

// isOpen tells whether the call has no answer yet.
func (c *playedCall) isOpen() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

func TestSoak(t *testing.T) {
	const round = 10 * time.Second // of one proxy, at most
	length, seed := pick(2*time.Second, time.Minute), testSeed(t)
	defer func() {
		if t.Failed() {
			t.Logf("repeat with %s=%d", longVar, seed)
		}
	}()
	dir := t.TempDir()
	t.Setenv("CODEX_HOME", dir)
	before := takeFootprint()
	l := newGameLedger(seed)
	end := time.Now().Add(length)
	for n := 0; n == 0 || time.Now().Before(end) && !t.Failed(); n++ {
		s := newSoak(t, dir, n%2 == 0, l) // without a restart nothing runs after a child's death but a new proxy
		s.run(min(round, max(length/2, time.Until(end))))
		s.quiesce()
		s.end()
		s.checkFiles()
	}
	before.compare(t)
	t.Logf("%v: %s", length, l)
}

// soak is one proxy and its client.
type soak struct {
	*player
	t       *testing.T
	root    string // agent-sessions
	hub     *hub
	restart bool // Codex is started again after its death

	childMu   sync.Mutex // guards killChild
	killChild func()     // nil: it is dead
}

// newSoak starts a proxy on the state that the ones before it left.
func newSoak(t *testing.T, dir string, restart bool, l *gameLedger) *soak {
	t.Helper()
	env := map[string]string{"HOME": dir, "ATM_HOME": filepath.Join(dir, "atm"),
		"ATM_AGENT_MCP_MAX_CONCURRENT_THREADS": "12",
		"ATM_AGENT_MCP_APPROVAL_TIMEOUT_SECS":  "1", "ATM_AGENT_MCP_RESTART_CHILD": strconv.FormatBool(restart)}
	cfg, err := loadConfig(func(name string) string { return env[name] }, dir, flagValues{})
	if err != nil || len(cfg.warnings) > 0 {
		t.Fatal(err, cfg.warnings)
	}
	s := &soak{player: newPlayer(t, l, 16), t: t, root: cfg.sessionsRoot, restart: restart}
	s.tap = nil                      // it goes on for too long
	s.skip = func(raw []byte) bool { // there are too many to keep
		return bytes.HasPrefix(raw, []byte(`{"jsonrpc":"2.0","method":"codex/event"`)) ||
			bytes.HasPrefix(raw, []byte(`{"jsonrpc":"2.0","method":"notifications/`))
	}
	h, audit := newProxyHub(cfg, quietLog(), nil)
	s.hub = h
	h.child.spawn = s.spawn
	s.servePipe("serve", func(in io.Reader, out io.Writer) {
		front := newMCPFront(mcpOptions{clientOptions: clientOptions{R: in, W: out, Log: quietLog(), Version: "test",
			submit: h.submit, cancel: h.cancel, decide: h.decide, interrupt: h.interrupt, status: h.status},
			ForwardEvents: cfg.forwardEvents, DefaultCwd: cfg.cwd, close: h.close, sessions: h.agents.list,
			limited: h.statusWithLimits, wait: h.waits.wait, approve: h.approve, turn: h.agents.turn})
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

// spawn starts a mock Codex that can be taken away at any moment.
func (s *soak) spawn(ctx context.Context, gone func(*childDeath)) (backend, error) {
	stdin, toChild := io.Pipe()
	fromChild, stdout := io.Pipe()
	go func() { // ends with its stdin
		runCodex(context.Background(), []string{"app-server"}, stdin, stdout, io.Discard)
		stdout.Close()
		stdin.Close()
	}()
	s.childMu.Lock()
	s.killChild = func() {
		stdout.CloseWithError(io.EOF)
		stdin.CloseWithError(io.ErrClosedPipe)
		toChild.Close()
	}
	s.childMu.Unlock()
	a := newAppServer(fromChild, toChild, nil, appServerOptions{linkOptions: linkOptions{OnGone: gone}})
	if err := a.initialize(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// run has eight goroutines ask, and one kill the child, until the time is up.
func (s *soak) run(length time.Duration) {
	const betweenDeaths = 400 * time.Millisecond
	over := make(chan struct{})
	timer := time.AfterFunc(length, func() { close(over) })
	defer timer.Stop()
	var players sync.WaitGroup
	for range 8 {
		players.Go(func() { // until over
			for {
				select {
				case <-over:
					return
				default:
					s.move(over)
				}
			}
		})
	}
	if longTests() { // broken after ten seconds, and recovered by a later codex
		s.l.mu.Lock()
		last := s.l.agents[max(0, len(s.l.agents)-1):]
		s.l.mu.Unlock()
		for _, a := range last {
			s.says(a, "IGNORE_INTERRUPT\nHANG")
		}
	}
	players.Go(func() { // until over
		for deaths := 0; ; deaths++ {
			pause := time.NewTimer(betweenDeaths)
			select {
			case <-over:
				pause.Stop()
				return
			case <-pause.C:
			}
			s.childMu.Lock()
			if s.killChild != nil && (s.restart || deaths == 2) {
				s.killChild()
				s.killChild = nil
			}
			s.childMu.Unlock()
		}
	})
	players.Wait()
}

// soakSession is a session as agent_sessions tells it.
type soakSession struct {
	ID       string `json:"agent_id"`
	Identity string
	Status   string
	Here     bool `json:"open_here"`
}

// told waits for a tool's structured content, which there must be.
func (s *soak) told(tool string, into any, args ...any) {
	s.t.Helper()
	c := s.ask(tool, playedCall{}, args...)
	if s.waitFor(c, s.limit, nil); c.isOpen() {
		s.t.Fatalf("no answer to %s within %v", c.what, s.limit)
	}
	c.structured(into)
}

func (s *soak) sessions() []soakSession {
	s.t.Helper()
	var list struct{ Sessions []soakSession }
	s.told("agent_sessions", &list, "limit", 1000)
	return list.Sessions
}

// quiesce ends what would never end, until everything is answered; then nothing may be busy, and what is closed must be
// free.
func (s *soak) quiesce() {
	s.t.Helper()
	var open []string
	if !poll(s.limit, func() bool {
		open = nil
		for _, v := range s.sessions() {
			if v.Status == statusBusy {
				open = append(open, v.ID)
				s.told("agent_interrupt", nil, "agent_id", v.ID)
			}
		}
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		for _, ask := range s.asks {
			s.answerLocked(ask)
		}
		s.asks = nil
		for _, c := range s.calls {
			if c.isOpen() && !c.cancelled {
				open = append(open, c.what)
			}
		}
		return len(open) == 0
	}) {
		s.t.Fatalf("after %v these have no answer or no end: %s", s.limit, strings.Join(open, "\n\t"))
	}
	for _, v := range s.sessions() { // also those whose first turn died with the child: nobody was told of them
		s.told("agent_close", nil, "agent_id", v.ID)
	}
	for _, v := range s.sessions() {
		if v.Here || v.Status != statusClosed {
			s.t.Errorf("%s is %s after agent_close, here: %v", v.ID, v.Status, v.Here)
		}
		if _, pid, held := s.hub.reg.holder(v.Identity); held {
			s.t.Errorf("identity %s of %s, which is closed, is held by process %d", v.Identity, v.ID, pid)
		}
	}
	var status struct{ Identities map[string]any }
	if s.told("agent_status", &status); len(status.Identities) > 0 {
		s.t.Errorf("every agent is closed, and these names are in use: %v", status.Identities)
	}
}

// end hangs up and takes everything down. Then the ledger must be even.
func (s *soak) end() {
	s.t.Helper()
	s.hangup()
	if err := s.waitExit(s.limit); err != nil {
		s.t.Error(err)
	}
	s.noStrays() // a second answer is one
	for _, c := range s.calls {
		if c.isOpen() && !c.cancelled {
			s.t.Errorf("%s was never answered", c.what)
		}
	}
	t, w := s.hub.table, s.hub.waiters
	kept := []int{len(t.agents), len(t.threads), len(t.names), len(t.lines), len(w.turns),
		int(s.hub.letters.Load())}
	if slices.Max(kept) > 0 {
		s.t.Errorf("of agents, threads, names, lines, waiters, bytes of letters the hub still keeps %v", kept)
	}
}

// checkFiles reads everything that was written: whole, and nothing beside it.
func (s *soak) checkFiles() {
	s.t.Helper()
	wantNil(s.t, filepath.WalkDir(s.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := e.Name()
		data, err := os.ReadFile(path)
		lines := [][]byte{data}
		if strings.HasSuffix(name, ".jsonl") {
			lines = bytes.Split(bytes.TrimSpace(data), []byte{'\n'})
		}
		for _, line := range lines {
			if strings.Contains(filepath.Ext(name), ".json") && len(line) > 0 && !json.Valid(line) {
				s.t.Errorf("%s is no JSON: %q", path, clipText(string(line), 300))
			}
		}
		if strings.HasPrefix(name, tempPrefix) || strings.Contains(name, ".corrupt-") {
			s.t.Errorf("%s was left", path)
		}
		if filepath.Base(filepath.Dir(path)) == ".records" && strings.HasSuffix(name, ".json") {
			if rec, err := decodeRecord(data, agentOfFile(name)); err != nil || rec.Status == statusBusy ||
				rec.Status == statusIdle {
				s.t.Errorf("%s after the end: %v, %s", path, err, clipText(string(data), 300))
			}
		}
		if name == "registry.json" && len(rawField(data, "sessions")) > 2 {
			s.t.Errorf("%s lists sessions, and none is open: %s", path, data)
		}
		return err
	}))
}

// footprint is what this process holds.
type footprint struct {
	goroutines, files int
	heap              uint64
	children          []int
}

// takeFootprint counts. What is made once and stays, os/signal's goroutine and the files that the runtime polls with,
// is made before.
func takeFootprint() (f footprint) {
	early := make(chan os.Signal, 1)
	signal.Notify(early, syscall.SIGHUP)
	signal.Stop(early)
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), openFiles(), m.HeapAlloc, childProcesses(os.Getpid())}
}

// openFiles is 0 where there is no /proc.
func openFiles() int {
	if !hasProcFS() {
		return 0
	}
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// compare wants everything back to what it was, soon.
func (f footprint) compare(t *testing.T) {
	t.Helper()
	const room = 24 << 20 // bytes of the heap
	var now footprint
	var left []int
	if !poll(waitLimit(t), func() bool {
		now = takeFootprint()
		left = slices.DeleteFunc(now.children, func(pid int) bool { return slices.Contains(f.children, pid) })
		return now.goroutines <= f.goroutines && now.files <= f.files && now.heap <= f.heap+room && len(left) == 0
	}) {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		t.Errorf("before: %+v, now: %+v, left running:%s\n%s", f, now, describeProcesses(left), stacks)
	}
}
