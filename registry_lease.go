package main

// registry_lease.go owns who holds what: an identity belongs to one live session of a team (<team>/<identity>.lock,
// FR-20.1), a Codex thread to one process of all teams (.threads/<threadId>.lock; 0.104 corrupts a thread that two
// write). The kernel frees a flock with its process, so there are no stale leases to guess about.
// registry.go embeds the table of leases; the openers of sessions and of the tool server call it.
// Never waits for a session that holds a lock, and never deletes a lock file but under its lock: who opened the file
// meanwhile looks again, or two would hold the same name.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxIdentityLength = 64
	maxIdentitySuffix = 999
	lockPause         = 2 * time.Millisecond
	// letGoLimit is how long an acquire waits for a holder who can't be named: one that is taking or releasing the lock
	// just now, or a dead process whose child is between its fork and its exec.
	letGoLimit = time.Second
	// keepLimit is how long a session waits for who keeps records (holdIfGone), which is nobody's lease and takes as
	// long as a file's writing; or as git takes, where a worktree is looked into.
	keepLimit = 10 * time.Second
)

// reLockName is what may become a lock's file name; config.go's rules for identities are narrower, this is what stands
// between a record that somebody edited and a path outside of our directory.
var reLockName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func validThreadID(s string) bool { return reLockName.MatchString(s) }

// heldBy refuses an identity or a thread, and says who keeps its lock from us; -32001 is made of it.
type heldBy struct {
	what     string // identity or thread
	name     string
	agentID  string // "": leased, but not given to a session yet
	pid      int
	ours     bool // this process holds the lock
	fleeting bool // whoever holds the lock can't be named, and is likely gone in a moment
	keeper   bool // fleeting: the lock is held shared, as holdIfGone does and no session
}

func (e *heldBy) Error() string {
	if e.keeper {
		return fmt.Sprintf("%s %q is not free yet: the agent that had it last is being closed; try again in a while",
			e.what, e.name)
	}
	return fmt.Sprintf("%s %q is in use %s", e.what, e.name, holderText(e.agentID, e.pid, e.ours))
}

// session says for a person that a session is in use, and by what.
func (e *heldBy) session() string {
	if e.keeper || e.ours {
		return e.Error()
	}
	return "this session is in use " + holderText(e.agentID, e.pid, false) + ", another atm-agent-mcp"
}

// nameHeld is a name that was seen to be held.
func nameHeld(identity, agentID string, pid int) *heldBy {
	return &heldBy{what: "identity", name: identity, agentID: agentID, pid: pid, ours: pid == os.Getpid()}
}

func holderText(agentID string, pid int, ours bool) string {
	who := "without an agent yet"
	if agentID != "" {
		who = "by agent " + agentID
	}
	if ours {
		return who + " in this process"
	}
	return fmt.Sprintf("%s in process %d", who, pid)
}

// lockContent is the JSON in a lock file. It informs; the flock decides. A
// thread's stays after release, with pid 0: so the thread finds its agent.
type lockContent struct {
	PID      int    `json:"pid"`
	AgentID  string `json:"agent_id"`
	Identity string `json:"identity,omitempty"` // as it was asked for: the file's name has no capitals
	Team     string `json:"team,omitempty"`
	Host     string `json:"host,omitempty"`

	Automatic bool `json:"automatic,omitempty"` // what the agent sends by now answers nothing but automatic mail

	now string // JSON, as session_now.go has written it: what the agent does, "" for none
}

// maxLockContent is how much of a lock file is read: far more than is ever written.
const maxLockContent = 32 << 10

// leases is the table of what this process holds. It is needed beside flock,
// which conflicts with itself across two opens and can't say so.
type leases struct {
	root, team, host string
	keepThreads      bool // thread locks keep their agent after release

	mu   sync.Mutex            // guards the field below, never held over I/O
	held map[string]lockHolder // by the lock file's path
}

// lockHolder is what this process knows of a lock of its own.
type lockHolder struct {
	agentID string // "" for an identity that no session has yet
	pending bool   // the lock is being acquired: nobody is told yet that it is held
}

