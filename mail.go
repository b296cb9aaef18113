package main

// mail.go owns the inboxes of the teams: sending to a member, reading, counting and marking what was read. Claude Code
// and `atm` read and write the same files at the same time; nobody's message may be lost, nor a field we don't know.
// The ATM tools and the sessions' mail pump call it; mail_inbox.go changes the files, mail_message.go knows a message.
// Never makes a team, never says delivered before the message stands in the file, and never overwrites a file that it
// can't understand. It waits for other writers, so it is never called on a session's own goroutine.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A mailOutcome is what became of a message that was sent.
type mailOutcome string

const (
	mailDelivered mailOutcome = "delivered" // it stands in the inbox
	mailSpooled   mailOutcome = "spooled"   // it waits in atm's spool; see mail_spool.go
)

// errInboxMalformed: it was no list of messages, and has been set aside, whole, as <inbox>.corrupt-<time>.
var errInboxMalformed = errors.New("the inbox is not a JSON array of messages")

// A mailFilter says which messages of an inbox are wanted. The zero filter is all that are unread.
type mailFilter struct {
	All   bool      // also those that were read
	Plain bool      // none of Claude Code's system frames
	Since time.Time // at or after it, and those whose time can't be read; zero: all
	From  string    // sender, in any case, as name or as name@team; "": anybody
	Limit int       // at most so many, the oldest; 0: all
}

// inboxes are the inboxes of all teams. It is safe for use by many goroutines.
type inboxes struct {
	root  string    // …/teams
	spool string    // where mail goes that can't be delivered for want of a lock; "": such mail is refused
	disk  *syncer   // fsyncs what was written, later; nil: never
	notes lockNotes // of the locks that we hold
	log   *slog.Logger

	patience time.Duration // for the locks

	mu    sync.Mutex // guards the fields below, never held over I/O
	boxes map[string]*inbox
	stamp time.Time // of our last message
}

// newInboxes touches no disk. root is the teams directory, spool atm's …/logs/atm/spool/pending or "" for none.
func newInboxes(root, spool string, notes lockNotes, disk *syncer, log *slog.Logger) *inboxes {
	return &inboxes{root: root, spool: spool, notes: notes, disk: disk, log: log, patience: lockPatience, boxes: map[string]*inbox{}}
}

// send appends a message to the member's inbox, which is made if there is none. Timestamp, Read and Key are set here;
// ID and Summary where they are empty. With an ID that stands in the inbox already, nothing is written. The id is the
// message's also when there is an error, so that the same message can be sent again. It waits at most 5 s for others.
func (x *inboxes) send(ctx context.Context, team, member string, m mailMessage) (mailOutcome, string, error) {
	again := m.ID != ""
	if !again {
		m.ID = newMessageID()
	}
	if err := checkMail(m); err != nil {
		return "", m.ID, err
	}
	if m.Summary == "" {
		m.Summary = mailSummary(m.Text)
	}
	m.Time = x.nextStamp()
	m.Timestamp = m.Time.Format(mailTimeLayout)
	box, err := x.open(team, member)
	if err == nil {
		_, err = x.update(ctx, box, again, func(in *inboxText) []mailPatch {
			if again && in.hasID(m.ID) {
				return nil
			}
			return []mailPatch{in.appendPatch(m.encode())}
		})
	}
	switch {
	case err == nil:
		return mailDelivered, m.ID, nil
	case errors.Is(err, errTeamBusy) && x.spool != "" && ctx.Err() == nil:
		x.log.Warn("inbox is locked, message spooled", "team", team, "member", member, "message_id", m.ID, "error", err)
		if err2 := spoolMail(x.spool, team, member, m, m.Time); err2 != nil {
			return "", m.ID, x.told(team, member, errors.Join(err, err2))
		}
		return mailSpooled, m.ID, nil
	}
	return "", m.ID, x.told(team, member, err)
}

// list returns the messages that the filter lets through, oldest first, and how many more there are behind the limit.
// A missing inbox is empty. The inbox isn't locked; what others write is always whole.
func (x *inboxes) list(ctx context.Context, team, member string, want mailFilter) (msgs []mailMessage, remaining int, err error) {
	type dated struct {
		mailFields
		at time.Time
	}
	var found []dated
	var last time.Time
	err = x.visit(ctx, team, member, !want.All, func(m mailFields) {
		at := m.time()
		if want.Plain && m.message().Kind != mailPlain {
			return
		}
		if read := m.isRead(); (want.All || !read) && (at.IsZero() || !at.Before(want.Since)) && m.isFrom(want.From) {
			d := dated{m, at}
			if at.IsZero() {
				d.at = last // its place in the file is what is left
			}
			found = append(found, d)
		}
		if !at.IsZero() {
			last = at
		}
	})
	if err != nil {
		return nil, 0, x.told(team, member, err)
	}
	slices.SortStableFunc(found, func(a, b dated) int { return a.at.Compare(b.at) })
	if want.Limit > 0 && len(found) > want.Limit {
		remaining = len(found) - want.Limit
		found = found[:want.Limit]
	}
	for _, d := range found {
		msgs = append(msgs, d.message())
	}
	return msgs, remaining, nil
}

// count is the number of unread messages. The file of an unchanged inbox isn't read again.
func (x *inboxes) count(ctx context.Context, team, member string) (int, error) {
	box, info, err := x.find(team, member)
	if box == nil {
		return 0, x.told(team, member, err)
	}
	if known, ok := box.state(info); ok && known.unread >= 0 {
		return known.unread, nil
	}
	unread := 0
	err = x.visit(ctx, team, member, false, func(m mailFields) {
		if !m.isRead() {
			unread++
		}
	})
	return unread, x.told(team, member, err)
}

