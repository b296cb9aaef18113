package main

// session_turn_test.go holds what a session gathers while a turn runs, and, in the world of session_world_test.go, the
// rules that have to do with time to the second: timeouts, the timer of approvals, interrupts that are never confirmed,
// requests that are never answered, progress.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A shell may stay open for as long as its turn runs. What was kept of every
// item behind it grew until the turn ended.
func TestTurnRunIsBounded(t *testing.T) {
	now := time.Now()
	run := newTurnRun("T", now)
	item := func(phase, id, command string) {
		run.note(&event{kind: evItem, thread: "T", phase: phase, item: id, body: &itemBody{kind: "commandExecution", command: command}}, now)
	}
	item("started", "server", "npm start")
	for i := range 10_000 {
		id := fmt.Sprint(i)
		item("started", id, "ls")
		item("completed", id, "ls")
	}
	if n := len(run.openedAt); n > 100 {
		t.Errorf("%d items are kept of a turn with one open", n)
	}
	item("started", "last", "go test")
	if got := run.activity(); got != "running `go test`" {
		t.Errorf("activity %q, want the newest", got)
	}
	if got := run.silent(); got != "running `npm start`, running `go test`" {
		t.Errorf("silent %q, want both, oldest first", got)
	}
}

// Blocks of ours stand in front of what the user says, as text; an action has no
// room for them, so they wait for the next prompt.
func TestTurnCommand(t *testing.T) {
	old, now := contextFacts{Identity: "ann", Team: "t", Cwd: "/a"}, contextFacts{Identity: "ann", Team: "t", Cwd: "/b"}
	change, changed := contextChange(old, now)
	if !changed {
		t.Fatal("nothing changed")
	}
	image := []promptPart{{kind: "image", url: "data:x"}, {kind: "text", text: "this?"}}
	for _, c := range []struct {
		rule   string
		told   contextFacts
		resume string
		offer  string
		req    turnRequest
		want   string
		stays  bool
	}{
		{"nothing to say", now, "", "", turnRequest{prompt: "p"}, "p", false},
		{"all of it", old, "RESUME", "MAIL", turnRequest{prompt: "p"}, "RESUME\n\n" + change + "\n\nMAIL\n\np", false},
		{"mail alone", now, "", "MAIL", turnRequest{prompt: "p"}, "MAIL\n\np", false},
		{"parts alone", now, "", "", turnRequest{prompt: "this?", parts: image}, "", false},
		{"in front of parts", old, "", "MAIL", turnRequest{prompt: "this?", parts: image}, change + "\n\nMAIL", false},
		{"a review", old, "RESUME", "", turnRequest{prompt: "p", action: actReview}, "p", true},
		{"a compaction", old, "RESUME", "", turnRequest{action: actCompact}, "", true},
	} {
		s := &session{h: &hub{cfg: &config{}}, place: &opening{}}
		r := &turnRunner{s: s, told: c.told, past: c.resume}
		got := r.command(&turn{req: c.req, mailText: c.offer}, now)
		if got.prompt != c.want || got.action != c.req.action || len(got.parts) != len(c.req.parts) {
			t.Errorf("%s: %+v, want %q", c.rule, got, c.want)
		}
		if stays := r.told == c.told && r.past == c.resume && c.told != now; stays != c.stays {
			t.Errorf("%s: the blocks stay: %v", c.rule, stays)
		}
	}
}

// A run that keeps so much of an answer keeps no more, and says so.
func TestTurnRunKeeps(t *testing.T) {
	run := newTurnRun("T", time.Now())
	run.most = 5
	run.note(&event{kind: evItem, thread: "T", phase: "completed", body: &itemBody{kind: "agentMessage", text: "1234ä678"}}, time.Now())
	if want := "1234\n\n[answer cut: 4 of 9 bytes shown]"; run.answer != want || !run.answered {
		t.Errorf("kept %q, want %q", run.answer, want)
	}
}

const noElicitation, elicits = `{}`, `{"elicitation":{}}`

// FR-14: silence is what ends a turn, and the agent is usable after it.
func TestWorldSilenceEndsATurn(t *testing.T) {
	inWorld(t, map[string]string{"request_timeout_secs": "300"}, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("SAY hello")
		from := w.now()
		a := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY so far\nHANG").fails(t, codeTimeout, "said nothing for 5m0s", "request_timeout_secs", "so far", agent)
		about(t, "timed out", a.at-from, 300*time.Second)
		if strings.Contains(a.err.Message, " timeout_secs") {
			t.Errorf("advises what would not help: %s", a.err.Message)
		}
		if got := w.status(agent); got != "idle" {
			t.Errorf("status %q, want idle", got)
		}
		w.tool("codex-reply", "agent_id", agent, "prompt", "SAY next").ok(t)
	})
}

