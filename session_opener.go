package main

// session_opener.go owns how a session gets its place: room, identity, child, settings,
// thread lock. Everything here that waits runs in the hub's goroutines; the
// session takes the finished place as a letter and owns it from then on.
// Whatever fails gives back what was taken.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// catalogLimit is how long the user's Codex configuration may take to read.
const catalogLimit = 10 * time.Second

// opener makes sessions ready. Its methods wait: they run in the hub's
// goroutines.
type opener struct {
	h  *hub
	mu sync.Mutex // one session at a time finds room and a name

	tried chan struct{} // closed when --identity is leased, or could not be
}

// reserveLimit is how long a start tries for --identity.
const reserveLimit = 2 * time.Second

// prepare gets a place ready and posts it to the session. rec is nil for a
// new session.
func (o *opener) prepare(s *session, req turnRequest, rec *record) {
	p := o.place(s, req, rec)
	if !s.prepared(p) {
		p.release()
		o.h.forget(s) // it had ended; its name was entered after that
	}
}

// place does what prepare promises. On an error the place holds nothing.
func (o *opener) place(s *session, req turnRequest, rec *record) *opening {
	p := &opening{revived: rec != nil, notes: req.notes, approvals: req.approvals, servers: req.servers, client: req.client != nil}
	fail := func(err *rpcError) *opening {
		p.release()
		p.err = err
		return p
	}
	if rec != nil {
		p.rec = *rec
		p.adopted = rec.Status == ""
	} else {
		p.rec = record{AgentID: s.agentID, Backend: "codex", Team: o.h.cfg.team, Tag: req.tag,
			AgentName: req.agentName, AgentSource: req.agentSource, StartedAt: time.Now().UTC()}
	}
	if p.rec.StartedAt.IsZero() {
		p.rec.StartedAt = time.Now().UTC()
	}
	asRole, err := o.shape(&p.rec, req)
	if err != nil {
		return fail(err)
	}

	// The child first: a call that is cancelled while it starts must not keep a
	// name from the next one (FR-20.1).
	if !o.h.child.up() {
		s.box.post(s.startsChild)
	}
	if p.be, err = o.h.child.ready(o.h.life); err != nil {
		return fail(err)
	}
	if err := o.takeName(s, p, req); err != nil {
		return fail(err)
	}
	if p.rec.BackendID != "" {
		lock, err := o.h.reg.lockThread(p.rec.BackendID, s.agentID)
		if err != nil {
			return fail(heldError(err, p.rec.AgentID, p.rec.Identity, ""))
		}
		p.tlock = lock
		if err := o.latest(p, req); err != nil {
			return fail(err)
		}
	}
	if p.revived {
		p.summary = o.h.book.summary(&p.rec)
	}
	if err := o.settle(p, asRole); err != nil {
		return fail(err)
	}
	return p
}

// shape puts what a call asks for into a session's record.
func (o *opener) shape(rec *record, req turnRequest) (asRole role, err *rpcError) {
	mergeOptions(&rec.Settings, req.options)
	if req.client != nil {
		rec.ClientSession, rec.Roots = req.client.session, req.client.roots
	}
	if req.role != "" {
		rec.Role = req.role
	} else if rec.Role == "" {
		rec.Role = o.h.cfg.defaultRole
	}
	if req.tag != "" {
		rec.Tag = req.tag
	}
	if rec.Role != "" {
		var rerr error
		if asRole, rerr = o.h.cfg.role(rec.Role); rerr != nil {
			return asRole, proxyError(codeInvalidSession, rerr.Error(), "role", rec.Role)
		}
	}
	rec.CWD, err = o.cwdFor(req.cwd, rec.CWD)
	return asRole, err
}

