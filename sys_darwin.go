package main

// sys_darwin.go owns macOS's kqueue: one for all directories, and a descriptor for each. A kqueue tells that entries
// came, went or were renamed, not which, and nothing of a file that is written in place: all who write inboxes rename,
// the rest the poll finds. sys_watch.go is the only caller, and holds its lock over all but read. Never waits but in
// read, which keeps one thread.

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	"golang.org/x/sys/unix"
)

// A notifier is one kqueue.
type notifier struct {
	kq   int
	open map[int]bool // the directories' descriptors
	buf  [64]unix.Kevent_t
}

func newNotifier() (*notifier, error) {
	kq, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("%w: kqueue: %w", errNoWatch, err)
	}
	unix.CloseOnExec(kq)
	n := &notifier{kq: kq, open: map[int]bool{}}
	if err := n.user(unix.EV_ADD|unix.EV_CLEAR, 0); err != nil {
		unix.Close(kq)
		return nil, fmt.Errorf("%w: kqueue: %w", errNoWatch, err)
	}
	return n, nil
}

// user sets up, or sends, the event by which close ends read.
func (n *notifier) user(flags int, notes uint32) error {
	var k unix.Kevent_t
	unix.SetKevent(&k, 0, unix.EVFILT_USER, flags)
	k.Fflags = notes
	_, err := unix.Kevent(n.kq, []unix.Kevent_t{k}, nil, nil)
	return err
}

// arm watches a directory; its id is a descriptor, a new one for each call. Names aren't told, so a directory above
// is watched in the same way. One that is moved away meanwhile is fs.ErrNotExist.
func (n *notifier) arm(dir string, _ bool) (id int, err error) {
	fd, err := unix.Open(dir, unix.O_EVTONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	var k unix.Kevent_t
	unix.SetKevent(&k, fd, unix.EVFILT_VNODE, unix.EV_ADD|unix.EV_CLEAR)
	k.Fflags = unix.NOTE_WRITE | unix.NOTE_EXTEND | unix.NOTE_DELETE | unix.NOTE_RENAME | unix.NOTE_REVOKE
	if _, err := unix.Kevent(n.kq, []unix.Kevent_t{k}, nil, nil); err != nil {
		unix.Close(fd)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("kqueue: %v", err) // not that the directory is missing
		}
		return 0, err
	}
	// A move between the open and the event's setting up is not told: look again whether the name still means it.
	var mine, there unix.Stat_t
	err = unix.Fstat(fd, &mine)
	if err == nil {
		err = unix.Stat(dir, &there)
	}
	if err == nil && (mine.Dev != there.Dev || mine.Ino != there.Ino) {
		err = unix.ENOENT
	}
	if err != nil {
		unix.Close(fd)
		return 0, err
	}
	n.open[fd] = true
	return fd, nil
}

// disarm: the kernel forgets a descriptor's events with it. One that was read already may be taken for another
// directory's, which is then looked at for nothing.
func (n *notifier) disarm(id int) {
	if n.open[id] {
		delete(n.open, id)
		unix.Close(id)
	}
}

// read waits for notices; after close it returns none.
func (n *notifier) read() ([]notice, error) {
	for {
		count, err := unix.Kevent(n.kq, nil, n.buf[:], nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var all []notice
		for _, k := range n.buf[:count] {
			if k.Filter == unix.EVFILT_VNODE {
				all = append(all, notice{
					id:    int(k.Ident),
					isDir: true,
					self:  k.Fflags&(unix.NOTE_DELETE|unix.NOTE_RENAME|unix.NOTE_REVOKE) != 0,
				})
			}
		}
		return all, nil
	}
}

// close ends read.
func (n *notifier) close() { _ = n.user(0, unix.NOTE_TRIGGER) }

// release is called after read has ended: closing the kqueue under it is undefined.
func (n *notifier) release() {
	for fd := range n.open {
		unix.Close(fd)
	}
	unix.Close(n.kq)
}

// termOnParentDeath: macOS signals nobody, so a child is left to the end of its stdin.
func termOnParentDeath(*exec.Cmd) bool { return false }

// The requests that read and set how a terminal takes keys.
const (
	getTerminal = unix.TIOCGETA
	setTerminal = unix.TIOCSETA
)
