package main

// session_steer.go owns the messages that go into the turn that runs (codex-reply with steer, and an editor's prompts
// while its session works): which of them may, what became of each, and who waits for that turn then. It runs on the
// session's own goroutine. No message may be lost, nor be told twice to the agent.

import (
	"bytes"
	"fmt"
	"slices"
)

// turnSteers are the messages on their way into one session's running turn.
type turnSteers struct {
	s   *session
	way []*steering // oldest first
}

// steering is one message for the running turn on its way (codex-reply with steer): it passes what is queued, and
// whoever sent it gets the turn's answer. What did not reach the turn before its end becomes a turn of its own; of a
// message whose fate nobody knows its sender is told so. A message without op waits for Codex to name the turn.
type steering struct {
	t  *turn // the call: its waiter, and the turn of its own that it becomes where the other one is over
	op opID  // of the command that carries it, 0: not sent
}

// take reports that a message was taken for the running turn, or refused. false: nothing runs that it could
// reach, so it is an ordinary reply.
func (r *turnSteers) take(t *turn) bool {
	s := r.s
	if s.m.cur == nil && s.m.phase == phaseIdle { // what came together with the message, and before it, is about to run
		s.mail.giveWay()
		s.advance()
	}
	cur := s.m.cur
	refuse := func(why string) bool {
		r.s.turns.answer(t, turnResult{err: proxyAdvice(codeInvalidSession, remedyNone, why,
			"; leave steer out, and the message waits for its end", "agent_id", s.agentID)})
		return true
	}
	switch {
	case t.req.orQueue && !r.mayJoin(t, cur):
		return false
	case s.hasPlace() && s.place.be.info().kind == "mcp-server":
		return refuse("codex mcp-server takes nothing into a running turn")
	case cur == nil || s.m.ending != endNone || s.m.phase == phaseStopping:
		return false
	case cur.req.action != actPrompt:
		return refuse(fmt.Sprintf("agent %s runs a %s, which takes nothing in between", s.agentID,
			cur.req.action.word()))
	}
	s.h.kept.asked(s.agentID)
	s.mail.resume()
	r.way = append(r.way, &steering{t: t})
	r.send()
	return true
}

// mayJoin reports that a prompt which can wait as well goes into the running turn: one of the same person's, under the
// settings that the prompt would have by itself. Mail keeps its turn to itself: what a person asks for is nobody else's
// errand.
func (r *turnSteers) mayJoin(t, cur *turn) bool {
	s := r.s
	return cur != nil && s.m.ending == endNone && s.m.phase != phaseStopping &&
		(!t.req.inOrder || len(s.m.queue) == 0) &&
		cur.req.source == sourceClient && cur.req.action == actPrompt && s.place.be.info().kind == "app-server" &&
		bytes.Equal(toJSON(cur.under), toJSON(s.place.policy.Settings))
}

// undecided reports that the fate of a prompt is open which runs next if it did not reach the turn before.
func (r *turnSteers) undecided() bool {
	return slices.ContainsFunc(r.way, func(st *steering) bool { return st.op != 0 && st.t.req.orQueue })
}

func (r *turnSteers) send() {
	s, cur := r.s, r.s.m.cur
	if cur == nil || cur.id == "" || s.m.phase != phaseRunning {
		return
	}
	for _, st := range r.way {
		if st.op == 0 {
			st.op = s.nextOp()
			c := command{kind: cmdSteer, turn: cur.id, prompt: st.t.req.prompt, parts: st.t.req.parts}
			if c.parts != nil { // the text is in them
				c.prompt = ""
			}
			s.place.be.do(st.op, s.thread, c)
			s.h.ledger.auditTurn(s, "steer", st.t, cur.id)
		}
	}
}

// learn takes what became of a message. false: the event is of no message.
func (r *turnSteers) learn(e *event) bool {
	i := slices.IndexFunc(r.way, func(st *steering) bool { return st.op == e.op && e.op != 0 })
	if i < 0 {
		return false
	}
	s, t, cur := r.s, r.way[i].t, r.s.m.cur
	r.way = slices.Delete(r.way, i, i+1)
	switch {
	case e.kind == evSteered && cur != nil && cur.id == e.turn:
		r.join(t, cur, e)
	case e.kind == evSteered || e.unknown:
		r.s.turns.answer(t, turnResult{err: unknownSteer(s.agentID)})
	case t.waiter == 0: // given up meanwhile
	case e.err.Info == infoNoSteer && !t.req.orQueue:
		r.s.turns.answer(t, turnResult{err: childError("take a message into the running turn", e.err)})
	default: // the turn was over before
		r.replyInstead(t)
	}
	return true
}

func unknownSteer(agentID string) *rpcError {
	return proxyAdvice(codeTimeout, remedyNone, "whether the message reached the running turn is not known",
		fmt.Sprintf("; agent_wait tells the answer of the turn of %s", agentID), "agent_id", agentID)
}

// infoNoSteer is the Info of an error that means that the running turn takes no message at all.
const infoNoSteer = "activeTurnNotSteerable"

// join has a caller wait for a turn that somebody else began. e tells that the turn has the message.
func (r *turnSteers) join(t, cur *turn, e *event) {
	w := t.waiter
	t.waiter = 0
	if w == 0 || !t.req.background {
		if w != 0 {
			cur.joined = append(cur.joined, w)
			r.s.h.front.event(r.s.ref, w, e)
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
func (r *turnSteers) replyInstead(t *turn) {
	t.req.steer, t.passed = false, t.req.orQueue
	r.s.carry(r.s.m.submit(t))
	r.s.turns.accept(t)
}

// end follows the end of a turn: what was not sent becomes a turn of its own. gone: so does nothing, since nobody
// is left who would say what became of the rest.
func (r *turnSteers) end(gone bool) {
	way := r.way
	r.way = nil
	for _, st := range way {
		switch {
		case st.op == 0 && !gone:
			r.replyInstead(st.t)
		case gone:
			err := r.s.openErr
			if err == nil || st.op != 0 && st.t.req.orQueue { // else it would be sent again
				err = unknownSteer(r.s.agentID)
			}
			r.s.turns.answer(st.t, turnResult{err: err})
		default:
			r.way = append(r.way, st) // its outcome comes
		}
	}
}

// leave forgets a caller whose turn goes on: it waits for somebody else's, its message is on its way, or others have
// steered its own. false: it is none of these.
func (r *turnSteers) leave(w waiterID) bool {
	for i, st := range r.way {
		if st.t.waiter != w {
			continue
		}
		if st.t.waiter = 0; st.op == 0 { // never sent
			r.way = slices.Delete(r.way, i, i+1)
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
