package main

// acp_form.go owns the form that a question of an agent, or of an MCP server
// of its, is put into for an ACP client (elicitation/create), and the reading
// of what was filled in. acp_ask.go calls it. It is pure. A secret never comes
// into a form, and an answer that the form didn't allow is none.

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// acpElicitation is the request. A form has a schema, a page an id and a URL.
type acpElicitation struct {
	Session string          `json:"sessionId"`
	Call    string          `json:"toolCallId,omitempty"`
	Mode    string          `json:"mode"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"requestedSchema,omitempty"`
	ID      string          `json:"elicitationId,omitempty"`
	URL     string          `json:"url,omitempty"`
}

// secretAsked reports a question whose answer is not to be shown.
func secretAsked(q *approval) bool {
	return slices.ContainsFunc(q.questions, func(each question) bool { return each.secret })
}

// pageAsked is the page that an MCP server wants opened, "" where it is no
// such question or no page that a browser should be sent to.
func pageAsked(q *approval) string {
	u, err := url.Parse(q.page)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || len(q.questions) > 0 {
		return ""
	}
	return q.page
}

// questionMessage is what stands above the form. A form of one question says
// it again at its field, where some clients show nothing else.
func questionMessage(q *approval) string {
	var lines []string
	if sub := q.asker(); sub != "" {
		lines = append(lines, "Subagent "+sub+" asks:")
	}
	if q.reason != "" {
		lines = append(lines, q.reason)
	}
	if q.action != "" && q.action != askedText(q) {
		lines = append(lines, q.action) // a form's own message, or what is to be opened
	} else {
		for _, each := range q.questions {
			lines = append(lines, each.text)
		}
	}
	if len(lines) == 0 {
		return "The agent asks"
	}
	return strings.Join(lines, "\n")
}

// yesNo reports a question that is a checkbox.
func (q *question) yesNo() bool {
	return !q.several && !q.other && len(q.options) == 2 && q.options[0] == "true" && q.options[1] == "false"
}

// questionForm is the schema: what must be answered is required, a choice is an
// enum, several are an array, and an answer beside the options has a field of
// its own.
func questionForm(q *approval) json.RawMessage {
	b := []byte(`{"type":"object","properties":{`)
	var required []string
	for i, each := range q.questions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONString(b, each.id), ':')
		field := map[string]any{"type": "string", "description": each.text}
		if each.header != "" {
			field["title"] = each.header
		}
		switch {
		case each.yesNo():
			field["type"] = "boolean"
		case each.several && len(each.options) > 0:
			field["type"] = "array"
			field["items"] = map[string]any{"type": "string", "enum": each.options}
		case len(each.options) > 0:
			field["enum"] = each.options
		case each.several:
			field["description"] = each.text + " (several may be given, separated by commas)"
		}
		b = append(b, toJSON(field)...)
		if each.other && len(each.options) > 0 {
			b = append(append(appendJSONString(append(b, ','), each.id+otherField), ':'),
				toJSON(map[string]any{"type": "string", "description": otherHint})...)
		} else if !each.optional {
			required = append(required, each.id)
		}
	}
	b = append(b, '}')
	if len(required) > 0 {
		b = append(append(b, `,"required":`...), toJSON(required)...)
	}
	return append(b, '}')
}

// readForm reads what came back. A yes needs every answer that the form
// required; one that it didn't offer makes it a no.
func readForm(result json.RawMessage, q *approval) acpVerdict {
	switch action := stringField(result, "action"); action {
	case "accept":
	case "decline":
		return acpVerdict{words: "the user declined to answer"}
	case "cancel":
		return acpVerdict{words: "the user closed the question", by: decider{who: byDismissal}}
	default:
		return acpVerdict{words: fmt.Sprintf("the client's answer can't be read, so it counts as no: %s", clip(string(result), 200)), by: decider{who: byUnclear}}
	}
	answers := map[string][]string{}
	for _, each := range q.questions {
		given, ok := formAnswer(&each, rawField(result, "content", each.id))
		if !ok {
			return acpVerdict{words: fmt.Sprintf("the answer to %q is none of those that were offered, so it counts as no", clip(each.text, 100)), by: decider{who: byUnclear}}
		}
		if other := strings.TrimSpace(stringField(result, "content", each.id+otherField)); each.other && len(each.options) > 0 && other != "" {
			given = append(given, other)
		}
		if len(given) == 0 && !each.optional {
			return acpVerdict{words: fmt.Sprintf("%q has no answer, so it counts as no", clip(each.text, 100)), by: decider{who: byUnclear}}
		}
		if len(given) > 0 {
			answers[each.id] = given
		}
	}
	return acpVerdict{d: approve, answers: answers}
}

// formAnswer reads one field; false: it holds what the form doesn't allow.
func formAnswer(q *question, raw json.RawMessage) (given []string, ok bool) {
	switch rawKind(raw) {
	case 0, 'n':
		return nil, true
	case '"':
		line, _ := rawString(raw)
		if line == "" {
			return nil, true
		}
		given = chosen(q, line)
	case 't', 'f', '0':
		given = []string{strings.TrimSpace(string(raw))}
	case '[':
		if json.Unmarshal(raw, &given) != nil || !q.several && len(given) > 1 {
			return nil, false
		}
	default:
		return nil, false
	}
	if len(q.options) > 0 && !q.other {
		for _, each := range given {
			if !slices.Contains(q.options, each) {
				return nil, false
			}
		}
	}
	return given, true
}
