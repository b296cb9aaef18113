package main

// mcp_tasks_test.go holds the tasks extension: who gets a task, its states and
// their words, decisions by tasks/update, and errors in the protocol's terms. The
// hub behind it is made of functions.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	tasksMetaJSON = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	tasksAskMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
)

// taskRig is a client that declares tasks, and one turn at the hub.
type taskRig struct {
	*mcpRig
	turn       keptTurn
	approves   chan approveQuery
	interrupts chan string
	taskID     string
}

// newTaskRig starts a turn of which nothing but its acceptance is told yet.
func newTaskRig(t *testing.T) *taskRig {
	at := time.Date(2026, 11, 21, 14, 0, 0, 5e6, time.FixedZone("", 3600))
	r := &taskRig{approves: make(chan approveQuery, 10), interrupts: make(chan string, 10),
		turn: keptTurn{AgentID: "codex:ab12", Identity: "codex", TurnID: "bg-7f3k2m", Status: "running", Task: true, Created: at, Updated: at.Add(time.Second)}}
	r.mcpRig = newRig(t, func(o *mcpOptions) {
		o.turn = func(ref, turn string) (keptTurn, *rpcError) {
			if ref != "codex:ab12" || turn != "bg-7f3k2m" {
				return keptTurn{}, proxyError(codeSessionNotFound, "no such turn")
			}
			return r.turn, nil
		}
		o.approve = func(q approveQuery, done func(decision, *rpcError)) {
			r.approves <- q
			go done(q.Decision, nil)
		}
		o.interrupt = func(ref, turn string, done func(interruptResult, *rpcError)) {
			r.interrupts <- ref + " " + turn
			go done(interruptResult{Interrupted: true}, nil)
		}
	})
	r.send(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":` +
		strings.Replace(`{`+tasksMetaJSON+`,"name":"codex","arguments":{"prompt":"x"}}`, `"_meta":{`, `"_meta":{"progressToken":1,`, 1) + `}`)
	s := <-r.submits
	if !s.req.background || !s.req.task || !s.req.run || s.req.approvals != "caller" {
		t.Fatalf("submitted %+v", s.req)
	}
	r.f.event(parkedAgent, s.w, &event{kind: evStarted, turn: "u1"}) // a task has no progress
	r.f.done(s.w, turnResult{AgentID: "codex:ab12", TurnID: "bg-7f3k2m", Identity: "codex", Team: "default", Status: "busy", TurnStatus: "running"})
	res := resultOf(t, r.next())
	r.taskID = stringField(res, "taskId")
	if stringField(res, "resultType") != "task" || stringField(res, "status") != "working" || r.taskID != "codex:ab12/bg-7f3k2m" ||
		string(rawField(res, "ttlMs")) != "null" || rawKind(rawField(res, "pollIntervalMs")) != '0' || rawField(res, "content") != nil ||
		stringField(res, "_meta", metaPrefix+"serverInfo", "name") != serverName {
		t.Fatalf("%s", res)
	}
	for _, name := range []string{"createdAt", "lastUpdatedAt"} {
		if _, err := time.Parse(time.RFC3339, stringField(res, name)); err != nil {
			t.Error(err)
		}
	}
	return r
}

func (r *taskRig) task(method, meta, more string) json.RawMessage {
	r.t.Helper()
	return r.ask(method, `{`+meta+`,"taskId":"`+r.taskID+`"`+more+`}`)
}

// get polls, and checks what every state has.
func (r *taskRig) get(meta, status string) json.RawMessage {
	r.t.Helper()
	res := resultOf(r.t, r.task("tasks/get", meta, ""))
	if stringField(res, "resultType") != "complete" || stringField(res, "status") != status || stringField(res, "taskId") != r.taskID ||
		stringField(res, "createdAt") != "2026-11-21T13:00:00.005Z" || stringField(res, "lastUpdatedAt") != "2026-11-21T13:00:01.005Z" {
		r.t.Fatalf("want status %s, got %s", status, res)
	}
	for _, c := range []struct{ name, of string }{{"inputRequests", "input_required"}, {"result", "completed"}, {"error", "failed"}} {
		if (rawField(res, c.name) != nil) != (c.of == status) {
			r.t.Errorf("%s in a task that is %s: %s", c.name, status, res)
		}
	}
	return res
}

