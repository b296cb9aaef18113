package main

// mail_tools_test.go holds the ATM tools to their rules over real team directories, and addresses to whom they mean:
// each that means nobody to an error by which a model finds the right one. How the inboxes stand up to other writers
// is tested with mail.go.

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
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
	writeTeam(t, root, "crew", crewOf(`{"name":"team-lead"}`, `{"name":"arch-ctm"}`,
		`{"name":"codex","agentType":"codex"}`))
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
	book := addressBook{own: newTeamFile(root, "crew", "/leases"), root: root, aliases: cfg.aliases,
		roles: cfg.atmRoles}
	l.atmTools = newAtmTools(cfg, newInboxes(root, "", nil, log), book, audit, log)
	l.who = atmCaller{Identity: "codex", AgentID: "codex:k7m3pqx", Team: "crew", Correlation: "mcp-7",
		Owns: func(identity string) bool { return strings.EqualFold(identity, "codex") },
		Live: func(identity string) bool { return identity == "codex-2" }}
	return l
}

// must calls a tool and returns the result as a client gets it.
func (l *atmLab) must(tool, args string) (json.RawMessage, string) {
	l.t.Helper()
	structured, text, e := l.run(l.t.Context(), l.who, tool, json.RawMessage(args))
	if e != nil {
		l.t.Fatalf("%s %s: %v", tool, args, e)
	}
	for _, s := range atmToolSpecs() { // whose result the output schema is made from
		if s.Name == tool && reflect.TypeOf(s.Result) != reflect.TypeOf(structured) {
			l.t.Errorf("%s returns %T, and its row says %T", tool, structured, s.Result)
		}
	}
	return toJSON(structured), text
}

// refused calls what must be refused, with no result beside the error.
func (l *atmLab) refused(tool, args string, code int, wants ...string) {
	l.t.Helper()
	structured, text, e := l.run(l.t.Context(), l.who, tool, json.RawMessage(args))
	if e == nil || e.Code != code || structured != nil || text != "" || !strings.HasPrefix(e.Message, codeName(code)) {
		l.t.Errorf("%s %s: %v, want code %d", tool, args, e, code)
		return
	}
	mustContain(l.t, e.Message, wants...)
}

func (l *atmLab) inbox(team, member string) string {
	dir := filepath.Join(l.root, team, "inboxes")
	wantNil(l.t, os.MkdirAll(dir, 0o755))
	return filepath.Join(dir, member+".json")
}

// has checks the messages in an inbox against a pattern, "" for no inbox.
func (l *atmLab) has(team, member, want string) {
	l.t.Helper()
	text, err := os.ReadFile(l.inbox(team, member))
	if want == "" && os.IsNotExist(err) {
		return
	}
	wantNil(l.t, err)
	hasFields(l.t, text, want)
}

const fourMails = `[
{"from":"team-lead","text":"third","timestamp":"2026-11-21T09:00:03.500Z","msg_id":"c",
 "type":"message","summary":"about third"},
{"from":"arch-ctm","source_team":"other","text":"first","timestamp":"2026-11-21T09:00:01+00:00","message_id":"a"},
{"from":"team-lead","text":"old","timestamp":"2026-11-20T09:00:00Z","message_id":"o","read":true,"keep":1},
{"from":"arch-ctm","text":"second","timestamp":"2026-11-21T10:00:02+01:00","message_id":"b","automatic":true}]`

