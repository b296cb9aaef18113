package main

// mcp_event_test.go holds the codex/event notifications to FR-19: the old form
// of each event, who gets them, and that only they are dropped when a client
// reads too slowly.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// forwarded makes an event of a method and its params and returns what it
// becomes: the msg objects, by type in order.
func forwarded(t *testing.T, e event) (types string, msgs []json.RawMessage) {
	t.Helper()
	x := codexEvents{a: agentRef{AgentID: "codex:ab", Thread: "T", Identity: "codex"}, e: &e, request: json.RawMessage("0"), last: json.RawMessage(`"the last"`),
		send: func(rec []byte, _ worth) bool {
			if !json.Valid(rec) || strings.Contains(string(rec), "\n") {
				t.Fatalf("no one-line JSON: %s", rec)
			}
			if stringField(rec, "method") != "codex/event" || stringField(rec, "params", "_meta", "agent_id") != "codex:ab" ||
				string(rawField(rec, "params", "_meta", "requestId")) != "0" || stringField(rec, "params", "id") != e.turn {
				t.Errorf("envelope: %s", rec)
			}
			msg := rawField(bytes.Clone(rec), "params", "msg")
			types += " " + stringField(msg, "type")
			if e.raw != nil && string(rawField(msg, "params")) != string(e.raw) {
				t.Errorf("the original is missing: %s", rec)
			}
			msgs = append(msgs, msg)
			return true
		}}
	if !x.forward() {
		t.Error("dropped")
	}
	return strings.TrimSpace(types), msgs
}

