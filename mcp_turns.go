package main

// mcp_turns.go owns codex, codex-reply and codex-review: from their arguments to the turn that the hub is asked for,
// and from what came of a turn to the result that every tool tells of it, or to the task that a client of 2026-07-28
// asked for. callTool and dispatch call it on the reading goroutine, so files are read, and changes to review looked
// for, in goroutines of their own. The answer must stand both in the text block, for callers of the removed `codex
// mcp-server`, and in structuredContent, since Claude Code shows a model only that where it is present. No client may
// get a task that did not declare the extension on the same request.

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// runs reads what both tools that run a turn take. A background turn has no
// request that its approvals could be put before: its caller decides them.
func (a toolArgs) runs(req *turnRequest) *rpcError {
	req.timeout = a.secs("timeout_secs")
	req.diff = a.yes("diff")
	if a.has("output_schema") {
		var err error
		if req.schema, err = readAnswerSchema(a["output_schema"]); err != nil {
			return invalidSession("output_schema is no JSON Schema: %v", err)
		}
	}
	if a.yes("background") {
		req.background, req.approvals = true, "caller"
	}
	if req.notify = strings.TrimSpace(a.str("notify")); !a.has("notify") {
		return nil
	}
	switch {
	case req.notify == "":
		return invalidSession("notify is empty: name the member who is mailed the answer, or leave it out")
	case !req.background:
		return invalidSession("notify %q is of a background turn: give background: true too, or leave notify out and "+
			"wait for the answer", cutName(req.notify))
	}
	return nil
}

// readCodex turns the arguments of codex into a request; file is the agent file still to be read for its prompt.
func readCodex(a toolArgs) (req turnRequest, file string, e *rpcError) {
	req = turnRequest{mode: modeNew, source: sourceClient, run: true, prompt: a.str("prompt"),
		identity: a.str("identity"), role: a.str("role"), tag: a.str("tag"), cwd: a.str("cwd"),
		options: sessionOptions{
			Model: a.str("model"), Config: a["config"], Profile: a.str("profile"),
			BaseInstructions: a.str("base-instructions"), DeveloperInstructions: a.str("developer-instructions"),
			CompactPrompt: a.str("compact-prompt"),
		},
	}
	if e = a.runs(&req); e != nil {
		return req, "", e
	}
	if req.ref, e = a.reference(); e != nil {
		return req, "", e
	}
	if branch, named := rawString(a["worktree"]); named || a.yes("worktree") {
		req.worktree = &branch
		if named && (strings.TrimSpace(branch) == "" || branch[0] == '-') {
			return req, "", invalidSession("worktree %q is no branch: give the name of one, or true for a new one",
				cutName(branch))
		}
	}
	file, req.forkOf = a.str("agent_file"), strings.TrimSpace(a.str("fork_of"))
	switch {
	case a.has("fork_of") && req.forkOf == "":
		return req, "", invalidSession("fork_of is empty: name the agent whose conversation the new one begins with, " +
			"or leave it out")
	case req.forkOf != "" && req.ref != "":
		return req, "", invalidSession("fork_of starts a new agent and agent_id %q reopens one: give one of them",
			req.ref)
	case a.has("agent_file") && a.has("prompt"):
		return req, "", invalidSession("agent_file and prompt exclude each other: give the task in one of them")
	case a.has("agent_file") && req.ref != "":
		return req, "", invalidSession("agent_file starts a new agent and agent_id %q reopens one: give one of them",
			req.ref)
	case a.has("agent_file") && file == "":
		return req, "", invalidSession("agent_file is empty: give the path of a file, or prompt instead")
	case a.has("prompt") && strings.TrimSpace(req.prompt) == "":
		return req, "", invalidSession("prompt is empty: say what the agent is to do")
	case !a.has("prompt") && file == "" && req.ref == "":
		return req, "", invalidSession("no prompt: give prompt, agent_file or agent_id")
	}
	if req.ref != "" {
		req.mode, req.run = modeRevive, a.has("prompt")
	}
	if !req.run { // nothing to do in the background: reopening is answered at once anyway
		if req.notify != "" {
			return req, "", invalidSession("notify %q is of a turn, and without prompt none runs", cutName(req.notify))
		}
		if req.schema != nil {
			return req, "", invalidSession("output_schema is of a turn, and without prompt none runs")
		}
		req.background, req.approvals = false, ""
	}
	if a.has("identity") {
		if err := validIdentity(req.identity); err != nil {
			return req, "", invalidSession("%v", err)
		}
	}
	var err error
	if word := a.str("approval-policy"); word != "" {
		if req.options.Approval, err = normalizePolicy(word); err != nil {
			return req, "", badParams("argument \"approval-policy\" of tool codex: %v", err)
		}
	}
	if word := a.str("sandbox"); word != "" {
		if req.options.Sandbox, err = normalizeSandbox(word); err != nil {
			return req, "", badParams("argument \"sandbox\" of tool codex: %v", err)
		}
	}
	return req, file, nil
}

