package main

// codexapp_test.go holds the app-server driver against a peer over pipes that it
// plays itself, in a synctest bubble: what goes out to which version, what ends a
// turn, and that every sink hears of the end once.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// appPeer plays a codex app-server over pipes. Its tests run in a synctest
// bubble: wait settles everybody, time passes only when nobody can move.
type appPeer struct {
	t    *testing.T
	a    *appServer
	in   *bufio.Reader
	out  *io.PipeWriter
	gone []*childDeath
}

// heard records what a sink was told.
type heard struct {
	mu   sync.Mutex
	list []event
}

func (h *heard) to(e event) {
	h.mu.Lock()
	h.list = append(h.list, e)
	h.mu.Unlock()
}

// take returns what came since the last take, one line an event.
func (h *heard) take() string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, e := range h.list {
		lines = append(lines, eventLine(e))
	}
	h.list = nil
	return strings.Join(lines, "\n")
}

// last is the last event, for what a line doesn't show.
func (h *heard) last() event {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == 0 {
		return event{kind: -1}
	}
	return h.list[len(h.list)-1]
}

func eventLine(e event) string {
	names := []string{"opened", "started", "refused", "item", "delta", "plan", "diff", "usage", "notice", "ask", "askGone", "tool", "ended", "subthread", "server", "raw", "gone"}
	b := &strings.Builder{}
	b.WriteString(names[e.kind])
	put := func(key, val string) {
		if val != "" {
			fmt.Fprintf(b, " %s=%s", key, val)
		}
	}
	if e.op != 0 {
		put("op", fmt.Sprint(e.op))
	}
	put("thread", short(e.thread))
	put("turn", short(e.turn))
	put("item", short(e.item))
	put("phase", e.phase)
	put("status", e.status)
	if e.text != "" {
		put("text", fmt.Sprintf("%q", e.text))
	}
	if e.retry {
		b.WriteString(" retry")
	}
	if e.unknown {
		b.WriteString(" unknown")
	}
	if e.opened != nil {
		put("model", e.opened.model)
		put("resumed", fmt.Sprint(e.opened.resumed))
	}
	if i := e.body; i != nil {
		fmt.Fprintf(b, " body={%s %s %q %q %s", i.kind, i.phase, i.text, i.command, i.status)
		if i.exitCode != nil {
			fmt.Fprintf(b, " exit=%d", *i.exitCode)
		}
		for _, f := range i.files {
			fmt.Fprintf(b, " file=%s %s", f.kind, f.path)
		}
		for _, raw := range []struct {
			key string
			val json.RawMessage
		}{{"arguments", i.arguments}, {"result", i.result}} {
			if raw.val != nil {
				fmt.Fprintf(b, " %s=%s", raw.key, raw.val)
			}
		}
		put("output", strings.ReplaceAll(i.output, "\n", "|"))
		put("failure", i.failure)
		for _, a := range i.actions {
			fmt.Fprintf(b, " action=%s %q %q %q", a.kind, a.path, a.query, a.command)
		}
		put("path", i.path)
		put("query", i.query)
		if i.duration != 0 {
			put("ms", fmt.Sprint(i.duration))
		}
		b.WriteString("}")
	}
	if e.usage != nil {
		fmt.Fprintf(b, " usage=%d/%d/%d", e.usage.Total, e.usage.Last, e.usage.ContextWindow)
	}
	if q := e.ask; q != nil {
		fmt.Fprintf(b, " ask={%s %s %q %q", q.id, q.kind, q.action, q.reason)
		for _, f := range q.files {
			fmt.Fprintf(b, " file=%s %s %q", f.kind, f.path, f.diff)
		}
		for _, x := range q.questions {
			fmt.Fprintf(b, " question=%s %q %q", x.id, x.text, x.options)
		}
		b.WriteString("}")
	}
	if c := e.tool; c != nil {
		fmt.Fprintf(b, " tool={%s %s %s}", c.id, c.name, c.args)
	}
	if x := e.err; x != nil {
		fmt.Fprintf(b, " err={%d %q %s timeout=%v missing=%v held=%v}", x.Code, x.Message, x.Info, x.Timeout, x.Missing, x.Held)
	}
	put("method", e.method)
	return b.String()
}

