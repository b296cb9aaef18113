package main

// registry_lease_test.go holds identity leases and thread locks to invariant 4: one holder
// across processes, whatever the name's case, and free when the holder is killed.
// TestLeaseHelper is another process.

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// holdElsewhere starts this test binary as another instance that leases the
// identity, locks the thread and saves the record. It lives until kill.
func holdElsewhere(t *testing.T, root string, rec record) (pid int, kill func()) {
	t.Helper()
	data, err := json.Marshal(rec)
	wantNil(t, err)
	p := startTest(t, "TestLeaseHelper", "ATM_TEST_ROOT="+root, "ATM_TEST_RECORD="+string(data))
	kill = sync.OnceFunc(func() { p.cmd.Process.Kill(); p.cmd.Wait(); p.in.Close(); p.group.close() })
	t.Cleanup(kill)
	if line := p.line(t); line != "held" {
		t.Fatalf("the other instance said %q", line)
	}
	return p.cmd.Process.Pid, kill
}

// TestLeaseHelper is no test: it is holdElsewhere's process.
func TestLeaseHelper(t *testing.T) {
	root := os.Getenv("ATM_TEST_ROOT")
	if root == "" {
		t.Skip("runs only as a child of other tests")
	}
	var rec record
	wantNil(t, json.Unmarshal([]byte(os.Getenv("ATM_TEST_RECORD")), &rec))
	r := newRegistry(root, rec.Team, true, newLogger(os.Stderr, "warn"))
	if _, err := r.acquire(rec.Identity, rec.AgentID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.lockThread(rec.BackendID, rec.AgentID); err != nil {
		t.Fatal(err)
	}
	wantNil(t, r.save(rec))
	os.Stdout.WriteString("held\n")
	io.Copy(io.Discard, os.Stdin) // until it is killed
}

func newTestLeases(t *testing.T) *leases { return newLeases(t.TempDir(), "red", true) }

// noneTaken: no name is taken by a member.
func noneTaken(string) bool { return false }

func mustAcquire(t *testing.T, l *leases, identity, agentID string) *lease {
	t.Helper()
	h, err := l.acquire(identity, agentID)
	wantNil(t, err)
	t.Cleanup(h.release)
	return h
}

func TestAnIdentityIsLeasedOnceWhateverItsCase(t *testing.T) {
	l := newTestLeases(t)
	h := mustAcquire(t, l, "Reviewer", "codex:aaaa")
	_, err := l.acquire("reVIEWER", "codex:bbbb")
	var held *leaseHeld
	if !errors.As(err, &held) || !held.ours || held.agentID != "codex:aaaa" || held.pid != os.Getpid() || held.identity != "reVIEWER" {
		t.Fatalf("second lease: %#v", err)
	}
	if want := `identity "reVIEWER" is in use by agent codex:aaaa in this process`; err.Error() != want {
		t.Errorf("error = %q", err)
	}
	if agent, pid, ok := l.holder("REVIEWER"); !ok || agent != "codex:aaaa" || pid != os.Getpid() {
		t.Errorf("holder = %q %d %v", agent, pid, ok)
	}
	h.release()
	h.release()
	if _, _, ok := l.holder("reviewer"); ok {
		t.Error("held after release")
	}
	path := filepath.Join(l.root, "red", "reviewer.lock")
	if st, err := os.Stat(path); err != nil || st.Size() != 0 {
		t.Errorf("a released lock file stays, empty: %v, %v", st, err)
	}
	again := mustAcquire(t, l, "reviewer", "")
	h.release() // of the old one, late
	if _, _, ok := l.holder("reviewer"); !ok {
		t.Error("an old lease released a new one")
	}
	wantNil(t, again.assign("codex:cccc"))
	if data, _ := os.ReadFile(path); !strings.Contains(string(data), `"agent_id":"codex:cccc"`) {
		t.Errorf("content after assign: %s", data)
	}
	if agent, _, _ := l.holder("reviewer"); agent != "codex:cccc" {
		t.Errorf("holder after assign: %s", agent)
	}
	again.release()
	if err := again.assign("codex:dddd"); err == nil {
		t.Error("a released lease was assigned")
	}
}

func TestLeasesOfManyGoroutines(t *testing.T) {
	l := newTestLeases(t)
	var wg sync.WaitGroup
	names := make([]string, 20)
	for i := range names {
		wg.Go(func() {
			h, err := l.acquireFree("codex", "codex:aaaa", noneTaken)
			if err != nil {
				t.Error(err)
				return
			}
			names[i] = h.name
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			t.Errorf("%q was leased twice", n)
		}
		seen[n] = true
	}
	for _, want := range []string{"codex", "codex-2", "codex-20"} {
		if !seen[want] {
			t.Errorf("%q was not used: %v", want, names)
		}
	}
}

func TestFreeIdentity(t *testing.T) {
	l := newTestLeases(t)
	mustAcquire(t, l, "codex", "")
	if got := l.freeIdentity("codex", noneTaken); got != "codex-2" {
		t.Errorf("first free = %q", got)
	}
	mustAcquire(t, l, "codex-2", "")
	wantNil(t, os.Mkdir(filepath.Join(l.root, "red", "codex-3.lock"), 0o700))
	if got := l.freeIdentity("codex", noneTaken); got != "codex-4" {
		t.Errorf("next free = %q", got)
	}
	long := strings.Repeat("x", 64)
	mustAcquire(t, l, long, "")
	if got := l.freeIdentity(long, noneTaken); got != strings.Repeat("x", 62)+"-2" {
		t.Errorf("free name for a long one = %q", got)
	}
	if h, err := l.acquireFree(long, "", noneTaken); err != nil || len(h.name) != 64 {
		t.Errorf("acquireFree: %v", err)
	} else {
		h.release()
	}
}

func TestKillingTheHolderFreesItsLocks(t *testing.T) {
	l := newTestLeases(t)
	rec := fullRecord("codex:aaaa", "codex")
	pid, kill := holdElsewhere(t, l.root, rec)

	_, err := l.acquire("Codex", "codex:bbbb")
	var held *leaseHeld
	if !errors.As(err, &held) || held.ours || held.pid != pid || held.agentID != rec.AgentID {
		t.Fatalf("identity of another process: %#v", err)
	}
	_, err = l.lockThread(rec.BackendID, "codex:bbbb")
	var thread *threadHeld
	if !errors.As(err, &thread) || thread.ours || thread.pid != pid || thread.agentID != rec.AgentID {
		t.Fatalf("thread of another process: %#v", err)
	}
	if agent, p, ok := l.holder("codex"); !ok || agent != rec.AgentID || p != pid {
		t.Errorf("holder = %q %d %v", agent, p, ok)
	}
	if h, err := l.acquireFree("codex", "", noneTaken); err != nil || h.name != "codex-2" {
		t.Errorf("acquireFree: %v, %v", h, err)
	} else {
		h.release()
	}

	kill()
	if _, _, ok := l.holder("codex"); ok {
		t.Error("a dead process holds an identity")
	}
	mustAcquire(t, l, "codex", "codex:bbbb")
	h, err := l.lockThread(rec.BackendID, "codex:bbbb")
	wantNil(t, err)
	h.release()
}

func TestAThreadFindsItsAgentAfterRelease(t *testing.T) {
	l := newTestLeases(t)
	if _, ok := l.agentOfThread("t-1"); ok {
		t.Error("a thread nobody had has an agent")
	}
	h, err := l.lockThread("t-1", "codex:aaaa")
	wantNil(t, err)
	other := newLeases(l.root, "blue", true)
	var held *threadHeld
	if _, err := l.lockThread("t-1", "codex:bbbb"); !errors.As(err, &held) || !held.ours {
		t.Errorf("second lock here: %v", err)
	}
	if _, err := other.lockThread("t-1", "codex:bbbb"); !errors.As(err, &held) || held.agentID != "codex:aaaa" {
		t.Errorf("lock from another team: %v", err)
	}
	h.release()
	if agent, ok := l.agentOfThread("t-1"); !ok || agent != "codex:aaaa" {
		t.Errorf("agent = %q %v", agent, ok)
	}
	if _, ok := other.agentOfThread("t-1"); ok {
		t.Error("found from another team, which has no such record")
	}
	// A longer content before it leaves no tail behind.
	h, err = l.lockThread("t-1", "codex:bb")
	wantNil(t, err)
	if data, _ := os.ReadFile(h.path); !json.Valid(data) {
		t.Errorf("content = %s", data)
	}
	h.release()
	forgets := newLeases(l.root, "red", false)
	h, err = forgets.lockThread("t-2", "codex:cccc")
	wantNil(t, err)
	h.release()
	if _, ok := forgets.agentOfThread("t-2"); ok {
		t.Error("without persistence a thread kept its agent")
	}
}

func TestLockNamesStayInTheirDirectory(t *testing.T) {
	l := newTestLeases(t)
	for _, name := range []string{"", "..", "a/b", "../x", `a\b`, ".hidden", "a.b", "a b", "a\x00", "é", strings.Repeat("x", 129)} {
		if _, err := l.acquire(name, ""); err == nil {
			t.Errorf("identity %q was leased", name)
		}
		if _, err := l.lockThread(name, ""); err == nil {
			t.Errorf("thread %q was locked", name)
		}
		if _, ok := l.agentOfThread(name); ok {
			t.Errorf("thread %q has an agent", name)
		}
	}
	if entries, err := os.ReadDir(l.root); err != nil || len(entries) != 0 {
		t.Errorf("files were made: %v, %v", entries, err)
	}
}

func TestALockThatCantBeMadeNamesItsPath(t *testing.T) {
	l := newTestLeases(t)
	wantNil(t, os.MkdirAll(filepath.Join(l.root, "red", "codex.lock"), 0o700))
	_, err := l.acquire("codex", "")
	if err == nil || !strings.Contains(err.Error(), filepath.Join("red", "codex.lock")) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a directory in its place: %v", err)
	}
	// A root that can't be written, also for a test that runs as root.
	file := filepath.Join(l.root, "file")
	wantNil(t, os.WriteFile(file, nil, 0o600))
	_, err = newLeases(file, "red", true).acquire("codex", "")
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "ATM_HOME") {
		t.Errorf("a root that is a file: %v", err)
	}
	if os.Getuid() > 0 {
		dir := filepath.Join(l.root, "ro")
		wantNil(t, os.Mkdir(dir, 0o500))
		if _, err := newLeases(dir, "red", true).acquire("codex", ""); err == nil || !strings.Contains(err.Error(), "writable") {
			t.Errorf("a read-only root: %v", err)
		}
	}
	// Nothing is remembered of an attempt that failed.
	wantNil(t, os.Remove(filepath.Join(l.root, "red", "codex.lock")))
	mustAcquire(t, l, "codex", "")
}

