package main

// mock_store.go owns what the mock Codex keeps on disk under $CODEX_HOME: thread histories in sessions/mock, one line
// of JSON for every change, and the lock that keeps a second process off a thread. mock.go opens it, the threads use
// it. It never reads or writes anything of the user's own Codex, config.toml least of all.

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
	if h.held[id] != nil {
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
