package main

// proxy_kill_test.go ends the program by every way there is, and holds that nothing is
// lost which a client was told (FR-7, invariants 4 and 5). By kill -9: one state
// directory lives through more than a hundred proxies, each killed at a point that a
// seeded generator picks by counting records and requests, never by time; the next
// proxy must know every agent, have its identity and thread to give, and its last
// answer. The client keeps the ledger of what it was told, and its reading goroutine
// kills, so that a kill comes between two records. By signal and end of input: with
// ten agents at work, TestShutdownOfTenBusyAgents.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// silence is a command whose approval the client never answers.
const silence = "echo silence"

// kills is how many proxies die in one run of the test, for each backend.
const (
	killsAppServer, killsAppServerLong = 10, 70
	killsMCPServer, killsMCPServerLong = 5, 35
)

func TestKillAtRandomPoints(t *testing.T) {
	t.Parallel()
	needProcFS(t)
	bin := programPath(t)
	seed := testSeed(t)
	for _, tt := range []struct {
		backend string
		kills   int
		env     []string
	}{
		{"app-server", pick(killsAppServer, killsAppServerLong), nil},
		{"mcp-server", pick(killsMCPServer, killsMCPServerLong), []string{"MOCK_CODEX_VERSION=0.153.0"}},
	} {
		t.Run(tt.backend, func(t *testing.T) {
			g := newKillGame(t, bin, tt.backend, seed, tt.env)
			defer func() {
				if t.Failed() {
					t.Logf("repeat with %s=%d; said at the end:\n%s", longVar, seed, strings.Join(g.said, "\n"))
				}
			}()
			for life := range tt.kills {
				g.live(life)
				if t.Failed() {
					return
				}
			}
			g.lastLife()
			t.Logf("%d kills, %d agents, %d answers, %d turns cut short", tt.kills, len(g.agents), g.answers, g.cut)
		})
	}
}

// After kill -9 nobody who died stays in the team, whatever becomes of their
// names, and no first call is told that one of them is still in use: the sweep
// used to look at leases that the marking of stale sessions held just then.
func TestKillLeavesNoMember(t *testing.T) {
	t.Parallel()
	needProcFS(t)
	kills := pick(3, 60)
	home := t.TempDir()
	env := []string{"HOME=" + home, "ATM_HOME=" + home, "CODEX_HOME=" + home, "MOCK_CODEX_VERSION=", "GORACE=atexit_sleep_ms=10"}
	path := writeTeam(t, filepath.Join(home, ".claude", "teams"), "default", `{"name":"default","members":[{"name":"team-lead","agentType":"team-lead"}]}`)
	members := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := parseRoster(data)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range r.named {
			names = append(names, m.name)
		}
		return strings.Join(names, " ")
	}
	start := func(v *mailVictim, want string, args map[string]any) string {
		t.Helper()
		args["prompt"] = "SAY hello"
		got := v.tool("codex", args)
		if v.fault != nil {
			t.Fatalf("the first call after a kill: %s", v.fault)
		}
		if name := stringField(got, "identity"); name != want {
			t.Fatalf("%s was answered, want %s", got, want)
		}
		return stringField(got, "agent_id")
	}
	for range kills {
		v := startMailVictim(t, env)
		ann := start(v, "ann", map[string]any{"identity": "ann"})
		start(v, "bob", map[string]any{"identity": "bob"})
		if !poll(waitLimit(t), func() bool { return members() == "team-lead ann bob" || members() == "team-lead bob ann" }) {
			t.Fatalf("members are %s", members())
		}
		v.kill()
		next, beside := startMailVictim(t, env), startMailVictim(t, env) // both mark, both sweep
		start(next, "ann", map[string]any{"agent_id": ann})
		start(beside, "bob", map[string]any{"identity": "bob"})
		for _, v := range []*mailVictim{next, beside} {
			v.kill()
		}
		last := startMailVictim(t, env)
		if !poll(waitLimit(t), func() bool { return members() == "team-lead" }) {
			t.Fatalf("of the dead there are still members: %s", members())
		}
		last.kill()
	}
	t.Logf("%d kills, nobody left behind, no conflict", 4*kills)
}

