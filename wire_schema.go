package main

// wire_schema.go owns the JSON Schemas that a caller gives for an answer: whether a text is such a schema at all, and
// what is wrong with a value that should follow it. It knows the words of 2020-12 that say something about a value
// without another document; words that it doesn't know say nothing. mcp_turns.go checks schemas with it,
// session_turn.go answers. A schema is somebody else's text: however it refers to itself, a check ends.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// schemaDepth is how deep schemas and values may lie in each other; a reference counts as one more.
	schemaDepth = 100
	// schemaSteps is how many pairs of a schema and a value one check looks at, at most.
	schemaSteps = 1 << 17
)

// answerSchema is a schema that was found to be one. It may be used by one goroutine at a time.
type answerSchema struct {
	raw  json.RawMessage // as it came
	root map[string]any
	left int // steps that the check may still take

	patterns map[string]*schemaPattern // of its words pattern and patternProperties; nil: Go's expressions can't say it
}

// schemaPattern is a compiled pattern and what a match of one byte costs, in instructions.
type schemaPattern struct {
	*regexp.Regexp
	size int
}

// readAnswerSchema reads a schema; the error says where it is none.
func readAnswerSchema(raw []byte) (*answerSchema, error) {
	v, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is %s, not an object", jsonType(v))
	}
	s := &answerSchema{raw: slices.Clone(raw), root: root, patterns: map[string]*schemaPattern{}}
	return s, s.vet(root, "schema", 0)
}

// decodeJSON reads exactly one value, with its numbers as they are written.
func decodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more than one JSON value")
	}
	return v, nil
}

func jsonTypes() []string {
	return []string{"string", "number", "integer", "boolean", "object", "array", "null"}
}

