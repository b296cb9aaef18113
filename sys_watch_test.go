package main

// sys_watch_test.go holds the watching of directories to missing nothing: files that are renamed into place,
// directories that go, come and are replaced, in any order. A notice may come late, so that tests wait for one, or for
// a later one.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func startWatcher(t testing.TB) *watcher {
	t.Helper()
	w, err := newWatcher()
	if errors.Is(err, errNoWatch) && runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip(err)
	}
	wantNil(t, err)
	t.Cleanup(w.close)
	return w
}

// A told is what a watch was called with.
type told struct {
	*watch
	calls chan string
}

func watchFor(t testing.TB, w *watcher, dir string) told {
	t.Helper()
	calls := make(chan string, 10000)
	wa, err := w.add(dir, func(name string) { calls <- name })
	wantNil(t, err)
	return told{wa, calls}
}

// next is the next call.
func (c told) next(t testing.TB) string {
	t.Helper()
	select {
	case name := <-c.calls:
		return name
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing more was told", c.dir)
		return ""
	}
}

// await returns when the name, or that anything may have changed, was told.
func (c told) await(t testing.TB, name string) {
	t.Helper()
	for {
		if got := c.next(t); got == name || got == "" {
			return
		}
	}
}

// awaitAll returns when it was told that anything may have changed.
func (c told) awaitAll(t testing.TB) { t.Helper(); c.await(t, "") }

// drain forgets the calls so far and returns how many there were.
func (c told) drain() (n int) {
	for ; len(c.calls) > 0; n++ {
		<-c.calls
	}
	return n
}

// sees writes a file and awaits that it is told.
func (c told) sees(t testing.TB, name string) {
	t.Helper()
	c.drain()
	touchFile(t, filepath.Join(c.dir, name))
	c.await(t, name)
}

func touchFile(t testing.TB, path string) {
	t.Helper()
	wantNil(t, os.WriteFile(path, []byte("[]"), 0o644))
}

func TestWatchTellsWhatChanged(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	tmp, file := filepath.Join(dir, "a.tmp"), filepath.Join(dir, "a.json")
	touchFile(t, filepath.Join(dir, "there.json"))
	c := watchFor(t, w, dir)
	if runtime.GOOS != "darwin" {
		c.sees(t, "there.json")
	}
	for range 2 { // made, then replaced
		c.sees(t, "a.tmp")
		wantNil(t, os.Rename(tmp, file))
		c.await(t, "a.json")
	}
	wantNil(t, os.Remove(file))
	c.await(t, "a.json")
}

// Claude Code removes its team's directory when it exits, and may make it again.
func TestWatchDirectoryThatGoesAndComes(t *testing.T) {
	w, team := startWatcher(t), filepath.Join(t.TempDir(), "teams", "crew")
	c := watchFor(t, w, filepath.Join(team, "inboxes")) // not even the teams' directory is there
	for round := range 30 {
		wantNil(t, os.MkdirAll(c.dir, 0o755))
		c.sees(t, "a.json")
		c.sees(t, "b.json")
		gone := c.dir
		if round%2 == 0 {
			gone = team
		}
		wantNil(t, os.RemoveAll(gone))
		c.awaitAll(t)
	}
	if !c.works() {
		t.Error("the watch was lost")
	}
}

// `atm` moves a team to its archives: what happens there is nobody's mail any more.
func TestWatchTeamThatIsMovedAway(t *testing.T) {
	w, root := startWatcher(t), t.TempDir()
	team, moved := filepath.Join(root, "crew"), filepath.Join(root, "moved")
	plant(t, root, map[string]string{"crew/inboxes/": "", "other/": ""})
	c, ping := watchFor(t, w, filepath.Join(team, "inboxes")), watchFor(t, w, filepath.Join(root, "other"))
	wantNil(t, os.Rename(team, moved))
	c.awaitAll(t)
	ping.sees(t, "ping")
	c.drain()
	touchFile(t, filepath.Join(moved, "inboxes", "a.json"))
	ping.sees(t, "pong")
	if n := c.drain(); n != 0 {
		t.Errorf("told %d times of a directory that was moved away", n)
	}
	wantNil(t, os.MkdirAll(c.dir, 0o755))
	c.awaitAll(t)
	c.sees(t, "a.json")
}

