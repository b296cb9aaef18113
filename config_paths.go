package main

// Names, directories and the team: which names may become paths, where the team's files and ours are, and which team is
// ours: the one that was asked for (flag, ATM_TEAM, .atm.toml), or that of the Claude Code session that started us, or
// the default. config.go asks once at start; tools and commands ask about every name a caller gives, so that a name is
// checked where it enters and never again. It creates nothing, no team either (without one everything but mail works),
// and a folder with very many teams must not slow the start.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	_ "embed"
	"io/fs"
)

var identityRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// threadRule is the form of Codex's thread ids, which no identity has: one reference, one agent.
var threadRule = regexp.MustCompile(`^(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// validIdentity checks an agent's name: the rule of Claude Code's own Agent tool, so that Claude can write to it.
// Identities are compared without case (strings.EqualFold).
func validIdentity(s string) error {
	switch {
	case s == "":
		return errors.New("an identity can't be empty")
	case len(s) > 64:
		return fmt.Errorf("identity %q is longer than 64 characters", cutName(s))
	case !filepath.IsLocal(s) && identityRule.MatchString(s):
		return fmt.Errorf("identity %q is a device on Windows: take another name", s)
	case !identityRule.MatchString(s):
		return fmt.Errorf("identity %q is no name: use letters a-z, digits, - and _, and begin with a letter or digit",
			s)
	case threadRule.MatchString(s):
		return fmt.Errorf("identity %q is no name but a thread's id", s)
	}
	return nil
}

// validTeam checks a team's name. Existing team directories are taken as they are, so it asks only for one plain
// path element that doesn't begin with a dot (teams/.archives is not a team).
func validTeam(s string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return errors.New("a team name can't be empty")
	case len(s) > 255:
		return fmt.Errorf("team name %q is longer than 255 bytes", cutName(s))
	case strings.ContainsAny(s, `/\`):
		return fmt.Errorf("team name %q is a path: give the name of one directory in the teams folder", s)
	case strings.HasPrefix(s, "."):
		return fmt.Errorf("team name %q begins with a dot", s)
	case !filepath.IsLocal(s) || runtime.GOOS == "windows" &&
		(strings.ContainsAny(s, `<>:"|?*`) || strings.TrimRight(s, ". ") != s):
		return fmt.Errorf("team name %q is no name of a directory on Windows, or means another one there", s)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("team name %q has a character that can't be printed", s)
	}
	return nil
}

// osHome finds the user's home directory, also where HOME is not set, as for a service.
func osHome(env func(string) string) (string, error) {
	name := "HOME"
	if runtime.GOOS == "windows" {
		name = "USERPROFILE"
	}
	if h := strings.TrimSpace(env(name)); h != "" {
		return h, nil
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		return u.HomeDir, nil
	}
	return "", fmt.Errorf("there is no home directory: set %s or ATM_HOME", name)
}

// maxSummaryBytes is far above what a model writes of a session when asked to be short.
const maxSummaryBytes = 1 << 20

// directories are the absolute paths by which files are found.
type directories struct {
	cwd, home    string
	atmHome      string // ATM_HOME, else home
	teamsRoot    string // Claude Code's teams: inboxes and members
	sessionsRoot string // our sessions: leases, records, the audit trail
	ancestorRoot string // the sessions of codex-mcp, which are read for their summaries and never written
}

// findDirectories goes by ATM_HOME as ATM does, else by CLAUDE_CONFIG_DIR as Claude Code does.
func findDirectories(env func(string) string, cwd string) (directories, error) {
	var d directories
	var err error
	if d.cwd, err = filepath.Abs(cwd); err != nil {
		return d, fmt.Errorf("finding the working directory: %w", err)
	}
	from := func(name string) string {
		v := strings.TrimSpace(env(name))
		if v != "" && !filepath.IsAbs(v) {
			v = filepath.Join(d.cwd, v)
		}
		return v
	}
	d.atmHome = from("ATM_HOME")
	if d.home, err = osHome(env); err != nil && d.atmHome == "" {
		return d, err
	}
	claude := filepath.Join(d.home, ".claude")
	if dir := from("CLAUDE_CONFIG_DIR"); dir != "" {
		claude = dir
	}
	if d.atmHome != "" {
		claude = filepath.Join(d.atmHome, ".claude")
	} else {
		d.atmHome = d.home
	}
	d.teamsRoot = filepath.Join(claude, "teams")
	d.sessionsRoot = filepath.Join(d.atmHome, ".config", "atm", "agent-sessions")
	d.ancestorRoot = filepath.Join(d.atmHome, ".config", "atm", "codex-sessions")
	return d, nil
}

