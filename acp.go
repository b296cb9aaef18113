package main

// acp.go owns the ACP front: the client's stream, the handshake, how Codex is logged in and out (the methods of
// authenticate, the page that a person opens), the requests that are open on the stream with the waiters behind them,
// and the way to their answers, with the reading of parameters and the one place where an error of the hub becomes one
// of ACP. The composition root makes one front, gives it the hub's functions and calls run; the hub calls it back as a
// front, the child's driver with the ends of logins. It must never wait on the reading goroutine, answer a request
// twice, or leave one unanswered: ACP wants an answer to cancelled requests too. An API key is never written anywhere
// but to Codex.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// acpOptions are fixed before run is called.
type acpOptions struct {
	clientOptions
	Env    func(string) string // reads our environment, where API keys may be
	Kept   bool                // sessions outlive this process: they can be loaded, listed and resumed
	Team   bool                // sessions are members of a team, and have mail
	Steers bool                // a prompt that comes while one runs goes into its turn
	// AskLimit is how long the user may take to decide about a plan, 0 for any time.
	AskLimit time.Duration

	// The hub's functions; its own files say what each of them promises.
	review         func(ctx context.Context, dir string, task reviewTask) (*review, error)
	newAgentID     func() string
	clientSessions func(ctx context.Context, dir string) ([]clientSession, error)
	clientSession  func(session string) (clientSession, *rpcError)
	settings       func(agentID string) *sessionSettings
	retune         func(agentID string, change settingsChange, done func(sessionSettings, *rpcError))
	setTitle       func(agentID, title string)
	rename         func(ctx context.Context, session, title string) (string, *rpcError)
	remove         func(ctx context.Context, session string) *rpcError
	leave          func(agentID string, done func(closeResult, *rpcError))
	history        func(ctx context.Context, agentID string, each func(*event) error) *rpcError
	catalog        func(ctx context.Context, what, dir string) (json.RawMessage, *rpcError)
	account        func(ctx context.Context, action string, params any) (json.RawMessage, *rpcError)
}

// acpFront serves one ACP client on stdio. Its parts have the methods for what
// they own: logins, sessions, approvals, models.
type acpFront struct {
	acpOptions
	clientLink
	hello    atomic.Pointer[acpClient] // what the last initialize told of the client; nil before the first
	life     context.Context           // ends with shutdown, and with it all work that waits for Codex or the disk
	endLife  context.CancelFunc
	logins   acpLogins
	sessions acpSessions
	kept     acpKept
	models   acpModels

	mu      sync.Mutex                    // guards the fields below
	calls   map[string]*acpCall           // the client's open requests, by the key of their id
	waiters map[waiterID]func(turnResult) // what takes the result of each waiter that the hub has
}

// acpCall is one open request of the client.
type acpCall struct {
	id      json.RawMessage
	key     string
	method  string
	session string // the sessionId that the request names, as it came
	since   time.Time
	stop    func()     // ends the work for the request, nil where there is none; guarded by acpFront.mu
	prompt  *acpPrompt // of a session/prompt that was taken; set on the reading goroutine, before a cancel can come
}

const (
	// acpVersion is the version of the protocol that we speak: 2 is a draft.
	acpVersion = 1
	// acpBudget is how many bytes may wait for a client that doesn't read before its prompts fail.
	acpBudget = 16 << 20
	// acpCrowd is how many bytes may wait before deltas are joined: as many as one write takes.
	acpCrowd = chunkSize
)

// newACPFront starts the writing goroutine of the client's stream; shutdown ends it.
func newACPFront(o acpOptions) *acpFront {
	f := &acpFront{acpOptions: o, calls: map[string]*acpCall{}, waiters: map[waiterID]func(turnResult){}}
	f.logins = acpLogins{f: f, waiting: map[chan acpLoginEnd]bool{}}
	f.sessions = acpSessions{f: f, byID: map[string]*acpSession{}, byAgent: map[string]*acpSession{}}
	f.kept, f.models = acpKept{f}, acpModels{f: f}
	f.life, f.endLife = context.WithCancel(context.Background())
	f.connect("acp", o.clientOptions, peerOptions{mode: framingNewline, nullID: true, budget: acpBudget,
		handle: f.dispatch})
	return f
}

