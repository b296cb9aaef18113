package main

// acp_client_test.go is the ACP client that tests of whole processes drive the
// program with: sessions, prompts, permissions, what was told meanwhile. It keeps
// the dialogue, and judges it by acp_check_test.go when it is finished.

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// acpPeer is a client of one `atm-agent-mcp acp`.
type acpPeer struct {
	*testClient
	schema *jsonSchema
	hello  map[string]any // initialize's result
	cwd    string

	logging sync.Mutex // guards log
	log     []acpEntry
}

// startACP starts the program as an ACP agent and initializes it.
func startACP(tb testing.TB, cfg peerConfig, capabilities map[string]any) *acpPeer {
	tb.Helper()
	p := &acpPeer{schema: acpSchema(tb), cwd: cfg.dir}
	p.testClient = startClient(tb, cfg)
	p.tap = func(ours bool, raw []byte) {
		v, _ := decodeJSON(raw) // what is no JSON is a stray, and nil no message
		p.logging.Lock()
		p.log = append(p.log, acpEntry{ours, v})
		p.logging.Unlock()
	}
	p.start("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": capabilities,
		"clientInfo": map[string]any{"name": "suite", "version": "1"}}).result(&p.hello)
	return p
}

// acpSetUp is the answer to session/new, load and resume.
type acpSetUp struct {
	SessionID string `json:"sessionId"`
	Modes     struct {
		Current string `json:"currentModeId"`
	}
	ConfigOptions []acpChoice
}

// acpChoice is one config option.
type acpChoice struct {
	ID           string
	CurrentValue any
	Options      []struct{ Value, Name string }
}

// value is what an option stands at, "" where there is none.
func (s *acpSetUp) value(id string) string {
	for _, o := range s.ConfigOptions {
		if o.ID == id {
			v, _ := o.CurrentValue.(string)
			return v
		}
	}
	return ""
}

// open makes a session in the peer's directory.
func (p *acpPeer) open(servers ...any) acpSetUp {
	p.tb.Helper()
	if servers == nil {
		servers = []any{}
	}
	var s acpSetUp
	p.start("session/new", map[string]any{"cwd": p.cwd, "mcpServers": servers}).result(&s)
	if !strings.HasPrefix(s.SessionID, "sess_") {
		p.tb.Fatalf("session/new gave the id %q", s.SessionID)
	}
	return s
}

// prompt sends a prompt of one text.
func (p *acpPeer) prompt(session, text string) *pendingCall {
	p.tb.Helper()
	return p.start("session/prompt", map[string]any{"sessionId": session, "prompt": []any{map[string]any{"type": "text", "text": text}}})
}

// ends waits for a prompt's answer, which must be this stop reason.
func (p *acpPeer) ends(call *pendingCall, want string) {
	p.tb.Helper()
	var r struct{ StopReason string }
	call.result(&r)
	if r.StopReason != want {
		p.tb.Fatalf("the prompt ended with %q, want %q%s", r.StopReason, want, p.told())
	}
}

// say runs a prompt to its end and returns what the agent said.
func (p *acpPeer) say(session, text string) string {
	p.tb.Helper()
	before := len(p.updates(session))
	p.ends(p.prompt(session, text), "end_turn")
	return spoken(p.updates(session)[before:])
}

// acpUpdate is one session/update.
type acpUpdate struct {
	Kind       string `json:"sessionUpdate"`
	Content    json.RawMessage
	MessageID  string          `json:"messageId"`
	ToolCallID string          `json:"toolCallId"`
	Title      string          `json:"title"`
	ToolKind   string          `json:"kind"`
	Status     string          `json:"status"`
	RawInput   json.RawMessage `json:"rawInput"`
	RawOutput  json.RawMessage `json:"rawOutput"`
	Locations  []struct{ Path string }
}

// updates are those of a session so far.
func (p *acpPeer) updates(session string) (out []acpUpdate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.notes {
		var params struct {
			SessionID string
			Update    json.RawMessage
		}
		if n.Method != "session/update" || json.Unmarshal(n.Params, &params) != nil || params.SessionID != session {
			continue
		}
		u := acpUpdate{}
		if err := json.Unmarshal(params.Update, &u); err != nil {
			p.tb.Errorf("an update that can't be read (%v): %s", err, params.Update)
		}
		out = append(out, u)
	}
	return out
}

// spoken is the agent's text in updates.
func spoken(updates []acpUpdate) string {
	var b strings.Builder
	for _, u := range updates {
		if u.Kind == "agent_message_chunk" {
			b.WriteString(stringField(u.Content, "text"))
		}
	}
	return b.String()
}

// acpCallSeen is a tool call as its updates made it.
type acpCallSeen struct {
	acpUpdate
	path []string // of statuses
}

// shown is the text that any client shows of the call.
func (c *acpCallSeen) shown() string {
	var b strings.Builder
	eachElement(c.Content, func(block json.RawMessage) { b.WriteString(stringField(block, "content", "text")) })
	return b.String()
}

// tools are the calls in updates, in the order they were announced.
func toolsIn(updates []acpUpdate) (out []*acpCallSeen) {
	byID := map[string]*acpCallSeen{}
	for _, u := range updates {
		if u.Kind != "tool_call" && u.Kind != "tool_call_update" {
			continue
		}
		c := byID[u.ToolCallID]
		if c == nil {
			c = &acpCallSeen{acpUpdate: u}
			byID[u.ToolCallID] = c
			out = append(out, c)
		} else {
			merged := c.acpUpdate
			for dst, src := range map[*string]string{&merged.Title: u.Title, &merged.ToolKind: u.ToolKind, &merged.Status: u.Status} {
				if src != "" {
					*dst = src
				}
			}
			for dst, src := range map[*json.RawMessage]json.RawMessage{&merged.Content: u.Content, &merged.RawInput: u.RawInput, &merged.RawOutput: u.RawOutput} {
				if src != nil {
					*dst = src
				}
			}
			if u.Locations != nil {
				merged.Locations = u.Locations
			}
			c.acpUpdate = merged
		}
		if u.Status != "" {
			c.path = append(c.path, u.Status)
		}
	}
	return out
}

// permit answers the next permission request by the option of that kind, or as
// cancelled where kind is "", and returns the request's params.
func (p *acpPeer) permit(kind string) json.RawMessage {
	p.tb.Helper()
	ask := p.awaitAsk("session/request_permission")
	if kind == "" {
		p.reply(ask, map[string]any{"outcome": map[string]any{"outcome": "cancelled"}})
		return ask.Params
	}
	id := ""
	eachElement(rawField(ask.Params, "options"), func(o json.RawMessage) {
		if stringField(o, "kind") == kind {
			id = stringField(o, "optionId")
		}
	})
	if id == "" {
		p.tb.Fatalf("no option of the kind %s in %s", kind, ask.Params)
	}
	p.reply(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": id}})
	return ask.Params
}

// set sets a config option and returns the full state.
func (p *acpPeer) set(session, id, value string) acpSetUp {
	p.tb.Helper()
	var s acpSetUp
	p.start("session/set_config_option", map[string]any{"sessionId": session, "configId": id, "value": value}).result(&s)
	return s
}

// judge holds the dialogue so far against schema and rules.
func (p *acpPeer) judge() {
	p.tb.Helper()
	p.logging.Lock()
	defer p.logging.Unlock()
	for _, problem := range acpProblems(p.schema, p.log) {
		p.tb.Errorf("%s: %s", p.name, problem)
	}
}

// finish hangs up, and wants a clean end, no process and a dialogue by the book.
func (p *acpPeer) finish() {
	p.tb.Helper()
	p.testClient.finish()
	p.judge()
}
