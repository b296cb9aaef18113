package main

// mail_teamfile.go owns one team's config.json as a file: read whole, and replaced whole under the two locks of mail_lock.go.
// mail_members.go and mail_recipients.go are the callers.
// Never makes a team, and never overwrites a file that it can't understand: Claude Code would take such a one as
// empty, so what looks broken may be half of what is just being written.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	halfReadTries  = 20 // Claude Code truncates config.json and then writes it, at times without a lock; on a busy machine it may be kept from it for long
	halfReadPause  = 25 * time.Millisecond
	replaceTries   = 4
	cacheableAfter = 100 * time.Millisecond // a file changed more recently may change again within one tick of its clock
)

var (
	// errNoTeam: there is none, or it is gone: Claude Code removes its team when it exits.
	errNoTeam = errors.New("there is no such team")
	// errTeamDamaged: config.json is not what a team has. It was left as it is.
	errTeamDamaged = errors.New("config.json can't be understood")
)

// A teamFile is safe for use by many goroutines.
type teamFile struct {
	team   string // also the directory's name
	dir    string
	leases string // where this process's identity leases are; it stands in the entries we add
	host   string
	turn   chan struct{} // has room for the one of this process who changes the file
	queue  lockQueue     // of that one

	mu      sync.Mutex // guards the fields below, never held over I/O
	seen    fs.FileInfo
	members []member // of seen, not to be changed
	lead    string   // of seen
}

// newTeamFile touches no disk. The team is a valid name; see validTeam.
func newTeamFile(root, team, leases string) *teamFile {
	host, _ := os.Hostname() // without one no process is called dead
	return &teamFile{team: team, dir: filepath.Join(root, team), leases: leases, host: host, turn: make(chan struct{}, 1)}
}

func (t *teamFile) path() string { return filepath.Join(t.dir, "config.json") }

// pathError wraps what a path below the team's directory failed with: errNoTeam if there is none any more.
func (t *teamFile) pathError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("team %q: %w: %s is missing (Claude Code and atm make teams)", t.team, errNoTeam, t.path())
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("team %q: %w; make %s writable for this user", t.team, err, t.dir)
	}
	return fmt.Errorf("team %q: %w", t.team, err)
}

// read returns config.json and where its members are, and the file it was read from.
func (t *teamFile) read() (*roster, fs.FileInfo, error) {
	for try := 1; ; try++ {
		data, info, err := t.readOnce()
		if err != nil {
			return nil, nil, err
		}
		r, err := parseRoster(data)
		if err == nil {
			return r, info, nil
		}
		if try == halfReadTries {
			return nil, nil, fmt.Errorf("team %q: %w: %s: %w; it was left as it is", t.team, errTeamDamaged, t.path(), err)
		}
		time.Sleep(halfReadPause)
	}
}

func (t *teamFile) readOnce() ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(t.path())
	if err != nil {
		return nil, nil, t.pathError(err)
	}
	data, err := readRegular(t.path(), maxTeamConfigSize)
	if err != nil {
		return nil, nil, t.pathError(err)
	}
	return data, info, nil
}

// list returns the members.
func (t *teamFile) list() ([]member, error) {
	all, _, err := t.listed()
	return all, err
}

// listed returns the members and the lead's name; an unchanged file is not read again.
func (t *teamFile) listed() (all []member, lead string, err error) {
	now, err := os.Stat(t.path())
	if err != nil {
		return nil, "", t.pathError(err)
	}
	t.mu.Lock()
	if t.seen != nil && os.SameFile(t.seen, now) && t.seen.Size() == now.Size() && t.seen.ModTime().Equal(now.ModTime()) {
		defer t.mu.Unlock()
		return t.members, t.lead, nil
	}
	t.mu.Unlock()
	began := time.Now()
	r, info, err := t.read()
	if err != nil {
		return nil, "", err
	}
	all, lead = r.members(), r.lead()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen = nil; began.Sub(info.ModTime()) > cacheableAfter {
		t.seen, t.members, t.lead = info, all, lead
	}
	return all, lead, nil
}

