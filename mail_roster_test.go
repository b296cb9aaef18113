package main

// mail_roster_test.go holds the text of config.json to what nobody may change: every
// byte but our own entry, whoever wrote it and however it is laid out.

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// claudeTeam is config.json as Claude Code 2.1.197 writes it, with what a reader may not expect.
const claudeTeam = `{
  "name": "crew",
  "createdAt": 1795252642080,
  "leadAgentId": "team-lead@crew",
  "leadSessionId": "e9a98a05-1111-2222-3333-444455556666",
  "hiddenPaneIds": [],
  "ratio": 1.50e+2,
  "members": [
    {
      "agentId": "team-lead@crew",
      "name": "team-lead",
      "agentType": "team-lead",
      "joinedAt": 1795252642080,
      "tmuxPaneId": "leader",
      "cwd": "/w",
      "subscriptions": [],
      "backendType": "in-process",
      "x-unknown": {"b": 1, "a": [1.0, 1e3, "\u00e9<&>"]}
    },
    17,
    {
      "agentId": "mate_one@crew",
      "name": "mate_one",
      "agentType": "general-purpose",
      "joinedAt": 1795252642081,
      "cwd": "/w"
    }
  ],
  "teamAllowedPaths": [{"toolName": "Edit", "path": "/w"}]
}`

const (
	atmTeam     = `{"name":"crew","description":"d","createdAt":1,"leadAgentId":"team-lead@crew","leadSessionId":"","members":[{"agentId":"prepared@crew","name":"prepared","agentType":"codex","model":"unknown","joinedAt":1,"cwd":"/w","isActive":true}],"zzz":0.10}`
	emptyTeam   = "{\n  \"name\": \"crew\",\n  \"members\": []\n}\n"
	compactTeam = `{"members":[]}`
)

// FuzzRoster: whatever is done to our entry, every byte outside of the list and of the other entries stays.
func FuzzRoster(f *testing.F) {
	for _, s := range []string{
		claudeTeam, atmTeam, emptyTeam, compactTeam, "{\"members\":[ ]}\n", `{"members":[1 , 2,3 ],"members":[ {"name":"x"} ]}`, `{"members":[0 ,{}]}`,
		"{\"\\u006dembers\":[\r\n\t{}\r\n]}", `{"members":[[","],{"a":","}]}`, `{"members":{}}`, `[]`, `null`, "", `{"members":[1,]}`, `{"members":[`, "\ufeff{\"members\":[]}",
		`{"members":[{"name":"c","agentType":"codex","atmAgentMcp":{"pid":1}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRoster(text)
		if err != nil {
			return
		}
		var theirs struct {
			Members []json.RawMessage `json:"members"`
		}
		if json.Unmarshal(text, &theirs) == nil && len(theirs.Members) != len(r.elems) && !strings.Contains(strings.ToLower(string(text)), `members"`) {
			t.Fatalf("%d elements, encoding/json finds %d in %q", len(r.elems), len(theirs.Members), text)
		}
		entry := memberEntry{Name: "codex", AgentType: "codex", Mark: memberMark{PID: 1}}
		one := holdsAll(t, r, applyPatches(r.text, []patch{r.with(entry)}), func(int) bool { return false })
		last := len(one.elems) - 1
		if one.members[last].name != "codex" || len(one.elems) != len(r.elems)+1 {
			t.Fatalf("no entry in %q", one.text)
		}
		marked := holdsAll(t, r, applyPatches(one.text, []patch{one.marked(last, memberMark{PID: 22, Host: "h"})}), func(int) bool { return false })
		if m := marked.members[last]; m.mark == nil || m.mark.PID != 22 {
			t.Fatalf("mark %v in %q", m.mark, marked.text)
		}
		back := cutOut(marked, func(i int) bool { return i == last })
		if len(r.elems) > 0 && !bytes.Equal(back, text) {
			t.Fatalf("in and out leaves %q of %q", back, text)
		}
		holdsAll(t, r, back, func(int) bool { return false })
		for k := range min(len(r.elems), 5) {
			holdsAll(t, r, cutOut(r, func(i int) bool { return i == k }), func(i int) bool { return i == k })
			holdsAll(t, r, cutOut(r, func(i int) bool { return i != k }), func(i int) bool { return i != k })
		}
		if same := cutOut(r, func(int) bool { return false }); !bytes.Equal(same, text) {
			t.Fatalf("taking nothing out makes %q of %q", same, text)
		}
	})
}

