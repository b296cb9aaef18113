package main

// session_worldmail_test.go holds automatic mail to its rules and times, in the world of
// session_world_test.go: inboxes are real files, the clock is fake, and so the poll alone
// notices mail. testdata/script/mail-*.txtar has what users see.

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const polled = 6 * time.Second // by then the poll has looked

// team makes the world's team. Its members but the agents are Claude Code's.
func (w *world) team(members ...string) {
	w.t.Helper()
	var list []map[string]string
	for _, name := range members {
		list = append(list, map[string]string{"name": name, "agentType": "general-purpose"})
	}
	dir := filepath.Join(w.hub.cfg.teamsRoot, w.hub.cfg.team)
	if err := os.MkdirAll(filepath.Join(dir, "inboxes"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), toJSON(map[string]any{"name": w.hub.cfg.team, "members": append(list, map[string]string{"name": "nobody"})}), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// others are the inboxes as another program sees them.
func (w *world) others() *inboxes {
	return newInboxes(w.hub.cfg.teamsRoot, "", "", nil, slog.New(slog.DiscardHandler))
}

// mail writes to an agent.
func (w *world) mail(to string, m mailMessage) {
	w.t.Helper()
	if m.From == "" {
		m.From = "lead"
	}
	if out, _, err := w.others().send(w.t.Context(), w.hub.cfg.team, to, m); out != mailDelivered || err != nil {
		w.t.Fatalf("mail to %s: %v, %v", to, out, err)
	}
}

// inbox lists the texts of an inbox, those that were read in brackets.
func (w *world) inbox(of string) string {
	w.t.Helper()
	msgs, _, err := w.others().list(w.t.Context(), w.hub.cfg.team, of, mailFilter{All: true})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, m := range msgs {
		text := m.Text
		if m.Read {
			text = "[" + text + "]"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// delivered lists what every mail turn that the child was sent carried, as
// "from: text" with "; " between, and " | " between turns.
func (w *world) delivered() string {
	w.t.Helper()
	data, err := os.ReadFile(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	return deliveredIn(data)
}

func deliveredIn(log []byte) string {
	var turns []string
	for line := range strings.Lines(string(log)) {
		if stringField(json.RawMessage(line), "method") != "turn/start" {
			continue
		}
		var mails []string
		eachElement(rawField(json.RawMessage(line), "params", "input"), func(part json.RawMessage) {
			_, body, ok := strings.Cut(stringField(part, "text"), "\n<atm-mail to=")
			if !ok {
				return
			}
			for _, m := range strings.Split(body, "\n")[1:] {
				if strings.HasPrefix(m, "{") {
					mails = append(mails, stringField(json.RawMessage(m), "from")+": "+stringField(json.RawMessage(m), "text"))
				}
			}
		})
		if mails != nil {
			turns = append(turns, strings.Join(mails, "; "))
		}
	}
	return strings.Join(turns, " | ")
}

// ann starts an agent of that name, whose mail turns do what it says.
func (w *world) ann(onMail string) string {
	w.t.Helper()
	agent := stringField(w.tool("codex", "identity", "ann", "prompt", onMail+"SAY hello").ok(w.t), "structuredContent", "agent_id")
	synctest.Wait() // and its look for mail after the turn
	return agent
}

// after lets the clock run, and then everything that it set off.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// view is a session as agent_sessions tells it.
func (w *world) view(agent string) sessionView {
	w.t.Helper()
	synctest.Wait()
	return w.hub.agents.view(agent)
}

func (w *world) wantMail(inbox, delivered string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.delivered(); got != delivered {
		w.t.Errorf("delivered %q, want %q", got, delivered)
	}
	if got := w.inbox("ann"); got != inbox {
		w.t.Errorf("the inbox has %q, want %q", got, inbox)
	}
}

func pendingOf(v sessionView) string {
	if v.PendingMail == nil {
		return v.AutoMail + " none"
	}
	return fmt.Sprintf("%s %d", v.AutoMail, *v.PendingMail)
}

// FR-8.2, FR-8.6: mail that comes while an agent is idle starts a turn by the next
// poll, is marked read, and comes once. The turn's result is kept.
func TestWorldMailWakes(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		w.team("lead")
		agent := w.ann("")
		w.mail("ann", mailMessage{Text: "one"})
		w.mail("ann", mailMessage{Text: "two", From: "bob"})
		w.after(polled)
		w.wantMail("[one] [two]", "lead: one; bob: two")
		w.after(time.Hour)
		w.wantMail("[one] [two]", "lead: one; bob: two")
		turns := w.hub.kept.between(agent, 0, w.hub.kept.now())
		if len(turns) != 2 || turns[1].Source != sourceMail || !strings.Contains(turns[1].Result.Content, "MOCK: ") {
			t.Errorf("kept: %+v", turns)
		}
		if got := pendingOf(w.view(agent)); got != "on 0" {
			t.Errorf("view %q", got)
		}
	})
}

// mail_poll_interval_ms is how long mail may lie where nothing notices it.
func TestWorldMailPollInterval(t *testing.T) {
	inWorld(t, map[string]string{"mail_poll_interval_ms": "600000"}, noElicitation, func(w *world) {
		w.team("lead")
		w.ann("")
		w.after(10 * time.Minute) // whenever the poll began, one is just over
		w.mail("ann", mailMessage{Text: "one"})
		w.after(5 * time.Minute)
		w.wantMail("one", "")
		w.after(6 * time.Minute)
		w.wantMail("[one]", "lead: one")
	})
}

// FR-8.1, FR-8.10, FR-8.11: mail waits for the turn that runs and those that wait
// for it, and is delivered after them.
func TestWorldMailWaitsForClients(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead")
		agent := w.ann("")
		gate := filepath.Join(t.TempDir(), "gate")
		first := w.tool("codex-reply", "agent_id", agent, "prompt", "GATE "+gate+"\nSAY first")
		second := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY second")
		synctest.Wait()
		w.mail("ann", mailMessage{Text: "one"})
		w.after(time.Minute)
		w.wantMail("one", "")
		if got := pendingOf(w.view(agent)); got != "on 1" {
			t.Errorf("view %q", got)
		}
		if sum := w.hub.status().PendingMail; sum == nil || *sum != 1 {
			t.Errorf("the sum is %v", sum)
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		first.ok(t)
		second.ok(t)
		w.wantMail("[one]", "lead: one")
	})
}

// A client's turn that comes while mail is fetched goes first, and the mail after.
func TestWorldMailYields(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead")
		agent := w.ann("")
		w.mail("ann", mailMessage{Text: "one"})
		s := w.hub.table.agent(agent)
		gate := make(chan struct{})
		s.box.do(func() {
			s.mail.counted(1, true, "")
			s.mail.fetch()
			<-gate
		})
		call := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY client")
		synctest.Wait() // both have come
		close(gate)
		call.ok(t)
		w.wantMail("[one]", "lead: one")
		data, _ := os.ReadFile(w.log)
		if client, mail := strings.Index(string(data), "SAY client"), strings.Index(string(data), "atm-mail to="); client < 0 || mail < client {
			t.Errorf("mail at %d, the client's turn at %d", mail, client)
		}
	})
}

// Mail that was fetched as a client's turn came isn't kept back until after it,
// but fetched anew: what was read meanwhile by other means is not delivered.
func TestWorldMailIsFetchedAnew(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead")
		agent := w.ann("")
		w.mail("ann", mailMessage{Text: "one"})
		s, done := w.hub.table.agent(agent), filepath.Join(t.TempDir(), "gate")
		gate := make(chan struct{})
		s.box.do(func() { <-gate })
		synctest.Wait()
		got := w.hub.mail.fetch(agent, "ann")
		s.box.do(func() { s.mail.fetched(got) })
		w.hub.submit(turnRequest{mode: modeReply, ref: agent, prompt: "GATE " + done + "\nSAY client", run: true}, 0)
		close(gate)
		synctest.Wait()
		if v := w.view(agent); v.Source != "client" || v.Queued != 0 {
			t.Errorf("source %q, %d queued", v.Source, v.Queued)
		}
		if _, err := w.others().markRead(t.Context(), w.hub.cfg.team, "ann", []string{w.messages("ann")[0].Key}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(done, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.wantMail("[one]", "")
	})
}

// A client's turn that comes while a mail turn runs waits for it, and is not lost.
func TestWorldClientWaitsForMailTurn(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead")
		gate := filepath.Join(t.TempDir(), "gate")
		agent := w.ann("ON_MAIL GATE " + gate + "\n")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		w.wantMail("[one]", "lead: one") // acknowledged as it began
		if v := w.view(agent); v.Status != "busy" || v.Source != "mail" {
			t.Errorf("status %q, source %q", v.Status, v.Source)
		}
		call := w.tool("codex-reply", "agent_id", agent, "prompt", "SAY after")
		w.after(time.Second)
		if n := w.sent("turn/start"); n != 2 {
			t.Errorf("%d turns", n)
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := stringField(call.ok(t), "structuredContent", "content"); got != "after" {
			t.Errorf("answer %q", got)
		}
	})
}

