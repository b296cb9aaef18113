package main

// registry_journal_test.go holds the journal to its promise: the end of a turn that was
// noted is in the record whoever reads it next, and nothing else is.

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func TestJournal(t *testing.T) {
	reg := newRegistry(t.TempDir(), "default", true, quietLog())
	defer reg.close(context.Background())
	rec := record{AgentID: "codex:abcdefg", Identity: "codex", Team: "default", Status: statusBusy, Turns: 2, LastTurnStatus: "running",
		Digest: recordDigest{LastPrompt: "second", LastAnswer: "one"}, LastActive: time.Now().UTC()}
	if err := reg.save(rec); err != nil {
		t.Fatal(err)
	}
	ended := rec
	ended.Status, ended.LastTurnStatus, ended.LastTurnID, ended.Digest.LastAnswer = statusIdle, "completed", "turn-2", "two"
	note := func() {
		t.Helper()
		if err := reg.noteTurn(&ended); err != nil {
			t.Fatal(err)
		}
	}
	read := func(status, answer string, turns int) {
		t.Helper()
		got, err := reg.load(rec.AgentID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != status || got.Digest.LastAnswer != answer || got.Turns != turns || got.Interrupted {
			t.Errorf("read %s, %q, %d turns, interrupted %v; want %s, %q, %d", got.Status, got.Digest.LastAnswer, got.Turns, got.Interrupted, status, answer, turns)
		}
	}
	read(statusBusy, "one", 2)
	note()
	read(statusIdle, "two", 2)

	// A line that a kill cut short doesn't count, nor does it spoil the next.
	f, err := os.OpenFile(reg.journalPath(rec.AgentID), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"turns":3,"last_turn_st`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	read(statusIdle, "two", 2)
	ended.Turns, ended.Digest.LastAnswer = 3, "three" // the record of its start was not written yet
	note()
	read(statusIdle, "three", 3)

	// It stays small.
	ended.Digest.LastAnswer = strings.Repeat("x", maxDigestAnswer)
	for range 3 * maxJournal / maxDigestAnswer {
		ended.Turns++
		note()
	}
	if st, err := os.Stat(reg.journalPath(rec.AgentID)); err != nil || st.Size() > maxJournal+2*maxDigestAnswer {
		t.Errorf("the journal: %v, %v", st, err)
	}
	read(statusIdle, ended.Digest.LastAnswer, ended.Turns)

	// A newer record wins, and that of a session that ended needs none.
	rec.Turns, rec.Status = ended.Turns+1, statusBusy
	if err := reg.save(rec); err != nil {
		t.Fatal(err)
	}
	read(statusBusy, "one", rec.Turns)
	rec.Status = statusClosed
	if err := reg.save(rec); err != nil {
		t.Fatal(err)
	}
	read(statusClosed, "one", rec.Turns)
	if _, err := os.Stat(reg.journalPath(rec.AgentID)); !os.IsNotExist(err) {
		t.Errorf("the journal outlived the session: %v", err)
	}
}
