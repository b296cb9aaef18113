package main

// main_doctor.go owns `atm-agent-mcp doctor`: what a session needs, looked at in the order of one table of checks, each
// with what to do about it. The checks of files and leases are in main_doctorchecks.go, Codex is asked here. Doctor
// starts codex as serve does and ends it, within a limit, and runs no turn. It writes nothing but a probe file that it
// removes, and never takes a lease.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// doctor makes findings, and shows those of a check as soon as it is made: codex may take a while.
type doctor struct {
	cfg   *config       // nil until the configuration was looked at
	flags flagValues    // as serve would be given them
	wait  time.Duration // how long codex may take to start, and to answer
	check string        // the name that the next findings have
	found []finding
	show  func(finding)
}

// A finding is one line of the report.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning, failure
	Text   string `json:"text"`
	Hint   string `json:"hint,omitempty"` // what to do
}

const (
	findingOK      = "ok"
	findingWarning = "warning"
	findingFailure = "failure"
)

// checkLimit is how long a look at files may take; they take milliseconds.
const checkLimit = 10 * time.Second

func (d *doctor) ok(format string, args ...any) { d.add(findingOK, fmt.Sprintf(format, args...), "") }
func (d *doctor) warn(text, hint string)        { d.add(findingWarning, text, hint) }
func (d *doctor) fail(text, hint string)        { d.add(findingFailure, text, hint) }

func (d *doctor) add(status, text, hint string) { d.tell(finding{d.check, status, text, hint}) }

func (d *doctor) tell(f finding) {
	d.found = append(d.found, f)
	d.show(f)
}

// A doctorCheck is one row of what is looked at.
type doctorCheck struct {
	name  string // of its findings, unless it sets another
	limit time.Duration
	look  func(*doctor)
}

// doctorChecks are made in this order, once the configuration is known.
func doctorChecks(ctx context.Context, wait time.Duration) []doctorCheck {
	return []doctorCheck{
		{"program", checkLimit, (*doctor).checkProgram},
		{"directory", checkLimit, (*doctor).checkDirectory},
		{"team", checkLimit, (*doctor).checkTeam},
		{"prompt files", checkLimit, (*doctor).checkPromptFiles},
		{"log file", checkLimit, (*doctor).checkLogFile},
		{"session files", checkLimit, (*doctor).checkSessionFiles},
		// and its login, its configuration, the policy
		{"codex", 2*wait + checkLimit, func(d *doctor) { d.checkCodex(ctx) }},
		{"identities", checkLimit, (*doctor).checkLeases},
		{"clients", wait + checkLimit, func(d *doctor) { d.checkClients(ctx) }},
		{"leftovers", checkLimit, func(d *doctor) { d.checkLeftovers(ctx) }},
		{"inotify", checkLimit, (*doctor).checkInotify},
	}
}

func (d *doctor) count(status string) (n int) {
	for _, f := range d.found {
		if f.Status == status {
			n++
		}
	}
	return n
}

func runDoctor(ctx context.Context, c *commandCall) int {
	seconds, err := strconv.Atoi(cmp.Or(c.flags["wait"], "20"))
	if err != nil || seconds < 1 || seconds > 600 {
		return c.refuse(fmt.Sprintf("--wait wants a number of seconds, 1 to 600, not %q", cutName(c.flags["wait"])))
	}
	s, asJSON := newScreen(c.stdout, os.Getenv), c.flags["json"] == "true"
	s.out = c.names.writer(s.out)
	d := &doctor{wait: time.Duration(seconds) * time.Second, flags: c.flags, show: func(f finding) {
		if !asJSON {
			showFinding(s, f)
		}
	}}
	var bad *flagError
	if err := d.runChecks(ctx); errors.As(err, &bad) {
		return c.refuse(err.Error())
	}
	failures, warnings := d.count(findingFailure), d.count(findingWarning)
	code := min(failures, 1)
	switch {
	case asJSON:
		return max(code, c.printJSON(s, struct {
			OK     bool      `json:"ok"`
			Checks []finding `json:"checks"`
		}{failures == 0, d.found}))
	case failures > 0:
		s.line("\n%s", s.paint(inRed, fmt.Sprintf("%s: no session can start before that is mended",
			counted(failures, "failure"))))
	case warnings > 0:
		s.line("\n%s", s.paint(inGreen, "a session can start")+"; "+counted(warnings, "warning"))
	default:
		s.line("\n%s", s.paint(inGreen, "a session can start"))
	}
	return code
}

