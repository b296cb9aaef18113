package main

// main_help.go owns the one table of commands and flags, of which the usage texts and the parsers are made: a command
// is a row here and the function that it names, a flag is a row of its command. main.go runs commands by it. A row says
// nothing of what a flag's value may be: settings are checked with the configuration, the others by their command.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

type commandRow struct {
	name  string
	args  string // the arguments as the usage names them, "" for none
	most  int    // how many arguments the command takes at most
	rest  bool   // the first argument and all behind it, flags too, are left to the command
	hook  bool   // Claude Code runs it, and takes 2 for "hold back" or "wake": it never means a mistake
	brief string // for the list of commands
	about string // for the command's own help
	flags []flagRow
	run   func(context.Context, *commandCall) int // returns the exit code
}

// A flagRow is a flag: a switch if it has no value.
type flagRow struct {
	name, alias string // without dashes
	value       string // what the value is called in the help, "" for a switch
	maybe       string // the same of a value that may be left out
	help        string
}

// commands lists what is told of, under a program's names; mock-codex is not.
func commands(n *names) []commandRow {
	rows := ownCommands()
	if n == nil {
		return rows
	}
	for i := range rows {
		switch r := &rows[i]; r.name {
		case "sessions":
			r.name = "threads"
		case "serve":
			r.flags[0].alias = "resume-compacted"
		}
	}
	return rows
}

