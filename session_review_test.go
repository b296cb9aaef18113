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
