package main

// session_end_test.go holds the ends of sessions and of the whole proxy to the second, in the world of
// session_world_test.go: the one deadline of a busy close, the grace of a shutdown, who is answered before what.
// Whoever is told "closed" finds a closed record, even where the session was being opened or parked a moment ago.

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// summary is what a session wrote as it ended.
func (w *world) summary(agent string) string {
	w.t.Helper()
	return strings.TrimSpace(w.hub.ledger.summary(w.record(agent)))
}

// busyAgent starts an agent and leaves a turn running in it; ending is what it does when it is asked for a summary.
func (w *world) busyAgent(identity, ending, prompt string) (agent string, turn *worldCall) {
	agent = w.named(identity, "ENDING "+ending+"\nSAY hello")
	turn = w.reply(agent, prompt)
	synctest.Wait()
	return agent, turn
}

func (w *world) close(agent string) *worldCall { return w.tool("agent_close", "agent_id", agent) }

// wantClosed holds the answer of a close to its word, and to whether a turn was cut short.
func (c *worldCall) wantClosed(w *world, interrupted bool) {
	w.t.Helper()
	res := c.ok(w.t)
	w.is("closed as", resultField(res, "status"), statusClosed)
	w.is("interrupted", string(rawField(res, "structuredContent", "interrupted")) == "true", interrupted)
}

// wantRecord holds a session's record to its status and whether it says that it was interrupted.
func (w *world) wantRecord(agent, status string, interrupted bool) *record {
	w.t.Helper()
	rec := w.record(agent)
	if rec.Status != status || rec.Interrupted != interrupted {
		w.t.Errorf("record %+v, want %s, interrupted %v", rec, status, interrupted)
	}
	return rec
}

// A summary that takes its time is waited for, and its file is private. codex {agent_id} to a session that is being
// closed waits until it is, and opens it again.
func TestWorldCloseWithSummary(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		agent, turn := w.busyAgent("ann", "SLOW 4000 all that is done", "SAY half\nHANG")
		from := w.now()
		closing := w.close(agent)
		about(t, "caller answered", turn.wait().at-from, 0)
		closing.wantClosed(w, true)
		if d := w.now() - from; d < 4*time.Second || d >= closingLimit {
			t.Errorf("closed after %v", d)
		}
		w.is("summary", w.summary(agent), "all that is done")
		rec := w.wantRecord(agent, statusClosed, true)
		st, err := os.Stat(w.hub.ledger.summaryPath(rec))
		if err != nil || st.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
		if rec.SummaryDue || rec.Turns != 2 || !strings.Contains(rec.Digest.LastAnswer, "half") {
			t.Errorf("record %+v", rec)
		}

		agent, _ = w.busyAgent("bob", "SLOW 4000 summed up so far", "HANG")
		from = w.now()
		closing = w.close(agent)
		synctest.Wait()
		back := w.tool("codex", "agent_id", agent, "prompt", "SAY back")
		again := w.tool("codex", "agent_id", agent, "model", "gpt-5.5", "prompt", "SAY and again")
		gone := w.tool("codex", "agent_id", agent, "prompt", "SAY cancelled")
		synctest.Wait()
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": gone.id})
		closing.wantClosed(w, true)
		for _, c := range []*worldCall{back, again} {
			if at := c.wait().at - from; at < 4*time.Second || at > 5*time.Second {
				t.Errorf("answered after %v", at)
			}
		}
		w.wantStatus(agent, statusIdle)
	})
}

// One deadline holds from the request, for ten sessions at once as for one: without a summary by then the session is
// closed and says that it was interrupted. A second close joins the first, and prolongs nothing.
func TestWorldCloseSummaryTimeout(t *testing.T) {
	for _, c := range []struct {
		name, ending, prompt string
		others               int
	}{
		{"the summaries hang", "HANG", "HANG", 9},
		{"the summary can't be stopped", "IGNORE_INTERRUPT\nENDING HANG", "HANG", 0},
		{"the summary's start is lost", "SAY never", "DROP turn/start\nHANG", 0},
		{"the summary is too slow", "SLOW 60000 half" + strings.Repeat("x", 236), "HANG", 0},
		{"the turn can't be stopped", "SAY never", "IGNORE_INTERRUPT\nHANG", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
				agent, turn := w.busyAgent("ann", c.ending, c.prompt)
				closing := map[string]*worldCall{}
				for i := range c.others {
					other, _ := w.busyAgent(fmt.Sprintf("a%d", i), "HANG", "HANG")
					closing[other] = nil
				}
				from := w.now()
				first := w.close(agent)
				for other := range closing {
					closing[other] = w.close(other)
				}
				time.Sleep(4 * time.Second)
				second := w.close(agent)
				w.is("turn", resultField(turn.ok(t), "turn_status"), "interrupted")
				for _, other := range closing {
					other.wantClosed(w, true)
				}
				first.wantClosed(w, true)
				second.wantClosed(w, true)
				about(t, "closed", w.now()-from, closingLimit)
				w.is("summary due", w.wantRecord(agent, statusClosed, true).SummaryDue, true)
				w.is("summary", w.summary(agent), "")
				w.named("ann", "SAY the name is free")
			})
		})
	}
}

