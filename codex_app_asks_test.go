package main

// codex_app_asks_test.go holds what app-server asks, and which session hears of a
// thread: answers in each version's words, subagents, threads that nobody owns
// yet. The peer that plays app-server is codex_app_rig_test.go's.

import (
	"fmt"
	"slices"
	"strings"
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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, "0.169.0")
				h := p.open(threadSpec{})
				p.begin(h)
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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, tc.version)
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
		})
	}
}

// An ask of a turn that is over is void: 0.104 says so in no other way.
func TestAppAskGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		h := p.open(threadSpec{})
		p.begin(h)
		p.say(`{"id":4,"method":"item/commandExecution/requestApproval","params":{"threadId":"t1","turnId":"u1","command":"x"}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"interrupted"}}}`)
		want(t, h.take(), `ask thread=t1 turn=u1 ask={ask-0-1 command "x" ""} method=item/commandExecution/requestApproval
askGone thread=t1 turn=u1 ask={ask-0-1  "" ""}
ended thread=t1 turn=u1 status=interrupted method=turn/completed`)
		p.a.do(0, "t1", command{kind: cmdAnswer, ask: "ask-0-1", decision: approve})
		p.silent()
	})
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
		p.say(`{"id":"s","method":"item/commandExecution/requestApproval","params":{"threadId":"t1","turnId":"u1","command":"x"}}`)
		p.say(`{"method":"serverRequest/resolved","params":{"threadId":"t1","requestId":"s"}}`)
		want(t, h.take(), `ask thread=t1 turn=u1 ask={ask-0-1 command "x" ""} method=item/commandExecution/requestApproval
askGone thread=t1 turn=u1 ask={ask-0-1  "" ""} method=serverRequest/resolved`)
	})
}

const spawned = `{"method":"item/completed","params":{"threadId":%q,"turnId":"u1","item":{"type":"collabAgentToolCall","id":"c","tool":"spawnAgent","status":"completed","receiverThreadIds":[%q]}}}`

// A subagent's thread speaks before its parent names it.
func TestAppTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
		p.say(`{"method":"turn/started","params":{"threadId":"s1","turn":{"id":"v1"}}}`)
		p.say(`{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"s1","turnId":"v1","command":"x"}}`)
		p.say(`{"method":"thread/started","params":{"thread":{"id":"s2","parentThreadId":"s1"}}}`) // a subagent's subagent
		want(t, h.take(), "")
		time.Sleep(900 * time.Millisecond)
		p.say(spawned, "t1", "s1")
		want(t, h.take(), `item thread=t1 turn=u1 item=c phase=completed body={collabAgentToolCall  "" "" completed arguments={"receiverThreadIds":["s1"]}} method=item/completed
subthread thread=t1 text="s1"
raw thread=s1 turn=v1 method=turn/started
ask thread=s1 turn=v1 ask={ask-0-1 command "x" ""} method=item/commandExecution/requestApproval
subthread thread=t1 text="s2"
raw thread=s2 method=thread/started`)
		p.say(`{"method":"thread/started","params":{"thread":{"id":"s3","source":{"subAgent":{"thread_spawn":{"parent_thread_id":"t1","depth":1}}}}}}`)
		want(t, h.take(), "subthread thread=t1 text=\"s3\"\nraw thread=s3 method=thread/started")
		// one interrupt stops the tree
		p.a.do(0, "t1", command{kind: cmdInterrupt, turn: "u1"})
		var sent []string
		for range 6 {
			m := p.next()
			sent = append(sent, m.method+" "+string(m.params))
		}
		slices.Sort(sent)
		want(t, strings.Join(sent, "\n"), `thread/backgroundTerminals/clean {"threadId":"s1"}
thread/backgroundTerminals/clean {"threadId":"s2"}
thread/backgroundTerminals/clean {"threadId":"s3"}
thread/backgroundTerminals/clean {"threadId":"t1"}
turn/interrupt {"threadId":"s1","turnId":"v1"}
turn/interrupt {"threadId":"t1","turnId":"u1"}`)
		// its end is not the session's, and what it starts now is stopped too
		p.say(`{"method":"turn/completed","params":{"threadId":"s1","turn":{"id":"v1","status":"interrupted"}}}`)
		p.say(`{"method":"turn/started","params":{"threadId":"s2","turn":{"id":"w1"}}}`)
		sameJSON(t, p.expect("turn/interrupt").params, `{"threadId":"s2","turnId":"w1"}`)
		want(t, h.take(), `askGone thread=s1 turn=v1 ask={ask-0-1  "" ""}
raw thread=s1 turn=v1 method=turn/completed
raw thread=s2 turn=w1 method=turn/started`)
	})
}

// What nobody claims is dropped after a second, and its requests declined.
func TestAppStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
		begun := time.Now()
		p.say(`{"method":"item/agentMessage/delta","params":{"threadId":"s1","turnId":"v","itemId":"i","delta":"x"}}`)
		p.say(`{"id":5,"method":"item/fileChange/requestApproval","params":{"threadId":"s1","turnId":"v","itemId":"i"}}`)
		want(t, p.reply(), `5 {"decision":"decline"}`)
		if d := time.Since(begun); d != time.Second {
			t.Errorf("after %v", d)
		}
		p.say(spawned, "t1", "s1")
		want(t, h.take(), "item thread=t1 turn=u1 item=c phase=completed body={collabAgentToolCall  \"\" \"\" completed arguments={\"receiverThreadIds\":[\"s1\"]}} method=item/completed\nsubthread thread=t1 text=\"s1\"")
		// over the limit a request isn't held any more
		for i := range maxHeld {
			p.say(`{"method":"x","params":{"threadId":"z%d"}}`, i)
		}
		begun = time.Now()
		p.say(`{"id":6,"method":"item/fileChange/requestApproval","params":{"threadId":"zz"}}`)
		want(t, p.reply(), `6 {"decision":"decline"}`)
		if d := time.Since(begun); d != 0 {
			t.Errorf("after %v", d)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if l := &p.a.threads.unowned; len(l.held) != 0 || l.count != 0 || l.bytes != 0 {
			t.Errorf("%d unowned threads, %d events, %d bytes kept", len(l.held), l.count, l.bytes)
		}
	})
}

// thread/start's own first words come before its answer, however slow that is.
func TestAppEventsBeforeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := &heard{}
		p.a.open(1, threadSpec{}, h.to)
		m := p.expect("thread/start")
		p.say(`{"method":"mcpServer/startupStatus/updated","params":{"threadId":"t1","name":"atm","status":"starting"}}`)
		time.Sleep(20 * time.Second)
		p.say(`{"id":%s,"result":{"thread":{"id":"t1"},"model":"m"}}`, m.id)
		want(t, h.take(), "opened op=1 thread=t1 model=m\nserver thread=t1 item=atm status=starting method=mcpServer/startupStatus/updated")
	})
}

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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
		ask := func(id, more string) {
			p.say(`{"id":%s,"method":"item/commandExecution/requestApproval","params":{"threadId":"t1","turnId":"u1","itemId":"i1"%s}}`, id, more)
		}
		ask("1", `,"startedAtMs":1,"command":"a"`)
		ask("2", `,"startedAtMs":2,"command":"a"`)
		ask("2", `,"command":"other"`)
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
		p.silent()
	})
}
