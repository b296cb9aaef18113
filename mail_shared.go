package main

// mail_shared.go owns a file of a team that other programs write too, an inbox or config.json: read whole, changed by patches
// of its bytes, and replaced whole under the two locks of mail_lock.go. mail.go and mail_members.go are the callers.
// What is slow (reading, checking, writing the new file) is done under atm's lock alone; then Claude Code's is taken
// for a look whether the file is still the same, and a rename.
// Never changes a byte that no patch names, never writes over a text that it can't parse, and never leaves half a
// file: a kill -9 leaves the old one or the new one, and at most a temporary file that is swept later.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	sharedRest    = 20 * time.Millisecond  // the longest time for which the locks are left to others after a change
	sharedSettled = 100 * time.Millisecond // a file changed more recently may change again within one tick of its clock
	sharedLoose   = 2                      // a file that changed so often under our preparations is prepared under both locks
	sharedTries   = 4                      // a file that changed so often, twice of them without a lock, is left to its writer
	halfReadPause = 25 * time.Millisecond
)

// errSharedChanged: while the new file was prepared or put in place, somebody else wrote another text.
var errSharedChanged = errors.New("the file changed meanwhile")

// A sharedFile is one file, and what is known of it. P is what its owner finds in a text. It is safe for use by many
// goroutines.
type sharedFile[P any] struct {
	path      string
	parse     func(text []byte) (P, error)
	malformed error     // what a text that parse refuses is told as
	begin     string    // a new file's text; "": none is made, and what can't be parsed is left as it is, not set aside
	limit     int64     // bytes; a larger file is neither read nor written
	looks     int       // how often a text that can't be parsed is read: its writer may be at it, without a lock
	notes     lockNotes // of the locks that we hold
	disk      *syncer   // fsyncs what was written, later; nil: never
	log       *slog.Logger
	placed    func() // called when a new file was just put in place; nil: nobody wants to know (tests do)

	turn  chan struct{} // has room for the one goroutine of this process that changes the file
	queue lockQueue     // used by the holder of turn
	left  fs.FileInfo   // used by the holder of turn: the file as our last change left it
	rest  time.Time     // used by the holder of turn: until then the locks are left to others

	mu    sync.Mutex // guards the fields below, never held over I/O
	known sharedState[P]
	swept bool // temporary files of crashes were looked for
}

// sharedState is what was found when the file was last read; it holds as long as the file is the same.
type sharedState[P any] struct {
	info   fs.FileInfo // nil: nothing is known
	parsed P
}

// sharedText is a file that is open, and could be parsed.
type sharedText[P any] struct {
	f      *os.File
	info   fs.FileInfo
	at     time.Time // before the file was read
	text   []byte    // what the patches change; nil if it was known what stands in the file
	stands []byte    // what the file has, where text is a newer one that our own change displaced; else nil
	parsed P
}

// A patch takes drop bytes away at at, and puts others there.
type patch struct {
	at, drop int
	put      []byte
}

// displaced is a text that somebody wrote into a file that we were just replacing.
type displaced struct {
	text []byte
	by   fs.FileInfo // of the file that we put in its place
}