func ownCommands() []commandRow {
	return []commandRow{
		{
			name: "serve", run: runServe,
			brief: "speak MCP on stdin and stdout (what an MCP client starts)",
			about: `Speaks MCP on stdin and stdout and starts one codex child when the first
agent is asked for. Flags win over ATM_AGENT_MCP_* variables, those over the
nearest .atm.toml, that over ~/.config/atm/config.toml.`,
			flags: append([]flagRow{
				{name: "resume", maybe: "SESSION",
					help: "continue this session (agent id or identity) with the\nfirst agent asked for; by itself " +
						"the newest session\nof the identity"},
			}, serveRows()...),
		},
		{
			name: "acp", args: "[login]", rest: true, run: runACP,
			brief: "speak ACP on stdin and stdout (what an editor starts)",
			about: `Speaks the Agent Client Protocol on stdin and stdout: Codex as an agent in any
editor that has it. Takes serve's flags but --resume and --restart-child: the
editor says which session it wants, and codex is always started again. A person
is in front of it: permissions and silent turns wait for them, unless
approval_timeout_secs or request_timeout_secs are set. Without --identity a
session is in no team and has no mail, and Codex is told of neither.

atm-agent-mcp acp login runs the login of the codex that acp would start, in
this terminal; what stands behind login goes to codex login.`,
			flags: acpRows(),
		},
		{
			name: "doctor", run: runDoctor,
			brief: "check the set-up and say what to do about it",
			about: `Checks what a session needs: configuration, team, directories, codex and its
login, who holds which identity. Each line is ok, a warning or a failure with
what to do. Exits 0 only if a session could start. Takes serve's flags but
--resume: give it those that your MCP client gives serve. It starts codex and
ends it, runs no turn, and changes no file of yours or ours; codex may write
to its own home.`,
			flags: append([]flagRow{
				{name: "json", help: "print JSON"},
				{name: "wait", value: "SECONDS", help: "how long codex may take to start (default 20)"},
			}, serveRows()...),
		},
		{
			name: "config", run: runConfig,
			brief: "show every setting and where it comes from",
			about: `Shows every setting with where it comes from: a flag, a variable, file and
line, or the default; the team and how it was found; the repository. Takes
serve's flags but --resume to show what they would do. In a pipe each line is:
key, value, origin, why it has no effect, with tabs between them.

A repository's .atm.toml is somebody else's text: until you trust it, what runs
a program, names a file or widens what agents may do is ignored. --trust prints
every line of it and asks; any change to the file takes the trust away.`,
			flags: append([]flagRow{
				{name: "json", help: "print JSON"},
				{name: "trust", help: "trust the repository's .atm.toml as it is now"},
				{name: "untrust", help: "take that back"},
				{name: "yes", help: "with --trust: don't ask"},
			}, serveRows()...),
		},
		{
			name: "sessions", run: runSessions,
			brief: "list the team's sessions, or remove old ones",
			about: `Lists every session that the team has a record of, newest first. A session
whose process died is stale; codex-reply with its agent id revives it. In a
pipe each line is: agent id, identity, status, last active, turns,
repository, branch, directory, last prompt, with tabs between them.`,
			flags: []flagRow{
				{name: "repo", value: "NAME", help: "only of this repository: its name, or a path to it"},
				{name: "identity", value: "NAME", help: "only of this identity"},
				{name: "team", value: "NAME", help: "the team (default as for serve)"},
				{name: "json", help: "print JSON"},
				{name: "prune", help: "remove those that are closed, stale, parked or broken\nand held by no running " +
					"process, with summaries,\nkept answers and thread locks that nobody holds;\nwith --repo or " +
					"--identity only those"},
			},
		},
		{
			name: "watch", run: runWatch,
			brief: "show what the team's agents do, and who waits for you",
			about: `Shows a line for each agent of the team that a process holds, whichever it is:
state, for how long, unread mail, tokens, branch, what it is doing; who waits
for a decision first, and the account's limits below. Redrawn once a second
until q or ^C. An agent that nobody holds (closed, parked, of a process that
died) is not shown: sessions lists those. Into a pipe, or with --once, it shows
them once; there each line is: identity, agent id, state, since when, unread
mail, tokens, branch, what it is doing, with tabs between them, then the limits.`,
			flags: []flagRow{
				{name: "team", value: "NAME", help: "the team (default as for serve)"},
				{name: "once", help: "show them once and end"},
				{name: "json", help: "print an object a line: each agent and the limits,\nthen each that changed or " +
					"is gone, " +
					"until ^C or the\nend of whoever reads; time passing is no change"},
			},
		},
		{
			name: "inbox", run: runInbox, hook: true,
			brief: "show your unread mail, or be told as it comes",
			about: `Shows the unread mail of the inbox that is your own (client_identity; in Claude
Code the team lead's), and leaves it unread: atm_read reads it. In a pipe each
line is: sender, time, message id, summary, text, with tabs between them.

--follow is for a monitor of Claude Code, --wake for an asyncRewake hook, which
Claude Code starts: they tell in one line of mail that is unread for 2.5 seconds,
and of background agents that wait that long for agent_approve. Nothing is told
twice in a session of Claude Code. They end with it, and wait for a team that is
not there yet.`,
			flags: []flagRow{
				{name: "team", value: "NAME", help: "the team (default as for serve)"},
				{name: "follow", help: "go on, and print a line for what comes"},
				{name: "wake", help: "print one such line to stderr and exit 2; exit 0 at\n" +
					"once where another waits for this session"},
			},
		},
		{
			name: "summary", args: "<agent-id>", most: 1, run: runSummary,
			brief: "print what a session left behind",
			about: `Prints the summary that a session wrote as it ended, or, where it wrote none,
a digest of it: last prompt, last answer, touched files.`,
			flags: []flagRow{{name: "team", value: "NAME", help: "the team (default as for serve)"}},
		},
		{
			name: "audit", run: runAudit,
			brief: "show who sent, asked, approved and closed what",
			about: `Shows the team's audit trail, oldest first: turns, mail, approvals, ends of
sessions. Secrets are taken out as it is written; the oldest lines go when it
is over 20 MB. In a pipe each line is: time, event, agent id, identity,
recipient, decision, correlation id, summary, detail, with tabs between them.`,
			flags: []flagRow{
				{name: "agent", value: "ID", help: "only of this agent: its agent id or thread id"},
				{name: "identity", value: "NAME", help: "only of this identity"},
				{name: "since", value: "WHEN", help: "only from then on: a time, or an age such as 90m, 24h\nor 7d"},
				{name: "team", value: "NAME", help: "the team (default as for serve)"},
				{name: "json", help: "print JSON"},
			},
		},
		{
			name: "tools", run: runTools,
			brief: "serve an agent's mail tools to Codex (serve has Codex start it)",
			about: `Speaks MCP on stdin and stdout and serves the four mail tools of one agent to
the Codex that runs it: atm_send, atm_read, atm_broadcast, atm_pending_count.
All of them act as the identity given here, whatever a call claims. serve puts
this command into the configuration of its threads; there is no need to.`,
			flags: []flagRow{
				{name: "identity", value: "NAME", help: "whose mail it is"},
				{name: "team", value: "NAME", help: "the team (default as for serve)"},
				{name: "agent", value: "ID", help: "only while this agent has the identity"},
				{name: "cwd", value: "DIR", help: "find the configuration as from there"},
				{name: "config", value: "FILE", help: "read this file in place of the nearest .atm.toml"},
			},
		},
		{
			name: "gate", run: runGate, hook: true,
			brief: "have a change reviewed before Claude Code stops (its plugin's hook)",
			about: `Reads the event of a Stop or SessionStart hook of Claude Code on stdin. At a
stop it has Codex review what Claude changed, committed or not, in ten minutes
at most, and holds Claude back where the verdict is that the change is wrong,
in at most three reviews a stop. Anything else that is wrong is told in a line,
and Claude stops. It does nothing unless it is switched on.`,
			flags: []flagRow{
				{name: "on", help: "it is switched on (in the plugin: the setting\nstop_gate)"},
			},
		},
		{
			name: "demo", run: runDemo,
			brief: "show a short conversation over a built-in mock of Codex",
			about: `Runs a short conversation of an MCP client with atm-agent-mcp serve over the
built-in mock of Codex, in a temporary home, and shows what a user would see
and what went over the wire. Needs no Codex and no network.`,
		},
		{
			name: "version", run: runVersion,
			brief: "print the version",
			about: "Prints the version.",
		},
		{
			name: "help", args: "[command]",
			brief: "print this text, or a command's: atm-agent-mcp help serve",
		},
	}
}

