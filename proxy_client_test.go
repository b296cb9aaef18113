package main

// proxy_client_test.go owns the two rigs that tests talk to, and the client that they are driven with. A peer speaks
// in records: a process on stdio (startPeer) or, where goroutines are to be counted, a function of this process over
// pipes (startPipe); script commands (proxy_script_test.go) and testClient stand on it. Every process carries a
// marker in its environment that all it starts inherit, whatever session, group or parent they move to: so clean-up
// finds what a test left. Records are told apart without wire_frame.go on purpose: a test must not judge it by
// itself. The client has requests in flight at once, notifications, the server's own requests, cancellation. It
// dispatches on the reading goroutine and keeps an answer that nobody waits for as a stray, so that a late or a
// second answer is never overlooked. It knows MCP's tool calls; with ACP (acp_rig_test.go) and with a codex
// app-server it speaks by request and notify.

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// wireMessage is any JSON-RPC message.
type wireMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *wireFault      `json:"error"`
}

// wireFault is a JSON-RPC error.
type wireFault struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// testClient is a client of one peer. The hooks are set before anything is sent.
type testClient struct {
	*livePeer
	tb testing.TB

	tap func(ours bool, raw []byte) // hook: every record, before it is sent or looked at
	// hook: every message, with the call it answers, on the reading goroutine
	heard  func(m wireMessage, about *pendingCall)
	skip   func(raw []byte) bool // hook: a record that is not looked at and not kept
	mayEnd bool                  // the peer is killed at any moment: writing to it may fail

	mu      sync.Mutex // guards the fields below
	lastID  int
	calls   map[string]*pendingCall // by raw id, until answered
	notes   []wireMessage           // notifications, in order
	asks    []wireMessage           // the server's requests not yet taken
	strays  []string                // answers nobody waits for, and what is no message
	changed chan struct{}           // closed and replaced when notes, asks or strays grow
}

func newTestClient(tb testing.TB) *testClient {
	return &testClient{tb: tb, calls: map[string]*pendingCall{}, changed: make(chan struct{})}
}

// startClient starts the process; it is stopped with the test.
func startClient(tb testing.TB, cfg peerConfig) *testClient {
	tb.Helper()
	c := newTestClient(tb)
	c.startProcess(cfg)
	return c
}

// startProcess is startClient for a client that has its hooks.
func (c *testClient) startProcess(cfg peerConfig) {
	c.tb.Helper()
	cfg.onRecord, cfg.limit = c.dispatch, waitLimit(c.tb)
	live, err := startPeer(cfg)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.livePeer = live
	c.tb.Cleanup(live.stop)
}

// servePipe has serve, which runs in this process, be the peer. The test hangs up and waits for the exit.
func (c *testClient) servePipe(name string, serve func(in io.Reader, out io.Writer)) {
	c.livePeer = startPipe(peerConfig{name: name, limit: waitLimit(c.tb), onRecord: c.dispatch}, serve)
}

