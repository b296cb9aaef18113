package main

// wire_outbox.go owns the queue between everybody who writes to a stream and the
// one goroutine that does. Records leave in the order they came, so a
// response can't overtake the notifications before it. Putting never blocks;
// what may be dropped is dropped past the budget (FR-19.4), what may not is
// kept. The peer owns one.

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// An outbox may be used from any goroutine; one of its own, run, writes.
type outbox struct {
	w      io.Writer
	budget int           // bytes that may wait before records are dropped that may be
	onErr  func(error)   // called once, when a write has failed; may be nil
	done   chan struct{} // closed when the writing goroutine has ended

	mu      sync.Mutex      // guards the fields below
	wake    sync.Cond       // tells the writing goroutine that ready or closed has changed
	chunks  [][]byte        // framed records not yet taken by the writing goroutine
	spare   []byte          // one empty chunk kept for the next record
	waiting int             // bytes in chunks and in the write under way
	ready   bool            // what waits is to be written now
	pausing bool            // pause runs
	pause   *time.Timer     // makes what waits ready after lazyPause
	soon    time.Time       // when a keepSoon record was last written without a pause
	closed  bool            // close was called: nothing more is taken
	dead    bool            // a write failed: everything is dropped from now on
	empties []chan struct{} // each is closed by run when nothing waits
}

// worth is what becomes of a record when the other side doesn't read.
type worth int

const (
	keepAlways worth = iota // responses, requests: somebody waits for them
	dropLast                // what ended and began: dropped past the budget
	dropFirst               // deltas: dropped past three quarters of it, so that there is room for the former
	keepSoon                // like keepAlways, but nobody waits: in a run of them each may wait a moment for the next
)

// chunkSize is what one write takes: a pipe holds no more, and memory grows
// by no more at a time, so a stalled reader costs the budget and not twice.
const chunkSize = 64 << 10

// A record that may be dropped (a delta, nearly all there is) may as well wait
// a moment for the next one: a write and the other side's waking cost more than
// all else about it. Any other record, or lazySize of them, takes it along.
const (
	lazyPause = 200 * time.Microsecond
	lazySize  = 16 << 10
)

// newOutbox starts the writing goroutine; close ends it. onErr may be nil.
func newOutbox(w io.Writer, budget int, onErr func(error)) *outbox {
	o := &outbox{w: w, budget: budget, onErr: onErr, done: make(chan struct{})}
	o.wake.L = &o.mu
	o.pause = time.AfterFunc(time.Hour, o.paused)
	o.pause.Stop()
	go o.run()
	return o
}

// put queues one record. It reports false when the record was dropped: the
// stream is closed or dead, or the record isn't worth going past the budget. One
// large record may: else none larger than what is left would ever be told.
func (o *outbox) put(rec []byte, mode framing, w worth) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.dead {
		return false
	}
	if w == dropFirst && o.waiting+len(rec) > o.budget/4*3 || w == dropLast && o.waiting > o.budget {
		return false
	}
	last := len(o.chunks) - 1
	if last < 0 || len(o.chunks[last])+len(rec)+64 > cap(o.chunks[last]) {
		chunk := o.spare
		o.spare = nil
		if cap(chunk) < len(rec)+64 {
			chunk = make([]byte, 0, max(chunkSize, len(rec)+64))
		}
		o.chunks = append(o.chunks, chunk)
		last++
	}
	before := len(o.chunks[last])
	o.chunks[last] = appendFrame(o.chunks[last], rec, mode)
	o.waiting += len(o.chunks[last]) - before
	lazy := w == dropFirst
	if w == keepSoon && !o.pausing { // alone it goes at once: what is added to it may be seen
		now := time.Now()
		if lazy = now.Sub(o.soon) < lazyPause; !lazy {
			o.soon = now
		}
	} else if w == keepSoon {
		lazy = true
	}
	switch {
	case !lazy || last > 0 || len(o.chunks[0]) >= lazySize:
		o.ready = true
		o.wake.Signal()
	case !o.pausing:
		o.pausing = true
		o.pause.Reset(lazyPause)
	}
	return true
}

// paused is the timer: what waits has waited long enough.
func (o *outbox) paused() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pausing = false
	o.ready = len(o.chunks) > 0
	o.wake.Signal()
}

// size is how many bytes wait for the other side.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

// run is the writing goroutine. It writes all that waits in few calls, so a
// burst costs little and a lone answer waits for nothing.
func (o *outbox) run() {
	defer close(o.done)
	defer o.pause.Stop()
	for {
		o.mu.Lock()
		for !o.ready && !o.closed {
			o.wake.Wait()
		}
		if len(o.chunks) == 0 {
			o.mu.Unlock()
			return
		}
		chunk := o.chunks[0]
		o.chunks[0] = nil
		o.chunks = o.chunks[1:]
		o.ready = len(o.chunks) > 0
		o.mu.Unlock()

		_, err := o.w.Write(chunk)

		o.mu.Lock()
		o.waiting -= len(chunk)
		if cap(chunk) == chunkSize {
			o.spare = chunk[:0]
		}
		if err != nil {
			o.dead, o.chunks, o.waiting = true, nil, 0
		}
		if o.waiting == 0 {
			for _, empty := range o.empties {
				close(empty)
			}
			o.empties = nil
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

// flush returns when all that was put before it is written, or after limit.
func (o *outbox) flush(limit time.Duration) {
	o.mu.Lock()
	if o.waiting == 0 {
		o.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	o.empties = append(o.empties, empty)
	o.ready = len(o.chunks) > 0
	o.wake.Signal()
	o.mu.Unlock()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
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

// lineWriter hands log lines to an outbox, so that whoever doesn't read our
// stderr can't hold a session or a reader: past the outbox's budget lines are
// lost, not waited for.
type lineWriter struct{ out *outbox }

func (w lineWriter) Write(line []byte) (int, error) {
	w.out.put(bytes.TrimRight(line, "\n"), framingNewline, dropFirst)
	return len(line), nil
}
