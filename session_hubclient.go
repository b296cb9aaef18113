package main

// session_hubclient.go owns what the hub does for a front whose client has sessions of
// its own names (ACP): which agent is behind one, what it would run with, the
// choice of that, its past, its end without a summary. Nothing here is done on
// a session's path; what waits says so.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// clientIndex remembers which agent is behind a client's session.
type clientIndex struct {
	mu     sync.Mutex // guards the field below
	agents map[string]string
}

func (x *clientIndex) put(session, agentID string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.agents == nil {
		x.agents = map[string]string{}
	}
	x.agents[session] = agentID
}

func (x *clientIndex) get(session string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.agents[session]
}

// newAgentID is an id for turnRequest.agentID. It may look at the disk.
func (h *hub) newAgentID() string { return h.reg.newAgentID() }

// clientSessions lists the team's sessions that a client has ids for, newest
// first, other processes' too. It reads the disk.
func (h *hub) clientSessions() ([]clientSession, error) {
	<-h.marked // else a session of a process that just died may look busy
	recs, err := h.book.records(0)
	var out []clientSession
	for i := range recs {
		if rec := h.book.newest(&recs[i]); rec.ClientSession != "" {
			h.clients.put(rec.ClientSession, rec.AgentID)
			out = append(out, h.clientView(rec))
		}
	}
	slices.SortStableFunc(out, func(a, b clientSession) int { return b.Updated.Compare(a.Updated) })
	if err != nil {
		return out, fmt.Errorf("listing sessions: %w", err)
	}
	return out, nil
}

// clientSession finds one by the client's id. It may read the disk.
func (h *hub) clientSession(session string) (clientSession, *rpcError) {
	for range 2 {
		if id := h.clients.get(session); id != "" {
			if rec := h.book.record(id); rec != nil && rec.ClientSession == session {
				return h.clientView(h.book.newest(rec)), nil
			}
		}
		if _, err := h.clientSessions(); err != nil { // another process may have made it
			h.log.Warn("records could not be listed", "err", err)
		}
	}
	return clientSession{}, proxyError(codeSessionNotFound, fmt.Sprintf("there is no session %q", clip(session, 200)), "session_id", clip(session, 200))
}

func (h *hub) clientView(rec *record) clientSession {
	v := clientSession{Session: rec.ClientSession, AgentID: rec.AgentID, Cwd: rec.CWD, Roots: rec.Roots, Title: rec.Title,
		Updated: rec.LastActive, Turns: rec.Turns}
	if v.Updated.IsZero() {
		v.Updated = rec.StartedAt
	}
	if s := h.open(rec.AgentID); s != nil {
		v.Status = s.shown.Load().Status
	} else {
		v.Status, _, _ = h.reg.told(rec)
	}
	return v
}

// open is the session of an agent_id that is open here, nil if none is.
func (h *hub) open(agentID string) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[agentID]
}

// settings is what the next turn of an open session runs with; nil: it isn't
// open here, or not yet.
func (h *hub) settings(agentID string) *sessionSettings {
	s := h.open(agentID)
	if s == nil {
		return nil
	}
	v := s.client.settings.Load()
	if v == nil {
		return nil
	}
	out := *v
	out.Notes = slices.Clone(v.Notes)
	return &out
}

