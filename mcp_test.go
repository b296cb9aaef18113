package main

// mcp_test.go owns the client that the tests of the MCP front speak with (pipes on
// both sides of a front, and a hub made of functions), and holds the front to the
// protocol: what is answered in which era, cancels, the order of answers, the
// stream's end, and its budget while the client doesn't read (FR-19.3, FR-19.4). To
// prove that something was not sent, a test pings and reads up to the pong.

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
	"time"
	"unicode/utf8"
)

// pipeClient is a client at the other end of a server's pipes.
type pipeClient struct {
	t   *testing.T
	in  *io.PipeWriter
	out chan json.RawMessage // what the server wrote; closed at the end of stdout
	n   int                  // requests so far
}

// newPipeClient returns the server's ends too.
func newPipeClient(t *testing.T) (c *pipeClient, stdin io.Reader, stdout *io.PipeWriter) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c = &pipeClient{t: t, in: inW, out: make(chan json.RawMessage, 1000)}
	go func() {
		defer close(c.out)
		for fr := newFrameReader(outR, maxRecord, framingNewline); ; {
			rec, err := fr.read()
			if err != nil {
				return
			}
			c.out <- append(json.RawMessage(nil), rec...)
		}
	}()
	return c, inR, outW
}

// mcpRig is one client of one front.
type mcpRig struct {
	*pipeClient
	f      *mcpFront
	run    chan error
	end    func() // hangs up, shuts down and ends stdout
	modern bool   // of which era the calls of tool are

	submits chan submitted
	cancels chan waiterID
	decides chan decided
}

type submitted struct {
	req turnRequest
	w   waiterID
}

type decided struct {
	ask     string
	by      decider
	d       decision
	answers map[string][]string
}

// newRig starts a front; change may be nil.
func newRig(t *testing.T, change func(*mcpOptions)) *mcpRig {
	t.Helper()
	client, stdin, stdout := newPipeClient(t)
	r := &mcpRig{pipeClient: client, run: make(chan error, 1),
		submits: make(chan submitted, 100), cancels: make(chan waiterID, 100), decides: make(chan decided, 100)}
	o := mcpOptions{R: stdin, W: stdout, Version: "1.2.3", DefaultCwd: t.TempDir(),
		submit:   func(req turnRequest, w waiterID) { r.submits <- submitted{req, w} },
		cancel:   func(w waiterID) { r.cancels <- w },
		sessions: func(int) []sessionView { return nil },
		status:   func() statusView { return statusView{Team: "default"} },
		limited:  func(done func(statusView)) { done(statusView{Team: "default"}) },
		close: func(ref, _ string, done func(closeResult, *rpcError)) {
			go done(closeResult{AgentID: ref, Identity: ref, Status: "closed"}, nil)
		},
		decide: func(ask string, by decider, d decision, answers map[string][]string) bool {
			r.decides <- decided{ask, by, d, answers}
			return true
		},
	}
	o.mailAs = func(ref, identity string) (atmCaller, *rpcError) {
		return atmCaller{}, proxyError(codeIdentityRequired, "whose mail?")
	}
	o.atm = func(_ context.Context, who atmCaller, _ string, _ json.RawMessage) (any, string, *rpcError) {
		return nil, "", who.Refused
	}
	if change != nil {
		change(&o)
	}
	r.f = newMCPFront(o)
	go func() { r.run <- r.f.run() }()
	var once sync.Once
	r.end = func() {
		once.Do(func() {
			r.in.Close()
			if err := <-r.run; err != nil {
				t.Errorf("run: %v", err)
			}
			r.f.shutdown(time.Second)
			stdout.Close()
		})
	}
	t.Cleanup(r.end)
	return r
}

// newModernRig is a front whose client needs no handshake.
func newModernRig(t *testing.T, change func(*mcpOptions)) *mcpRig {
	t.Helper()
	r := newRig(t, change)
	r.modern = true
	return r
}

// send writes one record.
func (r *pipeClient) send(rec string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, rec+"\n"); err != nil {
		r.t.Fatalf("writing to the server: %v", err)
	}
}

