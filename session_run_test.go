package main

// session_run_test.go holds a turn to what the child is told as it begins, and what
// is gathered of it to invariant 3: that stays bounded however long the turn runs
// and whatever the child sends.

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
		run.note(&event{kind: evItem, thread: "T", phase: phase, item: id, body: &itemBody{kind: "commandExecution", command: command}}, now)
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

// Blocks of ours stand in front of what the user says, as text; an action has no
// room for them, so they wait for the next prompt.
func TestTurnCommand(t *testing.T) {
	old, now := contextFacts{Identity: "ann", Team: "t", Cwd: "/a"}, contextFacts{Identity: "ann", Team: "t", Cwd: "/b"}
	change, changed := contextChange(old, now)
	if !changed {
		t.Fatal("nothing changed")
	}
	image := []promptPart{{kind: "image", url: "data:x"}, {kind: "text", text: "this?"}}
	for _, c := range []struct {
		rule   string
		told   contextFacts
		resume string
		offer  string
		req    turnRequest
		want   string
		stays  bool
	}{
		{"nothing to say", now, "", "", turnRequest{prompt: "p"}, "p", false},
		{"all of it", old, "RESUME", "MAIL", turnRequest{prompt: "p"}, "RESUME\n\n" + change + "\n\nMAIL\n\np", false},
		{"mail alone", now, "", "MAIL", turnRequest{prompt: "p"}, "MAIL\n\np", false},
		{"parts alone", now, "", "", turnRequest{prompt: "this?", parts: image}, "", false},
		{"in front of parts", old, "", "MAIL", turnRequest{prompt: "this?", parts: image}, change + "\n\nMAIL", false},
		{"a review", old, "RESUME", "", turnRequest{prompt: "p", action: actReview}, "p", true},
		{"a compaction", old, "RESUME", "", turnRequest{action: actCompact}, "", true},
	} {
		s := &session{h: &hub{cfg: &config{}}, place: &opening{}}
		r := &turnRunner{s: s, told: c.told, past: c.resume}
		got := r.command(&turn{req: c.req, mailText: c.offer}, now)
		if got.prompt != c.want || got.action != c.req.action || len(got.parts) != len(c.req.parts) {
			t.Errorf("%s: %+v, want %q", c.rule, got, c.want)
		}
		if stays := r.told == c.told && r.past == c.resume && c.told != now; stays != c.stays {
			t.Errorf("%s: the blocks stay: %v", c.rule, stays)
		}
	}
}

// A run that keeps so much of an answer keeps no more, and says so.
func TestTurnRunKeeps(t *testing.T) {
	run := newTurnRun("T", time.Now())
	run.most = 5
	run.note(&event{kind: evItem, thread: "T", phase: "completed", body: &itemBody{kind: "agentMessage", text: "1234ä678"}}, time.Now())
	if want := "1234\n\n[answer cut: 4 of 9 bytes shown]"; run.answer != want || !run.answered {
		t.Errorf("kept %q, want %q", run.answer, want)
	}
}
