package main

// turnrun_test.go holds what is gathered of a running turn to invariant 3: it
// stays bounded however long the turn runs and whatever the child sends.

import (
	"fmt"
	"testing"
	"time"
)

// A shell may stay open for as long as its turn runs. What was kept of every
// item behind it grew until the turn ended.
func TestTurnRunIsBounded(t *testing.T) {
	now := time.Now()
	run := newTurnRun("T", now)
	item := func(phase, id, command string) {
		run.take(&event{kind: evItem, thread: "T", phase: phase, item: id, body: &itemBody{kind: "commandExecution", command: command}}, now)
	}
	item("started", "server", "npm start")
	for i := range 10_000 {
		id := fmt.Sprint(i)
		item("started", id, "ls")
		item("completed", id, "ls")
	}
	if n := len(run.openedAt); n > 100 {
		t.Errorf("%d items are kept of a turn with one open", n)
	}
	item("started", "last", "go test")
	if got := run.activity(); got != "running `go test`" {
		t.Errorf("activity %q, want the newest", got)
	}
	if got := run.silent(); got != "running `npm start`, running `go test`" {
		t.Errorf("silent %q, want both, oldest first", got)
	}
}
