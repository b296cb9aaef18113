package main

// config_codex.go owns Codex's own configuration as a session is given it: which of its words a turn carries and are
// taken out of config, which could widen a sandbox, the file of a profile, and the trees that go to thread/start,
// merged from dotted keys and tables. config_policy.go decides with it. It must never take a word it doesn't know for a
// permission: in a call such a word is refused, in a file it counts as the careful choice. What comes out is nested,
// bounded in depth, and has no key that Codex would read as a path once more: Codex splits top-level keys at dots
// (0.104) or reads them as TOML keys.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// argumentWords takes the settings that a turn carries out of the config
// argument. What can't be carried is refused, since the caller can mend it.
func argumentWords(t map[string]any) (statedPolicy, error) {
	wrong := func(t map[string]any, under, key, kind, of string) error {
		if v, there := t[key]; there && kindOf(v) != kind {
			return fmt.Errorf("config.%s%s is %s, it must be %s%s", under, key, kindOf(v), kind, of)
		}
		return nil
	}
	const table = "sandbox_workspace_write"
	if err := wrong(t, "", table, "a table", ""); err != nil {
		return statedPolicy{}, err
	}
	w := takeWords(t, "the config argument")
	if problem := cmp.Or(w.sandboxNote, w.approvalNote); problem != "" {
		return w, errors.New(problem)
	}
	return w, cmp.Or(
		wrong(t, "", "model", "a string", ""),
		wrong(t, "", "model_reasoning_effort", "a string", ""),
		wrong(w.write, table+".", "network_access", "true or false", ""),
		wrong(w.write, table+".", "exclude_tmpdir_env_var", "true or false", ""),
		wrong(w.write, table+".", "exclude_slash_tmp", "true or false", ""),
		wrong(w.write, table+".", "writable_roots", "a list", " of paths"))
}

// takeWords takes the settings that a turn carries out of a Codex configuration, whose it is said to be. A sandbox or
// an approval policy that a turn can't carry becomes the careful choice, with a note. A model that is no string stays
// in t: it is Codex's to complain about.
func takeWords(t map[string]any, whose string) (w statedPolicy) {
	take := func(key string) (any, bool) {
		v, there := t[key]
		delete(t, key)
		return v, there && v != nil
	}
	shown := func(v any) string { return shortName(string(toJSON(v))) }
	for key, into := range map[string]*string{"model": &w.model, "model_reasoning_effort": &w.effort} {
		if word, ok := t[key].(string); ok {
			*into = word
			delete(t, key)
		}
	}
	permissions, hasPermissions := take("default_permissions")
	if v, there := take("sandbox_mode"); there { // Codex ignores default_permissions beside sandbox_mode
		if w.sandbox, _ = v.(string); sandboxRank(w.sandbox) == 0 {
			w.sandbox = sandboxRead
			w.sandboxNote = fmt.Sprintf("sandbox_mode %s of %s is none of %s", shown(v), whose, sandboxModes())
		}
	} else if hasPermissions {
		name, _ := permissions.(string) // of a built-in profile, or of one that the user made
		if w.sandbox = map[string]string{":read-only": sandboxRead, ":workspace": sandboxWrite,
			":danger-full-access": sandboxDanger}[name]; w.sandbox == "" {
			w.sandbox = sandboxRead
			w.sandboxNote = fmt.Sprintf("default_permissions %s of %s can't be kept on a turn, for which sandbox "+
				"is one of %s", shown(permissions), whose, sandboxModes())
		}
	}
	if v, there := take("approval_policy"); there {
		switch w.approval, _ = v.(string); w.approval {
		case "untrusted", "on-request", "on-failure", "never":
		default:
			w.approval = "on-request"
			w.approvalNote = fmt.Sprintf("approval_policy %s of %s is none of untrusted, on-request, never", shown(v),
				whose)
		}
	}
	v, _ := take("sandbox_workspace_write")
	w.write, _ = v.(map[string]any)
	return w
}

// userWords reads the user's own Codex configuration; a default profile in it (Codex before 0.148) goes first.
func userWords(user map[string]any) statedPolicy {
	name, _ := user["profile"].(string)
	return firstWords(
		takeWords(maps.Clone(tableAt(user, "profiles", name)), fmt.Sprintf("the user's Codex profile %q", name)),
		takeWords(maps.Clone(user), "the user's Codex configuration"))
}