// vet finds what is wrong with a call that reshapes an open session, before
// that session is set aside for it: a mistake must not cost an agent its name.
func (o *opener) vet(agentID string, req turnRequest) *rpcError {
	rec := record{Identity: req.identity}
	if was := o.h.book.record(agentID); was != nil {
		rec = *was
	}
	if _, err := o.shape(&rec, req); err != nil {
		return err
	}
	be, err := o.h.child.ready(o.h.life)
	if err != nil {
		return err
	}
	if p := rec.Settings.Profile; p != "" && be.info().atLeast(148) {
		if _, err := loadProfile(codexHomeDir(o.h.cfg.home), p); err != nil {
			return err
		}
	}
	if _, err := expandConfig(rec.Settings.Config); err != nil {
		return proxyError(codeInvalidSession, err.Error())
	}
	if req.identity != "" && !strings.EqualFold(req.identity, rec.Identity) {
		if holder, pid, held := o.h.reg.holder(req.identity); held {
			return heldError(&leaseHeld{identity: req.identity, agentID: holder, pid: pid, ours: pid == os.Getpid()}, agentID, req.identity, o.freeName(req.identity))
		}
		if taken := o.h.post.book.strange(req.identity); taken != nil {
			return heldError(taken, agentID, req.identity, o.freeName(req.identity))
		}
	}
	return nil
}

// latest reads the record again, now that nobody else can write it: another
// instance may have closed the session since it was looked up.
func (o *opener) latest(p *opening, req turnRequest) *rpcError {
	now, err := o.h.reg.load(p.rec.AgentID)
	if err != nil {
		return nil // nothing on disk: persist_threads = false, or a thread that only Codex knew
	}
	if req.mode == modeReply {
		if err := replyRefusal(now); err != nil {
			return err
		}
	}
	p.rec.Status, p.rec.Digest, p.rec.Turns, p.rec.Context, p.rec.Noted = now.Status, now.Digest, now.Turns, now.Context, now.Noted
	p.rec.SummaryDue = now.SummaryDue
	return nil
}

// cwdFor resolves a session's directory (FR-2.4): the caller's, else where it
// was, else the repository's root, else where we were started.
func (o *opener) cwdFor(asked, before string) (string, *rpcError) {
	base := o.h.cfg.cwd
	switch {
	case asked != "":
		if before != "" {
			base = before
		}
		return checkCwd(asked, base, o.h.cfg.home)
	case before != "":
		return checkCwd(before, base, o.h.cfg.home)
	}
	if root := readRepo(base).Root; root != nil {
		return *root, nil
	}
	return checkCwd(base, base, o.h.cfg.home)
}

// takeName finds room for the session and leases its identity. One session
// at a time, so that two can't take the last place or the same name.
func (o *opener) takeName(s *session, p *opening, req turnRequest) *rpcError {
	<-o.tried // a first call may come while the process before us still holds the name
	name, implied := o.wantedName(p, req)
	if !implied {
		o.awaitLeaver(name, s)
	}
	o.h.post.book.strange(name) // reads what is half written, if need be, while nobody waits for us
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.h.holds(s) {
		return proxyError(codeSessionClosed, "the call was cancelled before its session was open")
	}
	if err := o.makeRoom(); err != nil {
		return err
	}
	name, implied = o.wantedName(p, req)
	taken := o.h.post.book.strange(name)
	switch {
	case !implied && taken != nil:
		known := ""
		if p.revived {
			known = p.rec.AgentID
		}
		return heldError(taken, known, name, o.freeName(name))
	case !implied:
		l, err := o.leaseWith(name, s.agentID)
		if err != nil {
			return heldError(err, p.rec.AgentID, name, o.freeName(name))
		}
		p.lease, p.rec.Identity, p.rec.Implied = l, name, false
	default:
		var l *lease
		err := error(&leaseHeld{})
		if taken == nil {
			l, err = o.leaseWith(name, s.agentID)
		} else if p.rec.Identity != "" {
			p.notes = append(p.notes, fmt.Sprintf("the agent, which was %s, has another name now: %s", name, taken.who()))
		}
		if errors.As(err, new(*leaseHeld)) {
			l, err = o.h.reg.acquireFree(name, s.agentID, o.h.post.book.isStrange)
		}
		if err != nil {
			return heldError(err, p.rec.AgentID, name, "")
		}
		p.lease, p.rec.Identity, p.rec.Implied = l, l.name, true
	}
	o.h.mu.Lock()
	o.h.names[strings.ToLower(p.rec.Identity)] = s
	o.h.mu.Unlock()
	o.h.book.named(p.rec.Identity)
	return nil
}

