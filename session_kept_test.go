package main

// session_kept_test.go holds what is kept for those who come later. The store of finished turns: nothing told twice or
// passed over, nothing lost with the process, memory bounded. What waits for sessions and for a client that doesn't
// read: its bound (invariant 3), and that each event is either told or counted as dropped (FR-19.3, FR-19.4). And, in
// the world of session_world_test.go, answers that are too long, sessions that are on no disk, and what agent_wait
// sees.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

const keptAgentID = "codex:bcdfghj"

// keptRig is a store over a directory, as each process has one.
type keptRig struct {
	*keptTurns
	t *testing.T
}

func keptIn(t *testing.T, dir string, persist bool) keptRig {
	t.Helper()
	reg := newRegistry(dir, "default", persist, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = reg.close(context.Background()) }) // the test's own context is over by then
	return keptRig{newKeptTurns(reg, slog.New(slog.DiscardHandler)), t}
}

// end keeps a turn's answer as a session does.
func (k keptRig) end(turn, content string) {
	k.t.Helper()
	k.fails(turn, content, nil)
}

func (k keptRig) fails(turn, content string, err *rpcError) {
	k.t.Helper()
	wantNil(k.t, k.finish(keptTurn{AgentID: keptAgentID, TurnID: turn, Status: "completed", Created: time.Now(),
		Result: &turnResult{AgentID: keptAgentID, TurnID: turn, Content: content, TurnStatus: "completed", err: err}},
		nil))
}

// starts keeps that a task runs.
func (k keptRig) starts(turn string) {
	k.t.Helper()
	now := time.Now()
	wantNil(k.t, k.begin(keptTurn{AgentID: keptAgentID, Identity: "ann", TurnID: turn, Status: "running",
		Created: now, Updated: now, Task: true}))
}

// between lists a session's turns that ended after since and not after until, with their whole answers.
func (k *keptTurns) between(agentID string, since, until int64) []keptTurn {
	out := k.ended(agentID, since, until)
	k.fill(out)
	return out
}

// tells holds a look at what ended after since to the turns that it tells.
func (k keptRig) tells(since int64, want string) {
	k.t.Helper()
	var ids []string
	for _, turn := range k.between(keptAgentID, since, k.now()) {
		ids = append(ids, turn.TurnID)
	}
	if got := strings.Join(ids, " "); got != want {
		k.t.Errorf("a look after %d of %d tells %q, want %q", since, k.now(), got, want)
	}
}

// turn finds a turn with its whole answer.
func (k keptRig) turn(id string) keptTurn {
	k.t.Helper()
	found := k.find(keptAgentID, id)
	if found == nil {
		k.t.Fatalf("there is no %s", id)
	}
	return *found
}

// What ended between two looks is told by exactly one of them. A call that comes to nothing is no turn: the newest is
// the one before it.
func TestKeptTurnsAreToldOnce(t *testing.T) {
	k := keptIn(t, t.TempDir(), true)
	k.asked(keptAgentID)
	since := k.base(keptAgentID)
	k.end("one", "1")
	k.end("two", "2")
	first := k.now()
	k.tells(since, "one two")
	k.end("three", "3")
	k.tells(first, "three")
	k.tells(k.now(), "")
	if told := k.between(keptAgentID, since, first); len(told) != 2 {
		t.Errorf("between two looks %+v", told)
	}
	k.forget(keptAgentID)
	k.asked(keptAgentID)
	k.unasked(keptAgentID)
	k.forget(keptAgentID)
	k.tells(k.base(keptAgentID), "three")
}

