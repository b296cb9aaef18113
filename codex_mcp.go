package main

// codex_mcp.go owns the connection to one `codex mcp-server`, of Codex 0.104 to
// 0.153, and its threads: the handshake, the calls of its two tools, cancels, answers, when a turn ends, the child's
// end. It implements backend; sessions call it and never wait in it. Events by thread id are the truth; a response only
// says that a call is over, since after a cancel it comes under either call's id. It must never have two calls open for
// turns of one thread (they become one, and one caller waits for good), nor answer an elicitation with an error (which
// hangs the turn).

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// mcpServerOptions say what to run and how long to wait for it. Zero limits mean the defaults.
type mcpServerOptions struct {
	linkOptions
	Home string // CODEX_HOME, whose config.toml is read

	StartLimit  time.Duration // a call until task_started: 60 s, 0.104 waits for slow MCP servers
	CancelPause time.Duration // a cancel is sent again after this: 500 ms
}

// cancelTries is how often a cancel is sent: the first may come before Codex has registered the turn, and is then lost.
const cancelTries = 10

// mcpServer is one running `codex mcp-server`. The link's lock guards the
// fields below o too, and everything in a mcpThread but its sink.
type mcpServer struct {
	*childLink
	o mcpServerOptions

	schema  mcpSchema
	threads map[string]*mcpThread // by name, and by id once there is one
	calls   map[int64]*mcpThread  // whose the calls without a response are
	made    int                   // threads named so far
}