// short keeps the recordings' uuids readable.
func short(id string) string {
	if len(id) == 36 && strings.Count(id, "-") == 4 {
		return id[len(id)-6:]
	}
	return id
}

// playApp starts a driver against a peer of the given version, after the handshake.
func playApp(t *testing.T, version string, change ...func(*appServerOptions)) *appPeer {
	t.Helper()
	p := newAppPeer(t, change...)
	done := make(chan error, 1)
	go func() { done <- p.a.initialize(context.Background()) }()
	m := p.expect("initialize")
	p.say(`{"id":%s,"result":{"userAgent":"atm-agent-mcp/%s (Debian 12; x86_64) dumb (atm-agent-mcp; 1)"}}`, m.id, version)
	p.expect("initialized")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return p
}

func newAppPeer(t *testing.T, change ...func(*appServerOptions)) *appPeer {
	theirs, out := io.Pipe()
	in, ours := io.Pipe()
	p := &appPeer{t: t, out: out, in: bufio.NewReaderSize(in, 1<<20)}
	o := appServerOptions{Log: slog.New(slog.DiscardHandler)}
	o.OnGone = func(d *childDeath) { p.gone = append(p.gone, d) }
	for _, f := range change {
		f(&o)
	}
	p.a = newAppServer(theirs, ours, nil, o)
	t.Cleanup(func() {
		out.Close()
		in.Close()
		<-p.a.gone
	})
	return p
}

// next reads what the driver sends next.
func (p *appPeer) next() *message {
	p.t.Helper()
	line, err := p.in.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("reading from the driver: %v", err)
	}
	m, err := parseMessage(line)
	if err != nil {
		p.t.Fatalf("the driver sent %s: %v", line, err)
	}
	return &m
}

func (p *appPeer) expect(method string) *message {
	p.t.Helper()
	m := p.next()
	if m.method != method {
		p.t.Fatalf("the driver sent %q (params %s result %s), want %s", m.method, m.params, m.result, method)
	}
	return m
}

// reply reads the driver's answer to a request of ours.
func (p *appPeer) reply() string {
	p.t.Helper()
	m := p.next()
	if m.method != "" {
		p.t.Fatalf("the driver sent %q, want a reply", m.method)
	}
	if m.err != nil {
		return fmt.Sprintf("%s error %d", m.id, m.err.Code)
	}
	return string(m.id) + " " + string(m.result)
}

// say tells the driver something and returns when it has taken it in: a pipe
// alone hands over bytes, and what the test does next could come first.
func (p *appPeer) say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil {
		p.t.Fatalf("the driver does not read: %v", err)
	}
	synctest.Wait()
}

// silent proves that the driver has sent nothing: it answers a probe first.
func (p *appPeer) silent() {
	p.t.Helper()
	p.say(`{"id":"probe","method":"no/such"}`)
	if r := p.reply(); r != `"probe" error -32601` {
		p.t.Fatalf("the driver sent %s", r)
	}
}

// open opens thread t1 and returns its sink.
func (p *appPeer) open(spec threadSpec) *heard {
	p.t.Helper()
	h := &heard{}
	p.a.open(1, spec, h.to)
	m := p.next()
	p.say(`{"id":%s,"result":{"thread":{"id":"t1","status":{"type":"idle"}},"model":"m"}}`, m.id)
	if got := h.take(); !strings.HasPrefix(got, "opened op=1 thread=t1") {
		p.t.Fatalf("opening: %s", got)
	}
	return h
}

