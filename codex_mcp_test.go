package main

// codex_mcp_test.go holds the mcp-server driver to what is known of that command:
// lost cancels, answers on another call's id, one call a thread, elicitations that
// must always be answered. What real ones said is codex_peer_test.go's.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// toolsOf is the recorded tools/list of a version.
func toolsOf(t *testing.T, version string) string {
	t.Helper()
	return strings.TrimSpace(readText(t, filepath.Join("testdata", "recordings", "mcp-server-"+version+"-tools.json")))
}

// withMCP plays a dialogue with a driver for 0.153, after the handshake and in a bubble
// of its own.
func withMCP(t *testing.T, play func(p *codexPeer, h *heard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPeerOf(t, "mcp-server")
		done := p.shaking()
		p.serve("initialize", `{"serverInfo":{"name":"codex-mcp-server","version":"0.153.0"}}`)
		p.expect("notifications/initialized")
		p.serve("tools/list", toolsOf(t, "0.153.0"))
		wantNil(t, <-done)
		play(p, p.hear())
	})
}

// event says one codex/event of thread t1.
func (p *codexPeer) event(call *message, turn, msg string) {
	p.t.Helper()
	p.say(`{"method":"codex/event","params":{"_meta":{"requestId":%s,"threadId":"t1"},"id":%q,"msg":{%s}}}`,
		call.id, turn, msg)
}

// configured and taskStarted are the first words on a thread and on a turn.
func (p *codexPeer) configured(call *message) {
	p.event(call, "", `"type":"session_configured","session_id":"t1","model":"m"`)
}
func (p *codexPeer) taskStarted(call *message, turn string) {
	p.event(call, turn, `"type":"task_started"`)
}
func (p *codexPeer) aborted(call *message, turn string) { p.event(call, turn, `"type":"turn_aborted"`) }
func (p *codexPeer) completed(call *message, turn, text string) {
	p.event(call, turn, `"type":"task_complete","last_agent_message":"`+text+`"`)
}

// elicit asks for something under a request id.
func (p *codexPeer) elicit(id, thread, fields string) {
	p.say(`{"id":%s,"method":"elicitation/create","params":{"threadId":%q,"codex_elicitation":%s}}`, id, thread, fields)
}

// callFirst opens a thread and asks for its first turn.
func (p *codexPeer) callFirst(h *heard) *message {
	p.t.Helper()
	set := turnSettings{Cwd: "/w", Sandbox: "read-only", Approval: "on-request"}
	p.b.open(1, threadSpec{Settings: set}, h.to)
	p.b.do(2, "new-1", command{kind: cmdTurn, prompt: "hi", settings: set})
	h.wants("opened #1 new-1 opened={unnamed}")
	return p.expect("tools/call")
}

// beginFirst opens a thread and starts its first turn u1.
func (p *codexPeer) beginFirst(h *heard) *message {
	p.t.Helper()
	call := p.callFirst(h)
	p.configured(call)
	p.taskStarted(call, "u1")
	h.wants("opened t1 opened={model=m} (codex/event)", "started #2 t1/u1 (codex/event)")
	return call
}

func (p *codexPeer) cancels(call *message) {
	p.t.Helper()
	p.expect("notifications/cancelled", fmt.Sprintf(`{"requestId":%s,"reason":"interrupted"}`, call.id))
}

func TestMCPStartArguments(t *testing.T) {
	spec := threadSpec{
		Settings: turnSettings{Cwd: "/w", Model: "m", Effort: "high", Approval: "untrusted", Sandbox: "workspace-write",
			Network: true},
		DeveloperInstructions: "D", BaseInstructions: "B", Profile: "p",
		Config: json.RawMessage(`{"features":{"x":true},"projects":{"/o":{"trust_level":"trusted"}}}`)}
	const base = `"prompt":"hi","cwd":"/w","model":"m","sandbox":"workspace-write","base-instructions":"B",
		"developer-instructions":"D","config":{"features":{"x":true},"model_reasoning_effort":"high",
		"sandbox_workspace_write":{"writable_roots":[],"network_access":true,"exclude_tmpdir_env_var":false,
		"exclude_slash_tmp":false},"projects":{`
	for version, more := range map[string]string{
		"0.104.0": `"/o":{"trust_level":"trusted"}}},"approval-policy":"untrusted","profile":"p"}`,
		"0.153.0": `"/o":{"trust_level":"trusted"},"/w":{"trust_level":"untrusted"}}}}`,
	} {
		t.Run(version, func(t *testing.T) {
			schema := readMCPSchema(json.RawMessage(toolsOf(t, version)))
			if !schema.codex || !schema.reply {
				t.Fatalf("schema = %+v", schema)
			}
			sameJSON(t, toJSON(startArguments(schema, spec, "hi")), "{"+base+more)
		})
	}
}

