package main

// proxy_model_test.go owns the scripted model: a Responses endpoint on loopback that
// real Codex binaries are pointed at, so that tests of them need neither a login nor
// a network. The last user message says what the model does, one directive a model
// request, the next when the request carries one tool output more. When all are done
// the model answers "DONE: " and the last output; a prompt without any is answered
// "FAKE: " and the prompt. Every request is kept for assertions. The model never
// talks to anything, and never decides what a test expects.
//
//	SAY text | STAMP n ms (n deltas, an @ and the clock each) | HANG | GATE name [text] (answers once it is opened)
//	SHELL cmd | SHELLESC cmd (asks for escalation) | PATCH path text | RAWPATCH "json"
//	CALLMCP server tool {json} | CALL function {json} | PLAN text (of a plan that is proposed; a line below it,
//	CARRYOUT and a directive, is what is done when the plan is to be carried out)
//	REASON text (with the step after it) | ECHO_INSTRUCTIONS | FAIL httpcode [msg] | FAILSTREAM code msg

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// modelAPI is one running endpoint, closed with its test.
type modelAPI struct {
	server *httptest.Server
	limit  time.Duration

	mu      sync.Mutex // guards the fields below
	seen    []modelRequest
	changed chan struct{}            // closed and replaced when seen grows
	gates   map[string]chan struct{} // GATE name: closed by open
	ids     int
}

// modelRequest is what one request told the model.
type modelRequest struct {
	Model        string
	Instructions string
	Developer    []string // developer and system messages
	User         []string
	Assistant    []string
	Prompt       string   // the last user message
	Outputs      []string // tool outputs after it
	Tools        []string // names, namespace::name where there is one
	Raw          string

	tools []modelTool
	steps []modelStep
}

// modelTool is a tool that Codex advertised.
type modelTool struct {
	Type  string      `json:"type"`
	Name  string      `json:"name"`
	Tools []modelTool `json:"tools"` // of a namespace
	ns    string
}

// modelStep is one directive of the prompt.
type modelStep struct{ op, arg string }

// directives are written where a line of the prompt begins.
var directives = regexp.MustCompile(`^\s*(SAY|STAMP|HANG|LIMIT|GATE|SHELLESC|SHELL|RAWPATCH|PATCH|CALLMCP|CALL|REASON|PLAN|` +
	`ECHO_INSTRUCTIONS|FAILSTREAM|FAIL)(?:\s+(.*))?$`)

func startModelAPI(tb testing.TB) *modelAPI {
	tb.Helper()
	api := &modelAPI{limit: waitLimit(tb), changed: make(chan struct{}), gates: map[string]chan struct{}{}}
	api.server = httptest.NewServer(http.HandlerFunc(api.serve))
	tb.Cleanup(func() {
		api.server.CloseClientConnections() // Close alone waits for a model that hangs
		api.server.Close()
	})
	return api
}

func (api *modelAPI) port() int { return api.server.Listener.Addr().(*net.TCPAddr).Port }

// requests returns what the model was told so far.
func (api *modelAPI) requests() []modelRequest {
	api.mu.Lock()
	defer api.mu.Unlock()
	return slices.Clone(api.seen)
}

// await waits for a request whose prompt contains the text.
func (api *modelAPI) await(tb testing.TB, text string) modelRequest {
	tb.Helper()
	timer := time.NewTimer(api.limit)
	defer timer.Stop()
	for at := 0; ; {
		api.mu.Lock()
		fresh, changed := api.seen[at:], api.changed
		api.mu.Unlock()
		for _, r := range fresh {
			if strings.Contains(r.Prompt, text) {
				return r
			}
		}
		at += len(fresh)
		select {
		case <-changed:
		case <-timer.C:
			tb.Fatalf("waited %v: the model got no prompt with %q, but %d others", api.limit, text, at)
		}
	}
}

