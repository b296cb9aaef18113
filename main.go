// Command atm-agent-mcp makes Codex agents first-class teammates of an MCP or
// ACP client: named sessions over one codex child.
package main

// main.go owns the way from a command line to a command: main_help.go's table says what commands and flags there are,
// and the row's function runs it. Here are the commands that speak a protocol (serve, acp, tools), `acp login`, the
// version, and the voice in which people are told that something is wrong. No other file ends the process.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
)

func main() { os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program. args begin with what it was started as, whose name decides in which names it speaks
// (config_names.go). It returns the exit code: 0, 1 for a failure, 2 for a command line that makes no sense,
// unless a hook may have that one.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	n, args, err := takeNames(args)
	stderr = n.writer(stderr)
	if err != nil {
		complain(stderr, err.Error(), "")
		return 2
	}
	if len(args) == 0 {
		fmt.Fprint(stderr, usage(n))
		return 2
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "--help", "-help", "-h":
		return help(n, args, n.writer(stdout), stderr)
	case "--version", "-version":
		name = "version"
	case "mock-codex": // hidden: a stand-in for Codex, for tests and the demo
		prepareProcess() // as Rust does: a client that was killed must not keep the mock from ending its shells
		return runMock(ctx, nil, args, stdin, stdout, stderr)
	}
	row, ok := findCommand(n, name)
	if !ok {
		complain(stderr, fmt.Sprintf("no command %q", name),
			"atm-agent-mcp help lists the commands"+didYouMean(name, commandNames(n)))
		return 2
	}
	call := &commandCall{name: name, names: n, flags: flagValues{}, stdin: stdin, stdout: stdout, stderr: stderr}
	if code, done := call.parse(row, args); done {
		if row.hook {
			code = min(code, 1)
		}
		return code
	}
	if row.hook {
		debug.SetTraceback("crash") // a panic ends with SIGABRT then, else with exit code 2
	}
	return row.run(ctx, call)
}

// A commandCall is one command line, parsed, and the streams of the process.
type commandCall struct {
	name           string
	names          *names
	flags          flagValues
	args           []string // what stands between and behind the flags
	stdin          io.Reader
	stdout, stderr io.Writer
}

// parse reads the flags and arguments that the command's row allows. Flags may stand before and behind arguments, as
// nearly everywhere but in package flag. It is done, with an exit code, when help was asked for (0) or the command line
// makes no sense (2).
func (c *commandCall) parse(row commandRow, args []string) (code int, done bool) {
	set := row.flagSet(c.flags)
	for args = row.joinValues(args); ; {
		err := set.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprint(c.stdout, c.names.text(row.usage(c.names)))
			return 0, true
		case err != nil:
			complain(c.stderr, err.Error(), c.hint()+nearestFlag(set, err))
			return 2, true
		case set.NArg() == 0 || row.rest:
			c.args = append(c.args, set.Args()...)
			return 0, false
		case len(c.args) < row.most:
			c.args, args = append(c.args, set.Arg(0)), set.Args()[1:]
		case row.most > 0:
			return c.refuse(fmt.Sprintf("%s takes one argument, and then %q", c.name, set.Arg(0))), true
		default:
			return c.refuse(fmt.Sprintf("%s takes no argument %q", c.name, set.Arg(0))), true
		}
	}
}

func (c *commandCall) hint() string { return "atm-agent-mcp help " + c.name + " lists the flags" }

// refuse tells what is wrong with the command line, and returns the exit code for that.
func (c *commandCall) refuse(what string) int {
	complain(c.stderr, what, c.hint())
	return 2
}

// fail tells why the command could not be carried out, and returns the exit code for that.
func (c *commandCall) fail(what, hint string) int {
	complain(c.stderr, what, hint)
	return 1
}

// nearestFlag ends a hint with what a mistyped flag most likely means.
func nearestFlag(set *flag.FlagSet, err error) string {
	word, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return ""
	}
	var names []string
	set.VisitAll(func(f *flag.Flag) { names = append(names, "--"+f.Name) })
	return didYouMean("--"+strings.TrimLeft(word, "-"), names)
}