func TestMCPElicitationReply(t *testing.T) {
	const yes = `{"action":"accept","content":{},"decision":`
	for _, tc := range []struct {
		version string
		d       decision
		rule    string
		want    string
	}{
		{"0.153.0", approveForSession, "", yes + `"approved_for_session"}`},
		{"0.104.0", deny, `["x"]`, `{"action":"decline","decision":"denied"}`},
		{"0.104.0", approveAlways, "", yes + `"approved"}`},
		{"0.153.0", approveAlways, `["touch","x"]`,
			yes + `{"approved_execpolicy_amendment":{"proposed_execpolicy_amendment":["touch","x"]}}}`},
		{"0.153.0", approve, `["touch","x"]`, yes + `"approved"}`},
	} {
		rule := json.RawMessage(nil)
		if tc.rule != "" {
			rule = json.RawMessage(tc.rule)
		}
		sameJSON(t, toJSON(elicitationReply(backendInfo{version: tc.version}, tc.d, "no", rule)), tc.want)
	}
}

// A cancel that comes before task_started is lost by Codex: it is sent again when the turn
// has begun, and until the turn ends. So is that of a first turn that its session has let
// go of before Codex named its thread: nobody would see what it does.
func TestMCPLostCancelIsSentAgain(t *testing.T) {
	for name, kind := range map[string]commandKind{"interrupted": cmdInterrupt, "let go of": cmdUnload} {
		t.Run(name, func(t *testing.T) {
			withMCP(t, func(p *codexPeer, h *heard) {
				call := p.callFirst(h)
				p.b.do(0, "new-1", command{kind: kind})
				p.cancels(call)
				p.configured(call)
				p.taskStarted(call, "u1")
				p.cancels(call)
				p.cancels(call) // lost again; CancelPause later
				p.aborted(call, "u1")
				if kind == cmdUnload {
					h.wants()
				} else {
					h.wants("opened t1 opened={model=m} (codex/event)", "started #2 t1/u1 (codex/event)",
						"ended t1/u1 interrupted (codex/event)")
				}
				time.Sleep(time.Minute) // of the bubble's time
				p.silent()
			})
		})
	}
}

// The response of a turn may come under the id of a call cancelled before it, and an end
// that isn't the running turn's ends nothing. One turn at a time: a second call on the
// thread would become one with the first, and one of their callers would wait for good.
func TestMCPAnyCallMayAnswer(t *testing.T) {
	withMCP(t, func(p *codexPeer, h *heard) {
		one := p.beginFirst(h)
		p.turn(3)
		h.wants(`refused #3 t1 err={Message="a turn of this thread is still running"}`)
		p.silent()
		p.interrupt(0, "")
		p.cancels(one)
		p.aborted(one, "u1")
		p.turn(3)
		two := p.expect("tools/call")
		p.taskStarted(one, "u2")
		h.wants("ended t1/u1 interrupted (codex/event)", "started #3 t1/u2 (codex/event)")
		p.completed(two, "u1", "") // stale
		p.answer(two, `{"content":[{"type":"text","text":""}]}`)
		h.wants("raw t1/u1 completed (codex/event)")
		p.completed(one, "u2", "mine")
		p.answer(one, `{"content":[{"type":"text","text":"mine"}]}`)
		h.wants("ended t1/u2 text=mine completed (codex/event)")
		if n := len(p.m.calls); n != 0 {
			p.t.Errorf("%d calls are open", n)
		}
	})
}