// vet finds what makes a value no schema.
func (s *answerSchema) vet(v any, at string, depth int) error {
	if _, ok := v.(bool); ok {
		return nil
	}
	m, ok := v.(map[string]any)
	switch {
	case !ok:
		return fmt.Errorf("%s is %s, not a schema", at, jsonType(v))
	case depth > schemaDepth:
		return fmt.Errorf("%s lies too deep", at)
	}
	if types, ok := m["type"]; ok {
		words := jsonWords(types)
		if list, is := types.([]any); len(words) == 0 || is && len(list) != len(words) {
			return fmt.Errorf("%s.type is neither a word nor a list of words", at)
		}
		for _, w := range words {
			if !slices.Contains(jsonTypes(), w) {
				return fmt.Errorf("%s.type %q is none of %s", at, cutName(w), strings.Join(jsonTypes(), ", "))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		val, here := m[key], at+"."+cutName(key)
		switch key {
		case "properties", "$defs", "definitions", "patternProperties", "dependentSchemas":
			subs, ok := val.(map[string]any)
			if !ok {
				return fmt.Errorf("%s is %s, not an object of schemas", here, jsonType(val))
			}
			for name, sub := range subs {
				if key == "patternProperties" {
					s.learn(name)
				}
				if err := s.vet(sub, here+"."+cutName(name), depth+1); err != nil {
					return err
				}
			}
		case "pattern":
			pattern, ok := val.(string)
			if !ok {
				return fmt.Errorf("%s is %s, not a string", here, jsonType(val))
			}
			s.learn(pattern)
		case "items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else":
			subs, many := val.([]any) // of items, before 2020-12
			if !many || key != "items" {
				subs = []any{val}
			}
			for _, sub := range subs {
				if err := s.vet(sub, here, depth+1); err != nil {
					return err
				}
			}
		case "anyOf", "oneOf", "allOf", "prefixItems":
			subs, ok := val.([]any)
			if !ok || len(subs) == 0 {
				return fmt.Errorf("%s is no list of schemas", here)
			}
			for i, sub := range subs {
				if err := s.vet(sub, fmt.Sprintf("%s[%d]", here, i), depth+1); err != nil {
					return err
				}
			}
		case "required":
			if list, ok := val.([]any); !ok || len(jsonWords(val)) != len(list) {
				return fmt.Errorf("%s is no list of names", here)
			}
		case "enum":
			if list, ok := val.([]any); !ok || len(list) == 0 {
				return fmt.Errorf("%s is no list of values", here)
			}
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
			"minItems", "maxItems", "minProperties", "maxProperties":
			if n, ok := jsonNumber(val); !ok || n < 0 && strings.ContainsAny(key, "LIP") || n <= 0 &&
				key == "multipleOf" || n != math.Trunc(n) && strings.ContainsAny(key, "LIP") {
				return fmt.Errorf("%s is no such number", here)
			}
		case "$ref":
			ref, ok := val.(string)
			if inside := ref == "#" || strings.HasPrefix(ref, "#/"); !ok || inside && s.find(ref) == nil {
				return fmt.Errorf("%s names nothing in this schema", here)
			}
		}
	}
	return nil
}

// learn compiles a pattern. A pattern that Go's expressions can't say is not checked.
func (s *answerSchema) learn(pattern string) {
	if tree, err := syntax.Parse(pattern, syntax.Perl); err == nil {
		if prog, err := syntax.Compile(tree.Simplify()); err == nil {
			s.patterns[pattern] = &schemaPattern{regexp.MustCompile(pattern), len(prog.Inst)}
		}
	}
}

// matches reports a text that a pattern finds something in, or that can't be told from one.
func (s *answerSchema) matches(pattern, text string) bool {
	p := s.patterns[pattern]
	if p == nil {
		return true
	}
	if s.left -= p.size * len(text) / 64; s.left <= 0 {
		return true // the next step says that this is too much
	}
	return p.MatchString(text)
}

// find is what a reference within the schema names, nil for nothing, or for one by an anchor: that is not checked.
func (s *answerSchema) find(ref string) any {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	var at any = s.root
	if path == "" {
		return at
	}
	for _, step := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if plain, err := url.PathUnescape(step); err == nil {
			step = plain
		}
		switch in := at.(type) {
		case map[string]any:
			at = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(in) {
				return nil
			}
			at = in[n]
		default:
			return nil
		}
	}
	return at
}

// read is the value that an answer holds, or why it is not what the schema asks for. long: the answer is more than its
// reader shall get.
func (s *answerSchema) read(text string, long bool) (json.RawMessage, string) {
	v, err := decodeJSON([]byte(text))
	if err != nil {
		return nil, "the answer is no JSON: " + err.Error()
	}
	if tooDeep(v, schemaDepth) {
		return nil, "the answer's values lie too deep in each other"
	}
	if why := s.problem(v); why != "" {
		return nil, why
	}
	if long {
		return nil, "the answer follows the schema, and is too long to be told as a value too"
	}
	return toJSON(json.RawMessage(text)), ""
}

// problem is the first thing that is wrong with a value, "" for nothing.
func (s *answerSchema) problem(v any) string {
	s.left = schemaSteps
	if why := s.check(s.root, v, "the answer", 0); why != "" || s.left > 0 {
		return why
	}
	return "the answer is too much to be checked"
}

func (s *answerSchema) check(schema, v any, at string, depth int) string {
	m, ok := schema.(map[string]any)
	switch {
	case schema == false:
		return at + " may not be there"
	case !ok:
		return ""
	case depth > schemaDepth || s.left <= 0:
		return at + " is too much to be checked"
	}
	s.left--
	if ref, ok := m["$ref"].(string); ok {
		if why := s.check(s.find(ref), v, at, depth+1); why != "" {
			return why
		}
	}
	if types := jsonWords(m["type"]); types != nil &&
		!slices.ContainsFunc(types, func(t string) bool { return isJSONType(v, t) }) {
		return fmt.Sprintf("%s is %s, not %s", at, jsonType(v), strings.Join(types, " or "))
	}
	if want, ok := m["const"]; ok && !s.equal(want, v) {
		return fmt.Sprintf("%s is not %s", at, clip(string(toJSON(want)), 100))
	}
	if list, ok := m["enum"].([]any); ok && !slices.ContainsFunc(list,
		func(w any) bool { return s.equal(w, v) }) {
		return fmt.Sprintf("%s is %s, none of %s", at, clip(string(toJSON(v)), 100), clip(string(toJSON(list)), 200))
	}
	why := ""
	switch v := v.(type) {
	case string:
		why = s.checkString(m, v)
	case json.Number:
		why = checkNumber(m, v)
	case []any:
		why = s.checkArray(m, v, at, depth)
	case map[string]any:
		why = s.checkObject(m, v, at, depth)
	}
	if why != "" {
		if !strings.HasPrefix(why, at) {
			why = at + " " + why
		}
		return why
	}
	return s.checkChoices(m, v, at, depth)
}

// bounds checks a number of something against two of the schema's words.
func bounds(m map[string]any, n float64, least, most, what string) string {
	if min, ok := jsonNumber(m[least]); ok && n < min {
		return fmt.Sprintf("has %v %s, fewer than %v", n, what, min)
	}
	if max, ok := jsonNumber(m[most]); ok && n > max {
		return fmt.Sprintf("has %v %s, more than %v", n, what, max)
	}
	return ""
}

func (s *answerSchema) checkString(m map[string]any, v string) string {
	if pattern, ok := m["pattern"].(string); ok && !s.matches(pattern, v) {
		return "does not match " + clip(pattern, 200)
	}
	return bounds(m, float64(utf8.RuneCountInString(v)), "minLength", "maxLength", "characters")
}

func checkNumber(m map[string]any, v json.Number) string {
	n, _ := jsonNumber(v)
	for _, limit := range []struct {
		word   string
		beyond func(most float64) bool
	}{
		{"minimum", func(most float64) bool { return n < most }},
		{"exclusiveMinimum", func(most float64) bool { return n <= most }},
		{"maximum", func(most float64) bool { return n > most }},
		{"exclusiveMaximum", func(most float64) bool { return n >= most }},
	} {
		if most, ok := jsonNumber(m[limit.word]); ok && limit.beyond(most) {
			return fmt.Sprintf("is %s, and %s is %v", v, limit.word, most)
		}
	}
	if of, ok := jsonNumber(m["multipleOf"]); ok && math.Abs(n/of-math.Round(n/of)) > 1e-9 {
		return fmt.Sprintf("is %s, no multiple of %v", v, of)
	}
	return ""
}

func (s *answerSchema) checkArray(m map[string]any, v []any, at string, depth int) string {
	first, _ := m["prefixItems"].([]any)
	if list, ok := m["items"].([]any); ok {
		first = list
	}
	for i, item := range v {
		schema, ok := m["items"]
		if _, list := schema.([]any); list {
			schema, ok = m["additionalItems"]
		}
		if i < len(first) {
			schema, ok = first[i], true
		}
		if ok {
			if why := s.check(schema, item, fmt.Sprintf("%s[%d]", at, i), depth+1); why != "" {
				return why
			}
		}
	}
	for i := range v {
		for k := range i {
			if m["uniqueItems"] == true && s.equal(v[i], v[k]) {
				return fmt.Sprintf("%s[%d] and [%d] are the same", at, k, i)
			}
		}
	}
	if some, ok := m["contains"]; ok && !slices.ContainsFunc(v,
		func(item any) bool { return s.check(some, item, at, depth+1) == "" }) {
		return at + " has no item that it must contain"
	}
	return bounds(m, float64(len(v)), "minItems", "maxItems", "items")
}

func (s *answerSchema) checkObject(m, v map[string]any, at string, depth int) string {
	for _, key := range jsonWords(m["required"]) {
		if _, ok := v[key]; !ok {
			return fmt.Sprintf("%s lacks %q", at, key)
		}
	}
	props, _ := m["properties"].(map[string]any)
	patterns, _ := m["patternProperties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(v)) {
		var subs []any
		if sub, ok := props[key]; ok {
			subs = append(subs, sub)
		}
		for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
			if s.matches(pattern, key) {
				subs = append(subs, patterns[pattern])
			}
		}
		if extra, ok := m["additionalProperties"]; ok && subs == nil {
			if extra == false {
				return fmt.Sprintf("%s has %q, which the schema doesn't", at, clip(key, 100))
			}
			subs = append(subs, extra)
		}
		if names, ok := m["propertyNames"]; ok && s.check(names, key, at, depth+1) != "" {
			return fmt.Sprintf("%s has a member %q, whose name the schema doesn't allow", at, clip(key, 100))
		}
		for _, sub := range subs {
			if why := s.check(sub, v[key], at+"."+clip(key, 100), depth+1); why != "" {
				return why
			}
		}
	}
	return bounds(m, float64(len(v)), "minProperties", "maxProperties", "members")
}

