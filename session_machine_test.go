package main

// session_machine_test.go holds the turn machine to the invariants: a table of dialogues
// (testdata/machine.golden), and random and fuzzed events in any order, after each
// of which every turn is in exactly one place.

import (
	"fmt"
	"os"
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
		how := map[finishKind]string{finishEnded: "ended", finishRebound: "rebound", finishRefused: "refused", finishFull: "full", finishOver: "over",
			finishGone: "gone", finishBroken: "broken", finishUnopened: "unopened", finishDropped: "dropped"}
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
// came out of each.
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
		case "close":
			got = m.end(endClose)
		case "wind": // close, with a last turn
			got = m.endWith(endClose, &turn{req: turnRequest{prompt: arg, source: sourceSummary, run: true}})
		case "down": // shutdown, with a last turn
			got = m.endWith(endShutdown, &turn{req: turnRequest{prompt: arg, source: sourceSummary, run: true}})
		case "expire":
			got = m.expire()
		case "stop":
			got = m.stopTurn(stopInterrupt)
		case "spent":
			m.spent()
		case "park":
			got = m.end(endPark)
		case "shutdown":
			got = m.end(endShutdown)
		case "broken":
			got = m.giveUp()
		case "gone":
			got = m.end(endGone)
		case "failed":
			got = m.end(endFailed)
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

func TestMachine(t *testing.T) {
	for _, c := range []struct{ rule, script, want string }{
		{"a turn waits for the thread", "client:a go open go", "start a"},
		{"turns run in the order they came", "open client:a client:b go started:1 ended:1 go started:2 ended:2",
			"start a; finish a ended; start b; finish b ended"},
		{"client before mail before summary", "open summary:s mail:m client:a go started:1 ended:1 go started:2 ended:2 go",
			"start a; finish a ended; start m; finish m ended; start s"},
		{"one turn runs at a time", "open client:a go client:b go started:1 go", "start a"},
		{"another turn's end changes nothing", "open client:a go started:1 ended:9 go ended:1", "start a; finish a ended"},
		{"a cancelled queued turn never runs", "open client:a go client:b cancel:b started:1 ended:1 go",
			"start a; finish b dropped; finish a ended"},
		{"cancel interrupts what runs", "open client:a go started:1 cancel:a ended:1", "start a; interrupt a; finish a ended"},
		{"a cancel that overtakes the start is not lost", "open client:a go cancel:a started:1 ended:1", "start a; interrupt a; finish a ended"},
		{"a turn is interrupted once", "open client:a go started:1 timeout cancel:a close ended:1", "start a; interrupt a; finish a ended, end closed"},
		{"cancel of nobody", "open cancel:x go", ""},
		{"a refused start leaves the session idle", "open client:a client:b go refused go", "start a; finish a refused; start b"},
		{"an unknown start is interrupted and not sent again", "open client:a go refused:unknown ended:7 go", "start a; interrupt a; finish a ended"},
		{"rebinding runs nothing", "rebind:r client:a open go", "finish r rebound, start a"},
		{"close refuses what waits and stops what runs", "open client:a client:b go started:1 close ended:1",
			"start a; finish b over, interrupt a; finish a ended, end closed"},
		{"close of an idle session is at once", "open close", "end closed"},
		{"nothing enters a closing session", "open client:a go started:1 close client:b ended:1 client:c",
			"start a; interrupt a; finish b over; finish a ended, end closed; finish c over"},
		{"close beats a turn that is about to start", "open client:a go started:1 client:b ended:1 close go", "start a; finish a ended; finish b over, end closed"},
		{"parking is refused while there is work", "open client:a park go", "start a"},
		{"parking", "open park go", "end parked"},
		{"close wins over shutdown", "open client:a go started:1 shutdown close ended:1", "start a; interrupt a; finish a ended, end closed"},
		{"shutdown doesn't undo close", "open client:a go started:1 close shutdown ended:1", "start a; interrupt a; finish a ended, end closed"},
		{"death ends everything", "open client:a client:b go started:1 gone client:c", "start a; finish b gone, finish a gone, end stale; finish c over"},
		{"death while closing", "open client:a go started:1 close gone", "start a; interrupt a; finish a gone, end closed"},
		{"an interrupt that isn't confirmed", "open client:a client:b go started:1 timeout broken ended:1", "start a; interrupt a; finish b broken, finish a broken, end broken"},
		{"a close that isn't confirmed", "open client:a go started:1 close broken", "start a; interrupt a; finish a broken, end closed"},
		{"giving up on nothing", "open broken", ""},
		{"a thread that can't be opened", "client:a client:b failed", "finish a unopened, finish b unopened, end could not be opened"},
		{"the next child after a death", "open client:a go started:1 lost client:b go open go", "start a; finish a gone; start b"},
		{"a busy close runs the last turn when what ran has stopped", "open client:a client:b go started:1 wind:s ended:1 started:2 ended:2 go",
			"start a; finish b over, interrupt a; finish a ended, start s; finish s ended, end closed"},
		{"shutdown of an idle session runs it at once", "open down:s started:1 ended:1", "start s; finish s ended, end stale"},
		{"there is none in a thread that isn't open", "down:s", "end stale"},
		{"nothing enters while the last turn runs", "open client:a go started:1 wind:s client:b ended:1 client:c go started:2 ended:2",
			"start a; interrupt a; finish b over; finish a ended, start s; finish c over; finish s ended, end closed"},
		{"a second close joins the first", "open client:a go started:1 wind:s wind:x ended:1 wind:y started:2 ended:2", "start a; interrupt a; finish a ended, start s; finish s ended, end closed"},
		{"close takes over a shutdown's last turn", "open down:s started:1 wind:x ended:1", "start s; finish s ended, end closed"},
		{"a shutdown joins a close", "open client:a go started:1 wind:s down:x ended:1 started:2 ended:2", "start a; interrupt a; finish a ended, start s; finish s ended, end closed"},
		{"what can't be stopped leaves no time for a last turn", "open client:a go started:1 wind:s broken", "start a; interrupt a; finish a broken, end closed"},
		{"the deadline before the last turn", "open client:a go started:1 wind:s expire ended:1", "start a; interrupt a; finish a broken, end closed"},
		{"the deadline in the last turn", "open client:a go started:1 wind:s ended:1 started:2 expire ended:2",
			"start a; interrupt a; finish a ended, start s; interrupt s, finish s broken, end closed"},
		{"the deadline before the last turn has a name", "open down:s expire started:1", "start s; interrupt s, finish s broken, end stale"},
		{"no deadline without an end", "open client:a go started:1 expire", "start a"},
		{"death in the last turn", "open client:a go started:1 wind:s ended:1 gone", "start a; interrupt a; finish a ended, start s; finish s gone, end closed"},
		{"death before it", "open client:a go started:1 wind:s gone", "start a; interrupt a; finish a gone, end closed"},
		{"a last turn that is refused", "open client:a go started:1 wind:s ended:1 refused", "start a; interrupt a; finish a ended, start s; finish s refused, end closed"},
		{"close of a turn that is refused as it starts", "open client:a go wind:s refused started:2 ended:2", "start a; finish a refused, start s; finish s ended, end closed"},
		{"close overtakes a start", "open client:a go wind:s started:1 ended:1 started:2 ended:2", "start a; interrupt a; finish a ended, start s; finish s ended, end closed"},
		{"a timed-out last turn ends the session without it", "open down:s started:1 timeout ended:1", "start s; interrupt s; finish s ended, end stale"},
		{"agent_interrupt keeps the session", "open client:a client:b go started:1 stop ended:1 go", "start a; interrupt a; finish a ended; start b"},
		{"a spent thread is opened again first", "open client:a go started:1 ended:1 spent client:b go open go", "start a; finish a ended; start b"},
		{"death of a closing session under restart", "open client:a go started:1 close lost", "start a; interrupt a; finish a gone, end closed"},
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
	events := []string{"client:n", "rebind:r", "cancel:a", "cancel:q", "open", "go", "started:7", "refused", "refused:unknown", "ended:1", "ended:2", "ended:9", "timeout", "stop", "park", "close", "wind:l",
		"shutdown", "down:l", "expire", "broken", "gone", "failed", "lost", "spent"}
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
	const golden = "testdata/machine.golden"
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got.String() {
		return
	}
	w, g := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	state := ""
	for i := range min(len(w), len(g)) {
		if strings.HasPrefix(g[i], "#") {
			state = g[i]
		}
		if w[i] != g[i] {
			t.Errorf("%s\n got  %s\n want %s", state, g[i], w[i])
		}
	}
	if len(w) != len(g) {
		t.Errorf("%d lines, want %d; the whole table:\n%s", len(g), len(w), got.String())
	}
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
