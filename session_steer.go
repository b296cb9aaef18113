package main

// session_steer.go owns messages for a turn that runs already (codex-reply with steer): they pass what is queued, and
// whoever sent one gets the turn's answer. It runs on the session's own goroutine. No message may be lost, nor be told
// twice to the agent: what did not reach the turn before its end becomes a turn of its own, and of a message whose fate
// nobody knows its sender is told so.

import (
	"fmt"
	"slices"
)

// steering is one message on its way. A message without op waits for Codex to name the turn.
type steering struct {
	t  *turn // the call: its waiter, and the turn of its own that it becomes where the other one is over
	op opID  // of the command that carries it, 0: not sent
}

// asker is somebody who waits for the turn and can be asked about it, 0 for nobody.
func (t *turn) asker() waiterID {
	if t.waiter == 0 && len(t.joined) > 0 {
		return t.joined[0]
	}
	return t.waiter
}

// takesSteer reports that a message was taken for the running turn, or refused. false: nothing runs that it could
// reach, so it is an ordinary reply.
func (r *turnRunner) takesSteer(t *turn) bool {
	s := r.s
	if s.m.cur == nil && s.m.phase == phaseIdle { // what came together with the message, and before it, is about to run
		s.mail.giveWay()
		s.advance()
	}
	cur := s.m.cur
	refuse := func(why string) bool {
		r.answer(t, turnResult{err: proxyError(codeInvalidSession, why, "agent_id", s.agentID)})
		return true
	}
	switch {
	case s.place != nil && s.place.be.info().kind == "mcp-server":
		return refuse("codex mcp-server takes nothing into a running turn; leave steer out, and the message waits " +
			"for the turn's end")
	case cur == nil || s.m.ending != endNone || s.m.phase == phaseStopping:
		return false
	case cur.req.action != actPrompt:
		return refuse(fmt.Sprintf("agent %s runs a %s, which takes nothing in between; leave steer out, and the "+
			"message waits for its end", s.agentID, cur.req.action.word()))
	}
	s.h.kept.asked(s.agentID)
	s.mail.resume()
	r.steers = append(r.steers, &steering{t: t})
	r.sendSteers()
	return true
}

// sendSteers sends what waits for the running turn's name.
func (r *turnRunner) sendSteers() {
	s, cur := r.s, r.s.m.cur
	if cur == nil || cur.id == "" || s.m.phase != phaseRunning {
		return
	}
	for _, st := range r.steers {
		if st.op == 0 {
			st.op = s.nextOp()
			s.place.be.do(st.op, s.thread, command{kind: cmdSteer, turn: cur.id, prompt: st.t.req.prompt,
				parts: st.t.req.parts})
			s.h.ledger.auditSteer(s, st.t, cur)
		}
	}
}

// steered takes what became of a message. false: the event is of no message.
func (r *turnRunner) steered(e *event) bool {
	i := slices.IndexFunc(r.steers, func(st *steering) bool { return st.op == e.op && e.op != 0 })
	if i < 0 {
		return false
	}
	s, t, cur := r.s, r.steers[i].t, r.s.m.cur
	r.steers = slices.Delete(r.steers, i, i+1)
	switch {
	case e.kind == evSteered && cur != nil && cur.id == e.turn:
		r.join(t, cur)
	case e.kind == evSteered || e.unknown:
		r.answer(t, turnResult{err: unknownSteer(s.agentID)})
	case t.waiter == 0: // given up meanwhile
	case e.err.Info == infoNoSteer:
		r.answer(t, turnResult{err: childError("take a message into the running turn", e.err)})
	default: // the turn was over before
		r.replyInstead(t)
	}
	return true
}

// unknownSteer tells the sender of a message that nobody knows what became of it.
func unknownSteer(agentID string) *rpcError {
	return proxyError(codeTimeout, fmt.Sprintf("whether the message reached the running turn of %s is not known; "+
		"agent_wait tells the turn's answer", agentID), "agent_id", agentID)
}

// infoNoSteer is the Info of an error that means that the running turn takes no message at all.
const infoNoSteer = "activeTurnNotSteerable"

// join has a caller wait for a turn that somebody else began.
func (r *turnRunner) join(t, cur *turn) {
	w := t.waiter
	t.waiter = 0
	if w == 0 || !t.req.background {
		if w != 0 {
			cur.joined = append(cur.joined, w)
		}
		return
	}
	accepted := r.s.newResult(cur)
	accepted.Status, accepted.TurnStatus, accepted.asked = statusBusy, "running", t.asked
	accepted.Notes = []string{"The message went into the turn that runs; its answer is that turn's."}
	cur.shared = true
	r.s.h.answer(w, accepted)
}

// replyInstead makes an ordinary reply of a message that reached no turn.
func (r *turnRunner) replyInstead(t *turn) {
	t.req.steer = false
	r.s.carry(r.s.m.submit(t))
	r.accept(t)
}

// endSteers follows the end of a turn: what was not sent becomes a turn of its own. gone: so does nothing, since nobody
// is left who would say what became of the rest.
func (r *turnRunner) endSteers(gone bool) {
	steers := r.steers
	r.steers = nil
	for _, st := range steers {
		switch {
		case st.op == 0 && !gone:
			r.replyInstead(st.t)
		case gone:
			err := r.s.openErr
			if err == nil {
				err = unknownSteer(r.s.agentID)
			}
			r.answer(st.t, turnResult{err: err})
		default:
			r.steers = append(r.steers, st) // its outcome comes
		}
	}
}

// leave forgets a caller whose turn goes on: it waits for somebody else's, its message is on its way, or others have
// steered its own. false: it is none of these.
func (r *turnRunner) leave(w waiterID) bool {
	for i, st := range r.steers {
		if st.t.waiter != w {
			continue
		}
		if st.t.waiter = 0; st.op == 0 { // never sent
			r.steers = slices.Delete(r.steers, i, i+1)
		}
		return true
	}
	cur := r.s.m.cur
	switch {
	case cur == nil:
		return false
	case cur.waiter == w && len(cur.joined) > 0:
		cur.waiter, cur.joined = cur.joined[0], cur.joined[1:]
		return true
	case cur.waiter == w && cur.shared:
		cur.waiter = 0
		return true
	case !slices.Contains(cur.joined, w):
		return false
	}
	cur.joined = slices.DeleteFunc(cur.joined, func(joined waiterID) bool { return joined == w })
	return true
}
