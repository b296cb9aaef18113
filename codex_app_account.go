package main

// codex_app_account.go owns the calls to app-server that somebody waits for: who
// is logged in and the change of that, and lists that come in pages. Fronts call
// it through the hub, never from the session loop or the reader. What a login
// that needs a person came to is told by OnAccount. It must never log what it
// sends: a key may be in it.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	mLoginDone = "account/login/completed"
	mAccount   = "account/updated"
)

// maxPages is far above what any list has.
const maxPages = 100

// account changes who is logged in.
func (a *appServer) account(ctx context.Context, action string, params any) (json.RawMessage, error) {
	method, doing, limit := "", "", a.o.CallLimit
	switch action {
	case "login": // by a device code it asks a server of OpenAI's first
		method, doing, limit = "account/login/start", "logging in to Codex", a.o.OpenLimit
	case "cancelLogin":
		method, doing = "account/login/cancel", "cancelling the login to Codex"
	case "logout":
		method, doing = "account/logout", "logging out of Codex"
	default:
		return nil, fmt.Errorf("app-server has no account action %q", action)
	}
	if params == nil {
		params = map[string]any{}
	}
	res, err := a.call(ctx, method, params, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return res, nil
}

// call waits for the answer to one call; its error is a *backendError or ctx's.
func (a *appServer) call(ctx context.Context, method string, params any, limit time.Duration) (json.RawMessage, error) {
	res, err := a.ask(ctx, method, params, limit)
	if err != nil && err != ctx.Err() {
		err = callError(err)
	}
	return res, err
}

// An overloaded app-server is asked again for what changes nothing: after a
// tenth of a second, then twice that, for some three seconds in all.
const (
	codeOverloaded = -32001 // app-server's, none of ours
	firstPause     = 100 * time.Millisecond
	longestPause   = 16 * firstPause
)

// fetch is call for what changes nothing, so that it may be sent again. No slot
// of the calls in flight is held meanwhile.
func (a *appServer) fetch(ctx context.Context, method string, params any, limit time.Duration) (json.RawMessage, error) {
	for pause := firstPause; ; pause *= 2 {
		res, err := a.call(ctx, method, params, limit)
		if be, ok := err.(*backendError); !ok || be.Code != codeOverloaded || pause > longestPause {
			return res, err
		}
		// Half of it to all of it, or those who were refused together would come back together.
		again := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-a.gone:
			again.Stop()
			return nil, callError(errPeerGone)
		}
	}
}

// read is fetch, in words of what is read.
func (a *appServer) read(ctx context.Context, what, method string, params any, limit time.Duration) (json.RawMessage, error) {
	res, err := a.fetch(ctx, method, params, limit)
	if err != nil {
		return nil, fmt.Errorf("reading %s from Codex: %w", what, err)
	}
	return res, nil
}

// pages reads a list to its end: {data, nextCursor} as if it were one page.
func (a *appServer) pages(ctx context.Context, what, method string, limit time.Duration) (json.RawMessage, error) {
	params, all := map[string]any{}, []byte(nil)
	for range maxPages {
		res, err := a.read(ctx, what, method, params, limit)
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
