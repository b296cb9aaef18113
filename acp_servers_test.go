package main

// acp_servers_test.go owns an ACP client's MCP servers: what Codex gets of them,
// their names, and what the user sees of one that fails.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestACPReadServers(t *testing.T) {
	servers, names, renamed, e := readNamed(json.RawMessage(`[
		{"name":"files","command":"/bin/files","args":["-v"],"env":[{"name":"A","value":"1"},{"name":"A","value":"2"},{"name":"B","value":""}]},
		{"type":"http","name":"web","url":"https://example.com/mcp","headers":[{"name":"Authorization","value":"Bearer x"}]},
		{"type":"stdio","name":"rel","command":"npx","args":null,"env":null,"_meta":{"x":1}},
		{"name":"My Files!","command":"x","args":[],"env":[]},
		{"name":"files","command":"y","args":[],"env":[]},
		{"name":"atm","command":"z","args":[],"env":[]},
		{"name":"db","command":"d","args":[],"env":[]},
		{"name":"äöü","command":"u","args":[],"env":[]}]`), []string{"db", "db-2"})
	if e != nil {
		t.Fatal(e)
	}
	if want := "[files web rel My_Files files-2 atm-2 db-3 server]"; fmt.Sprint(names) != want {
		t.Errorf("names %v, want %s", names, want)
	}
	if want := "map[My_Files:My Files! atm-2:atm db-3:db files-2:files server:äöü]"; fmt.Sprint(renamed) != want {
		t.Errorf("renamed %v, want %s", renamed, want)
	}
	for name, want := range map[string]string{
		"files":    `{"args":["-v"],"command":"/bin/files","env":{"A":"2","B":""}}`,
		"web":      `{"http_headers":{"Authorization":"Bearer x"},"url":"https://example.com/mcp"}`,
		"rel":      `{"args":[],"command":"npx","env":{}}`,
		"My_Files": `{"args":[],"command":"x","env":{}}`,
	} {
		if got := string(rawField(servers, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, none := range []string{``, `null`, `[]`} {
		if servers, names, _, e := readNamed(json.RawMessage(none), nil); servers != nil || names != nil || e != nil {
			t.Errorf("%q: %s %v %v", none, servers, names, e)
		}
	}
}

// readNamed is readServers, with the names that Codex gets in their order, and the
// client's own word for each that had to change.
func readNamed(raw json.RawMessage, taken []string) (json.RawMessage, []string, map[string]string, *rpcError) {
	servers, list, e := readServers(raw, taken)
	var names []string
	renamed := map[string]string{}
	for _, s := range list {
		if names = append(names, s.name); s.name != s.own {
			renamed[s.name] = s.own
		}
	}
	return servers, names, renamed, e
}

// serversNamed are MCP servers as a client writes them.
func serversNamed(names ...string) json.RawMessage {
	var list []any
	for _, name := range names {
		list = append(list, map[string]any{"name": name, "command": "x"})
	}
	return toJSON(list)
}

func TestACPBadServers(t *testing.T) {
	for raw, words := range map[string]string{
		`[7]`:                         "mcpServers[0] has no name",
		`[{"command":"x"}]`:           "mcpServers[0] has no name",
		`[{"name":"","command":"x"}]`: "mcpServers[0] has no name",
		`[{"name":"a","command":"x"},{"name":"b"}]`:                                               `mcpServers[1] "b": command is missing: it must be a string that isn't empty`,
		`[{"name":"a","command":""}]`:                                                             `"a": command`,
		`[{"name":"a","command":"x","args":"y"}]`:                                                 `"a": args must be an array of strings`,
		`[{"name":"a","command":"x","args":[7]}]`:                                                 `"a": args must be an array of strings`,
		`[{"name":"a","command":"x","env":{"A":"1"}}]`:                                            `"a": env must be an array of {name, value}, not an object`,
		`[{"name":"a","command":"x","env":[{"name":"A=B","value":"1"}]}]`:                         `"a": env has an entry without a usable name`,
		`[{"name":"a","command":"x","env":[{"name":"A"}]}]`:                                       `"a": env "A" has no usable value`,
		`[{"type":"http","name":"a"}]`:                                                            `"a": url`,
		`[{"type":"http","name":"a","url":"ftp://x/y"}]`:                                          `"a": url "ftp://x/y" is no http or https address`,
		`[{"type":"http","name":"a","url":"http://x","headers":[{"name":"X:","value":"1"}]}]`:     `"a": headers has an entry without a usable name`,
		`[{"type":"http","name":"a","url":"http://x","headers":[{"name":"X","value":"1\r\nY"}]}]`: `"a": headers "X" has no usable value`,
		`[{"type":"sse","name":"a","url":"http://x","headers":[]}]`:                               `"a": type "sse" is not supported`,
		`[{"type":"acp","name":"a","id":"x"}]`:                                                    `"a": type "acp" is none of`,
		`[{"type":7,"name":"a","command":"x"}]`:                                                   `"a": type must be a string, not a number`,
	} {
		servers, _, e := readServers(json.RawMessage(raw), nil)
		if e == nil || e.Code != codeInvalidParams || !strings.Contains(e.Message, words) || servers != nil {
			t.Errorf("%s: %s, %v; want %q", raw, servers, e, words)
		}
	}
	if _, _, e := readServers(json.RawMessage(`[{"name":"a","command":"x","env":[{"name":"A","value":["s3cret"]}]}]`), nil); e == nil || strings.Contains(e.Message, "s3cret") {
		t.Errorf("a value is shown, or taken: %v", e)
	}
}

// FuzzACPServers: whatever a client sends, Codex gets names that it takes, each
// once and none of the user's, and no word on approvals.
func FuzzACPServers(f *testing.F) {
	f.Add([]byte(`[{"name":"a b","command":"x","args":[],"env":[]},{"name":"a_b","command":"x"}]`))
	f.Add([]byte(`[{"type":"http","name":"db","url":"http://x","headers":[{"name":"A","value":"b"}],"default_tools_approval_mode":"approve"}]`))
	taken := []string{"db", "a_b"}
	takes := regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !validJSON(raw) {
			return
		}
		servers, names, renamed, e := readNamed(raw, taken)
		if e != nil {
			if e.Code != codeInvalidParams || servers != nil {
				t.Fatalf("%s: %v with %s", raw, e, servers)
			}
			return
		}
		seen := map[string]bool{ownToolServer: true}
		for _, name := range names {
			if !takes.MatchString(name) || seen[name] || slices.Contains(taken, name) {
				t.Fatalf("%s: name %q", raw, name)
			}
			seen[name] = true
			_ = eachField(rawField(servers, name), func(key string, _ json.RawMessage) bool {
				if !slices.Contains([]string{"command", "args", "env", "url", "http_headers"}, key) {
					t.Fatalf("%s: %s has %s", raw, name, key)
				}
				return true
			})
		}
		for name, own := range renamed {
			if name == own || !slices.Contains(names, name) {
				t.Fatalf("%s: %q renamed to %q", raw, own, name)
			}
		}
	})
}

