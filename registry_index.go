package main

// registry_index.go owns registry.json, which lists the open sessions of one instance (FR-5.3): its writing, and the
// marking of what dead instances left. The index follows the records, so it may be older by a moment, and a newer index
// takes the place of one that is not written yet.
// registry.go holds the table of indexes; session_ledger.go sets an index whenever a session of it changes.
// Nobody waits for an index, and a living instance's is changed by nobody else.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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

// indexes writes the indexes of this process: one, but for tests. The syncer's goroutine owns the maps.
type indexes struct {
	disk    *syncer
	log     *slog.Logger
	seen    map[string]bool // by path: the file that was there at first was looked at
	failing map[string]bool // by path: it can't be written, and that was told
}

func newIndexes(disk *syncer, log *slog.Logger) *indexes {
	return &indexes{disk: disk, log: log, seen: map[string]bool{}, failing: map[string]bool{}}
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
	r.disk.later(path, func() { r.index.write(path, indexFile{Version: 1, PID: os.Getpid(), Host: r.host, Sessions: entries}) })
}

func (x *indexes) write(path string, index indexFile) {
	var err error
	if !x.seen[path] {
		err = x.clearPlace(path)
		x.seen[path] = err == nil
	}
	if err == nil {
		err = writeIndex(path, index)
	}
	if err == nil {
		x.disk.add(path)
	} else if !x.failing[path] {
		x.log.Warn("session file can't be written", "path", path, "error", err)
	}
	x.failing[path] = err != nil
}

// clearPlace sets a corrupt index aside before the first of ours replaces it,
// and removes what a crash left beside it.
func (x *indexes) clearPlace(path string) error {
	st, err := os.Stat(path)
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
		err = setAside(path, st, err, x.log)
	}
	if err != nil {
		return err
	}
	left, err := os.ReadDir(filepath.Dir(path))
	for _, e := range left {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			removeLeftover(filepath.Dir(path), e)
		}
	}
	return err
}

func writeIndex(path string, index indexFile) error {
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding index: %w", err)
	}
	return writeWhole(path, append(data, '\n'))
}

// markIndexes marks the open sessions in the indexes of instances that died
// (FR-3.2, FR-5.3). A living one's is left alone, and one that a new instance of
// its name replaces meanwhile.
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
			if s := &index.Sessions[i]; s.Status == statusBusy || s.Status == statusIdle {
				s.Status, changed = statusStale, true
			}
		}
		if now, err := os.Stat(path); !changed || err != nil || !os.SameFile(seen, now) || !seen.ModTime().Equal(now.ModTime()) {
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
