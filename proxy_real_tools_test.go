//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// argsServer is an MCP server with the tool atm_send, which tells how it was started.
const argsServer = `#!/bin/sh
while read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
	case "$line" in
	*'"initialize"'*) r='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
	*'"tools/list"'*) r='{"tools":[{"name":"atm_send","description":"d","inputSchema":{"type":"object","properties":{}}}]}' ;;
	*'"tools/call"'*)
		echo "$*" >> "$ATM_HOME/called"
		r='{"content":[{"type":"text","text":"'"$* ATM_HOME=$ATM_HOME in $(basename "$(pwd)")"'"}]}' ;;
	*) continue ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
`

// Every real Codex calls an agent's own tools, in both ways, without asking
// anybody, whatever the approval policy; it keeps dynamic ones over a resume, and
// a thread that was begun without any takes a server.
func TestCodexAgentTools(t *testing.T) {
	for _, bin := range codexBinaries(t) {
		t.Run(bin.version, func(t *testing.T) {
			t.Run("dynamic", func(t *testing.T) {
				l := newCodexLab(t, bin, "")
				var agent string
				l.inProcess(nil, func(w *world) {
					calls := w.giveTools()
					for _, approval := range []string{"never", "on-request"} {
						r := w.tool("codex", "prompt", `CALL atm_send {"to":"lead","identity":"boss"}`, "identity", "bob-"+approval, "approval-policy", approval, "sandbox", "read-only").ok(t)
						if got := stringField(r, "structuredContent", "content"); !strings.HasPrefix(got, "DONE: atm_send ") {
							t.Errorf("%s: %s", approval, got)
						}
						agent = stringField(r, "structuredContent", "agent_id")
					}
					r := w.tool("codex-reply", "agent_id", agent, "prompt", "CALL atm_read {}").ok(t) // a failure is one for the model, not of the turn
					if got := stringField(r, "structuredContent", "content"); !strings.HasPrefix(got, "DONE: atm_read 3") {
						t.Error(got)
					}
					if got := calls.list(); !strings.HasPrefix(got, `atm_send as bob-never auto=false {"to":"lead","identity":"boss"}`) {
						t.Error(got)
					}
				})
				l.inProcess(nil, func(w *world) {
					w.giveTools()
					r := w.tool("codex", "agent_id", agent, "prompt", `CALL atm_send {"to":"lead"}`).ok(t)
					want(t, stringField(r, "structuredContent", "content"), "DONE: atm_send 1")
				})
			})
			backends := []string{"app-server"}
			if !bin.atLeast(154) {
				backends = append(backends, "mcp-server")
			}
			for _, backend := range backends {
				t.Run("server over "+backend, func(t *testing.T) {
					l := newCodexLab(t, bin, "")
					var agent string
					l.inProcess(map[string]string{"BACKEND": backend}, func(w *world) { agent = w.agent("SAY before there were tools") })
					l.inProcess(map[string]string{"BACKEND": backend, "SUBAGENTS": "true"}, func(w *world) {
						w.giveTools()
						script := filepath.Join(l.home, "tools-server")
						if err := os.WriteFile(script, []byte(argsServer), 0o700); err != nil {
							t.Fatal(err)
						}
						w.hub.tools.server.Command = script
						called := func(r json.RawMessage, identity, id string) {
							t.Helper()
							if got := stringField(r, "structuredContent", "content"); !strings.Contains(got, "tools --team default --identity "+identity+" --agent "+id+" ATM_HOME="+l.home) {
								t.Errorf("%s: %s", identity, got)
							}
						}
						for _, approval := range []string{"never", "on-request"} {
							r := w.tool("codex", "prompt", "CALLMCP atm atm_send {}", "identity", "bob-"+approval, "approval-policy", approval, "sandbox", "read-only").ok(t)
							called(r, "bob-"+approval, stringField(r, "structuredContent", "agent_id"))
						}
						called(w.tool("codex", "agent_id", agent, "prompt", "CALLMCP atm atm_send {}").ok(t), "codex", agent)

						// A subagent has a server of its own, which acts as the parent.
						r := w.tool("codex", "prompt", `CALL spawn_agent {"message":"CALLMCP atm atm_send {}","task_name":"a1"}`, "identity", "parent", "sandbox", "read-only",
							"config", map[string]any{"features": map[string]any{"multi_agent": true, "collab": true}}).ok(t)
						line := "--identity parent --agent " + stringField(r, "structuredContent", "agent_id") + "\n"
						if !poll(waitLimit(t), func() bool {
							log, _ := os.ReadFile(filepath.Join(l.home, "atm", "called")) // not there yet
							return strings.HasSuffix(string(log), line)
						}) {
							t.Errorf("the subagent's call never came; %s", r)
						}
					})
				})
			}
		})
	}
}

// inProcess runs f with the hub and front of this process over the lab's Codex.
func (l *codexLab) inProcess(settings map[string]string, f func(w *world)) {
	t := l.t
	t.Helper()
	t.Setenv("CODEX_HOME", l.codex)
	t.Setenv("HOME", l.home)
	t.Setenv("ATM_HOME", filepath.Join(l.home, "atm"))
	env := map[string]string{"HOME": l.home, "ATM_HOME": filepath.Join(l.home, "atm"), "ATM_AGENT_MCP_CODEX_BIN": l.bin.path}
	for key, val := range settings {
		env["ATM_AGENT_MCP_"+key] = val
	}
	cfg, err := loadConfig(func(name string) string { return env[name] }, l.repo, flagValues{})
	if err != nil || len(cfg.warnings) > 0 {
		t.Fatal(err, cfg.warnings)
	}
	w := &world{t: t, began: time.Now()}
	down := w.build(cfg)
	w.hub.child.spawn = func(ctx context.Context, gone func(*childDeath)) (backend, error) {
		return codexSpawner(cfg, w.hub.log, nil, nil)(ctx, gone)
	}
	defer down()
	w.hub.tools.run, w.hub.tools.specs = nil, nil // until the test gives them
	w.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"world","version":"1"}}`).ok(t)
	f(w)
}