// An oldSession is one of the ancestor's, as its registry.json tells of it (FR-5.2), or only where its summary is.
type oldSession struct {
	CodexID    string `json:"codex_id"`
	Thread     string `json:"thread_id"`
	Identity   string `json:"identity"`
	Cwd        string `json:"cwd"`
	LastActive string `json:"last_active"` // RFC 3339
	summary    string // the path of its summary, "" for none
}

// oldSessions are those of the ancestor that can be resumed, the newest last. What can't be read is left out.
func (d *directories) oldSessions() []oldSession {
	const maxRegistry = 16 << 20
	var told struct{ Sessions []oldSession }
	data, _ := readRegular(filepath.Join(d.ancestorRoot, "registry.json"), maxRegistry)
	_ = json.Unmarshal(data, &told) // it reads on behind a field that isn't what it should be
	// Summaries are in a directory of the thread's id, mostly in one of the identity's name (FR-6.4).
	root := os.DirFS(d.ancestorRoot)
	paths, _ := fs.Glob(root, "*/summary.md")
	deeper, _ := fs.Glob(root, "*/*/summary.md")
	for _, file := range append(paths, deeper...) {
		st, err := fs.Stat(root, file)
		if err != nil || !st.Mode().IsRegular() || st.Size() == 0 || st.Size() > maxSummaryBytes {
			continue
		}
		dir := path.Dir(file)
		told.Sessions = append(told.Sessions, oldSession{Thread: path.Base(dir), Identity: path.Base(path.Dir(dir)),
			LastActive: st.ModTime().UTC().Format(time.RFC3339Nano), summary: filepath.Join(d.ancestorRoot, file)})
	}
	byAge := func(a, b oldSession) int { return cmp.Compare(a.LastActive, b.LastActive) }
	slices.SortStableFunc(told.Sessions, byAge)
	all := map[string]oldSession{} // by thread
	for _, s := range told.Sessions {
		if validIdentity(s.Identity) != nil {
			s.Identity = ""
		}
		if older := all[s.Thread]; threadRule.MatchString(s.Thread) {
			s.CodexID, s.Identity = cmp.Or(s.CodexID, older.CodexID), cmp.Or(s.Identity, older.Identity)
			s.Cwd, s.summary = cmp.Or(s.Cwd, older.Cwd), cmp.Or(s.summary, older.summary)
			all[s.Thread] = s
		}
	}
	return slices.SortedFunc(maps.Values(all), byAge)
}

// findOldSession finds the ancestor's session of a codex_id or a threadId, the zero one for none.
func (d *directories) findOldSession(ref string) (found oldSession) {
	for _, s := range d.oldSessions() {
		if ref != "" && (s.Thread == ref || s.CodexID == ref) {
			found = s
		}
	}
	return found
}

// text is what the session wrote as it ended, "" for nothing.
func (s oldSession) text() string {
	if s.summary == "" {
		return ""
	}
	data, _ := readRegular(s.summary, maxSummaryBytes)
	return strings.TrimSpace(string(data))
}

// resolvePath makes a path of the configuration absolute: ~/ is the home, the rest is relative to base.
func resolvePath(path, base, home string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) && home != "" {
		return filepath.Join(home, rest)
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	if samePath(path, os.DevNull) { // NUL is in every directory of Windows
		return os.DevNull
	}
	if runtime.GOOS == "windows" && path != "" && os.IsPathSeparator(path[0]) { // \x is on base's drive
		return filepath.Clean(filepath.VolumeName(base) + path)
	}
	if full, err := filepath.Abs(path); err == nil && filepath.VolumeName(path) != "" { // C:x is where C: stands
		return full
	}
	return filepath.Join(base, path)
}

