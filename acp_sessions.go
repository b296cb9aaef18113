package main

// acp_sessions.go owns the table of an ACP client's sessions and the requests that
// open, list and close them: session/new, load, resume, list, close. acp.go calls
// it on the reading goroutine; what waits for Codex or the disk is done in
// goroutines of their own. A session that its client was told of must be on disk
// before.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// sessionsPage is how many sessions session/list tells at once.
	sessionsPage = 50
	// acpCloseLimit is how long session/close waits for what it has cancelled.
	acpCloseLimit = 5 * time.Second
)

// acpSessions are the sessions of this connection that are open or being opened.
type acpSessions struct {
	f *acpFront

	mu      sync.Mutex             // guards the fields below
	byID    map[string]*acpSession // by the client's sessionId
	byAgent map[string]*acpSession // by agent_id, whose events go to the session
}

// of finds the session that params name by sessionId.
func (t *acpSessions) of(params json.RawMessage) (*acpSession, *rpcError) {
	id, e := paramSession(params)
	if e != nil {
		return nil, e
	}
	if s := t.named(id); s != nil {
		return s, nil
	}
	return nil, noSession(id)
}

// named finds the session of a sessionId, nil for none.
func (t *acpSessions) named(id string) *acpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// ofAgent finds the session of an agent, nil for none.
func (t *acpSessions) ofAgent(agentID string) *acpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byAgent[agentID]
}

// each calls do with every session that its client can name.
func (t *acpSessions) each(do func(*acpSession)) {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	for _, s := range all {
		do(s)
	}
}

// put has a session found by its sessionId, and returns the one that was before.
func (t *acpSessions) put(s *acpSession) (before *acpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.byID[s.id]
	t.byID[s.id] = s
	return before
}

// bind has the events of a session's agent go to that session.
func (t *acpSessions) bind(s *acpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byAgent[s.agentID] = s
}

// drop takes a session out of the table, for the one that was there before it.
func (t *acpSessions) drop(s, before *acpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.id] == s {
		delete(t.byID, s.id)
		if before != nil {
			t.byID[s.id] = before
		}
	}
	if s.agentID != "" && t.byAgent[s.agentID] == s {
		delete(t.byAgent, s.agentID)
		if before != nil {
			t.byAgent[s.agentID] = before
		}
	}
}

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

// readOpening reads what session/new, load and resume have in common: the working
// directory, absolute and clean, further directories, and the MCP servers as the
// client wrote them, an array or nothing.
func readOpening(params json.RawMessage) (cwd string, roots []string, servers json.RawMessage, e *rpcError) {
	if cwd, e = paramDir(params); e != nil {
		return "", nil, nil, e
	}
	if list := rawField(params, "additionalDirectories"); !isNull(list) && rawKind(list) != '[' {
		e = badParams("additionalDirectories must be an array of absolute paths, not %s", kindWord(list))
	} else {
		eachElement(list, func(el json.RawMessage) {
			dir, ok := rawString(el)
			switch {
			case e != nil:
			case !ok:
				e = badParams("additionalDirectories[%d] must be a string, not %s", len(roots), kindWord(el))
			case !filepath.IsAbs(dir):
				e = badParams("additionalDirectories[%d] %q is not an absolute path", len(roots), shortName(dir))
			}
			roots = append(roots, filepath.Clean(dir))
		})
	}
	servers = rawField(params, "mcpServers")
	if e == nil && !isNull(servers) && rawKind(servers) != '[' {
		e = badParams("mcpServers must be an array of MCP servers, not %s", kindWord(servers))
	}
	return cwd, roots, servers, e
}

