package main

// sys_watch_test.go holds the watching of directories to missing nothing: files that are
// renamed into place, directories that go, come and are replaced, in any order. A
// notice may come late, so that tests wait for one, or for a later one.

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

// await returns when the name, or that anything may have changed, was told.
func (c told) await(t testing.TB, name string) {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for {
		select {
		case got := <-c.calls:
			if got == name || got == "" {
				return
			}
		case <-limit.C:
			t.Fatalf("%s: %q was not told", c.dir, name)
		}
	}
}

// awaitAll returns when it was told that anything may have changed.
func (c told) awaitAll(t testing.TB) { t.Helper(); c.await(t, "") }

func (c told) drain() {
	for {
		select {
		case <-c.calls:
		default:
			return
		}
	}
}

func touchFile(t testing.TB, path string) {
	t.Helper()
	wantNil(t, os.WriteFile(path, []byte("[]"), 0o644))
}

func wantNil(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchTellsWhatChanged(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	touchFile(t, filepath.Join(dir, "there.json"))
	c := watchFor(t, w, dir)
	if runtime.GOOS != "darwin" {
		touchFile(t, filepath.Join(dir, "there.json"))
		c.await(t, "there.json")
	}
	touchFile(t, filepath.Join(dir, "a.tmp"))
	wantNil(t, os.Rename(filepath.Join(dir, "a.tmp"), filepath.Join(dir, "a.json")))
	c.await(t, "a.json")
	touchFile(t, filepath.Join(dir, "a.tmp2"))
	c.await(t, "a.tmp2")
	wantNil(t, os.Rename(filepath.Join(dir, "a.tmp2"), filepath.Join(dir, "a.json")))
	c.await(t, "a.json")
	wantNil(t, os.Remove(filepath.Join(dir, "a.json")))
	c.await(t, "a.json")
}

// Claude Code removes its team's directory when it exits, and may make it again.
func TestWatchDirectoryThatGoesAndComes(t *testing.T) {
	w, team := startWatcher(t), filepath.Join(t.TempDir(), "teams", "crew")
	dir := filepath.Join(team, "inboxes")
	c := watchFor(t, w, dir) // not even the teams' directory is there
	for round := range 30 {
		wantNil(t, os.MkdirAll(dir, 0o755))
		touchFile(t, filepath.Join(dir, "a.json"))
		c.await(t, "a.json")
		c.drain()
		touchFile(t, filepath.Join(dir, "b.json"))
		c.await(t, "b.json")
		gone := dir
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
	team, moved, other := filepath.Join(root, "crew"), filepath.Join(root, "moved"), filepath.Join(root, "other")
	wantNil(t, os.MkdirAll(filepath.Join(team, "inboxes"), 0o755))
	wantNil(t, os.MkdirAll(other, 0o755))
	c, ping := watchFor(t, w, filepath.Join(team, "inboxes")), watchFor(t, w, other)
	wantNil(t, os.Rename(team, moved))
	c.awaitAll(t)
	touchFile(t, filepath.Join(other, "ping"))
	ping.await(t, "ping")
	c.drain()
	touchFile(t, filepath.Join(moved, "inboxes", "a.json"))
	touchFile(t, filepath.Join(other, "pong"))
	ping.await(t, "pong")
	if len(c.calls) != 0 {
		t.Errorf("told %q of a directory that was moved away", <-c.calls)
	}
	wantNil(t, os.MkdirAll(filepath.Join(team, "inboxes"), 0o755))
	c.awaitAll(t)
	c.drain()
	touchFile(t, filepath.Join(team, "inboxes", "a.json"))
	c.await(t, "a.json")
}

func TestWatchRemove(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	one, two := watchFor(t, w, dir), watchFor(t, w, dir)
	above := watchFor(t, w, filepath.Dir(dir))
	one.remove()
	one.remove()
	touchFile(t, filepath.Join(dir, "a.json"))
	two.await(t, "a.json")
	if len(one.calls) != 0 {
		t.Error("a removed watch was told")
	}
	two.remove()
	two.drain()
	touchFile(t, filepath.Join(dir, "b.json"))
	touchFile(t, filepath.Join(filepath.Dir(dir), "pong"))
	above.await(t, "pong")
	if len(two.calls) != 0 {
		t.Error("the last watch of a directory was told after it was removed")
	}
	w.mu.Lock()
	left := len(w.watches)
	w.mu.Unlock()
	if left != 1 {
		t.Errorf("%d watches are left", left)
	}
}

func TestWatchClose(t *testing.T) {
	w := startWatcher(t)
	c := watchFor(t, w, t.TempDir())
	w.close()
	w.close()
	select {
	case <-w.exited:
	default:
		t.Error("the goroutine goes on")
	}
	c.remove()
	if _, err := w.add(t.TempDir(), func(string) {}); !errors.Is(err, errNoWatch) {
		t.Errorf("adding to a closed watcher: %v", err)
	}
}

// changed may remove its own watch and add others: no lock is held over it.
func TestWatchChangedMayCallBack(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
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
}

// A file where the directory should be, or above it, is waited out.
func TestWatchFileInTheWay(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	for _, path := range []string{"inboxes", filepath.Join("crew", "inboxes")} {
		inWay := filepath.Join(dir, filepath.Dir(path))
		if inWay == dir {
			inWay = filepath.Join(dir, path)
		}
		touchFile(t, inWay)
		c := watchFor(t, w, filepath.Join(dir, path))
		for range 10 {
			wantNil(t, os.Remove(inWay))
			wantNil(t, os.MkdirAll(c.dir, 0o755))
			c.awaitAll(t)
			c.drain()
			touchFile(t, filepath.Join(c.dir, "a.json"))
			c.await(t, "a.json")
			wantNil(t, os.Rename(inWay, filepath.Join(dir, "away")))
			touchFile(t, inWay)
			c.awaitAll(t)
			wantNil(t, os.RemoveAll(filepath.Join(dir, "away")))
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
		dir := filepath.Join(team, "inboxes")
		c := watchFor(t, w, dir)
		for step := range 40 {
			switch rnd.IntN(6) {
			case 0, 1:
				wantNil(t, os.MkdirAll(dir, 0o755))
			case 2:
				wantNil(t, os.RemoveAll(team))
			case 3:
				wantNil(t, os.RemoveAll(dir))
			case 4:
				_ = os.Rename(team, filepath.Join(root, fmt.Sprint("moved", step))) // or it isn't there
			case 5:
				_ = os.Rename(dir, filepath.Join(root, fmt.Sprint("inboxes", step)))
			}
		}
		wantNil(t, os.MkdirAll(dir, 0o755))
		// The calls so far may still be on their way: only a file's own name proves that it is watched.
		for n := 0; ; n++ {
			name := fmt.Sprint("last", n)
			touchFile(t, filepath.Join(dir, name))
			got := ""
			select {
			case got = <-c.calls:
			case <-time.After(20 * time.Second):
				t.Fatalf("%q was not told", name)
			}
			if got != "" || runtime.GOOS == "darwin" {
				break
			}
		}
		c.remove()
	}
}
