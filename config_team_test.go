package main

// config_team_test.go holds how our team is found: by name, by the Claude Code session
// that started us, by default; and that neither a half-written file nor very many
// teams are in the way.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
