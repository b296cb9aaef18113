package main

// mail_shared.go owns a file of a team that other programs write too, an inbox or config.json: it is read whole,
// changed by patches of its bytes, and replaced whole under the two locks of mail_lock.go. mail.go and mail_members.go
// are the callers. Slow work (reading, checking, writing the new file) is done under atm's lock alone; Claude Code's
// lock is taken only for a last look whether the file is still the same, and for the rename.
// Never changes a byte that no patch names, never writes over a text that can't be parsed, and never leaves half a
// file: a kill -9 leaves the old file or the new one, and at most a temporary file, which a later change sweeps.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	sharedRest    = 20 * time.Millisecond  // the longest time for which the locks are left to others after a change
	sharedSettled = 100 * time.Millisecond // a file changed more recently may change again within one tick of its clock
	// how often a change is prepared; then the file is left to a writer without locks
	sharedTries   = 4
	sharedLoose   = 2                     // so many of the tries prepare under atm's lock alone, the others under both
	halfReadPause = 25 * time.Millisecond // between two readings of a file that its writer may have truncated just now
)

// errSharedChanged: while the new file was prepared or put in place, somebody else wrote another text.
var errSharedChanged = errors.New("the file changed meanwhile")

// A sharedFile is one file, and what is known of its text. P is what the file's owner finds in a text. Many goroutines
// may use it at once.
type sharedFile[P any] struct {
	path      string
	parse     func(text []byte) (P, error)
	malformed error   // wraps what parse says against a text
	begin     string  // the text of a new file; "": no file is made, and one that can't be parsed is not set aside
	limit     int64   // bytes; a larger file is neither read nor written
	looks     int     // how often a text that can't be parsed is read, since a writer without a lock may be at it
	disk      *syncer // fsyncs later what was written; nil: nothing is fsynced
	log       *slog.Logger
	placed    func() // called when a new file was just put in place; only tests set it

	turn  chan struct{} // has room for the one goroutine of this process that changes the file
	queue lockQueue     // used by the holder of turn
	left  fs.FileInfo   // used by the holder of turn: the file as our last change left it
	rest  time.Time     // used by the holder of turn: until then the locks are left to others

	mu        sync.Mutex  // guards the fields below, never held over I/O
	knownInfo fs.FileInfo // of the file that known was found in; nil: nothing is known
	known     P           // what parse found; it holds as long as the file is the same
	swept     bool        // temporary files of crashes were looked for
}

// A sharedText is a file that is open, with a text that could be parsed.
type sharedText[P any] struct {
	f      *os.File
	info   fs.FileInfo
	at     time.Time // a moment before the file was read
	text   []byte    // what the patches change
	stands []byte    // what the file holds, if text is a newer one that our own change displaced; else nil
	parsed P         // of text
}

// A patch takes drop bytes away at the offset at, and puts others there.
type patch struct {
	at, drop int
	put      []byte
}

// applyPatches is what the patches make of the text. They may come in any order and don't overlap.
func applyPatches(text []byte, patches []patch) []byte {
	patches = slices.Clone(patches)
	slices.SortFunc(patches, func(a, b patch) int { return a.at - b.at })
	size := len(text)
	for _, p := range patches {
		size += len(p.put)
	}
	out, from := make([]byte, 0, size), 0
	for _, p := range patches {
		out = append(append(out, text[from:p.at]...), p.put...)
		from = p.at + p.drop
	}
	return append(out, text[from:]...)
}

// A span is a part of a text.
type span struct{ from, to int }

// elementSpans are the elements of the array that begins at i, and where the bracket stands that closes it. false: the
// text has no whole array there.
func elementSpans(text []byte, i int) (elems []span, closing int, ok bool) {
	if i >= len(text) || text[i] != '[' {
		return nil, i, false
	}
	i = skipSpace(text, i+1)
	for more := i < len(text) && text[i] != ']'; more; {
		end, ok := scanValue(text, i, 1)
		if !ok {
			return nil, end, false
		}
		elems = append(elems, span{i, end})
		if i = skipSpace(text, end); i < len(text) && text[i] == ',' {
			i = skipSpace(text, i+1)
		} else {
			more = false
		}
	}
	return elems, i, i < len(text) && text[i] == ']'
}

