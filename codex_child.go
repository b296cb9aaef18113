package main

// codex_child.go owns a Codex process: which binary and what it can do, starting it in a group of its own, its pipes,
// the tail of its stderr, the one Wait, how it died, the ladder that ends it. The drivers call it; the composition root
// and doctor ask which binary. It knows nothing of JSON-RPC. It must never hang on a child that closes its stdout and
// lives on, or that dies while grandchildren hold its pipes. What a child put into groups of its own (Codex does that
// with shells and MCP servers) ends when the child that started it closes its pipes.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	// pipeDrain is how long the pipes of a dead child may stay open in the
	// hands of its grandchildren: what the child wrote itself is read by then.
	pipeDrain = 500 * time.Millisecond
	// killWait is how long a killed process may take to be reaped. One that
	// sits in the kernel longer is left to the system.
	killWait = 5 * time.Second
)

// child is one running process.
type child struct {
	stdin  io.WriteCloser
	stdout *os.File
	pid    int
	path   string

	cmd   *exec.Cmd
	group *procGroup
	tail  *stderrTail
	ended chan struct{} // closed when the process is reaped and dead is set
	dead  *childDeath   // read after ended
}

// neverStarted says why there is no child of the binary path, "" for an unknown one.
func neverStarted(path, reason string) *childDeath {
	return &childDeath{Reason: "could not be started: " + reason, Path: path, Never: true}
}

// startChild starts the process. Its goroutines end soon after the process. dieWithUs has the kernel end the child when
// we are killed, where the kernel can (Linux): for a child that the end of its stdin doesn't always end. The error is a
// *childDeath, with Never set.
func startChild(o linkOptions, dieWithUs bool) (*child, error) {
	cmd := programCommand(context.Background(), o.Env, o.Path, o.Args...)
	cmd.Dir = o.Dir
	// Pipes of our own, so that Wait returns the moment the process ends: with os/exec's it would close stdout under
	// the reader and lose the child's last words, or wait for grandchildren that hold stderr.
	var ends [6]*os.File // reading and writing end of the child's stdin, stdout, stderr
	closeAll := func(list ...*os.File) {
		for _, f := range list {
			f.Close() // a nil file says so
		}
	}
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			closeAll(ends[:]...)
			return nil, neverStarted(o.Path, errorText(err))
		}
	}
	var stdin, stdout, stderr *os.File
	cmd.Stdin, stdin = ends[0], ends[1]
	stdout, cmd.Stdout = ends[2], ends[3]
	stderr, cmd.Stderr = ends[4], ends[5]
	c := &child{stdin: stdin, stdout: stdout, path: o.Path, cmd: cmd, tail: &stderrTail{log: o.Log},
		group: newProcGroup(cmd), ended: make(chan struct{})}
	start := cmd.Start
	if dieWithUs && termOnParentDeath(cmd) {
		start = func() error { return startBound(cmd, c.ended) }
	}
	if err := start(); err != nil {
		closeAll(ends[:]...)
		return nil, neverStarted(o.Path, errorText(err))
	}
	closeAll(ends[0], ends[3], ends[5])
	c.pid = cmd.Process.Pid
	if err := c.group.attach(cmd); err != nil && o.Log != nil {
		o.Log.Warn("what the child starts may outlive it", "error", err)
	}
	go c.reap(stderr)
	return c, nil
}

// startBound starts a process from an OS thread that lives as long as it does:
// to the kernel the parent is the thread, and Go ends idle threads.
func startBound(cmd *exec.Cmd, ended <-chan struct{}) error {
	started := make(chan error, 1)
	go func() { // ends with the child
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			<-ended
		}
	}()
	return <-started
}

// reap waits for the process, the only place that does. Beside it stderr is read, until it ends or the process does.
func (c *child) reap(stderr *os.File) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = io.Copy(c.tail, stderr)
	}()
	err := c.cmd.Wait()
	// What is left of the group (npm's shim leaves the real codex behind when it is killed) goes too. The group's
	// number can't be anybody else's while a member lives, and we are microseconds behind the leader's end.
	c.group.kill()
	c.group.close()
	t := time.AfterFunc(pipeDrain, func() { stderr.Close() }) // ends the copying
	<-said
	t.Stop()
	stderr.Close()
	c.stdin.Close()
	d := &childDeath{Reason: exitReason(c.cmd.ProcessState), Path: c.path}
	if c.cmd.ProcessState == nil && err != nil {
		d.Reason = "was lost: " + errorText(err)
	}
	d.Stderr = c.tail.lastLine()
	c.dead = d
	close(c.ended)
	// The reader gets what is still in the pipe; grandchildren don't hold it up.
	time.AfterFunc(pipeDrain, func() { c.stdout.Close() })
}

// death is how the process ended, nil while it lives.
func (c *child) death() *childDeath {
	select {
	case <-c.ended:
		d := *c.dead
		return &d
	default:
		return nil
	}
}

// within waits for the end.
func (c *child) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.ended:
		return true
	case <-t.C:
		return false
	}
}

// term asks the group to end without waiting for it to notice the end of its stdin. stop follows.
func (c *child) term() { c.group.term() }