// Every event but a retry is a sign of life.
func TestWorldEventsAreLife(t *testing.T) {
	inWorld(t, map[string]string{"request_timeout_secs": "30"}, noElicitation, func(w *world) {
		t := w.t
		res := w.tool("codex", "prompt", "SLOW 90000 a long answer that comes in very small pieces, one every half a second or so, for a minute and a half, "+strings.Repeat("x", 400)).ok(t)
		if got := stringField(res, "structuredContent", "turn_status"); got != "completed" {
			t.Errorf("turn %s, want completed", got)
		}
		if w.now() < time.Minute {
			t.Fatalf("took only %v", w.now())
		}
	})
}

// Codex retries for ever when the network is gone: that is no life, or nothing
// would ever end it.
func TestWorldRetriesAreNoLife(t *testing.T) {
	inWorld(t, map[string]string{"request_timeout_secs": "30"}, noElicitation, func(w *world) {
		t := w.t
		a := w.tool("codex", "prompt", "OFFLINE").fails(t, codeTimeout, "said nothing for 30s", "retrying", "waiting for network")
		about(t, "timed out", a.at, 30*time.Second)
	})
}

// timeout_secs is wall clock, whatever the turn does; its partial text is told.
func TestWorldWallClock(t *testing.T) {
	inWorld(t, map[string]string{"turn_limit_secs": "60"}, noElicitation, func(w *world) {
		t := w.t
		a := w.tool("codex", "timeout_secs", 20, "prompt", "SLOW 90000 begin"+strings.Repeat("n", 400)).fails(t, codeTimeout, "limit of 20s (timeout_secs)", "allow the next turn longer, up to turn_limit_secs (1m0s)", "begin")
		about(t, "timed out", a.at, 20*time.Second)
		from := w.now()
		a = w.tool("codex", "prompt", "HANG").fails(t, codeTimeout, "limit of 1m0s (turn_limit_secs)", "raise turn_limit_secs")
		about(t, "timed out", a.at-from, 60*time.Second)
	})
}

// Waiting for an approval is not silence; once its own timer has declined it,
// the turn goes on and may be silent for as long as any other (FR-18.4).
func TestWorldApprovalTimer(t *testing.T) {
	inWorld(t, map[string]string{"request_timeout_secs": "60", "approval_timeout_secs": "300"}, elicits, func(w *world) {
		t := w.t
		c := w.tool("codex", "prompt", "SHELLESC touch x\nHANG")
		a := c.fails(t, codeTimeout, "said nothing for 1m0s")
		about(t, "timed out", a.at, 360*time.Second)
		withdrawn := w.times("notifications/cancelled")
		if len(withdrawn) != 1 {
			t.Fatalf("withdrawn %d times", len(withdrawn))
		}
		about(t, "withdrawn", withdrawn[0], 300*time.Second)

		from := w.now()
		res := w.tool("codex", "prompt", "SHELLESC touch y\nSAY went on").ok(t)
		about(t, "declined", w.now()-from, 300*time.Second)
		var d []declined
		if err := json.Unmarshal(rawField(res, "structuredContent", "declined"), &d); err != nil || len(d) != 1 || !strings.Contains(d[0].Reason, "5m0s") {
			t.Errorf("declined: %v %+v", err, d)
		}
	})
}

// A decision waits for its audit line, which a disk that hangs can keep back;
// the session doesn't wait with it.
func TestWorldDecisionWaitsForAuditAlone(t *testing.T) {
	inWorld(t, nil, elicits, func(w *world) {
		t := w.t
		path := filepath.Join(filepath.Dir(w.log), "atm", ".config", "atm", "agent-sessions", "default", "audit.jsonl")
		c := w.tool("codex", "prompt", "PATCH x.txt hi\nSAY done", "sandbox", "read-only")
		synctest.Wait()
		release := stallAudit(w.hub.ledger.audit)
		w.mu.Lock()
		id := w.asked[0]
		w.mu.Unlock()
		w.calls.reply(id, map[string]any{"action": "accept"})
		s := w.hub.table.all()[0]
		for settling := false; !settling; { // a session that waited would never answer
			open := make(chan bool)
			s.box.do(func() { open <- len(s.asks.verdicts) == 1 })
			settling = <-open
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(w.log), "x.txt")); err == nil || len(c.got) > 0 {
			t.Error("the child heard of it before the audit log did")
		}
		release()
		res := c.ok(t)
		if text, _ := os.ReadFile(path); stringField(res, "structuredContent", "content") != "done" || !strings.Contains(string(text), `"decision":"approve"`) {
			t.Errorf("%s\n%s", res, text)
		}
	})
}

