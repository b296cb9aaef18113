package main

// session_form_test.go holds the asking of a legacy client: who can be asked, what the
// message and its form say, and that only a clear yes approves. mcp_ask_test.go
// does the same for modern callers.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func anAsk(id string) approval {
	return approval{id: id, kind: askCommand, thread: "T", turn: "U", item: "call-1", action: "/bin/bash -lc 'touch /x'", command: "/bin/bash -lc 'touch /x'", cwd: "/w", reason: "the model wants it"}
}

// Who can be asked: legacy clients since 2025-06-18 that declared forms.
func TestWhoCanBeAsked(t *testing.T) {
	for _, c := range []struct {
		version, caps string
		modern, want  bool
	}{
		{"2025-06-18", `{"elicitation":{}}`, false, true},
		{"2025-11-25", `{"elicitation":{"form":{},"url":{}}}`, false, true},
		{"2025-11-25", `{"elicitation":{"form":{}}}`, false, true},
		{"2025-11-25", `{"elicitation":{"url":{}}}`, false, false},
		{"2025-11-25", `{}`, false, false},
		{"2025-11-25", `{"elicitation":true}`, false, false},
		{"2025-03-26", `{"elicitation":{}}`, false, false},
		{"2024-11-05", `{"elicitation":{}}`, false, false},
		{"2026-07-28", `{"elicitation":{}}`, false, true}, // answered with 2025-11-25
		{"2025-11-25", `{"elicitation":{}}`, true, false},
	} {
		r := newRig(t, nil)
		a := agentRef{AgentID: "codex:a", Thread: "T", Identity: "arch"}
		if r.f.ask(a, 0, anAsk("early")) {
			t.Error("asked before anybody was there")
		}
		r.hello(c.version, c.caps, "x")
		r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + callParams(c.modern, "codex", `{"prompt":"x"}`) + `}`)
		w := (<-r.submits).w
		if got := r.f.ask(a, w, anAsk("1")); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if c.want {
			if rec := r.next(); stringField(rec, "method") != "elicitation/create" {
				t.Errorf("%s", rec)
			}
			unknown := anAsk("2")
			unknown.kind = askUnknown
			if r.f.ask(a, w, unknown) {
				t.Error("an unknown kind was asked")
			}
		}
		r.quiet()
	}
}

func TestElicitationIsComplete(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", `{"elicitation":{}}`, "x")
	r.send(`{"jsonrpc":"2.0","id":"call-7","method":"tools/call","params":` + callParams(false, "codex", `{"prompt":"x"}`) + `}`)
	w := (<-r.submits).w
	a := agentRef{AgentID: "codex:a", Thread: "T", Identity: "arch"}
	r.f.ask(a, w, anAsk("1"))
	rec := r.next()
	p := rawField(rec, "params")
	if got := stringField(p, "message"); got != "Run `/bin/bash -lc 'touch /x'`\nin `/w`: the model wants it\nasked by agent arch (codex:a)" {
		t.Errorf("message %q", got)
	}
	want := `{"requestedSchema":{"type":"object","properties":{}},"threadId":"T","agent_id":"codex:a","codex_elicitation":"exec-approval",
		"codex_mcp_tool_call_id":"call-7","codex_event_id":"U","codex_call_id":"call-1","codex_command":["/bin/bash","-lc","touch /x"],"codex_cwd":"/w",
		"codex_parsed_cmd":[{"type":"unknown","cmd":"touch /x"}]}`
	hasFields(t, p, want)
	patch := approval{id: "2", kind: askFileChange, turn: "U", action: "add /w/a\nupdate /w/b", files: []fileChange{{path: "/w/a", kind: "add", diff: "x"}, {path: "/w/b", kind: "update", diff: "@@"}}}
	r.f.ask(a, 0, patch)
	p = rawField(r.next(), "params")
	hasFields(t, p, `{"message":"Change files: add /w/a, update /w/b\nasked by agent arch (codex:a)","threadId":"T","codex_elicitation":"patch-approval",
		"codex_changes":{"/w/a":{"type":"add","content":"x"},"/w/b":{"type":"update","unified_diff":"@@"}}}`)
	question := approval{id: "3", action: "Which?\nWhy?", kind: askQuestion, questions: []question{{id: "q1", header: "Pick", text: "Which?", options: []string{"A", "B"}}, {id: "q2", text: "Why?"}}}
	r.f.ask(a, 0, question)
	p = rawField(r.next(), "params")
	hasFields(t, p, `{"message":"agent arch (codex:a) asks\nWhich?\nWhy?","requestedSchema":{"type":"object","properties":{
		"q1":{"type":"string","title":"Pick","description":"Which?","enum":["A","B"]},"q2":{"type":"string","description":"Why?"}}}}`)
}