// startMCPServer runs the child and shakes hands with it. The error is a
// *childDeath, with Never set.
func startMCPServer(ctx context.Context, o mcpServerOptions) (backend, error) {
	// With a cancelled call open it doesn't end by EOF, so the kernel tells it of our death.
	c, err := o.start("mcp-server", true)
	if err != nil {
		return nil, err
	}
	m := newMCPServer(c.stdout, c.stdin, c, o)
	if err := m.initialize(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// newMCPServer speaks over pipes. Its reading goroutine ends at the stream's end, after it has told every sink.
func newMCPServer(r io.Reader, w io.WriteCloser, c *child, o mcpServerOptions) *mcpServer {
	o.StartLimit = cmp.Or(o.StartLimit, 60*time.Second)
	o.CancelPause = cmp.Or(o.CancelPause, 500*time.Millisecond)
	m := &mcpServer{childLink: newChildLink("mcp-server", w, c, o.linkOptions), o: o,
		threads: map[string]*mcpThread{}, calls: map[int64]*mcpThread{}}
	m.answerOf = func(q *openAsk, d decision, c command) any { return elicitationReply(m.info(), d, c.why, q.rule) }
	m.listen(r, w, peerOptions{handle: m.handle}, m.tellEnd)
	return m
}

func (m *mcpServer) tellEnd(death *childDeath) {
	last := map[*sink]event{} // a thread is there under its name and its id
	m.mu.Lock()
	for _, th := range m.threads {
		th.stopTimer()
		if th.sink != nil {
			last[th.sink] = goneEvent(th.op, th.shownID(), death)
		}
	}
	m.mu.Unlock()
	for s, e := range last {
		s.putLast(e)
	}
}

// put tells the session that has a thread, if one has it. The thread's id is filled in.
func (m *mcpServer) put(th *mcpThread, e event) {
	m.mu.Lock()
	s := th.sink
	e.thread = th.shownID()
	m.mu.Unlock()
	if s != nil {
		s.put(e)
	}
}

// initialize is the handshake. On failure the child is ended before it returns.
func (m *mcpServer) initialize(ctx context.Context) error {
	res, err := m.ask(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-03-26",
		"capabilities":    map[string]any{"elicitation": map[string]any{}},
		"clientInfo":      map[string]any{"name": appClient, "title": "ATM agent", "version": "1"},
	}, m.opts.InitLimit)
	if err != nil {
		return m.failHandshake(ctx, err)
	}
	m.peer.notify("notifications/initialized", nil)
	list, err := m.ask(ctx, "tools/list", map[string]any{}, m.opts.InitLimit)
	schema := readMCPSchema(list)
	if err == nil && !(schema.codex && schema.reply) {
		err = errors.New("it has not both of the tools codex and codex-reply")
	}
	if err != nil {
		return m.failHandshake(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.schema, m.inf.version = schema, stringField(res, "serverInfo", "version")
	return nil
}

// stop ends the child and returns when every sink has heard of it. At EOF it lets open calls finish, and those of
// cancelled turns never do: then TERM is the way, of which it dies in milliseconds with its shells.
func (m *mcpServer) stop(grace time.Duration) {
	m.mu.Lock()
	waits := len(m.calls) > 0
	m.mu.Unlock()
	if waits && m.child != nil {
		m.child.term()
	}
	m.childLink.stop(grace)
}

// catalog has the user's configuration, from its file; Codex can't be asked.
func (m *mcpServer) catalog(_ context.Context, what, _ string) (json.RawMessage, error) {
	if what != "config" {
		return nil, fmt.Errorf("codex mcp-server has no catalog %q", what)
	}
	return readCodexConfig(m.o.Home)
}

// change changes nothing: mcp-server has no methods for that.
func (m *mcpServer) change(context.Context, string, any) (json.RawMessage, error) {
	return nil, &backendError{Message: "codex mcp-server has no method for that; codex app-server has, which " +
		"backend = \"auto\" in the configuration takes, and `codex login` in a terminal logs in"}
}

func (m *mcpServer) history(context.Context, string, func(*event) error) error {
	return errors.New("codex mcp-server doesn't tell the past turns of a thread")
}

// open makes a place for a new thread, which Codex makes with its first turn,
// or takes up one that this child still has. It can't bring back any other.
func (m *mcpServer) open(op opID, spec threadSpec, to func(event)) {
	s := &sink{to: to}
	m.mu.Lock()
	if m.death != nil {
		death := m.death
		m.mu.Unlock()
		s.putLast(goneEvent(op, spec.Thread, death))
		return
	}
	if spec.Thread == "" {
		m.made++
		th := &mcpThread{name: "new-" + strconv.Itoa(m.made), spec: spec, sink: s, op: op}
		m.threads[th.name] = th
		m.mu.Unlock()
		s.put(event{kind: evOpened, op: op, thread: th.name, must: true, opened: &openedThread{unnamed: true}})
		return
	}
	th := m.threads[spec.Thread]
	if why := th.unfit(spec); why != "" {
		if th != nil {
			m.forgetLocked(th)
		}
		m.mu.Unlock()
		if th != nil {
			m.declineAsks(spec.Thread)
		}
		s.putLast(refused(op, spec.Thread, &backendError{Message: why, Missing: true}))
		return
	}
	th.sink, th.op = s, op
	e := event{kind: evOpened, op: op, thread: spec.Thread, must: true,
		method: mcpNote, raw: th.told, opened: th.opened()}
	m.mu.Unlock()
	s.put(e)
}

func (m *mcpServer) do(op opID, thread string, c command) {
	switch c.kind {
	case cmdTurn:
		m.startTurn(op, thread, c)
	case cmdSteer: // the session knows that nothing takes it, and asks for none
	case cmdInterrupt:
		m.interrupt(thread, "")
	case cmdToolResult: // it calls none of ours: info says so
	case cmdClean: // Codex ends a thread's shells with itself, and has no call for it
	case cmdUnload:
		m.unload(thread)
	case cmdAnswer:
		m.decide(c)
	}
}

// startTurn calls codex for a thread's first turn and codex-reply for the others.
func (m *mcpServer) startTurn(op opID, thread string, c command) {
	prompt, why := mcpPrompt(c)
	id := m.peer.reserve()
	m.mu.Lock()
	th := m.threads[thread]
	switch {
	case th == nil || m.death != nil:
		m.mu.Unlock()
		return // nobody hears of it
	case th.cur != nil:
		why = "a turn of this thread is still running"
	case th.spent != "":
		why = th.spent
	}
	if why != "" {
		m.mu.Unlock()
		m.put(th, refused(op, "", errors.New(why)))
		return
	}
	name, args := "codex-reply", map[string]any{"prompt": prompt, "threadId": th.id}
	if th.id == "" {
		th.spec.Settings = c.settings
		name, args = "codex", startArguments(m.schema, th.spec, prompt)
	}
	run := &mcpTurn{op: op, call: id}
	run.timer = time.AfterFunc(m.o.StartLimit, func() { m.startOverdue(th, run) })
	th.cur = run
	m.calls[id] = th
	m.mu.Unlock()
	m.peer.callAs(id, "tools/call", map[string]any{"name": name, "arguments": args}, 0,
		func(res json.RawMessage, err error) { m.callAnswered(th, id, res, err) })
}

// startOverdue: Codex took the call and began no turn. It may still, so the outcome is
// unknown and the call is not made again.
func (m *mcpServer) startOverdue(th *mcpThread, run *mcpTurn) {
	m.mu.Lock()
	still := th.cur == run && run.id == ""
	m.mu.Unlock()
	if still {
		e := refused(run.op, "", &backendError{Message: "Codex began no turn in time", Timeout: true})
		e.unknown = true
		m.put(th, e)
	}
}

// interrupt cancels the call of what runs; why says that the end is a failure.
func (m *mcpServer) interrupt(thread, why string) {
	m.mu.Lock()
	th := m.threads[thread]
	if th == nil || th.cur == nil {
		m.mu.Unlock()
		return
	}
	run := th.cur
	if run.why == "" {
		run.why = why
	}
	again := run.stop
	run.stop = true
	m.mu.Unlock()
	if !again {
		m.cancel(th, run, cancelTries)
	}
}

// cancel sends the cancel of a turn until it ends.
func (m *mcpServer) cancel(th *mcpThread, run *mcpTurn, tries int) {
	m.mu.Lock()
	if th.cur != run || tries == 0 || m.death != nil {
		m.mu.Unlock()
		return
	}
	if run.timer != nil {
		run.timer.Stop()
	}
	run.timer = time.AfterFunc(m.o.CancelPause, func() { m.cancel(th, run, tries-1) })
	m.mu.Unlock()
	m.peer.notify("notifications/cancelled", map[string]any{"requestId": run.call, "reason": "interrupted"})
}

// unload lets go of a thread. Codex keeps it while it lives, so that it can be taken up again; one in which a turn
// still runs can't. A first turn that Codex has not begun is cancelled once it does.
func (m *mcpServer) unload(thread string) {
	m.mu.Lock()
	th := m.threads[thread]
	if th == nil {
		m.mu.Unlock()
		return
	}
	s := th.sink
	th.sink = nil
	run := th.cur
	if run != nil {
		th.spent = "an earlier turn may still be running in it"
		run.stop = true
	}
	if th.id == "" && run == nil {
		m.forgetLocked(th)
	}
	m.mu.Unlock()
	if s != nil {
		s.cut()
	}
	m.declineAsks(thread)
	if run != nil {
		m.cancel(th, run, 1)
	}
}

// forgetLocked takes a thread out. What Codex still says of it is nobody's.
func (m *mcpServer) forgetLocked(th *mcpThread) {
	th.stopTimer()
	for _, name := range []string{th.name, th.id} {
		if m.threads[name] == th {
			delete(m.threads, name)
		}
	}
}

// mcpThread is one thread. Everything is guarded by the server's lock.
type mcpThread struct {
	name  string          // ours, from before Codex named the thread
	id    string          // Codex's, "" until then
	spec  threadSpec      // what the thread was opened with, and its first turn's settings
	told  json.RawMessage // the session_configured event, nil while id is ""
	op    opID            // of the last open
	sink  *sink           // of the session that has the thread, nil while none has
	cur   *mcpTurn        // the turn that was called for and has not ended, nil for none
	spent string          // why no further turn may run in the thread, "" while one may
	// owed counts the ends of turns that an event told and that no response has followed
	// yet. Codex answers some open call of the thread for each: the turn's own, or one
	// that was cancelled before. So a response while owed is above 0 says nothing new.
	owed  int
	asked map[string]json.RawMessage // exec_approval_request and the like by call, each told before its elicitation
}

// mcpTurn is a turn from its call to its end.
type mcpTurn struct {
	op    opID
	call  int64       // the id of the call that began it
	id    string      // Codex's, "" until task_started
	stop  bool        // cancelled, or to be once it has begun
	why   string      // the reason of our own for which it is cancelled, so that it failed; "" for none
	timer *time.Timer // until id is set: StartLimit; once stop is: the next cancel
}

// shownID is the id by which the session knows the thread.
func (th *mcpThread) shownID() string { return cmp.Or(th.id, th.name) }

func (th *mcpThread) stopTimer() {
	if th.cur != nil && th.cur.timer != nil {
		th.cur.timer.Stop()
	}
}

// unfit says why a thread can't be taken up with a specification, "" if it can.
func (th *mcpThread) unfit(spec threadSpec) string {
	switch {
	case th == nil:
		return "this Codex (mcp-server) knows only the threads of its own process"
	case th.spent != "":
		return th.spent
	case th.cur != nil:
		return "an earlier turn may still be running in it"
	case string(toJSON(th.spec.Settings)) != string(toJSON(spec.Settings)),
		string(th.spec.Config) != string(spec.Config),
		th.spec.BaseInstructions != spec.BaseInstructions, th.spec.Profile != spec.Profile:
		return "its settings were changed, and this Codex (mcp-server) can't change those of a thread"
	}
	return ""
}

func (th *mcpThread) opened() *openedThread {
	msg := rawField(th.told, "msg")
	return &openedThread{model: stringField(msg, "model"), effort: stringField(msg, "reasoning_effort")}
}

// handle is called by the reader for every notification and request.
func (m *mcpServer) handle(msg *message) {
	switch {
	case msg.isRequest():
		m.handleRequest(msg)
	case msg.method == mcpNote:
		m.handleEvent(msg.params)
	default:
		m.log.Debug("codex notifies", "method", msg.method)
	}
}

func (m *mcpServer) handleEvent(params json.RawMessage) {
	f := readMCPFields(params)
	m.mu.Lock()
	th := m.threads[f.thread]
	m.mu.Unlock()
	if th == nil && f.typ == "session_configured" {
		th = m.nameThread(f, params)
	}
	if th == nil {
		return // of a session that has ended
	}
	e := mcpEvent(f, params)
	if m.opts.OnLimits != nil && f.typ == "token_count" {
		m.opts.OnLimits(rawField(f.msg, "rate_limits"))
	}
	switch f.typ {
	case "session_configured":
		m.mu.Lock()
		e.kind, e.must, e.opened = evOpened, true, th.opened()
		m.mu.Unlock()
	case "task_started":
		m.turnStarted(th, f, &e)
	case "task_complete":
		e.turn = cmp.Or(stringField(f.msg, "turn_id"), f.turn)
		e.text, e.status = stringField(f.msg, "last_agent_message"), "completed"
		if failure := rawField(f.msg, "error"); !isNull(failure) {
			e.status, e.err = "failed", turnError(failure)
		}
		m.turnEnded(th, &e, true)
	case "error":
		e.status, e.err = "failed", turnError(f.msg)
		m.turnEnded(th, &e, true)
	case "turn_aborted":
		e.turn, e.status = cmp.Or(stringField(f.msg, "turn_id"), f.turn), "interrupted"
		m.turnEnded(th, &e, false) // its call is never answered
	case "exec_approval_request", "apply_patch_approval_request":
		m.mu.Lock()
		if th.asked == nil {
			th.asked = map[string]json.RawMessage{}
		}
		th.asked[cmp.Or(stringField(f.msg, "approval_id"), stringField(f.msg, "call_id"))] = f.msg
		m.mu.Unlock()
	}
	m.put(th, e)
	if e.kind == evEnded {
		for _, q := range m.asks.takeTurn(f.thread, e.turn) {
			m.put(th, goneAsk(q))
		}
	}
	if what, is := unanswerable(f); is {
		m.interrupt(f.thread, "Codex asked what nobody can answer over codex mcp-server, so the turn was ended: "+what)
	}
}

// nameThread gives a new thread its id: session_configured is the first event of a
// codex call, and the only one for which the call's id is needed.
func (m *mcpServer) nameThread(f mcpFields, params json.RawMessage) *mcpThread {
	m.mu.Lock()
	defer m.mu.Unlock()
	var call int64
	if json.Unmarshal(f.request, &call) != nil || f.thread == "" {
		return nil
	}
	th := m.calls[call]
	if th == nil || th.id != "" || m.threads[th.name] != th {
		return nil
	}
	th.id, th.told = f.thread, params
	m.threads[th.id] = th
	return th
}

func (m *mcpServer) turnStarted(th *mcpThread, f mcpFields, e *event) {
	m.mu.Lock()
	run := th.cur
	if run == nil || run.id != "" {
		m.mu.Unlock()
		return
	}
	run.id = cmp.Or(stringField(f.msg, "turn_id"), f.turn)
	stop := run.stop
	if !stop {
		run.timer.Stop()
	}
	m.mu.Unlock()
	e.kind, e.must, e.op, e.turn = evStarted, true, run.op, run.id
	if stop { // what was sent before was lost
		m.cancel(th, run, cancelTries)
	}
}

// turnEnded makes the event the end of the running turn, if it is of that turn.
func (m *mcpServer) turnEnded(th *mcpThread, e *event, answers bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if answers {
		th.owed++
	}
	run := th.cur
	if run == nil || run.id == "" || run.id != e.turn {
		return
	}
	th.stopTimer()
	th.cur, th.asked = nil, nil
	e.kind, e.must = evEnded, true
	switch {
	case e.status == "failed":
		// The failed turn's task_complete stays queued and would answer the next
		// call, and so on: the thread is one answer behind for good.
		th.spent, e.spent = "its last turn failed, and Codex (mcp-server) gives wrong answers after that", true
	case e.status == "interrupted" && run.why != "":
		e.status, e.err = "failed", &backendError{Message: run.why}
	}
}

// callAnswered takes the response of any call of the thread.
func (m *mcpServer) callAnswered(th *mcpThread, call int64, res json.RawMessage, err error) {
	if err == errPeerGone {
		return // evGone follows
	}
	m.mu.Lock()
	delete(m.calls, call)
	if th.owed > 0 {
		th.owed--
		m.mu.Unlock()
		return
	}
	run := th.cur
	if run == nil {
		m.mu.Unlock()
		return
	}
	// No event told of an end: Codex refused the call.
	th.stopTimer()
	th.cur = nil
	e := refused(run.op, "", refusedCall(res, err))
	if run.id != "" {
		e.kind, e.op, e.turn, e.status, e.spent = evEnded, 0, run.id, "failed", true
		th.spent = "Codex (mcp-server) answered its last turn out of turn"
	}
	m.mu.Unlock()
	m.put(th, e)
}

// refusedCall is what a tool call that led to no turn was answered with.
func refusedCall(res json.RawMessage, err error) *backendError {
	if err != nil {
		return callError(err)
	}
	e := &backendError{Data: res}
	eachElement(rawField(res, "content"), func(part json.RawMessage) {
		if e.Message == "" {
			e.Message = stringField(part, "text")
		}
	})
	if string(rawField(res, "isError")) != "true" || e.Message == "" {
		e.Message = "Codex answered without having run the turn"
	}
	return withLogin(e)
}

// handleRequest puts an elicitation before the session. Nothing else is asked, and
// an elicitation is answered whatever it is.
func (m *mcpServer) handleRequest(msg *message) {
	switch msg.method {
	case "elicitation/create":
	case "ping":
		m.peer.reply(msg.id, map[string]any{})
		return
	default:
		m.peer.replyError(msg.id, noMethod(msg.method))
		return
	}
	q := &openAsk{reqIDs: []json.RawMessage{msg.id}, method: msg.method, thread: stringField(msg.params, "threadId"),
		turn: stringField(msg.params, "codex_event_id"), params: msg.params}
	m.mu.Lock()
	th := m.threads[q.thread]
	var before json.RawMessage
	held := th != nil && th.sink != nil && th.cur != nil && !th.cur.stop
	if held {
		before = th.asked[stringField(q.params, "codex_call_id")]
	}
	m.mu.Unlock()
	if !held {
		m.answer(q, elicitationReply(m.info(), deny, "nobody waits for this any more", nil))
		return
	}
	ask := mcpAsk(q, before) // before add: from there on the answer may be given
	if !m.register(q, ask) {
		return
	}
	m.put(th, event{kind: evAsk, turn: q.turn, item: stringField(q.params, "codex_call_id"), must: true,
		method: msg.method, raw: q.params, ask: ask})
}