// next reads one record of the server.
func (r *pipeClient) next() json.RawMessage {
	r.t.Helper()
	var rec json.RawMessage
	select {
	case got, ok := <-r.out:
		if !ok {
			r.t.Fatal("stdout ended")
		}
		rec = got
	case <-time.After(time.Minute):
		r.t.Fatal("nothing came for a minute")
	}
	if !json.Valid(rec) {
		r.t.Fatalf("no JSON on stdout: %s", rec)
	}
	return rec
}

// ask sends a request and reads its answer, which must be the next record.
func (r *pipeClient) ask(method, params string) json.RawMessage {
	r.t.Helper()
	r.n++
	id := fmt.Sprintf("%d", 1000+r.n)
	if params != "" {
		params = `,"params":` + params
	}
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"` + params + `}`)
	rec := r.next()
	if string(rawField(rec, "id")) != id {
		r.t.Fatalf("%s was answered with %s", method, rec)
	}
	return rec
}

// quiet proves that nothing was sent but the pong.
func (r *pipeClient) quiet() {
	r.t.Helper()
	r.n++
	id := fmt.Sprintf(`"quiet-%d"`, r.n)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
	if rec := r.next(); string(rawField(rec, "id")) != id {
		r.t.Fatalf("expected nothing, got %s", rec)
	}
}

const (
	modernMetaJSON = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	modernOnly     = `{` + modernMetaJSON + `}`
)

// hello does the legacy handshake.
func (r *mcpRig) hello(version, capabilities, client string) json.RawMessage {
	r.t.Helper()
	rec := r.ask("initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"1"}}`, version, capabilities, client))
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return rec
}

// call writes the params of a tools/call in one of the eras.
func callParams(modern bool, tool, args string) string {
	meta := ""
	if modern {
		meta = modernMetaJSON + ","
	}
	return `{` + meta + `"name":"` + tool + `","arguments":` + strings.ReplaceAll(args, "\n", " ") + `}`
}

// errorOf is the JSON-RPC error of an answer.
func errorOf(t *testing.T, rec json.RawMessage) (code int, message string, data json.RawMessage) {
	t.Helper()
	var m struct {
		Error *rpcError
	}
	if err := json.Unmarshal(rec, &m); err != nil || m.Error == nil {
		t.Fatalf("no error: %s", rec)
	}
	return m.Error.Code, m.Error.Message, m.Error.Data
}

// resultOf is the result of an answer.
func resultOf(t *testing.T, rec json.RawMessage) json.RawMessage {
	t.Helper()
	result := rawField(rec, "result")
	if result == nil {
		t.Fatalf("no result: %s", rec)
	}
	return result
}

func mustContain(t *testing.T, s string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(s, want) {
			t.Errorf("%q is missing in %s", want, s)
		}
	}
}

// okTurn is a plain result.
func okTurn(content string) turnResult {
	return turnResult{AgentID: "codex:ab12", ThreadID: "01a1", TurnID: "turn-1", Content: content, Identity: "codex",
		Team: "default", Status: "idle", TurnStatus: "completed", Usage: &tokenUsage{Total: 120}, Duration: 1500 * time.Millisecond,
		Sandbox: "workspace-write", Approval: "on-request"}
}

// inBothEras runs a test with a modern client, and with a legacy one that has shaken
// hands. change may be nil.
func inBothEras(t *testing.T, change func(*mcpOptions), test func(t *testing.T, r *mcpRig)) {
	t.Helper()
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) {
			r := newRig(t, change)
			if r.modern = modern; !modern {
				r.hello("2025-11-25", "{}", "x")
			}
			test(t, r)
		})
	}
}

// tool calls a tool in the era of the rig and reads the answer.
func (r *mcpRig) tool(name, args string) json.RawMessage {
	r.t.Helper()
	return r.ask("tools/call", callParams(r.modern, name, args))
}

// begin sends a tools/call and returns what the hub is asked for.
func (r *mcpRig) begin(id, params string) submitted {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + params + `}`)
	return <-r.submits
}

