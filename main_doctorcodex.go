package main

// main_doctorcodex.go owns doctor's look at Codex: it starts codex as serve does, asks who is logged in, how much of
// the account's limits is used and what the user's configuration says, ends it, and tells what to do where any of that
// fails. main_doctor.go calls it. It runs no turn and writes nothing but a probe, which it removes.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// codexDoctor makes findings about the codex that the configuration names.
type codexDoctor struct {
	*doctor
	program string // where codex was found, with its arguments, or what was looked for
	command string // how a person calls it
	update  string // what brings the newest, by the place where this one was found
}

func newCodexDoctor(d *doctor) codexDoctor {
	bin := d.cfg.codexBin
	c := codexDoctor{doctor: d, program: bin, command: bin, update: "npm install -g @openai/codex@latest"}
	found, _, err := findCodex(bin)
	if err != nil {
		return c
	}
	c.program = strings.Join(append([]string{found.Path}, found.Args...), " ")
	if filepath.Base(bin) != bin {
		c.command = c.program
	}
	real, err := filepath.EvalSymlinks(found.Path)
	if err == nil && containsAny(filepath.ToSlash(real), "/Caskroom/", "/Cellar/") {
		c.update = "brew upgrade codex"
	}
	return c
}

// checkCodex starts the child, asks it who is logged in and for the user's configuration, and ends it.
func (d codexDoctor) checkCodex(ctx context.Context) {
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
	d.ok("%s %s, %s, answers after %d ms", d.program, cmp.Or(inf.version, "of unknown version"), inf.kind,
		time.Since(began).Milliseconds())
	if inf.kind == "app-server" && !inf.atLeast(104) {
		d.warn("Codex "+inf.version+" is older than 0.104, the oldest that is supported", d.update)
	}
	// with a broken config.toml it isn't known which login is wanted, and codex login would fail too
	if d.checkPolicy(ctx, be) {
		d.checkLogin(ctx, be)
	}
}

// codexFailed tells why there is no child. The hint is part of most reasons already.
func (d codexDoctor) codexFailed(ctx context.Context, err error) {
	from := d.cfg.origin["codex_bin"].String()
	byHand := "run `" + d.program + " app-server` by hand" // auto prefers it
	if d.cfg.backend == "mcp-server" {
		byHand = "run `" + d.program + " mcp-server` by hand"
	}
	var death *childDeath
	switch {
	case ctx.Err() != nil:
		d.fail(fmt.Sprintf("%s did not answer initialize within %v and was stopped", d.program, d.wait),
			byHand+" and see what it waits for; --wait SECONDS gives it more time")
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
		text = d.program + " " + text
		hint = byHand + ": what it says there is what is wrong"
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
func (d codexDoctor) mendCodexHome() string {
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

// checkLogin asks for the account; that starts no turn and needs no network.
func (d codexDoctor) checkLogin(ctx context.Context, be backend) {
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
			d.warn("codex mcp-server can't be asked who is logged in", "run `"+d.command+" login status`")
			return
		}
		defer other.stop(2 * time.Second)
		be = other
	}
	raw, err := be.catalog(ctx, "account", "")
	if err != nil {
		d.warn("who is logged in could not be read: "+err.Error(), "run `"+d.command+" login status`")
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
		d.warn("who is logged in could not be understood: "+err.Error(), "run `"+d.command+" login status`")
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
		hint := fmt.Sprintf("run `%s login`, or `%s | %[1]s login --with-api-key`", d.command, key)
		if mend := d.mendCodexHome(); mend != "" { // the login could not be written
			hint = "first " + mend + "; then " + hint
		}
		d.fail("Codex is not logged in: every turn would fail", hint)
	}
}

// checkLimits tells how much of the account's limits is used, as far as Codex can find that out just now.
func (d codexDoctor) checkLimits(ctx context.Context, be backend) {
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
func (d codexDoctor) checkPolicy(ctx context.Context, be backend) bool {
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
