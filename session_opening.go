package main

// session_opening.go owns the place of one session: what it holds while it is open, and
// the record that is kept in step with its turns. session_opener.go makes it; the
// session's own goroutine changes it and gives it back.

import (
	"cmp"
	"encoding/json"
	"time"
)

// opening is the place of one session: what it holds while it is open.
type opening struct {
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
	revived bool     // the session had a life before
	adopted bool     // a thread that only Codex knew
	early   bool     // the record was written before there was a thread
	before  string   // the record's status until then

	approvals string // who can be asked, as its request says

	client  bool            // its client has a name of its own for it
	born    bool            // and its record is on disk
	servers json.RawMessage // the client's MCP servers, as Codex's mcp_servers
	user    json.RawMessage // the user's Codex configuration, as last read
	base    turnSettings    // as policy's, if nobody had chosen for this session
	ceiling string          // max_sandbox's word
	model   string          // as Codex opened the thread with
	effort  string
	was     turnSettings // before a choice was decided anew
}

// settings is what the next turn runs with, for who lets a person choose.
func (p *opening) settings() sessionSettings {
	t := &p.policy.Settings
	return sessionSettings{Model: cmp.Or(t.Model, p.model), Effort: cmp.Or(t.Effort, p.effort), Sandbox: t.Sandbox, Approval: t.Approval,
		BaseSandbox: p.base.Sandbox, BaseApproval: p.base.Approval, MaxSandbox: p.ceiling, Notes: p.policy.Notes}
}

// withChoice is a copy with a choice in it that the settings can be decided anew with, off the
// session's goroutine: of what that needs nothing is changed in place.
func (p *opening) withChoice(c settingsChange) *opening {
	next := &opening{rec: p.rec, be: p.be, revived: p.revived, adopted: p.adopted, approvals: p.approvals, client: p.client,
		servers: p.servers, user: p.user, model: p.model, effort: p.effort, was: p.policy.Settings}
	c.into(&next.rec.Settings)
	return next
}

// takeOver takes over what such a copy came to.
func (p *opening) takeOver(next *opening) {
	p.rec.Settings, p.policy, p.user, p.base = next.rec.Settings, next.policy, next.user, next.base
	thread, tools := p.spec.Thread, p.spec.Tools
	p.spec, p.fresh = next.spec, next.fresh
	p.spec.Thread, p.spec.Tools, p.spec.Recover = thread, tools, false
}

// sandbox and approval are the policy's words, "" before there is a place.
func (p *opening) sandbox() string {
	if p == nil {
		return ""
	}
	return p.policy.Settings.Sandbox
}

func (p *opening) approval() string {
	if p == nil {
		return ""
	}
	return p.policy.Settings.Approval
}

// identity is "" before there is a place.
func (p *opening) identity() string {
	if p == nil {
		return ""
	}
	return p.rec.Identity
}

// release gives identity and thread back. It may be called twice.
func (p *opening) release() {
	p.unlockThread()
	if p.lease != nil {
		p.lease.release()
		p.lease = nil
	}
}

func (p *opening) unlockThread() {
	if p.tlock != nil {
		p.tlock.release()
		p.tlock = nil
	}
}

// past is the block that stands for a history Codex has lost, and what it is
// made of, in words: the summary, the digest where there is none or turns came
// after it. A session that left neither has no past (FR-6.3).
func (p *opening) past() (block, of string) {
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

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// noteEarly notes a session as busy whose thread isn't there yet, but whose name is given out. false: it was before.
func (p *opening) noteEarly() bool {
	if p.early {
		return false
	}
	p.early, p.before = true, p.rec.Status
	p.rec.Status, p.rec.LastActive = statusBusy, time.Now().UTC()
	return true
}

// undoEarly takes that back. false: there is nothing to take back.
func (p *opening) undoEarly() bool {
	if p.early {
		p.rec.Status = cmp.Or(p.before, statusStale)
	}
	return p.early
}

// noteStart, noteEnd and noteOver keep the record in step with the turns.
// told is what the agent knows of facts by then.
func (p *opening) noteStart(t *turn, facts, told contextFacts, now time.Time) {
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

func (p *opening) noteEnd(t *turn, how finishKind, now time.Time) {
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
	seen := map[string]bool{}
	for _, f := range r.Digest.TouchedFiles {
		seen[f] = true
	}
	for _, f := range t.run.files() {
		if !seen[f] {
			r.Digest.TouchedFiles = append(r.Digest.TouchedFiles, f)
		}
	}
	if n := len(r.Digest.TouchedFiles); n > maxTouched {
		r.Digest.TouchedFiles = r.Digest.TouchedFiles[n-maxTouched:]
	}
}

func (p *opening) noteOver(why ending, stopped bool, now time.Time) {
	p.rec.Status, p.rec.Interrupted = why.status(), stopped
	if stopped || !p.client { // else a client's list would begin with what was parked last, not with what was worked in
		p.rec.LastActive = now.UTC()
	}
}
