package main

// config_policy_test.go holds what a session may do: who wins over whom, the defaults by
// directory, ceilings that no argument or config key passes (fuzzed too), profiles,
// and directories.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// emptyUser is config/read's answer over an empty config.toml.
const emptyUser = `{"config":{"model":"theirs","approval_policy":null,"sandbox_mode":null,"sandbox_workspace_write":null,"profiles":{},"model_reasoning_effort":"xhigh"},"origins":{}}`

func repoInput() policyInput {
	return policyInput{cfg: &config{directories: directories{home: "/home/u"}}, user: json.RawMessage(emptyUser), cwd: "/home/u/repo/sub", repoRoot: "/home/u/repo"}
}

func userSays(config string) json.RawMessage { return json.RawMessage(`{"config":` + config + `}`) }

// unixPaths skips where /home/u is no absolute path.
func unixPaths(t *testing.T) {
	t.Helper()
	if !filepath.IsAbs("/home/u") {
		t.Skip("the table speaks of Unix paths")
	}
}

// resolved fails the test where resolvePolicy refuses.
func resolved(t *testing.T, in policyInput) policy {
	t.Helper()
	p, err := resolvePolicy(in)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return p
}

// hasNote looks for one note that holds all of the parts.
func hasNote(p policy, parts ...string) bool {
	return slices.ContainsFunc(p.Notes, func(n string) bool {
		for _, part := range parts {
			if !strings.Contains(n, part) {
				return false
			}
		}
		return true
	})
}

// Each level beats all below it: they are taken away from the top, one by one.
func TestPolicyPrecedence(t *testing.T) {
	in := repoInput()
	in.options = sessionOptions{Model: "m-arg", Sandbox: "danger-full-access", Approval: "never",
		Config: json.RawMessage(`{"model":"m-config","model_reasoning_effort":"e-config","sandbox_mode":"workspace-write","approval_policy":"on-failure"}`)}
	in.profile = map[string]any{"model": "m-profile", "model_reasoning_effort": "e-profile", "sandbox_mode": "danger-full-access", "approval_policy": "untrusted"}
	in.role = role{name: "r", model: "m-role", effort: "e-role", sandbox: "read-only", approvalPolicy: "never"}
	in.cfg.model, in.cfg.effort, in.cfg.sandbox, in.cfg.approvalPolicy = "m-ours", "e-ours", "danger-full-access", "untrusted"
	in.user = userSays(`{"model":"m-user","model_reasoning_effort":"e-user","sandbox_mode":"read-only","approval_policy":"never"}`)

	for _, level := range []struct {
		name string
		want turnSettings
		off  func()
	}{
		{"argument", turnSettings{Model: "m-arg", Effort: "e-config", Sandbox: "danger-full-access", Approval: "never"},
			func() { in.options.Model, in.options.Sandbox, in.options.Approval = "", "", "" }},
		{"config argument", turnSettings{Model: "m-config", Effort: "e-config", Sandbox: "workspace-write", Approval: "on-request"},
			func() { in.options.Config = nil }},
		{"profile", turnSettings{Model: "m-profile", Effort: "e-profile", Sandbox: "danger-full-access", Approval: "untrusted"},
			func() { in.profile = nil }},
		{"role", turnSettings{Model: "m-role", Effort: "e-role", Sandbox: "read-only", Approval: "never"},
			func() { in.role = role{} }},
		{"ours", turnSettings{Model: "m-ours", Effort: "e-ours", Sandbox: "danger-full-access", Approval: "untrusted"},
			func() { in.cfg.model, in.cfg.effort, in.cfg.sandbox, in.cfg.approvalPolicy = "", "", "", "" }},
		{"user", turnSettings{Sandbox: "read-only", Approval: "never"}, // FR-12.4: their model and effort aren't resent
			func() { in.user = json.RawMessage(emptyUser) }},
		{"default", turnSettings{Sandbox: "workspace-write", Approval: "on-request"}, func() {}},
	} {
		p := resolved(t, in)
		level.want.Cwd = in.cwd
		if !reflect.DeepEqual(p.Settings, level.want) {
			t.Errorf("%s: %+v, want %+v", level.name, p.Settings, level.want)
		}
		if p.Config != nil {
			t.Errorf("%s: settings of the turn are left in config: %s", level.name, p.Config)
		}
		if len(p.Notes) > 0 {
			t.Errorf("%s: notes %q", level.name, p.Notes)
		}
		level.off()
	}
}

