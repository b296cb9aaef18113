package main

// mail_roster.go owns the text of config.json and the places of its members in it: entries are put in, cut out and marked
// by patches, so every byte of the rest stays: unknown fields, order, the spelling of numbers, the members of others.
// mail_members.go calls it; nothing here looks at the disk.
// Never marshals what somebody else wrote.

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// A roster is a config.json that has a list of members.
type roster struct {
	text    []byte
	list    span     // of the array of members, with its brackets
	elems   []span   // of the array's elements, whatever they are
	members []member // of elems, one for one; the zero member for what is no entry
	named   []member // those of members that have a name; not to be changed
}

// A member is an entry as we read it; what isn't there, or of another type, is "". Only the name is essential: Claude
// Code's entry of the lead, for one, has no model.
type member struct {
	name, agentType string
	externalBackend string      // atm's externalBackendType
	joinedAt        string      // the number as it is spelt
	mark            *memberMark // nil: no process of ours added the entry
}

// markKey is the field by which our entries are known. Claude Code and atm keep fields that they don't know.
const markKey = "atmAgentMcp"

// A memberMark stands in an entry that a process of ours added.
type memberMark struct {
	PID    int    `json:"pid"`
	Host   string `json:"host"`
	Agent  string `json:"agent"`  // agent_id of the session
	Leases string `json:"leases"` // the directory that holds the lease of the session's identity
}

// parseRoster refuses a text that isn't whole or has no members: nothing may be written over such a file.
func parseRoster(text []byte) (*roster, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("it is empty")
	}
	if !validJSON(text) {
		return nil, errors.New("it is not valid JSON")
	}
	r := &roster{text: text}
	if at, found := fieldSpan(text, span{skipSpace(text, 0), len(text)}, "members"); found {
		if elems, closing, ok := elementSpans(text, at.from); ok {
			r.elems, r.list = elems, span{at.from, closing + 1}
		}
	}
	if r.list.to == 0 {
		return nil, errors.New("it has no list of members")
	}
	for _, e := range r.elems {
		m := parseMember(text[e.from:e.to:e.to])
		if r.members = append(r.members, m); m.name != "" {
			r.named = append(r.named, m)
		}
	}
	return r, nil
}

// fieldSpan finds the value of a field of an object. The last of two equal keys counts, as for all who read the file.
func fieldSpan(text []byte, obj span, key string) (found span, ok bool) {
	for f := fieldsOf(text[obj.from:obj.to]); f.next(); {
		if string(f.key) == key {
			found, ok = span{obj.from + f.at, obj.from + f.at + len(f.val)}, true
		}
	}
	return found, ok
}

func parseMember(raw json.RawMessage) member {
	m := member{
		name: stringField(raw, "name"), agentType: stringField(raw, "agentType"),
		externalBackend: stringField(raw, "externalBackendType"), joinedAt: string(rawField(raw, "joinedAt")),
	}
	if v := rawField(raw, markKey); rawKind(v) == '{' {
		m.mark = new(memberMark)
		if json.Unmarshal(v, m.mark) != nil {
			m.mark = nil // somebody else's field of the same name
		}
	}
	return m
}

// lead is the name of the team's lead, who may not be among the members.
func (r *roster) lead() string {
	name, _, _ := strings.Cut(stringField(r.text, "leadAgentId"), "@")
	return name
}

// isCodex tells whether an entry is a Codex agent's: `atm add-member` prepares such entries, and we add them.
func (m member) isCodex() bool { return m.agentType == "codex" || m.externalBackend == "codex" }

// with adds one more entry at the end, laid out as the entry before it.
func (r *roster) with(entry any) patch {
	compact := toJSON(entry)
	if len(r.elems) == 0 {
		put := "[" + string(compact) + "]"
		if line := lineIndent(r.text, r.list.from); bytes.ContainsRune(r.text, '\n') {
			put = "[\n" + line + "  " + indented(compact, line+"  ") + "\n" + line + "]"
		}
		return patch{at: r.list.from, drop: r.list.to - r.list.from, put: []byte(put)}
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
	return patch{at: last.to, put: []byte("," + gap + text)}
}

// without takes out the entries that drop names. A run of them goes with the comma before the run or, at the beginning
// of the list, with the comma after it.
func (r *roster) without(drop func(m member) bool) (cuts []patch) {
	for i := 0; i < len(r.elems); i++ {
		first := i
		for i < len(r.elems) && drop(r.members[i]) {
			i++
		}
		cut := span{r.list.from + 1, r.list.to - 1} // all
		switch {
		case i == first:
			continue
		case first > 0:
			cut = span{r.elems[first-1].to, r.elems[i-1].to}
		case i < len(r.elems):
			cut = span{r.elems[0].from, r.elems[i].from}
		}
		cuts = append(cuts, patch{at: cut.from, drop: cut.to - cut.from})
	}
	return cuts
}

// marked puts another mark into the entry i, which has one.
func (r *roster) marked(i int, mark memberMark) patch {
	at, ok := fieldSpan(r.text, r.elems[i], markKey)
	if !ok {
		panic("BUG: marking an entry that has no mark")
	}
	return patch{at: at.from, drop: at.to - at.from, put: toJSON(mark)}
}

// lineIndent is the white space at the beginning of the line that holds i.
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
