package main

// codex_app_threads.go owns which session hears of a thread: the trees of all sessions of a child (a session's thread,
// those of its subagents, the turn that runs), and for a while what came for threads that nobody owns yet. The
// app-server driver calls it from the reader, from timers and from sessions. The session's turn has ended when the very
// turn ends that turn/start returned; nothing else may be taken for that end. The table never calls a sink, the peer or
// anybody else under its lock, and never holds an event without a limit in time and in size, since a thread may stay
// nobody's for good.

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// delivery is something to be done after the table's lock is released: a turn to be stopped; or an event or a request
// for a session, which waits for that while nobody owns its thread.
type delivery struct {
	t    *threadTree // whose it is, nil as long as that isn't known
	e    event
	req  *message // a request to be put before the session; nil: e is to be delivered
	stop turnRef  // the turn to be stopped, in place of all that; its turn is "" for none
}

// threadTable has every thread of one child.
type threadTable struct {
	refuse  func(*message) // declines a request that stayed nobody's
	deliver func(delivery) // does what waited too long

	mu      sync.Mutex            // guards the fields below, and everything of trees and threads but the sinks
	dead    bool                  // the child is gone
	opening map[*threadTree]bool  // trees whose thread/start or thread/resume is not answered yet
	threads map[string]*appThread // the threads of all trees, by id
	unowned unownedThreads        // what came for threads of no tree
	running map[string]string     // by thread, also of no tree: the id by which Codex knows the turn that runs there
}

func newThreadTable(refuse func(*message), deliver func(delivery)) *threadTable {
	tab := &threadTable{refuse: refuse, deliver: deliver,
		opening: map[*threadTree]bool{}, threads: map[string]*appThread{},
		running: map[string]string{}}
	tab.unowned = unownedThreads{overdue: tab.dropUnowned, held: map[string]*unownedThread{}}
	return tab
}

// addOpening registers a tree whose thread the child is asked for. false: the child is gone.
func (tab *threadTable) addOpening(t *threadTree) bool {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if tab.dead {
		return false
	}
	tab.opening[t], t.tab = true, tab
	return true
}

// addTree gives the tree its thread. A tree that had the thread before (a session that recovers its thread doesn't
// unload it) is returned with its threads, taken out. held is what came for the thread before, for replay.
func (tab *threadTable) addTree(t *threadTree, id string) (old *threadTree, ids []string, held []delivery) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	delete(tab.opening, t)
	if old = tab.treeLocked(id); old != nil {
		ids = tab.removeLocked(old)
	}
	t.root = id
	tab.threads[id] = &appThread{id: id, tree: t} // no longer a subagent's thread of another tree
	return old, ids, tab.unowned.release(id)
}

// removeTree takes out the tree of a root and returns it with its threads, nil for none.
func (tab *threadTable) removeTree(root string) (t *threadTree, ids []string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if t = tab.treeLocked(root); t != nil {
		ids = tab.removeLocked(t)
	}
	return t, ids
}

// forget takes out a tree that was never opened.
func (tab *threadTable) forget(t *threadTree) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	delete(tab.opening, t)
	tab.removeLocked(t)
}

// removeLocked takes the threads of a tree out of the table and returns their ids.
func (tab *threadTable) removeLocked(t *threadTree) []string {
	ids := tab.idsLocked(t)
	for _, id := range ids {
		delete(tab.threads, id)
	}
	return ids
}

func (tab *threadTable) idsLocked(t *threadTree) (ids []string) {
	for id, th := range tab.threads {
		if th.tree == t {
			ids = append(ids, id)
		}
	}
	return ids
}

// treeLocked is the tree whose root a thread is, nil for none.
func (tab *threadTable) treeLocked(root string) *threadTree {
	if th := tab.threads[root]; th != nil && th.isRoot() {
		return th.tree
	}
	return nil
}