func TestTaskLifecycle(t *testing.T) {
	r := newTaskRig(t)
	r.turn.Status = "queued"
	mustContain(t, stringField(r.get(tasksMetaJSON, "working"), "statusMessage"), "waiting for its turn")
	r.turn.Status, r.turn.Activity = "running", "running `make`"
	if got := stringField(r.get(tasksMetaJSON, "working"), "statusMessage"); got != "running `make`" {
		t.Errorf("statusMessage %q", got)
	}
	result := func(res turnResult) { r.turn.Result, r.turn.Status = &res, res.TurnStatus }
	result(okTurn("said"))
	res := r.get(tasksMetaJSON, "completed")
	if stringField(res, "result", "structuredContent", "content") != "said" || stringField(res, "result", "resultType") != "complete" ||
		rawField(res, "result", "isError") != nil {
		t.Errorf("%s", res)
	}
	failed := okTurn("it broke")
	failed.TurnStatus = "failed"
	result(failed)
	if res := r.get(tasksMetaJSON, "completed"); string(rawField(res, "result", "isError")) != "true" {
		t.Errorf("%s", res)
	}
	// An error of ours is a tool result for a modern client, so no failed task.
	result(turnResult{err: proxyError(codeTimeout, "too long"), TurnStatus: "failed"})
	if res := r.get(tasksMetaJSON, "completed"); string(rawField(res, "result", "structuredContent", "error", "code")) != "-32006" {
		t.Errorf("%s", res)
	}
	result(turnResult{err: badParams("no such thing"), TurnStatus: "failed"})
	if res := r.get(tasksMetaJSON, "failed"); string(rawField(res, "error", "code")) != "-32602" || stringField(res, "statusMessage") == "" {
		t.Errorf("%s", res)
	}
	stopped := okTurn("half")
	stopped.TurnStatus = "interrupted"
	result(stopped)
	r.get(tasksMetaJSON, "completed") // by a timeout, say
	r.turn.Stopped = true
	r.get(tasksMetaJSON, "cancelled")
	result(turnResult{err: proxyError(codeSessionClosed, "stopped in the queue")})
	r.get(tasksMetaJSON, "cancelled")
	result(okTurn("quicker than the cancel"))
	r.get(tasksMetaJSON, "completed")
}

func TestTaskInputRequired(t *testing.T) {
	r := newTaskRig(t)
	for _, id := range []string{"ask-1", "ask-2"} {
		q := inputAsk(id)
		r.turn.Pending = append(r.turn.Pending, askView{ApprovalID: id, Kind: q.kind, Action: q.action, q: q})
	}
	r.turn.Activity = "waiting for approval of `rm -r ask-1`"
	res := r.get(tasksAskMeta, "input_required")
	for _, id := range []string{"ask-1", "ask-2"} {
		if stringField(res, "inputRequests", id, "method") != "elicitation/create" ||
			!strings.Contains(stringField(res, "inputRequests", id, "params", "message"), "Run `rm -r "+id+"`\nasked by agent codex (codex:ab12)") {
			t.Errorf("%s", res)
		}
	}
	if again := r.get(tasksAskMeta, "input_required"); string(rawField(again, "inputRequests")) != string(rawField(res, "inputRequests")) {
		t.Errorf("the same questions differ: %s", again)
	}
	// Who can't be asked is told how the caller decides.
	mustContain(t, stringField(r.get(tasksMetaJSON, "working"), "statusMessage"), "agent_approve", "ask-1", "codex:ab12")

	ack := resultOf(t, r.task("tasks/update", tasksAskMeta, `,"inputResponses":{"ask-2":{"action":"accept","content":{}},"ask-7":{"action":"accept"}}`))
	if stringField(ack, "resultType") != "complete" || rawField(ack, "taskId") != nil {
		t.Errorf("%s", ack)
	}
	if q := <-r.approves; q.Agent != "codex:ab12" || q.Ask != "ask-2" || q.Action != "rm -r ask-2" || q.Decision != approve || q.By.who != byUser {
		t.Errorf("approved %+v", q)
	}
	resultOf(t, r.task("tasks/update", tasksAskMeta, `,"inputResponses":{"ask-1":{"action":"accept","content":{"x":"no"}},"ask-2":{"decision":"denied"}}`))
	for _, id := range []string{"ask-1", "ask-2"} {
		if q := <-r.approves; q.Ask != id || q.Decision != deny {
			t.Errorf("approved %+v", q)
		}
	}
	r.turn.Pending = nil
	resultOf(t, r.task("tasks/update", tasksAskMeta, `,"inputResponses":{"ask-1":{"action":"accept"}}`))
	if len(r.approves) != 0 {
		t.Errorf("approved %+v", <-r.approves)
	}
}

// Elicitation declared on the call: the client's user decides, by the task.
func TestTaskOfClientThatCanBeAsked(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		tool, args string
		task       bool
	}{
		{"codex", `{"prompt":"x"}`, true},
		{"codex", `{"agent_id":"codex:ab12","prompt":"x"}`, true},
		{"codex-reply", `{"agent_id":"codex:ab12","prompt":"x"}`, true},
		{"codex", `{"agent_id":"codex:ab12"}`, false}, // reopening runs no turn
	} {
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + tasksAskMeta + `,"name":"` + c.tool + `","arguments":` + c.args + `}}`)
		s := <-r.submits
		if s.req.task != c.task || s.req.background != c.task || s.req.approvals != "client" {
			t.Errorf("%s %s: submitted %+v", c.tool, c.args, s.req)
		}
		// A turn that could not be accepted is no task.
		r.f.done(s.w, turnResult{err: proxyError(codeMaxSessions, "too many")})
		mustContain(t, string(resultOf(t, r.next())), "MAX_SESSIONS_EXCEEDED", `"resultType":"complete"`)
	}
}

