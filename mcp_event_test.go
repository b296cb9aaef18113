package main

// mcp_event_test.go holds the codex/event notifications to FR-19: that they
// pass as they came, who gets them, and that only they are dropped when a client
// reads too slowly.

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
		{kind: evSubthread}, {kind: evRefused}, {kind: evAsk, method: "elicitation/create", raw: json.RawMessage(`{}`)}} {
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
		r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + callParams(c.modern, "codex", `{"prompt":"x"}`) + `}`)
		w := (<-r.submits).w
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

// A client that stops reading loses droppable events and nothing else.
func TestEventsAreDroppedPastTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		f := newMCPFront(mcpOptions{R: strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}` + "\n"), W: pw})
		if err := f.run(); err != nil {
			t.Fatal(err)
		}
		big := json.RawMessage(`{"delta":"` + strings.Repeat("x", 1<<20) + `"}`)
		a := agentRef{AgentID: "codex:a"}
		dropped := 0
		for range 40 {
			if !f.event(a, 0, &event{kind: evDelta, method: "x", raw: big}) {
				dropped++
			}
		}
		if dropped < 20 || dropped > 30 {
			t.Errorf("%d of 40 MiB dropped with a budget of 16", dropped)
		}
		if !f.event(a, 0, &event{kind: evEnded, method: "turn/completed", must: true, raw: json.RawMessage(`{}`)}) {
			t.Error("an event that must arrive was dropped")
		}
		go io.Copy(io.Discard, pr)
		f.shutdown(time.Second)
		pw.Close()
	})
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
