package main

// session_hubend.go owns the order in which everything ends: first what must be done
// before somebody kills us (answers, records, the index), then what may take its
// time (summaries, the child). proxy.go calls settle and stop, in this order and
// from one goroutine. Nothing here may wait for the child before everybody who
// waits for us has been answered.

import (
	"context"
	"time"
)

// settleLimit is how long those who wait may have to wait for their answers as
// we stop: a fraction of it, unless the machine is overloaded. Claude Code kills
// us half a second after its first signal.
const settleLimit = 200 * time.Millisecond

// settle begins the end, and does what matters of it: new turns are refused,
// running ones interrupted, whoever waits is answered, records say how things
// stand. It takes settleLimit at most. Summaries, which have until grace is
// over, are under way when it returns.
func (h *hub) settle(grace time.Duration) {
	h.child.close()
	h.endLife() // work that waits gives up
	<-h.opener.tried
	h.mu.Lock()
	h.until = time.Now().Add(grace)
	for _, s := range h.live {
		h.leaving = append(h.leaving, s)
	}
	leaving, reserved := h.leaving, h.reserved
	h.reserved = nil
	h.mu.Unlock()
	if reserved != nil {
		reserved.release()
	}
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	told := make(chan struct{}, len(leaving))
	for _, s := range leaving {
		if !s.shutdown(grace, func() { told <- struct{}{} }) {
			told <- struct{}{} // it has just ended, and answers
		}
	}
	late := false
	for n := 0; n < len(leaving) && !late; n++ {
		select {
		case <-told:
		case <-limit.C:
			late = true
		}
	}
	if !late {
		select {
		case <-h.allWaitsOver():
		case <-limit.C:
		}
	}
	h.mu.Lock()
	left := make([]waiterID, 0, len(h.waiters))
	for w := range h.waiters {
		left = append(left, w)
	}
	h.mu.Unlock()
	for _, w := range left { // on their way to a session
		h.answered(w, turnResult{err: h.child.refusal()})
	}
}

// stop ends everything after settle: what was saved is flushed, summaries have
// what is left of the grace, the child is ended. It waits, at most about that
// and the child's ladder.
func (h *hub) stop(grace time.Duration) {
	h.mu.Lock()
	settled := !h.until.IsZero()
	h.mu.Unlock()
	if !settled {
		h.settle(grace)
	}
	h.post.leaveAll()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	h.book.flush(ctx)
	cancel()
	h.mu.Lock()
	leaving, limit := h.leaving, time.NewTimer(time.Until(h.until))
	h.mu.Unlock()
	defer limit.Stop()
	for late, i := false, 0; i < len(leaving) && !late; i++ {
		select {
		case <-leaving[i].ended:
		case <-limit.C:
			late = true
		}
	}
	if be := h.child.close(); be != nil {
		be.stop(min(grace, shutdownLimit))
	}
	for _, s := range leaving { // the child's end ends whoever still waited for it
		<-s.ended
	}
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.work.Wait()
	ctx, cancel = context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	h.book.close(ctx)
}
