package main

// config_codex.go owns what the words of a Codex configuration mean here: which
// of them a turn carries and are taken out of config, which could widen a
// sandbox, the user's own from config/read, and the file of a profile.
// config_policy.go decides with it. It must never read a word it doesn't know as
// leave: a caller's is refused, a file's becomes the careful choice.

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
	"strings"
)

// argumentWords takes the settings that a turn carries out of the config
// argument. What it doesn't understand is refused, since the caller can mend it.
func argumentWords(t map[string]any) (statedPolicy, error) {
	var w statedPolicy
	for _, f := range []struct {
		key  string
		into *string
	}{{"model", &w.model}, {"model_reasoning_effort", &w.effort}, {"sandbox_mode", &w.sandbox}, {"approval_policy", &w.approval}} {
		v, there := t[f.key]
		if !there {
			continue
		}
		word, ok := v.(string)
		if !ok {
			return w, fmt.Errorf("config.%s is %s, it must be a string", f.key, kindOf(v))
		}
		*f.into = word
		delete(t, f.key)
	}
	if w.sandbox != "" && sandboxRank(w.sandbox) == 0 {
		return w, fmt.Errorf("config.sandbox_mode %q is none of %s", shortName(w.sandbox), sandboxModes())
	}
	switch w.approval {
	case "", "untrusted", "on-request", "on-failure", "never":
	default:
		return w, fmt.Errorf("config.approval_policy %q is none of untrusted, on-request, never", shortName(w.approval))
	}
	if v, there := t["default_permissions"]; there {
		word := permissionMode(v)
		if word == "" {
			return w, fmt.Errorf("config.default_permissions %s can't be kept on a turn; set sandbox to one of %s", shortName(string(toJSON(v))), sandboxModes())
		}
		w.sandbox = cmp.Or(w.sandbox, word)
		delete(t, "default_permissions")
	}
	if v, there := t["sandbox_workspace_write"]; there {
		table, ok := v.(map[string]any)
		if !ok {
			return w, fmt.Errorf("config.sandbox_workspace_write is %s, it must be a table", kindOf(v))
		}
		for _, key := range []string{"network_access", "exclude_tmpdir_env_var", "exclude_slash_tmp"} {
			v, there := table[key]
			if _, ok := v.(bool); there && !ok {
				return w, fmt.Errorf("config.sandbox_workspace_write.%s is %s, it must be true or false", key, kindOf(v))
			}
		}
		roots, there := table["writable_roots"]
		if _, ok := roots.([]any); there && !ok {
			return w, fmt.Errorf("config.sandbox_workspace_write.writable_roots is %s, it must be a list of paths", kindOf(roots))
		}
		w.write = table
		delete(t, "sandbox_workspace_write")
	}
	return w, nil
}

// fileWords takes the same settings out of a file that the user wrote for
// Codex. What a turn can't carry becomes the careful choice, with a note.
func fileWords(t map[string]any, whose string) statedPolicy {
	var w statedPolicy
	take := func(key string) (any, bool) {
		v, there := t[key]
		delete(t, key)
		return v, there && v != nil
	}
	for _, f := range []struct {
		key  string
		into *string
	}{{"model", &w.model}, {"model_reasoning_effort", &w.effort}} {
		if word, ok := t[f.key].(string); ok { // anything else is Codex's to complain about
			*f.into = word
			delete(t, f.key)
		}
	}
	perm, hasPerm := take("default_permissions")
	if v, there := take("sandbox_mode"); there { // Codex ignores default_permissions beside it
		if w.sandbox, _ = v.(string); sandboxRank(w.sandbox) == 0 {
			w.sandbox = sandboxRead
			w.sandboxNote = fmt.Sprintf("sandbox_mode %s of %s is unknown here; it counts as read-only", shortName(string(toJSON(v))), whose)
		}
	} else if hasPerm {
		if w.sandbox = permissionMode(perm); w.sandbox == "" {
			w.sandbox = sandboxRead
			w.sandboxNote = fmt.Sprintf("default_permissions %s of %s can't be kept on a turn; it counts as read-only", shortName(string(toJSON(perm))), whose)
		}
	}
	if v, there := take("approval_policy"); there {
		switch w.approval, _ = v.(string); w.approval {
		case "untrusted", "on-request", "on-failure", "never":
		default:
			w.approval = "on-request"
			w.approvalNote = fmt.Sprintf("approval_policy %s of %s can't be kept on a turn; it counts as on-request", shortName(string(toJSON(v))), whose)
		}
	}
	if v, there := take("sandbox_workspace_write"); there {
		w.write, _ = v.(map[string]any)
	}
	return w
}

// userWords reads the user's own Codex configuration; a default profile in it
// (Codex before 0.148) goes first.
func userWords(user map[string]any) statedPolicy {
	w := fileWords(maps.Clone(user), "the user's Codex configuration")
	name, _ := user["profile"].(string)
	own := tableAt(user, "profiles", name)
	if own == nil {
		return w
	}
	p := fileWords(maps.Clone(own), fmt.Sprintf("the user's Codex profile %q", name))
	if p.sandbox == "" {
		p.sandbox, p.sandboxNote = w.sandbox, w.sandboxNote
	}
	if p.approval == "" {
		p.approval, p.approvalNote = w.approval, w.approvalNote
	}
	if p.write == nil {
		p.write = w.write
	}
	return p
}

// permissionMode maps Codex's built-in permission profiles to sandbox modes;
// "" is a profile of the user's own making.
func permissionMode(v any) string {
	switch v {
	case ":read-only":
		return sandboxRead
	case ":workspace":
		return sandboxWrite
	case ":danger-full-access":
		return sandboxDanger
	}
	return ""
}

