package main

// tools.go owns the table of tools that an MCP client sees: names, texts for
// a model, arguments and the shapes of results. mcp.go shows it and looks
// tools up in it, toolargs.go decodes by it. The order is fixed; nothing here
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
	lasts       bool                                      // runs a turn: progress is told
	run         func(f *mcpFront, c *mcpCall, a toolArgs) // on the reading goroutine: must not block
}

// toolHints are honest: Claude Code runs tools in parallel that only read,
// and asks its user about those that destroy.
type toolHints struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// argSpec is one argument: its schema and its check come from the same line.
type argSpec struct {
	name     string
	kind     string // string, object, number, integer
	text     string
	enum     []string
	min, max float64 // of a number or integer, where max isn't 0
	above    bool    // min itself is refused
}

// The three names of a session. threadId is what callers of the removed
// `codex mcp-server` kept, conversationId what they kept before that.
func refArgs(what string) []argSpec {
	return []argSpec{
		{name: "agent_id", kind: "string", text: what + " The agent_id that its results and agent_sessions show."},
		{name: "threadId", kind: "string", text: "The Codex thread id; accepted instead of agent_id."},
		{name: "conversationId", kind: "string", text: "DEPRECATED: use agent_id or threadId instead."},
	}
}

func policyWords() []string  { return []string{"untrusted", "on-failure", "on-request", "never"} }
func sandboxWords() []string { return []string{"read-only", "workspace-write", "danger-full-access"} }

// maxTimeoutSecs is a day: the longest wall clock a call may set for its turn.
const maxTimeoutSecs = 86400

// defaultSessions is how many sessions agent_sessions lists.
const defaultSessions = 50

