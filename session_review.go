package main

// session_review.go owns how the change is found that a review is of: which commits are meant, what is not committed,
// how large all of it is. It runs git, so it is for a front's goroutine, before the turn. What a caller names is
// refused here, unless it is a commit: no word of a caller's gets to git as an option or to the reviewer as a command.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxDiffRead is how many bytes of a diff are read to measure it.
const maxDiffRead = 64 << 20

// changeSearch looks for one change.
type changeSearch struct {
	*review
	ctx context.Context
}

// findReview finds the change that a task means, in the repository of a directory. It runs git.
func findReview(ctx context.Context, dir string, task reviewTask) (*review, error) {
	place, err := gitText(ctx, dir, "rev-parse", "--show-toplevel", "--show-cdup")
	if err != nil {
		return nil, fmt.Errorf("there is nothing to review in %s: %w", dir, err)
	}
	place = strings.TrimSuffix(place, "\n")
	end := strings.LastIndexByte(place, '\n') // a directory's name may have a line's end in it, the way up has none
	r := &review{reviewTask: task, top: filepath.FromSlash(place[:max(end, 0)]), via: filepath.Join(dir, place[end+1:])}
	r.change.Target = task.target
	s := changeSearch{r, ctx}
	head, err := s.commitOf("HEAD")
	if err != nil && task.target == reviewBranch {
		return nil, fmt.Errorf("the branch of %s has no commit yet; target uncommitted reviews what is there", r.top)
	}
	var to []string
	switch task.target {
	case reviewUncommitted:
		if err == nil {
			r.change.Base = &head
		}
		if err := s.addUntracked(); err != nil {
			return nil, err
		}
	case reviewBranch:
		base, err := s.mergeBase()
		if err != nil {
			return nil, err
		}
		r.change.Base, r.change.Commit, to = &base, &head, []string{head}
		changed, err := gitWord(ctx, r.top, "status", "--porcelain")
		r.left = err != nil || changed != "" // more of it than is read is an error
	case reviewCommit:
		commit, err := s.named("commit", task.commit)
		if err != nil {
			return nil, err
		}
		r.change.Commit, to = &commit, []string{commit}
		if parent, err := s.commitOf(commit + "^1"); err == nil {
			r.change.Base = &parent
		} else if err := s.checkFirst(commit); err != nil {
			return nil, err
		}
	}
	return r, s.measure(to)
}

// commitOf is the full id of a commit.
func (s changeSearch) commitOf(name string) (string, error) {
	return gitWord(s.ctx, s.top, "rev-parse", "--verify", "--quiet", name+"^{commit}")
}

// named is the full id of a commit that a caller names; what says as what.
func (s changeSearch) named(what, name string) (string, error) {
	if strings.HasPrefix(name, "-") || strings.HasPrefix(name, "^") ||
		strings.ContainsFunc(name, func(c rune) bool { return c < ' ' }) {
		return "", fmt.Errorf("%s %q is no name of a commit: give a branch, a tag or an id", what, cutName(name))
	}
	id, err := s.commitOf(name)
	switch {
	case err == nil:
		return id, nil
	case s.ctx.Err() != nil:
		return "", s.ctx.Err()
	}
	return "", fmt.Errorf("%s %q is unknown: the repository %s has no such branch, tag or commit", what, cutName(name),
		s.top)
}

// checkFirst refuses a commit whose parent only a deeper clone has: it looks like a first one, which adds every file.
func (s changeSearch) checkFirst(commit string) error {
	object, err := gitText(s.ctx, s.top, "cat-file", "commit", commit)
	if head, _, _ := strings.Cut(object, "\n\n"); err == nil && strings.Contains(head, "\nparent ") {
		err = fmt.Errorf("the parent of commit %s is not in the repository %s, whose history is cut off: git fetch "+
			"--deepen=1 fetches it", commit, s.top)
	}
	return err
}

