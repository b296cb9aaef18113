package main

// mail.go owns the inboxes of the teams: sending to a member, reading, counting and marking what was read. Claude Code
// and `atm` read and write the same files at the same time; nobody's message may be lost, nor a field we don't know.
// The ATM tools and the sessions' mail call it; mail_shared.go changes the files, mail_message.go knows one message.
// Never makes a team, never says delivered before the message stands in the file, and never overwrites a file that it
// can't understand. It waits for other writers, so no session calls it on the goroutine of its loop.

import (
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
	mailSpooled   mailOutcome = "spooled"   // it stands in atm's spool, from which atm delivers it
)

const (
	maxInbox       = 256 << 20 // bytes
	mailSpoolTries = 10        // after so many of its tries atm moves the message to failed/
)

// errInboxMalformed: an inbox was no list of messages, and has been set aside, whole, as <inbox>.corrupt-<time>.
var errInboxMalformed = errors.New("the inbox is not a JSON array of messages")

// A mailFilter says which messages of an inbox are wanted. The zero filter is all that are unread.
type mailFilter struct {
	All   bool      // also messages that were read before
	Plain bool      // no system frames of Claude Code
	Since time.Time // messages of this time or later, and those whose time can't be read; zero: of any time
	From  string    // the sender, in any case, as name or as name@team; "": anybody
	Limit int       // how many at most, the oldest; 0: no limit
}

// inboxes are the inboxes of all teams. It is safe for use by many goroutines.
type inboxes struct {
	root  string  // the teams directory
	spool string  // where mail goes that can't be delivered for want of a lock; "": such mail is refused
	disk  *syncer // fsyncs later what was written; nil: nothing is fsynced
	log   *slog.Logger

	patience time.Duration // how long the locks of one change are waited for

	mu    sync.Mutex        // guards the fields below, never held over I/O
	boxes map[string]*inbox // by path
	stamp time.Time         // of the last message that was sent
}

// An inbox is one file of messages.
type inbox = sharedFile[messageList]

// An inboxText is an inbox that is open.
type inboxText = sharedText[messageList]

// A messageList is what is found in an inbox's text.
type messageList struct {
	elems   []span // of the array, whether they are messages or not
	closing int    // where the array's bracket is; -1: the text is blank and has no array
	unread  int    // how many messages are
}

// newInboxes touches no disk. spool is atm's …/logs/atm/spool/pending, "" for none.
func newInboxes(root, spool string, disk *syncer, log *slog.Logger) *inboxes {
	return &inboxes{root: root, spool: spool, disk: disk, log: log, patience: lockPatience,
		boxes: map[string]*inbox{}}
}

