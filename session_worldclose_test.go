package main

// session_worldclose_test.go holds what agent_close promises at the edges of a
// session's life, in the world of session_world_test.go: whoever is told "closed" finds
// a closed record, even where the session was being opened or parked a moment
// ago. The kill test found each of these told and not done.

import "testing"

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
