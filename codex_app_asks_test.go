package main

// codex_app_asks_test.go holds what app-server asks: answers in each version's
// words, what is asked twice or for nobody, and that each call of a dynamic tool is
// answered exactly once, whatever becomes of its session and the child, since
// Codex waits for ever. The peer that plays app-server is codex_app_rig_test.go's.

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Every kind of request and every decision, in the exact words that go out.
func TestAppAskAndAnswer(t *testing.T) {
	const ids = `"threadId":"t1","turnId":"u1","itemId":"i1"`
	form := `"serverName":"atm","mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"},"ok":{"type":"boolean","title":"Sure"}},"required":["name"]}`
	for _, tc := range []struct {
		name, method, params, ask string
		d                         decision
		answers                   map[string][]string
		reply                     string
	}{
		{name: "command", method: mCommand, params: `"command":"touch x","cwd":"/w","reason":"why","availableDecisions":["accept","cancel"],"proposedExecpolicyAmendment":["touch"]`,
			ask: `{ask-0-1 command "touch x" "why"}`, d: approve, reply: `{"decision":"accept"}`},
		{name: "command for the session, never the proposed rule", method: mCommand, params: `"command":"touch x","proposedExecpolicyAmendment":["touch"]`,
			ask: `{ask-0-1 command "touch x" ""}`, d: approveForSession, reply: `{"decision":"acceptForSession"}`},
		{name: "command denied goes on", method: mCommand, params: `"command":"touch x"`,
			ask: `{ask-0-1 command "touch x" ""}`, d: deny, reply: `{"decision":"decline"}`},
		{name: "network", method: mCommand, params: `"networkApprovalContext":{"host":"example.org","protocol":"https"}`,
			ask: `{ask-0-1 command "network access to https://example.org" ""}`, d: deny, reply: `{"decision":"decline"}`},
		{name: "patch", method: mFileChange, params: `"reason":null,"grantRoot":null`,
			ask: `{ask-0-1 file_change "add /w/a\nupdate /w/b" "" file=add /w/a "+1" file=update /w/b "-2"}`, d: approve, reply: `{"decision":"accept"}`},
		{name: "patch denied", method: mFileChange, params: `"grantRoot":"/w"`,
			ask: `{ask-0-1 file_change "add /w/a\nupdate /w/b\nwrite access under /w" "" file=add /w/a "+1" file=update /w/b "-2"}`, d: deny, reply: `{"decision":"decline"}`},
		{name: "permissions", method: mPermissions, params: `"permissions":{"network":{"enabled":true},"fileSystem":null}`,
			ask: `{ask-0-1 permissions "network access" ""}`, d: approve, reply: `{"permissions":{"network":{"enabled":true}},"scope":"turn"}`},
		{name: "permissions for the session", method: mPermissions, params: `"permissions":{"network":null,"fileSystem":{"write":["/x"]}}`,
			ask: `{ask-0-1 permissions "file system write [\"/x\"]" ""}`, d: approveForSession, reply: `{"permissions":{"fileSystem":{"write":["/x"]}},"scope":"session"}`},
		{name: "permissions denied", method: mPermissions, params: `"permissions":{"network":{"enabled":true}}`,
			ask: `{ask-0-1 permissions "network access" ""}`, d: deny, reply: `{"permissions":{},"scope":"turn"}`},
		{name: "question", method: mUserInput, params: `"questions":[{"id":"q1","header":"H","question":"A or B?","options":[{"label":"A"},{"label":"B"}]}]`,
			ask: `{ask-0-1 question "A or B?" "" question=q1 "A or B?" ["A" "B"]}`, d: approve, answers: map[string][]string{"q1": {"B"}}, reply: `{"answers":{"q1":{"answers":["B"]}}}`},
		{name: "question denied", method: mUserInput, params: `"questions":[]`,
			ask: `{ask-0-1 question "item/tool/requestUserInput" ""}`, d: deny, answers: map[string][]string{"q1": {"B"}}, reply: `{"answers":{}}`},
		{name: "MCP tool for the session", method: mElicitation, params: `"serverName":"atm","mode":"form","_meta":{"codex_approval_kind":"mcp_tool_call","persist":["session","always"],"tool_name":"send","tool_params":{"to":"bob"}},"message":"Allow?","requestedSchema":{"type":"object","properties":{}}`,
			ask: `{ask-0-1 mcp_tool "atm.send {\"to\":\"bob\"}" "Allow?"}`, d: approveForSession, reply: `{"action":"accept","content":{},"_meta":{"persist":"session"}}`},
		{name: "MCP tool denied", method: mElicitation, params: `"serverName":"atm","mode":"form","_meta":{"codex_approval_kind":"mcp_tool_call","tool_name":"send"},"message":"Allow?"`,
			ask: `{ask-0-1 mcp_tool "atm.send" "Allow?"}`, d: deny, reply: `{"action":"decline"}`},
		{name: "MCP tool of 0.153", method: mElicitation, params: `"serverName":"atm","mode":"form","_meta":{"codex_approval_kind":"mcp_tool_call","tool_params":{"to":"bob"}},"message":"Allow the atm MCP server to run tool \"send\"?"`,
			ask: `{ask-0-1 mcp_tool "atm.send {\"to\":\"bob\"}" "Allow the atm MCP server to run tool \"send\"?"}`, d: deny, reply: `{"action":"decline"}`},
		{name: "form", method: mElicitation, params: form,
			ask: `{ask-0-1 question "Who?" "atm asks" question=name "name" [] question=n "n (optional)" [] question=ok "ok (optional)" ["true" "false"]}`,
			d:   approve, answers: map[string][]string{"name": {"bob"}, "n": {"7"}, "ok": {"True"}}, reply: `{"action":"accept","content":{"name":"bob","n":7,"ok":true}}`},
		{name: "a form without what it requires is no yes", method: mElicitation, params: form,
			ask: `{ask-0-1 question "Who?" "atm asks" question=name "name" [] question=n "n (optional)" [] question=ok "ok (optional)" ["true" "false"]}`,
			d:   approve, answers: map[string][]string{"n": {"seven"}}, reply: `{"action":"decline"}`},
		{name: "url", method: mElicitation, params: `"serverName":"atm","mode":"url","message":"Log in","url":"https://x.example"`,
			ask: `{ask-0-1 question "open https://x.example" "Log in"}`, d: approve, reply: `{"action":"accept","content":{}}`},
	} {
		withApp(t, tc.name, "0.169.0", func(t *testing.T, p *appPeer) {
			h := p.running()
			p.say(`{"method":"item/started","params":{"threadId":"t1","turnId":"u1","item":{"type":"fileChange","id":"i1","status":"inProgress","changes":[{"path":"/w/a","kind":{"type":"add"},"diff":"+1"},{"path":"/w/b","kind":"update","diff":"-2"}]}}}`)
			h.take()
			p.say(`{"id":0,"method":%q,"params":{%s,%s}}`, tc.method, ids, tc.params)
			want(t, h.take(), fmt.Sprintf("ask thread=t1 turn=u1 item=i1 ask=%s method=%s", tc.ask, tc.method))
			c := command{kind: cmdAnswer, ask: "ask-0-1", decision: tc.d, answers: tc.answers}
			p.a.do(0, "t1", c)
			m := p.next()
			want(t, string(m.id), "0")
			sameJSON(t, m.result, tc.reply)
			// only the first answer counts
			p.a.do(0, "t1", c)
			p.silent()
			p.say(`{"method":"serverRequest/resolved","params":{"threadId":"t1","requestId":0}}`)
			want(t, h.take(), "raw thread=t1 method=serverRequest/resolved")
		})
	}
}

