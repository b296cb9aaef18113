package main

// proxy_real_mail_test.go proves mail with every real Codex of CODEX_BINS: a
// message written as Claude Code writes it wakes the agent, which answers with
// its own atm_send, and is woken again. The scripted model does what it is
// mailed; mail that a subagent of its own sends goes out as its parent's. It is
// driven as proxy_real_suite_test.go is.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
