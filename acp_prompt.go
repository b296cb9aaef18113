package main

// acp_prompt.go owns the prompts of an ACP session: their queue, their way to the
// hub, their cancelling, and what the end of a turn means for them. acp.go
// brings them, the hub ends them. Each is answered exactly once, and nothing of
// its turn is sent after that; one that the client cancelled is answered
// `cancelled`, whatever else became of it.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// maxPrompts is how many may wait in one session.
const maxPrompts = maxQueue + 1

// acpTitle is how long a title made of a prompt may be.
const acpTitle = 80

// promptStage is how far a prompt has come.
type promptStage int

const (
	promptHeld       promptStage = iota // here: nothing to cancel at the hub
	promptSubmitting                    // submit is being called: a cancel waits for its return
	promptSubmitted                     // the hub knows the waiter, or it is answered in its place here
	promptTelling                       // its answer is being told here: a cancel waits for the end of that
)

// acpPrompt is one prompt of the client, from its request to its answer.
type acpPrompt struct {
	c      *acpCall
	s      *acpSession
	text   string       // all that is text of it
	parts  []promptPart // where it is more than text
	action turnAction
	title  string                       // of the session, if it has none
	local  func(context.Context) string // answers it in its place in the queue, without a turn

	// guarded by acpSession.mu
	waiter    waiterID
	stage     promptStage
	checking  bool // whether the model takes its images
	begun     bool // its turn is the running one
	turn      string
	cancelled bool
	again     bool          // it goes to the hub a second time
	failure   *backendError // of its turn's end
	stop      func()        // ends what answers it here
}

// takePrompt takes session/prompt, on the reading goroutine.
func (f *acpFront) takePrompt(c *acpCall, params json.RawMessage) {
	s, e := f.sessionOf(params)
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	text, parts, e := readPrompt(rawField(params, "prompt"))
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	p := &acpPrompt{c: c, s: s, text: text, parts: parts, checking: hasImage(parts)}
	s.mu.Lock()
	closing, full := s.closing, len(s.prompts) >= maxPrompts
	s.mu.Unlock()
	switch {
	case closing:
		f.answer(c, nil, noSession(s.id))
		return
	case full:
		f.answer(c, nil, &rpcError{Code: codeInternal, Message: fmt.Sprintf("%d prompts of this session already wait: send this one when one of them was answered", maxPrompts)})
		return
	}
	p.title = promptTitle(text)
	s.slash(p)
	if !f.isOpen(c) {
		return
	}
	s.mu.Lock()
	c.prompt = p
	s.prompts = append(s.prompts, p)
	s.mu.Unlock()
	if p.checking && !f.spawn(func() { s.checkImages(p) }) {
		s.checked(p)
	}
	s.pump()
}

// promptTitle is what a session is called after its first prompt, "" for a
// command.
func promptTitle(text string) string {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "/") {
		return ""
	}
	for strings.HasPrefix(text, resourceOpens) { // what a prompt is about rather than what is in it
		_, rest, ok := strings.Cut(text, "\n\n")
		if !ok {
			return ""
		}
		text = strings.TrimSpace(rest)
	}
	text, _, _ = strings.Cut(text, "\n")
	return clip(strings.TrimSpace(text), acpTitle)
}

// checkImages refuses images that the model doesn't take. It waits for the list
// of models.
func (s *acpSession) checkImages(p *acpPrompt) {
	s.f.modelList(modelsWait)
	if m := s.model(); !m.sees() {
		s.f.answer(p.c, nil, badParams("the model %s takes no images: choose another by the config option \"model\", or send the prompt without them", m.word()))
		return
	}
	s.checked(p)
}

func (s *acpSession) checked(p *acpPrompt) {
	s.mu.Lock()
	p.checking = false
	s.mu.Unlock()
	s.pump()
}

// pump sends on what may go, in order. Any goroutine may call it.
func (s *acpSession) pump() {
	s.mu.Lock()
	if s.pumping {
		s.again = true
		s.mu.Unlock()
		return
	}
	s.pumping = true
	for {
		s.again = false
		s.mu.Unlock()
		starting, choosing := s.servers.pending(), s.opts.busy()
		s.mu.Lock()
		p := s.nextLocked(starting, choosing)
		if p == nil {
			if s.again {
				continue
			}
			s.pumping = false
			s.tellIdleLocked()
			s.mu.Unlock()
			return
		}
		p.stage = promptSubmitting
		s.mu.Unlock()
		s.start(p)
		s.mu.Lock()
	}
}

