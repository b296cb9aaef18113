package main

// mock_thread.go owns the mock Codex's threads: opening, resuming, reading and unloading them, their settings, the
// shape in which clients see them, and what is kept of them under $CODEX_HOME: histories in sessions/mock, one line of
// JSON for every change. mock.go calls its requests on the reading goroutine, where they must never wait; mock_turn.go
// runs the turns. It never reads or writes anything of the user's own Codex, config.toml and rules least of all.

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mockSettings are what a turn runs under.
type mockSettings struct {
	Cwd      string          `json:"cwd"`
	Model    string          `json:"model"`
	Effort   string          `json:"effort"`   // "" is null
	Approval json.RawMessage `json:"approval"` // a word, or {"granular":…}
	Sandbox  json.RawMessage `json:"sandboxPolicy"`
	// Collaboration is the mode of collaborationMode, "" before the client said one.
	Collaboration string `json:"collaboration,omitempty"`
}

func (s mockSettings) approval() string {
	w, _ := rawString(s.Approval)
	return w
}

func (s mockSettings) sandbox() string { return stringField(s.Sandbox, "type") }

// mockThreadState is what the history keeps of a thread beside its turns.
type mockThreadState struct {
	ID        string            `json:"id"`
	Parent    string            `json:"parent,omitempty"` // set for a subagent
	Created   int64             `json:"created"`
	Settings  mockSettings      `json:"settings"`
	Base      string            `json:"base,omitempty"`
	Developer string            `json:"developer,omitempty"`
	Tools     []json.RawMessage `json:"tools,omitempty"`
	Preview   string            `json:"preview"`
	Name      string            `json:"name,omitempty"`
	Ephemeral bool              `json:"ephemeral,omitempty"`
}

// mockThread is a loaded thread. mockServer.mu guards it.
type mockThread struct {
	mockThreadState
	m       *mockServer
	config  map[string]any // that held as the thread was opened; not kept in the history
	turns   []*mockTurnRecord
	active  *mockTurn
	status  any
	used    bool            // the thread had a turn, so its history exists
	deaf    bool            // the client has unsubscribed, and hears only of the thread's status
	totalIn int             // input tokens
	total   int             // all tokens
	allowed map[string]bool // commands accepted for the session
}

// newMockID is a version 7 UUID.
func newMockID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	ms := time.Now().UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6], b[8] = 0x70|b[6]&0x0f, 0x80|b[8]&0x3f
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// threadID reads params.threadId, which names a file; "" means that the request was refused.
func (m *mockServer) threadID(msg *message) string {
	id := stringField(msg.params, "threadId")
	if len(id) != 36 || strings.Trim(strings.ToLower(id), "0123456789abcdef-") != "" {
		m.refuse(msg, "invalid thread id: expected a UUID, found "+id)
		return ""
	}
	return id
}

// loaded returns the loaded thread that params name; nil means that the request was refused.
func (m *mockServer) loaded(msg *message) *mockThread {
	id := m.threadID(msg)
	if id == "" {
		return nil
	}
	th := m.thread(id)
	if th == nil {
		m.refuse(msg, "thread not found: "+id)
	}
	return th
}

func (m *mockServer) thread(id string) *mockThread {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.threads[id]
}

// view is the Thread object, of what clients of ours look at. Without turns its list of turns is empty.
func (th *mockThread) view(turns []any) map[string]any {
	if turns == nil {
		turns = []any{}
	}
	th.m.mu.Lock()
	defer th.m.mu.Unlock()
	return map[string]any{"id": th.ID, "preview": th.Preview, "name": mockNull(th.Name),
		"status": cmp.Or[any](th.status, map[string]any{"type": "notLoaded"}), "turns": turns}
}

// opened is the result of thread/start and resume.
func (th *mockThread) opened(turns []any) map[string]any {
	s := th.Settings
	out := map[string]any{"thread": th.view(turns), "model": s.Model, "reasoningEffort": mockNull(s.Effort)}
	if s.Collaboration != "" {
		out["collaborationMode"] = map[string]any{"mode": s.Collaboration}
	}
	return out
}

