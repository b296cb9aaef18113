package main

// config_policy_test.go holds whose word counts and what a session may do: ceilings that no layer, argument or config
// key passes (fuzzed too), what a repository's file may set before it is trusted, who wins over whom, the defaults by
// directory, profiles and directories.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A ceiling that can't be read must not read as none.
func TestConfigCeilingFailsClosed(t *testing.T) {
	const ours = "plugins.atm-agent-mcp."
	for _, c := range []struct{ name, project, want string }{
		{"a bad word", ours + "max_sandbox = 'readonly!'", "read-only"},
		{"a bad kind", ours + "readonly = 'yes'", "read-only"},
		{"a file that can't be read, with a ceiling in it", ours + "max_sandbox = 'workspace-write'\nmodel = ",
			"read-only"},
		{"a file that can't be read, with a ceiling misspelt", ours + "max_sanbox = 'workspace-write'\nmodel = ",
			"read-only"},
		{"a file that can't be read, without one", ours + "model = ", ""},
		{"a file in UTF-16", "\x00m\x00a\x00x\x00_\x00s\x00a\x00n\x00d\x00b\x00o\x00x\x00=\x001\x00", "read-only"},
		{"a role's table", ours + "roles.r.max_sandbox = 'workspace-write'", "read-only"},
		{"the older name's table, misspelt", "[plugins.codex_mcp]\nreadonly = true", "read-only"},
		{"an array of tables", "[[plugins.codex-mcp]]\nreadonly = true", "read-only"},
		{"an array of tables, misspelt", "[[codex-mcp]]\nreadonly = true", "read-only"},
		{"an array of the plugins' tables", "[[plugins]]\n[plugins.atm-agent-mcp]\nmax_sandbox = 'workspace-write'\n",
			"read-only"},
		{"a list of the plugins' tables", "plugins = [{ codex-mcp = { readonly = true } }]\n", "read-only"},
		{"the plugins' table, misspelt", "[Plugins.codex-mcp]\nreadonly = true", "read-only"},
		{"a table that nobody knows", "[plugins.atm-agent-mcp.limits]\nmax_sandbox = 'workspace-write'", "read-only"},
		{"no table of ours", "[core]\nreadonly = true", "read-only"},
		{"an array in place of the table", "[plugins]\ncodex-mcp = [[{ readonly = true }]]", "read-only"},
		{"an array in place of the word", "[core]\nmax_sandbox = ['workspace-write']", "read-only"},
		{"a table in place of the word", "[plugins.codex-mcp.max_sandbox]\nx = 1", "read-only"},
		{"an agent of that name is no ceiling", ours + "per_thread_auto_mail.readonly = true", ""},
		{"nor a role", ours + "roles.readonly.model = 'm'\n" + ours + "roles.explore.model = 'm'", ""},
		{"but a word in a role's place is", ours + "roles.readonly = true", "read-only"},
		{"another program's table", "[plugins.ci-monitor]\nreadonly = true\n[broker]\nmax_sandbox = 'read-only'", ""},
		{"a good word", ours + "max_sandbox = 'workspace-write'", "workspace-write"},
	} {
		w := newConfigWorld(t)
		w.project(c.project + "\n")
		if got := w.load(nil).maxSandbox; got != c.want {
			t.Errorf("%s: max_sandbox %q, want %q", c.name, got, c.want)
		}
	}
	// A bad variable, and a misspelt one, also in its prefix or its case.
	for pair, want := range map[string]string{"ATM_AGENT_MCP_MAX_SANDBOX=bogus": "read-only",
		"ATM_AGENT_MCP_READ_ONLY=1": "read-only",
		"CODEX_MCP_MAXSANDBOX=x":    "read-only", "ATM_AGENT_MCP_TEAM=crew": "", "CODEX_MCP_NONSENSE=1": "",
		"atm_agent_mcp_max_sandbox=workspace-write": "read-only", "Codex_Mcp_Readonly=1": "read-only",
		"ATM_MCP_READONLY=1": "read-only", "ATM_AGENT_MAX_SANDBOX=x": "read-only", "ATM_NONSENSE=readonly": ""} {
		w := newConfigWorld(t)
		name, value, _ := strings.Cut(pair, "=")
		w.env[name] = value
		c, err := loadConfig(func(name string) string { return w.env[name] }, w.in, nil, pair)
		if err != nil || c.maxSandbox != want || len(c.warnings) == 0 != strings.HasSuffix(name, "NONSENSE") {
			t.Errorf("%s: %v, max_sandbox %q, want %q; %q", pair, err, c.maxSandbox, want, c.warnings)
		}
	}
}

// Of all that name a ceiling, the lowest holds: every layer, both names, trusted or not, good words and bad.
func TestCeilingsCombine(t *testing.T) {
	t.Parallel()
	type layer struct {
		name string // of two layers with one first word only one can be
		set  func(w *configWorld, fl flagValues, key, value string)
	}
	var layers []layer
	for _, table := range []string{"atm-agent-mcp", "codex-mcp"} {
		for name, write := range map[string]func(*configWorld, string){
			"global":            func(w *configWorld, s string) { w.global(s) },
			"project trusted":   func(w *configWorld, s string) { w.project(s) },
			"project untrusted": func(w *configWorld, s string) { w.stranger(s) },
			"named": func(w *configWorld,
				s string) {
				w.env["ATM_CONFIG"] = w.write(filepath.Join(w.repo, "mine.toml"), s)
			},
		} {
			layers = append(layers, layer{name + " " + table, func(w *configWorld, _ flagValues, key, value string) {
				write(w, "[plugins."+table+"]\n"+key+" = "+value+"\n")
			}})
		}
	}
	for _, prefix := range []string{variablePrefix, oldVariablePrefix} {
		layers = append(layers, layer{prefix, func(w *configWorld, _ flagValues, key, value string) {
			w.env[prefix+strings.ToUpper(key)] = strings.Trim(value, "'")
		}})
	}
	layers = append(layers, layer{"flag", func(_ *configWorld, fl flagValues, key, value string) { fl[key] = value }})
	for _, low := range layers {
		for _, high := range layers {
			where, other := strings.Fields(low.name)[0], strings.Fields(high.name)[0]
			for _, c := range []struct{ key, value, lift, want string }{
				{"readonly", "true", "false", sandboxRead}, {"readonly", "'maybe'", "false", sandboxRead},
				{"max_sandbox", "'read-only'", "'danger-full-access'", sandboxRead},
				{"max_sandbox", "'workspace-write'", "'danger-full-access'", sandboxWrite},
				{"max_sandbox", "'wrkspace'", "'danger-full-access'", sandboxRead},
				{"max_sandbox", "3", "'none'", sandboxRead},
			} {
				isFlag := where == "flag" || other == "flag"
				if where == other || isFlag && c.value != "true" {
					continue // one file, or no such flag
				}
				w, fl := newConfigWorld(t), flagValues{}
				high.set(w, fl, c.key, c.lift)
				low.set(w, fl, c.key, c.value)
				cfg, err := w.try(fl)
				if err != nil && where != "named" && other != "named" || err == nil && cfg.maxSandbox != c.want {
					t.Errorf("%s = %s in %s, %s in %s: %v, %+v", c.key, c.value, low.name, c.lift, high.name, err, cfg)
				}
			}
		}
	}
}

