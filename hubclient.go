package main

// hubclient.go owns what the hub does for a front whose client has sessions of
// its own names (ACP): which agent is behind one, what it would run with, the
// choice of that, its past, its end without a summary. Nothing here is done on
// a session's path; what waits says so.

import (
	"context"
	"encoding/json"
)

// newAgentID is an id for turnRequest.agentID. It may look at the disk.
func (h *hub) newAgentID() string { return h.reg.newAgentID() }

// clientSessions lists the team's sessions that a client has ids for, newest
// first. It reads the disk.
func (h *hub) clientSessions() ([]clientSession, error) { return nil, nil }

// clientSession finds one by the client's id. It may read the disk.
func (h *hub) clientSession(session string) (clientSession, *rpcError) {
	return clientSession{}, proxyError(codeSessionNotFound, "to be written")
}

// settings is what the next turn of an open session runs with; nil: it isn't
// open here, or not yet.
func (h *hub) settings(agentID string) *sessionSettings { return nil }

// retune changes what the turns after the running one run with, and keeps it.
// done is called once, from another goroutine.
func (h *hub) retune(agentID string, change settingsChange, done func(sessionSettings, *rpcError)) {
	done(sessionSettings{}, proxyError(codeInvalidSession, "to be written"))
}

// setTitle keeps what a session is called.
func (h *hub) setTitle(agentID, title string) {}

// leave closes a session without a summary: it may be opened again. done is
// called once, from another goroutine.
func (h *hub) leave(agentID string, done func(closeResult, *rpcError)) {
	h.close(agentID, "", done)
}

// history tells the past turns of a session's thread. It waits for the child,
// and for each.
func (h *hub) history(ctx context.Context, agentID string, each func(*event) error) *rpcError {
	return proxyError(codeInvalidSession, "to be written")
}

// catalog reads a fact of the child's, starting it if need be: see backend. It waits.
func (h *hub) catalog(ctx context.Context, what, dir string) (json.RawMessage, *rpcError) {
	return nil, proxyError(codeInvalidSession, "to be written")
}

// account changes who is logged in: see backend. It waits.
func (h *hub) account(ctx context.Context, action string, params any) (json.RawMessage, *rpcError) {
	return nil, proxyError(codeInvalidSession, "to be written")
}
