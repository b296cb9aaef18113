package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// treeRig is a repository of one commit and the worktrees of a team's agents, without their sessions.
type treeRig struct {
	t     *testing.T
	repo  string
	trees *worktrees
}

func newTreeRig(t *testing.T) *treeRig {
	needGit(t)
	t.Parallel()
	r := &treeRig{t: t, repo: filepath.Join(t.TempDir(), "repo")}
	wantNil(t, os.Mkdir(r.repo, 0o755))
	r.git(r.repo, "init", "-q", "-b", "main")
	r.write("file", "one\n")
	r.write(".gitignore", "*.o\n")
	r.git(r.repo, "add", ".")
	r.git(r.repo, "commit", "-q", "-m", "one")
	r.trees = r.team("default")
	return r
}

// team makes the worktrees of another team.
func (r *treeRig) team(name string) *worktrees {
	cfg := defaultConfig()
	cfg.team, cfg.sessionsRoot, cfg.teamsRoot = name, r.t.TempDir(), r.t.TempDir()
	h, audit := newProxyHub(cfg, quietLog(), nil)
	r.t.Cleanup(audit.close)
	return h.trees
}

// git runs git as its user does, and returns what git says.
func (r *treeRig) git(dir string, args ...string) string {
	r.t.Helper()
	out, err := gitText(r.t.Context(), dir, append([]string{"-c", "user.name=u", "-c", "user.email=u@h", "-c",
		"protocol.file.allow=always"}, args...)...)
	if err != nil {
		r.t.Fatalf("git %q: %v", args, err)
	}
	return out
}

func (r *treeRig) write(name, text string) {
	r.t.Helper()
	wantNil(r.t, os.WriteFile(filepath.Join(r.repo, name), []byte(text), 0o644))
}

// make makes the worktree of an agent that is closed at once.
func (r *treeRig) make(trees *worktrees, identity, branch string) (record, *rpcError) {
	r.t.Helper()
	p := &place{rec: record{AgentID: randomAgentID(), Identity: identity, Team: trees.cfg.team}}
	p.rec.CWD = r.repo
	err := trees.place(&session{agentID: p.rec.AgentID, ended: make(chan struct{})}, p, branch)
	p.rec.Status = statusClosed
	if err == nil {
		trees.ledger.save(&p.rec)
	}
	return p.rec, err
}

// branches are those of the repository, but for main.
func (r *treeRig) branches() string {
	return strings.Join(strings.Fields(strings.Replace(r.git(r.repo, "branch", "--format=%(refname:short)"), "main\n",
		"", 1)), " ")
}

// Only a worktree in which nothing was done goes, and only what was made for the agent.
func TestWorktreeEnds(t *testing.T) {
	const removed, changed = "removed", "1 changed, 0 new"
	for _, tt := range []struct {
		name, branch string
		do           func(r *treeRig, path string)
		want, left   string // left: the branches after it
	}{
		{"nothing", "", func(*treeRig, string) {}, removed, ""},
		{"an ignored file", "", func(r *treeRig, path string) {
			r.git(path, "config", "core.excludesFile", filepath.Join(path, ".gitignore"))
			wantNil(r.t, os.WriteFile(filepath.Join(path, "x.o"), nil, 0o644))
		}, removed, ""},
		{"a new file", "", func(r *treeRig, path string) {
			r.git(r.repo, "config", "status.showUntrackedFiles", "no")
			wantNil(r.t, os.WriteFile(filepath.Join(path, oddName()), nil, 0o644))
		}, changed, "agent/dev"},
		{"a changed file", "", func(r *treeRig, path string) {
			wantNil(r.t, os.WriteFile(filepath.Join(path, "file"), nil, 0o644))
		}, changed, "agent/dev"},
		{"a changed file that git is told to see no change in", "", func(r *treeRig, path string) {
			r.git(path, "update-index", "--assume-unchanged", "file")
			wantNil(r.t, os.WriteFile(filepath.Join(path, "file"), nil, 0o644))
		}, "told to see no change", "agent/dev"},
		{"no .git", "", func(r *treeRig, path string) {
			wantNil(r.t, os.Remove(filepath.Join(path, ".git")))
		}, ".git", "agent/dev"},
		{"a staged file", "", func(r *treeRig, path string) { r.git(path, "rm", "-q", "file") }, changed, "agent/dev"},
		{"a commit", "", func(r *treeRig, path string) { r.git(path, "commit", "-q", "--allow-empty", "-m", "two") },
			"0 changed, 1 new", "agent/dev"},
		{"a commit on no branch", "", func(r *treeRig, path string) {
			r.git(path, "checkout", "-q", "--detach")
			r.git(path, "commit", "-q", "--allow-empty", "-m", "two")
		}, "0 changed, 1 new", "agent/dev"},
		{"another branch", "", func(r *treeRig, path string) { r.git(path, "switch", "-q", "-c", "other") }, removed,
			"other"},
		{"no branch", "", func(r *treeRig, path string) {
			r.git(path, "checkout", "-q", "--detach")
			r.git(path, "branch", "-D", "agent/dev")
		}, "git can't tell", ""},
		{"unlocked", "", func(r *treeRig, path string) { r.git(path, "worktree", "unlock", path) }, "not locked",
			"agent/dev"},
		{"somebody else's", "", func(r *treeRig, path string) {
			r.git(path, "worktree", "unlock", path)
			r.git(path, "worktree", "lock", "--reason", lockReason("codex:other77"), path)
		}, "not locked", "agent/dev"},
		{"removed by hand", "", func(r *treeRig, path string) { r.git(r.repo, "worktree", "remove", "-f", "-f", path) },
			removed, "agent/dev"},
		{"a branch that was there", "old", func(*treeRig, string) {}, removed, "old"},
		{"a .git of the agent's own", "", func(r *treeRig, path string) {
			evil := filepath.Join(path, "evil")
			r.git(path, "init", "-q", evil)
			r.git(evil, "config", "core.fsmonitor", "touch "+filepath.Join(r.repo, "escaped"))
			wantNil(r.t, os.WriteFile(filepath.Join(path, ".git"), []byte("gitdir: "+evil+"/.git\n"), 0o644))
		}, changed, "agent/dev"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newTreeRig(t)
			if tt.branch != "" {
				r.git(r.repo, "branch", tt.branch)
			}
			rec, failed := r.make(r.trees, "dev", tt.branch)
			if failed != nil {
				t.Fatal(failed)
			}
			tt.do(r, rec.Worktree.Path)
			end := r.trees.end(rec.AgentID, false)
			got := fmt.Sprintf("%d changed, %d new", end.Changed, end.Commits)
			if got += end.Kept; end.Removed {
				got = removed
			}
			if !strings.Contains(got, tt.want) || r.branches() != tt.left || there(filepath.Join(r.repo, "escaped")) {
				t.Errorf("%s %q, branches %q; want %s, %q", got, end.words(), r.branches(), tt.want, tt.left)
			}
			byHand := tt.name == "removed by hand"
			if end.Gone != byHand || strings.Contains(end.words(), "gone already") != byHand {
				t.Errorf("gone %v: %s", end.Gone, end.words())
			}
			if mayGo := tt.want == removed; there(rec.Worktree.Path) == mayGo {
				t.Errorf("the worktree is there: %v", !mayGo)
			}
			if now := r.trees.ledger.record(rec.AgentID); (now.Worktree.place() == nil) != end.Removed {
				t.Errorf("the record has the worktree %+v", now.Worktree)
			}
		})
	}
}

