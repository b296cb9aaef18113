package main

// kept.go owns the results of turns after, or beside, their callers: the last
// of each session, so that nothing finished is lost with a connection. Session
// loops put results in, agent_wait and tasks/get read them. A background turn
// is on disk before its name is given out; another's result is written behind
// its answer. It must never scan a directory on a session's loop.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxKeptTurns = 20      // of a session
	maxKeptBytes = 4 << 20 // of all results in memory; older ones are read from disk
	maxTurnFile  = 128 << 20
	maxLeft      = 200 // ended sessions that memory still knows the turns of
)

// turnHandlePrefix begins our own name of a background turn, which needs one
// before Codex has given it any.
const turnHandlePrefix = "bg-"

// newTurnHandle makes such a name. Nobody guesses another's.
func newTurnHandle() string {
	return turnHandlePrefix + strings.TrimPrefix(randomAgentID(), agentIDPrefix) + strings.TrimPrefix(randomAgentID(), agentIDPrefix)
}

// keptTurns may be used from any goroutine.
type keptTurns struct {
	reg *registry
	log *slog.Logger

	watched atomic.Int32 // len(watchers)

	mu       sync.Mutex // guards the fields below
	seq      int64      // of the newest end; begins at the process's start, so that it never runs backwards
	agents   map[string]*keptAgent
	order    []*keptTurn // whose result is in memory, oldest first
	bytes    int
	left     []string // agent_ids of ended sessions, oldest first
	watchers map[chan struct{}]bool
}

// keptAgent is one session's turns, oldest first.
type keptAgent struct {
	turns  []*keptTurn
	base   int64 // seq when its newest turn was asked for
	asked  bool  // one was, in this process
	open   bool
	loaded bool // what is on disk from before has been read
	unseen bool // its newest turn has ended, and its session does not show that yet
}

func newKeptTurns(reg *registry, log *slog.Logger) *keptTurns {
	return &keptTurns{reg: reg, log: log, seq: time.Now().UnixMicro(), agents: map[string]*keptAgent{}, watchers: map[chan struct{}]bool{}}
}

func (k *keptTurns) agentLocked(agentID string) *keptAgent {
	a := k.agents[agentID]
	if a == nil {
		a = &keptAgent{}
		k.agents[agentID] = a
	}
	return a
}

// asked notes that a turn was asked for: what ends after now is newer.
func (k *keptTurns) asked(agentID string) {
	k.mu.Lock()
	a := k.agentLocked(agentID)
	a.base, a.asked, a.open = k.seq, true, true
	k.mu.Unlock()
}

// begin keeps a background turn that was accepted. On an error it could not be
// made to outlive this process, and is not kept.
func (k *keptTurns) begin(t keptTurn) error {
	if err := k.write(&t); err != nil { // before anybody else sees it
		return err
	}
	k.mu.Lock()
	a := k.agentLocked(t.AgentID)
	a.turns = append(a.turns, &t)
	k.mu.Unlock()
	return nil
}

// running notes that a background turn has started.
func (k *keptTurns) running(agentID, turnID string) {
	k.mu.Lock()
	if t := k.findLocked(agentID, turnID); t != nil && !t.finished() {
		t.Status, t.Updated = "running", time.Now()
	}
	k.mu.Unlock()
}

// finish keeps a turn's result; the caller shows the session as it is then, and
// calls seen. One that nobody is answered with, a background turn's or one whose
// caller's time is over, is in its file when finish returns.
func (k *keptTurns) finish(t keptTurn, unanswered bool) {
	k.mu.Lock()
	k.seq++
	t.Seq, t.Updated = k.seq, time.Now()
	a := k.agentLocked(t.AgentID)
	if old := k.findLocked(t.AgentID, t.TurnID); old != nil && !old.finished() {
		t.Created, t.Task = old.Created, old.Task
		a.turns = slices.DeleteFunc(a.turns, func(o *keptTurn) bool { return o == old })
	}
	file := t // for the disk: memory may let go of the answer meanwhile
	kept := &t
	a.turns = append(a.turns, kept)
	a.unseen = true
	gone := k.pruneLocked(a)
	k.order = append(k.order, kept)
	k.bytes += kept.size()
	k.shrinkLocked()
	k.mu.Unlock()

	if unanswered {
		if err := k.write(&file); err != nil {
			k.log.Warn("a turn's result could not be written", "agent", file.AgentID, "turn", file.TurnID, "err", err)
		}
	} else if path := k.path(file.AgentID, file.TurnID); path != "" {
		k.reg.writeLater(path, func() ([]byte, error) { return encodeTurn(&file) })
	}
	for _, old := range gone {
		if path := k.path(old.AgentID, old.TurnID); path != "" && old.TurnID != file.TurnID {
			k.reg.writeLater(path, nil)
		}
	}
}

