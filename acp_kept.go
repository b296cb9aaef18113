package main

// acp_kept.go owns what an ACP client does about sessions whether they are open or not: it lists those that it can
// open, and gives them titles. acp.go calls it on the reading goroutine; what waits for Codex or the disk is done in
// goroutines of their own. Nothing of a session changes by being listed.

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sessionsPage is how many sessions session/list tells at once.
const sessionsPage = 50

// acpKept are the sessions that a client can name, open or not.
type acpKept struct{ f *acpFront }

// list answers session/list, newest first. A cursor names the last session that was told, so that new ones don't shift
// the pages.
func (k *acpKept) list(c *acpCall, params json.RawMessage) *rpcError {
	dir, from, ok := "", acpCursor{}, true
	var e *rpcError
	if !isNull(rawField(params, "cwd")) {
		dir, e = paramDir(params)
	}
	if raw := rawField(params, "cursor"); e == nil && !isNull(raw) {
		if from, ok = readCursor(stringField(params, "cursor")); !ok {
			e = badParams("cursor %s is none that session/list gave: leave it out to begin at the newest session",
				shortName(string(raw)))
		}
	}
	if e != nil {
		return e
	}
	return k.f.work(c, func(ctx context.Context) (any, *rpcError) {
		all, err := k.f.clientSessions(ctx, dir)
		if err != nil && len(all) == 0 {
			return nil, &rpcError{Code: codeInternal, Message: errorText(err)}
		}
		return listPage(all, dir, from), nil
	})
}

// setTitle answers session/set_title, for a session that is open or not.
func (k *acpKept) setTitle(c *acpCall, params json.RawMessage) *rpcError {
	id, e := paramSession(params)
	title := ""
	if e == nil {
		title, e = paramText(params, "title")
	}
	if e != nil {
		return e
	}
	return k.f.work(c, func(ctx context.Context) (any, *rpcError) {
		title, e := k.rename(ctx, id, title)
		return map[string]any{"title": title}, e
	})
}

// rename gives a session the title that its user chose, and returns the title as it is kept.
func (k *acpKept) rename(ctx context.Context, id, title string) (string, *rpcError) {
	title, e := k.f.rename(ctx, id, title)
	if e != nil {
		return "", k.f.unknownSession(id, e)
	}
	if s := k.f.sessions.named(id); s != nil {
		s.setTitle(title, false)
	}
	return title, nil
}

// forkText answers /fork: a new session begins with what this one holds, and stands in the list of sessions.
func (k *acpKept) forkText(ctx context.Context, s *acpSession) string {
	if !k.f.Kept {
		return "Sessions end with this process (persist_threads = false), so a fork could not be opened."
	}
	n := newACPSession(k.f, newSessionName(time.Now()), s.cwd, s.roots)
	_, e := n.begin(ctx, s.id, nil)
	k.f.sessions.drop(n, nil)
	// Its client opens it where it wants it; and if this was cancelled, the hub may have opened it in that very moment.
	if left := k.f.closeAgent(ctx, n.agentID); e == nil {
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
func (k *acpKept) renameText(ctx context.Context, s *acpSession, title string) string {
	if title == "" {
		return "Say what the session is to be called: `/rename` and the title."
	}
	title, e := k.rename(ctx, s.id, title)
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
