//go:build !windows

package main

// codex_child_test.go holds the life of a Codex process: the ladder that ends it, its
// whole group with it, pipes that a grandchild holds, what its stderr tells, and
// what a binary is found to be.

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script writes a program that plays a codex binary.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "codex")
	// A process that is forked meanwhile would hold the file open for writing, and
	// nobody could start it: "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	wantNil(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	return path
}

// startScript starts such a program and returns the first line that it says.
func startScript(t *testing.T, body string) (c *child, line string) {
	t.Helper()
	c, err := startChild(linkOptions{Path: script(t, body), Env: os.Environ(), Dir: t.TempDir()}, false)
	wantNil(t, err)
	t.Cleanup(func() { c.stop(0) })
	for b := make([]byte, 1); ; line += string(b) {
		if _, err := io.ReadFull(c.stdout, b); err != nil || b[0] == '\n' {
			return c, line
		}
	}
}

func TestChildLadder(t *testing.T) {
	for _, tc := range []struct {
		body   string
		grace  time.Duration
		reason string
	}{
		{"echo ready; cat; echo Error: the end >&2; exit 3\n", time.Minute, "exit code 3"},
		{"echo ready; exec sleep 1000\n", 50 * time.Millisecond, "signal: terminated (SIGTERM)"},
		{"trap '' TERM; echo ready; while :; do sleep 1; done\n", 50 * time.Millisecond, "signal: killed (SIGKILL)"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c, _ := startScript(t, tc.body)
			if d := c.death(); d != nil {
				t.Fatalf("dead at once: %v", d)
			}
			c.stop(tc.grace)
			d := c.death()
			if d == nil || d.Reason != tc.reason || d.Never || !strings.Contains(tc.body, d.Stderr) {
				t.Fatalf("%#v", d)
			}
			c.stop(tc.grace) // again is nothing
		})
	}
	_, err := startChild(linkOptions{Path: "/no/such/codex"}, false)
	d, ok := err.(*childDeath)
	if !ok || !d.Never || !strings.HasPrefix(d.Reason, "could not be started: ") {
		t.Fatalf("%#v", err)
	}
}

// npm's shim dies by KILL and leaves the real codex in the group, with our
// pipes in its hands: it is ended with the shim, and the reader isn't held up.
func TestChildGroupDiesWithIt(t *testing.T) {
	c, _ := startScript(t, "sleep 1000 & echo ready; wait\n")
	p, _ := os.FindProcess(c.pid)
	wantNil(t, p.Kill())
	if _, err := io.ReadAll(c.stdout); err != nil { // the end is there when nobody holds the pipe any more
		t.Errorf("the grandchild lives on: %v", err)
	}
	<-c.ended
	if d := c.death(); d.Reason != "signal: killed (SIGKILL)" {
		t.Errorf("%v", d)
	}
}

// A grandchild in a group of its own can't be reached. It may keep the pipes
// for as long as it likes.
func TestChildPipesHeldByGrandchild(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/setsid"); err != nil {
		t.Skip("no setsid")
	}
	c, line := startScript(t, "setsid sh -c 'echo $$; exec sleep 20' & read gate; exit 4\n")
	pid := 0
	if _, err := fmt.Sscan(line, &pid); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p, err := os.FindProcess(pid); err == nil && pid > 1 {
			_ = p.Kill()
		}
	}()
	begun := time.Now()
	fmt.Fprintln(c.stdin, "go")
	if _, err := io.ReadAll(c.stdout); err == nil {
		t.Error("the pipe is not held: this proves nothing")
	}
	<-c.ended
	if d := c.death(); d.Reason != "exit code 4" {
		t.Errorf("%v", d)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("noticed after %v", took)
	}
}

