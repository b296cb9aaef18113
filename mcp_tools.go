package main

// mcp_tools.go owns the table of tools that an MCP client sees: names, texts for
// a model, arguments and the shapes of results. mcp.go shows it and looks
// tools up in it, mcp_toolargs.go decodes by it. The order is fixed; nothing here
// may depend on the client, the child or the time.

import "encoding/json"

// tool is one entry of tools/list and what a call of it does.
type tool struct {
	name        string
	title       string
	description string
	args        []argSpec
	required    []string
	output      string // JSON Schema of structuredContent, errors of modern clients included
	hints       toolHints
	lasts       bool                                      // may take minutes: progress is told
	audited     bool                                      // refusals are too: it reads who is meant itself
	run         func(f *mcpFront, c *mcpCall, a toolArgs) // on the reading goroutine: must not block
}

// refArgs are the names of a session. threadId is what callers of the removed
// `codex mcp-server` kept, conversationId what they kept before that.
func refArgs(what string) []argSpec {
	return append(idArgs(what), argSpec{name: "identity", kind: "string", text: "The agent's name, instead of agent_id."})
}

// idArgs are those that codex has too, where identity is the name to be given.
func idArgs(what string) []argSpec {
	return []argSpec{
		{name: "agent_id", kind: "string", text: what + " Its agent_id, or the name of an open one."},
		{name: "threadId", kind: "string", text: "The Codex thread id; accepted instead of agent_id."},
		{name: "conversationId", kind: "string", text: "DEPRECATED: use agent_id or threadId instead."},
	}
}

// runArgs are those of a call that runs a turn.
func runArgs() []argSpec {
	return []argSpec{
		{name: "background", kind: "boolean", text: "true: answer at once with agent_id and turn_id while the agent works. Collect the answer with agent_wait; what the agent asks approval for is shown there and decided with agent_approve. Default: false, wait for the answer."},
		{name: "notify", kind: "string", text: "With background: the member of the team (a name, or name@team) who is mailed the answer when it is there."},
		{name: "timeout_secs", kind: "number", min: 0, above: true, max: maxTimeoutSecs, text: "Stop the turn after this many seconds; its partial text is returned. Without it only a turn that shows no sign of life is stopped."},
	}
}

func decisionWords() []string {
	return []string{approve.String(), approveForSession.String(), deny.String()}
}
func policyWords() []string  { return []string{"untrusted", "on-failure", "on-request", "never"} }
func sandboxWords() []string { return []string{"read-only", "workspace-write", "danger-full-access"} }

// How many seconds agent_wait waits: unless told, and at most. Clients end a
// call that takes a minute, unless it tells progress.
const (
	defaultWaitSecs = 45
	maxWaitSecs     = 3600
)

// maxWaitAgents is how many agents one agent_wait may name.
const maxWaitAgents = 100

// maxSeq is the largest number that survives a client's floating point.
const maxSeq = 1<<53 - 1

// maxTimeoutSecs is a day: the longest wall clock a call may set for its turn.
const maxTimeoutSecs = 86400

// defaultSessions is how many sessions agent_sessions lists.
const defaultSessions = 50

