package main

// acp_check_test.go judges a recorded dialogue with an ACP client: every message
// of ours by the v1 schema of npm @agentclientprotocol/sdk, from the cache that
// .ci/run fills, and by the rules that no schema has: tool calls announced once,
// closed before the prompt's answer and not reopened, nothing of a turn after its
// answer, permissions about announced calls, each request answered once. Scripts,
// the real-Codex suite and the benchmarks call it.

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// acpSchema is nil where the cache has none: the rules are checked all the same.
func acpSchema(t testing.TB) *jsonSchema {
	t.Helper()
	s, err := loadSchema(filepath.Join(".cache", "acp-clients", "node_modules", "@agentclientprotocol", "sdk", "schema", "v1", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestACPSchema says whether what we send is held against the schema.
func TestACPSchema(t *testing.T) {
	s := acpSchema(t)
	if s == nil {
		t.Skip("no ACP schema in .cache/acp-clients, so only the rules are checked; .ci/run puts it there")
	}
	for method, def := range map[string]string{"session/update": "SessionNotification", "session/request_permission": "RequestPermissionRequest", "elicitation/create": "CreateElicitationRequest"} {
		if got := s.byMethod(method, "Notification", "Request"); got != def {
			t.Errorf("the schema has %q for %s", got, method)
		}
	}
}

// acpEntry is one record of a dialogue.
type acpEntry struct {
	ours  bool // the client's: sent by the test
	value any
}

// acpReview goes through one dialogue.
type acpReview struct {
	schema   *jsonSchema
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
	mail           bool              // a turn that mail began runs
	calls          map[string]string // status by toolCallId
	past           map[string]bool   // calls of answered turns
	messages       map[string]bool   // messageIds of answered turns
	current        map[string]bool
}

// acpProblems tells what is wrong with a dialogue.
func acpProblems(schema *jsonSchema, log []acpEntry) []string {
	r := &acpReview{schema: schema, methods: map[string]string{}, answered: map[string]bool{}, prompts: map[string]string{},
		loads: map[string]string{}, sessions: map[string]*acpTalk{}}
	for i, e := range log {
		m, ok := e.value.(map[string]any)
		if !ok {
			if !e.ours {
				r.bad(i, "is no message")
			}
			continue
		}
		if e.ours {
			r.client(m)
		} else {
			r.agent(i, m)
		}
	}
	return r.problems
}

func (r *acpReview) bad(i int, format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf("record %d: ", i+1)+fmt.Sprintf(format, args...))
}

func (r *acpReview) session(id string) *acpTalk {
	s := r.sessions[id]
	if s == nil {
		s = &acpTalk{calls: map[string]string{}, past: map[string]bool{}, messages: map[string]bool{}, current: map[string]bool{}}
		r.sessions[id] = s
	}
	return s
}

// client notes what the client asked for.
func (r *acpReview) client(m map[string]any) {
	method, _ := m["method"].(string)
	if method == "" || m["id"] == nil {
		return
	}
	id := compact(m["id"])
	r.methods[id] = method
	delete(r.answered, id)
	params, _ := m["params"].(map[string]any)
	session, _ := params["sessionId"].(string)
	switch method {
	case "session/prompt":
		r.prompts[id] = session
		r.session(session).prompts++
	case "session/load":
		r.loads[id] = session
		s := r.session(session)
		s.loads++
		s.forget()
	}
}

func (r *acpReview) valid(i int, def string, v any) {
	if r.schema == nil {
		return
	}
	for _, p := range r.schema.problems(def, v) {
		r.bad(i, "%s", p)
	}
}

// agent judges one message of ours.
func (r *acpReview) agent(i int, m map[string]any) {
	if m["jsonrpc"] != "2.0" {
		r.bad(i, "jsonrpc is %v", m["jsonrpc"])
	}
	method, _ := m["method"].(string)
	switch {
	case method == "":
		r.answer(i, m)
	case m["id"] == nil:
		r.notification(i, method, m["params"])
	default:
		def := "Request"
		if r.schema != nil {
			if def = r.schema.byMethod(method, "Request"); def == "" {
				r.bad(i, "the schema has no request %q", method)
				return
			}
		}
		r.valid(i, def, m["params"])
		if method == "session/request_permission" {
			r.permission(i, m["params"])
		}
	}
}

func (r *acpReview) answer(i int, m map[string]any) {
	_, fails := m["error"]
	_, succeeds := m["result"]
	if fails == succeeds {
		r.bad(i, "an answer must have either result or error")
	}
	if fails {
		r.valid(i, "Error", m["error"])
	}
	if m["id"] == nil {
		return // to what could not be read
	}
	id := compact(m["id"])
	method, asked := r.methods[id]
	if !asked {
		if !fails {
			r.bad(i, "answers id %s, which nobody asked", id)
		}
		return
	}
	if r.answered[id] {
		r.bad(i, "answers id %s a second time", id)
	}
	r.answered[id] = true
	if succeeds && r.schema != nil {
		if def := r.schema.byMethod(method, "Response"); def == "" {
			r.bad(i, "the schema has no response to %q", method)
		} else {
			result, _ := m["result"].(map[string]any)
			if method == "session/load" { // some clients want sessionId there too, which the schema leaves out
				result = maps.Clone(result)
				delete(result, "sessionId")
			}
			r.valid(i, def, result)
		}
	}
	if session, ok := r.loads[id]; ok {
		delete(r.loads, id)
		s := r.session(session)
		s.loads--
		if succeeds {
			s.closed(func(open string) { r.bad(i, "session/load is answered while tool call %s is open", open) })
		}
	}
	if session, ok := r.prompts[id]; ok {
		delete(r.prompts, id)
		s := r.session(session)
		s.prompts--
		if s.current == nil || !s.queuedOnly(m) {
			s.closed(func(open string) { r.bad(i, "session/prompt is answered while tool call %s is open", open) })
		}
		if s.loads > 0 { // it was waited for
			s.forget()
		}
	}
}

// forget is for a session/load, which replays all under the same ids.
func (s *acpTalk) forget() {
	s.calls, s.past, s.messages, s.current = map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
}

// queuedOnly reports the answer to a prompt whose turn can't have begun: it was
// cancelled while another one runs.
func (s *acpTalk) queuedOnly(m map[string]any) bool {
	result, _ := m["result"].(map[string]any)
	return s.prompts > 0 && result["stopReason"] == "cancelled"
}

// closed ends a turn: whatever it opened must be final.
func (s *acpTalk) closed(open func(id string)) {
	for id, status := range s.calls {
		if status != "completed" && status != "failed" {
			open(id)
		}
		s.past[id] = true
	}
	for id := range s.current {
		s.messages[id] = true
	}
	s.calls, s.current = map[string]string{}, map[string]bool{}
}

func (r *acpReview) notification(i int, method string, params any) {
	def := "SessionNotification"
	if r.schema != nil {
		if def = r.schema.byMethod(method, "Notification"); def == "" {
			r.bad(i, "the schema has no notification %q", method)
			return
		}
	}
	r.valid(i, def, params)
	if method != "session/update" {
		return
	}
	p, _ := params.(map[string]any)
	id, _ := p["sessionId"].(string)
	u, _ := p["update"].(map[string]any)
	kind, _ := u["sessionUpdate"].(string)
	s := r.session(id)
	switch kind {
	case "available_commands_update", "current_mode_update", "config_option_update", "session_info_update", "usage_update", "notice":
		return // of the session, not of a turn
	case "user_message_chunk":
		if s.prompts == 0 && s.loads == 0 {
			s.mail = true
		}
	}
	if s.prompts == 0 && s.loads == 0 && !s.mail {
		r.bad(i, "%s while no prompt of the session is open", kind)
	}
	if message, _ := u["messageId"].(string); message != "" {
		if s.messages[message] {
			r.bad(i, "messageId %s belongs to a turn that was answered", message)
		}
		s.current[message] = true
	}
	call, _ := u["toolCallId"].(string)
	switch kind {
	case "tool_call":
		if _, open := s.calls[call]; open || s.past[call] {
			r.bad(i, "toolCallId %s is announced a second time", call)
		}
		s.calls[call] = "pending"
		r.status(i, s, call, u["status"])
	case "tool_call_update":
		if _, open := s.calls[call]; !open {
			r.bad(i, "tool_call_update for %s, which is not announced in this turn", call)
			return
		}
		r.status(i, s, call, u["status"])
	}
}

// status takes the next status of a call: they only go forward.
func (r *acpReview) status(i int, s *acpTalk, call string, next any) {
	order := []string{"pending", "in_progress", "completed", "failed"}
	was := s.calls[call]
	final := was == "completed" || was == "failed"
	word, _ := next.(string)
	switch {
	case final:
		r.bad(i, "tool call %s is told again after it was %s", call, was)
	case word == "":
	case slices.Index(order, word) < slices.Index(order, was):
		r.bad(i, "tool call %s goes back from %s to %s", call, was, word)
	default:
		s.calls[call] = word
	}
}

func (r *acpReview) permission(i int, params any) {
	p, _ := params.(map[string]any)
	id, _ := p["sessionId"].(string)
	call, _ := p["toolCall"].(map[string]any)
	name, _ := call["toolCallId"].(string)
	if status, open := r.session(id).calls[name]; !open {
		r.bad(i, "a permission about %s, which is not announced", name)
	} else if status == "completed" || status == "failed" {
		r.bad(i, "a permission about %s, which is %s", name, status)
	}
	seen := map[any]bool{}
	order := []string{}
	for _, o := range listOf(p["options"]) {
		option, _ := o.(map[string]any)
		if seen[option["optionId"]] {
			r.bad(i, "optionId %v is there twice", option["optionId"])
		}
		seen[option["optionId"]] = true
		kind, _ := option["kind"].(string)
		order = append(order, kind)
	}
	once, always := slices.Index(order, "reject_once"), slices.Index(order, "reject_always")
	if once < 0 || always >= 0 && always < once {
		r.bad(i, "options are %s: reject_once must be there, before reject_always", strings.Join(order, " "))
	}
}

// reviewACP judges the dialogue of a script's peer.
func (p *scriptPeer) reviewACP(t testing.TB, schema *jsonSchema) {
	p.mu.Lock()
	log := make([]acpEntry, len(p.log))
	for i, e := range p.log {
		log[i] = acpEntry{e.ours, e.value}
	}
	p.mu.Unlock()
	for _, problem := range acpProblems(schema, log) {
		t.Errorf("dialogue of %s: %s%s", p.name, problem, p.context())
	}
}

// TestACPReviewCatches breaks each rule once.
func TestACPReviewCatches(t *testing.T) {
	const ask, chunk = `>{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}`, `{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"x"}}`
	up := func(u string) string {
		return `<{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + u + `}}`
	}
	call := func(kind, id, status string) string {
		return up(`{"sessionUpdate":"` + kind + `","toolCallId":"` + id + `","title":"t","status":"` + status + `"}`)
	}
	done := `<{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`
	permission := func(id, kinds string) string {
		return `<{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"` + id + `"},"options":[` + kinds + `]}}`
	}
	reject := `{"optionId":"a","name":"n","kind":"reject_once"},{"optionId":"b","name":"n","kind":"reject_always"}`
	for _, c := range []struct {
		name string
		log  []string
		want string
	}{
		{"fine", []string{ask, up(chunk), call("tool_call", "a", "pending"), permission("a", reject), call("tool_call_update", "a", "in_progress"), call("tool_call_update", "a", "completed"), done}, ""},
		{"open call", []string{ask, call("tool_call", "a", "pending"), done}, "while tool call a is open"},
		{"late update", []string{ask, done, up(chunk)}, "while no prompt"},
		{"message goes on", []string{ask, up(chunk), done, ask, up(chunk)}, "belongs to a turn"},
		{"twice announced", []string{ask, call("tool_call", "a", "completed"), call("tool_call", "a", "pending")}, "a second time"},
		{"never announced", []string{ask, call("tool_call_update", "a", "completed")}, "not announced"},
		{"back", []string{ask, call("tool_call", "a", "in_progress"), call("tool_call_update", "a", "pending")}, "goes back"},
		{"after its end", []string{ask, call("tool_call", "a", "failed"), call("tool_call_update", "a", "failed")}, "told again"},
		{"unknown permission", []string{ask, permission("a", reject)}, "not announced"},
		{"no reject_once", []string{ask, call("tool_call", "a", "pending"), permission("a", `{"optionId":"b","name":"n","kind":"reject_always"}`)}, "must be there"},
		{"answered twice", []string{ask, done, done}, "a second time"},
		{"nobody asked", []string{`<{"jsonrpc":"2.0","id":9,"result":{}}`}, "nobody asked"},
		{"mail turn", []string{up(`{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"x"}}`), up(chunk)}, ""},
		{"no version", []string{`<{"method":"session/update","params":{}}`}, "jsonrpc"},
	} {
		var log []acpEntry
		for _, line := range c.log {
			v, err := decodeJSON([]byte(line[1:]))
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, acpEntry{line[0] == '>', v})
		}
		if got := strings.Join(acpProblems(nil, log), "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
