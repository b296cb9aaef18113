package main

// codex_mcp_test.go holds the mcp-server driver to what is known of that command:
// lost cancels, answers on another call's id, one call a thread, elicitations that
// must always be answered; and to what real ones said, from testdata/recordings.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// mcpPeer plays a codex mcp-server over pipes, as appPeer does an app-server.
type mcpPeer struct {
	appPeer
	m *mcpServer
}

func newMCPPeer(t *testing.T) *mcpPeer {
	theirs, out := io.Pipe()
	in, ours := io.Pipe()
	p := &mcpPeer{appPeer: appPeer{t: t, out: out, in: bufio.NewReaderSize(in, 1<<20)}}
	p.m = newMCPServer(theirs, ours, nil, mcpServerOptions{linkOptions: linkOptions{OnGone: func(d *childDeath) { p.gone = append(p.gone, d) }}})
	t.Cleanup(func() {
		out.Close()
		in.Close()
		<-p.m.gone
	})
	return p
}

// toolsOf is the recorded tools/list of a version.
func toolsOf(t *testing.T, version string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "recordings", "mcp-server-"+version+"-tools.json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// playMCP starts a driver against a peer of the given version, after the handshake.
func playMCP(t *testing.T, version string) *mcpPeer {
	t.Helper()
	p := newMCPPeer(t)
	done := make(chan error, 1)
	go func() { done <- p.m.initialize(context.Background()) }()
	p.say(`{"jsonrpc":"2.0","id":%s,"result":{"serverInfo":{"name":"codex-mcp-server","version":%q}}}`, p.expect("initialize").id, version)
	p.expect("notifications/initialized")
	p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.expect("tools/list").id, toolsOf(t, version))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return p
}

// withMCP plays a dialogue with a driver for 0.153, in a bubble of its own.
func withMCP(t *testing.T, play func(t *testing.T, p *mcpPeer, h *heard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { play(t, playMCP(t, "0.153.0"), &heard{}) })
}

// threadOf is the thread that a call of the driver belongs to.
func (p *mcpPeer) threadOf(call string) string {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	for id, th := range p.m.calls {
		if fmt.Sprint(id) == call {
			return th.id
		}
	}
	p.t.Fatalf("no call %s is open", call)
	return ""
}

// event says one codex/event of thread t1.
func (p *mcpPeer) event(call json.RawMessage, turn, msg string) {
	p.t.Helper()
	p.say(`{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":%s,"threadId":"t1"},"id":%q,"msg":%s}}`, call, turn, msg)
}

// callFirst opens a thread, asks for its first turn and returns the call's id.
func (p *mcpPeer) callFirst(h *heard) json.RawMessage {
	p.t.Helper()
	p.m.open(1, threadSpec{}, h.to)
	p.m.do(2, "new-1", command{kind: cmdTurn, prompt: "hi"})
	want(p.t, h.take(), "opened op=1 thread=new-1")
	return p.expect("tools/call").id
}

// begin opens a thread and starts its first turn u1; it returns the call's id.
func (p *mcpPeer) begin(h *heard) json.RawMessage {
	p.t.Helper()
	p.m.open(1, threadSpec{Settings: turnSettings{Cwd: "/w", Sandbox: "read-only", Approval: "on-request"}}, h.to)
	p.m.do(2, "new-1", command{kind: cmdTurn, prompt: "hi", settings: turnSettings{Cwd: "/w", Sandbox: "read-only", Approval: "on-request"}})
	id := p.expect("tools/call").id
	p.event(id, "", `{"type":"session_configured","session_id":"t1","model":"m"}`)
	p.event(id, "u1", `{"type":"task_started","turn_id":"u1"}`)
	want(p.t, h.take(), `opened op=1 thread=new-1
opened thread=t1 model=m method=codex/event
started op=2 thread=t1 turn=u1 method=codex/event`)
	return id
}

