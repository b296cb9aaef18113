package main

// mcp_toolargs.go owns the way from a tools/call to what the hub is asked for:
// which tool, which arguments, what they mean together. mcp.go calls callTool
// on the reading goroutine, so nothing here reads a file except in the
// goroutine that callCodex spawns. It must never guess: an argument it doesn't
// know is an error that names the nearest one it does.

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// callTool serves tools/call.
func (f *mcpFront) callTool(c *mcpCall, p mcpParams) {
	name, ok := rawString(p.name)
	if !ok {
		f.finish(c, nil, badParams("name must be a string, the tool to call"))
		return
	}
	i := slices.IndexFunc(f.tools, func(t tool) bool { return t.name == name })
	if i < 0 {
		var names []string
		for _, t := range f.tools {
			names = append(names, t.name)
		}
		f.finish(c, nil, badParams("unknown tool %q (there are %s)%s", name, strings.Join(names, ", "), didYouMean(name, names)))
		return
	}
	if p.modern && !(isNull(p.state) && isNull(p.responses)) { // never a new turn
		f.retry(c, p, name)
		return
	}
	if c.elicits {
		c.tool, c.args = name, p.arguments
	}
	args, e := decodeArgs(name, f.tools[i].args, p.arguments)
	if e != nil {
		f.finish(c, nil, e)
		return
	}
	if f.tools[i].lasts {
		prog := f.progressFor(p)
		f.mu.Lock()
		c.prog = prog
		f.mu.Unlock()
	}
	if name != "codex" && !f.tools[i].audited {
		if e := f.oneAgent(args); e != nil {
			f.fail(c, e)
			return
		}
	}
	f.tools[i].run(f, c, args)
}

// progressFor begins the progress of a call that gave a token, nil for others.
func (f *mcpFront) progressFor(p mcpParams) *progress {
	if token := rawField(p.meta, "progressToken"); rawKind(token) == '"' || rawKind(token) == '0' {
		return newProgress(f.p, token)
	}
	return nil
}

// reference finds the one session that agent_id, threadId and conversationId
// name, "" if none is given.
func (a toolArgs) reference() (string, *rpcError) {
	ref, from := "", ""
	for _, name := range []string{"agent_id", "threadId", "conversationId"} {
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

// runs reads what both tools that run a turn take. A background turn has no
// request that its approvals could be put before: its caller decides them.
func (a toolArgs) runs(req *turnRequest) *rpcError {
	req.timeout = a.secs("timeout_secs")
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
		return invalidSession("notify %q is of a background turn: give background: true too, or leave notify out and wait for the answer", cutName(req.notify))
	}
	return nil
}

// readCodex turns the arguments of codex into a request; file is the agent
// file still to be read for its prompt.
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
	file = a.str("agent_file")
	switch {
	case a.has("agent_file") && a.has("prompt"):
		return req, "", invalidSession("agent_file and prompt exclude each other: give the task in one of them")
	case a.has("agent_file") && req.ref != "":
		return req, "", invalidSession("agent_file starts a new agent and agent_id %q reopens one: give one of them", req.ref)
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

func (f *mcpFront) callCodex(c *mcpCall, a toolArgs) {
	req, file, e := readCodex(a)
	if e != nil {
		f.fail(c, e)
		return
	}
	if file == "" {
		f.submitCall(c, req)
		return
	}
	if !f.spawn(func() {
		if e := f.useAgentFile(&req, file); e != nil {
			f.fail(c, e)
			return
		}
		f.submitCall(c, req)
	}) {
		f.fail(c, shuttingDown())
	}
}

// useAgentFile reads the file and lets it speak where the call is silent
// (FR-16.1): its name implies an identity, its model and effort apply.
func (f *mcpFront) useAgentFile(req *turnRequest, path string) *rpcError {
	base := req.cwd
	if base == "" {
		base = f.DefaultCwd
	} else if !filepath.IsAbs(base) {
		base = filepath.Join(f.DefaultCwd, base)
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

func (f *mcpFront) callReply(c *mcpCall, a toolArgs) {
	req := turnRequest{mode: modeReply, source: sourceClient, run: true, prompt: a.str("prompt")}
	e := a.runs(&req)
	if e == nil {
		req.ref, e = a.agent()
	}
	switch {
	case e != nil:
	case req.ref == "":
		e = invalidSession("no agent: give agent_id or identity of the agent to continue; agent_sessions lists them, codex starts a new one")
	case !a.has("prompt"):
		e = invalidSession("no prompt: say what %s is to do next", req.ref)
	case strings.TrimSpace(req.prompt) == "":
		e = invalidSession("prompt is empty: say what %s is to do next", req.ref)
	}
	if e != nil {
		f.fail(c, e)
		return
	}
	f.submitCall(c, req)
}

// callSessions reads records from disk, so it leaves the reading goroutine.
func (f *mcpFront) callSessions(c *mcpCall, a toolArgs) {
	limit := defaultSessions
	if a.has("limit") {
		limit = int(a.num("limit"))
	}
	if !f.spawn(func() { f.finish(c, f.sessionsAnswer(f.sessions(limit), c.modern), nil) }) {
		f.fail(c, shuttingDown())
	}
}

func (f *mcpFront) callStatus(c *mcpCall, _ toolArgs) {
	f.finish(c, f.statusAnswer(f.status(), c.modern), nil)
}

// agent is the one agent that a call is about, by any of its names, "" if none is
// given. oneAgent has seen to it that they are of one.
func (a toolArgs) agent() (ref string, e *rpcError) {
	if ref, e = a.reference(); ref == "" && e == nil {
		ref = strings.TrimSpace(a.str("identity"))
	}
	return ref, e
}

// target is agent for a tool that needs one.
func (a toolArgs) target(verb string) (ref string, e *rpcError) {
	if ref, e = a.agent(); ref == "" && e == nil {
		e = invalidSession("no agent: give agent_id or identity of the agent to %s; agent_sessions lists them", verb)
	}
	return ref, e
}

// oneAgent refuses an identity that is none, or another agent's than agent_id. In
// codex it is the name that an agent is to get, in every other tool the agent's.
func (f *mcpFront) oneAgent(a toolArgs) *rpcError {
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
	switch v := f.liveView(ref); {
	case v == nil:
		return invalidSession("agent_id %q and identity %q are two names; give only one of them", cutName(ref), identity)
	case !v.named(identity):
		return invalidSession("agent_id %q is agent %s, whose identity is %s and not %s; give only the one that you mean", cutName(ref), v.AgentID, v.Identity, identity)
	}
	return nil
}

func (f *mcpFront) callClose(c *mcpCall, a toolArgs) {
	ref, e := a.target("close")
	if e != nil {
		f.fail(c, e)
		return
	}
	named := f.correlation(f.nextWaiter()) // in the audit trail; nobody waits for it
	f.close(ref, named, func(r closeResult, e *rpcError) {
		if e != nil {
			f.fail(c, e)
			return
		}
		f.finish(c, f.closeAnswer(r, c.modern), nil)
	})
}

func shuttingDown() *rpcError {
	return proxyError(codeSessionClosed, "this server is shutting down and takes no new calls")
}
