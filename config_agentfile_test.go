package main

// config_agentfile_test.go holds agent files to FR-16: what front matter is understood,
// what is refused with which words, where a file is looked for, and that no file
// made for it can make reading slow.

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestAgentFileFrontMatter(t *testing.T) {
	for _, tt := range []struct {
		rule, text string
		want       agentFile
	}{
		{"without front matter all is prompt", "Review the code.\n\n- a: b\n", agentFile{Body: "Review the code.\n\n- a: b"}},
		{"as Claude Code writes them",
			"---\nname: code-reviewer\ndescription: Use it after changes. Examples: <example>user: \"hi\"</example>\ntools: Read, Grep, Bash(git log, git diff)\nmodel: gpt-5.6-codex\ncolor: blue\n---\n\nYou review code.\n",
			agentFile{Name: "code-reviewer", Model: "gpt-5.6-codex", Body: "You review code."}},
		{"a Claude model is not applied and says so", "---\nmodel: sonnet\n---\nx", agentFile{ModelNote: `the agent file's model "sonnet" is a Claude model and was not applied`, Body: "x"}},
		{"inherit means none", "---\nmodel: inherit\n---\nx", agentFile{Body: "x"}},
		{"single quotes", "---\nname: 'it''s' # really\n---\nx", agentFile{Name: "it's", Body: "x"}},
		{"double quotes", "---\nname: \"a\\\"b\\u0041\\t\\\\\" \n---\nx", agentFile{Name: "a\"bA\t\\", Body: "x"}},
		{"what isn't used may be any YAML", "---\ndescription: |\n  one: two\n\n  model: evil\ntools:\n- Read\nhooks:\n  name: evil\nx: *alias\ny: \"a\" b\n%%%\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
		{"null", "---\nname:\nmodel: ~\neffort: null # none\n---\nx", agentFile{Body: "x"}},
		{"effort", "---\neffort: high\n---\nx", agentFile{Effort: "high", Body: "x"}},
		{"comments and blank lines", "---\n# c\n\nname: n#1 # c\n  # c\n---\nx", agentFile{Name: "n#1", Body: "x"}},
		{"quoted keys", "---\n\"name\": n\n'model' : m\n---\nx", agentFile{Name: "n", Model: "m", Body: "x"}},
		{"a model's tag", "---\nmodel: ollama:llama3\n---\nx", agentFile{Model: "ollama:llama3", Body: "x"}},
		{"rules in a text are no front matter", "---\nOnce upon a time.\n---\nx", agentFile{Body: "---\nOnce upon a time.\n---\nx"}},
		{"a rule at the top", "---\n\nNote: this goes on.\n", agentFile{Body: "---\n\nNote: this goes on."}},
		{"empty front matter", "---\n---\nx", agentFile{Body: "x"}},
		{"the body keeps its own rules and indentation", "---\nname: n\n---  \n\n  a\n---\nb\n\n", agentFile{Name: "n", Body: "  a\n---\nb"}},
	} {
		for _, eol := range []string{"\n", "\r\n"} {
			got, err := readAgentFile(inFile(t, "\uFEFF"+strings.ReplaceAll(tt.text, "\n", eol)), "")
			got.Source = ""
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s (%q):\n got %+v, %v\nwant %+v", tt.rule, eol, got, err, tt.want)
			}
		}
	}
}

func TestAgentFileFrontMatterErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"---\nname: a: b\n---\nx", `line 2: name: it has a ": " in it: quote the value`},
		{"---\ncolor: x\nname: \"a\" b\n---\nx", "line 3: name: text follows the closing quote"},
		{"---\nname: 'a\nmodel: m\n---\nx", "line 2: name: its quote is never closed"},
		{"---\nname: \"\\q\"\n---\nx", "line 2: name: its quotes hold an escape"},
		{"---\nx: y\nname: \"a\\\n---\nx", "line 3: name: its quote is never closed"},
		{"---\nmodel: *m\n---\nx", `line 2: model: a value that begins with "*" isn't read`},
		{"---\nmodel: [a]\n---\nx", `line 2: model: a value that begins with "["`},
		{"---\nname: - x\n---\nx", `line 2: name: a value that begins with "-"`},
		{"---\nname: |\n  a\n---\nx", `line 2: name: a value that begins with "|"`},
		{"---\nmodel:\n  a: b\n---\nx", "line 3: model: its value isn't on one line"},
		{"---\nname: x\n  y\n---\nx", "line 3: name: its value isn't on one line"},
		{"---\nname:x\n---\nx", "line 2: name:x: front matter isn't read in this form"},
		{"---\ncolor: red\nname:x\n---\nx", "line 3: name:x: front matter isn't read in this form"},
		{"---\n  name: n\nmodel: m\n---\nx", "line 2: name: n: front matter isn't read in this form"},
		{"---\n{name: n}\n---\nx", "line 2: {name: n}: front matter isn't read in this form"},
		{"---\nname: n\nname: m\n---\nx", "line 3: name: it is given twice, first on line 2"},
		{"---\nname: n\nx", "front matter that can't be read: it is never closed"},
		{"---\neffort: very high\n---\nx", `line 2: effort "very high" is not one word`},
		{"---\nname: n\n---\n \n", "has no prompt"},
		{" \n", "is empty"},
		{"", "is empty"},
	} {
		path := inFile(t, tt.text)
		_, err := readAgentFile(path, "")
		var refused *agentFileError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestAgentFilePaths(t *testing.T) {
	base := t.TempDir()
	t.Setenv("HOME", base)
	t.Setenv("USERPROFILE", base)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.md", "body")
	write("full.md", strings.Repeat("x", maxAgentFile))
	write("big.md", strings.Repeat("x", maxAgentFile+1))
	write("latin.md", "one\ntw\xf6")
	if err := os.Mkdir(filepath.Join(base, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a.md", "./dir/../a.md", "~/a.md", filepath.Join(base, "a.md"), "full.md"} {
		if a, err := readAgentFile(path, base); err != nil || filepath.Dir(a.Source) != base {
			t.Errorf("%s: %+v, %v", path, a.Source, err)
		}
	}
	for path, want := range map[string]string{
		"":            "names no file",
		"none.md":     filepath.Join(base, "none.md") + ") does not exist",
		"a.md/b.md":   "",
		"dir":         "is a directory",
		"big.md":      "is longer than 1024 KiB: shorten it",
		"latin.md":    "is not UTF-8 text (line 2)",
		"nul\x00.md":  "can't be read",
		os.DevNull:    "",
		"~/none/x.md": "does not exist",
	} {
		var refused *agentFileError
		if _, err := readAgentFile(path, base); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", path, err, want)
		}
	}
}

func TestAgentFileUnreadable(t *testing.T) {
	path := inFile(t, "body")
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(path); err == nil {
		f.Close()
		t.Skip("this user may read everything")
	}
	if _, err := readAgentFile(path, ""); err == nil || !strings.Contains(err.Error(), "can't be read: permission denied") {
		t.Error(err)
	}
}

func TestForeignModel(t *testing.T) {
	for _, m := range []string{"sonnet", "Opus", "haiku", "opusplan", "sonnet[1m]", "claude", "claude-sonnet-4-5", "anthropic/claude-3", "us.anthropic.claude-opus-4:0"} {
		if foreignModel(m) == "" {
			t.Errorf("%s is Claude's", m)
		}
	}
	for _, m := range []string{"", "gpt-5.6", "o3", "opus-mt", "my-claude", "sonnet-like/llama"} {
		if note := foreignModel(m); note != "" {
			t.Errorf("%q: %s", m, note)
		}
	}
}

func TestImpliedIdentity(t *testing.T) {
	for name, want := range map[string]string{
		"code-reviewer": "code-reviewer", "Code Reviewer": "Code-Reviewer", " _x_ ": "x", "../../etc": "etc", "a / b": "a-b", "Ann's helper": "Anns-helper",
		"": "", "日本": "", "-_-": "", "größe": "gr-e", "7": "7", strings.Repeat("ab", 50): strings.Repeat("ab", 30), strings.Repeat("a", 59) + "-b": strings.Repeat("a", 59),
	} {
		if got := impliedIdentity(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// FuzzFrontMatter: no input makes it panic or loop, the body is the document's end, and a quoted name comes out as it
// went in.
func FuzzFrontMatter(f *testing.F) {
	for _, s := range []string{"---\nname: a\n---\nbody", "---\nname: 'a\n  b'\n---\n", "---\n{a}\n---\n", "---\nname:x\n---\n", "---", "---\n\n", "---\n\ta: b\n---\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc := strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\r", "")
		if a, err := parseAgentFile(doc); err == nil && !strings.HasSuffix(strings.TrimRight(doc, " \t\n"), a.Body) {
			t.Errorf("body %q", a.Body)
		}
		name, _ := json.Marshal(strings.ToValidUTF8(s, "?"))
		want := strings.TrimSpace(strings.ToValidUTF8(s, "?"))
		if a, err := parseAgentFile("---\nname: " + string(name) + "\n---\nbody"); err != nil || a.Name != want || a.Body != "body" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	})
}

func inFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.md")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
