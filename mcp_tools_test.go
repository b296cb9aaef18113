package main

// mcp_tools_test.go holds the tools to their table: what clients see of it, honest
// annotations, what is said of bad arguments, and results that fit their schemas.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
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

func TestToolListIsHonest(t *testing.T) {
	r := newRig(t, nil)
	var list struct {
		Tools []struct {
			Name, Title, Description  string
			InputSchema, OutputSchema json.RawMessage
			Annotations               map[string]bool
		}
	}
	if err := json.Unmarshal(resultOf(t, r.ask("tools/list", modernOnly)), &list); err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Title == "" || len(tool.Description) < 40 || len(tool.Description) > 2048 {
			t.Errorf("%s: title %q, description of %d bytes", tool.Name, tool.Title, len(tool.Description))
		}
		for _, schema := range []json.RawMessage{tool.InputSchema, tool.OutputSchema} {
			if stringField(schema, "type") != "object" || rawKind(rawField(schema, "properties")) != '{' {
				t.Errorf("%s: root of %s", tool.Name, schema)
			}
		}
		if string(rawField(tool.InputSchema, "additionalProperties")) != "false" {
			t.Errorf("%s takes anything", tool.Name)
		}
		reads, destroys := false, true
		switch tool.Name {
		case "agent_sessions", "agent_status", "agent_wait", "atm_pending_count":
			reads, destroys = true, false
		case "agent_mail", "atm_send", "atm_broadcast", "atm_read": // atm_read marks
			destroys = false
		}
		if tool.Annotations["readOnlyHint"] != reads || tool.Annotations["destructiveHint"] != destroys {
			t.Errorf("%s: %v", tool.Name, tool.Annotations)
		}
	}
}

func TestReferences(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	for i, c := range []struct {
		tool, args string
		mode       turnMode
		ref        string
		run        bool
	}{
		{"codex", `{"agent_id":"codex:a"}`, modeRevive, "codex:a", false},
		{"codex", `{"agent_id":"codex:a","prompt":"p"}`, modeRevive, "codex:a", true},
		{"codex", `{"threadId":"t-1","prompt":"p"}`, modeRevive, "t-1", true},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p"}`, modeReply, "codex:a", true},
		{"codex-reply", `{"threadId":"t-1","prompt":"p"}`, modeReply, "t-1", true},
		{"codex-reply", `{"conversationId":"t-1","prompt":"p"}`, modeReply, "t-1", true},
		{"codex-reply", `{"threadId":"t-1","conversationId":"t-1","prompt":"p"}`, modeReply, "t-1", true},
	} {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i, callParams(false, c.tool, c.args)))
		got := (<-r.submits).req
		if got.mode != c.mode || got.ref != c.ref || got.run != c.run || got.source != sourceClient {
			t.Errorf("%s %s: %+v", c.tool, c.args, got)
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
		{"agent_sessions", `{"limit":0}`, codeInvalidParams, []string{`"limit"`, "whole number"}},
		{"agent_sessions", `{"limit":1.5}`, codeInvalidParams, []string{`"limit"`}},
		{"agent_status", `{"x":1}`, codeInvalidParams, []string{`"x"`, "takes none"}},
		{"agent_close", `{}`, codeInvalidSession, []string{"agent_id or identity"}},
		{"agent_close", `{"identity":""}`, codeInvalidSession, nil},
		{"agent_close", `{"identity":"a/b"}`, codeInvalidSession, []string{"a/b"}},
		{"agent_close", `{"identity":"a","agent_id":"codex:b"}`, codeInvalidSession, []string{"only one"}},
	}
	for _, modern := range []bool{false, true} {
		r := newRig(t, nil)
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		for _, c := range cases {
			rec := r.ask("tools/call", callParams(modern, c.tool, c.args))
			var message string
			if modern && c.code != codeInvalidParams {
				e := modernError(t, rec)
				message = e.Message
				if e.Code != c.code || e.Name != codeName(c.code) || e.Source != "proxy" {
					t.Errorf("%s %s: %s", c.tool, c.args, rec)
				}
			} else {
				var code int
				var data json.RawMessage
				code, message, data = errorOf(t, rec)
				if code != c.code {
					t.Errorf("%s %s: %s", c.tool, c.args, rec)
				}
				if name := codeName(c.code); name != "" && (stringField(data, "error_source") != "proxy" || !strings.HasPrefix(message, name)) {
					t.Errorf("%s %s: %s", c.tool, c.args, rec)
				}
			}
			mustContain(t, message, c.words...)
		}
		r.quiet()
		if len(r.submits) != 0 {
			t.Error("a bad call reached the hub")
		}
	}
}

