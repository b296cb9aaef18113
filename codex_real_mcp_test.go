package main

// codex_real_mcp_test.go proves the main job over codex mcp-server with every
// real Codex of CODEX_BINS that still has it: the rules of proxy_real_suite_test.go
// that hold over both backends, and those that only this one makes necessary.

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCodexMCPServer(t *testing.T) {
	bins := codexBinaries(t)
	needProcFS(t)
	prog := buildProgram(t)
	rules := []codexRule{
		{"a conversation", aConversation},
		{"context and instructions reach the model", contextReachesTheModel},
		{"two agents at once", twoAgentsAtOnce},
		{"a failed model is told and survived", failedModel},
		{"an approved command runs", approvedCommand},
		{"a permanent rule is what Codex proposed", permanentRule},
		{"a declined command does not end the turn", declinedCommand},
		{"nobody to ask means declined at once", nobodyToAsk},
		{"a cancelled turn's reply is nobody else's", cancelThenReply},
		{"end of input stops a running shell", endOfInput},
		{"end of input with cancelled calls leaves no process", endWithZombies},
		{"a killed proxy leaves no process and its digest", killedProxyMCP},
		{"a killed child is told to every caller", killedChild},
		{"changed settings go to a fresh thread", changedSettings},
		{"untrusted asks on every version", untrustedAsks},
		{"config.toml is nobody's but the user's", configStays},
	}
	for _, bin := range bins {
		if exec.Command(bin.path, "help", "mcp-server").Run() != nil {
			t.Run(bin.version+"/has none, and says so", func(t *testing.T) { noMCPServer(mcpLab(t, bin, prog)) })
			continue
		}
		if !bin.atLeast(148) { // later ones leave the shell to itself, and have no call that ends it
			t.Run(bin.version+"/a cancelled call stops its shell", func(t *testing.T) { cancelledCall(mcpLab(t, bin, prog)) })
		}
		for _, rule := range rules {
			t.Run(bin.version+"/"+rule.name, func(t *testing.T) { rule.run(mcpLab(t, bin, prog)) })
		}
	}
}

func mcpLab(t *testing.T, bin realCodex, prog string) *codexLab {
	l := newCodexLab(t, bin, prog)
	l.backend = "mcp-server"
	return l
}

func noMCPServer(l *codexLab) {
	c := l.serve(map[string]any{})
	if e := c.call("codex", map[string]any{"prompt": "SAY x"}).fault(-32005); !strings.Contains(e.Message, "has no mcp-server command") {
		l.t.Errorf("got %q", e.Message)
	}
	l.finish(c)
}

// cancelThenReply: a cancelled call of Codex still reads the thread, and the
// answer to the next turn comes under its id or the new one's, as it happens.
func cancelThenReply(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY ready"}).turn()
	other := c.call("codex", map[string]any{"prompt": "SAY other"}).turn()
	var slowest time.Duration
	for i := range 20 {
		hang := fmt.Sprintf("HANG %d", i)
		call := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": hang})
		l.api.await(t, hang)
		call.cancel("user")
		one := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": fmt.Sprintf("SAY mine %d", i)})
		two := c.call("codex-reply", map[string]any{"agent_id": other.AgentID, "prompt": fmt.Sprintf("SAY theirs %d", i)})
		began := time.Now()
		if r := one.turn(); r.Content != fmt.Sprintf("mine %d", i) || r.ThreadID != first.ThreadID {
			t.Errorf("reply %d after a cancel: %+v", i, r)
		}
		if took := time.Since(began); took > slowest {
			slowest = took
		}
		if r := two.turn(); r.Content != fmt.Sprintf("theirs %d", i) || r.ThreadID != other.ThreadID {
			t.Errorf("reply %d of the other agent: %+v", i, r)
		}
	}
	c.noStrays()
	t.Logf("Codex %s: 20 cancels, 20 right answers, the slowest after %v", l.bin.version, slowest)
	l.finish(c)
}

func endWithZombies(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY ready"}).turn()
	call := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "HANG on"})
	l.api.await(t, "HANG on")
	call.cancel("user")
	if r := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY usable"}).turn(); r.Content != "usable" {
		t.Errorf("after the cancel: %+v", r)
	}
	began := time.Now()
	l.finish(c)
	t.Logf("Codex %s: ended in %v with a zombie", l.bin.version, time.Since(began))
}

func killedProxyMCP(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY remember-the-answer", "identity": "keeper"}).turn()
	call := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "HANG on"})
	l.api.await(t, "HANG on")
	call.cancel("user") // its call stays open, so the end of its stdin alone would not end Codex
	c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY last-words"}).turn()
	if err := c.signal("KILL"); err != nil {
		t.Fatal(err)
	}
	if err := c.waitAllGone(c.limit); err != nil {
		t.Fatal(err)
	}
	c = l.serve(map[string]any{})
	again := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY after restart"}).turn()
	if again.AgentID != first.AgentID || again.ThreadID == first.ThreadID || again.Identity != "keeper" || again.Content != "after restart" {
		t.Errorf("after kill -9: %+v, before: %+v", again, first)
	}
	if req := l.api.await(t, "SAY after restart"); !strings.Contains(req.Prompt, "last-words") {
		t.Errorf("the model was not given the digest: %q", req.Prompt)
	}
	l.finish(c)
}

func changedSettings(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY narrow-answer", "sandbox": "read-only"}).turn()
	same := c.call("codex", map[string]any{"agent_id": first.AgentID, "prompt": "SAY same", "sandbox": "read-only"}).turn()
	if same.ThreadID != first.ThreadID {
		t.Errorf("nothing changed, but the thread did: %+v", same)
	}
	wide := c.call("codex", map[string]any{"agent_id": first.AgentID, "prompt": "SHELL echo hi > wide.txt\nSAY wide", "sandbox": "danger-full-access", "approval-policy": "never"}).turn()
	if wide.ThreadID == first.ThreadID || wide.Sandbox != "danger-full-access" || wide.Content != "wide" {
		t.Errorf("changed settings: %+v", wide)
	}
	if _, err := os.Stat(l.repo + "/wide.txt"); err != nil {
		t.Errorf("the wider sandbox does not hold: %v", err)
	}
	if at := slices.IndexFunc(l.api.requests(), func(r modelRequest) bool { return strings.Contains(r.Prompt, "Last answer:\nsame") }); at < 0 {
		t.Error("the model was not given the digest")
	}
	l.finish(c)
}

// untrustedAsks: the word is gone from 0.153's schema, and still means that
// what isn't known to be safe is asked for.
func untrustedAsks(l *codexLab) {
	t, c := l.t, l.serve(askable())
	call := c.call("codex", map[string]any{"prompt": "SHELL touch asked.txt\nSAY done", "approval-policy": "untrusted", "sandbox": "workspace-write"})
	c.reply(c.awaitAsk("elicitation/create"), map[string]any{"action": "decline"})
	if r := call.turn(); r.Approval != "untrusted" || len(r.Declined) != 1 {
		t.Errorf("turn = %+v", r)
	}
	if _, err := os.Stat(l.repo + "/asked.txt"); err == nil {
		t.Error("the declined command ran")
	}
	l.finish(c)
}
