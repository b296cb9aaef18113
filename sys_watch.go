package main

// sys_watch.go owns the watching of directories: who wants to know when something in one changes, and what has to be
// watched for that, since a directory may be missing, be deleted and come again. The kernel's part is sys_linux.go
// (inotify), sys_darwin.go (kqueue) and sys_windows.go (nothing to be had). session_mailroom.go calls it; the poll is
// the net below it and stands alone where watching fails. Never reads a file and never decides what a change means: our
// own writes are told like anybody's, and the caller knows them by the file's identity, size and time.

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// errNoWatch is that notification isn't to be had: no support, a limit of the system, no right to read the directory.
var errNoWatch = errors.New("changes of files can't be watched here")

// armTries bounds how often a directory that comes and goes is tried at once.
const armTries = 20

// A notice is what the kernel tells of one change.
type notice struct {
	id       int    // the directory's, as arm gave it; of no meaning with overflow
	name     string // the entry that changed, "" where the system doesn't say: look at everything
	isDir    bool   // the entry is a directory, or the system doesn't say
	self     bool   // the directory itself was deleted, moved or unmounted
	overflow bool   // notices were lost
}

// A watcher tells of changes in directories. Its goroutine, run, waits in the kernel, so idle watches cost nothing;
// it ends with close.
type watcher struct {
	kernel *notifier
	exited chan struct{} // closed by run as it ends

	mu      sync.Mutex // guards the fields below and the watches'; held over the notifier's calls, which don't wait
	watches []*watch   // those that were added and not removed
	closed  bool       // close was called, or the kernel tells nothing any more
}

// A watch is somebody's wish to know of one directory.
type watch struct {
	dir     string
	changed func(name string)
	owner   *watcher

	at    int    // the notifier's id of the directory, 0 while the directory is missing
	above int    // the notifier's id of the parent or, while missing, of the nearest directory above; 0: it failed
	next  string // the entry of the directory above that leads to dir
}

// newWatcher fails with errNoWatch.
func newWatcher() (*watcher, error) {
	kernel, err := newNotifier()
	if err != nil {
		return nil, err
	}
	w := &watcher{kernel: kernel, exited: make(chan struct{})}
	go w.run()
	return w, nil
}

// add watches a directory, which need not exist yet. changed is called by the watcher's goroutine with the name of
// an entry that was written, made, renamed or deleted, once for each in what the kernel tells at a time, or with ""
// where anything may have changed: the directory came, went or was replaced, notices were lost, or the system tells
// no names. It must not wait. Several may watch one directory. An error is errNoWatch: then nothing is watched.
func (w *watcher) add(dir string, changed func(name string)) (*watch, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	wa := &watch{dir: dir, changed: changed, owner: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, fmt.Errorf("watching %s: %w: the watcher is closed", dir, errNoWatch)
	}
	w.watches = append(w.watches, wa)
	if err := w.armLocked(wa); err != nil {
		w.removeLocked(wa)
		return nil, err
	}
	return wa, nil
}

// works is false once the kernel refused to go on watching; changed("") was called then, and the poll stands alone.
func (wa *watch) works() bool {
	wa.owner.mu.Lock()
	defer wa.owner.mu.Unlock()
	return wa.above != 0
}

// close ends all watches; it returns when no changed is called any more. Not to be called by changed.
func (w *watcher) close() {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	w.mu.Unlock()
	if first {
		w.kernel.close()
	}
	<-w.exited
}

func (w *watcher) run() {
	defer close(w.exited)
	defer w.kernel.release()
	for {
		notices, err := w.kernel.read()
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			return
		}
		if err != nil { // nothing will be told any more: say so to everybody, once
			notices = []notice{{overflow: true}}
			for _, wa := range w.watches {
				wa.at, wa.above = 0, 0
			}
			w.closed = true
			w.kernel.close()
		}
		calls := w.takeLocked(notices)
		w.mu.Unlock()
		for _, c := range calls {
			c.wa.changed(c.name)
		}
		if err != nil {
			return
		}
	}
}

// watchCall is a call of a watch's changed that is to be made.
type watchCall struct {
	wa   *watch
	name string
}

// takeLocked makes calls of notices, each at most once; after a call with "" a watch needs no other.
func (w *watcher) takeLocked(notices []notice) []watchCall {
	var calls []watchCall
	made := map[watchCall]bool{}
	call := func(wa *watch, name string) {
		if c := (watchCall{wa, name}); !made[c] && !made[watchCall{wa, ""}] {
			made[c] = true
			calls = append(calls, c)
		}
	}
	for _, n := range notices {
		for _, wa := range w.watches {
			switch {
			case wa.above == 0 && !n.overflow:
			case n.overflow, n.self && (n.id == wa.at || n.id == wa.above),
				n.id == wa.above && n.isDir && (n.name == "" || n.name == wa.next):
				w.rearmLocked(wa)
				call(wa, "")
			case n.id == wa.at && wa.at != 0:
				call(wa, n.name)
			}
		}
	}
	return calls
}

// rearmLocked watches what is at the path now. Where that fails the watch is lost, which works tells.
func (w *watcher) rearmLocked(wa *watch) {
	if w.closed {
		return
	}
	at, above := wa.at, wa.above
	if w.armLocked(wa) != nil {
		wa.at, wa.above = 0, 0
	}
	w.dropLocked(at)
	w.dropLocked(above)
}

// armLocked watches the directory above first: whatever happens to the directory after that is told, so there is
// no moment in which it could come or be replaced unnoticed.
func (w *watcher) armLocked(wa *watch) error {
	for range armTries {
		dir, above, err := filepath.Dir(wa.dir), 0, error(nil)
		for {
			if above, err = w.kernel.arm(dir, false); !noDirectory(err) || dir == filepath.Dir(dir) {
				break
			}
			dir = filepath.Dir(dir)
		}
		if err != nil {
			return fmt.Errorf("watching %s: %w: %w", dir, errNoWatch, err)
		}
		rest, err := filepath.Rel(dir, wa.dir)
		if err != nil {
			panic("BUG: a directory is not below the one above it: " + err.Error())
		}
		next, deeper, _ := strings.Cut(rest, string(filepath.Separator))
		at, err := w.kernel.arm(filepath.Join(dir, next), deeper == "")
		switch {
		case noDirectory(err):
			wa.at, wa.above, wa.next = 0, above, next
			return nil
		case err == nil && deeper == "":
			wa.at, wa.above, wa.next = at, above, next
			return nil
		case err == nil: // it was made just now: watch from there
			w.dropLocked(at)
		default:
			w.dropLocked(above)
			return fmt.Errorf("watching %s: %w: %w", filepath.Join(dir, next), errNoWatch, err)
		}
		w.dropLocked(above)
	}
	return fmt.Errorf("watching %s: %w: it comes and goes", wa.dir, errNoWatch)
}

// noDirectory: there is nothing, or a file where a directory is to come.
func noDirectory(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// dropLocked gives an id back that no watch needs any more.
func (w *watcher) dropLocked(id int) {
	needed := slices.ContainsFunc(w.watches, func(wa *watch) bool { return wa.at == id || wa.above == id })
	if id != 0 && !needed && !w.closed {
		w.kernel.disarm(id)
	}
}

func (w *watcher) removeLocked(wa *watch) {
	if i := slices.Index(w.watches, wa); i >= 0 {
		w.watches = slices.Concat(w.watches[:i], w.watches[i+1:]) // a new array: takeLocked's loop is not disturbed
		w.dropLocked(wa.at)
		w.dropLocked(wa.above)
	}
}
