package main

// codex_app_asks_test.go holds what app-server asks and what becomes of it: the neutral form,
// answers in each version's words, what is asked twice or for nobody, which decision a child
// can keep, and that each call of a dynamic tool is answered exactly once, whatever becomes
// of its session and the child, since Codex waits for ever.

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Every kind of request and every decision, in the exact words that go out, where no
// recording has it.
func TestAppAskAndAnswer(t *testing.T) {
	const tool = `"mode":"form","_meta":{"codex_approval_kind":"mcp_tool_call"`
	const form = `"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{
		"name":{"type":"string"},"n":{"type":"integer"},"ok":{"type":"boolean","title":"Sure"}},"required":["name"]}`
	const formAsk = `question action=Who? reason="atm asks" questions=[{name text=name} ` +
		`{n text="n (optional)" optional} {ok header=Sure text="ok (optional)" options=[true false] optional}]`
	const network = `permissions action="network access" forSession`
	const patch = `files=[{path=/w/a add diff=+1}]`
	type answers = map[string][]string
	for _, tc := range []struct {
		name, method, params string
		ask                  string
		d                    decision
		answers              answers
		reply                string
	}{
		{"never the proposed rule", mCommand, `"command":"touch x","proposedExecpolicyAmendment":["touch"]`,
			`command action="touch x" command="touch x" forSession rule=[touch]`,
			approveForSession, nil, `{"decision":"acceptForSession"}`},
		{"network", mCommand, `"networkApprovalContext":{"host":"example.org","protocol":"https"}`,
			`command action="network access to https://example.org" ` +
				`more=["network access to https://example.org"] forSession`,
			deny, nil, `{"decision":"decline"}`},
		{"patch", mFileChange, `"grantRoot":"/w"`,
			`file_change action="add /w/a\nwrite access under /w" ` + patch +
				` more=["write access under /w"] forSession`,
			deny, nil, `{"decision":"decline"}`},
		{"permissions", mPermissions, `"permissions":{"network":{"enabled":true},"fileSystem":null}`, network,
			approve, nil, `{"permissions":{"network":{"enabled":true}},"scope":"turn"}`},
		{"permissions for the session", mPermissions, `"permissions":{"network":null,"fileSystem":{"write":["/x"]}}`,
			`permissions action="file system write [\"/x\"]" forSession`,
			approveForSession, nil, `{"permissions":{"fileSystem":{"write":["/x"]}},"scope":"session"}`},
		{"permissions denied", mPermissions, `"permissions":{"network":{"enabled":true}}`, network,
			deny, nil, `{"permissions":{},"scope":"turn"}`},
		{"permissions of no known kind", mPermissions, `"permissions":{"moon":1}`,
			`permissions action="{\"moon\":1}" forSession`,
			deny, nil, `{"permissions":{},"scope":"turn"}`},
		{"question", mUserInput,
			`"questions":[{"id":"q1","header":"H","question":"A or B?","options":[{"label":"A"},{"label":"B"}]}]`,
			`question action="A or B?" questions=[{q1 header=H text="A or B?" options=[A B] about=["" ""]}] byAgent`,
			approve, answers{"q1": {"B"}}, `{"answers":{"q1":{"answers":["B"]}}}`},
		{"question denied", mUserInput, `"questions":[]`, `question action=item/tool/requestUserInput byAgent`,
			deny, answers{"q1": {"B"}}, `{"answers":{}}`},
		{"MCP tool for the session", mElicitation,
			tool + `,"persist":["session","always"],"tool_name":"send","tool_params":{"to":"bob"}},"message":"Allow?"`,
			`mcp_tool action="atm.send {\"to\":\"bob\"}" reason=Allow? server=atm tool=send ` +
				`arguments={"to":"bob"} forSession`,
			approveForSession, nil, `{"action":"accept","content":{},"_meta":{"persist":"session"}}`},
		{"MCP tool of 0.153", mElicitation, tool + `},"message":"Allow the atm MCP server to run tool \"send\"?"`,
			`mcp_tool action=atm.send reason="Allow the atm MCP server to run tool \"send\"?" server=atm tool=send`,
			deny, nil, `{"action":"decline"}`},
		{"form", mElicitation, form, formAsk,
			approve, answers{"name": {"bob"}, "n": {"7"}, "ok": {"True"}},
			`{"action":"accept","content":{"name":"bob","n":7,"ok":true}}`},
		{"a form without what it requires is no yes", mElicitation, form, formAsk,
			approve, answers{"n": {"seven"}}, `{"action":"decline"}`},
		{"a choice of several", mElicitation, `"mode":"form","message":"M","requestedSchema":{"properties":{
			"m":{"type":"array","items":{"anyOf":[{"const":"1","title":"one"},{"const":"2"}]}},
			"o":{"type":"string","oneOf":[{"const":"p"}]}},"required":["m","o"]}`,
			`question action=M reason="atm asks" questions=[{m text=m options=[1 2] several} {o text=o options=[p]}]`,
			approve, answers{"m": {"1", "2"}, "o": {"p"}}, `{"action":"accept","content":{"m":["1","2"],"o":"p"}}`},
		{"url", mElicitation, `"mode":"url","message":"Log in","url":"https://x.example"`,
			`question action="open https://x.example" page=https://x.example reason="Log in"`,
			approve, nil, `{"action":"accept","content":{}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := &openAsk{method: tc.method, params: json.RawMessage(`{"serverName":"atm",` + tc.params + `}`)}
			ask := newAsk(q, []fileChange{{path: "/w/a", kind: "add", diff: "+1"}})
			want(t, strings.Join(fieldWords(reflect.ValueOf(*ask)), " "), tc.ask)
			sameJSON(t, toJSON(answerTo(q, tc.d, tc.answers)), tc.reply)
		})
	}
}

// What nobody is asked about is answered at once.
func TestAppRefusedAtOnce(t *testing.T) {
	const teleport = "item/teleport/requestApproval"
	for _, tc := range []struct{ name, version, method, params, reply, told string }{
		{"unknown approval", "0.169.0", teleport, `{"threadId":"t1","turnId":"u1"}`, "",
			`notice t1/u1 text="Codex asked ` + teleport +
				`, which is not known here; it was refused" (` + teleport + ")"},
		{"unknown and nobody's", "0.169.0", "account/chatgptAuthTokens/refresh", `{}`, "", ""},
		{"without params", "0.169.0", mCommand, `null`, `{"decision":"decline"}`, ""},
		{"unknown elicitation", "0.169.0", mElicitation,
			`{"threadId":"t1","serverName":"s","mode":"openai/userVerification"}`,
			`{"action":"decline"}`, `notice t1 text="Codex asked ` + mElicitation +
				` (s openai/userVerification), a kind that is not known here; it was declined" (` + mElicitation + ")"},
		{"a command that nobody sees", "0.169.0", mCommand, `{"threadId":"t1","reason":"trust me"}`,
			`{"decision":"decline"}`, `notice t1 text="Codex asked ` + mCommand + ` (` + mCommand +
				` trust me), a kind that is not known here; it was declined" (` + mCommand + ")"},
	} {
		withApp(t, tc.name, tc.version, func(p *codexPeer) {
			h := p.open(threadSpec{})
			p.say(`{"id":"r","method":%q,"params":%s}`, tc.method, tc.params)
			switch m := p.next(); {
			case tc.reply != "":
				sameJSON(p.t, m.result, tc.reply)
			case m.err == nil || m.err.Code != codeNoMethod:
				p.t.Errorf("%s %v", m.result, m.err)
			}
			h.wants(tc.told)
		})
	}
}

