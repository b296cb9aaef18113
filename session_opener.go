package main

// session_opener.go owns the place of a session, which is what the session holds while it is open, and how it gets one:
// child, identity, thread lock, and the settings that its thread is opened and its turns are run with, also where a
// person chooses others later. The hub calls the opener in goroutines that may wait; the session takes the finished
// place as a letter, changes it with its turns and gives it back. Whatever fails gives back what was taken. Nothing in
// it passes the ceilings: config_policy.go decides every choice as it decided the first one.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// catalogLimit is how long the user's Codex configuration may take to read.
const catalogLimit = 10 * time.Second

// opener makes sessions ready. Its methods wait, for the child and for files.
type opener struct {
	*common
	child *childSlot
	names *identities
	tools *agentToolSet
	trees *worktrees
}

// prepare gets a place ready for a session, by its record or, where rec is nil, for a new one. A place with an error
// holds nothing.
func (o *opener) prepare(s *session, req turnRequest, rec *record) *place {
	p := &place{revived: rec != nil, notes: req.notes, approvals: req.approvals, servers: req.servers,
		client: req.client != nil}
	if rec != nil {
		p.rec = *rec
		p.adopted = rec.Status == ""
	} else {
		p.rec = record{AgentID: s.agentID, Backend: "codex", Team: o.cfg.team, Tag: req.tag,
			AgentName: req.agentName, AgentSource: req.agentSource, StartedAt: time.Now().UTC()}
		if from := req.fork; from != nil {
			if from.hasPast() {
				p.fork, p.summary = from, o.ledger.summary(from)
			}
			p.rec.CWD, p.rec.Role, p.rec.Roots, p.rec.Settings = from.CWD, from.Role, from.Roots, from.Settings
			p.rec.Tools, p.rec.Digest, p.rec.SummaryDue = from.Tools, from.Digest, from.SummaryDue
			p.rec.Title, p.rec.Inherited = from.Title, from.hasPast()
			p.rec.Digest.TouchedFiles = slices.Clip(from.Digest.TouchedFiles) // the other agent adds to its own
			if w := lostWorktree(from); w != nil && req.worktree != nil {
				p.rec.CWD = w.From
			} else if w != nil && req.cwd == "" && !isDir(from.CWD) {
				p.err = proxyError(codeInvalidSession, fmt.Sprintf("the worktree %s (branch %s) of agent %s is gone; "+
					"give the new agent one of its own with worktree, or a cwd, as %q", w.Path, w.Branch, from.AgentID,
					w.From))
				return p
			}
		}
	}
	if p.rec.StartedAt.IsZero() {
		p.rec.StartedAt = time.Now().UTC()
	}
	if p.err = o.fill(p, s, req); p.err != nil {
		if o.letGo(p); p.made {
			o.trees.unmake(p.rec)
		}
	}
	return p
}

// letGo gives back what the place of a session holds that never came to be.
func (o *opener) letGo(p *place) {
	if p.made && p.undoEarly() {
		o.ledger.save(&p.rec)
	}
	p.release()
}

// fill gets what a place has, in the order in which it may be had.
func (o *opener) fill(p *place, s *session, req turnRequest) *rpcError {
	asRole, err := o.shape(&p.rec, req)
	if err != nil {
		return err
	}
	// The child first: a call that is cancelled while it starts must not keep a name from the next one (FR-20.1).
	if !o.child.up() {
		s.box.do(s.startsChild)
	}
	if p.be, err = o.child.ready(); err != nil {
		return err
	}
	if err := req.formRefused(p.be.info()); err != nil {
		return err
	}
	if err := o.names.give(s, p, req); err != nil {
		return err
	}
	if p.rec.BackendID != "" {
		lock, err := o.reg.lockThread(p.rec.BackendID, s.agentID)
		if err != nil {
			return heldError(err, p.rec.AgentID, p.rec.Identity, "")
		}
		p.tlock = lock
		if err := o.latest(p, req); err != nil {
			return err
		}
	}
	if p.revived {
		p.summary = o.ledger.summary(&p.rec)
	}
	if req.worktree != nil {
		if err := o.trees.place(s, p, *req.worktree); err != nil {
			return err
		}
	}
	return o.decide(p, asRole)
}

