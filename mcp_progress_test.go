package main

// mcp_progress_test.go holds progress to its pace (one as a turn starts, throttled
// after it, never without a token, never after a cancel) and to its words, and the
// codex/event notifications to FR-19: they pass as they came, to those who take
// them.

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// startCall sends a codex call with a progress token and gives its waiter.
func startCall(r *mcpRig, modern bool, id, token string) waiterID {
	r.t.Helper()
	meta := `"_meta":{"progressToken":` + token + `}`
	if modern {
		meta = strings.TrimSuffix(modernMetaJSON, "}") + `,"progressToken":` + token + `}`
	}
	return r.begin(id, `{`+meta+`,"name":"codex","arguments":{"prompt":"hi"}}`).w
}

// progressOf reads one progress notification.
func progressOf(t *testing.T, rec json.RawMessage) (token string, n int, text string) {
	t.Helper()
	if stringField(rec, "method") != "notifications/progress" {
		t.Fatalf("no progress: %s", rec)
	}
	var p struct {
		Progress int
		Message  string
	}
	if err := json.Unmarshal(rawField(rec, "params"), &p); err != nil {
		t.Fatal(err)
	}
	return string(rawField(rec, "params", "progressToken")), p.Progress, p.Message
}

func runs(cmd string) *event {
	return &event{kind: evItem, phase: "started", body: &itemBody{kind: "commandExecution", command: cmd}}
}

func TestProgressPace(t *testing.T) {
	for _, modern := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = "off" })
			if !modern {
				r.hello("2025-06-18", "{}", "x")
			}
			a := agentRef{AgentID: "codex:a", Thread: "t", Identity: "codex"}
			w := startCall(r, modern, "1", `"tok"`)
			began := time.Now()
			last := 0
			expect := func(at time.Duration, want string) {
				t.Helper()
				token, n, text := progressOf(t, r.next())
				if got := time.Since(began); got != at || token != `"tok"` || n <= last || text != want {
					t.Errorf("at %v token %s n %d after %d: %q; want %v %q", got, token, n, last, text, at, want)
				}
				last = n
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
			r.f.event(a, w, runs("pending change"))
			r.f.done(w, okTurn("done"))
			resultOf(t, r.next())
			r.f.event(a, w, runs("late"))
			time.Sleep(time.Minute)
			r.quiet()
			r.end()
		})
	}
}

func TestNoProgressAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = "off" })
		r.hello("2025-06-18", "{}", "x")
		a := agentRef{AgentID: "codex:a"}
		w := startCall(r, false, "1", "7")
		r.f.event(a, w, &event{kind: evStarted})
		if token, _, _ := progressOf(t, r.next()); token != "7" {
			t.Errorf("token %s", token)
		}
		r.f.event(a, w, runs("pending"))
		r.cancelRequest(`1`, `null`)
		<-r.cancels
		r.f.event(a, w, runs("late"))
		time.Sleep(time.Minute)
		r.quiet()
		r.end()
	})
}

// Nothing is told where no usable token was given, nor for calls that don't last.
func TestNoProgressWithoutToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = "off" })
		r.hello("2025-06-18", "{}", "x")
		for _, token := range []string{"null", "{}", "true", "[1]"} {
			w := startCall(r, false, "1", token)
			r.f.event(agentRef{}, w, &event{kind: evStarted})
			time.Sleep(time.Minute)
			r.quiet()
			r.f.done(w, okTurn(""))
			resultOf(t, r.next())
		}
		r.end()
	})
}

func TestActivities(t *testing.T) {
	a := agentRef{Thread: "t"}
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
		{item("started", itemBody{kind: "fileChange", files: make([]fileChange, 3)}), "editing 3 files"},
		{item("started", itemBody{kind: "fileChange", files: []fileChange{{path: "/a/b.go"}}}), "editing b.go"},
		{item("started", itemBody{kind: "mcpToolCall", server: "atm", tool: "send"}), "calling atm.send"},
		{item("started", itemBody{kind: "dynamicToolCall", tool: "atm_send"}), "calling atm_send"},
		{item("started", itemBody{kind: "agentMessage"}), "writing the answer"},
		{item("started", itemBody{kind: "agentMessage", phase: "commentary"}), ""},
		{item("started", itemBody{kind: "somethingNew"}), ""},
		{event{kind: evItem}, ""},
		{event{kind: evDelta, phase: "reasoning"}, "thinking"},
		{event{kind: evDelta, phase: "output"}, ""},
		{event{kind: evNotice, text: "Reconnecting... 1/5", retry: true}, "retrying: Reconnecting... 1/5"},
		{event{kind: evNotice, text: "careful"}, ""},
		{event{kind: evAsk, ask: &approval{kind: askCommand, action: "rm x"}}, "waiting for approval of `rm x`"},
		{event{kind: evAsk, ask: &approval{kind: askQuestion}}, "waiting for an answer to its question"},
		{event{kind: evAskGone}, "thinking"},
		{event{kind: evRaw}, ""},
		{event{kind: evDelta, phase: "answer", thread: "sub"}, "a subagent is writing the answer"},
	} {
		if got := activityOf(a, &c.e); got != c.want {
			t.Errorf("%+v: %q, want %q", c.e, got, c.want)
		}
	}
}