const (
	maxTeamsScanned   = 2000
	maxTeamConfigSize = 4 << 20
	defaultTeam       = "default"
	sessionVariable   = "CLAUDE_CODE_SESSION_ID"
	defaultLead       = "team-lead" // as Claude Code 2.1.197 calls the lead of every team
)

// A teamQuery looks for the team of a Claude Code session.
type teamQuery struct {
	root      string // the directory of all teams
	sessionID string // CLAUDE_CODE_SESSION_ID
	pause     func() // waits before the second reading; nil for a short sleep
}

// teamDirs are the directories of the team's members and mail, and of its sessions: whoever may write in one of them
// speaks for the team.
func (c *config) teamDirs() []string {
	team, kept := filepath.Join(c.teamsRoot, c.team), filepath.Join(c.sessionsRoot, c.team)
	return []string{c.teamsRoot, team, filepath.Join(team, "inboxes"), c.sessionsRoot,
		filepath.Join(c.sessionsRoot, ".threads"), kept, filepath.Join(kept, ".records")}
}

// sessionTeam finds the team whose config.json has our session as its leadSessionId. Claude Code writes that file
// in place and without a lock at times, so those that can't be parsed are read once more, after one pause for all.
func (q teamQuery) sessionTeam() (string, error) {
	names, err := q.teamNames()
	if err != nil {
		return "", err
	}
	own := ""
	// What Claude Code calls the team of a session.
	if len(q.sessionID) >= 8 && validTeam("session-"+q.sessionID[:8]) == nil {
		own = "session-" + q.sessionID[:8]
		names = append([]string{own}, names...)
	}
	for pass := range 2 {
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
		if names = unread; len(names) == 0 {
			return "", nil
		}
		if pass == 0 && q.pause != nil {
			q.pause()
		} else if pass == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if names[0] == own {
		return own, nil // it could not be read twice, but no other session has a team of that name
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
	slices.Sort(names)
	return names, nil
}

// readLeadSession reads a team's leadSessionId; ok is false when there is a config.json that can't be read whole.
// Of the file only this field matters: Claude Code's lead has no model, which a strict reader would refuse.
func readLeadSession(root, team string) (lead string, ok bool) {
	var cfg struct {
		LeadSessionID string `json:"leadSessionId"`
	}
	err := readTeamConfig(root, team, &cfg)
	return cfg.LeadSessionID, err == nil || errors.Is(err, fs.ErrNotExist)
}

func readTeamConfig(root, team string, into any) error {
	data, err := readRegular(filepath.Join(root, team, "config.json"), maxTeamConfigSize)
	if err != nil {
		return err
	}
	return json.Unmarshal(blankMark(data), into)
}

// readLeadName is the name of a team's lead: of the member that leadAgentId means, or what Claude Code calls every
// lead where the file doesn't say.
func readLeadName(root, team string) string {
	var cfg struct {
		LeadAgentID string `json:"leadAgentId"`
		Members     []struct {
			AgentID string `json:"agentId"`
			Name    string `json:"name"`
		} `json:"members"`
	}
	if readTeamConfig(root, team, &cfg) == nil {
		for _, m := range cfg.Members {
			if m.AgentID != "" && m.AgentID == cfg.LeadAgentID && validIdentity(m.Name) == nil {
				return m.Name
			}
		}
	}
	return defaultLead
}

// spellings are the ways in which a directory is written: as given and, where that differs, without symbolic links.
func spellings(dir string) []string {
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		return []string{dir, real}
	}
	return []string{dir}
}

// isSpelling reports a directory that is written in one of these ways.
func isSpelling(spellings []string, dir string) bool {
	return slices.ContainsFunc(spellings, func(way string) bool { return samePath(way, dir) })
}
