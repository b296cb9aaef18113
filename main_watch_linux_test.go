package main

// main_watch_linux_test.go holds watch to leaving a terminal as it was: a pty of Linux stands in for a person's.

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pty of a size: what a person sees and types on, and what a program has.
func openTerminal(t *testing.T, columns, rows uint16) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pty: ", err)
	}
	t.Cleanup(func() { person.Close() })
	number := 0
	wantNil(t, withDescriptor(person, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	}))
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	wantNil(t, err)
	t.Cleanup(func() { program.Close() })
	resize(t, program, columns, rows)
	return person, program
}

func resize(t *testing.T, terminal *os.File, columns, rows uint16) {
	t.Helper()
	wantNil(t, withDescriptor(terminal, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	}))
}

func modeOf(t *testing.T, terminal *os.File) (mode unix.Termios) {
	t.Helper()
	wantNil(t, withDescriptor(terminal, func(fd int) error {
		was, err := unix.IoctlGetTermios(fd, getTerminal)
		if err == nil {
			mode = *was
		}
		return err
	}))
	return mode
}

// readUntil reads what a person sees up to a text, and returns all of it.
func readUntil(t *testing.T, person io.Reader, text string) (seen string) {
	t.Helper()
	for b := make([]byte, 4096); !strings.Contains(seen, text); {
		n, err := person.Read(b)
		if seen += string(b[:n]); err != nil {
			t.Fatalf("%q was not seen but %q: %v", text, seen, err)
		}
	}
	return seen
}

func TestWatchLeavesTheTerminalAsItWas(t *testing.T) {
	t.Setenv("ATM_HOME", t.TempDir())
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	t.Setenv("ATM_NO_COLOR", "")
	const first = "\x1b[H\x1b[1m0 agents in team \"red\"\x1b[0m\x1b[K\r\n" +
		"\x1b[2mLimit: Codex has told of none yet\x1b[0m\x1b[K\x1b[J"
	for name, end := range map[string]func(person *os.File) int{
		"q":                 func(person *os.File) int { person.WriteString("xq"); return 0 },
		"^C":                func(person *os.File) int { person.WriteString("\x03"); return 0 },
		"^Z and q":          func(person *os.File) int { person.WriteString("\x1a\x13q"); return 0 },
		"TERM":              func(*os.File) int { syscall.Kill(os.Getpid(), syscall.SIGTERM); return 143 },
		"HUP":               func(*os.File) int { syscall.Kill(os.Getpid(), syscall.SIGHUP); return 129 },
		"^C from elsewhere": func(*os.File) int { syscall.Kill(os.Getpid(), syscall.SIGINT); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			person, program := openTerminal(t, 60, 10)
			was, code := modeOf(t, program), make(chan int, 1)
			go func() {
				code <- run(context.Background(), []string{serverName, "watch", "--team", "red"}, program, program, io.Discard)
			}()
			if seen := readUntil(t, person, first); !strings.HasPrefix(seen, beginWatching) {
				t.Errorf("it began with %q", seen)
			}
			if name == "q" { // the next frame follows the window's width
				resize(t, program, 12, 10)
				readUntil(t, person, "\x1b[H\x1b[1m0 agents in…\x1b[0m\x1b[K\r\n\x1b[2mLimit: Code…\x1b[0m\x1b[K\x1b[J")
			}
			want := end(person)
			if seen := readUntil(t, person, endWatching); !strings.HasSuffix(seen, endWatching) {
				t.Errorf("behind the end stands %q", seen)
			}
			if got := <-code; got != want {
				t.Errorf("code %d, want %d", got, want)
			}
			if modeOf(t, program) != was {
				t.Error("the terminal takes keys otherwise than before")
			}
		})
	}
}

// Who reads --json no more, without a word, is noticed though nothing changes.
func TestWatchEndsWithItsReader(t *testing.T) {
	t.Setenv("ATM_HOME", t.TempDir())
	r, w, err := os.Pipe()
	wantNil(t, err)
	wantNil(t, r.Close())
	defer w.Close()
	if code := run(context.Background(), []string{serverName, "watch", "--json"}, strings.NewReader(""), w, io.Discard); code != 0 {
		t.Errorf("code %d", code)
	}
}

// Nor does inbox --follow outlive who reads it, which Claude Code does through a socket.
func TestInboxEndsWithItsReader(t *testing.T) {
	t.Setenv("ATM_HOME", t.TempDir())
	t.Setenv(variablePrefix+"MAIL_POLL_INTERVAL_MS", "100")
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	wantNil(t, err)
	wantNil(t, unix.Close(ends[0]))
	w := os.NewFile(uintptr(ends[1]), "socket")
	defer w.Close()
	args := []string{serverName, "inbox", "--follow"}
	if code := run(context.Background(), args, strings.NewReader(""), w, io.Discard); code != 0 {
		t.Errorf("code %d", code)
	}
}