func serveRows() []flagRow {
	return []flagRow{
		{name: "identity", value: "NAME", help: "identity of the first agent; others get a suffix"},
		{name: "role", value: "NAME", help: "preset of [plugins.atm-agent-mcp.roles.NAME]"},
		{name: "team", value: "NAME", help: "team the agents belong to"},
		{name: "model", value: "NAME", help: "model of every agent that doesn't name one"},
		{name: "fast", help: "use the configured fast_model"},
		{name: "sandbox", value: "MODE", help: "read-only, workspace-write or danger-full-access"},
		{name: "approval-policy", value: "WORD", help: "untrusted, on-request or never"},
		{name: "readonly", alias: "explore", help: "no agent may write, whatever a call asks for"},
		{name: "subagents", help: "tell agents that they may spawn subagents"},
		{name: "timeout", value: "SECONDS", help: "end a turn after so much silence (default 300)"},
		{name: "backend", value: "NAME", help: "auto, app-server or mcp-server"},
		{name: "codex-bin", value: "PATH", help: `the codex to start; "mock" for the built-in one`},
		{name: "restart-child", help: "start codex again after it died"},
		{name: "config", value: "FILE", help: "read this file in place of the nearest .atm.toml"},
		{name: "log-level", value: "LEVEL", help: "error, warn, info, debug or trace"},
		{name: "log-file", value: "PATH", help: "log there in place of stderr"},
	}
}

// acpRows are acp's: it starts codex again without being told to, and has a person in front of it.
func acpRows() []flagRow {
	rows := slices.DeleteFunc(serveRows(), func(f flagRow) bool { return f.name == "restart-child" })
	for i := range rows {
		switch rows[i].name {
		case "identity":
			rows[i].help = "make the first session a member of the team under this\nname; others get a suffix"
		case "team":
			rows[i].help = "team of --identity; it also keeps its sessions apart"
		case "timeout":
			rows[i].help = "end a turn after so much silence (default: never)"
		}
	}
	return rows
}

