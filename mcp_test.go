package main

// mcp_test.go owns the client that the tests of the MCP front speak with (pipes on
// both sides of a front, and a hub made of functions), and holds the front to the
// protocol: what is answered in which era, cancels, the end of the stream, the budget
// of a client that doesn't read, progress, and codex/event (FR-19). To prove that
// something was not sent, a test pings and reads up to the pong.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeClient is a client at the other end of a server's pipes.
type pipeClient struct {
	t   *testing.T
	in  *io.PipeWriter
	out chan json.RawMessage // what the server wrote; closed at the end of stdout
	n   int                  // requests so far
}

// newPipeClient returns the server's ends too. The client reads ahead of the test by
// so many records.
func newPipeClient(t *testing.T, ahead int) (c *pipeClient, stdin io.Reader, stdout *io.PipeWriter) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c = &pipeClient{t: t, in: inW, out: make(chan json.RawMessage, ahead)}
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

func (r *pipeClient) send(rec string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, rec+"\n"); err != nil {
		r.t.Fatalf("writing to the server: %v", err)
	}
}

// request writes a request; params may be "".
func (r *pipeClient) request(id, method, params string) {
	r.t.Helper()
	if params != "" {
		params = `,"params":` + strings.ReplaceAll(params, "\n", " ")
	}
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"` + params + `}`)
}

func (r *pipeClient) next() json.RawMessage {
	r.t.Helper()
	select {
	case rec, ok := <-r.out:
		if !ok || !json.Valid(rec) {
			r.t.Fatalf("stdout ended, or has no JSON: %s", rec)
		}
		return rec
	case <-time.After(time.Minute):
		r.t.Fatal("nothing came for a minute")
	}
	return nil
}

// answerTo reads one record, which must answer the request.
func (r *pipeClient) answerTo(id string) json.RawMessage {
	r.t.Helper()
	rec := r.next()
	if string(rawField(rec, "id")) != id || rawField(rec, "method") != nil {
		r.t.Fatalf("want an answer to %s, got %s", id, rec)
	}
	return rec
}

// ask sends a request and reads its answer, which must be the next record.
func (r *pipeClient) ask(method, params string) json.RawMessage {
	r.t.Helper()
	r.n++
	id := fmt.Sprint(1000 + r.n)
	r.request(id, method, params)
	return r.answerTo(id)
}

// quiet proves that nothing was sent but the pong.
func (r *pipeClient) quiet() {
	r.t.Helper()
	r.ask("ping", "")
}

// cancelRequest has the client give a request up.
func (r *pipeClient) cancelRequest(id, reason string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":` + reason +
		`}}`)
}

// frontRig is one client of one front, whose hub leaves turns to the test.
type frontRig struct {
	*pipeClient
	stdout *io.PipeWriter // the front's
	run    chan error
	end    func() // hangs up, shuts down and ends stdout

	submits chan submitted
	cancels chan waiterID
	decides chan decided
}

// newFrontRig returns what the front is told of the client and the hub.
func newFrontRig(t *testing.T, ahead int) (r *frontRig, o clientOptions) {
	client, stdin, stdout := newPipeClient(t, ahead)
	r = &frontRig{pipeClient: client, stdout: stdout, run: make(chan error, 1), submits: make(chan submitted, 100),
		cancels: make(chan waiterID, 100), decides: make(chan decided, 100)}
	return r, clientOptions{R: stdin, W: stdout, Log: quietLog(), Version: "1.2.3",
		submit: func(req turnRequest, w waiterID) { r.submits <- submitted{req, w} },
		cancel: func(w waiterID) { r.cancels <- w },
		decide: func(_, ask string, by decider, d decision, answers map[string][]string) {
			r.decides <- decided{ask, by, d, answers}
		},
	}
}

