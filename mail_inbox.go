package main

// mail_inbox.go owns one inbox file: read whole, changed by patches of its bytes and replaced whole, under the two locks
// of mail_lock.go.
// What is slow (reading, checking, writing the new file) is done under atm's lock alone; then Claude Code's is taken
// for a look whether the file is still the same, and a rename. mail.go is the caller.
// Never changes a byte that no patch names, never writes over a file that is not a JSON array, and never leaves half
// a file: a kill -9 leaves the old one or the new one, and at most a temporary file that is swept later.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxInbox    = 256 << 20              // bytes
	mailRest    = 20 * time.Millisecond  // at most so long we wait for nobody
	mailSettled = 100 * time.Millisecond // a file changed more recently may change again within one tick of its clock
	mailTries   = 2                      // a file that changed so often under our preparations is prepared under both locks
)

// errInboxChanged: while a new file was prepared, somebody else replaced the old one.
var errInboxChanged = errors.New("the inbox changed meanwhile")

// An inbox is one file, and what is known of it.
type inbox struct {
	path  string
	turn  chan struct{} // has room for the one of this process who changes the file
	queue lockQueue     // of that one
	left  fs.FileInfo   // that one's: the file as it was left
	rest  time.Time     // that one's: until then the locks are left to others

	mu    sync.Mutex // guards the fields below, never held over I/O
	known inboxState
	swept bool
}

// inboxState is what was found when the file was last read; it holds as long as the file is the same.
type inboxState struct {
	info   fs.FileInfo // nil: nothing is known
	shape  inboxShape
	unread int // -1: not counted
}

// inboxShape is where an array ends: behind its last element, and at its bracket.
type inboxShape struct {
	last, closing int
	empty         bool
}

// inboxText is a file that is open, and is a JSON array.
type inboxText struct {
	f     *os.File
	info  fs.FileInfo
	at    time.Time // before it was read
	text  []byte    // nil if the shape was known
	shape inboxShape
}

// A mailPatch takes drop bytes away at at, and puts others there.
type mailPatch struct {
	at, drop int
	put      []byte
}

