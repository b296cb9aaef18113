package main

// proxy_kill_test.go ends the program by every way there is, and holds that nothing is lost which a client was told
// (FR-7, invariants 4 and 5). By kill -9: one state directory lives through many proxies, each used at random by the
// player of proxy_soak_test.go and killed at a point that its generator picks by counting records and writes, never by
// time; the next proxy must know every agent, have its identity and thread to give, and its last answer. The reading
// goroutine kills, so that a kill comes between two records. By signal and end of input: with ten agents at work.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestKillAtRandomPoints(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	for _, tt := range []struct {
		backend, version string
		kills            int
	}{
		{"app-server", "", pick(10, 70)},
		{"mcp-server", "0.153.0", pick(5, 35)},
	} {
		t.Run(tt.backend, func(t *testing.T) {
			g := newKillGame(t, tt.backend, seed, "MOCK_CODEX_VERSION="+tt.version)
			defer func() {
				if said := g.l.said.String(); t.Failed() {
					t.Logf("repeat with %s=%d; said at the end:\n%s", longVar, seed, said[max(0, len(said)-12000):])
				}
			}()
			for life := 0; life < tt.kills && !t.Failed(); life++ {
				g.live(life)
			}
			if t.Failed() {
				return
			}
			for _, a := range g.l.agents { // looks once more, at every agent, and ends as a client does
				a.touched = true
			}
			p := g.start("the last life")
			g.recovered(p)
			p.hangup()
			wantNil(t, p.waitAllGone(p.limit))
			t.Logf("%d kills, %s", tt.kills, g.l)
		})
	}
}

// killGame is a state directory and what its clients were told.
type killGame struct {
	t    *testing.T
	l    *gameLedger
	cfg  peerConfig
	root string // agent-sessions
}

