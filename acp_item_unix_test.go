//go:build unix

package main

// acp_item_unix_test.go proves that a patch of what is no file reads nothing:
// a named pipe would hold the session for ever.

import (
	"path/filepath"
	"syscall"
	"testing"
)

func TestACPDiffReadsNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", filepath.Dir(pipe)} {
		got, _ := diffsOf(t, acpEncoding{}, "started", "["+change(path, "update", "@@ -1 +1 @@\n-a\n+b\n")+"]")
		if len(got) != 1 || got[0] != (shownDiff{"diff", path, "a\n", "b\n", false}) {
			t.Errorf("%s: got %+v", path, got)
		}
	}
}
