package main

// mcp_agents_test.go holds the tools about agents to what they ask the hub and answer:
// a decision on an approval needs its action repeated, and the call that a result
// spells out is one that works.

import (
	"encoding/json"
	"strings"
	"testing"
)

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

func TestApprove(t *testing.T) {
	for _, modern := range []bool{false, true} {
		asked := make(chan approveQuery, 10)
		var refuse *rpcError
		r := newRig(t, func(o *mcpOptions) {
			o.approve = func(q approveQuery, done func(decision, *rpcError)) { asked <- q; go done(q.Decision, refuse) }
			o.status = func() statusView {
				return statusView{Agents: []sessionView{{AgentID: "codex:z"}, {AgentID: "codex:a", BackendID: "t-1", Identity: "arch"}}}
			}
		})
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		for _, c := range []struct {
			args string
			want approveQuery
		}{
			{`{"agent_id":"codex:a","approval_id":"1","action":"rm -rf  x","decision":"approve"}`, approveQuery{Action: "rm -rf  x", Decision: approve}},
			{`{"threadId":"t-1","approval_id":"1","action":"ls","decision":"approve_for_session"}`, approveQuery{Action: "ls", Decision: approveForSession}},
			{`{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"deny","reason":"not now"}`, approveQuery{Action: "ls", Decision: deny, By: decider{byCaller, "not now"}}},
			{`{"agent_id":"codex:a","approval_id":"1","action":"A?","decision":"approve","answers":{"q1":"x","q2":["y","z"]}}`,
				approveQuery{Action: "A?", Decision: approve, Answers: map[string][]string{"q1": {"x"}, "q2": {"y", "z"}}}},
			{`{"agent_id":"codex:a","approval_id":"1","action":"A?","decision":"approve","answers":{}}`, approveQuery{Action: "A?", Decision: approve}},
		} {
			rec := r.ask("tools/call", callParams(modern, "agent_approve", c.args))
			fits(t, r, "agent_approve", rec)
			got := <-asked
			if c.want.Ask, c.want.By.who = "1", byCaller; got.Agent != "codex:a" && got.Agent != "t-1" {
				t.Errorf("%s: %+v", c.args, got)
			}
			c.want.Agent = got.Agent
			if string(toJSON(got)) != string(toJSON(c.want)) {
				t.Errorf("%s: %+v, want %+v", c.args, got, c.want)
			}
			mustContain(t, string(rawField(rec, "result", "structuredContent")), `"agent_id":"codex:a"`, `"identity":"arch"`, `"approval_id":"1"`, `"decision":"`+c.want.Decision.String()+`"`)
		}
		refuse = invalidSession("approval %q is already decided", "1")
		rec := r.ask("tools/call", callParams(modern, "agent_approve", `{"agent_id":"codex:a","approval_id":"1","action":"ls","decision":"deny"}`))
		if modern {
			fits(t, r, "agent_approve", rec)
			if e := modernError(t, rec); e.Code != codeInvalidSession {
				t.Errorf("%s", rec)
			}
		} else if code, _, _ := errorOf(t, rec); code != codeInvalidSession {
			t.Errorf("%s", rec)
		}
	}
}

func TestInterrupt(t *testing.T) {
	for _, modern := range []bool{false, true} {
		type call struct{ ref, turn string }
		calls := make(chan call, 1)
		var result interruptResult
		var refuse *rpcError
		r := newRig(t, func(o *mcpOptions) {
			o.interrupt = func(ref, turn string, done func(interruptResult, *rpcError)) {
				calls <- call{ref, turn}
				go done(result, refuse)
			}
			o.status = func() statusView { return statusView{Agents: []sessionView{{AgentID: "codex:a", Status: "idle"}}} }
		})
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		for _, c := range []struct {
			args   string
			want   call
			result interruptResult
			words  []string
		}{
			{`{"agent_id":"codex:a"}`, call{ref: "codex:a"}, interruptResult{"codex:a", "arch", "u-1", true, 2}, []string{`"turn_id":"u-1"`, `"interrupted":true`, `"queued":2`, `"status":"idle"`}},
			{`{"identity":"arch"}`, call{ref: "arch"}, interruptResult{AgentID: "codex:a", Identity: "arch"}, []string{`"interrupted":false`, `"queued":0`}},
			{`{"threadId":"t","turn_id":"bg-1"}`, call{ref: "t", turn: "bg-1"}, interruptResult{"codex:q", "arch", "bg-1", true, 0}, []string{`"turn_id":"bg-1"`}},
		} {
			result = c.result
			rec := r.ask("tools/call", callParams(modern, "agent_interrupt", c.args))
			if got := <-calls; got != c.want {
				t.Errorf("%s: %+v", c.args, got)
			}
			fits(t, r, "agent_interrupt", rec)
			mustContain(t, string(rawField(rec, "result", "structuredContent")), c.words...)
		}
		refuse = proxyError(codeSessionNotFound, "none")
		rec := r.ask("tools/call", callParams(modern, "agent_interrupt", `{"agent_id":"codex:x"}`))
		<-calls
		if modern {
			modernError(t, rec)
		} else if code, _, _ := errorOf(t, rec); code != codeSessionNotFound {
			t.Errorf("%s", rec)
		}
	}
}

