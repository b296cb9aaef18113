package main

// mcp.go owns the MCP front: the client's stream, the requests that are open
// on it, and the way from a method to its answer, in both eras of the protocol
// at once. The composition root makes one, gives it the hub's functions and
// calls run; the hub calls it back as a front. It must never wait on the
// reading goroutine, answer a request twice, or answer one that its client
// cancelled.

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mcpOptions are fixed before run is called.
type mcpOptions struct {
	R             io.Reader
	W             io.Writer
	Log           *slog.Logger
	Version       string // ours
	ForwardEvents string // auto, on, off (FR-19)
	DefaultCwd    string // what a relative agent_file resolves against when the call has no cwd
	Trace         func(dir string, rec []byte)
	Deaf          func() // the client has closed its reading side; may be nil

	// The hub. session_hub.go says what each of them promises.
	submit   func(req turnRequest, w waiterID)
	cancel   func(w waiterID, detach bool)
	decide   func(ask string, by decider, d decision, answers map[string][]string) bool
	close    func(ref, correlation string, done func(closeResult, *rpcError))
	sessions func(limit int) []sessionView
	status   func() statusView
	// interrupt, wait and approve answer from another goroutine, once; turn
	// reads the disk.
	interrupt func(ref, turn string, done func(interruptResult, *rpcError))
	wait      func(q waitQuery, done func(waitResult, *rpcError)) (stop func())
	approve   func(q approveQuery, done func(decision, *rpcError))
	turn      func(ref, turn string) (keptTurn, *rpcError)
	// mailAs reads the disk, atm waits for inboxes; setMail answers from
	// another goroutine, once.
	mailAs  func(ref, inbox string) (atmCaller, *rpcError)
	atm     func(ctx context.Context, who atmCaller, tool string, args json.RawMessage) (structured any, text string, e *rpcError)
	ownMail func() mailBox // the client's own inbox, as last seen; nil for none
	setMail func(ref string, auto bool, done func(sessionView, *rpcError))
}

// mcpFront serves one MCP client on stdio.
type mcpFront struct {
	mcpOptions
	clientLink
	tools   []tool
	list    json.RawMessage              // the tools as tools/list shows them, made once
	legacy  atomic.Pointer[legacyClient] // nil until an initialize was answered
	lines   callLines                    // of the mail tools
	scratch sync.Pool                    // of *[]byte, in which events are written: every session calls event at once

	mu      sync.Mutex // guards the fields below and those of every call
	open    map[string]*mcpCall
	waiters map[waiterID]*mcpCall
	asks    map[string]*clientAsk
	parked  parking // turns of modern callers that were asked something
	closing bool
}

// scratchMax is how large a buffer for events may be kept.
const scratchMax = 16 << 10

// callStage is how far a request has come on its way to the hub.
type callStage int

const (
	callOpen       callStage = iota // not with the hub: nothing to cancel there
	callSubmitting                  // submit is being called: a cancel waits for its return
	callSubmitted                   // the hub knows the waiter
)

// mcpCall is one open request of the client.
type mcpCall struct {
	id     json.RawMessage
	key    string
	modern bool
	since  time.Time
	prog   *progress // nil: the client gave no token
	listen bool      // a subscriptions/listen, answered at shutdown

	elicits bool            // modern: its client can be asked
	tasks   bool            // modern: its client takes a task for an answer
	task    bool            // it is answered with one
	tool    string          // with args: what a retry must repeat
	args    json.RawMessage // as they came
	binds   callBinding     // of both, once bound
	bound   bool

	waiter    waiterID
	stage     callStage
	cancelled bool // while it was being submitted
	detach    bool
	stop      func() // ends what runs for a call that is no turn, nil for others
}

// newMCPFront starts the writing goroutine of the client's stream; shutdown
// ends it.
func newMCPFront(o mcpOptions) *mcpFront {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &mcpFront{
		mcpOptions: o,
		tools:      toolTable(),
		open:       map[string]*mcpCall{},
		waiters:    map[waiterID]*mcpCall{},
		asks:       map[string]*clientAsk{},
		parked:     newParking(),
	}
	f.list = toolList(f.tools)
	f.connect("mcp", o.R, o.W, o.Log, o.Deaf, peerOptions{
		handle: f.dispatch,
		trace:  o.Trace,
	})
	return f
}