// freeName is one that a call could have instead, for an error's advice.
func (o *opener) freeName(name string) string {
	return o.h.reg.freeIdentity(name, o.h.post.book.isStrange)
}

// leaverLimit is how long a call waits for an identity that is about to be free.
const leaverLimit = 2 * time.Second

// awaitLeaver waits for a session that holds a name and is about to end: whoever
// ends an agent and starts another under its name means that order.
func (o *opener) awaitLeaver(name string, s *session) {
	o.h.mu.Lock()
	holder := o.h.names[strings.ToLower(name)]
	o.h.mu.Unlock()
	if holder == nil || holder == s {
		return
	}
	stays := make(chan struct{}) // its loop says so, behind a cancel that came before
	if !holder.box.post(func() {
		if holder.m.ending == endNone {
			close(stays)
		}
	}) {
		return
	}
	limit := time.NewTimer(leaverLimit)
	defer limit.Stop()
	select {
	case <-stays:
	case <-holder.ended:
	case <-limit.C:
	case <-o.h.life.Done():
	}
}

// wantedName is the identity a session is to have, and whether nobody asked
// for it by name (FR-2.5).
func (o *opener) wantedName(p *opening, req turnRequest) (string, bool) {
	switch {
	case req.identity != "":
		return req.identity, false
	case p.rec.Identity != "":
		return p.rec.Identity, p.rec.Implied
	case req.implied != "":
		return req.implied, true
	}
	// --identity is asked for by name, once: the first session takes it.
	if o.h.cfg.identityExplicit {
		o.h.mu.Lock()
		taken := o.h.names[strings.ToLower(o.h.cfg.identity)] != nil
		o.h.mu.Unlock()
		return o.h.cfg.identity, taken
	}
	return o.h.cfg.identity, true
}

// leaseWith leases name, taking over the lease that --identity made at start.
func (o *opener) leaseWith(name, agentID string) (*lease, error) {
	o.h.mu.Lock()
	r := o.h.reserved
	if r != nil && strings.EqualFold(o.h.cfg.identity, name) {
		o.h.reserved = nil
	} else {
		r = nil
	}
	o.h.mu.Unlock()
	if r == nil {
		return o.h.reg.acquire(name, agentID)
	}
	if err := r.assign(agentID); err != nil {
		r.release()
		return nil, err
	}
	return r, nil
}

