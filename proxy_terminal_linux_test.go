package main

// proxy_terminal_linux_test.go owns the script command terminal, which runs a
// program on a pseudo-terminal. testscript's own ttyin closes the terminal before
// all of the output was read, so on a busy machine a script would see a part.

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// scriptTerminal has the terminal be stdin, stdout and stderr of the program. What the terminal shows, with the echo of
// what is typed, is stdout for the commands after it.
func scriptTerminal(ts *testscript.TestScript, neg bool, args []string) {
	typed := ""
	args = scriptFlags(ts, neg, true, "terminal [-type text] prog args…", args, 1, -1, func(fl *flag.FlagSet) {
		fl.StringVar(&typed, "type", "", "")
	})
	ctrl, tty, err := openTerminal()
	ts.Check(err)
	defer ctrl.Close()
	cmd := exec.Command(scriptLookPath(ts, args[0]), args[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), scriptEnviron(ts)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if typed != "" {
		_, err := io.WriteString(ctrl, typed+"\n")
		ts.Check(err)
	}
	err = cmd.Start()
	tty.Close() // else reading would never end
	ts.Check(err)
	var shown strings.Builder
	_, _ = io.Copy(&shown, ctrl) // ends with EIO once the program has ended
	err = cmd.Wait()
	fmt.Fprint(ts.Stdout(), shown.String())
	if (err != nil) != neg {
		ts.Fatalf("%s ended with %s and showed\n%s", args[0], exitReason(cmd.ProcessState), shown.String())
	}
}

// openTerminal opens both sides of a new pseudo-terminal.
func openTerminal() (ctrl, tty *os.File, err error) {
	if ctrl, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(ctrl.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ctrl.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		ctrl.Close()
	}
	return ctrl, tty, err
}
