package main

// acp_output.go owns the way of updates out of an encoder: text that waits to
// be joined, the timer for it, and output that may be too much for a client, of
// which head and tail are kept. acp_messages.go and acp_tool.go write through
// it. It must never keep more of an output than it may show, nor let an update
// overtake the text before it.

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// acpGrace is the longest that joined text waits.
	acpGrace = 20 * time.Millisecond
	// acpPace lies between two updates of one growing text: each tells all of it.
	acpPace = 200 * time.Millisecond
	// maxChunk is how much text one update takes.
	maxChunk = 1 << 20
	// maxJoined may be joined while the client's output waits.
	maxJoined = 64 << 10
	// maxACPText is how much text one tool call shows; a client's stream takes
	// 32 MiB a line, its user far less.
	maxACPText = 64 << 10
	// acpHalf of it is kept of each end, with room for the line between them.
	acpHalf = maxACPText/2 - 128
)

const (
	agentChunk   = "agent_message_chunk"
	thoughtChunk = "agent_thought_chunk"
	userChunk    = "user_message_chunk"
)

// acpStream sends the updates of one encoder in their order. The encoder's lock
// guards it.
type acpStream struct {
	send    func(update []byte) bool
	crowded func() bool // output waits for the client, so text is joined
	alarm   acpAlarm

	chunk   string // kind of the chunk that is open, "" before the first
	buf     []byte // that chunk as far as it is written, "" while none is open
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

// addText adds a delta to the open chunk, and keeps it a moment while output
// waits or more of the text is here already.
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

// wakeAt sets the timer, unless it goes off before.
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

// acpOutput is what a command has printed so far: all of it as long as it may
// be shown, then its two ends.
type acpOutput struct {
	head  []byte
	tail  []byte // the last acpHalf bytes of it count
	total int
}

func (o *acpOutput) add(s string) {
	o.total += len(s)
	if n := min(acpHalf-len(o.head), len(s)); n > 0 {
		o.head = append(o.head, s[:n]...)
		s = s[n:]
	}
	if len(s) > acpHalf {
		s = s[len(s)-acpHalf:]
	}
	o.tail = append(o.tail, s...)
	if len(o.tail) > 2*acpHalf {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-acpHalf:]...)
	}
}

// text is what is shown of an output.
func (o *acpOutput) text() string {
	tail := o.tail
	if len(tail) > acpHalf {
		tail = tail[len(tail)-acpHalf:]
	}
	if o.total == len(o.head)+len(tail) {
		return string(o.head) + string(tail)
	}
	return acpEnds(string(o.head), string(tail), o.total)
}

// acpGrowing is a text that grows and is told again as it does, at acpPace.
type acpGrowing struct {
	acpOutput
	untold bool      // there is more than the client was told
	next   time.Time // when it may be told again
}

// add takes more of the text. Its first words come with what follows them at
// once, hence the grace.
func (g *acpGrowing) add(s string, alarm *acpAlarm) {
	g.acpOutput.add(s)
	if g.untold {
		return
	}
	g.untold = true
	if soonest := time.Now().Add(acpGrace); g.next.Before(soonest) {
		g.next = soonest
	}
	alarm.wakeAt(g.next)
}

// tellable reports that the text is to be told now. While output waits for the
// client it isn't: the next telling has the same and more.
func (g *acpGrowing) tellable(now time.Time, o *acpStream) bool {
	switch {
	case !g.untold:
		return false
	case g.next.After(now):
	case o.crowded():
		g.next = now.Add(acpPace)
	default:
		return true
	}
	o.alarm.wakeAt(g.next)
	return false
}

// told notes that the client knows all of the text.
func (g *acpGrowing) told(now time.Time) { g.untold, g.next = false, now.Add(acpPace) }

// cappedText is what is shown of a text that is there as a whole.
func cappedText(s string) string {
	if len(s) <= 2*acpHalf {
		return s
	}
	return acpEnds(s[:acpHalf], s[len(s)-acpHalf:], len(s))
}

// acpEnds joins the ends of a text of total bytes, cutting no character in two.
func acpEnds(head, tail string, total int) string {
	for n := 1; n < utf8.UTFMax && n <= len(head); n++ {
		if i := len(head) - n; utf8.RuneStart(head[i]) {
			if !utf8.FullRuneInString(head[i:]) {
				head = head[:i]
			}
			break
		}
	}
	for n := 0; n < utf8.UTFMax && tail != "" && !utf8.RuneStart(tail[0]); n++ {
		tail = tail[1:]
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", strings.TrimSuffix(head, "\n"), total-len(head)-len(tail), tail)
}