func TestMCPStartArguments(t *testing.T) {
	spec := threadSpec{Settings: turnSettings{Cwd: "/w", Model: "m", Effort: "high", Approval: "untrusted", Sandbox: "workspace-write", Network: true},
		DeveloperInstructions: "D", BaseInstructions: "B", Profile: "p", Config: json.RawMessage(`{"features":{"x":true},"projects":{"/o":{"trust_level":"trusted"}}}`)}
	const write = `"sandbox_workspace_write":{"writable_roots":[],"network_access":true,"exclude_tmpdir_env_var":false,"exclude_slash_tmp":false}`
	for _, tc := range []struct{ version, want string }{
		{"0.104.0", `{"prompt":"hi","cwd":"/w","model":"m","sandbox":"workspace-write","approval-policy":"untrusted","base-instructions":"B","developer-instructions":"D","profile":"p",
			"config":{"features":{"x":true},"projects":{"/o":{"trust_level":"trusted"}},"model_reasoning_effort":"high",` + write + `}}`},
		{"0.153.0", `{"prompt":"hi","cwd":"/w","model":"m","sandbox":"workspace-write","base-instructions":"B","developer-instructions":"D",
			"config":{"features":{"x":true},"projects":{"/o":{"trust_level":"trusted"},"/w":{"trust_level":"untrusted"}},"model_reasoning_effort":"high",` + write + `}}`},
	} {
		t.Run(tc.version, func(t *testing.T) {
			schema := readMCPSchema(json.RawMessage(toolsOf(t, tc.version)))
			if !schema.codex || !schema.reply {
				t.Fatalf("schema = %+v", schema)
			}
			sameJSON(t, toJSON(startArguments(schema, spec, "hi")), tc.want)
		})
	}
}

func TestMCPElicitationReply(t *testing.T) {
	for _, tc := range []struct {
		version string
		d       decision
		rule    json.RawMessage
		want    string
	}{
		{"0.104.0", approve, nil, `{"action":"accept","content":{},"decision":"approved"}`},
		{"0.153.0", approveForSession, nil, `{"action":"accept","content":{},"decision":"approved_for_session"}`},
		{"0.104.0", deny, json.RawMessage(`["x"]`), `{"action":"decline","decision":"denied"}`},
		{"0.104.0", approveAlways, nil, `{"action":"accept","content":{},"decision":"approved"}`},
		{"0.153.0", approveAlways, json.RawMessage(`["touch","x"]`), `{"action":"accept","content":{},"decision":{"approved_execpolicy_amendment":{"proposed_execpolicy_amendment":["touch","x"]}}}`},
		{"0.153.0", approve, json.RawMessage(`["touch","x"]`), `{"action":"accept","content":{},"decision":"approved"}`},
		{"0.153.0", deny, nil, `{"action":"decline","decision":{"denied":{"rejection":"no"}}}`},
	} {
		sameJSON(t, toJSON(elicitationReply(backendInfo{version: tc.version}, tc.d, "no", tc.rule)), tc.want)
	}
}

// A cancel that comes before task_started is lost by Codex: it is sent again
// when the turn has begun, and until it ends.
func TestMCPLostCancelIsSentAgain(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		id := p.callFirst(h)
		p.m.do(0, "new-1", command{kind: cmdInterrupt})
		p.expect("notifications/cancelled")
		p.event(id, "", `{"type":"session_configured"}`)
		p.event(id, "u1", `{"type":"task_started","turn_id":"u1"}`)
		if m := p.expect("notifications/cancelled"); string(rawField(m.params, "requestId")) != string(id) {
			t.Errorf("cancelled %s", m.params)
		}
		p.expect("notifications/cancelled") // lost again; CancelPause later
		p.event(id, "u1", `{"type":"turn_aborted","turn_id":"u1","reason":"interrupted"}`)
		if got := h.last(); got.kind != evEnded || got.status != "interrupted" || got.spent {
			t.Errorf("got %+v", got)
		}
		time.Sleep(time.Minute) // of the bubble's time
		p.silent()
	})
}

