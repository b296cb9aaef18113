package main

// session_tools_test.go holds the choice of how a thread gets its tools to its table, the entry of the tool server to
// what Codex is told and what stays the user's, and, in the world of session_world_test.go, an agent's calls of its own
// tools to being answered once, in their order, as the session's identity.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestToolsWay(t *testing.T) {
	app, mcp := backendInfo{clientTools: true}, backendInfo{}
	for _, c := range []struct {
		rule      string
		info      backendInfo
		resumed   bool
		kept      string
		subagents bool
		want      string
	}{
		{"a new thread has its own", app, false, "", false, toolsDynamic},
		{"subagents have none but their parent's servers", app, false, "", true, toolsServer},
		{"mcp-server takes none", mcp, false, "", false, toolsServer},
		{"what a thread was started with stays", app, true, toolsDynamic, true, toolsDynamic},
		{"a server is not kept by Codex", app, true, toolsServer, false, toolsServer},
		{"a thread from before is given a server", app, true, "", false, toolsServer},
		{"a thread that moves to mcp-server", mcp, true, toolsDynamic, false, toolsServer},
	} {
		if got := toolsWay(c.info, c.resumed, c.kept, c.subagents); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

func TestToolServerEntry(t *testing.T) {
	e := newToolServerEntry("/bin/aam", "/repo", "/etc/atm.toml", []string{"HOME=/h", "ATM_HOME=/a", "CLAUDE_CONFIG_DIR=/c", "ATM_IDENTITY=lead",
		"ATM_CONFIG=old.toml", "OPENAI_API_KEY=secret", "ATM_TEAM=x=y", "MATM_X=1"})
	sameJSON(t, toJSON(e.of("t1", "bob", "codex:abc")), `{"command":"/bin/aam","args":["tools","--team","t1","--identity","bob","--agent","codex:abc"],
		"env":{"ATM_HOME":"/a","CLAUDE_CONFIG_DIR":"/c","ATM_CONFIG":"/etc/atm.toml","ATM_TEAM":"x=y"},"cwd":"/repo",
		"startup_timeout_sec":20,"tool_timeout_sec":60,"default_tools_approval_mode":"approve"}`)
	if e.Args != nil {
		t.Error("one agent's arguments are in another's entry")
	}
}

// Nobody's server is lost, and none is mixed with ours.
func TestWithToolServer(t *testing.T) {
	entry := toolServerEntry{Command: "aam"}.of("t", "bob", "a")
	const ours = `{"command":"aam","args":["tools","--team","t","--identity","bob","--agent","a"],"startup_timeout_sec":0,"tool_timeout_sec":0,"default_tools_approval_mode":""}`
	for _, c := range []struct{ rule, config, user, want string }{
		{"none so far", ``, `{}`, `{"mcp_servers":{"atm":` + ours + `}}`},
		{"the caller's stay, with every number as it was", `{"x":1.10,"mcp_servers":{"docs":{"command":"d"}}}`, `null`, `{"x":1.10,"mcp_servers":{"docs":{"command":"d"},"atm":` + ours + `}}`},
		{"the caller's own atm", `{"mcp_servers":{"atm":{"url":"u"}}}`, `{}`, `{"mcp_servers":{"atm":{"url":"u"},"atm_agent_2":` + ours + `}}`},
		{"the user's own atm", ``, `{"mcp_servers":{"atm":{"command":"x"},"atm_agent_2":{"command":"y"}}}`, `{"mcp_servers":{"atm_agent_3":` + ours + `}}`},
	} {
		var user map[string]any
		if err := json.Unmarshal([]byte(c.user), &user); err != nil {
			t.Fatal(err)
		}
		got, err := withToolServer(json.RawMessage(c.config), user, entry)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.rule, func(t *testing.T) { sameJSON(t, got, c.want) })
	}
	if _, err := withToolServer(json.RawMessage(`{"mcp_servers":5}`), nil, entry); err == nil {
		t.Error("a configuration without room for a server was taken")
	}
}

// toolCalls records what the hub's agents called.
type toolCalls struct {
	mu   sync.Mutex // guards the fields below
	said []string
	ends []error
}