// begin starts turn u1 on t1.
func (p *appPeer) begin(h *heard) {
	p.t.Helper()
	p.a.do(2, "t1", command{kind: cmdTurn, prompt: "hi"})
	m := p.expect("turn/start")
	p.say(`{"id":%s,"result":{"turn":{"id":"u1","status":"inProgress"}}}`, m.id)
	p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"u1"}}}`)
	if got := h.take(); got != "started op=2 thread=t1 turn=u1\nraw thread=t1 turn=u1 method=turn/started" {
		p.t.Fatalf("starting: %s", got)
	}
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func sameJSON(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || string(toJSON(a)) != string(toJSON(b)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAppTurnParamsPerVersion(t *testing.T) {
	full := turnSettings{Cwd: "/w", Model: "m", Effort: "ultra", Approval: "on-failure", Sandbox: "workspace-write", WritableRoots: []string{"/r"}, Network: true}
	for _, tc := range []struct {
		name, version string
		s             turnSettings
		want          string
	}{
		{"0.104 drops an effort it would refuse", "0.104.0", full,
			`{"threadId":"t1","input":[{"type":"text","text":"hi","text_elements":[]}],"cwd":"/w","model":"m","approvalPolicy":"on-failure","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/r"],"networkAccess":true,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"0.148 has no on-failure, and any effort", "0.148.0", full,
			`{"threadId":"t1","input":[{"type":"text","text":"hi","text_elements":[]}],"cwd":"/w","model":"m","effort":"ultra","approvalPolicy":"on-request","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/r"],"networkAccess":true,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"0.104 read-only has no network", "0.104.0", turnSettings{Cwd: "/w", Effort: "HIGH", Approval: "never", Sandbox: "read-only"},
			`{"threadId":"t1","input":[{"type":"text","text":"hi","text_elements":[]}],"cwd":"/w","effort":"high","approvalPolicy":"never","sandboxPolicy":{"type":"readOnly"}}`},
		{"0.169 read-only has", "0.169.0", turnSettings{Cwd: "/w", Approval: "never", Sandbox: "read-only"},
			`{"threadId":"t1","input":[{"type":"text","text":"hi","text_elements":[]}],"cwd":"/w","approvalPolicy":"never","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`},
		{"no roots is an empty list, never null", "0.169.0", turnSettings{Sandbox: "workspace-write"},
			`{"threadId":"t1","input":[{"type":"text","text":"hi","text_elements":[]}],"sandboxPolicy":{"type":"workspaceWrite","writableRoots":[],"networkAccess":false,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"full access", "0.169.0", turnSettings{Sandbox: "danger-full-access"},
			`{"threadId":"t1","input":[{"type":"text","text":"hi","text_elements":[]}],"sandboxPolicy":{"type":"dangerFullAccess"}}`},
		{"an unknown sandbox is the narrowest", "0.169.0", turnSettings{Sandbox: "everything"},
			`{"threadId":"t1","input":[{"type":"text","text":"hi","text_elements":[]}],"sandboxPolicy":{"type":"readOnly","networkAccess":false}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := turnParams(backendInfo{version: tc.version}, "t1", command{prompt: "hi", settings: tc.s})
			sameJSON(t, toJSON(got), tc.want)
		})
	}
}

