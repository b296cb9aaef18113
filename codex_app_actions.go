package main

// codex_app_actions.go owns the turns of app-server that answer no prompt:
// compaction and review. A session hears of them what it hears of any turn,
// one evStarted and one evEnded with the same id, whatever ids each version
// uses inside. The driver and the forest call it. It must never start a review
// under settings that the session didn't choose: nobody is asked in it.

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// act asks for a compaction or a review. Neither takes settings: from 0.148 on
// they are those of the last turn, so they are sent before it. 0.104 reviews
// under those with which the thread was opened, which is read-only here.
func (a *appServer) act(t *tree, op opID, thread string, c command) {
	ask := func() {
		if !a.wood.waits(t, op) {
			return // the session let go of the thread meanwhile
		}
		if c.action == actCompact {
			a.callFor(t, "thread/compact/start", map[string]any{"threadId": thread}, a.o.TurnLimit, func(_ json.RawMessage, err error) { a.compacting(t, op, thread, err) })
			return
		}
		a.callFor(t, "review/start", reviewParams(thread, c.prompt), a.o.TurnLimit, func(res json.RawMessage, err error) { a.began(t, op, thread, res, err) })
	}
	if !a.info().atLeast(148) {
		ask()
		return
	}
	a.callFor(t, "thread/settings/update", settingsParams(a.info(), thread, c), a.o.CallLimit, func(_ json.RawMessage, err error) {
		switch {
		case err == nil, methodMissing(err) && c.action == actCompact: // which runs nothing
			ask()
		case methodMissing(err):
			a.began(t, op, thread, nil, &rpcError{Code: codeInvalidRequest,
				Message: "this Codex " + a.info().version + " can't be told what a review may do; use a newer one, or ask for the review in a prompt"})
		case err == errCallTimeout:
			a.began(t, op, thread, nil, errNotSent) // the turn itself wasn't asked for
		default:
			a.began(t, op, thread, nil, err)
		}
	})
}

// waits reports that a tree is still there and calls for the turn of op.
func (f *forest) waits(t *tree, op opID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trees[t.root] == t && t.call != nil && t.call.op == op
}

// methodMissing: Codex's way to say that it has no such method.
func methodMissing(err error) bool {
	var e *rpcError
	return errors.As(err, &e) && strings.Contains(e.Message, "unknown variant `thread/settings/update`")
}

// reviewParams: detached reviews exist up to 0.157 only.
func reviewParams(thread, what string) map[string]any {
	target := map[string]any{"type": "uncommittedChanges"}
	if what != "" { // "instructions must not be empty"
		target = map[string]any{"type": "custom", "instructions": what}
	}
	return map[string]any{"threadId": thread, "target": target, "delivery": "inline"}
}

// compacting takes the answer to thread/compact/start, which names no turn: the
// first word of the compaction does (actionLocked). Without one it was not begun.
func (a *appServer) compacting(t *tree, op opID, thread string, err error) {
	if err != nil {
		a.began(t, op, thread, nil, err)
		return
	}
	time.AfterFunc(a.o.TurnLimit, func() { a.began(t, op, thread, nil, errCallTimeout) })
}

// actionLocked takes an event of a root whose turn answers no prompt. It returns
// what comes before it, the event as the session knows it, and the id by which
// Codex knows what runs.
func (f *forest) actionLocked(t *tree, e event) (out []delivery, _ event, run string) {
	run = e.turn
	switch t.act {
	case actCompact:
		// From 0.148 on turn/started begins it, in 0.104 the item. Its end is
		// as good a beginning: it may be interrupted before it has any other.
		begins := e.method == "turn/started" || e.kind == evEnded || e.kind == evItem && e.body.kind == "contextCompaction"
		if t.call == nil || !begins {
			break
		}
		out = append(out, delivery{t: t, th: f.threads[t.root], e: event{kind: evStarted, op: t.call.op, thread: t.root, turn: e.turn, must: true}})
		t.call, t.turn = nil, e.turn
		if e.kind != evEnded {
			f.runs[t.root] = e.turn
		}
	case actReview:
		// From 0.148 on a review runs under an id of its own (0.169 names the
		// turn's in rootTurnId, 0.153 nowhere); only an interrupt wants it. All
		// else that is said of it, and its end, goes by the turn's.
		if e.method == "turn/started" && t.turn != "" && e.turn != t.turn {
			f.around[t.root], e.turn = t.turn, t.turn
		}
	case actPrompt:
	}
	return out, e, run
}
