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
	list = append(list, map[string]string{"name": "nobody"})
	config := toJSON(map[string]any{"name": w.cfg.team, "members": list})
	plant(w.t, w.teamDir(), map[string]string{"inboxes/": "", "config.json": string(config)})
}

func (w *world) teamDir() string { return filepath.Join(w.cfg.teamsRoot, w.cfg.team) }

// wantMember holds the team to have ann once: who made it anew can write to it.
func (w *world) wantMember() {
	w.t.Helper()
	synctest.Wait()
	if all := readText(w.t, filepath.Join(w.teamDir(), "config.json")); strings.Count(all, `"ann"`) != 1 {
		w.t.Errorf("the team can't write to ann: %s", all)
	}
}

// others are the inboxes as another program sees them.
func (w *world) others() *inboxes {
	return newInboxes(w.cfg.teamsRoot, "", nil, slog.New(slog.DiscardHandler))
}

// mail writes to an agent, as the lead.
func (w *world) mail(to, text string) {
	w.t.Helper()
	w.post(to, mailMessage{From: "lead", Text: text})
}

func (w *world) post(to string, m mailMessage) {
	w.t.Helper()
	if out, _, err := w.others().send(w.t.Context(), w.cfg.team, to, m); out != mailDelivered || err != nil {
		w.t.Fatalf("mail to %s: %v, %v", to, out, err)
	}
}

// messages lists an inbox.
func (w *world) messages(of string) []mailMessage {
	w.t.Helper()
	msgs, _, err := w.others().list(w.t.Context(), w.cfg.team, of, mailFilter{All: true})
	wantNil(w.t, err)
	return msgs
}

// inbox lists the texts of an inbox, those that were read in brackets.
func (w *world) inbox(of string) string {
	w.t.Helper()
	var all []string
	for _, m := range w.messages(of) {
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
	return deliveredIn([]byte(readText(w.t, w.log)))
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
					raw := json.RawMessage(m)
					mails = append(mails, stringField(raw, "from")+": "+stringField(raw, "text"))
				}
			}
		})
		if mails != nil {
			turns = append(turns, strings.Join(mails, "; "))
		}
	}
	return strings.Join(turns, " | ")
}

// wantMail holds ann's inbox and the mail turns so far to what they should be.
func (w *world) wantMail(inbox, delivered string) {
	w.t.Helper()
	synctest.Wait()
	w.is("delivered", w.delivered(), delivered)
	w.is("the inbox", w.inbox("ann"), inbox)
}

// wantPending holds an agent to whether its mail comes, and how much of it waits ("none": there is no inbox).
func (w *world) wantPending(agent, want string) {
	w.t.Helper()
	v := w.view(agent)
	got := v.AutoMail + " none"
	if v.PendingMail != nil {
		got = fmt.Sprintf("%s %d", v.AutoMail, *v.PendingMail)
	}
	w.is("mail", got, want)
}

// setMail switches an agent's mail.
func (w *world) setMail(ref string, auto bool) (v sessionView) {
	w.t.Helper()
	done := make(chan *rpcError, 1)
	w.hub.setMail(ref, auto, func(got sessionView, err *rpcError) {
		v = got
		done <- err
	})
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
	return v
}

// withAnn runs f in a world with a team and the agent ann, whose mail turns do what onMail says.
func withAnn(t *testing.T, settings map[string]string, onMail string, f func(t *testing.T, w *world, agent string)) {
	t.Helper()
	inWorld(t, settings, noElicitation, func(t *testing.T, w *world) {
		w.team("lead", "bob")
		agent := w.named("ann", onMail+"SAY hello")
		synctest.Wait() // and its look for mail after the turn
		f(t, w, agent)
	})
}

