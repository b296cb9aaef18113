package main

// proxy_process_test.go owns the rig that tests talk to: a peer that speaks in
// records, which is a process on stdio (startPeer) or, where goroutines are to be
// counted, a function of this process over pipes (startPipe). Script commands
// (proxy_scriptpeer_test.go) and the client of proxy_client_test.go stand on it. Every
// process carries a marker in its environment that all it starts inherit, whatever
// session, group or parent they move to: so clean-up finds what a test left. The
// framing is written anew on purpose: a test must not judge wire_frame.go by wire_frame.go.

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// peerConfig says what to run. Zero fields are good defaults but for path and env.
type peerConfig struct {
	name     string
	path     string
	args     []string
	env      []string // the whole environment
	dir      string
	limit    time.Duration // of one write to a process that doesn't read
	header   bool          // Content-Length frames both ways, else newlines
	onRecord func([]byte)  // each record of stdout, in order, on the reading goroutine
}

// livePeer is one started peer. Its methods may be called from any goroutine.
type livePeer struct {
	peerConfig
	stdin   io.WriteCloser
	stdout  *io.PipeReader
	writing sync.Mutex    // keeps records whole
	exited  chan struct{} // closed when the peer has ended and its output was read to the end
	readErr error         // why reading ended early; valid once exited is closed

	// The process; all empty over a pipe.
	marker string // in the environment of the process and of all that it starts
	cmd    *exec.Cmd
	group  *procGroup
	stderr peerLog

	mu   sync.Mutex    // guards the field below
	hold chan struct{} // not nil while reading is paused; closed to go on
}

// startPeer starts a process.
func startPeer(cfg peerConfig) (*livePeer, error) {
	p := &livePeer{peerConfig: cfg, marker: rand.Text(), exited: make(chan struct{})}
	p.cmd = exec.Command(cfg.path, cfg.args...)
	p.cmd.Dir = cfg.dir
	p.cmd.Env = append(append([]string{}, cfg.env...), markerVar+"="+p.marker, "GORACE=atexit_sleep_ms=10")
	p.cmd.WaitDelay = 5 * time.Second // a grandchild may hold the pipes
	pr, pw := io.Pipe()
	p.stdout = pr
	p.cmd.Stdout = pw
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.group = newProcGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
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
		_ = p.group.close()
		pw.Close()
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
	go func() { // ends with stdout; the caller waits for done
		defer close(done)
		p.readErr = p.readAll(bufio.NewReaderSize(p.stdout, 1<<16))
		p.stdout.CloseWithError(p.readErr) // what comes after a broken frame must not block its writer
	}()
	return done
}

func (p *livePeer) readAll(r *bufio.Reader) error {
	for {
		p.mu.Lock()
		hold := p.hold
		p.mu.Unlock()
		if hold != nil {
			<-hold
		}
		rec, err := readRecord(r, p.header)
		if err == io.EOF || errors.Is(err, io.ErrClosedPipe) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s's stdout: %w", p.name, err)
		}
		if p.onRecord != nil {
			p.onRecord(rec)
		}
	}
}

// pauseReading makes this a client that doesn't read: at most one more record is
// taken until resumeReading.
func (p *livePeer) pauseReading() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil {
		p.hold = make(chan struct{})
	}
}

func (p *livePeer) resumeReading() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
}

// write sends one record in the peer's framing.
func (p *livePeer) write(record []byte) error {
	if p.header {
		record = append([]byte(fmt.Sprintf("Content-Length: %d\r\n\r\n", len(record))), record...)
	} else {
		record = append(append(make([]byte, 0, len(record)+1), record...), '\n')
	}
	return p.writeRaw(record)
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
	switch strings.TrimPrefix(strings.ToUpper(name), "SIG") {
	case "INT":
		return os.Interrupt, nil
	case "TERM":
		return syscall.SIGTERM, nil
	case "KILL":
		return os.Kill, nil
	case "HUP":
		return syscall.SIGHUP, nil
	case "QUIT":
		return syscall.SIGQUIT, nil
	case "PIPE":
		return syscall.SIGPIPE, nil
	}
	return nil, fmt.Errorf("unknown signal %q; known: INT TERM KILL HUP QUIT PIPE", name)
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
		_ = p.group.kill()
	}
	p.hangup()
	p.stdout.CloseWithError(io.ErrClosedPipe)
	p.resumeReading() // a paused reader would keep Wait from its end
	<-p.exited        // at most WaitDelay
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

// readRecord reads one record of either framing.
func readRecord(r *bufio.Reader, header bool) ([]byte, error) {
	if !header {
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) > 0 {
			return nil, fmt.Errorf("%w: %q", errHalfRecord, clipText(string(line), 200))
		}
		return bytes.TrimSuffix(line, []byte("\n")), err
	}
	size := -1
	for n := 0; ; n++ {
		line, err := r.ReadString('\n')
		if err == io.EOF && n == 0 && line == "" {
			return nil, io.EOF
		}
		if err != nil {
			return nil, fmt.Errorf("output ends in a frame header: %q", clipText(line, 200))
		}
		text, ok := strings.CutSuffix(line, "\r\n")
		if !ok {
			return nil, fmt.Errorf("frame header line without CRLF: %q", clipText(line, 200))
		}
		if text == "" {
			break
		}
		if v, ok := strings.CutPrefix(text, "Content-Length: "); ok {
			if size, err = strconv.Atoi(v); err != nil {
				return nil, fmt.Errorf("frame header %q: %w", text, err)
			}
		}
	}
	if size < 0 {
		return nil, errors.New("frame without Content-Length")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("output ends in a frame's body: %w", err)
	}
	return body, nil
}

// poll looks every few milliseconds until ok or limit. For what gives no sign of
// its own, like a file or a process's end.
func poll(limit time.Duration, ok func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
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

// peerLog is stderr, read while it is written.
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

// hasProcFS tells whether processes can be looked for: elsewhere than on Linux none is found, and a test that needs them
// skips by needProcFS.
func hasProcFS() bool {
	_, err := os.Stat("/proc/self/environ")
	return err == nil
}

func needProcFS(tb testing.TB) {
	tb.Helper()
	if !hasProcFS() {
		tb.Skip("looks for processes in /proc, which this system hasn't")
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
		fmt.Fprintf(&b, "\n\t%d %s", pid, clipText(strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")), 160))
	}
	return b.String()
}

func TestProcessesOfOurOwn(t *testing.T) {
	needProcFS(t)
	if !processAlive(os.Getpid()) {
		t.Error("we are said to be dead")
	}
	if _, parent := processStat(os.Getpid()); parent != os.Getppid() {
		t.Errorf("parent = %d, want %d", parent, os.Getppid())
	}
	if got := markedProcesses("nobody has this marker"); len(got) != 0 {
		t.Errorf("processes with a marker nobody has: %s", describeProcesses(got))
	}
}
