package main

// mail.go owns the inboxes of the teams: sending to a member, reading, counting and marking what was read. Claude Code
// and `atm` read and write the same files at the same time; nobody's message may be lost, nor a field we don't know.
// The ATM tools and the sessions' mail pump call it; mail_shared.go changes the files, mail_message.go knows a message.
// Never makes a team, never says delivered before the message stands in the file, and never overwrites a file that it
// can't understand. It waits for other writers, so it is never called on a session's own goroutine.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
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
	mailSpooled   mailOutcome = "spooled"   // it waits in atm's spool, and is tried again by atm
)

const (
	maxInbox       = 256 << 20 // bytes
	mailSpoolTries = 10        // atm's: then it moves the message to failed/
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

	mu    sync.Mutex        // guards the fields below, never held over I/O
	boxes map[string]*inbox // by path
	stamp time.Time         // of our last message
}

// An inbox is one file of messages.
type inbox = sharedFile[inboxShape]

// inboxShape is where an array ends, behind its last element and at its bracket, and how many messages in it are unread.
type inboxShape struct {
	last, closing int
	empty         bool
	unread        int // -1: not counted
}

// inboxText is an inbox that is open.
type inboxText struct{ *sharedText[inboxShape] }

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
		_, err = x.update(ctx, box, again, func(in inboxText) []patch {
			if again && in.hasID(m.ID) {
				return nil
			}
			return []patch{in.appendPatch(m.encode())}
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

// spoolMail writes a message that couldn't be put into its inbox, because others held the locks all the time, into dir,
// where atm looks for such mail: its …/spool/pending, in its shape.
func spoolMail(dir, team, member string, m mailMessage, now time.Time) error {
	stamp := now.UTC().Format(mailTimeLayout)
	text, err := json.MarshalIndent(struct {
		TargetTeam  string          `json:"target_team"`
		TargetAgent string          `json:"target_agent"`
		Message     json.RawMessage `json:"message"`
		RetryCount  int             `json:"retry_count"`
		MaxRetries  int             `json:"max_retries"`
		CreatedAt   string          `json:"created_at"`
		LastAttempt string          `json:"last_attempt"`
	}{team, member, m.encode(), 0, mailSpoolTries, stamp, stamp}, "", "  ")
	if err != nil {
		panic("BUG: marshalling a spooled message: " + err.Error())
	}
	var b [4]byte
	rand.Read(b[:]) // never fails
	name := fmt.Sprintf("%d-%x-%s@%s.json", now.Unix(), b, member, team)
	if err := writeWhole(filepath.Join(dir, name), text); err != nil {
		return fmt.Errorf("spooling the message: %w", err)
	}
	return nil
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
	_, err = x.update(ctx, box, true, func(in inboxText) []patch {
		marked = 0
		var patches []patch
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

// update changes an inbox; see sharedFile.update. aside is not nil if the inbox was malformed and has been set aside.
func (x *inboxes) update(ctx context.Context, box *inbox, whole bool, edit func(in inboxText) []patch) (aside, err error) {
	ctx, cancel := context.WithTimeout(ctx, x.patience)
	defer cancel()
	aside, err = box.update(ctx, whole, func(t *sharedText[inboxShape]) ([]patch, error) { return edit(inboxText{t}), nil })
	if err != nil {
		err = mailPathError(err)
	}
	return aside, err
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
	t, err := box.read(true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, errInboxMalformed) {
		// Perhaps it was just being written in place, as Claude Code does where it can't rename. Locked, it is whole.
		aside, err := x.update(ctx, box, true, func(inboxText) []patch { return nil })
		if err != nil {
			return err
		}
		if aside != nil {
			return fmt.Errorf("%w; nothing is lost, it is beside it now, named %s.corrupt-…", aside, filepath.Base(box.path))
		}
		if t, err = box.read(true); err != nil {
			return mailPathError(err)
		}
	} else if err != nil {
		return mailPathError(err)
	}
	defer t.close()
	shape := t.parsed
	shape.unread = 0
	inboxText{t}.eachMessage(func(_ int, _ []byte, m mailFields) {
		if !m.isRead() {
			shape.unread++
		}
		f(m)
	})
	box.remember(t, shape)
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
	box := x.box(path)
	if err := box.create(); err != nil {
		return nil, mailPathError(err)
	}
	return box, nil
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
		box = &inbox{path: path, parse: shapeOf, malformed: errInboxMalformed, begin: "[]", limit: maxInbox, looks: 1,
			notes: x.notes, disk: x.disk, log: x.log, turn: make(chan struct{}, 1)}
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
	case errors.Is(err, errTooLarge):
		return fmt.Errorf("%w; move it away", err)
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

// shapeOf finds the array's end, or says that the text is none. Bytes that are no UTF-8 may stand in its strings:
// Claude Code reads such a file. A file of blanks has nothing to lose, and is an empty array.
func shapeOf(text []byte) (inboxShape, error) {
	i := skipSpace(text, 0)
	if i == len(text) {
		return inboxShape{empty: true, unread: -1}, nil
	}
	end, ok := scanValue(text, i, 0)
	if !ok || text[i] != '[' || skipSpace(text, end) != len(text) {
		what := "it is no JSON"
		if ok && text[i] != '[' {
			what = "it is no array"
		}
		return inboxShape{}, fmt.Errorf("%s (near byte %d of %d)", what, min(end, len(text)), len(text))
	}
	s := inboxShape{closing: end - 1, unread: -1}
	s.last = len(bytes.TrimRight(text[:s.closing], " \t\r\n"))
	s.empty = s.last == i+1
	return s, nil
}

// appendPatch puts an element behind the last.
func (in inboxText) appendPatch(elem []byte) patch {
	s := in.parsed
	p := patch{at: s.last, drop: s.closing - s.last}
	switch {
	case s.empty && s.closing == 0: // a file of blanks
		p.put = slices.Concat([]byte("[\n  "), elem, []byte("\n]"))
	case s.empty:
		p.put = slices.Concat([]byte("\n  "), elem, []byte("\n"))
	default:
		p.put = slices.Concat([]byte(",\n  "), elem, []byte("\n"))
	}
	return p
}

// eachMessage calls f with every element that is a message, and where in the text it stands.
func (in inboxText) eachMessage(f func(offset int, raw []byte, m mailFields)) {
	if in.parsed.empty {
		return
	}
	for i := skipSpace(in.text, 0) + 1; i < in.parsed.last; i++ { // over the bracket, then over each comma
		i = skipSpace(in.text, i)
		end, ok := scanValue(in.text, i, 1)
		if !ok {
			return // it was checked: not reached
		}
		if m, ok := mailFieldsOf(in.text[i:end]); ok {
			f(i, in.text[i:end], m)
		}
		i = skipSpace(in.text, end)
	}
}

// hasID needs the text.
func (in inboxText) hasID(id string) (found bool) {
	in.eachMessage(func(_ int, _ []byte, m mailFields) { found = found || looseText(m.id) == id })
	return found
}