// settleThread is the settle of the mock that ships: of configuration it knows only what the request itself has.
func settleThread(params json.RawMessage, kept *mockSettings) (mockSettings, map[string]any, string) {
	config := map[string]any{}
	_ = json.Unmarshal(rawField(params, "config"), &config) // absent or null: nothing
	s := mockSettings{Approval: toJSON("on-request"), Sandbox: mockSandbox("readOnly", nil)}
	if kept != nil {
		s = *kept
	}
	if cwd, err := filepath.Abs(cmp.Or(stringField(params, "cwd"), s.Cwd)); err == nil {
		s.Cwd = cwd
	}
	s.Model = cmp.Or(stringField(params, "model"), s.Model, mockString(config, "model"), mockModels()[0])
	s.Effort = cmp.Or(stringField(params, "effort"), s.Effort, mockString(config, "model_reasoning_effort"))
	if a := rawField(params, "approvalPolicy"); !isNull(a) {
		s.Approval = a
	}
	if word := stringField(params, "sandbox"); word != "" {
		kind := mockSandboxKind(word)
		if kind == "" {
			return s, nil, mockVariant(word, "read-only", "workspace-write", "danger-full-access")
		}
		s.Sandbox = mockSandbox(kind, nil)
	}
	return s, config, ""
}

func mockSandboxKind(word string) string {
	return map[string]string{"read-only": "readOnly", "workspace-write": "workspaceWrite",
		"danger-full-access": "dangerFullAccess"}[word]
}

// mockSandbox is a sandbox policy with everything that given leaves out.
func mockSandbox(kind string, given json.RawMessage) json.RawMessage {
	p := map[string]any{}
	switch kind {
	case "workspaceWrite":
		p = map[string]any{"writableRoots": []any{}, "networkAccess": false, "excludeTmpdirEnvVar": false,
			"excludeSlashTmp": false}
	case "readOnly":
		p["networkAccess"] = false
	}
	_ = eachField(given, func(key string, val json.RawMessage) bool { // an absent policy has no fields
		if _, known := p[key]; known {
			p[key] = val
		}
		return true
	})
	p["type"] = kind
	return toJSON(p)
}

// newThread makes a thread for thread/start and the codex tool.
func (m *mockServer) newThread(s mockSettings, config map[string]any, base, developer string) *mockThread {
	return &mockThread{m: m, config: config, mockThreadState: mockThreadState{
		ID: newMockID(), Created: time.Now().Unix(), Settings: s,
		Base:      cmp.Or(base, mockString(config, "instructions")),
		Developer: cmp.Or(developer, mockString(config, "developer_instructions")),
	}}
}

func (m *mockServer) threadStart(msg *message) {
	s, config, failure := m.settle(msg.params, nil)
	if failure != "" {
		m.refuse(msg, failure)
		return
	}
	th := m.newThread(s, config, stringField(msg.params, "baseInstructions"),
		stringField(msg.params, "developerInstructions"))
	th.Ephemeral = string(rawField(msg.params, "ephemeral")) == "true"
	_ = json.Unmarshal(rawField(msg.params, "dynamicTools"), &th.Tools) // absent or null: none
	m.loadNew(msg, th)
}

// loadNew loads a thread that the request msg has made, and answers the request.
func (m *mockServer) loadNew(msg *message, th *mockThread) {
	m.load(th)
	m.reply(msg, th.opened(nil))
	m.notify("thread/started", map[string]any{"thread": th.view(nil)})
}

// threadFork begins a thread with what another one holds, loaded or not; that one goes on as it is.
func (m *mockServer) threadFork(msg *message) {
	from, _ := m.find(msg, "no rollout found for thread id ")
	if from == nil {
		return
	}
	s, config, failure := m.settle(msg.params, &from.Settings)
	if failure != "" {
		m.refuse(msg, failure)
		return
	}
	th := m.newThread(s, config, "", "")
	id, ephemeral := th.ID, string(rawField(msg.params, "ephemeral")) == "true"
	m.mu.Lock()
	th.mockThreadState = from.mockThreadState
	for _, t := range from.turns {
		if t.Status != "inProgress" {
			th.turns = append(th.turns, t)
		}
	}
	m.mu.Unlock()
	th.ID, th.Settings, th.Ephemeral, th.used = id, s, ephemeral, true
	state := th.mockThreadState
	th.keep(mockRecord{Thread: &state})
	for _, t := range th.turns {
		th.keep(mockRecord{Turn: t})
	}
	m.loadNew(msg, th)
}