// dispatch runs on the reading goroutine, in the order of the records.
func (c *testClient) dispatch(raw []byte) {
	if c.skip != nil && c.skip(raw) {
		return
	}
	var m wireMessage
	err := json.Unmarshal(raw, &m)
	if c.tap != nil {
		c.tap(false, raw)
	}
	var call *pendingCall
	if err == nil && m.Method == "" {
		c.mu.Lock()
		call = c.calls[string(m.ID)]
		delete(c.calls, string(m.ID))
		c.mu.Unlock()
	}
	if c.heard != nil && err == nil {
		c.heard(m, call)
	}
	if call != nil {
		call.answer <- m // has room
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.strays = append(c.strays, fmt.Sprintf("no JSON (%v): %s", err, clipText(string(raw), 300)))
	case m.Method == "":
		c.strays = append(c.strays, "answer to nobody: "+clipText(string(raw), 300))
	case m.ID != nil:
		c.asks = append(c.asks, m)
	default:
		c.notes = append(c.notes, m)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// pendingCall is a request under way.
type pendingCall struct {
	c      *testClient
	id     json.RawMessage
	what   string
	about  any // what the test knows of the call
	answer chan wireMessage
}

// start sends a request. The id is a number of ours.
func (c *testClient) start(method string, params any) *pendingCall {
	c.tb.Helper()
	return c.startAbout(nil, method, params)
}

// startAbout is start for a client whose hook wants to know what it asked.
func (c *testClient) startAbout(about any, method string, params any) *pendingCall {
	c.tb.Helper()
	c.mu.Lock()
	c.lastID++
	p := &pendingCall{c: c, id: json.RawMessage(strconv.Itoa(c.lastID)), what: method, about: about,
		answer: make(chan wireMessage, 1)}
	c.calls[string(p.id)] = p
	c.mu.Unlock()
	c.send(map[string]any{"jsonrpc": "2.0", "id": p.id, "method": method, "params": params})
	return p
}

func (c *testClient) send(v any) {
	c.tb.Helper()
	rec := []byte(compact(v))
	if c.tap != nil {
		c.tap(true, rec)
	}
	if err := c.write(rec); err != nil && !c.mayEnd {
		c.tb.Fatalf("%v%s", err, c.told())
	}
}

func (c *testClient) notify(method string, params any) {
	c.tb.Helper()
	c.send(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

// wait waits for the answer, whatever it is.
func (p *pendingCall) wait() wireMessage {
	p.c.tb.Helper()
	timer := time.NewTimer(p.c.limit)
	defer timer.Stop()
	select {
	case m := <-p.answer:
		return m
	case <-timer.C:
		p.c.tb.Fatalf("waited %v: no answer to %s%s", p.c.limit, p.what, p.c.told())
	case <-p.c.exited:
	}
	select {
	case m := <-p.answer: // its last words
		return m
	default:
		p.c.tb.Fatalf("%s ended (%s) without answering %s%s", p.c.name, p.c.howEnded(), p.what, p.c.told())
	}
	panic("BUG: Fatalf returned")
}

// result waits for an answer that is no error, and decodes it.
func (p *pendingCall) result(into any) {
	p.c.tb.Helper()
	m := p.wait()
	if m.Error != nil {
		p.c.tb.Fatalf("%s: error %d: %s (data %s)%s", p.what, m.Error.Code, m.Error.Message, m.Error.Data, p.c.told())
	}
	if into != nil {
		wantNil(p.c.tb, json.Unmarshal(m.Result, into))
	}
}

// answered tells whether the answer has come.
func (p *pendingCall) answered() bool { return len(p.answer) > 0 }

// cancel sends notifications/cancelled; an answer after it is a stray.
func (p *pendingCall) cancel(reason string) {
	p.c.tb.Helper()
	p.c.mu.Lock()
	delete(p.c.calls, string(p.id))
	p.c.mu.Unlock()
	p.c.notify("notifications/cancelled", map[string]any{"requestId": p.id, "reason": reason})
}

// initialize does the legacy handshake and returns the server's result.
func (c *testClient) initialize(version string, capabilities any) map[string]any {
	c.tb.Helper()
	var res map[string]any
	c.start("initialize", map[string]any{
		"protocolVersion": version, "capabilities": capabilities,
		"clientInfo": map[string]any{"name": "suite", "version": "1"},
	}).result(&res)
	c.notify("notifications/initialized", map[string]any{})
	return res
}

// callResult is the result of tools/call.
type callResult struct {
	IsError bool `json:"isError"`
	Content []struct{ Type, Text string }
	Turn    turnReply `json:"structuredContent"`
	raw     json.RawMessage
}

// turnReply is the structuredContent of a turn.
type turnReply struct {
	AgentID    string `json:"agent_id"`
	ThreadID   string `json:"threadId"`
	TurnID     string `json:"turn_id"`
	Content    string `json:"content"`
	Identity   string `json:"identity"`
	Team       string `json:"team"`
	Status     string `json:"status"`
	TurnStatus string `json:"turn_status"`
	Sandbox    string `json:"sandbox"`
	Approval   string `json:"approval_policy"`
	Declined   []struct{ Kind, Action, Reason string }
	Worktree   worktreePlace
}

// call starts a tools/call.
func (c *testClient) call(tool string, args map[string]any) *pendingCall {
	c.tb.Helper()
	p := c.start("tools/call", map[string]any{"name": tool, "arguments": args})
	p.what = "tool " + tool
	return p
}

// tool waits for a tool's result, isError or not; a JSON-RPC error fails the test.
func (p *pendingCall) tool() callResult {
	p.c.tb.Helper()
	var raw json.RawMessage
	p.result(&raw)
	res := callResult{raw: raw}
	wantNil(p.c.tb, json.Unmarshal(raw, &res))
	return res
}

// structured decodes the structuredContent of a tool's result, which must be no error.
func structured(p *pendingCall, into any) {
	p.c.tb.Helper()
	res := p.tool()
	if res.IsError {
		p.c.tb.Fatalf("%s: %s", p.what, res.raw)
	}
	if into != nil {
		wantNil(p.c.tb, json.Unmarshal(rawField(res.raw, "structuredContent"), into))
	}
}

// turn waits for a turn that ran well.
func (p *pendingCall) turn() turnReply {
	p.c.tb.Helper()
	res := p.tool()
	if res.IsError || res.Turn.TurnStatus != "completed" {
		p.c.tb.Fatalf("%s: the turn did not complete: %s%s", p.what, res.raw, p.c.told())
	}
	return res.Turn
}

// fault waits for a JSON-RPC error with that code.
func (p *pendingCall) fault(code int) *wireFault {
	p.c.tb.Helper()
	m := p.wait()
	if m.Error == nil || m.Error.Code != code {
		p.c.tb.Fatalf("%s: want error %d, got %+v and %s", p.what, code, m.Error, clipText(string(m.Result), 500))
	}
	return m.Error
}

// awaitAsk takes the next request of the server, which must be this one.
func (c *testClient) awaitAsk(method string) wireMessage {
	c.tb.Helper()
	var got wireMessage
	c.await("a request "+method, func() bool {
		if len(c.asks) == 0 {
			return false
		}
		got, c.asks = c.asks[0], c.asks[1:]
		return true
	})
	if got.Method != method {
		c.tb.Fatalf("%s asks %s %s, want %s", c.name, got.Method, clipText(string(got.Params), 500), method)
	}
	return got
}

// reply answers a request of the server.
func (c *testClient) reply(ask wireMessage, result any) {
	c.tb.Helper()
	c.send(map[string]any{"jsonrpc": "2.0", "id": ask.ID, "result": result})
}

// awaitNote waits for the first notification, old or new, that ok likes.
func (c *testClient) awaitNote(what string, ok func(wireMessage) bool) wireMessage {
	c.tb.Helper()
	var got wireMessage
	at := 0
	c.await(what, func() bool {
		for ; at < len(c.notes); at++ {
			if ok(c.notes[at]) {
				got = c.notes[at]
				return true
			}
		}
		return false
	})
	return got
}

// await waits until ok, which is asked under the lock whenever something came.
func (c *testClient) await(what string, ok func() bool) {
	c.tb.Helper()
	timer := time.NewTimer(c.limit)
	defer timer.Stop()
	for {
		ended := c.gone() // asked first: then ok sees all there will ever be
		c.mu.Lock()
		found, changed := ok(), c.changed
		c.mu.Unlock()
		if found {
			return
		}
		if ended {
			c.tb.Fatalf("%s ended (%s) while the test waited for %s%s", c.name, c.howEnded(), what, c.told())
		}
		select {
		case <-changed:
		case <-c.exited:
		case <-timer.C:
			c.tb.Fatalf("waited %v for %s%s", c.limit, what, c.told())
		}
	}
}

// noStrays fails if anything came that nobody asked for: a late answer to a
// cancelled call, a second answer, junk. Ask it after a ping or the exit.
func (c *testClient) noStrays() {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.strays {
		c.tb.Errorf("%s: %s", c.name, s)
	}
}

// finish hangs up, and wants a clean end that leaves no process.
func (c *testClient) finish() {
	c.tb.Helper()
	c.hangup()
	if err := c.waitExit(c.limit); err != nil {
		c.tb.Fatalf("%v%s", err, c.told())
	}
	if c.cmd != nil && c.cmd.ProcessState.ExitCode() != 0 {
		c.tb.Errorf("%s ended with %s, want code 0%s", c.name, c.howEnded(), c.told())
	}
	if err := c.waitAllGone(c.limit); err != nil {
		c.tb.Error(err)
	}
	c.noStrays()
}

// told is the end of stderr, for failures.
func (c *testClient) told() string {
	log := c.stderr.String()
	if log == "" {
		return ""
	}
	return "\n[stderr of " + c.name + "]\n" + log[max(0, len(log)-3000):]
}

// programPath is the program that a test drives as a process. It is the test binary itself, under the name that
// testscript.Main put on PATH: so an ordinary run builds nothing. Where the program must be as a user gets it,
// without the race detector and the tests' code, it is built once for all tests of the run: for benchmarks, real
// Codex binaries, and under -race, where it would be too slow and too large.
func programPath(tb testing.TB) string {
	tb.Helper()
	_, measures := tb.(*testing.B)
	var path string
	var err error
	if measures || os.Getenv("CODEX_BINS") != "" || underRace() {
		path, err = builtProgram()
	} else {
		path, err = exec.LookPath("atm-agent-mcp")
	}
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// builtProgram builds the program when it is called first.
var builtProgram = sync.OnceValues(func() (string, error) {
	out := filepath.Join(builtDir(), programName())
	if err := os.Mkdir(builtDir(), 0o700); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-race=false", "-buildvcs=false", "-o", out, ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, text)
	}
	return out, nil
})

// builtDir is where this run builds the program; testRun removes it.
func builtDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("atm-agent-mcp-test-%d", os.Getpid()))
}

// underRace tells whether the race detector is on.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// peerConfig says what to run. Zero fields are good defaults but for path and env.
type peerConfig struct {
	name  string
	path  string
	args  []string
	env   []string // the whole environment
	dir   string
	limit time.Duration // of one write to a process that doesn't read
	// each record of stdout, in order, on the reading goroutine; nil: whoever starts the peer reads stdout
	onRecord func([]byte)
}

// livePeer is one started peer. Its methods may be called from any goroutine.
type livePeer struct {
	peerConfig
	stdin   io.WriteCloser
	stdout  io.ReadCloser
	writing sync.Mutex    // keeps records whole
	exited  chan struct{} // closed when the peer has ended and its output was read to the end
	readErr error         // why reading ended early; valid once exited is closed

	// The process; all empty over a pipe.
	marker string // in the environment of the process and of all that it starts
	cmd    *exec.Cmd
	group  *procGroup
	stderr peerLog
}

// outputDelay is how long a grandchild may hold the output of a process that has ended.
const outputDelay = 5 * time.Second

// startPeer starts a process.
func startPeer(cfg peerConfig) (*livePeer, error) {
	p := &livePeer{peerConfig: cfg, marker: rand.Text(), exited: make(chan struct{})}
	p.cmd = exec.Command(cfg.path, cfg.args...)
	p.cmd.Dir = cfg.dir
	p.cmd.Env = append(append([]string{}, cfg.env...), markerVar+"="+p.marker, "GORACE=atexit_sleep_ms=10")
	p.cmd.WaitDelay = outputDelay
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, theirs, err := os.Pipe() // not StdoutPipe: Wait would close it before all of it was read
	if err != nil {
		return nil, err
	}
	p.stdout, p.cmd.Stdout = stdout, theirs
	p.group = newProcGroup(p.cmd)
	err = p.cmd.Start()
	theirs.Close()
	if err != nil {
		stdout.Close()
		return nil, fmt.Errorf("starting %s: %w", cfg.name, err)
	}
	if err := p.group.attach(p.cmd); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, err
	}
	read := p.startReading()
	go func() { // ends with the process; waited for by stop
		_ = p.cmd.Wait() // how it ended is in ProcessState
		p.group.close()
		_ = stdout.SetReadDeadline(time.Now().Add(outputDelay))
		<-read
		close(p.exited)
	}()
	return p, nil
}

// startPipe runs serve in this process as the peer, until serve returns.
func startPipe(cfg peerConfig, serve func(in io.Reader, out io.Writer)) *livePeer {
	p := &livePeer{peerConfig: cfg, exited: make(chan struct{})}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	p.stdin, p.stdout = stdin, stdout
	read := p.startReading()
	go func() { // ends with serve, which the end of its input ends; waited for by stop
		serve(in, out)
		in.Close()
		out.Close()
		<-read
		close(p.exited)
	}()
	return p
}

// startReading reads stdout to its end in a goroutine of its own.
func (p *livePeer) startReading() (done chan struct{}) {
	done = make(chan struct{})
	if p.onRecord == nil {
		close(done)
		return done
	}
	go func() { // ends with stdout; the caller waits for done
		defer close(done)
		p.readErr = p.readAll(bufio.NewReaderSize(p.stdout, 1<<16))
		p.stdout.Close() // what comes after a broken frame must not block its writer
	}()
	return done
}

func (p *livePeer) readAll(r *bufio.Reader) error {
	for {
		rec, err := readRecord(r)
		if err == io.EOF || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) ||
			errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s's stdout: %w", p.name, err)
		}
		p.onRecord(rec)
	}
}

