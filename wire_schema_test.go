package main

// wire_schema_test.go is a validator for the part of JSON Schema 2020-12 that the ACP schema uses. It is stricter in
// one thing: a member that nothing in the schema names is a problem too, except where the schema gives a value no shape
// at all, since clients drop such members without a word. Every message that we send over ACP is held to it.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// jsonSchema is a schema document; $ref is looked up in its $defs.
type jsonSchema struct{ defs map[string]any }

// loadSchema reads a schema file; nil where there is none.
func loadSchema(path string) (*jsonSchema, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseSchema(data)
}

func parseSchema(data []byte) (*jsonSchema, error) {
	v, err := decodeJSON(data)
	top, _ := v.(map[string]any)
	defs, _ := top["$defs"].(map[string]any)
	if err == nil && len(defs) == 0 {
		err = errors.New("the schema has no $defs")
	}
	return &jsonSchema{defs}, err
}

// byMethod finds the definition of a method's request, response or notification,
// as its name ends; "" for none.
func (s *jsonSchema) byMethod(method string, suffixes ...string) string {
	for name, def := range s.defs {
		if m, _ := def.(map[string]any); m["x-method"] == method {
			for _, suffix := range suffixes {
				if strings.HasSuffix(name, suffix) {
					return name
				}
			}
		}
	}
	return ""
}

// problems tells what is wrong with v as the definition of that name.
func (s *jsonSchema) problems(name string, v any) []string {
	def, ok := s.defs[name]
	if !ok {
		return []string{"the schema has no " + name}
	}
	return s.whole(def, v, name)
}

// whole checks a value of its own: what no schema names in it is a problem, but for an object of which a schema says
// nothing else.
func (s *jsonSchema) whole(schema, v any, at string) []string {
	seen := map[string]bool{}
	if reflect.DeepEqual(schema, map[string]any{"type": "object"}) {
		seen["*"] = true
	}
	out := s.check(schema, v, at, seen)
	obj, _ := v.(map[string]any)
	for key := range obj {
		if !seen[key] && !seen["*"] {
			out = append(out, fmt.Sprintf("%s: the schema knows no member %q", at, key))
		}
	}
	return out
}

// schemaSays is what is wrong with a raw value, "" for nothing; without a schema
// it need only be JSON in UTF-8.
func schemaSays(s *jsonSchema, name string, raw []byte) string {
	if !utf8.Valid(raw) {
		return "no UTF-8"
	}
	v, err := decodeJSON(raw)
	if err != nil {
		return err.Error()
	}
	if s == nil {
		return ""
	}
	return strings.Join(s.problems(name, v), "; ")
}

