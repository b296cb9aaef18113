package main

// session_hubcalls.go owns what a caller may do to a turn that it doesn't wait for:
// stop it, or decide what it asks. Fronts call it; the session's loop does it
// and answers from there, so done comes from another goroutine.

import (
	"fmt"
	"os"
	"strings"
)

// interrupt stops a turn and keeps its session: what runs, or the turn of that
// name, queued or running. done is called once it has stopped; where there was
// nothing to stop, it says so.
func (h *hub) interrupt(ref, turn string, done func(interruptResult, *rpcError)) {
	h.goWork(func() {
		s, agentID, err := h.find(ref)
		if err != nil {
			done(interruptResult{}, err)
			return
		}
		if s == nil || !s.box.post(func() { s.interruptTurn(turn, func(r interruptResult) { done(r, nil) }) }) {
			v := h.viewOf(agentID)
			done(interruptResult{AgentID: agentID, Identity: v.Identity}, elsewhere(&v))
		}
	})
}

// approve decides a pending approval for a caller that repeats what it
// decides, and tells what that came to. The first decision wins; a later one is
// told so.
func (h *hub) approve(q approveQuery, done func(decision, *rpcError)) {
	h.goWork(func() {
		s, agentID, err := h.find(q.Agent)
		if err != nil {
			done(deny, err)
			return
		}
		if s == nil || !s.box.post(func() { done(s.approve(q)) }) {
			v := h.viewOf(agentID)
			if err = elsewhere(&v); err == nil {
				err = notPending(agentID, q.Ask)
			}
			done(deny, err)
		}
	})
}

// elsewhere is who must be asked about an agent that another process has open,
// nil where none has.
func elsewhere(v *sessionView) *rpcError {
	if v.Mine || v.pid == 0 || v.pid == os.Getpid() {
		return nil
	}
	return heldError(&leaseHeld{identity: v.Identity, agentID: v.AgentID, pid: v.pid}, v.AgentID, v.Identity, "")
}

func notPending(agentID, ask string) *rpcError {
	return proxyError(codeInvalidSession, fmt.Sprintf("approval %q of %s isn't pending: it was decided already, withdrawn or timed out; agent_status lists what is pending", ask, agentID), "agent_id", agentID, "approval_id", ask)
}

// autoMail reports whether mail starts turns in a session: agent_mail's word for
// it, per_thread_auto_mail's for its identity, its role's, or auto_mail.
func (h *hub) autoMail(rec *record) bool {
	if rec.AutoMail != nil {
		return *rec.AutoMail
	}
	for name, on := range h.cfg.perThreadAutoMail {
		if strings.EqualFold(name, rec.Identity) {
			return on
		}
	}
	if r, err := h.cfg.role(rec.Role); err == nil {
		return r.autoMail
	}
	return h.cfg.autoMail
}

// setMail turns auto-mail on or off for one session; it is kept in its record.
// auto true also resumes what the runaway guard has paused.
func (h *hub) setMail(ref string, auto bool, done func(sessionView, *rpcError)) {
	h.goWork(func() {
		s, agentID, err := h.find(ref)
		if err != nil {
			done(sessionView{}, err)
			return
		}
		record := func() { done(h.setRecordMail(agentID, auto)) }
		if s == nil || !s.box.post(func() {
			if s.m.phase == phaseOver { // its record may be another's by now
				h.goWork(record)
				return
			}
			done(s.setMail(auto), nil)
		}) {
			record()
		}
	})
}

// setRecordMail does it for a session that isn't open here.
func (h *hub) setRecordMail(agentID string, auto bool) (sessionView, *rpcError) {
	rec := h.book.record(agentID)
	if rec == nil {
		return sessionView{}, h.unknown(agentID)
	}
	if rec.BackendID != "" {
		lock, err := h.reg.lockThread(rec.BackendID, rec.AgentID)
		if err != nil {
			return sessionView{}, heldError(err, rec.AgentID, rec.Identity, "")
		}
		defer lock.release()
		if now := h.book.record(agentID); now != nil {
			rec = now
		}
	}
	rec.AutoMail = &auto
	h.book.save(rec)
	h.book.auditMail(agentID, rec.Identity, "auto_mail", "", onOff(auto), "by agent_mail")
	v := h.viewOfRecord(rec)
	v.AutoMail = onOff(auto) // what it reopens with
	return v, nil
}

// firstNotes are what the first session's first result is to say of the configuration, nil for every later session.
func (h *hub) firstNotes() []string {
	if len(h.cfg.notes) == 0 || !h.notesTold.CompareAndSwap(false, true) {
		return nil
	}
	return h.cfg.notes
}
