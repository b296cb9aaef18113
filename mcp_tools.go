package main

// mcp_tools.go owns the tools as an MCP client sees them: one table, whose row says all of a tool (name, texts for a
// model, arguments, annotations, what a call does, its result), and the way of a tools/call through that table. mcp.go
// calls callTool on the reading goroutine. The order of the table is fixed; nothing in the table may depend on the
// client, the child or the time. Nothing here may guess: an argument that nobody described is an error.

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// tool is one row of the table: what tools/list shows, and what a call does.
type tool struct {
	name        string
	title       string
	description string
	args        []argSpec
	required    []string
	hints       toolHints
	lasts       bool // a call may take minutes: its progress is told
	oneAgent    bool // agent_id and identity must name one agent, which is checked before run
	// run begins a call, on the reading goroutine, and must not block. An error says why the call was not begun, and
	// callTool answers with it; a call that was begun is answered by what run has started.
	run    func(c *mcpCall, a toolArgs) *rpcError
	result any // a value of the struct that structuredContent is written from
}

// refArgs are the arguments that name an agent. threadId is what callers of the
// removed `codex mcp-server` kept, conversationId what they kept before that.
func refArgs(what string) []argSpec {
	return append(idArgs(what), argSpec{name: "identity", kind: "string", text: "The agent's name, instead of " +
		"agent_id."})
}

// idArgs are refArgs without identity, for codex: there identity is the name that the agent shall get.
func idArgs(what string) []argSpec {
	return []argSpec{
		{name: "agent_id", kind: "string", text: what + " Its agent_id, or the name of an open one."},
		{name: "threadId", kind: "string", text: "The Codex thread id, instead of agent_id."},
		{name: "conversationId", kind: "string", old: true},
		{name: "codex_id", kind: "string", old: true}, // agent_id, as the ancestor's callers know it
	}
}

// turnArgs are the arguments of every call that runs a turn.
func turnArgs() []argSpec {
	return []argSpec{
		{name: "background", kind: "boolean", text: "true: return at once with agent_id and turn_id while the agent " +
			"works; agent_wait brings its answer and what it asks approval for. Default: wait for the answer."},
		{name: "notify", kind: "string", text: "With background: the member of the team (name or name@team) who is " +
			"mailed the answer."},
		{name: "timeout_secs", kind: "number", min: 0, above: true, max: maxTimeoutSecs, text: "Stop the turn after " +
			"this many seconds and return its partial text. Default: only a turn without any sign of life is stopped."},
	}
}

// runArgs are the arguments of a call that runs a turn of a caller's own prompt.
func runArgs() []argSpec {
	return append(turnArgs(),
		argSpec{name: "output_schema", kind: "object", text: "JSON Schema that the answer is to follow; the result " +
			"then has it as output, or says in output_error what is wrong with it."},
		argSpec{name: "diff", kind: "boolean", text: "true: keep the whole diff of what the turn edits in a file, " +
			"and name it in changes.diff_file."})
}

func decisionWords() []string {
	return []string{approve.String(), approveForSession.String(), deny.String()}
}

const (
	// defaultWaitSecs and maxWaitSecs are how many seconds agent_wait waits: unless told, and at most. Clients end a
	// call that takes a minute, unless they are sent progress of the call.
	defaultWaitSecs = 45
	maxWaitSecs     = 3600
	// maxWaitAgents is how many agents one agent_wait may name.
	maxWaitAgents = 100
	// maxSeq is the largest number that survives a client's floating point.
	maxSeq = 1<<53 - 1
	// maxTimeoutSecs is a day: the longest wall clock a call may set for its turn.
	maxTimeoutSecs = 86400
	// defaultSessions is how many sessions agent_sessions lists.
	defaultSessions = 50
)

