package main

// session_machine.go owns the decision which turn of a session runs, waits or ends, and that a session may run one last
// turn before it does (its summary): a pure machine, events in, effects out, so that tables and fuzzing can hold it to
// the invariants. The session loop is its only user and carries the effects out. It must never look at a clock or touch
// anything outside.

import (
	"cmp"
	"slices"
)

// maxQueue is how many turns may wait in one session (-32004 past it).
const maxQueue = 32

// turnPhase is where a session stands with its one running turn.
type turnPhase int

const (
	// phaseOpening: the child has no thread for us yet; turns wait.
	phaseOpening turnPhase = iota
	// phaseIdle: the thread is open and nothing runs.
	phaseIdle
	// phaseStarting: the turn was sent and not acknowledged.
	phaseStarting
	// phaseRunning: the child took the turn and named it.
	phaseRunning
	// phaseStopping: the turn is to end early. The interrupt has been sent, or goes out as soon as the turn has a name;
	// only the child's word, its death or giving up leads out of here.
	phaseStopping
	// phaseOver: the session has ended. Everything is refused.
	phaseOver
)

// ending is why a session ends. Later ones win over earlier ones.
type ending int

const (
	endNone     ending = iota
	endPark            // unloaded to make room
	endShutdown        // the proxy stops
	endClose           // agent_close
	endBroken          // the child doesn't confirm an interrupt (giveUp)
	endGone            // the child died
	endFailed          // it could never be opened
)

// status is the word of agent_sessions for a session that ended so.
func (e ending) status() string {
	return [...]string{endNone: "", endPark: statusParked, endShutdown: statusStale, endClose: statusClosed,
		endBroken: statusBroken, endGone: statusStale, endFailed: ""}[e]
}

func (e ending) String() string {
	if e == endFailed {
		return "could not be opened"
	}
	return e.status()
}

// stopReason is why a running turn is stopped early.
type stopReason int

const (
	stopNone stopReason = iota
	stopCancel
	stopTimeout
	stopUnknown // turn/start had no answer in time
	stopShutdown
	stopClose
	stopInterrupt // agent_interrupt
)

// words says why a turn was interrupted.
func (s stopReason) words() string {
	return "The turn was interrupted" + [...]string{
		stopNone:      ".",
		stopCancel:    ": its caller cancelled it.",
		stopTimeout:   ": it took too long.",
		stopUnknown:   ": it took too long.",
		stopShutdown:  ": this server is shutting down. When it is started again, the session can go on.",
		stopClose:     ": its session was closed.",
		stopInterrupt: ": it was asked to stop.",
	}[s]
}

// finishKind is how a turn left the machine. Each turn finishes once.
type finishKind int

const (
	finishEnded    finishKind = iota // the child said so; status in the turn
	finishRebound                    // nothing to run: the session is open
	finishRefused                    // the child refused to start it
	finishFull                       // the queue was full
	finishOver                       // the session had ended or is ending
	finishGone                       // the child died
	finishBroken                     // the child didn't confirm the interrupt
	finishUnopened                   // the session could not be opened
	finishDropped                    // cancelled while it waited: nobody is told
)

// effectKind is what the session has to do.
type effectKind int

const (
	effStart     effectKind = iota // send the turn to the child
	effInterrupt                   // interrupt turn.id, "" for whatever runs
	effFinish                      // answer the turn's waiter: finish says how
	effEnd                         // the session is over: end says why
)

type effect struct {
	kind   effectKind
	turn   *turn
	finish finishKind
	end    ending
}

// turnMachine is a session's queue and running turn.
type turnMachine struct {
	phase  turnPhase
	cur    *turn
	queue  []*turn
	ending ending
	last   *turn // runs, or is to run, before the session is over; nil for none
	sent   bool  // the interrupt of cur is on its way
	adrift bool  // cur's start had no answer: what ends next is cur
}

