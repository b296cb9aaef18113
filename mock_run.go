package main

// mock_run.go owns the goroutine of a mock Codex's running turn: the
// directives of its prompt one after the other, the steers that come between,
// waiting, and the end as each version shows it. mock_turn.go starts it,
// mock_directive.go and mock_fault.go do the directives' work. It must leave every wait when the
// turn is stopped or the process ends.

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// run is the turn's goroutine.
func (t *mockTurn) run(input json.RawMessage) {
	defer t.m.turns.Done()
	t.setStatus("active")
	t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, true)})
	if t.m.tellsEvents() {
		t.warn()
		t.event("task_started", map[string]any{"turn_id": t.id, "model_context_window": 258400, "collaboration_mode_kind": "default"})
	}
	for {
		end := t.prompt(input)
		if end == gone {
			return
		}
		if end == goOn || end == preempted {
			if input = t.nextSteer(); input != nil {
				continue
			}
			end = goOn
		}
		if t.finish(end) {
			return
		}
		if input = t.nextSteer(); input == nil { // a steer came while it ended
			input = json.RawMessage("[]")
		}
	}
}

func (t *mockTurn) nextSteer() json.RawMessage {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if len(t.steers) == 0 {
		return nil
	}
	input := t.steers[0]
	t.steers = t.steers[1:]
	return input
}

// steered reports that an input waits.
func (t *mockTurn) steered() bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return len(t.steers) > 0
}

// mockStep is one directive of a prompt.
type mockStep struct{ word, arg string }

// mockSteps are a prompt's directives. Lines that begin with none, such as a
// context block before them, don't count, nor what was said in the past.
func mockSteps(prompt string) []mockStep {
	known := mockDirectives()
	var steps []mockStep
	past := false
	for _, line := range strings.Split(prompt, "\n") {
		past = strings.HasPrefix(line, "[Previous session") || past && line != "[End of previous session]"
		if past {
			continue
		}
		word, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		if known[word] != nil {
			steps = append(steps, mockStep{word, strings.TrimSpace(arg)})
		}
	}
	return steps
}

// prompt shows one user message and does what it says.
func (t *mockTurn) prompt(input json.RawMessage) mockEnd {
	text := mockText(input)
	t.input = input
	steps := t.steps(text)
	t.heed(steps)
	t.userMessage(input, text)
	t.last, t.toolLast, t.said = "", false, false
	if os.Getenv("MOCK_CODEX_AUTH") == "1" && t.m.loggedIn() == "" {
		return failDirective(t, "401 Missing bearer or basic authentication in header")
	}
	if len(steps) == 0 {
		return t.say("MOCK: "+text, nil)
	}
	known := mockDirectives()
	for i, s := range steps {
		if end := known[s.word](t, s.arg); end != goOn {
			return end
		}
		if i < len(steps)-1 {
			if end := t.check(); end != goOn {
				return end
			}
			if t.steered() {
				return preempted
			}
		}
	}
	if t.steered() {
		return preempted
	}
	if t.toolLast || !t.said {
		out := []rune(t.last)
		return t.say("DONE: "+string(out[:min(len(out), 400)]), nil)
	}
	return goOn
}

// steps are a prompt's directives. One that begins "Session ending." has none of
// its own, but those that ENDING named before, and so has one that brings mail
// with ON_MAIL.
func (t *mockTurn) steps(text string) []mockStep {
	if strings.Contains(text, "\n<atm-mail to=") {
		t.m.mu.Lock()
		defer t.m.mu.Unlock()
		return mockSteps(strings.Join(t.th.onMail, "\n"))
	}
	if !strings.HasPrefix(text, "Session ending.") {
		return mockSteps(text)
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return mockSteps(strings.Join(t.th.ending, "\n"))
}

// heed takes the directives that hold for a whole turn before the client can
// know that it runs, or its interrupt could come first.
func (t *mockTurn) heed(steps []mockStep) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	for _, s := range steps {
		switch s.word {
		case "IGNORE_INTERRUPT":
			t.deaf = true
		case "STALL":
			t.stalled = true
		case "USAGE":
			if n, err := strconv.Atoi(s.arg); err == nil {
				t.usage = n
			}
		}
	}
}

