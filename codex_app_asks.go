package main

// codex_app_asks.go owns the requests that codex app-server makes of us: what kind each is, its neutral form, and the
// exact answer for every decision. It is pure; the driver asks it on the reading goroutine. The default is to decline,
// in words that let the turn go on: never "cancel", which ends it, and never a rule that outlives the thread but the
// one Codex proposed and a person approved.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	mCommand     = "item/commandExecution/requestApproval"
	mFileChange  = "item/fileChange/requestApproval"
	mPermissions = "item/permissions/requestApproval"
	mUserInput   = "item/tool/requestUserInput"
	mElicitation = "mcpServer/elicitation/request"
	mToolCall    = "item/tool/call"
)

// appRequests answers what one child asks, or puts it before the session that owns
// the thread. Its methods run on the reading goroutine, but for answers and limits.
type appRequests struct {
	*childLink
	threads   *threadTable
	toolLimit time.Duration // how long a session may take for a tool's result
}

// handle answers a request, or puts it before the session.
func (r *appRequests) handle(m *message) {
	q := &openAsk{reqIDs: []json.RawMessage{m.id}, method: m.method, params: m.params,
		thread: stringField(m.params, "threadId"), turn: stringField(m.params, "turnId")}
	switch m.method {
	case mCommand, mFileChange, mPermissions, mUserInput, mElicitation, mToolCall:
	default:
		r.refuse(m)
		if t := r.threads.owner(q.thread); t != nil {
			t.put(q.refusal(fmt.Sprintf("Codex asked %s, which is not known here; it was refused", m.method)))
		}
		return
	}
	who, held := r.threads.claimRequest(q.thread, stringField(m.params, "itemId"), m)
	if held {
		return
	}
	if who == nil {
		r.refuse(m)
		return
	}
	if m.method == mToolCall {
		r.putToolCall(who.tree, q)
		return
	}
	ask := newAsk(q, who.files)
	if ask.kind == askUnknown {
		r.refuse(m)
		who.tree.put(q.refusal(fmt.Sprintf("Codex asked %s (%s), a kind that is not known here; it was declined",
			m.method, ask.action)))
		return
	}
	ask.subagent = who.subagent
	if !r.register(q, ask) {
		return
	}
	who.tree.put(event{kind: evAsk, thread: q.thread, turn: q.turn, item: ask.item, must: true, ask: ask,
		method: m.method, raw: m.params})
	if r.threads.owner(q.thread) == who.tree {
		return
	}
	// The session unloaded its thread meanwhile and may have declined what was
	// asked before this was: nobody hears of it, and the child waits.
	r.decide(command{ask: ask.id, decision: deny})
}

// refusal tells a session of a request that was answered without it.
func (q *openAsk) refusal(text string) event {
	return event{kind: evNotice, thread: q.thread, turn: q.turn, must: true, text: text,
		method: q.method, raw: q.params}
}

// refuse declines a request at once, in its own words if there are any.
func (r *appRequests) refuse(m *message) {
	q := &openAsk{method: m.method, params: m.params}
	if result := answerTo(q, deny, nil); result != nil {
		r.peer.reply(m.id, result)
		return
	}
	r.peer.replyError(m.id, &rpcError{Code: codeNoMethod,
		Message: fmt.Sprintf("%s does not know the request %q", appClient, m.method)})
}

// putToolCall puts a call before the session that owns the tree, a subagent's too (of which no version makes any yet):
// a subagent acts as its parent. The call is answered once: by the session, or with an error text when the session is
// gone or takes too long, since Codex itself waits for ever. An error of the protocol would tell the model no more than
// "dynamic tool request failed".
func (r *appRequests) putToolCall(t *threadTree, q *openAsk) {
	call := &toolCall{name: q.toolName(), args: rawField(q.params, "arguments")}
	q.timer = time.AfterFunc(r.toolLimit, func() { r.toolOverdue(q) })
	if !r.register(q, &approval{}) {
		q.timer.Stop()
		return
	}
	call.id = q.id
	t.put(event{kind: evTool, thread: q.thread, turn: q.turn, item: stringField(q.params, "callId"),
		must: true, tool: call, method: q.method, raw: q.params})
	if r.threads.owner(q.thread) != t { // unloaded meanwhile: nobody heard of the call
		r.decide(command{ask: call.id, decision: deny})
	}
}

// answerTool answers a call; a second answer is dropped.
func (r *appRequests) answerTool(id, text string, ok bool) {
	if q := r.asks.take(id); q != nil {
		r.answer(q, toolAnswer(text, ok))
	}
}

// toolOverdue answers a call that the session did not answer in time.
func (r *appRequests) toolOverdue(q *openAsk) {
	if len(r.asks.takeEach(func(open *openAsk) bool { return open == q })) == 0 || r.dead() != nil {
		return
	}
	r.log.Warn("a tool of the agent was not answered in time",
		"tool", q.toolName(), "thread", q.thread, "limit", r.toolLimit)
	r.answer(q, toolAnswer(q.toolName()+" had no result within "+r.toolLimit.String()+
		"; it may or may not have been done, so look before you call it again", false))
}

