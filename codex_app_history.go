package main

// codex_app_history.go owns the past of an app-server thread, told as the events
// that it was: what Codex kept of it, through the same translation as live
// events, so that one encoder shows both. The hub calls it, never from the
// session loop or the reader. It must never tell of an end that hasn't been.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// history tells the past turns of a thread. Of one that runs still it tells the
// beginning, without an end: that comes live. 0.104 keeps no commands, patches
// and tool calls, and calls every turn completed.
func (a *appServer) history(ctx context.Context, thread string, each func(*event) error) error {
	res, err := a.fetch(ctx, "thread/read", map[string]any{"threadId": thread, "includeTurns": true}, a.o.OpenLimit)
	if err != nil {
		if be, ok := err.(*backendError); ok && noTurnsYet(be) {
			return nil
		}
		return fmt.Errorf("reading the history of thread %s from Codex: %w", thread, err)
	}
	var turns []pastTurn
	eachElement(rawField(res, "thread", "turns"), func(raw json.RawMessage) {
		if t := readPastTurn(raw); t.id != "" {
			turns = append(turns, t)
		}
	})
	for _, t := range joinReviews(turns) {
		runs := t.status == "inProgress" && a.wood.running(thread) != ""
		if t.id == a.wood.running(thread) { // 0.104 calls it completed
			runs = true
		}
		if err := t.tell(thread, runs, each); err != nil {
			return err
		}
	}
	return nil
}

// noTurnsYet: a thread that was never used, in the words of 0.169 and 0.104.
func noTurnsYet(e *backendError) bool {
	return e.Code == codeNoMethod && strings.Contains(e.Message, "list_turns") || strings.Contains(e.Message, "not materialized yet")
}

// pastTurn is one turn as thread/read has it.
type pastTurn struct {
	id, root, status string
	items            []json.RawMessage
	raw              json.RawMessage
}

func readPastTurn(raw json.RawMessage) pastTurn {
	t := pastTurn{id: stringField(raw, "id"), root: stringField(raw, "rootTurnId"), status: stringField(raw, "status"), raw: raw}
	eachElement(rawField(raw, "items"), func(it json.RawMessage) {
		if n := len(t.items); n > 0 && sameMessage(t.items[n-1], it) {
			return // 0.104 keeps what a review was asked for twice
		}
		t.items = append(t.items, it)
	})
	return t
}

// sameMessage reports a user's message that stands twice in a row.
func sameMessage(a, b json.RawMessage) bool {
	return stringField(a, "type") == "userMessage" && stringField(b, "type") == "userMessage" &&
		string(rawField(a, "content")) == string(rawField(b, "content"))
}

// joinReviews makes one turn of the two that a review is. From 0.148 on what was
// done in it is kept under its inner id, before the turn in which it stands, and
// as interrupted: 0.169 says which belong together, 0.153 only by their order.
// 0.104 cuts off the mark that it begins with.
func joinReviews(turns []pastTurn) (out []pastTurn) {
	for i := 0; i < len(turns); i++ {
		t := turns[i]
		if i+1 < len(turns) && t.within(turns[i+1]) {
			review := turns[i+1]
			review.items = slices.Concat(review.items[:1], t.items, review.items[1:])
			out = append(out, review)
			i++
			continue
		}
		if i+1 < len(turns) && t.begins(turns[i+1]) {
			review := turns[i+1]
			review.items = slices.Concat(t.items, review.items)
			out = append(out, review)
			i++
			continue
		}
		if t.root != "" && t.root != t.id { // still runs, or the process was killed in it
			t.id = t.root
		}
		out = append(out, t)
	}
	return out
}

func (t *pastTurn) within(next pastTurn) bool {
	if len(next.items) == 0 || stringField(next.items[0], "type") != "enteredReviewMode" || t.id == next.id {
		return false
	}
	if t.root != "" {
		return t.root == next.id
	}
	return t.status == "interrupted" && isNull(rawField(t.raw, "completedAt"))
}

// begins reports the mark alone, before the turn that has the review's end.
func (t *pastTurn) begins(next pastTurn) bool {
	has := func(items []json.RawMessage, kind string) bool {
		return slices.ContainsFunc(items, func(it json.RawMessage) bool { return stringField(it, "type") == kind })
	}
	return len(t.items) == 1 && has(t.items, "enteredReviewMode") && has(next.items, "exitedReviewMode") && !has(next.items, "enteredReviewMode")
}

// tell is the turn as events. runs: it has no end yet.
func (t *pastTurn) tell(thread string, runs bool, each func(*event) error) error {
	if err := each(&event{kind: evStarted, thread: thread, turn: t.id, must: true}); err != nil {
		return err
	}
	ref := string(toJSON(map[string]any{"threadId": thread, "turnId": t.id}))
	for _, it := range t.items {
		e := event{kind: evItem, phase: "completed", thread: thread, turn: t.id, item: stringField(it, "id"), must: true,
			body: appItem(it), method: "item/completed", raw: json.RawMessage(`{"item":` + string(it) + "," + ref[1:])}
		if err := each(&e); err != nil {
			return err
		}
	}
	if runs {
		return nil
	}
	e := event{kind: evEnded, thread: thread, turn: t.id, must: true, method: "turn/completed"}
	if e.status, e.err = turnOutcome(t.raw); t.status == "inProgress" { // its process was killed
		e.status = "interrupted"
	}
	if e.status == "completed" { // as live
		e.text = finalText(rawField(t.raw, "items"))
	}
	e.raw = toJSON(map[string]any{"threadId": thread, "turn": map[string]any{"id": t.id, "status": e.status, "error": rawField(t.raw, "error"), "items": []any{}}})
	return each(&e)
}

// idleOf tells from an opened thread whether a turn runs in it: the status
// from 0.148, the last turn before.
func idleOf(thread json.RawMessage) (turn string, idle bool) {
	idle = stringField(thread, "status", "type") != "active"
	eachElement(rawField(thread, "turns"), func(tn json.RawMessage) {
		turn = ""
		if stringField(tn, "status") == "inProgress" {
			turn = stringField(tn, "id")
		}
	})
	return turn, idle && turn == ""
}