// The ceiling lowers the plain sandbox and a role's, and an unknown mode; the lowest one is told.
func TestConfigCeiling(t *testing.T) {
	w := newConfigWorld(t)
	const danger = "sandbox = 'danger-full-access'\n"
	w.project(pluginHead + danger + "max_sandbox = 'workspace-write'\nroles.r." + danger)
	c := w.quiet(nil, "sandbox workspace-write from P:3")
	if r, err := c.role("r"); err != nil || r.sandbox != "workspace-write" {
		t.Errorf("role's sandbox %q, %v", r.sandbox, err)
	}
	c = w.quiet(flagValues{"readonly": "true", "sandbox": "workspace-write"}, "sandbox read-only from --readonly")
	if r, err := c.role("r"); err != nil || r.sandbox != "read-only" {
		t.Errorf("role's sandbox %q, %v", r.sandbox, err)
	}
	for word, want := range map[string]string{"1": "true", "yes": "true", "on": "true", "0": "false", "off": "false"} {
		w.env["ATM_AGENT_MCP_READONLY"] = word
		w.quiet(nil, "readonly "+want)
	}
	for _, mode := range []string{"read-only", "workspace-write", "danger-full-access", "new-mode"} {
		if got := c.top.cap(mode); got != "read-only" {
			t.Errorf("cap(%q) = %q", mode, got)
		}
		if got := (ceiling{}).cap(mode); got != mode || c.top.cap("") != "" {
			t.Errorf("without a ceiling %q became %q", mode, got)
		}
	}
}

// Each line alone in a repository's file, beside the user's own file: untrusted it may not widen anything (FR-12).
func TestTrustOfEachKey(t *testing.T) {
	t.Parallel()
	const own = pluginHead + "sandbox = 'workspace-write'\nreadonly = false\nsubagents = true\nauto_mail = true\n" +
		"roles.yolo.sandbox = 'danger-full-access'\n" +
		"roles.scout = { sandbox = 'read-only', approval_policy = 'untrusted', subagents = false }\n"
	lines := map[string]bool{} // true: it counts only once the file is trusted
	for _, line := range []string{
		"identity = 'ann'", "default_identity = 'ann'", "model = 'm'", "reasoning_effort = 'low'", "role = 'scout'",
		"role = 'theirs'\nroles.theirs.model = 'm'", "sandbox = 'read-only'", "sandbox = 'workspace-write'",
		"approval_policy = 'untrusted'", "approval_policy = 'on-failure'", "max_sandbox = 'read-only'",
		"readonly = true",
		"readonly = false", "subagents = false", "subagents = true", "auto_mail = false", "allow_rules = false",
		"per_thread_auto_mail.ann = false", "roles.scout.model = 'm'", "roles.new.sandbox = 'workspace-write'",
		"roles.yolo.sandbox = 'workspace-write'", "roles.new.auto_mail = false",
	} {
		lines[line] = false
	}
	for _, line := range []string{
		"role = 'yolo'", "sandbox = 'danger-full-access'", "approval_policy = 'never'", "allow_rules = true",
		"per_thread_auto_mail.ann = true", "codex_bin = 'bin/codex'", "log_file = '~/.bashrc'",
		"base_prompt_file = '~/.ssh/id_rsa'", "extra_instructions_file = 'x'", "backend = 'mcp-server'",
		"persist_threads = false", "log_level = 'trace'", "client_identity = 'team-lead'", "restart_child = true",
		"turn_limit_secs = 5", "acp_mail = 'turn'", "worktree_dir = '/etc'", "roles.scout.sandbox = 'workspace-write'",
		"roles.scout.sandbox = ''", "roles.scout.approval_policy = 'on-request'", "roles.scout.subagents = true",
		"roles.new.sandbox = 'danger-full-access'", "roles.new.approval_policy = 'never'",
		"prompts_while_busy = 'steer'",
	} {
		lines[line] = true
	}
	for line, ignored := range lines {
		for _, table := range []string{"plugins.atm-agent-mcp.", "plugins.codex-mcp."} {
			w := newConfigWorld(t)
			w.global(own)
			p := w.stranger(table + strings.ReplaceAll(line, "\n", "\n"+table) + "\n")
			got := w.load(nil)
			if (len(got.ignored) > 0) != ignored || (len(got.warnings) > 0) != ignored ||
				(len(got.notes) > 0) != ignored {
				t.Errorf("%s%s: ignored %v, warnings %q, notes %q", table, line, got.ignored, got.warnings, got.notes)
			}
			if ignored && (got.ignored[0].From != p+":1" || !strings.Contains(got.warnings[0], p+":1: ") ||
				!strings.Contains(got.warnings[0], trustCommand)) {
				t.Errorf("%s is told as %+v, %q", line, got.ignored[0], got.warnings)
			}
			w.trust(p)
			if got := w.quiet(nil); len(got.ignored) > 0 || !got.repo.trusted {
				t.Errorf("%s is ignored although it is trusted: %v", line, got.ignored)
			}
		}
	}
}

