package main

// session_kept_test.go holds the store of finished turns to what agent_wait and tasks build on: nothing told twice or
// passed over, nothing lost with the process, memory bounded; and, in the world of session_world_test.go, answers that
// are too long for a result, and sessions that are on no disk.

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

const keptAgentID = "codex:bcdfghj"

// keptIn makes a store over dir, as each process has one.
func keptIn(t *testing.T, dir string, persist bool) *keptTurns {
	t.Helper()
	reg := newRegistry(dir, "default", persist, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = reg.close(context.Background()) }) // the test's own context is over by then
	return newKeptTurns(reg, slog.New(slog.DiscardHandler))
}

func keptResult(turn, content string) keptTurn {
	return keptTurn{AgentID: keptAgentID, TurnID: turn, Status: "completed", Created: time.Now(),
		Result: &turnResult{AgentID: keptAgentID, TurnID: turn, Content: content, TurnStatus: "completed"}}
}

// finishKept keeps a result as a session does.
func finishKept(t *testing.T, k *keptTurns, turn keptTurn) {
	t.Helper()
	if err := k.finish(turn, nil); err != nil {
		t.Fatal(err)
	}
}

func turnIDs(turns []keptTurn) string {
	var ids []string
	for _, t := range turns {
		ids = append(ids, t.TurnID)
	}
	return strings.Join(ids, " ")
}

// What ended between two looks is told by exactly one of them.
func TestKeptTurnsAreToldOnce(t *testing.T) {
	k := keptIn(t, t.TempDir(), true)
	k.asked(keptAgentID)
	since := k.base(keptAgentID)
	finishKept(t, k, keptResult("one", "1"))
	finishKept(t, k, keptResult("two", "2"))
	first := k.now()
	finishKept(t, k, keptResult("three", "3"))
	if got := turnIDs(k.between(keptAgentID, since, first)); got != "one two" {
		t.Errorf("first look told %q", got)
	}
	if got := turnIDs(k.between(keptAgentID, first, k.now())); got != "three" {
		t.Errorf("second look told %q", got)
	}
	if got := turnIDs(k.between(keptAgentID, k.now(), k.now())); got != "" {
		t.Errorf("third look told %q", got)
	}
}

// A new process has the results of the one before, whole, and its own come
// after them; a turn that had not ended is the newest of them, and lost.
func TestKeptTurnsSurviveTheProcess(t *testing.T) {
	dir := t.TempDir()
	k := keptIn(t, dir, true)
	long := strings.Repeat("x", 100_000)
	k.asked(keptAgentID)
	finishKept(t, k, keptResult("one", long))
	failed := keptResult("two", "")
	failed.Result.err = proxyError(codeTimeout, "too slow", "agent_id", keptAgentID)
	finishKept(t, k, failed)
	began := time.Now()
	if err := k.begin(keptTurn{AgentID: keptAgentID, TurnID: "bg-three", Status: "running", Created: began, Updated: began, Task: true}); err != nil {
		t.Fatal(err)
	}
	if err := k.reg.close(t.Context()); err != nil {
		t.Fatal(err)
	}

	k = keptIn(t, dir, true)
	if !k.has(keptAgentID) || k.has("codex:zzzzzzz") {
		t.Errorf("has: %v %v", k.has(keptAgentID), k.has("codex:zzzzzzz"))
	}
	if one := k.find(keptAgentID, "one"); one == nil || one.Result.Content != long {
		t.Errorf("one = %+v", one)
	}
	if two := k.find(keptAgentID, "two"); two == nil || two.Result.err == nil || two.Result.err.Code != codeTimeout || !strings.Contains(two.Result.err.Message, "too slow") {
		t.Errorf("two = %+v", two)
	}
	if three := k.find(keptAgentID, "bg-three"); three == nil || !three.Lost || !three.finished() || !three.Task {
		t.Errorf("three = %+v", three)
	}
	if base := k.base(keptAgentID); turnIDs(k.between(keptAgentID, base, k.now())) != "bg-three" {
		t.Errorf("the newest turn isn't what a first look tells: %q", turnIDs(k.between(keptAgentID, base, k.now())))
	}
	before := k.now()
	finishKept(t, k, keptResult("four", "4"))
	if got := turnIDs(k.between(keptAgentID, before, k.now())); got != "four" {
		t.Errorf("after the restart %q is new", got)
	}
	if err := k.reg.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	k = keptIn(t, dir, true) // what was lost long ago is not news for ever
	if base := k.base(keptAgentID); turnIDs(k.between(keptAgentID, base, k.now())) != "four" {
		t.Errorf("the third process tells %q first", turnIDs(k.between(keptAgentID, base, k.now())))
	}
}

