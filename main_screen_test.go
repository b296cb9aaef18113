package main

// main_screen_test.go holds what a terminal and a pipe are given, as text: columns
// that fit, colours only where they are seen. a-terminal-gets-columns-and-colours.txtar has a
// real terminal.

import (
	"strings"
	"testing"
	"time"
)

func TestWhen(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	tests := []struct {
		ago  time.Duration
		want string
	}{
		{-10 * time.Second, "just now"},
		{0, "just now"},
		{59 * time.Second, "just now"},
		{time.Minute, "1 minute ago"},
		{59*time.Minute + 59*time.Second, "59 minutes ago"},
		{time.Hour, "1 hour ago"},
		{23 * time.Hour, "23 hours ago"},
		{day, "1 day ago"},
		{59 * day, "59 days ago"},
		{61 * day, now.Add(-61 * day).Local().Format("2006-01-02")},
		{-time.Hour, now.Add(time.Hour).Local().Format("2006-01-02 15:04")},
	}
	for _, tt := range tests {
		if got := (screen{terminal: true, now: now}).when(now.Add(-tt.ago)); got != tt.want {
			t.Errorf("%v ago is %q, want %q", tt.ago, got, tt.want)
		}
	}
	if got := (screen{now: now}).when(now.In(time.FixedZone("", 3600))); got != "2026-03-10T12:00:00Z" {
		t.Errorf("in a pipe it is %q", got)
	}
	if got := (screen{terminal: true, now: now}).when(time.Time{}); got != "-" {
		t.Errorf("no time is %q", got)
	}
}

func TestTable(t *testing.T) {
	rows := [][]cell{
		{{"a", ""}, {"red", inRed}, {"a long prompt that\ngoes on\x1b[2J and on", ""}},
		{{"bcd", ""}, {"é", ""}, {"", ""}},
	}
	header := []string{"ID", "S", "LAST"}
	tests := []struct {
		name string
		s    screen
		want string
	}{
		{"pipe", screen{}, "a\tred\ta long prompt that goes on[2J and on\nbcd\té\t\n"},
		{"terminal", screen{terminal: true, width: 30}, "ID   S    LAST\na    red  a long prompt that …\nbcd  é\n"},
		{"narrow", screen{terminal: true, width: 20}, "ID   S    LAST\na    red  a long pr…\nbcd  é\n"},
		{"colours", screen{terminal: true, width: 30, color: true}, "\x1b[1mID\x1b[0m   \x1b[1mS\x1b[0m    \x1b[1mLAST\x1b[0m\n" +
			"a    \x1b[31mred\x1b[0m  a long prompt that …\nbcd  é\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			tt.s.out = &b
			tt.s.table(header, rows)
			if b.String() != tt.want {
				t.Errorf("got\n%q\nwant\n%q", b.String(), tt.want)
			}
		})
	}
}

// Long names must not push a list of sessions over the edge of the terminal, and
// what names a row stays whole. A table without fit, such as config's, is never cut but at its end: it has files and lines.
func TestTableFitsTheLine(t *testing.T) {
	row := []cell{{"codex:bcdfghj", ""}, {"agent-with-a-very-long-name", ""}, {"repository@a-branch", ""}, {"the last prompt", ""}}
	for fit, want := range map[bool]string{
		true:  "codex:bcdfghj  agent-wit…  repositor…  the last pr…\n",
		false: "codex:bcdfghj  agent-with-a-very-long-name  repository@a-branch  the las…\n",
	} {
		var b strings.Builder
		s := screen{out: &b, terminal: true, width: 51, fit: fit}
		s.table([]string{"AGENT", "IDENTITY", "WHERE", "LAST PROMPT"}, [][]cell{row})
		if _, got, _ := strings.Cut(b.String(), "\n"); got != want {
			t.Errorf("fit %v: got\n%q\nwant\n%q", fit, got, want)
		}
	}
}

// A model's text may hold what a terminal obeys: moving the cursor, setting the
// clipboard, or, by its eight-bit form, the same.
func TestTextCannotSteerATerminal(t *testing.T) {
	const text = "one\x1b]52;c;aGk=\a\n\ttwo\u009b2J\r"
	if got := (screen{terminal: true}).text(text); got != "one]52;c;aGk=\n\ttwo2J" {
		t.Errorf("a terminal gets %q", got)
	}
	if got := (screen{}).text(text); got != text {
		t.Errorf("a pipe gets %q", got)
	}
}