// killGame is a state directory and what its clients were told.
type killGame struct {
	t    *testing.T
	bin  string
	args []string
	env  []string
	root string // agent-sessions
	cwd  string

	mu     sync.Mutex // guards the fields below and everything in a killAgent, against the reading goroutine
	rnd    *rand.Rand
	agents map[string]*killAgent
	order  []*killAgent // as they came
	words  int

	answers, cut int // for the log

	saying sync.Mutex // guards said
	said   []string   // the end of the conversations, for a failure
}

// killAgent is what the client knows of one agent, over all lives.
type killAgent struct {
	id      string
	turns   []*killTurn // as they were asked for
	ended   int         // turns that were told to have run
	stuck   bool        // asked for something that ends by itself never
	closing bool        // a close is under way, or was when its proxy died
	closed  bool        // told so, and not asked for anything since
	later   []laterTurn // background turns that were taken on, newest last
	revives int         // how often it was asked to reopen
	named   bool        // by its client: it is never parked
	touched bool        // in the life that ended last
}

// laterTurn is a background turn that was taken on.
type laterTurn struct {
	id    string
	asked int // how many turns its agent had been asked for by then
}

// killTurn is one turn that was asked for.
type killTurn struct {
	word   string // what it says
	status string // as answered, "" while it isn't
	later  bool   // a background turn
}

func newKillGame(t *testing.T, bin, backend string, seed uint64, env []string) *killGame {
	dir := t.TempDir()
	g := &killGame{t: t, rnd: rand.New(rand.NewPCG(seed, 4)), bin: bin, agents: map[string]*killAgent{},
		root: filepath.Join(dir, "atm", ".config", "atm", "agent-sessions"), cwd: filepath.Join(dir, "work")}
	for _, d := range []string{"home", "atm", "codex", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g.args = []string{"serve", "--backend", backend}
	g.env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "ATM_HOME=" + filepath.Join(dir, "atm"),
		"CODEX_HOME=" + filepath.Join(dir, "codex"), "ATM_AGENT_MCP_MAX_CONCURRENT_THREADS=3"}, env...)
	return g
}

// live is one proxy: it is held to what was told before, used, and killed.
func (g *killGame) live(n int) {
	g.t.Helper()
	g.leasesFree()
	c := g.startClient(fmt.Sprintf("life %d", n))
	defer c.stop()
	if g.rnd.IntN(10) > 0 { // else it dies before anybody has looked
		g.recovered(c)
		if g.t.Failed() {
			return
		}
	}
	for _, a := range g.agents {
		a.touched, a.stuck = false, false
	}
	c.armKill()
	c.play()
	c.kill()
	if err := c.waitAllGone(c.limit); err != nil {
		g.t.Errorf("life %d: %v", n, err)
	}
	c.noStrays()
	for _, call := range c.turns {
		if !call.got {
			g.cut++
		}
	}
}

// lastLife looks once more, at every agent, and ends as a client does.
func (g *killGame) lastLife() {
	g.t.Helper()
	for _, a := range g.agents {
		a.touched = true
	}
	g.leasesFree()
	c := g.startClient("the last life")
	defer c.stop()
	g.recovered(c)
	c.hangup()
	if err := c.waitAllGone(c.limit); err != nil {
		g.t.Error(err)
	}
}

// leasesFree looks at the files as another process does: nobody holds any
// name, and every record is what its client was told, or newer.
func (g *killGame) leasesFree() {
	g.t.Helper()
	reg := newRegistry(g.root, "default", false, quietLog())
	defer reg.close(context.Background())
	for _, a := range g.order {
		rec, err := reg.load(a.id)
		if err != nil {
			g.t.Errorf("the record of %s, whom a client was told of: %v", a.id, err)
			continue
		}
		held, pid := false, 0
		// A child between its fork and its exec has its parent's files for a moment.
		if !poll(waitLimit(g.t), func() bool { _, pid, held = reg.holder(rec.Identity); return !held }) {
			g.t.Errorf("identity %s of %s is held by process %d, and all are dead", rec.Identity, a.id, pid)
		}
		g.compare(a, rec)
	}
}

