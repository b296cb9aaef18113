package main

// codex_peer_test.go is the peer against which the drivers' tests run: it plays a codex
// over pipes, in a synctest bubble, and writes down what a sink is told as one line an
// event. It also plays what real ones said, from testdata/recordings. What it must never
// do: answer what a test didn't say.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// codexPeer plays a codex over pipes. Its tests run in a synctest bubble: time passes
// only when nobody can move.
type codexPeer struct {
	t    *testing.T
	b    backend
	a    *appServer // b, or nil
	m    *mcpServer // b, or nil
	in   *bufio.Reader
	out  *io.PipeWriter
	died []*childDeath
}

// newPeerOf starts a driver of either kind without its handshake.
func newPeerOf(t *testing.T, kind string, change ...func(*appServerOptions)) *codexPeer {
	theirs, out := io.Pipe()
	in, ours := io.Pipe()
	p := &codexPeer{t: t, out: out, in: bufio.NewReaderSize(in, 1<<20)}
	o := appServerOptions{linkOptions: linkOptions{OnGone: func(d *childDeath) { p.died = append(p.died, d) }}}
	for _, f := range change {
		f(&o)
	}
	var gone chan struct{}
	if kind == "app-server" {
		p.a = newAppServer(theirs, ours, nil, o)
		p.b, gone = p.a, p.a.gone
	} else {
		p.m = newMCPServer(theirs, ours, nil, mcpServerOptions{linkOptions: o.linkOptions})
		p.b, gone = p.m, p.m.gone
	}
	t.Cleanup(func() {
		out.Close()
		in.Close()
		<-gone
	})
	return p
}

// shaking begins the driver's handshake.
func (p *codexPeer) shaking() <-chan error {
	done := make(chan error, 1)
	shake := p.b.(interface{ initialize(context.Context) error }).initialize
	go func() { done <- shake(context.Background()) }()
	return done
}

// withApp plays a dialogue with a driver for a version of app-server, after the
// handshake and in a bubble of its own; a name makes it a subtest.
func withApp(t *testing.T, name, version string, play func(p *codexPeer), change ...func(*appServerOptions)) {
	t.Helper()
	run := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeerOf(t, "app-server", change...)
			done := p.shaking()
			p.serve("initialize", `{"userAgent":"atm-agent-mcp/`+version+` (Debian 12; x86_64) dumb (x; 1)"}`)
			p.expect("initialized")
			wantNil(t, <-done)
			play(p)
		})
	}
	if name == "" {
		run(t)
		return
	}
	t.Run(name, run)
}

