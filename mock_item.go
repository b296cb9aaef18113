package main

// mock_item.go owns how the mock Codex shows a turn: items and their deltas, the
// thread's status, token counts, errors, and what the model says. The turn's
// goroutine calls it, shells' goroutines for their late items. It must never wait.

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// tell sends a notification with threadId and turnId put in.
func (t *mockTurn) tell(method string, params map[string]any) {
	params["threadId"] = t.th.ID
	if params["turn"] == nil && params["status"] == nil && params["readState"] == nil {
		params["turnId"] = t.id
	}
	t.m.tell(t.th, method, params)
}

func (t *mockTurn) setStatus(kind string, flags ...string) {
	status := map[string]any{"type": kind}
	if kind == "active" {
		status["activeFlags"] = append([]string{}, flags...)
	}
	t.m.setStatus(t.th, status)
}

// item makes an item with the fields that every one of its type has.
func (t *mockTurn) item(kind, id string, fields map[string]any) map[string]any {
	it := map[string]any{"type": kind, "id": id, "startedAtMs": nil, "completedAtMs": nil}
	switch kind {
	case "agentMessage":
		for _, k := range []string{"phase", "memoryCitation", "delivery", "questions", "moderation"} {
			it[k] = nil
		}
	case "userMessage":
		it["clientId"] = nil
	case "commandExecution":
		it["pluginId"], it["scriptPath"] = nil, nil
	}
	maps.Copy(it, fields)
	return it
}

func (t *mockTurn) started(it map[string]any) {
	now := time.Now().UnixMilli()
	it["startedAtMs"], t.shown = now, it
	t.tell("item/started", map[string]any{"item": it, "startedAtMs": now})
}

func (t *mockTurn) completed(it map[string]any) {
	now := time.Now().UnixMilli()
	it["completedAtMs"] = now
	raw := toJSON(it)
	t.m.mu.Lock()
	t.rec.Items = append(t.rec.Items, raw)
	t.m.mu.Unlock()
	t.tell("item/completed", map[string]any{"item": it, "completedAtMs": now, "contentTokenCount": nil})
}

func (t *mockTurn) userMessage(input json.RawMessage) {
	var parts []map[string]any
	_ = json.Unmarshal(input, &parts) // m.input has seen that it is an array
	content := []any{}
	for _, p := range parts {
		if p["type"] == "text" && p["text_elements"] == nil {
			p["text_elements"] = []any{}
		}
		if p["type"] != "text" && p["detail"] == nil {
			p["detail"] = nil
		}
		content = append(content, p)
	}
	it := t.item("userMessage", newMockID(), map[string]any{"content": content})
	t.started(it)
	t.completed(it)
}

// counts adds one model request to the thread's tokens and shows them.
func (t *mockTurn) counts() {
	t.m.mu.Lock()
	t.th.totalIn += t.usage
	t.th.total += t.usage + 20
	t.m.mu.Unlock()
	t.showCounts(t.usage)
}

func (t *mockTurn) showCounts(in int) {
	t.m.mu.Lock()
	totalIn, total := t.th.totalIn, t.th.total
	t.m.mu.Unlock()
	use := func(in, all int) map[string]any {
		return map[string]any{"totalTokens": all, "inputTokens": in, "cachedInputTokens": 0, "outputTokens": all - in,
			"reasoningOutputTokens": 0, "cacheWriteInputTokens": 0}
	}
	if in == 0 {
		in = t.usage
	}
	t.tell("thread/tokenUsage/updated", map[string]any{"tokenUsage": map[string]any{"total": use(totalIn, total),
		"last": use(in, in+20), "modelContextWindow": 258400}})
	t.m.notify("account/rateLimits/updated", map[string]any{"rateLimits": map[string]any{"limitId": "codex",
		"limitName": nil, "primary": nil, "secondary": nil, "credits": nil, "planType": nil}})
}

// mockPieces cuts a text into n deltas; 0: into a few.
func mockPieces(text string, n int) []string {
	runes := []rune(text)
	if n == 0 {
		n = min(6, max(3, (len(runes)+39)/40))
	}
	var pieces []string
	for piece := range slices.Chunk(runes, max(1, (len(runes)+n-1)/n)) {
		pieces = append(pieces, string(piece))
	}
	return pieces
}

// say is the model's answer: item, deltas, item, counts.
func (t *mockTurn) say(text string, phase any) mockEnd {
	it := t.messageBegin(phase)
	for _, p := range mockPieces(text, 0) {
		t.delta(it, p)
	}
	t.messageEnd(it, text)
	return goOn
}

func (t *mockTurn) messageBegin(phase any) map[string]any {
	it := t.item("agentMessage", t.m.newID("msg"), map[string]any{"text": "", "phase": phase})
	t.started(it)
	return it
}

func (t *mockTurn) delta(it map[string]any, piece string) {
	t.tell("item/agentMessage/delta", map[string]any{"itemId": it["id"], "delta": piece})
}

func (t *mockTurn) messageEnd(it map[string]any, text string) {
	it["text"] = text
	t.final, t.toolLast, t.said = toJSON(it), false, true
	t.completed(it)
	t.counts()
}

// reason is a thought: item, delta, item.
func (t *mockTurn) reason(text string) mockEnd {
	it := t.item("reasoning", t.m.newID("rs"), map[string]any{"summary": []string{}, "content": []string{}})
	t.started(it)
	t.tell("item/reasoning/summaryPartAdded", map[string]any{"itemId": it["id"], "summaryIndex": 0})
	t.tell("item/reasoning/summaryTextDelta", map[string]any{"itemId": it["id"], "delta": text, "summaryIndex": 0})
	it["summary"] = []string{text}
	t.completed(it)
	return goOn
}

// fail shows an error and ends the turn. info is its kind in Codex's words.
func (t *mockTurn) fail(message string, info any) mockEnd {
	t.err = mockError(message, info, nil)
	t.setStatus("systemError")
	t.tell("error", map[string]any{"error": t.err, "willRetry": false})
	return failed
}

func mockError(message string, info, details any) map[string]any {
	return map[string]any{"message": message, "codexErrorInfo": info, "additionalDetails": details, "misalignment": nil}
}

// toolAnswered is what a tool answered the model, which has been asked once more.
func (t *mockTurn) toolAnswered(text string) mockEnd {
	t.last, t.toolLast = text, true
	t.counts()
	return goOn
}

// outputDelta shows output of a command as it comes.
func (t *mockTurn) outputDelta(id, text string) {
	t.tell("item/commandExecution/outputDelta", map[string]any{"itemId": id, "delta": text})
}

// diff shows what the turn has changed; real ones repeat it.
func (t *mockTurn) diff() { t.tell("turn/diff/updated", map[string]any{"diff": t.patch}) }
