package main

// acp_lifecycle.go owns the opening, listing and closing of an ACP client's
// sessions: session/new, load with its replay, resume, list, close. acp.go
// calls it on the reading goroutine; what waits for Codex or the disk is done in
// goroutines of their own. A session that its client was told of must be on disk
// before, and a replay must never hold more than a little in memory.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sessionsPage is how many session/list tells at once.
const sessionsPage = 50

// acpCloseLimit is how long session/close waits for what it has cancelled.
const acpCloseLimit = 5 * time.Second

// replayRoom is how many bytes of a replay may wait for the client.
const replayRoom = 1 << 20

// newSessionName is "sess_" and a UUID of version 7, whose beginning is the time.
func newSessionName(now time.Time) string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	ms := now.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("sess_%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// acpOpening is what session/new, load and resume have in common.
type acpOpening struct {
	cwd     string
	roots   []string
	servers json.RawMessage
}

func readOpening(params json.RawMessage) (o acpOpening, e *rpcError) {
	if o.cwd, e = paramDir(params); e != nil {
		return o, e
	}
	if o.roots, e = paramRoots(params); e != nil {
		return o, e
	}
	o.servers, e = paramServers(params)
	return o, e
}

// newSession answers session/new.
func (f *acpFront) newSession(c *acpCall, params json.RawMessage) {
	o, e := readOpening(params)
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	s := f.newState(newSessionName(time.Now()), "", o.cwd, o.roots)
	f.work(c, func(ctx context.Context) (any, *rpcError) {
		if e := f.checkLogin(ctx); e != nil {
			return nil, e
		}
		s.agentID = f.newAgentID()
		r, e := s.open(ctx, turnRequest{mode: modeNew, agentID: s.agentID}, o.servers, nil)
		if e != nil {
			f.drop(s, nil)
			if ctx.Err() != nil && f.life.Err() == nil { // cancelled: the hub may have opened it in that very moment
				f.leave(s.agentID, func(closeResult, *rpcError) {})
			}
			return nil, e
		}
		f.mu.Lock()
		f.sessions[s.id] = s
		f.mu.Unlock()
		if !f.answer(c, s.state(true), nil) { // cancelled: nobody knows of it
			f.drop(s, nil)
			f.leave(s.agentID, func(closeResult, *rpcError) {})
			return nil, nil
		}
		s.opened(r.Notes)
		return nil, nil
	})
}

// state is what a client is told of a session that was opened. Its name is in the
// answer to session/load too, where some clients look for it, but the schema has
// none in that to session/resume.
func (s *acpSession) state(named bool) any {
	s.f.modelList(modelsWait)
	out := map[string]any{}
	if named {
		out["sessionId"] = s.id
	}
	if options := s.tellOptions(); options != nil {
		out["configOptions"], out["modes"] = options, modesOf(options)
	}
	return out
}

// open has the hub open the session, without a turn. before is the same session
// as it was open until now, nil if it wasn't.
func (s *acpSession) open(ctx context.Context, req turnRequest, servers json.RawMessage, before *acpSession) (turnResult, *rpcError) {
	f := s.f
	mcp, e := s.readServers(ctx, servers)
	if e != nil {
		return turnResult{}, e
	}
	s.mcp = mcp
	if before != nil && f.settings(s.agentID) != nil && sameOpening(s, before) {
		s.servers.gone() // the thread stays as it is, and so do they
	} else if len(s.mcp) > 0 {
		time.AfterFunc(serversWait, s.pump) // prompts wait no longer
	}
	f.mu.Lock()
	f.agents[s.agentID] = s
	f.mu.Unlock()
	s.fill(&req)
	got := make(chan turnResult, 1)
	w := f.waiter(func(r turnResult) { got <- r })
	f.submit(req, w)
	select {
	case r := <-got:
		return r, f.acpError(r.err)
	case <-ctx.Done():
		f.forget(w)
		f.cancel(w, false)
		return turnResult{}, errACPClosing() // or cancelled, and answered so before
	}
}

// fill says all that the client knows of a session with a request: the hub opens
// one anew with it that was parked meanwhile.
func (s *acpSession) fill(req *turnRequest) {
	req.source, req.approvals = sourceClient, "client"
	req.cwd, req.servers = s.cwd, s.mcp
	req.client = &clientBirth{session: s.id, roots: s.roots}
}

// sameOpening reports that two sessions were opened with the same.
func sameOpening(a, b *acpSession) bool {
	return a.cwd == b.cwd && string(toJSON(a.roots)) == string(toJSON(b.roots)) && string(a.mcp) == string(b.mcp)
}

// reopenSession answers session/load and session/resume. From here on prompts
// for it wait until it is answered; what runs of it on this connection ends
// first.
func (f *acpFront) reopenSession(c *acpCall, params json.RawMessage) {
	id, e := paramSession(params)
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	o, e := readOpening(params)
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	s := f.newState(id, "", o.cwd, o.roots)
	f.mu.Lock()
	before := f.sessions[id]
	s.before = before
	f.sessions[id] = s
	f.mu.Unlock()
	f.work(c, func(ctx context.Context) (any, *rpcError) {
		r, e := s.reopen(ctx, o.servers, before)
		if e == nil && c.method == "session/load" {
			e = s.replay(ctx)
		}
		if e != nil {
			f.drop(s, before)
			s.refuse(noSession(s.id))
			return nil, e
		}
		f.answer(c, s.state(c.method == "session/load"), nil)
		s.opened(r.Notes)
		return nil, nil
	})
}

func (s *acpSession) reopen(ctx context.Context, servers json.RawMessage, before *acpSession) (turnResult, *rpcError) {
	f := s.f
	if before != nil {
		select {
		case <-before.whenIdle():
		case <-ctx.Done():
			return turnResult{}, errACPClosing()
		}
		s.mu.Lock()
		s.before = nil
		s.mu.Unlock()
	}
	known, e := f.clientSession(s.id)
	if e != nil {
		if e.Code == codeSessionNotFound {
			e = noSession(s.id)
			e.Message = fmt.Sprintf("there is no session %q: session/list tells which there are", shortName(s.id))
		}
		return turnResult{}, f.acpError(e)
	}
	s.agentID = known.AgentID
	s.mu.Lock()
	s.title = known.Title
	s.mu.Unlock()
	_, e = f.catalog(ctx, "account", "") // Codex is up
	if f.status().Backend == "mcp-server" {
		return turnResult{}, errOnlyAppServer()
	}
	if e != nil {
		return turnResult{}, f.acpError(e)
	}
	return s.open(ctx, turnRequest{mode: modeRevive, ref: s.agentID}, servers, before)
}

// replay tells the session's past, as fast as the client reads.
func (s *acpSession) replay(ctx context.Context) *rpcError {
	p := s.f.p
	enc := newACPEncoder(acpEncoding{Cwd: s.cwd, Notices: s.f.client().notices, Replay: true, Crowded: func() bool { return false },
		Send: func(update []byte) bool {
			for p.queued() > replayRoom && ctx.Err() == nil {
				p.flush(time.Second)
			}
			if ctx.Err() == nil {
				s.put(update)
			}
			return ctx.Err() == nil
		}})
	e := s.f.history(ctx, s.agentID, func(e *event) error {
		s.mu.Lock()
		runs := s.live[e.turn]
		s.mu.Unlock()
		if runs { // mail woke it just now (acp_mail = "turn"): else it would be told twice
			return ctx.Err()
		}
		enc.event(agentRef{AgentID: s.agentID, Thread: e.thread}, e)
		if e.kind == evEnded {
			enc.endTurn("")
		}
		return ctx.Err()
	})
	enc.endTurn("")
	if e == nil && ctx.Err() != nil {
		return errACPClosing()
	}
	return s.f.acpError(e)
}

// drop takes a session out of the tables, for the one that was there before it.
func (f *acpFront) drop(s, before *acpSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions[s.id] == s {
		delete(f.sessions, s.id)
		if before != nil {
			f.sessions[s.id] = before
		}
	}
	if s.agentID != "" && f.agents[s.agentID] == s {
		delete(f.agents, s.agentID)
		if before != nil {
			f.agents[s.agentID] = before
		}
	}
}

// refuse answers the prompts of a session that could not be opened.
func (s *acpSession) refuse(e *rpcError) {
	s.mu.Lock()
	s.closing, s.opening, s.early = true, false, nil
	left := s.prompts
	s.prompts = nil
	s.tellIdleLocked()
	s.mu.Unlock()
	for _, p := range left {
		s.f.answer(p.c, nil, e)
	}
}

// closeSession answers session/close: what runs is cancelled first.
func (f *acpFront) closeSession(c *acpCall, params json.RawMessage) {
	id, e := paramSession(params)
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	f.mu.Lock()
	s := f.sessions[id]
	f.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		s.cancelPrompts(nil)
	}
	f.work(c, func(ctx context.Context) (any, *rpcError) {
		agentID := ""
		if s != nil {
			late := time.NewTimer(acpCloseLimit)
			defer late.Stop()
			select {
			case <-s.whenIdle():
			case <-late.C: // the hub ends what runs
			case <-ctx.Done():
			}
			if ctx.Err() != nil { // cancelled: it stays open, so it takes prompts again
				s.mu.Lock()
				s.closing = false
				s.mu.Unlock()
				return nil, errACPClosing()
			}
			agentID = s.agentID
			f.drop(s, nil)
		} else if known, e := f.clientSession(id); e != nil {
			return nil, noSession(id)
		} else {
			agentID = known.AgentID
		}
		left := make(chan *rpcError, 1)
		f.leave(agentID, func(_ closeResult, e *rpcError) { left <- e })
		select {
		case e := <-left:
			return nil, f.acpError(e)
		case <-ctx.Done():
			return nil, errACPClosing()
		}
	})
}

