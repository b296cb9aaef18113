package main

// proxy_script_test.go runs the scripts of testdata: it puts the program and its mock Codex on PATH, gives each script
// homes of its own, and owns the script commands: those that look at files, and those that hold live processes, so that
// a script reads as a dialogue. A peer of a script keeps every record both sides wrote, what was matched already, and
// waits for one that matches. JSON arguments know variables and patterns (proxy_match_test.go). Waits end with a match,
// the peer's end or a limit; no command sleeps. A record on stdout that is no JSON fails the next expect. A script sees
// nothing of the user's own environment.

import (
	"bytes"
	"cmp"
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
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if os.Getenv(shoutServerVar) != "" {
		os.Exit(shoutServer(os.Stdin, os.Stdout))
	}
	if os.Getenv(testChildVar) != "" { // it may be killed, and then nobody would remove what testscript.Main makes
		os.Exit(m.Run())
	}
	testscript.Main(testRun{m}, map[string]func(){
		"atm-agent-mcp": func() {
			os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
		},
		"codex-mcp": func() { os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)) },
		// The tests' codex is found on PATH as a real one is.
		"codex": func() {
			prepareProcess()
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
	code := r.m.Run()
	if err := removeCommands(); err != nil {
		fmt.Fprintln(os.Stderr, "a program that a test started still runs:", err)
		code = cmp.Or(code, 1)
	}
	return code
}

// removeCommands removes the programs that testscript has put on PATH. Windows keeps the file of a program that runs,
// and one that was killed still runs for a moment: testscript removes them once and dies of an error.
func removeCommands() error {
	path, err := exec.LookPath("harness-peer")
	if err != nil {
		return err
	}
	poll(30*time.Second, func() bool {
		err = os.RemoveAll(filepath.Dir(path))
		return err == nil
	})
	return err
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
	t.Parallel()
	testscript.Run(t, scriptParams(t, filepath.Join("testdata", "script"))) // fails where there are none
}

// scriptParams knows testscript's commands and these:
//
//	start [-env K=V]... [-cwd dir] NAME prog args…
//	init NAME [version]                  the legacy handshake
//	serve [-env K=V]... [-cwd dir] [-client name] [-version v] [-can capabilities] NAME [flag…]
//	                                     starts atm-agent-mcp serve, and shakes hands as init does
//	send NAME JSON…                      records
//	sendraw [-repeat n] NAME text        bytes, with Go's escapes, n times
//	request [-bind var] NAME method [params [result]]   allocates the id, kept as $id or $var, and
//	                                     expects that result, or ! that error, if there is one
//	call [-bind var] [-meta JSON] [-whole] NAME tool [args [result]]    request tools/call; result:
//	                                     its structuredContent, all of it with -whole, or ! the error
//	expect NAME pattern                  read on until a record matches
//	expect -next NAME pattern            the very next record must match
//	expect -any NAME pattern             one that earlier expects read past may match too
//	expect -none NAME pattern            nothing from here to a ping's answer matches
//	expect -never NAME pattern           the same, and nothing before
//	reply [-error] [-to pattern] NAME JSON    answers the request that was expected last, or the
//	                                     next one that matches
//	hangup NAME                          closes stdin
//	finish NAME                          closes stdin and waits for the end, with code 0
//	signal NAME|pid SIGNAL               to a peer, or a process that a peer started
//	exit NAME [code|text]                waits for the end; text: part of its reason
//	errlog NAME regexp                   waits for it on stderr (! it is not there now)
//	transcript NAME                      prints the dialogue, for stdout and cmp
//	noproc NAME                          waits until it and all it started are gone; Linux only
//	alive pid                            waits until the process is there (! until it is gone)
//	waitfile path                        wait until the file is there (! until it is gone)
//	lockdir path                         takes Claude Code's lock of that name, as soon as nobody has it
//	jsonfile [-lines] path pat           wait until the JSON matches (! does not match now);
//	                                     -lines: any line of JSONL; a glob: any of the files
//	mkgit dir branch                     a directory that is a git repository on that branch
//	exitcode N prog args…                exec, and it must end with this code
//	slashes                              the paths in the last stdout and stderr get slashes
//
// and the condition [wine], that Windows is not the real one. And of the Agent Client Protocol:
//
//	hello NAME [capabilities]            its handshake
//	acp [-env K=V]... [-cwd dir] [-can capabilities] NAME [flag…]    starts atm-agent-mcp acp, with hello
//	opens [-bind var] [-cwd dir] [-mcp JSON] NAME    session/new, kept as $session or $var
//	prompt [-bind var] [-says regexp] [-stops reason] NAME session line…
//	                                     session/prompt of one text, these lines; with -says or
//	                                     -stops its answer, as stops has it
//	update [-next|-any|-none|-never] NAME pattern       expect, of a session/update's update
//	stops [-of var] [-says regexp] NAME [reason]        the prompt's answer, by default
//	                                     end_turn, and all that the agent said for it
func scriptParams(t *testing.T, dir string) testscript.Params {
	limit, schema := waitLimit(t), acpSchema(t)
	cmds := map[string]func(*testscript.TestScript, bool, []string){
		"start": scriptStart, "init": scriptInit, "send": scriptSend, "sendraw": scriptSendraw,
		"request": scriptRequest,
		"call":    scriptCall, "expect": scriptExpect, "reply": scriptReply, "hangup": scriptHangup,
		"signal": scriptSignal, "serve": scriptServe, "acp": scriptACP, "finish": scriptFinish,
		"exit": scriptExit, "errlog": scriptErrlog, "transcript": scriptTranscript, "noproc": scriptNoproc,
		"waitfile": scriptWaitfile, "jsonfile": scriptJSONFile, "mkgit": scriptMkgit, "exitcode": scriptExitcode,
		"slashes": scriptSlashes, "alive": scriptAlive, "lockdir": scriptLockdir,
		"hello": scriptHello, "opens": scriptOpens, "prompt": scriptPrompt, "update": scriptUpdate,
		"stops": scriptStops,
	}
	return testscript.Params{
		Dir:  dir,
		Cmds: cmds,
		Condition: func(name string) (bool, error) {
			if name != "wine" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return os.Getenv("WINEPREFIX") != "" && runtime.GOOS == "windows", nil
		},
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
// in the wrong one of them is noticed. Their paths have slashes on every system: they stand in JSON and in patterns.
func setupScript(env *testscript.Env, limit time.Duration) error {
	work := filepath.ToSlash(env.WorkDir)
	env.Setenv("WORK", work)
	env.Setenv("WORKURL", "file:///"+strings.TrimPrefix(work, "/"))
	for name, dir := range map[string]string{"HOME": "home", "ATM_HOME": "atm", "CODEX_HOME": "codex-home"} {
		path := work + "/" + dir
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		env.Setenv(name, path)
	}
	login := work + "/codex-home/auth.json" // a script that wants no login removes it
	if err := os.WriteFile(login, []byte(`{"auth_mode":"apikey"}`), 0o600); err != nil {
		return err
	}
	env.Setenv("USERPROFILE", env.Getenv("HOME"))
	env.Setenv("MOCK_CODEX_LOG", work+"/codex.log")
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

// told is what the peers wrote on stderr, for failures that are of none of them.
func (st *scriptState) told() string {
	var b strings.Builder
	for name, p := range st.peers {
		if log := p.stderr.String(); log != "" {
			fmt.Fprintf(&b, "\n[stderr of %s]\n%s", name, log[max(0, len(log)-3000):])
		}
	}
	return b.String()
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
func scriptFlags(ts *testscript.TestScript, neg, mayNeg bool, usage string, args []string, least, most int,
	define func(*flag.FlagSet)) []string {
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

func scriptAlive(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, true, "alive pid", args, 1, 1, nil)
	pid, err := strconv.Atoi(args[0])
	ts.Check(err)
	if limit := stateOf(ts).limit; !poll(limit, func() bool { return pidAlive(pid) != neg }) {
		ts.Fatalf("waited %v: process %d is there = %v", limit, pid, neg)
	}
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

func scriptLockdir(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "lockdir path", args, 1, 1, nil)
	path := ts.MkAbs(args[0])
	if limit := stateOf(ts).limit; !poll(limit, func() bool { return os.Mkdir(path, 0o700) == nil }) {
		ts.Fatalf("waited %v: somebody has %s", limit, path)
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
		ts.Fatalf("waited %v: %v%s", st.limit, err, st.told())
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
		data, readErr := readShared(p) // os.ReadFile keeps others on Windows from replacing the file
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

func scriptSlashes(ts *testscript.TestScript, neg bool, args []string) {
	scriptFlags(ts, neg, false, "slashes", args, 0, 0, nil)
	fmt.Fprint(ts.Stderr(), filepath.ToSlash(ts.ReadFile("stderr")))
	fmt.Fprint(ts.Stdout(), filepath.ToSlash(ts.ReadFile("stdout")))
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

// scriptEnviron is the script's environment as its commands see it, env commands included. testscript tells it only to
// a process, and one for every peer would double what is started.
func scriptEnviron(ts *testscript.TestScript) []string {
	vars := reflect.ValueOf(ts).Elem().FieldByName("env")
	env := make([]string, vars.Len())
	for i := range env {
		env[i] = vars.Index(i).String()
	}
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

func peerOf(ts *testscript.TestScript, name string) *scriptPeer {
	p := stateOf(ts).peers[name]
	if p == nil {
		ts.Fatalf("no peer %q was started", name)
	}
	return p
}

// peerFlags are the flags of the commands that start a peer.
type peerFlags struct {
	env []string
	cwd string
}

func (f *peerFlags) define(fl *flag.FlagSet) {
	fl.Func("env", "", func(v string) error { f.env = append(f.env, v); return nil })
	fl.StringVar(&f.cwd, "cwd", ".", "")
}

func scriptStart(ts *testscript.TestScript, neg bool, args []string) {
	var f peerFlags
	args = scriptFlags(ts, neg, false, "start [-env K=V]... [-cwd dir] NAME prog args…", args, 2, -1, f.define)
	f.start(ts, args[0], args[1], args[2:]...)
}

// start starts a peer of that name.
func (f *peerFlags) start(ts *testscript.TestScript, name, prog string, args ...string) {
	st := stateOf(ts)
	if old := st.peers[name]; old != nil {
		if !old.gone() {
			ts.Fatalf("peer %q still runs", name)
		}
		old.stop() // a name may be used again; what the old one left must not outlive the script
	}
	p := &scriptPeer{state: st, changed: make(chan struct{})}
	dir := ts.MkAbs(f.cwd)
	live, err := startPeer(peerConfig{
		name: name, path: scriptLookPath(ts, prog), args: args, limit: st.limit,
		env: append(append(scriptEnviron(ts), "PWD="+dir), f.env...),
		dir: dir, onRecord: func(raw []byte) { p.append(false, raw) },
	})
	ts.Check(err)
	p.livePeer = live
	st.peers[name] = p
}

func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	var f peerFlags
	hello := handshake{client: "script", version: latestLegacy, can: "{}"}
	args = scriptFlags(ts, neg, false, "serve [-env K=V]... [-cwd dir] [-client name] [-version v] [-can JSON] NAME flag…",
		args, 1, -1, func(fl *flag.FlagSet) {
			f.define(fl)
			fl.StringVar(&hello.client, "client", hello.client, "")
			fl.StringVar(&hello.version, "version", hello.version, "")
			fl.StringVar(&hello.can, "can", hello.can, "")
		})
	f.start(ts, args[0], "atm-agent-mcp", append([]string{"serve"}, args[1:]...)...)
	hello.shake(ts, args[0])
}

func scriptACP(ts *testscript.TestScript, neg bool, args []string) {
	var f peerFlags
	can := "{}"
	args = scriptFlags(ts, neg, false, "acp [-env K=V]... [-cwd dir] [-can JSON] NAME flag…", args, 1, -1,
		func(fl *flag.FlagSet) {
			f.define(fl)
			fl.StringVar(&can, "can", can, "")
		})
	f.start(ts, args[0], "atm-agent-mcp", append([]string{"acp"}, args[1:]...)...)
	scriptHello(ts, false, []string{args[0], can})
}

// handshake is a legacy one.
type handshake struct{ client, version, can string }

func (h handshake) shake(ts *testscript.TestScript, name string) {
	p := peerOf(ts, name)
	id := p.request(ts, "initialize", map[string]any{"protocolVersion": h.version,
		"capabilities": stateOf(ts).value(ts, h.can, false),
		"clientInfo":   map[string]any{"name": h.client, "version": "1"}})
	p.expect(ts, map[string]any{"id": id, "result": map[string]any{"protocolVersion": "$any"}}, false, false)
	p.send(ts, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

func scriptInit(ts *testscript.TestScript, neg bool, args []string) {
	args = append(scriptFlags(ts, neg, false, "init NAME [version]", args, 1, 2, nil), latestLegacy)
	handshake{client: "script", version: args[1], can: "{}"}.shake(ts, args[0])
}

func scriptSend(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "send NAME JSON…", args, 2, -1, nil)
	for _, arg := range args[1:] {
		peerOf(ts, args[0]).send(ts, stateOf(ts).value(ts, arg, false))
	}
}

func scriptSendraw(ts *testscript.TestScript, neg bool, args []string) {
	repeat := 1
	args = scriptFlags(ts, neg, false, "sendraw [-repeat n] NAME text", args, 2, 2, func(fl *flag.FlagSet) {
		fl.IntVar(&repeat, "repeat", repeat, "")
	})
	quotes := strings.NewReplacer(`\\`, `\\`, `\"`, `\"`, `"`, `\"`) // what is escaped stays so
	text, err := strconv.Unquote(`"` + quotes.Replace(args[1]) + `"`)
	if err != nil {
		ts.Fatalf("bad escape in %q", args[1])
	}
	ts.Check(peerOf(ts, args[0]).writeRaw(bytes.Repeat([]byte(text), repeat)))
}

// optional is the JSON argument at i, or an empty object.
func optional(ts *testscript.TestScript, args []string, i int) any {
	if i < len(args) {
		return stateOf(ts).value(ts, args[i], false)
	}
	return map[string]any{}
}

func scriptRequest(ts *testscript.TestScript, neg bool, args []string) {
	name := "id"
	args = scriptFlags(ts, neg, true, "request [-bind var] NAME method [params [result]]", args, 2, 4,
		func(fl *flag.FlagSet) { fl.StringVar(&name, "bind", name, "") })
	id := peerOf(ts, args[0]).request(ts, args[1], optional(ts, args, 2))
	stateOf(ts).bind(ts, map[string]any{name: id})
	answered(ts, neg, id, args, func(result any) any { return result })
}

func scriptCall(ts *testscript.TestScript, neg bool, args []string) {
	name, meta, whole := "id", "", false
	args = scriptFlags(ts, neg, true, "call [-bind var] [-meta JSON] [-whole] NAME tool [args [result]]", args, 2, 4,
		func(fl *flag.FlagSet) {
			fl.StringVar(&name, "bind", name, "")
			fl.StringVar(&meta, "meta", meta, "")
			fl.BoolVar(&whole, "whole", false, "")
		})
	st := stateOf(ts)
	params := map[string]any{"name": args[1], "arguments": optional(ts, args, 2)}
	if meta != "" {
		params["_meta"] = st.value(ts, meta, false)
	}
	id := peerOf(ts, args[0]).request(ts, "tools/call", params)
	st.bind(ts, map[string]any{name: id})
	answered(ts, neg, id, args, func(result any) any {
		if whole {
			return result
		}
		return map[string]any{"structuredContent": result}
	})
}

// answered waits for the answer that a request's fourth argument wants, if there is one: a result, around which
// stands what around makes of it, or an error.
func answered(ts *testscript.TestScript, fails bool, id json.Number, args []string, around func(any) any) {
	if len(args) < 4 {
		if fails {
			ts.Fatalf("which error? ! wants a fourth argument")
		}
		return
	}
	pattern := stateOf(ts).value(ts, args[3], true)
	want := map[string]any{"id": id, "error": pattern}
	if !fails {
		want = map[string]any{"id": id, "result": around(pattern)}
	}
	peerOf(ts, args[0]).expect(ts, want, false, false)
}

func scriptHello(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "hello NAME [capabilities]", args, 1, 2, nil)
	p := peerOf(ts, args[0])
	id := p.request(ts, "initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": optional(ts, args, 1),
		"clientInfo": map[string]any{"name": "script", "version": "1"}})
	p.expect(ts, map[string]any{"id": id, "result": map[string]any{"protocolVersion": json.Number("1")}}, false, false)
}

func scriptOpens(ts *testscript.TestScript, neg bool, args []string) {
	name, cwd, servers := "session", ".", "[]"
	args = scriptFlags(ts, neg, false, "opens [-bind var] [-cwd dir] [-mcp JSON] NAME", args, 1, 1,
		func(fl *flag.FlagSet) {
			fl.StringVar(&name, "bind", name, "")
			fl.StringVar(&cwd, "cwd", cwd, "")
			fl.StringVar(&servers, "mcp", servers, "")
		})
	p := peerOf(ts, args[0])
	id := p.request(ts, "session/new", map[string]any{"cwd": ts.MkAbs(cwd),
		"mcpServers": stateOf(ts).value(ts, servers, false)})
	p.expect(ts, map[string]any{"id": id, "result": map[string]any{"sessionId": "$bind:" + name}}, false, false)
}

func scriptPrompt(ts *testscript.TestScript, neg bool, args []string) {
	name, says, reason := "id", "", ""
	args = scriptFlags(ts, neg, false, "prompt [-bind var] [-says regexp] [-stops reason] NAME session line…", args, 3, -1,
		func(fl *flag.FlagSet) {
			fl.StringVar(&name, "bind", name, "")
			fl.StringVar(&says, "says", says, "")
			fl.StringVar(&reason, "stops", reason, "")
		})
	id := peerOf(ts, args[0]).request(ts, "session/prompt", map[string]any{"sessionId": args[1],
		"prompt": []any{map[string]any{"type": "text", "text": strings.Join(args[2:], "\n")}}})
	stateOf(ts).bind(ts, map[string]any{name: id})
	if says+reason != "" {
		peerOf(ts, args[0]).stops(ts, id, cmp.Or(reason, "end_turn"), says)
	}
}

func scriptUpdate(ts *testscript.TestScript, neg bool, args []string) {
	expectIn(ts, neg, "update", args, func(pattern any) any {
		return map[string]any{"method": "session/update", "params": map[string]any{"update": pattern}}
	})
}

func scriptStops(ts *testscript.TestScript, neg bool, args []string) {
	name, says := "id", ""
	args = scriptFlags(ts, neg, false, "stops [-of var] [-says regexp] NAME [reason]", args, 1, 2,
		func(fl *flag.FlagSet) {
			fl.StringVar(&name, "of", name, "")
			fl.StringVar(&says, "says", says, "")
		})
	reason := "end_turn"
	if len(args) > 1 {
		reason = args[1]
	}
	peerOf(ts, args[0]).stops(ts, stateOf(ts).vars[name], reason, says)
}

// stops waits for the answer to a prompt, and holds all that the agent said for it to a regexp.
func (p *scriptPeer) stops(ts *testscript.TestScript, id any, reason, says string) {
	p.expect(ts, map[string]any{"id": id, "result": map[string]any{"stopReason": reason}}, false, false)
	said, err := matchJSON("$re:(?s)"+says, p.saidFor(id))
	ts.Check(err)
	stateOf(ts).bind(ts, said)
}

func scriptExpect(ts *testscript.TestScript, neg bool, args []string) {
	expectIn(ts, neg, "expect", args, func(pattern any) any { return pattern })
}

// expectIn is expect of what around makes of the pattern.
func expectIn(ts *testscript.TestScript, neg bool, name string, args []string, around func(any) any) {
	var next, skipped, none, never bool
	args = scriptFlags(ts, neg, false, name+" [-next|-any|-none|-never] NAME pattern", args, 2, 2,
		func(fl *flag.FlagSet) {
			fl.BoolVar(&next, "next", false, "")
			fl.BoolVar(&skipped, "any", false, "")
			fl.BoolVar(&none, "none", false, "")
			fl.BoolVar(&never, "never", false, "")
		})
	p, pattern := peerOf(ts, args[0]), around(stateOf(ts).value(ts, args[1], true))
	switch {
	case none:
		p.expectNone(ts, pattern, p.cursor)
	case never:
		p.expectNone(ts, pattern, 0)
	default:
		p.expect(ts, pattern, next, skipped)
	}
}

func scriptReply(ts *testscript.TestScript, neg bool, args []string) {
	isError, to := false, ""
	args = scriptFlags(ts, neg, false, "reply [-error] [-to pattern] NAME JSON", args, 2, 2, func(fl *flag.FlagSet) {
		fl.BoolVar(&isError, "error", false, "")
		fl.StringVar(&to, "to", to, "")
	})
	p := peerOf(ts, args[0])
	if to != "" {
		p.expect(ts, stateOf(ts).value(ts, to, true), false, false)
	}
	if p.asked == nil {
		ts.Fatalf("no request of %s was expected, so there is nothing to reply to", p.name)
	}
	member := "result"
	if isError {
		member = "error"
	}
	p.send(ts, map[string]any{"jsonrpc": "2.0", "id": p.asked, member: stateOf(ts).value(ts, args[1], false)})
}

func scriptHangup(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "hangup NAME", args, 1, 1, nil)
	peerOf(ts, args[0]).hangup()
}

func scriptFinish(ts *testscript.TestScript, neg bool, args []string) {
	scriptHangup(ts, neg, args)
	scriptExit(ts, false, append(args, "0"))
}

func scriptSignal(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "signal NAME|pid SIGNAL", args, 2, 2, nil)
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Check(peerOf(ts, args[0]).signal(args[1]))
		return
	}
	// A number out of a record: make sure that it is one of ours.
	for _, p := range stateOf(ts).peers {
		if slices.Contains(p.leftovers(), pid) {
			sig, err := signalByName(args[1])
			ts.Check(err)
			proc, err := os.FindProcess(pid)
			ts.Check(err)
			ts.Check(proc.Signal(sig))
			return
		}
	}
	ts.Fatalf("process %d was not started by a peer of this script", pid)
}

func scriptExit(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "exit NAME [code|text]", args, 1, 2, nil)
	p := peerOf(ts, args[0])
	if err := p.waitExit(p.state.limit); err != nil {
		ts.Fatalf("%v%s", err, p.context())
	}
	if len(args) < 2 {
		return
	}
	reason := p.howEnded()
	if runtime.GOOS == "windows" && args[1] == "SIGKILL" {
		args[1] = "1" // which is how a killed process ends there
	}
	if code, err := strconv.Atoi(args[1]); err == nil {
		if got := p.cmd.ProcessState.ExitCode(); got != code {
			ts.Fatalf("%s ended with %s, want code %d%s", p.name, reason, code, p.context())
		}
	} else if !strings.Contains(reason, args[1]) {
		ts.Fatalf("%s ended with %s, want %q%s", p.name, reason, args[1], p.context())
	}
}

func scriptErrlog(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, true, "errlog NAME regexp", args, 2, 2, nil)
	p := peerOf(ts, args[0])
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	if neg {
		if found := re.FindString(p.stderr.String()); found != "" {
			ts.Fatalf("stderr of %s has %q%s", p.name, found, p.context())
		}
		return
	}
	found := func() bool { return matchPaths(re, p.stderr.String()) }
	if !poll(p.state.limit, func() bool { return found() || p.gone() }) || !found() {
		ts.Fatalf("stderr of %s has nothing like %q%s", p.name, args[1], p.context())
	}
}

func scriptTranscript(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "transcript NAME", args, 1, 1, nil)
	fmt.Fprint(ts.Stdout(), peerOf(ts, args[0]).dialogue(0, 1<<20))
}

func scriptNoproc(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "noproc NAME", args, 1, 1, nil)
	if !hasProcFS() {
		ts.Fatalf("noproc needs /proc: write [linux] in front of it")
	}
	p := peerOf(ts, args[0])
	if err := p.waitAllGone(p.state.limit); err != nil {
		ts.Fatalf("%v%s", err, p.context())
	}
}

