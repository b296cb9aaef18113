package main

// mock_turn.go owns the mock Codex's turns: the requests about them, and the goroutine that does what a prompt says,
// hears steers and ends. mock_work.go has what a prompt can say, mock_shown.go how a turn is shown. Requests run on the
// reading goroutine and must never wait; a turn must leave every wait when it is stopped or the process ends.

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
	Status    string            `json:"status"`
	Error     any               `json:"error"`
	Items     []json.RawMessage `json:"items"`
	Started   int64             `json:"started"`
	Completed int64             `json:"completed"`
}

// mockEnd says how a step of a turn ended: whether the turn goes on, and if not, why.
type mockEnd int

const (
	goOn        mockEnd = iota // the turn goes on
	interrupted                // by turn/interrupt, or because an approval was cancelled
	failed                     // an error was shown
	preempted                  // a steer came, and the rest of the prompt is dropped
	gone                       // the process ends, or the turn never will
)

// mockTurn is one running turn. The turn's goroutine owns the last group of fields.
type mockTurn struct {
	mockShown
	begun time.Time
	stop  chan struct{} // closed by interrupt
	wake  chan struct{} // a steer has come

	// mockServer.mu guards these
	stopped bool
	answer  []json.RawMessage // ids of turn/interrupt requests, answered at the end
	steers  []json.RawMessage // inputs that came while the turn ran, and wait

	mute     bool            // a compaction: nobody says anything in the turn
	input    json.RawMessage // of the prompt that is being done
	settings mockSettings
	after    []func() // what comes behind turn/completed
	err      any
}

// newTurn makes a turn of a thread. The caller begins it.
func (th *mockThread) newTurn() *mockTurn {
	t := &mockTurn{mockShown: mockShown{m: th.m, th: th, id: newMockID(), usage: 100}, begun: time.Now(),
		stop: make(chan struct{}), wake: make(chan struct{}, 1), settings: th.Settings}
	t.rec = &mockTurnRecord{ID: t.id, Status: "inProgress", Started: t.begun.Unix(), Items: []json.RawMessage{}}
	return t
}

func (th *mockThread) startTurn(msg *message) {
	input, ok := th.m.input(msg)
	if !ok {
		return
	}
	t := th.newTurn()
	if !t.begin(mockText(input), msg.params) {
		return
	}
	t.keepBegun()
	th.m.reply(msg, map[string]any{"turn": t.view("inProgress", []json.RawMessage{})})
	go t.run(slices.Clone(input)) // ends with the turn or the process; turns counts it
}

// begin makes t the thread's turn, under the settings that params change. Unless the process ends (false), turns counts
// the turn from here on.
func (t *mockTurn) begin(preview string, params json.RawMessage) bool {
	m, th := t.m, t.th
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false
	}
	m.turns.Add(1)
	th.override(params)
	t.settings = th.Settings
	th.active, th.used = t, true
	th.turns = append(th.turns, t.rec)
	th.Preview = cmp.Or(th.Preview, preview)
	return true
}

// keepBegun writes the turn, and what it has changed of its thread, into the history.
func (t *mockTurn) keepBegun() {
	t.m.mu.Lock()
	state := t.th.mockThreadState
	t.m.mu.Unlock()
	t.th.keep(mockRecord{Thread: &state})
	t.th.keep(mockRecord{Turn: t.rec})
}

// occupy makes t the thread's turn and has run carry it out.
func (t *mockTurn) occupy(preview string, run func()) {
	if t.begin(preview, nil) {
		go func() { // ends with the turn or the process; turns counts it
			defer t.m.turns.Done()
			t.keepBegun()
			run()
		}()
	}
}

// compact is a turn without a prompt.
func (th *mockThread) compact(msg *message) {
	th.m.reply(msg, struct{}{})
	t := th.newTurn()
	t.mute = true
	t.occupy("", func() {
		t.compact()
		t.close(goOn)
	})
}

func (t *mockTurn) compact() {
	t.setStatus("active")
	t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{})})
	item := t.item("contextCompaction", newMockID(), nil)
	t.started(item)
	t.showCounts(0)
	t.counts()
	t.showCounts(t.usage)
	t.completed(item)
}

