package main

// postbox.go owns the way into a session's goroutine: a queue that anybody
// may put into without waiting and one goroutine takes from, all that has
// come at once. Reading goroutines put here, so it must never block them.

import (
	"sync"
	"sync/atomic"
)

// letter is one thing for the session loop: an event of the child, or
// something to do.
type letter struct {
	ev event
	do func()
}

// maxWaitingEvents is how many letters may wait in all postboxes together
// before droppable events are dropped. It is above any burst a child sends
// while a loop is scheduled out, and bounds memory when ten agents flood.
const maxWaitingEvents = 32768

type postbox struct {
	waiting *atomic.Int64 // letters in all postboxes that share it

	mu      sync.Mutex // guards the fields below
	wake    sync.Cond
	letters []letter
	closed  bool
	dropped int64
}

// newPostbox makes one of several postboxes that share the count waiting.
func newPostbox(waiting *atomic.Int64) *postbox {
	b := &postbox{waiting: waiting}
	b.wake.L = &b.mu
	return b
}

// post hands do to the loop; false when the loop has ended.
func (b *postbox) post(do func()) bool { return b.put(letter{do: do}) }

// event hands e to the loop, unless it may be dropped and too many wait;
// false when the loop has ended.
func (b *postbox) event(e event) bool { return b.put(letter{ev: e}) }

func (b *postbox) put(l letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if l.do == nil && l.ev.droppable() && b.waiting.Load() >= maxWaitingEvents {
		b.dropped++
		return true
	}
	b.letters = append(b.letters, l)
	b.waiting.Add(1)
	if len(b.letters) == 1 {
		b.wake.Signal()
	}
	return true
}

// take waits for letters and returns all of them; old is given back for
// reuse.
func (b *postbox) take(old []letter) []letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.letters) == 0 {
		b.wake.Wait()
	}
	clear(old)
	if cap(old) > 4096 {
		old = nil
	}
	got := b.letters
	b.letters = old[:0]
	b.waiting.Add(-int64(len(got)))
	return got
}

// close refuses everything from now on and returns what nobody has taken.
func (b *postbox) close() []letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	rest := b.letters
	b.letters = nil
	b.waiting.Add(-int64(len(rest)))
	return rest
}

// lost is how many events were dropped here.
func (b *postbox) lost() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