// giveTools gives a world's agents the tool atm_send, which takes as long as its
// argument wait says, and atm_read, which fails.
func (w *world) giveTools() *toolCalls {
	calls := &toolCalls{}
	w.hub.tools.specs = []clientTool{{Name: "atm_send", Description: "send"}, {Name: "atm_read", Description: "read"}}
	w.hub.tools.run = func(ctx context.Context, agentID, identity, correlation string, auto bool, tool string, args json.RawMessage) (string, bool) {
		var a struct{ Wait float64 }
		if err := json.Unmarshal(args, &a); err != nil {
			return err.Error(), false
		}
		var err error
		select {
		case <-time.After(time.Duration(a.Wait * float64(time.Second))):
		case <-ctx.Done():
			err = ctx.Err()
		}
		calls.mu.Lock()
		defer calls.mu.Unlock()
		if correlation == "" {
			w.t.Error("a call without correlation id")
		}
		calls.said = append(calls.said, fmt.Sprintf("%s as %s auto=%v %s", tool, identity, auto, args))
		calls.ends = append(calls.ends, err)
		return fmt.Sprintf("%s %d", tool, len(calls.said)), tool == "atm_send"
	}
	return calls
}

func (c *toolCalls) list() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.said, "\n")
}

// An agent's call is answered as the session's own identity, whatever it claims.
func TestWorldAgentCallsItsTools(t *testing.T) {
	inWorld(t, nil, `{}`, func(w *world) {
		calls := w.giveTools()
		r := w.tool("codex", "prompt", `TOOL atm_send {"to":"lead","identity":"boss","agent_id":"codex:other"}`, "identity", "bob", "cwd", t.TempDir()).ok(t)
		want(t, stringField(r, "structuredContent", "content"), "DONE: atm_send 1")
		agent := stringField(r, "structuredContent", "agent_id")
		r = w.tool("codex-reply", "agent_id", agent, "prompt", "TOOL atm_read {}\nTOOL no_such {}").ok(t)
		want(t, stringField(r, "structuredContent", "content"), "DONE: unsupported call: no_such") // Codex's own word
		want(t, calls.list(), `atm_send as bob auto=false {"to":"lead","identity":"boss","agent_id":"codex:other"}
atm_read as bob auto=false {}`)

		// Codex keeps a thread's tools, though we may have one less by now.
		w.hub.tools.specs = w.hub.tools.specs[:1]
		r = w.tool("codex-reply", "agent_id", agent, "prompt", "TOOL atm_read {}").ok(t)
		want(t, stringField(r, "structuredContent", "content"), `DONE: there is no tool "atm_read" any more`)
	})
}

// Calls that come at once are done one after the other, in their order.
func TestWorldToolsKeepTheirOrder(t *testing.T) {
	inWorld(t, nil, `{}`, func(w *world) {
		calls := w.giveTools()
		began := w.now()
		r := w.tool("codex", "prompt", `TOOLS atm_send {"wait":3} ;; atm_send {"wait":1} ;; atm_read {}`, "cwd", t.TempDir()).ok(t)
		want(t, stringField(r, "structuredContent", "content"), "DONE: atm_send 1 | atm_send 2 | atm_read 3")
		want(t, calls.list(), `atm_send as codex auto=false {"wait":3}
atm_send as codex auto=false {"wait":1}
atm_read as codex auto=false {}`)
		about(t, "three calls", w.now()-began, 4*time.Second)

		many := strings.Repeat(`atm_send {"wait":0.001} ;; `, maxAgentCalls+8) + "atm_send {}"
		w.tool("codex", "prompt", "TOOLS "+many, "cwd", t.TempDir()).ok(t)
		if got := len(calls.said) - 3; got != 1+maxAgentCalls { // the others were told that there are too many
			t.Errorf("%d calls were done", got)
		}
	})
}

// A tool that takes its time is not Codex's silence; Codex's own is, after it.
func TestWorldToolIsNotSilence(t *testing.T) {
	inWorld(t, map[string]string{"request_timeout_secs": "10"}, `{}`, func(w *world) {
		w.giveTools()
		r := w.tool("codex", "prompt", `TOOL atm_send {"wait":35}`, "cwd", t.TempDir()).ok(t)
		want(t, stringField(r, "structuredContent", "content"), "DONE: atm_send 1")
		began := w.now()
		w.tool("codex", "prompt", "TOOL atm_send {\"wait\":15}\nHANG", "cwd", t.TempDir()).fails(t, codeTimeout, "said nothing for 10s")
		about(t, "a call of 15 s and 10 s of silence", w.now()-began, 25*time.Second)
	})
}

