package main

// config_test.go holds the configuration as a whole: defaults, which layer wins and what every value's origin is, the
// files and what a mistake in them costs, ceilings that no mistake may lift, roles, and the example of the design.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
		if s.Key == key {
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
		got = append(got, fmt.Sprintf("%s=%v", s.Key, s.Value))
		if s.From != "default" {
			t.Errorf("%s comes from %s", s.Key, s.From)
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
		{"nor a role", "roles.readonly.model = 'm'\nroles.explore.model = 'm'", "", "", ""},
		{"but a word in a role's place is", "roles.readonly = true", "", "", "read-only"},
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

// In an array in place of the plugins' table our own table is not read, so neither is a ceiling in it.
func TestConfigCeilingInAnArrayOfPlugins(t *testing.T) {
	for _, text := range []string{
		"[[plugins]]\n[plugins.atm-agent-mcp]\nmax_sandbox = 'workspace-write'\n",
		"plugins = [{ codex-mcp = { readonly = true } }]\n",
	} {
		w := newConfigWorld(t)
		w.project(text)
		if got := w.load(flagValues{}).maxSandbox; got != "read-only" {
			t.Errorf("%s: max_sandbox %q, want read-only", text, got)
		}
	}
}

// What only --identity says, and against what the paths of flags are resolved.
func TestConfigFlags(t *testing.T) {
	w := newConfigWorld(t)
	c := w.quiet(flagValues{"identity": "Ann", "codex-bin": "./bin/codex", "log-file": "~/log"})
	if !c.identityExplicit || c.codexBin != filepath.Join(w.in, "bin", "codex") || c.logFile != filepath.Join(w.home, "log") {
		t.Errorf("got %v %q %q", c.identityExplicit, c.codexBin, c.logFile)
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
		if got := shownOf(t, c, "roles.worker."+key).From; got != want {
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
		if s := shownOf(t, c, key); s.Value != "arch-ctm" || s.From != p+line {
			t.Errorf("%s is shown as %v from %s", key, s.Value, s.From)
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

// Design rule: one bad value never resets the others, and every bad one is told with its place.
func TestConfigBadValuesStandAlone(t *testing.T) {
	w := newConfigWorld(t)
	g := w.global(pluginHead + "sandbox = 'read-only'\nmax_concurrent_threads = 3\nmodel = 'global'\n")
	p := w.project(pluginHead + "sandbox = 'readOnly'\n  max_concurrent_threads = \"many\"\nmodel = 'mine'\nrequest_timeout_secs = 9_999_999\nmodle = 1\nroles = 3\n" +
		"persist_threads = false\n")
	w.env["ATM_AGENT_MCP_LOG_LEVEL"] = "loud"
	w.env["ATM_AGENT_MCP_TURN_LIMIT_SECS"] = "99999999999999999999"
	w.env["ATM_AGENT_MCP_AUTO_MAIL"] = "jein"
	w.env["ATM_AGENT_MCP_IDLE_TIMEOUT_MS"] = "5s"
	w.env["ATM_TEAM"] = "../up"
	w.env["ATM_IDENTITY"] = "a b"
	c := w.load(flagValues{})
	w.wantWarnings(c,
		p+`:2:11: sandbox: "readOnly" is written "read-only"`,
		p+`:3:28: max_concurrent_threads: wants an integer, not a string`,
		p+`:5:24: request_timeout_secs: 9999999 is out of range: 1 to 604800`,
		p+`:6:1: unknown key "modle"; did you mean "model"?`,
		p+`:7:9: roles wants a table, not an integer`,
		`ATM_AGENT_MCP_TURN_LIMIT_SECS: 9223372036854775807 is out of range`,
		`ATM_AGENT_MCP_LOG_LEVEL: "loud" is no log level (there are error, warn, info, debug, trace)`,
		`ATM_AGENT_MCP_AUTO_MAIL: wants true or false, not "jein"`,
		`ATM_AGENT_MCP_IDLE_TIMEOUT_MS: wants a whole number, not "5s"`,
		`ATM_IDENTITY: identity "a b" is no name`,
		`ATM_TEAM: team name "../up" is a path`,
	)
	if c.sandbox != "read-only" || c.maxConcurrentThreads != 3 || c.model != "mine" || c.requestTimeout != 300*time.Second || c.persistThreads {
		t.Errorf("got %q %d %q %v %v", c.sandbox, c.maxConcurrentThreads, c.model, c.requestTimeout, c.persistThreads)
	}
	if got := c.origin["sandbox"].String(); got != g+":2" {
		t.Errorf("sandbox comes from %s", got)
	}
}

func TestConfigBadFileIsLeftOut(t *testing.T) {
	w := newConfigWorld(t)
	w.global(pluginHead + "model = 'global'\n")
	p := w.project(pluginHead + "model = mine\n")
	c := w.load(flagValues{})
	w.wantWarnings(c, p+`:2:9: "mine" is no value: text is written in quotes`)
	if c.model != "global" {
		t.Errorf("model %q", c.model)
	}
	for name, text := range map[string]string{"plugins = 1\n": "1:11: plugins wants a table", "plugins.atm-agent-mcp = 'x'\n": "plugins.atm-agent-mcp wants a table, not a string",
		"[plugins.atm_agent_mcp]\nmodel = 'x'\n": "2:1: model has no effect here: settings stand in the table [plugins.atm-agent-mcp]"} {
		w.project(name)
		w.wantWarnings(w.load(flagValues{}), text)
	}
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p, 0o755); err != nil {
		t.Fatal(err)
	}
	const closed = "max_sandbox could not be read, so agents are read-only" // it may have been in there
	w.wantWarnings(w.load(flagValues{}), ".atm.toml: not a regular file", closed)
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	w.project(strings.Repeat("#\n", maxConfigSize/2+1))
	w.wantWarnings(w.load(flagValues{}), "over 1048576 bytes", closed)
	w.project("# \xff\n")
	w.wantWarnings(w.load(flagValues{}), p+":1:3: byte 0xFF is not UTF-8")
}

// The file of --config or ATM_CONFIG is strict, and the nearest .atm.toml is looked for from its directory.
func TestConfigNamedFile(t *testing.T) {
	w := newConfigWorld(t)
	w.project(pluginHead + "model = 'project'\nlog_level = 'debug'\n")
	other := filepath.Join(w.home, "other")
	w.write(filepath.Join(other, ".atm.toml"), pluginHead+"model = 'beside'\nsandbox = 'read-only'\n")
	named := w.write(filepath.Join(other, "my.toml"), pluginHead+"model = 'named'\nbase_prompt_file = 'p.md'\n")
	c := w.quiet(flagValues{"config": named})
	if c.model != "named" || c.sandbox != "read-only" || c.logLevel != "info" || c.basePromptFile != filepath.Join(other, "p.md") {
		t.Errorf("got %q %q %q %q", c.model, c.sandbox, c.logLevel, c.basePromptFile)
	}
	w.env["ATM_CONFIG"] = "~/other/my.toml"
	w.env["ATM_AGENT_MCP_MODEL"] = "variable"
	if c = w.quiet(flagValues{}); c.model != "variable" || c.sandbox != "read-only" {
		t.Errorf("got %q %q", c.model, c.sandbox)
	}
	delete(w.env, "ATM_AGENT_MCP_MODEL")
	for text, want := range map[string]string{
		pluginHead + "model = 7\n":              "my.toml:2:9: model: wants a string, not an integer",
		"x":                                     "my.toml:1:2: ",
		"[core]\nidentity = ''\n":               "my.toml:2:12: core.identity: an identity can't be empty",
		pluginHead + "roles.r.sandbox = 'rw'\n": "my.toml:2:19: roles.r.sandbox: ",
		pluginHead + "roles.r = 1\n":            "my.toml:2:11: roles.r: wants a table",
		pluginHead + "role = 'nobody'\n":        `my.toml:2: role: no role "nobody": none is configured`,
		pluginHead + "fast = true\n":            "there is no fast model",
		pluginHead + "per_thread_auto_mail.a = 1\nroles.r.model = 'a b'\n": "per_thread_auto_mail.a: wants a boolean",
	} {
		w.write(named, text)
		if _, err := w.try(flagValues{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want …%s…", text, err, want)
		}
	}
	for _, missing := range []string{"", "gone.toml"} {
		if _, err := w.try(flagValues{"config": missing}); err == nil || !strings.HasPrefix(err.Error(), "--config: ") {
			t.Errorf("--config %q: %v", missing, err)
		}
	}
}

func TestConfigWalkUp(t *testing.T) {
	w := newConfigWorld(t)
	above := w.write(filepath.Join(filepath.Dir(w.repo), ".atm.toml"), pluginHead+"model = 'above'\n")
	if c := w.quiet(flagValues{}); c.model != "" || len(c.files) != 0 {
		t.Errorf("went past .git: %q", c.files)
	}
	p := w.project(pluginHead + "model = 'repo'\n")
	if c := w.quiet(flagValues{}); c.model != "repo" || !slices.Equal(c.files, []string{p}) {
		t.Errorf("model %q from %q", c.model, c.files)
	}
	w.write(filepath.Join(w.repo, "src", ".atm.toml"), pluginHead+"sandbox = 'read-only'\n")
	if c := w.quiet(flagValues{}); c.model != "" || c.sandbox != "read-only" {
		t.Error("more than the nearest file was read")
	}
	for _, path := range []string{filepath.Join(w.repo, "src", ".atm.toml"), p, filepath.Join(w.repo, ".git")} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if c := w.quiet(flagValues{}); c.model != "" {
		t.Errorf("outside a repository %s is anybody's", above)
	}
	w.write(filepath.Join(w.in, ".atm.toml"), pluginHead+"model = 'here'\n")
	if c := w.quiet(flagValues{}); c.model != "here" {
		t.Error("outside a repository the working directory's own file should be read")
	}
	if err := os.Remove(filepath.Join(w.in, ".atm.toml")); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.repo, ".git"), "gitdir: /elsewhere\n") // a worktree's
	if c := w.quiet(flagValues{}); c.model != "" {
		t.Error("a .git file should stop the search as a directory does")
	}
}

func TestConfigPathsAreRelativeToWhereTheyAreWritten(t *testing.T) {
	w := newConfigWorld(t)
	w.project(pluginHead + "base_prompt_file = 'prompts/a.md'\nextra_instructions_file = '~/b.md'\ncodex_bin = 'bin/codex'\n")
	w.env["ATM_AGENT_MCP_LOG_FILE"] = "log.txt"
	c := w.quiet(flagValues{})
	got := []string{c.basePromptFile, c.extraInstructionsFile, c.codexBin, c.logFile}
	want := []string{filepath.Join(w.repo, "prompts", "a.md"), filepath.Join(w.home, "b.md"), filepath.Join(w.repo, "bin", "codex"), filepath.Join(w.in, "log.txt")}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	w.global(pluginHead + "base_prompt_file = '/g.md'\ncodex_bin = 'codex-g'\n")
	w.project(pluginHead + "base_prompt_file = ''\n") // proxy-design.md: empty = use bundled
	if c = w.quiet(flagValues{}); c.basePromptFile != "" || c.codexBin != "codex-g" {
		t.Errorf("got %q %q", c.basePromptFile, c.codexBin)
	}
}

// sampleValues holds, for every key, three good values in TOML, told apart by layer, and a bad one.
func sampleValues() map[string][4]string {
	numbers := [4]string{"2000", "3000", "4000", "-1"}
	flags := [4]string{"true", "false", "true", `"perhaps"`}
	return map[string][4]string{
		"codex_bin":               {`"codex-a"`, `"codex-b"`, `"mock"`, `""`},
		"backend":                 {`"app-server"`, `"auto"`, `"mcp-server"`, `"both"`},
		"identity":                {`"a1"`, `"b1"`, `"c1"`, `"a/b"`},
		"role":                    {`"r1"`, `"r2"`, `"r3"`, "7"},
		"model":                   {`"m1"`, `"m2"`, `"m3"`, "7"},
		"fast_model":              {`"m1"`, `"m2"`, `"m3"`, `" m"`},
		"reasoning_effort":        {`"low"`, `"high"`, `"none"`, `"High!"`},
		"sandbox":                 {`"read-only"`, `"workspace-write"`, `"danger-full-access"`, `"workspaceWrite"`},
		"approval_policy":         {`"never"`, `"untrusted"`, `"on-request"`, `"onRequest"`},
		"max_sandbox":             {`"read-only"`, `"workspace-write"`, `"danger-full-access"`, `"none"`},
		"base_prompt_file":        {`"/p/1"`, `"/p/2"`, `"/p/3"`, "true"},
		"extra_instructions_file": {`"/p/1"`, `"/p/2"`, `"/p/3"`, `"a\nb"`},
		"log_file":                {`"/p/1"`, `"/p/2"`, `"/p/3"`, "1.5"},
		"log_level":               {`"debug"`, `"warn"`, `"trace"`, `"verbose"`},
		"forward_events":          {`"on"`, `"off"`, `"auto"`, "true"},
		"client_identity":         {`"me"`, `"you"`, `"them"`, `"@"`},
		"acp_mail":                {`"turn"`, `"prompt"`, `"turn"`, `"wake"`},
		"max_concurrent_threads":  {"1", "20", "30", "0"},
		"max_mail_messages":       {"1", "20", "30", "1979-05-27"},
		"shutdown_grace_secs":     {"0", "20", "30", "301"},
		"request_timeout_secs":    numbers, "turn_limit_secs": numbers, "approval_timeout_secs": numbers,
		"max_answer_bytes": numbers, "max_mail_message_length": numbers, "mail_poll_interval_ms": numbers, "idle_timeout_ms": numbers,
		"fast": flags, "readonly": flags, "subagents": flags, "persist_threads": flags, "restart_child": flags,
		"allow_rules": flags, "auto_mail": flags,
	}
}

// For every key: each layer beats the next lower one, a bad value falls to it with a warning, and the origin is
// named. What depends on other keys (--fast, --readonly) has tests of its own.
func TestConfigProvenance(t *testing.T) {
	samples := sampleValues()
	for _, s := range settings() {
		v, ok := samples[s.name]
		if !ok {
			t.Errorf("no sample for %s", s.name)
			continue
		}
		if s.name == "max_sandbox" || s.name == "readonly" {
			continue // no layer replaces another's: TestCeilingsCombine
		}
		t.Run(s.name, func(t *testing.T) {
			w := newConfigWorld(t)
			roles := "[plugins.atm-agent-mcp.roles]\nr1 = {}\nr2 = {}\nr3 = {}\n"
			want := func(fl flagValues, sample, from string, warnings int) {
				t.Helper()
				c := w.load(fl)
				text, err := strconv.Unquote(sample)
				if err != nil {
					text = sample
				}
				got := shownOf(t, c, s.name)
				if fmt.Sprint(got.Value) != text || got.From != from {
					t.Errorf("got %v from %s, want %s from %s", got.Value, got.From, text, from)
				}
				if len(c.warnings) != warnings {
					t.Errorf("warnings %q, want %d", c.warnings, warnings)
				}
			}
			// fast has no effect without a model to go to, which is not what is tested here.
			fast := ""
			if s.name == "fast" {
				fast = "fast_model = 'f'\n"
			}
			g := w.global(pluginHead + s.name + " = " + v[0] + "\n" + fast + roles)
			want(flagValues{}, v[0], g+":2", 0)
			p := w.project(pluginHead + "\n" + s.name + " = " + v[1] + "\n")
			want(flagValues{}, v[1], p+":3", 0)
			w.project(pluginHead + s.name + " = " + v[3] + "\n")
			want(flagValues{}, v[0], g+":2", 1)
			w.project(pluginHead + s.name + " = " + v[1] + "\n")
			name := "ATM_AGENT_MCP_" + strings.ToUpper(s.name)
			w.env[name] = " " + strings.Trim(v[2], `"`) + " "
			want(flagValues{}, strings.Trim(v[2], `"`), name, 0)
			w.env[name] = "  "
			want(flagValues{}, v[1], p+":2", 0)
			// Some samples are bad only as TOML: text in a variable has no kind, and blanks around it don't count.
			bad := strings.Trim(v[3], `"`)
			_, isText := s.field(defaultConfig()).(*string)
			if (!isText || bad != v[3]) && bad != "" && strings.TrimSpace(bad) == bad && !strings.Contains(bad, `\n`) {
				w.env[name] = bad
				want(flagValues{}, v[1], p+":2", 1)
			}
			named := w.write(filepath.Join(w.repo, "named.toml"), pluginHead+s.name+" = "+v[2]+"\n")
			delete(w.env, name)
			want(flagValues{"config": named}, v[2], named+":2", 0)
			if s.flag != "" {
				want(flagValues{"config": named, s.flag: strings.Trim(v[0], `"`)}, v[0], "--"+s.flag, 0)
			}
		})
	}
	if len(samples) != len(settings()) {
		t.Errorf("%d samples for %d settings", len(samples), len(settings()))
	}
}

func TestConfigAliases(t *testing.T) {
	w := newConfigWorld(t)
	p := w.project(pluginHead + "default_identity = 'arch'\nmax_messages = 3\nmax_message_length = 99\n")
	c := w.quiet(flagValues{})
	if c.identity != "arch" || c.identityExplicit || c.maxMailMessages != 3 || c.maxMailMessageLength != 99 || c.origin["identity"].String() != p+":2" {
		t.Errorf("got %q %v %d %d from %s", c.identity, c.identityExplicit, c.maxMailMessages, c.maxMailMessageLength, c.origin["identity"])
	}
	w.project(pluginHead + "default_identity = 'old'\nidentity = 'new'\n")
	c = w.load(flagValues{})
	w.wantWarnings(c, p+":2:1: default_identity is the older name of identity")
	if c.identity != "new" {
		t.Errorf("identity %q", c.identity)
	}
	w.project(pluginHead)
	w.env["ATM_AGENT_MCP_DEFAULT_IDENTITY"] = "old-v"
	if c = w.quiet(flagValues{}); c.identity != "old-v" || c.identityExplicit {
		t.Errorf("identity %q, explicit %v", c.identity, c.identityExplicit)
	}
	w.env["ATM_AGENT_MCP_IDENTITY"] = "new-v"
	if c = w.quiet(flagValues{}); c.identity != "new-v" || c.identityExplicit {
		t.Errorf("identity %q, explicit %v", c.identity, c.identityExplicit)
	}
}

func TestConfigPerThreadAutoMail(t *testing.T) {
	w := newConfigWorld(t)
	w.project(pluginHead + "per_thread_auto_mail = { 'codex:ab' = false, worker = 3 }\n")
	c := w.load(flagValues{})
	w.wantWarnings(c, "per_thread_auto_mail.worker: wants a boolean, not an integer")
	if v, ok := c.perThreadAutoMail["codex:ab"]; !ok || v || len(c.perThreadAutoMail) != 1 {
		t.Errorf("got %v", c.perThreadAutoMail)
	}
	if got := shownOf(t, c, "per_thread_auto_mail.codex:ab").Value; got != false {
		t.Errorf("shown as %v", got)
	}
}

// Every key stands once in the table, can be shown, and has the check or the range that its kind needs.
func TestConfigSettingsTable(t *testing.T) {
	c := defaultConfig()
	seen := map[string]bool{}
	for _, s := range settings() {
		for _, name := range []string{s.name, s.alias} {
			if name != "" && seen[name] {
				t.Errorf("%s stands twice", name)
			}
			seen[name] = true
		}
		s.shown(s.field(c))
		if _, number := s.field(c).(*int); number && s.max == 0 {
			t.Errorf("%s has no range", s.name)
		}
		if d, duration := s.field(c).(*time.Duration); duration && (s.max == 0 || s.unit == 0 || *d%s.unit != 0) {
			t.Errorf("%s has no range or unit", s.name)
		}
		if _, text := s.field(c).(*string); text && s.check == nil {
			t.Errorf("%s is not checked", s.name)
		}
	}
}

func TestNormalizeWords(t *testing.T) {
	for word, want := range map[string]string{"on-request": "on-request", "never": "never", "untrusted": "untrusted", "on-failure": "on-request"} {
		if got, err := normalizePolicy(word); err != nil || got != want {
			t.Errorf("policy %q: %q, %v", word, got, err)
		}
	}
	for word, want := range map[string]string{
		"onRequest": `is written "on-request"`, "on_request": `is written "on-request"`, "NEVER": `is written "never"`,
		"onFailure": `is written "on-failure"`, "unlessTrusted": `is written "untrusted"`, "nevr": `did you mean "never"?`,
		"": "is no approval policy (there are untrusted, on-request, never)", "granular": "is no approval policy",
	} {
		if got, err := normalizePolicy(word); err == nil || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("policy %q: %q, %v, want …%s…", word, got, err, want)
		}
	}
	for _, word := range []string{"read-only", "workspace-write", "danger-full-access"} {
		if got, err := normalizeSandbox(word); err != nil || got != word {
			t.Errorf("sandbox %q: %q, %v", word, got, err)
		}
	}
	for word, want := range map[string]string{
		"readOnly": `is written "read-only"`, "workspaceWrite": `is written "workspace-write"`, "dangerFullAccess": `is written "danger-full-access"`,
		"read_only": `is written "read-only"`, "": "is no sandbox mode", "externalSandbox": "is no sandbox mode", "read-olny": `did you mean "read-only"?`,
	} {
		if got, err := normalizeSandbox(word); err == nil || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("sandbox %q: %q, %v, want …%s…", word, got, err, want)
		}
	}
}