// submit queues a turn behind those of its own and of better precedence (FR-8.11). It is started by the next advance.
func (m *turnMachine) submit(t *turn) []effect {
	if m.phase == phaseOver || m.ending != endNone {
		return []effect{{kind: effFinish, turn: t, finish: finishOver}}
	}
	room := maxQueue
	if m.cur == nil {
		room++ // the first in the queue doesn't wait: it is about to run
	}
	if len(m.queue) >= room {
		return []effect{{kind: effFinish, turn: t, finish: finishFull}}
	}
	at := len(m.queue)
	for at > 0 && (m.queue[at-1].req.source > t.req.source || t.passed && !m.queue[at-1].passed) {
		at--
	}
	m.queue = slices.Insert(m.queue, at, t)
	return nil
}

// advance starts the next turn if one can start. The session calls it after everything that had come has been taken in,
// so that a close or a cancel that came together with a turn's end goes first (FR-17.11).
func (m *turnMachine) advance() []effect {
	var out []effect
	for m.phase == phaseIdle && m.ending == endNone && len(m.queue) > 0 {
		t := m.queue[0]
		m.queue[0] = nil // or the array would keep the turn and its answer
		m.queue = m.queue[1:]
		if !t.req.run {
			out = append(out, effect{kind: effFinish, turn: t, finish: finishRebound})
			continue
		}
		out = append(out, m.start(t))
	}
	return out
}

func (m *turnMachine) start(t *turn) effect {
	m.cur, m.phase, m.sent, m.adrift = t, phaseStarting, false, false
	return effect{kind: effStart, turn: t}
}

// opened: the thread is there.
func (m *turnMachine) opened() {
	if m.phase == phaseOpening {
		m.phase = phaseIdle
	}
}

// started: the child took the running turn and named it.
func (m *turnMachine) started(id string) []effect {
	if m.cur == nil || m.cur.id != "" {
		return nil
	}
	m.cur.id = id
	switch m.phase {
	case phaseStarting:
		m.phase = phaseRunning
	case phaseStopping: // a cancel that overtook the start is not lost
		return m.interrupt()
	}
	return nil
}

// refused: the child did not start the turn. unknown: it had no answer in
// time and may run it all the same, so it is interrupted and never sent again.
func (m *turnMachine) refused(unknown bool) []effect {
	if m.cur == nil || m.cur.id != "" {
		return nil
	}
	if unknown {
		m.cur.stop = cmp.Or(m.cur.stop, stopUnknown)
		m.adrift = true
		m.phase = phaseStopping
		return m.interrupt()
	}
	return m.finishCur(finishRefused)
}

// ended: the child said that a turn is over. A turn that isn't ours changes
// nothing, except where ours never got a name: then it can only be ours.
func (m *turnMachine) ended(id string) []effect {
	if m.cur == nil || (m.cur.id != id && !(m.cur.id == "" && m.adrift)) {
		return nil
	}
	return m.finishCur(finishEnded)
}

// stopTurn ends the running turn early. The first reason is kept.
func (m *turnMachine) stopTurn(why stopReason) []effect {
	if m.cur == nil || m.phase == phaseOver {
		return nil
	}
	m.cur.stop = cmp.Or(m.cur.stop, why)
	m.phase = phaseStopping
	if m.cur.id == "" && !m.adrift {
		return nil // the interrupt needs the turn's name
	}
	return m.interrupt()
}

func (m *turnMachine) interrupt() []effect {
	if m.sent {
		return nil
	}
	m.sent = true
	return []effect{{kind: effInterrupt, turn: m.cur}}
}

// cancel ends the turn of a waiter that nobody answers any more: a queued one is never run, the running one is stopped.
func (m *turnMachine) cancel(w waiterID) []effect {
	for _, t := range m.queue {
		if t.waiter == w {
			m.drop(t)
			return []effect{{kind: effFinish, turn: t, finish: finishDropped}}
		}
	}
	if m.cur != nil && m.cur.waiter == w {
		return m.stopTurn(stopCancel)
	}
	return nil
}

// drop takes a waiting turn out; false when it doesn't wait any more.
func (m *turnMachine) drop(t *turn) bool {
	i := slices.Index(m.queue, t)
	if i >= 0 {
		m.queue = slices.Concat(m.queue[:i], m.queue[i+1:])
	}
	return i >= 0
}

