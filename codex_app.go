package main

// codex_app.go owns the connection to one `codex app-server`: the handshake, threads opened and resumed, turns with
// their actions and interrupts, what the child asks, the child's end. It implements backend over app-server from 0.104
// to today; sessions call it, and never wait in it. It must send nothing that a version doesn't know, must not send a
// turn twice, and must never take anything but turn/completed of the very turn, or the child's end, for a turn's end.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// appServerOptions say what to run and how long to wait for it. Zero limits mean the defaults.
type appServerOptions struct {
	linkOptions
	// OnNews hears of account/login/completed, account/updated and skills/changed, on the reading goroutine: it must
	// not block.
	OnNews func(method string, params json.RawMessage)

	OpenLimit      time.Duration // thread/start, thread/resume: 60 s, a required MCP server may be slow
	TurnLimit      time.Duration // turn/start: 30 s
	InterruptLimit time.Duration // turn/interrupt: 10 s; before 0.148 it never answers when nothing runs
	CallLimit      time.Duration // everything else: 10 s
	ToolLimit      time.Duration // a tool's result: 60 s; Codex itself waits for ever
}

// appInFlight is how many calls may be open at once: app-server drops requests without an answer in a burst.
const appInFlight = 32

// appServer is one running `codex app-server`.
type appServer struct {
	appCalls
	requests appRequests
	unloads  unloads
	lastIDs  appIDs   // what the last notification was about; only the reading goroutine uses it
	deltas   deltaRun // the last delta that was read in full; only the reading goroutine uses it
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

// newAppServer speaks over pipes. Its reading goroutine ends at the stream's end, after it has told every sink.
func newAppServer(r io.Reader, w io.WriteCloser, c *child, o appServerOptions) *appServer {
	o.OpenLimit = cmp.Or(o.OpenLimit, 60*time.Second)
	o.TurnLimit = cmp.Or(o.TurnLimit, 30*time.Second)
	o.InterruptLimit = cmp.Or(o.InterruptLimit, 10*time.Second)
	o.CallLimit = cmp.Or(o.CallLimit, 10*time.Second)
	o.ToolLimit = cmp.Or(o.ToolLimit, 60*time.Second)
	a := &appServer{appCalls: appCalls{childLink: newChildLink("app-server", w, c, o.linkOptions), o: o}}
	a.answerOf = func(q *openAsk, d decision, c command) any { return answerTo(q, d, c.answers) }
	a.threads = newThreadTable(a.requests.refuse, a.deliver)
	a.requests = appRequests{childLink: a.childLink, threads: a.threads, toolLimit: o.ToolLimit}
	opts := peerOptions{noVersion: true, maxInFlight: appInFlight, quick: a.readDelta, handle: a.handle}
	a.listen(r, w, opts, a.tellEnd)
	return a
}

func (a *appServer) tellEnd(death *childDeath) {
	a.asks.takeEach(func(*openAsk) bool { return true }) // no tool is overdue any more
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
	a.peer.notify("initialized", nil)
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

// open starts or resumes a thread. A pending open whose child dies hears evGone with its op, and no evRefused.
func (a *appServer) open(op opID, spec threadSpec, to func(event)) {
	t := &threadTree{sink: sink{to: to, held: true}, op: op, root: spec.Thread, session: spec.Session,
		servers: rawField(spec.Config, "mcp_servers")}
	if !a.threads.addOpening(t) {
		t.putLast(goneEvent(t.op, t.root, a.dead()))
		return
	}
	method, params := openParams(a.info(), spec)
	call := func() {
		a.callFor(t, method, params, a.o.OpenLimit,
			func(res json.RawMessage, err error) { a.openAnswered(t, spec, res, err) })
	}
	unloaded := a.unloads.await(spec.Thread, t.servers)
	if unloaded == nil {
		call()
		return
	}
	go func() { // ends when the thread has been unloaded, or is overdue, or with the child
		select {
		case <-unloaded:
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
		a.refuseOpen(t, err)
		return
	}
	old, ids, held := a.threads.addTree(t, id)
	if old != nil {
		old.cut()
		a.declineAsks(ids...)
	}
	o := &openedThread{model: stringField(res, "model"), effort: stringField(res, "reasoningEffort"),
		plans:   stringField(res, "collaborationMode", "mode") == collabPlan,
		name:    clipUTF8(stringField(res, "thread", "name"), maxPreview),
		preview: clipUTF8(stringField(res, "thread", "preview"), maxPreview)}
	ready := func() {
		t.markOpened()
		t.release(event{kind: evOpened, op: t.op, thread: id, must: true, opened: o})
	}
	if spec.Recover && spec.Thread != "" {
		a.follow(a.threads.replay(t, held))
		a.recover(t, rawField(res, "thread"), ready)
		return
	}
	ready()
	a.follow(a.threads.replay(t, held))
}

func (a *appServer) refuseOpen(t *threadTree, err error) {
	a.threads.forget(t)
	t.putLast(refused(t.op, t.root, err))
}

// recover stops what may still run in a thread that is opened again, before anybody hears that it is open.
func (a *appServer) recover(t *threadTree, thread json.RawMessage, ready func()) {
	turn, idle := idleOf(thread)
	if run := a.threads.runningTurn(t.root); run != "" {
		turn, idle = run, false
	}
	if idle && !a.info().atLeast(148) {
		ready() // an interrupt of nothing would never be answered
		return
	}
	ends := t.watchEnds()
	answered := make(chan error, 1)
	a.callFor(t, "turn/interrupt", turnRef{t.root, turn}.params(), a.o.InterruptLimit,
		func(_ json.RawMessage, err error) { answered <- err })
	a.callEach(t, methodClean, []string{t.root})
	// A goroutine, since the reader must read the answer: it ends with the answer and the turn's end, or the limit.
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
				why := fmt.Sprintf("an earlier turn of thread %s still runs and could not be stopped within %v",
					t.root, a.o.InterruptLimit)
				a.refuseOpen(t, &backendError{Timeout: true, Message: why})
				return
			}
		}
	}()
}