// open lets every GATE of that name answer, those to come too.
func (api *modelAPI) open(name string) {
	gate := api.gate(name)
	api.mu.Lock()
	defer api.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (api *modelAPI) gate(name string) chan struct{} {
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.gates[name] == nil {
		api.gates[name] = make(chan struct{})
	}
	return api.gates[name]
}

func (api *modelAPI) newID(prefix string) string {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.ids++
	return fmt.Sprintf("%s_%06d", prefix, api.ids)
}

func (api *modelAPI) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responses") {
		replyError(w, http.StatusNotFound, fmt.Sprintf("the scripted API has no %s %s", r.Method, r.URL.Path))
		return
	}
	raw, err := io.ReadAll(r.Body)
	var req modelRequest
	if err == nil {
		req, err = parseModelRequest(raw)
	}
	if err != nil {
		replyError(w, http.StatusBadRequest, err.Error())
		return
	}
	api.mu.Lock()
	api.seen = append(api.seen, req)
	close(api.changed)
	api.changed = make(chan struct{})
	api.mu.Unlock()
	(&modelStream{api: api, w: w, ctx: r.Context(), req: req}).respond()
}

func replyError(w http.ResponseWriter, code int, msg string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintln(w, compact(object{"error": object{"message": msg, "type": "scripted_error",
		"code": "scripted_error"}}))
}

// parseModelRequest reads what the model was told. The steps are those of the
// last user message: Codex puts its own context into user messages before it.
func parseModelRequest(raw []byte) (req modelRequest, err error) {
	var body struct {
		Model        string
		Instructions string
		Tools        []modelTool
		Input        []struct {
			Type, Role      string
			Content, Output json.RawMessage
			Tools           []modelTool // of additional_tools and tool_search_output
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return req, fmt.Errorf("reading model request: %w", err)
	}
	req = modelRequest{Model: body.Model, Instructions: body.Instructions, Raw: string(raw)}
	req.addTools("", body.Tools)
	for _, item := range body.Input {
		text := contentText(item.Content)
		isMessage := item.Type == "message" || item.Type == ""
		switch {
		case isMessage && item.Role == "user":
			req.User = append(req.User, text)
			req.Prompt, req.Outputs = text, nil
		case isMessage && item.Role == "assistant":
			req.Assistant = append(req.Assistant, text)
		case isMessage && (item.Role == "developer" || item.Role == "system"):
			req.Developer = append(req.Developer, text)
		case strings.HasSuffix(item.Type, "_output"):
			req.Outputs = append(req.Outputs, contentText(item.Output))
		}
		req.addTools("", item.Tools)
	}
	now := req.Prompt // without the digest of a lost conversation: its directives are done
	if _, after, ok := strings.Cut(now, "[End of previous session]"); ok {
		now = after
	}
	if _, mail, ok := strings.Cut(now, "\n<atm-mail "); ok { // what is asked for in a message is done
		now = ""
		for line := range strings.Lines(mail) {
			var m struct{ Text string }
			if json.Unmarshal([]byte(line), &m) == nil {
				now += m.Text + "\n"
			}
		}
	}
	if strings.HasSuffix(now, carryOutPrompt) { // the plan says how
		for _, text := range req.User {
			if _, how, said := strings.Cut(text, "\nCARRYOUT "); said {
				now = how
			}
		}
	}
	for line := range strings.Lines(now) {
		if m := directives.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			req.steps = append(req.steps, modelStep{op: m[1], arg: strings.TrimSpace(m[2])})
		}
	}
	return req, nil
}

func (r *modelRequest) addTools(ns string, tools []modelTool) {
	for _, t := range tools {
		if len(t.Tools) > 0 {
			r.addTools(t.Name, t.Tools)
			continue
		}
		if t.Name == "" {
			t.Name = t.Type
		}
		t.ns = ns
		r.tools = append(r.tools, t)
		r.Tools = append(r.Tools, strings.TrimPrefix(ns+"::"+t.Name, "::"))
	}
}

// contentText is the text of a message or of a tool's output.
func contentText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	if json.Unmarshal(raw, &parts) == nil {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(p.Text)
		}
		return b.String()
	}
	return string(bytes.TrimSpace(raw))
}

// codexHome writes a CODEX_HOME whose Codex talks to the API on that port and to
// nothing else. It is in .cache of the repository: under the system's temporary
// directory Codex refuses to work properly.
func codexHome(tb testing.TB, port int) string {
	tb.Helper()
	cache, err := filepath.Abs(".cache")
	wantNil(tb, err)
	wantNil(tb, os.MkdirAll(cache, 0o700))
	dir, err := os.MkdirTemp(cache, "codex-home-*")
	wantNil(tb, err)
	tb.Cleanup(func() {
		// A Codex that was just killed may have helpers that still write there.
		var err error
		if !poll(5*time.Second, func() bool { err = os.RemoveAll(dir); return err == nil }) {
			tb.Errorf("removing %s: %v", dir, err)
		}
	})
	config := fmt.Sprintf(`# The user's own words: they must come out of every test as they went in.
model = "scripted-model"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:%d/v1"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[otel]
metrics_exporter = "none"

[features]
plugins = false
apps = false
`, port)
	wantNil(tb, os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600))
	return dir
}