// A sharedChange is one change of a file while it is made, under atm's lock.
type sharedChange[P any] struct {
	*sharedFile[P]
	ctx  context.Context // bounds the waiting for Claude Code's lock
	edit func(t *sharedText[P]) ([]patch, error)

	both    bool        // the new text is prepared under Claude Code's lock too
	lock    *dirLock    // Claude Code's lock while it is held, else nil
	newer   []byte      // a text that somebody wrote into the file that we were just replacing, and nowhere else
	newerBy fs.FileInfo // of the file that we put in the place of newer's
	aside   error       // not nil: the file was malformed, and has been set aside
}

// create makes the file if there is none, whole from its first moment: a reader must never find a file without a text.
// A file that somebody else made meanwhile is not touched.
func (s *sharedFile[P]) create() error {
	if _, err := os.Lstat(s.path); err == nil {
		return nil
	}
	temp, err := s.writeTemp(s.path, []byte(s.begin), 0o644)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	err = os.Link(temp, s.path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// writeTemp writes a new file beside the old one, under a name as Claude Code gives one too: sweep knows it.
func (s *sharedFile[P]) writeTemp(path string, text []byte, mode fs.FileMode) (name string, err error) {
	return writeTemp(filepath.Dir(path), filepath.Base(path)+".tmp.*", text, mode)
}

// update replaces the file by what the patches of edit make of its text; without patches nothing is written. edit
// changes nothing else, and may be called again with a newer text. aside is not nil if the file was malformed and has
// been set aside. The context bounds the waiting for locks.
func (s *sharedFile[P]) update(ctx context.Context, edit func(t *sharedText[P]) ([]patch, error)) (aside, err error) {
	if s.begin == "" {
		if _, err := os.Stat(s.path); err != nil {
			return nil, err // before a lock file is made: none may appear in a directory that is no team
		}
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w (%s): %w", errTeamBusy, s.path, ctx.Err())
	}
	s.sweep()
	if err := pauseUntil(ctx, s.rest); err != nil {
		return nil, fmt.Errorf("%w (%s): %w", errTeamBusy, s.path, err)
	}
	flock, err := takeFlock(ctx, &s.queue, s.path)
	if err != nil {
		return nil, err
	}
	defer s.unlock(flock, time.Now(), s.touched())
	c := &sharedChange[P]{sharedFile: s, ctx: ctx, edit: edit}
	defer c.freeLock()
	for try := range sharedTries {
		c.both = c.both || try >= sharedLoose
		if err := c.try(); !errors.Is(err, errSharedChanged) {
			return c.aside, err
		}
	}
	return c.aside, fmt.Errorf("%w: %s was changed without a lock %d times", errTeamBusy, s.path,
		sharedTries-sharedLoose)
}

// touched reports that another program has written the file since we last did.
func (s *sharedFile[P]) touched() bool {
	now, err := os.Stat(s.path)
	return err == nil && s.left != nil && !sameFile(now, s.left)
}

// unlock frees atm's lock. If others write the file too, the lock is then left alone for as long as it was held: `atm`
// doesn't queue for the lock but looks six times within 1.6 s, and would hardly ever find it free beside a process that
// takes it again at once.
func (s *sharedFile[P]) unlock(flock *os.File, since time.Time, shared bool) {
	s.left, _ = pinned(os.Stat(s.path)) // nil: there is no file
	dropFlock(flock)
	if now := time.Now(); shared {
		s.rest = now.Add(min(now.Sub(since), sharedRest))
	}
}

// try makes the change once. After errSharedChanged it is to be tried again.
func (c *sharedChange[P]) try() error {
	t, err := c.open()
	if err != nil {
		return err
	}
	defer t.close()
	if c.newer != nil && sameFile(t.info, c.newerBy) {
		if parsed, err := c.parse(c.newer); err == nil {
			t.stands, t.text, t.parsed = t.text, c.newer, parsed
		}
	}
	c.newer = nil
	err = c.replace(t)
	if c.both = c.both || c.newer != nil; !c.both {
		c.freeLock()
	}
	return err
}

// open reads the file. What is wrong with it is looked into, and mended, under both locks.
func (c *sharedChange[P]) open() (t *sharedText[P], err error) {
	if !c.both {
		if t, err = c.readOnce(); err == nil {
			return t, nil
		}
		c.both = true
	}
	if err := c.takeLock(); err != nil {
		return nil, err
	}
	if t, err = c.read(); err != nil {
		return c.mend(err)
	}
	return t, nil
}

func (c *sharedChange[P]) takeLock() (err error) {
	if c.lock == nil {
		c.lock, err = takeDirLock(c.ctx, c.path)
	}
	return err
}

func (c *sharedChange[P]) freeLock() {
	if c.lock != nil {
		c.lock.release()
		c.lock = nil
	}
}

// mend puts a new file where there is none, or where one can't be parsed, if the file's owner has such files made.
func (c *sharedChange[P]) mend(why error) (*sharedText[P], error) {
	switch {
	case c.begin == "":
		return nil, why
	case errors.Is(why, c.malformed):
		info, err := pinned(os.Stat(c.path))
		if err == nil {
			err = setAside(c.path, info, c.malformed, c.log)
		}
		if err != nil {
			return nil, err
		}
		c.aside = why
	case !errors.Is(why, fs.ErrNotExist):
		return nil, why
	}
	if err := c.create(); err != nil {
		return nil, err
	}
	return c.read()
}

// replace writes the new file, takes Claude Code's lock, and renames the new file over the old one if that is still
// the file that was read. It sets newer, and returns errSharedChanged, if somebody wrote into the old one meanwhile.
func (c *sharedChange[P]) replace(t *sharedText[P]) error {
	patches, err := c.edit(t)
	if err != nil || len(patches) == 0 && t.stands == nil {
		return err
	}
	path, err := filepath.EvalSymlinks(c.path) // a link stays one
	if errors.Is(err, fs.ErrNotExist) {
		return errSharedChanged
	} else if err != nil {
		return err
	}
	temp, err := c.writeTemp(path, applyPatches(t.text, patches), t.info.Mode().Perm())
	if err != nil {
		return err
	}
	defer os.Remove(temp) // it is renamed by then, if all is well
	if err := c.takeLock(); err != nil {
		return err
	}
	if same, err := t.stillAt(path); err != nil {
		return err
	} else if !same {
		return errSharedChanged
	}
	if !c.lock.held() {
		return fmt.Errorf("%w: our lock was taken for a stale one", errTeamBusy)
	}
	if err := renameOver(temp, path, t.f); err != nil {
		return err
	}
	if c.placed != nil {
		c.placed()
	}
	if c.disk != nil {
		c.disk.add(c.path)
	}
	if c.newer = c.displaced(t); c.newer == nil {
		return nil
	}
	if c.newerBy, err = pinned(os.Stat(path)); err != nil {
		return err
	}
	return errSharedChanged
}

// displaced is what somebody wrote, without a lock, into the file after we read it and before or while we replaced
// it; nil if nobody did, and where renameOver had to close the file.
func (c *sharedChange[P]) displaced(t *sharedText[P]) []byte {
	for range c.looks {
		if info, err := t.f.Stat(); err != nil || t.holds(info) {
			return nil
		}
		if text, err := t.readAgain(c.limit); err == nil && len(bytes.TrimSpace(text)) > 0 {
			if _, err := c.parse(text); err == nil {
				return text
			}
		}
		time.Sleep(halfReadPause)
	}
	return nil // the writer died in the middle: ours is the last text that was whole
}

// read is readOnce for a file that a writer without a lock may be at just now.
func (s *sharedFile[P]) read() (t *sharedText[P], err error) {
	for try := 1; ; try++ {
		if t, err = s.readOnce(); try >= s.looks || !errors.Is(err, s.malformed) {
			return t, err
		}
		time.Sleep(halfReadPause)
	}
}

// readOnce opens the file, reads and parses its text. The error is the system's own, or malformed.
func (s *sharedFile[P]) readOnce() (*sharedText[P], error) {
	t := &sharedText[P]{at: time.Now()}
	var err error
	if t.f, err = openRegular(s.path); err != nil {
		return nil, err
	}
	if err := s.load(t); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// load fills in what the open file holds. A text that is known is not parsed again.
func (s *sharedFile[P]) load(t *sharedText[P]) (err error) {
	if t.info, err = t.f.Stat(); err != nil {
		return err
	}
	if t.text, err = t.readAgain(s.limit); err != nil {
		return err
	}
	if known, ok := s.knownOf(t.info); ok && t.info.Size() == int64(len(t.text)) { // else it is being written just now
		t.parsed = known
		return nil
	}
	if t.parsed, err = s.parse(t.text); err != nil {
		return fmt.Errorf("%w: %w", s.malformed, err)
	}
	// A later change is sure to show in the time of a file that is not new.
	if t.at.Sub(t.info.ModTime()) > sharedSettled && t.info.Size() == int64(len(t.text)) {
		s.mu.Lock()
		s.knownInfo, s.known = t.info, t.parsed
		s.mu.Unlock()
	}
	return nil
}

// look returns what parse finds in the file, which isn't opened while it is unchanged.
func (s *sharedFile[P]) look() (parsed P, err error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return parsed, err
	}
	if known, ok := s.knownOf(info); ok {
		return known, nil
	}
	t, err := s.read()
	if err != nil {
		return parsed, err
	}
	defer t.close()
	return t.parsed, nil
}

// knownOf is what is known of the file that info describes.
func (s *sharedFile[P]) knownOf(info fs.FileInfo) (parsed P, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.knownInfo != nil && sameFile(s.knownInfo, info)
}

// sweep removes, once, what crashes in the middle of a change left, ours or Claude Code's.
func (s *sharedFile[P]) sweep() {
	s.mu.Lock()
	swept := s.swept
	s.swept = true
	s.mu.Unlock()
	if swept {
		return
	}
	removeOlder(filepath.Dir(s.path), filepath.Base(s.path)+".tmp.", tempLifetime)
}

// readAgain reads the open file from its beginning; it may be growing.
func (t *sharedText[P]) readAgain(limit int64) ([]byte, error) {
	var text bytes.Buffer
	var err error
	if size := t.info.Size(); size <= limit {
		text.Grow(int(size) + bytes.MinRead)
		_, err = text.ReadFrom(io.NewSectionReader(t.f, 0, limit+1))
	}
	if err == nil && max(t.info.Size(), int64(text.Len())) > limit {
		err = &fs.PathError{Op: "read", Path: t.f.Name(), Err: fmt.Errorf("%w: over %d bytes", errTooLarge, limit)}
	}
	return blankMark(text.Bytes()), err
}

// stillAt tells whether the path names the file that was read, unchanged. While that file is open, no other file gets
// its inode number.
func (t *sharedText[P]) stillAt(path string) (bool, error) {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && t.holds(now), err
}

// holds tells whether info describes the file that was read, unchanged. The bytes are compared where the file is so new
// that a change may not show in its time.
func (t *sharedText[P]) holds(info fs.FileInfo) bool {
	stood := t.text
	if t.stands != nil {
		stood = t.stands
	}
	if !sameFile(t.info, info) || info.Size() != int64(len(stood)) {
		return false
	}
	if t.at.Sub(info.ModTime()) > sharedSettled {
		return true
	}
	text, err := t.readAgain(info.Size())
	return err == nil && bytes.Equal(text, stood)
}

func (t *sharedText[P]) close() { t.f.Close() }

// sameFile tells whether two descriptions are of one file that has not changed between them.
func sameFile(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}
