package main

// mail_shared_test.go holds the changing of a shared file, config.json here, to its locks, and to the
// writers that take none: what they write while we do is never written over.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func beginningOfTime() time.Time { return time.Unix(1, 0) }

// soon is little patience: for locks that nobody will give up.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// Claude Code holds its lock while the file is empty and half written: whoever waits for the lock sees the whole.
func TestJoinWaitsForAWriter(t *testing.T) {
	c := newCrew(t, claudeTeam)
	wantNil(t, os.Mkdir(c.path+".lock", 0o755))
	c.put(claudeTeam[:100])
	done := make(chan error, 1)
	go func() {
		_, err := c.join(c.agent)
		done <- err
	}()
	c.put(strings.Replace(claudeTeam, "mate_one", "mate_two", 2))
	wantNil(t, os.Remove(c.path+".lock"))
	wantNil(t, <-done)
	if c.names() != "team-lead mate_two codex" {
		t.Errorf("members %s", c.names())
	}
}

// Some of Claude Code's writes take no lock: one that comes between reading and writing is not written over.
func TestUpdateSeesAWriteWithoutALock(t *testing.T) {
	c := newCrew(t, claudeTeam)
	calls := 0
	wantNil(t, c.update(context.Background(), func(r *roster) ([]patch, error) {
		if calls++; calls == 1 {
			c.put(strings.Replace(claudeTeam, "mate_one", "mate_two", 2))
		}
		return []patch{r.with(map[string]string{"name": "codex"})}, nil
	}))
	if calls != 2 || c.names() != "team-lead mate_two codex" {
		t.Errorf("%d calls, members %s", calls, c.names())
	}
	// One who never stops is told of, and nothing is written over.
	err := c.update(context.Background(), func(r *roster) ([]patch, error) {
		calls++
		c.put(fmt.Sprintf(`{"members":[{"name":"m%d"}]}`, calls))
		return []patch{r.with(map[string]string{"name": "codex"})}, nil
	})
	if !errors.Is(err, errTeamBusy) || c.names() != fmt.Sprint("m", calls) {
		t.Errorf("%v, members %s", err, c.names())
	}
}

// Who opened the file before it was replaced, and writes afterwards, writes into the displaced one: that text, if it is
// whole, is the newest, and our change is made in it again.
func TestWriteIntoTheDisplacedFile(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("nothing is renamed over an open file there")
	}
	for text, want := range map[string]string{
		claudeTeam: "team-lead mate_one codex", "": "team-lead mate_one codex", claudeTeam[:50]: "team-lead mate_one codex",
		strings.Replace(claudeTeam, "mate_one", "mate_two", 2): "team-lead mate_two codex",
	} {
		c := newCrew(t, claudeTeam)
		old, err := os.OpenFile(c.path, os.O_RDWR, 0)
		wantNil(t, err)
		defer old.Close()
		late := false
		c.file.placed = func() {
			if !late {
				late = true
				wantNil(t, old.Truncate(0))
				_, err := old.WriteAt([]byte(text), 0)
				wantNil(t, err)
			}
		}
		c.mustJoin(c.agent)
		if !late || c.names() != want {
			t.Errorf("%.60q: members %s, want %s", text, c.names(), want)
		}
	}
}

// A process that was stopped for long finds its lock taken for stale, and neither writes nor frees another's.
func TestUpdateWithALostLock(t *testing.T) {
	c := newCrew(t, claudeTeam)
	lock, calls := c.path+".lock", 0
	err := c.update(context.Background(), func(r *roster) ([]patch, error) {
		if calls++; calls <= sharedLoose { // until it is prepared under both locks
			c.put(claudeTeam + strings.Repeat(" ", calls))
			return []patch{r.with(map[string]string{"name": "codex"})}, nil
		}
		wantNil(t, os.Mkdir(lock+".new", 0o755)) // beside the old one, so that it is another
		wantNil(t, os.Remove(lock))
		wantNil(t, os.Rename(lock+".new", lock))
		return []patch{r.with(map[string]string{"name": "codex"})}, nil
	})
	if !errors.Is(err, errTeamBusy) || strings.TrimRight(c.text(), " ") != strings.TrimRight(claudeTeam, " ") {
		t.Errorf("%v, %s", err, c.text())
	}
	if _, err := os.Lstat(lock); err != nil {
		t.Errorf("another's lock was removed: %v", err)
	}
}

// The list is kept while the file is the same, and never longer: two writes within a tick have the same time.
func TestListIsFresh(t *testing.T) {
	c := newCrew(t, crewOf())
	for i := range 200 {
		want := fmt.Sprint("m", 100+i)
		c.put(crewOf(fmt.Sprintf(`{"name":%q}`, want)))
		if i%3 == 0 {
			_ = c.names()
		}
		if got := c.names(); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	wantNil(t, os.Chtimes(c.path, beginningOfTime(), beginningOfTime()))
	_ = c.names()
	first, err := c.list()
	wantNil(t, err)
	second, err := c.list()
	wantNil(t, err)
	if &first[0] != &second[0] {
		t.Error("an unchanged file was read again")
	}
	c.put(crewOf(`{"name":"new"}`))
	if c.names() != "new" {
		t.Errorf("members %s", c.names())
	}
}