// modelStream is one answer under way.
type modelStream struct {
	api *modelAPI
	w   http.ResponseWriter
	ctx context.Context // ends when Codex goes away
	req modelRequest

	id     string
	seq    int
	output []any
}

// object is a JSON object to be.
type object = map[string]any

func (s *modelStream) respond() {
	step, reason := s.nextStep()
	if step.op == "FAIL" {
		code, msg := cutWord(step.arg)
		status, err := strconv.Atoi(code)
		if err != nil {
			status = http.StatusInternalServerError
		}
		replyError(s.w, status, cmp.Or(msg, "scripted failure "+code))
		return
	}
	if step.op == "LIMIT" && !s.limit(&step) {
		return
	}
	s.id = s.api.newID("resp")
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.event("response.created", object{"response": s.response("in_progress")})
	if reason != "" {
		s.reason(reason)
	}
	switch err := s.do(step); {
	case err == errAnswered:
	case s.ctx.Err() != nil: // nobody listens any more
	case err != nil:
		s.say(fmt.Sprintf("FAKE-ERROR: %v", err))
		s.complete()
	default:
		s.complete()
	}
}

// limit tells how much of the account's limit is used, LIMIT percent minutes reset, and says the text behind it;
// without one the limit is reached, and false: the request is refused.
func (s *modelStream) limit(step *modelStep) bool {
	percent, rest := cutWord(step.arg)
	minutes, rest := cutWord(rest)
	reset, text := cutWord(rest)
	for name, val := range map[string]string{"Used-Percent": percent, "Window-Minutes": minutes, "Reset-At": reset} {
		s.w.Header().Set("X-Codex-Primary-"+name, val)
	}
	if step.op, step.arg = "SAY", text; text != "" {
		return true
	}
	s.w.Header().Set("Content-Type", "application/json")
	s.w.WriteHeader(http.StatusTooManyRequests)
	fmt.Fprintf(s.w, `{"error":{"type":"usage_limit_reached","message":"reached","plan_type":"plus","resets_at":%s}}`,
		reset)
	return false
}

// errAnswered says that a step ended the answer in its own way.
var errAnswered = errors.New("answered")

// nextStep is the first directive that no tool output answers yet; a zero one
// when all are done. REASON goes with the step after it.
func (s *modelStream) nextStep() (step modelStep, reason string) {
	done := len(s.req.Outputs)
	for _, st := range s.req.steps {
		switch {
		case st.op == "REASON":
			reason = st.arg
		case done == 0:
			return st, reason
		default:
			done--
			reason = ""
		}
	}
	return modelStep{}, reason
}

func (s *modelStream) do(step modelStep) error {
	switch step.op {
	case "":
		if n := len(s.req.Outputs); n > 0 {
			return s.say("DONE: " + clipText(s.req.Outputs[n-1], 400))
		}
		return s.say("FAKE: " + clipText(s.req.Prompt, 200))
	case "SAY":
		return s.say(step.arg)
	case "PLAN": // a tag counts as one on a line of its own
		return s.say("<proposed_plan>\n" + step.arg + "\n</proposed_plan>")
	case "STAMP":
		count, ms := cutWord(step.arg)
		n, err := strconv.Atoi(count)
		gap, err2 := strconv.Atoi(ms)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("STAMP wants a number and milliseconds: %w", err)
		}
		return s.stamp(n, time.Duration(gap)*time.Millisecond)
	case "GATE":
		name, text := cutWord(step.arg)
		select {
		case <-s.api.gate(name):
			return s.say(text)
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	case "HANG":
		<-s.ctx.Done()
		return s.ctx.Err()
	case "FAILSTREAM":
		code, msg := cutWord(step.arg)
		resp := s.response("failed")
		resp["error"] = object{"code": code, "message": msg}
		s.event("response.failed", object{"response": resp})
		return errAnswered
	case "ECHO_INSTRUCTIONS":
		return s.say(compact(object{"instructions": s.req.Instructions, "developer": s.req.Developer,
			"user": s.req.User}))
	}
	item, err := s.toolCall(step)
	if err != nil {
		return err
	}
	s.item(item)
	return nil
}