// next reads what the driver sends next.
func (p *codexPeer) next() *message {
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

// expect reads a call or notification of the driver; the parameters, if there are any,
// must be those.
func (p *codexPeer) expect(method string, params ...string) *message {
	p.t.Helper()
	m := p.next()
	if m.method != method {
		p.t.Fatalf("the driver sent %q (params %s result %s), want %s", m.method, m.params, m.result, method)
	}
	for _, want := range params {
		sameJSON(p.t, m.params, want)
	}
	return m
}

// serve answers the call that comes next.
func (p *codexPeer) serve(method, result string) *message {
	p.t.Helper()
	m := p.expect(method)
	p.answer(m, result)
	return m
}

// stops reads an interrupt of t1 with the cleaning of its terminals.
func (p *codexPeer) stops(turn string) *message {
	p.t.Helper()
	m := p.expect("turn/interrupt", `{"threadId":"t1","turnId":"`+turn+`"}`)
	p.expect(methodClean)
	return m
}

// reply reads the driver's answer to a request of ours.
func (p *codexPeer) reply() string {
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

// silent proves that the driver has sent nothing: it answers a probe first.
func (p *codexPeer) silent() {
	p.t.Helper()
	p.say(`{"id":"probe","method":"no/such"}`)
	want(p.t, p.reply(), `"probe" error -32601`)
}

// say tells the driver a line, which a test may write as several, and returns when the
// driver has taken that in: a pipe alone hands over bytes, and what the test does next
// could come first.
func (p *codexPeer) say(format string, args ...any) {
	p.t.Helper()
	line := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	if _, err := io.WriteString(p.out, line+"\n"); err != nil {
		p.t.Fatalf("the driver does not read: %v", err)
	}
	synctest.Wait()
}

func (p *codexPeer) answer(m *message, result string) { p.say(`{"id":%s,"result":%s}`, m.id, result) }

func (p *codexPeer) fail(m *message, code int, text string) {
	p.say(`{"id":%s,"error":{"code":%d,"message":%q}}`, m.id, code, text)
}

// tell says a notification, whose fields come after the thread's.
func (p *codexPeer) tell(method, thread, fields string) {
	p.say(`{"method":%q,"params":{"threadId":%q%s}}`, method, thread, fields)
}

func (p *codexPeer) started(thread, turn string) {
	p.tell("turn/started", thread, `,"turn":{"id":"`+turn+`"}`)
}

func (p *codexPeer) ended(thread, turn, status string) {
	p.tell("turn/completed", thread, `,"turn":{"id":"`+turn+`","status":"`+status+`"}`)
}

// item tells of an item of turn u1; fields are behind its type and id.
func (p *codexPeer) item(phase, thread, kind, id, fields string) {
	p.tell("item/"+phase, thread, `,"turnId":"u1","item":{"type":"`+kind+`","id":"`+id+`"`+fields+`}`)
}

// request asks something, in turn u1; fields come behind the ids.
func (p *codexPeer) request(id, method, thread, fields string) {
	p.say(`{"id":%s,"method":%q,"params":{"threadId":%q,"turnId":"u1"%s}}`, id, method, thread, fields)
}

// open opens thread t1 and returns its sink.
func (p *codexPeer) open(spec threadSpec) *heard {
	p.t.Helper()
	h := p.hear()
	p.b.open(1, spec, h.to)
	p.answer(p.next(), `{"thread":{"id":"t1","status":{"type":"idle"}},"model":"m"}`)
	if list := h.take(); len(list) == 0 || eventLine(list[0]) != "opened #1 t1 opened={model=m}" {
		p.t.Fatalf("opening: %s", eventLines(list))
	}
	return h
}

// running opens thread t1, starts turn u1 on it and returns its sink.
func (p *codexPeer) running() *heard {
	p.t.Helper()
	h := p.open(threadSpec{})
	p.begin(h)
	return h
}

// begin starts turn u1 on t1.
func (p *codexPeer) begin(h *heard) {
	p.t.Helper()
	p.turn(2)
	p.serve("turn/start", `{"turn":{"id":"u1","status":"inProgress"}}`)
	p.started("t1", "u1")
	h.wants("started #2 t1/u1\nraw t1/u1 (turn/started)")
}

// The commands of a session, for thread t1.
func (p *codexPeer) turn(op opID) { p.b.do(op, "t1", command{kind: cmdTurn, prompt: "hi"}) }
func (p *codexPeer) interrupt(op opID, turn string) {
	p.b.do(op, "t1", command{kind: cmdInterrupt, turn: turn})
}
func (p *codexPeer) unload() { p.b.do(0, "t1", command{kind: cmdUnload}) }
func (p *codexPeer) decide(ask string, d decision) {
	p.b.do(0, "t1", command{kind: cmdAnswer, ask: ask, decision: d})
}

// heard records what a sink was told.
type heard struct {
	t    *testing.T
	mu   sync.Mutex
	list []event
}

func (p *codexPeer) hear() *heard { return &heard{t: p.t} }

func (h *heard) to(e event) {
	h.mu.Lock()
	h.list = append(h.list, e)
	h.mu.Unlock()
}

// take returns what came since the last take.
func (h *heard) take() []event {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.list
	h.list = nil
	return list
}

// last is the last event, for what a line doesn't show.
func (h *heard) last() event {
	h.t.Helper()
	list := h.take()
	if len(list) == 0 {
		h.t.Fatal("nothing was heard")
	}
	return list[len(list)-1]
}

// wants compares what came, one line an event.
func (h *heard) wants(lines ...string) {
	h.t.Helper()
	want(h.t, eventLines(h.take()), strings.Join(lines, "\n"))
}

func eventLines(list []event) string {
	var lines []string
	for _, e := range list {
		lines = append(lines, eventLine(e))
	}
	return strings.Join(lines, "\n")
}

// eventLine is an event in a line: what happened, #op, thread/turn/item, what else it
// has by the names of the fields (id, kind, phase and status without theirs), (method).
func eventLine(e event) string {
	kinds := strings.Fields("opened started steered refused item delta plan diff usage notice ask askGone tool " +
		"ended server raw gone")
	words := []string{kinds[e.kind]}
	if e.op != 0 {
		words = append(words, fmt.Sprintf("#%d", e.op))
	}
	if place := strings.TrimRight(short(e.thread)+"/"+short(e.turn)+"/"+short(e.item), "/"); place != "" {
		words = append(words, place)
	}
	words = append(words, fieldWords(reflect.ValueOf(e), "kind", "op")...)
	if e.method != "" {
		words = append(words, "("+e.method+")")
	}
	return strings.Join(words, " ")
}

// fieldWords are the fields of a struct that are set.
func fieldWords(v reflect.Value, hidden ...string) (words []string) {
	hidden = append(hidden, strings.Fields("thread turn item method raw delta must Data Death")...)
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		switch {
		case f.IsZero() || slices.Contains(hidden, name):
		case f.Kind() == reflect.Bool:
			words = append(words, name)
		case slices.Contains([]string{"id", "kind", "phase", "status"}, name):
			words = append(words, fieldText(f))
		default:
			words = append(words, name+"="+fieldText(f))
		}
	}
	return words
}

func fieldText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		return fieldText(v.Elem())
	case reflect.Struct:
		return "{" + strings.Join(fieldWords(v), " ") + "}"
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return string(v.Bytes())
		}
		var list []string
		for i := range v.Len() {
			list = append(list, fieldText(v.Index(i)))
		}
		return "[" + strings.Join(list, " ") + "]"
	case reflect.String:
		if s := short(v.String()); s != "" && !strings.ContainsAny(s, " \t\n\"'={}[]") {
			return s
		}
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(v)
}

