package main

// session_end_test.go holds the ends of sessions and of the whole proxy to the second, in the world of
// session_world_test.go: the one deadline of a busy close, the grace of a shutdown, who is answered before what. Whoever
// is told "closed" finds a closed record, even where the session was being opened or parked a moment ago.

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// record is a session's record as it is on disk.
func (w *world) record(agent string) record {
	w.t.Helper()
	data, err := os.ReadFile(w.hub.reg.recordPath(agent))
	if err != nil {
		w.t.Fatal(err)
	}
	rec, err := decodeRecord(data, agent)
	if err != nil {
		w.t.Fatal(err)
	}
	return *rec
}

// summary is what a session wrote as it ended.
func (w *world) summary(agent string) string {
	w.t.Helper()
	rec := w.record(agent)
	return strings.TrimSpace(w.hub.ledger.summary(&rec))
}

// busyAgent starts an agent and leaves a turn running in it; ending is what it
// does when it is asked for a summary.
func (w *world) busyAgent(identity, ending, prompt string) (agent string, turn *worldCall) {
	agent = stringField(w.tool("codex", "identity", identity, "prompt", "ENDING "+ending+"\nSAY hello").ok(w.t), "structuredContent", "agent_id")
	turn = w.tool("codex-reply", "agent_id", agent, "prompt", prompt)
	synctest.Wait()
	return agent, turn
}

func closedAs(t *testing.T, c *worldCall) (interrupted bool) {
	t.Helper()
	res := c.ok(t)
	if got := stringField(res, "structuredContent", "status"); got != "closed" {
		t.Errorf("closed as %q", got)
	}
	return string(rawField(res, "structuredContent", "interrupted")) == "true"
}

// codex {agent_id} that reaches a session in the instant after its close was
// answered "closed before this turn ran": it came too late for those that wait
// for the end, and too early to be turned away at the postbox.
func TestWorldReopenInTheInstantOfTheClose(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("SAY hello")
		const waiter = waiterID(1000) // none of the front's
		s := w.hub.table.agent(agent)
		w.hub.waiters.add(waiter)
		before := w.sent("turn/start")
		s.box.do(func() {
			s.carry(s.m.end(endClose))
			w.hub.queueTurn(s, turnRequest{mode: modeRevive, ref: agent, prompt: "SAY back", run: true}, waiter)
		})
		synctest.Wait()
		if n, status := w.sent("turn/start")-before, w.status(agent); n != 1 || status != "idle" {
			t.Errorf("%d turns ran, and the agent is %s; want 1, idle", n, status)
		}
	})
}

// A summary that takes its time is waited for, and its file is private.
func TestWorldCloseWithSummary(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent, turn := w.busyAgent("ann", "SLOW 4000 all that is done", "SAY half\nHANG")
		from := w.now()
		closing := w.tool("agent_close", "identity", "ann")
		about(t, "caller answered", turn.wait().at-from, 0)
		if !closedAs(t, closing) {
			t.Error("not told that a turn was cut short")
		}
		if d := w.now() - from; d < 4*time.Second || d >= closingLimit {
			t.Errorf("closed after %v", d)
		}
		if got := w.summary(agent); got != "all that is done" {
			t.Errorf("summary %q", got)
		}
		rec := w.record(agent)
		if st, err := os.Stat(w.hub.ledger.summaryPath(&rec)); err != nil || st.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
		if rec.SummaryDue || rec.Turns != 2 || rec.Status != "closed" || !strings.Contains(rec.Digest.LastAnswer, "half") {
			t.Errorf("record %+v", rec)
		}
	})
}

