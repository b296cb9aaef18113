package main

// approval.go owns the neutral form of what Codex asks before it acts, and of
// the decision. The drivers translate to and from their wire, the session
// keeps what is pending and its timer, the fronts ask somebody. The default
// is always to deny: on timeout, disconnect, nonsense (FR-18).

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
