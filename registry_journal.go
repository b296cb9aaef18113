package main

// registry_journal.go owns what the turns of a session leave on disk: one journal a session, <suffix>.jsonl beside its
// record, to which a turn appends one short line as it starts and one as it ends, before it is answered. A line holds
// what the turn changes in the record (a note, numbered), the kept result of the turn, or both; the record itself is
// written only when one of the fields that seldom change does. So a session on disk is its record, changed by the
// journal's newest note if that note is newer than the record. A line is lost only where a kill cut it short, and then
// nobody was answered.
//
// Only the process that holds the session's lease appends (and, in the moment after it let go of the lease, the results
// of the turns that ended with the session). Readers of other processes look at any time: a line is there whole or is
// passed over. A journal that has grown too long is written anew as a turn starts, since nobody waits for that line: it
// keeps the newest note, the turns that have not ended and the newest results. Called by registry.go for records and by
// session_kept.go for results. It must never fsync or rename on the way to an answer.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	maxKeptTurns    = 20        // results that a session's journal keeps
	maxKeptOpen     = 64        // turns without an end that it keeps: more than may wait in a session
	maxJournal      = 512 << 10 // bytes from which on a journal is written anew
	maxJournalKept  = 8 << 20   // bytes of the results that it keeps; the newest is kept whatever its size
	maxJournalBytes = 128 << 20 // bytes of a journal that is read; a longer one is an error
)

// journals is safe for use by many goroutines; one session's lines come one after the other.
type journals struct {
	dir  string // where the records are
	disk *syncer

	mu   sync.Mutex       // guards the field below
	room map[string]int64 // by path: the bytes from which on the journal is written anew, where above maxJournal
}

// journalLine is one line of the file.
type journalLine struct {
	Number int             `json:"n,omitempty"` // of the note: one more than that of the note before
	Note   *turnNote       `json:"record,omitempty"`
	Turn   json.RawMessage `json:"turn,omitempty"` // as session_kept.go has written it
}

// keptLine is what a journal knows of one turn: its newest line.
type keptLine struct {
	turnID string
	ended  bool            // the turn has a result
	turn   json.RawMessage // as session_kept.go has written it
}

func newJournals(dir string, disk *syncer) *journals {
	return &journals{dir: dir, disk: disk, room: map[string]int64{}}
}

func (j *journals) path(agentID string) string {
	return filepath.Join(j.dir, suffixOf(agentID)+".jsonl")
}

// append adds a line. Once append has returned, a kill -9 of this process does not take the line away.
func (j *journals) append(agentID string, line journalLine) error {
	if !validAgentID(agentID) { // they would all share one journal
		return fmt.Errorf("appending to the journal: %q is no agent_id", agentID)
	}
	// the first line break ends what a kill may have left of a line before this one
	data, err := appendJournalLine([]byte{'\n'}, line)
	if err != nil {
		return fmt.Errorf("encoding a line of the journal of %s: %w", agentID, err)
	}
	path := j.path(agentID)
	if err := j.write(path, data, line.Turn == nil); err != nil {
		return fmt.Errorf("appending to the journal of %s: %w", agentID, err)
	}
	j.disk.add(path)
	return nil
}

func (j *journals) write(path string, line []byte, mayRenew bool) error {
	f, err := openMaking(path, os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	long := false
	if err == nil && mayRenew {
		st, err := f.Stat()
		long = err == nil && st.Size() > j.limit(path)
	}
	if err = cmp.Or(err, f.Close()); err == nil && long {
		err = j.renew(path)
	}
	return err
}

// appendJournalLine adds a line with its line break to b. A turn is copied as it is: an
// answer may be a megabyte, and encoding/json would read all of it once more.
func appendJournalLine(b []byte, line journalLine) ([]byte, error) {
	turn := line.Turn
	line.Turn = nil
	rest, err := json.Marshal(line)
	if err != nil || turn == nil {
		return append(append(b, rest...), '\n'), err
	}
	b = append(append(b, `{"turn":`...), turn...)
	if rest = rest[1:]; len(rest) > 1 { // more than the closing brace
		b = append(b, ',')
	}
	return append(append(b, rest...), '\n'), nil
}

func (j *journals) limit(path string) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return max(maxJournal, j.room[path])
}

// renew writes a journal anew without what nobody asks for any more. Where much is left, the journal may grow to twice
// that before it is written anew once more: so the work stays in proportion to what is appended.
func (j *journals) renew(path string) error {
	data, err := readRegular(path, maxJournalBytes)
	if err != nil {
		return err
	}
	var kept []byte
	for _, t := range keptLines(data) {
		if kept, err = appendJournalLine(kept, journalLine{Turn: t.turn}); err != nil {
			return err
		}
	}
	if note := newestNote(data); note != nil {
		if kept, err = appendJournalLine(kept, *note); err != nil {
			return err
		}
	}
	if err := writeWhole(path, kept); err != nil {
		return err
	}
	j.mu.Lock()
	if room := int64(2 * len(kept)); room > maxJournal {
		j.room[path] = room
	} else {
		delete(j.room, path)
	}
	j.mu.Unlock()
	return nil
}

// note is the newest note of a session, nil if there is none.
func (j *journals) note(agentID string) (*journalLine, error) {
	data, err := j.read(agentID)
	return newestNote(data), err
}

// turns are a session's turns as far as they are kept, in the order of their newest lines.
func (j *journals) turns(agentID string) ([]keptLine, error) {
	data, err := j.read(agentID)
	return keptLines(data), err
}

// read is the journal's text, empty where there is none.
func (j *journals) read(agentID string) ([]byte, error) {
	data, err := readRegular(j.path(agentID), maxJournalBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// stamp changes whenever the journal does.
func (j *journals) stamp(agentID string) journalStamp {
	st, err := os.Stat(j.path(agentID))
	if err != nil {
		return journalStamp{}
	}
	return journalStamp{st.Size(), st.ModTime()}
}

type journalStamp struct {
	size    int64
	changed time.Time
}

func (j *journals) remove(agentID string) error {
	if err := os.Remove(j.path(agentID)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// newestNote passes over lines that can't be read, since a kill cut them short.
func newestNote(data []byte) *journalLine {
	for end := len(data); end > 0; {
		begin := bytes.LastIndexByte(data[:end], '\n') + 1
		var line journalLine
		if json.Unmarshal(data[begin:end], &line) == nil && line.Note != nil {
			line.Turn = nil
			return &line
		}
		end = max(0, begin-1)
	}
	return nil
}

// keptLines has of each turn the newest line, and of all turns those that are kept.
func keptLines(data []byte) []keptLine {
	var all, kept []keptLine
	for text := range bytes.SplitSeq(data, []byte{'\n'}) {
		if !validJSON(text) { // a kill cut it short
			continue
		}
		turn := rawField(text, "turn")
		if id := stringField(turn, "turn_id"); id != "" {
			all = append(all, keptLine{id, rawField(turn, "result") != nil, turn})
		}
	}
	seen := map[string]bool{}
	ended, open, size := 0, 0, 0
	for _, t := range slices.Backward(all) {
		if seen[t.turnID] {
			continue
		}
		seen[t.turnID] = true
		if t.ended {
			ended, size = ended+1, size+len(t.turn)
			if ended > maxKeptTurns || ended > 1 && size > maxJournalKept {
				continue
			}
		} else if open++; open > maxKeptOpen {
			continue
		}
		kept = append(kept, t)
	}
	slices.Reverse(kept)
	return kept
}