func TestWatchRemoveAndClose(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	one, two, above := watchFor(t, w, dir), watchFor(t, w, dir), watchFor(t, w, filepath.Dir(dir))
	one.remove()
	one.remove()
	two.sees(t, "a.json")
	two.remove()
	two.drain()
	touchFile(t, filepath.Join(dir, "b.json"))
	above.sees(t, "pong")
	if len(one.calls)+len(two.calls) != 0 {
		t.Error("a removed watch was told")
	}
	w.mu.Lock()
	left := len(w.watches)
	w.mu.Unlock()
	if left != 1 {
		t.Errorf("%d watches are left", left)
	}

	// changed may remove its own watch and add others: no lock is held over it.
	self, done := make(chan *watch, 1), make(chan error, 100)
	wa, err := w.add(dir, func(string) {
		wa := <-self
		wa.remove()
		_, err := w.add(wa.dir, func(string) {})
		done <- err
	})
	wantNil(t, err)
	self <- wa
	touchFile(t, filepath.Join(dir, "a"))
	wantNil(t, <-done)

	w.close()
	w.close()
	select {
	case <-w.exited:
	default:
		t.Error("the goroutine goes on")
	}
	above.remove()
	if _, err := w.add(dir, func(string) {}); !errors.Is(err, errNoWatch) {
		t.Errorf("adding to a closed watcher: %v", err)
	}
}

// A file where the directory should be, or above it, is waited out.
func TestWatchFileInTheWay(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	away := filepath.Join(dir, "away")
	for _, path := range []string{"inboxes", filepath.Join("crew", "inboxes")} {
		inWay := filepath.Join(dir, "inboxes")
		if path != "inboxes" {
			inWay = filepath.Join(dir, "crew")
		}
		touchFile(t, inWay)
		c := watchFor(t, w, filepath.Join(dir, path))
		for range 10 {
			wantNil(t, os.Remove(inWay))
			wantNil(t, os.MkdirAll(c.dir, 0o755))
			c.awaitAll(t)
			c.sees(t, "a.json")
			wantNil(t, os.Rename(inWay, away))
			touchFile(t, inWay)
			c.awaitAll(t)
			wantNil(t, os.RemoveAll(away))
			c.drain()
		}
		c.remove()
	}
}

// Whatever is made, removed and renamed, what stands at the end is watched.
func TestWatchAfterAnyHistory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := startWatcher(t)
	for range 20 {
		root := t.TempDir()
		team := filepath.Join(root, "teams", "crew")
		c := watchFor(t, w, filepath.Join(team, "inboxes"))
		for step := range 40 {
			switch rnd.IntN(6) {
			case 0, 1:
				wantNil(t, os.MkdirAll(c.dir, 0o755))
			case 2:
				wantNil(t, os.RemoveAll(team))
			case 3:
				wantNil(t, os.RemoveAll(c.dir))
			case 4:
				_ = os.Rename(team, filepath.Join(root, fmt.Sprint("moved", step))) // or it isn't there
			case 5:
				_ = os.Rename(c.dir, filepath.Join(root, fmt.Sprint("inboxes", step)))
			}
		}
		wantNil(t, os.MkdirAll(c.dir, 0o755))
		// The calls so far may still be on their way: only a file's own name proves that it is watched.
		for n := 0; ; n++ {
			touchFile(t, filepath.Join(c.dir, fmt.Sprint("last", n)))
			if c.next(t) != "" || runtime.GOOS == "darwin" {
				break
			}
		}
		c.remove()
	}
}

// remove ends one watch, as closing the watcher ends all of them.
func (wa *watch) remove() {
	wa.owner.mu.Lock()
	defer wa.owner.mu.Unlock()
	wa.owner.removeLocked(wa)
}
