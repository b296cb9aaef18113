package main

// session_worldretune_test.go holds the choices that a person makes for a client's
// session (ACP), in the world of session_worldclient_test.go: what is chosen counts from
// the next turn on, wherever the session is just then, within the ceiling, and
// is kept over restarts and deaths.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func (w *clientWorld) retune(agent string, c settingsChange) sessionSettings {
	w.t.Helper()
	type answer struct {
		set sessionSettings
		err *rpcError
	}
	got := make(chan answer, 1)
	w.hub.retune(agent, c, func(set sessionSettings, err *rpcError) { got <- answer{set, err} })
	a := <-got
	if a.err != nil {
		w.t.Fatalf("error %d: %s", a.err.Code, a.err.Message)
	}
	return a.set
}

func (w *clientWorld) dies(req turnRequest) turnResult {
	_, got := w.submit(req)
	return <-got
}

func sameSettings(a, b sessionSettings) bool {
	return string(toJSON(a)) == string(toJSON(b))
}

func ptr[T any](v T) *T { return &v }

// The choice of a model, an effort, a sandbox and an approval policy is what the
// next turn runs with, and every later one, also after a restart.
func TestWorldClientChooses(t *testing.T) {
	inClientWorld(t, map[string]string{"max_sandbox": "workspace-write"}, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		set := w.hub.settings(born.agentID)
		want := sessionSettings{Model: "gpt-6.1-sol", Sandbox: sandboxWrite, Approval: "on-request", BaseSandbox: sandboxWrite, BaseApproval: "on-request", MaxSandbox: sandboxWrite}
		if set == nil || !sameSettings(*set, want) {
			t.Fatalf("settings %+v, want %+v", set, want)
		}
		gate := filepath.Join(t.TempDir(), "gate")
		_, running := w.submit(again(born, "GATE "+gate+"\nSAY ran"))
		synctest.Wait()
		model, effort, sandbox, never := "gpt-x", "high", sandboxRead, "never"
		got := w.retune(born.agentID, settingsChange{Model: &model, Effort: &effort, Sandbox: &sandbox, Approval: &never}) // while it runs
		want.Model, want.Effort, want.Sandbox, want.Approval = model, effort, sandbox, never
		if !sameSettings(got, want) || !sameSettings(*w.hub.settings(born.agentID), want) {
			t.Errorf("chosen: %+v, want %+v", got, want)
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		<-running
		check := func(when string) {
			t.Helper()
			w.says(again(born, "SAY hello"), "hello")
			turn := w.lastOf("turn/start")
			if stringField(turn, "model") != model || stringField(turn, "effort") != effort || stringField(turn, "approvalPolicy") != never ||
				stringField(turn, "sandboxPolicy", "type") != "readOnly" {
				t.Errorf("%s the turn ran with %s", when, turn)
			}
		}
		check("after the choice")
		w.restart()
		check("after a restart")

		// The ceiling holds, and says so.
		danger := sandboxDanger
		if got := w.retune(born.agentID, settingsChange{Sandbox: &danger}); got.Sandbox != sandboxWrite || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "max_sandbox") {
			t.Errorf("past the ceiling: %+v", got)
		}
		for _, bad := range []settingsChange{{Sandbox: ptr("readOnly")}, {Approval: ptr("maybe")}, {Effort: ptr("very high")}, {Model: ptr("a\nb")}} {
			done := make(chan *rpcError, 1)
			w.hub.retune(born.agentID, bad, func(_ sessionSettings, err *rpcError) { done <- err })
			if err := <-done; err == nil || err.Code != codeInvalidSession {
				t.Errorf("%+v was taken: %v", bad, err)
			}
		}
	})
}

