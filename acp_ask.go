package main

// acp_ask.go owns the asking of an ACP client (FR-18): an approval becomes session/request_permission, a question a
// form or a page (elicitation/create) where the client has them, and what comes back a decision. The hub calls ask and
// askGone, and keeps the timer. Only the option that says yes, chosen among those offered, approves: an error,
// nonsense, an answer that the form didn't allow, a client that is gone or answers twice must never do. A secret never
// comes into a form.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxRuleShown is how many characters a rule may have to stand in an option.
const maxRuleShown = 100

// acpAsk is one question before the client.
type acpAsk struct {
	s     *acpSession
	a     agentRef
	w     waiterID // who waits for the turn that asks, 0 for nobody
	q     approval
	tool  string // the tool call that it is about, for the log
	since time.Time
}

// acpVerdict is what an answer comes to.
type acpVerdict struct {
	d       decision
	stop    bool                // the turn is to end as well
	answers map[string][]string // to questions
	mode    string              // in which a plan is to be carried out, "" for not at all
	words   string              // why not, as the tool call tells it
	by      decider             // whose word it is
}

// askUser puts an approval before the user of the agent's session. w waits for the turn that asks. false: this client
// can't be asked.
func askUser(f *acpFront, a agentRef, w waiterID, q approval) bool {
	o := &acpAsk{s: f.sessions.ofAgent(a.AgentID), a: a, w: w, q: q, since: time.Now()}
	switch {
	case o.s == nil || q.kind == askUnknown:
		return false
	case q.kind == askQuestion:
		return o.askQuestion()
	}
	options, call := permissionOptions(&o.q), o.announce()
	return o.send("session/request_permission", acpPermissionRequest{o.s.id, call, options},
		func(result json.RawMessage) acpVerdict { return readPermission(result, options) })
}

// askQuestion puts a form, or a page to open, before a client that said it has them. A secret has no place in a form
// (ACP forbids it), so what asks for one is declined with that word.
func (o *acpAsk) askQuestion() bool {
	s, q, f := o.s, &o.q, o.s.f
	if slices.ContainsFunc(q.questions, func(each question) bool { return each.secret }) {
		o.announce()
		s.enc.decide(q, deny, "it asks for a secret, which a form of the editor must not carry, so it was declined; "+
			"give the agent the secret another way, as in a file or a variable of its environment")
		f.decide(o.a.AgentID, q.id, decider{byUs, "a secret can't be asked for over ACP"}, deny, nil)
		return true
	}
	request := acpElicitation{Session: s.id, Message: questionMessage(q)}
	switch page := pageAsked(q); {
	case page != "" && f.client().urlElicitation:
		request.Mode, request.URL, request.ID = "url", page, q.id
	case f.client().formElicitation:
		request.Mode = "form"
		request.Schema = questionForm(q, formRules{required: true, checkbox: true, noHints: true})
	default:
		return o.askInWords()
	}
	o.announce()
	request.Call = o.tool
	return o.send("elicitation/create", request, func(result json.RawMessage) acpVerdict { return readForm(result, q) })
}

// announce makes sure that the client knows the tool call that the ask is about.
func (o *acpAsk) announce() (call json.RawMessage) {
	call = o.s.enc.announce(o.a, &o.q)
	o.tool = stringField(call, "toolCallId")
	return call
}

// send sends the request.
func (o *acpAsk) send(method string, params any, read func(json.RawMessage) acpVerdict) bool {
	f := o.s.f
	return f.askClient(o.q.id, method, params, func(result json.RawMessage, err error) {
		if err != nil {
			why := clip(err.Error(), 300)
			words := "the client answered with an error, which counts as no: " + why
			o.conclude(acpVerdict{words: words, by: decider{byError, why}})
			return
		}
		o.conclude(read(result))
	}, func(call int64, why string) { // the client is told, so that its dialog goes
		f.p.notify("$/cancel_request", map[string]any{"requestId": call})
		o.s.enc.decide(&o.q, deny, why)
	})
}