// write sends one record.
func (p *livePeer) write(record []byte) error {
	return p.writeRaw(append(slices.Clip(record), '\n'))
}

// writeRaw sends bytes as they are.
func (p *livePeer) writeRaw(data []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if w, ok := p.stdin.(*os.File); ok && p.limit > 0 {
		_ = w.SetWriteDeadline(time.Now().Add(p.limit)) // not every system's pipes have deadlines
	}
	if _, err := p.stdin.Write(data); err != nil {
		return fmt.Errorf("writing to %s: %w", p.name, err)
	}
	return nil
}

// hangup closes stdin.
func (p *livePeer) hangup() { _ = p.stdin.Close() }

// signal sends a signal by its name, to the process alone.
func (p *livePeer) signal(name string) error {
	sig, err := signalByName(name)
	if err != nil {
		return err
	}
	return p.cmd.Process.Signal(sig)
}

func signalByName(name string) (os.Signal, error) {
	sig, ok := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "KILL": os.Kill,
		"QUIT": syscall.SIGQUIT}[name]
	if !ok {
		return nil, fmt.Errorf("unknown signal %q", name)
	}
	return sig, nil
}

// howEnded says how a peer that has ended did.
func (p *livePeer) howEnded() string {
	if p.cmd == nil {
		return "end of the pipe"
	}
	return exitReason(p.cmd.ProcessState)
}