// What is wider than the user's Codex configuration is known only with that: an untrusted file is held against it too.
func TestTrustAndCodexConfig(t *testing.T) {
	for _, c := range []struct{ ours, theirs, codex, arg, sandbox, approval string }{
		{"", "sandbox = 'workspace-write'", `{"sandbox_mode":"read-only"}`, "", "read-only", "on-request"},
		{"", "sandbox = 'read-only'", `{"sandbox_mode":"workspace-write"}`, "", "read-only", "on-request"},
		{"", "approval_policy = 'on-request'", `{"approval_policy":"untrusted"}`, "", "workspace-write", "untrusted"},
		{"", "sandbox = 'workspace-write'", `{}`, "", "workspace-write", "on-request"},
		{"sandbox = 'workspace-write'", "sandbox = 'workspace-write'", `{"sandbox_mode":"read-only"}`, "",
			"workspace-write", "on-request"},
		{"", "role = 'r'\nroles.r.sandbox = 'workspace-write'", `{"sandbox_mode":"read-only"}`, "", "read-only",
			"on-request"},
		{"role = 'r'\nroles.r.sandbox = 'read-only'", "role = ''", `{}`, "", "read-only", "on-request"},
		{"", "sandbox = 'read-only'", `{}`, "workspace-write", "workspace-write", "on-request"},
	} {
		w := newConfigWorld(t)
		w.global(pluginHead + c.ours + "\n")
		w.stranger(pluginHead + c.theirs + "\n")
		cfg := w.load(nil)
		r, err := cfg.role("")
		wantNil(t, err)
		in := policyInput{cfg: cfg, role: r, user: userSays(c.codex), cwd: w.repo, repoRoot: w.repo}
		in.options.Sandbox = c.arg
		if pol := resolved(t, in); pol.Settings.Sandbox != c.sandbox || pol.Settings.Approval != c.approval ||
			strings.Contains(strings.Join(pol.Notes, " "), "sandbox  ") { // without a word
			t.Errorf("%+v: got %s, %s; %q", c, pol.Settings.Sandbox, pol.Settings.Approval, pol.Notes)
		}
		in.cwd, in.repoRoot = w.home, "" // where nothing but read-only is the default
		if pol := resolved(t, in); c.arg == "" && c.ours == "" && c.codex == "{}" &&
			pol.Settings.Sandbox != "read-only" {
			t.Errorf("%+v: in the home directory got %s", c, pol.Settings.Sandbox)
		}
	}
}

// Trust is of one content in one place, and what keeps it must be the user's alone.
func TestTrustIsLost(t *testing.T) {
	w := newConfigWorld(t)
	const text = pluginHead + "codex_bin = 'bin/codex'\n"
	p := w.project(text)
	w.quiet(nil, "codex_bin "+filepath.Join(w.repo, "bin", "codex"))
	want := func(why string, trusted bool, warning string) {
		t.Helper()
		c := w.load(nil)
		if c.codexBin != "codex" != trusted || !strings.Contains(strings.Join(c.warnings, "\n"), warning) {
			t.Errorf("%s: codex_bin %q, %q", why, c.codexBin, c.warnings)
		}
	}
	w.stranger(text + "# one more\n")
	want("a change", false, trustCommand)
	w.stranger(text)
	want("the same content again", true, "")
	store := directories{atmHome: w.home}.trust()
	if runtime.GOOS != "windows" {
		// A link to a trusted file elsewhere would have its relative paths mean that other place's programs.
		other := newConfigWorld(t)
		other.env = w.env
		wantNil(t, os.Symlink(p, filepath.Join(other.repo, ".atm.toml")))
		if c := other.load(nil); c.codexBin != "codex" {
			t.Errorf("a link to a trusted file has its trust: %q", c.codexBin)
		}
		if st, err := os.Stat(store.path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		for _, path := range []string{store.path, p} {
			for _, mode := range []os.FileMode{0o620, 0o602, 0o644} {
				wantNil(t, os.Chmod(path, mode))
				want(fmt.Sprintf("%s with mode %o", path, mode), mode == 0o644, "")
			}
		}
		if os.Getuid() == 0 { // another user's file, link, and repository around us
			for _, path := range []string{p, filepath.Join(w.repo, ".git"), w.repo, store.path} {
				wantNil(t, os.Lchown(path, 1, 1))
				want("of another user", false, path+" belongs to another user (1)")
				wantNil(t, os.Lchown(path, 0, 0))
			}
		}
	}
	w.write(store.path, "{")
	want("nothing that makes sense", false, store.path+" can't be understood")
	w.trust(p)
	want("trusted anew", true, "")
	if aside, _ := filepath.Glob(store.path + ".corrupt-*"); len(aside) != 1 {
		t.Errorf("set aside: %q", aside)
	}
	for _, changes := range []bool{true, false} {
		if changed, err := store.set(trustKey(p), "", quietLog()); err != nil || changed != changes {
			t.Errorf("taken back: %v, %v", changed, err)
		}
		want("taken back", false, "")
	}
}

// emptyUser is config/read's answer over an empty config.toml.
const emptyUser = `{"config":{"model":"theirs","approval_policy":null,"sandbox_mode":null,"profiles":{},
"sandbox_workspace_write":null,"model_reasoning_effort":"xhigh"},"origins":{}}`

func repoInput() policyInput {
	return policyInput{cfg: &config{directories: directories{home: "/home/u"}}, user: json.RawMessage(emptyUser),
		cwd: "/home/u/repo/sub", repoRoot: "/home/u/repo"}
}

func userSays(config string) json.RawMessage { return json.RawMessage(`{"config":` + config + `}`) }

var quotedPath = regexp.MustCompile(`"/[^"]*"`)

// quotedPaths has the absolute paths in a JSON text, which tests write as Unix has them, as this system has them.
func quotedPaths(text string) string {
	return quotedPath.ReplaceAllStringFunc(text, func(path string) string {
		return string(toJSON(systemPath(strings.Trim(path, `"`))))
	})
}

// plainPaths is the way back.
func plainPaths(text string) string { return strings.ReplaceAll(filepath.ToSlash(text), "C:", "") }

// resolved fails the test where resolvePolicy refuses.
func resolved(t *testing.T, in policyInput) policy {
	t.Helper()
	p, err := resolvePolicy(in)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return p
}

// wantNotes wants one note that holds all of the parts, and without parts none at all.
func wantNotes(t *testing.T, p policy, parts ...string) {
	t.Helper()
	holds := func(note string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(plainPaths(note), part) })
	}
	if len(parts) == 0 && len(p.Notes) > 0 || len(parts) > 0 && !slices.ContainsFunc(p.Notes, holds) {
		t.Errorf("notes %q, want %q in one", p.Notes, parts)
	}
}

