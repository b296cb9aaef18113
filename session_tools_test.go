package main

// session_tools_test.go holds the choice of how a thread gets its tools to its table,
// and the entry of the tool server to what Codex is told and what stays the user's.

import (
	"encoding/json"
	"testing"
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
