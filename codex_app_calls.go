package main

// codex_app_calls.go owns the calls to app-server that somebody waits for: lists and facts that aren't a thread's, who
// is logged in and the change of that, and the past of a thread, told as the events that it was, so that one encoder
// shows past and present. The hub calls it, never from the session loop or the reader. It must never log what it sends,
// since a key may be in it, and must never tell of a turn's end that hasn't been.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	mLoginDone = "account/login/completed"
	mAccount   = "account/updated"
	mSkills    = "skills/changed" // from 0.148 on
)

// appCalls calls a connection, and waits. The driver holds one.
type appCalls struct {
	*childLink
	o       appServerOptions
	threads *threadTable
}

const (
	// maxPages is far above what any list has, but that of threads.
	maxPages = 100
	// maxThreads is how many threads are listed, the newest ones, in pages of threadsPage.
	maxThreads, threadsPage = 500, 100
	// maxPreview is how many bytes are kept of a thread's name, and of its first prompt as what the thread is about.
	maxPreview = 1 << 10
)

func (c *appCalls) change(ctx context.Context, action string, params any) (json.RawMessage, error) {
	how, ok := map[string][2]string{"login": {"account/login/start", "logging in to Codex"},
		"cancelLogin": {"account/login/cancel", "cancelling the login to Codex"},
		"logout":      {"account/logout", "logging out of Codex"},
		"rename":      {"thread/name/set", "naming a thread in Codex"},
		"archive":     {"thread/archive", "archiving a thread in Codex"}}[action]
	if !ok {
		return nil, fmt.Errorf("app-server has no action %q", action)
	}
	if params == nil {
		params = map[string]any{}
	}
	limit := c.o.CallLimit
	if action == "login" { // by a device code it asks a server of OpenAI's first
		limit = c.o.OpenLimit
	}
	res, err := c.call(ctx, how[0], params, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", how[1], err)
	}
	return res, nil
}

// call waits for the answer to one call; its error is a *backendError or ctx's.
func (c *appCalls) call(ctx context.Context, method string, params any, limit time.Duration) (json.RawMessage, error) {
	res, err := c.ask(ctx, method, params, limit)
	if err != nil && err != ctx.Err() {
		err = callError(err)
	}
	return res, err
}

// An overloaded app-server is asked again for what changes nothing: after a
// tenth of a second, then twice that, for some three seconds in all.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 16 * firstPause
)

// read is call for what changes nothing, so that it may be sent again. No slot of the calls in flight is held
// meanwhile. Its error says what was to be read.
func (c *appCalls) read(ctx context.Context, what, method string, params any,
	limit time.Duration) (json.RawMessage, error) {
	for pause := firstPause; ; pause *= 2 {
		res, err := c.call(ctx, method, params, limit)
		if err == nil {
			return res, nil
		}
		if be, ok := err.(*backendError); !ok || be.Code != codeOverloaded || pause > longestPause {
			return nil, fmt.Errorf("reading %s from Codex: %w", what, err)
		}
		// Half of it to all of it, or those who were refused together would come back together.
		again := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, fmt.Errorf("reading %s from Codex: %w", what, ctx.Err())
		case <-c.gone:
			again.Stop()
			return nil, fmt.Errorf("reading %s from Codex: %w", what, callError(errPeerGone))
		}
	}
}

// pages reads a list to its end: {data, nextCursor} as if it were one page.
func (c *appCalls) pages(ctx context.Context, what, method string, limit time.Duration) (json.RawMessage, error) {
	params, all := map[string]any{}, []byte(nil)
	for range maxPages {
		res, err := c.read(ctx, what, method, params, limit)
		if err != nil {
			return nil, err
		}
		next := stringField(res, "nextCursor")
		if all == nil && next == "" {
			return res, nil
		}
		eachElement(rawField(res, "data"), func(item json.RawMessage) {
			if all = append(all, ','); len(all) == 1 {
				all[0] = '['
			}
			all = append(all, bytes.TrimSpace(item)...)
		})
		if next == "" {
			return append(append([]byte(`{"data":`), all...), `],"nextCursor":null}`...), nil
		}
		params["cursor"] = next
	}
	return nil, fmt.Errorf("reading %s from Codex: its list has no end after %d pages", what, maxPages)
}

