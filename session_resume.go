package main

// session_resume.go owns `serve --resume` (FR-6.1, FR-6.2): which session it means, and
// the one call that continues it. hub.start has it looked up, hub.submit offers
// it every new session's first call. It changes a call at most into what codex
// {agent_id} would be; opening and history are session_opener.go's and session.go's.

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// resumption is the session that the first codex call is to continue.
type resumption struct {
	open  atomic.Bool   // no call has taken it yet
	found chan struct{} // closed when the look-up has ended

	// set before found is closed
	rec *record
	err *rpcError
}

// findResumed looks up what --resume means and says so where that is nothing:
// whoever started us may be looking, and no call can tell them yet.
func (h *hub) findResumed() {
	defer close(h.resume.found)
	if h.resume.rec, h.resume.err = h.resumed(*h.cfg.resume); h.resume.err != nil {
		h.log.Error("nothing to resume", "err", h.resume.err.Message)
	}
}

// resumed finds a session by agent_id, threadId or identity, or the most recent
// one of our own identity for "". It reads the disk.
func (h *hub) resumed(ref string) (*record, *rpcError) {
	if validAgentID(ref) || looksLikeThread(ref) {
		return h.lookUp(ref)
	}
	identity := ref
	if ref == "" {
		identity = h.cfg.identity
	}
	recs, err := h.book.records(0) // newest first
	if err != nil {
		h.log.Warn("records could not be listed", "err", err)
	}
	for i := range recs {
		if strings.EqualFold(recs[i].Identity, identity) {
			return &recs[i], nil
		}
	}
	return nil, proxyError(codeSessionNotFound, fmt.Sprintf("--resume: team %q has no session of identity %q; atm-agent-mcp sessions lists what there is, and the next codex call starts a new one", h.cfg.team, identity), "identity", identity)
}

// resumes takes the call that continues the session of --resume: the first for a
// new session that asks for no other identity. false: the call goes its own way.
func (h *hub) resumes(req turnRequest, w waiterID) bool {
	r := &h.resume
	if req.mode != modeNew || req.client != nil || !r.open.Load() {
		return false
	}
	named := req.identity
	if named == "" {
		named = req.implied // an agent file's name says who it is meant for too
	}
	if named == "" && !r.open.CompareAndSwap(true, false) {
		return false
	}
	h.goWork(func() {
		<-r.found
		if named != "" && (r.rec == nil || !strings.EqualFold(named, r.rec.Identity) || !r.open.CompareAndSwap(true, false)) {
			h.route(req, w)
			return
		}
		if r.err != nil {
			h.answered(w, turnResult{err: r.err})
			return
		}
		req.mode, req.ref = modeRevive, r.rec.AgentID
		if r.rec.Status == "" { // a thread that only Codex knows
			req.ref = r.rec.BackendID
		}
		req.notes = append(req.notes, resumedNote(r.rec))
		h.route(req, w)
	})
	return true
}

// resumedNote tells the caller, who asked for a new agent, whom it got.
func resumedNote(rec *record) string {
	if rec.Status == "" {
		return fmt.Sprintf("serve --resume: this continues Codex's thread %s as agent %s", rec.BackendID, rec.AgentID)
	}
	return fmt.Sprintf("serve --resume: this continues session %s (identity %q, last active %s); the next codex call without agent_id starts a new agent",
		rec.AgentID, rec.Identity, rec.LastActive.UTC().Format(time.RFC3339))
}