// cancelRequest has the client give a request up.
func (r *mcpRig) cancelRequest(id, reason string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":` + reason + `}}`)
}

// failure is an error of the hub or the front, whose form is checked: a tool result
// for a modern client, a JSON-RPC error for a legacy one.
type failure struct {
	Name, Message string
	Code          int
	Source        string `json:"error_source"`
}

func (r *mcpRig) failure(rec json.RawMessage) failure {
	r.t.Helper()
	if !r.modern {
		code, message, data := errorOf(r.t, rec)
		name, _, _ := strings.Cut(message, ":")
		return failure{name, message, code, stringField(data, "error_source")}
	}
	var body struct {
		Type       string `json:"resultType"`
		IsError    bool
		Content    []textBlock
		Structured struct{ Error failure } `json:"structuredContent"`
	}
	if err := json.Unmarshal(resultOf(r.t, rec), &body); err != nil || !body.IsError || body.Type != "complete" || len(body.Content) == 0 ||
		body.Content[0].Text != body.Structured.Error.Message {
		r.t.Fatalf("no modern error: %s (%v)", rec, err)
	}
	return body.Structured.Error
}

// What is answered before and after a handshake, in which era; scripts named mcp- hold
// what the answers say.
func TestEraTable(t *testing.T) {
	wrongVersion := strings.Replace(modernOnly, "2026-07-28", "2027-01-01", 1)
	legacyInMeta := strings.Replace(modernOnly, "2026-07-28", "2025-11-25", 1)
	noCaps := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`
	noVersion := `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}`
	onlyInfo := `{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"x"}}}`
	badInfo := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":1}}`
	capsArray := strings.Replace(modernOnly, `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":[]`, 1)
	task := `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"},"progressToken":1}}`
	for _, c := range []struct {
		name, method, params string
		before, after        int // error code, 0 for a result; before and after initialize
	}{
		{"initialize modern", "initialize", modernOnly, codeNoMethod, codeNoMethod},
		{"ping legacy", "ping", "", 0, 0},
		{"ping modern", "ping", modernOnly, codeNoMethod, codeNoMethod},
		{"discover modern", "server/discover", modernOnly, 0, 0},
		{"discover without meta", "server/discover", "", codeInvalidParams, codeInvalidParams},
		{"discover other version", "server/discover", wrongVersion, codeBadVersion, codeBadVersion},
		{"list legacy", "tools/list", "", codeInvalidParams, 0},
		{"list legacy with other meta", "tools/list", task, codeInvalidParams, 0},
		{"list modern", "tools/list", modernOnly, 0, 0},
		{"list version unknown", "tools/list", wrongVersion, codeBadVersion, codeBadVersion},
		{"list legacy version in meta", "tools/list", legacyInMeta, codeBadVersion, codeBadVersion},
		{"list without capabilities", "tools/list", noCaps, codeInvalidParams, codeInvalidParams},
		{"list without version", "tools/list", noVersion, codeInvalidParams, codeInvalidParams},
		{"list with clientInfo only", "tools/list", onlyInfo, codeInvalidParams, codeInvalidParams},
		{"list with bad clientInfo", "tools/list", badInfo, codeInvalidParams, codeInvalidParams},
		{"list with capabilities no object", "tools/list", capsArray, codeInvalidParams, codeInvalidParams},
		{"list with a strange cursor", "tools/list", `{"cursor":"abc"}`, codeInvalidParams, codeInvalidParams},
		{"list with params no object", "tools/list", `[1]`, codeInvalidParams, codeInvalidParams},
		{"call legacy", "tools/call", `{"name":"agent_status"}`, codeInvalidParams, 0},
		{"call modern", "tools/call", callParams(true, "agent_status", "{}"), 0, 0},
		{"listen legacy", "subscriptions/listen", `{"notifications":{}}`, codeNoMethod, codeNoMethod},
		{"resources/list", "resources/list", "", codeNoMethod, codeNoMethod},
		{"tasks/get", "tasks/get", "", codeNoMethod, codeNoMethod},
		{"resources/list modern", "resources/list", modernOnly, codeNoMethod, codeNoMethod},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			check := func(when string, rec json.RawMessage, want int) {
				t.Helper()
				if want == 0 {
					resultOf(t, rec)
					return
				}
				if code, msg, _ := errorOf(t, rec); code != want || msg == "" {
					t.Errorf("%s: %s, want code %d", when, rec, want)
				}
			}
			check("before", r.ask(c.method, c.params), c.before)
			if v := stringField(resultOf(t, r.hello("2025-06-18", "{}", "x")), "protocolVersion"); v != "2025-06-18" {
				t.Errorf("protocolVersion %q", v)
			}
			check("after", r.ask(c.method, c.params), c.after)
			if len(r.submits) != 0 {
				t.Error("a turn was submitted")
			}
		})
	}
}