// shape puts what a call asks for into a session's record.
func (o *opener) shape(rec *record, req turnRequest) (asRole role, err *rpcError) {
	rec.Settings = req.options.over(rec.Settings)
	if req.client != nil {
		rec.ClientSession, rec.Roots = req.client.session, req.client.roots
	}
	if req.role != "" {
		rec.Role = req.role
	} else if rec.Role == "" {
		rec.Role = o.cfg.defaultRole
	}
	if req.tag != "" {
		rec.Tag = req.tag
	}
	if asRole, err = o.role(rec); err != nil {
		return asRole, err
	}
	if w := lostWorktree(rec); w != nil && req.cwd == "" {
		if req.worktree == nil {
			return asRole, lostError(w, rec.AgentID)
		}
		rec.CWD = w.From
	}
	rec.CWD, err = o.cwdFor(req.cwd, rec.CWD)
	return asRole, err
}

// role is the role that a record names.
func (o *opener) role(rec *record) (asRole role, _ *rpcError) {
	if rec.Role == "" {
		return asRole, nil
	}
	asRole, err := o.cfg.role(rec.Role)
	if err != nil {
		return asRole, proxyError(codeInvalidSession, err.Error(), "role", rec.Role)
	}
	return asRole, nil
}

// vet finds what is wrong with a call that reshapes an open session, before
// that session is parked for it: a mistake must not cost an agent its name.
func (o *opener) vet(agentID string, req turnRequest) *rpcError {
	rec := record{Identity: req.identity}
	if was := o.ledger.record(agentID); was != nil {
		rec = *was
	}
	if _, err := o.shape(&rec, req); err != nil {
		return err
	}
	be, err := o.child.ready()
	if err != nil {
		return err
	}
	if p := rec.Settings.Profile; p != "" && be.info().atLeast(148) {
		if _, err := loadProfile(codexHomeDir(o.cfg.home), p); err != nil {
			return err
		}
	}
	if _, err := expandConfig(rec.Settings.Config); err != nil {
		return proxyError(codeInvalidSession, err.Error())
	}
	return o.names.refusal(agentID, rec.Identity, req.identity)
}

// latest reads the record again, now that nobody else can write it: another
// instance may have closed the session since it was looked up.
func (o *opener) latest(p *place, req turnRequest) *rpcError {
	now, err := o.reg.load(p.rec.AgentID)
	if err != nil {
		return nil // nothing on disk: persist_threads = false, or a thread that only Codex knew
	}
	if req.mode == modeReply {
		if err := replyRefusal(now); err != nil {
			return err
		}
	}
	p.rec.Status, p.rec.Digest, p.rec.Turns, p.rec.Context, p.rec.Noted = now.Status, now.Digest, now.Turns,
		now.Context, now.Noted
	p.rec.SummaryDue = now.SummaryDue
	return nil
}

// cwdFor resolves a session's directory (FR-2.4): the caller's, else where it
// was, else the repository's root, else where we were started.
func (o *opener) cwdFor(asked, before string) (string, *rpcError) {
	base := o.cfg.cwd
	switch {
	case asked != "":
		if before != "" {
			base = before
		}
		return checkCwd(asked, base, o.cfg.home)
	case before != "":
		return checkCwd(before, base, o.cfg.home)
	}
	if root := readRepo(base).Root; root != nil {
		return *root, nil
	}
	return checkCwd(base, base, o.cfg.home)
}

