package main

// codex_backend.go owns what sessions know of a Codex child, and fronts of a turn: the backend interface, the
// specification of a thread and of its turns, the commands sent down and the events that come up; one turn's request
// and its result. The drivers codex_app.go and codex_mcp.go implement the interface; sessions are its users. Nothing
// here may block the session loop.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// backend is one running Codex child.
type backend interface {
	// info tells what the child is and can do. It never changes.
	info() backendInfo
	// open starts or resumes a thread. to gets the outcome (evOpened or evRefused with op) and from then on every event
	// of the thread and of its subagents' threads, one at a time and in order, mostly on the reading goroutine, so to
	// must not block. After a refusal, cmdUnload or evGone to gets nothing more. A child that makes a thread only
	// together with its first turn answers with opened.unnamed: the thread's id is then the driver's own, good for do,
	// and a second evOpened without op tells the child's id before the turn's evStarted. A refusal with Missing means
	// that the thread can't go on, whatever the reason: a new one can be opened in its place.
	open(op opID, spec threadSpec, to func(event))
	// do sends one command for an open thread. Its outcome, if it has one, comes as an event with op: evStarted or
	// evRefused for cmdTurn, evSteered or evRefused for cmdSteer, nothing else for the others but evRefused.
	do(op opID, thread string, c command)
	// catalog reads facts that aren't a thread's: "config" (the user's Codex configuration as seen from dir, the
	// child's JSON), "account", "models", "limits", "mcp" (the MCP servers of the user's configuration and how they
	// are), "skills" (as seen from dir), "threads" (the newest threads that people began in dir, or in any directory
	// for "", as {data: [{id, cwd, name, preview, updatedAt}]}). It waits for the answer and may be called from any
	// goroutine but the session loop and the reader.
	catalog(ctx context.Context, what, dir string) (json.RawMessage, error)
	// change changes what isn't a turn's: who is logged in, by action "login" (params are Codex's own, {type: "apiKey",
	// apiKey} or {type: "chatgpt"}), "cancelLogin" {loginId}, "logout"; and a thread, open or not, by "rename"
	// {threadId, name} and "archive" {threadId}, after which Codex lists and resumes it no more. It waits as catalog
	// does. How a login that needs a person ended is told by the spawner's hook for news.
	change(ctx context.Context, action string, params any) (json.RawMessage, error)
	// history tells the past turns of a thread, open or not, oldest first, as the events that they were: for each turn
	// evStarted, its items as evItem with phase "completed", evEnded. raw has what a live event's has, as far as Codex
	// kept it. A thread without turns has no history and is no error. history waits as catalog does, and for each; an
	// error of each ends it.
	history(ctx context.Context, thread string, each func(*event) error) error
	// stop ends the child by the ladder (close stdin, TERM, KILL), waiting at most grace before each harder step, and
	// returns when it is reaped. Every open sink gets exactly one evGone.
	stop(grace time.Duration)
}

// backendInfo is what a child said of itself.
type backendInfo struct {
	kind    string // "app-server" or "mcp-server"
	version string // Codex version, like "0.169.0"; "" if it didn't say
	pid     int
	// clientTools: a new thread takes threadSpec.Tools and calls them by evTool.
	clientTools bool
}

// atLeast compares the Codex version with major.minor; an unreadable version
// counts as new, since the newest words are the likelier ones.
func (i backendInfo) atLeast(minor int) bool {
	var major, its int
	n, _ := fmt.Sscanf(i.version, "%d.%d", &major, &its)
	return n < 2 || major > 0 || its >= minor
}

// opID names a command whose outcome somebody waits for; 0: nobody does.
type opID uint64

// threadSpec is what a thread is opened with.
type threadSpec struct {
	Thread                string // resume this one; "" starts a new one
	Fork                  string // a new thread that begins with what this one holds; "" for an empty one
	Settings              turnSettings
	BaseInstructions      string
	DeveloperInstructions string          // new threads only: Codex shows them once
	Profile               string          // Codex before 0.148 takes it as config.profile; newer never get it
	Config                json.RawMessage // nested overrides, nil for none
	Tools                 []clientTool    // new threads only, where the child can: Codex keeps them with the thread
	Ephemeral             bool            // keep nothing on disk (persist_threads = false)
	Recover               bool            // an earlier turn may still be running in the thread: stop that first
	Session               string          // the client's own name for the session, for the log
}

// clientTool is a tool that the session itself answers when the model calls it.
type clientTool struct {
	Name, Description string
	Input             json.RawMessage // JSON Schema of an object
}

// commandKind is what a command asks of the child.
type commandKind int

