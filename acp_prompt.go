package main

// acp_prompt.go owns the prompts of an ACP session: their queue, their way to the hub, their cancelling, and what the
// end of a turn means for them. acp.go brings them, the hub ends them. Each is answered exactly once, and nothing of
// its turn is sent after that; one that the client cancelled is answered `cancelled`, whatever else became of it.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	// maxPrompts is how many prompts may wait in one session.
	maxPrompts = maxQueue + 1
	// acpTitle is how many characters a title made of a prompt may have.
	acpTitle = 80
)

// promptStage is how far a prompt has come. A stage only goes forward, but that a prompt may be held a second time.
type promptStage int

const (
	promptChecking   promptStage = iota // held until the models are known, for its images, or the skills, for its name
	promptHeld                          // nothing to cancel at the hub
	promptSubmitting                    // submit is being called: a cancel waits for its return
	promptSubmitted                     // the hub knows the waiter, or the prompt is answered in its place here
	promptRunning                       // its turn is the running one
	promptTelling                       // its answer is being told here: a cancel waits for the end of that
	promptAsking                        // its turn has ended with a plan, about which the user is asked
)

// acpPrompt is one prompt of the client, from its request to its answer.
type acpPrompt struct {
	c      *acpCall
	s      *acpSession
	text   string       // all of the prompt that is text
	parts  []promptPart // where the prompt is more than text
	action turnAction
	title  string                       // of the session, if it has none
	local  func(context.Context) string // answers the prompt in its place in the queue; "": it needs a turn after all
	review *review                      // that the prompt asks for, once local has found its change
	now    bool                         // the request is _session/steering: answered once its words are in a turn
	queues bool                         // the prompt is never steered into the turn of one before it
	skill  string                       // the word that it begins with, if that may be a skill's name

	// guarded by acpSession.mu
	stage     promptStage
	waiter    waiterID
	turn      string // the name of its turn, "" before the hub told one
	cancelled bool
	steered   bool          // its turn is that of a prompt before it, of which that one's client is told
	again     bool          // the prompt goes to the hub a second time
	plan      string        // that its turn has come to, "" for none
	carries   bool          // its second turn carries out the plan of the first
	inWords   bool          // its turn was stopped for the user to answer a question with the next prompt
	failure   *backendError // of its turn's end
	before    tokenUsage    // of the thread, as its first turn began
	counted   bool          // before is known
	stop      func()        // ends what answers the prompt here
}

// acpQueue are the prompts of a session that have no answer, in their order, with
// one whose turn runs on after its answer.
type acpQueue struct {
	s *acpSession

	// guarded by acpSession.mu
	prompts []*acpPrompt
	pumping bool
	again   bool // pump was called while it ran
}

// methodSteering is a request of clients that know it of another adapter: as session/prompt, but its words go into the
// running turn ahead of all that waits, and it is answered at once with what became of them.
const methodSteering = "_session/steering"

// takePrompt takes session/prompt and _session/steering, on the reading goroutine.
func (q *acpQueue) takePrompt(c *acpCall, params json.RawMessage) *rpcError {
	text, parts, e := readPrompt(rawField(params, "prompt"))
	if e != nil {
		return e
	}
	s := q.s
	p := &acpPrompt{c: c, s: s, text: text, parts: parts, title: promptTitle(text), stage: promptHeld,
		now: c.method == methodSteering}
	images := slices.ContainsFunc(parts, func(part promptPart) bool { return part.kind != "text" })
	p.readCommand()
	checking := images || p.skill != ""
	if checking {
		p.stage = promptChecking
	}
	s.mu.Lock()
	closing, full := s.closing, len(q.prompts) >= maxPrompts
	if !closing && !full {
		c.prompt = p
		q.prompts = append(q.prompts, p)
	}
	s.mu.Unlock()
	switch {
	case closing:
		return noSession(s.id)
	case full:
		return &rpcError{Code: codeInternal, Message: fmt.Sprintf(
			"%d prompts of this session already wait: send this one when one of them was answered", maxPrompts)}
	case checking && !s.f.jobs.spawn(func() { q.check(p, images) }):
		q.release(p)
	}
	q.pump()
	return nil
}

// promptTitle is what a session is called after its first prompt, "" for a command.
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

// check refuses images that the model doesn't take, and finds the skill that a prompt names. It waits for the list of
// models, and for that of skills.
func (q *acpQueue) check(p *acpPrompt, images bool) {
	if images {
		q.s.f.models.list(modelsWait)
		if m := q.s.options.model(); !m.sees() {
			q.s.f.answer(p.c, nil, badParams("the model %s takes no images: choose another by the config option "+
				"\"model\", or send the prompt without them", m.word()))
			return
		}
	}
	if p.skill != "" {
		q.s.skills.use(p)
	}
	q.release(p)
}

