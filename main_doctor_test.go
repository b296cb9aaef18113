package main

// main_doctor_test.go holds the commands that look at session files to what a script can't easily bring about: doctor
// to locks whose process is gone, old leftovers, a file system that hangs; the removing of records to what stays on
// the disk, whatever a record says. The commands themselves are in testdata/script/doctor-*.txtar and
// sessions-*.txtar.

import (
	"errors"
	"fmt"
	"log/slog"
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
	cfg.sessionsRoot, cfg.teamsRoot = filepath.Join(root, "sessions"), filepath.Join(root, "teams")
	cfg.cwd, cfg.team = root, "default"
	team = filepath.Join(cfg.sessionsRoot, "default")
	wantNil(t, os.MkdirAll(filepath.Join(team, ".records"), 0o700))
	return &doctor{cfg: cfg, show: func(finding) {}}, team
}

func (d *doctor) wantFinding(t *testing.T, status, text, hint string) {
	t.Helper()
	if !slices.ContainsFunc(d.found, func(f finding) bool {
		return f.Status == status && strings.Contains(f.Text, text) && strings.Contains(f.Hint, hint)
	}) {
		t.Errorf("no %s with %q and hint %q in %+v", status, text, hint, d.found)
	}
}

// holdLease writes a lease of somebody else and holds its lock, as another process would.
func holdLease(t *testing.T, path string, c lockContent) {
	t.Helper()
	wantNil(t, os.WriteFile(path, toJSON(c), 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	wantNil(t, err)
	t.Cleanup(func() { f.Close() })
	wantNil(t, lockFile(f, true, false))
}

func TestDoctorUpdatesCodexAsItWasInstalled(t *testing.T) {
	d, _ := newTestDoctor(t)
	for place, command := range map[string]string{"Cellar/codex/0.1/bin": "brew upgrade codex", "bin": "npm install"} {
		d.cfg.codexBin = filepath.Join(d.cfg.cwd, place, "codex.exe")
		wantNil(t, os.MkdirAll(filepath.Dir(d.cfg.codexBin), 0o700))
		wantNil(t, os.WriteFile(d.cfg.codexBin, nil, 0o700))
		if got := newCodexDoctor(d).update; !strings.HasPrefix(got, command) {
			t.Errorf("in %s: %q, want %q", place, got, command)
		}
	}
}

func TestDoctorTellsWhoHoldsALease(t *testing.T) {
	d, team := newTestDoctor(t)
	host, _ := os.Hostname()
	const dead = 1 << 30 // beyond every system's largest
	ann := filepath.Join(team, "ann.lock")
	holdLease(t, ann, lockContent{PID: dead, AgentID: "codex:bcdfghj", Host: host})
	holdLease(t, filepath.Join(team, "bob.lock"), lockContent{PID: dead, AgentID: "codex:bcdfghk",
		Host: host + "-other"})
	holdLease(t, filepath.Join(team, "cal.lock"), lockContent{PID: os.Getpid(), Host: host})
	before := readText(t, ann)
	d.checkLeases()
	d.wantFinding(t, findingWarning, `"ann" is in use by agent codex:bcdfghj in process 1073741824, which is gone`,
		"lsof "+ann)
	d.wantFinding(t, findingOK, `"bob" is in use by agent codex:bcdfghk in process 1073741824 on `+host+"-other", "")
	d.wantFinding(t, findingOK, fmt.Sprintf(`"cal" is in use without an agent yet in process %d`, os.Getpid()), "")
	d.wantFinding(t, findingOK, "3 in use, 0 free", "")
	want(t, readText(t, ann), before)

	d, team = newTestDoctor(t) // many are told in one line
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

func TestDoctorTellsWhatWasLeft(t *testing.T) {
	d, team := newTestDoctor(t)
	old := time.Now().Add(-time.Hour)
	inboxes := filepath.Join(d.cfg.teamsRoot, "default", "inboxes")
	for _, name := range []string{"ann.json.lock", "bob.json.lock"} {
		wantNil(t, os.MkdirAll(filepath.Join(inboxes, name), 0o700))
	}
	wantNil(t, os.Chtimes(filepath.Join(inboxes, "ann.json.lock"), old, old))
	for name, when := range map[string]time.Time{".tmp-1": old, ".tmp-2": time.Now(), "bcdfghj.json.corrupt-1": old} {
		path := filepath.Join(team, ".records", name)
		wantNil(t, os.WriteFile(path, nil, 0o600))
		wantNil(t, os.Chtimes(path, when, when))
	}
	wantNil(t, os.WriteFile(filepath.Join(inboxes, "ann.json.corrupt-2"), nil, 0o600))
	d.checkLeftovers(t.Context())
	d.wantFinding(t, findingOK, "1 unfinished file:", "")
	d.wantFinding(t, findingWarning, "ann.json.corrupt-2", "remove it")
	d.wantFinding(t, findingWarning, "bcdfghj.json.corrupt-1", "remove it")
	d.wantFinding(t, findingWarning, "ann.json.lock was left", "rmdir ")
	if len(d.found) != 4 {
		t.Errorf("found %+v", d.found)
	}

	wantNil(t, os.WriteFile(filepath.Join(d.cfg.sessionsRoot, ".threads"), nil, 0o600)) // where locks of threads go
	d.checkSessionFiles()
	d.wantFinding(t, findingFailure, ".threads", "a directory")
}

// A check that a file system keeps waiting is told and left behind; the next ones are made.
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
		if len(d.found) != 2 || d.found[0].Status != findingFailure || d.found[1].Check != "log file" {
			t.Errorf("found %+v", d.found)
		}
	})
}

