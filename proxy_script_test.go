package main

// proxy_script_test.go runs the scripts of testdata: it puts the program and its mock
// Codex on PATH, gives each script homes of its own, and has the commands that
// look at files. The commands that talk to live processes are in
// proxy_scriptpeer_test.go. A script sees nothing of the user's own environment.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if os.Getenv(shoutServerVar) != "" {
		os.Exit(shoutServer(os.Stdin, os.Stdout))
	}
	testscript.Main(testRun{m}, map[string]func(){
		"atm-agent-mcp": func() {
			os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
		// The tests' codex is found on PATH as a real one is.
		"codex": func() {
			surviveSIGPIPE()
			os.Exit(runCodex(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
		"harness-peer": func() { os.Exit(harnessPeer(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// testRun is the tests of one run of the test binary.
type testRun struct{ m *testing.M }

// Run lets more tests run at once than there are processors: those that may are scripts, and a script mostly waits for
// processes. The flag -parallel still has the last word.
func (r testRun) Run() int {
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
		panic("BUG: " + err.Error())
	}
	defer os.RemoveAll(builtDir())
	return r.m.Run()
}

// longVar asks for the long forms of the tests that kill, load or build for many seconds: 1 as .ci/run sets it, or the
// seed that a failed random run told, to repeat that run as far as scheduling lets it. Without it such a test takes
// a second or two and does the same fewer times.
const longVar = "ATM_LONG"

func longTests() bool { return os.Getenv(longVar) != "" }

// pick is the long form's number where longVar is set, or else the short form's.
func pick[T any](short, long T) T {
	if longTests() {
		return long
	}
	return short
}

// testSeed is the seed of a random run: longVar's, if it tells one.
func testSeed(t *testing.T) uint64 {
	t.Helper()
	word := os.Getenv(longVar)
	if word == "" || word == "1" {
		return uint64(time.Now().UnixNano())
	}
	seed, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		t.Fatalf("%s is neither 1 nor a seed: %v", longVar, err)
	}
	return seed
}

func TestScripts(t *testing.T) {
	dir := filepath.Join("testdata", "script")
	if found, _ := filepath.Glob(filepath.Join(dir, "*.txtar")); len(found) == 0 {
		t.Fatalf("no scripts in %s", dir)
	}
	testscript.Run(t, scriptParams(t, dir))
}

// scriptParams adds the commands of proxy_scriptpeer_test.go and these:
//
//	waitfile path                wait until the file is there (! until it is gone)
//	jsonfile [-lines] path pat   wait until the JSON matches (! does not match now);
//	                             -lines: any line of JSONL; a glob: any of the files
//	mkgit dir branch             a directory that is a git repository on that branch
//	exitcode N prog args…        exec, and it must end with this code
//	terminal [-type text] prog args…   runs it on a terminal; what that shows is stdout (Linux)
func scriptParams(t *testing.T, dir string) testscript.Params {
	limit, schema := waitLimit(t), acpSchema(t)
	cmds := map[string]func(*testscript.TestScript, bool, []string){
		"waitfile": scriptWaitfile,
		"jsonfile": scriptJSONFile,
		"mkgit":    scriptMkgit,
		"exitcode": scriptExitcode,
		"terminal": scriptTerminal,
	}
	for name, cmd := range peerCommands() {
		cmds[name] = cmd
	}
	return testscript.Params{
		Dir:                 dir,
		Cmds:                cmds,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			err := setupScript(env, limit)
			st, _ := env.Values[scriptStateKey{}].(*scriptState)
			env.Defer(func() { // before its peers are stopped
				for _, p := range st.peers {
					if len(p.args) > 0 && p.args[0] == "acp" {
						p.reviewACP(t, schema)
					}
				}
			})
			return err
		},
	}
}

// setupScript gives a script its own homes. ATM_HOME is not HOME, so that a file
// in the wrong one of them is noticed.
func setupScript(env *testscript.Env, limit time.Duration) error {
	for name, dir := range map[string]string{"HOME": "home", "ATM_HOME": "atm", "CODEX_HOME": "codex-home"} {
		path := filepath.Join(env.WorkDir, dir)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		env.Setenv(name, path)
	}
	env.Setenv("USERPROFILE", env.Getenv("HOME"))
	env.Setenv("GORACE", "atexit_sleep_ms=10") // else each exit under -race costs a second
	st := &scriptState{limit: limit, peers: map[string]*scriptPeer{}, vars: map[string]any{}}
	env.Values[scriptStateKey{}] = st
	env.Defer(st.stopAll)
	return nil
}

// scriptStateKey finds a script's state among testscript's values.
type scriptStateKey struct{}

// scriptState is what the commands of one script share.
type scriptState struct {
	limit time.Duration // of one wait
	peers map[string]*scriptPeer
	vars  map[string]any // captured by $bind:, with their JSON types
}

func stateOf(ts *testscript.TestScript) *scriptState {
	return ts.Value(scriptStateKey{}).(*scriptState)
}

func (st *scriptState) stopAll() {
	for _, p := range st.peers {
		p.stop()
	}
}

// bind keeps captured values for later patterns, and as text for plain arguments.
func (st *scriptState) bind(ts *testscript.TestScript, vars map[string]any) {
	for name, v := range vars {
		st.vars[name] = v
		ts.Setenv(name, plainText(v))
	}
}

// value parses a JSON argument with variables put in.
func (st *scriptState) value(ts *testscript.TestScript, text string, pattern bool) any {
	v, err := decodeJSON([]byte(text))
	if err != nil {
		ts.Fatalf("argument %s is not JSON: %v", clipText(text, 200), err)
	}
	v, err = expandVars(v, pattern, func(name string) (any, bool) {
		if v, ok := st.vars[name]; ok {
			return v, true
		}
		text := ts.Getenv(name)
		return text, text != ""
	})
	ts.Check(err)
	return v
}

// scriptFlags parses a command's own flags and checks the number of arguments
// left; usage is told when either is wrong. Flags end with the first argument.
func scriptFlags(ts *testscript.TestScript, neg, mayNeg bool, usage string, args []string, least, most int, define func(*flag.FlagSet)) []string {
	if neg && !mayNeg {
		ts.Fatalf("unsupported: ! %s", usage)
	}
	fl := flag.NewFlagSet(usage, flag.ContinueOnError)
	fl.SetOutput(io.Discard)
	if define != nil {
		define(fl)
	}
	if err := fl.Parse(args); err != nil {
		ts.Fatalf("%v; usage: %s", err, usage)
	}
	if n := fl.NArg(); n < least || (most >= 0 && n > most) {
		ts.Fatalf("usage: %s", usage)
	}
	return fl.Args()
}

func scriptWaitfile(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, true, "waitfile path", args, 1, 1, nil)
	path := ts.MkAbs(args[0])
	there := func() bool {
		_, err := os.Stat(path)
		return (err == nil) != neg
	}
	if limit := stateOf(ts).limit; !poll(limit, there) {
		ts.Fatalf("waited %v: %s is there = %v", limit, path, neg)
	}
}

func scriptJSONFile(ts *testscript.TestScript, neg bool, args []string) {
	lines := false
	args = scriptFlags(ts, neg, true, "jsonfile [-lines] path pattern", args, 2, 2, func(fl *flag.FlagSet) {
		fl.BoolVar(&lines, "lines", false, "")
	})
	st := stateOf(ts)
	path, pattern := ts.MkAbs(args[0]), st.value(ts, args[1], true)
	if neg {
		if _, err := matchFiles(path, lines, pattern); err == nil {
			ts.Fatalf("%s matches %s", path, args[1])
		} else if errors.Is(err, fs.ErrNotExist) {
			ts.Fatalf("%v: a file that isn't there proves nothing", err)
		}
		return
	}
	var vars map[string]any
	var err error
	// A state is persisted after the answer that it doesn't hold up: so wait.
	if !poll(st.limit, func() bool { vars, err = matchFiles(path, lines, pattern); return err == nil }) {
		ts.Fatalf("waited %v: %v", st.limit, err)
	}
	st.bind(ts, vars)
}

// wholeRecord is a session's record with what its journal says of its turns, which
// is how the program reads it; any other file is what it is.
func wholeRecord(path string, data []byte) []byte {
	dir, name := filepath.Split(path)
	rec, err := decodeRecord(data, agentOfFile(name))
	if filepath.Base(dir) != ".records" || err != nil {
		return data
	}
	(&registry{journals: newJournals(filepath.Clean(dir), nil), log: quietLog()}).addNote(rec)
	return toJSON(rec)
}

// matchFiles matches the file, or any of those that a glob names.
func matchFiles(path string, lines bool, pattern any) (map[string]any, error) {
	paths := []string{path}
	if strings.ContainsAny(path, "*?") {
		var err error
		if paths, err = filepath.Glob(path); err != nil {
			return nil, err
		}
	}
	err := fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	for _, p := range paths {
		data, readErr := os.ReadFile(p)
		if readErr != nil {
			err = readErr
			continue
		}
		values := [][]byte{wholeRecord(p, data)}
		if lines {
			values = bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
		}
		for _, text := range values {
			got, jsonErr := decodeJSON(text)
			if jsonErr != nil {
				err = fmt.Errorf("%s: %w", p, jsonErr)
				continue
			}
			vars, matchErr := matchJSON(pattern, got)
			if matchErr == nil {
				return vars, nil
			}
			err = fmt.Errorf("%s: %w\nin %s", p, matchErr, clipText(string(text), 2000))
		}
	}
	return nil, err
}

func scriptMkgit(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "mkgit dir branch", args, 2, 2, nil)
	ts.Check(makeGitRepo(ts.MkAbs(args[0]), args[1]))
}

func scriptExitcode(ts *testscript.TestScript, neg bool, args []string) {
	const usage = "exitcode N prog args…"
	if neg || len(args) < 2 { // not scriptFlags: the flags are the program's
		ts.Fatalf("usage: %s", usage)
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("usage: %s", usage)
	}
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s ended with code %d, not %d", strings.Join(args[1:], " "), got, want)
	}
}

// makeGitRepo writes what makes a directory a repository on an unborn branch.
// Called again it changes the branch. Tests then need no git.
func makeGitRepo(dir, branch string) error {
	for _, d := range []string{"objects", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(dir, ".git", filepath.FromSlash(d)), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"HEAD":   "ref: refs/heads/" + branch + "\n",
		"config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, ".git", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// scriptEnviron is the script's environment as its commands see it, env commands
// included. testscript tells it only to a process.
func scriptEnviron(ts *testscript.TestScript) []string {
	ts.Check(ts.Exec("harness-peer", "environ"))
	var env []string
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &env))
	return env
}

// scriptLookPath finds a program on the script's PATH.
func scriptLookPath(ts *testscript.TestScript, prog string) string {
	if filepath.Base(prog) != prog {
		return ts.MkAbs(prog)
	}
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		path := filepath.Join(dir, prog+ts.Getenv("exe"))
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
	}
	ts.Fatalf("no %q on PATH", prog)
	return ""
}
