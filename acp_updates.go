package main

// acp_updates.go owns the encoder: the events of one session in, the updates of ACP's session/update out, in their
// order, with text that is joined while the client's output waits. acp_session.go makes one for a live session and one
// for each session/load, whose past comes as the same events. It is pure but for the files of a patch and one timer. It
// must never wait, let an update overtake the text before it, nor tell anything of a turn after that turn's end.

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// acpEncoding is what an encoder needs to know of its session.
type acpEncoding struct {
	Cwd    string
	Client *acpClient // what the client takes
	Replay bool       // the past is told: the user's words too, all at once
	// Send takes one update object and keeps nothing of it. It is called under
	// the encoder's lock, so it must not call the encoder. false: it was dropped.
	Send    func(update []byte) bool
	Crowded func() bool // output waits, so deltas are joined
}

const (
	maxTurnsKnown = 64  // how many turns that are over have their late events known
	maxWarned     = 15  // how many warnings are known, so as not to be told again
	maxSubagents  = 256 // how many subagents have their names known
)

// acpEncoder tells one session. Any goroutine may call it: the session's, that of a client's answer, its own timers'.
// So it sends under its lock: what one of them tells must not overtake what another was about to.
type acpEncoder struct {
	client *acpClient // what the client takes
	own    string     // what the ids of our own messages begin with

	mu       sync.Mutex // guards the fields below
	said     int        // how many messages of our own there were
	names    acpNames
	turns    acpTurns
	seen     acpSeen
	stream   acpStream
	messages acpMessages
	calls    acpCalls
	usage    [2]int64 // tokens in use and the size of the context, as last told
	warned   []string // the last warnings
	compacts string   // the compaction that runs, as the client knows it, "" for none
}

func newACPEncoder(o acpEncoding) *acpEncoder {
	if o.Crowded == nil || o.Replay {
		o.Crowded = func() bool { return false }
	}
	o.Client = cmp.Or(o.Client, &acpClient{})
	x := &acpEncoder{client: o.Client, own: "atm:" + rand.Text()[:12] + ":"}
	x.names = acpNames{cwd: o.Cwd, subagents: map[string]string{}}
	x.stream = acpStream{send: o.Send, crowded: o.Crowded, alarm: acpAlarm{ring: x.tellDue}}
	x.messages = acpMessages{acpStream: &x.stream, seen: &x.seen, names: &x.names, replay: o.Replay,
		seed: maphash.MakeSeed(), texts: map[acpTextKey]*acpText{}}
	x.calls = acpCalls{acpStream: &x.stream, seen: &x.seen, names: &x.names, replay: o.Replay,
		terminal: o.Client.terminal}
	return x
}

// event takes every event of the session, in order.
func (x *acpEncoder) event(a agentRef, e *event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setThread(a)
	own := e.thread == "" || x.names.thread == "" || e.thread == x.names.thread
	k := acpKey{cmp.Or(e.thread, x.names.thread), e.turn, e.item}
	switch e.kind {
	case evStarted:
		if own {
			x.turns.start(e.turn)
		}
	case evDelta:
		switch {
		case e.phase == "output":
			x.print(k, own, e.text)
		case own && x.turns.has(e.turn):
			x.calls.closeEarlier(k)
			x.messages.delta(k, e)
		}
		if x.stream.waits() && !e.more && !x.stream.crowded() {
			x.stream.flush() // what was to come behind the text was no more of it
		}
	case evItem:
		x.item(k, own, e)
	case evPlan:
		if own && x.turns.has(e.turn) {
			x.messages.planSteps(e)
		}
	case evUsage:
		if own && !slices.Contains(x.turns.over, e.turn) {
			x.tellUsage(e.usage)
		}
	case evNotice:
		if own && !slices.Contains(x.turns.over, e.turn) {
			x.tellNotice(e)
		}
	case evAsk:
		if t := x.calls.askedAbout(x.askKey(a, e.ask), e.ask); t != nil {
			x.calls.ask(t, e.ask)
		}
	case evAskGone:
		x.calls.withdraw(e.ask)
	case evTool:
		if x.turns.open && !x.isOver(k, own) {
			x.calls.toolCall(k, e.tool)
		}
	case evEnded:
		if own {
			x.takeEnd(e)
		}
	case evGone:
		why := "Codex is gone"
		if e.err != nil {
			why = e.err.Message
		}
		x.closeTurn(why, "failed")
	case evRaw:
		x.raw(k, own, e)
	case evOpened, evRefused, evServer:
	}
}

