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
			agentFile{Name: "code-reviewer", Description: "Use it after changes. Examples: <example>user: \"hi\"</example>", Model: "gpt-5.6-codex",
				Tools: []string{"Read", "Grep", "Bash(git log, git diff)"}, Body: "You review code."}},
		{"a Claude model is not applied and says so", "---\nmodel: sonnet\n---\nx", agentFile{ModelNote: `the agent file's model "sonnet" is a Claude model and was not applied`, Body: "x"}},
		{"inherit means none", "---\nmodel: inherit\n---\nx", agentFile{Body: "x"}},
		{"single quotes", "---\nname: 'it''s' # really\n---\nx", agentFile{Name: "it's", Body: "x"}},
		{"double quotes", "---\nname: \"a\\\"b\\u0041\\x42\\t\\\\\" \n---\nx", agentFile{Name: "a\"bAB\t\\", Body: "x"}},
		{"quoted over lines", "---\ndescription: \"one  \n  two\\\n  three\n\n  four\"\nname: n\n---\nx", agentFile{Name: "n", Description: "one twothree\nfour", Body: "x"}},
		{"plain over lines", "---\ndescription: one\n  two\n\n  three # end\nname: n\n---\nx", agentFile{Name: "n", Description: "one two\nthree", Body: "x"}},
		{"value on the next line", "---\nname:\n  n\ndescription:\n  \"d\"\n---\nx", agentFile{Name: "n", Description: "d", Body: "x"}},
		{"literal block", "---\ndescription: |\n  one:\n    two # kept\n\n  three\n\nname: n\n---\nx", agentFile{Name: "n", Description: "one:\n  two # kept\n\nthree", Body: "x"}},
		{"folded block", "---\ndescription: >- # why\n  one\n  two\n\n  three\n    four\n  five\nname: n\n---\nx", agentFile{Name: "n", Description: "one two\nthree\n  four\nfive", Body: "x"}},
		{"a key inside a block is text", "---\nnotes: |\n  model: gpt-evil\n  ---\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
		{"a key inside quotes is text", "---\nnotes: \"a\nmodel: gpt-evil\n\"\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
		{"a key inside brackets is text", "---\nnotes: [a,\nmodel: gpt-evil,\n]\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
		{"a nested map is passed over", "---\nhooks:\n  name: evil\n  list:\n    - model: evil\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
		{"inline list", "---\ntools: [Read, \"Edit, all\", 'it''s', ] # c\n---\nx", agentFile{Tools: []string{"Read", "Edit, all", "it's"}, Body: "x"}},
		{"inline list over lines", "---\ntools: [Read,\n  Edit # c\n  ]\nname: n\n---\nx", agentFile{Name: "n", Tools: []string{"Read", "Edit"}, Body: "x"}},
		{"list of lines", "---\ntools:\n  - Read # c\n  # c\n  - \"Edit\"\nname: n\n---\nx", agentFile{Name: "n", Tools: []string{"Read", "Edit"}, Body: "x"}},
		{"list without indentation", "---\ntools:\n- Read\n- Edit\nname: n\n---\nx", agentFile{Name: "n", Tools: []string{"Read", "Edit"}, Body: "x"}},
		{"odd tools harm nobody", "---\ntools: *\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
		{"null", "---\nname:\nmodel: ~\neffort: null # none\ndescription: \"null\"\n---\nx", agentFile{Description: "null", Body: "x"}},
		{"effort", "---\neffort: high\n---\nx", agentFile{Effort: "high", Body: "x"}},
		{"comments and blank lines", "---\n# c\n\nname: n#1 # c\n  # c\n---\nx", agentFile{Name: "n#1", Body: "x"}},
		{"indented as a whole", "---\n  name: n\n  model: m\n---\nx", agentFile{Name: "n", Model: "m", Body: "x"}},
		{"quoted keys", "---\n\"name\": n\n'model' : m\n---\nx", agentFile{Name: "n", Model: "m", Body: "x"}},
		{"a model's tag", "---\nmodel: ollama:llama3\n---\nx", agentFile{Model: "ollama:llama3", Body: "x"}},
		{"unknown keys may be nonsense", "---\nargument-hint: [a] [b]\nx: *alias\ny: \"a\" b\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
		{"nonsense after an unknown key", "---\ncolor: red\n%%%\nname: n\n---\nx", agentFile{Name: "n", Body: "x"}},
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
		{"---\nname: 'a\nmodel: m\n---\nx", "line 2: name: a quote is opened and never closed"},
		{"---\ncolor: \"a\nmodel: m\n---\nx", "line 3: model: a quote opened on line 2 is never closed and may hold it"},
		{"---\ncolor: [a\nmodel: m\n---\nx", "line 3: model: a bracket opened on line 2 is never closed"},
		{"---\nx:\n  - \"a\nmodel: m\"\n---\nx", "line 4: model: a quote opened on line 2 is never closed"},
		{"---\nname: |\n    \n  # d\n---\nx", "line 2: name: a blank line above"},
		{"---\nx: y\n&a name: n\n---\nx", "line 3: name: YAML's anchors, tags"},
		{"---\nx: y\n? model\n: m\n---\nx", "line 3: model: YAML's anchors, tags"},
		{"---\nname: " + strings.Repeat("n", maxFrontMatter) + "\n---\nx", "line 1: the front matter has 65542 bytes, the limit is 64 KiB"},
		{"---\nname: n\nname: m\n---\nx", "line 3: name: it is given twice, first on line 2"},
		{"---\nmodel: *m\n---\nx", "line 2: model: YAML's anchors"},
		{"---\nmodel: !!str m\n---\nx", "line 2: model: YAML's anchors"},
		{"---\nmodel: [a]\n---\nx", "line 2: model: it is a list"},
		{"---\nmodel:\n  a: b\n---\nx", "line 2: model: it is a map"},
		{"---\nmodel: {a: b}\n---\nx", "line 2: model: a map"},
		{"---\nname: \"\\q\"\n---\nx", `line 2: name: the escape "\\q"`},
		{"---\nname: @x\n---\nx", `line 2: name: a value can't begin with "@"`},
		{"---\nname: - x\n---\nx", `line 2: name: a value can't begin with "- "`},
		{"---\nname: |x\n  a\n---\nx", "line 2: name: the block's head"},
		{"---\nname:\n\tx\n---\nx", "line 2: name: a tab"},
		{"---\nname: x\n\ty\n---\nx", "line 2: name: more lines follow"},
		{"---\nname: x # c\n  y\n---\nx", "line 2: name: more lines follow"},
		{"---\nname:x\n---\nx", "line 2: name: a blank is missing after the colon"},
		{"---\ndescription: Use it\n\n<example>\nmodel: m\n---\nx", "line 2: description: line 4 after it is no `key: value`"},
		{"---\n  name: n\nmodel: m\n---\nx", "line 3: the front matter begins indented by 2"},
		{"---\n{name: n}\n---\nx", "line 2: front matter in braces"},
		{"---\nname: n\nx", "line 1: the front matter is never closed"},
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
		"big.md":      "is longer than 1024 KiB (it has 1048577 bytes)",
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

// TestFrontMatterMadeToBeSlow: whatever is opened again and again, or goes on for long, is read once. Read again from
// each line, any of these would take minutes.
func TestFrontMatterMadeToBeSlow(t *testing.T) {
	for _, unit := range []string{"x: [\n", "x: '\n", "x: {\ny: \"\n", "x:\n  - '\n", " \n", "x: >\n", "- a\n", "&a b\n"} {
		for _, head := range []string{"x: ", "x: '", ""} {
			doc := "---\n" + head + strings.Repeat(unit, maxFrontMatter/len(unit)-10) + "\n---\nbody"
			if _, body, err := parseFrontMatter(doc, usedInAgentFile); err == nil && body != "body" && body != doc {
				t.Errorf("%q %q: %.40q", head, unit, body)
			}
		}
	}
	doc := "---\nx: [" + strings.Repeat(" ", maxFrontMatter/2) + "a]\nname: n\n---\nbody"
	if fields, _, err := parseFrontMatter(doc, usedInAgentFile); err != nil || fields["name"].text != "n" {
		t.Error(err)
	}
}

// FuzzFrontMatter: no input makes it panic or loop, line ends don't matter, the body is the document's end, and a
// quoted name comes out as it went in whatever stands above it.
func FuzzFrontMatter(f *testing.F) {
	for _, s := range []string{
		"---\nname: a\n---\nbody", "---\nname: 'a\n  b'\n---\n", "---\ntools: [a, 'b', \"c\\n\"]\nx: {a: [b]}\n---\n", "---\ntools:\n- a\n- b\n---\n",
		"---\ndescription: >+2\n    a\n\n   b\n  c\n\n---\n", "---\nx: \"\\U0001F600\\\n  b\nname: c\n---\n", "---\n  a: b\n  c:\n    d\n---\n", "---\n{a}\n---\n",
		"---\n? a\n: b\n---\n", "---\nname:x\n---\n", "---", "---\n\n", "---\n\ta: b\n---\n", "---\na: #\n b\n---\n", "---\na:\n - b: c\n   d\n---\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc := strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\r", "")
		fields, body, err := parseFrontMatter(doc, usedInAgentFile)
		if err == nil && (!strings.HasSuffix(doc, body) || fields == nil && body != doc) {
			t.Errorf("body %q", body)
		}
		for key, v := range fields {
			if v.line < 2 || v.line > strings.Count(doc, "\n")+1 || v.open != "" && v.bad == "" {
				t.Errorf("%s: %+v", key, v)
			}
		}
		name, _ := json.Marshal(strings.ToValidUTF8(s, "?")) // a JSON string is a double-quoted YAML scalar
		doc = "---\nname: " + string(name) + "\ndescription: " + string(name) + "\n---\nbody"
		want := strings.TrimSpace(strings.ToValidUTF8(s, "?"))
		if len(doc) > maxFrontMatter {
			return
		}
		if a, err := parseAgentFile(doc); err != nil || a.Name != want || a.Description != want || a.Body != "body" {
			t.Errorf("%s: %+v, %v", doc, a, err)
		}
		single := strings.ReplaceAll(strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return '_'
			}
			return r
		}, want), "'", "''")
		doc = "---\nother: '" + single + "'\nname: n\n---\nbody"
		if a, err := parseAgentFile(doc); err != nil || a.Name != "n" {
			t.Errorf("%s: %+v, %v", doc, a, err)
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
