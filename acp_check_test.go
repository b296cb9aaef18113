package main

// acp_check_test.go owns what judges a dialogue with an ACP client, and the client
// of tests of whole processes, which keeps its dialogue and has it judged. Every
// message of ours is held to the v1 schema of npm @agentclientprotocol/sdk, from the
// cache that .ci/run fills, and to the rules that no schema has: tool calls announced
// once, closed before the prompt's answer and not reopened, their terminals with them,
// nothing of a turn after its answer, permissions about announced calls, each request answered once. Scripts,
// both rigs of acp_rig_test.go, the real-Codex suite and the benchmarks call it.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// acpSchema is nil where the cache has none: the rules are checked all the same. It is
// the stable schema with what we tell beyond it: what a prompt has used, session/fork
// and session/set_title, as the unstable one has them, and the type that a login method of the agent's has if nothing
// is said.
func acpSchema(t testing.TB) *jsonSchema {
	t.Helper()
	var s [2]jsonSchema
	for i, name := range []string{"schema.json", "schema.unstable.json"} {
		text, err := os.ReadFile(filepath.Join(".cache", "acp-clients", "node_modules", "@agentclientprotocol", "sdk",
			"schema", "v1", name))
		if os.IsNotExist(err) {
			return nil
		}
		wantNil(t, err)
		s[i], err = parseSchema(text)
		wantNil(t, err)
	}
	member := func(def, name string, of any) {
		s[0].defs()[def].(map[string]any)["properties"].(map[string]any)[name] = of
	}
	for _, def := range []string{"Usage", "ForkSessionResponse", "SessionForkCapabilities", "SetSessionTitleResponse",
		"SessionTitleCapabilities"} {
		s[0].defs()[def] = s[1].defs()[def]
	}
	member("SessionCapabilities", "fork", map[string]any{"$ref": "#/$defs/SessionForkCapabilities"})
	member("SessionCapabilities", "title", map[string]any{"$ref": "#/$defs/SessionTitleCapabilities"})
	member("PromptResponse", "usage", map[string]any{"$ref": "#/$defs/Usage"})
	member("AuthMethodAgent", "type", map[string]any{"const": "agent"})
	wantNil(t, s[0].vet(s[0].root, "schema", 0))
	return &s[0]
}

// TestACPSchema says whether what we send is held against the schema.
func TestACPSchema(t *testing.T) {
	s := acpSchema(t)
	if s == nil {
		t.Skip("no ACP schema in .cache/acp-clients, so only the rules are checked; .ci/run puts it there")
	}
	for method, def := range map[string]string{"session/update": "SessionNotification",
		"session/request_permission": "RequestPermissionRequest", "elicitation/create": "CreateElicitationRequest"} {
		if got := s.byMethod(method, "Notification", "Request"); got != def {
			t.Errorf("the schema has %q for %s", got, method)
		}
	}
}

// acpReview goes through one dialogue.
type acpReview struct {
	schema   *jsonSchema
	records  int // so far
	problems []string
	methods  map[string]string // of the client's requests, by id
	answered map[string]bool
	prompts  map[string]string // session of an open session/prompt, by id
	loads    map[string]string // session of an open session/load
	sessions map[string]*acpTalk
}

// acpTalk is what was seen of one session.
type acpTalk struct {
	prompts, loads int
	mail           bool              // a turn runs that no prompt waits for: mail began it, or _session/steering
	calls          map[string]string // status by toolCallId
	terminals      map[string]bool   // the terminals of calls; true: no exit was told yet
	past           map[string]bool   // calls of answered turns
	messages       map[string]bool   // messageIds of answered turns
	current        map[string]bool
}

func newACPReview(schema *jsonSchema) *acpReview {
	return &acpReview{schema: schema, methods: map[string]string{}, answered: map[string]bool{},
		prompts: map[string]string{}, loads: map[string]string{}, sessions: map[string]*acpTalk{}}
}

// take judges the next record; ours: the client's, sent by the test.
func (r *acpReview) take(ours bool, rec json.RawMessage) {
	r.records++
	switch {
	case rawKind(rec) == '{' && ours:
		r.client(rec)
	case rawKind(rec) == '{':
		r.agent(rec)
	case !ours:
		r.bad("is no message")
	}
}

func (r *acpReview) bad(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf("record %d: ", r.records)+fmt.Sprintf(format, args...))
}

func (r *acpReview) session(id string) *acpTalk {
	if r.sessions[id] == nil {
		r.sessions[id] = &acpTalk{}
		r.sessions[id].forget()
	}
	return r.sessions[id]
}

