package main

// mcp_progress.go owns the notifications/progress of one call: what its agent is
// doing, in a few words, often enough that a client's idle timer never fires
// (Claude Code resets it by nothing else) and seldom enough to cost nothing.
// mcp.go feeds it events and ends it. It must never send anything once the
// call was answered or cancelled.

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"
)

const (
	progressGap   = time.Second      // at least this long between two
	progressBeat  = 10 * time.Second // at most this long
	progressWords = 120              // runes of a message
)

// progress belongs to one call that gave a token. A nil one does nothing.
type progress struct {
	send  func(n int, text string)
	began time.Time

	mu      sync.Mutex // guards the fields below
	n       int
	text    string
	changed bool // text was not sent yet
	started bool // the turn runs
	last    time.Time
	since   time.Time // of text
	timer   *time.Timer
	look    func() string // says what goes on, for a call without a turn of its own
	ended   bool
}

// newProgress begins to beat. token is a string or a number and goes back as
// it came.
func newProgress(p *peer, token json.RawMessage) *progress {
	now := time.Now()
	g := &progress{began: now, since: now, text: "waiting for its turn"}
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
		seen = look() // without the lock: it takes others
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

// sendLocked queues one notification while g.mu is held, so that none can
// follow end. Queueing never blocks.
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

// end stops it for good.
func (g *progress) end() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.ended = true
	g.timer.Stop()
	g.mu.Unlock()
}

// activityOf says in words what an event shows the agent doing, "" if it
// changes nothing.
func activityOf(a agentRef, e *event) string {
	text := doing(e)
	if text != "" && e.thread != "" && a.Thread != "" && e.thread != a.Thread {
		return "a subagent is " + text
	}
	return shorten(text, progressWords)
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
		if e.body == nil {
			return ""
		}
		return doingItem(e.body, e.phase == "started")
	case evNotice:
		if e.phase == startingCodex {
			return e.phase
		}
		if e.retry {
			return "retrying: " + oneLine(shorten(e.text, 400))
		}
	case evAsk:
		if e.ask == nil {
			return ""
		}
		if e.ask.kind == askQuestion {
			return "waiting for an answer to its question"
		}
		return "waiting for approval of " + quoted(e.ask.action)
	case evAskGone:
		return "thinking"
	case evTool:
		if e.tool != nil {
			return "calling " + e.tool.name
		}
	case evOpened, evRefused, evPlan, evDiff, evUsage, evEnded, evSubthread, evRaw, evGone:
	}
	return ""
}

func doingItem(b *itemBody, started bool) string {
	switch b.kind {
	case "commandExecution":
		if started {
			return "running " + quoted(shownCommand(b.command))
		}
		return "thinking"
	case "fileChange":
		if !started {
			return "thinking"
		}
		if len(b.files) == 1 {
			return "editing " + path.Base(b.files[0].path)
		}
		return fmt.Sprintf("editing %d files", len(b.files))
	case "mcpToolCall", "dynamicToolCall":
		if !started {
			return "thinking"
		}
		return "calling " + strings.TrimPrefix(b.server+"/"+b.tool, "/")
	case "agentMessage":
		if started && b.phase != "commentary" {
			return "writing the answer"
		}
	case "reasoning":
		return "thinking"
	case "webSearch":
		return "searching the web"
	case "contextCompaction":
		return "compacting its conversation"
	case "collabAgentToolCall":
		return "working with subagents"
	}
	return "" // an item of a later Codex: nothing we could say
}

// quoted shows a command on one line.
func quoted(s string) string { return "`" + shorten(oneLine(shorten(s, 400)), 80) + "`" }
