package main

// session_front.go owns what the MCP and the ACP front have alike: how the hub talks to a front, the client's stream
// with the goroutines that work for it and the order in which both end, what the client was asked and has not
// answered, the names of waiters and of their turns in the audit trail, and the form for an agent's questions. mcp.go
// and acp.go embed clientLink. This file knows no method of either protocol. Nothing in it may wait but flush and the
// stream's end, and no reading goroutine calls those.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// front is the way up: an MCP or ACP client. Every method returns at once.
type front interface {
	// event offers an event of a session to the client; w is the waiter of the turn it belongs to, 0 for none. e is
	// valid during the call only. false: it was dropped.
	event(a agentRef, w waiterID, e *event) bool
	// ask puts an approval before the client. false: this client can't be asked, so the approval is declined at once.
	ask(a agentRef, w waiterID, q approval) bool
	// askGone withdraws an ask that was put: decided elsewhere, or timed out.
	askGone(a agentRef, ask, why string)
	// done gives a waiter its result, exactly once.
	done(w waiterID, r turnResult)
}

// agentRef is what a front may show of a session.
type agentRef struct {
	AgentID  string
	Thread   string
	Identity string
}

// clientOptions are what both fronts are made with. They are fixed before run is called.
type clientOptions struct {
	Names   *names // the words that the client is spoken to with, nil for ours
	R       io.Reader
	W       io.Writer
	Log     *slog.Logger
	Version string // this program's, as clients are told it
	Trace   func(dir string, rec []byte)
	Deaf    func() // called when the client has closed its reading side; may be nil

	// The hub's functions. session_hub.go says what each of them promises; interrupt answers from another goroutine,
	// once.
	submit    func(req turnRequest, w waiterID)
	cancel    func(w waiterID)
	decide    func(agentID, ask string, by decider, d decision, answers map[string][]string)
	interrupt func(ref, turn string, done func(interruptResult, *rpcError))
	status    func() statusView
}

// clientLink is the link to the one client of a front.
type clientLink struct {
	p     *peer
	name  string        // of the protocol, as correlations begin: mcp or acp
	named atomic.Uint64 // waiters so far
	jobs  workGroup     // what may wait for Codex or the disk

	asking sync.Mutex            // guards the field below; nothing is called under it
	asks   map[string]*clientAsk // by the id of the approval: whoever takes one out first decides it
}

// clientAsk is a request that asks the client to decide an approval.
type clientAsk struct {
	call int64
	gone func(call int64, why string) // called if nobody needs the answer any more
}

// connect starts the writing goroutine of the client's stream, which p.closeOut ends. p is all that the protocols don't
// have alike.
func (l *clientLink) connect(name string, o clientOptions, p peerOptions) {
	l.name, l.asks = name, map[string]*clientAsk{}
	p.strict, p.trace = true, o.Trace
	p.onWriteErr = func(err error) {
		o.Log.Warn("the client no longer reads", "err", err)
		if o.Deaf != nil {
			o.Deaf()
		}
	}
	l.p = newPeer(o.R, o.W, p)
}

// run reads the client's stream until it ends. What is open then is the hub's to end: a front only stops hearing.
func (l *clientLink) run() error {
	if err := l.p.run(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading from the client: %w", err)
	}
	return nil
}

// flush waits until what was answered has left, for at most limit. Requests are still taken after it.
func (l *clientLink) flush(limit time.Duration) { l.p.flush(limit) }

// askClient asks the client to decide an approval. done takes the answer, unless the ask was withdrawn, which gone is
// told, or the client is gone: then the hub denies all. false: the client is gone already.
func (l *clientLink) askClient(ask, method string, params any, done func(result json.RawMessage, err error),
	gone func(call int64, why string)) bool {
	o := &clientAsk{l.p.reserve(), gone}
	l.asking.Lock()
	l.asks[ask] = o // before the client can answer
	l.asking.Unlock()
	return l.p.callAs(o.call, method, params, 0, func(result json.RawMessage, err error) {
		if l.takeAsk(ask) != nil && err != errPeerGone {
			done(result, err)
		}
	})
}

// takeAsk removes an ask; nil: somebody has before.
func (l *clientLink) takeAsk(ask string) *clientAsk {
	l.asking.Lock()
	defer l.asking.Unlock()
	o := l.asks[ask]
	delete(l.asks, ask)
	return o
}

