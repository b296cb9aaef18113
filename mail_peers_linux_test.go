package main

// mail_peers_linux_test.go is what the tests beside other writers need of Linux.

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// exchangeFiles is how atm replaces an inbox.
func exchangeFiles(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// asNobody takes root's rights from the files that a test works with on its own goroutine: then a directory's mode
// counts for it too. back gives them again. The directories above dir can be passed through.
func asNobody(t *testing.T, dir string) (back func()) {
	t.Helper()
	for above := filepath.Dir(dir); above != os.TempDir() && len(above) > 4; above = filepath.Dir(above) {
		wantNil(t, os.Chmod(above, 0o755))
	}
	if os.Getuid() != 0 {
		return func() {}
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if _, err := unix.SetfsuidRetUid(65534); err != nil {
		t.Skip(err)
	}
	back = func() {
		if _, err := unix.SetfsuidRetUid(0); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(back)
	return back
}
