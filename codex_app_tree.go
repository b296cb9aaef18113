package main

// codex_app_tree.go owns what is known of one session's threads: its own, those
// of its subagents, and the turn that its own thread runs. Only the table of
// codex_app_threads.go calls it, under its lock. The session's turn has
// ended when the very turn ends that turn/start returned; nothing else may be taken for that end.

import (
	"cmp"
	"time"
)

// threadTree is one session's thread, the root, with its subagents' threads. The
// table's lock guards everything from opened on; what stands before is set before
// the tree is in the table, but root, which addTree sets of a new thread.
type threadTree struct {
	sink
	op      opID   // of the open
	session string // the client's own name for its session, for the log
	servers []byte // the MCP servers that the thread was opened with, JSON
	root    string // id of the session's own thread

	opened   bool            // events are delivered; before, only those of MCP servers
	rootEnds chan struct{}   // hears of each turn's end on the root, while a recovery waits; else nil
	action   turnAction      // what the root's turn is, or the one that it calls for
	call     *turnCall       // the turn/start that has no answer yet, nil for none
	turn     string          // the id that turn/start returned, until that turn ends
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

// endTurn takes the end of a turn on the root. It becomes one that ends nothing
// for the session if it isn't of the session's own turn; early: it overtook
// the answer to turn/start, and is kept until that says whose it is.
func (t *threadTree) endTurn(e event) (_ event, early bool) {
	if t.rootEnds != nil {
		select {
		case t.rootEnds <- struct{}{}:
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
		e = foreignEnd(e)
	}
	return e, false
}

// foreignEnd is the end of a turn that no turn/start of ours returned: a
// subagent's, or one that was thought lost. It ends nothing for the session.
func foreignEnd(e event) event {
	return event{kind: evRaw, thread: e.thread, turn: e.turn, method: e.method, raw: e.raw}
}

// shellsGrace is how long the end of an interrupted turn waits for its shells:
// from 0.148 on they are dead some milliseconds after it, and then Codex tells
// what they had said.
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

// appThread is one thread of a tree. The table's lock guards it.
type appThread struct {
	id    string
	tree  *threadTree
	files map[string][]fileChange // of the patches begun and not completed, by item

	// What Codex told of a subagent's thread, "" where it told nothing: the thread
	// that started it, its name, its role.
	parent, name, role string
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
func (th *appThread) learnName(e event) {
	name, role := nicknameOf(e.raw)
	th.name, th.role, th.parent = cmp.Or(name, th.name), cmp.Or(role, th.role), cmp.Or(parentOf(e), th.parent)
}

// turnRef is a turn of a thread.
type turnRef struct{ thread, turn string }

func (r turnRef) params() any { return map[string]any{"threadId": r.thread, "turnId": r.turn} }