// holdsAll checks that text has the entries of r but those dropped, byte for byte and in their order, and the rest.
func holdsAll(t *testing.T, r *roster, text []byte, dropped func(int) bool) *roster {
	t.Helper()
	if !json.Valid(text) {
		t.Fatalf("%q is not JSON any more: %q", r.text, text)
	}
	now, err := parseRoster(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if !bytes.Equal(r.text[:r.list.from], text[:now.list.from]) || !bytes.Equal(r.text[r.list.to:], text[now.list.to:]) {
		t.Fatalf("what is around the members changed: %q to %q", r.text, text)
	}
	at := 0
	for i, e := range r.elems {
		if dropped(i) {
			continue
		}
		if at >= len(now.elems) || !bytes.Equal(r.text[e.from:e.to], text[now.elems[at].from:now.elems[at].to]) {
			t.Fatalf("entry %d of %q is not in %q", i, r.text, text)
		}
		at++
	}
	return now
}

// Our entry looks as if the file's writer had made it.
func TestRosterLayout(t *testing.T) {
	for text, want := range map[string]string{
		emptyTeam:   "{\n  \"name\": \"crew\",\n  \"members\": [\n    {\n      \"a\": 1\n    }\n  ]\n}\n",
		compactTeam: `{"members":[{"a":1}]}`,
		atmTeam:     strings.Replace(atmTeam, "true}]", `true},{"a":1}]`, 1),
		claudeTeam:  strings.Replace(claudeTeam, "\"/w\"\n    }\n  ]", "\"/w\"\n    },\n    {\n      \"a\": 1\n    }\n  ]", 1),
	} {
		r, err := parseRoster([]byte(text))
		wantNil(t, err)
		if got := string(applyPatches(r.text, []patch{r.with(map[string]int{"a": 1})})); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

func TestRosterRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "it is empty", " \n": "it is empty", "{": "not valid JSON", "\x00\x00": "not valid JSON", "{} {}": "not valid JSON",
		"\xff{}": "not valid JSON", `[]`: "no list", `"members"`: "no list", `null`: "no list", `{}`: "no list",
		`{"members":{}}`: "no list", `{"members":null}`: "no list", `{"members":[],"members":1}`: "no list",
	} {
		if _, err := parseRoster([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Odd entries are nobody, not an error: a number for a name, a field of our mark's name that is somebody else's.
func TestRosterOddMembers(t *testing.T) {
	r, err := parseRoster([]byte(`{"members":[null,"x",[],{},{"name":7},{"name":"a","agentType":1,"joinedAt":1.50,"atmAgentMcp":"mine"},
		{"name":"b","externalBackendType":"codex","atmAgentMcp":{"pid":"7"}},{"name":"c","agentType":"codex","atmAgentMcp":{"pid":7,"host":"h","agent":"codex:x","leases":"/l"}}]}`))
	wantNil(t, err)
	all := r.named
	if len(all) != 3 || all[0].name != "a" || all[0].mark != nil || all[0].isCodex() || all[0].joinedAt != "1.50" ||
		all[1].mark != nil || !all[1].isCodex() || *all[2].mark != (memberMark{7, "h", "codex:x", "/l"}) {
		t.Errorf("got %+v", all)
	}
	if !slices.ContainsFunc(all, member.isCodex) {
		t.Error("no Codex member")
	}
}

// cutOut is the text without the entries of the places that drop names.
func cutOut(r *roster, drop func(i int) bool) []byte {
	i := -1
	return applyPatches(r.text, r.without(func(member) bool { i++; return drop(i) }))
}