// saysSettings writes what a turn may do: the words that are not empty, the switches that are on, the writable roots.
func saysSettings(s turnSettings) string {
	words := []string{s.Model, s.Effort, s.Sandbox, s.Approval}
	if s.Network {
		words = append(words, "network")
	}
	if s.ExcludeTmpdir {
		words = append(words, "-TMPDIR")
	}
	if s.ExcludeSlashTmp {
		words = append(words, "-/tmp")
	}
	return strings.Join(strings.Fields(strings.Join(append(words, s.WritableRoots...), " ")), " ")
}

// wantSettings wants those settings, and one note that holds all the words of note, or none at all for "".
func wantSettings(t *testing.T, in policyInput, want, note string) {
	t.Helper()
	p := resolved(t, in)
	if got := plainPaths(saysSettings(p.Settings)); got != want || p.Settings.Cwd != in.cwd || p.Config != nil {
		t.Errorf("%s %s: got %s, want %s; left in config: %s", in.user, in.options.Config, got, want, p.Config)
	}
	wantNotes(t, p, strings.Fields(note)...)
}

// Each level beats all below it: they are taken away from the top, one by one. Of effort a person's choice is first.
func TestPolicyPrecedence(t *testing.T) {
	in := repoInput()
	in.options = sessionOptions{Model: "m-arg", Effort: "e-arg", Sandbox: "danger-full-access", Approval: "never"}
	in.options.Config = json.RawMessage(`{"model":"m-config","model_reasoning_effort":"e-config",
		"sandbox_mode":"workspace-write","approval_policy":"on-failure"}`)
	in.profile = map[string]any{"model": "m-profile", "model_reasoning_effort": "e-profile",
		"sandbox_mode": "danger-full-access", "approval_policy": "untrusted"}
	in.role = role{name: "r", model: "m-role", effort: "e-role", sandbox: "read-only", approvalPolicy: "never"}
	in.cfg.model, in.cfg.effort, in.cfg.sandbox, in.cfg.approvalPolicy = "m-us", "e-us", "danger-full-access",
		"untrusted"
	in.user = userSays(`{"model":"m-user","model_reasoning_effort":"e-user",
		"sandbox_mode":"read-only","approval_policy":"never"}`)
	for _, level := range []struct {
		want string
		off  func()
	}{
		{"m-arg e-arg danger-full-access never", func() { in.options = sessionOptions{Config: in.options.Config} }},
		{"m-config e-config workspace-write on-request", func() { in.options.Config = nil }},
		{"m-profile e-profile danger-full-access untrusted", func() { in.profile = nil }},
		{"m-role e-role read-only never", func() { in.role = role{} }},
		{"m-us e-us danger-full-access untrusted", func() { in.cfg = repoInput().cfg }},
		{"read-only never", func() { in.user = json.RawMessage(emptyUser) }}, // FR-12.4: the rest isn't resent
		{"workspace-write on-request", func() {}},
	} {
		wantSettings(t, in, level.want, "")
		level.off()
	}
}

func TestPolicyDefaultByDirectory(t *testing.T) {
	const untrusted = `{"projects":{"/r":{"trust_level":"untrusted"}}}`
	const preset = `{"default_permissions":":read-only"`
	for _, c := range []struct{ cwd, root, user, want, note string }{
		{"/home/u/repo", "/home/u/repo", `{}`, "workspace-write", ""},
		{"/home/u", "", `{}`, "read-only", "/home/u is the home directory"},
		{"/home/u/", "/home/u", `{}`, "read-only", "is the home directory"},
		{"/home/u/x", "/home/u", `{}`, "workspace-write", ""}, // the home is a repository
		{"/", "/", `{}`, "read-only", "/ is a root directory"},
		{"/tmp/x", "", `{}`, "read-only", "sandbox is read-only because /tmp/x is outside a git repository; "},
		{"/r/sub", "/r", untrusted, "read-only", "marks /r as untrusted"},
		{"/w", "/w", untrusted, "read-only", "marks /w as untrusted"}, // a worktree of /r
		{"/r", "/r", strings.ReplaceAll(untrusted, "untrusted", "trusted"), "workspace-write", ""},
		{"/tmp/x", "", `{"sandbox_mode":"workspace-write"}`, "workspace-write", ""},
		{"/r", "/r", preset + `}`, "read-only", ""},
		{"/tmp/x", "", `{"default_permissions":":workspace"}`, "workspace-write", ""},
		{"/r", "/r", preset + `,"sandbox_mode":"danger-full-access"}`, "danger-full-access", ""},
	} {
		in := repoInput()
		in.cfg.home, in.cwd, in.user = systemPath("/home/u"), systemPath(c.cwd), userSays(quotedPaths(c.user))
		if in.repoRoot = ""; c.root != "" {
			in.repoRoot = systemPath(c.root)
		}
		if c.cwd == "/w" {
			in.standsFor = []string{systemPath("/r/sub"), systemPath("/r")}
		}
		wantSettings(t, in, c.want+" on-request", c.note)
		if c.note == "" {
			continue
		}
		wantNotes(t, resolved(t, in), c.note, `pass sandbox: "workspace-write" to let the agent edit`)
		in.cfg.top = readonlyFlag() // passing sandbox would not help
		wantNotes(t, resolved(t, in))
		in.cfg.top, in.options.Sandbox = ceiling{}, "workspace-write"
		wantSettings(t, in, "workspace-write on-request", "")
	}
}

