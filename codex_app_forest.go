package main

// codex_app_forest.go owns which thread belongs to which session: the trees of
// all sessions of a child, and the turns that run in their threads, known and
// unknown. The driver calls it from the reader, from timers and from sessions.
// It never calls a sink, the peer or anybody else under its lock.

import (
	"bytes"
	"sync"
	"time"
)

// unloadLimit is how long a thread that was let go is waited for.
const unloadLimit = 5 * time.Second

// leavingThread was let go, and the child has it still.
type leavingThread struct {
	servers []byte        // the MCP servers that it runs with
	gone    chan struct{} // closed when it is no more, or overdue
}

// delivery is something to be done after the lock is released.
type delivery struct {
	t   *tree
	th  *appThread
	e   event
	req *message // a held request, to be put as an ask now
}

// forest is every thread of one child.
type forest struct {
	refuse func(*message) // declines a request that stayed nobody's
	hand   func(delivery) // does what waited too long

	mu      sync.Mutex // guards the fields below and the trees' state
	dead    bool
	opening map[*tree]bool
	trees   map[string]*tree // by root
	threads map[string]*appThread
	strays  strays
	runs    map[string]string // running turn by thread, whoever's it is
	around  map[string]string // by thread, the turn that has a running review's own end
	leaving map[string]*leavingThread
}

func newForest(refuse func(*message), hand func(delivery)) *forest {
	f := &forest{refuse: refuse, hand: hand, opening: map[*tree]bool{}, trees: map[string]*tree{}, threads: map[string]*appThread{},
		runs: map[string]string{}, around: map[string]string{}, leaving: map[string]*leavingThread{}}
	f.strays = strays{expire: f.expire, held: map[string]*stray{}}
	return f
}

// announce registers a tree whose thread the child is asked for. false: the
// child is gone.
func (f *forest) announce(t *tree) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return false
	}
	f.opening[t] = true
	return true
}

// withdraw forgets a tree that was never opened.
func (f *forest) withdraw(t *tree) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.opening, t)
	if f.trees[t.root] == t {
		f.fellLocked(t)
	}
}

// plant gives the tree its thread. A tree that had it before (a session that
// recovers its thread doesn't unload it) is returned, cut off. What was held
// for the thread is returned for the time after evOpened.
func (f *forest) plant(t *tree, id string) (old *tree, held []strayItem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.opening, t)
	if old = f.trees[id]; old != nil {
		f.fellLocked(old)
	}
	delete(f.threads, id) // as a subthread of another tree
	t.root, t.threads = id, map[string]*appThread{}
	f.trees[id] = t
	f.growLocked(t, id)
	return old, t.keepEarly(f.strays.take(id))
}

func (f *forest) growLocked(t *tree, id string) *appThread {
	th := &appThread{id: id, tree: t}
	t.threads[id], f.threads[id] = th, th
	return th
}

func (f *forest) fellLocked(t *tree) {
	delete(f.trees, t.root)
	for id := range t.threads {
		if th := f.threads[id]; th != nil && th.tree == t {
			delete(f.threads, id)
		}
	}
}

// fell takes the tree of a root out and names its threads.
func (f *forest) fell(root string) (t *tree, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t = f.trees[root]; t == nil {
		return nil, nil
	}
	f.fellLocked(t)
	for id := range t.threads {
		ids = append(ids, id)
	}
	return t, ids
}

// leaves notes that the child was asked to unload the root of a tree.
func (f *forest) leaves(t *tree) {
	l := &leavingThread{servers: t.servers, gone: make(chan struct{})}
	f.mu.Lock()
	f.leaving[t.root] = l
	f.mu.Unlock()
	time.AfterFunc(unloadLimit, func() { f.left(t.root, l) })
}

// left: a thread is loaded no more; only: if it is that leave of it.
func (f *forest) left(thread string, only *leavingThread) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.leaving[thread]; l != nil && (only == nil || l == only) {
		delete(f.leaving, thread)
		close(l.gone)
	}
}

// returns is what the opening of a thread with these MCP servers has to wait
// for, nil for nothing: Codex (0.169) opens a thread that is still loaded with those
// it has.
func (f *forest) returns(thread string, servers []byte) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.leaving[thread]
	switch {
	case l == nil:
		return nil
	case bytes.Equal(l.servers, servers):
		delete(f.leaving, thread) // it stays
		return nil
	}
	return l.gone
}