func TestAppOpenParamsPerVersion(t *testing.T) {
	spec := threadSpec{Settings: turnSettings{Cwd: "/w", Model: "m", Approval: "never", Sandbox: "danger-full-access"},
		DeveloperInstructions: "D", BaseInstructions: "B", Profile: "p", Ephemeral: true, Config: json.RawMessage(`{"features":{"x":true}}`)}
	resume := spec
	resume.Thread = "t9"
	tools := threadSpec{Tools: []clientTool{{"atm_send", "sends", json.RawMessage(`{"type":"object","required":["to"]}`)}, {Name: "atm_pending_count", Description: "counts"}}}
	kept := tools
	kept.Thread = "t9"
	for _, tc := range []struct {
		name, version, method string
		s                     threadSpec
		want                  string
	}{
		{"start on 0.104 takes the profile", "0.104.0", "thread/start", spec,
			`{"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","ephemeral":true,"config":{"features":{"x":true},"profile":"p"}}`},
		{"start on 0.169 never sends it", "0.169.0", "thread/start", spec,
			`{"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","ephemeral":true,"config":{"features":{"x":true},"thread_unload_delay_secs":1}}`},
		{"resume sends everything again", "0.104.0", "thread/resume", resume,
			`{"threadId":"t9","cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","config":{"features":{"x":true},"profile":"p"}}`},
		{"resume without the turns", "0.148.0", "thread/resume", resume,
			`{"threadId":"t9","excludeTurns":true,"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","config":{"features":{"x":true},"thread_unload_delay_secs":1}}`},
		{"tools in the one form that all versions take", "0.104.0", "thread/start", tools,
			`{"sandbox":"read-only","dynamicTools":[{"type":"function","name":"atm_send","description":"sends","inputSchema":{"type":"object","required":["to"]}},
				{"type":"function","name":"atm_pending_count","description":"counts","inputSchema":{"type":"object","properties":{}}}]}`},
		{"tools are the thread's for good", "0.104.0", "thread/resume", kept, `{"threadId":"t9","sandbox":"read-only"}`},
		{"no tools where there are none", "0.103.0", "thread/start", tools, `{"sandbox":"read-only"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info := backendInfo{version: tc.version}
			info.clientTools = info.atLeast(104)
			method, params := openParams(info, tc.s)
			want(t, method, tc.method)
			sameJSON(t, toJSON(params), tc.want)
		})
	}
}

func TestAppHandshake(t *testing.T) {
	for agent, version := range map[string]string{
		"atm-agent-mcp/0.104.0 (Debian 12.0.0; x86_64) dumb (atm-agent-mcp; 1.0)": "0.104.0",
		"atm-agent-mcp/0.200.1-alpha.3 (x) y":                                     "0.200.1-alpha.3",
		"somebody/1.0":                                                            "",
		"":                                                                        "",
	} {
		want(t, versionOf(agent), version)
	}
	synctest.Test(t, func(t *testing.T) {
		p := newAppPeer(t)
		done := make(chan error, 1)
		go func() { done <- p.a.initialize(context.Background()) }()
		m := p.expect("initialize")
		if name := stringField(m.params, "clientInfo", "name"); name != "atm-agent-mcp" {
			t.Errorf("clientInfo.name %q", name)
		}
		if string(rawField(m.params, "capabilities", "experimentalApi")) != "true" {
			t.Error("experimentalApi is not asked for")
		}
		if !rawListHas(rawField(m.params, "capabilities", "optOutNotificationMethods"), "codex/event/agent_message_delta") {
			t.Error("0.104 will say everything twice")
		}
		p.say(`{"id":%s,"result":{"userAgent":"atm-agent-mcp/0.169.0 (x)"}}`, m.id)
		p.expect("initialized")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if i := p.a.info(); i.version != "0.169.0" || i.kind != "app-server" {
			t.Errorf("info %+v", i)
		}
	})
}

// A child that reads and never answers is stopped after the limit.
func TestAppHandshakeSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAppPeer(t)
		go func() { // like a real one, it leaves when its stdin ends
			_, _ = io.Copy(io.Discard, p.in)
			p.out.Close()
		}()
		begun := time.Now()
		err := p.a.initialize(context.Background())
		d, ok := err.(*childDeath)
		if !ok || !d.Never || !strings.Contains(d.Reason, "within 30s") || time.Since(begun) != 30*time.Second {
			t.Fatalf("after %v: %#v", time.Since(begun), err)
		}
	})
}

func TestAppHandshakeRefusedOrGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAppPeer(t)
		go func() {
			m := p.next()
			p.say(`{"id":%s,"error":{"code":-32600,"message":"no"}}`, m.id)
			_, _ = io.Copy(io.Discard, p.in)
			p.out.Close()
		}()
		if d, ok := p.a.initialize(context.Background()).(*childDeath); !ok || !d.Never || d.Reason != "refused initialize: no" {
			t.Errorf("%v", d)
		}
		q := newAppPeer(t)
		go func() {
			q.next()
			q.out.Close()
		}()
		if d, ok := q.a.initialize(context.Background()).(*childDeath); !ok || !d.Never || d.Reason != "closed its stdout" {
			t.Errorf("%v", d)
		}
	})
}

func TestAppTurnEndsOnlyByItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"other","status":"completed"}}}`)
		p.say(`{"method":"thread/status/changed","params":{"threadId":"t1","status":{"type":"idle"}}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed","items":[{"type":"agentMessage","id":"i","phase":"commentary","text":"no"},{"type":"agentMessage","id":"i","phase":null,"text":"yes"}]}}}`)
		want(t, h.take(), `raw thread=t1 turn=other method=turn/completed
raw thread=t1 method=thread/status/changed
ended thread=t1 turn=u1 status=completed text="yes" method=turn/completed`)
		// 0.104 tells twice that a patch is declined; a second end of a turn would be no news either
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed"}}}`)
		want(t, h.take(), `raw thread=t1 turn=u1 method=turn/completed`)
	})
}

func TestAppTurnEndOvertakesTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		m := p.expect("turn/start")
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"u1"}}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"failed","error":{"message":"boom","codexErrorInfo":"other"}}}}`)
		want(t, h.take(), "raw thread=t1 turn=u1 method=turn/started")
		p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, m.id)
		want(t, h.take(), `started op=2 thread=t1 turn=u1
