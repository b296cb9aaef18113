package main

// acp_session.go owns one session of an ACP client: how it is opened and its past replayed, the way of events to its
// encoder and of updates to the client, what becomes of them when the client doesn't read, and the one way in which
// goroutines wait for something of it. acp_sessions.go makes it, acp.go brings events; what waits for Codex or the disk
// is done in goroutines of their own. No lock is held over a call of the hub, the encoder or its parts, and a replay
// holds no more than a little in memory.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// replayRoom is how many bytes of a replay may wait for the client.
	replayRoom = 1 << 20
	// acpCloseLimit is how long session/close waits for what it has cancelled.
	acpCloseLimit = 5 * time.Second
)

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
	skills  acpSkills

	titling sync.Mutex // held while a title is set and told: no older one, and no answer to /rename, may be before it

	mu      sync.Mutex    // guards the fields below, and those of queue
	news    chan struct{} // closed, and made anew, by poke: who awaits something looks again
	opening bool          // the request that opens the session isn't answered: prompts and updates wait
	closing bool          // takes no prompts any more
	leaving bool          // a load of the session waits for its end, so its user is asked about no plan
	title   string
	backlog acpBacklog
	usage   tokenUsage // of the thread, as last told
	counted bool       // usage is of the whole thread: that is new, or Codex has told
	notes   []string   // of the last result
	// turns that began while the session was opened: they are told as they run, not as its past
	live     map[string]bool
	mailTurn string      // the running turn that nobody here asked for, "" for none
	mailItem string      // the message of that turn, once it was shown
	before   *acpSession // the same session as it was until now, whose end the opening waits for; nil for none

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
	s := &acpSession{f: f, id: id, cwd: cwd, roots: roots, opening: true, news: make(chan struct{}),
		live: map[string]bool{}}
	s.options.s, s.queue.s, s.skills.s = s, s, s
	s.enc = newACPEncoder(acpEncoding{Cwd: cwd, Client: f.client(), Send: s.send, Crowded: f.crowded})
	return s
}

// open has the hub open the session, without a turn. before is the same session
// as it was open until now, nil if it wasn't.
func (s *acpSession) open(ctx context.Context, req turnRequest, servers json.RawMessage, before *acpSession) (
	turnResult, *rpcError) {
	f := s.f
	var taken []string
	if rawKind(servers) == '[' && string(servers) != "[]" {
		taken = userServers(ctx, s)
	}
	var e *rpcError
	if s.mcp, e = s.servers.read(servers, taken); e != nil {
		return turnResult{}, e
	}
	alike := before != nil && s.cwd == before.cwd && slices.Equal(s.roots, before.roots) &&
		string(s.mcp) == string(before.mcp)
	if alike && f.settings(s.agentID) != nil {
		s.servers.forget() // the thread stays as it is, and so do they
	} else if len(s.mcp) > 0 {
		time.AfterFunc(serversWait, s.poke) // prompts wait no longer
	}
	f.sessions.bind(s)
	s.describe(&req)
	got := make(chan turnResult, 1)
	w := f.addWaiter(func(r turnResult) { got <- r })
	f.submit(req, w)
	select {
	case r := <-got:
		if id := cmp.Or(r.AgentID, s.agentID); id != s.agentID { // Codex's thread became another agent's a moment ago
			s.agentID = id
			f.sessions.bind(s)
		}
		return r, f.acpError(r.err)
	case <-ctx.Done():
		f.dropWaiter(w)
		return turnResult{}, errACPClosing() // or cancelled, and answered so before
	}
}

// begin opens a new session, which begins with what the session source holds; "" for nothing.
func (s *acpSession) begin(ctx context.Context, source string, servers json.RawMessage) (turnResult, *rpcError) {
	f := s.f
	s.agentID = f.newAgentID()
	req, from := turnRequest{mode: modeNew, agentID: s.agentID}, clientSession{}
	if source != "" {
		var e *rpcError
		if from, e = f.clientSession(source); e != nil {
			return turnResult{}, f.unknownSession(source, e)
		}
		req.forkOf, s.title = cmp.Or(from.AgentID, from.Session), from.Title
	}
	r, e := s.open(ctx, req, servers, nil)
	switch {
	case e == nil && from.Title != "":
		s.tellTitle()
	case e != nil && e.Code == codeSessionNotFound: // a thread that Codex hasn't
		e = f.unknownSession(source, e)
	}
	return r, e
}

// describe says all that the client knows of a session with a request: the hub
// opens a session anew with it that was parked meanwhile.
func (s *acpSession) describe(req *turnRequest) {
	req.source, req.approvals = sourceClient, "client"
	req.cwd, req.servers = s.cwd, s.mcp
	req.client = &clientBirth{session: s.id, roots: s.roots}
}