// compare holds a record to what the agent's client was told: nothing of it is
// lost, whatever came after it.
func (g *killGame) compare(a *killAgent, rec *record) {
	g.t.Helper()
	if rec.Turns < a.ended {
		g.t.Errorf("%s: the record tells of %d turns, the client of %d", a.id, rec.Turns, a.ended)
	}
	if a.closed && rec.Status != statusClosed {
		g.t.Errorf("%s was told to be closed, its record says %s", a.id, rec.Status)
	}
	last, known := "", []*killTurn{}
	for _, turn := range a.turns { // the last that was told, and all that may have come behind it
		if turn.status == "completed" {
			last = turn.word
			known = slices.DeleteFunc(known, func(t *killTurn) bool { return !t.later }) // a background turn may be overtaken while its name is written
		}
		known = append(known, turn)
	}
	if last == "" {
		return
	}
	if !slices.ContainsFunc(known, func(t *killTurn) bool { return t.word == rec.Digest.LastAnswer }) {
		g.t.Errorf("%s: the record's last answer is %q, the client was told %q", a.id, rec.Digest.LastAnswer, last)
	}
	if len(known) == 1 && !a.closing && (rec.LastTurnStatus != "completed" || rec.Interrupted) {
		g.t.Errorf("%s: its last turn was told to be completed, the record says %q, interrupted %v", a.id, rec.LastTurnStatus, rec.Interrupted)
	}
}

// recovered asks a fresh proxy for everything that a client was ever told of.
func (g *killGame) recovered(c *killClient) {
	g.t.Helper()
	var list struct {
		Sessions []struct {
			ID     string `json:"agent_id"`
			Status string `json:"status"`
			Here   bool   `json:"open_here"`
		} `json:"sessions"`
	}
	c.wait(c.ask("agent_sessions", map[string]any{"limit": 1000}, killCall{})).structured(&list)
	told := map[string]string{}
	for _, s := range list.Sessions {
		told[s.ID] = s.Status
		if s.Here || s.Status == statusBusy || s.Status == statusIdle {
			g.t.Errorf("%s: %s is said to be %s, here: %v", c.name, s.ID, s.Status, s.Here)
		}
	}
	for _, a := range g.order {
		switch status := told[a.id]; {
		case status == "":
			g.t.Errorf("%s: agent_sessions doesn't know %s", c.name, a.id)
		case a.closed && status != statusClosed:
			g.t.Errorf("%s: %s was closed and is %s", c.name, a.id, status)
		}
	}
	for _, a := range g.order {
		if a.touched || g.rnd.IntN(len(g.order)) == 0 {
			g.backgroundTold(c, a)
			g.goesOn(c, a)
		}
	}
}

// backgroundTold has every background turn that was taken on end somehow: with
// its answer, or with the word that its process died.
func (g *killGame) backgroundTold(c *killClient, a *killAgent) {
	g.t.Helper()
	a.later = slices.DeleteFunc(a.later, func(l laterTurn) bool { return len(a.turns)-l.asked >= maxKeptTurns/2 }) // the last twenty turns of all are kept
	for _, l := range a.later {
		handle := l.id
		m := c.wait(c.ask("agent_wait", map[string]any{"agent_id": a.id, "turn_id": handle, "timeout_secs": 0}, killCall{}))
		var told struct {
			Agents []struct {
				Turns []turnReply `json:"turns"`
			} `json:"agents"`
		}
		m.structured(&told)
		if m.Error != nil || len(told.Agents) != 1 || len(told.Agents[0].Turns) != 1 {
			g.t.Errorf("%s: background turn %s of %s is lost: %s %s", c.name, handle, a.id, m.Result, toJSON(m.Error))
			continue
		}
		switch turn := told.Agents[0].Turns[0]; {
		case turn.TurnStatus == "completed" && !strings.HasPrefix(turn.Content, "word-"):
			g.t.Errorf("%s: background turn %s of %s said %q", c.name, handle, a.id, turn.Content)
		case turn.TurnStatus != "completed" && turn.TurnStatus != "failed" && turn.TurnStatus != "interrupted":
			g.t.Errorf("%s: background turn %s of %s is %q after its process died", c.name, handle, a.id, turn.TurnStatus)
		}
	}
}

