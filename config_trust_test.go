package main

// config_trust_test.go holds whose word counts: what a repository's file may set before
// it is trusted, how trust is lost, and that no layer lifts another's ceiling.

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// FR-12 and design "Whose word counts": each line alone, beside the user's own file.
func TestTrustOfEachKey(t *testing.T) {
	const own = pluginHead + "sandbox = 'workspace-write'\nreadonly = false\nsubagents = true\nauto_mail = true\n" +
		"[plugins.atm-agent-mcp.roles.yolo]\nsandbox = 'danger-full-access'\n[plugins.atm-agent-mcp.roles.scout]\nsandbox = 'read-only'\napproval_policy = 'untrusted'\nsubagents = false\n"
	for _, c := range []struct {
		line    string
		ignored bool
	}{
		{"identity = 'ann'", false}, {"default_identity = 'ann'", false}, {"model = 'm'", false}, {"reasoning_effort = 'low'", false},
		{"role = 'theirs'\nroles.theirs.model = 'm'", false}, {"role = 'scout'", false}, {"role = 'yolo'", true},
		{"sandbox = 'read-only'", false}, {"sandbox = 'workspace-write'", false}, {"sandbox = 'danger-full-access'", true},
		{"approval_policy = 'untrusted'", false}, {"approval_policy = 'on-failure'", false}, {"approval_policy = 'never'", true},
		{"max_sandbox = 'read-only'", false}, {"readonly = true", false}, {"readonly = false", false},
		{"subagents = false", false}, {"subagents = true", false}, {"auto_mail = false", false}, {"allow_rules = false", false}, {"allow_rules = true", true},
		{"per_thread_auto_mail.ann = false", false}, {"per_thread_auto_mail.ann = true", true},
		{"codex_bin = 'bin/codex'", true}, {"log_file = '~/.bashrc'", true}, {"base_prompt_file = '~/.ssh/id_rsa'", true}, {"extra_instructions_file = 'x'", true},
		{"backend = 'mcp-server'", true}, {"persist_threads = false", true}, {"log_level = 'trace'", true},
		{"client_identity = 'team-lead'", true}, {"restart_child = true", true}, {"turn_limit_secs = 5", true}, {"acp_mail = 'turn'", true},
		{"roles.scout.model = 'm'", false}, {"roles.scout.sandbox = 'workspace-write'", true}, {"roles.scout.sandbox = ''", true}, {"roles.scout.approval_policy = 'on-request'", true},
		{"roles.scout.subagents = true", true}, {"roles.new.sandbox = 'danger-full-access'", true}, {"roles.new.sandbox = 'workspace-write'", false},
		{"roles.new.approval_policy = 'never'", true}, {"roles.yolo.sandbox = 'workspace-write'", false}, {"roles.new.auto_mail = false", false},
	} {
		for _, table := range []string{"plugins.atm-agent-mcp.", "plugins.codex-mcp."} {
			w := newConfigWorld(t)
			w.global(own)
			p := w.stranger(table + strings.ReplaceAll(c.line, "\n", "\n"+table) + "\n")
			got := w.load(flagValues{})
			if (len(got.ignored) > 0) != c.ignored || (len(got.warnings) > 0) != c.ignored || (len(got.notes) > 0) != c.ignored {
				t.Errorf("%s%s: ignored %v, warnings %q, notes %q", table, c.line, got.ignored, got.warnings, got.notes)
			}
			if c.ignored && (got.ignored[0].From != p+":1" || !strings.Contains(got.warnings[0], p+":1: ") || !strings.Contains(got.warnings[0], trustCommand)) {
				t.Errorf("%s is told as %+v, %q", c.line, got.ignored[0], got.warnings)
			}
			w.trust(p)
			if got := w.quiet(flagValues{}); len(got.ignored) > 0 || !got.repo.trusted {
				t.Errorf("%s is ignored although it is trusted: %v", c.line, got.ignored)
			}
		}
	}
}