ended thread=t1 turn=u1 status=failed err={0 "boom" other timeout=false missing=false held=false} method=turn/completed`)
	})
}

// turn/start is dropped without an answer: the outcome is unknown, the turn is
// interrupted, also if it begins later, and never sent again.
func TestAppTurnStartDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		m := p.expect("turn/start")
		begun := time.Now()
		i := p.expect("turn/interrupt")
		if time.Since(begun) != 30*time.Second {
			t.Errorf("after %v", time.Since(begun))
		}
		sameJSON(t, i.params, `{"threadId":"t1","turnId":""}`)
		p.expect("thread/backgroundTerminals/clean")
		want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
		p.say(`{"id":%s,"result":{"turn":{"id":"late"}}}`, m.id) // too late: nobody waits
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"late"}}}`)
		i = p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"late"}`)
		want(t, h.take(), "raw thread=t1 turn=late method=turn/started")
		p.a.do(3, "t1", command{kind: cmdTurn})
		want(t, h.take(), `refused op=3 thread=t1 err={0 "thread t1 still runs turn late: interrupt it and wait for its end"  timeout=false missing=false held=false}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"late","status":"interrupted"}}}`)
		want(t, h.take(), "ended thread=t1 turn=late status=interrupted method=turn/completed")
		p.a.do(4, "t1", command{kind: cmdTurn})
		p.expect("turn/start")
	})
}

// Codex's word that nothing runs ends a turn whose start was dropped, once.
func TestAppTurnStartDroppedAndNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		p.expect("turn/start")
		i := p.expect("turn/interrupt")
		p.expect("thread/backgroundTerminals/clean")
		want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		want(t, h.take(), "ended thread=t1 status=interrupted")
		p.a.do(0, "t1", command{kind: cmdInterrupt})
		i = p.expect("turn/interrupt")
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		want(t, h.take(), "")
	})
}

// 32 calls may be open; what had to wait for a slot and never got one was not
// sent, so it did not happen. A slot is freed when its call times out.
func TestAppInFlightLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0", func(o *appServerOptions) { o.TurnLimit = 5 * time.Second })
		h := p.open(threadSpec{})
		for range appInFlight {
			go func() { _, _ = p.a.catalog(context.Background(), "account", "") }()
		}
		for range appInFlight {
			p.expect("account/read")
		}
		p.a.do(2, "t1", command{kind: cmdTurn})
		time.Sleep(6 * time.Second)
		want(t, h.take(), `refused op=2 thread=t1 err={0 "Codex was too busy to be asked in time"  timeout=true missing=false held=false}`)
		p.a.do(3, "t1", command{kind: cmdTurn})
		time.Sleep(4 * time.Second) // the first calls' 10 s are over
		p.expect("turn/start")
	})
}

func TestAppInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		m := p.expect("turn/start")
		p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, m.id)
		h.take()
		// accepted, not begun: 0.153 and 0.169 refuse the id now and run the turn
		p.a.do(9, "t1", command{kind: cmdInterrupt, turn: "u1"})
		i := p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":""}`)
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"u1"}}}`)
		i = p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"u1"}`)
		p.say(`{"id":%s,"result":{}}`, i.id)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"interrupted"}}}`)
		want(t, h.take(), "raw thread=t1 turn=u1 method=turn/started\nended thread=t1 turn=u1 status=interrupted method=turn/completed")
		// the turn is over: nothing is sent for its id
		p.a.do(10, "t1", command{kind: cmdInterrupt, turn: "u1"})
		p.expect("thread/backgroundTerminals/clean")
		p.silent()
	})
}

// An interrupt before turn/start is answered reaches the turn all the same.
func TestAppInterruptBeforeStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		p.a.do(0, "t1", command{kind: cmdInterrupt})
		m := p.expect("turn/start")
		i := p.expect("turn/interrupt")
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"id":%s,"result":{}}`, i.id)
		p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, m.id)
		i = p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":""}`)
	})
}

// 0.104 doesn't answer an interrupt when nothing runs; it has no list of terminals to clean with it.
func TestAppInterruptNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		h := p.open(threadSpec{})
		p.begin(h)
		p.a.do(9, "t1", command{kind: cmdInterrupt})
		i := p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"u1"}`)
		p.silent()
		time.Sleep(10 * time.Second)
		want(t, h.take(), `refused op=9 thread=t1 turn=u1 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
	})
}