// send appends a message to the member's inbox, which is made if there is none. It sets Timestamp, and ID and Summary
// where they are empty. Nothing is written if a given ID stands in the inbox already. The message's id is returned
// with an error too, so that the same message can be sent again. It waits at most 5 s for other writers.
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
		_, err = x.update(ctx, box, func(in *inboxText) []patch {
			there := false
			if again {
				eachMessage(in, func(_ span, was mailFields) { there = there || looseText(was.id) == m.ID })
			}
			if there {
				return nil
			}
			return []patch{appendPatch(in, m.encode())}
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

// spoolMail writes a message, whose inbox others kept locked all the time, into the directory where atm looks for
// such mail, in atm's shape.
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
// A missing inbox is empty. The inbox isn't locked, since every writer replaces it whole.
func (x *inboxes) list(ctx context.Context, team, member string, want mailFilter) (msgs []mailMessage, remaining int,
	err error) {
	in, err := x.read(ctx, team, member, !want.All)
	if in == nil {
		return nil, 0, x.told(team, member, err)
	}
	defer in.close()
	type dated struct {
		mailFields
		at time.Time
	}
	var found []dated
	var last time.Time
	eachMessage(in, func(_ span, m mailFields) {
		at := m.time()
		d := dated{m, at}
		if at.IsZero() {
			d.at = last // its place in the file is what is left
		} else {
			last = at
		}
		if (want.All || !m.isRead()) && (at.IsZero() || !at.Before(want.Since)) && m.isFrom(want.From) &&
			!(want.Plain && m.message().Kind != mailPlain) {
			found = append(found, d)
		}
	})
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
	if known, ok := box.knownOf(info); ok {
		return known.unread, nil
	}
	in, err := x.read(ctx, team, member, true)
	if in == nil {
		return 0, x.told(team, member, err)
	}
	defer in.close()
	return in.parsed.unread, nil
}

// markRead marks the messages of these keys, and no others, as read. marked doesn't count messages that are gone or
// were read before. It waits at most 5 s for other writers; after errTeamBusy nothing is marked.
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
	_, err = x.update(ctx, box, func(in *inboxText) []patch {
		marked = 0
		var patches []patch
		eachMessage(in, func(at span, m mailFields) {
			if !m.isRead() && wanted[m.key()] {
				marked++
				patches = append(patches, readPatches(in.text[at.from:at.to], at.from)...)
			}
		})
		return patches
	})
	if err != nil {
		return 0, x.told(team, member, err)
	}
	return marked, nil
}

// update changes an inbox as sharedFile.update has it, within x.patience.
func (x *inboxes) update(ctx context.Context, box *inbox, edit func(in *inboxText) []patch) (aside, err error) {
	ctx, cancel := context.WithTimeout(ctx, x.patience)
	defer cancel()
	aside, err = box.update(ctx, func(in *inboxText) ([]patch, error) { return edit(in), nil })
	if err != nil {
		err = mailPathError(err)
	}
	return aside, err
}

// read opens an inbox, which the caller closes; nil if there is none or, with unread, if it is known to have no unread
// message. A malformed inbox is set aside, which is an error: whoever reads should know that mail is there.
func (x *inboxes) read(ctx context.Context, team, member string, unread bool) (*inboxText, error) {
	box, info, err := x.find(team, member)
	if box == nil {
		return nil, err
	}
	if known, ok := box.knownOf(info); ok && unread && known.unread == 0 {
		return nil, nil
	}
	in, err := box.read()
	if errors.Is(err, errInboxMalformed) {
		// Perhaps it was just being written in place, as Claude Code does where it can't rename. Under the locks it
		// is whole.
		switch aside, failed := x.update(ctx, box, func(*inboxText) []patch { return nil }); {
		case failed != nil:
			return nil, failed
		case aside != nil:
			return nil, fmt.Errorf("%w; nothing is lost, it is beside it now, named %s.corrupt-…", aside,
				filepath.Base(box.path))
		}
		in, err = box.read()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // it went just now
	case err != nil:
		return nil, mailPathError(err)
	}
	return in, nil
}

// find returns the inbox, nil if there is none; the error is nil if only the inbox is missing, and not its team.
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

// open returns the inbox for a sender: a missing inbox is made, a missing team never.
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
		box = &inbox{path: path, parse: parseInbox, malformed: errInboxMalformed, begin: "[]", limit: maxInbox,
			looks: 1, disk: x.disk, log: x.log, turn: make(chan struct{}, 1)}
		x.boxes[path] = box
	}
	return box
}

// nextStamp gives no time twice: Claude Code takes messages with the same sender, time and text for one message.
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

// parseInbox finds the messages, or says that the text is no array. Bytes that are no UTF-8 may stand in its strings:
// Claude Code reads such a file. A file of blanks has nothing to lose, and is an empty array.
func parseInbox(text []byte) (messageList, error) {
	begin := skipSpace(text, 0)
	if begin == len(text) {
		return messageList{closing: -1}, nil
	}
	elems, closing, ok := elementSpans(text, begin)
	if !ok || skipSpace(text, closing+1) != len(text) {
		what := "it is no JSON"
		if _, whole := scanValue(text, begin, 0); whole && text[begin] != '[' {
			what = "it is no array"
		}
		return messageList{}, fmt.Errorf("%s (near byte %d of %d)", what, min(closing, len(text)), len(text))
	}
	list := messageList{elems: elems, closing: closing}
	for _, e := range elems {
		if m, ok := mailFieldsOf(text[e.from:e.to]); ok && !m.isRead() {
			list.unread++
		}
	}
	return list, nil
}

// appendPatch puts an element behind the last one.
func appendPatch(in *inboxText, elem []byte) patch {
	list := in.parsed
	switch n := len(list.elems); {
	case list.closing < 0:
		return patch{at: 0, drop: len(in.text), put: slices.Concat([]byte("[\n  "), elem, []byte("\n]"))}
	case n == 0:
		begin := skipSpace(in.text, 0) + 1
		return patch{at: begin, drop: list.closing - begin, put: slices.Concat([]byte("\n  "), elem, []byte("\n"))}
	default:
		last := list.elems[n-1].to
		return patch{at: last, drop: list.closing - last, put: slices.Concat([]byte(",\n  "), elem, []byte("\n"))}
	}
}

// eachMessage calls f with every element that is a message, and where in the text it stands.
func eachMessage(in *inboxText, f func(at span, m mailFields)) {
	for _, e := range in.parsed.elems {
		if m, ok := mailFieldsOf(in.text[e.from:e.to]); ok {
			f(e, m)
		}
	}
}