// What stops a turn is sent at once, though the no to what the turn asks waits
// for a disk that hangs: the child hears that when it can be audited, or never.
func TestWorldAStopNeverWaitsForAudit(t *testing.T) {
	for _, how := range []string{"agent_close", "agent_interrupt", "timeout"} {
		inWorld(t, map[string]string{"turn_limit_secs": "60"}, elicits, func(w *world) {
			t := w.t
			agent := w.agent("SAY hello")
			c := w.tool("codex-reply", "agent_id", agent, "prompt", "SHELLESC touch x\nHANG")
			synctest.Wait()
			release := stallAudit(w.hub.ledger.audit)
			from, limit := w.now(), time.Duration(0)
			if how == "timeout" {
				limit = time.Minute
			} else {
				w.tool(how, "agent_id", agent).ok(t)
			}
			about(t, how, c.wait().at-from, limit)
			release()
			w.tool("agent_status").ok(t)
		})
	}
}

// An interrupt that Codex answers and doesn't heed: the caller waits 2 s for it,
// the session 10 s; then it is broken, its name free, and a reply says how to
// recover it.
func TestWorldUnconfirmedTimeout(t *testing.T) {
	inWorld(t, map[string]string{"turn_limit_secs": "5"}, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("SAY hello")
		from := w.now()
		a := w.tool("codex-reply", "agent_id", agent, "prompt", "IGNORE_INTERRUPT\nSAY half\nHANG").fails(t, codeTimeout, "limit of 5s", "half")
		about(t, "answered", a.at-from, 7*time.Second)
		if got := w.status(agent); got != "busy" {
			t.Errorf("status %q before the interrupt's limit, want busy", got)
		}
		queued := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY queued").fails(t, codeSessionClosed, "broken", "call codex with", agent)
		about(t, "broken", queued.at-from, 15*time.Second)
		if got := w.status(agent); got != "broken" {
			t.Errorf("status %q, want broken", got)
		}
		w.tool("codex-reply", "agent_id", agent, "prompt", "SAY later").fails(t, codeSessionClosed, "broken", `codex with {"agent_id": "`+agent+`"`)
		// Its name is free, and other agents are unhurt.
		w.tool("codex", "identity", "codex", "prompt", "SAY mine").ok(t)
	})
}

// A broken session whose turn can be stopped after all is recovered by codex.
func TestWorldRecoverBroken(t *testing.T) {
	inWorld(t, map[string]string{"turn_limit_secs": "5"}, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("SAY hello")
		w.tool("codex-reply", "agent_id", agent, "prompt", "DROP turn/interrupt\nHANG").fails(t, codeTimeout)
		time.Sleep(confirmLimit)
		if got := w.status(agent); got != "broken" {
			t.Fatalf("status %q, want broken", got)
		}
		res := w.tool("codex", "agent_id", agent, "prompt", "ECHO_INSTRUCTIONS").ok(t)
		if text := stringField(res, "structuredContent", "content"); !strings.Contains(text, "SAY hello") {
			t.Errorf("recovered without its conversation: %s", text)
		}
	})
}

// agent_close of a turn that can't be stopped doesn't hang either.
func TestWorldCloseOfADeafTurn(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("SAY hello")
		turn := w.tool("codex-reply", "agent_id", agent, "prompt", "IGNORE_INTERRUPT\nHANG")
		synctest.Wait()
		from := w.now()
		closing := w.tool("agent_close", "agent_id", agent)
		if got := stringField(turn.ok(t), "structuredContent", "turn_status"); got != "interrupted" {
			t.Errorf("turn_status %q, want interrupted", got)
		}
		if got := stringField(closing.ok(t), "structuredContent", "status"); got != "closed" {
			t.Errorf("status %q, want closed", got)
		}
		about(t, "closed", w.now()-from, confirmLimit)
		w.tool("codex", "identity", "codex", "prompt", "SAY the name is free").ok(t)
	})
}