func (m *mockServer) load(th *mockThread) {
	th.m, th.status = m, map[string]any{"type": "idle"}
	th.allowed = map[string]bool{}
	m.mu.Lock()
	m.threads[th.ID] = th
	m.mu.Unlock()
}

// find returns the thread that params name, loaded or from its history. nil means that the request was refused, if
// there is no such thread by the words of missing.
func (m *mockServer) find(msg *message, missing string) (th *mockThread, loaded bool) {
	id := m.threadID(msg)
	if id == "" {
		return nil, false
	}
	if th = m.thread(id); th != nil {
		return th, true
	}
	th, err := m.home.read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.refuse(msg, missing+id)
	case err != nil:
		m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "failed to read thread: " + err.Error()})
	default:
		th.m = m
	}
	return th, false
}

func (m *mockServer) threadResume(msg *message) {
	th, loaded := m.find(msg, "no rollout found for thread id ")
	if th == nil {
		return
	}
	hydrate := string(rawField(msg.params, "excludeTurns")) != "true"
	if loaded { // overrides are ignored
		m.mu.Lock()
		th.deaf = false
		m.mu.Unlock()
		m.reply(msg, th.opened(th.turnViews(hydrate)))
		return
	}
	s, config, failure := m.settle(msg.params, &th.Settings)
	if failure != "" {
		m.refuse(msg, failure)
		return
	}
	th.Settings, th.config = s, config
	m.load(th)
	th.setStatus(th.status)
	m.reply(msg, th.opened(th.turnViews(hydrate)))
}

// threadRead is a thread with its history, loaded or not.
func (m *mockServer) threadRead(msg *message) {
	th, _ := m.find(msg, "thread not loaded: ")
	if th == nil {
		return
	}
	turns := string(rawField(msg.params, "includeTurns")) == "true"
	if turns && !th.used {
		m.peer.replyError(msg.id, &rpcError{Code: codeNoMethod, Message: "list_turns is not supported yet"})
		return
	}
	m.reply(msg, map[string]any{"thread": th.view(th.turnViews(turns))})
}

// turnViews are a thread's turns as thread/read shows them, nil if not asked.
func (th *mockThread) turnViews(asked bool) []any {
	if !asked {
		return nil
	}
	th.m.mu.Lock()
	defer th.m.mu.Unlock()
	views := []any{}
	for _, t := range th.turns {
		v := mockTurnView(t.ID, t.Status, t.Items, t.Error)
		if t.Completed > 0 {
			v["completedAt"] = t.Completed
		}
		views = append(views, v)
	}
	return views
}

// threadUnsubscribe: a thread without a subscriber is unloaded after the delay of its configuration. (The real Codex
// has a delay of half an hour where none is configured.)
func (m *mockServer) threadUnsubscribe(msg *message) {
	id := m.threadID(msg)
	if id == "" {
		return
	}
	status := "notLoaded"
	m.mu.Lock()
	th := m.threads[id]
	switch {
	case th == nil:
	case th.deaf:
		status = "notSubscribed"
	default:
		status, th.deaf = "unsubscribed", true
	}
	m.mu.Unlock()
	m.reply(msg, map[string]any{"status": status})
	if status != "unsubscribed" {
		return
	}
	if delay, _ := th.config["thread_unload_delay_secs"].(float64); delay > 0 {
		time.AfterFunc(time.Duration(delay*float64(time.Second)), th.unload)
	}
}

// unload ends a thread that still has no subscriber and no turn.
func (th *mockThread) unload() {
	m := th.m
	m.mu.Lock()
	stays := m.threads[th.ID] != th || !th.deaf || th.active != nil // it may have been loaded anew meanwhile
	if !stays {
		delete(m.threads, th.ID)
	}
	m.mu.Unlock()
	if stays {
		return
	}
	th.setStatus(map[string]any{"type": "notLoaded"})
	m.killShells(th)
	m.unloaded(th)
	m.notify("thread/closed", map[string]any{"threadId": th.ID})
}

func (th *mockThread) updateSettings(msg *message) {
	m := th.m
	m.mu.Lock()
	th.override(msg.params)
	m.mu.Unlock()
	m.reply(msg, struct{}{})
}

