package main

// mcp_event.go owns the forwarding of events as `codex/event` notifications
// (FR-19): what the child said, as it said it, with the agent's id in _meta.
// codex mcp-server has such notifications itself; of what app-server says, msg
// is the params with the method as type. mcp.go calls it for every event, on the
// child's reading goroutine: so raw values are copied and none is decoded. It
// must never change, merge or leave out what the child said.

import (
	"bytes"
	"encoding/json"
)

// fromChild reports whether the event is one of the child's own words. The
// drivers also make events of answers to our calls, which have no method, and of
// mcp-server's elicitations, beside which it says an event.
func fromChild(e *event) bool { return e.method != "" && e.method != "elicitation/create" }

// appendCodexEvent appends the notification for an event of the agent. request
// is the id of the caller's request, nil where nobody waits.
func appendCodexEvent(b []byte, a agentRef, request json.RawMessage, e *event) []byte {
	b = append(b, `{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{`...)
	if request != nil {
		b = append(append(append(b, `"requestId":`...), request...), ',')
	}
	thread := e.thread // a subagent's event keeps the subagent's thread
	if thread == "" {
		thread = a.Thread
	}
	b = appendJSONString(append(b, `"threadId":`...), thread)
	b = append(appendJSONString(append(b, `,"agent_id":`...), a.AgentID), '}')
	if e.method == mcpNote {
		_ = eachField(e.raw, func(key string, val json.RawMessage) bool {
			if key != "_meta" { // it has the id of our own request, and the thread, which stands there already
				b = append(append(appendJSONString(append(b, ','), key), ':'), val...)
			}
			return true
		})
		return append(b, `}}`...)
	}
	b = appendJSONString(append(b, `,"id":`...), e.turn)
	b = appendTyped(append(b, `,"msg":`...), e.method, e.raw)
	return append(b, `}}`...)
}

// appendTyped appends params as they came, with a type in front. Params that
// are no object, or have a type of their own, stand whole under the key params.
func appendTyped(b []byte, typ string, params json.RawMessage) []byte {
	b = appendJSONString(append(b, `{"type":`...), typ)
	fields, isObject := bytes.CutPrefix(params, []byte("{"))
	fields = bytes.TrimLeft(fields, " \t\r\n")
	switch {
	case params == nil:
	case !isObject || rawField(params, "type") != nil:
		b = append(append(b, `,"params":`...), params...)
	case !bytes.HasPrefix(fields, []byte("}")):
		return append(append(b, ','), fields...) // the brace that closes params closes msg
	}
	return append(b, '}')
}
