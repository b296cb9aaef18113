package main

// mcp_event.go owns the forwarding of events as `codex/event` notifications,
// the form that clients of the removed `codex mcp-server` know (FR-19): the
// old event where there was one, else {type: <method>}, each with the original
// params under msg.params and agent_id in _meta. mcp.go calls it on the
// child's reading goroutine for every event, so it appends bytes and copies
// raw values; mcp_eventitem.go holds the items. It must never change what the
// child said, nor wait.

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
)

// codexEvents is one event on its way to the notifications made of it.
type codexEvents struct {
	a       agentRef
	e       *event
	request json.RawMessage                // id of the caller's request, nil where nobody waits
	last    json.RawMessage                // raw text of the turn's last agent message, if known
	send    func(rec []byte, w worth) bool // keeps nothing of rec
	buf     []byte                         // for the next notification
	dropped bool
}

// eventParams are the fields that most notifications of app-server have.
type eventParams struct {
	thread, turn, item, delta, index, body json.RawMessage
}

func (x *codexEvents) params() (p eventParams) {
	for f := fieldsOf(x.e.raw); f.next(); {
		switch val := json.RawMessage(f.val); string(f.key) {
		case "threadId":
			p.thread = val
		case "turnId":
			p.turn = val
		case "itemId":
			p.item = val
		case "delta":
			p.delta = val
		case "summaryIndex", "contentIndex":
			p.index = val
		case "item", "turn":
			p.body = val
		}
	}
	return p
}

// forward sends what the event becomes. false: some of it was dropped.
func (x *codexEvents) forward() bool {
	e := x.e
	switch {
	case e.method == mcpNote:
		x.passOn()
		return !x.dropped
	case e.kind == evOpened && e.opened != nil && e.opened.unnamed:
		return true // it is told when it has a name
	case e.kind == evOpened:
		x.opened()
		return !x.dropped
	case e.method == "", e.kind == evSubthread, e.kind == evStarted && e.method != "turn/started", e.method == "elicitation/create":
		return true // made by a driver beside an event, or the answer to a call: not the child's event
	}
	switch e.method {
	case "item/agentMessage/delta":
		x.delta("agent_message_content_delta", "")
	case "item/plan/delta":
		x.delta("plan_delta", "")
	case "item/reasoning/summaryTextDelta":
		x.delta("reasoning_content_delta", "summary_index")
	case "item/reasoning/textDelta":
		x.delta("reasoning_raw_content_delta", "content_index")
	case "item/reasoning/summaryPartAdded":
		p := x.params()
		b := field(x.begin("agent_reasoning_section_break"), "item_id", p.item)
		x.end(field(b, "summary_index", p.index))
	case "item/commandExecution/outputDelta":
		x.outputDelta()
	case "item/started":
		x.itemEvent(false)
	case "item/completed":
		x.itemEvent(true)
	case "turn/started":
		b := field(x.begin("task_started"), "turn_id", rawField(e.raw, "turn", "id"))
		b = field(b, "started_at", rawField(e.raw, "turn", "startedAt"))
		x.end(append(b, `,"model_context_window":null`...))
	case "turn/completed":
		x.turnCompleted()
	case "thread/tokenUsage/updated":
		x.tokenCount()
	case "turn/plan/updated":
		x.planUpdate()
	case "turn/diff/updated":
		x.end(field(x.begin("turn_diff"), "unified_diff", rawField(e.raw, "diff")))
	case "error":
		x.failure()
	case "warning":
		x.end(field(x.begin("warning"), "message", rawField(e.raw, "message")))
	case "mcpServer/startupStatus/updated":
		b := field(x.begin("mcp_startup_update"), "server", rawField(e.raw, "name"))
		b = field(append(b, `,"status":{"state"`...), "", rawField(e.raw, "status"))
		if msg := rawField(e.raw, "error"); !isNull(msg) {
			b = field(b, "error", msg)
		}
		x.end(append(b, '}'))
	case "item/commandExecution/requestApproval":
		x.execApproval()
	case "item/fileChange/requestApproval":
		x.patchApproval()
	case "item/tool/requestUserInput":
		b := field(x.begin("request_user_input"), "call_id", rawField(e.raw, "itemId"))
		b = field(b, "turn_id", rawField(e.raw, "turnId"))
		x.end(field(b, "questions", rawField(e.raw, "questions")))
	case "item/tool/call":
		b := field(x.begin("dynamic_tool_call_request"), "callId", rawField(e.raw, "callId"))
		b = field(b, "turnId", rawField(e.raw, "turnId"))
		b = field(b, "tool", rawField(e.raw, "tool"))
		x.end(field(b, "arguments", rawField(e.raw, "arguments")))
	default:
		x.end(x.begin(e.method))
	}
	return !x.dropped
}

