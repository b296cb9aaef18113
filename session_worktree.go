package main

// session_worktree.go owns the git worktrees of agents: how one is made as an agent opens, how it is found again, and
// what becomes of it when its agent is closed. The opener and the hub call it in goroutines that may wait, never a
// session's loop; git does all the work.
// A worktree is its agent's as long as git has it locked for that agent: nobody else's at the same path is ever
// touched. Before anything is made, the agent's record names path and branch. A kill then leaves a stale agent, and
// behind the record nothing; or a branch without commits, which stays; or a worktree in which nothing was done, which
// agent_close removes. Whatever git can't be asked about stays where it is.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// worktreeLimit is how long git may take to write or remove all files of a repository.
	worktreeLimit = 5 * time.Minute
	// worktreeUndo is how long it may take to take back what was begun, also while we end.
	worktreeUndo = 5 * time.Second
)

// worktrees makes and ends the worktrees of agents. Its methods wait for git.
type worktrees struct {
	*common
	agents *agentDirectory
}

// worktreeEnd is what became of a worktree when its agent was closed.
type worktreeEnd struct {
	worktreePlace
	Removed bool   `json:"removed"`        // nothing was in it, or it is gone
	Gone    bool   `json:"gone,omitempty"` // somebody had removed or moved it
	Changed int    `json:"changed_files"`  // since the worktree's last commit, untracked ones too
	Commits int    `json:"new_commits"`    // since the worktree was made
	Kept    string `json:"kept,omitempty"`
}

// words tell a person what became of a worktree.
func (e *worktreeEnd) words() string {
	where := fmt.Sprintf("Its worktree %s (branch %s)", e.Path, e.Branch)
	switch {
	case e.Gone:
		return where + " is gone already: removed, or moved; its branch is as it was."
	case e.Removed:
		return where + " is removed: nothing was in it."
	case e.Kept != "":
		return fmt.Sprintf("%s stays: %s.", where, e.Kept)
	}
	return fmt.Sprintf("%s stays, with changed files: %d, new commits: %d.", where, e.Changed, e.Commits)
}

// endOf is the worktree that is still to be ended with its agent, nil for none.
func endOf(rec *record) *worktreeEnd {
	if place := rec.Worktree.place(); place != nil {
		return &worktreeEnd{worktreePlace: *place}
	}
	return nil
}

// lockReason is why git has a worktree locked, which is how the worktree is known for that agent's.
func lockReason(agentID string) string { return "agent " + agentID + " of atm-agent-mcp works here" }

// gitDirOf is git's own directory of an agent's worktree, "" where the worktree is gone, or is another's by now. The
// worktree's own .git isn't asked: the agent may have written it.
func gitDirOf(w *worktree, agentID string) string {
	all := filepath.Join(w.Common, "worktrees")
	dirs, _ := os.ReadDir(all) // none: there is no worktree
	for _, d := range dirs {
		at := filepath.Join(all, d.Name())
		place, _ := gitLine(filepath.Join(at, "gitdir"))
		why, _ := gitLine(filepath.Join(at, "locked"))
		if inside(at, place) == filepath.Join(w.Path, ".git") && why == lockReason(agentID) && isDir(w.Path) {
			return at
		}
	}
	return ""
}

// lostWorktree is the worktree that a session's directory is in, if that worktree is gone, else nil.
func lostWorktree(rec *record) *worktree {
	w := rec.Worktree
	if w == nil || !within(rec.CWD, w.Path) || gitDirOf(w, rec.AgentID) != "" {
		return nil
	}
	return w
}

// lostError says that an agent can't go on where it was.
func lostError(w *worktree, agentID string) *rpcError {
	why := "is gone, or is not locked for the agent any more"
	if w.Removed {
		why = "was removed when the agent was closed with nothing in it, or gone before"
	}
	return proxyAdvice(codeInvalidSession, remedyNone, fmt.Sprintf("the worktree %s (branch %s) of agent %s %s", w.Path,
		w.Branch, agentID, why), fmt.Sprintf("; call codex with {\"agent_id\": %q, \"worktree\": true} for a new one, "+
		"with the name of a branch instead of true to go on with that branch, or with cwd %q to work there", agentID,
		w.From),
		"agent_id", agentID, "path", w.Path, "branch", w.Branch)
}