// serve runs a front to the end of the test.
func (r *frontRig) serve(run func() error, shutdown func(time.Duration)) {
	go func() { r.run <- run() }()
	r.end = sync.OnceFunc(func() {
		r.in.Close()
		if err := <-r.run; err != nil {
			r.t.Errorf("run: %v", err)
		}
		shutdown(time.Second)
		r.stdout.Close()
	})
	r.t.Cleanup(r.end)
}

type mcpRig struct {
	*frontRig
	f      *mcpFront
	modern bool // of which era the calls of tool are
	waits  chan waited
}

type submitted struct {
	req turnRequest
	w   waiterID
}

type waited struct {
	q    waitQuery
	done func(waitResult, *rpcError)
	stop chan bool // told when the front stops it
}

type decided struct {
	ask     string
	by      decider
	d       decision
	answers map[string][]string
}

// newRig starts a front, whose hub leaves waits to the test too and answers all else
// at once; change may be nil.
func newRig(t *testing.T, change func(*mcpOptions)) *mcpRig {
	t.Helper()
	return newRigReading(t, 1000, change)
}

func newRigReading(t *testing.T, ahead int, change func(*mcpOptions)) *mcpRig {
	t.Helper()
	front, client := newFrontRig(t, ahead)
	client.status = func() statusView { return statusView{Team: "default"} }
	client.interrupt = func(_, _ string, done func(interruptResult, *rpcError)) { go done(interruptResult{}, nil) }
	r := &mcpRig{frontRig: front, waits: make(chan waited, 100)}
	o := mcpOptions{DefaultCwd: t.TempDir(), ForwardEvents: "off", clientOptions: client,
		sessions: func(int) []sessionView { return nil },
		limited:  func(done func(statusView)) { done(statusView{Team: "default"}) },
		turn:     func(string, string) (keptTurn, *rpcError) { return keptTurn{Result: &turnResult{}}, nil },
		approve:  func(q approveQuery, done func(decision, *rpcError)) { go done(q.Decision, nil) },
		close:    func(_, _ string, done func(closeResult, *rpcError)) { go done(closeResult{}, nil) },
		wait: func(q waitQuery, done func(waitResult, *rpcError)) func() {
			stop := make(chan bool, 10)
			r.waits <- waited{q, done, stop}
			return func() { stop <- true }
		},
		mailAs: func(string, string) (atmCaller, *rpcError) {
			return atmCaller{}, proxyError(codeIdentityRequired, "whose mail?")
		},
		atm: func(_ context.Context, who atmCaller, _ string, _ json.RawMessage) (any, string, *rpcError) {
			return nil, "", who.Refused
		},
	}
	if change != nil {
		change(&o)
	}
	r.f = newMCPFront(o)
	r.serve(r.f.run, r.f.shutdown)
	return r
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

// The _meta of modern clients: of one that can't be asked, of one that can, of one
// that takes tasks, and of one that does both.
const (
	metaHead     = `"_meta":{"` + metaVersion + `":"` + modernVersion + `","` + metaCaps + `":`
	modernMeta   = metaHead + `{}}`
	modernOnly   = `{` + modernMeta + `}`
	askMeta      = metaHead + `{"elicitation":{}}}`
	tasksMeta    = metaHead + `{"extensions":{"` + tasksExtension + `":{}}}}`
	tasksAskMeta = metaHead + `{"elicitation":{"form":{}},"extensions":{"` + tasksExtension + `":{}}}}`
)

func (r *mcpRig) hello(version, capabilities, client string) json.RawMessage {
	r.t.Helper()
	rec := r.ask("initialize",
		fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"1"}}`,
			version, capabilities, client))
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return rec
}

// callParams are the params of a tools/call in one of the eras.
func callParams(modern bool, tool, args string) string {
	if modern {
		return callWith(modernMeta, tool, args, "")
	}
	return `{"name":"` + tool + `","arguments":` + args + `}`
}

// callWith are the params of a modern tools/call; more begins with a comma.
func callWith(meta, tool, args, more string) string {
	return `{` + meta + `,"name":"` + tool + `","arguments":` + args + more + `}`
}

// withToken adds a progress token to params.
func withToken(params, token string) string {
	if strings.Contains(params, `"_meta":{`) {
		return strings.Replace(params, `"_meta":{`, `"_meta":{"progressToken":`+token+`,`, 1)
	}
	return `{"_meta":{"progressToken":` + token + `},` + params[1:]
}

// tool calls a tool in the era of the rig and reads the answer.
func (r *mcpRig) tool(name, args string) json.RawMessage {
	r.t.Helper()
	return r.ask("tools/call", callParams(r.modern, name, args))
}

// begin sends a tools/call and returns what the hub is asked for.
func (r *mcpRig) begin(id, params string) submitted {
	r.t.Helper()
	r.request(id, "tools/call", params)
	return <-r.submits
}

// codex begins a call whose turn the test ends.
func (r *mcpRig) codex(id string) waiterID {
	r.t.Helper()
	return r.begin(id, callParams(r.modern, "codex", `{"prompt":"hi"}`)).w
}

func okTurn(content string) turnResult {
	return turnResult{AgentID: "codex:ab12", ThreadID: "01a1", TurnID: "turn-1", Content: content, Identity: "codex",
		Team: "default", Status: "idle", TurnStatus: "completed", Duration: 1500 * time.Millisecond,
		turnFacts: turnFacts{Usage: &tokenUsage{Total: 120}, Sandbox: "workspace-write", Approval: "on-request"}}
}

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

// fails checks an error of the hub or the front in the form of the era: a tool result
// for a modern client, a JSON-RPC error for a legacy one.
func (r *mcpRig) fails(rec json.RawMessage, code int, words ...string) {
	r.t.Helper()
	if !r.modern {
		failsWith(r.t, rec, code, append(words, codeName(code))...)
		return
	}
	hasFields(r.t, rec, fmt.Sprintf(`{"result":{"resultType":"complete","isError":true,"structuredContent":{"error":{
		"name":%q,"code":%d,"error_source":"proxy"}}}}`, cmp.Or(codeName(code), "INTERNAL_ERROR"), code))
	message := stringField(rec, "result", "structuredContent", "error", "message")
	if text := stringField(rawField(rec, "result", "content")[1:], "text"); text != message {
		r.t.Errorf("a reader of text is told %q, and the structure says %q", text, message)
	}
	mustContain(r.t, message, words...)
}

// What is answered before and after a handshake, in which era; scripts named mcp- hold
// what the answers say.
func TestEachEraHasItsMethods(t *testing.T) {
	meta := func(fields string) string { return `{"_meta":{` + fields + `}}` }
	const version, caps = `"` + metaVersion + `":"` + modernVersion + `"`, `"` + metaCaps + `":{}`
	r := newRig(t, nil)
	for _, after := range []bool{false, true} {
		if after {
			hasFields(t, r.hello("2025-06-18", "{}", "x"), `{"result":{"protocolVersion":"2025-06-18"}}`)
		}
		for _, c := range []struct {
			method, params string
			code           int  // 0 for a result
			opens          bool // after the handshake there is a result
		}{
			{"initialize", modernOnly, codeNoMethod, false},
			{"ping", "", 0, false},
			{"ping", modernOnly, codeNoMethod, false},
			{"server/discover", modernOnly, 0, false},
			{"server/discover", "", codeInvalidParams, false},
			{"tools/list", "", codeInvalidParams, true},
			{"tools/list", meta(`"` + metaPrefix + `related-task":{"taskId":"1"},"progressToken":1`), codeInvalidParams,
				true},
			{"tools/list", modernOnly, 0, false},
			{"tools/list", meta(`"` + metaVersion + `":"2027-01-01",` + caps), codeBadVersion, false},
			{"tools/list", meta(`"` + metaVersion + `":"2025-11-25",` + caps), codeBadVersion, false},
			{"tools/list", meta(version), codeInvalidParams, false},
			{"tools/list", meta(caps), codeInvalidParams, false},
			{"tools/list", meta(version + `,"` + metaCaps + `":[]`), codeInvalidParams, false},
			{"tools/list", meta(`"` + metaClient + `":{"name":"x"}`), codeInvalidParams, false},
			{"tools/list", meta(version + `,` + caps + `,"` + metaClient + `":1`), codeInvalidParams, false},
			{"tools/list", `{"cursor":"abc"}`, codeInvalidParams, false},
			{"tools/list", `[1]`, codeInvalidParams, false},
			{"tools/call", `{"name":"agent_status"}`, codeInvalidParams, true},
			{"tools/call", callParams(true, "agent_status", "{}"), 0, false},
			{"subscriptions/listen", `{"notifications":{}}`, codeNoMethod, false},
			{"resources/list", "", codeNoMethod, false},
			{"resources/list", modernOnly, codeNoMethod, false},
			{"tasks/get", "", codeNoMethod, false},
		} {
			rec := r.ask(c.method, c.params)
			if good := c.code == 0 || after && c.opens; good != (rawField(rec, "result") != nil) {
				t.Errorf("%s %s, after initialize %v: %s", c.method, c.params, after, rec)
			} else if !good {
				failsWith(t, rec, c.code)
			}
		}
	}
	if len(r.submits) != 0 {
		t.Error("a turn was submitted")
	}
}

// A subscription carries its own id; it is answered at shutdown, after which nothing
// begins, and not at all where its client cancelled it.
func TestListenIsAnsweredAtShutdown(t *testing.T) {
	r := newRig(t, nil)
	listen := func(id, wants string) json.RawMessage {
		r.request(id, "subscriptions/listen", `{`+modernMeta+`,"notifications":`+wants+`}`)
		return r.next()
	}
	listen(`"given up"`, `{}`)
	r.cancelRequest(`"given up"`, `null`)
	failsWith(t, listen(`7`, `[]`), codeInvalidParams)
	failsWith(t, listen(`8`, `{"taskIds":["a"]}`), codeNoCapability)
	for _, id := range []string{`0`, `"listen:0"`} {
		hasFields(t, listen(id, `{"toolsListChanged":true,"promptsListChanged":true}`), `{
			"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"`+metaPrefix+`subscriptionId":`+id+`},
			"notifications":{"toolsListChanged":true,"promptsListChanged":"$absent"}}}`)
	}
	r.quiet()
	r.f.shutdown(time.Second)
	for range 2 {
		rec := r.next()
		id := string(rawField(rec, "id"))
		hasFields(t, rec, `{"result":{"resultType":"complete","_meta":{"`+metaPrefix+`subscriptionId":`+id+`}}}`)
		if id != `0` && id != `"listen:0"` {
			t.Errorf("%s was answered", id)
		}
	}
	if r.f.jobs.spawn(func() {}) {
		t.Error("spawned after shutdown")
	}
	r.end()
	if rec, ok := <-r.out; ok {
		t.Errorf("after all: %s", rec)
	}
}

// A cancelled call is never answered; its turn goes on where its client timed out.
func TestCancelNeverAnsweredLate(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", "{}", "x")
	for reason, stops := range map[string]bool{`"AbortError: user-cancel"`: true, `7`: true, `null`: true,
		`"client timeout"`:              false,
		`"SdkError: Request timed out"`: false, `"MCP error -32001: Request timed out"`: false} {
		w := r.codex("0")
		r.request("0", "ping", "")
		failsWith(t, r.answerTo("0"), codeInvalidRequest, "in use")
		r.cancelRequest(`"0"`, `"another id"`)
		r.cancelRequest(`0`, reason)
		r.quiet() // a pong: the cancel before it has been read
		if n := len(r.cancels); (n == 1) != stops || n > 1 || n == 1 && <-r.cancels != w {
			t.Errorf("%s: cancelled %d times", reason, n)
		}
		r.f.done(w, okTurn("late"))
		r.cancelRequest(`0`, `null`)
		r.quiet()
		if len(r.cancels) != 0 {
			t.Errorf("%s: cancelled twice", reason)
		}
	}
}

// A cancel that overtakes the return of submit must still reach the hub, and
// after it: the hub would not know the waiter before.
func TestCancelWhileSubmitting(t *testing.T) {
	var f *mcpFront
	var order []string
	r := newRig(t, func(o *mcpOptions) {
		o.submit = func(turnRequest, waiterID) {
			order = append(order, "submit")
			f.cancelCall(json.RawMessage(`{"requestId":5}`))
			order = append(order, "submitted")
		}
		o.cancel = func(waiterID) { order = append(order, "cancel") }
	})
	f = r.f
	r.hello("2025-06-18", "{}", "x")
	r.request("5", "tools/call", callParams(false, "codex", `{"prompt":"hi"}`))
	r.quiet()
	want(t, strings.Join(order, " "), "submit submitted cancel")
}

// FuzzMCPFront throws messages at a front: it never panics, and each request
// with an id of its own gets at most one answer.
func FuzzMCPFront(f *testing.F) {
	call := func(tool, args string) string {
		return `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":` + callParams(true, tool, args) + "}\n"
	}
	f.Add(`[{"jsonrpc":"2.0","id":2,"method":"ping"}]` + "\n" +
		`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}`)
	f.Add(call("codex-reply", `{"agent_id":"a","prompt":"b","timeout_secs":1e9}`) +
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
	f.Add(`{"jsonrpc":"2.0","id":4,"method":"subscriptions/listen","params":` + modernOnly + "}\n" +
		call("codex", `{"agent_id":"a"}`))
	f.Add(call("agent_wait", `{"agent_ids":["a","b"],"since":4}`) +
		call("agent_wait", `{"agent_id":"a","turn_id":"t"}`))
	f.Add(call("agent_approve", approvalArgs(`"decision":"approve","answers":{"q":["x"]}`)) +
		call("agent_interrupt", `{"identity":"a"}`))
	f.Fuzz(func(t *testing.T, in string) {
		asked := map[string]int{}
		for line := range strings.Lines(in) {
			if strings.HasPrefix(strings.ToLower(line), "content-") {
				return // framing is wire_test.go's
			}
			if rawKind([]byte(line)) == '[' {
				asked["null"]++ // a batch: one refusal
			} else if m, err := parseMessage([]byte(line)); m.id != nil && (err != nil || m.method != "") {
				asked[idKey(m.id)]++
			}
		}
		var ends sync.WaitGroup
		var r *mcpRig
		r = newRig(t, func(o *mcpOptions) {
			o.submit = func(_ turnRequest, w waiterID) {
				ends.Go(func() { r.f.done(w, okTurn("x")) })
				ends.Go(func() { r.f.done(w, okTurn("y")) })
			}
			o.cancel = func(waiterID) {}
			o.wait = func(q waitQuery, done func(waitResult, *rpcError)) func() {
				ends.Go(func() { done(waitResult{Seq: q.Since}, nil) })
				return func() {}
			}
		})
		read := make(chan bool)
		go func() {
			defer close(read)
			for rec := range r.out {
				if m, err := parseMessage(rec); err != nil && m.id != nil {
					t.Errorf("not JSON-RPC: %s", rec)
				} else if m.id != nil && m.method == "" {
					asked[idKey(m.id)]--
				}
			}
		}()
		_, _ = io.WriteString(r.in, in)
		r.in.Close()
		r.run <- <-r.run
		ends.Wait()
		r.end()
		<-read
		for id, n := range asked {
			if n < 0 {
				t.Errorf("%d answers too many with id %s", -n, id)
			}
		}
	})
}

// A client that stops reading never loses an answer. Deltas are dropped first, ends of
// turns only when nothing else is left to drop (FR-19.3, FR-19.4); the outbox's own
// test holds the budget.
func TestStalledClientLosesEventsOnly(t *testing.T) {
	t.Parallel()
	r := newRigReading(t, 0, func(o *mcpOptions) { o.ForwardEvents = "on" })
	r.hello("2025-11-25", "{}", "x")
	w := r.codex("2")
	took := 0
	raw := json.RawMessage(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
	for _, must := range []bool{false, true} {
		before := took
		for r.f.event(agentRef{}, w, &event{kind: evRaw, method: "x", must: must, raw: raw}) {
			if took++; took > 40 {
				t.Fatal("nothing of what nobody reads is dropped")
			}
		}
		if took == before {
			t.Errorf("after %d events nothing has room, must %v", took, must)
		}
	}
	r.f.done(w, okTurn("the answer"))
	for range took {
		if rec := r.next(); stringField(rec, "method") != "codex/event" {
			t.Fatalf("%.200s", rec)
		}
	}
	mustContain(t, string(r.answerTo("2")), "the answer")
}

func runs(cmd string) *event {
	return &event{kind: evItem, phase: "started", body: &itemBody{kind: "commandExecution", command: cmd}}
}

// Progress comes as a turn starts, throttled after that, and as a beat while nothing
// changes; never after the answer or a cancel, nor without a usable token.
func TestProgressKeepsItsPace(t *testing.T) {
	for _, modern := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			if r.modern = modern; !modern {
				r.hello("2025-06-18", "{}", "x")
			}
			a := agentRef{AgentID: "codex:a", Thread: "t", Identity: "codex"}
			start := func(token string) waiterID {
				return r.begin("1", withToken(callParams(modern, "codex", `{"prompt":"hi"}`), token)).w
			}
			w := start(`"tok"`)
			began, n := time.Now(), 0
			expect := func(at time.Duration, want string) {
				t.Helper()
				n++
				hasFields(t, r.next(),
					fmt.Sprintf(`{"method":"notifications/progress","params":{"progressToken":"tok","progress":%d,
					"message":%q}}`, n, want))
				if got := time.Since(began); got != at {
					t.Errorf("%q at %v, want %v", want, got, at)
				}
			}
			expect(10*time.Second, "waiting for its turn (10s)") // queued behind another
			time.Sleep(500 * time.Millisecond)
			r.f.event(a, w, &event{kind: evStarted, turn: "u"})
			expect(10500*time.Millisecond, "thinking") // as the turn starts
			r.f.event(a, w, runs("/bin/bash -lc 'npm test'"))
			r.f.event(a, w, runs("ls"))
			expect(11500*time.Millisecond, "running `ls`") // throttled: the newest only
			time.Sleep(2 * time.Second)
			r.f.event(a, w, runs("/bin/bash -lc 'npm test'"))
			expect(13500*time.Millisecond, "running `npm test`") // at once after a pause
			expect(23500*time.Millisecond, "running `npm test` (10s)")
			expect(33500*time.Millisecond, "running `npm test` (20s)")
			for range 1000 {
				r.f.event(a, w, &event{kind: evDelta, phase: "answer", text: "x"})
			}
			expect(34500*time.Millisecond, "writing the answer")

			silent := func() {
				t.Helper()
				r.f.event(a, w, &event{kind: evStarted})
				r.f.event(a, w, runs("late"))
				time.Sleep(time.Minute)
				r.quiet()
			}
			r.f.event(a, w, runs("pending"))
			r.f.done(w, okTurn("done"))
			r.answerTo("1")
			silent()
			w = start("7")
			r.f.event(a, w, &event{kind: evStarted})
			hasFields(t, r.next(), `{"params":{"progressToken":7}}`)
			r.f.event(a, w, runs("pending"))
			r.cancelRequest(`1`, `null`)
			<-r.cancels
			silent()
			for _, token := range []string{"null", "{}", "true", "[1]"} {
				w = start(token)
				silent()
				r.f.done(w, okTurn(""))
				r.answerTo("1")
			}
			r.end()
		})
	}
}

