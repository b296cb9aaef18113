package main

// session_views.go owns what is told of sessions, turns and the whole proxy, and what
// the hub is asked for beside turns: copies that nobody changes, so that a
// reader never waits for a session (invariant 3). The session publishes its own
// after every transition; the hub adds up.

import (
	"sort"
	"time"
)

// sessionView is a session as agent_sessions and agent_status tell it: a copy
// that nobody changes.
type sessionView struct {
	AgentID     string    `json:"agent_id"`
	Backend     string    `json:"backend"`
	BackendID   string    `json:"backend_id" doc:"The Codex thread id"`
	Team        string    `json:"team"`
	Identity    string    `json:"identity"`
	AgentName   string    `json:"agent_name,omitempty"`
	AgentSource string    `json:"agent_source,omitempty"`
	Status      string    `json:"status"` // busy idle parked closed stale broken
	Interrupted bool      `json:"interrupted,omitempty"`
	LastActive  time.Time `json:"last_active_at"`
	StartedAt   time.Time `json:"started_at"`
	Tag         string    `json:"tag,omitempty"`
	Role        string    `json:"role,omitempty"`
	Resumable   bool      `json:"resumable"`
	Cwd         string    `json:"cwd"`
	Turns       int       `json:"turns"`
	Queued      int       `json:"queued"`
	Activity    string    `json:"activity,omitempty"` // what it is doing, in words
	LastError   string    `json:"last_error,omitempty"`
	Dropped     int64     `json:"dropped_events" doc:"Events this client did not get, since it read too slowly"`
	Tokens      int64     `json:"total_tokens"`
	Pending     []askView `json:"-"`         // each front has a shape of its own for them
	Mine        bool      `json:"open_here"` // this process holds it

	Source string `json:"turn_source,omitempty" doc:"Who wanted the running turn: client, mail, resume or summary"`

	PendingMail *int   `json:"pending_mail,omitempty" doc:"Unread messages"` // as last seen; nil without a team
	AutoMail    string `json:"auto_mail,omitempty" doc:"Whether mail starts turns: on, off, or paused and why"`

	opening bool  // its turns wait for Codex, not for each other
	mailSeq int64 // when PendingMail last grew, as a since counts
	barred  bool  // the inbox is another member's: nobody here reads it
	implied bool  // nobody asked for the identity: it may be parked
	pid     int   // of the process that holds its identity, where it isn't open here
}

// askView is a pending approval as it is shown.
type askView struct {
	ApprovalID string `json:"approval_id"`
	Kind       string `json:"kind"`
	Action     string `json:"action"`
	Cwd        string `json:"cwd,omitempty"`
	Reason     string `json:"reason,omitempty"`

	q approval // the whole of it, for who asks
}

// statusView is the whole proxy, as agent_status tells it.
type statusView struct {
	ChildAlive   bool
	ChildVersion string
	ChildError   string // how the last child ended, "" while none did
	Unsaved      string // why records can't be written, "" while they can
	Backend      string // "app-server", "mcp-server", "" before the first child
	ChildPID     int
	Team         string
	TeamFrom     string
	Uptime       time.Duration
	Sessions     int               // open here
	Identities   map[string]string // identity → agent_id
	PendingMail  *int              // of all agents open here; nil where there is no mail
	Agents       []sessionView     // open here, as they published themselves: no disk is read

	// Events of the child that sessions have not taken in, of how many there
	// may be.
	EventBytes, EventBytesLimit int64
}

// closeResult is what agent_close tells.
type closeResult struct {
	AgentID     string `json:"agent_id"`
	Identity    string `json:"identity"`
	Status      string `json:"status"` // closed
	Already     bool   `json:"already_closed"`
	Interrupted bool   `json:"interrupted" doc:"A running turn was stopped"`
}

// waitQuery is what agent_wait waits for.
type waitQuery struct {
	Agents  []string // agent_ids, threadIds or names
	Since   int64    // turns that ended after it; 0: each agent's newest turn
	All     bool
	Timeout time.Duration
	Inbox   string // whose mail is waited for, with or without agents; "" for nobody's
	Own     bool   // the client's own mail is waited for too
}

// waitResult is what it tells: everything newer, and what each is doing.
type waitResult struct {
	Seq      int64 // for the next since
	TimedOut bool
	Inbox    mailBox // that was asked for
	Own      mailBox // the client's own
	Agents   []waitAgent
}

// mailBox is how an inbox stands.
type mailBox struct {
	Name   string // "" for none
	Unread int
	Ours   bool // what is read in it may be marked

	seq int64 // when mail last came, as a since counts
}

// news reports unread mail that came after since, or any for 0.
func (b *mailBox) news(since int64) bool { return b.Unread > 0 && (since == 0 || b.seq > since) }

// mailWaits reports mail that nobody delivers by himself and that can be read.
func (v *sessionView) mailWaits() bool {
	return v.PendingMail != nil && *v.PendingMail > 0 && v.AutoMail != "on" && v.Status == statusIdle && !v.barred
}

type waitAgent struct {
	View  sessionView // Pending has its open approvals
	Turns []keptTurn  // newer than since, oldest first
}

// interruptResult is what agent_interrupt tells.
type interruptResult struct {
	AgentID     string `json:"agent_id"`
	Identity    string `json:"identity"`
	TurnID      string `json:"turn_id,omitempty" doc:"The turn that was stopped"`
	Interrupted bool   `json:"interrupted" doc:"false: there was nothing to stop"`
	Queued      int    `json:"queued" doc:"Turns that still wait"`
}

// approveQuery is a decision that a caller brings, not the client's user.
type approveQuery struct {
	Agent    string // agent_id or threadId
	Ask      string // approval_id
	Action   string // must repeat the pending approval's
	By       decider
	Decision decision
	Answers  map[string][]string // to questions
}

// newView is what a record tells of a session; how the session stands is still to be said.
func newView(r *record) sessionView {
	return sessionView{AgentID: r.AgentID, Backend: "codex", BackendID: r.BackendID, Team: r.Team, Identity: r.Identity,
		AgentName: r.AgentName, AgentSource: r.AgentSource, LastActive: r.LastActive, StartedAt: r.StartedAt, Tag: r.Tag, Role: r.Role,
		Cwd: r.CWD, Turns: r.Turns, LastError: r.LastError, implied: r.Implied}
}

// status tells the whole proxy. It reads no disk.
func (h *hub) status() statusView {
	leased := h.table.leased()
	v := statusView{Team: h.cfg.team, TeamFrom: h.cfg.teamFrom, Unsaved: h.ledger.unsaved(), Uptime: time.Since(h.started),
		Sessions: len(leased), Identities: map[string]string{}, EventBytes: h.letters.Load(), EventBytesLimit: maxWaitingBytes}
	h.child.show(&v)
	for _, s := range leased {
		if view := s.shown.Load(); view.Identity != "" {
			v.Identities[view.Identity] = view.AgentID
		}
	}
	for _, s := range h.table.all() {
		view := *s.shown.Load()
		v.Agents = append(v.Agents, view)
		if view.PendingMail != nil {
			sum := *view.PendingMail
			if v.PendingMail != nil {
				sum += *v.PendingMail
			}
			v.PendingMail = &sum
		}
	}
	sort.Slice(v.Agents, func(i, j int) bool { return v.Agents[i].StartedAt.Before(v.Agents[j].StartedAt) })
	return v
}