// within reports a path that is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// sourceTree is the working tree that a worktree is made from.
type sourceTree struct {
	root   string       // of the repository's main working tree, of the directory's own where there is no main one
	place  string       // the directory, as seen from the root of its own tree
	common string       // git's own directory, which all working trees share
	head   string       // the commit that the directory's own tree is at
	trees  []listedTree // all working trees
	lock   *os.File     // the repository's list of what is excluded, locked: one worktree at a time is made
}

// listedTree is a working tree as git lists it; branch is a full ref, "" for none.
type listedTree struct{ path, branch string }

// lockTree finds the working tree of a directory, and locks its repository: of two who want one branch at once git
// would give it to both. The caller closes the lock.
func lockTree(ctx context.Context, dir string) (t sourceTree, err error) {
	text, err := gitText(ctx, dir, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir",
		"--git-dir", "--show-prefix")
	if err != nil {
		return t, fmt.Errorf("%s has no working tree of a git repository: %w", dir, err)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != 4 || !utf8.ValidString(text) || strings.ContainsFunc(strings.Join(lines, ""), unicode.IsControl) {
		return t, fmt.Errorf("the path %q has characters that no record can keep", dir)
	}
	t.root, t.common, t.place = filepath.FromSlash(lines[0]), filepath.FromSlash(lines[1]), filepath.Clean(lines[3])
	if t.head, err = gitWord(ctx, dir, "rev-parse", "--verify", "HEAD^{commit}"); err != nil {
		return t, fmt.Errorf("the repository %s has no commit to begin with: commit something first", t.root)
	}
	if err := os.MkdirAll(filepath.Join(t.common, "info"), 0o755); err != nil {
		return t, err
	}
	path := filepath.Join(t.common, "info", "exclude")
	if t.lock, err = openOwn(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return t, err
	}
	for err = lockFile(t.lock, true, false); errors.Is(err, errLocked) && ctx.Err() == nil; {
		time.Sleep(10 * lockPause) // somebody's worktree is being written
		err = lockFile(t.lock, true, false)
	}
	if err == nil {
		t.trees, err = listTrees(ctx, t.common)
	}
	if err != nil {
		t.lock.Close()
		return t, err
	}
	// In a linked tree the first of the list is the main one, unless that is bare.
	if main := t.trees[0].path; lines[1] != lines[2] && exists(filepath.Join(main, ".git")) {
		t.root = main
	}
	return t, nil
}

// listTrees lists the working trees of a repository, the main one first.
func listTrees(ctx context.Context, common string) (trees []listedTree, err error) {
	text, err := gitText(ctx, common, "worktree", "list", "--porcelain")
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case key == "worktree":
			trees = append(trees, listedTree{path: filepath.FromSlash(value)})
		case key == "branch" && trees != nil:
			trees[len(trees)-1].branch = value
		}
	}
	if err == nil && trees == nil {
		err = fmt.Errorf("git lists no working tree of %s", common)
	}
	return trees, err
}

// holder is where a branch is checked out, "" for nowhere.
func (t *sourceTree) holder(branch string) string {
	for _, tree := range t.trees {
		if tree.branch == "refs/heads/"+branch {
			return tree.path
		}
	}
	return ""
}

// taken reports a branch that is there, or that can't be for others that are.
func (t *sourceTree) taken(ctx context.Context, branch string) bool {
	refs, _ := gitText(ctx, t.common, "for-each-ref", "--count=1", "refs/heads/"+branch) // and those below it
	return refs != ""
}

// commit is the commit that a branch is at, "" where there is no such branch.
func (t *sourceTree) commit(ctx context.Context, branch string) string {
	id, _ := gitWord(ctx, t.common, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch)
	return id
}