// short keeps the recordings' uuids readable.
func short(id string) string {
	if len(id) == 36 && strings.Count(id, "-") == 4 {
		return id[len(id)-6:]
	}
	return id
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
	ours, theirs := json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)
	if ours != nil || theirs != nil || string(toJSON(a)) != string(toJSON(b)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// wantGolden compares with what a file has; with -update it writes what comes now into the file.
func wantGolden(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		wantNil(t, os.WriteFile(golden, []byte(got), 0o644))
		return
	}
	if want(t, got, readText(t, golden)); t.Failed() {
		t.Log("if that is meant, run this test with -update: it writes anew", golden)
	}
}

// recorded is one line of testdata/recordings: ">" went to Codex, "<" came from it.
type recorded struct {
	Dir string          `json:"dir"`
	Msg json.RawMessage `json:"msg"`
}

// TestRealCodexesAreUnderstood plays what real Codex binaries said, and lets the driver do
// what the recorded client did. The golden file beside a recording holds what the
// sessions heard and, behind "> ", what the driver sent in between. A recorded client
// that goes on in a thread of mcp-server after a failed turn stops there: the driver
// refuses to.
func TestRealCodexesAreUnderstood(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*.jsonl")
	if err != nil || len(files) < 23 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, name := range files {
		name = strings.TrimSuffix(name, ".jsonl")
		t.Run(filepath.Base(name), func(t *testing.T) {
			var lines []recorded
			for text := range strings.Lines(readText(t, name+".jsonl")) {
				var l recorded
				wantNil(t, json.Unmarshal([]byte(text), &l))
				lines = append(lines, l)
			}
			synctest.Test(t, func(t *testing.T) {
				kind := "app-server"
				if strings.Contains(name, "mcp-server") {
					kind = "mcp-server"
				}
				r := &replay{codexPeer: newPeerOf(t, kind), ids: map[string]string{}, sinks: map[string]*heard{}}
				r.play(lines)
				told := strings.ReplaceAll(r.told.String(), "=file:///", "=/") // no path of Windows, which has drives
				wantGolden(t, name+".golden", told)
			})
		})
	}
}