// stop ends the process: closes its stdin, which is how Codex wants to be told (with EOF even a shell that traps TERM
// ends), then TERM and KILL to the group, waiting at most grace before each. It returns when the process is reaped, or
// was killed and still isn't after killWait. Any number of callers.
func (c *child) stop(grace time.Duration) {
	_ = c.stdin.Close()
	if c.within(grace) {
		return
	}
	c.group.term()
	if c.within(grace) {
		return
	}
	c.group.kill()
	c.within(killWait)
}

// streamEnd says how a child died, once its stdout is at an end. One that
// closed it and lives on can't be talked to any more and is ended.
func streamEnd(c *child, err error, log *slog.Logger) *childDeath {
	if c == nil {
		d := &childDeath{Reason: "closed its stdout"}
		if err != nil && err != io.EOF {
			d.Reason += ": " + err.Error()
		}
		return d
	}
	if !c.within(time.Second) {
		log.Warn("codex closed its stdout and lives on: ending it", "pid", c.pid)
		c.stop(time.Second)
	}
	if d := c.death(); d != nil {
		return d
	}
	return &childDeath{Path: c.path, Reason: fmt.Sprintf("closed its stdout; process %d can't be ended", c.pid)}
}

// stderrTail keeps the beginning and the end of what a child said on stderr, and logs its lines.
type stderrTail struct {
	log *slog.Logger

	mu   sync.Mutex // guards the fields below
	head []byte
	end  []byte
	part []byte // the line not yet ended, for the log
}

const (
	stderrHead  = 2 << 10
	stderrEnd   = 8 << 10
	maxToldLine = 400 // characters of the line that an error message quotes
)

// Write never fails: a child must not block or die for its stderr.
func (t *stderrTail) Write(b []byte) (int, error) {
	n := len(b)
	t.mu.Lock()
	if room := stderrHead - len(t.head); room > 0 {
		t.head = append(t.head, b[:min(room, n)]...)
	}
	t.end = append(t.end, b...)
	if over := len(t.end) - stderrEnd; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	var lines [][]byte
	if t.log != nil {
		t.part = append(t.part, b...)
		for {
			i := bytes.IndexByte(t.part, '\n')
			if i < 0 && len(t.part) > stderrEnd {
				i = len(t.part) - 1
			}
			if i < 0 {
				break
			}
			lines = append(lines, bytes.Clone(t.part[:i]))
			t.part = append(t.part[:0], t.part[i+1:]...)
		}
	}
	t.mu.Unlock()
	for _, l := range lines {
		if s, _ := cleanLogLine(string(l)); s != "" {
			t.log.Debug("codex stderr", "line", redact(s))
		}
	}
	return n, nil
}

// lastLine is the last line that says something, and of those the last that speaks of an error.
func (t *stderrTail) lastLine() string {
	t.mu.Lock()
	last, errs := saidLines(t.end)
	t.mu.Unlock()
	if len(errs) > 0 {
		last = errs[len(errs)-1]
	}
	return redact(clipChars(last, maxToldLine))
}

// firstError is for a child that ended before it answered: the first line
// that speaks of an error is the cause, what follows its consequences.
func (t *stderrTail) firstError() string {
	t.mu.Lock()
	_, errs := saidLines(t.head)
	t.mu.Unlock()
	if len(errs) == 0 {
		return t.lastLine()
	}
	return redact(clipChars(errs[0], maxToldLine))
}

// saidLines are the last line that says something, "" for none, and all that speak of an error.
func saidLines(text []byte) (last string, errs []string) {
	for line := range strings.Lines(string(text)) {
		s, isError := cleanLogLine(line)
		// Codex from 0.148 says this at level ERROR on every start without bwrap.
		if s == "" || strings.Contains(s, "could not find bubblewrap") {
			continue
		}
		if last = s; isError {
			errs = append(errs, s)
		}
	}
	return last, errs
}