func TestMCPRefusedCall(t *testing.T) {
	withMCP(t, func(p *codexPeer, h *heard) {
		p.answer(p.callFirst(h), `{"content":[{"type":"text","text":"Failed to load: x"}],"isError":true}`)
		h.wants(`refused #2 new-1 err={Message="Failed to load: x"}`)
		p.b.do(3, "new-1", command{kind: cmdTurn, prompt: "again"}) // the place is still there
		if m := p.expect("tools/call"); stringField(m.params, "name") != "codex" {
			p.t.Errorf("sent %s", m.params)
		}
		time.Sleep(61 * time.Second) // unknown, not refused: it may run all the same
		h.wants(`refused #3 new-1 unknown err={Message="Codex began no turn in time" Timeout}`)
	})
	// answered while it runs, without the end that an event tells: the thread is out of step
	withMCP(t, func(p *codexPeer, h *heard) {
		p.answer(p.beginFirst(h), `{"content":[]}`)
		h.wants(`ended t1/u1 failed spent err={Message="Codex answered without having run the turn"}`)
		p.turn(3)
		h.wants(`refused #3 t1 err={Message="Codex (mcp-server) answered its last turn out of turn"}`)
	})
}

// Whatever is asked gets a result: of nobody's thread, of a closed one, in words that
// aren't known. The same approval under two request ids is put once, and both are
// answered. Of what nobody can answer the turn ends.
func TestMCPElicitationsAreAlwaysAnswered(t *testing.T) {
	const no = ` {"action":"decline","decision":{"denied":{"rejection":%q}}}`
	withMCP(t, func(p *codexPeer, h *heard) {
		call := p.beginFirst(h)
		p.elicit("0", "t9", `"exec-approval"`)
		want(p.t, p.reply(), "0"+fmt.Sprintf(no, "nobody waits for this any more"))
		for _, id := range []string{"1", "2", "2"} {
			p.elicit(id, "t1",
				`"exec-approval","codex_event_id":"u1","codex_call_id":"c1","codex_command":["touch","x y"]`)
		}
		h.wants(`ask t1/u1/c1 ask={ask-0-1 command action="touch 'x y'" command="touch 'x y'" forSession} ` +
			`(elicitation/create)`)
		p.decide("ask-0-1", approve)
		const yes = ` {"action":"accept","content":{},"decision":"approved"}`
		want(p.t, p.reply(), "1"+yes)
		want(p.t, p.reply(), "2"+yes)
		p.elicit("3", "t1", `"new-kind","message":"what now"`)
		h.wants(`ask t1 ask={ask-0-2 unknown action="what now"} (elicitation/create)`)
		p.unload()
		want(p.t, p.reply(), "3"+fmt.Sprintf(no, "the session was closed"))
		p.cancels(call) // of the turn that nobody waits for
	})
	withMCP(t, func(p *codexPeer, h *heard) {
		call := p.beginFirst(h)
		p.elicit("1", "t1", `"exec-approval","codex_event_id":"u1","codex_command":["x"]`)
		p.event(call, "u1", `"type":"elicitation_request","server_name":"s","request":{"message":"who?"}`)
		p.cancels(call)
		p.aborted(call, "u1")
		h.wants("ask t1/u1 ask={ask-0-1 command action=x command=x forSession} (elicitation/create)",
			"raw t1/u1 (codex/event)", `ended t1/u1 failed err={Message="Codex asked what nobody can answer `+
				`over codex mcp-server, so the turn was ended: s: who?"} (codex/event)`, "askGone t1/u1 ask={ask-0-1}")
	})
}

// A thread that this child still has is taken up again, if nothing about it has changed.
func TestMCPThreadsTakenUpAgain(t *testing.T) {
	withMCP(t, func(p *codexPeer, h *heard) {
		call := p.beginFirst(h)
		p.completed(call, "u1", "x")
		p.answer(call, `{}`)
		h.take()
		p.unload()
		set := turnSettings{Cwd: "/w", Sandbox: "read-only", Approval: "on-request"}
		p.b.open(5, threadSpec{Thread: "t1", Settings: set}, h.to)
		h.wants("opened #5 t1 opened={model=m} (codex/event)")
		p.b.open(6, threadSpec{Thread: "t1"}, h.to)
		h.wants(`refused #6 t1 err={Message="its settings were changed, ` +
			`and this Codex (mcp-server) can't change those of a thread" Missing}`)
		p.silent()
	})
}

func TestMCPUserConfig(t *testing.T) {
	dir := t.TempDir()
	if res, err := readCodexConfig(dir); err != nil || string(res) != `{"config":{}}` {
		t.Errorf("none: %s, %v", res, err)
	}
	path := filepath.Join(dir, "config.toml")
	wantNil(t, os.WriteFile(path, []byte("sandbox_mode = \n"), 0o600))
	if _, err := readCodexConfig(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("broken: %v", err)
	}
}