func newLeases(root, team string, keepThreads bool) *leases {
	host, _ := os.Hostname() // without one, a pid is never called dead
	return &leases{root: root, team: team, host: host, keepThreads: keepThreads, held: map[string]lockHolder{}}
}

// lease is one held lock. Its owner, a session or the instance, calls assign, mark and release, one after the other;
// tell comes from another goroutine.
type lease struct {
	name     string   // the identity as it was asked for, or the thread id
	path     string   // the lock file's
	table    *leases  // where the lease is entered
	keep     bool     // the content stays after release, with pid 0
	file     *os.File // open and locked until release
	released atomic.Bool

	mu      sync.Mutex  // guards the field below; held while the content is written, so that the newest is the last
	content lockContent // what stands in the file
}

// acquire leases an identity. The agentID may be empty and assigned later.
func (l *leases) acquire(identity, agentID string) (*lease, error) {
	path, err := l.identityPath(identity)
	if err != nil {
		return nil, err
	}
	return l.lock("identity", identity, path, lockContent{AgentID: agentID, Identity: identity}, letGoLimit)
}

// acquireFree leases base or, where it is held, the next suffix that isn't: what an implied identity gets. There is no
// moment between finding a free name and having it in which another could take it. Names that taken tells are members'
// who are no agents.
func (l *leases) acquireFree(base, agentID string, taken func(name string) bool) (*lease, error) {
	for n := 1; n <= maxIdentitySuffix; n++ {
		if taken(numbered(base, n)) {
			continue
		}
		got, err := l.acquire(numbered(base, n), agentID)
		if !errors.As(err, new(*heldBy)) {
			return got, err
		}
	}
	return nil, fmt.Errorf("identities %s to %s are all in use; close a session or name another identity", base,
		numbered(base, maxIdentitySuffix))
}

// freeIdentity names the next suffix that is free now, for an error's advice; empty if none is.
func (l *leases) freeIdentity(base string, taken func(name string) bool) string {
	for n := 2; n <= maxIdentitySuffix; n++ {
		name := numbered(base, n)
		if _, _, held := l.holder(name); !held && !taken(name) {
			return name
		}
	}
	return ""
}

func numbered(base string, n int) string {
	suffix := ""
	if n > 1 {
		suffix = fmt.Sprintf("-%d", n)
	}
	return base[:min(len(base), maxIdentityLength-len(suffix))] + suffix
}

// holder tells who holds an identity, here or in another process. What can't be
// a lock file, a directory say, counts as held by nobody known.
func (l *leases) holder(identity string) (agentID string, pid int, held bool) {
	c, held := l.look(identity)
	return c.AgentID, c.PID, held
}

func (l *leases) look(identity string) (c lockContent, held bool) {
	path, err := l.identityPath(identity)
	if err != nil {
		return c, false
	}
	l.mu.Lock()
	mine, ok := l.held[path]
	l.mu.Unlock()
	if ok && !mine.pending {
		return lockContent{AgentID: mine.agentID, PID: os.Getpid()}, true
	}
	f, err := openOwn(path, os.O_RDONLY, 0)
	if err != nil {
		return c, !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if lockFile(f, false, false) == nil {
		unlockFile(f)
		return c, false
	}
	return readLockContent(f), true
}

// identityOf finds the identity that a session of another process has. It
// reads the team's directory, so it is for who can't know better.
func (l *leases) identityOf(agentID string) (c lockContent, held bool) {
	all, _ := l.living() // what can't be read holds nobody who could be found
	if i := slices.IndexFunc(all, func(c lockContent) bool { return c.AgentID == agentID }); i >= 0 {
		return all[i], true
	}
	return c, false
}

// living are the leases of the team that some process holds, whichever it is: what a dead one left isn't among them.
// It reads the team's directory.
func (l *leases) living() (all []lockContent, err error) {
	entries, err := os.ReadDir(filepath.Join(l.root, l.team))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the leases of team %q: %w", l.team, err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".lock")
		// A free one is empty: trying its lock would hold up who takes it just now. The file itself is asked, since a
		// directory of Windows has the size of a file that is open from when the file was closed last.
		if st, err := os.Stat(filepath.Join(l.root, l.team, e.Name())); !ok || err != nil || st.Size() == 0 {
			continue
		}
		c, held := l.look(name)
		if !held {
			continue
		}
		if !strings.EqualFold(c.Identity, name) { // whoever wrote that
			c.Identity = name
		}
		all = append(all, c)
	}
	return all, nil
}