// open marks the tree as opened: from here its events are delivered. Those that
// it returns come first; then it is to be called again.
func (f *forest) open(t *tree) (early []event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	early, t.early = t.early, nil
	t.opened = len(early) == 0
	return early
}

// end empties the forest: every tree gets its evGone from the caller.
func (f *forest) end() (all []*tree) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	for t := range f.opening {
		all = append(all, t)
	}
	for _, t := range f.trees {
		all = append(all, t)
	}
	f.strays.end()
	clear(f.opening)
	clear(f.trees)
	clear(f.threads)
	return all
}

// take routes one event: what to deliver, and which turns to stop.
func (f *forest) take(e event) (out []delivery, stop []turnRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeLocked(f.threads[e.thread], e)
}

// owner is the tree that hears of a thread, nil if that is nobody or not yet
// somebody. Deltas, nearly all there is, need no more.
func (f *forest) owner(thread string) *tree {
	f.mu.Lock()
	defer f.mu.Unlock()
	if th := f.threads[thread]; th != nil && th.tree.opened {
		return th.tree
	}
	return nil
}

func (f *forest) takeLocked(th *appThread, e event) (out []delivery, stop []turnRef) {
	run := e.turn // the id by which Codex knows what runs
	if th != nil && th.isRoot() && th.tree.act != actPrompt {
		out, e, run = f.actionLocked(th.tree, e)
	}
	f.trackLocked(th, e, run)
	if th == nil {
		if e.method == "thread/started" {
			// 0.148 and later may name a subagent's parent right there.
			if p := parentOf(e.raw); p != "" && f.threads[p] != nil {
				return f.adoptLocked(f.threads[p].tree, e.thread, p, strayItem{e: e})
			}
		}
		f.strays.hold(e.thread, strayItem{e: e})
		return nil, nil
	}
	t := th.tree
	switch {
	case e.kind == evItem && e.body.kind == "fileChange":
		th.patch(e)
	case e.kind == evItem && e.body.kind == "commandExecution":
		t.runs(e)
	case e.kind == evItem && e.body.kind == "agentMessage" && th.isRoot():
		t.said = t.said || e.phase == "completed" && e.body.phase != "commentary"
	case e.method == "thread/started":
		th.named(e.raw)
	case e.method == "turn/started":
		if t.stop && !(th.isRoot() && t.call != nil) {
			stop = append(stop, turnRef{e.thread, run})
		}
	case e.kind == evEnded:
		th.files = nil
		if th.isRoot() {
			if !t.said {
				e.text = finalText(rawField(e.raw, "turn", "items"))
			}
			var early bool
			if e, early = t.ended(e); early {
				return nil, nil
			}
		} else {
			e = notOurEnd(e)
		}
	}
	switch {
	case t.waits(e):
		t.parting = &e
		time.AfterFunc(shellsGrace, func() { f.part(t, &e) })
	case t.opened:
		out = append(out, delivery{t: t, th: th, e: e})
		if end := t.parts(); end != nil {
			out = append(out, delivery{t: t, th: f.threads[t.root], e: *end})
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

// part lets the end of a turn go whose shells don't end in time.
func (f *forest) part(t *tree, e *event) {
	f.mu.Lock()
	waits := t.parting == e
	if waits {
		t.parting, t.shells = nil, nil
	}
	f.mu.Unlock()
	if waits {
		f.hand(delivery{t: t, e: *e})
	}
}

// trackLocked notes which turn runs in a thread, be it anybody's.
func (f *forest) trackLocked(th *appThread, e event, run string) {
	switch {
	case e.method == "turn/started":
		f.runs[e.thread] = run
	case e.method == "turn/completed" && (f.runs[e.thread] == e.turn || f.around[e.thread] == e.turn):
		delete(f.runs, e.thread)
		delete(f.around, e.thread)
	case e.kind == evItem && e.phase == "started" && e.turn != "" && f.runs[e.thread] == "" && (th == nil || !th.isRoot()):
		// 0.104 may begin to tell of a subagent's thread in mid turn.
		f.runs[e.thread] = e.turn
	}
}

// adoptLocked makes a thread part of a tree and releases what was held for
// it, and for what was held in its name.
func (f *forest) adoptLocked(t *tree, id, parent string, more ...strayItem) (out []delivery, stop []turnRef) {
	if f.threads[id] != nil || id == "" {
		return nil, nil // ours already, or somebody else's own thread
	}
	th := f.growLocked(t, id)
	th.parent = parent
	if t.opened {
		out = append(out, delivery{t: t, th: th, e: event{kind: evSubthread, thread: t.root, text: id, must: true}})
	}
	if run := f.runs[id]; run != "" && t.stop {
		stop = append(stop, turnRef{id, run})
	}
	run := f.runs[id]
	for _, it := range append(f.strays.take(id), more...) {
		if it.req != nil {
			out = append(out, delivery{t: t, th: th, e: it.e, req: it.req})
			continue
		}
		o, _ := f.takeLocked(th, it.e) // what still runs was found above
		out = append(out, o...)
	}
	// The replay went through its turns again; what runs now is what ran before it.
	if run != "" {
		f.runs[id] = run
	} else {
		delete(f.runs, id)
	}
	for _, child := range f.strays.childrenOf(id) {
		o, st := f.adoptLocked(t, child, id)
		out, stop = append(out, o...), append(stop, st...)
	}
	return out, stop
}

// expire drops what nobody claimed in time. Its requests are declined. While
// a thread/start is on its way (a required MCP server may make that slow) the
// events wait on, since they may be that thread's.
func (f *forest) expire(id string, s *stray) {
	f.mu.Lock()
	var refused []*message
	switch {
	case f.strays.held[id] != s: // claimed just now
	case len(f.opening) > 0:
		refused = f.strays.holdOn(id)
	default:
		refused = requestsOf(f.strays.take(id))
	}
	f.mu.Unlock()
	for _, m := range refused {
		f.refuse(m)
	}
}

// claim finds the owner of a request. Without one the request is held; with
// one that isn't open it is to be refused.
func (f *forest) claim(id string, m *message) (th *appThread, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	th = f.threads[id]
	if th == nil {
		return nil, f.strays.hold(id, strayItem{e: event{thread: id, raw: m.params}, req: m})
	}
	if !th.tree.opened {
		return nil, false
	}
	return th, false
}

// filesOf are the files of a patch that was begun.
func (f *forest) filesOf(th *appThread, item string) []fileChange {
	f.mu.Lock()
	defer f.mu.Unlock()
	return th.files[item]
}

// subagentOf names a thread and those it was started by, nil for a root.
func (f *forest) subagentOf(th *appThread) *subagentRef {
	f.mu.Lock()
	defer f.mu.Unlock()
	return th.subagent()
}

// begin registers a turn/start, before it is sent. busy is the turn that
// still runs there: Codex would steer it (0.148 and later) or lose the new one
// (0.104).
func (f *forest) begin(root string, op opID, act turnAction) (t *tree, busy string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t = f.trees[root]; t == nil {
		return nil, ""
	}
	if run := f.runs[root]; run != "" {
		return t, run
	}
	if t.call != nil {
		return t, "whose start is not answered yet"
	}
	t.call, t.stop, t.cleans, t.lost, t.said, t.act = &turnCall{op: op}, false, false, false, false, act
	return t, ""
}

// began ends the call with the id that turn/start returned; "" when it
// failed. It returns what to deliver, and whether the turn was interrupted
// meanwhile.
func (f *forest) began(t *tree, turn string, outcome event) (out []event, stop bool) {
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
	return out, t.stop && t.turn != ""
}

// nothingRuns takes the child's word that nothing runs on a root. It returns
// the tree whose lost turn that ends, nil if it lost none.
func (f *forest) nothingRuns(root string) *tree {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[root]
	if t == nil || !t.lost || f.runs[root] != "" {
		return nil
	}
	t.lost = false
	return t
}

// interrupt marks the tree as stopping and names what to stop: the root's
// turn ("" for whatever runs there) and the turns its subagents are known to
// run. threads are all of the tree's; cleans: the shells in them are stopped too.
func (f *forest) interrupt(root, turn string, cleans bool) (stop []turnRef, threads []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[root]
	if t == nil {
		return nil, nil
	}
	t.stop, t.cleans = true, cleans
	run := f.runs[root]
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
		if id != root && f.runs[id] != "" {
			stop = append(stop, turnRef{id, f.runs[id]})
		}
	}
	return stop, threads
}

// tree finds the tree that a thread belongs to, and all threads of it.
func (f *forest) tree(thread string) (t *tree, threads []string) {
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

// running is the turn that runs in a thread, as far as we were told.
func (f *forest) running(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.runs[id]
}

// watch lets a recovery see the ends of turns on its root.
func (f *forest) watch(t *tree) <-chan string {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.quiet = make(chan string, 4)
	return t.quiet
}
