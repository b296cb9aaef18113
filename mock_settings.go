package main

// mock_settings.go owns how the mock Codex arrives at a thread's settings:
// which words each version accepts, what the configuration adds, what a
// resume restores, and which dynamic tools may be named how. mock_thread.go
// and mock_turn.go call it on the reading goroutine.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// mockSettings are what a turn runs under.
type mockSettings struct {
	Cwd      string          `json:"cwd"`
	Model    string          `json:"model"`
	Effort   string          `json:"effort"`   // "" is null
	Approval json.RawMessage `json:"approval"` // a word, or {"granular":…}
	Sandbox  json.RawMessage `json:"sandboxPolicy"`
}

func (s mockSettings) approval() string {
	w, _ := rawString(s.Approval)
	return w
}

func (s mockSettings) sandbox() string { return stringField(s.Sandbox, "type") }

// checkWords refuses enum words that the version doesn't have.
func (m *mockServer) checkWords(msg *message) bool {
	approval := rawField(msg.params, "approvalPolicy")
	words := []string{"untrusted", "on-request", "granular", "never"}
	if m.old() {
		words = []string{"untrusted", "on-failure", "on-request", "never"}
	}
	if w, ok := rawString(approval); ok && !slices.Contains(words, w) || w == "granular" {
		m.refuse(msg, mockVariant(w, words...))
		return false
	}
	m.mu.Lock()
	experimental := m.client.experimental
	m.mu.Unlock()
	if rawKind(approval) == '{' && !experimental {
		m.refuse(msg, "askForApproval.granular requires experimentalApi capability")
		return false
	}
	kebab := []string{"read-only", "workspace-write", "danger-full-access"}
	if w, ok := rawString(rawField(msg.params, "sandbox")); ok && !slices.Contains(kebab, w) {
		m.refuse(msg, mockVariant(w, kebab...))
		return false
	}
	policy := rawField(msg.params, "sandboxPolicy")
	switch types := []string{"dangerFullAccess", "readOnly", "externalSandbox", "workspaceWrite"}; {
	case isNull(policy):
	case rawKind(policy) != '{':
		m.refuse(msg, "Invalid request: invalid type: string "+string(policy)+", expected internally tagged enum SandboxPolicyDeserialize")
		return false
	case !slices.Contains(types, stringField(policy, "type")):
		m.refuse(msg, mockVariant(stringField(policy, "type"), types...))
		return false
	}
	efforts := []string{"none", "minimal", "low", "medium", "high", "xhigh"}
	if w, ok := rawString(rawField(msg.params, "effort")); ok && m.old() && !slices.Contains(efforts, w) {
		m.refuse(msg, mockVariant(w, efforts...))
		return false
	}
	if tools := rawField(msg.params, "dynamicTools"); !isNull(tools) && !experimental {
		m.refuse(msg, "thread/start.dynamicTools requires experimentalApi capability")
		return false
	}
	return true
}

// sandboxPolicy fills what a policy leaves out, in the version's shape.
func (m *mockServer) sandboxPolicy(kind string, given json.RawMessage, cfg map[string]any) json.RawMessage {
	p := map[string]any{}
	switch kind {
	case "dangerFullAccess":
	case "workspaceWrite":
		w, _ := cfg["sandbox_workspace_write"].(map[string]any)
		p = map[string]any{"writableRoots": cmp.Or[any](w["writable_roots"], []any{}), "networkAccess": w["network_access"] == true,
			"excludeTmpdirEnvVar": w["exclude_tmpdir_env_var"] == true, "excludeSlashTmp": w["exclude_slash_tmp"] == true}
		if m.old() {
			p["readOnlyAccess"] = map[string]any{"type": "fullAccess"}
		}
	case "readOnly":
		if m.old() {
			p["access"] = map[string]any{"type": "fullAccess"}
		} else {
			p["networkAccess"] = false
		}
	case "externalSandbox":
		p["networkAccess"] = "restricted"
	}
	_ = eachField(given, func(key string, val json.RawMessage) bool { // an absent policy has no fields
		if _, known := p[key]; known {
			p[key] = val
		}
		return true
	})
	p["type"] = kind
	return toJSON(p)
}

