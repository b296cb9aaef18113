package main

// mock_thread.go owns the mock Codex's threads: starting, resuming, forking,
// reading, listing, unloading, their settings and the shape in which each
// version shows them. mock.go dispatches to it on the reading goroutine;
// mock_turn.go runs turns in them. It must never start a goroutine but the
// timer of a delayed unload.

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// mockThreadState is what is kept of a thread beside its turns.
type mockThreadState struct {
	ID         string            `json:"id"`
	ForkedFrom string            `json:"forkedFrom,omitempty"`
	Parent     string            `json:"parent,omitempty"` // set for a subagent
	Created    int64             `json:"created"`
	Settings   mockSettings      `json:"settings"`
	Base       string            `json:"base,omitempty"`
	Developer  []string          `json:"developer,omitempty"`
	Tools      []json.RawMessage `json:"tools,omitempty"`
	Name       string            `json:"name,omitempty"`
	Preview    string            `json:"preview"`
	Archived   bool              `json:"archived,omitempty"`
	Ephemeral  bool              `json:"ephemeral,omitempty"`
}

// mockThread is a loaded thread. mockServer.mu guards it.
type mockThread struct {
	mockThreadState
	turns     []*mockTurnRecord
	active    *mockTurn
	status    any
	used      bool // had a turn: its history exists
	deaf      bool // unsubscribed: no events but its status
	unload    time.Duration
	byDefault bool // nobody asked for its sandbox: it shows as a permission profile
	totalIn   int
	total     int
	allowed   map[string]bool // commands accepted for the session
	onMail    []string        // ON_MAIL: what is done when mail comes
	ending    []string        // ENDING: what is done when asked for a summary
	compactBy string          // config.compact_prompt
	servers   map[string]any  // config.mcp_servers, as it was when the thread was loaded; not kept
	running   map[string]*mockToolServer
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

// threadID reads params.threadId; "" means that the request was refused.
func (m *mockServer) threadID(msg *message, what string) string {
	raw := rawField(msg.params, "threadId")
	id, ok := rawString(raw)
	switch {
	case raw == nil:
		m.refuse(msg, "Invalid request: missing field `threadId`")
		return ""
	case !ok && rawKind(raw) == '0':
		m.refuse(msg, "Invalid request: invalid type: integer `"+string(raw)+"`, expected a string")
		return ""
	case !ok:
		m.refuse(msg, "Invalid request: invalid type: expected a string")
		return ""
	}
	for i, c := range strings.ToLower(id) {
		if !strings.ContainsRune("0123456789abcdef-", c) {
			m.refuse(msg, fmt.Sprintf("invalid %s id: invalid character: expected an optional prefix of `urn:uuid:` followed by [0-9a-fA-F-], found `%c` at %d", what, c, i+1))
			return ""
		}
	}
	if len(id) != 36 {
		m.refuse(msg, fmt.Sprintf("invalid %s id: invalid length: expected length 32 for simple format, found %d", what, len(id)))
		return ""
	}
	return id
}

// loaded returns the loaded thread that params name, nil if it was refused.
func (m *mockServer) loaded(msg *message) *mockThread {
	id := m.threadID(msg, "thread")
	if id == "" {
		return nil
	}
	m.mu.Lock()
	th := m.threads[id]
	m.mu.Unlock()
	if th == nil {
		m.refuse(msg, "thread not found: "+id)
	}
	return th
}

// threadView is the Thread object of the version. turns nil leaves it empty.
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
	v := map[string]any{"id": th.ID, "preview": th.Preview, "modelProvider": cmp.Or(mockString(m.home.config, "model_provider"), "openai"), "createdAt": th.Created,
		"updatedAt": updated, "path": path, "cwd": s.Cwd, "cliVersion": m.version, "source": "vscode", "gitInfo": nil, "turns": turns}
	if m.old() {
		return v
	}
	status, direct := any(map[string]any{"type": "notLoaded"}), any(nil)
	if loadedNow {
		status, direct = th.status, th.Parent == ""
	}
	for key, val := range map[string]any{"extra": nil, "sessionId": th.ID, "forkedFromId": mockNull(th.ForkedFrom), "parentThreadId": mockNull(th.Parent),
		"ephemeral": th.Ephemeral, "section": nil, "sectionEnteredAt": nil, "projectId": nil, "historyMode": "paginated", "model": s.Model,
		"reasoningEffort": mockNull(s.Effort), "recencyAt": updated, "status": status, "canAcceptDirectInput": direct, "threadSource": nil,
		"agentNickname": nil, "agentRole": nil, "name": mockNull(th.Name)} {
		v[key] = val
	}
	if m.new() {
		v["environments"] = nil
		if loadedNow {
			v["environments"] = []any{map[string]any{"environmentId": "local", "cwd": s.Cwd, "runtimeWorkspaceRoots": []any{s.Cwd}}}
		}
		v["attachedToThreadId"], v["originator"], v["daybreakEnabled"] = nil, m.client.name, nil
	}
	return v
}

func mockNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// opened is the result of thread/start, resume and fork.
func (m *mockServer) opened(th *mockThread, turns []any) map[string]any {
	s := th.Settings
	v := map[string]any{"thread": m.threadView(th, turns, true), "model": s.Model, "modelProvider": cmp.Or(mockString(m.home.config, "model_provider"), "openai"),
		"cwd": s.Cwd, "approvalPolicy": s.Approval, "sandbox": s.Sandbox, "reasoningEffort": mockNull(s.Effort)}
	if m.old() {
		return v
	}
	var profile any
	switch {
	case !th.byDefault:
	case s.sandbox() == "readOnly":
		profile = map[string]any{"id": ":read-only", "extends": nil}
	case s.sandbox() == "workspaceWrite":
		profile = map[string]any{"id": ":workspace", "extends": nil}
	}
	v["serviceTier"], v["runtimeWorkspaceRoots"], v["instructionSources"] = nil, []any{s.Cwd}, []any{}
	v["approvalsReviewer"], v["activePermissionProfile"], v["multiAgentMode"] = "user", profile, "explicitRequestOnly"
	if m.new() {
		v["disabledPluginIds"] = []any{}
	}
	return v
}

func (m *mockServer) threadStart(msg *message) {
	if !m.checkWords(msg) {
		return
	}
	s, cfg, failed := m.settle(msg.params, nil)
	if failed == "" {
		failed = m.badTools(rawField(msg.params, "dynamicTools"))
	}
	if failed != "" {
		m.refuse(msg, failed)
		return
	}
	// 0.169 trusts the repository of a thread that may write, unless the
	// nested projects table says otherwise (fact 16; not for sandboxPolicy).
	if root := mockRepoRoot(s.Cwd); m.new() && root != "" && !isNull(rawField(msg.params, "sandbox")) && s.sandbox() != "readOnly" &&
		mockString(cfg, "projects", root, "trust_level") == "" && mockString(cfg, "projects", s.Cwd, "trust_level") == "" {
		if err := m.home.trust(root); err != nil {
			m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "error creating thread: " + err.Error()})
			return
		}
	}
	th := &mockThread{mockThreadState: mockThreadState{ID: newMockID(), Created: time.Now().Unix(), Settings: s,
		Base:      cmp.Or(stringField(msg.params, "baseInstructions"), mockString(cfg, "instructions")),
		Ephemeral: string(rawField(msg.params, "ephemeral")) == "true"}}
	if d := cmp.Or(stringField(msg.params, "developerInstructions"), mockString(cfg, "developer_instructions")); d != "" {
		th.Developer = []string{d}
	}
	th.servers, _ = cfg["mcp_servers"].(map[string]any)
	th.compactBy = mockString(cfg, "compact_prompt")
	th.byDefault = isNull(rawField(msg.params, "sandbox")) && mockString(cfg, "sandbox_mode") == ""
	_ = json.Unmarshal(rawField(msg.params, "dynamicTools"), &th.Tools) // badTools has looked at them
	th.unload = mockSeconds(cfg, "thread_unload_delay_secs", 0)
	m.load(th)
	if !th.Ephemeral { // of those nothing is on disk
		m.home.lock(th.ID)
	}
	m.peer.reply(msg.id, m.opened(th, nil))
	m.notify("thread/started", map[string]any{"thread": m.threadView(th, nil, true)})
	m.startUps(th)
}

func (m *mockServer) load(th *mockThread) {
	th.status = map[string]any{"type": "idle"}
	th.allowed = map[string]bool{}
	m.mu.Lock()
	m.threads[th.ID] = th
	m.mu.Unlock()
}

// stored reads a thread that isn't loaded. A turn cut off by the end of its
// process is interrupted; 0.104 calls it completed and forgets its commands.
func (m *mockServer) stored(id string) (*mockThread, error) {
	state, turns, err := m.home.read(id)
	if err != nil {
		return nil, err
	}
	for _, t := range turns {
		if t.Status == "inProgress" {
			t.Status = "interrupted"
			if m.old() {
				t.Status = "completed"
			}
		}
		if m.old() {
			t.Items = slices.DeleteFunc(t.Items, func(it json.RawMessage) bool {
				kind := stringField(it, "type")
				return kind == "commandExecution" || kind == "mcpToolCall"
			})
		}
	}
	return &mockThread{mockThreadState: *state, turns: turns, used: true}, nil
}

