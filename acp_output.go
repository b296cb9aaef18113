package main

// acp_output.go owns text that may be too much for a client: a command's output
// while it grows, of which head and tail are kept, and texts of any kind that
// go into one update. acp_tool.go and acp_item.go call it. It must never keep
// more of an output than it may show.

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// maxACPText is how much text one tool call shows; a client's stream takes
	// 32 MiB a line, its user far less.
	maxACPText = 64 << 10
	// acpHalf of it is kept of each end, with room for the line between them.
	acpHalf = maxACPText/2 - 128
)

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

// text is what is shown of it.
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

// fenced makes a code block of output: clients render a text block as Markdown,
// which would join its lines and eat its stars. The fence is longer than any in
// the text, so that nothing in it can end the block.
func fenced(s string) string {
	ticks, waves := longestRun(s, '`'), longestRun(s, '~')
	fence := strings.Repeat("`", max(3, ticks+1))
	if ticks > 2 && waves < ticks {
		fence = strings.Repeat("~", max(3, waves+1))
	}
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return fence + "\n" + s + fence
}

func longestRun(s string, c byte) (longest int) {
	for run, i := 0, 0; i < len(s); i++ {
		if s[i] != c {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
