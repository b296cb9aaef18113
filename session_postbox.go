package main

// session_postbox.go owns the way into a session's goroutine: a queue that takes in whatever comes without letting
// anybody wait, in bounded memory. The child's reading goroutine, the hub and timers put letters in, the session's loop
// takes them out.

import (
	"sync"
	"sync/atomic"
)

// letter is one thing for the session loop: an event of the child, or something to do.
type letter struct {
	ev event
	do func()
}

// maxWaitingBytes may wait in all postboxes together before droppable events are dropped: what the loops have taken
// counts until they are done with it. It is above any burst a child sends while a loop is scheduled out, and bounds
// memory when ten agents flood.
const maxWaitingBytes = 12 << 20

// letterSize is about what a letter takes beside its texts.
const letterSize = 256

// postbox is the way into a session's goroutine: a queue that anybody may put into without waiting and one goroutine
// takes from, all that has come at once. Reading goroutines put here, so it must never block them.
type postbox struct {
	waiting *atomic.Int64 // bytes in all postboxes that share it

	mu      sync.Mutex // guards the fields below
	wake    sync.Cond
	letters []letter
	bytes   int // of letters
	taken   int // bytes in the loop's hand
	closed  bool
	dropped int64
}

func newPostbox(waiting *atomic.Int64) *postbox {
	b := &postbox{waiting: waiting}
	b.wake.L = &b.mu
	return b
}

// size is what a letter counts for: its events' texts are parts of raw, or copies of them.
func (l *letter) size() int { return letterSize + len(l.ev.raw) + len(l.ev.text) }

// do has the loop run f; false when the loop has ended.
func (b *postbox) do(f func()) bool { return b.add(letter{do: f}) }

// event hands e to the loop, unless it may be dropped and too many wait; false when the loop has ended.
func (b *postbox) event(e event) bool { return b.add(letter{ev: e}) }

func (b *postbox) add(l letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	n := l.size()
	if l.do == nil && l.ev.droppable() && b.waiting.Load()+int64(n) > maxWaitingBytes {
		b.dropped++
		return true
	}
	b.letters = append(b.letters, l)
	b.bytes += n
	b.waiting.Add(int64(n))
	if len(b.letters) == 1 {
		b.wake.Signal()
	}
	return true
}

// take waits for letters and returns all of them. old are those of the last
// time, done with: they make room, and their memory is used again.
func (b *postbox) take(old []letter) []letter {
	clear(old) // now: the last answer of an agent that falls idle would stay
	if cap(old) > 4096 {
		old = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting.Add(-int64(b.taken))
	b.taken = 0
	for len(b.letters) == 0 {
		b.wake.Wait()
	}
	got := b.letters
	b.letters = old[:0]
	b.taken, b.bytes = b.bytes, 0
	return got
}

// close refuses everything from now on and returns what nobody has taken.
func (b *postbox) close() []letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	rest := b.letters
	b.letters = nil
	b.waiting.Add(-int64(b.taken + b.bytes))
	b.taken, b.bytes = 0, 0
	return rest
}

func (b *postbox) lost() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