const (
	cmdTurn       commandKind = iota // run a turn: input, settings
	cmdSteer                         // prompt and parts for the model of the turn that runs
	cmdInterrupt                     // stop turn ("": whatever runs), the subagents' turns and the shells they left
	cmdClean                         // stop background terminals of the thread tree
	cmdUnload                        // free the thread in the child; the sink is gone after it
	cmdAnswer                        // decide an approval
	cmdToolResult                    // answer an evTool: ask, text, ok; the first answer counts
)

// promptPart is one piece of what a user says.
type promptPart struct {
	kind string // "text"; "image": url is a data: or https: one; "localImage": path; "skill": text names it, path
	text string
	url  string
	path string
}

// turnAction is what a turn does beside answering a prompt.
type turnAction int

const (
	actPrompt  turnAction = iota
	actCompact            // shorten the thread's history; takes no prompt
	actReview             // answer a prompt that asks for a review; to the child that is actPrompt
)

// command is one order for a thread.
type command struct {
	kind commandKind

	// Of cmdTurn.
	action   turnAction
	prompt   string
	parts    []promptPart // behind the prompt, nil for none
	settings turnSettings
	schema   json.RawMessage // that the answer is to follow, nil for none

	turn string // of cmdSteer: the turn that runs; of cmdInterrupt: the turn to stop, "" for whatever runs
	ask  string // of cmdAnswer: the approval's id, as in its evAsk; of cmdToolResult: toolCall.id

	// Of cmdAnswer.
	decision decision
	answers  map[string][]string // to questions, by question id
	why      string              // the reason of a denial, for the model, where the child can tell it

	// Of cmdToolResult.
	text string // what the model reads
	ok   bool   // the tool did what it was called for
}

// eventKind is what happened. Every switch over it lists all kinds.
type eventKind int

const (
	evOpened  eventKind = iota // op; thread; opened
	evStarted                  // op; turn: the child took the turn (acknowledged)
	evSteered                  // op: the running turn has what cmdSteer brought
	evRefused                  // op; err; unknown: it may have happened all the same
	evItem                     // item started (phase "started") or completed
	evDelta                    // text of item, phase "answer", "reasoning" or "output"
	evPlan                     // text: the plan, a line for each step
	evDiff                     // text: all that the turn has changed in files so far, as git's diff
	evUsage                    // usage: what the thread has used
	evNotice                   // text: a warning; retry set: the child retries on its own
	evAsk                      // ask: an approval or question that must be decided
	evAskGone                  // ask id: the child no longer wants an answer
	evTool                     // tool: a call of one of the session's own tools, to be answered by cmdToolResult
	evEnded                    // turn; status completed, failed or interrupted; err
	evServer                   // item: an MCP server of the thread; status starting, ready, failed, cancelled; text
	evRaw                      // something without neutral meaning
	evGone                     // the child is gone: err. The last event of a sink
)

// startingCodex is the phase of the one evNotice that is ours: the child itself
// is being started, and these are the words for it.
const startingCodex = "starting Codex"

// event is one thing a child said about a thread, or the outcome of a
// command. method and raw are the original, for those who forward it.
type event struct {
	kind    eventKind
	op      opID   // the command whose outcome the event is, 0 for none
	thread  string // the thread that the event happened on: the session's own or a subagent's
	turn    string // "" where the event belongs to no turn
	item    string // "" where the event belongs to no item
	phase   string // of evItem and evDelta
	text    string // what the kind says
	status  string // of evEnded and evServer
	retry   bool   // evNotice: the child tries again on its own
	more    bool   // another delta of the session comes right behind this one; the session sets it
	must    bool   // never dropped
	unknown bool   // evRefused: what was asked for may have happened all the same
	spent   bool   // evEnded: the thread takes no further turn until it is opened again

	// What the kind has, else nil.
	body   *itemBody
	opened *openedThread
	usage  *tokenUsage
	ask    *approval
	tool   *toolCall
	err    *backendError

	method string          // the child's word for what happened, "" where the driver says it
	raw    json.RawMessage // params of method
	delta  json.RawMessage // text of an evDelta as it stands in raw
}

// droppable reports an event that a turn's result doesn't depend on.
func (e *event) droppable() bool {
	switch e.kind {
	case evDelta, evPlan, evNotice, evRaw:
		return !e.must
	case evItem:
		return !e.must && e.phase == "started"
	case evOpened, evStarted, evSteered, evRefused, evDiff, evUsage, evAsk, evAskGone, evTool, evEnded, evServer,
		evGone:
	}
	return false
}

// toolCall is a call of a clientTool. Its event names thread, turn and item.
type toolCall struct {
	id   string // the driver's, for cmdToolResult
	name string
	args json.RawMessage
}

// openedThread is the child's own word on a thread it opened.
type openedThread struct {
	model, effort string // what its turns run with where nobody sets them, "" where the child doesn't tell
	name, preview string // what the thread is called, and how its first prompt begins; "" where the child doesn't tell
	unnamed       bool   // the thread's id is the driver's own for now
	plans         bool   // whoever had the thread before left it in plan mode (told from 0.169 on)
}

