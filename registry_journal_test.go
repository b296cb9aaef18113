package main

// registry_journal_test.go holds the journal to its promise: the end of a turn that was
// noted is in the record whoever reads it next, and nothing else is.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestJournal(t *testing.T) {
	reg := newRegistry(t.TempDir(), "default", true, quietLog())
	defer reg.close(context.Background())
	rec := record{AgentID: "codex:abcdefg", Identity: "codex", Team: "default", turnNote: turnNote{Status: statusBusy, Turns: 2, LastTurnStatus: "running",
		Digest: recordDigest{LastPrompt: "second", LastAnswer: "one"}, LastActive: time.Now().UTC()}}
	wantNil(t, reg.save(rec))
	ended := rec
	ended.Status, ended.LastTurnStatus, ended.LastTurnID, ended.Digest.LastAnswer = statusIdle, "completed", "turn-2", "two"
	note := func() {
		t.Helper()
		wantNil(t, reg.noteTurn(ended.AgentID, &ended, nil))
	}
	read := func(status, answer string, turns int) {
		t.Helper()
		got, err := reg.load(rec.AgentID)
		wantNil(t, err)
		if got.Status != status || got.Digest.LastAnswer != answer || got.Turns != turns || got.Interrupted {
			t.Errorf("read %s, %q, %d turns, interrupted %v; want %s, %q, %d", got.Status, got.Digest.LastAnswer, got.Turns, got.Interrupted, status, answer, turns)
		}
	}
	read(statusBusy, "one", 2)
	note()
	read(statusIdle, "two", 2)

	// A line that a kill cut short doesn't count, nor does it spoil the next.
	f, err := os.OpenFile(reg.journals.path(rec.AgentID), os.O_APPEND|os.O_WRONLY, 0o600)
	wantNil(t, err)
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
	if st, err := os.Stat(reg.journals.path(rec.AgentID)); err != nil || st.Size() > maxJournal+2*maxDigestAnswer {
		t.Errorf("the journal: %v, %v", st, err)
	}
	read(statusIdle, ended.Digest.LastAnswer, ended.Turns)

	// A newer record wins: it says which notes it has in it.
	rec.Turns, rec.Status, rec.Noted = ended.Turns+1, statusBusy, ended.Noted
	wantNil(t, reg.save(rec))
	read(statusBusy, "one", rec.Turns)
	rec.Status = statusClosed
	wantNil(t, reg.save(rec))
	read(statusClosed, "one", rec.Turns)
}

// What a note holds is all that the start and the end of a turn change: the
// record that is read is the one the session had.
func TestANoteHoldsTheWholeTurn(t *testing.T) {
	reg := newRegistry(t.TempDir(), "default", true, quietLog())
	defer reg.close(context.Background())
	rec := fullRecord("codex:abcdefg", "codex")
	wantNil(t, reg.save(rec))
	root, now := "/other", time.Now().UTC()
	rec.Status, rec.Interrupted, rec.Turns, rec.LastActive, rec.LastTurnID, rec.LastTurnStatus = statusIdle, false, 9, now, "turn-9", "failed"
	rec.LastError, rec.SummaryDue, rec.RepoRoot, rec.RepoName, rec.Branch, rec.CWD = "why", false, &root, nil, nil, root
	rec.Context, rec.Digest = json.RawMessage(`{"branch":"x"}`), recordDigest{LastPrompt: "p", TouchedFiles: []string{"f"}}
	wantNil(t, reg.noteTurn(rec.AgentID, &rec, nil))
	got, err := reg.load(rec.AgentID)
	if err != nil || !reflect.DeepEqual(*got, rec) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, rec)
	}
}

// A journal that is written anew keeps what is kept of the turns: the newest
// results, and those that have not ended, each as its newest line has it.
func TestAJournalWrittenAnewKeepsTheTurns(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t.TempDir(), "default", true, quietLog())
	defer reg.close(context.Background())
	rec := fullRecord("codex:abcdefg", "codex")
	result := func(turn, more string) {
		t.Helper()
		wantNil(t, reg.noteTurn(rec.AgentID, nil, json.RawMessage(`{"turn_id":"`+turn+`"`+more+`}`)))
	}
	result("bg-open", "")
	result("bg-ended", "")
	long := strings.Repeat("x", maxJournalKept/10)
	for i := range 30 {
		result(fmt.Sprintf("t-%02d", i), `,"result":"`+long[:1000]+`"`)
	}
	result("bg-ended", `,"result":{}`)
	wantNil(t, reg.noteTurn(rec.AgentID, &rec, nil))
	ids := func() string {
		turns, err := reg.journals.turns(rec.AgentID)
		wantNil(t, err)
		note, err := reg.journals.note(rec.AgentID)
		if err != nil || note == nil || note.Number != rec.Noted {
			t.Fatalf("note %+v, want number %d, %v", note, rec.Noted, err)
		}
		var ids []string
		for _, turn := range turns {
			ids = append(ids, turn.turnID)
		}
		return strings.Join(ids, " ")
	}
	const newest = "t-11 t-12 t-13 t-14 t-15 t-16 t-17 t-18 t-19 t-20 t-21 t-22 t-23 t-24 t-25 t-26 t-27 t-28 t-29 bg-ended"
	if got := ids(); got != "bg-open "+newest {
		t.Errorf("read %s", got)
	}
	wantNil(t, reg.journals.renew(reg.journals.path(rec.AgentID)))
	if got := ids(); got != "bg-open "+newest {
		t.Errorf("written anew: %s", got)
	}
	for i := range 12 { // long answers: as many as there is room for
		result(fmt.Sprintf("long-%02d", i), `,"result":"`+long+`"`)
		wantNil(t, reg.noteTurn(rec.AgentID, &rec, nil))
	}
	if st, err := os.Stat(reg.journals.path(rec.AgentID)); err != nil || st.Size() > 3*maxJournalKept {
		t.Errorf("the journal: %v, %v", st, err)
	}
	if got := ids(); !strings.HasPrefix(got, "bg-open long-0") || !strings.HasSuffix(got, "long-10 long-11") {
		t.Errorf("with long answers: %s", got)
	}
}