// waitExit waits until the process is reaped and its output read.
func (p *livePeer) waitExit(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.readErr
	case <-timer.C:
		return fmt.Errorf("%s still runs after %v", p.name, limit)
	}
}

// gone tells whether the process has ended.
func (p *livePeer) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// waitAllGone waits until neither the process nor anything it started is left. Output that was cut is told besides.
func (p *livePeer) waitAllGone(limit time.Duration) error {
	err := p.waitExit(limit)
	if err != nil && !p.gone() {
		return err
	}
	var left []int
	if !poll(limit, func() bool { left = p.leftovers(); return len(left) == 0 }) {
		err = errors.Join(err, fmt.Errorf("%s is gone, but left running:%s", p.name, describeProcesses(left)))
	}
	return err
}

// stop kills what is left of a process, by pid and by its own group, and waits. Over a pipe it hangs up and waits.
func (p *livePeer) stop() {
	if p.cmd != nil && !p.gone() {
		p.group.kill()
	}
	p.hangup()
	p.stdout.Close()
	<-p.exited // at most after outputDelay
	for _, pid := range p.leftovers() {
		if proc, err := os.FindProcess(pid); err == nil {
			_ = proc.Kill()
		}
	}
}

// leftovers are the living processes of the peer: itself, and what it started.
func (p *livePeer) leftovers() []int {
	if p.cmd == nil {
		return nil
	}
	return markedProcesses(p.marker)
}

