package main

// session_machine_test.go holds the turn machine to the invariants: every event in every state
// (testdata/machine.golden), the dialogues that take more than one step, and random and fuzzed events in any order,
// after each of which every turn is in exactly one place. The lines of calls that wait for an agent stand here too.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func (e effect) turnName() string {
	if e.turn == nil {
		return ""
	}
	return e.turn.req.prompt
}

// word names effects so that tables read as a dialogue.
func (e effect) word() string {
	switch e.kind {
	case effStart:
		return "start " + e.turnName()
	case effInterrupt:
		return "interrupt " + e.turnName()
	case effFinish:
		how := map[finishKind]string{finishEnded: "ended", finishRebound: "rebound", finishRefused: "refused",
			finishFull: "full", finishOver: "over", finishGone: "gone", finishBroken: "broken",
			finishUnopened: "unopened", finishDropped: "dropped"}
		return "finish " + e.turnName() + " " + how[e.finish]
	case effEnd:
		return "end " + e.end.String()
	}
	return "?"
}

func words(effects []effect) string {
	var out []string
	for _, e := range effects {
		out = append(out, e.word())
	}
	return strings.Join(out, ", ")
}

// waiterOf is who waits for the turn of a name.
func waiterOf(name string) (w waiterID) {
	for _, c := range []byte(name) {
		w = w<<8 + waiterID(c)
	}
	return w
}

// play gives a machine one script of events and returns what came out of each.
func play(m *turnMachine, script string) string {
	var out []string
	for step := range strings.FieldsSeq(script) {
		if w := words(playStep(m, step)); w != "" {
			out = append(out, w)
		}
	}
	return strings.Join(out, "; ")
}

// playStep gives a machine one event: a verb, and behind a colon the name of a turn.
func playStep(m *turnMachine, step string) []effect {
	verb, name, _ := strings.Cut(step, ":")
	summary := &turn{req: turnRequest{prompt: name, source: sourceSummary, run: true}}
	switch verb {
	case "client", "mail", "summary", "rebind":
		src := map[string]turnSource{"mail": sourceMail, "summary": sourceSummary}[verb]
		return m.submit(&turn{req: turnRequest{prompt: name, source: src, run: verb != "rebind"},
			waiter: waiterOf(name)})
	case "cancel":
		return m.cancel(waiterOf(name))
	case "open":
		m.opened()
		return nil
	case "go":
		return m.advance()
	case "started":
		return m.started(name)
	case "refused":
		return m.refused(name == "unknown")
	case "ended":
		return m.ended(name)
	case "timeout":
		return m.stopTurn(stopTimeout)
	case "stop":
		return m.stopTurn(stopInterrupt)
	case "wind": // close, with a last turn
		return m.endWith(endClose, summary)
	case "down": // shutdown, with a last turn
		return m.endWith(endShutdown, summary)
	case "expire":
		return m.expire()
	case "spent":
		m.spent()
		return nil
	case "broken":
		return m.giveUp()
	case "lost":
		return m.lost()
	}
	why, ok := map[string]ending{"park": endPark, "shutdown": endShutdown, "close": endClose, "gone": endGone,
		"failed": endFailed}[verb]
	if !ok {
		panic("no such step " + step)
	}
	return m.end(why)
}

