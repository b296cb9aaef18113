package main

// codex_app.go owns the connection to one `codex app-server`: the handshake,
// threads opened and resumed, turns with their actions and interrupts, what the
// child asks, the child's end. It implements backend over app-server from 0.104
// to today; sessions call it, and never wait in it. It must send nothing that a
// version doesn't know, must not send a turn twice, and must never take anything
// but turn/completed of the very turn, or the child's end, for a turn's end.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// appServerOptions say what to run and how long to wait for it. Zero limits
// mean the defaults.
type appServerOptions struct {
	linkOptions
	// OnAccount hears of account/login/completed and account/updated, on the
	// reading goroutine: it must not block.
	OnAccount func(method string, params json.RawMessage)

	OpenLimit      time.Duration // thread/start, thread/resume: 60 s, a required MCP server may be slow
	TurnLimit      time.Duration // turn/start: 30 s
	InterruptLimit time.Duration // turn/interrupt: 10 s; before 0.148 it never answers when nothing runs
	CallLimit      time.Duration // everything else: 10 s
	ToolLimit      time.Duration // a tool's result: 60 s; Codex itself waits for ever
}

// appInFlight is how many calls may be open at once: app-server drops requests
// without an answer in a burst.
const appInFlight = 32

// appServer is one running `codex app-server`.
type appServer struct {
	appCalls
	tools   askTable // calls of the sessions' own tools
	lastIDs appIDs   // what the last notification was about; the reading goroutine's
}