// startAgent serves codex.
func startAgent(c *mcpCall, a toolArgs) *rpcError {
	req, file, e := readCodex(a)
	switch {
	case e != nil:
		return e
	case file == "":
		c.submit(req)
		return nil
	}
	return c.work(func() {
		if e := useAgentFile(&req, file, c.f.DefaultCwd); e != nil {
			c.fail(e)
			return
		}
		c.submit(req)
	})
}

// useAgentFile reads the file and lets the file decide what the call leaves open (FR-16.1): its name implies an
// identity, its model and effort apply. cwd is what relative paths resolve against.
func useAgentFile(req *turnRequest, path, cwd string) *rpcError {
	base := req.cwd
	if !filepath.IsAbs(base) {
		base = filepath.Join(cwd, base)
	}
	file, err := readAgentFile(path, base)
	if err != nil {
		return proxyError(codeAgentFile, err.Error(), "agent_file", path)
	}
	req.prompt, req.agentName, req.agentSource = file.Body, file.Name, file.Source
	if file.Name == "" { // FR-10.1
		req.agentName = strings.TrimSuffix(filepath.Base(file.Source), filepath.Ext(file.Source))
	}
	if req.identity == "" {
		req.implied = impliedIdentity(file.Name)
	}
	if req.options.Model == "" {
		req.options.Model = file.Model
		if file.ModelNote != "" {
			req.notes = append(req.notes, file.ModelNote)
		}
	}
	if file.Effort != "" && rawField(req.options.Config, "model_reasoning_effort") == nil {
		req.options.Config = addField(req.options.Config, "model_reasoning_effort", file.Effort)
	}
	return nil
}

// addField puts one string field in front of an object, or makes one.
func addField(obj json.RawMessage, key, val string) json.RawMessage {
	b := append(appendJSONString([]byte{'{'}, key), ':')
	b = appendJSONString(b, val)
	rest := skipSpace(obj, 0) + 1 // behind the brace
	if len(obj) == 0 || obj[skipSpace(obj, rest)] == '}' {
		return append(b, '}')
	}
	return append(append(b, ','), obj[rest:]...)
}

// continueAgent serves codex-reply.
func continueAgent(c *mcpCall, a toolArgs) *rpcError {
	req := turnRequest{mode: modeReply, source: sourceClient, run: true, prompt: a.str("prompt"), steer: a.yes("steer")}
	e := a.runs(&req)
	if e == nil {
		req.ref, e = a.agent()
	}
	switch {
	case e != nil:
		return e
	case req.ref == "":
		return invalidSession("no agent: give agent_id or identity of the agent to continue; agent_sessions lists " +
			"them, codex starts a new one")
	case !a.has("prompt"):
		return invalidSession("no prompt: say what %s is to do next", req.ref)
	case strings.TrimSpace(req.prompt) == "":
		return invalidSession("prompt is empty: say what %s is to do next", req.ref)
	}
	for _, name := range []string{"timeout_secs", "notify", "output_schema", "diff"} {
		if req.steer && a.has(name) {
			return invalidSession("%s is of a turn from its start, and steer goes into one that runs: leave one of "+
				"them out", name)
		}
	}
	c.submit(req)
	return nil
}

// reviewTurnShown is the result of codex-review.
type reviewTurnShown struct {
	agentTurnShown
	*reviewShown
}

// reviewNothing is that result where there is nothing to review, and so no turn.
type reviewNothing struct {
	AgentID string `json:"agent_id,omitempty"`
	Content string `json:"content"`
	*reviewShown
}

