package main

// proxy_real_mail_test.go proves mail with every real Codex of CODEX_BINS: a
// message written as Claude Code writes it wakes the agent, which answers with
// its own atm_send, and is woken again; mail that a subagent sends goes out as its
// parent's; `atm-agent-mcp tools` is started by Codex, shown to the model, and asked
// for without an approval. It is driven as proxy_real_serve_test.go is; the scripted
// model does what it is mailed.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCodexMail(t *testing.T) {
	bins := codexBinaries(t)
	needProcFS(t)
	prog := programPath(t)
	for _, bin := range bins {
		t.Run(bin.version+"/app-server", func(t *testing.T) { mailedAgent(newCodexLab(t, bin, prog), "CALL atm_send") })
		t.Run(bin.version+"/subagents", func(t *testing.T) { mailedAgent(newCodexLab(t, bin, prog), "CALLMCP atm atm_send", "--subagents") })
		t.Run(bin.version+"/of a subagent", func(t *testing.T) { mailingSubagent(newCodexLab(t, bin, prog), "--subagents") })
		t.Run(bin.version+"/renamed", func(t *testing.T) { renamedAgent(newCodexLab(t, bin, prog), "--subagents") })
		if exec.Command(bin.path, "help", "mcp-server").Run() == nil {
			t.Run(bin.version+"/mcp-server", func(t *testing.T) { mailedAgent(mcpLab(t, bin, prog), "CALLMCP atm atm_send") })
			t.Run(bin.version+"/mcp-server/renamed", func(t *testing.T) { renamedAgent(mcpLab(t, bin, prog)) })
			t.Run(bin.version+"/mcp-server/of a subagent", func(t *testing.T) { mailingSubagent(mcpLab(t, bin, prog)) })
		}
	}
}

// mailedAgent mails an agent twice; send is how its model sends.
func mailedAgent(l *codexLab, send string, flags ...string) {
	t := l.t
	teams := filepath.Join(l.home, "atm", ".claude", "teams")
	writeTeam(t, teams, "crew", crewOf(`{"name":"team-lead"}`))
	inboxes := filepath.Join(teams, "crew", "inboxes")
	wantNil(t, os.MkdirAll(inboxes, 0o755))
	c := l.serve(map[string]any{}, append([]string{"--team", "crew"}, flags...)...)
	agent := c.call("codex", map[string]any{"prompt": "SAY ready", "identity": "worker", "sandbox": "read-only", "approval-policy": "never"}).turn().AgentID
	if !poll(c.limit, func() bool {
		return strings.Contains(readText(t, filepath.Join(teams, "crew", "config.json")), `"worker@crew"`)
	}) {
		t.Errorf("the agent is no member: %s", readText(t, filepath.Join(teams, "crew", "config.json")))
	}
	inbox, lead := filepath.Join(inboxes, "worker.json"), filepath.Join(inboxes, "team-lead.json")
	type message struct {
		From, Text string
		Read       bool
		Team       string `json:"source_team"`
		ID         string `json:"message_id"`
	}
	read := func(path string) (msgs []message) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		wantNil(t, json.Unmarshal(data, &msgs))
		return msgs
	}
	old := "[]"
	for i := range 2 {
		text := fmt.Sprintf("%s {\"to\":\"team-lead\",\"message\":\"answer %d\"}\nSAY told them", send, i)
		mail := fmt.Sprintf(`{"from":"team-lead","text":%s,"timestamp":"2026-11-21T09:1%d:30.784Z","msgV":1,"msg_id":"m%d","type":"message","read":false}`, toJSON(text), i, i)
		if old != "[]" {
			mail = "," + mail
		}
		wantNil(t, writeWhole(inbox, []byte(strings.TrimSuffix(strings.TrimSpace(old), "]")+mail+"]")))
		if !poll(c.limit, func() bool { return len(read(lead)) == i+1 }) {
			t.Fatalf("no answer %d came; the inbox has %s%s", i, readText(t, inbox), c.told())
		}
		if got := read(lead)[i]; got.From != "worker" || got.Text != fmt.Sprintf("answer %d", i) || got.Read || got.Team != "crew" || got.ID == "" {
			t.Errorf("the answer is %+v", got)
		}
		if !poll(c.limit, func() bool { return read(inbox)[i].Read }) {
			t.Errorf("message %d isn't marked read: %s", i, readText(t, inbox))
		}
		old = readText(t, inbox)
	}
	var w struct {
		Agents []struct {
			Turns []struct{ Source, Content string }
		}
	}
	if !poll(c.limit, func() bool {
		structured(c.call("agent_wait", map[string]any{"agent_id": agent, "since": 1, "timeout_secs": 30}), &w)
		return len(w.Agents[0].Turns) == 3
	}) {
		t.Fatalf("agent_wait tells %+v", w)
	}
	for _, turn := range w.Agents[0].Turns[1:] {
		if turn.Source != "mail" || turn.Content != "told them" {
			t.Errorf("a mail turn is told as %+v", turn)
		}
	}
	structured(c.call("agent_close", map[string]any{"agent_id": agent}), nil)
	if !poll(c.limit, func() bool {
		return !strings.Contains(readText(t, filepath.Join(teams, "crew", "config.json")), `"worker"`)
	}) {
		t.Errorf("the closed agent is still a member: %s", readText(t, filepath.Join(teams, "crew", "config.json")))
	}
	l.finish(c)
}

