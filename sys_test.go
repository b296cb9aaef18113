package main

// sys_test.go holds what the system is asked for (files, locks, process groups, exit reasons) with real files and
// processes, and the log: levels, one structured line a message, what redact takes out and what it must leave (NFR-3,
// NFR-5). It has the rig for tests of more than one process: another process is this test binary, run with one test.

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func wantNil(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A testProcess is this test binary, running one test in a process group of its own.
type testProcess struct {
	cmd   *exec.Cmd
	group *procGroup
	out   *bufio.Reader
	in    io.WriteCloser
}

// testChildVar tells the test binary that a test has started it.
const testChildVar = "ATM_TEST_CHILD"

// testChild is this test binary, to run one test that the environment tells what to do.
func testChild(test string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(append(os.Environ(), testChildVar+"=1", "GORACE=atexit_sleep_ms=10"), env...)
	return cmd
}

// startTest starts a test as a process that the environment tells what to do.
func startTest(t *testing.T, test string, env ...string) testProcess {
	t.Helper()
	cmd := testChild(test, env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	wantNil(t, err)
	out, err := cmd.StdoutPipe()
	wantNil(t, err)
	p := testProcess{cmd, newProcGroup(cmd), bufio.NewReader(out), in}
	wantNil(t, cmd.Start())
	wantNil(t, p.group.attach(cmd))
	return p
}

// line is the next line that the process says.
func (p testProcess) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	wantNil(t, err)
	return strings.TrimSuffix(line, "\n")
}

// ends waits for the end of all that have the process's stdout open, and wants the process's exit reason.
func (p testProcess) ends(t *testing.T, want string) {
	t.Helper()
	_, err := io.Copy(io.Discard, p.out)
	wantNil(t, err)
	_ = p.cmd.Wait() // exitReason says it better
	if got := exitReason(p.cmd.ProcessState); got != want {
		t.Errorf("exitReason = %q, want %q", got, want)
	}
}

// symlink makes a symbolic link, or leaves the test out: Windows gives links to administrators only, and Wine none,
// though it says it does.
func symlink(tb testing.TB, to, path string) {
	tb.Helper()
	err := os.Symlink(to, path)
	if _, err2 := os.Readlink(path); err != nil || err2 != nil {
		tb.Skip("no links here: ", cmp.Or(err, err2))
	}
}

// TestSysHelper is no test: it is the child of those below.
func TestSysHelper(t *testing.T) {
	switch mode := os.Getenv("ATM_TEST_SYS"); mode {
	case "":
		t.Skip("runs only as a child of other tests")
	case "exit3":
		os.Exit(3)
	case "parent": // starts a grandchild in its own group, then waits for EOF
		child := testChild("TestSysHelper", "ATM_TEST_SYS=wait")
		child.Stdin, child.Stdout = os.Stdin, os.Stdout // stdout's EOF is the grandchild's end
		wantNil(t, child.Run())
	case "wait":
		fmt.Println("ready", os.Getpid())
		io.Copy(io.Discard, os.Stdin)
	}
}

// Killing a group reaches grandchildren, a signal ends a group in peace, and an exit is told with its reason. A group
// that is gone is nobody's by now.
func TestProcGroups(t *testing.T) {
	p := startTest(t, "TestSysHelper", "ATM_TEST_SYS=exit3")
	p.ends(t, "exit code 3")
	p.group.close()
	if got := exitReason(nil); got != "exit status unknown" {
		t.Errorf("exitReason(nil) = %q", got)
	}

	p = startTest(t, "TestSysHelper", "ATM_TEST_SYS=parent")
	pid, err := strconv.Atoi(strings.TrimPrefix(p.line(t), "ready "))
	if err != nil || pid == p.cmd.Process.Pid || !pidAlive(pid) || !pidAlive(p.cmd.Process.Pid) {
		t.Fatalf("grandchild %d of %d, %v", pid, p.cmd.Process.Pid, err)
	}
	p.group.kill()
	if runtime.GOOS == "windows" {
		p.ends(t, "exit code 1")
	} else {
		p.ends(t, "signal: killed (SIGKILL)")
	}
	for _, again := range []func(){p.group.close, p.group.term, p.group.kill, p.group.close} {
		again() // nobody's group is signalled
	}

	if runtime.GOOS == "windows" {
		return // CTRL_BREAK needs a console
	}
	p = startTest(t, "TestSysHelper", "ATM_TEST_SYS=wait")
	p.line(t)
	p.group.term()
	p.ends(t, "signal: terminated (SIGTERM)")
	p.group.kill()
	p.group.close()
	if pidAlive(p.cmd.Process.Pid) || pidAlive(0) || pidAlive(-1) {
		t.Error("a dead process is said to be alive")
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		wantNil(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	wantNil(t, lockFile(a, true, false))
	_, err := a.WriteString("content")
	wantNil(t, err)
	for _, exclusive := range []bool{true, false} {
		if err := lockFile(b, exclusive, false); !errors.Is(err, errLocked) {
			t.Errorf("a second lock, exclusive %v: %v, want errLocked", exclusive, err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		t.Errorf("reading a locked file: %q, %v", got, err)
	}
	got := make(chan error, 1)
	go func() { got <- lockFile(b, true, true) }()
	unlockFile(a)
	wantNil(t, <-got)
	unlockFile(b)
	wantNil(t, errors.Join(lockFile(a, false, false), lockFile(b, false, false))) // two shared ones
}

func TestTerminalSize(t *testing.T) {
	null, err := os.Open(os.DevNull)
	wantNil(t, err)
	defer null.Close()
	r, w, err := os.Pipe()
	wantNil(t, err)
	defer errors.Join(r.Close(), w.Close())
	for _, f := range []*os.File{null, r} {
		if _, _, ok := terminalSize(f); ok {
			t.Errorf("%s is said to be a terminal", f.Name())
		}
	}
	if tty, err := os.Open("/dev/ptmx"); err == nil { // a pty master answers like a terminal on Linux
		defer tty.Close()
		if _, _, ok := terminalSize(tty); runtime.GOOS == "linux" && !ok {
			t.Error("a pty is said to be no terminal")
		}
	}
}

// A file of our own is opened through no link; nothing but a regular file is read, and no FIFO is waited for.
func TestOpenOwnRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	target, soft, hard, fifo := filepath.Join(dir, "t"), filepath.Join(dir, "s"), filepath.Join(dir, "h"),
		filepath.Join(dir, "fifo")
	plant(t, dir, map[string]string{"t": "kept"})
	f, err := openOwn(target, os.O_RDWR|os.O_APPEND, 0)
	wantNil(t, err)
	f.Close()
	wantNil(t, os.Link(target, hard))
	for _, path := range []string{target, hard} {
		if _, err := openOwn(path, os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, errLinked) {
			t.Errorf("openOwn(%s) of two names = %v; want errLinked", filepath.Base(path), err)
		}
	}
	wantNil(t, os.Remove(hard))
	if syncDir(dir) != nil || syncDir(filepath.Join(dir, "none")) == nil {
		t.Error("syncDir doesn't tell a directory that is there from one that isn't")
	}
	if _, err := readRegular(dir, 10); !errors.Is(err, errNotRegular) {
		t.Errorf("readRegular of a directory = %v, want errNotRegular", err)
	}
	t.Run("a symbolic link", func(t *testing.T) {
		symlink(t, target, soft)
		if _, err := openOwn(soft, os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, errLinked) {
			t.Errorf("openOwn of a link = %v; want errLinked", err)
		}
		if data, err := readRegular(soft, 4); err != nil || string(data) != "kept" {
			t.Errorf("readRegular through a link = %q, %v", data, err)
		}
		if _, err := readRegular(soft, 3); !errors.Is(err, errTooLarge) {
			t.Errorf("readRegular with a limit of 3 = %v, want errTooLarge", err)
		}
	})
	if exec.Command("mkfifo", fifo).Run() != nil {
		return
	}
	_, err = openRegular(fifo)
	if _, err2 := openOwn(fifo, os.O_WRONLY|os.O_APPEND, 0); !errors.Is(err, errNotRegular) ||
		!errors.Is(err2, errNotRegular) {
		t.Errorf("openRegular = %v, openOwn = %v, want errNotRegular", err, err2)
	}
}

func TestPathOfURL(t *testing.T) {
	paths := map[string]string{"file:///w/x%20y": "/w/x y", "file:/w": "/w", "FILE://localhost/w": "/w"}
	none := []string{"", "/w", "http://h/w", "file:w", "file://", "file:///a%00b", "file:///%zz"}
	if runtime.GOOS == "windows" {
		paths = map[string]string{"file:///C:/x%20y": `C:\x y`, "file:///c%3A/x": `c:\x`, "file:/C:/": `C:\`,
			"file://localhost/C:/x": `C:\x`, "file://C:/x": `C:\x`, "file://srv/share/x": `\\srv\share\x`,
			"file:////srv/share/x": `\\srv\share\x`}
		none = append(none, "file:///w", "file://./pipe/x", "file:////./pipe/x", "file:////%3F/C:/x",
			"file:///%3F%3F/C:/x", "file:///C:x")
	} else {
		none = append(none, "file://srv/share/x")
	}
	for text, path := range paths {
		if got, ok := pathOfURL(text); !ok || got != path {
			t.Errorf("%s is %q, %v; want %q", text, got, ok, path)
		}
	}
	for _, text := range none {
		if got, ok := pathOfURL(text); ok {
			t.Errorf("%s is %q", text, got)
		}
	}
}

// What we have open can be renamed and removed by others, also where its path is longer than Windows once took.
func TestOpenFileCanBeRenamed(t *testing.T) {
	long := strings.Repeat("n", 120)
	path := filepath.Join(t.TempDir(), long, long, "log")
	f, err := openMaking(path, os.O_APPEND)
	wantNil(t, err)
	defer f.Close()
	for _, text := range []string{"one", "two"} {
		_, err := f.WriteString(text)
		wantNil(t, err)
		wantNil(t, os.Rename(path, path+".1"))
		path += ".1"
	}
	if data, err := readRegular(path, 10); string(data) != "onetwo" {
		t.Errorf("%q, %v", data, err)
	}
	wantNil(t, os.Remove(path))
}

// A full disk and too many open files are told with what to do, in the log and to callers; inotify's limits have the
// same errors and words of their own.
func TestShortage(t *testing.T) {
	needUnix(t, "the errors are Unix's")
	for err, hint := range map[error]string{
		&fs.PathError{Op: "write", Path: "/a",
			Err: syscall.ENOSPC}: "free some space",
		fmt.Errorf("saving: %w", &os.LinkError{Op: "rename", Old: "a", New: "b",
			Err: syscall.EDQUOT}): "free some space",
		os.NewSyscallError("pipe2", syscall.EMFILE):                         "ulimit -n",
		&fs.PathError{Op: "fork/exec", Path: "/codex", Err: syscall.ENFILE}: "ulimit -n",
		errors.Join(errNoWatch, syscall.ENOSPC):                             "",
		&fs.PathError{Op: "open", Path: "/a", Err: syscall.EACCES}:          "",
	} {
		var line bytes.Buffer
		newLogger(&line, "warn").Warn("m", "err", err)
		for _, text := range []string{line.String(), heldError(err, "", "ann", "").Message, mailRefused(err).Message} {
			hinted := strings.Contains(text, "free some space") || strings.Contains(text, "ulimit")
			if hinted != (hint != "") || !strings.Contains(text, hint) {
				t.Errorf("%v is told as %s", err, text)
			}
		}
	}
}

// Of what is to be written later only the newest is written, also what comes while the syncer is at work, and nothing
// after its close. A team's directory that vanished with what was written into it is no danger to any session, and no
// warning at every exit of Claude Code.
func TestSyncerWritesTheNewest(t *testing.T) {
	var written []string // by the syncer's goroutine; read after flush and close
	var said peerLog
	disk := newSyncer(slog.New(slog.NewTextHandler(&said, nil)))
	write := func(what string) func() { return func() { written = append(written, what) } }
	disk.add(filepath.Join(t.TempDir(), "gone", "inboxes", "ann.json"))
	disk.later("a", write("old"))
	disk.later("a", func() {
		write("new")()
		disk.later("a", write("from within"))
	})
	wantNil(t, disk.flush(t.Context()))
	wantNil(t, disk.flush(t.Context()))
	disk.later("a", write("last"))
	wantNil(t, disk.close(t.Context()))
	disk.later("a", write("too late"))
	wantNil(t, errors.Join(disk.close(t.Context()), disk.flush(t.Context())))
	if got := strings.Join(written, ", "); got != "new, from within, last" || said.String() != "" {
		t.Errorf("written: %s, said %s", got, said.String())
	}
}

func TestRedact(t *testing.T) {
	// Secrets are put together here so that no scanner takes this file for a leak. § stands for [redacted].
	const (
		jwt    = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
		github = "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"
		slack  = "xoxb" + "-123456789012-abcdefABCDEF"
		google = "AIza" + "SyA1234567890abcdefghijklmnopqrstuv"
		openai = "sk-proj" + "-abc123DEF456ghi789jkl"
		pem    = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----"
	)
	for in, want := range map[string]string{
		// Secrets that are known by their looks.
		"use " + openai + " please": "use § please", "sk-ant" + "-api03-AbCdEf0123456789_x-y": "§",
		"clone with " + github: "clone with §", "github_pat" + "_11ABCDEFG0123456789_abcdefghij": "§",
		"id AKIA" + "IOSFODNN7EXAMPLE.": "id §.", slack + " and " + google: "§ and §",
		"jwt " + jwt + " end":      "jwt § end",
		"key:\n" + pem + "\nafter": "key:\n§\nafter", "cut off -----BEGIN RSA PRIVATE KEY-----\nMIIEow": "cut off §",
		`{"key":"` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`: `{"key":"§"}`,
		// Headers and addresses.
		"Authorization: Bearer abcdef123456":       "Authorization: Bearer §",
		"Authorization: Basic dXNlcjpwYXNz":        "Authorization: Basic §",
		`{"Authorization":"Bearer abcdef"}`:        `{"Authorization":"Bearer §"}`,
		"-H 'authorization: token abc'":            "-H 'authorization: token §'",
		"send bearer a1b2c3d4e5":                   "send bearer §",
		"Cookie: session=abc; theme=dark\nHost: x": "Cookie: §\nHost: x",
		"https://bob:hunter2@example.com/x":        "https://§@example.com/x",
		"postgres://u:p%40ss@db:5432/app":          "postgres://§@db:5432/app",
		"https://0123456789abcdef0123@d.example":   "https://§@d.example",
		"redis://:pw@cache:6379":                   "redis://§@cache:6379",
		"GET /x?token=abc&page=2":                  "GET /x?token=§&page=2",
		"https://h/x?a=1&X-Amz-Signature=ab12&b=2": "https://h/x?a=1&X-Amz-Signature=§&b=2",
		// What a name says is one.
		"password=hunter2 password=hunter3": "password=§ password=§", "password='never closed": "password='§",
		"Password: hunter2, user: bob": "Password: §, user: bob", "Password：hunter2": "Password：§",
		"export OPENAI_API_KEY=abc123 && run": "export OPENAI_API_KEY=§ && run",
		"GITHUB_TOKEN='abc'":                  "GITHUB_TOKEN='§'",
		`DB_PASSWORD="two words" x`:           `DB_PASSWORD="§" x`, `client_secret := "s3cret"`: `client_secret := "§"`,
		`{"api_key":"v\"1","n":1}`:                               `{"api_key":"§","n":1}`,
		`{"apiKey": "v1", "secret": 42}`:                         `{"apiKey": "§", "secret": §}`,
		`{"body":"{\"password\":\"hunter2\",\"n\":1}"}`:          `{"body":"{\"password\":\"§\",\"n\":1}"}`,
		"aws_secret_access_key = wJalrXUtnFEMI/K7":               "aws_secret_access_key = §",
		"deploy --token abc123 --force":                          "deploy --token § --force",
		"deploy --api-key=abc123 -f":                             "deploy --api-key=§ -f",
		"password:\nhunter2 x":                                   "password:\n§ x",
		`{"message":"password:\nhunter2 x"}`:                     `{"message":"password:\n§ x"}`,
		"secret: |\n  hunter2\nuser: bob":                        "secret: |\n  §\nuser: bob",
		"the password is hunter2 and the API key was 'a1b2c3d4'": "the password is § and the API key was '§'",
	} {
		want = strings.ReplaceAll(want, "§", "[redacted]")
		got := redact(in)
		if got != want {
			t.Errorf("redact(%q)\n got %q\nwant %q", in, got, want)
		}
		if again := redact(got); again != got {
			t.Errorf("redact is not idempotent: %q, then %q", got, again)
		}
		if json.Valid([]byte(in)) && !json.Valid([]byte(got)) && !strings.Contains(in, "42") {
			t.Errorf("redact broke JSON: %q", got)
		}
	}
	for _, s := range []string{
		"", "fix", "Refactor the tokenizer and its tests", "max_tokens=4096, total_tokens: 12",
		`{"input_tokens":120,"token_count":7}`, "implement the password reset flow", "basic authentication is enough",
		"bearer authentication, bearer of bad news", "the secretary=Bob",
		"commit c0043a5f7e1d2b3a4c5d6e7f8091a2b3c4d5e6f7",
		"thread 019a2f3e-7b4c-7d21-9f10-8e2a5b6c7d8e of codex:k7m3pqx", "see https://example.com:8080/a@v1.2/b?x=1#y",
		"git clone ssh://git@github.com/a/b.git", "mail bob@example.com", "go get golang.org/x/sys@v0.38.0",
		"sk-toggleable__label-arrow", "task-management-dashboard", "disk-usage",
		"if token == nil || password != want {", "token=$TOKEN password=${PW} secret=<your secret>",
		`"token": null, "password": ""`, "password: ***",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "git commit -m message --no-verify",
		"eyJust a word", "AIzawa and the SG.1 unit", "grep -n token file.go",
		"the token is invalid, the password is wrong, the secret is out; token is 4096",
	} {
		if got := redact(s); got != s {
			t.Errorf("redact(%q) = %q", s, got)
		}
	}
}

func TestLoggerWritesOneRedactedLine(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, "info")
	log.With("team", "red").Warn("login failed\npassword=hunter2", "error", errors.New("token=abc"), "token", "plain",
		slog.Group("g", "msg", "Bearer abcdef123456"), "raw", []byte("secret=x\xff"), "n", 3)
	line := out.String()
	if !strings.HasPrefix(line, "atm-agent-mcp: time=") || strings.Count(line, "\n") != 1 {
		t.Errorf("line = %q", line)
	}
	for _, want := range []string{" level=warn ", `msg="login failed\npassword=[redacted]"`, "team=red",
		`error="token=[redacted]"`,
		"token=[redacted]", `g.msg="Bearer [redacted]"`, `raw="secret=[redacted]"`, "n=3\n"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %q", want, line)
		}
	}
	for level, want := range map[string]string{
		"error": "E", "warn": "EW", "info": "EWI", "debug": "EWID", "trace": "EWIDT",
		"nonsense": "EWI",
	} {
		out.Reset()
		log := newLogger(&out, level)
		for i, l := range []slog.Level{slog.LevelError, slog.LevelWarn, slog.LevelInfo, slog.LevelDebug, levelTrace} {
			log.Log(t.Context(), l, "EWIDT"[i:i+1])
		}
		got := ""
		for line := range strings.Lines(out.String()) {
			got += strings.TrimSpace(line[strings.Index(line, "msg=")+4:])
		}
		if got != want {
			t.Errorf("level %q wrote %q, want %q", level, got, want)
		}
		if strings.Contains(got, "T") != strings.Contains(out.String(), " level=trace ") {
			t.Errorf("no level of its own: %q", out.String())
		}
	}
}

// A client that never reads our stderr must hold nothing up: past the budget lines are lost.
func TestLogNobodyReads(t *testing.T) {
	r, w := io.Pipe() // nobody reads
	out := newOutbox(w, 10<<10, nil)
	log := newLogger(lineWriter{out}, "info")
	for range 10000 {
		log.Info("a line that nobody reads")
	}
	if got := out.size(); got > 11<<10 {
		t.Errorf("%d bytes wait, more than the budget", got)
	}
	r.Close()
	out.close(time.Second)
}