func (q *openAsk) toolName() string { return stringField(q.params, "tool") }

// newAsk is the neutral form of a request that somebody is asked about. files are those of
// the item that the request belongs to, since a patch's own request doesn't hold them.
func newAsk(q *openAsk, files []fileChange) *approval {
	p := q.params
	a := &approval{thread: q.thread, turn: q.turn, item: stringField(p, "itemId"),
		cwd: stringField(p, "cwd"), reason: stringField(p, "reason")}
	switch q.method {
	case mCommand:
		a.kind, a.forSession = askCommand, true // every version keeps it, listed in availableDecisions or not
		a.command = stringField(p, "command")
		a.action = a.command
		a.networkTo(rawField(p, "networkApprovalContext"))
		a.asksFor(permissionText(rawField(p, "additionalPermissions")))
		q.rule = proposedRule(rawField(p, "proposedExecpolicyAmendment"), rawField(p, "availableDecisions"),
			"acceptWithExecpolicyAmendment")
		_ = json.Unmarshal(q.rule, &a.rule) // what isn't a list of words is no rule
	case mFileChange:
		a.kind, a.files, a.forSession = askFileChange, files, true
		a.action = changesText(files)
		a.asksToWrite(stringField(p, "grantRoot"))
	case mPermissions:
		a.kind, a.action, a.forSession = askPermissions, permissionText(rawField(p, "permissions")), true
	case mUserInput:
		a.kind, a.questions, a.byAgent = askQuestion, userQuestions(rawField(p, "questions")), true
	case mElicitation:
		elicitationAsk(a, p)
	}
	if a.kind == askQuestion && a.action == "" {
		for _, q := range a.questions {
			a.action = strings.TrimSpace(a.action + "\n" + q.text)
		}
	}
	if a.action == "" {
		if a.kind == askCommand || a.kind == askFileChange {
			a.kind = askUnknown // nobody could see what they approve
		}
		a.action = strings.TrimSpace(q.method + " " + a.reason)
	}
	return a
}

// networkTo adds the host that a command would reach.
func (a *approval) networkTo(context json.RawMessage) {
	if host := stringField(context, "host"); host != "" {
		a.asksFor("network access to " + stringField(context, "protocol") + "://" + host)
	}
}

// proposedRule is the rule that Codex proposes and would take: from 0.148 on it
// lists the decisions, and word is the one that makes the rule.
func proposedRule(rule, decisions json.RawMessage, word string) json.RawMessage {
	var words []string
	if isNull(rule) || json.Unmarshal(rule, &words) != nil || len(words) == 0 {
		return nil
	}
	listed := isNull(decisions)
	eachElement(decisions, func(d json.RawMessage) { listed = listed || rawKind(d) == '{' && rawField(d, word) != nil })
	if !listed {
		return nil
	}
	return rule
}

func elicitationAsk(a *approval, p json.RawMessage) {
	message, server := stringField(p, "message"), stringField(p, "serverName")
	meta := rawField(p, "_meta")
	switch mode := stringField(p, "mode"); {
	case stringField(meta, "codex_approval_kind") == "mcp_tool_call":
		a.kind, a.reason = askMCPTool, message
		a.forSession = slices.Contains(rawStrings(rawField(meta, "persist")), "session")
		a.server, a.tool, a.arguments = server, stringField(meta, "tool_name"), rawField(meta, "tool_params")
		if a.tool == "" { // 0.153 has it in its words alone: Allow the atm MCP server to run tool "send"?
			_, rest, _ := strings.Cut(message, `tool "`)
			a.tool, _, _ = strings.Cut(rest, `"`)
		}
		a.action = strings.TrimSpace(server + "." + a.tool + " " + string(a.arguments))
	case mode == "url":
		a.kind, a.reason = askQuestion, message
		a.page = stringField(p, "url")
		a.action = "open " + a.page
	case mode == "form" || mode == "openai/form" || mode == "openaiForm":
		a.kind, a.reason, a.action = askQuestion, server+" asks", message
		required := rawStrings(rawField(p, "requestedSchema", "required"))
		_ = eachField(rawField(p, "requestedSchema", "properties"), func(name string, prop json.RawMessage) bool {
			q := question{id: name, header: stringField(prop, "title"), text: stringField(prop, "description")}
			if q.text == "" {
				q.text = name
			}
			if !slices.Contains(required, name) {
				q.optional = true
				q.text += " (optional)"
			}
			choices := prop
			switch stringField(prop, "type") {
			case "array":
				q.several, choices = true, rawField(prop, "items")
			case "boolean":
				q.options = []string{"true", "false"}
			}
			q.options = append(q.options, enumOptions(choices)...)
			a.questions = append(a.questions, q)
			return true
		})
	default:
		a.kind, a.reason, a.action = askUnknown, message, strings.TrimSpace(server+" "+mode)
	}
}