func TestShellWords(t *testing.T) {
	for line, want := range map[string][]string{
		`/bin/bash -lc 'touch /x; ls'`: {"/bin/bash", "-lc", "touch /x; ls"},
		`/bin/bash -lc 'it'\''s'`:      {"/bin/bash", "-lc", "it's"},
		`bash -lc "echo \"a\" $b"`:     {"bash", "-lc", `echo "a" $b`},
		`a\ b c`:                       {"a b", "c"},
		`a '' b`:                       {"a", "", "b"},
		`it's`:                         {"it's"},
		`say "x`:                       {`say "x`},
		`end\`:                         {`end\`},
		"":                             nil,
	} {
		if got := shellWords(line); strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Errorf("%s: %q", line, got)
		}
	}
	if got := shownCommand(`python -c 'x'`); got != `python -c 'x'` {
		t.Error(got)
	}
}

// TestEventsPassAsTheyCame: what each driver was told, and the params of the
// notification that becomes of it.
func TestEventsPassAsTheyCame(t *testing.T) {
	const delta = `{"threadId":"T","turnId":"U","itemId":"i","delta":"a\"b\u00e9 \ud83d\ude00","n":1.50}`
	for _, tt := range []struct {
		name    string
		request string // the caller's, "" for none
		e       event
		want    string
	}{
		{"a delta, byte by byte", `7`, event{kind: evDelta, method: "item/agentMessage/delta", thread: "T", turn: "U", raw: json.RawMessage(delta)},
			`{"_meta":{"requestId":7,"threadId":"T","agent_id":"codex:ab"},"id":"U","msg":{"type":"item/agentMessage/delta",` + delta[1:] + `}`},
		{"between turns", ``, event{kind: evRaw, method: "thread/whatever/new", thread: "T", raw: json.RawMessage(`{"x":[1]}`)},
			`{"_meta":{"threadId":"T","agent_id":"codex:ab"},"id":"","msg":{"type":"thread/whatever/new","x":[1]}}`},
		{"of a subagent", `"a"`, event{kind: evItem, method: "item/completed", thread: "S", turn: "V", raw: json.RawMessage(`{"item":{"type":"somethingNew"}}`)},
			`{"_meta":{"requestId":"a","threadId":"S","agent_id":"codex:ab"},"id":"V","msg":{"type":"item/completed","item":{"type":"somethingNew"}}}`},
		{"of no thread", ``, event{kind: evRaw, method: "m", raw: json.RawMessage(`{ }`)},
			`{"_meta":{"threadId":"T","agent_id":"codex:ab"},"id":"","msg":{"type":"m"}}`},
		{"no params", ``, event{kind: evRaw, method: "m", thread: "T"},
			`{"_meta":{"threadId":"T","agent_id":"codex:ab"},"id":"","msg":{"type":"m"}}`},
		{"a type of their own", ``, event{kind: evRaw, method: "m", thread: "T", raw: json.RawMessage(`{"a":1,"type":"t"}`)},
			`{"_meta":{"threadId":"T","agent_id":"codex:ab"},"id":"","msg":{"type":"m","params":{"a":1,"type":"t"}}}`},
		{"no object", ``, event{kind: evRaw, method: "m", thread: "T", raw: json.RawMessage(`[1]`)},
			`{"_meta":{"threadId":"T","agent_id":"codex:ab"},"id":"","msg":{"type":"m","params":[1]}}`},
		{"mcp-server's own", `"a"`, event{kind: evRaw, method: mcpNote, thread: "T", turn: "U",
			raw: json.RawMessage(`{"_meta":{"requestId":99,"threadId":"T"},"id":"u","msg":{"type":"agent_message","n":1.50},"new":null}`)},
			`{"_meta":{"requestId":"a","threadId":"T","agent_id":"codex:ab"},"id":"u","msg":{"type":"agent_message","n":1.50},"new":null}`},
	} {
		var request json.RawMessage
		if tt.request != "" {
			request = json.RawMessage(tt.request)
		}
		rec := appendCodexEvent(nil, agentRef{AgentID: "codex:ab", Thread: "T", Identity: "codex"}, request, &tt.e)
		if want := `{"jsonrpc":"2.0","method":"codex/event","params":` + tt.want + `}`; string(rec) != want || !validJSON(rec) {
			t.Errorf("%s:\n got  %s\n want %s", tt.name, rec, want)
		}
	}
}

// TestSyntheticEventsAreNotForwarded: what a driver makes beside an event, or of
// an answer to a call of ours, is no word of the child's.
func TestSyntheticEventsAreNotForwarded(t *testing.T) {
	for _, e := range []event{{kind: evGone}, {kind: evOpened, thread: "T", opened: &openedThread{}}, {kind: evStarted, op: 3},
		{kind: evRefused}, {kind: evAsk, method: "elicitation/create", raw: json.RawMessage(`{}`)}} {
		if fromChild(&e) {
			t.Errorf("%+v", e)
		}
	}
}

// Who gets events: legacy clients, by the setting; auto spares the Python SDK.
func TestWhoGetsEvents(t *testing.T) {
	for _, c := range []struct {
		setting, client string
		modern, want    bool
	}{
		{"auto", "claude-code", false, true}, {"", "x", false, true}, {"auto", "mcp", false, false}, {"auto", "MCP", false, false},
		{"on", "mcp", false, true}, {"off", "claude-code", false, false}, {"on", "x", true, false},
	} {
		r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = c.setting })
		a := agentRef{AgentID: "codex:a", Thread: "T"}
		e := event{kind: evRaw, method: "warning", raw: json.RawMessage(`{}`)}
		if !r.f.event(a, 0, &e) {
			t.Error("nothing was sent and it says dropped")
		}
		r.quiet() // no client yet
		r.hello("2025-06-18", "{}", c.client)
		w := r.begin("7", callParams(c.modern, "codex", `{"prompt":"x"}`)).w
		if !r.f.event(a, w, &e) {
			t.Error("dropped")
		}
		if c.want {
			if rec := r.next(); string(rawField(rec, "params", "_meta", "requestId")) != "7" {
				t.Errorf("%s", rec)
			}
			r.f.event(a, 0, &e) // between turns: nobody's request
			if rec := r.next(); rawField(rec, "params", "_meta", "requestId") != nil {
				t.Errorf("%s", rec)
			}
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
		if rec := appendCodexEvent(nil, agentRef{}, json.RawMessage("1"), &e); !validJSON(rec) {
			t.Fatalf("%s", rec)
		}
	})
}

// Design: at least 100 000 forwarded events a second.
func BenchmarkForwardDelta(b *testing.B) {
	f := newMCPFront(mcpOptions{R: strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}` + "\n"), W: io.Discard})
	if err := f.run(); err != nil {
		b.Fatal(err)
	}
	c := &mcpCall{id: json.RawMessage("7"), key: "7", waiter: 1}
	c.prog = newProgress(f.p, json.RawMessage("7"))
	f.open["7"], f.waiters[1] = c, c
	a := agentRef{AgentID: "codex:ab12", Thread: "01a1fd66-4352-75c0-bf05-d2f609dc3324", Identity: "codex"}
	raw := json.RawMessage(`{"threadId":"01a1fd66-4352-75c0-bf05-d2f609dc3324","turnId":"01a1fd66-52f0-7d52-aee2-9f151513ce91","itemId":"msg_14033_00007z","delta":"DONE: Chunk ID: 6bde44\nWall time"}`)
	e := event{kind: evDelta, phase: "answer", thread: a.Thread, turn: "01a1fd66-52f0-7d52-aee2-9f151513ce91", method: "item/agentMessage/delta", raw: raw}
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	dropped := 0
	for b.Loop() {
		if !f.event(a, 1, &e) {
			dropped++
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(dropped)/float64(b.N)*100, "%dropped")
	f.shutdown(time.Second)
}
