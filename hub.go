package main

// hub.go owns the table of sessions and the one child.

// hub is the only thing a front talks to. Its methods may be called from any
// goroutine and don't block, except where they say so.
type hub struct{}

// submit runs one turn (or rebinds). The waiter gets exactly one result by
// front.done, errors included, unless it is cancelled first. Two submits for
// one agent keep their order.
func (h *hub) submit(req turnRequest, w waiterID) {}

// cancel retires a waiter: it gets no result any more. A queued turn is never
// run, a running one is interrupted, unless detach: then it goes on and only
// the waiter is forgotten.
func (h *hub) cancel(w waiterID, detach bool) {}

// decide answers an approval that front.ask put. by is "client" or what else
// decided. false: it was already decided or withdrawn.
func (h *hub) decide(ask, by string, d decision, answers map[string][]string) bool { return false }

// close closes a session by agent_id, threadId or identity (one non-empty) and
// calls done exactly once, from another goroutine.
func (h *hub) close(ref, identity string, done func(closeResult, *rpcError)) {}

// sessions lists what is open here and the team's other sessions, newest
// first. It reads records from disk and may wait for them.
func (h *hub) sessions(limit int) []sessionView { return nil }

// status tells the whole proxy. It reads no disk.
func (h *hub) status() statusView { return statusView{} }
