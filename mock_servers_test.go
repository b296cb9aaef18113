//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shellServer is an MCP server of a few lines. It tells what it was started with
// and leaves a mark as it ends.
const shellServer = `#!/bin/sh
while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	case "$line" in
	*'"initialize"'*) r='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
	*'"tools/list"'*) r='{"tools":[{"name":"atm_send","inputSchema":{"type":"object"}},{"name":"slow","inputSchema":{"type":"object"}}]}' ;;
	*'"slow"'*) continue ;;
	*'"tools/call"'*) r='{"content":[{"type":"text","text":"'"$1 ATM_HOME=$ATM_HOME SECRET=$SECRET in $(basename "$(pwd)")"'"}],"isError":false}' ;;
	*) continue ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
: > "$2"
`

// A thread's MCP servers are started as Codex starts them: per thread, with the
// environment of their entry, and asked about unless the entry says otherwise.
func TestMockCallsMCPServers(t *testing.T) {
	t.Setenv("SECRET", "ours")
	for _, c := range []struct {
		version, approval, mode string
		asked                   bool
		want                    string
	}{
		{"0.104.0", "on-request", "", false, "DONE: bob ATM_HOME=/a SECRET= in elsewhere"},
		{"0.169.0", "on-request", "approve", false, "DONE: bob ATM_HOME=/a SECRET= in elsewhere"},
		{"0.169.0", "never", "approve", false, "DONE: bob ATM_HOME=/a SECRET= in elsewhere"},
		{"0.169.0", "never", "", false, "DONE: MCP tool call requires approval, but approval policy is never"},
		{"0.169.0", "on-request", "", true, "DONE: user rejected MCP tool call"},
	} {
		t.Run(c.version+" "+c.approval+" "+c.mode, func(t *testing.T) {
			dir := t.TempDir()
			script, mark, cwd := filepath.Join(dir, "server"), filepath.Join(dir, "ended"), filepath.Join(dir, "elsewhere")
			if err := os.WriteFile(script, []byte(shellServer), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(cwd, 0o700); err != nil {
				t.Fatal(err)
			}
			entry := map[string]any{"command": script, "args": []string{"bob", mark}, "env": map[string]string{"ATM_HOME": "/a"}, "cwd": cwd, "tool_timeout_sec": 0.5}
			if c.mode != "" {
				entry["default_tools_approval_mode"] = c.mode
			}
			r := startMock(t, c.version, "")
			r.initialize()
			th := r.thread(map[string]any{"cwd": dir, "approvalPolicy": c.approval, "sandbox": "read-only", "config": map[string]any{"mcp_servers": map[string]any{"atm": entry}}})
			r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(th, "MCPTOOL atm atm_send {}")})
			asked, answer := false, ""
			for answer == "" {
				m := r.read()
				switch stringField(m, "method") {
				case "mcpServer/elicitation/request":
					asked = true
					r.send(map[string]any{"id": rawField(m, "id"), "result": map[string]any{"action": "decline"}})
				case "item/completed":
					answer = stringField(m, "params", "item", "text")
					if stringField(m, "params", "item", "type") != "agentMessage" {
						answer = ""
					}
				}
			}
			r.until("turn/completed")
			if answer != c.want || asked != c.asked {
				t.Errorf("%q, asked %v; want %q, %v", answer, asked, c.want, c.asked)
			}
			for _, none := range []string{"MCPTOOL atm no_such {}", "MCPTOOL nobody atm_send {}"} {
				if got, _ := r.turn(th, none); !strings.HasPrefix(got, "DONE: unsupported call: mcp__") {
					t.Errorf("%s: %q", none, got)
				}
			}
			if c.mode == "approve" {
				if got, _ := r.turn(th, "MCPTOOL atm slow {}"); !strings.HasPrefix(got, "DONE: tool call error: ") {
					t.Errorf("no answer in time: %q", got)
				}
			}
			_ = r.in.Close()
			<-r.code // it waits for its servers
			if _, err := os.Stat(mark); c.mode == "approve" && err != nil && c.want[:9] == "DONE: bob" {
				t.Errorf("the server's end: %v", err)
			}
		})
	}
}
