// Command atm-agent-mcp makes Codex agents first-class teammates of an MCP
// client: named sessions over one codex child.
package main

// main.go owns the command line: one switch from argument to command, the
// usage texts, the version, and the voice in which people are spoken to. It
// is the only place that exits. Commands live in files of their own name.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

const usage = `atm-agent-mcp makes Codex agents teammates of your MCP client.

usage: atm-agent-mcp <command> [flags]

  serve      speak MCP on stdin and stdout (what an MCP client starts)
  demo       show a short conversation over a built-in mock of Codex
  version    print the version
  help       print this text, or a command's: atm-agent-mcp help serve

To register it with Claude Code:

  claude mcp add codex -- atm-agent-mcp serve
`

const serveUsage = `usage: atm-agent-mcp serve [flags]

Speaks MCP on stdin and stdout and starts one codex child when the first
agent is asked for. Flags win over ATM_AGENT_MCP_* variables, those over the
nearest .atm.toml, that over ~/.config/atm/config.toml.

  --identity NAME          identity of the first agent; others get a suffix
  --role NAME              preset of [plugins.atm-agent-mcp.roles.NAME]
  --team NAME              team the agents belong to
  --model NAME             model of every agent that doesn't name one
  --fast                   use the configured fast_model
  --sandbox MODE           read-only, workspace-write or danger-full-access
  --approval-policy WORD   untrusted, on-request or never
  --readonly, --explore    no agent may write, whatever a call asks for
  --subagents              tell agents that they may spawn subagents
  --timeout SECONDS        end a turn after so much silence (default 300)
  --backend NAME           auto or app-server
  --codex-bin PATH         the codex to start; "mock" for the built-in one
  --restart-child          start codex again after it died
  --config FILE            read this file in place of the nearest .atm.toml
  --log-level LEVEL        error, warn, info, debug or trace
  --log-file PATH          log there in place of stderr
`

const demoUsage = `usage: atm-agent-mcp demo

Runs a short conversation of an MCP client with "atm-agent-mcp serve" over the
built-in mock of Codex, in a temporary home, and shows what a user would see
and what went over the wire. Needs no Codex and no network.
`

// run is the whole program. It returns the exit code: 0, 1 for a failure, 2
// for a command line that makes no sense.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch name, rest := args[0], args[1:]; name {
	case "serve":
		return runServe(ctx, rest, stdin, stdout, stderr)
	case "demo":
		if code, done := noFlags("demo", demoUsage, rest, stdout, stderr); done {
			return code
		}
		return demo(ctx, stdout, stderr)
	case "version", "--version", "-version":
		fmt.Fprintln(stdout, "atm-agent-mcp", version())
		return 0
	case "help", "--help", "-help", "-h":
		return help(rest, stdout, stderr)
	case "mock-codex": // hidden: a stand-in for Codex, for tests and the demo
		return runMock(ctx, rest, stdin, stdout, stderr)
	default:
		complain(stderr, fmt.Sprintf("no command %q", name), "atm-agent-mcp help lists the commands"+didYouMean(name, []string{"serve", "demo", "version", "help"}))
		return 2
	}
}

func help(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stdout, usage)
		return 0
	}
	switch args[0] {
	case "serve":
		fmt.Fprint(stdout, serveUsage)
	case "demo":
		fmt.Fprint(stdout, demoUsage)
	case "version":
		fmt.Fprint(stdout, "usage: atm-agent-mcp version\n\nPrints the version.\n")
	case "help":
		fmt.Fprint(stdout, usage)
	default:
		complain(stderr, fmt.Sprintf("no command %q to help with", args[0]), "atm-agent-mcp help lists the commands")
		return 2
	}
	return 0
}

// runServe parses serve's flags and runs it.
func runServe(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fl, code, done := serveFlags(args, stdout, stderr)
	if done {
		return code
	}
	cwd, err := os.Getwd()
	if err != nil {
		complain(stderr, "reading the working directory: "+err.Error(), "")
		return 1
	}
	cfg, err := loadConfig(os.Getenv, cwd, fl)
	if err != nil {
		complain(stderr, err.Error(), "atm-agent-mcp help serve lists the flags")
		return 2
	}
	return serve(ctx, cfg, proxyIO{in: stdin, out: stdout, stderr: stderr, version: version()})
}

// serveFlags reads serve's flags; only those that were given are set.
func serveFlags(args []string, stdout, stderr io.Writer) (fl flagValues, code int, done bool) {
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
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
	code, done = parseFlags(set, serveUsage, args, stdout, stderr)
	return fl, code, done
}

// noFlags parses the arguments of a command that takes none.
func noFlags(name, text string, args []string, stdout, stderr io.Writer) (code int, done bool) {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	return parseFlags(set, text, args, stdout, stderr)
}

// parseFlags runs a flag set: -h prints the usage and exits 0, a bad flag or
// an argument too many 2.
func parseFlags(set *flag.FlagSet, text string, args []string, stdout, stderr io.Writer) (code int, done bool) {
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	err := set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, text)
		return 0, true
	case err != nil:
		complain(stderr, err.Error(), "atm-agent-mcp help "+set.Name()+" lists the flags")
		return 2, true
	case set.NArg() > 0:
		complain(stderr, fmt.Sprintf("%s takes no argument %q", set.Name(), set.Arg(0)), "atm-agent-mcp help "+set.Name()+" lists the flags")
		return 2, true
	}
	return 0, false
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
