package main

// mail_test.go holds inboxes to their operations, one at a time: what is understood of others' messages, what stays as
// it was to the byte, what bad input does, and what is said when nothing could be done. It owns the rig of all tests of
// mail: a team with inboxes.

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const claudeMail = `{"from":"team-lead","text":"hello","summary":"hi","timestamp":"2026-11-21T09:17:30.784Z","color":"blue","msgV":1,"msg_id":"c1","type":"message","read":false}`

// mailTeam makes a team and gives its inboxes.
func mailTeam(t testing.TB) (x *inboxes, dir string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "teams")
	dir = filepath.Join(root, "crew", "inboxes")
	wantNil(t, os.MkdirAll(dir, 0o755))
	wantNil(t, os.WriteFile(filepath.Join(root, "crew", "config.json"), []byte(`{"name":"crew","members":[]}`), 0o644))
	return newInboxes(root, "", "", nil, slog.New(slog.DiscardHandler)), dir
}

// writeInbox writes an inbox as it would look to somebody who comes a while later.
func writeInbox(t testing.TB, path, text string) {
	t.Helper()
	wantNil(t, os.WriteFile(path, []byte(text), 0o644))
	ageFile(t, path, time.Minute)
}

func ageFile(t testing.TB, path string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	wantNil(t, os.Chtimes(path, then, then))
}

func readText(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	wantNil(t, err)
	return string(text)
}

func keysOf(msgs []mailMessage) (keys []string) {
	for _, m := range msgs {
		keys = append(keys, m.Key)
	}
	return keys
}

func texts(msgs []mailMessage) string {
	var all []string
	for _, m := range msgs {
		all = append(all, m.Text)
	}
	return strings.Join(all, ",")
}

func TestMailSend(t *testing.T) {
	x, dir := mailTeam(t)
	out, id, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "codex", SourceTeam: "crew", Text: " a <b>\n\"ü\u2028 "})
	if out != mailDelivered || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("id %q is no UUID of version 4", id)
	}
	text := readText(t, filepath.Join(dir, "arch.json"))
	all, err := strictMail([]byte(text))
	if err != nil || len(all) != 1 {
		t.Fatalf("atm doesn't read %s: %v", text, err)
	}
	m := all[0]
	for key, want := range map[string]any{"from": "codex", "source_team": "crew", "text": " a <b>\n\"ü\u2028 ", "read": false, "message_id": id, "summary": "a <b> \"ü"} {
		if m[key] != want {
			t.Errorf("%s is %v, want %v", key, m[key], want)
		}
	}
	if at, err := time.Parse(mailTimeLayout, m["timestamp"].(string)); err != nil || time.Since(at) > time.Minute {
		t.Errorf("timestamp %v: %v", m["timestamp"], err)
	}
	if _, err := os.Stat(filepath.Join(dir, "arch.json.lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Claude Code's lock is still there: %v", err)
	}

	// The same message once more is there already; others are added, each with a time of its own: Claude Code takes equal
	// sender, time and text for one message.
	if _, again, err := x.send(t.Context(), "crew", "arch", mailMessage{ID: id, From: "codex", Text: "x"}); again != id || err != nil {
		t.Errorf("sent again: %v, %v", again, err)
	}
	if readText(t, filepath.Join(dir, "arch.json")) != text {
		t.Error("the same id was written twice")
	}
	if _, own, err := x.send(t.Context(), "crew", "arch", mailMessage{ID: "mine", From: "codex", Text: "y"}); own != "mine" || err != nil {
		t.Errorf("own id: %v, %v", own, err)
	}
	for range 20 {
		if _, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "codex", Text: "ping"}); err != nil {
			t.Fatal(err)
		}
	}
	msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{})
	times := map[string]bool{}
	for _, m := range msgs {
		times[m.Timestamp] = true
	}
	if len(times) != 22 || err != nil {
		t.Errorf("%d times of 22 messages, %v", len(times), err)
	}
}

