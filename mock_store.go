package main

// mock_store.go owns what the mock Codex keeps on disk under $CODEX_HOME: thread
// histories in sessions/mock, one line of JSON for every change, and the lock that
// keeps a second writer off a thread. mock.go opens it, the threads use it. It
// never reads or writes anything of the user's own Codex, config.toml least of all.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// mockHome is $CODEX_HOME and the writer locks that this process holds there.
type mockHome struct {
	dir   string
	locks *mockLocks
}

type mockLocks struct {
	mu   sync.Mutex // guards the field below
	held map[string]*os.File
}

// openMockHome finds $CODEX_HOME. Like the real one it refuses a directory that is
// named but missing, and makes ~/.codex if none is named.
func openMockHome() (mockHome, error) {
	h := mockHome{dir: os.Getenv("CODEX_HOME"), locks: &mockLocks{held: map[string]*os.File{}}}
	if h.dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return h, fmt.Errorf("finding the home directory: %w", err)
		}
		h.dir = filepath.Join(user, ".codex")
		return h, os.MkdirAll(h.dir, 0o700)
	}
	switch st, err := os.Stat(h.dir); {
	case err != nil:
		return h, fmt.Errorf("CODEX_HOME points to %q, but that path does not exist", h.dir)
	case !st.IsDir():
		return h, fmt.Errorf("CODEX_HOME points to %q, but that path is not a directory", h.dir)
	}
	return h, nil
}

func (h *mockHome) path(id string) string {
	return filepath.Join(h.dir, "sessions", "mock", id+".jsonl")
}

// lock takes the writer lock of a thread; false if another process has it.
func (h *mockHome) lock(id string) bool {
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	if h.locks.held[id] != nil {
		return true
	}
	name := strings.TrimSuffix(h.path(id), "jsonl") + "lock"
	if os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return false
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if lockFile(f, true, false) != nil {
		_ = f.Close()
		return false
	}
	h.locks.held[id] = f
	return true
}

func (h *mockHome) unlock(id string) {
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	if f := h.locks.held[id]; f != nil {
		_ = f.Close()
		delete(h.locks.held, id)
	}
}

// release frees every lock; the process is ending.
func (h *mockHome) release() {
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	for id, f := range h.locks.held {
		_ = f.Close()
		delete(h.locks.held, id)
	}
}

// mockRecord is one line of a thread's history. The last line of a kind
// counts, for turns the last of an id.
type mockRecord struct {
	Thread *mockThreadState `json:"thread,omitempty"`
	Turn   *mockTurnRecord  `json:"turn,omitempty"`
}

// save appends a line.
func (h *mockHome) save(id string, r mockRecord) error {
	name := h.path(id)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(toJSON(r), '\n'))
	return errors.Join(err, f.Close())
}

// read returns a stored thread; fs.ErrNotExist if there is none.
func (h *mockHome) read(id string) (*mockThreadState, []*mockTurnRecord, error) {
	text, err := os.ReadFile(h.path(id))
	if err != nil {
		return nil, nil, err
	}
	var state *mockThreadState
	var turns []*mockTurnRecord
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxRecord)
	for n := 1; lines.Scan(); n++ {
		var r mockRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, nil, fmt.Errorf("failed to read session metadata %s: line %d: %w", h.path(id), n, err)
		}
		if r.Thread != nil {
			state = r.Thread
		}
		if r.Turn == nil {
			continue
		}
		at := slices.IndexFunc(turns, func(t *mockTurnRecord) bool { return t.ID == r.Turn.ID })
		if at < 0 {
			turns = append(turns, r.Turn)
		} else {
			turns[at] = r.Turn
		}
	}
	if state == nil {
		return nil, nil, fmt.Errorf("failed to read session metadata %s: it is empty", h.path(id))
	}
	return state, turns, nil
}
