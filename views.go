package main

// views.go owns what is told of sessions and of the whole proxy: copies that
// nobody changes, so that a reader never waits for a session (invariant 3).
// The session publishes its own after every transition; the hub adds up.

import "time"

// sessionView is a session as agent_sessions and agent_status tell it: a copy
// that nobody changes.
type sessionView struct {
	AgentID     string    `json:"agent_id"`
	Backend     string    `json:"backend"`
	BackendID   string    `json:"backend_id"`
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
	Dropped     int64     `json:"dropped_events"`
	Tokens      int64     `json:"total_tokens"`
	Pending     []askView `json:"pending_approvals,omitempty"`
	Mine        bool      `json:"open_here"` // this process holds it

	implied bool // nobody asked for the identity: it may be parked
}

// askView is a pending approval as it is shown.
type askView struct {
	ApprovalID string `json:"approval_id"`
	Kind       string `json:"kind"`
	Action     string `json:"action"`
	Cwd        string `json:"cwd,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// statusView is the whole proxy, as agent_status tells it.
type statusView struct {
	ChildAlive   bool
	ChildVersion string
	ChildError   string // how the last child ended, "" while none did
	Backend      string // "app-server", "mcp-server", "" before the first child
	ChildPID     int
	Team         string
	TeamFrom     string
	Uptime       time.Duration
	Sessions     int               // open here
	Identities   map[string]string // identity → agent_id
}

// closeResult is what agent_close tells.
type closeResult struct {
	AgentID     string
	Identity    string
	Status      string // closed
	Already     bool   // it was closed before
	Interrupted bool   // a turn was stopped for it
}
