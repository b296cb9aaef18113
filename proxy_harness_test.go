package main

// proxy_harness_test.go proves that the script commands work and, more to the point,
// that they fail when they should. It owns harness-peer, a small program that
// speaks JSON-RPC on stdio and misbehaves when asked; testdata/harness holds the
// scripts that must pass, the table below those that must not. Nothing here
// needs the program itself.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestHarness(t *testing.T) {
	testscript.Run(t, scriptParams(t, filepath.Join("testdata", "harness")))
}

func TestHarnessScriptsThatMustFail(t *testing.T) {
	t.Parallel()
	const start = "start p harness-peer serve\n"
	// Only a script that waits for nothing but what never comes gets a short limit.
	soon, limit := 200*time.Millisecond, waitLimit(t)
	tests := []struct {
		name, script, want string
		limit              time.Duration
	}{
		{"no match before the end", start + "request p bye\nexpect p '{\"method\":\"never\"}'\n", "ended (exit code 0", limit},
		{"no match in time", start + "expect p '{\"method\":\"never\"}'\n", "no record of p matched", soon},
		{"next is another", start + "request p notify '{\"count\":1}'\nexpect -next p '{\"id\":1}'\n", "the next record of p does not match", limit},
		{"none, but there is one", start + "request p notify '{\"count\":1}'\nexpect -none p '{\"method\":\"note\"}'\n", "matches {\"method\":\"note\"}", limit},
		{"never, but it was read", start + "request p notify '{\"count\":1}'\nexpect p '{\"method\":\"note\"}'\nexpect -never p '{\"method\":\"note\"}'\n", "matches {\"method\":\"note\"}", limit},
		{"junk on stdout", start + "request p junk\nexpect p '{\"id\":1}'\n", "no JSON", limit},
		{"half a record", start + "request p half\nexpect p '{\"id\":9}'\n", "middle of a record", limit},
		{"wrong exit code", start + "request p bye '{\"code\":3}'\nexit p 0\n", "exit code 3, want code 0", limit},
		{"never exits", start + "exit p\n", "still runs", soon},
		{"reply to nobody", start + "reply p '{}'\n", "nothing to reply to", limit},
		{"unknown peer", "hangup q\n", "no peer \"q\"", limit},
		{"a name twice", start + start, "still runs", limit},
		{"unknown variable", start + "send p '{\"id\":\"$nobody\"}'\n", "no variable", limit},
		{"bad argument", start + "send p '{'\n", "is not JSON", limit},
		{"unknown flag", "expect -soon p '{}'\n", "usage", limit},
		{"! where it means nothing", "! hangup p\n", "unsupported", limit},
		{"stderr silent", start + "request p bye\nerrlog p never\n", "nothing like", limit},
		{"stderr not silent", start + "request p complain '{\"text\":\"ouch\"}'\nexpect p '{\"id\":1}'\nerrlog p ouch\n! errlog p ouch\n", "has \"ouch\"", limit},
		{"file never comes", "waitfile nofile\n", "waited", soon},
		{"file other", "jsonfile f.json '{\"a\":2}'\n-- f.json --\n{\"a\":1}\n", "want 2, got 1", soon},
		{"file matches", "! jsonfile f.json '{\"a\":1}'\n-- f.json --\n{\"a\":1}\n", "matches", limit},
		{"missing file proves nothing", "! jsonfile f.json '{}'\n", "proves nothing", limit},
		{"a stranger's pid", "signal 1 TERM\n", "was not started", limit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "s.txtar")
			if err := os.WriteFile(file, []byte(tt.script), 0o600); err != nil {
				t.Fatal(err)
			}
			params := scriptParams(t, "")
			params.Files = []string{file}
			params.Setup = func(env *testscript.Env) error { return setupScript(env, tt.limit) }
			log := runFailing(t, params)
			if !strings.Contains(log, tt.want) {
				t.Errorf("log does not tell %q:\n%s", tt.want, log)
			}
		})
	}
}

// runFailing runs scripts that must fail, and returns their log.
func runFailing(t *testing.T, params testscript.Params) string {
	t.Helper()
	r := &scriptResult{}
	func() {
		defer func() {
			if e := recover(); e != nil && e != any(r) {
				panic(e)
			}
		}()
		testscript.RunT(r, params)
	}()
	if !r.failed {
		t.Errorf("script passed:\n%s", r.log.String())
	}
	return r.log.String()
}

// scriptResult stands in for testing.T where a script must fail.
type scriptResult struct {
	log    strings.Builder
	failed bool
}

func (r *scriptResult) Skip(args ...any)  { panic(r) }
func (r *scriptResult) Fatal(args ...any) { r.Log(args...); r.FailNow() }
func (r *scriptResult) Parallel()         {}
func (r *scriptResult) Log(args ...any)   { fmt.Fprintln(&r.log, args...) }
func (r *scriptResult) FailNow()          { r.failed = true; panic(r) }
func (r *scriptResult) Verbose() bool     { return true }

func (r *scriptResult) Run(name string, f func(testscript.T)) {
	defer func() {
		if e := recover(); e != nil && e != any(r) {
			panic(e)
		}
	}()
	f(r)
}