// shutdown ends what waits, lets it finish and flushes, all within grace. The hub has answered its waiters before.
func (f *acpFront) shutdown(grace time.Duration) {
	until := time.Now().Add(grace)
	limit, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	f.jobs.stop()
	f.endLife()
	f.jobs.wait(limit.Done())
	f.p.closeOut(max(0, time.Until(until)))
}

// dispatch takes one request or notification, on the reading goroutine.
func (f *acpFront) dispatch(m *message) {
	if m.id == nil {
		switch m.method {
		case "session/cancel":
			if s := f.sessions.named(stringField(m.params, "sessionId")); s != nil {
				s.queue.cancel(nil)
			}
		case "$/cancel_request":
			f.cancelCall(m.params)
		default: // what we don't know, extensions included: nothing to do
		}
		return
	}
	c := &acpCall{id: m.id, key: idKey(m.id), method: m.method, session: clip(stringField(m.params, "sessionId"), 200),
		since: time.Now()}
	f.mu.Lock()
	used := f.calls[c.key] != nil
	if !used {
		f.calls[c.key] = c
	}
	f.mu.Unlock()
	if used {
		f.p.replyError(m.id, idInUse(m.id))
		return
	}
	if e := f.handle(c, m.params); e != nil {
		f.answer(c, nil, e)
	}
}

// handle has a request answered, now or later, unless it returns why the request is refused.
func (f *acpFront) handle(c *acpCall, params json.RawMessage) *rpcError {
	if c.method != "initialize" && f.hello.Load() == nil {
		return &rpcError{Code: codeInvalidRequest, Message: fmt.Sprintf(
			"Invalid Request: %s came before initialize; send initialize with protocolVersion %d first", c.method,
			acpVersion)}
	}
	if !isNull(params) && rawKind(params) != '{' {
		return badParams("params of %s must be an object, not %s", c.method, kindWord(params))
	}
	switch c.method {
	case "initialize":
		return f.initialize(c, params)
	case "authenticate":
		return f.logins.authenticate(c, params)
	case "logout":
		return f.logins.logout(c)
	case "session/new":
		return f.sessions.makeNew(c, params)
	case "session/close":
		return f.sessions.close(c, params)
	case "session/prompt", methodSteering, "session/set_config_option", "session/set_mode":
		s, e := f.sessions.of(params)
		switch {
		case e != nil:
			return e
		case c.method == "session/prompt", c.method == methodSteering:
			return s.queue.takePrompt(c, params)
		case c.method == "session/set_mode":
			return s.options.setMode(c, params)
		}
		return s.options.setOption(c, params)
	case "session/load", "session/resume", "session/list", "session/delete", "session/fork", "session/set_title":
		if !f.Kept {
			return noMethod(c.method + " (persist_threads = false: sessions end with this process)")
		}
		switch c.method {
		case "session/list":
			return f.kept.list(c, params)
		case "session/set_title":
			return f.kept.setTitle(c, params)
		case "session/delete":
			return f.sessions.close(c, params)
		case "session/fork":
			return f.sessions.makeNew(c, params)
		}
		return f.sessions.reopen(c, params)
	}
	return noMethod(c.method)
}

// acpClient is what an initialize told of the client. It never changes.
type acpClient struct {
	name, version string

	notices         bool // takes session/update notice
	compaction      bool // takes session/update compaction_update
	formElicitation bool
	urlElicitation  bool
	terminalAuth    bool   // runs our terminal methods
	terminal        string // the key of _meta under which it takes the output of terminals, "" for none
}

// client is what the client said of itself, empty before it did; never nil.
func (f *acpFront) client() *acpClient {
	if c := f.hello.Load(); c != nil {
		return c
	}
	return &acpClient{}
}