// errHalfRecord is output that ends in the middle of a line: what a process leaves that exits while it writes.
var errHalfRecord = errors.New("output ends in the middle of a record")

// readRecord reads one record.
func readRecord(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err == io.EOF && len(line) > 0 {
		return nil, fmt.Errorf("%w: %q", errHalfRecord, clipText(string(line), 200))
	}
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// poll looks every few milliseconds until ok or limit. For what gives no sign of
// its own, like a file or a process's end.
func poll(limit time.Duration, ok func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	pause := 5 * time.Millisecond
	if runtime.GOOS == "windows" {
		pause = 50 * time.Millisecond // who reads a file keeps others from replacing it
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if ok() {
			return true
		}
		select {
		case <-timer.C:
			return ok()
		case <-tick.C:
		}
	}
}

// waitLimit is how long one wait of a test may take: a tenth of what go test
// gives the whole, so that a failure is told before the deadline kills the test.
func waitLimit(tb testing.TB) time.Duration {
	const most = time.Minute
	t, ok := tb.(*testing.T)
	if !ok {
		return most // benchmarks have no deadline
	}
	end, ok := t.Deadline()
	if !ok {
		return most
	}
	return min(most, max(time.Until(end)/10, time.Second))
}

// peerLog is a log, stderr for one, that is read while it is written.
type peerLog struct {
	mu  sync.Mutex // guards the field below
	buf bytes.Buffer
}

func (b *peerLog) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *peerLog) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// markerVar names the environment variable that holds a peer's marker.
const markerVar = "ATM_TEST_PEER"

