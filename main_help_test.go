package main

// main_help_test.go holds the table of main_help.go to the parsers, and the texts to their
// shape. The spellings of help are pinned by
// testdata/script/help-every-spelling.txtar.

import (
	"bytes"
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestFlagsAreTold: a command parses the flags of its rows and no others.
func TestFlagsAreTold(t *testing.T) {
	parsers := map[string]*flag.FlagSet{
		"serve":    serveFlagSet(&flagValues{}),
		"acp":      acpFlagSet(&flagValues{}),
		"config":   configFlagSet(&configAsk{}),
		"doctor":   doctorFlagSet(&doctorAsk{}),
		"sessions": sessionsFlagSet(&sessionsAsk{}),
		"summary":  summaryFlagSet(&flagValues{}),
		"audit":    auditFlagSet(&auditAsk{}),
		"tools":    toolsFlagSet(&toolsAsk{}),
	}
	for _, c := range commands() {
		var told, parsed []string
		for _, f := range c.flags {
			for _, n := range f.names() {
				told = append(told, strings.TrimPrefix(n, "--"))
			}
		}
		if set := parsers[c.name]; set != nil {
			set.VisitAll(func(f *flag.Flag) { parsed = append(parsed, f.Name) })
		}
		slices.Sort(told)
		slices.Sort(parsed)
		if !slices.Equal(told, parsed) {
			t.Errorf("%s: help tells %q, the parser knows %q", c.name, told, parsed)
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
		var args []string // every flag is taken, with the first of its values
		for _, f := range c.flags {
			for _, n := range f.names() {
				switch {
				case f.value == "":
					args = append(args, n)
				case len(f.words) > 0:
					args = append(args, n+"="+f.words[0])
				default:
					args = append(args, n, "7")
				}
			}
		}
		if _, code := ask(append(append([]string{c.name}, args...), "-h")...); code != 0 {
			t.Errorf("%s %q ends with %d", c.name, args, code)
		}
	}
}

// TestTheWordsOfAFlagAreTheSettings: what help and completion offer is what the
// configuration takes.
func TestTheWordsOfAFlagAreTheSettings(t *testing.T) {
	tried := 0
	for _, row := range serveRows() {
		if row.value != "" && len(row.words) == 0 {
			continue
		}
		for _, word := range row.words {
			tried++
			var fl flagValues
			set := serveFlagSet(&fl)
			if err := set.Parse([]string{"--" + row.name, word}); err != nil {
				t.Errorf("--%s %s: %v", row.name, word, err)
			}
			home := t.TempDir()
			cfg, err := loadConfig(func(name string) string {
				if name == "HOME" || name == "USERPROFILE" {
					return home
				}
				return ""
			}, home, fl)
			if err != nil {
				t.Errorf("--%s %s: %v", row.name, word, err)
			} else if len(cfg.warnings) > 0 {
				t.Errorf("--%s %s: %q", row.name, word, cfg.warnings)
			}
			if !strings.Contains(row.help, word) {
				t.Errorf("the help of --%s doesn't name %q", row.name, word)
			}
		}
	}
	if tried < 12 {
		t.Errorf("only %d words were tried", tried)
	}
}