// A turn/start that vanishes is unknown: told to its caller, interrupted, and
// never sent again; nothing runs, so the agent is usable.
func TestWorldTurnStartDropped(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("DROP turn/start\nSAY hello")
		from := w.now()
		a := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY lost").fails(t, codeTimeout, "not sent again")
		if d := a.at - from; d < 30*time.Second || d > 33*time.Second {
			t.Errorf("answered after %v", d)
		}
		if n := w.sent("turn/start"); n != 2 {
			t.Errorf("turn/start was sent %d times, want 2", n)
		}
		if n := w.sent("turn/interrupt"); n == 0 {
			t.Error("it was not interrupted")
		}
		if got := w.status(agent); got != "idle" {
			t.Errorf("status %q, want idle", got)
		}
		w.tool("codex-reply", "agent_id", agent, "prompt", "SAY found").ok(t)
	})
}

// A thread/start that vanishes ends by its own limit, and frees the identity.
func TestWorldThreadStartDropped(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.agent("DROP thread/start\nSAY hello")
		from := w.now()
		a := w.tool("codex", "identity", "lost", "prompt", "SAY lost").fails(t, codeTimeout, "open the thread")
		about(t, "answered", a.at-from, 60*time.Second)
		w.tool("codex", "identity", "lost", "prompt", "SAY found").ok(t)
	})
}

// A child that never answers initialize is given up on, for all who wait.
func TestWorldInitializeUnanswered(t *testing.T) {
	t.Setenv("MOCK_CODEX_START", "noinit")
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		one, two := w.tool("codex", "prompt", "SAY a"), w.tool("codex", "prompt", "SAY b")
		a := one.fails(t, codeChildDead, "initialize", "30s")
		two.fails(t, codeChildDead, "initialize")
		about(t, "given up", a.at, 30*time.Second)
	})
}

// Progress comes at least every 10 s, or Claude Code's idle timer fires, and
// none after the answer.
func TestWorldProgressBeats(t *testing.T) {
	inWorld(t, map[string]string{"turn_limit_secs": "95"}, noElicitation, func(w *world) {
		t := w.t
		a := w.tool("codex", "prompt", "HANG").fails(t, codeTimeout)
		time.Sleep(time.Minute)
		synctest.Wait()
		beats := w.times("notifications/progress")
		if n := len(beats); n < 10 || n > 12 {
			t.Errorf("%d notifications in 95 s: %v", n, beats)
		}
		last := time.Duration(0)
		for _, at := range append(beats, a.at) {
			if at-last > progressBeat+100*time.Millisecond {
				t.Errorf("nothing between %v and %v", last, at)
			}
			last = at
		}
		if beats[len(beats)-1] > a.at {
			t.Errorf("progress at %v, after the answer at %v", beats[len(beats)-1], a.at)
		}
	})
}

// Progress says what is waited for while an approval is open.
func TestWorldProgressWhileAsking(t *testing.T) {
	inWorld(t, map[string]string{"approval_timeout_secs": "30"}, elicits, func(w *world) {
		t := w.t
		w.tool("codex", "prompt", "SHELLESC touch x\nSAY ok").ok(t)
		w.mu.Lock()
		defer w.mu.Unlock()
		said := ""
		for _, n := range w.notes {
			if n.method == "notifications/progress" {
				said += stringField(n.params, "message") + "\n"
			}
		}
		if !strings.Contains(said, "waiting for approval") || !strings.Contains(said, "touch x") {
			t.Errorf("progress said:\n%s", said)
		}
	})
}

// The queue of one agent holds 32; the next is refused at once and the others
// run in order.
func TestWorldQueueFull(t *testing.T) {
	inWorld(t, map[string]string{"request_timeout_secs": "10"}, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("SAY hello")
		running := w.tool("codex-reply", "agent_id", agent, "prompt", "HANG")
		var queued []*worldCall
		for range maxQueue {
			queued = append(queued, w.tool("codex-reply", "agent_id", agent, "prompt", "SAY queued"))
		}
		synctest.Wait()
		over := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY too many").fails(t, codeMaxSessions, "32")
		if a := running.fails(t, codeTimeout); a.at < over.at {
			t.Error("the refusal waited for the turn")
		}
		for _, c := range queued {
			c.ok(t)
		}
		if n := w.sent("turn/start"); n != 2+maxQueue {
			t.Errorf("%d turns were started", n)
		}
	})
}