// client notes what the client asked for.
func (r *acpReview) client(rec json.RawMessage) {
	method, id := stringField(rec, "method"), string(rawField(rec, "id"))
	if method == "" || id == "" {
		return
	}
	r.methods[id] = method
	delete(r.answered, id)
	session := stringField(rec, "params", "sessionId")
	switch s := r.session(session); method {
	case "session/prompt":
		r.prompts[id] = session
		s.prompts++
	case methodSteering:
		s.mail = true
	case "session/load":
		r.loads[id] = session
		if s.loads++; s.prompts == 0 { // else the load waits for their answers
			s.forget()
		}
	}
}

// agent judges one message of ours.
func (r *acpReview) agent(rec json.RawMessage) {
	if stringField(rec, "jsonrpc") != "2.0" {
		r.bad("jsonrpc is %s", rawField(rec, "jsonrpc"))
	}
	method, params := stringField(rec, "method"), rawField(rec, "params")
	switch {
	case method == "":
		r.answer(rec)
	case rawField(rec, "id") == nil:
		r.valid(method, "Notification", params)
		if method == "session/update" {
			r.update(r.session(stringField(params, "sessionId")), rawField(params, "update"))
		}
	default:
		r.valid(method, "Request", params)
		if method == "session/request_permission" {
			r.permission(r.session(stringField(params, "sessionId")), params)
		}
	}
}

// valid holds what goes with a method against the schema; what: which part of it.
func (r *acpReview) valid(method, what string, val json.RawMessage) {
	if r.schema == nil || strings.HasPrefix(method, "_") {
		return
	}
	def := "Error"
	if method != "" {
		def = r.schema.byMethod(method, what)
	}
	if def == "" {
		r.bad("the schema has no %s %q", what, method)
	} else if why := schemaSays(r.schema, def, val); why != "" {
		r.bad("%s", why)
	}
}

func (r *acpReview) answer(rec json.RawMessage) {
	result, failure, id := rawField(rec, "result"), rawField(rec, "error"), string(rawField(rec, "id"))
	if (failure == nil) == (result == nil) {
		r.bad("an answer must have either result or error")
	}
	if failure != nil {
		r.valid("", "", failure)
	}
	method, asked := r.methods[id]
	switch {
	case id == "null": // to what could not be read
		return
	case !asked && failure == nil:
		r.bad("answers id %s, which nobody asked", id)
		return
	case !asked:
		return
	case r.answered[id]:
		r.bad("answers id %s a second time", id)
	}
	r.answered[id] = true
	if result != nil {
		if method == "session/load" { // some clients want sessionId there too, which the schema leaves out
			var left map[string]json.RawMessage
			_ = json.Unmarshal(result, &left)
			delete(left, "sessionId")
			result = toJSON(left)
		}
		r.valid(method, "Response", result)
	}
	if session, ok := r.loads[id]; ok {
		delete(r.loads, id)
		s := r.session(session)
		if s.loads--; failure == nil {
			r.close(s, method)
		}
	}
	if session, ok := r.prompts[id]; ok {
		delete(r.prompts, id)
		s := r.session(session)
		s.prompts--
		// A prompt that was cancelled while another one runs has no turn to end.
		if s.prompts == 0 || stringField(result, "stopReason") != "cancelled" {
			r.close(s, method)
		}
		if s.loads > 0 { // it was waited for
			s.forget()
		}
	}
}

// forget is for a session/load, which replays all under the same ids.
func (s *acpTalk) forget() {
	s.calls, s.past, s.terminals = map[string]string{}, map[string]bool{}, map[string]bool{}
	s.messages, s.current = map[string]bool{}, map[string]bool{}
}

// close ends a turn: whatever it opened must be final.
func (r *acpReview) close(s *acpTalk, method string) {
	for id, status := range s.calls {
		if status != callDone && status != callFailed {
			r.bad("%s is answered while tool call %s is open", method, id)
		}
		s.past[id] = true
	}
	for id := range s.current {
		s.messages[id] = true
	}
	s.calls, s.current = map[string]string{}, map[string]bool{}
}