// What can't be read of the user's Codex configuration may have narrowed the sandbox. A word that doesn't count, since
// a call says otherwise, is not talked of.
func TestPolicyUserWords(t *testing.T) {
	rows := [][3]string{
		{`"approval_policy":"on-failure"`, "workspace-write on-request"},
		{`"approval_policy":{"granular":{"rules":true}}`, "workspace-write on-request", "approval_policy"},
		{`"approval_policy":"yolo"`, "workspace-write on-request", "yolo"},
		{`"sandbox_mode":"container"`, "read-only on-request", "container"},
		{`"sandbox_mode":"Danger-Full-Access"`, "read-only on-request", "Danger"},
		{`"sandbox_mode":["danger-full-access"]`, "read-only on-request", "sandbox_mode"},
		{`"default_permissions":"mine"`, "read-only on-request", "mine"},
		{`"sandbox_mode":"read-only","profile":"p",
			"profiles":{"p":{"sandbox_mode":"danger-full-access","approval_policy":"never"}}`,
			"danger-full-access never"},
		{`"sandbox_mode":"read-only","approval_policy":"never","profile":"p","profiles":{"p":{}}`, "read-only never"},
		{`"sandbox_mode":"read-only","profile":"gone"`, "read-only on-request"},
	}
	for i := range rows {
		rows[i][0] = `{"config":{` + rows[i][0] + `}}`
	}
	for _, raw := range []string{"", "null", "5", "{}", `{"config":null}`, `{"config":7}`, `{"config":`} {
		rows = append(rows, [3]string{raw, "read-only on-request", "could not be read"})
	}
	for _, row := range rows {
		in := repoInput()
		in.user = json.RawMessage(row[0])
		wantSettings(t, in, row[1], row[2])
		in.options.Sandbox, in.options.Approval = "workspace-write", "never"
		wantSettings(t, in, "workspace-write never", "")
	}
}

// Network, roots and excludes come key by key from the argument, the profile and the user; only the user opens the
// network of a read-only sandbox. What the client works in beside cwd is writable with the user's own roots. Under a
// ceiling nothing is wider than the workspace and the user's own roots.
func TestPolicyWorkspaceSettings(t *testing.T) {
	const (
		theirs = `"sandbox_workspace_write":{"writable_roots":["/u1","/u1/","~/cache"],"network_access":true,` +
			`"exclude_slash_tmp":true,"exclude_tmpdir_env_var":false}`
		own     = `"sandbox_workspace_write":{"writable_roots":["/own"],"exclude_slash_tmp":true}`
		network = `{"sandbox_workspace_write":{"network_access":true}}`
		wider   = `{"sandbox_workspace_write":{"writable_roots":["/own/","..","/own/x","/"],"exclude_slash_tmp":false}}`
	)
	writes, reads := maxSandbox(sandboxWrite), readonlyFlag()
	for _, c := range []struct {
		user, config, sandbox string
		top                   ceiling
		client                []string
		want, note            string
	}{
		{theirs, ``, "workspace-write", ceiling{}, nil, "network -/tmp /u1 /home/u/cache", ""},
		{theirs, `{"sandbox_workspace_write":{"network_access":false},
			"sandbox_workspace_write.writable_roots":["/a","b","/a/../a"]}`, "workspace-write", ceiling{}, nil,
			"-/tmp /a /home/u/repo/sub/b", ""},
		{theirs, "profile", "workspace-write", ceiling{}, nil, "network -TMPDIR /u1 /home/u/cache", ""},
		{strings.Replace(theirs, `"/u1"`, `"rel"`, 1), ``, "workspace-write", ceiling{}, nil,
			"network -/tmp /u1 /home/u/cache", "not absolute: rel"},
		{theirs, ``, "danger-full-access", ceiling{}, nil, "", ""},
		{theirs, ``, "read-only", ceiling{}, nil, "network", ""},
		{theirs, `{"sandbox_workspace_write.network_access":false}`, "read-only", ceiling{}, nil, "", ""},
		{``, network, "read-only", ceiling{}, nil, "", ""},
		{own, ``, "workspace-write", ceiling{}, []string{"/client", "/home/u/repo"}, "-/tmp /own /client /home/u/repo",
			""},
		{own, ``, "workspace-write", ceiling{}, []string{"/own/", "/home/u/repo/sub"}, "-/tmp /own", ""},
		{own, ``, "workspace-write", writes, []string{"/client", "/home/u/repo"}, "-/tmp /own /home/u/repo",
			"/client stay read-only (max_sandbox"},
		{own, wider, "workspace-write", writes, nil, "-/tmp /own /home/u/repo", "/own/x, / (max_sandbox"},
		{theirs + `,"profile":"p","profiles":{"p":{` + own + `}}`, ``, "workspace-write", ceiling{}, nil, "-/tmp /own",
			""},
		{own, ``, "read-only", ceiling{}, []string{"/client"}, "", ""},
		{own, ``, "read-only", reads, []string{"/client"}, "", ""},
	} {
		in := repoInput()
		in.cfg.home, in.cwd, in.repoRoot = systemPath(in.cfg.home), systemPath(in.cwd), systemPath(in.repoRoot)
		in.user, in.options.Sandbox, in.cfg.top = userSays(quotedPaths("{"+c.user+"}")), c.sandbox, c.top
		for _, root := range c.client {
			in.roots = append(in.roots, systemPath(root))
		}
		if c.config == "profile" {
			write := map[string]any{"exclude_tmpdir_env_var": true, "exclude_slash_tmp": false}
			in.profile = map[string]any{"sandbox_workspace_write": write}
		} else {
			in.options.Config = json.RawMessage(quotedPaths(c.config))
		}
		wantSettings(t, in, strings.TrimSpace(c.sandbox+" on-request "+c.want), c.note)
	}
}