// mergeBase is the commit that the branch has left its base at.
func (s changeSearch) mergeBase() (string, error) {
	name := s.base
	if name == "" {
		var err error
		if name, err = s.defaultBranch(); err != nil {
			return "", err
		}
	}
	base, err := s.named("base", name)
	if err != nil {
		return "", err
	}
	merge, err := gitWord(s.ctx, s.top, "merge-base", base, "HEAD")
	if err != nil {
		return "", fmt.Errorf("base %q and this branch have no commit in common", cutName(name))
	}
	return merge, nil
}

// defaultBranch is the default branch of the remote: of origin, or of the only one.
func (s changeSearch) defaultBranch() (string, error) {
	text, err := gitText(s.ctx, s.top, "remote")
	if err != nil {
		return "", err
	}
	remotes, remote := strings.Fields(text), "origin"
	if len(remotes) == 1 {
		remote = remotes[0]
	}
	for _, branch := range []string{"HEAD", "main", "master"} {
		name := "refs/remotes/" + remote + "/" + branch
		if _, err := s.commitOf(name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("the default branch of a remote is not known in %s: give base, the branch or commit to "+
		"measure from", s.top)
}

// addUntracked counts the files that git does not know yet.
func (s changeSearch) addUntracked() error {
	text, err := gitText(s.ctx, s.top, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return err
	}
	for _, name := range strings.Split(strings.TrimRight(text, "\x00"), "\x00") {
		if name == "" {
			continue
		}
		s.change.Files++
		path := filepath.Join(s.top, filepath.FromSlash(name))
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() { // else it is gone, a link, a repository
			lines, size := countLines(s.ctx, path)
			s.change.Added += lines
			s.bytes += size
		}
	}
	return s.ctx.Err()
}

// countLines is how many lines and bytes a text has, 0 for what is none: git shows nothing of such a file either.
func countLines(ctx context.Context, path string) (lines int, size int64) {
	file, err := os.Open(path)
	if err != nil {
		return 0, 0
	}
	defer file.Close()
	part, last := make([]byte, 64<<10), byte('\n')
	for ctx.Err() == nil {
		n, err := io.ReadFull(file, part)
		if size == 0 && bytes.IndexByte(part[:min(n, 8000)], 0) >= 0 {
			return 0, 0
		}
		if n > 0 {
			size, last = size+int64(n), part[n-1]
			lines += bytes.Count(part[:n], []byte{'\n'})
		}
		if err != nil {
			break
		}
	}
	if last != '\n' {
		lines++
	}
	return lines, size
}

// measure counts what differs between the base and to, or the working tree where to is empty.
func (s changeSearch) measure(to []string) error {
	from := ""
	if s.change.Base != nil {
		from = *s.change.Base
	} else { // the tree with nothing in it; its name depends on the repository's kind of hash
		var err error
		if from, err = gitWord(s.ctx, s.top, "hash-object", "-t", "tree", "--stdin"); err != nil {
			return err
		}
	}
	var m diffMeter
	args := append([]string{"diff", "--shortstat", "--patch", "--no-color", "--no-ext-diff", "--no-textconv", from},
		to...)
	if err := gitInto(s.ctx, s.top, &m, args...); err != nil && !m.full {
		return fmt.Errorf("the change could not be read: %w", err)
	}
	s.bytes += m.read
	line, _, _ := strings.Cut(string(m.head), "\n")
	for _, part := range strings.Split(line, ",") {
		var n int
		var what string
		if _, err := fmt.Sscan(part, &n, &what); err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(what, "file"):
			s.change.Files += n
		case strings.HasPrefix(what, "insertion"):
			s.change.Added += n
		case strings.HasPrefix(what, "deletion"):
			s.change.Removed += n
		}
	}
	return nil
}

// diffMeter keeps the head of a diff and counts the rest.
type diffMeter struct {
	head []byte
	read int64
	full bool // there is more, which is not read
}

func (m *diffMeter) Write(p []byte) (int, error) {
	m.head = append(m.head, p[:min(len(p), max(0, 200-len(m.head)))]...)
	m.read += int64(len(p))
	if m.full = m.read > maxDiffRead; m.full {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}
