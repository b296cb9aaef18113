//go:build !windows

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenNeverWaitsForAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	wantNil(t, unix.Mkfifo(path, 0o600))
	if _, err := openRegular(path); !errors.Is(err, errNotRegular) {
		t.Errorf("openRegular = %v, want errNotRegular", err)
	}
	if _, err := openOwn(path, os.O_WRONLY|os.O_APPEND, 0); !errors.Is(err, errNotRegular) {
		t.Errorf("openOwn = %v, want errNotRegular", err)
	}
}

// A full disk and too many open files are told with what to do, in the log and to
// callers; inotify's limits have the same errors and words of their own.
func TestShortage(t *testing.T) {
	for _, tt := range []struct {
		err  error
		hint string
	}{
		{&fs.PathError{Op: "write", Path: "/a", Err: syscall.ENOSPC}, "free some space"},
		{fmt.Errorf("saving: %w", &os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EDQUOT}), "free some space"},
		{os.NewSyscallError("pipe2", syscall.EMFILE), "ulimit -n"},
		{&fs.PathError{Op: "fork/exec", Path: "/codex", Err: syscall.ENFILE}, "ulimit -n"},
		{fmt.Errorf("watching: %w: %w", errNoWatch, syscall.ENOSPC), ""},
		{&fs.PathError{Op: "open", Path: "/a", Err: syscall.EACCES}, ""},
	} {
		var line bytes.Buffer
		newLogger(&line, "warn").Warn("m", "err", tt.err)
		for at, text := range map[string]string{"log": line.String(), "lease": heldError(tt.err, "", "ann", "").Message, "mail": mailRefused(tt.err).Message} {
			if has := strings.Contains(text, "free some space") || strings.Contains(text, "ulimit"); has != (tt.hint != "") || !strings.Contains(text, tt.hint) {
				t.Errorf("%s of %v: %s", at, tt.err, text)
			}
		}
	}
}