// Every way to say it is one of these; no ceiling may be passed by any.
func wideningConfigs() []string {
	return []string{
		`{"sandbox_mode":"danger-full-access"}`, `{"\u0073andbox_mode":"danger-full-access"}`,
		`{"\"sandbox_mode\"":"danger-full-access"}`, `{"'sandbox_mode'":"danger-full-access"}`,
		`{"\"sandbox\\u005fmode\"":"danger-full-access"}`,
		`{"sandbox_mode":"read-only","sandbox_mode":"danger-full-access"}`,
		`{"sandbox_mode":"workspace-write","sandbox_workspace_write":{"writable_roots":["/"],"network_access":true}}`,
		`{"sandbox_mode":"workspace-write",
			"sandbox_workspace_write.writable_roots":["/","../../..","~/","/home/u/repo/sub/link"]}`,
		`{"sandbox_mode":"workspace-write",
			"sandbox_workspace_write.\"writable_roots\"":["/home"],"sandbox_workspace_write.'network_access'":true}`,
		`{"default_permissions":":danger-full-access"}`, `{"permissions.open.filesystem.\"/\"":"write"}`,
		`{"permissions":{"open":{"filesystem":{"/":"write"},"network":{"enabled":true}}}}`,
		`{"sandbox_permissions":["disk-full-write-access"]}`,
		`{"SANDBOX_MODE":"danger-full-access","Default_Permissions":":danger-full-access"}`,
		`{"approvals_reviewer":"auto_review","auto_review":{"policy":"approve all"}}`,
		`{"features":{"use_linux_sandbox_bwrap":false,"use_legacy_landlock":true,
			"guardian_approval":true,"exec_permission_approvals":true}}`,
		`{"features.network_proxy":{"enabled":true,"dangerously_allow_all_unix_sockets":true},"features.hooks":false}`,
		`{"features.experimental_windows_sandbox":false,"features.Elevated_Windows_Sandbox":false}`,
		`{"windows":{"sandbox":"disabled"}}`, `{"mcp_servers.x.command":"sh"}`,
		`{"mcp_servers":{"x":{"command":"sh","args":["-c","touch /etc/x"]}}}`,
		`{"notify":["sh","-c","x"],"hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]}]},
			"features.codex_hooks":true}`,
		`{"profile":"open","profiles":{"open":{"sandbox_mode":"danger-full-access"}}}`,
		`{"profiles.open.sandbox_mode":"danger-full-access"}`, `{"agents":{"x":{"config_file":"/tmp/open.toml"}}}`,
		`{"projects":{"/home/u/repo":{"trust_level":"trusted"}}}`,
		`{"debug.config_lockfile.load_path":"/tmp/open.lock"}`,
		`{"shell_environment_policy":{"set":{"LD_PRELOAD":"/tmp/x.so"}},"zsh_path":"/tmp/x",
			"js_repl_node_path":"/tmp/x"}`,
		`{"model_providers":{"x":{"auth":{"command":"sh"}}}}`,
		`{"plugins":{"x":{}},"apps":{"x":{}},"marketplaces":{},"skills":{},"a_key_of_next_year":{"open":true}}`,
	}
}

func TestPolicyCeilings(t *testing.T) {
	for _, cfg := range wideningConfigs() {
		for _, top := range []ceiling{maxSandbox("read-only"), maxSandbox("workspace-write"), readonlyFlag(),
			maxSandbox("nonsense")} {
			in := repoInput()
			in.options.Config = json.RawMessage(cfg)
			in.role.sandbox, in.cfg.sandbox, in.cfg.top = "danger-full-access", "danger-full-access", top
			in.user = userSays(`{"sandbox_mode":"danger-full-access",
				"sandbox_workspace_write":{"writable_roots":["/own"],"network_access":false}}`)
			p := resolved(t, in)
			checkCeiling(t, in, p)
			if p.Config != nil || len(p.Notes) == 0 {
				t.Errorf("%s under %s: passed on as %s, or nobody is told: %q", cfg, top.word, p.Config, p.Notes)
			}
		}
	}
}

func maxSandbox(word string) ceiling {
	if word == "" {
		return ceiling{}
	}
	return newCeiling("max_sandbox", word, origin{})
}

func readonlyFlag() ceiling {
	return newCeiling("readonly", sandboxRead, origin{layerFlag, "--readonly"})
}

// checkCeiling holds for every input there is.
func checkCeiling(t *testing.T, in policyInput, p policy) {
	t.Helper()
	top, s := in.cfg.top, p.Settings
	if sandboxRank(s.Sandbox) == 0 || top.cap(s.Sandbox) != s.Sandbox || top.word == "read-only" && s.Network ||
		s.Sandbox != "workspace-write" && len(s.WritableRoots) > 0 || approvalRank(s.Approval) == 0 {
		t.Errorf("%s: %+v under %s", in.options.Config, s, top.word)
	}
	for _, root := range s.WritableRoots {
		if top.binds() && root != "/own" && root != in.cwd && root != in.repoRoot {
			t.Errorf("%s: writable root %s under %s", in.options.Config, root, top.word)
		}
	}
	var config map[string]any
	if p.Config != nil {
		wantNil(t, json.Unmarshal(p.Config, &config))
	}
	for key := range config {
		switch {
		case !plainConfigKey(key):
			t.Errorf("config key %q would be read as a path", key)
		case slices.Contains([]string{"sandbox_mode", "approval_policy", "sandbox_workspace_write",
			"default_permissions"}, key):
			t.Errorf("config keeps %s, which the turn carries", key)
		case top.binds() && key != "features" && !harmlessSetting(key):
			t.Errorf("config keeps %s under %s", key, top.word)
		}
	}
}

// What a ceiling took away is told, and what cannot widen passes under it, the user's own profile included.
func TestPolicyCeilingNotes(t *testing.T) {
	in := repoInput()
	in.options.Sandbox, in.cfg.top = "danger-full-access", maxSandbox("workspace-write")
	wantNotes(t, resolved(t, in), "danger-full-access was asked for; max_sandbox in configuration allows workspace-w")
	in.cfg.top = readonlyFlag()
	wantNotes(t, resolved(t, in), "sandbox danger-full-access was asked for; --readonly allows read-only")
	in.options.Sandbox = "" // nobody asked for more
	wantNotes(t, resolved(t, in))
	in.options.Config = json.RawMessage(`{"sandbox_workspace_write.network_access":true}`)
	wantNotes(t, resolved(t, in), "network_access", "--readonly")
	many := map[string]any{}
	for i := range 200 {
		many[fmt.Sprintf("k%d", i)] = true
	}
	in.options.Config = toJSON(many)
	p := resolved(t, in)
	wantNotes(t, p, "and 188 more")
	if len(p.Notes[0]) > 600 {
		t.Errorf("%q", p.Notes)
	}
	in.options.Config = json.RawMessage(`{"model_verbosity":"low","tools":{"view_image":true},
		"features":{"unbounded_connection_retries":false,"apps":false,"unified_exec":true,"plugins":true}}`)
	in.profile = map[string]any{"mcp_servers": map[string]any{"docs": map[string]any{"command": "d"}},
		"sandbox_mode": "danger-full-access",
		"permissions":  map[string]any{"p": true}, "windows": map[string]any{"sandbox": "x"},
		"features": map[string]any{"use_legacy_landlock": true}}
	p = resolved(t, in)
	want := `{"features":{"apps":false,"unbounded_connection_retries":false,"unified_exec":true},` +
		`"mcp_servers":{"docs":{"command":"d"}},"model_verbosity":"low","tools":{"view_image":true}}`
	wantNotes(t, p, "features.plugins, features.use_legacy_landlock, permissions, windows")
	if string(p.Config) != want || p.Settings.Sandbox != "read-only" {
		t.Errorf("%+v, config %s\nwant %s", p.Settings, p.Config, want)
	}
	in.cfg.top, in.profile = ceiling{}, nil
	in.options.Config = json.RawMessage(`{"mcp_servers.x.command":"sh","permissions":{"p":{}}}`)
	p = resolved(t, in)
	wantNotes(t, p)
	if string(p.Config) != `{"mcp_servers":{"x":{"command":"sh"}},"permissions":{"p":{}}}` {
		t.Errorf("without a ceiling: %s", p.Config)
	}
}