// check validates v; seen gets the members that a schema of this very value
// names, "*" where it takes any.
func (s *jsonSchema) check(schema, v any, at string, seen map[string]bool) (out []string) {
	m, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			return []string{at + ": nothing may stand here"}
		}
		seen["*"] = true
		return nil
	}
	bad := func(format string, args ...any) { out = append(out, at+": "+fmt.Sprintf(format, args...)) }
	if ref, ok := m["$ref"].(string); ok {
		if def, ok := s.defs[strings.TrimPrefix(ref, "#/$defs/")]; ok {
			out = append(out, s.check(def, v, at, seen)...)
		} else {
			bad("unknown $ref %q", ref)
		}
	}
	if types := jsonWords(m["type"]); types != nil && !slices.ContainsFunc(types,
		func(t string) bool { return isJSONType(v, t) }) {
		bad("is %s, want %s", jsonType(v), strings.Join(types, " or "))
		return out
	}
	if want, ok := m["const"]; ok && !reflect.DeepEqual(want, v) {
		bad("is %v, want %v", v, want)
	}
	if list, ok := m["enum"].([]any); ok && !slices.ContainsFunc(list,
		func(w any) bool { return reflect.DeepEqual(w, v) }) {
		bad("is %v, want one of %v", v, list)
	}
	size, sized := sizeOf(v)
	for key, sign := range map[string]float64{"minLength": 1, "minItems": 1, "minimum": 1, "maximum": -1} {
		if bound, ok := jsonNumber(m[key]); ok && sized && (size-bound)*sign < 0 {
			bad("is %v, its %s is %v", size, key, bound)
		}
	}
	if items, ok := m["items"]; ok {
		for i, item := range listOf(v) {
			out = append(out, s.whole(items, item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	}
	if obj, ok := v.(map[string]any); ok {
		out = append(out, s.object(m, obj, at, seen)...)
	}
	for _, sub := range listOf(m["allOf"]) {
		out = append(out, s.check(sub, v, at, seen)...)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		out = append(out, s.choice(m, key, v, at, seen)...)
	}
	if not, ok := m["not"]; ok && len(s.check(not, v, at, map[string]bool{})) == 0 {
		bad("is what it must not be")
	}
	if len(m) == 0 || m["unevaluatedProperties"] == true || m["additionalProperties"] == true || !shaped(m) {
		seen["*"] = true
	}
	return out
}

// shaped reports a schema that says what members there are.
func shaped(m map[string]any) bool {
	says := []string{"properties", "$ref", "allOf", "anyOf", "oneOf", "type", "const", "enum", "required"}
	return slices.ContainsFunc(says, func(key string) bool { _, ok := m[key]; return ok })
}

func (s *jsonSchema) object(m, obj map[string]any, at string, seen map[string]bool) (out []string) {
	for _, key := range jsonWords(m["required"]) {
		if _, ok := obj[key]; !ok {
			out = append(out, fmt.Sprintf("%s: lacks %q", at, key))
		}
	}
	props, _ := m["properties"].(map[string]any)
	for key, sub := range props {
		seen[key] = true
		if v, ok := obj[key]; ok {
			out = append(out, s.whole(sub, v, at+"."+key)...)
		}
	}
	if extra, ok := m["additionalProperties"].(map[string]any); ok {
		for key, v := range obj {
			if _, named := props[key]; !named {
				seen[key] = true
				out = append(out, s.whole(extra, v, at+"."+key)...)
			}
		}
	}
	return out
}

// choice checks anyOf and oneOf: one of them must do.
func (s *jsonSchema) choice(m map[string]any, key string, v any, at string, seen map[string]bool) []string {
	var least []string
	fits := m[key] == nil
	for _, sub := range listOf(m[key]) {
		inner := map[string]bool{}
		bad := s.check(sub, v, at, inner)
		if len(bad) == 0 {
			fits = true
			maps.Copy(seen, inner)
		} else if least == nil || len(bad) < len(least) {
			least = bad
		}
	}
	if fits {
		return nil
	}
	return append([]string{at + ": fits none of its " + key}, least...)
}

func listOf(v any) []any { list, _ := v.([]any); return list }

// sizeOf is what the bounds of a schema speak of: a number, or the length of a string or a list.
func sizeOf(v any) (float64, bool) {
	switch v := v.(type) {
	case string:
		return float64(utf8.RuneCountInString(v)), true
	case []any:
		return float64(len(v)), true
	}
	return jsonNumber(v)
}

func TestJSONSchema(t *testing.T) {
	s, err := parseSchema([]byte(`{"$defs":{
		"Ask":{"x-method":"ask","type":"object","required":["id"],"properties":{
			"id":{"$ref":"#/$defs/Id"},"kind":{"enum":["a","b"]},
			"list":{"type":"array","items":{"type":"integer","minimum":0}},
			"raw":{"description":"anything"},"_meta":{"type":["object","null"],"additionalProperties":true}}},
		"Id":{"type":"string","minLength":1},
		"Update":{"oneOf":[
			{"type":"object","properties":{"u":{"const":"text"}},"required":["u"],"allOf":[{"$ref":"#/$defs/Ask"}]},
			{"type":"object","properties":{"u":{"const":"none"}},"required":["u"]}]}}}`))
	wantNil(t, err)
	for _, c := range []struct{ def, json, want string }{
		{"Ask", `{"id":"x","kind":"a","list":[1,0],"raw":{"x":1},"_meta":{"y":2}}`, ""},
		{"Ask", `{}`, `lacks "id"`}, {"Ask", `{"id":""}`, "is 0, its minLength is 1"},
		{"Ask", `{"id":3}`, "is integer, want string"}, {"Ask", `{"id":"x","kind":"c"}`, "want one of"},
		{"Ask", `{"id":"x","list":[1,-1]}`, "is -1, its minimum is 0"},
		{"Ask", `{"id":"x","list":[1.5]}`, "want integer"},
		{"Ask", `{"id":"x","more":1}`, `no member "more"`}, {"Ask", `[]`, "is array"},
		{"Update", `{"u":"text","id":"x"}`, ""}, {"Update", `{"u":"none"}`, ""},
		{"Update", `{"u":"text"}`, `lacks "id"`}, {"Update", `{"u":"none","id":"x"}`, `no member "id"`},
		{"Update", `{"u":"other"}`, "fits none"}, {"Nothing", `{}`, "has no Nothing"},
	} {
		v, err := decodeJSON([]byte(c.json))
		wantNil(t, err)
		if got := strings.Join(s.problems(c.def, v), "; "); (c.want == "") != (got == "") ||
			!strings.Contains(got, c.want) {
			t.Errorf("%s %s: %q, want %q", c.def, c.json, got, c.want)
		}
	}
	if s.byMethod("ask", "sk") != "Ask" || s.byMethod("ask", "Response") != "" {
		t.Error("byMethod")
	}
}

// A caller's schema is refused where it is none, and an answer is told what is first wrong with it. A schema that
// refers to itself ends.
func TestAnswerSchema(t *testing.T) {
	for schema, want := range map[string]string{
		`5`: "is integer", `[]`: "is array", `{"type":"strin"}`: `"strin"`, `{"type":[1]}`: "schema.type",
		`{"properties":[]}`:      "schema.properties",
		`{"properties":{"a":1}}`: "schema.properties.a", `{"required":"a"}`: "schema.required",
		`{"enum":[]}`: "schema.enum", `{"items":3}`: "schema.items",
		`{"anyOf":{}}`: "schema.anyOf", `{"minimum":"1"}`: "schema.minimum", `{"minLength":-1}`: "schema.minLength",
		`{"$ref":"#/$defs/x"}`:          "schema.$ref",
		`{"$ref":"http://127.0.0.1/x"}`: "", `{"$ref":"#name"}`: "", `{"$ref":"#/anyOf/1","anyOf":[{}]}`: "schema.$ref",
		`{"$ref":"#/anyOf/0","anyOf":[{}]}`: "", `{"$ref":"#/$defs/a%20b","$defs":{"a b":{}}}`: "",
		`{"pattern":5}`:     "schema.pattern",
		`{"minLength":1.5}`: "schema.minLength", `{"items":[{},true]}`: "", `{"pattern":"(?=x)"}`: "", `{`: "EOF",
		`{} {}`:                "more than one",
		`{"not":{"type":"x"}}`: "schema.not.type",
		`{}`:                   "", `{"type":["object","null"],"x-mine":1,"properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":true}}`: "", `{"$ref":"#"}`: "",
	} {
		_, err := readAnswerSchema([]byte(schema))
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %q", schema, err, want)
		}
	}
	const shop = `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"multipleOf":2},"s":{"type":"string","pattern":"^a","maxLength":3},
		"l":{"type":"array","items":{"enum":["x",1]},"minItems":1},"o":{"oneOf":[{"type":"string"},{"const":"c"},{"type":"null"}]},"c":{"$ref":"#"},
		"no":{"not":{"type":"string"}}},"required":["n"],"additionalProperties":false}`
	for _, c := range []struct{ schema, value, want string }{
		{shop, `{"n":2,"s":"abc","l":["x",1],"o":null,"c":{"n":4.0},"no":1}`, ""},
		{shop, `[]`, "the answer is array, not object"}, {shop, `{}`, `lacks "n"`},
		{shop, `{"n":0}`, "the answer.n is 0, and minimum is 1"},
		{shop, `{"n":3}`, "multiple of 2"}, {shop, `{"n":2.5}`, "is number, not integer"},
		{shop, `{"n":2,"s":"b"}`, "match ^a"},
		{shop, `{"n":2,"s":"aäöü"}`, "has 4 characters"}, {shop, `{"n":2,"l":[]}`, "fewer than 1"},
		{shop, `{"n":2,"l":["y"]}`, `the answer.l[0] is "y"`},
		{shop, `{"n":2,"o":"c"}`, "fits 2 of its oneOf"}, {shop, `{"n":2,"o":1}`, "fits none of its oneOf"},
		{shop, `{"n":2,"c":{"n":"2"}}`, "the answer.c.n is string"},
		{shop, `{"n":2,"no":""}`, "must not be"}, {shop, `{"n":2,"z":1}`, `has "z"`},
		{`{"$ref":"#"}`, `1`, "too much"}, {`{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}`, `1`, "too much"},
		{`{"prefixItems":[{"type":"string"}],"items":false}`, `["a",1]`, "may not be there"},
		{`{"exclusiveMaximum":3}`, `3`, "exclusiveMaximum"},
		{`{"const":{"a":1.0}}`, `{"a":1}`, ""}, {`{"enum":[1]}`, `1.0`, ""}, {`{"const":"a"}`, `{}`, "is not"},
		{`{"uniqueItems":true}`, `[1,2,1.0]`, "are the same"}, {`{"contains":{"type":"null"}}`, `[1]`, "must contain"},
		{`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, "whose name"},
		{`{"patternProperties":{"^a":{"type":"string"}},"additionalProperties":false}`, `{"a":1}`,
			"the answer.a is integer"},
		{`{"patternProperties":{"^a":{}},"additionalProperties":false}`, `{"a":1,"z":2}`, `has "z"`},
		{`{"if":{"type":"string"},"then":{"minLength":2},"else":{"type":"null"}}`, `"a"`, "fewer than 2"},
		{`{"if":{"type":"string"},"then":{"minLength":2},"else":{"type":"null"}}`, `1`, "not null"},
		{`{"items":[{"type":"string"}],"additionalItems":false}`, `["a",1]`, "may not be there"},
		{`{"pattern":"(?=x)"}`, `"a"`, ""},
		// A dear pattern held an agent's loop for minutes.
		{`{"items":{"pattern":"^([a-z]{0,900}|[0-9]{0,900})$"}}`, `["a"` + strings.Repeat(`,"a"`, 100000) + `]`,
			"too much"},
	} {
		s, err := readAnswerSchema([]byte(c.schema))
		wantNil(t, err)
		v, err := decodeJSON([]byte(c.value))
		wantNil(t, err)
		if got := s.problem(v); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.value, got, c.want)
		}
	}
}
