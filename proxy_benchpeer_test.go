package main

// proxy_benchpeer_test.go owns the client that the benchmarks and load tests of
// proxy_bench_test.go speak with: the program as it is installed, once as the mock
// Codex driven directly and once as serve over that same mock. It reads both
// sides alike, by looking at bytes and never decoding JSON on a measured path,
// so that what differs is the program. It must never measure under the race
// detector nor in a home that is somebody's.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	benchLimit  = time.Minute // for any one answer; what takes longer hangs
	benchBuffer = 1 << 20     // a client that reads in large pieces, so that it is never what is slow
	benchHead   = 64          // a record's id and method stand within so many bytes
)

// benchRig is a built program and a home for what it writes.
type benchRig struct {
	tb      testing.TB
	bin     string
	home    string
	project string // a repository, so that there is context to tell (FR-2)
}

func newBenchRig(tb testing.TB) *benchRig {
	tb.Helper()
	dir := tb.TempDir()
	r := &benchRig{tb: tb, bin: programPath(tb), home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project")}
	err := errors.Join(os.MkdirAll(r.codexHome("direct"), 0o700), os.MkdirAll(r.codexHome("served"), 0o700), makeDemoRepo(r.project))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// codexHome is one for each side: threads on disk are no shared fate.
func (r *benchRig) codexHome(side string) string { return filepath.Join(r.home, "codex-"+side) }

// environ is next to nothing: no settings but the defaults are measured.
func (r *benchRig) environ(side string) []string {
	env := []string{"HOME=" + r.home, "USERPROFILE=" + r.home, "ATM_HOME=" + r.home, "CODEX_HOME=" + r.codexHome(side)}
	for _, name := range []string{"PATH", "TMPDIR", "TEMP", "TMP", "SystemRoot"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// benchTurn is one turn, ready to be sent, and how its end is known.
type benchTurn struct {
	rec  []byte
	end  string // stands in the head of the record that ends it
	good string // and this somewhere in it
	mark string // stands in each of the events that are counted
}

// benchPeer is one process, spoken to from one goroutine.
type benchPeer struct {
	tb     testing.TB
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer // whole once the process was waited for
	dog    *time.Timer  // kills the process where an answer takes too long
	ids    int
	long   []byte // the record that didn't fit out's buffer
	closed bool
}

// start begins the program; the test's end closes it.
func (r *benchRig) start(tb testing.TB, side string, env []string, args ...string) *benchPeer {
	tb.Helper()
	return r.startOf(tb, side, env, r.bin, args...)
}

// startOf is start for any program.
func (r *benchRig) startOf(tb testing.TB, side string, env []string, bin string, args ...string) *benchPeer {
	tb.Helper()
	p := &benchPeer{tb: tb, name: side, cmd: exec.Command(bin, args...)}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = r.project, append(r.environ(side), env...), &p.stderr, 10*time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReaderSize(out, benchBuffer)
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p.dog = time.AfterFunc(benchLimit, func() { _ = p.cmd.Process.Kill() })
	tb.Cleanup(p.close)
	return p
}

// close ends the process as a client does, by the end of its stdin.
func (p *benchPeer) close() {
	if p.closed {
		return
	}
	p.closed = true
	p.dog.Reset(benchLimit)
	defer p.dog.Stop()
	p.in.Close()
	_, _ = io.Copy(io.Discard, p.out) // up to its end: what Wait wants before it
	if err := p.cmd.Wait(); err != nil {
		p.tb.Errorf("%s ended with %v: %s", p.name, err, p.stderr.String())
	}
}

// fail tells why nothing more is to be had from the process.
func (p *benchPeer) fail(format string, args ...any) {
	p.tb.Helper()
	p.closed = true
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.tb.Fatalf("%s: %s; stderr: %s", p.name, fmt.Sprintf(format, args...), p.stderr.String())
}

// send writes one record.
func (p *benchPeer) send(rec []byte) {
	p.tb.Helper()
	if _, err := p.in.Write(rec); err != nil {
		p.fail("writing: %v", err)
	}
}

// line reads one record. It is valid up to the next read.
func (p *benchPeer) line() []byte {
	p.tb.Helper()
	line, err := p.out.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		p.long = append(p.long[:0], line...)
		for err == bufio.ErrBufferFull {
			line, err = p.out.ReadSlice('\n')
			p.long = append(p.long, line...)
		}
		line = p.long
	}
	if err != nil {
		p.fail("reading: %v (an answer may take %s)", err, benchLimit)
	}
	return line
}

// readTo reads to the record that has end in its head, and counts the records
// before it that hold mark. An empty mark counts nothing.
func (p *benchPeer) readTo(end, mark string) (last []byte, marked int) {
	p.tb.Helper()
	p.dog.Reset(benchLimit)
	defer p.dog.Stop()
	e, m := []byte(end), []byte(mark)
	for {
		line := p.line()
		if bytes.Contains(line[:min(len(line), benchHead)], e) {
			return line, marked
		}
		if len(m) > 0 && bytes.Contains(line, m) {
			marked++
		}
	}
}

// run does one turn and tells how long it took and how many events were seen.
func (p *benchPeer) run(t benchTurn) (time.Duration, int) {
	p.tb.Helper()
	begun := time.Now()
	p.send(t.rec)
	last, n := p.readTo(t.end, t.mark)
	took := time.Since(begun)
	if !bytes.Contains(last, []byte(t.good)) {
		p.fail("the turn ended with %s", last)
	}
	return took, n
}

// request makes a record and what begins its answer. Codex takes
// "jsonrpc":"2.0" and doesn't ask for it.
func (p *benchPeer) request(method string, params any) (rec []byte, end string) {
	p.ids++
	id := strconv.Itoa(p.ids)
	return append(toJSON(map[string]any{"jsonrpc": "2.0", "id": p.ids, "method": method, "params": params}), '\n'), `"id":` + id + `,`
}

// call waits for the answer to a request and returns its result.
func (p *benchPeer) call(method string, params any) json.RawMessage {
	p.tb.Helper()
	rec, end := p.request(method, params)
	p.send(rec)
	last, _ := p.readTo(end, "")
	res := rawField(last, "result")
	if res == nil || string(rawField(res, "isError")) == "true" {
		p.fail("%s was answered %s", method, last)
	}
	return bytes.Clone(res)
}

func (p *benchPeer) hello(params map[string]any) {
	p.tb.Helper()
	params["clientInfo"] = map[string]any{"name": "bench", "version": "1"}
	p.call("initialize", params)
}

// mockSide is the tests' codex, which is on PATH, driven directly.
func (r *benchRig) mockSide(tb testing.TB) *benchPeer {
	tb.Helper()
	p := r.startOf(tb, "direct", nil, "codex", "app-server")
	p.hello(map[string]any{"capabilities": map[string]any{"experimentalApi": true}})
	return p
}

// thread opens a thread of the mock.
func (p *benchPeer) thread(cwd string) string {
	p.tb.Helper()
	return stringField(p.call("thread/start", map[string]any{"cwd": cwd, "approvalPolicy": "on-request"}), "thread", "id")
}

// direct is a turn on a thread of the mock.
func (p *benchPeer) direct(thread, prompt string) benchTurn {
	rec, _ := p.request("turn/start", map[string]any{"threadId": thread, "input": []any{map[string]any{"type": "text", "text": prompt}}})
	return benchTurn{rec: rec, end: `"method":"turn/completed"`, good: `"status":"completed"`, mark: `"method":"item/agentMessage/delta"`}
}

// serveSide is serve over the mock, with everything as it is by default:
// records, audit, context and events.
func (r *benchRig) serveSide(tb testing.TB, env ...string) *benchPeer {
	tb.Helper()
	p := r.start(tb, "served", env, "serve", "--log-level", "error")
	p.hello(map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}})
	return p
}

// agent opens a session with its first turn.
func (p *benchPeer) agent(cwd string) string {
	p.tb.Helper()
	id := stringField(p.tool("codex", map[string]any{"prompt": "hello", "cwd": cwd}), "agent_id")
	if id == "" {
		p.fail("codex told no agent_id")
	}
	return id
}

// tool calls a tool and returns its structured content.
func (p *benchPeer) tool(name string, args any) json.RawMessage {
	p.tb.Helper()
	return rawField(p.call("tools/call", map[string]any{"name": name, "arguments": args}), "structuredContent")
}

// reply is a turn of an agent.
func (p *benchPeer) reply(agent, prompt string) benchTurn {
	rec, end := p.request("tools/call", map[string]any{"name": "codex-reply", "arguments": map[string]any{"agent_id": agent, "prompt": prompt}})
	return benchTurn{rec: rec, end: end, good: `"turn_status":"completed"`, mark: `"type":"item/agentMessage/delta"`}
}

// onDisk waits until the agent's record tells of so many turns, the last of
// them over: the one thing that is to be seen of a turn while its client
// doesn't read.
func (r *benchRig) onDisk(tb testing.TB, agent string, turns int) {
	tb.Helper()
	pattern := filepath.Join(r.home, ".config", "atm", "agent-sessions", "*", ".records", strings.TrimPrefix(agent, "codex:")+".json")
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(benchLimit); ; <-look.C {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			tb.Fatal(err)
		}
		var rec []byte
		if len(paths) == 1 {
			if rec, err = os.ReadFile(paths[0]); err == nil { // absent for a moment on Windows: looked at again
				rec = wholeRecord(paths[0], rec)
			}
		}
		if string(rawField(rec, "turns")) == strconv.Itoa(turns) && stringField(rec, "status") == statusIdle {
			return
		}
		if time.Now().After(until) {
			tb.Fatalf("no record %s tells of %d turns within %s: found %q, %s", pattern, turns, benchLimit, paths, rec)
		}
	}
}

// memory is what the kernel says the process holds now, and has held at most,
// in MB. It skips where there is no /proc.
func (p *benchPeer) memory() (now, peak float64) {
	p.tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.tb.Skipf("the size of a process is read from /proc: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		var kb float64
		switch name {
		case "VmRSS", "VmHWM":
			if _, err := fmt.Sscanf(rest, "%f kB", &kb); err != nil {
				p.fail("%s is %q: %v", name, rest, err)
			}
		}
		switch name {
		case "VmRSS":
			now = kb / 1024
		case "VmHWM":
			peak = kb / 1024
		}
	}
	return now, peak
}

// cpu is what the process, without its children, has used so far, in ms. The
// kernel tells it in steps of 10 ms; 0 where there is no /proc.
func (p *benchPeer) cpu() float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name before it is ours and has no such thing
	fields := strings.Fields(rest)
	var ticks float64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			p.fail("reading its CPU time: %v", err)
		}
		ticks += n
	}
	return ticks * 10
}
