package main

// acp_ask_test.go owns the asking of an ACP client, spoken over its wire: what it
// is asked, and that nothing but a chosen yes is one.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// askAbout puts an approval from a goroutine of its own, as the session does.
func (r *acpFrontRig) askAbout(q approval) bool {
	return r.f.ask(agentRef{AgentID: "codex:abcd", Thread: "t1", Identity: "codex"}, 0, q)
}

func commandAsk(id string) approval {
	return approval{id: id, kind: askCommand, thread: "t1", turn: "turn1", item: "item-" + id,
		action: "rm -r build", command: "rm -r build", cwd: "/work", forSession: true}
}

// callStatus is the status that the updates gave a tool call last, "" where
// they never speak of it.
func callStatus(updates []json.RawMessage, call string) (status string) {
	for _, rec := range updates {
		u := rawField(rec, "params", "update")
		if stringField(u, "toolCallId") == call && stringField(u, "status") != "" {
			status = stringField(u, "status")
		}
	}
	return status
}

func optionKinds(request json.RawMessage) (kinds []string) {
	eachElement(rawField(request, "params", "options"), func(o json.RawMessage) {
		kinds = append(kinds, stringField(o, "optionId")+"="+stringField(o, "kind"))
	})
	return kinds
}

func TestACPPermissionOptions(t *testing.T) {
	r := newAskRig(t, `{}`, nil)
	plain, ruled := commandAsk("a1"), commandAsk("a3")
	once := approval{id: "a2", kind: askMCPTool, thread: "t1", turn: "turn1", server: "files", tool: "read", action: `files.read {}`, arguments: json.RawMessage(`{}`)}
	ruled.rule = []string{"rm", "-r"}
	for _, tt := range []struct {
		q    approval
		want string
	}{
		{plain, "allow_once=allow_once allow_always=allow_always reject_once=reject_once reject_always=reject_always"},
		{once, "allow_once=allow_once reject_once=reject_once reject_always=reject_always"},
		{ruled, "allow_once=allow_once allow_always=allow_always allow_rule=allow_always reject_once=reject_once reject_always=reject_always"},
	} {
		if !r.askAbout(tt.q) {
			t.Fatalf("%s: not asked", tt.q.id)
		}
		request, before := r.method("session/request_permission")
		if got := strings.Join(optionKinds(request), " "); got != tt.want {
			t.Errorf("%s: options %s, want %s", tt.q.id, got, tt.want)
		}
		if got := stringField(request, "params", "sessionId"); got != "sess_1" {
			t.Errorf("%s: sessionId %q", tt.q.id, got)
		}
		call := stringField(request, "params", "toolCall", "toolCallId")
		if call == "" || callStatus(before, call) != "pending" {
			t.Errorf("%s: tool call %q was not announced as pending before it was asked about: %s", tt.q.id, call, before)
		}
	}
}

// permission asks, and returns the client's request and the tool call that it is
// about.
func (r *acpFrontRig) permission(q approval) (request json.RawMessage, call string) {
	r.t.Helper()
	r.askAbout(q)
	request, _ = r.method("session/request_permission")
	return request, stringField(request, "params", "toolCall", "toolCallId")
}

