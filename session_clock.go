package main

// session_clock.go owns the time limits of a session's running turn: silence, wall
// clock, how long an interrupt may take to be confirmed; and how long the
// session may take to end. It decides nothing: the session asks it and acts.
// Timers call back from their own goroutine, so what they are given posts a
// letter.

import (
	"fmt"
	"time"
)

const (
	// confirmLimit is how long the child may take to end an interrupted turn
	// before the session counts as broken.
	confirmLimit = 10 * time.Second
	// answerLimit is how long a timed-out caller waits for that at most.
	answerLimit = 2 * time.Second
	// closingLimit is all the time that the close of a busy session has, from the
	// interrupt to the summary (FR-17.3).
	closingLimit = 10 * time.Second
	// shutdownLimit is how long interrupted turns may take to end when we stop.
	shutdownLimit = 2 * time.Second
	// shutdownAnswer is how long a caller waits for that: Claude Code kills us
	// half a second after its first signal, so what there is must do.
	shutdownAnswer = 20 * time.Millisecond
)

// turnClock holds the limits and the timers of the running turn.
type turnClock struct {
	silence time.Duration // request_timeout_secs: no event but retries; 0 for none
	limit   time.Duration // turn_limit_secs: wall clock, 0 for none

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

// overdue says why the turn must end now, or nothing and when to look again, zero for never.
// Waiting for an approval isn't silence, nor is waiting for a tool of ours.
// A call's timeout_secs can only shorten turn_limit_secs, and is no word on
// silence: so it is advised to nobody whose turn another limit ended.
func (c *turnClock) overdue(t *turn, asking bool, now time.Time) (over overrun, next time.Time) {
	switch {
	case c.silence == 0:
	case asking:
		next = now.Add(c.silence)
	default:
		next = t.run.last.Add(c.silence)
	}
	limit, name, mend := c.limit, "turn_limit_secs", "ask for less at a time, or raise turn_limit_secs, which no timeout_secs passes"
	if l := t.req.timeout; l > 0 && (limit == 0 || l < limit) {
		name, mend = "timeout_secs", "ask for less at a time, or allow the next turn longer"
		if limit > 0 {
			mend = fmt.Sprintf("ask for less at a time, or allow the next turn longer, up to turn_limit_secs (%s)", limit)
		}
		limit = l
	}
	if limit > 0 {
		end := t.run.started.Add(limit)
		if !now.Before(end) {
			return overrun{name, fmt.Sprintf("the turn ran for its whole limit of %s (%s)", limit, name), mend}, now
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
	return overrun{"request_timeout_secs", why, "if a step may be silent for longer, raise request_timeout_secs (--timeout)"}, now
}

// arm calls f after d, instead of what was armed before.
func (c *turnClock) arm(d time.Duration, f func()) {
	if c.turn != nil {
		c.turn.Stop()
	}
	c.turn = time.AfterFunc(max(d, time.Millisecond), f)
}

// confirm calls f when the child has not ended the turn within confirmLimit.
func (c *turnClock) confirm(f func()) { c.stopping = time.AfterFunc(confirmLimit, f) }

// soon calls f after d.
func (c *turnClock) soon(d time.Duration, f func()) { c.answer = time.AfterFunc(d, f) }

// within calls f when the session has not ended after d. A session that is
// asked to end twice has the shorter of both.
func (c *turnClock) within(d time.Duration, f func()) {
	by := time.Now().Add(d)
	if c.end != nil {
		if !by.Before(c.by) {
			return
		}
		c.end.Stop()
	}
	c.end, c.by = time.AfterFunc(d, f), by
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