// nextLocked is the prompt that may go to the hub now, nil for none. What is
// answered here waits until nothing is before it, and what comes behind it
// until it is answered.
func (s *acpSession) nextLocked(starting, choosing bool) *acpPrompt {
	if s.opening || choosing || starting {
		return nil
	}
	for i, p := range s.prompts {
		switch {
		case p.stage == promptHeld && (p.checking || p.local != nil && i > 0):
			return nil
		case p.stage == promptHeld:
			return p
		case p.local != nil:
			return nil
		}
	}
	return nil
}

// start hands a prompt to the hub.
func (s *acpSession) start(p *acpPrompt) {
	f := s.f
	if p.local != nil {
		s.answerHere(p)
		return
	}
	s.named(p.title, true) // not before: only an open session has a record
	w := f.waiter(p.ended)
	s.mu.Lock()
	p.waiter = w
	s.mu.Unlock()
	req := turnRequest{mode: modeRevive, ref: s.agentID, run: true, prompt: p.text, parts: p.parts, action: p.action, correlation: f.correlation(w)}
	s.fill(&req)
	f.submit(req, w)
	s.mu.Lock()
	p.stage = promptSubmitted
	cancelled := p.cancelled
	s.mu.Unlock()
	if cancelled { // an earlier cancel would have met a hub that didn't know the waiter
		s.cancelPrompts(p)
	}
}

// answerHere answers a prompt that needs no turn.
func (s *acpSession) answerHere(p *acpPrompt) {
	ctx, stop := context.WithCancel(s.f.life)
	s.mu.Lock()
	p.stage, p.stop = promptSubmitted, stop
	cancelled := p.cancelled
	s.mu.Unlock()
	if cancelled {
		stop()
		s.cancelPrompts(p)
		return
	}
	if !s.f.spawn(func() {
		defer stop()
		text := p.local(ctx)
		s.mu.Lock()
		cancelled := p.cancelled
		p.stage = promptTelling // else a cancel would answer it here and now, and the text come behind that
		s.mu.Unlock()
		if cancelled {
			return
		}
		s.enc.sayText(text)
		s.enc.endTurn("")
		s.mu.Lock()
		reason := "end_turn"
		if p.cancelled {
			reason = "cancelled"
		}
		s.mu.Unlock()
		s.f.answer(p.c, stopped(reason), nil)
	}) {
		stop()
		s.f.answer(p.c, nil, errACPClosing())
	}
}

// stopped is the result of a prompt.
func stopped(reason string) any { return map[string]string{"stopReason": reason} }

// ended takes the hub's result, on the session's goroutine as a rule.
func (p *acpPrompt) ended(r turnResult) {
	s := p.s
	s.mu.Lock()
	cancelled, begun, failure := p.cancelled, p.begun, p.failure
	if r.err != nil && r.err.Code == codeChildDead && !cancelled && !p.again && len(s.prompts) > 0 && s.prompts[0] != p && s.prompts[0].begun {
		// It only waited behind the turn that the child died of: nothing of it has run.
		p.again, p.stage, p.waiter = true, promptHeld, 0
		s.mu.Unlock()
		s.pump()
		return
	}
	s.mu.Unlock()
	result, e := s.f.outcome(&r, cancelled, failure)
	if begun {
		why := ""
		switch {
		case cancelled, r.TurnStatus == "interrupted":
			why = "cancelled"
		case e != nil:
			why = e.Message
		}
		s.notices(r.Notes)
		if e == nil && r.TurnStatus == "failed" {
			s.notice("error", clip(cmp.Or(r.Content, "the turn failed"), 120), r.Content)
		}
		s.enc.endTurn(why)
		s.f.settled(s) // a ceiling or the user's configuration may have changed what this turn ran with
	}
	if !s.f.answer(p.c, result, e) {
		s.answered(p) // before, since its client doesn't read: its turn is over only now
	}
	s.remove(p)
}

