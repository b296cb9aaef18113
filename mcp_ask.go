package main

// mcp_ask.go owns the asking of a client in the middle of a call (FR-18): a legacy client by elicitation/create, a
// modern one by input_required and a handle, with which the retry that brings the answers goes on with the same turn.
// The hub calls ask and askGone, mcp.go and callTool the rest. The turn is the hub's and goes on whether or not a retry
// comes; the timer of an approval is the hub's too. Whatever comes back but a readable yes must deny, and no retry may
// begin a turn or use a handle twice.

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

const (
	// parkedFor is how long a result waits for a retry: a user who answers within
	// the hour still gets the result, and agent_wait has it after that.
	parkedFor = time.Hour
	// parkedResults and parkedBytes bound the results that wait; the oldest
	// goes first. Turns that still run are as few as there are sessions.
	parkedResults = 32
	parkedBytes   = 4 << 20
)

// callBinding is what a requestState is good for: one tool with one set of arguments.
type callBinding [sha256.Size]byte

// parkedTurn is the turn of a call that has been asked something. It begins
// with the first question and ends as a request takes the turn's result.
type parkedTurn struct {
	w      waiterID
	binds  callBinding // of the call that began the turn
	state  string      // the requestState the client holds, "" while a request is open
	asks   []parkedAsk // not decided yet, oldest first
	result *turnResult // nil: the turn has not ended, or a request took its result
	since  time.Time   // when result came
}

type parkedAsk struct {
	agent agentRef
	q     approval
}

// parking holds the turns whose calls were asked something. mcpFront.mu guards all of its fields.
type parking struct {
	turns  map[waiterID]*parkedTurn
	states map[string]*parkedTurn // by requestState
}

// handOut makes the one handle under which the turn can be found again.
func (p *parking) handOut(t *parkedTurn) {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	t.state = hex.EncodeToString(b[:])
	p.turns[t.w], p.states[t.state] = t, t
}

// forget ends a parked turn, with or without a result.
func (p *parking) forget(w waiterID) {
	if t := p.turns[w]; t != nil {
		delete(p.turns, w)
		delete(p.states, t.state)
	}
}

// withdraw takes an approval out that needs no answer any more.
func (p *parking) withdraw(ask string) {
	for _, t := range p.turns {
		t.asks = slices.DeleteFunc(t.asks, func(a parkedAsk) bool { return a.q.id == ask })
	}
}

// keep holds a result for the retry that may come.
func (p *parking) keep(t *parkedTurn, r turnResult, now time.Time) {
	t.result, t.since, t.asks = &r, now, nil
	p.sweep(now)
}

// sweep forgets the results that waited too long, and the oldest that are too many.
func (p *parking) sweep(now time.Time) {
	var kept []*parkedTurn
	for w, t := range p.turns {
		switch {
		case t.result == nil:
		case now.Sub(t.since) >= parkedFor:
			p.forget(w)
		default:
			kept = append(kept, t)
		}
	}
	slices.SortFunc(kept, func(a, b *parkedTurn) int { return b.since.Compare(a.since) })
	size := 0
	for i, t := range kept {
		size += len(t.result.Content) + 1024
		if i > 0 && (i >= parkedResults || size > parkedBytes) {
			p.forget(t.w)
		}
	}
}

// bindingOf hashes a tool and its arguments. The order of keys, whitespace and
// the spelling of strings and numbers make no difference.
func bindingOf(tool string, args json.RawMessage) callBinding {
	h := sha256.New()
	h.Write(append([]byte(tool), 0))
	v := map[string]any{}
	if !isNull(args) && json.Unmarshal(args, &v) != nil {
		h.Write(bytes.TrimSpace(args)) // a number that no float64 holds
	} else {
		h.Write(toJSON(v))
	}
	return callBinding(h.Sum(nil))
}

// askByRetry asks the modern caller of a turn: the request that is open for the turn is answered, and what is asked
// while none is open goes into the answer to the next retry. modern: the turn is a modern caller's, and asked says
// whether that caller could be asked.
func (f *mcpFront) askByRetry(a agentRef, w waiterID, q *approval) (modern, asked bool) {
	if w == 0 {
		return false, false
	}
	var binds callBinding // of the first request; a retry's turn has it
	if c := f.caller(w); c != nil && c.tool != "" {
		binds = bindingOf(c.tool, c.args) // megabytes perhaps, so without the lock
	}
	f.mu.Lock()
	c, t := f.waiters[w], f.parked.turns[w]
	switch {
	case c == nil && t == nil || c != nil && !c.modern:
		f.mu.Unlock()
		return false, false
	case f.closing || c != nil && !c.elicits || t != nil && t.result != nil || q.kind == askUnknown:
		f.mu.Unlock()
		return true, false
	case t == nil:
		t = &parkedTurn{w: w, binds: binds}
		f.parked.turns[w] = t
	}
	t.asks = append(t.asks, parkedAsk{a, *q})
	f.mu.Unlock()
	if c != nil {
		requireInput(c, t)
	}
	return true, true
}

