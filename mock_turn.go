package main

// mock_turn.go owns the mock Codex's turns: the requests about them, and the
// goroutine that does what a prompt says, hears steers and ends. mock_item.go shows
// a turn, mock_work.go has what it does. Requests run on the reading goroutine and
// must never wait; a turn must leave every wait when it is stopped or the process
// ends.

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// mockTurnRecord is what history keeps of a turn.
type mockTurnRecord struct {
	ID        string            `json:"id"`
	Root      string            `json:"root,omitempty"` // of a turn within another one: the outer's id
	Status    string            `json:"status"`
	Error     any               `json:"error"`
	Items     []json.RawMessage `json:"items"`
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
	over  chan struct{} // closed when the turn has ended

	// mockServer.mu guards these
	stopped bool
	answer  []json.RawMessage // ids of turn/interrupt requests, answered at the end
	steers  []json.RawMessage // inputs that wait

	mute     bool            // nobody says anything in it: a compaction
	params   json.RawMessage // of turn/start
	input    json.RawMessage // of the prompt that is done
	settings mockSettings
	rec      *mockTurnRecord
	last     string          // what the last tool told the model
	toolLast bool            // the model must still answer to that
	said     bool            // the model has spoken since the last user message
	final    json.RawMessage // the last agentMessage
	usage    int             // tokens of one model request
	after    []func()        // what comes behind turn/completed
	patch    string          // the turn's diff so far
	shown    map[string]any  // the item that was started last
	err      any
}

// newTurn is a turn of a thread that nothing has begun yet.
func (m *mockServer) newTurn(th *mockThread) *mockTurn {
	t := &mockTurn{m: m, th: th, id: newMockID(), begun: time.Now(), stop: make(chan struct{}),
		wake: make(chan struct{}, 1), over: make(chan struct{}),
		usage: 100, settings: th.Settings}
	t.rec = &mockTurnRecord{ID: t.id, Status: "inProgress", Started: t.begun.Unix(), Items: []json.RawMessage{}}
	return t
}

func (m *mockServer) turnStart(msg *message) {
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
	if active != nil { // the turn takes it as a steer and answers with its id
		view := map[string]any{"turn": active.view("inProgress", []json.RawMessage{}, false)}
		if active.steer(input, func() { m.peer.reply(msg.id, view) }) {
			return
		}
	}
	t := m.newTurn(th)
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return
	}
	m.turns.Add(1)
	changed := m.override(th, msg.params)
	t.settings, t.params = th.Settings, slices.Clone(msg.params)
	th.active, th.used = t, true
	th.turns = append(th.turns, t.rec)
	th.Preview = cmp.Or(th.Preview, mockText(input))
	state := th.mockThreadState
	m.mu.Unlock()
	m.keep(th, mockRecord{Thread: &state})
	m.keep(th, mockRecord{Turn: t.rec})
	m.settingsChanged(th, changed)
	m.reply(msg, map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, false)})
	go t.run(slices.Clone(input)) // ends with the turn or the process; turns counts it
}

// occupy makes t the thread's turn and runs it. What ran is interrupted, and run
// waits for its end.
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
	m.turns.Go(func() { // ends with the turn or the process
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
	})
}

// threadCompact is a turn without a prompt; the compact_prompt of the thread's
// configuration says what it does.
func (m *mockServer) threadCompact(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	m.reply(msg, struct{}{})
	t := m.newTurn(th)
	t.mute = true
	t.occupy("", func() { t.close(t.compact()) })
}

func (t *mockTurn) compact() mockEnd {
	t.setStatus("active")
	t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, true)})
	if end := t.check(); end != goOn {
		return end
	}
	item := t.item("contextCompaction", newMockID(), nil)
	t.started(item)
	for _, s := range t.mockSteps(mockString(t.th.config, "compact_prompt")) {
		if end := t.m.directives[s.word](t, s.arg); end != goOn {
			return end
		}
	}
	t.showCounts(0)
	t.counts()
	t.showCounts(t.usage)
	t.completed(item)
	return goOn
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
		return input, true
	}
	return nil, false
}