func TestMailListFilters(t *testing.T) {
	x, dir := mailTeam(t)
	writeInbox(t, filepath.Join(dir, "arch.json"), `[
	{"from":"b","text":"3","timestamp":"2026-01-03T00:00:00.5+00:00","read":false,"message_id":"m3"},
	{"from":"a","text":"1","timestamp":"2026-01-01T02:00:00+02:00","message_id":null,"msg_id":"m1"},
	{"from":"A@other","content":"2","timestamp":"2026-01-02T00:00:00Z","read":true,"message_id":7},
	{"from":"c","source_team":"crew","text":"9","timestamp":"2999-01-01T00:00:00Z"},
	{"from":"d","text":"odd","timestamp":"yesterday"},
	{"from":"e","text":"num","timestamp":1767398400},
	5, "x", null, [], {}, {"from":"f"}, {"text":null}]`)
	at := func(s string) time.Time { return parseMailTime(s) }
	tests := []struct {
		name string
		want mailFilter
		text string
		more int
	}{
		{"unread", mailFilter{}, "1,num,3,9,odd", 0},
		{"all", mailFilter{All: true}, "1,2,num,3,9,odd", 0},
		{"limit", mailFilter{All: true, Limit: 2}, "1,2", 4},
		{"since keeps what has no time", mailFilter{All: true, Since: at("2026-01-03T00:00:00.5Z")}, "3,9,odd", 0},
		{"from any team", mailFilter{All: true, From: "a"}, "1,2", 0},
		{"from one team", mailFilter{All: true, From: "a@other"}, "2", 0},
		{"from by source_team", mailFilter{From: "c@crew"}, "9", 0},
		{"nobody", mailFilter{From: "z"}, "", 0},
	}
	for _, tt := range tests {
		msgs, more, err := x.list(t.Context(), "crew", "arch", tt.want)
		if texts(msgs) != tt.text || more != tt.more || err != nil {
			t.Errorf("%s: %s and %d more, %v; want %s and %d", tt.name, texts(msgs), more, err, tt.text, tt.more)
		}
	}
	msgs, _, _ := x.list(t.Context(), "crew", "arch", mailFilter{All: true, Limit: 2})
	if msgs[0].ID != "m1" || msgs[1].ID != "7" || msgs[0].Read || !msgs[1].Read {
		t.Errorf("%+v", msgs)
	}
	if n, err := x.count(t.Context(), "crew", "arch"); n != 5 || err != nil {
		t.Errorf("%d unread, %v", n, err)
	}
}

func TestMailKinds(t *testing.T) {
	tests := []struct {
		raw  string
		kind mailKind
	}{
		{claudeMail, mailPlain},
		{`{"from":"a","text":"{\"type\":\"idle_notification\",\"from\":\"a\",\"idleReason\":\"available\"}"}`, mailIdle},
		{`{"from":"a","text":"{\"type\":\"shutdown_request\",\"requestId\":\"r\"}","type":"message"}`, mailShutdownRequest},
		{`{"from":"a","text":"{\"type\":\"permission_request\"}"}`, mailPermissionRequest},
		{`{"from":"a","text":"{\"type\":\"deploy\"}"}`, mailPlain},
		{`{"from":"a","text":"{\"type\":\"shutdown_request\"} please"}`, mailPlain},
		{`{"from":"a","text":"idle","type":"idle_notification"}`, mailIdle},
	}
	for _, tt := range tests {
		f, ok := mailFieldsOf([]byte(tt.raw))
		if m := f.message(); !ok || m.Kind != tt.kind {
			t.Errorf("%s: %q, %v", tt.raw, m.Kind, ok)
		}
	}
	f, _ := mailFieldsOf([]byte(tests[2].raw))
	if got := stringField(f.message().Frame, "requestId"); got != "r" {
		t.Errorf("the frame's requestId is %q", got)
	}
}