// showFinding prints a line, in a pipe too: it is for reading, --json for programs.
func showFinding(s screen, f finding) {
	how := map[string]string{findingOK: inGreen, findingWarning: inYellow, findingFailure: inRed}[f.Status]
	s.line("%s  %-14s %s", s.paint(how, fmt.Sprintf("%-7s", f.Status)), f.Check, printable(f.Text))
	if f.Hint != "" {
		s.line("%9shint: %s", "", printable(f.Hint))
	}
}

// runChecks makes all checks. The error is for a command line that makes no sense.
func (d *doctor) runChecks(ctx context.Context) error {
	var bad error
	first := doctorCheck{"configuration", checkLimit, func(d *doctor) { bad = d.checkConfiguration() }}
	if !d.runCheck(first) || d.cfg == nil || bad != nil {
		return bad
	}
	for _, c := range doctorChecks(ctx, d.wait) {
		d.runCheck(c)
	}
	return nil
}

// runCheck makes a check that reads files, and tells what it found. Nothing ends a read of a file system that doesn't
// answer, so a check that takes longer than its limit is left behind until the process ends, and runCheck is false.
func (d *doctor) runCheck(c doctorCheck) bool {
	part := &doctor{cfg: d.cfg, flags: d.flags, wait: d.wait, check: c.name, show: func(finding) {}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.look(part)
	}()
	timer := time.NewTimer(c.limit)
	defer timer.Stop()
	select {
	case <-done:
		d.cfg = part.cfg
		for _, f := range part.found {
			d.tell(f)
		}
		return true
	case <-timer.C:
		d.check = c.name
		d.fail(fmt.Sprintf("not known: a file system did not answer within %v", c.limit),
			"see which of the directories that atm-agent-mcp config shows can't be listed; a network's file system "+
				"may be gone")
		return false
	}
}

// checkConfiguration loads it as serve does. Where serve would refuse a file that was named,
// the rest is still looked at, without that file.
func (d *doctor) checkConfiguration() error {
	cwd, err := os.Getwd()
	if err != nil {
		d.fail("reading the working directory: "+err.Error(), "start it in a directory that exists")
		return nil
	}
	env := os.Getenv
	cfg, err := loadConfig(env, cwd, d.flags, os.Environ()...)
	if bad := (*flagError)(nil); errors.As(err, &bad) {
		return err
	}
	if err != nil {
		d.fail(err.Error(), "mend the file, or leave out --config and ATM_CONFIG")
		fl := maps.Clone(d.flags)
		delete(fl, "config")
		if cfg, err = loadConfig(func(name string) string {
			if name == "ATM_CONFIG" {
				return ""
			}
			return env(name)
		}, cwd, fl, os.Environ()...); err != nil {
			return nil // without a home nothing else can be looked at
		}
	}
	d.cfg = cfg
	for i, w := range cfg.warnings {
		hint := ""
		if i == len(cfg.warnings)-1 {
			hint = "mend it there; until then, atm-agent-mcp config shows what is in effect"
		}
		d.warn(w, hint)
	}
	if len(cfg.files) > 0 {
		d.ok("%s", strings.Join(cfg.files, ", "))
	} else {
		d.ok("no file: defaults, variables and flags; settings go to [plugins.%s] in .atm.toml", pluginName)
	}
	return nil
}

// checkCodex starts the child, asks it who is logged in and for the user's configuration, and ends it.
func (d *doctor) checkCodex(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.wait)
	defer cancel()
	began := time.Now()
	be, err := codexSpawner(d.cfg, slog.New(slog.DiscardHandler), nil, childHooks{})(ctx, func(*childDeath) {})
	if err != nil {
		d.codexFailed(ctx, err)
		return
	}
	defer be.stop(2 * time.Second)
	inf := be.info()
	d.ok("%s %s, %s, answers after %d ms", d.codexPath(), cmp.Or(inf.version, "of unknown version"), inf.kind,
		time.Since(began).Milliseconds())
	if inf.kind == "app-server" && !inf.atLeast(104) {
		d.warn("Codex "+inf.version+" is older than 0.104, the oldest that is supported",
			d.updateCodex())
	}
	// with a broken config.toml it isn't known which login is wanted, and codex login would fail too
	if d.checkPolicy(ctx, be) {
		d.checkLogin(ctx, be)
	}
}

// updateCodex is what brings the newest Codex, by the place where this one was found.
func (d *doctor) updateCodex() string {
	if found, _, err := findCodex(d.cfg.codexBin); err == nil {
		real, err := filepath.EvalSymlinks(found.Path)
		real = filepath.ToSlash(real)
		if err == nil && (strings.Contains(real, "/Caskroom/") || strings.Contains(real, "/Cellar/")) {
			return "brew upgrade codex"
		}
	}
	return "npm install -g @openai/codex@latest"
}