// toolTable is the one table of tools.
func toolTable() []tool {
	return []tool{
		{
			name:  "codex",
			title: "Codex",
			description: "Start a new Codex agent on a task and wait for its answer, or reopen an existing agent with agent_id. " +
				"Give exactly one of prompt, agent_file or agent_id (agent_id may come with a prompt). " +
				"The agent works in cwd, can read, edit and run code as its sandbox allows, and sees nothing of your conversation: put everything it needs into the prompt. " +
				"Returns its final answer with agent_id and threadId. The agent and its memory stay, across restarts too: continue it with codex-reply.",
			args: append([]argSpec{
				{name: "prompt", kind: "string", text: "The task: the first message to the agent. With agent_id: its next message, or leave it out to reopen the agent without running a turn."},
				{name: "agent_file", kind: "string", text: "Path of a file that holds the prompt, such as .claude/agents/reviewer.md, instead of prompt. Its YAML front matter may name the agent and its model. Relative to cwd."},
			}, append(refArgs("Reopen this agent, closed or from before a restart, with its conversation, identity and cwd."),
				argSpec{name: "identity", kind: "string", text: "Name of the agent in its team: letters, digits, - and _. It is an error if the name is taken. Without it a free name is given."},
				argSpec{name: "role", kind: "string", text: "Name of a role from the configuration: a preset of model, sandbox, approval policy and effort."},
				argSpec{name: "tag", kind: "string", text: "A label of yours, shown by agent_sessions."},
				argSpec{name: "cwd", kind: "string", text: "Working directory of the agent. Default: the root of the repository this server was started in, else the directory it was started in. Relative paths are resolved against that directory."},
				argSpec{name: "timeout_secs", kind: "number", min: 0, above: true, max: maxTimeoutSecs, text: "Stop the turn after this many seconds; its partial text is returned. Without it only a turn that shows no sign of life is stopped."},
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
				"The agent remembers its whole conversation. Give prompt and agent_id (or threadId). " +
				"Messages sent to a busy agent run in order, one after the other. For a closed agent use codex with its agent_id.",
			args: append([]argSpec{
				{name: "prompt", kind: "string", text: "The next message to the agent."},
			}, refArgs("The agent to continue.")...),
			required: []string{"prompt"},
			output:   turnSchema,
			hints:    toolHints{Destructive: true, OpenWorld: true},
			lasts:    true,
			run:      (*mcpFront).callReply,
		},
		{
			name:  "agent_sessions",
			title: "List agents",
			description: "List the Codex agents: those open here and the team's others that can be continued, newest first, " +
				"with agent_id, identity, status (busy, idle, parked, closed, stale, broken), cwd, tag and what they are doing.",
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
				"how many agents are open and which identity belongs to which agent_id.",
			output: statusSchema,
			hints:  toolHints{ReadOnly: true, Idempotent: true},
			run:    (*mcpFront).callStatus,
		},
		{
			name:  "agent_close",
			title: "Close an agent",
			description: "End an agent and free its identity. Give agent_id or identity. An idle agent closes at once; a busy one is interrupted first. " +
				"Its conversation is kept: codex with its agent_id reopens it. Closing a closed agent does nothing.",
			args: append(refArgs("The agent to close."),
				argSpec{name: "identity", kind: "string", text: "The agent's name, instead of agent_id."}),
			output: closeSchema,
			hints:  toolHints{Destructive: true, Idempotent: true},
			run:    (*mcpFront).callClose,
		},
	}
}

// The output schemas name no required field: a modern client's error result
// has none but error, and a schema that some result breaks is refused by
// clients that check.
const (
	errorSchema = `"error":{"type":"object","description":"Set on an error that is no turn's result","properties":{` +
		`"name":{"type":"string"},"code":{"type":"integer"},"message":{"type":"string"},"error_source":{"type":"string","description":"proxy or child"}},` +
		`"required":["name","code","message","error_source"]}`

	turnSchema = `{"type":"object","properties":{` +
		`"agent_id":{"type":"string","description":"The agent, for codex-reply"},` +
		`"threadId":{"type":"string","description":"The Codex thread"},` +
		`"turn_id":{"type":"string"},` +
		`"content":{"type":"string","description":"The agent's final answer, or why the turn failed"},` +
		`"identity":{"type":"string"},"team":{"type":"string"},` +
		`"status":{"type":"string","description":"Of the agent: busy, idle, parked, closed, stale or broken"},` +
		`"turn_status":{"type":"string","description":"completed, failed or interrupted; absent when no turn ran"},` +
		`"usage":{"type":"object","description":"Tokens used by the thread"},` +
		`"duration_ms":{"type":"integer"},` +
		`"sandbox":{"type":"string","description":"The sandbox that applied"},` +
		`"approval_policy":{"type":"string","description":"The approval policy that applied"},` +
		`"declined":{"type":"array","description":"Actions that were not approved","items":{"type":"object","properties":{"kind":{"type":"string"},"action":{"type":"string"},"reason":{"type":"string"}},"required":["kind","action","reason"]}},` +
		`"notes":{"type":"array","description":"What the caller should know","items":{"type":"string"}},` +
		errorSchema + `}}`

	sessionsSchema = `{"type":"object","properties":{"sessions":{"type":"array","items":{"type":"object","properties":{` +
		`"agent_id":{"type":"string"},"backend":{"type":"string"},"backend_id":{"type":"string","description":"The Codex thread id"},` +
		`"team":{"type":"string"},"identity":{"type":"string"},"agent_name":{"type":"string"},"agent_source":{"type":"string"},` +
		`"status":{"type":"string"},"last_active_at":{"type":"string"},"started_at":{"type":"string"},"tag":{"type":"string"},` +
		`"resumable":{"type":"boolean"},"cwd":{"type":"string"},"turns":{"type":"integer"},"queued":{"type":"integer"},"activity":{"type":"string"},"open_here":{"type":"boolean"}},` +
		`"required":["agent_id","status","identity","team","resumable"]}},` + errorSchema + `}}`

	statusSchema = `{"type":"object","properties":{` +
		`"child_alive":{"type":"boolean","description":"Whether the Codex process runs; it is started by the first turn"},` +
		`"child_version":{"anyOf":[{"type":"string"},{"type":"null"}]},"child_pid":{"type":"integer"},` +
		`"child_error":{"type":"string","description":"How the last Codex process ended"},` +
		`"backend":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"app-server or mcp-server; null before the first turn"},` +
		`"team":{"type":"string"},"team_from":{"type":"string","description":"What set the team"},` +
		`"uptime_secs":{"type":"integer"},"sessions":{"type":"integer","description":"Agents open here"},` +
		`"identities":{"type":"object","description":"identity to agent_id","additionalProperties":{"type":"string"}},` +
		`"pending_mail":{"anyOf":[{"type":"object"},{"type":"integer"},{"type":"null"}],"description":"Unread mail of the agents; null where there is no mail"},` +
		errorSchema + `}}`

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
		out = append(out, listed{t.name, t.title, t.description, t.inputSchema(), json.RawMessage(t.output), t.hints})
	}
	return toJSON(out)
}

// inputSchema writes the arguments in the table's order, which a Go map would
// lose.
func (t *tool) inputSchema() json.RawMessage {
	b := []byte(`{"type":"object","properties":{`)
	for i, a := range t.args {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONString(b, a.name), ':')
		schema := struct {
			Type  string   `json:"type"`
			Text  string   `json:"description"`
			Enum  []string `json:"enum,omitempty"`
			Min   *float64 `json:"minimum,omitempty"`
			Above *float64 `json:"exclusiveMinimum,omitempty"`
			Max   float64  `json:"maximum,omitempty"`
			Open  bool     `json:"additionalProperties,omitempty"`
		}{Type: a.kind, Text: a.text, Enum: a.enum, Max: a.max, Open: a.kind == "object"}
		if a.max != 0 {
			if a.above {
				schema.Above = &a.min
			} else {
				schema.Min = &a.min
			}
		}
		b = append(b, toJSON(schema)...)
	}
	b = append(b, `},`...)
	if len(t.required) > 0 {
		b = append(append(append(b, `"required":`...), toJSON(t.required)...), ',')
	}
	return append(b, `"additionalProperties":false}`...)
}
