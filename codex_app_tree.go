package main

// codex_app_tree.go owns what is known of one session's threads: its own, those
// of its subagents, and the turn that its own one runs. Only the table of
// codex_app_threads.go calls it, under its lock. It must never take anything but
// the end of the very turn that turn/start returned for the session's turn's end.

import (
	"cmp"
	"encoding/json"
	"time"
)

// threadTree is one session's thread with its subagents' threads. Everything but
// the sink is guarded by the table's lock.
type threadTree struct {
	sink
	op       opID // of the open
	root     string
	session  string // the client's own name for its session, for the log
	threads  map[string]*appThread
	opened   bool       // evOpened was put; what comes before is nobody's business
	call     *turnCall  // turn/start on its way
	turn     string     // the turn that turn/start returned, until it ends
	stopping bool       // interrupted: whatever starts before the next turn is stopped too
	lost     bool       // a turn/start had no answer: what ends next on the root is its turn
	answered bool       // its turn's answer has come as an item
	action   turnAction // what its turn is, or the one it calls for
	early    []event    // evServer from before opened was set: they come once
	servers  []byte     // the MCP servers that it was opened with
	cleans   bool       // its shells are being stopped too, which Codex tells only after the turn's end
	shells   map[shell]bool
	heldEnd  *event      // the end of its interrupted turn, until its shells have ended
	rootEnds chan string // gets the id of a turn that ended on the root, while a recovery waits
}

// endTurn takes the end of a turn on the root. It becomes one that ends nothing
// for the session if it isn't of the session's own turn; early: it overtook
// the answer to turn/start, and is kept until that says whose it is.
func (t *threadTree) endTurn(e event) (_ event, early bool) {
	if t.rootEnds != nil {
		select {
		case t.rootEnds <- e.turn:
		default:
		}
	}
	switch {
	case t.call != nil && e.turn != t.turn:
		t.call.ended = append(t.call.ended, e)
		return e, true
	case t.turn != "" && e.turn == t.turn:
		t.turn = ""
	case t.lost:
		t.lost = false
	default:
		e = notOurEnd(e)
	}
	return e, false
}

// shell is a command that runs in a thread.
type shell struct{ thread, item string }

// shellsGrace is how long the end of an interrupted turn waits for its shells:
// from 0.148 on they are dead some milliseconds after it, and then Codex tells
// what they had said.
const shellsGrace = 40 * time.Millisecond

// trackShell keeps the shells that run.
func (t *threadTree) trackShell(e event) {
	s := shell{e.thread, e.item}
	if e.phase == "completed" {
		delete(t.shells, s)
		return
	}
	if t.shells == nil {
		t.shells = map[shell]bool{}
	}
	t.shells[s] = true
}

// mustHoldEnd reports an end that is told only after those of the shells.
func (t *threadTree) mustHoldEnd(e event) bool {
	return e.kind == evEnded && e.status == "interrupted" && t.cleans && t.opened && t.heldEnd == nil && len(t.shells) > 0
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

// notOurEnd is the end of a turn that no turn/start of ours returned: a
// subagent's, or one that was thought lost. It ends nothing for the session.
func notOurEnd(e event) event {
	return event{kind: evRaw, thread: e.thread, turn: e.turn, method: e.method, raw: e.raw}
}

// turnCall is a turn/start without an answer yet.
type turnCall struct {
	op    opID
	ended []event // turn/completed that overtook the answer
}

// appThread is one thread of a tree.
type appThread struct {
	id    string
	tree  *threadTree
	files map[string][]fileChange // of patches begun and not completed, by item

	parent, name, role string // of a subagent's, as far as Codex told
}

func (th *appThread) isRoot() bool { return th.id == th.tree.root }

// trackPatch keeps the files of a patch while it is being made: the request that
// asks to approve it doesn't hold them.
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
func (th *appThread) learnName(params json.RawMessage) {
	if th.isRoot() {
		return
	}
	name, role := nicknameOf(params)
	th.name, th.role = cmp.Or(name, th.name), cmp.Or(role, th.role)
	th.parent = cmp.Or(parentOf(params), th.parent)
}

// subagent names a thread and those it was started by, nil for a root.
func (th *appThread) subagent() *subagentRef {
	var first *subagentRef
	for into := &first; th != nil && !th.isRoot(); {
		r := &subagentRef{thread: th.id, name: th.name, role: th.role}
		*into = r
		into = &r.via
		up := th.tree.threads[th.parent]
		for seen := first; seen != nil; seen = seen.via {
			if up != nil && seen.thread == up.id {
				up = nil // nonsense that would go round for ever
			}
		}
		th = up
	}
	return first
}

// turnRef is a turn of a thread.
type turnRef struct{ thread, turn string }

func (r turnRef) params() any { return map[string]any{"threadId": r.thread, "turnId": r.turn} }

// keepEarly takes from what was held for a thread the news of its MCP servers,
// which come once: they must not be lost while an earlier turn is stopped.
func (t *threadTree) keepEarly(items []heldItem) (rest []heldItem) {
	for _, it := range items {
		if it.req == nil && it.e.kind == evServer {
			t.early = append(t.early, it.e)
			continue
		}
		rest = append(rest, it)
	}
	return rest
}
