package main

// acp_tool_test.go: a tool call's way through its approval, whatever Codex has
// told of it by then.

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func (r *acpRig) ask(q *approval) string {
	q.thread, q.turn = cmp.Or(q.thread, acpThread), cmp.Or(q.turn, "t1")
	r.x.event(r.ref(), &event{kind: evAsk, thread: q.thread, turn: q.turn, item: q.item, ask: q})
	call := r.x.announce(r.ref(), q)
	if why := schemaSays(r.schema, "ToolCallUpdate", call); why != "" {
		r.t.Errorf("%s is not valid: %s", call, why)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id := stringField(call, "toolCallId"); r.calls[id] == "" {
		r.t.Errorf("permission for %s, which wasn't announced", id)
	} else if status := stringField(call, "status"); status != "" && status != r.calls[id] {
		r.t.Errorf("permission takes %s from %s to %s", id, r.calls[id], status)
	}
	return strings.ReplaceAll(string(call), acpThread, "T")
}

const (
	runsCommand = `{"type":"commandExecution","id":"c","command":"/bin/bash -lc 'rm a'","cwd":"/w","status":"inProgress"}`
	ranCommand  = `{"type":"commandExecution","id":"c","command":"/bin/bash -lc 'rm a'","cwd":"/w","status":"completed","exitCode":0}`
	noCommand   = `{"type":"commandExecution","id":"c","command":"/bin/bash -lc 'rm a'","cwd":"/w","status":"declined"}`
)

func askRM() *approval {
	return &approval{id: "1", kind: askCommand, item: "c", command: "/bin/bash -lc 'rm a'", action: "/bin/bash -lc 'rm a'\nnetwork access to https://x", more: []string{"network access to https://x"}, cwd: "/w", reason: "it must go"}
}

// TestACPApproval is 0.169's way: the item, then the question. The call stays
// pending as long as it is open, however long that is.
func TestACPApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("started", runsCommand)
		q := askRM()
		want(t, r.ask(q), `{"toolCallId":"codex:T:t1:c","title":"rm a","kind":"execute","status":"pending","content":[{"type":"content","content":{"type":"text","text":"it must go\n\nnetwork access to https://x"}}],"rawInput":{"command":"/bin/bash -lc 'rm a'","cwd":"/w"}}`)
		time.Sleep(time.Hour)
		r.want(`{"sessionUpdate":"tool_call","toolCallId":"codex:T:t1:c","title":"rm a","name":"shell","kind":"execute","status":"pending","rawInput":{"command":"/bin/bash -lc 'rm a'","cwd":"/w"}}`)
		r.x.decide(q, approve, "")
		r.x.decide(q, deny, "too late") // a client that answers twice
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"in_progress"}`)
		r.item("completed", ranCommand)
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"completed","rawOutput":{"exitCode":0,"status":"completed","output":""}}`)
	})
}

// TestACPNobodyAsks: a call that runs without a question is shown to run.
func TestACPNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("started", runsCommand)
		r.news()
		time.Sleep(askGrace - 1)
		synctest.Wait()
		r.want("")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"in_progress"}`)
		// Codex asks in the middle too, when the sandbox refused: status stays.
		q := askRM()
		if call := r.ask(q); strings.Contains(call, "status") {
			t.Errorf("asked with %s", call)
		}
		r.x.decide(q, deny, "by the user")
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","content":[{"type":"content","content":{"type":"text","text":"Declined: by the user"}}]}`)
		r.item("completed", noCommand)
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"failed","rawOutput":{"status":"declined","output":""}}`)
		r.ends("completed")
	})
}

// TestACPOldApproval is 0.104's way: the question first, the item only with a
// yes; of a no there is an end that has no beginning.
func TestACPOldApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		q := askRM()
		r.ask(q)
		r.x.decide(q, approve, "")
		r.item("started", runsCommand)
		r.item("completed", ranCommand)
		want(t, r.states("codex:T:t1:c"), callDone)
		r.news()

		q = askRM()
		q.id, q.item = "2", "d"
		r.ask(q)
		r.x.decide(q, deny, "nobody answered in time")
		r.item("completed", strings.Replace(noCommand, `"c"`, `"d"`, 1))
		r.want(`{"sessionUpdate":"tool_call","toolCallId":"codex:T:t1:d","title":"rm a","name":"shell","kind":"execute","status":"pending","rawInput":{"command":"/bin/bash -lc 'rm a'","cwd":"/w"}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:d","status":"failed","content":[{"type":"content","content":{"type":"text","text":"Declined: nobody answered in time"}}]}`)
	})
}

