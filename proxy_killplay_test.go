package main

// proxy_killplay_test.go owns the client of proxy_kill_test.go: what it asks of the proxy
// that is to die, the point at which it dies, and the notes of what it was
// told. Its reading goroutine kills, so that a kill comes between two records.

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// silence is a command whose approval the client never answers.
const silence = "echo silence"

// killClient is one client of one proxy.
type killClient struct {
	*livePeer
	g *killGame

	mu      sync.Mutex // guards the fields below and everything in a killAgent
	lastID  int
	calls   map[string]*killCall
	records int // read
	writes  int // requests written
	dieAt   int // records after which it dies, 0 for never
	dieSent int // requests after which it dies, 0 for never
	dead    bool
	changed chan struct{} // closed and replaced with every answer
}

// killCall is one request.
type killCall struct {
	id    string
	what  string
	agent *killAgent // nil: it is new, or the call isn't about one
	turn  *killTurn  // nil: none
	close bool
	got   *wireMessage

	revives int // of a close: the agent's when it was asked for; a later one wins
}

// structured decodes an answer's structured content.
func (m wireMessage) structured(into any) {
	_ = json.Unmarshal(rawField(m.Result, "structuredContent"), into)
}

func (g *killGame) startClient(name string) *killClient {
	g.t.Helper()
	c := &killClient{g: g, calls: map[string]*killCall{}, changed: make(chan struct{})}
	live, err := startPeer(peerConfig{name: name, path: g.bin, args: g.args, env: g.env, dir: g.cwd, limit: waitLimit(g.t), onRecord: c.read})
	if err != nil {
		g.t.Fatal(err)
	}
	c.livePeer = live
	c.wait(c.call("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo": map[string]any{"name": "kill", "version": "1"}}, nil))
	return c
}

