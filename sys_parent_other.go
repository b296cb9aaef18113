//go:build !linux

package main

// The rest of sys_parent_linux.go's promise where the kernel signals nobody: on
// macOS a child is left to the end of its stdin, on Windows the job object of
// sys_windows.go ends it with us. codex_child.go is the only caller.

import "os/exec"

// termOnParentDeath: this system can't.
func termOnParentDeath(*exec.Cmd) bool { return false }
