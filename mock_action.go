package main

// mock_action.go owns the mock Codex's turns that answer no prompt: compaction
// and review, with each version's ids, items and history. mock.go dispatches to
// it on the reading goroutine. It must never wait for a turn there.

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
)

// newTurn is a turn of a thread that nothing has begun yet.
func (m *mockServer) newTurn(th *mockThread) *mockTurn {
	t := &mockTurn{m: m, th: th, id: newMockID(), begun: time.Now(), stop: make(chan struct{}), wake: make(chan struct{}, 1), over: make(chan struct{}),
		usage: 100, settings: th.Settings}
	t.rec = &mockTurnRecord{ID: t.id, Status: "inProgress", Started: t.begun.Unix(), Items: []json.RawMessage{}}
	return t
}

// occupy makes t the thread's turn and runs it. What ran is interrupted, as it is
// by every version, and run waits for its end.
func (t *mockTurn) occupy(preview string, run func()) {
	m, th := t.m, t.th
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	before := th.active
	if before != nil {
		before.interruptLocked(nil)
	}
	th.active, th.used = t, true
	th.turns = append(th.turns, t.rec)
	th.Preview = cmp.Or(th.Preview, preview)
	state := th.mockThreadState
	m.turns.Add(1)
	go func() { // ends with the turn or the process; turns counts it
		defer m.turns.Done()
		if before != nil {
			select {
			case <-before.over:
			case <-m.done:
				return
			}
		}
		m.keep(th, mockRecord{Thread: &state})
		m.keep(th, mockRecord{Turn: t.rec})
		run()
	}()
}

// close ends a turn that nobody steers.
func (t *mockTurn) close(end mockEnd) {
	if end == gone {
		return
	}
	for !t.finish(end) {
		t.nextSteer()
	}
}

// settingsUpdate sets what the next turns run under.
func (m *mockServer) settingsUpdate(msg *message) {
	th := m.loaded(msg)
	if th == nil || !m.checkWords(msg) {
		return
	}
	m.mu.Lock()
	changed := m.override(th, msg.params)
	m.mu.Unlock()
	m.peer.reply(msg.id, struct{}{})
	m.settingsChanged(th, changed)
}

func (m *mockServer) settingsChanged(th *mockThread, changed bool) {
	if !m.new() || !changed {
		return
	}
	m.mu.Lock()
	s := th.Settings
	m.mu.Unlock()
	m.tell(th, "thread/settings/updated", map[string]any{"threadId": th.ID, "threadSettings": map[string]any{
		"activePermissionProfile": nil, "approvalPolicy": s.Approval, "approvalsReviewer": "user", "cwd": s.Cwd, "disabledPluginIds": []any{}, "effort": mockNull(s.Effort), "environments": []any{},
		"collaborationMode": map[string]any{"mode": "default", "settings": map[string]any{"model": s.Model, "reasoning_effort": mockNull(s.Effort), "developer_instructions": nil}},
		"model":             s.Model, "modelProvider": "openai", "multiAgentMode": "explicitRequestOnly", "personality": nil, "sandboxPolicy": s.Sandbox, "serviceTier": nil, "summary": "auto",
	}})
}

// threadCompact is a turn without a prompt. 0.104 leaves turn/started out. The
// compact_prompt of the thread's configuration scripts it: HANG, FAIL, GATE.
func (m *mockServer) threadCompact(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	m.peer.reply(msg.id, struct{}{})
	t := m.newTurn(th)
	t.mute = true
	t.occupy("", func() { t.close(t.compact()) })
}

func (t *mockTurn) compact() mockEnd {
	m := t.m
	t.setStatus("active")
	if !m.old() {
		t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, true)})
	}
	t.event("task_started", map[string]any{"turn_id": t.id, "model_context_window": 258400, "collaboration_mode_kind": "default"})
	if end := t.check(); end != goOn {
		return end
	}
	item := t.item("contextCompaction", newMockID(), nil)
	t.started(item)
	known := mockDirectives()
	for _, s := range mockSteps(t.th.compactBy) {
		if s.word == "HANG" || s.word == "FAIL" || s.word == "GATE" {
			if end := known[s.word](t, s.arg); end != goOn {
				return end
			}
		}
	}
	if m.old() {
		t.requested()
	} else {
		t.showCounts(0)
	}
	t.counts()
	t.showCounts(t.usage)
	t.completed(item)
	if m.old() {
		t.event("context_compacted", map[string]any{})
		t.tell("thread/compacted", map[string]any{})
		t.event("warning", map[string]any{"message": "Heads up: Long threads and multiple compactions can cause the model to be less accurate."})
	}
	return goOn
}

// mockReviewPrompt is what Codex makes of {"type": "uncommittedChanges"}.
const mockReviewPrompt = "Review the current code changes (staged, unstaged, and untracked files) and provide prioritized findings."