// end empties the table and returns all trees: the caller tells each that the child is gone.
func (tab *threadTable) end() (all []*threadTree) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.dead = true
	for t := range tab.opening {
		all = append(all, t)
	}
	for _, th := range tab.threads {
		if th.isRoot() {
			all = append(all, th.tree)
		}
	}
	for id := range tab.unowned.held {
		tab.unowned.release(id)
	}
	clear(tab.opening)
	clear(tab.threads)
	return all
}

// owner is the tree that hears of a thread, nil while there is none or it isn't
// opened. Deltas, nearly all there is, need no more.
func (tab *threadTable) owner(thread string) *threadTree {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if th := tab.threads[thread]; th != nil && th.tree.opened {
		return th.tree
	}
	return nil
}

// threadsOf are the tree of a root and its threads.
func (tab *threadTable) threadsOf(root string) (t *threadTree, ids []string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if t = tab.treeLocked(root); t != nil {
		ids = tab.idsLocked(t)
	}
	return t, ids
}

// runningTurn is the turn that runs in a thread, as far as Codex told.
func (tab *threadTable) runningTurn(thread string) string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return tab.running[thread]
}

// assign finds the owner of an event that has just come, and returns what is to be done about the event.
func (tab *threadTable) assign(e event) (out []delivery) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	th := tab.threads[e.thread]
	if th != nil && th.isRoot() && th.tree.action == actCompact {
		out = th.tree.trackCompactionLocked(e)
	}
	tab.trackTurnLocked(th, e)
	if th == nil {
		// Codex 0.148 and later may name a subagent's parent right there.
		if parent := parentOf(e); parent != "" && tab.threads[parent] != nil {
			return tab.adoptLocked(tab.threads[parent].tree, e.thread, parent, delivery{e: e})
		}
		tab.unowned.hold(e.thread, delivery{e: e})
		return nil
	}
	return append(out, tab.assignLocked(th, e)...)
}

// replay assigns what was held for a tree's root, which has its tree now.
func (tab *threadTable) replay(t *threadTree, held []delivery) []delivery {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return tab.replayLocked(t, t.root, held)
}

// replayLocked tracks no turns: those were tracked as the events came.
func (tab *threadTable) replayLocked(t *threadTree, thread string, held []delivery) (out []delivery) {
	for _, d := range held {
		th := tab.threads[thread]
		switch {
		case d.req != nil:
			out = append(out, delivery{t: t, req: d.req})
		case th != nil && th.tree == t:
			out = append(out, tab.assignLocked(th, d.e)...)
		}
	}
	return out
}

func (tab *threadTable) assignLocked(th *appThread, e event) (out []delivery) {
	t := th.tree
	switch {
	case e.kind == evItem && e.body.kind == "fileChange":
		th.trackPatch(e)
	case e.kind == evItem && e.body.kind == "commandExecution":
		t.trackShell(e)
	case e.kind == evItem && (e.body.kind == "agentMessage" || e.body.kind == "plan") && th.isRoot():
		if t.turn != "" && e.turn != t.turn || t.over != "" && e.turn == t.over {
			e = foreign(e)
			break
		}
		t.answered = t.answered || e.phase == "completed" && e.body.kind == "agentMessage" &&
			e.body.phase != "commentary"
	case e.method == "thread/started" && !th.isRoot():
		th.learnName(e)
	case e.method == "turn/started" && t.stopping && !(th.isRoot() && t.call != nil):
		if run := tab.running[e.thread]; run != "" { // else the turn came and went before anybody owned the thread
			out = append(out, delivery{stop: turnRef{e.thread, run}})
		}
	case e.kind == evEnded:
		th.files = nil
		if !th.isRoot() {
			e = foreign(e)
			break
		}
		if !t.answered {
			e.text = finalText(rawField(e.raw, "turn", "items"))
		}
		var early bool
		if e, early = t.endTurn(e); early {
			return nil
		}
	}
	switch {
	case t.mustHoldEnd(e):
		t.heldEnd = &e
		time.AfterFunc(shellsGrace, func() { t.endOverdue(&e) })
	case t.opened, e.kind == evServer: // what servers do is told once, also while an earlier turn is stopped
		out = append(out, delivery{t: t, e: e})
		if end := t.takeHeldEnd(); end != nil {
			out = append(out, delivery{t: t, e: *end})
		}
	}
	if e.kind == evItem && (e.body.kind == "collabAgentToolCall" || e.body.kind == "subAgentActivity") {
		for _, id := range subthreadsOf(e.raw) {
			out = append(out, tab.adoptLocked(t, id, th.id)...)
			if sub := tab.threads[id]; sub != nil && sub.tree == t && sub.name == "" && id != t.root {
				sub.name = stringField(e.raw, "item", "agentPath")
			}
		}
	}
	return out
}

