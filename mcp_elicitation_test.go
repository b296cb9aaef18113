package main

// mcp_elicitation_test.go holds how a legacy client is asked: who can be asked, what the message and its form say, and
// that only a clear yes approves. mcp_ask_test.go does the same for modern callers.

import (
	"encoding/json"
	"strings"
	"testing"
)

func anAsk(id string) approval {
	const touch = "/bin/bash -lc 'touch /x'"
	return approval{id: id, kind: askCommand, thread: "T", turn: "U", item: "call-1", action: touch, command: touch,
		cwd: "/w", reason: "the model wants it"}
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
		w := r.begin("7", callParams(c.modern, "codex", `{"prompt":"x"}`)).w
		if got := r.f.ask(a, w, anAsk("1")); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if c.want {
			hasFields(t, r.next(), `{"method":"elicitation/create","params":{"codex_mcp_tool_call_id":"7"}}`)
			unknown := anAsk("2")
			unknown.kind = askUnknown
			if r.f.ask(a, w, unknown) {
				t.Error("an unknown kind was asked")
			}
		}
		r.quiet()
	}
}

func hasFields(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	if _, err := matchJSON(mustJSON(t, want), mustJSON(t, string(got))); err != nil {
		t.Error(err)
	}
}

func TestElicitationIsComplete(t *testing.T) {
	for _, c := range []struct {
		q    approval
		want string
	}{
		{anAsk("1"),
			`{"message":"Run ` + "`/bin/bash -lc 'touch /x'`\\nin `/w`" + `: the model wants it\nasked by agent arch (codex:a)",
			"requestedSchema":{"type":"object","properties":{}},"threadId":"T","agent_id":"codex:a",
			"codex_elicitation":"exec-approval","codex_mcp_tool_call_id":"call-7","codex_event_id":"U",
			"codex_call_id":"call-1","codex_command":["/bin/bash","-lc","touch /x"],"codex_cwd":"/w",
			"codex_parsed_cmd":[{"type":"unknown","cmd":"touch /x"}]}`},
		{approval{kind: askFileChange, turn: "U", action: "add /w/a\nupdate /w/b", files: []fileChange{
			{path: "/w/a", kind: "add", diff: "x"}, {path: "/w/b", kind: "update", diff: "@@"}}},
			`{"message":"Change files: add /w/a, update /w/b\nasked by agent arch (codex:a)","threadId":"T",
			"codex_elicitation":"patch-approval",
			"codex_changes":{"/w/a":{"type":"add","content":"x"},"/w/b":{"type":"update","unified_diff":"@@"}}}`},
		{approval{kind: askQuestion, action: "Which?\nWhy?", questions: []question{
			{id: "q1", header: "Pick", text: "Which?", options: []string{"A", "B"}}, {id: "q2", text: "Why?"}}},
			`{"message":"agent arch (codex:a) asks\nWhich?\nWhy?","requestedSchema":{"type":"object","properties":{
			"q1":{"type":"string","title":"Pick","description":"Which?","enum":["A","B"]},
			"q2":{"type":"string","description":"Why?"}}}}`},
	} {
		a := agentRef{AgentID: "codex:a", Thread: "T", Identity: "arch"}
		hasFields(t, elicitation(a, &c.q, json.RawMessage(`"call-7"`)), c.want)
	}
}

// What is approved must have been shown, all of it.
func TestAskMessages(t *testing.T) {
	const asked = "\nasked by agent arch (codex:a)"
	const network = "network access to https://x.example"
	for _, c := range []struct {
		want string
		q    approval
	}{
		{"Run `ls`\nwith " + network + "\nin `/w`" + asked,
			approval{kind: askCommand, command: "ls", action: "ls\n" + network, more: []string{network}, cwd: "/w"}},
		{"Allow " + network + asked, approval{kind: askCommand, action: network}},
		{"Run `ls`" + asked, approval{kind: askCommand, command: "ls"}},
		{"Run `ls`\nin `/w`: one two" + asked, approval{kind: askCommand, command: "ls", cwd: "/w",
			reason: "one\ntwo"}},
		{"Run `a⏎b`" + asked + "\n\nIn full:\na\nb", approval{kind: askCommand, command: "a\nb"}},
		{"Run `ls \\u202e#`" + asked, approval{kind: askCommand, command: "ls \u202e#"}},
		{"Change files: add /a, write access under /w\nwhy" + asked,
			approval{kind: askFileChange, action: "add /a\nwrite access under /w", reason: "why"}},
		{"Give more permissions: network" + asked, approval{kind: askPermissions, action: "network"}},
		{"Call the tool atm.send {\"to\":\"bob\"}\nAllow?" + asked,
			approval{kind: askMCPTool, action: `atm.send {"to":"bob"}`, reason: "Allow?"}},
		{"agent arch (codex:a) asks: open https://x.example: Log in",
			approval{kind: askQuestion, action: "open https://x.example", reason: "Log in"}},
		{"agent arch (codex:a) asks: Fill in\nName\nAge (optional): atm asks",
			approval{kind: askQuestion, action: "Fill in", reason: "atm asks",
				questions: []question{{id: "n", text: "Name"}, {id: "a", text: "Age (optional)"}}}},
	} {
		want(t, askMessage(agentRef{AgentID: "codex:a", Identity: "arch"}, &c.q), c.want)
	}
	want(t, askMessage(agentRef{AgentID: "codex:a"}, &approval{kind: askCommand, command: "ls"}),
		"Run `ls`\nasked by agent codex:a")
}