// A prompt that comes right behind a choice runs with it, wherever the session
// is just then: the client needn't wait.
func TestWorldClientChoosesInOrder(t *testing.T) {
	inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		chosen := make(chan sessionSettings, 10)
		choose := func(model string) {
			w.hub.retune(born.agentID, settingsChange{Model: &model}, func(set sessionSettings, err *rpcError) {
				if err != nil {
					t.Errorf("choosing %s: %s", model, err.Message)
				}
				chosen <- set
			})
		}
		runs := func(when, model string) {
			t.Helper()
			choose(model + "-before")
			choose(model)
			w.says(again(born, "SAY hello"), "hello")
			if got := stringField(w.lastOf("turn/start"), "model"); got != model {
				t.Errorf("%s: the turn ran with %q, want %q", when, got, model)
			}
			if first, second := <-chosen, <-chosen; first.Model != model+"-before" || second.Model != model {
				t.Errorf("%s: told %q and %q", when, first.Model, second.Model)
			}
		}
		runs("open", "m-1")
		w.good(w.birth("sess_2"))
		if got := w.hub.agents.view(born.agentID).Status; got != statusParked {
			t.Fatalf("it is %q, want parked", got)
		}
		runs("parked", "m-2")
		w.restart()
		runs("restarted", "m-3")

		// Taken back, it is what Codex chooses, not what the thread had last.
		none := ""
		if got := w.retune(born.agentID, settingsChange{Model: &none}); got.Model != "gpt-6.1-sol" {
			t.Errorf("taken back: %+v", got)
		}
	})
}

// A choice that a child's death meets is kept.
func TestWorldClientChoosesOverADeath(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`{"docs":{"command":"d"}}`)
		w.good(born)
		w.says(again(born, "SAY hello"), "hello")
		if r := w.dies(again(born, "DIE 3")); r.err == nil || r.err.Code != codeChildDead {
			t.Fatalf("got %+v", r)
		}
		model := "gpt-x"
		w.retune(born.agentID, settingsChange{Model: &model})
		w.says(again(born, "SAY again"), "again")
		if got := stringField(w.lastOf("turn/start"), "model"); got != model {
			t.Errorf("the turn ran with %q", got)
		}
		opened := w.lastOf("thread/resume")
		if stringField(opened, "model") != model || stringField(opened, "config", "mcp_servers", "docs", "command") != "d" {
			t.Errorf("opened again with %s", opened)
		}
	})
}

// A choice for a session that is being opened is kept, also where it never opens.
func TestWorldClientChoosesWhileOpening(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(w *clientWorld) {
			t := w.t
			born, other := w.birth("sess_1"), w.birth("sess_2")
			w.good(born)
			w.says(again(born, "SAY one"), "one")
			w.good(other)
			w.good(again(other, "DROP config/read\nSAY it holds up the next"))
			_, got := w.submit(again(born, "SAY two"))
			synctest.Wait()
			chosen := make(chan *rpcError, 1)
			w.hub.retune(born.agentID, settingsChange{Model: ptr("gpt-x")}, func(_ sessionSettings, err *rpcError) { chosen <- err })
			synctest.Wait()
			if w.hub.settings(born.agentID) != nil || len(chosen) != 0 {
				t.Fatal("the session is open: config/read was not dropped")
			}
			if leaves {
				left := make(chan *rpcError, 1)
				w.hub.leave(born.agentID, func(_ closeResult, err *rpcError) { left <- err })
				if err := <-left; err != nil {
					t.Errorf("leaving: %s", err.Message)
				}
			}
			if err := <-chosen; err != nil {
				t.Errorf("leaves %v: %s", leaves, err.Message)
			}
			if r := <-got; (r.err != nil) != leaves {
				t.Errorf("leaves %v: %+v", leaves, r)
			}
			if rec, err := w.hub.reg.load(born.agentID); err != nil || rec.Settings.Model != "gpt-x" || (rec.Status == statusClosed) != leaves {
				t.Errorf("leaves %v: %+v, %v", leaves, rec, err)
			}
			time.Sleep(catalogLimit) // the opening gives up, and its locks
			synctest.Wait()
			w.good(again(born, "SAY three"))
			if got := stringField(w.lastOf("turn/start"), "model"); got != "gpt-x" {
				t.Errorf("leaves %v: the next turn ran with %q", leaves, got)
			}
		})
	}
}
