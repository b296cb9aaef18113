package main

// proxy_match_test.go owns the patterns that scripts compare JSON with. The script
// commands expect and jsonfile call it. A pattern is JSON, and matches what
// contains it: an object may have more members, an array must be as long. In it
// "$any" is any value, "$re:…" a regexp over a string or a number's digits,
// "$bind:name" any value, kept as a variable, "$absent" a member that must not be
// there. A last element "$rest" makes an array a prefix; a first element
// "$contains" asks that each pattern after it matches some element.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// decodeJSON reads exactly one value and keeps numbers as they are written.
func decodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value in %s", clipText(string(data), 200))
	}
	return v, nil
}

// matchJSON tells why got does not contain pattern. On a match it returns what
// "$bind:" captured.
func matchJSON(pattern, got any) (map[string]any, error) {
	bound := map[string]any{}
	if err := matchValue("", pattern, got, bound); err != nil {
		return nil, err
	}
	return bound, nil
}

func matchValue(at string, pattern, got any, bound map[string]any) error {
	where := at
	if where == "" {
		where = "value"
	}
	switch p := pattern.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: want an object, got %s", where, compact(got))
		}
		for key, want := range p {
			v, there := g[key]
			path := at + "." + key
			switch {
			case want == "$absent" && there:
				return fmt.Errorf("%s: must be absent, is %s", path, compact(v))
			case want == "$absent":
			case !there:
				return fmt.Errorf("%s: is missing", path)
			default:
				if err := matchValue(path, want, v, bound); err != nil {
					return err
				}
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok {
			return fmt.Errorf("%s: want an array, got %s", where, compact(got))
		}
		return matchArray(at, p, g, bound)
	case string:
		return matchString(where, p, got, bound)
	case json.Number:
		if g, ok := got.(json.Number); ok && sameNumber(p, g) {
			return nil
		}
	default: // nil, bool
		if pattern == got {
			return nil
		}
	}
	return fmt.Errorf("%s: want %s, got %s", where, compact(pattern), compact(got))
}

func matchArray(at string, p, g []any, bound map[string]any) error {
	if len(p) > 0 && p[0] == "$contains" {
		for _, want := range p[1:] {
			if !containsMatch(at, want, g, bound) {
				return fmt.Errorf("%s: no element is %s in %s", at, compact(want), compact(g))
			}
		}
		return nil
	}
	if n := len(p); n > 0 && p[n-1] == "$rest" {
		p = p[:n-1]
		if len(g) >= len(p) {
			g = g[:len(p)]
		}
	}
	if len(p) != len(g) {
		return fmt.Errorf("%s: want %d elements, got %d: %s", at, len(p), len(g), compact(g))
	}
	for i := range p {
		if err := matchValue(fmt.Sprintf("%s[%d]", at, i), p[i], g[i], bound); err != nil {
			return err
		}
	}
	return nil
}

func containsMatch(at string, want any, g []any, bound map[string]any) bool {
	for _, v := range g {
		tried := map[string]any{} // an element that fails half way must bind nothing
		if matchValue(at, want, v, tried) == nil {
			for k, v := range tried {
				bound[k] = v
			}
			return true
		}
	}
	return false
}

func matchString(where, p string, got any, bound map[string]any) error {
	if name, ok := strings.CutPrefix(p, "$bind:"); ok {
		if before, ok := bound[name]; ok && compact(before) != compact(got) {
			return fmt.Errorf("%s: $%s is %s already, got %s", where, name, compact(before), compact(got))
		}
		bound[name] = got
		return nil
	}
	if expr, ok := strings.CutPrefix(p, "$re:"); ok {
		re, err := regexp.Compile(expr)
		if err != nil {
			return fmt.Errorf("%s: bad pattern: %w", where, err)
		}
		var text string
		switch g := got.(type) {
		case string:
			text = g
		case json.Number:
			text = g.String()
		default:
			return fmt.Errorf("%s: want text like %q, got %s", where, expr, compact(got))
		}
		if !re.MatchString(text) {
			return fmt.Errorf("%s: want text like %q, got %s", where, expr, compact(got))
		}
		return nil
	}
	switch {
	case p == "$any":
		return nil
	case strings.HasPrefix(p, "$$"):
		p = p[1:]
	case strings.HasPrefix(p, "$"):
		return fmt.Errorf("%s: unknown pattern word %q", where, p)
	}
	if got == p {
		return nil
	}
	return fmt.Errorf("%s: want %q, got %s", where, p, compact(got))
}