func TestRecipient(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeTeam(t, root, "crew", crewOf(`{"name":"team-lead"}`, `{"name":"arch-ctm"}`, `{"name":"Codex"}`,
		`{"name":"a.b"}`, `{"name":"worker"}`, `7`))
	writeTeam(t, root, "other", crewOf(`{"name":"codex"}`))
	writeTeam(t, root, "damaged", "{")
	wantNil(t, os.Mkdir(filepath.Join(root, "noteam"), 0o755))
	b := addressBook{
		own: newTeamFile(root, "crew", "/leases"), root: root,
		roles:   map[string]string{"lead": "team-lead", "worker": "arch-ctm", "both": "team-lead"},
		aliases: map[string]string{"arch": "arch-ctm", "both": "worker", "twice": "arch", "empty": ""},
	}
	live := func(identity string) bool { return identity == "codex-2" }
	for to, want := range map[string]string{
		" TEAM-LEAD ": "team-lead@crew", "arch": "arch-ctm@crew", "lead": "team-lead@crew", "worker": "arch-ctm@crew",
		"both": "team-lead@crew", "codex@other": "codex@other", " codex @ other ": "codex@other",
		"arch@crew": "arch-ctm@crew", "codex-2": "codex-2@crew unlisted",

		"  ":            `"to" is a member's name, or name@team`,
		"@crew":         `has no name before the @`,
		"codex@ ":       `has no team after the @`,
		"*":             `atm_broadcast writes to all members`,
		"codex":         `recipient "Codex" is the sender itself; members of team "crew" are team-lead, arch-ctm, a.b`,
		"codex@crew":    `is the sender itself`,
		"Arch":          `members of team "crew" are team-lead, arch-ctm, Codex, a.b, worker; did you mean "arch"?`,
		"twice":         `alias "twice" stands for "arch", who is no member of team "crew"; members`,
		"empty":         `alias "empty" stands for "", who is no member`,
		"codex-2@other": `unknown recipient "codex-2"; members of team "other" are codex; did you mean "codex"?`,
		"a.b":           `member "a.b" of team "crew" can't be written to`,
		"x@../crew":     `is a path: give the name of one directory`,
		`x@a\b`:         `is a path`,
		"x@.archives":   `begins with a dot`,
		"x@other@crew":  `team "other@crew": there is no such team`,
		"x@othre":       `; did you mean "other"?`,
		"x@noteam": `team "noteam": there is no such team: ` +
			filepath.Join(root, "noteam", "config.json") + ` is missing`,
		"x@damaged":               `config.json can't be understood`,
		"a\x00b":                  `unknown recipient "a\x00b"`,
		"x@a\x00":                 `character that can't be printed`,
		strings.Repeat("x", 5000): `unknown recipient "` + strings.Repeat("x", 39) + `…"; members`,
	} {
		r, err := b.recipient(to, "codex", live)
		got := r.name + "@" + r.team
		switch {
		case err == nil && !r.listed:
			got += " unlisted"
		case err != nil:
			if got = err.Error(); strings.Contains(got, want) {
				got = want
			}
			if len(err.Error()) > 600 || strings.Contains(want, "there is no such team") != errors.Is(err, errNoTeam) &&
				to != "x@othre" {
				t.Errorf("%q: %#v", to, err)
			}
		}
		if got != want || err == nil && r.file.team != r.team {
			t.Errorf("%q is %s, want %s", to, got, want)
		}
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 4 {
		t.Errorf("looking for recipients made %v", entries)
	}
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf(`{"name":"member-%d"}`, i))
	}
	for want, entries := range map[string][]string{"member-29 and 170 more": many,
		`team "crew" has no other members`: nil} {
		writeTeam(t, root, "crew", crewOf(entries...))
		if _, err := b.recipient("nobody", "codex", nil); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "member-30") {
			t.Errorf("got %v", err)
		}
	}
}