type modernErrorBody struct {
	Name, Message string
	Code          int
	Source        string `json:"error_source"`
}

// modernError reads an error that is a tool result, and checks its form.
func modernError(t *testing.T, rec json.RawMessage) modernErrorBody {
	t.Helper()
	res := resultOf(t, rec)
	var body struct {
		Type       string `json:"resultType"`
		IsError    bool
		Content    []textBlock
		Structured struct{ Error modernErrorBody } `json:"structuredContent"`
	}
	if err := json.Unmarshal(res, &body); err != nil || !body.IsError || body.Type != "complete" || len(body.Content) == 0 ||
		body.Content[0].Text != body.Structured.Error.Message {
		t.Fatalf("no modern error: %s (%v)", rec, err)
	}
	return body.Structured.Error
}

func TestNameMustBeAString(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	for _, params := range []string{`{}`, `{"name":5}`, `{"name":null}`, ``} {
		if code, _, _ := errorOf(t, r.ask("tools/call", params)); code != codeInvalidParams {
			t.Errorf("%s was taken", params)
		}
	}
}

// Every result that can be made stands in its declared output schema, in both
// eras, and its text is there for those that read only text.
func TestResultsFitTheirSchemas(t *testing.T) {
	interrupted := okTurn("partial")
	interrupted.TurnStatus, interrupted.Notes = "interrupted", []string{"A note."}
	interrupted.Declined = []declined{{"command", "rm -rf x", "client"}}
	failed := okTurn("")
	failed.TurnStatus, failed.Usage, failed.TurnID = "failed", nil, ""
	rebound := okTurn("")
	rebound.TurnStatus, rebound.TurnID, rebound.Usage = "", "", nil
	child := turnResult{err: &rpcError{Code: -32600, Message: "thread/start failed", Data: json.RawMessage(`{"error_source":"child","child_error":{"code":-32600}}`)}}
	results := map[string]turnResult{
		"ok": okTurn("the answer"), "interrupted": interrupted, "failed": failed, "rebound": rebound, "child": child,
		"not found": {err: proxyError(codeSessionNotFound, "no agent codex:x", "nearest", []string{"codex:y"})},
		"conflict":  {err: proxyError(codeIdentityConflict, "taken", "agent_id", "codex:z", "pid", 12)},
	}
	now := time.Now()
	full := sessionView{AgentID: "codex:a", Backend: "codex", BackendID: "t", Team: "default", Identity: "arch", Status: "idle", LastActive: now, StartedAt: now,
		Tag: "x", Role: "r", Interrupted: true, Resumable: true, Activity: "thinking", Source: "client", LastError: "e", Pending: []askView{askOf(everyAsk())}, Mine: true}
	for _, modern := range []bool{false, true} {
		for name, result := range results {
			r := newRig(t, nil)
			if !modern {
				r.hello("2025-11-25", "{}", "x")
			}
			for _, tool := range []string{"codex", "codex-reply"} {
				r.send(`{"jsonrpc":"2.0","id":"` + tool + `","method":"tools/call","params":` + callParams(modern, tool, `{"prompt":"p","agent_id":"codex:a"}`) + `}`)
				r.f.done((<-r.submits).w, result)
				rec := r.next()
				if !modern && result.err != nil {
					if code, msg, data := errorOf(t, rec); code != result.err.Code || msg != result.err.Message || string(data) != string(result.err.Data) {
						t.Errorf("%s: %s", name, rec)
					}
					continue
				}
				if code := string(rawField(rec, "error", "code")); code != "" {
					t.Errorf("%s: JSON-RPC error %s in the modern era", name, code)
				}
				fits(t, r, tool, rec)
				res := resultOf(t, rec)
				isError := string(rawField(res, "isError")) == "true"
				if isError != (result.err != nil || result.failed()) {
					t.Errorf("%s: isError %v", name, isError)
				}
				var texts struct{ Content []textBlock }
				if err := json.Unmarshal(res, &texts); err != nil || len(texts.Content) == 0 || texts.Content[0].Text == "" {
					t.Fatalf("%s: no text in %s", name, res)
				}
				switch name {
				case "ok":
					if texts.Content[0].Text != "the answer" || len(texts.Content) != 1 {
						t.Errorf("text: %+v", texts)
					}
					mustContain(t, string(rawField(res, "structuredContent")), `"agent_id":"codex:ab12"`, `"threadId":"01a1"`, `"turn_id":"turn-1"`, `"content":"the answer"`,
						`"identity":"codex"`, `"team":"default"`, `"status":"idle"`, `"turn_status":"completed"`, `"total_tokens":120`, `"duration_ms":1500`, `"sandbox":"workspace-write"`, `"approval_policy":"on-request"`)
				case "interrupted":
					if texts.Content[0].Text != "partial" {
						t.Errorf("text: %+v", texts)
					}
					mustContain(t, texts.Content[1].Text, "codex:ab12", "A note.", "rm -rf x")
				case "not found":
					e := modernError(t, rec)
					if e.Code != codeSessionNotFound || e.Name != "SESSION_NOT_FOUND" {
						t.Errorf("%+v", e)
					}
					mustContain(t, string(res), `"nearest":["codex:y"]`)
				case "child":
					if e := modernError(t, rec); e.Source != "child" || e.Code != -32600 {
						t.Errorf("%+v", e)
					}
				}
			}
		}
		for _, status := range []statusView{{Team: "default"}, {ChildAlive: true, ChildVersion: "0.169.0", Backend: "app-server", ChildPID: 7, ChildError: "exit code 3",
			Team: "x", TeamFrom: "flag", Uptime: 90 * time.Second, Sessions: 1, Identities: map[string]string{"arch": "codex:a"},
			Agents: []sessionView{full}, EventBytes: 3, EventBytesLimit: 40}} {
			r := newRig(t, func(o *mcpOptions) {
				o.status = func() statusView { return status }
				o.sessions = func(int) []sessionView { return []sessionView{full, {AgentID: "b"}} }
			})
			if !modern {
				r.hello("2025-11-25", "{}", "x")
			}
			rec := r.ask("tools/call", callParams(modern, "agent_status", "{}"))
			fits(t, r, "agent_status", rec)
			var got map[string]any
			if err := json.Unmarshal(rawField(rec, "result", "structuredContent"), &got); err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"child_alive", "child_version", "backend", "team", "uptime_secs", "sessions", "identities", "agents", "budget", "pending_mail"} {
				if _, ok := got[field]; !ok {
					t.Errorf("agent_status has no %s: %s", field, rec)
				}
			}
			budget, _ := got["budget"].(map[string]any)
			if budget["event_bytes_waiting"] != float64(status.EventBytes) || budget["event_bytes_limit"] != float64(status.EventBytesLimit) ||
				budget["output_bytes_waiting"] == nil || budget["output_bytes_limit"] != float64(16<<20) || len(got["agents"].([]any)) != len(status.Agents) {
				t.Errorf("agents and budget: %s", rec)
			}
			if got["pending_mail"] != nil || got["uptime_secs"] != status.Uptime.Seconds() {
				t.Errorf("status %s", rec)
			}
			fits(t, r, "agent_sessions", r.ask("tools/call", callParams(modern, "agent_sessions", "{}")))
			fits(t, r, "agent_close", r.ask("tools/call", callParams(modern, "agent_close", `{"identity":"arch"}`)))
		}
		r := newRig(t, func(o *mcpOptions) {
			o.close = func(_, _ string, done func(closeResult, *rpcError)) {
				done(closeResult{}, proxyError(codeSessionNotFound, "none"))
			}
		})
		if modern {
			rec := r.ask("tools/call", callParams(true, "agent_close", `{"agent_id":"codex:a"}`))
			fits(t, r, "agent_close", rec)
			modernError(t, rec)
		}
	}
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
