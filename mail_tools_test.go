package main

// mail_tools_test.go holds the ATM tools to their rules over real team directories,
// one table for each tool and rule. How the inboxes stand up to other writers is tested with mail.go.

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// atmLab is a teams directory with two teams, and the tools over it.
type atmLab struct {
	*atmTools
	t     *testing.T
	root  string
	trail string
	who   atmCaller // codex of team crew
}

func newAtmLab(t *testing.T, change func(*config)) *atmLab {
	t.Helper()
	root := filepath.Join(t.TempDir(), "teams")
	writeTeam(t, root, "crew", crewOf(`{"name":"team-lead"}`, `{"name":"arch-ctm"}`, `{"name":"codex","agentType":"codex"}`))
	writeTeam(t, root, "other", crewOf(`{"name":"codex"}`, `{"name":"boss"}`))
	cfg := &config{maxMailMessageLength: defaultMailLength, persistThreads: true,
		aliases: map[string]string{"arch": "arch-ctm"}, atmRoles: map[string]string{"lead": "team-lead"}}
	if change != nil {
		change(cfg)
	}
	log := slog.New(slog.DiscardHandler)
	l := &atmLab{t: t, root: root, trail: filepath.Join(t.TempDir(), "audit.jsonl")}
	audit := openAudit(l.trail, log)
	t.Cleanup(audit.close)
	book := addressBook{own: newTeamFile(root, "crew", "/leases"), root: root, aliases: cfg.aliases, roles: cfg.atmRoles}
	l.atmTools = newAtmTools(cfg, newInboxes(root, "", "", nil, log), book, audit, log)
	l.who = atmCaller{Identity: "codex", AgentID: "codex:k7m3pqx", Team: "crew", Correlation: "mcp-7",
		Owns: func(identity string) bool { return strings.EqualFold(identity, "codex") },
		Live: func(identity string) bool { return identity == "codex-2" }}
	return l
}

// call returns the result as a client gets it.
func (l *atmLab) call(tool, args string) (json.RawMessage, string, *rpcError) {
	l.t.Helper()
	structured, text, e := l.run(l.t.Context(), l.who, tool, json.RawMessage(args))
	if e != nil {
		if structured != nil || text != "" {
			l.t.Errorf("%s %s: a result %v %q beside the error %v", tool, args, structured, text, e)
		}
		return nil, "", e
	}
	for _, s := range atmToolSpecs() { // whose result the output schema is made from
		if s.Name == tool && reflect.TypeOf(s.Result) != reflect.TypeOf(structured) {
			l.t.Errorf("%s returns %T, and its row says %T", tool, structured, s.Result)
		}
	}
	return toJSON(structured), text, nil
}

func (l *atmLab) must(tool, args string) (json.RawMessage, string) {
	l.t.Helper()
	raw, text, e := l.call(tool, args)
	if e != nil {
		l.t.Fatalf("%s %s: %v", tool, args, e)
	}
	return raw, text
}

// refused calls what must be refused, with nothing sent.
func (l *atmLab) refused(tool, args string, code int, wants ...string) {
	l.t.Helper()
	_, _, e := l.call(tool, args)
	if e == nil || e.Code != code {
		l.t.Errorf("%s %s: %v, want code %d", tool, args, e, code)
		return
	}
	mustContain(l.t, e.Message, wants...)
	if name := codeName(code); !strings.HasPrefix(e.Message, name) {
		l.t.Errorf("%s %s: %q doesn't begin with %q", tool, args, e.Message, name)
	}
}

// mail is what stands in an inbox.
func (l *atmLab) mail(team, member string) []map[string]any {
	l.t.Helper()
	data, err := os.ReadFile(filepath.Join(l.root, team, "inboxes", member+".json"))
	if os.IsNotExist(err) {
		return nil
	}
	wantNil(l.t, err)
	var all []map[string]any
	wantNil(l.t, json.Unmarshal(data, &all))
	return all
}

