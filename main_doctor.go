package main

// main_doctor.go owns `atm-agent-mcp doctor`: what a session needs, looked at in the order of one table of checks, each
// with what to do about it. The checks of files and leases are in main_doctorchecks.go, those of Codex in
// main_doctorcodex.go. Each check has a limit. Doctor writes nothing but a probe file that it removes, and never takes
// a lease.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
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
		{"codex", 2*wait + checkLimit, func(d *doctor) { newCodexDoctor(d).checkCodex(ctx) }},
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
