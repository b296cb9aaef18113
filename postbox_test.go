package main

// postbox_test.go holds the bound on events that wait for sessions to invariant 3:
// all postboxes share it, so that one session that is behind can't use up memory
// by another's name.

import (
	"sync/atomic"
	"testing"
)

// Ten flooding agents share one bound: what may be dropped is, and counted;
// what may not is kept, and what was taken makes room.
func TestPostboxesShareOneBound(t *testing.T) {
	var waiting atomic.Int64
	boxes := [2]*postbox{newPostbox(&waiting), newPostbox(&waiting)}
	for i := range maxWaitingEvents + 10 {
		boxes[i%2].event(event{kind: evDelta})
	}
	if lost := boxes[0].lost() + boxes[1].lost(); lost != 10 {
		t.Fatalf("%d dropped, want 10", lost)
	}
	boxes[0].event(event{kind: evEnded})
	if got := len(boxes[0].take(nil)); got != maxWaitingEvents/2+1 {
		t.Fatalf("%d letters, want %d", got, maxWaitingEvents/2+1)
	}
	boxes[1].event(event{kind: evDelta})
	if boxes[1].lost()+boxes[0].lost() != 10 {
		t.Fatal("no room after letters were taken")
	}
	rest := len(boxes[1].close())
	if rest != maxWaitingEvents/2+1 || waiting.Load() != 0 {
		t.Fatalf("%d letters left, %d counted", rest, waiting.Load())
	}
	if boxes[1].post(func() {}) {
		t.Fatal("a closed postbox takes letters")
	}
}