func TestAgentMail(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r, _ := newMailRig(t)
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		result := resultOf(t, r.ask("tools/call", callParams(modern, "agent_mail", `{"identity":"ann","auto":false}`)))
		if got := string(rawField(result, "structuredContent")); got != `{"agent_id":"codex:ab12","identity":"ann","auto_mail":"off","pending_mail":2}` {
			t.Errorf("%s", got)
		}
		mustContain(t, string(result), "Automatic mail of agent codex:ab12 (identity ann) is off. Unread messages: 2.")
		if result := resultOf(t, r.ask("tools/call", callParams(modern, "agent_mail", `{"agent_id":"codex:ab12","auto":true}`))); stringField(result, "structuredContent", "auto_mail") != "on" {
			t.Errorf("%s", result)
		}
		for args, want := range map[string]string{
			`{"auto":true}`:                                             "INVALID_SESSION_PARAMS: no agent",
			`{"agent_id":"codex:ab12"}`:                                 "INVALID_SESSION_PARAMS: no auto",
			`{"agent_id":"codex:zz","auto":true}`:                       "SESSION_NOT_FOUND: no such agent",
			`{"agent_id":"codex:ab12","auto":"on"}`:                     "must be true or false",
			`{"agent_id":"codex:ab12","identity":"ann","auto":true}`:    "only one of them",
			`{"identity":"a b","auto":true}`:                            "INVALID_SESSION_PARAMS",
			`{"agent_id":"codex:ab12","auto":null,"conversationId":""}`: "conversationId is empty",
		} {
			mustContain(t, string(r.ask("tools/call", callParams(modern, "agent_mail", args))), want)
		}
	}
}

// Mail in status and lists is what the sessions show of it.
func TestStatusShowsMail(t *testing.T) {
	two := 2
	views := []sessionView{{AgentID: "codex:ab12", AutoMail: "paused: 10 mail turns in a row", PendingMail: &two}}
	r := newRig(t, func(o *mcpOptions) {
		o.status = func() statusView { return statusView{Team: "crew", PendingMail: &two, Agents: views} }
		o.sessions = func(int) []sessionView { return views }
	})
	r.hello("2025-11-25", "{}", "x")
	status := rawField(resultOf(t, r.ask("tools/call", callParams(false, "agent_status", `{}`))), "structuredContent")
	if string(rawField(status, "pending_mail")) != "2" {
		t.Errorf("%s", status)
	}
	list := rawField(resultOf(t, r.ask("tools/call", callParams(false, "agent_sessions", `{}`))), "structuredContent")
	for _, shown := range []json.RawMessage{status, list} {
		mustContain(t, string(shown), `"auto_mail":"paused: 10 mail turns in a row"`, `"pending_mail":2`)
	}
}

func TestSessionsLimit(t *testing.T) {
	limits := make(chan int, 10)
	r := newRig(t, func(o *mcpOptions) {
		o.sessions = func(n int) []sessionView { limits <- n; return nil }
	})
	r.hello("2025-11-25", "{}", "x")
	for args, want := range map[string]int{`{}`: 50, `{"limit":7}`: 7, `{"limit":null}`: 50} {
		res := resultOf(t, r.ask("tools/call", callParams(false, "agent_sessions", args)))
		if got := <-limits; got != want {
			t.Errorf("%s: %d", args, got)
		}
		if string(rawField(res, "structuredContent")) != `{"sessions":[]}` {
			t.Errorf("none: %s", res)
		}
	}
}