// A death while the summary is written closes the session all the same, and so does agent_interrupt of the summary.
// Nothing is asked of a session that keeps nothing.
func TestWorldCloseWithoutSummary(t *testing.T) {
	for _, c := range []struct{ ending, persist string }{{"DIE 3", "true"}, {"HANG", "true"}, {"HANG", "false"}} {
		settings := map[string]string{"persist_threads": c.persist}
		inWorld(t, settings, noElicitation, func(t *testing.T, w *world) {
			agent, _ := w.busyAgent("ann", c.ending, "HANG")
			from := w.now()
			closing := w.close(agent)
			synctest.Wait()
			if c.ending == "HANG" && c.persist == "true" {
				res := w.tool("agent_interrupt", "agent_id", agent).ok(t)
				w.is("interrupted", string(rawField(res, "structuredContent", "interrupted")), "true")
			}
			closing.wantClosed(w, true)
			about(t, "closed", w.now()-from, 0)
			if c.persist == "false" {
				w.is("turns", w.sent("turn/start"), 2)
			} else {
				w.wantRecord(agent, statusClosed, true)
			}
		})
	}
}

// Shutdown: whoever waits is answered within a moment, whatever the child does; what is asked later is refused; all
// summaries together have the grace. A close that shutdown overtakes is answered at once: the client is going.
func TestWorldShutdown(t *testing.T) {
	const grace = 7 * time.Second
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		quick := w.named("quick", "ENDING SLOW 3000 summed up\nSAY one")
		slow := w.named("slow", "ENDING HANG\nSAY one")
		deaf, turn := w.busyAgent("deaf", "SAY never", "IGNORE_INTERRUPT\nSAY half\nHANG")
		queued := w.reply(deaf, "SAY never")
		left, _ := w.busyAgent("left", "HANG", "HANG")
		closing := w.close(left)
		synctest.Wait()

		from := w.now()
		w.hub.beginStop(grace)
		for _, id := range []string{quick, slow, deaf} {
			w.wantRecord(id, statusStale, id == deaf)
		}
		queued.fails(t, codeSessionClosed, "shutting down")
		res := turn.ok(t)
		w.is("turn", resultField(res, "turn_status")+" "+resultField(res, "content"), "interrupted half")
		closing.wantClosed(w, true)
		w.tool("codex", "prompt", "SAY late").fails(t, codeSessionClosed, "shutting down")
		w.reply(quick, "SAY late").fails(t, codeSessionClosed, "shutting down")
		about(t, "all answered", w.now()-from, 0)

		w.hub.stop(grace)
		about(t, "stopped", w.now()-from, grace)
		w.is("summary", w.summary(quick), "summed up")
		w.is("summary due", w.wantRecord(quick, statusStale, false).SummaryDue, false)
		w.is("summary due", w.wantRecord(slow, statusStale, true).SummaryDue, true)
		w.wantRecord(left, statusClosed, true)
		var index indexFile
		data := readText(t, filepath.Join(w.cfg.sessionsRoot, "default", "quick", "registry.json"))
		if json.Unmarshal([]byte(data), &index) != nil || len(index.Sessions) != 0 {
			t.Errorf("index %s", data)
		}
	})
}

// What a turn says that ends during shutdown is in the record by the time its caller is told, while its summary is
// still being written: a kill may come then, and notes of the journal are read for open sessions alone.
func TestWorldShutdownKeepsTheLastAnswer(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		agent, turn := w.busyAgent("ann", "HANG", "IGNORE_INTERRUPT\nSLOW 5 told")
		w.hub.beginStop(time.Second)
		w.is("content", resultField(turn.ok(t), "content"), "told")
		w.is("in the record", w.wantRecord(agent, statusStale, false).Digest.LastAnswer, "told")
	})
}

// A grace of 0 asks for no summary and takes no time.
func TestWorldShutdownWithoutGrace(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		_, turn := w.busyAgent("ann", "HANG", "IGNORE_INTERRUPT\nSAY half\nHANG")
		w.agent("SAY idle")
		before, from := w.sent("turn/start"), w.now()
		w.hub.beginStop(0)
		w.hub.stop(0)
		about(t, "stopped", w.now()-from, 0)
		w.is("content", resultField(turn.ok(t), "content"), "half")
		w.is("turns", w.sent("turn/start"), before)
	})
}

