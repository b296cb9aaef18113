package main

// mail_members.go owns who is a member of a team: an entry in config.json is what Claude Code and `atm` need to write to
// a session. Sessions call it when they join, leave and are asked whether their inbox is theirs; an instance calls sweep
// as it starts. An entry that carries our mark is ours; one that `atm add-member` prepared for a Codex agent is adopted
// and never removed; any other entry is somebody else's.
// Never touches another's entry, never makes a team, and never overwrites a file that it can't understand: what looks
// broken may be half of what Claude Code is just writing.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

var (
	// errNoTeam: there is no such team, or no longer: Claude Code removes its team when it exits.
	errNoTeam = errors.New("there is no such team")
	// errTeamDamaged: config.json is not what a team has. The file was left as it is.
	errTeamDamaged = errors.New("config.json can't be understood")
)

// A teamFile is one team's config.json. Many goroutines may use it at once.
type teamFile struct {
	team   string // the team's name, and its directory's
	dir    string
	leases string // the directory of this process's identity leases; it stands in the entries we add
	host   string // "": unknown, and then no process is called dead
	file   *sharedFile[*roster]
}

// newTeamFile touches no disk. The team's name has passed validTeam.
func newTeamFile(root, team, leases string) *teamFile {
	host, _ := os.Hostname()
	dir := filepath.Join(root, team)
	return &teamFile{team: team, dir: dir, leases: leases, host: host, file: &sharedFile[*roster]{
		path: filepath.Join(dir, "config.json"), parse: parseRoster, malformed: errTeamDamaged, limit: maxTeamConfigSize,
		looks: 20, // Claude Code truncates config.json and then writes it, at times without a lock, and maybe slowly
		notes: newLockNotes(leases), turn: make(chan struct{}, 1),
	}}
}

// told says which team an error is about, and what to do. It is errNoTeam if the file is gone.
func (t *teamFile) told(err error) error {
	switch {
	case err == nil || errors.As(err, new(*memberTaken)):
		return err
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("team %q: %w: %s is missing (Claude Code and atm make teams)", t.team, errNoTeam, t.file.path)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fmt.Errorf("team %q: %w; make %s writable for this user", t.team, err, t.dir)
	case errors.Is(err, errTeamDamaged):
		return fmt.Errorf("team %q: %w; %s was left as it is", t.team, err, t.file.path)
	}
	return fmt.Errorf("team %q: %w", t.team, err)
}

// list returns the members, not to be changed.
func (t *teamFile) list() ([]member, error) {
	r, err := t.file.look()
	if err != nil {
		return nil, t.told(err)
	}
	return r.named, nil
}

// update changes config.json by the patches of edit, as sharedFile.update has it, within lockPatience.
func (t *teamFile) update(ctx context.Context, edit func(r *roster) ([]patch, error)) error {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	_, err := t.file.update(ctx, func(in *sharedText[*roster]) ([]patch, error) { return edit(in.parsed) })
	return t.told(err)
}

// tidy removes what a crash left: temporary files of a change, and notes of locks that nobody holds.
func (t *teamFile) tidy() {
	t.file.notes.tidy()
	t.file.sweep()
}

// A leaseHolder tells who holds the lease of an identity of this team, as registry.holder does.
type leaseHolder func(identity string) (agentID string, pid int, held bool)

// A newMember is a session that joins. Its identity's lease is held by this process.
type newMember struct {
	name      string // its identity
	agentID   string
	model     string // "" for not known
	cwd       string
	sessionID string // Codex's thread id, "" while there is none
}

// A membership is what join had to do, and leave has to undo.
type membership struct {
	name     string // as the entry spells it: Claude Code and atm find the inbox by this spelling
	agentID  string
	joinedAt string
	added    bool // false: the entry was there, and is adopted
}

// memberTaken: the team has a member of that name, and the session may not act as that member.
type memberTaken struct {
	name, team, agentType string
	pid                   int // of the process that holds the name, 0 if that isn't known
}

func (e *memberTaken) Error() string { return e.who() + "; choose another identity" }

