package main

// mock_windows.go owns what the mock Codex needs of Windows, in mock_unix.go's
// place. A shell has no session there, and the lock that keeps a second writer
// off a thread is left out. The mock's other files call it.

import (
	"os"
	"os/exec"
)

func mockOwnSession(*exec.Cmd) {}

func mockKillSession(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // gone already is as good
}

func mockTryLock(*os.File) bool { return true }

func mockSurviveSIGPIPE() {}