// read notes one record, and kills if it was the one.
func (c *killClient) read(raw []byte) {
	var m wireMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		c.g.t.Errorf("%s wrote no JSON: %s", c.name, raw)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records++
	if m.Method != "codex/event" {
		c.g.noteLocked("> ", raw)
	}
	if c.records == c.dieAt {
		c.killLocked()
	}
	switch {
	case m.Method == "elicitation/create":
		c.meetLocked(stringField(m.Params, "agent_id"))
		switch {
		case strings.Contains(string(m.Params), silence): // never answered
		case c.g.rnd.IntN(3) == 0:
			c.sendLocked(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": map[string]any{"action": "decline"}})
		default:
			c.sendLocked(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": map[string]any{"action": "accept", "content": map[string]any{}}})
		}
	case m.Method != "":
		c.meetLocked(stringField(m.Params, "_meta", "agent_id"))
	default:
		c.answerLocked(&m)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// meetLocked notes an agent that the client has heard of.
func (c *killClient) meetLocked(id string) *killAgent {
	if id == "" {
		return nil
	}
	a := c.g.agents[id]
	if a == nil {
		a = &killAgent{id: id}
		c.g.agents[id] = a
		c.g.order = append(c.g.order, a)
	}
	a.touched = true
	return a
}

func (c *killClient) answerLocked(m *wireMessage) {
	call := c.calls[string(m.ID)]
	if call == nil {
		c.g.t.Errorf("%s answered nobody: %s%s", c.name, m.Result, toJSON(m.Error))
		return
	}
	if call.got != nil {
		c.g.t.Errorf("%s answered %s twice", c.name, call.id)
	}
	call.got = m
	if call.turn == nil && !call.close {
		return
	}
	var r turnReply
	m.structured(&r)
	a := call.agent
	if call.turn != nil && call.turn.later && m.Error == nil {
		a.later = append(a.later, laterTurn{r.TurnID, len(a.turns)})
	} else if call.turn != nil && m.Error == nil {
		if a == nil {
			a = c.meetLocked(r.AgentID)
			a.turns = slices.Insert(a.turns, 0, call.turn) // its first, whatever was asked since its events told of it
		}
		a.named = a.named || strings.HasPrefix(r.Identity, "word-")
		call.turn.status = r.TurnStatus
		c.g.answers++
		a.ended++
		if r.TurnStatus != "completed" {
			c.g.cut++
		} else if r.Content != call.turn.word {
			c.g.t.Errorf("%s: %s was answered %q, want %q", c.name, r.AgentID, r.Content, call.turn.word)
		}
	}
	if call.close && m.Error == nil && a.revives == call.revives {
		a.closed, a.closing, a.stuck = true, false, false
	}
}

// killLocked kills the proxy, and nothing but it: what it started has to end by
// itself.
func (c *killClient) killLocked() {
	if !c.dead {
		c.dead = true
		c.g.noteLocked("killed ", []byte(c.name))
		_ = c.cmd.Process.Kill()
	}
}

func (c *killClient) kill() {
	c.mu.Lock()
	c.killLocked()
	c.mu.Unlock()
}

// armKill picks the point: after so many records from now, or right after so
// many requests.
func (c *killClient) armKill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.g.rnd.IntN(3) == 0 {
		c.dieSent = c.writes + 1 + c.g.rnd.IntN(12)
		return
	}
	c.dieAt = c.records + 1 + c.g.rnd.IntN(70)
}

func (c *killClient) sendLocked(v any) {
	rec := []byte(compact(v))
	c.g.noteLocked("< ", rec)
	if err := c.write(rec); err != nil && !c.dead {
		c.g.t.Error(err)
	}
	if c.writes++; c.writes == c.dieSent {
		c.killLocked()
	}
}

// call sends a request.
func (c *killClient) call(method string, params any, call *killCall) *killCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call == nil {
		call = &killCall{}
	}
	c.lastID++
	call.what = compact(params)
	call.id = strconv.Itoa(c.lastID)
	c.calls[call.id] = call
	if a := call.agent; a != nil {
		a.touched = true
		if call.turn != nil {
			a.turns = append(a.turns, call.turn)
		}
	}
	c.sendLocked(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(call.id), "method": method, "params": params})
	return call
}

func (c *killClient) tool(name string, args map[string]any, call *killCall) *killCall {
	return c.call("tools/call", map[string]any{"name": name, "arguments": args}, call)
}

// turnSaying is a turn whose prompt's last line is SAY word.
func (c *killClient) start(prompt string, named string) *killCall {
	args := map[string]any{"prompt": prompt}
	if named != "" {
		args["identity"] = named
	}
	return c.tool("codex", args, &killCall{turn: &killTurn{word: lastWord(prompt)}})
}

func (c *killClient) reply(a *killAgent, prompt string) *killCall {
	return c.tool("codex-reply", map[string]any{"agent_id": a.id, "prompt": prompt}, &killCall{agent: a, turn: &killTurn{word: lastWord(prompt)}})
}

func (c *killClient) later(a *killAgent, prompt string) *killCall {
	return c.tool("codex-reply", map[string]any{"agent_id": a.id, "prompt": prompt, "background": true}, &killCall{agent: a, turn: &killTurn{word: lastWord(prompt), later: true}})
}

func (c *killClient) revive(a *killAgent, prompt string) *killCall {
	c.mu.Lock()
	a.closed, a.closing = false, true // it may stay closed if nobody comes to it
	a.revives++
	c.mu.Unlock()
	return c.tool("codex", map[string]any{"agent_id": a.id, "prompt": prompt, "tag": prompt}, &killCall{agent: a, turn: &killTurn{word: lastWord(prompt)}})
}

func (c *killClient) closeAgent(a *killAgent) *killCall {
	c.mu.Lock()
	a.closing = true
	revives := a.revives
	c.mu.Unlock()
	return c.tool("agent_close", map[string]any{"agent_id": a.id}, &killCall{agent: a, close: true, revives: revives})
}

func (c *killClient) cancel(call *killCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendLocked(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": json.RawMessage(call.id)}})
}

// wait waits for an answer; there is none from a proxy that was killed.
func (c *killClient) wait(call *killCall) wireMessage {
	c.g.t.Helper()
	timer := time.NewTimer(c.limit)
	defer timer.Stop()
	for {
		over := c.gone() // asked first: then got is all there will be
		c.mu.Lock()
		got, changed, dead := call.got, c.changed, c.dead
		c.mu.Unlock()
		switch {
		case got != nil:
			return *got
		case over && dead:
			return wireMessage{Error: &wireFault{Message: "killed"}}
		case over:
			c.g.t.Fatalf("%s ended by itself (%s)\n%s", c.name, exitReason(c.cmd.ProcessState), c.stderr.String())
		}
		select {
		case <-changed:
		case <-c.exited:
		case <-timer.C:
			c.g.t.Fatalf("%s: waited %v for the answer to %s\n%s", c.name, c.limit, call.what, c.stderr.String())
		}
	}
}

// settle takes in what the end left open. The reading goroutine has ended.
func (c *killClient) settle() {
	for _, call := range c.calls {
		if call.got == nil && call.turn != nil {
			c.g.cut++
		}
	}
}

// play does random things until the proxy is dead or there is nothing more to
// do.
func (c *killClient) play() {
	g := c.g
	var hanging []*killCall
	for range 8 + c.intN(16) {
		c.mu.Lock()
		dead := c.dead
		c.mu.Unlock()
		if dead {
			return
		}
		word := g.word()
		a := c.pick()
		var call *killCall
		mayWait := true
		switch n := c.intN(20); {
		case a == nil || n < 3:
			named := ""
			if c.intN(3) == 0 {
				named = word
			}
			call = c.start("SAY "+word, named)
		case n < 8:
			call = c.reply(a, "SAY "+word)
			mayWait = !c.isStuck(a)
		case n < 10: // its acceptance waits for no turn
			call = c.later(a, "SAY "+word)
		case n < 13: // the client's answer may be no, or never come
			what := "true"
			if c.intN(3) == 0 {
				what = silence
				c.mu.Lock()
				a.stuck = true
				c.mu.Unlock()
			}
			call = c.reply(a, "SHELLESC "+what+"\nSAY "+word)
			mayWait = !c.isStuck(a)
		case n < 14:
			call = c.reply(a, "BACKGROUND exec sleep 1000\nSAY "+word)
			mayWait = !c.isStuck(a)
		case n < 16:
			hanging = append(hanging, c.reply(a, []string{"HANG", "SHELL exec sleep 1000"}[c.intN(2)]+"\nSAY "+word))
			c.mu.Lock()
			a.stuck = true
			c.mu.Unlock()
			mayWait = false
		case n < 17:
			if len(hanging) > 0 {
				c.cancel(hanging[0])
				hanging = hanging[1:]
			}
			continue
		case n < 19:
			call = c.closeAgent(a)
		default:
			call = c.revive(a, "SAY "+word)
			mayWait = !c.isStuck(a)
		}
		if call != nil && mayWait && c.intN(3) > 0 {
			c.wait(call)
		}
	}
	if c.intN(2) == 0 {
		c.hangup() // dies on its way out
	}
}

// intN is the generator for who doesn't hold the lock.
func (c *killClient) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.g.rnd.IntN(n)
}

// pick is one of the newest agents, nil if there is none.
func (c *killClient) pick() *killAgent {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest := c.g.order[max(0, len(c.g.order)-6):]
	if len(newest) == 0 {
		return nil
	}
	return newest[c.g.rnd.IntN(len(newest))]
}

func (c *killClient) isStuck(a *killAgent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return a.stuck
}

// lastWord is what a prompt has the agent say at its end.
func lastWord(prompt string) string {
	for i := len(prompt) - 1; i >= 0; i-- {
		if prompt[i] == ' ' {
			return prompt[i+1:]
		}
	}
	return prompt
}

// noteLocked keeps what was said, for a failure's message.
func (g *killGame) noteLocked(who string, rec []byte) {
	g.said = append(g.said, who+clipText(string(rec), 300))
	g.said = g.said[max(0, len(g.said)-80):]
}