// An ask of a turn that is over is void: 0.104 says so in no other way.
func TestAppAskGone(t *testing.T) {
	const asked = "ask t1/u1 ask={ask-0-1 command action=x command=x forSession} (" + mCommand + ")"
	withApp(t, "", "0.104.0", func(p *codexPeer) {
		h := p.running()
		p.request("4", mCommand, "t1", `,"command":"x"`)
		p.ended("t1", "u1", "interrupted")
		h.wants(asked, "askGone t1/u1 ask={ask-0-1}", "ended t1/u1 interrupted (turn/completed)")
		p.decide("ask-0-1", approve)
		p.silent()
	})
	// withdrawn, also where both came before anybody owned the thread
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.hear()
		p.b.open(1, threadSpec{Thread: "t1"}, h.to)
		m := p.expect("thread/resume")
		p.request(`"s"`, mCommand, "t1", `,"command":"x"`)
		p.tell("serverRequest/resolved", "t1", `,"requestId":"s"`)
		p.answer(m, `{"thread":{"id":"t1"}}`)
		h.wants("opened #1 t1 opened={}", asked, "askGone t1/u1 ask={ask-0-1} (serverRequest/resolved)")
	})
}

// The same approval under two request ids is put once, and both are answered; a
// request that comes twice is answered once. A command asks for several things
// under its own id, which are several approvals, and so is what reads otherwise.
func TestAppAskedTwice(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.running()
		ask := func(id, fields string) { p.request(id, mCommand, "t1", `,"itemId":"i1"`+fields) }
		line := func(id, command, more string) string {
			return fmt.Sprintf("ask t1/u1/i1 ask={%s command action=%s command=%[2]s%s forSession} (%s)",
				id, command, more, mCommand)
		}
		ask("1", `,"startedAtMs":1,"command":"a"`)
		ask("2", `,"startedAtMs":2,"command":"a"`)
		ask("2", `,"startedAtMs":2,"command":"a"`)
		ask("3", `,"command":"a","approvalId":"sub"`)
		ask("4", `,"command":"b","approvalId":"sub"`)
		ask("5", `,"command":"a","reason":"again"`)
		h.wants(line("ask-0-1", "a", ""), line("ask-0-2", "a", ""), line("ask-0-3", "b", ""),
			line("ask-0-4", "a", " reason=again"))
		p.decide("ask-0-1", approve)
		want(p.t, p.reply(), `1 {"decision":"accept"}`)
		want(p.t, p.reply(), `2 {"decision":"accept"}`)
		ask("1", `,"startedAtMs":1,"command":"a"`) // read after the answer, or sent again for want of it
		want(p.t, p.reply(), `1 {"decision":"accept"}`)

		// Answered, it may be asked again: so a command is tried outside the sandbox.
		// Withdrawn under one id it still waits under the other.
		ask("6", `,"command":"a"`)
		ask("7", `,"command":"a"`)
		p.tell("serverRequest/resolved", "t1", `,"requestId":6`)
		h.wants(line("ask-0-5", "a", ""), "raw t1 (serverRequest/resolved)")
		p.tell("serverRequest/resolved", "t1", `,"requestId":7`)
		h.wants("askGone t1/u1 ask={ask-0-5} (serverRequest/resolved)")
		p.decide("ask-0-5", approve)

		// Under the request's own id again, but with other words: those were shown to
		// nobody, so nobody's yes is passed on.
		ask("8", `,"command":"a"`)
		ask("8", `,"command":"other"`)
		p.decide("ask-0-6", approve)
		want(p.t, p.reply(), `8 {"decision":"decline"}`)
		p.silent()
	})
}