// toolTable is the one table of tools.
func toolTable() []tool {
	return append([]tool{
		{
			name:  "codex",
			title: "Codex",
			description: "Start a Codex agent on a task and wait for its answer, or reopen one with agent_id. Give " +
				"one of prompt, agent_file or agent_id (agent_id may come with a prompt). " +
				"The agent reads, edits and runs code in cwd as its sandbox allows, and sees nothing of your " +
				"conversation: put everything it needs into the prompt. It and its memory stay, across restarts too: " +
				"continue it with codex-reply. For several at once give background: true and collect with " +
				"agent_wait. To have a change reviewed use codex-review.",
			args: slices.Concat([]argSpec{
				{name: "prompt", kind: "string", text: "The task: the first message to the agent. With agent_id: its " +
					"next message, or leave it out to reopen the agent without running a turn."},
				{name: "agent_file", kind: "string", text: "File with the prompt, instead of prompt, such as " +
					".claude/agents/reviewer.md; its front matter may name the agent and its model. Relative to cwd."},
			}, runArgs(), idArgs("Reopen this agent, closed or from before a restart, with all it had."), []argSpec{
				{name: "identity", kind: "string",
					text: "Name of the agent in its team: letters, digits, - and _; an " +
						"error if it is taken. Default: a free name."},
				{name: "fork_of", kind: "string", text: "Begin the new agent with all that this one knows (agent_id " +
					"or name), which goes on untouched. cwd, role and settings are that agent's unless given."},
				{name: "role", kind: "string", text: "A role of the configuration: model, sandbox, approval policy, " +
					"effort."},
				{name: "tag", kind: "string", text: "A label of yours, shown by agent_sessions."},
				{name: "cwd", kind: "string", text: "Working directory of the agent. Default: the root of the " +
					"repository that this server was started in, else where it was started; relative to that."},
				{name: "worktree", kind: "boolean or string", text: "true: the agent works in a git worktree of its " +
					"own, " +
					"on a new branch from HEAD; or name the branch. agent_close removes it if nothing is in it."},
				{name: "model", kind: "string", text: "Model to use instead of the configured one."},
				{name: "approval-policy", kind: "string",
					enum: []string{"untrusted", "on-failure", "on-request", "never"},
					text: "When the agent asks before it acts. on-failure is an older word for on-request."},
				{name: "sandbox", kind: "string", enum: []string{"read-only", "workspace-write", "danger-full-access"},
					text: "What the agent may do; workspace-write: write in cwd."},
				{name: "config", kind: "object", text: "Codex configuration, as in its config.toml: nested objects " +
					"or dotted keys."},
				{name: "base-instructions", kind: "string", text: "Replace Codex's own base instructions."},
				{name: "developer-instructions", kind: "string", text: "Added as a developer message."},
				{name: "compact-prompt", kind: "string", text: "Prompt for compacting the conversation."},
				{name: "profile", kind: "string", text: "A profile of Codex's configuration."},
			}),
			hints:  toolHints{Destructive: true, OpenWorld: true},
			lasts:  true,
			run:    startAgent,
			result: agentTurnShown{},
		},
		{
			name:  "codex-reply",
			title: "Codex Reply",
			description: "Send the next message to a Codex agent, which remembers its whole conversation, and wait " +
				"for its answer. Give prompt and agent_id (or identity, or threadId). " +
				"Messages to a busy agent wait for their turn, in order; steer: true reaches the turn that runs. For " +
				"a closed agent use codex with its agent_id.",
			args: slices.Concat([]argSpec{
				{name: "prompt", kind: "string", text: "The next message to the agent."},
				{name: "steer", kind: "boolean", text: "true: the message goes into the running turn, ahead of what " +
					"is queued, and that turn's answer is yours. If none runs it is an ordinary reply."},
			}, refArgs("The agent to continue."), runArgs()),
			required: []string{"prompt"},
			hints:    toolHints{Destructive: true, OpenWorld: true},
			lasts:    true,
			oneAgent: true,
			run:      continueAgent,
			result:   agentTurnShown{},
		},
		reviewTool(),
		{
			name:  "agent_wait",
			title: "Wait for agents",
			description: "Wait until a Codex agent has finished a turn or asks for an approval, then return it: " +
				"finished answers, pending approvals and questions, and what each agent is doing. " +
				"Give agent_id, or agent_ids for several. It collects background turns, and answers of calls that " +
				"timed out. Nothing is used up: asking again tells the same. " +
				"It returns at once when no turn runs or waits, and after timeout_secs in any case; then call it " +
				"again with since set to the seq it returned, to hear only what is new. " +
				"Decide what waits in pending_approvals with agent_approve: the agent stands still until then. " +
				"Waiting changes nothing, so several calls may run in parallel.",
			args: append(refArgs("The agent to wait for."),
				argSpec{name: "agent_ids", kind: "array", min: 1, max: maxWaitAgents, text: "Several agents, by " +
					"agent_id or name, instead of agent_id."},
				argSpec{name: "codex_ids", kind: "array", min: 1, max: maxWaitAgents, old: true},
				argSpec{name: "inbox", kind: "string", text: "Return on mail of this member too; alone, or beside " +
					"agents. On your own it returns anyway."},
				argSpec{name: "all", kind: "boolean", text: "true: return once every one of them has finished or " +
					"asks for something. Default: the first that does."},
				argSpec{name: "since", kind: "integer", min: 0, max: maxSeq, text: "The seq of an earlier " +
					"agent_wait: only turns that ended after it count. Without it: each agent's newest turn."},
				argSpec{name: "timeout_secs", kind: "number", min: 0, max: maxWaitSecs, text: "How long to wait at " +
					"most; 45 if left out, 0 only looks. The agents' turns are not stopped by it."},
				argSpec{name: "turn_id", kind: "string", text: "Wait for this one turn of the agent, and get its " +
					"answer whole however long it is."}),
			hints:    toolHints{ReadOnly: true, Idempotent: true},
			lasts:    true,
			oneAgent: true,
			run:      waitForAgents,
			result:   waitShown{},
		},
		{
			name:  "agent_approve",
			title: "Decide an agent's approval",
			description: "Decide what a background agent asks for: let it do exactly one thing beyond its sandbox, " +
				"or deny it; or answer its question. " +
				"Copy agent_id, approval_id and action from pending_approvals of agent_wait or agent_status; action " +
				"must be repeated word for word. " +
				"Approve only what the task needs and what you would do yourself. Without a decision it is denied " +
				"after a while and the agent goes on without it. The first decision wins.",
			args: append(refArgs("The agent that asks."),
				argSpec{name: "approval_id", kind: "string", text: "Which approval: its approval_id."},
				argSpec{name: "action", kind: "string", text: "What is decided, repeated exactly as its action shows " +
					"it: the command line, the list of files, the tool or the question."},
				argSpec{name: "decision", kind: "string", enum: decisionWords(), text: "approve: this once. " +
					"approve_for_session: also when this agent asks for the same again, where Codex can. deny: the " +
					"agent goes on without it."},
				argSpec{name: "answers", kind: "object", text: "With approve, for kind question: question id to the " +
					"answer, a string or an array of strings."},
				argSpec{name: "reason", kind: "string", text: "With deny: why, for the agent where Codex can tell " +
					"it, and for the audit log."}),
			required: []string{"approval_id", "action", "decision"},
			hints:    toolHints{Destructive: true, Idempotent: true, OpenWorld: true},
			oneAgent: true,
			run:      decideApproval,
			result:   approvedShown{},
		},
		{
			name:  "agent_interrupt",
			title: "Interrupt an agent",
			description: "Stop the turn that an agent runs, and the shells it left running. The agent stays open " +
				"with its conversation and its queue: codex-reply continues it, agent_close would end it. " +
				"Give agent_id or identity; with turn_id only that turn is stopped, running or still queued. Whoever " +
				"waits for the turn gets what there is of its answer.",
			args: append(refArgs("The agent to interrupt."),
				argSpec{name: "turn_id", kind: "string", text: "Stop this turn and no other: the turn_id that a " +
					"background call returned."}),
			// Not idempotent: without turn_id the next call stops the next turn.
			hints:    toolHints{Destructive: true},
			oneAgent: true,
			run:      interruptAgent,
			result:   interruptShown{},
		},
		{
			name:  "agent_sessions",
			title: "List agents",
			description: "List the Codex agents: those open here and the team's others that can be continued, newest " +
				"first, " +
				"with agent_id, identity, status (busy, idle, parked, closed, stale, broken), cwd, tag, what they " +
				"are doing and which approvals wait.",
			args: []argSpec{
				{name: "limit", kind: "integer", min: 1, max: 1000, text: "How many to list at most; 50 if left out."},
			},
			hints:  toolHints{ReadOnly: true, Idempotent: true},
			run:    listAgents,
			result: sessionsShown{},
		},
		{
			name:  "agent_status",
			title: "Agent server status",
			description: "Tell how this server is: whether the Codex process runs and which version, the team, " +
				"uptime, " +
				"which agents are open, what each is doing or waiting for, their pending approvals, and how full " +
				"this server's buffers are.",
			hints:  toolHints{ReadOnly: true, Idempotent: true},
			run:    showStatus,
			result: statusShown{},
		},
		{
			name:  "agent_close",
			title: "Close an agent",
			description: "End an agent and free its identity. Give agent_id or identity. An idle agent closes at " +
				"once; a busy one is interrupted first. " +
				"Its conversation is kept: codex with its agent_id reopens it. Closing a closed agent does nothing.",
			args:     refArgs("The agent to close."),
			hints:    toolHints{Destructive: true, Idempotent: true},
			oneAgent: true,
			run:      closeAgent,
			result:   closeResult{},
		},
		{
			name:  "agent_mail",
			title: "Switch an agent's mail",
			description: "Say whether mail of the team starts turns of an agent by itself. auto false: its mail " +
				"waits unread until the agent or you read it with atm_read. " +
				"auto true: it is delivered again, also where it was paused after too many mail turns in a row. Give " +
				"agent_id or identity; agent_status shows auto_mail and pending_mail.",
			args: append(refArgs("The agent that is meant."),
				argSpec{name: "auto", kind: "boolean", text: "true: mail is delivered as soon as the agent is idle. " +
					"false: it waits."}),
			required: []string{"auto"},
			hints:    toolHints{Idempotent: true},
			oneAgent: true,
			run:      switchMail,
			result:   mailSwitchShown{},
		},
	}, mailTools()...)
}

