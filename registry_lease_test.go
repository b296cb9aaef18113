package main

// registry_lease_test.go holds identity leases and thread locks to invariant 4: one holder across processes, whatever
// the name's case, and free when the holder is killed. TestLeaseHelper is another process.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// holdElsewhere starts this test binary as another instance that leases the identity, locks the thread and saves the
// record. It lives until kill.
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
	_, err := r.acquire(rec.Identity, rec.AgentID)
	_, err2 := r.lockThread(rec.BackendID, rec.AgentID)
	wantNil(t, errors.Join(err, err2, r.save(rec)))
	fmt.Println("held")
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

func mustLockThread(t *testing.T, l *leases, thread, agentID string) *lease {
	t.Helper()
	h, err := l.lockThread(thread, agentID)
	wantNil(t, err)
	return h
}

// wantHolder wants that an identity is held by the agent, "" for nobody's at all.
func wantHolder(t *testing.T, l *leases, identity, agentID string) {
	t.Helper()
	if agent, pid, held := l.holder(identity); agent != agentID || held != (agentID != "") ||
		held && pid != os.Getpid() {
		t.Errorf("%s is held by %q, process %d, %v; want %q", identity, agent, pid, held, agentID)
	}
}

func TestAnIdentityIsLeasedOnceWhateverItsCase(t *testing.T) {
	l := newTestLeases(t)
	path := filepath.Join(l.root, "red", "reviewer.lock")
	h := mustAcquire(t, l, "Reviewer", "codex:aaaa")
	_, err := l.acquire("reVIEWER", "codex:bbbb")
	var held *heldBy
	if !errors.As(err, &held) || !held.ours || held.agentID != "codex:aaaa" || held.pid != os.Getpid() ||
		held.name != "reVIEWER" ||
		err.Error() != `identity "reVIEWER" is in use by agent codex:aaaa in this process` {
		t.Fatalf("second lease: %#v", err)
	}
	wantHolder(t, l, "REVIEWER", "codex:aaaa")
	h.release()
	h.release()
	wantHolder(t, l, "reviewer", "")
	if st, err := os.Stat(path); err != nil || st.Size() != 0 {
		t.Errorf("a released lock file stays, empty: %v, %v", st, err)
	}
	again := mustAcquire(t, l, "reviewer", "codex:bbbb")
	h.release() // of the old one, late
	wantHolder(t, l, "reviewer", "codex:bbbb")
	if !l.holds("reviewer", "codex:bbbb") {
		t.Error("an old lease's release made this process forget a new one")
	}
	wantNil(t, again.assign("codex:cccc"))
	wantHolder(t, l, "reviewer", "codex:cccc")
	if data, _ := os.ReadFile(path); !strings.Contains(string(data), `"agent_id":"codex:cccc"`) {
		t.Errorf("content after assign: %s", data)
	}
	again.release()
	if err := again.assign("codex:dddd"); err == nil {
		t.Error("a released lease was assigned")
	}
}

// The first free of codex, codex-2, … is leased, each once; a member's name counts as taken.
func TestFreeIdentity(t *testing.T) {
	l := newTestLeases(t)
	var wg sync.WaitGroup
	names := make([]string, 20)
	for i := range names {
		wg.Go(func() {
			h, err := l.acquireFree("codex", "codex:aaaa", func(name string) bool { return name == "codex-7" })
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(h.release)
			names[i] = h.name
		})
	}
	wg.Wait()
	slices.Sort(names)
	if got := slices.Compact(slices.Clone(names)); len(got) != 20 || !slices.Contains(got, "codex") ||
		!slices.Contains(got, "codex-21") ||
		slices.Contains(got, "codex-7") {
		t.Errorf("leased %q", names)
	}
	mustAcquire(t, l, "other", "")
	plant(t, l.root, map[string]string{"red/other-2.lock/": ""})
	if got := l.freeIdentity("other", noneTaken); got != "other-3" {
		t.Errorf("free for other is %q", got)
	}
	long := strings.Repeat("x", 64)
	mustAcquire(t, l, long, "")
	free := l.freeIdentity(long, noneTaken)
	if h, err := l.acquireFree(long, "", noneTaken); err != nil || h.name != free || free != long[:62]+"-2" {
		t.Errorf("free for a long name is %q, leased %+v, %v", free, h, err)
	} else {
		h.release()
	}
}

