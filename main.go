// Command atm-agent-mcp makes Codex agents first-class teammates of an MCP or
// ACP client: named sessions over one codex child.
package main

// main.go owns the command line: one switch from argument to command, the
// parsing of flags, the version, and the voice in which people are spoken to.
// Here are serve, acp and tools, which speak a protocol, and `acp login`, which runs the login of the codex that acp
// would start, with our terminal and its exit code, or an editor's user logs the wrong one in. The other commands live
// in files of their own name; what all are called and take is told by main_help.go. Nothing else exits.

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
	"strconv"
	"strings"
	"syscall"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program. It returns the exit code: 0, 1 for a failure, 2
// for a command line that makes no sense.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage())
		return 2
	}
	switch name, rest := args[0], args[1:]; name {
	case "serve":
		return runServe(ctx, rest, stdin, stdout, stderr)
	case "acp":
		return runACP(ctx, rest, stdin, stdout, stderr)
	case "config":
		return runConfig(rest, stdin, stdout, stderr)
	case "doctor":
		return runDoctor(ctx, rest, stdout, stderr)
	case "sessions":
		return runSessions(ctx, rest, stdout, stderr)
	case "summary":
		return runSummary(ctx, rest, stdout, stderr)
	case "audit":
		return runAudit(rest, stdout, stderr)
	case "tools":
		return runTools(ctx, rest, stdin, stdout, stderr)
	case "demo":
		if code, done := noFlags("demo", usageOf("demo"), rest, stdout, stderr); done {
			return code
		}
		return demo(ctx, stdout, stderr)
	case "version", "--version", "-version":
		if code, done := noFlags("version", usageOf("version"), rest, stdout, stderr); done {
			return code
		}
		fmt.Fprintln(stdout, "atm-agent-mcp", version())
		return 0
	case "help", "--help", "-help", "-h":
		return help(rest, stdout, stderr)
	case "mock-codex": // hidden: a stand-in for Codex, for tests and the demo
		return runMock(ctx, nil, rest, stdin, stdout, stderr)
	default:
		complain(stderr, fmt.Sprintf("no command %q", name), "atm-agent-mcp help lists the commands"+didYouMean(name, commandNames()))
		return 2
	}
}

// runServe parses serve's flags and runs it.
func runServe(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fl, code, done := serveFlags(args, stdout, stderr)
	if done {
		return code
	}
	cfg, code := configFor("serve", "", fl, stderr, os.Environ()...)
	if code != 0 {
		return code
	}
	return serve(ctx, cfg, proxyIO{in: stdin, out: stdout, stderr: stderr, version: version()})
}

// configFor loads the configuration of a command that runs in dir, which may be
// relative or "" for where we are. What is wrong is told, and the exit code is
// not 0. environ is what misspelt variables are looked for in.
func configFor(command, dir string, fl flagValues, stderr io.Writer, environ ...string) (cfg *config, code int) {
	cwd, err := os.Getwd()
	if err != nil {
		complain(stderr, "reading the working directory: "+err.Error(), "")
		return nil, 1
	}
	if filepath.IsAbs(dir) {
		cwd = dir
	} else if dir != "" {
		cwd = filepath.Join(cwd, dir)
	}
	if cfg, err = loadConfig(os.Getenv, cwd, fl, environ...); err != nil {
		complain(stderr, err.Error(), "atm-agent-mcp help "+command+" lists the flags")
		return nil, 2
	}
	return cfg, 0
}

// serveFlags reads serve's flags; only those that were given are set.
func serveFlags(args []string, stdout, stderr io.Writer) (fl flagValues, code int, done bool) {
	code, done = parseFlags(serveFlagSet(&fl), usageOf("serve"), args, stdout, stderr)
	return fl, code, done
}