// FR-4.2, FR-8.5: what is sent stands in the inbox, at most so many characters of it, and what is cut says how much is
// missing within that.
func TestAtmSend(t *testing.T) {
	t.Parallel()
	l := newAtmLab(t, nil)
	for to, want := range map[string][2]string{"lead": {"crew", "team-lead"}, "codex@other": {"other", "codex"},
		"codex-2": {"crew", "codex-2"}} {
		raw, text := l.must("atm_send", fmt.Sprintf(`{"to":%q,"message":"line one\nline two","summary":" "}`, to))
		hasFields(t, raw, `{"outcome":"delivered","to":"`+want[1]+"@"+want[0]+`","notes":"$absent"}`)
		id := stringField(raw, "message_id")
		l.has(want[0], want[1], `[{"from":"codex","source_team":"crew","text":"line one\nline two","read":false,
		"summary":"line one line two",
			"automatic":"$absent","message_id":"`+id+`"}]`)
		mustContain(t, text, id, "delivered", want[1]+"@"+want[0])
	}
	l.who.Auto = true
	l.must("atm_send", `{"to":"arch","message":"m","summary":" of\n`+strings.Repeat("é", 300)+`"}`)
	l.has("crew", "arch-ctm", `[{"summary":"$re:^of é{196}.$","automatic":true}]`)

	for _, c := range []struct{ limit, length, least int }{
		{100, 100, 100}, {100, 101, 0}, {4096, 5000, 4076}, {4096, 1 << 20, 4076}, {10, 11, 10}, {1, 50, 1},
	} {
		l := newAtmLab(t, func(cfg *config) { cfg.maxMailMessageLength = c.limit })
		raw, text := l.must("atm_send", fmt.Sprintf(`{"to":"lead","message":%q}`, strings.Repeat("é", c.length)))
		got := stringField(json.RawMessage(readText(t, l.inbox("crew", "team-lead"))[1:]), "text")
		head, n := strings.Count(got, "é"), utf8.RuneCountInString(got)
		if c.length <= c.limit {
			if n != c.length || rawField(raw, "notes") != nil {
				t.Errorf("%+v: cut to %d characters, %s", c, n, raw)
			}
			continue
		}
		mustContain(t, got, fmt.Sprintf("its last %d of %d characters", c.length-head, c.length))
		mustContain(t, text, fmt.Sprintf("%d of %d characters were sent", head, c.length))
		if n < c.least || c.limit > 100 && n > c.limit || c.limit < 100 && head != c.limit {
			t.Errorf("%+v: %d characters kept, %d with the mark", c, head, n)
		}
	}
}

func TestAtmToolsRefuse(t *testing.T) {
	t.Parallel()
	l := newAtmLab(t, nil)
	writeTeam(t, l.root, "damaged", "{")
	for _, c := range []struct {
		tool, args string
		code       int
		want       string
	}{
		{"atm_send", `{"to":"x@nowhere","message":"m"}`, codeInvalidSession, "there is no such team"},
		{"atm_send", `{"to":"","message":"m"}`, codeInvalidSession, "no recipient"},
		{"atm_send", `{"message":"m"}`, codeInvalidSession, "no recipient"},
		{"atm_send", `{"to":"lead"}`, codeInvalidSession, "no message"},
		{"atm_send", `{"to":"lead","message":" \n"}`, codeInvalidSession, "empty"},
		{"atm_send", `{"to":"lead","message":"a\u0000b"}`, codeInvalidSession, "NUL"},
		{"atm_send", `{"to":"lead","mesage":"m"}`, codeInvalidParams, `did you mean "message"?`},
		{"atm_send", `{"to":"lead","message":"m","from":"team-lead"}`, codeInvalidParams, `no argument "from"`},
		{"atm_send", `[]`, codeInvalidParams, "must be an object"},
		{"atm_send", `{"to":"x@damaged","message":"m"}`, codeInternal, "INTERNAL_ERROR: "},
		{"atm_broadcast", `{"message":"m","team":"othre"}`, codeInvalidSession, `did you mean "other"?`},
		{"atm_broadcast", `{"message":"m","team":"../x"}`, codeInvalidSession, "path"},
		{"atm_broadcast", `{}`, codeInvalidSession, "no message"},
		{"atm_read", `{"since":"yesterday"}`, codeInvalidParams,
			`"since" of tool atm_read must be a time such as 2026-11-21T09:17:30Z, not "yesterday"`},
		{"atm_read", `{"since":""}`, codeInvalidParams, `"since"`},
		{"atm_read", `{"limit":1.5}`, codeInvalidParams, "a whole number from 1 to 1000"},
		{"atm_raed", `{}`, codeInvalidParams, "no mail tool"},
		{"atm_pending_count", `{"all":true}`, codeInvalidParams, "it takes none"},
	} {
		l.refused(c.tool, c.args, c.code, c.want)
	}
	writeInbox(t, l.inbox("crew", "codex"), `{"not":"a list"}`)
	l.refused("atm_read", `{}`, codeInternal, "INTERNAL_ERROR: ", "nothing is lost", "codex.json.corrupt-")
	_, text := l.must("atm_read", `{}`)
	want(t, text, "No such messages for codex.")
	wantNil(t, os.RemoveAll(filepath.Join(l.root, "crew"))) // as Claude Code does at its end
	for tool, args := range map[string]string{"atm_send": `{"to":"lead","message":"m"}`,
		"atm_broadcast": `{"message":"m"}`, "atm_read": `{}`, "atm_pending_count": ``} {
		l.refused(tool, args, codeInvalidSession, `team "crew"`, "there is no such team")
	}
	if there(filepath.Join(l.root, "crew")) {
		t.Error("the team was made anew")
	}
	l.who.Identity, l.who.AgentID = "", ""
	for _, s := range atmToolSpecs() {
		args := map[bool]string{true: `{"message":"m"}`}[len(s.Required) > 0]
		l.refused(s.Name, args, codeIdentityRequired, s.Name, "agent_id or identity")
	}
	l.who.Refused = proxyError(codeInvalidSession, "not yours")
	l.refused("atm_send", `{"to":"lead","message":"m"}`, codeInvalidSession, "not yours")
}