// TestACPPatchApproval: the diffs stand in the request and stay when it is
// declined.
func TestACPPatchApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		diff := `{"type":"diff","path":"/w/new","oldText":null,"newText":"hi\n"}`
		patch := `{"type":"fileChange","id":"c","changes":[` + change("/w/new", "add", "hi\n") + `],"status":"inProgress"}`
		r.item("started", patch)
		q := &approval{id: "1", kind: askFileChange, item: "c", files: []fileChange{{path: "/w/new", kind: "add", diff: "hi\n"}}, action: "add /w/new\nwrite access under /w", more: []string{"write access under /w"}}
		if call := r.ask(q); !strings.Contains(call, `"content":[`+diff+`,{"type":"content","content":{"type":"text","text":"write access under /w"}}],"locations":[{"path":"/w/new"}]`) {
			t.Errorf("asked with %s", call)
		}
		r.news()
		r.x.decide(q, deny, "")
		r.item("completed", strings.Replace(patch, "inProgress", "declined", 1))
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","content":[`+diff+`,{"type":"content","content":{"type":"text","text":"Declined: by the user"}}]}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"failed","rawOutput":{"status":"declined"}}`)
	})
}

// TestACPToolApproval: an MCP call's question names no item; two calls of one
// tool are told apart by their order.
func TestACPToolApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		call := func(phase, id, status string) {
			r.item(phase, `{"type":"mcpToolCall","id":"`+id+`","server":"s","tool":"t","status":"`+status+`","arguments":{"n":"`+id+`"},"result":null,"error":null}`)
		}
		call("started", "a", "inProgress")
		call("started", "b", "inProgress")
		q := func(id string) *approval {
			return &approval{id: id, kind: askMCPTool, server: "s", tool: "t", arguments: []byte(`{"n":"` + id + `"}`), reason: "Allow?", action: "s.t"}
		}
		qa, qb := q("a"), q("b")
		want(t, r.ask(qa), `{"toolCallId":"codex:T:t1:a","title":"s.t","kind":"other","status":"pending","content":[{"type":"content","content":{"type":"text","text":"Allow?\n\n`+"```"+`\n{\"n\":\"a\"}\n`+"```"+`"}}],"rawInput":{"arguments":{"n":"a"},"server":"s","tool":"t"}}`)
		if got := r.ask(qb); !strings.Contains(got, "codex:T:t1:b") {
			t.Errorf("asked with %s", got)
		}
		r.x.decide(qb, deny, "")
		r.x.decide(qa, approveForSession, "")
		call("completed", "b", "failed")
		call("completed", "a", "completed")
		want(t, r.states("codex:T:t1:a", "codex:T:t1:b"), "completed failed")
		r.news()

		other := q("x") // of a version that tells of the call only later, or never
		other.tool = "u"
		r.ask(other)
		r.x.decide(other, approve, "")
		r.want(`{"sessionUpdate":"tool_call","toolCallId":"codex:T:t1:ask-x","title":"s.u","name":"mcp__s__u","kind":"other","status":"pending","rawInput":{"arguments":{"n":"x"},"server":"s","tool":"u"}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:ask-x","status":"in_progress"}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:ask-x","status":"completed"}`)
	})
}

