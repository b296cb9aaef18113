package main

// config_test.go holds the configuration as a whole: defaults, which layer wins and what every value's origin is, the
// files and what a mistake in them costs, roles, names and directories, and how our team is found.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	plant(t, root, map[string]string{"home/": "", "repo/src/deep/": "", "repo/.git/HEAD": "ref: refs/heads/main\n"})
	home, repo := filepath.Join(root, "home"), filepath.Join(root, "repo")
	return &configWorld{t, home, repo, filepath.Join(repo, "src", "deep"),
		map[string]string{"HOME": home, "USERPROFILE": home}}
}

func (w *configWorld) write(path, text string) string {
	w.t.Helper()
	wantNil(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	wantNil(w.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (w *configWorld) global(text string) string {
	return w.write(filepath.Join(w.home, ".config", "atm", "config.toml"), text)
}

// stranger writes a repository's file that nobody has trusted; project trusts it too.
func (w *configWorld) stranger(text string) string {
	return w.write(filepath.Join(w.repo, ".atm.toml"), text)
}

func (w *configWorld) project(text string) string {
	w.t.Helper()
	path := w.stranger(text)
	w.trust(path)
	return path
}

func (w *configWorld) trust(path string) {
	w.t.Helper()
	data, err := os.ReadFile(path)
	wantNil(w.t, err)
	sum := sha256.Sum256(data)
	_, err = directories{atmHome: w.home}.trust().set(trustKey(path), hex.EncodeToString(sum[:]), quietLog())
	wantNil(w.t, err)
}

func (w *configWorld) try(fl flagValues) (*config, error) {
	return loadConfig(func(name string) string { return w.env[name] }, w.in, fl)
}

func (w *configWorld) load(fl flagValues) *config {
	w.t.Helper()
	c, err := w.try(fl)
	wantNil(w.t, err)
	return c
}

// quiet loads and wants no warning, and of every setting named in want its value, and its origin where that is given:
// "model m", "model m from G:2". A G that a colon follows is the user's own file and a P the repository's.
func (w *configWorld) quiet(fl flagValues, want ...string) *config {
	w.t.Helper()
	c := w.load(fl)
	if len(c.warnings) > 0 {
		w.t.Errorf("unwanted warnings: %q", c.warnings)
	}
	w.shows(c, want...)
	return c
}

func (w *configWorld) shows(c *config, want ...string) {
	w.t.Helper()
	shown := map[string]shownSetting{"team": {Value: c.team, From: c.teamFrom}}
	for _, s := range c.list() {
		shown[s.Key] = s
	}
	paths := strings.NewReplacer(" G:", " "+filepath.Join(w.home, ".config", "atm", "config.toml:"),
		" P:", " "+filepath.Join(w.repo, ".atm.toml:"), "HOME", w.home, "REPO", w.repo)
	for _, line := range want {
		key, value, _ := strings.Cut(paths.Replace(line), " ")
		value, from, given := strings.Cut(value, " from ")
		if s, ok := shown[key]; !ok || fmt.Sprint(s.Value) != value || given && s.From != from {
			w.t.Errorf("%s is %v from %s, want %s", key, s.Value, s.From, line)
		}
	}
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

const pluginHead = "[plugins.atm-agent-mcp]\n"

func TestConfigDefaults(t *testing.T) {
	c := newConfigWorld(t).quiet(nil)
	const want = `codex_bin=codex backend=auto identity=codex role= model= fast_model= fast=false reasoning_effort=
sandbox= approval_policy= max_sandbox= readonly=false base_prompt_file= extra_instructions_file= subagents=false
request_timeout_secs=300 turn_limit_secs=0 approval_timeout_secs=300 shutdown_grace_secs=10 max_concurrent_threads=10
persist_threads=true restart_child=false forward_events=auto max_answer_bytes=262144 log_level=info log_file=
allow_rules=false auto_mail=true max_mail_messages=10 max_mail_message_length=4096 mail_poll_interval_ms=5000
idle_timeout_ms=300000 client_identity= worktree_dir=.worktrees acp_mail=prompt prompts_while_busy=queue`
	var got []string
	for _, s := range c.list() {
		got = append(got, fmt.Sprintf("%s=%v", s.Key, s.Value))
		if s.From != "default" {
			t.Errorf("%s comes from %s", s.Key, s.From)
		}
	}
	if strings.Join(got, " ") != strings.ReplaceAll(want, "\n", " ") || c.identityExplicit {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

// The README promises that docs/configuration.md has all keys.
func TestConfigKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/configuration.md")
	wantNil(t, err)
	keys := []string{"per_thread_auto_mail"}
	for _, s := range new(config).settings() {
		keys = append(keys, s.name)
	}
	for _, key := range keys {
		if !regexp.MustCompile(`\b` + key + `\b`).Match(text) {
			t.Errorf("docs/configuration.md does not have %s", key)
		}
	}
}

// What only --identity says, against what the paths of flags are resolved, and a bad flag: an error that names the
// flag, and the command exits 2; what is in files doesn't matter then.
func TestConfigFlags(t *testing.T) {
	w := newConfigWorld(t)
	w.project(pluginHead + "identity = 'fine'\n[plugins.atm-agent-mcp.roles.worker]\n")
	c := w.quiet(flagValues{"identity": "Ann", "codex-bin": "./bin/codex", "log-file": "~/log"},
		"identity Ann from --identity")
	if !c.identityExplicit || c.codexBin != filepath.Join(w.in, "bin", "codex") ||
		c.logFile != filepath.Join(w.home, "log") {
		t.Errorf("got %v %q %q", c.identityExplicit, c.codexBin, c.logFile)
	}
	for _, c := range []struct{ flag, value, want string }{
		{"identity", "", "an identity can't be empty"},
		{"identity", "../x", `identity "../x" is no name`},
		{"role", "workr", `no role "workr": there are worker; did you mean "worker"?`},
		{"sandbox", "readOnly", `"readOnly" is written "read-only"`},
		{"sandbox", "write", `"write" is no sandbox mode (there are read-only, workspace-write, danger-full-access)`},
		{"approval-policy", "always", `"always" is no approval policy`},
		{"backend", "appserver", `"appserver" is written "app-server"`},
		{"codex-bin", "", "can't be empty"},
		{"team", "a/b", `team name "a/b" is a path`},
		{"log-level", "inof", `"inof" is no log level (there are error, warn, info, debug, trace); did you m`},
		{"timeout", "0", "0 is out of range: 1 to 604800"},
		{"timeout", "-99999999999999999999", "-9223372036854775808 is out of range"},
		{"fast", "true", "there is no fast model: set fast_model"},
		{"model", "a\nb", `"a\nb" has a character that can't be printed`},
	} {
		cfg, err := w.try(flagValues{c.flag: c.value})
		var fe *flagError
		if !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), "--"+c.flag+": "+c.want) || cfg != nil {
			t.Errorf("got %v, want a flagError of --%s: %s", err, c.flag, c.want)
		}
	}
}

// [core].identity names the client, never an agent, and half a [core] resets nothing.
func TestConfigClientIdentity(t *testing.T) {
	w := newConfigWorld(t)
	w.global("[core]\ndefault_team = 'a'\nidentity = 'human'\n")
	w.project("[core]\ndefault_team = 'b'\n")
	w.quiet(nil, "client_identity human from G:3", "identity codex", "team b")
	w.env["ATM_IDENTITY"] = "lead"
	w.quiet(nil, "client_identity lead from ATM_IDENTITY", "identity codex", "team b")
	w.global("[core]\nidentity = 'human'\n" + pluginHead + "client_identity = 'boss'\n")
	w.quiet(nil, "client_identity boss from G:4", "identity codex", "team b")
}

// --fast chooses fast_model unless the same layer or a higher one sets a model; a role's model is a pin.
func TestConfigFast(t *testing.T) {
	w := newConfigWorld(t)
	w.project(pluginHead + "model = 'pin'\nfast_model = 'spark'\nroles.r.model = 'own'\n")
	fast := flagValues{"fast": "true"}
	c := w.quiet(fast, "model spark from --fast (fast_model from "+filepath.Join(w.repo, ".atm.toml")+":3)")
	if r, err := c.role("r"); err != nil || r.model != "own" {
		t.Errorf("a role's model is a pin: %q, %v", r.model, err)
	}
	w.quiet(nil, "model pin")
	fast["model"] = "mine"
	c = w.load(fast)
	w.wantWarnings(c, `--fast has no effect: --model sets the model "mine"`)
	w.shows(c, "model mine")
	w.env["ATM_AGENT_MCP_FAST"] = "1"
	w.quiet(nil, "model spark")
	w.project(pluginHead)
	c = w.load(nil)
	w.wantWarnings(c, "ATM_AGENT_MCP_FAST: fast: there is no fast model")
	w.shows(c, "fast false", "model ")
}

// A role takes each of its settings from the highest layer that has it, and the rest from the plain settings.
func TestConfigRoles(t *testing.T) {
	w := newConfigWorld(t)
	w.global(pluginHead + "subagents = true\n" +
		"roles.worker = { model = 'g', sandbox = 'read-only', approval_policy = 'on-failure' }\n" +
		"roles.alone = { subagents = false, auto_mail = false }\n")
	p := w.project(pluginHead + "auto_mail = true\n" +
		"[plugins.atm-agent-mcp.roles.worker]\nmodel = 'p'\nsandbox = 'full'\n" +
		"reasoning_effort = 'high'\nmodell = 1\n[plugins.atm-agent-mcp.roles.'a b']\n" +
		"[roles]\nlead = 'arch-ctm'\n[aliases]\narch = 'arch-ctm'\nn = 1\n")
	c := w.load(nil)
	w.wantWarnings(c, p+":13:5: aliases.n wants a string, not an integer",
		p+`:5:11: roles.worker.sandbox: "full" is no sandbox mode`,
		p+`:7:1: unknown key "roles.worker.modell"; did you mean "model"?`,
		p+":8:30: roles.a b: a role's name has letters")
	for name, want := range map[string]role{"worker": {"worker", "p", "high", "read-only", "on-request", true, true},
		"alone": {name: "alone"}, "": {subagents: true, autoMail: true}} {
		if r, err := c.role(name); err != nil || r != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, r, err, want)
		}
	}
	w.shows(c, "roles.worker.model p from P:4", "roles.worker.sandbox read-only from G:3",
		"[roles].lead arch-ctm from P:10", "[aliases].arch arch-ctm from P:12")
	if len(c.aliases) != 1 || c.aliases["arch"] != "arch-ctm" || c.atmRoles["lead"] != "arch-ctm" {
		t.Errorf("got %v %v", c.aliases, c.atmRoles)
	}
	_, err := c.role("wroker")
	if want := `no role "wroker": there are alone, worker; did you mean "worker"?`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if r, err := w.load(flagValues{"role": "worker"}).role(""); err != nil || r.name != "worker" {
		t.Errorf("--role should be the default role: %+v, %v", r, err)
	}
	w.env["ATM_AGENT_MCP_ROLE"] = "nobody"
	c = w.load(nil)
	if last := c.warnings[len(c.warnings)-1]; c.defaultRole != "" ||
		!strings.Contains(last, `ATM_AGENT_MCP_ROLE: role: no role "nobody"`) {
		t.Errorf("role %q, warning %q", c.defaultRole, last)
	}
}

// One bad value never resets the others, and every bad one is told with its place.
func TestConfigBadValuesStandAlone(t *testing.T) {
	w := newConfigWorld(t)
	w.global(pluginHead + "sandbox = 'read-only'\nmax_concurrent_threads = 3\nmodel = 'global'\n")
	p := w.project(pluginHead + "sandbox = 'readOnly'\n  max_concurrent_threads = \"many\"\nmodel = 'mine'\n" +
		"request_timeout_secs = 9_999_999\nmodle = 1\nroles = 3\npersist_threads = false\nteam = 't'\n" +
		"per_thread_auto_mail = { 'codex:ab' = false, worker = 3 }\n")
	for name, value := range map[string]string{"ATM_AGENT_MCP_LOG_LEVEL": "loud", "ATM_AGENT_MCP_AUTO_MAIL": "jein",
		"ATM_AGENT_MCP_TURN_LIMIT_SECS": "99999999999999999999", "ATM_AGENT_MCP_IDLE_TIMEOUT_MS": "5s",
		"ATM_TEAM": "../up", "ATM_IDENTITY": "a b"} {
		w.env[name] = value
	}
	c := w.load(nil)
	w.wantWarnings(c,
		p+`:2:11: sandbox: "readOnly" is written "read-only"`,
		p+`:3:28: max_concurrent_threads: wants an integer, not a string`,
		p+`:5:24: request_timeout_secs: 9999999 is out of range: 1 to 604800`,
		p+`:6:1: unknown key "modle"; did you mean "model"?`,
		p+`:9:1: unknown key "team"; a team is named by default_team under [core]`,
		p+":10:55: per_thread_auto_mail.worker: wants a boolean, not an integer",
		p+`:7:9: roles wants a table, not an integer`,
		`ATM_AGENT_MCP_TURN_LIMIT_SECS: 9223372036854775807 is out of range`,
		`ATM_AGENT_MCP_LOG_LEVEL: "loud" is no log level (there are error, warn, info, debug, trace)`,
		`ATM_AGENT_MCP_AUTO_MAIL: wants true or false, not "jein"`,
		`ATM_AGENT_MCP_IDLE_TIMEOUT_MS: wants a whole number, not "5s"`, `ATM_IDENTITY: identity "a b" is no name`,
		`ATM_TEAM: team name "../up" is a path`,
	)
	w.shows(c, "sandbox read-only from G:2", "max_concurrent_threads 3", "model mine", "request_timeout_secs 300",
		"persist_threads false", "per_thread_auto_mail.codex:ab false")
	if len(c.perThreadAutoMail) != 1 {
		t.Errorf("got %v", c.perThreadAutoMail)
	}
}

// A file that can't be read is left out whole, with a word; max_sandbox may have been in it.
func TestConfigBadFileIsLeftOut(t *testing.T) {
	w := newConfigWorld(t)
	w.global(pluginHead + "model = 'global'\n")
	p := filepath.Join(w.repo, ".atm.toml")
	const closed = "max_sandbox could not be read, so agents are read-only"
	for text, want := range map[string][]string{
		pluginHead + "model = mine\n":            {p + `:2:9: "mine" is no value: text is written in quotes`},
		"plugins = 1\n":                          {"1:11: plugins wants a table"},
		"plugins.atm-agent-mcp = 'x'\n":          {"plugins.atm-agent-mcp wants a table, not a string"},
		"[plugins.atm_agent_mcp]\nmodel = 'x'\n": {"2:1: model has no effect here: settings stand in the table"},
		strings.Repeat("#\n", maxConfigSize/2+1): {"over 1048576 bytes", closed},
		"# \xff\n":                               {p + ":1:3: byte 0xFF is not UTF-8"},
		"[core]\nidentity = 3\ndefault_taem = 1\n": {":2:12: core.identity: wants a string, not an integer",
			`did you mean "default_team"?`},
	} {
		w.project(text)
		c := w.load(nil)
		w.wantWarnings(c, want...)
		w.shows(c, "model global")
	}
	wantNil(t, os.Remove(p))
	wantNil(t, os.Mkdir(p, 0o755))
	w.wantWarnings(w.load(nil), ".atm.toml: not a regular file", closed)
}

// The file of --config or ATM_CONFIG is strict, and the nearest .atm.toml is looked for from its directory.
func TestConfigNamedFile(t *testing.T) {
	w := newConfigWorld(t)
	w.project(pluginHead + "model = 'project'\nlog_level = 'debug'\n")
	other := filepath.Join(w.home, "other")
	w.write(filepath.Join(other, ".atm.toml"), pluginHead+"model = 'beside'\nsandbox = 'read-only'\n")
	named := w.write(filepath.Join(other, "my.toml"), pluginHead+"model = 'named'\nbase_prompt_file = 'p.md'\n")
	w.quiet(flagValues{"config": named}, "model named", "sandbox read-only", "log_level info",
		"base_prompt_file "+filepath.Join(other, "p.md"))
	w.env["ATM_CONFIG"] = "~/other/my.toml"
	w.env["ATM_AGENT_MCP_MODEL"] = "variable"
	w.quiet(nil, "model variable", "sandbox read-only")
	delete(w.env, "ATM_AGENT_MCP_MODEL")
	for text, want := range map[string]string{
		pluginHead + "model = 7.5\n":            "my.toml:2:9: model: wants a string, not a float",
		"x":                                     "my.toml:1:2: ",
		"[core]\nidentity = ''\n":               "my.toml:2:12: core.identity: an identity can't be empty",
		pluginHead + "roles.r.sandbox = 'rw'\n": "my.toml:2:19: roles.r.sandbox: ",
		pluginHead + "roles.r = 1\n":            "my.toml:2:11: roles.r: wants a table",
		pluginHead + "role = 'nobody'\n":        `my.toml:2: role: no role "nobody": none is configured`,
		pluginHead + "fast = true\n":            "there is no fast model",
		pluginHead + "per_thread_auto_mail.a = 1\nroles.r.model = 'a b'\n": "per_thread_auto_mail.a: wants a boolean",
	} {
		w.write(named, text)
		if _, err := w.try(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want …%s…", text, err, want)
		}
	}
	for _, missing := range []string{"", "gone.toml"} {
		if _, err := w.try(flagValues{"config": missing}); err == nil || !strings.HasPrefix(err.Error(), "--config: ") {
			t.Errorf("--config %q: %v", missing, err)
		}
	}
}

// Only the nearest .atm.toml counts, up to the root of the repository; outside of one only the working directory's own,
// since the directories above may be anybody's.
func TestConfigWalkUp(t *testing.T) {
	w := newConfigWorld(t)
	src, here := filepath.Join(w.repo, "src", ".atm.toml"), filepath.Join(w.in, ".atm.toml")
	w.write(filepath.Join(filepath.Dir(w.repo), ".atm.toml"), pluginHead+"model = 'above'\n")
	if c := w.quiet(nil, "model "); len(c.files) != 0 {
		t.Errorf("went past .git: %q", c.files)
	}
	p := w.project(pluginHead + "model = 'repo'\n")
	if c := w.quiet(nil, "model repo"); !slices.Equal(c.files, []string{p}) {
		t.Errorf("read %q", c.files)
	}
	w.write(src, pluginHead+"sandbox = 'read-only'\n")
	w.quiet(nil, "model ", "sandbox read-only")
	for _, path := range []string{src, filepath.Join(w.repo, ".git", "HEAD")} { // a hollow .git is no repository
		wantNil(t, os.Remove(path))
	}
	w.quiet(nil, "model ")
	w.write(here, pluginHead+"model = 'here'\n")
	w.quiet(nil, "model here")
	for _, path := range []string{here, p, filepath.Join(w.repo, ".git")} {
		wantNil(t, os.Remove(path))
	}
	w.write(filepath.Join(w.repo, ".git"), "gitdir: /elsewhere\n") // a worktree's
	w.quiet(nil, "model ")
}

// Paths are relative to where they are written; an empty one is none (the bundled prompt).
func TestConfigPaths(t *testing.T) {
	w := newConfigWorld(t)
	j := filepath.Join
	w.project(pluginHead + "base_prompt_file = 'prompts/a.md'\n" +
		"extra_instructions_file = '~/b.md'\ncodex_bin = 'bin/codex'\n")
	w.env["ATM_AGENT_MCP_LOG_FILE"] = "log.txt"
	w.quiet(nil, "base_prompt_file "+j(w.repo, "prompts", "a.md"), "extra_instructions_file "+j(w.home, "b.md"),
		"codex_bin "+j(w.repo, "bin", "codex"), "log_file "+j(w.in, "log.txt"))
	w.global(pluginHead + "base_prompt_file = '/g.md'\ncodex_bin = 'codex-g'\n")
	w.project(pluginHead + "base_prompt_file = ''\n")
	w.quiet(nil, "base_prompt_file ", "codex_bin codex-g")

	wantDirs := func(atm, teams string) {
		t.Helper()
		c := w.load(nil)
		if c.home != w.home || c.atmHome != atm || c.teamsRoot != teams ||
			c.sessionsRoot != j(atm, ".config", "atm", "agent-sessions") {
			t.Errorf("got %+v", c.directories)
		}
	}
	wantDirs(w.home, j(w.home, ".claude", "teams"))
	w.env["CLAUDE_CONFIG_DIR"] = j(w.home, "cc")
	wantDirs(w.home, j(w.home, "cc", "teams"))
	w.env["ATM_HOME"] = "../atm"
	atm := j(w.repo, "src", "atm")
	w.write(j(atm, ".config", "atm", "config.toml"), pluginHead+"model = 'atm'\n")
	wantDirs(atm, j(atm, ".claude", "teams"))
	w.shows(w.load(nil), "model atm")
	if got, err := osHome(func(string) string { return "" }); err == nil && !filepath.IsAbs(got) {
		t.Errorf("home without HOME %q", got)
	}
	for path, want := range map[string]string{"a": j(w.repo, "a"), "../a": j(filepath.Dir(w.repo), "a"), "~": w.home,
		"~/a": j(w.home, "a"), "~a": j(w.repo, "~a"), j(w.home, "x", "..", "y"): j(w.home, "y")} {
		if got := resolvePath(path, w.repo, w.home); got != want {
			t.Errorf("resolve(%q) = %q, want %q", path, got, want)
		}
	}
}

// sampleOf returns three good values of a setting in TOML, told apart by layer, and a bad one.
func sampleOf(s setting) [4]string {
	switch s.into.(type) {
	case *bool:
		return [4]string{"true", "false", "true", `"perhaps"`}
	case *int, *time.Duration: // a number without a range has none that is good
		return [4]string{fmt.Sprint(s.max), fmt.Sprint(s.max - 1), fmt.Sprint(max(s.min, 1)), fmt.Sprint(s.max + 1)}
	}
	if s.path {
		root := `"` + filepath.VolumeName(os.TempDir()) // Windows has one
		return [4]string{root + `/p/1"`, root + `/p/2"`, root + `/p/3"`, `"a\nb"`}
	}
	return map[string][4]string{
		"codex_bin":          {`"codex-a"`, `"codex-b"`, `"mock"`, `""`},
		"backend":            {`"app-server"`, `"auto"`, `"mcp-server"`, `"both"`},
		"identity":           {`"a1"`, `"b1"`, `"c1"`, `"a/b"`},
		"role":               {`"r1"`, `"r2"`, `"r3"`, "7"},
		"model":              {`"m1"`, `"m2"`, `"m3"`, "7"},
		"fast_model":         {`"m1"`, `"m2"`, `"m3"`, `" m"`},
		"reasoning_effort":   {`"low"`, `"high"`, `"none"`, `"High!"`},
		"sandbox":            {`"read-only"`, `"workspace-write"`, `"danger-full-access"`, `"workspaceWrite"`},
		"approval_policy":    {`"never"`, `"untrusted"`, `"on-request"`, `"onRequest"`},
		"log_level":          {`"debug"`, `"warn"`, `"trace"`, `"verbose"`},
		"forward_events":     {`"on"`, `"off"`, `"auto"`, "true"},
		"client_identity":    {`"me"`, `"you"`, `"them"`, `"@"`},
		"worktree_dir":       {`"trees"`, `"more/trees"`, `"/trees"`, `""`},
		"acp_mail":           {`"turn"`, `"prompt"`, `"turn"`, `"wake"`},
		"prompts_while_busy": {`"steer"`, `"queue"`, `"steer"`, `"drop"`},
	}[s.name]
}

// For every key: each layer beats the next lower one, a bad value falls to it with a warning, and the origin is
// named. A text without a check, a number without a range and a key without a sample fail.
func TestConfigProvenance(t *testing.T) {
	t.Parallel()
	for _, s := range defaultConfig().settings() {
		if s.name == "max_sandbox" || s.name == "readonly" {
			continue // no layer replaces another's: TestCeilingsCombine
		}
		v := sampleOf(s)
		_, isText := s.into.(*string)
		t.Run(s.name, func(t *testing.T) {
			w := newConfigWorld(t)
			want := func(fl flagValues, sample, from string, warnings int) {
				t.Helper()
				text, err := strconv.Unquote(sample)
				if err != nil {
					text = sample
				}
				if s.path {
					text = filepath.FromSlash(text)
				}
				c := w.load(fl)
				w.shows(c, s.name+" "+text+" from "+from)
				if len(c.warnings) != warnings {
					t.Errorf("warnings %q, want %d", c.warnings, warnings)
				}
			}
			line := func(value string) string { return pluginHead + s.name + " = " + value + "\n" }
			// fast has no effect without a model to go to, which is not what is tested here.
			w.global(line(v[0]) + map[string]string{"fast": "fast_model = 'f'\n"}[s.name] +
				"roles = { r1 = {}, r2 = {}, r3 = {} }\n")
			want(nil, v[0], "G:2", 0)
			w.project(line(v[3]))
			want(nil, v[0], "G:2", 1)
			w.project(line(v[1]))
			want(nil, v[1], "P:2", 0)
			name := "ATM_AGENT_MCP_" + strings.ToUpper(s.name)
			w.env[name] = " " + strings.Trim(v[2], `"`) + " "
			want(nil, strings.Trim(v[2], `"`), name, 0)
			w.env[name] = "  "
			want(nil, v[1], "P:2", 0)
			// Some samples are bad only as TOML: text in a variable has no kind, and blanks around it don't count.
			bad := strings.Trim(v[3], `"`)
			if (!isText || bad != v[3]) && bad != "" && strings.TrimSpace(bad) == bad && !strings.Contains(bad, `\n`) {
				w.env[name] = bad
				want(nil, v[1], "P:2", 1)
			}
			delete(w.env, name)
			named := w.write(filepath.Join(w.repo, "named.toml"), line(v[2]))
			want(flagValues{"config": named}, v[2], named+":2", 0)
			if s.flag != "" {
				want(flagValues{"config": named, s.flag: strings.Trim(v[0], `"`)}, v[0], "--"+s.flag, 0)
			}
		})
	}
}

// Older names of keys, tables and variables hold below ours, and a read-only agent of the ancestor stays one.
func TestConfigOlderNames(t *testing.T) {
	w := newConfigWorld(t)
	p := w.project(pluginHead + "default_identity = 'arch'\nmax_messages = 3\nmax_message_length = 99\n")
	c := w.quiet(nil, "identity arch from P:2", "max_mail_messages 3", "max_mail_message_length 99")
	if c.identityExplicit {
		t.Error("a file's identity is taken for --identity")
	}
	w.project(pluginHead + "default_identity = 'old'\nidentity = 'new'\n")
	c = w.load(nil)
	w.wantWarnings(c, p+":2:1: default_identity is the older name of identity")
	w.shows(c, "identity new")
	w.project("[plugins.codex-mcp]\nsandbox = 'read-only'\nmodel = 'old'\nroles.r.model = 'r'\n" + pluginHead +
		"model = 'new'\n")
	w.env["CODEX_MCP_REASONING_EFFORT"] = "low"
	w.env["ATM_AGENT_MCP_DEFAULT_IDENTITY"] = "old-v"
	w.quiet(nil, "identity old-v", "sandbox read-only", "model new", "roles.r.model r",
		"reasoning_effort low from CODEX_MCP_REASONING_EFFORT")
	w.env["CODEX_MCP_IDENTITY"], w.env["ATM_AGENT_MCP_IDENTITY"] = "older", "new-v"
	if w.quiet(nil, "identity new-v").identityExplicit {
		t.Error("a variable's identity is taken for --identity")
	}
}

// A word in another spelling is refused with the right one; a mistyped one with the nearest.
func TestConfigWords(t *testing.T) {
	for _, c := range []struct {
		check func(string) (string, error)
		words map[string]string // the word that comes out, or of an error a part with a blank
	}{
		{normalizePolicy, map[string]string{"on-request": "on-request", "never": "never", "untrusted": "untrusted",
			"on-failure": "on-request", "onRequest": `is written "on-request"`, "on_request": `is written "on-request"`,
			"NEVER": `is written "never"`, "onFailure": `is written "on-failure"`,
			"unlessTrusted": `is written "untrusted"`,
			"nevr":          `; did you mean "never"?`,
			"":              " is no approval policy (there are untrusted, on-request, never)",
			"granular":      " is no approval policy"}},
		{normalizeSandbox, map[string]string{"read-only": "read-only", "workspace-write": "workspace-write",
			"danger-full-access": "danger-full-access", "readOnly": `is written "read-only"`,
			"workspaceWrite": `is written "workspace-write"`, "dangerFullAccess": `is written "danger-full-access"`,
			"read_only": `is written "read-only"`, "": " is no sandbox mode", "externalSandbox": " is no sandbox mode",
			"read-olny": `; did you mean "read-only"?`}},
	} {
		for word, want := range c.words {
			got, err := c.check(word)
			if strings.Contains(want, " ") != (err != nil) || err == nil && got != want ||
				err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %q, %v, want %s", word, got, err, want)
			}
		}
	}
	words := []string{"model", "fast_model", "sandbox", "identity", "role"}
	for word, want := range map[string]string{
		"modle": "model", "MODEL": "model", "fastmodel": "fast_model", "sandbxo": "sandbox", "idnetity": "identity",
		"rol": "role",
		"":    "", "x": "", "zebra": "", "completely-different": "", strings.Repeat("m", 10_000): "",
	} {
		if got := nearest(word, words); got != want || nearest(word, nil) != "" {
			t.Errorf("nearest(%q) = %q, want %q", cutName(word), got, want)
		}
	}
}

