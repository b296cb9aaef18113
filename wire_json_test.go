package main

// wire_json_test.go holds the reader of raw JSON against encoding/json: it accepts and
// finds the same (fuzzed), and what it writes is valid UTF-8.

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,"\u00e9\n",null,true,{}],"a":2}`, `"\ud800"`, `01`, `1.`, `{"a" :1 , "b":[ ]}`, `[1,]`, "\"\x01\"", `{"\u0061":"b"}`, "\"\xff\"", ` `, `-`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want := json.Valid(b) && utf8.Valid(b)
		if got := validJSON(b); got != want {
			t.Fatalf("validJSON(%q) = %v", b, got)
		}
		if !want {
			_ = eachField(b, func(string, json.RawMessage) bool { return true }) // must not panic
			return
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(b, &m) == nil && m != nil {
			got := map[string]json.RawMessage{}
			if err := eachField(b, func(k string, v json.RawMessage) bool { got[k] = v; return true }); err != nil {
				t.Fatalf("eachField(%q): %v", b, err)
			}
			if len(got) != len(m) {
				t.Fatalf("eachField(%q): %d fields, want %d", b, len(got), len(m))
			}
			for k, v := range m {
				if string(got[k]) != string(v) || string(rawField(b, k)) != string(v) {
					t.Fatalf("field %q of %q: %q, want %q", k, b, got[k], v)
				}
			}
		}
		var s string
		if rawKind(b) == '"' && json.Unmarshal(b, &s) == nil {
			if got, ok := rawString([]byte(strings.TrimSpace(string(b)))); !ok || got != s {
				t.Fatalf("rawString(%q) = %q, want %q", b, got, s)
			}
		}
		var back string
		if err := json.Unmarshal(appendJSONString(nil, string(b)), &back); err != nil || back != string(b) {
			t.Fatalf("appendJSONString(%q) reads back %q, %v", b, back, err)
		}
	})
}

func TestAppendJSONStringReplacesBadUTF8(t *testing.T) {
	if got := string(appendJSONString(nil, "a\xffb<\u2028")); got != "\"a\uFFFDb<\u2028\"" {
		t.Fatalf("%q", got)
	}
}

func TestRawField(t *testing.T) {
	obj := json.RawMessage(`{"a":{"b":{"c":"x"}},"n":null}`)
	if got := stringField(obj, "a", "b", "c"); got != "x" {
		t.Fatal(got)
	}
	if rawField(obj, "a", "x", "c") != nil || rawField(obj, "n", "c") != nil || !isNull(rawField(obj, "n")) {
		t.Fatal("missing steps")
	}
}

func BenchmarkValidJSON60KB(b *testing.B) {
	rec := []byte(`{"jsonrpc":"2.0","params":{"prompt":` + string(appendJSONString(nil, strings.Repeat("a line of a long prompt\n", 2600))) + `}}`)
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		if !validJSON(rec) {
			b.Fatal()
		}
	}
}