// TestACPPermissionAnswers: what each answer comes to. A rejection that goes on
// never stops the turn, one that stops it is no decision of ours unless nothing
// could be stopped. Whatever isn't a chosen yes is a no, and the turn goes on.
func TestACPPermissionAnswers(t *testing.T) {
	type row struct {
		answer string
		d      decision
		stops  bool
	}
	selected := func(option string) string {
		return fmt.Sprintf(`"result":{"outcome":{"outcome":"selected","optionId":%q}}`, option)
	}
	said := []row{
		{selected("allow_once"), approve, false},
		{selected("allow_always"), approveForSession, false},
		{selected("allow_rule"), approveAlways, false},
		{selected("reject_once"), deny, false},
		{selected("reject_always"), deny, true},
		{`"result":{"outcome":{"outcome":"cancelled"}}`, deny, true},
	}
	rows := said
	for _, nonsense := range []string{
		`"error":{"code":-32601,"message":"no such method"}`,
		`"error":{"code":-32800,"message":"cancelled"}`,
		`"result":null`, `"result":{}`, `"result":[]`, `"result":"allow_once"`, `"result":{"optionId":"allow_once"}`,
		`"result":{"outcome":"selected"}`, `"result":{"outcome":"allow_once"}`,
		`"result":{"outcome":{"outcome":"selected"}}`,
		selected("allow_rule"), // not offered
		selected("Allow_once"),
		`"result":{"outcome":{"outcome":"selected","optionId":["allow_once"]}}`,
		`"result":{"outcome":{"outcome":"Selected","optionId":"allow_once"}}`,
		`"result":{"outcome":{"outcome":"approved","optionId":"allow_once"}}`,
		`"result":{"outcome":{"optionId":"allow_once"}}`,
	} {
		rows = append(rows, row{answer: nonsense, d: deny})
	}
	for i, tt := range rows {
		t.Run(tt.answer, func(t *testing.T) {
			r := newAskRig(t, `{}`, nil)
			q := commandAsk("a1")
			if i < len(said) {
				q.rule = []string{"rm"}
			}
			request, call := r.permission(q)
			r.reply(request, tt.answer)
			status := callFailed
			if tt.d != deny {
				status = callRunning
			}
			if update := r.next(); callStatus([]json.RawMessage{update}, call) != status {
				t.Errorf("the tool call should be %s: %s", status, update)
			}
			if tt.stops {
				if got := receive(t, r.interrupts); got.agent != "codex:abcd" || got.turn != "turn1" {
					t.Errorf("interrupted %+v", got)
				}
			} else if got := receive(t, r.decides); got.d != tt.d || got.ask != "a1" || (got.by.who == byUser) != (i < len(said)) {
				t.Errorf("decided %+v, want %v", got, tt.d)
			}
			none(t, "interrupted", r.interrupts)
			for _, second := range []string{"reject_once", "allow_once", "reject_always"} { // the first answer counts
				r.choose(request, second)
			}
			r.nothing() // the interrupt itself denies what is pending
		})
	}
}

// TestACPStopWithoutTurn: a subagent asks though nothing of the session's runs;
// then there is nothing to stop, and the ask is denied by itself.
func TestACPStopWithoutTurn(t *testing.T) {
	r := newAskRig(t, `{}`, nil)
	r.ends = func(string) (interruptResult, *rpcError) { return interruptResult{}, nil }
	q := commandAsk("a1")
	q.thread, q.turn, q.subagent = "t2", "turn7", &subagentRef{thread: "t2", name: "digger"}
	request, _ := r.permission(q)
	r.choose(request, "reject_always")
	if got := receive(t, r.interrupts); got.agent != "codex:abcd" || got.turn != "" {
		t.Errorf("interrupted %+v, want whatever runs", got)
	}
	if got := receive(t, r.decides); got.d != deny || got.ask != "a1" {
		t.Errorf("decided %+v", got)
	}
}

// TestACPAskGone: an ask that is withdrawn takes the client's dialog with it,
// and what the client says then is heard by nobody.
func TestACPAskGone(t *testing.T) {
	r := newAskRig(t, `{}`, nil)
	request, call := r.permission(commandAsk("a1"))
	r.f.askGone(agentRef{AgentID: "codex:abcd"}, "a1", "nobody answered within 1s")
	gone, _ := r.method("$/cancel_request")
	if got, want := string(rawField(gone, "params", "requestId")), string(rawField(request, "id")); got != want {
		t.Errorf("requestId %s, want %s", got, want)
	}
	update := r.next()
	if got := callStatus([]json.RawMessage{update}, call); got != "failed" || !strings.Contains(string(update), "nobody answered") {
		t.Errorf("the tool call: %s", update)
	}
	r.choose(request, "allow_once")
	r.f.askGone(agentRef{AgentID: "codex:abcd"}, "a1", "again")
	r.f.askGone(agentRef{AgentID: "codex:abcd"}, "never", "was")
	r.nothing()
}