// listSessions answers session/list from our own records, newest first. A cursor
// names the last one that was told, so that new ones don't shift the pages.
func (f *acpFront) listSessions(c *acpCall, params json.RawMessage) {
	dir, from := "", acpCursor{}
	if raw := rawField(params, "cwd"); !isNull(raw) {
		var e *rpcError
		if dir, e = paramDir(params); e != nil {
			f.answer(c, nil, e)
			return
		}
	}
	if raw := rawField(params, "cursor"); !isNull(raw) {
		word, _ := rawString(raw)
		var ok bool
		if from, ok = readCursor(word); !ok {
			f.answer(c, nil, badParams("cursor %s is none that session/list gave: leave it out to begin at the newest session", shortName(string(raw))))
			return
		}
	}
	f.work(c, func(context.Context) (any, *rpcError) {
		all, err := f.clientSessions()
		if err != nil && len(all) == 0 {
			return nil, &rpcError{Code: codeInternal, Message: errorText(err)}
		}
		return listPage(all, dir, from), nil
	})
}

// acpListed is a session as session/list tells it.
type acpListed struct {
	ID      string   `json:"sessionId"`
	Cwd     string   `json:"cwd"`
	Roots   []string `json:"additionalDirectories,omitempty"`
	Title   string   `json:"title,omitempty"`
	Updated string   `json:"updatedAt,omitempty"`
}

