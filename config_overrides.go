package main

// config_overrides.go owns the trees of Codex configuration that go to thread/start:
// a caller's config argument with its dotted keys, a profile's table, and how
// they merge. config_policy.go builds a session's config with it; whoever adds to
// that calls mergeConfig. It is pure. What comes out is nested, bounded in
// depth, and has no key that Codex would read as a path once more: it splits
// top-level keys at dots (0.104) or reads them as TOML keys (newer).

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxConfigDepth bounds how deep a configuration may nest.
const maxConfigDepth = 64

// expandConfig reads a config argument: top-level keys are paths, as in
// Codex's -c (a."b.c".d), all others are names. nil for none.
func expandConfig(raw json.RawMessage) (map[string]any, error) {
	t, err := decodeConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if t == nil {
		return nil, nil
	}
	type entry struct {
		path []string
		key  string
	}
	var entries []entry
	for key := range t {
		path, err := splitConfigKey(key)
		if err != nil {
			return nil, fmt.Errorf("config key %q: %w", shortName(key), err)
		}
		entries = append(entries, entry{path, key})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	x := expander{origin: map[string]string{}}
	root := map[string]any{}
	for _, e := range entries {
		x.key = e.key
		v := t[e.key]
		for _, seg := range slices.Backward(e.path[1:]) {
			v = map[string]any{seg: v}
		}
		if err := x.place(root, "", e.path[0], v, 1); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// expandProfile copies a profile's table, whose keys are names throughout.
func expandProfile(t map[string]any) (map[string]any, error) {
	if t == nil {
		return nil, nil
	}
	x := expander{origin: map[string]string{}}
	root := map[string]any{}
	for key, v := range t {
		if !plainConfigKey(key) {
			return nil, fmt.Errorf("key %q is no setting of Codex's: those have only letters, digits, _ and - in their names", shortName(key))
		}
		x.key = key
		if err := x.place(root, "", key, v, 1); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// expander builds one tree out of many keys and remembers who set what.
type expander struct {
	key    string            // being placed
	origin map[string]string // node's path to the key that set it
}

func (x *expander) place(dst map[string]any, at, seg string, v any, depth int) error {
	if depth > maxConfigDepth {
		return fmt.Errorf("config key %q nests deeper than %d levels", shortName(x.key), maxConfigDepth)
	}
	at += "\x00" + seg
	old, there := dst[seg]
	table, isTable := v.(map[string]any)
	oldTable, wasTable := old.(map[string]any)
	switch {
	case v == nil: // TOML has no null, and Codex would read ""
		return nil
	case there && isTable != wasTable:
		return fmt.Errorf("config keys %q and %q contradict each other: one makes %s a table, the other a value",
			shortName(x.origin[at]), shortName(x.key), configPath(at))
	case isTable:
		if !there {
			oldTable = map[string]any{}
			dst[seg], x.origin[at] = oldTable, x.key
		}
		for _, key := range slices.Sorted(maps.Keys(table)) {
			if err := x.place(oldTable, at, key, table[key], depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	v, err := configValue(v, depth)
	switch {
	case err != nil:
		return fmt.Errorf("config key %q: %w", shortName(x.key), err)
	case there && !reflect.DeepEqual(old, v):
		return fmt.Errorf("config keys %q and %q contradict each other: both set %s", shortName(x.origin[at]), shortName(x.key), configPath(at))
	}
	dst[seg], x.origin[at] = v, x.key
	return nil
}

func configPath(at string) string { return shortName(strings.ReplaceAll(at[1:], "\x00", ".")) }

// configValue checks and copies what is no table. Whole floats of a TOML file
// keep their point, or Codex would read integers.
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
	case map[string]any: // a table in a list
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

// splitConfigKey reads a dotted key: bare, "basic" and 'literal' segments. The
// first must be plain, since Codex reads top-level keys as paths once more: a
// quoted "sandbox_workspace_write.network_access" would arrive as two.
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
			if seg, ok = rawString([]byte(rest[:end])); !ok {
				return nil, errors.New("a quoted part can't be read")
			}
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
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	})
}

// mergeConfig lays over onto base, table by table; over wins where both set a
// value. A server under mcp_servers that over defines itself (a command or a
// url) replaces base's of that name: half of each would be neither. Neither
// argument is changed.
func mergeConfig(base, over map[string]any) (map[string]any, error) {
	return mergeTables(nil, base, over)
}

func mergeTables(at []string, base, over map[string]any) (map[string]any, error) {
	if len(at) > maxConfigDepth {
		return nil, fmt.Errorf("%s nests deeper than %d levels", shortName(strings.Join(at, ".")), maxConfigDepth)
	}
	out := make(map[string]any, len(base)+len(over))
	maps.Copy(out, base)
	for _, key := range slices.Sorted(maps.Keys(over)) {
		v := over[key]
		path := append(slices.Clip(at), key)
		table, isTable := v.(map[string]any)
		old, there := base[key]
		oldTable, wasTable := old.(map[string]any)
		switch {
		case there && isTable != wasTable:
			return nil, fmt.Errorf("%s is %s in one and %s in the other", shortName(strings.Join(path, ".")), kindOf(old), kindOf(v))
		case !there || !isTable, len(path) == 2 && path[0] == "mcp_servers" && (table["command"] != nil || table["url"] != nil):
			out[key] = v
		default:
			merged, err := mergeTables(path, oldTable, table)
			if err != nil {
				return nil, err
			}
			out[key] = merged
		}
	}
	return out, nil
}

// decodeConfig reads a JSON object with exact numbers; nil for null or nothing.
func decodeConfig(raw json.RawMessage) (map[string]any, error) {
	if isNull(raw) {
		return nil, nil
	}
	if rawKind(raw) != '{' || !validJSON(raw) {
		return nil, errors.New("it must be an object")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var t map[string]any
	if err := dec.Decode(&t); err != nil {
		return nil, err
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

// kindOf names a value's kind in an error.
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
func shortName(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