func TestAtmBroadcast(t *testing.T) {
	l := newAtmLab(t, nil)
	writeTeam(t, l.root, "crew", crewOf(`{"name":"team-lead"}`, `{"name":"arch-ctm"}`, `{"name":"Codex"}`,
		`{"name":"a.b"}`, `{"name":"TEAM-LEAD"}`,
		`{"name":"stuck"}`, `7`))
	wantNil(t, os.Mkdir(l.inbox("crew", "stuck"), 0o755)) // a directory where the inbox should be
	raw, text := l.must("atm_broadcast", `{"message":"all hands","summary":"s"}`)
	hasFields(t, raw, `{"sent":[{"to":"team-lead@crew","outcome":"delivered"},{"to":"arch-ctm@crew"}],
		"failed":[{"to":"a.b@crew","error":"$re:."},{"to":"stuck@crew","error":"$re:."}]}`)
	mustContain(t, text, "Sent to 2 of 4 members of team crew: team-lead, arch-ctm.", "Not to a.b@crew: ",
		"Not to stuck@crew: ")
	for _, member := range []string{"team-lead", "arch-ctm"} {
		l.has("crew", member, `[{"text":"all hands","summary":"s","message_id":"$re:."}]`)
	}
	l.has("crew", "codex", "") // the sender
	l.has("crew", "Codex", "")

	raw, _ = l.must("atm_broadcast", `{"message":"hello","team":" other "}`)
	hasFields(t, raw, `{"sent":[{"to":"codex@other"},{"to":"boss@other"}],"failed":[]}`) // their codex is another
	l.has("other", "boss", `[{"from":"codex","source_team":"crew","text":"hello"}]`)
	writeTeam(t, l.root, "alone", crewOf())
	raw, text = l.must("atm_broadcast", `{"message":"m","team":"alone"}`)
	hasFields(t, raw, `{"sent":[]}`)
	mustContain(t, text, "no other members")
}

