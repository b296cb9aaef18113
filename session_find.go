package main

// session_find.go owns how an agent is found: by its agent_id, its threadId, or the
// name that it has while it is open; here, or in what is kept. Every tool's
// reference comes this way, and the error that tells what there is instead. It
// must never take a name for an agent that isn't open: names go from one to the
// next.

import (
	"cmp"
	"fmt"
	"strings"
)

// findLocked is the open session that a reference of any tool means: an agent_id,
// a threadId or a name, which may be one that is just being taken.
func (h *hub) findLocked(ref string) *session {
	if s := cmp.Or(h.live[ref], h.threads[ref], h.names[strings.ToLower(ref)]); s != nil || ref == "" {
		return s
	}
	for _, s := range h.live {
		if strings.EqualFold(s.wanted, ref) && s.shown.Load().Identity == "" {
			return s
		}
	}
	return nil
}

// find is the session that a reference means, where it is open here, and its
// agent_id; else that of one which is kept. A name is only an open agent's, or of
// one that another instance has open. It may read the disk.
func (h *hub) find(ref string) (*session, string, *rpcError) {
	h.mu.Lock()
	s := h.findLocked(ref)
	h.mu.Unlock()
	if s != nil {
		return s, s.agentID, nil
	}
	<-h.marked // else a turn of a process that just died may look as if it ran
	agentID := ref
	if !validAgentID(ref) {
		agentID, _ = h.reg.agentOfThread(ref)
	}
	if h.book.record(agentID) == nil && !h.kept.has(agentID) {
		return nil, "", h.unknown(ref)
	}
	return nil, agentID, nil
}

// lookUp finds the record of an agent_id or threadId. A thread that only
// Codex knows gets a new record. It reads the disk.
func (h *hub) lookUp(ref string) (*record, *rpcError) {
	agentID := ref
	if !validAgentID(ref) {
		agentID, _ = h.reg.agentOfThread(ref)
	}
	if rec := h.book.record(agentID); rec != nil {
		return rec, nil
	}
	if looksLikeThread(ref) { // known to Codex alone, from before or another client
		return &record{AgentID: h.reg.newAgentID(), Backend: "codex", BackendID: ref, Implied: true, Team: h.cfg.team}, nil
	}
	return nil, h.unknown(ref)
}

// isName tells an agent's name from the ids.
func isName(ref string) bool { return validIdentity(ref) == nil && !looksLikeThread(ref) }

// looksLikeThread tells a Codex thread id (a UUID) from a mistyped agent_id.
func looksLikeThread(s string) bool {
	return len(s) == 36 && strings.Count(s, "-") == 4 && validThreadID(s)
}

// named is the newest kept session of that name, one that isn't closed first.
func (h *hub) named(name string) *sessionView {
	var found *sessionView
	for _, v := range h.sessions(0) {
		if strings.EqualFold(v.Identity, name) && (found == nil || found.Status == statusClosed && v.Status != statusClosed) {
			found = &v
		}
	}
	return found
}

// namesTold is how many names an error tells.
const namesTold = 8

// unknown says that a reference means no session, and what there is instead: how
// an agent of that name is resumed, the nearest, or who is open.
func (h *hub) unknown(ref string) *rpcError {
	said := func(format string, args ...any) *rpcError {
		return proxyError(codeSessionNotFound, fmt.Sprintf(format, args...)+". agent_sessions lists them, codex {prompt} starts a new one", "agent_id", ref)
	}
	what := fmt.Sprintf("no session has the id %q", cutName(ref))
	if isName(ref) {
		what = fmt.Sprintf("no agent that is open here has the id or name %q", ref)
		switch v := h.named(ref); {
		case v == nil:
		case elsewhere(v) != nil:
			return said("%s: agent %s has that name in another process (pid %d), which alone can be asked", what, v.AgentID, v.pid)
		default:
			return proxyError(codeSessionNotFound, fmt.Sprintf("%s; %s had that name and is %s: codex {\"agent_id\": %q} reopens it", what, v.AgentID, v.Status, v.AgentID),
				"agent_id", v.AgentID, "identity", v.Identity)
		}
	}
	var known, names []string
	for _, v := range h.sessions(50) {
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
