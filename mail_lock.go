package main

// mail_lock.go owns the two locks of a file that others of a team write too: an inbox, or config.json. `atm` takes a
// flock on <name>.lock and Claude Code makes a directory <name>.json.lock; neither looks at the other's, so whoever
// would lose nobody's words takes both, the flock first (two of ours never hold one each). mail_shared.go is the caller;
// an error is the system's own.
// The flock is waited for in the kernel's own queue: looking again and again never sees the moment between two holds of a
// writer without a pause. Nothing ends a wait there, so a caller whose time is over leaves it behind for the next one.
// A directory of ours has the sticky bit, which nobody else's has, and a note among our own files says which process
// made it: whoever of us comes next, and so holds the flock, takes a dead one's over at once.
// Never keeps Claude Code's lock of an inbox for longer than a rename or one small read and write: it gives a message
// up, silently, after 0.7 s. Never opens or locks a file under that name, and never deletes <name>.lock.

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// lockNotes is the directory of the notes about Claude Code's locks that we hold, one for each, "" for none.
type lockNotes string

// A lockNote stands from before the directory is made until after it is removed.
type lockNote struct {
	Path string `json:"path"`
	PID  int    `json:"pid"`
	Host string `json:"host"`
}

// newLockNotes is where all instances of this user have their notes.
func newLockNotes(sessionsRoot string) lockNotes {
	return lockNotes(filepath.Join(sessionsRoot, ".locks"))
}

func (n lockNotes) file(lock string) string {
	return filepath.Join(string(n), fmt.Sprintf("%x.json", sha256.Sum256([]byte(lock)))[40:])
}

// takeOver removes a directory that a dead process of ours left. Its caller holds the flock, so no living one has it,
// unless the flock's file was removed meanwhile: then the note names the living.
func (n lockNotes) takeOver(lock string) {
	info, err := os.Lstat(lock)
	if n == "" || err != nil || !info.IsDir() || info.Mode()&fs.ModeSticky == 0 {
		return
	}
	if note, dead := n.read(n.file(lock)); dead && note.Path == lock {
		os.Remove(lock)
	}
}

// read tells whether the process that wrote a note is dead for sure: a holder with our own number is one before us.
func (n lockNotes) read(file string) (note lockNote, dead bool) {
	data, err := readRegular(file, 16<<10)
	if err != nil || json.Unmarshal(data, &note) != nil {
		return note, false
	}
	host, _ := os.Hostname()
	return note, host != "" && note.Host == host && (note.PID == os.Getpid() || !pidAlive(note.PID))
}

// tidy removes the notes of processes that died without a lock.
func (n lockNotes) tidy() {
	entries, _ := os.ReadDir(string(n))
	for _, e := range entries {
		file := filepath.Join(string(n), e.Name())
		if note, dead := n.read(file); dead && note.PID != os.Getpid() {
			if _, err := os.Lstat(note.Path); errors.Is(err, fs.ErrNotExist) {
				os.Remove(file)
			}
		}
	}
}

// put informs: where it can't be written, a dead one's lock is stale after ten seconds, as anybody's.
func (n lockNotes) put(lock string) {
	if n == "" {
		return
	}
	host, _ := os.Hostname()
	f, err := openOwn(n.file(lock), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) && os.Mkdir(string(n), 0o700) == nil {
		f, err = openOwn(n.file(lock), os.O_WRONLY|os.O_CREATE, 0o600)
	}
	if err != nil {
		return
	}
	data := toJSON(lockNote{lock, os.Getpid(), host})
	if _, err = f.Write(data); err == nil {
		f.Truncate(int64(len(data)))
	}
	f.Close()
}

func (n lockNotes) drop(lock string) {
	if n != "" {
		os.Remove(n.file(lock))
	}
}

// A dirLock is Claude Code's lock, held.
type dirLock struct {
	path  string
	made  fs.FileInfo // the directory as we made it: another may have taken it for stale
	notes lockNotes
}

// takeDirLock takes Claude Code's lock of a .json file. Its caller holds atm's.
func takeDirLock(ctx context.Context, path string, notes lockNotes) (lock *dirLock, err error) {
	path += ".lock"
	notes.takeOver(path)
	notes.put(path)
	defer func() {
		if err != nil {
			notes.drop(path)
		}
	}()
	for try := 0; ; try++ {
		err := os.Mkdir(path, 0o755|fs.ModeSticky)
		if err == nil {
			made, err := os.Lstat(path)
			if err != nil {
				return nil, err
			}
			return &dirLock{path: path, made: made, notes: notes}, nil
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
		case time.Since(info.ModTime()).Abs() > dirLockStale && // also far ahead: of a clock that was wrong
			os.Remove(path) == nil: // with files in it, it isn't removed
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
	l.notes.drop(l.path)
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

// A lockQueue is the place of one process before one lock file. One caller at a time uses it: never more than one
// goroutine stands there, and none keeps a lock that nobody wants any more.
type lockQueue struct {
	mu   sync.Mutex // guards the field below and wanted in it, never held over I/O
	wait *lockWait  // nil: nobody stands there
}

// A lockWait is one wait in the kernel.
type lockWait struct {
	f      *os.File
	wanted bool
	done   chan struct{} // closed when the lock was taken, or err says why not
	err    error
}

// take opens the lock file and locks it, or comes back with the context's error. The lock may be one of a file that
// was opened for an earlier caller.
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
		go q.stand(w) // ends when the other program frees the lock, or ends: nothing else ends it
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

// stand waits for the lock, and frees it at once if nobody wants it by then.
func (q *lockQueue) stand(w *lockWait) {
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
