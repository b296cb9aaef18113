package main

// mcp_test.go holds the MCP front to the protocol in both eras: handshakes, refused
// batches, raw ids, bad records, cancels, the order of answers, the stream's end, and
// its budget while the client doesn't read (FR-19.3, FR-19.4). Its client is
// mcp_rig_test.go's.

import (
	"bufio"
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

// Row by row, what an initialize may look like.
func TestInitializeAnswersEveryVersion(t *testing.T) {
	for _, c := range []struct{ asked, want string }{
		{"2024-11-05", "2024-11-05"}, {"2025-03-26", "2025-03-26"}, {"2025-06-18", "2025-06-18"}, {"2025-11-25", "2025-11-25"},
		{"2026-07-28", "2025-11-25"}, {"1999-01-01", "2025-11-25"}, {"garbage", "2025-11-25"},
	} {
		t.Run(c.asked, func(t *testing.T) {
			r := newRig(t, nil)
			res := resultOf(t, r.hello(c.asked, "{}", "x"))
			if got := stringField(res, "protocolVersion"); got != c.want {
				t.Errorf("protocolVersion %q, want %q", got, c.want)
			}
			if string(rawField(res, "capabilities", "tools", "listChanged")) != "true" {
				t.Errorf("capabilities: %s", res)
			}
			if stringField(res, "serverInfo", "name") != "atm-agent-mcp" || stringField(res, "serverInfo", "version") != "1.2.3" {
				t.Errorf("serverInfo: %s", res)
			}
			if s := stringField(res, "instructions"); s == "" || len(s) > 2048 {
				t.Errorf("instructions of %d bytes", len(s))
			}
			if rawField(res, "resultType") != nil {
				t.Errorf("a legacy result with resultType: %s", res)
			}
			again := resultOf(t, r.hello("2025-06-18", "{}", "x"))
			if stringField(again, "protocolVersion") != "2025-06-18" {
				t.Errorf("a second initialize: %s", again)
			}
		})
	}
}

func TestInitializeToleratesJunk(t *testing.T) {
	r := newRig(t, nil)
	for _, params := range []string{`{}`, `{"protocolVersion":5}`, `{"protocolVersion":null,"capabilities":7,"clientInfo":[]}`, ``} {
		if v := stringField(resultOf(t, r.ask("initialize", params)), "protocolVersion"); v != "2025-11-25" {
			t.Errorf("%s: %s", params, v)
		}
	}
}

// The other rows: what is answered before and after a handshake.
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
		{"resources/templates/list", "resources/templates/list", "", codeNoMethod, codeNoMethod},
		{"prompts/list", "prompts/list", "", codeNoMethod, codeNoMethod},
		{"logging/setLevel", "logging/setLevel", `{"level":"info"}`, codeNoMethod, codeNoMethod},
		{"completion/complete", "completion/complete", "", codeNoMethod, codeNoMethod},
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
			r.hello("2025-11-25", "{}", "x")
			check("after", r.ask(c.method, c.params), c.after)
		})
	}
}

func TestCallBeforeAnythingNamesTheVersions(t *testing.T) {
	r := newRig(t, nil)
	code, msg, _ := errorOf(t, r.ask("tools/call", callParams(false, "codex", `{"prompt":"x"}`)))
	if code != codeInvalidParams {
		t.Errorf("code %d", code)
	}
	mustContain(t, msg, "initialize", "2025-11-25", "2024-11-05", "2026-07-28")
	if len(r.submits) != 0 {
		t.Error("it was submitted all the same")
	}
}

func TestUnknownVersionSaysWhatIsSupported(t *testing.T) {
	r := newRig(t, nil)
	_, _, data := errorOf(t, r.ask("tools/list", strings.Replace(modernOnly, "2026-07-28", "2030-01-01", 1)))
	var d struct {
		Supported []string
		Requested string
	}
	if err := json.Unmarshal(data, &d); err != nil || d.Requested != "2030-01-01" || len(d.Supported) == 0 || d.Supported[0] != "2026-07-28" {
		t.Errorf("data %s: %v", data, err)
	}
}

