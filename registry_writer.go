package main

// registry_writer.go owns the one goroutine that writes sessions: records, the results
// of their turns, and the index of an instance's open ones (FR-5.3). One writer
// keeps a session's states in their order, and takes the disk off the session's
// own goroutine: replacing a file costs more than the 0.15 ms that a reply may
// take longer. What changes again within a moment is written once. registry.go
// embeds it for flush and close, and alone calls it. It must never queue: a
// newer state takes the place of one not written yet.

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

// How long a change may wait for the next one. A short turn's start and end
// become one write of its record; the index follows the records (FR-5.3), so it
// may be older. So may the result of a turn, which its caller is answered with:
// where turns follow each other fast most are outnumbered before they are
// written, and a new file each costs as much as all else that a short turn
// does. All count from the first change that waits, so that a session
// that never rests is written all the same.
const (
	recordLag = 5 * time.Millisecond
	indexLag  = 50 * time.Millisecond
	turnLag   = 50 * time.Millisecond
)

var errWriterClosed = errors.New("the session files are closed")

// lateWriter is safe for use by many goroutines. Its own, run, ends with close.
type lateWriter struct {
	log      *slog.Logger
	disk     *syncer
	wake     *time.Timer        // fires when the first of files is due
	flushes  chan chan struct{} // each is closed when all that was pending is written
	stop     chan struct{}      // closed by the first close
	exited   chan struct{}
	stopping atomic.Bool

	// unwritten is why the newest write of a record, or of a turn's end, failed;
	// nil while they succeed.
	unwritten atomic.Pointer[error]

	pending sync.Mutex // guards the fields below
	files   map[string]*lateFile
	armed   time.Time // what wake is set to, zero if it isn't
	ended   bool      // nobody will look at files any more

	// Owned by run:
	seen    map[string]bool // indexes whose old file was looked at
	failing map[string]bool // told of, until it works again
}