// A new process has the results of the one before, whole, and its own come
// after them; a turn that had not ended is the newest of them, and lost.
func TestKeptTurnsSurviveTheProcess(t *testing.T) {
	dir := t.TempDir()
	k := keptIn(t, dir, true)
	long := strings.Repeat("x", 100_000)
	k.asked(keptAgentID)
	k.end("one", long)
	k.fails("two", "", proxyError(codeTimeout, "too slow", "agent_id", keptAgentID))
	k.starts("bg-three")
	wantNil(t, k.reg.close(t.Context()))

	k = keptIn(t, dir, true)
	if !k.has(keptAgentID) || k.has("codex:zzzzzzz") {
		t.Errorf("has: %v %v", k.has(keptAgentID), k.has("codex:zzzzzzz"))
	}
	want(t, k.turn("one").Result.Content, long)
	if err := k.turn("two").Result.err; err == nil || err.Code != codeTimeout ||
		!strings.Contains(err.Message, "too slow") {
		t.Errorf("two: %v", err)
	}
	if three := k.turn("bg-three"); !three.Lost || !three.finished() || !three.Task {
		t.Errorf("three = %+v", three)
	}
	k.tells(k.base(keptAgentID), "bg-three")
	before := k.now()
	k.end("four", "4")
	k.tells(before, "four")
	wantNil(t, k.reg.close(t.Context()))
	k = keptIn(t, dir, true) // what was lost long ago is not news for ever
	k.tells(k.base(keptAgentID), "four")
}

// A process that looks at a session which another one has learns what that ends, though its own numbers are higher by
// far, and whether it died; what it learns is new to it once.
func TestKeptTurnsOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	theirs := keptIn(t, dir, true)
	ours := keptIn(t, dir, true)
	lease, err := theirs.reg.acquire("ann", keptAgentID)
	wantNil(t, err)
	theirs.starts("bg-one")
	if one := ours.turn("bg-one"); one.finished() || one.Lost {
		t.Fatalf("while it runs: %+v", one)
	}
	since := ours.now()
	theirs.end("bg-one", "the answer")
	if one := ours.turn("bg-one"); !one.finished() || one.Result.Content != "the answer" {
		t.Fatalf("after it ended: %+v", one)
	}
	ours.tells(since, "bg-one")
	since = ours.now()
	theirs.starts("bg-two")
	if base := ours.base(keptAgentID); base != since {
		t.Errorf("while a turn runs elsewhere, base %d isn't after what ended before it (%d)", base, since)
	}
	lease.release()
	if two := ours.turn("bg-two"); !two.Lost {
		t.Errorf("after its process let go: %+v", two)
	}
	ours.tells(since, "bg-two")
	theirs.end("bg-two", "late") // it had let go first
	if two := ours.turn("bg-two"); two.Lost || two.Result.Content != "late" {
		t.Errorf("after all: %+v", two)
	}

	theirs.starts("bg-three") // one that is lost, and as many as are kept: the oldest was let go of, and told as new
	for i := range maxKeptTurns {
		theirs.end(fmt.Sprint(i), "the answer")
	}
	ours.turn("0")
	since = ours.now()
	theirs.starts("bg-four")
	ours.turn("bg-four")
	ours.tells(since, "bg-four")
}