func (l *atmLab) inboxText(member, text string) {
	l.t.Helper()
	dir := filepath.Join(l.root, "crew", "inboxes")
	wantNil(l.t, os.MkdirAll(dir, 0o755))
	writeInbox(l.t, filepath.Join(dir, member+".json"), text)
}

func (l *atmLab) audited() []auditEntry {
	l.t.Helper()
	wantNil(l.t, l.audit.flush(l.t.Context()))
	return readAudit(l.t, l.trail)
}

func TestAtmSend(t *testing.T) {
	for to, want := range map[string][2]string{
		"team-lead": {"crew", "team-lead"}, "arch": {"crew", "arch-ctm"}, "lead": {"crew", "team-lead"}, "ARCH-CTM": {"crew", "arch-ctm"},
		"boss@other": {"other", "boss"}, "codex@other": {"other", "codex"}, "codex-2": {"crew", "codex-2"},
	} {
		l := newAtmLab(t, nil)
		raw, text := l.must("atm_send", fmt.Sprintf(`{"to":%q,"message":"line one\nline two"}`, to))
		got := l.mail(want[0], want[1])
		if len(got) != 1 || got[0]["from"] != "codex" || got[0]["source_team"] != "crew" || got[0]["text"] != "line one\nline two" ||
			got[0]["read"] != false || got[0]["summary"] != "line one line two" || got[0]["automatic"] != nil ||
			got[0]["message_id"] != stringField(raw, "message_id") {
			t.Errorf("to %s: %v", to, got)
		}
		if stringField(raw, "outcome") != "delivered" || stringField(raw, "to") != want[1]+"@"+want[0] || rawField(raw, "notes") != nil {
			t.Errorf("to %s: %s", to, raw)
		}
		mustContain(t, text, stringField(raw, "message_id"), "delivered", want[1]+"@"+want[0])
	}
}

func TestAtmSendSummaryAndMark(t *testing.T) {
	l := newAtmLab(t, nil)
	l.who.Auto = true
	l.must("atm_send", `{"to":"lead","message":"m","summary":" of\n`+strings.Repeat("é", 300)+`"}`)
	got := l.mail("crew", "team-lead")[0]
	if s, _ := got["summary"].(string); utf8.RuneCountInString(s) != 200 || !strings.HasPrefix(s, "of é") || got["automatic"] != true {
		t.Errorf("%v", got)
	}
	l.must("atm_send", `{"to":"lead","message":"m","summary":" "}`)
	if got := l.mail("crew", "team-lead")[1]; got["summary"] != "m" {
		t.Errorf("%v", got)
	}
}

func TestAtmSendRefuses(t *testing.T) {
	t.Parallel()
	l := newAtmLab(t, nil)
	writeTeam(t, l.root, "damaged", "{")
	for _, c := range []struct {
		args  string
		code  int
		wants []string
	}{
		{`{"to":"team-laed","message":"m"}`, codeInvalidSession, []string{`members of team "crew" are team-lead, arch-ctm, codex`, `did you mean "team-lead"?`}},
		{`{"to":"codex","message":"m"}`, codeInvalidSession, []string{"the sender itself"}},
		{`{"to":"x@nowhere","message":"m"}`, codeInvalidSession, []string{`team "nowhere"`, "there is no such team"}},
		{`{"to":"x@../crew","message":"m"}`, codeInvalidSession, []string{"path"}},
		{`{"to":"","message":"m"}`, codeInvalidSession, []string{"no recipient"}},
		{`{"message":"m"}`, codeInvalidSession, []string{"no recipient"}},
		{`{"to":"lead"}`, codeInvalidSession, []string{"no message"}},
		{`{"to":"lead","message":" \n"}`, codeInvalidSession, []string{"empty"}},
		{`{"to":"lead","message":"a\u0000b"}`, codeInvalidSession, []string{"NUL"}},
		{`{"to":"lead","message":7}`, codeInvalidParams, []string{`"message"`, "a string"}},
		{`{"to":"lead","mesage":"m"}`, codeInvalidParams, []string{`did you mean "message"?`}},
		{`[]`, codeInvalidParams, []string{"must be an object"}},
		{`{"to":"x@damaged","message":"m"}`, codeInternal, []string{"INTERNAL_ERROR: ", "config.json can't be understood"}},
	} {
		l.refused("atm_send", c.args, c.code, c.wants...)
	}
	wantNil(t, os.RemoveAll(filepath.Join(l.root, "crew"))) // as Claude Code does at its end
	for _, tool := range []string{"atm_send", "atm_broadcast"} {
		args := `{"message":"m"}`
		if tool == "atm_send" {
			args = `{"to":"lead","message":"m"}`
		}
		l.refused(tool, args, codeInvalidSession, `team "crew"`, "there is no such team", "agent_status")
	}
	l.refused("atm_read", `{}`, codeInvalidSession, "there is no such team")
	l.refused("atm_pending_count", `{}`, codeInvalidSession, "there is no such team")
	if _, err := os.Stat(filepath.Join(l.root, "crew")); err == nil {
		t.Error("the team was made anew")
	}
}