// readReview turns the arguments of codex-review into a request and what is to be reviewed.
func readReview(a toolArgs) (req turnRequest, task reviewTask, e *rpcError) {
	req = turnRequest{mode: modeNew, source: sourceClient, run: true, identity: a.str("identity"), cwd: a.str("cwd")}
	task = reviewTask{target: reviewUncommitted, base: strings.TrimSpace(a.str("base")),
		commit: strings.TrimSpace(a.str("commit")), instructions: strings.TrimSpace(a.str("instructions")),
		challenge: a.yes("challenge")}
	if a.has("target") {
		task.target = a.str("target")
	}
	if e = a.runs(&req); e != nil {
		return req, task, e
	}
	req.ref, e = a.reference()
	of := map[string]string{"base": reviewBranch, "commit": reviewCommit}
	for _, name := range []string{"base", "commit"} {
		switch {
		case e != nil:
		case a.has(name) && task.target != of[name]:
			e = invalidSession("%s is for target %s, and target is %s: leave one of them out", name, of[name],
				task.target)
		case a.has(name) && strings.TrimSpace(a.str(name)) == "":
			e = invalidSession("%s is empty: give a branch, a tag or an id of a commit", name)
		}
	}
	switch {
	case e != nil:
	case task.target == reviewCommit && task.commit == "":
		e = invalidSession("target commit needs commit: which one to review")
	case req.ref == "":
		// The sandbox is for what is asked of the agent later.
		req.options = sessionOptions{Sandbox: "read-only", Approval: "never", Model: a.str("model"),
			Effort: a.str("reasoning_effort")}
		var err error
		if req.identity != "" {
			err = validIdentity(req.identity)
		}
		if req.options.Effort != "" && err == nil {
			_, err = checkEffort(req.options.Effort)
		}
		if err != nil {
			e = invalidSession("%v", err)
		}
	default:
		req.mode = modeRevive
		for _, name := range []string{"identity", "cwd", "model", "reasoning_effort"} { // Codex would keep these two
			if a.has(name) && e == nil {
				e = invalidSession("%s is of a new reviewer, and agent_id %q has one: leave one of them out", name,
					cutName(req.ref))
			}
		}
	}
	return req, task, e
}

// reviewChange serves codex-review.
func reviewChange(c *mcpCall, a toolArgs) *rpcError {
	req, task, e := readReview(a)
	if e != nil {
		return e
	}
	return c.work(func() {
		r, agentID, e := c.f.review(req.ref, req.cwd, task)
		switch {
		case e != nil:
			c.fail(e)
		case r.empty():
			text, shown := r.nothing()
			c.reply(c.toolAnswer(false, reviewNothing{agentID, text, shown}, text))
		default:
			r.into(&req)
			c.submit(req)
		}
	})
}

// reviewTool is the row of codex-review in the table of tools.
func reviewTool() tool {
	return tool{
		name:  "codex-review",
		title: "Codex Review",
		description: "Have Codex review a change in a git repository: what is not committed, a branch, or one " +
			"commit. The reviewer only reads and never asks. Returns verdict, summary and findings, each with " +
			"severity, file and lines; fix what you agree with and review again. Ask the reviewer about a finding " +
			"with codex-reply.",
		args: slices.Concat([]argSpec{
			{name: "target", kind: "string", enum: []string{reviewUncommitted, reviewBranch, reviewCommit},
				text: "uncommitted (default; new files too), branch (what this branch adds to base) or commit."},
			{name: "base", kind: "string", text: "With branch: what to measure from, by its merge base. Default: the " +
				"remote's default branch."},
			{name: "commit", kind: "string", text: "With commit: which one."},
			{name: "instructions", kind: "string", text: "What the reviewer is to heed or look for."},
			{name: "challenge", kind: "boolean", text: "true: question the approach too, not only the lines."},
		}, turnArgs(), []argSpec{
			{name: "agent_id", kind: "string", text: "Review in this agent's own conversation, instead of by a new " +
				"agent."},
			{name: "codex_id", kind: "string", old: true},
			{name: "identity", kind: "string", text: "Name of the new reviewer."},
			{name: "cwd", kind: "string", text: "Directory in the repository, as for codex."},
			{name: "model", kind: "string", text: "Model of the new reviewer."},
			{name: "reasoning_effort", kind: "string", text: "Effort of the new reviewer: low, medium, high, …"},
		}),
		hints:  toolHints{Destructive: false, OpenWorld: true},
		lasts:  true,
		run:    reviewChange,
		result: reviewTurnShown{},
	}
}

// turnShown is what came of a turn, as every result tells it: that of codex and
// codex-reply, and agent_wait's of each turn.
type turnShown struct {
	// nil: there is none yet
	Content    *string `json:"content,omitempty" doc:"The agent's final answer, or why the turn failed"`
	DurationMS *int64  `json:"duration_ms,omitempty"` // nil: the turn has not ended
	turnFacts
}

