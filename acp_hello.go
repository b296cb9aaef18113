package main

// acp_hello.go owns how an ACP client and this agent come to know each other:
// initialize, what we say we can do, and who is logged in to Codex (the methods
// of authenticate, logout). acp.go calls it. It must claim nothing that isn't
// built, never hold the answer to initialize back for Codex, and never write an
// API key anywhere but to Codex.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// acpVersion is the protocol we speak: 2 is a draft.
const acpVersion = 1

// acpClient is what an initialize told. It never changes.
type acpClient struct {
	name, version string

	notices         bool // takes session/update notice
	formElicitation bool
	urlElicitation  bool
	terminalAuth    bool // runs our terminal methods
	terminalOutput  bool // shows command output that comes in _meta.terminal_output
}

// client is what the client said of itself, empty before it did; never nil.
func (f *acpFront) client() *acpClient {
	if c := f.who.Load(); c != nil {
		return c
	}
	return &acpClient{}
}

// initialize answers at once and has Codex started behind the answer, so that the
// first session finds it ready. A second one is answered too.
func (f *acpFront) initialize(c *acpCall, params json.RawMessage) {
	raw := rawField(params, "protocolVersion")
	asked, err := strconv.ParseUint(string(raw), 10, 16)
	if err != nil {
		f.answer(c, nil, badParams("protocolVersion must be a whole number from 0 to 65535, such as %d, not %s", acpVersion, kindOrValue(raw)))
		return
	}
	caps := rawField(params, "clientCapabilities")
	is := func(path ...string) bool { return rawKind(rawField(caps, path...)) == 't' }
	has := func(path ...string) bool { return rawKind(rawField(caps, path...)) == '{' }
	who := &acpClient{name: stringField(params, "clientInfo", "name"), version: stringField(params, "clientInfo", "version"),
		notices:         has("session", "notices"),
		formElicitation: has("elicitation", "form"),
		urlElicitation:  has("elicitation", "url"),
		terminalAuth:    is("auth", "terminal"),
		terminalOutput:  is("_meta", "terminal_output"),
	}
	f.who.Store(who)
	f.Log.Info("client connected", "client", who.name, "client_version", who.version, "asked", asked, "protocol", acpVersion)
	if !f.answer(c, struct {
		Version      int            `json:"protocolVersion"`
		Capabilities any            `json:"agentCapabilities"`
		Methods      []any          `json:"authMethods"`
		Agent        map[string]any `json:"agentInfo"`
	}{acpVersion, f.agentCapabilities(), f.authMethods(), map[string]any{"name": serverName, "title": "Codex", "version": f.Version}}, nil) {
		return
	}
	f.spawn(func() {
		if _, e := f.catalog(f.life, "account", ""); e != nil { // told again to whoever needs it
			f.Log.Debug("codex is not ready", "err", e)
		}
	})
}

// kindOrValue is what a raw value is, or a number itself.
func kindOrValue(raw json.RawMessage) string {
	if rawKind(raw) == '0' {
		return shortName(string(raw))
	}
	return kindWord(raw)
}

func (f *acpFront) agentCapabilities() any {
	type yes struct{}
	session := map[string]any{"close": yes{}, "additionalDirectories": yes{}}
	if f.Kept {
		session["list"], session["resume"] = yes{}, yes{}
	}
	return map[string]any{
		"loadSession":         f.Kept,
		"promptCapabilities":  map[string]any{"image": true, "audio": false, "embeddedContext": true},
		"mcpCapabilities":     map[string]any{"http": true, "sse": false},
		"sessionCapabilities": session,
		"auth":                map[string]any{"logout": yes{}},
	}
}

const (
	authAPIKey   = "openai-api-key"
	authChatGPT  = "chatgpt"
	authTerminal = "codex-login"
)

// authMethods are the ways to log in. The terminal's is for clients that run it.
func (f *acpFront) authMethods() []any {
	type method struct {
		Type        string   `json:"type,omitempty"`
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Args        []string `json:"args,omitempty"`
	}
	key := "Uses the key in CODEX_API_KEY or OPENAI_API_KEY of the agent's environment"
	if f.apiKey() == "" {
		key += "; neither is set now"
	}
	all := []any{
		method{ID: authChatGPT, Name: "Log in with ChatGPT", Description: "Opens a page in your browser and uses your ChatGPT plan"},
		method{ID: authAPIKey, Name: "Use an OpenAI API key", Description: key},
	}
	if f.client().terminalAuth {
		// Clients append the args to the command that starts us, older ones put
		// them in its place: main.go understands both.
		all = append(all, method{Type: "terminal", ID: authTerminal, Name: "Run codex login in a terminal",
			Description: "Logs Codex in with ChatGPT, a device code or an API key", Args: []string{"acp", "login"}})
	}
	return all
}

func (f *acpFront) apiKey() string {
	return strings.TrimSpace(cmp.Or(f.Env("CODEX_API_KEY"), f.Env("OPENAI_API_KEY")))
}

// needsLogin is the error that has a client show its user how to log in.
func (f *acpFront) needsLogin(words string) *rpcError {
	if words == "" {
		words = "Codex is not logged in: authenticate with one of the methods, or run `codex login` in a terminal"
	}
	return &rpcError{Code: codeAuthRequired, Message: words, Data: toJSON(map[string]any{"authMethods": f.authMethods()})}
}

