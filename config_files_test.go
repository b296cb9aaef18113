package main

// config_files_test.go holds what is read of files that others write. Agent files: what front matter is understood,
// what is refused with which words, and where a file is looked for (FR-16). The facts of a repository, straight from
// .git: against repositories made by hand and git itself, and the cache against every way in which a branch changes.
// The summaries of the ancestor.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func inFile(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"agent.md": text})
	return filepath.Join(dir, "agent.md")
}

func TestAgentFileFrontMatter(t *testing.T) {
	for _, tt := range []struct {
		rule, text string
		want       agentFile
	}{
		{"without front matter all is prompt", "Review the code.\n\n- a: b\n",
			agentFile{Body: "Review the code.\n\n- a: b"}},
		{"as Claude Code writes them", "---\nname: code-reviewer\ndescription: Use it: <e>user: \"hi\"</e>\n" +
			"tools: Read, Bash(git log, git diff)\nmodel: gpt-5.6-codex\ncolor: blue\n---\n\nYou review code.\n",
			agentFile{Name: "code-reviewer", Model: "gpt-5.6-codex", Body: "You review code."}},
		{"a Claude model is not applied and says so", "---\nmodel: sonnet\n---\nx",
			agentFile{ModelNote: `the agent file's model "sonnet" is a Claude model and was not applied`, Body: "x"}},
		{"inherit means none", "---\nmodel: inherit\n---\nx", agentFile{Body: "x"}},
		{"single quotes", "---\nname: 'it''s' # really\n---\nx", agentFile{Name: "it's", Body: "x"}},
		{"double quotes", "---\nname: \"a\\\"b\\u0041\\t\\\\\" \n---\nx", agentFile{Name: "a\"bA\t\\", Body: "x"}},
		{"what isn't used may be any YAML",
			"---\ndescription: |\n  one: two\n\n  model: evil\ntools:\n- R\nhooks:\n  name: evil\n%%%\nname: n\n---\nx",
			agentFile{Name: "n", Body: "x"}},
		{"null", "---\nname:\nmodel: ~\neffort: null # none\n---\nx", agentFile{Body: "x"}},
		{"effort, and a model's tag", "---\neffort: high\nmodel: ollama:llama3\n---\nx",
			agentFile{Effort: "high", Model: "ollama:llama3", Body: "x"}},
		{"comments, blank lines, quoted keys", "---\n# c\n\n\"name\": n#1 # c\n  # c\n'model' : m\n---\nx",
			agentFile{Name: "n#1", Model: "m", Body: "x"}},
		{"rules in a text are no front matter", "---\nOnce upon a time.\n---\nx",
			agentFile{Body: "---\nOnce upon a time.\n---\nx"}},
		{"a rule at the top", "---\n\nNote: this goes on.\n", agentFile{Body: "---\n\nNote: this goes on."}},
		{"empty front matter", "---\n---\nx", agentFile{Body: "x"}},
		{"the body keeps its own rules and indentation", "---\nname: n\n---  \n\n  a\n---\nb\n\n",
			agentFile{Name: "n", Body: "  a\n---\nb"}},
	} {
		for _, eol := range []string{"\n", "\r\n"} {
			got, err := readAgentFile(inFile(t, "\uFEFF"+strings.ReplaceAll(tt.text, "\n", eol)), "")
			got.Source = ""
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s (%q):\n got %+v, %v\nwant %+v", tt.rule, eol, got, err, tt.want)
			}
		}
	}
}