// sameNumber takes 1 and 1.0 for the same, but keeps large integers apart.
func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	if _, err := a.Int64(); err == nil {
		if _, err := b.Int64(); err == nil {
			return false
		}
	}
	x, err1 := a.Float64()
	y, err2 := b.Float64()
	return err1 == nil && err2 == nil && x == y
}

// expandVars puts variables into JSON: a string that is just "$name" becomes the
// variable's value with its type, ${name} inside a string its text. Pattern words
// and "$$…" are left alone. Without pattern, words have no meaning and "$$x" is
// the text "$x". An unknown name is an error, never an empty string.
func expandVars(v any, pattern bool, lookup func(string) (any, bool)) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, val := range v {
			name, err := expandText(key, false, lookup)
			if err != nil {
				return nil, err
			}
			if out[name], err = expandVars(val, pattern, lookup); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = expandVars(v[i], pattern, lookup); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		if pattern && isPatternWord(v) {
			return expandText(v, true, lookup)
		}
		if strings.HasPrefix(v, "$$") {
			if pattern {
				return v, nil
			}
			return v[1:], nil
		}
		if name, ok := strings.CutPrefix(v, "$"); ok && varName.MatchString(name) {
			if val, ok := lookup(name); ok {
				return val, nil
			}
			return nil, fmt.Errorf("no variable %q", name)
		}
		return expandText(v, false, lookup)
	}
	return v, nil
}

var (
	varName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	varRef  = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
)

func isPatternWord(s string) bool {
	switch s {
	case "$any", "$rest", "$absent", "$contains":
		return true
	}
	return strings.HasPrefix(s, "$re:") || strings.HasPrefix(s, "$bind:")
}

func expandText(s string, quote bool, lookup func(string) (any, bool)) (string, error) {
	var missing error
	out := varRef.ReplaceAllStringFunc(s, func(ref string) string {
		val, ok := lookup(ref[2 : len(ref)-1])
		if !ok {
			missing = fmt.Errorf("no variable %q", ref)
			return ref
		}
		text := plainText(val)
		if quote {
			text = regexp.QuoteMeta(text)
		}
		return text
	})
	return out, missing
}

// plainText is a value as an environment variable holds it.
func plainText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return compact(v)
}

func compact(v any) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprintf("%v", v)
	}
	return strings.TrimSuffix(buf.String(), "\n")
}

// clipText keeps messages readable.
func clipText(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:max], ""), len(s))
}