// One deadline holds from the request: without a summary by then the session is
// closed and says that it was interrupted.
func TestWorldCloseSummaryTimeout(t *testing.T) {
	for _, c := range []struct{ name, ending, prompt string }{
		{"the summary hangs", "HANG", "HANG"},
		{"the summary can't be stopped", "IGNORE_INTERRUPT\nENDING HANG", "HANG"},
		{"the summary's start is lost", "SAY never", "DROP turn/start\nHANG"},
		{"the summary is too slow", "SLOW 60000 half" + strings.Repeat("x", 236), "HANG"},
		{"the turn can't be stopped", "SAY never", "IGNORE_INTERRUPT\nHANG"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, nil, noElicitation, func(w *world) {
				t := w.t
				agent, turn := w.busyAgent("ann", c.ending, c.prompt)
				from := w.now()
				first := w.tool("agent_close", "agent_id", agent)
				time.Sleep(4 * time.Second)
				second := w.tool("agent_close", "agent_id", agent) // joins, and prolongs nothing
				if got := stringField(turn.ok(t), "structuredContent", "turn_status"); got != "interrupted" {
					t.Errorf("turn %q", got)
				}
				if !closedAs(t, first) {
					t.Error("not interrupted")
				}
				about(t, "closed", w.now()-from, closingLimit)
				closedAs(t, second)
				about(t, "joined", w.now()-from, closingLimit)
				if rec := w.record(agent); rec.Status != "closed" || !rec.Interrupted || !rec.SummaryDue {
					t.Errorf("record %+v", rec)
				}
				if got := w.summary(agent); got != "" {
					t.Errorf("summary %q", got)
				}
				w.tool("codex", "identity", "ann", "prompt", "SAY the name is free").ok(t)
			})
		})
	}
}

// Closing ten busy sessions takes one grace, not ten.
func TestWorldCloseManyOneGrace(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		var closing []*worldCall
		for i := range 10 {
			w.busyAgent(fmt.Sprintf("a%d", i), "HANG", "HANG")
		}
		from := w.now()
		for i := range 10 {
			closing = append(closing, w.tool("agent_close", "identity", fmt.Sprintf("a%d", i)))
		}
		for _, c := range closing {
			closedAs(t, c)
		}
		about(t, "all closed", w.now()-from, closingLimit)
	})
}

// A death while the summary is written closes the session all the same.
func TestWorldCloseSummaryDeath(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent, _ := w.busyAgent("ann", "DIE 3", "HANG")
		if !closedAs(t, w.tool("agent_close", "agent_id", agent)) {
			t.Error("not interrupted")
		}
		if rec := w.record(agent); rec.Status != "closed" || !rec.Interrupted {
			t.Errorf("record %+v", rec)
		}
	})
}

// Nothing is asked of a session that keeps nothing.
func TestWorldCloseWithoutPersistence(t *testing.T) {
	inWorld(t, map[string]string{"persist_threads": "false"}, noElicitation, func(w *world) {
		t := w.t
		agent, _ := w.busyAgent("ann", "HANG", "HANG")
		from := w.now()
		closedAs(t, w.tool("agent_close", "agent_id", agent))
		about(t, "closed", w.now()-from, 0)
		if n := w.sent("turn/start"); n != 2 {
			t.Errorf("%d turns were started", n)
		}
	})
}

// Shutdown: whoever waits is answered within a moment, whatever the child does;
// what is asked later is refused; all summaries together have the grace.
func TestWorldShutdown(t *testing.T) {
	inWorld(t, map[string]string{"shutdown_grace_secs": "7"}, noElicitation, func(w *world) {
		t := w.t
		quick := stringField(w.tool("codex", "identity", "quick", "prompt", "ENDING SLOW 3000 summed up\nSAY one").ok(t), "structuredContent", "agent_id")
		slow := stringField(w.tool("codex", "identity", "slow", "prompt", "ENDING HANG\nSAY one").ok(t), "structuredContent", "agent_id")
		deaf, turn := w.busyAgent("deaf", "SAY never", "IGNORE_INTERRUPT\nSAY half\nHANG")
		queued := w.tool("codex-reply", "agent_id", deaf, "prompt", "SAY never")
		synctest.Wait()

		from := w.now()
		w.hub.beginStop(7 * time.Second)
		if took := w.now() - from; took > 80*time.Millisecond {
			t.Errorf("settled after %v", took)
		}
		for _, id := range []string{quick, slow, deaf} {
			if rec := w.record(id); rec.Status != "stale" || rec.Interrupted != (id == deaf) {
				t.Errorf("record %s %v", rec.Status, rec.Interrupted)
			}
		}
		queued.fails(t, codeSessionClosed, "shutting down")
		res := turn.ok(t)
		if got := stringField(res, "structuredContent", "turn_status"); got != "interrupted" || stringField(res, "structuredContent", "content") != "half" {
			t.Errorf("turn: %s", res)
		}
		w.tool("codex", "prompt", "SAY late").fails(t, codeSessionClosed, "shutting down")
		w.tool("codex-reply", "agent_id", quick, "prompt", "SAY late").fails(t, codeSessionClosed, "shutting down")
		if took := w.now() - from; took > 80*time.Millisecond {
			t.Errorf("all answered after %v", took)
		}

		w.hub.stop(7 * time.Second)
		about(t, "stopped", w.now()-from, 7*time.Second)
		if got := w.summary(quick); got != "summed up" {
			t.Errorf("summary %q", got)
		}
		if rec := w.record(quick); rec.Interrupted || rec.SummaryDue {
			t.Errorf("quick: %+v", rec)
		}
		if rec := w.record(slow); rec.Status != "stale" || !rec.Interrupted || !rec.SummaryDue {
			t.Errorf("slow: %+v", rec)
		}
		var index indexFile
		data, err := os.ReadFile(filepath.Join(w.hub.cfg.sessionsRoot, "default", "quick", "registry.json"))
		if err != nil || json.Unmarshal(data, &index) != nil || len(index.Sessions) != 0 {
			t.Errorf("index %s, %v", data, err)
		}
	})
}

