package main

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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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

func putFile(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("[]"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchTellsWhatChanged(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	putFile(t, filepath.Join(dir, "there.json"))
	c := watchFor(t, w, dir)
	if runtime.GOOS != "darwin" {
		putFile(t, filepath.Join(dir, "there.json"))
		c.await(t, "there.json")
	}
	putFile(t, filepath.Join(dir, "a.tmp"))
	must(t, os.Rename(filepath.Join(dir, "a.tmp"), filepath.Join(dir, "a.json")))
	c.await(t, "a.json")
	putFile(t, filepath.Join(dir, "a.tmp2"))
	c.await(t, "a.tmp2")
	must(t, os.Rename(filepath.Join(dir, "a.tmp2"), filepath.Join(dir, "a.json")))
	c.await(t, "a.json")
	must(t, os.Remove(filepath.Join(dir, "a.json")))
	c.await(t, "a.json")
}

// Claude Code removes its team's directory when it exits, and may make it again.
func TestWatchDirectoryThatGoesAndComes(t *testing.T) {
	w, team := startWatcher(t), filepath.Join(t.TempDir(), "teams", "crew")
	dir := filepath.Join(team, "inboxes")
	c := watchFor(t, w, dir) // not even the teams' directory is there
	for round := range 30 {
		must(t, os.MkdirAll(dir, 0o755))
		putFile(t, filepath.Join(dir, "a.json"))
		c.await(t, "a.json")
		c.drain()
		putFile(t, filepath.Join(dir, "b.json"))
		c.await(t, "b.json")
		gone := dir
		if round%2 == 0 {
			gone = team
		}
		must(t, os.RemoveAll(gone))
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
	must(t, os.MkdirAll(filepath.Join(team, "inboxes"), 0o755))
	must(t, os.MkdirAll(other, 0o755))
	c, ping := watchFor(t, w, filepath.Join(team, "inboxes")), watchFor(t, w, other)
	must(t, os.Rename(team, moved))
	c.awaitAll(t)
	putFile(t, filepath.Join(other, "ping"))
	ping.await(t, "ping")
	c.drain()
	putFile(t, filepath.Join(moved, "inboxes", "a.json"))
	putFile(t, filepath.Join(other, "pong"))
	ping.await(t, "pong")
	if len(c.calls) != 0 {
		t.Errorf("told %q of a directory that was moved away", <-c.calls)
	}
	must(t, os.MkdirAll(filepath.Join(team, "inboxes"), 0o755))
	c.awaitAll(t)
	c.drain()
	putFile(t, filepath.Join(team, "inboxes", "a.json"))
	c.await(t, "a.json")
}

func TestWatchRemove(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	one, two := watchFor(t, w, dir), watchFor(t, w, dir)
	above := watchFor(t, w, filepath.Dir(dir))
	one.remove()
	one.remove()
	putFile(t, filepath.Join(dir, "a.json"))
	two.await(t, "a.json")
	if len(one.calls) != 0 {
		t.Error("a removed watch was told")
	}
	two.remove()
	two.drain()
	putFile(t, filepath.Join(dir, "b.json"))
	putFile(t, filepath.Join(filepath.Dir(dir), "pong"))
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
	must(t, err)
	self <- wa
	putFile(t, filepath.Join(dir, "a"))
	must(t, <-done)
}

// A file where the directory should be, or above it, is waited out.
func TestWatchFileInTheWay(t *testing.T) {
	w, dir := startWatcher(t), t.TempDir()
	for _, path := range []string{"inboxes", filepath.Join("crew", "inboxes")} {
		inWay := filepath.Join(dir, filepath.Dir(path))
		if inWay == dir {
			inWay = filepath.Join(dir, path)
		}
		putFile(t, inWay)
		c := watchFor(t, w, filepath.Join(dir, path))
		for range 10 {
			must(t, os.Remove(inWay))
			must(t, os.MkdirAll(c.dir, 0o755))
			c.awaitAll(t)
			c.drain()
			putFile(t, filepath.Join(c.dir, "a.json"))
			c.await(t, "a.json")
			must(t, os.Rename(inWay, filepath.Join(dir, "away")))
			putFile(t, inWay)
			c.awaitAll(t)
			must(t, os.RemoveAll(filepath.Join(dir, "away")))
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
				must(t, os.MkdirAll(dir, 0o755))
			case 2:
				must(t, os.RemoveAll(team))
			case 3:
				must(t, os.RemoveAll(dir))
			case 4:
				_ = os.Rename(team, filepath.Join(root, fmt.Sprint("moved", step))) // or it isn't there
			case 5:
				_ = os.Rename(dir, filepath.Join(root, fmt.Sprint("inboxes", step)))
			}
		}
		must(t, os.MkdirAll(dir, 0o755))
		// The calls so far may still be on their way: only a file's own name proves that it is watched.
		for n := 0; ; n++ {
			name := fmt.Sprint("last", n)
			putFile(t, filepath.Join(dir, name))
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
