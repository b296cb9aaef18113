package main

// mock_turn.go owns the mock Codex's turns: the requests about them, the goroutine that does what a prompt says, hears
// steers and ends, and how a turn is shown: items and their deltas, token counts, errors, what the model says.
// mock_work.go has what a prompt can say. Requests run on the reading goroutine and must never wait; a turn must leave
// every wait when it is stopped or the process ends.

import (
	"cmp"
	"encoding/json"
	"maps"
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
	m     *mockServer
	th    *mockThread
	id    string
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
	rec      *mockTurnRecord
	last     string          // what the last tool told the model
	toolLast bool            // the model must still answer to last
	said     bool            // the model has spoken since the last user message
	final    json.RawMessage // the last agentMessage
	usage    int             // tokens of one model request
	after    []func()        // what comes behind turn/completed
	patch    string          // the turn's diff so far
	shown    map[string]any  // the item that was started last
	err      any
}

// newTurn makes a turn of a thread. The caller begins it.
func (m *mockServer) newTurn(th *mockThread) *mockTurn {
	t := &mockTurn{m: m, th: th, id: newMockID(), begun: time.Now(), stop: make(chan struct{}),
		wake: make(chan struct{}, 1), usage: 100, settings: th.Settings}
	t.rec = &mockTurnRecord{ID: t.id, Status: "inProgress", Started: t.begun.Unix(), Items: []json.RawMessage{}}
	return t
}

func (m *mockServer) turnStart(msg *message, th *mockThread) {
	input, ok := m.input(msg)
	if !ok {
		return
	}
	t := m.newTurn(th)
	changed, begun := t.begin(mockText(input), msg.params)
	if !begun {
		return
	}
	t.keepBegun()
	m.settingsChanged(th, changed)
	m.reply(msg, map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, false)})
	go t.run(slices.Clone(input)) // ends with the turn or the process; turns counts it
}

// begin makes t the thread's turn, under the settings that params change. Unless the process ends, turns counts the
// turn from here on.
func (t *mockTurn) begin(preview string, params json.RawMessage) (changed, begun bool) {
	m, th := t.m, t.th
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false, false
	}
	m.turns.Add(1)
	changed = m.override(th, params)
	t.settings = th.Settings
	th.active, th.used = t, true
	th.turns = append(th.turns, t.rec)
	th.Preview = cmp.Or(th.Preview, preview)
	return changed, true
}

// keepBegun writes the turn, and what it has changed of its thread, into the history.
func (t *mockTurn) keepBegun() {
	t.m.mu.Lock()
	state := t.th.mockThreadState
	t.m.mu.Unlock()
	t.m.keep(t.th, mockRecord{Thread: &state})
	t.m.keep(t.th, mockRecord{Turn: t.rec})
}

// occupy makes t the thread's turn and has run carry it out.
func (t *mockTurn) occupy(preview string, run func()) {
	if _, begun := t.begin(preview, nil); begun {
		go func() { // ends with the turn or the process; turns counts it
			defer t.m.turns.Done()
			t.keepBegun()
			run()
		}()
	}
}

// threadCompact is a turn without a prompt.
func (m *mockServer) threadCompact(msg *message, th *mockThread) {
	m.reply(msg, struct{}{})
	t := m.newTurn(th)
	t.mute = true
	t.occupy("", func() {
		t.compact()
		t.close(goOn)
	})
}

func (t *mockTurn) compact() {
	t.setStatus("active")
	t.tell("turn/started", map[string]any{"turn": t.view("inProgress", []json.RawMessage{}, true)})
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

func (m *mockServer) turnSteer(msg *message, th *mockThread) {
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

// turnInterrupt: the id "" is whatever is active.
func (m *mockServer) turnInterrupt(msg *message, th *mockThread) {
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

func (t *mockTurn) pause(d time.Duration, stream bool) mockEnd {
	over := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	return t.wait(over, stream)
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

// item makes an item with the fields that every item of its type has.
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

// toolAnswered tells the model what a tool answered: one more model request.
func (t *mockTurn) toolAnswered(text string) mockEnd {
	t.last, t.toolLast = text, true
	t.counts()
	return goOn
}

func (t *mockTurn) outputDelta(id, text string) {
	t.tell("item/commandExecution/outputDelta", map[string]any{"itemId": id, "delta": text})
}

// diff shows what the turn has changed. The real Codex shows it more than once too.
func (t *mockTurn) diff() { t.tell("turn/diff/updated", map[string]any{"diff": t.patch}) }