func TestAgentFileRefusals(t *testing.T) {
	for front, want := range map[string]string{
		"name: a: b":               `line 2: name: it has a ": " in it: quote the value`,
		"color: x\nname: \"a\" b":  "line 3: name: text follows the closing quote",
		"name: 'a\nmodel: m":       "line 2: name: its quote is never closed",
		"x: y\nname: \"a\\":        "line 3: name: its quote is never closed",
		"name: \"\\q\"":            "line 2: name: its quotes hold an escape",
		"model: *m":                `line 2: model: a value that begins with "*" isn't read`,
		"model: [a]":               `line 2: model: a value that begins with "["`,
		"name: - x":                `line 2: name: a value that begins with "-"`,
		"name: |\n  a":             `line 2: name: a value that begins with "|"`,
		"model:\n  a: b":           "line 3: model: its value isn't on one line",
		"name: x\n  y":             "line 3: name: its value isn't on one line",
		"color: red\nname:x":       "line 3: name:x: front matter isn't read in this form",
		"  name: n\nmodel: m":      "line 2: name: n: front matter isn't read in this form",
		"{name: n}":                "line 2: {name: n}: front matter isn't read in this form",
		"name: n\nname: m":         "line 3: name: it is given twice, first on line 2",
		"effort: very high":        `line 2: effort "very high" is not one word`,
		"name: n\n---\n \n\x00end": "has no prompt",
	} {
		text, only := strings.CutSuffix("---\n"+front, "\x00end")
		if !only {
			text += "\n---\nx"
		}
		wantRefused(t, inFile(t, text), "", want)
	}
	wantRefused(t, inFile(t, "---\nname: n\nx"), "", "front matter that can't be read: it is never closed")
	wantRefused(t, inFile(t, " \n"), "", "is empty")

	// Where a file is looked for, and what is none.
	base := t.TempDir()
	t.Setenv("HOME", base)
	t.Setenv("USERPROFILE", base)
	plant(t, base, map[string]string{"a.md": "body", "full.md": strings.Repeat("x", maxAgentFile),
		"big.md": strings.Repeat("x", maxAgentFile+1), "latin.md": "one\ntw\xf6", "dir/": ""})
	for _, path := range []string{"a.md", "./dir/../a.md", "~/a.md", filepath.Join(base, "a.md"), "full.md"} {
		if a, err := readAgentFile(path, base); err != nil || filepath.Dir(a.Source) != base {
			t.Errorf("%s: %+v, %v", path, a.Source, err)
		}
	}
	for path, want := range map[string]string{
		"": "names no file", "none.md": filepath.Join(base, "none.md") + ") does not exist", "a.md/b.md": "",
		"dir":    "is a directory",
		"big.md": "is longer than 1024 KiB: shorten it", "latin.md": "is not UTF-8 text (line 2)",
		"nul\x00.md": "invalid argument",
		os.DevNull:   "", "~/none/x.md": "does not exist",
	} {
		wantRefused(t, path, base, want)
	}
	locked := filepath.Join(base, "a.md")
	wantNil(t, os.Chmod(locked, 0))
	if f, err := os.Open(locked); err == nil { // this user may read everything
		f.Close()
		return
	}
	wantRefused(t, locked, "", "can't be read: permission denied")
}

// wantRefused wants an error of an agent file that names the file.
func wantRefused(t *testing.T, path, base, want string) {
	t.Helper()
	var refused *agentFileError
	_, err := readAgentFile(path, base)
	quoted := fmt.Sprintf("%q", path)
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), quoted) {
		t.Errorf("%q:\n got %v\nwant %s", path, err, want)
	}
}

