package main

// proxy_shutdown_test.go ends the program, as it is installed, with ten agents at work
// whose shells run, by each way a client has (FR-7): everybody who waits is
// answered once, records say how things stand, no name is held and no process
// is left. proxy_client_test.go has the client.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestShutdownOfTenBusyAgents(t *testing.T) {
	t.Parallel()
	needProcFS(t)
	bin := programPath(t)
	for _, tt := range []struct {
		name string
		end  func(c *testClient) error
		how  string
		all  bool // everybody is answered, however slow the machine is
		kill bool // once they are
	}{
		{"signal", func(c *testClient) error { return c.signal("INT") }, "exit code 130", true, false},
		{"signal and a kill behind the answers", func(c *testClient) error { return c.signal("INT") }, "SIGKILL", true, true},
		{"two signals at once", func(c *testClient) error { return errors.Join(c.signal("INT"), c.signal("TERM")) }, "exit code 1", false, false},
		{"end of stdin", func(c *testClient) error { c.hangup(); return nil }, "exit code 0", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "ATM_HOME=" + filepath.Join(dir, "atm"), "CODEX_HOME=" + dir}
			c := startClient(t, peerConfig{name: "serve", path: bin, args: []string{"serve"}, env: env, dir: dir})
			c.initialize("2025-11-25", map[string]any{})
			agents, busy, queued := tenBusyAgents(c)

			begun := time.Now()
			if err := tt.end(c); err != nil {
				t.Fatal(err)
			}
			answered := 0
			for i, p := range append(busy, queued...) {
				if !tt.all {
					break
				}
				answered++
				m := p.wait()
				// A machine that takes longer than settleLimit has the running told what the waiting are.
				if refused := m.Error != nil && m.Error.Code == codeSessionClosed; refused && (i >= len(busy) || time.Since(begun) >= settleLimit) {
					continue
				}
				var turn turnReply
				m.structured(&turn)
				if i >= len(busy) || turn.TurnStatus != "interrupted" || turn.Content != "half" {
					t.Errorf("turn %d, of which %d ran, was answered %s%s", i, len(busy), m.Result, toJSON(m.Error))
				}
			}
			t.Logf("%d answers within %v", answered, time.Since(begun).Round(time.Millisecond))
			if tt.kill {
				if err := c.signal("KILL"); err != nil {
					t.Fatal(err)
				}
			}
			// Only a second signal may cut a record.
			if err := c.waitAllGone(c.limit); err != nil && (tt.all || err != c.readErr || !errors.Is(err, errHalfRecord)) {
				t.Error(err)
			}
			how := c.howEnded()
			if tt.kill && how == "exit code 130" {
				how = tt.how // the process was faster
			}
			if !strings.Contains(how, tt.how) {
				t.Errorf("it ended with %s, want %s", how, tt.how)
			}
			c.noStrays()

			reg := newRegistry(filepath.Join(dir, "atm", ".config", "atm", "agent-sessions"), "default", true, quietLog())
			defer reg.close(context.Background())
			for _, id := range agents {
				rec, err := reg.load(id)
				if err != nil {
					t.Errorf("%s: %v", id, err)
					continue
				}
				status, interrupted, _ := reg.told(rec)
				if _, pid, held := reg.holder(rec.Identity); held || status != statusStale || !interrupted {
					t.Errorf("%s is %s, interrupted %v; its name is held: %v (process %d)", id, status, interrupted, held, pid)
				}
			}
		})
	}
}

// tenBusyAgents has ten agents run a turn with two shells each, and queues one
// more turn for each of them.
func tenBusyAgents(c *testClient) (agents []string, busy, queued []*pendingCall) {
	c.tb.Helper()
	for range 10 {
		agents = append(agents, c.call("codex", map[string]any{"prompt": "SAY hello"}).turn().AgentID)
	}
	for _, id := range agents {
		busy = append(busy, c.call("codex-reply", map[string]any{"agent_id": id, "prompt": "SAY half\nBACKGROUND exec sleep 1000\nSHELL exec sleep 1000"}))
		queued = append(queued, c.call("codex-reply", map[string]any{"agent_id": id, "prompt": "SAY never"}))
	}
	for _, id := range agents {
		shells := 0
		c.awaitNote("the shells of "+id, func(m wireMessage) bool {
			msg := rawField(m.Params, "msg")
			if stringField(m.Params, "_meta", "agent_id") == id && stringField(msg, "type") == "item/started" &&
				stringField(msg, "item", "type") == "commandExecution" {
				shells++
			}
			return shells == 2
		})
	}
	return agents, busy, queued
}
