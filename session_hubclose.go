package main

// session_hubclose.go owns agent_close where it isn't the session's own matter: the way
// of a close to its session, in the order of the calls before it, and the
// closing of sessions that aren't open here, by their records. The front calls
// close. Whoever is told "closed" must find a closed record, whatever the
// session was just about.

import (
	"errors"
	"time"
)

// close closes the session that a reference means, open or not, and calls done
// exactly once, from another goroutine. correlation follows the request through
// the audit trail.
func (h *hub) close(ref, correlation string, done func(closeResult, *rpcError)) {
	h.closeAs(ref, correlation, false, done)
}

// closeAs is close; with leave no summary is asked for.
func (h *hub) closeAs(ref, correlation string, leave bool, done func(closeResult, *rpcError)) {
	h.mu.Lock()
	s := h.findLocked(ref)
	if s != nil {
		ref = s.agentID
	}
	if s == nil || h.lookingLocked(ref) { // behind the calls that came before it
		h.lookUpLocked(ref, lookup{close: done, leave: leave, correlation: correlation})
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	if !h.endFor(s, leave, correlation, done) {
		h.goWork(func() { done(h.closeRecord(ref, correlation)) })
	}
}

// endFor closes an open session. false: it had ended before. One that had no
// place yet left its record as it was, and one that was just parked is no
// closed one: those are closed by their records.
func (h *hub) endFor(s *session, leave bool, correlation string, done func(closeResult, *rpcError)) bool {
	if leave {
		s.box.post(func() { s.client.unsummed = true })
	}
	return s.end(endClose, correlation, func(r closeResult, err *rpcError) {
		if r.Identity != "" && !r.Already {
			done(r, err)
			return
		}
		h.goWork(func() {
			if rec, err := h.closeRecord(s.agentID, correlation); err == nil || err.Code != codeSessionNotFound {
				done(rec, err)
				return
			}
			done(r, err) // nor had it a record
		})
	})
}

// closeRecord closes a session that isn't open here.
func (h *hub) closeRecord(ref, correlation string) (closeResult, *rpcError) {
	if isName(ref) {
		if v := h.named(ref); v != nil {
			ref = v.AgentID
		}
	}
	rec, err := h.lookUp(ref)
	if err != nil {
		return closeResult{}, err
	}
	if rec.Status == "" {
		return closeResult{}, h.unknown(ref)
	}
	res := closeResult{AgentID: rec.AgentID, Identity: rec.Identity, Status: "closed", Already: rec.Status == "closed"}
	if res.Already {
		return res, nil
	}
	if rec.BackendID != "" {
		lock, err := h.reg.lockThread(rec.BackendID, rec.AgentID)
		var held *threadHeld
		switch {
		case err == nil:
			defer lock.release()
		case errors.As(err, &held) && held.ours && held.agentID == rec.AgentID: // by the opening of a session that was just ended
		default:
			return closeResult{}, heldError(err, rec.AgentID, rec.Identity, "")
		}
	}
	rec.Status, rec.LastActive = "closed", time.Now().UTC()
	if h.book.remembered(rec.AgentID) != nil {
		h.book.save(rec)
	} else if err := h.reg.save(*rec); err != nil {
		return closeResult{}, proxyError(codeInvalidSession, "the session's record can't be written: "+errorText(err), "agent_id", rec.AgentID)
	}
	h.book.auditClose(rec.AgentID, rec.Identity, rec.BackendID, "closed", correlation)
	return res, nil
}
