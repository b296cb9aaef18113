package main

// session_kept.go owns the results of turns after, or beside, their callers: the last
// of each session, so that nothing finished is lost with a connection. Session
// loops put results in, agent_wait and tasks/get read them. A background turn
// is on disk before its name is given out; another's result is written behind
// its answer. It must never scan a directory on a session's loop.

import (
	"context"
	"log/slog"
	"os"
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
	began    int64       // seq at first: tells this process's turns from others'
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
	open   bool  // here: nobody else writes its turns
	loaded bool  // what is on disk from others has been read
	unseen bool  // its newest turn has ended, and its session does not show that yet
	read   time.Time
	dir    time.Time // when its directory had changed, as of read
}

func newKeptTurns(reg *registry, log *slog.Logger) *keptTurns {
	now := time.Now().UnixMicro()
	return &keptTurns{reg: reg, log: log, seq: now, began: now, agents: map[string]*keptAgent{}, watchers: map[chan struct{}]bool{}}
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
	if !a.open {
		a.loaded = false // another process may have had it until now
	}
	a.base, a.asked, a.open = k.seq, true, true
	k.mu.Unlock()
}

// unasked takes that back: the session was not to be had, so no turn came of it
// and the newest is the one before.
func (k *keptTurns) unasked(agentID string) {
	k.mu.Lock()
	if a := k.agents[agentID]; a != nil {
		a.asked = false
	}
	k.mu.Unlock()
}

// begin keeps a background turn that was accepted. On an error it could not be
// made to outlive this process, and is not kept.
func (k *keptTurns) begin(t keptTurn) error {
	t.process, t.pid = k.began, os.Getpid()
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
	t.Seq, t.Updated, t.process, t.pid = k.seq, time.Now(), k.began, os.Getpid()
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

// stamp gives f a new number, for news that isn't a turn's end: who compares them
// with a since sees both the number and what f published, or neither.
func (k *keptTurns) stamp(f func(seq int64)) {
	k.mu.Lock()
	k.seq++
	f(k.seq)
	k.mu.Unlock()
	k.poke()
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
			if k.othersLocked(a) { // the newest is one that runs in another process
				return a.turns[i].Seq
			}
			return a.turns[i].Seq - 1
		}
	}
	return 0
}

// between lists a session's turns that ended after since and not after until,
// with their whole answers. It may read the disk.
func (k *keptTurns) between(agentID string, since, until int64) []keptTurn {
	out := k.ended(agentID, since, until)
	k.fill(out)
	return out
}

// ended is between, but for the answers that memory has let go of: fill brings
// those, once somebody is to read them.
func (k *keptTurns) ended(agentID string, since, until int64) []keptTurn {
	k.load(agentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []keptTurn
	if a := k.agents[agentID]; a != nil {
		for _, t := range a.turns {
			if t.finished() && t.Seq > since && t.Seq <= until {
				out = append(out, *t)
			}
		}
	}
	return out
}

func (k *keptTurns) fill(turns []keptTurn) {
	for i := range turns {
		turns[i] = *k.whole(turns[i])
	}
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
