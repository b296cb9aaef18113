package main

// acp_sessions.go owns the sessions that an ACP client can name: the table of those that are open on this connection,
// the requests that open and close them, the list of all that can be opened, and their titles. acp.go calls it on the
// reading goroutine; what waits for Codex or the disk is done in goroutines of their own. A session that its client was
// told of must be on disk before. Nothing of a session changes by being listed.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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
	in := acpParams{raw: params}
	id := in.session()
	if in.e != nil {
		return nil, in.e
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

// put has a session found by its sessionId, and returns the one that was before, for whose end the opening waits.
func (t *acpSessions) put(s *acpSession) (before *acpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.byID[s.id]
	s.before, t.byID[s.id] = before, s
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

// makeNew answers session/new, and session/fork, whose session begins with what another one holds.
func (t *acpSessions) makeNew(c *acpCall, params json.RawMessage) *rpcError {
	in, source := acpParams{raw: params}, ""
	cwd, roots, servers := in.opening()
	if c.method == "session/fork" {
		source = in.session()
	}
	if in.e != nil {
		return in.e
	}
	f := t.f
	s := newACPSession(f, newSessionName(time.Now()), cwd, roots)
	s.counted = c.method == "session/new" // a fork goes on from what the other one has used
	return f.work(c, func(ctx context.Context) (any, *rpcError) {
		if e := f.logins.check(ctx); e != nil {
			return nil, e
		}
		r, e := s.begin(ctx, source, servers)
		if e == nil {
			t.put(s)
			if f.answer(c, s.state(true), nil) {
				s.finishOpening(r.Notes)
				return nil, nil
			}
		}
		t.drop(s, nil)
		// Cancelled, so nobody knows of the session; the hub may have opened it in that very moment.
		if (e == nil || ctx.Err() != nil && f.life.Err() == nil) && f.closeAgent(f.life, s.agentID) == nil && f.Kept {
			if e := f.remove(f.life, s.id); e != nil {
				f.Log.Warn("the session of a cancelled request could not be removed", "sessionId", s.id, "err", e)
			}
		}
		return nil, e
	})
}

// reopen answers session/load and session/resume. From here on prompts for the session wait until that is answered;
// what runs of the session on this connection ends first.
func (t *acpSessions) reopen(c *acpCall, params json.RawMessage) *rpcError {
	in := acpParams{raw: params}
	id := in.session()
	cwd, roots, servers := in.opening()
	if in.e != nil {
		return in.e
	}
	s := newACPSession(t.f, id, cwd, roots)
	before := t.put(s)
	return t.f.work(c, func(ctx context.Context) (any, *rpcError) {
		load := c.method == "session/load"
		r, e := s.reopen(ctx, servers, before)
		if e == nil && load {
			e = s.replay(ctx)
		}
		if e != nil {
			t.drop(s, before.restored())
			s.refuse(noSession(s.id))
			return nil, e
		}
		t.f.answer(c, s.state(load), nil)
		s.finishOpening(r.Notes)
		return nil, nil
	})
}

// close answers session/close, and session/delete, which needs no session that is open: what runs is cancelled first.
func (t *acpSessions) close(c *acpCall, params json.RawMessage) *rpcError {
	in := acpParams{raw: params}
	id := in.session()
	if in.e != nil {
		return in.e
	}
	deletes := c.method == "session/delete"
	s := t.named(id)
	if s != nil {
		s.setClosing(true)
		s.queue.cancel(nil)
	}
	return t.f.work(c, func(ctx context.Context) (any, *rpcError) {
		agentID := ""
		if s != nil {
			if e := s.awaitIdle(ctx); e != nil {
				return nil, e
			}
			agentID = s.agentID
			t.drop(s, nil)
		} else if !deletes {
			known, e := t.f.clientSession(id)
			if agentID = known.AgentID; e != nil || agentID == "" {
				return nil, noSession(id)
			}
		}
		if agentID != "" {
			if e := t.f.closeAgent(ctx, agentID); e != nil {
				return nil, e
			}
		}
		if deletes {
			return nil, t.f.acpError(t.f.remove(ctx, id))
		}
		return nil, nil
	})
}

// closeAgent closes an agent, and waits until it is closed.
func (f *acpFront) closeAgent(ctx context.Context, agentID string) *rpcError {
	left := make(chan *rpcError, 1)
	f.leave(agentID, func(_ closeResult, e *rpcError) { left <- e })
	select {
	case e := <-left:
		return f.acpError(e)
	case <-ctx.Done():
		return errACPClosing()
	}
}

// sessionsPage is how many sessions session/list tells at once.
const sessionsPage = 50

// list answers session/list, newest first. A cursor names the last session that was told, so that new ones don't shift
// the pages.
func (t *acpSessions) list(c *acpCall, params json.RawMessage) *rpcError {
	in, dir, from := acpParams{raw: params}, "", acpCursor{}
	if !isNull(rawField(params, "cwd")) {
		dir = in.dir()
	}
	if raw := rawField(params, "cursor"); !isNull(raw) {
		var ok bool
		if from, ok = readCursor(stringField(params, "cursor")); !ok {
			in.refuse("cursor %s is none that session/list gave: leave it out to begin at the newest session",
				shortName(string(raw)))
		}
	}
	if in.e != nil {
		return in.e
	}
	return t.f.work(c, func(ctx context.Context) (any, *rpcError) {
		all, err := t.f.clientSessions(ctx, dir)
		if err != nil && len(all) == 0 {
			return nil, &rpcError{Code: codeInternal, Message: errorText(err)}
		}
		return listPage(all, dir, from), nil
	})
}

// setTitle answers session/set_title, for a session that is open or not.
func (t *acpSessions) setTitle(c *acpCall, params json.RawMessage) *rpcError {
	in := acpParams{raw: params}
	id, title := in.session(), in.text("title")
	if in.e != nil {
		return in.e
	}
	return t.f.work(c, func(ctx context.Context) (any, *rpcError) {
		title, e := t.rename(ctx, id, title)
		return map[string]any{"title": title}, e
	})
}

// rename gives a session the title that its user chose, and returns the title as it is kept.
func (t *acpSessions) rename(ctx context.Context, id, title string) (string, *rpcError) {
	title, e := t.f.rename(ctx, id, title)
	if e != nil {
		return "", t.f.unknownSession(id, e)
	}
	if s := t.named(id); s != nil {
		s.setTitle(title, false)
	}
	return title, nil
}

// forkText answers /fork: a new session begins with what this one holds, and stands in the list of sessions.
func forkText(ctx context.Context, s *acpSession, _ string) string {
	f := s.f
	if !f.Kept {
		return "Sessions end with this process (persist_threads = false), so a fork could not be opened."
	}
	n := newACPSession(f, newSessionName(time.Now()), s.cwd, s.roots)
	_, e := n.begin(ctx, s.id, nil)
	f.sessions.drop(n, nil)
	// Its client opens it where it wants it; and if this was cancelled, the hub may have opened it in that very moment.
	if left := f.closeAgent(ctx, n.agentID); e == nil {
		e = left
	}
	if e != nil {
		return "The session could not be forked: " + e.Message
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprintf("A new session begins with what this one holds: **%s** (`%s`). It is in the list of sessions.",
		cmp.Or(visible(n.title), "without a title"), n.id)
}

// renameText answers /rename.
func renameText(ctx context.Context, s *acpSession, title string) string {
	if title == "" {
		return "Say what the session is to be called: `/rename` and the title."
	}
	title, e := s.f.sessions.rename(ctx, s.id, title)
	if e != nil {
		return "The session could not be renamed: " + e.Message
	}
	return fmt.Sprintf("The session is called **%s** now.", visible(title))
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
	page, dirs := acpList{Sessions: []acpListed{}}, []string(nil)
	if dir != "" {
		dirs = spellings(dir)
	}
	slices.SortFunc(all, func(a, b clientSession) int {
		return cmp.Or(b.Updated.Compare(a.Updated), strings.Compare(a.Session, b.Session))
	})
	var last *clientSession
	for i := range all {
		s := &all[i]
		if dir != "" && !isSpelling(dirs, s.Cwd) || from.id != "" && !from.before(s) {
			continue
		}
		if len(page.Sessions) == sessionsPage {
			page.Next = acpCursor{last.Updated.UnixNano(), last.Session}.String()
			break
		}
		l := acpListed{ID: s.Session, Cwd: s.Cwd, Roots: s.Roots,
			Title: visible(cmp.Or(s.Title, promptTitle(s.Preview)))}
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

// before reports whether a session stands behind the cursor: it is older, or of the same moment and a later name.
func (c acpCursor) before(s *clientSession) bool {
	at := s.Updated.UnixNano()
	return at < c.at || at == c.at && s.Session > c.id
}
