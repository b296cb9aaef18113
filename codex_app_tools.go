package main

// codex_app_tools.go owns the dynamic tools of app-server threads: how they are
// told to Codex, and its calls of them (item/tool/call), each of which is
// answered exactly once: by the session, or with an error text when it is gone
// or takes too long, since Codex itself waits for ever. The driver calls it on
// the reading goroutine; answers come from anywhere. It must never answer with
// an error of the protocol: the model would read only "dynamic tool request failed".

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// dynamicTools are in the one form that all versions take: 0.104 ignores type,
// and every one wants a schema. What is more goes by namespaces, from 0.148 on.
func dynamicTools(tools []clientTool) []any {
	out := make([]any, 0, len(tools))
	for _, t := range tools {
		schema := t.Input
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out = append(out, map[string]any{"type": "function", "name": t.Name, "description": t.Description, "inputSchema": schema})
	}
	return out
}

// toolAnswer is the result of an item/tool/call.
func toolAnswer(text string, ok bool) any {
	return map[string]any{"success": ok, "contentItems": []any{map[string]any{"type": "inputText", "text": text}}}
}

// openTool is one call that waits for its result.
type openTool struct {
	reqID  json.RawMessage
	thread string
	name   string
	timer  *time.Timer
}

// openTools holds the open calls.
type openTools struct {
	prefix string // makes ids unique in this process over several children

	mu   sync.Mutex // guards the fields below
	next int
	open map[string]*openTool
	over bool
}

// add registers a call under a new id. late is called, with the id, after limit.
func (t *openTools) add(c *openTool, limit time.Duration, late func(id string)) (id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	id = t.prefix + strconv.Itoa(t.next)
	if t.over {
		return id // nobody is left to be answered
	}
	if t.open == nil {
		t.open = map[string]*openTool{}
	}
	t.open[id] = c
	c.timer = time.AfterFunc(limit, func() { late(id) })
	return id
}

// take removes a call, so that only the first answer counts.
func (t *openTools) take(id string) *openTool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeLocked(id)
}

func (t *openTools) takeLocked(id string) *openTool {
	c := t.open[id]
	if c != nil {
		delete(t.open, id)
		c.timer.Stop()
	}
	return c
}

// takeThread removes one call of a thread that nobody owns any more.
func (t *openTools) takeThread(thread string) *openTool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.open {
		if c.thread == thread {
			return t.takeLocked(id)
		}
	}
	return nil
}

// end forgets all calls: who made them is gone.
func (t *openTools) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for id := range t.open {
		t.takeLocked(id)
	}
}

// toolCall puts a call before the session that owns the tree, a subagent's too
// (of which no version makes any yet): it acts as its parent.
func (a *appServer) toolCall(t *tree, m *message) {
	c := &openTool{reqID: m.id, thread: stringField(m.params, "threadId"), name: stringField(m.params, "tool")}
	id := a.tools.add(c, a.o.ToolLimit, a.toolLate)
	t.put(event{kind: evTool, thread: c.thread, turn: stringField(m.params, "turnId"), item: stringField(m.params, "callId"), must: true,
		tool: &toolCall{id: id, name: c.name, args: rawField(m.params, "arguments")}, method: m.method, raw: m.params})
	if a.wood.owner(c.thread) != t { // unloaded meanwhile: nobody heard of it
		a.voidTool(a.tools.take(id))
	}
}

// toolResult answers a call; a second answer is dropped.
func (a *appServer) toolResult(id, text string, ok bool) {
	if c := a.tools.take(id); c != nil {
		a.peer.reply(c.reqID, toolAnswer(text, ok))
	}
}

func (a *appServer) toolLate(id string) {
	if c := a.tools.take(id); c != nil {
		a.log.Warn("a tool of the agent was not answered in time", "tool", c.name, "thread", c.thread, "limit", a.o.ToolLimit)
		a.peer.reply(c.reqID, toolAnswer(fmt.Sprintf("%s had no result within %s; it may or may not have been done, so look before you call it again", c.name, a.o.ToolLimit), false))
	}
}

// voidTools answers the calls of a thread whose session is gone.
func (a *appServer) voidTools(thread string) {
	for c := a.tools.takeThread(thread); c != nil; c = a.tools.takeThread(thread) {
		a.voidTool(c)
	}
}

func (a *appServer) voidTool(c *openTool) {
	if c != nil {
		a.peer.reply(c.reqID, toolAnswer("the session of this agent has ended, so "+c.name+" can't be answered", false))
	}
}
