package main

// The wait for atm's lock: past a writer that never pauses, and given up without keeping anything.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
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

// TestMailPastRestlessWriter: a writer that takes atm's lock again as soon as it has freed it doesn't keep others out,
// though who looks every few milliseconds would hardly ever find it free.
func TestMailPastRestlessWriter(t *testing.T) {
	x, dir := mailTeam(t)
	ctx, cancel := context.WithCancel(t.Context())
	var restless sync.WaitGroup
	defer restless.Wait()
	defer cancel()
	begun := make(chan struct{})
	restless.Go(func() {
		f, err := os.Create(filepath.Join(dir, "arch.lock"))
		if err != nil {
			t.Error(err)
			close(begun)
			return
		}
		defer f.Close()
		busy := make([]byte, 16<<20)
		for i := 0; ctx.Err() == nil; i++ {
			if err := lockFile(f, true, true); err != nil {
				t.Error(err)
			}
			if i == 0 {
				close(begun)
			}
			for start := time.Now(); time.Since(start) < 10*time.Millisecond; { // holds it, at work
				clear(busy)
			}
			unlockFile(f)
		}
	})
	<-begun
	for i := range 5 {
		if out, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "a", Text: "x"}); out != mailDelivered {
			t.Fatalf("message %d: %v, %v", i, out, err)
		}
	}
}
