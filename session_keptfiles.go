package main

// session_keptfiles.go owns kept turns on disk: a file each, in a directory a session,
// and what is read back of them. session_kept.go calls it. Other processes write there
// too: whoever has the session. It must never be called on a session's loop but
// for write, nor tell a turn twice as new.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// dirSettled is how long a directory must be unchanged for its time to tell
// that nothing was missed: file systems stamp it by a clock that ticks.
const dirSettled = 100 * time.Millisecond

// load reads what other processes left of a session's turns: those before this
// one, and where the session isn't open here, whoever has it now.
func (k *keptTurns) load(agentID string) {
	k.mu.Lock()
	a := k.agentLocked(agentID)
	known, last, dir := a.loaded && (a.open && !k.othersLocked(a) || !k.reg.persist), a.read, a.dir
	if !a.loaded {
		last = time.Time{}
	}
	others := k.othersLocked(a)
	k.mu.Unlock()
	if known {
		return
	}
	now, changed := time.Now(), time.Time{}
	if st, err := os.Stat(k.reg.turnsDir(agentID)); err == nil {
		changed = st.ModTime()
	}
	if !last.IsZero() && changed.Equal(dir) && last.Sub(changed) > dirSettled && !others {
		return
	}
	onDisk := k.readAll(agentID)
	for _, t := range onDisk {
		if t.process != k.began && !t.finished() && !k.reg.runs(t) {
			t.lose()
		}
	}
	k.mu.Lock()
	a = k.agentLocked(agentID)
	if last.IsZero() && a.loaded || !a.read.Equal(last) && !last.IsZero() { // somebody else was quicker
		k.mu.Unlock()
		return
	}
	a.loaded, a.read, a.dir = true, now, changed
	news := k.mergeLocked(a, onDisk)
	for _, t := range k.pruneLocked(a) {
		if path := k.path(t.AgentID, t.TurnID); path != "" {
			_ = os.Remove(path)
		}
	}
	k.mu.Unlock()
	if news {
		k.poke()
	}
}

// othersLocked reports a turn that another process runs, or may have run.
func (k *keptTurns) othersLocked(a *keptAgent) bool {
	return slices.ContainsFunc(a.turns, func(t *keptTurn) bool { return !t.finished() && t.process != k.began })
}

// runs reports whether the process that began an unfinished turn still has its
// session: the turn's end is told by nothing else.
func (r *registry) runs(t *keptTurn) bool {
	by, pid, held := r.holder(t.Identity)
	return held && pid == t.pid && (by == t.AgentID || by == "")
}

// lose ends a turn whose process ended before it did: it is told as failed, not
// passed over.
func (t *keptTurn) lose() {
	t.Status, t.Lost, t.Seq = "failed", true, t.Created.UnixMicro() // its place among those that ended
	t.Result = &turnResult{AgentID: t.AgentID, TurnID: t.TurnID, Identity: t.Identity, Status: statusStale, TurnStatus: "interrupted",
		err: proxyError(codeSessionClosed, fmt.Sprintf("the server that ran this turn ended before the turn did; codex-reply with agent_id %s continues from what the agent remembers", t.AgentID), "agent_id", t.AgentID)}
}

// mergeLocked takes in what is on disk of a session's turns. What another
// process has ended since this one began is new here, so its seq is from here
// too: the numbers of two processes say nothing about each other.
func (k *keptTurns) mergeLocked(a *keptAgent, onDisk []*keptTurn) (news bool) {
	disk := make(map[string]bool, len(onDisk))
	for _, t := range onDisk {
		disk[t.TurnID] = true
	}
	a.turns = slices.DeleteFunc(a.turns, func(t *keptTurn) bool {
		return t.process != k.began && !disk[t.TurnID] // it was let go by who had it
	})
	for _, t := range onDisk {
		i := slices.IndexFunc(a.turns, func(o *keptTurn) bool { return o.TurnID == t.TurnID })
		switch {
		case i >= 0 && (a.turns[i].process == k.began || a.turns[i].finished() && (!a.turns[i].Lost || t.Lost)):
			continue
		case i >= 0:
			a.turns = slices.Delete(a.turns, i, i+1)
		}
		if t.finished() { // its file is the result; memory keeps what there is of it
			if !t.Lost {
				t.letGo(true)
			}
			if t.process != k.began && t.Updated.UnixMicro() > k.began {
				k.seq++
				t.Seq, news = k.seq, true
			}
		}
		a.turns = append(a.turns, t)
	}
	slices.SortStableFunc(a.turns, func(x, y *keptTurn) int {
		if x.finished() != y.finished() {
			if x.finished() {
				return -1
			}
			return 1
		}
		if !x.finished() {
			return x.Created.Compare(y.Created)
		}
		return cmp.Compare(x.Seq, y.Seq)
	})
	return news
}

