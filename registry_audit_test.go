package main

// registry_audit_test.go holds the audit trail to FR-9 and NFR-3: whole lines, redacted
// and private, of many processes at once, rotated, and never in the way of a
// session. TestAuditHelper is another process.

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

func TestAuditEntriesAreWholeRedactedAndPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "team", "audit.jsonl")
	a := openAudit(path, slog.New(slog.DiscardHandler))
	if _, err := os.Stat(path); err == nil {
		t.Error("opening made the file; only an entry may")
	}
	a.append(auditEntry{Event: "turn", AgentID: "codex:k7m3pqx", Identity: "codex", Summary: "log in with password=hunter2 " + strings.Repeat("é", 70000)})
	wantNil(t, a.appendNow(auditEntry{Event: "approval", Detail: "curl -H 'Authorization: Bearer abc123'", Decision: "approve"}))
	got := readAudit(t, path) // without close: appendNow has written, and what was before it
	if len(got) != 2 || got[0].Event != "turn" || got[1].Event != "approval" {
		t.Fatalf("entries = %+v", got)
	}
	if s := got[0].Summary; !strings.HasPrefix(s, "log in with password=[redacted] é") || len([]rune(s)) != 200 || !strings.HasSuffix(s, "é…") {
		t.Errorf("summary = %q", s)
	}
	if got[1].Detail != "curl -H 'Authorization: Bearer [redacted]'" || got[1].Decision != "approve" {
		t.Errorf("approval = %+v", got[1])
	}
	if d := time.Since(got[0].Time); d < 0 || d > time.Hour {
		t.Errorf("time = %v", got[0].Time)
	}
	raw, _ := os.ReadFile(path)
	if !bytes.Contains(raw, []byte(`"event":"approval","agent_id":"","identity":""`)) {
		t.Errorf("FR-9.3: agent_id and identity must be in every line: %s", raw)
	}
	if runtime.GOOS != "windows" {
		for p, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
			if st, err := os.Stat(p); err != nil || st.Mode().Perm() != mode {
				t.Errorf("mode of %s = %v, %v; want %v", p, st.Mode(), err, mode)
			}
		}
	}
	a.close()
	a.close()
	a.append(auditEntry{Event: "late"})
	if err := a.appendNow(auditEntry{Event: "late"}); !errors.Is(err, errAuditClosed) {
		t.Errorf("appendNow after close: %v", err)
	}
	if err := a.flush(t.Context()); !errors.Is(err, errAuditClosed) {
		t.Errorf("flush after close: %v", err)
	}
	if n := len(readAudit(t, path)); n != 2 {
		t.Errorf("%d entries after close", n)
	}
}

// A secret that straddles the cut must not survive by being too short to match.
func TestAuditRedactsBeforeItCuts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openAudit(path, slog.New(slog.DiscardHandler))
	defer a.close()
	secret := "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"
	for pad := 150; pad < 200; pad++ {
		a.append(auditEntry{Summary: strings.Repeat("x", pad) + " " + secret})
	}
	wantNil(t, a.flush(t.Context()))
	if raw, _ := os.ReadFile(path); bytes.Contains(raw, []byte("ghp_")) {
		t.Errorf("part of a token in %s", raw)
	}
}

// stallAudit keeps the log's writer busy until release is called, as a disk that
// hangs does.
func stallAudit(a *auditLog) (release func()) {
	done := make(chan error)
	a.queue <- auditItem{barrier: true, done: done}
	for len(a.queue) > 0 {
		runtime.Gosched()
	}
	return func() { <-done }
}

func TestAuditNeverBlocksAndCountsDrops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var out bytes.Buffer
	a := openAuditSize(path, newLogger(&out, "warn"), 1<<20, 4)
	release := stallAudit(a)
	for i := range 50 {
		a.append(auditEntry{Event: "turn", Turn: fmt.Sprint(i)})
	}
	if n := a.drops(); n != 46 { // 4 in the queue
		t.Errorf("%d dropped", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("flush of a hanging disk: %v", err)
	}
	release()
	a.close()
	if got := readAudit(t, path); uint64(len(got))+a.drops() != 50 || got[0].Turn != "0" {
		t.Errorf("%d written and %d dropped of 50", len(got), a.drops())
	}
	if want := fmt.Sprintf("dropped=%d", a.drops()); strings.Count(out.String(), "entries dropped") != 1 || !strings.Contains(out.String(), want) {
		t.Errorf("no %q in %q", want, out.String())
	}
}