// passOn forwards what codex mcp-server says itself, with the caller's request
// id in place of ours and the agent beside it.
func (x *codexEvents) passOn() {
	b := make([]byte, 0, len(x.e.raw)+256)
	b = append(b, `{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{`...)
	if x.request != nil {
		b = append(append(append(b, `"requestId":`...), x.request...), ',')
	}
	b = appendJSONString(append(b, `"threadId":`...), x.e.thread)
	b = append(appendJSONString(append(b, `,"agent_id":`...), x.a.AgentID), '}')
	_ = eachField(x.e.raw, func(key string, val json.RawMessage) bool {
		if key != "_meta" {
			b = field(b, key, val)
		}
		return true
	})
	if !x.send(append(b, `}}`...), x.worth()) {
		x.dropped = true
	}
}

// worth is what the event is to a client that doesn't read. None of them is what
// somebody waits for: that is the answer to the call.
func (x *codexEvents) worth() worth {
	if x.e.must {
		return dropLast
	}
	return dropFirst
}

// begin opens a notification up to behind msg.type.
func (x *codexEvents) begin(typ string) []byte {
	e := x.e
	raw := e.raw
	if e.kind == evOpened && e.opened != nil {
		raw = e.opened.raw
	}
	b := slices.Grow(x.buf[:0], len(raw)+2*len(e.text)+512)
	b = append(b, `{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{`...)
	if x.request != nil {
		b = append(append(append(b, `"requestId":`...), x.request...), ',')
	}
	thread := e.thread // a subagent's event keeps the subagent's thread
	if thread == "" {
		thread = x.a.Thread
	}
	b = appendJSONString(append(b, `"threadId":`...), thread)
	b = appendJSONString(append(b, `,"agent_id":`...), x.a.AgentID)
	b = appendJSONString(append(b, `},"id":`...), e.turn)
	return appendJSONString(append(b, `,"msg":{"type":`...), typ)
}

// end adds the original params and sends.
func (x *codexEvents) end(b []byte) {
	raw := x.e.raw
	if x.e.kind == evOpened && x.e.opened != nil {
		raw = x.e.opened.raw
	}
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	b = append(append(append(b, `,"params":`...), raw...), `}}}`...)
	if !x.send(b, x.worth()) {
		x.dropped = true
	}
	x.buf = b
}

// field appends `,"key":val`, or with an empty key `:val`; nothing is null.
func field(b []byte, key string, val json.RawMessage) []byte {
	if key != "" {
		b = append(append(append(b, `,"`...), key...), '"')
	}
	if val == nil {
		return append(b, `:null`...)
	}
	return append(append(b, ':'), val...)
}

// delta is the hot path, thousands a second: all it needs was found when the
// event was read.
func (x *codexEvents) delta(typ, index string) {
	b := nameField(x.begin(typ), "thread_id", x.e.thread)
	b = nameField(b, "turn_id", x.e.turn)
	b = nameField(b, "item_id", x.e.item)
	b = field(b, "delta", x.e.delta)
	if index != "" {
		b = field(b, index, x.params().index)
	}
	x.end(b)
}

// nameField appends `,"key":"name"`, null where there is no name.
func nameField(b []byte, key, name string) []byte {
	if name == "" {
		return field(b, key, nil)
	}
	return appendJSONString(append(append(append(b, `,"`...), key...), `":`...), name)
}

// outputDelta tells a command's output; the old event had it in base64.
func (x *codexEvents) outputDelta() {
	p := x.params()
	b := field(x.begin("exec_command_output_delta"), "call_id", p.item)
	text, _ := rawString(p.delta)
	b = append(b, `,"stream":"stdout","chunk":"`...)
	b = base64.StdEncoding.AppendEncode(b, []byte(text))
	x.end(append(b, '"'))
}

// opened is the first event of a thread: session_configured.
func (x *codexEvents) opened() {
	var raw json.RawMessage
	if x.e.opened != nil {
		raw = x.e.opened.raw
	}
	thread := x.e.thread
	if thread == "" {
		thread = x.a.Thread
	}
	b := appendJSONString(append(x.begin("session_configured"), `,"session_id":`...), thread)
	b = appendJSONString(append(b, `,"thread_id":`...), thread)
	b = field(b, "model", rawField(raw, "model"))
	b = field(b, "model_provider_id", rawField(raw, "modelProvider"))
	b = field(b, "approval_policy", rawField(raw, "approvalPolicy"))
	b = append(b, `,"sandbox_policy":`...)
	b = appendSnake(b, rawField(raw, "sandbox"), '-')
	b = field(b, "cwd", rawField(raw, "cwd"))
	if effort := rawField(raw, "reasoningEffort"); !isNull(effort) {
		b = field(b, "reasoning_effort", effort)
	}
	x.end(field(b, "rollout_path", rawField(raw, "thread", "path")))
}

