package main

// What is known of the git repository around a directory, read straight from .git: a subprocess on the turn path
// costs more than the whole turn may. A session keeps one repoCache and asks it before every turn; session_prompt.go
// puts the answer into words. Nothing here fails: what can't be understood is left out, as null.
// Reads are bounded, nothing is written, and no value is trusted to be harmless text: whoever prints a value quotes it.

import (
	"cmp"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	maxGitPointer = 8 << 10 // HEAD, a .git file, commondir: one line each
	maxGitConfig  = 1 << 20
	// A file written twice within the file system's clock tick can keep its stamp (git calls it racy): facts read
	// from a file younger than this are read again.
	gitSettleTime = 2 * time.Second
)

// repoFacts are the facts of one directory. Outside a repository all pointers are nil (FR-2.4).
type repoFacts struct {
	Root, Name *string // of the working tree
	Branch     *string // nil where HEAD is on no branch
	Head       string  // what HEAD is on where that is no branch, as "detached at 1a2b3c4"; else ""
}

// readRepo finds the repository whose working tree holds cwd, as `git rev-parse --show-toplevel` would.
func readRepo(cwd string) repoFacts { return new(repoCache).read(cwd) }

// A repoCache remembers the facts of one directory and the few paths that decide them: HEAD, config, and each .git that
// isn't there. As long as those paths look the same to stat, nothing is opened. It has no lock: the session that owns
// it is its only user.
type repoCache struct {
	cwd   string // the directory that facts are of
	facts repoFacts
	seen  []repoStamp // what the paths looked like before they were read
	young bool        // a file was so young that a change may leave its stamp as it is (gitSettleTime)
}

func (c *repoCache) read(cwd string) repoFacts {
	if !c.fresh(cwd) {
		*c = repoCache{cwd: cwd}
		c.facts = c.find(cwd)
	}
	return c.facts
}

func (c *repoCache) fresh(cwd string) bool {
	return c.seen != nil && !c.young && c.cwd == cwd && !slices.ContainsFunc(c.seen, repoStamp.changed)
}

type repoStamp struct {
	path string
	link bool        // info is of the path itself, not of what a symbolic link leads to
	info os.FileInfo // nil: nothing was there
}

func takeStamp(path string, link bool) repoStamp {
	look := os.Stat
	if link {
		look = os.Lstat
	}
	info, err := pinned(look(path))
	if err != nil {
		return repoStamp{path: path, link: link}
	}
	return repoStamp{path, link, info}
}

// changed compares directories by identity only: git touches .git all the time.
func (was repoStamp) changed() bool {
	now := takeStamp(was.path, was.link)
	switch {
	case was.info == nil || now.info == nil:
		return was.info != nil || now.info != nil
	case !os.SameFile(was.info, now.info) || was.info.Mode() != now.info.Mode():
		return true
	case was.info.IsDir():
		return false
	}
	return !was.info.ModTime().Equal(now.info.ModTime()) || was.info.Size() != now.info.Size()
}

// find stamps each path that decides the facts before it looks inside.
func (c *repoCache) find(cwd string) repoFacts {
	dir, err := filepath.Abs(cwd)
	if err != nil || cwd == "" {
		return repoFacts{}
	}
	c.look(dir, false) // a link may be made to lead to another directory, and a directory may go
	// git names the real path, and a link's parents are not the parents of what it leads to.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return repoFacts{}
	}
	for ; ; dir = filepath.Dir(dir) {
		if facts, done := c.at(dir); done || dir == filepath.Dir(dir) {
			return facts
		}
	}
}

// at tells whether the search ends at dir, and with which facts. Like git it passes by a .git directory that is no
// repository, and ends without facts at a .git file that leads nowhere and in a bare repository.
func (c *repoCache) at(dir string) (facts repoFacts, done bool) {
	dotGit := filepath.Join(dir, ".git")
	info, err := os.Stat(dotGit)
	if err != nil || !info.IsDir() { // of a directory its HEAD is looked at
		c.look(dotGit, false)
	}
	if err != nil {
		_, bare := c.openGitDir(dir)
		return repoFacts{}, bare
	}
	gitDir := dotGit
	if !info.IsDir() {
		line, ok := gitLine(dotGit)
		target, isPointer := strings.CutPrefix(line, "gitdir:")
		if target = strings.TrimSpace(target); !ok || !isPointer || target == "" {
			return repoFacts{}, true
		}
		gitDir = inside(dir, target)
	}
	g, ok := c.openGitDir(gitDir)
	if !ok {
		return repoFacts{}, !info.IsDir()
	}
	config := filepath.Join(g.common, "config")
	c.look(config, false)
	data, _ := readRegular(config, maxGitConfig)
	origin, bare := scanGitConfig(string(data))
	if bare && !g.linked { // of a linked worktree, core.bare is said of the main repository
		return repoFacts{}, true
	}
	name := strings.ToValidUTF8(cmp.Or(repoNameOf(origin), g.ownName(dir)), "\uFFFD")
	return repoFacts{Root: &dir, Name: &name, Branch: g.branch, Head: g.head}, true
}

// A gitDir is a directory that passed git's own test for being one.
type gitDir struct {
	common string // the directory of config, objects and refs: another one for a linked worktree
	linked bool   // it is that of a linked worktree
	branch *string
	head   string // as repoFacts.Head
}

func (c *repoCache) openGitDir(path string) (gitDir, bool) {
	g := gitDir{common: path}
	if !c.readHead(&g, filepath.Join(path, "HEAD")) {
		return gitDir{}, false
	}
	if line, ok := gitLine(filepath.Join(path, "commondir")); ok && line != "" {
		g.common, g.linked = inside(path, line), true
	}
	ok := isDir(filepath.Join(g.common, "objects")) && isDir(filepath.Join(g.common, "refs"))
	return g, ok
}