// FR-8.5: what the reader sees says how much is missing, within the limit.
func TestAtmSendCuts(t *testing.T) {
	for _, c := range []struct{ limit, length, kept int }{
		{100, 100, 100}, {100, 101, 0}, {4096, 4096, 4096}, {4096, 5000, 0}, {4096, 1 << 20, 0}, {10, 11, 10}, {1, 50, 1},
	} {
		l := newAtmLab(t, func(cfg *config) { cfg.maxMailMessageLength = c.limit })
		raw, text := l.must("atm_send", fmt.Sprintf(`{"to":"lead","message":%q}`, strings.Repeat("é", c.length)))
		got, _ := l.mail("crew", "team-lead")[0]["text"].(string)
		head := strings.Count(got, "é")
		if c.kept > 0 && head != c.kept {
			t.Errorf("%+v: %d characters kept", c, head)
		}
		if c.length <= c.limit {
			if len(got) != 2*c.length || rawField(raw, "notes") != nil {
				t.Errorf("%+v: cut to %d bytes, %s", c, len(got), raw)
			}
			continue
		}
		want := fmt.Sprintf("its last %d of %d characters", c.length-head, c.length)
		mustContain(t, got, want)
		mustContain(t, text, fmt.Sprintf("%d of %d characters were sent", head, c.length))
		if n := utf8.RuneCountInString(got); c.limit > 100 && (n > c.limit || n < c.limit-20) {
			t.Errorf("%+v: %d characters with the mark", c, n)
		}
	}
}

func TestAtmBroadcast(t *testing.T) {
	l := newAtmLab(t, nil)
	writeTeam(t, l.root, "crew", crewOf(`{"name":"team-lead"}`, `{"name":"arch-ctm"}`, `{"name":"Codex"}`, `{"name":"a.b"}`, `{"name":"TEAM-LEAD"}`, `{"name":"stuck"}`, `7`))
	wantNil(t, os.MkdirAll(filepath.Join(l.root, "crew", "inboxes", "stuck.json"), 0o755)) // a directory where the inbox should be
	raw, text := l.must("atm_broadcast", `{"message":"all hands","summary":"s"}`)
	var got broadcastShown
	wantNil(t, json.Unmarshal(raw, &got))
	if len(got.Sent) != 2 || got.Sent[0].To != "team-lead@crew" || got.Sent[1].To != "arch-ctm@crew" || got.Sent[0].Outcome != mailDelivered ||
		len(got.Failed) != 2 || got.Failed[0].To != "a.b@crew" || got.Failed[1].To != "stuck@crew" || got.Failed[0].Error == "" || got.Failed[1].Error == "" {
		t.Errorf("%s", raw)
	}
	mustContain(t, text, "Sent to 2 of 4 members of team crew: team-lead, arch-ctm.", "Not to a.b@crew: ", "Not to stuck@crew: ")
	for i, member := range []string{"team-lead", "arch-ctm"} {
		if m := l.mail("crew", member); len(m) != 1 || m[0]["text"] != "all hands" || m[0]["summary"] != "s" || m[0]["message_id"] != got.Sent[i].ID {
			t.Errorf("%s: %v", member, m)
		}
	}
	if l.mail("crew", "codex") != nil || l.mail("crew", "Codex") != nil {
		t.Error("the sender wrote to itself")
	}
}

