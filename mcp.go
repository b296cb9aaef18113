package main

// mcp.go owns the MCP front: the client's stream, the requests that are open on it, and the way from a method to its
// answer, in both eras of the protocol at once (mcp_eras.go). The composition root makes one, gives it the hub's
// functions and calls run; the hub calls it back as a front. It must never wait on the reading goroutine, answer a
// request twice, answer one that its client cancelled, or let one era change what a client of the other sees.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// scratchMax is how many bytes a kept buffer for events may have.
const scratchMax = 16 << 10

// mcpOptions are fixed before run is called.
type mcpOptions struct {
	clientOptions
	ForwardEvents string // auto, on, off (FR-19)
	DefaultCwd    string // what a relative agent_file resolves against when the call has no cwd

	// The hub. session_hub.go says what each of these functions promises.
	review   func(ref, cwd string, task reviewTask) (*review, string, *rpcError) // reads the disk and runs git
	close    func(ref, correlation string, done func(closeResult, *rpcError))
	sessions func(limit int) []sessionView
	limited  func(done func(statusView)) // status, for which Codex may be asked for the account's limits
	// wait and approve answer from another goroutine, once; turn reads the disk.
	wait    func(q waitQuery, done func(waitResult, *rpcError)) (stop func())
	approve func(q approveQuery, done func(decision, *rpcError))
	turn    func(ref, turn string) (keptTurn, *rpcError)
	// mailAs reads the disk, atm waits for inboxes; setMail answers from another goroutine, once.
	mailAs func(ref, inbox string) (atmCaller, *rpcError)
	atm    func(ctx context.Context, who atmCaller, tool string, args json.RawMessage) (structured any, text string,
		e *rpcError)
	ownMail func() mailBox // the client's own inbox, as last seen; nil for none

	agent   *toolServer // the client is Codex, and only the mail tools of one of its agents are served; else nil
	setMail func(ref string, auto bool, done func(sessionView, *rpcError))
}

// mcpFront serves one MCP client on stdio.
type mcpFront struct {
	mcpOptions
	clientLink
	tools   []tool
	legacy  atomic.Pointer[legacyClient] // nil until an initialize was answered
	lines   callLines                    // of the mail tools' calls
	scratch sync.Pool                    // of *[]byte, in which events are written: every session calls event at once

	mu      sync.Mutex            // guards the fields below and those of every call
	open    map[string]*mcpCall   // by the key of the request's id
	waiters map[waiterID]*mcpCall // the open calls that wait for a turn
	parked  parking               // turns of modern callers that were asked something
	closing bool                  // shutdown has begun
}

// callStage is how far a request has come on its way to the hub.
type callStage int

const (
	callOpen       callStage = iota // not with the hub: nothing to cancel there
	callSubmitting                  // submit is being called: a cancel waits for its return
	callSubmitted                   // the hub knows the waiter
)

// mcpCall is one open request of the client.
type mcpCall struct {
	f   *mcpFront
	id  json.RawMessage
	key string // of the id, in mcpFront.open
	requestEra
	since  time.Time // when the request came
	prog   *progress // nil: the client gave no token
	listen bool      // a subscriptions/listen, answered at shutdown
	task   bool      // the answer is a task

	// tool and args are what a retry of the call must repeat, "" and nil where its client can't be asked anything.
	tool string
	args json.RawMessage

	waiter    waiterID // 0: the hub knows nothing of the call
	stage     callStage
	cancelled bool   // the client gave the turn up while submit was being called
	stop      func() // ends what runs for a call that is no turn, nil for others
}

// newMCPFront starts the writing goroutine of the client's stream; shutdown ends it.
func newMCPFront(o mcpOptions) *mcpFront {
	f := &mcpFront{
		mcpOptions: o,
		tools:      toolTable(),
		open:       map[string]*mcpCall{},
		waiters:    map[waiterID]*mcpCall{},
		parked:     parking{turns: map[waiterID]*parkedTurn{}, states: map[string]*parkedTurn{}},
	}
	if o.agent != nil {
		f.tools = agentTools()
	}
	for i := range f.tools {
		f.tools[i].name = o.Names.word(f.tools[i].name)
	}
	f.connect("mcp", o.clientOptions, peerOptions{handle: f.dispatch})
	return f
}

