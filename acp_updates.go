package main

// acp_updates.go owns the encoder: the events of one session in, the updates of
// ACP's session/update out, in their order. acp_session.go makes one for a live
// session and one for each session/load, whose past comes as the same events.
// It is pure but for the files of a patch and timers of its own. It must never
// wait, and after a turn's end it must never tell anything of that turn.

import (
	"cmp"
	"crypto/rand"
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

// maxTurnsKnown are the turns that are over and whose late events are known.
const maxTurnsKnown = 64

// maxWarned are the warnings that aren't told again.
const maxWarned = 15

// maxSubagents whose names are known.
const maxSubagents = 256

// acpEncoder tells one session. Any goroutine may call it: the session's, that
// of a client's answer, its own timers'. So it sends under its lock: what one
// of them tells must not overtake what another was about to.
type acpEncoder struct {
	o    acpEncoding
	seed maphash.Seed
	own  string // begins the ids of our own messages

	mu     sync.Mutex // guards the fields below
	said   int        // own messages
	thread string     // the session's own
	names  map[string]string

	open  bool     // a turn runs
	turns []string // its ids: of a review it has two
	over  []string // ids of turns that are over

	talk    *acpText // the message that deltas go to
	texts   map[acpTextKey]*acpText
	buf     []byte // its update, open, with the text that waits
	head    int    // where that text begins
	waiting bool   // a timer is set for it
	thought bool   // the last update was a thought
	review  string // what the turn's review found

	tools  map[acpKey]*acpTool
	order  []*acpTool // as they were announced
	asked  map[string]*acpTool
	closed acpSeen

	plan      acpOutput
	planDirty bool
	planNext  time.Time

	usage  [2]int64 // as last told
	warned []string // the last warnings

	timer *time.Timer
	due   time.Time // zero: not set
}

func newACPEncoder(o acpEncoding) *acpEncoder {
	if o.Crowded == nil || o.Replay {
		o.Crowded = func() bool { return false }
	}
	return &acpEncoder{o: o, seed: maphash.MakeSeed(), own: "atm:" + rand.Text()[:12] + ":", names: map[string]string{},
		texts: map[acpTextKey]*acpText{}, tools: map[acpKey]*acpTool{}, asked: map[string]*acpTool{}}
}

// event takes every event of the session, in order.
func (x *acpEncoder) event(a agentRef, e *event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.meet(a)
	own := e.thread == "" || x.thread == "" || e.thread == x.thread
	k := acpKey{cmp.Or(e.thread, x.thread), e.turn, e.item}
	switch e.kind {
	case evStarted:
		if own {
			x.begins(e.turn)
		}
	case evDelta:
		switch {
		case e.phase == "output":
			if t := x.tools[k]; t != nil && !x.isOver(k, own) {
				x.prints(t, e.text)
			}
		case own && x.mine(e.turn):
			x.moves(k)
			x.delta(k, e)
		}
		if x.waiting && !e.more && !x.o.Crowded() {
			x.flush() // what was to come behind the text was no more of it
		}
	case evItem:
		x.item(k, own, e)
	case evPlan:
		if own && x.mine(e.turn) {
			x.planned(e)
		}
	case evUsage:
		if own && e.usage != nil && !slices.Contains(x.over, e.turn) {
			x.used(e.usage)
		}
	case evNotice:
		if own && !slices.Contains(x.over, e.turn) {
			x.noticed(e)
		}
	case evAsk:
		if t := x.asksFor(x.askKey(a, e.ask), e.ask); t != nil {
			x.waitsFor(t, e.ask)
		}
	case evAskGone:
		if t := x.asked[e.ask.id]; t != nil {
			delete(x.asked, e.ask.id)
			t.asks--
		}
	case evTool:
		x.called(k, own, e)
	case evEnded:
		if own {
			x.ends(e)
		}
	case evGone:
		why := "Codex is gone"
		if e.err != nil {
			why = e.err.Message
		}
		x.end(why, false)
	case evRaw:
		x.raw(k, own, e)
	case evOpened, evRefused, evDiff, evSubthread, evServer:
	}
}

// meet takes the session's own thread; it may get another one, or a name.
func (x *acpEncoder) meet(a agentRef) {
	if a.Thread != "" {
		x.thread = a.Thread
	}
}

// begins opens a turn. A turn that is told while one runs is that one under a
// second name: review/start answers with another id than turn/started tells.
func (x *acpEncoder) begins(turn string) {
	if turn == "" && x.open || slices.Contains(x.turns, turn) || turn != "" && slices.Contains(x.over, turn) {
		return
	}
	x.open = true
	x.turns = append(x.turns, turn)
}

// mine reports what belongs to the turn that runs.
func (x *acpEncoder) mine(turn string) bool {
	switch {
	case !x.open:
		return false
	case turn == "" || turn == x.turns[0]:
		return true
	case slices.Contains(x.over, turn):
		return false
	case !slices.Contains(x.turns, turn) && len(x.turns) < maxTurnsKnown:
		x.turns = append(x.turns, turn)
	}
	return true
}

// isOver reports what may not be told any more; a subagent has turns of its own.
func (x *acpEncoder) isOver(k acpKey, own bool) bool {
	if own {
		return !x.mine(k.turn)
	}
	return !x.open && x.tools[k] == nil
}

func (x *acpEncoder) item(k acpKey, own bool, e *event) {
	if e.body == nil || e.item == "" || x.isOver(k, own) {
		return
	}
	x.moves(k)
	switch e.body.kind {
	case "userMessage", "agentMessage", "reasoning", "plan", "enteredReviewMode", "exitedReviewMode":
		if !own {
			return // what a subagent says is said to the agent
		}
	case "subAgentActivity":
		x.knows(stringField(e.raw, "item", "agentThreadId"), path.Base(stringField(e.raw, "item", "agentPath")))
	}
	switch e.body.kind {
	case "userMessage":
		x.userItem(k, e)
	case "agentMessage":
		x.message(k, e)
	case "reasoning":
		x.reasoning(k, e)
	case "plan":
		x.planItem(e)
	case "enteredReviewMode", "exitedReviewMode":
		x.reviews(k, e)
	default:
		x.toolItem(k, e)
	}
}

// called: the agent calls one of the session's tools. From 0.148 on that is an
// item too; of 0.104's calls only this is known, and that the turn goes on.
func (x *acpEncoder) called(k acpKey, own bool, e *event) {
	if e.tool == nil || x.tools[k] != nil || x.closed.times[k] > 0 || !x.open || x.isOver(k, own) {
		return
	}
	f, _ := x.face(&itemBody{kind: "dynamicToolCall", tool: e.tool.name, arguments: e.tool.args}, nil, false)
	t := x.begin(k, x.owned(k, f), false)
	t.loose = true
	x.runs(t)
}

// moves: a turn that goes on with another item has the answers to its calls.
func (x *acpEncoder) moves(k acpKey) {
	for i := 0; i < len(x.order); i++ {
		if t := x.order[i]; t.loose && t.key.thread == k.thread && t.key.item != k.item {
			x.close(t, callDone, nil, nil)
			i--
		}
	}
}

// raw takes what has no neutral meaning and is told all the same.
func (x *acpEncoder) raw(k acpKey, own bool, e *event) {
	switch e.method {
	case "turn/started":
		if own {
			x.begins(e.turn)
		}
	case "thread/started":
		if !own {
			name, _ := nicknameOf(e.raw)
			x.knows(e.thread, name)
		}
	case "item/reasoning/summaryPartAdded":
		if own && x.mine(e.turn) {
			x.partBegins(k)
		}
	case "item/plan/delta":
		if own && x.mine(e.turn) {
			x.planDelta(e)
		}
	case "item/mcpToolCall/progress":
		if t := x.tools[k]; t != nil && !x.isOver(k, own) {
			x.prints(t, stringField(e.raw, "message")+"\n")
		}
	}
}

// used tells how full the context is.
func (x *acpEncoder) used(u *tokenUsage) {
	if now := [2]int64{max(0, u.Last), u.ContextWindow}; now[1] > 0 && now != x.usage {
		x.usage = now
		x.put(fmt.Appendf(nil, `{"sessionUpdate":"usage_update","used":%d,"size":%d}`, now[0], now[1]))
	}
}

// noticed tells a warning, or that Codex tries again, where the client has a
// place for it: it is no part of the answer. An error of a turn is its outcome.
func (x *acpEncoder) noticed(e *event) {
	if !x.o.Notices || e.text == "" || e.method == "error" && !e.retry {
		return
	}
	n := struct {
		Update   string `json:"sessionUpdate"`
		Severity string `json:"severity"`
		Title    string `json:"title"`
		More     string `json:"description,omitempty"`
	}{"notice", "warning", clip(visible(strings.TrimSpace(e.text)), 120), ""}
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
		x.put(toJSON(n))
	}
}