func newKillGame(t *testing.T, backend string, seed uint64, env ...string) *killGame {
	dir := t.TempDir()
	for _, d := range []string{"home", "atm", "codex", "work"} {
		wantNil(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	return &killGame{t: t, l: newGameLedger(seed), root: filepath.Join(dir, "atm", ".config", "atm", "agent-sessions"),
		cfg: peerConfig{path: programPath(t), args: []string{"serve", "--backend", backend},
			dir: filepath.Join(dir, "work"),
			env: append(env, "PATH="+os.Getenv("PATH"), "HOME="+filepath.Join(dir, "home"),
				"ATM_HOME="+filepath.Join(dir, "atm"),
				"CODEX_HOME="+filepath.Join(dir, "codex"), "ATM_AGENT_MCP_MAX_CONCURRENT_THREADS=3")}}
}

// start holds the files to what was told, and starts the next proxy.
func (g *killGame) start(name string) *player {
	g.t.Helper()
	g.leasesFree()
	p := newPlayer(g.t, g.l, 6)
	cfg := g.cfg
	cfg.name = name
	p.startProcess(cfg)
	p.initialize("2025-06-18", askable())
	return p
}

// live is one proxy: it is held to what was told before, used, and killed.
func (g *killGame) live(n int) {
	g.t.Helper()
	p := g.start(fmt.Sprintf("life %d", n))
	defer p.stop()
	if g.l.intN(10) > 0 { // else it dies before anybody has looked
		if g.recovered(p); g.t.Failed() {
			return
		}
	}
	g.l.mu.Lock()
	for _, a := range g.l.agents {
		a.touched = false
	}
	if g.l.rnd.IntN(3) == 0 {
		p.dieSent = p.writes + 1 + g.l.rnd.IntN(12)
	} else {
		p.dieAt = p.records + 1 + g.l.rnd.IntN(70)
	}
	g.l.mu.Unlock()
	for range 8 + g.l.intN(16) {
		if !p.isDead() {
			p.move(nil)
		}
	}
	if g.l.intN(2) == 0 {
		p.hangup() // dies on its way out
	}
	g.l.mu.Lock()
	p.killLocked()
	g.l.mu.Unlock()
	if err := p.waitAllGone(p.limit); err != nil && (len(p.leftovers()) > 0 || !errors.Is(err, errHalfRecord)) {
		g.t.Errorf("life %d: %v", n, err)
	}
	p.noStrays()
}

func (p *player) isDead() bool {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return p.dead
}

// answer waits for an answer of a proxy that nobody kills yet.
func (p *player) answer(c *playedCall) wireMessage {
	p.tb.Helper()
	if p.waitFor(c, p.limit, nil); c.isOpen() {
		p.tb.Fatalf("%s has no answer; %s ended: %v%s", c.what, p.name, p.gone(), p.told())
	}
	return c.m
}

// leasesFree looks at the files as another process does: nobody holds any
// name, and every record is what its client was told, or newer.
func (g *killGame) leasesFree() {
	g.t.Helper()
	reg := newRegistry(g.root, "default", false, quietLog())
	defer reg.close(context.Background())
	for _, a := range g.l.agents {
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
func (g *killGame) compare(a *gameAgent, rec *record) {
	g.t.Helper()
	if rec.Turns < a.ended {
		g.t.Errorf("%s: the record tells of %d turns, the client of %d", a.id, rec.Turns, a.ended)
	}
	if a.closed && rec.Status != statusClosed {
		g.t.Errorf("%s was told to be closed, its record says %s", a.id, rec.Status)
	}
	last, known := "", []*gameTurn{}
	for _, turn := range a.turns { // the last that was told, and all that may have come behind it
		if turn.status == "completed" {
			last = turn.word
			// A background turn may be overtaken while its name is written.
			known = slices.DeleteFunc(known, func(t *gameTurn) bool { return !t.background })
		}
		known = append(known, turn)
	}
	if last == "" {
		return
	}
	if !slices.ContainsFunc(known, func(t *gameTurn) bool { return t.word == rec.Digest.LastAnswer || t.word == "" }) {
		g.t.Errorf("%s: the record's last answer is %q, the client was told %q", a.id, rec.Digest.LastAnswer, last)
	}
	if len(known) == 1 && !a.closing && (rec.LastTurnStatus != "completed" || rec.Interrupted) {
		g.t.Errorf("%s: its last turn was told to be completed, the record says %q, interrupted %v", a.id,
			rec.LastTurnStatus, rec.Interrupted)
	}
}

// recovered asks a fresh proxy for everything that a client was ever told of.
func (g *killGame) recovered(p *player) {
	g.t.Helper()
	var list struct{ Sessions []soakSession }
	call := p.ask("agent_sessions", playedCall{}, "limit", 1000)
	p.answer(call)
	call.structured(&list)
	told := map[string]string{}
	for _, s := range list.Sessions {
		told[s.ID] = s.Status
		if s.Here || s.Status == statusBusy || s.Status == statusIdle {
			g.t.Errorf("%s: %s is said to be %s, here: %v", p.name, s.ID, s.Status, s.Here)
		}
	}
	for _, a := range slices.Clone(g.l.agents) {
		if told[a.id] == "" || a.closed && told[a.id] != statusClosed {
			g.t.Errorf("%s: %s is told as %q, closed: %v", p.name, a.id, told[a.id], a.closed)
		}
		if a.touched || g.l.intN(len(g.l.agents)) == 0 {
			g.backgroundTold(p, a)
			g.goesOn(p, a)
		}
	}
}

// backgroundTold has every background turn that was taken on end somehow: with
// its answer, or with the word that its process died.
func (g *killGame) backgroundTold(p *player, a *gameAgent) {
	g.t.Helper()
	for _, l := range a.turns[max(0, len(a.turns)-maxKeptTurns/2):] { // the last twenty turns of all are kept
		if l.id == "" {
			continue
		}
		call := p.ask("agent_wait", playedCall{agent: a}, "turn_id", l.id, "timeout_secs", 0)
		m := p.answer(call)
		var told struct{ Agents []struct{ Turns []turnReply } }
		call.structured(&told)
		if m.Error != nil || len(told.Agents) != 1 || len(told.Agents[0].Turns) != 1 {
			g.t.Errorf("%s: background turn %s of %s is lost: %s %s", p.name, l.id, a.id, m.Result, toJSON(m.Error))
			continue
		}
		turn := told.Agents[0].Turns[0]
		if !slices.Contains([]string{"completed", "failed", "interrupted"}, turn.TurnStatus) ||
			turn.TurnStatus == "completed" && l.word != "" && turn.Content != l.word {
			g.t.Errorf("%s: background turn %s of %s is %q and said %q", p.name, l.id, a.id, turn.TurnStatus,
				turn.Content)
		}
	}
}

// goesOn has an agent answer under its id, which a closed one does not before it is reopened.
func (g *killGame) goesOn(p *player, a *gameAgent) {
	g.t.Helper()
	m := p.answer(p.says(a, "SAY "+g.l.word()))
	switch {
	case m.Error != nil && m.Error.Code == codeSessionClosed && (a.closed || a.closing):
		if m := p.answer(p.revive(a, "SAY "+g.l.word())); m.Error != nil {
			g.t.Fatalf("%s: reopening %s: error %d: %s", p.name, a.id, m.Error.Code, m.Error.Message)
		}
	case m.Error != nil || a.closed:
		g.t.Fatalf("%s: a reply to %s, closed %v: %s %s", p.name, a.id, a.closed, m.Result, toJSON(m.Error))
	}
	if a.named { // it would never be parked
		if m := p.answer(p.closes(a)); m.Error != nil {
			g.t.Fatalf("%s: closing %s: error %d: %s", p.name, a.id, m.Error.Code, m.Error.Message)
		}
	}
}

// After kill -9 nobody who died stays in the team, whatever becomes of their
// names, and no first call is told that one of them is still in use: the sweep
// used to look at leases that the marking of stale sessions held just then.
func TestKillLeavesNoMember(t *testing.T) {
	t.Parallel()
	kills := pick(3, 60)
	rig, team := teamRig(t)
	members := func() string {
		return strings.Join(namesIn(t, filepath.Join(team, "config.json")), " ")
	}
	start := func(p *benchPeer, want string, args map[string]any) string {
		t.Helper()
		args["prompt"] = "SAY hello"
		got := p.tool("codex", args) // an error fails the test
		if name := stringField(got, "identity"); name != want {
			t.Fatalf("%s was answered, want %s", got, want)
		}
		return stringField(got, "agent_id")
	}
	for range kills {
		v := rig.serveSide(t)
		ann := start(v, "ann", map[string]any{"identity": "ann"})
		start(v, "bob", map[string]any{"identity": "bob"})
		if !poll(waitLimit(t), func() bool {
			return members() == "ann bob" || members() == "bob ann"
		}) {
			t.Fatalf("members are %s", members())
		}
		v.dies()
		next, beside := rig.serveSide(t), rig.serveSide(t) // both mark, both sweep
		start(next, "ann", map[string]any{"agent_id": ann})
		start(beside, "bob", map[string]any{"identity": "bob"})
		next.dies()
		beside.dies()
		last := rig.serveSide(t)
		if !poll(waitLimit(t), func() bool { return members() == "" }) {
			t.Fatalf("of the dead there are still members: %s", members())
		}
		last.dies()
	}
	t.Logf("%d kills, nobody left behind, no conflict", 4*kills)
}

func TestShutdownOfTenBusyAgents(t *testing.T) {
	t.Parallel()
	bin := programPath(t)
	interrupt := func(c *testClient) error { return c.signal("INT") }
	const byEOF = "end of stdin"
	for _, tt := range []struct {
		name string
		end  func(c *testClient) error
		how  string
		all  bool // everybody is answered, however slow the machine is
		kill bool // once they are
	}{
		{"signal", interrupt, "exit code 130", true, false},
		{"signal and a kill behind the answers", interrupt, "SIGKILL", true, true},
		{"two signals at once", func(c *testClient) error { return errors.Join(interrupt(c), c.signal("TERM")) },
			"exit code 1", false, false},
		{byEOF, func(c *testClient) error { c.hangup(); return nil }, "exit code 0", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != byEOF {
				needUnix(t, "a process can't be sent a signal")
			}
			dir := t.TempDir()
			env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "ATM_HOME=" + filepath.Join(dir, "atm"),
				"CODEX_HOME=" + dir}
			c := startClient(t, peerConfig{name: "serve", path: bin, args: []string{"serve"}, env: env, dir: dir})
			c.initialize("2025-11-25", map[string]any{})
			agents, busy, queued := tenBusyAgents(c)

			begun := time.Now()
			if err := tt.end(c); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			for i, call := range append(busy, queued...) {
				if !tt.all {
					break
				}
				p := playedCall{m: call.wait()}
				m := p.m
				// A machine that takes longer than settleLimit has the running told what the waiting are.
				if refused := m.Error != nil && m.Error.Code == codeSessionClosed; refused &&
					(i >= len(busy) || time.Since(begun) >= settleLimit) {
					continue
				}
				var turn turnReply
				p.structured(&turn)
				if i >= len(busy) || turn.TurnStatus != "interrupted" || turn.Content != "half" {
					t.Errorf("turn %d, of which %d ran, was answered %s%s", i, len(busy), m.Result, toJSON(m.Error))
				}
			}
			if tt.kill {
				if err := c.signal("KILL"); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
			}
			// Only a second signal, or a kill, may cut a record: by then every answer is out.
			if err := c.waitAllGone(c.limit); err != nil && (tt.all && !tt.kill || err != c.readErr ||
				!errors.Is(err, errHalfRecord)) {
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

			reg := newRegistry(filepath.Join(dir, "atm", ".config", "atm", "agent-sessions"), "default", true,
				quietLog())
			defer reg.close(context.Background())
			for _, id := range agents {
				rec, err := reg.load(id)
				if err != nil {
					t.Errorf("%s: %v", id, err)
					continue
				}
				status, interrupted, _ := reg.told(rec)
				if _, pid, held := reg.holder(rec.Identity); held || status != statusStale || !interrupted {
					t.Errorf("%s is %s, interrupted %v; its name is held: %v (process %d)", id, status, interrupted,
						held, pid)
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
		agents = append(agents, c.codex("SAY hello").turn().AgentID)
	}
	for _, id := range agents {
		busy = append(busy, c.again(id, "SAY half\nBACKGROUND exec sleep 1000\nSHELL exec sleep 1000"))
		queued = append(queued, c.again(id, "SAY never"))
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

// A kill before or behind any step of git's loses no work, and no name: what is left is closed by agent_close, and the
// next agent of the name has a worktree. A git in front of git kills the program that runs it.
func TestKillBetweenTheStepsOfAWorktree(t *testing.T) {
	t.Parallel()
	needUnix(t, "the git that kills is a shell script")
	needProcFS(t)
	git, err := exec.LookPath("git")
	wantNil(t, err)
	for _, step := range []string{"update-ref refs/heads", "worktree add", "status --porc", "worktree remove", "branch -D"} {
		for _, when := range []string{"before", "behind"} {
			t.Run(when+" "+step, func(t *testing.T) {
				t.Parallel()
				rig := newBenchRig(t)
				shim := filepath.Join(t.TempDir(), "git")
				wantNil(t, os.WriteFile(shim, []byte(fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *'%s'*)\n"+
					"[ %s = before ] || '%s' \"$@\"\nkill -9 $PPID\nexit 1;;\nesac\nexec '%[3]s' \"$@\"\n", step, when, git)),
					0o755))
				for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"-c", "user.name=u", "-c", "user.email=u@h",
					"commit", "-q", "--allow-empty", "-m", "one"}} {
					_, err := gitText(t.Context(), rig.project, args...)
					wantNil(t, err)
				}
				start := func(path string) *testClient {
					env := append(rig.environ("served"), "PATH="+path)
					c := startClient(t, peerConfig{name: "serve", path: rig.bin, args: []string{"serve"}, env: env,
						dir: rig.project})
					c.initialize("2025-11-25", map[string]any{})
					return c
				}
				c := start(filepath.Dir(shim) + string(os.PathListSeparator) + os.Getenv("PATH"))
				began := c.codex("SAY hello", "identity", "dev", "worktree", true)
				if strings.Contains("status --porc worktree remove branch -D", step) {
					began.wantSaid("hello")
					c.call("agent_close", map[string]any{"identity": "dev"})
				}
				if err := c.waitAllGone(c.limit); err != nil && !errors.Is(err, errHalfRecord) {
					t.Fatal(err)
				}
				next := start(os.Getenv("PATH"))
				var list struct{ Sessions []sessionView }
				structured(next.call("agent_sessions", map[string]any{}), &list)
				for _, s := range list.Sessions {
					var closed closeResult
					structured(next.call("agent_close", map[string]any{"agent_id": s.AgentID}), &closed)
					if closed.Worktree != nil && !closed.Worktree.Removed {
						t.Errorf("an empty worktree stays: %+v", closed.Worktree)
					}
				}
				agent := next.codex("SAY again", "identity", "dev", "worktree", true).wantSaid("again").AgentID
				var closed closeResult
				structured(next.call("agent_close", map[string]any{"agent_id": agent}), &closed)
				trees, err := listTrees(t.Context(), filepath.Join(rig.project, ".git"))
				if closed.Worktree == nil || !closed.Worktree.Removed || err != nil || len(trees) != 1 {
					t.Errorf("of the next agent %+v, of all %v, %v", closed.Worktree, trees, err)
				}
				next.finish()
			})
		}
	}
}