func TestPolicyDefaultByDirectory(t *testing.T) {
	unixPaths(t)
	for _, c := range []struct {
		name, cwd, root, user string
		want, note            string
	}{
		{"repository", "/home/u/repo", "/home/u/repo", `{}`, "workspace-write", ""},
		{"home", "/home/u", "", `{}`, "read-only", "/home/u is the home directory"},
		{"home with a slash", "/home/u/", "/home/u", `{}`, "read-only", "is the home directory"},
		{"below a home that is a repository", "/home/u/x", "/home/u", `{}`, "workspace-write", ""},
		{"root", "/", "/", `{}`, "read-only", "/ is a root directory"},
		{"outside", "/tmp/x", "", `{}`, "read-only", "/tmp/x is outside a git repository"},
		{"untrusted by the user", "/r/sub", "/r", `{"projects":{"/r":{"trust_level":"untrusted"}}}`, "read-only", "marks /r as untrusted"},
		{"trusted by the user", "/r", "/r", `{"projects":{"/r":{"trust_level":"trusted"}}}`, "workspace-write", ""},
		{"the user set it", "/tmp/x", "", `{"sandbox_mode":"workspace-write"}`, "workspace-write", ""},
		{"the user set a built-in profile", "/r", "/r", `{"default_permissions":":read-only"}`, "read-only", ""},
		{"sandbox_mode beside it counts", "/r", "/r", `{"default_permissions":":read-only","sandbox_mode":"danger-full-access"}`, "danger-full-access", ""},
	} {
		in := repoInput()
		in.cwd, in.repoRoot, in.user = c.cwd, c.root, userSays(c.user)
		p := resolved(t, in)
		if p.Settings.Sandbox != c.want || p.Settings.Network {
			t.Errorf("%s: %+v", c.name, p.Settings)
		}
		if c.note == "" && len(p.Notes) > 0 || c.note != "" && !hasNote(p, c.note, `pass sandbox: "workspace-write" to let the agent edit`) {
			t.Errorf("%s: notes %q", c.name, p.Notes)
		}
	}
	in := repoInput()
	in.cwd, in.repoRoot = "/tmp/x", ""
	if want := `sandbox is read-only because /tmp/x is outside a git repository; pass sandbox: "workspace-write" to let the agent edit`; !slices.Equal(resolved(t, in).Notes, []string{want}) {
		t.Errorf("the note reads %q", resolved(t, in).Notes)
	}
	in.cfg.top = readonlyFlag() // passing sandbox would not help
	if p := resolved(t, in); len(p.Notes) > 0 {
		t.Errorf("under --readonly: %q", p.Notes)
	}
	in.cfg.top, in.options.Sandbox = ceiling{}, "workspace-write"
	if p := resolved(t, in); p.Settings.Sandbox != "workspace-write" || len(p.Notes) > 0 {
		t.Errorf("asked for: %+v %q", p.Settings, p.Notes)
	}
}

// What can't be read may have narrowed the sandbox.
func TestPolicyUnreadableUserConfig(t *testing.T) {
	for _, raw := range []string{"", "null", "5", "{}", `{"config":null}`, `{"config":7}`, `{"config":`} {
		in := repoInput()
		in.user = json.RawMessage(raw)
		p := resolved(t, in)
		if p.Settings.Sandbox != "read-only" || p.Settings.Approval != "on-request" || !hasNote(p, "could not be read", "workspace-write") {
			t.Errorf("%s: %+v %q", raw, p.Settings, p.Notes)
		}
	}
}

func TestPolicyUserWords(t *testing.T) {
	for _, c := range []struct{ user, sandbox, approval, note string }{
		{`{"approval_policy":"on-failure"}`, "workspace-write", "on-request", ""},
		{`{"approval_policy":{"granular":{"rules":true}}}`, "workspace-write", "on-request", "approval_policy"},
		{`{"approval_policy":"yolo"}`, "workspace-write", "on-request", "yolo"},
		{`{"sandbox_mode":"container"}`, "read-only", "on-request", "container"},
		{`{"sandbox_mode":"Danger-Full-Access"}`, "read-only", "on-request", "Danger"},
		{`{"sandbox_mode":["danger-full-access"]}`, "read-only", "on-request", "sandbox_mode"},
		{`{"default_permissions":"mine"}`, "read-only", "on-request", "mine"},
		{`{"sandbox_mode":"read-only","profile":"p","profiles":{"p":{"sandbox_mode":"danger-full-access","approval_policy":"never"}}}`, "danger-full-access", "never", ""},
		{`{"sandbox_mode":"read-only","profile":"gone"}`, "read-only", "on-request", ""},
	} {
		in := repoInput()
		in.user = userSays(c.user)
		p := resolved(t, in)
		if p.Settings.Sandbox != c.sandbox || p.Settings.Approval != c.approval {
			t.Errorf("%s: %+v", c.user, p.Settings)
		}
		if c.note == "" && len(p.Notes) > 0 || c.note != "" && !hasNote(p, c.note) {
			t.Errorf("%s: notes %q", c.user, p.Notes)
		}
		in.options.Sandbox, in.options.Approval = "workspace-write", "never"
		if p := resolved(t, in); len(p.Notes) > 0 {
			t.Errorf("%s: a word that doesn't count is talked of: %q", c.user, p.Notes)
		}
	}
}

