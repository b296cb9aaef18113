package main

// registry_record.go owns one session as it is kept on disk, agent-sessions/<team>/.records/<suffix>.json, and the
// agent_id that names it. It is pure: bytes and values, no files. registry.go calls it for reading and writing;
// session_opener.go fills records in. Never takes for a record what is none: whoever decodes it learns why.

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	recordVersion     = 1
	maxRecordBytes    = 8 << 20 // far above what the bounds below and 1 MiB prompts make
	maxDigestPrompt   = 4 << 10
	maxDigestAnswer   = 8 << 10
	maxDigestFiles    = 200
	maxRecordedErrors = 4 << 10
	maxTitle          = 500
)

// The status words that agent_sessions shows.
const (
	statusBusy   = "busy"
	statusIdle   = "idle"
	statusParked = "parked"
	statusClosed = "closed"
	statusStale  = "stale"
	statusBroken = "broken"
)

// record has the fields of FR-5.2 and FR-10.1, and what a resume needs. It is
// small and the truth; it is copied by value, its pointers are never written to.
type record struct {
	Version       int            `json:"version"`
	AgentID       string         `json:"agent_id"`
	Backend       string         `json:"backend"`      // "codex"
	BackendKind   string         `json:"backend_kind"` // "app-server" or "mcp-server"
	BackendID     string         `json:"backend_id"`   // Codex's threadId; empty before the first turn
	Identity      string         `json:"identity"`
	Implied       bool           `json:"implied"` // nobody asked for this identity by name
	Team          string         `json:"team"`
	StartedAt     time.Time      `json:"started_at"`
	Tag           string         `json:"tag,omitempty"`
	Role          string         `json:"role,omitempty"`
	Tools         string         `json:"tools,omitempty"` // how the thread has its own tools: toolsDynamic, toolsServer
	AgentName     string         `json:"agent_name,omitempty"`
	AgentSource   string         `json:"agent_source,omitempty"`
	Settings      sessionOptions `json:"settings"`                 // asked for, and sent again after a restart
	SummaryDir    string         `json:"summary_dir,omitempty"`    // fixed at birth, relative to agent-sessions
	AutoMail      *bool          `json:"auto_mail,omitempty"`      // agent_mail's word for this session
	ClientSession string         `json:"client_session,omitempty"` // the client's own id (ACP); kept from its birth
	Roots         []string       `json:"roots,omitempty"`          // directories beside cwd that the client works in
	Title         string         `json:"title,omitempty"`
	Inherited     bool           `json:"inherited,omitempty"` // the thread began with turns that aren't among Turns
	Worktree      *worktree      `json:"worktree,omitempty"`
	Noted         int            `json:"noted,omitempty"` // the journal's newest note that is in this record
	PID           int            `json:"pid,omitempty"`   // of the holder
	Host          string         `json:"host,omitempty"`

	turnNote
}

// turnNote is what the start and the end of a turn change in a record: a line of the journal has it alone.
type turnNote struct {
	Status         string          `json:"status"`
	Interrupted    bool            `json:"interrupted"`
	Turns          int             `json:"turns"`
	LastActive     time.Time       `json:"last_active"`
	LastTurnID     string          `json:"last_turn_id,omitempty"`
	LastTurnStatus string          `json:"last_turn_status,omitempty"`
	LastError      string          `json:"last_error,omitempty"`
	SummaryDue     bool            `json:"summary_due,omitempty"` // a turn completed since the last summary
	RepoRoot       *string         `json:"repo_root"`             // null outside a repository, as are the next two
	RepoName       *string         `json:"repo_name"`
	Branch         *string         `json:"branch"`
	CWD            string          `json:"cwd"`
	Context        json.RawMessage `json:"context,omitempty"` // the repository facts the agent was last told
	Digest         recordDigest    `json:"digest"`
}

// worktreePlace is where an agent works that has a git worktree of its own.
type worktreePlace struct {
	Path   string `json:"path"`
	Branch string `json:"branch"`
}

