package main

// acp_diff_test.go holds the patch reader to what Codex writes, and whole files
// to what stands on the disk before, while and after Codex writes them.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shownDiff is one diff block.
type shownDiff struct {
	Type, Path, OldText, NewText string
	Null                         bool `json:"-"`
}

// diffsOf are the diff blocks of the patch as it is announced.
func diffsOf(t *testing.T, o acpEncoding, phase string, files string) (out []shownDiff, call json.RawMessage) {
	t.Helper()
	r := newACPRig(t, o)
	r.begin()
	status := map[string]string{"started": "inProgress", "completed": "completed"}[phase]
	r.item(phase, `{"type":"fileChange","id":"p","changes":`+files+`,"status":"`+status+`"}`)
	call = json.RawMessage(r.all()[0])
	eachElement(rawField(call, "content"), func(c json.RawMessage) {
		var d shownDiff
		if err := json.Unmarshal(c, &d); err != nil {
			t.Fatal(err)
		}
		d.Null = string(rawField(c, "oldText")) == "null"
		out = append(out, d)
	})
	return out, call
}

func change(path, kind, diff string) string {
	return string(toJSON(map[string]any{"path": path, "kind": map[string]any{"type": kind, "move_path": nil}, "diff": diff}))
}

func TestACPDiffOfChangedFile(t *testing.T) {
	const hunk = "@@ -2,3 +2,4 @@\n two\n-three\n+THREE\n+and more\n four\n"
	const before = "one\ntwo\nthree\nfour\nfive\n"
	const after = "one\ntwo\nTHREE\nand more\nfour\nfive\n"
	tests := []struct {
		name, phase string
		replay      bool
		file        string // what is there, "" for none
		diff        string
		old, new    string
	}{
		{"as it starts", "started", false, before, hunk, before, after},
		{"Codex was faster", "started", false, after, hunk, before, after},
		{"told when it is done", "completed", false, after, hunk, before, after},
		{"another text", "started", false, "something else\n", hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"no file", "started", false, "", hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"loaded", "completed", true, before, hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"too long", "started", false, before + strings.Repeat("x\n", maxDiffFile/2), hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"no text", "started", false, before + "\xff\xfe", hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"two hunks", "started", false, before, "@@ -1,1 +1,2 @@\n+zero\n one\n@@ -5 +6,0 @@\n-five\n", before, "zero\none\ntwo\nthree\nfour\n"},
		{"no line end at the end", "started", false, "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "a\nb", "a\nc"},
		{"line ends of DOS", "started", false, "a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", "a\r\nb\r\n", "a\r\nc\r\n"},
		{"into an empty file", "started", false, "\n", "@@ -0,0 +1,1 @@\n+x\n", "\n", "x\n\n"},
		{"headers and a blank line without its blank", "started", false, "a\n\nb\n", "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@ func x()\n a\n\n-b\n+c\n", "a\n\nb\n", "a\n\nc\n"},
		{"a model's patch, without numbers", "started", false, before, "@@ func x()\n two\n-three\n+THREE\n@@\n+end\n", "two\nthree\n", "two\nTHREE\nend\n"},
		{"numbers that lie", "started", false, before, "@@ -1,99 +1,1 @@\n-one\n@@ -3 +3 @@\n-three\n+drei\n", "one\nthree\n", "drei\n"},
		{"nothing", "started", false, before, "", before, before},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "a.go")
			if tt.file != "" {
				if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, call := diffsOf(t, acpEncoding{Cwd: dir, Replay: tt.replay}, tt.phase, "["+change(file, "update", tt.diff)+"]")
			if len(got) != 1 || got[0] != (shownDiff{"diff", file, tt.old, tt.new, false}) {
				t.Errorf("got  %+v\nwant %q → %q", got, tt.old, tt.new)
			}
			if title, kind := stringField(call, "title"), stringField(call, "kind"); title != "Edit a.go" || kind != "edit" {
				t.Errorf("%q of kind %q", title, kind)
			}
			if now, _ := os.ReadFile(file); tt.file != string(now) {
				t.Errorf("the file was changed")
			}
		})
	}
}

func TestACPDiffOfFilesThatComeAndGo(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("moved"), []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	move := string(toJSON(map[string]any{"path": at("old"), "kind": map[string]any{"type": "update", "move_path": at("moved")}, "diff": "@@ -1,2 +1,2 @@\n one\n-zwei\n+two\n\n\nMoved to: " + at("moved")}))
	gone := change(at("gone"), "delete", "bye\n")
	tests := []struct {
		name, files, title, kind string
		want                     []shownDiff
	}{
		{"created", "[" + change(at("new"), "add", "hi\n") + "]", "Create new", "edit", []shownDiff{{"diff", at("new"), "", "hi\n", true}}},
		{"a relative path", "[" + change("sub/new", "add", "") + "]", "Create sub/new", "edit", []shownDiff{{"diff", at("sub/new"), "", "", true}}},
		{"deleted", "[" + gone + "]", "Delete gone", "delete", []shownDiff{{"diff", at("gone"), "bye\n", "", false}}},
		{"moved", "[" + move + "]", "Move old → moved", "move", []shownDiff{{"diff", at("moved"), "one\nzwei\n", "one\ntwo\n", false}}},
		{"several", "[" + gone + "," + change(at("new"), "add", "hi\n") + "," + change("/else/where", "delete", "") + "]", "Edit 3 files: gone, new, /else/where", "edit",
			[]shownDiff{{"diff", at("gone"), "bye\n", "", false}, {"diff", at("new"), "", "hi\n", true}, {"diff", "/else/where", "", "", false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, call := diffsOf(t, acpEncoding{Cwd: dir}, "started", tt.files)
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v", got)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("got  %+v\nwant %+v", got[i], tt.want[i])
				}
			}
			if title, kind := stringField(call, "title"), stringField(call, "kind"); title != tt.title || kind != tt.kind {
				t.Errorf("%q of kind %q, want %q of kind %q", title, kind, tt.title, tt.kind)
			}
		})
	}
}

// TestACPDiffsAreBounded: a patch of any size fits a client's line.
func TestACPDiffsAreBounded(t *testing.T) {
	var files []string
	for range 9 {
		files = append(files, change("/w/f", "add", strings.Repeat("x", 1<<20)))
	}
	got, call := diffsOf(t, acpEncoding{}, "started", "["+strings.Join(files, ",")+"]")
	if len(got) != 5 || got[4].Type != "content" || len(call) > maxDiffs+maxACPText {
		t.Errorf("%d blocks of %d bytes", len(got), len(call))
	}
}

func FuzzReadPatch(f *testing.F) {
	f.Add("one\ntwo\nthree\n", "@@ -1,2 +1,3 @@\n one\n+x\n two\n")
	f.Add("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n")
	f.Add("", "@@ -0,0 +1,1 @@\n+x\n@@ -9999999 +1 @@\n x")
	f.Add("x\n", "@@\n-x\n+y\n\n\nMoved to: z")
	f.Fuzz(func(t *testing.T, text, diff string) {
		hunks := readPatch(diff)
		before, after := hunkTexts(hunks)
		if len(before) > 2*len(diff)+len(hunks) || len(after) > 2*len(diff)+len(hunks) {
			t.Fatalf("%d bytes of hunks make %d and %d", len(diff), len(before), len(after))
		}
		if there, ok := patched(text, hunks, false); ok {
			if back, ok := patched(there, hunks, true); ok && back != text {
				t.Fatalf("%q with %q is %q, and back %q", text, diff, there, back)
			}
		}
	})
}