// seen notes that a session shows itself as it is after the turn that finish
// kept. Only now does agent_wait tell that turn.
func (k *keptTurns) seen(agentID string) {
	k.mu.Lock()
	if a := k.agents[agentID]; a != nil {
		a.unseen = false
	}
	k.mu.Unlock()
	k.poke()
}

// pruneLocked takes out what is more than the newest maxKeptTurns with a result.
func (k *keptTurns) pruneLocked(a *keptAgent) (gone []*keptTurn) {
	n := 0
	for _, t := range a.turns {
		if t.finished() {
			n++
		}
	}
	a.turns = slices.DeleteFunc(a.turns, func(t *keptTurn) bool {
		if n <= maxKeptTurns || !t.finished() {
			return false
		}
		n--
		gone = append(gone, t)
		return true
	})
	for _, t := range gone {
		if i := slices.Index(k.order, t); i >= 0 {
			k.order = slices.Delete(k.order, i, i+1)
			k.bytes -= t.size()
		}
	}
	return gone
}

// awayText stands for an answer that is on no disk and was too much to keep.
const awayText = "[the answer is no longer kept: memory for finished turns is bounded, and persist_threads is off]"

// shrinkLocked lets go of the oldest results while there are too many bytes.
func (k *keptTurns) shrinkLocked() {
	for k.bytes > maxKeptBytes && len(k.order) > 1 {
		t := k.order[0]
		k.order = k.order[1:]
		k.bytes -= t.size()
		t.letGo(k.path(t.AgentID, t.TurnID) != "")
	}
}

// size is about what a result takes in memory.
func (k *keptTurn) size() int {
	if k.Result == nil {
		return 0
	}
	n := len(k.Result.Content) + 512
	if k.Result.err != nil {
		n += len(k.Result.err.Message) + len(k.Result.err.Data)
	}
	return n
}

func (k *keptTurns) findLocked(agentID, turnID string) *keptTurn {
	a := k.agents[agentID]
	if a == nil {
		return nil
	}
	for i := len(a.turns) - 1; i >= 0; i-- {
		if a.turns[i].TurnID == turnID {
			return a.turns[i]
		}
	}
	return nil
}

// has reports a session of which something is kept. It may read the disk.
func (k *keptTurns) has(agentID string) bool {
	if !validAgentID(agentID) {
		return false
	}
	k.load(agentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.agents[agentID]
	if a != nil && len(a.turns) == 0 && !a.asked {
		delete(k.agents, agentID) // an id that somebody made up
		return false
	}
	return a != nil
}

// find is one turn, nil if there is none. It may read the disk.
func (k *keptTurns) find(agentID, turnID string) *keptTurn {
	k.load(agentID)
	k.mu.Lock()
	t := k.findLocked(agentID, turnID)
	if t == nil {
		k.mu.Unlock()
		return nil
	}
	out := *t
	k.mu.Unlock()
	return k.whole(out)
}

// now is the seq of the newest end of any turn.
func (k *keptTurns) now() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seq
}

// state is now, and whether one of these
// sessions doesn't show the end of its newest turn yet.
func (k *keptTurns) state(agents []string) (seq int64, unseen bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range agents {
		a := k.agents[id]
		unseen = unseen || a != nil && a.unseen
	}
	return k.seq, unseen
}