// renamedAgent is given another name while its thread is loaded: its tool server sends as the new one.
func renamedAgent(l *codexLab, flags ...string) {
	t := l.t
	teams := filepath.Join(l.home, "atm", ".claude", "teams")
	writeTeam(t, teams, "crew", crewOf(`{"name":"team-lead"}`))
	c := l.serve(map[string]any{}, append([]string{"--team", "crew"}, flags...)...)
	call := map[string]any{"sandbox": "read-only", "approval-policy": "never"}
	var names []string
	for _, name := range []string{"before", "after"} {
		call["identity"], call["prompt"] = name, `CALLMCP atm atm_send {"to":"team-lead","message":"hello"}`
		agent := c.call("codex", call).turn()
		call["agent_id"] = agent.AgentID
		var msgs []struct{ From string }
		data, err := os.ReadFile(filepath.Join(teams, "crew", "inboxes", "team-lead.json"))
		if err != nil || json.Unmarshal(data, &msgs) != nil || len(msgs) == 0 {
			t.Fatalf("%v; the turn was %+v%s", err, agent, c.told())
		}
		names = append(names, msgs[len(msgs)-1].From)
	}
	if !slices.Equal(names, []string{"before", "after"}) {
		t.Errorf("it mailed as %q", names)
	}
	l.finish(c)
}

// mailingSubagent has a model spawn an agent of Codex's own, whose model sends mail: it goes out as its parent's
// (FR-20.4), whatever identity it asks for.
func mailingSubagent(l *codexLab, flags ...string) {
	t := l.t
	teams := filepath.Join(l.home, "atm", ".claude", "teams")
	writeTeam(t, teams, "crew", crewOf(`{"name":"team-lead"}`))
	c := l.serve(map[string]any{}, append([]string{"--team", "crew"}, flags...)...)
	task := `CALLMCP atm atm_send {"to":"team-lead","message":"from below","identity":"somebody"}` + "\nSAY sent below"
	spawn := string(toJSON(map[string]any{"message": task, "task_name": "a1"}))
	agent := c.call("codex", map[string]any{"prompt": "CALL spawn_agent " + spawn + "\nCALL wait_agent {\"timeout_ms\":60000}\nSAY spawned", "identity": "worker", "sandbox": "read-only",
		"approval-policy": "never", "config": map[string]any{"features": map[string]any{"multi_agent": true, "collab": true}}}).turn()
	lead := filepath.Join(teams, "crew", "inboxes", "team-lead.json")
	var msgs []struct {
		From, Text string
		Team       string `json:"source_team"`
	}
	if !poll(c.limit, func() bool {
		data, err := os.ReadFile(lead)
		return err == nil && json.Unmarshal(data, &msgs) == nil && len(msgs) > 0
	}) {
		for _, r := range l.api.requests() {
			t.Logf("model was asked %q, has tools %q and outputs %q", clipText(r.Prompt, 200), r.Tools, r.Outputs)
		}
		t.Fatalf("nothing came of the subagent; the turn was %+v%s", agent, c.told())
	}
	if len(msgs) != 1 || msgs[0].From != "worker" || msgs[0].Text != "from below" || msgs[0].Team != "crew" {
		t.Errorf("the subagent sent %+v", msgs)
	}
	var sent []auditEntry // once it was answered
	if !poll(c.limit, func() bool {
		sent = readAudit(t, filepath.Join(l.home, "atm", ".config", "atm", "agent-sessions", "crew", "audit.jsonl"))
		sent = slices.DeleteFunc(sent, func(e auditEntry) bool { return e.Event != "atm_send" })
		return len(sent) > 0
	}) || sent[0].AgentID != agent.AgentID || sent[0].Identity != "worker" || sent[0].Recipient != "team-lead@crew" {
		t.Errorf("the call of %s is audited as %+v", agent.AgentID, sent)
	}
	l.finish(c)
}

