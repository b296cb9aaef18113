package main

// config_layers_test.go holds the configuration's files: a bad value costs that value
// only, which file is found, and against what a path in it is resolved.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

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
