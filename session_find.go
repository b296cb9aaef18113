package main

// session_find.go owns how an agent is found, by its agent_id, its threadId or the name that it has while it is open,
// here or in what is kept; the one way of a call to its agent, open or not; and how the record of one that isn't open
// is changed. The hub and its parts ask; most look-ups read the disk. The finder must never take a name for an agent
// that isn't open (names go from one to the next; only agent_close means the last that had one), nor write a record
// that a session may be writing.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// agentDirectory is every agent of the team: those that are open here, and those that are kept.
type agentDirectory struct {
	*common
	boxes  *inboxes
	marked chan struct{} // closed when the sessions of dead processes are marked

	changing sync.Mutex // held while change reads, changes and writes a record: one change is never lost to another
}

// markDead marks what dead processes left open. Until then such a session may look as if it worked.
func (d *agentDirectory) markDead() {
	n := d.reg.markStale()
	d.reg.markIndexes()
	if close(d.marked); n > 0 {
		d.log.Warn("sessions of dead processes marked stale", "sessions", n)
	}
}

// withAgent hands a call to the agent that a reference means, behind all calls on that agent that came before: at once
// where the agent is open and nothing waits in its line, else from that line's goroutine.
func (d *agentDirectory) withAgent(ref string, c agentCall) {
	s, line, serve := d.table.meet(ref, c)
	if s != nil {
		if c.open(s, false) == received {
			return
		}
		serve = d.table.join(line, c)
	}
	if serve {
		d.work.start(func() { d.serveLine(line) })
	}
}

// serveLine hands over the calls of one line until the line is empty. serveLine may wait, as each call may.
func (d *agentDirectory) serveLine(line string) {
	for {
		c, s, ok := d.table.next(line)
		if !ok {
			return
		}
		if s == nil || c.open(s, true) != received {
			c.stored(line)
		}
	}
}

// onLoop has the loop of an agent's session run do, behind the calls on the agent that came before; where the agent
// isn't open here, stored serves the call in a goroutine that may wait.
func (d *agentDirectory) onLoop(ref string, do func(*session), stored func(ref string)) {
	c := agentCall{stored: stored}
	c.open = func(s *session, _ bool) reception {
		if s.box.do(func() {
			if s.m.phase == phaseOver { // the session has ended since: its record may belong to a newer session by now
				d.withAgent(s.agentID, c)
				return
			}
			do(s)
		}) {
			return received
		}
		return missed
	}
	d.withAgent(ref, c)
}

// find is the session that a reference means, where it is open here, and its agent_id; else the agent_id of one that
// is kept. A name is only an open agent's.
func (d *agentDirectory) find(ref string) (*session, string, *rpcError) {
	if s := d.table.find(ref); s != nil {
		return s, s.agentID, nil
	}
	<-d.marked
	agentID := d.agentID(ref)
	if d.ledger.record(agentID) == nil && !d.kept.has(agentID) {
		return nil, "", d.unknown(ref)
	}
	return nil, agentID, nil
}

// agentID is the agent that an agent_id or a threadId means, "" where a thread is no agent's.
func (d *agentDirectory) agentID(ref string) string {
	if validAgentID(ref) {
		return ref
	}
	id, _ := d.reg.agentOfThread(ref)
	return id
}

// record is the kept record of an agent_id or threadId, or of a codex_id of the ancestor's. A thread that only Codex
// knows, from before, from another client or from the ancestor, gets a new record, which has no status yet.
func (d *agentDirectory) record(ref string) (*record, *rpcError) {
	if rec := d.ledger.record(d.agentID(ref)); rec != nil {
		return rec, nil
	}
	old := d.cfg.findOldSession(ref)
	thread := cmp.Or(old.Thread, ref)
	if !threadRule.MatchString(thread) {
		return nil, d.unknown(ref)
	}
	if rec := d.ledger.record(d.agentID(thread)); rec != nil {
		return rec, nil
	}
	rec := &record{AgentID: d.reg.newAgentID(), Backend: "codex", BackendID: thread, Implied: true,
		Identity: old.Identity, Team: d.cfg.team, Inherited: true}
	if filepath.IsAbs(old.Cwd) && isDir(old.Cwd) {
		rec.CWD = old.Cwd
	}
	return rec, nil
}

// recordOf is record for a name too, of whoever has it or had it last.
func (d *agentDirectory) recordOf(ref string) (*record, *rpcError) {
	if s := d.table.find(ref); s != nil {
		ref = s.agentID
	} else if isName(ref) {
		if v := d.named(ref); v != nil {
			ref = v.AgentID
		}
	}
	return d.record(ref)
}

