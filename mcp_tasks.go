package main

// mcp_tasks.go owns the tasks extension of MCP 2026-07-28: codex and codex-reply
// answer a client that declares it with a task, and tasks/get, tasks/update and
// tasks/cancel reach the turn behind it. mcp.go calls it on the reading
// goroutine. A task is a background turn of the hub, which has it on disk before
// its handle is given out; nothing is kept here, so a task outlives this process.
// It must never give a task to a client that did not declare the extension on
// that request.

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

const (
	tasksExtension = metaPrefix + "tasks"
	// taskPoll is how often a client is told to ask for a task's state.
	taskPoll = time.Second
)

// taskState is a task as the extension words it.
type taskState struct {
	Type     string                  `json:"resultType"`
	ID       string                  `json:"taskId"`
	Status   string                  `json:"status"` // working input_required completed failed cancelled
	Message  string                  `json:"statusMessage,omitempty"`
	Created  string                  `json:"createdAt"`
	Updated  string                  `json:"lastUpdatedAt"`
	TTL      *int64                  `json:"ttlMs"` // null: it stays until maxKeptTurns newer turns have ended
	Poll     int64                   `json:"pollIntervalMs"`
	Requests map[string]inputRequest `json:"inputRequests,omitempty"`
	Result   json.RawMessage         `json:"result,omitempty"`
	Error    *rpcError               `json:"error,omitempty"`
	Meta     map[string]any          `json:"_meta"`
}

func (f *mcpFront) newTaskState(kind, agentID, handle string, created, updated time.Time) taskState {
	const millis = "2006-01-02T15:04:05.000Z07:00"
	return taskState{Type: kind, ID: agentID + "/" + handle, Status: "working", Created: created.UTC().Format(millis),
		Updated: updated.UTC().Format(millis), Poll: taskPoll.Milliseconds(), Meta: f.modernMeta()}
}

// makeTask turns a call into one that is answered with a task.
func (f *mcpFront) makeTask(c *mcpCall, req *turnRequest) {
	req.background, req.task = true, true
	c.task = true
	c.prog.end() // a task has no progress
}

// taskAnswer is the answer to a call whose turn was accepted as a task.
func (f *mcpFront) taskAnswer(r *turnResult) json.RawMessage {
	t := f.newTaskState("task", r.AgentID, r.TurnID, r.asked, time.Now())
	t.Message = fmt.Sprintf("agent %s works on it", agentShownAs(r.AgentID, r.Identity))
	if r.TurnStatus == "queued" {
		t.Message = fmt.Sprintf("agent %s begins it as soon as the turns before it are done", agentShownAs(r.AgentID, r.Identity))
	}
	return toJSON(t)
}

// missingTasks refuses what only a client may ask that declares the extension.
func missingTasks(what string) *rpcError {
	return &rpcError{Code: codeNoCapability,
		Message: fmt.Sprintf("Missing required client capability: %s need the extension %q in _meta %q of the request", what, tasksExtension, metaPrefix+"clientCapabilities"),
		Data:    toJSON(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}}})}
}

// taskMethod serves tasks/get, tasks/update and tasks/cancel.
func (f *mcpFront) taskMethod(c *mcpCall, method string, params json.RawMessage) {
	switch {
	case !c.modern:
		f.finish(c, nil, noMethod(method+" exists in "+modernVersion+" only"))
		return
	case !c.tasks:
		f.finish(c, nil, missingTasks(method+" would"))
		return
	}
	id, ok := rawString(rawField(params, "taskId"))
	if !ok {
		f.finish(c, nil, badParams("taskId must be a string, the id of the task"))
		return
	}
	responses := rawField(params, "inputResponses")
	if method == "tasks/update" && rawKind(responses) != '{' {
		f.finish(c, nil, badParams("inputResponses must be an object of what inputRequests asked for, by its keys"))
		return
	}
	if !f.spawn(func() { // it reads the disk
		k, e := f.taskTurn(id)
		switch {
		case e != nil:
			f.finish(c, nil, e)
		case method == "tasks/get":
			f.finish(c, f.taskNow(c, &k), nil)
		case method == "tasks/update":
			f.updateTask(c, &k, responses)
		default:
			f.cancelTask(c, &k)
		}
	}) {
		f.finish(c, nil, &rpcError{Code: codeInternal, Message: "Internal error: " + shuttingDown().Message})
	}
}