func TestAppOpenRefused(t *testing.T) {
	for _, tc := range []struct{ name, message, want string }{
		{"no history", "no rollout found for thread id t9", "missing=true held=false"},
		{"not loaded", "thread not found: t9", "missing=true held=false"},
		{"no id", "invalid session id: invalid character", "missing=true held=false"},
		{"second writer", "thread t9 already has an active writer", "missing=false held=true"},
		{"bad config", "failed to load configuration: x", "missing=false held=false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, "0.169.0")
				h := &heard{}
				p.a.open(5, threadSpec{Thread: "t9"}, h.to)
				m := p.expect("thread/resume")
				p.say(`{"id":%s,"error":{"code":-32600,"message":%q}}`, m.id, tc.message)
				want(t, h.take(), fmt.Sprintf("refused op=5 thread=t9 err={-32600 %q  timeout=false %s}", tc.message, tc.want))
				p.out.Close()
				want(t, h.take(), "") // nothing after a refusal, no gone either
			})
		})
	}
}

func TestAppOpenDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := &heard{}
		p.a.open(5, threadSpec{}, h.to)
		p.expect("thread/start")
		time.Sleep(59 * time.Second)
		want(t, h.take(), "")
		time.Sleep(time.Second)
		want(t, h.take(), `refused op=5 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
	})
}

// A thread that is opened to recover may still run a turn in this child: it is
// stopped before anybody hears that the thread is open.
func TestAppRecover(t *testing.T) {
	for _, tc := range []struct{ name, version, thread, turn string }{
		{"0.169 by status", "0.169.0", `{"id":"t1","status":{"type":"active","activeFlags":[]}}`, ""},
		{"0.104 by its last turn", "0.104.0", `{"id":"t1","turns":[{"id":"a","status":"completed"},{"id":"b","status":"inProgress"}]}`, "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, tc.version)
				h := &heard{}
				p.a.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
				m := p.expect("thread/resume")
				p.say(`{"id":%s,"result":{"thread":%s}}`, m.id, tc.thread)
				i := p.expect("turn/interrupt")
				sameJSON(t, i.params, fmt.Sprintf(`{"threadId":"t1","turnId":%q}`, tc.turn))
				p.expect("thread/backgroundTerminals/clean")
				p.say(`{"id":%s,"result":{}}`, i.id)
				p.say(`{"id":7,"method":"item/fileChange/requestApproval","params":{"threadId":"t1","turnId":"b","itemId":"i"}}`)
				want(t, p.reply(), `7 {"decision":"decline"}`)
				p.say(`{"method":"item/agentMessage/delta","params":{"threadId":"t1","turnId":"b","itemId":"i","delta":"old"}}`)
				want(t, h.take(), "")
				p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"b","status":"interrupted"}}}`)
				want(t, h.take(), "opened op=5 thread=t1 resumed=true")
			})
		})
	}
	t.Run("idle on 0.104 is not interrupted, that would never be answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.104.0")
			h := &heard{}
			p.a.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
			m := p.expect("thread/resume")
			p.say(`{"id":%s,"result":{"thread":{"id":"t1","turns":[{"id":"a","status":"completed"}]}}}`, m.id)
			want(t, h.take(), "opened op=5 thread=t1 resumed=true")
			p.silent()
		})
	})
	t.Run("a turn that can't be stopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.169.0")
			h := &heard{}
			p.a.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
			m := p.expect("thread/resume")
			p.say(`{"id":%s,"result":{"thread":{"id":"t1","status":{"type":"active"}}}}`, m.id)
			i := p.expect("turn/interrupt")
			p.expect("thread/backgroundTerminals/clean")
			p.say(`{"id":%s,"result":{}}`, i.id)
			time.Sleep(10 * time.Second)
			want(t, h.take(), `refused op=5 thread=t1 err={0 "an earlier turn of thread t1 still runs and could not be stopped within 10s"  timeout=true missing=false held=false}`)
		})
	})
}

