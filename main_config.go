package main

// main_config.go owns `atm-agent-mcp config`: every setting with where it comes from, the team, the roles and the
// launch facts, for a person or a script. main.go calls it; main_doctor.go uses its loading. It is also where a person
// trusts a repository's file, having seen it. What is loaded, and how, is config.go's: nothing is decided here, and
// nothing but trust is written.

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func runConfig(_ context.Context, c *commandCall) int {
	trust, untrust := c.flags["trust"] == "true", c.flags["untrust"] == "true"
	if yes := c.flags["yes"] == "true"; trust && untrust || yes && !trust {
		return c.refuse("--trust and --untrust exclude each other, and --yes goes with --trust")
	}
	cfg, code := c.config(c.flags, "")
	switch {
	case code != 0:
		return code
	case untrust:
		return c.untrust(cfg)
	case trust:
		return c.trust(cfg)
	}
	view := newConfigView(cfg)
	s := newScreen(c.stdout, os.Getenv)
	if c.flags["json"] == "true" {
		return c.printJSON(s, view)
	}
	view.show(s)
	for _, w := range cfg.warnings {
		complain(c.stderr, "warning: "+w, "")
	}
	return 0
}

// untrust takes back the trust in the repository's file, which may be gone by now.
func (c *commandCall) untrust(cfg *config) int {
	key := trustKey(filepath.Join(cfg.cwd, projectFileName))
	if cfg.repo != nil {
		key = cfg.repo.key
	}
	switch changed, err := cfg.directories.trust().set(key, "", newLogger(c.stderr, "warn")); {
	case err != nil:
		return c.fail(visible(fmt.Sprintf("taking trust back: %v", err)), "")
	case !changed:
		fmt.Fprintln(c.stdout, visible(key), "was not trusted")
	default:
		fmt.Fprintln(c.stdout, visible(key), "is no longer trusted")
	}
	return 0
}

// trust trusts the repository's file, exactly as it is shown here.
func (c *commandCall) trust(cfg *config) int {
	refuse := func(format string, args ...any) int { return c.fail(visible(fmt.Sprintf(format, args...)), "") }
	f := cfg.repo
	switch {
	case f == nil:
		return refuse("there is no %s of a repository here that would need trust", projectFileName)
	case f.refused != "":
		return refuse("%s: such a file can't be trusted", f.refused)
	case f.err != nil:
		return refuse("reading %s: %v", f.path, f.err)
	}
	doc, err := parseTOML(f.path, f.data)
	if err != nil {
		return refuse("%v: mend it first", err)
	}
	for _, l := range doc.leaves() {
		names := make([]string, len(l.path))
		for i, name := range l.path {
			if names[i] = name; !plainConfigKey(name) {
				names[i] = strconv.Quote(name)
			}
		}
		from, note := fmt.Sprintf("%s:%d", f.path, l.value.key.line), ""
		if slices.ContainsFunc(cfg.ignored, func(s ignoredSetting) bool {
			return s.From == from && s.Key == strings.Join(l.settingPath(), ".")
		}) {
			note = "   (ignored until now)"
		}
		fmt.Fprintf(c.stdout, "%s: %s = %s%s\n", visible(from), strings.Join(names, "."), l.value.text(), note)
	}
	if f.trusted {
		fmt.Fprintln(c.stdout, visible(f.path), "is trusted already, as it is")
		return 0
	}
	if c.flags["yes"] != "true" {
		in, ok := c.stdin.(*os.File)
		if ok {
			_, _, ok = terminalSize(in)
		}
		if !ok {
			return refuse("%s is not trusted: nobody can be asked, since stdin is no terminal; look at it and say "+
				"--trust --yes", f.path)
		}
		fmt.Fprintf(c.stderr, "Trust %s as it stands above? [y/N] ", visible(f.path))
		answer, _ := bufio.NewReader(io.LimitReader(in, 100)).ReadString('\n')
		if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
			return refuse("%s is not trusted", f.path)
		}
	}
	store := cfg.directories.trust()
	if _, err := store.set(f.key, f.sum, newLogger(c.stderr, "warn")); err != nil {
		return refuse("keeping trust: %v", err)
	}
	fmt.Fprintf(c.stdout, "%s is trusted until it changes (kept in %s)\n", visible(f.path), visible(store.path))
	return 0
}