func TestKillingTheHolderFreesItsLocks(t *testing.T) {
	l := newTestLeases(t)
	rec := fullRecord("codex:aaaa", "codex")
	pid, kill := holdElsewhere(t, l.root, rec)
	_, err := l.acquire("Codex", "codex:bbbb")
	var held *heldBy
	if !errors.As(err, &held) || held.ours || held.pid != pid || held.agentID != rec.AgentID {
		t.Fatalf("identity of another process: %#v", err)
	}
	_, err = l.lockThread(rec.BackendID, "codex:bbbb")
	var thread *heldBy
	if !errors.As(err, &thread) || thread.ours || thread.pid != pid || thread.agentID != rec.AgentID {
		t.Fatalf("thread of another process: %#v", err)
	}
	if agent, p, ok := l.holder("codex"); !ok || agent != rec.AgentID || p != pid {
		t.Errorf("holder = %q %d %v", agent, p, ok)
	}
	if got := l.freeIdentity("codex", noneTaken); got != "codex-2" {
		t.Errorf("free beside it: %q", got)
	}
	kill()
	wantHolder(t, l, "codex", "")
	mustAcquire(t, l, "codex", "codex:bbbb")
	mustLockThread(t, l, rec.BackendID, "codex:bbbb").release()
}

// A thread is locked once, whatever the team, and finds its agent after release, in its own team and with persistence.
func TestAThreadFindsItsAgentAfterRelease(t *testing.T) {
	l := newTestLeases(t)
	wantAgent := func(l *leases, thread, agentID string) {
		t.Helper()
		if agent, ok := l.agentOfThread(thread); ok != (agentID != "") || ok && agent != agentID {
			t.Errorf("agent of %s = %q %v, want %q", thread, agent, ok, agentID)
		}
	}
	wantAgent(l, "t-1", "")
	h := mustLockThread(t, l, "t-1", "codex:aaaa")
	other := newLeases(l.root, "blue", true)
	for who, ours := range map[*leases]bool{l: true, other: false} {
		var held *heldBy
		if _, err := who.lockThread("t-1", "codex:bbbb"); !errors.As(err, &held) || ours && !held.ours ||
			held.agentID != "codex:aaaa" {
			t.Errorf("second lock: %v", err)
		}
	}
	h.release()
	wantAgent(l, "t-1", "codex:aaaa")
	wantAgent(other, "t-1", "")
	h = mustLockThread(t, l, "t-1", "codex:bb") // a longer content before it leaves no tail behind
	if data, _ := os.ReadFile(h.path); !json.Valid(data) {
		t.Errorf("content = %s", data)
	}
	h.release()
	forgets := newLeases(l.root, "red", false)
	mustLockThread(t, forgets, "t-2", "codex:cccc").release()
	wantAgent(forgets, "t-2", "")
}

func TestLockNamesStayInTheirDirectory(t *testing.T) {
	l := newTestLeases(t)
	for _, name := range []string{"", "..", "a/b", "../x", `a\b`, ".hidden", "a.b", "a b", "a\x00", "é",
		strings.Repeat("x", 129)} {
		_, err := l.acquire(name, "")
		_, err2 := l.lockThread(name, "")
		_, known := l.agentOfThread(name)
		if err == nil || err2 == nil || known {
			t.Errorf("%q: leased %v, locked %v, agent %v", name, err == nil, err2 == nil, known)
		}
	}
	if entries, err := os.ReadDir(l.root); err != nil || len(entries) != 0 {
		t.Errorf("files were made: %v, %v", entries, err)
	}
}

func TestALockThatCantBeMadeNamesItsPath(t *testing.T) {
	l := newTestLeases(t)
	want := func(root string, parts ...string) {
		t.Helper()
		_, err := newLeases(root, "red", true).acquire("codex", "")
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v, want %q in it", err, part)
			}
		}
	}
	inWay, file, readOnly := filepath.Join(l.root, "red", "codex.lock"), filepath.Join(l.root, "file"),
		filepath.Join(l.root, "ro")
	plant(t, l.root, map[string]string{"red/codex.lock/": "", "file": ""})
	want(l.root, inWay, "move it away")
	want(file, file, "ATM_HOME") // a root that can't be written, also for a test that runs as root
	if os.Getuid() > 0 {
		wantNil(t, os.Mkdir(readOnly, 0o500))
		want(readOnly, "writable")
	}
	wantNil(t, os.Remove(inWay)) // nothing is remembered of an attempt that failed
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

