package main

// proxy_kill_test.go proves that kill -9 at any instant loses nothing that a client
// was told (FR-7, invariants 4 and 5): one state directory lives through more
// than a hundred proxies, each killed at a point that a seeded generator picks
// by counting records and requests, never by time. The next proxy must know
// every agent, have its identity and thread to give, and its last answer. The
// client here keeps the ledger of what it was told; proxy_killplay_test.go plays its
// part.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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
	t      *testing.T
	rnd    *rand.Rand
	bin    string
	args   []string
	env    []string
	root   string // agent-sessions
	cwd    string
	agents map[string]*killAgent
	order  []*killAgent // as they came
	words  int

	answers, cut int      // for the log
	said         []string // the end of the conversations, for a failure
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
	c.settle()
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
	c.wait(c.tool("agent_sessions", map[string]any{"limit": 1000}, nil)).structured(&list)
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
		m := c.wait(c.tool("agent_wait", map[string]any{"agent_id": a.id, "turn_id": handle, "timeout_secs": 0}, nil))
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
		m := c.wait(c.reply(a, "SAY "+g.word()))
		if m.Error == nil {
			g.makeRoom(c, a)
			return
		}
		if m.Error.Code != codeSessionClosed || !a.closing {
			g.t.Fatalf("%s: a reply to %s: error %d: %s", c.name, a.id, m.Error.Code, m.Error.Message)
		}
	} else if m := c.wait(c.tool("codex-reply", map[string]any{"agent_id": a.id, "prompt": "SAY never"}, nil)); m.Error == nil || m.Error.Code != codeSessionClosed {
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