var (
	ansiCode  = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	logPrefix = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+\s+(TRACE|DEBUG|INFO|WARN|ERROR)\s+([A-Za-z0-9_:.-]+:\s+)?`)
	errorWord = regexp.MustCompile(`(?i)\b(error|fatal|panic|panicked|failed|cannot|no such|not found|denied)\b`)
)

// cleanLogLine takes colours, timestamp, level and module off a line, and tells whether it speaks of an error.
func cleanLogLine(line string) (text string, isError bool) {
	line = strings.TrimSpace(ansiCode.ReplaceAllString(line, ""))
	level := ""
	if m := logPrefix.FindStringSubmatch(line); m != nil {
		level, line = m[1], line[len(m[0]):]
	}
	if strings.Trim(line, "-=*_ \t") == "" {
		return "", false
	}
	return line, level == "ERROR" || level == "" && errorWord.MatchString(line) && !strings.HasPrefix(line, "WARNING:")
}

// codexBinary is a Codex that was found, and what to start it with.
type codexBinary struct {
	Path      string
	Args      []string // before the subcommand: mock-codex of our own mock
	AppServer bool     // it has the app-server subcommand
	MCPServer bool     // it has the mcp-server subcommand, asked only where it matters
}

// codexHomeDir is where Codex keeps its own configuration.
func codexHomeDir(home string) string {
	if dir := os.Getenv("CODEX_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(home, ".codex")
}

// childProbe finds Codex and remembers what it can do, by path, size and time of the file. The hub owns one.
type childProbe struct {
	mu    sync.Mutex // guards the field below; not held while a probe runs
	known map[probeKey]bool
}

type probeKey struct {
	path, command string
	size          int64
	mod           time.Time
}

// probeLimit is how long `codex help` may take: npm's Node shim on a cold disk.
const probeLimit = 10 * time.Second

// findCodex resolves bin: "" is codex on PATH, "mock" our own mock. The error is a
// *childDeath that says what to do.
func findCodex(bin string) (codexBinary, os.FileInfo, error) {
	if bin == "mock" {
		self, err := os.Executable()
		if err != nil {
			return codexBinary{}, nil, neverStarted(bin, "finding our own executable: "+err.Error())
		}
		return codexBinary{Path: self, Args: []string{"mock-codex"}, AppServer: true}, nil, nil
	}
	if bin == "" {
		bin = "codex"
	}
	const hint = "; install Codex with `npm install -g @openai/codex`, " +
		"or name another binary as codex_bin in the configuration"
	path, err := lookProgram(bin)
	if err == nil || errors.Is(err, exec.ErrDot) { // a "." in PATH is the user's own word
		path, err = filepath.Abs(path)
	}
	if err != nil {
		if file := notExecutable(bin); file != "" {
			return codexBinary{}, nil, neverStarted(bin, fmt.Sprintf("%s is not executable; chmod +x %s", file, file))
		}
		reason := fmt.Sprintf("%q was not found on PATH", bin)
		if strings.ContainsRune(filepath.ToSlash(bin), '/') {
			reason = fmt.Sprintf("%q: %v", bin, errors.Unwrap(err))
		}
		return codexBinary{}, nil, neverStarted(bin, reason+hint)
	}
	found := codexBinary{Path: path}
	info, err := os.Stat(path)
	if err != nil {
		return found, nil, neverStarted(path, errorText(err)+hint)
	}
	return found, info, nil
}

// notExecutable returns the file that is meant by bin and would be found if it were executable, "" for none.
func notExecutable(bin string) string {
	if runtime.GOOS == "windows" { // there a file's name says that it is
		return ""
	}
	files := []string{bin}
	if !strings.ContainsRune(bin, os.PathSeparator) {
		files = nil
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			files = append(files, filepath.Join(dir, bin))
		}
	}
	for _, file := range files {
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 == 0 {
			return file
		}
	}
	return ""
}

// probeBackend finds the codex of bin and what it has of what want names ("app-server", "mcp-server", or "auto" for the
// better of them), by asking it for help on that, once per file. The error is a *childDeath.
func (p *childProbe) probeBackend(ctx context.Context, bin, want string, env []string) (codexBinary, error) {
	found, info, err := findCodex(bin)
	if err != nil {
		return found, err
	}
	if info == nil { // our own mock has everything
		found.AppServer, found.MCPServer = want != "mcp-server", true
		return found, nil
	}
	if want != "mcp-server" {
		found.AppServer, err = p.has(ctx, found.Path, info, "app-server", env)
		if err != nil || found.AppServer || want == "app-server" {
			return found, err
		}
	}
	found.MCPServer, err = p.has(ctx, found.Path, info, "mcp-server", env)
	return found, err
}

// has asks for help on one command, or remembers.
func (p *childProbe) has(ctx context.Context, path string, info os.FileInfo, command string,
	env []string) (bool, error) {
	key := probeKey{path, command, info.Size(), info.ModTime()}
	p.mu.Lock()
	has, ok := p.known[key]
	p.mu.Unlock()
	if ok {
		return has, nil
	}
	has, sure := askForHelp(ctx, path, command, env)
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("asking %s for its help: %w", path, err)
	}
	if sure {
		p.mu.Lock()
		if p.known == nil {
			p.known = map[probeKey]bool{}
		}
		p.known[key] = has
		p.mu.Unlock()
	}
	return has, nil
}

// askForHelp runs `codex help <command>`. Where that tells nothing (a broken binary, a wrapper script that hangs) it
// isn't sure and says yes: starting the command then fails with the binary's own words.
func askForHelp(ctx context.Context, path, command string, env []string) (has, sure bool) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	cmd := programCommand(ctx, env, path, "help", command)
	cmd.WaitDelay = pipeDrain
	group := newProcGroup(cmd)
	cmd.Cancel = func() error { group.kill(); return nil }
	out := &stderrTail{}
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.Start() != nil {
		return true, false
	}
	_ = group.attach(cmd)
	err := cmd.Wait()
	group.close()
	text := strings.ToLower(string(out.head))
	switch {
	case err == nil && strings.Contains(text, command):
		return true, true
	case strings.Contains(text, "usage:"), err != nil && strings.Contains(text, "subcommand"):
		return false, true // its general help, or clap's word: unrecognized subcommand
	}
	return true, false
}
