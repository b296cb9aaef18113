package main

// mock_turn.go owns the mock Codex's turns: turn/start, steer and interrupt as
// each version answers them, the goroutine of a running turn, the directives
// of its prompt, its end. mock.go dispatches the requests; mock_item.go shows
// the items, mock_exec.go and mock_chaos.go do the directives' work. A turn's
// goroutine must leave every wait when the turn is stopped or the process ends.

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// mockTurnRecord is what history keeps of a turn.
type mockTurnRecord struct {
	ID        string            `json:"id"`
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

	// mockServer.mu guards these
	stopped bool
	answer  []json.RawMessage // ids of turn/interrupt requests, answered at the end
	steers  []json.RawMessage // inputs that wait
	deaf    bool              // IGNORE_INTERRUPT
	stalled bool              // STALL

	settings mockSettings
	extra    []string // developer texts of this turn alone
	rec      *mockTurnRecord
	last     string          // what the last tool told the model
	toolLast bool            // the model must still answer to it
	said     bool            // it has spoken since the last user message
	final    json.RawMessage // the last agentMessage
	usage    int
	after    []func() // what comes behind turn/completed
	patch    string   // the turn's diff so far
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
	t := &mockTurn{m: m, th: th, id: newMockID(), begun: time.Now(), stop: make(chan struct{}), wake: make(chan struct{}, 1), usage: 100}
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return
	}
	m.turns.Add(1)
	before := th.Settings
	m.override(th, msg.params)
	t.settings = th.Settings
	th.active, th.used = t, true
	t.rec = &mockTurnRecord{ID: t.id, Status: "inProgress", Started: t.begun.Unix(), Items: []json.RawMessage{}}
	th.turns = append(th.turns, t.rec)
	if th.Preview == "" {
		th.Preview = mockText(input)
	}
	state := th.mockThreadState
	m.mu.Unlock()
	t.extra = m.turnDeveloper(msg.params)
	m.keep(th, mockRecord{Thread: &state})
	m.keep(th, mockRecord{Turn: t.rec})
	if m.new() && string(toJSON(before)) != string(toJSON(t.settings)) {
		m.tell(th, "thread/settings/updated", map[string]any{"threadId": th.ID, "threadSettings": t.settings})
	}
	if !m.old() {
		t.warn()
	}
	m.peer.reply(msg.id, map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, false)})
	go t.run(input) // ends with the turn or the process; turns counts it
}

// joinActive is turn/start on a busy thread: 0.148 and later steer the active
// turn and answer with its id; 0.104 invents an id that never completes.
func (m *mockServer) joinActive(msg *message, active *mockTurn, input json.RawMessage) bool {
	if !active.steer(input) {
		return false // it has just ended
	}
	if !m.old() {
		m.peer.reply(msg.id, map[string]any{"turn": active.view("inProgress", []json.RawMessage{}, false)})
		return true
	}
	ghost := &mockTurn{m: m, th: active.th, id: newMockID()}
	view := map[string]any{"turn": ghost.view("inProgress", []json.RawMessage{}, false)}
	m.peer.reply(msg.id, view)
	view["threadId"] = active.th.ID
	m.tell(active.th, "turn/started", view)
	return true
}

// override makes a turn's settings the thread's: they stick. mu is held.
func (m *mockServer) override(th *mockThread, params json.RawMessage) {
	s := &th.Settings
	s.Cwd = cmp.Or(stringField(params, "cwd"), s.Cwd)
	s.Model = cmp.Or(stringField(params, "model"), s.Model)
	s.Effort = cmp.Or(stringField(params, "effort"), s.Effort)
	if a := rawField(params, "approvalPolicy"); !isNull(a) {
		s.Approval = a
	}
	if p := rawField(params, "sandboxPolicy"); !isNull(p) {
		s.Sandbox = m.sandboxPolicy(stringField(p, "type"), p, nil)
	}
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
		if n := utf8.RuneCountInString(mockText(input)); n > 1<<20 && m.new() {
			m.peer.replyError(msg.id, &rpcError{Code: codeInvalidParams, Message: "Input exceeds the maximum length of 1048576 characters.",
				Data: toJSON(map[string]any{"input_error_code": "input_too_large", "max_chars": 1 << 20, "actual_chars": n})})
			return nil, false
		}
		return input, true
	}
	return nil, false
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
	case !t.steer(input):
		m.refuse(msg, "no active turn to steer")
	default:
		m.peer.reply(msg.id, map[string]any{"turnId": t.id})
	}
}

// steer queues an input; false if the turn takes none any more.
func (t *mockTurn) steer(input json.RawMessage) bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if t.th.active != t || t.stopped {
		return false
	}
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
	switch {
	case t == nil && m.new():
		m.refuse(msg, "no active turn to interrupt")
	case t == nil || t.stopped && m.old():
	case id != t.id && id != "" && !m.old():
		m.refuse(msg, "expected active turn id "+id+" but found "+t.id)
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

// run is the turn's goroutine.
func (t *mockTurn) run(input json.RawMessage) {
	defer t.m.turns.Done()
	t.setStatus("active")
	t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, true)})
	if t.m.old() {
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
// context block before them, don't count.
func mockSteps(prompt string) []mockStep {
	known := mockDirectives()
	var steps []mockStep
	for _, line := range strings.Split(prompt, "\n") {
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
	t.userMessage(input, text)
	steps := mockSteps(text)
	for _, s := range steps {
		if n, err := strconv.Atoi(s.arg); s.word == "USAGE" && err == nil {
			t.usage = n
		}
	}
	t.last, t.toolLast, t.said = "", false, false
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
	th.active = nil
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
		t.event("turn_aborted", map[string]any{"turn_id": t.id, "reason": "interrupted"})
	}
	for _, id := range answer {
		m.peer.reply(id, struct{}{})
	}
	if m.old() && end != interrupted {
		t.event("task_complete", map[string]any{"turn_id": t.id, "last_agent_message": mockNull(stringField(t.final, "text"))})
	}
	m.mu.Lock()
	experimental := m.client.experimental
	m.mu.Unlock()
	if m.new() && experimental && end != interrupted {
		t.tell("thread/readState/changed", map[string]any{"readState": m.readState(th)})
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
	return true
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

// threadCompact is a turn without a prompt. 0.104 leaves turn/started out.
func (m *mockServer) threadCompact(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	t := &mockTurn{m: m, th: th, id: newMockID(), begun: time.Now(), stop: make(chan struct{}), wake: make(chan struct{}, 1), usage: 100, settings: th.Settings}
	m.mu.Lock()
	busy := th.active != nil || m.ended
	if !busy {
		m.turns.Add(1)
		t.rec = &mockTurnRecord{ID: t.id, Status: "inProgress", Started: t.begun.Unix(), Items: []json.RawMessage{}}
		th.active, th.turns = t, append(th.turns, t.rec)
	}
	m.mu.Unlock()
	m.peer.reply(msg.id, struct{}{})
	if busy {
		return
	}
	go func() { // ends by itself; turns counts it
		defer m.turns.Done()
		if !m.old() {
			t.setStatus("active")
			t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, true)})
		}
		item := t.item("contextCompaction", newMockID(), nil)
		t.started(item)
		t.completed(item)
		if m.old() {
			t.tell("thread/compacted", map[string]any{})
		} else {
			t.counts()
		}
		for !t.finish(goOn) { // nobody talks to a compaction
			t.nextSteer()
		}
	}()
}