// Names become paths: they are names of one file or directory, wherever they are used.
func TestConfigNames(t *testing.T) {
	for _, c := range []struct {
		check     func(string) error
		good, bad []string
	}{
		{validIdentity, []string{"a", "Z", "0", "codex-2", "Arch_CTM", "9-_", "a--", strings.Repeat("a", 64)},
			[]string{"", " ", "a b", "-a", "_a", ".", "..", ".a", "a.b", "../a", "a/b", `a\b`, "/a", "a@b", "ä", "аrch",
				"a\n", "a\x00",
				"a:b", "~", "*", strings.Repeat("a", 65), "\xff"}},
		{validTeam, []string{"a", "My_Team", "team.one", "session-e9a98a05", "Tëam 1", "-a", "~x",
			strings.Repeat("a", 255)},
			[]string{"", " ", ".", "..", ".archives", "a/b", "../a", "/a", "a/", `a\b`, "a\n", "a\x00b", "\x7f",
				"a\xff",
				strings.Repeat("a", 256)}},
	} {
		for _, s := range c.good {
			wantNil(t, c.check(s))
		}
		for _, s := range c.bad {
			if c.check(s) == nil {
				t.Errorf("%q accepted", s)
			}
		}
	}
}

const leadSession = "e9a98a05-1111-2222-3333-444455556666"

