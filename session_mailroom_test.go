package main

// session_mailroom_test.go holds the watch over the inboxes to what it must not do: wake
// for what is nobody's mail, poll for nothing, or give up where watching fails.

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func testMailroom(t *testing.T, open ...string) *mailroom {
	t.Helper()
	root := t.TempDir()
	cfg := &config{team: "crew", mailPollInterval: time.Second, idleTimeout: time.Minute}
	cfg.teamsRoot = root
	h := &hub{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	r := &h.mail
	r.init(h)
	for _, name := range open {
		r.slots[strings.ToLower(name)] = &mailSlot{identity: name, names: []string{name}, s: &session{}, given: map[string]*givenMail{}}
	}
	return r
}

// Locks, temporary files, other members' inboxes and ended sessions' wake nobody.
func TestMailroomNoticed(t *testing.T) {
	r := testMailroom(t, "Ann", "gone")
	r.slots["gone"].s = nil
	for _, tt := range []struct {
		entry            string
		wakes, all, rest bool
	}{
		{"Ann.json", true, false, false},
		{"ann.json", true, false, true}, // it is spelt so, then
		{"Ann.lock", false, false, false},
		{"Ann.json.lock", false, false, false},
		{"Ann.json.tmp.12345678", false, false, false},
		{"Ann.tmp", false, false, false},
		{"bob.json", false, false, false},
		{"gone.json", false, false, false},
		{".json", false, false, false},
		{"", true, true, false},
	} {
		r.all, r.respell, r.changed = false, false, map[string]bool{}
		r.noticed(tt.entry)
		woken := len(r.wake) > 0
		if woken {
			<-r.wake
		}
		if woken != tt.wakes || r.all != tt.all || r.respell != tt.rest || r.changed["ann"] != (tt.wakes && !tt.all) {
			t.Errorf("%q: woken %v, all %v, respell %v, changed %v", tt.entry, woken, r.all, r.respell, r.changed)
		}
	}
}

// idle_timeout_ms stops the poll where notices are to be had, and only there; a
// mailroom without sessions has nothing to poll for.
func TestMailroomPause(t *testing.T) {
	for _, tt := range []struct {
		name            string
		open            []string
		noticed         bool
		quiet, limit    time.Duration
		rests, afterAct bool
	}{
		{"busy", []string{"ann"}, true, time.Second, time.Minute, false, false},
		{"idle", []string{"ann"}, true, time.Hour, time.Minute, true, false},
		{"the poll alone", []string{"ann"}, false, time.Hour, time.Minute, false, false},
		{"never", []string{"ann"}, true, time.Hour, 0, false, false},
		{"no session", nil, false, 0, time.Minute, true, false},
	} {
		r := testMailroom(t, tt.open...)
		r.h.cfg.idleTimeout, r.last = tt.limit, time.Now().Add(-tt.quiet)
		if got := r.pause(tt.noticed); got != tt.rests || r.rests() != got {
			t.Errorf("%s: rests %v", tt.name, got)
		}
		r.active()
		if r.rests() || len(r.wake) != map[bool]int{true: 1}[tt.rests] {
			t.Errorf("%s: a turn did not begin the poll again: %d", tt.name, len(r.wake))
		}
	}
}

// Where watching fails, the next poll tries again, with a new watcher where the
// old one has broken; and what came meanwhile is looked for.
func TestMailWatchOpensAgain(t *testing.T) {
	r := testMailroom(t, "ann")
	fails := true
	r.newWatcher = func() (*watcher, error) {
		if fails {
			return nil, errNoWatch
		}
		return newWatcher()
	}
	var e mailWatch
	defer e.close()
	if e.open(r) || e.works() {
		t.Fatal("there was something to watch with")
	}
	fails = false
	if w, err := newWatcher(); errors.Is(err, errNoWatch) {
		t.Skip("no notification here")
	} else {
		w.close()
	}
	for range 2 {
		works := e.open(r) && e.works()
		r.mu.Lock()
		all := r.all
		r.all = false
		r.mu.Unlock()
		if !works || !all {
			t.Fatalf("not watched: works %v, all %v", works, all)
		}
		for len(r.wake) > 0 {
			<-r.wake
		}
		if err := os.MkdirAll(r.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		<-r.wake // the directory came
		if err := os.RemoveAll(filepath.Dir(r.dir)); err != nil {
			t.Fatal(err)
		}
		e.w.close()
		e.wa.remove()
		e.wa.above = 0 // as the kernel's error would leave it
	}
}
