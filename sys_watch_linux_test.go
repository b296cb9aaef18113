package main

// sys_watch_linux_test.go holds inotify to its limits: the queue that overflows, the watches and instances that run
// out; and has the cost of watching.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A directory that is moved away between the kernel's look-up of its name and the setting of its watch was watched
// where it lay then, and never looked for at its name again: the watch was deaf for good.
func TestWatchDirectoryThatIsMovedWhileItIsArmed(t *testing.T) {
	w, root := startWatcher(t), t.TempDir()
	team, moved := filepath.Join(root, "crew"), filepath.Join(root, "moved")
	wantNil(t, os.Mkdir(team, 0o755))
	w.kernel.add = func(fd int, dir string, mask uint32) (int, error) {
		if dir != team {
			return unix.InotifyAddWatch(fd, dir, mask)
		}
		w.kernel.add = unix.InotifyAddWatch
		found, err := unix.Open(dir, unix.O_PATH, 0)
		wantNil(t, err)
		defer unix.Close(found)
		wantNil(t, os.Rename(team, moved))
		return unix.InotifyAddWatch(fd, fmt.Sprint("/proc/self/fd/", found), mask)
	}
	c := watchFor(t, w, filepath.Join(team, "inboxes"))
	wantNil(t, os.MkdirAll(c.dir, 0o755))
	c.awaitAll(t)
	c.sees(t, "a.json")
}

// watchBusy watches a directory with a caller that stops in its first call, from when busy returns until release is
// called, and then tells each call's name.
func watchBusy(t *testing.T, w *watcher) (dir string, release func(), calls chan string) {
	t.Helper()
	dir = t.TempDir()
	begun, gate := make(chan struct{}), make(chan struct{})
	calls = make(chan string, 100_000)
	first := sync.OnceFunc(func() {
		close(begun)
		<-gate
	})
	_, err := w.add(dir, func(name string) {
		first()
		calls <- name
	})
	wantNil(t, err)
	touchFile(t, filepath.Join(dir, "first"))
	<-begun
	return dir, func() { close(gate) }, calls
}

// While a caller is busy the kernel's queue overflows: then everything counts as changed, and watching goes on.
func TestWatchQueueOverflow(t *testing.T) {
	most, err := readNumber("/proc/sys/fs/inotify/max_queued_events")
	wantNil(t, err)
	if most > 100_000 {
		t.Skipf("max_queued_events is %d", most)
	}
	w := startWatcher(t)
	quiet := watchFor(t, w, t.TempDir()) // nothing happens there
	busy, release, _ := watchBusy(t, w)
	a, b := filepath.Join(busy, "a"), filepath.Join(busy, "b")
	touchFile(t, a)
	for range most/4 + 2 { // two renames are four notices
		wantNil(t, os.Rename(a, b))
		wantNil(t, os.Rename(b, a))
	}
	release()
	quiet.awaitAll(t)
	quiet.sees(t, "after.json")
}

// Many changes while a caller is busy are few calls afterwards.
func TestWatchCoalesces(t *testing.T) {
	dir, release, calls := watchBusy(t, startWatcher(t))
	for range 500 {
		tmp := filepath.Join(dir, "a.tmp")
		touchFile(t, tmp)
		wantNil(t, os.Rename(tmp, filepath.Join(dir, "a.json")))
	}
	touchFile(t, filepath.Join(dir, "last"))
	release()
	n := 0
	for (<-calls) != "last" {
		n++
	}
	if n > 50 { // 2000 notices, in some 6 readings
		t.Errorf("%d calls for 500 messages", n)
	}
}

// TestWatchLimitsHelper is no test: it runs in a user namespace where few watches may be had.
func TestWatchLimitsHelper(t *testing.T) {
	if os.Getenv("ATM_TEST_WATCH_LIMITS") == "" {
		t.Skip("runs only as a child of TestWatchLimits")
	}
	limit := func(what string, n int) {
		if err := os.WriteFile("/proc/sys/user/"+what, []byte(fmt.Sprint(n)), 0); err != nil {
			fmt.Println("CANNOT", err)
			os.Exit(0)
		}
	}
	limit("max_inotify_watches", 2)
	w := startWatcher(t)
	one, two := t.TempDir(), t.TempDir()
	inboxes := filepath.Join(one, "inboxes")
	c := watchFor(t, w, inboxes) // takes one watch, of the directory above
	_, err := w.add(filepath.Join(two, "x", "inboxes"), func(string) {})
	wantNil(t, err)
	_, err = w.add(t.TempDir(), func(string) {})
	if !errors.Is(err, errNoWatch) || !errors.Is(err, unix.ENOSPC) ||
		!strings.Contains(err.Error(), "max_user_watches") {
		t.Errorf("beyond the limit: %v", err)
	}
	// The directory appears, and its watch is not to be had: the owner is told, and that it must poll.
	wantNil(t, os.Mkdir(inboxes, 0o755))
	c.awaitAll(t)
	if c.works() {
		t.Error("the watch still claims to work")
	}
	c.remove()
	limit("max_inotify_watches", 100)
	c = watchFor(t, w, inboxes)
	c.sees(t, "a.json")

	limit("max_inotify_instances", 1)
	if _, err := newWatcher(); !errors.Is(err, errNoWatch) || !strings.Contains(err.Error(), "max_user_instances") {
		t.Errorf("no instance left: %v", err)
	}
}

func TestWatchLimits(t *testing.T) {
	cmd := testChild("TestWatchLimitsHelper", "ATM_TEST_WATCH_LIMITS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	refused := slices.ContainsFunc([]error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC},
		func(no error) bool { return errors.Is(err, no) })
	if refused || bytes.Contains(out, []byte("CANNOT")) {
		t.Skipf("no user namespace to be limited in: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func FuzzParseInotify(f *testing.F) {
	event := func(wd int32, mask uint32, name string) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(wd))
		for _, n := range []uint32{mask, 0, uint32(len(name))} {
			b = binary.NativeEndian.AppendUint32(b, n)
		}
		return append(b, name...)
	}
	f.Add(event(1, unix.IN_MOVED_TO, "a.json\x00\x00"))
	f.Add(append(event(2, unix.IN_DELETE_SELF, ""), event(-1, unix.IN_Q_OVERFLOW, "")...))
	f.Add(event(1, unix.IN_CREATE, "cut")[:17])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, n := range parseInotify(b) {
			if strings.HasSuffix(n.name, "\x00") || len(n.name) > len(b) {
				t.Errorf("name %q", n.name)
			}
		}
	})
}

// BenchmarkWatchIdle: watched directories in which nothing happens. cpu-µs/s is of the whole process, so 100 of them
// should cost what none does.
func BenchmarkWatchIdle(b *testing.B) {
	cpu := func() int64 {
		var u unix.Rusage
		wantNil(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return (u.Utime.Nano() + u.Stime.Nano()) / 1000
	}
	for _, count := range []int{0, 100} {
		b.Run(fmt.Sprint("dirs=", count), func(b *testing.B) {
			w := startWatcher(b)
			for range count {
				watchFor(b, w, b.TempDir())
			}
			before, begun := cpu(), time.Now()
			for b.Loop() {
				<-time.After(500 * time.Millisecond)
			}
			b.ReportMetric(float64(cpu()-before)/time.Since(begun).Seconds(), "cpu-µs/s")
		})
	}
}
