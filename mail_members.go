package main

// mail_members.go owns who is a member of a team: an entry in config.json is what Claude Code and `atm` need to write
// to a session. Sessions call it when they join, leave and are asked whether their inbox is theirs; an instance calls
// sweep as it starts. An entry that carries our mark is ours; one that `atm add-member` prepared for a Codex agent is
// adopted and never removed; any other entry is somebody else's. A change is a patch of the text, so every other byte
// stays: unknown fields, order, the spelling of numbers, the members of others.
// Here is also whom an address means, "agent" or "agent@team": [roles] and [aliases] of .atm.toml are resolved as `atm`
// resolves them, and only members of a team that exists are written to. An address that is refused is answered with the
// members and the nearest name, since a model wrote it and tries again.
// Never touches another's entry, never makes a team, and never overwrites a file that it can't understand: what looks
// broken may be half of what Claude Code is just writing. Never makes a path of a name that it hasn't checked.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
		path:  filepath.Join(dir, "config.json"),
		parse: parseRoster, malformed: errTeamDamaged, limit: maxTeamConfigSize,
		looks: 20, // Claude Code truncates config.json and then writes it, at times without a lock, and maybe slowly
		turn:  make(chan struct{}, 1),
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

// tidy removes temporary files of a change that a crash left.
func (t *teamFile) tidy() { t.file.sweep() }

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
	return fmt.Sprintf("team %q has a member %q already, whose agentType is %q", e.team, cutName(e.name),
		cutName(e.agentType))
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
		return membership{}, fmt.Errorf("joining team %q: Claude Code keeps the name %q for itself; choose another "+
			"identity", t.team, m.name)
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

// leave takes out, in one write, the entries that join added. An entry or a team that is gone is no error; an entry
// that somebody else made meanwhile stays.
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

// A roster is a config.json that has a list of members.
type roster struct {
	text    []byte
	list    span     // of the array of members, with its brackets
	elems   []span   // of the array's elements, whatever they are
	members []member // of elems, one for one; the zero member for what is no entry
	named   []member // those of members that have a name; not to be changed
}

// A member is an entry as we read it; what isn't there, or of another type, is "". Only the name is essential: Claude
// Code's entry of the lead, for one, has no model.
type member struct {
	name, agentType string
	externalBackend string      // atm's externalBackendType
	joinedAt        string      // the number as it is spelt
	mark            *memberMark // nil: no process of ours added the entry
}

// markKey is the field by which our entries are known. Claude Code and atm keep fields that they don't know.
const markKey = "atmAgentMcp"

// A memberMark stands in an entry that a process of ours added.
type memberMark struct {
	PID    int    `json:"pid"`
	Host   string `json:"host"`
	Agent  string `json:"agent"`  // agent_id of the session
	Leases string `json:"leases"` // the directory that holds the lease of the session's identity
}

// parseRoster refuses a text that isn't whole or has no members: nothing may be written over such a file.
func parseRoster(text []byte) (*roster, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("it is empty")
	}
	if !validJSON(text) {
		return nil, errors.New("it is not valid JSON")
	}
	r := &roster{text: text}
	if at, found := fieldSpan(text, span{skipSpace(text, 0), len(text)}, "members"); found {
		if elems, closing, ok := elementSpans(text, at.from); ok {
			r.elems, r.list = elems, span{at.from, closing + 1}
		}
	}
	if r.list.to == 0 {
		return nil, errors.New("it has no list of members")
	}
	for _, e := range r.elems {
		m := parseMember(text[e.from:e.to:e.to])
		if r.members = append(r.members, m); m.name != "" {
			r.named = append(r.named, m)
		}
	}
	return r, nil
}

// fieldSpan finds the value of a field of an object. The last of two equal keys counts, as for all who read the file.
func fieldSpan(text []byte, obj span, key string) (found span, ok bool) {
	for f := fieldsOf(text[obj.from:obj.to]); f.next(); {
		if string(f.key) == key {
			found, ok = span{obj.from + f.at, obj.from + f.at + len(f.val)}, true
		}
	}
	return found, ok
}

func parseMember(raw json.RawMessage) member {
	m := member{
		name: stringField(raw, "name"), agentType: stringField(raw, "agentType"),
		externalBackend: stringField(raw, "externalBackendType"), joinedAt: string(rawField(raw, "joinedAt")),
	}
	if v := rawField(raw, markKey); rawKind(v) == '{' {
		m.mark = new(memberMark)
		if json.Unmarshal(v, m.mark) != nil {
			m.mark = nil // somebody else's field of the same name
		}
	}
	return m
}

// lead is the name of the team's lead, who may not be among the members.
func (r *roster) lead() string {
	name, _, _ := strings.Cut(stringField(r.text, "leadAgentId"), "@")
	return name
}

