package main

// registry_test.go holds the sessions on disk to invariant 5: records and journals whole or absent for each reader, set
// aside where unreadable, bounded, and nothing lost between memory and bytes (fuzzed); the index in step; and sessions
// of dead processes told from those of live ones.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func newTestRegistry(t testing.TB, persist bool) (*registry, *peerLog) {
	t.Helper()
	out := &peerLog{}
	r := newRegistry(filepath.Join(t.TempDir(), "agent-sessions"), "red", persist, newLogger(out, "debug"))
	t.Cleanup(func() { r.close(context.Background()) })
	return r, out
}

func mustSave(t testing.TB, r *registry, records ...record) {
	t.Helper()
	for _, rec := range records {
		wantNil(t, r.save(rec))
	}
}

func mustLoad(t *testing.T, r *registry, agentID string) *record {
	t.Helper()
	rec, err := r.load(agentID)
	wantNil(t, err)
	return rec
}

// wantModes wants that nobody else can read the files and directories.
func wantModes(t *testing.T, modes map[string]fs.FileMode) {
	t.Helper()
	for path, mode := range modes {
		if st, err := os.Stat(path); runtime.GOOS != "windows" && (err != nil || st.Mode().Perm() != mode) {
			t.Errorf("mode of %s: %v, %v", path, st.Mode(), err)
		}
	}
}

// fullRecord has a value in every field, so that a field without a place in the file shows.
func fullRecord(agentID, identity string) record {
	root, name, branch := "/src/app", "app", "main"
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return record{
		Version: 1, AgentID: agentID, Backend: "codex", BackendKind: "app-server",
		BackendID: "thread-" + suffixOf(agentID),
		Identity:  identity, Implied: true, Team: "red", StartedAt: at, Tag: "t", Role: "reviewer", Tools: toolsServer,
		AgentName: "helper", AgentSource: "/a/b.md",
		Settings: sessionOptions{Model: "m", Effort: "high", Sandbox: "read-only", Approval: "never",
			BaseInstructions:      "b",
			DeveloperInstructions: "d", CompactPrompt: "c", Profile: "p", Config: json.RawMessage(`{"a.b":1}`)},
		SummaryDir: "red/codex/thread-1", AutoMail: new(bool), ClientSession: "sess_1", Roots: []string{"/other"},
		Title: "a title", Inherited: true, Worktree: &worktree{Base: "1a2b3c", From: "/src/app"},
		Noted: 7, PID: 12, Host: "h",
		turnNote: turnNote{Status: statusIdle, Interrupted: true, Turns: 3, LastActive: at.Add(time.Hour),
			LastTurnID:     "turn-3",
			LastTurnStatus: "completed", LastError: "none", SummaryDue: true, RepoRoot: &root, RepoName: &name,
			Branch: &branch,
			CWD:    "/src/app/cmd", Context: json.RawMessage(`{"branch":"main"}`),
			Digest: recordDigest{LastPrompt: "<p> & q", LastAnswer: "a", TouchedFiles: []string{"x", "y"}}},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	want := fullRecord("codex:k7m3pqx", "codex")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[record]()) {
		if f.IsExported() && reflect.ValueOf(want).FieldByIndex(f.Index).IsZero() {
			t.Errorf("fullRecord has no %s", f.Name)
		}
	}
	data, err := encodeRecord(want)
	wantNil(t, err)
	if got, err := decodeRecord(data, want.AgentID); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
	// Outside a repository the facts are null, not missing (FR-2).
	data, _ = encodeRecord(record{AgentID: want.AgentID, Identity: "codex", turnNote: turnNote{Status: statusIdle}})
	for _, field := range []string{`"repo_root":null`, `"repo_name":null`, `"branch":null`, `"version":1`} {
		if !strings.Contains(string(data), field) {
			t.Errorf("no %s in %s", field, data)
		}
	}
	for name, data := range map[string]string{
		"empty": "", "zeros": "\x00\x00\x00", "cut off": `{"agent_id":"codex:k7m3pqx","identity":"co`, "array": "[]",
		"null":       "null",
		"another's":  `{"agent_id":"codex:bbbb","identity":"codex","status":"idle"}`,
		"wrong type": `{"agent_id":"codex:k7m3pqx","identity":"codex","status":3}`,
		"no status":  `{"agent_id":"codex:k7m3pqx","identity":"codex"}`,
	} {
		if rec, err := decodeRecord([]byte(data), want.AgentID); err == nil {
			t.Errorf("%s: %+v", name, rec)
		}
	}
}

