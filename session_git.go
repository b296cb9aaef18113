package main

// session_git.go owns how git is run: as a child process in a group of its own, which is killed when its caller gives
// up, in the repository that its directory is in and in no other, whatever the environment says, and without asking
// anybody. It waits for git, so it may be called in a handler's goroutine and never on a session's own.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	gitLimit   = 30 * time.Second // how long one git may run whose caller has no limit of its own
	maxGitText = 8 << 20          // bytes that gitText takes
	gitDrain   = time.Second      // how long a git that was killed may keep its pipes open
)

// gitText runs git in a directory and returns what git writes, whole. The error has git's own words.
func gitText(ctx context.Context, dir string, args ...string) (string, error) {
	var out gitOutput
	err := gitInto(ctx, dir, &out, args...)
	switch {
	case out.full:
		return "", fmt.Errorf("git %s wrote more than %d MiB", args[0], maxGitText>>20)
	case err != nil:
		return "", err
	}
	return string(out.text), nil
}

// gitWord is gitText for an answer of one line.
func gitWord(ctx context.Context, dir string, args ...string) (string, error) {
	text, err := gitText(ctx, dir, args...)
	return strings.TrimRight(text, "\r\n"), err
}

// gitInto runs git in a directory and writes what git writes to out, whose error ends git. The repository's hooks don't
// run: they are somebody's programs, and may ask or take any time.
func gitInto(ctx context.Context, dir string, out io.Writer, args ...string) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, gitLimit)
		defer cancel()
	}
	git, err := lookProgram("git")
	if err != nil {
		return fmt.Errorf("git could not be started: %w", err)
	}
	cmd := programCommand(ctx, gitEnv(os.Environ()), git, append([]string{"-c", "core.fsmonitor=false", "-c",
		"core.hooksPath=" + os.DevNull}, args...)...)
	what := args[max(slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") }), 0)]
	cmd.Dir, cmd.WaitDelay = dir, gitDrain
	said := &stderrTail{}
	cmd.Stdout, cmd.Stderr = out, said
	group := newProcGroup(cmd)
	cmd.Cancel = func() error { group.kill(); return nil }
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("git could not be started: %w", err)
	}
	_ = group.attach(cmd)
	err = cmd.Wait()
	group.close()
	switch {
	case err == nil:
		return nil
	case ctx.Err() == context.DeadlineExceeded:
		return fmt.Errorf("git %s did not end in time", what)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if words := strings.TrimSpace(string(said.head)); words != "" {
		return errors.New(clip(strings.TrimPrefix(words, "fatal: "), 300))
	}
	return fmt.Errorf("git %s: %w", what, err)
}

// gitEnv is an environment without what would lead git into another repository, or have git run other programs; git
// says everything in English.
func gitEnv(env []string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH",
			"GIT_CEILING_DIRECTORIES":
			return false
		}
		return strings.HasPrefix(name, "GIT_") || name == "LC_ALL" || name == "LANGUAGE"
	})
	return append(kept, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0")
}

// gitOutput is what git writes, up to maxGitText bytes.
type gitOutput struct {
	text []byte
	full bool // git wrote more, and was ended for it
}

func (o *gitOutput) Write(p []byte) (int, error) {
	if o.full = len(o.text)+len(p) > maxGitText; o.full {
		return 0, errors.New("too long")
	}
	o.text = append(o.text, p...)
	return len(p), nil
}
