package main

// session_mail_test.go holds automatic mail to its rules and times, in the world of session_world_test.go: inboxes are
// real files, the clock is fake, and so the poll alone notices mail. What decides whether mail comes at all, the frames
// of Claude Code, and the mail that goes with the prompts of a client's session (acp_mail) stand here too; what users
// see is in testdata/script/mail-*.txtar.

import (
	"encoding/json"
	"errors"
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

// FR-8.8: auto_mail of everybody, of a role, of an identity, of a session, the
// nearest counting; agent_mail's word is kept in the record.
func TestWorldMailSwitches(t *testing.T) {
	inWorld(t, map[string]string{"auto_mail": "false"}, noElicitation, func(w *world) {
		t := w.t
		w.team("lead")
		agent := w.ann("")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(time.Minute)
		w.wantMail("one", "")
		if got := pendingOf(w.view(agent)); got != "off 1" {
			t.Errorf("view %q", got)
		}
		set := func(ref string, auto bool) (v sessionView) {
			done := make(chan *rpcError, 1)
			w.hub.setMail(ref, auto, func(got sessionView, err *rpcError) { v = got; done <- err })
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			return v
		}
		if v := set("Ann", true); v.AutoMail != "on" {
			t.Errorf("view %q", v.AutoMail)
		}
		w.wantMail("[one]", "lead: one")
		set(agent, false)
		w.mail("ann", mailMessage{Text: "two"})
		w.after(time.Minute)
		w.wantMail("[one] two", "lead: one")
		w.tool("agent_close", "agent_id", agent).ok(t)
		if on := w.record(agent).AutoMail; on == nil || *on {
			t.Errorf("the record says %v", on)
		}
		set(agent, true) // of a closed one: for when it is opened again
		w.tool("codex", "agent_id", agent).ok(t)
		w.after(polled)
		w.wantMail("[one] [two]", "lead: one | lead: two")
	})
}

func TestAutoMailOf(t *testing.T) {
	yes, no := true, false
	c := &config{autoMail: true, roles: map[string]role{"quiet": {autoMail: false}, "plain": {}}, perThreadAutoMail: map[string]bool{"Ann": true, "bob": false},
		origin: map[string]origin{"roles.quiet.auto_mail": {}}}
	for _, tt := range []struct {
		rec  record
		want bool
	}{
		{record{Identity: "x"}, true},
		{record{Identity: "x", Role: "plain"}, true},
		{record{Identity: "x", Role: "quiet"}, false},
		{record{Identity: "ann", Role: "quiet"}, true},
		{record{Identity: "BOB"}, false},
		{record{Identity: "bob", AutoMail: &yes}, true},
		{record{Identity: "ann", AutoMail: &no}, false},
		{record{Identity: "x", Role: "gone"}, true},
	} {
		if got := autoMailOf(c, &tt.rec); got != tt.want {
			t.Errorf("%+v: %v", tt.rec, got)
		}
	}
}

// The runaway guard: after ten mail turns in a row nothing more is delivered, the
// sender is told once, and a client's turn resumes.
func TestWorldMailRunaway(t *testing.T) {
	inWorld(t, map[string]string{"max_mail_messages": "1"}, noElicitation, func(w *world) {
		t := w.t
		w.team("lead", "bob")
		agent := w.ann("")
		for i := range mailRowLimit + 2 {
			w.mail("ann", mailMessage{Text: fmt.Sprint(i), From: "bob"})
		}
		w.after(time.Minute)
		if got := strings.Count(w.delivered(), "bob: "); got != mailRowLimit {
			t.Errorf("%d mail turns, want %d", got, mailRowLimit)
		}
		v := w.view(agent)
		if v.PendingMail == nil || *v.PendingMail != 2 || !strings.HasPrefix(v.AutoMail, "paused: 10 mail turns in a row") {
			t.Errorf("view %q", pendingOf(v))
		}
		told := w.inbox("bob")
		if strings.Count(told, "not delivered for now") != 1 {
			t.Errorf("bob was told %q", told)
		}
		w.mail("ann", mailMessage{Text: "and", From: "bob"})
		w.after(time.Hour)
		if got := w.inbox("bob"); got != told {
			t.Errorf("bob was told again: %q", got)
		}
		w.tool("codex-reply", "agent_id", agent, "prompt", "SAY go on").ok(t)
		w.after(polled)
		if got := strings.Count(w.delivered(), "bob: "); got != mailRowLimit+3 {
			t.Errorf("%d mail turns after a client's", got)
		}
		if v := w.view(agent); v.AutoMail != "on" {
			t.Errorf("view %q", v.AutoMail)
		}
		var notice mailMessage
		for _, m := range w.messages("bob") {
			notice = m
		}
		if !notice.Automatic || notice.From != "ann" {
			t.Errorf("the notice is %+v", notice)
		}
	})
}

// The guard by the hour holds though a client speaks now and then, and nobody is
// told who wrote automatically.
func TestWorldMailRunawayByTheHour(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead", "bob")
		agent := w.ann("")
		for i := range mailHourLimit + 1 {
			if i%5 == 0 {
				w.tool("codex-reply", "agent_id", agent, "prompt", "SAY on").ok(t)
			}
			w.mail("ann", mailMessage{Text: fmt.Sprint(i), From: "bob", Automatic: true})
			w.after(polled)
		}
		if got := strings.Count(w.delivered(), "bob: "); got != mailHourLimit {
			t.Errorf("%d mail turns, want %d", got, mailHourLimit)
		}
		if v := w.view(agent); !strings.HasPrefix(v.AutoMail, "paused: 30 mail turns within an hour") {
			t.Errorf("view %q", v.AutoMail)
		}
		if got := w.messages("bob"); len(got) > 0 {
			t.Errorf("an automatic message was answered: %+v", got)
		}
	})
}

