package main

// proxy_modelapi_test.go owns the scripted model API: a Responses endpoint on loopback
// that real Codex binaries are pointed at, so that tests of them need neither a
// login nor a network. The last user message says what the model does, one
// directive a line (proxy_modelstep_test.go); every request is kept for assertions. It
// never talks to anything, and never decides what a test expects.

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	Path         string
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
var directives = regexp.MustCompile(`^\s*(SAY|SLOW|STAMP|HANG|GATE|SHELLESC|SHELL|RAWPATCH|PATCH|CALLMCP|CALL|CUSTOM|REASON|` +
	`ECHO_INSTRUCTIONS|ECHO_TOOLS|FAILSTREAM|FAIL|DROP|USAGE)(?:\s+(.*))?$`)

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
	raw, err := requestBody(r)
	if err != nil {
		replyJSON(w, http.StatusUnsupportedMediaType, apiError(err.Error()))
		return
	}
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responses"):
		req, stream, err := parseModelRequest(raw)
		if err != nil {
			replyJSON(w, http.StatusBadRequest, apiError(err.Error()))
			return
		}
		req.Path = r.URL.Path
		api.keep(req)
		if !stream {
			replyJSON(w, http.StatusBadRequest, apiError("this model only streams"))
			return
		}
		(&modelStream{api: api, w: w, ctx: r.Context(), req: req}).respond()
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responses/compact"):
		api.keep(modelRequest{Path: r.URL.Path, Raw: string(raw)})
		replyJSON(w, http.StatusOK, map[string]any{"output": []any{map[string]any{
			"type": "message", "role": "user",
			"content": []any{map[string]any{"type": "input_text", "text": "COMPACTED HISTORY"}},
		}}})
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		replyJSON(w, http.StatusOK, map[string]any{"object": "list", "models": []any{},
			"data": []any{map[string]any{"id": "scripted-model", "object": "model", "owned_by": "test"}}})
	default:
		replyJSON(w, http.StatusNotFound, apiError(fmt.Sprintf("the scripted API has no %s %s", r.Method, r.URL.Path)))
	}
}

func (api *modelAPI) keep(req modelRequest) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.seen = append(api.seen, req)
	close(api.changed)
	api.changed = make(chan struct{})
}

func requestBody(r *http.Request) ([]byte, error) {
	body := io.Reader(r.Body)
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = z
	default: // Codex compresses with zstd only for its own provider
		return nil, fmt.Errorf("the scripted API does not read content encoding %q", enc)
	}
	return io.ReadAll(body)
}

func replyJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that went away is no failure
}

func apiError(msg string) any {
	return map[string]any{"error": map[string]any{"message": msg, "type": "scripted_error", "code": "scripted_error"}}
}

// parseModelRequest reads what the model was told. The steps are those of the
// last user message: Codex puts its own context into user messages before it.
func parseModelRequest(raw []byte) (req modelRequest, stream bool, err error) {
	var body struct {
		Model        string
		Instructions string
		Stream       *bool
		Tools        []modelTool
		Input        []struct {
			Type, Role      string
			Content, Output json.RawMessage
			Tools           []modelTool // of additional_tools and tool_search_output
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return req, false, fmt.Errorf("reading model request: %w", err)
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
	for line := range strings.Lines(now) {
		if m := directives.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			req.steps = append(req.steps, modelStep{op: m[1], arg: strings.TrimSpace(m[2])})
		}
	}
	return req, body.Stream == nil || *body.Stream, nil
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
		if ns != "" {
			ns := ns + "::"
			r.Tools = append(r.Tools, ns+t.Name)
		} else {
			r.Tools = append(r.Tools, t.Name)
		}
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
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp(cache, "codex-home-*")
	if err != nil {
		tb.Fatal(err)
	}
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
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	return dir
}
