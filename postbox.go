package main

// postbox.go owns the way into a session's goroutine: a queue that anybody
// may put into without waiting and one goroutine takes from, all that has
// come at once. Reading goroutines put here, so it must never block them.

import "sync"

// letter is one thing for the session loop: an event of the child, or
// something to do.
type letter struct {
	ev event
	do func()
}

// maxWaitingEvents is how many droppable events may wait in one postbox. It
// is above any burst a child sends while a loop is scheduled out, and bounds
// memory when it isn't.
const maxWaitingEvents = 65536

type postbox struct {
	mu      sync.Mutex // guards the fields below
	wake    sync.Cond
	letters []letter
	closed  bool
	dropped int64
}

func newPostbox() *postbox {
	b := &postbox{}
	b.wake.L = &b.mu
	return b
}

// post hands do to the loop; false when the loop has ended.
func (b *postbox) post(do func()) bool { return b.put(letter{do: do}) }

// event hands e to the loop, unless it may be dropped and too many wait.
func (b *postbox) event(e event) { b.put(letter{ev: e}) }

func (b *postbox) put(l letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if l.do == nil && l.ev.droppable() && len(b.letters) >= maxWaitingEvents {
		b.dropped++
		return true
	}
	b.letters = append(b.letters, l)
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
	return got
}

// close refuses everything from now on and returns what nobody has taken.
func (b *postbox) close() []letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	rest := b.letters
	b.letters = nil
	return rest
}

// lost is how many events were dropped here.
func (b *postbox) lost() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