// lateFile is a file's newest content: a record, an index or a turn.
type lateFile struct {
	rec     *record
	index   []indexEntry
	turn    func() ([]byte, error) // makes the content
	gone    bool                   // the file is to be removed
	due     time.Time
	waiters []chan error // each with room for one
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

func newLateWriter(log *slog.Logger) *lateWriter {
	w := &lateWriter{
		log:     log,
		disk:    newSyncer(log),
		wake:    time.NewTimer(time.Hour),
		flushes: make(chan chan struct{}),
		stop:    make(chan struct{}),
		exited:  make(chan struct{}),
		files:   map[string]*lateFile{},
		seen:    map[string]bool{},
		failing: map[string]bool{},
	}
	w.wake.Stop()
	go w.run()
	return w
}

// put replaces what is pending for the path. The waiter, if there is one, is
// answered when this content or a newer one is in the file; it makes it urgent.
func (w *lateWriter) put(path string, f lateFile, waiter chan error) error {
	w.pending.Lock()
	if w.ended {
		w.pending.Unlock()
		return errWriterClosed
	}
	now := time.Now()
	switch {
	case f.rec != nil:
		f.due = now.Add(recordLag)
	case f.index != nil:
		f.due = now.Add(indexLag)
	default:
		f.due = now.Add(turnLag)
	}
	if old := w.files[path]; old != nil {
		f.due, f.waiters = old.due, old.waiters
	}
	if waiter != nil {
		f.due, f.waiters = now, append(f.waiters, waiter)
	}
	w.files[path] = &f
	w.armLocked(f.due, now)
	w.pending.Unlock()
	return nil
}

// armLocked has run woken at due, if that is before what it waits for.
func (w *lateWriter) armLocked(due, now time.Time) {
	if w.armed.IsZero() || due.Before(w.armed) {
		w.armed = due
		w.wake.Reset(due.Sub(now))
	}
}

// ending tells long work that close was called.
func (w *lateWriter) ending() bool { return w.stopping.Load() }

// flush returns when all that was saved and set before it is on the platter.
func (w *lateWriter) flush(ctx context.Context) error {
	if err := askFlush(ctx, w.flushes, w.exited); err != nil {
		return err
	}
	return w.disk.flush(ctx)
}

// close writes and syncs what is pending and ends both goroutines; leases stay
// with their owners. It may be called more than once.
func (w *lateWriter) close(ctx context.Context) error {
	if !w.stopping.Swap(true) {
		close(w.stop)
	}
	if err := awaitExit(ctx, w.exited); err != nil {
		return err
	}
	return awaitExit(ctx, w.disk.exited)
}

func (w *lateWriter) run() {
	defer close(w.exited)
	defer close(w.disk.stop) // it has nothing more to come
	defer w.wake.Stop()
	for {
		select {
		case <-w.wake.C:
			w.write(w.takeDue(time.Now()))
		case done := <-w.flushes:
			w.write(w.takeAll(false))
			close(done)
		case <-w.stop:
			w.write(w.takeAll(true))
			return
		}
	}
}

// takeDue takes out what has waited long enough.
func (w *lateWriter) takeDue(now time.Time) map[string]*lateFile {
	w.pending.Lock()
	defer w.pending.Unlock()
	w.armed = time.Time{}
	files := map[string]*lateFile{}
	for path, f := range w.files {
		if f.due.After(now) {
			w.armLocked(f.due, now)
			continue
		}
		files[path] = f
		delete(w.files, path)
	}
	return files
}

func (w *lateWriter) takeAll(last bool) map[string]*lateFile {
	w.pending.Lock()
	defer w.pending.Unlock()
	files := w.files
	w.files = map[string]*lateFile{}
	w.ended = last
	return files
}

func (w *lateWriter) write(files map[string]*lateFile) {
	for path, f := range files {
		err := w.writeFile(path, f)
		if f.rec != nil {
			w.noteWritten(err)
		}
		switch {
		case err == nil:
			if !f.gone {
				w.disk.add(path)
			}
			delete(w.failing, path)
		case len(f.waiters) == 0 && !w.failing[path]: // a waiter tells it itself
			w.log.Warn("session file can't be written", "path", path, "error", err)
			w.failing[path] = true
		}
		for _, waiter := range f.waiters {
			waiter <- err
		}
	}
}

// noteWritten keeps how the newest write of what a session is resumed from went.
func (w *lateWriter) noteWritten(err error) {
	if err == nil {
		w.unwritten.Store(nil)
		return
	}
	w.unwritten.Store(&err)
}

func (w *lateWriter) writeFile(path string, f *lateFile) error {
	if f.rec != nil {
		return writeRecord(path, *f.rec)
	}
	if f.gone {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if f.turn != nil {
		data, err := f.turn()
		if err != nil {
			return err
		}
		return writeWhole(path, data)
	}
	if !w.seen[path] {
		if err := w.clearPlace(path); err != nil {
			return err
		}
		w.seen[path] = true
	}
	host, _ := os.Hostname()
	return writeIndex(path, indexFile{Version: 1, PID: os.Getpid(), Host: host, Sessions: f.index})
}

func writeIndex(path string, index indexFile) error {
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding index: %w", err)
	}
	return writeWhole(path, append(data, '\n'))
}

func writeRecord(path string, rec record) error {
	data, err := encodeRecord(rec)
	if err != nil {
		return err
	}
	if err := writeWhole(path, data); err != nil {
		return err
	}
	// list goes by the files' times, so that it needn't read them all.
	if age := time.Since(rec.LastActive); !rec.LastActive.IsZero() && (age > time.Second || age < -time.Second) {
		os.Chtimes(path, time.Time{}, rec.LastActive) // an inexact order is no failure
	}
	return nil
}

// clearPlace sets a corrupt index aside before the first of ours replaces it,
// and removes what a crash left beside it.
func (w *lateWriter) clearPlace(path string) error {
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