func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	rec := fullRecord("codex:k7m3pqx", "codex")
	rec.Digest = recordDigest{LastPrompt: strings.Repeat("é", maxDigestPrompt),
		LastAnswer: "x" + strings.Repeat("€", maxDigestAnswer)}
	for i := range 500 {
		rec.Digest.TouchedFiles = append(rec.Digest.TouchedFiles, fmt.Sprint(i))
	}
	data, err := encodeRecord(rec)
	wantNil(t, err)
	got, err := decodeRecord(data, rec.AgentID)
	wantNil(t, err)
	d, files := got.Digest, got.Digest.TouchedFiles
	if len(d.LastPrompt) != maxDigestPrompt || len(d.LastAnswer) > maxDigestAnswer ||
		strings.ContainsRune(d.LastPrompt+d.LastAnswer, '\ufffd') {
		t.Errorf("%d bytes of prompt, %d of answer", len(d.LastPrompt), len(d.LastAnswer))
	}
	if len(files) != maxDigestFiles || files[maxDigestFiles-1] != "499" || len(rec.Digest.TouchedFiles) != 500 {
		t.Errorf("%d files, or the caller's record was changed", len(files))
	}
	rec.Settings.BaseInstructions = strings.Repeat("x", maxRecordBytes)
	if _, err := encodeRecord(rec); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a record over the limit: %v", err)
	}
	rec = fullRecord("codex:k7m3pqx", "codex")
	rec.Context = json.RawMessage("{")
	if _, err := encodeRecord(rec); err == nil {
		t.Error("a context that is no JSON was encoded")
	}
}

