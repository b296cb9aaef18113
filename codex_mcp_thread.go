package main

// codex_mcp_thread.go owns what is known of a thread of codex mcp-server: its
// running turn, what the calls of earlier ones left behind, and what an event,
// a response or an elicitation means for them. All of it runs on the reading
// goroutine. Events by thread id are the truth; a response only says that a
// call is over, since after a cancel it comes under either call's id.

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// mcpThread is one thread. Everything is guarded by the server's lock.
type mcpThread struct {
	name string // ours, from before Codex named it
	id   string // Codex's, "" until then
	spec threadSpec
	told json.RawMessage // session_configured
	op   opID            // of the open
	sink *sink           // nil while no session has it
	cur  *mcpTurn
	// owed are ends that events told and no response has followed yet: each is
	// read by some call of the thread, its own or one cancelled before, and
	// that call is answered.
	owed  int
	spent string                     // why no further turn may run in it
	asked map[string]json.RawMessage // approval events by call, ahead of their elicitations
}

// mcpTurn is the one turn that runs.
type mcpTurn struct {
	op    opID
	call  int64
	id    string // Codex's, from task_started
	stop  bool   // cancelled, or to be once it has begun
	why   string // it is cancelled for our own reason, so it failed
	timer *time.Timer
}

func (th *mcpThread) stopTimers() {
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
	case string(toJSON(th.spec.Settings)) != string(toJSON(spec.Settings)), string(th.spec.Config) != string(spec.Config),
		th.spec.BaseInstructions != spec.BaseInstructions, th.spec.Profile != spec.Profile:
		return "its settings were changed, and this Codex (mcp-server) can't change those of a thread"
	}
	return ""
}

// opened is Codex's word on the thread.
func (th *mcpThread) opened(resumed bool) *openedThread {
	msg := rawField(th.told, "msg")
	return &openedThread{model: stringField(msg, "model"), effort: stringField(msg, "reasoning_effort"),
		path: stringField(msg, "rollout_path"), resumed: resumed}
}

// put tells the thread's session, if one has it. The thread's id is filled in.
func (th *mcpThread) put(m *mcpServer, e event) {
	if s := th.address(m, &e); s != nil {
		s.put(e)
	}
}

// last tells it for the last time.
func (th *mcpThread) last(m *mcpServer, e event) {
	if s := th.address(m, &e); s != nil {
		s.last(e)
	}
}

func (th *mcpThread) address(m *mcpServer, e *event) *sink {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.thread = th.id; e.thread == "" {
		e.thread = th.name
	}
	if e.kind == evGone {
		e.op = th.op
	}
	return th.sink
}

// handle is called by the reader for every notification and request.
func (m *mcpServer) handle(msg *message) {
	switch {
	case msg.isRequest():
		m.request(msg)
	case msg.method == mcpNote:
		m.event(msg.params)
	default:
		m.log.Debug("codex notifies", "method", msg.method)
	}
}

func (m *mcpServer) event(params json.RawMessage) {
	f := readMCPFields(params)
	m.mu.Lock()
	th := m.threads[f.thread]
	m.mu.Unlock()
	if th == nil && f.typ == "session_configured" {
		th = m.named(f, params)
	}
	if th == nil {
		return // of a session that has ended
	}
	e := mcpEvent(f, params)
	switch f.typ {
	case "session_configured":
		m.mu.Lock()
		e.kind, e.must, e.opened = evOpened, true, th.opened(false)
		m.mu.Unlock()
	case "task_started":
		m.started(th, f, &e)
	case "task_complete":
		e.turn = cmp.Or(stringField(f.msg, "turn_id"), f.turn)
		e.text, e.status = stringField(f.msg, "last_agent_message"), "completed"
		if failure := rawField(f.msg, "error"); !isNull(failure) {
			e.status, e.err = "failed", mcpFailure(failure)
		}
		m.ended(th, &e, true)
	case "error":
		e.status, e.err = "failed", mcpFailure(f.msg)
		m.ended(th, &e, true)
	case "turn_aborted":
		e.turn, e.status = cmp.Or(stringField(f.msg, "turn_id"), f.turn), "interrupted"
		m.ended(th, &e, false) // its call is never answered
	case "exec_approval_request", "apply_patch_approval_request":
		m.mu.Lock()
		if th.asked == nil {
			th.asked = map[string]json.RawMessage{}
		}
		th.asked[cmp.Or(stringField(f.msg, "approval_id"), stringField(f.msg, "call_id"))] = f.msg
		m.mu.Unlock()
	}
	th.put(m, e)
	if e.kind == evEnded {
		for q := m.asks.takeTurn(f.thread, e.turn); q != nil; q = m.asks.takeTurn(f.thread, e.turn) {
			th.put(m, event{kind: evAskGone, turn: q.turn, must: true, ask: &approval{id: q.id, method: q.method, thread: q.thread, turn: q.turn}})
		}
	}
	if what, is := unanswerable(f); is {
		m.interrupt(f.thread, "Codex asked what nobody can answer over codex mcp-server, so the turn was ended: "+what)
	}
}

// named gives a new thread its id: session_configured is the first event of a
// codex call, and the only one for which the call's id is needed.
func (m *mcpServer) named(f mcpFields, params json.RawMessage) *mcpThread {
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

// started: the turn that was called for has begun.
func (m *mcpServer) started(th *mcpThread, f mcpFields, e *event) {
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

// ended makes the event the end of the running turn, if it is of that turn.
func (m *mcpServer) ended(th *mcpThread, e *event, answers bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if answers {
		th.owed++
	}
	run := th.cur
	if run == nil || run.id == "" || run.id != e.turn {
		return
	}
	th.stopTimers()
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

// answered takes the response of any call of the thread.
func (m *mcpServer) answered(th *mcpThread, call int64, res json.RawMessage, err error) {
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
	th.stopTimers()
	th.cur = nil
	e := event{kind: evRefused, op: run.op, turn: run.id, must: true, err: refusedCall(res, err)}
	if run.id != "" {
		e.kind, e.op, e.status, e.spent = evEnded, 0, "failed", true
		th.spent = "Codex (mcp-server) answered its last turn out of turn"
	}
	m.mu.Unlock()
	th.put(m, e)
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

// request puts an elicitation before the session. Nothing else is asked, and
// an elicitation is answered whatever it is.
func (m *mcpServer) request(msg *message) {
	if msg.method != "elicitation/create" {
		if msg.method == "ping" {
			m.peer.reply(msg.id, map[string]any{})
			return
		}
		m.peer.replyError(msg.id, &rpcError{Code: codeNoMethod, Message: "no such method here: " + msg.method})
		return
	}
	q := &openAsk{reqID: slices.Clone(msg.id), method: msg.method, thread: stringField(msg.params, "threadId"),
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
		m.peer.reply(q.reqID, elicitationReply(m.info(), deny, "nobody waits for this any more", nil))
		return
	}
	ask := mcpAsk(q, before) // before add: from there on the answer may be given
	if !m.asks.add(q, ask) {
		m.log.Debug("codex asks again what it waits for", "thread", q.thread, "turn", q.turn, "item", ask.item)
		return
	}
	th.put(m, event{kind: evAsk, turn: q.turn, item: stringField(q.params, "codex_call_id"), must: true, method: msg.method, raw: q.params, ask: ask})
}
