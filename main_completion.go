package main

// main_completion.go owns `atm-agent-mcp completion`: the scripts by which bash, zsh
// and fish complete our command line, made from main_help.go's table of commands.
// main.go calls it. The scripts run this program only to complete agent ids,
// and then by the columns that `sessions` prints into a pipe.
// It must never put a word of the table into a script unquoted.

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

func runCompletion(args []string, stdout, stderr io.Writer) int {
	set := flag.NewFlagSet("completion", flag.ContinueOnError)
	got, code, done := parseArgs(set, usageOf("completion"), 1, args, stdout, stderr)
	if done {
		return code
	}
	const hint = "atm-agent-mcp help completion says where to put it"
	if len(got) == 0 {
		complain(stderr, "completion wants a shell: bash, zsh or fish", hint)
		return 2
	}
	switch got[0] {
	case "bash":
		fmt.Fprint(stdout, bashCompletion(commands()))
	case "zsh":
		fmt.Fprint(stdout, zshCompletion(commands()))
	case "fish":
		fmt.Fprint(stdout, fishCompletion(commands()))
	default:
		shells := []string{"bash", "zsh", "fish"}
		complain(stderr, fmt.Sprintf("no completion for shell %q: there are %s%s", got[0], strings.Join(shells, ", "), didYouMean(got[0], shells)), hint)
		return 2
	}
	return 0
}

// bashCompletion works in bash 3.2 too, which macOS has, and without the
// bash-completion package: so it finds the current word itself. Bash's own
// words are cut at : and =, of which agent ids and --flag=value are made; and
// what it replaces is the part behind them.
func bashCompletion(all []commandRow) string {
	var b strings.Builder
	b.WriteString(`# bash completion for atm-agent-mcp
_atm_agent_mcp() {
  local line cur prev list prefix i
  local -a before
  line=${COMP_LINE:0:COMP_POINT}
  cur=${line##*[[:space:]]}
  read -ra before <<< "${line%"$cur"}"
  prev=
  if [ ${#before[@]} -gt 0 ]; then prev=${before[${#before[@]}-1]}; fi
  case $cur in
    --*=*) prev=${cur%%=*}; cur=${cur#*=} ;;
  esac
  COMPREPLY=()
  list=
  if [ "$COMP_CWORD" -le 1 ]; then
`)
	fmt.Fprintf(&b, "    list=%s\n", shellQuote(strings.Join(commandNames(), " ")+" --help --version"))
	b.WriteString("  else\n    case \"${COMP_WORDS[1]} $prev\" in\n")
	for _, c := range all {
		for _, f := range c.flags {
			if f.value == "" {
				continue
			}
			var patterns []string
			for _, n := range f.names() {
				patterns = append(patterns, shellQuote(c.name+" "+n))
			}
			do := "return"
			switch {
			case len(f.words) > 0:
				do = "list=" + shellQuote(strings.Join(f.words, " "))
			case f.files:
				do = `compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return`
			}
			fmt.Fprintf(&b, "      %s) %s ;;\n", strings.Join(patterns, "|"), do)
		}
	}
	b.WriteString("      *)\n        case \"${COMP_WORDS[1]} $cur\" in\n")
	for _, c := range all {
		var flags []string
		for _, f := range c.flags {
			flags = append(flags, f.names()...)
		}
		fmt.Fprintf(&b, "          %s-*) list=%s ;;\n", shellQuote(c.name+" "), shellQuote(strings.Join(append(flags, "--help"), " ")))
		switch {
		case c.agents:
			fmt.Fprintf(&b, "          %s*) list=$(\"$1\" sessions 2>/dev/null | cut -f1) ;;\n", shellQuote(c.name+" "))
		case c.commands:
			fmt.Fprintf(&b, "          %s*) list=%s ;;\n", shellQuote(c.name+" "), shellQuote(strings.Join(commandNames(), " ")))
		case len(c.words) > 0:
			fmt.Fprintf(&b, "          %s*) list=%s ;;\n", shellQuote(c.name+" "), shellQuote(strings.Join(c.words, " ")))
		}
	}
	b.WriteString(`        esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$list" -- "$cur"))
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
    prefix=${cur%"${cur##*:}"}
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$prefix"}; done
  fi
}
complete -F _atm_agent_mcp atm-agent-mcp
`)
	return b.String()
}