// TestACPCantAsk: where nobody can be asked the hub is told at once.
func TestACPCantAsk(t *testing.T) {
	r := newAskRig(t, `{}`, nil)
	unknown, question := commandAsk("a1"), approval{id: "a2", kind: askQuestion, questions: []question{{id: "q", text: "Why?"}}}
	unknown.kind = askUnknown
	if r.askAbout(unknown) {
		t.Error("an unknown kind was asked")
	}
	if r.askAbout(question) {
		t.Error("a question was put to a client without elicitation")
	}
	if r.f.ask(agentRef{AgentID: "codex:none"}, 0, commandAsk("a3")) {
		t.Error("a session that isn't open was asked about")
	}
	r.nothing()

	q := commandAsk("a4")
	r.askAbout(q)
	r.method("session/request_permission")
	_ = r.in.Close()
	for r.askAbout(commandAsk("a5")) { // until the front has seen the end
		r.f.asks.take("a5")
	}
	select {
	case d := <-r.decides:
		t.Errorf("decided %+v for a client that is gone", d)
	default:
	}
}

func TestACPQuestion(t *testing.T) {
	r := newAskRig(t, `{"elicitation":{"form":{}}}`, nil)
	q := approval{id: "a1", kind: askQuestion, thread: "t1", turn: "turn1", item: "i1", action: "Which one?",
		questions: []question{{id: "q1", header: "Colour", text: "Which one?", options: []string{"red", "blue"}}}}
	r.askAbout(q)
	request, before := r.method("elicitation/create")
	p := rawField(request, "params")
	if stringField(p, "mode") != "form" || stringField(p, "sessionId") != "sess_1" || stringField(p, "message") != "Which one?" {
		t.Errorf("asked %s", p)
	}
	if call := stringField(p, "toolCallId"); call == "" || callStatus(before, call) == "" {
		t.Errorf("tool call %q was not announced: %s", call, before)
	}
	r.reply(request, `"result":{"action":"accept","content":{"q1":"blue"}}`)
	if got := receive(t, r.decides); got.d != approve || fmt.Sprint(got.answers) != "map[q1:[blue]]" {
		t.Errorf("decided %+v", got)
	}
}

// TestACPSecret: a secret never comes into a form, and the user reads why.
func TestACPSecret(t *testing.T) {
	r := newAskRig(t, `{"elicitation":{"form":{}}}`, nil)
	if !r.askAbout(approval{id: "a1", kind: askQuestion, thread: "t1", turn: "turn1", item: "i1", action: "The token?",
		questions: []question{{id: "q1", text: "The token?", secret: true}}}) {
		t.Error("nobody was told why")
	}
	if got := receive(t, r.decides); got.d != deny || !strings.Contains(got.by.said, "secret") {
		t.Errorf("decided %+v", got)
	}
	answer, before := r.exchange("session/nothing", "{}")
	if strings.Contains(fmt.Sprintf("%s", before), "elicitation/create") || !strings.Contains(fmt.Sprintf("%s", before), "secret") {
		t.Errorf("said %s before %s", before, answer)
	}
}