func TestStderrLines(t *testing.T) {
	const bwrap = "\x1b[2m2026-11-21T11:35:09.914243Z\x1b[0m \x1b[31mERROR\x1b[0m \x1b[2mcodex_app_server" +
		"\x1b[0m\x1b[2m:\x1b[0m Codex could not find bubblewrap on PATH.\n"
	const log = "2026-11-21T11:35:09Z  INFO codex_core: fine\n2026-11-21T11:35:09Z ERROR codex_core::x: broken\n" +
		"2026-11-21T11:35:09Z ERROR codex_core::y: worse\n"
	const panics = "thread 'main' panicked at x.rs"
	for name, tc := range map[string]struct{ text, last, first string }{
		"nothing":                     {"", "", ""},
		"plain":                       {"one\ntwo\n\n", "two", "two"},
		"an error before other words": {"Error: no home\n  at x\nbye\n", "Error: no home", "Error: no home"},
		"a warning of an error":       {"WARNING: failed to tidy\nError: no home\n", "Error: no home", "Error: no home"},
		"log lines":                   {log, "worse", "broken"},
		"said on every start":         {bwrap, "", ""},
		"and more":                    {bwrap + panics + "\n", panics, panics},
		"long": {"error " + strings.Repeat("x", 20000), strings.Repeat("x", 399) + "…",
			"error " + strings.Repeat("x", 393) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			tail := &stderrTail{}
			for b := []byte(tc.text); len(b) > 0; {
				n, _ := tail.Write(b[:min(7, len(b))])
				b = b[n:]
			}
			want(t, tail.lastLine(), tc.last)
			want(t, tail.firstError(), tc.first)
			if len(tail.end) > stderrEnd || len(tail.head) > stderrHead {
				t.Error("unbounded")
			}
		})
	}
}

func TestCodexIsFoundAndAskedOnce(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	note := fmt.Sprintf("echo x >> %s\n", count)
	for name, tc := range map[string]struct {
		body string
		has  bool
		runs int
	}{
		"today's":                          {note + "echo 'Usage: codex app-server [OPTIONS] [COMMAND]'\n", true, 1},
		"one without it":                   {note + "echo 'error: unrecognized subcommand' >&2; exit 2\n", false, 1},
		"one that prints its general help": {note + "echo 'Usage: codex [OPTIONS] [PROMPT]'\n", false, 1},
		"one that is broken says so when it is started": {note + "echo boom >&2; exit 1\n", true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var p childProbe
			_ = os.Remove(count)
			path := script(t, tc.body)
			for range 2 {
				got, err := p.probeBackend(context.Background(), path, "app-server", os.Environ())
				if err != nil || got.AppServer != tc.has || got.Path != path {
					t.Fatalf("%+v %v", got, err)
				}
			}
			want(t, readText(t, count), strings.Repeat("x\n", tc.runs))
		})
	}
	plain := script(t, "")
	wantNil(t, os.Chmod(plain, 0o644))
	t.Setenv("PATH", filepath.Dir(plain))
	var p childProbe
	for bin, says := range map[string]string{
		"": "chmod +x", plain: "chmod +x", "no-such-codex": "codex_bin",
		"/no/such/codex": "npm install -g @openai/codex",
	} {
		_, err := p.probeBackend(context.Background(), bin, "auto", os.Environ())
		if d, ok := err.(*childDeath); !ok || !d.Never || !strings.Contains(d.Reason, says) {
			t.Errorf("%q: %v", bin, err)
		}
	}
	got, err := p.probeBackend(context.Background(), "mock", "auto", nil)
	if err != nil || !got.AppServer || strings.Join(got.Args, " ") != "mock-codex" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAppServerProcess(t *testing.T) {
	t.Parallel()
	var gone []*childDeath
	start := func(t *testing.T, body string) backend {
		const hello = `read line; echo '{"id":1,"result":{"userAgent":"atm-agent-mcp/0.169.0 (x)"}}'; read line` + "\n"
		b, err := startAppServer(context.Background(), appServerOptions{linkOptions: linkOptions{
			Path: script(t, hello+body), Env: os.Environ(), Dir: t.TempDir(),
			OnGone: func(d *childDeath) { gone = append(gone, d) }}})
		wantNil(t, err)
		return b
	}
	t.Run("closes stdout and lives on", func(t *testing.T) {
		b := start(t, "exec >&-; exec sleep 1000\n")
		<-b.(*appServer).gone
		if len(gone) != 1 || gone[0].Reason != "signal: terminated (SIGTERM)" || gone[0].Never {
			t.Fatalf("%v", gone)
		}
		b.stop(time.Second)
	})
	t.Run("stopped", func(t *testing.T) {
		b := start(t, "cat > /dev/null; exit 0\n")
		if i := b.info(); i.version != "0.169.0" || i.pid == 0 {
			t.Errorf("%+v", i)
		}
		h := &heard{t: t}
		b.open(4, threadSpec{Thread: "t"}, h.to)
		b.stop(10 * time.Second)
		if e := h.list; len(e) != 1 || e[0].kind != evGone || e[0].op != 4 || e[0].err.Death.Reason != "exit code 0" {
			t.Errorf("%v", e)
		}
	})
}