// initialize answers at once and has Codex started behind the answer, so that the
// first session finds Codex ready. A second initialize is answered too.
func (f *acpFront) initialize(c *acpCall, params json.RawMessage) *rpcError {
	raw := rawField(params, "protocolVersion")
	asked, err := strconv.ParseUint(string(raw), 10, 16)
	if err != nil {
		got := kindWord(raw)
		if rawKind(raw) == '0' {
			got = shortName(string(raw))
		}
		return badParams("protocolVersion must be a whole number from 0 to 65535, such as %d, not %s", acpVersion, got)
	}
	caps := rawField(params, "clientCapabilities")
	has := func(path ...string) bool { return rawKind(rawField(caps, path...)) == '{' }
	who := &acpClient{
		name:            stringField(params, "clientInfo", "name"),
		version:         stringField(params, "clientInfo", "version"),
		notices:         has("session", "notices"),
		compaction:      has("session", "compaction"),
		formElicitation: has("elicitation", "form"),
		urlElicitation:  has("elicitation", "url"),
		terminalAuth:    rawKind(rawField(caps, "auth", "terminal")) == 't',
	}
	for _, key := range []string{"terminal_output", "terminal_output_delta"} { // of both the latter, as other agents do
		if string(rawField(caps, "_meta", key)) == "true" {
			who.terminal = key
		}
	}
	f.hello.Store(who)
	f.Log.Info("client connected", "client", who.name, "client_version", who.version, "asked", asked,
		"protocol", acpVersion)
	f.answer(c, map[string]any{"protocolVersion": acpVersion, "agentCapabilities": f.capabilities(),
		"authMethods": f.logins.methods(),
		"agentInfo":   map[string]any{"name": f.Names.word(serverName), "title": "Codex", "version": f.Version},
		"_meta":       map[string]any{"steering": map[string]bool{"supported": true}}}, nil) // methodSteering
	f.jobs.spawn(func() {
		if _, e := f.catalog(f.life, "account", ""); e != nil { // told again to whoever needs Codex
			f.Log.Debug("codex is not ready", "err", e)
		}
	})
	return nil
}

// capabilities are what we say that we can do: nothing that isn't built.
func (f *acpFront) capabilities() any {
	type yes struct{}
	session := map[string]any{"close": yes{}, "additionalDirectories": yes{}}
	if f.Kept {
		for _, can := range []string{"list", "resume", "delete", "fork", "title"} {
			session[can] = yes{}
		}
	}
	return map[string]any{
		"loadSession":         f.Kept,
		"promptCapabilities":  map[string]any{"image": true, "audio": false, "embeddedContext": true},
		"mcpCapabilities":     map[string]any{"http": true, "sse": false},
		"sessionCapabilities": session,
		"auth":                map[string]any{"logout": yes{}},
	}
}

// answer answers a request, unless the request was answered before: then it
// reports false. A prompt whose turn runs must have its turn ended first.
func (f *acpFront) answer(c *acpCall, result any, e *rpcError) bool {
	f.mu.Lock()
	open := f.calls[c.key] == c
	if open {
		delete(f.calls, c.key)
	}
	f.mu.Unlock()
	if !open {
		return false
	}
	if e == nil && result == nil {
		result = struct{}{}
	}
	var raw json.RawMessage
	if e == nil {
		raw = toJSON(result)
	}
	if f.Log.Enabled(context.Background(), slog.LevelDebug) {
		f.Log.Debug("answered", "request", string(c.id), "method", c.method, "sessionId",
			cmp.Or(c.session, stringField(raw, "sessionId")), "failed", e != nil,
			"latency_ms", time.Since(c.since).Milliseconds())
	}
	f.p.put(f.p.response(c.id, raw, f.Names.error(e)), keepAlways)
	if c.prompt != nil {
		c.prompt.s.queue.promptAnswered(c.prompt)
	}
	return true
}

// isOpen reports a request that has no answer yet.
func (f *acpFront) isOpen(c *acpCall) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[c.key] == c
}

// work has a request answered from a goroutine of its own, unless it returns why not.
// ctx ends when the client cancels the request, or we shut down.
func (f *acpFront) work(c *acpCall, do func(ctx context.Context) (any, *rpcError)) *rpcError {
	ctx, stop := context.WithCancel(f.life)
	f.mu.Lock()
	c.stop = stop
	f.mu.Unlock()
	if !f.jobs.spawn(func() {
		defer stop()
		result, e := do(ctx)
		f.answer(c, result, e)
	}) {
		stop()
		return errACPClosing()
	}
	return nil
}