// setThread keeps which thread is the session's own: a session may get another one.
func (x *acpEncoder) setThread(a agentRef) {
	if a.Thread != "" {
		x.names.thread = a.Thread
	}
}

// isOver reports an item that may not be told any more, since its turn is over. A
// subagent has turns of its own: its open calls are told on.
func (x *acpEncoder) isOver(k acpKey, own bool) bool {
	if own {
		return !x.turns.has(k.turn)
	}
	return !x.turns.open && x.calls.find(k) == nil
}

// item has an item told as its kind says.
func (x *acpEncoder) item(k acpKey, own bool, e *event) {
	if e.item == "" || x.isOver(k, own) {
		return
	}
	x.calls.closeEarlier(k)
	if e.body.kind == "subAgentActivity" {
		x.names.learn(stringField(e.raw, "item", "agentThreadId"), path.Base(stringField(e.raw, "item", "agentPath")))
	}
	switch tell := itemKind(e.body.kind).message; {
	case own && e.body.kind == "contextCompaction" && x.client.compaction:
		x.compaction(k, e)
	case tell == nil:
		x.calls.item(k, e, x.turns.open)
	case own: // what a subagent says is said to the agent
		tell(&x.messages, k, e)
	}
}

// compaction tells that Codex shortens the history, to a client that has a place for that.
func (x *acpEncoder) compaction(k acpKey, e *event) {
	if x.messages.known(k) {
		return
	}
	update := acpCompaction{"compaction_update", x.seen.id(k), "in_progress", ""}
	if x.compacts = update.ID; e.phase == "completed" {
		update.Status, x.compacts = e.phase, ""
		x.seen.add(k)
	}
	x.stream.put(toJSON(update))
}