// A lock on a file that is no longer at the path would let two hold a name.
func TestALeaseIsOfTheFileAtThePath(t *testing.T) {
	l := newTestLeases(t)
	h := mustAcquire(t, l, "codex", "")
	check := func(when string, want bool) {
		t.Helper()
		if there, err := isAt(h.file, h.path); err != nil || there != want {
			t.Errorf("%s: %v, %v", when, there, err)
		}
	}
	check("as acquired", true)
	if runtime.GOOS == "windows" {
		return // there an open file can't be removed
	}
	wantNil(t, os.Remove(h.path))
	check("removed", false)
	next := mustAcquire(t, newLeases(l.root, "red", true), "codex", "codex:bbbb")
	check("made anew", false)
	h.release() // must not empty the new one's file
	if data, _ := os.ReadFile(next.path); !strings.Contains(string(data), "codex:bbbb") {
		t.Errorf("content = %q", data)
	}
}

// A process that marks a session as stale may be held up in the middle for longer
// than anybody tries: whoever wants the name was told that it is "in use without
// an agent yet". An acquire waits for it, in the same process and in another, and
// a member's sweep sees that nobody has the name.
func TestAMarkersHoldIsNobodysLease(t *testing.T) {
	t.Parallel()
	l := newTestLeases(t)
	other := newLeases(l.root, "red", true)
	for _, who := range []*leases{l, other} {
		release, gone := l.holdIfGone("codex:dead", "codex", "t-1")
		if !gone {
			t.Fatal("nobody holds it")
		}
		if _, pid, held := who.holder("codex"); held {
			t.Errorf("the marker is said to hold it, as process %d", pid)
		}
		if who == other {
			if _, gone := who.holdIfGone("codex:other", "codex-9", ""); gone {
				t.Error("two keep records at once")
			}
		}
		time.AfterFunc(100*time.Millisecond, release) // twice what it was waited for
		h, err := who.acquire("codex", "codex:aaaa")
		wantNil(t, err)
		thread, err := who.lockThread("t-1", "codex:aaaa")
		wantNil(t, err)
		thread.release()
		h.release()
	}
}