// itemBody is the neutral part of an item.
type itemBody struct {
	kind     string // Codex's own word: agentMessage, commandExecution, …
	phase    string // of an agentMessage: "", commentary, final_answer, …
	text     string // what was said, of whatever says something
	command  string // of a commandExecution: the command line with the shell around it
	cwd      string // of a commandExecution
	status   string // Codex's word: inProgress, completed, failed, declined
	exitCode *int   // of a commandExecution that has ended, else nil
	files    []fileChange
	server   string // of an mcpToolCall, or the namespace of another tool
	tool     string

	// What Codex told as it came; nil, "" or 0 where it told nothing.
	arguments json.RawMessage // of an MCP, dynamic or collaboration tool call
	result    json.RawMessage // of an MCP or dynamic tool call: the tool's own, contentItems
	output    string          // a command's, whole
	failure   string          // why a call failed
	actions   []commandAction // what a command does, as Codex reads it
	path      string          // of an image view
	query     string          // of a web search
	duration  int64           // in ms
}

// commandAction is a part of a command line that Codex understands.
type commandAction struct {
	kind    string // read, listFiles, search, unknown
	path    string // "" where the action names none
	query   string // of a search
	command string // the part of the line, without a shell around it
}

// fileChange is one file of a patch. kind is add, delete or update; diff is the file's
// whole text but of an update; move is where an update puts the file, "" where it stays.
type fileChange struct{ path, kind, diff, move string }

// tokenUsage is what a thread has used so far and what the last request did.
type tokenUsage struct {
	Total         int64 `json:"total_tokens"`
	Input         int64 `json:"input_tokens"`
	CachedInput   int64 `json:"cached_input_tokens"`
	Output        int64 `json:"output_tokens"`
	Reasoning     int64 `json:"reasoning_output_tokens"`
	Last          int64 `json:"last_total_tokens"`
	ContextWindow int64 `json:"model_context_window,omitempty"`
}

// backendError is what a child answered instead of doing it, or why it can't.
type backendError struct {
	Code    int             // JSON-RPC code of the child, 0 where there was none
	Message string          // the child's own words
	Info    string          // codexErrorInfo word of a failed turn, or of a call
	Data    json.RawMessage // the child's whole error, for data.child_error
	Timeout bool            // the call had no answer in time
	Busy    bool            // the child had too much to do and did not take the call: nothing was done
	Missing bool            // the thread isn't there, or can't go on: no history to resume
	Held    bool            // another process writes the thread
	Death   *childDeath     // the child is gone
}

// infoNoLogin is the Info of every error that means that Codex is not logged in.
const infoNoLogin = "unauthorized"

func (e *backendError) Error() string { return e.Message }

// childDeath is how a child ended, or why none could be started.
type childDeath struct {
	Reason string // "exit code 3", "signal: killed (SIGKILL)", "could not be started: …"
	Stderr string // its last line on stderr, redacted; "" for none
	Path   string // of the binary, "" where none was found
	Never  bool   // it never answered initialize: nothing was lost, a later call tries again
}

func (d *childDeath) Error() string {
	s, said := "the Codex child process ended: "+d.Reason, "its last line on stderr"
	if d.Never {
		s, said = "the Codex child process "+d.Reason, "it said"
		if strings.HasPrefix(d.Reason, "exit") || strings.HasPrefix(d.Reason, "signal") {
			s = "the Codex child process ended before it answered: " + d.Reason
		}
	}
	if d.Stderr != "" {
		s += fmt.Sprintf("; %s: %q", said, d.Stderr)
	}
	return s
}

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

func (s turnSource) String() string { return [...]string{"client", "mail", "resume", "summary"}[s] }

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
	schema  *answerSchema // what the answer is to follow, nil for nothing
	review  *review       // of actReview
	steer   bool          // the prompt goes into the turn that runs, if one does
	orQueue bool          // of steer: what that turn can't take becomes a turn of its own, and no error
	inOrder bool          // of steer: the prompt passes none that waits
	diff    bool          // the whole diff of what the turn changes is kept in a file

	identity    string   // asked for explicitly, "" for none
	implied     string   // the identity that an agent file's name implies, "" for none
	agentName   string   // name and place of the agent file, for the record;
	agentSource string   // "" where there is no agent file
	notes       []string // for the result
	role        string
	tag         string
	forkOf      string  // the agent whose conversation a new one begins with, as the call names it; "" for none
	fork        *record // that agent, as the hub found it
	cwd         string  // as given; resolved and checked by the hub
	worktree    *string // the agent gets a git worktree of its own on this branch, "" for a new one; nil: it gets none
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
	agentID string          // the id that a new agent gets, of a thread that only Codex knows too; "" for any
	client  *clientBirth    // the client's own name for the session, nil: it has none
	servers json.RawMessage // the client's MCP servers, as Codex's mcp_servers, for each opening; kept nowhere
	parts   []promptPart    // what the user says, in order, where it is more than text; prompt is its text then
	action  turnAction
}