func shownTurn(r *turnResult) turnShown {
	ms := r.Duration.Milliseconds()
	return turnShown{&r.Content, &ms, r.turnFacts}
}

// agentTurnShown is the result of codex and codex-reply.
type agentTurnShown struct {
	AgentID    string `json:"agent_id" doc:"The agent, for codex-reply"`
	ThreadID   string `json:"threadId,omitempty" doc:"The Codex thread"` // "": the agent is new and has none yet
	Identity   string `json:"identity"`
	Team       string `json:"team"`
	Status     string `json:"status" doc:"Of the agent: busy, idle, parked, closed, stale or broken"`
	TurnID     string `json:"turn_id,omitempty"`
	TurnStatus string `json:"turn_status,omitempty" doc:"completed, failed or interrupted; queued or running while it has no result; absent when no turn ran"`
	turnShown
}

// outcome is the answer to a call whose waiter was done.
func outcome(c *mcpCall, r *turnResult) (json.RawMessage, *rpcError) {
	switch {
	case r.err != nil:
		return c.failure(r.err)
	case c.task && unfinished(r):
		return taskAnswer(c, r), nil
	}
	return turnAnswer(c, r), nil
}

// turnAnswer is a turn's result, what is told of an agent that was reopened without a turn, or that a background turn
// was accepted. A turn that ran and did not complete is a result in both eras, not an error of the call.
func turnAnswer(c *mcpCall, r *turnResult) json.RawMessage {
	structured := reviewTurnShown{agentTurnShown{r.AgentID, r.ThreadID, r.Identity, r.Team, r.Status, r.TurnID,
		r.TurnStatus, shownTurn(r)}, r.Review}
	switch {
	case unfinished(r):
		text := aboutAccepted(c.f.Names, r)
		structured.Content, structured.DurationMS = &text, nil // a model may be shown nothing else
		return c.toolAnswer(false, structured, strings.Join(append([]string{text}, r.Notes...), " "))
	case r.failed():
		// A model is shown the text of an error and not its structure, so the
		// second block says what it needs to go on.
		return c.toolAnswer(true, structured, contentOrWhy(r), aboutFailure(c.f.Names, r))
	case r.TurnStatus == "" && r.Content == "":
		return c.toolAnswer(false, structured, fmt.Sprintf("Agent %s (identity %s) is open; no turn was run. Send it "+
			"a message with codex-reply.", r.AgentID, r.Identity))
	}
	return c.toolAnswer(false, structured, r.Content)
}

// aboutAccepted tells whoever started a background turn how to get its answer.
func aboutAccepted(n *names, r *turnResult) string {
	what := "works on it in the background"
	if r.TurnStatus == "queued" {
		what = "begins it as soon as the turns before it are done"
	}
	return fmt.Sprintf("No answer yet: agent %s %s. Call agent_wait with %s %s for its answer, or for what it asks "+
		"approval for.", agentShownAs(r.AgentID, r.Identity), what, n.word("agent_id"), r.AgentID)
}

// agentShownAs is an agent in a sentence: one that still waits for Codex may have no identity yet.
func agentShownAs(agentID, identity string) string {
	if identity == "" {
		return agentID
	}
	return agentID + " (identity " + identity + ")"
}

// contentOrWhy is a turn's answer, or says that the turn failed without one.
func contentOrWhy(r *turnResult) string {
	if r.Content == "" && r.failed() {
		return "the turn " + ended(r.TurnStatus) + " without an answer"
	}
	return r.Content
}

// unfinished reports a turn that was accepted and has no result yet.
func unfinished(r *turnResult) bool { return r.TurnStatus == "queued" || r.TurnStatus == "running" }

// ended is how a turn ended, after its name in a sentence.
func ended(turnStatus string) string {
	if turnStatus == "interrupted" {
		return "was interrupted"
	}
	return turnStatus
}

func aboutFailure(n *names, r *turnResult) string {
	var s prose
	tool := "codex-reply"
	if r.Status == statusClosed || r.Status == statusBroken { // codex-reply refuses those
		tool = "codex"
	}
	s.add(true, "(The turn of agent %s, identity %s, %s. The agent is %s; %s with %s %s continues it.",
		r.AgentID, r.Identity, ended(r.TurnStatus), r.Status, tool, n.word("agent_id"), r.AgentID)
	for _, d := range r.Declined {
		s.add(true, " Declined (%s): %s.", d.Reason, clipChars(d.Action, 200))
	}
	return strings.Join(append([]string{s.String()}, r.Notes...), " ") + ")"
}