// reopen opens a session of the client's that is on disk.
func (s *acpSession) reopen(ctx context.Context, servers json.RawMessage, before *acpSession) (turnResult, *rpcError) {
	f := s.f
	for each := before; each != nil; { // behind a load that came to nothing, the session that this one waited for
		each.queue.leavePlans()
		if !each.await(ctx, each.isIdle) {
			return turnResult{}, errACPClosing()
		}
		each.mu.Lock()
		earlier := each.before
		each.mu.Unlock()
		each = earlier
	}
	if before = before.restored(); before != nil {
		before.mu.Lock()
		used, counted := before.usage, before.counted // Codex doesn't tell it again of a thread that stays open
		before.mu.Unlock()
		s.mu.Lock()
		s.usage, s.counted = used, counted
		s.mu.Unlock()
	}
	known, e := f.clientSession(s.id)
	if e != nil {
		return turnResult{}, f.unknownSession(s.id, e)
	}
	req := turnRequest{mode: modeRevive, ref: known.AgentID}
	if known.AgentID == "" { // a thread that only Codex knows becomes a session of ours
		req.ref, req.agentID = s.id, f.newAgentID()
	}
	s.agentID = cmp.Or(known.AgentID, req.agentID)
	s.mu.Lock()
	s.title = known.Title
	s.counted = s.counted || known.Turns == 0
	s.mu.Unlock()
	if _, e = f.logins.ready(ctx); e != nil {
		return turnResult{}, e
	}
	r, e := s.open(ctx, req, servers, before)
	return r, f.unknownSession(s.id, e)
}

