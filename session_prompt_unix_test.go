//go:build unix

package main

// session_prompt_unix_test.go holds the reading of prompt and agent files to files that
// never answer: a named pipe must be refused, since opening it would block for
// ever.

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNamedPipesNeverBlock: opening one to read would wait for a writer that never comes.
func TestNamedPipesNeverBlock(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, map[string]string{"r/.git/objects/": "", "r/.git/refs/": "", "w/": ""})
	for _, name := range []string{"pipe.md", "r/.git/HEAD", "w/.git"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Skip(err)
		}
	}
	for _, path := range []string{"pipe.md", "/dev/zero"} {
		if _, err := readAgentFile(path, dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := loadPromptFile(filepath.Join(dir, "pipe.md")); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Error(err)
	}
	for _, cwd := range []string{"r", "w"} {
		if f := readRepo(filepath.Join(dir, cwd)); f.Root != nil {
			t.Errorf("%s: %s", cwd, showRepo(f))
		}
	}
}
