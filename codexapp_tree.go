package main

// codexapp_tree.go owns which thread belongs to which session: the trees of a
// session's thread and its subagents' threads, the turns that run in them, the
// events of threads that nobody has named yet, and the order in which a sink
// hears of it all. The driver calls it from the reader, from timers and from
// sessions. It never calls a sink, the peer or anybody else under its lock.

import (
	"sync"
	"time"
)

// sink delivers to one session, in order and one at a time, whoever puts: who
// comes while somebody else delivers leaves his event there and goes on.
type sink struct {
	to func(event)

	mu     sync.Mutex // guards the fields below; not held while to runs
	queue  []event
	busy   bool
	closed bool
}

// put delivers e. After last or cut it does nothing.
func (s *sink) put(e event) { s.deliver(e, false) }

// last delivers e as the last event of all.
func (s *sink) last(e event) { s.deliver(e, true) }

func (s *sink) deliver(e event, last bool) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = last
	if s.busy {
		s.queue = append(s.queue, e)
		s.mu.Unlock()
		return
	}
	s.busy = true
	for {
		s.mu.Unlock()
		s.to(e)
		s.mu.Lock()
		if len(s.queue) == 0 {
			break
		}
		e = s.queue[0]
		s.queue = s.queue[1:]
	}
	s.busy, s.queue = false, nil
	s.mu.Unlock()
}

// cut ends the sink without a word; an event that is just being delivered may
// still arrive.
func (s *sink) cut() {
	s.mu.Lock()
	s.closed, s.queue = true, nil
	s.mu.Unlock()
}

// tree is one session's thread with its subagents' threads. Everything but
// the sink is guarded by the forest's lock.
type tree struct {
	sink
	op      opID // of the open
	root    string
	threads map[string]*appThread
	opened  bool        // evOpened was put; what comes before is nobody's business
	call    *turnCall   // turn/start on its way
	turn    string      // the turn that turn/start returned, until it ends
	stop    bool        // interrupted: whatever starts before the next turn is stopped too
	lost    bool        // a turn/start had no answer: what ends next on the root is its turn
	act     turnAction  // what its turn is, or the one it calls for
	early   []event     // evServer from before opened was set: they come once
	quiet   chan string // gets the id of a turn that ended on the root, while a recovery waits
}

// turnCall is a turn/start without an answer yet.
type turnCall struct {
	op    opID
	ended []event // turn/completed that overtook the answer
}

// appThread is one thread of a tree.
type appThread struct {
	id    string
	tree  *tree
	files map[string][]fileChange // of patches begun and not completed, by item

	parent, name, role string // of a subagent's, as far as Codex told
}

// stray is a thread that nobody owns yet: a subagent's before its parent's
// item names it, or one whose thread/start is not answered yet.
type stray struct {
	parent string
	items  []strayItem
	timer  *time.Timer
}

// strayItem is an event, or a request if req is set.
type strayItem struct {
	e   event
	req *message
}

// turnRef is a turn of a thread.
type turnRef struct{ thread, turn string }

// delivery is something to be done after the lock is released.
type delivery struct {
	t   *tree
	th  *appThread
	e   event
	req *message // a held request, to be put as an ask now
}

const (
	strayHold  = time.Second
	strayCount = 1000    // events held of all strays together
	strayBytes = 4 << 20 // and their bytes
)

// forest is every thread of one child.
type forest struct {
	refuse func(*message) // declines a request that stayed nobody's

	mu      sync.Mutex // guards the fields below and the trees' state
	dead    bool
	opening map[*tree]bool
	trees   map[string]*tree // by root
	threads map[string]*appThread
	strays  map[string]*stray
	count   int
	bytes   int
	runs    map[string]string // running turn by thread, whoever's it is
	around  map[string]string // by thread, the turn that has a running review's own end
}