func TestAgentIDs(t *testing.T) {
	r, _ := newTestRegistry(t, true)
	seen := map[string]bool{}
	for range 2000 {
		id := randomAgentID()
		suffix := suffixOf(id)
		if !validAgentID(id) || len(suffix) != agentIDLength || strings.ContainsAny(suffix, "0o1liaeuy") || seen[id] {
			t.Fatalf("agent id %q", id)
		}
		for i := 1; i < len(suffix); i++ {
			if suffix[i] == suffix[i-1] {
				t.Fatalf("%q repeats a character", id)
			}
		}
		seen[id] = true
	}
	for _, id := range []string{"", "codex:", "codex:abc", "k7m3pqx", "codex:../../x", "codex:K7M3PQX",
		"codex:k7m3pqx\n",
		"codex:" + strings.Repeat("a", 33)} {
		if validAgentID(id) || suffixOf(id) != "" || r.noteTurn(id, &record{}, nil) == nil {
			t.Errorf("%q is taken for an agent id", id)
		}
	}
	if suffixOf("codex:abcd") != "abcd" {
		t.Error("another version's id is refused")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	full, err := encodeRecord(fullRecord("codex:k7m3pqx", "codex"))
	wantNil(f, err)
	f.Add(full)
	f.Add([]byte(`{"agent_id":"codex:k7m3pqx","identity":"i","status":"idle","AGENT_ID":"codex:k7m3pq","digest":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := decodeRecord(data, "codex:k7m3pqx")
		if err != nil {
			return
		}
		out, err := encodeRecord(*rec)
		wantNil(t, err)
		again, err := decodeRecord(out, rec.AgentID)
		wantNil(t, err)
		if again.Identity != rec.Identity || again.Status != rec.Status || again.Turns != rec.Turns ||
			again.Noted != rec.Noted {
			t.Fatalf("what was read is changed: %s", out)
		}
	})
}

// A save is private, whole at once for whoever reads meanwhile, and leaves no other file; an id is never a path.
func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	notUnderWine(t, "nothing is renamed over a file that is open")
	r, out := newTestRegistry(t, true)
	rec := fullRecord(r.newAgentID(), "codex")
	if _, err := r.load(rec.AgentID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an agent that never was: %v", err)
	}
	_, err := r.load("../codex")
	if err2 := r.save(record{AgentID: "codex:../x"}); err == nil || err2 == nil {
		t.Error("a path was loaded or saved")
	}
	mustSave(t, r, rec)
	path := filepath.Join(r.root, "red", ".records", suffixOf(rec.AgentID)+".json")
	wantModes(t, map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700, r.root: 0o700})
	done := make(chan error)
	go func() {
		for i := range 300 {
			rec.Turns, rec.Digest.LastAnswer = i, strings.Repeat("x", i*20)
			if err := r.save(rec); err != nil {
				done <- err
			}
		}
		close(done)
	}()
	for saving := true; saving; {
		if got := mustLoad(t, r, rec.AgentID); got.Tag != "t" {
			t.Fatalf("loaded %+v", got)
		}
		select {
		case err, saving = <-done:
			wantNil(t, err)
		default:
		}
	}
	if got := mustLoad(t, r, rec.AgentID); got.Turns != 299 || out.String() != "" {
		t.Errorf("loaded %+v, said %s", got, out.String())
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("files left: %v", entries)
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
		rec.LastActive = start.Add(time.Duration(i%5) * time.Minute)
		mustSave(t, r, rec)
		if i == 5 { // used last, by a turn that its journal tells of
			rec.LastActive = time.Now()
			wantNil(t, r.noteTurn(rec.AgentID, &rec, nil))
		}
	}
	plant(t, r.records, map[string]string{"aaa9.json": "{", ".tmp-123": "{", "README.md": "hello"})
	for limit, want := range map[int]string{0: "54321", 2: "54", 9: "54321"} {
		recs, err := r.list(limit)
		got := ""
		for _, rec := range recs {
			got += strings.TrimPrefix(rec.AgentID, "codex:aaa")
		}
		if got != want || err != nil {
			t.Errorf("list(%d) = %s, %v, want %s", limit, got, err, want)
		}
	}
	if n := strings.Count(out.String(), "corrupt file set aside"); n != 1 || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("said %s", out.String())
	}
}

func TestACorruptRecordIsSetAside(t *testing.T) {
	r, out := newTestRegistry(t, true)
	const id = "codex:aaaa"
	path := r.recordPath(id)
	for _, text := range []string{"", "\x00\x00", `{"agent_id":"codex:bbbb","identity":"x","status":"idle"}`,
		strings.Repeat(" ", maxRecordBytes+1)} {
		mustSave(t, r, fullRecord(id, "codex")) // also after the one before
		mustLoad(t, r, id)
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
		wantNil(t, os.Remove(aside[0]))
	}
}

// A record that can't be written is an error that names its place; an index is told once.
func TestFilesThatCantBeWritten(t *testing.T) {
	r, out := newTestRegistry(t, true)
	plant(t, r.root, map[string]string{"red/.records": "", "red/lead": ""})
	rec := fullRecord("codex:aaaa", "codex")
	for what, err := range map[string]error{"save": r.save(rec), "noteTurn": r.noteTurn(rec.AgentID, &rec, nil)} {
		if err == nil || !strings.Contains(err.Error(), r.records) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := r.list(0)
	if n := r.markStale(); n != 0 || err == nil || *r.unwritten.Load() == nil {
		t.Errorf("%d marked, list of a file: %v, told: %v", n, err, r.unwritten.Load())
	}
	for range 3 {
		r.setIndex("lead", nil)
		wantNil(t, r.flush(t.Context()))
	}
	if n := strings.Count(out.String(), "session file can't be written"); n != 1 {
		t.Errorf("told %d times: %s", n, out.String())
	}
}

func TestIndexHoldsTheOpenSessions(t *testing.T) {
	r, out := newTestRegistry(t, true)
	dir := filepath.Join(r.root, "red", "lead")
	read := func() (text string, x indexFile) {
		data, err := os.ReadFile(filepath.Join(dir, "registry.json"))
		wantNil(t, errors.Join(err, json.Unmarshal(data, &x)))
		return string(data), x
	}
	plant(t, dir, map[string]string{"registry.json": `{"version":1,"sess`, ".tmp-dead": "{"})
	settle(t, dir)
	plant(t, dir, map[string]string{".tmp-live": "{"})
	for i := range 100 {
		r.setIndex("Lead", []record{fullRecord("codex:aaaa", "codex"),
			fullRecord(fmt.Sprintf("codex:bb%02d", i), "codex-2")})
	}
	wantNil(t, r.flush(t.Context()))
	text, x := read()
	if x.Version != 1 || len(x.Sessions) != 2 || x.Sessions[1].AgentID != "codex:bb99" {
		t.Fatalf("index = %s", text)
	}
	for _, field := range strings.Fields("agent_id backend backend_id identity team repo_root repo_name branch " +
		"cwd started_at last_active status tag") {
		if !strings.Contains(text, `"`+field+`"`) {
			t.Errorf("FR-5.2: no %s in %s", field, text)
		}
	}
	if e := x.Sessions[0]; e.Identity != "codex" || e.BackendID != "thread-aaaa" || *e.Branch != "main" ||
		e.Status != statusIdle {
		t.Errorf("entry = %+v", e)
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, "registry.json.corrupt-*")); len(aside) != 1 ||
		!strings.Contains(out.String(), "set aside") {
		t.Errorf("the corrupt index: %v, said %s", aside, out.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(left) != 1 || filepath.Base(left[0]) != ".tmp-live" {
		t.Errorf("temporary files left: %v", left)
	}
	r.setIndex("lead", nil)
	wantNil(t, r.close(t.Context()))
	if text, _ := read(); !strings.Contains(text, `"sessions": []`) {
		t.Errorf("no session open: %s", text)
	}
	wantNil(t, errors.Join(r.close(t.Context()), r.flush(t.Context())))
}

func TestWithoutPersistenceOnlyLocksAreWritten(t *testing.T) {
	r, _ := newTestRegistry(t, false)
	h := mustAcquire(t, r.leases, "codex", "codex:aaaa")
	rec := fullRecord("codex:aaaa", "codex")
	mustSave(t, r, rec)
	wantNil(t, r.noteTurn(rec.AgentID, &rec, nil))
	r.setIndex("codex", []record{rec})
	wantNil(t, r.flush(t.Context()))
	h.release()
	files, err := filepath.Glob(filepath.Join(r.root, "*", "*"))
	if n := r.markStale(); err != nil || n != 0 || len(files) != 1 || filepath.Base(files[0]) != "codex.lock" {
		t.Errorf("files = %v, %v, %d marked", files, err, n)
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
	holdElsewhere(t, r.root, make("codex:live", "living", statusBusy))
	kill()
	mustSave(t, r, make("codex:quiet", "quiet", statusIdle), make("codex:parked", "parked", statusParked),
		make("codex:closed", "closed", statusClosed), make("codex:broken", "broken", statusBroken),
		make("codex:mine", "mine", statusIdle), make("codex:before", "living", statusIdle),
		make("codex:older", "mine", statusBusy))
	mine := mustAcquire(t, r.leases, "mine", "codex:mine")
	plant(t, r.records, map[string]string{".tmp-dead": `{"agent_id":`, ".tmp-live": `{"agent_id":`})
	before := time.Now().Add(-2 * tempLifetime)
	wantNil(t, os.Chtimes(filepath.Join(r.records, ".tmp-dead"), before, before))

	if n := r.markStale(); n != 4 {
		t.Errorf("%d marked, want 4: %s", n, out.String())
	}
	for id, want := range map[string]string{
		"codex:dead": "stale true interrupted", "codex:live": "busy false completed",
		"codex:quiet":  "stale false completed",
		"codex:parked": "parked false completed", "codex:closed": "closed false completed",
		"codex:broken": "broken false completed",
		"codex:mine":   "idle false completed",
		// Others have these identities now, so these agents have none.
		"codex:before": "stale false completed", "codex:older": "stale true interrupted",
	} {
		rec := mustLoad(t, r, id)
		if got := fmt.Sprintf("%s %v %s", rec.Status, rec.Interrupted, rec.LastTurnStatus); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
		if rec.Status == statusStale && (rec.PID != 0 || rec.Host != "") ||
			!rec.LastActive.Equal(fullRecord(id, "").LastActive) {
			t.Errorf("%s still names its holder %d, or was active at %v", id, rec.PID, rec.LastActive)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.records, ".tmp-*")); len(left) != 1 ||
		filepath.Base(left[0]) != ".tmp-live" {
		t.Errorf("temporary files left: %v", left)
	}
	again := r.markStale()
	mine.release()
	if n := r.markStale(); n != 1 || again != 0 {
		t.Errorf("%d marked again, %d after release", again, n)
	}
	mustAcquire(t, r.leases, "killed", "codex:dead") // the lock it looked at is free
}

// Whoever has a session's name now, without the session: the instance itself, which holds its own name from the start,
// or a new session of the name. A predecessor's session of that name is stale all the same, and is not told to be idle
// for as long as the other lives.
func TestADeadSessionsNameMayBeAnothers(t *testing.T) {
	r, _ := newTestRegistry(t, true)
	rec := fullRecord("codex:aaaa", "lead")
	rec.Status, rec.Interrupted = statusBusy, false
	want := func(when, status string, marked int) {
		t.Helper()
		mustSave(t, r, rec)
		got, interrupted, pid := r.told(&rec)
		if stale := status == statusStale; got != status || interrupted != stale || (pid == os.Getpid()) == stale {
			t.Errorf("%s: %s, interrupted %v, pid %d", when, got, interrupted, pid)
		}
		if n := r.markStale(); n != marked {
			t.Errorf("%s: %d marked", when, n)
		}
	}
	want("held by nobody", statusStale, 1)
	h := mustAcquire(t, r.leases, "lead", "")
	if n := r.markStale(); n != 0 {
		t.Errorf("%d marked again", n)
	}
	mustSave(t, r, rec)
	if n := r.markStale(); n != 1 {
		t.Errorf("held by the instance: %d marked", n)
	}
	wantNil(t, h.assign(rec.AgentID))
	want("held by itself", statusBusy, 0)
	wantNil(t, h.assign("codex:bbbb"))
	want("held by another", statusStale, 1)
}

// Several instances start at once and look while sessions are being revived.
func TestMarkStaleRacesWithReviving(t *testing.T) {
	r, out := newTestRegistry(t, true)
	other := newRegistry(r.root, "red", true, newLogger(out, "debug"))
	defer other.close(t.Context())
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("codex:aa%02d", i))
		mustSave(t, r, fullRecord(ids[i], "i-"+suffixOf(ids[i])))
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.markStale() })
	wg.Go(func() { other.markStale() })
	for _, id := range ids {
		mustAcquire(t, r.leases, "i-"+suffixOf(id), id)
		thread, err := r.lockThread("thread-"+suffixOf(id), id)
		wantNil(t, err)
		defer thread.release()
		rec := mustLoad(t, r, id)
		rec.Status = statusBusy
		mustSave(t, r, *rec)
	}
	wg.Wait()
	for _, id := range ids {
		if rec := mustLoad(t, r, id); rec.Status != statusBusy {
			t.Errorf("%s is %s", id, rec.Status)
		}
	}
	if strings.Contains(out.String(), "warn") {
		t.Errorf("said %s", out.String())
	}
}

// The end of a turn that was noted is in the record whoever reads it next, and nothing else is.
func TestJournal(t *testing.T) {
	r, _ := newTestRegistry(t, true)
	rec := fullRecord("codex:abcdefg", "codex")
	rec.Status, rec.Interrupted, rec.Turns, rec.Digest.LastAnswer = statusBusy, false, 2, "one"
	ended := rec
	ended.Status, ended.LastTurnStatus, ended.LastTurnID, ended.Digest.LastAnswer = statusIdle, "completed", "turn-2",
		"two"
	path := r.journals.path(rec.AgentID)
	note := func() {
		t.Helper()
		wantNil(t, r.noteTurn(ended.AgentID, &ended, nil))
	}
	read := func(status, answer string, turns int) {
		t.Helper()
		if got := mustLoad(t, r, rec.AgentID); got.Status != status || got.Digest.LastAnswer != answer ||
			got.Turns != turns || got.Interrupted {
			t.Errorf("read %s, %q, %d turns, interrupted %v; want %s, %q, %d", got.Status, got.Digest.LastAnswer,
				got.Turns,
				got.Interrupted, status, answer, turns)
		}
	}
	mustSave(t, r, rec)
	read(statusBusy, "one", 2)
	note()
	read(statusIdle, "two", 2)

	// A line that a kill cut short doesn't count, nor does it spoil the next.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	wantNil(t, err)
	_, err = f.WriteString(`{"turns":3,"last_turn_st`)
	wantNil(t, errors.Join(err, f.Close()))
	read(statusIdle, "two", 2)
	ended.Turns, ended.Digest.LastAnswer = 3, "three" // the record of its start was not written yet
	note()
	read(statusIdle, "three", 3)

	// It stays small.
	ended.Digest.LastAnswer = strings.Repeat("x", maxDigestAnswer)
	for range 3 * maxJournal / maxDigestAnswer {
		ended.Turns++
		note()
	}
	if st, err := os.Stat(path); err != nil || st.Size() > maxJournal+2*maxDigestAnswer {
		t.Errorf("the journal: %v, %v", st, err)
	}
	read(statusIdle, ended.Digest.LastAnswer, ended.Turns)

	// A newer record wins: it says which notes it has in it.
	rec.Turns, rec.Noted = ended.Turns+1, ended.Noted
	for _, rec.Status = range []string{statusClosed, statusBusy} {
		mustSave(t, r, rec)
		read(rec.Status, "one", rec.Turns)
	}

	// What a note holds is all that the start and the end of a turn change.
	root := "/other"
	rec.turnNote = turnNote{Status: statusIdle, Turns: 9, LastActive: time.Now().UTC(), LastTurnID: "turn-9",
		LastTurnStatus: "failed",
		LastError:      "why", RepoRoot: &root, CWD: root, Context: json.RawMessage(`{"branch":"x"}`),
		Digest: recordDigest{LastPrompt: "p", TouchedFiles: []string{"f"}}}
	wantNil(t, r.noteTurn(rec.AgentID, &rec, nil))
	if got := mustLoad(t, r, rec.AgentID); !reflect.DeepEqual(*got, rec) {
		t.Errorf("\n got %+v\nwant %+v", got, rec)
	}
}

// A journal that is written anew keeps what is kept of the turns: the newest results, and those that have not ended,
// each as its newest line has it.
func TestAJournalWrittenAnewKeepsTheTurns(t *testing.T) {
	t.Parallel()
	r, _ := newTestRegistry(t, true)
	rec := fullRecord("codex:abcdefg", "codex")
	path := r.journals.path(rec.AgentID)
	result := func(turn, more string) {
		t.Helper()
		wantNil(t, r.noteTurn(rec.AgentID, nil, json.RawMessage(`{"turn_id":"`+turn+`"`+more+`}`)))
	}
	ids := func() string {
		turns, err := r.journals.turns(rec.AgentID)
		wantNil(t, err)
		note, err := r.journals.note(rec.AgentID)
		if err != nil || note == nil || note.Number != rec.Noted {
			t.Fatalf("note %+v, want number %d, %v", note, rec.Noted, err)
		}
		var ids []string
		for _, turn := range turns {
			ids = append(ids, turn.turnID)
		}
		return strings.Join(ids, " ")
	}
	result("bg-open", "")
	result("bg-ended", "")
	long := strings.Repeat("x", maxJournalKept/10)
	want := "bg-open"
	for i := range 30 {
		turn := fmt.Sprintf("t-%02d", i)
		result(turn, `,"result":"`+long[:1000]+`"`)
		if i > 10 {
			want += " " + turn
		}
	}
	result("bg-ended", `,"result":{}`)
	want += " bg-ended"
	wantNil(t, r.noteTurn(rec.AgentID, &rec, nil))
	read := ids()
	wantNil(t, r.journals.renew(path))
	if anew := ids(); read != want || anew != want {
		t.Errorf("read %s, written anew %s, want %s", read, anew, want)
	}
	for i := range 12 { // long answers: as many as there is room for
		result(fmt.Sprintf("long-%02d", i), `,"result":"`+long+`"`)
		wantNil(t, r.noteTurn(rec.AgentID, &rec, nil))
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 3*maxJournalKept {
		t.Errorf("the journal: %v, %v", st, err)
	}
	if got := ids(); !strings.HasPrefix(got, "bg-open long-0") || !strings.HasSuffix(got, "long-10 long-11") {
		t.Errorf("with long answers: %s", got)
	}
}

// BenchmarkRegistry is what sessions cost beside so many kept ones. note and save are one transition of one session,
// index included: a turn's line in the journal, and the record written whole. Neither may grow with the number.
func BenchmarkRegistry(b *testing.B) {
	for _, kept := range []int{10, 1000, 10000} {
		r, _ := newTestRegistry(b, true)
		rec := fullRecord("codex:kept00001", "codex")
		rec.Status = statusClosed
		for i := range kept {
			rec.AgentID = fmt.Sprintf("codex:kept%05d", i)
			mustSave(b, r, rec)
		}
		for name, do := range map[string]func() error{
			"note":  func() error { return r.noteTurn(rec.AgentID, &rec, nil) },
			"save":  func() error { return r.save(rec) },
			"stale": func() error { r.markStale(); return nil },
			"list":  func() error { _, err := r.list(50); return err },
		} {
			wantNil(b, r.flush(b.Context()))
			b.Run(fmt.Sprintf("%s/kept=%d", name, kept), func(b *testing.B) {
				for b.Loop() {
					rec.LastActive = time.Now()
					wantNil(b, do())
					r.setIndex("codex", []record{rec})
				}
			})
		}
	}
}
