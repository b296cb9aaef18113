package main

// mail_lock.go owns the two locks of an inbox or a config.json, which other programs write too. `atm` takes a flock on
// <name>.lock and Claude Code makes a directory <name>.json.lock, and neither respects the other's lock. mail_shared.go
// takes both from here, the flock first, so that two processes of ours never hold one each.
// Never keeps Claude Code's lock for longer than a rename or one small read and write: Claude Code gives a message up,
// silently, after 0.7 s. Never opens or locks a file under that lock's name, and never deletes <name>.lock.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	lockPatience = 5 * time.Second       // for all locks of one change, if the caller's context allows that much
	dirLockPause = 20 * time.Millisecond // between two tries for Claude Code's lock: who tries rarely never gets it
	dirLockStale = 10 * time.Second      // Claude Code's rule; a living holder renews the directory's time every 5 s
	// dirLockLeft is the same for a lock of ours, which is a directory with the sticky bit that nobody else sets: it is
	// held for moments, and only under atm's lock, so who finds one under that lock finds what a kill left. (Unless
	// somebody has removed the file of atm's lock meanwhile: then two of us may look at one directory.)
	dirLockLeft = time.Second
)

// errTeamBusy: others held the locks all the time. Nothing was changed, and the change can be tried again.
var errTeamBusy = errors.New("the team's files are locked by another program")

// takeFlock takes atm's lock of a .json file, waiting in queue. Whoever removes a member, or the team, removes the lock
// file as well: then the lock that was taken is no lock any more, and the new file's is taken.
func takeFlock(ctx context.Context, queue *lockQueue, path string) (*os.File, error) {
	path = strings.TrimSuffix(path, ".json") + ".lock"
	for try := 0; ; try++ {
		f, err := queue.take(ctx, func() (*os.File, error) { return openFlock(path) })
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil, fmt.Errorf("%w (%s): %w", errTeamBusy, path, err)
		}
		if err != nil {
			return nil, err
		}
		there, err := isAt(f, path)
		if there {
			return f, nil
		}
		dropFlock(f)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if err := waitLock(ctx, try, path); err != nil {
			return nil, err
		}
	}
}

func openFlock(path string) (*os.File, error) {
	f, err := openOwn(path, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, fs.ErrPermission) {
		if other, err2 := openOwn(path, os.O_RDONLY, 0); err2 == nil {
			return other, nil // another user's file, which can be locked all the same
		}
	}
	return f, err
}

// A dirLock is Claude Code's lock, held by us.
type dirLock struct {
	path string
	made fs.FileInfo // the directory that we made
}

// takeDirLock takes Claude Code's lock of a .json file. The caller holds atm's.
func takeDirLock(ctx context.Context, path string) (*dirLock, error) {
	path += ".lock"
	for try := 0; ; try++ {
		err := os.Mkdir(path, 0o755|fs.ModeSticky)
		if err == nil {
			made, err := pinned(os.Lstat(path))
			if err != nil {
				return nil, err
			}
			return &dirLock{path: path, made: made}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		info, err := os.Lstat(path)
		limit := dirLockStale
		if err == nil && info.Mode()&fs.ModeSticky != 0 {
			limit = dirLockLeft
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// The lock was freed just now.
		case err != nil:
			return nil, err
		case !info.IsDir():
			// Claude Code can't get past it either, and drops its mail without a word.
			return nil, fmt.Errorf("%s is in the way: Claude Code locks with a directory of that name; move it away",
				path)
		case time.Since(info.ModTime()).Abs() > limit && // a time far ahead is that of a wrong clock
			os.Remove(path) == nil: // fails for a directory with files in it
			continue
		}
		if err := waitLock(ctx, try, path); err != nil {
			return nil, err
		}
	}
}

// held is false if another program took our lock for a stale one, since this process was stopped for a while.
func (l *dirLock) held() bool {
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(now, l.made)
}

func (l *dirLock) release() {
	if l.held() {
		os.Remove(l.path)
	}
}

// waitLock waits from 2 ms on, longer with each try, and not in step with other processes.
func waitLock(ctx context.Context, try int, path string) error {
	pause := min(2*time.Millisecond<<min(try, 6), dirLockPause)
	if err := pauseUntil(ctx, time.Now().Add(pause/2+rand.N(pause))); err != nil {
		return fmt.Errorf("%w (%s): %w", errTeamBusy, path, err)
	}
	return nil
}

// pauseUntil waits until a time, or returns the context's error.
func pauseUntil(ctx context.Context, until time.Time) error {
	pause := time.Until(until)
	if pause <= 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A lockQueue waits for one flock in the kernel's own queue: trying again and again would never meet the moment
// between two holds of a writer that hardly pauses. Nothing ends a wait in the kernel, so a caller whose time is over
// leaves the wait behind for the next caller. One caller at a time uses a queue; so at most one goroutine waits for
// it, which keeps no lock that nobody wants any more.
type lockQueue struct {
	mu   sync.Mutex // guards the field below and its wanted, never held over I/O
	wait *lockWait  // nil: no goroutine waits
}

// A lockWait is one wait in the kernel.
type lockWait struct {
	f      *os.File
	wanted bool          // a caller waits for the lock
	done   chan struct{} // closed when the lock was taken, or err says why not
	err    error
}

// take opens the lock file and locks it, or returns the context's error. The file may be one that was opened for an
// earlier caller.
func (q *lockQueue) take(ctx context.Context, open func() (*os.File, error)) (*os.File, error) {
	q.mu.Lock()
	w := q.wait
	if w != nil {
		w.wanted = true
	}
	q.mu.Unlock()
	if w == nil {
		f, err := open()
		if err != nil {
			return nil, err
		}
		if err = lockFile(f, true, false); err == nil {
			return f, nil
		}
		if !errors.Is(err, errLocked) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		w = &lockWait{f: f, wanted: true, done: make(chan struct{})}
		q.mu.Lock()
		q.wait = w
		q.mu.Unlock()
		go q.await(w) // ends when the other program frees the lock, or ends: nothing else ends it
	}
	select {
	case <-w.done:
		return w.f, w.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-w.done: // just now
		return w.f, w.err
	default:
		w.wanted = false
		return nil, ctx.Err()
	}
}

// await waits for the lock, and frees it at once if nobody wants it by then.
func (q *lockQueue) await(w *lockWait) {
	if err := lockFile(w.f, true, true); err != nil {
		w.err = fmt.Errorf("locking %s: %w", w.f.Name(), err)
	}
	q.mu.Lock()
	q.wait = nil
	free := w.err != nil || !w.wanted
	close(w.done)
	q.mu.Unlock()
	if free {
		dropFlock(w.f)
	}
}