// Cancelled before it was accepted: the turn is dropped and nobody told.
func TestTaskCancelledBeforeItIsOne(t *testing.T) {
	r := newRig(t, nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + tasksMetaJSON + `,"name":"codex","arguments":{"prompt":"x"}}}`)
	s := <-r.submits
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if c := <-r.cancels; c.w != s.w || c.detach {
		t.Errorf("%+v", c)
	}
	r.f.done(s.w, turnResult{AgentID: "codex:ab12", TurnID: "bg-1", TurnStatus: "running"})
	r.quiet()
}

func TestTaskCancel(t *testing.T) {
	r := newTaskRig(t)
	ack := resultOf(t, r.task("tasks/cancel", tasksMetaJSON, ""))
	if stringField(ack, "resultType") != "complete" || rawField(ack, "status") != nil {
		t.Errorf("%s", ack)
	}
	if got := <-r.interrupts; got != "codex:ab12 bg-7f3k2m" {
		t.Errorf("interrupted %s", got)
	}
	done := okTurn("said")
	r.turn.Result, r.turn.Status = &done, "completed"
	resultOf(t, r.task("tasks/cancel", tasksMetaJSON, "")) // too late, and fine
	if len(r.interrupts) != 0 {
		t.Error("an ended turn was interrupted")
	}
}

func TestTaskErrors(t *testing.T) {
	r := newTaskRig(t)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		code, _, data := errorOf(t, r.task(method, modernMetaJSON, `,"inputResponses":{}`))
		if code != -32021 || rawKind(rawField(data, "requiredCapabilities", "extensions", "io.modelcontextprotocol/tasks")) != '{' {
			t.Errorf("%s without the extension: %d %s", method, code, data)
		}
		if code, _, _ := errorOf(t, r.ask(method, `{"taskId":"`+r.taskID+`"}`)); code != codeNoMethod {
			t.Errorf("%s of a legacy client: %d", method, code)
		}
		for _, id := range []string{`"codex:ab12/bg-other"`, `"codex:zz99/bg-7f3k2m"`, `"nonsense"`, `""`, `"/"`, `5`, `null`} {
			code, _, _ := errorOf(t, r.ask(method, fmt.Sprintf(`{%s,"taskId":%s,"inputResponses":{}}`, tasksMetaJSON, id)))
			if code != codeInvalidParams {
				t.Errorf("%s of task %s: %d", method, id, code)
			}
		}
	}
	for _, more := range []string{"", `,"inputResponses":[]`, `,"inputResponses":null`} {
		if code, _, _ := errorOf(t, r.task("tasks/update", tasksMetaJSON, more)); code != codeInvalidParams {
			t.Errorf("tasks/update with %q: %d", more, code)
		}
	}
	r.turn.Task = false
	if code, msg, _ := errorOf(t, r.task("tasks/get", tasksMetaJSON, "")); code != codeInvalidParams || !strings.Contains(msg, "agent_wait") {
		t.Errorf("a background turn: %d %s", code, msg)
	}
	for _, method := range []string{"tasks/list", "tasks/result"} { // of 2025-11-25
		if code, _, _ := errorOf(t, r.task(method, tasksMetaJSON, "")); code != codeNoMethod {
			t.Errorf("%s: %d", method, code)
		}
	}
	code, _, _ := errorOf(t, r.ask("subscriptions/listen", `{`+modernMetaJSON+`,"notifications":{"taskIds":["a"]}}`))
	if code != -32021 {
		t.Errorf("listening to tasks without the extension: %d", code)
	}
}

// Only server/discover tells of tasks, and only they who say so get one.
func TestTaskIsNegotiated(t *testing.T) {
	r := newRig(t, nil)
	if res := resultOf(t, r.ask("server/discover", modernOnly)); rawKind(rawField(res, "capabilities", "extensions", "io.modelcontextprotocol/tasks")) != '{' {
		t.Errorf("%s", res)
	}
	if res := resultOf(t, r.hello("2025-11-25", `{"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{}}`, "x")); rawField(res, "capabilities", "extensions") != nil {
		t.Errorf("legacy: %s", res)
	}
	a := string(rawField(resultOf(t, r.ask("tools/list", modernOnly)), "tools"))
	if b := string(rawField(resultOf(t, r.ask("tools/list", `{`+tasksMetaJSON+`}`)), "tools")); a != b {
		t.Error("the list of tools varies")
	}
	for _, params := range []string{
		`{"name":"codex","arguments":{"prompt":"x"}}`, // legacy
		`{"name":"codex","arguments":{"prompt":"x"},"task":{"ttl":1000}}`,
		callParams(true, "codex", `{"prompt":"x"}`),
		strings.Replace(callParams(true, "codex", `{"prompt":"x"}`), `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":{"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":true}}`, 1),
	} {
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`)
		s := <-r.submits
		if s.req.task || s.req.background || s.req.approvals != "" {
			t.Errorf("%s: submitted %+v", params, s.req)
		}
		r.f.done(s.w, okTurn("said"))
		mustContain(t, string(resultOf(t, r.next())), `"content":"said"`)
	}
}