// FR-8.5: at most max_messages come in one turn, the oldest first, and long ones
// are cut; the rest comes in the next.
func TestWorldMailLimits(t *testing.T) {
	inWorld(t, map[string]string{"max_mail_messages": "2", "max_mail_message_length": "3"}, noElicitation, func(w *world) {
		w.team("lead")
		w.ann("")
		for _, text := range []string{"one", "twoö", "3ääx", "4"} {
			w.mail("ann", mailMessage{Text: text})
		}
		w.after(polled)
		w.wantMail("[one] [twoö] [3ääx] [4]", "lead: one; lead: two | lead: 3ää; lead: 4")
	})
}

// A start that the child refuses leaves mail unread; it is tried again, more and
// more seldom.
func TestWorldMailRefused(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		w.team("lead")
		w.ann(strings.Repeat("REFUSE turn/start\n", 5))
		w.mail("ann", mailMessage{Text: "one"})
		var tries []time.Duration
		for n := w.sent("turn/start"); len(tries) < 6; w.after(time.Second) {
			if now := w.sent("turn/start"); now > n {
				n = now
				tries = append(tries, w.now())
				if len(tries) < 6 {
					w.wantInbox("one")
				}
			}
			if w.now() > time.Hour {
				w.t.Fatalf("tried at %v", tries)
			}
		}
		for i, want := range []time.Duration{5, 10, 20, 40, 80} {
			if got := tries[i+1] - tries[i]; got < want*time.Second || got > (want+2)*time.Second {
				w.t.Errorf("try %d came %v after the one before, want %ds", i+2, got, want)
			}
		}
		w.wantInbox("[one]")
	})
}