// leftBehind are the files of a session's summary directory.
func leftBehind() []string { return []string{"summary.md", filepath.Join("answers", "t1.md")} }

// removable is a closed session's record with a summary and an answer, in the directory that it names and that is made.
func removable(t *testing.T, root, summaryDir, made string) (*registry, record) {
	t.Helper()
	reg := newRegistry(root, "team", true, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { closeRecords(t.Context(), reg) })
	rec := record{Version: 1, AgentID: "codex:bcdfghj", Identity: "ann", Team: "team", BackendID: "thread-1",
		SummaryDir: summaryDir,
		turnNote:   turnNote{Status: statusClosed, LastActive: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}}
	wantNil(t, reg.save(rec))
	wantNil(t, reg.flush(t.Context())) // under Wine a removed file is seen until nobody has the file open
	for _, name := range leftBehind() {
		path := filepath.Join(root, made, name)
		wantNil(t, os.MkdirAll(filepath.Dir(path), 0o700))
		wantNil(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	return reg, rec
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A record is a file that anybody can edit: what it says of its directory must not become a way to remove other things.
func TestRemoveStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, says, made string
		spared           bool
	}{
		{"its own", "team/ann/thread-1", "team/ann/thread-1", false},
		{"above the root", "../ann/thread-1", "../ann/thread-1", true},
		{"around the root", "team/ann/../../../x", "../x", true},
		{"another team", "other/ann/thread-1", "other/ann/thread-1", true},
		{"not as deep", "team/ann", "team/ann", true},
		{"the team's records", "team/.records/..", "team", true},
		{"absolute", "/team/ann/thread-1", "team/ann/thread-1", true},
		{"none", "", "team/ann/thread-1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "agent-sessions")
			reg, rec := removable(t, root, filepath.FromSlash(tt.says), filepath.FromSlash(tt.made))
			wantNil(t, reg.remove(rec, false))
			if there(reg.recordPath(rec.AgentID)) {
				t.Error("the record is still there")
			}
			for _, name := range leftBehind() {
				if got := there(filepath.Join(root, filepath.FromSlash(tt.made), name)); got != tt.spared {
					t.Errorf("%s is there: %v, want %v", name, got, tt.spared)
				}
			}
		})
	}
	t.Run("a link is not followed", func(t *testing.T) {
		top := t.TempDir()
		root := filepath.Join(top, "agent-sessions")
		reg, rec := removable(t, root, filepath.Join("team", "ann", "thread-1"),
			filepath.Join("..", "elsewhere", "thread-1"))
		symlink(t, filepath.Join(top, "elsewhere"), filepath.Join(root, "team", "ann"))
		if err := reg.remove(rec, false); err == nil {
			t.Error("no error for a directory that leads elsewhere")
		}
		if !there(filepath.Join(top, "elsewhere", "thread-1", "summary.md")) || !there(reg.recordPath(rec.AgentID)) {
			t.Error("something was removed")
		}
	})
}

