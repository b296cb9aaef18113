package main

// The two locks of an inbox. `atm` takes a flock on <member>.lock and Claude Code makes a directory
// <member>.json.lock; neither looks at the other's, so whoever would lose nobody's mail takes both, the flock first
// (two of ours never hold one each). mailfile.go is the caller.
// Never keeps Claude Code's lock for longer than a rename or one small read and write: it gives a message up,
// silently, after 0.7 s. Never opens or locks a file under that name, and never deletes <member>.lock.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	mailPatience  = 5 * time.Second       // for all locks of one operation, where the caller's context has no less
	mailDirPause  = 20 * time.Millisecond // no lock is handed on: who looks rarely never gets it from one who writes without a pause
	mailLockStale = 10 * time.Second      // Claude Code's rule; a living holder renews the directory's time every 5 s
)

// errInboxBusy: others held the locks all the time. Nothing was changed; it can be tried again.
var errInboxBusy = errors.New("the inbox is locked by another program")

// lockMailFile takes atm's lock. Whoever removes the member removes the file as well, so it looks again.
func lockMailFile(ctx context.Context, queue *lockQueue, path string) (*os.File, error) {
	for try := 0; ; try++ {
		f, err := queue.take(ctx, func() (*os.File, error) { return openMailLock(path) })
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil, fmt.Errorf("%w (%s): %w", errInboxBusy, path, err)
		}
		if err != nil {
			return nil, err
		}
		there, err := isAt(f, path)
		if there {
			return f, nil
		}
		unlockMailFile(f)
		if err != nil {
			return nil, fmt.Errorf("locking the inbox: %w", err)
		}
		if err := waitMailTurn(ctx, try, path); err != nil {
			return nil, err
		}
	}
}

func openMailLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, fs.ErrPermission) {
		if other, err2 := os.Open(path); err2 == nil {
			return other, nil // another user's, which can be locked all the same
		}
	}
	if err != nil {
		return nil, mailPathError(err)
	}
	return f, nil
}

// unlockMailFile also ends the lock where a child that is just being forked has a copy of the descriptor.
func unlockMailFile(f *os.File) {
	unlockFile(f)
	f.Close()
}

// A mailDirLock is Claude Code's lock, held.
type mailDirLock struct {
	path string
	made fs.FileInfo // the directory as we made it: another may have taken it for stale
}

func lockMailDir(ctx context.Context, path string) (*mailDirLock, error) {
	for try := 0; ; try++ {
		err := os.Mkdir(path, 0o755)
		if err == nil {
			made, err := os.Lstat(path)
			if err != nil {
				return nil, fmt.Errorf("locking the inbox: %w", err)
			}
			return &mailDirLock{path: path, made: made}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, mailPathError(err)
		}
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// It was freed just now.
		case err != nil:
			return nil, fmt.Errorf("locking the inbox: %w", err)
		case !info.IsDir():
			// Claude Code can't get past it either, and drops its mail without a word.
			return nil, fmt.Errorf("%s is in the way: Claude Code locks the inbox with a directory of that name; move it away", path)
		case time.Since(info.ModTime()) > mailLockStale && os.Remove(path) == nil: // with files in it, it isn't removed
			continue
		}
		if err := waitMailTurn(ctx, try, path); err != nil {
			return nil, err
		}
	}
}

// held is false if another took our lock for a stale one: this process was stopped for a while.
func (l *mailDirLock) held() bool {
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(now, l.made)
}

func (l *mailDirLock) release() {
	if l.held() {
		os.Remove(l.path)
	}
}

// waitMailTurn waits from 2 ms on, longer each time, and not in step with any other.
func waitMailTurn(ctx context.Context, try int, path string) error {
	pause := min(2*time.Millisecond<<min(try, 6), mailDirPause)
	if err := pauseUntil(ctx, time.Now().Add(pause/2+rand.N(pause))); err != nil {
		return fmt.Errorf("%w (%s): %w", errInboxBusy, path, err)
	}
	return nil
}

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

// mailPathError says what to do about a directory that can't be written.
func mailPathError(err error) error {
	var p *fs.PathError
	switch {
	case !errors.As(err, &p):
		return fmt.Errorf("opening the inbox: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w (%s)", errMailNoTeam, p.Path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("opening the inbox: %w; make %s writable", err, filepath.Dir(p.Path))
	}
	if info, err2 := os.Stat(p.Path); err2 == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory where a file should be; move it away", p.Path)
	}
	return fmt.Errorf("opening the inbox: %w", err)
}
