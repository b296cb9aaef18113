package main

// acp_login.go owns how Codex is logged in and out for an ACP client: the methods of authenticate, whether a login is
// needed at all, and the page that a person opens in a browser. acp.go calls it on the reading goroutine and brings the
// ends of logins. An API key is never written anywhere but to Codex.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	authAPIKey   = "openai-api-key"
	authChatGPT  = "chatgpt"
	authTerminal = "codex-login"

	// loginLimit is how long a person may take to log in.
	loginLimit = 10 * time.Minute
	// loginEnds is how many ends of logins are kept for one that doesn't know its own id yet.
	loginEnds = 10
)

// acpLogins are the ways to log Codex in.
type acpLogins struct {
	f *acpFront

	mu      sync.Mutex                // guards the field below
	waiting map[chan acpLoginEnd]bool // logins that wait for a person
}

// acpLoginEnd is how a login ended, as Codex tells it.
type acpLoginEnd struct {
	id, err string
	success bool
}

// methods are the ways to log in, each with its type, as the registry of ACP agents wants it. The terminal's is for
// clients that run it.
func (l *acpLogins) methods() []any {
	key := "Uses the key in CODEX_API_KEY or OPENAI_API_KEY of the agent's environment"
	if l.apiKey() == "" {
		key += "; neither is set now"
	}
	all := []any{
		map[string]any{"type": "agent", "id": authChatGPT, "name": "Log in with ChatGPT",
			"description": "Opens a page in your browser and uses your ChatGPT plan"},
		map[string]any{"type": "agent", "id": authAPIKey, "name": "Use an OpenAI API key", "description": key},
	}
	if l.f.client().terminalAuth {
		// Clients append the args to the command that starts us, older ones put
		// them in its place: main.go understands both.
		all = append(all, map[string]any{"type": "terminal", "id": authTerminal,
			"name": "Run codex login in a terminal", "args": []string{"acp", "login"},
			"description": "Logs Codex in with ChatGPT, a device code or an API key"})
	}
	return all
}

func (l *acpLogins) apiKey() string {
	return strings.TrimSpace(cmp.Or(l.f.Env("CODEX_API_KEY"), l.f.Env("OPENAI_API_KEY")))
}

// required is the error that has a client show its user how to log in; words say
// what is wrong, "" that nobody is logged in.
func (l *acpLogins) required(words string) *rpcError {
	if words == "" {
		words = "Codex is not logged in, or its login was refused: log in by one of the ways that your editor offers"
	}
	return &rpcError{Code: codeAuthRequired, Message: words, Data: toJSON(map[string]any{"authMethods": l.methods()})}
}

// ready has Codex started, and is Codex's word on who is logged in. It waits for that.
func (l *acpLogins) ready(ctx context.Context) (json.RawMessage, *rpcError) {
	raw, e := l.f.catalog(ctx, "account", "")
	if l.f.status().Backend == "mcp-server" {
		return nil, errOnlyAppServer()
	}
	return raw, l.f.acpError(e)
}

// check finds out whether Codex can work for anybody.
func (l *acpLogins) check(ctx context.Context) *rpcError {
	raw, e := l.ready(ctx)
	if e == nil && isNull(rawField(raw, "account")) && rawKind(rawField(raw, "requiresOpenaiAuth")) == 't' {
		e = l.required("")
	}
	return e
}

// authenticate logs Codex in by one of the methods.
func (l *acpLogins) authenticate(c *acpCall, params json.RawMessage) *rpcError {
	in := acpParams{raw: params}
	id := in.text("methodId")
	if in.e != nil {
		return in.e
	}
	switch id {
	case authAPIKey:
		key := l.apiKey()
		if key == "" {
			return l.required("neither CODEX_API_KEY nor OPENAI_API_KEY is set in the agent's environment: " +
				"set one where your editor starts atm-agent-mcp, or log in another way")
		}
		return l.f.work(c, func(ctx context.Context) (any, *rpcError) {
			_, e := l.f.account(ctx, "login", map[string]any{"type": "apiKey", "apiKey": key})
			return nil, l.failed(e)
		})
	case authChatGPT:
		return l.f.work(c, func(ctx context.Context) (any, *rpcError) { return nil, l.byPage(ctx, c) })
	case authTerminal:
		return badParams("methodId %q is for a terminal: run `atm-agent-mcp acp login` there, then go on", authTerminal)
	}
	return badParams("methodId %q is none of %s, %s", shortName(id), authChatGPT, authAPIKey)
}