// FR-8.2, FR-8.6: mail that comes while an agent is idle starts a turn by the next poll, is marked read, and comes
// once, also where a writer puts it back as unread. The turn's result is kept.
func TestWorldMailWakes(t *testing.T) {
	withAnn(t, nil, "", func(t *testing.T, w *world, agent string) {
		w.mail("ann", "one")
		w.post("ann", mailMessage{Text: "two", From: "bob"})
		path := filepath.Join(w.hub.mail.dir, "ann.json")
		unread := readText(t, path)
		w.after(polled)
		w.wantMail("[one] [two]", "lead: one; bob: two")
		w.after(time.Hour)
		w.wantMail("[one] [two]", "lead: one; bob: two")
		turns := w.hub.kept.between(agent, 0, w.hub.kept.now())
		if len(turns) != 2 || turns[1].Source != sourceMail || !strings.Contains(turns[1].Result.Content, "MOCK: ") {
			t.Errorf("kept: %+v", turns)
		}
		w.wantPending(agent, "on 0")

		wantNil(t, os.WriteFile(path, []byte(unread), 0o644))
		w.after(polled)
		w.wantMail("[one] [two]", "lead: one; bob: two")

		// An inbox whose name is spelt in another case is the agent's all the same.
		w.named("carl", "SAY hello")
		w.mail("CARL", "three")
		w.after(polled)
		w.is("the inbox", w.inbox("CARL"), "[three]")
		w.is("delivered", w.delivered(), "lead: one; bob: two | lead: three")
	})
}

// FR-8.1, FR-8.10, FR-8.11: mail and the client's turns wait for each other, and the client goes first.
func TestWorldMailAndClientsTakeTurns(t *testing.T) {
	withAnn(t, nil, "", func(t *testing.T, w *world, agent string) {
		// Mail waits for the turn that runs and those that wait for it.
		gate, open := w.gate()
		first, second := w.reply(agent, "GATE "+gate+"\nSAY first"), w.reply(agent, "SAY second")
		synctest.Wait()
		w.mail("ann", "one")
		w.after(time.Minute)
		w.wantMail("one", "")
		w.wantPending(agent, "on 1")
		if sum := w.hub.status().PendingMail; sum == nil || *sum != 1 {
			t.Errorf("the sum is %v", sum)
		}
		open()
		first.ok(t)
		second.ok(t)
		w.wantMail("[one]", "lead: one")

		// A client's turn that comes while mail is fetched goes first.
		w.mail("ann", "two")
		s, release := w.hold(agent)
		s.box.do(func() {
			s.mail.counted(1, true, "")
			s.mail.fetch()
		})
		call := w.reply(agent, "SAY client")
		synctest.Wait() // both have come
		release()
		call.ok(t)
		w.wantMail("[one] [two]", "lead: one | lead: two")
		if turns := w.params("turn/start"); !strings.Contains(string(turns[len(turns)-2]), "SAY client") {
			t.Errorf("before the mail came %s", turns[len(turns)-2])
		}

		// Mail that was fetched as a client's turn came isn't kept back until after it, but fetched anew: what was
		// read meanwhile by other means is not delivered.
		w.mail("ann", "three")
		gate, open = w.gate()
		s, release = w.hold(agent)
		synctest.Wait()
		got := w.hub.mail.slots["ann"].fetch(agent, "ann")
		s.box.do(func() { s.mail.fetched(got) })
		client := turnRequest{mode: modeReply, ref: agent, prompt: "GATE " + gate + "\nSAY client", run: true}
		w.hub.submit(client, 0)
		release()
		if v := w.view(agent); v.Source != "client" || v.Queued != 0 {
			t.Errorf("source %q, %d queued", v.Source, v.Queued)
		}
		_, err := w.others().markRead(t.Context(), w.cfg.team, "ann", []string{w.messages("ann")[2].Key})
		wantNil(t, err)
		open()
		w.after(time.Minute)
		w.wantMail("[one] [two] [three]", "lead: one | lead: two")
	})
	gate := filepath.Join(t.TempDir(), "gate")
	withAnn(t, nil, "ON_MAIL GATE "+gate+"\n", func(t *testing.T, w *world, agent string) {
		// A client's turn that comes while a mail turn runs waits for it, and is not lost.
		w.mail("ann", "one")
		w.after(polled)
		w.wantMail("[one]", "lead: one") // acknowledged as it began
		if v := w.view(agent); v.Status != "busy" || v.Source != "mail" {
			t.Errorf("status %q, source %q", v.Status, v.Source)
		}
		call := w.reply(agent, "SAY after")
		w.after(time.Second)
		w.is("turns", w.sent("turn/start"), 2)
		wantNil(t, os.WriteFile(gate, nil, 0o600))
		w.is("answer", resultField(call.ok(t), "content"), "after")
	})
}

