//go:build !linux

package main

// mail_peers_other_test.go is mail_peers_linux_test.go where that isn't to be had.

import (
	"os"
	"testing"
)

// exchangeFiles stands for the exchange of two names, which takes a call of its own on every system.
func exchangeFiles(a, b string) error {
	third := a + ".swap"
	if err := renameOver(b, third); err != nil {
		return err
	}
	if err := renameOver(a, b); err != nil {
		return err
	}
	return renameOver(third, a)
}

// asNobody skips where modes don't count: for root, and on Windows.
func asNobody(t *testing.T, _ string) (back func()) {
	if os.Getuid() <= 0 {
		t.Skip("no mode holds this user back")
	}
	return func() {}
}