// goesOn has an agent answer under its id.
func (g *killGame) goesOn(c *killClient, a *killAgent) {
	g.t.Helper()
	if !a.closed {
		m := c.wait(c.replyTo(a, "SAY "+g.word()))
		if m.Error == nil {
			g.makeRoom(c, a)
			return
		}
		if m.Error.Code != codeSessionClosed || !a.closing {
			g.t.Fatalf("%s: a reply to %s: error %d: %s", c.name, a.id, m.Error.Code, m.Error.Message)
		}
	} else if m := c.wait(c.ask("codex-reply", map[string]any{"agent_id": a.id, "prompt": "SAY never"}, killCall{})); m.Error == nil || m.Error.Code != codeSessionClosed {
		g.t.Fatalf("%s: a reply to %s, which is closed, was answered %s", c.name, a.id, m.Result)
	}
	if m := c.wait(c.revive(a, "SAY "+g.word())); m.Error != nil {
		g.t.Fatalf("%s: reopening %s: error %d: %s", c.name, a.id, m.Error.Code, m.Error.Message)
	}
	g.makeRoom(c, a)
}

// makeRoom closes what would never be parked.
func (g *killGame) makeRoom(c *killClient, a *killAgent) {
	g.t.Helper()
	if !a.named {
		return
	}
	if m := c.wait(c.closeAgent(a)); m.Error != nil {
		g.t.Fatalf("%s: closing %s: error %d: %s", c.name, a.id, m.Error.Code, m.Error.Message)
	}
}

// word is said once in the whole game.
func (g *killGame) word() string {
	g.words++
	return "word-" + strconv.Itoa(g.words)
}

// killClient is the client of one proxy that is to die.
type killClient struct {
	*testClient
	g     *killGame
	turns []*killCall // the calls that ask for a turn

	// Guarded by the game's lock.
	records int // read
	writes  int // requests and answers written
	dieAt   int // records after which the proxy dies, 0 for never
	dieSent int // writes after which it dies, 0 for never
	dead    bool
}

// killCall is what a request asked for.
type killCall struct {
	*pendingCall
	agent   *killAgent // nil: it is new, or the call isn't about one
	turn    *killTurn  // nil: none
	close   bool
	revives int // of a close: the agent's when it was asked for; a later one wins
	got     bool
}

// structured decodes an answer's structured content.
func (m wireMessage) structured(into any) {
	_ = json.Unmarshal(rawField(m.Result, "structuredContent"), into)
}

func (g *killGame) startClient(name string) *killClient {
	g.t.Helper()
	c := &killClient{testClient: newTestClient(g.t), g: g}
	c.heard, c.mayEnd = c.note, true
	c.tap = func(ours bool, raw []byte) {
		if !bytes.Contains(raw, []byte(`"method":"codex/event"`)) {
			g.keep(map[bool]string{true: "< ", false: "> "}[ours] + clipText(string(raw), 300))
		}
	}
	c.startProcess(peerConfig{name: name, path: g.bin, args: g.args, env: g.env, dir: g.cwd})
	c.initialize("2025-06-18", askable())
	return c
}

// note takes in one message, and kills if it was the one.
func (c *killClient) note(m wireMessage, call *pendingCall) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.records++
	if c.records == c.dieAt {
		c.killLocked()
	}
	switch {
	case m.Method == "elicitation/create":
		c.meetLocked(stringField(m.Params, "agent_id"))
		switch {
		case strings.Contains(string(m.Params), silence): // never answered
			return
		case c.g.rnd.IntN(3) == 0:
			c.reply(m, map[string]any{"action": "decline"})
		default:
			c.reply(m, map[string]any{"action": "accept", "content": map[string]any{}})
		}
		c.wroteLocked()
	case m.Method != "":
		c.meetLocked(stringField(m.Params, "_meta", "agent_id"))
	case call != nil && call.about != nil:
		c.answerLocked(m, call.about.(*killCall))
	}
}