// Rules that take more than one event: TestMachineTable has each event in each state.
func TestMachine(t *testing.T) {
	for _, c := range []struct{ rule, script, want string }{
		{"turns run in the order they came", "open client:a client:b go started:1 ended:1 go started:2 ended:2",
			"start a; finish a ended; start b; finish b ended"},
		{"client before mail before summary",
			"open summary:s mail:m client:a go started:1 ended:1 go started:2 ended:2 go",
			"start a; finish a ended; start m; finish m ended; start s"},
		{"a cancelled queued turn never runs", "open client:a go client:b cancel:b started:1 ended:1 go",
			"start a; finish b dropped; finish a ended"},
		{"an unknown start is interrupted and not sent again", "open client:a go refused:unknown ended:7 go",
			"start a; interrupt a; finish a ended"},
		{"rebinding runs nothing", "rebind:r client:a open go", "finish r rebound, start a"},
		{"close beats a turn that is about to start", "open client:a go started:1 client:b ended:1 close go",
			"start a; finish a ended; finish b over, end closed"},
		{"parking is refused while there is work", "open client:a park go", "start a"},
		{"close wins over shutdown", "open client:a go started:1 shutdown close ended:1",
			"start a; interrupt a; finish a ended, end closed"},
		{"shutdown doesn't undo close", "open client:a go started:1 close shutdown ended:1",
			"start a; interrupt a; finish a ended, end closed"},
		{"the next child after a death", "open client:a go started:1 lost client:b go open go",
			"start a; finish a gone; start b"},
		{"shutdown of an idle session runs the last turn at once", "open down:s started:1 ended:1",
			"start s; finish s ended, end stale"},
		{"a second close joins the first", "open client:a go started:1 wind:s wind:x ended:1 wind:y started:2 ended:2",
			"start a; interrupt a; finish a ended, start s; finish s ended, end closed"},
		{"close takes over a shutdown's last turn", "open down:s started:1 wind:x ended:1",
			"start s; finish s ended, end closed"},
		{"a timed-out last turn ends the session without it", "open down:s started:1 timeout ended:1",
			"start s; interrupt s; finish s ended, end stale"},
	} {
		if got := play(&turnMachine{}, c.script); got != c.want {
			t.Errorf("%s:\n script %s\n got    %s\n want   %s", c.rule, c.script, got, c.want)
		}
	}
}

// TestMachineTable plays every event in every state: what comes out, and where the machine stands then.
func TestMachineTable(t *testing.T) {
	states := []struct{ name, script string }{
		{"opening", "client:q"},
		{"idle", "open"},
		{"starting", "open client:a go client:q"},
		{"running", "open client:a go client:q started:1"},
		{"stopping, unnamed", "open client:a go client:q timeout"},
		{"stopping", "open client:a go client:q started:1 timeout"},
		{"closing, unnamed", "open client:a go wind:s"},
		{"closing", "open client:a go started:1 wind:s"},
		{"summary starting", "open client:a go started:1 wind:s ended:1"},
		{"summary running", "open client:a go started:1 wind:s ended:1 started:2"},
		{"over", "open close"},
	}
	events := []string{"client:n", "rebind:r", "cancel:a", "cancel:q", "open", "go", "started:7", "refused",
		"refused:unknown", "ended:1", "ended:2", "ended:9", "timeout", "stop", "park", "close", "wind:l", "shutdown",
		"down:l", "expire", "broken", "gone", "failed", "lost", "spent"}
	var got strings.Builder
	for _, st := range states {
		fmt.Fprintf(&got, "# %s\n", st.name)
		for _, ev := range events {
			m := &turnMachine{}
			play(m, st.script)
			out := words(playStep(m, ev))
			phase := []string{"opening", "idle", "starting", "running", "stopping", "over"}[m.phase]
			got.WriteString(strings.TrimRight(fmt.Sprintf("%-16s %-8s %s", ev, phase, out), " ") + "\n")
		}
	}
	wantGolden(t, "testdata/machine.golden", got.String())
}

