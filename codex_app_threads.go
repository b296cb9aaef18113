package main

// codex_app_threads.go owns which thread belongs to which session: the trees of
// all sessions of a child, the turns that run in their threads, and for a while
// what came for threads that nobody owns yet. The driver calls it from the reader,
// from timers and from sessions. It never calls a sink, the peer or anybody else
// under its lock, and never holds an event without a limit in time and in size,
// since a thread may stay nobody's for good.

import (
	"bytes"
	"sync"
	"time"
)

// unloadLimit is how long a thread that was let go is waited for.
const unloadLimit = 5 * time.Second

// leavingThread was let go, and the child has it still.
type unloadingThread struct {
	servers []byte        // the MCP servers that it runs with
	gone    chan struct{} // closed when it is no more, or overdue
}

// delivery is something to be done after the lock is released.
type delivery struct {
	t   *threadTree
	e   event
	req *message // a held request, to be put as an ask now
}

// threadTable has every thread of one child.
type threadTable struct {
	refuse  func(*message) // declines a request that stayed nobody's
	deliver func(delivery) // does what waited too long

	mu          sync.Mutex // guards the fields below and the trees' state
	dead        bool
	opening     map[*threadTree]bool
	trees       map[string]*threadTree // by root
	threads     map[string]*appThread
	unowned     unownedThreads
	turns       map[string]string // running turn by thread, whoever's it is
	reviewTurns map[string]string // by thread, the turn that has a running review's own end
	unloading   map[string]*unloadingThread
}

func newThreadTable(refuse func(*message), hand func(delivery)) *threadTable {
	f := &threadTable{refuse: refuse, deliver: hand, opening: map[*threadTree]bool{}, trees: map[string]*threadTree{}, threads: map[string]*appThread{},
		turns: map[string]string{}, reviewTurns: map[string]string{}, unloading: map[string]*unloadingThread{}}
	f.unowned = unownedThreads{overdue: f.dropUnowned, held: map[string]*unownedThread{}}
	return f
}

// addOpening registers a tree whose thread the child is asked for. false: the
// child is gone.
func (f *threadTable) addOpening(t *threadTree) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return false
	}
	f.opening[t] = true
	return true
}

// forget takes out a tree that was never opened.
func (f *threadTable) forget(t *threadTree) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.opening, t)
	if f.trees[t.root] == t {
		f.removeTreeLocked(t)
	}
}

// addTree gives the tree its thread. A tree that had it before (a session that
// recovers its thread doesn't unload it) is returned, cut off. What was held
// for the thread is returned for the time after evOpened.
func (f *threadTable) addTree(t *threadTree, id string) (old *threadTree, held []heldItem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.opening, t)
	if old = f.trees[id]; old != nil {
		f.removeTreeLocked(old)
	}
	delete(f.threads, id) // as a subthread of another tree
	t.root, t.threads = id, map[string]*appThread{}
	f.trees[id] = t
	f.addThreadLocked(t, id)
	return old, t.keepEarly(f.unowned.release(id))
}

func (f *threadTable) addThreadLocked(t *threadTree, id string) *appThread {
	th := &appThread{id: id, tree: t}
	t.threads[id], f.threads[id] = th, th
	return th
}

func (f *threadTable) removeTreeLocked(t *threadTree) {
	delete(f.trees, t.root)
	for id := range t.threads {
		if th := f.threads[id]; th != nil && th.tree == t {
			delete(f.threads, id)
		}
	}
}

// removeTree takes the tree of a root out and names its threads.
func (f *threadTable) removeTree(root string) (t *threadTree, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t = f.trees[root]; t == nil {
		return nil, nil
	}
	f.removeTreeLocked(t)
	for id := range t.threads {
		ids = append(ids, id)
	}
	return t, ids
}

// startUnload notes that the child was asked to unload the root of a tree.
func (f *threadTable) startUnload(t *threadTree) {
	l := &unloadingThread{servers: t.servers, gone: make(chan struct{})}
	f.mu.Lock()
	f.unloading[t.root] = l
	f.mu.Unlock()
	time.AfterFunc(unloadLimit, func() { f.endUnload(t.root, l) })
}