func TestMailMarkRead(t *testing.T) {
	x, dir := mailTeam(t)
	path := filepath.Join(dir, "arch.json")
	// Two with one id, two without any, one whose field comes twice, and one written line by line.
	const before = `[ {"from":"a","text":"1","timestamp":"t","message_id":"same","x":{"read":false}},` +
		`{"from":"a","text":"2","timestamp":"t","message_id":"same"} ,{"from":"b","text":"3"},{"from":"b","text":"4","read": false,"read":null},` +
		"\n  {\n    \"from\": \"c\",\n    \"text\": \"5\"\n  }, 12]\n\n"
	writeInbox(t, path, before)
	msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{})
	if texts(msgs) != "1,2,3,4,5" || err != nil {
		t.Fatal(texts(msgs), err)
	}
	n, err := x.markRead(t.Context(), "crew", "arch", []string{msgs[0].Key, msgs[3].Key, msgs[4].Key, "nonsense"})
	if n != 3 || err != nil {
		t.Fatalf("%d marked, %v", n, err)
	}
	const after = `[ {"from":"a","text":"1","timestamp":"t","message_id":"same","x":{"read":false},"read":true},` +
		`{"from":"a","text":"2","timestamp":"t","message_id":"same"} ,{"from":"b","text":"3"},{"from":"b","text":"4","read": true,"read":true},` +
		"\n  {\n    \"from\": \"c\",\n    \"text\": \"5\",\n    \"read\": true\n  }, 12]\n\n"
	if got := readText(t, path); got != after {
		t.Errorf("got  %s\nwant %s", got, after)
	}
	if n, err := x.markRead(t.Context(), "crew", "arch", []string{msgs[0].Key}); n != 0 || err != nil {
		t.Errorf("once more: %d, %v", n, err)
	}
	if n, err := x.markRead(t.Context(), "crew", "nobody", []string{"k"}); n != 0 || err != nil {
		t.Errorf("no inbox: %d, %v", n, err)
	}
}

// TestMailCountOfUnchangedReadsNothing: what is changed behind the file's times isn't seen.
func TestMailCountOfUnchangedReadsNothing(t *testing.T) {
	x, dir := mailTeam(t)
	path := filepath.Join(dir, "arch.json")
	count := func(want int) {
		t.Helper()
		if n, err := x.count(t.Context(), "crew", "arch"); n != want || err != nil {
			t.Errorf("%d unread, %v; want %d", n, err, want)
		}
	}
	count(0) // no inbox
	writeInbox(t, path, `[{"from":"a","text":"1"}]`)
	count(1)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`[                        ]`[:info.Size()-1] + "]")
	f.Close()
	os.Chtimes(path, info.ModTime(), info.ModTime())
	count(1)
	ageFile(t, path, time.Second)
	count(0)
	writeInbox(t, path, `[{"from":"a","text":"1"},{"from":"a","text":"1"}]`)
	count(2)
}

// TestMailKeepsWhatIsOthers: whatever stands in an inbox, every operation leaves each element's bytes and its place,
// but for what marks it read.
func TestMailKeepsWhatIsOthers(t *testing.T) {
	t.Parallel()
	spaces := []string{"", "", " ", "\n", "\r\n\t"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		space := func() string { return spaces[r.IntN(len(spaces))] }
		odd := []string{"null", "1e400", "-0", `"\ud800"`, "[[],{}]", "{}", `{"read":false}`, `{"from":3,"text":["x"]}`, `"]"`, "true", `{"a":"\u0000\/","a":1}`}
		var elems []string
		for range r.IntN(8) {
			if r.IntN(3) == 0 {
				elems = append(elems, odd[r.IntN(len(odd))])
				continue
			}
			fields := []string{`"from":"a"`, fmt.Sprintf(`"text":"t%d"`, r.IntN(4)), `"timestamp":"2026-01-01T00:00:00Z"`, `"pendingAckAt":null`, `"big":12345678901234567890.10`, `"z":{"read":0,"q":[1, 2]}`, `"message_id":5`, `"msg_id":"\u00e9"`}
			if r.IntN(2) == 0 {
				fields = append(fields, `"read":`+[]string{"true", "false", `"no"`, "null"}[r.IntN(4)])
			}
			r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
			elems = append(elems, "{"+space()+strings.Join(fields, space()+","+space())+space()+"}")
		}
		x, dir := mailTeam(t)
		path := filepath.Join(dir, "arch.json")
		writeInbox(t, path, space()+"["+space()+strings.Join(elems, space()+","+space())+space()+"]"+space())
		msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var keys []string
		for _, m := range msgs {
			if r.IntN(2) == 0 {
				keys = append(keys, m.Key)
			}
		}
		for range 2 {
			if _, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "codex", Text: "ours"}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if _, err := x.markRead(t.Context(), "crew", "arch", keys); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		text := readText(t, path)
		var now []string
		eachElement([]byte(text), func(raw json.RawMessage) { now = append(now, string(raw)) })
		if !json.Valid([]byte(text)) || len(now) != len(elems)+2 {
			t.Fatalf("seed %d: %d elements became %d: %s", seed, len(elems), len(now), text)
		}
		for i, was := range elems {
			f, ok := mailFieldsOf([]byte(was))
			if !ok || f.isRead() || !slices.Contains(keys, f.key()) {
				if now[i] != was {
					t.Errorf("seed %d: %s became %s", seed, was, now[i])
				}
				continue
			}
			if without(t, was) != without(t, now[i]) || string(rawField([]byte(now[i]), "read")) != "true" {
				t.Errorf("seed %d: marked, %s became %s", seed, was, now[i])
			}
		}
	}
}

