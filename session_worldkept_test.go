package main

// session_worldkept_test.go holds what is kept and told of sessions, in the world of
// session_world_test.go: answers that are too long for a result, and sessions that are
// on no disk.

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"
)

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
