package main

// session_mail.go owns what a session does about its mail: when mail is fetched, delivered and acknowledged, and when
// that pauses. It runs on the session's own goroutine; files are its inbox's (session_inbox.go). A message is
// acknowledged when Codex has taken the turn that carries the message, never before, and never delivered after. In an
// editor a turn that nobody asked for surprises, so there (acp_mail = "prompt") mail starts no turn: the next prompt
// takes what is unread along, by the same rules, and waits for the inbox for mailWaitLimit at most.
//
//	idle ──mail, nothing runs or waits──▶ fetching ──▶ queued ──▶ running ──▶ idle
//
// The states of that:
//   - idle: no mail is under way. dirty says that there may be some; the pump looks when no turn runs or waits,
//     auto-mail is on and not paused, and no backoff runs.
//   - fetching: the hub's goroutine reads the inbox. Turns that come meanwhile go first: then what was fetched is
//     dropped, and fetched again later.
//   - queued: a mail turn waits in the machine, behind every client's turn. If one of those comes before the mail turn
//     starts, the mail turn is dropped likewise; close, park and shutdown drop it for good. Its messages stay unread.
//   - running: Codex has been sent the turn. With evStarted its messages are acknowledged: remembered at once, marked
//     read soon (mailSlot.mark). If the turn ends without evStarted (refused, the child died, nothing ran after all),
//     they are delivered again after a backoff. A start without an answer is interrupted by the machine and only over
//     when Codex has said what became of it: the end of a turn with a name means that it ran, which acknowledges;
//     without a name it did not. Where Codex says nothing the session is broken, and gets no mail.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	mailRowLimit   = 10 // mail turns in a row without a client's
	mailHourLimit  = 30 // mail turns in an hour
	mailRetryFirst = 5 * time.Second
	mailRetryMost  = 5 * time.Minute
	mailWaitLimit  = 2 * time.Second // how long a prompt waits for an inbox to be read
)

// pumpState is where a session stands with its mail; see above.
type pumpState int

const (
	pumpIdle pumpState = iota
	pumpFetching
	pumpQueued
	pumpRunning
)

// mailPump is the session's part of the mail.
type mailPump struct {
	s       *session
	state   pumpState
	turn    *turn     // that carries mail: queued or running
	waits   *turn     // the prompt that waits for a fetch, nil for none
	looked  bool      // the inbox was read for a prompt once since the session opened
	inbox   *mailSlot // nil: the mailroom doesn't look after any
	asked   *bool     // agent_mail's word before there was a record
	unread  int       // messages, as last counted; -1: there is no team
	dirty   bool      // there may be mail that was not looked for
	refused string    // why the inbox isn't delivered from
	// whose name the agent's has become too, "" for nobody else's: then no mail is sent or delivered
	conflict string
	paused   string      // why nothing is delivered until a client's turn or agent_mail
	row      int         // mail turns since the last client turn
	hour     []time.Time // when the mail turns of the last hour started
	fails    int         // deliveries in a row that came to nothing
	retry    *time.Timer // the backoff, while it runs
}

// join has the mailroom look after the inbox, once the session is open.
func (p *mailPump) join() {
	if p.inbox != nil {
		return
	}
	if p.unread = -1; p.s.h.cfg.teamless {
		return
	}
	if p.asked != nil {
		p.s.place.rec.AutoMail = p.asked
	}
	p.inbox = p.s.h.mail.join(p.s, p.s.place.rec.Identity)
}

// leave ends that with the session.
func (p *mailPump) leave() {
	if p.inbox != nil {
		p.inbox.leave(p.s)
		p.stopRetry()
	}
}

func (p *mailPump) stopRetry() {
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
}

// pending is what views tell of unread mail: nil without a team.
func (p *mailPump) pending() *int {
	if p.inbox == nil || p.unread < 0 {
		return nil
	}
	n := p.unread
	return &n
}

// auto reports whether mail is delivered at all.
func (p *mailPump) auto() bool { return autoMailOf(p.s.h.cfg, &p.s.place.rec) }

