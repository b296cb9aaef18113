package main

// mock_store.go owns what the mock Codex keeps on disk under $CODEX_HOME:
// config.toml as far as its own keys go, the trust that 0.169 writes into it,
// thread histories in sessions/mock, and the lock that keeps a second writer
// off a thread. mock.go opens it, mock_thread.go uses it. It must never write
// config.toml except where the real 0.169 does.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// mockHome is $CODEX_HOME with the configuration read from it.
type mockHome struct {
	dir    string
	config map[string]any // config.toml with -c applied
	broken error          // config.toml couldn't be read: threads can't start
	locks  *mockLocks

	overrides []string // -c key=value, in order
}

// mockLocks are the writer locks that this process holds.
type mockLocks struct {
	mu   sync.Mutex // guards the field below
	held map[string]*os.File
}

// openMockHome reads $CODEX_HOME. Like the real one it refuses a directory
// that is named but missing, and makes ~/.codex if none is named.
func openMockHome(overrides []string) (mockHome, error) {
	h := mockHome{dir: os.Getenv("CODEX_HOME"), locks: &mockLocks{held: map[string]*os.File{}}}
	if h.dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return h, fmt.Errorf("finding the home directory: %w", err)
		}
		h.dir = filepath.Join(user, ".codex")
		if err := os.MkdirAll(h.dir, 0o700); err != nil {
			return h, err
		}
	} else if st, err := os.Stat(h.dir); err != nil {
		return h, fmt.Errorf("CODEX_HOME points to %q, but that path does not exist", h.dir)
	} else if !st.IsDir() {
		return h, fmt.Errorf("CODEX_HOME points to %q, but that path is not a directory", h.dir)
	}
	h.overrides = overrides
	h.load()
	return h, nil
}

// load reads config.toml anew, as Codex does for every thread it starts.
func (h *mockHome) load() {
	h.broken = nil
	text, err := os.ReadFile(filepath.Join(h.dir, "config.toml"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.broken = err
	}
	h.config, err = mockTOML(string(text))
	if err != nil {
		h.broken = fmt.Errorf("%s:%w", filepath.Join(h.dir, "config.toml"), err)
		h.config = map[string]any{}
	}
	for _, o := range h.overrides {
		key, value, ok := strings.Cut(o, "=")
		if !ok {
			continue
		}
		v, err := mockTOMLValue(strings.TrimSpace(value))
		if err != nil {
			v = value // as in the real one: what is no TOML is a string
		}
		mockSet(h.config, strings.Split(strings.TrimSpace(key), "."), v)
	}
}

// mockTOML reads the subset of TOML that a test's config.toml is made of:
// tables, strings, booleans, integers, one-line arrays.
func mockTOML(text string) (map[string]any, error) {
	root := map[string]any{}
	var table []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			table = mockKeys(line[1 : len(line)-1])
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok {
				return nil, fmt.Errorf("%d: expected `key = value`", i+1)
			}
			v, err := mockTOMLValue(strings.TrimSpace(value))
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			mockSet(root, append(slices.Clone(table), mockKeys(strings.TrimSpace(key))...), v)
		}
	}
	return root, nil
}

// mockKeys cuts a dotted key; a part in quotes may hold dots.
func mockKeys(s string) []string {
	var keys []string
	for s != "" {
		if s[0] == '"' {
			end := strings.IndexByte(s[1:], '"')
			if end < 0 {
				return append(keys, s)
			}
			keys = append(keys, s[1:end+1])
			s = strings.TrimPrefix(s[end+2:], ".")
			continue
		}
		part, rest, _ := strings.Cut(s, ".")
		keys, s = append(keys, strings.TrimSpace(part)), rest
	}
	return keys
}

func mockTOMLValue(s string) (any, error) {
	if n := strings.Index(s, " #"); n >= 0 && !strings.HasSuffix(s, `"`) {
		s = strings.TrimSpace(s[:n])
	}
	switch {
	case s == "true" || s == "false":
		return s == "true", nil
	case len(s) > 1 && s[0] == '\'' && s[len(s)-1] == '\'':
		return s[1 : len(s)-1], nil
	case strings.HasPrefix(s, `"`), strings.HasPrefix(s, "["):
		// one-line arrays of strings and numbers, and basic strings, are JSON
		var v any
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			return nil, fmt.Errorf("invalid value %s", s)
		}
		return v, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("invalid value %s", s)
	}
	return n, nil
}

func mockSet(m map[string]any, keys []string, v any) {
	for _, k := range keys[:len(keys)-1] {
		next, ok := m[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[k] = next
		}
		m = next
	}
	m[keys[len(keys)-1]] = v
}

// with returns the configuration with a thread's `config` laid over it. Both
// nested and dotted keys count; of a root that comes in both forms the table
// wins and the dotted one is lost, as measured.
func (h *mockHome) with(raw json.RawMessage) map[string]any {
	var extra map[string]any
	_ = json.Unmarshal(raw, &extra) // absent or null: nothing to lay over
	merged := mockMerge(h.config, nil)
	for k, v := range extra {
		root, rest, dotted := strings.Cut(k, ".")
		if _, table := extra[root]; dotted && !table {
			mockSet(merged, append([]string{root}, strings.Split(rest, ".")...), v)
		}
	}
	nested := maps.Clone(extra)
	maps.DeleteFunc(nested, func(k string, _ any) bool { return strings.Contains(k, ".") })
	return mockMerge(merged, nested)
}

func mockMerge(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range a {
		if sub, ok := v.(map[string]any); ok {
			v = mockMerge(sub, nil)
		}
		out[k] = v
	}
	for k, v := range b {
		sub, ok := v.(map[string]any)
		if old, both := out[k].(map[string]any); ok && both {
			v = mockMerge(old, sub)
		}
		out[k] = v
	}
	return out
}

func mockString(m map[string]any, keys ...string) string {
	var v any = m
	for _, k := range keys {
		sub, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = sub[k]
	}
	s, _ := v.(string)
	return s
}

// mockRepoRoot is the directory with .git at or above dir, "" without one.
func mockRepoRoot(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// trust does what 0.169 does behind the user's back: it writes the repository
// as trusted into config.toml.
func (h *mockHome) trust(root string) error {
	f, err := os.OpenFile(filepath.Join(h.dir, "config.toml"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\n[projects.%q]\ntrust_level = \"trusted\"\n", root)
	mockSet(h.config, []string{"projects", root, "trust_level"}, "trusted")
	return errors.Join(err, f.Close())
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
	if !mockTryLock(f) {
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

// save appends a line. A history that can't be written fails the turn's test,
// not the turn.
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

// stored lists the ids of all kept threads, newest first.
func (h *mockHome) stored() []string {
	names, _ := filepath.Glob(h.path("*")) // the pattern is ours and well-formed
	var ids []string
	for _, n := range names {
		ids = append(ids, strings.TrimSuffix(filepath.Base(n), ".jsonl"))
	}
	slices.Sort(ids) // version 7 ids sort by time
	slices.Reverse(ids)
	return ids
}