// What runs when the session ends is told so, and holds nothing up.
func TestWorldCloseWhileAToolRuns(t *testing.T) {
	inWorld(t, nil, `{}`, func(w *world) {
		calls := w.giveTools()
		agent := w.agent("hello")
		turn := w.tool("codex-reply", "agent_id", agent, "prompt", `TOOL atm_send {"wait":45}`)
		time.Sleep(time.Second)
		v := w.tool("agent_status").ok(t)
		if s := string(v); !strings.Contains(s, "calling atm_send") {
			t.Errorf("status while it calls: %s", s)
		}
		began := w.now()
		w.tool("agent_close", "agent_id", agent).ok(t)
		about(t, "the close", w.now()-began, 0)
		turn.wait()
		time.Sleep(time.Millisecond)
		if len(calls.ends) != 1 || !errors.Is(calls.ends[0], context.Canceled) {
			t.Errorf("the tool ended with %v", calls.ends)
		}
	})
}

// How a thread gets its tools: its own, or a server where subagents want them;
// and a record tells which, so that a resume needs no guess.
func TestWorldWaysOfTools(t *testing.T) {
	type opened struct {
		tools  bool
		server string
		mail   bool
	}
	last := func(t *testing.T, w *world, method string) (o opened) {
		t.Helper()
		p := w.lastSent(method)
		o.tools = rawField(p, "dynamicTools") != nil
		o.server = stringField(p, "config", "mcp_servers", "atm", "default_tools_approval_mode")
		o.mail = strings.Contains(stringField(p, "developerInstructions"), "<team-mail>")
		return o
	}
	t.Run("dynamic", func(t *testing.T) {
		inWorld(t, nil, `{}`, func(w *world) {
			w.giveTools()
			agent := w.agent("hello")
			if o := last(t, w, "thread/start"); o != (opened{true, "", true}) {
				t.Errorf("start: %+v", o)
			}
			want(t, w.record(agent).Tools, toolsDynamic)
			w.tool("agent_close", "agent_id", agent).ok(t)
			r := w.tool("codex", "agent_id", agent, "prompt", `TOOL atm_send {}`).ok(t)
			want(t, stringField(r, "structuredContent", "content"), "DONE: atm_send 1") // Codex has kept it
			if o := last(t, w, "thread/resume"); o.tools || o.server != "" {
				t.Errorf("resume: %+v", o)
			}
		})
	})
	t.Run("server", func(t *testing.T) {
		inWorld(t, map[string]string{"subagents": "true"}, `{}`, func(w *world) {
			w.giveTools()
			agent := w.agent("hello")
			if o := last(t, w, "thread/start"); o != (opened{false, "approve", true}) {
				t.Errorf("start: %+v", o)
			}
			args := rawField(w.lastSent("thread/start"), "config", "mcp_servers", "atm", "args")
			sameJSON(t, args, fmt.Sprintf(`["tools","--team","default","--identity","codex","--agent",%q]`, agent))
			want(t, w.record(agent).Tools, toolsServer)
			w.tool("agent_close", "agent_id", agent).ok(t)
			w.tool("codex", "agent_id", agent, "prompt", "hi").ok(t)
			if o := last(t, w, "thread/resume"); o.tools || o.server != "approve" {
				t.Errorf("resume: %+v", o)
			}
		})
	})
	t.Run("without tools", func(t *testing.T) {
		inWorld(t, nil, `{}`, func(w *world) {
			w.hub.tools.run, w.hub.tools.specs = nil, nil
			agent := w.agent("hello")
			if o := last(t, w, "thread/start"); o != (opened{}) {
				t.Errorf("start: %+v", o)
			}
			w.tool("agent_close", "agent_id", agent).ok(t)
			w.giveTools() // as a version of ours that has them takes over
			w.tool("codex", "agent_id", agent, "prompt", "hi").ok(t)
			if o := last(t, w, "thread/resume"); o.tools || o.server != "approve" {
				t.Errorf("resume: %+v", o)
			}
			want(t, w.record(agent).Tools, toolsServer)
		})
	})
}

// lastSent are the params of the newest request of that method that Codex got.
func (w *world) lastSent(method string) (params json.RawMessage) {
	w.t.Helper()
	data, err := os.ReadFile(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if stringField([]byte(line), "method") == method {
			params = rawField([]byte(line), "params")
		}
	}
	return params
}
