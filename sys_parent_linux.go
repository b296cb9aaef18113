package main

// What only Linux can do: have the kernel signal a child when its parent dies.
// codex_child.go is the only caller, and starts such a child from a thread that
// stays: the parent is the thread, not the process. Not for app-server, which
// this would end before its shells.

import (
	"os/exec"
	"syscall"
)

// termOnParentDeath has a command, not yet started, sent TERM when the thread
// that starts it ends. false: this system can't.
func termOnParentDeath(cmd *exec.Cmd) bool {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	return true
}