// config is loadConfig, but tells what is wrong, and then its exit code is not 0.
func (c *commandCall) config(fl flagValues, dir string) (cfg *config, code int) {
	cfg, err := c.loadConfig(fl, dir)
	if err != nil {
		return nil, c.refuse(err.Error())
	}
	return cfg, 0
}

// loadConfig loads the configuration with the flags fl, as it is in dir, which may be relative or "" for the working
// directory.
func (c *commandCall) loadConfig(fl flagValues, dir string) (*config, error) {
	cwd, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the working directory: %w; start in one that exists", err)
	}
	cfg, err := loadConfig(os.Getenv, cwd, fl, os.Environ()...)
	if err != nil {
		return nil, err
	}
	cfg.names = c.names
	for _, texts := range [][]string{cfg.warnings, cfg.notes} {
		for i := range texts {
			texts[i] = c.names.text(texts[i])
		}
	}
	return cfg, nil
}

func (c *commandCall) proxyIO() proxyIO {
	return proxyIO{in: c.stdin, out: c.stdout, stderr: c.stderr, version: version()}
}

func runServe(ctx context.Context, c *commandCall) int {
	cfg, code := c.config(c.flags, "")
	if code != 0 {
		return code
	}
	return serve(ctx, cfg, c.proxyIO())
}

// runACP serves an editor, or runs `acp login`.
func runACP(ctx context.Context, c *commandCall) int {
	args := c.args
	// a client appended the login's arguments to the command that starts this program
	if len(args) > 1 && args[0] == "acp" {
		args = args[1:]
	}
	if len(args) > 0 && args[0] != "login" {
		complain(c.stderr, fmt.Sprintf("acp takes no argument %q", args[0]),
			c.hint()+didYouMean(args[0], []string{"login"}))
		return 2
	}
	cfg, code := c.config(c.flags, "")
	if code != 0 {
		return code
	}
	if len(args) > 0 {
		return loginCodex(ctx, cfg.codexBin, args[1:], c)
	}
	return serveACP(ctx, cfg, c.proxyIO())
}

// loginCodex runs `codex login` with the streams of this process and returns its exit code. It is the codex that acp
// would start: an editor's user would otherwise log another one in.
func loginCodex(ctx context.Context, bin string, args []string, c *commandCall) int {
	codex, _, err := findCodex(bin)
	if err != nil {
		return c.fail("codex "+err.(*childDeath).Reason, "")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	cmd := programCommand(ctx, nil, codex.Path, append(append(codex.Args, "login"), args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, c.stderr
	if w, ok := c.stderr.(namesWriter); ok {
		cmd.Stderr = w.w // codex may want a terminal
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = pipeDrain
	// the terminal sends them to codex too: codex ends by them, and then this process
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	return c.fail(fmt.Sprintf("running %s login: %v", codex.Path, err), "")
}

// runTools serves one agent's mail tools to the Codex that runs the agent. Codex writes its command line, not a person.
func runTools(_ context.Context, c *commandCall) int {
	if _, given := c.flags["identity"]; !given {
		return c.refuse("tools wants --identity: whose mail it serves")
	}
	cfg, code := c.config(c.flags, c.flags["cwd"])
	if code != 0 {
		return code
	}
	if err := serveTools(cfg, c.flags["agent"], version(), c.stdin, c.stdout, c.stderr); err != nil {
		return c.fail(err.Error(), "")
	}
	return 0
}

func runVersion(_ context.Context, c *commandCall) int {
	fmt.Fprintln(c.stdout, c.names.word(serverName), version())
	return 0
}

// version is the module's version as go install stamped it, or what the build knows of its revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// complain is how people are told that something is wrong.
func complain(stderr io.Writer, what, hint string) {
	fmt.Fprintf(stderr, "atm-agent-mcp: %s\n", what)
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
}
