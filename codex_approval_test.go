package main

// codex_approval_test.go holds approvals in their neutral form: which decision a child
// can keep, the diff that is shown, who of a thread tree asks, the permanent rule,
// and the forms of questions.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What a decision comes to: a rule needs allow_rules, a proposal and a person.
func TestSettledDecisions(t *testing.T) {
	rule := []string{"touch"}
	for _, tt := range []struct {
		q    approval
		d    decision
		by   deciderKind
		want decision
	}{
		{approval{rule: rule}, approveAlways, byUser, approveAlways},
		{approval{rule: rule}, approveAlways, byCaller, approve},
		{approval{}, approveAlways, byUser, approve},
		{approval{forSession: true}, approveForSession, byCaller, approveForSession},
		{approval{}, approveForSession, byUser, approve},
		{approval{rule: rule, forSession: true}, deny, byUser, deny},
		{approval{rule: rule}, approve, byUser, approve},
	} {
		if got := tt.q.limit(tt.d, decider{who: tt.by}); got != tt.want {
			t.Errorf("%v by %d for %+v: %v, want %v", tt.d, tt.by, tt.q, got, tt.want)
		}
	}
}

func TestApprovalDiff(t *testing.T) {
	q := approval{files: []fileChange{{path: "/w/a", kind: "add", diff: "x\ny"}, {path: "/w/b", kind: "delete", diff: "z\n"},
		{path: "/w/c", kind: "update", diff: "@@ -1 +1 @@\n-1\n+2", move: "/w/d"}, {path: "/w/e", kind: "add"}}}
	want(t, q.diff(), `--- /dev/null
+++ /w/a
@@ -0,0 +1,2 @@
+x
+y
\ No newline at end of file
--- /w/b
+++ /dev/null
@@ -1,1 +0,0 @@
-z
--- /w/c
+++ /w/d
@@ -1 +1 @@
-1
+2
--- /dev/null
+++ /w/e
`)
	want(t, changesText(q.files), "add /w/a\ndelete /w/b\nupdate /w/c moved to /w/d\nadd /w/e")
	q.files = []fileChange{{path: "/w/long", kind: "add", diff: strings.Repeat("0123456789abcdef\n", 10000)}}
	got := q.diff()
	if len(got) > maxShownDiff+100 || !strings.Contains(got, "\n[diff cut: ") || !strings.HasSuffix(got, " bytes shown]\n") {
		t.Errorf("%d bytes, ends %q", len(got), got[len(got)-100:])
	}
}

// A subagent is named by what Codex tells of it, and so is who started it.
func TestAppAsksOfSubagents(t *testing.T) {
	for _, tt := range []struct{ version, tells, want string }{
		{"0.169.0", `"parentThreadId":"t1","agentNickname":"Atlas","agentRole":"explorer"`, "Atlas (explorer)"},
		{"0.153.0", `"source":{"subAgent":{"thread_spawn":{"depth":1,"parent_thread_id":"t1","agent_nickname":"Atlas"}}}`, "Atlas"},
		{"0.104.0", `"source":{"subAgent":{"thread_spawn":{"depth":1,"parent_thread_id":"t1"}}}`, "s1"},
	} {
		withApp(t, tt.version, tt.version, func(t *testing.T, p *appPeer) {
			h := p.running()
			ask := func(id int, thread string) *approval {
				p.say(`{"id":%d,"method":"item/commandExecution/requestApproval","params":{"threadId":%q,"turnId":"v","command":"x"}}`, id, thread)
				return h.last().ask
			}
			p.say(`{"method":"thread/started","params":{"thread":{"id":"s1",%s}}}`, tt.tells)
			p.say(`{"method":"thread/started","params":{"thread":{"id":"s2","parentThreadId":"s1"}}}`)
			want(t, ask(1, "t1").asker(), "")
			q := ask(2, "s1")
			want(t, q.asker(), tt.want)
			want(t, ask(3, "s2").asker(), "s2, started by subagent "+tt.want)
			want(t, askMessage(agentRef{AgentID: "codex:a", Identity: "arch"}, q), "Run `x`\nasked by subagent "+tt.want+" of agent arch (codex:a)")
		})
	}
}