// without is an object's fields, as they are written and in their order, but for "read".
func without(t *testing.T, obj string) string {
	t.Helper()
	var all []string
	if err := eachField([]byte(obj), func(key string, val json.RawMessage) bool {
		if key != "read" {
			all = append(all, fmt.Sprintf("%q:%s", key, val))
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, ",")
}

// TestMailSetsAside: what isn't a list of messages is kept beside, whole, whoever comes across it.
func TestMailSetsAside(t *testing.T) {
	for _, bad := range []string{"{", `{"a":1}`, "null", "[1,]", "[{\"text\":\"x\"}", "\ufeff[]", "[] []", "\x00\x00\x00", "[\"a\x00b\"]"} {
		for _, op := range []string{"send", "list", "count", "mark"} {
			x, dir := mailTeam(t)
			path := filepath.Join(dir, "arch.json")
			writeInbox(t, path, bad)
			var err error
			want := "[]"
			switch op {
			case "send":
				var out mailOutcome
				if out, _, err = x.send(t.Context(), "crew", "arch", mailMessage{From: "a", Text: "x"}); out != mailDelivered || err != nil {
					t.Errorf("%q: %v, %v", bad, out, err)
				}
				want = readText(t, path)
				if all, err := strictMail([]byte(want)); len(all) != 1 || err != nil {
					t.Errorf("%q: the inbox is %q, %v", bad, want, err)
				}
			case "list":
				_, _, err = x.list(t.Context(), "crew", "arch", mailFilter{})
			case "count":
				_, err = x.count(t.Context(), "crew", "arch")
			case "mark":
				if _, err = x.markRead(t.Context(), "crew", "arch", []string{"k"}); err != nil {
					t.Errorf("%q: %v", bad, err)
				}
			}
			if (op == "list" || op == "count") && !errors.Is(err, errInboxMalformed) {
				t.Errorf("%q: %s says %v", bad, op, err)
			}
			aside, _ := filepath.Glob(path + ".corrupt-*")
			if len(aside) != 1 || readText(t, aside[0]) != bad || readText(t, path) != want {
				t.Errorf("%q: %s left %q and %q", bad, op, aside, readText(t, path))
			}
			if msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{}); err != nil || (op == "send") != (len(msgs) == 1) {
				t.Errorf("%q after %s: %d messages, %v", bad, op, len(msgs), err)
			}
		}
	}
}

func TestMailBadInput(t *testing.T) {
	t.Parallel()
	small := mailMessage{From: "codex", Text: "hi"}
	tests := []struct {
		name    string
		prepare func(t *testing.T, x *inboxes, dir string)
		send    mailMessage
		member  string
		want    string // in the error; "": delivered
	}{
		{"directory as inbox", func(t *testing.T, _ *inboxes, dir string) { os.Mkdir(filepath.Join(dir, "arch.json"), 0o755) }, small, "arch", "is a directory where"},
		{"file as Claude's lock", func(t *testing.T, _ *inboxes, dir string) { writeInbox(t, filepath.Join(dir, "arch.json.lock"), "") }, small, "arch", "is in the way"},
		{"directory as atm's lock", func(t *testing.T, _ *inboxes, dir string) { os.Mkdir(filepath.Join(dir, "arch.lock"), 0o755) }, small, "arch", "move it away"},
		{"file as inboxes", func(t *testing.T, _ *inboxes, dir string) { os.Remove(dir); writeInbox(t, dir, "") }, small, "arch", "not a directory"},
		{"device as inbox", func(t *testing.T, _ *inboxes, dir string) {
			if err := os.Symlink(os.DevNull, filepath.Join(dir, "arch.json")); err != nil {
				t.Skip(err)
			}
		}, small, "arch", "not a regular file"},
		{"stale lock", func(t *testing.T, _ *inboxes, dir string) {
			os.Mkdir(filepath.Join(dir, "arch.json.lock"), 0o755)
			ageFile(t, filepath.Join(dir, "arch.json.lock"), 11*time.Second)
		}, small, "arch", ""},
		{"no inboxes yet", func(t *testing.T, _ *inboxes, dir string) { os.Remove(dir) }, small, "arch", ""},
		{"no team", func(t *testing.T, x *inboxes, dir string) { os.RemoveAll(filepath.Dir(dir)) }, small, "arch", "no such team"},
		{"directory without config.json", func(t *testing.T, x *inboxes, dir string) {
			os.Remove(filepath.Join(filepath.Dir(dir), "config.json"))
		}, small, "arch", "no such team"},
		{"blank inbox", func(t *testing.T, _ *inboxes, dir string) { writeInbox(t, filepath.Join(dir, "arch.json"), " \n") }, small, "arch", ""},
		{"no UTF-8 in it", func(t *testing.T, _ *inboxes, dir string) {
			writeInbox(t, filepath.Join(dir, "arch.json"), "[{\"from\":\"a\",\"text\":\"\xff\"}]")
		}, small, "arch", ""},
		{"10 MB in it", func(t *testing.T, _ *inboxes, dir string) {
			writeInbox(t, filepath.Join(dir, "arch.json"), `[{"from":"a","text":"`+strings.Repeat(`\u0000é`, 10<<20/8)+`"}]`)
		}, small, "arch", ""},
		{"10 MB to send", nil, mailMessage{From: "codex", Text: strings.Repeat("x", 10<<20)}, "arch", "10485760 bytes"},
		{"NUL to send", nil, mailMessage{From: "codex", Text: "a\x00b"}, "arch", "NUL character (at byte 1)"},
		{"nothing to send", nil, mailMessage{From: "codex", Text: " \n"}, "arch", "empty"},
		{"no sender", nil, mailMessage{Text: "x"}, "arch", "sender"},
		{"path as member", nil, small, "../config", "is no name"},
		{"NUL as member", nil, small, "a\x00", "is no name"},
		{"oneself", nil, mailMessage{From: "arch", Text: "note"}, "arch", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, dir := mailTeam(t)
			if tt.prepare != nil {
				tt.prepare(t, x, dir)
			}
			before := filesUnder(t, x.root)
			had, _, _ := x.list(t.Context(), "crew", "arch", mailFilter{})
			out, _, err := x.send(t.Context(), "crew", tt.member, tt.send)
			if tt.want == "" {
				msgs, _, err2 := x.list(t.Context(), "crew", "arch", mailFilter{})
				if out != mailDelivered || err != nil || err2 != nil || len(msgs) != len(had)+1 {
					t.Errorf("%v, %v; %d messages, %v", out, err, len(msgs), err2)
				}
				return
			}
			if out != "" || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v; want %q in it", out, err, tt.want)
			}
			for _, name := range before {
				if !slices.Contains(filesUnder(t, x.root), name) {
					t.Errorf("%s is gone", name)
				}
			}
			if tt.want == "no such team" && !slices.Equal(before, filesUnder(t, x.root)) {
				t.Errorf("something was made: %q", filesUnder(t, x.root))
			}
		})
	}
	for _, team := range []string{"../crew", "", "a/b", ".archives", "none"} {
		x, _ := mailTeam(t)
		before := filesUnder(t, x.root)
		_, _, err := x.send(t.Context(), team, "arch", small)
		_, err2 := x.count(t.Context(), team, "arch")
		if err == nil || err2 == nil || !slices.Equal(before, filesUnder(t, x.root)) {
			t.Errorf("team %q: %v, %v, %q", team, err, err2, filesUnder(t, x.root))
		}
	}
}