// Claude Code's system frames are what they are; see session_mailfetch.go.
func TestWorldMailFrames(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead", "bob")
		agent := w.ann("")
		w.mail("ann", mailMessage{Text: `{"type":"idle_notification","from":"bob","idleReason":"available"}`, From: "bob"})
		w.mail("ann", mailMessage{Text: `{"type":"shutdown_request","requestId":"r1","from":"lead","reason":"enough"}`})
		w.mail("ann", mailMessage{Text: `{"type":"permission_request","from":"bob"}`, From: "bob"})
		w.after(time.Minute)
		if got := w.delivered(); got != "" {
			t.Errorf("delivered %q", got)
		}
		read := func() (out string) {
			for _, m := range w.messages("ann") {
				out += fmt.Sprintf("%s %v ", m.Kind, m.Read)
			}
			return out
		}
		if got := read(); got != "idle_notification true shutdown_request true permission_request false " {
			t.Errorf("marked: %s", got)
		}
		if v := w.view(agent); v.Status != "idle" || pendingOf(v) != "on 1" {
			t.Errorf("view %s, %s", v.Status, pendingOf(v))
		}
		answer := w.messages("lead")
		if len(answer) != 1 || answer[0].Kind != mailShutdownRejected || !answer[0].Automatic || stringField(answer[0].Frame, "requestId") != "r1" ||
			!strings.Contains(stringField(answer[0].Frame, "reason"), agent) {
			t.Errorf("the lead was answered %+v", answer)
		}
		w.mail("ann", mailMessage{Text: `{"type":"task_assignment","taskId":"7","subject":"do it"}`})
		w.mail("ann", mailMessage{Text: "and this"})
		w.after(polled)
		if got := w.delivered(); !strings.Contains(got, `lead: {"type":"task_assignment"`) || !strings.HasSuffix(got, "; lead: and this") {
			t.Errorf("delivered %q", got)
		}
		w.after(time.Hour)
		if got := len(w.messages("lead")); got != 1 {
			t.Errorf("the lead was answered %d times", got)
		}
		lines, err := os.ReadFile(filepath.Join(w.hub.cfg.sessionsRoot, w.hub.cfg.team, "audit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{"mail_noted", "mail_answered", "mail_left", "mail_turn"} {
			if n := strings.Count(string(lines), `"event":"`+event+`"`); n != 1 {
				t.Errorf("%d audit lines of %s", n, event)
			}
		}
	})
}