func (l *acpLogins) logout(c *acpCall) *rpcError {
	return l.f.work(c, func(ctx context.Context) (any, *rpcError) {
		_, e := l.f.account(ctx, "logout", nil)
		return nil, l.f.acpError(e)
	})
}

// failed is why a login did not come about, nil where it did.
func (l *acpLogins) failed(e *rpcError) *rpcError {
	if e == nil {
		return nil
	}
	out := l.f.acpError(e)
	if out.Code == codeInvalidParams || out.Code == codeInternal && stringField(e.Data, "error_source") == "child" {
		out = l.required(out.Message)
	}
	return out
}

// onAccount takes what Codex tells of logins, on the reading goroutine of the child.
func (l *acpLogins) onAccount(method string, params json.RawMessage) {
	if method != "account/login/completed" {
		return
	}
	end := acpLoginEnd{id: stringField(params, "loginId"), err: stringField(params, "error"),
		success: rawKind(rawField(params, "success")) == 't'}
	l.mu.Lock()
	defer l.mu.Unlock()
	for ends := range l.waiting {
		select {
		case ends <- end:
		default: // full of the ends of other logins
		}
	}
}

// byPage logs in by a page in the user's browser, and waits for the user.
func (l *acpLogins) byPage(ctx context.Context, c *acpCall) *rpcError {
	ends := make(chan acpLoginEnd, loginEnds)
	l.mu.Lock()
	l.waiting[ends] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, ends)
		l.mu.Unlock()
	}()
	raw, e := l.f.account(ctx, "login", map[string]any{"type": "chatgpt"})
	if e != nil {
		return l.failed(e)
	}
	id, url := stringField(raw, "loginId"), stringField(raw, "authUrl")
	if url == "" {
		return l.required("Codex gave no page to log in at: log in by another of the ways that your editor offers")
	}
	refused := l.showPage(c, id, url)
	limit := time.NewTimer(loginLimit)
	defer limit.Stop()
	why := ""
	for why == "" {
		select {
		case end := <-ends:
			switch {
			case end.id != "" && end.id != id:
			case !end.success:
				return l.required("the login did not succeed: " + cmp.Or(end.err, "Codex gave no reason"))
			default:
				if l.f.client().urlElicitation {
					l.f.p.notify("elicitation/complete", map[string]any{"elicitationId": id})
				}
				return nil
			}
		case <-refused:
			why = "the login was declined"
		case <-limit.C:
			why = fmt.Sprintf("nobody logged in within %s", loginLimit)
		case <-ctx.Done():
			why = "the login was cancelled"
		}
	}
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	if _, e := l.f.account(stop, "cancelLogin", map[string]any{"loginId": id}); e != nil {
		l.f.Log.Debug("the login could not be cancelled", "err", e)
	}
	return l.required(why)
}

// showPage tells the user which page to open: by elicitation where the client takes it, else by a notice in its open
// sessions and in the log. The channel is closed if the user won't.
func (l *acpLogins) showPage(c *acpCall, id, url string) (refused chan struct{}) {
	refused = make(chan struct{})
	const words = "Log Codex in with ChatGPT: open the page in your browser"
	l.f.Log.Warn("open this page in a browser to log Codex in", "url", url)
	if !l.f.client().urlElicitation {
		l.f.sessions.each(func(s *acpSession) { s.notice("info", words, url) })
		return refused
	}
	l.f.p.call("elicitation/create", map[string]any{"mode": "url", "elicitationId": id, "url": url, "message": words,
		"requestId": c.id}, 0, func(result json.RawMessage, err error) {
		if err == nil && stringField(result, "action") != "accept" {
			close(refused)
		}
	})
	return refused
}
