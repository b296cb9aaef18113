//go:build !windows

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenNeverWaitsForAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openRegular(path); !errors.Is(err, errNotRegular) {
		t.Errorf("openRegular = %v, want errNotRegular", err)
	}
	if _, err := openOwn(path, os.O_WRONLY|os.O_APPEND, 0); !errors.Is(err, errNotRegular) {
		t.Errorf("openOwn = %v, want errNotRegular", err)
	}
}