// outcome is what a turn's result means for its prompt.
func (f *acpFront) outcome(r *turnResult, cancelled bool, failure *backendError) (any, *rpcError) {
	switch {
	case cancelled, r.err == nil && r.TurnStatus == "interrupted":
		return stopped("cancelled"), nil
	case r.err != nil:
		return nil, f.acpError(r.err)
	case r.TurnStatus != "failed":
		return stopped("end_turn"), nil
	}
	info := ""
	if failure != nil {
		info = failure.Info
	}
	switch {
	case info == infoNoLogin:
		return nil, f.needsLogin(r.Content)
	case info == "contextWindowExceeded": // the protocol's own word for it; a notice has Codex's
		return stopped("max_tokens"), nil
	}
	data := map[string]any{"error_source": "child", "turn_status": r.TurnStatus}
	if info != "" {
		data["codex_error"] = info
	}
	return nil, &rpcError{Code: codeInternal, Message: cmp.Or(r.Content, "the turn failed, and Codex gave no reason"), Data: toJSON(data)}
}

// answered notes that a prompt's request has its answer: it leaves the queue,
// unless its turn still runs.
func (s *acpSession) answered(p *acpPrompt) {
	s.mu.Lock()
	runs := p.begun
	s.mu.Unlock()
	if !runs {
		s.remove(p)
	}
}

// remove takes a prompt out of the queue and lets the next one go.
func (s *acpSession) remove(p *acpPrompt) {
	s.mu.Lock()
	for i, q := range s.prompts {
		if q == p {
			s.prompts = append(s.prompts[:i:i], s.prompts[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	s.pump()
}

func (s *acpSession) promptLocked(w waiterID) *acpPrompt {
	for _, p := range s.prompts {
		if p.waiter == w {
			return p
		}
	}
	return nil
}

// cancelSession is the notification session/cancel.
func (f *acpFront) cancelSession(params json.RawMessage) {
	f.mu.Lock()
	s := f.sessions[stringField(params, "sessionId")]
	f.mu.Unlock()
	if s == nil {
		f.Log.Debug("session/cancel of no open session")
		return
	}
	s.cancelPrompts(nil)
}

// cancelPrompts cancels one prompt, or with nil all there are and whatever else
// runs in the session, before it was loaded too: its load waits for that. What
// the hub has not begun is answered at once, what runs when it has stopped.
func (s *acpSession) cancelPrompts(only *acpPrompt) {
	var retired []*acpPrompt
	var running *acpPrompt
	s.mu.Lock()
	left := s.prompts[:0:0]
	for _, p := range s.prompts {
		if only != nil && p != only {
			left = append(left, p)
			continue
		}
		p.cancelled = true
		switch {
		case p.stage == promptSubmitting, p.stage == promptTelling: // whoever does that sees to it
			left = append(left, p)
		case p.begun:
			running = p
			left = append(left, p)
		default:
			retired = append(retired, p)
		}
	}
	s.prompts = left
	mail := only == nil && s.mailTurn != ""
	before := s.before
	s.mu.Unlock()
	if only == nil && before != nil {
		before.cancelPrompts(nil)
	}
	for _, p := range retired {
		if p.stop != nil {
			p.stop()
		}
		if p.waiter != 0 {
			s.f.forget(p.waiter)
			s.f.cancel(p.waiter, false)
		}
		s.f.answer(p.c, stopped("cancelled"), nil)
	}
	switch {
	case running != nil:
		s.interrupt(running)
	case mail:
		s.f.interrupt(s.agentID, "", func(interruptResult, *rpcError) {})
	}
	if len(retired) > 0 {
		s.pump()
	}
}

// interrupt stops the running turn of a prompt, whose result then answers it. By
// its name where it has one, so that no turn behind it is hit; a name that the
// session doesn't know yet is the running one's.
func (s *acpSession) interrupt(p *acpPrompt) {
	s.mu.Lock()
	turn := p.turn
	s.mu.Unlock()
	s.f.interrupt(s.agentID, turn, func(r interruptResult, e *rpcError) {
		if e == nil && r.Interrupted || turn == "" {
			return
		}
		s.mu.Lock()
		runs := s.promptLocked(p.waiter) == p
		s.mu.Unlock()
		if runs {
			s.f.interrupt(s.agentID, "", func(interruptResult, *rpcError) {})
		}
	})
}