// cancelCall is $/cancel_request: the request is answered all the same, a
// prompt with its stop reason, anything else with -32800.
func (f *acpFront) cancelCall(params json.RawMessage) {
	id := rawField(params, "requestId")
	stop := func() {}
	f.mu.Lock()
	c := f.calls[idKey(id)]
	if c != nil && c.stop != nil {
		stop = c.stop
	}
	f.mu.Unlock()
	switch {
	case c == nil: // answered before, or never asked
	case c.prompt != nil:
		c.prompt.s.queue.cancel(c.prompt)
	default:
		f.answer(c, nil, &rpcError{Code: codeCancelled, Message: "Request cancelled"})
		stop()
	}
}

// addWaiter names somebody who waits for a turn; done takes the turn's result.
func (f *acpFront) addWaiter(done func(turnResult)) waiterID {
	w := f.nextWaiter()
	f.mu.Lock()
	f.waiters[w] = done
	f.mu.Unlock()
	return w
}

// dropWaiter makes the hub's result for a waiter one that nobody takes, and tells the hub that nobody waits any more.
func (f *acpFront) dropWaiter(w waiterID) {
	f.mu.Lock()
	delete(f.waiters, w)
	f.mu.Unlock()
	f.cancel(w)
}

// done implements front: the one result of a waiter.
func (f *acpFront) done(w waiterID, r turnResult) {
	f.mu.Lock()
	take := f.waiters[w]
	delete(f.waiters, w)
	f.mu.Unlock()
	if take != nil {
		take(r)
	}
}

// event implements front. Updates are never dropped here: a client that doesn't
// read loses its prompt instead (acp_session.go).
func (f *acpFront) event(a agentRef, w waiterID, e *event) bool {
	if s := f.sessions.ofAgent(a.AgentID); s != nil {
		s.event(a, w, e)
	}
	return true
}

// ask implements front. Who waits for the turn doesn't matter: a turn that mail began and a subagent that outlives its
// turn are the user's of the session as well. false: this client can't be asked.
func (f *acpFront) ask(a agentRef, w waiterID, q approval) bool { return askUser(f, a, w, q) }

// askGone implements front: nobody needs the answer any more.
func (f *acpFront) askGone(_ agentRef, ask, why string) { f.withdrawAsk(ask, why) }

// heard takes what Codex tells beside any session, on the reading goroutine of the child.
func (f *acpFront) heard(method string, params json.RawMessage) {
	if method == mSkills {
		f.sessions.each(func(s *acpSession) { s.skills.look() })
		return
	}
	f.logins.onAccount(method, params)
}

// crowded reports that output waits for the client.
func (f *acpFront) crowded() bool { return f.p.queued() > acpCrowd }

