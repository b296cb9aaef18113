package main

// sys_file.go owns how files are opened, replaced and made durable. A file that somebody else may have placed is looked
// at before it is used: the open of a FIFO would wait for ever, a device could do anything, and through a link we would
// lock, truncate or append to a file that the link's maker chose. The registry, the mail files and the configuration
// call it. Never waits in an open, never reads without a limit, never overwrites what could not be read, and never
// fsyncs on a caller's path: a turn must not wait for a disk.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

var (
	errNotRegular = errors.New("not a regular file")
	errNotDir     = errors.New("not a directory") // syscall.ENOTDIR is fs.ErrNotExist on Windows
	errTooLarge   = errors.New("larger than is read")
	errLinked     = errors.New("a link, or a file with a second name")
	errReplaced   = errors.New("the file was replaced meanwhile")
	errLocked     = errors.New("locked by another holder") // lockFile's refusal when it was told not to wait
)

// openRegular opens a file to read it. It follows links, since people keep their configuration behind some, and refuses
// what isn't a regular file (errNotRegular).
func openRegular(path string) (*os.File, error) {
	return openChecked(path, os.O_RDONLY|openNonblock, 0, false)
}

// openOwn opens a file that we lock, append to or write in place. It refuses a symbolic link, a file with a second name
// (errLinked), and what isn't a regular file. O_TRUNC is not for flag, since the content would be gone before the file
// is checked: truncate what openOwn returned.
func openOwn(path string, flag int, perm fs.FileMode) (*os.File, error) {
	return openChecked(path, flag|openNonblock|openNoFollow, perm, true)
}

// openMaking is openOwn to write, of a file that is made with its directory, for its owner alone, where there is none.
func openMaking(path string, flag int) (*os.File, error) {
	f, err := openOwn(path, os.O_RDWR|os.O_CREATE|flag, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = openOwn(path, os.O_RDWR|os.O_CREATE|flag, 0o600)
		}
	}
	return f, err
}