// A dialog that shows three lines of 80 columns shows where a command begins and
// where it ends, whatever stands between, and how much that is; all of it follows.
func TestLongCommandsShowBothEnds(t *testing.T) {
	runs := func(command string) approval { return approval{kind: askCommand, command: command} }
	in := func(q approval, cwd, reason string) approval {
		q.cwd, q.reason = cwd, reason
		return q
	}
	long := "echo " + strings.Repeat("x", 400) + " && rm -rf /"
	wide := "echo " + strings.Repeat("漢", 200) + " && rm -rf /"
	lines := "ls" + strings.Repeat("\n", 200) + "rm -rf /"
	tabs := "ls" + strings.Repeat("\t", 200) + "; rm -rf /"
	wider := runs("ls")
	wider.more = []string{strings.Repeat("network access to a.example", 9), "network access to evil.example"}
	files := "add /a\n" + strings.Repeat("update /w/some/file.go\n", 20) + "write access under /"
	for _, c := range []struct {
		name  string
		q     approval
		lines string // the first of the message, each by its beginning
		ends  string // of the last of them
		whole string // "": nothing was left out
	}{
		{"fits", in(runs("ls -l"), "/w", "to see"), "Run `ls -l`|in `/w`: to see", "to see", ""},
		{"just fits", runs(long[5:73]), "Run `xxx", "xxx`", ""},
		{"two lines", in(runs(long[5:74]), "/w", ""), "Run `xxx|x`", "x`", long[5:74]},
		{"the middle goes", in(runs(long), "/w", "why"), "Run `echo xxx|… 308 characters left out … xxx|in `/w`: why",
			"why", long},
		{"with its end in sight", runs(long), "Run `echo xxx|… 308 characters left out … xxx", "xxx && rm -rf /`",
			long},
		{"wide characters", runs(wide), "Run `echo 漢|… 155 characters left out … 漢", "漢 && rm -rf /`", wide},
		{"many lines", runs(lines), "Run `ls⏎⏎|… 151 characters left out … ⏎", "⏎rm -rf /`", lines},
		{"blanks push nothing out", runs(tabs), "Run `ls  |… 103 characters left out …  ", " ; rm -rf /`", tabs},
		{"what else it asks for", wider, "Run `ls`|with network access|… 164 characters left out … ", "evil.example",
			wider.more[0] + ", " + wider.more[1]},
		{"files", approval{kind: askFileChange, action: files}, "Change files: add /a, update|… 406 characters left " +
			"out … ",
			"write access under /", files},
	} {
		message := askMessage(agentRef{AgentID: "codex:a"}, &c.q)
		shown := strings.Split(message, "\n")
		last := ""
		for i, begin := range strings.Split(c.lines, "|") {
			last = shown[i]
			if !strings.HasPrefix(last, begin) || runesWithin([]rune(last), 78) < len([]rune(last)) {
				t.Errorf("%s: line %d is %q, want %q… of 78 columns", c.name, i, last, begin)
			}
		}
		if !strings.HasSuffix(last, c.ends) {
			t.Errorf("%s: %q doesn't end in %q", c.name, last, c.ends)
		}
		_, whole, _ := strings.Cut(message, "\n\nIn full:\n")
		if !strings.HasSuffix(whole, c.whole) || (whole == "") != (c.whole == "") {
			t.Errorf("%s: in full is %q", c.name, whole)
		}
	}
}