// makeNew answers session/new.
func (t *acpSessions) makeNew(c *acpCall, params json.RawMessage) *rpcError {
	cwd, roots, servers, e := readOpening(params)
	if e != nil {
		return e
	}
	f := t.f
	s := newACPSession(f, newSessionName(time.Now()), cwd, roots)
	f.work(c, func(ctx context.Context) (any, *rpcError) {
		if e := f.logins.check(ctx); e != nil {
			return nil, e
		}
		s.agentID = f.newAgentID()
		r, e := s.open(ctx, turnRequest{mode: modeNew, agentID: s.agentID}, servers, nil)
		if e != nil {
			t.drop(s, nil)
			if ctx.Err() != nil && f.life.Err() == nil { // cancelled: the hub may have opened it in that very moment
				f.leave(s.agentID, func(closeResult, *rpcError) {})
			}
			return nil, e
		}
		t.put(s)
		if !f.answer(c, s.state(true), nil) { // cancelled: nobody knows of the session
			t.drop(s, nil)
			f.leave(s.agentID, func(closeResult, *rpcError) {})
			return nil, nil
		}
		s.finishOpening(r.Notes)
		return nil, nil
	})
	return nil
}

// reopen answers session/load and session/resume. From here on prompts for the
// session wait until that is answered; what runs of the session on this
// connection ends first.
func (t *acpSessions) reopen(c *acpCall, params json.RawMessage) *rpcError {
	id, e := paramSession(params)
	if e != nil {
		return e
	}
	cwd, roots, servers, e := readOpening(params)
	if e != nil {
		return e
	}
	s := newACPSession(t.f, id, cwd, roots)
	before := t.put(s)
	s.waitBehind(before)
	t.f.work(c, func(ctx context.Context) (any, *rpcError) {
		load := c.method == "session/load"
		r, e := s.reopen(ctx, servers, before)
		if e == nil && load {
			e = s.replay(ctx)
		}
		if e != nil {
			t.drop(s, before)
			s.refuse(noSession(s.id))
			return nil, e
		}
		t.f.answer(c, s.state(load), nil)
		s.finishOpening(r.Notes)
		return nil, nil
	})
	return nil
}

// cancelPrompts is the notification session/cancel.
func (t *acpSessions) cancelPrompts(params json.RawMessage) {
	if s := t.named(stringField(params, "sessionId")); s != nil {
		s.queue.cancel(nil)
		return
	}
	t.f.Log.Debug("session/cancel of no open session")
}

// close answers session/close: what runs is cancelled first.
func (t *acpSessions) close(c *acpCall, params json.RawMessage) *rpcError {
	id, e := paramSession(params)
	if e != nil {
		return e
	}
	s := t.named(id)
	if s != nil {
		s.setClosing(true)
		s.queue.cancel(nil)
	}
	t.f.work(c, func(ctx context.Context) (any, *rpcError) {
		agentID := ""
		if s == nil {
			known, e := t.f.clientSession(id)
			if e != nil {
				return nil, noSession(id)
			}
			agentID = known.AgentID
		} else {
			late := time.NewTimer(acpCloseLimit)
			defer late.Stop()
			select {
			case <-s.whenIdle():
			case <-late.C: // the hub ends what runs
			case <-ctx.Done():
			}
			if ctx.Err() != nil { // cancelled: the session stays open, so it takes prompts again
				s.setClosing(false)
				return nil, errACPClosing()
			}
			agentID = s.agentID
			t.drop(s, nil)
		}
		left := make(chan *rpcError, 1)
		t.f.leave(agentID, func(_ closeResult, e *rpcError) { left <- e })
		select {
		case e := <-left:
			return nil, t.f.acpError(e)
		case <-ctx.Done():
			return nil, errACPClosing()
		}
	})
	return nil
}

// list answers session/list from our own records, newest first. A cursor names
// the last session that was told, so that new ones don't shift the pages.
func (t *acpSessions) list(c *acpCall, params json.RawMessage) *rpcError {
	dir, from := "", acpCursor{}
	if raw := rawField(params, "cwd"); !isNull(raw) {
		var e *rpcError
		if dir, e = paramDir(params); e != nil {
			return e
		}
	}
	if raw := rawField(params, "cursor"); !isNull(raw) {
		word, _ := rawString(raw)
		var ok bool
		if from, ok = readCursor(word); !ok {
			return badParams("cursor %s is none that session/list gave: leave it out to begin at the newest session",
				shortName(string(raw)))
		}
	}
	t.f.work(c, func(context.Context) (any, *rpcError) {
		all, err := t.f.clientSessions()
		if err != nil && len(all) == 0 {
			return nil, &rpcError{Code: codeInternal, Message: errorText(err)}
		}
		return listPage(all, dir, from), nil
	})
	return nil
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