// taskTurn is the turn behind a task id. It reads the disk.
func (f *mcpFront) taskTurn(id string) (keptTurn, *rpcError) {
	agentID, handle, ok := strings.Cut(id, "/")
	if !ok || agentID == "" || handle == "" {
		return keptTurn{}, badParams("there is no task %s", shorten(id, 100))
	}
	k, e := f.turn(agentID, handle)
	switch {
	case e != nil && e.Code == codeSessionNotFound:
		return k, badParams("there is no task %s, or %d newer turns of its agent have ended since: %s", shorten(id, 100), maxKeptTurns, e.Message)
	case e != nil:
		return k, &rpcError{Code: codeInternal, Message: "Internal error: " + e.Message}
	case !k.Task:
		return k, badParams("%s is a turn and no task: agent_wait tells its result", shorten(id, 100))
	}
	return k, nil
}

// taskNow is the answer to tasks/get.
func (f *mcpFront) taskNow(c *mcpCall, k *keptTurn) json.RawMessage {
	t := f.newTaskState("complete", k.AgentID, k.TurnID, k.Created, k.Updated)
	switch {
	case k.finished():
		f.endedTask(&t, k)
	case len(k.Pending) > 0 && c.elicits:
		t.Status, t.Message = "input_required", k.Activity
		t.Requests = make(map[string]inputRequest, len(k.Pending))
		a := agentRef{AgentID: k.AgentID, Identity: k.Identity}
		for i := range k.Pending {
			// The same words at every poll: the official client takes a key that
			// comes back with other parameters for a broken server.
			p := &k.Pending[i]
			t.Requests[p.ApprovalID] = inputRequest{"elicitation/create", elicitation(a, &p.q, nil)}
		}
	case len(k.Pending) > 0:
		p := &k.Pending[0]
		t.Message = fmt.Sprintf("waits for a decision on %s (%s): agent_approve with agent_id %s", p.ApprovalID, shorten(oneLine(p.Action), 200), k.AgentID)
	case k.Activity != "":
		t.Message = k.Activity
	case k.Status == "queued":
		t.Message = "waiting for its turn"
	}
	return toJSON(t)
}

// endedTask words the end of a task: failed is for errors of the protocol
// alone, whatever else went wrong is a result.
func (f *mcpFront) endedTask(t *taskState, k *keptTurn) {
	r := k.Result
	switch {
	case k.Stopped && r.TurnStatus != "completed":
		t.Status = "cancelled"
		t.Message = fmt.Sprintf("stopped; agent_wait with agent_id %s tells what it had written", k.AgentID)
	case k.Lost:
		t.Status, t.Message = "failed", r.err.Message
		t.Error = &rpcError{Code: codeInternal, Message: "Internal error: " + r.err.Message}
	case r.err != nil && protocolCode(r.err):
		t.Status, t.Message, t.Error = "failed", r.err.Message, r.err
	case r.err != nil:
		t.Status, t.Message, t.Result = "completed", r.err.Message, f.errorAnswer(r.err)
	default:
		t.Status, t.Result = "completed", f.turnAnswer(r, true)
	}
}

// updateTask decides what the client's user answered. What isn't pending any
// more, or never was, is passed over.
func (f *mcpFront) updateTask(c *mcpCall, k *keptTurn, responses json.RawMessage) {
	var decisions []approveQuery
	for i := range k.Pending {
		p := &k.Pending[i]
		response := rawField(responses, p.ApprovalID)
		if response == nil {
			continue
		}
		d, answers := readAnswer(response, &p.q)
		decisions = append(decisions, approveQuery{Agent: k.AgentID, Ask: p.ApprovalID, Action: p.Action, By: answeredBy(response, d), Decision: d, Answers: answers})
	}
	var left atomic.Int64
	left.Store(int64(len(decisions)) + 1)
	one := func(_ decision, e *rpcError) {
		if e != nil { // somebody else decided first
			f.Log.Debug("a task's answer was not needed", "agent_id", k.AgentID, "turn", k.TurnID, "why", e.Message)
		}
		if left.Add(-1) == 0 {
			f.finish(c, f.taskAck(), nil)
		}
	}
	for _, q := range decisions {
		f.approve(q, one)
	}
	one(deny, nil)
}

// cancelTask stops the turn and answers when it has stopped, so that the next
// tasks/get tells it.
func (f *mcpFront) cancelTask(c *mcpCall, k *keptTurn) {
	if k.finished() {
		f.finish(c, f.taskAck(), nil)
		return
	}
	f.interrupt(k.AgentID, k.TurnID, func(_ interruptResult, e *rpcError) {
		if e != nil { // it ended on its own in between
			f.Log.Debug("a task needed no cancelling", "agent_id", k.AgentID, "turn", k.TurnID, "why", e.Message)
		}
		f.finish(c, f.taskAck(), nil)
	})
}

func (f *mcpFront) taskAck() json.RawMessage {
	return toJSON(map[string]any{"resultType": "complete", "_meta": f.modernMeta()})
}
