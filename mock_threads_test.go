package main

// mock_threads_test.go owns what only the tests' codex does with the threads of its home: it lists, names and archives
// them, loaded or not, as each version does.

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// threadList lists what has a history, newest first. Its cursor is a number, unlike the real one.
func (x *testMock) threadList(m *mockServer, msg *message) {
	var dirs []string
	if dir, ok := rawString(rawField(msg.params, "cwd")); ok {
		dirs = []string{dir}
	} else if raw := rawField(msg.params, "cwd"); !isNull(raw) && x.old() {
		m.refuse(msg, "Invalid request: invalid type: sequence, expected a string")
		return
	} else {
		_ = json.Unmarshal(raw, &dirs) // absent: every directory
	}
	for i := range dirs {
		dirs[i] = filepath.Clean(dirs[i]) // as Windows spells it
	}
	files, _ := filepath.Glob(filepath.Join(m.home.dir, "sessions", "mock", "*.jsonl"))
	list := []any{}
	for _, file := range files {
		th, err := m.home.read(strings.TrimSuffix(filepath.Base(file), ".jsonl"))
		if err != nil || th.Parent != "" || dirs != nil && !slices.Contains(dirs, th.Settings.Cwd) {
			continue
		}
		th.m = m
		view := th.view(nil)
		x.dressThread(view)
		list = append(list, view)
	}
	slices.SortStableFunc(list, func(a, b any) int {
		return cmp.Compare(b.(map[string]any)["updatedAt"].(int64), a.(map[string]any)["updatedAt"].(int64))
	})
	if page := x.paged(msg, list); page != nil {
		m.reply(msg, page)
	}
}

// nameSet names a thread, also one that was never used.
func (x *testMock) nameSet(m *mockServer, msg *message) {
	th, _ := m.find(msg, "no rollout found for thread id ")
	if th == nil {
		return
	}
	m.mu.Lock()
	th.Name = stringField(msg.params, "name")
	state := th.mockThreadState
	m.mu.Unlock()
	if th.used {
		th.keep(mockRecord{Thread: &state})
	}
	m.reply(msg, struct{}{})
	m.notify("thread/name/updated", map[string]any{"threadId": th.ID, "threadName": state.Name})
}

// archive moves a history away. From 0.148 on another process's thread is refused.
func (x *testMock) archive(m *mockServer, msg *message) {
	th, loaded := m.find(msg, "no rollout found for thread id ")
	switch {
	case th == nil:
		return
	case !loaded && !x.lock(th.ID) && !x.old():
		m.refuse(msg, "thread "+th.ID+" already has an active writer")
		return
	}
	if loaded {
		m.mu.Lock()
		delete(m.threads, th.ID)
		m.mu.Unlock()
		m.killShells(th)
	}
	path := m.home.path(th.ID)
	x.unlock(th.ID)
	away := filepath.Join(m.home.dir, "archived_sessions", filepath.Base(path))
	err := os.MkdirAll(filepath.Dir(away), 0o700)
	if err == nil && th.used {
		err = os.Rename(path, away)
	}
	if err != nil {
		m.peer.replyError(msg.id, &rpcError{Code: codeInternal, Message: err.Error()})
		return
	}
	m.reply(msg, struct{}{})
	m.notify("thread/archived", map[string]any{"threadId": th.ID})
}
