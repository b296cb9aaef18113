package main

// main_test.go holds the command line: the table of commands and flags to what the commands take, `acp login` to be the
// login of the codex that acp would start, whatever a client put around it, and what a terminal and a pipe are given:
// columns that fit, colours only where they are seen. Spellings of help are in testdata/script/help-every-spelling.txtar.

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestACPLoginCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its codex is a shell script")
	}
	dir := t.TempDir()
	codex := filepath.Join(dir, "my-codex")
	script := "#!/bin/sh\necho \"args: $*\"\nread line\necho \"read: $line\"\necho oops >&2\nexit ${CODE:-0}\n"
	if err := os.WriteFile(codex, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	t.Chdir(dir)
	for _, tt := range []struct {
		args, code, want string
	}{
		{"acp --codex-bin " + codex + " login", "", "args: login\nread: typed\n"},
		{"acp --codex-bin " + codex + " login --device-auth -c x=y", "", "args: login --device-auth -c x=y\nread: typed\n"},
		{"acp --codex-bin " + codex + " --identity x acp login", "", "args: login\nread: typed\n"},
		{"acp --codex-bin=" + codex + " login", "7", "args: login\nread: typed\n"},
	} {
		t.Setenv("CODE", tt.code)
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(tt.args), strings.NewReader("typed\n"), &out, &errs)
		if want := map[string]int{"": 0, "7": 7}[tt.code]; code != want || out.String() != tt.want || errs.String() != "oops\n" {
			t.Errorf("%s: code %d, %q, %q", tt.args, code, out.String(), errs.String())
		}
	}
}

func TestACPCommandLine(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for args, want := range map[string]struct {
		code  int
		words string
	}{
		"acp logn":                       {2, `did you mean "login"?`},
		"acp acp":                        {2, `takes no argument "acp"`},
		"acp --restart-child":            {2, "restart-child"},
		"acp --identty x":                {2, "--identity"},
		"acp --sandbox reckless":         {2, "reckless"},
		"acp --codex-bin /no/such login": {1, "/no/such"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(args), strings.NewReader(""), &out, &errs)
		if code != want.code || !strings.Contains(errs.String(), want.words) || out.Len() > 0 {
			t.Errorf("%s: code %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}

// TestHelpOfEachCommand: every row is a command that run knows, and -h of it is
// what help says.
func TestHelpOfEachCommand(t *testing.T) {
	ask := func(args ...string) (string, int) {
		var out, errs bytes.Buffer
		code := run(context.Background(), args, strings.NewReader(""), &out, &errs)
		if errs.Len() > 0 {
			t.Errorf("%q says %q", args, errs.String())
		}
		return out.String(), code
	}
	for _, c := range commands() {
		told, code := ask("help", c.name)
		if code != 0 {
			t.Errorf("help %s ends with %d", c.name, code)
		}
		for _, spelling := range []string{"-h", "--help"} {
			got, code := ask(c.name, spelling)
			if code != 0 || got != told {
				t.Errorf("%s %s ends with %d and prints %q, help prints %q", c.name, spelling, code, got, told)
			}
		}
		for line := range strings.Lines(told) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 82 {
				t.Errorf("help %s has a line of %d characters: %s", c.name, n, line)
			}
		}
		var args []string // every flag is taken, with a value if it has one
		for _, f := range c.flags {
			for _, n := range f.names() {
				args = append(args, "--"+n)
				if f.value != "" {
					args = append(args, "7")
				}
			}
		}
		if _, code := ask(append(append([]string{c.name}, args...), "-h")...); code != 0 {
			t.Errorf("%s %q ends with %d", c.name, args, code)
		}
	}
}

// TestTheWordsOfAFlagAreTheSettings: the words that a flag's help names are
// those that the configuration takes.
func TestTheWordsOfAFlagAreTheSettings(t *testing.T) {
	words := map[string][]string{
		"sandbox":         {"read-only", "workspace-write", "danger-full-access"},
		"approval-policy": {"untrusted", "on-request", "never"},
		"backend":         {"auto", "app-server", "mcp-server"},
		"log-level":       {"error", "warn", "info", "debug", "trace"},
	}
	for _, row := range serveRows() {
		for _, word := range words[row.name] {
			home := t.TempDir()
			cfg, err := loadConfig(func(name string) string {
				if name == "HOME" || name == "USERPROFILE" {
					return home
				}
				return ""
			}, home, flagValues{row.name: word})
			if err != nil {
				t.Errorf("--%s %s: %v", row.name, word, err)
			} else if len(cfg.warnings) > 0 {
				t.Errorf("--%s %s: %q", row.name, word, cfg.warnings)
			}
			if !strings.Contains(row.help, word) {
				t.Errorf("the help of --%s doesn't name %q", row.name, word)
			}
		}
		delete(words, row.name)
	}
	if len(words) > 0 {
		t.Errorf("no flag for %v", words)
	}
}

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