// who tells the member; an error with its own advice begins so.
func (e *memberTaken) who() string {
	switch {
	case e.pid != 0:
		return fmt.Sprintf("member %q of team %q is in use by process %d", cutName(e.name), e.team, e.pid)
	case e.agentType == "":
		return fmt.Sprintf("team %q has a member %q already, who is no Codex agent", e.team, cutName(e.name))
	}
	return fmt.Sprintf("team %q has a member %q already, whose agentType is %q", e.team, cutName(e.name), cutName(e.agentType))
}

// memberEntry is an entry that both programs can read. atm needs the first six fields; tmuxPaneId and subscriptions
// stand in every entry of Claude Code's own, so they are there, with nothing in them.
type memberEntry struct {
	AgentID             string     `json:"agentId"`
	Name                string     `json:"name"`
	AgentType           string     `json:"agentType"`
	Model               string     `json:"model"`
	JoinedAt            int64      `json:"joinedAt"`
	CWD                 string     `json:"cwd"`
	TmuxPaneID          string     `json:"tmuxPaneId"`
	Subscriptions       []string   `json:"subscriptions"`
	IsActive            bool       `json:"isActive"`
	LastActive          int64      `json:"lastActive"`
	SessionID           string     `json:"sessionId,omitempty"`
	ExternalBackendType string     `json:"externalBackendType"`
	ExternalModel       string     `json:"externalModel"`
	Mark                memberMark `json:"atmAgentMcp"`
}

func (t *teamFile) entry(m newMember, now time.Time) memberEntry {
	e := memberEntry{
		AgentID: m.name + "@" + t.team, Name: m.name, AgentType: "codex", Model: m.model, CWD: m.cwd,
		JoinedAt: now.UnixMilli(), LastActive: now.UnixMilli(), IsActive: true, Subscriptions: []string{},
		SessionID: m.sessionID, ExternalBackendType: "codex", ExternalModel: "unknown", Mark: t.mark(m.agentID),
	}
	if m.model == "" {
		e.Model = "unknown"
	} else {
		e.ExternalModel = "custom:" + m.model
	}
	return e
}

func (t *teamFile) mark(agentID string) memberMark {
	return memberMark{PID: os.Getpid(), Host: t.host, Agent: agentID, Leases: t.leases}
}

// join makes the session a member, or finds that it is one. errNoTeam, errTeamBusy, errTeamDamaged and *memberTaken
// leave the file as it is.
func (t *teamFile) join(ctx context.Context, m newMember, holder leaseHolder) (membership, error) {
	if strings.EqualFold(m.name, "main") {
		return membership{}, fmt.Errorf("joining team %q: Claude Code keeps the name %q for itself; choose another identity", t.team, m.name)
	}
	now := time.Now()
	var got membership
	err := t.update(ctx, func(r *roster) ([]patch, error) {
		at, err := t.place(r, m.name, m.agentID, holder)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			e := t.entry(m, now)
			got = membership{m.name, m.agentID, fmt.Sprint(e.JoinedAt), true}
			return []patch{r.with(e)}, nil
		}
		there := r.members[at]
		got = membership{there.name, m.agentID, there.joinedAt, there.mark != nil}
		if there.mark == nil || *there.mark == t.mark(m.agentID) {
			return nil, nil
		}
		return []patch{r.marked(at, t.mark(m.agentID))}, nil // a crash left the entry
	})
	if errors.As(err, new(*memberTaken)) {
		return membership{}, err
	} else if err != nil {
		return membership{}, fmt.Errorf("joining %w", err)
	}
	return got, nil
}

// mayUse tells whether a name, with its inbox and what is sent in it, is the session's, listed or not. An error is
// *memberTaken, or says that the members can't be read.
func (t *teamFile) mayUse(name, agentID string, holder leaseHolder) error {
	r, err := t.file.look()
	if err != nil {
		return t.told(err)
	}
	at, err := t.place(r, name, agentID, holder)
	if err != nil {
		return err
	}
	if lead := r.lead(); at < 0 && lead != "" && strings.EqualFold(lead, name) {
		return &memberTaken{name: lead, team: t.team, agentType: "team-lead"}
	}
	return nil
}