// readUserConfig takes the config out of a config/read answer; false when
// there is none to be read.
func readUserConfig(raw json.RawMessage) (map[string]any, bool) {
	v, err := decodeConfig(rawField(raw, "config"))
	return v, err == nil && v != nil
}

// stripWidening takes out of t what could pass a ceiling, and names it. The
// sandbox of every turn is ours, so what is left to fear is: rules that
// replace the modes (permissions, default_permissions, sandbox_permissions,
// windows.sandbox), a reviewer that approves in the user's place
// (approvals_reviewer, auto_review, guardian features), and programs that
// Codex runs outside of any sandbox (mcp_servers, hooks, notify, plugins,
// apps, model_providers.x.auth, zsh_path, an environment for the sandbox's own
// launcher), files that bring all that in (profile, agents.x.config_file,
// projects.x.trust_level, debug.config_lockfile). Codex learns new keys every
// month, so from a caller pass only those known to be harmless. A profile
// (own) is a file of the user's like config.toml: it loses only what touches
// sandbox and approvals.
func stripWidening(t map[string]any, own bool) (dropped []string) {
	for key, v := range t {
		if key == "features" {
			table, ok := v.(map[string]any)
			if !ok {
				continue // Codex refuses it
			}
			for name, on := range table {
				if touchesSandbox(name) || !own && (guards(name) || on != false && !harmlessFeature(name)) {
					delete(table, name)
					dropped = append(dropped, "features."+shortName(name))
				}
			}
			if len(table) == 0 { // an empty table would clear the user's
				delete(t, key)
			}
			continue
		}
		if harmlessSetting(key) || own && !touchesSandbox(key) {
			continue
		}
		delete(t, key)
		dropped = append(dropped, shortName(key))
	}
	return dropped
}

// touchesSandbox reports a name that speaks of the sandbox or of approvals.
func touchesSandbox(name string) bool {
	return speaksOf(name, "sandbox", "landlock", "bwrap", "seccomp", "permission", "approv", "guardian", "auto_review", "windows")
}

// guards reports a feature that may be what holds an agent back, so that even
// switching it off would widen.
func guards(name string) bool {
	return speaksOf(name, "network", "hook", "policy", "rule")
}

func speaksOf(name string, parts ...string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// harmlessSetting lists what shapes the conversation and nothing else, in
// Codex 0.104 to 0.169.
func harmlessSetting(key string) bool {
	switch key {
	case "model", "model_provider", "oss_provider", "review_model", "model_context_window", "model_auto_compact_token_limit",
		"model_auto_compact_token_limit_scope", "model_post_turn_compact_threshold_percent", "model_max_output_tokens",
		"model_reasoning_effort", "model_reasoning_summary", "model_supports_reasoning_summaries", "plan_mode_reasoning_effort",
		"model_verbosity", "model_instructions_file", "experimental_instructions_file", "service_tier", "personality",
		"instructions", "developer_instructions", "compact_prompt", "experimental_compact_prompt_file",
		"tool_output_token_limit", "background_terminal_max_timeout", "web_search", "tools",
		"project_doc_max_bytes", "project_doc_fallback_filenames", "project_root_markers",
		"include_permissions_instructions", "include_apps_instructions", "include_environment_context",
		"include_environment_context_time", "include_collaboration_mode_instructions", "include_apply_patch_tool",
		"hide_agent_reasoning", "show_raw_agent_reasoning", "suppress_unstable_features_warning",
		"thread_unload_delay_secs", "history", "analytics", "feedback", "file_opener", "disable_paste_burst",
		"check_for_update_on_startup", "tui", "notice", "ghost_snapshot", "mcp_optional_startup_grace_ms":
		return true
	}
	return false
}

// harmlessFeature lists the features that may also be switched on.
func harmlessFeature(name string) bool {
	switch name {
	case "unbounded_connection_retries", "default_mode_request_user_input", "apply_patch_freeform", "shell_tool", "unified_exec",
		"view_image_tool", "multi_agent", "collab", "steer", "personality", "fast_mode", "goals", "tool_search", "remote_models",
		"responses_websockets", "enable_request_compression", "prevent_idle_sleep", "web_search_request", "web_search_cached":
		return true
	}
	return false
}

// loadProfile reads $CODEX_HOME/<name>.config.toml: Codex from 0.148 on takes
// no profile over app-server, so its content goes into config. Before that,
// config.profile is sent.
func loadProfile(codexHome, name string) (map[string]any, *rpcError) {
	bad := func(format string, args ...any) *rpcError {
		return proxyError(codeInvalidSession, fmt.Sprintf(format, args...))
	}
	if name == "" || len(name) > 128 || name[0] == '.' || strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || strings.ContainsRune(`/\:`, r)
	}) {
		return nil, bad("profile %q is not a profile's name: it names the file <profile>.config.toml in %s", name, codexHome)
	}
	const limit = 1 << 20
	path := filepath.Join(codexHome, name+".config.toml")
	data, err := readRegular(path, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, bad("profile %q: there is no %s; %s", name, path, listProfiles(codexHome))
	case err != nil:
		return nil, bad("profile %q: %v", name, err)
	}
	table, err := parseTOML(path, data)
	if err != nil {
		return nil, bad("profile %q: %v", name, err)
	}
	return table.plain(), nil
}

// listProfiles names the profiles there are, a handful of them.
func listProfiles(codexHome string) string {
	const suffix, most = ".config.toml", 20
	entries, err := os.ReadDir(codexHome)
	if err != nil {
		return fmt.Sprintf("%s can't be read (%v)", codexHome, err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok && name != "" {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return "no profile is there"
	case len(names) > most:
		return fmt.Sprintf("profiles there: %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "profiles there: " + strings.Join(names, ", ")
}