func (x *codexEvents) turnCompleted() {
	turn := rawField(x.e.raw, "turn")
	status := stringField(turn, "status")
	if status == "interrupted" {
		b := field(x.begin("turn_aborted"), "turn_id", rawField(turn, "id"))
		x.end(x.times(append(b, `,"reason":"interrupted"`...), turn))
		return
	}
	b := field(x.begin("task_complete"), "turn_id", rawField(turn, "id"))
	last := x.last
	if last == nil { // nobody waited, so nobody kept it
		if text := cmp.Or(x.e.text, finalText(rawField(turn, "items"))); text != "" {
			last = appendJSONString(nil, text)
		}
	}
	if status == "failed" {
		last = nil
	}
	b = x.times(field(b, "last_agent_message", last), turn)
	if failure := rawField(turn, "error"); !isNull(failure) {
		b = appendFailure(append(b, `,"error":{"message"`...), failure)
		b = append(b, '}')
	}
	x.end(b)
}

// times copies what Codex since 0.148 tells of a turn's time.
func (x *codexEvents) times(b []byte, turn json.RawMessage) []byte {
	for _, k := range [...][2]string{{"startedAt", "started_at"}, {"completedAt", "completed_at"}, {"durationMs", "duration_ms"}} {
		if v := rawField(turn, k[0]); !isNull(v) {
			b = field(b, k[1], v)
		}
	}
	return b
}

func (x *codexEvents) tokenCount() {
	usage := rawField(x.e.raw, "tokenUsage")
	b := append(x.begin("token_count"), `,"info":`...)
	if isNull(usage) {
		b = append(b, `null`...)
	} else {
		b = appendSnake(append(b, `{"total_token_usage":`...), rawField(usage, "total"), 0)
		b = appendSnake(append(b, `,"last_token_usage":`...), rawField(usage, "last"), 0)
		b = append(field(b, "model_context_window", rawField(usage, "modelContextWindow")), '}')
	}
	x.end(append(b, `,"rate_limits":null`...))
}

func (x *codexEvents) planUpdate() {
	var plan []struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	}
	_ = json.Unmarshal(rawField(x.e.raw, "plan"), &plan) // what isn't a plan is an empty one
	b := append(field(x.begin("plan_update"), "explanation", rawField(x.e.raw, "explanation")), `,"plan":[`...)
	for i, s := range plan {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONString(append(b, `{"step":`...), s.Step)
		b = append(appendJSONString(append(b, `,"status":`...), snake(s.Status, '_')), '}')
	}
	x.end(append(b, ']'))
}

// failure is app-server's `error`: a retry of Codex's own, or the reason of a
// turn's end.
func (x *codexEvents) failure() {
	typ := "error"
	if rawKind(rawField(x.e.raw, "willRetry")) == 't' {
		typ = "stream_error"
	}
	failure := rawField(x.e.raw, "error")
	b := appendFailure(append(x.begin(typ), `,"message"`...), failure)
	if typ == "stream_error" {
		b = field(b, "additional_details", rawField(failure, "additionalDetails"))
	}
	x.end(b)
}

// appendFailure writes behind `"message"` the message and codex_error_info.
func appendFailure(b []byte, failure json.RawMessage) []byte {
	b = field(b, "", rawField(failure, "message"))
	return appendSnake(append(b, `,"codex_error_info":`...), rawField(failure, "codexErrorInfo"), '_')
}

// appendSnake writes a value with the keys of its objects in snake_case. Where
// sep isn't 0 the outermost string, or the string under "type", is a word that
// was camelCase too and gets sep.
func appendSnake(b []byte, raw json.RawMessage, sep byte) []byte {
	switch rawKind(raw) {
	case 0:
		return append(b, `null`...)
	case '"':
		if sep != 0 {
			word, _ := rawString(raw)
			return appendJSONString(b, snake(word, sep))
		}
	case '{':
		b = append(b, '{')
		first := true
		_ = eachField(raw, func(key string, val json.RawMessage) bool {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(appendJSONString(b, snake(key, '_')), ':')
			inner := byte(0)
			if key == "type" {
				inner = sep
			}
			b = appendSnake(b, val, inner)
			return true
		})
		return append(b, '}')
	}
	return append(b, raw...)
}
