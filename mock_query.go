package main

// mock_query.go owns the mock Codex's requests that run nothing: reading and
// listing threads, unsubscribing, naming, injecting, models, account and
// configuration. mock.go dispatches to it on the reading goroutine.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

func (m *mockServer) threadUnsubscribe(msg *message) {
	id := m.threadID(msg, "thread")
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
	m.peer.reply(msg.id, map[string]any{"status": status})
	if status == "unsubscribed" && th.unload > 0 { // config.thread_unload_delay_secs; 30 minutes without it
		time.AfterFunc(th.unload, func() {
			m.mu.Lock()
			gone := m.threads[id] != th || !th.deaf || th.active != nil // another one of the id may be loaded by now
			if !gone {
				delete(m.threads, id) // who resumes it from here on finds its writer at work for a moment
			}
			m.mu.Unlock()
			if gone {
				return
			}
			m.setStatus(th, map[string]any{"type": "notLoaded"})
			m.drain(th)
			m.notify("thread/closed", map[string]any{"threadId": id})
		})
	}
}

func (m *mockServer) threadName(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	m.mu.Lock()
	th.Name = stringField(msg.params, "name")
	state, used := th.mockThreadState, th.used
	m.mu.Unlock()
	if used {
		m.keep(th, mockRecord{Thread: &state})
	}
	m.peer.reply(msg.id, struct{}{})
	m.tell(th, "thread/name/updated", map[string]any{"threadId": th.ID, "threadName": state.Name})
}

func (m *mockServer) threadInject(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	var items []json.RawMessage
	if json.Unmarshal(rawField(msg.params, "items"), &items) != nil || len(items) == 0 {
		m.refuse(msg, "items must not be empty")
		return
	}
	m.mu.Lock()
	for _, it := range items {
		if stringField(it, "role") != "developer" {
			continue
		}
		var parts []json.RawMessage
		_ = json.Unmarshal(rawField(it, "content"), &parts) // no parts, no text
		for _, p := range parts {
			th.Developer = append(th.Developer, stringField(p, "text"))
		}
	}
	state, used := th.mockThreadState, th.used
	m.mu.Unlock()
	if used {
		m.keep(th, mockRecord{Thread: &state})
	}
	m.peer.reply(msg.id, struct{}{})
}

// threadClean ends a thread's background shells. Their items complete after
// the answer, with the id of the turn that began them.
func (m *mockServer) threadClean(msg *message) {
	th := m.loaded(msg)
	if th == nil {
		return
	}
	m.peer.reply(msg.id, struct{}{})
	m.killShells(th)
}

func (m *mockServer) threadLoaded(msg *message) {
	m.mu.Lock()
	ids := []string{}
	for id := range m.threads {
		ids = append(ids, id)
	}
	m.mu.Unlock()
	slices.Sort(ids)
	m.peer.reply(msg.id, map[string]any{"data": ids, "nextCursor": nil})
}

func (m *mockServer) threadRead(msg *message) {
	id := m.threadID(msg, "thread")
	if id == "" {
		return
	}
	turns := string(rawField(msg.params, "includeTurns")) == "true"
	m.mu.Lock()
	th := m.threads[id]
	m.mu.Unlock()
	here := th != nil
	if !here {
		var err error
		th, err = m.stored(id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			m.refuse(msg, "thread not loaded: "+id)
			return
		case err != nil:
			m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: "failed to read thread: thread-store internal error: " + err.Error()})
			return
		}
	}
	switch {
	case turns && !th.used && m.old():
		m.refuse(msg, "thread "+id+" is not materialized yet; includeTurns is unavailable before first user message")
		return
	case turns && !th.used:
		m.peer.replyError(msg.id, &rpcError{Code: codeNoMethod, Message: "list_turns is not supported yet"})
		return
	case turns && !m.old():
		m.notify("deprecationNotice", map[string]any{"summary": "Full-history hydration is deprecated for paginated threads; omit `includeTurns` or set it to `false`, then page with `thread/turns/list` and `thread/items/list`.", "details": nil})
	}
	result := map[string]any{"thread": m.threadView(th, m.turnViews(th, turns), here)}
	if m.new() {
		result["readState"] = m.readState(th)
	}
	m.peer.reply(msg.id, result)
}

