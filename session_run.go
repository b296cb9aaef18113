package main

// session_run.go owns one turn: what is known of it while it waits, what a session gathers of it while it runs (the
// answer, the partial text, open items, touched files, what was declined), and the clock that says when it must end
// (silence, wall clock, how long an interrupt may take to be confirmed, how long the session may take to end). The
// session's loop feeds it with the child's events and acts on it; nothing here decides anything, and all of it is
// bounded. What a timer is given runs on that loop too.

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxPartial = 256 << 10 // bytes of unfinished answer text kept
	maxTouched = 200       // files named in a digest
	maxNotices = 20

	maxDiffThreads = 32   // threads of a turn, its own and its subagents', that are asked what they changed
	maxOpenItems   = 1000 // items at once that are told of
)

// turnRun is one running turn, seen from outside.
type turnRun struct {
	thread   string // the session's own: subagents' answers aren't the turn's
	started  time.Time
	last     time.Time // of the last sign of life; retries aren't one
	answer   string    // last agentMessage that wasn't commentary
	most     int       // bytes of it that are kept, 0 for all: whoever was shown all of it has no use for more
	answered bool
	plan     string     // that plan mode came to, "" for none
	partial  []byte     // deltas of the message that is being written
	partOf   string     // its item
	open     []openItem // oldest first
	touched  map[string]bool
	diffs    map[string]threadDiff // by thread: what was changed there so far
	declined []declined
	retry    string // the child's last word about retrying
	usage    *tokenUsage
	status   string // the child's: completed, failed, interrupted
	err      *backendError
	limit    *limitReached // err is for a limit of the account
	end      time.Time
}

// openItem is an item that has begun and not ended; what says in words what it does.
type openItem struct{ id, what string }

// threadDiff is what was changed in one thread of a turn.
type threadDiff struct {
	text string
	long *turnChanges // in place of a text of more than maxDiffBytes
}

func newTurnRun(thread string, now time.Time) *turnRun {
	return &turnRun{thread: thread, started: now, last: now, touched: map[string]bool{}, diffs: map[string]threadDiff{}}
}

// note takes in one event of the thread tree.
func (r *turnRun) note(e *event, now time.Time) {
	if e.kind == evNotice && e.retry {
		r.retry = e.text // no life: a network that never comes back ends by inactivity
		return
	}
	r.last = now
	own := e.thread == r.thread
	switch e.kind {
	case evDelta:
		if own && e.phase == "answer" {
			if e.item != r.partOf {
				r.partOf, r.partial = e.item, r.partial[:0]
			}
			if len(r.partial) < maxPartial {
				r.partial = append(r.partial, e.text...)
			}
			r.retry = ""
		}
	case evItem:
		r.noteItem(e, own)
	case evUsage:
		if own {
			r.usage = e.usage
		}
	case evDiff:
		r.noteDiff(e.thread, e.text)
	case evEnded:
		if own {
			r.status, r.err, r.end = e.status, e.err, now
			if !r.answered && e.text != "" {
				r.answer, r.answered = r.kept(e.text), true
			}
		}
	case evTool: // 0.104 shows no item for it
		if e.tool != nil {
			r.openItem(e.item, "calling "+e.tool.name)
		}
	case evOpened, evStarted, evSteered, evRefused, evPlan, evNotice, evAsk, evAskGone, evServer, evRaw, evGone:
	}
}

// noteDiff keeps a thread's diff, which replaces the one before.
func (r *turnRun) noteDiff(thread, diff string) {
	if _, known := r.diffs[thread]; !known && len(r.diffs) >= maxDiffThreads {
		return
	}
	d := threadDiff{text: diff}
	if len(diff) > maxDiffBytes {
		d.text, d.long = "", &turnChanges{}
		d.long.add(diff, "")
	}
	r.diffs[thread] = d
}