// shutdown answers the open subscriptions, lets what was spawned finish and
// flushes, all within grace. The hub has answered its waiters before.
func (f *mcpFront) shutdown(grace time.Duration) {
	until := time.Now().Add(grace)
	limit, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	f.jobs.stop()
	f.mu.Lock()
	f.closing = true
	var listens []*mcpCall
	for _, c := range f.open {
		if c.listen {
			listens = append(listens, c)
		}
	}
	f.mu.Unlock()
	for _, c := range listens {
		endListen(c)
	}
	f.jobs.wait(limit.Done())
	f.mu.Lock()
	var left []*progress
	for _, c := range f.open {
		left = append(left, c.prog)
	}
	f.mu.Unlock()
	for _, p := range left {
		p.end()
	}
	f.p.closeOut(max(0, time.Until(until)))
}

// dispatch takes one request or notification, on the reading goroutine.
func (f *mcpFront) dispatch(m *message) {
	if m.id == nil {
		if m.method == "notifications/cancelled" { // of all others there is nothing to do
			f.cancelCall(m.params)
		}
		return
	}
	c := &mcpCall{f: f, id: m.id, key: idKey(m.id), since: time.Now()}
	f.mu.Lock()
	used := f.open[c.key] != nil
	if !used {
		f.open[c.key] = c
	}
	f.mu.Unlock()
	if used {
		f.p.replyError(m.id, idInUse(m.id))
		return
	}
	p, e := readParams(m.params)
	c.requestEra = p.requestEra
	if e == nil {
		e = c.serve(m.method, p, m.params)
	}
	if e != nil {
		c.fail(e)
	}
}

// serve has a request answered, now or later, unless it returns why the request is refused.
func (c *mcpCall) serve(method string, p mcpParams, params json.RawMessage) *rpcError {
	switch method {
	case "initialize":
		if c.modern {
			return noMethod("initialize was removed in " + modernVersion + ", whose _meta this request has: call " +
				"server/discover, or send it without that _meta (" + strings.Join(legacyVersions(), ", ") + ")")
		}
		initialize(c, params)
	case "ping":
		if c.modern {
			return noMethod("ping was removed in " + modernVersion)
		}
		c.reply(json.RawMessage("{}"))
	case "server/discover":
		return discover(c)
	case "subscriptions/listen":
		if !c.modern {
			return noMethod(method + " exists in " + modernVersion + " only")
		}
		return listenTo(c, params)
	case "tools/list", "tools/call":
		switch {
		case !c.modern && c.f.legacy.Load() == nil:
			return badParams("%s came before initialize and without _meta %q: send initialize (%s) first, or the "+
				"_meta of %s with every request", method, metaVersion, strings.Join(legacyVersions(), ", "),
				modernVersion)
		case method == "tools/list":
			return listTools(c, p.cursor)
		}
		return callTool(c, p)
	case "tasks/get", "tasks/update", "tasks/cancel":
		if c.f.agent != nil { // whose calls run no turns
			return noMethod(method)
		}
		return taskMethod(c, method, params)
	default:
		return noMethod(method)
	}
	return nil
}

// forgetLocked takes a request out of the open ones. false: somebody else has answered it, or its client cancelled it.
func (f *mcpFront) forgetLocked(c *mcpCall) bool {
	if f.open[c.key] != c {
		return false
	}
	delete(f.open, c.key)
	delete(f.waiters, c.waiter)
	return true
}

// cancelCall retires a request without an answer: MCP forbids a late one. The turn of a client that merely timed out
// goes on (Claude Code: "SdkError: Request timed out"); its result is kept with its session.
func (f *mcpFront) cancelCall(params json.RawMessage) {
	key := idKey(rawField(params, "requestId"))
	reason := strings.ToLower(stringField(params, "reason"))
	timedOut := strings.Contains(reason, "timed out") || strings.Contains(reason, "timeout")
	f.mu.Lock()
	c := f.open[key]
	if c == nil {
		f.mu.Unlock()
		return // answered before, or never one of ours
	}
	f.forgetLocked(c)
	f.parked.forget(c.waiter)
	stage, stop := c.stage, c.stop
	c.cancelled = !timedOut
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.prog.end()
	if stage == callSubmitted && !timedOut {
		f.cancel(c.waiter)
	}
}