func (m *mockServer) threadList(msg *message) {
	limit, _ := strconv.Atoi(string(rawField(msg.params, "limit")))
	cursor, cwd := stringField(msg.params, "cursor"), stringField(msg.params, "cwd")
	archived := string(rawField(msg.params, "archived")) == "true"
	data, states, next := []any{}, map[string]any{}, any(nil)
	for _, id := range m.home.stored() {
		if cursor != "" && id >= cursor {
			continue
		}
		m.mu.Lock()
		th := m.threads[id]
		m.mu.Unlock()
		here := th != nil
		if !here {
			var err error
			if th, err = m.stored(id); err != nil {
				continue
			}
		}
		if th.Archived != archived || th.Parent != "" || cwd != "" && th.Settings.Cwd != cwd {
			continue
		}
		if limit > 0 && len(data) == limit {
			break
		}
		data, next = append(data, m.threadView(th, nil, here)), id
		states[id] = m.readState(th)
	}
	if limit == 0 || len(data) < limit {
		next = nil
	}
	result := map[string]any{"data": data, "nextCursor": next}
	if m.new() {
		result["readStates"], result["backwardsCursor"] = states, nil
	}
	m.peer.reply(msg.id, result)
}

// readState is 0.169's unread mark.
func (m *mockServer) readState(th *mockThread) map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first any
	if len(th.turns) > 0 {
		first = map[string]any{"type": "turn", "turnId": th.turns[0].ID}
	}
	return map[string]any{"firstUnread": first, "revision": newMockID()}
}

// mockModels are the visible models of a version; others get a warning.
func (m *mockServer) models() []string {
	if m.old() {
		return []string{"gpt-5.2-codex", "gpt-5.1-codex-max", "gpt-5.2", "gpt-5.1-codex-mini"}
	}
	return []string{"gpt-6.1-sol", "gpt-6-astra", "gpt-5.6-sol", "gpt-5.5"}
}

// modelList comes in pages of limit, or of MOCK_CODEX_PAGE where the client
// names none; MOCK_CODEX_TEXT_ONLY names a model that takes no images.
func (m *mockServer) modelList(msg *message) {
	efforts := []any{}
	words := []string{"low", "medium", "high", "xhigh"}
	if m.new() {
		words = append(words, "max", "ultra")
	}
	for _, e := range words {
		efforts = append(efforts, map[string]any{"reasoningEffort": e, "description": e + " reasoning"})
	}
	data := []any{}
	for i, name := range m.models() {
		modalities := []string{"text", "image"}
		if name == os.Getenv("MOCK_CODEX_TEXT_ONLY") {
			modalities = modalities[:1]
		}
		model := map[string]any{"id": name, "model": name, "upgrade": nil, "displayName": name, "description": "mock", "hidden": false,
			"supportedReasoningEfforts": efforts, "defaultReasoningEffort": "medium", "inputModalities": modalities,
			"supportsPersonality": false, "isDefault": i == 0}
		if m.new() {
			for _, k := range []string{"upgradeInfo", "availabilityNux", "modelSpecialty", "defaultServiceTier", "availableAccessPrograms"} {
				model[k] = nil
			}
			model["multiAgentVersion"], model["additionalSpeedTiers"], model["serviceTiers"] = "v2", []any{}, []any{}
		}
		data = append(data, model)
	}
	m.page(msg, data)
}