// What nobody is asked about is answered at once.
func TestAppRefusedAtOnce(t *testing.T) {
	for _, tc := range []struct{ name, version, method, params, reply, told string }{
		{"old patch", "0.104.0", mOldPatch, `{"conversationId":"t1","callId":"c","fileChanges":{}}`, `{"decision":"denied"}`, ""},
		{"old exec", "0.104.0", mOldExec, `{"conversationId":"t1"}`, `{"decision":"denied"}`, ""},
		{"old exec, new words", "0.169.0", mOldExec, `{"conversationId":"t1"}`, `{"decision":{"denied":{"rejection":"declined"}}}`, ""},
		{"unknown approval", "0.169.0", "item/teleport/requestApproval", `{"threadId":"t1","turnId":"u1"}`, "",
			`notice thread=t1 turn=u1 text="Codex asked item/teleport/requestApproval, which is not known here; it was refused" method=item/teleport/requestApproval`},
		{"unknown and nobody's", "0.169.0", "account/chatgptAuthTokens/refresh", `{}`, "", ""},
		{"without params", "0.169.0", mCommand, `null`, `{"decision":"decline"}`, ""},
		{"unknown elicitation", "0.169.0", mElicitation, `{"threadId":"t1","serverName":"s","mode":"openai/userVerification","title":"T"}`, `{"action":"decline"}`,
			`notice thread=t1 text="Codex asked mcpServer/elicitation/request (s openai/userVerification), a kind that is not known here; it was declined" method=mcpServer/elicitation/request`},
	} {
		withApp(t, tc.name, tc.version, func(t *testing.T, p *appPeer) {
			h := p.open(threadSpec{})
			p.say(`{"id":"r","method":%q,"params":%s}`, tc.method, tc.params)
			m := p.next()
			want(t, string(m.id), `"r"`)
			if tc.reply == "" {
				if m.err == nil || m.err.Code != codeNoMethod {
					t.Errorf("%s %v", m.result, m.err)
				}
			} else {
				sameJSON(t, m.result, tc.reply)
			}
			want(t, h.take(), tc.told)
		})
	}
}