// A process that looks at a session which another one has learns what that ends,
// though its own numbers are higher by far, and whether it died; what it learns
// is new to it once.
func TestKeptTurnsOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	theirs := keptIn(t, dir, true)
	ours := keptIn(t, dir, true)
	lease, err := theirs.reg.acquire("ann", keptAgentID)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(turn string) {
		t.Helper()
		now := time.Now()
		if err := theirs.begin(keptTurn{AgentID: keptAgentID, Identity: "ann", TurnID: turn, Status: "running", Created: now, Updated: now}); err != nil {
			t.Fatal(err)
		}
	}
	begin("bg-one")
	if one := ours.find(keptAgentID, "bg-one"); one == nil || one.finished() || one.Lost {
		t.Fatalf("while it runs: %+v", one)
	}
	since := ours.now()
	finishKept(t, theirs, keptResult("bg-one", "the answer"))
	if one := ours.find(keptAgentID, "bg-one"); one == nil || !one.finished() || one.Result.Content != "the answer" {
		t.Fatalf("after it ended: %+v", one)
	}
	if got := turnIDs(ours.between(keptAgentID, since, ours.now())); got != "bg-one" {
		t.Errorf("new is %q", got)
	}
	since = ours.now()
	begin("bg-two")
	if base := ours.base(keptAgentID); base != since {
		t.Errorf("while a turn runs elsewhere, base %d isn't after what ended before it (%d)", base, since)
	}
	lease.release()
	if two := ours.find(keptAgentID, "bg-two"); two == nil || !two.Lost {
		t.Errorf("after its process let go: %+v", two)
	}
	if got := turnIDs(ours.between(keptAgentID, since, ours.now())); got != "bg-two" {
		t.Errorf("new is %q", got)
	}
	finishKept(t, theirs, keptResult("bg-two", "late")) // it had let go first
	if two := ours.find(keptAgentID, "bg-two"); two == nil || two.Lost || two.Result.Content != "late" {
		t.Errorf("after all: %+v", two)
	}
}

// A call that comes to nothing is no turn: the newest is the one before it.
func TestKeptTurnsAfterARefusal(t *testing.T) {
	k := keptIn(t, t.TempDir(), true)
	k.asked(keptAgentID)
	finishKept(t, k, keptResult("one", "1"))
	k.forget(keptAgentID)
	k.asked(keptAgentID)
	k.unasked(keptAgentID)
	k.forget(keptAgentID)
	if got := turnIDs(k.between(keptAgentID, k.base(keptAgentID), k.now())); got != "one" {
		t.Errorf("told %q", got)
	}
}

// The newest maxKeptTurns stay, in memory and on disk.
func TestKeptTurnsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := keptIn(t, dir, true)
	k.asked(keptAgentID)
	for i := range 3 * maxKeptTurns {
		finishKept(t, k, keptResult(fmt.Sprintf("t-%02d", i), strings.Repeat("y", maxKeptBytes/maxKeptTurns)))
	}
	if k.bytes > maxKeptBytes {
		t.Errorf("%d bytes in memory", k.bytes)
	}
	turns := k.between(keptAgentID, 0, k.now())
	if len(turns) != maxKeptTurns || turns[0].TurnID != fmt.Sprintf("t-%02d", 2*maxKeptTurns) {
		t.Fatalf("kept %s", turnIDs(turns))
	}
	for _, turn := range turns {
		if len(turn.Result.Content) != maxKeptBytes/maxKeptTurns {
			t.Errorf("%s has %d bytes", turn.TurnID, len(turn.Result.Content))
		}
	}
	if err := k.reg.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines, err := k.reg.journals.turns(keptAgentID); err != nil || len(lines) != maxKeptTurns {
		t.Errorf("%d turns, %v", len(lines), err)
	}
}

// Without a disk the newest answers stay, and an older one says that it's gone.
func TestKeptTurnsWithoutADisk(t *testing.T) {
	dir := t.TempDir()
	k := keptIn(t, dir, false)
	k.asked(keptAgentID)
	for i := range 5 {
		finishKept(t, k, keptResult(fmt.Sprint("t", i), strings.Repeat("z", maxKeptBytes/3)))
	}
	k.forget(keptAgentID)
	turns := k.between(keptAgentID, 0, k.now())
	if len(turns) != 5 || turns[0].Result.Content != awayText || len(turns[4].Result.Content) != maxKeptBytes/3 {
		t.Errorf("kept %s, first %.40q", turnIDs(turns), turns[0].Result.Content)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("%d entries on disk", len(files))
	}
}

