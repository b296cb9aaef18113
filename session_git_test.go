package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestGitStaysInItsDirectory: the caller's environment names another repository, as in a hook of git's.
func TestGitStaysInItsDirectory(t *testing.T) {
	needGit(t)
	here, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{here, other} {
		if _, err := gitText(context.Background(), dir, "init", "-q"); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_DIR", other+"/.git")
	top, err := gitWord(context.Background(), here, "rev-parse", "--git-dir")
	if err != nil || top != ".git" {
		t.Errorf("the repository of a directory is %q, %v, want its own", top, err)
	}
	if _, err := gitText(context.Background(), here, "rev-parse", "--verify", "none"); err == nil ||
		!strings.Contains(err.Error(), "Needed a single revision") {
		t.Errorf("git's own words are not in the error %v", err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := gitText(gone, here, "status"); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up ends with %v", err)
	}
	env := gitEnv([]string{"HOME=/h", "GIT_INDEX_FILE=x", "GIT_CONFIG_GLOBAL=y", "LC_ALL=de_DE"})
	if want := []string{"HOME=/h", "GIT_CONFIG_GLOBAL=y", "LC_ALL=C"}; !slices.Equal(env[:3], want) {
		t.Errorf("git's environment begins with %q, want %q", env[:3], want)
	}
}
