package main

// registry.go owns the sessions on disk: one record file each, which is written whole when one of its seldom changing
// fields changes, and beside it the journal of the session's turns (registry_journal.go); both together are the truth.
// It holds the leases and thread locks (registry_lease.go), and registry.json, the index of one instance's open
// sessions (FR-5.3), which follows the records and may be older by a moment: nobody waits for an index.
// session_ledger.go calls it at every transition and at the end, the hub for lists, and the commands that show
// sessions. Never fsyncs or scans a directory on the turn path, never keeps sessions in memory (a transition costs the
// same however many there are), and never overwrites a file that it can't read: such a file is set aside.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

var errRecordCorrupt = errors.New("the record is corrupt")

// registry is safe for use by many goroutines; it remembers no session, only the locks that it holds.
type registry struct {
	*leases
	journals *journals
	disk     *syncer // flush and close are also those of the registry
	records  string  // <root>/<team>/.records
	persist  bool    // records, journals and indexes are written
	log      *slog.Logger

	// By path, and owned by the goroutine of disk: the index that was there at first was looked at; the index can't be
	// written, and that was told.
	indexSeen, indexFailing map[string]bool

	// unwritten is why the newest write of a record, or of a line of a journal, failed: nil in it where that succeeded.
	unwritten atomic.Pointer[error]
}

// newRegistry touches no disk. The root is …/agent-sessions, the team a valid
// path element. Without persist nothing is written but locks.
func newRegistry(root, team string, persist bool, log *slog.Logger) *registry {
	records, disk := filepath.Join(root, team, ".records"), newSyncer(log)
	return &registry{
		leases:   newLeases(root, team, persist),
		journals: newJournals(records, disk),
		disk:     disk,
		records:  records,
		persist:  persist,
		log:      log,

		indexSeen:    map[string]bool{},
		indexFailing: map[string]bool{},
	}
}

// flush returns when all that was saved and set before it is on the platter.
func (r *registry) flush(ctx context.Context) error { return r.disk.flush(ctx) }

// close writes and syncs what waits and ends the background goroutine; leases stay with their owners. It may be called
// more than once.
func (r *registry) close(ctx context.Context) error { return r.disk.close(ctx) }

// newAgentID is one that no record of the team has.
func (r *registry) newAgentID() string {
	for {
		id := randomAgentID()
		if _, err := os.Lstat(r.recordPath(id)); err != nil {
			return id
		}
	}
}

// save returns when the record is in its file: after it a kill -9 loses nothing. For what changes seldom (a new
// session's thread, settings, the title) and before the session's lease is released: whoever gets that must find the
// last state. The caller holds the lease, and warns once if this keeps failing.
func (r *registry) save(rec record) error {
	if !r.persist {
		return nil
	}
	err := r.writeRecord(rec)
	r.unwritten.Store(&err)
	if err != nil {
		return fmt.Errorf("saving record of %q: %w", rec.AgentID, err)
	}
	return nil
}

func (r *registry) writeRecord(rec record) error {
	if !validAgentID(rec.AgentID) { // an id is never a path
		return fmt.Errorf("%q is no agent_id", rec.AgentID)
	}
	data, err := encodeRecord(rec)
	if err != nil {
		return err
	}
	path := r.recordPath(rec.AgentID)
	if err := writeWhole(path, data); err != nil {
		return err
	}
	r.disk.add(path)
	// list goes by the files' times, so that it needn't read them all.
	if age := time.Since(rec.LastActive); !rec.LastActive.IsZero() && (age > time.Second || age < -time.Second) {
		os.Chtimes(path, time.Time{}, rec.LastActive) // an inexact order is no failure
	}
	return nil
}

// noteTurn returns when the start or the end of a turn is where a kill -9 leaves it: what it changes in the record, and
// its kept result where it has one by now. The caller holds the session's lease. Either may be missing.
func (r *registry) noteTurn(agentID string, rec *record, result json.RawMessage) error {
	if !r.persist {
		return nil
	}
	line := journalLine{Turn: result}
	if rec != nil {
		rec.Noted++
		bounded := boundedRecord(*rec)
		line.Number, line.Note = rec.Noted, &bounded.turnNote
	}
	err := r.journals.append(agentID, line)
	r.unwritten.Store(&err)
	return err
}

// load reads one record. An agent that never was is fs.ErrNotExist, a record that had to be set aside errRecordCorrupt.
func (r *registry) load(agentID string) (*record, error) {
	if !validAgentID(agentID) {
		return nil, fmt.Errorf("reading record: %q is no agent_id", agentID)
	}
	data, err := r.readRecord(agentID)
	if err != nil {
		return nil, fmt.Errorf("reading record of %s: %w", agentID, err)
	}
	return data, nil
}