// A first turn that its session has let go of before Codex named its thread is
// cancelled once it begins: nobody would see what it does.
func TestMCPAbandonedStartIsCancelled(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		id := p.callFirst(h)
		p.m.do(0, "new-1", command{kind: cmdUnload})
		h.take()
		p.expect("notifications/cancelled")
		time.Sleep(time.Second) // Codex takes its time, of the bubble's
		p.event(id, "", `{"type":"session_configured"}`)
		p.event(id, "u1", `{"type":"task_started","turn_id":"u1"}`)
		if m := p.expect("notifications/cancelled"); string(rawField(m.params, "requestId")) != string(id) {
			t.Errorf("cancelled %s", m.params)
		}
		p.event(id, "u1", `{"type":"turn_aborted","turn_id":"u1","reason":"interrupted"}`)
		time.Sleep(time.Minute)
		p.silent()
		want(t, h.take(), "")
	})
}

// The response of a turn may come under the id of a call cancelled before it,
// and an end that isn't the running turn's ends nothing.
func TestMCPAnyCallMayAnswer(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		one := p.begin(h)
		p.m.do(0, "t1", command{kind: cmdInterrupt})
		p.expect("notifications/cancelled")
		p.event(one, "u1", `{"type":"turn_aborted","turn_id":"u1"}`)
		p.m.do(3, "t1", command{kind: cmdTurn, prompt: "two"})
		two := p.expect("tools/call").id
		p.event(one, "u2", `{"type":"task_started","turn_id":"u2"}`)
		h.take()
		p.event(two, "u1", `{"type":"task_complete","turn_id":"u1","last_agent_message":null}`) // stale
		p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":""}]}}`, two)
		want(t, h.take(), `raw thread=t1 turn=u1 status=completed method=codex/event`)
		p.event(one, "u2", `{"type":"task_complete","turn_id":"u2","last_agent_message":"mine"}`)
		p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"mine"}]}}`, one)
		want(t, h.take(), `ended thread=t1 turn=u2 status=completed text="mine" method=codex/event`)
		if n := len(p.m.calls); n != 0 {
			t.Errorf("%d calls are open", n)
		}
	})
}

// One turn at a time: a second call on the thread would become one with the
// first, and one of their callers would wait for good.
func TestMCPSingleFlight(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		p.begin(h)
		p.m.do(3, "t1", command{kind: cmdTurn, prompt: "two"})
		want(t, h.take(), `refused op=3 thread=t1 err={0 "a turn of this thread is still running"}`)
		p.silent()
	})
}

func TestMCPRefusedCall(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		id := p.callFirst(h)
		p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"Failed to load Codex configuration: x"}],"isError":true}}`, id)
		want(t, h.take(), `refused op=2 thread=new-1 err={0 "Failed to load Codex configuration: x"}`)
		p.m.do(3, "new-1", command{kind: cmdTurn, prompt: "again"}) // the place is still there
		if m := p.expect("tools/call"); stringField(m.params, "name") != "codex" {
			t.Errorf("sent %s", m.params)
		}
	})
}

// A turn that doesn't begin is unknown, not refused: it may run all the same.
func TestMCPNoTurnInTime(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		p.callFirst(h)
		time.Sleep(61 * time.Second)
		want(t, h.take(), `refused op=2 thread=new-1 unknown err={0 "Codex began no turn in time" timeout}`)
	})
}