// FuzzMachine drives random events and holds the machine to design.md's
// invariants. A model beside it knows only what was asked and what effects said:
//
//  1. a turn is in exactly one of queued, running, finished, and one runs
//  2. an asked turn finishes exactly once, if not by itself then by the child's
//     death; one that its asker cancelled in the queue never starts
//  4. after the end nothing is held and nothing starts
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 2, 3, 4, 5, 6})
	f.Add([]byte{2, 0, 0, 1, 3, 5, 8, 5, 9, 10, 11, 6, 12})
	f.Add([]byte{2, 0, 3, 5, 0x0e, 6, 5, 6})       // close with a last turn
	f.Add([]byte{2, 0, 3, 5, 0x1e, 6, 5, 0x0f, 0}) // shutdown with one, and its deadline
	f.Add([]byte{2, 0, 3, 0x0e, 7, 5, 0x0f})
	f.Add([]byte{2, 0, 3, 0, 0x3c, 5, 6, 3}) // a turn that is taken out of the queue
	verbs := [16][]string{{"client", "mail", "summary", "rebind"}, {"client"}, {"open"}, {"go"}, {"spent"}, {"started"},
		{"ended"}, {"refused", "refused:unknown"}, {"timeout", "stop"}, {"cancel"},
		{"park", "shutdown", "close", "broken", "gone", "failed"}, {"lost"}, {"drop"}, {"ended:nobody's"},
		{"wind", "down"},
		{"expire"}}
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := &turnMachine{}
		const queued, running, finished = 0, 1, 2
		state := map[string]int{} // of every turn that the machine has taken or started
		runs, over := "", false
		event := func(step string) {
			for _, e := range playStep(m, step) {
				name, ok := e.turnName(), !over || e.kind == effFinish
				was := state[name]
				switch e.kind {
				case effStart:
					ok = ok && runs == "" && was == queued
					state[name], runs = running, name
				case effFinish:
					ok = was == queued || was == running && e.finish != finishDropped
					if was == running {
						runs = ""
					}
					state[name] = finished
				case effInterrupt:
					ok = ok && name == runs
				case effEnd:
					ok = ok && runs == ""
					over = true
				}
				if !ok {
					t.Fatalf("%s brings %q to a turn in state %d, while %q runs, over: %v", step, e.word(), was, runs,
						over)
				}
			}
		}
		for i, b := range steps {
			arg, verb := int(b)>>4, verbs[b&15]
			name := fmt.Sprint("t", i)
			step := verb[arg%len(verb)]
			switch step {
			case "client", "mail", "summary", "rebind":
				state[name] = queued
			case "cancel":
				name = fmt.Sprint("t", arg)
			case "ended":
				if name = ""; m.cur != nil {
					name = m.cur.id
				}
			case "drop":
				at := slices.IndexFunc(m.queue, func(tr *turn) bool { return tr.req.prompt == fmt.Sprint("t", arg) })
				if at >= 0 {
					tr := m.queue[at]
					if !m.drop(tr) || m.drop(tr) {
						t.Fatal("a waiting turn is dropped once")
					}
					state[tr.req.prompt] = finished
				}
				continue
			}
			if !strings.Contains(step, ":") {
				step += ":" + name
			}
			event(step)
			cur := ""
			if m.cur != nil {
				cur = m.cur.req.prompt
			}
			busy := m.phase == phaseStarting || m.phase == phaseRunning || m.phase == phaseStopping
			if cur != runs || busy != (runs != "") {
				t.Fatalf("after %s %q runs, and not %q; phase %d", step, cur, runs, m.phase)
			}
			waiting := 0
			for _, s := range state {
				if s == queued {
					waiting++
				}
			}
			elsewhere := func(tr *turn) bool { return state[tr.req.prompt] != queued }
			if waiting != len(m.queue) || waiting > maxQueue+1 || slices.ContainsFunc(m.queue, elsewhere) {
				t.Fatalf("%d wait, the queue has %d", waiting, len(m.queue))
			}
			if over != (m.phase == phaseOver) || over && (len(m.queue) > 0 || m.last != nil) {
				t.Fatal("something is held after the end, or it goes on without one")
			}
		}
		event("gone") // whatever was going on, the child's death answers all
		for name, s := range state {
			if s != finished {
				t.Fatalf("turn %s was never finished", name)
			}
		}
		if !over {
			t.Fatal("a dead child's session lives on")
		}
	})
}

// Calls that name an agent by its thread wait in a line of that name while nobody knows whose thread it is. A call that
// comes when the agent is open, but behind them, stands in the same line, whatever it names the agent by.
func TestCallsStandInOneLine(t *testing.T) {
	table, s := newSessionTable(), &session{agentID: "codex:a"}
	const thread = "0198c0de-0000-7000-8000-000000000001"
	var got string
	call := func(name string) agentCall { return agentCall{stored: func(string) { got += name }} }
	if _, _, serve := table.meet(thread, call("1")); !serve {
		t.Fatal("nobody is to serve the line")
	}
	table.meet(thread, call("2"))
	first, _, _ := table.next(thread)
	first.stored("")
	table.enter(s, thread) // the first call opens the agent
	for _, c := range []struct{ ref, name string }{{thread, "3"}, {s.agentID, "4"}} {
		if open, line, serve := table.meet(c.ref, call(c.name)); open != nil || line != thread || serve {
			t.Errorf("call %s by %q: overtakes %v, in line %q, to be served %v", c.name, c.ref, open != nil, line,
				serve)
		}
	}
	for {
		c, found, ok := table.next(thread)
		if !ok {
			break
		}
		if c.stored(""); found != s {
			t.Error("a call is not handed to the agent that was opened")
		}
	}
	if got != "1234" {
		t.Errorf("served in the order %s", got)
	}
	if open, line, _ := table.meet(thread, call("5")); open != s || line != s.agentID {
		t.Errorf("once the line is empty a call is in line %q", line)
	}
}