// Two at once, of teams that don't know each other: numbers for names that nobody asked for, one who gets a name.
func TestWorktreesAtOnce(t *testing.T) {
	for _, branch := range []string{"", "topic"} {
		t.Run("branch "+branch, func(t *testing.T) {
			r := newTreeRig(t)
			var all sync.WaitGroup
			const many = 4
			places, errs := make([]string, many), make([]string, many)
			for i := range many {
				trees := r.team(fmt.Sprint("team", i))
				all.Go(func() {
					rec, err := r.make(trees, "dev", branch)
					if err != nil {
						errs[i] = err.Message
						return
					}
					places[i] = filepath.Base(rec.Worktree.Path) + " " + rec.Worktree.Branch
				})
			}
			all.Wait()
			slices.Sort(places)
			if got := strings.Join(places, ","); branch == "" && got != "dev agent/dev,dev-2 agent/dev-2,dev-3 agent/dev-3,"+
				"dev-4 agent/dev-4" || branch != "" && (places[many-2] != "" || !strings.HasSuffix(places[many-1], branch)) {
				t.Errorf("made were %q, refused %q", got, errs)
			}
			for _, err := range errs {
				if err != "" && !strings.Contains(err, branch) {
					t.Errorf("refused with %q", err)
				}
			}
			if n := strings.Count(readText(t, filepath.Join(r.repo, ".git", "info", "exclude")), "/.worktrees/\n"); n != 1 {
				t.Errorf("git is told %d times of the folder", n)
			}
			if said := r.git(r.repo, "status", "--porcelain"); said != "" {
				t.Errorf("the repository's own tree has changed: %s", said)
			}
		})
	}
}

// What can't be made leaves nothing behind.
func TestWorktreeRefused(t *testing.T) {
	for _, tt := range []struct {
		name, dir, want string
		do              func(r *treeRig)
	}{
		{"a folder of git's", ".git/x", "is the repository itself", func(*treeRig) {}},
		{"the repository", ".", "is the repository itself", func(*treeRig) {}},
		{"a link of the repository's", ".worktrees", "is a link to", func(r *treeRig) {
			wantNil(r.t, os.Symlink(r.t.TempDir(), filepath.Join(r.repo, ".worktrees")))
		}},
		{"a path with a line end", "", "characters that no record can keep", func(r *treeRig) {
			needUnix(r.t, "no file's name has a line end")
			r.repo = filepath.Join(r.repo, "a\nb")
			wantNil(r.t, os.Mkdir(r.repo, 0o755))
		}},
		{"a checkout that fails", ".worktrees", "filter", func(r *treeRig) {
			r.write(".gitattributes", "file filter=f\n")
			r.git(r.repo, "add", ".")
			r.git(r.repo, "commit", "-q", "-m", "smudge")
			r.git(r.repo, "config", "filter.f.smudge", "false")
			r.git(r.repo, "config", "filter.f.required", "true")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newTreeRig(t)
			tt.do(r)
			r.trees.cfg.worktreeDir = tt.dir
			rec, err := r.make(r.trees, "dev", "")
			if err == nil || !strings.Contains(err.Message, tt.want) {
				t.Fatalf("made %+v, %v; want %s", rec.Worktree, err, tt.want)
			}
			list, lerr := listTrees(context.Background(), filepath.Join(filepath.Dir(r.repo), "repo", ".git"))
			if tt.dir != "" && (lerr != nil || len(list) != 1 || r.branches() != "") {
				t.Errorf("left are %v and the branches %q, %v", list, r.branches(), lerr)
			}
		})
	}
}