// nobody is a leaseHolder for names whose leases don't matter.
func nobody(string) (agentID string, pid int, held bool) { return "", 0, false }

// place finds the entry of a session, -1 for none. Names that differ in case are one name, since they have one lease;
// an entry of that name that isn't the session's is an error.
func (t *teamFile) place(r *roster, name, agentID string, holder leaseHolder) (int, error) {
	at := -1
	for i, m := range r.members {
		if m.name == "" || !strings.EqualFold(m.name, name) {
			continue
		}
		if err := t.ours(m, agentID, holder); err != nil {
			return -1, err
		}
		if at < 0 || m.name == name {
			at = i
		}
	}
	return at, nil
}

// ours refuses an entry that neither is the session's nor is free for the session to take.
func (t *teamFile) ours(m member, agentID string, holder leaseHolder) error {
	taken := &memberTaken{name: m.name, team: t.team, agentType: m.agentType}
	if !m.isCodex() {
		return taken
	}
	by, pid, held := holder(m.name)
	if mine := by != "" && by == agentID || by == "" && pid == os.Getpid(); held && !mine {
		taken.pid = pid
		return taken
	}
	if m.mark != nil && !t.sees(m.mark) && !t.gone(m.mark) {
		taken.pid = m.mark.PID
		return taken
	}
	return nil
}

// sees tells whether the session that added an entry keeps its leases where this process looks: then its lease decides.
func (t *teamFile) sees(mark *memberMark) bool { return mark.Leases == t.leases }

// gone tells whether the process that added an entry is dead for sure.
func (t *teamFile) gone(mark *memberMark) bool {
	return mark.Host == t.host && t.host != "" && !pidAlive(mark.PID)
}

// leave takes out, in one write, the entries that join added. An entry or a team that is gone is no error; an entry that
// somebody else made meanwhile stays.
func (t *teamFile) leave(ctx context.Context, sessions ...membership) error {
	ours := func(m member) bool {
		for _, s := range sessions {
			switch {
			case !s.added || m.name != s.name || !m.isCodex():
			case m.mark != nil && *m.mark == t.mark(s.agentID):
				return true
			case m.mark == nil && m.joinedAt == s.joinedAt: // some writer dropped the mark
				return true
			}
		}
		return false
	}
	err := t.removeMembers(ctx, ours)
	if err != nil && !errors.Is(err, errNoTeam) {
		return fmt.Errorf("leaving %w", err)
	}
	return nil
}

// sweep takes out the entries of sessions whose process ended without leaving, and returns how many names these were.
// Every instance of the team calls it beside its start, and as a session of its own ends. again: one of the names is
// held by somebody who can't be told, and is likely free in a moment.
func (t *teamFile) sweep(ctx context.Context, holder leaseHolder) (n int, again bool, err error) {
	names := map[string]bool{}
	left := func(m member) bool {
		if m.mark == nil || !m.isCodex() {
			return false
		}
		by, pid, held := holder(m.name)
		again = again || held && (by == "" || pid == 0 || by == m.mark.Agent && t.gone(m.mark))
		if held || !t.sees(m.mark) && !t.gone(m.mark) {
			return false
		}
		names[m.name] = true
		return true
	}
	err = t.removeMembers(ctx, left)
	if errors.Is(err, errNoTeam) {
		return 0, false, nil
	}
	if err != nil {
		return 0, true, fmt.Errorf("removing members whose process is gone from %w", err)
	}
	return len(names), again, nil
}

// removeMembers takes no lock, and makes no lock file, when there is nothing to remove.
func (t *teamFile) removeMembers(ctx context.Context, drop func(member) bool) error {
	r, err := t.file.look()
	if err != nil {
		return t.told(err)
	}
	if r.without(drop) == nil {
		return nil
	}
	return t.update(ctx, func(r *roster) ([]patch, error) { return r.without(drop), nil })
}