// acpCompaction is the update that tells of a compaction.
type acpCompaction struct {
	Update string `json:"sessionUpdate"` // "compaction_update"
	ID     string `json:"compactionId"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

// print adds text to the output of the item's call, if that is open.
func (x *acpEncoder) print(k acpKey, own bool, text string) {
	if t := x.calls.find(k); t != nil && !x.isOver(k, own) {
		x.calls.print(t, text)
	}
}

// raw takes what has no neutral meaning and is told all the same.
func (x *acpEncoder) raw(k acpKey, own bool, e *event) {
	switch e.method {
	case "turn/started":
		if own {
			x.turns.start(e.turn)
		}
	case "thread/started":
		if !own {
			name, _ := nicknameOf(e.raw)
			x.names.learn(e.thread, name)
		}
	case "item/reasoning/summaryPartAdded":
		if own && x.turns.has(e.turn) {
			x.messages.breakThought(k)
		}
	case "item/mcpToolCall/progress":
		x.print(k, own, stringField(e.raw, "message")+"\n")
	}
}

// tellUsage tells how full the context is.
func (x *acpEncoder) tellUsage(u *tokenUsage) {
	if now := [2]int64{max(0, u.Last), u.ContextWindow}; now[1] > 0 && now != x.usage {
		x.usage = now
		x.stream.put(fmt.Appendf(nil, `{"sessionUpdate":"usage_update","used":%d,"size":%d}`, now[0], now[1]))
	}
}

// tellNotice tells a warning, or that Codex tries again, where the client has a
// place for it: it is no part of the answer. An error of a turn is its outcome.
func (x *acpEncoder) tellNotice(e *event) {
	if !x.client.notices || e.text == "" || e.method == "error" && !e.retry {
		return
	}
	n := acpNotice{Update: "notice", Severity: "warning", Title: clip(visible(strings.TrimSpace(e.text)), 120)}
	switch {
	case e.retry:
		n.Severity, n.Title, n.More = "info", "Codex tries again", e.text
	case slices.Contains(x.warned, n.Title):
		return // Codex says some with every turn
	case n.Title != e.text:
		n.More = e.text
	}
	if !e.retry {
		x.warned = append(x.warned[max(0, len(x.warned)-maxWarned):], n.Title)
	}
	n.More = cappedText(n.More)
	if n.Title != "" {
		x.stream.put(toJSON(n))
	}
}

// acpNotice is the update that tells what is no part of the answer.
type acpNotice struct {
	Update   string `json:"sessionUpdate"` // "notice"
	Severity string `json:"severity"`
	Title    string `json:"title"`
	More     string `json:"description,omitempty"`
}

// takeEnd takes the end of a turn of the session's own thread.
func (x *acpEncoder) takeEnd(e *event) {
	if e.turn != "" && !slices.Contains(x.turns.ids, e.turn) {
		x.turns.addOver(e.turn) // it never began here, or is over
		return
	}
	switch {
	case e.status == "interrupted":
		x.closeTurn("interrupted", e.status)
	case e.status == "failed" && e.err != nil:
		x.closeTurn("The turn failed: "+e.err.Message, e.status)
	default:
		x.closeTurn("The turn ended before this did.", "completed")
	}
}

// endTurn closes what is open, as failed and for a reason where there is one. Nothing of the turn is told after it.
func (x *acpEncoder) endTurn(why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeTurn(why, "interrupted")
}

// closeTurn closes what is open; status is the turn's.
func (x *acpEncoder) closeTurn(why, status string) {
	x.messages.endTurn()
	x.calls.closeAll(why, status == "completed")
	if x.compacts != "" {
		end := acpCompaction{"compaction_update", x.compacts, "failed", why}
		if status == "interrupted" {
			end.Status, end.Error = "cancelled", ""
		}
		x.stream.put(toJSON(end))
		x.compacts = ""
	}
	x.stream.thought = false
	x.turns.end()
	x.seen.forgetTurns(x.names.thread)
	x.stream.alarm.stop()
}

// tellDue tells what is due: text that was joined, calls that nobody asked about,
// output that has grown. The alarm calls it.
func (x *acpEncoder) tellDue() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.stream.alarm.rang() {
		return
	}
	now := time.Now()
	x.stream.flush()
	x.calls.tellDue(now)
}

// say tells words of our own as the agent's, or as the user's what the agent was sent
// that the client doesn't know: mail.
func (x *acpEncoder) say(kind, s string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.said++
	x.stream.say(kind, fmt.Sprint(x.own, x.said), s)
}

// tellOwn tells of something of our own that has happened, as a tool call.
func (x *acpEncoder) tellOwn(title, status, text string) {
	id, _ := x.askOwn(clipChars(visible(title), maxCallTitle), "other", "")
	x.endOwn(id, status, "", text)
}

// askOwn tells of a question of our own, as a tool call, and returns the call for session/request_permission.
func (x *acpEncoder) askOwn(title, kind, about string) (id string, call json.RawMessage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.said++
	u := acpCallUpdate{Update: callNew, ID: fmt.Sprint(x.own, x.said), Title: title, Kind: kind, Status: callPending,
		Content: addText(nil, about)}
	x.calls.update(u)
	u.Update = ""
	return u.ID, toJSON(u)
}

// endOwn tells how such a question was answered.
func (x *acpEncoder) endOwn(id, status, about, words string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	content := addText(addText(nil, about), words)
	x.calls.update(acpCallUpdate{Update: callNews, ID: id, Status: status, Content: content})
}

func (x *acpEncoder) askKey(a agentRef, q *approval) acpKey {
	k := acpKey{cmp.Or(q.thread, a.Thread), q.turn, q.item}
	if k.item == "" {
		k.item = "ask-" + q.id
	}
	return k
}

// announce makes sure that the tool call of an approval is announced, and returns it for session/request_permission.
func (x *acpEncoder) announce(a agentRef, q *approval) json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setThread(a)
	if q.subagent != nil {
		x.names.learn(q.thread, q.subagent.name)
	}
	return x.calls.announceAsk(x.askKey(a, q), q)
}

// decide tells how an approval was decided.
func (x *acpEncoder) decide(q *approval, d decision, why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls.decide(q, d, why)
}

// acpTurns are the turns of the session's own thread.
type acpTurns struct {
	open bool     // a turn runs
	ids  []string // the ids of the turn that runs: a review has two
	over []string // the ids of turns that are over, the last maxTurnsKnown
}

// start opens a turn. A turn that is told while one runs is that one under a
// second name: review/start answers with another id than turn/started tells.
func (t *acpTurns) start(turn string) {
	if turn == "" && t.open || slices.Contains(t.ids, turn) || turn != "" && slices.Contains(t.over, turn) {
		return
	}
	t.open = true
	t.ids = append(t.ids, turn)
}

// has reports what belongs to the turn that runs.
func (t *acpTurns) has(turn string) bool {
	switch {
	case !t.open:
		return false
	case turn == "" || turn == t.ids[0]:
		return true
	case slices.Contains(t.over, turn):
		return false
	case !slices.Contains(t.ids, turn) && len(t.ids) < maxTurnsKnown:
		t.ids = append(t.ids, turn)
	}
	return true
}

// end ends the turn that runs.
func (t *acpTurns) end() {
	for _, turn := range t.ids {
		t.addOver(turn)
	}
	t.open, t.ids = false, nil
}

// addOver keeps the id of a turn whose late events are dropped.
func (t *acpTurns) addOver(turn string) {
	if turn == "" || slices.Contains(t.over, turn) {
		return
	}
	if len(t.over) == maxTurnsKnown {
		t.over = slices.Delete(t.over, 0, 1)
	}
	t.over = append(t.over, turn)
}

const (
	// acpGrace is the longest that joined text waits.
	acpGrace = 20 * time.Millisecond
	// maxChunk is how many bytes of text one update takes.
	maxChunk = 1 << 20
	// maxJoined is how many bytes may be joined while the client's output waits.
	maxJoined = 64 << 10
)

const (
	agentChunk   = "agent_message_chunk"
	thoughtChunk = "agent_thought_chunk"
	userChunk    = "user_message_chunk"
)

// acpStream sends the updates of one encoder in their order. The encoder's lock guards it.
type acpStream struct {
	send    func(update []byte) bool
	crowded func() bool // output waits for the client, so text is joined
	alarm   acpAlarm

	chunk   string // the kind of the chunk that is open, "" before the first
	buf     []byte // the open chunk as far as it is written, empty while none is open
	head    int    // where in buf the text begins that hasn't been sent
	thought bool   // the last update was a thought
}

// put sends one update, behind the text before it.
func (o *acpStream) put(update []byte) {
	o.flush()
	o.send(update)
	o.thought = false
}

// openChunk makes the chunk that addText goes on with.
func (o *acpStream) openChunk(kind, id string) {
	o.flush()
	o.chunk = kind
	o.buf = appendChunkHead(o.buf[:0], kind, id)
	o.head = len(o.buf)
}

func (o *acpStream) closeChunk() {
	o.flush()
	o.buf, o.head = o.buf[:0], 0
}

// waits reports text that hasn't been sent.
func (o *acpStream) waits() bool { return len(o.buf) > o.head }

// addText adds a delta to the open chunk, and keeps it a moment while output waits or more of the text is here already.
func (o *acpStream) addText(e *event, paragraph bool) {
	waits := o.waits()
	if paragraph {
		o.buf = append(o.buf, `\n\n`...)
	}
	if n := len(e.delta); n > 2 && cleanJSON(e.delta) {
		o.buf = append(o.buf, e.delta[1:n-1]...)
	} else {
		o.buf = appendInside(o.buf, e.text)
	}
	switch {
	case len(o.buf)-o.head >= maxJoined || !e.more && !o.crowded():
		o.flush()
	case !waits:
		o.alarm.wakeAt(time.Now().Add(acpGrace))
	}
}

// flush sends the text that waits.
func (o *acpStream) flush() {
	if !o.waits() {
		return
	}
	o.buf = append(o.buf, `"}}`...)
	o.send(o.buf)
	o.thought = o.chunk == thoughtChunk
	o.buf = o.buf[:o.head]
	if cap(o.buf) > 4*maxJoined { // one huge delta must not stay
		o.buf = append(make([]byte, 0, 4<<10), o.buf...)
	}
}

