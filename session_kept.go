package main

// session_kept.go owns the results of turns after, or beside, their callers: the last of each session, so that nothing
// finished is lost with a connection. Session loops put results in, agent_wait and tasks/get read them. On disk they
// are lines of the session's journal: a background turn is there before its name is given out, every result before its
// turn is answered, and memory keeps of a result that is there no more than that it is. Other processes append there
// too: whoever has the session. Nothing here may read the disk on a session's loop, nor tell a turn twice as new.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxKeptBytes = 4 << 20 // of all results that are on no disk; older ones are gone
	maxLeft      = 200     // ended sessions that memory still knows the turns of
)

// turnHandlePrefix begins our own name of a background turn, which needs one before Codex has given it any.
const turnHandlePrefix = "bg-"

// newTurnHandle makes such a name. Nobody guesses another's.
func newTurnHandle() string {
	return turnHandlePrefix + strings.TrimPrefix(randomAgentID(), agentIDPrefix) +
		strings.TrimPrefix(randomAgentID(), agentIDPrefix)
}

// keptTurn is one turn as it is kept after, or beside, its caller: what agent_wait and tasks/get tell.
type keptTurn struct {
	AgentID  string      `json:"agent_id"`
	Identity string      `json:"identity"`
	TurnID   string      `json:"turn_id"`       // a background turn's own name, else Codex's
	Seq      int64       `json:"seq,omitempty"` // of its end, 0 while it has none
	Source   turnSource  `json:"source"`
	Status   string      `json:"status"` // queued running completed failed interrupted
	Created  time.Time   `json:"created_at"`
	Updated  time.Time   `json:"updated_at"`
	Task     bool        `json:"task,omitempty"`    // given out as an MCP task
	Stopped  bool        `json:"stopped,omitempty"` // agent_interrupt or tasks/cancel ended it
	Result   *turnResult `json:"result,omitempty"`  // nil while unfinished; has an err where one of ours ended it
	Process  int64       `json:"process,omitempty"` // who wrote it, as keptTurns.began of that process; 0: nobody knows
	PID      int         `json:"pid,omitempty"`

	Lost     bool      `json:"-"` // its process ended before it did
	Activity string    `json:"-"` // of an unfinished one, in words
	Pending  []askView `json:"-"` // of an unfinished one
	away     bool      // memory has let go of the answer, which the journal has, if there is one
}

// finished reports a turn that has a result.
func (k *keptTurn) finished() bool { return k.Result != nil }

// keptTurns may be used from any goroutine.
type keptTurns struct {
	reg *registry
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	seq      int64      // of the newest end; begins at the process's start, so that it never runs backwards
	agents   map[string]*keptAgent
	began    int64    // seq at first: tells this process's turns from others'
	left     []string // agent_ids of ended sessions, oldest first
	watchers map[chan struct{}]bool
}

// keptAgent is one session's turns, oldest first.
type keptAgent struct {
	turns  []*keptTurn
	base   int64        // seq when the session's newest turn was asked for
	asked  bool         // a turn of the session was asked for in this process
	open   bool         // the session is open here: nobody else writes its turns
	unseen bool         // the newest turn has ended, and the session does not show that yet
	read   time.Time    // when the session's journal was last read here, zero where others' turns may be missing
	stamp  journalStamp // the journal's size and time at that reading
}

func newKeptTurns(reg *registry, log *slog.Logger) *keptTurns {
	now := time.Now().UnixMicro()
	return &keptTurns{reg: reg, log: log, seq: now, began: now, agents: map[string]*keptAgent{},
		watchers: map[chan struct{}]bool{}}
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
		a.read = time.Time{} // another process may have had it until now
	}
	a.base, a.asked, a.open = k.seq, true, true
	k.mu.Unlock()
}

