package main

// session_offer.go owns the mail that goes with a client's own prompts
// (acp_mail = "prompt"): in an editor a turn that nobody asked for surprises, so
// mail wakes none, and the next prompt takes what is unread along. It runs on
// the session's own goroutine, before a turn starts. The rules are
// session_mail.go's: acknowledged when Codex has taken the turn, unread until
// then. It must never keep a prompt from starting for longer than offerLimit.

import (
	"slices"
	"time"
)

// offerLimit is how long a prompt waits for an inbox to be read.
const offerLimit = 2 * time.Second

// mailOffer is the pump's part of that.
type mailOffer struct {
	waits  *turn // the turn that waits for a fetch
	looked bool  // the inbox was read once since the session opened
}

// offersMail reports a session whose mail goes with its client's prompts.
func (s *session) offersMail() bool {
	return s.place != nil && s.place.client && s.h.cfg.acpMail == "prompt"
}

// offerMail has the mail fetched that goes with the turn which is about to
// start. true: that turn waits for it.
func (s *session) offerMail() bool {
	p := &s.mail
	if p.offer.waits != nil {
		return slices.Contains(s.m.queue, p.offer.waits)
	}
	if !s.offersMail() || p.state != pumpIdle || !p.joined || p.retry != nil || s.m.phase != phaseIdle || s.m.ending != endNone || !s.h.autoMail(&s.place.rec) {
		return false
	}
	at := slices.IndexFunc(s.m.queue, func(t *turn) bool { return t.req.run })
	if at < 0 {
		return false
	}
	t := s.m.queue[at]
	if t.asksMail || t.req.source != sourceClient || t.req.action != actPrompt || p.unread <= 0 && p.offer.looked {
		return false
	}
	identity := s.place.rec.Identity
	s.askMail(t, func() mailFetch { return s.h.mail.fetch(s.agentID, identity) })
	return true
}

// askMail has t wait for what fetch brings.
func (s *session) askMail(t *turn, fetch func() mailFetch) {
	p := &s.mail
	t.asksMail, p.offer.looked = true, true
	p.state, p.offer.waits, p.dirty = pumpFetching, t, false
	limit := time.AfterFunc(offerLimit, func() {
		s.box.post(func() {
			if p.offer.waits == t {
				p.offer.waits = nil
				s.log.Warn("a prompt goes without the mail that is unread, since the inbox could not be read in time", "identity", s.place.identity(), "limit", offerLimit)
			}
		})
	})
	s.h.goWork(func() {
		got := fetch()
		limit.Stop()
		s.box.post(func() { s.mailOffered(t, got) })
	})
}

// mailOffered gives a turn the mail that goes with it, if it still waits.
func (s *session) mailOffered(t *turn, got mailFetch) {
	p := &s.mail
	if p.offer.waits == t {
		p.offer.waits = nil
	}
	if s.fetched(got) && s.m.ending == endNone && slices.Contains(s.m.queue, t) {
		t.req.mail, t.offer = got.turn, got.prompt
		p.state, p.turn = pumpQueued, t
	}
}