func TestAtmBroadcastToAnotherTeam(t *testing.T) {
	l := newAtmLab(t, nil)
	raw, _ := l.must("atm_broadcast", `{"message":"hello","team":" other "}`)
	if len(l.mail("other", "codex")) != 1 || len(l.mail("other", "boss")) != 1 || l.mail("crew", "team-lead") != nil || string(rawField(raw, "failed")) != "[]" {
		t.Errorf("%s", raw) // their codex is another
	}
	l.refused("atm_broadcast", `{"message":"m","team":"othre"}`, codeInvalidSession, `did you mean "other"?`)
	l.refused("atm_broadcast", `{"message":"m","team":"../x"}`, codeInvalidSession, "path")
	l.refused("atm_broadcast", `{}`, codeInvalidSession, "no message")
	writeTeam(t, l.root, "alone", crewOf())
	if raw, text := l.must("atm_broadcast", `{"message":"m","team":"alone"}`); string(rawField(raw, "sent")) != "[]" || !strings.Contains(text, "no other members") {
		t.Errorf("%s %s", raw, text)
	}
}

const fourMails = `[
{"from":"team-lead","text":"third","timestamp":"2026-11-21T09:00:03.500Z","msg_id":"c","type":"message","read":false,"summary":"about third"},
{"from":"arch-ctm","source_team":"other","text":"first","timestamp":"2026-11-21T09:00:01+00:00","message_id":"a","read":false},
{"from":"team-lead","text":"old","timestamp":"2026-11-20T09:00:00Z","message_id":"o","read":true,"keep":1},
{"from":"arch-ctm","text":"second","timestamp":"2026-11-21T10:00:02+01:00","message_id":"b","automatic":true}]`

func readTexts(raw json.RawMessage) string {
	var all []string
	eachElement(rawField(raw, "messages"), func(m json.RawMessage) { all = append(all, stringField(m, "message")) })
	return strings.Join(all, " ")
}

func stillUnread(all []map[string]any) string {
	var texts []string
	for _, m := range all {
		if m["read"] != true {
			texts = append(texts, m["text"].(string))
		}
	}
	return strings.Join(texts, " ")
}

func TestAtmRead(t *testing.T) {
	for _, c := range []struct {
		args, want string
		remaining  int
		unread     string // then, in the order of the file
	}{
		{`{}`, "first second third", 0, ""},
		{`{"limit":2}`, "first second", 1, "third"},
		{`{"limit":1,"from":"team-lead"}`, "third", 0, "first second"},
		{`{"from":"ARCH-CTM"}`, "first second", 0, "third"},
		{`{"from":"arch-ctm@other"}`, "first", 0, "third second"},
		{`{"from":"nobody"}`, "", 0, "third first second"},
		{`{"since":"2026-11-21T09:00:02Z"}`, "second third", 0, "first"},
		{`{"since":"2026-11-21T10:00:03+01:00"}`, "third", 0, "first second"},
		{`{"since":"2026-11-21T10:00:03+0100"}`, "third", 0, "first second"},
		{`{"since":"2026-11-21T09:00Z"}`, "first second third", 0, ""},
		{`{"since":"2026-11-21T09:01"}`, "", 0, "third first second"},
		{`{"since":"2027-01-01"}`, "", 0, "third first second"},
		{`{"mark_read":false}`, "first second third", 0, "third first second"},
		{`{"all":true}`, "old first second third", 0, ""},
		{`{"all":true,"limit":1}`, "old", 3, "third first second"},
		{`{"all":null,"mark_read":null,"limit":null}`, "first second third", 0, ""},
	} {
		l := newAtmLab(t, nil)
		l.inboxText("codex", fourMails)
		raw, text := l.must("atm_read", c.args)
		if got := readTexts(raw); got != c.want || string(rawField(raw, "remaining")) != fmt.Sprint(c.remaining) {
			t.Errorf("%s: %q of %s", c.args, got, raw)
		}
		if got := stillUnread(l.mail("crew", "codex")); got != c.unread {
			t.Errorf("%s: unread then %q, want %q", c.args, got, c.unread)
		}
		for word := range strings.FieldsSeq(c.want) {
			mustContain(t, text, word)
		}
	}
}

