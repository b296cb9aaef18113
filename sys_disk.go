package main

// How our files are written: replaced whole, set aside when they can't be
// understood, and brought to the platter later, since a transition must not
// wait for an fsync.
// Called by the registry files, and by whoever else replaces a file.
// Never overwrites what it could not read, and never fsyncs on a caller's path.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	syncPause    = 200 * time.Millisecond // what is written meanwhile is fsynced once
	tempPrefix   = ".tmp-"
	tempLifetime = time.Minute // an older one was left by a crash
)

var errReplaced = errors.New("the file was replaced meanwhile")

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

// removeLeftover removes a temporary file that nobody is writing any more.
func removeLeftover(dir string, e fs.DirEntry) {
	if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > tempLifetime {
		os.Remove(filepath.Join(dir, e.Name()))
	}
}

// syncer makes files durable in the background, many writes of one file by one
// fsync. Its goroutine, run, syncs what is pending and ends when its owner closes stop.
type syncer struct {
	log     *slog.Logger
	kick    chan struct{}      // has room for one: something is pending
	flushes chan chan struct{} // each is closed when all that was pending is synced
	stop    chan struct{}      // closed by the owner, once
	exited  chan struct{}

	mu    sync.Mutex // guards the field below
	paths map[string]struct{}

	failing bool // owned by run: told, until it works again
}

func newSyncer(log *slog.Logger) *syncer {
	s := &syncer{
		log:     log,
		kick:    make(chan struct{}, 1),
		flushes: make(chan chan struct{}),
		stop:    make(chan struct{}),
		exited:  make(chan struct{}),
		paths:   map[string]struct{}{},
	}
	go s.run()
	return s
}

// add has the file and its directory synced soon.
func (s *syncer) add(path string) {
	s.mu.Lock()
	s.paths[path] = struct{}{}
	s.mu.Unlock()
	nudge(s.kick)
}

// flush returns when all that was added before it is synced.
func (s *syncer) flush(ctx context.Context) error { return askFlush(ctx, s.flushes, s.exited) }

func (s *syncer) run() {
	defer close(s.exited)
	pause := time.NewTimer(time.Hour)
	pause.Stop()
	defer pause.Stop()
	for armed := false; ; {
		select {
		case <-s.kick:
			if !armed {
				pause.Reset(syncPause)
				armed = true
			}
		case <-pause.C:
			armed = false
			s.sync()
		case done := <-s.flushes:
			s.sync()
			close(done)
		case <-s.stop:
			s.sync()
			return
		}
	}
}

func (s *syncer) sync() {
	s.mu.Lock()
	paths := s.paths
	s.paths = map[string]struct{}{}
	s.mu.Unlock()
	dirs := map[string]struct{}{}
	var err error
	for path := range paths {
		dirs[filepath.Dir(path)] = struct{}{}
		err = errors.Join(err, syncFile(path))
	}
	for dir := range dirs {
		if gone := syncDir(dir); !errors.Is(gone, fs.ErrNotExist) { // a team goes with its directory as Claude Code ends
			err = errors.Join(err, gone)
		}
	}
	if err != nil && !s.failing {
		s.log.Warn("sessions may not survive a power failure", "error", err)
	}
	s.failing = err != nil
}

// syncFile syncs what is under the name now; what it replaced doesn't matter,
// and what isn't a file of ours any more isn't ours to sync.
func syncFile(path string) error {
	f, err := openOwn(path, os.O_RDWR, 0) // Windows flushes no file that is open for reading
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLinked) || errors.Is(err, errNotRegular) {
			return nil // set aside or replaced meanwhile
		}
		return err
	}
	defer f.Close()
	return f.Sync()
}

// nudge wakes a goroutine that looks for itself what there is to do.
func nudge(kick chan struct{}) {
	select {
	case kick <- struct{}{}:
	default: // it is told already
	}
}

// askFlush hands a goroutine a channel to close when it has caught up.
func askFlush(ctx context.Context, flushes chan chan struct{}, exited chan struct{}) error {
	done := make(chan struct{})
	select {
	case flushes <- done:
	case <-exited:
		return nil // it caught up before it ended
	case <-ctx.Done():
		return fmt.Errorf("flushing files: %w", ctx.Err())
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flushing files: %w", ctx.Err())
	}
}

func awaitExit(ctx context.Context, exited chan struct{}) error {
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing files: %w", ctx.Err())
	}
}