// holds reports an identity that is leased here, by us, for that agent.
func (l *leases) holds(identity, agentID string) bool {
	path, _ := l.identityPath(identity) // "" for what is no name, and nobody's
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[path]
	return ok && !h.pending && h.agentID == agentID
}

// lockThread keeps other processes, of whichever team, off a Codex thread.
func (l *leases) lockThread(threadID, agentID string) (*lease, error) {
	path, err := l.threadPath(threadID)
	if err != nil {
		return nil, err
	}
	got, err := l.lock("thread", threadID, path, lockContent{AgentID: agentID, Team: l.team}, keepLimit)
	if err == nil {
		got.keep = l.keepThreads
	}
	return got, err
}

// agentOfThread finds the session of this team that had the thread last.
func (l *leases) agentOfThread(threadID string) (agentID string, ok bool) {
	path, err := l.threadPath(threadID)
	if err != nil {
		return "", false
	}
	c, _ := readLease(path) // what can't be read is nobody's
	return c.AgentID, c.Team == l.team && validAgentID(c.AgentID)
}

// readLease reads a lock file without touching its lock.
func readLease(path string) (lockContent, error) {
	f, err := openOwn(path, os.O_RDONLY, 0)
	if err != nil {
		return lockContent{}, err
	}
	defer f.Close()
	return readLockContent(f), nil
}

// assign names the session that an identity, leased before there was one, is for.
func (h *lease) assign(agentID string) error {
	if h.released.Load() {
		return fmt.Errorf("assigning %q to %s: the lease is released", h.name, agentID)
	}
	if err := h.write(func(c *lockContent) { c.AgentID = agentID }); err != nil {
		return fmt.Errorf("assigning %q to %s: %w", h.name, agentID, err)
	}
	h.table.note(h.path, lockHolder{agentID: agentID})
	return nil
}

// mark tells the tool servers of the session whether what is sent now is
// automatic. It writes a few bytes, when that changes.
func (h *lease) mark(automatic bool) error {
	if err := h.write(func(c *lockContent) { c.Automatic = automatic }); err != nil {
		return fmt.Errorf("telling the tool servers of %q of its turn: %w", h.name, err)
	}
	return nil
}

// tell has other processes read what the agent does now, as long as the lease is held.
func (h *lease) tell(now string) error {
	if err := h.write(func(c *lockContent) { c.now = now }); err != nil {
		return fmt.Errorf("telling other processes what %q does: %w", h.name, err)
	}
	return nil
}

// write changes what stands in the file, but not once the lease is released: the file may be another's then.
func (h *lease) write(change func(*lockContent)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released.Load() {
		return nil
	}
	was := h.content
	if change(&h.content); h.content == was {
		return nil
	}
	return writeLockContent(h.file, h.content)
}

// release may be called more than once. The lock goes before the table's entry,
// so that nobody here takes our own flock for another process's.
func (h *lease) release() {
	h.mu.Lock()
	first := !h.released.Swap(true)
	switch {
	case !first:
	case h.keep:
		h.content.PID, h.content.now = 0, ""
		writeLockContent(h.file, h.content) // informs only
	default:
		h.file.Truncate(0)
	}
	h.mu.Unlock()
	if first {
		dropFlock(h.file)
		h.table.forget(h.path)
	}
}

