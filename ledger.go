package main

// ledger.go owns what the hub writes down and reads back for sessions: their
// records and the index, the audit lines, the lists that agent_sessions and
// agent_status show, and the start and stop of it all. Sessions and the
// composition root call it. Nothing here is written before the answer it
// belongs to, except an approval's audit line.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// save has a session's record written and the index follow. It waits for the
// file only with now: where an answer or a lease's release depends on it.
func (h *hub) save(rec *record, now bool) {
	if !now {
		h.reg.saveLater(*rec)
	} else if err := h.reg.save(*rec); err != nil {
		h.warnSave.Do(func() {
			h.log.Warn("session records can't be written; sessions won't survive this process", "err", err)
		})
	}
	h.mu.Lock()
	if h.live[rec.AgentID] != nil {
		h.open[rec.AgentID] = *rec
	}
	if !h.cfg.persistThreads {
		h.keepLocked(*rec)
	}
	h.indexLocked()
	h.mu.Unlock()
}

// maxKept is how many sessions that aren't on disk are remembered.
const maxKept = 200

// keepLocked remembers a session that is on no disk, so that a parked one is
// found by its next reply.
func (h *hub) keepLocked(rec record) {
	h.kept[rec.AgentID] = rec
	if len(h.kept) <= maxKept {
		return
	}
	oldest := rec
	for _, r := range h.kept {
		if r.LastActive.Before(oldest.LastActive) && h.live[r.AgentID] == nil {
			oldest = r
		}
	}
	delete(h.kept, oldest.AgentID)
}

// indexLocked has this instance's registry.json list what is open (FR-5.3).
func (h *hub) indexLocked() {
	if h.instance == "" {
		return
	}
	recs := make([]record, 0, len(h.open))
	for _, r := range h.open {
		recs = append(recs, r)
	}
	h.reg.setIndex(h.instance, recs)
}

// facts are a session's surroundings now. Reading .git costs a few stats.
func (h *hub) facts(identity, cwd string) contextFacts {
	return contextFacts{Identity: identity, Team: h.cfg.team, Repo: h.repos.read(cwd), Cwd: cwd}
}

// auditTurn notes a forwarded turn (FR-9.2).
func (h *hub) auditTurn(s *session, t *turn) {
	h.audit.append(auditEntry{Event: "turn", Correlation: t.req.correlation, AgentID: s.agentID, Identity: s.place.rec.Identity,
		Thread: s.thread, Summary: t.req.prompt})
}

// auditDecision writes an approval's decision down before it is sent.
func (h *hub) auditDecision(s *session, p *pendingAsk, by string, d decision) {
	e := auditEntry{Event: "approval", AgentID: s.agentID, Identity: s.place.identity(), Thread: p.thread, Turn: p.turn,
		Summary: p.action, Decision: d.String(), Detail: p.kind + ", by " + by}
	if err := h.audit.appendNow(e); err != nil {
		h.warnAudit.Do(func() { h.log.Warn("the audit log can't be written", "err", err) })
	}
}

// auditEnd notes the end of a session.
func (h *hub) auditEnd(s *session, why ending) {
	h.auditClose(s.agentID, s.place.identity(), s.thread, why.String())
}

func (h *hub) auditClose(agentID, identity, thread, how string) {
	h.audit.append(auditEntry{Event: "close", AgentID: agentID, Identity: identity, Thread: thread, Detail: how})
}

// fit cuts an answer to max_answer_bytes and keeps the whole in a file, which
// the cut answer names.
func (h *hub) fit(text string, p *opening, turnID string) string {
	limit := h.cfg.maxAnswerBytes
	if limit <= 0 || len(text) <= limit || p == nil {
		return text
	}
	tail := fmt.Sprintf("\n\n[answer cut: %d of %d bytes shown", limit, len(text))
	if h.cfg.persistThreads && validThreadID(turnID) {
		path := filepath.Join(h.cfg.sessionsRoot, p.rec.SummaryDir, "answers", turnID+".md")
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err == nil {
			tail += "; the whole is in " + path
		} else {
			h.log.Warn("a long answer could not be kept", "path", path, "err", err)
		}
	}
	return clipBytes(text, limit) + tail + "]"
}

