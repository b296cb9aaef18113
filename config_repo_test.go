package main

// config_repo_test.go holds what is read straight from .git against git itself and
// against repositories made by hand, and the cache against every way in which a
// branch changes.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const someCommit = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"

// TestRepoByHand builds what git would have written, so that it runs without git and covers what a new git won't write.
func TestRepoByHand(t *testing.T) {
	const plain = "[core]\n\tbare = false\n"
	repo := func(dir, head, config string) map[string]string {
		return map[string]string{dir + "/HEAD": head, dir + "/config": config, dir + "/objects/": "", dir + "/refs/": ""}
	}
	for _, tt := range []struct {
		rule  string
		files []map[string]string
		cwd   string
		want  string // root name branch head
	}{
		{"a branch with slashes", []map[string]string{repo("r/.git", "ref: refs/heads/a/b\n", plain)}, "r", "r r a/b -"},
		{"a deep directory", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", plain), {"r/a/b/c/": ""}}, "r/a/b/c", "r r m -"},
		{"the nearest repository", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", plain), repo("r/in/.git", "ref: refs/heads/n\n", plain)}, "r/in", "r/in in n -"},
		{"detached", []map[string]string{repo("r/.git", someCommit+"\n", plain)}, "r", "r r null detached at 1a2b3c4"},
		{"sha256", []map[string]string{repo("r/.git", someCommit+someCommit[:24], plain)}, "r", "r r null detached at 1a2b3c4"},
		{"on no branch", []map[string]string{repo("r/.git", "ref: refs/bisect/x\n", plain)}, "r", "r r null at refs/bisect/x"},
		{"reftable's stand-in is no branch", []map[string]string{repo("r/.git", "ref: refs/heads/.invalid\n", plain)}, "r", "r r null unknown: the repository uses reftable storage"},
		{"the origin's name", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", "[remote \"up\"]\nurl=x/no\n[Remote \"origin\"]\n\tURL = git@host:org/app.git # c\n")}, "r", "r app m -"},
		{"outside", []map[string]string{{"d/": ""}}, "d", "null null null -"},
		{"no such directory", nil, "none", "null null null -"},
		{"a bare repository", []map[string]string{repo("b.git", "ref: refs/heads/m\n", "[core]\nbare\n")}, "b.git", "null null null -"},
		{"a bare repository in a working tree", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", plain), repo("r/b.git", "ref: refs/heads/m\n", "[core]\nbare=true")}, "r/b.git/refs", "null null null -"},
		{"a .git that is bare", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", "[core] bare = yes")}, "r", "null null null -"},
		{"an empty .git directory is passed by", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", plain), {"r/in/.git/": ""}}, "r/in", "r r m -"},
		{"a HEAD of nonsense", []map[string]string{repo("r/.git", "\x00\xff nonsense", plain)}, "r", "null null null -"},
		{"a HEAD without end", []map[string]string{repo("r/.git", "ref: refs/heads/"+strings.Repeat("x", 1<<20), plain)}, "r", "null null null -"},
		{"a HEAD of a few letters", []map[string]string{repo("r/.git", "1a2", plain)}, "r", "null null null -"},
		{"a .git file of nonsense", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", plain), {"r/in/.git": "nonsense"}}, "r/in", "null null null -"},
		{"a .git file to nowhere", []map[string]string{{"r/.git": "gitdir: /none/such\n"}}, "r", "null null null -"},
		{"no objects", []map[string]string{{"r/.git/HEAD": "ref: refs/heads/m\n", "r/.git/refs/": ""}}, "r", "null null null -"},
		{"no config", []map[string]string{{"r/.git/HEAD": "ref: refs/heads/m\n", "r/.git/refs/": "", "r/.git/objects/": ""}}, "r", "r r m -"},
		{"a worktree has the main one's name", []map[string]string{repo("main/.git", "ref: refs/heads/m\n", "[core]\nbare=true"),
			{"wt/.git": "gitdir: ../main/.git/worktrees/wt\n", "main/.git/worktrees/wt/HEAD": "ref: refs/heads/w\n", "main/.git/worktrees/wt/commondir": "../..\n"}}, "wt", "wt main w -"},
		{"a worktree of a bare repository", []map[string]string{repo("app.git", "ref: refs/heads/m\n", "[core]\nbare=true"),
			{"wt/.git": "gitdir: ../app.git/worktrees/wt\n", "app.git/worktrees/wt/HEAD": "ref: refs/heads/w\n", "app.git/worktrees/wt/commondir": "../..\n"}}, "wt", "wt app w -"},
		{"a submodule", []map[string]string{repo("r/.git", "ref: refs/heads/m\n", plain), repo("r/.git/modules/lib", someCommit+"\n", "[remote \"origin\"]\nurl = ../thing\n"),
			{"r/lib/.git": "gitdir: ../.git/modules/lib\n"}}, "r/lib", "r/lib thing null detached at 1a2b3c4"},
	} {
		base, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, files := range tt.files {
			plant(t, base, files)
		}
		var cache repoCache
		cwd := filepath.Join(base, filepath.FromSlash(tt.cwd))
		want := tt.want
		if !strings.HasPrefix(want, "null") {
			want = filepath.Join(base, filepath.FromSlash(strings.Fields(want)[0])) + want[strings.Index(want, " "):]
		}
		if got := showRepo(readRepo(cwd)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", tt.rule, got, want)
		}
		if got := showRepo(cache.read(cwd)); got != want {
			t.Errorf("%s, by the cache: %s", tt.rule, got)
		}
	}
}

func TestRepoHeadThatIsALink(t *testing.T) {
	base, _ := filepath.EvalSymlinks(t.TempDir())
	plant(t, base, map[string]string{".git/refs/heads/old": someCommit, ".git/objects/": ""})
	if err := os.Symlink("refs/heads/old", filepath.Join(base, ".git", "HEAD")); err != nil {
		t.Skip(err)
	}
	if got := showRepo(readRepo(base)); got != base+" "+filepath.Base(base)+" old -" {
		t.Error(got)
	}
}

// TestRepoAsGitSeesIt compares with git itself.
func TestRepoAsGitSeesIt(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	base, _ := filepath.EvalSymlinks(t.TempDir())
	git := func(dir string, args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = filepath.Join(base, dir)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+base,
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "LC_ALL=C")
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	do := func(dir string, args ...string) {
		t.Helper()
		if out, err := git(dir, args...); err != nil {
			t.Fatalf("git %v: %s, %v", args, out, err)
		}
	}
	plant(t, base, map[string]string{"unborn/": "", "r/sub/deep/": "", "lib/": "", "out/": "", "proj/": ""})
	do("unborn", "init", "-q")
	do("unborn", "symbolic-ref", "HEAD", "refs/heads/not/yet")
	for _, dir := range []string{"lib", "r"} {
		do(dir, "init", "-q")
		do(dir, "symbolic-ref", "HEAD", "refs/heads/main")
		do(dir, "commit", "-q", "--allow-empty", "-m", "x")
	}
	do("r", "remote", "add", "origin", "https://user:secret@example.com/org/The%20App.git/")
	do("r", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", filepath.Join(base, "lib"), "lib")
	do("r", "commit", "-q", "-m", "y")
	do("r", "worktree", "add", "-q", "-b", "feature/x", "../wt")
	do("r", "worktree", "add", "-q", "--detach", "../wt2")
	do("r", "pack-refs", "--all")
	do(".", "clone", "-q", "--bare", "r", "bare.git")
	do(".", "clone", "-q", "--bare", "lib", "proj/.bare")
	plant(t, base, map[string]string{"proj/.git": "gitdir: ./.bare\n", "broken/.git": "gitdir: nowhere\n", "hollow/.git/": ""})
	do("proj", "worktree", "add", "-q", "tree", "main")
	do(".", "init", "-q", "--separate-git-dir", "elsewhere", "apart")
	for _, l := range [][2]string{{"r/sub", "link"}, {"bare.git", "blink"}} {
		if err := os.Symlink(filepath.Join(base, l[0]), filepath.Join(base, l[1])); err != nil {
			t.Skip(err)
		}
	}
	names := map[string]string{"r": "The App", "wt": "The App", "r/lib": "lib", "proj/tree": "lib", "apart": "apart", "unborn": "unborn"}
	for _, dir := range []string{"r", "r/sub/deep", "link", "link/deep", "wt", "wt2", "r/lib", "lib", "unborn", "out", "bare.git", "bare.git/refs", "blink", "proj", "proj/tree", "broken", "hollow", "apart"} {
		got := readRepo(filepath.Join(base, filepath.FromSlash(dir)))
		root, err := git(dir, "rev-parse", "--show-toplevel")
		if err != nil {
			if got.Root != nil {
				t.Errorf("%s: git knows no working tree, we say %s", dir, showRepo(got))
			}
			continue
		}
		branch, err := git(dir, "symbolic-ref", "-q", "--short", "HEAD")
		head := "-"
		if err != nil {
			commit, _ := git(dir, "rev-parse", "HEAD")
			branch, head = "null", "detached at "+commit[:7]
		}
		if got.Root == nil {
			t.Errorf("%s: git says %s", dir, root)
			continue
		}
		name := names[dir]
		if name == "" {
			name = *got.Name
		}
		if want := filepath.FromSlash(root) + " " + name + " " + branch + " " + head; showRepo(got) != want {
			t.Errorf("%s:\n got %s\nwant %s", dir, showRepo(got), want)
		}
	}
	if got := readRepo(filepath.Join(base, "out")); got.Root != nil && strings.HasPrefix(*got.Root, base) {
		t.Errorf("out: %s", showRepo(got))
	}
}

// TestRepoCacheSeesEveryChange makes one change after the other; the facts must follow, also within one clock tick and
// with files of the same size.
func TestRepoCacheSeesEveryChange(t *testing.T) {
	base, _ := filepath.EvalSymlinks(t.TempDir())
	plant(t, base, map[string]string{"r/.git/HEAD": "ref: refs/heads/a", "r/.git/config": "", "r/.git/refs/": "", "r/.git/objects/": "", "r/in/": ""})
	cwd := filepath.Join(base, "r", "in")
	var cache repoCache
	for i, change := range []struct {
		files map[string]string
		gone  string
		want  string // name branch, or null
	}{
		{nil, "", "r a"},
		{map[string]string{"r/.git/HEAD": "ref: refs/heads/b"}, "", "r b"},
		{map[string]string{"r/.git/HEAD": "ref: refs/heads/c"}, "", "r c"},
		{map[string]string{"r/.git/config": "[remote \"origin\"]\nurl=x/app"}, "", "app c"},
		{nil, "r/.git/config", "r c"},
		{map[string]string{"r/in/.git/HEAD": "ref: refs/heads/n", "r/in/.git/refs/": "", "r/in/.git/objects/": ""}, "", "in n"},
		{nil, "r/in/.git", "r c"},
		{nil, "r/.git/HEAD", "null"},
		{map[string]string{"r/.git/HEAD": "ref: refs/heads/d"}, "", "r d"},
		{nil, "r/in", "null"},
		{map[string]string{"r/in/": ""}, "", "r d"},
	} {
		for _, settled := range []bool{false, true} {
			if settled {
				settle(t, base)
			} else {
				plant(t, base, change.files)
				if change.gone != "" {
					if err := os.RemoveAll(filepath.Join(base, change.gone)); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := "null"
			if f := cache.read(cwd); f.Root != nil {
				got = *f.Name + " " + *f.Branch
			}
			if got != change.want {
				t.Errorf("change %d: got %s, want %s", i, got, change.want)
			}
		}
		if !cache.fresh(cwd) {
			t.Errorf("change %d: the cache reads again what stands still", i)
		}
		if cache.fresh(base) {
			t.Errorf("change %d: the cache takes one directory for another", i)
		}
	}
}

func TestRepoCacheFollowsALinkThatIsTurned(t *testing.T) {
	base, _ := filepath.EvalSymlinks(t.TempDir())
	for _, r := range []string{"a", "b"} {
		plant(t, base, map[string]string{r + "/.git/HEAD": "ref: refs/heads/" + r, r + "/.git/refs/": "", r + "/.git/objects/": ""})
	}
	settle(t, base)
	var cache repoCache
	link := filepath.Join(base, "link")
	for _, r := range []string{"a", "b"} {
		os.Remove(link)
		if err := os.Symlink(filepath.Join(base, r), link); err != nil {
			t.Skip(err)
		}
		if f := cache.read(link); f.Name == nil || *f.Name != r || !cache.fresh(link) {
			t.Errorf("%s: %s", r, showRepo(f))
		}
	}
}

func TestRepoName(t *testing.T) {
	for remote, want := range map[string]string{
		"https://github.com/org/app.git": "app", "https://github.com/org/app": "app", "https://u:p@host/org/app.git/": "app", "ssh://git@host:22/~me/app.git": "app",
		"git@github.com:org/app.git": "app", "git@host:app": "app", "host:/srv/app.git/": "app", "/srv/git/app.git": "app", "../app": "app", "/home/me/app/.git": "app",
		"file:///srv/app.git": "app", `C:\src\app.git`: "app", "C:/src/app": "app", "https://dev.azure.com/o/My%20P/_git/My%20App": "My App", "https://host/100%": "100%",
		"https://token@host": "", "https://host/": "", "": "", "..": "", ".": "", "/": "", "~": "", `C:\`: "", "app": "app", "app.git": "app", "https://h/a.git.git": "a.git",
	} {
		if got := repoNameOf(remote); got != want {
			t.Errorf("%q: got %q, want %q", remote, got, want)
		}
	}
}

func TestGitConfig(t *testing.T) {
	for _, tt := range []struct {
		text, origin string
		bare         bool
	}{
		{"[core]\r\n\tbare = true\r\n[remote \"origin\"]\r\n\turl = a\r\n", "a", true},
		{"[remote \"origin\"] url = a ; c\n url = b", "a", false},
		{"[remote \"origin\"]\nurl = a\nurl =\nurl = c", "c", false},
		{"[remote.origin]\nurl = a", "a", false},
		{"[remote \"Origin\"]\nurl = a", "", false},
		{"[remote \"origin\"]\nurl = \"C:\\\\src\\\\app\" # e", `C:\src\app`, false},
		{"# [remote \"origin\"]\n;url = x\n[a \"]\"]\nurl = y\n[remote \"origin\"]\n!nonsense\npushurl = z\nurl = a", "a", false},
		{"[remote \"origin\nurl = a", "", false},
		{"[core]\nbare\nbare = off", "", false},
		{"[core]\nbare", "", true},
		{"\uFEFF[core]\nbare = on", "", true},
		{"[remote \"origin\"]\nurl = a\\", "a", false},
	} {
		if origin, bare := scanGitConfig(tt.text); strings.TrimSuffix(origin, `\`) != tt.origin || bare != tt.bare {
			t.Errorf("%q: %q, %v", tt.text, origin, bare)
		}
	}
}

// BenchmarkRepoFacts: what every turn pays (cached), and what one pays after a change (read).
func BenchmarkRepoFacts(b *testing.B) {
	base, _ := filepath.EvalSymlinks(b.TempDir())
	plant(b, base, map[string]string{"r/.git/HEAD": "ref: refs/heads/a", "r/.git/config": "[remote \"origin\"]\nurl = x/app", "r/.git/refs/": "", "r/.git/objects/": "", "r/a/b/c/": ""})
	settle(b, base)
	cwd := filepath.Join(base, "r", "a", "b", "c")
	b.Run("cached", func(b *testing.B) {
		var cache repoCache
		for b.Loop() {
			cache.read(cwd)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			readRepo(cwd)
		}
	})
}

// plant writes files in place; a name that ends in / is a directory.
func plant(t testing.TB, base string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(base, filepath.FromSlash(name))
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		err := os.MkdirAll(dir, 0o700)
		if err == nil && dir != path {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// settle makes every file under base old enough for the cache to trust its stamp.
func settle(t testing.TB, base string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	err := filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type()&os.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func showRepo(f repoFacts) string {
	show := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	if f.Head == "" {
		f.Head = "-"
	}
	return show(f.Root) + " " + show(f.Name) + " " + show(f.Branch) + " " + f.Head
}