func TestPolicyProfile(t *testing.T) {
	in := repoInput()
	in.options.Profile = "work"
	in.profile = map[string]any{"model": "m", "profile": "other", "features": map[string]any{"a": true, "b": true},
		"compact_prompt": "theirs", "ratio": 2.0, "count": int64(1) << 60}
	in.options.Config = json.RawMessage(`{"features.b":false,"big":12345678901234567890123}`)
	in.options.CompactPrompt = "explicit"
	p := resolved(t, in)
	const want = `{"big":12345678901234567890123,"compact_prompt":"explicit","count":1152921504606846976,` +
		`"features":{"a":true,"b":false},"ratio":2.0}`
	if string(p.Config) != want || p.Settings.Model != "m" || in.profile["model"] != "m" {
		t.Errorf("%s\nwant %s; the caller's %v", p.Config, want, in.profile)
	}
	// Codex before 0.148: the profile is a table of the user's config.toml and merged there.
	in = repoInput()
	in.options.Profile = "old"
	in.user = userSays(`{"sandbox_mode":"read-only",
		"profiles":{"old":{"sandbox_mode":"workspace-write","model":"m-old"}}}`)
	if p := resolved(t, in); p.Settings.Sandbox != "workspace-write" || p.Settings.Model != "m-old" || p.Config != nil {
		t.Errorf("%+v %s", p.Settings, p.Config)
	}

	home := t.TempDir()
	plant(t, home, map[string]string{"config.toml": "model = 'no profile'\n",
		"work.config.toml": "model = \"m\"\n[features]\nx = true\n",
		"bad.config.toml":  "model = \"m\"\nx = = 1\n", "big.config.toml": strings.Repeat("# \n", 1<<19),
		"dir.config.toml/": ""})
	if got, err := loadProfile(home, "work"); err != nil ||
		string(toJSON(got)) != `{"features":{"x":true},"model":"m"}` {
		t.Errorf("work: %s %v", toJSON(got), err)
	}
	for name, want := range map[string]string{
		"gone": filepath.Join(home, "gone.config.toml") + "; profiles there: bad, big, dir, work",
		"bad":  "bad.config.toml:2:5",
		"big":  "larger than is read: over 1048576 bytes", "dir": "not a regular file", "": "not a profile's name",
		"..": "not a profile's name", "../work": "not a profile's name", `a\b`: "not a profile's name",
		"a\x00b":                 "not a profile's name",
		strings.Repeat("x", 129): "not a profile's name",
	} {
		if _, err := loadProfile(home, name); err == nil || err.Code != codeInvalidSession ||
			!strings.Contains(err.Message, want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if _, err := loadProfile(filepath.Join(home, "gone"), "work"); err == nil ||
		!strings.Contains(err.Message, "can't be read") {
		t.Errorf("no CODEX_HOME: %v", err)
	}
}

func TestPolicyRefusals(t *testing.T) {
	deep := func(open, close string) string {
		return `{"x":` + strings.Repeat(open, 70) + "1" + strings.Repeat(close, 70) + "}"
	}
	for want, configs := range map[string][]string{
		"must be an object": {`[]`, `{"x":` + strings.Repeat(`[`, 20000) + strings.Repeat("]", 20000) + `}`},
		// What is set twice.
		`"a.b" contradicts another one: a is a number in one and a table`: {`{"a":1,"a.b":2}`},
		`both set features.x`: {`{"features":{"x":true},"features.x":false}`},
		"features.x is true or false in one and a table in the other": {`{"features.x.y":1}`},
		// Names that are none, or would be read in two ways.
		"empty part": {`{"a..b":1}`, `{"":1}`, `{"a.":1}`}, "no end": {`{"a.\"b":1}`, `{"a.'b":1}`},
		"followed by a dot": {`{"a.\"b\"c":1}`}, "quoted as a whole": {`{" sandbox_mode":"danger-full-access"}`},
		"letters, digits": {`{"\"sandbox_workspace_write.network_access\"":true}`,
			`{"'\"sandbox_mode\"'":"danger-full-access"}`, `{"ｓandbox_mode":"danger-full-access"}`},
		// Words that a turn can't carry.
		"is none of read-only": {`{"sandbox_mode":"Danger-Full-Access"}`, `{"sandbox_mode":5}`},
		"of the config argument is none of untrusted": {`{"approval_policy":{"granular":{}}}`,
			`{"approval_policy":"always"}`},
		`"mine"`: {`{"default_permissions":"mine"}`}, "must be a string": {`{"model":7}`},
		"must be a table": {`{"sandbox_workspace_write":true}`}, "no word": {`{"x":[null]}`},
		"must be true or false": {`{"sandbox_workspace_write.network_access":"yes"}`},
		"must be a list":        {`{"sandbox_workspace_write.writable_roots":"/"}`},
		"deeper than 64":        {deep(`{"y":`, "}"), deep("[", "]")},
		"more than 64":          {`{"x` + strings.Repeat(`.y`, 70) + `":1}`},
	} {
		for _, config := range configs {
			in := repoInput()
			in.options.Config, in.profile = json.RawMessage(config),
				map[string]any{"features": map[string]any{"x": true}}
			if _, err := resolvePolicy(in); err == nil || err.Code != codeInvalidSession ||
				!strings.Contains(err.Message, want) {
				t.Errorf("%.80s: %v, want %q", config, err, want)
			}
		}
	}
	in := repoInput()
	in.options.Profile, in.profile = "p", map[string]any{"sandbox_workspace_write.network_access": true}
	if _, err := resolvePolicy(in); err == nil || !strings.Contains(err.Message, `profile "p"`) {
		t.Errorf("a dotted name in a profile: %v", err)
	}
}

func TestCheckCwd(t *testing.T) {
	home := t.TempDir()
	base, link := filepath.Join(home, "base"), filepath.Join(home, "link")
	plant(t, base, map[string]string{"sub/": "", "file": ""})
	for arg, want := range map[string]string{
		"": base, ".": base, "sub/..//sub/": filepath.Join(base, "sub"), "..": home, "~": home, "~/base": base,
		base: base,
	} {
		if got, err := checkCwd(arg, base, home); err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", arg, got, err, want)
		}
	}
	for arg, want := range map[string]string{
		"gone": filepath.Join(base, "gone") + " does not exist", "file": "is not a directory",
		"file/x":    filepath.Join("file", "x"),
		"a\x00b":    "can't be used",
		"~nobody/x": "only a leading ~/ is expanded",
	} {
		if _, err := checkCwd(arg, base, home); err == nil || err.Code != codeInvalidSession ||
			!strings.Contains(err.Message, want) {
			t.Errorf("%q: %v, want %q", arg, err, want)
		}
	}
	if _, err := checkCwd("~/x", base, ""); err == nil ||
		!strings.Contains(err.Message, "home directory is not known") {
		t.Errorf("no home: %v", err)
	}
	t.Run("a link stays one", func(t *testing.T) {
		symlink(t, base, link)
		if got, err := checkCwd(link+"/", base, home); err != nil || got != link {
			t.Errorf("%q %v", got, err)
		}
	})
}

// Whatever a caller sends, the ceilings hold, and what goes to Codex expands to itself: it is nested and has nothing
// left to be read as a path.
func FuzzResolvePolicy(f *testing.F) {
	for _, cfg := range append(wideningConfigs(), `{"a.\"b.c\".d":1.50,"a":{"x":[{"y":null}]}}`) {
		f.Add(cfg, "danger-full-access", "workspace-write", "never")
	}
	f.Fuzz(func(t *testing.T, config, sandbox, max, approval string) {
		if config != "" && !validJSON([]byte(config)) {
			return
		}
		in := repoInput()
		in.options = sessionOptions{Config: json.RawMessage(config), Sandbox: sandbox, Approval: approval}
		in.cfg.top = maxSandbox(max)
		if len(config)%3 == 0 {
			in.cfg.top = readonlyFlag()
		}
		p, err := resolvePolicy(in)
		if err != nil {
			if len(err.Message) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Message))
			}
			return
		}
		checkCeiling(t, in, p)
		again, bad := expandConfig(p.Config)
		if bad != nil || p.Config != nil && string(toJSON(again)) != string(p.Config) {
			t.Errorf("%s expands to %s, %v", p.Config, toJSON(again), bad)
		}
	})
}