// TestMailModes: an inbox keeps its mode, and a directory's mode is told with what to do.
func TestMailModes(t *testing.T) {
	x, dir := mailTeam(t)
	path := filepath.Join(dir, "arch.json")
	writeInbox(t, path, "[]")
	wantNil(t, os.Chmod(path, 0o660))
	was, err := os.Stat(path)
	wantNil(t, err)
	if _, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "a", Text: "x"}); err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(path); err != nil || now.Mode() != was.Mode() {
		t.Errorf("mode %v became %v, %v", was.Mode(), now.Mode(), err)
	}
	wantNil(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	asNobody(t, dir)
	if _, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "a", Text: "x"}); err == nil || !strings.Contains(err.Error(), "writable") {
		t.Errorf("%v", err)
	}
	if msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{}); len(msgs) != 1 || err != nil {
		t.Errorf("%v, %v", msgs, err)
	}
}

// TestMailLocked: what can't be delivered for want of a lock is spooled, or refused; it is never said to be there.
func TestMailLocked(t *testing.T) {
	x, dir := mailTeam(t)
	x.patience = 50 * time.Millisecond
	path := filepath.Join(dir, "arch.json")
	writeInbox(t, path, "["+claudeMail+"]")
	wantNil(t, os.Mkdir(path+".lock", 0o755)) // Claude Code's, and fresh; TestTeamLocks has atm's
	out, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "a", Text: "x"})
	if out != "" || !errors.Is(err, errTeamBusy) {
		t.Errorf("%v, %v", out, err)
	}
	msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{})
	if len(msgs) != 1 || err != nil {
		t.Fatalf("reading needs no lock: %v, %v", msgs, err)
	}
	if n, err := x.markRead(t.Context(), "crew", "arch", keysOf(msgs)); n != 0 || !errors.Is(err, errTeamBusy) {
		t.Errorf("%d marked, %v", n, err)
	}
	x.spool = filepath.Join(t.TempDir(), "spool", "pending")
	out, id, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "a", Text: "x"})
	if out != mailSpooled || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	names, _ := filepath.Glob(filepath.Join(x.spool, "*"))
	if len(names) != 1 || !regexp.MustCompile(`^\d+-[0-9a-f]{8}-arch@crew\.json$`).MatchString(filepath.Base(names[0])) {
		t.Fatalf("spooled as %q", names)
	}
	var got struct {
		TargetTeam  string         `json:"target_team"`
		TargetAgent string         `json:"target_agent"`
		Message     map[string]any `json:"message"`
		RetryCount  *int           `json:"retry_count"`
		MaxRetries  int            `json:"max_retries"`
		CreatedAt   time.Time      `json:"created_at"`
	}
	wantNil(t, json.Unmarshal([]byte(readText(t, names[0])), &got))
	if got.TargetTeam != "crew" || got.TargetAgent != "arch" || got.Message["message_id"] != id || got.RetryCount == nil ||
		*got.RetryCount != 0 || got.MaxRetries != 10 || got.CreatedAt.IsZero() {
		t.Errorf("%+v", got)
	}
	if readText(t, path) != "["+claudeMail+"]" {
		t.Error("the inbox was changed")
	}
}