// FR-8.5: at most max_messages come in one turn, the oldest first, and long ones are cut; the rest comes in the next.
// Many frames in front of mail don't hide it.
func TestWorldMailLimits(t *testing.T) {
	settings := map[string]string{"max_mail_messages": "2", "max_mail_message_length": "3"}
	withAnn(t, settings, "", func(_ *testing.T, w *world, _ string) {
		for _, text := range []string{"one", "twoö", "3ääx", "4"} {
			w.mail("ann", text)
		}
		w.after(polled)
		w.wantMail("[one] [twoö] [3ääx] [4]", "lead: one; lead: two | lead: 3ää; lead: 4")
		for range 15 {
			w.post("ann", mailMessage{Text: `{"type":"permission_request","from":"bob"}`, From: "bob"})
		}
		w.mail("ann", "5")
		w.after(polled)
		w.is("delivered", w.delivered(), "lead: one; lead: two | lead: 3ää; lead: 4 | lead: 5")
	})
}

// A start that the child refuses leaves mail unread; it is tried again, more and more seldom.
func TestWorldMailRefused(t *testing.T) {
	withAnn(t, nil, strings.Repeat("REFUSE turn/start\n", 5), func(t *testing.T, w *world, _ string) {
		w.mail("ann", "one")
		var tries []time.Duration
		for n := w.sent("turn/start"); len(tries) < 6; w.after(time.Second) {
			if now := w.sent("turn/start"); now > n {
				n = now
				tries = append(tries, w.now())
				w.is("the inbox", w.inbox("ann"), map[bool]string{false: "one", true: "[one]"}[len(tries) == 6])
			}
			if w.now() > time.Hour {
				t.Fatalf("tried at %v", tries)
			}
		}
		for i, want := range []time.Duration{5, 10, 20, 40, 80} {
			if got := tries[i+1] - tries[i]; got < want*time.Second || got > (want+2)*time.Second {
				t.Errorf("try %d came %v after the one before, want %ds", i+2, got, want)
			}
		}
	})
}

// Acknowledged is what Codex has taken, whatever becomes of the turn (FR-8.13). What it has not taken stays unread, and
// comes once more: by the next child, in the session's next life (FR-17.10), or as Codex has said that nothing runs,
// and not before.
func TestWorldMailIsDeliveredOnceOrAgain(t *testing.T) {
	for _, c := range []struct{ rule, onMail, then, soon, inbox, delivered, status string }{
		{"no answer, nothing ran", "DROP turn/start\n", "", "one", "[one]", "lead: one | lead: one", statusIdle},
		{"no answer, it ran", "MUTE turn/start\nON_MAIL SAY done\n", "", "", "[one]", "lead: one", statusIdle},
		{"no answer, it hangs", "MUTE turn/start\nON_MAIL HANG\n", "", "", "[one]", "lead: one", statusIdle},
		{"not taken, death", "DROP turn/start\n", "death", "", "[one]", "lead: one | lead: one", statusIdle},
		{"taken, death", "ON_MAIL HANG\n", "death", "[one]", "[one]", "lead: one", statusIdle},
		{"not taken, close", "DROP turn/start\n", "close", "one", "one", "lead: one", statusClosed},
	} {
		t.Run(c.rule, func(t *testing.T) {
			settings := map[string]string{"restart_child": fmt.Sprint(c.then == "death")}
			withAnn(t, settings, c.onMail, func(t *testing.T, w *world, agent string) {
				w.mail("ann", "one")
				w.after(polled)
				switch c.then {
				case "death":
					w.childDies(agent)
				case "close":
					w.tool("agent_close", "agent_id", agent).ok(t)
				}
				w.after(20 * time.Second)
				if c.soon != "" {
					w.wantMail(c.soon, "lead: one")
				}
				w.after(time.Hour)
				w.wantMail(c.inbox, c.delivered)
				w.wantStatus(agent, c.status)
				if c.then == "close" {
					w.tool("codex", "agent_id", agent).ok(t)
					w.after(polled)
					w.wantMail("[one]", "lead: one | lead: one")
				}
				if c.then == "" && w.sent("turn/interrupt") == 0 {
					t.Error("the start without an answer was not interrupted")
				}
			})
		})
	}
}

