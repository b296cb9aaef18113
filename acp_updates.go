package main

// acp_updates.go owns the encoder: the events of one session in, the updates of
// ACP's session/update out, in their order. acp_session.go makes one for a live
// session and one for each session/load, whose past comes as the same events.
// It is pure but for the files of a patch and timers of its own. It must never
// wait, and after a turn's end it must never tell anything of that turn.

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
)

// acpEncoding is what an encoder needs to know of its session.
type acpEncoding struct {
	Cwd     string
	Notices bool // the client takes notices
	Replay  bool // the past is told: the user's words too, all at once
	// Send takes one update object and keeps nothing of it. It is called under
	// the encoder's lock, so it must not call the encoder. false: it was dropped.
	Send    func(update []byte) bool
	Crowded func() bool // output waits, so deltas are joined
}

const (
	maxTurnsKnown = 64  // turns that are over and whose late events are known
	maxWarned     = 15  // warnings that aren't told again
	maxSubagents  = 256 // whose names are known
)

// acpEncoder tells one session. Any goroutine may call it: the session's, that
// of a client's answer, its own timers'. So it sends under its lock: what one
// of them tells must not overtake what another was about to.
type acpEncoder struct {
	notices bool   // the client takes notices
	own     string // begins the ids of our own messages

	mu       sync.Mutex // guards the fields below
	said     int        // our own messages so far
	names    acpNames
	turns    acpTurns
	seen     acpSeen
	stream   acpStream
	messages acpMessages
	calls    acpCalls
	usage    [2]int64 // tokens in use and the size of the context, as last told
	warned   []string // the last warnings
}

func newACPEncoder(o acpEncoding) *acpEncoder {
	if o.Crowded == nil || o.Replay {
		o.Crowded = func() bool { return false }
	}
	x := &acpEncoder{notices: o.Notices, own: "atm:" + rand.Text()[:12] + ":"}
	x.names = acpNames{cwd: o.Cwd, subagents: map[string]string{}}
	x.stream = acpStream{send: o.Send, crowded: o.Crowded, alarm: acpAlarm{ring: x.tellDue}}
	x.messages = acpMessages{acpStream: &x.stream, seen: &x.seen, names: &x.names, replay: o.Replay, seed: maphash.MakeSeed(), texts: map[acpTextKey]*acpText{}}
	x.calls = acpCalls{acpStream: &x.stream, seen: &x.seen, names: &x.names, replay: o.Replay, open: map[acpKey]*acpTool{}, asked: map[string]*acpTool{}}
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
		if own && e.usage != nil && !slices.Contains(x.turns.over, e.turn) {
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
		if e.tool != nil && x.turns.open && !x.isOver(k, own) {
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
		x.closeTurn(why, false)
	case evRaw:
		x.raw(k, own, e)
	case evOpened, evRefused, evServer:
	}
}

// setThread takes the session's own thread: it may get another one.
func (x *acpEncoder) setThread(a agentRef) {
	if a.Thread != "" {
		x.names.thread = a.Thread
	}
}

// isOver reports what may not be told any more; a subagent has turns of its own.
func (x *acpEncoder) isOver(k acpKey, own bool) bool {
	if own {
		return !x.turns.has(k.turn)
	}
	return !x.turns.open && x.calls.open[k] == nil
}

// item has an item told as its kind says.
func (x *acpEncoder) item(k acpKey, own bool, e *event) {
	if e.body == nil || e.item == "" || x.isOver(k, own) {
		return
	}
	x.calls.closeEarlier(k)
	if e.body.kind == "subAgentActivity" {
		x.names.learn(stringField(e.raw, "item", "agentThreadId"), path.Base(stringField(e.raw, "item", "agentPath")))
	}
	if tell := itemKind(e.body.kind).message; tell == nil {
		x.calls.item(k, e, x.turns.open)
	} else if own { // what a subagent says is said to the agent
		tell(&x.messages, k, e)
	}
}

// print adds to the output of a call.
func (x *acpEncoder) print(k acpKey, own bool, text string) {
	if t := x.calls.open[k]; t != nil && !x.isOver(k, own) {
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
	case "item/plan/delta":
		if own && x.turns.has(e.turn) {
			x.messages.planDelta(e)
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
	if !x.notices || e.text == "" || e.method == "error" && !e.retry {
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
		x.turns.isPast(e.turn) // it never began here, or is over
		return
	}
	switch {
	case e.status == "interrupted":
		x.closeTurn("interrupted", false)
	case e.status == "failed" && e.err != nil:
		x.closeTurn("The turn failed: "+e.err.Message, false)
	default:
		x.closeTurn("The turn ended before this did.", true)
	}
}

// endTurn closes what is open, as failed and for a reason where there is one.
// Nothing of the turn is told after it.
func (x *acpEncoder) endTurn(why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeTurn(why, false)
}

func (x *acpEncoder) closeTurn(why string, completed bool) {
	x.messages.endTurn()
	x.calls.closeAll(why, completed)
	x.stream.thought = false
	x.turns.end()
	x.seen.forgetTurns(x.names.thread)
	x.stream.alarm.stop()
}

// tellDue tells what is due: text that was joined, calls that nobody asked about,
// output and plans that have grown. The alarm calls it.
func (x *acpEncoder) tellDue() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.stream.alarm.rang() {
		return
	}
	now := time.Now()
	x.stream.flush()
	x.calls.tellDue(now)
	x.messages.tellDue(now)
}

// sayText tells words of our own as the agent's.
func (x *acpEncoder) sayText(s string) { x.sayOwn(agentChunk, s) }

// sayUserText tells what the agent was sent that the client doesn't know: mail.
func (x *acpEncoder) sayUserText(s string) { x.sayOwn(userChunk, s) }

func (x *acpEncoder) sayOwn(kind, s string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.said++
	x.stream.say(kind, fmt.Sprint(x.own, x.said), s)
}

// tellOwnCall tells of something of our own that has happened, as a tool call.
func (x *acpEncoder) tellOwnCall(id, title, status, text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls.tellWhole(acpKey{thread: x.own, item: id}, title, status, text)
}

func (x *acpEncoder) askKey(a agentRef, q *approval) acpKey {
	k := acpKey{cmp.Or(q.thread, a.Thread), q.turn, q.item}
	if k.item == "" {
		k.item = "ask-" + q.id
	}
	return k
}

// announce makes sure that the tool call of an approval is announced, and
// returns it for session/request_permission.
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
	ids  []string // that turn's: of a review it has two
	over []string // of turns that are over
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
		t.isPast(turn)
	}
	t.open, t.ids = false, nil
}

// isPast keeps the id of a turn whose late events are dropped.
func (t *acpTurns) isPast(turn string) {
	if turn == "" || slices.Contains(t.over, turn) {
		return
	}
	if len(t.over) == maxTurnsKnown {
		t.over = slices.Delete(t.over, 0, 1)
	}
	t.over = append(t.over, turn)
}