// trackTurnLocked notes which turn runs in a thread, be it anybody's.
func (tab *threadTable) trackTurnLocked(th *appThread, e event) {
	switch {
	case e.method == "turn/started":
		tab.running[e.thread] = e.turn
	case e.method == "turn/completed" && tab.running[e.thread] == e.turn:
		delete(tab.running, e.thread)
	case e.kind == evItem && e.phase == "started" && e.turn != "" && tab.running[e.thread] == "" &&
		(th == nil || !th.isRoot()):
		// 0.104 may begin to tell of a subagent's thread in mid turn.
		tab.running[e.thread] = e.turn
	}
}

// adoptLocked makes a thread part of a tree and releases what was held for the
// thread, with more behind it, and then the same for its own subagents' threads.
func (tab *threadTable) adoptLocked(t *threadTree, id, parent string, more ...delivery) (out []delivery) {
	if tab.threads[id] != nil || id == "" {
		return nil // the tree's already, or another session's own thread
	}
	tab.threads[id] = &appThread{id: id, tree: t, parent: parent}
	out = tab.replayLocked(t, id, append(tab.unowned.release(id), more...))
	run := turnRef{id, tab.running[id]}
	if run.turn != "" && t.stopping && !slices.ContainsFunc(out, func(d delivery) bool { return d.stop == run }) {
		out = append(out, delivery{stop: run})
	}
	for _, child := range tab.unowned.childrenOf(id) {
		out = append(out, tab.adoptLocked(t, child, id)...)
	}
	return out
}

// dropUnowned drops what nobody claimed in time. Its requests are declined. While a thread/start is on its way (a
// required MCP server may make that slow) the events wait on, since they may be that thread's.
func (tab *threadTable) dropUnowned(id string, u *unownedThread) {
	tab.mu.Lock()
	var refused []*message
	if tab.unowned.held[id] == u { // else it was claimed just now
		for _, it := range tab.unowned.release(id) {
			switch {
			case it.req != nil:
				refused = append(refused, it.req)
			case len(tab.opening) > 0:
				tab.unowned.hold(id, it)
			}
		}
	}
	tab.mu.Unlock()
	for _, m := range refused {
		tab.refuse(m)
	}
}

// asker is who makes a request of us, and what the request itself doesn't say.
type asker struct {
	tree     *threadTree
	files    []fileChange // of the patch that the request belongs to
	subagent *subagentRef // nil for the agent itself
}

// claimRequest finds who makes a request about an item. Without an owner of the
// thread the request is held; with one that isn't opened it is to be refused.
func (tab *threadTable) claimRequest(thread, item string, m *message) (who *asker, held bool) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	th := tab.threads[thread]
	if th == nil {
		return nil, tab.unowned.hold(thread, delivery{e: event{thread: thread, raw: m.params}, req: m})
	}
	if !th.tree.opened {
		return nil, false
	}
	return &asker{tree: th.tree, files: th.files[item], subagent: tab.subagentLocked(th)}, false
}

