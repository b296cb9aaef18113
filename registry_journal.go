package main

// registry_journal.go owns the line that a session's record may lack: how its last turn
// ended, appended beside the record before the turn is answered, since replacing
// the record itself takes longer than a reply may. Whoever reads a record gets
// both in one; once the session has ended, the record has it all and the journal
// is gone. registry.go is its only caller but for session_ledger.go, which appends. It
// must never rename or fsync on the way to an answer but to keep a file small.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// maxJournal bytes are in a journal before it is begun anew: the last line
// says all.
const maxJournal = 256 << 10

// turnNote is what the end of a turn changes in a record.
type turnNote struct {
	Status         string          `json:"status"`
	Interrupted    bool            `json:"interrupted,omitempty"`
	Turns          int             `json:"turns"`
	LastActive     time.Time       `json:"last_active"`
	LastTurnID     string          `json:"last_turn_id,omitempty"`
	LastTurnStatus string          `json:"last_turn_status"`
	LastError      string          `json:"last_error,omitempty"`
	Digest         json.RawMessage `json:"digest"`
}

// noteTurn puts the end of a turn where a kill -9 leaves it. The caller holds
// the session's lease and saves the record soon.
func (r *registry) noteTurn(rec *record) error {
	path := r.journalPath(rec.AgentID)
	if !r.persist || path == "" {
		return nil
	}
	bounded := boundedRecord(*rec)
	digest, err := withUnknown(plainDigest(bounded.Digest), bounded.Digest.unknown)
	if err != nil {
		return fmt.Errorf("encoding the end of a turn of %s: %w", rec.AgentID, err)
	}
	line, err := json.Marshal(turnNote{rec.Status, rec.Interrupted, rec.Turns, rec.LastActive, rec.LastTurnID, rec.LastTurnStatus, bounded.LastError, digest})
	if err != nil {
		return fmt.Errorf("encoding the end of a turn of %s: %w", rec.AgentID, err)
	}
	f, err := openOwn(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("noting the end of a turn: %w", err)
	}
	st, err := f.Stat()
	begin := err == nil && st.Size() > maxJournal
	if err == nil && !begin {
		// A line of its own, whatever a crash left in the middle of the last.
		_, err = f.Write(append(append([]byte{'\n'}, line...), '\n'))
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if begin {
		err = writeWhole(path, append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("noting the end of a turn: %w", err)
	}
	return nil
}

// addNote brings a record that was read up to what its journal says. Only that
// of a session which was open when its process ended can be behind.
func (r *registry) addNote(rec *record) {
	if rec.Status != statusBusy && rec.Status != statusIdle {
		return
	}
	n := r.lastNote(rec.AgentID)
	var digest recordDigest
	if n == nil || n.Turns < rec.Turns || n.Turns == rec.Turns && rec.LastTurnStatus != "running" || json.Unmarshal(n.Digest, &digest) != nil {
		return
	}
	rec.Turns, rec.LastActive, rec.LastTurnID, rec.LastTurnStatus, rec.LastError = n.Turns, n.LastActive, n.LastTurnID, n.LastTurnStatus, n.LastError
	rec.Digest, rec.Status, rec.Interrupted = digest, n.Status, n.Interrupted
}

// lastNote is the last whole line of a journal, nil if there is none. A line
// that a crash cut short was never followed by an answer.
func (r *registry) lastNote(agentID string) *turnNote {
	f, err := openRegular(r.journalPath(agentID))
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecordBytes))
	if err != nil {
		return nil
	}
	lines := bytes.Split(data, []byte{'\n'})
	for i := len(lines) - 1; i >= 0; i-- {
		var n turnNote
		if len(lines[i]) > 0 && json.Unmarshal(lines[i], &n) == nil {
			return &n
		}
	}
	return nil
}

// dropJournal removes a journal whose record has it all.
func (r *registry) dropJournal(agentID string) {
	if err := os.Remove(r.journalPath(agentID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Debug("a journal can't be removed", "agent", agentID, "error", err)
	}
}

func (r *registry) journalPath(agentID string) string {
	if !validAgentID(agentID) {
		return ""
	}
	return r.recordPath(agentID) + "l" // .jsonl
}
