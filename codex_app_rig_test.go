package main

// codex_app_rig_test.go is the peer against which the drivers' tests run: it plays
// a codex over pipes, in a synctest bubble, and writes down what a sink is told as
// one line an event. What it must never do: answer what a test didn't say.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// appPeer plays a codex app-server over pipes. Its tests run in a synctest
// bubble: time passes only when nobody can move.
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
	names := []string{"opened", "started", "refused", "item", "delta", "plan", "usage", "notice", "ask", "askGone", "tool", "ended", "server", "raw", "gone"}
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
			fmt.Fprintf(b, " action=%s %q", a.kind, a.path)
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
		fmt.Fprintf(b, " err={%d %q", x.Code, x.Message)
		if x.Info != "" {
			b.WriteString(" " + x.Info)
		}
		for _, flag := range []struct {
			word string
			set  bool
		}{{"timeout", x.Timeout}, {"busy", x.Busy}, {"missing", x.Missing}, {"held", x.Held}} {
			if flag.set {
				b.WriteString(" " + flag.word)
			}
		}
		b.WriteString("}")
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

// withApp plays a dialogue with a driver for a version of app-server, in a bubble of
// its own; a name makes it a subtest.
func withApp(t *testing.T, name, version string, play func(t *testing.T, p *appPeer)) {
	t.Helper()
	run := func(t *testing.T) { synctest.Test(t, func(t *testing.T) { play(t, playApp(t, version)) }) }
	if name == "" {
		run(t)
		return
	}
	t.Run(name, run)
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
	o := appServerOptions{linkOptions: linkOptions{OnGone: func(d *childDeath) { p.gone = append(p.gone, d) }}}
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

// running opens thread t1, starts turn u1 on it and returns its sink.
func (p *appPeer) running() *heard {
	p.t.Helper()
	h := p.open(threadSpec{})
	p.begin(h)
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
