package main

// registry_test.go holds the sessions on disk to invariant 5: whole or absent for
// every reader, set aside where they can't be read, the index in step, and sessions
// of dead processes told from those of live ones.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// syncBuffer takes what several goroutines log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newTestRegistry(t *testing.T, persist bool) (*registry, *syncBuffer) {
	t.Helper()
	out := &syncBuffer{}
	r := newRegistry(filepath.Join(t.TempDir(), "agent-sessions"), "red", persist, newLogger(out, "debug"))
	t.Cleanup(func() { r.close(context.Background()) })
	return r, out
}

func mustSave(t *testing.T, r *registry, rec record) {
	t.Helper()
	wantNil(t, r.save(rec))
}

func mustLoad(t *testing.T, r *registry, agentID string) *record {
	t.Helper()
	rec, err := r.load(agentID)
	wantNil(t, err)
	return rec
}

func TestSaveAndLoad(t *testing.T) {
	r, _ := newTestRegistry(t, true)
	id := r.newAgentID()
	if _, err := r.load(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an agent that never was: %v", err)
	}
	if _, err := r.load("../codex"); err == nil {
		t.Error("a path was loaded")
	}
	mustSave(t, r, fullRecord(id, "codex"))
	path := filepath.Join(r.root, "red", ".records", suffixOf(id)+".json")
	if runtime.GOOS != "windows" {
		for p, mode := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700, r.root: 0o700} {
			if st, err := os.Stat(p); err != nil || st.Mode().Perm() != mode {
				t.Errorf("mode of %s: %v, %v", p, st.Mode(), err)
			}
		}
	}
	rec := mustLoad(t, r, id)
	rec.Turns = 99
	mustSave(t, r, *rec)
	if got := mustLoad(t, r, id); got.Turns != 99 || got.Tag != "t" {
		t.Errorf("loaded %+v", got)
	}
	if err := r.save(record{AgentID: "codex:../x"}); err == nil {
		t.Error("a path was saved")
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("files left: %v", entries)
	}
}

// A save replaces the file in one step: whoever reads meanwhile sees the one
// record or the other.
func TestAReaderNeverSeesHalfARecord(t *testing.T) {
	r, out := newTestRegistry(t, true)
	rec := fullRecord("codex:aaaa", "codex")
	mustSave(t, r, rec)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range 300 {
			rec.Digest.LastAnswer = strings.Repeat("x", i*20)
			if err := r.save(rec); err != nil {
				t.Error(err)
			}
		}
	})
	for {
		if _, err := r.load(rec.AgentID); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			wg.Wait()
			if out.String() != "" {
				t.Errorf("said %s", out.String())
			}
			return
		default:
		}
	}
}