// What is wider than the user's Codex configuration is known only with that: config_policy.go holds the file against it.
func TestTrustAndCodexConfig(t *testing.T) {
	for _, c := range []struct{ ours, theirs, codex, arg, sandbox, approval string }{
		{"", "sandbox = 'workspace-write'", `{"sandbox_mode":"read-only"}`, "", "read-only", "on-request"},
		{"", "sandbox = 'read-only'", `{"sandbox_mode":"workspace-write"}`, "", "read-only", "on-request"},
		{"", "approval_policy = 'on-request'", `{"approval_policy":"untrusted"}`, "", "workspace-write", "untrusted"},
		{"", "sandbox = 'workspace-write'", `{}`, "", "workspace-write", "on-request"},
		{"sandbox = 'workspace-write'", "sandbox = 'workspace-write'", `{"sandbox_mode":"read-only"}`, "", "workspace-write", "on-request"},
		{"", "role = 'r'\nroles.r.sandbox = 'workspace-write'", `{"sandbox_mode":"read-only"}`, "", "read-only", "on-request"},
		{"role = 'r'\nroles.r.sandbox = 'read-only'", "role = ''", `{}`, "", "read-only", "on-request"},
		{"", "sandbox = 'read-only'", `{}`, "workspace-write", "workspace-write", "on-request"},
	} {
		w := newConfigWorld(t)
		w.global(pluginHead + c.ours + "\n")
		w.stranger(pluginHead + c.theirs + "\n")
		cfg := w.load(flagValues{})
		r, err := cfg.role("")
		if err != nil {
			t.Fatal(err)
		}
		in := policyInput{cfg: cfg, role: r, user: []byte(`{"config":` + c.codex + `}`), cwd: w.repo, repoRoot: w.repo, options: sessionOptions{Sandbox: c.arg}}
		pol, rerr := resolvePolicy(in)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if pol.Settings.Sandbox != c.sandbox || pol.Settings.Approval != c.approval {
			t.Errorf("%+v: got %s, %s; %q", c, pol.Settings.Sandbox, pol.Settings.Approval, pol.Notes)
		}
		in.cwd, in.repoRoot = w.home, "" // where nothing but read-only is the default
		if pol, rerr = resolvePolicy(in); rerr == nil && c.arg == "" && c.ours == "" && c.codex == "{}" && pol.Settings.Sandbox != "read-only" {
			t.Errorf("%+v: in the home directory got %s", c, pol.Settings.Sandbox)
		}
	}
}