// Every answer ends in a decision, and only a plain yes approves. A no that is none of a person's says so.
func TestAnswers(t *testing.T) {
	const said, unsaid = true, false
	for _, c := range []struct {
		want    decision
		byUser  bool
		answers []string
	}{
		{approve, said, []string{`{"action":"accept"}`, `{"action":"accept","content":{}}`,
			`{"action":"accept","content":null}`,
			`{"decision":"approved"}`, `{"decision":"Approved"}`, `{"decision":{"approved_execpolicy_amendment":{}}}`,
			`{"action":"accept","decision":"approved"}`}},
		{approveForSession, said, []string{`{"decision":"approved_for_session"}`, `{"decision":"ApprovedForSession"}`,
			`{"action":"accept","decision":"approved_for_session"}`,
			`{"action":"accept","content":{"decision":"approved_for_session"}}`}},
		{deny, said, []string{`{"action":"decline"}`, `{"decision":"denied"}`, `{"decision":"abort"}`,
			`{"action":"decline","decision":"approved"}`}},
		{deny, unsaid, []string{`{"action":"cancel"}`, `{"action":"maybe"}`, `{"action":true}`, `{"action":null}`,
			`{"decision":{"approved_execpolicy_amendment":{},"denied":{}}}`, `{"decision":"Rejected"}`,
			`{"decision":"timed_out"}`,
			`{"decision":{"denied":{"rejection":"x"}}}`, `{"decision":{}}`, `{"decision":null}`,
			`{"decision":["approved"]}`,
			`{"action":"accept","decision":"denied"}`, `{"action":"accept","content":{"sure":"No"}}`,
			`{"action":"accept","content":{"sure":false}}`, `{"action":"accept","content":{"decision":"denied"}}`,
			`{}`, `null`, `"approved"`, `[]`}},
	} {
		for _, answer := range c.answers {
			ask := anAsk("1")
			d, _ := readAnswer(json.RawMessage(answer), &ask)
			if by := answeredBy(json.RawMessage(answer), d).who == byUser; d != c.want || by != c.byUser {
				t.Errorf("%s: %v, by the user %v", answer, d, by)
			}
		}
	}

	link := approval{kind: askQuestion, action: "open https://x.example"}
	form := approval{kind: askQuestion, questions: []question{{id: "a", options: []string{"x"}}, {id: "decision"}}}
	ruled := approval{kind: askCommand, rule: []string{"touch"}, forSession: true} // a field says how long
	for _, c := range []struct {
		q      *approval
		answer string
		want   decision
		gives  string
	}{
		{&link, `{"action":"accept"}`, approve, `{}`}, // there is nothing to fill in
		{&form, `{"action":"accept","content":{"a":"x","decision":"denied"}}`, approve,
			`{"a":["x"],"decision":["denied"]}`},
		{&form, `{"action":"accept","content":{"a":["x","y"],"other":"z"}}`, approve, `{"a":["x","y"]}`},
		{&form, `{"action":"accept","content":{"a":5}}`, deny, `null`},
		{&form, `{"action":"accept","content":{"a":""}}`, deny, `null`},
		{&form, `{"action":"accept"}`, deny, `null`},
		{&form, `{"action":"decline","content":{"a":"x"}}`, deny, `null`},
		{&ruled, `{"action":"accept"}`, approve, `null`},
		{&ruled, `{"action":"accept","content":{"allow":"sometimes"}}`, deny, `null`},
		{&ruled, `{"action":"decline","content":{"allow":"always"}}`, deny, `null`},
		{&ruled, `{"decision":{"approved_execpolicy_amendment":{"x":["rm"]}}}`, approveAlways, `null`},
	} {
		d, answers := readAnswer(json.RawMessage(c.answer), c.q)
		if d != c.want || string(toJSON(answers)) != c.gives {
			t.Errorf("%s: %v %s", c.answer, d, toJSON(answers))
		}
	}
}

// An ask is decided once, by its first answer; an error is a no. A withdrawn question is taken back at the client and
// its answer is nobody's. When the client hangs up the hub denies what is pending; the front must not decide in its
// place, and asks nothing more.
func TestAskIsDecidedOnce(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-06-18", elicits, "x")
	a := agentRef{AgentID: "codex:a", Thread: "T", Identity: "arch"}
	ask := func(id string) (request string, answer func(with string)) {
		t.Helper()
		if !r.f.ask(a, 0, anAsk(id)) {
			t.Fatal("not asked")
		}
		request = string(rawField(r.next(), "id"))
		return request, func(with string) { r.send(`{"jsonrpc":"2.0","id":` + request + `,` + with + `}`) }
	}
	for _, c := range []struct {
		answer string
		want   decision
		by     bool
	}{
		{`"result":{"action":"accept"}`, approve, true},
		{`"result":{"action":"decline"}`, deny, true},
		{`"error":{"code":-32601,"message":"Method not found"}`, deny, false},
		{`"error":"nonsense"`, deny, false},
	} {
		_, answer := ask(c.answer)
		answer(c.answer)
		if got := <-r.decides; got.ask != c.answer || got.d != c.want || (got.by.who == byUser) != c.by {
			t.Errorf("%s: %+v", c.answer, got)
		}
		answer(c.answer) // a second one is nobody's
	}
	request, answer := ask("withdrawn")
	r.f.askGone(a, "other", "no such ask")
	r.f.askGone(a, "withdrawn", "timed out")
	hasFields(t, r.next(), `{"method":"notifications/cancelled","params":{"requestId":`+request+
		`,"reason":"timed out"}}`)
	answer(`"result":{"action":"accept"}`)
	r.f.askGone(a, "withdrawn", "again")
	r.quiet()
	ask("pending")
	r.end()
	if r.f.ask(a, 0, anAsk("late")) {
		t.Error("asked a client that is gone")
	}
	if len(r.decides) != 0 || len(r.f.asks) != 0 {
		t.Errorf("decided %d, pending %d", len(r.decides), len(r.f.asks))
	}
}
