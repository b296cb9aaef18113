package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// reviewedRepo is a repository with two commits of a file a.
func reviewedRepo(t *testing.T, name string) (dir string, git func(args ...string)) {
	needGit(t)
	dir = filepath.Join(t.TempDir(), name)
	wantNil(t, os.MkdirAll(dir, 0o700))
	git = func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main")
	for _, text := range []string{"1\n", "2\n"} {
		wantNil(t, os.WriteFile(filepath.Join(dir, "a"), []byte(text), 0o600))
		git("add", "a")
		git("commit", "-q", "-m", "m")
	}
	return dir, git
}

// TestReviewRefusesWhatNamesNoCommit: ^HEAD was taken for an id, and the change was the reverse of what was meant.
func TestReviewRefusesWhatNamesNoCommit(t *testing.T) {
	t.Parallel()
	dir, _ := reviewedRepo(t, "r")
	for _, name := range []string{"^HEAD", "-1", "--all", "HEAD..HEAD~1", "HEAD^@", "HEAD:a", "HEAD^{tree}", "HEAD --stat",
		"HEAD\n", "none"} {
		if r, err := findReview(t.Context(), dir, reviewTask{target: reviewCommit, commit: name}); err == nil {
			t.Errorf("commit %q is %+v", name, r.change)
		}
		if r, err := findReview(t.Context(), dir, reviewTask{target: reviewBranch, base: name}); err == nil {
			t.Errorf("base %q is %+v", name, r.change)
		}
	}
}

// TestReviewCountsUntrackedFiles: no file is too long for its lines to be counted, and what is no text has none. A
// binary file of some megabytes was told as beyond the model's window, as if it were read.
func TestReviewCountsUntrackedFiles(t *testing.T) {
	dir, _ := reviewedRepo(t, oddName())
	long := strings.Repeat(strings.Repeat("x", 99)+"\n", 70_000)
	for name, text := range map[string]string{"binary": "\x00" + long, "long": long, "more": "1\n2"} {
		wantNil(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	wantNil(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	r, err := findReview(t.Context(), filepath.Join(dir, "sub"), reviewTask{target: reviewUncommitted})
	wantNil(t, err)
	if c := r.change; c.Files != 3 || c.Added != 70_002 || r.bytes != int64(len(long)+3) {
		t.Errorf("the change is %+v with %d bytes", c, r.bytes)
	}
}

// TestReviewOfACutHistory: a commit whose parent a shallow clone lacks was told as one that adds every file.
func TestReviewOfACutHistory(t *testing.T) {
	t.Parallel()
	dir, git := reviewedRepo(t, "r")
	clone := filepath.Join(t.TempDir(), "clone")
	git("clone", "-q", "--depth", "1", "file:///"+strings.TrimPrefix(filepath.ToSlash(dir), "/"),
		clone)
	_, err := findReview(t.Context(), clone, reviewTask{target: reviewCommit, commit: "HEAD"})
	if err == nil || !strings.Contains(err.Error(), "history is cut off") {
		t.Errorf("the review of a commit without its parent: %v", err)
	}
	r, err := findReview(t.Context(), dir, reviewTask{target: reviewCommit, commit: "HEAD~1"})
	if err != nil || r.change.Base != nil || r.change.Added != 1 {
		t.Errorf("the review of the first commit: %+v, %v", r, err)
	}
	git("checkout", "-q", "--orphan", "begun") // and other branches have commits
	r, err = findReview(t.Context(), dir, reviewTask{target: reviewCommit, commit: "main"})
	if err != nil || r.change.Base == nil {
		t.Errorf("the review of a commit from a branch without any: %+v, %v", r, err)
	}
}

// TestWorkBegan: the commits of a session's own are its work, and what a pull or a checkout brings isn't. A new branch
// and a stash move nothing.
func TestWorkBegan(t *testing.T) {
	t.Parallel()
	dir, git := reviewedRepo(t, "r")
	began := func(from string) (base, head string) {
		t.Helper()
		base, head, err := workBegan(t.Context(), dir, from)
		wantNil(t, err)
		return base, head
	}
	from, head := began("")
	if from != head {
		t.Errorf("without a beginning, it is %s and HEAD %s", from, head)
	}
	git("checkout", "-q", "-b", "topic")
	git("commit", "-q", "--allow-empty", "-m", "own")
	git("commit", "-q", "--allow-empty", "--amend", "-m", "own too")
	wantNil(t, os.WriteFile(filepath.Join(dir, "a"), []byte("3\n"), 0o600))
	git("stash", "-q")
	git("stash", "pop", "-q")
	if base, _ := began(from); base != from {
		t.Errorf("after commits of one's own it is %s, not %s", base, from)
	}
	git("branch", "theirs", "main")
	git("checkout", "-q", "theirs")
	git("commit", "-q", "--allow-empty", "-m", "theirs")
	git("checkout", "-q", "topic")
	git("merge", "-q", "-m", "merged", "theirs")
	_, merged := began("")
	git("commit", "-q", "--allow-empty", "-m", "after it")
	if base, _ := began(from); base != merged {
		t.Errorf("after a merge it is %s, not %s", base, merged)
	}
	git("checkout", "-q", "--orphan", "fresh")
	nothing, _ := began(from)
	git("commit", "-q", "-m", "first")
	if base, _ := began(nothing); base != nothing || base == from {
		t.Errorf("before the first commit it was %s, and then is %s", nothing, base)
	}
}

// TestContentSum: a change is the same content before and after it is committed, and another one after every edit.
func TestContentSum(t *testing.T) {
	t.Parallel()
	dir, git := reviewedRepo(t, oddName())
	base, _, err := workBegan(t.Context(), dir, "")
	wantNil(t, err)
	seen := map[string]int{}
	sum := func() string {
		t.Helper()
		r, err := findReview(t.Context(), dir, reviewTask{target: reviewUncommitted, base: base})
		wantNil(t, err)
		s, err := r.contentSum(t.Context())
		wantNil(t, err)
		return s
	}
	write := func(name, text string) {
		wantNil(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for when, do := range []func(){
		func() {},
		func() { write("a", "3\n") },
		func() { write("new one", "1\n") },
		func() { write("new one", "2\n") },
		func() { wantNil(t, os.Remove(filepath.Join(dir, "a"))) },
	} {
		do()
		s := sum()
		if other, again := seen[s]; again {
			t.Errorf("after edit %d the content is that after edit %d", when, other)
		}
		seen[s] = when
	}
	before := sum()
	git("add", "-A")
	git("commit", "-q", "-m", "all")
	if after := sum(); after != before {
		t.Errorf("the content is %s before the commit and %s after it", before, after)
	}
}