// toolList renders the table as the tools of tools/list.
func toolList(tools []tool) json.RawMessage {
	out := make([]listedTool, 0, len(tools))
	for _, t := range tools {
		l := listedTool{t.name, t.title, t.description, argsSchema(t.args, t.required), nil, t.hints}
		if t.result != nil {
			l.Output = resultSchema(t.result, errorResult{})
		}
		out = append(out, l)
	}
	return toJSON(out)
}

// listedTool is a tool in tools/list.
type listedTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema,omitempty"`
	Hints       toolHints       `json:"annotations"`
}

// callTool serves tools/call.
func callTool(c *mcpCall, p mcpParams) *rpcError {
	name, ok := rawString(p.name)
	if !ok {
		return badParams("name must be a string, the tool to call")
	}
	i := slices.IndexFunc(c.f.tools, func(t tool) bool { return t.name == name })
	if i < 0 {
		var names []string
		for _, t := range c.f.tools {
			names = append(names, t.name)
		}
		return badParams("unknown tool %q (there are %s)%s", name, strings.Join(names, ", "), didYouMean(name, names))
	}
	if c.f.agent != nil {
		return c.f.agent.call(c, name, p)
	}
	if p.modern && !(isNull(p.state) && isNull(p.responses)) { // a retry goes on with its turn and never begins one
		return retryCall(c, p, name)
	}
	if c.elicits {
		c.tool, c.args = name, p.arguments
	}
	t := &c.f.tools[i]
	args, e := decodeArgs(name, t.args, p.arguments)
	if e == nil && t.oneAgent {
		e = oneAgent(c, args)
	}
	if e != nil {
		return e
	}
	if t.lasts {
		c.showProgress(p)
	}
	return t.run(c, args)
}