// markRead marks the messages of these keys, and no others, as read. Those that are gone or were read before don't
// count. It waits at most 5 s for others; errTeamBusy then, and nothing is marked.
func (x *inboxes) markRead(ctx context.Context, team, member string, keys []string) (marked int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	box, _, err := x.find(team, member)
	if box == nil {
		return 0, x.told(team, member, err)
	}
	wanted := map[string]bool{}
	for _, k := range keys {
		wanted[k] = true
	}
	_, err = x.update(ctx, box, true, func(in *inboxText) []mailPatch {
		marked = 0
		var patches []mailPatch
		in.eachMessage(func(offset int, raw []byte, m mailFields) {
			if !m.isRead() && wanted[m.key()] {
				marked++
				patches = append(patches, readPatches(raw, offset)...)
			}
		})
		return patches
	})
	if err != nil {
		return 0, x.told(team, member, err)
	}
	return marked, nil
}

// visit calls f with every message of an inbox, in the file's order. With unread, an inbox that is known to have none
// isn't read at all. A malformed inbox is set aside, which is an error: whoever reads should know that mail is there.
func (x *inboxes) visit(ctx context.Context, team, member string, unread bool, f func(m mailFields)) error {
	box, info, err := x.find(team, member)
	if box == nil {
		return err
	}
	if known, ok := box.state(info); ok && unread && known.unread == 0 {
		return nil
	}
	in, err := box.read(true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, errInboxMalformed) {
		// Perhaps it was just being written in place, as Claude Code does where it can't rename. Locked, it is whole.
		aside, err := x.update(ctx, box, true, func(*inboxText) []mailPatch { return nil })
		if err != nil {
			return err
		}
		if aside != nil {
			return fmt.Errorf("%w; nothing is lost, it is beside it now, named %s.corrupt-…", aside, filepath.Base(box.path))
		}
		if in, err = box.read(true); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	defer in.close()
	count := 0
	in.eachMessage(func(_ int, _ []byte, m mailFields) {
		if !m.isRead() {
			count++
		}
		f(m)
	})
	box.remember(in, count)
	return nil
}

// find returns the inbox if there is one; without one, the error is nil if only the inbox is missing.
func (x *inboxes) find(team, member string) (*inbox, fs.FileInfo, error) {
	path, err := x.path(team, member)
	if err != nil {
		return nil, nil, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, x.teamThere(team)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("opening the inbox: %w", err)
	}
	return x.box(path), info, nil
}

// open is find for a sender: an inbox that isn't there is made, but never the team.
func (x *inboxes) open(team, member string) (*inbox, error) {
	path, err := x.path(team, member)
	if err != nil {
		return nil, err
	}
	if err := x.teamThere(team); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, mailPathError(err)
	}
	if err := createInbox(path); err != nil {
		return nil, err
	}
	return x.box(path), nil
}

func (x *inboxes) path(team, member string) (string, error) {
	if err := validTeam(team); err != nil {
		return "", err
	}
	if err := validIdentity(member); err != nil {
		return "", err
	}
	return filepath.Join(x.root, team, "inboxes", member+".json"), nil
}

// teamThere is errNoTeam unless the team lives. Its config.json is what makes a directory a team.
func (x *inboxes) teamThere(team string) error {
	_, err := os.Stat(filepath.Join(x.root, team, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return errNoTeam
	}
	if err != nil {
		return fmt.Errorf("looking for the team: %w", err)
	}
	return nil
}

func (x *inboxes) box(path string) *inbox {
	x.mu.Lock()
	defer x.mu.Unlock()
	box := x.boxes[path]
	if box == nil {
		box = &inbox{path: path, turn: make(chan struct{}, 1)}
		x.boxes[path] = box
	}
	return box
}

// nextStamp never gives one time twice: Claude Code takes messages with the same sender, time and text for one.
func (x *inboxes) nextStamp() time.Time {
	now := time.Now().UTC().Truncate(time.Millisecond)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !now.After(x.stamp) {
		now = x.stamp.Add(time.Millisecond)
	}
	x.stamp = now
	return now
}

// told says whose inbox an error is about.
func (x *inboxes) told(team, member string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mail of %q in team %q: %w", cutName(member), cutName(team), err)
}

// mailPathError says what to do about an inbox, or its directory, that can't be written or locked.
func mailPathError(err error) error {
	var p *fs.PathError
	switch {
	case errors.Is(err, errTeamBusy):
		return err
	case !errors.As(err, &p):
		return fmt.Errorf("opening the inbox: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w (%s)", errNoTeam, p.Path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("opening the inbox: %w; make %s writable", err, filepath.Dir(p.Path))
	}
	if info, err2 := os.Stat(p.Path); err2 == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory where a file should be; move it away", p.Path)
	}
	if errors.Is(err, errNotRegular) || errors.Is(err, errLinked) {
		return fmt.Errorf("opening the inbox: %w; move it away", err)
	}
	return fmt.Errorf("opening the inbox: %w", err)
}

// isFrom compares names as `atm` and Claude Code do; a name without a team means the sender of any team.
func (m mailFields) isFrom(want string) bool {
	if want == "" {
		return true
	}
	from := looseText(m.from)
	if strings.EqualFold(from, want) {
		return true
	}
	name, team, ok := strings.Cut(from, "@")
	if !ok {
		team = looseText(m.team)
	}
	return strings.EqualFold(name, want) || team != "" && strings.EqualFold(name+"@"+team, want)
}
