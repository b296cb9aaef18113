package main

// acp_messages.go owns what a client reads as messages: the agent's answer and its thoughts as they come, the user's
// words when a session is loaded, plans. acp_updates.go calls it for every delta, thousands a second, so their text is
// copied as it stands in Codex's JSON. Joined text may wait, but it must never be lost, told twice or overtaken.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"
)

// maxUserBlock may an image have that is told again: a client's SDK takes no line of more than 32 MiB.
const maxUserBlock = 24 << 20

// acpText is a message that is being told.
type acpText struct {
	key       acpTextKey
	kind      string       // of its updates
	id        string       // as the client knows the message
	told      int          // how many bytes of its text were told
	sum       maphash.Hash // of the bytes that were told, to know them again in the whole text
	paragraph bool         // a paragraph break goes before its next text
}

// acpTextKey names a message: one reasoning item may bring thoughts of two
// kinds, so the phase of its deltas is part of the name.
type acpTextKey struct {
	acpKey
	phase string
}

// acpMessages are the messages of one turn. The encoder's lock guards them.
type acpMessages struct {
	*acpStream
	seen   *acpSeen
	names  *acpNames
	replay bool // the past is told, the user's words too
	seed   maphash.Seed

	talk   *acpText // the message that deltas go to, nil for none
	texts  map[acpTextKey]*acpText
	review string // what the turn's review found
}

// delta tells more of a message.
func (m *acpMessages) delta(k acpKey, e *event) {
	t := m.talk
	if t == nil || t.key.phase != e.phase || t.key.acpKey != k {
		t = m.turnTo(acpTextKey{k, e.phase})
	}
	if e.text == "" {
		return
	}
	t.told += len(e.text)
	t.sum.WriteString(e.text)
	paragraph := t.paragraph
	t.paragraph = false
	m.addText(e, paragraph)
}

// turnTo makes a message the one that deltas go to.
func (m *acpMessages) turnTo(k acpTextKey) *acpText {
	m.flush()
	t := m.texts[k]
	if t == nil {
		t = &acpText{key: k, kind: agentChunk, id: m.seen.id(k.acpKey)}
		t.sum.SetSeed(m.seed)
		if k.phase == "reasoning" {
			t.kind = thoughtChunk
			t.paragraph = m.thought // clients that don't look at ids join two thoughts
		}
		m.texts[k] = t
	}
	m.talk = t
	m.openChunk(t.kind, t.id)
	return t
}

// agentItem takes a message of the agent's that is whole. What of its text was not
// streamed is told now: Codex streams most, and a flooded session drops deltas.
func (m *acpMessages) agentItem(k acpKey, e *event) {
	tk := acpTextKey{k, "answer"}
	if e.phase != "completed" {
		if m.seen.times[k] > 0 { // another one of the same id, which may not be streamed
			m.turnTo(tk)
		}
		return
	}
	whole := e.body.text
	if m.replay { // live, the session has made words of a review's findings
		if found := readFindings(whole, m.names.cwd); found != nil {
			whole = found.String()
		}
	}
	t := m.texts[tk]
	switch {
	case t == nil && (m.known(k) || whole != "" && whole == m.review):
		return // a second end; or the review, which Codex tells as its result and as a message
	case t == nil:
		m.say(agentChunk, m.seen.id(k), whole)
	case len(whole) <= t.told: // Codex trims the ends of some
	case maphash.String(m.seed, whole[:t.told]) == t.sum.Sum64():
		m.say(agentChunk, t.id, whole[t.told:])
	default: // a part in its middle is missing: all of it again, as a message of its own
		m.seen.add(k)
		m.say(agentChunk, m.seen.id(k), whole)
	}
	m.finish(tk)
}

// known reports an item that was told to its end. In a replay each item comes once, under ids that may repeat.
func (m *acpMessages) known(k acpKey) bool { return m.seen.times[k] > 0 && !m.replay }

// thoughtItem takes thoughts that are whole: those that weren't streamed are told now.
func (m *acpMessages) thoughtItem(k acpKey, e *event) {
	if e.phase != "completed" {
		return
	}
	tk := acpTextKey{k, "reasoning"}
	if m.texts[tk] == nil && !m.known(k) {
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
		if text = cmp.Or(text, e.body.text); text != "" && m.thought {
			text = "\n\n" + text
		}
		m.say(thoughtChunk, m.seen.id(k), text)
	}
	m.finish(tk)
}

// breakThought makes the next thoughts of an item a paragraph of their own.
func (m *acpMessages) breakThought(k acpKey) {
	if t := m.texts[acpTextKey{k, "reasoning"}]; t != nil && t.told > 0 {
		t.paragraph = true
	}
}

// finish forgets a message but for its id.
func (m *acpMessages) finish(k acpTextKey) {
	m.flush()
	if t := m.texts[k]; t != nil && t == m.talk {
		m.talk = nil
		m.closeChunk()
	}
	delete(m.texts, k)
	m.seen.add(k.acpKey)
}

// reviewItem tells that Codex began to review, and what it found.
func (m *acpMessages) reviewItem(k acpKey, e *event) {
	text := ""
	switch {
	case m.known(k):
		return
	case e.body.kind == "enteredReviewMode":
		text = "Reviewing " + cmp.Or(e.body.text, "changes") + ".\n\n"
	case e.phase == "completed":
		text, m.review = e.body.text, e.body.text
	default:
		return
	}
	m.say(agentChunk, m.seen.id(k), text)
	m.seen.add(k)
}

// userItem tells what the user said, of a session that is loaded: live, the client knows.
func (m *acpMessages) userItem(k acpKey, e *event) {
	if !m.replay || e.phase != "completed" {
		return
	}
	id := m.seen.id(k)
	some := false
	block := func(b json.RawMessage) {
		some = true
		if len(b) > maxUserBlock {
			b = acpTextBlock(fmt.Sprintf("[%s of %d bytes left out]", stringField(b, "type"), len(b)))
		}
		m.put(toJSON(map[string]any{"sessionUpdate": userChunk, "messageId": id, "content": b}))
	}
	eachElement(rawField(e.raw, "item", "content"), func(part json.RawMessage) {
		file := stringField(part, "path")
		switch kind := stringField(part, "type"); {
		case kind == "text":
			some = true
			m.sayPrompt(id, stringField(part, "text"))
		case kind == "image" && stringField(part, "url") != "":
			block(acpImageBlock(stringField(part, "url")))
		case kind == "skill": // the text beside it names it
		case file != "": // an image or sound on the disk, a file that was mentioned
			block(acpLinkBlock(acpFileURL(m.names.absolute(file, ""))))
		}
	})
	if !some {
		m.sayPrompt(id, e.body.text)
	}
	m.seen.add(k)
}

// sayPrompt tells what a prompt said. Mail that came with it is a message of its
// own: nobody is to read a teammate's words as the user's.
func (m *acpMessages) sayPrompt(id, text string) {
	mail, rest := splitMail(withoutBlocks(text))
	if mail != "" {
		m.say(userChunk, id+":mail", mail)
	}
	m.say(userChunk, id, shownReviewPrompt(rest))
}

// acpStep is a step of a plan.
type acpStep struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// planSteps tells the agent's checklist, step by step.
func (m *acpMessages) planSteps(e *event) {
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
	m.put(toJSON(struct {
		Update  string    `json:"sessionUpdate"`
		Entries []acpStep `json:"entries"`
	}{"plan", steps}))
}

// endTurn tells what waits, and forgets the turn's messages.
func (m *acpMessages) endTurn() {
	m.flush()
	m.closeChunk()
	clear(m.texts)
	m.talk, m.review = nil, ""
}