// readHead takes the branch's name from HEAD alone. Whether its commit stands in a loose ref, in packed-refs or, with
// an unborn branch, nowhere makes no difference to the name, so refs are never searched.
func (c *repoCache) readHead(g *gitDir, path string) bool {
	var ref string
	info := c.look(path, true)
	if info == nil {
		return false
	}
	if info.Mode()&os.ModeSymlink != 0 { // old repositories: HEAD -> refs/heads/master
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(filepath.ToSlash(target), "refs/") {
			ref = filepath.ToSlash(target)
		}
	}
	if ref == "" {
		line, ok := gitLine(path)
		if !ok {
			return false
		}
		name, symbolic := strings.CutPrefix(line, "ref:")
		if ref = strings.TrimSpace(name); !symbolic {
			if !objectID.MatchString(line) {
				return false
			}
			g.head = "detached at " + line[:7]
			return true
		}
	}
	if !strings.HasPrefix(ref, "refs/") {
		return false
	}
	ref = strings.ToValidUTF8(ref, "\uFFFD")
	branch, isBranch := strings.CutPrefix(ref, "refs/heads/")
	switch {
	case ref == "refs/heads/.invalid": // what HEAD says in a repository with reftable storage, for old readers
		g.head = "unknown: the repository uses reftable storage"
	case isBranch && branch != "":
		g.branch = &branch
	default:
		g.head = "at " + ref
	}
	return true
}

// ownName names a repository without an origin by its directory; all its worktrees have the name of the main one.
func (g gitDir) ownName(root string) string {
	if !g.linked {
		return filepath.Base(root)
	}
	base := filepath.Base(g.common)
	if strings.HasPrefix(base, ".") { // .git, or .bare beside its worktrees
		return filepath.Base(filepath.Dir(g.common))
	}
	return strings.TrimSuffix(base, ".git")
}

// look stamps a path whose change changes the facts.
func (c *repoCache) look(path string, link bool) os.FileInfo {
	stamp := takeStamp(path, link)
	c.seen = append(c.seen, stamp)
	if stamp.info != nil && !stamp.info.IsDir() && time.Since(stamp.info.ModTime()) <= gitSettleTime {
		c.young = true
	}
	return stamp.info
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// gitLine reads a file of one line; a longer file is none.
func gitLine(path string) (string, bool) {
	data, err := readRegular(path, maxGitPointer)
	text := strings.TrimRight(string(data), " \t\r\n")
	return text, err == nil && !strings.ContainsAny(text, "\n\x00")
}

// inside resolves a path that git wrote into a file of dir.
func inside(dir, path string) string {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

var objectID = regexp.MustCompile(`^(?i)(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// gitSection finds the two sections that are read, in git's two spellings; gitEntry a key with a value or alone.
var (
	gitSection = regexp.MustCompile(`^\s*\[\s*(?:((?i:core))|(?i:remote)(?:\s+"origin"|\.(?i:origin)))\s*\]`)
	gitEntry   = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$`)
)

// scanGitConfig takes remote.origin.url and core.bare out of a repository's config file, a line each as git itself
// writes them. Includes are not followed, and what it doesn't understand it leaves out: git will complain about that.
func scanGitConfig(text string) (origin string, bare bool) {
	inCore, inOrigin := false, false
	for line := range strings.Lines(strings.TrimPrefix(text, "\uFEFF")) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "[") {
			m := gitSection.FindStringSubmatch(line)
			inCore, inOrigin = m != nil && m[1] != "", m != nil && m[1] == ""
			if m == nil {
				continue
			}
			line = line[len(m[0]):] // an entry may stand behind the header
		}
		m := gitEntry.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		value := strings.TrimSpace(gitComment.ReplaceAllString(m[2], ""))
		if quoted, ok := strings.CutPrefix(value, `"`); ok {
			value = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(strings.TrimSuffix(quoted, `"`))
		}
		switch key := strings.ToLower(m[1]); {
		case inOrigin && key == "url" && (origin == "" || value == ""):
			origin = value // the first is the one that is fetched from; an empty one clears the list
		case inCore && key == "bare":
			bare = !strings.Contains(line, "=") ||
				slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(value))
		}
	}
	return origin, bare
}

// gitComment is a comment at a line's end. In quotes, where git takes the sign for itself, no address has one.
var gitComment = regexp.MustCompile(`\s*[#;].*$`)

// repoNameOf takes the last path element of a remote's address: https://host/org/app.git, git@host:org/app, ../app.
// Everything before it, credentials included, is dropped.
func repoNameOf(remote string) string {
	path := remote
	if _, rest, ok := strings.Cut(remote, "://"); ok {
		_, path, _ = strings.Cut(rest, "/")
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	} else if host, rest, ok := strings.Cut(remote, ":"); ok && len(host) > 1 && !strings.ContainsAny(host, `/\`) {
		path = rest // user@host:path; a single letter is a Windows drive
	}
	path = strings.TrimRight(path, `/\`)
	path = strings.TrimRight(strings.TrimSuffix(path, "/.git"), `/\`)
	if i := strings.LastIndexAny(path, `/\`); i >= 0 {
		path = path[i+1:]
	}
	name := strings.TrimSuffix(path, ".git")
	if name == "." || name == ".." || name == "~" || len(name) == 2 && name[1] == ':' {
		return ""
	}
	return name
}
