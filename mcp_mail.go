package main

// mcp_mail.go owns the mail of an MCP client: the ATM tools called for an agent
// or in the client's own name, and agent_mail, the switch of automatic mail.
// callTool runs them on the reading goroutine; files are waited for in a
// goroutine of their own. It must never decide who may act as whom: the hub
// does, and what it refuses is audited all the same.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// mailTools are the rows of the ATM tools.
func mailTools() []tool {
	var rows []tool
	for _, s := range atmToolSpecs() {
		who, args := "You write as yourself (client_identity; in Claude Code as the team's lead), or as an agent open here: agent_id or identity.", s.Args
		if looksIntoInbox(s.Name) {
			who = "Without agent_id and identity it is your own inbox (client_identity; in Claude Code the team lead's), else that of the agent; inbox looks into any member's, and marks nothing there."
			args = slices.Concat(args, []argSpec{{name: "inbox", kind: "string", text: "Whose inbox, if not the agent's or your own: a member's name."}})
		}
		rows = append(rows, tool{
			name: s.Name, title: s.Title, description: s.Description + " " + who,
			args:     slices.Concat(args, refArgs("The agent that is meant.")),
			required: s.Required,
			output:   `{"type":"object","properties":{` + s.Output + `,` + errorSchema + `}}`,
			hints:    s.Hints,
			audited:  true,
			run:      func(f *mcpFront, c *mcpCall, a toolArgs) { f.callMail(c, s.Name, a) },
		})
	}
	return rows
}

func (f *mcpFront) callMail(c *mcpCall, tool string, a toolArgs) {
	refused := f.oneAgent(a)
	ref, e := a.agent()
	if refused == nil {
		refused = e
	}
	inbox := strings.TrimSpace(a.str("inbox"))
	switch err := validIdentity(inbox); {
	case refused != nil:
	case a.has("inbox") && err != nil:
		refused = invalidSession("inbox: %v", err)
	}
	asked := cmp.Or(inbox, strings.TrimSpace(a.str("identity"))) // for the audit trail of a refusal
	delete(a, "inbox")
	f.mu.Lock()
	c.waiter = f.nextWaiter() // nobody waits for it: it only names the call in log and audit
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	f.stoppable(c, cancel)
	queue := f.lines.enter(tool)
	if !f.spawn(func() {
		defer cancel()
		who := atmCaller{Identity: asked, Refused: refused}
		if refused == nil {
			if who, refused = f.mailAs(ref, inbox); refused != nil {
				who = atmCaller{Identity: asked, Refused: refused}
			}
		}
		who.Correlation = f.correlation(c.waiter)
		leave := queue(who.Identity)
		if ctx.Err() != nil && who.Refused == nil {
			who.Refused = notBegun(tool)
		}
		structured, text, e := f.atm(ctx, who, tool, toJSON(a))
		leave()
		if e != nil {
			f.fail(c, e)
			return
		}
		if looksIntoInbox(tool) && f.ownMail != nil && strings.EqualFold(who.Identity, f.ownMail().Name) {
			f.finish(c, f.plainAnswer(c.modern, false, structured, text), nil) // it says itself what there is
		} else {
			f.finish(c, f.toolAnswer(c.modern, false, structured, text), nil)
		}
	}) {
		cancel()
		f.fail(c, shuttingDown())
	}
}

// callLines keep what one client sends in the order in which it was called for,
// each identity's by itself: else of two messages to one member the second could
// stand first in its inbox. Who only reads needn't wait for a locked inbox.
type callLines struct {
	mu      sync.Mutex               // guards the fields below
	queuing chan struct{}            // closed when the call that came last stands in its line
	last    map[string]chan struct{} // by identity: closed when the last call in its line has left it
}

// enter is called for each call as it comes. The function that it gives is
// called once, when it is known whose call it is: it waits until the call may
// begin, and leave lets the next one begin.
func (l *callLines) enter(tool string) func(identity string) (leave func()) {
	if tool != "atm_send" && tool != "atm_broadcast" {
		return func(string) func() { return func() {} }
	}
	l.mu.Lock()
	before, queued := l.queuing, make(chan struct{})
	l.queuing = queued
	l.mu.Unlock()
	return func(identity string) func() {
		if before != nil {
			<-before
		}
		line, left := strings.ToLower(identity), make(chan struct{})
		l.mu.Lock()
		if l.last == nil {
			l.last = map[string]chan struct{}{}
		}
		ahead := l.last[line]
		l.last[line] = left
		l.mu.Unlock()
		close(queued)
		if ahead != nil {
			<-ahead
		}
		return func() {
			l.mu.Lock()
			if l.last[line] == left {
				delete(l.last, line)
			}
			l.mu.Unlock()
			close(left)
		}
	}
}

// notBegun is why a call that was cancelled while it stood in line isn't done.
func notBegun(tool string) *rpcError {
	return proxyError(codeTimeout, tool+" was cancelled before it began; nothing was done")
}

func (f *mcpFront) callAgentMail(c *mcpCall, a toolArgs) {
	ref, e := a.target("switch the automatic mail of")
	if e == nil && !a.has("auto") {
		e = invalidSession("no auto: give true, so that mail starts turns of the agent, or false, so that it waits unread")
	}
	if e != nil {
		f.fail(c, e)
		return
	}
	f.setMail(ref, a.yes("auto"), func(v sessionView, e *rpcError) {
		if e != nil {
			f.fail(c, e)
			return
		}
		f.finish(c, f.agentMailAnswer(&v, c.modern), nil)
	})
}

func (f *mcpFront) agentMailAnswer(v *sessionView, modern bool) json.RawMessage {
	text := fmt.Sprintf("Automatic mail of agent %s (identity %s) is %s.", v.AgentID, v.Identity, v.AutoMail)
	if v.PendingMail != nil {
		text += fmt.Sprintf(" Unread messages: %d.", *v.PendingMail)
	}
	return f.toolAnswer(modern, false, struct {
		AgentID  string `json:"agent_id"`
		Identity string `json:"identity"`
		AutoMail string `json:"auto_mail"`
		Pending  *int   `json:"pending_mail,omitempty"`
	}{v.AgentID, v.Identity, v.AutoMail, v.PendingMail}, text)
}
