package main

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// A message for a running turn is never lost and never said twice, whatever becomes of the turn, of the message or of
// its sender.
func TestWorldSteer(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		content := func(c *worldCall, want string) {
			t.Helper()
			if got := stringField(c.ok(t), "structuredContent", "content"); got != want {
				t.Errorf("answer %q, want %q", got, want)
			}
		}
		agent := w.agent("SAY hello")
		run := func(prompt string) *worldCall {
			c := w.tool("codex-reply", "agent_id", agent, "prompt", prompt)
			synctest.Wait()
			return c
		}
		steer := func(prompt string) *worldCall {
			return w.tool("codex-reply", "agent_id", agent, "prompt", prompt, "steer", true)
		}

		// Who steers and gives up leaves the turn to whoever began it.
		turn := run("HANG")
		given := steer("HANG")
		synctest.Wait()
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": given.id})
		synctest.Wait()
		if s := w.view(agent).Status; s != statusBusy {
			t.Errorf("a caller who only steered ended the turn: %s", s)
		}
		both := steer("SAY both")
		content(turn, "both")
		content(both, "both")

		// Nor does whoever began it end it for those who steered it.
		turn = run("HANG")
		mine := steer("HANG")
		synctest.Wait()
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": turn.id})
		synctest.Wait()
		more := steer("SAY more")
		content(mine, "more")
		content(more, "more")
		turn = run("HANG")
		w.tool("codex-reply", "agent_id", agent, "prompt", "SLOW 1000 kept", "steer", true, "background", true).ok(t)
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": turn.id})
		waited := w.tool("agent_wait", "agent_id", agent).ok(t)
		mustContain(t, string(waited), `"turn_status":"completed"`, `"content":"kept"`)

		// A message that came too late is a turn of its own; so is one whose turn was just stopped.
		turn = run("REFUSE turn/steer\nSLOW 1000 slow")
		late := steer("SAY late")
		content(turn, "slow")
		content(late, "late")
		turn = run("HANG")
		w.tool("agent_interrupt", "agent_id", agent)
		after := steer("SAY after")
		turn.wait()
		content(after, "after")

		// A message without an answer may have come through: it isn't said again.
		turn = run("DROP turn/steer\nSLOW 30000 slow")
		began := w.now()
		unknown := steer("SAY lost").fails(t, codeTimeout, "not known", agent)
		about(t, "the error", unknown.at-began, 10*time.Second)
		content(turn, "slow")
		if n := w.sent("turn/steer"); n != 7 {
			t.Errorf("turn/steer was sent %d times", n)
		}

		// A message that comes before the turn has a name waits for the name.
		turn = w.tool("codex-reply", "agent_id", agent, "prompt", "HANG")
		early := steer("SAY early")
		content(turn, "early")
		content(early, "early")

		// With the child's end everybody is told.
		turn = run("DROP turn/steer\nHANG")
		lost := steer("SAY never")
		synctest.Wait()
		w.hub.child.close().stop(0)
		turn.fails(t, codeChildDead)
		lost.fails(t, codeChildDead)
		if n := len(w.hub.waiters.all()); n != 0 {
			t.Errorf("%d calls wait still: %s", n, strconv.Quote(agent))
		}
	})
}