func (s *answerSchema) checkChoices(m map[string]any, v any, at string, depth int) string {
	subs, _ := m["allOf"].([]any)
	for _, sub := range subs {
		if why := s.check(sub, v, at, depth+1); why != "" {
			return why
		}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		subs, ok := m[key].([]any)
		fits, first := 0, ""
		for _, sub := range subs {
			if why := s.check(sub, v, at, depth+1); why == "" {
				fits++
			} else if first == "" {
				first = why
			}
		}
		switch {
		case ok && fits == 0:
			return fmt.Sprintf("%s fits none of its %s (%s)", at, key, first)
		case fits > 1 && key == "oneOf":
			return fmt.Sprintf("%s fits %d of its oneOf", at, fits)
		}
	}
	if cond, ok := m["if"]; ok {
		then := "then"
		if s.check(cond, v, at, depth+1) != "" {
			then = "else"
		}
		if sub, ok := m[then]; ok {
			if why := s.check(sub, v, at, depth+1); why != "" {
				return why
			}
		}
	}
	if not, ok := m["not"]; ok && s.check(not, v, at, depth+1) == "" {
		return at + " is what it must not be"
	}
	return ""
}

// equal compares values; 1 is 1.0.
func (s *answerSchema) equal(x, y any) bool {
	if s.left--; s.left <= 0 {
		return true // the next step says that this is too much
	}
	switch x := x.(type) {
	case json.Number:
		a, ok := jsonNumber(x)
		b, both := jsonNumber(y)
		return ok && both && a == b
	case []any:
		list, ok := y.([]any)
		return ok && slices.EqualFunc(x, list, s.equal)
	case map[string]any:
		obj, ok := y.(map[string]any)
		return ok && maps.EqualFunc(x, obj, s.equal)
	}
	return x == y
}

// tooDeep reports a value whose parts lie deeper in each other than its reader may be able to follow.
func tooDeep(v any, most int) bool {
	if most == 0 {
		return true
	}
	list, _ := v.([]any)
	if obj, ok := v.(map[string]any); ok {
		list = slices.Collect(maps.Values(obj))
	}
	return slices.ContainsFunc(list, func(item any) bool { return tooDeep(item, most-1) })
}

// jsonWords is a word, or the words of a list, nil for anything else.
func jsonWords(v any) (out []string) {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	list, _ := v.([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func jsonNumber(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// jsonType is the word for what a value is: integer for a number without a fraction.
func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if n, ok := jsonNumber(v); ok && n == math.Trunc(n) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func isJSONType(v any, want string) bool {
	got := jsonType(v)
	return got == want || want == "number" && got == "integer"
}