// TestACPPage: a page to open goes by the url mode, to others by a form that
// only says yes or no.
func TestACPPage(t *testing.T) {
	q := approval{id: "a1", kind: askQuestion, thread: "t1", turn: "turn1", reason: "Log in", action: "open https://example.com/login?x=1", page: "https://example.com/login?x=1"}
	r := newAskRig(t, `{"elicitation":{"form":{},"url":{}}}`, nil)
	r.askAbout(q)
	request, _ := r.method("elicitation/create")
	p := rawField(request, "params")
	if stringField(p, "mode") != "url" || stringField(p, "url") != "https://example.com/login?x=1" || stringField(p, "elicitationId") != "a1" || rawField(p, "requestedSchema") != nil {
		t.Errorf("asked %s", p)
	}
	r.reply(request, `"result":{"action":"accept"}`)
	if got := receive(t, r.decides); got.d != approve {
		t.Errorf("decided %+v", got)
	}

	r = newAskRig(t, `{"elicitation":{"form":{}}}`, nil)
	r.askAbout(q)
	request, _ = r.method("elicitation/create")
	p = rawField(request, "params")
	if stringField(p, "mode") != "form" || !strings.Contains(stringField(p, "message"), "https://example.com/login?x=1") {
		t.Errorf("asked %s", p)
	}
	r.reply(request, `"result":{"action":"decline"}`)
	if got := receive(t, r.decides); got.d != deny {
		t.Errorf("decided %+v", got)
	}
}

// FuzzACPPermission: only a selected option that was offered says yes.
func FuzzACPPermission(f *testing.F) {
	f.Add([]byte(`{"outcome":{"outcome":"selected","optionId":"allow_once"}}`))
	f.Add([]byte(`{"outcome":{"outcome":"cancelled"}}`))
	f.Add([]byte(`{"outcome":{"outcome":"selected","optionId":"reject_once","optionId":"allow_always"}}`))
	q := commandAsk("a1")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !validJSON(raw) {
			return
		}
		v := readPermission(raw, permissionOptions(&q))
		var said struct {
			Outcome struct{ Outcome, OptionID any }
		}
		_ = json.Unmarshal(raw, &said)
		word, _ := said.Outcome.OptionID.(string)
		if v.d != deny && (v.stop || !strings.HasPrefix(word, "allow_") && !strings.Contains(string(raw), `\u`)) {
			t.Fatalf("%s came to %+v", raw, v)
		}
		if v.d == deny && v.words == "" {
			t.Fatalf("%s is denied without a word", raw)
		}
	})
}

func formAsk(questions ...question) *approval {
	q := &approval{kind: askQuestion, questions: questions}
	q.action = askedText(q)
	return q
}