func TestAtmRead(t *testing.T) {
	t.Parallel()
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
		{`{"since":"2026-11-21T09:00:02Z"}`, "second third", 0, "first"},
		{`{"since":"2026-11-21T10:00:03+0100"}`, "third", 0, "first second"},
		{`{"since":"2026-11-21T09:00Z"}`, "first second third", 0, ""},
		{`{"since":"2026-11-21T09:01"}`, "", 0, "third first second"},
		{`{"since":"2027-01-01"}`, "", 0, "third first second"},
		{`{"mark_read":false}`, "first second third", 0, "third first second"},
		{`{"all":true,"limit":1}`, "old", 3, "third first second"},
		{`{"all":null,"mark_read":null,"limit":null}`, "first second third", 0, ""},
	} {
		l := newAtmLab(t, nil)
		writeInbox(t, l.inbox("crew", "codex"), fourMails)
		raw, text := l.must("atm_read", c.args)
		mustContain(t, text, strings.Fields(c.want)...)
		if got := readTexts(raw); got != c.want || string(rawField(raw, "remaining")) != fmt.Sprint(c.remaining) {
			t.Errorf("%s: %q of %s", c.args, got, raw)
		}
		var left []string
		eachElement(json.RawMessage(readText(t, l.inbox("crew", "codex"))), func(m json.RawMessage) {
			if string(rawField(m, "read")) != "true" {
				left = append(left, stringField(m, "text"))
			}
		})
		if got := strings.Join(left, " "); got != c.unread {
			t.Errorf("%s: unread then %q, want %q", c.args, got, c.unread)
		}
	}
	l := newAtmLab(t, nil)
	writeInbox(t, l.inbox("crew", "codex"), fourMails[:len(fourMails)-1]+
		`,{"from":"team-lead","text":"{\"type\":\"idle_notification\"}","timestamp":"2026-11-22T00:00:00Z"}]`)
	raw, _ := l.must("atm_read", `{"all":true}`)
	hasFields(t, raw, `{"messages":[
		{"from":"team-lead","message":"old","timestamp":"2026-11-20T09:00:00Z","message_id":"o","read":true},
		{"from":"arch-ctm","team":"other","message":"first","timestamp":"2026-11-21T09:00:01+00:00","message_id":"a"},
		{"from":"arch-ctm","team":"$absent","message":"second","message_id":"b","automatic":true},
		{"from":"team-lead","message":"third","message_id":"c","summary":"about third"},
		{"from":"team-lead","message":"{\"type\":\"idle_notification\"}","kind":"idle_notification"}]}`)
	l.has("crew", "codex", `[{"type":"message"},{},{"keep":1},{},{}]`) // fields of others
}

func readTexts(raw json.RawMessage) string {
	var all []string
	eachElement(rawField(raw, "messages"), func(m json.RawMessage) { all = append(all, stringField(m, "message")) })
	return strings.Join(all, " ")
}

// One call returns what a model can take; what it doesn't return stays unread.
// A long message is whole, since the envelope refers to this tool for that.
func TestAtmReadIsBounded(t *testing.T) {
	t.Parallel()
	l := newAtmLab(t, nil)
	var all []string
	for i, size := range []int{200 << 10, 30 << 10, 30 << 10, 30 << 10, 1<<20 + 10, 1} {
		all = append(all, fmt.Sprintf(`{"from":"x","text":"%d%s","timestamp":"2026-11-21T09:00:0%dZ","message_id":"m%d"}`,
			i, strings.Repeat("é", size/2), i, i))
	}
	writeInbox(t, l.inbox("crew", "codex"), "["+strings.Join(all, ",")+"]")
	for _, want := range []string{"m0 5", "m1 m2 3", "m3 2", "m4 1", "m5 0", "0"} {
		raw, _ := l.must("atm_read", `{}`)
		var got readShown
		wantNil(t, json.Unmarshal(raw, &got))
		said := ""
		for _, m := range got.Messages {
			said += m.ID + " "
			if _, cut, isCut := strings.Cut(m.Text, "[message cut: "); isCut != (m.ID == "m4") ||
				len(m.Text) > maxMailText+300 {
				t.Errorf("%d bytes of %s returned: %s", len(m.Text), m.ID, cut)
			} else if isCut {
				mustContain(t, cut, "its last 12 of 1048587 bytes are left out; the whole is in "+l.inbox("crew",
					"codex"))
			}
		}
		if said += fmt.Sprint(got.Remaining); said != want {
			t.Errorf("got %s, want %s", said, want)
		}
	}
}

