package main

// config_settings_test.go holds the table of settings: every value's origin, aliases and
// spellings, and what a key that has no effect is told.

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

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
				if fmt.Sprint(got.value) != text || got.from.String() != from {
					t.Errorf("got %v from %s, want %s from %s", got.value, got.from, text, from)
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
	if got := shownOf(t, c, "per_thread_auto_mail.codex:ab").value; got != false {
		t.Errorf("shown as %v", got)
	}
}

// Every flag of the table has a field in flagValues, and nothing can be set that isn't shown.
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