// replay is one recording as it is played.
type replay struct {
	*codexPeer
	told   strings.Builder
	ids    map[string]string // recorded id of a call → the driver's
	sinks  map[string]*heard // by thread, as the driver named the thread at first
	thread string            // the last that Codex named
	turn   string            // the last that began
	ask    string            // the last that was asked
	shook  <-chan error
	over   bool // the driver did not go on
}

// under are the settings of every session of a recording.
func (r *replay) under() turnSettings {
	return turnSettings{Cwd: "/w", Approval: "on-request", Sandbox: "workspace-write"}
}

func (r *replay) play(lines []recorded) {
	for _, l := range lines {
		m, err := parseMessage(l.Msg)
		if err != nil {
			r.t.Fatal(err)
		}
		if r.flush(); l.Dir == "<" {
			r.codexSays(m, string(l.Msg))
		} else {
			r.acts(m)
		}
		if r.over {
			return
		}
	}
	r.flush()
	time.Sleep(shellsGrace) // a recording may stop before the shells that it interrupted have ended
	r.flush()
}

// flush writes down what the sessions heard.
func (r *replay) flush() {
	for _, name := range slices.Sorted(maps.Keys(r.sinks)) {
		list := r.sinks[name].take()
		for _, e := range list {
			switch e.kind {
			case evStarted:
				r.turn = e.turn
			case evAsk:
				r.ask = e.ask.id
			case evTool:
				r.ask = e.tool.id
			case evRefused: // a turn behind one that failed
				r.over = r.m != nil
			}
		}
		if len(list) > 0 {
			r.told.WriteString(eventLines(list) + "\n")
		}
	}
}

// codexSays tells the driver a recorded line, with the ids that the driver gave.
func (r *replay) codexSays(m message, line string) {
	id := r.ids[string(m.id)]
	of := string(rawField(m.params, "_meta", "requestId"))
	switch {
	case m.isResponse() && m.err != nil:
		line = `{"id":` + id + `,"error":` + string(toJSON(m.err)) + "}"
	case m.isResponse():
		line = `{"id":` + id + `,"result":` + string(m.result) + "}"
	case of != "":
		line = strings.Replace(line, `"requestId":`+of, `"requestId":`+r.ids[of], 1)
	}
	r.say("%s", line)
	if name := stringField(m.result, "thread", "id"); name != "" {
		r.thread = name
	}
	if r.m != nil && m.isResponse() && id == "1" {
		r.expect("notifications/initialized")
		r.serve("tools/list", toolsOf(r.t, stringField(m.result, "serverInfo", "version")))
		if err := <-r.shook; err != nil {
			r.t.Fatal(err)
		}
	}
}

// sends writes down what the driver sends in place of a recorded request.
func (r *replay) sends(m message) {
	d := r.expect(m.method)
	if m.id != nil {
		r.ids[string(m.id)] = string(d.id)
	}
	r.told.WriteString("> " + d.method + " " + string(d.params) + "\n")
}

// session is the sink of a session that opens a thread.
func (r *replay) session(name string) *heard {
	r.sinks[name] = r.hear()
	return r.sinks[name]
}