func hasFields(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	if _, err := matchJSON(mustJSON(t, want), mustJSON(t, string(got))); err != nil {
		t.Error(err)
	}
}

// What is approved must have been shown, all of it.
func TestAskMessages(t *testing.T) {
	a := agentRef{AgentID: "codex:a", Identity: "arch"}
	const asked = "\nasked by agent arch (codex:a)"
	for want, q := range map[string]approval{
		"Run `ls`\nwith network access to https://x.example\nin `/w`" + asked: {kind: askCommand, command: "ls", action: "ls\nnetwork access to https://x.example", more: []string{"network access to https://x.example"}, cwd: "/w"},
		"Allow network access to https://x.example" + asked:                   {kind: askCommand, action: "network access to https://x.example"},
		"Run `ls`" + asked:                                                   {kind: askCommand, command: "ls"},
		"Run `ls`\nin `/w`: one two" + asked:                                 {kind: askCommand, command: "ls", cwd: "/w", reason: "one\ntwo"},
		"Run `a⏎b`" + asked + "\n\nIn full:\na\nb":                           {kind: askCommand, command: "a\nb"},
		"Run `ls \\u202e#`" + asked:                                          {kind: askCommand, command: "ls \u202e#"},
		"Change files: add /a, write access under /w\nwhy" + asked:           {kind: askFileChange, action: "add /a\nwrite access under /w", reason: "why"},
		"Give more permissions: network" + asked:                             {kind: askPermissions, action: "network"},
		"Call the tool atm.send {\"to\":\"bob\"}\nAllow?" + asked:            {kind: askMCPTool, action: `atm.send {"to":"bob"}`, reason: "Allow?"},
		"agent arch (codex:a) asks: open https://x.example: Log in":          {kind: askQuestion, action: "open https://x.example", reason: "Log in"},
		"agent arch (codex:a) asks: Fill in\nName\nAge (optional): atm asks": {kind: askQuestion, action: "Fill in", reason: "atm asks", questions: []question{{id: "n", text: "Name"}, {id: "a", text: "Age (optional)"}}},
	} {
		if got := askMessage(a, &q); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	if got := askMessage(agentRef{AgentID: "codex:a"}, &approval{kind: askCommand, command: "ls"}); got != "Run `ls`\nasked by agent codex:a" {
		t.Error(got)
	}
}

// A dialog that shows three lines of 80 columns shows where a command begins and
// where it ends, whatever stands between, and how much that is; all of it follows.
func TestLongCommandsShowBothEnds(t *testing.T) {
	long := "echo " + strings.Repeat("x", 400) + " && rm -rf /"
	wide := "echo " + strings.Repeat("漢", 200) + " && rm -rf /"
	files := "add /a\n" + strings.Repeat("update /w/some/file.go\n", 20) + "write access under /"
	for _, c := range []struct {
		name  string
		q     approval
		lines []string // the first of the message, each by its beginning
		ends  string   // of the last of them
		whole string   // "": nothing was left out
	}{
		{"fits", approval{kind: askCommand, command: "ls -l", cwd: "/w", reason: "to see"}, []string{"Run `ls -l`", "in `/w`: to see"}, "to see", ""},
		{"just fits", approval{kind: askCommand, command: strings.Repeat("x", 68)}, []string{"Run `xxx"}, "xxx`", ""},
		{"two lines", approval{kind: askCommand, command: strings.Repeat("x", 69), cwd: "/w"}, []string{"Run `xxx", "x`"}, "x`", strings.Repeat("x", 69)},
		{"the middle goes", approval{kind: askCommand, command: long, cwd: "/w", reason: "why"},
			[]string{"Run `echo xxx", "… 308 characters left out … xxx", "in `/w`: why"}, "why", long},
		{"with its end in sight", approval{kind: askCommand, command: long}, []string{"Run `echo xxx", "… 308 characters left out … xxx"}, "xxx && rm -rf /`", long},
		{"wide characters", approval{kind: askCommand, command: wide}, []string{"Run `echo 漢", "… 155 characters left out … 漢"}, "漢 && rm -rf /`", wide},
		{"many lines", approval{kind: askCommand, command: "ls" + strings.Repeat("\n", 200) + "rm -rf /"},
			[]string{"Run `ls⏎⏎", "… 151 characters left out … ⏎"}, "⏎rm -rf /`", "ls" + strings.Repeat("\n", 200) + "rm -rf /"},
		{"blanks push nothing out", approval{kind: askCommand, command: "ls" + strings.Repeat("\t", 200) + "; rm -rf /"},
			[]string{"Run `ls  ", "… 103 characters left out …  "}, " ; rm -rf /`", "ls" + strings.Repeat("\t", 200) + "; rm -rf /"},
		{"what else it asks for", approval{kind: askCommand, command: "ls", more: []string{strings.Repeat("network access to a.example", 9), "network access to evil.example"}},
			[]string{"Run `ls`", "with network access", "… 164 characters left out … "}, "evil.example", strings.Repeat("network access to a.example", 9) + ", network access to evil.example"},
		{"files", approval{kind: askFileChange, action: files}, []string{"Change files: add /a, update", "… 406 characters left out … "}, "write access under /", files},
	} {
		lines := strings.Split(askMessage(agentRef{AgentID: "codex:a"}, &c.q), "\n")
		for i, begin := range c.lines {
			if !strings.HasPrefix(lines[i], begin) {
				t.Errorf("%s: line %d is %q, want %q…", c.name, i, lines[i], begin)
			}
			if runesWithin([]rune(lines[i]), 78) < len([]rune(lines[i])) {
				t.Errorf("%s: line %d is too wide: %q", c.name, i, lines[i])
			}
		}
		if last := lines[len(c.lines)-1]; !strings.HasSuffix(last, c.ends) {
			t.Errorf("%s: %q doesn't end in %q", c.name, last, c.ends)
		}
		_, whole, _ := strings.Cut(strings.Join(lines, "\n"), "\n\nIn full:\n")
		if !strings.HasSuffix(whole, c.whole) || (whole == "") != (c.whole == "") {
			t.Errorf("%s: in full is %q", c.name, whole)
		}
	}
}

// Every answer ends in a decision, and only a plain yes approves.
func TestAnswers(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", `{"elicitation":{}}`, "x")
	a := agentRef{AgentID: "codex:a", Thread: "T", Identity: "arch"}
	for i, c := range []struct {
		answer string
		want   decision
		said   bool // a no that the user said
	}{
		{`"result":{"action":"accept"}`, approve, false},
		{`"result":{"action":"accept","content":{}}`, approve, false},
		{`"result":{"action":"accept","content":null}`, approve, false},
		{`"result":{"action":"decline"}`, deny, true},
		{`"result":{"action":"cancel"}`, deny, false},
		{`"result":{"action":"maybe"}`, deny, false},
		{`"result":{"action":true}`, deny, false},
		{`"result":{"action":null}`, deny, false},
		{`"result":{"decision":"approved"}`, approve, false},
		{`"result":{"decision":"Approved"}`, approve, false},
		{`"result":{"decision":"approved_for_session"}`, approveForSession, false},
		{`"result":{"decision":"ApprovedForSession"}`, approveForSession, false},
		{`"result":{"decision":{"approved_execpolicy_amendment":{}}}`, approve, false},
		{`"result":{"decision":{"approved_execpolicy_amendment":{},"denied":{}}}`, deny, false},
		{`"result":{"decision":"denied"}`, deny, true},
		{`"result":{"decision":"Rejected"}`, deny, false},
		{`"result":{"decision":"abort"}`, deny, true},
		{`"result":{"decision":"timed_out"}`, deny, false},
		{`"result":{"decision":{"denied":{"rejection":"x"}}}`, deny, false},
		{`"result":{"decision":{}}`, deny, false},
		{`"result":{"decision":null}`, deny, false},
		{`"result":{"decision":["approved"]}`, deny, false},
		{`"result":{"action":"accept","decision":"approved"}`, approve, false},
		{`"result":{"action":"accept","decision":"approved_for_session"}`, approveForSession, false},
		{`"result":{"action":"accept","decision":"denied"}`, deny, false},
		{`"result":{"action":"decline","decision":"approved"}`, deny, true},
		{`"result":{"action":"accept","content":{"decision":"denied"}}`, deny, false},
		{`"result":{"action":"accept","content":{"decision":"approved_for_session"}}`, approveForSession, false},
		{`"result":{}`, deny, false},
		{`"result":null`, deny, false},
		{`"result":"approved"`, deny, false},
		{`"result":[]`, deny, false},
		{`"error":{"code":-32601,"message":"Method not found"}`, deny, false},
		{`"error":"nonsense"`, deny, false},
	} {
		ask := fmt.Sprint("ask-", i)
		if !r.f.ask(a, 0, anAsk(ask)) {
			t.Fatal("not asked")
		}
		id := rawField(r.next(), "id")
		answer := `{"jsonrpc":"2.0","id":` + string(id) + `,` + c.answer + `}`
		r.send(answer)
		got := <-r.decides
		if got.ask != ask || (got.by.who == byUser) != (got.d != deny || c.said) || got.d != c.want {
			t.Errorf("%s: %+v", c.answer, got)
		}
		r.send(answer) // a second one is nobody's
	}
	r.quiet()
	if len(r.decides) != 0 {
		t.Error("decided twice")
	}
}

func TestAnswersToQuestions(t *testing.T) {
	if d, _ := readAnswer(json.RawMessage(`{"action":"accept"}`), &approval{kind: askQuestion, action: "open https://x.example"}); d != approve {
		t.Error("nothing to fill in, and accepted: that is a yes")
	}
	q := approval{kind: askQuestion, questions: []question{{id: "a", options: []string{"x"}}, {id: "decision"}}}
	for _, c := range []struct {
		answer string
		want   decision
		gives  string
	}{
		{`{"action":"accept","content":{"a":"x","decision":"denied"}}`, approve, `{"a":["x"],"decision":["denied"]}`},
		{`{"action":"accept","content":{"a":["x","y"],"other":"z"}}`, approve, `{"a":["x","y"]}`},
		{`{"action":"accept","content":{"a":5}}`, deny, `null`},
		{`{"action":"accept","content":{"a":""}}`, deny, `null`},
		{`{"action":"accept"}`, deny, `null`},
		{`{"action":"decline","content":{"a":"x"}}`, deny, `null`},
	} {
		d, answers := readAnswer(json.RawMessage(c.answer), &q)
		if d != c.want || string(toJSON(answers)) != c.gives {
			t.Errorf("%s: %v %s", c.answer, d, toJSON(answers))
		}
	}
}

// A withdrawn question is taken back at the client and its answer is nobody's.
func TestAskGone(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", `{"elicitation":{}}`, "x")
	a := agentRef{AgentID: "codex:a"}
	r.f.ask(a, 0, anAsk("1"))
	id := string(rawField(r.next(), "id"))
	r.f.askGone(a, "other", "no such ask")
	r.f.askGone(a, "1", "timed out")
	rec := r.next()
	if stringField(rec, "method") != "notifications/cancelled" || string(rawField(rec, "params", "requestId")) != id || stringField(rec, "params", "reason") != "timed out" {
		t.Errorf("%s", rec)
	}
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept"}}`)
	r.f.askGone(a, "1", "again")
	r.quiet()
	if len(r.decides) != 0 || len(r.f.asks) != 0 {
		t.Error("something is left")
	}
}

// When the client hangs up the hub denies what is pending; the front must not
// decide in its place, and asks nothing more.
func TestHangUpWhileAsked(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", `{"elicitation":{}}`, "x")
	a := agentRef{AgentID: "codex:a"}
	r.f.ask(a, 0, anAsk("1"))
	r.next()
	r.end()
	if r.f.ask(a, 0, anAsk("2")) {
		t.Error("asked a client that is gone")
	}
	if len(r.decides) != 0 || len(r.f.asks) != 0 {
		t.Errorf("decided %d, pending %d", len(r.decides), len(r.f.asks))
	}
}