func newForest(refuse func(*message)) *forest {
	return &forest{refuse: refuse, opening: map[*tree]bool{}, trees: map[string]*tree{}, threads: map[string]*appThread{},
		strays: map[string]*stray{}, runs: map[string]string{}, around: map[string]string{}}
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
	if s := f.strays[id]; s != nil {
		held = t.keepEarly(s.items)
		f.forgetLocked(id, s)
	}
	return old, held
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
	for id, s := range f.strays {
		f.forgetLocked(id, s)
	}
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
	run := e.turn
	if th != nil && th.id == th.tree.root && th.tree.act != actPrompt {
		out, e, run = f.actionLocked(th.tree, e)
	}
	switch {
	case e.method == "turn/started":
		f.runs[e.thread] = run
	case e.method == "turn/completed" && (f.runs[e.thread] == e.turn || f.around[e.thread] == e.turn):
		delete(f.runs, e.thread)
		delete(f.around, e.thread)
	case e.kind == evItem && e.phase == "started" && e.turn != "" && f.runs[e.thread] == "" && (th == nil || th.id != th.tree.root):
		// 0.104 may begin to tell of a subagent's thread in mid turn.
		f.runs[e.thread] = e.turn
	}
	if th == nil {
		if e.method == "thread/started" {
			// 0.148 and later may name a subagent's parent right there.
			if p := parentOf(e.raw); p != "" && f.threads[p] != nil {
				return f.adoptLocked(f.threads[p].tree, e.thread, p, strayItem{e: e})
			}
		}
		f.holdLocked(e.thread, strayItem{e: e})
		return nil, nil
	}
	t := th.tree
	isRoot := th.id == t.root
	switch {
	case e.kind == evItem && e.body.kind == "fileChange":
		if e.phase == "started" {
			if th.files == nil {
				th.files = map[string][]fileChange{}
			}
			th.files[e.item] = e.body.files
		} else {
			delete(th.files, e.item)
		}
	case e.method == "thread/started":
		th.named(e.raw)
	case e.method == "turn/started":
		if t.stop && !(isRoot && t.call != nil) {
			stop = append(stop, turnRef{e.thread, run})
		}
	case e.kind == evEnded:
		th.files = nil
		if isRoot && t.quiet != nil {
			select {
			case t.quiet <- e.turn:
			default:
			}
		}
		switch {
		case isRoot && t.call != nil && e.turn != t.turn:
			t.call.ended = append(t.call.ended, e)
			return nil, nil
		case isRoot && t.turn != "" && e.turn == t.turn:
			t.turn = ""
		case isRoot && t.lost:
			t.lost = false
		default:
			e = notOurEnd(e)
		}
	}
	if t.opened {
		out = append(out, delivery{t: t, th: th, e: e})
	} else if e.kind == evServer {
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

// notOurEnd is the end of a turn that no turn/start of ours returned: a
// subagent's, or one that was thought lost. It ends nothing for the session.
func notOurEnd(e event) event {
	return event{kind: evRaw, thread: e.thread, turn: e.turn, method: e.method, raw: e.raw}
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
	var items []strayItem
	if s := f.strays[id]; s != nil {
		items = s.items
		f.forgetLocked(id, s)
	}
	run := f.runs[id]
	for _, it := range append(items, more...) {
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
	for child, s := range f.strays {
		if s.parent == id {
			o, st := f.adoptLocked(t, child, id)
			out, stop = append(out, o...), append(stop, st...)
		}
	}
	return out, stop
}

// holdLocked keeps something of an unknown thread for a while; over the
// limits it is not held.
func (f *forest) holdLocked(id string, it strayItem) bool {
	size := len(it.e.raw) + 64
	if f.dead || f.count >= strayCount || f.bytes+size > strayBytes {
		return false
	}
	s := f.strays[id]
	if s == nil {
		s = &stray{}
		f.strays[id] = s
		s.timer = time.AfterFunc(strayHold, func() { f.expire(id, s) })
	}
	if it.e.method == "thread/started" {
		s.parent = parentOf(it.e.raw)
	}
	s.items = append(s.items, it)
	f.count, f.bytes = f.count+1, f.bytes+size
	return true
}

func (f *forest) forgetLocked(id string, s *stray) {
	s.timer.Stop()
	delete(f.strays, id)
	for _, it := range s.items {
		f.count, f.bytes = f.count-1, f.bytes-len(it.e.raw)-64
	}
}

// expire drops what nobody claimed in time. Its requests are declined. While
// a thread/start is on its way (a required MCP server may make that slow) the
// events wait on, since they may be that thread's.
func (f *forest) expire(id string, s *stray) {
	f.mu.Lock()
	if f.strays[id] != s {
		f.mu.Unlock()
		return
	}
	var refused []*message
	if len(f.opening) > 0 {
		kept := s.items[:0:0]
		for _, it := range s.items {
			if it.req != nil {
				refused = append(refused, it.req)
				f.count, f.bytes = f.count-1, f.bytes-len(it.e.raw)-64
				continue
			}
			kept = append(kept, it)
		}
		s.items = kept
		s.timer = time.AfterFunc(strayHold, func() { f.expire(id, s) })
	} else {
		f.forgetLocked(id, s)
		for _, it := range s.items {
			if it.req != nil {
				refused = append(refused, it.req)
			}
		}
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
		return nil, f.holdLocked(id, strayItem{e: event{thread: id, raw: m.params}, req: m})
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
	t.call, t.stop, t.lost, t.act = &turnCall{op: op}, false, false, act
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
// run. threads are all of the tree's.
func (f *forest) interrupt(root, turn string) (stop []turnRef, threads []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[root]
	if t == nil {
		return nil, nil
	}
	t.stop = true
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