func TestHoldIfGone(t *testing.T) {
	l := newTestLeases(t)
	other := newLeases(l.root, "red", true)
	look := func(agentID string) bool {
		release, gone := l.holdIfGone(agentID, "codex", "t-1")
		if gone {
			if _, by, _ := other.tryLock(filepath.Join(l.root, ".threads", "t-1.lock"), lockContent{}); by == nil {
				t.Error("the thread isn't locked meanwhile")
			}
			release()
		}
		return gone
	}
	if !look("codex:aaaa") {
		t.Error("nobody holds anything")
	}
	lease, err := other.acquire("codex", "codex:aaaa")
	wantNil(t, err)
	if look("codex:aaaa") {
		t.Error("its own lease is held")
	}
	if !look("codex:bbbb") {
		t.Error("another agent has its identity, so it can't live")
	}
	thread, err := other.lockThread("t-1", "codex:aaaa")
	wantNil(t, err)
	lease.release()
	if look("codex:aaaa") {
		t.Error("its thread is held")
	}
	thread.release()
	if !look("codex:aaaa") {
		t.Error("released, but not free")
	}
	if agent, ok := l.agentOfThread("t-1"); !ok || agent != "codex:aaaa" {
		t.Errorf("looking changed the content: %q", agent)
	}
	if _, gone := l.holdIfGone("codex:aaaa", "../x", ""); gone {
		t.Error("a record with a path for an identity")
	}
}