func (f flagRow) spelling() string {
	s := "--" + f.name
	if f.alias != "" {
		s += ", --" + f.alias
	}
	if f.value != "" {
		s += " " + f.value
	}
	if f.maybe != "" {
		s += " [" + f.maybe + "]"
	}
	return s
}

func (c commandRow) flagSet(values flagValues) *flag.FlagSet {
	set := flag.NewFlagSet(c.name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	for _, f := range c.flags {
		for _, name := range namesOf(f.name, f.alias) {
			switch {
			case f.value != "":
				set.Func(name, "", func(s string) error { values[f.name] = s; return nil })
			case f.maybe != "":
				set.BoolFunc(name, "", func(s string) error {
					if s == "true" { // package flag's word for a flag alone
						s = ""
					}
					values[f.name] = s
					return nil
				})
			default:
				set.BoolFunc(name, "", func(s string) error {
					on, err := strconv.ParseBool(s)
					values[f.name] = strconv.FormatBool(on)
					return err
				})
			}
		}
	}
	return set
}

// joinValues writes "--resume x", with a value that may be left out, as package flag wants it: "--resume=x".
func (c commandRow) joinValues(args []string) []string {
	var joined []string
	for _, arg := range args {
		if n := len(joined) - 1; n >= 0 && !strings.HasPrefix(arg, "-") && strings.HasPrefix(joined[n], "-") &&
			slices.ContainsFunc(c.flags, func(f flagRow) bool {
				return f.maybe != "" && slices.Contains(namesOf(f.name, f.alias), strings.TrimLeft(joined[n], "-"))
			}) {
			joined[n] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

func findCommand(n *names, name string) (commandRow, bool) {
	all := commands(n)
	i := slices.IndexFunc(all, func(c commandRow) bool { return c.name == name })
	if i < 0 {
		return commandRow{}, false
	}
	return all[i], true
}

func commandNames(n *names) (all []string) {
	for _, c := range commands(n) {
		all = append(all, c.name)
	}
	return all
}

func usage(n *names) string {
	var b strings.Builder
	b.WriteString("atm-agent-mcp makes Codex agents teammates of your MCP client.\n\nusage: atm-agent-mcp <command> " +
		"[flags]\n\n")
	for _, c := range commands(n) {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.brief)
	}
	b.WriteString("\nTo register it with Claude Code:\n\n  claude mcp add codex -- atm-agent-mcp serve\n")
	return b.String()
}

func (c commandRow) usage(n *names) string {
	if c.about == "" {
		return usage(n) // help's help is the list of what it helps with
	}
	var b strings.Builder
	b.WriteString("usage: atm-agent-mcp " + c.name)
	if c.args != "" {
		b.WriteString(" " + c.args)
	}
	if len(c.flags) > 0 {
		b.WriteString(" [flags]")
	}
	b.WriteString("\n\n" + c.about + "\n")
	for i, f := range c.flags {
		if i == 0 {
			b.WriteByte('\n')
		}
		spelling := f.spelling()
		if len(spelling) > 24 {
			spelling += "\n" + strings.Repeat(" ", 26)
		}
		fmt.Fprintf(&b, "  %-24s %s\n", spelling, strings.ReplaceAll(f.help, "\n", "\n"+strings.Repeat(" ", 27)))
	}
	return b.String()
}

func help(n *names, args []string, stdout, stderr io.Writer) int {
	const hint = "atm-agent-mcp help lists the commands"
	switch {
	case len(args) > 1:
		complain(stderr, fmt.Sprintf("help takes one command, and then %q", args[1]), hint)
		return 2
	case len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help"}, args[0]):
		fmt.Fprint(stdout, usage(n))
		return 0
	}
	row, ok := findCommand(n, args[0])
	if !ok {
		complain(stderr, fmt.Sprintf("no command %q to help with", args[0]), hint+didYouMean(args[0], commandNames(n)))
		return 2
	}
	fmt.Fprint(stdout, row.usage(n))
	return 0
}