// TestACPServersPending: a prompt waits until each of the client's servers has
// ended its start, but not for ever, nor for a child that is gone.
func TestACPServersPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s acpServers
		if s.starting() {
			t.Error("waits for none")
		}
		s.read(nil, nil)
		if s.starting() {
			t.Error("waits for none of the client's")
		}
		s.read(serversNamed("a", "b"), nil)
		heard := func(name, status string) { s.heard(name, status, "") }
		if !s.starting() {
			t.Error("doesn't wait for the thread to be opened")
		}
		time.Sleep(serversWait / 3)
		heard("a", "starting")
		heard("a", "ready")
		heard("users", "starting")
		time.Sleep(serversWait / 3)
		if !s.starting() {
			t.Error("doesn't wait for b, whose start began late")
		}
		heard("b", "failed")
		if s.starting() {
			t.Error("waits though each has ended")
		}
		heard("b", "starting")
		if !s.starting() {
			t.Error("doesn't wait for b that starts again")
		}
		s.forget()
		if s.starting() {
			t.Error("waits for a child that is gone")
		}
		s.read(serversNamed("a"), nil)
		heard("a", "starting")
		time.Sleep(serversWait)
		if s.starting() {
			t.Error("waits for ever")
		}
	})
}

// TestACPServerFails: one of the client's that fails is a failed tool call in
// the prompt that is open, else in the next one; the same failure once.
func TestACPServerFails(t *testing.T) {
	r := newAskRig(t, `{}`, nil)
	r.s.servers.read(serversNamed("files", "db"), []string{"db"})
	fails := func(name, why string) {
		r.s.event(agentRef{AgentID: "codex:abcd"}, 0, &event{kind: evServer, item: name, status: "failed", text: why})
	}
	told := func() (all []string) {
		_, before := r.exchange("session/nothing", "{}")
		status, title := map[string]string{}, map[string]string{}
		var ids []string
		for _, rec := range before {
			u := rawField(rec, "params", "update")
			id := stringField(u, "toolCallId")
			if title[id] == "" {
				ids = append(ids, id)
				title[id] = stringField(u, "title")
			}
			status[id] = cmp.Or(stringField(u, "status"), status[id])
		}
		for _, id := range ids {
			all = append(all, title[id]+" "+status[id])
		}
		return all
	}
	fails("users", "is the user's own")
	fails("files", "no such file")
	if got := told(); len(got) > 0 {
		t.Errorf("told %q while no prompt is open", got)
	}
	r.s.tellServers()
	want := []string{`MCP server "db" is called "db-2" here completed`, `MCP server "files" failed to start failed`}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	r.s.mu.Lock()
	r.s.queue.prompts = []*acpPrompt{{s: r.s}}
	r.s.mu.Unlock()
	fails("files", "no such file") // the thread was opened again
	fails("files", "broken pipe")  // what a server that exits says is different each time
	fails("db-2", "exit code 1")
	want = []string{`MCP server "db" failed to start failed`}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	r.s.event(agentRef{}, 0, &event{kind: evServer, item: "files", status: "ready"})
	fails("files", "no such file")
	want = []string{`MCP server "files" failed to start failed`}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	r.s.tellServers()
	if got := told(); len(got) > 0 {
		t.Errorf("told %q twice", got)
	}
}
