package main

// main_config.go owns `atm-agent-mcp config`: every setting with where it comes
// from, the team, the roles and the launch facts, for a person or a script.
// main.go calls it; main_doctor.go uses its loading. What is loaded, and how, is
// config.go's: nothing is decided here, and nothing is written.

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
)

// configAsk is the command line.
type configAsk struct {
	json bool
	fl   flagValues
}

func configFlagSet(ask *configAsk) *flag.FlagSet {
	set := settingFlagSet("config", &ask.fl)
	set.BoolVar(&ask.json, "json", false, "")
	return set
}

func runConfig(args []string, stdout, stderr io.Writer) int {
	var ask configAsk
	if code, done := parseFlags(configFlagSet(&ask), usageOf("config"), args, stdout, stderr); done {
		return code
	}
	cfg, code := configFor("config", "", ask.fl, stderr, os.Environ()...)
	if code != 0 {
		return code
	}
	view := newConfigView(cfg)
	s := newScreen(stdout, os.Getenv)
	if ask.json {
		return printJSON(s, view, stderr)
	}
	view.show(s)
	for _, w := range cfg.warnings {
		complain(stderr, "warning: "+w, "")
	}
	return 0
}

// configView is the configuration as --json tells it.
type configView struct {
	Team        configTeam      `json:"team"`
	Launch      configLaunch    `json:"launch"`
	Directories configDirs      `json:"directories"`
	Files       []string        `json:"files"` // those that were read, lowest layer first
	Settings    []configSetting `json:"settings"`
	Roles       []configRole    `json:"roles"`
	Warnings    []string        `json:"warnings"`
}

type configTeam struct {
	Name   string `json:"name"`
	From   string `json:"from"`
	Exists bool   `json:"exists"`
}

// configLaunch is what a session that is given no directory starts with.
type configLaunch struct {
	CWD      string  `json:"cwd"`
	RepoRoot *string `json:"repo_root"`
	RepoName *string `json:"repo_name"`
	Branch   *string `json:"branch"`
	Head     string  `json:"head,omitempty"` // where HEAD is on no branch
}

type configDirs struct {
	Home     string `json:"home"`
	Teams    string `json:"teams"`
	Sessions string `json:"sessions"`
}

type configSetting struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	From  string `json:"from"`
	Layer string `json:"layer"` // default, global, project, named, variable, flag
}

// configRole is a role with all that it inherits.
type configRole struct {
	Name           string `json:"name"`
	Default        bool   `json:"default"` // of a call that names no role
	Model          string `json:"model"`
	Effort         string `json:"reasoning_effort"`
	Sandbox        string `json:"sandbox"`
	ApprovalPolicy string `json:"approval_policy"`
	Subagents      bool   `json:"subagents"`
	AutoMail       bool   `json:"auto_mail"`
}

func newConfigView(cfg *config) configView {
	repo := readRepo(cfg.cwd)
	v := configView{
		Team:        configTeam{cfg.team, cfg.teamFrom, cfg.teamExists},
		Launch:      configLaunch{cfg.cwd, repo.Root, repo.Name, repo.Branch, repo.Head},
		Directories: configDirs{cfg.atmHome, cfg.teamsRoot, cfg.sessionsRoot},
		Files:       append([]string{}, cfg.files...),
		Roles:       []configRole{},
		Warnings:    append([]string{}, cfg.warnings...),
	}
	for _, s := range cfg.list() {
		v.Settings = append(v.Settings, configSetting{s.key, s.value, s.from.String(), s.from.layer.String()})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.roles)) {
		r, err := cfg.role(name)
		if err != nil {
			continue // it is one of theirs: can't be
		}
		// A role leaves open what the configuration then says.
		inherit := func(own, general string) string {
			if own != "" {
				return own
			}
			return general
		}
		v.Roles = append(v.Roles, configRole{name, name == cfg.defaultRole, inherit(r.model, cfg.model), inherit(r.effort, cfg.effort),
			inherit(r.sandbox, cfg.sandbox), inherit(r.approvalPolicy, cfg.approvalPolicy), r.subagents, r.autoMail})
	}
	return v
}

// show prints the facts, and the settings as a table below them. In a pipe all
// lines have the same columns.
func (v configView) show(s screen) {
	var rows [][]cell
	for _, f := range v.facts() {
		if !s.terminal {
			rows = append(rows, []cell{{text: f[0]}, {text: f[1]}, {text: f[2]}, {}})
			continue
		}
		from := ""
		if f[2] != "" {
			from = s.paint(inDim, "  ("+printable(f[2])+")")
		}
		s.line("%-13s%s%s", f[0], printable(f[1]), from)
	}
	for _, st := range v.Settings {
		value, how := fmt.Sprint(st.Value), ""
		if st.Layer == layerDefault.String() {
			how = inDim
		}
		if s.terminal && value == "" {
			value = "-"
		}
		rows = append(rows, []cell{{text: st.Key}, {value, how}, {st.From, how}, {}}) // a note, as the facts above have
	}
	if s.terminal {
		s.line("")
		s.width = math.MaxInt32 // a line that is too long is wrapped: where a value comes from must not be cut
	}
	s.table([]string{"SETTING", "VALUE", "FROM", ""}, rows)
}

// facts are what is no setting: a name, what it is, where that is from.
func (v configView) facts() [][3]string {
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	from := v.Team.From
	if !v.Team.Exists {
		from += "; there is no such team yet"
	}
	facts := [][3]string{{"team", v.Team.Name, from}, {"cwd", v.Launch.CWD, ""}}
	if v.Launch.RepoRoot == nil {
		facts = append(facts, [3]string{"repository", "none", "around the working directory"})
	} else {
		facts = append(facts, [3]string{"repository", text(v.Launch.RepoName), *v.Launch.RepoRoot},
			[3]string{"branch", text(v.Launch.Branch) + v.Launch.Head, ""})
	}
	facts = append(facts, [3]string{"teams_dir", v.Directories.Teams, ""}, [3]string{"sessions_dir", v.Directories.Sessions, ""})
	for _, f := range v.Files {
		facts = append(facts, [3]string{"file", f, "read"})
	}
	return facts
}