// The proposed rule goes back as it came, where the version would take it.
func TestAppPermanentRule(t *testing.T) {
	for _, tt := range []struct{ params, rule, reply string }{
		{`"proposedExecpolicyAmendment":["touch","x"]`, "touch x", `{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["touch","x"]}}}`},
		{`"proposedExecpolicyAmendment":["touch"],"availableDecisions":["accept",{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["touch"]}}]`, "touch", `{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["touch"]}}}`},
		{`"proposedExecpolicyAmendment":["touch"],"availableDecisions":["accept","cancel"]`, "", `{"decision":"accept"}`},
		{`"proposedExecpolicyAmendment":null`, "", `{"decision":"accept"}`},
		{`"proposedExecpolicyAmendment":"touch"`, "", `{"decision":"accept"}`},
	} {
		q := &openAsk{method: mCommand, params: json.RawMessage(`{"command":"touch x",` + tt.params + `}`)}
		a := newAsk(q, nil)
		want(t, ruleText(a), tt.rule)
		sameJSON(t, toJSON(answerTo(q, approveAlways, nil, backendInfo{})), tt.reply)
		sameJSON(t, toJSON(answerTo(q, approve, nil, backendInfo{})), `{"decision":"accept"}`)
	}
}

// Forms ask for several choices as the client can show them, and for words
// beside the options in a field of their own.
func TestQuestionForms(t *testing.T) {
	q := approval{kind: askQuestion, questions: []question{
		{id: "a", text: "Which?", options: []string{"x", "y"}, several: true},
		{id: "b", text: "What?", options: []string{"z"}, other: true, secret: true}}}
	sameJSON(t, askSchema(&q), `{"type":"object","properties":{
		"a":{"type":"array","description":"Which? (several may be chosen, separated by commas)","items":{"type":"string","enum":["x","y"]}},
		"b":{"type":"string","description":"What? (a secret: the agent gets to read it)","enum":["z"]},
		"b_other":{"type":"string","description":"or an answer in words of your own"}}}`)
	q.questions[0].flat = true
	sameJSON(t, rawField(askSchema(&q), "properties", "a"), `{"type":"string","description":"Which? (several may be chosen, separated by commas): x, y"}`)
	for content, gives := range map[string]string{
		`{"a":["x","y"]}`:           `{"a":["x","y"]}`,
		`{"a":"x, y"}`:              `{"a":["x","y"]}`,
		`{"a":"x, neither"}`:        `{"a":["x, neither"]}`,
		`{"b_other":"mine"}`:        `{"b":["mine"]}`,
		`{"b":"z","b_other":"too"}`: `{"b":["z","too"]}`,
	} {
		d, answers := readAnswer(json.RawMessage(`{"action":"accept","content":`+content+`}`), &q)
		if d != approve || string(toJSON(answers)) != gives {
			t.Errorf("%s: %v %s", content, d, toJSON(answers))
		}
	}
	var form approval
	elicitationAsk(&form, json.RawMessage(`{"mode":"form","serverName":"s","requestedSchema":{"properties":{
		"m":{"type":"array","items":{"anyOf":[{"const":"1","title":"one"},{"const":"2"}]}},"o":{"type":"string","oneOf":[{"const":"p"}]}}}}`))
	want(t, fmt.Sprint(form.questions[0].options, form.questions[0].several, form.questions[1].options), "[1 2] true [p]")
}

// With a rule proposed the field says how long; what it doesn't know denies.
func TestAnswersWithARule(t *testing.T) {
	q := approval{kind: askCommand, rule: []string{"touch"}, forSession: true}
	for answer, want := range map[string]decision{
		`{"action":"accept"}`:                                                approve,
		`{"action":"accept","content":{"allow":"once"}}`:                     approve,
		`{"action":"accept","content":{"allow":"session"}}`:                  approveForSession,
		`{"action":"accept","content":{"allow":"always"}}`:                   approveAlways,
		`{"action":"accept","content":{"allow":"sometimes"}}`:                deny,
		`{"action":"decline","content":{"allow":"always"}}`:                  deny,
		`{"decision":{"approved_execpolicy_amendment":{"x":["rm"]}}}`:        approveAlways,
		`{"decision":{"approved_execpolicy_amendment":{},"denied":{"a":1}}}`: deny,
	} {
		if d, _ := readAnswer(json.RawMessage(answer), &q); d != want {
			t.Errorf("%s: %v, want %v", answer, d, want)
		}
	}
}