// changes is what the turn and its subagents' turns have changed, nil for nothing, with the whole diff.
func (r *turnRun) changes(cwd string) (c *turnChanges, diff string, whole bool) {
	c, whole = &turnChanges{}, true
	for _, thread := range slices.Sorted(maps.Keys(r.diffs)) {
		d := r.diffs[thread]
		if diff += d.text; d.long == nil {
			c.add(d.text, cwd)
			continue
		}
		whole = false
		c.Files, c.Added, c.Removed = append(c.Files, d.long.Files...), c.Added+d.long.Added, c.Removed+d.long.Removed
	}
	if len(c.Files) == 0 {
		return nil, "", true
	}
	return c.short(maxChangedFiles), diff, whole
}

// kept is as much of an answer as the run keeps.
func (r *turnRun) kept(text string) string {
	if r.most <= 0 || len(text) <= r.most {
		return text
	}
	shown := clipUTF8(text, r.most)
	return fmt.Sprintf("%s\n\n[answer cut: %d of %d bytes shown]", shown, len(shown), len(text))
}

func (r *turnRun) noteItem(e *event, own bool) {
	b := e.body
	if b == nil {
		return
	}
	if e.phase == "started" {
		if what := b.words(); what != "" {
			r.openItem(e.item, what)
		}
		return
	}
	r.closeItem(e.item)
	switch b.kind {
	case "agentMessage":
		if own && b.phase != "commentary" {
			r.answer, r.answered = r.kept(b.text), true
			r.partial, r.partOf = r.partial[:0], ""
		}
	case "plan":
		if own {
			r.plan = r.kept(b.text)
			r.partial, r.partOf = r.partial[:0], ""
		}
	case "fileChange":
		if b.status == "declined" || b.status == "failed" {
			return
		}
		for _, f := range b.files {
			if len(r.touched) < maxTouched {
				r.touched[f.path] = true
			}
		}
	}
}

func (r *turnRun) openItem(id, what string) {
	r.closeItem(id)
	if len(r.open) < maxOpenItems {
		r.open = append(r.open, openItem{id, what})
	}
}

func (r *turnRun) closeItem(id string) {
	r.open = slices.DeleteFunc(r.open, func(o openItem) bool { return o.id == id })
}

// words says what an item does, "" for those that aren't an activity.
func (b *itemBody) words() string {
	switch b.kind {
	case "commandExecution":
		return "running `" + clip(shownCommand(b.command), 120) + "`"
	case "fileChange":
		if len(b.files) == 1 {
			return "editing " + filepath.Base(b.files[0].path)
		}
		return fmt.Sprintf("editing %d files", len(b.files))
	case "mcpToolCall", "dynamicToolCall":
		if b.server != "" {
			return "calling " + b.server + "." + b.tool
		}
		return "calling " + b.tool
	}
	return map[string]string{"reasoning": "thinking", "agentMessage": "writing the answer", "plan": "writing the plan",
		"webSearch": "searching the web", "contextCompaction": "compacting its context",
		"imageGeneration":     "making an image",
		"collabAgentToolCall": "working with subagents", "subAgentActivity": "working with subagents"}[b.kind]
}

// activity says what the turn is doing now.
func (r *turnRun) activity() string {
	if r.retry != "" {
		return "retrying: " + clip(r.retry, 160)
	}
	if n := len(r.open); n > 0 {
		return r.open[n-1].what
	}
	return "working"
}

// text is the answer, or what of it there was.
func (r *turnRun) text() string {
	switch {
	case r.answered && !strings.Contains(r.answer, r.plan):
		return r.answer + "\n\n" + r.plan // what the agent says around a plan is a message of its own
	case r.answered:
		return r.answer
	case r.plan != "":
		return r.plan
	}
	return strings.ToValidUTF8(string(r.partial), "")
}

// silent names the commands that were open when a turn went silent; Codex
// polls a command that lives, so an open one counts as silence.
func (r *turnRun) silent() string {
	var open []string
	for _, o := range r.open {
		if strings.HasPrefix(o.what, "running") {
			open = append(open, o.what)
		}
	}
	return strings.Join(open, ", ")
}