// reviewStart is a turn in which another model's answer becomes the agent's.
func (m *mockServer) reviewStart(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	prompt, label := mockReviewPrompt, "current changes"
	switch kind := stringField(msg.params, "target", "type"); kind {
	case "uncommittedChanges":
	case "custom":
		prompt = stringField(msg.params, "target", "instructions")
		if label = prompt; strings.TrimSpace(prompt) == "" {
			m.refuse(msg, "instructions must not be empty")
			return
		}
	default: // the real ones have baseBranch and commit too
		m.refuse(msg, mockVariant(kind, "uncommittedChanges", "custom"))
		return
	}
	if d := stringField(msg.params, "delivery"); d != "" && d != "inline" {
		m.refuse(msg, mockVariant(d, "inline"))
		return
	}
	t := m.newTurn(th)
	t.review = true
	asked := map[string]any{"type": "userMessage", "id": t.id, "content": []any{map[string]any{"type": "text", "text": label, "text_elements": []any{}}}}
	if !m.old() {
		t.inner, asked["clientId"] = newMockID(), nil
	}
	if m.new() {
		asked["startedAtMs"], asked["completedAtMs"] = nil, nil
	}
	view := t.view("inProgress", []json.RawMessage{toJSON(asked)}, false)
	if !m.old() {
		view["itemsView"] = "notLoaded"
	}
	if m.new() {
		view["rootTurnId"] = nil
	}
	answered := make(chan struct{})
	t.occupy(prompt, func() {
		<-answered
		t.close(t.runReview(prompt, label, view))
	})
	m.peer.reply(msg.id, map[string]any{"turn": view, "reviewThreadId": th.ID})
	close(answered)
}

// runReview does what the prompt says, without asking for anything.
func (t *mockTurn) runReview(prompt, label string, view map[string]any) mockEnd {
	m, outer := t.m, t.rec
	t.settings.Approval = json.RawMessage(`"never"`)
	mark := func(kind, text, event string, fields map[string]any) {
		id := t.id // 0.104 gives both marks the turn's
		if !m.old() {
			id = newMockID()
		}
		t.event(event, fields)
		it := t.item(kind, id, map[string]any{"review": text})
		t.started(it)
		t.completed(it)
	}
	// What is done in it is kept before the turn in which it stands, and never
	// ends; 0.104 cuts off its beginning instead.
	aside := &mockTurnRecord{ID: t.inner, Root: t.id, Status: "interrupted", Started: outer.Started, Items: []json.RawMessage{}}
	if m.old() {
		aside.ID, aside.Root, aside.Status = newMockID(), "", "completed"
		t.rec = aside
	}
	t.warn()
	if m.old() {
		t.tell("turn/started", map[string]any{"turn": view})
	}
	mark("enteredReviewMode", label, "entered_review_mode", map[string]any{"target": map[string]any{"type": "custom", "instructions": prompt}, "user_facing_hint": label})
	m.mu.Lock()
	t.th.turns = append(t.th.turns[:len(t.th.turns)-1:len(t.th.turns)-1], aside, outer)
	m.mu.Unlock()
	if t.rec = aside; m.old() {
		t.rec = outer
		m.event(t.th.ID, t.id, "mcp_startup_complete", map[string]any{"ready": []any{}, "failed": []any{}, "cancelled": []any{}})
	}
	t.warn()
	t.setStatus("active")
	if !m.old() {
		begun := m.turnView(t.inner, "inProgress", []json.RawMessage{}, nil)
		begun["startedAt"] = t.begun.Unix()
		if m.new() {
			begun["rootTurnId"] = t.id
		}
		t.tell("turn/started", map[string]any{"turn": begun})
	}
	t.event("task_started", map[string]any{"turn_id": t.id, "model_context_window": 258400, "collaboration_mode_kind": "default"})
	end := t.check()
	if end == goOn {
		end = t.prompt(toJSON([]any{map[string]any{"type": "text", "text": prompt}}))
	}
	if end == goOn {
		end = t.check() // stopped in the last moment
	}
	if end == gone {
		return end
	}
	m.mu.Lock()
	if m.old() && len(outer.Items) > 0 {
		outer.Items = append(outer.Items[:1:1], outer.Items...) // what was asked for is kept twice
	}
	kept := *aside
	t.rec = outer
	m.mu.Unlock()
	m.keep(t.th, mockRecord{Turn: &kept})
	verdict, said := stringField(t.final, "text"), stringField(t.final, "text")
	if end != goOn {
		verdict, said = "Reviewer failed to output a response.", "Review was interrupted. Please re-run /review and wait for it to complete."
	}
	mark("exitedReviewMode", verdict, "exited_review_mode", map[string]any{"review_output": map[string]any{"overall_explanation": verdict}})
	id := "msg_" + newMockID()
	if m.old() {
		id = "review_rollout_assistant"
	}
	answer := t.item("agentMessage", id, map[string]any{"text": said})
	t.started(answer)
	t.completed(answer)
	t.final = nil
	if end == goOn {
		t.final = toJSON(answer)
	}
	if end == interrupted {
		t.readStateChanged()
	}
	return end
}