// A subscription carries its own id; it is answered at shutdown, and not at all where
// its client cancelled it.
func TestListen(t *testing.T) {
	for _, id := range []string{`0`, `"listen:0"`} {
		r := newRig(t, nil)
		listen := func(id, wants string) json.RawMessage {
			r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{` + modernMetaJSON + `,"notifications":` + wants + `}}`)
			return r.next()
		}
		listen(`"given up"`, `{}`)
		r.cancelRequest(`"given up"`, `null`)
		if code, _, _ := errorOf(t, listen(`7`, `[]`)); code != codeInvalidParams {
			t.Errorf("a list of what to listen to: %d", code)
		}
		ack := listen(id, `{"toolsListChanged":true,"promptsListChanged":true}`)
		if stringField(ack, "method") != "notifications/subscriptions/acknowledged" ||
			string(rawField(ack, "params", "_meta", metaPrefix+"subscriptionId")) != id ||
			string(rawField(ack, "params", "notifications")) != `{"toolsListChanged":true}` {
			t.Errorf("acknowledged: %s", ack)
		}
		r.quiet()
		r.f.shutdown(time.Second)
		res := resultOf(t, r.next())
		if stringField(res, "resultType") != "complete" || string(rawField(res, "_meta", metaPrefix+"subscriptionId")) != id {
			t.Errorf("at shutdown: %s", res)
		}
		r.end()
		if rec, ok := <-r.out; ok {
			t.Errorf("after all: %s", rec)
		}
	}
}

// A cancelled call is never answered; its turn goes on where its client timed out.
func TestCancelNeverAnsweredLate(t *testing.T) {
	for _, c := range []struct {
		reason string
		cancel bool
	}{
		{`"AbortError: user-cancel"`, true}, {`"SdkError: Request timed out"`, false}, {`"MCP error -32001: Request timed out"`, false},
		{`"client timeout"`, false}, {`7`, true}, {`null`, true},
	} {
		r := newRig(t, nil)
		r.hello("2025-06-18", "{}", "x")
		s := r.begin("0", callParams(false, "codex", `{"prompt":"hi"}`))
		r.cancelRequest(`"0"`, `"another id"`)
		r.cancelRequest(`0`, c.reason)
		r.quiet() // a pong: the cancel before it has been read
		if n := len(r.cancels); (n == 1) != c.cancel || n > 1 || n == 1 && <-r.cancels != s.w {
			t.Errorf("%s: cancelled %d times", c.reason, n)
		}
		r.f.done(s.w, okTurn("late"))
		r.cancelRequest(`0`, `null`)
		r.quiet()
		if len(r.cancels) != 0 {
			t.Errorf("%s: cancelled twice", c.reason)
		}
	}
}

// A cancel that overtakes the return of submit must still reach the hub, and
// after it: the hub would not know the waiter before.
func TestCancelWhileSubmitting(t *testing.T) {
	var f *mcpFront
	var order []string
	submit := func(_ turnRequest, w waiterID) {
		order = append(order, "submit")
		f.cancelCall(json.RawMessage(`{"requestId":5}`))
		order = append(order, "submitted")
	}
	r := newRig(t, func(o *mcpOptions) {
		o.submit = submit
		o.cancel = func(waiterID) { order = append(order, "cancel") }
	})
	f = r.f
	r.hello("2025-06-18", "{}", "x")
	r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` + callParams(false, "codex", `{"prompt":"hi"}`) + `}`) // begin would wait for the rig's submit
	r.quiet()
	if got := strings.Join(order, " "); got != "submit submitted cancel" {
		t.Error(got)
	}
}