// endUnload notes that a thread is loaded no more. With only, that counts for
// this unloading alone; nil is whichever there is.
func (f *threadTable) endUnload(thread string, only *unloadingThread) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.unloading[thread]; l != nil && (only == nil || l == only) {
		delete(f.unloading, thread)
		close(l.gone)
	}
}

// unloadToAwait is what the opening of a thread with these MCP servers has to
// wait for, nil for nothing: Codex (0.169) opens a thread that is still loaded with those
// it has.
func (f *threadTable) unloadToAwait(thread string, servers []byte) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.unloading[thread]
	switch {
	case l == nil:
		return nil
	case bytes.Equal(l.servers, servers):
		delete(f.unloading, thread) // the thread stays loaded
		return nil
	}
	return l.gone
}

// markOpened marks the tree as opened: from here its events are delivered. The
// events that it returns come first; then it is to be called again.
func (f *threadTable) markOpened(t *threadTree) (early []event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	early, t.early = t.early, nil
	t.opened = len(early) == 0
	return early
}

// end empties the table: every tree gets its evGone from the caller.
func (f *threadTable) end() (all []*threadTree) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	for t := range f.opening {
		all = append(all, t)
	}
	for _, t := range f.trees {
		all = append(all, t)
	}
	f.unowned.end()
	clear(f.opening)
	clear(f.trees)
	clear(f.threads)
	return all
}

// assign routes one event to its owner: what to deliver, and which turns to stop.
func (f *threadTable) assign(e event) (out []delivery, stop []turnRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.assignLocked(f.threads[e.thread], e)
}

// owner is the tree that hears of a thread, nil if that is nobody or not yet
// somebody. Deltas, nearly all there is, need no more.
func (f *threadTable) owner(thread string) *threadTree {
	f.mu.Lock()
	defer f.mu.Unlock()
	if th := f.threads[thread]; th != nil && th.tree.opened {
		return th.tree
	}
	return nil
}

func (f *threadTable) assignLocked(th *appThread, e event) (out []delivery, stop []turnRef) {
	run := e.turn // the id by which Codex knows what runs
	if th != nil && th.isRoot() && th.tree.action != actPrompt {
		out, e, run = f.trackActionLocked(th.tree, e)
	}
	f.trackLocked(th, e, run)
	if th == nil {
		if e.method == "thread/started" {
			// 0.148 and later may name a subagent's parent right there.
			if p := parentOf(e.raw); p != "" && f.threads[p] != nil {
				return f.adoptLocked(f.threads[p].tree, e.thread, p, heldItem{e: e})
			}
		}
		f.unowned.hold(e.thread, heldItem{e: e})
		return nil, nil
	}
	t := th.tree
	switch {
	case e.kind == evItem && e.body.kind == "fileChange":
		th.trackPatch(e)
	case e.kind == evItem && e.body.kind == "commandExecution":
		t.trackShell(e)
	case e.kind == evItem && e.body.kind == "agentMessage" && th.isRoot():
		t.answered = t.answered || e.phase == "completed" && e.body.phase != "commentary"
	case e.method == "thread/started":
		th.learnName(e.raw)
	case e.method == "turn/started":
		if t.stopping && !(th.isRoot() && t.call != nil) {
			stop = append(stop, turnRef{e.thread, run})
		}
	case e.kind == evEnded:
		th.files = nil
		if th.isRoot() {
			if !t.answered {
				e.text = finalText(rawField(e.raw, "turn", "items"))
			}
			var early bool
			if e, early = t.endTurn(e); early {
				return nil, nil
			}
		} else {
			e = notOurEnd(e)
		}
	}
	switch {
	case t.mustHoldEnd(e):
		t.heldEnd = &e
		time.AfterFunc(shellsGrace, func() { f.endOverdue(t, &e) })
	case t.opened:
		out = append(out, delivery{t: t, e: e})
		if end := t.takeHeldEnd(); end != nil {
			out = append(out, delivery{t: t, e: *end})
		}
	case e.kind == evServer:
		t.early = append(t.early, e)
	}
	if e.kind == evItem && (e.body.kind == "collabAgentToolCall" || e.body.kind == "subAgentActivity") {
		for _, id := range subthreadsOf(e.raw) {
			more, stops := f.adoptLocked(t, id, th.id)
			if sub := f.threads[id]; sub != nil && sub.tree == t && sub.name == "" && id != t.root {
				sub.name = stringField(e.raw, "item", "agentPath")
			}
			out, stop = append(out, more...), append(stop, stops...)
		}
	}
	return out, stop
}