// scriptPeer is a live process and the dialogue with it.
type scriptPeer struct {
	*livePeer
	state *scriptState

	// Only the script's goroutine touches these.
	cursor int             // expect reads on from here
	asked  json.RawMessage // id of the request that was matched last
	lastID int             // last id we allocated

	mu      sync.Mutex    // guards the fields below
	log     []scriptEntry // both directions, in the order we saw
	changed chan struct{} // closed and replaced when log grows
}

// scriptEntry is one record of the dialogue.
type scriptEntry struct {
	ours    bool
	raw     []byte
	value   any   // decoded
	bad     error // it is no JSON
	matched bool
}

func (p *scriptPeer) append(ours bool, raw []byte) {
	e := scriptEntry{ours: ours, raw: raw}
	e.value, e.bad = decodeJSON(raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, e)
	close(p.changed)
	p.changed = make(chan struct{})
}

// send writes one record and keeps it in the dialogue, before: the answer must
// not come first.
func (p *scriptPeer) send(ts *testscript.TestScript, v any) {
	raw := []byte(compact(v))
	p.append(true, raw)
	if err := p.write(raw); err != nil {
		ts.Fatalf("%v%s", err, p.context())
	}
}

// request sends a request with an id of ours.
func (p *scriptPeer) request(ts *testscript.TestScript, method string, params any) json.Number {
	p.lastID++
	id := json.Number(strconv.Itoa(p.lastID))
	p.send(ts, map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return id
}

// expect waits for a record that matches; next: the first one that wasn't read
// yet must; skipped: those that earlier expects read past count too.
func (p *scriptPeer) expect(ts *testscript.TestScript, pattern any, next, skipped bool) {
	timer := time.NewTimer(p.state.limit)
	defer timer.Stop()
	at := p.cursor
	if skipped {
		at = 0
	}
	for ; ; at++ {
		e := p.await(ts, at, pattern, timer.C)
		if e.ours || e.matched {
			continue
		}
		if e.bad != nil {
			ts.Fatalf("stdout of %s carries what is no JSON (%v): %q%s", p.name, e.bad, clipText(string(e.raw), 500),
				p.context())
		}
		vars, err := matchJSON(pattern, e.value)
		if err == nil {
			p.take(at)
			p.cursor = max(p.cursor, at+1)
			p.state.bind(ts, vars)
			return
		}
		if next {
			ts.Fatalf("the next record of %s does not match: %v\n%s%s", p.name, err, clipText(string(e.raw), 2000),
				p.context())
		}
	}
}

// await waits for a record of the dialogue; pattern is what it is wanted for.
func (p *scriptPeer) await(ts *testscript.TestScript, at int, pattern any, late <-chan time.Time) scriptEntry {
	for {
		ended := p.gone() // asked first: then nothing comes after what is there
		p.mu.Lock()
		log, changed := p.log, p.changed
		p.mu.Unlock()
		switch {
		case at < len(log):
			return log[at]
		case ended:
			ts.Fatalf("%s ended (%s, %v) before a record matched %s%s", p.name, p.howEnded(), p.readErr,
				compact(pattern), p.context())
		}
		select {
		case <-changed:
		case <-p.exited:
		case <-late:
			ts.Fatalf("waited %v: no record of %s matched %s%s", p.state.limit, p.name, compact(pattern), p.context())
		}
	}
}

// expectNone pings and reads up to the answer: the answer takes the same way as
// what came before it, so nothing of that is still under way.
func (p *scriptPeer) expectNone(ts *testscript.TestScript, pattern any, from int) {
	p.lastID++
	id := fmt.Sprintf("pong-%d", p.lastID)
	p.send(ts, map[string]any{"jsonrpc": "2.0", "id": id, "method": "ping"})
	asked, start := p.asked, p.cursor
	p.expect(ts, map[string]any{"id": id, "method": "$absent"}, false, false)
	end := p.cursor - 1              // without the answer itself
	p.asked, p.cursor = asked, start // what was looked at can still be expected
	p.mu.Lock()
	log := p.log[from:end]
	p.mu.Unlock()
	for _, e := range log {
		if e.ours || e.bad != nil {
			continue
		}
		if _, err := matchJSON(pattern, e.value); err == nil {
			ts.Fatalf("a record of %s matches %s: %s%s", p.name, compact(pattern), clipText(string(e.raw), 2000),
				p.context())
		}
	}
}

// take marks a record as matched, and remembers whom it asks.
func (p *scriptPeer) take(at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &p.log[at]
	e.matched = true
	if req, ok := e.value.(map[string]any); ok && req["method"] != nil && req["id"] != nil {
		p.asked = json.RawMessage(compact(req["id"]))
	}
}

// saidFor joins what the agent of an ACP session said for a prompt that was
// answered: since the session's prompt before it was, if it waited for that.
func (p *scriptPeer) saidFor(id any) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var said strings.Builder
	prompts := map[string]any{} // sessions by the ids of their prompts
	var session any
	for _, e := range p.log {
		m, _ := e.value.(map[string]any)
		params, _ := m["params"].(map[string]any)
		update, _ := params["update"].(map[string]any)
		content, _ := update["content"].(map[string]any)
		key := compact(m["id"])
		switch {
		case e.ours && m["method"] == "session/prompt":
			if prompts[key] = params["sessionId"]; key == compact(id) {
				session = params["sessionId"]
				said.Reset()
			}
		case e.ours:
		case m["method"] == nil && key == compact(id):
			return said.String()
		case m["method"] == nil && session != nil && prompts[key] == session:
			said.Reset()
		case params["sessionId"] == session && update["sessionUpdate"] == "agent_message_chunk":
			text, _ := content["text"].(string)
			said.WriteString(text)
		}
	}
	return said.String()
}

// dialogue prints the last records from the given one on.
func (p *scriptPeer) dialogue(from, width int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, e := range p.log[min(from, len(p.log)):] {
		dir := "<"
		if e.ours {
			dir = ">"
		}
		fmt.Fprintf(&b, "%s %s\n", dir, clipText(string(e.raw), width))
	}
	return b.String()
}

// context is what a failed script shows of a peer.
func (p *scriptPeer) context() string {
	p.mu.Lock()
	from := max(0, len(p.log)-30)
	p.mu.Unlock()
	text := "\n[dialogue]\n" + p.dialogue(from, 400)
	if log := p.stderr.String(); log != "" {
		text += "[stderr]\n" + clipText(log[max(0, len(log)-3000):], 3000)
	}
	return text
}
