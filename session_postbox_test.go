package main

// session_postbox_test.go holds the bound on events that wait for sessions to invariant 3:
// all postboxes share it, so that one session that is behind can't use up memory
// by another's name.

import (
	"bytes"
	"sync/atomic"
	"testing"
)

// Ten flooding agents share one bound, of bytes and not of letters, since a
// command's output may come in large pieces: what may be dropped is, and
// counted; what may not is kept. What a loop has taken makes room only once it
// is done with it.
func TestPostboxesShareOneBound(t *testing.T) {
	var waiting atomic.Int64
	boxes := [2]*postbox{newPostbox(&waiting), newPostbox(&waiting)}
	delta := event{kind: evDelta, raw: bytes.Repeat([]byte("x"), 1<<20-letterSize)}
	for i := range maxWaitingBytes>>20 + 10 {
		boxes[i%2].event(delta)
	}
	lost := func() int64 { return boxes[0].lost() + boxes[1].lost() }
	if lost() != 10 {
		t.Fatalf("%d dropped, want 10", lost())
	}
	boxes[0].event(event{kind: evEnded})
	got := boxes[0].take(nil)
	if len(got) != maxWaitingBytes>>21+1 {
		t.Fatalf("%d letters, want %d", len(got), maxWaitingBytes>>21+1)
	}
	if boxes[1].event(delta); lost() != 11 {
		t.Fatal("room for more while what was taken is still in hand")
	}
	boxes[0].do(func() {})
	if old := got[0]; len(boxes[0].take(got)) != 1 || old.ev.raw == nil || got[0].ev.raw != nil {
		t.Fatal("letters that are done with are kept")
	}
	if boxes[1].event(delta); lost() != 11 {
		t.Fatal("no room after letters were done with")
	}
	if rest := len(boxes[1].close()); rest != maxWaitingBytes>>21+1 {
		t.Fatalf("%d letters left", rest)
	}
	boxes[0].close()
	if waiting.Load() != 0 {
		t.Fatalf("%d bytes are counted in nobody's hand", waiting.Load())
	}
	if boxes[1].do(func() {}) {
		t.Fatal("a closed postbox takes letters")
	}
}