// A sink hears one event at a time and in order, whoever puts, and nothing after the last.
func TestSinkHearsInOrder(t *testing.T) {
	var s *sink
	var got []string
	s = &sink{to: func(e event) {
		got = append(got, e.text)
		if e.text == "a" { // somebody else puts while a is delivered
			s.put(event{text: "b"})
			s.putLast(event{text: "c"})
			s.put(event{text: "d"})
		}
	}}
	s.put(event{text: "a"})
	s.put(event{text: "e"})
	want(t, fmt.Sprint(got), "[a b c]")
}

// callTool calls a dynamic tool under a request id.
func (p *codexPeer) callTool(id, thread string) {
	p.request(id, mToolCall, thread, `,"callId":"c1","namespace":null,"tool":"atm_send","arguments":{"to":"bob"}`)
}

// toolReply reads the driver's answer to a tool call: id, success, text.
func (p *codexPeer) toolReply(want string) {
	p.t.Helper()
	m := p.next()
	part := rawField(m.result, "contentItems")
	eachElement(part, func(only json.RawMessage) { part = only })
	if got := fmt.Sprintf("%s %s %s", m.id, rawField(m.result, "success"), stringField(part, "text")); got != want {
		p.t.Errorf("answered %s, want %s", got, want)
	}
}