func TestAtmReadShows(t *testing.T) {
	l := newAtmLab(t, nil)
	l.inboxText("codex", fourMails[:len(fourMails)-1]+`,{"from":"team-lead","text":"{\"type\":\"idle_notification\",\"from\":\"team-lead\"}","timestamp":"2026-11-22T00:00:00Z"}]`)
	raw, _ := l.must("atm_read", `{"all":true}`)
	var got readShown
	wantNil(t, json.Unmarshal(raw, &got))
	want := []messageShown{
		{From: "team-lead", Message: "old", Timestamp: "2026-11-20T09:00:00Z", ID: "o", Read: true},
		{From: "arch-ctm", Team: "other", Message: "first", Timestamp: "2026-11-21T09:00:01+00:00", ID: "a"},
		{From: "arch-ctm", Message: "second", Timestamp: "2026-11-21T10:00:02+01:00", ID: "b", Automatic: true},
		{From: "team-lead", Message: "third", Timestamp: "2026-11-21T09:00:03.500Z", ID: "c", Summary: "about third"},
		{From: "team-lead", Message: `{"type":"idle_notification","from":"team-lead"}`, Timestamp: "2026-11-22T00:00:00Z", Kind: "idle_notification"},
	}
	if !slices.Equal(got.Messages, want) {
		t.Errorf("got  %+v\nwant %+v", got.Messages, want)
	}
	if text := l.mail("crew", "codex")[2]; text["keep"] != 1.0 {
		t.Errorf("a field of others is gone: %v", text)
	}
}

// One call returns what a model can take; what it doesn't return stays unread.
// A long message is whole, since the envelope refers to this tool for that.
func TestAtmReadIsBounded(t *testing.T) {
	l := newAtmLab(t, nil)
	var all []string
	for i, size := range []int{200 << 10, 30 << 10, 30 << 10, 30 << 10, 1<<20 + 10, 1} {
		all = append(all, fmt.Sprintf(`{"from":"x","text":"%d%s","timestamp":"2026-11-21T09:00:0%dZ","message_id":"m%d"}`, i, strings.Repeat("é", size/2), i, i))
	}
	l.inboxText("codex", "["+strings.Join(all, ",")+"]")
	for _, want := range []struct {
		ids       string
		remaining int
	}{{"m0", 5}, {"m1 m2", 3}, {"m3", 2}, {"m4", 1}, {"m5", 0}, {"", 0}} {
		raw, _ := l.must("atm_read", `{}`)
		var got readShown
		wantNil(t, json.Unmarshal(raw, &got))
		var ids []string
		for _, m := range got.Messages {
			ids = append(ids, m.ID)
			switch {
			case m.ID == "m4":
				if len(m.Message) > maxMailText+300 {
					t.Errorf("%d bytes returned", len(m.Message))
				}
				mustContain(t, m.Message[maxMailText-2:], "[message cut: its last 12 of 1048587 bytes are left out; the whole is in "+filepath.Join(l.root, "crew", "inboxes", "codex.json"))
			case strings.Contains(m.Message, "cut"):
				t.Errorf("%s is cut", m.ID)
			}
		}
		if strings.Join(ids, " ") != want.ids || got.Remaining != want.remaining {
			t.Errorf("got %v and %d, want %+v", ids, got.Remaining, want)
		}
	}
}

