package main

// acp_output.go owns what a call prints, on its way to the client: as text that grows and is told again as it does,
// without what only a terminal understands; or, for a client that has terminals, as the output of one, told piece by
// piece. acp_tool.go holds both for each call. It must never keep more of an output than is shown, tell a byte of a
// terminal's output twice, nor let the updates of one text grow beyond a few times that text.

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// acpPace lies between two updates of one output.
	acpPace = 200 * time.Millisecond
	// acpQuiet is how long an output has to stand still before more is spent on telling it whole: what came last may
	// be what its command waits for.
	acpQuiet = time.Second
	// acpFree is how many bytes of updates tell a text before they are measured by its length.
	acpFree = 8 << 10
	// maxOutput is how many bytes of an output nobody streamed a terminal is told: the megabyte that Codex keeps, and
	// Codex's own line in its middle about what it left out, which this limit must not cut away.
	maxOutput = 1<<20 + 256
	// maxLine is how much of a line is kept for what may still be written over it.
	maxLine = 4 << 10
)

// acpOutput is the beginning and the end of an output, which is all of it as long as it may be shown.
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

// ends are the beginning and the end that are kept.
func (o *acpOutput) ends() (head, tail string) {
	return string(o.head), string(o.tail[max(0, len(o.tail)-acpHalf):])
}

// text is what is shown of an output.
func (o *acpOutput) text() string {
	head, tail := o.ends()
	if o.total == len(head)+len(tail) {
		return head + tail
	}
	return joinEnds(head, tail, o.total)
}

// cappedText is what is shown of a text that is there as a whole.
func cappedText(s string) string { return cutMiddle(s, 2*acpHalf) }

// acpSequence is where in an escape sequence the text of an acpPlain stands.
type acpSequence int

const (
	seqNone    acpSequence = iota
	seqEscape              // behind ESC
	seqShort               // behind ESC and a character that says that one more follows
	seqControl             // behind ESC [, up to a letter
	seqString              // behind ESC ], ESC P and the like, up to BEL or ESC \
)

// acpPlain is an output as a reader without a terminal wants it: no escape sequences, no control characters, and of a
// line that was written over what stands there last. It takes an output in pieces that end anywhere.
type acpPlain struct {
	acpOutput        // all lines but the last
	line      []byte // the last line, or its end where it is long
	over      bool   // what follows is written over the line
	seq       acpSequence
	params    []byte // of the control sequence that has begun
	came      int    // bytes of it all
}

// plainOutput is a whole output as plain text.
func plainOutput(s string) string {
	var p acpPlain
	p.add(s)
	return p.text()
}

func (p *acpPlain) text() string {
	o := acpOutput{p.head, append([]byte(nil), p.tail...), p.total}
	o.head = o.head[:len(o.head):len(o.head)]
	o.add(string(p.line))
	return o.text()
}

func (p *acpPlain) add(s string) {
	p.came += len(s)
	for s != "" {
		if p.seq == seqNone {
			if n := plainPrefix(s); n > 0 {
				p.put(s[:n])
				s = s[n:]
				continue
			}
		}
		r, size := utf8.DecodeRuneInString(s)
		if 0x80 <= r && r <= 0x9f { // one character for ESC and another
			p.seq, r = seqEscape, r-0x40
		}
		if p.step(r) {
			s = s[size:]
		}
	}
}

// plainPrefix is how many bytes of s are no part of a sequence and no control character but the line end and the tab.
func plainPrefix(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f ||
			c == 0xc2 && i+1 < len(s) && 0x80 <= s[i+1] && s[i+1] <= 0x9f {
			return i
		}
	}
	return len(s)
}

// put takes text that is to be seen.
func (p *acpPlain) put(s string) {
	if p.over && s[0] != '\n' {
		p.line = p.line[:0]
	}
	p.over = false
	end := strings.LastIndexByte(s, '\n') + 1
	if end > 0 || len(p.line)+len(s) > maxLine {
		p.acpOutput.add(string(p.line))
		p.line = p.line[:0]
		p.acpOutput.add(s[:end])
	}
	if s = s[end:]; len(s) > maxLine {
		p.acpOutput.add(s)
		return
	}
	p.line = append(p.line, s...)
}

// step takes a control character, or one of a sequence. false: the sequence was none and has ended before it.
func (p *acpPlain) step(r rune) bool {
	const bell, backspace, cancel, substitute, escape = 0x07, 0x08, 0x18, 0x1a, 0x1b
	seq := p.seq
	p.seq = seqNone
	switch {
	case r == escape:
		p.seq = seqEscape
	case r == cancel, r == substitute:
	case seq == seqNone:
		switch r {
		case '\r':
			p.over = true
		case backspace:
			_, size := utf8.DecodeLastRune(p.line)
			p.line = p.line[:len(p.line)-size]
		}
	case seq == seqString && r == bell:
	case r < ' ':
		return false
	case seq == seqString:
		p.seq = seqString
	case seq == seqEscape && r == '[':
		p.seq, p.params = seqControl, p.params[:0]
	case seq == seqEscape && strings.ContainsRune("]PX^_", r):
		p.seq = seqString
	case r < 0x30 && seq != seqControl:
		p.seq = seqShort
	case r < 0x40 && seq == seqControl:
		p.seq = seqControl
		p.params = append(p.params[:min(len(p.params), 8)], byte(r))
	case r > 0x7e:
		return false
	case seq == seqControl && r == 'G': // to a column, which is the first as a rule
		p.over = p.over || len(p.params) == 0 || string(p.params) == "0" || string(p.params) == "1"
	}
	return true
}

