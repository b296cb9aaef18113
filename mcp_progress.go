package main

// mcp_progress.go owns what a client is told while a turn runs. notifications/progress says in a few words what the
// agent is doing, often enough that a client's idle timer never fires (nothing else resets Claude Code's) and seldom
// enough to cost nothing. `codex/event` (FR-19) is what the child said, unchanged, with the agent's id in _meta. mcp.go
// calls this file for every event, on the child's reading goroutine: so raw values are copied and none is decoded.
// Never may it send progress of a call that was answered or cancelled, nor change, merge or leave out what the child
// said.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	progressGap   = time.Second      // at least this long between two
	progressBeat  = 10 * time.Second // at most this long
	progressWords = 120              // characters of a message
)

// progress tells what goes on in one call whose client gave a token. A nil one does nothing.
type progress struct {
	send func(n int, text string)

	mu      sync.Mutex // guards the fields below
	n       int        // notifications so far
	text    string     // what goes on
	since   time.Time  // when text became what it is
	changed bool       // text was not sent yet
	last    time.Time  // when a notification was sent
	timer   *time.Timer
	started bool          // the turn runs
	look    func() string // says what goes on, for a call without a turn of its own
	ended   bool          // nothing may be sent any more
}

// newProgress begins with the first beat. token is a string or a number and goes back as it came.
func newProgress(p *peer, token json.RawMessage) *progress {
	g := &progress{since: time.Now(), text: "waiting for its turn"}
	g.send = func(n int, text string) {
		p.put(p.request(nil, "notifications/progress", struct {
			Token   json.RawMessage `json:"progressToken"`
			N       int             `json:"progress"`
			Message string          `json:"message"`
		}{token, n, text}), dropLast)
	}
	g.mu.Lock()
	g.timer = time.AfterFunc(progressBeat, g.beat)
	g.mu.Unlock()
	return g
}

// note takes what an event says of the agent's doing.
func (g *progress) note(a agentRef, e *event) {
	if g == nil {
		return
	}
	text := activityOf(a, e)
	start := e.kind == evStarted
	if text == "" && !start {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	now := time.Now()
	if text != g.text {
		g.text, g.since, g.changed = text, now, true
	}
	switch {
	case start && !g.started:
		g.started = true
		g.sendLocked(now) // as the turn starts, whatever was before
	case !g.changed:
	case now.Sub(g.last) >= progressGap:
		g.sendLocked(now)
	default:
		g.timer.Reset(progressGap - now.Sub(g.last))
	}
}

// watch makes every beat look at what goes on, for a call that gets no events.
func (g *progress) watch(look func() string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look, g.text = look, "waiting"
	g.timer.Reset(progressGap)
}

// beat is the timer: something changed a moment ago, or nothing did for long.
func (g *progress) beat() {
	g.mu.Lock()
	look := g.look
	g.mu.Unlock()
	seen := ""
	if look != nil {
		seen = look() // without the lock: look takes others
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if seen != "" && seen != g.text {
		g.text, g.since = seen, time.Now()
	}
	if !g.ended {
		g.sendLocked(time.Now())
	}
}

// sendLocked queues one notification while g.mu is held, so that no notification can follow end. Queueing never blocks.
func (g *progress) sendLocked(now time.Time) {
	g.n++
	text := g.text
	if d := now.Sub(g.since); d >= progressBeat {
		text += fmt.Sprintf(" (%s)", d.Round(time.Second))
	}
	g.send(g.n, text)
	g.last, g.changed = now, false
	g.timer.Reset(progressBeat)
}

// end stops the progress for good.
func (g *progress) end() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.ended = true
	g.timer.Stop()
	g.mu.Unlock()
}

// activityOf says in words what an event shows the agent doing, "" for an event that tells nothing of that.
func activityOf(a agentRef, e *event) string {
	text := doing(e)
	if text != "" && e.thread != "" && a.Thread != "" && e.thread != a.Thread {
		return "a subagent is " + text
	}
	return clipChars(text, progressWords)
}

func doing(e *event) string {
	switch e.kind {
	case evStarted:
		return "thinking"
	case evDelta:
		switch e.phase {
		case "answer":
			return "writing the answer"
		case "reasoning":
			return "thinking"
		}
	case evItem:
		return doingItem(e.body, e.phase == "started")
	case evNotice:
		if e.phase == startingCodex {
			return e.phase
		}
		if e.retry {
			return "retrying: " + oneLine(clipChars(e.text, 400))
		}
	case evAsk:
		if e.ask.kind == askQuestion {
			return "waiting for an answer to its question"
		}
		return "waiting for approval of " + quoted(e.ask.action)
	case evAskGone:
		return "thinking"
	case evTool:
		return "calling " + e.tool.name
	case evOpened, evSteered, evRefused, evPlan, evDiff, evUsage, evEnded, evRaw, evGone:
	}
	return ""
}

// doingItem says what an item that has started or ended leaves the agent doing.
func doingItem(b *itemBody, started bool) string {
	switch {
	case b == nil, b.kind == "agentMessage" && (!started || b.phase == "commentary"):
		return ""
	case !started && b.words() != "":
		return "thinking"
	}
	return b.words()
}

// quoted shows a command on one line.
func quoted(s string) string { return "`" + clipChars(oneLine(clipChars(s, 400)), 80) + "`" }

// fromChild reports whether the event is one of the child's own words. The drivers also make events of answers to our
// calls, which have no method, and of mcp-server's elicitations, beside which mcp-server says an event.
func fromChild(e *event) bool { return e.method != "" && e.method != "elicitation/create" }

// appendCodexEvent appends the notification for an event of the agent. request is the id of the caller's request, nil
// where nobody waits. codex mcp-server has such notifications itself; of what app-server says, msg is the params with
// the method as type.
func appendCodexEvent(b []byte, n *names, a agentRef, request json.RawMessage, e *event) []byte {
	b = append(b, `{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{`...)
	if request != nil {
		b = append(append(append(b, `"requestId":`...), request...), ',')
	}
	// A subagent's event keeps the subagent's thread.
	b = appendJSONString(append(b, `"threadId":`...), cmp.Or(e.thread, a.Thread))
	b = append(appendJSONString(append(b, ','), n.word("agent_id")), ':')
	b = append(appendJSONString(b, a.AgentID), '}')
	if e.method == mcpNote {
		_ = eachField(e.raw, func(key string, val json.RawMessage) bool {
			if key != "_meta" { // that has the id of our own request, and the thread, which stands there already
				b = append(append(appendJSONString(append(b, ','), key), ':'), val...)
			}
			return true
		})
		return append(b, `}}`...)
	}
	b = appendJSONString(append(b, `,"id":`...), e.turn)
	b = appendTyped(append(b, `,"msg":`...), e.method, e.raw)
	return append(b, `}}`...)
}

// appendTyped appends params as they came, with a type in front. Params that
// are no object, or have a type of their own, stand whole under the key params.
func appendTyped(b []byte, typ string, params json.RawMessage) []byte {
	b = appendJSONString(append(b, `{"type":`...), typ)
	fields, isObject := bytes.CutPrefix(params, []byte("{"))
	fields = bytes.TrimLeft(fields, " \t\r\n")
	switch {
	case params == nil:
	case !isObject || rawField(params, "type") != nil:
		b = append(append(b, `,"params":`...), params...)
	case !bytes.HasPrefix(fields, []byte("}")):
		return append(append(b, ','), fields...) // the brace that closes params closes msg
	}
	return append(b, '}')
}
