package main

// main_help_test.go holds the table of commands and flags to what the commands take, and the texts to their shape. The
// spellings of help are pinned by
// testdata/script/help-every-spelling.txtar.

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"unicode/utf8"
)

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