// subagentLocked names a thread and those it was started by, nil for a root.
func (tab *threadTable) subagentLocked(th *appThread) (first *subagentRef) {
	t, seen := th.tree, map[string]bool{} // seen: nonsense must not go round for ever
	for into := &first; th != nil && th.tree == t && !th.isRoot() && !seen[th.id]; {
		seen[th.id] = true
		*into = &subagentRef{thread: th.id, name: th.name, role: th.role}
		into = &(*into).via
		th = tab.threads[th.parent]
	}
	return first
}

// callTurn registers a turn/start, before it is sent. busy is the turn that still runs there: Codex would steer it
// (0.148 and later) or lose the new one (0.104).
func (tab *threadTable) callTurn(root string, op opID, act turnAction) (t *threadTree, busy string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if t = tab.treeLocked(root); t == nil {
		return nil, ""
	}
	if run := tab.running[root]; run != "" {
		return t, run
	}
	if t.call != nil {
		return t, "whose start is not answered yet"
	}
	t.call, t.action = &turnCall{op: op}, act
	t.stopping, t.cleans, t.lost, t.answered = false, false, false, false
	return t, ""
}

// endLostTurn takes the child's word that nothing runs on a root. It returns
// the tree whose lost turn that ends, nil if it lost none.
func (tab *threadTable) endLostTurn(root string) *threadTree {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	t := tab.treeLocked(root)
	if t == nil || !t.lost || tab.running[root] != "" {
		return nil
	}
	t.lost = false
	return t
}

// markInterrupted marks the tree as stopping and names what to stop: the root's turn ("" for whatever runs there) and
// the turns its subagents are known to run. cleans: the shells in its threads are stopped too.
func (tab *threadTable) markInterrupted(root, turn string, cleans bool) (stop []turnRef) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	t := tab.treeLocked(root)
	if t == nil {
		return nil
	}
	t.stopping, t.cleans = true, cleans
	run := tab.running[root]
	if turn == "" || turn == run || turn == t.turn {
		// A turn that was accepted but has not started yet is refused by its id (0.153, 0.169: "no active turn to
		// interrupt") and then runs on; "" reaches it.
		stop = append(stop, turnRef{root, run})
	}
	for _, id := range tab.idsLocked(t) {
		if id != root && tab.running[id] != "" {
			stop = append(stop, turnRef{id, tab.running[id]})
		}
	}
	return stop
}

// threadTree is one session's thread, the root, with its subagents' threads. The table's lock guards everything from
// opened on; what stands before is set before the tree is in the table, but root, which addTree sets of a new thread.
type threadTree struct {
	sink
	tab     *threadTable
	op      opID   // of the open
	session string // the client's own name for its session, for the log
	servers []byte // the MCP servers that the thread was opened with, JSON
	root    string // id of the session's own thread

	opened   bool            // events are delivered; before, only those of MCP servers
	rootEnds chan struct{}   // hears of each turn's end on the root, while a recovery waits; else nil
	action   turnAction      // what the root's turn is, or the one that it calls for
	call     *turnCall       // the turn/start that has no answer yet, nil for none
	turn     string          // the id that turn/start returned, until that turn ends
	over     string          // the turn that ended last on the root: what it says now may meet the next turn/start
	lost     bool            // turn/start had no answer: what ends next on the root is its turn
	stopping bool            // interrupted: whatever starts before the next turn is stopped too
	cleans   bool            // interrupted with its shells, of which Codex tells only after the turn's end
	answered bool            // the turn's answer has come as an item
	shells   map[string]bool // the commands that run in the tree's threads, by item
	heldEnd  *event          // the end of the interrupted turn, kept until the shells have ended; nil for none
}

// turnCall is a turn/start without an answer yet.
type turnCall struct {
	op    opID
	ended []event // the turn/completed that overtook the answer
}

// markOpened has the events of the tree delivered from here on.
func (t *threadTree) markOpened() {
	t.tab.mu.Lock()
	defer t.tab.mu.Unlock()
	t.opened = true
}

