package main

// codex_mcp.go owns the connection to one `codex mcp-server`, of Codex 0.104 to
// 0.153: the handshake, the calls of its two tools, cancels, answers, the
// child's end. It implements backend; sessions call it and never wait in it.
// codex_mcp_thread.go says when a turn ends. It must never have two calls open
// for turns of one thread (they become one, and one caller waits for good),
// nor answer an elicitation with an error (which hangs the turn).

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

// mcpServerOptions say what to run and how long to wait for it. Zero limits
// mean the defaults.
type mcpServerOptions struct {
	linkOptions
	Home string // CODEX_HOME, whose config.toml is read

	StartLimit  time.Duration // a call until task_started: 60 s, 0.104 waits for slow MCP servers
	CancelPause time.Duration // a cancel is sent again after this: 500 ms
}

// cancelTries is how often a cancel is sent: the first may come before Codex
// has registered the turn, and is then lost.
const cancelTries = 10

// mcpServer is one running `codex mcp-server`. The link's lock guards the
// fields below o too, and everything in a mcpThread but its sink.
type mcpServer struct {
	*childLink
	o mcpServerOptions

	schema  mcpSchema
	threads map[string]*mcpThread // by id, the driver's own or Codex's
	calls   map[int64]*mcpThread  // of calls without a response
	made    int
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

// newMCPServer speaks over pipes. Its reading goroutine ends at the stream's
// end, after it has told every sink.
func newMCPServer(r io.Reader, w io.WriteCloser, c *child, o mcpServerOptions) *mcpServer {
	o.StartLimit = cmp.Or(o.StartLimit, 60*time.Second)
	o.CancelPause = cmp.Or(o.CancelPause, 500*time.Millisecond)
	m := &mcpServer{childLink: newChildLink("mcp-server", w, c, o.linkOptions), o: o,
		threads: map[string]*mcpThread{}, calls: map[int64]*mcpThread{}}
	m.listen(r, w, peerOptions{handle: m.handle}, m.tellEnd)
	return m
}

// tellEnd tells everybody that the child is gone.
func (m *mcpServer) tellEnd(death *childDeath) {
	m.mu.Lock()
	heirs := map[*mcpThread]bool{} // a thread may be there under two names
	for _, th := range m.threads {
		heirs[th] = true
		th.stopTimers()
	}
	m.mu.Unlock()
	for th := range heirs {
		th.last(m, goneEvent(0, "", death))
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
		return m.giveUp(ctx, err)
	}
	m.peer.notify("notifications/initialized", nil, false)
	list, err := m.ask(ctx, "tools/list", map[string]any{}, m.opts.InitLimit)
	schema := readMCPSchema(list)
	if err == nil && !(schema.codex && schema.reply) {
		err = errors.New("it has not both of the tools codex and codex-reply")
	}
	if err != nil {
		return m.giveUp(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.schema, m.inf.version = schema, stringField(res, "serverInfo", "version")
	return nil
}

// stop ends the child and returns when every sink has heard of it. At EOF it
// lets open calls finish, and those of cancelled turns never do: then TERM is
// the way, of which it dies in milliseconds with its shells.
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

// account can't be changed: mcp-server has no methods for it.
func (m *mcpServer) account(context.Context, string, any) (json.RawMessage, error) {
	return nil, errors.New("codex mcp-server can't log in or out; run `codex login` in a terminal")
}

// history isn't to be had of mcp-server.
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
		s.last(goneEvent(op, spec.Thread, death))
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
			m.voidAsks(spec.Thread)
		}
		s.last(event{kind: evRefused, op: op, thread: spec.Thread, must: true, err: &backendError{Message: why, Missing: true}})
		return
	}
	th.sink, th.op = s, op
	e := event{kind: evOpened, op: op, thread: spec.Thread, must: true, method: mcpNote, raw: th.told, opened: th.opened(true)}
	m.mu.Unlock()
	s.put(e)
}

// do sends one command for an open thread.
func (m *mcpServer) do(op opID, thread string, c command) {
	switch c.kind {
	case cmdTurn:
		m.turn(op, thread, c)
	case cmdInterrupt:
		m.interrupt(thread, "")
	case cmdToolResult: // it calls none of ours: info says so
	case cmdClean: // Codex ends a thread's shells with itself, and has no call for it
	case cmdUnload:
		m.unload(thread)
	case cmdAnswer:
		if q := m.asks.take(c.ask); q != nil {
			m.answer(q, elicitationReply(m.info(), c.decision, c.why, q.rule))
		}
	}
}

// turn calls codex for a thread's first turn and codex-reply for the others.
func (m *mcpServer) turn(op opID, thread string, c command) {
	id := m.peer.reserve()
	m.mu.Lock()
	th := m.threads[thread]
	refuse := func(why string) {
		var s *sink
		if th != nil {
			s = th.sink
		}
		m.mu.Unlock()
		if s != nil {
			s.put(event{kind: evRefused, op: op, thread: thread, must: true, err: &backendError{Message: why}})
		}
	}
	switch {
	case th == nil || m.death != nil:
		refuse("the thread is not open")
		return
	case th.cur != nil:
		refuse("a turn of this thread is still running")
		return
	case th.spent != "":
		refuse(th.spent)
		return
	}
	prompt, why := mcpPrompt(c)
	if why != "" {
		refuse(why)
		return
	}
	name, args := "codex-reply", map[string]any{"prompt": prompt, "threadId": th.id}
	if th.id == "" {
		th.spec.Settings = c.settings
		name, args = "codex", startArguments(m.schema, th.spec, prompt)
	}
	run := &mcpTurn{op: op, call: id}
	run.timer = time.AfterFunc(m.o.StartLimit, func() { m.late(th, run) })
	th.cur = run
	m.calls[id] = th
	m.mu.Unlock()
	m.peer.callAs(id, "tools/call", map[string]any{"name": name, "arguments": args}, 0,
		func(res json.RawMessage, err error) { m.answered(th, id, res, err) })
}

// late: Codex took the call and began no turn. It may still, so the outcome is
// unknown and the call is not made again.
func (m *mcpServer) late(th *mcpThread, run *mcpTurn) {
	m.mu.Lock()
	still := th.cur == run && run.id == ""
	m.mu.Unlock()
	if still {
		th.put(m, event{kind: evRefused, op: run.op, must: true, unknown: true, err: &backendError{Message: "Codex began no turn in time", Timeout: true}})
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
	m.peer.notify("notifications/cancelled", map[string]any{"requestId": run.call, "reason": "interrupted"}, false)
}

// unload lets go of a thread. Codex keeps it while it lives, so that it can be
// taken up again; one in which a turn still runs can't. A first turn that Codex
// has not begun is cancelled once it does.
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
	m.voidAsks(thread)
	if run != nil {
		m.cancel(th, run, 1)
	}
}

// forgetLocked takes a thread out. What Codex still says of it is nobody's.
func (m *mcpServer) forgetLocked(th *mcpThread) {
	th.stopTimers()
	for _, name := range []string{th.name, th.id} {
		if m.threads[name] == th {
			delete(m.threads, name)
		}
	}
}

// voidAsks declines what a thread that nobody has any more was still asked.
func (m *mcpServer) voidAsks(thread string) {
	for q := m.asks.takeThread(thread); q != nil; q = m.asks.takeThread(thread) {
		m.answer(q, elicitationReply(m.info(), deny, "the session was closed", nil))
	}
}