// isCodex tells whether an entry is a Codex agent's: `atm add-member` prepares such entries, and we add them.
func (m member) isCodex() bool { return m.agentType == "codex" || m.externalBackend == "codex" }

// with adds one more entry at the end, laid out as the entry before it.
func (r *roster) with(entry any) patch {
	compact := toJSON(entry)
	if len(r.elems) == 0 {
		put := "[" + string(compact) + "]"
		if line := lineIndent(r.text, r.list.from); bytes.ContainsRune(r.text, '\n') {
			put = "[\n" + line + "  " + indented(compact, line+"  ") + "\n" + line + "]"
		}
		return patch{at: r.list.from, drop: r.list.to - r.list.from, put: []byte(put)}
	}
	last := r.elems[len(r.elems)-1]
	from := last.from
	for r.text[from-1] != ',' && from > r.list.from+1 {
		from--
	}
	gap := string(r.text[from:last.from])
	text := string(compact)
	if at := strings.LastIndexByte(gap, '\n'); at >= 0 {
		text = indented(compact, gap[at+1:])
	}
	return patch{at: last.to, put: []byte("," + gap + text)}
}

// without takes out the entries that drop names. A run of them goes with the comma before the run or, at the beginning
// of the list, with the comma after it.
func (r *roster) without(drop func(m member) bool) (cuts []patch) {
	for i := 0; i < len(r.elems); i++ {
		first := i
		for i < len(r.elems) && drop(r.members[i]) {
			i++
		}
		cut := span{r.list.from + 1, r.list.to - 1} // all
		switch {
		case i == first:
			continue
		case first > 0:
			cut = span{r.elems[first-1].to, r.elems[i-1].to}
		case i < len(r.elems):
			cut = span{r.elems[0].from, r.elems[i].from}
		}
		cuts = append(cuts, patch{at: cut.from, drop: cut.to - cut.from})
	}
	return cuts
}

// marked puts another mark into the entry i, which has one.
func (r *roster) marked(i int, mark memberMark) patch {
	at, ok := fieldSpan(r.text, r.elems[i], markKey)
	if !ok {
		panic("BUG: marking an entry that has no mark")
	}
	return patch{at: at.from, drop: at.to - at.from, put: toJSON(mark)}
}

// lineIndent is the white space at the beginning of the line that holds i.
func lineIndent(text []byte, i int) string {
	from := bytes.LastIndexByte(text[:i], '\n') + 1
	to := from
	for text[to] == ' ' || text[to] == '\t' {
		to++
	}
	return string(text[from:to])
}

func indented(compact []byte, prefix string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, compact, prefix, "  "); err != nil {
		panic("BUG: indenting our own value: " + err.Error())
	}
	return b.String()
}

// maxNamesTold is how many members an error lists.
const maxNamesTold = 30

// A badRecipient is an address that means nobody. Its text is for the caller.
type badRecipient struct {
	text string
	err  error // the error that text has better words for, nil for none
}

func (e *badRecipient) Error() string { return e.text }
func (e *badRecipient) Unwrap() error { return e.err }

// An addressBook is what this process knows of names.
type addressBook struct {
	own            *teamFile
	root           string            // the teams' directory
	aliases, roles map[string]string // config.aliases and config.atmRoles
}

// A recipient is a member of a team. Both names may become paths.
type recipient struct {
	name, team string
	file       *teamFile
	listed     bool // false: a live session of our team that hasn't joined
}

// recipient finds whom an address means. sender is the identity that writes, a member of our own team. live tells
// whether a session of our team has an identity: its inbox is delivered, listed or not. An error is *badRecipient,
// errNoTeam or errTeamDamaged.
func (b addressBook) recipient(to, sender string, live func(identity string) bool) (recipient, error) {
	agent, team, err := b.split(to)
	if err != nil {
		return recipient{}, err
	}
	file, err := b.teamFile(team)
	if err != nil {
		return recipient{}, err
	}
	all, err := file.list()
	if err != nil {
		return recipient{}, b.noTeam(err, team)
	}
	name, meaning := b.resolve(agent)
	names := make([]string, 0, len(all))
	for _, m := range all {
		names = append(names, m.name)
	}
	found := memberNamed(name, names)
	r := recipient{name: found, team: team, file: file, listed: found != ""}
	if !r.listed && file == b.own && live != nil && validIdentity(name) == nil && live(name) {
		r.name = name
	}
	switch {
	case r.name == "":
		return recipient{}, b.unknown(name, meaning, team, names)
	case validIdentity(r.name) != nil:
		return recipient{}, &badRecipient{text: fmt.Sprintf("member %q of team %q can't be written to: Claude Code "+
			"and atm keep the inbox of such a name in different files", cutName(r.name), team)}
	case file == b.own && strings.EqualFold(r.name, sender):
		return recipient{}, &badRecipient{text: fmt.Sprintf("recipient %q is the sender itself; %s", r.name,
			membersTold(namesBut(names, sender), team))}
	}
	return r, nil
}

