package main

// proxy_livepeer_test.go owns a live process that talks in records on stdio: its
// start in a group of its own, framing, stderr, signals, exit and clean-up. The
// script commands (proxy_scriptpeer_test.go) and the Go client (proxy_client_test.go) stand
// on it. It knows nothing of JSON-RPC, and its framing is written anew on
// purpose: a test must not judge wire_frame.go by wire_frame.go.

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// livePeer is one started process. Its methods may be called from any goroutine.
type livePeer struct {
	peerConfig
	marker string // in the environment of it and of all it starts
	cmd    *exec.Cmd
	group  *procGroup
	stdin  io.WriteCloser
	stdout *io.PipeReader
	stderr peerLog

	writing sync.Mutex    // keeps records whole
	exited  chan struct{} // closed when it is reaped and stdout was read to its end
	readErr error         // why reading ended early; valid once exited is closed

	mu   sync.Mutex    // guards the field below
	hold chan struct{} // not nil while reading is paused; closed to go on
}

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
	read := make(chan struct{})
	go func() { // ends with stdout; waited for below
		defer close(read)
		p.readErr = p.readAll(bufio.NewReaderSize(pr, 1<<16))
		pr.CloseWithError(p.readErr) // what comes after a broken frame must not block its writer
	}()
	go func() { // ends with the process; waited for by stop
		_ = p.cmd.Wait() // how it ended is in ProcessState
		_ = p.group.close()
		pw.Close()
		<-read
		close(p.exited)
	}()
	return p, nil
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
	if !poll(limit, func() bool { left = markedProcesses(p.marker); return len(left) == 0 }) {
		err = errors.Join(err, fmt.Errorf("%s is gone, but left running:%s", p.name, describeProcesses(left)))
	}
	return err
}

// stop kills what is left of it, by pid and by its own group, and waits.
func (p *livePeer) stop() {
	if !p.gone() {
		_ = p.group.kill()
	}
	p.hangup()
	p.stdout.CloseWithError(io.ErrClosedPipe)
	p.resumeReading() // a paused reader would keep Wait from its end
	<-p.exited        // at most WaitDelay
	for _, pid := range markedProcesses(p.marker) {
		if proc, err := os.FindProcess(pid); err == nil {
			_ = proc.Kill()
		}
	}
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
