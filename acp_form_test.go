package main

// acp_form_test.go owns the forms of questions: what stands in them, and that
// an answer they didn't allow is none.

import (
	"encoding/json"
	"fmt"
	"testing"
)

func formAsk(questions ...question) *approval {
	q := &approval{kind: askQuestion, questions: questions}
	q.action = askedText(q)
	return q
}

func TestACPQuestionForm(t *testing.T) {
	for _, tt := range []struct {
		name string
		q    *approval
		want string
	}{
		{"text", formAsk(question{id: "a", header: "H", text: "Why?"}),
			`{"type":"object","properties":{"a":{"description":"Why?","title":"H","type":"string"}},"required":["a"]}`},
		{"optional", formAsk(question{id: "a", text: "Why?", optional: true}),
			`{"type":"object","properties":{"a":{"description":"Why?","type":"string"}}}`},
		{"choice", formAsk(question{id: "a", text: "Which?", options: []string{"x", "y"}}),
			`{"type":"object","properties":{"a":{"description":"Which?","enum":["x","y"],"type":"string"}},"required":["a"]}`},
		{"choice or words", formAsk(question{id: "a", text: "Which?", options: []string{"x", "y"}, other: true}),
			`{"type":"object","properties":{"a":{"description":"Which?","enum":["x","y"],"type":"string"},"a_other":{"description":"or an answer in words of your own","type":"string"}}}`},
		{"several", formAsk(question{id: "a", text: "Which?", options: []string{"x", "y"}, several: true}),
			`{"type":"object","properties":{"a":{"description":"Which?","items":{"enum":["x","y"],"type":"string"},"type":"array"}},"required":["a"]}`},
		{"yes or no", formAsk(question{id: "a", text: "Sure?", options: []string{"true", "false"}}),
			`{"type":"object","properties":{"a":{"description":"Sure?","type":"boolean"}},"required":["a"]}`},
		{"in their order", formAsk(question{id: "z", text: "1", optional: true}, question{id: "b", text: "2", optional: true}),
			`{"type":"object","properties":{"z":{"description":"1","type":"string"},"b":{"description":"2","type":"string"}}}`},
		{"nothing to fill in", formAsk(), `{"type":"object","properties":{}}`},
	} {
		if got := string(questionForm(tt.q)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestACPReadForm(t *testing.T) {
	choice := question{id: "a", text: "Which?", options: []string{"x", "y"}}
	other, several := choice, choice
	other.other, several.several = true, true
	sure := question{id: "s", text: "Sure?", options: []string{"true", "false"}}
	maybe := question{id: "m", text: "Note?", optional: true}
	for _, tt := range []struct {
		name   string
		q      *approval
		result string
		want   string // the answers; "" for a no
	}{
		{"choice", formAsk(choice), `{"action":"accept","content":{"a":"y"}}`, "map[a:[y]]"},
		{"not offered", formAsk(choice), `{"action":"accept","content":{"a":"z"}}`, ""},
		{"own words", formAsk(other), `{"action":"accept","content":{"a_other":"neither"}}`, "map[a:[neither]]"},
		{"own words in the choice", formAsk(other), `{"action":"accept","content":{"a":"neither"}}`, "map[a:[neither]]"},
		{"neither", formAsk(other), `{"action":"accept","content":{"a_other":"  "}}`, ""},
		{"several", formAsk(several), `{"action":"accept","content":{"a":["x","y"]}}`, "map[a:[x y]]"},
		{"several as one line", formAsk(several), `{"action":"accept","content":{"a":"x, y"}}`, "map[a:[x y]]"},
		{"several, one not offered", formAsk(several), `{"action":"accept","content":{"a":["x","q"]}}`, ""},
		{"two where one may be chosen", formAsk(choice), `{"action":"accept","content":{"a":["x","y"]}}`, ""},
		{"checkbox", formAsk(sure), `{"action":"accept","content":{"s":false}}`, "map[s:[false]]"},
		{"a number", formAsk(question{id: "n", text: "How many?"}), `{"action":"accept","content":{"n":12}}`, "map[n:[12]]"},
		{"an object", formAsk(question{id: "n", text: "How many?"}), `{"action":"accept","content":{"n":{}}}`, ""},
		{"missing", formAsk(choice, maybe), `{"action":"accept","content":{"m":"so"}}`, ""},
		{"optional left out", formAsk(maybe), `{"action":"accept","content":{}}`, "map[]"},
		{"nothing to fill in", formAsk(), `{"action":"accept"}`, "map[]"},
		{"declined", formAsk(), `{"action":"decline"}`, ""},
		{"closed", formAsk(), `{"action":"cancel"}`, ""},
		{"an unknown word", formAsk(), `{"action":"Accept"}`, ""},
		{"the dialect of MCP's old servers", formAsk(), `{"decision":"approved"}`, ""},
		{"nothing", formAsk(), `null`, ""},
	} {
		v := readForm(json.RawMessage(tt.result), tt.q)
		got := ""
		if v.d == approve {
			got = fmt.Sprint(v.answers)
		}
		if got != tt.want || v.stop || v.d == deny && v.words == "" {
			t.Errorf("%s: came to %+v, want %q", tt.name, v, tt.want)
		}
	}
}

func TestACPQuestionMessage(t *testing.T) {
	q := formAsk(question{id: "a", text: "Which?"}, question{id: "b", text: "Why?"})
	if got := questionMessage(q); got != "Which?\nWhy?" {
		t.Errorf("message %q", got)
	}
	q.subagent, q.reason, q.action = &subagentRef{name: "digger"}, "files asks", "Choose a file"
	if got := questionMessage(q); got != "Subagent digger asks:\nfiles asks\nChoose a file" {
		t.Errorf("message %q", got)
	}
	for page, want := range map[string]string{"https://a.b/c": "https://a.b/c", "file:///etc/passwd": "", "javascript:x": "", "up": "", "": ""} {
		if got := pageAsked(&approval{page: page}); got != want {
			t.Errorf("page of %q is %q, want %q", page, got, want)
		}
	}
}