// kindWord names what a raw value is, as in "must be a string, not a number".
func kindWord(raw json.RawMessage) string {
	switch rawKind(raw) {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "missing"
}

// paramText is a string that must be there.
func paramText(params json.RawMessage, name string) (string, *rpcError) {
	raw := rawField(params, name)
	s, ok := rawString(raw)
	if !ok {
		return "", badKind(name, "a string", raw)
	}
	return s, nil
}

// badKind refuses a parameter that is missing or not what it must be.
func badKind(name, want string, raw json.RawMessage) *rpcError {
	if raw == nil {
		return badParams("%s is missing: it must be %s", name, want)
	}
	return badParams("%s must be %s, not %s", name, want, kindWord(raw))
}

// paramSession is the sessionId.
func paramSession(params json.RawMessage) (string, *rpcError) {
	id, e := paramText(params, "sessionId")
	if e == nil && id == "" {
		e = badParams("sessionId is empty: it must be one that session/new or session/list gave")
	}
	return id, e
}

// paramDir is the cwd, absolute and clean.
func paramDir(params json.RawMessage) (string, *rpcError) {
	dir, e := paramText(params, "cwd")
	switch {
	case e != nil:
		return "", e
	case !filepath.IsAbs(dir):
		return "", badParams("cwd %q is not an absolute path: send the full path of the project's directory",
			shortName(dir))
	}
	return filepath.Clean(dir), nil
}

// noSession refuses an id that no open session has.
func noSession(id string) *rpcError {
	return &rpcError{Code: codeSessionNotFound, Data: toJSON(map[string]any{"sessionId": id}), Message: fmt.Sprintf(
		"no session %q is open here: load it again if it is an earlier one, or begin a new one",
		shortName(id))}
}

// unknownSession is an error about a session that is looked for by its id, as the client is told it.
func (f *acpFront) unknownSession(id string, e *rpcError) *rpcError {
	if e == nil || e.Code != codeSessionNotFound {
		return f.acpError(e)
	}
	e = noSession(id)
	e.Message = fmt.Sprintf("there is no session %q; the list of sessions tells which there are", shortName(id))
	return e
}

// errACPClosing refuses what comes while we shut down.
func errACPClosing() *rpcError {
	return &rpcError{Code: codeInternal, Message: "this agent is shutting down: start it again and load the session"}
}

// errOnlyAppServer is for a Codex that has nothing we can serve ACP with.
func errOnlyAppServer() *rpcError {
	return &rpcError{Code: codeInternal, Message: "ACP needs `codex app-server`, which Codex has since 0.104, " +
		"and this one is run as mcp-server: update it with `npm install -g @openai/codex`, name another as codex_bin " +
		"in the configuration, or take backend = \"mcp-server\" out of that"}
}

// acpError is an error of the hub as an ACP client is told it: with the codes of
// ACP, and without the words that only help a caller of our MCP tools.
func (f *acpFront) acpError(e *rpcError) *rpcError {
	if e == nil {
		return nil
	}
	out := &rpcError{Code: codeInternal, Message: cmp.Or(e.Said, e.Message) + acpAdvice(e), Data: e.Data}
	if codeName(e.Code) == "" {
		out.Code = e.Code
	}
	switch e.Code {
	case codeSessionNotFound:
		out.Code = codeSessionNotFound
	case codeInvalidSession, codeIdentityRequired, codeAgentFile:
		// The child's own -32602 is about what the client sent (a prompt over
		// 1 MiB characters, from 0.148 on); what it refuses otherwise isn't.
		tooLong := stringField(e.Data, "child_error", "data", "input_error_code") == "input_too_large"
		ours := stringField(e.Data, "error_source") != "child"
		if ours || tooLong || string(rawField(e.Data, "child_error", "code")) == "-32602" {
			out.Code = codeInvalidParams
		}
		if tooLong {
			out.Message += " Send less at once: link files in place of embedding them"
		}
	}
	if e.Remedy == remedyLogin {
		return f.logins.required("") // Codex's own words are for who has a terminal
	}
	return out
}

// acpAdvice is what somebody with an editor can do about an error, behind the words for what happened.
func acpAdvice(e *rpcError) string {
	switch e.Remedy {
	case remedyNewChild:
		return ". The session is kept: the next prompt starts Codex again"
	case remedyReopen:
		return "; the next prompt opens it again"
	case remedyRestart:
		return ": start it again and load the session"
	case remedyGoOn:
		advice := ". The session keeps its context: the next prompt goes on"
		if limit := stringField(e.Data, "limit"); limit != "" {
			advice += ", " + limit + " in the configuration sets the limit"
		}
		if partial := stringField(e.Data, "partial"); partial != "" {
			advice += ". Its answer so far: " + partial
		}
		return advice
	case remedyHeld:
		return "; close it there, or wait until it is closed"
	case remedyFind:
		return "; the list of sessions tells which there are"
	case remedyRoom:
		return "; close one of them first"
	case remedyNone, remedyLogin:
	}
	return ""
}

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

// check asks Codex whether it can work for anybody, and waits for the answer.
func (l *acpLogins) check(ctx context.Context) *rpcError {
	raw, e := l.f.catalog(ctx, "account", "")
	switch {
	case l.f.status().Backend == "mcp-server":
		return errOnlyAppServer()
	case e != nil:
		return l.f.acpError(e)
	case isNull(rawField(raw, "account")) && rawKind(rawField(raw, "requiresOpenaiAuth")) == 't':
		return l.required("")
	}
	return nil
}

// authenticate logs Codex in by one of the methods.
func (l *acpLogins) authenticate(c *acpCall, params json.RawMessage) *rpcError {
	id, e := paramText(params, "methodId")
	if e != nil {
		return e
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
