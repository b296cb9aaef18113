package main

import (
	"fmt"
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
func play(script string) string {
	m := &turnMachine{}
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

// FuzzMachine drives random events and holds the machine to the invariants:
// every turn finishes at most once, and once by the end; one runs at a time;
// nothing happens after the end.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 3, 4, 5, 6})
	f.Add([]byte{0, 0, 1, 3, 4, 8, 5, 9, 10, 11, 6, 12})
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := &turnMachine{}
		var made []*turn
		finished := map[*turn]int{}
		dropped := map[*turn]bool{}
		ended, ids := 0, 0
		take := func(effects []effect) {
			for _, e := range effects {
				switch e.kind {
				case effStart:
					if m.cur != e.turn || finished[e.turn] > 0 {
						t.Fatalf("started a turn that isn't current or is finished")
					}
				case effFinish:
					finished[e.turn]++
					dropped[e.turn] = e.finish == finishDropped
					if finished[e.turn] > 1 {
						t.Fatalf("finished twice")
					}
				case effEnd:
					if ended++; ended > 1 {
						t.Fatalf("ended twice")
					}
				case effInterrupt:
					if m.cur != e.turn {
						t.Fatalf("interrupted a turn that isn't running")
					}
				}
			}
		}
		for _, b := range steps {
			arg := int(b) >> 4
			switch b & 15 {
			case 0, 1:
				tr := &turn{req: turnRequest{run: arg != 15, source: turnSource(arg % 4)}, waiter: waiterID(len(made) + 1)}
				made = append(made, tr)
				take(m.submit(tr))
			case 2:
				m.opened()
			case 3, 4:
				take(m.advance())
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
				take(m.stopTurn(stopReason(1 + arg%5)))
			case 9:
				take(m.cancel(waiterID(arg)))
			case 10:
				if e := ending(1 + arg%6); e == endBroken {
					take(m.giveUp())
				} else {
					take(m.end(e))
				}
			case 11:
				take(m.lost())
			case 13:
				take(m.ended("nobody's"))
			}
			if (m.cur != nil) != (m.phase == phaseStarting || m.phase == phaseRunning || m.phase == phaseStopping) {
				t.Fatalf("phase %d with current turn %v", m.phase, m.cur != nil)
			}
			if ended > 0 && m.phase != phaseOver {
				t.Fatal("alive after the end")
			}
		}
		take(m.end(endGone)) // whatever was going on, the child's death answers all
		for i, tr := range made {
			if finished[tr] != 1 {
				t.Fatalf("turn %d finished %d times", i, finished[tr])
			}
		}
	})
}
