package main

// sys_windows_test.go holds what only Windows has: jobs that end with their last handle, batch files, a system that
// looks for programs in the working directory.

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestJobHolder is no test: it holds the job of a child that has a child.
func TestJobHolder(t *testing.T) {
	how := os.Getenv("ATM_TEST_JOB")
	if how == "" {
		t.Skip("runs only as a child of another test")
	}
	if how == "ours" {
		prepareProcess()
	}
	cmd := testChild("TestSysHelper")
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	group := newProcGroup(cmd)
	wantNil(t, cmd.Start())
	if how == "the child's" {
		wantNil(t, group.attach(cmd))
	}
	wantNil(t, cmd.Wait())
}

// Nothing of ours runs when a process is killed that leaves its children running everywhere else. One that is killed
// before it has put its child into a job leaves none either.
func TestJobEndsWithItsHolder(t *testing.T) {
	for _, how := range []string{"the child's", "ours"} {
		p := startTest(t, "TestJobHolder", "ATM_TEST_SYS=parent", "ATM_TEST_JOB="+how)
		defer p.group.close()
		p.line(t) // the grandchild runs
		wantNil(t, p.cmd.Process.Kill())
		p.ends(t, "exit code 1") // child and grandchild have its stdout too
	}
}

// A file that somebody reads is replaced once that one is done, and until then its writer is told why not.
func TestFileThatIsOpenIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record.json")
	wantNil(t, writeWhole(path, []byte("old")))
	reader, err := os.Open(path)
	wantNil(t, err)
	defer reader.Close()
	if err := writeWhole(path, []byte("new")); err == nil || !strings.Contains(err.Error(), "have the file open") {
		t.Errorf("replaced while it was open: %v", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || readText(t, path) != "old" {
		t.Errorf("left %v, %v", names, err)
	}
	wantNil(t, reader.Close())
	wantNil(t, writeWhole(path, []byte("new")))
	want(t, readText(t, path), "new")
}

// TestBatchHelper is no test: a batch file runs it.
func TestBatchHelper(t *testing.T) {
	at := slices.Index(os.Args, "--")
	if at < 0 {
		t.Skip("runs only in a batch file of another test")
	}
	var said struct {
		Args       []string
		OnlyOnPath string
	}
	said.Args, said.OnlyOnPath = os.Args[at+1:], os.Getenv("NoDefaultCurrentDirectoryInExePath")
	fmt.Println(string(toJSON(said)))
	os.Exit(0)
}

// npm's codex is a batch file. Neither where it lies nor what it is given is read as a command.
func TestBatchFileIsStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "R&D (100%OS% ^ !x!)")
	path := filepath.Join(dir, "codex.CMD")
	wantNil(t, os.Mkdir(dir, 0o755))
	wantNil(t, os.WriteFile(path, []byte("@\"%ATM_TEST_BIN%\" \"-test.run=^TestBatchHelper$\" -- %*\r\n"), 0o644))
	args := []string{"app-server", "a b", "", "x&echo no", `tail\`, "^|<>()!"}
	env := append(os.Environ(), testChildVar+"=1", "ATM_TEST_BIN="+os.Args[0])
	cmd := programCommand(context.Background(), env, path, args...)
	group := newProcGroup(cmd)
	out, err := cmd.StdoutPipe()
	wantNil(t, err)
	cmd.Stderr = os.Stderr
	wantNil(t, cmd.Start())
	wantNil(t, group.attach(cmd))
	defer group.close()
	said, err := io.ReadAll(out)
	wantNil(t, err)
	wantNil(t, cmd.Wait())
	want(t, string(said), string(toJSON(map[string]any{"Args": args, "OnlyOnPath": "1"}))+"\n")
}

// A repository may have a codex.exe of its own.
func TestProgramIsLookedForOnPath(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	program := func(path string) string {
		wantNil(t, os.WriteFile(path, nil, 0o755))
		return path
	}
	program(filepath.Join(here, "codex.exe"))
	t.Chdir(here)
	t.Setenv("PATH", `.;relative;"`+there+`"`)
	if got, err := lookProgram("codex"); err == nil {
		t.Errorf("found %s", got)
	}
	for _, name := range []string{"codex.cmd", "codex.exe"} { // the system's order
		path := program(filepath.Join(there, name))
		if got, err := lookProgram("codex"); err != nil || !samePath(got, path) {
			t.Errorf("found %s, %v; want %s", got, err, path)
		}
	}
	if got, err := lookProgram(`.\codex`); err != nil {
		t.Errorf("found %s, %v", got, err)
	}
}
