package main

// session_back.go owns the turns of a session that nobody's request waits for:
// accepting a background turn, keeping every turn's result, and stopping a turn
// on somebody's word. It runs on the session's own goroutine. A background turn
// is on disk before its name is given out, and never lost without a result.

import (
	"slices"
	"time"
)

// acceptLimit is how long a background call waits for its session's place, so
// that a name that is taken or a Codex that won't start is an error of the call.
const acceptLimit = time.Second

// accept answers the caller of a background turn once the session has a place,
// or after acceptLimit.
func (s *session) accept(t *turn) {
	if !t.req.background || t.accepted || !slices.Contains(s.m.queue, t) {
		return
	}
	if s.place == nil && s.m.phase == phaseOpening {
		if t.accept == nil {
			t.accept = time.AfterFunc(acceptLimit, func() {
				s.box.post(func() {
					if !t.accepted && slices.Contains(s.m.queue, t) {
						s.takeOn(t)
					}
				})
			})
		}
		return
	}
	s.takeOn(t)
}

// takeOn makes a queued background turn durable and gives out its name.
func (s *session) takeOn(t *turn) {
	if t.accept != nil {
		t.accept.Stop()
	}
	status := "queued"
	if s.m.cur == nil && s.m.queue[0] == t {
		status = "running" // as soon as there is a thread
	}
	k := keptTurn{AgentID: s.agentID, Identity: s.place.identity(), TurnID: t.req.handle, Source: t.req.source, Status: status,
		Created: t.asked, Updated: time.Now(), Task: t.req.task}
	if err := s.h.kept.begin(k); err != nil {
		s.m.drop(t)
		s.answer(t, turnResult{err: proxyError(codeInvalidSession, "the turn was not started, since it can't be kept on disk: "+errorText(err)+"; or leave out background", "agent_id", s.agentID)})
		s.lonely()
		return
	}
	s.saveEarly()
	t.accepted = true
	w := t.waiter
	t.waiter = 0
	s.publish()
	s.h.answered(w, turnResult{AgentID: s.agentID, ThreadID: s.threadID(), TurnID: t.req.handle, Identity: s.place.identity(), Team: s.h.cfg.team,
		Status: statusBusy, TurnStatus: status, Sandbox: s.place.sandbox(), Approval: s.place.approval(), Notes: s.takeNotes(), asked: t.asked})
}

// saveEarly puts a session on disk whose thread isn't there yet, but whose name
// has been given out.
func (s *session) saveEarly() {
	p := s.place
	if p == nil || p.early || s.m.phase != phaseOpening {
		return
	}
	p.early, p.before = true, p.rec.Status
	p.rec.Status, p.rec.LastActive = statusBusy, time.Now().UTC()
	s.h.book.save(&p.rec)
}

// unsaveEarly takes back that such a session is busy: its thread never came.
func (s *session) unsaveEarly() {
	p := s.place
	if p == nil || !p.early || s.thread != "" {
		return
	}
	p.rec.Status = p.before
	if p.before == "" {
		p.rec.Status = statusStale
	}
	s.h.book.save(&p.rec)
}

// keep puts a turn's result where agent_wait and tasks find it, and what its end
// changes in the record on disk with it, if rec is given. false: there is
// nothing to keep, and rec was not looked at.
func (s *session) keep(t *turn, r *turnResult, rec *record) bool {
	if t.kept || t.name() == "" || t.run == nil && !t.accepted || t.req.source == sourceSummary {
		return false
	}
	t.kept = true
	kept := *r
	kept.TurnID = t.name()
	k := keptTurn{AgentID: s.agentID, Identity: r.Identity, TurnID: t.name(), Source: t.req.source, Status: r.TurnStatus, Created: t.asked,
		Task: t.req.task, Stopped: t.stop == stopInterrupt || t.stop == stopCancel, Result: &kept}
	if k.Status == "" {
		k.Status = "failed"
		if t.stop != stopNone {
			k.Status = "interrupted"
		}
	}
	err := s.h.kept.finish(k, rec)
	if rec != nil {
		s.h.book.noted(rec, err)
	} else if err != nil {
		s.h.book.warnUnsaved(err)
	}
	s.unseen = true
	if t.req.notify != "" {
		s.h.post.notify(s.agentID, k, t.req.notify, t.req.correlation)
	}
	return true
}

// interruptTurn stops the turn of that name, or what runs for "", and keeps the
// session. done is called once it has stopped.
func (s *session) interruptTurn(name string, done func(interruptResult)) {
	r := interruptResult{AgentID: s.agentID, Identity: s.place.identity()}
	tell := func() {
		r.Queued = len(s.m.queue)
		s.publish()
		done(r)
	}
	for i, t := range s.m.queue {
		if name != "" && t.name() == name || name == "" && i == 0 && s.m.cur == nil { // about to run, once its thread is open
			s.m.drop(t)
			r.Interrupted, r.TurnID = true, t.name()
			t.stop = stopInterrupt
			s.answer(t, turnResult{AgentID: s.agentID, ThreadID: s.threadID(), TurnID: t.name(), Content: t.stop.words(), Identity: r.Identity,
				Team: s.h.cfg.team, Status: s.statusNow(), TurnStatus: "interrupted", Sandbox: s.place.sandbox(), Approval: s.place.approval()})
			tell()
			s.lonely()
			return
		}
	}
	cur := s.m.cur
	if cur == nil || name != "" && cur.name() != name && cur.id != name {
		tell()
		return
	}
	r.Interrupted, r.TurnID = true, cur.name()
	cur.stoppers = append(cur.stoppers, tell)
	// The interrupt first: a turn that is only told no goes on, and may be through
	// with its work before the interrupt comes.
	s.stopTurn(stopInterrupt)
	s.denyAll(decider{byNobody, "before the turn was interrupted"})
}

// takeNotes are what the next answer is to say.
func (s *session) takeNotes() []string {
	notes := s.notes
	s.notes = nil
	return notes
}