func TestActivities(t *testing.T) {
	item := func(phase string, b itemBody) event { return event{kind: evItem, phase: phase, body: &b} }
	for _, c := range []struct {
		e    event
		want string
	}{
		{event{kind: evStarted}, "thinking"},
		{*runs("/bin/bash -lc 'npm test'"), "running `npm test`"},
		{*runs("a\n\tb"), "running `a …`"},
		{*runs(strings.Repeat("x", 5000)), "running `" + strings.Repeat("x", 110) + "…"},
		{item("completed", itemBody{kind: "commandExecution"}), "thinking"},
		{item("completed", itemBody{kind: "webSearch"}), "thinking"},
		{item("completed", itemBody{kind: "userMessage"}), ""},
		{item("started", itemBody{kind: "fileChange", files: make([]fileChange, 3)}), "editing 3 files"},
		{item("started", itemBody{kind: "fileChange", files: []fileChange{{path: "/a/b.go"}}}), "editing b.go"},
		{item("started", itemBody{kind: "mcpToolCall", server: "atm", tool: "send"}), "calling atm.send"},
		{item("started", itemBody{kind: "agentMessage"}), "writing the answer"},
		{item("started", itemBody{kind: "agentMessage", phase: "commentary"}), ""},
		{item("started", itemBody{kind: "somethingNew"}), ""},
		{event{kind: evItem}, ""},
		{event{kind: evDelta, phase: "reasoning"}, "thinking"},
		{event{kind: evDelta, phase: "output"}, ""},
		{event{kind: evNotice, text: "Reconnecting... 1/5", retry: true}, "retrying: Reconnecting... 1/5"},
		{event{kind: evAsk, ask: &approval{kind: askCommand, action: "rm x"}}, "waiting for approval of `rm x`"},
		{event{kind: evAsk, ask: &approval{kind: askQuestion}}, "waiting for an answer to its question"},
		{event{kind: evAskGone}, "thinking"},
		{event{kind: evRaw}, ""},
		{event{kind: evDelta, phase: "answer", thread: "sub"}, "a subagent is writing the answer"},
	} {
		if got := activityOf(agentRef{Thread: "t"}, &c.e); got != c.want {
			t.Errorf("%+v: %q, want %q", c.e, got, c.want)
		}
	}
	for line, want := range map[string][]string{
		`/bin/bash -lc 'it'\''s; ls'`: {"/bin/bash", "-lc", "it's; ls"},
		`bash -lc "echo \"a\" $b"`:    {"bash", "-lc", `echo "a" $b`},
		`a\ b c '' d`:                 {"a b", "c", "", "d"},
		`it's`:                        {`it's`},
		`say "x`:                      {`say "x`},
		`end\`:                        {`end\`},
		"":                            nil,
	} {
		if got := shellWords(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q", line, got)
		}
	}
	if n := testing.AllocsPerRun(1, func() { shellWords(strings.Repeat("'x'", 10_000)) }); n > 100 {
		t.Errorf("a word of 10,000 pieces is put together %v times", n)
	}
	for _, line := range []string{`python -c 'x'`, `pwsh -File evil.ps1 -Command ls`, `cmd other.bat /c dir`} {
		if got := shownCommand(line); got != line { // an approval has it as its title
			t.Errorf("%q is shown as %q", line, got)
		}
	}
}

// What each driver was told, and the notification that becomes of it, byte by byte.
func TestEventsPassAsTheyCame(t *testing.T) {
	const delta = `"threadId":"T","itemId":"i","delta":"a\"b\u00e9 \ud83d\ude00","n":1.50}`
	const own = `"threadId":"T","agent_id":"codex:ab"}`
	for _, c := range []struct {
		request, method, thread, turn, raw string // request: the caller's, "" for none
		want                               string // after {"_meta":{
	}{
		{`7`, "item/agentMessage/delta", "T", "U", `{` + delta,
			`"requestId":7,` + own + `,"id":"U","msg":{"type":"item/agentMessage/delta",` + delta},
		{``, "thread/whatever/new", "T", "", `{"x":[1]}`, own +
			`,"id":"","msg":{"type":"thread/whatever/new","x":[1]}`},
		{`"a"`, "item/completed", "subagent", "V", `{"item":{"type":"new"}}`,
			`"requestId":"a","threadId":"subagent","agent_id":"codex:ab"},"id":"V",` +
				`"msg":{"type":"item/completed","item":{"type":"new"}}`},
		{``, "m", "", "", `{ }`, own + `,"id":"","msg":{"type":"m"}`},
		{``, "m", "T", "", ``, own + `,"id":"","msg":{"type":"m"}`},
		{``, "m", "T", "", `{"a":1,"type":"t"}`, own + `,"id":"","msg":{"type":"m","params":{"a":1,"type":"t"}}`},
		{``, "m", "T", "", `[1]`, own + `,"id":"","msg":{"type":"m","params":[1]}`},
		{`"a"`, mcpNote, "T", "U",
			`{"_meta":{"requestId":99,"threadId":"T"},"id":"u","msg":{"type":"x","n":1.50},"new":null}`,
			`"requestId":"a",` + own + `,"id":"u","msg":{"type":"x","n":1.50},"new":null`},
	} {
		e := event{kind: evRaw, method: c.method, thread: c.thread, turn: c.turn}
		var request json.RawMessage
		if c.request != "" {
			request = json.RawMessage(c.request)
		}
		if c.raw != "" {
			e.raw = json.RawMessage(c.raw)
		}
		got := string(appendCodexEvent(nil, nil, agentRef{AgentID: "codex:ab", Thread: "T", Identity: "codex"}, request, &e))
		if got != `{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{`+c.want+`}}` {
			t.Errorf("%s: %s\nwant %s", c.raw, got, c.want)
		}
	}
}

// Who gets events: legacy clients, by the setting, of which auto spares the Python SDK. What a driver makes beside an
// event, or of an answer to a call of ours, is no word of the child's and goes to nobody.
func TestWhoGetsEvents(t *testing.T) {
	for _, c := range []struct {
		set, client  string
		modern, want bool
	}{
		{"auto", "x", false, true}, {"auto", "MCP", false, false}, {"auto", "x", true, false},
		{"on", "MCP", false, true}, {"on", "x", true, false}, {"off", "x", false, false},
	} {
		r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = c.set })
		tell := func(w waiterID, e event) { r.f.event(agentRef{AgentID: "codex:a", Thread: "T"}, w, &e) }
		warning := event{kind: evRaw, method: "warning", raw: json.RawMessage(`{}`)}
		tell(0, warning)
		r.quiet() // no client yet
		r.hello("2025-06-18", "{}", c.client)
		r.modern = c.modern
		w := r.codex("7")
		tell(w, event{kind: evStarted, op: 3})
		tell(w, event{kind: evAsk, method: "elicitation/create", raw: json.RawMessage(`{}`)})
		tell(w, warning)
		if c.want {
			hasFields(t, r.next(), `{"params":{"_meta":{"requestId":7}}}`)
			tell(0, warning) // between turns: nobody's request
			hasFields(t, r.next(), `{"params":{"_meta":{"requestId":"$absent"}}}`)
		}
		r.quiet()
	}
}

func FuzzForward(f *testing.F) {
	f.Add("item/completed", `{"item":{"type":"commandExecution","command":"a 'b"}}`)
	f.Add("error", ` { "type" : 1 } `)
	f.Add("codex/event", `{"_meta":7,"msg":[]}`)
	f.Fuzz(func(t *testing.T, method, params string) {
		if !validJSON([]byte(params)) || !validJSON(toJSON(method)) {
			return // the peer lets nothing else pass
		}
		e := event{kind: evRaw, method: method, raw: json.RawMessage(params)}
		if rec := appendCodexEvent(nil, nil, agentRef{}, json.RawMessage("1"), &e); !validJSON(rec) {
			t.Fatalf("%s", rec)
		}
	})
}