func TestAtmReadRefuses(t *testing.T) {
	l := newAtmLab(t, nil)
	for args, want := range map[string]string{
		`{"since":"yesterday"}`: `"since" of tool atm_read must be a time such as 2026-11-21T09:17:30Z, not "yesterday"`,
		`{"since":""}`:          `"since"`, `{"limit":0}`: "a whole number from 1 to 1000", `{"limit":1.5}`: "a whole number",
		`{"all":"yes"}`: "true or false", `{"form":"x"}`: `did you mean "from"?`,
	} {
		l.refused("atm_read", args, codeInvalidParams, want)
	}
	l.refused("atm_raed", `{}`, codeInvalidParams, "no mail tool")
	l.inboxText("codex", `{"not":"a list"}`)
	l.refused("atm_read", `{}`, codeInternal, "INTERNAL_ERROR: ", "nothing is lost", "codex.json.corrupt-")
	if raw, text := l.must("atm_read", `{}`); readTexts(raw) != "" || text != "No such messages for codex." {
		t.Errorf("%s %s", raw, text)
	}
}

// Another member's inbox may be counted and read, and stays as it is to the byte.
func TestAtmReadOfAnother(t *testing.T) {
	l := newAtmLab(t, nil)
	l.inboxText("team-lead", fourMails)
	before := readText(t, filepath.Join(l.root, "crew", "inboxes", "team-lead.json"))
	l.who.AgentID, l.who.Identity = "", "TEAM-LEAD"
	raw, text := l.must("atm_read", `{}`)
	if readTexts(raw) != "first second third" || !strings.Contains(text, "stay unread") {
		t.Errorf("%s %s", raw, text)
	}
	if raw, _ := l.must("atm_pending_count", `{}`); string(raw) != `{"unread":3}` {
		t.Errorf("%s", raw)
	}
	if after := readText(t, filepath.Join(l.root, "crew", "inboxes", "team-lead.json")); after != before {
		t.Errorf("changed to %s", after)
	}
	l.refused("atm_send", `{"to":"arch","message":"m"}`, codeInvalidSession, `"TEAM-LEAD" is not held here`)
	l.refused("atm_broadcast", `{"message":"m"}`, codeInvalidSession, "is not held here")
	l.who.Identity = "nobody"
	l.refused("atm_read", `{}`, codeInvalidSession, "members of team")
	l.refused("atm_pending_count", `{}`, codeInvalidSession, "members of team")
	l.who.Identity = "../../x"
	l.refused("atm_read", `{}`, codeInvalidSession, "unknown recipient")
	l.who.Identity = "boss@other"
	l.refused("atm_read", `{}`, codeInvalidSession, "another team")
	l.who.Identity, l.who.Owns = "codex", nil
	l.refused("atm_send", `{"to":"arch","message":"m"}`, codeInvalidSession, "is not held here")
	if l.mail("crew", "arch-ctm") != nil {
		t.Error("something was sent")
	}
}

func TestAtmPendingCount(t *testing.T) {
	l := newAtmLab(t, nil)
	if raw, _ := l.must("atm_pending_count", ``); string(raw) != `{"unread":0}` {
		t.Errorf("%s", raw)
	}
	l.inboxText("codex", fourMails)
	before := readText(t, filepath.Join(l.root, "crew", "inboxes", "codex.json"))
	if raw, text := l.must("atm_pending_count", `{}`); string(raw) != `{"unread":3}` || text != "Unread messages of codex: 3." {
		t.Errorf("%s %s", raw, text)
	}
	if after := readText(t, filepath.Join(l.root, "crew", "inboxes", "codex.json")); after != before {
		t.Errorf("changed to %s", after)
	}
	l.refused("atm_pending_count", `{"all":true}`, codeInvalidParams, "it takes none")
}