// A turn that was accepted before its agent had a name runs as long as its process opens the agent, then as long as the
// agent's lease is held; it was told as lost from the first, and so was one of an agent that is opened again.
func TestKeptTurnOfAnAgentWithoutAName(t *testing.T) {
	notUnderWine(t, "a program that Linux has started has no parent")
	dir := t.TempDir()
	theirs, ours := keptIn(t, dir, true), keptIn(t, dir, true)
	begin := func(turn string, pid int) {
		now := time.Now()
		wantNil(t, theirs.write(&keptTurn{AgentID: keptAgentID, TurnID: turn, Status: "queued", Created: now, Updated: now,
			Process: theirs.began, PID: pid}, nil))
	}
	begin("bg-one", os.Getppid())
	begin("bg-two", os.Getpid()) // ours, of a process before us that had our number
	if one, two := ours.turn("bg-one"), ours.turn("bg-two"); one.finished() || !two.Lost {
		t.Fatalf("while the agent is opened: %+v, %+v", one, two)
	}
	saved := func(status string) {
		wantNil(t, theirs.reg.save(record{AgentID: keptAgentID, Identity: "ann", Team: "default",
			turnNote: turnNote{Status: status, LastActive: time.Now().UTC()}}))
	}
	saved(statusClosed)
	begin("bg-again", os.Getppid())
	if again := ours.turn("bg-again"); again.finished() {
		t.Fatalf("while the closed agent is opened again: %+v", again)
	}
	lease, err := theirs.reg.acquire("ann", keptAgentID)
	wantNil(t, err)
	begin("bg-three", os.Getpid())
	saved(statusBusy)
	if three := ours.turn("bg-three"); three.finished() {
		t.Fatalf("while it runs: %+v", three)
	}
	lease.release()
	if again, three := ours.turn("bg-again"), ours.turn("bg-three"); !again.Lost || !three.Lost {
		t.Fatalf("after its process let go: %+v, %+v", again, three)
	}
}

// held are the bytes of the answers that memory holds.
func (k keptRig) held() (size int) {
	for _, a := range k.agents {
		for _, turn := range a.turns {
			if turn.finished() && !turn.away {
				size += turn.size()
			}
		}
	}
	return size
}

// The newest maxKeptTurns stay on disk, and none of their answers in memory.
func TestKeptTurnsAreBounded(t *testing.T) {
	t.Parallel()
	k := keptIn(t, t.TempDir(), true)
	k.asked(keptAgentID)
	for i := range 3 * maxKeptTurns {
		k.end(fmt.Sprintf("t-%02d", i), strings.Repeat("y", maxKeptBytes/maxKeptTurns))
	}
	if size := k.held(); size > 0 {
		t.Errorf("%d bytes in memory", size)
	}
	turns := k.between(keptAgentID, 0, k.now())
	if len(turns) != maxKeptTurns || turns[0].TurnID != fmt.Sprintf("t-%02d", 2*maxKeptTurns) {
		t.Fatalf("kept %d, first %s", len(turns), turns[0].TurnID)
	}
	for _, turn := range turns {
		if len(turn.Result.Content) != maxKeptBytes/maxKeptTurns {
			t.Errorf("%s has %d bytes", turn.TurnID, len(turn.Result.Content))
		}
	}
	wantNil(t, k.reg.close(t.Context()))
	if lines, err := k.reg.journals.turns(keptAgentID); err != nil || len(lines) != maxKeptTurns {
		t.Errorf("%d turns, %v", len(lines), err)
	}
}

