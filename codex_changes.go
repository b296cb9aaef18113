package main

// codex_changes.go owns what a turn has changed in files: the reading of the diff that Codex tells of its own edits,
// and the short form in which every result tells of them. What a shell command changed is in no such diff.
// session_run.go gathers the diffs. The reading must never fail: a diff that is no diff changes nothing.

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxChangedFiles is how many files a result names.
	maxChangedFiles = 50
	// maxDiffBytes is how much of a turn's diff a session holds on to, of one thread.
	maxDiffBytes = 8 << 20
)

// turnChanges is what a turn changed.
type turnChanges struct {
	Files    []changedFile `json:"files"`
	Added    int           `json:"added" doc:"Lines, in all files"`
	Removed  int           `json:"removed"`
	More     int           `json:"more,omitempty" doc:"Changed files that files does not name"`
	DiffFile string        `json:"diff_file,omitempty" doc:"File with the whole diff"`
}

// changedFile is one file that a turn changed.
type changedFile struct {
	Path    string `json:"path"`
	Change  string `json:"change" doc:"added, modified, deleted or renamed"`
	Added   int    `json:"added" doc:"Lines"`
	Removed int    `json:"removed"`
}

// add takes in a diff in git's format. Absolute paths below cwd are told from there, as newer versions do.
func (c *turnChanges) add(diff, cwd string) {
	var f *changedFile
	file := func() {
		if f == nil {
			return
		}
		if rel, err := filepath.Rel(cwd, f.Path); filepath.IsAbs(f.Path) && err == nil && filepath.IsLocal(rel) {
			f.Path = filepath.ToSlash(rel)
		}
		c.Added, c.Removed = c.Added+f.Added, c.Removed+f.Removed
		if i := slices.IndexFunc(c.Files, func(o changedFile) bool { return o.Path == f.Path }); i >= 0 {
			o := &c.Files[i] // a subagent's turn changed it too
			o.Added, o.Removed = o.Added+f.Added, o.Removed+f.Removed
			return
		}
		c.Files = append(c.Files, *f)
	}
	old, new := 0, 0 // lines of the hunk that are to come
	for line := range strings.Lines(diff) {
		line = strings.TrimRight(line, "\r\n")
		if old > 0 || new > 0 {
			switch {
			case strings.HasPrefix(line, "+"):
				f.Added, new = f.Added+1, new-1
			case strings.HasPrefix(line, "-"):
				f.Removed, old = f.Removed+1, old-1
			case !strings.HasPrefix(line, `\`):
				old, new = old-1, new-1
			}
			continue
		}
		if names, ok := strings.CutPrefix(line, "diff --git "); ok {
			file()
			f = headerFile(names)
		}
		if f == nil {
			continue
		}
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "new":
			f.Change = "added"
		case "deleted":
			f.Change = "deleted"
		case "---", "+++":
			if name := strings.TrimSuffix(rest, "\t"); name != "/dev/null" && (word == "+++" || f.Change == "deleted") {
				f.Path = name[min(2, len(name)):] // without a/ or b/
			}
		case "@@":
			at, _ := hunkHead(line)
			old, new = at[1], at[3]
		}
	}
	file()
}

// headerFile reads `a/OLD b/NEW`. Two names are a renaming, which Codex tells by nothing else.
func headerFile(names string) *changedFile {
	if half := len(names) / 2; len(names)%2 == 1 && names[half] == ' ' && strings.HasPrefix(names, "a/") &&
		names[2:half] == strings.TrimPrefix(names[half+1:], "b/") {
		return &changedFile{Path: names[2:half], Change: "modified"}
	}
	_, path, _ := strings.Cut(names, " b/")
	return &changedFile{Path: path, Change: "renamed"}
}

// hunkHead reads `@@ -1,2 +1,3 @@` as start and count of old and new; false, and four zeros, for any other head.
func hunkHead(line string) (n [4]int, ok bool) {
	words := strings.Fields(line)
	if len(words) < 4 || words[0] != "@@" || words[3] != "@@" {
		return n, false
	}
	for i, word := range words[1:3] {
		at, count, counted := strings.Cut(word[1:], ",")
		if !counted {
			count = "1"
		}
		a, err := strconv.ParseUint(at, 10, 31)
		c, err2 := strconv.ParseUint(count, 10, 31)
		if word[0] != "-+"[i] || err != nil || err2 != nil {
			return [4]int{}, false
		}
		n[2*i], n[2*i+1] = int(a), int(c)
	}
	return n, true
}

// short names the most files that a result has room for, and counts the others.
func (c *turnChanges) short(most int) *turnChanges {
	if c == nil || len(c.Files) <= most {
		return c
	}
	cut := *c
	cut.Files, cut.More = c.Files[:most], c.More+len(c.Files)-most
	return &cut
}