// check looks whether the turn was stopped meanwhile.
func (t *mockTurn) check() mockEnd {
	select {
	case <-t.stop:
		return interrupted
	case <-t.m.done:
		return gone
	default:
		return goOn
	}
}

// wait waits for ready, an interrupt or the end of the process; for a steer
// too where the model's stream can be preempted (0.169).
func (t *mockTurn) wait(ready <-chan struct{}, stream bool) mockEnd {
	wake := t.wake
	if !stream || !t.m.new() {
		wake = nil
	}
	for {
		select {
		case <-ready:
			return goOn
		case <-t.stop:
			return interrupted
		case <-t.m.done:
			return gone
		case <-wake:
			if t.steered() {
				return preempted
			}
		}
	}
}

// pause waits for d.
func (t *mockTurn) pause(d time.Duration, stream bool) mockEnd {
	over := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	return t.wait(over, stream)
}

// finish ends the turn; false if a steer has come that must be heard first.
func (t *mockTurn) finish(end mockEnd) bool {
	m, th := t.m, t.th
	m.mu.Lock()
	if end == goOn && len(t.steers) > 0 {
		m.mu.Unlock()
		return false
	}
	if t.stopped {
		end = interrupted
	}
	t.stopped = true
	if th.active == t {
		th.active = nil
	}
	answer := t.answer
	t.rec.Status = map[mockEnd]string{goOn: "completed", interrupted: "interrupted", failed: "failed"}[end]
	t.rec.Error, t.rec.Completed = t.err, time.Now().Unix()
	rec := *t.rec
	rec.Items = slices.Clone(rec.Items)
	m.mu.Unlock()
	m.keep(th, mockRecord{Turn: &rec})
	if t.patch != "" && end != interrupted {
		t.diff()
	}
	if m.old() && end == interrupted {
		t.killShells()
	}
	if m.tellsEvents() && end == interrupted {
		t.event("turn_aborted", map[string]any{"turn_id": t.id, "reason": "interrupted"})
	}
	for _, id := range answer {
		m.peer.reply(id, struct{}{})
	}
	if m.tellsEvents() && end != interrupted {
		t.event("task_complete", map[string]any{"turn_id": t.id, "last_agent_message": mockNull(stringField(t.final, "text"))})
	}
	if end != interrupted && !t.mute {
		t.readStateChanged()
	}
	items := []json.RawMessage{}
	if end == goOn && t.final != nil && !m.old() {
		items = append(items, t.final)
	}
	if end != failed {
		t.setStatus("idle")
	}
	t.tell("turn/completed", map[string]any{"turn": t.view(rec.Status, items, true)})
	for _, f := range t.after {
		f()
	}
	close(t.over)
	return true
}

// readStateChanged is 0.169's unread mark.
func (t *mockTurn) readStateChanged() {
	t.m.mu.Lock()
	experimental := t.m.client.experimental
	t.m.mu.Unlock()
	if t.m.new() && experimental {
		t.tell("thread/readState/changed", map[string]any{"readState": t.m.readState(t.th)})
	}
}

// view is the Turn object.
func (t *mockTurn) view(status string, items []json.RawMessage, started bool) map[string]any {
	v := t.m.turnView(t.id, status, items, t.err)
	if !t.m.old() {
		if started {
			v["startedAt"] = t.begun.Unix()
		}
		if status != "inProgress" {
			v["completedAt"], v["durationMs"] = time.Now().Unix(), time.Since(t.begun).Milliseconds()
		}
		if len(items) > 0 {
			v["itemsView"] = "summary"
		}
	}
	return v
}

func (m *mockServer) turnView(id, status string, items []json.RawMessage, err any) map[string]any {
	v := map[string]any{"id": id, "items": items, "status": status, "error": err}
	if !m.old() {
		v["itemsView"], v["startedAt"], v["completedAt"], v["durationMs"] = "notLoaded", nil, nil, nil
	}
	if m.new() {
		v["rootTurnId"] = id
	}
	return v
}