// Without a disk the newest answers stay, and an older one says that it's gone. With one an ended session's answers
// are read from its journal.
func TestKeptTurnsOfAnEndedSession(t *testing.T) {
	dir := t.TempDir()
	k := keptIn(t, dir, false)
	k.asked(keptAgentID)
	for i := range 5 {
		k.end(fmt.Sprint("t", i), strings.Repeat("z", maxKeptBytes/3))
	}
	k.forget(keptAgentID)
	turns := k.between(keptAgentID, 0, k.now())
	if len(turns) != 5 || turns[0].Result.Content != awayText || len(turns[4].Result.Content) != maxKeptBytes/3 {
		t.Errorf("kept %d, first %.40q", len(turns), turns[0].Result.Content)
	}
	if size := k.held(); size > maxKeptBytes {
		t.Errorf("%d bytes in memory", size)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("%d entries on disk", len(files))
	}

	k = keptIn(t, t.TempDir(), true)
	k.asked(keptAgentID)
	k.end("one", "the answer")
	k.forget(keptAgentID)
	want(t, k.turn("one").Result.Content, "the answer")
	// looking again and again is cheap
	if turns := k.ended(keptAgentID, 0, k.now()); len(turns) != 1 || !turns[0].away {
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
	want(t, k.turn("one").Result.Content, "the answer") // after memory forgot it
}

// An answer is never taken for that of another turn, nor told to be gone for a reason that isn't so.
func TestKeptTurnsThatTheJournalLacks(t *testing.T) {
	t.Parallel()
	k := keptIn(t, t.TempDir(), true)
	k.asked(keptAgentID)
	k.end("2", "of one child")
	k.end("2", "of the next")
	turns := k.between(keptAgentID, 0, k.now())
	if len(turns) != 2 || turns[0].Result.Content != lostText || turns[1].Result.Content != "of the next" {
		t.Errorf("two turns of one name: %+v, %+v", turns[0].Result, turns[1].Result)
	}
	k.end("long", strings.Repeat("x", maxJournalKept))
	k.end("after it", "short")
	if told := k.turn("long").Result.Content; !strings.Contains(told, "newest answers") {
		t.Errorf("of one that the journal has no room for: %q", told)
	}
	wantNil(t, os.WriteFile(k.reg.journals.path(keptAgentID), []byte("damaged"), 0o600))
	want(t, k.turn("2").Result.Content, lostText)
	wantNil(t, k.reg.journals.remove(keptAgentID))
	want(t, k.turn("2").Result.Content, lostText)

	wantNil(t, os.Mkdir(k.reg.journals.path(keptAgentID), 0o700)) // as where the disk is full
	for _, name := range []string{"a", "b", "c"} {
		if k.finish(keptTurn{AgentID: keptAgentID, TurnID: name, Status: "completed", Result: &turnResult{
			AgentID: keptAgentID, TurnID: name, Content: strings.Repeat(name, maxKeptBytes/2)}}, nil) == nil {
			t.Fatalf("%s was written", name)
		}
	}
	want(t, k.turn("a").Result.Content, awayText)
	want(t, k.turn("c").Result.Content, strings.Repeat("c", maxKeptBytes/2))
}

// max_answer_bytes cuts between characters, and the file that the cut answer
// names holds the whole, with nothing left beside it.
func TestWorldLongAnswer(t *testing.T) {
	settings := map[string]string{"max_answer_bytes": "1025"}
	inWorld(t, settings, noElicitation, func(t *testing.T, w *world) {
		whole := strings.Repeat("ä", 2000)
		content := resultField(w.tool("codex", "prompt", "SAY "+whole).ok(t), "content")
		shown, note, _ := strings.Cut(content, "\n\n[answer cut: ")
		if shown != strings.Repeat("ä", 512) || !utf8.ValidString(content) {
			t.Errorf("shown are %d bytes: %q", len(shown), shown)
		}
		m := regexp.MustCompile(`^1024 of 4000 bytes shown; the whole is in (.*)\]$`).FindStringSubmatch(note)
		if m == nil {
			t.Fatalf("note %q", note)
		}
		want(t, readText(t, m[1]), whole)
		files, err := os.ReadDir(filepath.Dir(m[1]))
		if err != nil || len(files) != 1 {
			t.Errorf("%d files beside %s, %v", len(files), m[1], err)
		}
	})
}

// A parked session that is on no disk is closed by agent_id and by identity all the same: its record was looked for on
// the disk, and stayed parked. What a call asks of an open session is checked against that session: a name that is
// taken must not cost it its own.
func TestWorldSessionsOnNoDisk(t *testing.T) {
	for _, by := range []string{"agent_id", "identity"} {
		settings := map[string]string{"persist_threads": "false", "max_concurrent_threads": "1"}
		inWorld(t, settings, noElicitation, func(t *testing.T, w *world) {
			agent := w.agent("SAY one")
			second := w.agent("SAY two")
			w.wantStatus(agent, statusParked)
			w.close(second).ok(t)
			// Both had the name: the one that isn't closed is meant.
			named := map[string]string{"agent_id": agent, "identity": "codex"}[by]
			w.is("closed", resultField(w.tool("agent_close", by, named).ok(t), "agent_id"), agent)
			w.wantStatus(agent, statusClosed)
			w.reply(agent, "SAY three").fails(t, codeSessionClosed, "is closed")
		})
	}
	inWorld(t, map[string]string{"persist_threads": "false"}, noElicitation, func(t *testing.T, w *world) {
		agent := w.named("ann", "SAY one")
		w.named("bob", "SAY two")
		call := w.tool("codex", "agent_id", agent, "identity", "bob", "prompt", "SAY three")
		call.fails(t, codeIdentityConflict, "bob")
		w.wantStatus(agent, statusIdle)
		w.reply("zoe", "SAY four").fails(t, codeSessionNotFound, "zoe", "open are")
	})
}

// agent_wait for a turn that is over looks at once, and may come between the turn's end and the session's own word on
// it: the agent was told as busy with the very turn whose answer stood beside it. A turn that is refused since its
// session is just being closed is no newer turn: the one before is told, and nobody takes the session for open. A
// result is on disk as its turn ends, answered or not: a caller's own time limit left it unanswered, and a kill must
// not lose it.
func TestWorldWaitForATurnThatIsOver(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		agent := w.agent("SAY one")
		for i, reason := range []string{"Request timed out", ""} {
			call := w.reply(agent, "SLOW 2 the late answer")
			synctest.Wait()
			if reason != "" {
				w.calls.notify("notifications/cancelled", map[string]any{"requestId": call.id, "reason": reason})
			}
			w.tool("agent_wait", "agent_id", agent).ok(t)
			turns, err := w.hub.reg.journals.turns(agent)
			if err != nil || len(turns) != i+2 || !strings.Contains(string(turns[i+1].turn), "the late answer") {
				t.Errorf("reason %q: as the turn ended there were %d results, %v", reason, len(turns), err)
			}
		}

		turn := resultField(w.reply(agent, "SAY done").ok(t), "turn_id")
		kept := func(change func(a *keptAgent)) {
			w.hub.kept.mu.Lock()
			defer w.hub.kept.mu.Unlock()
			change(w.hub.kept.agents[agent])
		}
		kept(func(a *keptAgent) { a.unseen = true })
		call := w.tool("agent_wait", "agent_id", agent, "turn_id", turn)
		synctest.Wait()
		w.is("answered while the session was telling how its turn ended", len(call.got), 0)
		w.hub.kept.seen(agent)
		mustContain(t, string(call.ok(t)), `"content":"done"`, `"status":"idle"`)
		kept(func(a *keptAgent) { a.unseen = true }) // and a session that never says so keeps nobody for ever
		mustContain(t, string(w.tool("agent_wait", "agent_id", agent, "turn_id", turn).ok(t)), `"content":"done"`)
		w.hub.kept.seen(agent)

		_, release := w.hold(agent)
		closed := w.close(agent)
		refused := w.reply(agent, "SAY two")
		w.request("ping", "{}").ok(t) // both are with the session
		release()
		closed.ok(t)
		refused.fails(t, codeSessionClosed)
		mustContain(t, string(w.tool("agent_wait", "agent_id", agent).ok(t)), `"content":"done"`)
		kept(func(a *keptAgent) { w.is("a closed session's turns are taken for an open one's", a.open, false) })

		// Another turn's end is not what is waited for, and neither is its own time.
		busy := w.agent("SAY zero")
		first := resultField(w.tool("codex-reply", "agent_id", busy, "prompt", "SLOW 1000 one", "background", true).ok(t),
			"turn_id")
		second := resultField(w.tool("codex-reply", "agent_id", busy, "prompt", "SLOW 1000 two", "background", true).ok(t),
			"turn_id")
		late := w.tool("agent_wait", "agent_id", busy, "turn_id", second, "timeout_secs", 0).ok(t)
		mustContain(t, string(late), `"timed_out":true`, `"activity":"waiting for its turn"`)
		both := w.tool("agent_wait", "agent_id", busy, "turn_id", second)
		mustContain(t, string(w.tool("agent_wait", "agent_id", busy, "turn_id", first).ok(t)), `"content":"one"`)
		synctest.Wait()
		w.is("answered by another turn's end", len(both.got), 0)
		mustContain(t, string(both.ok(t)), `"content":"two"`)
		w.tool("agent_wait", "agent_id", busy, "turn_id", "none").fails(t, codeSessionNotFound, `has no turn "none"`)

		gone := resultField(w.tool("codex-reply", "agent_id", busy, "prompt", "SLOW 1000 three", "background", true).ok(t),
			"turn_id")
		call = w.tool("agent_wait", "agent_id", busy, "turn_id", gone)
		synctest.Wait()
		agent = busy
		kept(func(a *keptAgent) { a.turns = nil }) // as where another process had it, and its journal went
		w.hub.kept.poke()
		call.fails(t, codeSessionNotFound, `has no turn "`+gone+`"`)
	})
}