// update judges one session/update.
func (r *acpReview) update(s *acpTalk, u json.RawMessage) {
	kind, message := stringField(u, "sessionUpdate"), stringField(u, "messageId")
	switch kind {
	case "available_commands_update", "current_mode_update", "config_option_update", "session_info_update",
		"usage_update", "notice":
		return // of the session, not of a turn
	case userChunk:
		s.mail = s.mail || s.prompts == 0 && s.loads == 0
	}
	if s.prompts == 0 && s.loads == 0 && !s.mail {
		r.bad("%s while no prompt of the session is open", kind)
	}
	if s.messages[message] {
		r.bad("messageId %s belongs to a turn that was answered", message)
	}
	if message != "" {
		s.current[message] = true
	}
	call, status := stringField(u, "toolCallId"), stringField(u, "status")
	was, open := s.calls[call]
	order := []string{callPending, callRunning, callDone, callFailed}
	switch {
	case kind == callNew && (open || s.past[call]):
		r.bad("toolCallId %s is announced a second time", call)
	case kind == callNew:
		s.calls[call] = cmp.Or(status, callPending)
		if stringField(u, "title") == "" {
			r.bad("tool call %s has no title", call)
		}
	case kind != callNews:
	case !open:
		r.bad("tool_call_update for %s, which is not announced in this turn", call)
	case was == callDone || was == callFailed:
		r.bad("tool call %s is told again after it was %s", call, was)
	case status != "" && slices.Index(order, status) <= slices.Index(order, was):
		r.bad("tool call %s goes back from %s to %s", call, was, status)
	case status != "":
		s.calls[call] = status
	}
	r.terminal(s, kind, call, u)
	eachElement(rawField(u, "locations"), func(place json.RawMessage) {
		if path := stringField(place, "path"); !filepath.IsAbs(path) && path[:min(1, len(path))] != "/" {
			r.bad("location %q is not absolute", path)
		}
	})
}

// terminal judges what an update tells of terminals, each of which is its call's own.
func (r *acpReview) terminal(s *acpTalk, kind, call string, u json.RawMessage) {
	eachElement(rawField(u, "content"), func(block json.RawMessage) {
		if id := stringField(block, "terminalId"); id != "" && kind == callNew {
			s.terminals[id] = true
		} else if _, known := s.terminals[id]; id != "" && !known {
			r.bad("terminal %s is shown before its call was announced with it", id)
		}
	})
	meta := rawField(u, "_meta")
	if id := stringField(meta, "terminal_info", "terminal_id"); (kind == callNew && s.terminals[call]) != (id != "") {
		r.bad("a call with a terminal must be announced with terminal_info: %s", clip(string(u), 200))
	}
	for _, key := range []string{"terminal_output", "terminal_output_delta", "terminal_exit"} {
		if id := stringField(meta, key, "terminal_id"); id != "" && (id != call || !s.terminals[id]) {
			r.bad("%s of %q, which is no open terminal of the call", key, id)
		}
	}
	if rawField(meta, "terminal_exit") != nil {
		s.terminals[call] = false
	}
	if status := stringField(u, "status"); (status == callDone || status == callFailed) && s.terminals[call] {
		r.bad("tool call %s has ended and its terminal is open", call)
	}
}

func (r *acpReview) permission(s *acpTalk, params json.RawMessage) {
	call := stringField(params, "toolCall", "toolCallId")
	if status, open := s.calls[call]; !open {
		r.bad("a permission about %s, which is not announced", call)
	} else if status == callDone || status == callFailed {
		r.bad("a permission about %s, which is %s", call, status)
	}
	var ids, order []string
	eachElement(rawField(params, "options"), func(option json.RawMessage) {
		id := stringField(option, "optionId")
		if slices.Contains(ids, id) {
			r.bad("optionId %s is there twice", id)
		}
		ids, order = append(ids, id), append(order, stringField(option, "kind"))
	})
	once, always := slices.Index(order, "reject_once"), slices.Index(order, "reject_always")
	if once < 0 || always >= 0 && always < once {
		r.bad("options are %s: reject_once must be there, before reject_always", strings.Join(order, " "))
	}
}

// reviewACP judges the dialogue of a script's peer.
func (p *scriptPeer) reviewACP(t testing.TB, schema *jsonSchema) {
	r := newACPReview(schema)
	p.mu.Lock()
	for _, e := range p.log {
		r.take(e.ours, toJSON(e.value))
	}
	p.mu.Unlock()
	for _, problem := range r.problems {
		t.Errorf("dialogue of %s: %s%s", p.name, problem, p.context())
	}
}

// TestACPReviewCatches breaks each rule once.
func TestACPReviewCatches(t *testing.T) {
	var r *acpReview
	playCases(t, "review", func(line string) []string {
		if strings.HasPrefix(line, "## ") {
			r = newACPReview(nil)
		} else {
			r.take(line[0] == '>', json.RawMessage(line[1:]))
		}
		found := r.problems
		r.problems = nil
		return found
	})
}

// acpPeer is a client of one `atm-agent-mcp acp`.
type acpPeer struct {
	*testClient
	cwd string

	reviewing sync.Mutex // guards review
	review    *acpReview
}

