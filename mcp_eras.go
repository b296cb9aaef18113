package main

// mcp_eras.go owns how a client and this server come to know each other: the handshake of the older versions, the _meta
// of every request since 2026-07-28, server/discover, the list of tools and the subscriptions. mcp.go calls it on the
// reading goroutine. Nothing in it may wait.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	modernVersion = "2026-07-28"
	latestLegacy  = "2025-11-25"
	metaPrefix    = "io.modelcontextprotocol/"
	metaVersion   = metaPrefix + "protocolVersion"
	metaCaps      = metaPrefix + "clientCapabilities"
	metaClient    = metaPrefix + "clientInfo"
	serverTitle   = "Codex agents" // as a client's user is shown this server
	// cacheMS is for how many milliseconds a modern client may keep what never
	// changes while one version of this program runs.
	cacheMS = 3600_000
)

// mcpVersions are all the revisions served, newest first.
func mcpVersions() []string { return append([]string{modernVersion}, legacyVersions()...) }

// legacyVersions are those that begin with initialize, newest first.
func legacyVersions() []string {
	return []string{latestLegacy, "2025-06-18", "2025-03-26", "2024-11-05"}
}

// instructions are shown to the model, cut at 2 KB by some clients: the facts that change what it does come first.
const instructions = `Codex agents as teammates: each agent is a named, persistent OpenAI Codex coding session that reads, edits and runs code in a directory on this machine.

Which tool when:
- codex: start a NEW agent with a task (prompt or agent_file). Returns its answer and an agent_id. With agent_id: reopen a closed or earlier one. fork_of: begin with what another agent knows. worktree: true: it edits in a git tree of its own.
- codex-reply: give an EXISTING agent its next message (agent_id, prompt); prefer it to starting over. steer: true reaches the turn that runs.
- codex-review: have a change reviewed, read-only: what is not committed, a branch or a commit; findings with severity, file and lines.
- background: true on these returns at once; agent_wait {agent_id or agent_ids} brings the answers. For long tasks and several agents at a time; pass its seq as since to hear only what is new.
- agent_approve: when agent_wait shows pending_approvals, decide each (agent_id, approval_id, action word for word). Until then the agent stands still.
- agent_interrupt: stop a turn, keep the agent. agent_close: end an agent, free its name.
- agent_sessions: find agents. agent_status: is Codex running, what does every agent do, how much of the account's limits is used.
- atm_send, atm_read, atm_broadcast, atm_pending_count: mail of the team, for an agent or in your own name; your_mail in results tells yours. agent_mail: whether mail starts an agent's turns.

Good to know:
- An agent knows only its prompt, its conversation and the files it can read: put goal, paths and constraints into the prompt.
- If a call timed out on your side, agent_wait still brings its answer.
- identity names an agent, is its address in the team and works as agent_id while it is open.
- Results tell changes (files that Codex edited), declined (what was not approved) and notes. output_schema makes the answer JSON.
- isError means the turn ran and failed: content says why, codex-reply can go on. Errors begin with a name such as SESSION_NOT_FOUND and say what to do.`

// legacyClient is what an initialize told. It never changes.
type legacyClient struct {
	version  string
	elicits  bool // can be asked with elicitation/create
	forwards bool // gets codex/event
}

// requestEra is what one request tells of its client. Every field is false for a
// request of the older versions, whose client told all that in its initialize.
type requestEra struct {
	modern  bool
	elicits bool // the client can be asked something by the answer to this request
	tasks   bool // the client takes a task for an answer
}

// mcpParams are the parameters that several methods share, found in one pass over what may be megabytes.
type mcpParams struct {
	requestEra
	meta, name, arguments, cursor json.RawMessage
	state, responses              json.RawMessage // of a retry: requestState, inputResponses
}

// readParams finds the parameters and the era of a request. An error is one
// of the modern _meta: a request with half of that is no legacy request.
func readParams(raw json.RawMessage) (mcpParams, *rpcError) {
	var p mcpParams
	if isNull(raw) {
		return p, nil
	}
	shared := map[string]*json.RawMessage{"_meta": &p.meta, "name": &p.name, "arguments": &p.arguments,
		"cursor": &p.cursor, "requestState": &p.state, "inputResponses": &p.responses}
	err := eachField(raw, func(key string, val json.RawMessage) bool {
		if param := shared[key]; param != nil {
			*param = val
		}
		return true
	})
	if err != nil {
		return p, badParams("params must be an object")
	}
	if rawKind(p.meta) != '{' {
		return p, nil
	}
	version, caps, info := rawField(p.meta, metaVersion), rawField(p.meta, metaCaps), rawField(p.meta, metaClient)
	if version == nil && caps == nil && info == nil && rawField(p.meta, metaPrefix+"logLevel") == nil {
		return p, nil
	}
	p.modern = true
	p.elicits = takesForms(rawField(caps, "elicitation"))
	p.tasks = rawKind(rawField(caps, "extensions", tasksExtension)) == '{'
	word, ok := rawString(version)
	switch {
	case !ok:
		return p, badParams("_meta %q must be a string, one of %s", metaVersion, strings.Join(mcpVersions(), ", "))
	case rawKind(caps) != '{':
		return p, badParams("_meta %q must be an object: it is required on every request of %s", metaCaps,
			modernVersion)
	case info != nil && rawKind(info) != '{':
		return p, badParams("_meta %q must be an object", metaClient)
	case word != modernVersion:
		return p, &rpcError{Code: codeBadVersion,
			Message: fmt.Sprintf("Unsupported protocol version %q: a request with this _meta is served in %s; the "+
				"older versions begin with initialize", word, modernVersion),
			Data: toJSON(map[string]any{"supported": mcpVersions(), "requested": word})}
	}
	return p, nil
}