// Many frames in front of mail don't hide it.
func TestWorldMailBehindFrames(t *testing.T) {
	inWorld(t, map[string]string{"max_mail_messages": "2"}, noElicitation, func(w *world) {
		w.team("lead")
		w.ann("")
		for range 15 {
			w.mail("ann", mailMessage{Text: `{"type":"permission_request","from":"bob"}`, From: "bob"})
		}
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		if got := w.delivered(); got != "lead: one" {
			w.t.Errorf("delivered %q", got)
		}
	})
}

// An entry of the name that isn't ours to be: its mail isn't delivered, and that
// is told, until it is gone.
func TestWorldMailOfAnother(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		w.team("lead")
		agent := w.ann("")
		w.team("lead", "Ann")
		w.mail("ann", mailMessage{Text: "one"})
		w.after(time.Minute)
		w.wantMail("one", "")
		if v := w.view(agent); !strings.HasPrefix(v.AutoMail, "paused: ") || !strings.Contains(v.AutoMail, "Ann") {
			w.t.Errorf("view %q", v.AutoMail)
		}
		w.team("lead")
		w.after(polled)
		w.wantMail("[one]", "lead: one")
	})
}

// A team that comes late, goes (Claude Code removes its own) and comes again.
func TestWorldMailTeamComesAndGoes(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		agent := w.ann("")
		w.after(time.Minute)
		if got := pendingOf(w.view(agent)); got != "on none" {
			w.t.Errorf("view %q", got)
		}
		for i := 1; i <= 2; i++ {
			w.team("lead")
			w.mail("ann", mailMessage{Text: fmt.Sprint(i)})
			w.after(polled)
			w.wantInbox(fmt.Sprintf("[%d]", i))
			if all := readText(w.t, filepath.Join(w.hub.cfg.teamsRoot, w.hub.cfg.team, "config.json")); strings.Count(all, `"ann"`) != 1 {
				w.t.Errorf("who made the team anew can't write to ann: %s", all)
			}
			if err := os.RemoveAll(filepath.Join(w.hub.cfg.teamsRoot, w.hub.cfg.team)); err != nil {
				w.t.Fatal(err)
			}
			w.after(time.Minute)
			if got := pendingOf(w.view(agent)); got != "on none" {
				w.t.Errorf("view %q", got)
			}
			if _, err := os.Stat(filepath.Join(w.hub.cfg.teamsRoot, w.hub.cfg.team)); err == nil {
				w.t.Error("the team was made again")
			}
		}
	})
}

// An agent that is opened again before its leaving of the team was done is a member all the same.
func TestWorldMailReopenedBeforeItLeft(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead")
		agent := w.ann("")
		gate := make(chan struct{})
		w.hub.team.later(func() { <-gate }) // others hold the team's files
		w.tool("agent_close", "agent_id", agent).ok(t)
		again := w.tool("codex", "agent_id", agent, "prompt", "SAY again")
		synctest.Wait()
		close(gate)
		again.ok(t)
		synctest.Wait()
		if all := readText(t, filepath.Join(w.hub.cfg.teamsRoot, w.hub.cfg.team, "config.json")); strings.Count(all, `"ann"`) != 1 {
			t.Errorf("the team can't write to ann: %s", all)
		}
	})
}

