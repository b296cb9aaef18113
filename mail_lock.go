package main

// mail_lock.go owns the two locks of a file that others of a team write too: an inbox, or config.json. `atm` takes a
// flock on <name>.lock and Claude Code makes a directory <name>.json.lock; neither looks at the other's, so whoever
// would lose nobody's words takes both, the flock first (two of ours never hold one each). mail_inbox.go and mail_teamfile.go
// are the callers; an error is the system's own, and they say what it means.
// Never keeps Claude Code's lock of an inbox for longer than a rename or one small read and write: it gives a message
// up, silently, after 0.7 s. Never opens or locks a file under that name, and never deletes <name>.lock.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

const (
	lockPatience = 5 * time.Second       // for all locks of one operation, where the caller's context has no less
	dirLockPause = 20 * time.Millisecond // no lock is handed on: who looks rarely never gets it from one who writes without a pause
	dirLockStale = 10 * time.Second      // Claude Code's rule; a living holder renews the directory's time every 5 s
)

// errTeamBusy: others held the locks all the time. Nothing was changed; it can be tried again.
var errTeamBusy = errors.New("the team's files are locked by another program")

// takeFlock takes atm's lock of a .json file, waiting in queue. Whoever removes the file's owner, a member or the team,
// removes the lock file as well, so it looks again.
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
			return other, nil // another user's, which can be locked all the same
		}
	}
	return f, err
}

// dropFlock also ends the lock where a child that is just being forked has a copy of the descriptor.
func dropFlock(f *os.File) {
	unlockFile(f)
	f.Close()
}

// A dirLock is Claude Code's lock, held.
type dirLock struct {
	path string
	made fs.FileInfo // the directory as we made it: another may have taken it for stale
}

// takeDirLock takes Claude Code's lock of a .json file.
func takeDirLock(ctx context.Context, path string) (*dirLock, error) {
	path += ".lock"
	for try := 0; ; try++ {
		err := os.Mkdir(path, 0o755)
		if err == nil {
			made, err := os.Lstat(path)
			if err != nil {
				return nil, err
			}
			return &dirLock{path: path, made: made}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// It was freed just now.
		case err != nil:
			return nil, err
		case !info.IsDir():
			// Claude Code can't get past it either, and drops its mail without a word.
			return nil, fmt.Errorf("%s is in the way: Claude Code locks with a directory of that name; move it away", path)
		case time.Since(info.ModTime()) > dirLockStale && os.Remove(path) == nil: // with files in it, it isn't removed
			continue
		}
		if err := waitLock(ctx, try, path); err != nil {
			return nil, err
		}
	}
}

// held is false if another took our lock for a stale one: this process was stopped for a while.
func (l *dirLock) held() bool {
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(now, l.made)
}

func (l *dirLock) release() {
	if l.held() {
		os.Remove(l.path)
	}
}

// waitLock waits from 2 ms on, longer each time, and not in step with any other.
func waitLock(ctx context.Context, try int, path string) error {
	pause := min(2*time.Millisecond<<min(try, 6), dirLockPause)
	if err := pauseUntil(ctx, time.Now().Add(pause/2+rand.N(pause))); err != nil {
		return fmt.Errorf("%w (%s): %w", errTeamBusy, path, err)
	}
	return nil
}

// pauseUntil waits for a time, or comes back with the context's error.
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