// ends takes the end of a turn of the session's own thread.
func (x *acpEncoder) ends(e *event) {
	if e.turn != "" && !slices.Contains(x.turns, e.turn) {
		x.isPast(e.turn) // it never began here, or is over
		return
	}
	switch {
	case e.status == "interrupted":
		x.end("interrupted", false)
	case e.status == "failed" && e.err != nil:
		x.end("The turn failed: "+e.err.Message, false)
	default:
		x.end("The turn ended before this did.", true)
	}
}

// turnEnds closes what is open, as failed and for a reason where there is one.
// Nothing of the turn is told after it.
func (x *acpEncoder) turnEnds(why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.end(why, false)
}

func (x *acpEncoder) end(why string, completed bool) {
	x.flush()
	if x.planDirty {
		x.planText(time.Now(), x.plan.text(), "pending")
	}
	x.closeAll(why, completed)
	x.dropText()
	clear(x.texts)
	x.plan, x.planNext, x.review, x.thought = acpOutput{}, time.Time{}, "", false
	for _, turn := range x.turns {
		x.isPast(turn)
	}
	x.open, x.turns = false, nil
	x.closed.turnEnds(x.thread)
	x.sleep()
}

// isPast keeps the id of a turn whose late events are dropped.
func (x *acpEncoder) isPast(turn string) {
	if turn == "" || slices.Contains(x.over, turn) {
		return
	}
	if len(x.over) == maxTurnsKnown {
		x.over = slices.Delete(x.over, 0, 1)
	}
	x.over = append(x.over, turn)
}

