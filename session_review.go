package main

// session_review.go owns how the change is found that a review is of: which commits are meant, what is not committed,
// how large all of it is. It runs git, so it is for a front's goroutine, before the turn. What a caller names is
// refused here, unless it is a commit: no word of a caller's gets to git as an option or to the reviewer as a command.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
		if task.base != "" {
			r.change.Base = &task.base
		} else if err == nil {
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

// untracked lists the files that git does not know yet, as seen from the repository's root.
func untracked(ctx context.Context, top string) ([]string, error) {
	text, err := gitText(ctx, top, "ls-files", "--others", "--exclude-standard", "-z")
	return zeroFields(text), err
}

// zeroFields takes apart what git writes with -z.
func zeroFields(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == 0 })
}

// addUntracked counts the files that git does not know yet.
func (s changeSearch) addUntracked() error {
	names, err := untracked(s.ctx, s.top)
	if err != nil {
		return err
	}
	for _, name := range names {
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

// emptyTree is the id of the tree with nothing in it, which depends on the repository's kind of hash.
func emptyTree(ctx context.Context, top string) (string, error) {
	return gitWord(ctx, top, "hash-object", "-t", "tree", "--stdin")
}

// measure counts what differs between the base and to, or the working tree where to is empty.
func (s changeSearch) measure(to []string) (err error) {
	from := ""
	if s.change.Base != nil {
		from = *s.change.Base
	} else if from, err = emptyTree(s.ctx, s.top); err != nil {
		return err
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

// workBegan is what the work since from has begun with: from itself, or where HEAD stood after something else than a
// new commit has moved it since (a pull, a checkout), since that brings other people's work. An empty from is what HEAD
// is, which is the tree with nothing in it before the first commit.
func workBegan(ctx context.Context, dir, from string) (base, head string, err error) {
	nothing, err := emptyTree(ctx, dir)
	if err != nil {
		return "", "", err
	}
	if head, err = gitWord(ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		head = nothing
	}
	if from == "" || from == head {
		return head, head, nil
	}
	text, _ := gitText(ctx, dir, "reflog", "show", "-n", "200", "--no-show-signature", "--format=%H %gs",
		"HEAD") // an error: git keeps no reflog here
	moves := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' })
	for i, move := range moves {
		id, how, _ := strings.Cut(move, " ")
		how, _, _ = strings.Cut(how, ":")
		switch {
		case id == from:
			return from, head, nil
		case i+1 < len(moves) && strings.HasPrefix(moves[i+1], id): // a new branch, a stash
		case how == "commit (initial)" && from == nothing:
			return from, head, nil
		case !slices.Contains([]string{"commit", "commit (amend)", "commit (initial)", "cherry-pick", "revert"}, how):
			return id, head, nil
		}
	}
	return head, head, nil
}

// contentSum tells two contents of a change that is not committed apart. It is the same before and after a commit of
// that content.
func (r *review) contentSum(ctx context.Context) (string, error) {
	text, err := gitText(ctx, r.top, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", *r.change.Base)
	others, err2 := untracked(ctx, r.top)
	names, sum := append(zeroFields(text), others...), sha256.New()
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		fmt.Fprintf(sum, "%q %s\n", name, fileSum(filepath.Join(r.top, filepath.FromSlash(name))))
	}
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, err2, ctx.Err())
}

// fileSum is about one file: what is in it, where a link leads, or what else it is.
func fileSum(path string) string {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return "gone"
	case info.Mode()&os.ModeSymlink != 0:
		to, _ := os.Readlink(path)
		return "to " + to
	case info.Mode().IsRegular() && info.Size() <= maxDiffRead:
		if text, err := os.ReadFile(path); err == nil {
			return fmt.Sprintf("%v %x", info.Mode(), sha256.Sum256(text))
		}
	}
	return fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
}