// unasked takes a turn back that asked has noted: its session was not to be had, so no turn came of it and the newest
// is the one before.
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
	t.Process, t.PID = k.began, os.Getpid()
	if err := k.write(&t, nil); err != nil { // before anybody else sees it
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

// finish keeps a turn's result, and puts it on disk with what the turn's end changes in the session's record, if rec is
// given. The caller then shows the session as it is after the turn, and calls seen. With an error the result is kept in
// memory alone.
func (k *keptTurns) finish(t keptTurn, rec *record) error {
	k.mu.Lock()
	k.seq++
	t.Seq, t.Updated, t.Process, t.PID = k.seq, time.Now(), k.began, os.Getpid()
	a := k.agentLocked(t.AgentID)
	if old := k.findLocked(t.AgentID, t.TurnID); old != nil && !old.finished() {
		t.Created, t.Task = old.Created, old.Task
		a.turns = slices.DeleteFunc(a.turns, func(o *keptTurn) bool { return o == old })
	}
	kept := t
	a.turns = append(a.turns, &kept)
	a.unseen = true
	a.prune()
	k.mu.Unlock()

	err := k.write(&t, rec)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.reg.persist {
		kept.letGo(lostText)
	} else {
		k.shrinkLocked()
	}
	return err
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

// prune takes out what is more than the newest maxKeptTurns with a result. Lost turns are as many as the journal has:
// it counts none, and what it has beside them would be read again as new. keptTurns.mu is held.
func (a *keptAgent) prune() {
	ended := func(t *keptTurn) bool { return t.finished() && !t.Lost }
	n := 0
	for _, t := range a.turns {
		if ended(t) {
			n++
		}
	}
	a.turns = slices.DeleteFunc(a.turns, func(t *keptTurn) bool {
		if n <= maxKeptTurns || !ended(t) {
			return false
		}
		n--
		return true
	})
}

// What stands for an answer: that is on no disk and was too much to keep; that was, until its journal is read again.
const (
	awayText = "[the answer is no longer kept: memory for finished turns is bounded, and persist_threads is off or " +
		"the disk could not be written]"
	lostText = "[the answer can't be read any more: the agent's journal, which had it, keeps so many bytes of the " +
		"newest answers, or is damaged or gone; codex-reply can ask the agent for it again]"
)

// shrinkLocked lets go of the oldest results that are on no disk while they are too many bytes.
func (k *keptTurns) shrinkLocked() {
	var held []*keptTurn
	size := 0
	for _, a := range k.agents {
		for _, t := range a.turns {
			if t.finished() && !t.away && !t.Lost {
				held, size = append(held, t), size+t.size()
			}
		}
	}
	if size <= maxKeptBytes {
		return
	}
	sortTurns(held)
	for ; size > maxKeptBytes && len(held) > 1; held = held[1:] {
		size -= held[0].size()
		held[0].letGo(awayText)
	}
}

// size is about what a result takes in memory.
func (k *keptTurn) size() int {
	if k.Result == nil {
		return 0
	}
	n := len(k.Result.Content) + len(k.Result.Output) + 512
	if k.Result.err != nil {
		n += len(k.Result.err.Message) + len(k.Result.err.Data)
	}
	return n
}

func (k *keptTurns) findLocked(agentID, turnID string) *keptTurn {
	if a := k.agents[agentID]; a != nil {
		for _, t := range slices.Backward(a.turns) {
			if t.TurnID == turnID {
				return t
			}
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
	out := []keptTurn{*t}
	k.mu.Unlock()
	k.fill(out)
	return &out[0]
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

// state is the seq of the newest end of any turn, and whether one of these sessions doesn't show the end of its newest
// turn yet.
func (k *keptTurns) state(agents []string) (seq int64, unseen bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range agents {
		a := k.agents[id]
		unseen = unseen || a != nil && a.unseen
	}
	return k.seq, unseen
}

// base is the seq from just before a session's newest turn. It may read the disk.
func (k *keptTurns) base(agentID string) int64 {
	k.load(agentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.agentLocked(agentID)
	if a.asked {
		return a.base
	}
	for _, t := range slices.Backward(a.turns) {
		switch {
		case !t.finished():
		case k.othersLocked(a): // the newest is one that runs in another process
			return t.Seq
		default:
			return t.Seq - 1
		}
	}
	return 0
}

// ended lists a session's turns that ended after since and not after until, but for the answers that memory has let go
// of: fill brings those, once somebody is to read them. It may read the disk.
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

// fill brings back results that memory has let go of.
func (k *keptTurns) fill(turns []keptTurn) {
	read := map[string][]*keptTurn{} // the turns on disk, by session
	for i := range turns {
		t := &turns[i]
		if !t.away {
			continue
		}
		onDisk, known := read[t.AgentID]
		if !known {
			onDisk = k.readAll(t.AgentID)
			read[t.AgentID] = onDisk
		}
		for _, old := range onDisk {
			// codex mcp-server 0.104 calls turns of two children by one name: one's answer is not the other's
			if old.TurnID == t.TurnID && old.Updated.Equal(t.Updated) && old.finished() {
				t.Result, t.away = old.Result, false
			}
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
			delete(k.agents, k.left[0]) // its journal has it
		}
		k.left = k.left[1:]
	}
}

// letGo replaces a result by what is known without its answer, for which text stands.
func (k *keptTurn) letGo(text string) {
	short := *k.Result
	short.Content, short.Notes, short.Declined, short.Output, short.Review = text, nil, nil, nil, nil
	k.Result, k.away = &short, true
}

// poke tells whoever watches that something has changed.
func (k *keptTurns) poke() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ch := range k.watchers {
		nudge(ch)
	}
}

// watch returns a channel with room for one, which gets a word after every change, and what ends that.
func (k *keptTurns) watch() (ch chan struct{}, stop func()) {
	ch = make(chan struct{}, 1)
	k.mu.Lock()
	k.watchers[ch] = true
	k.mu.Unlock()
	return ch, func() {
		k.mu.Lock()
		delete(k.watchers, ch)
		k.mu.Unlock()
	}
}

// load reads what other processes left of a session's turns: those before this
// one, and where the session isn't open here, whoever has it now.
func (k *keptTurns) load(agentID string) {
	k.mu.Lock()
	a := k.agentLocked(agentID)
	others, last, stamp := k.othersLocked(a), a.read, a.stamp
	known := !last.IsZero() && (a.open && !others || !k.reg.persist)
	k.mu.Unlock()
	if known {
		return
	}
	now, changed := time.Now(), k.reg.journals.stamp(agentID)
	if !last.IsZero() && changed == stamp && !others {
		return
	}
	onDisk := k.readAll(agentID)
	for _, t := range onDisk {
		if t.Process != k.began && !t.finished() && !k.runs(t) {
			t.lose()
		}
	}
	k.mu.Lock()
	a = k.agentLocked(agentID)
	if !a.read.Equal(last) { // somebody else was quicker
		k.mu.Unlock()
		return
	}
	a.read, a.stamp = now, changed
	news := k.mergeLocked(a, onDisk)
	a.prune()
	k.mu.Unlock()
	if news {
		k.poke()
	}
}

// othersLocked reports a turn that another process runs, or may have run.
func (k *keptTurns) othersLocked(a *keptAgent) bool {
	return slices.ContainsFunc(a.turns, func(t *keptTurn) bool { return !t.finished() && t.Process != k.began })
}

// runs reports whether the process that began an unfinished turn still has its session: the turn's end is told by
// nothing else. A turn may have been accepted before its agent had a name. The record tells the name, and as long as
// there is no record, or none since the turn was asked for, the agent is being opened, if by a process that lives. A
// lease without a pid is just being written.
func (k *keptTurns) runs(t *keptTurn) bool {
	name, opening := t.Identity, false
	if name == "" {
		rec, err := k.reg.readRecord(t.AgentID)
		if opening = errors.Is(err, fs.ErrNotExist); err == nil {
			name, opening = rec.Identity, rec.LastActive.Before(t.Created)
		}
	}
	by, pid, held := k.reg.holder(name)
	return held && (pid == t.PID || pid == 0) && (by == t.AgentID || by == "") ||
		opening && t.PID != os.Getpid() && pidAlive(t.PID)
}

// lose ends a turn whose process ended before it did: it is told as failed, not passed over.
func (t *keptTurn) lose() {
	t.Status, t.Lost, t.Seq = "failed", true, t.Created.UnixMicro() // its place among those that ended
	t.Result = &turnResult{AgentID: t.AgentID, TurnID: t.TurnID, Identity: t.Identity, Status: statusStale,
		TurnStatus: "interrupted",
		err: proxyAdvice(codeSessionClosed, remedyGoOn, "the server that ran this turn ended before the turn did",
			fmt.Sprintf("; codex-reply with agent_id %s continues from what the agent remembers", t.AgentID),
			"agent_id", t.AgentID)}
}

// mergeLocked takes in what is on disk of a session's turns. What another process has ended since this one began is new
// here, so its seq is from here too: the numbers of two processes say nothing about each other.
func (k *keptTurns) mergeLocked(a *keptAgent, onDisk []*keptTurn) (news bool) {
	disk := make(map[string]bool, len(onDisk))
	for _, t := range onDisk {
		disk[t.TurnID] = true
	}
	a.turns = slices.DeleteFunc(a.turns, func(t *keptTurn) bool {
		return t.Process != k.began && !disk[t.TurnID] // it was let go by who had it
	})
	for _, t := range onDisk {
		i := slices.IndexFunc(a.turns, func(o *keptTurn) bool { return o.TurnID == t.TurnID })
		switch {
		case i >= 0 && (a.turns[i].Process == k.began || a.turns[i].finished() && (!a.turns[i].Lost || t.Lost)):
			continue
		case i >= 0:
			a.turns = slices.Delete(a.turns, i, i+1)
		}
		if t.finished() { // the journal has the answer; memory keeps what there is without it
			if !t.Lost {
				t.letGo(lostText)
			}
			if t.Process != k.began && t.Updated.UnixMicro() > k.began {
				k.seq++
				t.Seq, news = k.seq, true
			}
		}
		a.turns = append(a.turns, t)
	}
	sortTurns(a.turns)
	return news
}

// sortTurns puts turns in order: those with a result as they ended, and behind them the others as they were asked for.
func sortTurns(turns []*keptTurn) {
	slices.SortStableFunc(turns, func(x, y *keptTurn) int {
		switch {
		case !x.finished() && !y.finished():
			return x.Created.Compare(y.Created)
		case !x.finished():
			return 1
		case !y.finished():
			return -1
		}
		return cmp.Compare(x.Seq, y.Seq)
	})
}

// write puts a turn on disk, with the record as it is after the turn, if given.
func (k *keptTurns) write(t *keptTurn, rec *record) error {
	if !k.reg.persist {
		return nil
	}
	data, err := encodeTurn(t)
	if err != nil {
		return err
	}
	return k.reg.noteTurn(t.AgentID, rec, data)
}

// readAll reads a session's turns, oldest first. What can't be read is passed over.
func (k *keptTurns) readAll(agentID string) []*keptTurn {
	if !k.reg.persist {
		return nil
	}
	lines, err := k.reg.journals.turns(agentID)
	if err != nil {
		k.log.Warn("kept turns can't be read", "agent", agentID, "err", err)
	}
	var out []*keptTurn
	for _, line := range lines {
		t, err := decodeTurn(line.turn)
		if err != nil || t.AgentID != agentID {
			k.log.Warn("a kept turn can't be read", "agent", agentID, "turn", line.turnID, "err", err)
			continue
		}
		out = append(out, t)
	}
	sortTurns(out)
	return out
}

// turnOnDisk is a turn in the journal.
type turnOnDisk struct {
	Version int `json:"version"`
	keptTurn
	Error *rpcError `json:"error,omitempty"` // the result's err
}

func encodeTurn(t *keptTurn) ([]byte, error) {
	f := turnOnDisk{Version: 1, keptTurn: *t}
	f.Created, f.Updated = t.Created.UTC(), t.Updated.UTC()
	if t.Result != nil {
		f.Error = t.Result.err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encoding turn %s: %w", t.TurnID, err)
	}
	return data, nil
}

func decodeTurn(data []byte) (*keptTurn, error) {
	var f turnOnDisk
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.Result != nil {
		f.Result.err = f.Error
	}
	return &f.keptTurn, nil
}