func TestPolicyWorkspaceSettings(t *testing.T) {
	unixPaths(t)
	user := `{"sandbox_workspace_write":{"writable_roots":["/u1","/u1/","rel","~/cache"],"network_access":true,"exclude_slash_tmp":true,"exclude_tmpdir_env_var":false}}`
	for _, c := range []struct {
		name, config string
		profile      map[string]any
		sandbox      string
		want         turnSettings
	}{
		{"user", ``, nil, "", turnSettings{Sandbox: "workspace-write", WritableRoots: []string{"/u1", "/home/u/cache"}, Network: true, ExcludeSlashTmp: true}},
		{"argument, key by key", `{"sandbox_workspace_write":{"network_access":false},"sandbox_workspace_write.writable_roots":["/a","b","/a/../a"]}`, nil, "",
			turnSettings{Sandbox: "workspace-write", WritableRoots: []string{"/a", "/home/u/repo/sub/b"}, ExcludeSlashTmp: true}},
		{"profile", ``, map[string]any{"sandbox_workspace_write": map[string]any{"exclude_tmpdir_env_var": true, "exclude_slash_tmp": false}}, "",
			turnSettings{Sandbox: "workspace-write", WritableRoots: []string{"/u1", "/home/u/cache"}, Network: true, ExcludeTmpdir: true}},
		{"danger needs none", ``, nil, "danger-full-access", turnSettings{Sandbox: "danger-full-access"}},
		{"read-only keeps the user's network", ``, nil, "read-only", turnSettings{Sandbox: "read-only", Network: true}},
		{"read-only, network taken away", `{"sandbox_workspace_write.network_access":false}`, nil, "read-only", turnSettings{Sandbox: "read-only"}},
	} {
		in := repoInput()
		in.user, in.profile = userSays(user), c.profile
		in.options.Config, in.options.Sandbox = json.RawMessage(c.config), c.sandbox
		p := resolved(t, in)
		c.want.Cwd, c.want.Approval = in.cwd, "on-request"
		if !reflect.DeepEqual(p.Settings, c.want) || p.Config != nil {
			t.Errorf("%s: %+v %s\nwant %+v", c.name, p.Settings, p.Config, c.want)
		}
	}
	// Only the user grants network to a read-only sandbox.
	in := repoInput()
	in.options = sessionOptions{Sandbox: "read-only", Config: json.RawMessage(`{"sandbox_workspace_write":{"network_access":true}}`)}
	if p := resolved(t, in); p.Settings.Network {
		t.Error("an argument opened the network of a read-only sandbox")
	}
}