func TestListIsNewestFirst(t *testing.T) {
	r, out := newTestRegistry(t, true)
	if recs, err := r.list(0); err != nil || len(recs) != 0 {
		t.Errorf("before the first session: %v, %v", recs, err)
	}
	start := time.Now().Add(-time.Hour)
	for _, i := range []int{3, 1, 5, 2, 4} { // saved in an order that isn't that of their activity
		rec := fullRecord(fmt.Sprintf("codex:aaa%d", i), "codex")
		rec.LastActive = start.Add(time.Duration(i) * time.Minute)
		mustSave(t, r, rec)
		if i == 5 { // used last, by a turn that its journal tells of
			rec.LastActive = start
			mustSave(t, r, rec)
			rec.LastActive = time.Now()
			wantNil(t, r.noteTurn(rec.AgentID, &rec, nil))
		}
	}
	dir := r.records
	for name, text := range map[string]string{"aaa9.json": "{", ".tmp-123": "{", "README.md": "hello"} {
		wantNil(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for limit, want := range map[int]string{0: "54321", 2: "54", 9: "54321"} {
		recs, err := r.list(limit)
		wantNil(t, err)
		got := ""
		for _, rec := range recs {
			got += strings.TrimPrefix(rec.AgentID, "codex:aaa")
		}
		if got != want {
			t.Errorf("list(%d) = %s, want %s", limit, got, want)
		}
	}
	if n := strings.Count(out.String(), "corrupt file set aside"); n != 1 || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("said %s", out.String())
	}
}

func TestACorruptRecordIsSetAside(t *testing.T) {
	r, out := newTestRegistry(t, true)
	id := "codex:aaaa"
	mustSave(t, r, fullRecord(id, "codex"))
	path := r.recordPath(id)
	for _, text := range []string{"", "\x00\x00", `{"agent_id":"codex:bbbb","identity":"x","status":"idle"}`, strings.Repeat(" ", maxRecordBytes+1)} {
		wantNil(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := r.load(id); !errors.Is(err, errRecordCorrupt) {
			t.Errorf("%.20q: %v", text, err)
		}
		aside, err := filepath.Glob(path + ".corrupt-*")
		if err != nil || len(aside) != 1 {
			t.Fatalf("%.20q: set aside %v, %v", text, aside, err)
		}
		if data, err := os.ReadFile(aside[0]); err != nil || string(data) != text {
			t.Errorf("%.20q: the content was not kept", text)
		}
		if !strings.Contains(out.String(), "level=warn msg=\"corrupt file set aside\" path="+aside[0]) {
			t.Errorf("said %s", out.String())
		}
		if _, err := r.load(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a second time: %v", err)
		}
		os.Remove(aside[0])
	}
	mustSave(t, r, fullRecord(id, "codex")) // and it goes on
	mustLoad(t, r, id)
}

func TestARecordThatCantBeWrittenIsAnError(t *testing.T) {
	r, _ := newTestRegistry(t, true)
	wantNil(t, os.MkdirAll(filepath.Dir(r.records), 0o700))
	wantNil(t, os.WriteFile(r.records, nil, 0o600))
	if err := r.save(fullRecord("codex:aaaa", "codex")); err == nil || !strings.Contains(err.Error(), r.records) {
		t.Errorf("save: %v", err)
	}
	rec := fullRecord("codex:aaaa", "codex")
	if err := r.noteTurn(rec.AgentID, &rec, nil); err == nil || !strings.Contains(err.Error(), r.records) {
		t.Errorf("noteTurn: %v", err)
	}
	if r.unwritten.Load() == nil {
		t.Error("nobody is told")
	}
	if _, err := r.list(0); err == nil {
		t.Error("list of a file")
	}
	if n := r.markStale(); n != 0 {
		t.Errorf("%d marked", n)
	}
}

func readIndex(t *testing.T, r *registry, identity string) (string, indexFile) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.root, "red", identity, "registry.json"))
	wantNil(t, err)
	var x indexFile
	wantNil(t, json.Unmarshal(data, &x))
	return string(data), x
}

func TestIndexHoldsTheOpenSessions(t *testing.T) {
	r, out := newTestRegistry(t, true)
	dir := filepath.Join(r.root, "red", "lead")
	wantNil(t, os.MkdirAll(dir, 0o700))
	old := time.Now().Add(-time.Hour)
	for name, text := range map[string]string{"registry.json": `{"version":1,"sess`, ".tmp-dead": "{", ".tmp-live": "{"} {
		wantNil(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	wantNil(t, os.Chtimes(filepath.Join(dir, ".tmp-dead"), old, old))
	for i := range 100 {
		r.setIndex("Lead", []record{fullRecord("codex:aaaa", "codex"), fullRecord(fmt.Sprintf("codex:bb%02d", i), "codex-2")})
	}
	wantNil(t, r.flush(t.Context()))
	text, x := readIndex(t, r, "lead")
	if x.Version != 1 || len(x.Sessions) != 2 || x.Sessions[1].AgentID != "codex:bb99" {
		t.Fatalf("index = %s", text)
	}
	for _, field := range []string{"agent_id", "backend", "backend_id", "identity", "team", "repo_root", "repo_name", "branch", "cwd",
		"started_at", "last_active", "status", "tag"} {
		if !strings.Contains(text, `"`+field+`"`) {
			t.Errorf("FR-5.2: no %s in %s", field, text)
		}
	}
	if e := x.Sessions[0]; e.Identity != "codex" || e.BackendID != "thread-aaaa" || *e.Branch != "main" || e.Status != statusIdle {
		t.Errorf("entry = %+v", e)
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, "registry.json.corrupt-*")); len(aside) != 1 || !strings.Contains(out.String(), "set aside") {
		t.Errorf("the corrupt index: %v, said %s", aside, out.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(left) != 1 || filepath.Base(left[0]) != ".tmp-live" {
		t.Errorf("temporary files left: %v", left)
	}
	r.setIndex("lead", nil)
	wantNil(t, r.close(t.Context()))
	if text, _ := readIndex(t, r, "lead"); !strings.Contains(text, `"sessions": []`) {
		t.Errorf("no session open: %s", text)
	}
	if err := errors.Join(r.close(t.Context()), r.flush(t.Context())); err != nil {
		t.Errorf("after close: %v", err)
	}
}

func TestAnIndexThatCantBeWrittenIsToldOnce(t *testing.T) {
	r, out := newTestRegistry(t, true)
	wantNil(t, os.MkdirAll(filepath.Join(r.root, "red"), 0o700))
	wantNil(t, os.WriteFile(filepath.Join(r.root, "red", "lead"), nil, 0o600))
	for range 3 {
		r.setIndex("lead", nil)
		wantNil(t, r.flush(t.Context()))
	}
	if n := strings.Count(out.String(), "session file can't be written"); n != 1 {
		t.Errorf("told %d times: %s", n, out.String())
	}
}

func TestWithoutPersistenceOnlyLocksAreWritten(t *testing.T) {
	r, _ := newTestRegistry(t, false)
	h, err := r.acquire("codex", "codex:aaaa")
	wantNil(t, err)
	mustSave(t, r, fullRecord("codex:aaaa", "codex"))
	r.setIndex("codex", []record{fullRecord("codex:aaaa", "codex")})
	wantNil(t, r.flush(t.Context()))
	h.release()
	if n := r.markStale(); n != 0 {
		t.Errorf("%d marked", n)
	}
	var files []string
	filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, filepath.Base(path))
		}
		return nil
	})
	if len(files) != 1 || files[0] != "codex.lock" {
		t.Errorf("files = %v", files)
	}
}