// files are the touched files in order.
func (r *turnRun) files() []string {
	return slices.Sorted(maps.Keys(r.touched))
}

// turn is one queued or running turn.
type turn struct {
	req      turnRequest
	waiter   waiterID   // 0: nobody (any more)
	joined   []waiterID // who steered the turn, and gets its answer too
	shared   bool       // somebody who was answered already has steered the turn, and looks for its answer
	mailText string     // the mail of req.mail, in front of a client's prompt
	id       string     // Codex's name for it, "" until acknowledged
	stop     stopReason
	over     overrun      // the limit that ended it
	run      *turnRun     // what the session gathers while it runs
	under    turnSettings // that it was started with
	limit    *time.Timer  // timeout_secs, while Codex isn't ready
	accept   *time.Timer  // until a background turn is accepted at the latest

	accepted bool // the caller of a background turn has its name
	passed   bool // it was to go into a turn that is over, so it runs before what came behind it
	kept     bool // its result is
	asksMail bool // mail was looked for that goes with it
	asked    time.Time
	stoppers []func() // who waits until it has stopped
}

// asker is somebody who waits for the turn and can be asked about it, 0 for nobody.
func (t *turn) asker() waiterID {
	if t.waiter == 0 && len(t.joined) > 0 {
		return t.joined[0]
	}
	return t.waiter
}

// name is what callers know a turn by: a background turn has one of ours.
func (t *turn) name() string {
	if t.req.background {
		return t.req.handle
	}
	return t.id
}

// status is the turn's word in results and records.
func (t *turn) status(how finishKind) string {
	switch {
	case how == finishEnded && t.run.status != "":
		return t.run.status
	case how == finishRefused:
		return "failed"
	}
	return "interrupted"
}

// done reports a turn that the child completed.
func (t *turn) done() bool { return t.run != nil && t.run.status == "completed" }

// tellStopped answers who waits until the turn has stopped: whichever way it went, each of them once.
func (t *turn) tellStopped() {
	for _, stopped := range t.stoppers {
		stopped()
	}
	t.stoppers = nil
}

// fill puts what the turn brought into its result.
func (t *turn) fill(r *turnResult, how finishKind) {
	run := t.run
	r.TurnStatus = t.status(how)
	r.Content, r.Usage, r.Declined = run.text(), run.usage, run.declined
	end := run.end
	if end.IsZero() {
		end = time.Now()
	}
	r.Duration = end.Sub(run.started)
	if why := t.stop.words(); r.TurnStatus == "interrupted" && r.Content == "" {
		r.Content = why
	} else if r.TurnStatus == "interrupted" {
		r.Notes = append(r.Notes, why)
	}
	if r.TurnStatus == "failed" && run.err != nil {
		if partial := r.Content; partial != "" && partial != run.err.Message {
			r.Notes = append(r.Notes, "what the agent had said before it failed: "+clip(partial, 2000))
		}
		r.Content = run.err.Message
	}
}

// timeoutError is the -32006 of a turn, with what there was of its answer.
func timeoutError(agentID string, t *turn) *rpcError {
	partial := clipUTF8(t.run.text(), 8<<10)
	advice := fmt.Sprintf(". Agent %s keeps its context: continue with codex-reply", agentID)
	if t.over.mend != "" {
		advice += "; " + t.over.mend
	}
	if partial != "" {
		advice += ". Its answer so far: " + partial
	}
	return proxyAdvice(codeTimeout, remedyGoOn, t.over.why+"; it was interrupted", advice, "agent_id", agentID,
		"turn_id", t.name(), "partial", partial, "limit", t.over.limit)
}

const (
	confirmLimit  = 10 * time.Second // for the child to end an interrupted turn, before the session counts as broken
	answerLimit   = 2 * time.Second  // how long a timed-out caller waits for that at most
	closingLimit  = 10 * time.Second // all that the close of a busy session has, interrupt and summary (FR-17.3)
	shutdownLimit = 2 * time.Second  // for interrupted turns to end when we stop
	// shutdownAnswer is how long a caller waits for that: Claude Code kills us half a second after its first signal, so
	// what there is must do.
	shutdownAnswer = 20 * time.Millisecond
)