// A call is answered once, by its first result, and by one answer on every other way out
// too: never by an error of the protocol, of which the model would read nothing.
func TestAppToolCallHasOneAnswer(t *testing.T) {
	const call = `tool %s/u1/c1 tool={ask-0-1 name=atm_send args={"to":"bob"}} (item/tool/call)`
	const ended = ` false the session of this agent has ended, so atm_send can't be answered`
	const none = ` false the tool "atm_send" is not available in this session`
	result := func(p *codexPeer) {
		p.b.do(0, "t1", command{kind: cmdToolResult, ask: "ask-0-1", text: "sent", ok: true})
	}
	for _, tc := range []struct {
		name string
		play func(p *codexPeer, h *heard)
	}{
		{"by the session", func(p *codexPeer, h *heard) {
			p.say(`{"id":0,"method":"item/tool/call","params":{"threadId":"t1","turnId":"u1","callId":"c1",
				"tool":"atm_send","arguments":{"to":"bob"},"later":[1]}}`) // 0.104 has no namespace
			h.wants(fmt.Sprintf(call, "t1"))
			p.silent()
			result(p)
			p.toolReply("0 true sent")
			time.Sleep(2 * time.Minute)
		}},
		{"too late", func(p *codexPeer, _ *heard) {
			p.callTool(`"r"`, "t1")
			time.Sleep(time.Minute + time.Second)
			p.toolReply(`"r" false atm_send had no result within 1m0s; ` +
				`it may or may not have been done, so look before you call it again`)
		}},
		{"the session let its thread go", func(p *codexPeer, _ *heard) {
			p.callTool("4", "t1")
			p.unload()
			p.toolReply("4" + ended)
			p.expect("thread/unsubscribe")
		}},
		{"a call behind that", func(p *codexPeer, _ *heard) {
			p.unload()
			p.expect("thread/unsubscribe")
			p.callTool("5", "t1")
			time.Sleep(2 * time.Second)
			p.toolReply("5" + none)
		}},
		{"nobody's thread", func(p *codexPeer, _ *heard) {
			p.callTool("6", "x9")
			p.silent() // it may yet turn out to be a subagent's
			time.Sleep(2 * time.Second)
			p.toolReply("6" + none)
		}},
		{"without a thread", func(p *codexPeer, _ *heard) {
			p.say(`{"id":7,"method":"item/tool/call","params":null}`)
			time.Sleep(2 * time.Second)
			p.toolReply(`7 false the tool "" is not available in this session`)
		}},
		{"the turn was interrupted", func(p *codexPeer, _ *heard) {
			p.callTool("8", "t1")
			p.ended("t1", "u1", "interrupted")
			result(p)
			p.toolReply("8 true sent") // Codex takes no notice, and what was done was done
		}},
		{"a subagent's is the session's", func(p *codexPeer, h *heard) {
			p.spawned("t1", "s1")
			p.callTool("9", "s1")
			h.wants(spawnedLine, fmt.Sprintf(call, "s1"))
			result(p)
			p.toolReply("9 true sent")
		}},
		{"asked twice", func(p *codexPeer, h *heard) {
			p.callTool("2", "t1")
			p.callTool("2", "t1")
			h.wants(fmt.Sprintf(call, "t1"))
			result(p)
			p.toolReply("2 true sent")
		}},
	} {
		withApp(t, tc.name, "0.169.0", func(p *codexPeer) {
			tc.play(p, p.running())
			result(p) // a second answer is dropped
			p.silent()
		})
	}
	withApp(t, "the child died", "0.169.0", func(p *codexPeer) {
		p.running()
		p.callTool("10", "t1")
		p.out.Close()
		synctest.Wait()
		result(p) // nobody is there, and nothing breaks
		if n := len(p.a.asks.open); n != 0 {
			p.t.Errorf("%d calls are still open", n)
		}
		time.Sleep(2 * time.Minute)
	})
	// A session that unloads its thread while a call is on its way to it: whoever comes
	// first, the call has one answer, and so has an approval.
	for method, answer := range map[string]string{mToolCall: "1" + ended, mCommand: ""} {
		withApp(t, "unloaded at "+method, "0.104.0", func(p *codexPeer) {
			p.b.open(1, threadSpec{}, func(e event) {
				if e.kind == evTool || e.kind == evAsk {
					p.unload()
				}
			})
			p.answer(p.next(), `{"thread":{"id":"t1"},"model":"m"}`)
			if answer == "" {
				p.request("1", method, "t1", `,"command":"x"`)
				want(p.t, p.reply(), `1 {"decision":"decline"}`)
			} else {
				p.callTool("1", "t1")
				p.toolReply(answer)
			}
			p.silent()
		})
	}
}

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
	q := approval{files: []fileChange{
		{path: "/w/a", kind: "add", diff: "x\ny"}, {path: "/w/b", kind: "delete", diff: "z\n"},
		{path: "/w/c", kind: "update", diff: "@@ -1 +1 @@\n-1\n+2", move: "/w/d"}, {path: "/w/e", kind: "add"}}}
	want(t, q.diff(), "--- /dev/null\n+++ /w/a\n@@ -0,0 +1,2 @@\n+x\n+y\n\\ No newline at end of file\n"+
		"--- /w/b\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-z\n"+
		"--- /w/c\n+++ /w/d\n@@ -1 +1 @@\n-1\n+2\n--- /dev/null\n+++ /w/e\n")
	want(t, changesText(q.files), "add /w/a\ndelete /w/b\nupdate /w/c moved to /w/d\nadd /w/e")
	q.files = []fileChange{{path: "/w/long", kind: "add", diff: strings.Repeat("0123456789abcdef\n", 10000)}}
	got := q.diff()
	if len(got) > maxShownDiff+100 || !strings.Contains(got, "\n[diff cut: ") ||
		!strings.HasSuffix(got, " bytes shown]\n") {
		t.Errorf("%d bytes, ends %q", len(got), got[len(got)-100:])
	}
}