// Every way to say it is one of these; no ceiling may be passed by any.
func wideningConfigs() []string {
	return []string{
		`{"sandbox_mode":"danger-full-access"}`,
		`{"\u0073andbox_mode":"danger-full-access"}`,
		`{"\"sandbox_mode\"":"danger-full-access"}`,
		`{"'sandbox_mode'":"danger-full-access"}`,
		`{"\"sandbox\\u005fmode\"":"danger-full-access"}`,
		`{"sandbox_mode":"read-only","sandbox_mode":"danger-full-access"}`,
		`{"sandbox_mode":"workspace-write","sandbox_workspace_write":{"writable_roots":["/"],"network_access":true}}`,
		`{"sandbox_mode":"workspace-write","sandbox_workspace_write.writable_roots":["/","../../..","~/","/home/u/repo/sub/link"]}`,
		`{"sandbox_mode":"workspace-write","sandbox_workspace_write.\"writable_roots\"":["/home"],"sandbox_workspace_write.'network_access'":true}`,
		`{"default_permissions":":danger-full-access"}`,
		`{"permissions":{"open":{"filesystem":{"/":"write"},"network":{"enabled":true}}}}`,
		`{"permissions.open.filesystem.\"/\"":"write"}`,
		`{"sandbox_permissions":["disk-full-write-access"]}`,
		`{"SANDBOX_MODE":"danger-full-access","Default_Permissions":":danger-full-access"}`,
		`{"approvals_reviewer":"auto_review","auto_review":{"policy":"approve all"}}`,
		`{"features":{"use_linux_sandbox_bwrap":false,"use_legacy_landlock":true,"guardian_approval":true,"exec_permission_approvals":true}}`,
		`{"features.network_proxy":{"enabled":true,"dangerously_allow_all_unix_sockets":true},"features.hooks":false}`,
		`{"features.experimental_windows_sandbox":false,"features.Elevated_Windows_Sandbox":false}`,
		`{"windows":{"sandbox":"disabled"}}`,
		`{"mcp_servers":{"x":{"command":"sh","args":["-c","touch /etc/x"]}}}`,
		`{"mcp_servers.x.command":"sh"}`,
		`{"notify":["sh","-c","x"],"hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]}]},"features.codex_hooks":true}`,
		`{"profile":"open","profiles":{"open":{"sandbox_mode":"danger-full-access"}}}`,
		`{"profiles.open.sandbox_mode":"danger-full-access"}`,
		`{"agents":{"x":{"config_file":"/tmp/open.toml"}}}`,
		`{"projects":{"/home/u/repo":{"trust_level":"trusted"}}}`,
		`{"debug.config_lockfile.load_path":"/tmp/open.lock"}`,
		`{"shell_environment_policy":{"set":{"LD_PRELOAD":"/tmp/x.so"}},"zsh_path":"/tmp/x","js_repl_node_path":"/tmp/x"}`,
		`{"model_providers":{"x":{"auth":{"command":"sh"}}}}`,
		`{"plugins":{"x":{}},"apps":{"x":{}},"marketplaces":{},"skills":{},"a_key_of_next_year":{"open":true}}`,
	}
}