// TestStopReachesWhatAPeerLeft: clean-up after a failed test must leave nothing,
// not even what moved to another session.
func TestStopReachesWhatAPeerLeft(t *testing.T) {
	needProcFS(t)
	answered := make(chan int, 1)
	p, err := startPeer(peerConfig{
		name: "p", path: lookHarnessPeer(t), args: []string{"serve"}, env: os.Environ(), limit: waitLimit(t),
		onRecord: func(raw []byte) {
			var msg struct{ Result struct{ PID int } }
			if err := json.Unmarshal(raw, &msg); err != nil {
				t.Errorf("record %q: %v", raw, err)
			}
			answered <- msg.Result.PID
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if err := p.write([]byte(`{"id":1,"method":"spawn"}`)); err != nil {
		t.Fatal(err)
	}
	pid := <-answered
	if !processAlive(pid) {
		t.Fatalf("grandchild %d does not run", pid)
	}
	p.hangup()
	if err := p.waitExit(waitLimit(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.waitAllGone(time.Millisecond); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("\t%d ", pid)) {
		t.Errorf("waitAllGone = %v, want the command line of %d", err, pid)
	}
	p.stop()
	if !poll(waitLimit(t), func() bool { return !processAlive(pid) }) {
		t.Errorf("grandchild %d outlived stop", pid)
	}
}

// TestAPeerThatDoesNotRead: a paused reader takes at most one record more, loses
// none, and can be stopped while its writer is blocked.
func TestAPeerThatDoesNotRead(t *testing.T) {
	const notes = 20000 // more than the pipes hold
	limit := waitLimit(t)
	read := make(chan struct{}, 2*notes)
	p, err := startPeer(peerConfig{
		name: "p", path: lookHarnessPeer(t), args: []string{"serve"}, env: os.Environ(),
		limit: limit, onRecord: func([]byte) { read <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	ask := func() {
		if err := p.write(fmt.Appendf(nil, `{"id":1,"method":"notify","params":{"count":%d}}`, notes)); err != nil {
			t.Fatal(err)
		}
	}
	p.pauseReading()
	ask()
	if n := len(read); n > 1 {
		t.Errorf("%d records were read while paused", n)
	}
	p.resumeReading()
	if !poll(limit, func() bool { return len(read) == notes+1 }) {
		t.Fatalf("%d records were read after it went on, want %d", len(read), notes+1)
	}
	p.pauseReading()
	ask()
}

func lookHarnessPeer(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("harness-peer") // testscript.Main put it on PATH
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// harnessPeer is the program: "environ" prints its environment, "serve" and
// "serve-frames" answer requests, "linger" stays until it is killed.
func harnessPeer(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	switch args[0] {
	case "environ":
		return exitCode(json.NewEncoder(stdout).Encode(os.Environ()))
	case "linger":
		fmt.Fprintln(stdout, "ready")
		<-make(chan struct{})
	case "serve", "serve-frames":
		s := harnessServer{in: bufio.NewReader(stdin), header: args[0] == "serve-frames", out: stdout, err: stderr}
		return s.serve()
	}
	fmt.Fprintf(stderr, "unknown mode %q\n", args[0])
	return 2
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

type harnessServer struct {
	in       *bufio.Reader
	header   bool
	out, err io.Writer
}

// harnessMessage is any JSON-RPC message.
type harnessMessage struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params struct {
		Count int
		Code  int
		Text  string
	} `json:"-"`
	RawParams json.RawMessage `json:"params,omitempty"`
	Result    any             `json:"result,omitempty"`
	Error     any             `json:"error,omitempty"`
}

func (s *harnessServer) put(v any) {
	text := compact(v)
	if s.header {
		fmt.Fprintf(s.out, "Content-Length: %d\r\n\r\n%s", len(text), text)
	} else {
		fmt.Fprintln(s.out, text)
	}
}

func (s *harnessServer) serve() int {
	for {
		raw, err := readRecord(s.in, s.header)
		if err != nil {
			return exitCode(nil)
		}
		var m harnessMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			s.put(map[string]any{"error": "bad JSON", "got": string(raw)})
			continue
		}
		if m.RawParams != nil {
			_ = json.Unmarshal(m.RawParams, &m.Params) // what has another shape is for echo
		}
		answer := func(result any) { s.put(map[string]any{"id": m.ID, "result": result}) }
		switch m.Method {
		case "": // an answer to "ask"
			s.put(map[string]any{"method": "answered", "params": json.RawMessage(raw)})
		case "ask":
			s.put(map[string]any{"id": "ask-1", "method": "please", "params": m.RawParams})
			answer("asked")
		case "notify":
			for i := range m.Params.Count {
				s.put(map[string]any{"method": "note", "params": i})
			}
			answer("noted")
		case "initialize":
			answer(map[string]any{"protocolVersion": "2025-06-18", "params": m.RawParams})
		case "junk":
			fmt.Fprintln(s.out, "hello, I am no JSON")
		case "half":
			fmt.Fprint(s.out, `{"id":`)
			return 0
		case "complain":
			fmt.Fprintln(s.err, m.Params.Text)
			answer("complained")
		case "spawn":
			answer(map[string]any{"pid": s.spawn()})
		case "bye":
			return m.Params.Code
		case "notifications/initialized":
			s.put(map[string]any{"method": "welcome"})
		default:
			answer(map[string]any{"method": m.Method, "params": m.RawParams, "env": os.Getenv("HARNESS_WORD")})
		}
	}
}

// spawn starts a grandchild in a session of its own, and leaves it.
func (s *harnessServer) spawn() int {
	self, err := os.Executable()
	if err != nil {
		return 0
	}
	cmd := exec.Command(self, "linger")
	startInOwnGroup(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return 0
	}
	_, _ = bufio.NewReader(out).ReadString('\n') // it runs, and under its own name
	return cmd.Process.Pid
}
