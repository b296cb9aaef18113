package main

// acp_ask_test.go owns the asking of an ACP client, spoken over its wire: what it
// is asked, and that nothing but a chosen yes is one.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// asks puts an approval as the session does.
func (r *acpFrontRig) asks(q approval) bool {
	return r.f.ask(agentRef{AgentID: r.agent, Thread: "t1", Identity: "codex"}, 0, q)
}

func commandAsk(id string) approval {
	return approval{id: id, kind: askCommand, thread: "t1", turn: "turn1", item: "item-" + id,
		action: "rm -r build", command: "rm -r build", cwd: "/work", forSession: true}
}

// callStatus is the status that the updates gave a tool call last, "" where
// they never speak of it.
func callStatus(call string, updates ...json.RawMessage) (status string) {
	for _, rec := range updates {
		u := rawField(rec, "params", "update")
		if stringField(u, "toolCallId") == call && stringField(u, "status") != "" {
			status = stringField(u, "status")
		}
	}
	return status
}

// permission asks, and returns the client's request and the tool call that it is
// about, which must be told as pending before.
func (r *acpFrontRig) permission(q approval) (request json.RawMessage, call string) {
	r.t.Helper()
	if !r.asks(q) {
		r.t.Fatalf("%s: not asked", q.id)
	}
	request, before := r.method("session/request_permission")
	call = stringField(request, "params", "toolCall", "toolCallId")
	if status := callStatus(call, before...); status != callPending ||
		stringField(request, "params", "sessionId") != r.session {
		r.t.Errorf("asked %s of a call that was told as %q: %s", request, status, before)
	}
	return request, call
}

// TestACPPermissionAnswers: what is offered, and what each answer comes to. A
// rejection that goes on never stops the turn, one that stops it is no decision of
// ours unless nothing could be stopped. Whatever isn't a chosen yes is a no, and the
// turn goes on.
func TestACPPermissionAnswers(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	once := approval{id: "a0", kind: askMCPTool, thread: "t1", turn: "turn1", server: "files", tool: "read",
		action: `files.read {}`, arguments: json.RawMessage(`{}`)}
	plain, ruled, sub := commandAsk("a1"), commandAsk("a2"), commandAsk("a3")
	ruled.rule = []string{"rm", "-r"}
	sub.thread, sub.turn, sub.subagent = "t2", "turn7", &subagentRef{thread: "t2", name: "digger"}
	type row struct {
		q      approval
		answer string
		d      decision
		stops  string // the turn that is interrupted
	}
	rows := []row{
		{once, selected("allow_once"), approve, ""},
		{plain, selected("allow_always"), approveForSession, ""},
		{ruled, selected("allow_rule"), approveAlways, ""},
		{plain, selected("reject_once"), deny, ""},
		{plain, selected("reject_always"), deny, "turn1"},
		{plain, `"result":{"outcome":{"outcome":"cancelled"}}`, deny, "turn1"},
		// A subagent asks though nothing of the session's runs: there is nothing to
		// stop, whatever runs, and the ask is denied by itself.
		{sub, selected("reject_always"), deny, "whatever runs"},
	}
	said := len(rows)
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
		rows = append(rows, row{plain, nonsense, deny, ""})
	}
	for i, tt := range rows {
		tt.q.id, tt.q.item = fmt.Sprint("a", i), fmt.Sprint("item", i)
		request, call := r.permission(tt.q)
		options := ""
		eachElement(rawField(request, "params", "options"), func(o json.RawMessage) {
			options += stringField(o, "optionId") + "=" + stringField(o, "kind") + " "
		})
		offered := "allow_once=allow_once "
		if tt.q.forSession {
			offered += "allow_always=allow_always "
		}
		if tt.q.rule != nil {
			offered += "allow_rule=allow_always "
		}
		want(t, options, offered+"reject_once=reject_once reject_always=reject_always ")
		misses := tt.stops == "whatever runs"
		r.misses.Store(misses)
		r.reply(request, tt.answer)
		status := callFailed
		if tt.d != deny {
			status = callRunning
		}
		update := r.next()
		if callStatus(call, update) != status {
			t.Errorf("%s: the tool call should be %s: %s", tt.answer, status, update)
		}
		if i >= said {
			mustContain(t, string(update), "counts as no")
		}
		if tt.stops != "" {
			got := receive(t, r.interrupts)
			want(t, got.agent+" "+got.turn, r.agent+" "+strings.TrimPrefix(tt.stops, "whatever runs"))
		}
		if tt.stops == "" || misses {
			got := receive(t, r.decides)
			if got.d != tt.d || got.ask != tt.q.id || (got.by.who == byUser) != (i < said) {
				t.Errorf("%s: decided %+v, want %v", tt.answer, got, tt.d)
			}
		}
		for _, second := range []string{"reject_once", "allow_once", "reject_always"} { // the first answer counts
			r.reply(request, selected(second))
		}
		if tt.d != deny && tt.q.kind == askMCPTool {
			r.next() // nobody else tells the end of such a call
		}
		r.nothing() // the interrupt itself denies what is pending
	}
}