// meetLocked notes an agent that the client has heard of.
func (c *killClient) meetLocked(id string) *killAgent {
	if id == "" {
		return nil
	}
	a := c.g.agents[id]
	if a == nil {
		a = &killAgent{id: id}
		c.g.agents[id] = a
		c.g.order = append(c.g.order, a)
	}
	a.touched = true
	return a
}

func (c *killClient) answerLocked(m wireMessage, call *killCall) {
	call.got = true
	if m.Error != nil {
		return
	}
	var r turnReply
	m.structured(&r)
	a := call.agent
	switch {
	case call.turn != nil && call.turn.later:
		a.later = append(a.later, laterTurn{r.TurnID, len(a.turns)})
	case call.turn != nil:
		if a == nil {
			a = c.meetLocked(r.AgentID)
			a.turns = slices.Insert(a.turns, 0, call.turn) // its first, whatever was asked since its events told of it
		}
		a.named = a.named || strings.HasPrefix(r.Identity, "word-")
		call.turn.status = r.TurnStatus
		c.g.answers++
		a.ended++
		if r.TurnStatus != "completed" {
			c.g.cut++
		} else if r.Content != call.turn.word {
			c.tb.Errorf("%s: %s was answered %q, want %q", c.name, r.AgentID, r.Content, call.turn.word)
		}
	case call.close && a.revives == call.revives:
		a.closed, a.closing, a.stuck = true, false, false
	}
}

// killLocked kills the proxy, and nothing but it: what it started has to end by
// itself.
func (c *killClient) killLocked() {
	if !c.dead {
		c.dead = true
		c.g.keep("killed " + c.name)
		_ = c.cmd.Process.Kill()
	}
}

func (c *killClient) kill() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.killLocked()
}

// armKill picks the point: after so many records from now, or right after so
// many requests.
func (c *killClient) armKill() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if c.g.rnd.IntN(3) == 0 {
		c.dieSent = c.writes + 1 + c.g.rnd.IntN(12)
		return
	}
	c.dieAt = c.records + 1 + c.g.rnd.IntN(70)
}

func (c *killClient) wroteLocked() {
	if c.writes++; c.writes == c.dieSent {
		c.killLocked()
	}
}

// ask calls a tool.
func (c *killClient) ask(name string, args map[string]any, about killCall) *killCall {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	call := &about
	if a := call.agent; a != nil {
		a.touched = true
		if call.turn != nil {
			a.turns = append(a.turns, call.turn)
		}
		if call.close {
			a.closing, call.revives = true, a.revives
		}
	}
	if call.turn != nil {
		c.turns = append(c.turns, call)
	}
	call.pendingCall = c.startAbout(call, "tools/call", map[string]any{"name": name, "arguments": args})
	c.wroteLocked()
	return call
}

func (c *killClient) begin(prompt string, named string) *killCall {
	args := map[string]any{"prompt": prompt}
	if named != "" {
		args["identity"] = named
	}
	return c.ask("codex", args, killCall{turn: &killTurn{word: lastWord(prompt)}})
}

func (c *killClient) replyTo(a *killAgent, prompt string) *killCall {
	return c.ask("codex-reply", map[string]any{"agent_id": a.id, "prompt": prompt}, killCall{agent: a, turn: &killTurn{word: lastWord(prompt)}})
}

func (c *killClient) later(a *killAgent, prompt string) *killCall {
	return c.ask("codex-reply", map[string]any{"agent_id": a.id, "prompt": prompt, "background": true}, killCall{agent: a, turn: &killTurn{word: lastWord(prompt), later: true}})
}

func (c *killClient) revive(a *killAgent, prompt string) *killCall {
	c.g.mu.Lock()
	a.closed, a.closing = false, true // it may stay closed if nobody comes to it
	a.revives++
	c.g.mu.Unlock()
	return c.ask("codex", map[string]any{"agent_id": a.id, "prompt": prompt, "tag": prompt}, killCall{agent: a, turn: &killTurn{word: lastWord(prompt)}})
}

