package main

// mcp_eventitem.go owns the old events that a thread's items become: item_started
// and item_completed for each, and beside them what the removed
// `codex mcp-server` sent for messages, commands, patches and tool calls.
// mcp_event.go calls it. Items are few, so it may decode; what Codex added
// later passes as it is.

import (
	"encoding/json"
	"strings"
)

// itemEvent forwards item/started or item/completed.
func (x *codexEvents) itemEvent(completed bool) {
	p := x.params()
	item := p.body
	typ := stringField(item, "type")

	name := "item_started"
	if completed {
		name = "item_completed"
	}
	b := field(x.begin(name), "thread_id", p.thread)
	b = field(b, "turn_id", p.turn)
	x.end(appendOldItem(append(b, `,"item":`...), item, typ))

	switch typ {
	case "userMessage":
		if completed {
			x.userMessage(item)
		}
	case "agentMessage":
		if completed {
			b := field(x.begin("agent_message"), "message", rawField(item, "text"))
			x.end(field(b, "phase", rawField(item, "phase")))
		}
	case "reasoning":
		if completed {
			var parts []string
			_ = json.Unmarshal(rawField(item, "summary"), &parts)
			for _, text := range parts {
				x.end(appendJSONString(append(x.begin("agent_reasoning"), `,"text":`...), text))
			}
		}
	case "commandExecution":
		x.command(p, item, completed)
	case "fileChange":
		x.patch(p, item, completed)
	case "mcpToolCall":
		x.mcpCall(item, completed)
	case "webSearch":
		if completed {
			b := field(x.begin("web_search_end"), "call_id", rawField(item, "id"))
			x.end(field(b, "query", rawField(item, "query")))
		} else {
			x.end(field(x.begin("web_search_begin"), "call_id", rawField(item, "id")))
		}
	case "contextCompaction":
		if completed {
			x.end(x.begin("context_compacted"))
		}
	}
}

// appendOldItem writes an item as item_started had it: a capital type,
// snake_case keys, an agent's text as content, a command as words.
func appendOldItem(b []byte, item json.RawMessage, typ string) []byte {
	if typ == "" {
		return append(b, `null`...)
	}
	b = appendJSONString(append(b, `{"type":`...), strings.ToUpper(typ[:1])+typ[1:])
	_ = eachField(item, func(key string, val json.RawMessage) bool {
		switch {
		case key == "type":
		case key == "text" && typ == "agentMessage":
			b = append(b, `,"content":[`...)
			if string(val) != `""` {
				b = append(field(append(b, `{"type":"Text","text"`...), "", val), '}')
			}
			b = append(b, ']')
		case key == "command" && typ == "commandExecution":
			b = appendWords(append(b, `,"command":`...), val)
		case key == "commandActions":
			b = appendActions(append(b, `,"parsed_cmd":`...), val)
		case key == "changes" && typ == "fileChange":
			b = appendChanges(append(b, `,"changes":`...), rawChanges(val))
		default:
			b = append(appendJSONString(append(b, ','), snake(key, '_')), ':')
			b = append(b, val...)
		}
		return true
	})
	return append(b, '}')
}

// userMessage is the prompt again, as long as it may be: its text is copied as
// it stands, for two raw strings in a row are one without the quotes between.
func (x *codexEvents) userMessage(item json.RawMessage) {
	b := append(x.begin("user_message"), `,"message":"`...)
	images, local := []string{}, []string{}
	eachElement(rawField(item, "content"), func(part json.RawMessage) {
		switch stringField(part, "type") {
		case "text":
			if text := rawField(part, "text"); rawKind(text) == '"' {
				b = append(b, text[1:len(text)-1]...)
			}
		case "image":
			images = append(images, stringField(part, "url"))
		case "localImage":
			local = append(local, stringField(part, "path"))
		}
	})
	b = field(append(b, '"'), "images", toJSON(images))
	b = field(b, "local_images", toJSON(local))
	x.end(append(b, `,"text_elements":[]`...))
}

// command is exec_command_begin and _end. app-server doesn't split stdout
// from stderr, so all of it stands in aggregated_output.
func (x *codexEvents) command(p eventParams, item json.RawMessage, completed bool) {
	name := "exec_command_begin"
	if completed {
		name = "exec_command_end"
	}
	b := field(x.begin(name), "call_id", rawField(item, "id"))
	b = field(b, "process_id", rawField(item, "processId"))
	b = field(b, "turn_id", p.turn)
	b = appendWords(append(b, `,"command":`...), rawField(item, "command"))
	b = field(b, "cwd", rawField(item, "cwd"))
	b = appendActions(append(b, `,"parsed_cmd":`...), rawField(item, "commandActions"))
	b = appendSnake(append(b, `,"source":`...), rawField(item, "source"), '_')
	if completed {
		output := rawField(item, "aggregatedOutput")
		if isNull(output) {
			output = json.RawMessage(`""`)
		}
		b = field(append(b, `,"stdout":"","stderr":""`...), "aggregated_output", output)
		b = field(b, "exit_code", rawField(item, "exitCode"))
		b = appendDuration(b, rawField(item, "durationMs"))
		b = appendSnake(append(b, `,"formatted_output":"","status":`...), rawField(item, "status"), '_')
	}
	x.end(b)
}

