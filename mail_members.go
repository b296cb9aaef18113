package main

// mail_members.go owns who is in and out of a team: an entry in config.json, changed as mail_shared.go has it, is what
// Claude Code and `atm` need to write to a session.
// Sessions call it when they join, leave and are asked whether their inbox is theirs; the start of an instance calls
// sweep. Ours is an entry that carries our mark; one that `atm add-member` prepared for a Codex agent is adopted
// and never removed; any other is somebody else's.
// Never touches another's entry, never makes a team, and never overwrites a file that it can't understand: Claude Code
// would take such a one as empty, so what looks broken may be half of what is just being written.

import (
	"bytes"
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
	// errNoTeam: there is none, or it is gone: Claude Code removes its team when it exits.
	errNoTeam = errors.New("there is no such team")
	// errTeamDamaged: config.json is not what a team has. It was left as it is.
	errTeamDamaged = errors.New("config.json can't be understood")
)

// A teamFile is one team's config.json. It is safe for use by many goroutines.
type teamFile struct {
	team   string // also the directory's name
	dir    string
	leases string // where this process's identity leases are; it stands in the entries we add
	host   string
	file   *sharedFile[*roster]
}

// newTeamFile touches no disk. The team is a valid name; see validTeam.
func newTeamFile(root, team, leases string) *teamFile {
	host, _ := os.Hostname() // without one no process is called dead
	dir := filepath.Join(root, team)
	return &teamFile{team: team, dir: dir, leases: leases, host: host, file: &sharedFile[*roster]{
		path: filepath.Join(dir, "config.json"), parse: parseRoster, malformed: errTeamDamaged, limit: maxTeamConfigSize,
		looks: 20, // Claude Code truncates config.json and then writes it, at times without a lock; on a busy machine it may be kept from it for long
		notes: newLockNotes(leases), turn: make(chan struct{}, 1),
	}}
}

// told says which team an error is about, and what to do: errNoTeam if there is none any more.
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

// update replaces config.json by what edit makes of its text. edit changes nothing else and may be called again with
// a newer text; if it returns the same text, or an error, nothing is written.
func (t *teamFile) update(ctx context.Context, edit func(r *roster) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	_, err := t.file.update(ctx, true, func(in *sharedText[*roster]) ([]patch, error) {
		text, err := edit(in.parsed)
		if err != nil || bytes.Equal(text, in.text) {
			return nil, err
		}
		return []patch{{at: 0, drop: len(in.text), put: text}}, nil
	})
	return t.told(err)
}

// tidy removes what a crash left: in the middle of a change, or between a lock's note and the lock.
func (t *teamFile) tidy() {
	t.file.notes.tidy()
	t.file.sweep()
}

// leaseHolder tells who holds an identity of this team; registry.holder.
type leaseHolder func(identity string) (agentID string, pid int, held bool)

// A newMember is a session that joins. Its identity's lease is held by this process.
type newMember struct {
	name      string // its identity
	agentID   string
	model     string // "" for not known
	cwd       string
	sessionID string // Codex's thread id, "" for none yet
}

// A membership is what join had to do, and leave has to undo.
type membership struct {
	name     string // as it is listed: Claude Code and atm find the inbox by this spelling
	agentID  string
	joinedAt string
	added    bool // false: adopted
}

// memberTaken: the team has a member of that name who isn't ours to be.
type memberTaken struct {
	name, team, agentType string
	pid                   int // of the process that holds it, 0 if that isn't known
}

func (e *memberTaken) Error() string { return e.who() + "; choose another identity" }

// who is what an error begins with that has an advice of its own.
func (e *memberTaken) who() string {
	switch {
	case e.pid != 0:
		return fmt.Sprintf("member %q of team %q is in use by process %d", cutName(e.name), e.team, e.pid)
	case e.agentType == "":
		return fmt.Sprintf("team %q has a member %q already, who is no Codex agent", e.team, cutName(e.name))
	}
	return fmt.Sprintf("team %q has a member %q already, whose agentType is %q", e.team, cutName(e.name), cutName(e.agentType))
}

// memberEntry is an entry as both programs take it. atm needs the first six fields; Claude Code, of its own, writes
// tmuxPaneId and subscriptions in each, so they are there, with nothing in them.
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
	judge := func(r *roster) (text []byte, err error) {
		at, err := t.place(r, m.name, m.agentID, holder)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			e := t.entry(m, now)
			got = membership{m.name, m.agentID, fmt.Sprint(e.JoinedAt), true}
			return r.with(e), nil
		}
		there := r.member(at)
		got = membership{there.name, m.agentID, there.joinedAt, there.mark != nil}
		if there.mark == nil || *there.mark == t.mark(m.agentID) {
			return r.text, nil
		}
		return r.marked(at, t.mark(m.agentID)), nil // a crash left it
	}
	err := t.update(ctx, judge)
	if errors.As(err, new(*memberTaken)) {
		return membership{}, err
	} else if err != nil {
		return membership{}, fmt.Errorf("joining %w", err)
	}
	return got, nil
}

// mayUse tells whether that name, its inbox and what is sent in it, is the session's, listed or not: an error is
// *memberTaken, or that the members can't be read.
func (t *teamFile) mayUse(name, agentID string, holder leaseHolder) error {
	r, err := t.file.look()
	if err != nil {
		return t.told(err)
	}
	found, lead := false, r.lead()
	for _, m := range r.named {
		if strings.EqualFold(m.name, name) {
			found = true
			if err := t.ours(m, agentID, holder); err != nil {
				return err
			}
		}
	}
	if !found && lead != "" && strings.EqualFold(lead, name) {
		return &memberTaken{name: lead, team: t.team, agentType: "team-lead"}
	}
	return nil
}

// nobody is the leaseHolder of names whose leases don't matter.
func nobody(string) (agentID string, pid int, held bool) { return "", 0, false }

// place finds the entry of a session, -1 for none. Names that differ in case are one: they have one lease.
func (t *teamFile) place(r *roster, name, agentID string, holder leaseHolder) (int, error) {
	at := -1
	for i := range r.elems {
		m := r.member(i)
		if !strings.EqualFold(m.name, name) {
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

// ours refuses an entry that isn't, or is not free for, the session.
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

// sees tells that the lease of the session that added an entry would be seen here, so that it decides.
func (t *teamFile) sees(mark *memberMark) bool { return mark.Leases == t.leases }

// gone tells that the process that added an entry is dead for sure.
func (t *teamFile) gone(mark *memberMark) bool {
	return mark.Host == t.host && t.host != "" && !pidAlive(mark.PID)
}

// leave takes entries out again that join added, in one write. One that is gone, and a team that is, is no error; an
// entry that somebody made meanwhile stays.
func (t *teamFile) leave(ctx context.Context, sessions ...membership) error {
	ours := func(m member) bool {
		for _, s := range sessions {
			switch {
			case !s.added || m.name != s.name || !m.isCodex():
			case m.mark != nil && *m.mark == t.mark(s.agentID):
				return true
			case m.mark == nil && m.joinedAt == s.joinedAt: // a writer that dropped the field
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

// sweep takes out the entries of sessions whose process is gone without leaving, and returns how many. Any instance
// of the team calls it beside its start, and where a session of its own ends. again: somebody who can't be named, and
// is likely gone in a moment, has the name of one.
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
	edit := func(r *roster) ([]byte, error) {
		return r.without(func(i int) bool { return drop(r.member(i)) }), nil
	}
	if text, _ := edit(r); len(text) == len(r.text) {
		return nil
	}
	return t.update(ctx, edit)
}
