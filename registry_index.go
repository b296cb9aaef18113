package main

// registry_index.go owns registry.json, which lists the open sessions of one instance
// (FR-5.3): the one goroutine that writes it, and the marking of what dead instances
// left. The index follows the records, so it may be older by a moment: what
// changes again within indexLag is written once, and nobody waits for it.
// registry.go embeds the writer for flush and close. It must never queue: a newer index
// takes the place of one that is not written yet.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	indexLag      = 50 * time.Millisecond // from the first change that waits
	maxIndexBytes = 4 << 20               // far above what the open sessions of one instance take
)

// indexWriter is safe for use by many goroutines. Its own, run, ends with close.
type indexWriter struct {
	log      *slog.Logger
	disk     *syncer
	wake     *time.Timer        // fires when what is pending is due
	flushes  chan chan struct{} // each is closed when all that was pending is written
	stop     chan struct{}      // closed by the first close
	exited   chan struct{}
	stopping atomic.Bool

	mu      sync.Mutex              // guards the field below
	pending map[string][]indexEntry // the newest content of each file; nil once nobody looks at it any more

	// Owned by run:
	seen    map[string]bool // indexes whose old file was looked at
	failing map[string]bool // indexes that can't be written, which was told
}

// indexEntry has the fields of FR-5.2.
type indexEntry struct {
	AgentID    string    `json:"agent_id"`
	Backend    string    `json:"backend"`
	BackendID  string    `json:"backend_id"`
	Identity   string    `json:"identity"`
	Team       string    `json:"team"`
	RepoRoot   *string   `json:"repo_root"`
	RepoName   *string   `json:"repo_name"`
	Branch     *string   `json:"branch"`
	CWD        string    `json:"cwd"`
	StartedAt  time.Time `json:"started_at"`
	LastActive time.Time `json:"last_active"`
	Status     string    `json:"status"`
	Tag        string    `json:"tag,omitempty"`
}

// indexFile is registry.json.
type indexFile struct {
	Version  int          `json:"version"`
	PID      int          `json:"pid,omitempty"` // of the instance; one that died is marked by the next start
	Host     string       `json:"host,omitempty"`
	Sessions []indexEntry `json:"sessions"`
}

func newIndexWriter(log *slog.Logger, disk *syncer) *indexWriter {
	w := &indexWriter{
		log:     log,
		disk:    disk,
		wake:    time.NewTimer(time.Hour),
		flushes: make(chan chan struct{}),
		stop:    make(chan struct{}),
		exited:  make(chan struct{}),
		pending: map[string][]indexEntry{},
		seen:    map[string]bool{},
		failing: map[string]bool{},
	}
	w.wake.Stop()
	go w.run()
	return w
}

// put replaces what is pending for the path.
func (w *indexWriter) put(path string, index []indexEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		return
	}
	if len(w.pending) == 0 {
		w.wake.Reset(indexLag)
	}
	w.pending[path] = index
}

// ending tells long work that close was called.
func (w *indexWriter) ending() bool { return w.stopping.Load() }

// flush returns when all that was saved and set before it is on the platter.
func (w *indexWriter) flush(ctx context.Context) error {
	if err := askFlush(ctx, w.flushes, w.exited); err != nil {
		return err
	}
	return w.disk.flush(ctx)
}

// close writes and syncs what is pending and ends both goroutines; leases stay
// with their owners. It may be called more than once.
func (w *indexWriter) close(ctx context.Context) error {
	if !w.stopping.Swap(true) {
		close(w.stop)
	}
	if err := awaitExit(ctx, w.exited); err != nil {
		return err
	}
	return awaitExit(ctx, w.disk.exited)
}

func (w *indexWriter) run() {
	defer close(w.exited)
	defer close(w.disk.stop) // it has nothing more to come
	defer w.wake.Stop()
	for {
		select {
		case <-w.wake.C:
			w.write(map[string][]indexEntry{})
		case done := <-w.flushes:
			w.write(map[string][]indexEntry{})
			close(done)
		case <-w.stop:
			w.write(nil)
			return
		}
	}
}

// write writes what is pending, in whose place next comes.
func (w *indexWriter) write(next map[string][]indexEntry) {
	w.mu.Lock()
	files := w.pending
	w.pending = next
	w.mu.Unlock()
	for path, index := range files {
		err := w.writeFile(path, index)
		if err == nil {
			w.disk.add(path)
			delete(w.failing, path)
		} else if !w.failing[path] {
			w.log.Warn("session file can't be written", "path", path, "error", err)
			w.failing[path] = true
		}
	}
}

func (w *indexWriter) writeFile(path string, index []indexEntry) error {
	if !w.seen[path] {
		if err := w.clearPlace(path); err != nil {
			return err
		}
		w.seen[path] = true
	}
	host, _ := os.Hostname()
	return writeIndex(path, indexFile{Version: 1, PID: os.Getpid(), Host: host, Sessions: index})
}

func writeIndex(path string, index indexFile) error {
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding index: %w", err)
	}
	return writeWhole(path, append(data, '\n'))
}

// clearPlace sets a corrupt index aside before the first of ours replaces it,
// and removes what a crash left beside it.
func (w *indexWriter) clearPlace(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var old indexFile
	data, err := readRegular(path, maxIndexBytes)
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		err = setAside(path, st, err, w.log)
	}
	if err != nil {
		return err
	}
	left, err := os.ReadDir(filepath.Dir(path))
	for _, e := range left {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			removeLeftover(filepath.Dir(path), e)
		}
	}
	return err
}

// indexOf makes an index's content of records.
func indexOf(recs []record) []indexEntry {
	entries := make([]indexEntry, len(recs)) // not nil: [] in the file
	for i, r := range recs {
		entries[i] = indexEntry{r.AgentID, r.Backend, r.BackendID, r.Identity, r.Team, r.RepoRoot, r.RepoName, r.Branch,
			r.CWD, r.StartedAt, r.LastActive, r.Status, r.Tag}
	}
	return entries
}