// A process that marks a session as stale may be held up in the middle for longer than anybody tries: whoever wants the
// name was told that it is "in use without an agent yet". An acquire waits for it, in the same process and in another,
// and a member's sweep sees that nobody has the name.
func TestAMarkersHoldIsNobodysLease(t *testing.T) {
	t.Parallel()
	l := newTestLeases(t)
	other := newLeases(l.root, "red", true)
	for _, who := range []*leases{l, other} {
		release, gone := l.holdIfGone("codex:dead", "codex", "t-1")
		if !gone {
			t.Fatal("nobody holds it")
		}
		wantHolder(t, who, "codex", "")
		if _, gone := other.holdIfGone("codex:other", "codex-9", ""); gone {
			t.Error("two keep records at once")
		}
		time.AfterFunc(100*time.Millisecond, release) // twice what it was waited for
		h := mustAcquire(t, who, "codex", "codex:aaaa")
		mustLockThread(t, who, "t-1", "codex:aaaa").release()
		h.release()
	}
}

// Git may look into a closed agent's worktree for long. Whoever wants its name waits outside of the lock under which
// names are given, else no agent of the process could be opened meanwhile.
func TestAKeeperHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	l := newTestLeases(t)
	release, _ := l.holdLongIfGone("codex:aaaa", "codex", "")
	_, err := newLeases(l.root, "red", true).acquire("codex", "codex:bbbb") // ends long before keepLimit
	if err == nil || !strings.Contains(err.Error(), "is being closed") {
		t.Errorf("acquired, %v", err)
	}
	time.AfterFunc(50*time.Millisecond, release)
	l.awaitKeeper("codex")
	mustAcquire(t, l, "codex", "codex:bbbb").release()
}

// A session is gone when neither its own lease nor its thread is held; looking keeps both from everybody, and changes
// nothing.
func TestHoldIfGone(t *testing.T) {
	l := newTestLeases(t)
	other := newLeases(l.root, "red", true)
	want := func(why, agentID string, gone bool) {
		t.Helper()
		release, got := l.holdIfGone(agentID, "codex", "t-1")
		if got != gone {
			t.Errorf("%s: gone %v", why, got)
		}
		if got {
			if _, by, _ := other.tryLock(filepath.Join(l.root, ".threads", "t-1.lock"), lockContent{}); by == nil {
				t.Error("the thread isn't locked meanwhile")
			}
			release()
		}
	}
	want("nobody holds anything", "codex:aaaa", true)
	lease := mustAcquire(t, other, "codex", "codex:aaaa")
	want("its own lease is held", "codex:aaaa", false)
	want("another agent has its identity, so it can't live", "codex:bbbb", true)
	thread := mustLockThread(t, other, "t-1", "codex:aaaa")
	lease.release()
	want("its thread is held", "codex:aaaa", false)
	thread.release()
	want("released", "codex:aaaa", true)
	if agent, ok := l.agentOfThread("t-1"); !ok || agent != "codex:aaaa" {
		t.Errorf("looking changed the content: %q", agent)
	}
	if _, gone := l.holdIfGone("codex:aaaa", "../x", ""); gone {
		t.Error("a record with a path for an identity")
	}
}

// What an agent does is read behind its lease by any process, while the lease is held and no longer; who reads the
// lease alone is not disturbed by it.
func TestLeaseTellsWhatItsAgentDoes(t *testing.T) {
	l := newTestLeases(t)
	free := mustAcquire(t, l, "free", "codex:free")
	free.release()
	h, other := mustAcquire(t, l, "Ann", "codex:aaaa"), newLeases(l.root, l.team, true)
	for _, now := range []string{"", `{"doing":"much to say"}`, `{"doing":"x"}`} {
		wantNil(t, errors.Join(h.tell(now), h.mark(now != "")))
		all, err := other.living()
		wantNil(t, err)
		if want := (lockContent{PID: os.Getpid(), AgentID: "codex:aaaa", Identity: "Ann", Host: l.host,
			Automatic: now != "", now: now}); len(all) != 1 || all[0] != want {
			t.Errorf("told %q, others read %+v", now, all)
		}
	}
	h.release()
	next := mustAcquire(t, other, "ann", "codex:bbbb")
	wantNil(t, errors.Join(h.tell("{}"), h.mark(true)))
	if all, err := l.living(); err != nil || len(all) != 1 || all[0].AgentID != "codex:bbbb" || all[0].now != "" {
		t.Errorf("behind the next lease %s stands %+v, %v", next.name, all, err)
	}
}