// A task of MCP 2026-07-28 is a background turn of the hub, which has the turn on disk before the task's id is given
// out. Nothing of it is kept here, so a task outlives this process.
const (
	tasksExtension = metaPrefix + "tasks"
	// taskPoll is how often a client is told to ask for a task's state.
	taskPoll = time.Second
)

// taskState is a task as the extension words it.
type taskState struct {
	Type     string                  `json:"resultType"`
	ID       string                  `json:"taskId"`
	Status   string                  `json:"status"` // working input_required completed failed cancelled
	Message  string                  `json:"statusMessage,omitempty"`
	Created  string                  `json:"createdAt"`
	Updated  string                  `json:"lastUpdatedAt"`
	TTL      *int64                  `json:"ttlMs"` // null: a task stays until maxKeptTurns newer turns have ended
	Poll     int64                   `json:"pollIntervalMs"`
	Requests map[string]inputRequest `json:"inputRequests,omitempty"`
	Result   json.RawMessage         `json:"result,omitempty"`
	Error    *rpcError               `json:"error,omitempty"`
	Meta     map[string]any          `json:"_meta"`
}

// newTask is a task that works, as a result of the kind.
func newTask(c *mcpCall, kind, agentID, turnID string, created, updated time.Time) taskState {
	const millis = "2006-01-02T15:04:05.000Z07:00"
	return taskState{Type: kind, ID: agentID + "/" + turnID, Status: "working", Created: created.UTC().Format(millis),
		Updated: updated.UTC().Format(millis), Poll: taskPoll.Milliseconds(), Meta: c.f.modernMeta()}
}

// taskAnswer is the answer to a call whose turn was accepted as a task.
func taskAnswer(c *mcpCall, r *turnResult) json.RawMessage {
	t := newTask(c, "task", r.AgentID, r.TurnID, r.asked, time.Now())
	does := "works on it"
	if r.TurnStatus == "queued" {
		does = "begins it as soon as the turns before it are done"
	}
	t.Message = fmt.Sprintf("agent %s %s", agentShownAs(r.AgentID, r.Identity), does)
	return toJSON(t)
}

// missingTasks refuses what only a client may ask that declares the extension.
func missingTasks(what string) *rpcError {
	return &rpcError{Code: codeNoCapability,
		Message: fmt.Sprintf("Missing required client capability: %s need the extension %q in _meta %q of the request",
			what, tasksExtension, metaPrefix+"clientCapabilities"),
		Data: toJSON(map[string]any{"requiredCapabilities": map[string]any{
			"extensions": map[string]any{tasksExtension: struct{}{}}}})}
}

// taskMethod serves tasks/get, tasks/update and tasks/cancel.
func taskMethod(c *mcpCall, method string, params json.RawMessage) *rpcError {
	id, ok := rawString(rawField(params, "taskId"))
	responses := rawField(params, "inputResponses")
	switch {
	case !c.modern:
		return noMethod(method + " exists in " + modernVersion + " only")
	case !c.tasks:
		return missingTasks(method + " would")
	case !ok:
		return badParams("taskId must be a string, the id of the task")
	case method == "tasks/update" && rawKind(responses) != '{':
		return badParams("inputResponses must be an object of what inputRequests asked for, by its keys")
	}
	e := c.work(func() { // taskTurn reads the disk
		k, e := taskTurn(c, id)
		switch {
		case e != nil:
			c.fail(e)
		case method == "tasks/get":
			c.reply(taskNow(c, &k))
		case method == "tasks/update":
			updateTask(c, &k, responses)
		default:
			cancelTask(c, &k)
		}
	})
	if e != nil {
		return internalError(e)
	}
	return nil
}

// internalError words an error of ours for a method whose client knows none of the codes of NFR-6.
func internalError(e *rpcError) *rpcError {
	return &rpcError{Code: codeInternal, Message: "Internal error: " + e.Message}
}