// takesForms reads the elicitation capability of a client: an empty object means form.
func takesForms(elicitation json.RawMessage) bool {
	return rawKind(elicitation) == '{' && (rawField(elicitation, "form") != nil || rawField(elicitation, "url") == nil)
}

// helloResult is the answer to initialize.
type helloResult struct {
	Version      string         `json:"protocolVersion"`
	Capabilities map[string]any `json:"capabilities"`
	Server       serverInfo     `json:"serverInfo"`
	Instructions string         `json:"instructions"`
}

type serverInfo struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

func (f *mcpFront) serverInfo() serverInfo {
	info := serverInfo{f.Names.word(serverName), serverTitle, f.Version}
	if f.agent != nil {
		info.Title = "Mail of your team"
	}
	return info
}

// instructions are what the model is told of the tools as a whole.
func (f *mcpFront) instructions() string {
	if f.agent != nil {
		return f.agent.instructions()
	}
	return f.Names.text(instructions)
}

// initialize answers the legacy handshake. A second one is answered too: a
// client that reconnects through a relay can't know that there was a first.
func initialize(c *mcpCall, params json.RawMessage) {
	l := &legacyClient{version: latestLegacy}
	if asked := stringField(params, "protocolVersion"); slices.Contains(legacyVersions(), asked) {
		l.version = asked
	}
	// elicitation appeared in 2025-06-18
	l.elicits = l.version >= "2025-06-18" && takesForms(rawField(params, "capabilities", "elicitation"))
	name := stringField(params, "clientInfo", "name")
	switch c.f.ForwardEvents {
	case "on":
		l.forwards = true
	case "off":
	default:
		l.forwards = !warnsOfUnknown(name)
	}
	c.f.legacy.Store(l)
	c.f.Log.Info("client connected", "client", name, "client_version", stringField(params, "clientInfo", "version"),
		"asked", stringField(params, "protocolVersion"), "protocol", l.version, "elicitation", l.elicits,
		"codex_events", l.forwards)
	c.reply(toJSON(helloResult{l.version, c.f.capabilities(false), c.f.serverInfo(), c.f.instructions()}))
}

// warnsOfUnknown reports the clients that log a warning for every notification outside of the specification
// (openai/codex#4223): those on the Python SDK, which calls itself "mcp" unless told otherwise.
func warnsOfUnknown(client string) bool { return strings.EqualFold(client, "mcp") }

// capabilities are the server's own in one of the eras. Where only an agent's mail is served there are no tasks.
func (f *mcpFront) capabilities(modern bool) map[string]any {
	c := map[string]any{"tools": map[string]any{"listChanged": true}}
	if modern && f.agent == nil {
		c["extensions"] = map[string]any{tasksExtension: struct{}{}}
	}
	return c
}

// discover answers server/discover. Without the modern _meta it is an error at once, on which a client falls back to
// initialize; Claude Code 2.1.329 loses 2.9 s to silence.
func discover(c *mcpCall) *rpcError {
	if !c.modern {
		return badParams("server/discover needs _meta %q (one of %s) and %q; a client of an older version begins with "+
			"initialize", metaVersion, modernVersion, metaCaps)
	}
	c.replyModern(map[string]any{"supportedVersions": mcpVersions(), "capabilities": c.f.capabilities(true),
		"instructions": c.f.instructions(), "ttlMs": cacheMS, "cacheScope": "public"})
	return nil
}

// listTools answers tools/list. The order is the table's, always.
func listTools(c *mcpCall, cursor json.RawMessage) *rpcError {
	word, ok := rawString(cursor)
	tools := c.f.Names.fields(toolList(c.f.tools), everything)
	switch {
	case !isNull(cursor) && !ok || word != "":
		return badParams("cursor %s is not one of ours: all tools are on one page", cursor)
	case c.modern:
		c.replyModern(map[string]any{"tools": tools, "ttlMs": cacheMS, "cacheScope": "public"})
	default:
		c.reply(toJSON(map[string]any{"tools": tools}))
	}
	return nil
}

// listenTo opens a subscription, which stays open until the client cancels it or this server shuts down. Of what can be
// asked for this server has only the list of tools, and that never changes, so nothing follows.
func listenTo(c *mcpCall, params json.RawMessage) *rpcError {
	want := rawField(params, "notifications")
	switch {
	case want != nil && rawKind(want) != '{':
		return badParams("notifications must be an object of what to listen to")
	case rawField(want, "taskIds") != nil && !c.tasks:
		return missingTasks("notifications of tasks")
	}
	agreed := map[string]bool{} // no taskIds: a client polls its tasks, as this acknowledgement says
	if rawKind(rawField(want, "toolsListChanged")) == 't' {
		agreed["toolsListChanged"] = true
	}
	c.f.mu.Lock()
	c.listen = true
	closing := c.f.closing
	c.f.mu.Unlock()
	c.f.p.notify("notifications/subscriptions/acknowledged", map[string]any{
		"_meta":         map[string]json.RawMessage{metaPrefix + "subscriptionId": c.id},
		"notifications": agreed,
	})
	if closing {
		endListen(c)
	}
	return nil
}

// endListen answers a subscription, which ends it.
func endListen(c *mcpCall) {
	meta := c.f.modernMeta()
	meta[metaPrefix+"subscriptionId"] = c.id
	c.reply(toJSON(map[string]any{"resultType": "complete", "_meta": meta}))
}
