package main

// config_team.go owns which team we are in: the one that was asked for (flag, ATM_TEAM,
// .atm.toml), or that of the Claude Code session that started us, or the
// default. config.go asks once at start. It only reads, and must never create a
// team (without one everything but mail works), nor let a folder with very many
// teams slow the start.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"
)

const (
	maxTeamsScanned   = 2000
	maxTeamConfigSize = 4 << 20
	defaultTeam       = "default"
	sessionVariable   = "CLAUDE_CODE_SESSION_ID"
	defaultLead       = "team-lead" // as Claude Code 2.1.197 calls the lead of every team
)

// A teamQuery is what is known when the team is looked for.
type teamQuery struct {
	root                   string // …/teams
	asked, askedFrom       string // the name that somebody asked for, checked by validTeam, and who did
	sessionID              string // CLAUDE_CODE_SESSION_ID
	fallback, fallbackFrom string // the team for want of both, "" for "default"
	pause                  func() // before the second reading; nil for a short sleep
}

// findTeam names the team, how it was found and whether it exists. A returned error means only that the search
// for the Claude Code session's team failed; the other values still hold.
func findTeam(q teamQuery) (name, from string, exists bool, err error) {
	name, from = q.asked, q.askedFrom
	if name == "" && q.sessionID != "" {
		if name, err = q.sessionTeam(); name != "" {
			from = sessionVariable
		}
	}
	if name == "" {
		name, from = q.fallback, q.fallbackFrom
	}
	if name == "" {
		name, from = defaultTeam, "default"
	}
	info, statErr := os.Stat(filepath.Join(q.root, name, "config.json"))
	return name, from, statErr == nil && info.Mode().IsRegular(), err
}

// teamDirs are the directories in which whoever may write speaks for the team:
// its members and their mail, and what is kept of its agents.
func (c *config) teamDirs() []string {
	team, kept := filepath.Join(c.teamsRoot, c.team), filepath.Join(c.sessionsRoot, c.team)
	return []string{c.teamsRoot, team, filepath.Join(team, "inboxes"), c.sessionsRoot, filepath.Join(c.sessionsRoot, ".threads"), kept, filepath.Join(kept, ".records")}
}

// sessionTeam finds the team whose config.json has our session as its leadSessionId. Claude Code writes that file
// in place and without a lock at times, so one that can't be parsed is read once more, all of them after one pause.
func (q teamQuery) sessionTeam() (string, error) {
	// Claude Code calls it "session-" and the first 8 characters of the id; so this one comes first.
	own := ""
	if len(q.sessionID) >= 8 && validTeam("session-"+q.sessionID[:8]) == nil {
		own = "session-" + q.sessionID[:8]
	}
	names, err := q.teamNames()
	if err != nil {
		return "", err
	}
	if own != "" {
		names = append([]string{own}, names...)
	}
	var unread []string
	for _, name := range names {
		lead, ok := readLeadSession(q.root, name)
		if ok && lead == q.sessionID {
			return name, nil
		}
		if !ok {
			unread = append(unread, name)
		}
	}
	if len(unread) == 0 {
		return "", nil
	}
	if q.pause != nil {
		q.pause()
	} else {
		time.Sleep(20 * time.Millisecond)
	}
	for _, name := range unread {
		if lead, ok := readLeadSession(q.root, name); ok && lead == q.sessionID {
			return name, nil
		} else if !ok && name == own {
			return name, nil // unreadable twice, but no other session has that name
		}
	}
	return "", nil
}

// teamNames lists the directories that may be teams.
func (q teamQuery) teamNames() ([]string, error) {
	d, err := openDir(q.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the team of this Claude Code session: %w", err)
	}
	defer d.Close()
	entries, err := d.ReadDir(maxTeamsScanned)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("looking for the team of this Claude Code session: %w", err)
	}
	var names []string
	for _, e := range entries {
		if (e.IsDir() || e.Type()&fs.ModeSymlink != 0) && validTeam(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	return names, nil
}

// readLeadSession reads a team's leadSessionId; ok is false when there is a config.json that can't be read whole.
// Of the file only this field matters: Claude Code's lead has no model, which a strict reader would refuse.
func readLeadSession(root, team string) (lead string, ok bool) {
	data, err := readRegular(filepath.Join(root, team, "config.json"), maxTeamConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return "", true
	}
	var cfg struct {
		LeadSessionID string `json:"leadSessionId"`
	}
	if err != nil || json.Unmarshal(data, &cfg) != nil {
		return "", false
	}
	return cfg.LeadSessionID, true
}

// readLeadName is the name of a team's lead: of the member that leadAgentId means, or what Claude Code calls every
// lead where the file doesn't say.
func readLeadName(root, team string) string {
	data, err := readRegular(filepath.Join(root, team, "config.json"), maxTeamConfigSize)
	var cfg struct {
		LeadAgentID string `json:"leadAgentId"`
		Members     []struct {
			AgentID string `json:"agentId"`
			Name    string `json:"name"`
		} `json:"members"`
	}
	if err == nil && json.Unmarshal(data, &cfg) == nil {
		for _, m := range cfg.Members {
			if m.AgentID != "" && m.AgentID == cfg.LeadAgentID && validIdentity(m.Name) == nil {
				return m.Name
			}
		}
	}
	return defaultLead
}
