package main

// What is written late: the index of an instance's open sessions,
// <team>/<instance identity>/registry.json (FR-5.3), and the fsync of all that
// registry.go saved. Also how a file is replaced whole and how a corrupt one is
// set aside.
// Called by registry.go only, which embeds it for flush and close.
// Never makes a transition wait: newer states replace older ones that have not
// been written yet.

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
	syncPause    = 200 * time.Millisecond // what is saved meanwhile is fsynced once
	tempPrefix   = ".tmp-"
	tempLifetime = time.Minute // an older one was left by a crash
)

var errReplaced = errors.New("the file was replaced meanwhile")

// indexer is safe for use by many goroutines. One of its own, run, does all the
// writing; close ends it.
type indexer struct {
	log      *slog.Logger
	kick     chan struct{}      // has room for one: something is pending
	flushes  chan chan struct{} // each is closed when all that was pending is done
	stop     chan struct{}      // closed by the first close
	exited   chan struct{}
	stopping atomic.Bool

	pending sync.Mutex // guards the fields below
	indexes map[string][]indexEntry
	unsynch map[string]struct{}

	// Owned by run:
	seen             map[string]bool // indexes whose old file was looked at
	failing, syncBad bool            // told, until it works again
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
	Sessions []indexEntry `json:"sessions"`
}

func newIndexer(log *slog.Logger) *indexer {
	x := &indexer{
		log:     log,
		kick:    make(chan struct{}, 1),
		flushes: make(chan chan struct{}),
		stop:    make(chan struct{}),
		exited:  make(chan struct{}),
		indexes: map[string][]indexEntry{},
		unsynch: map[string]struct{}{},
		seen:    map[string]bool{},
	}
	go x.run()
	return x
}

// writeLater replaces the index at path by these sessions in a moment.
func (x *indexer) writeLater(path string, recs []record) {
	entries := make([]indexEntry, len(recs)) // not nil: [] in the file
	for i, r := range recs {
		entries[i] = indexEntry{r.AgentID, r.Backend, r.BackendID, r.Identity, r.Team, r.RepoRoot, r.RepoName, r.Branch,
			r.CWD, r.StartedAt, r.LastActive, r.Status, r.Tag}
	}
	x.pending.Lock()
	x.indexes[path] = entries
	x.pending.Unlock()
	x.wake()
}

// ending tells long work that close was called.
func (x *indexer) ending() bool { return x.stopping.Load() }

// flush returns when all that was saved and set before it is on the platter.
func (x *indexer) flush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case x.flushes <- done:
	case <-x.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flushing sessions: %w", ctx.Err())
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flushing sessions: %w", ctx.Err())
	}
}

// close flushes and ends the writer; leases stay with their owners. It may be
// called more than once.
func (x *indexer) close(ctx context.Context) error {
	if !x.stopping.Swap(true) {
		close(x.stop)
	}
	select {
	case <-x.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing session files: %w", ctx.Err())
	}
}

func (x *indexer) run() {
	defer close(x.exited)
	pause := time.NewTimer(0)
	pause.Stop()
	defer pause.Stop()
	for armed := false; ; {
		select {
		case <-x.kick:
			x.writeIndexes()
			if !armed {
				pause.Reset(syncPause)
				armed = true
			}
		case <-pause.C:
			armed = false
			x.syncFiles()
		case done := <-x.flushes:
			x.syncFiles()
			close(done)
		case <-x.stop:
			x.syncFiles()
			return
		}
	}
}

func (x *indexer) wake() {
	select {
	case x.kick <- struct{}{}:
	default: // it is told already
	}
}

func (x *indexer) syncLater(path string) {
	x.pending.Lock()
	x.unsynch[path] = struct{}{}
	x.pending.Unlock()
	x.wake()
}

func (x *indexer) writeIndexes() {
	x.pending.Lock()
	pending := x.indexes
	x.indexes = map[string][]indexEntry{}
	x.pending.Unlock()
	for path, entries := range pending {
		err := x.writeIndex(path, entries)
		if err != nil && !x.failing {
			x.log.Warn("index can't be written", "path", path, "error", err)
		}
		x.failing = err != nil
		if err == nil {
			x.syncLater(path)
		}
	}
}

func (x *indexer) writeIndex(path string, entries []indexEntry) error {
	if !x.seen[path] {
		if err := x.clearPlace(path); err != nil {
			return err
		}
		x.seen[path] = true
	}
	data, err := json.MarshalIndent(indexFile{Version: 1, Sessions: entries}, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(path, append(data, '\n'))
}

// clearPlace sets a corrupt index aside before the first of ours replaces it,
// and removes what a crash left beside it.
func (x *indexer) clearPlace(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil {
		var old indexFile
		if why := json.NewDecoder(f).Decode(&old); why != nil {
			f.Close() // Windows renames no open file
			err = setAside(path, st, why, x.log)
		}
	}
	f.Close()
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

// syncFiles writes indexes first, and again between two fsyncs: those may take
// long, and an index must not wait for them.
func (x *indexer) syncFiles() {
	x.writeIndexes()
	x.pending.Lock()
	paths := x.unsynch
	x.unsynch = map[string]struct{}{}
	x.pending.Unlock()
	dirs := map[string]struct{}{}
	var err error
	for path := range paths {
		dirs[filepath.Dir(path)] = struct{}{}
		err = errors.Join(err, syncFile(path))
		x.writeIndexes()
	}
	for dir := range dirs {
		err = errors.Join(err, syncDir(dir))
	}
	if err != nil && !x.syncBad {
		x.log.Warn("sessions may not survive a power failure", "error", err)
	}
	x.syncBad = err != nil
}

// syncFile syncs what is under the name now; what it replaced doesn't matter.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // Windows flushes no file that is open for reading
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // set aside meanwhile
		}
		return err
	}
	defer f.Close()
	return f.Sync()
}

// setAside renames a file that was read and can't be understood, and says so.
// errReplaced means that the name belongs to another file by now; after any
// other error the file is still there, not to be overwritten.
func setAside(path string, read fs.FileInfo, why error, log *slog.Logger) error {
	if now, err := os.Stat(path); err == nil && !os.SameFile(read, now) {
		return errReplaced
	}
	aside := path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(path, aside); err != nil {
		log.Warn("corrupt file can't be set aside", "path", path, "why", why, "error", err)
		return fmt.Errorf("setting a corrupt file aside: %w", err)
	}
	log.Warn("corrupt file set aside", "path", aside, "error", why)
	return nil
}

func removeLeftover(dir string, e fs.DirEntry) {
	if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > tempLifetime {
		os.Remove(filepath.Join(dir, e.Name()))
	}
}

// writeWhole replaces a file by a rename: readers, and we after a kill -9, see
// the old content or the new one. No fsync, for that is for power failures.
func writeWhole(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tempPrefix+"*") // 0600
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			f, err = os.CreateTemp(dir, tempPrefix+"*")
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = renameOver(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