// An ended session's answers leave memory and are read again from its journal.
func TestKeptTurnsOfAnEndedSession(t *testing.T) {
	k := keptIn(t, t.TempDir(), true)
	k.asked(keptAgentID)
	finishKept(t, k, keptResult("one", "the answer"))
	k.forget(keptAgentID)
	if k.bytes != 0 || len(k.order) != 0 {
		t.Errorf("%d bytes of %d turns in memory", k.bytes, len(k.order))
	}
	if one := k.find(keptAgentID, "one"); one == nil || one.Result.Content != "the answer" {
		t.Errorf("one = %+v", one)
	}
	if turns := k.ended(keptAgentID, 0, k.now()); len(turns) != 1 || !turns[0].away { // looking again and again is cheap
		t.Errorf("a look read the answers: %+v", turns)
	}
	for i := range maxLeft + 1 {
		id := fmt.Sprintf("codex:x%d", i+1000)
		k.asked(id)
		k.forget(id)
	}
	if n := len(k.agents); n > maxLeft+1 {
		t.Errorf("%d sessions in memory", n)
	}
	if one := k.find(keptAgentID, "one"); one == nil || one.Result.Content != "the answer" {
		t.Errorf("after memory forgot it: %+v", one)
	}
}

// max_answer_bytes cuts between characters, and the file that the cut answer
// names holds the whole, with nothing left beside it.
func TestWorldLongAnswer(t *testing.T) {
	inWorld(t, map[string]string{"max_answer_bytes": "1025"}, noElicitation, func(w *world) {
		t := w.t
		whole := strings.Repeat("ä", 2000)
		res := w.tool("codex", "prompt", "SAY "+whole).ok(t)
		content := stringField(res, "structuredContent", "content")
		shown, note, _ := strings.Cut(content, "\n\n[answer cut: ")
		if shown != strings.Repeat("ä", 512) || !utf8.ValidString(content) {
			t.Errorf("shown are %d bytes: %q", len(shown), shown)
		}
		m := regexp.MustCompile(`^1024 of 4000 bytes shown; the whole is in (.*)\]$`).FindStringSubmatch(note)
		if m == nil {
			t.Fatalf("note %q", note)
		}
		data, err := os.ReadFile(m[1])
		if err != nil || string(data) != whole {
			t.Errorf("%s: %v, %d bytes", m[1], err, len(data))
		}
		dir := m[1][:strings.LastIndexAny(m[1], `/\`)]
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("%d files in %s, %v", len(files), dir, err)
		}
	})
}

// A parked session that is on no disk is closed by agent_id and by identity
// all the same: its record was looked for on the disk, and stayed parked.
func TestWorldCloseOfAKeptSession(t *testing.T) {
	for _, by := range []string{"agent_id", "identity"} {
		t.Run(by, func(t *testing.T) {
			inWorld(t, map[string]string{"persist_threads": "false", "max_concurrent_threads": "1"}, noElicitation, func(w *world) {
				t := w.t
				first := w.tool("codex", "prompt", "SAY one").ok(t)
				agent := stringField(first, "structuredContent", "agent_id")
				second := w.agent("SAY two") // parks the first
				if got := w.status(agent); got != "parked" {
					t.Fatalf("status %q, want parked", got)
				}
				w.tool("agent_close", "agent_id", second).ok(t)
				named := stringField(first, "structuredContent", by)
				if by == "identity" {
					// Both had the name: the one that isn't closed is meant.
					named = "codex"
				}
				res := w.tool("agent_close", by, named).ok(t)
				if got := stringField(res, "structuredContent", "agent_id"); got != agent {
					t.Fatalf("closed %s, want %s", got, agent)
				}
				if got := w.status(agent); got != "closed" {
					t.Errorf("status %q, want closed", got)
				}
				w.tool("codex-reply", "agent_id", agent, "prompt", "SAY three").fails(t, codeSessionClosed, "is closed")
			})
		})
	}
}

// A turn that is refused since its session is just being closed is no newer turn: agent_wait tells the one before, and
// nobody takes the session for open.
func TestWorldWaitAfterATurnThatMetTheClose(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		agent := w.agent("SAY one")
		gate := make(chan struct{})
		w.hub.table.agent(agent).box.do(func() { <-gate })
		closed := w.tool("agent_close", "agent_id", agent)
		refused := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY two")
		w.request("ping", "{}").ok(t) // both are with the session
		close(gate)
		closed.ok(t)
		refused.fails(t, codeSessionClosed)
		if got := string(w.tool("agent_wait", "agent_id", agent).ok(t)); !strings.Contains(got, `"content":"one"`) {
			t.Errorf("told %s", got)
		}
		w.hub.kept.mu.Lock()
		defer w.hub.kept.mu.Unlock()
		if w.hub.kept.agents[agent].open {
			t.Error("the turns of a closed session are taken for those of an open one, which nobody else writes")
		}
	})
}

// What a call asks of an open session is checked against that session, also
// where that is on no disk: a name that is taken must not cost it its own.
func TestWorldReshapingAKeptSession(t *testing.T) {
	inWorld(t, map[string]string{"persist_threads": "false"}, noElicitation, func(w *world) {
		t := w.t
		agent := stringField(w.tool("codex", "identity", "ann", "prompt", "SAY one").ok(t), "structuredContent", "agent_id")
		w.tool("codex", "identity", "bob", "prompt", "SAY two").ok(t)
		w.tool("codex", "agent_id", agent, "identity", "bob", "prompt", "SAY three").fails(t, codeIdentityConflict, "bob")
		if got := w.status(agent); got != "idle" {
			t.Errorf("status %q, want idle: it lost its place for another's mistake", got)
		}
	})
}

// A result is on disk as its turn ends, answered or not: a caller's own time limit
// left it unanswered, and a kill must not lose it.
func TestWorldResultOfADetachedCaller(t *testing.T) {
	for _, reason := range []string{"Request timed out", ""} {
		inWorld(t, nil, noElicitation, func(w *world) {
			t := w.t
			agent := w.agent("SAY one")
			call := w.tool("codex-reply", "agent_id", agent, "prompt", "SLOW 2 the late answer")
			synctest.Wait()
			if reason != "" {
				w.calls.notify("notifications/cancelled", map[string]any{"requestId": call.id, "reason": reason})
			}
			w.tool("agent_wait", "agent_id", agent).ok(t)
			turns, err := w.hub.reg.journals.turns(agent)
			if err != nil || len(turns) != 2 || !strings.Contains(string(turns[1].turn), "the late answer") {
				t.Errorf("reason %q: as the turn ended there were %d results, %v", reason, len(turns), err)
			}
		})
	}
}

// agent_wait for a turn that is over looks at once, and may come between the
// turn's end and the session's own word on it: the agent was told as busy with
// the very turn whose answer stood beside it.
func TestWorldWaitWhileATurnIsTold(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		res := w.tool("codex", "prompt", "SAY done").ok(w.t)
		agent, turn := stringField(res, "structuredContent", "agent_id"), stringField(res, "structuredContent", "turn_id")
		unseen := func(is bool) {
			w.hub.kept.mu.Lock()
			defer w.hub.kept.mu.Unlock()
			w.hub.kept.agents[agent].unseen = is
		}
		unseen(true)
		call := w.tool("agent_wait", "agent_id", agent, "turn_id", turn)
		synctest.Wait()
		if len(call.got) > 0 {
			w.t.Error("agent_wait answered while the session was telling how its turn ended")
		}
		w.hub.kept.seen(agent)
		mustContain(w.t, string(call.ok(w.t)), `"content":"done"`, `"status":"idle"`)

		unseen(true) // and a session that never says so keeps nobody for ever
		mustContain(w.t, string(w.tool("agent_wait", "agent_id", agent, "turn_id", turn).ok(w.t)), `"content":"done"`)
		unseen(false)
	})
}

// An approval is news as somebody can decide it. agent_wait returned on one that was declined at once, since nobody
// could be asked; and it must be told of the change, else it waits to its limit.
func TestWorldWaitWhileAnApprovalIsPut(t *testing.T) {
	inWorld(t, nil, elicits, func(w *world) {
		turn := w.tool("codex", "prompt", "PATCH made.txt text")
		synctest.Wait()
		s := w.hub.table.all()[0]
		offer := func(is bool) {
			s.box.do(func() {
				for _, p := range s.asks.pending {
					p.offered = is
				}
				s.publish()
			})
			synctest.Wait()
		}
		offer(false)
		call, from := w.tool("agent_wait", "agent_id", s.agentID), w.now()
		synctest.Wait()
		if len(call.got) > 0 {
			w.t.Error("agent_wait answered while nobody could decide the approval")
		}
		offer(true)
		mustContain(w.t, string(call.ok(w.t)), `"pending_approvals":[{`)
		about(w.t, "the wait", w.now()-from, 0)
		turn.ok(w.t) // the approval is declined at its limit
	})
}

// between lists a session's turns that ended after since and not after until, with their whole answers.
func (k *keptTurns) between(agentID string, since, until int64) []keptTurn {
	out := k.ended(agentID, since, until)
	k.fill(out)
	return out
}
