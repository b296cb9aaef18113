package main

// registry_audit_test.go holds the audit trail to FR-9 and NFR-3: whole lines, redacted and private, of many processes
// at once, rotated, and never in the way of a session. TestAuditHelper is another process.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// readAudit returns the entries of the file and of the rotated one before it.
func readAudit(t *testing.T, path string) []auditEntry {
	t.Helper()
	var all []auditEntry
	for _, p := range []string{path + ".1", path} {
		data, err := os.ReadFile(p)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e auditEntry
			if err := json.Unmarshal(line, &e); err != nil || line[len(line)-1] != '\n' {
				t.Fatalf("line %q of %s: %v", line, p, err)
			}
			all = append(all, e)
		}
	}
	return all
}

// newTestAudit has a file in a directory of its own that rotates at size, and tells its warnings to out.
func newTestAudit(t *testing.T, size int64, queue int) (a *auditLog, path string, out *peerLog) {
	t.Helper()
	path, out = filepath.Join(t.TempDir(), "team", "audit.jsonl"), &peerLog{}
	a = openAuditSize(path, newLogger(out, "warn"), size, queue)
	t.Cleanup(a.close)
	return a, path, out
}

// wantTurns wants the entries of these turns, oldest first, in the file and the rotated one.
func wantTurns(t *testing.T, path string, first, last int) {
	t.Helper()
	got := readAudit(t, path)
	if first < 0 {
		first = last + 1 - len(got) // whichever is the oldest
	}
	for i, e := range got {
		if e.Turn != fmt.Sprint(first+i) {
			t.Fatalf("entry %d is turn %s, want %d", i, e.Turn, first+i)
		}
	}
	if len(got) != last+1-first || len(got) == 0 {
		t.Errorf("%d entries, want %d to %d", len(got), first, last)
	}
}

func TestAuditEntriesAreWholeRedactedAndPrivate(t *testing.T) {
	a, path, _ := newTestAudit(t, 1<<20, 100)
	if _, err := os.Stat(path); err == nil {
		t.Error("opening made the file; only an entry may")
	}
	a.append(auditEntry{Event: "turn", AgentID: "codex:k7m3pqx", Identity: "codex",
		Summary: "log in with password=hunter2 " + strings.Repeat("é", 70000)})
	wantNil(t, a.appendNow(auditEntry{Event: "approval", Detail: "curl -H 'Authorization: Bearer abc123'",
		Decision: "approve"}))
	got := readAudit(t, path) // without close: appendNow has written, and what was before it
	if len(got) != 2 || got[0].Event != "turn" || got[1].Event != "approval" {
		t.Fatalf("entries = %+v", got)
	}
	if s := got[0].Summary; !strings.HasPrefix(s, "log in with password=[redacted] é") || len([]rune(s)) != 200 ||
		!strings.HasSuffix(s, "é…") {
		t.Errorf("summary = %q", s)
	}
	if got[1].Detail != "curl -H 'Authorization: Bearer [redacted]'" || got[1].Decision != "approve" {
		t.Errorf("approval = %+v", got[1])
	}
	if d := time.Since(got[0].Time); d < 0 || d > time.Hour {
		t.Errorf("time = %v", got[0].Time)
	}
	if raw, _ := os.ReadFile(path); !bytes.Contains(raw, []byte(`"event":"approval","agent_id":"","identity":""`)) {
		t.Errorf("FR-9.3: agent_id and identity must be in every line: %s", raw)
	}
	wantModes(t, map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700})
	// A secret that straddles the cut must not survive by being too short to match.
	for pad := 150; pad < 200; pad++ {
		a.append(auditEntry{Summary: strings.Repeat("x", pad) + " ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"})
	}
	wantNil(t, a.flush(t.Context()))
	if raw, _ := os.ReadFile(path); bytes.Contains(raw, []byte("ghp_")) {
		t.Errorf("part of a token in %s", raw)
	}
	before := len(readAudit(t, path))
	a.close()
	a.close()
	a.append(auditEntry{Event: "late"})
	for _, err := range []error{a.appendNow(auditEntry{Event: "late"}), a.flush(t.Context())} {
		if !errors.Is(err, errAuditClosed) {
			t.Errorf("after close: %v", err)
		}
	}
	if n := len(readAudit(t, path)); n != before {
		t.Errorf("%d entries after close, %d before", n, before)
	}
}

// stallAudit keeps the log's writer busy until release is called, as a disk that
// hangs does.
func stallAudit(a *auditLog) (release func()) {
	done := make(chan error)
	a.queue <- auditItem{done: done}
	for len(a.queue) > 0 {
		runtime.Gosched()
	}
	return func() { <-done }
}

