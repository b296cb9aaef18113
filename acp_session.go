package main

// acp_session.go owns one session of an ACP client while it is open on this
// connection: how it is opened and its past replayed, the way of events to its
// encoder and of updates to the client, and what becomes of them when the client
// doesn't read. acp_sessions.go opens and closes it, acp.go brings events. It must
// never hold its lock over a call of the hub, the encoder or its parts, and a
// replay must never hold more than a little in memory.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// replayRoom is how many bytes of a replay may wait for the client.
const replayRoom = 1 << 20

// acpSession is made anew by each session/new, load and resume.
type acpSession struct {
	// fixed once it is open
	f       *acpFront
	id      string // the client's
	agentID string // set before the hub knows of the session
	cwd     string
	roots   []string
	mcp     json.RawMessage // the client's MCP servers, as Codex's mcp_servers
	enc     *acpEncoder

	options acpOptionState
	servers acpServers
	queue   acpQueue

	mu      sync.Mutex // guards the fields below, and those of queue
	opening bool       // the request that opens the session isn't answered: prompts and updates wait
	closing bool       // takes no prompts any more
	title   string
	backlog acpBacklog
	usage   tokenUsage // of the thread, as last told
	// turns that began while the session was opened: they are told as they run, not as its past
	live     map[string]bool
	mailTurn string          // the running turn that nobody here asked for, "" for none
	mailItem string          // the message of that turn, once it was shown
	idle     []chan struct{} // closed once the session is open and nothing of it runs or waits
	before   *acpSession     // whose end the opening waits for, nil for none

	early     [][]byte // updates that came while the session was opened
	earlySize int      // in bytes
}

// acpBacklog is how well a session's client reads.
type acpBacklog int

const (
	backlogFine  acpBacklog = iota // as far as we know
	backlogOver                    // the client has let too much wait
	backlogMuted                   // so nothing is sent until the running turn has ended
)

// newACPSession makes a session that is being opened.
func newACPSession(f *acpFront, id, cwd string, roots []string) *acpSession {
	s := &acpSession{f: f, id: id, cwd: cwd, roots: roots, opening: true}
	s.options.s, s.queue.s = s, s
	s.enc = newACPEncoder(acpEncoding{Cwd: cwd, Notices: f.client().notices, Send: s.send, Crowded: f.crowded})
	return s
}

// open has the hub open the session, without a turn. before is the same session
// as it was open until now, nil if it wasn't.
func (s *acpSession) open(ctx context.Context, req turnRequest, servers json.RawMessage, before *acpSession) (
	turnResult, *rpcError) {
	f := s.f
	var taken []string
	if rawKind(servers) == '[' && string(servers) != "[]" {
		taken = s.userServers(ctx)
	}
	var e *rpcError
	if s.mcp, e = s.servers.read(servers, taken); e != nil {
		return turnResult{}, e
	}
	if before != nil && f.settings(s.agentID) != nil && s.openedLike(before) {
		s.servers.forget() // the thread stays as it is, and so do they
	} else if len(s.mcp) > 0 {
		time.AfterFunc(serversWait, s.queue.pump) // prompts wait no longer
	}
	f.sessions.bind(s)
	s.describe(&req)
	got := make(chan turnResult, 1)
	w := f.addWaiter(func(r turnResult) { got <- r })
	f.submit(req, w)
	select {
	case r := <-got:
		return r, f.acpError(r.err)
	case <-ctx.Done():
		f.dropWaiter(w)
		return turnResult{}, errACPClosing() // or cancelled, and answered so before
	}
}

// userServers are the names of the MCP servers in the user's own Codex
// configuration as seen from the session's directory, switched off or not: Codex
// would mix two entries of one name. It waits for the child. nil where the
// configuration can't be read.
func (s *acpSession) userServers(ctx context.Context) []string {
	ctx, stop := context.WithTimeout(ctx, configWait)
	defer stop()
	raw, e := s.f.catalog(ctx, "config", s.cwd)
	if e != nil {
		s.f.Log.Warn("the user's MCP servers could not be read", "err", e)
		return nil
	}
	var names []string
	_ = eachField(rawField(raw, "config", "mcp_servers"), func(name string, _ json.RawMessage) bool {
		names = append(names, name)
		return true
	})
	return names
}