func TestExpandConfig(t *testing.T) {
	for config, want := range map[string]string{
		``: `{}`, `null`: `{}`, `{}`: `{}`, `{"n":1.10,"m":1e400}`: `{"m":1e400,"n":1.10}`,
		`{"features.x":true,"features":{"y":1}}`: `{"features":{"x":true,"y":1}}`,
		`{"a.\"b.c\".d":1}`:                      `{"a":{"b.c":{"d":1}}}`,
		`{"a.'b\".c'":1,"a.\"\\u0062\"":2}`:      `{"a":{"b":2,"b\".c":1}}`,
		`{"projects./home/u.trust_level":1}`:     `{"projects":{"/home/u":{"trust_level":1}}}`,
		`{"a":{"b.c":1}}`:                        `{"a":{"b.c":1}}`, // names below the top are names
		`{"a":{"b":null},"c":null,"d.e":null}`:   `{"a":{},"d":{}}`,
		`{"mcp_servers":{}}`:                     `{"mcp_servers":{}}`, // clears the user's, in Codex
		`{"a":{"b":1},"a.b":1}`:                  `{"a":{"b":1}}`,
	} {
		if got, err := expandConfig(json.RawMessage(config)); err != nil || string(toJSON(got)) != want {
			t.Errorf("%s: %s %v, want %s", config, toJSON(got), err, want)
		}
	}
	deep := strings.Repeat(`{"x":`, 100) + "{}" + strings.Repeat("}", 100)
	for _, c := range []struct{ base, over, want, err string }{
		{`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`, ""},
		{`{"a":{"x":1,"y":[1,2]}}`, `{"a":{"y":[3]}}`, `{"a":{"x":1,"y":[3]}}`, ""},
		{`{"mcp_servers":{"theirs":{"command":"t"}}}`, `{"mcp_servers":{"ours":{"command":"o"}}}`,
			`{"mcp_servers":{"ours":{"command":"o"},"theirs":{"command":"t"}}}`, ""},
		{`{"mcp_servers":{"s":{"command":"t","args":["x"]}}}`, `{"mcp_servers":{"s":{"url":"u"}}}`,
			`{"mcp_servers":{"s":{"url":"u"}}}`, ""},
		{`{"mcp_servers":{"s":{"command":"t"}}}`, `{"mcp_servers":{"s":{"enabled":false}}}`,
			`{"mcp_servers":{"s":{"command":"t","enabled":false}}}`, ""},
		{`{"a":{"b":1}}`, `{"a":{"b":{"c":1}}}`, ``, "a.b is a number in one and a table in the other"},
		{`{"a":{}}`, `{"a":"x"}`, ``, "a is a table in one and a string in the other"},
		{`null`, `null`, `{}`, ""},
		{deep, deep, ``, "nests deeper than 64 levels"},
	} {
		base, _ := decodeConfig(json.RawMessage(c.base))
		over, _ := decodeConfig(json.RawMessage(c.over))
		got, err := mergeConfig(base, over)
		if c.err == "" && (err != nil || string(toJSON(got)) != c.want) ||
			c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s + %s: %s %v", c.base, c.over, toJSON(got), err)
		}
		if again, _ := decodeConfig(json.RawMessage(c.base)); !reflect.DeepEqual(base, again) {
			t.Errorf("merging changed %s", c.base)
		}
	}
}