// endOverdue lets the end of a turn go whose shells don't end in time.
func (f *threadTable) endOverdue(t *threadTree, e *event) {
	f.mu.Lock()
	waits := t.heldEnd == e
	if waits {
		t.heldEnd, t.shells = nil, nil
	}
	f.mu.Unlock()
	if waits {
		f.deliver(delivery{t: t, e: *e})
	}
}

// trackLocked notes which turn runs in a thread, be it anybody's.
func (f *threadTable) trackLocked(th *appThread, e event, run string) {
	switch {
	case e.method == "turn/started":
		f.turns[e.thread] = run
	case e.method == "turn/completed" && (f.turns[e.thread] == e.turn || f.reviewTurns[e.thread] == e.turn):
		delete(f.turns, e.thread)
		delete(f.reviewTurns, e.thread)
	case e.kind == evItem && e.phase == "started" && e.turn != "" && f.turns[e.thread] == "" && (th == nil || !th.isRoot()):
		// 0.104 may begin to tell of a subagent's thread in mid turn.
		f.turns[e.thread] = e.turn
	}
}

// adoptLocked makes a thread part of a tree and releases what was held for
// it, and for what was held in its name.
func (f *threadTable) adoptLocked(t *threadTree, id, parent string, more ...heldItem) (out []delivery, stop []turnRef) {
	if f.threads[id] != nil || id == "" {
		return nil, nil // ours already, or somebody else's own thread
	}
	th := f.addThreadLocked(t, id)
	th.parent = parent
	if t.opened {
		out = append(out, delivery{t: t, e: event{kind: evSubthread, thread: t.root, text: id, must: true}})
	}
	if run := f.turns[id]; run != "" && t.stopping {
		stop = append(stop, turnRef{id, run})
	}
	run := f.turns[id]
	for _, it := range append(f.unowned.release(id), more...) {
		if it.req != nil {
			out = append(out, delivery{t: t, e: it.e, req: it.req})
			continue
		}
		o, _ := f.assignLocked(th, it.e) // what still runs was found above
		out = append(out, o...)
	}
	// The replay went through its turns again; what runs now is what ran before it.
	if run != "" {
		f.turns[id] = run
	} else {
		delete(f.turns, id)
	}
	for _, child := range f.unowned.childrenOf(id) {
		o, st := f.adoptLocked(t, child, id)
		out, stop = append(out, o...), append(stop, st...)
	}
	return out, stop
}

// dropUnowned drops what nobody claimed in time. Its requests are declined. While
// a thread/start is on its way (a required MCP server may make that slow) the
// events wait on, since they may be that thread's.
func (f *threadTable) dropUnowned(id string, s *unownedThread) {
	f.mu.Lock()
	var refused []*message
	switch {
	case f.unowned.held[id] != s: // claimed just now
	case len(f.opening) > 0:
		refused = f.unowned.extend(id)
	default:
		refused = requestsOf(f.unowned.release(id))
	}
	f.mu.Unlock()
	for _, m := range refused {
		f.refuse(m)
	}
}

// claimRequest finds the owner of a request. Without one the request is held; with
// one that isn't open it is to be refused.
func (f *threadTable) claimRequest(id string, m *message) (th *appThread, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	th = f.threads[id]
	if th == nil {
		return nil, f.unowned.hold(id, heldItem{e: event{thread: id, raw: m.params}, req: m})
	}
	if !th.tree.opened {
		return nil, false
	}
	return th, false
}

