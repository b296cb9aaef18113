package main

// main_acp.go owns `atm-agent-mcp acp`, the command that an editor starts, and
// `acp login`, which runs the login of the codex that acp would start. main.go
// calls it; the flags are told by main_help.go. The login must be that very codex's,
// with our terminal and its exit code, or an editor's user logs the wrong one in.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// acpFlagSet has serve's flags but --restart-child, which acp always does, and
// --resume, since a client says itself which session it wants.
func acpFlagSet(fl *flagValues) *flag.FlagSet {
	set := flag.NewFlagSet("acp", flag.ContinueOnError)
	settingFlagSet("acp", fl).VisitAll(func(f *flag.Flag) {
		if f.Name != "restart-child" {
			set.Var(f.Value, f.Name, "")
		}
	})
	return set
}

// runACP parses acp's flags and runs it, or its login.
func runACP(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	const hint = "atm-agent-mcp help acp lists the flags"
	var fl flagValues
	set := acpFlagSet(&fl)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usageOf("acp"))
		return 0
	case err != nil:
		complain(stderr, err.Error(), hint+nearestFlag(set, err))
		return 2
	}
	rest := set.Args()
	if len(rest) > 1 && rest[0] == "acp" { // a client appended the login's arguments to the command that starts us
		rest = rest[1:]
	}
	if len(rest) > 0 && rest[0] != "login" {
		complain(stderr, fmt.Sprintf("acp takes no argument %q", rest[0]), hint+didYouMean(rest[0], []string{"login"}))
		return 2
	}
	cwd, err := os.Getwd()
	if err != nil {
		complain(stderr, "reading the working directory: "+err.Error(), "")
		return 1
	}
	cfg, err := loadConfig(os.Getenv, cwd, fl, os.Environ()...)
	if err != nil {
		complain(stderr, err.Error(), hint)
		return 2
	}
	if len(rest) > 0 {
		return loginCodex(ctx, cfg.codexBin, rest[1:], stdin, stdout, stderr)
	}
	return serveACP(ctx, cfg, proxyIO{in: stdin, out: stdout, stderr: stderr, version: version()})
}

// loginCodex runs `codex login` with our own streams and returns its exit code.
func loginCodex(ctx context.Context, bin string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	codex, _, err := findCodex(bin)
	if err != nil {
		complain(stderr, "codex "+err.(*childDeath).Reason, "")
		return 1
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, codex.Path, append(append(codex.Args, "login"), args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = pipeDrain
	interrupts := make(chan os.Signal, 4) // the terminal sends them to codex too: it is codex that ends by them
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
	complain(stderr, fmt.Sprintf("running %s login: %v", codex.Path, err), "")
	return 1
}