type acpList struct {
	Sessions []acpListed `json:"sessions"`
	Next     string      `json:"nextCursor,omitempty"`
}

// listPage is the page behind a cursor.
func listPage(all []clientSession, dir string, from acpCursor) acpList {
	page := acpList{Sessions: []acpListed{}}
	slices.SortFunc(all, func(a, b clientSession) int {
		return cmp.Or(b.Updated.Compare(a.Updated), strings.Compare(a.Session, b.Session))
	})
	var last *clientSession
	for i := range all {
		s := &all[i]
		if dir != "" && filepath.Clean(s.Cwd) != dir || from.id != "" && !from.before(s) {
			continue
		}
		if len(page.Sessions) == sessionsPage {
			page.Next = acpCursor{last.Updated.UnixNano(), last.Session}.String()
			break
		}
		l := acpListed{ID: s.Session, Cwd: s.Cwd, Roots: s.Roots, Title: s.Title}
		if !s.Updated.IsZero() {
			l.Updated = s.Updated.UTC().Format(time.RFC3339)
		}
		page.Sessions = append(page.Sessions, l)
		last = s
	}
	return page
}

// acpCursor is where a page ended.
type acpCursor struct {
	at int64
	id string
}

func (c acpCursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.at, 36) + " " + c.id))
}

func readCursor(word string) (acpCursor, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(word)
	at, id, ok := strings.Cut(string(raw), " ")
	n, err2 := strconv.ParseInt(at, 36, 64)
	return acpCursor{n, id}, ok && err == nil && err2 == nil && id != ""
}

// before reports whether a session stands behind the cursor: it is older, or of
// the same moment and a later name.
func (c acpCursor) before(s *clientSession) bool {
	at := s.Updated.UnixNano()
	return at < c.at || at == c.at && s.Session > c.id
}

// readServers reads the client's MCP servers into what Codex takes, and has their
// start watched.
func (s *acpSession) readServers(ctx context.Context, raw json.RawMessage) (json.RawMessage, *rpcError) {
	var taken []string
	if rawKind(raw) == '[' && string(raw) != "[]" {
		taken = s.f.userServers(ctx, s.cwd)
	}
	servers, names, renamed, e := readServers(raw, taken)
	if e == nil {
		s.servers.set(names, renamed)
	}
	return servers, e
}