// taskTurn is the turn behind a task id. It reads the disk.
func taskTurn(c *mcpCall, id string) (keptTurn, *rpcError) {
	agentID, turnID, _ := strings.Cut(id, "/")
	if agentID == "" || turnID == "" {
		return keptTurn{}, badParams("there is no task %s", clipChars(id, 100))
	}
	k, e := c.f.turn(agentID, turnID)
	switch {
	case e != nil && e.Code == codeSessionNotFound:
		return k, badParams("there is no task %s, or %d newer turns of its agent have ended since: %s",
			clipChars(id, 100), maxKeptTurns, e.Message)
	case e != nil:
		return k, internalError(e)
	case !k.Task:
		return k, badParams("%s is a turn and no task: agent_wait tells its result", clipChars(id, 100))
	}
	return k, nil
}

// taskNow is the answer to tasks/get.
func taskNow(c *mcpCall, k *keptTurn) json.RawMessage {
	t := newTask(c, "complete", k.AgentID, k.TurnID, k.Created, k.Updated)
	switch {
	case k.finished():
		endTask(c, &t, k)
	case len(k.Pending) > 0 && c.elicits:
		t.Status, t.Message = "input_required", k.Activity
		t.Requests = make(map[string]inputRequest, len(k.Pending))
		a := agentRef{AgentID: k.AgentID, Identity: k.Identity}
		for i := range k.Pending {
			// The same words at every poll: the official client takes a key that
			// comes back with other parameters for a broken server.
			p := &k.Pending[i]
			t.Requests[p.ApprovalID] = c.f.formRequest(a, &p.q, nil)
		}
	case len(k.Pending) > 0:
		p := &k.Pending[0]
		t.Message = fmt.Sprintf("waits for a decision on %s (%s): agent_approve with %s %s", p.ApprovalID,
			clipChars(oneLine(p.Action), 200), c.f.Names.word("agent_id"), k.AgentID)
	case k.Activity != "":
		t.Message = k.Activity
	case k.Status == "queued":
		t.Message = "waiting for its turn"
	}
	return toJSON(t)
}

// endTask words the end of a task: failed is for errors of the protocol alone, whatever else went wrong is a result.
func endTask(c *mcpCall, t *taskState, k *keptTurn) {
	r := k.Result
	switch {
	case k.Stopped && r.TurnStatus != "completed":
		t.Status = "cancelled"
		t.Message = fmt.Sprintf("stopped; agent_wait with %s %s tells what it had written",
			c.f.Names.word("agent_id"), k.AgentID)
	case k.Lost:
		t.Error = internalError(c.f.Names.error(r.err))
		t.Status, t.Message = "failed", c.f.Names.error(r.err).Message
	case r.err != nil:
		t.Status, t.Message = "completed", c.f.Names.error(r.err).Message
		if t.Result, t.Error = c.failure(r.err); t.Error != nil {
			t.Status = "failed"
		}
	default:
		t.Status, t.Result = "completed", turnAnswer(c, r)
	}
}

// updateTask decides what the client's user answered. What isn't pending any more, or never was, is passed over.
func updateTask(c *mcpCall, k *keptTurn, responses json.RawMessage) {
	var decisions []approveQuery
	for i := range k.Pending {
		p := &k.Pending[i]
		response := rawField(responses, p.ApprovalID)
		if response == nil {
			continue
		}
		d, answers := readAnswer(response, &p.q)
		decisions = append(decisions, approveQuery{Agent: k.AgentID, Ask: p.ApprovalID, Action: p.Action,
			By: answeredBy(response, d), Decision: d, Answers: answers})
	}
	var left atomic.Int64 // decisions without an answer, and this function
	left.Store(int64(len(decisions)) + 1)
	decided := func(_ decision, e *rpcError) {
		if e != nil { // somebody else decided first
			c.f.Log.Debug("a task's answer was not needed", "agent", k.AgentID, "turn", k.TurnID, "why", e.Message)
		}
		if left.Add(-1) == 0 {
			acknowledge(c)
		}
	}
	for _, q := range decisions {
		c.f.approve(q, decided)
	}
	decided(deny, nil)
}

// cancelTask stops the turn and answers when it has stopped, so that the next tasks/get tells it.
func cancelTask(c *mcpCall, k *keptTurn) {
	if k.finished() {
		acknowledge(c)
		return
	}
	c.f.interrupt(k.AgentID, k.TurnID, func(_ interruptResult, e *rpcError) {
		if e != nil { // the turn ended on its own in between
			c.f.Log.Debug("a task needed no cancelling", "agent", k.AgentID, "turn", k.TurnID, "why", e.Message)
		}
		acknowledge(c)
	})
}

// acknowledge answers tasks/update and tasks/cancel.
func acknowledge(c *mcpCall) {
	c.replyModern(map[string]any{})
}