// list returns the team's newest records, newest first; all of them for limit 0.
// A record that can't be read is told on stderr and left out.
func (r *registry) list(limit int) ([]record, error) {
	newest := map[string]time.Time{} // by agent_id: when the record or its journal was changed
	files, err := r.files()
	if err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	for _, e := range files {
		id := agentOfFile(strings.TrimSuffix(e.Name(), "l"))
		if st, err := e.Info(); id != "" && err == nil && st.ModTime().After(newest[id]) {
			newest[id] = st.ModTime()
		}
	}
	ids := slices.SortedFunc(maps.Keys(newest), func(a, b string) int { return newest[b].Compare(newest[a]) })
	var recs []record
	for _, id := range ids {
		if limit > 0 && len(recs) == limit {
			break
		}
		rec, err := r.readRecord(id)
		if err == nil {
			recs = append(recs, *rec)
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errRecordCorrupt) { // that was told already
			r.log.Warn("record can't be read", "agent", id, "error", err)
		}
	}
	sortNewestFirst(recs)
	return recs, nil
}

// markStale finds the sessions whose process is gone without having closed them (FR-3.2), and removes temporary files
// that a crash left. It reads every record, so it is called beside the start, not in it; sessions of this process and
// of other live ones are left alone. It returns how many it marked.
func (r *registry) markStale() int {
	if !r.persist {
		return 0
	}
	removeOlder(r.records, tempPrefix, tempLifetime)
	files, err := r.files()
	if err != nil {
		r.log.Warn("sessions of ended processes can't be marked stale", "error", err)
	}
	n := 0
	for _, e := range files {
		id := agentOfFile(e.Name())
		if r.disk.closing() {
			break
		}
		if id == "" || !r.maybeOpen(id) {
			continue
		}
		rec, err := r.readRecord(id)
		if err != nil || !isOpen(rec.Status) {
			continue
		}
		marked, err := r.markIfGone(rec)
		if err != nil {
			r.log.Warn("session can't be marked stale", "agent", id, "error", err)
		} else if marked {
			n++
		}
	}
	return n
}

// maybeOpen looks at the status only, a fraction of the work for the thousands
// that are closed. What can't be understood is readRecord's to judge.
func (r *registry) maybeOpen(agentID string) bool {
	data, err := readRegular(r.recordPath(agentID), maxRecordBytes)
	if err != nil {
		return true
	}
	var rec struct{ Status string }
	err = json.Unmarshal(data, &rec)
	return err != nil || isOpen(rec.Status) || rec.Status == ""
}

// isOpen reports the status of a session that some process has open, if that lives.
func isOpen(status string) bool { return status == statusBusy || status == statusIdle }

// markIfGone rewrites the record while it holds the session's locks, and reads
// it again under them: it may have been revived or closed a moment ago.
func (r *registry) markIfGone(seen *record) (bool, error) {
	release, gone := r.holdIfGone(seen.AgentID, seen.Identity, seen.BackendID)
	if !gone {
		return false, nil
	}
	defer release()
	rec, err := r.readRecord(seen.AgentID)
	if err != nil {
		return false, err
	}
	if !isOpen(rec.Status) || rec.Identity != seen.Identity || rec.BackendID != seen.BackendID {
		return false, nil
	}
	if rec.Status == statusBusy {
		rec.Interrupted, rec.LastTurnStatus = true, "interrupted"
	}
	rec.Status, rec.PID, rec.Host = statusStale, 0, ""
	err = r.save(*rec)
	return err == nil, err
}

// errAlive refuses to remove a session that some process has, or may have.
var errAlive = errors.New("a running process holds it")