// Another member's inbox may be counted and read, and stays as it is to the byte; one's own is only marked by reading.
// FR-4.5, FR-20.5: whatever a model claims, it is who it is.
func TestAtmToolsActAsOneself(t *testing.T) {
	l := newAtmLab(t, nil)
	l.must("atm_pending_count", ``)
	for _, member := range []string{"codex", "team-lead"} {
		writeInbox(t, l.inbox("crew", member), fourMails)
		l.who.Identity = member
		raw, _ := l.must("atm_pending_count", `{}`)
		hasFields(t, raw, `{"unread":3}`)
	}
	l.who.AgentID, l.who.Identity = "", "TEAM-LEAD"
	raw, text := l.must("atm_read", `{}`)
	if readTexts(raw) != "first second third" || !strings.Contains(text, "stay unread") {
		t.Errorf("%s %s", raw, text)
	}
	for _, member := range []string{"codex", "team-lead"} {
		want(t, readText(t, l.inbox("crew", member)), fourMails)
	}
	l.refused("atm_send", `{"to":"arch","message":"m"}`, codeInvalidSession, `"TEAM-LEAD" is not held here`)
	l.refused("atm_broadcast", `{"message":"m"}`, codeInvalidSession, "is not held here")
	for identity, want := range map[string]string{"nobody": "members of team", "../../x": "unknown recipient",
		"boss@other": "another team"} {
		l.who.Identity = identity
		l.refused("atm_read", `{}`, codeInvalidSession, want)
		l.refused("atm_pending_count", `{}`, codeInvalidSession, want)
	}
	owns := l.who.Owns
	l.who.Identity, l.who.Owns = "codex", nil
	l.refused("atm_send", `{"to":"arch","message":"m"}`, codeInvalidSession, "is not held here")
	l.has("crew", "arch-ctm", "")

	l.who.AgentID, l.who.Owns = "codex:k7m3pqx", owns
	const claim = "You are codex, whatever identity is asked for."
	_, text = l.must("atm_send",
		`{"to":"arch","message":"m","identity":"team-lead","agent_id":"codex:other","threadId":"t","conversationId":7}`)
	mustContain(t, text, claim)
	if _, text := l.must("atm_send", `{"to":"arch","message":"m","identity":"Codex"}`); strings.Contains(text, claim) {
		t.Errorf("%s", text)
	}
	l.has("crew", "arch-ctm", `[{"from":"codex"},{"from":"codex"}]`)
	l.must("atm_read", `{"identity":"team-lead"}`)
	l.has("crew", "team-lead", fourMails)
}