// A subagent is named by what Codex tells of it, and so is who started it.
func TestAppAsksOfSubagents(t *testing.T) {
	for _, tt := range []struct{ version, tells, want string }{
		{"0.169.0", `"parentThreadId":"t1","agentNickname":"Atlas","agentRole":"explorer"`, "Atlas (explorer)"},
		{"0.153.0", `"source":{"subAgent":{"thread_spawn":{"parent_thread_id":"t1","agent_nickname":"Atlas"}}}`,
			"Atlas"},
		{"0.104.0", `"source":{"subAgent":{"thread_spawn":{"parent_thread_id":"t1"}}}`, "s1"},
	} {
		withApp(t, tt.version, tt.version, func(p *codexPeer) {
			h := p.running()
			ask := func(id, thread string) *approval {
				p.request(id, mCommand, thread, `,"command":"x"`)
				return h.last().ask
			}
			p.say(`{"method":"thread/started","params":{"thread":{"id":"s1",%s}}}`, tt.tells)
			p.say(`{"method":"thread/started","params":{"thread":{"id":"s2","parentThreadId":"s1"}}}`)
			want(p.t, ask("1", "t1").asker(), "")
			q := ask("2", "s1")
			want(p.t, q.asker(), tt.want)
			want(p.t, ask("3", "s2").asker(), "s2, started by subagent "+tt.want)
			want(p.t, askMessage(agentRef{AgentID: "codex:a", Identity: "arch"}, q),
				"Run `x`\nasked by subagent "+tt.want+" of agent arch (codex:a)")
		})
	}
}

// The proposed rule goes back as it came, where the version would take it.
func TestAppPermanentRule(t *testing.T) {
	const takes = `{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["touch","x"]}}}`
	for _, tt := range []struct{ params, rule, reply string }{
		{`["touch","x"]`, "touch x", takes},
		{`["touch","x"],"availableDecisions":["accept",{"acceptWithExecpolicyAmendment":{}}]`, "touch x", takes},
		{`["touch"],"availableDecisions":["accept","cancel"]`, "", `{"decision":"accept"}`},
		{`null`, "", `{"decision":"accept"}`},
		{`"touch"`, "", `{"decision":"accept"}`},
	} {
		q := &openAsk{method: mCommand,
			params: json.RawMessage(`{"command":"touch x","proposedExecpolicyAmendment":` + tt.params + `}`)}
		want(t, ruleText(newAsk(q, nil)), tt.rule)
		sameJSON(t, toJSON(answerTo(q, approveAlways, nil)), tt.reply)
		sameJSON(t, toJSON(answerTo(q, approve, nil)), `{"decision":"accept"}`)
	}
}

// A client that knows no field for several choices is asked for a line.
func TestFlatQuestionForm(t *testing.T) {
	q := approval{kind: askQuestion, questions: []question{
		{id: "a", text: "Which?", options: []string{"x", "y"}, several: true, secret: true, flat: true}}}
	want(t, stringField(askSchema(&q), "properties", "a", "description"),
		"Which? (several may be chosen, separated by commas; a secret: the agent gets to read it): x, y")
	want(t, stringField(askSchema(&q), "properties", "a", "type"), "string")
}