// toolCall makes the item by which the model calls a tool, in whatever way the
// Codex at hand offers it.
func (s *modelStream) toolCall(step modelStep) (object, error) {
	name, rest := cutWord(step.arg)
	switch step.op {
	case "SHELL":
		return s.shell(step.arg, false)
	case "SHELLESC":
		return s.shell(step.arg, true)
	case "PATCH":
		return s.patch(fmt.Sprintf("*** Begin Patch\n*** Add File: %s\n+%s\n*** End Patch\n", name, rest))
	case "RAWPATCH":
		var patch string
		if err := json.Unmarshal([]byte(step.arg), &patch); err != nil {
			return nil, fmt.Errorf("RAWPATCH wants a JSON string: %w", err)
		}
		return s.patch(patch)
	case "CALLMCP":
		tool, args := cutWord(rest)
		return s.callMCP(name, tool, args), nil
	case "CALL":
		call := s.function(name, rest)
		for _, t := range s.req.tools {
			if t.Name == name && t.ns != "" {
				call["namespace"] = t.ns
			}
		}
		return call, nil
	}
	return nil, fmt.Errorf("unknown directive %q", step.op)
}

func (s *modelStream) tool(name string) (modelTool, bool) {
	for _, t := range s.req.tools {
		if t.Name == name {
			return t, true
		}
	}
	return modelTool{}, false
}

func (s *modelStream) function(name, args string) object {
	if args == "" {
		args = "{}"
	}
	return object{"type": "function_call", "id": s.api.newID("fc"), "call_id": s.api.newID("call"), "name": name,
		"arguments": args}
}

func (s *modelStream) custom(name, input string) object {
	call := object{"type": "custom_tool_call", "id": s.api.newID("ctc"), "call_id": s.api.newID("call"), "name": name,
		"input": input}
	if t, ok := s.tool(name); ok && t.ns != "" {
		call["namespace"] = t.ns
	}
	return call
}

// shell runs a command by the tool that this Codex and model family have.
func (s *modelStream) shell(cmd string, escalate bool) (object, error) {
	args := object{}
	if escalate {
		args["sandbox_permissions"] = "require_escalated"
		args["justification"] = "the scripted model wants it"
	}
	for _, shape := range []struct {
		tool, arg string
		value     any
	}{
		{"exec_command", "cmd", cmd},
		{"shell_command", "command", cmd},
		{"shell", "command", []string{"bash", "-lc", cmd}},
	} {
		if _, ok := s.tool(shape.tool); ok {
			args[shape.arg] = shape.value
			return s.function(shape.tool, compact(args)), nil
		}
	}
	return nil, fmt.Errorf("no shell among the tools %s", strings.Join(s.req.Tools, ", "))
}

func (s *modelStream) patch(patch string) (object, error) {
	t, ok := s.tool("apply_patch")
	switch {
	case ok && t.Type == "custom":
		return s.custom("apply_patch", patch), nil
	case ok:
		return s.function("apply_patch", compact(object{"input": patch})), nil
	}
	return s.shell("apply_patch <<'EOF'\n"+patch+"\nEOF", false)
}