func TestAppUnload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
		p.say(`{"id":3,"method":"item/fileChange/requestApproval","params":{"threadId":"t1","turnId":"u1","itemId":"i"}}`)
		h.take()
		p.a.do(0, "t1", command{kind: cmdUnload})
		want(t, p.reply(), `3 {"decision":"decline"}`)
		sameJSON(t, p.expect("thread/unsubscribe").params, `{"threadId":"t1"}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed"}}}`)
		p.out.Close()
		want(t, h.take(), "")
	})
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		p.open(threadSpec{})
		p.a.do(0, "t1", command{kind: cmdUnload})
		p.silent() // archive is all it has, and that takes the history away
		p.open(threadSpec{Thread: "t1"})
	})
}

func TestAppGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		p.expect("turn/start")
		pending := &heard{}
		p.a.open(6, threadSpec{}, pending.to)
		p.expect("thread/start")
		p.out.Close()
		want(t, h.take(), `gone op=1 thread=t1 err={0 "the Codex child process ended: closed its stdout"  timeout=false missing=false held=false}`)
		want(t, pending.take(), `gone op=6 err={0 "the Codex child process ended: closed its stdout"  timeout=false missing=false held=false}`)
		if len(p.gone) != 1 {
			t.Errorf("OnGone was called %d times", len(p.gone))
		}
		after := &heard{}
		p.a.open(7, threadSpec{}, after.to)
		p.a.do(8, "t1", command{kind: cmdTurn})
		p.a.do(9, "t1", command{kind: cmdInterrupt})
		time.Sleep(2 * time.Minute)
		want(t, after.take(), `gone op=7 err={0 "the Codex child process ended: closed its stdout"  timeout=false missing=false held=false}`)
		want(t, h.take(), "")
		if _, err := p.a.catalog(context.Background(), "account", ""); err == nil {
			t.Error("a dead child answered")
		}
	})
}

// Whatever comes that isn't known is raw or nothing, and the stream goes on.
func TestAppUnknownEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
		for _, line := range []string{
			"garbage", "{", "[]", `[{"method":"x"}]`, `{"id":null}`, `{"id":99999,"result":{}}`, `{"id":"x","result":1}`, "\xff\xfe",
			`{"method":"turn/completed"}`, `{"method":"turn/completed","params":null}`, `{"method":"turn/completed","params":[1]}`,
			`{"method":"codex/event/agent_message","params":{"id":"u1","msg":{"type":"agent_message"},"conversationId":"t1"}}`,
			`{"method":"configWarning","params":{"summary":"s"}}`,
		} {
			p.say("%s", line)
		}
		want(t, h.take(), "")
		p.say(`{"method":"brand/new","params":{"threadId":"t1","x":1},"emittedAtMs":5}`)
		p.say(`{"method":"item/started","params":{"threadId":"t1","turnId":"u1","item":{"type":"hologram","id":"i9","status":"sparkling"}}}`)
		p.say(`{"method":"item/completed","params":{"threadId":"t1","turnId":"u1","item":7}}`)
		p.say(`{"method":"thread/tokenUsage/updated","params":{"threadId":"t1","tokenUsage":"many"}}`)
		p.say(`{"method":"error","params":{"threadId":"t1","turnId":"u1","willRetry":true,"error":{"message":"Reconnecting... 1/2","codexErrorInfo":{"brandNew":{"httpStatusCode":null}},"additionalDetails":"d"}}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"evaporated"}}}`)
		want(t, h.take(), `raw thread=t1 method=brand/new
item thread=t1 turn=u1 item=i9 phase=started body={hologram  "" "" sparkling} method=item/started
raw thread=t1 turn=u1 method=item/completed
raw thread=t1 method=thread/tokenUsage/updated
notice thread=t1 turn=u1 text="Reconnecting... 1/2: d" retry method=error
ended thread=t1 turn=u1 status=completed method=turn/completed`)
	})
}