// autoMailOf reports whether mail starts turns in a session: agent_mail's word for it, per_thread_auto_mail's for its
// identity, its role's, or auto_mail.
func autoMailOf(cfg *config, rec *record) bool {
	if rec.AutoMail != nil {
		return *rec.AutoMail
	}
	for name, on := range cfg.perThreadAutoMail {
		if strings.EqualFold(name, rec.Identity) {
			return on
		}
	}
	if r, err := cfg.role(rec.Role); err == nil {
		return r.autoMail
	}
	return cfg.autoMail
}

// word is what views tell of auto-mail.
func (p *mailPump) word() string {
	on := p.auto()
	if why := cmp.Or(p.conflict, p.paused, p.refused); on && why != "" {
		return "paused: " + why
	}
	return onOff(on)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// automatic reports a running turn that delivers nothing but what nobody wrote: what is sent from it is automatic too,
// and never answered so.
func (p *mailPump) automatic() bool {
	t := p.s.m.cur
	return t != nil && t.req.source == sourceMail && t.req.mail != nil && t.req.mail.automatic
}

// counted is the mailroom's word of what is unread; changed: something came since the last count; conflict: whose name
// the agent's has become too.
func (p *mailPump) counted(unread int, changed bool, conflict string) {
	s := p.s
	p.unread = unread
	p.dirty = p.dirty || changed || p.refused != ""
	if conflict == p.conflict {
		return
	}
	p.conflict = conflict
	identity := s.place.rec.Identity
	if conflict == "" {
		p.dirty = true
		s.log.Info("the agent has its name for itself again, and so its mail", "identity", identity)
		s.h.ledger.auditMail(s.agentID, identity, "identity_conflict", "", "resolved", "")
		s.h.team.enrol(s.agentID, false)
		return
	}
	s.log.Warn("another member has the agent's name, so no mail is sent or delivered", "identity", identity, "why",
		conflict)
	s.h.ledger.auditMail(s.agentID, identity, "identity_conflict", "", "mail refused", conflict)
	other := fmt.Sprintf("codex with the id %s and another identity", s.agentID)
	if s.place.client { // an editor has no such tool
		other = "start it again under another identity"
	}
	s.notes = append(s.notes, fmt.Sprintf("No mail is sent as %s or delivered to it: %s. That ends when the member "+
		"leaves, or with another name: %s", identity, conflict, other))
}

// quiet reports that nothing runs or waits and a turn could start.
func (p *mailPump) quiet() bool {
	s := p.s
	return s.thread != "" && s.m.ending == endNone && s.m.cur == nil && len(s.m.queue) == 0 &&
		(s.m.phase == phaseIdle || s.m.phase == phaseOpening && !s.opening)
}

// withPrompts reports a session whose mail goes with its client's prompts.
func (p *mailPump) withPrompts() bool {
	return p.s.place.client && p.s.h.cfg.acpMail == "prompt"
}

// fetch begins a fetch if there is any reason to. The loop calls it after everything that had come was taken in.
func (p *mailPump) fetch() {
	if p.withPrompts() || p.state != pumpIdle || !p.dirty || p.unread <= 0 || p.paused != "" || p.retry != nil ||
		!p.quiet() || !p.auto() {
		return
	}
	s := p.s
	p.dirty, p.state = false, pumpFetching
	identity := s.place.rec.Identity
	s.h.work.start(func() {
		got := p.inbox.fetch(s.agentID, identity)
		s.box.do(func() { p.fetched(got) })
	})
}

// fetched makes a turn of what was fetched, if nothing came meanwhile.
func (p *mailPump) fetched(got mailFetch) {
	if !p.endFetch(got) {
		return
	}
	if !p.quiet() || !p.auto() {
		p.dirty = true
		return
	}
	now := time.Now()
	if why := p.runaway(now); why != "" {
		p.dirty = true
		p.pause(why, got.last)
		return
	}
	p.state = pumpQueued
	p.turn = &turn{asked: now, req: turnRequest{mode: modeReply, source: sourceMail, ref: p.s.agentID,
		prompt: got.prompt, run: true, mail: got.turn, correlation: "mail-" + newMessageID()[:8]}}
	p.s.asks.byCaller = false
	p.s.carry(p.s.m.submit(p.turn))
}

// endFetch takes what a fetch came to; false: it brought nothing.
func (p *mailPump) endFetch(got mailFetch) bool {
	p.state = pumpIdle
	was := p.refused
	if p.refused = ""; got.refused { // looked at again by the poll, or when anything changes
		if p.refused = got.err.Error(); p.refused != was { // not at every poll
			p.s.log.Warn("mail is not delivered", "identity", p.s.place.rec.Identity, "err", got.err)
		}
	} else if got.turn == nil && got.err != nil {
		p.retryLater(got.err.Error())
	}
	return got.turn != nil
}

// delaysTurn has the mail fetched that goes with the prompt which is about to start. true: that prompt waits for it.
func (p *mailPump) delaysTurn() bool {
	s := p.s
	if p.waits != nil {
		return slices.Contains(s.m.queue, p.waits)
	}
	if !p.withPrompts() || p.state != pumpIdle || p.inbox == nil || p.retry != nil || s.m.phase != phaseIdle ||
		s.m.ending != endNone || !p.auto() {
		return false
	}
	at := slices.IndexFunc(s.m.queue, func(t *turn) bool { return t.req.run })
	if at < 0 {
		return false
	}
	t := s.m.queue[at]
	if t.asksMail || t.req.source != sourceClient || t.req.action != actPrompt || p.unread <= 0 && p.looked {
		return false
	}
	identity := s.place.rec.Identity
	p.fetchFor(t, func() mailFetch { return p.inbox.fetch(s.agentID, identity) })
	return true
}

// fetchFor has a prompt wait for what fetch brings.
func (p *mailPump) fetchFor(t *turn, fetch func() mailFetch) {
	s := p.s
	t.asksMail, p.looked = true, true
	p.state, p.waits, p.dirty = pumpFetching, t, false
	limit := s.after(mailWaitLimit, func() {
		if p.waits == t {
			p.waits = nil
			s.log.Warn("a prompt goes without the mail that is unread, since the inbox could not be read in time",
				"identity", s.place.rec.Identity, "limit", mailWaitLimit)
		}
	})
	s.h.work.start(func() {
		got := fetch()
		limit.Stop()
		s.box.do(func() { p.fetchedFor(t, got) })
	})
}

// fetchedFor gives a prompt the mail that goes with it, if it still waits in the queue.
func (p *mailPump) fetchedFor(t *turn, got mailFetch) {
	if p.waits == t {
		p.waits = nil
	}
	if p.endFetch(got) && p.s.m.ending == endNone && slices.Contains(p.s.m.queue, t) {
		t.req.mail, t.mailText = got.turn, got.prompt
		p.state, p.turn = pumpQueued, t
	}
}

// giveWay follows a turn that carries mail before the next turn starts: a mail turn gives way to a client's turn that
// came while it waited, which may read the inbox itself.
func (p *mailPump) giveWay() {
	if p.state != pumpQueued {
		return
	}
	s := p.s
	waits := slices.Contains(s.m.queue, p.turn)
	switch {
	case s.m.cur == p.turn:
		p.state = pumpRunning
	case p.turn.req.source != sourceMail: // a client's own turn, which takes the mail along
		if !waits {
			p.state, p.turn = pumpIdle, nil
		}
	case !waits: // agent_interrupt took it
		p.state, p.turn, p.dirty = pumpIdle, nil, true
		p.retryLater("it was interrupted before it started")
	case s.m.cur != nil || s.m.queue[0] != p.turn || !p.auto():
		s.m.drop(p.turn)
		p.state, p.turn, p.dirty = pumpIdle, nil, true
	}
}

// acknowledge: Codex has the turn. Only now are its messages acknowledged (FR-8.6).
func (p *mailPump) acknowledge(t *turn, id string) {
	if t == nil || t.req.mail == nil || t.req.mail.taken {
		return
	}
	s, m := p.s, t.req.mail
	m.taken = true
	p.fails = 0
	if t.req.source == sourceMail {
		p.row++
		p.hour = append(p.hour, time.Now())
	}
	p.unread = max(0, p.unread-len(m.keys))
	p.inbox.acknowledge(m.name, m.keys)
	s.h.team.usesMail(s.agentID)
	s.log.Info("mail delivered", "identity", s.place.rec.Identity, "messages", len(m.keys), "turn", id, "correlation",
		t.req.correlation)
}

// ended: a turn that carries mail has left the machine.
func (p *mailPump) ended(t *turn, how finishKind) {
	if p.turn != t {
		return
	}
	p.state, p.turn, p.dirty = pumpIdle, nil, true
	if !t.req.mail.taken && p.s.m.ending == endNone && t.req.source == sourceMail { // else the next prompt takes it
		why := "Codex is gone"
		if how == finishRefused {
			why = t.run.err.Message
		} else if how == finishEnded {
			why = "Codex did not begin it"
		}
		p.retryLater(why)
	}
}

// retryLater has what was not delivered tried again, later each time.
func (p *mailPump) retryLater(why string) {
	pause := min(mailRetryFirst<<min(p.fails, 16), mailRetryMost)
	p.fails++
	p.stopRetry()
	p.dirty = true
	p.retry = p.s.after(pause, func() { p.retry = nil })
	p.s.log.Warn("mail could not be delivered and is tried again", "identity", p.s.place.rec.Identity, "in", pause,
		"why", why)
}

// runaway is why no further mail turn may start by itself, "" if one may.
func (p *mailPump) runaway(now time.Time) string {
	p.hour = slices.DeleteFunc(p.hour, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
	const resume = "; a codex-reply, or agent_mail with auto true, resumes it"
	switch {
	case p.row >= mailRowLimit:
		return fmt.Sprintf("%d mail turns in a row without a turn of the client's", p.row) + resume
	case len(p.hour) >= mailHourLimit:
		return fmt.Sprintf("%d mail turns within an hour", len(p.hour)) + resume
	}
	return ""
}

// pause stops deliveries: agents may be answering each other without end. Whoever wrote last is told, once.
func (p *mailPump) pause(why string, last mailMessage) {
	s := p.s
	p.paused = why
	identity := s.place.rec.Identity
	s.log.Warn("auto-mail paused", "identity", identity, "why", why)
	s.h.ledger.auditMail(s.agentID, identity, "auto_mail", last.From, "paused", why)
	text := fmt.Sprintf("This is an automatic message. Mail to %s is not delivered for now: %s. Your message is kept "+
		"in its inbox, unread, and will be delivered then. Don't answer this.", identity, why)
	s.h.work.start(func() {
		if err := p.inbox.reply(identity, last, mailMessage{Text: text, Summary: "mail is paused"}); err != nil {
			s.log.Info("the sender is not told that auto-mail is paused", "to", cutName(last.From), "err", err)
		}
	})
}

// resume: a client asked for a turn, so somebody is in charge.
func (p *mailPump) resume() {
	p.row = 0
	if p.paused != "" {
		p.paused, p.hour, p.dirty = "", nil, true
		p.s.h.ledger.auditMail(p.s.agentID, p.s.place.rec.Identity, "auto_mail", "", "resumed", "")
	}
}

// set is agent_mail: auto-mail of this session, whatever else is configured.
func (p *mailPump) set(auto bool) sessionView {
	s := p.s
	if !s.hasPlace() {
		p.asked = &auto
	} else {
		s.place.rec.AutoMail = &auto
		s.h.ledger.save(&s.place.rec)
	}
	s.h.ledger.auditMail(s.agentID, s.place.rec.Identity, "auto_mail", "", onOff(auto), "by agent_mail")
	if auto {
		p.dirty = true
		p.resume()
	}
	s.publish()
	return *s.shown.Load()
}
