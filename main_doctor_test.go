package main

// main_doctor_test.go holds what doctor makes of files that a script can't
// easily bring about: locks whose process is gone, old leftovers, directories
// of others.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newTestDoctor looks at homes of its own and keeps what it finds.
func newTestDoctor(t *testing.T) (d *doctor, team string) {
	t.Helper()
	root := t.TempDir()
	cfg := defaultConfig()
	cfg.sessionsRoot, cfg.teamsRoot, cfg.cwd, cfg.team = filepath.Join(root, "sessions"), filepath.Join(root, "teams"), root, "default"
	team = filepath.Join(cfg.sessionsRoot, "default")
	if err := os.MkdirAll(filepath.Join(team, ".records"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &doctor{cfg: cfg, show: func(finding) {}}, team
}

func (d *doctor) wantFinding(t *testing.T, status, text, hint string) {
	t.Helper()
	for _, f := range d.found {
		if f.Status == status && strings.Contains(f.Text, text) && strings.Contains(f.Hint, hint) {
			return
		}
	}
	t.Errorf("no %s with %q and hint %q in %+v", status, text, hint, d.found)
}

// holdLease writes a lease of somebody else and holds its lock, as another process would.
func holdLease(t *testing.T, path string, c lockContent) {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := lockFile(f, true, false); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorLeases(t *testing.T) {
	d, team := newTestDoctor(t)
	host, _ := os.Hostname()
	const dead = 1 << 30 // beyond every system's largest
	holdLease(t, filepath.Join(team, "ann.lock"), lockContent{PID: dead, AgentID: "codex:bcdfghj", Host: host})
	holdLease(t, filepath.Join(team, "bob.lock"), lockContent{PID: dead, AgentID: "codex:bcdfghk", Host: host + "-other"})
	holdLease(t, filepath.Join(team, "cal.lock"), lockContent{PID: os.Getpid(), Host: host})
	before, err := os.ReadFile(filepath.Join(team, "ann.lock"))
	if err != nil {
		t.Fatal(err)
	}
	d.checkLeases()
	d.wantFinding(t, findingWarning, `"ann" is in use by agent codex:bcdfghj in process 1073741824, which is gone`, "lsof "+filepath.Join(team, "ann.lock"))
	d.wantFinding(t, findingOK, `"bob" is in use by agent codex:bcdfghk in process 1073741824 on `+host+"-other", "")
	d.wantFinding(t, findingOK, fmt.Sprintf(`"cal" is in use without an agent yet in process %d`, os.Getpid()), "")
	d.wantFinding(t, findingOK, "3 in use, 0 free", "")
	if after, err := os.ReadFile(filepath.Join(team, "ann.lock")); err != nil || string(after) != string(before) {
		t.Errorf("the lease was changed: %s, %v", after, err)
	}
}

func TestDoctorTellsManyLeasesInOneLine(t *testing.T) {
	d, team := newTestDoctor(t)
	for i := range maxLeasesTold + 3 {
		holdLease(t, filepath.Join(team, fmt.Sprintf("codex-%02d.lock", i)), lockContent{PID: os.Getpid()})
	}
	last := fmt.Sprintf("codex-%02d", maxLeasesTold+2)
	d.flags = flagValues{"identity": last}
	d.checkLeases()
	if len(d.found) != maxLeasesTold+3 { // the one that was asked for, the rest, the sum
		t.Errorf("%d lines: %+v", len(d.found), d.found)
	}
	d.wantFinding(t, findingFailure, last, "which is free")
}

func TestDoctorLeftovers(t *testing.T) {
	d, team := newTestDoctor(t)
	old := time.Now().Add(-time.Hour)
	inboxes := filepath.Join(d.cfg.teamsRoot, "default", "inboxes")
	for _, dir := range []string{filepath.Join(inboxes, "ann.json.lock"), filepath.Join(inboxes, "bob.json.lock")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(inboxes, "ann.json.lock"), old, old); err != nil {
		t.Fatal(err)
	}
	for name, when := range map[string]time.Time{".tmp-1": old, ".tmp-2": time.Now(), "bcdfghj.json.corrupt-1": old} {
		path := filepath.Join(team, ".records", name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	d.checkLeftovers(context.Background())
	d.wantFinding(t, findingOK, "1 unfinished file:", "")
	d.wantFinding(t, findingWarning, "bcdfghj.json.corrupt-1", "remove it")
	d.wantFinding(t, findingWarning, "ann.json.lock was left", "rmdir ")
	if len(d.found) != 3 {
		t.Errorf("found %+v", d.found)
	}
}

func TestDoctorNeedsThreadLocks(t *testing.T) {
	d, _ := newTestDoctor(t)
	if err := os.WriteFile(filepath.Join(d.cfg.sessionsRoot, ".threads"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.checkSessionFiles()
	d.wantFinding(t, findingFailure, ".threads", "a directory")
}

// A check that a file system keeps waiting is told and left behind; the next ones
// are made.
func TestDoctorLeavesBehindWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		d := &doctor{show: func(finding) {}}
		began := time.Now()
		if d.runCheck(doctorCheck{"team", checkLimit, func(d *doctor) {
			d.ok("one")
			<-hung
			d.ok("too late")
		}}) || time.Since(began) != checkLimit {
			t.Errorf("left after %v", time.Since(began))
		}
		if !d.runCheck(doctorCheck{"log file", checkLimit, func(d *doctor) { d.ok("two") }}) {
			t.Error("the next one was not made")
		}
		close(hung)
		synctest.Wait()
		var got []string
		for _, f := range d.found {
			got = append(got, f.Status+" "+f.Check)
		}
		if want := []string{"failure team", "ok log file"}; !slices.Equal(got, want) {
			t.Errorf("found %q, want %q", got, want)
		}
	})
}