// replay tells the session's past, as fast as the client reads.
func (s *acpSession) replay(ctx context.Context) *rpcError {
	p := s.f.p
	enc := newACPEncoder(acpEncoding{Cwd: s.cwd, Client: s.f.client(), Replay: true,
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

// state is what a client is told of a session that was opened. The sessionId is in the answer to session/load too,
// where some clients look for it, but the schema has none in that to session/resume.
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

// finishOpening lets updates and prompts through, behind the answer that opened the session.
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
	s.opening, s.before = false, nil
	s.mu.Unlock()
	s.options.tellChanges() // a list of models that came meanwhile has told nobody who knew nothing yet
	s.skills.tell()         // also where a turn that began meanwhile was too much to keep
	s.skills.look()
	s.notices(notes)
	s.poke()
}

// refuse answers the prompts of a session that could not be opened.
func (s *acpSession) refuse(e *rpcError) {
	s.mu.Lock()
	s.closing, s.opening, s.early = true, false, nil
	left := s.queue.prompts
	s.queue.prompts = nil
	s.mu.Unlock()
	s.poke()
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

// restored is what a load that failed leaves: the session itself, open as it was, or if it was closed or refused, the
// one before it; nil for none.
func (s *acpSession) restored() *acpSession {
	for s != nil {
		s.mu.Lock()
		over, before := s.closing, s.before
		s.leaving = false
		s.mu.Unlock()
		if !over {
			break
		}
		s = before
	}
	return s
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
	s.skills.event(e)
	own := e.thread == "" || e.thread == a.Thread
	begins := own && e.turn != "" && (e.kind == evStarted || e.method == "turn/started")
	s.mu.Lock()
	if own && e.kind == evUsage {
		s.usage, s.counted = *e.usage, true
	}
	if begins && s.opening {
		s.live[e.turn] = true
	}
	told, first, outcome, mailText := true, false, "", ""
	p := s.queue.byWaiterLocked(w)
	switch {
	case p != nil:
		told, first, outcome = p.noteLocked(e, own, begins)
	case w != 0:
		told = false // its prompt was answered
	case own:
		mailText = s.noteMailLocked(e, begins)
	}
	mail := own && w == 0 && s.mailTurn != ""
	s.mu.Unlock()

	if outcome != "" {
		p.tellSteered(outcome)
	}
	if !told {
		return
	}
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
	switch {
	case own && e.method == "thread/name/updated":
		s.setTitle(stringField(e.raw, "threadName"), false)
	case own && e.kind == evOpened && e.opened != nil: // somebody may have named it elsewhere
		s.setTitle(e.opened.name, false)
		s.setTitle(promptTitle(e.opened.preview), true)
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

// noteMailLocked takes in an event of a turn that nobody here asked for, and returns what the agent was sent for it, as
// soon as that is known.
func (s *acpSession) noteMailLocked(e *event, begins bool) (text string) {
	if begins && s.mailTurn != e.turn {
		s.mailTurn, s.mailItem = e.turn, ""
	}
	if s.mailTurn == "" || e.turn != s.mailTurn || s.mailItem != "" || e.kind != evItem ||
		e.body.kind != "userMessage" {
		return ""
	}
	s.mailItem = e.item
	return e.body.text
}

// serverEvent takes what Codex tells of an MCP server as it opens the thread. One of the client's that failed is told
// in the prompt that waits or runs, else in the next one.
func (s *acpSession) serverEvent(e *event) {
	if s.servers.heard(e.item, e.status, strings.TrimSpace(e.text)) {
		s.mu.Lock()
		prompted := len(s.queue.prompts) > 0
		s.mu.Unlock()
		if prompted {
			s.tellServers()
		}
	}
	s.poke()
}

// tellServers shows what there is to tell of the MCP servers, as tool calls of the prompt that runs.
func (s *acpSession) tellServers() {
	for _, c := range s.servers.takeNews() {
		s.enc.tellOwn(c.title, c.status, c.text)
	}
}

// endMailTurn: the turn that nobody here asked for is over, with what it left open.
func (s *acpSession) endMailTurn(why string) {
	s.enc.endTurn(why)
	s.mu.Lock()
	s.mailTurn, s.mailItem = "", ""
	s.mu.Unlock()
	s.poke()
}

// send sends one session/update. While the session is opened it waits; false: nothing is sent until the running turn
// has ended, since the client doesn't read. The encoder calls it under its own lock, so it only notes that.
func (s *acpSession) send(update []byte) bool {
	s.mu.Lock()
	muted, opening := s.backlog == backlogMuted, s.opening
	switch {
	case muted:
	case opening:
		s.early = append(s.early, bytes.Clone(update))
		if s.earlySize += len(update); s.earlySize > replayRoom {
			s.backlog = backlogMuted
		}
	case s.f.p.queued() > acpBudget:
		s.backlog = backlogOver
	}
	s.mu.Unlock()
	if !muted && !opening {
		s.put(update)
	}
	return !muted
}

// put writes one session/update.
func (s *acpSession) put(update []byte) {
	b := make([]byte, 0, len(update)+len(s.id)+96)
	b = append(b, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":`...)
	b = appendJSONString(b, s.id)
	b = append(append(append(b, `,"update":`...), update...), "}}"...)
	s.f.p.put(b, keepSoon)
}

// notice tells the user something that isn't the agent's answer, where the client takes such.
func (s *acpSession) notice(severity, title, description string) {
	if !s.f.client().notices || title == "" {
		s.f.Log.Info("notice", "sessionId", s.id, "severity", severity, "title", title, "description", description)
		return
	}
	s.send(toJSON(acpNotice{"notice", severity, title, description}))
}

// notices tells what a result says that the caller should know, and the result before it did not. /status tells it
// where the client takes no notices.
func (s *acpSession) notices(words []string) {
	s.mu.Lock()
	before := s.notes
	s.notes = words
	s.mu.Unlock()
	for _, w := range words {
		if slices.Contains(before, w) {
			continue
		}
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
	var running []*acpPrompt
	for _, p := range s.queue.prompts {
		if p.stage == promptRunning {
			running = append(running, p)
		}
	}
	s.mu.Unlock()
	s.f.Log.Warn("the client doesn't read its updates", "sessionId", s.id, "waiting_mib", waits)
	for _, p := range running {
		words := fmt.Sprintf("the client has let %d MiB of updates wait, so this turn is shown no further: "+
			"it goes on by itself, and session/load tells all of it", waits)
		data := toJSON(map[string]any{"turn_status": "running"})
		s.f.answer(p.c, nil, &rpcError{Code: codeInternal, Message: words, Data: data})
	}
}

// setTitle gives the session a title. A first one, made of a prompt, counts only
// where the session has none; Codex may give it another.
func (s *acpSession) setTitle(title string, first bool) {
	s.titling.Lock()
	defer s.titling.Unlock()
	s.mu.Lock()
	if title == "" || title == s.title || first && s.title != "" {
		s.mu.Unlock()
		return
	}
	s.title = title
	s.mu.Unlock()
	s.f.setTitle(s.agentID, title)
	s.tellTitle()
}

// tellTitle shows the client what the session is called, if it has a title.
func (s *acpSession) tellTitle() {
	s.mu.Lock()
	title := s.title
	s.mu.Unlock()
	if title != "" {
		s.send(toJSON(map[string]any{"sessionUpdate": "session_info_update", "title": title,
			"updatedAt": time.Now().UTC().Format(time.RFC3339)}))
	}
}

// await waits until ready is true, at which it looks again after each poke. false: ctx has ended before.
func (s *acpSession) await(ctx context.Context, ready func() bool) bool {
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		if ready() {
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return false
		}
	}
}

// poke has those look again who await something of the session.
func (s *acpSession) poke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
}

// isIdle reports that the session is open and nothing of it runs or waits.
func (s *acpSession) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.opening && len(s.queue.prompts) == 0 && s.mailTurn == ""
}

// awaitIdle waits for the end of what was cancelled, though not for long: the hub ends what still runs then. If the
// request that waits is cancelled itself, the session stays open, so it takes prompts again.
func (s *acpSession) awaitIdle(ctx context.Context) *rpcError {
	limit, stop := context.WithTimeout(ctx, acpCloseLimit)
	defer stop()
	s.await(limit, s.isIdle)
	if ctx.Err() != nil {
		s.setClosing(false)
		return errACPClosing()
	}
	return nil
}
