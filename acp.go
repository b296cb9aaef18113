package main

// acp.go owns the ACP front: the client's stream, the requests that are open on
// it, the reading of their parameters, the waiters behind them, and the way to
// their answers, with the one place where an error of the hub becomes one of ACP.
// The composition root makes one, gives it the hub's functions and calls run; the
// hub calls it back as a front. It must never wait on the reading goroutine,
// answer a request twice, or leave one unanswered: ACP wants an answer to
// cancelled ones too.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// acpOptions are fixed before run is called.
type acpOptions struct {
	R       io.Reader
	W       io.Writer
	Log     *slog.Logger
	Version string // ours
	Trace   func(dir string, rec []byte)
	Deaf    func()              // the client has closed its reading side; may be nil
	Env     func(string) string // our environment, where API keys may be
	Kept    bool                // sessions outlive this process: they can be loaded, listed and resumed
	Team    bool                // sessions are members of a team, and have mail

	// The hub. session_hub.go and session_hubclient.go say what each of them promises.
	submit         func(req turnRequest, w waiterID)
	cancel         func(w waiterID, detach bool)
	decide         func(ask string, by decider, d decision, answers map[string][]string) bool
	interrupt      func(ref, turn string, done func(interruptResult, *rpcError))
	status         func() statusView
	newAgentID     func() string
	clientSessions func() ([]clientSession, error)
	clientSession  func(session string) (clientSession, *rpcError)
	settings       func(agentID string) *sessionSettings
	retune         func(agentID string, change settingsChange, done func(sessionSettings, *rpcError))
	setTitle       func(agentID, title string)
	leave          func(agentID string, done func(closeResult, *rpcError))
	history        func(ctx context.Context, agentID string, each func(*event) error) *rpcError
	catalog        func(ctx context.Context, what, dir string) (json.RawMessage, *rpcError)
	account        func(ctx context.Context, action string, params any) (json.RawMessage, *rpcError)
}

// acpFront serves one ACP client on stdio.
type acpFront struct {
	acpOptions
	clientLink
	who     atomic.Pointer[acpClient] // nil until an initialize was answered
	life    context.Context           // what waits for Codex or the disk ends with it
	endLife context.CancelFunc
	asks    acpAskTable
	models  acpModelList

	mu       sync.Mutex // guards the fields below
	calls    map[string]*acpCall
	waiters  map[waiterID]func(turnResult)
	sessions map[string]*acpSession // by the client's id
	agents   map[string]*acpSession // by agent_id
	logins   map[*acpLogin]bool     // that wait for a person
}

// acpCall is one open request of the client.
type acpCall struct {
	id      json.RawMessage
	key     string
	method  string
	session string // the sessionId that it names, as it came
	since   time.Time
	stop    func()     // ends the work for it, nil where there is none; guarded by acpFront.mu
	prompt  *acpPrompt // of a session/prompt that was taken; set on the reading goroutine, before a cancel can come
}

const (
	// acpBudget is how many bytes may wait for a client that doesn't read before
	// its prompts fail.
	acpBudget = 16 << 20
	// acpCrowd is how many may wait before deltas are joined: as many as one write takes.
	acpCrowd = chunkSize
)

// newACPFront starts the writing goroutine of the client's stream; shutdown
// ends it.
func newACPFront(o acpOptions) *acpFront {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &acpFront{acpOptions: o, calls: map[string]*acpCall{}, waiters: map[waiterID]func(turnResult){},
		sessions: map[string]*acpSession{}, agents: map[string]*acpSession{}, logins: map[*acpLogin]bool{}}
	f.life, f.endLife = context.WithCancel(context.Background())
	f.connect("acp", o.R, o.W, o.Log, o.Deaf, peerOptions{
		mode:   framingNewline,
		nullID: true,
		budget: acpBudget,
		handle: f.dispatch,
		trace:  o.Trace,
	})
	return f
}

// shutdown ends what waits, lets it finish and flushes, all within grace. The
// hub has answered its waiters before.
func (f *acpFront) shutdown(grace time.Duration) {
	until := time.Now().Add(grace)
	f.stopWork()
	f.endLife()
	f.waitWork(grace)
	f.p.closeOut(max(0, time.Until(until)))
}