// TestACPAskGone: an ask that is withdrawn takes the client's dialog with it,
// and what the client says then is heard by nobody.
func TestACPAskGone(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	request, call := r.permission(commandAsk("a1"))
	a := agentRef{AgentID: r.agent}
	r.f.askGone(a, "a1", "nobody answered within 1s")
	gone, _ := r.method("$/cancel_request")
	want(t, string(rawField(gone, "params", "requestId")), string(rawField(request, "id")))
	update := r.next()
	if callStatus(call, update) != callFailed || !strings.Contains(string(update), "nobody answered") {
		t.Errorf("the tool call: %s", update)
	}
	r.reply(request, selected("allow_once"))
	r.f.askGone(a, "a1", "again")
	r.f.askGone(a, "never", "was")
	r.nothing()
}

// TestACPCantAsk: where nobody can be asked the hub is told at once, and decides.
func TestACPCantAsk(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	unknown := commandAsk("a1")
	unknown.kind = askUnknown
	if r.asks(unknown) {
		t.Error("an unknown kind was asked")
	}
	if r.asks(approval{id: "a2", kind: askQuestion, questions: []question{{id: "q", text: "Why?"}}}) {
		t.Error("a question was put to a client without elicitation")
	}
	if r.f.ask(agentRef{AgentID: "codex:none"}, 0, commandAsk("a3")) {
		t.Error("a session that isn't open was asked about")
	}
	r.nothing()

	r.permission(commandAsk("a4"))
	_ = r.in.Close()
	for r.asks(commandAsk("a5")) { // until the front has seen the end
		r.f.takeAsk("a5")
	}
	none(t, "decided for a client that is gone", r.decides)
}

// TestACPElicitation: a question is a form where the client has them; a page to open
// goes by the url mode, to others by a form that only says yes or no; a secret never
// comes into a form, and the user reads why.
func TestACPElicitation(t *testing.T) {
	const url = "https://example.com/login?x=1"
	form := []question{{id: "q1", header: "Colour", text: "Which one?", options: []string{"red", "blue"}}}
	page := approval{reason: "Log in", action: "open " + url, page: url}
	for _, tt := range []struct {
		caps, want, answer string
		q                  approval
		d                  decision
	}{
		{`{"form":{}}`, `{"mode":"form","message":"Which one?","toolCallId":"$any"}`,
			`{"action":"accept","content":{"q1":"blue"}}`,
			approval{action: "Which one?", questions: form}, approve},
		{`{"form":{},"url":{}}`, `{"mode":"url","url":"` + url + `","elicitationId":"a1","requestedSchema":"$absent"}`,
			`{"action":"accept"}`, page, approve},
		{`{"form":{}}`, `{"mode":"form","message":"$re:https://example.com/login"}`, `{"action":"decline"}`, page,
			deny},
		{`{"form":{}}`, "", "", approval{action: "The token?",
			questions: []question{{text: "The token?", secret: true}}}, deny},
	} {
		r := newOpenRig(t, `{"elicitation":`+tt.caps+`}`, nil)
		tt.q.id, tt.q.kind, tt.q.thread, tt.q.turn, tt.q.item = "a1", askQuestion, "t1", "turn1", "i1"
		if !r.asks(tt.q) {
			t.Error("not asked")
		}
		if tt.want == "" {
			got := receive(t, r.decides)
			told := fmt.Sprintf("%s", r.told())
			if got.d != deny || !strings.Contains(got.by.said, "secret") || !strings.Contains(told, "secret") ||
				strings.Contains(told, "elicitation/create") {
				t.Errorf("decided %+v and said %s", got, told)
			}
			continue
		}
		request, before := r.method("elicitation/create")
		p := rawField(request, "params")
		hasFields(t, p, tt.want)
		if callStatus(stringField(p, "toolCallId"), before...) == "" || stringField(p, "sessionId") != r.session {
			t.Errorf("asked %s behind %s", p, before)
		}
		r.reply(request, `"result":`+tt.answer)
		got := receive(t, r.decides)
		if got.d != tt.d || (len(got.answers) > 0) != strings.Contains(tt.answer, "blue") {
			t.Errorf("decided %+v", got)
		}
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

// TestACPForms: what each kind of question asks for and what stands above, the page
// that is to be opened, and that a yes has every answer that the form requires, and
// none that it doesn't offer.
func TestACPForms(t *testing.T) {
	var q *approval
	playCases(t, "forms", func(line string) []string {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "##":
			return nil
		case "answer":
			v := readForm(json.RawMessage(rest), q)
			if v.d == deny && v.words != "" && !v.stop {
				return []string{"no: " + v.words}
			}
			return []string{fmt.Sprint(v.d, " ", v.answers)}
		}
		q = newAsk(&openAsk{method: word, params: json.RawMessage(rest)}, nil)
		if strings.Contains(rest, "sub-1") {
			q.subagent = &subagentRef{name: "digger"}
		}
		form := questionForm(q, formRules{required: true, checkbox: true, noHints: true})
		return []string{fmt.Sprintf("%q page %q", questionMessage(q), pageAsked(q)), string(form)}
	})
	want(t, questionMessage(&approval{}), "The agent asks")
}
