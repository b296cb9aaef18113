//go:build !windows

package main

// mail_unix_test.go holds inboxes to what only Unix can put in their way.

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMailPipeAsInbox: opening one would block until somebody writes.
func TestMailPipeAsInbox(t *testing.T) {
	x, dir := mailTeam(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "arch.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "codex", Text: "hi"})
	_, _, err2 := x.list(t.Context(), "crew", "arch", mailFilter{})
	for _, err := range []error{err, err2} {
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%v", err)
		}
	}
}