// reserve leases --identity at start, trying for 2 s: a client that restarts
// us may not have let the old process die yet. Held longer, every call that
// wants it is answered with who holds it.
func (o *opener) reserve() {
	if !o.h.cfg.identityExplicit {
		close(o.tried)
		return
	}
	o.h.goWork(func() {
		defer close(o.tried)
		if taken := o.h.post.book.strange(o.h.cfg.identity); taken != nil { // each call that wants it is told
			o.h.log.Warn("identity is a member's who is no agent of this program", "identity", o.h.cfg.identity, "err", taken.who())
			return
		}
		deadline := time.NewTimer(reserveLimit)
		defer deadline.Stop()
		for {
			l, err := o.h.reg.acquire(o.h.cfg.identity, "")
			if err == nil {
				o.h.mu.Lock()
				o.h.reserved = l
				o.h.mu.Unlock()
				o.h.book.named(o.h.cfg.identity)
				return
			}
			select {
			case <-deadline.C:
				o.h.log.Warn("identity is held", "identity", o.h.cfg.identity, "err", err)
				return
			case <-o.h.life.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// makeRoom parks the least recently used idle session with an implied
// identity while the table is full (FR-3.3). It waits for the parking.
func (o *opener) makeRoom() *rpcError {
	for {
		o.h.mu.Lock()
		n := len(o.h.names)
		var oldest *session
		for _, other := range o.h.names {
			v := other.shown.Load()
			if v.Status == statusIdle && v.implied && (oldest == nil || v.LastActive.Before(oldest.shown.Load().LastActive)) {
				oldest = other
			}
		}
		o.h.mu.Unlock()
		if n < o.h.cfg.maxConcurrentThreads {
			return nil
		}
		if oldest == nil {
			return proxyError(codeMaxSessions, fmt.Sprintf("%d sessions are open and none can be parked (max_concurrent_threads = %d); close one with agent_close", n, o.h.cfg.maxConcurrentThreads))
		}
		done := make(chan struct{})
		if oldest.end(endPark, "", func(closeResult, *rpcError) { close(done) }) {
			<-done
		}
	}
}

// settle decides a session's settings and what its thread is opened with.
func (o *opener) settle(p *opening, asRole role) *rpcError {
	opts := optionsOf(&p.rec.Settings)
	info := p.be.info()
	p.rec.BackendKind = info.kind
	var profile map[string]any
	if opts.Profile != "" && info.atLeast(148) { // newer Codex takes no profile itself
		var err *rpcError
		if profile, err = loadProfile(codexHomeDir(o.h.cfg.home), opts.Profile); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(o.h.life, catalogLimit)
	defer cancel()
	user, cerr := p.be.catalog(ctx, "config", p.rec.CWD)
	if cerr != nil {
		user = p.user
		o.h.log.Warn("the user's Codex configuration could not be read", "known", user != nil, "err", cerr)
	}
	p.user = user
	facts := contextFacts{Identity: p.rec.Identity, Team: o.h.cfg.team, Repo: readRepo(p.rec.CWD), Cwd: p.rec.CWD}
	in := policyInput{cfg: o.h.cfg, role: asRole, options: opts, user: user, profile: profile,
		cwd: p.rec.CWD, repoRoot: deref(facts.Repo.Root), roots: p.rec.Roots, chosen: p.client}
	pol, err := resolvePolicy(in)
	if err != nil {
		return err
	}
	p.policy, p.base, p.ceiling = pol, pol.Settings, cmp.Or(in.cfg.top.word, sandboxDanger)
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
	dev, err := o.instructions(p, opts, asRole, facts)
	if err != nil {
		return err
	}
	p.fresh = dev
	p.spec = threadSpec{Thread: p.rec.BackendID, Settings: pol.Settings, BaseInstructions: opts.BaseInstructions,
		DeveloperInstructions: dev, Profile: opts.Profile, Config: config, Ephemeral: !o.h.cfg.persistThreads,
		Recover: p.rec.Status == statusBroken || p.rec.Interrupted, Session: p.rec.ClientSession}
	if p.rec.Tools == toolsDynamic {
		p.spec.Tools = o.h.agentSpecs
	}
	p.told = facts
	if p.revived && !p.adopted && p.rec.Turns > 0 {
		p.told = contextFacts{}
		_ = json.Unmarshal(p.rec.Context, &p.told) // unreadable: the agent is told everything anew
	}
	return nil
}

// equip decides how the session's thread has its tools, and returns the
// configuration that it is opened with.
func (o *opener) equip(p *opening, asRole role, userConfig json.RawMessage) (json.RawMessage, *rpcError) {
	config, err := o.withServers(p)
	if err != nil || o.h.agentTool == nil {
		return config, err
	}
	p.rec.Tools = toolsWay(p.be.info(), p.rec.BackendID != "", p.rec.Tools, o.h.cfg.subagents || asRole.subagents)
	if p.rec.Tools != toolsServer {
		return config, nil
	}
	user, _ := readUserConfig(userConfig) // unreadable: nothing to keep clear of
	both, merr := withToolServer(config, user, o.h.toolServer.of(o.h.cfg.team, p.rec.Identity, p.rec.AgentID))
	if merr != nil {
		return nil, proxyError(codeInvalidSession, merr.Error())
	}
	return both, nil
}

// instructions are the developer instructions of a thread's first turn.
func (o *opener) instructions(p *opening, opts sessionOptions, asRole role, facts contextFacts) (string, *rpcError) {
	in := devInput{BasePrompt: bundledTeamPrompt, Caller: opts.DeveloperInstructions, Context: facts, Subagents: o.h.cfg.subagents || asRole.subagents,
		Approvals: "none", Sandbox: p.policy.Settings.Sandbox, Mail: o.h.agentTool != nil, MailShared: p.rec.Tools == toolsServer,
		MailOffered: p.client && o.h.cfg.acpMail == "prompt", Alone: o.h.cfg.teamless}
	if p.approvals != "" && p.policy.Settings.Approval != "never" {
		in.Approvals = p.approvals
	}
	if in.Caller == "" { // Codex drops the config key where the parameter is sent, and ours is
		in.Caller = stringField(p.policy.Config, "developer_instructions")
	}
	for _, f := range []struct {
		path string
		into *string
	}{{o.h.cfg.basePromptFile, &in.BasePrompt}, {o.h.cfg.extraInstructionsFile, &in.Extra}} {
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

// bindThread locks a thread that the child has just named and puts it into
// the record.
func (o *opener) bindThread(p *opening, agentID, thread string) *rpcError {
	lock, err := o.h.reg.lockThread(thread, agentID)
	if err != nil {
		return heldError(err, p.rec.AgentID, p.rec.Identity, "")
	}
	p.unlockThread()
	p.tlock, p.rec.BackendID = lock, thread
	if p.rec.SummaryDir == "" {
		p.rec.SummaryDir = filepath.Join(o.h.cfg.team, strings.ToLower(p.rec.Identity), thread) // fixed at birth (FR-6.4)
	}
	return nil
}

// reopen opens a session's thread in the next child (restart_child).
func (o *opener) reopen(s *session) { s.reopened(o.h.child.ready(o.h.life)) }

// heldError says who holds an identity or a thread, and a free name if there
// is one.
func heldError(err error, agentID, identity, free string) *rpcError {
	var name *leaseHeld
	if errors.As(err, &name) {
		msg := name.Error()
		switch {
		case name.agentID == agentID && agentID != "":
			msg += "; continue it from there, or close it there first"
		case free != "" && name.agentID == "":
			msg += fmt.Sprintf("; identity %q is free", free)
		case free != "":
			msg += fmt.Sprintf("; identity %q is free, or continue that agent with codex-reply {\"agent_id\": %q}", free, name.agentID)
		}
		return proxyError(codeIdentityConflict, msg, "conflicting_agent_id", name.agentID, "identity", name.identity, "pid", name.pid)
	}
	var member *memberTaken
	if errors.As(err, &member) {
		msg := fmt.Sprintf("identity %q can't be an agent's: %s", identity, member.who())
		switch {
		case free != "" && agentID != "":
			msg += fmt.Sprintf("; identity %q is free: codex {\"agent_id\": %q, \"identity\": %q} gives it to the agent", free, agentID, free)
		case free != "":
			msg += fmt.Sprintf("; identity %q is free", free)
		}
		return proxyError(codeIdentityConflict, msg, "identity", identity, "member", member.name, "agent_type", member.agentType)
	}
	var thread *threadHeld
	if errors.As(err, &thread) {
		return proxyError(codeIdentityConflict, thread.Error()+"; close it there first, or start a new agent with codex", "conflicting_agent_id", thread.agentID, "pid", thread.pid)
	}
	return proxyError(codeInvalidSession, errorText(err), "identity", identity)
}

// mergeOptions puts what a call asked for over what the session had.
func mergeOptions(r *recordSettings, o sessionOptions) {
	for _, f := range []struct {
		into *string
		from string
	}{{&r.Model, o.Model}, {&r.Effort, o.Effort}, {&r.ApprovalPolicy, o.Approval}, {&r.Sandbox, o.Sandbox}, {&r.BaseInstructions, o.BaseInstructions},
		{&r.DeveloperInstructions, o.DeveloperInstructions}, {&r.CompactPrompt, o.CompactPrompt}, {&r.Profile, o.Profile}} {
		if f.from != "" {
			*f.into = f.from
		}
	}
	if o.Config != nil {
		r.Config = o.Config
	}
}

// optionsOf is the way back: what was asked for, to be decided anew.
func optionsOf(r *recordSettings) sessionOptions {
	return sessionOptions{Model: r.Model, Effort: r.Effort, Approval: r.ApprovalPolicy, Sandbox: r.Sandbox, Config: r.Config,
		BaseInstructions: r.BaseInstructions, DeveloperInstructions: r.DeveloperInstructions, CompactPrompt: r.CompactPrompt, Profile: r.Profile}
}
