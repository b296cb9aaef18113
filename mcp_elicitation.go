package main

// mcp_elicitation.go owns the words of an elicitation (FR-18): an approval or question of an agent becomes its message
// and form, and the answer, in the protocol's words or in those of the removed `codex mcp-server`, a decision.
// mcp_ask.go asks with them. Nothing of what would be done may be hidden, and only an answer that says yes and nothing
// else approves: nonsense or a contradiction denies.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// elicitation builds the parameters. The fields below threadId are those of
// the removed command, for clients that read them.
func elicitation(a agentRef, q *approval, request json.RawMessage) json.RawMessage {
	p := struct {
		Message  string          `json:"message"`
		Schema   json.RawMessage `json:"requestedSchema"`
		ThreadID string          `json:"threadId"`
		AgentID  string          `json:"agent_id"`
		Identity string          `json:"identity,omitempty"`
		Kind     string          `json:"codex_elicitation,omitempty"`
		ToolCall string          `json:"codex_mcp_tool_call_id,omitempty"`
		Event    string          `json:"codex_event_id,omitempty"`
		Call     string          `json:"codex_call_id,omitempty"`
		Command  []string        `json:"codex_command,omitempty"`
		Cwd      string          `json:"codex_cwd,omitempty"`
		Parsed   json.RawMessage `json:"codex_parsed_cmd,omitempty"`
		Changes  json.RawMessage `json:"codex_changes,omitempty"`
		Reason   string          `json:"codex_reason,omitempty"`
	}{Message: askMessage(a, q), Schema: askSchema(q), ThreadID: q.thread, AgentID: a.AgentID, Identity: a.Identity,
		Event: q.turn, Call: q.item, Reason: q.reason}
	if p.ThreadID == "" {
		p.ThreadID = a.Thread
	}
	if s, ok := rawString(request); ok {
		p.ToolCall = s
	} else {
		p.ToolCall = string(request)
	}
	switch q.kind {
	case askCommand:
		p.Kind, p.Command, p.Cwd = "exec-approval", shellWords(q.command), q.cwd
		p.Parsed = toJSON([]map[string]string{{"type": "unknown", "cmd": shownCommand(q.command)}})
	case askFileChange:
		p.Kind = "patch-approval"
		p.Changes = oldChanges(q.files)
	}
	return toJSON(p)
}

// oldChanges is the map from path to change that the removed command had. Of an update app-server tells the diff only,
// of a file that comes or goes its text.
func oldChanges(files []fileChange) json.RawMessage {
	changes := map[string]any{}
	for _, c := range files {
		if c.kind == "add" || c.kind == "delete" {
			changes[c.path] = map[string]any{"type": c.kind, "content": c.diff}
			continue
		}
		var move any // null where the file keeps its name
		if c.move != "" {
			move = c.move
		}
		changes[c.path] = map[string]any{"type": "update", "unified_diff": c.diff, "move_path": move}
	}
	return toJSON(changes)
}

// askMessage is what a person reads before deciding: what exactly first, then where and why, then who asks. Nothing of
// what would be done may be hidden so that the rest looks harmless: a long command shows both its ends, says how much
// is left out between them, and stands whole below.
func askMessage(a agentRef, q *approval) string {
	if q.kind == askQuestion {
		return formMessage(a, q)
	}
	lead, what, end, more := "Do: ", q.action, "", ""
	switch q.kind {
	case askCommand:
		lead = "Allow " // network access alone has no command
		if q.command != "" {
			lead, what, end, more = "Run `", q.command, "`", strings.Join(q.more, ", ")
		}
	case askFileChange:
		lead = "Change files: "
	case askPermissions:
		lead = "Give more permissions: "
	case askMCPTool:
		lead = "Call the tool "
	}
	whole := what
	if end == "" {
		what = strings.ReplaceAll(what, "\n", ", ")
	}
	lines := fitLines(lead, what, end)
	if len(lines) == 1 && !strings.Contains(what, "\n") {
		whole = ""
	}
	if more != "" {
		about := fitLines("with ", more, "")
		if lines = append(lines, about...); len(about) > 1 {
			whole += "\nwith " + more
		}
	}
	if where := whereAndWhy(q); where != "" {
		lines = append(lines, where)
	}
	lines = append(lines, "asked by "+askerOf(a, q))
	if rule := ruleText(q); rule != "" {
		lines = append(lines, fmt.Sprintf("Always would let every command that begins with `%s` run unasked from now "+
			"on, in every session: Codex keeps it as a rule.", visible(rule)))
	}
	if whole != "" {
		lines = append(lines, "", "In full:", visible(strings.TrimSpace(whole)))
	}
	return strings.Join(lines, "\n")
}