// TestACPOtherApprovals: permissions and questions have no item; their call is
// the decision itself.
func TestACPOtherApprovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		p := &approval{id: "1", kind: askPermissions, item: "c", action: "write under /x\nuse the network", reason: "need"}
		want(t, r.ask(p), `{"toolCallId":"codex:T:t1:c","title":"More permissions: write under /x, use the network","kind":"other","status":"pending","content":[{"type":"content","content":{"type":"text","text":"need\n\nwrite under /x\nuse the network"}}]}`)
		r.x.decide(p, approve, "")
		q := &approval{id: "2", kind: askQuestion, action: "Which?", subagent: &subagentRef{thread: "sub-1", name: "Ada", role: "explorer"}, thread: "sub-1", turn: "s1"}
		if call := r.ask(q); !strings.Contains(call, `"title":"Ada: Question: Which?"`) || !strings.Contains(call, "Asked by subagent Ada (explorer)") {
			t.Errorf("asked with %s", call)
		}
		r.x.decide(q, deny, "it asks for a secret")
		network := &approval{id: "3", kind: askCommand, item: "n", action: "network access to https://x", more: []string{"network access to https://x"}}
		r.ask(network)
		r.x.decide(network, approve, "")
		want(t, r.states("codex:T:t1:c", "codex:sub-1:s1:ask-2", "codex:T:t1:n"), "completed failed completed")
		if open := r.open(); len(open) > 0 {
			t.Errorf("open: %s", open)
		}
	})
}

// TestACPTurnEndsWhileAsked: what is asked when the turn ends is closed with
// it, and a late answer finds nothing to tell.
func TestACPTurnEndsWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("started", runsCommand)
		q := askRM()
		r.ask(q)
		old := askRM()
		old.id, old.item = "2", "never told of"
		r.ask(old)
		r.x.decide(old, approve, "")
		r.news()
		r.ends("interrupted")
		r.x.decide(q, approve, "")
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"failed","content":[{"type":"content","content":{"type":"text","text":"interrupted"}}]}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:never told of","status":"failed","content":[{"type":"content","content":{"type":"text","text":"interrupted"}}]}`)
	})
}

// TestACPWithdrawn: an ask that Codex takes back leaves its call as it was.
func TestACPWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("started", runsCommand)
		q := askRM()
		r.ask(q)
		r.x.event(r.ref(), &event{kind: evAskGone, ask: q})
		r.x.decide(q, deny, "Codex withdrew it")
		r.item("completed", ranCommand)
		want(t, r.states("codex:T:t1:c"), callDone)
	})
}

// TestACPKeepsLittle: of a turn of many calls only ids stay, of a turn that is
// over not even those.
func TestACPKeepsLittle(t *testing.T) {
	x := newACPEncoder(acpEncoding{Cwd: "/w", Send: func([]byte) bool { return true }})
	r := &acpRig{t: t, x: x, calls: map[string]string{}}
	r.begin()
	for i := range 3 * maxCallIDs {
		for _, thread := range []string{acpThread, "sub-1"} {
			id := strings.Repeat("x", i%7) + string(rune('a'+i%26)) + time.Duration(i).String()
			r.note("item/completed", `{"threadId":"`+thread+`","turnId":"t1","item":{"type":"webSearch","id":"`+id+`","query":"q"}}`)
		}
	}
	if len(x.seen.times) > maxCallIDs || len(x.seen.order) > maxCallIDs || len(x.calls.open)+len(x.messages.texts) > 0 {
		t.Errorf("keeps %d and %d ids, %d calls", len(x.seen.times), len(x.seen.order), len(x.calls.open))
	}
	r.ends("completed")
	if len(x.seen.times) > maxSubagents {
		t.Errorf("keeps %d ids after the turn", len(x.seen.times))
	}
	for range 1000 {
		r.note("turn/started", `{"turn":{"id":"`+time.Now().String()+`"}}`)
		x.endTurn("")
	}
	if len(x.turns.over) > maxTurnsKnown {
		t.Errorf("keeps %d turns", len(x.turns.over))
	}
}