// holdIfGone keeps a session from coming alive whose holder is gone, so that its record can be changed or removed. It
// fails if the session may be alive. A lease that is another agent's, or nobody's yet, proves that this one doesn't
// live: a live session has its own. The thread's lock then keeps it from coming alive.
//
// The two locks are taken shared, which no session does: so whoever wants one for a session knows that it is held by
// nobody, and waits (FR-20.1). One process of a team at a time does this, by a lock of its own.
func (l *leases) holdIfGone(agentID, identity, threadID string) (release func(), gone bool) {
	held, gone := l.holdLocks(agentID, identity, threadID)
	return func() { dropAll(held) }, gone
}

// holdLongIfGone is holdIfGone for what may take seconds: records of other sessions can be changed meanwhile.
func (l *leases) holdLongIfGone(agentID, identity, threadID string) (release func(), gone bool) {
	held, gone := l.holdLocks(agentID, identity, threadID)
	if gone {
		dropFlock(held[0])
		held = held[1:]
	}
	return func() { dropAll(held) }, gone
}

// holdLocks takes the team's own lock first, then the two of the session.
func (l *leases) holdLocks(agentID, identity, threadID string) (held []*os.File, gone bool) {
	path, err := l.identityPath(identity)
	if err != nil {
		return nil, false
	}
	take := func(path string, exclusive bool) *heldBy {
		f, by, err := l.openLocked(path, exclusive)
		if err != nil {
			return &heldBy{fleeting: true}
		}
		if by == nil {
			held = append(held, f)
		}
		return by
	}
	keeper := filepath.Join(l.root, l.team, ".keeper.lock")
	for until := time.Now().Add(letGoLimit); take(keeper, true) != nil; time.Sleep(lockPause) {
		if time.Now().After(until) {
			return nil, false
		}
	}
	by := take(path, false)
	alive := by != nil && (by.fleeting || by.agentID == agentID)
	if !alive && threadID != "" {
		path, err = l.threadPath(threadID)
		alive = err != nil || take(path, false) != nil
	}
	if alive {
		dropAll(held)
		return nil, false
	}
	return held, true
}

func dropAll(held []*os.File) {
	for _, f := range held {
		dropFlock(f)
	}
}

// awaitKeeper waits until nobody keeps an identity's records any more. Who acquires one while others wait calls it
// before: acquire itself waits no longer than letGoLimit.
func (l *leases) awaitKeeper(identity string) {
	path, err := l.identityPath(identity)
	for until := time.Now().Add(keepLimit); err == nil && time.Now().Before(until); time.Sleep(5 * lockPause) {
		f, by, _ := l.openLocked(path, true)
		if f != nil {
			dropFlock(f)
		}
		if by == nil || !by.keeper {
			return
		}
	}
}

// lock takes the lock of an identity or a thread, and waits for whoever has it without holding it for a session; for
// who keeps records as long as keep.
func (l *leases) lock(what, name, path string, mine lockContent, keep time.Duration) (*lease, error) {
	mine.PID, mine.Host = os.Getpid(), l.host
	for began := time.Now(); ; time.Sleep(lockPause) {
		got, by, err := l.tryLock(path, mine)
		limit := letGoLimit
		if by != nil && by.keeper {
			limit = keep
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("locking %s %q: %w", what, name, err)
		case by == nil:
			got.name = name
			return got, nil
		case !by.fleeting || time.Since(began) > limit:
			by.what, by.name = what, name
			return nil, by
		}
	}
}

// tryLock returns a lease, or who holds it, or an error.
func (l *leases) tryLock(path string, mine lockContent) (*lease, *heldBy, error) {
	l.mu.Lock()
	if h, taken := l.held[path]; taken {
		l.mu.Unlock()
		return nil, &heldBy{agentID: h.agentID, pid: os.Getpid(), ours: true, fleeting: h.pending}, nil
	}
	l.held[path] = lockHolder{agentID: mine.AgentID, pending: true}
	l.mu.Unlock()

	f, by, err := l.openLocked(path, true)
	if err == nil && by == nil {
		if err = writeLockContent(f, mine); err != nil {
			dropFlock(f)
		}
	}
	if err != nil || by != nil {
		l.forget(path)
		return nil, by, err
	}
	l.note(path, lockHolder{agentID: mine.AgentID})
	return &lease{path: path, table: l, content: mine, file: f}, nil, nil
}