// settle works out the settings of a thread from the request, what is kept of
// it, and the configuration. A text says why it can't be.
func (m *mockServer) settle(params json.RawMessage, kept *mockSettings) (mockSettings, map[string]any, string) {
	m.home.load()
	failed := "failed to load configuration: "
	if m.old() {
		failed = "error deriving config: "
	}
	if m.home.broken != nil {
		return mockSettings{}, nil, "failed to load configuration: " + m.home.broken.Error()
	}
	raw := rawField(params, "config")
	cfg := m.home.with(raw)
	if v, there := cfg["mcp_servers"]; there {
		if _, ok := v.(map[string]any); !ok {
			return mockSettings{}, nil, fmt.Sprintf("failed to load configuration: invalid type: integer `%v`, expected a map\nin `mcp_servers`\n", v)
		}
	}
	if profile := mockString(cfg, "profile"); profile != "" {
		profiles, _ := cfg["profiles"].(map[string]any)
		p, found := profiles[profile].(map[string]any)
		switch {
		case !m.old():
			return mockSettings{}, nil, fmt.Sprintf("failed to load configuration: legacy `profile = %q` config is no longer supported; use `--profile %[1]s` with `%[1]s.config.toml` instead", profile)
		case !found:
			return mockSettings{}, nil, fmt.Sprintf("error deriving config: config profile `%s` not found", profile)
		}
		cfg = mockMerge(cfg, p)
	}
	if provider := cmp.Or(stringField(params, "modelProvider"), mockString(cfg, "model_provider"), "openai"); provider != "openai" && provider != "mock" { // mock: of --codex-bin mock, which has nobody log in
		if providers, _ := cfg["model_providers"].(map[string]any); providers[provider] == nil {
			return mockSettings{}, nil, failed + fmt.Sprintf("Model provider `%s` not found", provider)
		}
	}
	s := mockSettings{Approval: toJSON(cmp.Or(mockString(cfg, "approval_policy"), "on-request"))}
	word := mockString(cfg, "sandbox_mode")
	if kept != nil {
		s.Cwd, s.Model, s.Effort = kept.Cwd, kept.Model, kept.Effort
		if !m.old() { // 0.104 restores neither policy: it falls back to the configuration
			s.Approval, s.Sandbox, word = kept.Approval, kept.Sandbox, ""
		}
	}
	if cwd := stringField(params, "cwd"); cwd != "" {
		s.Cwd = cwd
	}
	if abs, err := filepath.Abs(s.Cwd); err == nil { // not validated, only made absolute, as in every version
		s.Cwd = abs
	}
	fallback := "gpt-6.1-sol"
	if m.old() {
		fallback = "gpt-5.2-codex"
	}
	s.Model = cmp.Or(stringField(params, "model"), s.Model, mockString(cfg, "model"), fallback)
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
		kind := map[string]string{"read-only": "readOnly", "workspace-write": "workspaceWrite", "danger-full-access": "dangerFullAccess"}[word]
		if kind == "" {
			return mockSettings{}, nil, strings.Replace(mockVariant(word, "read-only", "workspace-write", "danger-full-access"), "Invalid request: ", failed, 1)
		}
		s.Sandbox = m.sandboxPolicy(kind, nil, cfg)
	}
	return s, cfg, ""
}

// badTools checks dynamicTools by the version's rules.
func (m *mockServer) badTools(raw json.RawMessage) string {
	var tools []json.RawMessage
	if isNull(raw) || json.Unmarshal(raw, &tools) != nil {
		return ""
	}
	seen := map[string]bool{}
	for _, t := range tools {
		name := stringField(t, "name")
		switch {
		case stringField(t, "type") == "namespace" && !m.old():
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