// whereAndWhy is the directory and the agent's reason on one line, "" for neither.
func whereAndWhy(q *approval) string {
	var parts []string
	if q.cwd != "" {
		parts = append(parts, fmt.Sprintf("in `%s`", visible(oneLine(q.cwd))))
	}
	if q.reason != "" {
		parts = append(parts, visible(oneLine(q.reason)))
	}
	return strings.Join(parts, ": ")
}

// formMessage is what an agent asks its user, or what is to be opened.
func formMessage(a agentRef, q *approval) string {
	message := askerOf(a, q) + " asks"
	if askedText(q) != q.action {
		message += ": " + strings.ReplaceAll(q.action, "\n", ", ") // a form's own message, or what is to be opened
	}
	if len(q.questions) > 0 {
		message += "\n" + questionText(q)
	}
	if q.reason != "" {
		message += ": " + q.reason
	}
	return message
}

// messageColumns is how wide a line of a message may be for its end to be seen: Claude Code's dialog (2.1.330) shows
// some three lines of a message and cuts each at the width of the window, which is 80 columns at least for most people.
const messageColumns = 74

// fitLines shows a text on one line behind lead and before end, or on two where it
// is longer. Of a text that is longer than two lines the middle is left out.
func fitLines(lead, text, end string) []string {
	text = visible(strings.NewReplacer("\r\n", "⏎", "\n", "⏎", "\t", " ").Replace(text))
	runes := []rune(text)
	head := runesWithin(runes, messageColumns-len(lead)-len(end))
	if head == len(runes) {
		return []string{lead + text + end}
	}
	first, rest := lead+string(runes[:head]), runes[head:]
	if runesWithin(rest, messageColumns-len(end)) == len(rest) {
		return []string{first, string(rest) + end}
	}
	const noteColumns = 32 // of the sentence below with the number of a long command
	slices.Reverse(rest)
	tail := runesWithin(rest, messageColumns-noteColumns-len(end))
	left := len(rest) - tail
	slices.Reverse(rest)
	return []string{first, fmt.Sprintf("… %d characters left out … %s%s", left, string(rest[left:]), end)}
}

// runesWithin is how many of the first characters fit into the columns of a terminal. A wide character takes two.
func runesWithin(runes []rune, columns int) int {
	for i, r := range runes {
		if columns--; r >= 0x1100 { // the first wide characters of Unicode begin there
			columns--
		}
		if columns < 0 {
			return i
		}
	}
	return len(runes)
}

// askerOf is the agent in a sentence, with the subagent that asks in its name.
func askerOf(a agentRef, q *approval) string {
	who := fmt.Sprintf("agent %s (%s)", a.Identity, a.AgentID)
	if a.Identity == "" {
		who = "agent " + a.AgentID
	}
	if sub := q.asker(); sub != "" {
		who = "subagent " + sub + " of " + who
	}
	return who
}

// questionText is the questions with what is to be known of them, a line each.
func questionText(q *approval) string {
	var lines []string
	for _, each := range q.questions {
		lines = append(lines, each.text+each.hint())
	}
	return strings.Join(lines, "\n")
}

// allowField is what a client fills in for how long an approval is to last. It is there where an approval can last,
// optional and with a default, since Claude Code's dialog can't pass over another: a bare accept means once.
const allowField = "allow"

// mayLast reports an approval that can be given for longer than once.
func mayLast(q *approval) bool {
	return q.kind != askQuestion && (q.forSession || len(q.rule) > 0)
}

// askSchema is the form that goes with an elicitation, empty for an approval for which accept says it all.
func askSchema(q *approval) json.RawMessage {
	if mayLast(q) {
		b := []byte(`{"type":"object","properties":{`)
		what, words := "once", []string{"once"}
		if q.forSession {
			what, words = what+"; session: this agent isn't asked again", append(words, "session")
		}
		if rule := ruleText(q); rule != "" {
			what, words = what+"; always: "+strings.Join(fitLines("all that begins with `", rule, "`"), " "),
				append(words, "always")
		}
		b = appendJSONString(append(b, `"allow":{"type":"string","title":"Allow","description":`...), what)
		return append(append(append(b, `,"enum":`...), toJSON(words)...), `,"default":"once"}}}`...)
	}
	return questionForm(q, formRules{})
}

