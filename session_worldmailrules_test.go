package main

// session_worldmailrules_test.go holds automatic mail to what decides whether it comes at
// all, in the world of session_worldmail_test.go: switches, the runaway guard, system
// frames, whose inbox it is, and what other writers do meanwhile.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