// requireInput answers the request that is open for a turn with all that the turn asks.
func requireInput(c *mcpCall, t *parkedTurn) {
	f := c.f
	f.mu.Lock()
	if len(t.asks) == 0 || !f.forgetLocked(c) {
		f.mu.Unlock()
		return // withdrawn by now, or the request was answered or cancelled
	}
	f.parked.handOut(t)
	state, asks := t.state, slices.Clone(t.asks)
	f.mu.Unlock()
	requests := make(map[string]inputRequest, len(asks))
	for i := range asks {
		requests[asks[i].q.id] = f.formRequest(asks[i].agent, &asks[i].q, c.id)
	}
	c.send(toJSON(struct {
		Type     string                  `json:"resultType"`
		Requests map[string]inputRequest `json:"inputRequests"`
		State    string                  `json:"requestState"`
		Meta     map[string]any          `json:"_meta"`
	}{"input_required", requests, state, f.modernMeta()}), nil)
}

// inputRequest is one thing that a modern client is asked in a result.
type inputRequest struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (f *mcpFront) formRequest(a agentRef, q *approval, request json.RawMessage) inputRequest {
	return inputRequest{"elicitation/create", f.Names.fields(elicitation(a, q, request), listed)}
}

// retryCall serves a tools/call with requestState or inputResponses, on the reading goroutine. A retry never begins a
// turn: it goes on with the turn that asked something, or is an error.
func retryCall(c *mcpCall, p mcpParams, tool string) *rpcError {
	f := c.f
	state, ok := rawString(p.state)
	switch {
	case !isNull(p.responses) && rawKind(p.responses) != '{':
		return badParams("inputResponses must be an object of what inputRequests asked for, by its keys")
	case isNull(p.state):
		return invalidSession("inputResponses came without the requestState that they answer: repeat the call of %s "+
			"with both, or call it again without either", tool)
	case !ok:
		return badParams("requestState must be the string that came with inputRequests")
	}
	binds := bindingOf(tool, p.arguments)
	c.showProgress(p)

	f.mu.Lock()
	f.parked.sweep(time.Now())
	t := f.parked.states[state]
	var refused *rpcError
	switch {
	case t == nil:
		refused = invalidSession("requestState is unknown, expired or was used before. The turn it belonged to goes "+
			"on: agent_wait with its agent_id brings the answer; calling %s again without requestState and "+
			"inputResponses starts another turn", tool)
	case t.binds != binds:
		refused = invalidSession("requestState belongs to a call of another tool or with other arguments: repeat " +
			"that call unchanged, with requestState and inputResponses")
	case f.closing && t.result == nil:
		refused = shuttingDown()
	}
	if refused != nil {
		f.mu.Unlock()
		return refused
	}
	delete(f.parked.states, state)
	t.state = ""
	if t.result != nil {
		f.parked.forget(t.w)
		f.mu.Unlock()
		c.finish(outcome(c, t.result))
		return nil
	}
	var decided []parkedAsk
	t.asks = slices.DeleteFunc(t.asks, func(a parkedAsk) bool {
		if rawField(p.responses, a.q.id) == nil && c.elicits {
			return false // not answered: asked again
		}
		decided = append(decided, a)
		return true
	})
	c.waiter, c.stage = t.w, callSubmitted
	f.waiters[t.w] = c // before the decisions: the turn may end by one
	f.mu.Unlock()
	for i := range decided {
		d := &decided[i]
		c.prog.note(d.agent, &event{kind: evAskGone}) // the turn goes on
		response := rawField(p.responses, d.q.id)
		if response == nil {
			f.decide(d.agent.AgentID, d.q.id, decider{byNoWay, "it declared no elicitation with its retry"}, deny, nil)
			continue
		}
		word, answers := readAnswer(response, &d.q)
		f.decide(d.agent.AgentID, d.q.id, answeredBy(response, word), word, answers)
	}
	requireInput(c, t)
	return nil
}

// ask implements front. false: the client declared no elicitation, or the kind is one that this version doesn't
// understand. Callers of the modern era, where a server may not send requests, are asked by a result.
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
	form := f.formRequest(a, &q, request)
	return f.askClient(q.id, form.Method, form.Params, func(result json.RawMessage, err error) {
		if err != nil {
			f.decide(a.AgentID, q.id, decider{byError, clip(err.Error(), 300)}, deny, nil)
			return
		}
		d, answers := readAnswer(result, &q)
		f.decide(a.AgentID, q.id, answeredBy(result, d), d, answers)
	}, func(call int64, why string) {
		f.p.notify("notifications/cancelled", map[string]any{"requestId": call, "reason": why})
	})
}

// askGone implements front: the client needn't answer any more.
func (f *mcpFront) askGone(_ agentRef, ask, why string) {
	f.mu.Lock()
	f.parked.withdraw(ask)
	f.mu.Unlock()
	f.withdrawAsk(ask, why)
}
