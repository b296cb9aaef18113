package main

// codex_mail_suite_test.go proves mail with every real Codex of CODEX_BINS: a
// message written as Claude Code writes it wakes the agent, which answers with
// its own atm_send, and is woken again. The scripted model does what it is
// mailed. It is driven as codex_suite_test.go is.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCodexMail(t *testing.T) {
	bins := codexBinaries(t)
	needProcFS(t)
	prog := buildProgram(t)
	for _, bin := range bins {
		t.Run(bin.version+"/app-server", func(t *testing.T) { mailedAgent(newCodexLab(t, bin, prog), "CALL atm_send") })
		t.Run(bin.version+"/subagents", func(t *testing.T) { mailedAgent(newCodexLab(t, bin, prog), "CALLMCP atm atm_send", "--subagents") })
		if exec.Command(bin.path, "help", "mcp-server").Run() == nil {
			t.Run(bin.version+"/mcp-server", func(t *testing.T) { mailedAgent(mcpLab(t, bin, prog), "CALLMCP atm atm_send") })
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
