package main

// proxy_real_mail_test.go proves mail with every real Codex of CODEX_BINS: a message written as Claude Code writes it
// wakes the agent, which answers with its own atm_send, and is woken again; mail that a subagent sends goes out as its
// parent's; `atm-agent-mcp tools` is started by Codex, shown to the model, and asked for without an approval. It is
// driven as proxy_real_serve_test.go is; the scripted model does what it is mailed.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCodexMail(t *testing.T) {
	rules := []codexRule{
		{"app-server", func(l *codexLab) { mailedAgent(l, "CALL atm_send") }},
		{"subagents", func(l *codexLab) { mailedAgent(l, "CALLMCP atm atm_send", "--subagents") }},
		{"of a subagent", func(l *codexLab) { mailingSubagent(l, "--subagents") }},
		{"renamed", func(l *codexLab) { renamedAgent(l, "--subagents") }},
		{"tool server", agentWithToolServer},
	}
	for name, run := range map[string]func(*codexLab){
		"mailed":        func(l *codexLab) { mailedAgent(l, "CALLMCP atm atm_send") },
		"renamed":       func(l *codexLab) { renamedAgent(l) },
		"of a subagent": func(l *codexLab) { mailingSubagent(l) },
		"tool server":   agentWithToolServer,
	} {
		rules = append(rules, codexRule{"mcp-server " + name, func(l *codexLab) {
			if l.backend = "mcp-server"; l.bin.hasMCPServer() {
				run(l)
			}
		}})
	}
	runCodexRules(t, rules)
}

// mailed is a message of an inbox file.
type mailed struct {
	From, Text string
	Read       bool
	Team       string `json:"source_team"`
	ID         string `json:"message_id"`
}

// crew makes a team of a lead, serves it, and tells where its inboxes are.
func (l *codexLab) crew(flags ...string) (c *testClient, inboxes string) {
	l.t.Helper()
	teams := filepath.Join(l.home, "atm", ".claude", "teams")
	writeTeam(l.t, teams, "crew", crewOf(`{"name":"team-lead"}`))
	inboxes = filepath.Join(teams, "crew", "inboxes")
	wantNil(l.t, os.MkdirAll(inboxes, 0o755))
	return l.serve(map[string]any{}, append([]string{"--team", "crew"}, flags...)...), inboxes
}

// inboxOf reads an inbox, which may not be there yet.
func (l *codexLab) inboxOf(inboxes, name string) (msgs []mailed) {
	l.t.Helper()
	if data, err := os.ReadFile(filepath.Join(inboxes, name+".json")); err == nil {
		wantNil(l.t, json.Unmarshal(data, &msgs))
	}
	return msgs
}

// sends are the audited atm_send of the crew.
func (l *codexLab) sends() []auditEntry {
	l.t.Helper()
	all := readAudit(l.t, filepath.Join(l.home, "atm", ".config", "atm", "agent-sessions", "crew", "audit.jsonl"))
	return slices.DeleteFunc(all, func(e auditEntry) bool { return e.Event != "atm_send" })
}