func serveFlagSet(fl *flagValues) *flag.FlagSet {
	set := settingFlagSet("serve", fl)
	set.Var(optionalValue{&fl.resume}, "resume", "")
	return set
}

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
	cfg, code := configFor("acp", "", fl, stderr, os.Environ()...)
	if code != 0 {
		return code
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

// toolsAsk is the command line of tools, which Codex writes, not a person.
type toolsAsk struct {
	agent, cwd string
	fl         flagValues
}

func toolsFlagSet(ask *toolsAsk) *flag.FlagSet {
	set := flag.NewFlagSet("tools", flag.ContinueOnError)
	set.Func("identity", "", func(s string) error { ask.fl.identity = &s; return nil })
	set.Func("team", "", func(s string) error { ask.fl.team = &s; return nil })
	set.Func("config", "", func(s string) error { ask.fl.config = &s; return nil })
	set.StringVar(&ask.agent, "agent", "", "")
	set.StringVar(&ask.cwd, "cwd", "", "")
	return set
}

// runTools parses tools' flags and serves the tools.
func runTools(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var ask toolsAsk
	if code, done := parseFlags(toolsFlagSet(&ask), usageOf("tools"), args, stdout, stderr); done {
		return code
	}
	if ask.fl.identity == nil {
		complain(stderr, "tools wants --identity: whose mail it serves", "atm-agent-mcp help tools lists the flags")
		return 2
	}
	cfg, code := configFor("tools", ask.cwd, ask.fl, stderr)
	if code != 0 {
		return code
	}
	if err := serveTools(ctx, cfg, ask.agent, version(), stdin, stdout, stderr); err != nil {
		complain(stderr, err.Error(), "")
		return 1
	}
	return 0
}

// optionalValue is a flag whose value may be left out: --resume, --resume=x, and
// by parseArgs --resume x. Given without one it is "".
type optionalValue struct{ into **string }

func (optionalValue) String() string   { return "" }
func (optionalValue) IsBoolFlag() bool { return true } // package flag then takes it alone
func (v optionalValue) Set(s string) error {
	if s == "true" { // package flag's word for a flag alone
		s = ""
	}
	*v.into = &s
	return nil
}

// takesNext reports whether the last of the flags in args can have the argument
// behind it.
func takesNext(set *flag.FlagSet, args []string) bool {
	if len(args) == 0 {
		return false
	}
	f := set.Lookup(strings.TrimPrefix(strings.TrimPrefix(args[len(args)-1], "-"), "-"))
	if f == nil || !strings.HasPrefix(args[len(args)-1], "-") {
		return false
	}
	_, ok := f.Value.(optionalValue)
	return ok
}

// settingFlagSet has the flags that set something: serve's, and those of the
// commands that tell what serve would do with them.
func settingFlagSet(command string, fl *flagValues) *flag.FlagSet {
	set := flag.NewFlagSet(command, flag.ContinueOnError)
	text := func(into **string, name string) {
		set.Func(name, "", func(s string) error { *into = &s; return nil })
	}
	yes := func(into **bool, name string) {
		set.BoolFunc(name, "", func(s string) error {
			v, err := strconv.ParseBool(s)
			*into = &v
			return err
		})
	}
	text(&fl.identity, "identity")
	text(&fl.role, "role")
	text(&fl.team, "team")
	text(&fl.model, "model")
	text(&fl.sandbox, "sandbox")
	text(&fl.approvalPolicy, "approval-policy")
	text(&fl.backend, "backend")
	text(&fl.codexBin, "codex-bin")
	text(&fl.config, "config")
	text(&fl.logLevel, "log-level")
	text(&fl.logFile, "log-file")
	yes(&fl.fast, "fast")
	yes(&fl.readonly, "readonly")
	yes(&fl.readonly, "explore")
	yes(&fl.subagents, "subagents")
	yes(&fl.restartChild, "restart-child")
	set.Func("timeout", "", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil {
			return errors.New("wants a number of seconds")
		}
		fl.timeoutSecs = &n
		return nil
	})
	return set
}

// noFlags parses the arguments of a command that takes none.
func noFlags(name, text string, args []string, stdout, stderr io.Writer) (code int, done bool) {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	return parseFlags(set, text, args, stdout, stderr)
}

// parseFlags runs the flag set of a command without arguments: -h prints the
// usage and exits 0, a bad flag or an argument 2.
func parseFlags(set *flag.FlagSet, text string, args []string, stdout, stderr io.Writer) (code int, done bool) {
	_, code, done = parseArgs(set, text, 0, args, stdout, stderr)
	return code, done
}

// parseArgs is parseFlags for a command that takes one argument at most; flags may
// stand before and behind them, as nearly everywhere but in package flag.
func parseArgs(set *flag.FlagSet, text string, most int, args []string, stdout, stderr io.Writer) (got []string, code int, done bool) {
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	hint := "atm-agent-mcp help " + set.Name() + " lists the flags"
	for {
		err := set.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprint(stdout, text)
			return nil, 0, true
		case err != nil:
			complain(stderr, err.Error(), hint+nearestFlag(set, err))
			return nil, 2, true
		case set.NArg() == 0:
			return got, 0, false
		case takesNext(set, args[:len(args)-set.NArg()]):
			if err := set.Set(strings.TrimLeft(args[len(args)-set.NArg()-1], "-"), set.Arg(0)); err != nil {
				complain(stderr, err.Error(), hint)
				return nil, 2, true
			}
			args = set.Args()[1:]
			continue
		case len(got) == most:
			what := fmt.Sprintf("%s takes no argument %q", set.Name(), set.Arg(0))
			if most > 0 {
				what = fmt.Sprintf("%s takes one argument, and then %q", set.Name(), set.Arg(0))
			}
			complain(stderr, what, hint)
			return nil, 2, true
		}
		got, args = append(got, set.Arg(0)), set.Args()[1:]
	}
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

// complain is how people are told that something is wrong.
func complain(stderr io.Writer, what, hint string) {
	fmt.Fprintf(stderr, "atm-agent-mcp: %s\n", what)
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
}

// version is the module's version as go install stamped it, or what the
// build knows of its revision.
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