func TestMatchJSON(t *testing.T) {
	tests := []struct {
		name, pattern, got string
		want               string // part of the error, "" for a match
	}{
		{"subset", `{"a":1}`, `{"a":1,"b":2}`, ""},
		{"deep subset", `{"a":{"b":[{"c":true}]}}`, `{"a":{"b":[{"c":true,"d":null}],"x":0}}`, ""},
		{"missing member", `{"a":{"b":1}}`, `{"a":{}}`, ".a.b: is missing"},
		{"other value", `{"a":"x"}`, `{"a":"y"}`, `.a: want "x", got "y"`},
		{"other type", `{"a":"1"}`, `{"a":1}`, `want "1", got 1`},
		{"null is a value", `{"a":null}`, `{"a":null}`, ""},
		{"null is not false", `{"a":null}`, `{"a":false}`, "want null, got false"},
		{"null is not missing", `{"a":null}`, `{}`, "is missing"},
		{"any", `{"a":"$any"}`, `{"a":[1]}`, ""},
		{"any is there", `{"a":"$any"}`, `{}`, "is missing"},
		{"absent", `{"a":"$absent"}`, `{"b":1}`, ""},
		{"not absent", `{"a":"$absent"}`, `{"a":null}`, "must be absent"},
		{"regexp", `{"a":"$re:^codex:[a-z0-9]+$"}`, `{"a":"codex:k3f"}`, ""},
		{"regexp of a number", `{"a":"$re:^-3200[0-9]$"}`, `{"a":-32005}`, ""},
		{"regexp fails", `{"a":"$re:^b"}`, `{"a":"abc"}`, `want text like "^b"`},
		{"regexp of an object", `{"a":"$re:."}`, `{"a":{}}`, "want text like"},
		{"bad regexp", `{"a":"$re:("}`, `{"a":"x"}`, "bad pattern"},
		{"arrays are exact", `[1,2]`, `[1,2,3]`, "want 2 elements, got 3"},
		{"array prefix", `[1,2,"$rest"]`, `[1,2,3]`, ""},
		{"array shorter than prefix", `[1,2,"$rest"]`, `[1]`, "want 2 elements, got 1"},
		{"array order", `[1,2]`, `[2,1]`, "[0]: want 1, got 2"},
		{"contains", `["$contains",{"n":"b"},{"n":"a"}]`, `[{"n":"a"},{"n":"b","x":1}]`, ""},
		{"contains not", `["$contains",{"n":"c"}]`, `[{"n":"a"}]`, "no element is"},
		{"numbers by value", `1.0`, `1`, ""},
		{"large numbers", `9007199254740993`, `9007199254740992`, "want 9007199254740993"},
		{"dollar text", `"$$any"`, `"$any"`, ""},
		{"unknown word", `"$nay"`, `"x"`, "unknown pattern word"},
		{"object for array", `[]`, `{}`, "want an array"},
		{"array for object", `{}`, `[]`, "want an object"},
		{"same binding twice", `["$bind:a","$bind:a"]`, `[1,1]`, ""},
		{"two bindings differ", `["$bind:a","$bind:a"]`, `[1,2]`, "$a is 1 already"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := matchJSON(mustJSON(t, tt.pattern), mustJSON(t, tt.got))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("no match: %v", err)
			case tt.want != "" && err == nil:
				t.Errorf("matched, want an error with %q", tt.want)
			case tt.want != "" && !strings.Contains(err.Error(), tt.want):
				t.Errorf("error %q does not contain %q", err, tt.want)
			}
		})
	}
}

func TestMatchBindsAndExpands(t *testing.T) {
	vars, err := matchJSON(mustJSON(t, `{"id":"$bind:id","l":["$contains",{"k":"z","v":"$bind:v"}]}`),
		mustJSON(t, `{"id":0,"l":[{"k":"y","v":"no"},{"k":"z","v":"a.b"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (any, bool) { v, ok := vars[name]; return v, ok }
	for _, tt := range []struct {
		in, want string
		pattern  bool
	}{
		{`{"id":"$id"}`, `{"id":0}`, false}, // a number stays one: 0 is a valid id
		{`{"${v}":"x ${v} y"}`, `{"a.b":"x a.b y"}`, false},
		{`"$re:^${v}$"`, `"$re:^a\\.b$"`, true},
		{`["$any","$v"]`, `["$any","a.b"]`, true},
		{`"echo $HOME"`, `"echo $HOME"`, false},
		{`"$$v"`, `"$v"`, false},
		{`"$$v"`, `"$$v"`, true},
	} {
		got, err := expandVars(mustJSON(t, tt.in), tt.pattern, lookup)
		if err != nil || compact(got) != tt.want {
			t.Errorf("expanding %s: got %s, %v, want %s", tt.in, compact(got), err, tt.want)
		}
	}
	for _, in := range []string{`"$nobody"`, `"x ${nobody}"`, `{"${nobody}":1}`} {
		if got, err := expandVars(mustJSON(t, in), false, lookup); err == nil {
			t.Errorf("expanding %s gave %s, want an error", in, compact(got))
		}
	}
}

func TestDecodeJSONTakesOneValue(t *testing.T) {
	for _, in := range []string{``, `{`, `{} {}`, `nul`} {
		if v, err := decodeJSON([]byte(in)); err == nil {
			t.Errorf("decoding %q gave %v, want an error", in, v)
		}
	}
}

func mustJSON(t *testing.T, s string) any {
	t.Helper()
	v, err := decodeJSON([]byte(s))
	if err != nil {
		t.Fatalf("decoding %s: %v", s, err)
	}
	return v
}