// openChecked looks before it opens, since opening a device can do things, and
// again at what it has opened, since the name may be another file's by then.
func openChecked(path string, flag int, perm fs.FileMode, own bool) (*os.File, error) {
	look := os.Stat
	if own {
		look = os.Lstat
	}
	if st, err := look(path); err == nil && !st.Mode().IsRegular() {
		if st.Mode()&fs.ModeSymlink != 0 {
			return nil, &fs.PathError{Op: "open", Path: path, Err: errLinked}
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	f, err := openShared(path, flag, perm)
	if err != nil {
		return nil, openRefusal(path, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err == nil && own && hasOtherNames(f, st) {
		err = &fs.PathError{Op: "open", Path: path, Err: errLinked}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readRegular reads a whole file of at most limit bytes, errTooLarge if it has more. It opens as openRegular does.
func readRegular(path string, limit int64) ([]byte, error) {
	data, _, err := readWithInfo(path, limit)
	return data, err
}

// readWithInfo is readRegular, with the opened file's owner and mode: a second look by name may find another file. The
// info is there for a file that is too large, too.
func readWithInfo(path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, st, err
	}
	if int64(len(data)) > limit {
		return nil, st, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: over %d bytes", errTooLarge, limit)}
	}
	return data, st, nil
}

// openDir opens a directory to list it. What else has its name, a FIFO say, is refused at once.
func openDir(path string) (*os.File, error) {
	d, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, openRefusal(path, err)
	}
	if st, err := d.Stat(); err != nil || !st.IsDir() {
		d.Close()
		return nil, cmp.Or(err, error(&fs.PathError{Op: "open", Path: path, Err: errNotDir}))
	}
	return d, nil
}

// openToAll are those of the directories that anybody on this machine may write to: who can put a file there speaks for
// everybody whose files the directory has. The sticky bit is no help, since a name that isn't there yet can still be
// taken.
func openToAll(dirs ...string) (open []string) {
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() {
			continue
		}
		if _, shared, ok := ownerAndMode(st); ok && shared && st.Mode().Perm()&0o002 != 0 {
			open = append(open, dir)
		}
	}
	return open
}

// samePath tells whether two absolute paths are written alike, which on Windows doesn't go by case.
func samePath(a, b string) bool {
	a, b = filepath.Clean(a), filepath.Clean(b)
	return a == b || runtime.GOOS == "windows" && strings.EqualFold(a, b)
}

// sameDir tells whether two absolute paths lead to one directory, however they are written.
func sameDir(a, b string) bool {
	if samePath(a, b) {
		return true
	}
	there, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(there, other)
}

// pathOfURL is the path of a file: URL on this machine; on Windows also of one on a share, file://server/share/x.
func pathOfURL(text string) (path string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	path, host := filepath.FromSlash(u.Path), u.Host
	if strings.EqualFold(host, "localhost") {
		host = ""
	}
	windows := runtime.GOOS == "windows"
	switch {
	case host == "" && windows && filepath.IsAbs(path[1:]): // /C:/x
		path = path[1:]
	case host == "":
	case !windows:
		return "", false
	case filepath.VolumeName(host) == host: // file://C:/x, as some write it
		path = host + path
	default:
		path = `\\` + host + path
	}
	if windows && len(path) > 3 && path[3] == '\\' && strings.ContainsAny(path[1:3], ".?") { // \\.\ and \??\: devices
		return "", false
	}
	return path, filepath.IsAbs(path) && !strings.ContainsRune(path, 0)
}

// dropFlock closes a locked file. Unlocking it first ends the lock even where a child that is just being forked has a
// copy of the descriptor.
func dropFlock(f *os.File) {
	unlockFile(f)
	f.Close()
}

const (
	tempPrefix   = ".tmp-"
	tempLifetime = time.Minute // an older one was left by a crash
)

// writeTemp writes a new file into a directory, which the caller renames or removes, under a name by the pattern of
// os.CreateTemp. Without a mode it is for its owner alone.
func writeTemp(dir, pattern string, data []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(dir, pattern) // 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil && mode != 0 && runtime.GOOS != "windows" {
		err = f.Chmod(mode)
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// writeWhole replaces a file by a rename: readers, and we after a kill -9, see
// the old content or the new one. No fsync, for that is for power failures.
func writeWhole(path string, data []byte) error {
	dir := filepath.Dir(path)
	temp, err := writeTemp(dir, tempPrefix+"*", data, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			temp, err = writeTemp(dir, tempPrefix+"*", data, 0)
		}
	}
	if err != nil {
		return err
	}
	if err = renameOver(temp, path); err != nil {
		os.Remove(temp)
	}
	return err
}

// setAside renames a file that was read and can't be understood, and says so. errReplaced means that the name belongs
// to another file by now; after any other error the file is still there, not to be overwritten.
func setAside(path string, read fs.FileInfo, why error, log *slog.Logger) error {
	if now, err := os.Stat(path); err == nil && !os.SameFile(read, now) {
		return errReplaced
	}
	aside := path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := renameOver(path, aside); err != nil { // somebody may be reading it
		log.Warn("corrupt file can't be set aside", "path", path, "why", why, "error", err)
		return fmt.Errorf("setting a corrupt file aside: %w", err)
	}
	log.Warn("corrupt file set aside", "path", aside, "error", why)
	return nil
}

// pinned has what os.Stat or os.Lstat returned know which file it is about: on Windows that is looked up by the path as
// late as in the first comparison, when the name may be another file's.
func pinned(info fs.FileInfo, err error) (fs.FileInfo, error) {
	if err == nil {
		os.SameFile(info, info)
	}
	return info, err
}

// removeOlder removes the files of a directory whose names begin so and that nobody has written for longer than limit.
// What can't be removed is left to the next one who looks.
func removeOlder(dir, prefix string, limit time.Duration) {
	entries, _ := os.ReadDir(dir) // none: there is nothing to remove
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !e.Type().IsRegular() {
			continue
		}
		if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > limit {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// syncPause is how long a syncer collects: what is changed again meanwhile is written and synced once.
const syncPause = 200 * time.Millisecond

// A syncer does in the background what no turn may wait for: it writes files of which only the newest content counts,
// and brings to the platter what was written. It is safe for use by many goroutines; one of its own, run, does the
// work and ends with close.
type syncer struct {
	log     *slog.Logger
	due     *time.Timer        // fires syncPause after the first that waits
	flushes chan chan struct{} // each is closed when all that waited is done
	stop    chan struct{}      // closed by the first close
	exited  chan struct{}      // closed by run as it ends

	mu     sync.Mutex          // guards the fields below
	writes map[string]func()   // the newest write of each path, not done yet
	paths  map[string]struct{} // the files that were written and not synced yet
	armed  bool                // due was started and nothing was done since
	ending bool                // close was called

	failing bool // owned by run: the last sync failed, and that was told
}

func newSyncer(log *slog.Logger) *syncer {
	s := &syncer{
		log:     log,
		due:     time.NewTimer(time.Hour),
		flushes: make(chan chan struct{}),
		stop:    make(chan struct{}),
		exited:  make(chan struct{}),
		writes:  map[string]func(){},
		paths:   map[string]struct{}{},
	}
	s.due.Stop()
	go s.run()
	return s
}

// add has a file that was written, and its directory, synced soon.
func (s *syncer) add(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths[path] = struct{}{}
	s.startLocked()
}

// later has write called soon by the syncer's goroutine, in place of an earlier one for the same path that was not
// called yet: so nothing queues up. The write calls add itself. After close nothing is written.
func (s *syncer) later(path string, write func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.writes[path] = write
		s.startLocked()
	}
}

// startLocked starts the pause, if it does not run already.
func (s *syncer) startLocked() {
	if !s.armed {
		s.armed = true
		s.due.Reset(syncPause)
	}
}

// closing tells long work that close was called.
func (s *syncer) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// flush returns when all that was given before it is written and synced.
func (s *syncer) flush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case s.flushes <- done:
	case <-s.exited:
		return nil // all was done before it ended
	case <-ctx.Done():
		return fmt.Errorf("flushing files: %w", ctx.Err())
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flushing files: %w", ctx.Err())
	}
}

// close does what waits and ends the goroutine. It may be called more than once.
func (s *syncer) close(ctx context.Context) error {
	s.mu.Lock()
	if !s.ending {
		s.ending = true
		close(s.stop)
	}
	s.mu.Unlock()
	select {
	case <-s.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing files: %w", ctx.Err())
	}
}

func (s *syncer) run() {
	defer close(s.exited)
	defer s.due.Stop()
	for {
		select {
		case <-s.due.C:
			s.work()
		case done := <-s.flushes:
			s.work()
			close(done)
		case <-s.stop:
			s.work()
			return
		}
	}
}

// work does what waits: the writes first, which are synced with the rest.
func (s *syncer) work() {
	s.mu.Lock()
	writes := s.writes
	s.writes, s.armed = map[string]func(){}, false
	s.mu.Unlock()
	for _, write := range writes {
		write()
	}
	s.mu.Lock()
	paths := s.paths
	s.paths = map[string]struct{}{}
	s.mu.Unlock()
	dirs := map[string]struct{}{}
	var err error
	for path := range paths {
		dirs[filepath.Dir(path)] = struct{}{}
		err = errors.Join(err, syncFile(path))
	}
	for dir := range dirs {
		if gone := syncDir(dir); !errors.Is(gone,
			fs.ErrNotExist) { // a team goes with its directory as Claude Code ends
			err = errors.Join(err, gone)
		}
	}
	if err != nil && !s.failing {
		s.log.Warn("sessions may not survive a power failure", "error", err)
	}
	s.failing = err != nil
}

// syncFile syncs what is under the name now; what it replaced doesn't matter,
// and what isn't a file of ours any more isn't ours to sync.
func syncFile(path string) error {
	f, err := openOwn(path, os.O_RDWR, 0) // Windows flushes no file that is open for reading
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLinked) || errors.Is(err, errNotRegular) {
			return nil // set aside or replaced meanwhile
		}
		return err
	}
	defer f.Close()
	return f.Sync()
}

// nudge wakes a goroutine that looks for itself what there is to do. The channel has room for one.
func nudge(kick chan struct{}) {
	select {
	case kick <- struct{}{}:
	default: // it is told already
	}
}