// caller is the open request of a waiter, nil for none.
func (f *mcpFront) caller(w waiterID) *mcpCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiters[w]
}

// event implements front: progress for the caller, codex/event for those who take it.
func (f *mcpFront) event(a agentRef, w waiterID, e *event) bool {
	c := f.caller(w)
	if c != nil {
		c.prog.note(a, e)
	}
	l := f.legacy.Load()
	if l == nil || !l.forwards || c != nil && c.modern || !fromChild(e) {
		return true
	}
	var request json.RawMessage
	if c != nil {
		request = c.id
	}
	worth := dropFirst
	if e.must {
		worth = dropLast // nobody waits for an event, not for this one either: the answer to the call tells the same
	}
	buf, _ := f.scratch.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	*buf = appendCodexEvent((*buf)[:0], f.Names, a, request, e)
	kept := f.p.put(*buf, worth) // put copies what it keeps
	if cap(*buf) <= scratchMax {
		f.scratch.Put(buf)
	}
	return kept
}

// done implements front: the one answer to a waiter. Where the waiter's request
// was answered with input_required, the result waits for the retry.
func (f *mcpFront) done(w waiterID, r turnResult) {
	f.mu.Lock()
	c, t := f.waiters[w], f.parked.turns[w]
	switch {
	case c != nil:
		f.forgetLocked(c)
		f.parked.forget(w)
	case t != nil:
		f.parked.keep(t, r, time.Now())
	}
	f.mu.Unlock()
	if c != nil { // else the result is parked, or its client cancelled the call
		c.send(outcome(c, &r))
	}
}

// submit hands a request to the hub. Two calls made on the reading goroutine keep their order.
func (c *mcpCall) submit(req turnRequest) {
	f := c.f
	f.mu.Lock()
	if f.open[c.key] != c {
		f.mu.Unlock()
		return // cancelled while its agent file was read
	}
	c.waiter = f.nextWaiter()
	c.stage = callSubmitting
	f.waiters[c.waiter] = c
	f.mu.Unlock()

	if c.tasks && req.run && !req.background {
		req.background, req.task = true, true
		c.task = true
		c.prog.end() // a task has no progress
	}
	req.correlation, req.approvals = f.correlation(c.waiter), c.approvers(&req)
	f.submit(req, c.waiter)

	f.mu.Lock()
	c.stage = callSubmitted
	cancelled := c.cancelled
	f.mu.Unlock()
	if cancelled { // an earlier cancel would have met a hub that didn't know the waiter
		f.cancel(c.waiter)
	}
}

// approvers is who can be asked during the call's turn, for the agent to know: the client's user if the client can put
// questions, and for background work its caller, who decides with agent_approve.
func (c *mcpCall) approvers(req *turnRequest) string {
	elicits := c.elicits
	if l := c.f.legacy.Load(); !c.modern && l != nil {
		elicits = l.elicits
	}
	switch {
	case req.background && !(req.task && elicits): // of a task tasks/get asks
		return "caller"
	case elicits:
		return "client"
	}
	return ""
}

// reply answers the request with a result, unless it was answered or cancelled before.
func (c *mcpCall) reply(result json.RawMessage) { c.finish(result, nil) }

// replyModern answers the request with a complete result of the 2026 revision.
func (c *mcpCall) replyModern(result map[string]any) {
	result["resultType"], result["_meta"] = "complete", c.f.modernMeta()
	c.reply(toJSON(result))
}

// fail answers the request with an error in the form of its era: in the modern one an error of ours is a tool's result,
// since the 2026 revision forbids the codes of NFR-6.
func (c *mcpCall) fail(e *rpcError) { c.finish(c.failure(e)) }

func (c *mcpCall) finish(result json.RawMessage, e *rpcError) {
	c.f.mu.Lock()
	open := c.f.forgetLocked(c)
	c.f.mu.Unlock()
	if open {
		c.send(result, e)
	}
}