// override makes a turn's settings those of the thread and of all later turns, as Codex does. mockServer.mu is held.
func (th *mockThread) override(params json.RawMessage) {
	s := &th.Settings
	s.Cwd = cmp.Or(stringField(params, "cwd"), s.Cwd)
	s.Model = cmp.Or(stringField(params, "model"), s.Model)
	s.Effort = cmp.Or(stringField(params, "effort"), s.Effort)
	if a := rawField(params, "approvalPolicy"); !isNull(a) {
		s.Approval = a
	}
	if p := rawField(params, "sandboxPolicy"); !isNull(p) {
		s.Sandbox = mockSandbox(stringField(p, "type"), p)
	}
	s.Collaboration = cmp.Or(stringField(params, "collaborationMode", "mode"), s.Collaboration)
}

// clean ends a thread's background shells. Their items complete after the answer, with the id of the turn that
// began them.
func (th *mockThread) clean(msg *message) {
	th.m.reply(msg, struct{}{})
	th.m.killShells(th)
}

// tell sends a notification about a thread. A client that has unsubscribed hears only of its status.
func (th *mockThread) tell(method string, params map[string]any) {
	th.m.mu.Lock()
	deaf := th.deaf
	th.m.mu.Unlock()
	if !deaf || method == "thread/status/changed" {
		th.m.notify(method, params)
	}
}

// setStatus makes and tells a thread's status.
func (th *mockThread) setStatus(status any) {
	th.m.mu.Lock()
	th.status = status
	th.m.mu.Unlock()
	th.tell("thread/status/changed", map[string]any{"threadId": th.ID, "status": status})
}

// keep writes a line of a thread's history, and says on stderr if that fails.
func (th *mockThread) keep(r mockRecord) {
	if th.Ephemeral {
		return
	}
	if err := th.m.home.save(th.ID, r); err != nil {
		fmt.Fprintf(th.m.stderr, "ERROR codex_core::rollout: failed to write %s: %v\n", th.m.home.path(th.ID), err)
	}
}

// mockHome is $CODEX_HOME.
type mockHome struct{ dir string }

// openMockHome finds $CODEX_HOME. Like the real one it refuses a directory that is named but missing, and makes
// ~/.codex if none is named.
func openMockHome() (*mockHome, error) {
	h := &mockHome{dir: os.Getenv("CODEX_HOME")}
	if h.dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("finding the home directory: %w", err)
		}
		h.dir = filepath.Join(user, ".codex")
		return h, os.MkdirAll(h.dir, 0o700)
	}
	switch st, err := os.Stat(h.dir); {
	case err != nil:
		return nil, fmt.Errorf("CODEX_HOME points to %q, but that path does not exist", h.dir)
	case !st.IsDir():
		return nil, fmt.Errorf("CODEX_HOME points to %q, but that path is not a directory", h.dir)
	}
	return h, nil
}

func (h *mockHome) path(id string) string {
	return filepath.Join(h.dir, "sessions", "mock", id+".jsonl")
}

// mockRecord is one line of a thread's history. Of several lines about the thread, or about one turn, the last counts.
type mockRecord struct {
	Thread *mockThreadState `json:"thread,omitempty"`
	Turn   *mockTurnRecord  `json:"turn,omitempty"`
}

func (h *mockHome) save(id string, r mockRecord) error {
	f, err := openMaking(h.path(id), os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = f.Write(append(toJSON(r), '\n'))
	return errors.Join(err, f.Close())
}

// read returns a stored thread; fs.ErrNotExist if there is none. A turn that the end of its process cut off is
// interrupted.
func (h *mockHome) read(id string) (*mockThread, error) {
	text, err := os.ReadFile(h.path(id))
	if err != nil {
		return nil, err
	}
	th := &mockThread{used: true}
	for line := range bytes.Lines(text) {
		var r mockRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", h.path(id), err)
		}
		if r.Thread != nil {
			th.mockThreadState = *r.Thread
		}
		if r.Turn == nil {
			continue
		}
		if r.Turn.Status == "inProgress" {
			r.Turn.Status = "interrupted"
		}
		at := slices.IndexFunc(th.turns, func(t *mockTurnRecord) bool { return t.ID == r.Turn.ID })
		if at < 0 {
			th.turns = append(th.turns, r.Turn)
		} else {
			th.turns[at] = r.Turn
		}
	}
	if th.ID == "" { // the mock was killed before it wrote the first line
		return nil, fs.ErrNotExist
	}
	return th, nil
}