// What comes in the instant of an end. codex {agent_id} that reached a session right after its close was answered
// "closed before this turn ran": it came too late for those that wait for the end, and too early to be turned away at
// the postbox. agent_interrupt is answered however the turn ends that it stops: the answer never came where its caller
// had just cancelled it. A turn that completes while it is being closed was not cut short.
func TestWorldInTheInstantOfTheEnd(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		agent := w.named("ann", "SAY hello")
		const waiter = waiterID(1000) // none of the front's
		s := w.hub.table.agent(agent)
		w.hub.waiters.add(waiter)
		s.box.do(func() {
			s.carry(s.m.end(endClose))
			w.hub.queueTurn(s, turnRequest{mode: modeRevive, ref: agent, prompt: "SAY back", run: true}, waiter)
		})
		synctest.Wait()
		w.is("turns", w.sent("turn/start"), 2)
		w.wantStatus(agent, statusIdle)

		w.tool("codex", "identity", "bob", "prompt", "HANG")
		synctest.Wait()
		s = w.hub.table.named("bob")
		told := make(chan interruptResult, 1)
		s.box.do(func() {
			w.hub.cancel(s.m.cur.waiter)
			s.carry(s.m.stopTurn(stopCancel)) // what the cancel has posted
			s.turns.interruptTurn("", func(r interruptResult) { told <- r })
		})
		if r := <-told; !r.Interrupted || r.AgentID != s.agentID {
			t.Errorf("told %+v", r)
		}

		reply := w.reply(agent, "IGNORE_INTERRUPT\nSLOW 2000 at last")
		w.wantStatus(agent, statusBusy)
		w.close(agent).ok(t)
		reply.ok(t)
		w.is("last turn", w.wantRecord(agent, statusClosed, false).LastTurnStatus, "completed")
	})
}

// What a file system keeps waiting, for a read that nothing can end, keeps serve from its end for endLimit at most.
func TestWorldTheEndWaitsForNoDisk(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		log := slog.New(slog.DiscardHandler)
		p := &proxyRun{log: log, lines: newOutbox(io.Discard, logBudget, nil), deaf: make(chan struct{}),
			grace: w.cfg.shutdownGrace, audit: w.newHub(w.cfg)}
		p.h = w.hub
		hung := make(chan struct{})
		p.until(w.t.Context(), func() error { return nil }, func(time.Duration) { <-hung }, func(time.Duration) {})
		w.is("ended after", w.now(), w.cfg.shutdownGrace+endLimit)
		close(hung)
		<-p.audit.exited
	})
}

// A close that meets a session as it is being opened or parked closes it all the same: the session may wait for its
// settings, before it has its place, or for Codex, which opens its thread; and it was told to be closed "before" as it
// was just being parked.
func TestWorldCloseBetweenStates(t *testing.T) {
	for _, between := range []string{"config/read", "thread/resume", "parking"} {
		t.Run(between, func(t *testing.T) {
			settings := map[string]string{"max_concurrent_threads": "1"}
			inWorld(t, settings, noElicitation, func(t *testing.T, w *world) {
				agent := w.agent("SAY one")
				var reply *worldCall
				if between == "parking" {
					s, release := w.hold(agent)
					s.end(endPark, "", nil)
					closed := w.close(agent)
					w.request("ping", "{}").ok(t) // the close is with the session
					release()
					closed.ok(t)
				} else {
					other := w.agent("SAY two") // pushes the first out
					w.wantStatus(agent, statusParked)
					w.reply(other, "DROP "+between).ok(t)
					reply = w.reply(agent, "SAY three")
					if w.view(agent).Status == statusIdle {
						t.Fatalf("the session is open: %s was not dropped", between)
					}
					if between == "config/read" { // it has no place yet, and so no identity of its own
						more := w.reply(agent, "SAY four")
						synctest.Wait()
						stopped := w.tool("agent_interrupt", "agent_id", agent).ok(t)
						w.is("identity", resultField(stopped, "identity"), "codex")
						more, reply = reply, more
						w.is("stopped", resultField(more.ok(t), "turn_status"), "interrupted")
					}
					w.close(agent).ok(t)
				}
				w.wantStatus(agent, statusClosed)
				w.reply(agent, "SAY more").fails(t, codeSessionClosed, "is closed")
				if reply != nil {
					reply.fails(t, codeSessionClosed, "closed before this turn ran")
				}
			})
		})
	}
}
