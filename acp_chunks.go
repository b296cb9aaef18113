package main

// acp_chunks.go owns what a client reads as messages: the agent's answer and
// its thoughts as they come, the user's words when a session is loaded, plans.
// acp_updates.go calls it for every delta, thousands a second, so their text is
// copied as it stands in Codex's JSON. Joined text may wait, but it must never be
// lost, told twice or overtaken.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxChunk is how much text one update takes.
	maxChunk = 1 << 20
	// maxJoined may be joined while the client's output waits.
	maxJoined = 64 << 10
	// maxUserBlock may an image have that is told again: a client's SDK takes
	// no line of more than 32 MiB.
	maxUserBlock = 24 << 20
)

const (
	agentChunk   = "agent_message_chunk"
	thoughtChunk = "agent_thought_chunk"
	userChunk    = "user_message_chunk"
)

// acpText is a message that is being told.
type acpText struct {
	key   acpKey
	phase string // of its deltas
	kind  string // of its updates
	id    string
	told  int          // bytes of its text so far
	sum   maphash.Hash // of them
	gap   bool         // a new part begins: a paragraph break goes before it
}

// delta tells more of a message, or keeps it a moment while output waits or more
// of it is here already.
func (x *acpEncoder) delta(k acpKey, e *event) {
	t := x.talk
	if t == nil || t.phase != e.phase || t.key != k {
		t = x.turnTo(k, e.phase)
	}
	if e.text == "" {
		return
	}
	if t.gap {
		t.gap = false
		x.buf = append(x.buf, `\n\n`...)
	}
	t.told += len(e.text)
	t.sum.WriteString(e.text)
	if n := len(e.delta); n > 2 && cleanJSON(e.delta) {
		x.buf = append(x.buf, e.delta[1:n-1]...)
	} else {
		x.buf = appendInside(x.buf, e.text)
	}
	switch {
	case len(x.buf)-x.head >= maxJoined || !e.more && !x.o.Crowded():
		x.flush()
	case !x.waiting:
		x.waiting = true
		x.wakeAt(time.Now().Add(acpGrace))
	}
}

// turnTo makes a message the one that deltas go to.
func (x *acpEncoder) turnTo(k acpKey, phase string) *acpText {
	x.flush()
	tk := acpTextKey{k, phase}
	t := x.texts[tk]
	if t == nil {
		t = &acpText{key: k, phase: phase, kind: agentChunk, id: x.callID(k)}
		t.sum.SetSeed(x.seed)
		if phase == "reasoning" {
			t.kind = thoughtChunk
			t.gap = x.thought // clients that don't look at ids join them
		}
		x.texts[tk] = t
	}
	x.talk = t
	x.buf = appendChunkHead(x.buf[:0], t.kind, t.id)
	x.head = len(x.buf)
	return t
}

// acpTextKey: one reasoning item may bring thoughts of two kinds.
type acpTextKey struct {
	acpKey
	phase string
}