// path is a turn's file, "" for one that has none.
func (k *keptTurns) path(agentID, turnID string) string {
	if !k.reg.persist || !validThreadID(turnID) {
		return ""
	}
	return filepath.Join(k.reg.turnsDir(agentID), turnID+".json")
}

func (k *keptTurns) write(t *keptTurn) error {
	path := k.path(t.AgentID, t.TurnID)
	if path == "" {
		return nil
	}
	data, err := encodeTurn(t)
	if err != nil {
		return err
	}
	return writeWhole(path, data)
}

// readAll reads a session's turns, oldest first. What can't be read is passed
// over: the next result replaces it.
func (k *keptTurns) readAll(agentID string) []*keptTurn {
	if !k.reg.persist {
		return nil
	}
	dir := k.reg.turnsDir(agentID)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("kept turns can't be read", "path", dir, "err", err)
	}
	var out []*keptTurn
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			removeLeftover(dir, e)
			continue
		}
		t, err := k.read(filepath.Join(dir, e.Name()))
		if err != nil || t.AgentID != agentID || t.TurnID+".json" != e.Name() {
			k.log.Warn("a kept turn can't be read", "path", filepath.Join(dir, e.Name()), "err", err)
			continue
		}
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b *keptTurn) int {
		if a.finished() && b.finished() {
			return int(min(1, max(-1, a.Seq-b.Seq)))
		}
		return a.Created.Compare(b.Created)
	})
	return out
}

// turnFile is a turn on disk.
type turnFile struct {
	Version  int         `json:"version"`
	AgentID  string      `json:"agent_id"`
	Identity string      `json:"identity"`
	TurnID   string      `json:"turn_id"`
	Seq      int64       `json:"seq,omitempty"`
	Source   turnSource  `json:"source"`
	Status   string      `json:"status"`
	Created  time.Time   `json:"created_at"`
	Updated  time.Time   `json:"updated_at"`
	Task     bool        `json:"task,omitempty"`
	Stopped  bool        `json:"stopped,omitempty"`
	Result   *turnResult `json:"result,omitempty"`
	Error    *rpcError   `json:"error,omitempty"`
	Process  int64       `json:"process,omitempty"` // whose Seq it is
	PID      int         `json:"pid,omitempty"`
}

func encodeTurn(t *keptTurn) ([]byte, error) {
	f := turnFile{1, t.AgentID, t.Identity, t.TurnID, t.Seq, t.Source, t.Status, t.Created.UTC(), t.Updated.UTC(), t.Task, t.Stopped, t.Result, nil, t.process, t.pid}
	if t.Result != nil {
		f.Error = t.Result.err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encoding turn %s: %w", t.TurnID, err)
	}
	return append(data, '\n'), nil
}

func (k *keptTurns) read(path string) (*keptTurn, error) {
	data, err := readRegular(path, maxTurnFile)
	if err != nil {
		return nil, err
	}
	var f turnFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	t := &keptTurn{AgentID: f.AgentID, Identity: f.Identity, TurnID: f.TurnID, Seq: f.Seq, Source: f.Source, Status: f.Status,
		Created: f.Created, Updated: f.Updated, Task: f.Task, Stopped: f.Stopped, Result: f.Result, process: f.Process, pid: f.PID}
	if t.Result != nil {
		t.Result.err = f.Error
	}
	return t, nil
}
