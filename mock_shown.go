package main

// mock_shown.go owns how a turn of the mock Codex is shown: items and their deltas, token counts, what the model says.
// The turn (mock_turn.go) and its directives (mock_work.go) call it, on the turn's goroutine, and shells that outlive
// their turn.

import (
	"encoding/json"
	"maps"
	"slices"
)

// mockShown is what clients have been shown of a turn. The turn's goroutine owns what stands behind rec.
type mockShown struct {
	m   *mockServer
	th  *mockThread
	id  string          // the turn's
	rec *mockTurnRecord // what history keeps of the turn; mockServer.mu guards its items and its end

	last     string          // what the last tool told the model
	toolLast bool            // the model must still answer to last
	said     bool            // the model has spoken since the last user message
	final    json.RawMessage // the last agentMessage
	usage    int             // tokens of one model request
	patch    string          // the turn's diff so far
	shown    map[string]any  // the item that was started last
}

// tell sends a notification with threadId and turnId put in.
func (s *mockShown) tell(method string, params map[string]any) {
	params["threadId"] = s.th.ID
	if params["turn"] == nil {
		params["turnId"] = s.id
	}
	s.th.tell(method, params)
}

func (s *mockShown) setStatus(kind string, flags ...string) {
	status := map[string]any{"type": kind}
	if kind == "active" {
		status["activeFlags"] = append([]string{}, flags...)
	}
	s.th.setStatus(status)
}

// item makes an item.
func (s *mockShown) item(kind, id string, fields map[string]any) map[string]any {
	it := map[string]any{"type": kind, "id": id}
	maps.Copy(it, fields)
	return it
}

func (s *mockShown) started(it map[string]any) {
	s.shown = it
	s.tell("item/started", map[string]any{"item": it})
}

func (s *mockShown) completed(it map[string]any) {
	raw := toJSON(it)
	s.m.mu.Lock()
	s.rec.Items = append(s.rec.Items, raw)
	s.m.mu.Unlock()
	s.tell("item/completed", map[string]any{"item": it})
}

func (s *mockShown) userMessage(input json.RawMessage) {
	it := s.item("userMessage", newMockID(), map[string]any{"content": input})
	s.started(it)
	s.completed(it)
}

// counts adds one model request to the thread's tokens and shows them.
func (s *mockShown) counts() {
	s.m.mu.Lock()
	s.th.totalIn += s.usage
	s.th.total += s.usage + 20
	s.m.mu.Unlock()
	s.showCounts(s.usage)
}

func (s *mockShown) showCounts(in int) {
	s.m.mu.Lock()
	totalIn, total := s.th.totalIn, s.th.total
	s.m.mu.Unlock()
	use := func(in, all int) map[string]any {
		return map[string]any{"totalTokens": all, "inputTokens": in, "cachedInputTokens": 0, "outputTokens": all - in,
			"reasoningOutputTokens": 0}
	}
	if in == 0 {
		in = s.usage
	}
	s.tell("thread/tokenUsage/updated", map[string]any{"tokenUsage": map[string]any{"total": use(totalIn, total),
		"last": use(in, in+20), "modelContextWindow": 258400}})
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
func (s *mockShown) say(text string, phase any) mockEnd {
	it := s.messageBegin(phase)
	for _, p := range mockPieces(text, 0) {
		s.delta(it, p)
	}
	s.messageEnd(it, text)
	return goOn
}

func (s *mockShown) messageBegin(phase any) map[string]any {
	it := s.item("agentMessage", s.m.newID("msg"), map[string]any{"text": "", "phase": phase})
	s.started(it)
	return it
}

func (s *mockShown) delta(it map[string]any, piece string) {
	s.tell("item/agentMessage/delta", map[string]any{"itemId": it["id"], "delta": piece})
}

func (s *mockShown) messageEnd(it map[string]any, text string) {
	it["text"] = text
	s.final, s.toolLast, s.said = toJSON(it), false, true
	s.completed(it)
	s.counts()
}

// reason is a thought: item, delta, item.
func (s *mockShown) reason(text string) mockEnd {
	it := s.item("reasoning", s.m.newID("rs"), map[string]any{"summary": []string{}, "content": []string{}})
	s.started(it)
	s.tell("item/reasoning/summaryPartAdded", map[string]any{"itemId": it["id"], "summaryIndex": 0})
	s.tell("item/reasoning/summaryTextDelta", map[string]any{"itemId": it["id"], "delta": text, "summaryIndex": 0})
	it["summary"] = []string{text}
	s.completed(it)
	return goOn
}

// toolAnswered tells the model what a tool answered: one more model request.
func (s *mockShown) toolAnswered(text string) mockEnd {
	s.last, s.toolLast = text, true
	s.counts()
	return goOn
}

func (s *mockShown) outputDelta(id, text string) {
	s.tell("item/commandExecution/outputDelta", map[string]any{"itemId": id, "delta": text})
}

// diff shows what the turn has changed. The real Codex shows it more than once too.
func (s *mockShown) diff() { s.tell("turn/diff/updated", map[string]any{"diff": s.patch}) }