func (x *codexEvents) patch(p eventParams, item json.RawMessage, completed bool) {
	name := "patch_apply_begin"
	if completed {
		name = "patch_apply_end"
	}
	b := field(x.begin(name), "call_id", rawField(item, "id"))
	b = field(b, "turn_id", p.turn)
	if completed {
		status := stringField(item, "status")
		b = append(b, `,"stdout":"","stderr":"","success":`...)
		if status == "completed" {
			b = append(b, `true`...)
		} else {
			b = append(b, `false`...)
		}
		b = appendJSONString(append(b, `,"status":`...), snake(status, '_'))
	} else {
		b = append(b, `,"auto_approved":false`...) // app-server doesn't say; an approval, if any, follows
	}
	x.end(appendChanges(append(b, `,"changes":`...), rawChanges(rawField(item, "changes"))))
}

func (x *codexEvents) mcpCall(item json.RawMessage, completed bool) {
	name := "mcp_tool_call_begin"
	if completed {
		name = "mcp_tool_call_end"
	}
	b := field(x.begin(name), "call_id", rawField(item, "id"))
	b = field(append(b, `,"invocation":{"server"`...), "", rawField(item, "server"))
	b = field(b, "tool", rawField(item, "tool"))
	b = append(field(b, "arguments", rawField(item, "arguments")), '}')
	if completed {
		b = appendDuration(b, rawField(item, "durationMs"))
		if result := rawField(item, "result"); !isNull(result) {
			b = append(append(append(b, `,"result":{"Ok":`...), result...), '}')
		} else {
			b = append(field(append(b, `,"result":{"Err"`...), "", rawField(item, "error", "message")), '}')
		}
	}
	x.end(b)
}

// execApproval and patchApproval are the events beside an approval.
func (x *codexEvents) execApproval() {
	raw := x.e.raw
	call := rawField(raw, "approvalId")
	if isNull(call) {
		call = rawField(raw, "itemId")
	}
	b := field(x.begin("exec_approval_request"), "call_id", call)
	b = field(b, "turn_id", rawField(raw, "turnId"))
	b = appendWords(append(b, `,"command":`...), rawField(raw, "command"))
	b = field(b, "cwd", rawField(raw, "cwd"))
	b = field(b, "reason", rawField(raw, "reason"))
	b = field(b, "proposed_execpolicy_amendment", rawField(raw, "proposedExecpolicyAmendment"))
	x.end(appendActions(append(b, `,"parsed_cmd":`...), rawField(raw, "commandActions")))
}

func (x *codexEvents) patchApproval() {
	raw := x.e.raw
	b := field(x.begin("apply_patch_approval_request"), "call_id", rawField(raw, "itemId"))
	b = field(b, "turn_id", rawField(raw, "turnId"))
	b = field(b, "reason", rawField(raw, "reason"))
	b = field(b, "grant_root", rawField(raw, "grantRoot"))
	var changes []oldChange
	if x.e.ask != nil {
		changes = askedChanges(x.e.ask.files)
	}
	x.end(appendChanges(append(b, `,"changes":`...), changes))
}

// appendWords writes a command string as the words it is made of.
func appendWords(b []byte, raw json.RawMessage) []byte {
	line, ok := rawString(raw)
	if !ok {
		return append(b, `[]`...)
	}
	return append(b, toJSON(shellWords(line))...)
}

// appendActions writes commandActions as parsed_cmd.
func appendActions(b []byte, raw json.RawMessage) []byte {
	var actions []json.RawMessage
	_ = json.Unmarshal(raw, &actions)
	b = append(b, '[')
	for i, a := range actions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONString(append(b, `{"type":`...), snake(stringField(a, "type"), '_'))
		_ = eachField(a, func(key string, val json.RawMessage) bool {
			switch key {
			case "type":
			case "command":
				b = field(b, "cmd", val)
			default:
				b = append(appendJSONString(append(b, ','), snake(key, '_')), ':')
				b = append(b, val...)
			}
			return true
		})
		b = append(b, '}')
	}
	return append(b, ']')
}

func rawChanges(raw json.RawMessage) []oldChange {
	var changes []struct {
		Path, Diff string
		Kind       json.RawMessage
	}
	_ = json.Unmarshal(raw, &changes)
	out := make([]oldChange, 0, len(changes))
	for _, c := range changes {
		kind, ok := rawString(c.Kind)
		if !ok {
			kind = stringField(c.Kind, "type")
		}
		out = append(out, oldChange{c.Path, kind, stringField(c.Kind, "move_path"), c.Diff})
	}
	return out
}

// appendDuration writes milliseconds as the {secs, nanos} of old events.
func appendDuration(b []byte, ms json.RawMessage) []byte {
	var n int64
	_ = json.Unmarshal(ms, &n) // absent or null: zero
	return field(b, "duration", toJSON(struct {
		Secs  int64 `json:"secs"`
		Nanos int64 `json:"nanos"`
	}{n / 1000, n % 1000 * 1e6}))
}