// callFor calls for a session's tree, nil where nobody has it any more.
func (a *appServer) callFor(t *threadTree, method string, params any, limit time.Duration,
	done func(json.RawMessage, error)) {
	session := ""
	if t != nil {
		session = t.session
	}
	a.callChild(session, method, params, limit, done)
}

func (a *appServer) do(op opID, thread string, c command) {
	switch c.kind {
	case cmdTurn:
		a.startTurn(op, thread, c)
	case cmdSteer:
		a.steer(op, thread, c)
	case cmdInterrupt:
		a.interrupt(op, thread, c.turn)
	case cmdClean:
		t, threads := a.threads.threadsOf(thread)
		a.callEach(t, methodClean, threads)
	case cmdUnload:
		a.unload(thread)
	case cmdAnswer:
		a.decide(c)
	case cmdToolResult:
		a.requests.answerTool(c.ask, c.text, c.ok)
	}
}

// startTurn starts a turn. What the session hears: evStarted with the id that turn/start returned, or evRefused;
// unknown when it was sent and not answered: then it is interrupted, and never sent again. When the child dies it hears
// evGone and nothing about the op.
func (a *appServer) startTurn(op opID, thread string, c command) {
	t, busy := a.threads.callTurn(thread, op, c.action)
	if t == nil {
		a.log.Debug("turn for a thread that is not open", "thread", thread)
		return
	}
	if busy != "" {
		t.put(refused(op, thread, fmt.Errorf("thread %s still runs turn %s: interrupt it and wait for its end", thread,
			busy)))
		return
	}
	if c.action == actCompact {
		a.compact(t, op, thread, c)
		return
	}
	params := settingsParams(a.info(), thread, c)
	params["input"] = turnInput(c)
	if c.schema != nil {
		params["outputSchema"] = c.schema
	}
	if c.settings.Collaboration != "" {
		params["collaborationMode"] = collaborationMode(a.info(), c.settings)
	}
	a.callFor(t, "turn/start", params, a.o.TurnLimit,
		func(res json.RawMessage, err error) { a.turnAnswered(t, op, thread, res, err) })
}