// history tells the past turns of a thread. Of one that runs still it tells the beginning, without an end: that comes
// live. 0.104 keeps no commands, patches and tool calls, and calls every turn completed.
func (c *appCalls) history(ctx context.Context, thread string, each func(*event) error) error {
	res, err := c.read(ctx, "the history of thread "+thread, "thread/read",
		map[string]any{"threadId": thread, "includeTurns": true}, c.o.OpenLimit)
	if err != nil {
		if be := (*backendError)(nil); errors.As(err, &be) && noTurnsYet(be) {
			return nil
		}
		return err
	}
	var turns []pastTurn
	eachElement(rawField(res, "thread", "turns"), func(raw json.RawMessage) {
		if t := readPastTurn(raw, c.info()); t.id != "" {
			turns = append(turns, t)
		}
	})
	for _, t := range joinReviews(turns) {
		now := c.threads.runningTurn(thread)
		runs := t.status == "inProgress" && now != "" || t.id == now // 0.104 calls it completed
		if err := t.tell(thread, runs, each); err != nil {
			return err
		}
	}
	return nil
}

// noTurnsYet: a thread that was never used, in the words of 0.169 and 0.104.
func noTurnsYet(e *backendError) bool {
	return e.Code == codeNoMethod && strings.Contains(e.Message, "list_turns") ||
		strings.Contains(e.Message, "not materialized yet")
}

type pastTurn struct {
	id, root, status string
	items            []json.RawMessage
	raw              json.RawMessage
}

func readPastTurn(raw json.RawMessage, by backendInfo) pastTurn {
	t := pastTurn{id: stringField(raw, "id"), root: stringField(raw, "rootTurnId"),
		status: stringField(raw, "status"), raw: raw}
	eachElement(rawField(raw, "items"), func(it json.RawMessage) {
		n := len(t.items) - 1
		if n < 0 || stringField(it, "type") != "userMessage" {
			t.items = append(t.items, it)
			return
		}
		content := rawField(it, "content")
		twice := stringField(t.items[n], "type") == "userMessage" && string(rawField(t.items[n], "content")) ==
			string(content) // as 0.104 keeps what a review was asked for
		if !twice && (by.atLeast(148) || !isViewedImage(content)) {
			t.items = append(t.items, it)
		}
	})
	return t
}

// isViewedImage reports the content of a message that is not the user's: 0.104 hands its model so, in the middle of a
// turn, the image that it looks at, and doesn't keep that it looked.
func isViewedImage(content json.RawMessage) bool {
	parts, images := 0, 0
	eachElement(content, func(part json.RawMessage) {
		if parts++; strings.HasPrefix(stringField(part, "url"), "data:") {
			images++
		}
	})
	return parts == 1 && images == 1
}

// joinReviews makes one turn of the two that a review is. From 0.148 on what was done in it is kept under its inner id,
// before the turn in which it stands, and as interrupted: 0.169 says which belong together, 0.153 only by their order.
// 0.104 cuts off the mark that it begins with.
func joinReviews(turns []pastTurn) (out []pastTurn) {
	for i := 0; i < len(turns); i++ {
		t, review := turns[i], pastTurn{}
		if i+1 < len(turns) {
			review = turns[i+1]
		}
		switch {
		case t.isWithinReview(review):
			review.items = slices.Concat(review.items[:1], t.items, review.items[1:])
			t, i = review, i+1
		case t.isReviewMark(review):
			review.items = slices.Concat(t.items, review.items)
			t, i = review, i+1
		case t.root != "": // of a turn that still runs, or in which the process was killed
			t.id = t.root
		}
		out = append(out, t)
	}
	return out
}

func (t *pastTurn) isWithinReview(next pastTurn) bool {
	if len(next.items) == 0 || stringField(next.items[0], "type") != "enteredReviewMode" || t.id == next.id {
		return false
	}
	if t.root != "" {
		return t.root == next.id
	}
	return t.status == "interrupted" && isNull(rawField(t.raw, "completedAt"))
}

// isReviewMark reports the mark alone, before the turn that has the review's end.
func (t *pastTurn) isReviewMark(next pastTurn) bool {
	has := func(items []json.RawMessage, kind string) bool {
		return slices.ContainsFunc(items, func(it json.RawMessage) bool { return stringField(it, "type") == kind })
	}
	return len(t.items) == 1 && has(t.items, "enteredReviewMode") && has(next.items, "exitedReviewMode") &&
		!has(next.items, "enteredReviewMode")
}

