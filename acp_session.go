package main

// acp_session.go owns one session of an ACP client while it is open on this
// connection: what it was opened with, the way of events to its encoder and of
// updates to the client, and what becomes of them when the client doesn't
// read. acp_lifecycle.go opens and closes it, acp_prompt.go runs its prompts. It
// must never hold its lock over a call of the hub, the encoder or the options.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// acpSession is made anew by each session/new, load and resume.
type acpSession struct {
	// fixed once it is open
	f       *acpFront
	id      string // the client's
	agentID string // set before the hub knows of it
	cwd     string
	roots   []string
	mcp     json.RawMessage // the client's MCP servers, as Codex's mcp_servers
	enc     *acpEncoder
	opts    acpOptionState
	servers acpServerState

	mu       sync.Mutex // guards the fields below
	opening  bool       // not answered yet: prompts and updates wait
	closing  bool       // takes no prompts any more
	prompts  []*acpPrompt
	pumping  bool
	again    bool // pump was called while it ran
	title    string
	backlog  acpBacklog
	live     map[string]bool // turns that began while the session was opened: they are told as they run, not as its past
	mailTurn string          // the running turn that nobody here asked for, "" for none
	mailItem string          // its message, once it was shown
	idle     []chan struct{}
	before   *acpSession // whose end the opening waits for, nil for none

	early     [][]byte // updates that came while it was opened
	earlySize int
}

// acpBacklog is how well a session's client reads.
type acpBacklog int

const (
	backlogFine  acpBacklog = iota // as far as we know
	backlogOver                    // the client has let too much wait
	backlogMuted                   // so nothing is sent until the running turn has ended
)

// newState makes a session that is being opened.
func (f *acpFront) newState(id, agentID, cwd string, roots []string) *acpSession {
	s := &acpSession{f: f, id: id, agentID: agentID, cwd: cwd, roots: roots, opening: true}
	s.enc = newACPEncoder(acpEncoding{Cwd: cwd, Notices: f.client().notices, Send: s.send, Crowded: f.crowded})
	return s
}

// sessionOf finds the session that params name by sessionId.
func (f *acpFront) sessionOf(params json.RawMessage) (*acpSession, *rpcError) {
	id, e := paramSession(params)
	if e != nil {
		return nil, e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sessions[id]; s != nil {
		return s, nil
	}
	return nil, noSession(id)
}

// sessionBy finds the session of an agent, nil for none.
func (f *acpFront) sessionBy(agentID string) *acpSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agents[agentID]
}

// each calls do with every open session.
func (f *acpFront) each(do func(*acpSession)) {
	f.mu.Lock()
	all := make([]*acpSession, 0, len(f.sessions))
	for _, s := range f.sessions {
		all = append(all, s)
	}
	f.mu.Unlock()
	for _, s := range all {
		do(s)
	}
}

// settled tells the client of options that are no more what it knows.
func (f *acpFront) settled(s *acpSession) {
	for _, u := range s.optionUpdates() {
		s.send(u)
	}
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

// event takes an event of the session, on the session's own goroutine.
func (s *acpSession) event(a agentRef, w waiterID, e *event) {
	s.observe(a, e)
	if e.kind == evServer {
		s.pump()
		return
	}
	own := e.thread == "" || e.thread == a.Thread
	begins := own && e.turn != "" && (e.kind == evStarted || e.method == "turn/started")
	shown, first := "", false
	s.mu.Lock()
	if begins && s.opening {
		if s.live == nil {
			s.live = map[string]bool{}
		}
		s.live[e.turn] = true
	}
	if w != 0 {
		p := s.promptLocked(w)
		if p == nil || p.cancelled && !p.begun {
			s.mu.Unlock()
			return // its prompt was answered: nothing of it is told
		}
		if first = begins && p.turn == ""; first {
			s.mailTurn = "" // one turn runs at a time
		}
		p.begun = true
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
		if s.mailTurn != "" && e.turn == s.mailTurn && e.kind == evItem && e.body != nil && e.body.kind == "userMessage" && s.mailItem == "" {
			s.mailItem, shown = e.item, e.body.text
		}
	}
	mail := own && w == 0 && s.mailTurn != ""
	s.mu.Unlock()

	s.enc.event(a, e)
	if first {
		s.tellServers()
	}
	if shown != "" { // what the agent was sent stands in front of what it does
		s.enc.sayUserText(shown)
	}
	if mail && e.kind == evEnded {
		s.enc.endTurn("")
		s.mailEnded()
	}
	if own && e.method == "thread/name/updated" {
		s.named(stringField(e.raw, "threadName"), false)
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
		s.enc.endTurn("Codex is gone")
		s.mailEnded()
	}
}

// mailEnded: the turn that nobody here asked for is over.
func (s *acpSession) mailEnded() {
	s.mu.Lock()
	s.mailTurn, s.mailItem = "", ""
	s.mu.Unlock()
	s.pump()
}

// mute gives a turn up whose updates the client doesn't read: its prompt is
// answered with that, it goes on by itself, and session/load tells all of it.
func (s *acpSession) mute() {
	waits := s.f.p.queued() >> 20
	s.enc.endTurn("not shown any further: the client doesn't read")
	s.mu.Lock()
	s.backlog = backlogMuted
	var running *acpPrompt
	for _, p := range s.prompts {
		if p.begun {
			running = p
			break
		}
	}
	s.mu.Unlock()
	s.f.Log.Warn("the client doesn't read its updates", "sessionId", s.id, "waiting_mib", waits)
	if running != nil {
		s.f.answer(running.c, nil, &rpcError{Code: codeInternal, Message: fmt.Sprintf("the client has let %d MiB of updates wait, so this turn is shown no further: it goes on by itself, and session/load tells all of it", waits),
			Data: toJSON(map[string]any{"turn_status": "running"})})
	}
}

// named gives the session a title. It keeps the one it has, unless Codex gives
// it another.
func (s *acpSession) named(title string, first bool) {
	s.mu.Lock()
	if title == "" || title == s.title || first && s.title != "" {
		s.mu.Unlock()
		return
	}
	s.title = title
	s.mu.Unlock()
	s.f.setTitle(s.agentID, title)
	s.send(toJSON(map[string]any{"sessionUpdate": "session_info_update", "title": title, "updatedAt": time.Now().UTC().Format(time.RFC3339)}))
}

// opened lets updates and prompts through, behind the answer that opened it.
func (s *acpSession) opened(notes []string) {
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
	s.pump()
}

// whenIdle is closed once the session is open and nothing of it runs or waits.
func (s *acpSession) whenIdle() <-chan struct{} {
	ch := make(chan struct{})
	s.mu.Lock()
	s.idle = append(s.idle, ch)
	s.mu.Unlock()
	s.pump()
	return ch
}

// tellIdleLocked tells those who wait for it.
func (s *acpSession) tellIdleLocked() {
	if s.opening || len(s.prompts) > 0 || s.mailTurn != "" {
		return
	}
	for _, ch := range s.idle {
		close(ch)
	}
	s.idle = nil
}