// sessions lists what is open here and the team's other sessions, newest
// first. It reads records from disk and may wait for them.
func (h *hub) sessions(limit int) []sessionView {
	h.mu.Lock()
	out := make([]sessionView, 0, len(h.live))
	seen := map[string]bool{}
	for id, s := range h.live {
		if v := s.shown.Load(); v.Identity != "" {
			out = append(out, *v)
			seen[id] = true
		}
	}
	var kept []record
	for _, r := range h.kept {
		kept = append(kept, r)
	}
	h.mu.Unlock()
	recs, err := h.reg.list(limit)
	if err != nil {
		h.log.Warn("records could not be listed", "err", err)
	}
	for _, r := range append(recs, kept...) {
		if seen[r.AgentID] {
			continue
		}
		v := sessionView{AgentID: r.AgentID, Backend: "codex", BackendID: r.BackendID, Team: r.Team, Identity: r.Identity,
			AgentName: r.AgentName, AgentSource: r.AgentSource, Status: r.Status, Interrupted: r.Interrupted, LastActive: r.LastActive,
			StartedAt: r.StartedAt, Tag: r.Tag, Role: r.Role, Cwd: r.CWD, Turns: r.Turns, LastError: r.LastError, Resumable: r.BackendID != ""}
		if _, _, held := h.reg.holder(r.Identity); !held && (r.Status == statusBusy || r.Status == statusIdle) {
			v.Status, v.Interrupted = "stale", r.Status == "busy" // its process died
		}
		out = append(out, v)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].LastActive.After(out[j].LastActive) })
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	return out
}

// status tells the whole proxy. It reads no disk.
func (h *hub) status() statusView {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := statusView{ChildAlive: h.child.be != nil, ChildVersion: h.child.version, Backend: h.child.kind, Team: h.cfg.team,
		TeamFrom: h.cfg.teamFrom, Uptime: time.Since(h.started), Identities: map[string]string{}}
	if h.child.be != nil {
		v.ChildPID = h.child.be.info().pid
	}
	if h.child.death != nil {
		v.ChildError = h.child.death.Error()
	}
	for _, s := range h.names {
		if view := s.shown.Load(); view.Identity != "" {
			v.Identities[view.Identity] = view.AgentID
		}
	}
	v.Sessions = len(h.names)
	return v
}

// start begins what serve needs beside calls: the lease of --identity and the
// marking of sessions whose process died. Neither delays the first answer.
func (h *hub) start() {
	h.reserve()
	h.goWork(func() {
		if n := h.reg.markStale(); n > 0 {
			h.log.Info("sessions of dead processes marked stale", "sessions", n)
		}
	})
}

// stop ends everything: new turns are refused, running ones interrupted,
// their callers answered, records and index written, the child ended. It
// waits, at most about grace and the child's ladder.
func (h *hub) stop(grace time.Duration) {
	h.mu.Lock()
	h.stopping = true
	live := make([]*session, 0, len(h.live))
	for _, s := range h.live {
		live = append(live, s)
	}
	reserved := h.reserved
	h.reserved = nil
	h.mu.Unlock()
	h.endLife()
	if reserved != nil {
		reserved.release()
	}
	for _, s := range live {
		s.end(endShutdown, nil)
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	late := false
	for _, s := range live {
		if late {
			break
		}
		select {
		case <-s.ended:
		case <-limit.C:
			late = true
		}
	}
	h.mu.Lock()
	be := h.child.be
	h.mu.Unlock()
	if be != nil {
		be.stop(grace)
	}
	for _, s := range live { // the child's end ends whoever still waited for it
		<-s.ended
	}
	h.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := h.reg.close(ctx); err != nil {
		h.log.Warn("closing records", "err", err)
	}
	if err := h.audit.flush(ctx); err != nil {
		h.log.Warn("flushing the audit log", "err", err)
	}
}
