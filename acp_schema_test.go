package main

// acp_schema_test.go holds what we send to ACP's own JSON Schema, as the SDK of
// npm ships it: a validator for the part of JSON Schema that it uses. Where the
// schema isn't there, tests go on without it and say so.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"
)

// acpSchema is the schema of ACP v1.
type acpSchema struct{ defs map[string]any }

// readACPSchema looks where $ATM_ACP_SCHEMA says, else in the cache that
// .ci/run fills; nil where it isn't.
func readACPSchema(t testing.TB) *acpSchema {
	path := os.Getenv("ATM_ACP_SCHEMA")
	if path == "" {
		found, _ := filepath.Glob(".cache/acp*/package/schema/v1/schema.json")
		if len(found) == 0 {
			t.Log("no ACP schema in .cache: updates are not held to it")
			return nil
		}
		path = found[len(found)-1]
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Defs map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(data, &doc); err != nil || doc.Defs["SessionUpdate"] == nil {
		t.Fatalf("%s is no ACP schema: %v", path, err)
	}
	return &acpSchema{doc.Defs}
}

// check says what is wrong with raw as the definition def, "" for nothing.
func (s *acpSchema) check(def string, raw []byte) string {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return "no JSON in UTF-8"
	}
	if s == nil {
		return ""
	}
	var v any
	_ = json.Unmarshal(raw, &v)
	return s.value(s.defs[def], v, def)
}

func (s *acpSchema) value(schema, v any, at string) string {
	m, ok := schema.(map[string]any)
	if !ok {
		return "" // true: anything
	}
	if ref, ok := m["$ref"].(string); ok {
		return s.value(s.defs[filepath.Base(ref)], v, at)
	}
	if c, ok := m["const"]; ok && c != v {
		return fmt.Sprintf("%s: %v isn't %v", at, v, c)
	}
	if list, ok := m["enum"].([]any); ok && !slices.Contains(list, v) {
		return fmt.Sprintf("%s: %v isn't one of %v", at, v, list)
	}
	switch want := m["type"].(type) {
	case string:
		if !isJSONType(v, want) {
			return fmt.Sprintf("%s: %v is no %s", at, v, want)
		}
	case []any:
		if !slices.ContainsFunc(want, func(w any) bool { return isJSONType(v, w.(string)) }) {
			return fmt.Sprintf("%s: %v is none of %v", at, v, want)
		}
	}
	if n, ok := m["minimum"].(float64); ok {
		if f, ok := v.(float64); ok && f < n {
			return fmt.Sprintf("%s: %v is below %v", at, f, n)
		}
	}
	if n, ok := m["minLength"].(float64); ok {
		if str, ok := v.(string); ok && float64(utf8.RuneCountInString(str)) < n {
			return fmt.Sprintf("%s: %q is too short", at, str)
		}
	}
	for _, sub := range asList(m["allOf"]) {
		if why := s.value(sub, v, at); why != "" {
			return why
		}
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		subs := asList(m[key])
		fits, why := 0, ""
		for _, sub := range subs {
			if w := s.value(sub, v, at); w == "" {
				fits++
			} else if len(w) > len(why) {
				why = w
			}
		}
		if len(subs) > 0 && (fits == 0 || key == "oneOf" && fits > 1) {
			return fmt.Sprintf("%s: fits %d of its kinds: %s", at, fits, why)
		}
	}
	if obj, ok := v.(map[string]any); ok {
		for _, name := range asList(m["required"]) {
			if _, has := obj[name.(string)]; !has {
				return fmt.Sprintf("%s: no %v", at, name)
			}
		}
		props, _ := m["properties"].(map[string]any)
		for name, val := range obj {
			if why := s.value(props[name], val, at+"."+name); why != "" {
				return why
			}
		}
	}
	if arr, ok := v.([]any); ok {
		for i, val := range arr {
			if why := s.value(m["items"], val, fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
	}
	return ""
}

func asList(v any) []any { list, _ := v.([]any); return list }

func isJSONType(v any, want string) bool {
	switch x := v.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case float64:
		return want == "number" || want == "integer" && x == float64(int64(x))
	case []any:
		return want == "array"
	}
	return want == "object"
}

// TestACPSchemaCheckerCatches: the checker itself must be able to say no.
func TestACPSchemaCheckerCatches(t *testing.T) {
	s := readACPSchema(t)
	if s == nil {
		t.Skip("no ACP schema in .cache")
	}
	for _, good := range []string{
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"a","title":"t","kind":"edit","content":[{"type":"diff","path":"/a","oldText":null,"newText":""}]}`,
	} {
		if why := s.check("SessionUpdate", []byte(good)); why != "" {
			t.Errorf("%s: %s", good, why)
		}
	}
	for _, bad := range []string{
		`{"sessionUpdate":"agent_message_chunk"}`,
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":1}}`,
		`{"sessionUpdate":"no_such","content":{"type":"text","text":""}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"a"}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"done"}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"a","content":[{"type":"diff","path":"/a"}]}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"a","content":[{"type":"content","content":{"type":"image","data":""}}]}`,
		`{"sessionUpdate":"plan","entries":[{"content":"a","priority":"none","status":"pending"}]}`,
		`{"sessionUpdate":"usage_update","used":-1,"size":2}`,
		`{"sessionUpdate":"notice","severity":"info","title":""}`,
		"{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"\xff\"}}",
	} {
		if s.check("SessionUpdate", []byte(bad)) == "" {
			t.Errorf("%s is taken", bad)
		}
	}
}