// update replaces config.json by what edit makes of it, under both locks. edit changes nothing else and may be
// called again with a newer text; if it returns the same text, or an error, nothing is written.
func (t *teamFile) update(ctx context.Context, edit func(r *roster) ([]byte, error)) error {
	if _, _, err := t.readOnce(); err != nil {
		return err // before a lock file is made: never in a directory that is no team
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return fmt.Errorf("team %q: %w (%s): %w", t.team, errTeamBusy, t.path(), ctx.Err())
	}
	flock, err := takeFlock(ctx, &t.queue, t.path())
	if err != nil {
		return t.pathError(err)
	}
	defer dropFlock(flock)
	lock, err := takeDirLock(ctx, t.path(), newLockNotes(t.leases))
	if err != nil {
		return t.pathError(err)
	}
	defer lock.release()
	r, _, err := t.read()
	if err != nil {
		return err
	}
	for range replaceTries {
		text, err := edit(r)
		if err != nil || bytes.Equal(text, r.text) {
			return err
		}
		if !lock.held() {
			return fmt.Errorf("team %q: %w: our lock was taken for a stale one", t.team, errTeamBusy)
		}
		// Whoever writes without a lock may write into the file that we displace: then that is the newer text.
		newer, err := t.replace(r.text, text)
		if err != nil || newer == nil {
			return err
		}
		r = newer
	}
	return fmt.Errorf("team %q: %w: it was changed without a lock %d times", t.team, errTeamBusy, replaceTries)
}

// replace writes text over config.json if that is still what was read. Otherwise, or if the file was written to while
// it was displaced, it returns what is there now.
func (t *teamFile) replace(was, text []byte) (newer *roster, err error) {
	path, err := filepath.EvalSymlinks(t.path()) // a link stays one
	if err != nil {
		return nil, t.pathError(err)
	}
	old, err := openRegular(path)
	if err != nil {
		return nil, t.pathError(err)
	}
	defer func() { old.Close() }()
	info, err := old.Stat()
	if err != nil {
		return nil, t.pathError(err)
	}
	temp, err := t.writeTemp(filepath.Dir(path), text, info.Mode().Perm())
	if err != nil {
		return nil, err
	}
	defer func() {
		if temp != "" {
			os.Remove(temp)
		}
	}()
	if now, err := readOpen(old); err != nil || !bytes.Equal(now, was) {
		r, _, err := t.read()
		return r, err
	}
	if runtime.GOOS == "windows" { // nothing is renamed over an open file there
		old.Close()
	}
	if err := renameOver(temp, path); err != nil {
		return nil, t.pathError(err)
	}
	temp = ""
	if runtime.GOOS == "windows" {
		return nil, nil
	}
	return displaced(old, was), nil
}

// displaced returns what somebody wrote into a file after it was read, and before or while it was replaced.
func displaced(old *os.File, was []byte) *roster {
	for range halfReadTries {
		now, err := readOpen(old)
		if err != nil || bytes.Equal(now, was) {
			return nil
		}
		if r, err := parseRoster(now); err == nil {
			return r
		}
		time.Sleep(halfReadPause)
	}
	return nil // its writer died in the middle: ours is the last that was whole
}

func readOpen(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, maxTeamConfigSize))
}

func (t *teamFile) writeTemp(dir string, text []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return "", t.pathError(err)
	}
	_, err = f.Write(text)
	if err == nil && runtime.GOOS != "windows" {
		err = f.Chmod(mode)
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err != nil {
		os.Remove(f.Name())
		return "", t.pathError(err)
	}
	return f.Name(), nil
}

// tidy removes what a crash left: in the middle of writeTemp, or between a lock's note and the lock.
func (t *teamFile) tidy() {
	newLockNotes(t.leases).tidy()
	entries, _ := os.ReadDir(t.dir)
	for _, e := range entries {
		if ok, _ := filepath.Match(tempPrefix+"[0-9]*", e.Name()); ok && e.Type().IsRegular() {
			removeLeftover(t.dir, e)
		}
	}
}