// order hands f the open session of an agent_id, or nil, behind the calls for it
// that came before: at once where it is open, else in a goroutine of the hub's.
func (h *hub) order(agentID string, f func(*session)) {
	h.mu.Lock()
	s := h.live[agentID]
	if s == nil || h.lookingLocked(agentID) {
		h.lookUpLocked(agentID, lookup{order: f})
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	f(s)
}

// retune changes what the turns after the running one run with, and keeps it:
// also those that are submitted while it is being decided. done is called once,
// from another goroutine.
func (h *hub) retune(agentID string, change settingsChange, done func(sessionSettings, *rpcError)) {
	if err := change.check(); err != nil {
		h.goWork(func() { done(sessionSettings{}, err) })
		return
	}
	t := tune{change, done}
	h.order(agentID, func(s *session) {
		switch {
		case s == nil:
			h.retuneRecord(agentID, t)
		case !s.retune(t):
			h.retuneLater(agentID, t)
		}
	})
}

// check finds a word that no turn could carry.
func (c settingsChange) check() *rpcError {
	for _, f := range []struct {
		word  *string
		check func(string) (string, error)
	}{{c.Model, checkLine}, {c.Effort, checkEffort}, {c.Sandbox, normalizeSandbox}, {c.Approval, normalizePolicy}} {
		if f.word == nil || *f.word == "" {
			continue
		}
		if word, err := f.check(*f.word); err != nil {
			return proxyError(codeInvalidSession, errorText(err))
		} else if word != *f.word {
			return proxyError(codeInvalidSession, fmt.Sprintf("%q is written %q", *f.word, word))
		}
	}
	return nil
}

// retuneLater does it by the record, or by the session that has come back.
func (h *hub) retuneLater(agentID string, t tune) {
	h.goWork(func() {
		if s := h.open(agentID); s == nil || !s.retune(t) {
			h.retuneRecord(agentID, t)
		}
	})
}

// retuneRecord does it for a session that isn't open here. It waits.
func (h *hub) retuneRecord(agentID string, t tune) {
	rec := h.book.record(agentID)
	if rec == nil {
		t.done(sessionSettings{}, h.unknown(agentID))
		return
	}
	be, err := h.child.ready(h.life)
	if err != nil {
		t.done(sessionSettings{}, err)
		return
	}
	next := (&opening{rec: *rec, be: be, revived: true, client: true}).retuned(t.change)
	if err := h.opener.retune(next); err != nil {
		t.done(sessionSettings{}, err)
		return
	}
	switch err := h.changeRecord(agentID, func(r *record) { t.change.into(&r.Settings) }); {
	case err == nil:
		h.book.auditChoice(&next.rec, next.settings())
		t.done(next.settings(), nil)
	case h.open(agentID) != nil: // revived meanwhile
		h.retuneLater(agentID, t)
	default:
		t.done(sessionSettings{}, err)
	}
}

// setTitle keeps what a session is called.
func (h *hub) setTitle(agentID, title string) {
	title = clipUTF8(strings.TrimSpace(title), maxTitle)
	h.order(agentID, func(s *session) {
		if s == nil || !s.setTitle(title) {
			h.goWork(func() { h.titleRecord(agentID, title) })
		}
	})
}

func (h *hub) titleRecord(agentID, title string) {
	if err := h.changeRecord(agentID, func(r *record) { r.Title = title }); err != nil {
		h.log.Warn("a session's title is not kept", "agent", agentID, "err", err.Message)
	}
}

// changeRecord changes the record of a session that nobody has open, while it
// holds what a session would. It waits for whoever only looks.
func (h *hub) changeRecord(agentID string, change func(*record)) *rpcError {
	for until := time.Now().Add(25 * lockPause); ; time.Sleep(lockPause) {
		rec := h.book.record(agentID)
		if rec == nil {
			return h.unknown(agentID)
		}
		release, gone := h.reg.holdIfGone(agentID, rec.Identity, rec.BackendID)
		if !gone && time.Now().Before(until) {
			continue
		}
		if gone {
			defer release()
		} else if !h.reg.holds(rec.Identity, agentID) || h.open(agentID) != nil {
			_, pid, _ := h.reg.holder(rec.Identity)
			return heldError(&leaseHeld{identity: rec.Identity, agentID: agentID, pid: pid, ours: pid == os.Getpid()}, agentID, rec.Identity, "")
		} // else the opening of a session that was just ended holds it, and writes nothing
		now := h.book.record(agentID) // nobody else writes it any more
		if now == nil {
			return h.unknown(agentID)
		}
		change(now)
		if h.book.remembered(agentID) != nil {
			h.book.save(now)
		} else if err := h.reg.save(*now); err != nil {
			return proxyError(codeInvalidSession, "the session's record can't be written: "+errorText(err), "agent_id", agentID)
		}
		return nil
	}
}

// leave closes a session without a summary: it may be opened again by
// modeRevive. done is called once, from another goroutine.
func (h *hub) leave(agentID string, done func(closeResult, *rpcError)) {
	h.closeAs(agentID, "", true, done)
}

// serversRefused is why a client's MCP servers are left out, "" where they aren't.
func (h *hub) serversRefused() string {
	top := h.cfg.top
	if top.word != sandboxRead {
		return ""
	}
	return top.name + " allows " + top.word
}

// history tells the past turns of a session's thread: none where it was never
// prompted. It waits for the child, and for each.
func (h *hub) history(ctx context.Context, agentID string, each func(*event) error) *rpcError {
	thread, turns := "", 0
	if s := h.open(agentID); s != nil {
		v := s.shown.Load()
		thread, turns = v.BackendID, v.Turns
	} else {
		rec := h.book.record(agentID)
		if rec == nil {
			return h.unknown(agentID)
		}
		thread, turns = rec.BackendID, rec.Turns
	}
	if thread == "" || turns == 0 {
		return nil
	}
	be, err := h.backend(ctx)
	if err != nil {
		return err
	}
	return refusal("read the history of thread "+thread, be.history(ctx, thread, each))
}

// catalog reads a fact of the child's, starting it if need be: see backend. It waits.
func (h *hub) catalog(ctx context.Context, what, dir string) (json.RawMessage, *rpcError) {
	be, err := h.backend(ctx)
	if err != nil {
		return nil, err
	}
	got, cerr := be.catalog(ctx, what, dir)
	return got, refusal("tell its "+what, cerr)
}

// account changes who is logged in: see backend. It waits.
func (h *hub) account(ctx context.Context, action string, params any) (json.RawMessage, *rpcError) {
	be, err := h.backend(ctx)
	if err != nil {
		return nil, err
	}
	got, aerr := be.account(ctx, action, params)
	return got, refusal("do "+action, aerr)
}

// backend is the child, started if need be. Whoever gives up waiting leaves the
// start to those that come after.
func (h *hub) backend(ctx context.Context) (backend, *rpcError) {
	type started struct {
		be  backend
		err *rpcError
	}
	got := make(chan started, 1)
	h.goWork(func() {
		be, err := h.child.ready(h.life)
		got <- started{be, err}
	})
	select {
	case r := <-got:
		return r.be, r.err
	case <-ctx.Done():
		return nil, refusal("start", ctx.Err())
	}
}

// refusal makes the error of a call of what the child answered, nil for none.
func refusal(what string, err error) *rpcError {
	var child *backendError
	var ours *rpcError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &child):
		return childError(what, child)
	case errors.As(err, &ours):
		return ours
	}
	return proxyError(codeInvalidSession, fmt.Sprintf("Codex could not %s: %v", what, err))
}