func TestRemoveSparesWhatIsInUse(t *testing.T) {
	dir, root := filepath.Join("team", "ann", "thread-1"), t.TempDir()
	reg, rec := removable(t, root, dir, dir)
	other := newLeases(root, "team", true) // as another process: flock conflicts with itself
	refused := func(why string) {
		t.Helper()
		if err := reg.remove(rec, false); !errors.Is(err, errAlive) {
			t.Errorf("%s: remove says %v", why, err)
		}
		if !there(reg.recordPath(rec.AgentID)) || !there(filepath.Join(root, dir, "summary.md")) {
			t.Fatalf("%s: something was removed", why)
		}
	}
	name, err := other.acquire("ann", rec.AgentID)
	wantNil(t, err)
	refused("the identity is leased by it")
	name.release()
	thread, err := other.lockThread("thread-1", "codex:zzzzzzz")
	wantNil(t, err)
	refused("the thread is locked")
	thread.release()

	changed := rec
	changed.LastActive = rec.LastActive.Add(time.Second)
	wantNil(t, reg.save(changed))
	refused("it was used since it was listed")

	name, err = other.acquire("ann", "codex:zzzzzzz") // a name that another agent has by now says nothing of this one
	wantNil(t, err)
	defer name.release()
	wantNil(t, reg.remove(changed, true))
	if there(reg.recordPath(rec.AgentID)) || !there(filepath.Join(root, dir, "summary.md")) {
		t.Error("keepDir: want the record removed and the directory kept")
	}
	if err := reg.remove(changed, false); err != nil {
		t.Errorf("a record that is gone already: %v", err)
	}
}

// Who has put a program where it is, by its place.
func TestInstalledBy(t *testing.T) {
	home := filepath.FromSlash("/home/ann")
	env := func(name string) string {
		return map[string]string{"GOBIN": filepath.FromSlash("/opt/tools/"),
			"GOPATH": filepath.FromSlash("/a/go") + string(os.PathListSeparator) + filepath.FromSlash("/b/go")}[name]
	}
	none := func(string) string { return "" }
	bundle := t.TempDir()
	wantNil(t, os.WriteFile(filepath.Join(bundle, "manifest.json"), nil, 0o600))
	for _, tt := range []struct {
		path, want string
		env        func(string) string
	}{
		{"/home/ann/go/bin/atm-agent-mcp", "installed by go install, ", none},
		{"/home/ann/go/bin/atm-agent-mcp", "", env},
		{"/b/go/bin/atm-agent-mcp", "installed by go install, ", env},
		{"/opt/tools/atm-agent-mcp", "installed by go install, ", env},
		{"/opt/tools/bin/atm-agent-mcp", "", env},
		{"/opt/homebrew/Cellar/atm-agent-mcp/1.0.0/bin/atm-agent-mcp", "installed by Homebrew, ", none},
		{"/p/node_modules/atm-agent-mcp-linux-x64/bin/atm-agent-mcp", "installed by npm, ", none},
		{"/c/_npx/0a/node_modules/atm-agent-mcp-linux-x64/bin/atm-agent-mcp", "fetched by npx, ", none},
		{bundle + "/server/atm-agent-mcp", "installed as an MCPB bundle, ", none},
		{"/srv/server/atm-agent-mcp", "", none},
		{"/usr/local/bin/atm-agent-mcp", "", none},
	} {
		path := filepath.FromSlash(tt.path)
		want(t, installedBy(path, home, tt.env), tt.want+path)
	}
}