// The end of the client's stream ends run; the answers of the hub that follow
// still go out.
func TestEndOfStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.hello("2025-06-18", "{}", "x")
		s := r.begin("1", callParams(false, "codex", `{"prompt":"hi"}`))
		r.in.Close()
		if err := <-r.run; err != nil {
			t.Errorf("run: %v", err)
		}
		r.run <- nil // for the clean-up
		r.f.done(s.w, turnResult{err: proxyError(codeSessionClosed, "shutting down")})
		if code, _, _ := errorOf(t, r.next()); code != codeSessionClosed {
			t.Error("no answer")
		}
		if r.f.spawn(func() {}); r.f.closing {
			t.Error("closing before shutdown")
		}
		r.f.shutdown(time.Second)
		if r.f.spawn(func() {}) {
			t.Error("spawned after shutdown")
		}
	})
}

// FuzzMCPFront throws messages at a front: it never panics, and each request
// with an id of its own gets at most one answer.
func FuzzMCPFront(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}` + "\n" +
		`[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}]`)
	f.Add(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":` + callParams(true, "codex", `{"agent_id":"a","timeout_secs":1e9}`) + `}`)
	f.Add(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` + callParams(true, "codex-reply", `{"agent_id":"a","prompt":"b"}`) + `}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	f.Add(`{"jsonrpc":"2.0","id":6,"method":"subscriptions/listen","params":` + modernOnly + `}` + "\n" + `{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	for _, call := range []string{`"agent_wait","arguments":{"agent_ids":["a","b"],"since":4}`, `"agent_wait","arguments":{"agent_id":"a","turn_id":"t"}`,
		`"agent_approve","arguments":{"agent_id":"a","approval_id":"1","action":"ls","decision":"approve","answers":{"q":["x"]}}`, `"agent_interrupt","arguments":{"identity":"a"}`} {
		f.Add(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + modernMetaJSON + `,"name":` + call + `}}`)
	}
	f.Fuzz(func(t *testing.T, in string) {
		asked := map[string]int{}
		for _, line := range strings.Split(in, "\n") {
			if strings.HasPrefix(strings.ToLower(line), "content-") {
				return // framing is frame_test's
			}
			if rawKind([]byte(line)) == '[' {
				asked["null"]++ // a batch: one refusal
			} else if m, err := parseMessage([]byte(line)); m.id != nil && (err != nil || m.method != "") {
				asked[idKey(m.id)]++
			}
		}
		pr, pw := io.Pipe()
		var wg sync.WaitGroup
		var front *mcpFront
		front = newMCPFront(mcpOptions{R: strings.NewReader(in), W: pw, Version: "1", DefaultCwd: t.TempDir(),
			submit: func(_ turnRequest, w waiterID) {
				wg.Go(func() { front.done(w, okTurn("x")); front.done(w, okTurn("y")) })
			},
			cancel:   func(waiterID) {},
			sessions: func(int) []sessionView { return nil },
			status:   func() statusView { return statusView{} },
			limited:  func(done func(statusView)) { done(statusView{}) },
			close:    func(_, _ string, done func(closeResult, *rpcError)) { done(closeResult{}, nil) },
			decide:   func(string, decider, decision, map[string][]string) bool { return true },
			wait: func(q waitQuery, done func(waitResult, *rpcError)) func() {
				wg.Go(func() { done(waitResult{Seq: q.Since}, nil) })
				return func() {}
			},
			turn:      func(string, string) (keptTurn, *rpcError) { return keptTurn{Result: &turnResult{}}, nil },
			approve:   func(q approveQuery, done func(decision, *rpcError)) { done(q.Decision, nil) },
			interrupt: func(_, _ string, done func(interruptResult, *rpcError)) { done(interruptResult{}, nil) },
		})
		got := map[string]int{}
		read := make(chan struct{})
		go func() {
			defer close(read)
			sc := bufio.NewScanner(pr)
			sc.Buffer(nil, 64<<20)
			for sc.Scan() {
				m, err := parseMessage(append([]byte(nil), sc.Bytes()...))
				if err != nil && m.id != nil {
					t.Errorf("not JSON-RPC: %s", sc.Bytes())
				}
				if m.id != nil && m.method == "" {
					got[idKey(m.id)]++
				}
			}
		}()
		if err := front.run(); err != nil {
			t.Errorf("run: %v", err)
		}
		wg.Wait()
		front.shutdown(5 * time.Second)
		pw.Close()
		<-read
		for id, n := range got {
			if n > asked[id] {
				t.Errorf("%d answers for %d requests with id %s", n, asked[id], id)
			}
		}
	})
}

// Some clients cut the instructions at 2 KB.
func TestInstructionsFit(t *testing.T) {
	if len(instructions) > 2048 || !utf8.ValidString(instructions) {
		t.Errorf("%d bytes", len(instructions))
	}
	for _, tool := range toolTable() {
		if !strings.Contains(instructions, tool.name) {
			t.Errorf("%s is not told of", tool.name)
		}
	}
}

// A client that stops reading costs no more than the budget and never loses an
// answer. Events that may be dropped are, and the ends of turns too in the end: they
// carry the whole text, so each turn of each agent would cost its text for good.
func TestStalledClientCostsTheBudget(t *testing.T) {
	in, toFront := io.Pipe()
	fromFront, out := io.Pipe()
	submits := make(chan waiterID, 1)
	f := newMCPFront(mcpOptions{R: in, W: out, ForwardEvents: "on", submit: func(_ turnRequest, w waiterID) { submits <- w }})
	running := make(chan error, 1)
	go func() { running <- f.run() }()
	lines := bufio.NewReaderSize(fromFront, 1<<20)
	say := func(rec string) {
		_, err := io.WriteString(toFront, rec+"\n")
		wantNil(t, err)
	}
	read := func() json.RawMessage {
		line, err := lines.ReadBytes('\n')
		wantNil(t, err)
		return line
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	read()
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}`)
	w := <-submits

	const size = 1 << 20
	raw := json.RawMessage(`{"threadId":"t","turn":{"id":"u","text":"` + strings.Repeat("x", size) + `"}}`)
	took := 0
	events := func(e event, n int) (dropped int) {
		for range n {
			if f.event(agentRef{AgentID: "codex:a", Thread: "t"}, w, &e) {
				took++
			} else {
				dropped++
			}
			if n := f.p.queued(); n > f.p.budget+2*size {
				t.Fatalf("%d bytes wait, the budget is %d", n, f.p.budget)
			}
		}
		return dropped
	}
	if dropped := events(event{kind: evDelta, method: "x", raw: raw}, 40); dropped < 20 || dropped > 30 {
		t.Errorf("%d of 40 MiB dropped with a budget of 16", dropped)
	}
	if events(event{kind: evEnded, method: "turn/completed", must: true, raw: json.RawMessage(`{}`)}, 1) != 0 {
		t.Error("the end of a turn was dropped before anything else had to be")
	}
	if events(event{kind: evRaw, thread: "t", must: true, method: "turn/completed", raw: raw}, 24) == 0 {
		t.Error("nothing of what nobody reads was dropped")
	}
	f.done(w, turnResult{AgentID: "codex:a", Content: "the answer", TurnStatus: "completed"})
	for got := 0; ; got++ {
		if rec := read(); stringField(rec, "method") != "codex/event" {
			if text := stringField(rec, "result", "structuredContent", "content"); text != "the answer" || got != took {
				t.Errorf("%d of %d events before %.200s", got, took, rec)
			}
			break
		}
	}
	toFront.Close()
	go func() { _, _ = io.Copy(io.Discard, fromFront) }() // until out is closed
	wantNil(t, <-running)
	f.shutdown(time.Second)
	out.Close()
}
