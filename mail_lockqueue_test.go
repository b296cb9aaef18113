package main

// The wait for atm's lock: past a writer that never pauses, and given up without keeping anything.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
