package main

// codex_turn.go owns one turn's request and result. Fronts build requests and read
// results; session_machine.go decides when a turn runs, session_turn.go runs it. Nothing
// here does anything: it is what the layers hand each other.

import (
	"encoding/json"
	"time"
)

// waiterID names somebody who waits for one turn's result. It is never a
// JSON-RPC id: a front maps its own requests to it. 0 is nobody.
type waiterID uint64

// turnSource is who wants a turn, in the order of precedence.
type turnSource int

const (
	sourceClient turnSource = iota
	sourceMail
	sourceResume
	sourceSummary
)

func (s turnSource) String() string {
	switch s {
	case sourceClient:
		return "client"
	case sourceMail:
		return "mail"
	case sourceResume:
		return "resume"
	case sourceSummary:
		return "summary"
	}
	return ""
}

// turnMode is what a request does about its session.
type turnMode int

const (
	modeNew    turnMode = iota // codex: a new session
	modeRevive                 // codex {agent_id}: an existing one, whatever its state
	modeReply                  // codex-reply
)

// turnRequest is one call for a turn, as a front understood it.
type turnRequest struct {
	mode    turnMode
	source  turnSource
	ref     string // agent_id or threadId (revive, reply)
	prompt  string
	run     bool          // false: only reopen the agent (codex {agent_id} without prompt)
	timeout time.Duration // of the turn from its start, 0 for the configuration's

	identity    string   // asked for explicitly, "" for none
	implied     string   // the identity that an agent file's name implies, "" for none
	agentName   string   // name and place of the agent file, for the record;
	agentSource string   // "" where there is no agent file
	notes       []string // for the result
	role        string
	tag         string
	cwd         string // as given; resolved and checked by the hub
	options     sessionOptions
	correlation string // follows one request through log and audit

	// A background turn answers its waiter when the turn is accepted: agent_id, the
	// handle as TurnID, TurnStatus queued or running. The turn's result is kept.
	background bool
	task       bool   // the result is kept as an MCP task
	handle     string // the hub's name for a background turn
	notify     string // the member who is mailed the result of a background turn, "" for none
	approvals  string // who can be asked: client, caller, "" for nobody

	mail *mailTurn // what a turn of sourceMail delivers

	// What a front that has sessions of its own (ACP) adds.
	agentID string          // modeNew: the id that the session gets, "" for any
	client  *clientBirth    // the client's own name for the session, nil: it has none
	servers json.RawMessage // the client's MCP servers, as Codex's mcp_servers, for whenever the thread is opened; kept nowhere
	parts   []promptPart    // what the user says, in order, where it is more than text; prompt is its text then
	action  turnAction
}

// word is what the audit log calls it.
func (a turnAction) word() string {
	switch a {
	case actCompact:
		return "compact"
	case actReview:
		return "review"
	case actPrompt:
	}
	return ""
}

// clientBirth is what a client's session has that an agent's record keeps.
type clientBirth struct {
	session string   // the client's id for it
	roots   []string // directories beside cwd that it works in, absolute
}

// mailTurn is the mail that a turn delivers.
type mailTurn struct {
	name      string   // the identity whose inbox the mail is from
	keys      []string // by which the messages are marked read
	ids       []string // the messages' message_ids, for the audit log
	words     string   // how many messages, from whom, on what: for people
	automatic bool     // nobody wrote any of the messages: what is done about them is never answered automatically
	taken     bool     // acknowledged: never to be delivered again
}

// reshapes reports a request that changes what its session is, beside
// running a turn.
func (r *turnRequest) reshapes() bool {
	o := &r.options
	return r.mode == modeRevive && (r.identity != "" || r.role != "" || r.tag != "" || r.cwd != "" ||
		r.servers != nil || r.client != nil ||
		o.Model != "" || o.Effort != "" || o.Approval != "" ||
		o.Sandbox != "" || o.Config != nil || o.BaseInstructions != "" || o.DeveloperInstructions != "" ||
		o.CompactPrompt != "" || o.Profile != "")
}

// turnResult is the one answer to a waiter. The tags are those of its file.
type turnResult struct {
	err   *rpcError // no turn's result but an error of ours or of the child
	asked time.Time // of a background turn that was accepted: when its caller asked

	AgentID    string        `json:"agent_id"`
	ThreadID   string        `json:"thread_id"`
	TurnID     string        `json:"turn_id,omitempty"`
	Content    string        `json:"content"`
	Identity   string        `json:"identity"`
	Team       string        `json:"team"`
	Status     string        `json:"status"`                // of the session: idle, busy, …
	TurnStatus string        `json:"turn_status,omitempty"` // completed, failed, interrupted; "" when no turn ran
	Usage      *tokenUsage   `json:"usage,omitempty"`
	Duration   time.Duration `json:"duration_ns"`
	Sandbox    string        `json:"sandbox,omitempty"`
	Approval   string        `json:"approval_policy,omitempty"`
	Declined   []declined    `json:"declined,omitempty"`
	Notes      []string      `json:"notes,omitempty"` // what the caller should know, a sentence each
}

// failed reports a turn that ran and did not complete.
func (r *turnResult) failed() bool {
	return r.TurnStatus == "failed" || r.TurnStatus == "interrupted"
}