// An inbox whose name is spelt in another case is the agent's all the same.
func TestWorldMailSpelling(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		w.team("lead")
		w.ann("")
		w.mail("ANN", mailMessage{Text: "one"})
		w.after(polled)
		if got := w.inbox("ANN") + " " + w.delivered(); got != "[one] lead: one" {
			w.t.Errorf("got %s", got)
		}
	})
}

// Marking that others' locks delay is made up for, and what was delivered doesn't
// come again meanwhile, nor to the session's next life.
func TestWorldMailMarkedLate(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		w.team("lead")
		agent := w.ann("")
		w.mail("ann", mailMessage{Text: "one"})
		lock := filepath.Join(w.hub.mail.dir, "ann.json.lock")
		if err := os.MkdirAll(filepath.Join(lock, "held"), 0o755); err != nil { // whatever its time, it isn't taken for stale
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.wantMail("one", "lead: one")
		if got := pendingOf(w.view(agent)); got != "on 0" {
			t.Errorf("view %q", got)
		}
		w.tool("agent_close", "agent_id", agent).ok(t)
		w.tool("codex", "agent_id", agent).ok(t)
		w.after(time.Minute)
		w.wantMail("one", "lead: one")
		if err := os.RemoveAll(lock); err != nil {
			t.Fatal(err)
		}
		w.after(2 * markPauseMost)
		w.wantMail("[one]", "lead: one")
	})
}

// A writer that puts a message back as unread doesn't have it delivered again.
func TestWorldMailPutBack(t *testing.T) {
	inWorld(t, nil, noElicitation, func(w *world) {
		w.team("lead")
		w.ann("")
		w.mail("ann", mailMessage{Text: "one"})
		path := filepath.Join(w.hub.mail.dir, "ann.json")
		before := readText(w.t, path)
		w.after(polled)
		w.wantMail("[one]", "lead: one")
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			w.t.Fatal(err)
		}
		w.after(polled)
		w.wantMail("[one]", "lead: one")
	})
}

// idle_timeout_ms is ignored where the poll stands alone: mail after hours wakes.
func TestWorldMailPollAlone(t *testing.T) {
	inWorld(t, map[string]string{"idle_timeout_ms": "60000"}, noElicitation, func(w *world) {
		w.team("lead")
		w.ann("")
		w.after(5 * time.Hour)
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		w.wantMail("[one]", "lead: one")
	})
}

// What can't be approved by anybody in a mail turn is declined, and a legacy
// client that can be asked is.
func TestWorldMailApproval(t *testing.T) {
	for _, caps := range []string{noElicitation, `{"elicitation":{}}`} {
		t.Run(caps, func(t *testing.T) {
			inWorld(t, nil, caps, func(w *world) {
				t := w.t
				w.team("lead")
				agent := w.ann("ON_MAIL ASK What?\n")
				w.mail("ann", mailMessage{Text: "one"})
				w.after(polled)
				v := w.view(agent)
				if asked := len(w.asked); (asked == 1) != (caps != noElicitation) || (len(v.Pending) == 1) != (asked == 1) {
					t.Errorf("asked %d times, %d pending", asked, len(v.Pending))
				}
				if ended := w.tool("agent_wait", "agent_id", agent, "timeout_secs", 0).wait().result; caps == noElicitation &&
					!strings.Contains(string(ended), `"declined":[{"kind":"question","action":"What?","reason":"the client can't be asked for approval: mail began this turn`) {
					t.Errorf("not told who declined: %s", ended)
				}
			})
		})
	}
}

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
			w.hub.cancel(id)
			w.hub.cancel(other)
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

func testMailroom(t *testing.T, open ...string) *mailroom {
	t.Helper()
	root := t.TempDir()
	cfg := &config{team: "crew", mailPollInterval: time.Second, idleTimeout: time.Minute}
	cfg.teamsRoot = root
	r := newMailroom(&agentDirectory{cfg: cfg, log: slog.New(slog.DiscardHandler)}, nil, nil)
	for _, name := range open {
		r.slots[strings.ToLower(name)] = &mailSlot{identity: name, names: []string{name}, s: &session{}, given: map[string]*givenMail{}}
	}
	return r
}