// FR-4.5, FR-20.5: whatever a model claims, it is who it is.
func TestAtmToolsIgnoreClaims(t *testing.T) {
	l := newAtmLab(t, nil)
	l.inboxText("team-lead", fourMails)
	_, text := l.must("atm_send", `{"to":"arch","message":"m","identity":"team-lead","agent_id":"codex:other","threadId":"t","conversationId":7}`)
	if got := l.mail("crew", "arch-ctm"); len(got) != 1 || got[0]["from"] != "codex" {
		t.Errorf("%v", got)
	}
	mustContain(t, text, "You are codex, whatever identity is asked for.")
	if raw, _ := l.must("atm_read", `{"identity":"team-lead"}`); readTexts(raw) != "" {
		t.Errorf("read another's mail: %s", raw)
	}
	if _, text := l.must("atm_send", `{"to":"arch","message":"m","identity":"Codex"}`); strings.Contains(text, "whatever") {
		t.Errorf("%s", text)
	}
	l.refused("atm_send", `{"to":"arch","message":"m","from":"team-lead"}`, codeInvalidParams, `no argument "from"`)
}

func TestAtmToolsNeedAnIdentity(t *testing.T) {
	l := newAtmLab(t, nil)
	l.who.Identity, l.who.AgentID = "", ""
	for _, s := range atmToolSpecs() {
		args := `{}`
		if len(s.Required) > 0 {
			args = `{"message":"m"}`
		}
		l.refused(s.Name, args, codeIdentityRequired, s.Name, "agent_id or identity")
	}
	l.who.Refused = proxyError(codeInvalidSession, "not yours")
	l.refused("atm_send", `{"to":"lead","message":"m"}`, codeInvalidSession, "not yours")
}