// mockText is what the texts of an input say.
func mockText(input json.RawMessage) string {
	var texts []string
	eachElement(input, func(p json.RawMessage) {
		if stringField(p, "type") == "text" {
			texts = append(texts, stringField(p, "text"))
		}
	})
	return strings.Join(texts, "\n")
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
	t.steers = append(t.steers, slices.Clone(input))
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return true
}

// turnInterrupt: the id "" is whatever is active.
func (m *mockServer) turnInterrupt(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	id := stringField(msg.params, "turnId")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch t := th.active; {
	case t == nil:
		m.refuse(msg, "no active turn to interrupt")
	case id != t.id && id != "":
		m.refuse(msg, "expected active turn id "+id+" but found "+t.id)
	case t.stopped:
		m.peer.reply(msg.id, struct{}{})
	default:
		t.interruptLocked(msg.id)
	}
}

// interruptLocked stops the turn; its goroutine answers id as it ends.
func (t *mockTurn) interruptLocked(id json.RawMessage) {
	if id != nil {
		t.answer = append(t.answer, slices.Clone(id))
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

// mockSteps are a text's directives. Lines that begin with none, such as a
// context block before them, don't count, nor what was said in the past.
func (t *mockTurn) mockSteps(text string) []mockStep {
	var steps []mockStep
	past := false
	for _, line := range strings.Split(text, "\n") {
		past = strings.HasPrefix(line, "[Previous session") || past && line != "[End of previous session]"
		if past {
			continue
		}
		word, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		if t.m.directives[word] != nil {
			steps = append(steps, mockStep{word, strings.TrimSpace(arg)})
		}
	}
	return steps
}

// steps are a prompt's directives; one without any is answered by saying what it
// was and what the mock is.
func (t *mockTurn) steps(prompt string) []mockStep {
	if steps := t.mockSteps(prompt); steps != nil {
		return steps
	}
	asked := []rune(strings.TrimSpace(prompt))
	return []mockStep{{"SAY", "This is the built-in mock of Codex, there is no model behind it. You said: " + string(asked[:min(len(asked), 400)]) +
		"\n\nLines that begin with SAY text, SLOW ms text, REASON text, SHELL command, SHELLESC command, PATCH file text or HANG are done."}}
}

// prompt shows one user message and does what it says.
func (t *mockTurn) prompt(input json.RawMessage) mockEnd {
	t.input = input
	steps := t.m.steps(t, mockText(input))
	t.userMessage(input)
	t.last, t.toolLast, t.said = "", false, false
	for i, s := range steps {
		if end := t.m.directives[s.word](t, s.arg); end != goOn {
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
// too where the model's stream can be preempted.
func (t *mockTurn) wait(ready <-chan struct{}, stream bool) mockEnd {
	wake := t.wake
	if !stream || t.m.patient {
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
	for _, id := range answer {
		m.peer.reply(id, struct{}{})
	}
	if end != interrupted && !t.mute {
		t.tell("thread/readState/changed", map[string]any{"readState": m.readState(th)})
	}
	items := []json.RawMessage{}
	if end == goOn && t.final != nil {
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

// close ends a turn that nobody steers.
func (t *mockTurn) close(end mockEnd) {
	if end == gone {
		return
	}
	for !t.finish(end) {
		t.nextSteer()
	}
}

// view is the Turn object.
func (t *mockTurn) view(status string, items []json.RawMessage, started bool) map[string]any {
	v := mockTurnView(t.id, status, items, t.err)
	if started {
		v["startedAt"] = t.begun.Unix()
	}
	if status != "inProgress" {
		v["completedAt"], v["durationMs"] = time.Now().Unix(), time.Since(t.begun).Milliseconds()
	}
	if len(items) > 0 {
		v["itemsView"] = "summary"
	}
	return v
}

func mockTurnView(id, status string, items []json.RawMessage, err any) map[string]any {
	return map[string]any{"id": id, "items": items, "status": status, "error": err, "rootTurnId": id,
		"itemsView": "notLoaded", "startedAt": nil, "completedAt": nil, "durationMs": nil}
}