// page answers with a part of a list. The cursor is where the next one begins.
func (m *mockServer) page(msg *message, data []any) {
	size, _ := strconv.Atoi(string(rawField(msg.params, "limit")))
	if size == 0 {
		size, _ = strconv.Atoi(os.Getenv("MOCK_CODEX_PAGE")) // none: all
	}
	from, err := strconv.Atoi(cmp.Or(stringField(msg.params, "cursor"), "0"))
	if err != nil || from > len(data) {
		m.refuse(msg, "invalid cursor: "+stringField(msg.params, "cursor"))
		return
	}
	to, next := len(data), any(nil)
	if size > 0 && from+size < to {
		to = from + size
		next = strconv.Itoa(to)
	}
	m.peer.reply(msg.id, map[string]any{"data": data[from:to], "nextCursor": next})
}

// configRead answers with the effective configuration. Of the real one's
// some 120 keys it has those that a client of ours looks at, null where
// unset, and whatever else stands in config.toml.
func (m *mockServer) configRead(msg *message) {
	m.home.load()
	if m.home.broken != nil {
		m.refuse(msg, "failed to load configuration: "+m.home.broken.Error())
		return
	}
	config := map[string]any{}
	for _, k := range []string{"model", "review_model", "model_context_window", "model_provider", "approval_policy", "sandbox_mode", "sandbox_workspace_write",
		"web_search", "tools", "profile", "instructions", "developer_instructions", "compact_prompt", "model_reasoning_effort", "model_reasoning_summary", "model_verbosity"} {
		config[k] = nil
	}
	config["profiles"] = map[string]any{}
	if m.new() {
		config["projects"], config["mcp_servers"] = nil, map[string]any{}
	}
	config = mockMerge(config, m.home.config)
	if w, ok := config["sandbox_workspace_write"].(map[string]any); ok {
		config["sandbox_workspace_write"] = mockMerge(map[string]any{"writable_roots": []any{}, "network_access": false, "exclude_tmpdir_env_var": false, "exclude_slash_tmp": false}, w)
	}
	origins := map[string]any{}
	source := map[string]any{"type": "user", "file": filepath.Join(m.home.dir, "config.toml")}
	if m.new() {
		source["profile"] = nil
	}
	for k := range m.home.config {
		origins[k] = map[string]any{"name": source, "version": "sha256:mock"}
	}
	result := map[string]any{"config": config, "origins": origins}
	if string(rawField(msg.params, "includeLayers")) == "true" {
		result["layers"] = []any{map[string]any{"name": source, "version": "sha256:mock", "config": m.home.config}}
	}
	m.peer.reply(msg.id, result)
}

// turnViews are a thread's turns as thread/read shows them, nil if not asked.
func (m *mockServer) turnViews(th *mockThread, asked bool) []any {
	if !asked {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	views, n := []any{}, 0
	for _, t := range th.turns {
		if m.old() {
			views = append(views, m.oldTurnView(t, &n))
			continue
		}
		v := m.turnView(t.ID, t.Status, t.Items, t.Error)
		v["itemsView"], v["startedAt"] = "full", t.Started
		if t.Completed > 0 {
			v["completedAt"] = t.Completed
		}
		if m.new() {
			v["rootTurnId"] = cmp.Or(t.Root, t.ID)
		}
		views = append(views, v)
	}
	return views
}

// oldTurnView: 0.104 keeps of a turn what was said in it, under ids of its own,
// and doesn't know that one failed, nor that it still runs.
func (m *mockServer) oldTurnView(t *mockTurnRecord, n *int) map[string]any {
	items := []json.RawMessage{}
	for _, raw := range t.Items {
		switch stringField(raw, "type") {
		case "userMessage", "agentMessage", "reasoning", "enteredReviewMode", "exitedReviewMode", "contextCompaction":
			*n++
			var it map[string]any
			_ = json.Unmarshal(raw, &it) // our own
			it["id"] = fmt.Sprintf("item-%d", *n)
			items = append(items, toJSON(it))
		}
	}
	status := t.Status
	if status != "interrupted" {
		status = "completed"
	}
	return m.turnView(t.ID, status, items, nil)
}
