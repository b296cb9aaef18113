package main

// sys_linux.go owns what only Linux has: inotify, one instance for all directories, and a signal to a child whose
// parent dies. sys_darwin.go and sys_windows.go declare the same names.
// sys_watch.go calls the notifier, and holds its lock over all but read; codex_child.go calls termOnParentDeath.
// Never waits but in read, where one goroutine waits in the runtime's poller and no thread does.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What is told of a directory above is only what may be the next directory: it may be the user's home, where much
// happens. The kernel has one watch a directory, which IN_MASK_ADD widens and never narrows.
const (
	noticeSelf  = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_MASK_ADD
	noticeNames = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	noticeAll   = noticeSelf | noticeNames | unix.IN_CLOSE_WRITE
)

// A notifier is one inotify instance.
type notifier struct {
	fd   int
	file *os.File // the same descriptor, for reads that wait in the runtime's poller
	buf  [16 << 10]byte
	// add is unix.InotifyAddWatch; a test puts a move inside of it.
	add func(fd int, dir string, mask uint32) (id int, err error)
}

func newNotifier() (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	switch {
	case errors.Is(err, unix.EMFILE):
		return nil, fmt.Errorf("%w: no inotify instance is left (fs.inotify.max_user_instances), or no file descriptor",
			errNoWatch)
	case err != nil:
		return nil, fmt.Errorf("%w: inotify: %w", errNoWatch, err)
	}
	return &notifier{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), add: unix.InotifyAddWatch}, nil
}

// arm watches a directory, all that happens in it or only what directories above need. The same directory has the
// same id.
//
// The kernel looks up the name before it sets the watch, so a directory that is moved away between the two is watched
// where it lies now, and its move is never told. Asking for the same name once more finds that out: whoever is moved
// after the second look-up is watched by then.
func (n *notifier) arm(dir string, all bool) (id int, err error) {
	mask := uint32(noticeSelf | noticeNames)
	if all {
		mask = noticeAll
	}
	id, err = n.add(n.fd, dir, mask)
	for err == nil {
		again, err2 := n.add(n.fd, dir, mask)
		if err2 == nil && again == id {
			return id, nil
		}
		n.disarm(id) // another who watches it too is told of that as of a move
		id, err = again, err2
	}
	if errors.Is(err, unix.ENOSPC) {
		return 0, fmt.Errorf("no inotify watch is left (fs.inotify.max_user_watches): %w", err)
	}
	return 0, err
}

// disarm is of no effect where the kernel has ended the watch itself.
func (n *notifier) disarm(id int) { _, _ = unix.InotifyRmWatch(n.fd, uint32(id)) }

// read waits for notices, and returns an error after close.
func (n *notifier) read() ([]notice, error) {
	size, err := n.file.Read(n.buf[:])
	if err != nil {
		return nil, err
	}
	return parseInotify(n.buf[:size]), nil
}

// close ends read.
func (n *notifier) close() { n.file.Close() }

// release has nothing left to do.
func (n *notifier) release() {}

// parseInotify reads struct inotify_event: wd, mask, cookie, the name's padded length, the name.
func parseInotify(b []byte) []notice {
	var all []notice
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if end > len(b) {
			return append(all, notice{overflow: true})
		}
		all = append(all, notice{
			id:       int(wd),
			name:     strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00"),
			isDir:    mask&unix.IN_ISDIR != 0,
			self:     mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0,
			overflow: mask&unix.IN_Q_OVERFLOW != 0,
		})
		b = b[end:]
	}
	return all
}

// termOnParentDeath has a command of newProcGroup, not yet started, sent TERM when the thread that starts it ends: the
// parent is the thread, not the process, so the caller starts it from a thread that stays. Not for app-server, which
// this would end before its shells. false: this system can't.
func termOnParentDeath(cmd *exec.Cmd) bool {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	return true
}

// The requests that read and set how a terminal takes keys.
const (
	getTerminal = unix.TCGETS
	setTerminal = unix.TCSETS
)