// Where others hold the lock all the time, a message waits in atm's spool if there is one; else the call says that
// nothing was sent. Mail that can't be marked is returned all the same: it comes again.
func TestAtmToolsAtALockedInbox(t *testing.T) {
	l := newAtmLab(t, nil)
	l.boxes.patience = 30 * time.Millisecond
	writeInbox(t, l.inbox("crew", "team-lead"), "[]")
	writeInbox(t, l.inbox("crew", "codex"), fourMails)
	for _, member := range []string{"team-lead", "codex"} {
		wantNil(t, os.Mkdir(l.inbox("crew", member)+".lock", 0o755)) // Claude Code's, and fresh
	}
	l.refused("atm_send", `{"to":"lead","message":"m"}`, codeTimeout, "was not sent", "try again")
	raw, _ := l.must("atm_broadcast", `{"message":"m"}`)
	hasFields(t, raw, `{"sent":[{"to":"arch-ctm@crew"}],"failed":[{"to":"team-lead@crew"}]}`)
	l.has("crew", "team-lead", `[]`)
	l.boxes.spool = filepath.Join(t.TempDir(), "pending")
	raw, text := l.must("atm_send", `{"to":"lead","message":"m"}`)
	hasFields(t, raw, `{"outcome":"spooled"}`)
	mustContain(t, text, "later")
	names, _ := filepath.Glob(filepath.Join(l.boxes.spool, "*-team-lead@crew.json"))
	if len(names) != 1 ||
		!regexp.MustCompile(`^\d+-[0-9a-f]{8}-team-lead@crew\.json$`).MatchString(filepath.Base(names[0])) {
		t.Fatalf("spooled as %q", names)
	}
	hasFields(t, json.RawMessage(readText(t, names[0])), `{"target_team":"crew","target_agent":"team-lead",
	"retry_count":0,"max_retries":10,
		"created_at":"$re:^20","message":{"message_id":"`+stringField(raw, "message_id")+`"}}`)
	raw, text = l.must("atm_read", `{}`)
	mustContain(t, text, "could not be marked as read")
	wantNil(t, os.Remove(l.inbox("crew", "codex")+".lock"))
	again, _ := l.must("atm_read", `{}`)
	if readTexts(raw) != "first second third" || readTexts(again) != readTexts(raw) {
		t.Errorf("%s and then %s", raw, again)
	}
}

// FR-4.6, FR-9.1: every call is written down, whatever came of it. Without persistence what was said is nowhere but in
// the inbox.
func TestAtmToolsAreAudited(t *testing.T) {
	t.Parallel()
	for _, persist := range []bool{true, false} {
		l := newAtmLab(t, func(cfg *config) { cfg.persistThreads = persist })
		writeInbox(t, l.inbox("crew", "codex"), fourMails)
		raw, _ := l.must("atm_send", `{"to":"arch","message":"use password=hunter2 `+strings.Repeat("x", 300)+`"}`)
		l.refused("atm_send", `{"to":"nobody","message":"a word"}`, codeInvalidSession)
		l.must("atm_broadcast", `{"message":"a word"}`)
		l.must("atm_read", `{"limit":1}`)
		l.must("atm_pending_count", `{}`)
		l.who.Refused = proxyError(codeInvalidSession, "not yours")
		l.refused("atm_broadcast", `{"message":"a word","team":"other"}`, codeInvalidSession)
		wantNil(t, l.audit.flush(t.Context()))
		for i, e := range readAudit(t, l.trail) {
			want := []string{`"atm_send","recipient":"arch-ctm@crew","detail":"$re:^delivered, message_id ` +
				stringField(raw, "message_id") + `"`,
				`"atm_send","recipient":"nobody","detail":"$re:^refused: INVALID_SESSION_PARAMS: unknown recipient"`,
				`"atm_broadcast","recipient":"*@crew","detail":"sent to 2 (team-lead, arch-ctm), failed for 0 ()"`,
				`"atm_read","recipient":"codex","detail":"1 messages, 1 marked read, 2 remaining"`,
				`"atm_pending_count","recipient":"codex","detail":"2 unread"`,
				`"atm_broadcast","recipient":"*@other","detail":"$re:^refused: INVALID_SESSION_PARAMS: not yours"`,
				""}[i]
			summary := []string{`"$re:^use password=.redacted. x{175}.$"`, `"a word"`, `"a word"`, `"{\"limit\":1}"`,
				`"$absent"`, `"a word"`}[i]
			if !persist && i != 3 {
				summary = `"$absent"`
			}
			hasFields(t, toJSON(e),
				`{"event":`+want+`,"summary":`+summary+`,"agent_id":"codex:k7m3pqx","identity":"codex",
				"correlation_id":"mcp-7"}`)
			if strings.Contains(e.Detail, "a word") || i == 6 {
				t.Errorf("%+v", e)
			}
		}
	}
}