// allowingRules are the files of Codex's rules, in these directories of its configuration, that let a command run
// outside of every sandbox, which no setting of a thread or a turn holds back (0.104 to 0.169). It reads the disk.
func allowingRules(dirs ...string) (files []string) {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(filepath.Join(dir, "rules")) // what can't be read, Codex can't read either
		for _, entry := range entries {
			name := filepath.Join(dir, "rules", entry.Name())
			if filepath.Ext(name) != ".rules" {
				continue
			}
			text, err := readRegular(name, maxConfigSize)
			// A rule that says neither allows; so may a file that is too large to be read.
			allows := func(rule string) bool { return !containsAny(rule, `"prompt"`, `"forbidden"`) }
			if errors.Is(err, errTooLarge) ||
				slices.ContainsFunc(strings.Split(string(text), "prefix_rule(")[1:], allows) {
				files = append(files, name)
			}
		}
	}
	return files
}

// readUserConfig takes the config out of a config/read answer; false when there is none to be read.
func readUserConfig(raw json.RawMessage) (map[string]any, bool) {
	v, err := decodeConfig(rawField(raw, "config"))
	return v, err == nil && v != nil
}

// stripWidening takes out of t what could pass a ceiling, and names it. The sandbox of every turn is ours, so what is
// left to fear is: rules that replace the modes (permissions, default_permissions, sandbox_permissions,
// windows.sandbox), a reviewer that approves in the user's place (approvals_reviewer, auto_review, guardian features),
// and programs that Codex runs outside of any sandbox (mcp_servers, hooks, notify, plugins, apps,
// model_providers.x.auth, zsh_path, an environment for the sandbox's own launcher), files that bring all that in
// (profile, agents.x.config_file, projects.x.trust_level, debug.config_lockfile). Codex learns new keys every month, so
// from a caller pass only those known to be harmless. A profile (own) is a file of the user's like config.toml: it
// loses only what touches sandbox and approvals.
func stripWidening(t map[string]any, own bool) (dropped []string) {
	for key, v := range t {
		if key == "features" {
			table, ok := v.(map[string]any)
			if !ok {
				continue // Codex refuses it
			}
			for name, on := range table {
				// Some features may be what holds an agent back, so that even switching them off would widen.
				guards := containsAny(strings.ToLower(name), "network", "hook", "policy", "rule")
				if touchesSandbox(name) || !own && (guards || on != false && !harmlessFeature(name)) {
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
	return containsAny(strings.ToLower(name), "sandbox", "landlock", "bwrap", "seccomp", "permission", "approv",
		"guardian", "auto_review", "windows")
}

// harmlessSetting lists what shapes the conversation and nothing else, in Codex 0.104 to 0.169.
func harmlessSetting(key string) bool {
	return slices.Contains([]string{"model", "model_provider", "oss_provider", "review_model", "model_context_window",
		"model_auto_compact_token_limit", "model_auto_compact_token_limit_scope",
		"model_post_turn_compact_threshold_percent", "model_max_output_tokens", "model_reasoning_effort",
		"model_reasoning_summary", "model_supports_reasoning_summaries", "plan_mode_reasoning_effort",
		"model_verbosity", "model_instructions_file", "experimental_instructions_file", "service_tier", "personality",
		"instructions", "developer_instructions", "compact_prompt", "experimental_compact_prompt_file",
		"tool_output_token_limit", "background_terminal_max_timeout", "web_search", "tools", "project_doc_max_bytes",
		"project_doc_fallback_filenames", "project_root_markers", "include_permissions_instructions",
		"include_apps_instructions", "include_environment_context", "include_environment_context_time",
		"include_collaboration_mode_instructions", "include_apply_patch_tool", "hide_agent_reasoning",
		"show_raw_agent_reasoning", "suppress_unstable_features_warning", "thread_unload_delay_secs", "history",
		"analytics", "feedback", "file_opener", "disable_paste_burst", "check_for_update_on_startup", "tui", "notice",
		"ghost_snapshot", "mcp_optional_startup_grace_ms"}, key)
}

// harmlessFeature lists the features that may also be switched on.
func harmlessFeature(name string) bool {
	return slices.Contains([]string{"unbounded_connection_retries", "default_mode_request_user_input",
		"apply_patch_freeform", "shell_tool", "unified_exec", "view_image_tool", "multi_agent", "collab", "steer",
		"personality", "fast_mode", "goals", "tool_search", "remote_models", "responses_websockets",
		"enable_request_compression", "prevent_idle_sleep", "web_search_request", "web_search_cached"}, name)
}

// loadProfile reads $CODEX_HOME/<name>.config.toml: Codex from 0.148 on takes no profile over app-server, so its
// content goes into config. Before that, config.profile is sent.
func loadProfile(codexHome, name string) (map[string]any, *rpcError) {
	if name == "" || len(name) > 128 || name[0] == '.' || strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || strings.ContainsRune(`/\:`, r)
	}) {
		return nil, invalidSession("profile %q is not a profile's name: it names the file <profile>.config.toml in %s",
			name, codexHome)
	}
	path := filepath.Join(codexHome, name+".config.toml")
	data, err := readRegular(path, maxConfigSize)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, invalidSession("profile %q: there is no %s; %s", name, path, listProfiles(codexHome))
	case err != nil:
		return nil, invalidSession("profile %q: %v", name, err)
	}
	table, err := parseTOML(path, data)
	if err != nil {
		return nil, invalidSession("profile %q: %v", name, err)
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

// maxConfigDepth bounds how deep a configuration may nest.
const maxConfigDepth = 64

// expandConfig reads a config argument: top-level keys are paths, as in
// Codex's -c (a."b.c".d), all others are names.
func expandConfig(raw json.RawMessage) (map[string]any, error) {
	t, err := decodeConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	root := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(t)) {
		path, err := splitConfigKey(key)
		if err != nil {
			return nil, fmt.Errorf("config key %q: %w", shortName(key), err)
		}
		v := t[key]
		for _, name := range slices.Backward(path) {
			v = map[string]any{name: v}
		}
		if v, err = configValue(v, 0); err != nil {
			return nil, fmt.Errorf("config key %q: %w", shortName(key), err)
		}
		if err := layOver(root, v.(map[string]any), nil, true); err != nil {
			return nil, fmt.Errorf("config key %q contradicts another one: %w", shortName(key), err)
		}
	}
	return root, nil
}

// expandProfile copies a profile's table, whose keys are names throughout.
func expandProfile(t map[string]any) (map[string]any, error) {
	for key := range t {
		if !plainConfigKey(key) {
			return nil, fmt.Errorf("key %q is no setting of Codex's: those have only letters, digits, _ and - in "+
				"their names", shortName(key))
		}
	}
	v, err := configValue(t, 0)
	if err != nil {
		return nil, err
	}
	return v.(map[string]any), nil
}

// configValue checks and copies a value. A null in a table is left out: TOML has none, and Codex would read "". Whole
// floats of a TOML file keep their point, or Codex would read integers.
func configValue(v any, depth int) (any, error) {
	if depth > maxConfigDepth {
		return nil, fmt.Errorf("nests deeper than %d levels", maxConfigDepth)
	}
	switch v := v.(type) {
	case string, bool, json.Number, int64, int:
		return v, nil
	case float64:
		n := string(toJSON(v))
		if !strings.ContainsAny(n, ".eE") {
			n += ".0"
		}
		return json.Number(n), nil
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = configValue(e, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		t := make(map[string]any, len(v))
		for key, e := range v {
			if e == nil {
				continue
			}
			var err error
			if t[key], err = configValue(e, depth+1); err != nil {
				return nil, err
			}
		}
		return t, nil
	case nil:
		return nil, errors.New("a list has null in it, for which TOML has no word")
	}
	return nil, fmt.Errorf("a value of Go type %T can't be sent", v)
}

// splitConfigKey reads a dotted key: bare, "basic" and 'literal' segments. The first must be plain, since Codex reads
// top-level keys as paths once more: a quoted "sandbox_workspace_write.network_access" would arrive as two.
func splitConfigKey(key string) ([]string, error) {
	var path []string
	for rest := key; ; {
		var seg string
		switch {
		case strings.HasPrefix(rest, `"`):
			end, ok := scanString([]byte(rest), 0)
			if !ok {
				return nil, errors.New("a quoted part has no end")
			}
			seg, _ = rawString([]byte(rest[:end]))
			rest = rest[end:]
		case strings.HasPrefix(rest, "'"):
			end := strings.IndexByte(rest[1:], '\'')
			if end < 0 {
				return nil, errors.New("a quoted part has no end")
			}
			seg, rest = rest[1:end+1], rest[end+2:]
		default:
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			seg, rest = rest[:end], rest[end:]
			if seg == "" {
				return nil, errors.New("an empty part; write a.b, or a.\"\" where the empty name is meant")
			}
			if strings.ContainsFunc(seg, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\'' }) {
				return nil, errors.New("a part with spaces or quotes must be quoted as a whole")
			}
		}
		if len(path) == 0 && !plainConfigKey(seg) {
			return nil, errors.New("no setting of Codex's: those have only letters, digits, _ and - in their names")
		}
		if path = append(path, seg); len(path) > maxConfigDepth {
			return nil, fmt.Errorf("more than %d parts", maxConfigDepth)
		}
		if rest == "" {
			return path, nil
		}
		if rest[0] != '.' {
			return nil, errors.New("a quoted part must be followed by a dot")
		}
		rest = rest[1:]
	}
}

func plainConfigKey(key string) bool {
	return key != "" && !slices.ContainsFunc([]byte(key), func(c byte) bool { return !tomlBare(c) })
}

// mergeConfig lays over onto base, table by table; over wins where both set a value. A server under mcp_servers that
// over defines itself (a command or a url) replaces base's of that name: half of each would be neither. Neither
// argument is changed.
func mergeConfig(base, over map[string]any) (map[string]any, error) {
	out := cloneTables(base)
	return out, layOver(out, over, nil, false)
}

// cloneTables copies a tree of tables. It shares what is no table.
func cloneTables(t map[string]any) map[string]any {
	out := make(map[string]any, len(t))
	for key, v := range t {
		if table, ok := v.(map[string]any); ok {
			v = cloneTables(table)
		}
		out[key] = v
	}
	return out
}

// layOver lays over onto base, which it changes; at is where both stand. same: two values for one key are an error,
// unless they are equal.
func layOver(base, over map[string]any, at []string, same bool) error {
	if len(at) > maxConfigDepth {
		return fmt.Errorf("%s nests deeper than %d levels", shortName(strings.Join(at, ".")), maxConfigDepth)
	}
	for _, key := range slices.Sorted(maps.Keys(over)) {
		v, path := over[key], append(slices.Clip(at), key)
		table, isTable := v.(map[string]any)
		old, there := base[key]
		oldTable, wasTable := old.(map[string]any)
		where := func() string { return shortName(strings.Join(path, ".")) }
		ownServer := !same && len(path) == 2 && path[0] == "mcp_servers" &&
			(table["command"] != nil || table["url"] != nil)
		switch {
		case there && isTable != wasTable:
			return fmt.Errorf("%s is %s in one and %s in the other", where(), kindOf(old), kindOf(v))
		case there && isTable && !ownServer:
			if err := layOver(oldTable, table, path, same); err != nil {
				return err
			}
		case there && same && !reflect.DeepEqual(old, v):
			return fmt.Errorf("both set %s", where())
		default:
			base[key] = v
		}
	}
	return nil
}

// decodeConfig reads a JSON object with exact numbers; nil for null or nothing.
func decodeConfig(raw json.RawMessage) (map[string]any, error) {
	if isNull(raw) {
		return nil, nil
	}
	v, _ := decodeJSON(raw)
	t, ok := v.(map[string]any)
	if !ok || !utf8.Valid(raw) {
		return nil, errors.New("it must be an object")
	}
	return t, nil
}

// tableAt returns the table at a path, nil if a step is missing or no table.
func tableAt(t map[string]any, path ...string) map[string]any {
	for _, name := range path {
		t, _ = t[name].(map[string]any)
	}
	return t
}

func kindOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "a table"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case nil:
		return "null"
	}
	return "a number"
}

// shortName cuts what a caller made up to what an error can hold.
func shortName(s string) string { return clipChars(s, 100) }
