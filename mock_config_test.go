package main

// mock_config_test.go owns how the tests' codex arrives at settings: config.toml as
// far as its own keys go, `-c`, a thread's config over that, which words each
// version accepts, what a resume restores, and the trust that 0.169 writes. It must
// never write config.toml except where the real 0.169 does.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mockConfig is config.toml with -c applied.
type mockConfig struct {
	dir       string
	keys      map[string]any
	broken    error    // it couldn't be read: threads can't start
	overrides []string // -c key=value, in order
}

// load reads config.toml anew, as Codex does for every thread it starts.
func (h *mockConfig) load() {
	h.broken = nil
	text, err := os.ReadFile(filepath.Join(h.dir, "config.toml"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.broken = err
	}
	h.keys, err = mockTOML(string(text))
	if err != nil {
		h.broken = fmt.Errorf("%s:%w", filepath.Join(h.dir, "config.toml"), err)
		h.keys = map[string]any{}
	}
	for _, o := range h.overrides {
		key, value, ok := strings.Cut(o, "=")
		if !ok {
			continue
		}
		v, err := mockTOMLValue(strings.TrimSpace(value))
		if err != nil {
			v = value // as in the real one: what is no TOML is a string
		}
		mockSet(h.keys, strings.Split(strings.TrimSpace(key), "."), v)
	}
}

// mockTOML reads the subset of TOML that a test's config.toml is made of:
// tables, strings, booleans, integers, one-line arrays.
func mockTOML(text string) (map[string]any, error) {
	root := map[string]any{}
	var table []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			table = mockKeys(line[1 : len(line)-1])
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok {
				return nil, fmt.Errorf("%d: expected `key = value`", i+1)
			}
			v, err := mockTOMLValue(strings.TrimSpace(value))
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			mockSet(root, append(slices.Clone(table), mockKeys(strings.TrimSpace(key))...), v)
		}
	}
	return root, nil
}

// mockKeys cuts a dotted key; a part in quotes may hold dots.
func mockKeys(s string) []string {
	var keys []string
	for s != "" {
		if s[0] == '"' {
			end := strings.IndexByte(s[1:], '"')
			if end < 0 {
				return append(keys, s)
			}
			keys = append(keys, s[1:end+1])
			s = strings.TrimPrefix(s[end+2:], ".")
			continue
		}
		part, rest, _ := strings.Cut(s, ".")
		keys, s = append(keys, strings.TrimSpace(part)), rest
	}
	return keys
}

func mockTOMLValue(s string) (any, error) {
	if n := strings.Index(s, " #"); n >= 0 && !strings.HasSuffix(s, `"`) {
		s = strings.TrimSpace(s[:n])
	}
	switch {
	case s == "true" || s == "false":
		return s == "true", nil
	case len(s) > 1 && s[0] == '\'' && s[len(s)-1] == '\'':
		return s[1 : len(s)-1], nil
	case strings.HasPrefix(s, `"`), strings.HasPrefix(s, "["):
		// one-line arrays of strings and numbers, and basic strings, are JSON
		var v any
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			return nil, fmt.Errorf("invalid value %s", s)
		}
		return v, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("invalid value %s", s)
	}
	return n, nil
}

func mockSet(m map[string]any, keys []string, v any) {
	for _, k := range keys[:len(keys)-1] {
		next, ok := m[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[k] = next
		}
		m = next
	}
	m[keys[len(keys)-1]] = v
}

// with returns the configuration with a thread's `config` laid over it. Both
// nested and dotted keys count; of a root that comes in both forms the table
// wins and the dotted one is lost, as measured.
func (h *mockConfig) with(raw json.RawMessage) map[string]any {
	var extra map[string]any
	_ = json.Unmarshal(raw, &extra) // absent or null: nothing to lay over
	merged := mockMerge(h.keys, nil)
	for k, v := range extra {
		root, rest, dotted := strings.Cut(k, ".")
		if _, table := extra[root]; dotted && !table {
			mockSet(merged, append([]string{root}, strings.Split(rest, ".")...), v)
		}
	}
	nested := maps.Clone(extra)
	maps.DeleteFunc(nested, func(k string, _ any) bool { return strings.Contains(k, ".") })
	return mockMerge(merged, nested)
}

func mockMerge(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range a {
		if sub, ok := v.(map[string]any); ok {
			v = mockMerge(sub, nil)
		}
		out[k] = v
	}
	for k, v := range b {
		sub, ok := v.(map[string]any)
		if old, both := out[k].(map[string]any); ok && both {
			v = mockMerge(old, sub)
		}
		out[k] = v
	}
	return out
}