// An approval is news as somebody can decide it. agent_wait returned on one that was declined at once, since nobody
// could be asked; and it must be told of the change, else it waits to its limit.
func TestWorldWaitWhileAnApprovalIsPut(t *testing.T) {
	inWorld(t, nil, elicits, func(t *testing.T, w *world) {
		turn := w.tool("codex", "prompt", "PATCH made.txt text")
		synctest.Wait()
		s, from := w.hub.table.all()[0], w.now()
		mustContain(t, string(w.tool("agent_wait", "agent_id", s.agentID).ok(t)), `"pending_approvals":[{`)
		about(t, "the wait for what the client was asked", w.now()-from, 0)
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
		call := w.tool("agent_wait", "agent_id", s.agentID)
		synctest.Wait()
		w.is("answered while nobody could decide the approval", len(call.got), 0)
		offer(true)
		mustContain(t, string(call.ok(t)), `"pending_approvals":[{`)
		about(t, "the wait", w.now()-from, 0)
		turn.ok(t) // the approval is declined at its limit
	})
}

// Ten flooding agents share one bound, of bytes and not of letters, since a command's output may come in large pieces:
// what may be dropped is, and counted; what may not is kept. What a loop has taken makes room only once it is done with
// it.
func TestPostboxesShareOneBound(t *testing.T) {
	var waiting atomic.Int64
	boxes := [2]*postbox{newPostbox(&waiting), newPostbox(&waiting)}
	delta := event{kind: evDelta, raw: bytes.Repeat([]byte("x"), 1<<20-letterSize)}
	for i := range maxWaitingBytes>>20 + 10 {
		boxes[i%2].event(delta)
	}
	lost := func() int64 { return boxes[0].lost() + boxes[1].lost() }
	if lost() != 10 {
		t.Fatalf("%d dropped, want 10", lost())
	}
	boxes[0].event(event{kind: evEnded})
	got := boxes[0].take(nil)
	if len(got) != maxWaitingBytes>>21+1 {
		t.Fatalf("%d letters, want %d", len(got), maxWaitingBytes>>21+1)
	}
	if boxes[1].event(delta); lost() != 11 {
		t.Fatal("room for more while what was taken is still in hand")
	}
	boxes[0].do(func() {})
	if old := got[0]; len(boxes[0].take(got)) != 1 || old.ev.raw == nil || got[0].ev.raw != nil {
		t.Fatal("letters that are done with are kept")
	}
	if boxes[1].event(delta); lost() != 11 {
		t.Fatal("no room after letters were done with")
	}
	if rest := len(boxes[1].close()); rest != maxWaitingBytes>>21+1 {
		t.Fatalf("%d letters left", rest)
	}
	boxes[0].close()
	if waiting.Load() != 0 {
		t.Fatalf("%d bytes are counted in nobody's hand", waiting.Load())
	}
	if boxes[1].do(func() {}) {
		t.Fatal("a closed postbox takes letters")
	}
}