// checkLogin asks Codex whether it can work for anybody. It waits for it.
func (f *acpFront) checkLogin(ctx context.Context) *rpcError {
	raw, e := f.catalog(ctx, "account", "")
	if f.status().Backend == "mcp-server" {
		return errOnlyAppServer()
	}
	if e != nil {
		return f.acpError(e)
	}
	if isNull(rawField(raw, "account")) && rawKind(rawField(raw, "requiresOpenaiAuth")) == 't' {
		return f.needsLogin("")
	}
	return nil
}

// authenticate logs Codex in by one of authMethods.
func (f *acpFront) authenticate(c *acpCall, params json.RawMessage) {
	id, e := paramText(params, "methodId")
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	switch id {
	case authAPIKey:
		key := f.apiKey()
		if key == "" {
			f.answer(c, nil, f.needsLogin("neither CODEX_API_KEY nor OPENAI_API_KEY is set in the agent's environment: set one where your editor starts atm-agent-mcp, or log in another way"))
			return
		}
		f.work(c, func(ctx context.Context) (any, *rpcError) {
			_, e := f.account(ctx, "login", map[string]any{"type": "apiKey", "apiKey": key})
			return nil, f.loginError(e)
		})
	case authChatGPT:
		f.work(c, func(ctx context.Context) (any, *rpcError) { return nil, f.chatGPT(ctx, c) })
	case authTerminal:
		f.answer(c, nil, badParams("methodId %q is for a terminal: run `atm-agent-mcp acp login` there, then go on", authTerminal))
	default:
		f.answer(c, nil, badParams("methodId %q is none of %s, %s", shortName(id), authChatGPT, authAPIKey))
	}
}

func (f *acpFront) logout(c *acpCall) {
	f.work(c, func(ctx context.Context) (any, *rpcError) {
		_, e := f.account(ctx, "logout", nil)
		return nil, f.acpError(e)
	})
}

// loginError is why a login did not come about.
func (f *acpFront) loginError(e *rpcError) *rpcError {
	if e == nil {
		return nil
	}
	out := f.acpError(e)
	if out.Code == codeInvalidParams || out.Code == codeInternal && stringField(e.Data, "error_source") == "child" {
		out = f.needsLogin(out.Message)
	}
	return out
}

// acpLogin is a login that a person has to finish.
type acpLogin struct {
	ended chan acpLoginEnd // has room for what comes before its id is known
}

type acpLoginEnd struct {
	id, err string
	success bool
}

// loginLimit is how long a person may take.
const loginLimit = 10 * time.Minute

// onAccount takes what Codex tells of logins, on the reading goroutine.
func (f *acpFront) onAccount(method string, params json.RawMessage) {
	if method != "account/login/completed" {
		return
	}
	end := acpLoginEnd{id: stringField(params, "loginId"), err: stringField(params, "error"), success: rawKind(rawField(params, "success")) == 't'}
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.logins {
		select {
		case l.ended <- end:
		default: // ten logins that aren't this one
		}
	}
}

// chatGPT logs in by a page in the user's browser, and waits for the user.
func (f *acpFront) chatGPT(ctx context.Context, c *acpCall) *rpcError {
	l := &acpLogin{ended: make(chan acpLoginEnd, 10)}
	f.mu.Lock()
	f.logins[l] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.logins, l)
		f.mu.Unlock()
	}()
	raw, e := f.account(ctx, "login", map[string]any{"type": "chatgpt"})
	if e != nil {
		return f.loginError(e)
	}
	id, url := stringField(raw, "loginId"), stringField(raw, "authUrl")
	if url == "" {
		return f.needsLogin("Codex gave no page to log in at; run `codex login` in a terminal")
	}
	refused := f.showPage(c, id, url)
	limit := time.NewTimer(loginLimit)
	defer limit.Stop()
	why := ""
	for why == "" {
		select {
		case end := <-l.ended:
			switch {
			case end.id != "" && end.id != id:
			case end.success:
				f.endPage(id)
				return nil
			default:
				return f.needsLogin("the login did not succeed: " + cmp.Or(end.err, "Codex gave no reason"))
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
	if _, e := f.account(stop, "cancelLogin", map[string]any{"loginId": id}); e != nil {
		f.Log.Debug("the login could not be cancelled", "err", e)
	}
	return f.needsLogin(why)
}

// showPage tells the user which page to open: by elicitation where the client
// takes it, else by a notice in its open sessions and in the log. The channel
// is closed if the user won't.
func (f *acpFront) showPage(c *acpCall, id, url string) (refused chan struct{}) {
	refused = make(chan struct{})
	const words = "Log Codex in with ChatGPT: open the page in your browser"
	f.Log.Warn("open this page in a browser to log Codex in", "url", url)
	if f.client().urlElicitation {
		f.p.call("elicitation/create", map[string]any{"mode": "url", "elicitationId": id, "url": url, "message": words, "requestId": c.id}, 0,
			func(result json.RawMessage, err error) {
				if err == nil && stringField(result, "action") != "accept" {
					close(refused)
				}
			})
		return refused
	}
	f.each(func(s *acpSession) { s.notice("info", words, url) })
	return refused
}

// endPage tells the client that the user is through with it.
func (f *acpFront) endPage(id string) {
	if f.client().urlElicitation {
		f.p.notify("elicitation/complete", map[string]any{"elicitationId": id}, false)
	}
}