// acts has the driver do what the recorded client did.
func (r *replay) acts(m message) {
	args := rawField(m.params, "arguments")
	turn := command{kind: cmdTurn, prompt: stringField(args, "prompt"), settings: r.under()}
	compact := command{kind: cmdTurn, action: actCompact, settings: r.under()}
	switch {
	case m.method == "initialize":
		r.shook = r.shaking()
		r.ids[string(m.id)] = string(r.expect(m.method).id)
		return
	case m.method == "notifications/initialized":
		return
	case m.method == "initialized":
		if err := <-r.shook; err != nil {
			r.t.Fatal(err)
		}
		r.expect(m.method)
		return
	case m.method == "":
		r.answerAs(m)
		return
	case m.method == "thread/settings/update": // then comes what it is for
		r.b.do(2, r.thread, compact)
	case m.method == "thread/compact/start":
		if !r.b.info().atLeast(148) { // else done with its settings
			r.b.do(2, r.thread, compact)
		}
	case m.method == "thread/read":
		go func() {
			past := []event{{kind: evRaw, method: "the history:"}}
			each := func(e *event) error { past = append(past, *e); return nil }
			if err := r.b.history(r.t.Context(), r.thread, each); err != nil {
				r.t.Error(err)
			}
			for _, e := range past {
				r.sinks["new-1"].to(e)
			}
		}()
	case m.method == "thread/start":
		set := r.under()
		set.Cwd = stringField(m.params, "cwd")
		r.b.open(1, threadSpec{Settings: set}, r.session("new-1").to)
	case m.method == "turn/start":
		eachElement(rawField(m.params, "input"), func(in json.RawMessage) {
			part := promptPart{kind: stringField(in, "type"), text: stringField(in, "text"),
				url: stringField(in, "url"), path: stringField(in, "path")}
			if turn.prompt == "" {
				turn.prompt = part.text
			} else {
				turn.parts = append(turn.parts, part)
			}
		})
		r.b.do(2, r.thread, turn)
	case m.method == "turn/interrupt":
		r.b.do(3, r.thread, command{kind: cmdInterrupt, turn: r.turn})
	case m.method == "tools/call" && stringField(m.params, "name") == "codex":
		name := fmt.Sprintf("new-%d", len(r.sinks)+1)
		r.b.open(1, threadSpec{Settings: r.under(), Config: rawField(args, "config")}, r.session(name).to)
		r.b.do(2, name, turn)
	case m.method == "tools/call":
		r.b.do(3, stringField(args, "threadId"), turn)
		if r.flush(); r.over {
			return
		}
	case m.method == "notifications/cancelled":
		r.b.do(4, r.threadOf(r.ids[string(rawField(m.params, "requestId"))]), command{kind: cmdInterrupt})
	default:
		r.t.Fatalf("the recorded client sent %s: teach the test", m.method)
	}
	r.sends(m)
	if m.method == "turn/interrupt" && r.b.info().atLeast(148) {
		c := r.expect(methodClean)
		r.told.WriteString("> " + c.method + " " + string(c.params) + "\n")
		r.answer(c, `{}`)
	}
}

// answerAs gives the recorded client's answer, and holds the driver to its very words.
func (r *replay) answerAs(m message) {
	c := command{kind: cmdToolResult, ask: r.ask, ok: string(rawField(m.result, "success")) == "true"}
	eachElement(rawField(m.result, "contentItems"), func(part json.RawMessage) { c.text += stringField(part, "text") })
	if word := rawField(m.result, "decision"); word != nil {
		yes := map[string]decision{`"accept"`: approve, `"acceptForSession"`: approveForSession, `"approved"`: approve}
		c = command{kind: cmdAnswer, ask: r.ask, decision: yes[string(word)], why: "declined (client)"}
	}
	r.b.do(0, r.thread, c)
	d := r.next()
	want(r.t, string(d.id), string(m.id))
	if r.a != nil {
		sameJSON(r.t, d.result, string(m.result))
	}
	r.told.WriteString("> reply " + string(d.id) + " " + string(d.result) + "\n")
}

// threadOf is the thread that a call of the driver belongs to.
func (r *replay) threadOf(call string) string {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	for id, th := range r.m.calls {
		if fmt.Sprint(id) == call {
			return th.id
		}
	}
	r.t.Fatalf("no call %s is open", call)
	return ""
}