// source is the record of an agent whose conversation another one is to begin with, as it is by now: by id, thread or
// name, open or not. One that was never prompted is refused, unless an empty conversation will do. It reads the disk.
func (d *agentDirectory) source(ref string, orEmpty bool) (*record, *rpcError) {
	rec, err := d.recordOf(ref)
	if err != nil {
		return nil, err
	}
	if !rec.hasPast() && !orEmpty {
		return nil, proxyAdvice(codeInvalidSession, remedyNone, fmt.Sprintf("agent %s was never prompted, so there is "+
			"nothing to begin another one with", rec.AgentID), "; leave fork_of out", "agent_id", rec.AgentID)
	}
	return rec, nil
}

// view is how an agent stands, open here or not.
func (d *agentDirectory) view(agentID string) sessionView {
	if s := d.table.agent(agentID); s != nil {
		return *s.shown.Load()
	}
	if rec := d.ledger.record(agentID); rec != nil {
		return d.viewOf(rec)
	}
	return sessionView{AgentID: agentID, Backend: "codex", Team: d.cfg.team, Status: statusClosed}
}

// viewOf is an agent that isn't open here.
func (d *agentDirectory) viewOf(r *record) sessionView {
	v := newView(r)
	v.Resumable = r.BackendID != ""
	v.Status, v.Interrupted, v.pid = d.reg.told(r)
	if v.Status == statusParked { // it comes back by its next reply, and so does its mail
		v.AutoMail = onOff(autoMailOf(d.cfg, r))
		if n, err := d.boxes.count(d.life, d.cfg.team, r.Identity); err == nil { // else there is no team
			v.PendingMail = &n
		}
	}
	return v
}

// closedView is how the agent of a call stands that only an open session could serve. The error says who has the
// agent, where another process does.
func (d *agentDirectory) closedView(ref string) (sessionView, *rpcError) {
	_, agentID, err := d.find(ref)
	if err != nil {
		return sessionView{}, err
	}
	v := d.view(agentID)
	return v, elsewhere(&v)
}

// elsewhere is who must be asked about an agent that another process has open, nil where none has.
func elsewhere(v *sessionView) *rpcError {
	if v.Mine || v.pid == 0 || v.pid == os.Getpid() {
		return nil
	}
	return heldError(nameHeld(v.Identity, v.AgentID, v.pid), v.AgentID, v.Identity, "")
}

// list tells the agents that are open here and the team's others, the limit newest of them, or all for 0.
func (d *agentDirectory) list(limit int) []sessionView {
	out := []sessionView{}
	open := map[string]bool{}
	for _, s := range d.table.all() {
		if v := s.shown.Load(); v.Identity != "" {
			out = append(out, *v)
			open[v.AgentID] = true
		}
	}
	<-d.marked
	recs, err := d.ledger.records(limit)
	if err != nil {
		d.log.Warn("records could not be listed", "err", err)
	}
	for _, r := range recs {
		if !open[r.AgentID] {
			out = append(out, d.viewOf(&r))
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].LastActive.After(out[j].LastActive) })
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	return out
}

// turn is one kept turn of an agent_id or threadId. It may read the disk.
func (d *agentDirectory) turn(ref, turnID string) (keptTurn, *rpcError) {
	_, agentID, err := d.find(ref)
	if err != nil {
		return keptTurn{}, err
	}
	t := d.kept.find(agentID, turnID)
	if t == nil {
		return keptTurn{}, proxyAdvice(codeSessionNotFound, remedyNone, fmt.Sprintf("agent %s has no turn %q", agentID,
			turnID), "; agent_wait tells its turns", "agent_id", agentID, "turn_id", turnID)
	}
	if t.finished() {
		return *t, nil
	}
	if t.Process != d.kept.began {
		t.Activity = "working in another process"
		return *t, nil
	}
	v := d.view(agentID)
	t.Activity, t.Pending = v.Activity, v.Pending
	if t.Status == "queued" && !v.opening {
		t.Activity, t.Pending = "waiting for its turn", nil
	}
	return *t, nil
}

// named is the newest agent of that name, one that isn't closed first; nil for none.
func (d *agentDirectory) named(name string) *sessionView {
	var found *sessionView
	for _, v := range d.list(0) {
		if strings.EqualFold(v.Identity, name) && (found == nil || found.Status == statusClosed &&
			v.Status != statusClosed) {
			found = &v
		}
	}
	return found
}

// isName tells an agent's name from the ids.
func isName(ref string) bool { return validIdentity(ref) == nil }

// namesTold is how many names an error tells.
const namesTold = 8