func TestAgentFileWords(t *testing.T) {
	for model, foreign := range map[string]bool{"sonnet": true, "Opus": true, "haiku": true, "opusplan": true,
		"sonnet[1m]": true,
		"claude":     true, "claude-sonnet-4-5": true, "anthropic/claude-3": true, "us.anthropic.claude-opus-4:0": true,
		"": false, "gpt-5.6": false, "o3": false, "opus-mt": false, "my-claude": false, "sonnet-like/llama": false} {
		if note := foreignModel(model); (note != "") != foreign {
			t.Errorf("%q: %q", model, note)
		}
	}
	for name, want := range map[string]string{
		"01a202fb-3fc7-7756-b4c6-d2c5d9cecbb8": "",
		"code-reviewer":                        "code-reviewer", "Code Reviewer": "Code-Reviewer", " _x_ ": "x",
		"../../etc":    "etc",
		"a / b":        "a-b",
		"Ann's helper": "Anns-helper", "": "", "日本": "", "-_-": "", "größe": "gr-e", "7": "7",
		strings.Repeat("ab", 50): strings.Repeat("ab", 30), strings.Repeat("a", 59) + "-b": strings.Repeat("a", 59),
	} {
		if got := impliedIdentity(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// FuzzFrontMatter: no input makes it panic or loop, the body is the document's end, and a quoted name comes out as it
// went in.
func FuzzFrontMatter(f *testing.F) {
	for _, s := range []string{"---\nname: a\n---\nbody", "---\nname: 'a\n  b'\n---\n", "---\n{a}\n---\n",
		"---\nname:x\n---\n", "---", "---\n\n", "---\n\ta: b\n---\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc := strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\r", "")
		if a, err := parseAgentFile(doc); err == nil && !strings.HasSuffix(strings.TrimRight(doc, " \t\n"), a.Body) {
			t.Errorf("body %q", a.Body)
		}
		name, _ := json.Marshal(strings.ToValidUTF8(s, "?"))
		want := strings.TrimSpace(strings.ToValidUTF8(s, "?"))
		if a, err := parseAgentFile("---\nname: " + string(name) + "\n---\nbody"); err != nil || a.Name != want ||
			a.Body != "body" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	})
}

// plant writes files in place. A name that ends in / is a directory; one that ends in @ is a git directory with that
// HEAD, and with a config that says nothing unless there is a name for it.
func plant(t testing.TB, base string, files map[string]string) {
	t.Helper()
	all := map[string]string{}
	for name, text := range files {
		if dir, ok := strings.CutSuffix(name, "@"); ok {
			maps.Copy(all, map[string]string{dir + "/HEAD": text, dir + "/config": "[core]\n\tbare = false\n",
				dir + "/objects/": "", dir + "/refs/": ""})
		}
	}
	for name, text := range files {
		if !strings.HasSuffix(name, "@") {
			all[name] = text
		}
	}
	for name, text := range all {
		path := filepath.Join(base, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			wantNil(t, os.MkdirAll(path, 0o700))
			continue
		}
		wantNil(t, os.MkdirAll(filepath.Dir(path), 0o700))
		wantNil(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// settle makes every file under base old enough for the cache to trust its stamp.
func settle(t testing.TB, base string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	wantNil(t, filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type()&os.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(path, old, old)
	}))
}

// showRepo writes root, name, branch and head, "null" for what is not known and "-" for no head.
func showRepo(f repoFacts) string {
	parts := []string{"null", "null", "null"}
	for i, s := range []*string{f.Root, f.Name, f.Branch} {
		if s != nil {
			parts[i] = *s
		}
	}
	if f.Head == "" {
		f.Head = "-"
	}
	return strings.Join(append(parts, f.Head), " ")
}

func realTempDir(t testing.TB) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	wantNil(t, err)
	return base
}

const (
	someCommit = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
	noRepo     = "null null null -"
)

// TestRepoByHand builds what git would have written, so that it runs without git and covers what a new git won't write.
func TestRepoByHand(t *testing.T) {
	type tree map[string]string
	const m, bare = "ref: refs/heads/m\n", "[core]\nbare = yes\n"
	for _, tt := range []struct {
		rule, cwd, want string // root name branch head
		files           tree
	}{
		{"a branch with slashes", "r", "r r a/b -", tree{"r/.git@": "ref: refs/heads/a/b\n"}},
		{"no config", "r", "r r m -", tree{"r/.git/HEAD": m, "r/.git/refs/": "", "r/.git/objects/": ""}},
		{"the nearest repository", "r/in", "r/in in n -", tree{"r/.git@": m, "r/in/.git@": "ref: refs/heads/n\n"}},
		{"detached", "r", "r r null detached at 1a2b3c4", tree{"r/.git@": someCommit + "\n"}},
		{"sha256", "r", "r r null detached at 1a2b3c4", tree{"r/.git@": someCommit + someCommit[:24]}},
		{"on no branch", "r", "r r null at refs/bisect/x", tree{"r/.git@": "ref: refs/bisect/x\n"}},
		{"a ref that is none", "r", noRepo, tree{"r/.git@": "ref: heads/x\n"}},
		{"reftable's stand-in is no branch", "r", "r r null unknown: the repository uses reftable storage",
			tree{"r/.git@": "ref: refs/heads/.invalid\n"}},
		{"the origin's name", "r", "r app m -", tree{"r/.git@": m,
			"r/.git/config": "[remote \"up\"]\nurl=x/no\n[Remote \"origin\"]\n\tURL = git@host:org/app.git # c\n"}},
		{"no such directory", "none", noRepo, nil},
		{"a bare repository in a working tree", "r/b.git/refs", noRepo,
			tree{"r/.git@": m, "r/b.git@": m, "r/b.git/config": bare}},
		{"a .git that is bare", "r", noRepo, tree{"r/.git@": m, "r/.git/config": "[core] bare = yes"}},
		{"an empty .git directory is passed by", "r/in", "r r m -", tree{"r/.git@": m, "r/in/.git/": ""}},
		{"a HEAD of nonsense", "r", noRepo, tree{"r/.git@": "\x00\xff nonsense"}},
		{"a HEAD without end", "r", noRepo, tree{"r/.git@": "ref: refs/heads/" + strings.Repeat("x", 1<<20)}},
		{"a HEAD of a few letters", "r", noRepo, tree{"r/.git@": "1a2"}},
		{"a .git file of nonsense", "r/in", noRepo, tree{"r/.git@": m, "r/in/.git": "nonsense"}},
		{"a .git file to nowhere", "r", noRepo, tree{"r/.git": "gitdir: /none/such\n"}},
		{"no objects", "r", noRepo, tree{"r/.git/HEAD": m, "r/.git/refs/": ""}},
		{"a worktree of a bare repository", "wt", "wt app w -", tree{"app.git@": m, "app.git/config": bare,
			"wt/.git": "gitdir: ../app.git/worktrees/wt\n", "app.git/worktrees/wt/commondir": "../..\n",
			"app.git/worktrees/wt/HEAD": "ref: refs/heads/w\n"}},
		{"a worktree has the main one's name", "wt", "wt main w -", tree{"main/.git@": m,
			"wt/.git": "gitdir: ../main/.git/worktrees/wt\n", "main/.git/worktrees/wt/commondir": "../..\n",
			"main/.git/worktrees/wt/HEAD": "ref: refs/heads/w\n"}},
		{"a submodule with an origin", "r/lib", "r/lib thing m -",
			tree{"r/.git@": m, "r/lib/.git": "gitdir: ../.git/modules/lib\n",
				"r/.git/modules/lib@": m, "r/.git/modules/lib/config": "[remote \"origin\"]\nurl = ../thing\n"}},
	} {
		base := realTempDir(t)
		plant(t, base, tt.files)
		var cache repoCache
		cwd, want := filepath.Join(base, filepath.FromSlash(tt.cwd)), tt.want
		if want != noRepo {
			root, rest, _ := strings.Cut(want, " ")
			want = filepath.Join(base, filepath.FromSlash(root)) + " " + rest
		}
		if got, cached := showRepo(readRepo(cwd)), showRepo(cache.read(cwd)); got != want || cached != want {
			t.Errorf("%s:\n got %s\nwant %s\nby the cache %s", tt.rule, got, want, cached)
		}
	}
}

// TestRepoAsGitSeesIt compares with git itself.
func TestRepoAsGitSeesIt(t *testing.T) {
	t.Parallel()
	needGit(t)
	base := realTempDir(t)
	git := func(dir string, args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = filepath.Join(base, dir)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_CEILING_DIRECTORIES="+base,
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "LC_ALL=C")
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	plant(t, base, map[string]string{"r/sub/deep/": "", "lib/": "", "out/": "", "proj/": "", "hollow/.git/": "",
		"broken/.git": "gitdir: nowhere\n", "proj/.git": "gitdir: ./.bare\n"})
	for _, line := range []string{
		"lib init -q", "lib symbolic-ref HEAD refs/heads/main", "lib commit -q --allow-empty -m x",
		"r init -q", "r symbolic-ref HEAD refs/heads/main", "r commit -q --allow-empty -m x",
		"r remote add origin https://user:secret@example.com/org/The%20App.git/",
		"r -c protocol.file.allow=always submodule --quiet add " + filepath.ToSlash(base) + "/lib lib",
		"r commit -q -m y",
		"r worktree add -q -b feature/x ../wt", "r worktree add -q --detach ../wt2", "r pack-refs --all",
		". clone -q --bare r bare.git", ". clone -q --bare lib proj/.bare", "proj worktree add -q tree main",
		". init -q --separate-git-dir elsewhere apart", "apart symbolic-ref HEAD refs/heads/not/yet",
	} {
		words := strings.Fields(line)
		if out, err := git(words[0], words[1:]...); err != nil {
			t.Fatalf("git %s: %s, %v", line, out, err)
		}
	}
	for link, to := range map[string]string{"link": "r/sub", "blink": "bare.git"} {
		symlink(t, filepath.Join(base, to), filepath.Join(base, link))
	}
	for dir, name := range map[string]string{"r": "The App", "r/sub/deep": "The App", "link": "The App",
		"link/deep": "The App",
		"wt":        "The App", "wt2": "The App", "r/lib": "lib", "lib": "lib", "proj/tree": "lib", "apart": "apart",
		"out":      "",
		"bare.git": "", "bare.git/refs": "", "blink": "", "proj": "", "broken": "", "hollow": ""} {
		got := showRepo(readRepo(filepath.Join(base, filepath.FromSlash(dir))))
		root, err := git(dir, "rev-parse", "--show-toplevel")
		if err != nil {
			if name != "" || strings.HasPrefix(got, base) {
				t.Errorf("%s: git knows no working tree, we say %s", dir, got)
			}
			continue
		}
		branch, err := git(dir, "symbolic-ref", "-q", "--short", "HEAD")
		head := "-"
		if err != nil {
			commit, _ := git(dir, "rev-parse", "HEAD")
			branch, head = "null", "detached at "+commit[:7]
		}
		if want := filepath.FromSlash(root) + " " + name + " " + branch + " " + head; got != want {
			t.Errorf("%s:\n got %s\nwant %s", dir, got, want)
		}
	}
}

// One change after the other: the facts must follow, also within one clock tick and with files of the same size.
func TestRepoCacheSeesEveryChange(t *testing.T) {
	base := realTempDir(t)
	plant(t, base, map[string]string{"r/.git@": "ref: refs/heads/a", "r/in/": ""})
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
		{map[string]string{"r/in/.git@": "ref: refs/heads/n"}, "", "in n"},
		{nil, "r/in/.git", "r c"},
		{nil, "r/.git/HEAD", "null"},
		{map[string]string{"r/.git/HEAD": "ref: refs/heads/d"}, "", "r d"},
		{nil, "r/in", "null"},
		{map[string]string{"r/in/": ""}, "", "r d"},
	} {
		plant(t, base, change.files)
		if change.gone != "" {
			wantNil(t, os.RemoveAll(filepath.Join(base, change.gone)))
		}
		for _, settled := range []bool{false, true} {
			if settled {
				settle(t, base)
			}
			got := "null"
			if f := cache.read(cwd); f.Root != nil {
				got = *f.Name + " " + *f.Branch
			}
			if got != change.want {
				t.Errorf("change %d: got %s, want %s", i, got, change.want)
			}
		}
		if !cache.fresh(cwd) || cache.fresh(base) {
			t.Errorf("change %d: the cache reads again what stands still, or takes one directory for another", i)
		}
	}
}