// steer adds to what the running turn was asked. Codex answers once the turn has it, before it tells of the turn's end.
func (a *appServer) steer(op opID, thread string, c command) {
	t := a.threads.owner(thread)
	if t == nil {
		return
	}
	params := map[string]any{"threadId": thread, "expectedTurnId": c.turn, "input": turnInput(c)}
	a.callFor(t, "turn/steer", params, a.o.CallLimit, func(_ json.RawMessage, err error) {
		e := event{kind: evSteered, op: op, thread: thread, must: true}
		switch {
		case err == errPeerGone:
			return // evGone follows
		case err != nil:
			e = refused(op, thread, err)
		}
		e.turn = c.turn
		t.put(e)
	})
}

func (a *appServer) turnAnswered(t *threadTree, op opID, thread string, res json.RawMessage, err error) {
	if err == errPeerGone {
		return // evGone follows
	}
	turn := stringField(res, "turn", "id")
	outcome := event{kind: evStarted, op: op, thread: thread, turn: turn, must: true}
	switch {
	case err != nil:
		outcome = refused(op, thread, err)
	case turn == "":
		outcome = refused(op, thread, &backendError{Message: "Codex started a turn and gave no id"})
		outcome.unknown = true
	}
	events, stopped := t.answerTurn(turn, outcome)
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
	for _, r := range a.threads.markInterrupted(thread, turn, cleans) {
		a.stopTurn(op, r, r.thread != thread)
	}
	if cleans {
		t, threads := a.threads.threadsOf(thread)
		a.callEach(t, methodClean, threads)
	}
}

// stopTurn interrupts a turn. again: it is not to be tried a second time.
func (a *appServer) stopTurn(op opID, r turnRef, again bool) {
	t := a.threads.owner(r.thread)
	a.callFor(t, "turn/interrupt", r.params(), a.o.InterruptLimit, func(_ json.RawMessage, err error) {
		if err == nil || err == errPeerGone {
			return
		}
		run := a.threads.runningTurn(r.thread)
		var re *rpcError
		saidNo := errors.As(err, &re)
		if run == "" {
			// It ended meanwhile, or nothing ran: before 0.158 that is not answered.
			if saidNo {
				if t := a.threads.endLostTurn(r.thread); t != nil {
					t.put(event{kind: evEnded, thread: r.thread, must: true, status: "interrupted"})
				}
			}
			return
		}
		if saidNo && !again {
			a.stopTurn(op, turnRef{r.thread, run}, true) // refused, since it had not begun when we asked
			return
		}
		a.log.Warn("codex did not stop a turn", "thread", r.thread, "turn", run, "error", err)
		if t := a.threads.owner(r.thread); t != nil && op != 0 {
			e := refused(op, r.thread, err)
			e.turn = run
			t.put(e)
		}
	})
}

// methodClean ends the background terminals of a thread. A version without the method says so, and nobody cares.
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

// unload frees the threads of a tree. 0.104 has nothing for that but archive, which moves the rollout away so that the
// thread can't be resumed any more: there the thread stays loaded, which costs a little memory and nothing else.
func (a *appServer) unload(thread string) {
	t, ids := a.threads.removeTree(thread)
	if t == nil {
		return
	}
	t.cut()
	a.declineAsks(ids...)
	if !a.info().atLeast(148) {
		return
	}
	if a.info().atLeast(158) { // 0.153 opens it with what it is told at once, and tells no thread/closed
		a.unloads.start(t.root, t.servers)
	}
	a.callEach(t, "thread/unsubscribe", ids)
}

// unloads are the threads that the child was asked to unload and has still: Codex
// (0.169) opens a thread that is still loaded with the MCP servers that it has.
type unloads struct {
	mu      sync.Mutex // guards the field below
	threads map[string]*unloadingThread
}

type unloadingThread struct {
	servers []byte        // the MCP servers that it runs with, JSON
	gone    chan struct{} // closed when it is loaded no more, or overdue
}

const unloadLimit = 5 * time.Second

func (u *unloads) start(thread string, servers []byte) {
	th := &unloadingThread{servers: servers, gone: make(chan struct{})}
	u.mu.Lock()
	if u.threads == nil {
		u.threads = map[string]*unloadingThread{}
	}
	u.threads[thread] = th
	u.mu.Unlock()
	time.AfterFunc(unloadLimit, func() { u.end(thread, th) })
}