// codexPath is where codex was found, or what was looked for.
func (d *doctor) codexPath() string {
	if found, _, err := findCodex(d.cfg.codexBin); err == nil {
		return strings.Join(append([]string{found.Path}, found.Args...), " ")
	}
	return d.cfg.codexBin
}

// subcommand is what is likely started: auto prefers app-server.
func (d *doctor) subcommand() string {
	if d.cfg.backend == "mcp-server" {
		return "mcp-server"
	}
	return "app-server"
}

// codexFailed tells why there is no child. The hint is part of most reasons already.
func (d *doctor) codexFailed(ctx context.Context, err error) {
	from := d.cfg.origin["codex_bin"].String()
	var death *childDeath
	switch {
	case ctx.Err() != nil:
		d.fail(fmt.Sprintf("%s did not answer initialize within %v and was stopped", d.codexPath(), d.wait),
			"run `"+d.codexPath()+" "+d.subcommand()+"` by hand and see what it waits for; --wait SECONDS gives it "+
				"more time")
		return
	case !errors.As(err, &death):
		d.fail(err.Error(), "")
		return
	}
	text, hint, _ := strings.Cut(death.Reason, "; ")
	if death.Stderr != "" {
		text += fmt.Sprintf("; it says: %q", death.Stderr)
	}
	switch {
	case death.Path != "" && hint == "":
		if !strings.Contains(text, "could not be started") {
			text = "ended: " + text
		}
		text = d.codexPath() + " " + text
		hint = "run `" + d.codexPath() + " " + d.subcommand() + "` by hand: what it says there is what is wrong"
	case from != "default":
		text += " (codex_bin from " + from + ")"
	}
	switch mend := d.mendCodexHome(); {
	case death.Path == "" || death.Stderr == "": // it was never started
	case mend != "":
		hint = mend
	case strings.Contains(death.Stderr, "loading config"), strings.Contains(death.Stderr, "config.toml:"):
		hint = "mend Codex's config.toml: with it no thread can be opened"
	case strings.Contains(death.Stderr, "node") && (strings.Contains(death.Stderr, "env: ") ||
		strings.Contains(death.Stderr, "not recognized")): // Windows' word
		hint = "codex is a script for Node.js, which is not on this PATH: install it, or give the MCP client a PATH " +
			"that has it (claude mcp add codex -e PATH=\"$PATH\" -- atm-agent-mcp serve)"
	}
	d.fail(text, hint)
}

// mendCodexHome says how to mend the directory in which Codex keeps its configuration and its login, "" where
// nothing is wrong with it. Codex's own words on that are a bare "Permission denied". It is looked at only where
// Codex has failed.
func (d *doctor) mendCodexHome() string {
	dir, named := codexHomeDir(d.cfg.home), os.Getenv("CODEX_HOME") != ""
	orUnset := ""
	if named {
		orUnset = ", or unset CODEX_HOME"
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named: // Codex makes it
		return ""
	case errors.Is(err, fs.ErrNotExist) && runtime.GOOS == "windows":
		return "mkdir " + dir + orUnset
	case errors.Is(err, fs.ErrNotExist):
		return "mkdir -p " + dir + orUnset
	case err == nil && !st.IsDir():
		return fmt.Sprintf("%s is a file where Codex wants a directory: move it away%s", dir, orUnset)
	}
	if err == nil {
		_, err = os.ReadDir(dir)
	}
	if err == nil {
		err = probeDir(dir)
	}
	if err == nil {
		var f *os.File
		switch f, err = openRegular(filepath.Join(dir, "config.toml")); {
		case err == nil:
			f.Close()
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		case errors.Is(err, errNotRegular):
			return "move " + filepath.Join(dir, "config.toml") + " away, which is no file"
		}
	}
	if err == nil {
		return ""
	}
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("make %s yours to read and write%s", dir, orUnset)
	}
	return fmt.Sprintf("sudo chown -R \"$(id -un)\" %s && chmod -R u+rwX %s%s", dir, dir, orUnset)
}

// codexCommand is how a person calls the codex that is used here.
func (d *doctor) codexCommand() string {
	if filepath.Base(d.cfg.codexBin) == d.cfg.codexBin {
		return d.cfg.codexBin
	}
	return d.codexPath()
}