// toolTable is the one table of tools.
func toolTable() []tool {
	return append([]tool{
		{
			name:  "codex",
			title: "Codex",
			description: "Start a new Codex agent on a task and wait for its answer, or reopen an existing agent with agent_id. " +
				"Give exactly one of prompt, agent_file or agent_id (agent_id may come with a prompt). " +
				"The agent works in cwd, can read, edit and run code as its sandbox allows, and sees nothing of your conversation: put everything it needs into the prompt. " +
				"Returns its final answer with agent_id and threadId; with background: true it returns at once and agent_wait brings the answer. " +
				"The agent and its memory stay, across restarts too: continue it with codex-reply.",
			args: append(append([]argSpec{
				{name: "prompt", kind: "string", text: "The task: the first message to the agent. With agent_id: its next message, or leave it out to reopen the agent without running a turn."},
				{name: "agent_file", kind: "string", text: "Path of a file that holds the prompt, such as .claude/agents/reviewer.md, instead of prompt. Its YAML front matter may name the agent and its model. Relative to cwd."},
			}, runArgs()...), append(idArgs("Reopen this agent, closed or from before a restart, with its conversation, identity and cwd."),
				argSpec{name: "identity", kind: "string", text: "Name of the agent in its team: letters, digits, - and _. It is an error if the name is taken. Without it a free name is given."},
				argSpec{name: "role", kind: "string", text: "Name of a role from the configuration: a preset of model, sandbox, approval policy and effort."},
				argSpec{name: "tag", kind: "string", text: "A label of yours, shown by agent_sessions."},
				argSpec{name: "cwd", kind: "string", text: "Working directory of the agent. Default: the root of the repository this server was started in, else the directory it was started in. Relative paths are resolved against that directory."},
				argSpec{name: "model", kind: "string", text: "Model to use instead of the configured one."},
				argSpec{name: "approval-policy", kind: "string", enum: policyWords(), text: "When the agent must ask before it acts: untrusted, on-request or never. on-failure is an older word for on-request."},
				argSpec{name: "sandbox", kind: "string", enum: sandboxWords(), text: "What the agent may do: read-only, workspace-write (write in cwd) or danger-full-access."},
				argSpec{name: "config", kind: "object", text: "Codex configuration overrides, as in its config.toml; nested objects or dotted keys."},
				argSpec{name: "base-instructions", kind: "string", text: "Instructions that replace Codex's own base instructions."},
				argSpec{name: "developer-instructions", kind: "string", text: "Instructions added for the agent as a developer message."},
				argSpec{name: "compact-prompt", kind: "string", text: "Prompt used when the agent's conversation is compacted."},
				argSpec{name: "profile", kind: "string", text: "Name of a Codex configuration profile to take defaults from."},
			)...),
			output: turnSchema,
			hints:  toolHints{Destructive: true, OpenWorld: true},
			lasts:  true,
			run:    (*mcpFront).callCodex,
		},
		{
			name:  "codex-reply",
			title: "Codex Reply",
			description: "Send the next message to an existing Codex agent and wait for its answer. " +
				"The agent remembers its whole conversation. Give prompt and agent_id (or its identity, or threadId). " +
				"Messages sent to a busy agent run in order, one after the other; background: true queues one and returns at once. For a closed agent use codex with its agent_id.",
			args: append(append([]argSpec{
				{name: "prompt", kind: "string", text: "The next message to the agent."},
			}, refArgs("The agent to continue.")...), runArgs()...),
			required: []string{"prompt"},
			output:   turnSchema,
			hints:    toolHints{Destructive: true, OpenWorld: true},
			lasts:    true,
			run:      (*mcpFront).callReply,
		},
		{
			name:  "agent_wait",
			title: "Wait for agents",
			description: "Wait until a Codex agent has finished a turn or asks for an approval, then return it: finished answers, pending approvals and questions, and what each agent is doing. " +
				"Give agent_id, or agent_ids for several. It collects background turns, and answers of calls that timed out. Nothing is used up: asking again tells the same. " +
				"It returns at once when no turn runs or waits, and after timeout_secs in any case; then call it again with since set to the seq it returned, to hear only what is new. " +
				"Decide what waits in pending_approvals with agent_approve: the agent stands still until then. Waiting changes nothing, so several calls may run in parallel.",
			args: append(refArgs("The agent to wait for."),
				argSpec{name: "agent_ids", kind: "array", min: 1, max: maxWaitAgents, text: "Several agents, by agent_id or name, instead of agent_id."},
				argSpec{name: "inbox", kind: "string", text: "Return on mail of this member too; alone, or beside agents. On your own it returns anyway."},
				argSpec{name: "all", kind: "boolean", text: "true: return once every one of them has finished or asks for something. Default: the first that does."},
				argSpec{name: "since", kind: "integer", min: 0, max: maxSeq, text: "The seq of an earlier agent_wait: only turns that ended after it count. Without it: each agent's newest turn."},
				argSpec{name: "timeout_secs", kind: "number", min: 0, max: maxWaitSecs, text: "How long to wait at most; 45 if left out, 0 only looks. The agents' turns are not stopped by it."},
				argSpec{name: "turn_id", kind: "string", text: "Wait for this one turn of the agent, and get its answer whole however long it is."}),
			output: waitSchema,
			hints:  toolHints{ReadOnly: true, Idempotent: true},
			lasts:  true,
			run:    (*mcpFront).callWait,
		},
		{
			name:  "agent_approve",
			title: "Decide an agent's approval",
			description: "Decide what a background agent asks for: let it do exactly one thing beyond its sandbox, or deny it; or answer its question. " +
				"Copy agent_id, approval_id and action from pending_approvals of agent_wait or agent_status; action must be repeated word for word. " +
				"Approve only what the task needs and what you would do yourself. Without a decision it is denied after a while and the agent goes on without it. The first decision wins.",
			args: append(refArgs("The agent that asks."),
				argSpec{name: "approval_id", kind: "string", text: "Which approval: its approval_id."},
				argSpec{name: "action", kind: "string", text: "What is decided, repeated exactly as its action shows it: the command line, the list of files, the tool or the question."},
				argSpec{name: "decision", kind: "string", enum: decisionWords(), text: "approve: this once. approve_for_session: also when this agent asks for the same again, where Codex can. deny: the agent goes on without it."},
				argSpec{name: "answers", kind: "object", text: "With approve, for kind question: question id to the answer, a string or an array of strings."},
				argSpec{name: "reason", kind: "string", text: "With deny: why, for the agent where Codex can tell it, and for the audit log."}),
			required: []string{"approval_id", "action", "decision"},
			output:   approveSchema,
			hints:    toolHints{Destructive: true, Idempotent: true, OpenWorld: true},
			run:      (*mcpFront).callApprove,
		},
		{
			name:  "agent_interrupt",
			title: "Interrupt an agent",
			description: "Stop the turn that an agent runs, and the shells it left running. The agent stays open with its conversation and its queue: codex-reply continues it, agent_close would end it. " +
				"Give agent_id or identity; with turn_id only that turn is stopped, running or still queued. Whoever waits for the turn gets what there is of its answer.",
			args: append(refArgs("The agent to interrupt."),
				argSpec{name: "turn_id", kind: "string", text: "Stop this turn and no other: the turn_id that a background call returned."}),
			output: interruptSchema,
			// Not idempotent: without turn_id the next call stops the next turn.
			hints: toolHints{Destructive: true},
			run:   (*mcpFront).callInterrupt,
		},
		{
			name:  "agent_sessions",
			title: "List agents",
			description: "List the Codex agents: those open here and the team's others that can be continued, newest first, " +
				"with agent_id, identity, status (busy, idle, parked, closed, stale, broken), cwd, tag, what they are doing and which approvals wait.",
			args: []argSpec{
				{name: "limit", kind: "integer", min: 1, max: 1000, text: "How many to list at most; 50 if left out."},
			},
			output: sessionsSchema,
			hints:  toolHints{ReadOnly: true, Idempotent: true},
			run:    (*mcpFront).callSessions,
		},
		{
			name:  "agent_status",
			title: "Agent server status",
			description: "Tell how this server is: whether the Codex process runs and which version, the team, uptime, " +
				"which agents are open, what each is doing or waiting for, their pending approvals, and how full this server's buffers are.",
			output: statusSchema,
			hints:  toolHints{ReadOnly: true, Idempotent: true},
			run:    (*mcpFront).callStatus,
		},
		{
			name:  "agent_close",
			title: "Close an agent",
			description: "End an agent and free its identity. Give agent_id or identity. An idle agent closes at once; a busy one is interrupted first. " +
				"Its conversation is kept: codex with its agent_id reopens it. Closing a closed agent does nothing.",
			args:   refArgs("The agent to close."),
			output: closeSchema,
			hints:  toolHints{Destructive: true, Idempotent: true},
			run:    (*mcpFront).callClose,
		},
		{
			name:  "agent_mail",
			title: "Switch an agent's mail",
			description: "Say whether mail of the team starts turns of an agent by itself. auto false: its mail waits unread until the agent or you read it with atm_read. " +
				"auto true: it is delivered again, also where it was paused after too many mail turns in a row. Give agent_id or identity; agent_status shows auto_mail and pending_mail.",
			args: append(refArgs("The agent that is meant."),
				argSpec{name: "auto", kind: "boolean", text: "true: mail is delivered as soon as the agent is idle. false: it waits."}),
			required: []string{"auto"},
			output:   agentMailSchema,
			hints:    toolHints{Idempotent: true},
			run:      (*mcpFront).callAgentMail,
		},
	}, mailTools()...)
}