// FR-17.10: a parked session's mail waits for its next life. mail_poll_interval_ms is how long it may lie then.
// idle_timeout_ms is ignored where the poll stands alone: mail after hours wakes.
func TestWorldMailOfTheParked(t *testing.T) {
	settings := map[string]string{"max_concurrent_threads": "1", "mail_poll_interval_ms": "600000",
		"idle_timeout_ms": "60000"}
	withAnn(t, settings, "", func(t *testing.T, w *world, agent string) {
		w.tool("agent_close", "agent_id", agent).ok(t)
		first := w.agent("SAY hello")
		second := w.named("other", "SAY hello")
		name := w.view(first).Identity
		w.mail(name, "one")
		w.after(time.Hour)
		w.is("the inbox", w.inbox(name), "one")
		w.wantStatus(first, statusParked)
		w.wantPending(first, "on 1")
		w.tool("agent_close", "agent_id", second).ok(t)
		w.tool("codex", "agent_id", first).ok(t)
		w.after(time.Second)
		w.is("revived", w.inbox(name)+" "+w.delivered(), "[one] lead: one")
		w.after(5 * time.Hour) // whenever the poll began, one is just over
		w.mail(name, "two")
		w.after(5 * time.Minute)
		w.is("before the poll", w.inbox(name), "[one] two")
		w.after(6 * time.Minute)
		w.is("after it", w.inbox(name), "[one] [two]")
	})
}

// FR-8.8: auto_mail of everybody, of a role, of an identity, of a session, the nearest counting; agent_mail's word is
// kept in the record.
func TestWorldMailSwitches(t *testing.T) {
	withAnn(t, map[string]string{"auto_mail": "false"}, "", func(t *testing.T, w *world, agent string) {
		w.mail("ann", "one")
		w.after(time.Minute)
		w.wantMail("one", "")
		w.wantPending(agent, "off 1")
		w.is("switched", w.setMail("Ann", true).AutoMail, "on")
		w.wantMail("[one]", "lead: one")
		w.setMail(agent, false)
		w.mail("ann", "two")
		w.after(time.Minute)
		w.wantMail("[one] two", "lead: one")
		w.tool("agent_close", "agent_id", agent).ok(t)
		if on := w.record(agent).AutoMail; on == nil || *on {
			t.Errorf("the record says %v", on)
		}
		w.is("of a closed one, for when it is opened again", w.setMail(agent, true).AutoMail, "on")
		w.tool("codex", "agent_id", agent).ok(t)
		w.after(polled)
		w.wantMail("[one] [two]", "lead: one | lead: two")
	})

	c := &config{autoMail: true, roles: map[string]role{"quiet": {autoMail: false}, "plain": {}},
		perThreadAutoMail: map[string]bool{"Ann": true, "bob": false},
		origin:            map[string]origin{"roles.quiet.auto_mail": {}}}
	for _, tt := range []struct {
		rec  record
		want bool
	}{
		{record{Identity: "x"}, true},
		{record{Identity: "x", Role: "plain"}, true},
		{record{Identity: "x", Role: "quiet"}, false},
		{record{Identity: "ann", Role: "quiet"}, true},
		{record{Identity: "BOB"}, false},
		{record{Identity: "bob", AutoMail: ptr(true)}, true},
		{record{Identity: "ann", AutoMail: ptr(false)}, false},
		{record{Identity: "x", Role: "gone"}, true},
	} {
		if got := autoMailOf(c, &tt.rec); got != tt.want {
			t.Errorf("%+v: %v", tt.rec, got)
		}
	}
}