func TestAuditTellsOnceThatItCantWrite(t *testing.T) {
	dir := t.TempDir()
	wantNil(t, os.WriteFile(filepath.Join(dir, "team"), nil, 0o600))
	var out bytes.Buffer
	a := openAudit(filepath.Join(dir, "team", "audit.jsonl"), newLogger(&out, "warn"))
	for range 3 {
		if err := a.appendNow(auditEntry{Event: "approval"}); err == nil {
			t.Error("no error where a file is in the directory's place")
		}
	}
	a.close()
	if n := strings.Count(out.String(), "can't be written"); n != 1 {
		t.Errorf("told %d times: %s", n, out.String())
	}
}

func TestAuditRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openAuditSize(path, slog.New(slog.DiscardHandler), 2000, 8)
	defer a.close()
	for i := range 60 {
		wantNil(t, a.appendNow(auditEntry{Event: "turn", Turn: fmt.Sprint(i)}))
	}
	for _, p := range []string{path, path + ".1"} {
		if st, err := os.Stat(p); err != nil || st.Size() == 0 || st.Size() > 2000 {
			t.Errorf("%s: %v, %v", p, st, err)
		}
	}
	got := readAudit(t, path)
	if got[len(got)-1].Turn != "59" {
		t.Errorf("last entry = %+v", got[len(got)-1])
	}
	for i, e := range got { // the newest, without a gap
		if want := fmt.Sprint(60 - len(got) + i); e.Turn != want {
			t.Fatalf("entry %d is turn %s, want %s", i, e.Turn, want)
		}
	}
	// A file that a person removed is made anew.
	if err := os.Remove(path); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	wantNil(t, a.appendNow(auditEntry{Event: "turn", Turn: "60"}))
	if got := readAudit(t, path); got[len(got)-1].Turn != "60" {
		t.Errorf("last entry = %+v", got[len(got)-1])
	}
}

// Whoever holds the lock of the log, as a process that rotates does and an older
// version at each line, keeps nobody from writing: the file only grows meanwhile.
func TestAuditWaitsForNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	lock, err := openMaking(path+".lock", os.O_APPEND)
	wantNil(t, err)
	defer lock.Close()
	wantNil(t, lockFile(lock, true, false))
	a := openAuditSize(path, slog.New(slog.DiscardHandler), 300, 8)
	defer a.close()
	for i := range 9 {
		wantNil(t, a.appendNow(auditEntry{Event: "approval", Turn: fmt.Sprint(i)}))
	}
	if _, err := os.Stat(path + ".1"); err == nil {
		t.Error("rotated while another process had the lock")
	}
	wantNil(t, unlockFile(lock))
	wantNil(t, a.appendNow(auditEntry{Event: "approval", Turn: "9"}))
	if got := readAudit(t, path); len(got) != 10 || got[9].Turn != "9" {
		t.Errorf("%d entries of 10", len(got))
	}
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
				a.append(auditEntry{Event: "turn", Thread: fmt.Sprintf("%s-%d", name, g), Turn: fmt.Sprint(i), Summary: strings.Repeat("y", i)})
			}
		})
	}
	wg.Wait()
}

// Three processes write 600 lines, some 90 KB, and the file rotates once, at
// 60000 bytes: each line is whole and in one of the two files, in its order.
func TestAuditOfManyProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
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
	a := openAuditSize(path, slog.New(slog.DiscardHandler), 60000, 1024)
	writeAuditBurst(a, "p0")
	a.close()
	for _, p := range others {
		wantNil(t, p.cmd.Wait())
	}
	next := map[string]int{}
	got := readAudit(t, path)
	for _, e := range got {
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