// Three instances: one was killed, one lives, one starts and looks (FR-3.2).
func TestMarkStaleBesideALiveInstance(t *testing.T) {
	r, out := newTestRegistry(t, true)
	make := func(id, identity, status string) record {
		rec := fullRecord(id, identity)
		rec.Status, rec.Interrupted, rec.LastTurnStatus = status, false, "completed"
		return rec
	}
	_, kill := holdElsewhere(t, r.root, make("codex:dead", "killed", statusBusy))
	_, killLive := holdElsewhere(t, r.root, make("codex:live", "living", statusBusy))
	defer killLive()
	kill()
	for _, rec := range []record{
		make("codex:quiet", "quiet", statusIdle), make("codex:parked", "parked", statusParked), make("codex:closed", "closed", statusClosed),
		make("codex:broken", "broken", statusBroken), make("codex:mine", "mine", statusIdle), make("codex:before", "living", statusIdle),
		make("codex:older", "mine", statusBusy),
	} {
		mustSave(t, r, rec)
	}
	mine := mustAcquire(t, r.leases, "mine", "codex:mine")
	for name, age := range map[string]time.Duration{".tmp-dead": 2 * tempLifetime, ".tmp-live": 0} {
		path := filepath.Join(r.records, name)
		wantNil(t, os.WriteFile(path, []byte(`{"agent_id":`), 0o600))
		at := time.Now().Add(-age)
		wantNil(t, os.Chtimes(path, at, at))
	}

	if n := r.markStale(); n != 4 {
		t.Errorf("%d marked, want 4: %s", n, out.String())
	}
	for id, want := range map[string]string{
		"codex:dead": "stale true interrupted", "codex:live": "busy false completed", "codex:quiet": "stale false completed",
		"codex:parked": "parked false completed", "codex:closed": "closed false completed", "codex:broken": "broken false completed",
		"codex:mine": "idle false completed",
		// Others have these identities now, so these agents have none.
		"codex:before": "stale false completed", "codex:older": "stale true interrupted",
	} {
		rec := mustLoad(t, r, id)
		if got := fmt.Sprintf("%s %v %s", rec.Status, rec.Interrupted, rec.LastTurnStatus); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
		if rec.Status == statusStale && (rec.PID != 0 || rec.Host != "") {
			t.Errorf("%s still names its holder %d", id, rec.PID)
		}
		if want := fullRecord(id, "").LastActive; !rec.LastActive.Equal(want) {
			t.Errorf("%s was active at %v, want %v", id, rec.LastActive, want)
		}
	}
	if _, err := os.Stat(filepath.Join(r.records, ".tmp-dead")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a crash's temporary file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.records, ".tmp-live")); err != nil {
		t.Errorf("a temporary file that someone may be writing: %v", err)
	}
	if n := r.markStale(); n != 0 {
		t.Errorf("%d marked again", n)
	}
	mine.release()
	if n := r.markStale(); n != 1 {
		t.Errorf("%d marked after release", n)
	}
	mustAcquire(t, r.leases, "killed", "codex:dead") // the lock it looked at is free
}