// The runaway guard: after ten mail turns in a row nothing more is delivered, the sender is told once, and a client's
// turn resumes. The guard by the hour holds though a client speaks now and then, and nobody is told who wrote
// automatically.
func TestWorldMailRunaway(t *testing.T) {
	wantPaused := func(w *world, agent string, turns int, view string) {
		w.t.Helper()
		w.is("mail turns", strings.Count(w.delivered(), "bob: "), turns)
		if v := w.view(agent); !strings.HasPrefix(v.AutoMail, view) {
			w.t.Errorf("mail %q, want %q", v.AutoMail, view)
		}
	}
	withAnn(t, map[string]string{"max_mail_messages": "1"}, "", func(t *testing.T, w *world, agent string) {
		for i := range mailRowLimit + 2 {
			w.post("ann", mailMessage{Text: fmt.Sprint(i), From: "bob"})
		}
		w.after(time.Minute)
		wantPaused(w, agent, mailRowLimit, "paused: 10 mail turns in a row")
		w.is("pending", *w.view(agent).PendingMail, 2)
		told := w.messages("bob")
		if len(told) != 1 || !strings.Contains(told[0].Text, "not delivered for now") || !told[0].Automatic ||
			told[0].From != "ann" {
			t.Errorf("bob was told %+v", told)
		}
		w.post("ann", mailMessage{Text: "and", From: "bob"})
		w.after(time.Hour)
		w.is("times that bob was told", len(w.messages("bob")), 1)
		w.reply(agent, "SAY go on").ok(t)
		w.after(polled)
		wantPaused(w, agent, mailRowLimit+3, "on")
	})
	withAnn(t, nil, "", func(t *testing.T, w *world, agent string) {
		for i := range mailHourLimit + 1 {
			if i%5 == 0 {
				w.reply(agent, "SAY on").ok(t)
			}
			w.post("ann", mailMessage{Text: fmt.Sprint(i), From: "bob", Automatic: true})
			w.after(polled)
		}
		wantPaused(w, agent, mailHourLimit, "paused: 30 mail turns within an hour")
		w.is("an automatic message was answered", len(w.messages("bob")), 0)
	})
}

// Claude Code's system frames are what they are; see session_inbox.go.
func TestWorldMailFrames(t *testing.T) {
	withAnn(t, nil, "", func(t *testing.T, w *world, agent string) {
		w.post("ann", mailMessage{Text: `{"type":"idle_notification","from":"bob","idleReason":"available"}`,
			From: "bob"})
		w.mail("ann", `{"type":"shutdown_request","requestId":"r1","from":"lead","reason":"enough"}`)
		w.post("ann", mailMessage{Text: `{"type":"permission_request","from":"bob"}`, From: "bob"})
		w.after(time.Minute)
		w.is("delivered", w.delivered(), "")
		marked := ""
		for _, m := range w.messages("ann") {
			marked += fmt.Sprintf("%s %v ", m.Kind, m.Read)
		}
		w.is("marked", marked, "idle_notification true shutdown_request true permission_request false ")
		w.wantStatus(agent, statusIdle)
		w.wantPending(agent, "on 1")
		answer := w.messages("lead")
		if len(answer) != 1 || answer[0].Kind != mailShutdownRejected || !answer[0].Automatic ||
			stringField(answer[0].Frame, "requestId") != "r1" ||
			!strings.Contains(stringField(answer[0].Frame, "reason"), agent) {
			t.Errorf("the lead was answered %+v", answer)
		}
		w.mail("ann", `{"type":"task_assignment","taskId":"7","subject":"do it"}`)
		w.mail("ann", "and this")
		w.after(polled)
		got := w.delivered()
		if !strings.Contains(got, `lead: {"type":"task_assignment"`) || !strings.HasSuffix(got, "; lead: and this") {
			t.Errorf("delivered %q", got)
		}
		w.after(time.Hour)
		w.is("answers to the lead", len(w.messages("lead")), 1)
		lines := readText(t, filepath.Join(w.cfg.sessionsRoot, w.cfg.team, "audit.jsonl"))
		for _, event := range []string{"mail_noted", "mail_answered", "mail_left", "mail_turn"} {
			w.is("audit lines of "+event, strings.Count(lines, `"event":"`+event+`"`), 1)
		}
		for line := range strings.Lines(lines) {
			if stringField(json.RawMessage(line), "event") == "mail_noted" {
				hasFields(t, json.RawMessage(line), `{"identity":"ann","recipient":"bob","detail":"$re:^message_id: ."}`)
			}
		}
	})
}