// mockRepoRoot is the directory with .git at or above dir, "" without one.
func mockRepoRoot(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// trust does what 0.169 does behind the user's back: it writes the repository
// as trusted into config.toml.
func (h *mockConfig) trust(root string) error {
	f, err := os.OpenFile(filepath.Join(h.dir, "config.toml"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\n[projects.%q]\ntrust_level = \"trusted\"\n", root)
	mockSet(h.keys, []string{"projects", root, "trust_level"}, "trusted")
	return errors.Join(err, f.Close())
}

// checkWords refuses enum words that the version doesn't have.
func (x *testMock) checkWords(msg *message) bool {
	approval := rawField(msg.params, "approvalPolicy")
	words := []string{"untrusted", "on-request", "granular", "never"}
	if x.old() {
		words = []string{"untrusted", "on-failure", "on-request", "never"}
	}
	if w, ok := rawString(approval); ok && !slices.Contains(words, w) || w == "granular" {
		x.m.refuse(msg, mockVariant(w, words...))
		return false
	}
	experimental := x.experimental
	if rawKind(approval) == '{' && !experimental {
		x.m.refuse(msg, "askForApproval.granular requires experimentalApi capability")
		return false
	}
	kebab := []string{"read-only", "workspace-write", "danger-full-access"}
	if w, ok := rawString(rawField(msg.params, "sandbox")); ok && !slices.Contains(kebab, w) {
		x.m.refuse(msg, mockVariant(w, kebab...))
		return false
	}
	policy := rawField(msg.params, "sandboxPolicy")
	switch types := []string{"dangerFullAccess", "readOnly", "externalSandbox", "workspaceWrite"}; {
	case isNull(policy):
	case rawKind(policy) != '{':
		x.m.refuse(msg, "Invalid request: invalid type: string "+string(policy)+", expected internally tagged enum SandboxPolicyDeserialize")
		return false
	case !slices.Contains(types, stringField(policy, "type")):
		x.m.refuse(msg, mockVariant(stringField(policy, "type"), types...))
		return false
	}
	efforts := []string{"none", "minimal", "low", "medium", "high", "xhigh"}
	if w, ok := rawString(rawField(msg.params, "effort")); ok && x.old() && !slices.Contains(efforts, w) {
		x.m.refuse(msg, mockVariant(w, efforts...))
		return false
	}
	if tools := rawField(msg.params, "dynamicTools"); !isNull(tools) && !experimental {
		x.m.refuse(msg, "thread/start.dynamicTools requires experimentalApi capability")
		return false
	}
	return true
}

// sandbox is the policy of a word, in the version's shape.
func (x *testMock) sandbox(kind string, cfg map[string]any) json.RawMessage {
	table, _ := cfg["sandbox_workspace_write"].(map[string]any)
	p := map[string]any{}
	_ = json.Unmarshal(mockSandbox(kind, nil, table), &p) // our own
	if access := map[string]any{"type": "fullAccess"}; x.old() && kind == "readOnly" {
		delete(p, "networkAccess")
		p["access"] = access
	} else if x.old() && kind == "workspaceWrite" {
		p["readOnlyAccess"] = access
	}
	return toJSON(p)
}

// settle works out the settings of a thread from the request, what is kept of
// it, and the configuration. A text says why it can't be.
func (x *testMock) settle(params json.RawMessage, kept *mockSettings) (mockSettings, map[string]any, string) {
	x.config.load()
	failed := "failed to load configuration: "
	if x.old() {
		failed = "error deriving config: "
	}
	if x.config.broken != nil {
		return mockSettings{}, nil, "failed to load configuration: " + x.config.broken.Error()
	}
	raw := rawField(params, "config")
	cfg := x.config.with(raw)
	if v, there := cfg["mcp_servers"]; there {
		if _, ok := v.(map[string]any); !ok {
			return mockSettings{}, nil, fmt.Sprintf("failed to load configuration: invalid type: integer `%v`, expected a map\nin `mcp_servers`\n", v)
		}
	}
	if profile := mockString(cfg, "profile"); profile != "" {
		profiles, _ := cfg["profiles"].(map[string]any)
		p, found := profiles[profile].(map[string]any)
		switch {
		case !x.old():
			return mockSettings{}, nil, fmt.Sprintf("failed to load configuration: legacy `profile = %q` config is no longer supported; use `--profile %[1]s` with `%[1]s.config.toml` instead", profile)
		case !found:
			return mockSettings{}, nil, fmt.Sprintf("error deriving config: config profile `%s` not found", profile)
		}
		cfg = mockMerge(cfg, p)
	}
	if provider := cmp.Or(stringField(params, "modelProvider"), mockString(cfg, "model_provider"), "openai"); provider != "openai" {
		if providers, _ := cfg["model_providers"].(map[string]any); providers[provider] == nil {
			return mockSettings{}, nil, failed + fmt.Sprintf("Model provider `%s` not found", provider)
		}
	}
	s := mockSettings{Approval: toJSON(cmp.Or(mockString(cfg, "approval_policy"), "on-request"))}
	word := mockString(cfg, "sandbox_mode")
	if kept != nil {
		s.Cwd, s.Model, s.Effort = kept.Cwd, kept.Model, kept.Effort
		if !x.old() { // 0.104 restores neither policy: it falls back to the configuration
			s.Approval, s.Sandbox, word = kept.Approval, kept.Sandbox, ""
		}
	}
	if cwd := stringField(params, "cwd"); cwd != "" {
		s.Cwd = cwd
	}
	if abs, err := filepath.Abs(s.Cwd); err == nil { // not validated, only made absolute, as in every version
		s.Cwd = abs
	}
	s.Model = cmp.Or(stringField(params, "model"), s.Model, mockString(cfg, "model"), x.models()[0])
	s.Effort = cmp.Or(stringField(params, "effort"), s.Effort, mockString(cfg, "model_reasoning_effort"))
	if a := rawField(params, "approvalPolicy"); !isNull(a) {
		s.Approval = a
	}
	if w := stringField(params, "sandbox"); w != "" {
		word = w
	}
	if word == "" && s.Sandbox == nil {
		word = "read-only"
		if mockString(cfg, "projects", cmp.Or(mockRepoRoot(s.Cwd), s.Cwd), "trust_level") == "trusted" {
			word = "workspace-write"
		}
	}
	if word != "" {
		kind := mockSandboxKind(word)
		if kind == "" {
			return mockSettings{}, nil, strings.Replace(mockVariant(word, "read-only", "workspace-write", "danger-full-access"), "Invalid request: ", failed, 1)
		}
		s.Sandbox = x.sandbox(kind, cfg)
	}
	if x.m.mcp != nil && mockString(cfg, "projects", s.Cwd, "trust_level") == "untrusted" && rawField(params, "approvalPolicy") == nil {
		s.Approval = toJSON("untrusted")
	}
	return s, cfg, ""
}

// badTools checks dynamicTools by the version's rules.
func (x *testMock) badTools(raw json.RawMessage) string {
	var tools []json.RawMessage
	if isNull(raw) || json.Unmarshal(raw, &tools) != nil {
		return ""
	}
	seen := map[string]bool{}
	for _, t := range tools {
		name := stringField(t, "name")
		switch {
		case stringField(t, "type") == "namespace" && !x.old():
			continue
		case rawField(t, "inputSchema") == nil:
			return "Invalid request: missing field `inputSchema`"
		case strings.HasPrefix(name, "mcp__"):
			return "dynamic tool name is reserved: " + name
		case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || name == "":
			return "dynamic tool name must match ^[a-zA-Z0-9_-]+$ to match Responses API: " + name
		case seen[name]:
			return "duplicate dynamic tool name: " + name
		}
		seen[name] = true
	}
	return ""
}

// configRead answers with the effective configuration. Of the real one's
// some 120 keys it has those that a client of ours looks at, null where
// unset, and whatever else stands in config.toml.
func (x *testMock) configRead(m *mockServer, msg *message) {
	x.config.load()
	if x.config.broken != nil {
		m.refuse(msg, "failed to load configuration: "+x.config.broken.Error())
		return
	}
	config := map[string]any{}
	for _, k := range []string{"model", "review_model", "model_context_window", "model_provider", "approval_policy", "sandbox_mode", "sandbox_workspace_write",
		"web_search", "tools", "profile", "instructions", "developer_instructions", "compact_prompt", "model_reasoning_effort", "model_reasoning_summary", "model_verbosity"} {
		config[k] = nil
	}
	config["profiles"] = map[string]any{}
	if x.new() {
		config["projects"], config["mcp_servers"] = nil, map[string]any{}
	}
	config = mockMerge(config, x.config.keys)
	if w, ok := config["sandbox_workspace_write"].(map[string]any); ok {
		config["sandbox_workspace_write"] = mockMerge(map[string]any{"writable_roots": []any{}, "network_access": false, "exclude_tmpdir_env_var": false, "exclude_slash_tmp": false}, w)
	}
	origins := map[string]any{}
	source := map[string]any{"type": "user", "file": filepath.Join(x.config.dir, "config.toml")}
	if x.new() {
		source["profile"] = nil
	}
	for k := range x.config.keys {
		origins[k] = map[string]any{"name": source, "version": "sha256:mock"}
	}
	result := map[string]any{"config": config, "origins": origins}
	if string(rawField(msg.params, "includeLayers")) == "true" {
		result["layers"] = []any{map[string]any{"name": source, "version": "sha256:mock", "config": x.config.keys}}
	}
	m.reply(msg, result)
}