// send writes the answer of a request that was just taken out of the open ones.
func (c *mcpCall) send(result json.RawMessage, e *rpcError) {
	f := c.f
	c.prog.end() // before the answer: no progress may follow it
	if f.Log.Enabled(context.Background(), slog.LevelDebug) {
		f.Log.Debug("answered", "request", string(c.id), "correlation", f.correlation(c.waiter), "failed", e != nil,
			"latency_ms", time.Since(c.since).Milliseconds())
	}
	f.p.put(f.p.response(c.id, result, e), keepAlways)
}

// showProgress begins the progress of a call whose client gave a token.
func (c *mcpCall) showProgress(p mcpParams) {
	token := rawField(p.meta, "progressToken")
	if rawKind(token) != '"' && rawKind(token) != '0' {
		return
	}
	g := newProgress(c.f.p, token)
	c.f.mu.Lock()
	c.prog = g
	c.f.mu.Unlock()
}

// onCancel lets the client's cancel end what was begun for the call, which may be cancelled, or answered, by now.
func (c *mcpCall) onCancel(stop func()) {
	c.f.mu.Lock()
	gone := c.f.open[c.key] != c
	c.stop = stop
	c.f.mu.Unlock()
	if gone {
		stop()
	}
}

// work runs what waits for something off the reading goroutine.
func (c *mcpCall) work(do func()) *rpcError {
	if !c.f.jobs.spawn(do) {
		return shuttingDown()
	}
	return nil
}

func shuttingDown() *rpcError {
	return proxyError(codeSessionClosed, "this server is shutting down and takes no new calls")
}

// toolResult is the result of a tools/call.
type toolResult struct {
	Type       string         `json:"resultType,omitempty"` // modern only
	Content    []textBlock    `json:"content"`
	Structured any            `json:"structuredContent,omitempty"`
	IsError    bool           `json:"isError,omitempty"`
	Meta       map[string]any `json:"_meta,omitempty"` // modern only
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// end answers the call of a tool: with what the tool tells, or with an error in the form of the era.
func (c *mcpCall) end(e *rpcError, structured any, texts ...string) {
	if e != nil {
		c.fail(e)
		return
	}
	c.reply(c.toolAnswer(false, structured, texts...))
}

// toolAnswer is the result of a tool, with a line about the client's own unread
// mail: Claude Code shows its lead none while no native teammate runs (2.1.329).
func (c *mcpCall) toolAnswer(isError bool, structured any, texts ...string) json.RawMessage {
	var own mailBox
	if c.f.ownMail != nil {
		own = c.f.ownMail()
	}
	if own.Unread > 0 {
		line := fmt.Sprintf("You (%s) have %s: atm_read {} brings your mail.", own.Name,
			counted(own.Unread, "unread message"))
		raw := slices.Clip(bytes.TrimSuffix(toJSON(structured), []byte("}")))
		structured = json.RawMessage(fmt.Appendf(raw, `,"your_mail":%s}`, toJSON(line)))
		texts = append(texts, line)
	}
	return c.plainAnswer(isError, structured, texts...)
}

// plainAnswer is the result of a tool without a line about mail.
func (c *mcpCall) plainAnswer(isError bool, structured any, texts ...string) json.RawMessage {
	r := toolResult{Structured: structured, IsError: isError}
	if n := c.f.Names; n != nil {
		r.Structured = n.fields(toJSON(structured), listed)
	}
	for _, t := range texts {
		r.Content = append(r.Content, textBlock{"text", t})
	}
	if c.modern {
		r.Type, r.Meta = "complete", c.f.modernMeta()
	}
	return toJSON(r)
}

// failure is an error in the form of the call's era. What breaks the protocol is a JSON-RPC error in both.
func (c *mcpCall) failure(e *rpcError) (json.RawMessage, *rpcError) {
	e = c.f.Names.error(e)
	if c.modern && !protocolCode(e) {
		return c.plainAnswer(true, errorResult{shownError(e)}, e.Message), nil
	}
	return nil, e
}

// protocolCode reports an error of the protocol. Ours and the child's have a name in
// the table of NFR-6 or carry an error_source.
func protocolCode(e *rpcError) bool {
	return codeName(e.Code) == "" && rawField(e.Data, "error_source") == nil
}

// modernMeta is the _meta of every modern result.
func (f *mcpFront) modernMeta() map[string]any {
	return map[string]any{metaPrefix + "serverInfo": f.serverInfo()}
}