// The instance holds its own name from the start, before there is a session: a
// predecessor's session of that name is stale all the same.
func TestMarkStaleUnderTheInstancesOwnName(t *testing.T) {
	r, _ := newTestRegistry(t, true)
	mustSave(t, r, fullRecord("codex:aaaa", "lead"))
	h := mustAcquire(t, r.leases, "lead", "")
	if n := r.markStale(); n != 1 {
		t.Errorf("%d marked", n)
	}
	wantNil(t, h.assign("codex:aaaa"))
	mustSave(t, r, fullRecord("codex:aaaa", "lead"))
	if n := r.markStale(); n != 0 {
		t.Errorf("%d marked of a revived session", n)
	}
}

// Several instances start at once and look while sessions are being revived.
func TestMarkStaleRacesWithReviving(t *testing.T) {
	r, out := newTestRegistry(t, true)
	other := newRegistry(r.root, "red", true, newLogger(out, "debug"))
	defer other.close(t.Context())
	for i := range 20 {
		mustSave(t, r, fullRecord(fmt.Sprintf("codex:aa%02d", i), fmt.Sprintf("codex-%d", i)))
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.markStale() })
	wg.Go(func() { other.markStale() })
	for i := range 20 {
		id := fmt.Sprintf("codex:aa%02d", i)
		h := mustAcquire(t, r.leases, fmt.Sprintf("codex-%d", i), id)
		thread, err := r.lockThread("thread-"+suffixOf(id), id)
		wantNil(t, err)
		rec := mustLoad(t, r, id)
		rec.Status = statusBusy
		mustSave(t, r, *rec)
		defer thread.release()
		defer h.release()
	}
	wg.Wait()
	for i := range 20 {
		if rec := mustLoad(t, r, fmt.Sprintf("codex:aa%02d", i)); rec.Status != statusBusy {
			t.Errorf("%s is %s", rec.AgentID, rec.Status)
		}
	}
	if strings.Contains(out.String(), "warn") {
		t.Errorf("said %s", out.String())
	}
}

// A new session may have the name of one whose process died: that one was told
// to be idle for as long as the other lived.
func TestADeadSessionsNameMayBeAnothers(t *testing.T) {
	r, _ := newTestRegistry(t, true)
	dead := record{AgentID: r.newAgentID(), Identity: "codex", Team: r.team, turnNote: turnNote{Status: statusBusy}}
	if status, interrupted, pid := r.told(&dead); status != statusStale || !interrupted || pid != 0 {
		t.Errorf("held by nobody: %s, interrupted %v, pid %d", status, interrupted, pid)
	}
	l := mustAcquire(t, r.leases, "codex", dead.AgentID)
	if status, interrupted, pid := r.told(&dead); status != statusBusy || interrupted || pid != os.Getpid() {
		t.Errorf("held by itself: %s, interrupted %v, pid %d", status, interrupted, pid)
	}
	wantNil(t, l.assign(r.newAgentID()))
	if status, interrupted, pid := r.told(&dead); status != statusStale || !interrupted || pid != 0 {
		t.Errorf("held by another: %s, interrupted %v, pid %d", status, interrupted, pid)
	}
}

// BenchmarkRecordTransition is one transition of one session, index included,
// beside so many kept ones: a turn's line in the journal, and the record written
// whole. Neither may grow with the number.
func BenchmarkRecordTransition(b *testing.B) {
	for _, kept := range []int{10, 1000, 10000} {
		r := newRegistry(b.TempDir(), "red", true, slog.New(slog.DiscardHandler))
		defer r.close(context.Background())
		for i := range kept {
			wantNil(b, r.save(fullRecord(fmt.Sprintf("codex:kept%05d", i), "codex")))
		}
		rec := fullRecord("codex:kept00001", "codex")
		for _, whole := range []bool{false, true} {
			wantNil(b, r.flush(b.Context()))
			b.Run(fmt.Sprintf("kept=%d/whole=%v", kept, whole), func(b *testing.B) {
				for b.Loop() {
					rec.LastActive = time.Now()
					err := error(nil)
					if whole {
						err = r.save(rec)
					} else {
						err = r.noteTurn(rec.AgentID, &rec, nil)
					}
					wantNil(b, err)
					r.setIndex("codex", []record{rec})
				}
			})
		}
	}
}

func BenchmarkMarkStaleAndList(b *testing.B) {
	r := newRegistry(b.TempDir(), "red", true, slog.New(slog.DiscardHandler))
	defer r.close(context.Background())
	for i := range 10000 {
		rec := fullRecord(fmt.Sprintf("codex:kept%05d", i), "codex")
		rec.Status = statusClosed
		wantNil(b, r.save(rec))
	}
	b.Run("markStale", func(b *testing.B) {
		for b.Loop() {
			r.markStale()
		}
	})
	b.Run("list50", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.list(50); err != nil {
				b.Fatal(err)
			}
		}
	})
}