// Where others hold the lock all the time, the message waits in atm's spool if there is one; else the call says that
// nothing was sent.
func TestAtmSendToALockedInbox(t *testing.T) {
	l := newAtmLab(t, nil)
	l.boxes.patience = 30 * time.Millisecond
	l.inboxText("team-lead", "[]")
	wantNil(t, os.Mkdir(filepath.Join(l.root, "crew", "inboxes", "team-lead.json.lock"), 0o755)) // Claude Code's, and fresh
	l.refused("atm_send", `{"to":"lead","message":"m"}`, codeTimeout, "was not sent", "try again")
	raw, _ := l.must("atm_broadcast", `{"message":"m"}`)
	mustContain(t, string(rawField(raw, "failed")), `"to":"team-lead@crew"`)
	if len(l.mail("crew", "team-lead")) != 0 || len(l.mail("crew", "arch-ctm")) != 1 {
		t.Error("delivered to the wrong one")
	}
	l.boxes.spool = filepath.Join(t.TempDir(), "pending")
	raw, text := l.must("atm_send", `{"to":"lead","message":"m"}`)
	if stringField(raw, "outcome") != "spooled" || !strings.Contains(text, "later") {
		t.Errorf("%s %s", raw, text)
	}
	names, _ := filepath.Glob(filepath.Join(l.boxes.spool, "*-team-lead@crew.json"))
	if len(names) != 1 || stringField(json.RawMessage(readText(t, names[0])), "message", "message_id") != stringField(raw, "message_id") {
		t.Errorf("spooled as %v", names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, e := l.run(ctx, l.who, "atm_send", json.RawMessage(`{"to":"lead","message":"m"}`)); e == nil || e.Code != codeTimeout {
		t.Errorf("cancelled: %v", e)
	}
}

// Mail that can't be marked is returned all the same: it comes again.
func TestAtmReadOfALockedInbox(t *testing.T) {
	l := newAtmLab(t, nil)
	l.boxes.patience = 30 * time.Millisecond
	l.inboxText("codex", fourMails)
	lock := filepath.Join(l.root, "crew", "inboxes", "codex.json.lock")
	wantNil(t, os.Mkdir(lock, 0o755))
	raw, text := l.must("atm_read", `{}`)
	if readTexts(raw) != "first second third" || !strings.Contains(text, "could not be marked as read") {
		t.Errorf("%s %s", raw, text)
	}
	wantNil(t, os.Remove(lock))
	if raw, _ := l.must("atm_read", `{}`); readTexts(raw) != "first second third" {
		t.Errorf("%s", raw)
	}
}

// FR-4.6, FR-9.1: every call, whatever came of it.
func TestAtmToolsAreAudited(t *testing.T) {
	l := newAtmLab(t, nil)
	l.inboxText("codex", fourMails)
	raw, _ := l.must("atm_send", `{"to":"arch","message":"use password=hunter2 `+strings.Repeat("x", 300)+`"}`)
	l.refused("atm_send", `{"to":"nobody","message":"m"}`, codeInvalidSession)
	l.must("atm_broadcast", `{"message":"all hands"}`)
	l.must("atm_read", `{"limit":1}`)
	l.must("atm_pending_count", `{}`)
	l.who.Refused = proxyError(codeInvalidSession, "not yours")
	l.refused("atm_broadcast", `{"message":"forged","team":"other"}`, codeInvalidSession)
	got := l.audited()
	if len(got) != 6 {
		t.Fatalf("%d entries: %+v", len(got), got)
	}
	for i, want := range []auditEntry{
		{Event: "atm_send", Recipient: "arch-ctm@crew", Detail: "delivered, message_id " + stringField(raw, "message_id")},
		{Event: "atm_send", Recipient: "nobody", Summary: "m", Detail: "refused: INVALID_SESSION_PARAMS: unknown recipient"},
		{Event: "atm_broadcast", Recipient: "*@crew", Summary: "all hands", Detail: "sent to 2 (team-lead, arch-ctm), failed for 0 ()"},
		{Event: "atm_read", Recipient: "codex", Summary: `{"limit":1}`, Detail: "1 messages, 1 marked read, 2 remaining"},
		{Event: "atm_pending_count", Recipient: "codex", Detail: "2 unread"},
		{Event: "atm_broadcast", Recipient: "*@other", Summary: "forged", Detail: "refused: INVALID_SESSION_PARAMS: not yours"},
	} {
		e := got[i]
		if e.Event != want.Event || e.Recipient != want.Recipient || want.Summary != "" && e.Summary != want.Summary || !strings.HasPrefix(e.Detail, want.Detail) ||
			e.AgentID != "codex:k7m3pqx" || e.Identity != "codex" || e.Correlation != "mcp-7" || e.Time.IsZero() {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	if s := got[0].Summary; !strings.HasPrefix(s, "use password=[redacted] x") || utf8.RuneCountInString(s) != 200 {
		t.Errorf("summary %q", s)
	}
}

// Without persistence what was said is nowhere but in the inbox.
func TestAtmAuditWithoutWords(t *testing.T) {
	l := newAtmLab(t, func(cfg *config) { cfg.persistThreads = false })
	l.must("atm_send", `{"to":"arch","message":"a secret","summary":"a secret"}`)
	if got := l.audited(); len(got) != 1 || got[0].Summary != "" || strings.Contains(got[0].Detail, "secret") || got[0].Recipient != "arch-ctm@crew" {
		t.Errorf("%+v", got)
	}
}

// What agents are told is one closed schema each, without a word on who calls.
func TestAtmToolSpecs(t *testing.T) {
	var names []string
	for _, s := range atmToolSpecs() {
		names = append(names, s.Name)
		if !json.Valid(s.Input) || string(rawField(s.Input, "additionalProperties")) != "false" {
			t.Errorf("%s: %s", s.Name, s.Input)
		}
		for _, key := range []string{"identity", "agent_id", "threadId"} {
			if rawField(s.Input, "properties", key) != nil {
				t.Errorf("%s takes %s", s.Name, key)
			}
		}
		if s.Hints.Destructive || s.Hints.OpenWorld || s.Hints.ReadOnly != (s.Name == "atm_pending_count") {
			t.Errorf("%s: %+v", s.Name, s.Hints)
		}
	}
	if got := strings.Join(names, " "); got != "atm_send atm_read atm_broadcast atm_pending_count" {
		t.Errorf("%s", got)
	}
}