// An ask of a turn that is over is void: 0.104 says so in no other way.
func TestAppAskGone(t *testing.T) {
	withApp(t, "", "0.104.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		p.say(`{"id":4,"method":"item/commandExecution/requestApproval","params":{"threadId":"t1","turnId":"u1","command":"x"}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"interrupted"}}}`)
		want(t, h.take(), `ask thread=t1 turn=u1 ask={ask-0-1 command "x" ""} method=item/commandExecution/requestApproval
askGone thread=t1 turn=u1 ask={ask-0-1  "" ""}
ended thread=t1 turn=u1 status=interrupted method=turn/completed`)
		p.a.do(0, "t1", command{kind: cmdAnswer, ask: "ask-0-1", decision: approve})
		p.silent()
	})
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		p.say(`{"id":"s","method":"item/commandExecution/requestApproval","params":{"threadId":"t1","turnId":"u1","command":"x"}}`)
		p.say(`{"method":"serverRequest/resolved","params":{"threadId":"t1","requestId":"s"}}`)
		want(t, h.take(), `ask thread=t1 turn=u1 ask={ask-0-1 command "x" ""} method=item/commandExecution/requestApproval
askGone thread=t1 turn=u1 ask={ask-0-1  "" ""} method=serverRequest/resolved`)
	})
	// so it is where both came before anybody owned the thread
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := &heard{}
		p.a.open(1, threadSpec{Thread: "t1"}, h.to)
		m := p.expect("thread/resume")
		p.say(`{"id":"s","method":"item/commandExecution/requestApproval","params":{"threadId":"t1","turnId":"u1","command":"x"}}`)
		p.say(`{"method":"serverRequest/resolved","params":{"threadId":"t1","requestId":"s"}}`)
		p.say(`{"id":%s,"result":{"thread":{"id":"t1"}}}`, m.id)
		want(t, h.take(), `opened op=1 thread=t1
ask thread=t1 turn=u1 ask={ask-0-1 command "x" ""} method=item/commandExecution/requestApproval
askGone thread=t1 turn=u1 ask={ask-0-1  "" ""} method=serverRequest/resolved`)
	})
}

const spawned = `{"method":"item/completed","params":{"threadId":%q,"turnId":"u1","item":{"type":"collabAgentToolCall","id":"c","tool":"spawnAgent","status":"completed","receiverThreadIds":[%q]}}}`