// configView is the configuration as --json tells it.
type configView struct {
	Team struct {
		Name   string `json:"name"`
		From   string `json:"from"`
		Exists bool   `json:"exists"`
	} `json:"team"`
	Launch struct { // what a session that is given no directory starts with
		CWD      string  `json:"cwd"`
		RepoRoot *string `json:"repo_root"`
		RepoName *string `json:"repo_name"`
		Branch   *string `json:"branch"`
		Head     string  `json:"head,omitempty"` // where HEAD is on no branch
	} `json:"launch"`
	Directories struct {
		Home     string `json:"home"`
		Teams    string `json:"teams"`
		Sessions string `json:"sessions"`
	} `json:"directories"`
	Files    []string         `json:"files"` // those that were read, lowest layer first
	Settings []shownSetting   `json:"settings"`
	Ignored  []ignoredSetting `json:"ignored"`
	Roles    []configRole     `json:"roles"`
	Warnings []string         `json:"warnings"`
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
	v := configView{Files: append([]string{}, cfg.files...), Settings: cfg.list(), Roles: []configRole{},
		Ignored: append([]ignoredSetting{}, cfg.ignored...), Warnings: append([]string{}, cfg.warnings...)}
	t, l, d := &v.Team, &v.Launch, &v.Directories
	t.Name, t.From, t.Exists = cfg.team, cfg.teamFrom, cfg.teamExists
	l.CWD, l.RepoRoot, l.RepoName, l.Branch, l.Head = cfg.cwd, repo.Root, repo.Name, repo.Branch, repo.Head
	d.Home, d.Teams, d.Sessions = cfg.atmHome, cfg.teamsRoot, cfg.sessionsRoot
	for _, name := range slices.Sorted(maps.Keys(cfg.roles)) {
		r, _ := cfg.role(name)                // which is there
		v.Roles = append(v.Roles, configRole{ // what a role leaves open, the configuration says
			name, name == cfg.defaultRole, cmp.Or(r.model, cfg.model), cmp.Or(r.effort, cfg.effort),
			cmp.Or(r.sandbox, cfg.sandbox), cmp.Or(r.approvalPolicy, cfg.approvalPolicy), r.subagents, r.autoMail})
	}
	return v
}

// show prints the facts, and the settings as a table below them. In a pipe all lines have the same columns.
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
	for _, st := range v.Ignored {
		rows = append(rows, []cell{{st.Key, inYellow}, {text: st.Value}, {text: st.From}, {st.Why, inYellow}})
	}
	if s.terminal {
		s.line("")
		s.width = math.MaxInt32 // a line that is too long is wrapped: where a value comes from must not be cut
	}
	s.table([]string{"SETTING", "VALUE", "FROM", ""}, rows)
}

// facts are what is no setting: a name, what it is, where that is from.
func (v configView) facts() [][3]string {
	from := v.Team.From
	if !v.Team.Exists {
		from += "; there is no such team yet"
	}
	facts := [][3]string{{"team", v.Team.Name, from}, {"cwd", v.Launch.CWD, ""}}
	if v.Launch.RepoRoot == nil {
		facts = append(facts, [3]string{"repository", "none", "around the working directory"})
	} else {
		facts = append(facts, [3]string{"repository", deref(v.Launch.RepoName), *v.Launch.RepoRoot},
			[3]string{"branch", deref(v.Launch.Branch) + v.Launch.Head, ""})
	}
	facts = append(facts, [3]string{"teams_dir", v.Directories.Teams, ""},
		[3]string{"sessions_dir", v.Directories.Sessions, ""})
	for _, f := range v.Files {
		facts = append(facts, [3]string{"file", f, "read"})
	}
	return facts
}