func (m *mockServer) threadResume(msg *message) {
	if !m.checkWords(msg) {
		return
	}
	id := m.threadID(msg, "session")
	if id == "" {
		return
	}
	m.mu.Lock()
	th := m.threads[id]
	if th != nil {
		th.deaf = false
	}
	m.mu.Unlock()
	hydrate := string(rawField(msg.params, "excludeTurns")) != "true"
	if th != nil { // overrides are ignored
		m.peer.reply(msg.id, m.opened(th, m.turnViews(th, hydrate)))
		return
	}
	th, err := m.stored(id)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && th.Archived && m.new():
		m.refuse(msg, "no rollout found for thread id "+id)
		return
	case err != nil && m.old():
		m.refuse(msg, err.Error())
		return
	case err != nil:
		m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "failed to read thread: thread-store internal error: " + err.Error()})
		return
	}
	s, cfg, failed := m.settle(msg.params, &th.Settings)
	if failed != "" {
		m.refuse(msg, failed)
		return
	}
	if !m.home.lock(id) && m.new() { // 0.104 lets both write, and the history suffers
		m.refuse(msg, "thread "+id+" already has an active writer")
		return
	}
	th.Settings = s
	th.servers, _ = cfg["mcp_servers"].(map[string]any)
	th.compactBy = mockString(cfg, "compact_prompt")
	th.unload = mockSeconds(cfg, "thread_unload_delay_secs", 0)
	m.load(th)
	if !m.old() {
		if hydrate {
			m.notify("deprecationNotice", map[string]any{"summary": "Full-history hydration is deprecated for paginated threads; use `excludeTurns: true`, then page with `thread/turns/list` and `thread/items/list`.", "details": nil})
		}
		m.setStatus(th, th.status)
	}
	m.peer.reply(msg.id, m.opened(th, m.turnViews(th, hydrate)))
	if m.new() {
		m.tell(th, "thread/goal/cleared", map[string]any{"threadId": id})
	}
	if !m.old() || len(th.servers) > 0 {
		m.startUps(th)
	}
}

func (m *mockServer) threadFork(msg *message) {
	id := m.threadID(msg, "thread")
	if id == "" || !m.checkWords(msg) {
		return
	}
	m.mu.Lock()
	from := m.threads[id]
	m.mu.Unlock()
	if from == nil {
		var err error
		if from, err = m.stored(id); err != nil {
			m.refuse(msg, "no rollout found for thread id "+id)
			return
		}
	}
	if !from.used {
		m.refuse(msg, "no rollout found for thread id "+id)
		return
	}
	s, _, failed := m.settle(msg.params, &from.Settings)
	if failed != "" {
		m.refuse(msg, failed)
		return
	}
	m.mu.Lock()
	th := &mockThread{mockThreadState: from.mockThreadState, used: true}
	for _, t := range from.turns { // a running one goes on changing its own
		copied := *t
		copied.Items, copied.Texts = slices.Clone(t.Items), slices.Clone(t.Texts)
		th.turns = append(th.turns, &copied)
	}
	m.mu.Unlock()
	th.ID, th.Created, th.ForkedFrom, th.Settings = newMockID(), time.Now().Unix(), id, s
	m.load(th)
	m.home.lock(th.ID)
	m.keep(th, mockRecord{Thread: &th.mockThreadState})
	for _, t := range th.turns {
		m.keep(th, mockRecord{Turn: t})
	}
	m.peer.reply(msg.id, m.opened(th, m.turnViews(th, true)))
	m.notify("thread/started", map[string]any{"thread": m.threadView(th, nil, true)})
}

// keep writes a line of a thread's history and says on stderr if it can't.
func (m *mockServer) keep(th *mockThread, r mockRecord) {
	if th.Ephemeral {
		return
	}
	if err := m.home.save(th.ID, r); err != nil {
		fmt.Fprintf(m.stderr, "ERROR codex_core::rollout: failed to write %s: %v\n", m.home.path(th.ID), err)
	}
}

func (m *mockServer) threadArchive(msg *message) {
	id := m.threadID(msg, "thread")
	if id == "" {
		return
	}
	m.mu.Lock()
	th := m.threads[id]
	m.mu.Unlock()
	if th == nil {
		var err error
		if th, err = m.stored(id); err != nil {
			m.refuse(msg, "no rollout found for thread id "+id)
			return
		}
	}
	if !th.used && m.old() {
		m.refuse(msg, "no rollout found for thread id "+id)
		return
	}
	m.mu.Lock()
	th.Archived = true
	if th.active != nil {
		th.active.interruptLocked(nil)
	}
	state := th.mockThreadState
	m.mu.Unlock()
	m.setStatus(th, map[string]any{"type": "notLoaded"})
	if th.used {
		m.keep(th, mockRecord{Thread: &state})
	}
	m.drain(th)
	m.peer.reply(msg.id, struct{}{})
	if !m.old() {
		m.notify("thread/archived", map[string]any{"threadId": id})
	}
}

// drain unloads a thread: its shells die and another process may write it.
func (m *mockServer) drain(th *mockThread) {
	m.killShells(th)
	m.stopServers(th)
	m.mu.Lock()
	if m.threads[th.ID] == th {
		delete(m.threads, th.ID)
	}
	m.mu.Unlock()
	m.home.unlock(th.ID)
}