// startACP starts the program as an ACP agent and initializes it.
func startACP(tb testing.TB, cfg peerConfig, capabilities map[string]any) *acpPeer {
	tb.Helper()
	p := &acpPeer{review: newACPReview(acpSchema(tb)), cwd: cfg.dir}
	p.testClient = startClient(tb, cfg)
	p.tap = func(ours bool, raw []byte) {
		if !validJSON(raw) {
			raw = nil // a stray, and no message
		}
		p.reviewing.Lock()
		defer p.reviewing.Unlock()
		p.review.take(ours, raw)
	}
	p.start("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": capabilities,
		"clientInfo": map[string]any{"name": "suite", "version": "1"}}).result(&struct{}{})
	return p
}

// acpSetUp is the answer to session/new, load and resume.
type acpSetUp struct {
	SessionID string `json:"sessionId"`
	Modes     struct {
		Current string `json:"currentModeId"`
	}
	ConfigOptions []struct {
		ID           string
		CurrentValue string
		Options      []struct{ Value, Name string }
	}
}

// value is what an option stands at, "" where there is none.
func (s *acpSetUp) value(id string) string {
	for _, o := range s.ConfigOptions {
		if o.ID == id {
			return o.CurrentValue
		}
	}
	return ""
}

func (p *acpPeer) open(servers ...any) (s acpSetUp) {
	p.tb.Helper()
	if servers == nil {
		servers = []any{}
	}
	p.start("session/new", map[string]any{"cwd": p.cwd, "mcpServers": servers}).result(&s)
	if !strings.HasPrefix(s.SessionID, "sess_") {
		p.tb.Fatalf("session/new gave the id %q", s.SessionID)
	}
	return s
}

// set sets a config option and returns the full state.
func (p *acpPeer) set(session, id, value string) (s acpSetUp) {
	p.tb.Helper()
	p.start("session/set_config_option", map[string]any{"sessionId": session, "configId": id,
		"value": value}).result(&s)
	return s
}

func (p *acpPeer) prompt(session, text string) *pendingCall {
	p.tb.Helper()
	return p.start("session/prompt", acpPromptParams(session, text))
}

// acpPromptParams are a prompt of one text.
func acpPromptParams(session, text string) any {
	block := map[string]any{"type": "text", "text": text}
	return map[string]any{"sessionId": session, "prompt": []any{block}}
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

type acpUpdate struct {
	Kind       string `json:"sessionUpdate"`
	Content    json.RawMessage
	MessageID  string          `json:"messageId"`
	ToolCallID string          `json:"toolCallId"`
	Title      string          `json:"title"`
	ToolKind   string          `json:"kind"`
	Status     string          `json:"status"`
	RawInput   json.RawMessage `json:"rawInput"`
	Locations  []struct{ Path string }

	raw json.RawMessage
}

// updates are those of a session so far.
func (p *acpPeer) updates(session string) (out []acpUpdate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.notes {
		if n.Method == "session/update" && stringField(n.Params, "sessionId") == session {
			u := acpUpdate{raw: rawField(n.Params, "update")}
			if err := json.Unmarshal(u.raw, &u); err != nil {
				p.tb.Errorf("an update that can't be read (%v): %s", err, u.raw)
			}
			out = append(out, u)
		}
	}
	return out
}

func spoken(updates []acpUpdate) string {
	var b strings.Builder
	for _, u := range updates {
		if u.Kind == agentChunk {
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

// toolsIn are the calls in updates, in the order they were announced.
func toolsIn(updates []acpUpdate) (out []*acpCallSeen) {
	byID := map[string]*acpCallSeen{}
	for _, u := range updates {
		if u.Kind != callNew && u.Kind != callNews {
			continue
		}
		c := byID[u.ToolCallID]
		if c == nil {
			c = &acpCallSeen{}
			byID[u.ToolCallID] = c
			out = append(out, c)
		}
		_ = json.Unmarshal(u.raw, &c.acpUpdate) // over what was said before
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
	outcome := map[string]any{"outcome": "cancelled"}
	if kind != "" {
		eachElement(rawField(ask.Params, "options"), func(o json.RawMessage) {
			if stringField(o, "kind") == kind {
				outcome = map[string]any{"outcome": "selected", "optionId": stringField(o, "optionId")}
			}
		})
		if outcome["optionId"] == nil {
			p.tb.Fatalf("no option of the kind %s in %s", kind, ask.Params)
		}
	}
	p.reply(ask, map[string]any{"outcome": outcome})
	return ask.Params
}

// judge holds the dialogue so far against schema and rules.
func (p *acpPeer) judge() {
	p.tb.Helper()
	p.reviewing.Lock()
	defer p.reviewing.Unlock()
	for _, problem := range p.review.problems {
		p.tb.Errorf("%s: %s", p.name, problem)
	}
}

// finish hangs up, and wants a clean end, no process and a dialogue by the book.
func (p *acpPeer) finish() {
	p.tb.Helper()
	p.testClient.finish()
	p.judge()
}