// An entry of the name that isn't ours to be: its mail isn't delivered, and that is told, until the entry is gone. An
// agent that is opened again before its leaving of the team was done is a member all the same.
func TestWorldMailAndMembership(t *testing.T) {
	withAnn(t, nil, "", func(t *testing.T, w *world, agent string) {
		w.team("lead", "Ann")
		w.mail("ann", "one")
		w.after(time.Minute)
		w.wantMail("one", "")
		if v := w.view(agent); !strings.HasPrefix(v.AutoMail, "paused: ") || !strings.Contains(v.AutoMail, "Ann") {
			t.Errorf("view %q", v.AutoMail)
		}
		mustContain(t, string(w.reply(agent, "SAY more").ok(t)), "No mail is sent as ann")
		w.team("lead")
		w.after(polled)
		w.wantMail("[one]", "lead: one")

		gate := make(chan struct{})
		w.hub.team.later(func() { <-gate }) // others hold the team's files
		w.tool("agent_close", "agent_id", agent).ok(t)
		again := w.tool("codex", "agent_id", agent, "prompt", "SAY again")
		synctest.Wait()
		close(gate)
		again.ok(t)
		w.wantMember()
	})
}

// A team that comes late, goes (Claude Code removes its own) and comes again.
func TestWorldMailTeamComesAndGoes(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		agent := w.named("ann", "SAY hello")
		for i := range 3 {
			w.after(time.Minute)
			w.wantPending(agent, "on none")
			if _, err := os.Stat(w.teamDir()); err == nil {
				t.Error("the team was made by us")
			}
			w.team("lead")
			w.mail("ann", fmt.Sprint(i))
			w.after(polled)
			w.is("the inbox", w.inbox("ann"), fmt.Sprintf("[%d]", i))
			w.wantMember()
			wantNil(t, os.RemoveAll(w.teamDir()))
		}
	})
}

// Marking that others' locks delay is made up for, and what was delivered doesn't come again meanwhile, nor to the
// session's next life.
func TestWorldMailMarkedLate(t *testing.T) {
	withAnn(t, nil, "", func(t *testing.T, w *world, agent string) {
		w.mail("ann", "one")
		lock := filepath.Join(w.hub.mail.dir, "ann.json.lock")
		plant(t, lock, map[string]string{"held/": ""}) // whatever its time, it isn't taken for stale
		w.after(time.Minute)
		w.wantMail("one", "lead: one")
		w.wantPending(agent, "on 0")
		w.tool("agent_close", "agent_id", agent).ok(t)
		w.tool("codex", "agent_id", agent).ok(t)
		w.after(time.Minute)
		w.wantMail("one", "lead: one")
		wantNil(t, os.RemoveAll(lock))
		w.after(2 * markPauseMost)
		w.wantMail("[one]", "lead: one")
	})
}

// What can't be approved by anybody in a mail turn is declined, and a legacy client that can be asked is.
func TestWorldMailApproval(t *testing.T) {
	for _, caps := range []string{noElicitation, elicits} {
		inWorld(t, nil, caps, func(t *testing.T, w *world) {
			w.team("lead")
			agent := w.named("ann", "ON_MAIL ASK What?\nSAY hello")
			synctest.Wait()
			w.mail("ann", "one")
			w.after(polled)
			asked := 0
			if caps == elicits {
				asked = 1
			}
			w.is("asked", len(w.asked), asked)
			w.is("pending", len(w.view(agent).Pending), asked)
			ended := string(w.tool("agent_wait", "agent_id", agent, "timeout_secs", 0).wait().result)
			if caps == noElicitation {
				mustContain(t, ended, `"declined":[{"kind":"question","action":"What?",`+
					`"reason":"the client can't be asked for approval: mail began this turn`)
			}
		})
	}
}

// withEditorsAnn runs f in a world whose client has a session that is ann, and has said hello. The prompts that bring
// it mail do what onMail says, since their own words are none to the mock.
func withEditorsAnn(t *testing.T, settings map[string]string, onMail string,
	f func(t *testing.T, w *clientWorld, born turnRequest)) {
	t.Helper()
	inClientWorld(t, settings, func(t *testing.T, w *clientWorld) {
		w.team("lead")
		born := w.birth("sess_1")
		born.identity = "ann"
		w.good(born)
		born.identity = "" // the session has it from its birth
		w.says(again(born, onMail+"SAY hello"), "hello")
		synctest.Wait() // and its look for mail after the turn
		f(t, w, born)
	})
}