// flush sends the text that waits.
func (x *acpEncoder) flush() {
	if len(x.buf) == x.head {
		return
	}
	x.buf = append(x.buf, `"}}`...)
	x.o.Send(x.buf)
	x.thought = x.talk != nil && x.talk.kind == thoughtChunk
	x.buf = x.buf[:x.head]
	x.waiting = false
	if cap(x.buf) > 4*maxJoined { // one huge delta must not stay
		x.buf = append(make([]byte, 0, 4<<10), x.buf...)
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

// say tells a whole text under an id.
func (x *acpEncoder) say(kind, id, text string) {
	for text != "" {
		n := min(len(text), maxChunk)
		for n < len(text) && n > maxChunk-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		b := appendInside(appendChunkHead(nil, kind, id), text[:n])
		x.put(append(b, `"}}`...))
		x.thought = kind == thoughtChunk
		text = text[n:]
	}
}

// text tells words of our own as the agent's.
func (x *acpEncoder) text(s string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.say(agentChunk, x.ownID(), s)
}

// userText tells what the agent was sent that the client doesn't know: mail.
func (x *acpEncoder) userText(s string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.say(userChunk, x.ownID(), s)
}

func (x *acpEncoder) ownID() string {
	x.said++
	return fmt.Sprint(x.own, x.said)
}

// message takes a message of the agent's as it is whole. What was not streamed
// of it is told now: Codex streams most, and a flooded session drops deltas.
func (x *acpEncoder) message(k acpKey, e *event) {
	if e.phase != "completed" {
		if x.closed.times[k] > 0 { // another one of the same id, which may not be streamed
			x.turnTo(k, "answer")
		}
		return
	}
	whole := e.body.text
	tk := acpTextKey{k, "answer"}
	t := x.texts[tk]
	switch {
	case t == nil && (x.closed.times[k] > 0 && !x.o.Replay || whole != "" && whole == x.review):
		return // a second end; or the review, which Codex tells as its result and as a message
	case t == nil:
		x.say(agentChunk, x.callID(k), whole)
	case len(whole) <= t.told: // Codex trims the ends of some
	case maphash.String(x.seed, whole[:t.told]) == t.sum.Sum64():
		x.say(agentChunk, t.id, whole[t.told:])
	default: // a part in its middle is missing: all of it again, as a message of its own
		x.closed.add(k)
		x.say(agentChunk, x.callID(k), whole)
	}
	x.textEnds(tk)
}

// reasoning takes thoughts as they are whole: those that weren't streamed are
// told now.
func (x *acpEncoder) reasoning(k acpKey, e *event) {
	if e.phase != "completed" {
		return
	}
	tk := acpTextKey{k, "reasoning"}
	if x.texts[tk] == nil && (x.closed.times[k] == 0 || x.o.Replay) {
		item := rawField(e.raw, "item")
		var parts []string
		add := func(part json.RawMessage) {
			if s, ok := rawString(part); ok && s != "" {
				parts = append(parts, s)
			}
		}
		eachElement(rawField(item, "summary"), add)
		if len(parts) == 0 {
			eachElement(rawField(item, "content"), add)
		}
		text := strings.Join(parts, "\n\n")
		if text = cmp.Or(text, e.body.text); text != "" && x.thought {
			text = "\n\n" + text
		}
		x.say(thoughtChunk, x.callID(k), text)
	}
	x.textEnds(tk)
}

// partBegins: the next thoughts of an item are a paragraph of their own.
func (x *acpEncoder) partBegins(k acpKey) {
	if t := x.texts[acpTextKey{k, "reasoning"}]; t != nil && t.told > 0 {
		t.gap = true
	}
}

// textEnds forgets a message but for its id.
func (x *acpEncoder) textEnds(k acpTextKey) {
	x.flush()
	if t := x.texts[k]; t != nil && t == x.talk {
		x.dropText()
	}
	delete(x.texts, k)
	x.closed.add(k.acpKey)
}

func (x *acpEncoder) dropText() { x.talk, x.buf, x.head = nil, x.buf[:0], 0 }

// reviews tells that Codex began to review, and what it found.
func (x *acpEncoder) reviews(k acpKey, e *event) {
	switch {
	case x.closed.times[k] > 0 && !x.o.Replay:
	case e.body.kind == "enteredReviewMode":
		x.say(agentChunk, x.callID(k), "Reviewing "+cmp.Or(e.body.text, "changes")+".\n\n")
		x.closed.add(k)
	case e.phase == "completed":
		x.review = e.body.text
		x.say(agentChunk, x.callID(k), e.body.text)
		x.closed.add(k)
	}
}

// userItem tells what the user said, of a session that is loaded: live, the
// client knows.
func (x *acpEncoder) userItem(k acpKey, e *event) {
	if !x.o.Replay || e.phase != "completed" {
		return
	}
	id := x.callID(k)
	some := false
	block := func(b json.RawMessage) {
		some = true
		if len(b) > maxUserBlock {
			b = acpTextBlock(fmt.Sprintf("[%s of %d bytes left out]", stringField(b, "type"), len(b)))
		}
		x.put(toJSON(map[string]any{"sessionUpdate": userChunk, "messageId": id, "content": b}))
	}
	eachElement(rawField(e.raw, "item", "content"), func(part json.RawMessage) {
		file := stringField(part, "path")
		switch kind := stringField(part, "type"); {
		case kind == "text":
			some = true
			x.userSaid(id, stringField(part, "text"))
		case kind == "image" && stringField(part, "url") != "":
			block(acpImageBlock(stringField(part, "url")))
		case file != "": // an image or sound on the disk, a skill, a file that was mentioned
			block(acpLinkBlock(acpFileURL(x.absolute(file, ""))))
		}
	})
	if !some {
		x.userSaid(id, e.body.text)
	}
	x.closed.add(k)
}

// userSaid tells what a prompt said. Mail that came with it is a message of its
// own: nobody is to read a teammate's words as the user's.
func (x *acpEncoder) userSaid(id, text string) {
	mail, rest := splitMail(withoutBlocks(text))
	if mail != "" {
		x.say(userChunk, id+":mail", mail)
	}
	x.say(userChunk, id, rest)
}

// planned tells the agent's plan, step by step.
func (x *acpEncoder) planned(e *event) {
	steps := []acpStep{}
	eachElement(rawField(e.raw, "plan"), func(step json.RawMessage) {
		s := acpStep{stringField(step, "step"), "medium", "pending"}
		switch stringField(step, "status") {
		case "inProgress":
			s.Status = "in_progress"
		case "completed":
			s.Status = "completed"
		}
		steps = append(steps, s)
	})
	x.putPlan(steps)
}

type acpStep struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

func (x *acpEncoder) putPlan(steps []acpStep) {
	x.put(toJSON(struct {
		Update  string    `json:"sessionUpdate"`
		Entries []acpStep `json:"entries"`
	}{"plan", steps}))
}

// planDelta takes more of a plan that is written as one text.
func (x *acpEncoder) planDelta(e *event) {
	text, _ := rawString(e.delta)
	if text == "" {
		return
	}
	x.plan.add(text)
	if !x.planDirty {
		x.planDirty = true
		x.planNext = later(x.planNext, time.Now().Add(acpGrace))
		x.wakeAt(x.planNext)
	}
}

// planText tells what is written of it: one entry, since it has no steps.
func (x *acpEncoder) planText(now time.Time, text, status string) {
	x.planDirty, x.planNext = false, now.Add(acpPace)
	if text != "" {
		x.putPlan([]acpStep{{text, "medium", status}})
	}
}

// planItem takes a plan that is written: nothing of it is done yet.
func (x *acpEncoder) planItem(e *event) {
	if e.phase == "completed" {
		x.planText(time.Now(), cmp.Or(cappedText(e.body.text), x.plan.text()), "pending")
		x.plan = acpOutput{}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
