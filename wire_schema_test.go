package main

// wire_schema_test.go holds the reading and checking of answer schemas to their words, and has what the ACP schema
// needs beyond them: a member that nothing in the schema names is a problem too, except where the schema gives a value
// no shape at all, since clients drop such members without a word. Every message that we send over ACP is held to it.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// jsonSchema is a schema document that knows no members but those that it names.
type jsonSchema struct{ *answerSchema }

func parseSchema(data []byte) (jsonSchema, error) {
	s, err := readAnswerSchema(data)
	return jsonSchema{s}, err
}

func (s jsonSchema) defs() map[string]any { return s.root["$defs"].(map[string]any) }

// byMethod finds the definition of a method's request, response or notification,
// as its name ends; "" for none.
func (s jsonSchema) byMethod(method string, suffixes ...string) string {
	for name, def := range s.defs() {
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

// schemaSays is what is wrong with a raw value as the definition of that name, "" for nothing; without a schema
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
	if s.defs()[name] == nil {
		return "the schema has no " + name
	}
	return strings.Join(s.problems(map[string]any{"$ref": "#/$defs/" + name}, v, name), "; ")
}

// problems are the first thing that is wrong with a value, and all that the schema doesn't name in it.
func (s jsonSchema) problems(schema, v any, at string) []string {
	if why := s.says(schema, v, at); why != "" {
		return []string{why}
	}
	return s.unknown(v, at, schema)
}

func (s jsonSchema) says(schema, v any, at string) string {
	check := *s.answerSchema // its steps are counted
	check.left = schemaSteps
	return check.check(schema, v, at, 0)
}

// unknown finds the members that none of a value's schemas names.
func (s jsonSchema) unknown(v any, at string, schemas ...any) (out []string) {
	parts := s.parts(v, schemas)
	switch v := v.(type) {
	case []any:
		var items []any
		for _, m := range parts {
			if of, ok := m["items"]; ok {
				items = append(items, of)
			}
		}
		for i, item := range v {
			out = append(out, s.unknown(item, fmt.Sprintf("%s[%d]", at, i), items...)...)
		}
	case map[string]any:
		for key, val := range v {
			var named []any
			for _, m := range parts {
				props, _ := m["properties"].(map[string]any)
				extra, ok := m["additionalProperties"].(map[string]any)
				if sub, is := props[key]; is {
					named = append(named, sub)
				} else if ok {
					named = append(named, extra)
				}
			}
			if named == nil && len(parts) > 0 && !slices.ContainsFunc(parts, shapeless) {
				out = append(out, fmt.Sprintf("%s: the schema knows no member %q", at, key))
			}
			out = append(out, s.unknown(val, at+"."+key, named...)...)
		}
	}
	return out
}

// parts are schemas with all those in them that speak of the same value, of which a choice adds what fits.
func (s jsonSchema) parts(v any, schemas []any) (out []map[string]any) {
	for _, schema := range schemas {
		m, _ := schema.(map[string]any) // or true
		out = append(out, m)
		var more []any
		if ref, ok := m["$ref"].(string); ok {
			more = append(more, s.find(ref))
		}
		for _, key := range []string{"allOf", "anyOf", "oneOf"} {
			subs, _ := m[key].([]any)
			for _, sub := range subs {
				if s.says(sub, v, "") == "" {
					more = append(more, sub)
				}
			}
		}
		out = append(out, s.parts(v, more)...)
	}
	return out
}

// shapeless reports a schema that doesn't say what members there are.
func shapeless(m map[string]any) bool {
	says := []string{"properties", "$ref", "allOf", "anyOf", "oneOf", "type", "const", "enum", "required"}
	return m["unevaluatedProperties"] == true || m["additionalProperties"] == true ||
		len(m) == 1 && m["type"] == "object" ||
		!slices.ContainsFunc(says, func(key string) bool { return m[key] != nil })
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
		{"Ask", `{}`, `lacks "id"`}, {"Ask", `{"id":"x","more":1}`, `no member "more"`},
		{"Update", `{"u":"text","id":"x"}`, ""}, {"Update", `{"u":"none"}`, ""},
		{"Update", `{"u":"none","id":"x"}`, `no member "id"`}, {"Nothing", `{}`, "has no Nothing"},
	} {
		if got := schemaSays(&s, c.def, []byte(c.json)); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
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
