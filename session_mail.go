package main

// session_mail.go owns what a session does about its mail: when it is fetched,
// delivered and acknowledged, and when that pauses. It runs on the session's own
// goroutine; files are the mailroom's. A message is acknowledged when Codex has
// taken the turn that carries it, never before, and never delivered after.
//
//	idle ──mail, nothing runs or waits──▶ fetching ──▶ queued ──▶ running ──▶ idle
//
// idle: no mail is under way. dirty says that there may be some; it is looked
// for when no turn runs or waits, auto-mail is on, not paused, and no backoff runs.
// fetching: the hub's goroutine reads the inbox. Whatever comes meanwhile goes
// first: then what was fetched is dropped, and fetched again later.
// queued: a mail turn waits in the machine, behind every client's turn. If one
// comes before it starts, it is dropped likewise; close, park and shutdown drop it
// for good. Its messages are unread all the time.
// running: Codex has been sent the turn. With evStarted its messages are
// acknowledged: remembered at once, marked read soon (mailroom.mark). If the turn
// ends without it (refused, the child died, nothing ran after all), they are
// delivered again after a backoff. A start without an answer is interrupted by the
// machine and only over when Codex has said what became of it: the end of a turn
// with a name means that it ran, which acknowledges; without a name it did not.
// Where Codex says nothing the session is broken, and gets no mail.

import (
	"fmt"
	"slices"
	"time"
)

const (
	mailRowLimit   = 10 // mail turns in a row without a client's
	mailHourLimit  = 30 // mail turns in an hour
	mailRetryFirst = 5 * time.Second
	mailRetryMost  = 5 * time.Minute
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
	state   pumpState
	turn    *turn // queued or running
	joined  bool  // the mailroom looks after the inbox
	asked   *bool // agent_mail's word before there was a record
	unread  int   // as last counted, -1: there is no team
	dirty   bool
	refused string // why the inbox isn't delivered from
	strange string // whose name the agent's has become too, "" for nobody else's: then no mail is sent or delivered
	offer   mailOffer
	paused  string // why nothing is delivered until a client's turn or agent_mail
	row     int    // mail turns since the last client turn
	hour    []time.Time
	fails   int
	retry   *time.Timer // the backoff, while it runs
}

// openMail has the mailroom look after the inbox, once the session is open.
func (s *session) openMail() {
	p := &s.mail
	if p.joined {
		return
	}
	if p.unread = -1; s.h.cfg.teamless {
		return
	}
	p.joined = true
	if p.asked != nil {
		s.place.rec.AutoMail = p.asked
	}
	s.h.mail.join(s, s.place.rec.Identity)
}

// closeMail ends that with the session.
func (s *session) closeMail() {
	if p := &s.mail; p.joined {
		s.h.mail.leave(s, s.place.rec.Identity)
		p.rest()
	}
}

// rest ends the backoff.
func (p *mailPump) rest() {
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
}

// pending is what views tell: nil without a team.
func (p *mailPump) pending() *int {
	if !p.joined || p.unread < 0 {
		return nil
	}
	n := p.unread
	return &n
}

