package main

// approval.go owns the neutral form of what Codex asks before it acts, and of
// the decision. The drivers translate to and from their wire, the session
// keeps what is pending and its timer, the fronts ask somebody. The default
// is always to deny: on timeout, disconnect, nonsense (FR-18).

import (
	"sort"
	"time"
)

// decision is the answer to an approval. Only an explicit yes approves.
type decision int

const (
	deny decision = iota
	approve
	approveForSession
)

func (d decision) String() string {
	switch d {
	case approve:
		return "approve"
	case approveForSession:
		return "approve_for_session"
	}
	return "deny"
}

// Kinds of approval.
const (
	askCommand     = "command"
	askFileChange  = "file_change"
	askPermissions = "permissions"
	askMCPTool     = "mcp_tool"
	askQuestion    = "question"
	askUnknown     = "unknown" // a kind this version doesn't know: always declined
)

// approval is one open question of the child.
type approval struct {
	id     string // unique in this process
	kind   string
	method string // the child's own word
	thread string // the session's thread or a subagent's
	turn   string
	item   string
	// action is the exact command line, the list of files or the tool and its
	// arguments: what an approver must have seen.
	action  string
	command string
	cwd     string
	files   []fileChange
	reason  string
	// questions of an askQuestion, by id.
	questions []question
}

// question is one thing a user is asked; options may be empty.
type question struct {
	id, header, text string
	options          []string
}

// declined is what the turn's result tells of an action that was not done.
type declined struct {
	Kind   string `json:"kind"`
	Action string `json:"action"`
	Reason string `json:"reason"` // why: client, timeout, nobody to ask, …
}

// pendingAsk is an approval nobody has decided yet.
type pendingAsk struct {
	approval
	since time.Time
	timer *time.Timer
}

// askBook keeps a session's pending approvals. Only the session loop touches
// it; the timer lives here, in the core, so that no client can keep a turn
// waiting (FR-18.4).
type askBook struct{ pending map[string]*pendingAsk }

// add keeps an approval and calls expired from a timer's goroutine unless it
// is taken within timeout.
func (b *askBook) add(q approval, timeout time.Duration, expired func()) {
	if b.pending == nil {
		b.pending = map[string]*pendingAsk{}
	}
	p := &pendingAsk{approval: q, since: time.Now()}
	p.timer = time.AfterFunc(timeout, expired)
	b.pending[q.id] = p
}

// take removes an approval to decide it; nil when somebody else has: the
// first decision wins.
func (b *askBook) take(id string) *pendingAsk {
	p := b.pending[id]
	if p != nil {
		delete(b.pending, id)
		p.timer.Stop()
	}
	return p
}

// ids of what is pending, oldest first.
func (b *askBook) ids() []string {
	ids := make([]string, 0, len(b.pending))
	for id := range b.pending {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool {
		return b.pending[ids[i]].since.Before(b.pending[ids[j]].since)
	})
	return ids
}