// enumOptions are the values that a field of a form can have, in each of the ways in which MCP writes them.
func enumOptions(prop json.RawMessage) []string {
	out := rawStrings(rawField(prop, "enum"))
	for _, key := range []string{"oneOf", "anyOf"} { // with titles
		eachElement(rawField(prop, key), func(v json.RawMessage) {
			if s, ok := rawString(rawField(v, "const")); ok {
				out = append(out, s)
			}
		})
	}
	return out
}

func permissionText(p json.RawMessage) string {
	if isNull(p) {
		return ""
	}
	var parts []string
	if string(rawField(p, "network", "enabled")) == "true" {
		parts = append(parts, "network access")
	}
	_ = eachField(rawField(p, "fileSystem"), func(key string, val json.RawMessage) bool {
		if !isNull(val) && string(val) != "[]" {
			parts = append(parts, "file system "+key+" "+string(val))
		}
		return true
	})
	if len(parts) == 0 {
		return string(p)
	}
	return strings.Join(parts, "\n")
}

func userQuestions(list json.RawMessage) []question {
	var out []question
	eachElement(list, func(raw json.RawMessage) {
		q := question{id: stringField(raw, "id"),
			header: stringField(raw, "header"), text: stringField(raw, "question"),
			other: rawKind(rawField(raw, "isOther")) == 't', secret: rawKind(rawField(raw, "isSecret")) == 't'}
		eachElement(rawField(raw, "options"), func(o json.RawMessage) {
			q.options = append(q.options, stringField(o, "label"))
			q.about = append(q.about, stringField(o, "description"))
		})
		out = append(out, q)
	})
	return out
}

// answerTo is the result that says d to a request, in the child's words.
func answerTo(q *openAsk, d decision, answers map[string][]string) any {
	switch q.method {
	case mCommand, mFileChange:
		if d == approveAlways && q.rule != nil {
			return map[string]any{"decision": map[string]any{
				"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": q.rule}}}
		}
		return map[string]any{"decision": map[decision]string{deny: "decline", // "cancel" would end the turn
			approve: "accept", approveForSession: "acceptForSession", approveAlways: "accept"}[d]}
	case mPermissions:
		if d == deny {
			return map[string]any{"permissions": map[string]any{}, "scope": "turn"}
		}
		granted := fieldMap(rawField(q.params, "permissions"))
		maps.DeleteFunc(granted, func(_ string, val json.RawMessage) bool { return isNull(val) })
		scope := "turn"
		if d == approveForSession {
			scope = "session"
		}
		return map[string]any{"permissions": granted, "scope": scope}
	case mUserInput:
		out := map[string]any{}
		if d != deny {
			for _, each := range userQuestions(rawField(q.params, "questions")) {
				if list := answers[each.id]; len(list) > 0 {
					out[each.id] = map[string]any{"answers": list}
				}
			}
		}
		return map[string]any{"answers": out}
	case mElicitation:
		return elicitationAnswer(q.params, d, answers)
	case mToolCall:
		why := fmt.Sprintf("the tool %q is not available in this session", q.toolName())
		if q.id != "" { // it was put before the session
			why = "the session of this agent has ended, so " + q.toolName() + " can't be answered"
		}
		return toolAnswer(why, false)
	}
	return nil
}

// elicitationAnswer fills the form by the types of its schema. A yes without what the form requires is a no.
func elicitationAnswer(p json.RawMessage, d decision, answers map[string][]string) any {
	decline := map[string]any{"action": "decline"}
	mode := stringField(p, "mode")
	if d == deny || mode != "url" && mode != "form" && mode != "openai/form" && mode != "openaiForm" {
		return decline
	}
	content := map[string]any{}
	_ = eachField(rawField(p, "requestedSchema", "properties"), func(name string, prop json.RawMessage) bool {
		if list := answers[name]; len(list) > 0 {
			if v, ok := formValue(stringField(prop, "type"), list); ok {
				content[name] = v
			}
		}
		return true
	})
	for _, name := range rawStrings(rawField(p, "requestedSchema", "required")) {
		if _, ok := content[name]; !ok {
			return decline
		}
	}
	out := map[string]any{"action": "accept", "content": content}
	if d == approveForSession && slices.Contains(rawStrings(rawField(p, "_meta", "persist")), "session") {
		out["_meta"] = map[string]any{"persist": "session"}
	}
	return out
}

func formValue(kind string, list []string) (any, bool) {
	switch kind {
	case "boolean":
		v, err := strconv.ParseBool(strings.ToLower(list[0]))
		return v, err == nil
	case "integer", "number":
		n := json.Number(strings.TrimSpace(list[0]))
		_, err := n.Float64()
		return n, err == nil && validJSON([]byte(n))
	case "array":
		return list, true
	}
	return list[0], true
}

func toolAnswer(text string, ok bool) any {
	return map[string]any{"success": ok, "contentItems": []any{map[string]any{"type": "inputText", "text": text}}}
}