func TestModernResults(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct{ method, params string }{
		{"server/discover", modernOnly}, {"tools/list", modernOnly},
		{"tools/call", callParams(true, "agent_status", "{}")}, {"tools/call", callParams(true, "agent_sessions", "{}")},
		{"tools/call", callParams(true, "agent_close", `{"agent_id":"codex:x"}`)},
	} {
		res := resultOf(t, r.ask(c.method, c.params))
		if stringField(res, "resultType") != "complete" {
			t.Errorf("%s: resultType in %s", c.method, res)
		}
		if stringField(res, "_meta", "io.modelcontextprotocol/serverInfo", "name") != "atm-agent-mcp" {
			t.Errorf("%s: serverInfo in %s", c.method, res)
		}
		if c.method != "tools/call" {
			if rawKind(rawField(res, "ttlMs")) != '0' || stringField(res, "cacheScope") != "public" {
				t.Errorf("%s: caching in %s", c.method, res)
			}
		}
	}
	res := resultOf(t, r.ask("server/discover", modernOnly))
	if got := string(rawField(res, "supportedVersions")); got != `["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]` {
		t.Errorf("supportedVersions %s", got)
	}
}

func TestListen(t *testing.T) {
	for _, id := range []string{`0`, `"listen:0"`} {
		r := newRig(t, nil)
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{` + modernMetaJSON + `,"notifications":{"toolsListChanged":true,"promptsListChanged":true}}}`)
		ack := r.next()
		if stringField(ack, "method") != "notifications/subscriptions/acknowledged" ||
			string(rawField(ack, "params", "_meta", "io.modelcontextprotocol/subscriptionId")) != id ||
			string(rawField(ack, "params", "notifications")) != `{"toolsListChanged":true}` {
			t.Errorf("acknowledged: %s", ack)
		}
		r.quiet()
		r.f.shutdown(time.Second)
		res := resultOf(t, r.next())
		if stringField(res, "resultType") != "complete" || string(rawField(res, "_meta", "io.modelcontextprotocol/subscriptionId")) != id {
			t.Errorf("at shutdown: %s", res)
		}
	}
}

func TestListenCancelled(t *testing.T) {
	r := newRig(t, nil)
	r.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{` + modernMetaJSON + `}}`)
	r.next()
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
	r.quiet()
	r.end()
	if rec, ok := <-r.out; ok {
		t.Errorf("after a cancel: %s", rec)
	}
}

// TestBatchesAreRefused: an array gets one answer, whatever was negotiated, and
// none of its requests is served.
func TestBatchesAreRefused(t *testing.T) {
	for _, version := range []string{"", "2024-11-05", "2025-03-26", "2025-11-25"} {
		r := newRig(t, nil)
		if version != "" {
			r.hello(version, "{}", "x")
		}
		r.send(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` +
			callParams(false, "codex", `{"prompt":"hi"}`) + `}]`)
		rec := r.next()
		code, message, _ := errorOf(t, rec)
		if code != codeInvalidRequest || string(rawField(rec, "id")) != "null" || !strings.Contains(message, "one by one") {
			t.Errorf("%q: %s", version, rec)
		}
		r.quiet()
	}
}

func TestIdsStayRaw(t *testing.T) {
	r := newRig(t, nil)
	for _, id := range []string{`0`, `-5`, `"0"`, `"server-discover-probe-1"`, `123456789012345678901234567890`, `"\u00e9"`} {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		if rec := r.next(); string(rawField(rec, "id")) != id {
			t.Errorf("%s: %s", id, rec)
		}
	}
}

func TestDuplicateIdInFlight(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", "{}", "x")
	call := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":` + callParams(false, "codex", `{"prompt":"hi"}`) + `}`
	r.send(call)
	s := <-r.submits
	r.send(call)
	if code, _, _ := errorOf(t, r.next()); code != codeInvalidRequest {
		t.Error("a duplicate id was taken")
	}
	r.f.done(s.w, okTurn("one"))
	if got := stringField(resultOf(t, r.next()), "structuredContent", "content"); got != "one" {
		t.Errorf("the first call: %q", got)
	}
	r.send(call) // free again
	r.f.done((<-r.submits).w, okTurn("two"))
	resultOf(t, r.next())
	if len(r.submits) != 0 {
		t.Error("the duplicate reached the hub")
	}
}