// reference finds the one session that agent_id, threadId and conversationId name, "" if none is given.
func (a toolArgs) reference() (string, *rpcError) {
	ref, from := "", ""
	for _, name := range []string{"agent_id", "codex_id", "threadId", "conversationId"} {
		if !a.has(name) {
			continue
		}
		s := strings.TrimSpace(a.str(name))
		switch {
		case s == "":
			return "", invalidSession("%s is empty; agent_sessions lists the agents", name)
		case ref != "" && ref != s:
			return "", invalidSession("%s %q and %s %q are two names; give only one of them", from, ref, name, s)
		case ref == "":
			ref, from = s, name
		}
	}
	return ref, nil
}

// agent is the one agent that a call is about, by any of its names, "" if none is
// given. oneAgent has seen to it that all names given are of one agent.
func (a toolArgs) agent() (ref string, e *rpcError) {
	if ref, e = a.reference(); ref == "" && e == nil {
		ref = strings.TrimSpace(a.str("identity"))
	}
	return ref, e
}

// target is agent, with an error for a call that names no agent; verb is what the error says the agent was wanted for.
func (a toolArgs) target(verb string) (ref string, e *rpcError) {
	if ref, e = a.agent(); ref == "" && e == nil {
		e = invalidSession("no agent: give agent_id or identity of the agent to %s; agent_sessions lists them", verb)
	}
	return ref, e
}