// filesUnder is the names of all that is under a directory.
func filesUnder(t *testing.T, root string) []string {
	t.Helper()
	var names []string
	filepath.WalkDir(root, func(path string, _ os.DirEntry, _ error) error {
		names = append(names, path)
		return nil
	})
	return names
}

// FuzzInbox: whatever a file holds, nothing of it is lost by a send, and the message arrives.
func FuzzInbox(f *testing.F) {
	for _, s := range []string{"[]", "", "[" + claudeMail + "]", "[1,[],\"]\"]", "{", "[\"\xff\"]", "[{\"text\":1}] x"} {
		f.Add(s)
	}
	x, dir := mailTeam(f)
	path := filepath.Join(dir, "arch.json")
	f.Fuzz(func(t *testing.T, text string) {
		left, _ := filepath.Glob(path + ".corrupt-*")
		for _, name := range left {
			os.Remove(name)
		}
		writeInbox(t, path, text)
		before, _, lerr := newInboxes(x.root, "", "", nil, x.log).list(t.Context(), "crew", "arch", mailFilter{All: true})
		out, id, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "codex", Text: "ours"})
		if out != mailDelivered || err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		now := readText(t, path)
		after, _, err := x.list(t.Context(), "crew", "arch", mailFilter{All: true})
		if err != nil || len(after) != len(before)+1 || !strings.Contains(now, id) {
			t.Fatalf("%d messages became %d, %v", len(before), len(after), err)
		}
		if errors.Is(lerr, errInboxMalformed) {
			aside, _ := filepath.Glob(path + ".corrupt-*")
			if len(aside) != 1 || readText(t, aside[0]) != text {
				t.Fatalf("set aside: %q", aside)
			}
			return
		}
		if kept := strings.TrimRight(strings.TrimRight(strings.TrimSpace(text), "]"), " \t\r\n"); !strings.Contains(now, kept) {
			t.Fatalf("%q became %q", text, now)
		}
		if json.Valid([]byte(text)) && !json.Valid([]byte(now)) {
			t.Fatalf("%q became %q", text, now)
		}
	})
}