// A sink hears one event at a time and in order, whoever puts, and nothing after the last.
func TestSink(t *testing.T) {
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

// The same approval under two request ids is put once, and both are answered; a
// request that comes twice is answered once. A command asks for several things
// under its own id, which are several approvals, and so is what reads otherwise.
func TestAppAskedTwice(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		ask := func(id, more string) {
			p.say(`{"id":%s,"method":"item/commandExecution/requestApproval","params":{"threadId":"t1","turnId":"u1","itemId":"i1"%s}}`, id, more)
		}
		ask("1", `,"startedAtMs":1,"command":"a"`)
		ask("2", `,"startedAtMs":2,"command":"a"`)
		ask("2", `,"startedAtMs":2,"command":"a"`)
		ask("3", `,"command":"a","approvalId":"sub"`)
		ask("4", `,"command":"b","approvalId":"sub"`)
		ask("5", `,"command":"a","reason":"again, outside the sandbox"`)
		want(t, h.take(), `ask thread=t1 turn=u1 item=i1 ask={ask-0-1 command "a" ""} method=item/commandExecution/requestApproval
ask thread=t1 turn=u1 item=i1 ask={ask-0-2 command "a" ""} method=item/commandExecution/requestApproval
ask thread=t1 turn=u1 item=i1 ask={ask-0-3 command "b" ""} method=item/commandExecution/requestApproval
ask thread=t1 turn=u1 item=i1 ask={ask-0-4 command "a" "again, outside the sandbox"} method=item/commandExecution/requestApproval`)
		p.a.do(0, "t1", command{kind: cmdAnswer, ask: "ask-0-1", decision: approve})
		for _, id := range []string{"1", "2"} {
			if r := p.reply(); r != id+` {"decision":"accept"}` {
				t.Errorf("answered %s", r)
			}
		}

		// Answered, it may be asked again: so a command is tried outside the sandbox.
		// Withdrawn under one id it still waits under the other.
		ask("6", `,"command":"a"`)
		ask("7", `,"command":"a"`)
		p.say(`{"method":"serverRequest/resolved","params":{"threadId":"t1","requestId":6}}`)
		want(t, h.take(), `ask thread=t1 turn=u1 item=i1 ask={ask-0-5 command "a" ""} method=item/commandExecution/requestApproval
raw thread=t1 method=serverRequest/resolved`)
		p.say(`{"method":"serverRequest/resolved","params":{"threadId":"t1","requestId":7}}`)
		want(t, h.take(), `askGone thread=t1 turn=u1 ask={ask-0-5  "" ""} method=serverRequest/resolved`)
		p.a.do(0, "t1", command{kind: cmdAnswer, ask: "ask-0-5", decision: approve})

		// Under the request's own id again, but with other words: those were shown to
		// nobody, so nobody's yes is passed on.
		ask("8", `,"command":"a"`)
		ask("8", `,"command":"other"`)
		h.take()
		p.a.do(0, "t1", command{kind: cmdAnswer, ask: "ask-0-6", decision: approve})
		if r := p.reply(); r != `8 {"decision":"decline"}` {
			t.Errorf("answered %s", r)
		}
		p.silent()
	})
}

const atmSendCall = `{"id":%s,"method":"item/tool/call","params":{"threadId":%q,"turnId":"u1","callId":"c1","namespace":null,"tool":"atm_send","arguments":{"to":"bob"}}}`

// toolText is the text of the driver's answer to a tool call, with its request
// id and whether it is a success.
func toolText(t *testing.T, m *message) string {
	t.Helper()
	text := ""
	eachElement(rawField(m.result, "contentItems"), func(part json.RawMessage) {
		if stringField(part, "type") != "inputText" {
			t.Errorf("part %s", part)
		}
		text += stringField(part, "text")
	})
	return fmt.Sprintf("%s %s %s", m.id, rawField(m.result, "success"), text)
}

// A call is answered once, by its first result; 0.104 says it with fewer words.
func TestAppToolResult(t *testing.T) {
	for _, tc := range []struct{ version, params string }{
		{"0.104.0", `{"threadId":"t1","turnId":"u1","callId":"c1","tool":"atm_send","arguments":{"to":"bob"}}`},
		{"0.153.0", `{"threadId":"t1","turnId":"u1","callId":"c1","namespace":null,"tool":"atm_send","arguments":{"to":"bob"}}`},
		{"0.169.0", `{"threadId":"t1","turnId":"u1","callId":"exec-7","namespace":null,"tool":"atm_send","arguments":{"to":"bob"},"later":[1]}`},
	} {
		withApp(t, tc.version, tc.version, func(t *testing.T, p *appPeer) {
			h := p.running()
			p.say(`{"id":0,"method":"item/tool/call","params":%s}`, tc.params)
			want(t, h.take(), fmt.Sprintf(`tool thread=t1 turn=u1 item=%s tool={tool-0-1 atm_send {"to":"bob"}} method=item/tool/call`, stringField([]byte(tc.params), "callId")))
			p.silent()
			result := command{kind: cmdToolResult, ask: "tool-0-1", text: "sent", ok: true}
			p.a.do(0, "t1", result)
			want(t, toolText(t, p.next()), "0 true sent")
			p.a.do(0, "t1", result)
			p.silent()
			time.Sleep(2 * time.Minute)
			p.silent()
		})
	}
}