// A HEAD that is a link names the branch, and the cache follows a link to a directory that is turned.
func TestRepoOfLinks(t *testing.T) {
	base := realTempDir(t)
	plant(t, base, map[string]string{"a/.git@": "ref: refs/heads/a", "b/.git@": "ref: refs/heads/b",
		"c/.git/objects/": "", "c/.git/refs/heads/old": someCommit})
	settle(t, base)
	symlink(t, "refs/heads/old", filepath.Join(base, "c", ".git", "HEAD"))
	var cache repoCache
	link := filepath.Join(base, "link")
	for dir, branch := range map[string]string{"a": "a", "b": "b", "c": "old"} {
		_ = os.Remove(link) // of the round before
		symlink(t, filepath.Join(base, dir), link)
		want := strings.Join([]string{filepath.Join(base, dir), dir, branch, "-"}, " ")
		if got := showRepo(cache.read(link)); got != want ||
			cache.fresh(link) != (dir != "c") { // c's HEAD is too young
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}

func TestRepoOrigin(t *testing.T) {
	for remote, want := range map[string]string{
		"https://github.com/org/app.git": "app", "https://u:p@host/org/app.git/": "app",
		"ssh://git@host:22/~me/app":  "app",
		"git@github.com:org/app.git": "app", "git@host:app": "app", "host:/srv/app.git/": "app",
		"/srv/git/app.git": "app",
		"../app":           "app", "/home/me/app/.git": "app", `C:\src\app.git`: "app", "C:/src/app": "app",
		"app.git": "app",
		"https://dev.azure.com/o/My%20P/_git/My%20App": "My App", "https://host/100%": "100%",
		"https://h/a.git.git": "a.git",
		"https://token@host":  "", "https://host/": "", "": "", "..": "", ".": "", "/": "", "~": "", `C:\`: "",
	} {
		if got := repoNameOf(remote); got != want {
			t.Errorf("%q: got %q, want %q", remote, got, want)
		}
	}
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
		{"# [remote \"origin\"]\n;url = x\n[a \"]\"]\nurl = y\n[remote \"origin\"]\n!nonsense\npushurl = z\nurl = a",
			"a", false},
		{"[remote \"origin\nurl = a", "", false},
		{"[core]\nbare\nbare = off", "", false},
		{"\uFEFF[core]\nbare", "", true},
		{"[remote \"origin\"]\nurl = a\\", "a", false},
	} {
		if origin, bare := scanGitConfig(tt.text); strings.TrimSuffix(origin, `\`) != tt.origin || bare != tt.bare {
			t.Errorf("%q: %q, %v", tt.text, origin, bare)
		}
	}
}

// The ancestor's sessions are found by their threads and ids, wherever it wrote summaries, and through a link; what is
// broken hides nothing else.
func TestAncestorsSessions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codex-sessions [old]")
	d := directories{ancestorRoot: dir}
	if runtime.GOOS != "windows" { // where not everybody may make links
		d.ancestorRoot += " link"
		wantNil(t, os.Symlink(dir, d.ancestorRoot))
	}
	thread := func(i int) string { return "01a2041b-7e8a-7bcd-9dd6-ccc4e6d65dd" + strconv.Itoa(i) }
	want(t, strconv.Itoa(len(d.oldSessions())), "0")
	write := func(name, text string, age int) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		wantNil(t, os.MkdirAll(filepath.Dir(path), 0o700))
		wantNil(t, os.WriteFile(path, []byte(text), 0o600))
		wantNil(t, os.Chtimes(path, time.Time{}, time.Unix(int64(2000-age), 0)))
	}
	write(thread(0)+"/summary.md", "about 0\n", 1)
	write("arch/"+thread(1)+"/summary.md", "about 1", 2)
	write(thread(1)+"/summary.md", "older", 9)
	for _, name := range []string{"arch/no-thread/summary.md", "arch/" + thread(6) + "/notes.md", "arch/summary.md"} {
		write(name, "x", 0)
	}
	write("arch/"+thread(7)+"/summary.md", "", 0)
	write("arch/"+thread(8)+"/summary.md", strings.Repeat("x", maxSummaryBytes+1), 0)
	wantNil(t, os.MkdirAll(filepath.Join(dir, "arch", thread(9), "summary.md"), 0o700))
	write("registry.json", `{"version":1,"sessions":[{"thread_id":5},{"thread_id":"../x","codex_id":"bad"},7,
		{"codex_id":"c0","thread_id":"`+thread(0)+`","identity":"flat","last_active":"1970-01-01T00:00:01Z"},
		{"codex_id":"c2","thread_id":"`+thread(2)+`","identity":"../up","cwd":"/w","last_active":"2026-02-17T10:45:00Z"
		},
		{"codex_id":"c1","thread_id":"`+thread(1)+`","last_active":8}]}`, 0)
	var all []string
	for _, s := range d.oldSessions() {
		all = append(all, strings.Join([]string{s.Thread[35:], s.CodexID, s.Identity, s.Cwd, s.text()}, " "))
	}
	want(t, strings.Join(all, "\n"), "1 c1 arch  about 1\n0 c0 flat  about 0\n2 c2  /w ")
	want(t, d.findOldSession("c1").text(), "about 1")
	want(t, d.findOldSession(thread(0)).CodexID, "c0")
	want(t, d.findOldSession("").Thread+d.findOldSession("bad").Thread+d.findOldSession("arch").Thread, "")
	write("registry.json", `{"sessions":[{"codex_id":"c0`, 0)
	want(t, strconv.Itoa(len(d.oldSessions())), "2")
}