func (c *killClient) closeAgent(a *killAgent) *killCall {
	return c.ask("agent_close", map[string]any{"agent_id": a.id}, killCall{agent: a, close: true})
}

// giveUp cancels a call, which may be answered all the same.
func (c *killClient) giveUp(call *killCall) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.notify("notifications/cancelled", map[string]any{"requestId": call.id})
	c.wroteLocked()
}

// wait waits for an answer; there is none from a proxy that was killed.
func (c *killClient) wait(call *killCall) wireMessage {
	c.tb.Helper()
	m, ok := call.waitOrEnd()
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if !ok && !c.dead {
		c.tb.Fatalf("%s ended by itself (%s)%s", c.name, c.howEnded(), c.told())
	}
	if !ok {
		return wireMessage{Error: &wireFault{Message: "killed"}}
	}
	return m
}

// play does random things until the proxy is dead or there is nothing more to
// do.
func (c *killClient) play() {
	g := c.g
	var hanging []*killCall
	for range 8 + c.intN(16) {
		if c.isDead() {
			return
		}
		word := g.word()
		a := c.pick()
		var call *killCall
		mayWait := true
		switch n := c.intN(20); {
		case a == nil || n < 3:
			named := ""
			if c.intN(3) == 0 {
				named = word
			}
			call = c.begin("SAY "+word, named)
		case n < 8:
			call = c.replyTo(a, "SAY "+word)
			mayWait = !c.isStuck(a)
		case n < 10: // its acceptance waits for no turn
			call = c.later(a, "SAY "+word)
		case n < 13: // the client's answer may be no, or never come
			what := "true"
			if c.intN(3) == 0 {
				what = silence
				c.stick(a)
			}
			call = c.replyTo(a, "SHELLESC "+what+"\nSAY "+word)
			mayWait = !c.isStuck(a)
		case n < 14:
			call = c.replyTo(a, "BACKGROUND exec sleep 1000\nSAY "+word)
			mayWait = !c.isStuck(a)
		case n < 16:
			hanging = append(hanging, c.replyTo(a, []string{"HANG", "SHELL exec sleep 1000"}[c.intN(2)]+"\nSAY "+word))
			c.stick(a)
			mayWait = false
		case n < 17:
			if len(hanging) > 0 {
				c.giveUp(hanging[0])
				hanging = hanging[1:]
			}
			continue
		case n < 19:
			call = c.closeAgent(a)
		default:
			call = c.revive(a, "SAY "+word)
			mayWait = !c.isStuck(a)
		}
		if call != nil && mayWait && c.intN(3) > 0 {
			c.wait(call)
		}
	}
	if c.intN(2) == 0 {
		c.hangup() // dies on its way out
	}
}

// intN is the generator for who doesn't hold the lock.
func (c *killClient) intN(n int) int {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return c.g.rnd.IntN(n)
}

// pick is one of the newest agents, nil if there is none.
func (c *killClient) pick() *killAgent {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	newest := c.g.order[max(0, len(c.g.order)-6):]
	if len(newest) == 0 {
		return nil
	}
	return newest[c.g.rnd.IntN(len(newest))]
}

func (c *killClient) isStuck(a *killAgent) bool {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return a.stuck
}

// stick notes that an agent was asked for something that ends by itself never.
func (c *killClient) stick(a *killAgent) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	a.stuck = true
}

func (c *killClient) isDead() bool {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return c.dead
}

// lastWord is what a prompt has the agent say at its end.
func lastWord(prompt string) string {
	return prompt[strings.LastIndex(prompt, " ")+1:]
}

// keep keeps the end of what was said, for a failure's message. Client and reading goroutine call it, with the game's
// lock or without.
func (g *killGame) keep(line string) {
	g.saying.Lock()
	defer g.saying.Unlock()
	g.said = append(g.said, line)
	g.said = g.said[max(0, len(g.said)-80):]
}