// checkLogin asks for the account; that starts no turn and needs no network.
func (d *doctor) checkLogin(ctx context.Context, be backend) {
	d.check = "login"
	if d.cfg.codexBin == "mock" {
		d.ok("the built-in mock needs none")
		return
	}
	if be.info().kind == "mcp-server" { // can't be asked, but the same binary's app-server can, where it has one
		cfg := *d.cfg
		cfg.backend = "app-server"
		other, err := codexSpawner(&cfg, slog.New(slog.DiscardHandler), nil, childHooks{})(ctx, func(*childDeath) {})
		if err != nil {
			d.warn("codex mcp-server can't be asked who is logged in", "run `"+d.codexCommand()+" login status`")
			return
		}
		defer other.stop(2 * time.Second)
		be = other
	}
	raw, err := be.catalog(ctx, "account", "")
	if err != nil {
		d.warn("who is logged in could not be read: "+err.Error(), "run `"+d.codexCommand()+" login status`")
		return
	}
	var got struct {
		Account *struct {
			Type     string `json:"type"`
			PlanType string `json:"planType"`
		} `json:"account"`
		Needed *bool `json:"requiresOpenaiAuth"`
	}
	switch err := json.Unmarshal(raw, &got); {
	case err != nil:
		d.warn("who is logged in could not be understood: "+err.Error(), "run `"+d.codexCommand()+" login status`")
	case got.Account != nil && got.Account.PlanType != "":
		d.ok("%s, plan %s", cmp.Or(got.Account.Type, "logged in"), got.Account.PlanType)
		d.checkLimits(ctx, be)
	case got.Account != nil:
		d.ok("%s", cmp.Or(got.Account.Type, "logged in"))
	case got.Needed != nil && !*got.Needed:
		d.ok("none needed: the model provider of Codex's config.toml has its own")
	default:
		key := "printenv OPENAI_API_KEY"
		if runtime.GOOS == "windows" {
			key = "$env:OPENAI_API_KEY" // in PowerShell
		}
		hint := fmt.Sprintf("run `%s login`, or `%s | %[1]s login --with-api-key`", d.codexCommand(), key)
		if mend := d.mendCodexHome(); mend != "" { // the login could not be written
			hint = "first " + mend + "; then " + hint
		}
		d.fail("Codex is not logged in: every turn would fail", hint)
	}
}

// checkLimits tells how much of the account's limits is used, as far as Codex can find that out just now.
func (d *doctor) checkLimits(ctx context.Context, be backend) {
	d.check = "limits"
	ctx, cancel := context.WithTimeout(ctx, limitsAskFor)
	defer cancel()
	var limits accountLimits
	raw, err := be.catalog(ctx, "limits", "")
	if err == nil {
		limits.takeAll(raw, time.Now())
	}
	lines := limits.view().lines()
	switch near := limits.warning(time.Now()); {
	case len(lines) == 0:
		d.ok("not told")
	case near != "":
		d.warn(near, "wait for the reset, or agents will fail with it")
	default:
		d.ok("%s", strings.Join(lines, " "))
	}
}

// checkPolicy says what an agent that is given nothing may do here. False: Codex can't read its own configuration.
func (d *doctor) checkPolicy(ctx context.Context, be backend) bool {
	d.check = "codex config"
	user, err := be.catalog(ctx, "config", d.cfg.cwd)
	switch {
	case err != nil && be.info().kind == "mcp-server": // that has read it itself, and we make do without
		d.warn(err.Error()+": agents are read-only unless told otherwise",
			"mend it, or set sandbox and approval_policy in .atm.toml")
		user = nil
	case err != nil:
		d.fail(err.Error(), cmp.Or(d.mendCodexHome(), "mend Codex's config.toml: with it no thread can be opened"))
		return false
	}
	d.check = "policy"
	r, roleErr := d.cfg.role("")
	if roleErr != nil {
		return true // said with the configuration
	}
	pol, rpcErr := resolvePolicy(policyInput{cfg: d.cfg, role: r, user: user, cwd: d.cfg.cwd,
		repoRoot: deref(readRepo(d.cfg.cwd).Root)})
	if rpcErr != nil {
		d.fail(rpcErr.Message, "change the setting that it names; atm-agent-mcp config shows where it comes from")
		return true
	}
	d.add(findingOK, fmt.Sprintf("an agent here runs with sandbox %s, approvals %s, model %s", pol.Settings.Sandbox,
		pol.Settings.Approval, cmp.Or(pol.Settings.Model, "as Codex chooses")), strings.Join(pol.Notes, "; "))
	return true
}