func TestAuditNeverBlocksAndCountsDrops(t *testing.T) {
	a, path, out := newTestAudit(t, 1<<20, 4)
	release := stallAudit(a)
	for i := range 50 {
		a.append(auditEntry{Event: "turn", Turn: fmt.Sprint(i)})
	}
	if n := a.dropped.Load(); n != 46 { // 4 in the queue
		t.Errorf("%d dropped", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("flush of a hanging disk: %v", err)
	}
	release()
	a.close()
	wantTurns(t, path, 0, 3)
	if strings.Count(out.String(), "entries dropped") != 1 || !strings.Contains(out.String(), "dropped=46") {
		t.Errorf("said %q", out.String())
	}
}

func TestAuditTellsOnceThatItCantWrite(t *testing.T) {
	a, path, out := newTestAudit(t, 1<<20, 4)
	plant(t, filepath.Dir(filepath.Dir(path)), map[string]string{"team": ""})
	for range 3 {
		if err := a.appendNow(auditEntry{Event: "approval"}); err == nil {
			t.Error("no error where a file is in the directory's place")
		}
	}
	if n := strings.Count(out.String(), "can't be written"); n != 1 {
		t.Errorf("told %d times: %s", n, out.String())
	}
}

// The newest entries are in two files of bounded size, without a gap; a file that a person removed is made anew.
func TestAuditRotates(t *testing.T) {
	a, path, _ := newTestAudit(t, 2000, 8)
	for i := range 60 {
		wantNil(t, a.appendNow(auditEntry{Event: "turn", Turn: fmt.Sprint(i)}))
	}
	for _, p := range []string{path, path + ".1"} {
		if st, err := os.Stat(p); err != nil || st.Size() == 0 || st.Size() > 2000 {
			t.Errorf("%s: %v, %v", p, st, err)
		}
	}
	wantTurns(t, path, -1, 59)
	if err := errors.Join(os.Remove(path), os.Remove(path+".1")); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	wantNil(t, a.appendNow(auditEntry{Event: "turn", Turn: "60"}))
	wantTurns(t, path, -1, 60)
}

// Whoever holds the lock of the log, as a process that rotates does and an older version at each line, keeps nobody
// from writing: the file only grows meanwhile.
func TestAuditWaitsForNoLock(t *testing.T) {
	a, path, _ := newTestAudit(t, 300, 8)
	plant(t, filepath.Dir(path), map[string]string{"audit.jsonl.lock": ""})
	lock, err := openMaking(path+".lock", os.O_APPEND)
	wantNil(t, err)
	defer lock.Close()
	wantNil(t, lockFile(lock, true, false))
	for i := range 9 {
		wantNil(t, a.appendNow(auditEntry{Event: "approval", Turn: fmt.Sprint(i)}))
	}
	if _, err := os.Stat(path + ".1"); err == nil {
		t.Error("rotated while another process had the lock")
	}
	unlockFile(lock)
	wantNil(t, a.appendNow(auditEntry{Event: "approval", Turn: "9"}))
	wantTurns(t, path, 0, 9)
	if st, err := os.Stat(path); err != nil || st.Size() > 300 {
		t.Errorf("not rotated once the lock was free: %v, %v", st, err)
	}
}

// TestAuditHelper is no test: it is one of the writers of the next one.
func TestAuditHelper(t *testing.T) {
	path := os.Getenv("ATM_TEST_AUDIT")
	if path == "" {
		t.Skip("runs only as a child of TestAuditOfManyProcesses")
	}
	a := openAuditSize(path, slog.New(slog.DiscardHandler), 60000, 1024)
	os.Stdout.WriteString("ready\n")
	os.Stdin.Read(make([]byte, 1)) // the start signal
	writeAuditBurst(a, os.Getenv("ATM_TEST_NAME"))
	a.close()
}

func writeAuditBurst(a *auditLog, name string) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				a.append(auditEntry{Event: "turn", Thread: fmt.Sprintf("%s-%d", name, g), Turn: fmt.Sprint(i),
					Summary: strings.Repeat("y", i)})
			}
		})
	}
	wg.Wait()
}

// Three processes write 600 lines, some 90 KB, and the file rotates once, at 60000 bytes: each line is whole and in one
// of the two files, in its order.
func TestAuditOfManyProcesses(t *testing.T) {
	notUnderWine(t, "what is appended is written where the end was a moment before")
	a, path, _ := newTestAudit(t, 60000, 1024)
	var others []testProcess
	for _, name := range []string{"p1", "p2"} {
		p := startTest(t, "TestAuditHelper", "ATM_TEST_AUDIT="+path, "ATM_TEST_NAME="+name)
		defer p.in.Close() // ends a process that was never started off
		if line := p.line(t); line != "ready" {
			t.Fatalf("the other process said %q", line)
		}
		others = append(others, p)
	}
	for _, p := range others {
		_, err := p.in.Write([]byte("x"))
		wantNil(t, err)
	}
	writeAuditBurst(a, "p0")
	a.close()
	for _, p := range others {
		wantNil(t, p.cmd.Wait())
	}
	next := map[string]int{}
	for _, e := range readAudit(t, path) {
		var turn int
		fmt.Sscan(e.Turn, &turn)
		if n, seen := next[e.Thread]; seen && n != turn {
			t.Fatalf("%s: turn %d after %d", e.Thread, turn, n-1)
		}
		next[e.Thread] = turn + 1
	}
	if len(next) != 12 {
		t.Errorf("lines of %d writers, want 12", len(next))
	}
	for thread, n := range next {
		if n != 50 {
			t.Errorf("%s ends at turn %d", thread, n-1)
		}
	}
	if _, err := os.Stat(path + ".1"); err != nil {
		t.Errorf("never rotated: %v", err)
	}
}