// A grace of 0 asks for no summary and takes no time.
func TestWorldShutdownWithoutGrace(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		_, turn := w.busyAgent("ann", "HANG", "IGNORE_INTERRUPT\nSAY half\nHANG")
		w.agent("SAY idle")
		before, from := w.sent("turn/start"), w.now()
		w.hub.beginStop(0)
		w.hub.stop(0)
		about(t, "stopped", w.now()-from, 0)
		if got := stringField(turn.ok(t), "structuredContent", "content"); got != "half" {
			t.Errorf("content %q", got)
		}
		if n := w.sent("turn/start"); n != before {
			t.Errorf("%d turns were started", n-before)
		}
	})
}

// A close that shutdown overtakes is answered at once: the client is going.
func TestWorldShutdownOverAClose(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent, _ := w.busyAgent("ann", "HANG", "HANG")
		closing := w.tool("agent_close", "agent_id", agent)
		synctest.Wait()
		from := w.now()
		w.hub.beginStop(5 * time.Second)
		closedAs(t, closing)
		about(t, "answered", w.now()-from, 0)
		w.hub.stop(5 * time.Second)
		about(t, "stopped", w.now()-from, 5*time.Second)
		if rec := w.record(agent); rec.Status != "closed" || !rec.Interrupted {
			t.Errorf("record %+v", rec)
		}
	})
}

// codex {agent_id} to a session that is being closed waits until it is, and
// opens it again.
func TestWorldReviveWhileClosing(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent, _ := w.busyAgent("ann", "SLOW 4000 summed up so far", "HANG")
		from := w.now()
		closing := w.tool("agent_close", "agent_id", agent)
		synctest.Wait()
		back := w.tool("codex", "agent_id", agent, "prompt", "SAY back")
		again := w.tool("codex", "agent_id", agent, "model", "gpt-5.5", "prompt", "SAY and again")
		gone := w.tool("codex", "agent_id", agent, "prompt", "SAY cancelled")
		synctest.Wait()
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": gone.id})
		closedAs(t, closing)
		for _, c := range []*worldCall{back, again} {
			if at := c.wait().at - from; at < 4*time.Second || at > 5*time.Second {
				t.Errorf("answered after %v", at)
			}
		}
		if got := w.status(agent); got != "idle" {
			t.Errorf("status %q", got)
		}
	})
}

// agent_interrupt is answered however the turn ends that it stops: here a new
// agent's first one, cancelled by its caller just before, which parks the agent.
// The answer never came.
func TestWorldInterruptOfACancelledTurn(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		w.tool("codex", "identity", "ann", "prompt", "HANG")
		synctest.Wait()
		s := w.hub.table.named("ann")
		told := make(chan interruptResult, 1)
		s.box.do(func() {
			w.hub.cancel(s.m.cur.waiter)
			s.carry(s.m.stopTurn(stopCancel)) // what the cancel has posted
			s.turns.interruptTurn("", func(r interruptResult) { told <- r })
		})
		if r := <-told; !r.Interrupted || r.AgentID != s.agentID {
			w.t.Errorf("told %+v", r)
		}
	})
}

// The same of a summary that an agent writes as it closes.
func TestWorldInterruptOfASummary(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		agent, _ := w.busyAgent("ann", "HANG", "HANG")
		from := w.now()
		closing := w.tool("agent_close", "agent_id", agent)
		synctest.Wait()
		res := w.tool("agent_interrupt", "agent_id", agent).ok(w.t)
		if string(rawField(res, "structuredContent", "interrupted")) != "true" {
			w.t.Errorf("interrupt: %s", res)
		}
		closedAs(w.t, closing)
		about(w.t, "closed", w.now()-from, 0)
	})
}

