//go:build unix

package main

// mock_unix.go owns what the mock Codex needs of a Unix: a session for every
// shell, as in Codex, its death as a whole, and a lock that ends with the
// process. The other mock files call it.

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func mockOwnSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// mockKillSession kills a shell started with mockOwnSession and all it began.
func mockKillSession(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gone already is as good
}

func mockTryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// mockSurviveSIGPIPE has writes to a client that is gone fail, as in Rust. Not
// signal.Ignore, which the shells would inherit.
func mockSurviveSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