// release lets a prompt go that was checked.
func (q *acpQueue) release(p *acpPrompt) {
	q.s.mu.Lock()
	p.stage = promptHeld
	q.s.mu.Unlock()
	q.pump()
}

// pump sends on what may go, in order. Any goroutine may call it.
func (q *acpQueue) pump() {
	s := q.s
	s.mu.Lock()
	if q.pumping {
		q.again = true
		s.mu.Unlock()
		return
	}
	q.pumping = true
	for {
		q.again = false
		s.mu.Unlock()
		held, alone := s.servers.starting() || s.options.changing(), s.options.planning()
		s.mu.Lock()
		p := q.nextLocked(held || s.opening, alone)
		if p == nil {
			if q.again {
				continue
			}
			q.pumping = false
			s.tellIdleLocked()
			s.mu.Unlock()
			return
		}
		p.stage = promptSubmitting
		s.mu.Unlock()
		q.start(p)
		s.mu.Lock()
	}
}

// nextLocked is the prompt that may go to the hub now, nil for none. What is answered here waits until nothing is
// before it, and what comes behind it until it is answered. alone: so do all, since a plan that a turn comes to is
// decided before the next one. What goes into the turn before it is no next one, and by request it passes what waits.
func (q *acpQueue) nextLocked(held, alone bool) *acpPrompt {
	if held || len(q.prompts) == 0 {
		return nil
	}
	first, blocked := q.prompts[0], false
	turn := first.local == nil && (first.stage == promptSubmitted || first.stage == promptRunning)
	for i, p := range q.prompts {
		joins := turn && p.stage == promptHeld && (p.now || q.s.f.Steers && !p.queues && !blocked)
		switch {
		case p.stage == promptHeld && (i == 0 || p.local == nil && (joins || !alone && !blocked)):
			return p
		case p.stage <= promptHeld, p.stage == promptAsking, p.local != nil:
			blocked = true
		}
	}
	return nil
}

// start hands a prompt to the hub.
func (q *acpQueue) start(p *acpPrompt) {
	if p.local != nil {
		q.answerHere(p)
		return
	}
	s, f := q.s, q.s.f
	s.setTitle(p.title, true) // not before: only an open session has a record
	w := f.addWaiter(p.finish)
	s.mu.Lock()
	steer := (f.Steers || p.now) && !p.queues && p.review == nil && s.backlog == backlogFine
	p.waiter = w
	s.mu.Unlock()
	req := turnRequest{mode: modeRevive, ref: s.agentID, run: true, prompt: p.text, parts: p.parts, action: p.action,
		steer: steer, orQueue: steer, inOrder: !p.now, correlation: f.correlation(w)}
	s.describe(&req)
	if p.review != nil {
		p.review.into(&req)
		req.parts = withText(req.prompt, p.parts)
	}
	f.submit(req, w)
	q.submitted(p, nil)
}

// submitted notes that submit has returned, or that stop ends what answers the prompt here. true: the prompt was
// cancelled meanwhile, and is now answered: an earlier cancel would have met a hub that didn't know the waiter.
func (q *acpQueue) submitted(p *acpPrompt, stop func()) (cancelled bool) {
	q.s.mu.Lock()
	if p.stage == promptSubmitting { // else its turn runs, or has ended with a plan, and stop is that one's
		p.stop, p.stage = stop, promptSubmitted
		cancelled = p.cancelled
	}
	q.s.mu.Unlock()
	if cancelled {
		q.cancel(p)
	}
	return cancelled
}

// answerHere answers a prompt that needs no turn. One that turns out to need one is held again.
func (q *acpQueue) answerHere(p *acpPrompt) {
	s := q.s
	ctx, stop := context.WithCancel(s.f.life)
	if q.submitted(p, stop) {
		return
	}
	if !s.f.jobs.spawn(func() {
		defer stop()
		text := p.local(ctx)
		s.mu.Lock()
		cancelled := p.cancelled
		if text == "" {
			p.local, p.stage = nil, promptHeld
			s.mu.Unlock()
			q.pump()
			return
		}
		p.stage = promptTelling // else a cancel would answer it here and now, and the text come behind that
		s.mu.Unlock()
		if cancelled {
			return
		}
		s.enc.say(agentChunk, text)
		s.enc.endTurn("")
		s.mu.Lock()
		reason := "end_turn"
		if p.cancelled {
			reason = "cancelled"
		}
		s.mu.Unlock()
		p.answer(stopped(reason), nil)
	}) {
		stop()
		s.f.answer(p.c, nil, errACPClosing())
	}
}

