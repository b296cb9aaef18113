package main

// session_stop.go owns the hub's part in ends: the close of one agent, in the order of the calls before it, and the end
// of everything, first what must be done before somebody kills us (answers, records, the index), then what may take its
// time (summaries, the child). The fronts call close and leave, proxy.go calls beginStop and stop, in this order and
// from one goroutine. Whoever is told "closed" must find a closed record, whatever the session was just about; nothing
// may wait for the child before everybody who waits for us has been answered.

import (
	"context"
	"time"
)

// settleLimit is how long those who wait may have to wait for their answers as we stop: a fraction of it, unless the
// machine is overloaded. Claude Code kills us half a second after its first signal.
const settleLimit = 200 * time.Millisecond

// close closes the agent that a reference means, open or not, and calls done exactly once, from another goroutine.
// correlation follows the request through the audit trail.
func (h *hub) close(ref, correlation string, done func(closeResult, *rpcError)) {
	h.closeAs(ref, correlation, false, done)
}

// leave closes a session without a summary: it may be opened again by modeRevive. done is called once, from another
// goroutine.
func (h *hub) leave(agentID string, done func(closeResult, *rpcError)) {
	h.closeAs(agentID, "", true, done)
}

func (h *hub) closeAs(ref, correlation string, unsummed bool, done func(closeResult, *rpcError)) {
	h.withAgent(ref, agentCall{
		open: func(s *session, _ bool) reception {
			if unsummed {
				s.box.do(func() { s.client.unsummed = true })
			}
			return h.closeOpen(s, correlation, done)
		},
		stored: func(ref string) { done(h.agents.close(ref, correlation)) },
	})
}

// closeOpen closes an open session. One that had no place yet left its record as it was, and one that was just parked
// is no closed one: those are closed by their records.
func (h *hub) closeOpen(s *session, correlation string, done func(closeResult, *rpcError)) reception {
	if !s.end(endClose, correlation, func(r closeResult) {
		if r.Identity != "" && !r.Already {
			done(r, nil)
			return
		}
		h.work.start(func() {
			stored, err := h.agents.close(s.agentID, correlation)
			if err != nil && err.Code == codeSessionNotFound { // it had no record either
				stored, err = r, nil
			}
			done(stored, err)
		})
	}) {
		return missed
	}
	return received
}

// beginStop begins the end, and does what matters of it: new turns are refused, running ones interrupted, whoever waits
// is answered, records say how things stand. It takes settleLimit at most. Summaries, which have until grace is over,
// are under way when it returns.
func (h *hub) beginStop(grace time.Duration) {
	h.child.close()
	h.endLife() // work that waits gives up
	h.names.stop()
	h.until = time.Now().Add(grace)
	h.leaving = h.table.all()
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	told := make(chan struct{}, len(h.leaving))
	for _, s := range h.leaving {
		if !s.shutdown(grace, func() { told <- struct{}{} }) {
			told <- struct{}{} // it has just ended, and answers
		}
	}
	late := false
	for n := 0; n < len(h.leaving) && !late; n++ {
		select {
		case <-told:
		case <-limit.C:
			late = true
		}
	}
	if !late {
		select {
		case <-h.waits.none():
		case <-limit.C:
		}
	}
	for _, w := range h.waiters.all() { // on their way to a session
		h.answer(w, turnResult{err: h.child.refusal()})
	}
}

// stop ends everything after beginStop: what was saved is flushed, summaries have what is left of the grace, the child
// is ended. It waits, at most about that and the child's ladder.
func (h *hub) stop(grace time.Duration) {
	if h.until.IsZero() {
		h.beginStop(grace)
	}
	h.team.leaveAll()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	h.ledger.flush(ctx)
	cancel()
	limit := time.NewTimer(time.Until(h.until))
	defer limit.Stop()
	for late, i := false, 0; i < len(h.leaving) && !late; i++ {
		select {
		case <-h.leaving[i].ended:
		case <-limit.C:
			late = true
		}
	}
	if be := h.child.close(); be != nil {
		be.stop(min(grace, shutdownLimit))
	}
	for _, s := range h.leaving { // the child's end ends whoever still waited for it
		<-s.ended
	}
	h.work.wait()
	ctx, cancel = context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	h.ledger.close(ctx)
}