// Locks, temporary files, other members' inboxes and ended sessions' wake nobody.
func TestMailroomNoticed(t *testing.T) {
	r := testMailroom(t, "Ann", "gone")
	r.slots["gone"].s = nil
	for _, tt := range []struct {
		entry            string
		wakes, all, rest bool
	}{
		{"Ann.json", true, false, false},
		{"ann.json", true, false, true}, // it is spelt so, then
		{"Ann.lock", false, false, false},
		{"Ann.json.lock", false, false, false},
		{"Ann.json.tmp.12345678", false, false, false},
		{"Ann.tmp", false, false, false},
		{"bob.json", false, false, false},
		{"gone.json", false, false, false},
		{".json", false, false, false},
		{"", true, true, false},
	} {
		r.all, r.respell, r.changed = false, false, map[string]bool{}
		r.noticed(tt.entry)
		woken := len(r.wake) > 0
		if woken {
			<-r.wake
		}
		if woken != tt.wakes || r.all != tt.all || r.respell != tt.rest || r.changed["ann"] != (tt.wakes && !tt.all) {
			t.Errorf("%q: woken %v, all %v, respell %v, changed %v", tt.entry, woken, r.all, r.respell, r.changed)
		}
	}
}

// idle_timeout_ms stops the poll where notices are to be had, and only there; a
// mailroom without sessions has nothing to poll for.
func TestMailroomPause(t *testing.T) {
	for _, tt := range []struct {
		name         string
		open         []string
		noticed      bool
		quiet, limit time.Duration
		rests        bool
	}{
		{"busy", []string{"ann"}, true, time.Second, time.Minute, false},
		{"idle", []string{"ann"}, true, time.Hour, time.Minute, true},
		{"the poll alone", []string{"ann"}, false, time.Hour, time.Minute, false},
		{"never", []string{"ann"}, true, time.Hour, 0, false},
		{"no session", nil, false, 0, time.Minute, true},
	} {
		r := testMailroom(t, tt.open...)
		r.cfg.idleTimeout, r.last = tt.limit, time.Now().Add(-tt.quiet)
		if got := r.pause(tt.noticed); got != tt.rests || r.rests() != got {
			t.Errorf("%s: rests %v", tt.name, got)
		}
		r.active()
		if r.rests() || len(r.wake) != map[bool]int{true: 1}[tt.rests] {
			t.Errorf("%s: a turn did not begin the poll again: %d", tt.name, len(r.wake))
		}
	}
}

// Where watching fails, the next poll tries again, with a new watcher where the
// old one has broken; and what came meanwhile is looked for.
func TestMailWatchOpensAgain(t *testing.T) {
	r := testMailroom(t, "ann")
	fails := true
	r.newWatcher = func() (*watcher, error) {
		if fails {
			return nil, errNoWatch
		}
		return newWatcher()
	}
	var e mailWatch
	defer e.close()
	if e.open(r) || e.works() {
		t.Fatal("there was something to watch with")
	}
	fails = false
	if w, err := newWatcher(); errors.Is(err, errNoWatch) {
		t.Skip("no notification here")
	} else {
		w.close()
	}
	for range 2 {
		works := e.open(r) && e.works()
		r.mu.Lock()
		all := r.all
		r.all = false
		r.mu.Unlock()
		if !works || !all {
			t.Fatalf("not watched: works %v, all %v", works, all)
		}
		for len(r.wake) > 0 {
			<-r.wake
		}
		if err := os.MkdirAll(r.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		<-r.wake // the directory came
		if err := os.RemoveAll(filepath.Dir(r.dir)); err != nil {
			t.Fatal(err)
		}
		e.w.close()
		e.wa.remove()
		e.wa.above = 0 // as the kernel's error would leave it
	}
}