// watchEnds lets a recovery see the end of any turn on the tree's root.
func (t *threadTree) watchEnds() <-chan struct{} {
	t.tab.mu.Lock()
	defer t.tab.mu.Unlock()
	t.rootEnds = make(chan struct{}, 1)
	return t.rootEnds
}

// stillCalls reports that the tree is still there and calls for the turn of op.
func (t *threadTree) stillCalls(op opID) bool {
	t.tab.mu.Lock()
	defer t.tab.mu.Unlock()
	return t.tab.treeLocked(t.root) == t && t.call != nil && t.call.op == op
}

// answerTurn ends the call with the id that turn/start returned; "" when it failed. It returns what to deliver, and
// whether the turn was interrupted meanwhile.
func (t *threadTree) answerTurn(turn string, outcome event) (out []event, stop bool) {
	t.tab.mu.Lock()
	defer t.tab.mu.Unlock()
	c := t.call
	if c == nil || c.op != outcome.op {
		return nil, false
	}
	t.call = nil
	out = append(out, outcome)
	t.turn, t.lost = turn, outcome.unknown
	for _, e := range c.ended {
		if turn != "" && e.turn == turn {
			t.turn = ""
		} else {
			e = foreign(e)
		}
		out = append(out, e)
	}
	return out, t.stopping && t.turn != ""
}

// trackCompactionLocked takes an event of a root whose turn is a compaction, and returns what comes before the event.
func (t *threadTree) trackCompactionLocked(e event) []delivery {
	// From 0.148 on turn/started begins it, in 0.104 the item. Its end is
	// as good a beginning: it may be interrupted before it has any other.
	begins := e.method == "turn/started" || e.kind == evEnded || e.kind == evItem && e.body.kind == "contextCompaction"
	if t.call == nil || !begins {
		return nil
	}
	op := t.call.op
	t.call, t.turn = nil, e.turn
	if e.kind != evEnded {
		t.tab.running[t.root] = e.turn
	}
	return []delivery{{t: t, e: event{kind: evStarted, op: op, thread: t.root, turn: e.turn, must: true}}}
}

// endTurn takes the end of a turn on the root. It becomes one that ends nothing for the session if it isn't of the
// session's own turn; early: it overtook the answer to turn/start, and is kept until that says whose it is.
func (t *threadTree) endTurn(e event) (_ event, early bool) {
	if t.rootEnds != nil {
		select {
		case t.rootEnds <- struct{}{}:
		default:
		}
	}
	t.over = e.turn
	switch {
	case t.call != nil && e.turn != t.turn:
		t.call.ended = append(t.call.ended, e)
		return e, true
	case t.turn != "" && e.turn == t.turn:
		t.turn = ""
	case t.lost:
		t.lost = false
	default:
		e = foreign(e)
	}
	return e, false
}

// foreign is an event of a turn that isn't the session's running one, as the client is told it: the end of a
// subagent's turn, or of one that was thought lost, ends nothing for the session, and the late words of a turn that is
// over are nobody's answer.
func foreign(e event) event {
	return event{kind: evRaw, thread: e.thread, turn: e.turn, method: e.method, raw: e.raw}
}

// shellsGrace is how long the end of an interrupted turn waits for its shells: from 0.148 on they are dead some
// milliseconds after it, and then Codex tells what they had said.
const shellsGrace = 40 * time.Millisecond

// trackShell keeps the shells that run.
func (t *threadTree) trackShell(e event) {
	shell := e.thread + " " + e.item
	if e.phase == "completed" {
		delete(t.shells, shell)
		return
	}
	if t.shells == nil {
		t.shells = map[string]bool{}
	}
	t.shells[shell] = true
}

// mustHoldEnd reports an end that is told only after those of the shells.
func (t *threadTree) mustHoldEnd(e event) bool {
	return e.kind == evEnded && e.status == "interrupted" && t.cleans && t.opened &&
		t.heldEnd == nil && len(t.shells) > 0
}