// filesOf are the files of a patch that was begun.
func (f *threadTable) filesOf(th *appThread, item string) []fileChange {
	f.mu.Lock()
	defer f.mu.Unlock()
	return th.files[item]
}

// subagentOf names a thread and those it was started by, nil for a root.
func (f *threadTable) subagentOf(th *appThread) *subagentRef {
	f.mu.Lock()
	defer f.mu.Unlock()
	return th.subagent()
}

// callTurn registers a turn/start, before it is sent. busy is the turn that
// still runs there: Codex would steer it (0.148 and later) or lose the new one
// (0.104).
func (f *threadTable) callTurn(root string, op opID, act turnAction) (t *threadTree, busy string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t = f.trees[root]; t == nil {
		return nil, ""
	}
	if run := f.turns[root]; run != "" {
		return t, run
	}
	if t.call != nil {
		return t, "whose start is not answered yet"
	}
	t.call, t.stopping, t.cleans, t.lost, t.answered, t.action = &turnCall{op: op}, false, false, false, false, act
	return t, ""
}

// answerTurn ends the call with the id that turn/start returned; "" when it
// failed. It returns what to deliver, and whether the turn was interrupted
// meanwhile.
func (f *threadTable) answerTurn(t *threadTree, turn string, outcome event) (out []event, stop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
			e = notOurEnd(e)
		}
		out = append(out, e)
	}
	return out, t.stopping && t.turn != ""
}

// endLostTurn takes the child's word that nothing runs on a root. It returns
// the tree whose lost turn that ends, nil if it lost none.
func (f *threadTable) endLostTurn(root string) *threadTree {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[root]
	if t == nil || !t.lost || f.turns[root] != "" {
		return nil
	}
	t.lost = false
	return t
}

// markInterrupted marks the tree as stopping and names what to stop: the root's
// turn ("" for whatever runs there) and the turns its subagents are known to
// run. threads are all of the tree's; cleans: the shells in them are stopped too.
func (f *threadTable) markInterrupted(root, turn string, cleans bool) (stop []turnRef, threads []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[root]
	if t == nil {
		return nil, nil
	}
	t.stopping, t.cleans = true, cleans
	run := f.turns[root]
	if turn == "" || turn == run || turn == t.turn {
		// A turn that was accepted but has not started yet is refused by its
		// id (0.153, 0.169: "no active turn to interrupt") and then runs on;
		// "" reaches it.
		stop = append(stop, turnRef{root, run})
	}
	for id := range t.threads {
		if f.threads[id] == nil || f.threads[id].tree != t {
			continue
		}
		threads = append(threads, id)
		if id != root && f.turns[id] != "" {
			stop = append(stop, turnRef{id, f.turns[id]})
		}
	}
	return stop, threads
}

// treeOf finds the tree that a thread belongs to, and all threads of it.
func (f *threadTable) treeOf(thread string) (t *threadTree, threads []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	th := f.threads[thread]
	if th == nil {
		return nil, nil
	}
	for id := range th.tree.threads {
		threads = append(threads, id)
	}
	return th.tree, threads
}

// runningTurn is the turn that runs in a thread, as far as we were told.
func (f *threadTable) runningTurn(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turns[id]
}

// watchEnds lets a recovery see the ends of turns on its root.
func (f *threadTable) watchEnds(t *threadTree) <-chan string {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.rootEnds = make(chan string, 4)
	return t.rootEnds
}

const (
	holdLimit    = time.Second
	maxHeld      = 1000    // events held for all unowned threads together
	maxHeldBytes = 4 << 20 // and their bytes
)

// unownedThreads are guarded by the table's lock.
type unownedThreads struct {
	overdue func(id string, s *unownedThread) // called by a timer after holdLimit, without the lock

	held  map[string]*unownedThread // by thread
	count int
	bytes int
	over  bool // the child is gone
}

// unownedThread is a thread that nobody owns yet.
type unownedThread struct {
	parent string // as far as a thread/started told
	items  []heldItem
	timer  *time.Timer
}