func TestCodexToolServer(t *testing.T) {
	bins := codexBinaries(t)
	prog := programPath(t)
	for _, bin := range bins {
		t.Run(bin.version+"/app-server", func(t *testing.T) { agentWithToolServer(newCodexLab(t, bin, prog)) })
		if exec.Command(bin.path, "help", "mcp-server").Run() == nil {
			t.Run(bin.version+"/mcp-server", func(t *testing.T) { agentWithToolServer(mcpLab(t, bin, prog)) })
		}
	}
}

func agentWithToolServer(l *codexLab) {
	t := l.t
	teams := filepath.Join(l.home, "atm", ".claude", "teams")
	writeTeam(t, teams, "crew", crewOf(`{"name":"team-lead"}`))
	inboxes := filepath.Join(teams, "crew", "inboxes")
	wantNil(t, os.MkdirAll(inboxes, 0o755))
	c := l.serve(map[string]any{}, "--team", "crew")
	server := map[string]any{
		"command": l.prog, "args": []string{"tools", "--team", "crew", "--identity", "worker"},
		"env": map[string]any{"ATM_HOME": filepath.Join(l.home, "atm")}, "required": true, "default_tools_approval_mode": "approve",
	}
	// Where nothing may be written and nobody asked, mail still goes out.
	first := c.call("codex", map[string]any{
		"prompt":   `CALLMCP mymail atm_send {"to":"team-lead","message":"done with it","identity":"team-lead"}`,
		"identity": "worker", "sandbox": "read-only", "approval-policy": "never", "config": map[string]any{"mcp_servers": map[string]any{"mymail": server}},
	}).turn()
	mustContain(t, first.Content, "to team-lead@crew: delivered.", "You are worker, whatever identity is asked for.")
	sent := readText(t, filepath.Join(inboxes, "team-lead.json"))
	mustContain(t, sent, `"from": "worker"`, `"source_team": "crew"`, `"text": "done with it"`, `"read": false`)

	writeInbox(t, filepath.Join(inboxes, "worker.json"),
		`[{"from":"team-lead","text":"thanks, one more thing","timestamp":"2026-11-21T09:17:30.784Z","msgV":1,"msg_id":"5e0c","type":"message","read":false}]`)
	second := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": `CALLMCP mymail atm_read {}`}).turn()
	if !strings.Contains(second.Content, "thanks, one more thing") && !strings.Contains(second.Content, "No such messages") { // it may have been delivered as a turn
		t.Errorf("read: %s", second.Content)
	}
	third := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": `CALLMCP mymail atm_send {"to":"nobody","message":"m"}`}).turn()
	mustContain(t, third.Content, "unknown recipient", "team-lead")
	trail := readAudit(t, filepath.Join(l.home, "atm", ".config", "atm", "agent-sessions", "crew", "audit.jsonl"))
	sends := 0
	for _, e := range trail {
		if e.Event == "atm_send" {
			sends++
			if e.Identity != "worker" || e.Correlation == "" {
				t.Errorf("%+v", e)
			}
		}
	}
	if sends != 2 {
		t.Errorf("%d sends in the audit trail %+v", sends, trail)
	}
	l.finish(c)
}

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
