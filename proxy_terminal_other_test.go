//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// scriptTerminal is Linux's alone: a script asks for it behind [linux].
func scriptTerminal(ts *testscript.TestScript, neg bool, args []string) {
	ts.Fatalf("no pseudo-terminals here")
}