// formRefused says why a Codex can't give an answer of the form that the turn asks for, nil where it can.
func (r *turnRequest) formRefused(by backendInfo) *rpcError {
	what := ""
	switch {
	case by.kind != "mcp-server":
	case r.review != nil:
		what = "review"
	case r.schema != nil:
		what = "output_schema"
	}
	if what == "" {
		return nil
	}
	return proxyError(codeInvalidSession, "codex mcp-server takes no "+what+"; use a Codex with app-server for that")
}

// word is what the audit log calls it.
func (a turnAction) word() string { return [...]string{"", "compact", "review"}[a] }

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

// reshapes reports a request that changes what its session is, beside running a turn.
func (r *turnRequest) reshapes() bool {
	o := &r.options
	return r.mode == modeRevive && (r.identity != "" || r.role != "" || r.tag != "" || r.cwd != "" ||
		r.servers != nil || r.client != nil || r.worktree != nil || o.Model != "" || o.Effort != "" ||
		o.Approval != "" || o.Sandbox != "" || o.Config != nil || o.BaseInstructions != "" ||
		o.DeveloperInstructions != "" || o.CompactPrompt != "" || o.Profile != "")
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
	Duration   time.Duration `json:"duration_ns"`
	turnFacts
	Review *reviewShown `json:"review,omitempty"` // what the review that the turn was came to
}

// turnFacts are what is told of a turn beside its answer, to its caller and in its file.
type turnFacts struct {
	Usage    *tokenUsage `json:"usage,omitempty"`
	Sandbox  string      `json:"sandbox,omitempty"`
	Approval string      `json:"approval_policy,omitempty"`
	Declined []declined  `json:"declined,omitempty" doc:"Actions that were not approved"`
	Notes    []string    `json:"notes,omitempty"` // what the caller should know, a sentence each

	Worktree    *worktreePlace  `json:"worktree,omitempty"` // where the agent works, nil for no worktree of its own
	Limit       *limitReached   `json:"limit,omitempty" doc:"Set where the turn failed for a limit of the account"`
	Changes     *turnChanges    `json:"changes,omitempty" doc:"What Codex edited in the turn, without what shell commands did"`
	Output      json.RawMessage `json:"output,omitempty" doc:"The answer as the value that output_schema asked for"`
	OutputError string          `json:"output_error,omitempty" doc:"Why there is no output: what is wrong with the answer"`
}

// failed reports a turn that ran and did not complete.
func (r *turnResult) failed() bool {
	return r.TurnStatus == "failed" || r.TurnStatus == "interrupted"
}

// shellWords splits like a POSIX shell, without expansions. An unbalanced line is one word. It takes each byte once: a
// command can hold a file, and each quote in that begins a piece of the same word.
func shellWords(line string) (words []string) {
	var word strings.Builder
	var quote byte  // the quote that is open, 0 for none
	inside := false // inside a word, which may be empty
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inside = c, true
		case c == '\\' && quote == 0 && i+1 == len(line):
			return []string{line}
		case c == '\\' && (quote == 0 || quote == '"' &&
			strings.ContainsAny(line[i+1:min(i+2, len(line))], "\"\\$`\n")):
			i++
			word.WriteByte(line[i])
			inside = true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if inside {
				words = append(words, word.String())
				word.Reset()
			}
			inside = false
		default:
			word.WriteByte(c)
			inside = true
		}
	}
	switch {
	case quote != 0:
		return []string{line}
	case inside:
		words = append(words, word.String())
	}
	return words
}

// shownCommand takes the shell around a command off: what a person wants to read of `/bin/bash -lc 'go test'` is `go
// test`. An approval may be titled so, but has its exact words beside that.
func shownCommand(line string) string {
	words := shellWords(line)
	last := len(words) - 1
	if last < 2 {
		return line
	}
	shell := strings.ToLower(words[0][strings.LastIndexAny(words[0], `/\`)+1:])
	switch strings.TrimSuffix(shell, ".exe") {
	case "bash", "sh", "zsh", "dash":
		if last == 2 && (words[1] == "-lc" || words[1] == "-c") {
			return words[2]
		}
	case "powershell", "pwsh", "cmd": // behind -File another program runs, whatever follows that
		if (strings.EqualFold(words[last-1], "-Command") || strings.EqualFold(words[last-1], "/c")) &&
			(last == 2 || last == 3 && strings.EqualFold(words[1], "-NoProfile")) {
			return words[last]
		}
	}
	return line
}