// acpStopped is the result of a prompt.
type acpStopped struct {
	Reason string    `json:"stopReason"`
	Usage  *acpUsage `json:"usage,omitempty"`
}

// acpUsage is what a prompt's turn has used. What was read from the cache isn't counted as input a second time.
type acpUsage struct {
	Total   int64 `json:"totalTokens"`
	Input   int64 `json:"inputTokens"`
	Output  int64 `json:"outputTokens"`
	Thought int64 `json:"thoughtTokens"`
	Cached  int64 `json:"cachedReadTokens"`
}

func stopped(reason string) *acpStopped { return &acpStopped{Reason: reason} }

// usedLocked is what the prompt's turn has used, nil where Codex told nothing of that.
func (p *acpPrompt) usedLocked() *acpUsage {
	now, was := p.s.usage, p.before
	if now.Total < was.Total { // the turn ran in a new thread, in place of one that was lost
		was = tokenUsage{}
	}
	cached := now.CachedInput - was.CachedInput
	u := acpUsage{Total: now.Total - was.Total, Input: now.Input - was.Input - cached,
		Output: now.Output - was.Output, Thought: now.Reasoning - was.Reasoning, Cached: cached}
	// Of a full context Codex counts all as used, and nothing as input or output.
	if !p.counted || u.Total == 0 || min(u.Input, u.Output, u.Thought, u.Cached) < 0 {
		return nil
	}
	return &u
}

// answer answers the prompt's request, unless it has its answer.
func (p *acpPrompt) answer(stop *acpStopped, e *rpcError) {
	switch {
	case !p.now || e != nil:
		p.s.f.answer(p.c, stop, e)
	case stop.Reason == "cancelled":
		p.s.f.answer(p.c, nil, &rpcError{Code: codeCancelled, Message: "Request cancelled"})
	default:
		p.tellSteered("startedNewTurn")
	}
}

// tellSteered answers _session/steering, in the words of the adapter that had it first: injected into the running turn,
// startedNewTurn.
func (p *acpPrompt) tellSteered(outcome string) {
	p.s.f.answer(p.c, map[string]string{"outcome": outcome}, nil)
}

// finish takes the hub's result, on the session's goroutine as a rule.
func (p *acpPrompt) finish(r turnResult) {
	s := p.s
	s.mu.Lock()
	if r.err != nil && r.err.Code == codeChildDead && !p.cancelled && !p.again && s.queue.behindRunningLocked(p) {
		// The prompt only waited behind the turn that the child died of: nothing of it has run.
		p.again, p.stage, p.waiter = true, promptHeld, 0
		s.mu.Unlock()
		s.queue.pump()
		return
	}
	cancelled, failure, used := p.cancelled, p.failure, p.usedLocked()
	ran := p.stage == promptRunning && !p.steered // whoever began the turn is told of its end
	if p.inWords && r.TurnStatus == "interrupted" {
		r.TurnStatus = "completed" // the agent has said all that it had to
	}
	s.mu.Unlock()
	result, e := p.outcome(&r, cancelled, failure)
	if ran {
		why := ""
		switch {
		case cancelled, r.TurnStatus == "interrupted":
			why = "cancelled"
		case e != nil:
			why = e.Message
		}
		s.notices(r.Notes)
		switch {
		case e != nil && p.now: // the request has its answer
			s.tellAside("The turn failed", e.Message)
		case result != nil:
			if result.Usage = used; result.Reason == "max_tokens" {
				s.tellAside("The conversation has grown too long for the model", "Shorten it with /compact, or begin "+
					"a new session. Codex says: "+r.Content)
			}
		}
		s.enc.endTurn(why)
		s.options.tellChanges() // a ceiling or the user's configuration may have changed what this turn ran with
	}
	if p.asksAboutPlan(result) {
		return
	}
	p.answer(result, e) // unless it was answered before, since its client doesn't read
	s.queue.remove(p)
}

// tellAside tells the user why a turn ended where the answer to its prompt doesn't.
func (s *acpSession) tellAside(words, more string) {
	if s.f.client().notices {
		s.notice("error", words, more)
		return
	}
	s.enc.say(agentChunk, words+". "+more)
}