// zshCompletion works sourced and as _atm-agent-mcp in the fpath.
func zshCompletion(all []commandRow) string {
	var b strings.Builder
	b.WriteString(`#compdef atm-agent-mcp
_atm_agent_mcp_agents() {
  local -a ids
  ids=(${(f)"$(_call_program agents atm-agent-mcp sessions 2>/dev/null | cut -f1)"})
  compadd -a ids
}
_atm_agent_mcp_commands() {
  local -a commands
  commands=(
`)
	for _, c := range all {
		fmt.Fprintf(&b, "    %s\n", shellQuote(c.name+":"+c.brief))
	}
	b.WriteString(`  )
  _describe -t commands command commands
}
_atm_agent_mcp() {
  local context state state_descr line
  typeset -A opt_args
  _arguments -C '(- *)--help[print help]' '(- *)--version[print the version]' '1: :_atm_agent_mcp_commands' '*:: :->rest'
  [[ $state == rest ]] || return
  case $words[1] in
`)
	for _, c := range all {
		fmt.Fprintf(&b, "    %s)\n      _arguments '(- *)--help[print help]'", c.name)
		for _, f := range c.flags {
			for _, name := range f.names() {
				spec := name
				if f.value != "" {
					spec += "="
				}
				spec += "[" + zshEscape(f.brief()) + "]"
				switch {
				case len(f.words) > 0:
					spec += ":" + f.value + ":(" + strings.Join(f.words, " ") + ")"
				case f.files:
					spec += ":" + f.value + ":_files"
				case f.value != "":
					spec += ":" + f.value + ": "
				}
				b.WriteString(" \\\n        " + shellQuote(spec))
			}
		}
		switch {
		case c.agents:
			b.WriteString(" \\\n        '1:agent id:_atm_agent_mcp_agents'")
		case c.commands:
			b.WriteString(" \\\n        '1:command:_atm_agent_mcp_commands'")
		case len(c.words) > 0:
			b.WriteString(" \\\n        " + shellQuote("1:word:("+strings.Join(c.words, " ")+")"))
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString(`  esac
}
if [[ $funcstack[1] == _atm-agent-mcp ]]; then
  _atm_agent_mcp "$@"
else
  compdef _atm_agent_mcp atm-agent-mcp
fi
`)
	return b.String()
}

// fishCompletion asks for the word behind the program's name itself: fish's
// __fish_seen_subcommand_from would take `help serve` for serve.
func fishCompletion(all []commandRow) string {
	var b strings.Builder
	b.WriteString(`# fish completion for atm-agent-mcp
function __atm_agent_mcp_in
  set -l words (commandline -opc)
  test (count $words) -gt 1; and test "$words[2]" = "$argv[1]"
end
function __atm_agent_mcp_first
  test (count (commandline -opc)) -eq 1
end
function __atm_agent_mcp_agents
  atm-agent-mcp sessions 2>/dev/null | string replace -r '\t.*' ''
end
complete -c atm-agent-mcp -f
complete -c atm-agent-mcp -l help -d 'print help'
complete -c atm-agent-mcp -n __atm_agent_mcp_first -l version -d 'print the version'
`)
	for _, c := range all {
		fmt.Fprintf(&b, "complete -c atm-agent-mcp -n __atm_agent_mcp_first -a %s -d %s\n", c.name, fishQuote(c.brief))
	}
	for _, c := range all {
		in := "complete -c atm-agent-mcp -n " + fishQuote("__atm_agent_mcp_in "+c.name)
		for _, f := range c.flags {
			for _, name := range f.names() {
				b.WriteString(in + " -l " + strings.TrimPrefix(name, "--"))
				switch {
				case len(f.words) > 0:
					b.WriteString(" -x -a " + fishQuote(strings.Join(f.words, " ")))
				case f.files:
					b.WriteString(" -r -F")
				case f.value != "":
					b.WriteString(" -x")
				}
				b.WriteString(" -d " + fishQuote(f.brief()) + "\n")
			}
		}
		switch {
		case c.agents:
			b.WriteString(in + " -a '(__atm_agent_mcp_agents)'\n")
		case c.commands:
			b.WriteString(in + " -a " + fishQuote(strings.Join(commandNames(), " ")) + "\n")
		case len(c.words) > 0:
			b.WriteString(in + " -a " + fishQuote(strings.Join(c.words, " ")) + "\n")
		}
	}
	return b.String()
}

// shellQuote quotes for bash and zsh.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// fishQuote: fish knows \ and ' within single quotes.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}

// zshEscape is for the brackets of _arguments.
func zshEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`).Replace(s)
}
