package main

// sys_test.go holds what the system is asked for (files, locks, process groups, exit reasons) with real files and
// processes. It has the rig for tests of more than one process: another process is this test binary, run with one test.

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// A testProcess is this test binary, running one test in a process group of its own.
type testProcess struct {
	cmd   *exec.Cmd
	group *procGroup
	out   *bufio.Reader
	in    io.WriteCloser
}

// startTest starts a test as a process that the environment tells what to do.
func startTest(t *testing.T, test string, env ...string) testProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=10"), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	wantNil(t, err)
	out, err := cmd.StdoutPipe()
	wantNil(t, err)
	p := testProcess{cmd, newProcGroup(cmd), bufio.NewReader(out), in}
	wantNil(t, cmd.Start())
	wantNil(t, p.group.attach(cmd))
	return p
}

// line is the next line that the process says.
func (p testProcess) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	wantNil(t, err)
	return strings.TrimSuffix(line, "\n")
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
		wantNil(t, child.Start())
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
	p := startTest(t, "TestSysHelper", "ATM_TEST_SYS=exit3")
	defer p.group.close()
	if err := p.cmd.Wait(); err == nil {
		t.Fatal("no error for exit code 3")
	}
	if got := exitReason(p.cmd.ProcessState); got != "exit code 3" {
		t.Errorf("exitReason = %q", got)
	}
	if got := exitReason(nil); got != "exit status unknown" {
		t.Errorf("exitReason(nil) = %q", got)
	}
}

func TestKillingAGroupReachesGrandchildren(t *testing.T) {
	p := startTest(t, "TestSysHelper", "ATM_TEST_SYS=parent")
	line := p.line(t)
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "ready "))
	if err != nil || pid == p.cmd.Process.Pid {
		t.Fatalf("grandchild's line = %q", line)
	}
	if !pidAlive(pid) || !pidAlive(p.cmd.Process.Pid) {
		t.Error("a running process is said to be dead")
	}
	wantNil(t, p.group.kill())
	// stdout is open in both processes: EOF means that both are gone.
	_, err = io.Copy(io.Discard, p.out)
	wantNil(t, err)
	p.cmd.Wait()
	want := "signal: killed (SIGKILL)"
	if runtime.GOOS == "windows" {
		want = "exit code 1"
	}
	if got := exitReason(p.cmd.ProcessState); got != want {
		t.Errorf("exitReason = %q, want %q", got, want)
	}
	wantNil(t, p.group.close())
	wantNil(t, errors.Join(p.group.term(), p.group.kill(), p.group.close())) // nobody's group by now
}

func TestTermEndsAGroup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("CTRL_BREAK needs a console")
	}
	p := startTest(t, "TestSysHelper", "ATM_TEST_SYS=wait")
	defer p.group.close()
	p.line(t)
	wantNil(t, p.group.term())
	io.Copy(io.Discard, p.out)
	p.cmd.Wait()
	if got := exitReason(p.cmd.ProcessState); got != "signal: terminated (SIGTERM)" {
		t.Errorf("exitReason = %q", got)
	}
	wantNil(t, p.group.kill()) // the leader is reaped and nobody else was in the group
	if pidAlive(p.cmd.Process.Pid) || pidAlive(0) || pidAlive(-1) {
		t.Error("a dead process is said to be alive")
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		wantNil(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	wantNil(t, lockFile(a, true, false))
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
	wantNil(t, unlockFile(a))
	if err := <-got; err != nil {
		t.Errorf("waiting for the lock: %v", err)
	}
	wantNil(t, unlockFile(b))
	if err := errors.Join(lockFile(a, false, false), lockFile(b, false, false)); err != nil {
		t.Errorf("two shared locks: %v", err)
	}
}

func TestRenameOverAndSyncDir(t *testing.T) {
	dir := t.TempDir()
	old, new := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	for path, text := range map[string]string{old: "fresh", new: "stale"} {
		wantNil(t, os.WriteFile(path, []byte(text), 0o600))
	}
	wantNil(t, renameOver(old, new))
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
	wantNil(t, err)
	defer f.Close()
	r, w, err := os.Pipe()
	wantNil(t, err)
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

func TestOpenOwnRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	target, soft, hard := filepath.Join(dir, "t"), filepath.Join(dir, "s"), filepath.Join(dir, "h")
	wantNil(t, os.WriteFile(target, []byte("kept"), 0o600))
	f, err := openOwn(target, os.O_RDWR|os.O_APPEND, 0)
	wantNil(t, err)
	f.Close()
	if err := os.Symlink(target, soft); err != nil {
		t.Skip(err) // Windows gives links to administrators only
	}
	wantNil(t, os.Link(target, hard))
	for _, path := range []string{soft, hard} {
		if f, err := openOwn(path, os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, errLinked) {
			t.Errorf("openOwn(%s) = %v, %v; want errLinked", filepath.Base(path), f, err)
		}
	}
	if data, err := readRegular(soft, 4); err != nil || string(data) != "kept" {
		t.Errorf("readRegular through a link = %q, %v", data, err)
	}
	if _, err := readRegular(soft, 3); !errors.Is(err, errTooLarge) {
		t.Errorf("readRegular with a limit of 3 = %v, want errTooLarge", err)
	}
	if _, err := readRegular(dir, 10); !errors.Is(err, errNotRegular) {
		t.Errorf("readRegular of a directory = %v, want errNotRegular", err)
	}
}

// A team's directory that vanished with what was written into it is no danger to
// any session, and no warning at every exit of Claude Code.
func TestSyncOfWhatIsGone(t *testing.T) {
	var out syncBuffer
	disk := newSyncer(slog.New(slog.NewTextHandler(&out, nil)))
	disk.add(filepath.Join(t.TempDir(), "gone", "inboxes", "ann.json"))
	wantNil(t, disk.flush(t.Context()))
	wantNil(t, disk.close(t.Context()))
	if got := out.String(); got != "" {
		t.Errorf("logged %s", got)
	}
}

// Of what is to be written later only the newest is written, also what comes while the syncer is at work, and nothing
// after its close.
func TestSyncerWritesTheNewest(t *testing.T) {
	var written []string // by the syncer's goroutine; read after flush and close
	disk := newSyncer(slog.New(slog.DiscardHandler))
	write := func(what string) func() { return func() { written = append(written, what) } }
	disk.later("a", write("old"))
	disk.later("a", func() {
		write("new")()
		disk.later("a", write("from within"))
	})
	wantNil(t, disk.flush(t.Context()))
	wantNil(t, disk.flush(t.Context()))
	disk.later("a", write("last"))
	wantNil(t, disk.close(t.Context()))
	disk.later("a", write("too late"))
	wantNil(t, errors.Join(disk.close(t.Context()), disk.flush(t.Context())))
	if got := strings.Join(written, ", "); got != "new, from within, last" {
		t.Errorf("written: %s", got)
	}
}