// outcome is what a turn's result means for its prompt.
func (p *acpPrompt) outcome(r *turnResult, cancelled bool, failure *backendError) (*acpStopped, *rpcError) {
	switch {
	case cancelled, r.err == nil && r.TurnStatus == "interrupted":
		return stopped("cancelled"), nil
	case r.err != nil:
		return nil, p.s.f.acpError(r.err)
	case r.TurnStatus != "failed":
		return stopped("end_turn"), nil
	}
	info := ""
	if failure != nil {
		info = failure.Info
	}
	switch {
	case info == infoNoLogin:
		return nil, p.s.f.logins.required("")
	case info == "contextWindowExceeded": // the protocol's own word for it; the user is told more
		return stopped("max_tokens"), nil
	}
	data := map[string]any{"error_source": "child", "turn_status": r.TurnStatus}
	if info != "" {
		data["codex_error"] = info
	}
	return nil, &rpcError{Code: codeInternal, Data: toJSON(data),
		Message: cmp.Or(r.Content, "the turn failed, and Codex gave no reason")}
}

// promptAnswered notes that a prompt's request has its answer: the prompt leaves
// the queue, unless its turn still runs.
func (q *acpQueue) promptAnswered(p *acpPrompt) {
	q.s.mu.Lock()
	runs := p.stage == promptRunning
	q.s.mu.Unlock()
	if !runs {
		q.remove(p)
	}
}

// remove takes a prompt out of the queue and lets the next one go.
func (q *acpQueue) remove(p *acpPrompt) {
	q.s.mu.Lock()
	if i := slices.Index(q.prompts, p); i >= 0 {
		q.prompts = append(q.prompts[:i:i], q.prompts[i+1:]...)
	}
	q.s.mu.Unlock()
	q.pump()
}

// byWaiterLocked is the prompt that a waiter stands for, nil for none.
func (q *acpQueue) byWaiterLocked(w waiterID) *acpPrompt {
	if i := slices.IndexFunc(q.prompts, func(p *acpPrompt) bool { return p.waiter == w }); i >= 0 {
		return q.prompts[i]
	}
	return nil
}

// behindRunningLocked reports that a prompt waits for the end of another one's turn.
func (q *acpQueue) behindRunningLocked(p *acpPrompt) bool {
	runs := func(p *acpPrompt) bool { return p.stage == promptRunning }
	return !runs(p) && slices.ContainsFunc(q.prompts, runs)
}

// cancel cancels one prompt, or with nil all there are and whatever else runs in the session, before it was loaded
// too: its load waits for that. What the hub has not begun is answered at once, what runs when it has stopped.
func (q *acpQueue) cancel(only *acpPrompt) {
	s := q.s
	var retired []*acpPrompt
	var running *acpPrompt
	var stopAsking func()
	s.mu.Lock()
	left := q.prompts[:0:0]
	for _, p := range q.prompts {
		if only != nil && p != only {
			left = append(left, p)
			continue
		}
		p.cancelled = true
		switch p.stage {
		case promptSubmitting, promptTelling: // whoever does that sees to it
			left = append(left, p)
		case promptAsking:
			stopAsking = p.stop
			left = append(left, p)
		case promptRunning:
			if p.steered && only != nil { // the turn goes on for those whose it is as well
				retired = append(retired, p)
				break
			}
			if left = append(left, p); !p.steered {
				running = p
			}
		case promptChecking, promptHeld, promptSubmitted:
			retired = append(retired, p)
		}
	}
	q.prompts = left
	mail := only == nil && s.mailTurn != ""
	before := s.before
	s.mu.Unlock()
	if only == nil && before != nil {
		before.queue.cancel(nil)
	}
	for _, p := range retired {
		if p.stop != nil {
			p.stop()
		}
		if p.waiter != 0 {
			s.f.dropWaiter(p.waiter)
		}
		p.answer(stopped("cancelled"), nil)
	}
	if stopAsking != nil { // after what is answered here, since who asks answers its own prompt
		stopAsking()
	}
	switch {
	case running != nil:
		q.interrupt(running)
	case mail:
		s.f.interrupt(s.agentID, "", func(interruptResult, *rpcError) {})
	}
	if len(retired) > 0 {
		q.pump()
	}
}

// interrupt stops the running turn of a prompt, whose result then answers the prompt: by the turn's name where it has
// one, so that no turn behind it is hit. A name that the hub's session doesn't know yet is the running turn's.
func (q *acpQueue) interrupt(p *acpPrompt) {
	s := q.s
	s.mu.Lock()
	turn := p.turn
	s.mu.Unlock()
	s.f.interrupt(s.agentID, turn, func(r interruptResult, e *rpcError) {
		if e == nil && r.Interrupted || turn == "" {
			return
		}
		s.mu.Lock()
		runs := q.byWaiterLocked(p.waiter) == p
		s.mu.Unlock()
		if runs {
			s.f.interrupt(s.agentID, "", func(interruptResult, *rpcError) {})
		}
	})
}
