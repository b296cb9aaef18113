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

// promptStage is how far a prompt has come. A stage only goes forward, but that a prompt may wait a second time.
type promptStage int

const (
	promptWaiting promptStage = iota // for its place in the queue: nothing to cancel at the hub
	promptGoing                      // submit is being called: a cancel waits for its return
	promptGone                       // the hub knows the waiter, or the prompt is answered in its place here
	promptRunning                    // its turn is the running one
	promptTelling                    // its answer is being told here: a cancel waits for the end of that
	promptAsking                     // its turn has ended with a plan, about which the user is asked
)

// acpPrompt is one prompt of the client, from its request to its answer.
type acpPrompt struct {
	c      *acpCall
	s      *acpSession
	ctx    context.Context // ends with the prompt, by an answer or a cancel, and with what is asked about its plan
	stop   func()          // ends ctx
	text   string          // all of the prompt that is text
	parts  []promptPart    // where the prompt is more than text
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
}

// acpQueue are the prompts of a session that have no answer, in their order, with
// one whose turn runs on after its answer.
type acpQueue struct {
	s       *acpSession
	prompts []*acpPrompt // guarded by acpSession.mu
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
	p := &acpPrompt{c: c, s: s, text: text, parts: parts, title: promptTitle(text), now: c.method == methodSteering}
	p.ctx, p.stop = context.WithCancel(s.f.life)
	p.readCommand()
	s.mu.Lock()
	closing, full := s.closing, len(q.prompts) >= maxPrompts
	if !closing && !full {
		c.prompt = p
		q.prompts = append(q.prompts, p)
	}
	s.mu.Unlock()
	switch {
	case closing:
		e = noSession(s.id)
	case full:
		e = &rpcError{Code: codeInternal, Message: fmt.Sprintf(
			"%d prompts of this session already wait: send this one when one of them was answered", maxPrompts)}
	case p.local == nil && p.skill == "" && !p.hasImages() && p.goes():
		p.submit() // before the next request is read: a mode that is chosen behind the prompt must not be the prompt's
	case !s.f.jobs.spawn(p.run):
		e = errACPClosing()
	}
	if e != nil {
		p.stop()
	}
	return e
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

// run takes a prompt from its request to the hub, or answers it here, unless it is cancelled before.
func (p *acpPrompt) run() {
	if e := p.check(); e != nil {
		p.s.f.answer(p.c, nil, e)
		return
	}
	p.goOn()
}

// check refuses images that the model doesn't take, and finds the skill that a prompt names. It waits for the list of
// models, and for that of skills.
func (p *acpPrompt) check() *rpcError {
	s := p.s
	if p.hasImages() {
		s.f.models.list(modelsWait)
		if m := s.options.model(); !m.sees() {
			return badParams("the model %s takes no images: choose another by the config option \"model\", or send "+
				"the prompt without them", m.word())
		}
	}
	if p.skill != "" {
		s.skills.use(p)
	}
	return nil
}

func (p *acpPrompt) hasImages() bool {
	return slices.ContainsFunc(p.parts, func(part promptPart) bool { return part.kind != "text" })
}

// goOn waits for the prompt's place in the queue, and does there what the prompt asks for.
func (p *acpPrompt) goOn() {
	for p.s.await(p.ctx, p.goes) {
		if p.local == nil {
			p.submit()
			return
		}
		if text := p.local(p.ctx); text != "" {
			p.tell(text)
			return
		}
		p.s.mu.Lock()
		p.local, p.stage = nil, promptWaiting // it needs a turn after all
		p.s.mu.Unlock()
	}
	if p.s.f.life.Err() != nil {
		p.s.f.answer(p.c, nil, errACPClosing())
		return
	}
	p.answer(stopped("cancelled"), nil) // unless its cancel was its answer
}

// goes reports that the prompt's place has come, and takes it.
func (p *acpPrompt) goes() bool {
	s := p.s
	held, alone := s.servers.starting() || s.options.changing(), s.options.planning()
	s.mu.Lock()
	defer s.mu.Unlock()
	if held || s.opening || !s.queue.hasPlaceLocked(p, alone) {
		return false
	}
	if p.stage = promptGoing; p.local != nil {
		p.stage = promptGone
	}
	return true
}

// hasPlaceLocked reports a prompt that may go now. What is answered here waits until nothing is before it, and what
// comes behind it until it is answered. alone: so do all, since a plan that a turn comes to is decided before the next
// one. What goes into the turn before it is no next one, and by request it passes what waits, but no other that does
// so.
func (q *acpQueue) hasPlaceLocked(p *acpPrompt, alone bool) bool {
	blocked, passing := false, false
	for _, before := range q.prompts {
		if before == p {
			first := q.prompts[0]
			turn := first.local == nil && (first.stage == promptGone || first.stage == promptRunning)
			joins := turn && (p.now && !passing || q.s.f.Steers && !p.queues && !blocked)
			return p == first || p.local == nil && (joins || !alone && !blocked)
		}
		waits := before.stage <= promptGoing
		blocked = blocked || waits || before.stage == promptAsking || before.local != nil
		passing = passing || waits && before.now && before.local == nil
	}
	return false // it was answered
}

// submit hands a prompt to the hub. A cancel that comes before the hub knows the waiter takes effect behind that.
func (p *acpPrompt) submit() {
	s, f := p.s, p.s.f
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
	s.mu.Lock()
	if p.stage == promptGoing && p.waiter == w { // else its turn runs, has ended with a plan, or is to be tried again
		p.stage = promptGone
	}
	cancelled := p.cancelled && p.stage == promptGone && p.waiter == w
	s.mu.Unlock()
	if cancelled {
		s.queue.cancel(p)
	}
	s.poke()
}

// tell answers a prompt that needs no turn with words of ours.
func (p *acpPrompt) tell(text string) {
	s := p.s
	s.mu.Lock()
	p.stage = promptTelling // else a cancel would answer it here and now, and the text come behind that
	cancelled := p.cancelled
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

// noteLocked takes in an event of the turn that the prompt waits for. told: the client is told the event; first: it
// begins the turn; outcome is what _session/steering is answered with now, "" for nothing.
func (p *acpPrompt) noteLocked(e *event, own, begins bool) (told, first bool, outcome string) {
	if p.cancelled && p.stage != promptRunning {
		return false, false, "" // it was answered
	}
	if first = begins && p.turn == ""; first {
		p.s.mailTurn = "" // one turn runs at a time
		if !p.carries {
			p.before, p.counted = p.s.usage, p.s.counted
		}
	}
	if e.phase != startingCodex { // told to every prompt that waits for Codex: none of their turns has begun
		p.stage = promptRunning
	}
	if own && e.turn != "" {
		p.turn = cmp.Or(p.turn, e.turn)
	}
	switch {
	case !own:
	case e.kind == evEnded:
		p.failure = e.err
	case e.kind == evItem && e.phase == "completed" && e.body.kind == "plan":
		p.plan = e.body.text
	}
	p.steered = p.steered || e.kind == evSteered
	switch {
	case p.now && e.kind == evSteered:
		outcome = "injected"
	case p.now && first && !p.steered:
		outcome = "startedNewTurn"
	}
	return !p.steered, first, outcome // what happens in a turn that it shares is told to the prompt that began that
}

// finish takes the hub's result, on the session's goroutine as a rule.
func (p *acpPrompt) finish(r turnResult) {
	s := p.s
	s.mu.Lock()
	if r.err != nil && r.err.Code == codeChildDead && !p.cancelled && !p.again && s.queue.behindRunningLocked(p) {
		// The prompt only waited behind the turn that the child died of: nothing of it has run.
		p.again, p.stage, p.waiter = true, promptWaiting, 0
		s.mu.Unlock()
		s.f.jobs.start(p.goOn)
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
	p.stop()
	q.s.poke()
}

// byWaiterLocked is the prompt that a waiter stands for, nil for none.
func (q *acpQueue) byWaiterLocked(w waiterID) *acpPrompt {
	for _, p := range q.prompts {
		if w != 0 && p.waiter == w {
			return p
		}
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
		case promptGoing, promptTelling: // whoever does that sees to it
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
		case promptWaiting, promptGone:
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
		p.stop()
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
		s.poke()
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