// callMCP calls an MCP tool by the name under which Codex advertises it: as
// mcp__server__tool in 0.104, in a namespace in newer versions.
func (s *modelStream) callMCP(server, tool, args string) object {
	want := plainName("mcp__" + server + "__" + tool)
	for _, t := range s.req.tools {
		if plainName(t.ns+"__"+t.Name) == want || (t.Name == tool && t.ns != "" &&
			strings.HasSuffix(plainName(t.ns), plainName(server))) {
			call := s.function(t.Name, args)
			if t.ns != "" {
				call["namespace"] = t.ns
			}
			return call
		}
	}
	return s.function("mcp__"+server+"__"+tool, args)
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

func plainName(s string) string { return strings.Trim(notInNames.ReplaceAllString(s, "_"), "_") }

// say streams a message in pieces, cut between characters.
func (s *modelStream) say(text string) error {
	item, at := s.begin()
	for piece := range slices.Chunk([]rune(text), 1+len(text)/4) {
		s.event("response.output_text.delta", at, object{"delta": string(piece)})
	}
	return s.end(item, at, text)
}

// stamp streams a message of n deltas that tell when they were made.
func (s *modelStream) stamp(n int, gap time.Duration) error {
	item, at := s.begin()
	var beat <-chan time.Time // without a gap: as fast as Codex reads
	if gap > 0 {
		ticker := time.NewTicker(gap)
		defer ticker.Stop()
		beat = ticker.C
	}
	var text strings.Builder
	for range n {
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		default:
		}
		if beat != nil {
			<-beat
		}
		piece := fmt.Sprintf("@%d ", time.Now().UnixNano())
		text.WriteString(piece)
		s.event("response.output_text.delta", at, object{"delta": piece})
	}
	return s.end(item, at, text.String())
}

// begin opens a message; at says in its deltas where they belong.
func (s *modelStream) begin() (item, at object) {
	item = s.message("", "in_progress")
	at = object{"item_id": item["id"], "output_index": len(s.output), "content_index": 0}
	s.event("response.output_item.added", object{"output_index": len(s.output), "item": item})
	s.event("response.content_part.added", at, object{"part": outputText("")})
	return item, at
}

func (s *modelStream) end(item, at object, text string) error {
	s.event("response.output_text.done", at, object{"text": text})
	s.event("response.content_part.done", at, object{"part": outputText(text)})
	done := s.message(text, "completed")
	done["id"] = item["id"]
	s.event("response.output_item.done", object{"output_index": len(s.output), "item": done})
	s.output = append(s.output, done)
	return s.ctx.Err()
}

func (s *modelStream) message(text, status string) object {
	content := []any{}
	if text != "" || status == "completed" {
		content = append(content, outputText(text))
	}
	return object{"type": "message", "id": s.api.newID("msg"), "role": "assistant", "status": status,
		"content": content}
}

func outputText(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}}
}

func (s *modelStream) reason(text string) {
	id, n := s.api.newID("rs"), len(s.output)
	at := object{"item_id": id, "output_index": n, "summary_index": 0}
	s.event("response.output_item.added", object{"output_index": n,
		"item": object{"type": "reasoning", "id": id, "summary": []any{}}})
	s.event("response.reasoning_summary_part.added", at, object{"part": object{"type": "summary_text", "text": ""}})
	s.event("response.reasoning_summary_text.delta", at, object{"delta": text})
	s.event("response.reasoning_summary_text.done", at, object{"text": text})
	item := object{"type": "reasoning", "id": id, "encrypted_content": nil,
		"summary": []any{object{"type": "summary_text", "text": text}}}
	s.event("response.output_item.done", object{"output_index": n, "item": item})
	s.output = append(s.output, item)
}

func (s *modelStream) item(item object) {
	item["status"] = "in_progress"
	s.event("response.output_item.added", object{"output_index": len(s.output), "item": item})
	item["status"] = "completed"
	s.event("response.output_item.done", object{"output_index": len(s.output), "item": item})
	s.output = append(s.output, item)
}

func (s *modelStream) complete() {
	resp := s.response("completed")
	resp["output"] = s.output
	resp["usage"] = object{
		"input_tokens": 100, "input_tokens_details": object{"cached_tokens": 0},
		"output_tokens": 20, "output_tokens_details": object{"reasoning_tokens": 0},
		"total_tokens": 120,
	}
	s.event("response.completed", object{"response": resp})
}

func (s *modelStream) response(status string) object {
	return object{"id": s.id, "object": "response", "created_at": time.Now().Unix(), "model": s.req.Model,
		"status": status, "output": []any{}}
}

// event writes one server-sent event, at once.
func (s *modelStream) event(kind string, parts ...object) {
	data := object{"type": kind, "sequence_number": s.seq}
	s.seq++
	for _, part := range parts {
		maps.Copy(data, part)
	}
	fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", kind, compact(data)) // Codex may be gone; ctx tells
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

// cutWord splits "word rest".
func cutWord(s string) (word, rest string) {
	word, rest, _ = strings.Cut(strings.TrimSpace(s), " ")
	return word, strings.TrimSpace(rest)
}