// withdrawAsk takes an ask back whose answer nobody needs any more. What the client answers to it is heard by nobody.
func (l *clientLink) withdrawAsk(ask, why string) {
	if o := l.takeAsk(ask); o != nil {
		l.p.abandon(o.call)
		o.gone(o.call, why)
	}
}

// nextWaiter names somebody who waits for a turn.
func (l *clientLink) nextWaiter() waiterID { return waiterID(l.named.Add(1)) }

// correlation names a waiter's turn in the audit trail and the log, "" for none.
func (l *clientLink) correlation(w waiterID) string {
	if w == 0 {
		return "" // it started no turn
	}
	return l.name + "-" + strconv.FormatUint(uint64(w), 10)
}

// idInUse refuses a request whose id another one has that is still open.
func idInUse(id []byte) *rpcError {
	return &rpcError{Code: codeInvalidRequest, Message: fmt.Sprintf("Invalid Request: id %s is already in use by a "+
		"request that is still open", id)}
}

// ruleText is the proposed rule as a command begins, "" without one.
func ruleText(q *approval) string {
	if len(q.rule) == 0 {
		return ""
	}
	return commandLine(toJSON(q.rule))
}

// askedText is what the drivers make an action of.
func askedText(q *approval) string {
	var lines []string
	for _, each := range q.questions {
		lines = append(lines, each.text)
	}
	return strings.Join(lines, "\n")
}

// otherField, behind a question's id, is the field for an answer beside its options.
const otherField = "_other"

// otherHint is what stands at that field.
const otherHint = "or an answer in words of your own"

// formRules are what the forms of the two protocols don't have alike. Without them
// no field is required, since Claude Code's dialog can't pass over a required choice.
type formRules struct {
	required bool // a question that needs an answer has a required field
	checkbox bool // a question for yes or no is a checkbox
	noHints  bool // a list says by itself that several may be chosen; what its options mean stands above it
}

// formField is one field of a form.
type formField struct {
	Type  string     `json:"type"`
	Title string     `json:"title,omitempty"`
	Text  string     `json:"description"`
	Items *formItems `json:"items,omitempty"`
	Enum  []string   `json:"enum,omitempty"`
}

// formItems are what a field for several choices offers.
type formItems struct {
	Type string   `json:"type"`
	Enum []string `json:"enum"`
}

// questionForm is the form for questions: a choice is an enum, several are a list,
// and an answer beside the options has a field of its own.
func questionForm(q *approval, rules formRules) json.RawMessage {
	b := []byte(`{"type":"object","properties":{`)
	add := func(id string, f formField) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(appendJSONString(b, id), ':'), toJSON(f)...)
	}
	var required []string
	for _, each := range q.questions {
		f := formField{Type: "string", Title: each.header, Text: each.text}
		if !rules.noHints {
			f.Text += each.hint()
		} else if strings.Join(each.about, "") != "" {
			f.Text += "\n- " + strings.Join(each.choices(), "\n- ")
		}
		choice := len(each.options) > 0
		switch {
		case rules.checkbox && each.yesNo():
			f.Type = "boolean"
		case choice && each.several && !each.flat:
			f.Type, f.Items = "array", &formItems{Type: "string", Enum: each.options}
		case choice && each.several: // an enum would forbid a second choice
			f.Text += ": " + strings.Join(each.options, ", ")
		case choice:
			f.Enum = each.options
		case each.several && rules.noHints:
			f.Text += " (several may be given, separated by commas)"
		}
		add(each.id, f)
		if each.other && choice {
			add(each.id+otherField, formField{Type: "string", Text: otherHint})
		} else if !each.optional {
			required = append(required, each.id)
		}
	}
	b = append(b, '}')
	if rules.required && len(required) > 0 {
		b = append(append(b, `,"required":`...), toJSON(required)...)
	}
	return append(b, '}')
}

// yesNo reports a question for yes or no.
func (q *question) yesNo() bool {
	return !q.several && !q.other && len(q.options) == 2 && q.options[0] == "true" && q.options[1] == "false"
}

// chosen are the options that one line names, or the line itself.
func chosen(q *question, line string) []string {
	if !q.several {
		return []string{line}
	}
	var out []string
	for _, word := range strings.Split(line, ",") {
		word = strings.TrimSpace(word)
		if len(q.options) > 0 && !q.other && !slices.Contains(q.options, word) {
			return []string{line} // an option with a comma of its own, or none
		}
		out = append(out, word)
	}
	return out
}