// shutdown answers the open subscriptions, lets what was spawned finish and
// flushes, all within grace. The hub has answered its waiters before.
func (f *mcpFront) shutdown(grace time.Duration) {
	until := time.Now().Add(grace)
	f.stopWork()
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
		f.finish(c, f.listenResult(c), nil)
	}
	f.waitWork(grace)
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
		switch m.method {
		case "notifications/cancelled":
			f.cancelled(m.params)
		default: // initialized, roots/list_changed and all we don't know: nothing to do
		}
		return
	}
	c := &mcpCall{id: m.id, key: idKey(m.id), since: time.Now()}
	if !f.begin(c) {
		f.p.replyError(m.id, idInUse(m.id))
		return
	}
	p, e := readParams(m.params)
	c.modern, c.elicits, c.tasks = p.modern, p.elicits, p.tasks
	if e != nil {
		f.finish(c, nil, e)
		return
	}
	switch m.method {
	case "initialize":
		if c.modern {
			f.finish(c, nil, noMethod("initialize was removed in "+modernVersion+", whose _meta this request has: call server/discover, or send it without that _meta ("+
				strings.Join(mcpVersions()[1:], ", ")+")"))
			return
		}
		f.initialize(c, m.params)
	case "ping":
		if c.modern {
			f.finish(c, nil, noMethod("ping was removed in "+modernVersion))
			return
		}
		f.finish(c, json.RawMessage("{}"), nil)
	case "server/discover":
		f.discover(c)
	case "subscriptions/listen":
		if !c.modern {
			f.finish(c, nil, noMethod(m.method+" exists in "+modernVersion+" only"))
			return
		}
		f.listenTo(c, m.params)
	case "tools/list", "tools/call":
		if !c.modern && f.legacy.Load() == nil {
			f.finish(c, nil, notInitialized(m.method))
			return
		}
		if m.method == "tools/call" {
			f.callTool(c, p)
			return
		}
		if cursor, ok := rawString(p.cursor); !isNull(p.cursor) && !ok || cursor != "" {
			f.finish(c, nil, badParams("cursor %s is not one of ours: all tools are on one page", p.cursor))
			return
		}
		f.finish(c, f.toolsResult(c.modern), nil)
	case "tasks/get", "tasks/update", "tasks/cancel":
		f.taskMethod(c, m.method, m.params)
	default:
		f.finish(c, nil, noMethod(m.method))
	}
}

// begin makes a request open. false: its id is in use.
func (f *mcpFront) begin(c *mcpCall) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[c.key] != nil {
		return false
	}
	f.open[c.key] = c
	return true
}

// finish answers a request, unless it was answered or cancelled before.
func (f *mcpFront) finish(c *mcpCall, result json.RawMessage, e *rpcError) {
	f.mu.Lock()
	open := f.forgetLocked(c)
	f.mu.Unlock()
	if open {
		f.answer(c, result, e)
	}
}

// answer sends the answer to a request that was just taken out of the open
// ones.
func (f *mcpFront) answer(c *mcpCall, result json.RawMessage, e *rpcError) {
	c.prog.end() // before the answer: no progress may follow it
	if f.Log.Enabled(context.Background(), slog.LevelDebug) {
		f.Log.Debug("answered", "request", string(c.id), "correlation", f.correlation(c.waiter), "failed", e != nil, "latency_ms", time.Since(c.since).Milliseconds())
	}
	f.p.write(f.p.response(c.id, result, e), false)
}

func (f *mcpFront) forgetLocked(c *mcpCall) bool {
	if f.open[c.key] != c {
		return false
	}
	delete(f.open, c.key)
	delete(f.waiters, c.waiter)
	return true
}

// cancelled retires a request without an answer: MCP forbids a late one. The
// turn of a client that merely timed out goes on (Claude Code: "SdkError:
// Request timed out"); its result is kept with its session.
func (f *mcpFront) cancelled(params json.RawMessage) {
	key := idKey(rawField(params, "requestId"))
	reason := strings.ToLower(stringField(params, "reason"))
	detach := strings.Contains(reason, "timed out") || strings.Contains(reason, "timeout")
	f.mu.Lock()
	c := f.open[key]
	if c == nil {
		f.mu.Unlock()
		return // answered before, or never ours
	}
	f.forgetLocked(c)
	f.parked.forget(c.waiter)
	stage := c.stage
	c.cancelled, c.detach = true, detach
	stop := c.stop
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.prog.end()
	if stage == callSubmitted {
		f.cancel(c.waiter, detach)
	}
}

// submitCall hands a request to the hub. Two calls made on the reading
// goroutine keep their order.
func (f *mcpFront) submitCall(c *mcpCall, req turnRequest) {
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
		f.makeTask(c, &req)
	}
	req.correlation, req.approvals = f.correlation(c.waiter), f.approvers(c, &req)
	f.submit(req, c.waiter)

	f.mu.Lock()
	c.stage = callSubmitted
	cancelled, detach := c.cancelled, c.detach
	f.mu.Unlock()
	if cancelled { // an earlier cancel would have met a hub that didn't know the waiter
		f.cancel(c.waiter, detach)
	}
}

// caller is the open request of a waiter, nil for none.
func (f *mcpFront) caller(w waiterID) *mcpCall {
	if w == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiters[w]
}

// event implements front: progress for the caller, codex/event for those who
// take it.
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
	*buf = appendCodexEvent((*buf)[:0], a, request, e)
	kept := f.p.put(*buf, worth) // it copies what it keeps
	if cap(*buf) <= scratchMax {
		f.scratch.Put(buf)
	}
	return kept
}

// done implements front: the one answer to a waiter. Where its request was
// answered with input_required, the result waits for the retry.
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
	if c == nil {
		return // parked, or cancelled by its client
	}
	result, e := f.outcome(c, &r)
	f.answer(c, result, e)
}

// outcome is the answer to a call whose waiter was done.
func (f *mcpFront) outcome(c *mcpCall, r *turnResult) (json.RawMessage, *rpcError) {
	switch {
	case r.err != nil && c.modern && !protocolCode(r.err):
		return f.errorAnswer(r.err), nil
	case r.err != nil:
		return nil, r.err
	case c.task && (r.TurnStatus == "queued" || r.TurnStatus == "running"):
		return f.taskAnswer(r), nil
	}
	return f.turnAnswer(r, c.modern), nil
}