// say tells a whole text under an id.
func (o *acpStream) say(kind, id, text string) {
	for text != "" {
		n := min(len(text), maxChunk)
		for n < len(text) && n > maxChunk-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		b := appendInside(appendChunkHead(nil, kind, id), text[:n])
		o.put(append(b, `"}}`...))
		o.thought = kind == thoughtChunk
		text = text[n:]
	}
}

// appendChunkHead begins a chunk up to where its text goes.
func appendChunkHead(b []byte, kind, id string) []byte {
	b = append(append(append(b, `{"sessionUpdate":"`...), kind...), '"')
	b = appendJSONString(append(b, `,"messageId":`...), id)
	return append(b, `,"content":{"type":"text","text":"`...)
}

// appendInside is appendJSONString without the quotes.
func appendInside(b []byte, s string) []byte {
	from := len(b)
	b = appendJSONString(b, s)
	return b[:from+copy(b[from:], b[from+1:len(b)-1])]
}

// acpAlarm is the one timer of an encoder, set for whatever is due first.
type acpAlarm struct {
	ring  func() // called on the timer's goroutine
	timer *time.Timer
	due   time.Time // zero: not set
}

// wakeAt sets the timer for a time, unless the timer goes off before.
func (a *acpAlarm) wakeAt(at time.Time) {
	if !a.due.IsZero() && !at.Before(a.due) {
		return
	}
	a.due = at
	if d := time.Until(at); a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
}

// rang takes the timer as gone off; false: it was stopped meanwhile.
func (a *acpAlarm) rang() bool {
	if a.due.IsZero() {
		return false
	}
	a.due = time.Time{}
	return true
}

func (a *acpAlarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.due = time.Time{}
}