// Whatever is asked gets a result: of nobody's thread, of a closed one, or in
// words that aren't known.
func TestMCPElicitationsAreAlwaysAnswered(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		p.begin(h)
		p.say(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"threadId":"t9","codex_elicitation":"exec-approval"}}`)
		want(t, p.reply(), `0 {"action":"decline","decision":{"denied":{"rejection":"nobody waits for this any more"}}}`)
		p.say(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"threadId":"t1","codex_elicitation":"new-kind","message":"what now"}}`)
		if got := h.last(); got.kind != evAsk || got.ask.kind != askUnknown || got.ask.action != "what now" {
			t.Errorf("got %+v", got)
		}
		p.m.do(0, "t1", command{kind: cmdUnload})
		want(t, p.reply(), `1 {"action":"decline","decision":{"denied":{"rejection":"the session was closed"}}}`)
		p.expect("notifications/cancelled") // of the turn that nobody waits for
	})
}

func TestMCPThreadsTakenUpAgain(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		id := p.begin(h)
		set := turnSettings{Cwd: "/w", Sandbox: "read-only", Approval: "on-request"}
		p.event(id, "u1", `{"type":"task_complete","turn_id":"u1","last_agent_message":"x"}`)
		p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		h.take()
		p.m.do(0, "t1", command{kind: cmdUnload})
		p.m.open(5, threadSpec{Thread: "t1", Settings: set}, h.to)
		want(t, h.take(), "opened op=5 thread=t1 model=m method=codex/event")
		wider := set
		wider.Sandbox = "workspace-write"
		p.m.open(6, threadSpec{Thread: "t1", Settings: wider}, h.to)
		if got := h.last(); got.kind != evRefused || !got.err.Missing || !strings.Contains(got.err.Message, "settings were changed") {
			t.Errorf("got %+v", got.err)
		}
		p.m.open(7, threadSpec{Thread: "t7", Settings: set}, h.to)
		if got := h.last(); got.kind != evRefused || !got.err.Missing || !strings.Contains(got.err.Message, "own process") {
			t.Errorf("got %+v", got.err)
		}
		p.silent()
	})
}

func TestMCPUserConfig(t *testing.T) {
	dir := t.TempDir()
	res, err := readCodexConfig(dir)
	if err != nil || string(res) != `{"config":{}}` {
		t.Errorf("none: %s, %v", res, err)
	}
	path := filepath.Join(dir, "config.toml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true\nlimit = 7\n")
	if res, err = readCodexConfig(dir); err != nil {
		t.Fatal(err)
	}
	sameJSON(t, res, `{"config":{"sandbox_mode":"workspace-write","sandbox_workspace_write":{"network_access":true,"limit":7}}}`)
	write("sandbox_mode = \n")
	if _, err = readCodexConfig(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("broken: %v", err)
	}
	// What can't be read is read-only, whatever it may say.
	pol, rerr := resolvePolicy(policyInput{cfg: defaultConfig(), cwd: "/w/repo", repoRoot: "/w/repo"})
	if rerr != nil || pol.Settings.Sandbox != sandboxRead {
		t.Errorf("policy without a configuration: %+v, %v", pol.Settings, rerr)
	}
}