// heldItem is an event, or a request if req is set.
type heldItem struct {
	e   event
	req *message
}

func (it heldItem) size() int { return len(it.e.raw) + 64 }

// hold keeps something for a while. false: it is over the limits, and not held.
func (l *unownedThreads) hold(id string, it heldItem) bool {
	if l.over || l.count >= maxHeld || l.bytes+it.size() > maxHeldBytes {
		return false
	}
	s := l.held[id]
	if s == nil {
		s = &unownedThread{}
		l.held[id] = s
		l.startTimer(id, s)
	}
	if it.e.method == "thread/started" {
		s.parent = parentOf(it.e.raw)
	}
	s.items = append(s.items, it)
	l.count, l.bytes = l.count+1, l.bytes+it.size()
	return true
}

func (l *unownedThreads) startTimer(id string, s *unownedThread) {
	s.timer = time.AfterFunc(holdLimit, func() { l.overdue(id, s) })
}

// release returns what was held for a thread, which has an owner now or is given up.
func (l *unownedThreads) release(id string) []heldItem {
	s := l.held[id]
	if s == nil {
		return nil
	}
	s.timer.Stop()
	delete(l.held, id)
	for _, it := range s.items {
		l.count, l.bytes = l.count-1, l.bytes-it.size()
	}
	return s.items
}

// extend holds a thread's events for another while, and returns its requests,
// which have waited long enough.
func (l *unownedThreads) extend(id string) []*message {
	s := l.held[id]
	kept := s.items[:0:0]
	for _, it := range s.items {
		if it.req != nil {
			l.count, l.bytes = l.count-1, l.bytes-it.size()
			continue
		}
		kept = append(kept, it)
	}
	refused := requestsOf(s.items)
	s.items = kept
	l.startTimer(id, s)
	return refused
}

// childrenOf are the unowned threads that were told to be a thread's subagents.
func (l *unownedThreads) childrenOf(parent string) (ids []string) {
	for id, s := range l.held {
		if s.parent == parent {
			ids = append(ids, id)
		}
	}
	return ids
}

// end drops all, since who would answer or be answered is gone.
func (l *unownedThreads) end() {
	for id := range l.held {
		l.release(id)
	}
	l.over = true
}

func requestsOf(items []heldItem) (list []*message) {
	for _, it := range items {
		if it.req != nil {
			list = append(list, it.req)
		}
	}
	return list
}

// stillCalls reports that a tree is still there and calls for the turn of op.
func (f *threadTable) stillCalls(t *threadTree, op opID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trees[t.root] == t && t.call != nil && t.call.op == op
}

// trackActionLocked takes an event of a root whose turn answers no prompt. It returns
// what comes before it, the event as the session knows it, and the id by which
// Codex knows what runs.
func (f *threadTable) trackActionLocked(t *threadTree, e event) (out []delivery, _ event, run string) {
	run = e.turn
	switch t.action {
	case actCompact:
		// From 0.148 on turn/started begins it, in 0.104 the item. Its end is
		// as good a beginning: it may be interrupted before it has any other.
		begins := e.method == "turn/started" || e.kind == evEnded || e.kind == evItem && e.body.kind == "contextCompaction"
		if t.call == nil || !begins {
			break
		}
		out = append(out, delivery{t: t, e: event{kind: evStarted, op: t.call.op, thread: t.root, turn: e.turn, must: true}})
		t.call, t.turn = nil, e.turn
		if e.kind != evEnded {
			f.turns[t.root] = e.turn
		}
	case actReview:
		// From 0.148 on a review runs under an id of its own (0.169 names the
		// turn's in rootTurnId, 0.153 nowhere); only an interrupt wants it. All
		// else that is said of it, and its end, goes by the turn's.
		if e.method == "turn/started" && t.turn != "" && e.turn != t.turn {
			f.reviewTurns[t.root], e.turn = t.turn, t.turn
		}
	case actPrompt:
	}
	return out, e, run
}
