package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReviewFindings: what a reviewer said in the form asked for is read, and of a finding without one of its parts
// nothing is made up.
func TestReviewFindings(t *testing.T) {
	const place = `"code_location":{"absolute_file_path":"/r/a","line_range":{"start":2,"end":1}}`
	for _, c := range []struct{ finding, want string }{
		{`"title":" a\n b ","priority":0,` + place, "critical a b a:2-2"},
		{`"title":"t","priority":3,"confidence_score":7,` + place, "low t a:2-2"},
		{`"title":"t","priority":1,"code_location":{"absolute_file_path":"/q/a","line_range":{"start":0,"end":3}}`,
			"high t /q/a:0-3"},
		{`"title":" ","priority":1,` + place, ""},
		{`"title":"t","priority":4,` + place, ""},
		{`"title":"t","priority":null,` + place, ""},
		{`"title":"t","priority":1`, ""},
		{`"title":"t","priority":1,"code_location":{"absolute_file_path":"/r/a","line_range":null}`, ""},
		{`"title":"t","priority":1,"code_location":{"absolute_file_path":"/r/a","line_range":{"start":null,"end":3}}`, ""},
		{`"title":"t","priority":1,"code_location":{"absolute_file_path":"/r/a","line_range":{"start":3}}`, ""},
		{`"title":"t","priority":1,"code_location":{"absolute_file_path":"/r/a","line_range":{"start":-3,"end":1}}`, ""},
	} {
		got := ""
		answer := `So: {"findings":[{` + systemPaths(c.finding) + `}],"overall_correctness":"patch is incorrect"} That is all.`
		if found := readFindings(answer, systemPath("/r")); found != nil {
			f := (*found.Findings)[0]
			got = fmt.Sprintf("%s %s %s:%d-%d", f.Severity, f.Title, inUnixPaths(f.File), f.LineStart, f.LineEnd)
			if f.Confidence != nil {
				t.Errorf("%s: confidence %v", c.finding, *f.Confidence)
			}
		}
		if got != c.want {
			t.Errorf("%s is read as %q, want %q", c.finding, got, c.want)
		}
	}
}

// TestReviewBeyondTheWindow: a small change is not told to be larger than a window that something else has filled.
func TestReviewBeyondTheWindow(t *testing.T) {
	for _, c := range []struct {
		bytes  int64
		failed string
		window int64
		want   string
	}{{40, "", 1000, ""}, {8000, "", 1000, "beyond the model's window of 1000"}, {8000, "", 0, ""},
		{40, "contextWindowExceeded", 1000, "about 10 tokens, and with what its reviewer knew"}} {
		_, notes := (&review{bytes: c.bytes}).shown("failed", c.failed, c.window)
		if text := strings.Join(notes, " "); !strings.Contains(text, c.want) || (c.want == "") != (text == "") {
			t.Errorf("%+v: notes %q", c, notes)
		}
	}
}

// TestReviewTellsOfAllowingRules: Codex runs what its rules allow outside of the sandbox, and no setting holds that
// back.
func TestReviewTellsOfAllowingRules(t *testing.T) {
	dir := t.TempDir()
	wantNil(t, os.Mkdir(filepath.Join(dir, "rules"), 0o700))
	for name, text := range map[string]string{"a.rules": "prefix_rule(pattern=[\"ls\"], decision=\"forbidden\")\n" +
		"prefix_rule(pattern=[\"touch\"])", "b.rules": `prefix_rule(pattern=["rm"], decision="prompt")`,
		"c.txt": "prefix_rule("} {
		wantNil(t, os.WriteFile(filepath.Join(dir, "rules", name), []byte(text), 0o600))
	}
	large := filepath.Join(dir, "rules", "large.rules")
	wantNil(t, os.WriteFile(large, make([]byte, maxConfigSize+1), 0o600))
	got := allowingRules(filepath.Join(dir, "none"), dir)
	if want := []string{filepath.Join(dir, "rules", "a.rules"), large}; !slices.Equal(got, want) {
		t.Errorf("the rules that allow are in %q, want %q", got, want)
	}
}