// input reads params.input; false means that the request was refused.
func (m *mockServer) input(msg *message) (json.RawMessage, bool) {
	input := rawField(msg.params, "input")
	if input == nil {
		m.refuse(msg, "Invalid request: missing field `input`")
	}
	return input, input != nil
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

// steer queues an input, and calls answer before anything can come of the input; false if the turn takes no input any
// more.
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

func (th *mockThread) steerTurn(msg *message) {
	m := th.m
	input, ok := m.input(msg)
	if !ok {
		return
	}
	m.mu.Lock()
	active := th.active
	m.mu.Unlock()
	if active == nil || stringField(msg.params, "expectedTurnId") != active.id ||
		!active.steer(input, func() { m.reply(msg, map[string]any{"turnId": active.id}) }) {
		m.refuse(msg, "no active turn to steer")
	}
}

// interruptTurn: the id "" is whatever is active.
func (th *mockThread) interruptTurn(msg *message) {
	m := th.m
	id := stringField(msg.params, "turnId")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch t := th.active; {
	case t == nil || id != t.id && id != "":
		m.refuse(msg, "no active turn to interrupt")
	case t.stopped:
		m.peer.reply(msg.id, struct{}{})
	default:
		t.interruptLocked(msg.id)
	}
}

// interruptLocked stops the turn. The turn's goroutine answers the request id as the turn ends.
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
	t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{})})
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
		input = t.nextSteer() // which came while the turn ended
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

type mockStep struct{ word, arg string }

// mockSteps are a text's directives. Lines that begin with no directive, such as those of a context block, don't count,
// nor those of a previous session.
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

// steps are a prompt's directives. A prompt without any is answered with what it was and what the mock is.
func (t *mockTurn) steps(prompt string) []mockStep {
	if steps := t.mockSteps(prompt); steps != nil {
		return steps
	}
	asked := []rune(strings.TrimSpace(prompt))
	return []mockStep{{"SAY", "This is the built-in mock of Codex, there is no model behind it. You said: " +
		string(asked[:min(len(asked), 400)]) + "\n\nLines that begin with SAY text, SLOW ms text, REASON text, " +
		"SHELL command, SHELLESC command, PATCH file text or HANG are done."}}
}

// prompt shows one user message and does what it says.
func (t *mockTurn) prompt(input json.RawMessage) mockEnd {
	t.input = input
	steps := t.m.steps(t, mockText(input))
	t.userMessage(input)
	t.last, t.toolLast, t.said = "", false, false
	for _, s := range steps {
		if end := t.m.directives[s.word](t, s.arg); end != goOn {
			return end
		}
		if end := t.check(); end != goOn {
			return end
		}
		if t.steered() {
			return preempted
		}
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

// wait waits for ready, an interrupt or the end of the process; with stream, where a steer cuts the model's stream off,
// also for a steer.
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

// pause is a wait in the model's stream.
func (t *mockTurn) pause(d time.Duration) mockEnd {
	over := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	return t.wait(over, true)
}

// finish ends the turn; false if a steer has come that the turn must hear first.
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
	th.keep(mockRecord{Turn: &rec})
	if t.patch != "" && end != interrupted {
		t.diff()
	}
	for _, id := range answer {
		m.peer.reply(id, struct{}{})
	}
	items := []json.RawMessage{}
	if end == goOn && t.final != nil {
		items = append(items, t.final)
	}
	if end != failed {
		t.setStatus("idle")
	}
	t.tell("turn/completed", map[string]any{"turn": t.view(rec.Status, items)})
	for _, f := range t.after {
		f()
	}
	return true
}

// close ends a turn that takes no steers: those that came are dropped.
func (t *mockTurn) close(end mockEnd) {
	if end == gone {
		return
	}
	for !t.finish(end) {
		t.nextSteer()
	}
}

func (t *mockTurn) view(status string, items []json.RawMessage) map[string]any {
	return mockTurnView(t.id, status, items, t.err)
}

func mockTurnView(id, status string, items []json.RawMessage, err any) map[string]any {
	return map[string]any{"id": id, "items": items, "status": status, "error": err}
}
