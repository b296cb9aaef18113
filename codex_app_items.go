package main

// codex_app_items.go owns what items of app-server tell of a call or a command
// beyond what a turn's result needs: arguments, results, output, what a command
// does. appItem calls it for every field of every item, live and of the past.
// It is pure; raw values stay as they came, and what isn't there stays empty.

import "encoding/json"

// callField reads one field.
func (b *itemBody) callField(key string, val json.RawMessage) {
	if isNull(val) {
		return
	}
	switch key {
	case "arguments":
		b.arguments = val
	case "result", "contentItems", "output": // MCP call, dynamic tool, function call's output
		b.result = val
	case "agentsStates": // collaboration: how the agents are, by thread
		if string(val) != "{}" {
			b.result = val
		}
	case "aggregatedOutput":
		b.output, _ = rawString(val)
	case "error":
		b.failure = stringField(val, "message")
	case "failure": // of a generated image
		b.failure = stringField(val, "type")
	case "commandActions":
		b.actions = commandActions(val)
	case "path", "savedPath":
		b.path, _ = rawString(val)
	case "query":
		b.query, _ = rawString(val)
	case "action":
		b.searchAction(val)
	case "durationMs":
		var ms float64
		if rawKind(val) == '0' && json.Unmarshal(val, &ms) == nil {
			b.duration = int64(ms)
		}
	}
}

// searchAction: a page that was opened, or searched in, has no query but an address.
func (b *itemBody) searchAction(val json.RawMessage) {
	if url := stringField(val, "url"); url != "" && b.query == "" {
		b.query = url
		if pattern := stringField(val, "pattern"); pattern != "" {
			b.query = pattern + " in " + url
		}
	}
}

func commandActions(list json.RawMessage) (out []commandAction) {
	eachElement(list, func(a json.RawMessage) {
		out = append(out, commandAction{kind: stringField(a, "type"), path: stringField(a, "path"), query: stringField(a, "query"), command: stringField(a, "command")})
	})
	return out
}

// collabArguments: a collaboration call has no arguments of its own but fields.
func collabArguments(item json.RawMessage) json.RawMessage {
	out := []byte{'{'}
	for f := fieldsOf(item); f.next(); {
		switch string(f.key) {
		case "prompt", "receiverThreadIds", "model", "reasoningEffort":
			if val := string(f.val); val == "null" || val == `""` || val == "[]" {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(appendJSONString(out, string(f.key)), ':'), f.val...)
		}
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}