// describe says all that the client knows of a session with a request: the hub
// opens a session anew with it that was parked meanwhile.
func (s *acpSession) describe(req *turnRequest) {
	req.source, req.approvals = sourceClient, "client"
	req.cwd, req.servers = s.cwd, s.mcp
	req.client = &clientBirth{session: s.id, roots: s.roots}
}

// openedLike reports that two sessions were opened with the same.
func (s *acpSession) openedLike(o *acpSession) bool {
	return s.cwd == o.cwd && slices.Equal(s.roots, o.roots) && string(s.mcp) == string(o.mcp)
}

// waitBehind has the opening wait for the end of what runs in the session as it
// was open until now, nil if it wasn't.
func (s *acpSession) waitBehind(before *acpSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// reopen opens a session of the client's that is on disk.
func (s *acpSession) reopen(ctx context.Context, servers json.RawMessage, before *acpSession) (turnResult, *rpcError) {
	f := s.f
	if before != nil {
		select {
		case <-before.whenIdle():
		case <-ctx.Done():
			return turnResult{}, errACPClosing()
		}
		s.waitBehind(nil)
	}
	known, e := f.clientSession(s.id)
	if e != nil {
		if e.Code == codeSessionNotFound {
			e = noSession(s.id)
			e.Message = fmt.Sprintf("there is no session %q: session/list tells which there are", shortName(s.id))
		}
		return turnResult{}, f.acpError(e)
	}
	s.agentID = known.AgentID
	s.mu.Lock()
	s.title = known.Title
	s.mu.Unlock()
	_, e = f.catalog(ctx, "account", "") // Codex is up
	if f.status().Backend == "mcp-server" {
		return turnResult{}, errOnlyAppServer()
	}
	if e != nil {
		return turnResult{}, f.acpError(e)
	}
	return s.open(ctx, turnRequest{mode: modeRevive, ref: s.agentID}, servers, before)
}

// replay tells the session's past, as fast as the client reads.
func (s *acpSession) replay(ctx context.Context) *rpcError {
	p := s.f.p
	enc := newACPEncoder(acpEncoding{Cwd: s.cwd, Notices: s.f.client().notices, Replay: true,
		Send: func(update []byte) bool {
			for p.queued() > replayRoom && ctx.Err() == nil {
				p.flush(time.Second)
			}
			if ctx.Err() == nil {
				s.put(update)
			}
			return ctx.Err() == nil
		}})
	e := s.f.history(ctx, s.agentID, func(e *event) error {
		s.mu.Lock()
		runs := s.live[e.turn]
		s.mu.Unlock()
		if runs { // mail woke it just now (acp_mail = "turn"): else it would be told twice
			return ctx.Err()
		}
		enc.event(agentRef{AgentID: s.agentID, Thread: e.thread}, e)
		if e.kind == evEnded {
			enc.endTurn("")
		}
		return ctx.Err()
	})
	enc.endTurn("")
	if e == nil && ctx.Err() != nil {
		return errACPClosing()
	}
	return s.f.acpError(e)
}

// state is what a client is told of a session that was opened. The sessionId is in
// the answer to session/load too, where some clients look for it, but the schema
// has none in that to session/resume.
func (s *acpSession) state(named bool) any {
	s.f.models.list(modelsWait)
	out := map[string]any{}
	if named {
		out["sessionId"] = s.id
	}
	if options := s.options.tell(); options != nil {
		out["configOptions"], out["modes"] = options, modesOf(options)
	}
	return out
}

// finishOpening lets updates and prompts through, behind the answer that opened
// the session.
func (s *acpSession) finishOpening(notes []string) {
	s.mu.Lock()
	for len(s.early) > 0 {
		early := s.early
		s.early = nil
		s.mu.Unlock()
		for _, u := range early {
			s.put(u)
		}
		s.mu.Lock()
	}
	s.opening = false
	s.mu.Unlock()
	s.put(availableCommands()) // also where a turn that began meanwhile was too much to keep
	s.notices(notes)
	s.queue.pump()
}

// refuse answers the prompts of a session that could not be opened.
func (s *acpSession) refuse(e *rpcError) {
	s.mu.Lock()
	s.closing, s.opening, s.early = true, false, nil
	left := s.queue.prompts
	s.queue.prompts = nil
	s.tellIdleLocked()
	s.mu.Unlock()
	for _, p := range left {
		s.f.answer(p.c, nil, e)
	}
}

// setClosing says whether the session takes no prompts any more.
func (s *acpSession) setClosing(closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = closing
}

// event takes an event of the session, on the session's own goroutine.
func (s *acpSession) event(a agentRef, w waiterID, e *event) {
	if e.kind == evServer {
		s.serverEvent(e)
		return
	}
	if e.kind == evGone { // whatever ran in the thread ended with the child
		s.servers.forget()
	}
	own := e.thread == "" || e.thread == a.Thread
	begins := own && e.turn != "" && (e.kind == evStarted || e.method == "turn/started")
	mailText, first := "", false
	s.mu.Lock()
	if own && e.kind == evUsage {
		s.usage = *e.usage
	}
	if begins && s.opening {
		if s.live == nil {
			s.live = map[string]bool{}
		}
		s.live[e.turn] = true
	}
	if w != 0 {
		p := s.queue.byWaiterLocked(w)
		if p == nil || p.cancelled && p.stage != promptRunning {
			s.mu.Unlock()
			return // its prompt was answered: nothing of it is told
		}
		if first = begins && p.turn == ""; first {
			s.mailTurn = "" // one turn runs at a time
		}
		if e.phase != startingCodex { // told to every prompt that waits for Codex: none of their turns has begun
			p.stage = promptRunning
		}
		if own && e.turn != "" {
			p.turn = cmp.Or(p.turn, e.turn)
		}
		if own && e.kind == evEnded {
			p.failure = e.err
		}
	} else if own {
		if begins && s.mailTurn != e.turn {
			s.mailTurn, s.mailItem = e.turn, ""
		}
		if s.mailTurn != "" && e.turn == s.mailTurn && s.mailItem == "" && e.kind == evItem &&
			e.body.kind == "userMessage" {
			s.mailItem, mailText = e.item, e.body.text
		}
	}
	mail := own && w == 0 && s.mailTurn != ""
	s.mu.Unlock()

	s.enc.event(a, e)
	if first {
		s.tellServers()
	}
	if mailText != "" { // what the agent was sent stands in front of what it does
		s.enc.say(userChunk, mailText)
	}
	if mail && e.kind == evEnded {
		s.endMailTurn("")
	}
	if own && e.method == "thread/name/updated" {
		s.setTitle(stringField(e.raw, "threadName"), false)
	}
	s.mu.Lock()
	over := s.backlog == backlogOver && !s.opening
	if own && e.kind == evEnded || e.kind == evGone { // all of the turn is on its way
		s.backlog, over = backlogFine, false
	}
	s.mu.Unlock()
	if over {
		s.mute()
	}
	if e.kind == evGone && w == 0 {
		s.endMailTurn("Codex is gone")
	}
}

// serverEvent takes what Codex tells of an MCP server as it opens the thread. One
// of the client's that failed is told in the prompt that waits or runs, else in
// the next one.
func (s *acpSession) serverEvent(e *event) {
	if s.servers.heard(e.item, e.status, strings.TrimSpace(e.text)) {
		s.mu.Lock()
		prompted := len(s.queue.prompts) > 0
		s.mu.Unlock()
		if prompted {
			s.tellServers()
		}
	}
	s.queue.pump()
}

// tellServers shows what there is to tell of the MCP servers, as tool calls of
// the prompt that runs.
func (s *acpSession) tellServers() {
	for _, c := range s.servers.takeNews() {
		s.enc.tellOwnCall(c.id, c.title, c.status, c.text)
	}
}

// endMailTurn: the turn that nobody here asked for is over, with what it left open.
func (s *acpSession) endMailTurn(why string) {
	s.enc.endTurn(why)
	s.mu.Lock()
	s.mailTurn, s.mailItem = "", ""
	s.mu.Unlock()
	s.queue.pump()
}

// send sends one session/update. While the session is opened it waits; false:
// nothing is sent until the running turn has ended, since the client doesn't
// read. The encoder calls it under its own lock, so it only notes that.
func (s *acpSession) send(update []byte) bool {
	s.mu.Lock()
	switch {
	case s.backlog == backlogMuted:
		s.mu.Unlock()
		return false
	case s.opening:
		s.early = append(s.early, append([]byte(nil), update...))
		if s.earlySize += len(update); s.earlySize > replayRoom {
			s.backlog = backlogMuted
		}
		s.mu.Unlock()
		return true
	}
	if s.f.p.queued() > acpBudget {
		s.backlog = backlogOver
	}
	s.mu.Unlock()
	s.put(update)
	return true
}

// put writes one session/update.
func (s *acpSession) put(update []byte) {
	b := make([]byte, 0, len(update)+len(s.id)+96)
	b = append(b, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":`...)
	b = appendJSONString(b, s.id)
	b = append(append(append(b, `,"update":`...), update...), "}}"...)
	s.f.p.put(b, keepSoon)
}

// notice tells the user something that isn't the agent's answer, where the
// client takes such.
func (s *acpSession) notice(severity, title, description string) {
	if !s.f.client().notices || title == "" {
		s.f.Log.Info("notice", "sessionId", s.id, "severity", severity, "title", title, "description", description)
		return
	}
	s.send(toJSON(acpNotice{"notice", severity, title, description}))
}

// notices tells what a result says that the caller should know.
func (s *acpSession) notices(words []string) {
	for _, w := range words {
		title := clip(w, 120)
		if title == w {
			w = ""
		}
		s.notice("info", title, w)
	}
}

// mute gives a turn up whose updates the client doesn't read: its prompt is
// answered with that, it goes on by itself, and session/load tells all of it.
func (s *acpSession) mute() {
	waits := s.f.p.queued() >> 20
	s.enc.endTurn("not shown any further: the client doesn't read")
	s.mu.Lock()
	s.backlog = backlogMuted
	running := s.queue.runningLocked()
	s.mu.Unlock()
	s.f.Log.Warn("the client doesn't read its updates", "sessionId", s.id, "waiting_mib", waits)
	if running != nil {
		words := fmt.Sprintf("the client has let %d MiB of updates wait, so this turn is shown no further: "+
			"it goes on by itself, and session/load tells all of it", waits)
		data := toJSON(map[string]any{"turn_status": "running"})
		s.f.answer(running.c, nil, &rpcError{Code: codeInternal, Message: words, Data: data})
	}
}

// setTitle gives the session a title. A first one, made of a prompt, counts only
// where the session has none; Codex may give it another.
func (s *acpSession) setTitle(title string, first bool) {
	s.mu.Lock()
	if title == "" || title == s.title || first && s.title != "" {
		s.mu.Unlock()
		return
	}
	s.title = title
	s.mu.Unlock()
	s.f.setTitle(s.agentID, title)
	s.send(toJSON(map[string]any{"sessionUpdate": "session_info_update", "title": title,
		"updatedAt": time.Now().UTC().Format(time.RFC3339)}))
}

// whenIdle is closed once the session is open and nothing of it runs or waits.
func (s *acpSession) whenIdle() <-chan struct{} {
	ch := make(chan struct{})
	s.mu.Lock()
	s.idle = append(s.idle, ch)
	s.mu.Unlock()
	s.queue.pump()
	return ch
}

// tellIdleLocked tells those who wait for it.
func (s *acpSession) tellIdleLocked() {
	if s.opening || len(s.queue.prompts) > 0 || s.mailTurn != "" {
		return
	}
	for _, ch := range s.idle {
		close(ch)
	}
	s.idle = nil
}