// dispatch takes one request or notification, on the reading goroutine.
func (f *acpFront) dispatch(m *message) {
	if m.id == nil {
		switch m.method {
		case "session/cancel":
			f.cancelSession(m.params)
		case "$/cancel_request":
			f.cancelCall(m.params)
		default: // what we don't know, extensions included: nothing to do
		}
		return
	}
	c := &acpCall{id: m.id, key: idKey(m.id), method: m.method, session: clip(stringField(m.params, "sessionId"), 200), since: time.Now()}
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
	if m.method != "initialize" && f.who.Load() == nil {
		f.answer(c, nil, &rpcError{Code: codeInvalidRequest, Message: fmt.Sprintf("Invalid Request: %s came before initialize; send initialize with protocolVersion %d first", m.method, acpVersion)})
		return
	}
	if !isNull(m.params) && rawKind(m.params) != '{' {
		f.answer(c, nil, badParams("params of %s must be an object, not %s", m.method, kindWord(m.params)))
		return
	}
	switch m.method {
	case "initialize":
		f.initialize(c, m.params)
	case "authenticate":
		f.authenticate(c, m.params)
	case "logout":
		f.logout(c)
	case "session/new":
		f.newSession(c, m.params)
	case "session/load", "session/resume", "session/list":
		if !f.Kept {
			f.answer(c, nil, noMethod(m.method+" (persist_threads = false: sessions end with this process)"))
			return
		}
		if m.method == "session/list" {
			f.listSessions(c, m.params)
			return
		}
		f.reopenSession(c, m.params)
	case "session/close":
		f.closeSession(c, m.params)
	case "session/prompt":
		f.takePrompt(c, m.params)
	case "session/set_config_option":
		f.setOption(c, m.params)
	case "session/set_mode":
		f.setMode(c, m.params)
	default:
		f.answer(c, nil, noMethod(m.method))
	}
}

// answer answers a request, unless it was answered before: then it reports
// false. A prompt must go by its session's finish, which ends its turn first.
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
		f.Log.Debug("answered", "request", string(c.id), "method", c.method, "sessionId", cmp.Or(c.session, stringField(raw, "sessionId")), "failed", e != nil,
			"latency_ms", time.Since(c.since).Milliseconds())
	}
	f.p.write(f.p.response(c.id, raw, e), false)
	if c.prompt != nil {
		c.prompt.s.answered(c.prompt)
	}
	return true
}

// isOpen reports a request that nobody has answered yet.
func (f *acpFront) isOpen(c *acpCall) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[c.key] == c
}

// work has a request answered from a goroutine of its own. ctx ends when the
// client cancels the request, or we shut down.
func (f *acpFront) work(c *acpCall, do func(ctx context.Context) (any, *rpcError)) {
	ctx, stop := context.WithCancel(f.life)
	f.mu.Lock()
	c.stop = stop
	f.mu.Unlock()
	if !f.spawn(func() {
		defer stop()
		result, e := do(ctx)
		f.answer(c, result, e)
	}) {
		stop()
		f.answer(c, nil, errACPClosing())
	}
}

// cancelCall is $/cancel_request: the request is answered all the same, a
// prompt with its stop reason, anything else with -32800.
func (f *acpFront) cancelCall(params json.RawMessage) {
	id := rawField(params, "requestId")
	f.mu.Lock()
	c := f.calls[idKey(id)]
	var stop func()
	if c != nil {
		stop = c.stop
	}
	f.mu.Unlock()
	switch {
	case c == nil: // answered before, or never asked
	case c.prompt != nil:
		c.prompt.s.cancelPrompts(c.prompt)
	default:
		f.answer(c, nil, &rpcError{Code: codeCancelled, Message: "Request cancelled"})
		if stop != nil {
			stop()
		}
	}
}

// waiter makes a name for who waits for a turn.
func (f *acpFront) waiter(done func(turnResult)) waiterID {
	w := f.nextWaiter()
	f.mu.Lock()
	f.waiters[w] = done
	f.mu.Unlock()
	return w
}