// end notes that a thread is loaded no more. With only, that counts for this
// unloading alone; nil is whichever there is.
func (u *unloads) end(thread string, only *unloadingThread) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if th := u.threads[thread]; th != nil && (only == nil || th == only) {
		delete(u.threads, thread)
		close(th.gone)
	}
}

// await is what the opening of a thread with these MCP servers has to wait for, nil for nothing.
func (u *unloads) await(thread string, servers []byte) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	th := u.threads[thread]
	switch {
	case th == nil:
		return nil
	case bytes.Equal(th.servers, servers):
		delete(u.threads, thread) // the thread stays loaded
		return nil
	}
	return th.gone
}

// handle is called by the reader for every notification and request.
func (a *appServer) handle(m *message) {
	if m.isRequest() {
		a.requests.handle(m)
		return
	}
	if strings.HasPrefix(m.method, "codex/event/") { // 0.104's second voice; all else comes in the first too
		for _, e := range oldServerEvents(m) {
			a.route(e)
		}
		return
	}
	if m.method == "thread/closed" {
		a.unloads.end(stringField(m.params, "threadId"), nil)
	}
	if a.opts.OnLimits != nil && m.method == "account/rateLimits/updated" {
		a.opts.OnLimits(rawField(m.params, "rateLimits"))
	}
	if a.o.OnNews != nil && (m.method == mLoginDone || m.method == mAccount || m.method == mSkills) {
		a.o.OnNews(m.method, m.params)
	}
	e := a.lastIDs.event(m.method, m.params)
	a.deltas.learn(&e)
	a.route(e)
}

// readDelta takes a record that is a delta like the last one.
func (a *appServer) readDelta(rec []byte) bool {
	e, ok := a.deltas.same(rec)
	if ok {
		a.route(e)
	}
	return ok
}

// route finds whose an event is.
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
	a.follow(a.threads.assign(e))
}

func (a *appServer) follow(out []delivery) {
	for _, d := range out {
		a.deliver(d)
	}
}

// deliver gives a session what is its own. On the reading goroutine, but for the
// end of a turn whose shells take long to die.
func (a *appServer) deliver(d delivery) {
	switch {
	case d.req != nil:
		a.requests.handle(d.req)
		return
	case d.stop.turn != "":
		a.stopTurn(0, d.stop, true)
		return
	}
	if d.e.method == "serverRequest/resolved" { // here, since both the request and this may have been held
		if q := a.asks.withdraw(rawField(d.e.raw, "requestId")); q != nil {
			d.e.kind, d.e.must, d.e.turn, d.e.ask = evAskGone, true, q.turn, goneAsk(q).ask
		}
	}
	if d.e.method == "turn/completed" {
		for _, q := range a.asks.takeTurn(d.e.thread, d.e.turn) {
			d.t.put(goneAsk(q))
		}
		if d.e.kind == evRaw {
			a.log.Debug("end of a turn that is not the session's", "thread", d.e.thread, "turn", d.e.turn)
		}
	}
	d.t.put(d.e)
}

// compact asks for a compaction, which takes no settings: from 0.148 on they are those of the last turn, so they are
// sent before it.
func (a *appServer) compact(t *threadTree, op opID, thread string, c command) {
	ask := func() {
		if !t.stillCalls(op) {
			return // the session let go of the thread meanwhile
		}
		a.callFor(t, "thread/compact/start", map[string]any{"threadId": thread}, a.o.TurnLimit,
			func(_ json.RawMessage, err error) { a.compactAnswered(t, op, thread, err) })
	}
	if !a.info().atLeast(148) {
		ask()
		return
	}
	settings := settingsParams(a.info(), thread, c)
	a.callFor(t, "thread/settings/update", settings, a.o.CallLimit, func(_ json.RawMessage, err error) {
		switch {
		case err == nil, methodMissing(err): // it runs nothing that settings could keep from anything
			ask()
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
// first word of the compaction does (trackCompactionLocked). Without one it was not begun.
func (a *appServer) compactAnswered(t *threadTree, op opID, thread string, err error) {
	if err != nil {
		a.turnAnswered(t, op, thread, nil, err)
		return
	}
	time.AfterFunc(a.o.TurnLimit, func() { a.turnAnswered(t, op, thread, nil, errCallTimeout) })
}
