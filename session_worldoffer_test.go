package main

// session_worldoffer_test.go holds the mail of a client's sessions to its rules
// (acp_mail), in the world of session_worldclient_test.go: it goes with prompts, or wakes
// turns as it does over MCP.

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// annOf is a session of the client that ann has.
func (w *clientWorld) annOf() turnRequest {
	w.t.Helper()
	w.team("lead")
	born := w.birth("sess_1")
	born.identity = "ann"
	w.good(born)
	born.identity = "" // it has it from its birth
	return born
}

// input is the text that a turn began with, as the child was sent it.
func (w *clientWorld) input() string {
	w.t.Helper()
	var texts []string
	eachElement(rawField(w.lastOf("turn/start"), "input"), func(part json.RawMessage) {
		texts = append(texts, stringField(part, "text"))
	})
	return strings.Join(texts, "|")
}

// taught is annOf, whose prompts that bring mail do what it says: their own words
// are none to the mock.
func (w *clientWorld) taught(onMail string) turnRequest {
	w.t.Helper()
	born := w.annOf()
	w.good(again(born, onMail+"SAY hello"))
	synctest.Wait() // and its look for mail after the turn
	return born
}

// Unread mail wakes nobody; the next prompt has it in front, and it is read then.
func TestWorldOfferedMail(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.taught("ON_MAIL SAY thanks\n")
		w.mail("ann", mailMessage{Text: "one"})
		w.mail("ann", mailMessage{Text: "two"})
		w.after(time.Hour)
		if v := w.hub.agents.view(born.agentID); v.Turns != 1 || pendingOf(v) != "on 2" {
			t.Fatalf("%d turns ran, mail %s", v.Turns, pendingOf(v))
		}
		w.says(again(born, "SAY mine"), "thanks")
		w.wantMail("[one] [two]", "lead: one; lead: two")
		if got := w.input(); !strings.HasPrefix(got, mailHead) || !strings.HasSuffix(got, "</atm-mail>\n\nSAY mine") {
			t.Errorf("the prompt was %q", got)
		}
		w.says(again(born, "SAY alone"), "alone")
		if got := w.input(); got != "SAY alone" {
			t.Errorf("the next prompt was %q", got)
		}
		w.after(time.Hour)
		w.wantMail("[one] [two]", "lead: one; lead: two")
		if rec, err := w.hub.reg.load(born.agentID); err != nil || rec.Digest.LastPrompt != "SAY alone" {
			t.Errorf("record %+v, %v", rec, err)
		}
	})
}

// A session that comes back takes the mail of its absence along with the prompt
// that revives it; one whose auto-mail is off takes none.
func TestWorldOfferedMailOfTheRevived(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		born := w.taught("ON_MAIL SAY thanks\n")
		w.end()
		w.mail("ann", mailMessage{Text: "one"})
		w.start()
		w.good(again(born, "SAY mine"))
		w.wantMail("[one]", "lead: one")
		off := make(chan struct{})
		w.hub.setMail(born.agentID, false, func(sessionView, *rpcError) { close(off) })
		<-off
		w.mail("ann", mailMessage{Text: "two"})
		w.after(polled)
		w.says(again(born, "SAY alone"), "alone")
		w.wantMail("[one] two", "lead: one")
	})
}

// What Codex refused to take stays unread and goes with the next prompt, at once:
// nobody tries again by itself, so there is nothing to hold back.
func TestWorldOfferedMailRefused(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.taught("REFUSE turn/start\nON_MAIL SAY thanks\n")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		_, got := w.submit(again(born, "SAY mine"))
		if r := <-got; r.err == nil {
			t.Fatalf("got %+v", r)
		}
		w.wantMail("one", "lead: one")
		w.says(again(born, "SAY mine"), "thanks")
		w.wantMail("[one]", "lead: one | lead: one")
	})
}

// Acknowledged is what Codex has taken, whatever becomes of the turn; what it has
// not is delivered again.
func TestWorldOfferedMailAndDeath(t *testing.T) {
	for _, c := range []struct{ on, inbox, delivered string }{
		{"DROP turn/start\nON_MAIL SAY thanks\n", "one", "lead: one"},
		{"ON_MAIL HANG\n", "[one]", "lead: one"},
	} {
		t.Run(c.on, func(t *testing.T) {
			inClientWorld(t, nil, func(w *clientWorld) {
				born := w.taught(c.on)
				w.mail("ann", mailMessage{Text: "one"})
				w.after(polled)
				_, got := w.submit(again(born, "SAY mine"))
				synctest.Wait()
				s, was := w.hub.table.agent(born.agentID), make(chan backend, 1)
				s.box.do(func() { was <- s.place.be })
				(<-was).stop(0)
				if r := <-got; r.err == nil || r.err.Code != codeChildDead {
					t.Fatalf("got %+v", r)
				}
				w.after(time.Hour)
				w.wantMail(c.inbox, c.delivered)
				w.good(again(born, "SAY again"))
				if c.inbox == "one" {
					c.delivered += " | lead: one"
				}
				w.wantMail("[one]", c.delivered)
			})
		})
	}
}

// A prompt that is cancelled while it waits takes no mail with it, and an action
// takes none either.
func TestWorldOfferedMailStays(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.taught("ON_MAIL SAY thanks\n")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		s := w.hub.table.agent(born.agentID)
		gate := make(chan struct{})
		s.box.do(func() { <-gate })
		id, _ := w.submit(again(born, "SAY mine"))
		other, _ := w.submit(again(born, "SAY other"))
		s.box.do(func() { // as the loop would, now that both are in the queue
			if !s.mail.delaysTurn() {
				t.Error("the first prompt doesn't wait for the mail")
			}
			w.hub.cancel(id, false)
			w.hub.cancel(other, false)
		})
		close(gate)
		synctest.Wait()
		w.wantMail("one", "")
		action := again(born, "look")
		action.action = actReview
		w.good(action)
		w.wantMail("one", "")
		w.says(again(born, "SAY mine"), "thanks")
		w.wantMail("[one]", "lead: one")
	})
}

// acp_mail = "turn": as over MCP. Prompts take none along.
func TestWorldMailWakesClientSession(t *testing.T) {
	inClientWorld(t, map[string]string{"acp_mail": "turn"}, func(w *clientWorld) {
		born := w.taught("ON_MAIL SAY thanks\n")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		w.wantMail("[one]", "lead: one")
		w.says(again(born, "SAY alone"), "alone")
	})
}

// An inbox that can't be read in time keeps no prompt waiting.
func TestWorldOfferedMailTooLate(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.taught("ON_MAIL SAY thanks\n")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		s := w.hub.table.agent(born.agentID)
		gate, began := make(chan struct{}), time.Now()
		_, got := w.notes.waiter()
		late := &turn{req: again(born, "SAY alone"), waiter: w.notes.last, asked: began}
		w.hub.waiters.add(late.waiter)
		s.box.do(func() {
			s.carry(s.m.submit(late))
			s.mail.fetchFor(late, func() mailFetch { <-gate; return w.hub.mail.fetch(born.agentID, "ann") })
		})
		r := <-got
		about(t, "answered", time.Since(began), mailWaitLimit)
		if r.Content != "alone" {
			t.Errorf("got %+v", r)
		}
		w.says(again(born, "SAY alone"), "alone") // still
		close(gate)
		synctest.Wait()
		w.wantMail("one", "")
		w.says(again(born, "SAY mine"), "thanks")
		w.wantMail("[one]", "lead: one")
	})
}