func writeTeam(t *testing.T, root, name, text string) string {
	t.Helper()
	plant(t, root, map[string]string{name + "/config.json": text})
	return filepath.Join(root, name, "config.json")
}

// leadOf is config.json as Claude Code 2.1.197 writes it: the lead has no model.
func leadOf(id string) string {
	return fmt.Sprintf(`{"name":"x","leadAgentId":"team-lead@x","leadSessionId":%q,`+
		`"members":[{"agentId":"team-lead@x","name":"team-lead","subscriptions":[]}]}`, id)
}

// Flag, ATM_TEAM, .atm.toml, the Claude Code session's, config.toml of the home, default. Nothing is made.
func TestConfigTeamLayers(t *testing.T) {
	w := newConfigWorld(t)
	root := filepath.Join(w.home, ".claude", "teams")
	want := func(fl flagValues, line string, exists bool) {
		t.Helper()
		if c := w.quiet(fl, "team "+line); c.teamExists != exists {
			t.Errorf("%s exists: %v", line, c.teamExists)
		}
	}
	want(nil, "default from default", false)
	w.global("[core]\ndefault_team = 'mine'\n")
	want(nil, "mine from G:2", false)
	w.env["CLAUDE_CODE_SESSION_ID"] = "00000000-0"
	want(nil, "mine from G:2", false)
	writeTeam(t, root, "session-e9a98a05", leadOf(leadSession))
	w.env["CLAUDE_CODE_SESSION_ID"] = leadSession
	want(nil, "session-e9a98a05 from CLAUDE_CODE_SESSION_ID", true)
	p := w.project("[core]\ndefault_team = 'My.Team'\n")
	want(nil, "My.Team from P:2", false)
	w.env["ATM_TEAM"] = " crew "
	writeTeam(t, root, "crew", "{}")
	want(nil, "crew from ATM_TEAM", true)
	want(flagValues{"team": "nowhere"}, "nowhere from --team", false)
	plant(t, root, map[string]string{"flagged/": ""})
	want(flagValues{"team": "flagged"}, "flagged from --team", false)
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 3 {
		t.Errorf("a team was created: %v, %v", entries, err)
	}
	w.env["ATM_TEAM"] = ""
	w.project("[core]\ndefault_team = '../x'\n")
	c := w.load(nil)
	w.wantWarnings(c, p+`:2:16: core.default_team: team name "../x" is a path`)
	w.shows(c, "team session-e9a98a05")
}