// The output schemas name no required field: a modern client's error result
// has none but error, and a schema that some result breaks is refused by
// clients that check.
const (
	errorSchema = `"error":{"type":"object","description":"Set on an error that is no turn's result","properties":{` +
		`"name":{"type":"string"},"code":{"type":"integer"},"message":{"type":"string"},"error_source":{"type":"string","description":"proxy or child"}},` +
		`"required":["name","code","message","error_source"]}`

	// A turn's result, beside who ran it.
	resultProps = `"turn_id":{"type":"string"},` +
		`"content":{"type":"string","description":"The agent's final answer, or why the turn failed"},` +
		`"turn_status":{"type":"string","description":"completed, failed or interrupted; queued or running while it has no result; absent when no turn ran"},` +
		`"usage":{"type":"object","description":"Tokens used by the thread"},` +
		`"duration_ms":{"type":"integer"},` +
		`"sandbox":{"type":"string","description":"The sandbox that applied"},` +
		`"approval_policy":{"type":"string","description":"The approval policy that applied"},` +
		`"declined":{"type":"array","description":"Actions that were not approved","items":{"type":"object","properties":{"kind":{"type":"string"},"action":{"type":"string"},"reason":{"type":"string"}},"required":["kind","action","reason"]}},` +
		`"notes":{"type":"array","description":"What the caller should know","items":{"type":"string"}},` +
		errorSchema

	turnSchema = `{"type":"object","properties":{` +
		`"agent_id":{"type":"string","description":"The agent, for codex-reply"},` +
		`"threadId":{"type":"string","description":"The Codex thread"},` +
		`"identity":{"type":"string"},"team":{"type":"string"},` +
		`"status":{"type":"string","description":"Of the agent: busy, idle, parked, closed, stale or broken"},` +
		resultProps + `}}`

	pendingProp = `"pending_approvals":{"type":"array","description":"What waits for a decision: agent_approve with agent_id, approval_id and the same action","items":{"type":"object","properties":{` +
		`"approval_id":{"type":"string"},"kind":{"type":"string","description":"command, file_change, permissions, mcp_tool or question"},` +
		`"action":{"type":"string","description":"What would be done, exactly"},"command":{"type":"string"},"cwd":{"type":"string"},` +
		`"diff":{"type":"string","description":"Of a file_change"},"reason":{"type":"string","description":"The agent's own words"},` +
		`"questions":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"header":{"type":"string"},"text":{"type":"string"},"options":{"type":"array","items":{"type":"string"}}},"required":["id","text"]}},` +
		`"subagent":{"type":"string","description":"The subagent that asks"},"for_session":{"type":"boolean","description":"approve_for_session means more than approve"}},"required":["approval_id","kind","action"]}}`

	waitSchema = `{"type":"object","properties":{` +
		`"seq":{"type":"integer","description":"For since of the next agent_wait"},` +
		`"timed_out":{"type":"boolean","description":"The time was over before what was waited for"},` +
		`"next":{"type":"string","description":"What to do now"},` +
		`"unread":{"type":"integer","description":"Unread messages of the identity that was waited for"},` +
		`"agents":{"type":"array","items":{"type":"object","properties":{` +
		`"agent_id":{"type":"string"},"threadId":{"type":"string"},"identity":{"type":"string"},"status":{"type":"string"},` +
		`"activity":{"type":"string","description":"What it is doing"},"turn_source":{"type":"string","description":"Who wanted the running turn"},` +
		mailProps + `,` +
		`"queued":{"type":"integer","description":"Turns that wait behind the running one"},"last_error":{"type":"string"},` +
		`"turns":{"type":"array","description":"Oldest first","items":{"type":"object","properties":{` + resultProps + `,` +
		`"source":{"type":"string","description":"Who wanted the turn, unless a client did"},"seq":{"type":"integer"},` +
		`"activity":{"type":"string"},"content_bytes":{"type":"integer","description":"Of the whole answer, where content is only its head: agent_wait with turn_id brings all of it"}},` +
		`"required":["turn_id","turn_status"]}},` + pendingProp + `},` +
		`"required":["agent_id","status","queued","turns","pending_approvals"]}},` + errorSchema + `}}`

	approveSchema = `{"type":"object","properties":{"agent_id":{"type":"string"},"identity":{"type":"string"},` +
		`"approval_id":{"type":"string"},"action":{"type":"string"},"decision":{"type":"string"},` + errorSchema + `}}`

	interruptSchema = `{"type":"object","properties":{"agent_id":{"type":"string"},"identity":{"type":"string"},` +
		`"turn_id":{"type":"string","description":"The turn that was stopped"},` +
		`"interrupted":{"type":"boolean","description":"false: there was nothing to stop"},` +
		`"queued":{"type":"integer","description":"Turns that still wait"},` +
		`"status":{"type":"string"},` + errorSchema + `}}`

	agentsItems = `{"type":"array","items":{"type":"object","properties":{` +
		`"agent_id":{"type":"string"},"backend":{"type":"string"},"backend_id":{"type":"string","description":"The Codex thread id"},` +
		`"team":{"type":"string"},"identity":{"type":"string"},"agent_name":{"type":"string"},"agent_source":{"type":"string"},` +
		`"status":{"type":"string"},"interrupted":{"type":"boolean"},"last_active_at":{"type":"string"},"started_at":{"type":"string"},` +
		`"tag":{"type":"string"},"role":{"type":"string"},"resumable":{"type":"boolean"},"cwd":{"type":"string"},"turns":{"type":"integer"},` +
		`"turn_source":{"type":"string","description":"Who wanted the running turn: client, mail, resume or summary"},` +
		`"queued":{"type":"integer"},"activity":{"type":"string"},"last_error":{"type":"string"},` +
		mailProps + `,` +
		`"dropped_events":{"type":"integer","description":"Events this client did not get, since it read too slowly"},` +
		`"total_tokens":{"type":"integer"},"open_here":{"type":"boolean"},` + pendingProp + `},` +
		`"required":["agent_id","status","identity","team","resumable"]}}`

	sessionsSchema = `{"type":"object","properties":{"sessions":` + agentsItems + `,` + errorSchema + `}}`

	statusSchema = `{"type":"object","properties":{` +
		`"child_alive":{"type":"boolean","description":"Whether the Codex process runs; it is started by the first turn"},` +
		`"child_version":{"anyOf":[{"type":"string"},{"type":"null"}]},"child_pid":{"type":"integer"},` +
		`"child_error":{"type":"string","description":"How the last Codex process ended"},` +
		`"records_error":{"type":"string","description":"Why agents won't survive this server, while their records can't be written"},` +
		`"backend":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"app-server or mcp-server; null before the first turn"},` +
		`"team":{"type":"string"},"team_from":{"type":"string","description":"What set the team"},` +
		`"uptime_secs":{"type":"integer"},"sessions":{"type":"integer","description":"Agents open here"},` +
		`"identities":{"type":"object","description":"identity to agent_id","additionalProperties":{"type":"string"}},` +
		`"agents":` + agentsItems + `,` +
		`"budget":{"type":"object","description":"How full this server's buffers are","properties":{` +
		`"event_bytes_waiting":{"type":"integer","description":"Bytes of Codex events not taken in yet"},"event_bytes_limit":{"type":"integer"},` +
		`"output_bytes_waiting":{"type":"integer","description":"Bytes this client has not read yet"},"output_bytes_limit":{"type":"integer"}}},` +
		`"pending_mail":{"anyOf":[{"type":"integer"},{"type":"null"}],"description":"Unread mail of the agents open here; null where there is no mail"},` +
		errorSchema + `}}`

	// An agent's mail.
	mailProps = `"pending_mail":{"type":"integer","description":"Unread messages"},` +
		`"auto_mail":{"type":"string","description":"Whether mail starts turns: on, off, or paused and why"}`

	agentMailSchema = `{"type":"object","properties":{"agent_id":{"type":"string"},"identity":{"type":"string"},` + mailProps + `,` + errorSchema + `}}`

	closeSchema = `{"type":"object","properties":{"agent_id":{"type":"string"},"identity":{"type":"string"},` +
		`"status":{"type":"string"},"already_closed":{"type":"boolean"},` +
		`"interrupted":{"type":"boolean","description":"A running turn was stopped"},` + errorSchema + `}}`
)

// toolList renders the table as the tools of tools/list.
func toolList(tools []tool) json.RawMessage {
	type listed struct {
		Name        string          `json:"name"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"inputSchema"`
		Output      json.RawMessage `json:"outputSchema"`
		Hints       toolHints       `json:"annotations"`
	}
	out := make([]listed, 0, len(tools))
	for i := range tools {
		t := &tools[i]
		out = append(out, listed{t.name, t.title, t.description, argsSchema(t.args, t.required), json.RawMessage(t.output), t.hints})
	}
	return toJSON(out)
}
