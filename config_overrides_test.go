package main

// config_overrides_test.go holds the trees of Codex configuration that go to
// thread/start: dotted keys are expanded, what a caller gave and what is ours are
// merged without losing either, and a contradiction is told.

import (
	"encoding/json"
	"testing"
)

func TestExpandConfig(t *testing.T) {
	for config, want := range map[string]string{
		``:                                       `null`,
		`null`:                                   `null`,
		`{}`:                                     `{}`,
		`{"features.x":true,"features":{"y":1}}`: `{"features":{"x":true,"y":1}}`,
		`{"a.\"b.c\".d":1}`:                      `{"a":{"b.c":{"d":1}}}`,
		`{"a.'b\".c'":1,"a.\"\\u0062\"":2}`:      `{"a":{"b":2,"b\".c":1}}`,
		`{"projects./home/u.trust_level":1}`:     `{"projects":{"/home/u":{"trust_level":1}}}`,
		`{"a":{"b.c":1}}`:                        `{"a":{"b.c":1}}`, // names below the top are names
		`{"a":{"b":null},"c":null,"d.e":null}`:   `{"a":{},"d":{}}`,
		`{"mcp_servers":{}}`:                     `{"mcp_servers":{}}`, // clears the user's, in Codex
		`{"a":{"b":1},"a.b":1}`:                  `{"a":{"b":1}}`,
		`{"n":1.10,"m":1e400}`:                   `{"m":1e400,"n":1.10}`,
	} {
		got, err := expandConfig(json.RawMessage(config))
		if err != nil || string(toJSON(got)) != want {
			t.Errorf("%s: %s %v, want %s", config, toJSON(got), err, want)
		}
	}
}

func TestMergeConfig(t *testing.T) {
	for _, c := range []struct{ base, over, want, err string }{
		{`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`, ""},
		{`{"a":{"x":1,"y":[1,2]}}`, `{"a":{"y":[3]}}`, `{"a":{"x":1,"y":[3]}}`, ""},
		{`{"mcp_servers":{"theirs":{"command":"t"}}}`, `{"mcp_servers":{"ours":{"command":"o"}}}`, `{"mcp_servers":{"ours":{"command":"o"},"theirs":{"command":"t"}}}`, ""},
		{`{"mcp_servers":{"s":{"command":"t","args":["x"]}}}`, `{"mcp_servers":{"s":{"url":"u"}}}`, `{"mcp_servers":{"s":{"url":"u"}}}`, ""},
		{`{"mcp_servers":{"s":{"command":"t"}}}`, `{"mcp_servers":{"s":{"enabled":false}}}`, `{"mcp_servers":{"s":{"command":"t","enabled":false}}}`, ""},
		{`{"a":{"b":1}}`, `{"a":{"b":{"c":1}}}`, ``, "a.b is a number in one and a table in the other"},
		{`{"a":{}}`, `{"a":"x"}`, ``, "a is a table in one and a string in the other"},
	} {
		base, _ := decodeConfig(json.RawMessage(c.base))
		over, _ := decodeConfig(json.RawMessage(c.over))
		before := string(toJSON(base)) + string(toJSON(over))
		got, err := mergeConfig(base, over)
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%s + %s: %v", c.base, c.over, err)
			}
		case err != nil || string(toJSON(got)) != c.want:
			t.Errorf("%s + %s: %s %v", c.base, c.over, toJSON(got), err)
		}
		if string(toJSON(base))+string(toJSON(over)) != before {
			t.Errorf("merging changed %s", before)
		}
	}
	if got, err := mergeConfig(nil, nil); err != nil || got == nil {
		t.Errorf("nothing and nothing: %v %v", got, err)
	}
	deep := func() map[string]any {
		t := map[string]any{}
		for range 100 {
			t = map[string]any{"x": t}
		}
		return t
	}
	if _, err := mergeConfig(deep(), deep()); err == nil {
		t.Error("no bound on depth")
	}
}