// create makes the file if there is none, whole from its first moment: a reader that comes between two steps must
// not find a file without a text. A file that somebody else made meanwhile is not touched.
func (s *sharedFile[P]) create() error {
	if _, err := os.Lstat(s.path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".tmp.*") // swept with the others, if a crash leaves it
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(s.begin)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = os.Link(f.Name(), s.path)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// update replaces the file by what the patches make of it: of any order, not overlapping; none: nothing is written.
// edit changes nothing else; it may be called again with a newer text, and sees the text only with whole. aside is not
// nil if the file was malformed and has been set aside. The context's time is for waiting.
func (s *sharedFile[P]) update(ctx context.Context, whole bool, edit func(t *sharedText[P]) ([]patch, error)) (aside, err error) {
	if s.begin == "" {
		if _, err := os.Stat(s.path); err != nil {
			return nil, err // before a lock file is made: never in a directory that is no team
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
	var lock *dirLock
	defer func() {
		if lock != nil {
			lock.release()
		}
	}()
	both := false        // the new text is prepared under both locks
	var newer *displaced // the text to begin with, where our own file stands
	for try := range sharedTries {
		if both = both || try >= sharedLoose; both && lock == nil {
			if lock, err = takeDirLock(ctx, s.path, s.notes); err != nil {
				return aside, err
			}
		}
		var t *sharedText[P]
		if !both {
			if t, err = s.readOnce(whole); err != nil {
				both = true // what is to be done about it is done under both locks
				continue
			}
		} else if t, err = s.read(whole || newer != nil); err != nil {
			if t, aside, err = s.mend(whole, err); err != nil {
				return aside, err
			}
		}
		if newer != nil && sameFile(t.info, newer.by) {
			if parsed, err := s.parse(newer.text); err == nil {
				t.stands, t.text, t.parsed = t.text, newer.text, parsed
			}
		}
		newer, err = s.replace(ctx, t, &lock, edit)
		t.close()
		if !errors.Is(err, errSharedChanged) {
			return aside, err
		}
		if both = both || newer != nil; !both && lock != nil {
			lock.release()
			lock = nil
		}
	}
	return aside, fmt.Errorf("%w: %s was changed without a lock %d times", errTeamBusy, s.path, sharedTries-sharedLoose)
}

// mend is called under both locks: it puts a new file where none is, or where one can't be parsed, if such files are made.
func (s *sharedFile[P]) mend(whole bool, why error) (t *sharedText[P], aside, err error) {
	if s.begin == "" {
		return nil, nil, why
	}
	if errors.Is(why, s.malformed) {
		aside = why
		info, err := os.Stat(s.path)
		if err == nil {
			err = setAside(s.path, info, s.malformed, s.log)
		}
		if err != nil {
			return nil, nil, err
		}
	} else if !errors.Is(why, fs.ErrNotExist) {
		return nil, nil, why
	}
	if err := s.create(); err != nil {
		return nil, aside, err
	}
	t, err = s.read(whole)
	return t, aside, err
}

// touched reports that another program has written the file since we last did.
func (s *sharedFile[P]) touched() bool {
	now, err := os.Stat(s.path)
	return err == nil && s.left != nil && !sameFile(now, s.left)
}

// unlock leaves the lock alone for as long as it was held, where others write the file too: `atm` doesn't queue for it
// but looks six times, at most 1.6 s, and would hardly ever find it free beside one who takes it again at once.
func (s *sharedFile[P]) unlock(flock *os.File, since time.Time, shared bool) {
	s.left, _ = os.Stat(s.path) // nil: it isn't there
	dropFlock(flock)
	if now := time.Now(); shared {
		s.rest = now.Add(min(now.Sub(since), sharedRest))
	}
}

// replace writes the new file and renames it over the old. Claude Code's lock is taken for the end, unless it is held.
// With errSharedChanged it is to be tried again: with newer, that text stands nowhere else any more.
func (s *sharedFile[P]) replace(ctx context.Context, t *sharedText[P], lock **dirLock,
	edit func(t *sharedText[P]) ([]patch, error)) (newer *displaced, err error) {
	patches, err := edit(t)
	if err != nil || len(patches) == 0 && t.stands == nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(s.path) // a link stays one
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errSharedChanged
	} else if err != nil {
		return nil, err
	}
	temp, err := t.writeTemp(path, patches)
	if err != nil {
		return nil, err
	}
	defer func() {
		if temp != "" {
			os.Remove(temp)
		}
	}()
	if *lock == nil {
		if *lock, err = takeDirLock(ctx, s.path, s.notes); err != nil {
			return nil, err
		}
	}
	if same, err := t.stillAt(path); err != nil {
		return nil, err
	} else if !same {
		return nil, errSharedChanged
	}
	if !(*lock).held() {
		return nil, fmt.Errorf("%w: our lock was taken for a stale one", errTeamBusy)
	}
	if runtime.GOOS == "windows" { // nothing is renamed over an open file there
		t.close()
	}
	if err := renameOver(temp, path); err != nil {
		return nil, err
	}
	temp = ""
	if s.placed != nil {
		s.placed()
	}
	if s.disk != nil {
		s.disk.add(s.path)
	}
	if newer = s.displaced(t); newer == nil {
		return nil, nil
	}
	if newer.by, err = os.Stat(path); err != nil {
		return nil, err
	}
	return newer, errSharedChanged
}

// displaced looks for what somebody wrote, without a lock, into a file after we read it, and before or while we replaced it.
func (s *sharedFile[P]) displaced(t *sharedText[P]) *displaced {
	if runtime.GOOS == "windows" {
		return nil // it was closed
	}
	for range s.looks {
		if info, err := t.f.Stat(); err != nil || t.holds(info) {
			return nil
		}
		if text, err := t.readAgain(s.limit); err == nil && len(bytes.TrimSpace(text)) > 0 {
			if _, err := s.parse(text); err == nil {
				return &displaced{text: text}
			}
		}
		time.Sleep(halfReadPause)
	}
	return nil // its writer died in the middle: ours is the last text that was whole
}

// read is readOnce for a file whose writer may be at it just now.
func (s *sharedFile[P]) read(whole bool) (t *sharedText[P], err error) {
	for try := 1; ; try++ {
		if t, err = s.readOnce(whole); try >= s.looks || !errors.Is(err, s.malformed) {
			return t, err
		}
		time.Sleep(halfReadPause)
	}
}

// readOnce opens the file and parses it; the text is at hand with whole, or where nothing was known of it. The error is
// the system's own, or malformed.
func (s *sharedFile[P]) readOnce(whole bool) (*sharedText[P], error) {
	t := &sharedText[P]{at: time.Now()}
	var err error
	if t.f, err = openRegular(s.path); err != nil {
		return nil, err
	}
	if err := s.load(t, whole); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// load fills in what is known of the open file, or else what stands in it.
func (s *sharedFile[P]) load(t *sharedText[P], whole bool) (err error) {
	if t.info, err = t.f.Stat(); err != nil {
		return err
	}
	known, ok := s.state(t.info)
	if ok && !whole {
		t.parsed = known
		return nil
	}
	if t.text, err = t.readAgain(s.limit); err != nil {
		return err
	}
	if ok {
		t.parsed = known
		return nil
	}
	if t.parsed, err = s.parse(t.text); err != nil {
		return fmt.Errorf("%w: %w", s.malformed, err)
	}
	s.remember(t, t.parsed)
	return nil
}

// look returns what stands in the file, which isn't opened while it is unchanged.
func (s *sharedFile[P]) look() (parsed P, err error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return parsed, err
	}
	if known, ok := s.state(info); ok {
		return known, nil
	}
	t, err := s.read(false)
	if err != nil {
		return parsed, err
	}
	defer t.close()
	return t.parsed, nil
}

// state is what is known of the file that info describes.
func (s *sharedFile[P]) state(info fs.FileInfo) (parsed P, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.parsed, s.known.info != nil && sameFile(s.known.info, info)
}

// remember keeps what was found in a file, if a later change is sure to show.
func (s *sharedFile[P]) remember(t *sharedText[P], parsed P) {
	if t.at.Sub(t.info.ModTime()) > sharedSettled && t.info.Size() == int64(len(t.text)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known = sharedState[P]{t.info, parsed}
	}
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
	dir, prefix := filepath.Dir(s.path), filepath.Base(s.path)+".tmp."
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && e.Type().IsRegular() {
			removeLeftover(dir, e)
		}
	}
}

// readAgain reads the open file from its beginning; it may be growing.
func (t *sharedText[P]) readAgain(limit int64) ([]byte, error) {
	tooLarge := &fs.PathError{Op: "read", Path: t.f.Name(), Err: fmt.Errorf("%w: over %d bytes", errTooLarge, limit)}
	if t.info.Size() > limit {
		return nil, tooLarge
	}
	text := make([]byte, 0, t.info.Size()+512)
	for {
		n, err := t.f.ReadAt(text[len(text):cap(text)], int64(len(text)))
		text = text[:len(text)+n]
		if int64(len(text)) > limit {
			return nil, tooLarge
		}
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
		text = slices.Grow(text, len(text))
	}
}

// stillAt tells whether the path names the file that was read, unchanged. While that file is open, no other file gets its
// number.
func (t *sharedText[P]) stillAt(path string) (bool, error) {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && t.holds(now), err
}

// holds tells whether the file that info describes is the one that was read, unchanged. If it is so new that a change
// may not show in its time, its bytes are compared.
func (t *sharedText[P]) holds(info fs.FileInfo) bool {
	stood := t.text
	if t.stands != nil {
		stood = t.stands
	}
	if !sameFile(t.info, info) || stood != nil && info.Size() != int64(len(stood)) {
		return false
	}
	if t.at.Sub(info.ModTime()) > sharedSettled || stood == nil {
		return true
	}
	text, err := t.readAgain(info.Size())
	return err == nil && bytes.Equal(text, stood)
}

// writeTemp writes the new file beside the old one, under a name that Claude Code gives as well, in the old one's mode.
func (t *sharedText[P]) writeTemp(path string, patches []patch) (name string, err error) {
	var b [4]byte
	rand.Read(b[:]) // never fails
	name = fmt.Sprintf("%s.tmp.%x", path, b)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	err = t.copyTo(f, patches)
	if err == nil && runtime.GOOS != "windows" {
		err = f.Chmod(t.info.Mode().Perm())
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err != nil {
		os.Remove(name)
		return "", err
	}
	return name, nil
}

func (t *sharedText[P]) copyTo(f *os.File, patches []patch) error {
	slices.SortFunc(patches, func(a, b patch) int { return a.at - b.at })
	out := bufio.NewWriterSize(f, 256<<10) // larger pieces pass it by
	from := 0
	for _, p := range patches {
		if err := t.copyRange(out, f, from, p.at); err != nil {
			return err
		}
		if _, err := out.Write(p.put); err != nil {
			return err
		}
		from = p.at + p.drop
	}
	size := len(t.text)
	if t.text == nil {
		size = int(t.info.Size())
	}
	if err := t.copyRange(out, f, from, size); err != nil {
		return err
	}
	return out.Flush()
}

// copyRange copies by the kernel what isn't in memory.
func (t *sharedText[P]) copyRange(out *bufio.Writer, f *os.File, from, to int) error {
	if t.text != nil {
		_, err := out.Write(t.text[from:to])
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if _, err := t.f.Seek(int64(from), io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(f, t.f, int64(to-from))
	return err
}

func (t *sharedText[P]) close() { t.f.Close() }

func sameFile(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}
