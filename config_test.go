package main

// config_test.go holds the configuration as a whole: defaults, which layer wins,
// ceilings that a mistake may not lift, roles, and the example of the design.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A configWorld is a home, a repository with a directory in it, and an environment.
type configWorld struct {
	t              *testing.T
	home, repo, in string
	env            map[string]string
}

func newConfigWorld(t *testing.T) *configWorld {
	t.Helper()
	root := t.TempDir()
	w := &configWorld{t: t, home: filepath.Join(root, "home"), repo: filepath.Join(root, "repo"), env: map[string]string{}}
	w.in = filepath.Join(w.repo, "src", "deep")
	for _, dir := range []string{w.home, w.in, filepath.Join(w.repo, ".git")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.env["HOME"], w.env["USERPROFILE"] = w.home, w.home
	return w
}

func (w *configWorld) write(path, text string) string {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *configWorld) global(text string) string {
	return w.write(filepath.Join(w.home, ".config", "atm", "config.toml"), text)
}

// project writes the repository's file and trusts it.
func (w *configWorld) project(text string) string {
	w.t.Helper()
	path := w.stranger(text)
	w.trust(path)
	return path
}

// stranger writes a repository's file that nobody has trusted.
func (w *configWorld) stranger(text string) string {
	w.t.Helper()
	return w.write(filepath.Join(w.repo, ".atm.toml"), text)
}

func (w *configWorld) trust(path string) {
	w.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	store := directories{atmHome: w.home}.trust()
	if _, err := store.set(trustKey(path), hex.EncodeToString(sum[:]), slog.New(slog.DiscardHandler)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *configWorld) try(fl flagValues) (*config, error) {
	return loadConfig(func(name string) string { return w.env[name] }, w.in, fl)
}

func (w *configWorld) load(fl flagValues) *config {
	w.t.Helper()
	c, err := w.try(fl)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// quiet loads and wants no warning.
func (w *configWorld) quiet(fl flagValues) *config {
	w.t.Helper()
	c := w.load(fl)
	if len(c.warnings) > 0 {
		w.t.Errorf("unwanted warnings: %q", c.warnings)
	}
	return c
}

func (w *configWorld) wantWarnings(c *config, want ...string) {
	w.t.Helper()
	if len(c.warnings) != len(want) {
		w.t.Fatalf("warnings %q, want %d of them: %q", c.warnings, len(want), want)
	}
	for i := range want {
		if !strings.Contains(c.warnings[i], want[i]) {
			w.t.Errorf("warning %d\n got %s\nwant …%s…", i, c.warnings[i], want[i])
		}
	}
}

func shownOf(t *testing.T, c *config, key string) shownSetting {
	t.Helper()
	for _, s := range c.list() {
		if s.key == key {
			return s
		}
	}
	t.Fatalf("no setting %q is listed", key)
	return shownSetting{}
}

const pluginHead = "[plugins.atm-agent-mcp]\n"

func TestConfigDefaults(t *testing.T) {
	c := newConfigWorld(t).quiet(flagValues{})
	want := `codex_bin=codex backend=auto identity=codex role= model= fast_model= fast=false reasoning_effort= sandbox= approval_policy= max_sandbox= readonly=false base_prompt_file= extra_instructions_file= subagents=false request_timeout_secs=300 turn_limit_secs=0 approval_timeout_secs=300 shutdown_grace_secs=10 max_concurrent_threads=10 persist_threads=true restart_child=false forward_events=auto max_answer_bytes=262144 log_level=info log_file= allow_rules=false auto_mail=true max_mail_messages=10 max_mail_message_length=4096 mail_poll_interval_ms=5000 idle_timeout_ms=300000 client_identity= acp_mail=prompt`
	var got []string
	for _, s := range c.list() {
		got = append(got, fmt.Sprintf("%s=%v", s.key, s.value))
		if s.from.String() != "default" {
			t.Errorf("%s comes from %s", s.key, s.from)
		}
	}
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	if c.identityExplicit || c.team != "default" || c.teamFrom != "default" || c.teamExists {
		t.Errorf("explicit %v, team %q from %q, exists %v", c.identityExplicit, c.team, c.teamFrom, c.teamExists)
	}
}

// A ceiling that can't be read must not read as none.
func TestConfigCeilingFailsClosed(t *testing.T) {
	for _, c := range []struct{ name, project, variable, global, want string }{
		{"a bad word", "max_sandbox = 'readonly!'", "", "", "read-only"},
		{"a bad kind", "readonly = 'yes'", "", "", "read-only"},
		{"a bad variable", "", "bogus", "", "read-only"},
		{"a file that can't be read, with a ceiling in it", "max_sandbox = 'workspace-write'\nmodel = ", "", "", "read-only"},
		{"a file that can't be read, without one", "model = ", "", "", ""},
		{"no other layer's word lifts that", "max_sandbox = 'none'", "", "max_sandbox = 'workspace-write'", "read-only"},
		{"a role's table", "roles.r.max_sandbox = 'workspace-write'", "", "", "read-only"},
		{"a file that can't be read, with a ceiling misspelt", "max_sanbox = 'workspace-write'\nmodel = ", "", "", "read-only"},
		{"the older name's table, misspelt", "[plugins.codex_mcp]\nreadonly = true", "", "", "read-only"},
		{"an array of tables", "[[plugins.codex-mcp]]\nreadonly = true", "", "", "read-only"},
		{"an array of tables, misspelt", "[[codex-mcp]]\nreadonly = true", "", "", "read-only"},
		{"the plugins' table, misspelt", "[Plugins.codex-mcp]\nreadonly = true", "", "", "read-only"},
		{"a table that nobody knows", "[plugins.atm-agent-mcp.limits]\nmax_sandbox = 'workspace-write'", "", "", "read-only"},
		{"no table of ours", "[core]\nreadonly = true", "", "", "read-only"},
		{"an array in place of the table", "[plugins]\ncodex-mcp = [[{ readonly = true }]]", "", "", "read-only"},
		{"an array in place of the word", "[core]\nmax_sandbox = ['workspace-write']", "", "", "read-only"},
		{"a table in place of the word", "[plugins.codex-mcp.max_sandbox]\nx = 1", "", "", "read-only"},
		{"an agent of that name is no ceiling", "per_thread_auto_mail.readonly = true", "", "", ""},
		{"another program's table", "[plugins.ci-monitor]\nreadonly = true\n[broker]\nmax_sandbox = 'read-only'", "", "", ""},
		{"a good word", "max_sandbox = 'workspace-write'", "", "", "workspace-write"},
	} {
		w := newConfigWorld(t)
		w.env["ATM_AGENT_MCP_MAX_SANDBOX"] = c.variable
		w.project(pluginHead + c.project + "\n")
		if c.global != "" {
			w.global(pluginHead + c.global + "\n")
		}
		if got := w.load(flagValues{}).maxSandbox; got != c.want {
			t.Errorf("%s: max_sandbox %q, want %q", c.name, got, c.want)
		}
	}
}

func TestConfigFlagsBeatEverything(t *testing.T) {
	w := newConfigWorld(t)
	for _, s := range settings() {
		if s.name != "max_sandbox" && s.name != "readonly" { // a bad ceiling closes, see TestConfigCeilingFailsClosed
			w.env[s.variable()] = "x" // even a bad variable
		}
	}
	w.project(pluginHead + "fast_model = 'f'\n[plugins.atm-agent-mcp.roles.r]\nmodel = 'o3'\n")
	c := w.load(flagValues{
		"identity": "Ann", "role": "r", "model": "m", "sandbox": "danger-full-access", "approval-policy": "on-failure",
		"backend": "app-server", "codex-bin": "./bin/codex", "team": "crew", "log-level": "trace", "log-file": "~/log",
		"fast": "true", "subagents": "true", "readonly": "false", "restart-child": "true", "timeout": "7",
	})
	got := []any{c.identity, c.identityExplicit, c.defaultRole, c.model, c.sandbox, c.approvalPolicy, c.backend, c.codexBin, c.team, c.teamFrom, c.logLevel, c.logFile, c.fast, c.subagents, c.readonly, c.restartChild, c.requestTimeout}
	want := []any{"Ann", true, "r", "m", "danger-full-access", "on-request", "app-server", filepath.Join(w.in, "bin", "codex"), "crew", "--team", "trace", filepath.Join(w.home, "log"), true, true, false, true, 7 * time.Second}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for _, s := range settings() {
		if o := c.origin[s.name]; s.flag != "" && o.String() != "--"+s.flag {
			t.Errorf("%s comes from %s, want --%s", s.name, o, s.flag)
		}
	}
}

// A bad flag is an error that names it, and the command exits 2; what is in files doesn't matter then.
func TestConfigBadFlags(t *testing.T) {
	w := newConfigWorld(t)
	w.project(pluginHead + "identity = 'fine'\n[plugins.atm-agent-mcp.roles.worker]\n")
	for _, c := range []struct {
		fl   flagValues
		want string
	}{
		{flagValues{"identity": ""}, "--identity: an identity can't be empty"},
		{flagValues{"identity": "../x"}, `--identity: identity "../x" is no name`},
		{flagValues{"role": "workr"}, `--role: no role "workr": there are worker; did you mean "worker"?`},
		{flagValues{"sandbox": "readOnly"}, `--sandbox: "readOnly" is written "read-only"`},
		{flagValues{"sandbox": "write"}, `--sandbox: "write" is no sandbox mode (there are read-only, workspace-write, danger-full-access)`},
		{flagValues{"approval-policy": "always"}, `--approval-policy: "always" is no approval policy`},
		{flagValues{"backend": "appserver"}, `--backend: "appserver" is written "app-server"`},
		{flagValues{"codex-bin": ""}, "--codex-bin: can't be empty"},
		{flagValues{"team": "a/b"}, `--team: team name "a/b" is a path`},
		{flagValues{"log-level": "inof"}, `did you mean "info"?`},
		{flagValues{"timeout": "0"}, "--timeout: 0 is out of range: 1 to 604800"},
		{flagValues{"timeout": "-5"}, "--timeout: -5 is out of range"},
		{flagValues{"fast": "true"}, "--fast: there is no fast model: set fast_model"},
		{flagValues{"model": "a\nb"}, "--model: "},
	} {
		cfg, err := w.try(c.fl)
		var fe *flagError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) || cfg != nil {
			t.Errorf("got %v, want a flagError …%s…", err, c.want)
		}
	}
}

func TestConfigDirectories(t *testing.T) {
	w := newConfigWorld(t)
	dirs := func() string {
		c := w.quiet(flagValues{})
		return c.home + "|" + c.atmHome + "|" + c.teamsRoot + "|" + c.sessionsRoot
	}
	j := filepath.Join
	if got, want := dirs(), w.home+"|"+w.home+"|"+j(w.home, ".claude", "teams")+"|"+j(w.home, ".config", "atm", "agent-sessions"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	w.env["CLAUDE_CONFIG_DIR"] = j(w.home, "cc")
	if got, want := dirs(), w.home+"|"+w.home+"|"+j(w.home, "cc", "teams")+"|"+j(w.home, ".config", "atm", "agent-sessions"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	w.env["ATM_HOME"] = "../atm"
	atm := j(w.repo, "src", "atm")
	w.write(j(atm, ".config", "atm", "config.toml"), pluginHead+"model = 'atm'\n")
	if got, want := dirs(), w.home+"|"+atm+"|"+j(atm, ".claude", "teams")+"|"+j(atm, ".config", "atm", "agent-sessions"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if c := w.quiet(flagValues{}); c.model != "atm" {
		t.Error("config.toml of ATM_HOME was not read")
	}
}

// [core].identity names the client, never an agent.
func TestConfigClientIdentity(t *testing.T) {
	w := newConfigWorld(t)
	g := w.global("[core]\ndefault_team = 'a'\nidentity = 'human'\n")
	w.project("[core]\ndefault_team = 'b'\n") // half a [core] resets nothing
	check := func(want, from string) {
		t.Helper()
		c := w.quiet(flagValues{})
		if c.clientIdentity != want || c.origin["client_identity"].String() != from || c.identity != "codex" || c.team != "b" {
			t.Errorf("client %q from %s, identity %q, team %q", c.clientIdentity, c.origin["client_identity"], c.identity, c.team)
		}
	}
	check("human", g+":3")
	w.env["ATM_IDENTITY"] = "lead"
	check("lead", "ATM_IDENTITY")
	g = w.global("[core]\nidentity = 'human'\n" + pluginHead + "client_identity = 'boss'\n")
	check("boss", g+":4")
}

func TestConfigFast(t *testing.T) {
	w := newConfigWorld(t)
	p := w.project(pluginHead + "model = 'pin'\nfast_model = 'spark'\n[plugins.atm-agent-mcp.roles.r]\nmodel = 'own'\n")
	fast := flagValues{"fast": "true"}
	c := w.quiet(fast)
	if c.model != "spark" || c.origin["model"].String() != "--fast (fast_model from "+p+":3)" {
		t.Errorf("model %q from %s", c.model, c.origin["model"])
	}
	if r, err := c.role("r"); err != nil || r.model != "own" {
		t.Errorf("a role's model is a pin: %q, %v", r.model, err)
	}
	if c = w.quiet(flagValues{}); c.model != "pin" {
		t.Errorf("model %q", c.model)
	}
	fast["model"] = "mine"
	c = w.load(fast)
	w.wantWarnings(c, `--fast has no effect: --model sets the model "mine"`)
	if c.model != "mine" {
		t.Errorf("model %q", c.model)
	}
	w.env["ATM_AGENT_MCP_FAST"] = "1"
	if c = w.quiet(flagValues{}); c.model != "spark" {
		t.Errorf("model %q", c.model)
	}
	w.project(pluginHead)
	c = w.load(flagValues{})
	w.wantWarnings(c, "ATM_AGENT_MCP_FAST: fast: there is no fast model")
	if c.fast || c.model != "" {
		t.Errorf("fast %v, model %q", c.fast, c.model)
	}
}

func TestConfigCeiling(t *testing.T) {
	w := newConfigWorld(t)
	p := w.project(pluginHead + "sandbox = 'danger-full-access'\nmax_sandbox = 'workspace-write'\n[plugins.atm-agent-mcp.roles.r]\nsandbox = 'danger-full-access'\n")
	c := w.quiet(flagValues{})
	if r, err := c.role("r"); err != nil || r.sandbox != "workspace-write" || c.sandbox != "workspace-write" || c.origin["sandbox"].String() != p+":3" {
		t.Errorf("sandbox %q from %s, role's %q, %v", c.sandbox, c.origin["sandbox"], r.sandbox, err)
	}
	c = w.quiet(flagValues{"readonly": "true", "sandbox": "workspace-write"})
	if r, err := c.role("r"); err != nil || r.sandbox != "read-only" || c.sandbox != "read-only" || c.origin["sandbox"].String() != "--readonly" {
		t.Errorf("sandbox %q from %s, role's %q, %v", c.sandbox, c.origin["sandbox"], r.sandbox, err)
	}
	for mode, want := range map[string]string{"": "", "read-only": "read-only", "workspace-write": "read-only", "danger-full-access": "read-only", "new-mode": "read-only"} {
		if got := c.top.cap(mode); got != want {
			t.Errorf("cap(%q) = %q, want %q", mode, got, want)
		}
	}
	w.project(pluginHead)
	if got := w.quiet(flagValues{}).top.cap("danger-full-access"); got != "danger-full-access" {
		t.Errorf("without a ceiling got %q", got)
	}
}

func TestConfigRoles(t *testing.T) {
	w := newConfigWorld(t)
	g := w.global(pluginHead + "subagents = true\n[plugins.atm-agent-mcp.roles.worker]\nmodel = 'g'\nsandbox = 'read-only'\napproval_policy = 'on-failure'\n[plugins.atm-agent-mcp.roles.alone]\nsubagents = false\nauto_mail = false\n")
	p := w.project(pluginHead + "auto_mail = true\n[plugins.atm-agent-mcp.roles.worker]\nmodel = 'p'\nsandbox = 'full'\nreasoning_effort = 'high'\nmodell = 1\n[plugins.atm-agent-mcp.roles.'a b']\n[roles]\nlead = 'arch-ctm'\n[aliases]\narch = 'arch-ctm'\nn = 1\n")
	c := w.load(flagValues{})
	w.wantWarnings(c, p+":13:5: aliases.n wants a string, not an integer", p+":5:11: roles.worker.sandbox: \"full\" is no sandbox mode", p+`:7:1: unknown key "roles.worker.modell"; did you mean "model"?`, p+":8:30: roles.a b: a role's name has letters")
	r, err := c.role("worker")
	if want := (role{"worker", "p", "high", "read-only", "on-request", true, true}); err != nil || r != want {
		t.Errorf("got %+v, %v, want %+v", r, err, want)
	}
	if r, err = c.role("alone"); err != nil || r != (role{name: "alone"}) {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err = c.role(""); err != nil || r != (role{subagents: true, autoMail: true}) {
		t.Errorf("got %+v, %v", r, err)
	}
	for key, want := range map[string]string{"model": p + ":4", "sandbox": g + ":5"} {
		if got := shownOf(t, c, "roles.worker."+key).from.String(); got != want {
			t.Errorf("%s comes from %s, want %s", key, got, want)
		}
	}
	if _, err = c.role("wroker"); err == nil || err.Error() != `no role "wroker": there are alone, worker; did you mean "worker"?` {
		t.Errorf("got %v", err)
	}
	if c.atmRoles["lead"] != "arch-ctm" || len(c.aliases) != 1 || c.aliases["arch"] != "arch-ctm" {
		t.Errorf("got %v %v", c.atmRoles, c.aliases)
	}
	for key, line := range map[string]string{"[roles].lead": ":10", "[aliases].arch": ":12"} {
		if s := shownOf(t, c, key); s.value != "arch-ctm" || s.from.String() != p+line {
			t.Errorf("%s is shown as %v from %s", key, s.value, s.from)
		}
	}
	c = w.load(flagValues{"role": "worker"})
	if r, err = c.role(""); err != nil || r.name != "worker" {
		t.Errorf("--role should be the default role: %+v, %v", r, err)
	}
	w.env["ATM_AGENT_MCP_ROLE"] = "nobody"
	if c = w.load(flagValues{}); c.defaultRole != "" || !strings.Contains(c.warnings[len(c.warnings)-1], `ATM_AGENT_MCP_ROLE: role: no role "nobody"`) {
		t.Errorf("role %q, warnings %q", c.defaultRole, c.warnings)
	}
}

// The example of proxy-design.md's "Configuration", which people have copied.
func TestConfigExampleOfTheDesign(t *testing.T) {
	w := newConfigWorld(t)
	w.project(`[core]
default_team = "my-team"
identity = "codex"              # default identity if --identity not passed

[plugins.atm-agent-mcp]
# Path to codex binary (default: resolved from PATH)
codex_bin = "codex"
identity = "codex-architect"
# model = "o3"
fast_model = "gpt-5.3-codex-spark"
reasoning_effort = "high"
sandbox = "workspace-write"
approval_policy = "on-failure"
base_prompt_file = ""          # empty = use bundled
extra_instructions_file = ""   # empty = use bundled experimental_prompt.md
mail_poll_interval_ms = 5000
idle_timeout_ms = 300000
persist_threads = true

[plugins.atm-agent-mcp.roles.architect]
model = "o3"
reasoning_effort = "high"
sandbox = "read-only"

[plugins.atm-agent-mcp.roles.worker]
model = "gpt-5.3-codex"
sandbox = "workspace-write"
approval_policy = "never"
`)
	c := w.quiet(flagValues{})
	r, err := c.role("architect")
	if err != nil || r.model != "o3" || r.sandbox != "read-only" || c.identity != "codex-architect" || c.approvalPolicy != "on-request" || c.team != "my-team" {
		t.Errorf("got %+v, %v; %q %q %q", r, err, c.identity, c.approvalPolicy, c.team)
	}
}

// Flag, ATM_TEAM, .atm.toml, the Claude Code session's, config.toml of the home, default.
func TestConfigTeamLayers(t *testing.T) {
	w := newConfigWorld(t)
	root := filepath.Join(w.home, ".claude", "teams")
	want := func(fl flagValues, name, from string, exists bool) {
		t.Helper()
		if c := w.quiet(fl); c.team != name || c.teamFrom != from || c.teamExists != exists {
			t.Errorf("got %q from %q %v, want %q from %q %v", c.team, c.teamFrom, c.teamExists, name, from, exists)
		}
	}
	want(flagValues{}, "default", "default", false)
	g := w.global("[core]\ndefault_team = 'mine'\n")
	want(flagValues{}, "mine", g+":2", false)
	writeTeam(t, root, "session-e9a98a05", leadOf(leadSession))
	w.env["CLAUDE_CODE_SESSION_ID"] = leadSession
	want(flagValues{}, "session-e9a98a05", "CLAUDE_CODE_SESSION_ID", true)
	p := w.project("[core]\ndefault_team = 'My.Team'\n")
	want(flagValues{}, "My.Team", p+":2", false)
	w.env["ATM_TEAM"] = " crew "
	writeTeam(t, root, "crew", "{}")
	want(flagValues{}, "crew", "ATM_TEAM", true)
	want(flagValues{"team": "flagged"}, "flagged", "--team", false)
	if _, err := os.Stat(filepath.Join(root, "flagged")); err == nil {
		t.Error("a team was created")
	}
	w.env["ATM_TEAM"] = ""
	w.project("[core]\ndefault_team = '../x'\n")
	c := w.load(flagValues{})
	w.wantWarnings(c, p+`:2:16: core.default_team: team name "../x" is a path`)
	if c.team != "session-e9a98a05" {
		t.Errorf("team %q", c.team)
	}
}