// put sends one update, behind the text before it.
func (x *acpEncoder) put(update []byte) {
	x.flush()
	x.o.Send(update)
	x.thought = false
}

// soon is when something is due that no event may follow; never in a replay.
func (x *acpEncoder) soon(d time.Duration) time.Time {
	if x.o.Replay {
		return time.Time{}
	}
	at := time.Now().Add(d)
	x.wakeAt(at)
	return at
}

// wakeAt sets the timer, unless it goes off before.
func (x *acpEncoder) wakeAt(at time.Time) {
	if !x.due.IsZero() && !at.Before(x.due) {
		return
	}
	x.due = at
	if d := time.Until(at); x.timer == nil {
		x.timer = time.AfterFunc(d, x.tick)
	} else {
		x.timer.Reset(d)
	}
}

func (x *acpEncoder) sleep() {
	if x.timer != nil {
		x.timer.Stop()
	}
	x.due, x.waiting = time.Time{}, false
}

// tick does what is due: text that was joined, calls that nobody asked about,
// output and plans that have grown.
func (x *acpEncoder) tick() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.due.IsZero() {
		return
	}
	now := time.Now()
	x.due = time.Time{}
	x.flush()
	crowded := x.o.Crowded()
	for _, t := range x.order {
		if !t.running.IsZero() && !t.running.After(now) {
			if t.running = (time.Time{}); t.asks == 0 && t.denied == "" {
				x.runs(t)
			}
		}
		if t.dirty && !t.next.After(now) {
			if crowded { // the next one tells the same and more
				t.next = now.Add(acpPace)
			} else {
				x.printed(t, now)
			}
		}
		if !t.running.IsZero() {
			x.wakeAt(t.running)
		}
		if t.dirty {
			x.wakeAt(t.next)
		}
	}
	if x.planDirty {
		if !x.planNext.After(now) && !crowded {
			x.planText(now, x.plan.text(), "in_progress")
		} else {
			x.planNext = later(x.planNext, now.Add(acpGrace))
			x.wakeAt(x.planNext)
		}
	}
}