// Every other way out of a call has one answer too, and never an error of the
// protocol, of which the model would read nothing.
func TestAppToolAnsweredWithoutAResult(t *testing.T) {
	play := func(name string, f func(t *testing.T, p *appPeer, h *heard)) {
		withApp(t, name, "0.169.0", func(t *testing.T, p *appPeer) {
			h := p.running()
			f(t, p, h)
		})
	}
	late := command{kind: cmdToolResult, ask: "tool-0-1", text: "sent", ok: true}
	play("too late", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, `"r"`, "t1")
		time.Sleep(time.Minute + time.Second)
		want(t, toolText(t, p.next()), `"r" false atm_send had no result within 1m0s; it may or may not have been done, so look before you call it again`)
		p.a.do(0, "t1", late)
		p.silent()
	})
	play("the session let its thread go", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "4", "t1")
		p.a.do(0, "t1", command{kind: cmdUnload})
		want(t, toolText(t, p.next()), "4 false the session of this agent has ended, so atm_send can't be answered")
		p.expect("thread/unsubscribe")
		p.a.do(0, "t1", late)
		p.silent()
	})
	play("a call behind that", func(t *testing.T, p *appPeer, h *heard) {
		p.a.do(0, "t1", command{kind: cmdUnload})
		p.expect("thread/unsubscribe")
		p.say(atmSendCall, "5", "t1")
		time.Sleep(2 * time.Second)
		want(t, toolText(t, p.next()), `5 false the tool "atm_send" is not available in this session`)
		p.silent()
	})
	play("nobody's thread", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "6", "x9")
		p.silent() // it may yet turn out to be a subagent's
		time.Sleep(2 * time.Second)
		want(t, toolText(t, p.next()), `6 false the tool "atm_send" is not available in this session`)
	})
	play("without a thread", func(t *testing.T, p *appPeer, h *heard) {
		p.say(`{"id":7,"method":"item/tool/call","params":null}`)
		time.Sleep(2 * time.Second)
		want(t, toolText(t, p.next()), `7 false the tool "" is not available in this session`)
	})
	play("the turn was interrupted", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "8", "t1")
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"interrupted"}}}`)
		p.a.do(0, "t1", late)
		want(t, toolText(t, p.next()), "8 true sent") // Codex takes no notice, and what was done was done
		p.silent()
	})
	play("a subagent's is the session's", func(t *testing.T, p *appPeer, h *heard) {
		p.say(spawned, "t1", "s1")
		h.take()
		p.say(atmSendCall, "9", "s1")
		want(t, h.take(), `tool thread=s1 turn=u1 item=c1 tool={tool-0-1 atm_send {"to":"bob"}} method=item/tool/call`)
		p.a.do(0, "t1", late)
		want(t, toolText(t, p.next()), "9 true sent")
	})
	play("the child died", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "10", "t1")
		p.out.Close()
		synctest.Wait()
		p.a.do(0, "t1", late) // nobody is there, and nothing breaks
		if n := len(p.a.requests.tools.open); n != 0 {
			t.Errorf("%d calls are still open", n)
		}
		time.Sleep(2 * time.Minute)
	})
}

// A session that unloads its thread while a call is on its way to it: whoever
// comes first, the call has one answer.
func TestAppToolMeetsUnload(t *testing.T) {
	withApp(t, "", "0.104.0", func(t *testing.T, p *appPeer) {
		h := &heard{}
		p.a.open(1, threadSpec{}, func(e event) {
			if e.kind == evTool {
				p.a.do(0, "t1", command{kind: cmdUnload})
			}
			h.to(e)
		})
		p.say(`{"id":%s,"result":{"thread":{"id":"t1"},"model":"m"}}`, p.next().id)
		p.say(atmSendCall, "1", "t1")
		want(t, toolText(t, p.next()), "1 false the session of this agent has ended, so atm_send can't be answered")
		p.silent()
	})
}
