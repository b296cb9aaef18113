package main

// mcp_ask.go owns who of a client is asked, and the asking of a legacy one by
// elicitation/create (FR-18); mcp_input.go asks a modern caller. The hub calls
// ask and askGone, and keeps the timer of an approval. Whatever comes back but a
// readable yes must deny: an error, nonsense, a client that is gone.

import (
	"encoding/json"
	"slices"
)

// clientAsk is one question before the client.
type clientAsk struct{ call int64 }

// ask implements front. It says no for clients that declared no elicitation,
// and for kinds that this version doesn't understand. Callers of the modern
// era, where a server may not send requests, are asked by mcp_input.go.
func (f *mcpFront) ask(a agentRef, w waiterID, q approval) bool {
	if modern, asked := f.askByRetry(a, w, &q); modern {
		return asked
	}
	l := f.legacy.Load()
	if l == nil || !l.elicits || q.kind == askUnknown {
		return false
	}
	c := f.caller(w)
	if l.version < "2025-11-25" { // lists came to forms with that version
		q.questions = slices.Clone(q.questions)
		for i := range q.questions {
			q.questions[i].flat = true
		}
	}
	var request json.RawMessage
	if c != nil {
		request = c.id
	}
	open := &clientAsk{}
	f.mu.Lock()
	f.asks[q.id] = open
	f.mu.Unlock()
	call := f.p.call("elicitation/create", elicitation(a, &q, request), 0, func(result json.RawMessage, err error) {
		f.mu.Lock()
		mine := f.asks[q.id] == open
		if mine {
			delete(f.asks, q.id)
		}
		f.mu.Unlock()
		if !mine || err == errPeerGone {
			return // withdrawn, or the client is gone: then the hub denies all
		}
		if err != nil {
			f.decide(q.id, decider{byError, clip(err.Error(), 300)}, deny, nil)
			return
		}
		d, answers := readAnswer(result, &q)
		f.decide(q.id, answeredBy(result, d), d, answers)
	})
	f.mu.Lock()
	open.call = call
	f.mu.Unlock()
	return call != 0
}

// askGone implements front: the client needn't answer any more.
func (f *mcpFront) askGone(_ agentRef, ask, why string) {
	f.mu.Lock()
	open := f.asks[ask]
	delete(f.asks, ask)
	f.parked.withdraw(ask)
	f.mu.Unlock()
	if open == nil {
		return
	}
	f.p.abandon(open.call)
	f.p.notify("notifications/cancelled", map[string]any{"requestId": open.call, "reason": why}, false)
}

// approvers is who can be asked during a call's turn: the client's user if the
// client can put questions, and for background work its caller, who decides
// with agent_approve. The agent is told. Any goroutine may call it.
func (f *mcpFront) approvers(c *mcpCall, req *turnRequest) string {
	l := f.legacy.Load()
	elicits := c.modern && c.elicits || !c.modern && l != nil && l.elicits
	switch {
	case req.task && elicits:
		return "client" // tasks/get asks
	case req.background:
		return "caller"
	case elicits:
		return "client"
	}
	return ""
}