// A start without an answer is interrupted. Where nothing ran, its mail comes once
// more, and not before Codex has said so; where it ran, it is acknowledged.
func TestWorldMailUnknownStart(t *testing.T) {
	t.Run("nothing ran", func(t *testing.T) {
		inWorld(t, nil, noElicitation, func(w *world) {
			w.team("lead")
			w.ann("DROP turn/start\n")
			w.mail("ann", mailMessage{Text: "one"})
			w.after(polled + 20*time.Second)
			w.wantMail("one", "lead: one") // sent, and not taken
			w.after(time.Minute)
			w.wantMail("[one]", "lead: one | lead: one")
			if w.sent("turn/interrupt") == 0 {
				w.t.Error("it was not interrupted")
			}
		})
	})
	for _, long := range []string{"SAY done", "HANG"} {
		t.Run("it ran: "+long, func(t *testing.T) {
			inWorld(t, nil, noElicitation, func(w *world) {
				w.team("lead")
				agent := w.ann("MUTE turn/start\nON_MAIL " + long + "\n")
				w.mail("ann", mailMessage{Text: "one"})
				w.after(time.Hour)
				w.wantMail("[one]", "lead: one")
				if v := w.view(agent); v.Status != "idle" {
					w.t.Errorf("status %q", v.Status)
				}
			})
		})
	}
}

// FR-8.13: what was sent to a child that died before it took it is delivered by
// the next one; what it had taken is not.
func TestWorldMailChildDeath(t *testing.T) {
	for _, c := range []struct{ on, inbox, delivered string }{
		{"DROP turn/start\n", "[one]", "lead: one | lead: one"},
		{"ON_MAIL HANG\n", "[one]", "lead: one"},
	} {
		t.Run(c.on, func(t *testing.T) {
			inWorld(t, map[string]string{"restart_child": "true"}, noElicitation, func(w *world) {
				w.team("lead")
				agent := w.ann(c.on)
				w.mail("ann", mailMessage{Text: "one"})
				w.after(polled)
				s, was := w.hub.table.agent(agent), make(chan backend, 1)
				s.box.do(func() { was <- s.place.be })
				(<-was).stop(0)
				w.after(time.Minute)
				w.wantMail(c.inbox, c.delivered)
				if v := w.view(agent); v.Status != "idle" {
					w.t.Errorf("status %q", v.Status)
				}
			})
		})
	}
}

// FR-17.10: close, and the shutdown of all, leave what was not taken unread; a
// parked or closed session's mail waits for its next life.
func TestWorldMailOfTheEnded(t *testing.T) {
	for _, end := range []string{"closed", "parked"} {
		t.Run(end, func(t *testing.T) {
			inWorld(t, map[string]string{"max_concurrent_threads": "1"}, noElicitation, func(w *world) {
				t := w.t
				w.team("lead")
				agent := stringField(w.tool("codex", "prompt", "SAY hello").ok(t), "structuredContent", "agent_id")
				name := w.view(agent).Identity
				if end == "closed" {
					w.tool("agent_close", "agent_id", agent).ok(t)
				} else {
					w.tool("codex", "identity", "other", "prompt", "SAY hello").ok(t)
				}
				w.mail(name, mailMessage{Text: "one"})
				w.after(time.Minute)
				if got := w.inbox(name); got != "one" {
					t.Errorf("%s: the inbox has %q", end, got)
				}
				if end == "parked" {
					if got := pendingOf(w.view(agent)); got != "on 1" {
						t.Errorf("parked: %s", got)
					}
					w.tool("agent_close", "identity", "other").ok(t)
				}
				w.tool("codex", "agent_id", agent).ok(t)
				w.after(polled)
				if got := w.inbox(name) + " " + w.delivered(); got != "[one] lead: one" {
					t.Errorf("revived: %s", got)
				}
			})
		})
	}
}

// The close of a session whose mail turn has not begun: its mail stays unread.
func TestWorldMailTurnClosed(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		w.team("lead")
		agent := w.ann("DROP turn/start\n")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		w.tool("agent_close", "agent_id", agent).ok(w.t)
		w.after(time.Minute)
		w.wantMail("one", "lead: one")
	})
}

// messages lists an inbox.
func (w *world) messages(of string) []mailMessage {
	w.t.Helper()
	msgs, _, err := w.others().list(w.t.Context(), w.hub.cfg.team, of, mailFilter{All: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return msgs
}

func (w *world) wantInbox(inbox string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.inbox("ann"); got != inbox {
		w.t.Errorf("after %v the inbox has %q, want %q", w.now(), got, inbox)
	}
}