// acpTelling is when more of an output may be told.
type acpTelling struct {
	untold bool      // there is more than the client was told
	next   time.Time // when it may be told
}

// grew notes that there is more. The first words wait a moment, since more follows them at once as a rule.
func (g *acpTelling) grew(now time.Time, alarm *acpAlarm) {
	if !g.untold {
		g.untold = true
		if soonest := now.Add(acpGrace); g.next.Before(soonest) {
			g.next = soonest
		}
	}
	alarm.wakeAt(g.next)
}

// due reports that there is more to be told now. While output waits for the client nothing is: it can be told with what
// comes until then.
func (g *acpTelling) due(now time.Time, o *acpStream) bool {
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

func (g *acpTelling) told(now time.Time) { g.untold, g.next = false, now.Add(acpPace) }

// acpGrowing is a text that grows and is told whole each time. All updates of it together stay within a few times its
// length, however slowly it grows: they may take twice as much as was printed, and three times once it stands still. So
// there is room for the text of the end.
type acpGrowing struct {
	acpPlain
	acpTelling
	last  time.Time // when it grew
	spent int       // bytes of the updates
}

func (g *acpGrowing) add(s string, alarm *acpAlarm) {
	g.acpPlain.add(s)
	g.last = time.Now()
	g.grew(g.last, alarm)
}

// tellable reports that the text is to be told now.
func (g *acpGrowing) tellable(now time.Time, o *acpStream) bool {
	if !g.due(now, o) {
		return false
	}
	times, quiet := 2, now.Sub(g.last) >= acpQuiet
	if quiet {
		times = 3
	}
	if g.spent+min(g.total+len(g.line), maxACPText) <= times*g.came+acpFree {
		return true
	}
	if !quiet {
		g.next = now.Add(acpPace)
		o.alarm.wakeAt(g.next)
	}
	return false
}

// told notes that the client knows all of the text, from an update of so many bytes.
func (g *acpGrowing) told(now time.Time, size int) {
	g.acpTelling.told(now)
	g.spent += size
}

// acpTerminal is what Codex has streamed of a command's output and the client's terminal wasn't told.
type acpTerminal struct {
	acpTelling
	rest acpOutput
}

// add takes more of the output. true: so much of it waits that it is to be told at once.
func (o *acpTerminal) add(text string, now time.Time, alarm *acpAlarm) bool {
	o.rest.add(text)
	o.grew(now, alarm)
	return o.rest.total >= maxJoined/2
}

// take is what is to be told now.
func (o *acpTerminal) take(now time.Time) string {
	text := o.rest.text()
	o.rest = acpOutput{}
	o.told(now)
	return text
}

// end is how an output, of which o was streamed, is told to its end: what waits, what of the whole was never streamed,
// and words of ours, each on a line of its own.
func (o *acpOutput) end(waits, whole string, words []string) string {
	head, tail := o.ends()
	before, after := o.unseen(whole)
	end := waits + after
	note := func(s string) {
		if last := cmp.Or(end, tail, head); last != "" && !strings.HasSuffix(last, "\n") {
			end += "\n"
		}
		end += "[" + s + "]\n"
	}
	if before != "" {
		note("printed further up, and told by Codex only now:")
		end += before
	}
	for _, w := range words {
		if w != "" {
			note(w)
		}
	}
	return end
}

// unseen is what of a command's whole output was never streamed: what belongs further up, and what follows on what was.
// Every Codex leaves out what was printed before it first looked, and streams all that follows. The whole has a cut in
// its middle where it is more than a megabyte; from 0.104 sooner, where nothing was streamed.
func (o *acpOutput) unseen(whole string) (before, after string) {
	n := o.total
	if n == 0 {
		return "", cutMiddle(whole, maxOutput)
	}
	head, tail := o.ends()
	first := strings.Index(whole, head)
	for _, at := range []int{len(whole) - n, 0, first} {
		if at >= 0 && at+n <= len(whole) && strings.HasPrefix(whole[at:], head) &&
			strings.HasSuffix(whole[:at+n], tail) {
			return whole[:at], whole[at+n:]
		}
	}
	if n > len(head)+len(tail) || strings.Contains(head+tail, whole) {
		return whole[:max(0, first)], ""
	}
	if at := asciiEnd(whole, head+tail); at >= 0 {
		return whole[:at], ""
	}
	isLine := map[string]bool{}
	for line := range strings.Lines(whole) {
		isLine[line] = true
	}
	var told []string // lines of the whole
	for line := range strings.Lines(head + tail) {
		if isLine[line] {
			told = append(told, line)
		}
	}
	var missing strings.Builder
	for line := range strings.Lines(whole) {
		if len(told) > 0 && told[0] == line {
			told = told[1:]
		} else {
			missing.WriteString(line)
		}
	}
	return missing.String(), ""
}

// asciiEnd is where in whole its end begins that streamed is but for what isn't ASCII, -1 where there is none: a delta
// of Codex's may end in the middle of a character, whose halves then are two U+FFFD.
func asciiEnd(whole, streamed string) int {
	i, j := len(whole), len(streamed)
	for j > 0 {
		for i > 0 && whole[i-1] >= utf8.RuneSelf {
			i--
		}
		if streamed[j-1] >= utf8.RuneSelf {
			j--
			continue
		}
		if i == 0 || whole[i-1] != streamed[j-1] {
			return -1
		}
		i, j = i-1, j-1
	}
	for streamed[0] >= utf8.RuneSelf && i > 0 && whole[i-1] >= utf8.RuneSelf {
		i--
	}
	return i
}