// pausableReader is what a client reads with, when it reads.
type pausableReader struct {
	r    io.Reader
	mine chan struct{} // full while it is paused, or about to read
}

func newPausableReader(r io.Reader) *pausableReader {
	return &pausableReader{r: r, mine: make(chan struct{}, 1)}
}

func (p *pausableReader) Read(b []byte) (int, error) {
	p.pause()
	p.resume()
	return p.r.Read(b)
}

// pause has the next Read wait for resume. One that is under way takes a chunk more.
func (p *pausableReader) pause() { p.mine <- struct{}{} }

func (p *pausableReader) resume() { <-p.mine }

// told counts the codex/event notifications that came, by agent, and forgets them.
func (w *world) told() map[string]int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for _, note := range w.notes {
		if note.method == "codex/event" {
			n[stringField(note.params, "_meta", "agent_id")]++
		}
	}
	w.notes = nil
	return n
}

func TestWorldClientThatStopsReading(t *testing.T) {
	const flood = "FLOOD 12000 9" // three of them are more than may wait; what ends them fits
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		loud := []string{w.agent("SAY hello"), w.agent("SAY hello"), w.agent("SAY hello")}
		quiet := w.agent("SAY hello")
		w.told()

		// A client that reads gets everything.
		for _, a := range loud {
			w.reply(a, flood).ok(t)
		}
		whole := w.told()
		for _, a := range loud {
			if v := w.view(a); v.Dropped != 0 || whole[a] < 12000 {
				t.Errorf("a client that reads was told %d events of %s, %d are said to be dropped", whole[a], a,
					v.Dropped)
			}
		}

		// One that doesn't holds up nobody.
		w.out.pause()
		var calls []*worldCall
		for _, a := range loud {
			calls = append(calls, w.reply(a, flood))
		}
		calls = append(calls, w.reply(quiet, "SAY still here"))
		for _, a := range append(loud, quiet) {
			w.wantStatus(a, statusIdle)
			w.is("queued", w.view(a).Queued, 0)
		}
		w.is("the quiet agent's last answer", w.hub.ledger.record(quiet).Digest.LastAnswer, "still here")
		if n := w.hub.front.(*mcpFront).p.queued(); n > 16<<20 || n < 8<<20 {
			t.Errorf("%d bytes wait for the client, the budget is 16 MiB", n)
		}

		// What it reads then is every answer, and each event or its drop.
		w.out.resume()
		for _, c := range calls {
			c.ok(t)
		}
		came, all := w.told(), 0
		for _, a := range loud { // one that was quick may have lost none
			dropped := int(w.view(a).Dropped)
			all += dropped
			w.is("events that came or were dropped", came[a]+dropped, whole[a])
		}
		if all == 0 {
			t.Error("nothing was dropped, so nothing was proved")
		}

		// And it is as good a client as before.
		w.reply(loud[0], flood).ok(t)
		w.is("events", w.told()[loud[0]], whole[loud[0]])
	})
}

// A client that never reads again doesn't hold the end up either, and approvals
// that it is asked are declined by their timer: the turn goes on.
func TestWorldClientThatNeverReads(t *testing.T) {
	inWorld(t, map[string]string{"approval_timeout_secs": "5"}, elicits, func(_ *testing.T, w *world) {
		agent := w.agent("SAY hello")
		w.out.pause()
		defer w.out.resume() // the end of the world reads it all
		w.reply(agent, "SHELLESC true\nSAY went on")
		w.wantStatus(agent, statusBusy)
		w.is("pending", len(w.view(agent).Pending), 1)
		time.Sleep(6 * time.Second) // of the bubble
		w.wantStatus(agent, statusIdle)
		w.is("last answer", w.hub.ledger.record(agent).Digest.LastAnswer, "went on")
	})
}
