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

// word names effects so that tables read as a dialogue.
func (e effect) word() string {
	name := ""
	if e.turn != nil {
		name = " " + e.turn.req.prompt
	}
	switch e.kind {
	case effStart:
		return "start" + name
	case effInterrupt:
		return "interrupt" + name
	case effFinish:
		how := map[finishKind]string{finishEnded: "ended", finishRebound: "rebound", finishRefused: "refused",
			finishFull: "full", finishOver: "over", finishGone: "gone", finishBroken: "broken",
			finishUnopened: "unopened", finishDropped: "dropped"}
		return "finish" + name + " " + how[e.finish]
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

// play runs one script of events against a fresh machine and returns what
// came out of each; playOn does it to a machine that is there.
func play(script string) string { return playOn(&turnMachine{}, script) }

func playOn(m *turnMachine, script string) string {
	var out []string
	for step := range strings.FieldsSeq(script) {
		verb, arg, _ := strings.Cut(step, ":")
		var got []effect
		switch verb {
		case "client", "mail", "summary":
			src := map[string]turnSource{"client": sourceClient, "mail": sourceMail, "summary": sourceSummary}[verb]
			got = m.submit(&turn{req: turnRequest{prompt: arg, source: src, run: true}, waiter: waiterID(len(arg)*1000 + int(arg[0]))})
		case "rebind":
			got = m.submit(&turn{req: turnRequest{prompt: arg}, waiter: 1})
		case "cancel":
			got = m.cancel(waiterID(len(arg)*1000 + int(arg[0])))
		case "open":
			m.opened()
		case "go":
			got = m.advance()
		case "started":
			got = m.started(arg)
		case "refused":
			got = m.refused(arg == "unknown")
		case "ended":
			got = m.ended(arg)
		case "timeout":
			got = m.stopTurn(stopTimeout)
		case "wind", "down": // close and shutdown, with a last turn
			why := map[string]ending{"wind": endClose, "down": endShutdown}[verb]
			got = m.endWith(why, &turn{req: turnRequest{prompt: arg, source: sourceSummary, run: true}})
		case "expire":
			got = m.expire()
		case "stop":
			got = m.stopTurn(stopInterrupt)
		case "spent":
			m.spent()
		case "park", "shutdown", "close", "gone", "failed":
			got = m.end(map[string]ending{"park": endPark, "shutdown": endShutdown, "close": endClose, "gone": endGone,
				"failed": endFailed}[verb])
		case "broken":
			got = m.giveUp()
		case "lost":
			got = m.lost()
		default:
			panic("no such step " + step)
		}
		if w := words(got); w != "" {
			out = append(out, w)
		}
	}
	return strings.Join(out, "; ")
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
		if got := play(c.script); got != c.want {
			t.Errorf("%s:\n script %s\n got    %s\n want   %s", c.rule, c.script, got, c.want)
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	m := &turnMachine{}
	for i := range maxQueue + 1 { // one of them is about to run
		if got := m.submit(&turn{req: turnRequest{run: true}, waiter: waiterID(i + 1)}); got != nil {
			t.Fatalf("turn %d: %s", i, words(got))
		}
	}
	if got := words(m.submit(&turn{req: turnRequest{prompt: "x", run: true}})); got != "finish x full" {
		t.Fatalf("got %q", got)
	}
}

// TestMachineTable plays every event in every state: what comes out, and where
// the machine stands then.
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
		before := play(st.script)
		for _, ev := range events {
			m := &turnMachine{}
			all := playOn(m, st.script+" "+ev)
			out := strings.TrimPrefix(strings.TrimPrefix(all, before), "; ")
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
	f.Add([]byte{2, 0, 3, 0, 12, 5, 6, 3}) // a turn that is taken out of the queue
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := &turnMachine{}
		const queued, running, finished = 0, 1, 2
		state := map[*turn]int{}      // of every turn the machine has taken or started
		gone := map[*turn]bool{}      // cancelled while queued
		asked := map[waiterID]*turn{} // of turns with a waiter
		var made []*turn
		var runs *turn
		over, ids := false, 0
		take := func(effects []effect) {
			for _, e := range effects {
				if over && e.kind != effFinish {
					t.Fatalf("%s after the end", e.word())
				}
				switch e.kind {
				case effStart:
					if runs != nil || state[e.turn] != queued || gone[e.turn] {
						t.Fatalf("started a turn while one runs, or one that ran or was cancelled")
					}
					state[e.turn], runs = running, e.turn
				case effFinish:
					if state[e.turn] == finished {
						t.Fatalf("finished twice")
					}
					if state[e.turn] == running {
						runs = nil
					}
					if e.finish == finishDropped && state[e.turn] != queued {
						t.Fatalf("dropped a turn that ran")
					}
					state[e.turn] = finished
				case effInterrupt:
					if e.turn != runs {
						t.Fatalf("interrupted a turn that isn't running")
					}
				case effEnd:
					if runs != nil {
						t.Fatalf("ended over a running turn")
					}
					over = true
				}
			}
		}
		for _, b := range steps {
			arg := int(b) >> 4
			switch b & 15 {
			case 0, 1:
				tr := &turn{req: turnRequest{run: arg != 15, source: turnSource(arg % 4)}, waiter: waiterID(len(made) + 1)}
				made = append(made, tr)
				state[tr], asked[tr.waiter] = queued, tr
				take(m.submit(tr))
			case 2:
				m.opened()
			case 3:
				take(m.advance())
			case 4:
				m.spent()
			case 5:
				ids++
				take(m.started(fmt.Sprint(ids)))
			case 6:
				if m.cur != nil {
					take(m.ended(m.cur.id))
				}
			case 7:
				take(m.refused(arg%2 == 0))
			case 8:
				take(m.stopTurn(stopReason(1 + arg%6)))
			case 9:
				tr := asked[waiterID(arg)]
				waits := tr != nil && state[tr] == queued
				take(m.cancel(waiterID(arg)))
				if waits {
					gone[tr] = true
					if state[tr] != finished {
						t.Fatal("a cancelled turn still waits")
					}
				}
			case 10:
				if e := ending(1 + arg%6); e == endBroken {
					take(m.giveUp())
				} else {
					take(m.end(e))
				}
			case 11:
				take(m.lost())
			case 12:
				if arg < len(m.queue) {
					tr := m.queue[arg]
					if !m.drop(tr) || m.drop(tr) {
						t.Fatal("a waiting turn is dropped once")
					}
					state[tr], gone[tr] = finished, true
				}
			case 13:
				take(m.ended("nobody's"))
			case 14:
				last := &turn{req: turnRequest{run: true, source: sourceSummary}}
				take(m.endWith([]ending{endClose, endShutdown}[arg%2], last))
			case 15:
				take(m.expire())
			}
			if m.cur != runs || (runs != nil) != (m.phase == phaseStarting || m.phase == phaseRunning || m.phase == phaseStopping) {
				t.Fatalf("phase %d with a running turn: %v", m.phase, runs != nil)
			}
			waiting := 0
			for tr, s := range state {
				if s == queued {
					waiting++
					if !slices.Contains(m.queue, tr) {
						t.Fatal("a turn is in no state")
					}
				}
			}
			if waiting != len(m.queue) || waiting > maxQueue+1 {
				t.Fatalf("%d wait, the queue has %d", waiting, len(m.queue))
			}
			if over != (m.phase == phaseOver) || over && (len(m.queue) > 0 || m.last != nil) {
				t.Fatal("something is held after the end, or it goes on without one")
			}
		}
		take(m.end(endGone)) // whatever was going on, the child's death answers all
		for i, tr := range made {
			if state[tr] != finished {
				t.Fatalf("turn %d was never finished", i)
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
			t.Errorf("call %s by %q: overtakes %v, in line %q, to be served %v", c.name, c.ref, open != nil, line, serve)
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