// decide decides a session's settings and what its thread is opened with.
func (o *opener) decide(p *place, asRole role) *rpcError {
	opts := p.rec.Settings
	if opts.Collaboration == collabPlan {
		opts.Sandbox, opts.Approval = sandboxRead, "on-request"
	}
	info := p.be.info()
	if p.fork != nil && info.kind == "mcp-server" {
		return proxyError(codeInvalidSession, "codex mcp-server can't begin an agent with another one's conversation; "+
			"use a Codex with app-server for fork_of")
	}
	p.rec.BackendKind = info.kind
	var profile map[string]any
	if opts.Profile != "" && info.atLeast(148) { // newer Codex takes no profile itself
		var err *rpcError
		if profile, err = loadProfile(codexHomeDir(o.cfg.home), opts.Profile); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(o.life, catalogLimit)
	defer cancel()
	user, cerr := p.be.catalog(ctx, "config", p.rec.CWD)
	if cerr != nil {
		user = p.user
		o.log.Warn("the user's Codex configuration could not be read", "known", user != nil, "err", cerr)
	}
	p.user = user
	facts := contextFacts{Identity: p.rec.Identity, Team: o.cfg.team, Repo: readRepo(p.rec.CWD), Cwd: p.rec.CWD}
	in := policyInput{cfg: o.cfg, role: asRole, options: opts, user: user, profile: profile,
		cwd: p.rec.CWD, repoRoot: deref(facts.Repo.Root), roots: p.rec.Roots, chosen: p.client}
	if w := p.rec.Worktree; w != nil && within(p.rec.CWD, w.Path) {
		in.standsFor = []string{w.From, filepath.Dir(w.Common)}
	}
	pol, err := resolvePolicy(in)
	if err != nil {
		return err
	}
	if opts.Collaboration == collabPlan && !p.client {
		pol.note("the agent is in plan mode, which was chosen in an editor: it plans and changes nothing, until a " +
			"sandbox is asked for or another mode is chosen there")
	}
	p.policy, p.base, p.ceiling = pol, pol.Settings, cmp.Or(o.cfg.top.word, sandboxDanger)
	if opts.Sandbox != "" || opts.Approval != "" {
		in.options.Sandbox, in.options.Approval = "", ""
		plain, err := resolvePolicy(in)
		if err != nil {
			return err
		}
		p.base = plain.Settings
	}
	config, err := o.equip(p, asRole, user)
	if err != nil {
		return err
	}
	p.notes = append(p.notes, p.policy.Notes...)
	if p.made && p.policy.Settings.Sandbox == sandboxWrite {
		p.notes = append(p.notes, "this sandbox keeps git's own files read-only, so a commit of the agent in its "+
			"worktree needs an approval; or commit for it there")
	}
	dev, err := o.instructions(p, opts, asRole, facts)
	if err != nil {
		return err
	}
	p.fresh = dev
	p.spec = threadSpec{Thread: p.rec.BackendID, Settings: pol.Settings, BaseInstructions: opts.BaseInstructions,
		DeveloperInstructions: dev, Profile: opts.Profile, Config: config, Ephemeral: !o.cfg.persistThreads,
		Recover: p.rec.Status == statusBroken || p.rec.Interrupted, Session: p.rec.ClientSession}
	if p.rec.Tools == toolsDynamic {
		p.spec.Tools = o.tools.specs
	}
	p.told = facts
	known := &p.rec // whose conversation says what the agent was told
	if p.fork != nil {
		known, p.spec.Fork = p.fork, p.fork.BackendID
	}
	if p.fork != nil || p.revived && !p.adopted && p.rec.Turns > 0 {
		p.told = contextFacts{}
		_ = json.Unmarshal(known.Context, &p.told) // unreadable: the agent is told everything anew
	}
	return nil
}

// decideAnew decides a session's settings anew, for a choice that its record has.
func (o *opener) decideAnew(p *place) *rpcError {
	asRole, err := o.role(&p.rec)
	if err != nil {
		return err
	}
	if err := o.decide(p, asRole); err != nil {
		return err
	}
	// What a turn doesn't say stays as the turn before had it, so a choice that is
	// taken back is answered by what Codex would choose.
	set := &p.policy.Settings
	if set.Model == "" && p.was.Model != "" || set.Effort == "" && p.was.Effort != "" {
		model, effort := o.codexDefaults(p, set.Model)
		if p.was.Model != "" {
			set.Model = cmp.Or(set.Model, model)
		}
		if p.was.Effort != "" {
			set.Effort = cmp.Or(set.Effort, effort)
		}
		p.spec.Settings = *set
	}
	return nil
}

// codexDefaults is the model, and the effort of model or that, which Codex takes
// where nobody says; "" where it can't be known.
func (o *opener) codexDefaults(p *place, model string) (string, string) {
	user, _ := readUserConfig(p.user)
	own, _ := user["model"].(string)
	effort, _ := user["model_reasoning_effort"].(string)
	model = cmp.Or(model, own)
	if model != "" && effort != "" {
		return model, effort
	}
	ctx, cancel := context.WithTimeout(o.life, catalogLimit)
	defer cancel()
	list, err := p.be.catalog(ctx, "models", "")
	if err != nil {
		o.log.Warn("Codex's models could not be listed", "err", err)
	}
	eachElement(rawField(list, "data"), func(m json.RawMessage) {
		if model == "" && string(rawField(m, "isDefault")) == "true" {
			model = cmp.Or(stringField(m, "model"), stringField(m, "id"))
		}
		if effort == "" && model != "" && model == cmp.Or(stringField(m, "model"), stringField(m, "id")) {
			effort = stringField(m, "defaultReasoningEffort")
		}
	})
	return model, effort
}

// equip decides how the session's thread has its tools, and returns the configuration that it is opened with.
func (o *opener) equip(p *place, asRole role, userConfig json.RawMessage) (json.RawMessage, *rpcError) {
	config, err := o.withServers(p)
	if err != nil || o.tools.run == nil {
		return config, err
	}
	p.rec.Tools = toolsWay(p.be.info(), p.rec.BackendID != "" || p.fork != nil, p.rec.Tools, o.cfg.subagents ||
		asRole.subagents)
	if p.rec.Tools != toolsServer {
		return config, nil
	}
	user, _ := readUserConfig(userConfig) // unreadable: nothing to keep clear of
	both, merr := withToolServer(config, user, o.tools.server.of(o.cfg.team, p.rec.Identity, p.rec.AgentID))
	if merr != nil {
		return nil, proxyError(codeInvalidSession, merr.Error())
	}
	return both, nil
}

// withServers adds the client's MCP servers to what a thread is opened with. It is the client's user who chose them, so
// no call's ceiling strips them; but under a read-only one nothing that runs outside the sandbox is started.
func (o *opener) withServers(p *place) (json.RawMessage, *rpcError) {
	servers, err := decodeConfig(p.servers)
	if err != nil {
		return nil, proxyError(codeInvalidSession, "mcp_servers: "+err.Error())
	}
	if len(servers) == 0 {
		return p.policy.Config, nil
	}
	if why := serversRefused(o.cfg); why != "" {
		names := slices.Sorted(maps.Keys(servers))
		p.policy.Notes = append(slices.Clip(p.policy.Notes),
			fmt.Sprintf("MCP servers left out: %s (%s)", shortName(strings.Join(names, ", ")), why))
		return p.policy.Config, nil
	}
	config, err := decodeConfig(p.policy.Config)
	if err == nil {
		config, err = mergeConfig(config, map[string]any{"mcp_servers": servers})
	}
	if err != nil {
		return nil, proxyError(codeInvalidSession, "the client's MCP servers can't be added to the thread's "+
			"configuration: "+err.Error())
	}
	return toJSON(config), nil
}

// serversRefused is why a client's MCP servers are left out, "" where they aren't.
func serversRefused(cfg *config) string {
	if cfg.top.word != sandboxRead {
		return ""
	}
	return cfg.top.name + " allows " + cfg.top.word
}

// instructions are the developer instructions of a thread's first turn.
func (o *opener) instructions(p *place, opts sessionOptions, asRole role, facts contextFacts) (string, *rpcError) {
	in := devInput{BasePrompt: bundledTeamPrompt, Caller: opts.DeveloperInstructions, Context: facts,
		Subagents: o.cfg.subagents || asRole.subagents,
		Approvals: "none", Sandbox: p.policy.Settings.Sandbox, Mail: o.tools.run != nil,
		MailShared:  p.rec.Tools == toolsServer,
		MailOffered: p.client && o.cfg.acpMail == "prompt", Alone: o.cfg.teamless}
	if p.approvals != "" && p.policy.Settings.Approval != "never" {
		in.Approvals = p.approvals
	}
	if in.Caller == "" { // Codex drops the config key where the parameter is sent, and ours is
		in.Caller = stringField(p.policy.Config, "developer_instructions")
	}
	for _, f := range []struct {
		path string
		into *string
	}{{o.cfg.basePromptFile, &in.BasePrompt}, {o.cfg.extraInstructionsFile, &in.Extra}} {
		if f.path == "" {
			continue
		}
		text, err := loadPromptFile(f.path)
		if err != nil {
			return "", proxyError(codeInvalidSession, err.Error())
		}
		*f.into = text
	}
	return developerInstructions(in), nil
}

// bindThread locks a thread that the child has just named and puts it into the record.
func (o *opener) bindThread(p *place, agentID, thread string) *rpcError {
	lock, err := o.reg.lockThread(thread, agentID)
	if err != nil {
		return heldError(err, p.rec.AgentID, p.rec.Identity, "")
	}
	p.rec.BackendID = thread
	if p.rec.SummaryDir == "" {
		p.rec.SummaryDir = filepath.Join(o.cfg.team, strings.ToLower(p.rec.Identity), thread) // fixed at birth (FR-6.4)
	}
	// While the file names the old thread, that one's lock tells others that the session lives. The session of an
	// adopted thread has no file yet.
	if p.tlock != nil && p.rec.Status != "" {
		o.ledger.save(&p.rec)
	}
	p.unlockThread()
	p.tlock = lock
	return nil
}

// place is what one session holds: what it holds while it is open.
type place struct {
	err     *rpcError
	rec     record
	lease   *lease
	tlock   *lease
	be      backend
	policy  policy
	spec    threadSpec
	told    contextFacts
	notes   []string // what the first result is to say
	summary string   // what the session wrote as it last ended
	fresh   string   // developer instructions for a new thread, where the old is gone
	revived bool     // the session had a life before, or its client's record of it is on disk
	fork    *record  // the agent whose conversation a new one begins with, nil for none
	adopted bool     // a thread that only Codex knew
	early   bool     // the record was written before there was a thread
	made    bool     // a worktree was begun for the session
	before  string   // the record's status until then

	approvals string // who can be asked, as its request says

	client  bool            // its client has a name of its own for it
	servers json.RawMessage // the client's MCP servers, as Codex's mcp_servers
	user    json.RawMessage // the user's Codex configuration, as last read
	base    turnSettings    // as policy's, if nobody had chosen for this session
	ceiling string          // max_sandbox's word
	model   string          // as Codex opened the thread with
	effort  string
	was     turnSettings // before a choice was decided anew
}

// settings is what the next turn runs with, for who lets a person choose.
func (p *place) settings() sessionSettings {
	t := &p.policy.Settings
	return sessionSettings{Model: cmp.Or(t.Model, p.model), Effort: cmp.Or(t.Effort, p.effort), Sandbox: t.Sandbox,
		Approval: t.Approval, Plan: t.Collaboration == collabPlan,
		BaseSandbox: p.base.Sandbox, BaseApproval: p.base.Approval, MaxSandbox: p.ceiling, Notes: p.policy.Notes}
}

// turnSettings is what a turn runs under. Who says a collaboration mode must name the model with it.
func (p *place) turnSettings() turnSettings {
	t := p.policy.Settings
	if t.Collaboration != "" {
		t.Model, t.Effort = cmp.Or(t.Model, p.model), cmp.Or(t.Effort, p.effort)
	}
	return t
}

// withChoice is a copy with a choice in it that the settings can be decided anew with, off the
// session's goroutine: of what that needs nothing is changed in place.
func (p *place) withChoice(c settingsChange) *place {
	next := &place{rec: p.rec, be: p.be, revived: p.revived, adopted: p.adopted, approvals: p.approvals,
		client: p.client, servers: p.servers, user: p.user, model: p.model, effort: p.effort, was: p.policy.Settings}
	c.into(&next.rec.Settings)
	return next
}

// takeOver takes over what such a copy came to.
func (p *place) takeOver(next *place) {
	p.rec.Settings, p.policy, p.user, p.base = next.rec.Settings, next.policy, next.user, next.base
	thread, tools := p.spec.Thread, p.spec.Tools
	p.spec, p.fresh = next.spec, next.fresh
	p.spec.Thread, p.spec.Tools, p.spec.Recover = thread, tools, false
}

// noteMode has a thread leave plan mode with its next turn that nobody chose here: the sandbox isn't that of plan mode.
func (p *place) noteMode(plans bool) {
	if of := &p.rec.Settings.Collaboration; plans && *of == "" {
		*of, p.policy.Settings.Collaboration = collabDefault, collabDefault
	}
}

// release gives identity and thread back. It may be called twice.
func (p *place) release() {
	p.unlockThread()
	if p.lease != nil {
		p.lease.release()
		p.lease = nil
	}
}

func (p *place) unlockThread() {
	if p.tlock != nil {
		p.tlock.release()
		p.tlock = nil
	}
}

// past is the block that stands for a history Codex has lost, and what it is made of, in words: the summary, the digest
// where there is none or turns came after it. A session that left neither has no past (FR-6.3).
func (p *place) past() (block, of string) {
	d := p.rec.Digest
	digest := digestText(d.LastPrompt, d.LastAnswer, d.TouchedFiles)
	switch {
	case p.summary == "" && digest == "":
		return "", "nothing of the old one: it left neither summary nor digest"
	case p.summary == "":
		of = "a digest of the old one"
	case p.rec.SummaryDue:
		of = "the old one's summary and a digest of what came after it"
	default:
		digest, of = "", "the old one's summary"
	}
	return resumeBlock(p.rec.Identity, deref(p.rec.RepoName), deref(p.rec.Branch), pastText(p.summary, digest)), of
}

// noteEarly notes a session as busy whose thread isn't there yet, but whose name is given out. false: it was before.
func (p *place) noteEarly() bool {
	if p.early {
		return false
	}
	p.early, p.before = true, p.rec.Status
	p.rec.Status, p.rec.LastActive = statusBusy, time.Now().UTC()
	return true
}

// undoEarly takes that back. false: there is nothing to take back.
func (p *place) undoEarly() bool {
	if p.early {
		p.rec.Status = cmp.Or(p.before, statusStale)
	}
	return p.early
}

// noteStart, noteEnd and noteOver keep the record in step with the turns.
// told is what the agent knows of facts by then.
func (p *place) noteStart(t *turn, facts, told contextFacts, now time.Time) {
	r := &p.rec
	r.Status, r.Interrupted, r.LastActive = statusBusy, false, now.UTC()
	if t.req.action != actCompact { // which leaves nothing in a thread that had nothing
		r.Turns++
	}
	r.LastTurnID, r.LastTurnStatus = "", "running"
	r.CWD = p.policy.Settings.Cwd
	r.RepoRoot, r.RepoName, r.Branch = facts.Repo.Root, facts.Repo.Name, facts.Repo.Branch
	r.Context = toJSON(told)
	if t.req.source == sourceClient && t.req.action == actPrompt {
		r.Digest.LastPrompt = clipUTF8(t.req.prompt, maxDigestPrompt)
	}
}

func (p *place) noteEnd(t *turn, how finishKind, now time.Time) {
	r := &p.rec
	r.Status, r.LastActive = statusIdle, now.UTC()
	r.LastTurnID, r.LastTurnStatus = t.id, t.status(how)
	r.LastError = ""
	r.SummaryDue = r.SummaryDue || t.done()
	if t.run.err != nil {
		r.LastError = clip(t.run.err.Message, 500)
	}
	if text := t.run.text(); text != "" {
		r.Digest.LastAnswer = clipUTF8(text, maxDigestAnswer)
	}
	for _, f := range t.run.files() {
		if !slices.Contains(r.Digest.TouchedFiles, f) {
			r.Digest.TouchedFiles = append(r.Digest.TouchedFiles, f)
		}
	}
	if n := len(r.Digest.TouchedFiles); n > maxTouched {
		r.Digest.TouchedFiles = r.Digest.TouchedFiles[n-maxTouched:]
	}
}

func (p *place) noteOver(why ending, stopped bool, now time.Time) {
	p.rec.Status, p.rec.Interrupted = why.status(), stopped
	if stopped || !p.client { // else a client's list would begin with what was parked last, not with what was worked in
		p.rec.LastActive = now.UTC()
	}
}