// mailedAgent mails an agent twice; send is how its model sends.
func mailedAgent(l *codexLab, send string, flags ...string) {
	t := l.t
	c, inboxes := l.crew(flags...)
	config := filepath.Join(filepath.Dir(inboxes), "config.json")
	agent := c.codex("SAY ready", "identity", "worker", "sandbox", "read-only", "approval-policy",
		"never").turn().AgentID
	if !poll(c.limit, func() bool { return strings.Contains(readText(t, config), `"worker@crew"`) }) {
		t.Errorf("the agent is no member: %s", readText(t, config))
	}
	inbox, old := filepath.Join(inboxes, "worker.json"), "[\n]"
	for i := range 2 {
		text := fmt.Sprintf("%s {\"to\":\"team-lead\",\"message\":\"answer %d\"}\nSAY told them", send, i)
		mail := fmt.Sprintf(`{"from":"team-lead","text":%s,"timestamp":"2026-11-21T09:1%d:30.784Z","msgV":1,"msg_id":"m%d","type":"message","read":false}]`, toJSON(text), i, i)
		if i > 0 {
			mail = "," + mail
		}
		wantNil(t, writeWhole(inbox, []byte(strings.TrimSuffix(strings.TrimSpace(old), "]")+mail)))
		if !poll(c.limit, func() bool { return len(l.inboxOf(inboxes, "team-lead")) == i+1 }) {
			t.Fatalf("no answer %d came; the inbox has %s%s", i, readText(t, inbox), c.told())
		}
		if got := l.inboxOf(inboxes, "team-lead")[i]; got.From != "worker" ||
			got.Text != fmt.Sprintf("answer %d", i) || got.Read || got.Team != "crew" || got.ID == "" {
			t.Errorf("the answer is %+v", got)
		}
		if !poll(c.limit, func() bool { return l.inboxOf(inboxes, "worker")[i].Read }) {
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
		want(t, turn.Source+": "+turn.Content, "mail: told them")
	}
	structured(c.call("agent_close", map[string]any{"agent_id": agent}), nil)
	if !poll(c.limit, func() bool { return !strings.Contains(readText(t, config), `"worker"`) }) {
		t.Errorf("the closed agent is still a member: %s", readText(t, config))
	}
	l.finish(c)
}

// renamedAgent is given another name while its thread is loaded: its tool server sends as the new one.
func renamedAgent(l *codexLab, flags ...string) {
	c, inboxes := l.crew(flags...)
	send := `CALLMCP atm atm_send {"to":"team-lead","message":"hello"}`
	agent := c.codex(send, "identity", "before", "sandbox", "read-only", "approval-policy", "never").turn().AgentID
	c.codex(send, "identity", "after", "sandbox", "read-only", "approval-policy", "never", "agent_id", agent).turn()
	if got := l.inboxOf(inboxes, "team-lead"); len(got) != 2 || got[0].From != "before" || got[1].From != "after" {
		l.t.Errorf("it mailed %+v%s", got, c.told())
	}
	l.finish(c)
}

// teamOfCodex has a Codex spawn agents of its own.
func teamOfCodex() any {
	return map[string]any{"features": map[string]any{"multi_agent": true, "collab": true}}
}

// mailingSubagent has a model spawn an agent of Codex's own, whose model sends mail: it goes out as its parent's
// (FR-20.4), whatever identity it asks for.
func mailingSubagent(l *codexLab, flags ...string) {
	t := l.t
	c, inboxes := l.crew(flags...)
	task := `CALLMCP atm atm_send {"to":"team-lead","message":"from below","identity":"somebody"}` + "\nSAY sent below"
	spawn := compact(map[string]any{"message": task, "task_name": "a1"})
	agent := c.codex("CALL spawn_agent "+spawn+"\nCALL wait_agent {\"timeout_ms\":60000}\nSAY spawned", "identity",
		"worker",
		"sandbox", "read-only", "approval-policy", "never", "config", teamOfCodex()).turn()
	if !poll(c.limit, func() bool { return len(l.inboxOf(inboxes, "team-lead")) > 0 }) {
		for _, r := range l.api.requests() {
			t.Logf("model was asked %q, has tools %q and outputs %q", clipText(r.Prompt, 200), r.Tools, r.Outputs)
		}
		t.Fatalf("nothing came of the subagent; the turn was %+v%s", agent, c.told())
	}
	if msgs := l.inboxOf(inboxes, "team-lead"); len(msgs) != 1 || msgs[0].From != "worker" ||
		msgs[0].Text != "from below" || msgs[0].Team != "crew" {
		t.Errorf("the subagent sent %+v", msgs)
	}
	if !poll(c.limit, func() bool { return len(l.sends()) > 0 }) { // once it was answered
		t.Fatal("the call is not audited")
	}
	if e := l.sends()[0]; e.AgentID != agent.AgentID || e.Identity != "worker" || e.Recipient != "team-lead@crew" {
		t.Errorf("the call of %s is audited as %+v", agent.AgentID, e)
	}
	l.finish(c)
}

// agentWithToolServer: where nothing may be written and nobody asked, mail still goes out.
func agentWithToolServer(l *codexLab) {
	t := l.t
	c, inboxes := l.crew()
	server := map[string]any{
		"command": l.prog, "args": []string{"tools", "--team", "crew", "--identity", "worker"},
		"env": map[string]any{"ATM_HOME": filepath.Join(l.home,
			"atm")}, "required": true, "default_tools_approval_mode": "approve",
	}
	first := c.codex(`CALLMCP mymail atm_send {"to":"team-lead","message":"done with it","identity":"team-lead"}`,
		"identity", "worker", "sandbox", "read-only", "approval-policy", "never",
		"config", map[string]any{"mcp_servers": map[string]any{"mymail": server}}).turn()
	mustContain(t, first.Content, "to team-lead@crew: delivered.", "You are worker, whatever identity is asked for.")
	if got := l.inboxOf(inboxes, "team-lead"); len(got) != 1 || got[0].From != "worker" || got[0].Team != "crew" ||
		got[0].Text != "done with it" || got[0].Read {
		t.Errorf("sent %+v", got)
	}
	writeInbox(t, filepath.Join(inboxes, "worker.json"),
		`[{"from":"team-lead","text":"thanks, one more thing","timestamp":"2026-11-21T09:17:30.784Z","msgV":1,"msg_id":"5e0c","type":"message","read":false}]`)
	second := c.again(first.AgentID, `CALLMCP mymail atm_read {}`).turn()
	// it may have been delivered as a turn
	if !strings.Contains(second.Content, "thanks, one more thing") &&
		!strings.Contains(second.Content, "No such messages") {
		t.Errorf("read: %s", second.Content)
	}
	third := c.again(first.AgentID, `CALLMCP mymail atm_send {"to":"nobody","message":"m"}`).turn()
	mustContain(t, third.Content, "unknown recipient", "team-lead")
	sends := l.sends()
	if len(sends) != 2 || slices.ContainsFunc(sends, func(e auditEntry) bool {
		return e.Identity != "worker" ||
			e.Correlation == ""
	}) {
		t.Errorf("the sends in the audit trail are %+v", sends)
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

// Every real Codex calls an agent's own tools, in both ways, without asking anybody, whatever the approval policy; it
// keeps dynamic ones over a resume, and a thread that was begun without any takes a server.
func TestCodexAgentTools(t *testing.T) {
	runCodexRules(t, []codexRule{
		{"dynamic tools", ownDynamicTools},
		{"server over app-server", func(l *codexLab) { ownServerTools(l, "app-server") }},
		{"server over mcp-server", func(l *codexLab) {
			if l.bin.hasMCPServer() {
				ownServerTools(l, "mcp-server")
			}
		}},
	})
}

func ownDynamicTools(l *codexLab) {
	t, agent := l.t, ""
	content := func(r json.RawMessage) string { return stringField(r, "structuredContent", "content") }
	l.inProcess(nil, func(w *world) {
		calls := w.giveTools()
		for _, approval := range []string{"never", "on-request"} {
			r := w.tool("codex", "prompt", `CALL atm_send {"to":"lead","identity":"boss"}`, "identity", "bob-"+approval,
				"approval-policy", approval, "sandbox", "read-only").ok(t)
			mustContain(t, content(r), "DONE: atm_send ")
			agent = stringField(r, "structuredContent", "agent_id")
		}
		// a failure is one for the model, not of the turn
		r := w.tool("codex-reply", "agent_id", agent, "prompt", "CALL atm_read {}").ok(t)
		mustContain(t, content(r), "DONE: atm_read 3")
		mustContain(t, calls.list(), `atm_send as bob-never auto=false {"to":"lead","identity":"boss"}`)
	})
	l.inProcess(nil, func(w *world) {
		w.giveTools()
		want(t, content(w.tool("codex", "agent_id", agent, "prompt", `CALL atm_send {"to":"lead"}`).ok(t)),
			"DONE: atm_send 1")
	})
}

func ownServerTools(l *codexLab, backend string) {
	t, agent := l.t, ""
	l.inProcess(map[string]string{"BACKEND": backend},
		func(w *world) { agent = w.agent("SAY before there were tools") })
	l.inProcess(map[string]string{"BACKEND": backend, "SUBAGENTS": "true"}, func(w *world) {
		w.giveTools()
		script := filepath.Join(l.home, "tools-server")
		wantNil(t, os.WriteFile(script, []byte(argsServer), 0o700))
		w.hub.tools.server.Command = script
		called := func(identity string, args ...any) {
			t.Helper()
			r := rawField(w.tool("codex", append(args, "prompt", "CALLMCP atm atm_send {}")...).ok(t),
				"structuredContent")
			mustContain(t, stringField(r, "content"),
				"tools --team default --identity "+identity+" --agent "+stringField(r, "agent_id")+" ATM_HOME="+l.home)
		}
		called("bob-never", "identity", "bob-never", "approval-policy", "never", "sandbox", "read-only")
		called("bob-asked", "identity", "bob-asked", "approval-policy", "on-request", "sandbox", "read-only")
		called("codex", "agent_id", agent)

		// A subagent has a server of its own, which acts as the parent.
		r := w.tool("codex", "prompt", `CALL spawn_agent {"message":"CALLMCP atm atm_send {}","task_name":"a1"}`,
			"identity", "parent", "sandbox", "read-only", "config", teamOfCodex()).ok(t)
		line := "--identity parent --agent " + stringField(r, "structuredContent", "agent_id") + "\n"
		if !poll(waitLimit(t), func() bool {
			log, _ := os.ReadFile(filepath.Join(l.home, "atm", "called")) // not there yet
			return strings.HasSuffix(string(log), line)
		}) {
			t.Errorf("the subagent's call never came; %s", r)
		}
	})
}

// inProcess runs f with the hub and front of this process over the lab's Codex.
func (l *codexLab) inProcess(settings map[string]string, f func(w *world)) {
	t := l.t
	t.Helper()
	t.Setenv("CODEX_HOME", l.codex)
	t.Setenv("HOME", l.home)
	t.Setenv("ATM_HOME", filepath.Join(l.home, "atm"))
	env := map[string]string{"HOME": l.home, "ATM_HOME": filepath.Join(l.home, "atm"),
		"ATM_AGENT_MCP_CODEX_BIN": l.bin.path}
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
		return codexSpawner(cfg, w.hub.log, nil, childHooks{})(ctx, gone)
	}
	defer down()
	w.hub.tools.run, w.hub.tools.specs = nil, nil // until the test gives them
	w.request("initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"world","version":"1"}}`).ok(t)
	f(w)
}