// base is the seq from just before a session's newest turn. It may read the
// disk.
func (k *keptTurns) base(agentID string) int64 {
	k.load(agentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.agentLocked(agentID)
	if a.asked {
		return a.base
	}
	for i := len(a.turns) - 1; i >= 0; i-- {
		if a.turns[i].finished() {
			return a.turns[i].Seq - 1
		}
	}
	return 0
}

// between lists a session's turns that ended after since and not after until.
// It may read the disk.
func (k *keptTurns) between(agentID string, since, until int64) []keptTurn {
	k.load(agentID)
	k.mu.Lock()
	var out []keptTurn
	if a := k.agents[agentID]; a != nil {
		for _, t := range a.turns {
			if t.finished() && t.Seq > since && t.Seq <= until {
				out = append(out, *t)
			}
		}
	}
	k.mu.Unlock()
	for i := range out {
		out[i] = *k.whole(out[i])
	}
	return out
}

// whole brings back a result that memory has let go of.
func (k *keptTurns) whole(t keptTurn) *keptTurn {
	if !t.away {
		return &t
	}
	path := k.path(t.AgentID, t.TurnID)
	old, err := k.read(path)
	if err != nil { // it may be about to be written
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = k.reg.flush(ctx)
		cancel()
		old, err = k.read(path)
	}
	if err == nil && old.finished() {
		t.Result = old.Result
	}
	return &t
}

// load reads what a session's turns of before this process left, once.
func (k *keptTurns) load(agentID string) {
	k.mu.Lock()
	loaded := k.agentLocked(agentID).loaded
	k.mu.Unlock()
	if loaded {
		return
	}
	old := k.readAll(agentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.agentLocked(agentID)
	if a.loaded {
		return
	}
	a.loaded = true
	known := map[string]bool{}
	for _, t := range a.turns {
		known[t.TurnID] = true
	}
	var before []*keptTurn
	for _, t := range old {
		if !known[t.TurnID] {
			if t.finished() { // its file is the result; memory keeps what there is of it
				t.letGo(true)
			}
			before = append(before, t)
		}
	}
	a.turns = append(before, a.turns...)
	for _, t := range k.pruneLocked(a) {
		if path := k.path(t.AgentID, t.TurnID); path != "" {
			_ = os.Remove(path)
		}
	}
}

// forget lets go of a session that isn't open any more and is on disk.
func (k *keptTurns) forget(agentID string) {
	if !k.reg.persist {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.agents[agentID]
	if a == nil || !a.open {
		return
	}
	a.open = false
	k.left = append(k.left, agentID)
	if len(k.left) > maxLeft {
		if old := k.agents[k.left[0]]; old != nil && !old.open {
			k.releaseLocked(old)
			delete(k.agents, k.left[0]) // its files have it
		}
		k.left = k.left[1:]
	}
	k.releaseLocked(a)
}

// releaseLocked lets memory go of a session's answers; their files have them.
func (k *keptTurns) releaseLocked(a *keptAgent) {
	for _, t := range a.turns {
		if i := slices.Index(k.order, t); i >= 0 && k.path(t.AgentID, t.TurnID) != "" {
			k.order = slices.Delete(k.order, i, i+1)
			k.bytes -= t.size()
			t.letGo(true)
		}
	}
}

// letGo replaces a result by what is known without its answer.
func (k *keptTurn) letGo(onDisk bool) {
	short := *k.Result
	short.Content, short.Notes, short.Declined = awayText, nil, nil
	k.Result, k.away = &short, onDisk
}

// poke tells whoever watches that something has changed.
func (k *keptTurns) poke() {
	if k.watched.Load() == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for ch := range k.watchers {
		nudge(ch)
	}
}

// watch returns a channel with room for one, which gets a word after every
// change, and what ends that.
func (k *keptTurns) watch() (ch chan struct{}, stop func()) {
	ch = make(chan struct{}, 1)
	k.mu.Lock()
	k.watchers[ch] = true
	k.watched.Store(int32(len(k.watchers)))
	k.mu.Unlock()
	return ch, func() {
		k.mu.Lock()
		delete(k.watchers, ch)
		k.watched.Store(int32(len(k.watchers)))
		k.mu.Unlock()
	}
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
}

func encodeTurn(t *keptTurn) ([]byte, error) {
	f := turnFile{1, t.AgentID, t.Identity, t.TurnID, t.Seq, t.Source, t.Status, t.Created.UTC(), t.Updated.UTC(), t.Task, t.Stopped, t.Result, nil}
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
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxTurnFile {
		return nil, fmt.Errorf("it has %d bytes, more than %d", st.Size(), maxTurnFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f turnFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	t := &keptTurn{AgentID: f.AgentID, Identity: f.Identity, TurnID: f.TurnID, Seq: f.Seq, Source: f.Source, Status: f.Status,
		Created: f.Created, Updated: f.Updated, Task: f.Task, Stopped: f.Stopped, Result: f.Result}
	if t.Result != nil {
		t.Result.err = f.Error
	}
	return t, nil
}