// Trust is of one content in one place, and what keeps it must be the user's alone.
func TestTrustIsLost(t *testing.T) {
	w := newConfigWorld(t)
	const text = pluginHead + "codex_bin = 'bin/codex'\n"
	p := w.project(text)
	bin := filepath.Join(w.repo, "bin", "codex")
	if c := w.quiet(flagValues{}); c.codexBin != bin {
		t.Fatalf("codex_bin %q", c.codexBin)
	}
	trusted := func() bool { return w.load(flagValues{}).codexBin != "codex" }
	w.stranger(text + "# one more\n")
	if trusted() {
		t.Error("a change left it trusted")
	}
	w.stranger(text)
	if !trusted() {
		t.Error("the same content again should be trusted")
	}
	store := directories{atmHome: w.home}.trust()
	if runtime.GOOS != "windows" {
		// A link to a trusted file elsewhere would have its relative paths mean that other place's programs.
		other := newConfigWorld(t)
		other.env = w.env
		if err := os.Symlink(p, filepath.Join(other.repo, ".atm.toml")); err != nil {
			t.Fatal(err)
		}
		if c := other.load(flagValues{}); c.codexBin != "codex" {
			t.Errorf("a link to a trusted file has its trust: %q", c.codexBin)
		}
		if st, err := os.Stat(store.path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		for _, path := range []string{store.path, p} {
			for _, mode := range []os.FileMode{0o620, 0o602, 0o644} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
				if trusted() != (mode == 0o644) {
					t.Errorf("%s with mode %o: trusted %v", path, mode, mode != 0o644)
				}
			}
		}
		if os.Getuid() == 0 { // another user's file, link, and repository around us
			for _, path := range []string{p, filepath.Join(w.repo, ".git"), w.repo, store.path} {
				if err := os.Lchown(path, 1, 1); err != nil {
					t.Fatal(err)
				}
				c := w.load(flagValues{})
				if c.codexBin != "codex" || len(c.warnings) == 0 || !strings.Contains(c.warnings[0], path+" belongs to another user (1)") {
					t.Errorf("%s of another user: %q, %q", path, c.codexBin, c.warnings)
				}
				if err := os.Lchown(path, 0, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// What can't be understood trusts nothing, is told, and isn't lost.
	w.write(store.path, "{")
	if c := w.load(flagValues{}); c.codexBin != "codex" || !slices.ContainsFunc(c.warnings, func(s string) bool { return strings.Contains(s, store.path+" can't be understood") }) {
		t.Errorf("got %q, %q", c.codexBin, c.warnings)
	}
	w.trust(p)
	if aside, _ := filepath.Glob(store.path + ".corrupt-*"); len(aside) != 1 || !trusted() {
		t.Errorf("set aside: %q, trusted: %v", aside, trusted())
	}
	if changed, err := store.set(trustKey(p), "", slog.New(slog.DiscardHandler)); err != nil || !changed || trusted() {
		t.Errorf("taken back: %v, %v", changed, err)
	}
}

// Of all that name a ceiling, the lowest holds: every layer, both names, trusted or not.
func TestCeilingsCombine(t *testing.T) {
	type layer struct {
		name string
		set  func(w *configWorld, fl *flagValues, key, value string)
	}
	file := func(write func(w *configWorld, text string), table string) func(*configWorld, *flagValues, string, string) {
		return func(w *configWorld, _ *flagValues, key, value string) {
			write(w, "[plugins."+table+"]\n"+key+" = "+value+"\n")
		}
	}
	var layers []layer
	for _, table := range []string{"atm-agent-mcp", "codex-mcp"} {
		layers = append(layers,
			layer{"global " + table, file(func(w *configWorld, s string) { w.global(s) }, table)},
			layer{"trusted " + table, file(func(w *configWorld, s string) { w.project(s) }, table)},
			layer{"untrusted " + table, file(func(w *configWorld, s string) { w.stranger(s) }, table)},
			layer{"named " + table, file(func(w *configWorld, s string) { w.env["ATM_CONFIG"] = w.write(filepath.Join(w.repo, "mine.toml"), s) }, table)})
	}
	for _, prefix := range []string{variablePrefix, oldVariablePrefix} {
		layers = append(layers, layer{prefix, func(w *configWorld, _ *flagValues, key, value string) {
			w.env[prefix+strings.ToUpper(key)] = strings.Trim(value, "'")
		}})
	}
	layers = append(layers, layer{"flag", func(_ *configWorld, fl *flagValues, key, value string) {
		if key == "readonly" {
			(*fl)["readonly"] = value
		}
	}})
	lower := []struct{ key, value, lift, want string }{
		{"readonly", "true", "false", sandboxRead}, {"max_sandbox", "'read-only'", "'danger-full-access'", sandboxRead},
		{"max_sandbox", "'workspace-write'", "'danger-full-access'", sandboxWrite}, {"max_sandbox", "'wrkspace'", "'danger-full-access'", sandboxRead},
		{"max_sandbox", "3", "'danger-full-access'", sandboxRead}, {"readonly", "'maybe'", "false", sandboxRead},
	}
	for i, low := range layers {
		for _, high := range layers {
			c := lower[i%len(lower)]
			if low.name == "flag" {
				c = lower[0]
			}
			for _, c := range []struct{ key, value, lift, want string }{c, lower[1]} {
				where, other := strings.Fields(low.name)[0], strings.Fields(high.name)[0]
				if where == "flag" && c.key != "readonly" || where == other || strings.HasSuffix(where, "trusted") && strings.HasSuffix(other, "trusted") {
					continue // no such flag, or one file
				}
				w, fl := newConfigWorld(t), flagValues{}
				high.set(w, &fl, c.key, c.lift)
				low.set(w, &fl, c.key, c.value)
				cfg, err := w.try(fl)
				if err != nil { // the named file's mistake ends the program
					if where != "named" {
						t.Error(err)
					}
					continue
				}
				if cfg.maxSandbox != c.want {
					t.Errorf("%s = %s in %s, %s in %s: max_sandbox %q", c.key, c.value, low.name, c.lift, high.name, cfg.maxSandbox)
				}
			}
		}
	}
}

// An old name's values hold below ours, and a read-only agent of the ancestor stays one.
func TestConfigOlderNames(t *testing.T) {
	w := newConfigWorld(t)
	w.global("[plugins.codex-mcp]\nsandbox = 'read-only'\nmodel = 'old'\nroles.r.model = 'r'\n[plugins.atm-agent-mcp]\nmodel = 'new'\n")
	w.env["CODEX_MCP_REASONING_EFFORT"] = "low"
	w.env["CODEX_MCP_IDENTITY"], w.env["ATM_AGENT_MCP_IDENTITY"] = "old", "new"
	c := w.quiet(flagValues{})
	if c.sandbox != "read-only" || c.model != "new" || c.effort != "low" || c.identity != "new" || c.roles["r"].model != "r" || c.origin["reasoning_effort"].String() != "CODEX_MCP_REASONING_EFFORT" {
		t.Errorf("got %q %q %q %q %v from %s", c.sandbox, c.model, c.effort, c.identity, c.roles, c.origin["reasoning_effort"])
	}
}