// worktree is a git worktree that was made for an agent, and for nobody else.
type worktree struct {
	worktreePlace
	Ours    bool   `json:"ours"`              // the branch was made for the agent too
	Base    string `json:"base"`              // the commit that the worktree began with
	Common  string `json:"common"`            // git's own directory, which all worktrees of the repository share
	From    string `json:"from"`              // the directory that the worktree stands for
	Removed bool   `json:"removed,omitempty"` // the worktree is gone since its agent was closed
}

// hasPast reports an agent whose thread has turns: Codex keeps no thread that was never prompted.
func (r *record) hasPast() bool { return r.Turns > 0 || r.Inherited }

// place is what is shown of a worktree, nil for none.
func (w *worktree) place() *worktreePlace {
	if w == nil || w.Removed {
		return nil
	}
	return &w.worktreePlace
}

// recordDigest stands in for Codex's own history where that is gone.
type recordDigest struct {
	LastPrompt   string   `json:"last_prompt,omitempty"`
	LastAnswer   string   `json:"last_answer,omitempty"`
	TouchedFiles []string `json:"touched_files,omitempty"` // the newest are kept
}

// encodeRecord is what goes to disk: bounded, one line.
func encodeRecord(r record) ([]byte, error) {
	if r.Version < recordVersion {
		r.Version = recordVersion
	}
	r = boundedRecord(r)
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding record of %s: %w", r.AgentID, err)
	}
	if len(data) >= maxRecordBytes {
		return nil, fmt.Errorf("record of %s is %d bytes, more than the limit of %d; use shorter instructions or "+
			"config", r.AgentID, len(data), maxRecordBytes)
	}
	return append(data, '\n'), nil
}

// boundedRecord has no more of the last turn than a record may.
func boundedRecord(r record) record {
	r.LastError = clipUTF8(r.LastError, maxRecordedErrors)
	r.Title = clipUTF8(r.Title, maxTitle)
	r.Digest.LastPrompt = clipUTF8(r.Digest.LastPrompt, maxDigestPrompt)
	r.Digest.LastAnswer = clipUTF8(r.Digest.LastAnswer, maxDigestAnswer)
	if n := len(r.Digest.TouchedFiles); n > maxDigestFiles {
		r.Digest.TouchedFiles = r.Digest.TouchedFiles[n-maxDigestFiles:]
	}
	return r
}

// decodeRecord fails for what is no record of the session it should be of.
func decodeRecord(data []byte, agentID string) (*record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.AgentID != agentID {
		return nil, fmt.Errorf("it holds agent_id %q", r.AgentID)
	}
	if r.Identity == "" || r.Status == "" {
		return nil, errors.New("it lacks identity or status")
	}
	return &r, nil
}

// Nothing that looks or sounds like something else, and no vowels, which make
// words that a model would mend: no 0/o, 1/l/i.
const (
	agentIDPrefix   = "codex:"
	agentIDAlphabet = "bcdfghjkmnpqrstvwxz23456789"
	agentIDLength   = 7
)

// Wider than what we make, so that another version's ids stay valid.
var reAgentID = regexp.MustCompile(`^codex:[a-z0-9]{4,32}$`)

func validAgentID(s string) bool { return reAgentID.MatchString(s) }

// suffixOf is the part behind "codex:", which names the record's file; empty for what is no agent_id.
func suffixOf(agentID string) string {
	if !validAgentID(agentID) {
		return ""
	}
	return strings.TrimPrefix(agentID, agentIDPrefix)
}

// randomAgentID has no character twice in a row: models miscount repetitions.
func randomAgentID() string {
	var id, b []byte
	for len(id) < agentIDLength {
		if len(b) == 0 {
			b = make([]byte, 32)
			rand.Read(b) // never fails: crypto/rand ends the program instead
		}
		// 243 is the largest multiple of 27 in a byte: every character is as likely.
		if c := b[0]; c < 243 {
			if next := agentIDAlphabet[int(c)%len(agentIDAlphabet)]; len(id) == 0 || id[len(id)-1] != next {
				id = append(id, next)
			}
		}
		b = b[1:]
	}
	return agentIDPrefix + string(id)
}

// sortNewestFirst orders records by last activity.
func sortNewestFirst(recs []record) {
	slices.SortStableFunc(recs, func(a, b record) int { return b.LastActive.Compare(a.LastActive) })
}
