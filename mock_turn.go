package main

// mock_turn.go owns the requests about the mock Codex's turns: turn/start on an
// idle and on a busy thread, steer and interrupt, as each version answers them;
// mock_action.go has compaction and review. mock.go dispatches to it on the reading goroutine; mock_run.go
// runs what it starts. It must never wait for a turn.

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// mockTurnRecord is what history keeps of a turn.
type mockTurnRecord struct {
	ID        string            `json:"id"`
	Root      string            `json:"root,omitempty"` // of what was done in a review: the turn in which it stands
	Status    string            `json:"status"`
	Error     any               `json:"error"`
	Items     []json.RawMessage `json:"items"`
	Texts     []string          `json:"texts"` // what the user said
	Started   int64             `json:"started"`
	Completed int64             `json:"completed"`
}

// mockEnd says why a turn, or one step of it, goes no further.
type mockEnd int

const (
	goOn        mockEnd = iota // it does go on
	interrupted                // turn/interrupt, or an approval was cancelled
	failed                     // an error was shown
	preempted                  // a steer came; the rest of the prompt is dropped
	gone                       // the process ends, or the turn never will
)

// mockTurn is one running turn. Its goroutine owns the last group of fields.
type mockTurn struct {
	m     *mockServer
	th    *mockThread
	id    string
	begun time.Time
	stop  chan struct{} // closed by interrupt
	wake  chan struct{} // a steer has come
	over  chan struct{} // closed when it has ended
	inner string        // of a review from 0.148 on: the id by which it is interrupted

	// mockServer.mu guards these
	stopped bool
	answer  []json.RawMessage // ids of turn/interrupt requests, answered at the end
	steers  []json.RawMessage // inputs that wait
	deaf    bool              // IGNORE_INTERRUPT
	stalled bool              // STALL

	mute     bool            // nobody says anything in it: a compaction
	review   bool            // its model speaks to nobody but Codex
	input    json.RawMessage // of the prompt that it does
	settings mockSettings
	extra    []string // developer texts of this turn alone
	rec      *mockTurnRecord
	last     string          // what the last tool told the model
	toolLast bool            // the model must still answer to it
	said     bool            // it has spoken since the last user message
	final    json.RawMessage // the last agentMessage
	usage    int
	after    []func()   // what comes behind turn/completed
	patch    string     // the turn's diff so far
	change   mockChange // of the patch that is being made
	err      any
}

func (m *mockServer) turnStart(msg *message) {
	if !m.checkWords(msg) {
		return
	}
	input, ok := m.input(msg)
	if !ok {
		return
	}
	th := m.loaded(msg)
	if th == nil {
		return
	}
	m.mu.Lock()
	active := th.active
	m.mu.Unlock()
	if active != nil && m.joinActive(msg, active, input) {
		return
	}
	t := m.newTurn(th)
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return
	}
	m.turns.Add(1)
	changed := m.override(th, msg.params)
	t.settings = th.Settings
	th.active, th.used = t, true
	th.turns = append(th.turns, t.rec)
	if th.Preview == "" {
		th.Preview = mockText(input)
	}
	state := th.mockThreadState
	m.mu.Unlock()
	t.extra = m.turnDeveloper(msg.params)
	t.heed(t.steps(mockText(input)))
	m.keep(th, mockRecord{Thread: &state})
	m.keep(th, mockRecord{Turn: t.rec})
	m.settingsChanged(th, changed)
	if !m.old() {
		t.warn()
	}
	m.mu.Lock()
	mute := m.drop["mute turn/start"] > 0
	if mute {
		m.drop["mute turn/start"]--
	}
	m.mu.Unlock()
	if !mute {
		m.peer.reply(msg.id, map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, false)})
	}
	go t.run(input) // ends with the turn or the process; turns counts it
}

// joinActive is turn/start on a busy thread: 0.148 and later steer the active
// turn and answer with its id; 0.104 invents an id that never completes.
func (m *mockServer) joinActive(msg *message, active *mockTurn, input json.RawMessage) bool {
	answer := active
	if m.old() {
		answer = &mockTurn{m: m, th: active.th, id: newMockID()}
	}
	view := map[string]any{"turn": answer.view("inProgress", []json.RawMessage{}, false)}
	if !active.steer(input, func() { m.peer.reply(msg.id, view) }) {
		return false // it has just ended
	}
	if m.old() {
		view["threadId"] = active.th.ID
		m.tell(active.th, "turn/started", view)
	}
	return true
}

// override makes a turn's settings the thread's: they stick. mu is held.
func (m *mockServer) override(th *mockThread, params json.RawMessage) (changed bool) {
	s, before, byDefault := &th.Settings, string(toJSON(th.Settings)), th.byDefault
	s.Cwd = cmp.Or(stringField(params, "cwd"), s.Cwd)
	s.Model = cmp.Or(stringField(params, "model"), s.Model)
	s.Effort = cmp.Or(stringField(params, "effort"), s.Effort)
	if a := rawField(params, "approvalPolicy"); !isNull(a) {
		s.Approval = a
	}
	if p := rawField(params, "sandboxPolicy"); !isNull(p) {
		s.Sandbox, th.byDefault = m.sandboxPolicy(stringField(p, "type"), p, nil), false
	}
	return before != string(toJSON(*s)) || byDefault != th.byDefault
}

