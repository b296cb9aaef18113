package main

// mail_recipients_test.go holds addresses to whom they mean, and each that means nobody
// to an error by which a model finds the right one.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRecipient(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeTeam(t, root, "crew", crewOf(`{"name":"team-lead"}`, `{"name":"arch-ctm"}`, `{"name":"Codex"}`, `{"name":"a.b"}`, `{"name":"worker"}`, `7`))
	writeTeam(t, root, "other", crewOf(`{"name":"codex"}`))
	writeTeam(t, root, "alone", crewOf(`{"name":"codex"}`))
	writeTeam(t, root, "damaged", "{")
	wantNil(t, os.Mkdir(filepath.Join(root, "noteam"), 0o755))
	b := addressBook{
		own: newTeamFile(root, "crew", "/leases"), root: root,
		roles:   map[string]string{"lead": "team-lead", "worker": "arch-ctm", "both": "team-lead"},
		aliases: map[string]string{"arch": "arch-ctm", "both": "worker", "twice": "arch", "gone": "nobody", "addr": "codex@other", "empty": ""},
	}
	live := func(identity string) bool { return identity == "codex-2" }
	for to, want := range map[string]string{
		"team-lead": "team-lead@crew", " team-lead ": "team-lead@crew", "TEAM-LEAD": "team-lead@crew",
		"arch": "arch-ctm@crew", "lead": "team-lead@crew", "worker": "arch-ctm@crew", "both": "team-lead@crew",
		"codex@other": "codex@other", " codex @ other ": "codex@other", "arch@crew": "arch-ctm@crew",
		"codex-2": "codex-2@crew unlisted",

		"":                        `"to" is a member's name, or name@team`,
		"  ":                      `"to" is a member's name, or name@team`,
		"@crew":                   `has no name before the @`,
		"codex@":                  `has no team after the @`,
		"codex@ ":                 `has no team after the @`,
		"*":                       `atm_broadcast writes to all members`,
		"codex":                   `recipient "Codex" is the sender itself; members of team "crew" are team-lead, arch-ctm, a.b, worker`,
		"codex@crew":              `is the sender itself`,
		"Arch":                    `unknown recipient "Arch"; members of team "crew" are team-lead, arch-ctm, Codex, a.b, worker; did you mean "arch"?`,
		"arch-cmt":                `did you mean "arch-ctm"?`,
		"nobody":                  `unknown recipient "nobody"; members of team "crew" are team-lead, arch-ctm, Codex, a.b, worker`,
		"twice":                   `alias "twice" stands for "arch", who is no member of team "crew"; members`,
		"gone":                    `alias "gone" stands for "nobody", who is no member`,
		"addr":                    `alias "addr" stands for "codex@other", who is no member`,
		"empty":                   `alias "empty" stands for "", who is no member`,
		"codex-2@other":           `unknown recipient "codex-2"; members of team "other" are codex; did you mean "codex"?`,
		"a.b":                     `member "a.b" of team "crew" can't be written to`,
		"x@../crew":               `is a path: give the name of one directory`,
		"x@a/b":                   `is a path`,
		`x@a\b`:                   `is a path`,
		"x@..":                    `is a path`,
		"x@.archives":             `begins with a dot`,
		"x@other@crew":            `team "other@crew": there is no such team`,
		"x@othre":                 `; did you mean "other"?`,
		"x@noteam":                `team "noteam": there is no such team: ` + filepath.Join(root, "noteam", "config.json") + ` is missing`,
		"x@damaged":               `config.json can't be understood`,
		"../../x":                 `unknown recipient "../../x"`,
		"a\x00b":                  `unknown recipient "a\x00b"`,
		"x@a\x00":                 `character that can't be printed`,
		strings.Repeat("x", 5000): `unknown recipient "` + strings.Repeat("x", 39) + `…"; members`,
	} {
		r, err := b.recipient(to, "codex", live)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v\nwant %s", to, err, want)
			}
			if len(err.Error()) > 600 {
				t.Errorf("%q: an error of %d bytes", cutName(to), len(err.Error()))
			}
			if strings.Contains(want, "there is no such team") != errors.Is(err, errNoTeam) && to != "x@othre" {
				t.Errorf("%q: %#v", to, err)
			}
			continue
		}
		got := r.name + "@" + r.team
		if !r.listed {
			got += " unlisted"
		}
		if got != want || r.file.team != r.team {
			t.Errorf("%q is %s, want %s", to, got, want)
		}
	}
	// The same name in another team is another member.
	if r, err := b.recipient("codex@alone", "codex", live); err != nil || r.name != "codex" {
		t.Errorf("got %+v, %v", r, err)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 5 {
		t.Errorf("looking for recipients made %v", entries)
	}
}

func TestRecipientInALargeTeam(t *testing.T) {
	root := t.TempDir()
	var entries []string
	for i := range 200 {
		entries = append(entries, fmt.Sprintf(`{"name":"member-%d"}`, i))
	}
	writeTeam(t, root, "crew", crewOf(entries...))
	b := addressBook{own: newTeamFile(root, "crew", "/leases"), root: root}
	_, err := b.recipient("nobody", "codex", nil)
	if err == nil || !strings.Contains(err.Error(), "member-29 and 170 more") || strings.Contains(err.Error(), "member-30") {
		t.Errorf("got %v", err)
	}
	writeTeam(t, root, "crew", crewOf())
	if _, err = b.recipient("nobody", "codex", nil); err == nil || !strings.Contains(err.Error(), `team "crew" has no other members`) {
		t.Errorf("got %v", err)
	}
}
