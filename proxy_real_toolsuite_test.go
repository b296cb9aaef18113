package main

// proxy_real_toolsuite_test.go holds `atm-agent-mcp tools` against every real
// Codex of CODEX_BINS, over both backends: that Codex starts it, shows its tools
// to the model, asks nobody for approval, and gives the model its words.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