// createInbox makes an empty inbox if there is none, whole from its first moment:
// a reader that comes between two steps must not find a file without a list in
// it. Nobody else's is touched: it may just have come.
func createInbox(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp.*") // swept with the others, if a crash leaves it
	if err != nil {
		return mailPathError(err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString("[]")
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("making the inbox: %w", err)
	}
	return nil
}

// update replaces the file by what the patches make of it: of any order, not overlapping; none: nothing is written.
// edit may be called again with a newer text; it sees the text only with whole. aside is not nil if the file was
// malformed and has been set aside.
func (x *inboxes) update(ctx context.Context, box *inbox, whole bool, edit func(in *inboxText) []mailPatch) (aside, err error) {
	ctx, cancel := context.WithTimeout(ctx, x.patience)
	defer cancel()
	select {
	case box.turn <- struct{}{}:
		defer func() { <-box.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w (%s): %w", errTeamBusy, box.path, ctx.Err())
	}
	box.sweep()
	if err := pauseUntil(ctx, box.rest); err != nil {
		return nil, fmt.Errorf("%w (%s): %w", errTeamBusy, box.path, err)
	}
	flock, err := takeFlock(ctx, &box.queue, box.path)
	if err != nil {
		return nil, mailPathError(err)
	}
	defer box.unlock(flock, time.Now(), box.touched())
	for range mailTries {
		in, err := box.read(whole)
		if err != nil {
			break // what is to be done about it is done under both locks
		}
		err = x.replace(ctx, box, in, nil, edit)
		in.close()
		if !errors.Is(err, errInboxChanged) {
			return nil, err
		}
	}
	lock, err := takeDirLock(ctx, box.path, x.notes)
	if err != nil {
		return nil, mailPathError(err)
	}
	defer lock.release()
	in, err := box.read(whole)
	if errors.Is(err, errInboxMalformed) {
		aside = err
		if err := box.setAside(x); err != nil {
			return nil, err
		}
		err = fs.ErrNotExist
	}
	if aside != nil || errors.Is(err, fs.ErrNotExist) {
		if err := createInbox(box.path); err != nil {
			return aside, err
		}
		in, err = box.read(whole)
	}
	if err != nil {
		return aside, err
	}
	defer in.close()
	return aside, x.replace(ctx, box, in, lock, edit)
}

// touched reports that another program has written the file since we last did.
func (b *inbox) touched() bool {
	now, err := os.Stat(b.path)
	return err == nil && b.left != nil && !sameInbox(now, b.left)
}

// unlock leaves the lock alone for as long as it was held, where others write the file too: `atm` doesn't queue for it
// but looks six times, at most 1.6 s, and would hardly ever find it free beside one who takes it again at once.
func (b *inbox) unlock(flock *os.File, since time.Time, shared bool) {
	b.left, _ = os.Stat(b.path) // nil: it isn't there
	dropFlock(flock)
	if now := time.Now(); shared {
		b.rest = now.Add(min(now.Sub(since), mailRest))
	}
}

// replace writes the new file and renames it over the old. Without held, Claude Code's lock is taken for the end.
func (x *inboxes) replace(ctx context.Context, box *inbox, in *inboxText, held *dirLock, edit func(in *inboxText) []mailPatch) error {
	patches := edit(in)
	if len(patches) == 0 {
		return nil
	}
	temp, err := in.writeTemp(box.path, patches)
	if err != nil {
		return err
	}
	defer func() {
		if temp != "" {
			os.Remove(temp)
		}
	}()
	if held == nil {
		if held, err = takeDirLock(ctx, box.path, x.notes); err != nil {
			return mailPathError(err)
		}
		defer held.release()
		if same, err := in.stillAt(box.path); err != nil {
			return err
		} else if !same {
			return errInboxChanged
		}
	}
	if !held.held() {
		return fmt.Errorf("%w: our lock was taken for a stale one", errTeamBusy)
	}
	in.close() // Windows renames nothing over an open file
	if err := renameOver(temp, box.path); err != nil {
		return mailPathError(err)
	}
	temp = ""
	if x.disk != nil {
		x.disk.add(box.path)
	}
	return nil
}

// read opens the file and checks that it is an array; the text is at hand with whole, or where the shape isn't known.
// The error is errInboxMalformed if it isn't an array, and fs.ErrNotExist if there is none.
func (b *inbox) read(whole bool) (*inboxText, error) {
	in := &inboxText{at: time.Now()}
	var err error
	if in.f, err = openRegular(b.path); errors.Is(err, errNotRegular) {
		return nil, mailPathError(err)
	} else if err != nil {
		return nil, fmt.Errorf("opening the inbox: %w", err)
	}
	if err := b.load(in, whole); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// load fills in what is known of the open file, or else what stands in it.
func (b *inbox) load(in *inboxText, whole bool) (err error) {
	if in.info, err = in.f.Stat(); err != nil {
		return fmt.Errorf("opening the inbox: %w", err)
	}
	if in.info.Size() > maxInbox {
		return fmt.Errorf("%s has %d MiB, at most %d are read; move it away", b.path, in.info.Size()>>20, maxInbox>>20)
	}
	if known, ok := b.state(in.info); ok && !whole {
		in.shape = known.shape
		return nil
	}
	if in.text, err = readMailBytes(in.f, in.info.Size()); err != nil {
		return fmt.Errorf("reading the inbox: %w", err)
	}
	if in.shape, err = shapeOf(in.text); err != nil {
		return err
	}
	b.remember(in, -1)
	return nil
}

// readMailBytes reads a file that may be growing.
func readMailBytes(f *os.File, size int64) ([]byte, error) {
	text := make([]byte, 0, size+512)
	for {
		n, err := f.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
		if len(text) > maxInbox {
			return nil, errors.New("it grows without end")
		}
		if len(text) == cap(text) {
			text = slices.Grow(text, len(text))
		}
	}
}

// shapeOf finds the array's end, or says that the text is none. Bytes that are no UTF-8 may stand in its strings:
// Claude Code reads such a file. A file of blanks has nothing to lose, and is an empty array.
func shapeOf(text []byte) (inboxShape, error) {
	i := skipSpace(text, 0)
	if i == len(text) {
		return inboxShape{empty: true}, nil
	}
	end, ok := scanValue(text, i, 0)
	if !ok || text[i] != '[' || skipSpace(text, end) != len(text) {
		what := "it is no JSON"
		if ok && text[i] != '[' {
			what = "it is no array"
		}
		return inboxShape{}, fmt.Errorf("%w: %s (near byte %d of %d)", errInboxMalformed, what, min(end, len(text)), len(text))
	}
	s := inboxShape{closing: end - 1}
	s.last = len(bytes.TrimRight(text[:s.closing], " \t\r\n"))
	s.empty = s.last == i+1
	return s, nil
}

// appendPatch puts an element behind the last.
func (in *inboxText) appendPatch(elem []byte) mailPatch {
	s := in.shape
	p := mailPatch{at: s.last, drop: s.closing - s.last}
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
func (in *inboxText) eachMessage(f func(offset int, raw []byte, m mailFields)) {
	if in.shape.empty {
		return
	}
	for i := skipSpace(in.text, 0) + 1; i < in.shape.last; i++ { // over the bracket, then over each comma
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
func (in *inboxText) hasID(id string) (found bool) {
	in.eachMessage(func(_ int, _ []byte, m mailFields) { found = found || looseText(m.id) == id })
	return found
}

// writeTemp writes the new file beside the old one, under a name that Claude Code gives as well, in the old one's mode.
func (in *inboxText) writeTemp(path string, patches []mailPatch) (name string, err error) {
	var b [4]byte
	rand.Read(b[:]) // never fails
	name = fmt.Sprintf("%s.tmp.%x", path, b)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", mailPathError(err)
	}
	err = in.copyTo(f, patches)
	if err == nil {
		err = f.Chmod(in.info.Mode().Perm())
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err != nil {
		os.Remove(name)
		return "", fmt.Errorf("writing the inbox: %w", err)
	}
	return name, nil
}

func (in *inboxText) copyTo(f *os.File, patches []mailPatch) error {
	slices.SortFunc(patches, func(a, b mailPatch) int { return a.at - b.at })
	out := bufio.NewWriterSize(f, 256<<10) // larger pieces pass it by
	from := 0
	for _, p := range patches {
		if err := in.copyRange(out, f, from, p.at); err != nil {
			return err
		}
		if _, err := out.Write(p.put); err != nil {
			return err
		}
		from = p.at + p.drop
	}
	if err := in.copyRange(out, f, from, in.size()); err != nil {
		return err
	}
	return out.Flush()
}

// copyRange copies by the kernel what isn't in memory.
func (in *inboxText) copyRange(out *bufio.Writer, f *os.File, from, to int) error {
	if in.text != nil {
		_, err := out.Write(in.text[from:to])
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if _, err := in.f.Seek(int64(from), io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(f, in.f, int64(to-from))
	return err
}

func (in *inboxText) size() int {
	if in.text != nil {
		return len(in.text)
	}
	return int(in.info.Size())
}

// stillAt tells whether the path names the file that was read, unchanged. While it is open, no other file gets its
// number; if it is so new that a change may not show in its time, its bytes are compared.
func (in *inboxText) stillAt(path string) (bool, error) {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening the inbox: %w", err)
	}
	if !sameInbox(in.info, now) || in.text != nil && now.Size() != int64(len(in.text)) {
		return false, nil
	}
	if in.at.Sub(now.ModTime()) > mailSettled || in.text == nil {
		return true, nil
	}
	if _, err := in.f.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("reading the inbox: %w", err)
	}
	text, err := readMailBytes(in.f, now.Size())
	return err == nil && bytes.Equal(text, in.text), nil
}

func (in *inboxText) close() { in.f.Close() }

func sameInbox(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// state is what is known of the file that info describes.
func (b *inbox) state(info fs.FileInfo) (inboxState, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known, b.known.info != nil && sameInbox(b.known.info, info)
}

// remember keeps what was found in a file, if a later change is sure to show.
func (b *inbox) remember(in *inboxText, unread int) {
	if in.at.Sub(in.info.ModTime()) <= mailSettled || in.info.Size() != int64(len(in.text)) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if unread < 0 && b.known.info != nil && sameInbox(b.known.info, in.info) {
		return
	}
	b.known = inboxState{info: in.info, shape: in.shape, unread: unread}
}

// setAside is called under both locks.
func (b *inbox) setAside(x *inboxes) error {
	info, err := os.Stat(b.path)
	if err != nil {
		return fmt.Errorf("opening the inbox: %w", err)
	}
	return setAside(b.path, info, errInboxMalformed, x.log)
}

// sweep removes, once, what crashes in the middle of writeTemp left, ours or Claude Code's.
func (b *inbox) sweep() {
	b.mu.Lock()
	swept := b.swept
	b.swept = true
	b.mu.Unlock()
	if swept {
		return
	}
	dir, prefix := filepath.Dir(b.path), filepath.Base(b.path)+".tmp."
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && e.Type().IsRegular() {
			removeLeftover(dir, e)
		}
	}
}