// hasProcFS tells whether processes can be looked for: elsewhere than on Linux none is found, and a test that needs
// them skips by needProcFS.
func hasProcFS() bool {
	if runtime.GOOS == "windows" {
		return false // what Wine shows is Linux's, where processes have other numbers
	}
	_, err := os.Stat("/proc/self/environ")
	return err == nil
}

func needProcFS(tb testing.TB) {
	tb.Helper()
	if !hasProcFS() {
		tb.Skip("looks at processes in /proc, which this system hasn't")
	}
}

// needUnix leaves a test out on Windows, and says why.
func needUnix(tb testing.TB, why string) {
	tb.Helper()
	if runtime.GOOS == "windows" {
		tb.Skip("on Windows: " + why)
	}
}

// needGit leaves a test out where git isn't installed.
func needGit(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		tb.Skipf("runs git: %v", err)
	}
}

// oddName is a name that a file can have and that git quotes.
func oddName() string {
	if runtime.GOOS == "windows" { // its names have no line ends
		return "it's ä"
	}
	return "line's\nend "
}

// systemPath is an absolute path, which tests write as Unix has it, as this system has it: with a drive on Windows.
func systemPath(path string) string {
	if runtime.GOOS != "windows" {
		return path
	}
	return "C:" + filepath.FromSlash(path)
}

var jsonPath = regexp.MustCompile(
	`(^|"(cwd|path|absolute_file_path|savedPath|move_?[pP]ath|grantRoot|additionalDirectories)":)\[?"/[^"]*"`)

// systemPaths does that in a JSON text. In the words of commands it is done to paths below /w alone.
func systemPaths(text string) string {
	if runtime.GOOS != "windows" {
		return text
	}
	text = strings.NewReplacer(`"uri":"file:///`, `"uri":"file:///C:/`, " /w/", " C:/w/").Replace(text)
	return jsonPath.ReplaceAllStringFunc(text, func(field string) string {
		key, path, _ := strings.Cut(field, `"/`)
		return key + `"C:\\` + strings.ReplaceAll(path, "/", `\\`)
	})
}

// inUnixPaths is the way back, for a text that is compared: of what was wanted, too, since it takes every escaped
// backslash for one of a path.
func inUnixPaths(text string) string {
	if runtime.GOOS != "windows" {
		return text
	}
	return strings.NewReplacer("/C:", "", `C:\\`, "/", `C:\`, "/", "C:/", "/", `\\`, "/").Replace(text)
}

// notUnderWine leaves a test out where Wine differs from Windows, and says how.
func notUnderWine(tb testing.TB, how string) {
	tb.Helper()
	if runtime.GOOS == "windows" && os.Getenv("WINEPREFIX") != "" {
		tb.Skip("under Wine: " + how)
	}
}

// markedProcesses returns the living processes that inherited the marker.
func markedProcesses(marker string) []int {
	want := []byte(markerVar + "=" + marker)
	var found []int
	for _, pid := range allProcesses() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue // gone, or not ours to look at
		}
		for _, v := range bytes.Split(env, []byte{0}) {
			if bytes.Equal(v, want) && processAlive(pid) {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// childProcesses returns the living direct children of pid.
func childProcesses(pid int) []int {
	var found []int
	for _, p := range allProcesses() {
		if state, parent := processStat(p); parent == pid && state != 'Z' && state != 'X' {
			found = append(found, p)
		}
	}
	return found
}

func allProcesses() []int {
	if !hasProcFS() {
		return nil
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processAlive is false for a zombie too: it runs nothing any more.
func processAlive(pid int) bool {
	state, _ := processStat(pid)
	return state != 0 && state != 'Z' && state != 'X'
}

// processStat returns the state letter and the parent, zeros for nobody.
func processStat(pid int) (state byte, parent int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The command's name may hold spaces and parentheses; the last one ends it.
	_, rest, ok := strings.Cut(string(data[max(0, bytes.LastIndexByte(data, ')')):]), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0][0], parent
}

// describeProcesses lists command lines for a failure's message.
func describeProcesses(pids []int) string {
	var b strings.Builder
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		fmt.Fprintf(&b, "\n\t%d %s", pid, clipText(strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")),
			160))
	}
	return b.String()
}