// tell is the turn as events. runs: it has no end yet.
func (t *pastTurn) tell(thread string, runs bool, each func(*event) error) error {
	if err := each(&event{kind: evStarted, thread: thread, turn: t.id, must: true}); err != nil {
		return err
	}
	ref := string(toJSON(map[string]any{"threadId": thread, "turnId": t.id}))
	for _, it := range t.items {
		e := event{kind: evItem, phase: "completed", must: true,
			thread: thread, turn: t.id, item: stringField(it, "id"),
			body: appItem(it), method: "item/completed", raw: json.RawMessage(`{"item":` + string(it) + "," + ref[1:])}
		if err := each(&e); err != nil {
			return err
		}
	}
	if runs {
		return nil
	}
	e := event{kind: evEnded, thread: thread, turn: t.id, must: true, method: "turn/completed"}
	if e.status, e.err = turnOutcome(t.raw); t.status == "inProgress" { // its process was killed
		e.status = "interrupted"
	}
	if e.status == "completed" { // as live
		e.text = finalText(rawField(t.raw, "items"))
	}
	turn := map[string]any{"id": t.id, "status": e.status, "error": rawField(t.raw, "error"), "items": []any{}}
	e.raw = toJSON(map[string]any{"threadId": thread, "turn": turn})
	return each(&e)
}

// idleOf tells from an opened thread whether a turn runs in it: the status from 0.148, the last turn before.
func idleOf(thread json.RawMessage) (turn string, idle bool) {
	idle = stringField(thread, "status", "type") != "active"
	eachElement(rawField(thread, "turns"), func(tn json.RawMessage) {
		turn = ""
		if stringField(tn, "status") == "inProgress" {
			turn = stringField(tn, "id")
		}
	})
	return turn, idle && turn == ""
}

func (c *appCalls) catalog(ctx context.Context, what, dir string) (json.RawMessage, error) {
	method, params := "", map[string]any{}
	switch what {
	case "config":
		method, params = "config/read", map[string]any{"includeLayers": false}
		if dir != "" {
			params["cwd"] = dir
		}
	case "account":
		method = "account/read"
	case "limits":
		return c.read(ctx, what, "account/rateLimits/read", nil, c.o.CallLimit)
	case "skills": // anew: 0.104 tells no changes
		method, params = "skills/list", map[string]any{"cwds": []string{dir}, "forceReload": true}
	case "models":
		return c.pages(ctx, what, "model/list", c.o.CallLimit)
	case "threads":
		return c.threadList(ctx, dir)
	case "mcp": // Codex starts the servers to ask them
		return c.pages(ctx, what, "mcpServerStatus/list", c.o.OpenLimit)
	default:
		return nil, fmt.Errorf("app-server has no catalog %q", what)
	}
	return c.read(ctx, what, method, params, c.o.CallLimit)
}

// threadList tells the newest threads that people began with any client of Codex, and those of `codex exec`, but no
// subagents' and none that is archived.
func (c *appCalls) threadList(ctx context.Context, dir string) (json.RawMessage, error) {
	params := map[string]any{"limit": threadsPage, "sortKey": "updated_at",
		"modelProviders": []string{}, // else only those of the configured provider
		"sourceKinds":    []string{"cli", "vscode", "exec", "appServer"}}
	var dirs []string
	if dir != "" {
		dirs = spellings(dir)
	}
	if c.info().atLeast(148) {
		// From here on Codex has an index of its threads. It asks the disk too where nobody says otherwise, which takes
		// a tenth of a second a page, and a second for a directory with few threads among thousands. Asked once for the
		// newest of all, it takes up what a Codex without the index has made; the index knows the rest.
		if _, err := c.read(ctx, "threads", "thread/list", params, c.o.CallLimit); err != nil {
			return nil, err
		}
		params["useStateDbOnly"] = true
		if dir != "" {
			params["cwd"] = dirs
		}
	}
	seen, list := map[string]bool{}, []any{}
	for read := 0; read < maxThreads; read += threadsPage {
		res, err := c.read(ctx, "threads", "thread/list", params, c.o.CallLimit)
		if err != nil {
			return nil, err
		}
		eachElement(rawField(res, "data"), func(th json.RawMessage) {
			id, cwd := stringField(th, "id"), stringField(th, "cwd")
			// After a revert Codex may tell a thread twice.
			if seen[id] || stringField(th, "parentThreadId") != "" || dir != "" && !isSpelling(dirs, cwd) {
				return
			}
			seen[id] = true
			list = append(list, map[string]any{"id": id, "cwd": cwd,
				"name":    clipUTF8(stringField(th, "name"), maxPreview),
				"preview": clipUTF8(stringField(th, "preview"), maxPreview), "updatedAt": rawField(th, "updatedAt")})
		})
		next := stringField(res, "nextCursor")
		if next == "" {
			break
		}
		params["cursor"] = next
	}
	return toJSON(map[string]any{"data": list}), nil
}