// forget retires a waiter on our side.
func (f *acpFront) forget(w waiterID) {
	f.mu.Lock()
	delete(f.waiters, w)
	f.mu.Unlock()
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
// read loses its prompt instead (acp_prompt.go).
func (f *acpFront) event(a agentRef, w waiterID, e *event) bool {
	f.mu.Lock()
	s := f.agents[a.AgentID]
	f.mu.Unlock()
	if s != nil {
		s.event(a, w, e)
	}
	return true
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
	switch {
	case ok:
		return s, nil
	case raw == nil:
		return "", badParams("%s is missing: it must be a string", name)
	}
	return "", badParams("%s must be a string, not %s", name, kindWord(raw))
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
		return "", badParams("cwd %q is not an absolute path: send the full path of the project's directory", shortName(dir))
	}
	return filepath.Clean(dir), nil
}

// paramRoots are the additionalDirectories.
func paramRoots(params json.RawMessage) ([]string, *rpcError) {
	raw := rawField(params, "additionalDirectories")
	if isNull(raw) {
		return nil, nil
	}
	if rawKind(raw) != '[' {
		return nil, badParams("additionalDirectories must be an array of absolute paths, not %s", kindWord(raw))
	}
	var roots []string
	var bad *rpcError
	eachElement(raw, func(el json.RawMessage) {
		dir, ok := rawString(el)
		switch {
		case bad != nil:
		case !ok:
			bad = badParams("additionalDirectories[%d] must be a string, not %s", len(roots), kindWord(el))
		case !filepath.IsAbs(dir):
			bad = badParams("additionalDirectories[%d] %q is not an absolute path", len(roots), shortName(dir))
		}
		roots = append(roots, filepath.Clean(dir))
	})
	return roots, bad
}

// paramServers are the mcpServers as they came, an array or nothing.
func paramServers(params json.RawMessage) (json.RawMessage, *rpcError) {
	raw := rawField(params, "mcpServers")
	if !isNull(raw) && rawKind(raw) != '[' {
		return nil, badParams("mcpServers must be an array of MCP servers, not %s", kindWord(raw))
	}
	return raw, nil
}

// noSession refuses an id that no open session has.
func noSession(id string) *rpcError {
	return &rpcError{Code: codeSessionNotFound, Message: fmt.Sprintf("no session %q is open here: session/load or session/resume opens an earlier one, session/new makes one", shortName(id)),
		Data: toJSON(map[string]any{"sessionId": id})}
}

// errACPClosing refuses what comes while we shut down.
func errACPClosing() *rpcError {
	return &rpcError{Code: codeInternal, Message: "atm-agent-mcp is shutting down: start it again and load the session"}
}

// errOnlyAppServer is for a Codex that has nothing we can serve ACP with.
func errOnlyAppServer() *rpcError {
	return &rpcError{Code: codeInternal, Message: "ACP needs `codex app-server`, which Codex has since 0.104, and this one is run as mcp-server: " +
		"update it with `npm install -g @openai/codex`, name another with --codex-bin, or take backend = \"mcp-server\" out of the configuration"}
}

// acpError is an error of the hub as an ACP client is told it: with the codes of
// ACP, and without the words that only help who calls our MCP tools.
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
		if stringField(e.Data, "error_source") != "child" || tooLong || string(rawField(e.Data, "child_error", "code")) == "-32602" {
			out.Code = codeInvalidParams
		}
		if tooLong {
			out.Message += " Send less at once: link files in place of embedding them"
		}
	}
	if e.Remedy == remedyLogin {
		return f.needsLogin(out.Message)
	}
	return out
}

// acpAdvice is what somebody with an editor can do about an error, behind the
// words for what happened.
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
		switch limit := stringField(e.Data, "limit"); limit {
		case "":
		case "request_timeout_secs":
			advice += ", --timeout sets the limit"
		default:
			advice += ", " + limit + " sets the limit"
		}
		if partial := stringField(e.Data, "partial"); partial != "" {
			advice += ". Its answer so far: " + partial
		}
		return advice
	case remedyNone, remedyLogin:
	}
	return ""
}