func TestShutdownOfTenBusyAgents(t *testing.T) {
	t.Parallel()
	needProcFS(t)
	bin := programPath(t)
	for _, tt := range []struct {
		name string
		end  func(c *testClient) error
		how  string
		all  bool // everybody is answered, however slow the machine is
		kill bool // once they are
	}{
		{"signal", func(c *testClient) error { return c.signal("INT") }, "exit code 130", true, false},
		{"signal and a kill behind the answers", func(c *testClient) error { return c.signal("INT") }, "SIGKILL", true, true},
		{"two signals at once", func(c *testClient) error { return errors.Join(c.signal("INT"), c.signal("TERM")) }, "exit code 1", false, false},
		{"end of stdin", func(c *testClient) error { c.hangup(); return nil }, "exit code 0", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "ATM_HOME=" + filepath.Join(dir, "atm"), "CODEX_HOME=" + dir}
			c := startClient(t, peerConfig{name: "serve", path: bin, args: []string{"serve"}, env: env, dir: dir})
			c.initialize("2025-11-25", map[string]any{})
			agents, busy, queued := tenBusyAgents(c)

			begun := time.Now()
			if err := tt.end(c); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			answered := 0
			for i, p := range append(busy, queued...) {
				if !tt.all {
					break
				}
				answered++
				m := p.wait()
				// A machine that takes longer than settleLimit has the running told what the waiting are.
				if refused := m.Error != nil && m.Error.Code == codeSessionClosed; refused && (i >= len(busy) || time.Since(begun) >= settleLimit) {
					continue
				}
				var turn turnReply
				m.structured(&turn)
				if i >= len(busy) || turn.TurnStatus != "interrupted" || turn.Content != "half" {
					t.Errorf("turn %d, of which %d ran, was answered %s%s", i, len(busy), m.Result, toJSON(m.Error))
				}
			}
			t.Logf("%d answers within %v", answered, time.Since(begun).Round(time.Millisecond))
			if tt.kill {
				if err := c.signal("KILL"); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
			}
			// Only a second signal may cut a record.
			if err := c.waitAllGone(c.limit); err != nil && (tt.all || err != c.readErr || !errors.Is(err, errHalfRecord)) {
				t.Error(err)
			}
			how := c.howEnded()
			if (tt.kill || !tt.all) && how == "exit code 130" {
				how = tt.how // the process was faster than the second signal
			}
			if !strings.Contains(how, tt.how) {
				t.Errorf("it ended with %s, want %s", how, tt.how)
			}
			c.noStrays()

			reg := newRegistry(filepath.Join(dir, "atm", ".config", "atm", "agent-sessions"), "default", true, quietLog())
			defer reg.close(context.Background())
			for _, id := range agents {
				rec, err := reg.load(id)
				if err != nil {
					t.Errorf("%s: %v", id, err)
					continue
				}
				status, interrupted, _ := reg.told(rec)
				if _, pid, held := reg.holder(rec.Identity); held || status != statusStale || !interrupted {
					t.Errorf("%s is %s, interrupted %v; its name is held: %v (process %d)", id, status, interrupted, held, pid)
				}
			}
		})
	}
}

// tenBusyAgents has ten agents run a turn with two shells each, and queues one
// more turn for each of them.
func tenBusyAgents(c *testClient) (agents []string, busy, queued []*pendingCall) {
	c.tb.Helper()
	for range 10 {
		agents = append(agents, c.call("codex", map[string]any{"prompt": "SAY hello"}).turn().AgentID)
	}
	for _, id := range agents {
		busy = append(busy, c.call("codex-reply", map[string]any{"agent_id": id, "prompt": "SAY half\nBACKGROUND exec sleep 1000\nSHELL exec sleep 1000"}))
		queued = append(queued, c.call("codex-reply", map[string]any{"agent_id": id, "prompt": "SAY never"}))
	}
	for _, id := range agents {
		shells := 0
		c.awaitNote("the shells of "+id, func(m wireMessage) bool {
			msg := rawField(m.Params, "msg")
			if stringField(m.Params, "_meta", "agent_id") == id && stringField(msg, "type") == "item/started" &&
				stringField(msg, "item", "type") == "commandExecution" {
				shells++
			}
			return shells == 2
		})
	}
	return agents, busy, queued
}