func TestAppErrors(t *testing.T) {
	for _, tc := range []struct{ name, raw, info, message string }{
		{"0.104 not logged in", `{"message":"unexpected status 401 Unauthorized: Missing bearer, url: x","codexErrorInfo":"other","additionalDetails":null}`, "unauthorized", "run `codex login`"},
		{"0.169 not logged in", `{"message":"unexpected status","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":401}}}`, "unauthorized", "run `codex login`"},
		{"its own word", `{"message":"token expired","codexErrorInfo":"unauthorized"}`, "unauthorized", "run `codex login`"},
		{"says so itself", `{"message":"Run codex login to continue","codexErrorInfo":"other"}`, "unauthorized", "Run codex login"},
		{"something else", `{"message":"boom","codexErrorInfo":{"responseTooManyFailedAttempts":{"httpStatusCode":429}},"additionalDetails":"slow down"}`, "responseTooManyFailedAttempts", "boom: slow down"},
		{"nothing", `{}`, "", "Codex gave no reason"},
		{"nonsense", `7`, "", "Codex gave no reason"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := turnError(json.RawMessage(tc.raw))
			if e.Info != tc.info || !strings.Contains(e.Message, tc.message) || strings.Count(e.Message, "codex login") > 1 {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestAppCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		type answer struct {
			res json.RawMessage
			err error
		}
		got := make(chan answer, 1)
		ask := func(ctx context.Context, what string) {
			go func() {
				res, err := p.a.catalog(ctx, what, "/w")
				got <- answer{res, err}
			}()
		}
		ask(context.Background(), "config")
		m := p.expect("config/read")
		sameJSON(t, m.params, `{"cwd":"/w","includeLayers":false}`)
		p.say(`{"id":%s,"result":{"config":{"model":"m"}}}`, m.id)
		sameJSON(t, (<-got).res, `{"config":{"model":"m"}}`)
		ask(context.Background(), "models") // all pages as one
		m = p.expect("model/list")
		sameJSON(t, m.params, `{}`)
		p.say(`{"id":%s,"result":{"data":[{"id":"a"}, {"id":"b"}],"nextCursor":"2"}}`, m.id)
		m = p.expect("model/list")
		sameJSON(t, m.params, `{"cursor":"2"}`)
		p.say(`{"id":%s,"result":{"data":[],"nextCursor":"2x"}}`, m.id)
		m = p.expect("model/list")
		p.say(`{"id":%s,"result":{"data":[{"id":"c"}],"nextCursor":null}}`, m.id)
		sameJSON(t, (<-got).res, `{"data":[{"id":"a"},{"id":"b"},{"id":"c"}],"nextCursor":null}`)
		ask(context.Background(), "mcp")
		m = p.expect("mcpServerStatus/list")
		p.say(`{"id":%s,"result":{"data":[],"nextCursor":null,"more":1}}`, m.id)
		sameJSON(t, (<-got).res, `{"data":[],"nextCursor":null,"more":1}`)
		ask(context.Background(), "mcp")
		for range maxPages {
			m = p.expect("mcpServerStatus/list")
			p.say(`{"id":%s,"result":{"data":[{}],"nextCursor":"on"}}`, m.id)
		}
		if a := <-got; a.err == nil || !strings.Contains(a.err.Error(), "has no end") {
			t.Errorf("endless: %s %v", a.res, a.err)
		}
		ask(context.Background(), "models")
		p.expect("model/list")
		if a := <-got; a.err == nil {
			t.Error("no answer is an error after 10 s")
		}
		ctx, cancel := context.WithCancel(context.Background())
		ask(ctx, "account")
		p.expect("account/read")
		cancel()
		if a := <-got; a.err == nil {
			t.Error("cancelled")
		}
		ask(context.Background(), "nonsense")
		if a := <-got; a.err == nil {
			t.Error("unknown catalog")
		}
	})
}

func BenchmarkAppDelta(b *testing.B) {
	rec := []byte(`{"method":"item/agentMessage/delta","params":{"threadId":"01a1fd66-9e5c-76e0-92a3-5717962be18f","turnId":"01a1fd66-b084-7fd2-98f3-1852e88ef645","itemId":"msg_18825_000003","delta":"some words of an answer "},"emittedAtMs":1795260852245}`)
	a := &appServer{o: appServerOptions{Log: slog.New(slog.DiscardHandler)}}
	a.wood = newForest(func(*message) {})
	n := 0
	t := &tree{sink: sink{to: func(e event) { n += len(e.text) }}, opened: true}
	a.wood.plant(t, "01a1fd66-9e5c-76e0-92a3-5717962be18f")
	b.ReportAllocs()
	for b.Loop() {
		m, err := parseMessage(rec)
		if err != nil {
			b.Fatal(err)
		}
		a.handle(&m)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deltas/s")
}
