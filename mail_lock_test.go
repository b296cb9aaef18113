package main

// mail_lock_test.go holds both locks of a shared file: taken in order, taken over where they are stale or a dead process has
// them, and atm's waited for past a writer that never pauses, and given up without keeping anything.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLockQueueGivenUp: who gives up leaves its place to the next caller, and a lock that nobody wants is free.
func TestLockQueueGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arch.lock")
	open := func() (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) }
	other, err := open()
	if err != nil {
		t.Fatal(err)
	}
	wantNil(t, lockFile(other, true, false))
	var q lockQueue
	opened := 0
	take := func(ctx context.Context) (*os.File, error) {
		return q.take(ctx, func() (*os.File, error) { opened++; return open() })
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if f, err := take(over); !errors.Is(err, context.Canceled) {
			t.Fatalf("a lock that another holds was taken: %v, %v", f, err)
		}
	}
	if opened != 1 {
		t.Errorf("%d waits stand before the file, want 1", opened)
	}
	got := make(chan error, 1)
	go func() {
		f, err := take(t.Context())
		if err == nil {
			dropFlock(f)
		}
		got <- err
	}()
	dropFlock(other)
	if err := <-got; err != nil {
		t.Errorf("after others gave up: %v", err)
	}

	if other, err = open(); err != nil {
		t.Fatal(err)
	}
	wantNil(t, lockFile(other, true, true))
	if _, err := take(over); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	dropFlock(other)
	last, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	wantNil(t, lockFile(last, true, true)) // would hang if the abandoned wait kept what it got
}

// TestMailPastRestlessWriter: a writer that takes atm's lock again a moment after it has freed it doesn't keep others
// out, though who looks every few milliseconds hardly ever finds it free. (A writer without that moment is let past by
// the kernel as often as not: flock wakes who waits, and gives the lock to whoever comes first.)
func TestMailPastRestlessWriter(t *testing.T) {
	x, dir := mailTeam(t)
	x.patience = waitLimit(t)
	f, err := os.Create(filepath.Join(dir, "arch.lock"))
	wantNil(t, err)
	defer f.Close()
	wantNil(t, lockFile(f, true, true))
	ctx, cancel := context.WithCancel(t.Context())
	var restless sync.WaitGroup
	defer restless.Wait()
	defer cancel()
	var holds atomic.Int64
	restless.Go(func() {
		busy := make([]byte, 1<<20)
		for ctx.Err() == nil {
			for start := time.Now(); time.Since(start) < 10*time.Millisecond; { // holds it, at work
				clear(busy)
			}
			unlockFile(f)
			time.Sleep(200 * time.Microsecond)
			if err := lockFile(f, true, true); err != nil {
				t.Error(err)
				return
			}
			holds.Add(1)
		}
		unlockFile(f)
	})
	const messages = 5
	for i := range messages {
		if out, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "a", Text: "x"}); out != mailDelivered {
			t.Fatalf("message %d: %v, %v", i, out, err)
		}
	}
	if n := holds.Load(); n > 120*messages {
		t.Errorf("%d messages came past %d holds", messages, n)
	}
}

func TestTeamLocks(t *testing.T) {
	c := newCrew(t, claudeTeam)
	dirLock, flock := c.path+".lock", filepath.Join(c.dir, "config.lock")
	refused := func(what, want string) {
		t.Helper()
		_, err := c.teamFile.join(soon(t), c.agent, c.holder)
		if !errors.Is(err, errTeamBusy) || !strings.Contains(err.Error(), want) || c.text() != claudeTeam {
			t.Errorf("%s: %v", what, err)
		}
	}

	wantNil(t, os.Mkdir(dirLock, 0o755))
	refused("Claude Code's lock is held", dirLock)
	wantNil(t, os.Chtimes(dirLock, beginningOfTime(), beginningOfTime()))
	c.mustLeave(c.mustJoin(c.agent)) // stale: taken over
	if _, err := os.Lstat(dirLock); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock is still there: %v", err)
	}

	wantNil(t, os.Mkdir(dirLock, 0o755))
	touchFile(t, filepath.Join(dirLock, "x"))
	wantNil(t, os.Chtimes(dirLock, beginningOfTime(), beginningOfTime()))
	refused("a stale lock that isn't empty", dirLock)
	wantNil(t, os.RemoveAll(dirLock))

	// A clock that was wrong made it: it is no fresher than one of last year.
	wantNil(t, os.Mkdir(dirLock, 0o755))
	wantNil(t, os.Chtimes(dirLock, time.Now().Add(time.Hour), time.Now().Add(time.Hour)))
	c.mustLeave(c.mustJoin(c.agent))

	touchFile(t, dirLock)
	if _, err := c.join(c.agent); err == nil || errors.Is(err, errTeamBusy) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a file where Claude Code's lock should be: %v", err)
	}
	wantNil(t, os.Remove(dirLock))

	f, err := os.OpenFile(flock, os.O_RDWR, 0)
	wantNil(t, err)
	wantNil(t, lockFile(f, true, false))
	refused("atm's lock is held", flock)
	if _, err := os.Lstat(dirLock); !errors.Is(err, os.ErrNotExist) {
		t.Error("the second lock was taken before the first")
	}
	wantNil(t, unlockFile(f))
	f.Close()
	c.mustLeave(c.mustJoin(c.agent))

	wantNil(t, os.Remove(flock))
	wantNil(t, os.Mkdir(flock, 0o755))
	if _, err := c.join(c.agent); err == nil || !strings.Contains(err.Error(), flock) {
		t.Errorf("a directory where atm's lock should be: %v", err)
	}
}

// A lock of ours whose process was killed is taken over at once, by its note; another's, and a living one's, is not.
func TestDeadProcessLock(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories have no mode there: its locks are stale after ten seconds")
	}
	c := newCrew(t, claudeTeam)
	c.file.notes = newLockNotes(t.TempDir())
	notes, dirLock := c.file.notes, c.path+".lock"
	killed := func(pid int) { // where its process was, while it had the lock
		t.Helper()
		_, err := takeDirLock(t.Context(), c.path, notes)
		wantNil(t, err)
		host, _ := os.Hostname()
		wantNil(t, os.WriteFile(notes.file(dirLock), toJSON(lockNote{dirLock, pid, host}), 0o600))
	}
	noted := func() int {
		all, _ := os.ReadDir(string(notes))
		return len(all)
	}

	killed(deadPID(t))
	m, err := c.teamFile.join(soon(t), c.agent, c.holder)
	wantNil(t, err)
	c.mustLeave(m)
	if noted() != 0 {
		t.Error("the note outlives the lock")
	}

	killed(os.Getppid())
	if _, err := c.teamFile.join(soon(t), c.agent, c.holder); !errors.Is(err, errTeamBusy) {
		t.Errorf("a living process's lock: %v", err)
	}
	wantNil(t, os.Remove(dirLock))

	killed(deadPID(t))
	wantNil(t, os.Remove(dirLock))
	wantNil(t, os.Mkdir(dirLock, 0o755))
	c.tidy()
	if _, err := c.teamFile.join(soon(t), c.agent, c.holder); !errors.Is(err, errTeamBusy) {
		t.Errorf("Claude Code's lock, where a dead process was about to take it: %v", err)
	}
	wantNil(t, os.Remove(dirLock))

	killed(deadPID(t))
	wantNil(t, os.Remove(dirLock))
	if c.tidy(); noted() != 0 {
		t.Error("the note of a process that died without its lock is kept")
	}
}