// readAnswer understands {"action":…,"content":…} and {"decision":…}, alone
// or together. Whatever says no, or says something else, denies.
func readAnswer(result json.RawMessage, q *approval) (decision, map[string][]string) {
	d, said := approve, false
	if action := rawField(result, "action"); action != nil {
		if word, _ := rawString(action); !strings.EqualFold(word, "accept") {
			return deny, nil
		}
		said = true
	}
	words := []json.RawMessage{rawField(result, "decision")}
	if q.kind != askQuestion { // which may have a field of that name itself
		words = append(words, rawField(result, "content", "decision")) // where some hooks put it
	}
	for _, old := range words {
		if old == nil {
			continue
		}
		switch word := oldDecision(old); word {
		case approveAlways:
			if d = max(d, word); len(q.rule) == 0 {
				d = approve
			}
		case approveForSession:
			d = max(d, word)
		case approve:
		default:
			return deny, nil
		}
		said = true
	}
	if !said {
		return deny, nil
	}
	if q.kind != askQuestion {
		if contradicts(rawField(result, "content")) {
			return deny, nil
		}
		if word := rawField(result, "content", allowField); mayLast(q) && !isNull(word) {
			switch s, _ := rawString(word); s { // what was not offered of these comes to once
			case "once":
			case "session":
				d = max(d, approveForSession)
			case "always":
				d = approveAlways
			default:
				return deny, nil
			}
		}
		return d, nil
	}
	answers := map[string][]string{}
	for _, each := range q.questions {
		val := rawField(result, "content", each.id)
		var several []string
		if s, ok := rawString(val); ok && s != "" {
			answers[each.id] = chosen(&each, s)
		} else if rawKind(val) == '[' && json.Unmarshal(val, &several) == nil && len(several) > 0 {
			answers[each.id] = several
		}
		if s, _ := rawString(rawField(result, "content", each.id+otherField)); s != "" && each.other &&
			len(each.options) > 0 {
			answers[each.id] = append(answers[each.id], s)
		}
	}
	if len(answers) == 0 && len(q.questions) > 0 {
		return deny, nil // accepted and nothing chosen: no answer
	}
	return d, answers
}

// answeredBy says whose word an answer is that readAnswer read as d. A client
// without a dialog cancels at once (claude -p), so that is not its user's no.
func answeredBy(result json.RawMessage, d decision) decider {
	action, old := stringField(result, "action"), stringField(result, "decision")
	switch {
	case d != deny, strings.EqualFold(action, "decline"), action == "" &&
		(strings.EqualFold(old, "denied") || strings.EqualFold(old, "abort")):
		return decider{who: byUser}
	case strings.EqualFold(action, "cancel"):
		return decider{who: byDismissal}
	}
	return decider{who: byUnclear}
}

// contradicts reports content that says no beside an accept. We asked for no
// fields, so a client that fills some in means something by them.
func contradicts(content json.RawMessage) bool {
	no := false
	_ = eachField(content, func(_ string, val json.RawMessage) bool {
		word, _ := rawString(val)
		switch strings.ToLower(word) {
		case "no", "deny", "denied", "decline", "declined", "reject", "rejected", "cancel", "abort", "false":
			no = true
		}
		no = no || rawKind(val) == 'f'
		return !no
	})
	return no
}

// oldDecision reads the words of the removed command, in any case: clients were told both "approved" and "Approved". An
// amendment of the policy approves always, which approval.limit makes once unless rules are allowed: whatever it holds,
// only Codex's own proposal is ever passed on.
func oldDecision(raw json.RawMessage) decision {
	if rawKind(raw) == '{' {
		d := deny
		_ = eachField(raw, func(key string, _ json.RawMessage) bool {
			if key == "approved_execpolicy_amendment" {
				d = approveAlways
				return true
			}
			d = deny
			return false
		})
		return d
	}
	word, _ := rawString(raw)
	switch strings.ToLower(strings.ReplaceAll(word, "_", "")) {
	case "approved":
		return approve
	case "approvedforsession":
		return approveForSession
	}
	return deny
}
