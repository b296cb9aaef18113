package main

// main_screen.go owns how commands look: whether their output goes to a person's terminal or into a pipe, colours, the
// width of a line, and times as people say them. The commands write through a screen; serve never does.
// Into a pipe a screen adds nothing, so that what is printed can be cut and compared.
// It must never let a byte that a model wrote steer the terminal.

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
)

// A screen is where a command prints. It is a value and keeps nothing.
type screen struct {
	out      io.Writer
	terminal bool      // out is a terminal, which a person reads
	color    bool      // the terminal shows colours
	width    int       // of a line, in columns; 0: endless
	now      time.Time // what ages are counted from
	fit      bool      // a table's cells may be cut so that it fits width
}

const (
	defaultWidth  = 80 // of a terminal that doesn't know its own
	defaultHeight = 24
	leastWidth    = 40
)

// newScreen looks at what stdout is. NO_COLOR is everybody's convention
// (no-color.org: any text counts), ATM_NO_COLOR is the ATM tools' own.
func newScreen(stdout io.Writer, env func(string) string) screen {
	s := screen{out: stdout, now: time.Now()}
	f, ok := stdout.(*os.File)
	if !ok {
		return s
	}
	if s.width, _, s.terminal = terminalSize(f); !s.terminal {
		return s
	}
	s.width = max(cmp.Or(s.width, defaultWidth), leastWidth)
	s.color = env("NO_COLOR") == "" && env("ATM_NO_COLOR") == "" && env("TERM") != "dumb" && terminalColors(f)
	return s
}

// The colours, as SGR parameters.
const (
	inBold   = "1"
	inDim    = "2"
	inRed    = "31"
	inGreen  = "32"
	inYellow = "33"
)

// paint colours text that is already clean.
func (s screen) paint(how, text string) string {
	if !s.color || how == "" || text == "" {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}

func (s screen) line(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// A cell is one cell of a table; how is its colour, "" for none.
type cell struct{ text, how string }

func plainCells(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, text := range texts {
		cells[i].text = text
	}
	return cells
}

// table prints rows below a header, each column as wide as it needs and the
// last one cut to what is left of the line; with fit, others are cut too where
// that is too little. In a pipe there is no header, and the cells stand between tabs.
func (s screen) table(header []string, rows [][]cell) {
	if !s.terminal {
		for _, row := range rows {
			texts := make([]string, len(row))
			for i, c := range row {
				texts[i] = printable(c.text)
			}
			s.line("%s", strings.Join(texts, "\t"))
		}
		return
	}
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = columns(h)
		for _, row := range rows {
			widths[i] = max(widths[i], columns(printable(row[i].text)))
		}
	}
	if s.fit {
		s.shrink(widths)
	}
	print := func(row []cell) {
		var b strings.Builder
		used := 0
		for i, c := range row {
			text := printable(c.text)
			width, left, gap := widths[i], s.width-used, 2
			if i == len(row)-1 {
				width = max(left, 8)
			}
			if s.fit {
				width = max(min(width, left), 0)
				gap = max(min(gap, left-width), 0)
			}
			text = clipColumns(text, width)
			b.WriteString(s.paint(c.how, text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width-columns(text)+gap))
			}
			used += width + gap
		}
		s.line("%s", strings.TrimRight(b.String(), " "))
	}
	top := make([]cell, len(header))
	for i, h := range header {
		top[i] = cell{h, inBold}
	}
	print(top)
	for _, row := range rows {
		print(row)
	}
}

// shrink takes from the widest columns but the first, by which a row is named, until the last has room for some words.
func (s screen) shrink(widths []int) {
	const least, room = 10, 12
	last := len(widths) - 1
	for {
		used, widest := 0, 0
		for i, w := range widths[:last] {
			if used += w + 2; i > 0 && (widest == 0 || w > widths[widest]) {
				widest = i
			}
		}
		if used+room <= s.width || widest == 0 || widths[widest] <= least {
			return
		}
		widths[widest]--
	}
}

// when is a time: on a terminal as one says it, else as it is.
func (s screen) when(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !s.terminal:
		return t.UTC().Format(time.RFC3339)
	}
	ago := s.now.Sub(t)
	count := func(n int, unit string) string {
		if n == 1 {
			return "1 " + unit + " ago"
		}
		return fmt.Sprintf("%d %ss ago", n, unit)
	}
	const day = 24 * time.Hour
	switch {
	case ago < -time.Minute: // another machine's clock, on a shared disk
		return t.Local().Format("2006-01-02 15:04")
	case ago < time.Minute:
		return "just now"
	case ago < time.Hour:
		return count(int(ago/time.Minute), "minute")
	case ago < day:
		return count(int(ago/time.Hour), "hour")
	case ago < 60*day:
		return count(int(ago/day), "day")
	}
	return t.Local().Format("2006-01-02")
}

// text is longer text for reading: what a model wrote may hold escape
// sequences, which a terminal would obey. A pipe gets it as it is.
func (s screen) text(text string) string {
	if !s.terminal {
		return text
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// printable makes a cell of any text: one line, nothing that can't be printed.
func printable(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// columns is how many columns of a terminal a text takes: characters of East Asia and emoji take two, marks above
// others none.
func columns(text string) (n int) {
	for _, r := range text {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	for _, wide := range [...][2]rune{{0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23f3}, {0x26a1, 0x26a1},
		{0x2705, 0x2705}, {0x2728, 0x2728}, {0x274c, 0x274e}, {0x2753, 0x2757}, {0x2b50, 0x2b55}, {0x2e80, 0xa4cf},
		{0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6},
		{0x1f000, 0x1faff}, {0x20000, 0x3fffd}} {
		if r >= wide[0] && r <= wide[1] {
			return 2
		}
	}
	return 1
}

// clipColumns cuts a text to at most n columns, the last of which tells that the text was cut.
func clipColumns(text string, n int) string {
	if columns(text) <= n {
		return text
	}
	used := 0
	for i, r := range text {
		if used += columnsOf(r); used >= n && n > 0 {
			return text[:i] + "…"
		}
	}
	return ""
}