func TestCancelNeverAnsweredLate(t *testing.T) {
	for _, c := range []struct {
		reason string
		detach bool
	}{
		{`"AbortError: user-cancel"`, false}, {`"SdkError: Request timed out"`, true}, {`"MCP error -32001: Request timed out"`, true},
		{`"client timeout"`, true}, {`7`, false}, {`null`, false},
	} {
		r := newRig(t, nil)
		r.hello("2025-06-18", "{}", "x")
		r.send(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":` + callParams(false, "codex", `{"prompt":"hi"}`) + `}`)
		s := <-r.submits
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"0","reason":"wrong type"}}`)
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0,"reason":` + c.reason + `}}`)
		if got := <-r.cancels; got.w != s.w || got.detach != c.detach {
			t.Errorf("%s: %+v", c.reason, got)
		}
		r.f.done(s.w, okTurn("late"))
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
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
		o.cancel = func(waiterID, bool) { order = append(order, "cancel") }
	})
	f = r.f
	r.hello("2025-06-18", "{}", "x")
	r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` + callParams(false, "codex", `{"prompt":"hi"}`) + `}`)
	r.quiet()
	if got := strings.Join(order, " "); got != "submit submitted cancel" {
		t.Error(got)
	}
}

func TestBadRecordsAreAnswered(t *testing.T) {
	r := newRig(t, nil)
	for rec, want := range map[string]int{
		`{bad`:                     codeParse,
		"{\"a\":\"\xff\"}":         codeParse,
		`{"a":1}`:                  codeInvalidRequest,
		`{"id":1,"method":"ping"}`: codeInvalidRequest,
		`"x"`:                      codeInvalidRequest,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`: codeInvalidRequest,
	} {
		r.send(rec)
		if code, _, _ := errorOf(t, r.next()); code != want {
			t.Errorf("%s: code %d, want %d", rec, code, want)
		}
	}
	r.quiet()
}

func TestUnknownNotificationsAreIgnored(t *testing.T) {
	r := newRig(t, nil)
	for _, m := range []string{"notifications/initialized", "notifications/roots/list_changed", "notifications/cancelled", "what/ever", "tools/call"} {
		r.send(`{"jsonrpc":"2.0","method":"` + m + `"}`)
		r.send(`{"jsonrpc":"2.0","method":"` + m + `","params":{"requestId":{}}}`)
	}
	r.quiet()
}

func TestRepliesKeepTheirOrder(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", "{}", "x")
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`+"\n", i, callParams(false, "codex-reply", fmt.Sprintf(`{"agent_id":"codex:a","prompt":"%d"}`, i)))
	}
	r.send(strings.TrimSuffix(b.String(), "\n"))
	for i := range 50 {
		if s := <-r.submits; s.req.prompt != fmt.Sprint(i) {
			t.Fatalf("%d came as %q", i, s.req.prompt)
		}
	}
}

// The end of the client's stream ends run; the answers of the hub that follow
// still go out.
func TestEndOfStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.hello("2025-06-18", "{}", "x")
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + callParams(false, "codex", `{"prompt":"hi"}`) + `}`)
		s := <-r.submits
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
			cancel:   func(waiterID, bool) {},
			sessions: func(int) []sessionView { return nil },
			status:   func() statusView { return statusView{} },
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

// The ends of turns, which carry the whole text, were never dropped: while
// nobody read, each turn of each agent cost its text for good.
func TestStalledClientCostsTheBudget(t *testing.T) {
	in, toFront := io.Pipe()
	fromFront, out := io.Pipe()
	submits := make(chan waiterID, 1)
	f := newMCPFront(mcpOptions{R: in, W: out, ForwardEvents: "on", submit: func(_ turnRequest, w waiterID) { submits <- w }})
	running := make(chan error, 1)
	go func() { running <- f.run() }()
	lines := bufio.NewReaderSize(fromFront, 1<<20)
	say := func(rec string) {
		if _, err := io.WriteString(toFront, rec+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	read := func() json.RawMessage {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	read()
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}`)
	w := <-submits

	const size, events = 1 << 20, 24
	raw := json.RawMessage(`{"threadId":"t","turn":{"id":"u","text":"` + strings.Repeat("x", size) + `"}}`)
	took, dropped := 0, 0
	for range events {
		e := event{kind: evRaw, thread: "t", must: true, method: "turn/completed", raw: raw}
		if f.event(agentRef{AgentID: "codex:a", Thread: "t"}, w, &e) {
			took++
		} else {
			dropped++
		}
		if n := f.p.queued(); n > f.p.budget+2*size {
			t.Fatalf("%d bytes wait, the budget is %d", n, f.p.budget)
		}
	}
	if took < f.p.budget/size-1 || dropped == 0 {
		t.Fatalf("%d events taken, %d dropped", took, dropped)
	}
	f.done(w, turnResult{AgentID: "codex:a", Content: "the answer", TurnStatus: "completed"}) // never dropped

	for got := 0; ; {
		rec := read()
		if stringField(rec, "method") == "codex/event" {
			got++
			continue
		}
		if text := stringField(rec, "result", "structuredContent", "content"); text != "the answer" || got != took {
			t.Errorf("%d of %d events before %.200s", got, took, rec)
		}
		break
	}
	toFront.Close()
	go func() { _, _ = io.Copy(io.Discard, fromFront) }() // until out is closed
	if err := <-running; err != nil {
		t.Error(err)
	}
	f.shutdown(time.Second)
	out.Close()
}
