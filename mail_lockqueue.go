package main

// mail_lockqueue.go owns the wait for atm's lock of one file: not by looking again and again, which never sees the moment
// between two holds of a writer without a pause, but in the kernel's own queue, from which the next one is woken.
// mail_lock.go is the caller. Nothing ends a wait there, so a caller whose time is over leaves it behind, and the next
// one finds it: never stands more than one goroutine before a file, and never keeps a lock that nobody wants any more.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// A lockQueue is the place of one process before one lock file. One caller at a time uses it.
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