// end ends the session: what waits is refused at once, what runs is stopped
// first. Parking is refused while there is anything to do.
func (m *turnMachine) end(why ending) []effect { return m.endWith(why, nil) }

// endWith is end with one last turn (nil for none), which runs as soon as nothing else does and is stopped by nothing
// but expire, the child's death or its own fate. A second end joins the first: there is one last turn. Where the child
// doesn't confirm that what ran has stopped, there is none.
func (m *turnMachine) endWith(why ending, last *turn) []effect {
	if m.phase == phaseOver || why <= m.ending || (why == endPark && (m.cur != nil || len(m.queue) > 0)) {
		return nil
	}
	again := m.ending != endNone
	if why != endGone || m.ending != endClose { // closed was asked for, and a death on the way there makes it no less
		m.ending = why
	}
	finish := finishOver
	switch why {
	case endGone:
		finish = finishGone
	case endFailed:
		finish = finishUnopened
	}
	out := m.finishQueue(finish)
	switch {
	case finish != finishOver && m.cur != nil:
		return append(out, m.finishCur(finish)...)
	case finish != finishOver:
		return append(out, m.over()...)
	case m.last == nil && !again && m.phase != phaseOpening:
		m.last = last
	}
	switch {
	case m.cur == nil && m.last != nil:
		return append(out, m.start(m.last))
	case m.cur == nil:
		return append(out, m.over()...)
	case m.cur == m.last:
		return out // it goes on
	}
	return append(out, m.stopTurn(m.ending.stop())...)
}

// stop is why what runs is stopped for an ending.
func (e ending) stop() stopReason {
	if e == endShutdown {
		return stopShutdown
	}
	return stopClose
}

// expire ends a session that is ending and whose time for it is over, whatever
// still runs: that is interrupted and not waited for.
func (m *turnMachine) expire() []effect {
	if m.cur == nil || m.ending == endNone {
		return nil
	}
	m.cur.stop = cmp.Or(m.cur.stop, m.ending.stop())
	return append(m.interrupt(), m.giveUp()...)
}

// abandon ends a stopped turn that the child never named without waiting for its
// word, and leaves its thread: the next turn opens another one.
func (m *turnMachine) abandon() []effect {
	if m.cur == nil || m.cur.id != "" || m.phase != phaseStopping || m.ending != endNone {
		return nil
	}
	out := m.finishCur(finishEnded)
	m.spent()
	return out
}

// giveUp ends the session of a turn that the child doesn't confirm to have
// stopped: as broken, unless it was ending anyway.
func (m *turnMachine) giveUp() []effect {
	if m.cur == nil {
		return nil
	}
	if m.ending == endNone {
		m.ending = endBroken
	}
	return append(m.finishQueue(finishBroken), m.finishCur(finishBroken)...)
}

// lost: the child died but the session is to live on in the next one.
func (m *turnMachine) lost() []effect {
	if m.phase == phaseOver {
		return nil
	}
	out := m.finishQueue(finishGone)
	if m.cur != nil {
		out = append(out, m.finishCur(finishGone)...)
	}
	if m.phase != phaseOver {
		m.phase = phaseOpening
	}
	return out
}

// spent: the thread takes no further turn until it is opened again.
func (m *turnMachine) spent() {
	if m.phase == phaseIdle {
		m.phase = phaseOpening
	}
}

func (m *turnMachine) finishQueue(how finishKind) []effect {
	var out []effect
	for _, t := range m.queue {
		out = append(out, effect{kind: effFinish, turn: t, finish: how})
	}
	m.queue = nil
	return out
}

func (m *turnMachine) finishCur(how finishKind) []effect {
	t := m.cur
	m.cur, m.sent, m.phase = nil, false, phaseIdle
	out := []effect{{kind: effFinish, turn: t, finish: how}}
	switch {
	case m.ending == endNone:
		return out
	case m.last != nil && m.last != t && (how == finishEnded || how == finishRefused):
		return append(out, m.start(m.last))
	}
	return append(out, m.over()...)
}

func (m *turnMachine) over() []effect {
	if m.phase == phaseOver {
		return nil
	}
	m.phase, m.last = phaseOver, nil
	return []effect{{kind: effEnd, end: m.ending}}
}