// Each notification of app-server and the old events it becomes, with params as
// recorded.
func TestOldEvents(t *testing.T) {
	const ids = `"threadId":"T","turnId":"U"`
	exec := `"type":"commandExecution","id":"c1","command":"/bin/bash -lc 'echo hi'","cwd":"/w","processId":"12","source":"unifiedExecStartup","commandActions":[{"type":"listFiles","command":"echo hi","path":null}]`
	for _, c := range []struct {
		name, method, params, types string
		want                        []string // one for each: a JSON object whose fields must be in msg
	}{
		{"delta", "item/agentMessage/delta", `{` + ids + `,"itemId":"i","delta":"a\"b\u00e9"}`, "agent_message_content_delta",
			[]string{`{"thread_id":"T","turn_id":"U","item_id":"i","delta":"a\"bé"}`}},
		{"reasoning", "item/reasoning/summaryTextDelta", `{` + ids + `,"itemId":"i","delta":"x","summaryIndex":2}`, "reasoning_content_delta",
			[]string{`{"item_id":"i","delta":"x","summary_index":2}`}},
		{"raw reasoning", "item/reasoning/textDelta", `{` + ids + `,"itemId":"i","delta":"x","contentIndex":0}`, "reasoning_raw_content_delta", []string{`{"content_index":0}`}},
		{"section", "item/reasoning/summaryPartAdded", `{` + ids + `,"itemId":"i","summaryIndex":0}`, "agent_reasoning_section_break", []string{`{"item_id":"i","summary_index":0}`}},
		{"output", "item/commandExecution/outputDelta", `{` + ids + `,"itemId":"c1","delta":"hi\n"}`, "exec_command_output_delta",
			[]string{`{"call_id":"c1","stream":"stdout","chunk":"` + base64.StdEncoding.EncodeToString([]byte("hi\n")) + `"}`}},
		{"turn started", "turn/started", `{"threadId":"T","turn":{"id":"U","startedAt":17}}`, "task_started", []string{`{"turn_id":"U","started_at":17,"model_context_window":null}`}},
		{"turn completed", "turn/completed", `{"threadId":"T","turn":{"id":"U","status":"completed","durationMs":5,"items":[]}}`, "task_complete",
			[]string{`{"turn_id":"U","last_agent_message":"the last","duration_ms":5}`}},
		{"turn failed", "turn/completed", `{"threadId":"T","turn":{"id":"U","status":"failed","error":{"message":"boom","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":401}}}}}`, "task_complete",
			[]string{`{"last_agent_message":null,"error":{"message":"boom","codex_error_info":{"http_connection_failed":{"http_status_code":401}}}}`}},
		{"turn interrupted", "turn/completed", `{"threadId":"T","turn":{"id":"U","status":"interrupted"}}`, "turn_aborted", []string{`{"turn_id":"U","reason":"interrupted"}`}},
		{"usage", "thread/tokenUsage/updated", `{` + ids + `,"tokenUsage":{"total":{"totalTokens":120,"cachedInputTokens":1},"last":{"totalTokens":20},"modelContextWindow":258400}}`, "token_count",
			[]string{`{"info":{"total_token_usage":{"total_tokens":120,"cached_input_tokens":1},"last_token_usage":{"total_tokens":20},"model_context_window":258400},"rate_limits":null}`}},
		{"plan", "turn/plan/updated", `{` + ids + `,"explanation":"e","plan":[{"step":"s","status":"inProgress"}]}`, "plan_update", []string{`{"explanation":"e","plan":[{"step":"s","status":"in_progress"}]}`}},
		{"diff", "turn/diff/updated", `{` + ids + `,"diff":"d"}`, "turn_diff", []string{`{"unified_diff":"d"}`}},
		{"retry", "error", `{` + ids + `,"error":{"message":"Reconnecting... 1/2","codexErrorInfo":"internalServerError","additionalDetails":"x"},"willRetry":true}`, "stream_error",
			[]string{`{"message":"Reconnecting... 1/2","codex_error_info":"internal_server_error","additional_details":"x"}`}},
		{"error", "error", `{` + ids + `,"error":{"message":"no","codexErrorInfo":null},"willRetry":false}`, "error", []string{`{"message":"no","codex_error_info":null}`}},
		{"warning", "warning", `{"threadId":"T","message":"w"}`, "warning", []string{`{"message":"w"}`}},
		{"mcp startup", "mcpServer/startupStatus/updated", `{"threadId":"T","name":"atm","status":"failed","error":"no"}`, "mcp_startup_update", []string{`{"server":"atm","status":{"state":"failed","error":"no"}}`}},
		{"user", "item/completed", `{"item":{"type":"userMessage","id":"i","content":[{"type":"text","text":"a"},{"type":"image","url":"u"},{"type":"text","text":"b"}]},` + ids + `}`, "item_completed user_message",
			[]string{`{"thread_id":"T","turn_id":"U","item":{"type":"UserMessage","id":"i"}}`, `{"message":"ab","images":["u"],"local_images":[]}`}},
		{"agent started", "item/started", `{"item":{"type":"agentMessage","id":"i","text":"","phase":null},` + ids + `}`, "item_started", []string{`{"item":{"type":"AgentMessage","id":"i","content":[]}}`}},
		{"agent", "item/completed", `{"item":{"type":"agentMessage","id":"i","text":"t","phase":"final_answer"},` + ids + `}`, "item_completed agent_message",
			[]string{`{"item":{"type":"AgentMessage","id":"i","content":[{"type":"Text","text":"t"}]}}`, `{"message":"t","phase":"final_answer"}`}},
		{"reasoning done", "item/completed", `{"item":{"type":"reasoning","id":"i","summary":["a","b"],"content":[]},` + ids + `}`, "item_completed agent_reasoning agent_reasoning",
			[]string{`{"item":{"type":"Reasoning"}}`, `{"text":"a"}`, `{"text":"b"}`}},
		{"exec begin", "item/started", `{"item":{` + exec + `},` + ids + `}`, "item_started exec_command_begin",
			[]string{`{"item":{"type":"CommandExecution","command":["/bin/bash","-lc","echo hi"],"process_id":"12"}}`,
				`{"call_id":"c1","process_id":"12","turn_id":"U","command":["/bin/bash","-lc","echo hi"],"cwd":"/w","parsed_cmd":[{"type":"list_files","cmd":"echo hi","path":null}],"source":"unified_exec_startup"}`}},
		{"exec end", "item/completed", `{"item":{` + exec + `,"status":"completed","aggregatedOutput":"hi\n","exitCode":0,"durationMs":1234},` + ids + `}`, "item_completed exec_command_end",
			[]string{`{}`, `{"call_id":"c1","aggregated_output":"hi\n","stdout":"","stderr":"","exit_code":0,"duration":{"secs":1,"nanos":234000000},"status":"completed"}`}},
		{"patch begin", "item/started", `{"item":{"type":"fileChange","id":"p","changes":[{"path":"/w/a","kind":{"type":"add"},"diff":"x\n"},{"path":"/w/b","kind":{"type":"update","move_path":"/w/c"},"diff":"@@"}],"status":"inProgress"},` + ids + `}`,
			"item_started patch_apply_begin", []string{`{"item":{"type":"FileChange"}}`,
				`{"call_id":"p","turn_id":"U","auto_approved":false,"changes":{"/w/a":{"type":"add","content":"x\n"},"/w/b":{"type":"update","unified_diff":"@@","move_path":"/w/c"}}}`}},
		{"patch end", "item/completed", `{"item":{"type":"fileChange","id":"p","changes":[],"status":"declined"},` + ids + `}`, "item_completed patch_apply_end", []string{`{}`, `{"success":false,"status":"declined","changes":{}}`}},
		{"mcp call", "item/completed", `{"item":{"type":"mcpToolCall","id":"m","server":"s","tool":"t","arguments":{"a":1},"result":{"content":[]},"error":null,"durationMs":2},` + ids + `}`, "item_completed mcp_tool_call_end",
			[]string{`{}`, `{"call_id":"m","invocation":{"server":"s","tool":"t","arguments":{"a":1}},"result":{"Ok":{"content":[]}},"duration":{"secs":0,"nanos":2000000}}`}},
		{"mcp failure", "item/completed", `{"item":{"type":"mcpToolCall","id":"m","server":"s","tool":"t","result":null,"error":{"message":"no"}},` + ids + `}`, "item_completed mcp_tool_call_end", []string{`{}`, `{"result":{"Err":"no"}}`}},
		{"web", "item/completed", `{"item":{"type":"webSearch","id":"w","query":"q"},` + ids + `}`, "item_completed web_search_end", []string{`{}`, `{"call_id":"w","query":"q"}`}},
		{"compaction", "item/completed", `{"item":{"type":"contextCompaction","id":"x"},` + ids + `}`, "item_completed context_compacted", []string{`{}`, `{}`}},
		{"new item", "item/completed", `{"item":{"type":"somethingNew","id":"x","newField":1},` + ids + `}`, "item_completed", []string{`{"item":{"type":"SomethingNew","new_field":1}}`}},
		{"no item", "item/completed", `{}`, "item_completed", []string{`{"item":null,"thread_id":null}`}},
		{"exec approval", "item/commandExecution/requestApproval", `{` + ids + `,"itemId":"c1","command":"/bin/bash -lc 'x'","cwd":"/w","reason":"r","proposedExecpolicyAmendment":["x"]}`, "exec_approval_request",
			[]string{`{"call_id":"c1","turn_id":"U","command":["/bin/bash","-lc","x"],"cwd":"/w","reason":"r","proposed_execpolicy_amendment":["x"],"parsed_cmd":[]}`}},
		{"user input", "item/tool/requestUserInput", `{` + ids + `,"itemId":"c","questions":[{"id":"q"}]}`, "request_user_input", []string{`{"call_id":"c","questions":[{"id":"q"}]}`}},
		{"tool call", "item/tool/call", `{"threadId":"T","turnId":"U","callId":"c","namespace":null,"tool":"atm_send","arguments":{"to":"bob"}}`, "dynamic_tool_call_request",
			[]string{`{"callId":"c","turnId":"U","tool":"atm_send","arguments":{"to":"bob"}}`}},
		{"unknown", "thread/whatever/new", `{"threadId":"T","x":[1]}`, "thread/whatever/new", []string{`{}`}},
		{"no params", "thread/whatever/new", ``, "thread/whatever/new", []string{`{"params":{}}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := event{kind: evRaw, method: c.method, thread: "T", turn: "U"}
			if c.params != "" {
				e.raw = json.RawMessage(c.params)
			}
			if d := new(appIDs).event(c.method, e.raw); d.kind == evDelta {
				e = d // what the driver found in it
			}
			types, msgs := forwarded(t, e)
			if types != c.types {
				t.Fatalf("types %q, want %q", types, c.types)
			}
			for i, want := range c.want {
				var w, got any
				if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal(msgs[i], &got) != nil {
					t.Fatalf("%s / %s", want, msgs[i])
				}
				if !subset(w, got) {
					t.Errorf("%s\nlacks %s", msgs[i], want)
				}
			}
		})
	}
}

// subset reports whether got has at least what want has.
func subset(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for k, v := range w {
			have, there := g[k]
			if !there || !subset(v, have) {
				return false
			}
		}
		return ok
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !subset(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}

func TestSessionConfigured(t *testing.T) {
	raw := json.RawMessage(`{"thread":{"id":"T","path":"/r.jsonl"},"model":"m","modelProvider":"p","cwd":"/w","approvalPolicy":"on-request","sandbox":{"type":"readOnly","networkAccess":false},"reasoningEffort":null}`)
	types, msgs := forwarded(t, event{kind: evOpened, thread: "T", opened: &openedThread{raw: raw}})
	if types != "session_configured" {
		t.Fatal(types)
	}
	mustContain(t, string(msgs[0]), `"session_id":"T","thread_id":"T","model":"m","model_provider_id":"p","approval_policy":"on-request"`,
		`"sandbox_policy":{"type":"read-only","network_access":false}`, `"cwd":"/w"`, `"rollout_path":"/r.jsonl"`, `"params":`+string(raw))
}

// What a driver makes beside an event is nobody's event.
func TestSyntheticEventsAreNotForwarded(t *testing.T) {
	for _, e := range []event{{kind: evGone}, {kind: evStarted, op: 3, method: "turn/start", raw: json.RawMessage(`{}`)}, {kind: evSubthread, method: "item/started"}, {kind: evRefused}} {
		if types, _ := forwarded(t, e); types != "" {
			t.Errorf("%+v: %s", e, types)
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

// 0.104 tells no items with turn/completed: the last message is remembered.
func TestLastAgentMessage(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", "{}", "x")
	a := agentRef{AgentID: "codex:a", Thread: "T"}
	w := startCall(r, false, "1", "null")
	say := func(thread, phase, text string) {
		r.f.event(a, w, &event{kind: evItem, phase: "completed", thread: thread, method: "item/completed", body: &itemBody{kind: "agentMessage", phase: phase},
			raw: json.RawMessage(`{"item":{"type":"agentMessage","text":"` + text + `"}}`)})
		r.next()
		r.next()
	}
	say("T", "", "yes")
	say("T", "commentary", "no")
	say("sub", "", "no")
	r.f.event(a, w, &event{kind: evEnded, thread: "T", method: "turn/completed", raw: json.RawMessage(`{"turn":{"id":"U","status":"completed","items":[]}}`)})
	if rec := r.next(); stringField(rec, "params", "msg", "last_agent_message") != "yes" {
		t.Errorf("%s", rec)
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
	f.Add("item/completed", `{"item":{"type":"commandExecution","command":"a 'b","commandActions":[{"type":"x","command":1}],"durationMs":1.5}}`)
	f.Add("item/started", `{"item":{"type":"fileChange","changes":[{"path":1}]}}`)
	f.Add("error", `{"error":{"codexErrorInfo":[]}}`)
	f.Add("turn/completed", `{"turn":{"status":"failed","error":7}}`)
	f.Fuzz(func(t *testing.T, method, params string) {
		if !validJSON([]byte(params)) || !validJSON(toJSON(method)) {
			return // the peer lets nothing else pass
		}
		e := event{kind: evRaw, method: method, raw: json.RawMessage(params)}
		x := codexEvents{e: &e, request: json.RawMessage("1"), send: func(rec []byte, _ worth) bool {
			if !validJSON(rec) {
				t.Fatalf("%s", rec)
			}
			return true
		}}
		x.forward()
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