// remove deletes the record of a session that nobody holds, its summary and its kept answers. keepDir spares the
// latter, for a record that shares its directory. It holds the session's locks meanwhile and looks again under them.
// Nothing else in that directory is touched, nor anything outside of it, whatever the record says.
func (r *registry) remove(seen record, keepDir bool) error {
	release, gone := r.holdIfGone(seen.AgentID, seen.Identity, seen.BackendID)
	if !gone {
		return errAlive
	}
	defer release()
	rec, err := r.readRecord(seen.AgentID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another did the same
	}
	if err != nil {
		return fmt.Errorf("removing session %s: %w", seen.AgentID, err)
	}
	if rec.Status != seen.Status || rec.Identity != seen.Identity || rec.BackendID != seen.BackendID ||
		!rec.LastActive.Equal(seen.LastActive) {
		return errAlive // it was used since; these needn't be its locks any more
	}
	if !keepDir {
		if err := r.removeSummary(rec.SummaryDir); err != nil {
			return fmt.Errorf("removing the summary of %s: %w", seen.AgentID, err)
		}
	}
	if err := r.journals.remove(rec.AgentID); err != nil {
		return fmt.Errorf("removing the journal of %s: %w", seen.AgentID, err)
	}
	// Last: what is left of an attempt that failed can still be found and removed.
	if err := os.Remove(r.recordPath(seen.AgentID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing record of %s: %w", seen.AgentID, err)
	}
	return nil
}

// dropThreadLocks removes the locks of threads whose sessions were removed, and those that nobody ever had a session
// for; of this team's, and none that is held. Who has such a file open meanwhile finds, once it has the lock, that the
// name is another file's (openLocked).
func (r *registry) dropThreadLocks() (dropped int, err error) {
	dir := filepath.Join(r.root, ".threads")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("removing thread locks: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".lock")
		if !ok || !validThreadID(id) || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, by, err := r.openLocked(path, false) // shared, as holdIfGone does: no session is taken to have it
		if err != nil || by != nil {
			continue // in use, or not ours to judge
		}
		if c := readLockContent(f); !validAgentID(c.AgentID) || c.Team == r.team && r.noRecord(c.AgentID) {
			if os.Remove(path) == nil {
				dropped++
			}
		}
		dropFlock(f)
	}
	return dropped, nil
}

// noRecord tells that there is none, readable or not.
func (r *registry) noRecord(agentID string) bool {
	_, err := os.Lstat(r.recordPath(agentID))
	return errors.Is(err, fs.ErrNotExist)
}

// removeSummary empties a session's directory of what we put there.
func (r *registry) removeSummary(dir string) error {
	// <team>/<identity>/<thread>; a person can edit a record, and so can a sync tool.
	parts := strings.Split(filepath.ToSlash(dir), "/")
	if len(parts) != 3 || parts[0] != r.team || !filepath.IsLocal(dir) ||
		filepath.Clean(dir) != filepath.FromSlash(dir) {
		return nil
	}
	root, err := os.OpenRoot(r.root)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(filepath.Join(dir, "summary.md")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.RemoveAll(filepath.Join(dir, "answers")); err != nil {
		return err
	}
	root.Remove(dir) // not if somebody has put more there
	return nil
}

// told is how a session stands now, in which process: one that is open by its
// record and nobody's by its lease is stale, since its process died.
func (r *registry) told(rec *record) (status string, interrupted bool, pid int) {
	if rec.Status == statusClosed {
		return rec.Status, rec.Interrupted, 0 // the commonest; saves a look at its lock
	}
	by, pid, held := r.holder(rec.Identity)
	switch {
	case held && (by == rec.AgentID || by == ""): // without an agent yet: it may be about to be this one's
		return rec.Status, rec.Interrupted, pid
	case isOpen(rec.Status):
		return statusStale, rec.Status == statusBusy, 0
	}
	return rec.Status, rec.Interrupted, 0
}

// readRecord reads and checks a record; a corrupt one is set aside. A file that
// another process replaced while we looked is read again.
func (r *registry) readRecord(agentID string) (*record, error) {
	path := r.recordPath(agentID)
	for {
		data, st, err := readWithInfo(path, maxRecordBytes)
		if err != nil && !errors.Is(err, errTooLarge) {
			return nil, err
		}
		var rec *record
		if err == nil {
			rec, err = decodeRecord(data, agentID)
		}
		if err == nil {
			r.addNote(rec)
			return rec, nil
		}
		if !r.persist {
			r.log.Warn("corrupt record ignored", "path", path, "error", err)
		} else if errors.Is(setAside(path, st, err, r.log), errReplaced) {
			continue
		}
		return nil, fmt.Errorf("%w: %w", errRecordCorrupt, err)
	}
}

// addNote brings a record that was read up to what its journal says. The record of a session that has ended has it all.
func (r *registry) addNote(rec *record) {
	if !isOpen(rec.Status) {
		return
	}
	line, err := r.journals.note(rec.AgentID)
	if err != nil {
		r.log.Warn("the journal of a session can't be read", "agent", rec.AgentID, "error", err)
	}
	if line != nil && line.Number > rec.Noted {
		rec.Noted = line.Number
		rec.turnNote = *line.Note
	}
}

// files are those of the records directory; no directory is no error.
func (r *registry) files() ([]fs.DirEntry, error) {
	d, err := openDir(r.records)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

func (r *registry) recordPath(agentID string) string {
	return filepath.Join(r.records, suffixOf(agentID)+".json")
}

// agentOfFile is empty for what is no record: temporary files, those set aside.
func agentOfFile(name string) string {
	suffix, ok := strings.CutSuffix(name, ".json")
	if id := agentIDPrefix + suffix; ok && validAgentID(id) {
		return id
	}
	return ""
}

const maxIndexBytes = 4 << 20 // far above what the open sessions of one instance take

// indexEntry has the fields of FR-5.2.
type indexEntry struct {
	AgentID    string    `json:"agent_id"`
	Backend    string    `json:"backend"`
	BackendID  string    `json:"backend_id"`
	Identity   string    `json:"identity"`
	Team       string    `json:"team"`
	RepoRoot   *string   `json:"repo_root"`
	RepoName   *string   `json:"repo_name"`
	Branch     *string   `json:"branch"`
	CWD        string    `json:"cwd"`
	StartedAt  time.Time `json:"started_at"`
	LastActive time.Time `json:"last_active"`
	Status     string    `json:"status"`
	Tag        string    `json:"tag,omitempty"`
}

// indexFile is registry.json.
type indexFile struct {
	Version  int          `json:"version"`
	PID      int          `json:"pid,omitempty"` // of the instance; one that died is marked by the next start
	Host     string       `json:"host,omitempty"`
	Sessions []indexEntry `json:"sessions"`
}

// setIndex replaces the instance's index by these open sessions, in a moment and
// off the caller's path. Calls for one identity come one after another.
func (r *registry) setIndex(identity string, recs []record) {
	if !r.persist {
		return
	}
	path, err := r.identityPath(identity)
	if err != nil {
		r.log.Warn("index can't be written", "error", err)
		return
	}
	path = filepath.Join(strings.TrimSuffix(path, ".lock"), "registry.json")
	entries := make([]indexEntry, len(recs)) // not nil: [] in the file
	for i, r := range recs {
		entries[i] = indexEntry{r.AgentID, r.Backend, r.BackendID, r.Identity, r.Team, r.RepoRoot, r.RepoName, r.Branch,
			r.CWD, r.StartedAt, r.LastActive, r.Status, r.Tag}
	}
	r.disk.later(path, func() {
		r.replaceIndex(path, indexFile{Version: 1, PID: os.Getpid(), Host: r.host, Sessions: entries})
	})
}

func (r *registry) replaceIndex(path string, index indexFile) {
	var err error
	if !r.indexSeen[path] {
		err = r.clearPlace(path)
		r.indexSeen[path] = err == nil
	}
	if err == nil {
		err = writeIndex(path, index)
	}
	if err == nil {
		r.disk.add(path)
	} else if !r.indexFailing[path] {
		r.log.Warn("session file can't be written", "path", path, "error", err)
	}
	r.indexFailing[path] = err != nil
}

// clearPlace sets a corrupt index aside before the first of ours replaces it, and removes what a crash left beside it.
func (r *registry) clearPlace(path string) error {
	st, err := pinned(os.Stat(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := readRegular(path, maxIndexBytes)
	if err == nil {
		err = json.Unmarshal(data, &indexFile{})
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		err = setAside(path, st, err, r.log)
	}
	if err != nil {
		return err
	}
	removeOlder(filepath.Dir(path), tempPrefix, tempLifetime)
	return nil
}

func writeIndex(path string, index indexFile) error {
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding index: %w", err)
	}
	return writeWhole(path, append(data, '\n'))
}

// markIndexes marks the open sessions in the indexes of instances that died (FR-3.2, FR-5.3). A living one's is left
// alone, and one that a new instance of its name replaces meanwhile.
func (r *registry) markIndexes() {
	if !r.persist {
		return
	}
	dirs, _ := os.ReadDir(filepath.Join(r.root, r.team)) // none: nobody has one
	for _, d := range dirs {
		path := filepath.Join(r.root, r.team, d.Name(), "registry.json")
		var index indexFile
		data, seen, err := readWithInfo(path, maxIndexBytes)
		if err != nil || json.Unmarshal(data, &index) != nil || !r.indexDied(index) {
			continue // a corrupt one is set aside by the next instance of that name
		}
		changed := false
		for i := range index.Sessions {
			if s := &index.Sessions[i]; isOpen(s.Status) {
				s.Status, changed = statusStale, true
			}
		}
		if now, err := os.Stat(path); !changed || err != nil || !os.SameFile(seen, now) ||
			!seen.ModTime().Equal(now.ModTime()) {
			continue
		}
		if err := writeIndex(path, index); err != nil {
			r.log.Warn("the index of a dead process can't be marked stale", "path", path, "error", err)
		}
	}
}

// indexDied tells that the instance of an index is dead: its process is gone, or,
// where the number may be another's by now, nobody has any of its sessions.
func (r *registry) indexDied(index indexFile) bool {
	if index.PID != 0 && index.Host != "" && index.Host == r.host && !pidAlive(index.PID) {
		return true
	}
	for _, s := range index.Sessions {
		if by, _, held := r.holder(s.Identity); held && (by == s.AgentID || by == "") {
			return false
		}
	}
	return true
}
