package main

// outbox.go owns the queue between everybody who writes to a stream and the
// one goroutine that does. Records leave in the order they came, so a
// response can't overtake the notifications before it. Putting never blocks;
// what may be dropped is dropped past the budget (FR-19.4), what may not is
// kept. The peer owns one.

import (
	"io"
	"sync"
	"time"
)

type outbox struct {
	w      io.Writer
	budget int
	onErr  func(error)
	done   chan struct{} // closed when the writing goroutine has ended

	mu      sync.Mutex // guards the fields below
	wake    sync.Cond
	buf     []byte // framed records not yet taken by the writer
	writing int    // bytes the writer has in hand
	closed  bool
	dead    bool // a write failed: everything is dropped from now on
}

// newOutbox starts the writing goroutine; close ends it. onErr may be nil.
func newOutbox(w io.Writer, budget int, onErr func(error)) *outbox {
	o := &outbox{w: w, budget: budget, onErr: onErr, done: make(chan struct{})}
	o.wake.L = &o.mu
	go o.run()
	return o
}

// put queues one record. It reports false when the record was dropped: the
// stream is closed or dead, or the record is droppable and the budget spent.
func (o *outbox) put(rec []byte, mode framing, droppable bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.dead {
		return false
	}
	if droppable && len(o.buf)+o.writing+len(rec) > o.budget {
		return false
	}
	o.buf = appendFrame(o.buf, rec, mode)
	o.wake.Signal()
	return true
}

func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf) + o.writing
}

// run is the writing goroutine. It writes all that waits in one call, so a
// burst costs few system calls and a lone record waits for nothing.
func (o *outbox) run() {
	defer close(o.done)
	var spare []byte
	for {
		o.mu.Lock()
		for len(o.buf) == 0 && !o.closed {
			o.wake.Wait()
		}
		batch := o.buf
		if len(batch) == 0 {
			o.mu.Unlock()
			return
		}
		o.buf, o.writing = spare[:0], len(batch)
		o.mu.Unlock()

		_, err := o.w.Write(batch)

		o.mu.Lock()
		o.writing = 0
		spare = batch
		if cap(spare) > 1<<20 {
			spare = nil // one large burst must not be held for ever
		}
		if err != nil {
			o.dead, o.buf = true, nil
		}
		o.mu.Unlock()
		if err != nil {
			if o.onErr != nil {
				o.onErr(err)
			}
			return
		}
	}
}

// close lets the writer finish what is queued, for at most grace.
func (o *outbox) close(grace time.Duration) {
	o.mu.Lock()
	o.closed = true
	o.wake.Signal()
	o.mu.Unlock()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-o.done:
	case <-t.C:
	}
}
