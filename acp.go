package main

// acp.go owns the ACP front: the client's stream, the handshake, the requests that are open on the stream with the
// waiters behind them, and the way to their answers, with the reading of parameters and the one place where an error of
// the hub becomes one of ACP. The composition root makes one front, gives it the hub's functions and calls run; the hub
// calls it back as a front, the child's driver with the ends of logins. It must never wait on the reading goroutine,
// answer a request twice, or leave one unanswered: ACP wants an answer to cancelled requests too.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
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
	f.models = acpModels{f: f}
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
	case "session/load", "session/resume", "session/list", "session/delete", "session/fork", "session/set_title":
		if !f.Kept {
			return noMethod(c.method + " (persist_threads = false: sessions end with this process)")
		}
	}
	switch c.method {
	case "initialize":
		return f.initialize(c, params)
	case "authenticate":
		return f.logins.authenticate(c, params)
	case "logout":
		return f.logins.logout(c)
	case "session/new", "session/fork":
		return f.sessions.makeNew(c, params)
	case "session/load", "session/resume":
		return f.sessions.reopen(c, params)
	case "session/close", "session/delete":
		return f.sessions.close(c, params)
	case "session/list":
		return f.sessions.list(c, params)
	case "session/set_title":
		return f.sessions.setTitle(c, params)
	case "session/prompt", methodSteering, "session/set_config_option", "session/set_mode":
		s, e := f.sessions.of(params)
		switch {
		case e != nil:
			return e
		case c.method == "session/set_config_option":
			return s.options.setOption(c, params)
		case c.method == "session/set_mode":
			return s.options.setMode(c, params)
		}
		return s.queue.takePrompt(c, params)
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

// acpParams reads the parameters of a request.
type acpParams struct {
	raw json.RawMessage
	e   *rpcError // the first thing that is wrong with them
}

func (p *acpParams) refuse(format string, args ...any) {
	if p.e == nil {
		p.e = badParams(format, args...)
	}
}

// text is a string that must be there.
func (p *acpParams) text(name string) string {
	raw := rawField(p.raw, name)
	s, ok := rawString(raw)
	if !ok && p.e == nil {
		p.e = badKind(name, "a string", raw)
	}
	return s
}

// session is the sessionId.
func (p *acpParams) session() string {
	id := p.text("sessionId")
	if id == "" {
		p.refuse("sessionId is empty: it must be one that session/new or session/list gave")
	}
	return id
}

// dir is the cwd, absolute and clean.
func (p *acpParams) dir() string {
	dir := p.text("cwd")
	if !filepath.IsAbs(dir) {
		p.refuse("cwd %q is not an absolute path: send the full path of the project's directory", shortName(dir))
	}
	return filepath.Clean(dir)
}

// opening is what session/new, load and resume have in common: the working directory, absolute and clean, further
// directories, and the MCP servers as the client wrote them, an array or nothing.
func (p *acpParams) opening() (cwd string, roots []string, servers json.RawMessage) {
	cwd = p.dir()
	list := rawField(p.raw, "additionalDirectories")
	if !isNull(list) && rawKind(list) != '[' {
		p.refuse("additionalDirectories must be an array of absolute paths, not %s", kindWord(list))
	}
	eachElement(list, func(el json.RawMessage) {
		dir, ok := rawString(el)
		if !ok {
			p.refuse("additionalDirectories[%d] must be a string, not %s", len(roots), kindWord(el))
		} else if !filepath.IsAbs(dir) {
			p.refuse("additionalDirectories[%d] %q is not an absolute path", len(roots), shortName(dir))
		}
		roots = append(roots, filepath.Clean(dir))
	})
	if servers = rawField(p.raw, "mcpServers"); !isNull(servers) && rawKind(servers) != '[' {
		p.refuse("mcpServers must be an array of MCP servers, not %s", kindWord(servers))
	}
	return cwd, roots, servers
}

// badKind refuses a parameter that is missing or not what it must be.
func badKind(name, want string, raw json.RawMessage) *rpcError {
	if raw == nil {
		return badParams("%s is missing: it must be %s", name, want)
	}
	return badParams("%s must be %s, not %s", name, want, kindWord(raw))
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
	advice := map[remedy]string{
		remedyNewChild: ". The session is kept: the next prompt starts Codex again",
		remedyGoOn:     ". The session keeps its context: the next prompt goes on",
		remedyReopen:   "; the next prompt opens it again",
		remedyRestart:  ": start it again and load the session",
		remedyHeld:     "; close it there, or wait until it is closed",
		remedyFind:     "; the list of sessions tells which there are",
		remedyRoom:     "; close one of them first",
	}[e.Remedy]
	if e.Remedy != remedyGoOn {
		return advice
	}
	if limit := stringField(e.Data, "limit"); limit != "" {
		advice += ", " + limit + " in the configuration sets the limit"
	}
	if partial := stringField(e.Data, "partial"); partial != "" {
		advice += ". Its answer so far: " + partial
	}
	return advice
}
