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
	"reflect"
	"regexp"
	"slices"
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
	s := &answerSchema{raw: slices.Clone(raw), root: root}
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

// jsonTypes are the words for types.
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
				if err := s.vet(sub, here+"."+cutName(name), depth+1); err != nil {
					return err
				}
			}
		case "items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else":
			if err := s.vet(val, here, depth+1); err != nil {
				return err
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
			"minItems",
			"maxItems", "minProperties", "maxProperties":
			if n, ok := jsonNumber(val); !ok || n < 0 && strings.ContainsAny(key, "LIP") || n <= 0 &&
				key == "multipleOf" {
				return fmt.Errorf("%s is no such number", here)
			}
		case "$ref":
			if ref, ok := val.(string); !ok || s.find(ref) == nil {
				return fmt.Errorf("%s names nothing in this schema", here)
			}
		}
	}
	return nil
}

// find is what a reference within the schema names, nil for nothing.
func (s *answerSchema) find(ref string) any {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	var at any = s.root
	for _, step := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if step == "" && path == "" {
			break
		}
		m, _ := at.(map[string]any)
		if at, ok = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]; !ok {
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
	return s.check(s.root, v, "the answer", 0)
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
	if want, ok := m["const"]; ok && !reflect.DeepEqual(want, v) {
		return fmt.Sprintf("%s is not %s", at, clip(string(toJSON(want)), 100))
	}
	if list, ok := m["enum"].([]any); ok && !slices.ContainsFunc(list,
		func(w any) bool { return reflect.DeepEqual(w, v) }) {
		return fmt.Sprintf("%s is %s, none of %s", at, clip(string(toJSON(v)), 100), clip(string(toJSON(list)), 200))
	}
	why := ""
	switch v := v.(type) {
	case string:
		why = checkString(m, v)
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

func checkString(m map[string]any, v string) string {
	if pattern, ok := m["pattern"].(string); ok {
		// What Go's expressions can't say is not checked.
		if re, err := regexp.Compile(pattern); err == nil && !re.MatchString(v) {
			return "does not match " + pattern
		}
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
	for i, item := range v {
		schema, ok := m["items"]
		if i < len(first) {
			schema, ok = first[i], true
		}
		if ok {
			if why := s.check(schema, item, fmt.Sprintf("%s[%d]", at, i), depth+1); why != "" {
				return why
			}
		}
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
		sub, named := props[key]
		if extra, ok := m["additionalProperties"]; !named && ok && len(patterns) == 0 {
			if extra == false {
				return fmt.Sprintf("%s has %q, which the schema doesn't", at, clip(key, 100))
			}
			sub, named = extra, true
		}
		if named {
			if why := s.check(sub, v[key], at+"."+clip(key, 100), depth+1); why != "" {
				return why
			}
		}
	}
	return bounds(m, float64(len(v)), "minProperties", "maxProperties", "members")
}

// checkChoices checks the words that combine schemas.
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
	if not, ok := m["not"]; ok && s.check(not, v, at, depth+1) == "" {
		return at + " is what it must not be"
	}
	return ""
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