func samePending(a, b *int) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// autoMailWord is what views tell of auto-mail.
func (s *session) autoMailWord() string {
	p := &s.mail
	switch on := s.h.autoMail(&s.place.rec); {
	case on && p.strange != "":
		return "paused: " + p.strange
	case on && p.paused != "":
		return "paused: " + p.paused
	case on && p.refused != "":
		return "paused: " + p.refused
	default:
		return onOff(on)
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// automaticMail reports a running turn that delivers nothing but what nobody
// wrote: what is sent from it is automatic too, and never answered so.
func (s *session) automaticMail() bool {
	t := s.m.cur
	return t != nil && t.req.source == sourceMail && t.req.mail != nil && t.req.mail.automatic
}

// mailCounted is the mailroom's word of what is unread; fresh: there was a change;
// strange: whose name the agent's has become too.
func (s *session) mailCounted(unread int, fresh bool, strange string) {
	p := &s.mail
	p.unread = unread
	p.dirty = p.dirty || fresh || p.refused != ""
	if strange == p.strange {
		return
	}
	p.strange = strange
	identity := s.place.rec.Identity
	if strange == "" {
		p.dirty = true
		s.log.Info("the agent has its name for itself again, and so its mail", "identity", identity)
		s.h.book.auditMail(s.agentID, identity, "identity_conflict", "", "resolved", "")
		s.h.post.enrol(s.agentID, false)
		return
	}
	s.log.Warn("another member has the agent's name, so no mail is sent or delivered", "identity", identity, "why", strange)
	s.h.book.auditMail(s.agentID, identity, "identity_conflict", "", "mail refused", strange)
	s.notes = append(s.notes, fmt.Sprintf("No mail is sent as %s or delivered to it: %s. That ends when the member leaves, or with another name: codex {\"agent_id\": %q, \"identity\": …}", identity, strange, s.agentID))
}

// quiet reports that nothing runs or waits and a turn could start.
func (s *session) quiet() bool {
	return s.place != nil && s.thread != "" && s.m.ending == endNone && s.m.cur == nil && len(s.m.queue) == 0 &&
		(s.m.phase == phaseIdle || s.m.phase == phaseOpening && !s.opening)
}

// fetchMail begins a fetch if there is any reason to. The loop calls it after
// everything that had come was taken in.
func (s *session) fetchMail() {
	p := &s.mail
	if s.offersMail() || p.state != pumpIdle || !p.dirty || p.unread <= 0 || p.paused != "" || p.retry != nil || !s.quiet() || !s.h.autoMail(&s.place.rec) {
		return
	}
	p.dirty, p.state = false, pumpFetching
	identity := s.place.rec.Identity
	s.h.goWork(func() {
		got := s.h.mail.fetch(s.agentID, identity)
		s.box.post(func() { s.mailFetched(got) })
	})
}

// mailFetched makes a turn of what was fetched, if nothing came meanwhile.
func (s *session) mailFetched(got mailFetch) {
	p := &s.mail
	if !s.fetched(got) {
		return
	}
	if !s.quiet() || !s.h.autoMail(&s.place.rec) {
		p.dirty = true
		return
	}
	now := time.Now()
	if why := p.runaway(now); why != "" {
		p.dirty = true
		s.pauseMail(why, got.last)
		return
	}
	p.state = pumpQueued
	p.turn = &turn{asked: now, req: turnRequest{mode: modeReply, source: sourceMail, ref: s.agentID, prompt: got.prompt, run: true,
		mail: got.turn, correlation: "mail-" + newMessageID()[:8]}}
	s.byCaller = false
	s.carry(s.m.submit(p.turn))
}

// fetched takes what a fetch came to; false: it brought nothing.
func (s *session) fetched(got mailFetch) bool {
	p := &s.mail
	p.state = pumpIdle
	was := p.refused
	if p.refused = ""; got.refused { // looked at again by the poll, or when anything changes
		if p.refused = got.err.Error(); p.refused != was { // not at every poll
			s.log.Warn("mail is not delivered", "identity", s.place.rec.Identity, "err", got.err)
		}
	} else if got.turn == nil && got.err != nil {
		s.mailFails(got.err.Error())
	}
	return got.turn != nil
}

// yieldMail gives way before the next turn starts: to a client's turn that came
// while the mail waited, which may read the inbox itself.
func (s *session) yieldMail() {
	p := &s.mail
	if p.state != pumpQueued {
		return
	}
	switch {
	case s.m.cur == p.turn:
		p.state = pumpRunning
	case p.turn.req.source != sourceMail: // a client's own turn, which takes the mail along
		if !slices.Contains(s.m.queue, p.turn) {
			p.state, p.turn = pumpIdle, nil
		}
	case !slices.Contains(s.m.queue, p.turn): // agent_interrupt took it
		p.state, p.turn, p.dirty = pumpIdle, nil, true
		s.mailFails("it was interrupted before it started")
	case s.m.cur != nil || s.m.queue[0] != p.turn || !s.h.autoMail(&s.place.rec):
		s.m.drop(p.turn)
		p.state, p.turn, p.dirty = pumpIdle, nil, true
	}
}

// mailTaken: Codex has the turn. Only now are its messages acknowledged (FR-8.6).
func (s *session) mailTaken(t *turn, id string) {
	if t == nil || t.req.mail == nil || t.req.mail.taken {
		return
	}
	p, m, now := &s.mail, t.req.mail, time.Now()
	m.taken = true
	p.fails = 0
	if t.req.source == sourceMail {
		p.row++
		p.hour = append(slices.DeleteFunc(p.hour, func(at time.Time) bool { return now.Sub(at) >= time.Hour }), now)
	}
	p.unread = max(0, p.unread-len(m.keys))
	s.h.mail.acknowledge(s.place.rec.Identity, m.name, m.keys)
	s.h.post.usesMail(s.agentID)
	s.log.Info("mail delivered", "identity", s.place.rec.Identity, "messages", len(m.keys), "turn", id, "correlation", t.req.correlation)
}

// mailEnded: a mail turn has left the machine.
func (s *session) mailEnded(t *turn, how finishKind) {
	p := &s.mail
	if p.turn != t {
		return
	}
	p.state, p.turn, p.dirty = pumpIdle, nil, true
	if !t.req.mail.taken && s.m.ending == endNone && t.req.source == sourceMail { // else the next prompt takes it
		why := "Codex is gone"
		if how == finishRefused {
			why = t.run.err.Message
		} else if how == finishEnded {
			why = "Codex did not begin it"
		}
		s.mailFails(why)
	}
}

// mailFails has what was not delivered tried again, later each time.
func (s *session) mailFails(why string) {
	p := &s.mail
	pause := min(mailRetryFirst<<min(p.fails, 16), mailRetryMost)
	p.fails++
	p.rest()
	p.dirty = true
	p.retry = time.AfterFunc(pause, func() { s.box.post(func() { p.retry = nil }) })
	s.log.Warn("mail could not be delivered and is tried again", "identity", s.place.rec.Identity, "in", pause, "why", why)
}

// runaway is why no further mail turn may start by itself, "" if one may.
func (p *mailPump) runaway(now time.Time) string {
	recent := 0
	for _, at := range p.hour {
		if now.Sub(at) < time.Hour {
			recent++
		}
	}
	const resume = "; a codex-reply, or agent_mail with auto true, resumes it"
	switch {
	case p.row >= mailRowLimit:
		return fmt.Sprintf("%d mail turns in a row without a turn of the client's", p.row) + resume
	case recent >= mailHourLimit:
		return fmt.Sprintf("%d mail turns within an hour", recent) + resume
	}
	return ""
}

// pauseMail stops deliveries: agents may be answering each other without end.
// Whoever wrote last is told, once.
func (s *session) pauseMail(why string, last mailMessage) {
	s.mail.paused = why
	identity := s.place.rec.Identity
	s.log.Warn("auto-mail paused", "identity", identity, "why", why)
	s.h.book.auditMail(s.agentID, identity, "auto_mail", last.From, "paused", why)
	text := fmt.Sprintf("This is an automatic message. Mail to %s is not delivered for now: %s. Your message is kept in its inbox, unread, and will be delivered then. Don't answer this.", identity, why)
	s.h.goWork(func() {
		if err := s.h.mail.reply(identity, last, mailMessage{Text: text, Summary: "mail is paused"}); err != nil {
			s.log.Info("the sender is not told that auto-mail is paused", "to", cutName(last.From), "err", err)
		}
	})
}

// mailResumes: a client asked for a turn, so somebody is in charge.
func (s *session) mailResumes() {
	p := &s.mail
	p.row = 0
	if p.paused != "" {
		p.paused, p.hour, p.dirty = "", nil, true
		s.h.book.auditMail(s.agentID, s.place.identity(), "auto_mail", "", "resumed", "")
	}
}

// setMail is agent_mail: auto-mail of this session, whatever else is configured.
func (s *session) setMail(auto bool) sessionView {
	p := &s.mail
	if s.place == nil {
		p.asked = &auto
	} else {
		s.place.rec.AutoMail = &auto
		s.h.book.save(&s.place.rec)
	}
	s.h.book.auditMail(s.agentID, s.place.identity(), "auto_mail", "", onOff(auto), "by agent_mail")
	if auto {
		p.dirty = true
		s.mailResumes()
	}
	s.publish()
	return *s.shown.Load()
}