func TestPolicyCeilings(t *testing.T) {
	for _, cfg := range wideningConfigs() {
		for _, max := range []string{"read-only", "workspace-write", "--readonly", "nonsense"} {
			in := repoInput()
			in.options.Config = json.RawMessage(cfg)
			in.role.sandbox, in.cfg.sandbox = "danger-full-access", "danger-full-access"
			in.user = userSays(`{"sandbox_mode":"danger-full-access","sandbox_workspace_write":{"writable_roots":["/own"],"network_access":false}}`)
			if in.cfg.top = maxSandbox(max); max == "--readonly" {
				in.cfg.top = readonlyFlag()
			}
			p := resolved(t, in)
			checkCeiling(t, in, p)
			if p.Config != nil {
				t.Errorf("%s under %s: passed on as %s", cfg, max, p.Config)
			}
			if len(p.Notes) == 0 {
				t.Errorf("%s under %s: nobody is told", cfg, max)
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
	top := in.cfg.top
	s := p.Settings
	if sandboxRank(s.Sandbox) == 0 || top.cap(s.Sandbox) != s.Sandbox {
		t.Errorf("%s: sandbox %q under %s", in.options.Config, s.Sandbox, top.word)
	}
	if s.Sandbox != "workspace-write" && len(s.WritableRoots) > 0 || top.word == "read-only" && s.Network {
		t.Errorf("%s: %+v under %s", in.options.Config, s, top.word)
	}
	if s.Approval != "untrusted" && s.Approval != "on-request" && s.Approval != "never" {
		t.Errorf("approval %q", s.Approval)
	}
	if top.binds() {
		for _, root := range s.WritableRoots {
			if root != "/own" && root != in.cwd && root != in.repoRoot {
				t.Errorf("%s: writable root %s under %s", in.options.Config, root, top.word)
			}
		}
	}
	var config map[string]any
	if p.Config != nil {
		if err := json.Unmarshal(p.Config, &config); err != nil {
			t.Fatalf("config is not JSON: %s", p.Config)
		}
	}
	for key := range config {
		switch {
		case !plainConfigKey(key):
			t.Errorf("config key %q would be read as a path", key)
		case key == "sandbox_mode" || key == "approval_policy" || key == "sandbox_workspace_write" || key == "default_permissions":
			t.Errorf("config keeps %s, which the turn carries", key)
		case top.binds() && key != "features" && !harmlessSetting(key):
			t.Errorf("config keeps %s under %s", key, top.word)
		}
	}
}

func TestPolicyCeilingNotes(t *testing.T) {
	in := repoInput()
	in.options.Sandbox, in.cfg.top = "danger-full-access", maxSandbox("workspace-write")
	if p := resolved(t, in); !slices.Equal(p.Notes, []string{"sandbox danger-full-access was asked for; max_sandbox in configuration allows workspace-write"}) {
		t.Errorf("%q", p.Notes)
	}
	in.cfg.top = readonlyFlag()
	if p := resolved(t, in); !slices.Equal(p.Notes, []string{"sandbox danger-full-access was asked for; --readonly allows read-only"}) {
		t.Errorf("%q", p.Notes)
	}
	in.options.Sandbox = ""
	if p := resolved(t, in); p.Settings.Sandbox != "read-only" || len(p.Notes) > 0 { // nobody asked for more
		t.Errorf("%+v %q", p.Settings, p.Notes)
	}
	in.options.Config = json.RawMessage(`{"sandbox_workspace_write.network_access":true}`)
	if p := resolved(t, in); !hasNote(p, "network_access", "--readonly") {
		t.Errorf("%q", p.Notes)
	}
	many := map[string]any{}
	for i := range 200 {
		many[fmt.Sprintf("k%d", i)] = true
	}
	in.options.Config = toJSON(many)
	if p := resolved(t, in); !hasNote(p, "and 188 more") || len(p.Notes[0]) > 600 {
		t.Errorf("%q", p.Notes)
	}
}

// What cannot widen passes under a ceiling, the user's own profile included.
func TestPolicyCeilingKeepsTheHarmless(t *testing.T) {
	in := repoInput()
	in.cfg.top = readonlyFlag()
	in.options.Config = json.RawMessage(`{"model_verbosity":"low","tools":{"view_image":true},"features":{"unbounded_connection_retries":false,"apps":false,"unified_exec":true,"plugins":true}}`)
	in.profile = map[string]any{"mcp_servers": map[string]any{"docs": map[string]any{"command": "d"}}, "sandbox_mode": "danger-full-access",
		"permissions": map[string]any{"p": true}, "windows": map[string]any{"sandbox": "x"}, "features": map[string]any{"use_legacy_landlock": true}}
	p := resolved(t, in)
	want := `{"features":{"apps":false,"unbounded_connection_retries":false,"unified_exec":true},"mcp_servers":{"docs":{"command":"d"}},"model_verbosity":"low","tools":{"view_image":true}}`
	if string(p.Config) != want {
		t.Errorf("config %s\nwant   %s", p.Config, want)
	}
	if p.Settings.Sandbox != "read-only" || !hasNote(p, "features.plugins, features.use_legacy_landlock, permissions, windows") {
		t.Errorf("%+v %q", p.Settings, p.Notes)
	}
	in.cfg.top, in.profile = ceiling{}, nil
	in.options.Config = json.RawMessage(`{"mcp_servers.x.command":"sh","permissions":{"p":{}}}`)
	if p := resolved(t, in); string(p.Config) != `{"mcp_servers":{"x":{"command":"sh"}},"permissions":{"p":{}}}` || len(p.Notes) > 0 {
		t.Errorf("without a ceiling: %s %q", p.Config, p.Notes)
	}
}

// Under workspace-write an argument may name roots that are writable anyway.
func TestPolicyCeilingRoots(t *testing.T) {
	unixPaths(t)
	in := repoInput()
	in.cfg.top = maxSandbox("workspace-write")
	in.user = userSays(`{"sandbox_workspace_write":{"writable_roots":["/own"],"exclude_slash_tmp":true}}`)
	in.options.Config = json.RawMessage(`{"sandbox_workspace_write":{"writable_roots":["/own/","..","/own/x","/"],"exclude_slash_tmp":false}}`)
	p := resolved(t, in)
	if !slices.Equal(p.Settings.WritableRoots, []string{"/own", "/home/u/repo"}) || !p.Settings.ExcludeSlashTmp || !hasNote(p, "/own/x, /", "max_sandbox") {
		t.Errorf("%+v %q", p.Settings, p.Notes)
	}
}

func TestPolicyProfile(t *testing.T) {
	in := repoInput()
	in.options.Profile = "work"
	in.profile = map[string]any{"model": "m", "profile": "other", "features": map[string]any{"a": true, "b": true}, "compact_prompt": "theirs", "ratio": 2.0, "count": int64(1) << 60}
	in.options.Config = json.RawMessage(`{"features.b":false,"big":12345678901234567890123}`)
	in.options.CompactPrompt = "explicit"
	p := resolved(t, in)
	if want := `{"big":12345678901234567890123,"compact_prompt":"explicit","count":1152921504606846976,"features":{"a":true,"b":false},"ratio":2.0}`; string(p.Config) != want || p.Settings.Model != "m" {
		t.Errorf("%s\nwant %s", p.Config, want)
	}
	if _, there := in.profile["model"]; !there {
		t.Error("the caller's profile was changed")
	}

	// Codex before 0.148: the profile is a table of the user's config.toml and merged there.
	in = repoInput()
	in.options.Profile = "old"
	in.user = userSays(`{"sandbox_mode":"read-only","profiles":{"old":{"sandbox_mode":"workspace-write","model":"m-old"}}}`)
	if p := resolved(t, in); p.Settings.Sandbox != "workspace-write" || p.Settings.Model != "m-old" || p.Config != nil {
		t.Errorf("%+v %s", p.Settings, p.Config)
	}
}

func TestPolicyRefusals(t *testing.T) {
	for config, want := range map[string]string{
		`[]`:              "must be an object",
		`{"a":1,"a.b":2}`: `"a.b" contradicts another one: a is a number in one and a table in the other`,
		`{"features":{"x":true},"features.x":false}`: `"features.x" contradicts another one: both set features.x`,
		`{"a..b":1}`:                             "empty part",
		`{"":1}`:                                 "empty part",
		`{"a.":1}`:                               "empty part",
		`{"a.\"b":1}`:                            "no end",
		`{"a.'b":1}`:                             "no end",
		`{"a.\"b\"c":1}`:                         "followed by a dot",
		`{" sandbox_mode":"danger-full-access"}`: "quoted as a whole",
		`{"\"sandbox_workspace_write.network_access\"":true}`: "letters, digits",
		`{"'\"sandbox_mode\"'":"danger-full-access"}`:         "letters, digits",
		`{"ｓandbox_mode":"danger-full-access"}`:               "letters, digits",
		`{"sandbox_mode":"Danger-Full-Access"}`:               "is none of read-only",
		`{"sandbox_mode":5}`:                                  "sandbox_mode 5 of the config argument is none of",
		`{"approval_policy":{"granular":{}}}`:                 `approval_policy {"granular":{}} of the config argument is none of`,
		`{"approval_policy":"always"}`:                        "none of untrusted",
		`{"default_permissions":"mine"}`:                      `"mine"`,
		`{"sandbox_workspace_write":true}`:                    "must be a table",
		`{"sandbox_workspace_write.network_access":"yes"}`:    "must be true or false",
		`{"sandbox_workspace_write.writable_roots":"/"}`:      "must be a list",
		`{"x":[null]}`: "no word",
		`{"x":` + strings.Repeat(`{"y":`, 70) + `1` + strings.Repeat("}", 71):   "deeper than 64",
		`{"x":` + strings.Repeat(`[`, 70) + strings.Repeat("]", 70) + `}`:       "deeper than 64",
		`{"x` + strings.Repeat(`.y`, 70) + `":1}`:                               "more than 64",
		`{"x":` + strings.Repeat(`[`, 20000) + strings.Repeat("]", 20000) + `}`: "must be an object",
	} {
		in := repoInput()
		in.options.Config = json.RawMessage(config)
		_, err := resolvePolicy(in)
		if err == nil || err.Code != codeInvalidSession || !strings.Contains(err.Message, want) {
			t.Errorf("%.80s: %v, want %q", config, err, want)
		}
	}
	in := repoInput()
	in.options.Profile = "p"
	in.profile = map[string]any{"sandbox_workspace_write.network_access": true}
	if _, err := resolvePolicy(in); err == nil || !strings.Contains(err.Message, `profile "p"`) {
		t.Errorf("a dotted name in a profile: %v", err)
	}
	in.profile, in.options.Config = map[string]any{"features": map[string]any{"x": true}}, json.RawMessage(`{"features.x.y":1}`)
	if _, err := resolvePolicy(in); err == nil || !strings.Contains(err.Message, "features.x is true or false in one and a table in the other") {
		t.Errorf("a conflict with the profile: %v", err)
	}
}

func TestLoadProfile(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.toml", "model = 'no profile'\n")
	write("work.config.toml", "model = \"m\"\n[features]\nx = true\n")
	write("bad.config.toml", "model = \"m\"\nx = = 1\n")
	write("big.config.toml", strings.Repeat("# \n", 1<<19))
	if err := os.Mkdir(filepath.Join(home, "dir.config.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := loadProfile(home, "work")
	if err != nil || string(toJSON(got)) != `{"features":{"x":true},"model":"m"}` {
		t.Errorf("work: %s %v", toJSON(got), err)
	}
	for name, want := range map[string]string{
		"gone":                   filepath.Join(home, "gone.config.toml") + "; profiles there: bad, big, dir, work",
		"bad":                    "bad.config.toml:2:5",
		"big":                    "larger than is read: over 1048576 bytes",
		"dir":                    "not a regular file",
		"":                       "not a profile's name",
		"..":                     "not a profile's name",
		"../work":                "not a profile's name",
		`a\b`:                    "not a profile's name",
		"a\x00b":                 "not a profile's name",
		strings.Repeat("x", 129): "not a profile's name",
	} {
		if _, err := loadProfile(home, name); err == nil || err.Code != codeInvalidSession || !strings.Contains(err.Message, want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if _, err := loadProfile(filepath.Join(home, "gone"), "work"); err == nil || !strings.Contains(err.Message, "can't be read") {
		t.Errorf("no CODEX_HOME: %v", err)
	}
}

func TestCheckCwd(t *testing.T) {
	home := t.TempDir()
	base := filepath.Join(home, "base")
	if err := os.MkdirAll(filepath.Join(base, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(home, "link")
	if err := os.Symlink(base, link); err != nil {
		t.Skip("no symlinks here")
	}
	for arg, want := range map[string]string{
		"": base, ".": base, "sub": filepath.Join(base, "sub"), "sub/..//sub/": filepath.Join(base, "sub"), "..": home,
		"~": home, "~/base": base, base: base, link + "/": link, // a link stays what it is
	} {
		if got, err := checkCwd(arg, base, home); err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", arg, got, err, want)
		}
	}
	for arg, want := range map[string]string{
		"gone": filepath.Join(base, "gone") + " does not exist", file: "is not a directory", "file/x": "file/x", "a\x00b": "can't be used",
		"~nobody/x": "only a leading ~/ is expanded",
	} {
		if _, err := checkCwd(arg, base, home); err == nil || err.Code != codeInvalidSession || !strings.Contains(err.Message, want) {
			t.Errorf("%q: %v, want %q", arg, err, want)
		}
	}
	if _, err := checkCwd("~/x", base, ""); err == nil || !strings.Contains(err.Message, "home directory is not known") {
		t.Errorf("no home: %v", err)
	}
}

// Whatever a caller sends, the ceilings hold, and what goes to Codex expands
// to itself: it is nested and has nothing left to be read as a path.
func FuzzResolvePolicy(f *testing.F) {
	for _, cfg := range wideningConfigs() {
		f.Add(cfg, "danger-full-access", "workspace-write", "never")
	}
	f.Add(`{"a.\"b.c\".d":1.50,"a":{"x":[{"y":null}]}}`, "", "", "")
	f.Fuzz(func(t *testing.T, config, sandbox, max, approval string) {
		if config != "" && !validJSON([]byte(config)) {
			return
		}
		in := repoInput()
		in.options = sessionOptions{Config: json.RawMessage(config), Sandbox: sandbox, Approval: approval}
		if in.cfg.top = maxSandbox(max); len(config)%3 == 0 {
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

// What the client works in beside cwd is writable with the user's own roots, and
// under a ceiling no wider than the workspace and those.
func TestPolicyClientRoots(t *testing.T) {
	unixPaths(t)
	for _, c := range []struct {
		rule string
		set  func(*policyInput)
		want []string
		note string
	}{
		{"added to the user's own", func(*policyInput) {}, []string{"/own", "/client", "/home/u/repo"}, ""},
		{"none of them once more", func(in *policyInput) { in.roots = []string{"/own/", "/home/u/repo/sub"} }, []string{"/own"}, ""},
		{"not under a ceiling", func(in *policyInput) { in.cfg.top = maxSandbox(sandboxWrite) }, []string{"/own", "/home/u/repo"}, "/client stay read-only (max_sandbox"},
		{"read-only writes nowhere", func(in *policyInput) { in.options.Sandbox = sandboxRead }, nil, ""},
		{"--readonly", func(in *policyInput) { in.cfg.top = readonlyFlag() }, nil, ""},
	} {
		in := repoInput()
		in.user = userSays(`{"sandbox_workspace_write":{"writable_roots":["/own"]}}`)
		in.roots = []string{"/client", "/home/u/repo"}
		c.set(&in)
		p := resolved(t, in)
		if !slices.Equal(p.Settings.WritableRoots, c.want) {
			t.Errorf("%s: %q, want %q", c.rule, p.Settings.WritableRoots, c.want)
		}
		if c.note == "" && len(p.Notes) > 0 && in.cfg.top.word != sandboxRead || c.note != "" && !hasNote(p, c.note) {
			t.Errorf("%s: notes %q", c.rule, p.Notes)
		}
	}
}

// A person's choice of an effort goes before everything else that names one.
func TestPolicyChosenEffort(t *testing.T) {
	in := repoInput()
	in.options = sessionOptions{Effort: "low", Config: json.RawMessage(`{"model_reasoning_effort":"high"}`)}
	if p := resolved(t, in); p.Settings.Effort != "low" || p.Config != nil {
		t.Errorf("effort %q, config %s", p.Settings.Effort, p.Config)
	}
}

func TestExpandConfig(t *testing.T) {
	for config, want := range map[string]string{
		``:                                       `null`,
		`null`:                                   `null`,
		`{}`:                                     `{}`,
		`{"features.x":true,"features":{"y":1}}`: `{"features":{"x":true,"y":1}}`,
		`{"a.\"b.c\".d":1}`:                      `{"a":{"b.c":{"d":1}}}`,
		`{"a.'b\".c'":1,"a.\"\\u0062\"":2}`:      `{"a":{"b":2,"b\".c":1}}`,
		`{"projects./home/u.trust_level":1}`:     `{"projects":{"/home/u":{"trust_level":1}}}`,
		`{"a":{"b.c":1}}`:                        `{"a":{"b.c":1}}`, // names below the top are names
		`{"a":{"b":null},"c":null,"d.e":null}`:   `{"a":{},"d":{}}`,
		`{"mcp_servers":{}}`:                     `{"mcp_servers":{}}`, // clears the user's, in Codex
		`{"a":{"b":1},"a.b":1}`:                  `{"a":{"b":1}}`,
		`{"n":1.10,"m":1e400}`:                   `{"m":1e400,"n":1.10}`,
	} {
		got, err := expandConfig(json.RawMessage(config))
		if err != nil || string(toJSON(got)) != want {
			t.Errorf("%s: %s %v, want %s", config, toJSON(got), err, want)
		}
	}
}

func TestMergeConfig(t *testing.T) {
	for _, c := range []struct{ base, over, want, err string }{
		{`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`, ""},
		{`{"a":{"x":1,"y":[1,2]}}`, `{"a":{"y":[3]}}`, `{"a":{"x":1,"y":[3]}}`, ""},
		{`{"mcp_servers":{"theirs":{"command":"t"}}}`, `{"mcp_servers":{"ours":{"command":"o"}}}`, `{"mcp_servers":{"ours":{"command":"o"},"theirs":{"command":"t"}}}`, ""},
		{`{"mcp_servers":{"s":{"command":"t","args":["x"]}}}`, `{"mcp_servers":{"s":{"url":"u"}}}`, `{"mcp_servers":{"s":{"url":"u"}}}`, ""},
		{`{"mcp_servers":{"s":{"command":"t"}}}`, `{"mcp_servers":{"s":{"enabled":false}}}`, `{"mcp_servers":{"s":{"command":"t","enabled":false}}}`, ""},
		{`{"a":{"b":1}}`, `{"a":{"b":{"c":1}}}`, ``, "a.b is a number in one and a table in the other"},
		{`{"a":{}}`, `{"a":"x"}`, ``, "a is a table in one and a string in the other"},
	} {
		base, _ := decodeConfig(json.RawMessage(c.base))
		over, _ := decodeConfig(json.RawMessage(c.over))
		before := string(toJSON(base)) + string(toJSON(over))
		got, err := mergeConfig(base, over)
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%s + %s: %v", c.base, c.over, err)
			}
		case err != nil || string(toJSON(got)) != c.want:
			t.Errorf("%s + %s: %s %v", c.base, c.over, toJSON(got), err)
		}
		if string(toJSON(base))+string(toJSON(over)) != before {
			t.Errorf("merging changed %s", before)
		}
	}
	if got, err := mergeConfig(nil, nil); err != nil || got == nil {
		t.Errorf("nothing and nothing: %v %v", got, err)
	}
	deep := func() map[string]any {
		t := map[string]any{}
		for range 100 {
			t = map[string]any{"x": t}
		}
		return t
	}
	if _, err := mergeConfig(deep(), deep()); err == nil {
		t.Error("no bound on depth")
	}
}