func TestACPQuestionForm(t *testing.T) {
	for _, tt := range []struct {
		name string
		q    *approval
		want string
	}{
		{"text", formAsk(question{id: "a", header: "H", text: "Why?"}),
			`{"type":"object","properties":{"a":{"type":"string","title":"H","description":"Why?"}},"required":["a"]}`},
		{"optional", formAsk(question{id: "a", text: "Why?", optional: true}),
			`{"type":"object","properties":{"a":{"type":"string","description":"Why?"}}}`},
		{"choice", formAsk(question{id: "a", text: "Which?", options: []string{"x", "y"}}),
			`{"type":"object","properties":{"a":{"type":"string","description":"Which?","enum":["x","y"]}},"required":["a"]}`},
		{"choice or words", formAsk(question{id: "a", text: "Which?", options: []string{"x", "y"}, other: true}),
			`{"type":"object","properties":{"a":{"type":"string","description":"Which?","enum":["x","y"]},"a_other":{"type":"string","description":"or an answer in words of your own"}}}`},
		{"several", formAsk(question{id: "a", text: "Which?", options: []string{"x", "y"}, several: true}),
			`{"type":"object","properties":{"a":{"type":"array","description":"Which?","items":{"type":"string","enum":["x","y"]}}},"required":["a"]}`},
		{"yes or no", formAsk(question{id: "a", text: "Sure?", options: []string{"true", "false"}}),
			`{"type":"object","properties":{"a":{"type":"boolean","description":"Sure?"}},"required":["a"]}`},
		{"in their order", formAsk(question{id: "z", text: "1", optional: true}, question{id: "b", text: "2", optional: true}),
			`{"type":"object","properties":{"z":{"type":"string","description":"1"},"b":{"type":"string","description":"2"}}}`},
		{"nothing to fill in", formAsk(), `{"type":"object","properties":{}}`},
	} {
		if got := string(questionForm(tt.q, formRules{required: true, checkbox: true, noHints: true})); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestACPReadForm(t *testing.T) {
	choice := question{id: "a", text: "Which?", options: []string{"x", "y"}}
	other, several := choice, choice
	other.other, several.several = true, true
	sure := question{id: "s", text: "Sure?", options: []string{"true", "false"}}
	maybe := question{id: "m", text: "Note?", optional: true}
	for _, tt := range []struct {
		name   string
		q      *approval
		result string
		want   string // the answers; "" for a no
	}{
		{"choice", formAsk(choice), `{"action":"accept","content":{"a":"y"}}`, "map[a:[y]]"},
		{"not offered", formAsk(choice), `{"action":"accept","content":{"a":"z"}}`, ""},
		{"own words", formAsk(other), `{"action":"accept","content":{"a_other":"neither"}}`, "map[a:[neither]]"},
		{"own words in the choice", formAsk(other), `{"action":"accept","content":{"a":"neither"}}`, "map[a:[neither]]"},
		{"neither", formAsk(other), `{"action":"accept","content":{"a_other":"  "}}`, ""},
		{"several", formAsk(several), `{"action":"accept","content":{"a":["x","y"]}}`, "map[a:[x y]]"},
		{"several as one line", formAsk(several), `{"action":"accept","content":{"a":"x, y"}}`, "map[a:[x y]]"},
		{"several, one not offered", formAsk(several), `{"action":"accept","content":{"a":["x","q"]}}`, ""},
		{"two where one may be chosen", formAsk(choice), `{"action":"accept","content":{"a":["x","y"]}}`, ""},
		{"checkbox", formAsk(sure), `{"action":"accept","content":{"s":false}}`, "map[s:[false]]"},
		{"a number", formAsk(question{id: "n", text: "How many?"}), `{"action":"accept","content":{"n":12}}`, "map[n:[12]]"},
		{"an object", formAsk(question{id: "n", text: "How many?"}), `{"action":"accept","content":{"n":{}}}`, ""},
		{"missing", formAsk(choice, maybe), `{"action":"accept","content":{"m":"so"}}`, ""},
		{"optional left out", formAsk(maybe), `{"action":"accept","content":{}}`, "map[]"},
		{"nothing to fill in", formAsk(), `{"action":"accept"}`, "map[]"},
		{"declined", formAsk(), `{"action":"decline"}`, ""},
		{"closed", formAsk(), `{"action":"cancel"}`, ""},
		{"an unknown word", formAsk(), `{"action":"Accept"}`, ""},
		{"the dialect of MCP's old servers", formAsk(), `{"decision":"approved"}`, ""},
		{"nothing", formAsk(), `null`, ""},
	} {
		v := readForm(json.RawMessage(tt.result), tt.q)
		got := ""
		if v.d == approve {
			got = fmt.Sprint(v.answers)
		}
		if got != tt.want || v.stop || v.d == deny && v.words == "" {
			t.Errorf("%s: came to %+v, want %q", tt.name, v, tt.want)
		}
	}
}

func TestACPQuestionMessage(t *testing.T) {
	q := formAsk(question{id: "a", text: "Which?"}, question{id: "b", text: "Why?"})
	if got := questionMessage(q); got != "Which?\nWhy?" {
		t.Errorf("message %q", got)
	}
	q.subagent, q.reason, q.action = &subagentRef{name: "digger"}, "files asks", "Choose a file"
	if got := questionMessage(q); got != "Subagent digger asks:\nfiles asks\nChoose a file" {
		t.Errorf("message %q", got)
	}
	for page, want := range map[string]string{"https://a.b/c": "https://a.b/c", "file:///etc/passwd": "", "javascript:x": "", "up": "", "": ""} {
		if got := pageAsked(&approval{page: page}); got != want {
			t.Errorf("page of %q is %q, want %q", page, got, want)
		}
	}
}
