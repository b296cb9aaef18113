//go:build !windows

package main

// sys_unix.go owns what Linux and macOS are asked for directly: flock, process groups, how programs are found and
// started, how a process ended, directory fsync, the terminal. sys_windows.go declares the same names, so that no file
// of another family needs a build tag. Files of every family below it that touch files or start programs call it.
// Never decides policy: its callers know what to lock, when to kill and what to say.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func isDiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// isOutOfFiles: ours (EMFILE) or the machine's (ENFILE).
func isOutOfFiles(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// lockFile takes an advisory lock on f, which ends with unlockFile, with f's last descriptor or with the process. Two
// opens of one file conflict even within a process. Without wait a held lock is errLocked at once.
func lockFile(f *os.File, exclusive, wait bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how); err {
		case nil:
			return nil
		case unix.EINTR: // the runtime's own preemption signals interrupt a wait
		case unix.EWOULDBLOCK:
			return errLocked
		default:
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// unlockFile gives the lock up even while a child that is just being forked still holds a copy of the descriptor;
// closing alone would not.
func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// procGroup is a child and what it started, as far as that stayed in its group. Order: newProcGroup, cmd.Start, attach,
// any of term and kill, then cmd.Wait and close. Not after Wait: the number may name somebody else's group by then. The
// waiter and the one who stops may be two goroutines.
type procGroup struct {
	mu  sync.Mutex // guards the field below, also while it is being signalled
	pid int        // also the group's id, by Setsid; 0 before attach and after close
}

// newProcGroup puts the command, not yet started, into a session of its own: a terminal's ^C does not reach it (Codex
// dies of it and leaks its shells) and its process group can be signalled as one. No parent-death signal: it ends
// app-server before its shells, while EOF on stdin ends both.
func newProcGroup(cmd *exec.Cmd) *procGroup {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return &procGroup{}
}

// lookProgram finds a program: a path, or a name on PATH. What a "." in PATH finds comes with exec.ErrDot: it may lie
// in somebody's repository.
func lookProgram(name string) (string, error) { return exec.LookPath(name) }

// programCommand is exec.CommandContext for a program that was found, with the variables env, nil for ours.
func programCommand(ctx context.Context, env []string, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	return cmd
}

// shellCommand is a command line for the system's shell.
func shellCommand(ctx context.Context, line string) *exec.Cmd {
	return exec.CommandContext(ctx, "/bin/sh", "-c", line)
}

// attach is called once, right after a successful Start.
func (g *procGroup) attach(cmd *exec.Cmd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pid = cmd.Process.Pid
	return nil
}

// term asks the group to end.
func (g *procGroup) term() { g.signal(unix.SIGTERM) }

// kill ends the group, whatever it traps.
func (g *procGroup) kill() { g.signal(unix.SIGKILL) }

// close forgets the group; it kills nothing on Unix, and everything that is left on Windows.
func (g *procGroup) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pid = 0
}

func (g *procGroup) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pid > 1 { // -1 would be everybody, 0 ourselves
		_ = unix.Kill(-g.pid, sig) // a group that is gone already is as good; who waits sees whether it is
	}
}

// exitReason is the wording of FR-11.2: the exit code or the signal.
func exitReason(state *os.ProcessState) string {
	if state == nil {
		return "exit status unknown"
	}
	ws, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return fmt.Sprintf("exit code %d", state.ExitCode())
	}
	name := unix.SignalName(ws.Signal())
	if name == "" {
		return fmt.Sprintf("signal %d", int(ws.Signal()))
	}
	return fmt.Sprintf("signal: %s (%s)", ws.Signal(), name)
}

// pidAlive tells whether the process exists on this machine; a zombie does.
func pidAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := unix.Kill(pid, 0)
	return err == nil || err == unix.EPERM
}

const (
	openNonblock = unix.O_NONBLOCK // the open of a FIFO returns at once
	openNoFollow = unix.O_NOFOLLOW
)

// openRefusal gives the two refusals that stand for a link (ELOOP) and for a
// FIFO without a reader or a socket (ENXIO) the names that openOwn promises.
func openRefusal(path string, err error) error {
	switch {
	case errors.Is(err, unix.ELOOP):
		return &os.PathError{Op: "open", Path: path, Err: errLinked}
	case errors.Is(err, unix.ENXIO):
		return &os.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return err
}

// hasOtherNames tells whether the open file, of which st is, has a hard link. A file without any name is one that was
// replaced meanwhile: its user sees that by comparing with the name.
func hasOtherNames(_ *os.File, st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Nlink > 1
}

// ownerAndMode are a file's owner, and whether group or others may write it. ok is false where the system has neither.
func ownerAndMode(st os.FileInfo) (uid int, sharedWrite bool, ok bool) {
	sys, isStat := st.Sys().(*syscall.Stat_t)
	if !isStat {
		return 0, false, false
	}
	return int(sys.Uid), st.Mode().Perm()&0o022 != 0, true
}

// syncDir makes the names in a directory durable: without it a machine that
// loses power may come back with a renamed file under its old content.
func syncDir(path string) error {
	d, err := openDir(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some filesystems can't, and say so
		return err
	}
	return nil
}

// openShared is os.OpenFile of a file that others may rename and remove while it is open.
func openShared(path string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, perm)
}

// renameOver replaces the file new by old in one step. Whether the caller has new open doesn't matter.
func renameOver(old, new string, _ ...*os.File) error { return os.Rename(old, new) }

// terminalSize is the number of columns and rows of a terminal, 0 for one that doesn't know, and false for what is no
// terminal.
func terminalSize(f *os.File) (columns, rows int, ok bool) {
	err := withDescriptor(f, func(fd int) error {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			columns, rows = int(size.Col), int(size.Row)
		}
		return err
	})
	return columns, rows, err == nil
}

// withDescriptor calls do with a file's descriptor, not with f.Fd(), which would make a pipe's reads blocking.
func withDescriptor(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = do(int(fd)) })
	return cmp.Or(err, failed)
}

// giveKeys has a terminal give each key as it is pressed, and show none; those of signals and of pausing too, which
// would leave us ended, or stopped, with the terminal as it is. restore gives the terminal back as it was.
func giveKeys(f *os.File) (restore func(), err error) {
	var was unix.Termios
	err = withDescriptor(f, func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, getTerminal)
		if err != nil {
			return err
		}
		was = *mode
		mode.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
		mode.Iflag &^= unix.IXON
		mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
		return unix.IoctlSetTermios(fd, setTerminal, mode)
	})
	return func() {
		_ = withDescriptor(f, func(fd int) error { return unix.IoctlSetTermios(fd, setTerminal, &was) })
	}, err
}

// readerGone reports a pipe that nobody reads any more, before anything is written to it; or a socket, which Node and
// Claude Code give their children in place of a pipe.
func readerGone(f *os.File) (gone bool) {
	_ = withDescriptor(f, func(fd int) error {
		polled := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(polled, 0)
		gone = err == nil && n > 0 && polled[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		return err
	})
	return gone
}

// terminalColors makes a terminal obey colours; here each does.
func terminalColors(*os.File) bool { return true }

// endsWithin is how long the system leaves a process after a signal; here only the sender may lose patience.
func endsWithin(os.Signal) (limit time.Duration, ok bool) { return 0, false }

// prepareProcess is called by a process that serves somebody before it starts children. It turns a write to a closed
// stdout or stderr into EPIPE; by default that ends a Go program, before state is flushed. Not signal.Ignore: that is
// inherited, and every pipeline Codex runs would miss its SIGPIPE.
func prepareProcess() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
}