// What a file system keeps waiting, for a read that nothing can end, keeps serve
// from its end for endLimit at most.
func TestWorldTheEndWaitsForNoDisk(t *testing.T) {
	dir := t.TempDir()
	early := make(chan os.Signal, 1) // os/signal's own goroutine must not be born in a bubble: it never ends
	signal.Notify(early, syscall.SIGHUP)
	signal.Stop(early)
	synctest.Test(t, func(t *testing.T) {
		cfg, err := loadConfig(func(name string) string { return map[string]string{"HOME": dir}[name] }, dir, flagValues{})
		wantNil(t, err)
		log := slog.New(slog.DiscardHandler)
		p := &proxyRun{log: log, lines: newOutbox(io.Discard, logBudget, nil), deaf: make(chan struct{}), grace: cfg.shutdownGrace}
		p.h, p.audit = newProxyHub(cfg, log, nil)
		p.h.mail.newWatcher = func() (*watcher, error) { return nil, errNoWatch }
		hung := make(chan struct{})
		began := time.Now()
		p.until(t.Context(), func() error { return nil }, func(time.Duration) { <-hung }, func(time.Duration) {})
		if took := time.Since(began); took != cfg.shutdownGrace+endLimit {
			t.Errorf("ended after %v", took)
		}
		close(hung)
		<-p.audit.exited
	})
}

// pushedOut is an agent that a second one pushed out.
func pushedOut(w *world) (agent, other string) {
	w.t.Helper()
	agent = w.agent("SAY one")
	other = w.agent("SAY two")
	if got := w.status(agent); got != statusParked {
		w.t.Fatalf("status %q, want parked", got)
	}
	return agent, other
}

// closedFor holds an answered close to its word.
func closedFor(w *world, agent string) {
	w.t.Helper()
	w.tool("agent_close", "agent_id", agent).ok(w.t)
	if got := w.status(agent); got != statusClosed {
		w.t.Errorf("status %q after agent_close was answered, want closed", got)
	}
	w.tool("codex-reply", "agent_id", agent, "prompt", "SAY more").fails(w.t, codeSessionClosed, "is closed")
}

// A close may come while a revived session waits for its settings, before it
// has its place, and while Codex opens its thread.
func TestWorldCloseWhileOpening(t *testing.T) {
	for _, dropped := range []string{"config/read", "thread/resume"} {
		t.Run(dropped, func(t *testing.T) {
			inWorld(t, map[string]string{"max_concurrent_threads": "1"}, noElicitation, func(w *world) {
				agent, other := pushedOut(w)
				w.tool("codex-reply", "agent_id", other, "prompt", "DROP "+dropped).ok(w.t)
				reply := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY three")
				if got := w.status(agent); got == statusIdle {
					w.t.Fatalf("the session is open: %s was not dropped", dropped)
				}
				closedFor(w, agent)
				reply.fails(w.t, codeSessionClosed, "closed before this turn ran")
			})
		})
	}
}

// A close that meets a session which is just being parked closes it all the
// same: it was told to be closed "before".
func TestWorldCloseOfASessionBeingParked(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		agent := w.agent("SAY one")
		s := w.hub.table.agent(agent)
		gate := make(chan struct{})
		s.box.do(func() { <-gate })
		s.end(endPark, "", nil)
		closed := w.tool("agent_close", "agent_id", agent)
		w.request("ping", "{}").ok(w.t) // the close is with the session
		close(gate)
		closed.ok(w.t)
		if got := w.status(agent); got != statusClosed {
			t.Errorf("status %q after agent_close was answered, want closed", got)
		}
	})
}

// A turn that completes while it is being closed was not cut short.
func TestWorldCloseOfACompletedTurn(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		agent := w.agent("SAY one")
		reply := w.tool("codex-reply", "agent_id", agent, "prompt", "IGNORE_INTERRUPT\nSLOW 2000 at last")
		if got := w.status(agent); got != statusBusy {
			t.Fatalf("status %q, want busy", got)
		}
		w.tool("agent_close", "agent_id", agent).ok(w.t)
		reply.ok(w.t)
		rec := w.hub.ledger.record(agent)
		if rec.Status != statusClosed || rec.LastTurnStatus != "completed" || rec.Interrupted {
			t.Errorf("the record says %s, last turn %s, interrupted %v", rec.Status, rec.LastTurnStatus, rec.Interrupted)
		}
	})
}
