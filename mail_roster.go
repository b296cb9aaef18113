package main

// mail_roster.go owns the text of config.json and the places of its members in it: entries are put in, cut out and marked
// as text, so every byte of the rest stays: unknown fields, order, the spelling of numbers, the members of others.
// Pure; mail_members.go calls it.
// Never marshals what somebody else wrote.

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// A span is a part of a text.
type span struct{ from, to int }

// A roster is a config.json that has a list of members.
type roster struct {
	text  []byte
	list  span     // of the array, with its brackets
	elems []span   // of its elements, whatever they are
	named []member // the entries that have a name, not to be changed
}

// A member is an entry as we read it; what isn't there, or of another type, is "". Claude Code's lead has no model,
// so of all fields only the name is essential.
type member struct {
	name, agentID, agentType string
	externalBackend          string // atm's externalBackendType
	joinedAt                 string // as it is spelt
	mark                     *memberMark
}

// markKey is the field that tells our entries. Claude Code and atm keep fields they don't know.
const markKey = "atmAgentMcp"

// A memberMark stands in an entry that we added.
type memberMark struct {
	PID    int    `json:"pid"`
	Host   string `json:"host"`
	Agent  string `json:"agent"`  // agent_id of the session
	Leases string `json:"leases"` // the directory where its identity lease is
}

// parseRoster refuses what isn't whole, or has no members: nothing may be written over it.
func parseRoster(text []byte) (*roster, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("it is empty")
	}
	if !validJSON(text) {
		return nil, errors.New("it is not valid JSON")
	}
	r := &roster{text: text}
	var ok bool
	if r.list, ok = fieldSpan(text, skipSpace(text, 0), "members"); !ok || text[r.list.from] != '[' {
		return nil, errors.New("it has no list of members")
	}
	for i := skipSpace(text, r.list.from+1); text[i] != ']'; {
		end, _ := scanValue(text, i, 0)
		r.elems = append(r.elems, span{i, end})
		if i = skipSpace(text, end); text[i] == ',' {
			i = skipSpace(text, i+1)
		}
	}
	for i := range r.elems {
		if m := r.member(i); m.name != "" {
			r.named = append(r.named, m)
		}
	}
	return r, nil
}

// fieldSpan finds the value of a field of the object that begins at i of a valid JSON text; the last of two counts,
// as for all who read the file.
func fieldSpan(text []byte, i int, key string) (found span, ok bool) {
	if text[i] != '{' {
		return span{}, false
	}
	for i = skipSpace(text, i+1); text[i] != '}'; {
		end, _ := scanString(text, i)
		name, _ := rawString(text[i:end])
		from := skipSpace(text, skipSpace(text, end)+1)
		if end, _ = scanValue(text, from, 0); name == key {
			found, ok = span{from, end}, true
		}
		if i = skipSpace(text, end); text[i] == ',' {
			i = skipSpace(text, i+1)
		}
	}
	return found, ok
}

func (r *roster) raw(s span) json.RawMessage { return r.text[s.from:s.to:s.to] }

// lead is the name of the team's lead, who may not be among the members.
func (r *roster) lead() string {
	name, _, _ := strings.Cut(stringField(r.text, "leadAgentId"), "@")
	return name
}

// member is the zero member for what is no entry.
func (r *roster) member(i int) member {
	raw := r.raw(r.elems[i])
	m := member{
		name: stringField(raw, "name"), agentID: stringField(raw, "agentId"), agentType: stringField(raw, "agentType"),
		externalBackend: stringField(raw, "externalBackendType"), joinedAt: string(rawField(raw, "joinedAt")),
	}
	if v := rawField(raw, markKey); rawKind(v) == '{' {
		m.mark = new(memberMark)
		if json.Unmarshal(v, m.mark) != nil {
			m.mark = nil // somebody's field of the same name
		}
	}
	return m
}

// isCodex tells entries that `atm add-member` prepares and those that we add.
func (m member) isCodex() bool { return m.agentType == "codex" || m.externalBackend == "codex" }

// with returns the text with one more entry at the end, laid out as the entry before it.
func (r *roster) with(entry any) []byte {
	compact := toJSON(entry)
	if len(r.elems) == 0 {
		line := lineIndent(r.text, r.list.from)
		if !bytes.ContainsRune(r.text, '\n') {
			return splice(r.text, r.list, "["+string(compact)+"]")
		}
		return splice(r.text, r.list, "[\n"+line+"  "+indented(compact, line+"  ")+"\n"+line+"]")
	}
	last := r.elems[len(r.elems)-1]
	from := last.from
	for r.text[from-1] != ',' && from > r.list.from+1 {
		from--
	}
	gap := string(r.text[from:last.from])
	text := string(compact)
	if at := strings.LastIndexByte(gap, '\n'); at >= 0 {
		text = indented(compact, gap[at+1:])
	}
	return splice(r.text, span{last.to, last.to}, ","+gap+text)
}

// without returns the text without the entries that drop names. A run of them goes with the comma before it or, at
// the beginning of the list, with the one after it.
func (r *roster) without(drop func(i int) bool) []byte {
	out, copied := []byte(nil), 0
	cut := func(from, to int) {
		out, copied = append(out, r.text[copied:from]...), to
	}
	for i := 0; i < len(r.elems); i++ {
		first := i
		for i < len(r.elems) && drop(i) {
			i++
		}
		switch {
		case i == first:
		case first > 0:
			cut(r.elems[first-1].to, r.elems[i-1].to)
		case i < len(r.elems):
			cut(r.elems[0].from, r.elems[i].from)
		default:
			cut(r.list.from+1, r.list.to-1)
		}
	}
	if copied == 0 {
		return r.text
	}
	return append(out, r.text[copied:]...)
}

// marked returns the text with another mark in an entry that has one.
func (r *roster) marked(i int, mark memberMark) []byte {
	at, ok := fieldSpan(r.text, r.elems[i].from, markKey)
	if !ok {
		panic("BUG: marking an entry that has no mark")
	}
	return splice(r.text, at, string(toJSON(mark)))
}

func splice(text []byte, at span, by string) []byte {
	out := make([]byte, 0, len(text)+len(by))
	return append(append(append(out, text[:at.from]...), by...), text[at.to:]...)
}

// lineIndent is the white space that the line of i begins with.
func lineIndent(text []byte, i int) string {
	from := bytes.LastIndexByte(text[:i], '\n') + 1
	to := from
	for text[to] == ' ' || text[to] == '\t' {
		to++
	}
	return string(text[from:to])
}

func indented(compact []byte, prefix string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, compact, prefix, "  "); err != nil {
		panic("BUG: indenting our own value: " + err.Error())
	}
	return b.String()
}