// place gives an agent that has its name the worktree that its call asks for, and puts the place into its record. What
// was begun is taken back where that fails, or where the session ends meanwhile.
func (t *worktrees) place(s *session, p *place, branch string) *rpcError {
	ctx, cancel := context.WithTimeout(t.life, worktreeLimit)
	defer cancel()
	go func() { // ends with this call
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if was := p.rec.Worktree; was != nil && gitDirOf(was, p.rec.AgentID) != "" {
		if within(p.rec.CWD, was.Path) && (branch == "" || branch == was.Branch) {
			return nil // the agent has what it is to have
		}
		return proxyError(codeInvalidSession, fmt.Sprintf("agent %s has a worktree: %s (branch %s); leave worktree "+
			"out to go on there with cwd %q, or start another agent", p.rec.AgentID, was.Path, was.Branch, was.Path))
	}
	from, err := lockTree(ctx, p.rec.CWD)
	if err == nil {
		err = t.make(ctx, p, from, branch)
		from.lock.Close()
	}
	if err != nil {
		return proxyError(codeInvalidSession, "no worktree could be made: "+errorText(err)+
			"; or leave worktree out", "cwd", p.rec.CWD)
	}
	w := p.rec.Worktree
	t.log.Info("worktree made", "agent", s.agentID, "path", w.Path, "branch", w.Branch)
	if exists(filepath.Join(w.Path, ".gitmodules")) {
		p.notes = append(p.notes, "the worktree's submodules are empty; git submodule update --init fills them")
	}
	return nil
}

// make makes a worktree. Nobody else makes one in the repository meanwhile.
func (t *worktrees) make(ctx context.Context, p *place, from sourceTree, named string) error {
	dir, err := t.directory(&from)
	if err != nil {
		return err
	}
	w := worktree{worktreePlace{Branch: named}, true, from.head, from.common, p.rec.CWD, false}
	if named != "" {
		if err := from.refusal(ctx, named); err != nil {
			return err
		}
		if id := from.commit(ctx, named); id != "" {
			w.Ours, w.Base = false, id
		}
	}
	for n := 1; n <= maxIdentitySuffix; n++ {
		name := numbered(p.rec.Identity, n)
		if w.Path = filepath.Join(dir, name); named == "" {
			w.Branch = "agent/" + name
		}
		// Git may know of a tree there that is missing just now.
		if slices.ContainsFunc(from.trees, func(tree listedTree) bool { return tree.path == w.Path }) ||
			named == "" && from.taken(ctx, w.Branch) {
			continue
		}
		err := os.Mkdir(w.Path, 0o755)
		if err == nil {
			return t.fill(ctx, p, w, from.place)
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return fmt.Errorf("the names %s to %s are taken in %s", p.rec.Identity, numbered(p.rec.Identity, maxIdentitySuffix),
		dir)
}

// refusal is why a branch that a call names can't be had, nil where it can.
func (t *sourceTree) refusal(ctx context.Context, branch string) error {
	// "@{-1}" and its like come back as another name; git takes "@" and a full ref for one, and elsewhere for another.
	said, err := gitWord(ctx, t.common, "check-ref-format", "--branch", branch)
	if err != nil || said != branch || branch == "@" || strings.HasPrefix(branch, "refs/") {
		return fmt.Errorf("%q is no name for a branch", cutName(branch))
	}
	at := t.holder(branch)
	switch {
	case at == "":
		return nil
	case !exists(at):
		return fmt.Errorf("branch %q is checked out in %s, which is gone: git worktree remove --force --force %q has "+
			"git forget that", branch, at, at)
	}
	return fmt.Errorf("branch %q is checked out in %s already: name another one", branch, at)
}

// directory is where a repository's worktrees are made. In the repository's own working tree git is told to ignore it.
func (t *worktrees) directory(from *sourceTree) (string, error) {
	dir := resolvePath(t.cfg.worktreeDir, from.root, t.cfg.home)
	if within(from.root, dir) || within(dir, from.common) {
		return "", fmt.Errorf("worktree_dir %q is the repository itself: name a folder of its own", t.cfg.worktreeDir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making worktree_dir: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	switch {
	case err != nil:
		return "", err
	case real != dir && within(dir, from.root): // the link may be the repository's
		return "", fmt.Errorf("worktree_dir %s is a link to %s: name that folder itself", dir, real)
	case !within(real, from.root):
		return real, nil
	}
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)
	pattern := literal.Replace(strings.TrimPrefix(filepath.ToSlash(real), filepath.ToSlash(from.root))) + "/"
	text, err := io.ReadAll(io.LimitReader(from.lock, maxConfigSize))
	if err != nil || slices.Contains(strings.Split(string(text), "\n"), pattern) {
		return real, err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		pattern = "\n" + pattern
	}
	_, err = from.lock.WriteString(pattern + "\n") // no commit has this list
	return real, err
}

// fill makes the worktree in its directory, which is there and empty. On an error it leaves nothing.
func (t *worktrees) fill(ctx context.Context, p *place, w worktree, place string) (err error) {
	p.made = true
	p.rec.Worktree, p.rec.CWD = &w, filepath.Join(w.Path, place)
	p.noteEarly()
	t.ledger.save(&p.rec)
	begun := w
	if w.Ours {
		_, err = gitText(ctx, w.Common, "update-ref", "refs/heads/"+w.Branch, w.Base, "")
		begun.Ours = err == nil
	}
	if err == nil {
		_, err = gitText(ctx, w.Common, "worktree", "add", "--quiet", "--lock", "--reason", lockReason(p.rec.AgentID),
			"--", w.Path, w.Branch)
	}
	if err == nil {
		err = t.keepPlace(p, w.Path, place)
	}
	if err == nil {
		return nil
	}
	p.rec.Worktree, p.rec.CWD = nil, w.From
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktreeUndo)
	defer cancel()
	if e := t.remove(ctx, &begun); e != nil {
		t.log.Warn("what was begun of a worktree stays", "path", w.Path, "branch", w.Branch, "err", e)
	}
	return err
}

// keepPlace sees to it that the agent's directory is in the worktree, though it may be in no commit.
func (t *worktrees) keepPlace(p *place, path, place string) error {
	tree, err := os.OpenRoot(path) // nothing in the commit leads out of the worktree
	if err != nil {
		return err
	}
	defer tree.Close()
	if _, err := tree.Stat(place); err == nil {
		return nil
	}
	if err := tree.MkdirAll(place, 0o755); err != nil {
		return fmt.Errorf("%s can't be in the worktree: %w", place, err)
	}
	p.notes = append(p.notes, fmt.Sprintf("%s is in no commit, so it is empty in the worktree", place))
	return nil
}

// remove removes a worktree, whatever is in it, and its branch if that was made with it and is checked out nowhere
// else.
func (t *worktrees) remove(ctx context.Context, w *worktree) error {
	os.Remove(w.Path) // empty where git was killed as it began
	if _, err := gitText(ctx, w.Common, "worktree", "remove", "--force", "--force", "--", w.Path); err != nil &&
		exists(w.Path) {
		return err
	}
	if w.Ours {
		if _, err := gitText(ctx, w.Common, "branch", "-D", "--", w.Branch); err != nil {
			t.log.Warn("a worktree's branch stays", "branch", w.Branch, "err", err)
		}
	}
	return nil
}

// unmake takes back what was begun for a session that never came to be: its worktree, and its record where it is new.
// rec is the session's as it gave its place back.
func (t *worktrees) unmake(rec record) {
	if end := t.end(rec.AgentID, true); end != nil && !end.Removed {
		return
	}
	now := t.ledger.record(rec.AgentID)
	if now == nil || now.BackendID != "" || now.Turns > 0 {
		return
	}
	if err := t.reg.remove(*now, true); err != nil {
		t.log.Warn("the record of an agent that never came to be stays", "agent", rec.AgentID, "err", err)
	}
}

// end ends the worktree of an agent that was closed, or that never came to be (unborn): without changes and new commits
// it is removed, else it stays. nil: the agent has none. While git works, nobody can open the agent.
func (t *worktrees) end(agentID string, unborn bool) *worktreeEnd {
	rec := t.ledger.record(agentID)
	if rec == nil || rec.Worktree.place() == nil {
		return nil
	}
	end := endOf(rec)
	release, gone := t.reg.holdLongIfGone(agentID, rec.Identity, rec.BackendID)
	if !gone {
		end.Kept = "the agent is open again"
		return end
	}
	defer release()
	if rec = t.ledger.record(agentID); rec == nil || rec.Status != statusClosed && !unborn {
		end.Kept = "the agent is not closed any more"
		return end
	}
	if end.Kept = t.judge(rec, end); end.Kept != "" || end.Changed+end.Commits > 0 {
		return end
	}
	w := *rec.Worktree
	if gitDirOf(&w, agentID) != "" {
		// Not cut short as we end: half a worktree would look as if work was in it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.life), worktreeLimit)
		defer cancel()
		if err := t.remove(ctx, &w); err != nil {
			end.Kept = errorText(err)
			return end
		}
	}
	end.Removed, w.Removed = true, true
	t.log.Info("worktree removed", "agent", agentID, "path", w.Path, "branch", w.Branch)
	t.agents.changing.Lock()
	defer t.agents.changing.Unlock()
	if now := t.ledger.record(agentID); now != nil {
		if now.Worktree = &w; unborn {
			now.Worktree, now.CWD = nil, w.From
		}
		if err := t.ledger.put(now); err != nil {
			t.log.Warn("it is not kept that a worktree is removed", "agent", agentID, "err", err)
		}
	}
	return end
}

// judge finds what is in a worktree, and returns why the worktree stays though that be nothing, "" for no reason.
func (t *worktrees) judge(rec *record, end *worktreeEnd) (kept string) {
	w, git := rec.Worktree, gitDirOf(rec.Worktree, rec.AgentID)
	if git == "" {
		end.Gone = !exists(w.Path)
		os.Remove(w.Path) // empty where a kill came before git
		if exists(w.Path) {
			return "it is not locked for the agent any more"
		}
		return ""
	}
	recs, _ := t.ledger.records(0)
	for _, other := range recs {
		if other.AgentID != rec.AgentID && other.Status != statusClosed && within(other.CWD, w.Path) {
			return fmt.Sprintf("agent %s (identity %s) works there too", other.AgentID, other.Identity)
		}
	}
	in := []string{"--git-dir=" + git, "--work-tree=" + w.Path}
	changed := gitLines{end: "\n", each: func(string) { end.Changed++ }}
	files := gitLines{end: "\x00", each: func(line string) { // a letter, mode, id and stage, a tab, the path
		about, path, _ := strings.Cut(line, "\t")
		flag, about, _ := strings.Cut(about, " ")
		path = filepath.Join(w.Path, filepath.FromSlash(path))
		if strings.HasPrefix(about, "160000 ") { // no git looks into a submodule: its configuration is the agent's
			if in, err := os.ReadDir(path); err != nil || len(in) > 0 {
				end.Changed++
			}
		} else if (flag == "S" || flag != strings.ToUpper(flag)) && exists(path) {
			kept = "git is told to see no change in some of its files"
		}
	}}
	err := gitInto(t.life, w.Path, &changed, append(in, "status", "--porcelain", "--untracked-files=all",
		"--ignore-submodules=dirty")...)
	if err == nil {
		err = gitInto(t.life, w.Path, &files, append(in, "ls-files", "--stage", "-v", "-z")...)
	}
	var count string
	if err == nil {
		count, err = gitWord(t.life, w.Path, append(in, "rev-list", "--count", "HEAD", "refs/heads/"+w.Branch, "--not",
			w.Base)...)
	}
	if err == nil {
		_, err = fmt.Sscan(count, &end.Commits)
	}
	if err != nil {
		return "git can't tell what is in it: " + errorText(err)
	}
	return kept
}

// gitLines hands on what git writes, line by line.
type gitLines struct {
	end  string // of a line
	rest []byte
	each func(line string)
}

func (l *gitLines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte(l.end))
		if !whole {
			return len(p), nil
		}
		l.each(string(line))
		l.rest = rest
	}
}
