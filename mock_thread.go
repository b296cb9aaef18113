package main

// mock_thread.go owns the mock Codex's threads: opening, resuming, reading and unloading them, their settings, the
// shape in which clients see them, and what is kept of them under $CODEX_HOME: histories in sessions/mock, one line of
// JSON for every change, and the lock that keeps a second process off a thread. mock.go calls its requests on the
// reading goroutine, where they must never wait; mock_turn.go runs the turns. It never reads or writes anything of the
// user's own Codex, config.toml least of all.

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
	"sync"
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
	config    map[string]any // that held as the thread was opened; not kept in the history
	turns     []*mockTurnRecord
	active    *mockTurn
	status    any
	used      bool            // the thread had a turn, so its history exists
	deaf      bool            // the client has unsubscribed, and hears only of the thread's status
	byDefault bool            // nobody asked for the thread's sandbox
	totalIn   int             // input tokens
	total     int             // all tokens
	allowed   map[string]bool // commands accepted for the session
	closers   []func()        // called as the thread is unloaded
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

// threadView is the Thread object. Without turns its list of turns is empty.
func (m *mockServer) threadView(th *mockThread, turns []any, loadedNow bool) map[string]any {
	s := th.Settings
	var path any
	if !th.Ephemeral {
		path = m.home.path(th.ID)
	}
	if turns == nil {
		turns = []any{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	updated := th.Created
	if n := len(th.turns); n > 0 {
		updated = th.turns[n-1].Started
	}
	status, direct, environments := any(map[string]any{"type": "notLoaded"}), any(nil), any(nil)
	if loadedNow {
		status, direct = th.status, th.Parent == ""
		environments = []any{map[string]any{"environmentId": "local", "cwd": s.Cwd,
			"runtimeWorkspaceRoots": []any{s.Cwd}}}
	}
	return mockNulls("gitInfo extra forkedFromId section sectionEnteredAt projectId threadSource agentNickname "+
		"agentRole attachedToThreadId daybreakEnabled", map[string]any{"id": th.ID, "preview": th.Preview,
		"name": mockNull(th.Name), "modelProvider": th.provider(), "model": s.Model,
		"reasoningEffort": mockNull(s.Effort), "cwd": s.Cwd,
		"createdAt": th.Created, "updatedAt": updated, "recencyAt": updated, "cliVersion": m.version, "path": path,
		"sessionId": th.ID, "parentThreadId": mockNull(th.Parent), "ephemeral": th.Ephemeral, "source": "vscode",
		"status": status, "canAcceptDirectInput": direct, "environments": environments, "historyMode": "paginated",
		"turns": turns, "originator": m.client.name})
}

func (th *mockThread) provider() string {
	return cmp.Or(mockString(th.config, "model_provider"), "openai")
}

// opened is the result of thread/start and resume.
func (m *mockServer) opened(th *mockThread, turns []any) map[string]any {
	s := th.Settings
	var profile any
	switch {
	case !th.byDefault:
	case s.sandbox() == "readOnly":
		profile = map[string]any{"id": ":read-only", "extends": nil}
	case s.sandbox() == "workspaceWrite":
		profile = map[string]any{"id": ":workspace", "extends": nil}
	}
	out := map[string]any{"thread": m.threadView(th, turns, true), "model": s.Model, "modelProvider": th.provider(),
		"cwd": s.Cwd, "approvalPolicy": s.Approval, "sandbox": s.Sandbox, "reasoningEffort": mockNull(s.Effort),
		"serviceTier": nil, "runtimeWorkspaceRoots": []any{s.Cwd}, "instructionSources": []any{},
		"approvalsReviewer": "user", "activePermissionProfile": profile, "multiAgentMode": "explicitRequestOnly",
		"disabledPluginIds": []any{}}
	if s.Collaboration != "" {
		out["collaborationMode"] = s.collaborationMode()
	}
	return out
}

func (s mockSettings) collaborationMode() any {
	return map[string]any{"mode": cmp.Or(s.Collaboration, "default"), "settings": map[string]any{"model": s.Model,
		"reasoning_effort": mockNull(s.Effort), "developer_instructions": nil}}
}

// settled is the settle of the mock that ships: of configuration it knows only what the request itself has.
func (m *mockServer) settled(params json.RawMessage, kept *mockSettings) (mockSettings, map[string]any, string) {
	config := map[string]any{}
	_ = json.Unmarshal(rawField(params, "config"), &config) // absent or null: nothing
	s := mockSettings{Approval: toJSON("on-request"), Sandbox: mockSandbox("readOnly", nil, nil)}
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
		s.Sandbox = mockSandbox(kind, nil, nil)
	}
	return s, config, ""
}

func mockSandboxKind(word string) string {
	return map[string]string{"read-only": "readOnly", "workspace-write": "workspaceWrite",
		"danger-full-access": "dangerFullAccess"}[word]
}

// mockSandbox is a sandbox policy with everything that given leaves out; of workspaceWrite the configuration's table
// says the rest.
func mockSandbox(kind string, given json.RawMessage, table map[string]any) json.RawMessage {
	p := map[string]any{}
	switch kind {
	case "workspaceWrite":
		p = map[string]any{
			"writableRoots":       cmp.Or[any](table["writable_roots"], []any{}),
			"networkAccess":       table["network_access"] == true,
			"excludeTmpdirEnvVar": table["exclude_tmpdir_env_var"] == true,
			"excludeSlashTmp":     table["exclude_slash_tmp"] == true,
		}
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
	return &mockThread{config: config, mockThreadState: mockThreadState{
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
	th.byDefault = isNull(rawField(msg.params, "sandbox")) && mockString(config, "sandbox_mode") == ""
	_ = json.Unmarshal(rawField(msg.params, "dynamicTools"), &th.Tools) // absent or null: none
	m.loadNew(msg, th)
}

// loadNew loads a thread that the request msg has made, and answers the request.
func (m *mockServer) loadNew(msg *message, th *mockThread) {
	m.load(th)
	if !th.Ephemeral { // nothing of an ephemeral thread is on disk
		m.home.lock(th.ID)
	}
	m.reply(msg, m.opened(th, nil))
	m.notify("thread/started", map[string]any{"thread": m.threadView(th, nil, true)})
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
	m.keep(th, mockRecord{Thread: &state})
	for _, t := range th.turns {
		m.keep(th, mockRecord{Turn: t})
	}
	m.loadNew(msg, th)
}

func (m *mockServer) load(th *mockThread) {
	th.status = map[string]any{"type": "idle"}
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
		m.reply(msg, m.opened(th, m.turnViews(th, hydrate)))
		return
	}
	s, config, failure := m.settle(msg.params, &th.Settings)
	if failure != "" {
		m.refuse(msg, failure)
		return
	}
	if !m.home.lock(th.ID) && !m.early { // 0.104 lets both write, and the history suffers
		m.refuse(msg, "thread "+th.ID+" already has an active writer")
		return
	}
	th.Settings, th.config = s, config
	m.load(th)
	m.setStatus(th, th.status)
	m.reply(msg, m.opened(th, m.turnViews(th, hydrate)))
}

// threadRead is a thread with its history, loaded or not.
func (m *mockServer) threadRead(msg *message) {
	th, loaded := m.find(msg, "thread not loaded: ")
	if th == nil {
		return
	}
	turns := string(rawField(msg.params, "includeTurns")) == "true"
	if turns && !th.used {
		m.peer.replyError(msg.id, &rpcError{Code: codeNoMethod, Message: "list_turns is not supported yet"})
		return
	}
	view := m.threadView(th, m.turnViews(th, turns), loaded)
	m.reply(msg, map[string]any{"thread": view, "readState": m.readState(th)})
}

// readState is the mark of what a person hasn't read yet.
func (m *mockServer) readState(th *mockThread) map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first any
	if len(th.turns) > 0 {
		first = map[string]any{"type": "turn", "turnId": th.turns[0].ID}
	}
	return map[string]any{"firstUnread": first, "revision": newMockID()}
}

// turnViews are a thread's turns as thread/read shows them, nil if not asked.
func (m *mockServer) turnViews(th *mockThread, asked bool) []any {
	if !asked {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	views := []any{}
	for _, t := range th.turns {
		v := mockTurnView(t.ID, t.Status, t.Items, t.Error)
		v["itemsView"], v["startedAt"], v["rootTurnId"] = "full", t.Started, cmp.Or(t.Root, t.ID)
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
		time.AfterFunc(time.Duration(delay*float64(time.Second)), func() { m.unload(th) })
	}
}

// unload ends a thread that still has no subscriber and no turn.
func (m *mockServer) unload(th *mockThread) {
	m.mu.Lock()
	stays := m.threads[th.ID] != th || !th.deaf || th.active != nil // it may have been loaded anew meanwhile
	if !stays {
		delete(m.threads, th.ID) // whoever resumes the thread now finds its writer lock held for a moment
	}
	closers := th.closers
	m.mu.Unlock()
	if stays {
		return
	}
	m.setStatus(th, map[string]any{"type": "notLoaded"})
	m.killShells(th)
	for _, end := range closers {
		end()
	}
	m.home.unlock(th.ID)
	m.notify("thread/closed", map[string]any{"threadId": th.ID})
}

// closeThreads ends what runs for the threads, as the process ends.
func (m *mockServer) closeThreads() {
	m.killShells(nil)
	m.mu.Lock()
	var closers []func()
	for _, th := range m.threads {
		closers = append(closers, th.closers...)
	}
	m.mu.Unlock()
	for _, end := range closers {
		end()
	}
}

func (m *mockServer) settingsUpdate(msg *message, th *mockThread) {
	m.mu.Lock()
	changed := m.override(th, msg.params)
	m.mu.Unlock()
	m.reply(msg, struct{}{})
	m.settingsChanged(th, changed)
}

// override makes a turn's settings those of the thread and of all later turns, as Codex does. mu is held.
func (m *mockServer) override(th *mockThread, params json.RawMessage) (changed bool) {
	s, before, byDefault := &th.Settings, string(toJSON(th.Settings)), th.byDefault
	s.Cwd = cmp.Or(stringField(params, "cwd"), s.Cwd)
	s.Model = cmp.Or(stringField(params, "model"), s.Model)
	s.Effort = cmp.Or(stringField(params, "effort"), s.Effort)
	if a := rawField(params, "approvalPolicy"); !isNull(a) {
		s.Approval = a
	}
	if p := rawField(params, "sandboxPolicy"); !isNull(p) {
		s.Sandbox, th.byDefault = mockSandbox(stringField(p, "type"), p, nil), false
	}
	s.Collaboration = cmp.Or(stringField(params, "collaborationMode", "mode"), s.Collaboration)
	return before != string(toJSON(*s)) || byDefault != th.byDefault
}

func (m *mockServer) settingsChanged(th *mockThread, changed bool) {
	if !changed {
		return
	}
	m.mu.Lock()
	s := th.Settings
	m.mu.Unlock()
	settings := mockNulls("activePermissionProfile personality serviceTier", map[string]any{
		"approvalPolicy": s.Approval, "approvalsReviewer": "user", "cwd": s.Cwd, "effort": mockNull(s.Effort),
		"disabledPluginIds": []any{}, "environments": []any{}, "collaborationMode": s.collaborationMode(),
		"model":         s.Model,
		"modelProvider": "openai", "multiAgentMode": "explicitRequestOnly", "sandboxPolicy": s.Sandbox,
		"summary": "auto"})
	m.tell(th, "thread/settings/updated", map[string]any{"threadId": th.ID, "threadSettings": settings})
}

// threadClean ends a thread's background shells. Their items complete after the answer, with the id of the turn that
// began them.
func (m *mockServer) threadClean(msg *message, th *mockThread) {
	m.reply(msg, struct{}{})
	m.killShells(th)
}

// tell sends a notification about a thread. A client that has unsubscribed hears only of its status.
func (m *mockServer) tell(th *mockThread, method string, params map[string]any) {
	m.mu.Lock()
	deaf := th.deaf
	m.mu.Unlock()
	if !deaf || method == "thread/status/changed" {
		m.notify(method, params)
	}
}

// setStatus makes and tells a thread's status.
func (m *mockServer) setStatus(th *mockThread, status any) {
	m.mu.Lock()
	th.status = status
	m.mu.Unlock()
	m.tell(th, "thread/status/changed", map[string]any{"threadId": th.ID, "status": status})
}

// keep writes a line of a thread's history, and says on stderr if that fails.
func (m *mockServer) keep(th *mockThread, r mockRecord) {
	if th.Ephemeral {
		return
	}
	if err := m.home.save(th.ID, r); err != nil {
		fmt.Fprintf(m.stderr, "ERROR codex_core::rollout: failed to write %s: %v\n", m.home.path(th.ID), err)
	}
}

// mockHome is $CODEX_HOME and the writer locks that this process holds there.
type mockHome struct {
	dir string

	mu   sync.Mutex          // guards the field below
	held map[string]*os.File // by thread
}

// openMockHome finds $CODEX_HOME. Like the real one it refuses a directory that is named but missing, and makes
// ~/.codex if none is named.
func openMockHome() (*mockHome, error) {
	h := &mockHome{dir: os.Getenv("CODEX_HOME"), held: map[string]*os.File{}}
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

// lock takes the writer lock of a thread; false if another process has it.
func (h *mockHome) lock(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := openMaking(strings.TrimSuffix(h.path(id), "jsonl")+"lock", 0)
	if err != nil {
		return false
	}
	if lockFile(f, true, false) != nil {
		_ = f.Close()
		return false
	}
	h.held[id] = f
	return true
}

func (h *mockHome) unlock(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.held[id]; f != nil {
		_ = f.Close()
		delete(h.held, id)
	}
}

// release frees every lock, as the process ends.
func (h *mockHome) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.held {
		_ = f.Close()
	}
	clear(h.held)
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