// The Claude Code session that started us leads the team that names it; its own (Claude Code names a team after the
// session, and may have two with one lead) comes first. An empty leadSessionId, as `atm init` writes it, is nobody's.
func TestFindTeam(t *testing.T) {
	root := t.TempDir()
	for name, lead := range map[string]string{"crew": leadSession, "other": "someone-else", ".archives": leadSession,
		"init": "",
		"aaa":  "12345678-9", "session-12345678": "12345678-9"} {
		writeTeam(t, root, name, "\ufeff"+leadOf(lead))
	}
	damaged := t.TempDir()
	plant(t, damaged, map[string]string{"session-87654321/config.json": "{",
		"big/config.json": strings.Repeat(" ", maxTeamConfigSize) + leadOf("bigbigbig")})
	plant(t, root, map[string]string{"empty/": ""})
	for _, c := range []struct{ root, session, want string }{
		{root, leadSession, "crew"}, {root, "00000000-0", ""}, {root, "12345678-9", "session-12345678"},
		{root, "../../../x", ""}, {root, "x", ""},
		// A file that stays unreadable is ours only by the session's own name; one above the limit is not read.
		{damaged, "87654321-0", "session-87654321"}, {damaged, "bigbigbig", ""},
	} {
		q := teamQuery{root: c.root, sessionID: c.session, pause: func() {}}
		if c.root == root {
			q.pause = func() { panic("nothing here needs a second reading") }
		}
		if name, err := q.sessionTeam(); name != c.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", c.session, name, err, c.want)
		}
	}
	q := teamQuery{root: filepath.Join(root, "crew", "config.json"), sessionID: leadSession}
	if name, err := q.sessionTeam(); name != "" || err == nil {
		t.Errorf("a teams folder that is a file: %q, %v", name, err)
	}
}

// Claude Code truncates config.json and then writes it, so a reader may see half of it, and reads once more.
func TestFindTeamReadsAHalfWrittenFileAgain(t *testing.T) {
	for _, half := range []string{"", leadOf(leadSession)[:60]} {
		root, pauses := t.TempDir(), 0
		writeTeam(t, root, "other", "{")
		writeTeam(t, root, "crew", half)
		q := teamQuery{root: root, sessionID: leadSession, pause: func() {
			pauses++
			writeTeam(t, root, "crew", leadOf(leadSession))
		}}
		if name, err := q.sessionTeam(); name != "crew" || err != nil || pauses != 1 {
			t.Errorf("got %q, %v after %d pauses", name, err, pauses)
		}
	}
}
