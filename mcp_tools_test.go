package main

// mcp_tools_test.go holds the tools to their table (what clients see of it, what is
// said of bad arguments, results that fit their schemas) and each tool of an agent to
// what it asks the hub and answers: codex and codex-reply, decisions on approvals,
// interrupts, lists. mcp_wait_test.go and mcp_mail_test.go have the rest.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What clients see of the tools, word for word: a change of a struct, a tag or
// a row shows here. After one that is meant:
// `go test -run TestToolsListGolden -update .`
func TestToolsListGolden(t *testing.T) {
	var got bytes.Buffer
	if err := json.Indent(&got, toolList(toolTable()), "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	const file = "testdata/tools_list.json"
	if *updateTable {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n")); !bytes.Equal(got.Bytes(), want) {
		t.Errorf("tools/list is not what %s has; if that is meant, run this test with -update", file)
	}
}

// Descriptions that clients would cut, and hints that would have Claude Code run what
// changes something in parallel, or not ask about what destroys.
func TestToolTableIsHonest(t *testing.T) {
	for _, tool := range toolTable() {
		if tool.title == "" || len(tool.description) < 40 || len(tool.description) > 2048 {
			t.Errorf("%s: title %q, description of %d bytes", tool.name, tool.title, len(tool.description))
		}
		reads, destroys := false, true
		switch tool.name {
		case "agent_sessions", "agent_status", "agent_wait", "atm_pending_count":
			reads, destroys = true, false
		case "agent_mail", "atm_send", "atm_broadcast", "atm_read": // atm_read marks
			destroys = false
		}
		if tool.hints.ReadOnly != reads || tool.hints.Destructive != destroys {
			t.Errorf("%s: %+v", tool.name, tool.hints)
		}
	}
}

// Every bad argument, in both eras: what is ill-typed is -32602 in both, what
// makes no sense is -32007, as an error for legacy and a result for modern.
func TestBadArguments(t *testing.T) {
	cases := []struct {
		tool, args string
		code       int
		words      []string
	}{
		{"codx", `{}`, codeInvalidParams, []string{`"codx"`, "codex-reply", `did you mean "codex"`}},
		{"", `{}`, codeInvalidParams, nil},
		{"codex", `[]`, codeInvalidParams, []string{"object"}},
		{"codex", `"x"`, codeInvalidParams, []string{"object"}},
		{"codex", `{"prompt":5}`, codeInvalidParams, []string{`"prompt"`, "a string", "5"}},
		{"codex", `{"promt":"x"}`, codeInvalidParams, []string{`"promt"`, `did you mean "prompt"`}},
		{"codex", `{"prompt":"x","zzz":1}`, codeInvalidParams, []string{`"zzz"`, "agent_file"}},
		{"codex", `{"prompt":"x","sandbox":"read_only"}`, codeInvalidParams, []string{`"sandbox"`, "read-only, workspace-write, danger-full-access"}},
		{"codex", `{"prompt":"x","approval-policy":"always"}`, codeInvalidParams, []string{`"approval-policy"`, "untrusted, on-failure, on-request, never"}},
		{"codex", `{"prompt":"x","approval-policy":7}`, codeInvalidParams, []string{`"approval-policy"`}},
		{"codex", `{"prompt":"x","config":[]}`, codeInvalidParams, []string{`"config"`, "an object"}},
		{"codex", `{"prompt":"x","timeout_secs":0}`, codeInvalidParams, []string{`"timeout_secs"`, "86400"}},
		{"codex", `{"prompt":"x","timeout_secs":-1}`, codeInvalidParams, []string{`"timeout_secs"`}},
		{"codex", `{"prompt":"x","timeout_secs":86401}`, codeInvalidParams, []string{`"timeout_secs"`}},
		{"codex", `{"prompt":"x","timeout_secs":1e999}`, codeInvalidParams, []string{`"timeout_secs"`}},
		{"codex", `{"prompt":"x","timeout_secs":"5"}`, codeInvalidParams, []string{`"timeout_secs"`, "number"}},
		{"codex", `{}`, codeInvalidSession, []string{"no prompt", "agent_file", "agent_id"}},
		{"codex", `{"prompt":null}`, codeInvalidSession, []string{"no prompt"}},
		{"codex", `{"prompt":" \n"}`, codeInvalidSession, []string{"empty"}},
		{"codex", `{"prompt":"x","agent_file":"f"}`, codeInvalidSession, []string{"agent_file", "prompt"}},
		{"codex", `{"agent_id":"codex:a","agent_file":"f"}`, codeInvalidSession, []string{"agent_file", "agent_id"}},
		{"codex", `{"threadId":"t","agent_file":"f"}`, codeInvalidSession, []string{"agent_file"}},
		{"codex", `{"agent_file":""}`, codeInvalidSession, []string{"agent_file"}},
		{"codex", `{"agent_id":"","prompt":"x"}`, codeInvalidSession, []string{"agent_id is empty"}},
		{"codex", `{"agent_id":"codex:a","threadId":"t","prompt":"x"}`, codeInvalidSession, []string{"codex:a", `"t"`}},
		{"codex", `{"prompt":"x","identity":""}`, codeInvalidSession, nil},
		{"codex", `{"prompt":"x","identity":"../up"}`, codeInvalidSession, []string{"../up"}},
		{"codex", `{"agent_file":"nowhere.md"}`, codeAgentFile, []string{"nowhere.md"}},
		{"codex-reply", `{"prompt":"x"}`, codeInvalidSession, []string{"agent_id"}},
		{"codex-reply", `{"agent_id":"codex:a"}`, codeInvalidSession, []string{"no prompt", "codex:a"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":""}`, codeInvalidSession, []string{"empty"}},
		{"codex-reply", `{"threadId":"t","conversationId":"u","prompt":"x"}`, codeInvalidSession, []string{"threadId", "conversationId"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"x","model":"m"}`, codeInvalidParams, []string{`"model"`, "codex-reply"}},
		{"codex", `{"prompt":"x","background":1}`, codeInvalidParams, []string{`"background"`, "true or false"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"x","background":"true"}`, codeInvalidParams, []string{`"background"`}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"x","timeout_secs":0}`, codeInvalidParams, []string{`"timeout_secs"`}},
		{"codex-reply", `{"background":true,"prompt":"x"}`, codeInvalidSession, []string{"agent_id"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","notify":"team-lead"}`, codeInvalidSession, []string{"give background: true too"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":" "}`, codeInvalidSession, []string{"notify is empty"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":7}`, codeInvalidParams, []string{"must be a string"}},
		{"codex", `{"agent_id":"codex:a","background":true,"notify":"team-lead"}`, codeInvalidSession, []string{"without prompt none runs"}},
		{"agent_wait", `{}`, codeInvalidSession, []string{"agent_ids", "agent_sessions"}},
		{"agent_wait", `{"agent_ids":"codex:a"}`, codeInvalidParams, []string{`"agent_ids"`, "1 to 100 strings"}},
		{"agent_wait", `{"agent_ids":[]}`, codeInvalidParams, []string{`"agent_ids"`}},
		{"agent_wait", `{"agent_ids":["codex:a",5]}`, codeInvalidParams, []string{`"agent_ids"`}},
		{"agent_wait", `{"agent_ids":["a"` + strings.Repeat(`,"a"`, 100) + `]}`, codeInvalidParams, []string{`"agent_ids"`}},
		{"agent_wait", `{"agent_ids":["codex:a"," "]}`, codeInvalidSession, []string{"empty"}},
		{"agent_wait", `{"agent_id":"codex:a","agent_ids":["codex:b"]}`, codeInvalidSession, []string{"exclude", "codex:a"}},
		{"agent_wait", `{"agent_id":"codex:a","threadId":"t"}`, codeInvalidSession, []string{"only one"}},
		{"agent_wait", `{"agent_id":"codex:a","timeout_secs":3601}`, codeInvalidParams, []string{`"timeout_secs"`, "3600"}},
		{"agent_wait", `{"agent_id":"codex:a","timeout_secs":-1}`, codeInvalidParams, []string{`"timeout_secs"`}},
		{"agent_wait", `{"agent_id":"codex:a","since":-1}`, codeInvalidParams, []string{`"since"`}},
		{"agent_wait", `{"agent_id":"codex:a","since":1.5}`, codeInvalidParams, []string{`"since"`}},
		{"agent_wait", `{"agent_id":"codex:a","all":"yes"}`, codeInvalidParams, []string{`"all"`}},
		{"agent_wait", `{"inbox":"a b"}`, codeInvalidSession, []string{"inbox"}},
		{"agent_wait", `{"identity":""}`, codeInvalidSession, nil},
		{"agent_wait", `{"agent_id":"codex:a","turn_id":"t","inbox":"ann"}`, codeInvalidSession, []string{"leave inbox out"}},
		{"agent_wait", `{"agent_id":"codex:a","turn_id":""}`, codeInvalidSession, []string{"turn_id is empty"}},
		{"agent_wait", `{"agent_id":"codex:a","turn_id":"t","since":4}`, codeInvalidSession, []string{`"t"`, "since"}},
		{"agent_wait", `{"agent_ids":["codex:a"],"turn_id":"t"}`, codeInvalidSession, []string{`"t"`, "agent_ids"}},
		{"agent_approve", `{"approval_id":"1","action":"ls","decision":"deny"}`, codeInvalidSession, []string{"agent_id"}},
		{"agent_approve", `{"agent_id":"codex:a","action":"ls","decision":"deny"}`, codeInvalidSession, []string{"approval_id", "codex:a"}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","decision":"deny"}`, codeInvalidSession, []string{"action", `"1"`}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls"}`, codeInvalidSession, []string{"approve_for_session"}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"yes"}`, codeInvalidParams, []string{`"decision"`, "approve, approve_for_session, deny"}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"approve","answers":{"q":5}}`, codeInvalidParams, []string{`"answers"`, `"q"`, "5"}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"approve","answers":{"q":[]}}`, codeInvalidParams, []string{`"answers"`}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"approve","answers":{"q":["x",1]}}`, codeInvalidParams, []string{`"answers"`}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"deny","answers":{"q":"x"}}`, codeInvalidSession, []string{"exclude"}},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"approve","reason":"no"}`, codeInvalidSession, []string{"reason"}},
		{"agent_interrupt", `{}`, codeInvalidSession, []string{"agent_id or identity"}},
		{"agent_interrupt", `{"agent_id":"codex:a","identity":"b"}`, codeInvalidSession, []string{"only one"}},
		{"agent_interrupt", `{"agent_id":"codex:a","turn_id":" "}`, codeInvalidSession, []string{"turn_id is empty"}},
		{"agent_mail", `{"auto":true}`, codeInvalidSession, []string{"no agent"}},
		{"agent_mail", `{"agent_id":"codex:ab12"}`, codeInvalidSession, []string{"no auto"}},
		{"agent_mail", `{"agent_id":"codex:ab12","auto":"on"}`, codeInvalidParams, []string{"must be true or false"}},
		{"agent_mail", `{"agent_id":"codex:ab12","auto":null,"conversationId":""}`, codeInvalidSession, []string{"conversationId is empty"}},
		{"agent_sessions", `{"limit":0}`, codeInvalidParams, []string{`"limit"`, "whole number"}},
		{"agent_sessions", `{"limit":1.5}`, codeInvalidParams, []string{`"limit"`}},
		{"agent_status", `{"x":1}`, codeInvalidParams, []string{`"x"`, "takes none"}},
		{"agent_close", `{}`, codeInvalidSession, []string{"agent_id or identity"}},
		{"agent_close", `{"identity":""}`, codeInvalidSession, nil},
		{"agent_close", `{"identity":"a/b"}`, codeInvalidSession, []string{"a/b"}},
		{"agent_close", `{"identity":"a","agent_id":"codex:b"}`, codeInvalidSession, []string{"only one"}},
	}
	inBothEras(t, nil, func(t *testing.T, r *mcpRig) {
		for _, c := range cases {
			rec := r.tool(c.tool, c.args)
			if c.code == codeInvalidParams {
				code, message, _ := errorOf(t, rec)
				if code != c.code {
					t.Errorf("%s %s: %s", c.tool, c.args, rec)
				}
				mustContain(t, message, c.words...)
				continue
			}
			e := r.failure(rec)
			if e.Code != c.code || e.Name != codeName(c.code) || e.Source != "proxy" || !strings.HasPrefix(e.Message, e.Name) {
				t.Errorf("%s %s: %s", c.tool, c.args, rec)
			}
			mustContain(t, e.Message, c.words...)
		}
		for _, params := range []string{`{}`, `{"name":5}`, `{"name":null}`, ``} {
			if params != "" && r.modern {
				params = strings.Replace(params, `{`, `{`+modernMetaJSON+`,`, 1)
				params = strings.Replace(params, `,}`, `}`, 1)
			}
			if code, _, _ := errorOf(t, r.ask("tools/call", params)); code != codeInvalidParams {
				t.Errorf("%s was taken", params)
			}
		}
		r.quiet()
		if len(r.submits) != 0 {
			t.Error("a bad call reached the hub")
		}
	})
}

// Every turn result that can be made stands in its declared output schema, in both
// eras, and its text is there for those that read only text.
func TestTurnResults(t *testing.T) {
	interrupted := okTurn("partial")
	interrupted.TurnStatus, interrupted.Notes = "interrupted", []string{"A note."}
	interrupted.Declined = []declined{{"command", "rm -rf x", "client"}}
	failed := okTurn("")
	failed.TurnStatus, failed.Usage, failed.TurnID, failed.Status = "failed", nil, "", statusBroken
	rebound := okTurn("")
	rebound.TurnStatus, rebound.TurnID, rebound.Usage = "", "", nil
	running := turnResult{AgentID: "codex:ab12", TurnID: "bg-1", Identity: "arch", Team: "default", Status: "busy", TurnStatus: "running", Notes: []string{"A note."}}
	queued := running
	queued.TurnStatus = "queued"
	inBothEras(t, nil, func(t *testing.T, r *mcpRig) {
		for _, c := range []struct {
			name       string
			result     turnResult
			structured []string
			texts      [][]string // what each text has
		}{
			{"ok", okTurn("the answer"), []string{`"agent_id":"codex:ab12"`, `"threadId":"01a1"`, `"turn_id":"turn-1"`, `"content":"the answer"`,
				`"identity":"codex"`, `"team":"default"`, `"status":"idle"`, `"turn_status":"completed"`, `"total_tokens":120`, `"duration_ms":1500`,
				`"sandbox":"workspace-write"`, `"approval_policy":"on-request"`}, [][]string{{"the answer"}}},
			{"interrupted", interrupted, []string{`"notes":["A note."]`}, [][]string{{"partial"}, {"codex:ab12", "A note.", "rm -rf x", "codex-reply with agent_id"}}},
			{"failed", failed, nil, [][]string{{"the turn failed without an answer"}, {"codex with agent_id"}}},
			{"rebound", rebound, nil, [][]string{{"is open; no turn was run"}}},
			// A background turn says all that is needed to get its answer where a model sees it: in content too.
			{"running", running, []string{`"turn_id":"bg-1"`, `"turn_status":"running"`, `"status":"busy"`, `"content":"No answer yet`}, [][]string{{"agent_wait", "codex:ab12", "A note."}}},
			{"queued", queued, []string{`"turn_status":"queued"`}, [][]string{{"as soon as the turns before"}}},
		} {
			for _, tool := range []string{"codex", "codex-reply"} {
				s := r.begin(`"`+tool+`"`, callParams(r.modern, tool, `{"prompt":"p","agent_id":"codex:a"}`))
				r.f.done(s.w, c.result)
				rec := r.next()
				fits(t, r, tool, rec)
				var got struct {
					IsError    bool
					Content    []textBlock
					Structured json.RawMessage `json:"structuredContent"`
				}
				if err := json.Unmarshal(resultOf(t, rec), &got); err != nil || got.IsError != c.result.failed() || len(got.Content) != len(c.texts) {
					t.Fatalf("%s: %s", c.name, rec)
				}
				mustContain(t, string(got.Structured), c.structured...)
				for i, words := range c.texts {
					mustContain(t, got.Content[i].Text, words...)
				}
				if c.result.ThreadID == "" && rawField(got.Structured, "threadId") != nil {
					t.Errorf("%s: an empty threadId: %s", c.name, rec)
				}
			}
		}
		child := &rpcError{Code: -32600, Message: "thread/start failed", Data: json.RawMessage(`{"error_source":"child","child_error":{"code":-32600}}`)}
		for _, e := range []*rpcError{child, proxyError(codeSessionNotFound, "no agent codex:x", "nearest", []string{"codex:y"}),
			proxyError(codeIdentityConflict, "taken", "agent_id", "codex:z", "pid", 12)} {
			r.f.done(r.begin("1", callParams(r.modern, "codex", `{"prompt":"p"}`)).w, turnResult{err: e})
			rec := r.next()
			got := r.failure(rec)
			if got.Code != e.Code || got.Message != e.Message || got.Source != stringField(e.Data, "error_source") {
				t.Errorf("%s", rec)
			}
			if r.modern {
				fits(t, r, "codex", rec)
			}
			_ = eachField(e.Data, func(key string, val json.RawMessage) bool { // a reader of the error needs these
				mustContain(t, string(rec), fmt.Sprintf("%q:%s", key, val))
				return true
			})
		}
	})
}

// What the tools about all agents tell stands in their output schemas.
func TestListsAndStatus(t *testing.T) {
	now, two := time.Now(), 2
	full := sessionView{AgentID: "codex:a", Backend: "codex", BackendID: "t", Team: "default", Identity: "arch", Status: "idle", LastActive: now, StartedAt: now,
		Tag: "x", Role: "r", Interrupted: true, Resumable: true, Activity: "thinking", Source: "client", LastError: "e", Pending: []askView{askOf(everyAsk())}, Mine: true,
		AutoMail: "paused: 10 mail turns in a row", PendingMail: &two}
	var status statusView
	limits := make(chan int, 10)
	change := func(o *mcpOptions) {
		o.limited = func(done func(statusView)) { done(status) }
		o.sessions = func(n int) []sessionView {
			if limits <- n; n == 7 {
				return nil
			}
			return []sessionView{full, {AgentID: "b"}}
		}
	}
	inBothEras(t, change, func(t *testing.T, r *mcpRig) {
		for _, status = range []statusView{{Team: "default"}, {Team: "default", ChildError: "exit code 3"}, {ChildAlive: true, ChildVersion: "0.169.0", Backend: "app-server", ChildPID: 7,
			Team: "x", TeamFrom: "flag", Uptime: 90 * time.Second, Sessions: 1, Identities: map[string]string{"arch": "codex:a"},
			Agents: []sessionView{full}, EventBytes: 3, EventBytesLimit: 40, PendingMail: &two, Unsaved: "records can't be written"}} {
			rec := r.tool("agent_status", "{}")
			fits(t, r, "agent_status", rec)
			var got map[string]any
			wantNil(t, json.Unmarshal(rawField(rec, "result", "structuredContent"), &got))
			for _, field := range []string{"child_alive", "child_version", "backend", "team", "uptime_secs", "sessions", "identities", "agents", "budget", "pending_mail"} {
				if _, ok := got[field]; !ok {
					t.Errorf("agent_status has no %s: %s", field, rec)
				}
			}
			budget, _ := got["budget"].(map[string]any)
			if budget["event_bytes_waiting"] != float64(status.EventBytes) || budget["event_bytes_limit"] != float64(status.EventBytesLimit) ||
				budget["output_bytes_waiting"] == nil || budget["output_bytes_limit"] != float64(16<<20) || len(got["agents"].([]any)) != len(status.Agents) ||
				got["uptime_secs"] != status.Uptime.Seconds() {
				t.Errorf("%s", rec)
			}
		}
		mustContain(t, string(r.tool("agent_status", "{}")), `"auto_mail":"paused: 10 mail turns in a row"`, `"pending_mail":2`, "Their unread messages: 2.", "records can't be written")
		for _, c := range []struct {
			args  string
			limit int
			want  string
		}{
			{`{}`, 50, `"pending_mail":2`}, {`{"limit":null}`, 50, "unread messages: 2"}, {`{"limit":7}`, 7, `"structuredContent":{"sessions":[]}`},
		} {
			rec := r.tool("agent_sessions", c.args)
			fits(t, r, "agent_sessions", rec)
			mustContain(t, string(rec), c.want)
			if got := <-limits; got != c.limit {
				t.Errorf("%s: %d", c.args, got)
			}
		}
	})
}

// fits checks structuredContent against the tool's declared output schema. Only an
// error may have members that aren't declared.
func fits(t *testing.T, r *mcpRig, name string, rec json.RawMessage) {
	t.Helper()
	i := slices.IndexFunc(r.f.tools, func(x tool) bool { return x.name == name })
	schema, err := decodeJSON(resultSchema(r.f.tools[i].result, errorResult{}))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	value, err := decodeJSON(rawField(rec, "result", "structuredContent"))
	if err != nil {
		t.Fatalf("%s: %s: %v", name, rec, err)
	}
	why := new(jsonSchema).whole(schema, value, "structuredContent")
	why = slices.DeleteFunc(why, func(s string) bool { return strings.Contains(s, ".error: the schema knows no member") })
	if len(why) > 0 {
		t.Errorf("%s: %s in %s", name, strings.Join(why, "; "), rec)
	}
}

func TestCodexArguments(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	got := r.begin("1", callParams(false, "codex", `{"prompt":"do it","model":"m","cwd":"/w",
		"approval-policy":"on-failure","sandbox":"read-only","config":{"a.b":1},"base-instructions":"bi","developer-instructions":"di",
		"compact-prompt":"cp","profile":"pr","identity":"arch","role":"ro","tag":"ta","timeout_secs":2.5,"agent_id":null}`)).req
	want := turnRequest{mode: modeNew, prompt: "do it", run: true, timeout: 2500 * time.Millisecond, identity: "arch", role: "ro", tag: "ta", cwd: "/w",
		options: sessionOptions{Model: "m", Approval: "on-request", Sandbox: "read-only", Config: json.RawMessage(`{"a.b":1}`),
			BaseInstructions: "bi", DeveloperInstructions: "di", CompactPrompt: "cp", Profile: "pr"}}
	got.correlation = ""
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Which agent a call means, whether a turn runs, and what becomes of one that runs in
// the background.
func TestTurnArguments(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	for i, c := range []struct {
		tool, args string
		want       turnRequest
	}{
		{"codex", `{"agent_id":"codex:a"}`, turnRequest{mode: modeRevive, ref: "codex:a"}},
		{"codex", `{"agent_id":"codex:a","prompt":"p"}`, turnRequest{mode: modeRevive, ref: "codex:a", run: true}},
		{"codex", `{"threadId":"t-1","prompt":"p"}`, turnRequest{mode: modeRevive, ref: "t-1", run: true}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p"}`, turnRequest{mode: modeReply, ref: "codex:a", run: true}},
		{"codex-reply", `{"threadId":"t-1","prompt":"p"}`, turnRequest{mode: modeReply, ref: "t-1", run: true}},
		{"codex-reply", `{"conversationId":"t-1","prompt":"p"}`, turnRequest{mode: modeReply, ref: "t-1", run: true}},
		{"codex-reply", `{"threadId":"t-1","conversationId":"t-1","prompt":"p"}`, turnRequest{mode: modeReply, ref: "t-1", run: true}},
		{"codex", `{"prompt":"p","background":true}`, turnRequest{mode: modeNew, run: true, background: true, approvals: "caller"}},
		{"codex", `{"prompt":"p","background":false,"timeout_secs":3}`, turnRequest{mode: modeNew, run: true, timeout: 3 * time.Second}},
		{"codex", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":"boss@other"}`,
			turnRequest{mode: modeRevive, ref: "codex:a", run: true, background: true, approvals: "caller", notify: "boss@other"}},
		{"codex", `{"agent_id":"codex:a","background":true}`, turnRequest{mode: modeRevive, ref: "codex:a"}}, // no turn: the agent is reopened, and answered
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"timeout_secs":1.5,"notify":" team-lead "}`,
			turnRequest{mode: modeReply, ref: "codex:a", run: true, background: true, approvals: "caller", timeout: 1500 * time.Millisecond, notify: "team-lead"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":null,"notify":null}`, turnRequest{mode: modeReply, ref: "codex:a", run: true}},
	} {
		got := r.begin(fmt.Sprint(i), callParams(false, c.tool, c.args)).req
		got.correlation, got.prompt = "", ""
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s %s:\ngot  %+v\nwant %+v", c.tool, c.args, got, c.want)
		}
	}
}

func TestAgentFile(t *testing.T) {
	dir := t.TempDir()
	wantNil(t, os.WriteFile(filepath.Join(dir, "a.md"), []byte("---\nname: Code Reviewer\nmodel: sonnet\neffort: high\n---\nbe good\n"), 0o600))
	wantNil(t, os.WriteFile(filepath.Join(dir, "empty.md"), []byte("\n"), 0o600))
	r := newRig(t, func(o *mcpOptions) { o.DefaultCwd = filepath.Dir(dir) })
	r.hello("2025-11-25", "{}", "x")
	for i, args := range []string{
		fmt.Sprintf(`{"agent_file":"a.md","cwd":%q}`, dir),
		fmt.Sprintf(`{"agent_file":"a.md","cwd":%q}`, filepath.Base(dir)),
		fmt.Sprintf(`{"agent_file":%q}`, filepath.Join(filepath.Base(dir), "a.md")),
		fmt.Sprintf(`{"agent_file":%q}`, filepath.Join(dir, "a.md")),
	} {
		got := r.begin(fmt.Sprint(10+i), callParams(false, "codex", args)).req
		if got.prompt != "be good" || got.agentSource != filepath.Join(dir, "a.md") || got.mode != modeNew || !got.run ||
			got.agentName != "Code Reviewer" || got.implied != "Code-Reviewer" || got.identity != "" || got.options.Model != "" ||
			string(got.options.Config) != `{"model_reasoning_effort":"high"}` || len(got.notes) != 1 {
			t.Errorf("%s: %+v", args, got)
		}
	}
	// what the call says itself comes first
	got := r.begin("1", callParams(false, "codex", fmt.Sprintf(`{"agent_file":%q,"identity":"me","model":"m","config":{"model_reasoning_effort":"low"}}`, filepath.Join(dir, "a.md")))).req
	if got.identity != "me" || got.implied != "" || got.options.Model != "m" || string(got.options.Config) != `{"model_reasoning_effort":"low"}` || len(got.notes) != 0 {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"empty.md", "missing.md", "."} {
		code, msg, _ := errorOf(t, r.ask("tools/call", callParams(false, "codex", fmt.Sprintf(`{"agent_file":%q}`, filepath.Join(dir, name)))))
		if code != codeAgentFile {
			t.Errorf("%s: %d %s", name, code, msg)
		}
	}
}

func TestAddField(t *testing.T) {
	for in, want := range map[string]string{"": `{"k":"v"}`, "{}": `{"k":"v"}`, " { } ": `{"k":"v"}`, `{"a":1}`: `{"k":"v","a":1}`} {
		if got := string(addField(json.RawMessage(in), "k", "v")); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// askOf is how the hub shows an approval.
func askOf(q approval) askView {
	return askView{ApprovalID: q.id, Kind: q.kind, Action: q.action, Cwd: q.cwd, Reason: q.reason, q: q}
}

// everyAsk has every field, which no real one has.
func everyAsk() approval {
	return approval{id: "ask-1", forSession: true, kind: askFileChange, thread: "t-sub", action: "update /w/a\nadd /w/b", command: "cmd", cwd: "/w", reason: "it is needed",
		files:     []fileChange{{path: "/w/a", kind: "update", diff: "@@ -1 +1 @@\n-x\n+y\n"}, {path: "/w/b", kind: "add", diff: "new"}, {path: "/w/c", kind: "delete"}},
		questions: []question{{id: "q1", header: "H", text: "Which?", options: []string{"A", "B"}}}}
}

func TestAskShape(t *testing.T) {
	got := string(toJSON(askShape("t-root", askOf(everyAsk()))))
	want := `{"approval_id":"ask-1","kind":"file_change","action":"update /w/a\nadd /w/b","command":"cmd","cwd":"/w",` +
		`"diff":"--- /w/a\n+++ /w/a\n@@ -1 +1 @@\n-x\n+y\n--- /dev/null\n+++ /w/b\n@@ -0,0 +1,1 @@\n+new\n\\ No newline at end of file\n--- /w/c\n+++ /dev/null\n","questions":[{"id":"q1","header":"H","text":"Which?","options":["A","B"]}],` +
		`"reason":"it is needed","subagent":"t-sub","for_session":true}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	q := everyAsk()
	for _, own := range []string{"t-sub", ""} {
		if s := askShape(own, askOf(q)); s.Subagent != "" {
			t.Errorf("the agent's own thread is no subagent: %+v", s)
		}
	}
	q.files = []fileChange{{path: "/w/a", kind: "add", diff: strings.Repeat("ä", maxShownDiff)}}
	if s := askShape("", askOf(q)); len(s.Diff) > maxShownDiff+100 || !strings.Contains(s.Diff, "diff cut") || !json.Valid(toJSON(s)) {
		t.Errorf("a diff of %d bytes", len(s.Diff))
	}
}

// The call that aboutAsk spells out must be one that agent_approve takes.
func TestAboutAskIsACallThatWorks(t *testing.T) {
	shown := askShape("t-root", askOf(everyAsk()))
	text := aboutAsk("codex:a", &shown)
	mustContain(t, text, "ask-1", "file_change", "in /w", "it is needed", "t-sub", "q1: Which? (A | B)", "+y", `"approve_for_session", "deny"`)
	_, rest, _ := strings.Cut(text, "agent_approve ")
	var call json.RawMessage
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&call); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	asked := make(chan approveQuery, 1)
	r := newRig(t, func(o *mcpOptions) {
		o.approve = func(q approveQuery, done func(decision, *rpcError)) { asked <- q; go done(q.Decision, nil) }
	})
	r.hello("2025-11-25", "{}", "x")
	resultOf(t, r.ask("tools/call", callParams(false, "agent_approve", string(call))))
	if q := <-asked; q.Action != shown.Action || q.Ask != "ask-1" || q.Agent != "codex:a" || q.Decision != approve || q.Answers["q1"][0] != "…" {
		t.Errorf("%+v", q)
	}
}

// agentHub is a hub that answers the tools of one agent and keeps what it was asked.
type agentHub struct {
	approves   chan approveQuery
	interrupts chan [2]string // ref and turn
	stopped    interruptResult
	refuse     *rpcError // what every tool is answered with, nil for none
}

func (h *agentHub) change(o *mcpOptions) {
	two := 2
	h.approves, h.interrupts = make(chan approveQuery, 10), make(chan [2]string, 10)
	o.status = func() statusView {
		return statusView{Agents: []sessionView{{AgentID: "codex:z"}, {AgentID: "codex:a", BackendID: "t-1", Identity: "arch", Status: "idle"}}}
	}
	o.approve = func(q approveQuery, done func(decision, *rpcError)) { h.approves <- q; go done(q.Decision, h.refuse) }
	o.interrupt = func(ref, turn string, done func(interruptResult, *rpcError)) {
		h.interrupts <- [2]string{ref, turn}
		go done(h.stopped, h.refuse)
	}
	o.close = func(ref, _ string, done func(closeResult, *rpcError)) {
		go done(closeResult{AgentID: "codex:a", Identity: ref, Status: "closed", Already: ref == "gone", Interrupted: ref == "busy"}, h.refuse)
	}
	o.setMail = func(_ string, auto bool, done func(sessionView, *rpcError)) {
		go done(sessionView{AgentID: "codex:a", Identity: "arch", AutoMail: map[bool]string{true: "on", false: "off"}[auto], PendingMail: &two}, h.refuse)
	}
}

func TestApprove(t *testing.T) {
	h := &agentHub{}
	inBothEras(t, h.change, func(t *testing.T, r *mcpRig) {
		for _, c := range []struct {
			args string
			want approveQuery
			says string
		}{
			{`{"agent_id":"codex:a","approval_id":"1","action":"rm -rf  x","decision":"approve"}`, approveQuery{Agent: "codex:a", Action: "rm -rf  x", Decision: approve}, "1 is approved: rm -rf x"},
			{`{"threadId":"t-1","approval_id":"1","action":"ls","decision":"approve_for_session"}`, approveQuery{Agent: "t-1", Action: "ls", Decision: approveForSession}, "approved for the whole session"},
			{`{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"deny","reason":"not now"}`,
				approveQuery{Agent: "codex:a", Action: "ls", Decision: deny, By: decider{byCaller, "not now"}}, "1 is denied"},
			{`{"agent_id":"codex:a","approval_id":"1","action":"A?","decision":"approve","answers":{"q1":"x","q2":["y","z"]}}`,
				approveQuery{Agent: "codex:a", Action: "A?", Decision: approve, Answers: map[string][]string{"q1": {"x"}, "q2": {"y", "z"}}}, "approved"},
			{`{"agent_id":"codex:a","identity":"Arch","approval_id":"1","action":"A?","decision":"approve","answers":{}}`, approveQuery{Agent: "codex:a", Action: "A?", Decision: approve}, "approved"},
		} {
			rec := r.tool("agent_approve", c.args)
			fits(t, r, "agent_approve", rec)
			c.want.Ask, c.want.By.who = "1", byCaller
			if got := <-h.approves; string(toJSON(got)) != string(toJSON(c.want)) {
				t.Errorf("%s: %+v, want %+v", c.args, got, c.want)
			}
			mustContain(t, string(rec), `"agent_id":"codex:a"`, `"identity":"arch"`, `"approval_id":"1"`, `"decision":"`+c.want.Decision.String()+`"`, c.says)
		}
		mustContain(t, r.failure(r.tool("agent_approve", `{"agent_id":"codex:a","identity":"bob","approval_id":"1","action":"A?","decision":"approve"}`)).Message, "whose identity is arch and not bob")
	})
}

func TestInterrupt(t *testing.T) {
	h := &agentHub{}
	inBothEras(t, h.change, func(t *testing.T, r *mcpRig) {
		for _, c := range []struct {
			args   string
			want   [2]string
			result interruptResult
			words  []string
		}{
			{`{"agent_id":"codex:a"}`, [2]string{"codex:a"}, interruptResult{"codex:a", "arch", "u-1", true, 2},
				[]string{`"turn_id":"u-1"`, `"interrupted":true`, `"queued":2`, `"status":"idle"`, "Turns that still wait for it: 2."}},
			{`{"identity":"arch"}`, [2]string{"arch"}, interruptResult{AgentID: "codex:a", Identity: "arch"}, []string{`"interrupted":false`, `"queued":0`, "had no such turn to stop"}},
			{`{"threadId":"t","turn_id":"bg-1"}`, [2]string{"t", "bg-1"}, interruptResult{"codex:q", "arch", "bg-1", true, 0}, []string{`"turn_id":"bg-1"`}},
		} {
			h.stopped = c.result
			rec := r.tool("agent_interrupt", c.args)
			if got := <-h.interrupts; got != c.want {
				t.Errorf("%s: %+v", c.args, got)
			}
			fits(t, r, "agent_interrupt", rec)
			mustContain(t, string(rec), c.words...)
		}
	})
}

func TestCloseAndAgentMail(t *testing.T) {
	h := &agentHub{}
	inBothEras(t, h.change, func(t *testing.T, r *mcpRig) {
		for _, c := range []struct{ tool, args, want string }{
			{"agent_close", `{"identity":"busy"}`, "is closed; its running turn was interrupted."},
			{"agent_close", `{"identity":"gone"}`, "is closed; it was before."},
			{"agent_mail", `{"identity":"arch","auto":false}`, "Automatic mail of agent codex:a (identity arch) is off. Unread messages: 2."},
			{"agent_mail", `{"agent_id":"codex:a","auto":true}`, `"structuredContent":{"agent_id":"codex:a","identity":"arch","auto_mail":"on","pending_mail":2}`},
		} {
			rec := r.tool(c.tool, c.args)
			fits(t, r, c.tool, rec)
			mustContain(t, string(rec), c.want)
		}
	})
}

// What the hub refuses is told in the form of the era, whatever the tool.
func TestToolsOfAnAgentRefused(t *testing.T) {
	h := &agentHub{refuse: proxyError(codeSessionNotFound, "none")}
	inBothEras(t, h.change, func(t *testing.T, r *mcpRig) {
		for tool, args := range map[string]string{"agent_close": "", "agent_interrupt": "", "agent_mail": `,"auto":true`, "agent_approve": `,"approval_id":"1","action":"ls","decision":"deny"`} {
			rec := r.tool(tool, `{"agent_id":"codex:x"`+args+`}`)
			if e := r.failure(rec); e.Code != codeSessionNotFound {
				t.Errorf("%s: %s", tool, rec)
			}
			if r.modern {
				fits(t, r, tool, rec)
			}
		}
	})
}