// openLocked opens and locks the file that is at the path when it is locked: it
// looks again afterwards, since a person may have removed it in between.
func (l *leases) openLocked(path string, exclusive bool) (*os.File, *heldBy, error) {
	for {
		f, err := openLockFile(path)
		if err != nil {
			return nil, nil, err
		}
		if err := lockFile(f, exclusive, false); err != nil {
			c := readLockContent(f)
			keeper := exclusive && errors.Is(err, errLocked) && lockFile(f, false, false) == nil
			dropFlock(f)
			if !errors.Is(err, errLocked) {
				return nil, nil, fmt.Errorf("%w; a filesystem without flock can't hold sessions, set ATM_HOME to "+
					"another", err)
			}
			if keeper {
				return nil, &heldBy{fleeting: true, keeper: true}, nil
			}
			dead := c.Host != "" && c.Host == l.host && !pidAlive(c.PID)
			return nil, &heldBy{agentID: c.AgentID, pid: c.PID, fleeting: c.PID == 0 || dead}, nil
		}
		there, err := isAt(f, path)
		if err == nil && there {
			return f, nil, nil
		}
		f.Close()
		if err != nil {
			return nil, nil, err
		}
	}
}

// isAt tells whether the path still names the open file.
func isAt(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

func openLockFile(path string) (*os.File, error) {
	f, err := openMaking(path, 0)
	if err == nil {
		return f, nil
	} else if errors.Is(err, errNotRegular) || errors.Is(err, errLinked) {
		return nil, fmt.Errorf("%w; move it away", err)
	} else if shortage(err) != "" {
		return nil, err // it has a hint of its own, and nothing is wrong with the directory
	}
	return nil, fmt.Errorf("%w; make %s writable or set ATM_HOME to a directory that is", err, filepath.Dir(path))
}

// writeLockContent never leaves the file empty in between: someone may read it.
func writeLockContent(f *os.File, c lockContent) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if c.now != "" {
		data = append(append(append(data[:len(data)-1], nowField...), c.now...), '}')
	}
	data = append(data, '\n')
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(data)))
}

// nowField stands between what a lease is, which hardly ever changes, and what its agent does now.
const nowField = `,"now":`

// readLockContent takes the first value and ignores the rest, which may be the tail of a longer content that is just
// being replaced. What the agent does may be half written: then there is nothing of it.
func readLockContent(f *os.File) (c lockContent) {
	data, _ := io.ReadAll(io.NewSectionReader(f, 0, maxLockContent))
	lease, rest, told := bytes.Cut(data, []byte(nowField))
	if told {
		lease = append(slices.Clone(lease), '}')
	}
	if json.NewDecoder(bytes.NewReader(lease)).Decode(&c) != nil {
		return lockContent{}
	}
	var now json.RawMessage
	if told && json.NewDecoder(bytes.NewReader(rest)).Decode(&now) == nil {
		c.now = string(now)
	}
	return c
}

func (l *leases) note(path string, h lockHolder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.held[path]; held { // not what is released meanwhile
		l.held[path] = h
	}
}

func (l *leases) forget(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, path)
}

// identityPath folds case: "Codex" and "codex" are one teammate.
func (l *leases) identityPath(identity string) (string, error) {
	if !reLockName.MatchString(identity) || len(identity) > maxIdentityLength {
		return "", fmt.Errorf("identity %q is not 1 to %d letters, digits, - or _", identity, maxIdentityLength)
	}
	return filepath.Join(l.root, l.team, strings.ToLower(identity)+".lock"), nil
}

func (l *leases) threadPath(threadID string) (string, error) {
	if !validThreadID(threadID) {
		return "", fmt.Errorf("thread id %q is not 1 to 128 letters, digits, - or _", threadID)
	}
	return filepath.Join(l.root, ".threads", threadID+".lock"), nil
}