// oneAgent refuses an identity that is no name, or is another agent's than agent_id. In codex identity is the name
// that an agent is to get, in every other tool the agent's.
func oneAgent(c *mcpCall, a toolArgs) *rpcError {
	if !a.has("identity") {
		return nil
	}
	identity := strings.TrimSpace(a.str("identity"))
	if err := validIdentity(identity); err != nil {
		return invalidSession("%v", err)
	}
	ref, e := a.reference()
	if e != nil || ref == "" || ref == identity {
		return e
	}
	switch v := liveView(c, ref); {
	case v == nil:
		return invalidSession("agent_id %q and identity %q are two names; give only one of them", cutName(ref),
			identity)
	case !v.named(identity):
		return invalidSession("agent_id %q is agent %s, whose identity is %s and not %s; give only the one that you "+
			"mean", cutName(ref), v.AgentID, v.Identity, identity)
	}
	return nil
}

// errorResult is the result of a modern client's call that went wrong.
type errorResult struct {
	Error *errorShown `json:"error,omitempty" doc:"Instead of all else, on an error"`
}

// errorShown is an error as structuredContent has it.
type errorShown struct {
	Name    string `json:"name"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Source  string `json:"error_source" doc:"proxy or child"`

	details map[string]json.RawMessage // what else the error's data says, by key
}

// MarshalJSON writes the details beside what every error has.
func (e *errorShown) MarshalJSON() ([]byte, error) {
	type always errorShown // without this method
	all := maps.Clone(e.details)
	err := json.Unmarshal(toJSON((*always)(e)), &all)
	return toJSON(all), err
}

func shownError(e *rpcError) *errorShown {
	s := &errorShown{Name: codeName(e.Code), Code: e.Code, Message: e.Message, details: map[string]json.RawMessage{}}
	_ = eachField(e.Data, func(key string, val json.RawMessage) bool {
		s.details[key] = val
		return true
	})
	// The second name is of an error of ours that is nobody's fault, the third of one that has the child's own code.
	s.Name = cmp.Or(s.Name, stringField(e.Data, "name"), "CODEX_ERROR")
	s.Source = cmp.Or(stringField(e.Data, "error_source"), "proxy")
	return s
}