// startAppServer runs the child and shakes hands with it. The error is a
// *childDeath, with Never set.
func startAppServer(ctx context.Context, o appServerOptions) (backend, error) {
	c, err := o.start("app-server", false)
	if err != nil {
		return nil, err
	}
	a := newAppServer(c.stdout, c.stdin, c, o)
	if err := a.initialize(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// newAppServer speaks over pipes. Its reading goroutine ends at the stream's
// end, after it has told every sink.
func newAppServer(r io.Reader, w io.WriteCloser, c *child, o appServerOptions) *appServer {
	o.OpenLimit = cmp.Or(o.OpenLimit, 60*time.Second)
	o.TurnLimit = cmp.Or(o.TurnLimit, 30*time.Second)
	o.InterruptLimit = cmp.Or(o.InterruptLimit, 10*time.Second)
	o.CallLimit = cmp.Or(o.CallLimit, 10*time.Second)
	o.ToolLimit = cmp.Or(o.ToolLimit, 60*time.Second)
	a := &appServer{appCalls: appCalls{childLink: newChildLink("app-server", w, c, o.linkOptions), o: o}}
	a.tools.prefix = fmt.Sprintf("tool-%d-", a.inf.pid)
	a.threads = newThreadTable(a.refuseRequest, a.deliver)
	a.listen(r, w, peerOptions{noVersion: true, maxInFlight: appInFlight, handle: a.handle}, a.tellEnd)
	return a
}

// tellEnd tells everybody that the child is gone.
func (a *appServer) tellEnd(death *childDeath) {
	a.tools.takeAll(func(*openAsk) bool { return true })
	for _, t := range a.threads.end() {
		t.putLast(goneEvent(t.op, t.root, death))
	}
}

// initialize is the handshake. On failure the child is ended before it returns.
func (a *appServer) initialize(ctx context.Context) error {
	res, err := a.ask(ctx, "initialize", map[string]any{
		"clientInfo":   map[string]any{"name": appClient, "title": "ATM agent", "version": "1"},
		"capabilities": map[string]any{"experimentalApi": true, "optOutNotificationMethods": oldEventMethods()},
	}, a.opts.InitLimit)
	if err != nil {
		return a.failHandshake(ctx, err)
	}
	a.mu.Lock()
	a.inf.version = versionOf(stringField(res, "userAgent"))
	a.inf.clientTools = a.inf.atLeast(104)
	a.mu.Unlock()
	a.peer.notify("initialized", nil, false)
	return nil
}

// versionOf reads `<our name>/<version> (…` .
func versionOf(userAgent string) string {
	i := strings.LastIndex(userAgent, appClient+"/")
	if i < 0 {
		return ""
	}
	v, _, _ := strings.Cut(userAgent[i+len(appClient)+1:], " ")
	return v
}

// open starts or resumes a thread. A pending open whose child dies hears
// evGone with its op, and no evRefused.
func (a *appServer) open(op opID, spec threadSpec, to func(event)) {
	t := &threadTree{sink: sink{to: to}, op: op, root: spec.Thread, session: spec.Session, servers: rawField(spec.Config, "mcp_servers")}
	if !a.threads.addOpening(t) {
		t.putLast(goneEvent(t.op, t.root, a.dead()))
		return
	}
	method, params := openParams(a.info(), spec)
	call := func() {
		a.callFor(t, method, params, a.o.OpenLimit, func(res json.RawMessage, err error) { a.openAnswered(t, spec, res, err) })
	}
	gone := a.threads.unloadToAwait(spec.Thread, t.servers)
	if gone == nil {
		call()
		return
	}
	go func() { // ends when the thread has been unloaded, or is overdue, or with the child
		select {
		case <-gone:
		case <-a.gone:
		}
		call()
	}()
}

func (a *appServer) openAnswered(t *threadTree, spec threadSpec, res json.RawMessage, err error) {
	if err == errPeerGone {
		return // evGone follows
	}
	id := stringField(res, "thread", "id")
	if err == nil && id == "" {
		err = &rpcError{Code: codeInternal, Message: "Codex opened a thread and gave no id"}
	}
	if err != nil {
		a.refuseOpen(t, event{kind: evRefused, op: t.op, thread: spec.Thread, must: true, err: callError(err), unknown: err == errCallTimeout})
		return
	}
	old, held := a.threads.addTree(t, id)
	if old != nil {
		old.cut()
		a.declineAsks(old)
	}
	o := &openedThread{model: stringField(res, "model"), effort: stringField(res, "reasoningEffort")}
	ready := func() {
		t.put(event{kind: evOpened, op: t.op, thread: id, must: true, opened: o})
		for early := a.threads.markOpened(t); len(early) > 0; early = a.threads.markOpened(t) {
			for _, e := range early {
				t.put(e)
			}
		}
		for _, it := range held {
			if it.req != nil {
				a.handleRequest(it.req)
			} else {
				a.route(it.e)
			}
		}
	}
	if spec.Recover && spec.Thread != "" {
		a.recover(t, rawField(res, "thread"), ready)
		return
	}
	ready()
}

func (a *appServer) refuseOpen(t *threadTree, e event) {
	a.threads.forget(t)
	t.putLast(e)
}

// recover stops what may still run in a thread that is opened again, before
// anybody hears that it is open.
func (a *appServer) recover(t *threadTree, thread json.RawMessage, ready func()) {
	turn, idle := idleOf(thread)
	if run := a.threads.runningTurn(t.root); run != "" {
		turn, idle = run, false
	}
	if idle && !a.info().atLeast(148) {
		ready() // an interrupt of nothing would never be answered
		return
	}
	ends := a.threads.watchEnds(t)
	answered := make(chan error, 1)
	a.callFor(t, "turn/interrupt", turnRef{t.root, turn}.params(), a.o.InterruptLimit, func(_ json.RawMessage, err error) { answered <- err })
	a.callEach(t, methodClean, []string{t.root})
	// A goroutine, since the reader must read the answer: it ends with the
	// answer and the turn's end, or the limit.
	go func() {
		limit := time.NewTimer(a.o.InterruptLimit)
		defer limit.Stop()
		for waiting := !idle; ; {
			select {
			case err := <-answered:
				if err == errPeerGone {
					return
				}
				var re *rpcError
				if !waiting || errors.As(err, &re) { // {} on an idle thread, or "no active turn"
					ready()
					return
				}
				answered = nil
			case <-ends:
				ready()
				return
			case <-a.gone:
				return
			case <-limit.C:
				a.refuseOpen(t, event{kind: evRefused, op: t.op, thread: t.root, must: true, err: &backendError{Timeout: true,
					Message: fmt.Sprintf("an earlier turn of thread %s still runs and could not be stopped within %v", t.root, a.o.InterruptLimit)}})
				return
			}
		}
	}()
}

// callFor calls for a session's tree, nil where nobody has it any more.
func (a *appServer) callFor(t *threadTree, method string, params any, limit time.Duration, done func(json.RawMessage, error)) {
	session := ""
	if t != nil {
		session = t.session
	}
	a.callChild(session, method, params, limit, done)
}

// do sends one command.
func (a *appServer) do(op opID, thread string, c command) {
	switch c.kind {
	case cmdTurn:
		a.startTurn(op, thread, c)
	case cmdInterrupt:
		a.interrupt(op, thread, c.turn)
	case cmdClean:
		t, threads := a.threads.treeOf(thread)
		a.callEach(t, methodClean, threads)
	case cmdUnload:
		a.unload(thread)
	case cmdAnswer:
		if q := a.asks.take(c.ask); q != nil {
			a.answer(q, answerTo(q, q.passed(c.decision), c.answers, a.info()))
		}
	case cmdToolResult:
		a.toolResult(c.ask, c.text, c.ok)
	}
}

// startTurn starts a turn. What the session hears: evStarted with the id that
// turn/start returned, or evRefused; unknown when it was sent and not
// answered: then it is interrupted, and never sent again. When the child dies
// it hears evGone and nothing about the op.
func (a *appServer) startTurn(op opID, thread string, c command) {
	t, busy := a.threads.callTurn(thread, op, c.action)
	if t == nil {
		a.log.Debug("turn for a thread that is not open", "thread", thread)
		return
	}
	if busy != "" {
		t.put(event{kind: evRefused, op: op, thread: thread, must: true, err: &backendError{
			Message: fmt.Sprintf("thread %s still runs turn %s: interrupt it and wait for its end", thread, busy)}})
		return
	}
	if c.action != actPrompt {
		a.startAction(t, op, thread, c)
		return
	}
	a.callFor(t, "turn/start", turnParams(a.info(), thread, c), a.o.TurnLimit, func(res json.RawMessage, err error) { a.turnAnswered(t, op, thread, res, err) })
}

// turnAnswered takes the answer that names the turn.
func (a *appServer) turnAnswered(t *threadTree, op opID, thread string, res json.RawMessage, err error) {
	if err == errPeerGone {
		return // evGone follows
	}
	turn := stringField(res, "turn", "id")
	outcome := event{kind: evStarted, op: op, thread: thread, turn: turn, must: true}
	if err != nil || turn == "" {
		outcome.kind = evRefused
		outcome.unknown = err == errCallTimeout || err == nil
		if outcome.err = (&backendError{Message: "Codex started a turn and gave no id"}); err != nil {
			outcome.err = callError(err)
		}
	}
	events, stopped := a.threads.answerTurn(t, turn, outcome)
	if events == nil {
		return // a compaction that had begun before anybody answered
	}
	for _, e := range events {
		t.put(e)
	}
	if stopped && a.info().atLeast(148) || outcome.unknown { // 0.104 keeps the order of start and interrupt
		a.interrupt(0, thread, turn)
	}
}

// interrupt stops what runs in the tree, and the shells it left running:
// from 0.148 interrupting a turn doesn't end them.
func (a *appServer) interrupt(op opID, thread, turn string) {
	cleans := a.info().atLeast(148)
	stop, threads := a.threads.markInterrupted(thread, turn, cleans)
	for _, r := range stop {
		a.stopTurn(op, r, r.thread != thread)
	}
	if cleans {
		a.callEach(a.threads.owner(thread), methodClean, threads)
	}
}

func (a *appServer) stopTurn(op opID, r turnRef, again bool) {
	a.callFor(a.threads.owner(r.thread), "turn/interrupt", r.params(), a.o.InterruptLimit, func(_ json.RawMessage, err error) {
		if err == nil || err == errPeerGone {
			return
		}
		run := a.threads.runningTurn(r.thread)
		var re *rpcError
		refused := errors.As(err, &re)
		if run == "" {
			// It ended meanwhile, or nothing ran: before 0.158 that is not answered.
			if refused {
				if t := a.threads.endLostTurn(r.thread); t != nil {
					t.put(event{kind: evEnded, thread: r.thread, must: true, status: "interrupted"})
				}
			}
			return
		}
		if refused && !again {
			a.stopTurn(op, turnRef{r.thread, run}, true) // refused, since it had not begun when we asked
			return
		}
		a.log.Warn("codex did not stop a turn", "thread", r.thread, "turn", run, "error", err)
		if t, _ := a.threads.treeOf(r.thread); t != nil && op != 0 {
			t.put(event{kind: evRefused, op: op, thread: r.thread, turn: run, must: true, err: callError(err), unknown: err == errCallTimeout})
		}
	})
}

// methodClean ends the background terminals of a thread. A version without the
// method says so, and nobody cares.
const methodClean = "thread/backgroundTerminals/clean"

// callEach calls a method for each of a tree's threads, where a refusal changes nothing.
func (a *appServer) callEach(t *threadTree, method string, threads []string) {
	for _, id := range threads {
		a.callFor(t, method, map[string]any{"threadId": id}, a.o.CallLimit, func(_ json.RawMessage, err error) {
			if err != nil && err != errPeerGone {
				a.log.Debug("codex refused", "method", method, "thread", id, "error", err)
			}
		})
	}
}

// unload frees the threads of a tree. 0.104 has nothing for that but archive,
// which moves the rollout away so that the thread can't be resumed any more:
// there the thread stays loaded, which costs a little memory and nothing else.
func (a *appServer) unload(thread string) {
	t, ids := a.threads.removeTree(thread)
	if t == nil {
		return
	}
	t.cut()
	a.declineAsks(t)
	if !a.info().atLeast(148) {
		return
	}
	if a.info().atLeast(158) { // 0.153 opens it with what it is told at once, and tells no thread/closed
		a.threads.startUnload(t)
	}
	a.callEach(t, "thread/unsubscribe", ids)
}

// declineAsks declines what a tree that is gone was still asked.
func (a *appServer) declineAsks(t *threadTree) {
	for id := range t.threads {
		for _, q := range a.asks.takeThread(id) {
			a.answer(q, answerTo(q, deny, nil, a.info()))
		}
		for _, q := range a.tools.takeThread(id) {
			a.failTool(q)
		}
	}
}

// handle is called by the reader for every notification and request.
func (a *appServer) handle(m *message) {
	if m.isRequest() {
		a.handleRequest(m)
		return
	}
	if strings.HasPrefix(m.method, "codex/event/") {
		a.oldServerStatus(m) // 0.104's second voice; all else that matters comes in the first too
		return
	}
	if m.method == "thread/closed" {
		a.threads.endUnload(stringField(m.params, "threadId"), nil)
	}
	if a.o.OnAccount != nil && (m.method == mLoginDone || m.method == mAccount) {
		a.o.OnAccount(m.method, m.params)
	}
	a.route(a.lastIDs.event(m.method, m.params))
}

func (a *appServer) route(e event) {
	if e.kind == evDelta {
		if t := a.threads.owner(e.thread); t != nil {
			t.put(e)
			return
		}
	}
	if e.thread == "" {
		if e.kind == evNotice {
			a.log.Info("codex says", "method", e.method, "text", e.text)
		}
		return
	}
	if e.method == "serverRequest/resolved" {
		if q := a.asks.takeRequest(rawField(e.raw, "requestId")); q != nil {
			e.kind, e.must, e.turn, e.ask = evAskGone, true, q.turn, &approval{id: q.id, thread: q.thread, turn: q.turn}
		}
	}
	out, stop := a.threads.assign(e)
	for _, d := range out {
		a.deliver(d)
	}
	for _, r := range stop {
		a.stopTurn(0, r, true)
	}
}

// startAction asks for a compaction or a review. Neither takes settings: from 0.148 on
// they are those of the last turn, so they are sent before it. 0.104 reviews
// under those with which the thread was opened, which is read-only here.
func (a *appServer) startAction(t *threadTree, op opID, thread string, c command) {
	ask := func() {
		if !a.threads.stillCalls(t, op) {
			return // the session let go of the thread meanwhile
		}
		if c.action == actCompact {
			a.callFor(t, "thread/compact/start", map[string]any{"threadId": thread}, a.o.TurnLimit, func(_ json.RawMessage, err error) { a.compactAnswered(t, op, thread, err) })
			return
		}
		a.callFor(t, "review/start", reviewParams(thread, c.prompt), a.o.TurnLimit, func(res json.RawMessage, err error) { a.turnAnswered(t, op, thread, res, err) })
	}
	if !a.info().atLeast(148) {
		ask()
		return
	}
	a.callFor(t, "thread/settings/update", settingsParams(a.info(), thread, c), a.o.CallLimit, func(_ json.RawMessage, err error) {
		switch {
		case err == nil, methodMissing(err) && c.action == actCompact: // which runs nothing
			ask()
		case methodMissing(err):
			a.turnAnswered(t, op, thread, nil, &rpcError{Code: codeInvalidRequest,
				Message: "this Codex " + a.info().version + " can't be told what a review may do; use a newer one, or ask for the review in a prompt"})
		case err == errCallTimeout:
			a.turnAnswered(t, op, thread, nil, errNotSent) // the turn itself wasn't asked for
		default:
			a.turnAnswered(t, op, thread, nil, err)
		}
	})
}

// methodMissing: Codex's way to say that it has no such method.
func methodMissing(err error) bool {
	var e *rpcError
	return errors.As(err, &e) && strings.Contains(e.Message, "unknown variant `thread/settings/update`")
}

// compactAnswered takes the answer to thread/compact/start, which names no turn: the
// first word of the compaction does (trackActionLocked). Without one it was not begun.
func (a *appServer) compactAnswered(t *threadTree, op opID, thread string, err error) {
	if err != nil {
		a.turnAnswered(t, op, thread, nil, err)
		return
	}
	time.AfterFunc(a.o.TurnLimit, func() { a.turnAnswered(t, op, thread, nil, errCallTimeout) })
}

// handleRequest answers what the child asks, or puts it before the session.
func (a *appServer) handleRequest(m *message) {
	q := &openAsk{reqID: m.id, method: m.method, params: m.params, turn: stringField(m.params, "turnId")}
	if q.thread = stringField(m.params, "threadId"); q.thread == "" {
		q.thread = stringField(m.params, "conversationId")
	}
	switch m.method {
	case mCommand, mFileChange, mPermissions, mUserInput, mElicitation, mToolCall:
	case mOldPatch, mOldExec:
		a.refuseRequest(m)
		return
	default:
		a.refuseRequest(m)
		if t := a.threads.owner(q.thread); t != nil {
			t.put(event{kind: evNotice, thread: q.thread, turn: q.turn, must: true, method: m.method, raw: m.params,
				text: fmt.Sprintf("Codex asked %s, which is not known here; it was refused", m.method)})
		}
		return
	}
	th, held := a.threads.claimRequest(q.thread, m)
	if held {
		return
	}
	if th == nil {
		a.refuseRequest(m)
		return
	}
	if m.method == mToolCall {
		a.toolCall(th.tree, m)
		return
	}
	ask := newAsk(q, a.threads.filesOf(th, stringField(m.params, "itemId")))
	if ask.kind == askUnknown {
		a.refuseRequest(m)
		th.tree.put(event{kind: evNotice, thread: q.thread, turn: q.turn, must: true, method: m.method, raw: m.params,
			text: fmt.Sprintf("Codex asked %s (%s), a kind that is not known here; it was declined", m.method, ask.action)})
		return
	}
	ask.subagent = a.threads.subagentOf(th)
	if !a.asks.add(q, ask) {
		a.log.Debug("codex asks again what it waits for", "thread", q.thread, "turn", q.turn, "item", ask.item)
		return
	}
	th.tree.put(event{kind: evAsk, thread: q.thread, turn: q.turn, item: ask.item, must: true, ask: ask, method: m.method, raw: m.params})
	if a.threads.owner(q.thread) == th.tree {
		return
	}
	// The session unloaded its thread meanwhile and may have declined what was
	// asked before this was: nobody hears of it, and the child waits.
	if q := a.asks.take(ask.id); q != nil {
		a.answer(q, answerTo(q, deny, nil, a.info()))
	}
}

// refuseRequest declines a request at once, in its own words if there are any.
func (a *appServer) refuseRequest(m *message) {
	q := &openAsk{method: m.method, params: m.params}
	if result := answerTo(q, deny, nil, a.info()); result != nil {
		a.peer.reply(m.id, result)
		return
	}
	a.peer.replyError(m.id, &rpcError{Code: codeNoMethod, Message: fmt.Sprintf("%s does not know the request %q", appClient, m.method)})
}

// deliver gives a session what is its own. On the reading goroutine, but for the
// end of a turn whose shells take long to die.
func (a *appServer) deliver(d delivery) {
	switch {
	case d.req != nil:
		a.handleRequest(d.req)
		return
	case d.e.method == "turn/completed":
		for _, q := range a.asks.takeTurn(d.e.thread, d.e.turn) {
			d.t.put(goneAsk(q))
		}
		if d.e.kind == evRaw {
			a.log.Debug("end of a turn that is not the session's", "thread", d.e.thread, "turn", d.e.turn)
		}
	}
	d.t.put(d.e)
}

// toolCall puts a call before the session that owns the tree, a subagent's too
// (of which no version makes any yet): a subagent acts as its parent. The call is
// answered once: by the session, or with an error text when the session is gone
// or takes too long, since Codex itself waits for ever. An error of the protocol
// would tell the model no more than "dynamic tool request failed".
func (a *appServer) toolCall(t *threadTree, m *message) {
	q := &openAsk{reqID: m.id, method: m.method, thread: stringField(m.params, "threadId"), turn: stringField(m.params, "turnId"), params: m.params}
	q.timer = time.AfterFunc(a.o.ToolLimit, func() { a.toolOverdue(q) })
	call := &toolCall{name: q.toolName(), args: rawField(m.params, "arguments")}
	if !a.tools.add(q, &approval{}) {
		q.timer.Stop()
		return
	}
	call.id = q.id
	t.put(event{kind: evTool, thread: q.thread, turn: q.turn, item: stringField(m.params, "callId"), must: true, tool: call, method: m.method, raw: m.params})
	if a.threads.owner(q.thread) != t { // unloaded meanwhile: nobody heard of the call
		a.failTool(a.tools.take(call.id))
	}
}

// toolResult answers a call; a second answer is dropped.
func (a *appServer) toolResult(id, text string, ok bool) {
	if q := a.tools.take(id); q != nil {
		a.peer.reply(q.reqID, toolAnswer(text, ok))
	}
}

// toolOverdue answers a call that the session did not answer in time.
func (a *appServer) toolOverdue(q *openAsk) {
	if len(a.tools.takeAll(func(open *openAsk) bool { return open == q })) == 0 || a.dead() != nil {
		return
	}
	a.log.Warn("a tool of the agent was not answered in time", "tool", q.toolName(), "thread", q.thread, "limit", a.o.ToolLimit)
	a.peer.reply(q.reqID, toolAnswer(fmt.Sprintf("%s had no result within %s; it may or may not have been done, so look before you call it again", q.toolName(), a.o.ToolLimit), false))
}

// failTool answers the call of a thread whose session is gone; nil is nothing to answer.
func (a *appServer) failTool(q *openAsk) {
	if q != nil {
		a.peer.reply(q.reqID, toolAnswer("the session of this agent has ended, so "+q.toolName()+" can't be answered", false))
	}
}