// turnDeveloper are the developer texts that go with one turn.
func (m *mockServer) turnDeveloper(params json.RawMessage) []string {
	var texts []string
	if d := stringField(params, "collaborationMode", "settings", "developer_instructions"); d != "" {
		texts = append(texts, "<collaboration_mode>"+d+"</collaboration_mode>")
	}
	if extra := rawField(params, "additionalContext"); !m.old() && extra != nil {
		_ = eachField(extra, func(key string, val json.RawMessage) bool { // not an object: no context
			if stringField(val, "kind") == "application" {
				texts = append(texts, "<"+key+">"+stringField(val, "value")+"</"+key+">")
			}
			return true
		})
	}
	return texts
}

// input reads params.input; false means that the request was refused.
func (m *mockServer) input(msg *message) (json.RawMessage, bool) {
	input := rawField(msg.params, "input")
	switch {
	case rawField(msg.params, "threadId") == nil:
		m.refuse(msg, "Invalid request: missing field `threadId`")
	case input == nil:
		m.refuse(msg, "Invalid request: missing field `input`")
	case rawKind(input) != '[':
		m.refuse(msg, "Invalid request: invalid type: expected a sequence")
	default:
		if m.new() && mockRemoteImage(input) {
			m.refuse(msg, "remote image URLs are not supported; use an inline data URL instead")
			return nil, false
		}
		if n := utf8.RuneCountInString(mockText(input)); n > 1<<20 && m.new() {
			m.peer.replyError(msg.id, &rpcError{Code: codeInvalidParams, Message: "Input exceeds the maximum length of 1048576 characters.",
				Data: toJSON(map[string]any{"input_error_code": "input_too_large", "max_chars": 1 << 20, "actual_chars": n})})
			return nil, false
		}
		return input, true
	}
	return nil, false
}

func mockRemoteImage(input json.RawMessage) (remote bool) {
	eachElement(input, func(p json.RawMessage) {
		remote = remote || stringField(p, "type") == "image" && !strings.HasPrefix(stringField(p, "url"), "data:")
	})
	return remote
}

// mockText is what the texts of an input say.
func mockText(input json.RawMessage) string {
	var parts []json.RawMessage
	_ = json.Unmarshal(input, &parts) // callers have seen that it is an array
	var texts []string
	for _, p := range parts {
		if stringField(p, "type") == "text" {
			texts = append(texts, stringField(p, "text"))
		}
	}
	return strings.Join(texts, "\n")
}

func (m *mockServer) turnSteer(msg *message) {
	input, ok := m.input(msg)
	if !ok {
		return
	}
	th := m.loaded(msg)
	if th == nil {
		return
	}
	m.mu.Lock()
	t := th.active
	m.mu.Unlock()
	expected := stringField(msg.params, "expectedTurnId")
	switch {
	case t == nil:
		m.refuse(msg, "no active turn to steer")
	case t.id != expected:
		m.refuse(msg, "expected active turn id `"+expected+"` but found `"+t.id+"`")
	case !t.steer(input, func() { m.peer.reply(msg.id, map[string]any{"turnId": t.id}) }):
		m.refuse(msg, "no active turn to steer")
	}
}

// steer queues an input, and answers before anything can come of it; false if the
// turn takes none any more.
func (t *mockTurn) steer(input json.RawMessage, answer func()) bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if t.th.active != t || t.stopped {
		return false
	}
	answer()
	t.steers = append(t.steers, input)
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return true
}

// turnInterrupt: up to 0.157 nothing active means no answer, ever; 0.104
// doesn't look at the id; "" is whatever is active.
func (m *mockServer) turnInterrupt(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	id := stringField(msg.params, "turnId")
	m.mu.Lock()
	defer m.mu.Unlock()
	t := th.active
	active := ""
	if t != nil {
		active = cmp.Or(t.inner, t.id)
	}
	switch {
	case t == nil && m.new():
		m.refuse(msg, "no active turn to interrupt")
	case t == nil || t.stopped && m.old():
	case id != active && id != "" && !m.old():
		m.refuse(msg, "expected active turn id "+id+" but found "+active)
	case t.deaf:
		m.peer.reply(msg.id, struct{}{})
	case t.stalled || t.stopped:
		m.peer.reply(msg.id, struct{}{})
		t.interruptLocked(nil)
	default:
		t.interruptLocked(msg.id)
	}
}

// interruptLocked stops the turn; its goroutine answers id as it ends.
func (t *mockTurn) interruptLocked(id json.RawMessage) {
	if id != nil {
		t.answer = append(t.answer, id)
	}
	if !t.stopped {
		t.stopped = true
		close(t.stop)
	}
}