// turnClock holds the limits and the timers of the running turn.
type turnClock struct {
	silence time.Duration                           // request_timeout_secs: no event but retries; 0 for none
	limit   time.Duration                           // turn_limit_secs: wall clock, 0 for none
	after   func(time.Duration, func()) *time.Timer // session.after

	turn, stopping, answer *time.Timer

	end *time.Timer // of the session, whatever its turns do
	by  time.Time   // when end fires
}

// overrun is a limit that a turn has reached.
type overrun struct {
	limit string // the setting or argument that sets it, "" where neither does
	why   string // what happened
	mend  string // what gives the next turn longer
}

// overdue says why the turn must end now, or nothing and when to look again, zero for never. Waiting for an approval
// isn't silence, nor is waiting for a tool of ours. A call's timeout_secs can only shorten turn_limit_secs, and is no
// word on silence: so it is advised to nobody whose turn another limit ended.
func (c *turnClock) overdue(t *turn, asking bool, now time.Time) (over overrun, next time.Time) {
	switch {
	case c.silence == 0:
	case asking:
		next = now.Add(c.silence)
	default:
		next = t.run.last.Add(c.silence)
	}
	limit, name, mend := c.limit, "turn_limit_secs", "raise turn_limit_secs, which no timeout_secs passes"
	if l := t.req.timeout; l > 0 && (limit == 0 || l < limit) {
		name, mend = "timeout_secs", "allow the next turn longer"
		if limit > 0 {
			mend += fmt.Sprintf(", up to turn_limit_secs (%s)", limit)
		}
		limit = l
	}
	if limit > 0 {
		end := t.run.started.Add(limit)
		if !now.Before(end) {
			return overrun{name, fmt.Sprintf("the turn ran for its whole limit of %s (%s)", limit, name),
				"ask for less at a time, or " + mend}, now
		}
		if next.IsZero() || end.Before(next) {
			return over, end
		}
	}
	if next.IsZero() || now.Before(next) {
		return over, next
	}
	why := fmt.Sprintf("Codex said nothing for %s (request_timeout_secs)", c.silence)
	if cmds := t.run.silent(); cmds != "" {
		why += " while " + cmds
	}
	if t.run.retry != "" {
		why += "; it was retrying: " + clip(t.run.retry, 200)
	}
	return overrun{"request_timeout_secs", why, "if a step may be silent for longer, raise request_timeout_secs " +
		"(--timeout)"}, now
}

// arm calls f after d, instead of what was armed before.
func (c *turnClock) arm(d time.Duration, f func()) {
	if c.turn != nil {
		c.turn.Stop()
	}
	c.turn = c.after(max(d, time.Millisecond), f)
}

// confirm calls f when the child has not ended the turn within confirmLimit.
func (c *turnClock) confirm(f func()) { c.stopping = c.after(confirmLimit, f) }

// soon calls f after d.
func (c *turnClock) soon(d time.Duration, f func()) { c.answer = c.after(d, f) }

// within calls f when the session has not ended after d. A session that is asked to end twice has the shorter of both.
func (c *turnClock) within(d time.Duration, f func()) {
	by := time.Now().Add(d)
	if c.end != nil {
		if !by.Before(c.by) {
			return
		}
		c.end.Stop()
	}
	c.end, c.by = c.after(d, f), by
}

// stop stops every timer: the turn is over.
func (c *turnClock) stop() {
	for _, t := range []*time.Timer{c.turn, c.stopping, c.answer} {
		if t != nil {
			t.Stop()
		}
	}
	c.turn, c.stopping, c.answer = nil, nil, nil
}

// over stops what stop leaves: the session has ended.
func (c *turnClock) over() {
	c.stop()
	if c.end != nil {
		c.end.Stop()
		c.end = nil
	}
}
