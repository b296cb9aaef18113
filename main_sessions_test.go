package main

// main_sessions_test.go holds the removing of records: what is removed and what stays
// on the disk, whatever a record says. The command itself is in
// testdata/script/sessions-*.txtar.

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// removable is a closed session's record with a summary and an answer, in the
// directory that it names and that is made.
func removable(t *testing.T, root, agentID, summaryDir, made string) (*registry, record) {
	t.Helper()
	reg := newRegistry(root, "team", true, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { closeRecords(t.Context(), reg) })
	rec := record{Version: 1, AgentID: agentID, Identity: "ann", Team: "team", BackendID: "thread-1", SummaryDir: summaryDir,
		turnNote: turnNote{Status: statusClosed, LastActive: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}}
	if err := reg.save(rec); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"summary.md", filepath.Join("answers", "t1.md")} {
		path := filepath.Join(root, made, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return reg, rec
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A record is a file that anybody can edit: what it says of its directory must
// not become a way to remove other things.
func TestRemoveStaysInItsDirectory(t *testing.T) {
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "agent-sessions")
			reg, rec := removable(t, root, "codex:bcdfghj", filepath.FromSlash(tt.says), filepath.FromSlash(tt.made))
			if err := reg.remove(rec, false); err != nil {
				t.Fatal(err)
			}
			if there(reg.recordPath(rec.AgentID)) {
				t.Error("the record is still there")
			}
			dir := filepath.Join(root, filepath.FromSlash(tt.made))
			for _, name := range []string{"summary.md", filepath.Join("answers", "t1.md")} {
				if got := there(filepath.Join(dir, name)); got != tt.spared {
					t.Errorf("%s is there: %v, want %v", name, got, tt.spared)
				}
			}
		})
	}
}

// A directory that is a link to somewhere else is not followed.
func TestRemoveDoesNotFollowLinks(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "agent-sessions")
	reg, rec := removable(t, root, "codex:bcdfghj", filepath.Join("team", "ann", "thread-1"), filepath.Join("..", "elsewhere", "thread-1"))
	if err := os.Symlink(filepath.Join(top, "elsewhere"), filepath.Join(root, "team", "ann")); err != nil {
		t.Skip(err) // Windows asks for a privilege
	}
	if err := reg.remove(rec, false); err == nil {
		t.Error("no error for a directory that leads elsewhere")
	}
	if !there(filepath.Join(top, "elsewhere", "thread-1", "summary.md")) || !there(reg.recordPath(rec.AgentID)) {
		t.Error("something was removed")
	}
}

func TestRemoveSparesWhatIsInUse(t *testing.T) {
	dir := filepath.Join("team", "ann", "thread-1")
	root := t.TempDir()
	reg, rec := removable(t, root, "codex:bcdfghj", dir, dir)
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
	if err != nil {
		t.Fatal(err)
	}
	refused("the identity is leased by it")
	name.release()
	thread, err := other.lockThread("thread-1", "codex:zzzzzzz")
	if err != nil {
		t.Fatal(err)
	}
	refused("the thread is locked")
	thread.release()

	changed := rec
	changed.LastActive = rec.LastActive.Add(time.Second)
	if err := reg.save(changed); err != nil {
		t.Fatal(err)
	}
	refused("it was used since it was listed")

	// A name that another agent has by now says nothing of this one.
	name, err = other.acquire("ann", "codex:zzzzzzz")
	if err != nil {
		t.Fatal(err)
	}
	defer name.release()
	if err := reg.remove(changed, true); err != nil {
		t.Fatal(err)
	}
	if there(reg.recordPath(rec.AgentID)) || !there(filepath.Join(root, dir, "summary.md")) {
		t.Error("keepDir: want the record removed and the directory kept")
	}
	if err := reg.remove(changed, false); err != nil {
		t.Errorf("a record that is gone already: %v", err)
	}
}
