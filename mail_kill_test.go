package main

// mail_kill_test.go holds automatic mail to at-least-once: serve is killed at
// points of its protocol while mail comes, and nothing of that is lost. What
// the mock Codex was sent is in its log, what was marked in the inbox.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// mailVictim is a serve that is to be killed.
type mailVictim struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	ids   int
	fault json.RawMessage // of the last request, nil for none
}

func startMailVictim(t *testing.T, env []string) *mailVictim {
	t.Helper()
	path, err := exec.LookPath("atm-agent-mcp") // testscript.Main made it, and codex beside it
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", "--log-level", "error")
	cmd.Env = append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v := &mailVictim{t: t, cmd: cmd, in: in, lines: bufio.NewScanner(out)}
	v.lines.Buffer(nil, 1<<20)
	dog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { dog.Stop(); v.kill() })
	v.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "victim", "version": "1"}})
	return v
}

func (v *mailVictim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// request waits for its answer.
func (v *mailVictim) request(method string, params any) json.RawMessage {
	v.t.Helper()
	v.ids++
	if _, err := v.in.Write(append(toJSON(map[string]any{"jsonrpc": "2.0", "id": v.ids, "method": method, "params": params}), '\n')); err != nil {
		v.t.Fatal(err)
	}
	for v.lines.Scan() {
		if line := v.lines.Bytes(); string(rawField(line, "id")) == fmt.Sprint(v.ids) {
			v.fault = bytes.Clone(rawField(line, "error"))
			return bytes.Clone(rawField(line, "result", "structuredContent"))
		}
	}
	v.t.Fatalf("no answer to %s: %v", method, v.lines.Err())
	return nil
}

func (v *mailVictim) tool(name string, args map[string]any) json.RawMessage {
	v.t.Helper()
	return v.request("tools/call", map[string]any{"name": name, "arguments": args})
}

// Servers that all start agents at once have each of them in the team when its first
// answer comes, though they wait for each other's locks.
func TestFirstAnswerComesFromAMember(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "ATM_HOME=" + home, "CODEX_HOME=" + home, "MOCK_CODEX_VERSION=", "GORACE=atexit_sleep_ms=10"}
	path := writeTeam(t, filepath.Join(home, ".claude", "teams"), "default", `{"name":"default","members":[]}`)
	const servers, agents = 4, 5
	var wg sync.WaitGroup
	for i := range servers {
		v := startMailVictim(t, env)
		wg.Go(func() {
			for j := range agents {
				name := fmt.Sprintf("agent-%d-%d", i, j)
				v.tool("codex", map[string]any{"identity": name, "prompt": "SAY hello"})
				if data, err := os.ReadFile(path); err != nil || !bytes.Contains(data, []byte(`"`+name+`"`)) {
					t.Errorf("%s has answered and is no member: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestMailDeliveryKill: kill -9 after a number of records that goes through all of
// a mail turn, a message in each round. All of them reach Codex, are marked read,
// and none that was marked is delivered again.
func TestMailDeliveryKill(t *testing.T) {
	home := t.TempDir()
	log := filepath.Join(home, "codex.log")
	team := filepath.Join(home, ".claude", "teams", "default")
	env := []string{"HOME=" + home, "ATM_HOME=" + home, "CODEX_HOME=" + home, "MOCK_CODEX_LOG=" + log, "MOCK_CODEX_VERSION=", "GORACE=atexit_sleep_ms=10",
		"ATM_AGENT_MCP_MAIL_POLL_INTERVAL_MS=100", "ATM_AGENT_MCP_MAX_MAIL_MESSAGES=3"}
	if err := os.MkdirAll(filepath.Join(team, "inboxes"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(team, "config.json"), []byte(`{"name":"default","members":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	box := newInboxes(filepath.Dir(team), "", newLockNotes(filepath.Join(home, ".config", "atm", "agent-sessions")), nil, slog.New(slog.DiscardHandler))
	sent := func() map[string]int {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, turn := range strings.Split(deliveredIn(data), " | ") {
			for _, m := range strings.Split(turn, "; ") {
				got[m]++
			}
		}
		return got
	}
	unread := func() int {
		n, err := box.count(t.Context(), "default", "ann")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	v := startMailVictim(t, env)
	agent := stringField(v.tool("codex", map[string]any{"identity": "ann", "prompt": "SAY hello"}), "agent_id")
	rounds, total, again := 0, 0, 0
	for round := 0; round < 24; round += pick(5, 1) { // as many records later
		rounds++
		for range 1 + round%3 { // while it runs: each is a change to be noticed
			_, _, err := box.send(t.Context(), "default", "ann", mailMessage{From: "lead", Text: fmt.Sprint(total)})
			if err != nil {
				t.Fatal(err)
			}
			total++
		}
		for range round { // records of the mail turns; the first rounds are killed before any
			if round < 18 && !v.lines.Scan() {
				t.Fatal("serve ended by itself")
			}
		}
		v.kill()
		read := map[string]bool{}
		all, _, err := box.list(t.Context(), "default", "ann", mailFilter{All: true})
		if err != nil || len(all) != total {
			t.Fatalf("round %d: the inbox has %d messages, want %d: %v", round, len(all), total, err)
		}
		before := sent()
		for _, m := range all {
			if read["lead: "+m.Text] = m.Read; m.Read && before["lead: "+m.Text] == 0 {
				t.Fatalf("round %d: message %s was marked read and never delivered", round, m.Text)
			}
		}
		v = startMailVictim(t, env)
		v.tool("codex", map[string]any{"agent_id": agent})
		if !poll(waitLimit(t), func() bool { return unread() == 0 }) {
			t.Fatalf("round %d: %d messages stay unread", round, unread())
		}
		for text, n := range sent() {
			if read[text] && n > before[text] {
				t.Errorf("round %d: %q was delivered again after it was acknowledged", round, text)
			}
		}
	}
	got := sent()
	for i := range total {
		n := got[fmt.Sprintf("lead: %d", i)]
		if n == 0 {
			t.Errorf("message %d was lost", i)
		}
		again += n - 1
	}
	t.Logf("%d kills, %d messages, %d delivered again", rounds, total, again)
}