// mayAct tells whether an agent may send and read as identity. An error is *memberTaken, or says that the members can't
// be read. A role or an alias that stands for a member is that member's name too.
func (b addressBook) mayAct(identity, agentID string, holder leaseHolder) error {
	if err := b.own.mayUse(identity, agentID, holder); err != nil {
		return err
	}
	if name, meaning := b.resolve(identity); meaning != "" {
		return b.own.mayUse(name, "", nobody)
	}
	return nil
}

// strange tells the member because of whom a name can't be given to an agent, nil for none. Where the members can't be
// read the name is left to mayAct, which is asked at every use of it.
func (b addressBook) strange(name string) *memberTaken {
	var taken *memberTaken
	errors.As(b.mayAct(name, "", nobody), &taken)
	return taken
}

func (b addressBook) isStrange(name string) bool { return b.strange(name) != nil }

// split cuts an address as atm does: at the first @, both halves trimmed, neither empty.
func (b addressBook) split(to string) (agent, team string, err error) {
	agent, team, at := strings.Cut(to, "@")
	agent, team = strings.TrimSpace(agent), strings.TrimSpace(team)
	switch {
	case agent == "" && !at:
		return "", "", &badRecipient{text: `there is no recipient: "to" is a member's name, or name@team`}
	case agent == "":
		return "", "", &badRecipient{text: fmt.Sprintf("recipient %q has no name before the @", cutName(to))}
	case agent == "*":
		return "", "", &badRecipient{text: `recipient "*": atm_broadcast writes to all members`}
	case !at:
		return agent, b.own.team, nil
	case team == "":
		return "", "", &badRecipient{text: fmt.Sprintf("recipient %q has no team after the @", cutName(to))}
	}
	return agent, team, nil
}

// teamFile checks a team's name, since the name becomes a path.
func (b addressBook) teamFile(team string) (*teamFile, error) {
	if team == b.own.team {
		return b.own, nil
	}
	if err := validTeam(team); err != nil {
		return nil, &badRecipient{text: err.Error()}
	}
	return newTeamFile(b.root, team, b.own.leases), nil
}

// resolve looks a name up in roles, then aliases, once and with its case, as atm does. A role or alias goes before a
// member of the same name. meaning begins an error about a name that was resolved; "" for any other name.
func (b addressBook) resolve(agent string) (name, meaning string) {
	if to, ok := b.roles[agent]; ok {
		return to, fmt.Sprintf("role %q stands for", cutName(agent))
	}
	if to, ok := b.aliases[agent]; ok {
		return to, fmt.Sprintf("alias %q stands for", cutName(agent))
	}
	return agent, ""
}

// memberNamed finds a name in any case, and prefers the same case: other programs may list both.
func memberNamed(name string, names []string) string {
	if slices.Contains(names, name) {
		return name
	}
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
	}
	return ""
}

func (b addressBook) unknown(name, meaning, team string, names []string) error {
	if meaning != "" {
		return &badRecipient{text: fmt.Sprintf("%s %q, who is no member of team %q; %s", meaning, cutName(name), team,
			membersTold(names, team))}
	}
	words := slices.Concat(names, slices.Sorted(maps.Keys(b.roles)), slices.Sorted(maps.Keys(b.aliases)))
	return &badRecipient{text: fmt.Sprintf("unknown recipient %q; %s%s", cutName(name), membersTold(names, team),
		didYouMean(name, words))}
}

// noTeam tells the nearest team's name. It is a badRecipient, since a missing team of others says nothing of our own
// mail.
func (b addressBook) noTeam(err error, team string) error {
	if !errors.Is(err, errNoTeam) || team == b.own.team {
		return err
	}
	names, _ := teamQuery{root: b.root}.teamNames()
	return &badRecipient{text: err.Error() + didYouMean(team, names), err: err}
}

func membersTold(names []string, team string) string {
	if len(names) == 0 {
		return fmt.Sprintf("team %q has no other members", team)
	}
	more := ""
	if n := len(names) - maxNamesTold; n > 0 {
		names, more = names[:maxNamesTold], fmt.Sprintf(" and %d more", n)
	}
	short := make([]string, len(names))
	for i, n := range names {
		short[i] = cutName(n)
	}
	return fmt.Sprintf("members of team %q are %s%s", team, strings.Join(short, ", "), more)
}

func namesBut(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.EqualFold(n, name) })
}
