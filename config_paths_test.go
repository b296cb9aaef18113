package main

// config_paths_test.go holds the names that become paths, the directories they are resolved in, the nearest of the
// words that a mistyped one may mean, and how our team is found: by name, by the Claude Code session that started us,
// by default; and that neither a half-written file nor very many teams are in the way.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidIdentity(t *testing.T) {
	for _, s := range []string{"a", "Z", "0", "codex", "codex-2", "Arch_CTM", "9-_", "a--", strings.Repeat("a", 64)} {
		if err := validIdentity(s); err != nil {
			t.Errorf("%q refused: %v", s, err)
		}
	}
	for _, s := range []string{"", " ", "a b", "-a", "_a", ".", "..", ".a", "a.b", "../a", "a/b", `a\b`, "/a", "a@b", "ä", "аrch", "a\n", "a\x00", "a:b", "~", "*", strings.Repeat("a", 65), "\xff"} {
		if err := validIdentity(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}

func TestValidTeam(t *testing.T) {
	for _, s := range []string{"a", "my-team", "My_Team", "team.one", "session-e9a98a05", "Tëam 1", "a b", "-a", "~x", strings.Repeat("a", 255)} {
		if err := validTeam(s); err != nil {
			t.Errorf("%q refused: %v", s, err)
		}
	}
	for _, s := range []string{"", " ", ".", "..", ".archives", "a/b", "../a", "/a", "a/", `a\b`, "a\n", "a\x00b", "\x7f", "a\xff", strings.Repeat("a", 256)} {
		if err := validTeam(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"model", "fast_model", "sandbox", "identity", "role"}
	for word, want := range map[string]string{
		"modle": "model", "MODEL": "model", "fastmodel": "fast_model", "sandbxo": "sandbox", "idnetity": "identity", "rol": "role",
		"": "", "x": "", "zebra": "", "completely-different": "", strings.Repeat("m", 10_000): "",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", cutName(word), got, want)
		}
	}
	if got := nearest("a", nil); got != "" {
		t.Errorf("nearest of nothing is %q", got)
	}
}

func TestResolve(t *testing.T) {
	base, home := t.TempDir(), t.TempDir()
	for path, want := range map[string]string{
		"a": filepath.Join(base, "a"), "../a": filepath.Join(filepath.Dir(base), "a"), "~": home, "~/a": filepath.Join(home, "a"),
		"~a": filepath.Join(base, "~a"), filepath.Join(home, "x", "..", "y"): filepath.Join(home, "y"),
	} {
		if got := resolvePath(path, base, home); got != want {
			t.Errorf("resolve(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestOSHomeWithoutHOME(t *testing.T) {
	got, err := osHome(func(string) string { return "" })
	if err == nil && !filepath.IsAbs(got) {
		t.Errorf("home %q", got)
	}
	if got, err = osHome(func(string) string { return " /h " }); err != nil || got != "/h" {
		t.Errorf("home %q, %v", got, err)
	}
}

const leadSession = "e9a98a05-1111-2222-3333-444455556666"

func writeTeam(t *testing.T, root, name, text string) string {
	t.Helper()
	path := filepath.Join(root, name, "config.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// leadOf is config.json as Claude Code 2.1.197 writes it: the lead has no model.
func leadOf(id string) string {
	return fmt.Sprintf(`{"name":"x","createdAt":1,"leadAgentId":"team-lead@x","leadSessionId":%q,"members":[{"agentId":"team-lead@x","name":"team-lead","subscriptions":[]}]}`, id)
}

func noPause() { panic("nothing here needs a second reading") }

func TestFindTeam(t *testing.T) {
	root := t.TempDir()
	writeTeam(t, root, "crew", leadOf(leadSession))
	writeTeam(t, root, "other", leadOf("someone-else"))
	writeTeam(t, root, ".archives", leadOf(leadSession))
	if err := os.MkdirAll(filepath.Join(root, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    teamQuery
		want string
	}{
		{teamQuery{}, "default from default false"},
		{teamQuery{asked: "other", askedFrom: "--team", sessionID: leadSession}, "other from --team true"},
		{teamQuery{asked: "nowhere", askedFrom: "ATM_TEAM"}, "nowhere from ATM_TEAM false"},
		{teamQuery{asked: "empty", askedFrom: "ATM_TEAM"}, "empty from ATM_TEAM false"},
		{teamQuery{sessionID: leadSession}, "crew from CLAUDE_CODE_SESSION_ID true"},
		{teamQuery{sessionID: leadSession, fallback: "other", fallbackFrom: "f"}, "crew from CLAUDE_CODE_SESSION_ID true"},
		{teamQuery{sessionID: "00000000-0", fallback: "other", fallbackFrom: "f"}, "other from f true"},
		{teamQuery{sessionID: "../../../x"}, "default from default false"},
		{teamQuery{sessionID: "x"}, "default from default false"},
	} {
		c.q.root, c.q.pause = root, noPause
		name, from, exists, err := findTeam(c.q)
		if got := fmt.Sprintf("%s from %s %v", name, from, exists); got != c.want || err != nil {
			t.Errorf("%+v: got %s, %v, want %s", c.q, got, err, c.want)
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 4 {
		t.Errorf("the search changed the folder: %v, %v", entries, err)
	}
}

// An empty leadSessionId (a team made by atm init) is nobody's.
func TestFindTeamWithoutASession(t *testing.T) {
	root := t.TempDir()
	writeTeam(t, root, "crew", leadOf(""))
	if name, _, _, err := findTeam(teamQuery{root: root, pause: noPause}); name != "default" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
}

// Claude Code names the team after the session and may have two whose lead is the same: its own comes first.
func TestFindTeamPrefersTheSessionsOwn(t *testing.T) {
	root := t.TempDir()
	writeTeam(t, root, "aaa", leadOf(leadSession))
	writeTeam(t, root, "session-e9a98a05", leadOf(leadSession))
	if name, _, exists, err := findTeam(teamQuery{root: root, sessionID: leadSession, pause: noPause}); name != "session-e9a98a05" || !exists || err != nil {
		t.Errorf("got %q %v, %v", name, exists, err)
	}
}

// Claude Code truncates config.json and then writes it, so a reader may see half of it.
func TestFindTeamReadsAHalfWrittenFileAgain(t *testing.T) {
	for _, half := range []string{"", leadOf(leadSession)[:60]} {
		root := t.TempDir()
		writeTeam(t, root, "other", "{")
		path := writeTeam(t, root, "crew", half)
		pauses := 0
		q := teamQuery{root: root, sessionID: leadSession, pause: func() {
			pauses++
			if err := os.WriteFile(path, []byte(leadOf(leadSession)), 0o644); err != nil {
				t.Error(err)
			}
		}}
		if name, _, _, err := findTeam(q); name != "crew" || err != nil || pauses != 1 {
			t.Errorf("got %q, %v after %d pauses", name, err, pauses)
		}
	}
}

// A file that stays unreadable belongs to us only by the session's own name.
func TestFindTeamUnreadableTwice(t *testing.T) {
	root := t.TempDir()
	writeTeam(t, root, "session-e9a98a05", "{")
	writeTeam(t, root, "crew", "{")
	q := teamQuery{root: root, sessionID: leadSession, pause: func() {}}
	if name, from, exists, err := findTeam(q); name != "session-e9a98a05" || from != "CLAUDE_CODE_SESSION_ID" || !exists || err != nil {
		t.Errorf("got %q from %q %v, %v", name, from, exists, err)
	}
	q.sessionID = "0" + leadSession
	if name, _, _, err := findTeam(q); name != "default" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
}

func TestFindTeamIsBounded(t *testing.T) {
	root := t.TempDir()
	writeTeam(t, root, "big", strings.Repeat(" ", maxTeamConfigSize)+leadOf(leadSession))
	q := teamQuery{root: root, sessionID: leadSession, pause: func() {}}
	if name, _, _, _ := findTeam(q); name != "default" {
		t.Errorf("a config.json above the limit was read: %q", name)
	}
	q.root = filepath.Join(root, "big", "config.json")
	if name, _, exists, err := findTeam(q); name != "default" || exists || err == nil {
		t.Errorf("a teams folder that is a file: %q %v, %v", name, exists, err)
	}
}