// takeHeldEnd is the end that waited for the shells, nil while one of them runs.
func (t *threadTree) takeHeldEnd() *event {
	if len(t.shells) > 0 {
		return nil
	}
	e := t.heldEnd
	t.heldEnd = nil
	return e
}

// endOverdue lets the end of a turn go whose shells don't end in time.
func (t *threadTree) endOverdue(e *event) {
	t.tab.mu.Lock()
	waits := t.heldEnd == e
	if waits {
		t.heldEnd, t.shells = nil, nil
	}
	t.tab.mu.Unlock()
	if waits {
		t.tab.deliver(delivery{t: t, e: *e})
	}
}

// appThread is one thread of a tree. The table's lock guards it.
type appThread struct {
	id    string
	tree  *threadTree
	files map[string][]fileChange // of the patches begun and not completed, by item

	// What Codex told of a subagent's thread, "" where it told nothing: the thread that started it, its name, its role.
	parent, name, role string
}

func (th *appThread) isRoot() bool { return th.id == th.tree.root }

// trackPatch keeps the files of a patch while it is being made: the request that asks to approve it doesn't hold them.
func (th *appThread) trackPatch(e event) {
	if e.phase != "started" {
		delete(th.files, e.item)
		return
	}
	if th.files == nil {
		th.files = map[string][]fileChange{}
	}
	th.files[e.item] = e.body.files
}

// learnName takes what a thread/started tells of a subagent.
func (th *appThread) learnName(e event) {
	name, role := nicknameOf(e.raw)
	th.name, th.role, th.parent = cmp.Or(name, th.name), cmp.Or(role, th.role), cmp.Or(parentOf(e), th.parent)
}

// turnRef is a turn of a thread.
type turnRef struct{ thread, turn string }

func (r turnRef) params() any { return map[string]any{"threadId": r.thread, "turnId": r.turn} }

const (
	holdLimit    = time.Second // how long a thread's events wait for an owner
	maxHeldBytes = 4 << 20     // what may be held for all threads together
	heldOverhead = 4 << 10     // what an event counts for beside its params, so that there are never many
)

// unownedThreads is what came for threads that no tree has. The table's lock guards it.
type unownedThreads struct {
	overdue func(id string, u *unownedThread) // called by a timer after holdLimit, without the lock
	held    map[string]*unownedThread         // by thread
	bytes   int                               // the sizes of all items in held
}

// unownedThread is a thread that nobody owns yet.
type unownedThread struct {
	parent string // the thread that it is a subagent's of, as far as a thread/started told
	items  []delivery
	timer  *time.Timer
}

// heldSize is what something held counts for.
func heldSize(d delivery) int { return len(d.e.raw) + heldOverhead }

// hold keeps something for a while. false: that would be too much, and it is dropped.
func (us *unownedThreads) hold(id string, d delivery) bool {
	if us.bytes+heldSize(d) > maxHeldBytes {
		return false
	}
	u := us.held[id]
	if u == nil {
		u = &unownedThread{}
		us.held[id] = u
		u.timer = time.AfterFunc(holdLimit, func() { us.overdue(id, u) })
	}
	if parent := parentOf(d.e); parent != "" {
		u.parent = parent
	}
	u.items = append(u.items, d)
	us.bytes += heldSize(d)
	return true
}

// release returns what was held for a thread, which has an owner now or is given up.
func (us *unownedThreads) release(id string) []delivery {
	u := us.held[id]
	if u == nil {
		return nil
	}
	u.timer.Stop()
	delete(us.held, id)
	for _, d := range u.items {
		us.bytes -= heldSize(d)
	}
	return u.items
}

// childrenOf are the unowned threads that were told to be a thread's subagents.
func (us *unownedThreads) childrenOf(parent string) (ids []string) {
	for id, u := range us.held {
		if u.parent == parent {
			ids = append(ids, id)
		}
	}
	return ids
}