// unknown says that a reference means no session, and what there is instead: how an agent of that name is resumed, the
// nearest, or who is open.
func (d *agentDirectory) unknown(ref string) *rpcError {
	said := func(format string, args ...any) *rpcError {
		return proxyAdvice(codeSessionNotFound, remedyFind, fmt.Sprintf(format, args...),
			". agent_sessions lists them, codex {prompt} starts a new one", "agent_id", ref)
	}
	what := fmt.Sprintf("no session has the id %q", cutName(ref))
	if isName(ref) {
		what = fmt.Sprintf("no agent that is open here has the id or name %q", ref)
		switch v := d.named(ref); {
		case v == nil:
		case elsewhere(v) != nil:
			return said("%s: agent %s has that name in another process (pid %d), which alone can be asked", what,
				v.AgentID, v.pid)
		default:
			return proxyAdvice(codeSessionNotFound, remedyFind, fmt.Sprintf("%s; %s had that name and is %s", what,
				v.AgentID, v.Status), fmt.Sprintf(": codex {\"agent_id\": %q} reopens it", v.AgentID), "agent_id",
				v.AgentID, "identity", v.Identity)
		}
	}
	var known, names []string
	for _, v := range d.list(50) {
		known = append(known, v.AgentID)
		if v.Mine {
			known, names = append(known, v.Identity), append(names, v.Identity)
		}
	}
	if near := nearest(ref, known); near != "" {
		return said("%s; did you mean %q?", what, near)
	}
	switch more := len(names) - namesTold; {
	case len(known) == 0:
		return said("%s; there are none yet", what)
	case len(names) == 0:
		return said("%s; the newest are %s", what, strings.Join(known[:min(3, len(known))], ", "))
	case more > 0:
		return said("%s; open are %s and %d more", what, strings.Join(names[:namesTold], ", "), more)
	}
	return said("%s; open are %s", what, strings.Join(names, ", "))
}

// change changes the record of an agent that nobody has open, while it holds what a session would: so that nobody
// opens the agent meanwhile. It waits for whoever only looks.
func (d *agentDirectory) change(agentID string, do func(*record)) *rpcError {
	for until := time.Now().Add(25 * lockPause); ; time.Sleep(lockPause) {
		rec := d.ledger.record(agentID)
		if rec == nil {
			return d.unknown(agentID)
		}
		release, gone := d.reg.holdIfGone(agentID, rec.Identity, rec.BackendID)
		if !gone && time.Now().Before(until) {
			continue
		}
		if gone {
			defer release()
		} else if !d.reg.holds(rec.Identity, agentID) || d.table.agent(agentID) != nil {
			_, pid, _ := d.reg.holder(rec.Identity)
			return heldError(nameHeld(rec.Identity, agentID, pid), agentID, rec.Identity, "")
		} // else the opening of a session that was just ended holds it, and writes nothing
		d.changing.Lock()
		defer d.changing.Unlock()
		now := d.ledger.record(agentID) // nobody else writes it any more
		if now == nil {
			return d.unknown(agentID)
		}
		do(now)
		if err := d.ledger.put(now); err != nil {
			return proxyError(codeInvalidSession, "the session's record can't be written: "+errorText(err), "agent_id",
				agentID)
		}
		return nil
	}
}

// close closes an agent that isn't open here.
func (d *agentDirectory) close(ref, correlation string) (closeResult, *rpcError) {
	rec, err := d.recordOf(ref)
	if err == nil && rec.Status == "" {
		err = d.unknown(ref)
	}
	if err != nil {
		return closeResult{}, err
	}
	res := closeResult{AgentID: rec.AgentID, Identity: rec.Identity, Status: statusClosed,
		Already: rec.Status == statusClosed, Worktree: endOf(rec)}
	if res.Already {
		return res, nil
	}
	if err := d.change(rec.AgentID, func(r *record) {
		r.Status, r.LastActive = statusClosed, time.Now().UTC()
	}); err != nil {
		return closeResult{}, err
	}
	d.ledger.auditClose(rec.AgentID, rec.Identity, rec.BackendID, statusClosed, correlation)
	return res, nil
}

// setMail turns auto-mail on or off for an agent that isn't open here.
func (d *agentDirectory) setMail(ref string, auto bool) (sessionView, *rpcError) {
	_, agentID, err := d.find(ref)
	if err != nil {
		return sessionView{}, err
	}
	var rec record
	if err := d.change(agentID, func(r *record) {
		r.AutoMail = &auto
		rec = *r
	}); err != nil {
		return sessionView{}, err
	}
	d.ledger.auditMail(agentID, rec.Identity, "auto_mail", "", onOff(auto), "by agent_mail")
	v := d.viewOf(&rec)
	v.AutoMail = onOff(auto) // what it reopens with
	return v, nil
}

// resumption is the session of `serve --resume` (FR-6.1, FR-6.2), which the first call for a new agent continues.
type resumption struct {
	open  atomic.Bool   // no call has taken it yet
	found chan struct{} // closed when the look-up has ended

	// set before found is closed
	rec *record
	err *rpcError
}

