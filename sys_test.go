package main

// sys_test.go holds what the system is asked for (locks, process groups, exit
// reasons) with real processes. The child is this test binary, run as
// TestSysHelper.

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// sysHelper starts this test binary as a process that does what mode says; its
// first line of output and its stdin are given to the caller.
func sysHelper(t *testing.T, mode string) (*exec.Cmd, *procGroup, *bufio.Reader, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSysHelper$")
	cmd.Env = append(os.Environ(), "ATM_TEST_SYS="+mode, "GORACE=atexit_sleep_ms=10")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	group := newProcGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := group.attach(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd, group, bufio.NewReader(out), in
}

// TestSysHelper is no test: it is the child of those below.
func TestSysHelper(t *testing.T) {
	switch mode := os.Getenv("ATM_TEST_SYS"); mode {
	case "":
		t.Skip("runs only as a child of other tests")
	case "exit3":
		os.Exit(3)
	case "parent": // starts a grandchild in its own group, then waits for EOF
		child := exec.Command(os.Args[0], "-test.run=^TestSysHelper$")
		child.Env = append(os.Environ(), "ATM_TEST_SYS=wait")
		child.Stdout = os.Stdout // holds the pipe open: its EOF is the grandchild's end
		child.Stdin = os.Stdin
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err != nil {
			os.Exit(1)
		}
	case "wait":
		os.Stdout.WriteString("ready " + strconv.Itoa(os.Getpid()) + "\n")
		io.Copy(io.Discard, os.Stdin)
	default:
		t.Fatalf("unknown mode %q", mode)
	}
}

func TestExitReasonOfACode(t *testing.T) {
	cmd, group, _, _ := sysHelper(t, "exit3")
	defer group.close()
	if err := cmd.Wait(); err == nil {
		t.Fatal("no error for exit code 3")
	}
	if got := exitReason(cmd.ProcessState); got != "exit code 3" {
		t.Errorf("exitReason = %q", got)
	}
	if got := exitReason(nil); got != "exit status unknown" {
		t.Errorf("exitReason(nil) = %q", got)
	}
}

func TestKillingAGroupReachesGrandchildren(t *testing.T) {
	cmd, group, out, _ := sysHelper(t, "parent")
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("reading the grandchild's line: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "ready ")))
	if err != nil || pid == cmd.Process.Pid {
		t.Fatalf("grandchild's line = %q", line)
	}
	if !pidAlive(pid) || !pidAlive(cmd.Process.Pid) {
		t.Error("a running process is said to be dead")
	}
	if err := group.kill(); err != nil {
		t.Fatal(err)
	}
	// stdout is open in both processes: EOF means that both are gone.
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	want := "signal: killed (SIGKILL)"
	if runtime.GOOS == "windows" {
		want = "exit code 1"
	}
	if got := exitReason(cmd.ProcessState); got != want {
		t.Errorf("exitReason = %q, want %q", got, want)
	}
	if err := group.close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(group.term(), group.kill(), group.close()); err != nil {
		t.Errorf("signals after close: %v", err)
	}
}

func TestTermEndsAGroup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("CTRL_BREAK needs a console")
	}
	cmd, group, out, _ := sysHelper(t, "wait")
	defer group.close()
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := group.term(); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, out)
	cmd.Wait()
	if got := exitReason(cmd.ProcessState); got != "signal: terminated (SIGTERM)" {
		t.Errorf("exitReason = %q", got)
	}
	// The leader is reaped and nobody else was in the group.
	if err := group.kill(); err != nil {
		t.Errorf("killing a group that is gone: %v", err)
	}
	if pidAlive(cmd.Process.Pid) || pidAlive(0) || pidAlive(-1) {
		t.Error("a dead process is said to be alive")
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	if err := lockFile(a, true, false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.WriteString("content"); err != nil {
		t.Fatal(err)
	}
	if err := lockFile(b, true, false); !errors.Is(err, errLocked) {
		t.Errorf("second exclusive lock: %v, want errLocked", err)
	}
	if err := lockFile(b, false, false); !errors.Is(err, errLocked) {
		t.Errorf("shared beside exclusive: %v, want errLocked", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		t.Errorf("reading a locked file: %q, %v", got, err)
	}
	got := make(chan error, 1)
	go func() { got <- lockFile(b, true, true) }()
	if err := unlockFile(a); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("waiting for the lock: %v", err)
	}
	if err := unlockFile(b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lockFile(a, false, false), lockFile(b, false, false)); err != nil {
		t.Errorf("two shared locks: %v", err)
	}
}

func TestRenameOverAndSyncDir(t *testing.T) {
	dir := t.TempDir()
	old, new := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	for path, text := range map[string]string{old: "fresh", new: "stale"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := renameOver(old, new); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(new); string(got) != "fresh" {
		t.Errorf("content = %q", got)
	}
	if err := syncDir(dir); err != nil {
		t.Error(err)
	}
	if err := syncDir(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a directory that isn't there")
	}
}

func TestTerminalWidth(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, f := range []*os.File{f, r} {
		if _, ok := terminalWidth(f); ok {
			t.Errorf("%s is said to be a terminal", f.Name())
		}
	}
	if tty, err := os.Open("/dev/ptmx"); err == nil { // a pty master answers like a terminal on Linux
		defer tty.Close()
		if _, ok := terminalWidth(tty); runtime.GOOS == "linux" && !ok {
			t.Error("a pty is said to be no terminal")
		}
	}
}
