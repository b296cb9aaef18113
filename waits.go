package main

// waits.go owns agent_wait in the hub: looking at sessions until a turn has
// ended or somebody must decide something; and the look-up of one agent or turn,
// open here or not. It is level-triggered and consumes nothing: it compares what
// is kept and shown with a number that the caller brings, so a call that was
// lost can be made again. It never touches a session's loop.

import (
	"fmt"
	"time"
)

// wait calls done once, from another goroutine, unless stop was called first:
// when an agent of q has a turn newer than since or a pending approval, when
// none of them has anything to do, after the timeout, or at shutdown. An
// unknown agent is an error.
func (h *hub) wait(q waitQuery, done func(waitResult, *rpcError)) (stop func()) {
	quit := make(chan struct{})
	h.mu.Lock()
	h.waitCalls++
	h.mu.Unlock()
	h.goWork(func() {
		defer h.waitOver()
		w := &waiting{h: h, q: q}
		if err := w.resolve(); err != nil {
			done(waitResult{}, err)
			return
		}
		if r, ok := w.run(quit); ok {
			done(r, nil)
		}
	})
	return func() { close(quit) }
}

// waitOver counts an agent_wait out.
func (h *hub) waitOver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waitCalls--; h.waitCalls == 0 && h.waitsOver != nil {
		close(h.waitsOver)
		h.waitsOver = nil
	}
}

// allWaitsOver is closed when no agent_wait is open any more.
func (h *hub) allWaitsOver() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := make(chan struct{})
	if h.waitCalls == 0 {
		close(over)
	} else {
		h.waitsOver = over
	}
	return over
}

// waiting is one agent_wait.
type waiting struct {
	h      *hub
	q      waitQuery
	agents []string         // agent_ids, each once
	since  map[string]int64 // by agent_id
}

// resolve finds the agents and from where on each is looked at.
func (w *waiting) resolve() *rpcError {
	w.since = map[string]int64{}
	for _, ref := range w.q.Agents {
		id, err := w.h.agentOf(ref)
		if err != nil {
			return err
		}
		if _, twice := w.since[id]; twice {
			continue
		}
		w.agents = append(w.agents, id)
		w.since[id] = w.q.Since
		if w.q.Since == 0 {
			w.since[id] = w.h.kept.base(id)
		}
	}
	return nil
}

// run looks until there is something to tell; false: nobody wants it any more.
func (w *waiting) run(quit chan struct{}) (waitResult, bool) {
	changed, unwatch := w.h.kept.watch()
	defer unwatch()
	limit := time.NewTimer(w.q.Timeout)
	defer limit.Stop()
	for {
		r, ready := w.look()
		if ready {
			return r, true
		}
		select {
		case <-changed:
		case <-limit.C:
			r, _ = w.look()
			r.TimedOut = true
			return r, true
		case <-w.h.life.Done():
			r, _ = w.look()
			return r, true
		case <-quit:
			return r, false
		}
	}
}

// look takes everything in. What ended after the seq that it tells is left for
// the next call: so nothing is told twice and nothing passed over.
func (w *waiting) look() (r waitResult, ready bool) {
	whole := w.snapshot(&r)
	with, busy, asked := 0, 0, false
	for i := range r.Agents {
		a, id := &r.Agents[i], w.agents[i]
		a.Turns = w.h.kept.between(id, w.since[id], r.Seq)
		if len(a.Turns) > 0 {
			with++
		}
		if a.View.Status == statusBusy || a.View.Queued > 0 {
			busy++
		}
		asked = asked || len(a.View.Pending) > 0
	}
	switch {
	case !whole:
		return r, false
	case asked || busy == 0:
		return r, true
	case w.q.All:
		return r, with == len(w.agents)
	}
	return r, with > 0
}

// snapshot takes sessions and the seq as of one moment: else a session would be
// seen to be idle whose last turn isn't told, or one to be busy with a turn that
// is. false: a session is just telling how a turn ended, and will say so.
func (w *waiting) snapshot(r *waitResult) (whole bool) {
	for {
		seq, unseen := w.h.kept.state(w.agents)
		r.Agents = r.Agents[:0]
		for _, id := range w.agents {
			r.Agents = append(r.Agents, waitAgent{View: w.h.viewOf(id)})
		}
		if r.Seq = w.h.kept.now(); r.Seq == seq {
			return !unseen
		}
	}
}

// agentOf is the agent_id of an agent_id or threadId that is known here or on
// disk. It may read the disk.
func (h *hub) agentOf(ref string) (string, *rpcError) {
	h.mu.Lock()
	s := h.findLocked(ref)
	h.mu.Unlock()
	if s != nil {
		return s.agentID, nil
	}
	agentID := ref
	if !validAgentID(ref) {
		agentID, _ = h.reg.agentOfThread(ref)
	}
	if h.book.record(agentID) == nil && !h.kept.has(agentID) {
		return "", h.unknown(ref)
	}
	return agentID, nil
}

// viewOf is how a session stands, open here or not. It may read the disk.
func (h *hub) viewOf(agentID string) sessionView {
	h.mu.Lock()
	s := h.live[agentID]
	h.mu.Unlock()
	if s != nil {
		return *s.shown.Load()
	}
	if rec := h.book.record(agentID); rec != nil {
		return h.viewOfRecord(rec)
	}
	return sessionView{AgentID: agentID, Backend: "codex", Team: h.cfg.team, Status: statusClosed}
}

// turn is one kept turn of an agent_id or threadId. One whose process died
// before it ended is told as failed, not passed over. It may read the disk.
func (h *hub) turn(ref, turnID string) (keptTurn, *rpcError) {
	agentID, err := h.agentOf(ref)
	if err != nil {
		return keptTurn{}, err
	}
	t := h.kept.find(agentID, turnID)
	if t == nil {
		return keptTurn{}, proxyError(codeSessionNotFound, fmt.Sprintf("agent %s has no turn %q; agent_wait tells its turns", agentID, turnID), "agent_id", agentID, "turn_id", turnID)
	}
	if t.finished() {
		return *t, nil
	}
	v := h.viewOf(agentID)
	switch {
	case v.Mine:
		t.Activity, t.Pending = v.Activity, v.Pending
		if t.Status == "queued" {
			t.Activity, t.Pending = "waiting for its turn", nil
		}
		return *t, nil
	case v.Status == statusBusy: // another process has the session
		t.Activity = "working in another process"
		return *t, nil
	}
	t.Status, t.Lost, t.Updated = "failed", true, time.Now()
	t.Result = &turnResult{AgentID: agentID, TurnID: turnID, Identity: t.Identity, Team: h.cfg.team, Status: v.Status, TurnStatus: "interrupted",
		err: proxyError(codeSessionClosed, fmt.Sprintf("the server that ran this turn ended before the turn did; codex-reply with agent_id %s continues from what the agent remembers", agentID), "agent_id", agentID)}
	return *t, nil
}