// The same approval under two request ids is put once, and both are answered.
func TestMCPAskedTwice(t *testing.T) {
	withMCP(t, func(t *testing.T, p *mcpPeer, h *heard) {
		p.begin(h)
		for _, id := range []string{"0", "1", "1"} {
			p.say(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"threadId":"t1","codex_elicitation":"exec-approval","codex_event_id":"u1","codex_call_id":"c1","codex_command":["touch","x"]}}`, id)
		}
		want(t, h.take(), `ask thread=t1 turn=u1 item=c1 ask={ask-0-1 command "touch x" ""} method=elicitation/create`)
		p.m.do(0, "t1", command{kind: cmdAnswer, ask: "ask-0-1", decision: approve})
		first, second := p.reply(), p.reply()
		if !strings.HasPrefix(first, "0 ") || !strings.HasPrefix(second, "1 ") || first[1:] != second[1:] {
			t.Errorf("answered %s and %s", first, second)
		}
		p.silent()
	})
}

// TestMCPReplay plays what real mcp-servers said, and lets the driver do what
// the recorded client did: as in TestAppReplay the golden file holds what the
// sessions heard and, behind "> ", what the driver sent. A recorded client that
// goes on in a thread after a failed turn stops there: the driver refuses to.
func TestMCPReplay(t *testing.T) { eachRecording(t, "mcp-server", 11, replayMCP) }

func replayMCP(t *testing.T, lines []recorded) string {
	p := newMCPPeer(t)
	out := &strings.Builder{}
	ids := map[string]string{}     // recorded id of a call → the driver's
	heardBy := map[string]*heard{} // by the driver's name of a thread
	names := []string{}
	ask, shook := "", make(chan error, 1)
	flush := func() (refused bool) {
		for _, name := range names {
			h := heardBy[name]
			if last := h.last(); last.kind == evAsk {
				ask = last.ask.id
			}
			s := h.take()
			if s != "" {
				out.WriteString(s + "\n")
			}
			refused = refused || strings.HasPrefix(s, "refused")
		}
		return refused
	}
	set := turnSettings{Cwd: "/w", Approval: "on-request", Sandbox: "workspace-write"}
	for _, l := range lines {
		m, err := parseMessage(l.Msg)
		if err != nil {
			t.Fatal(err)
		}
		if l.Dir == "<" {
			line := string(l.Msg)
			if m.isResponse() {
				line = `{"jsonrpc":"2.0","id":` + ids[string(m.id)] + `,"result":` + string(m.result) + `}`
			} else if id := string(rawField(m.params, "_meta", "requestId")); id != "" {
				line = strings.Replace(line, `"requestId":`+id, `"requestId":`+ids[id], 1)
			}
			p.say("%s", line)
			if m.isResponse() && ids[string(m.id)] == "1" {
				p.expect("notifications/initialized")
				id := p.expect("tools/list").id
				p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, toolsOf(t, stringField(m.result, "serverInfo", "version")))
				if err := <-shook; err != nil {
					t.Fatal(err)
				}
			}
			flush()
			continue
		}
		flush()
		switch {
		case m.method == "initialize":
			go func() { shook <- p.m.initialize(t.Context()) }()
			ids[string(m.id)] = string(p.expect("initialize").id)
			continue
		case m.method == "notifications/initialized":
			continue
		case m.method == "tools/call" && stringField(m.params, "name") == "codex":
			h := &heard{}
			p.m.open(1, threadSpec{Settings: set, Config: rawField(m.params, "arguments", "config")}, h.to)
			name := h.last().thread
			heardBy[name], names = h, append(names, name)
			p.m.do(2, name, command{kind: cmdTurn, prompt: stringField(m.params, "arguments", "prompt"), settings: set})
		case m.method == "tools/call":
			p.m.do(3, stringField(m.params, "arguments", "threadId"), command{kind: cmdTurn, prompt: stringField(m.params, "arguments", "prompt"), settings: set})
			if flush() {
				return out.String()
			}
		case m.method == "notifications/cancelled":
			p.m.do(4, p.threadOf(ids[string(rawField(m.params, "requestId"))]), command{kind: cmdInterrupt})
		case m.method == "":
			d := deny
			if string(rawField(m.result, "decision")) == `"approved"` {
				d = approve
			}
			p.m.do(0, "", command{kind: cmdAnswer, ask: ask, decision: d, why: "declined (client)"})
			r := p.reply()
			if id, _, _ := strings.Cut(r, " "); id != string(m.id) {
				t.Errorf("answered request %s, want %s", id, m.id)
			}
			out.WriteString("> reply " + r + "\n")
			continue
		default:
			t.Fatalf("the recorded client sent %s: teach the test", m.method)
		}
		d := p.expect(m.method)
		if m.id != nil {
			ids[string(m.id)] = string(d.id)
		}
		out.WriteString("> " + d.method + " " + string(d.id) + " " + string(d.params) + "\n")
	}
	flush()
	return out.String()
}
