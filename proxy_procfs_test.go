package main

// proxy_procfs_test.go tells which processes of a test are left. Every process that
// the harness starts carries a marker in its environment, and what it starts
// inherits it, whatever session, group or parent it moves to. Clean-up and the
// script command noproc call it. It reads Linux's /proc; elsewhere it finds
// nothing, and tests that need it skip by needProcFS. It never signals.

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// markerVar names the environment variable that holds a peer's marker.
const markerVar = "ATM_TEST_PEER"

func hasProcFS() bool {
	_, err := os.Stat("/proc/self/environ")
	return err == nil
}

func needProcFS(tb testing.TB) {
	tb.Helper()
	if !hasProcFS() {
		tb.Skip("looks for processes in /proc, which this system hasn't")
	}
}

// markedProcesses returns the living processes that inherited the marker.
func markedProcesses(marker string) []int {
	want := []byte(markerVar + "=" + marker)
	var found []int
	for _, pid := range allProcesses() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue // gone, or not ours to look at
		}
		for _, v := range bytes.Split(env, []byte{0}) {
			if bytes.Equal(v, want) && processAlive(pid) {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// childProcesses returns the living direct children of pid.
func childProcesses(pid int) []int {
	var found []int
	for _, p := range allProcesses() {
		if state, parent := processStat(p); parent == pid && state != 'Z' && state != 'X' {
			found = append(found, p)
		}
	}
	return found
}

func allProcesses() []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processAlive is false for a zombie too: it runs nothing any more.
func processAlive(pid int) bool {
	state, _ := processStat(pid)
	return state != 0 && state != 'Z' && state != 'X'
}

// processStat returns the state letter and the parent, zeros for nobody.
func processStat(pid int) (state byte, parent int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The command's name may hold spaces and parentheses; the last one ends it.
	_, rest, ok := strings.Cut(string(data[max(0, bytes.LastIndexByte(data, ')')):]), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0][0], parent
}

// describeProcesses lists command lines for a failure's message.
func describeProcesses(pids []int) string {
	var b strings.Builder
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		fmt.Fprintf(&b, "\n\t%d %s", pid, clipText(strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")), 160))
	}
	return b.String()
}

func TestProcessesOfOurOwn(t *testing.T) {
	needProcFS(t)
	if !processAlive(os.Getpid()) {
		t.Error("we are said to be dead")
	}
	if _, parent := processStat(os.Getpid()); parent != os.Getppid() {
		t.Errorf("parent = %d, want %d", parent, os.Getppid())
	}
	if got := markedProcesses("nobody has this marker"); len(got) != 0 {
		t.Errorf("processes with a marker nobody has: %s", describeProcesses(got))
	}
}