// input is what a turn began with, as the child was sent it: the kinds of its parts, and their texts.
func (w *clientWorld) input() (kinds, text string) {
	w.t.Helper()
	eachElement(rawField(w.lastSent("turn/start"), "input"), func(part json.RawMessage) {
		kinds += stringField(part, "type") + " "
		text += stringField(part, "text") + "|"
	})
	return kinds, text
}

// Unread mail wakes nobody; the next prompt has it in front, and it is read then. An action takes none, nor does a
// prompt that is cancelled while it waits, nor one of a session whose mail is switched off. A session that comes back
// takes the mail of its absence along with the prompt that revives it.
func TestWorldOfferedMail(t *testing.T) {
	withEditorsAnn(t, nil, "ON_MAIL SAY thanks\n", func(t *testing.T, w *clientWorld, born turnRequest) {
		w.mail("ann", "one")
		w.mail("ann", "two")
		w.after(time.Hour)
		w.is("turns", w.view(born.agentID).Turns, 1)
		w.wantPending(born.agentID, "on 2")
		w.says(again(born, "SAY mine"), "thanks")
		w.wantMail("[one] [two]", "lead: one; lead: two")
		if _, got := w.input(); !strings.HasPrefix(got, mailHead) ||
			!strings.HasSuffix(got, "</atm-mail>\n\nSAY mine|") {
			t.Errorf("the prompt was %q", got)
		}
		w.says(again(born, "SAY alone"), "alone")
		_, got := w.input()
		w.is("the next prompt", got, "SAY alone|")
		w.after(time.Hour)
		w.wantMail("[one] [two]", "lead: one; lead: two")
		w.is("digest", w.record(born.agentID).Digest.LastPrompt, "SAY alone")

		w.mail("ann", "three")
		w.after(polled)
		s, release := w.hold(born.agentID)
		id, _ := w.submit(again(born, "SAY mine"))
		other, _ := w.submit(again(born, "SAY other"))
		s.box.do(func() { // as the loop would, now that both are in the queue
			if !s.mail.delaysTurn() {
				t.Error("the first prompt doesn't wait for the mail")
			}
			w.hub.cancel(id)
			w.hub.cancel(other)
		})
		release()
		synctest.Wait()
		action := again(born, "look")
		action.action = actCompact
		w.good(action)
		w.wantMail("[one] [two] three", "lead: one; lead: two")

		// What a person says in parts reaches the child in their order, with mail in front.
		parts := again(born, "look at this")
		parts.parts = []promptPart{{kind: "image", url: "data:image/png;base64,AA=="},
			{kind: "text", text: "look at this"}}
		w.good(parts)
		if kinds, got := w.input(); kinds != "text image text " || !strings.HasPrefix(got, mailHead) {
			t.Errorf("parts %q, %q", kinds, got)
		}
		w.wantMail("[one] [two] [three]", "lead: one; lead: two | lead: three")

		w.end()
		w.mail("ann", "four")
		w.start()
		w.good(again(born, "SAY mine"))
		w.wantMail("[one] [two] [three] [four]", "lead: one; lead: two | lead: three | lead: four")
		w.setMail(born.agentID, false)
		w.mail("ann", "five")
		w.after(polled)
		w.says(again(born, "SAY alone"), "alone")
		w.wantMail("[one] [two] [three] [four] five", "lead: one; lead: two | lead: three | lead: four")
	})
}