// conclude tells the agent, and the tool call first: what the child does after its yes must come behind it.
func (o *acpAsk) conclude(v acpVerdict) {
	f := o.s.f
	if v.by == (decider{}) {
		v.by.who = byUser
	}
	d := o.q.limit(v.d, v.by)
	f.Log.Debug("approval answered", "sessionId", o.s.id, "toolCallId", o.tool, "approval", o.q.id,
		"decision", d.String(), "latency_ms", time.Since(o.since).Milliseconds())
	o.s.enc.decide(&o.q, d, v.words)
	if !v.stop {
		f.decide(o.a.AgentID, o.q.id, v.by, d, v.answers)
		return
	}
	turn := o.q.turn
	if o.q.subagent != nil {
		turn = "" // its own turn is none of the session's: what runs is stopped with its whole tree
	}
	// The interrupt denies what is pending after it was sent. A no that came
	// first would let the turn go on, and be through before it is stopped.
	f.interrupt(o.a.AgentID, turn, func(r interruptResult, e *rpcError) {
		if e != nil || !r.Interrupted {
			f.decide(o.a.AgentID, o.q.id, v.by, deny, nil)
		}
	})
}

// acpPermissionRequest is the request.
type acpPermissionRequest struct {
	Session string          `json:"sessionId"`
	Call    json.RawMessage `json:"toolCall"`
	Options []acpPermission `json:"options"`
}

// acpPermission is one option of a permission request, and what it means.
type acpPermission struct {
	ID      string `json:"optionId"`
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	verdict acpVerdict
}

// permissionOptions are what a user can say, in the order in which clients show them. The rejection that lets the turn
// go on stands before the one that stops it, since clients take the first of a kind for their own no.
func permissionOptions(q *approval) []acpPermission {
	options := []acpPermission{{"allow_once", "Allow once", "allow_once", acpVerdict{d: approve}}}
	add := func(id, name, kind string, v acpVerdict) { options = append(options, acpPermission{id, name, kind, v}) }
	if q.forSession {
		add("allow_always", "Allow for this session", "allow_always", acpVerdict{d: approveForSession})
	}
	if rule := ruleText(q); rule != "" && clipChars(visible(rule), maxRuleShown) == rule { // one that is seen whole
		name := fmt.Sprintf("Always allow commands that begin with `%s`, in every session", rule)
		add("allow_rule", name, "allow_always", acpVerdict{d: approveAlways})
	}
	add("reject_once", "Reject and go on", "reject_once",
		acpVerdict{words: "rejected by the user; the agent was told and goes on"})
	add("reject_always", "Reject and stop the turn", "reject_always",
		acpVerdict{stop: true, words: "rejected by the user, who stopped the turn"})
	return options
}

// readPermission reads the client's answer. Nothing but an option that was offered can be a yes.
func readPermission(result json.RawMessage, offered []acpPermission) acpVerdict {
	outcome := rawField(result, "outcome")
	switch stringField(outcome, "outcome") {
	case "cancelled":
		return acpVerdict{stop: true, words: "cancelled"}
	case "selected":
		id := stringField(outcome, "optionId")
		if i := slices.IndexFunc(offered, func(o acpPermission) bool { return o.ID == id }); i >= 0 {
			return offered[i].verdict
		}
		return unclear("the client chose %q, which was not offered, so it counts as no", clip(id, 100))
	}
	return unclear("the client's answer can't be read, so it counts as no: %s", clip(string(result), 200))
}

// unclear is the no of an answer that says nothing else clearly.
func unclear(format string, args ...any) acpVerdict {
	return acpVerdict{words: fmt.Sprintf(format, args...), by: decider{who: byUnclear}}
}

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
	// The action is a form's own message, what is to be opened, or the questions.
	if what := cmp.Or(q.action, askedText(q)); what != "" {
		lines = append(lines, what)
	}
	return cmp.Or(strings.Join(lines, "\n"), "The agent asks")
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
		return unclear("the client's answer can't be read, so it counts as no: %s", clip(string(result), 200))
	}
	answers := map[string][]string{}
	for _, each := range q.questions {
		given, ok := formAnswer(&each, rawField(result, "content", each.id))
		if !ok {
			return unclear("the answer to %q is none of those that were offered, so it counts as no",
				clip(each.text, 100))
		}
		if each.other && len(each.options) > 0 {
			if other := strings.TrimSpace(stringField(result, "content", each.id+otherField)); other != "" {
				given = append(given, other)
			}
		}
		if len(given) == 0 && !each.optional {
			return unclear("%q has no answer, so it counts as no", clip(each.text, 100))
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
	strange := func(each string) bool { return !slices.Contains(q.options, each) }
	if len(q.options) > 0 && !q.other && slices.ContainsFunc(given, strange) {
		return nil, false
	}
	return given, true
}