// find looks up what --resume means, by agent_id, threadId or identity, or the most recent session of our own identity
// for "". Where that is nothing it says so: whoever started us may be looking, and no call can tell them yet.
func (r *resumption) find(agents *agentDirectory, ref string) {
	defer close(r.found)
	if validAgentID(ref) || threadRule.MatchString(ref) {
		r.rec, r.err = agents.record(ref)
	} else {
		r.rec, r.err = agents.newestOf(ref)
	}
	if r.err != nil {
		said := agents.cfg.names.error(r.err).Message // the log leaves our names in quotes as they are
		agents.log.Error("nothing to resume", "err", said)
	}
}

// newestOf is the record of the newest session of an identity, of our own for "".
func (d *agentDirectory) newestOf(identity string) (*record, *rpcError) {
	if identity == "" {
		identity = d.cfg.identity
	}
	recs, err := d.ledger.records(0) // newest first
	if err != nil {
		d.log.Warn("records could not be listed", "err", err)
	}
	for i := range recs {
		if strings.EqualFold(recs[i].Identity, identity) {
			return &recs[i], nil
		}
	}
	for _, old := range slices.Backward(d.cfg.oldSessions()) {
		if strings.EqualFold(old.Identity, identity) || old.CodexID == identity {
			return d.record(old.Thread)
		}
	}
	return nil, proxyError(codeSessionNotFound, fmt.Sprintf("--resume: team %q has no session of identity %q; "+
		"atm-agent-mcp sessions lists what there is, and the next codex call starts a new one", d.cfg.team, identity),
		"identity", identity)
}

// takes reports a call for a new agent that may be the one that continues the session: the first that asks for no
// other identity, an agent file's name included. Only into tells of one that asks for an identity.
func (r *resumption) takes(req *turnRequest) bool {
	return req.client == nil && req.review == nil && r.open.Load() && (cmp.Or(req.identity, req.implied) != "" ||
		r.open.CompareAndSwap(true, false))
}

// into makes of such a call what codex {agent_id} would be, or leaves it as it is where it is meant for somebody else.
// It waits for the look-up.
func (r *resumption) into(req *turnRequest) *rpcError {
	<-r.found
	if name := cmp.Or(req.identity, req.implied); name != "" &&
		(r.rec == nil || !strings.EqualFold(name, r.rec.Identity) || !r.open.CompareAndSwap(true, false)) {
		return nil
	}
	if r.err != nil {
		return r.err
	}
	req.mode, req.ref = modeRevive, r.rec.AgentID
	note := fmt.Sprintf("serve --resume: this continues session %s (identity %q, last active %s); the next codex "+
		"call that names no agent starts a new one",
		r.rec.AgentID, r.rec.Identity, r.rec.LastActive.UTC().Format(time.RFC3339))
	if r.rec.Status == "" { // a thread that only Codex knows
		req.ref, req.agentID = r.rec.BackendID, r.rec.AgentID
		note = fmt.Sprintf("serve --resume: this continues Codex's thread %s as agent %s", r.rec.BackendID,
			r.rec.AgentID)
	}
	req.notes = append(req.notes, note)
	return nil
}

// heldError says who holds an identity or a thread, and a free name if there is one.
func heldError(err error, agentID, identity, free string) *rpcError {
	var by *heldBy
	var member *memberTaken
	switch {
	case errors.As(err, &by):
		what, advice := by.Error(), ""
		data := []any{"conflicting_agent_id", by.agentID, "pid", by.pid}
		if by.what != "thread" {
			data = append(data, "identity", by.name)
		}
		said := "" // that a whole session is in use
		switch {
		case by.what == "thread":
			advice, said = "; close it there first, or start a new agent with codex", by.session()
		case by.agentID == agentID && agentID != "":
			advice, said = "; continue it from there, or close it there first", by.session()
		case free != "":
			what += fmt.Sprintf("; identity %q is free", free)
			if by.agentID != "" {
				advice = fmt.Sprintf(", or continue that agent with codex-reply {\"agent_id\": %q}", by.agentID)
			}
		}
		e := proxyAdvice(codeIdentityConflict, remedyHeld, what, advice, data...)
		e.Said = cmp.Or(said, e.Said)
		return e
	case errors.As(err, &member):
		msg := fmt.Sprintf("identity %q can't be an agent's: %s", identity, member.who())
		if free != "" {
			msg += fmt.Sprintf("; identity %q is free", free)
		}
		advice := ""
		if free != "" && agentID != "" {
			advice = fmt.Sprintf(": codex {\"agent_id\": %q, \"identity\": %q} gives it to the agent", agentID, free)
		}
		return proxyAdvice(codeIdentityConflict, remedyNone, msg, advice, "identity", identity, "member", member.name,
			"agent_type", member.agentType)
	}
	return proxyError(codeInvalidSession, errorText(err), "identity", identity)
}