// Mail that goes with a prompt stays unread where Codex has not taken it, and goes with the next prompt at once: nobody
// tries again by itself, so there is nothing to hold back. What Codex has taken is read, whatever becomes of the turn.
func TestWorldOfferedMailAndFailures(t *testing.T) {
	for _, c := range []struct{ rule, onMail, inbox, delivered string }{
		{"refused", "REFUSE turn/start\nON_MAIL SAY thanks\n", "one", "lead: one | lead: one"},
		{"death before it is taken", "DROP turn/start\nON_MAIL SAY thanks\n", "one", "lead: one | lead: one"},
		{"death afterwards", "ON_MAIL HANG\n", "[one]", "lead: one"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			withEditorsAnn(t, nil, c.onMail, func(t *testing.T, w *clientWorld, born turnRequest) {
				w.mail("ann", "one")
				w.after(polled)
				_, got := w.submit(again(born, "SAY mine"))
				synctest.Wait()
				if c.rule != "refused" {
					w.childDies(born.agentID)
				}
				if r := <-got; r.err == nil || (r.err.Code == codeChildDead) != (c.rule != "refused") {
					t.Fatalf("got %+v", r)
				}
				if c.rule != "refused" {
					w.after(time.Hour)
				}
				w.wantMail(c.inbox, "lead: one")
				w.good(again(born, "SAY again"))
				w.wantMail("[one]", c.delivered)
			})
		})
	}
}

// An inbox that can't be read in time keeps no prompt waiting. A session that was given its name while its editor had a
// team is loaded without one: nothing waits for a membership that it will not get, nor is it told of one.
func TestWorldOfferedMailTooLate(t *testing.T) {
	withEditorsAnn(t, nil, "ON_MAIL SAY thanks\n", func(t *testing.T, w *clientWorld, born turnRequest) {
		w.mail("ann", "one")
		w.after(polled)
		s := w.hub.table.agent(born.agentID)
		gate, began := make(chan struct{}), time.Now()
		waiter, got := w.notes.waiter()
		late := &turn{req: again(born, "SAY alone"), waiter: waiter, asked: began}
		w.hub.waiters.add(late.waiter)
		s.box.do(func() {
			s.carry(s.m.submit(late))
			s.mail.fetchFor(late, func() mailFetch {
				<-gate
				return w.hub.mail.slots["ann"].fetch(born.agentID, "ann")
			})
		})
		w.is("answer", (<-got).Content, "alone")
		about(t, "answered", time.Since(began), mailWaitLimit)
		w.says(again(born, "SAY alone"), "alone") // still
		close(gate)
		w.wantMail("one", "")
		w.says(again(born, "SAY mine"), "thanks")
		w.wantMail("[one]", "lead: one")

		w.cfg.teamless = true
		w.restart()
		began = time.Now()
		w.is("notes", len(w.good(again(born, "")).Notes), 0)
		about(t, "answered", time.Since(began), 0)
	})
}

func testMailroom(t *testing.T, open ...string) *mailroom {
	t.Helper()
	cfg := &config{team: "crew", mailPollInterval: time.Second, idleTimeout: time.Minute}
	cfg.teamsRoot = t.TempDir()
	r := newMailroom(&common{cfg: cfg, log: slog.New(slog.DiscardHandler)}, nil)
	for _, name := range open {
		r.slots[strings.ToLower(name)] = &mailSlot{identity: name, names: []string{name}, s: &session{},
			given: map[string]*givenMail{}}
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

// idle_timeout_ms stops the poll where notices are to be had, and only there; a mailroom without sessions has nothing
// to poll for.
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
		if got := r.rests(tt.noticed); got != tt.rests {
			t.Errorf("%s: rests %v", tt.name, got)
		}
		if r.active(); r.rests(tt.noticed) && tt.open != nil {
			t.Errorf("%s: a turn did not begin the poll again", tt.name)
		}
	}
}

// Where watching fails, the next poll tries again, with a new watcher where the old one has broken; and what came
// meanwhile is looked for.
func TestMailWatchOpensAgain(t *testing.T) {
	r := testMailroom(t, "ann")
	r.newWatcher = func() (*watcher, error) { return nil, errNoWatch }
	var e mailWatch
	defer e.close()
	if e.open(r); e.works() {
		t.Fatal("there was something to watch with")
	}
	r.newWatcher = newWatcher
	if w, err := newWatcher(); errors.Is(err, errNoWatch) {
		t.Skip("no notification here")
	} else {
		w.close()
	}
	for range 2 {
		e.open(r)
		works := e.works()
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
		wantNil(t, os.MkdirAll(r.dir, 0o755))
		<-r.wake // the directory came
		wantNil(t, os.RemoveAll(filepath.Dir(r.dir)))
		e.wa.owner.close()
		e.wa.remove()
		e.wa.above = 0 // as the kernel's error would leave it
	}
}
