package main

// main_test.go holds the command line: the table of commands and flags to what the commands take, `acp login` to be the
// login of the codex that acp would start, what a terminal and a pipe are given (columns that fit, colours only where
// they are seen), and the two ways in which the program gets elsewhere: the `go install` line of the README and a copy
// in somebody's monorepo, both built with the network off. Spellings of help are in testdata/script/help-*.txtar.

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// runLine runs one command line in this process.
func runLine(input string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = run(context.Background(), append([]string{serverName}, args...), strings.NewReader(input), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestACPLoginIsTheLoginOfItsCodex(t *testing.T) {
	needUnix(t, "its codex is a shell script")
	dir := t.TempDir()
	codex := filepath.Join(dir, "my-codex")
	script := "#!/bin/sh\necho \"args: $*\"\nread line\necho \"read: $line\"\necho oops >&2\nexit ${CODE:-0}\n"
	wantNil(t, os.WriteFile(codex, []byte(script), 0o700))
	t.Setenv("HOME", dir)
	t.Chdir(dir)
	for _, tt := range []struct {
		args, took string
		code       int
	}{
		{"acp --codex-bin " + codex + " login", "login", 0},
		{"acp --codex-bin " + codex + " login --device-auth -c x=y", "login --device-auth -c x=y", 0},
		{"acp --codex-bin " + codex + " --identity x acp login", "login", 0}, // a client puts its own words in between
		{"acp --codex-bin=" + codex + " login", "login", 7},
	} {
		t.Setenv("CODE", strconv.Itoa(tt.code))
		code, out, errs := runLine("typed\n", strings.Fields(tt.args)...)
		if code != tt.code || out != "args: "+tt.took+"\nread: typed\n" || errs != "oops\n" {
			t.Errorf("%s: code %d, %q, %q", tt.args, code, out, errs)
		}
	}
	for args, want := range map[string]struct {
		code  int
		words string
	}{
		"acp logn":                       {2, `did you mean "login"?`},
		"acp acp":                        {2, `takes no argument "acp"`},
		"acp --restart-child":            {2, "restart-child"},
		"acp --identty x":                {2, "--identity"},
		"acp --sandbox reckless":         {2, "reckless"},
		"acp --codex-bin /no/such login": {1, "/no/such"},
	} {
		if code, out, errs := runLine("", strings.Fields(args)...); code != want.code ||
			!strings.Contains(errs, want.words) || out != "" {
			t.Errorf("%s: code %d, %q, %q", args, code, out, errs)
		}
	}
}

// Every row is a command that run knows, and -h of it is what help says; every flag is taken, with a value if it has
// one.
func TestHelpOfEachCommand(t *testing.T) {
	ask := func(args ...string) string {
		code, out, errs := runLine("", args...)
		if code != 0 || errs != "" {
			t.Errorf("%q ends with %d and says %q", args, code, errs)
		}
		return out
	}
	for spelling, same := range map[string]string{"--help": "help", "-help": "help", "-h": "help", "help help": "help",
		"help --help": "help", "help -h": "help", "--help serve": "help serve", "-h serve": "help serve",
		"serve --identity x --help": "help serve", "summary codex:bcdfghj --help": "help summary"} {
		want(t, ask(strings.Fields(spelling)...), ask(strings.Fields(same)...))
	}
	for _, c := range commands(nil) {
		told := ask("help", c.name)
		for _, spelling := range []string{"-h", "-help", "--help"} {
			if got := ask(c.name, spelling); got != told {
				t.Errorf("%s %s prints %q, help prints %q", c.name, spelling, got, told)
			}
		}
		for line := range strings.Lines(told) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 82 {
				t.Errorf("help %s has a line of %d characters: %s", c.name, n, line)
			}
		}
		args := []string{c.name}
		for _, f := range c.flags {
			for _, n := range namesOf(f.name, f.alias) {
				args = append(args, "--"+n)
				if f.value != "" {
					args = append(args, "7")
				}
			}
		}
		ask(append(args, "-h")...)
	}
}

// The words that a flag's help names are those that the configuration takes.
func TestTheWordsOfAFlagAreTheSettings(t *testing.T) {
	home := t.TempDir()
	env := func(name string) string {
		if name == "HOME" || name == "USERPROFILE" {
			return home
		}
		return ""
	}
	rows := serveRows()
	for flag, words := range map[string]string{
		"sandbox":         "read-only workspace-write danger-full-access",
		"approval-policy": "untrusted on-request never",
		"backend":         "auto app-server mcp-server",
		"log-level":       "error warn info debug trace",
	} {
		row := rows[slices.IndexFunc(rows, func(f flagRow) bool { return f.name == flag })]
		for word := range strings.FieldsSeq(words) {
			cfg, err := loadConfig(env, home, flagValues{flag: word})
			if err != nil || len(cfg.warnings) > 0 {
				t.Errorf("--%s %s: %v, %+v", flag, word, err, cfg)
			}
			if !strings.Contains(row.help, word) {
				t.Errorf("the help of --%s doesn't name %q", flag, word)
			}
		}
	}
}

func TestTimesAreToldAsPeopleSayThem(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	tests := []struct {
		ago  time.Duration
		want string
	}{
		{-10 * time.Second, "just now"},
		{0, "just now"},
		{59 * time.Second, "just now"},
		{time.Minute, "1 minute ago"},
		{59*time.Minute + 59*time.Second, "59 minutes ago"},
		{time.Hour, "1 hour ago"},
		{23 * time.Hour, "23 hours ago"},
		{day, "1 day ago"},
		{59 * day, "59 days ago"},
		{61 * day, now.Add(-61 * day).Local().Format("2006-01-02")},
		{-time.Hour, now.Add(time.Hour).Local().Format("2006-01-02 15:04")},
	}
	for _, tt := range tests {
		want(t, screen{terminal: true, now: now}.when(now.Add(-tt.ago)), tt.want)
	}
	want(t, screen{now: now}.when(now.In(time.FixedZone("", 3600))), "2026-03-10T12:00:00Z") // in a pipe
	want(t, screen{terminal: true, now: now}.when(time.Time{}), "-")
}

func TestTableForATerminalAndAPipe(t *testing.T) {
	rows := [][]cell{
		{{"a", ""}, {"red", inRed}, {"a long prompt that\ngoes on\x1b[2J and on", ""}},
		{{"bcd", ""}, {"é", ""}, {"", ""}},
	}
	header := []string{"ID", "S", "LAST"}
	tests := []struct {
		name string
		s    screen
		want string
	}{
		{"pipe", screen{}, "a\tred\ta long prompt that goes on[2J and on\nbcd\té\t\n"},
		{"terminal", screen{terminal: true, width: 30}, "ID   S    LAST\na    red  a long prompt that …\nbcd  é\n"},
		{"narrow", screen{terminal: true, width: 20}, "ID   S    LAST\na    red  a long pr…\nbcd  é\n"},
		{"colours", screen{terminal: true, width: 30, color: true},
			"\x1b[1mID\x1b[0m   \x1b[1mS\x1b[0m    \x1b[1mLAST\x1b[0m\n" +
				"a    \x1b[31mred\x1b[0m  a long prompt that …\nbcd  é\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			tt.s.out = &b
			tt.s.table(header, rows)
			want(t, b.String(), tt.want)
		})
	}
}

// Long names must not push a list of sessions over the edge of the terminal, and
// what names a row stays whole. A table without fit, such as config's, is never cut but at its end: it has files and
// lines.
func TestTableFitsTheLine(t *testing.T) {
	row := []cell{{"codex:bcdfghj", ""}, {"agent-with-a-very-long-name", ""}, {"repository@a-branch", ""},
		{"the last prompt", ""}}
	for fit, want := range map[bool]string{
		true:  "codex:bcdfghj  agent-wit…  repositor…  the last pr…\n",
		false: "codex:bcdfghj  agent-with-a-very-long-name  repository@a-branch  the las…\n",
	} {
		var b strings.Builder
		s := screen{out: &b, terminal: true, width: 51, fit: fit}
		s.table([]string{"AGENT", "IDENTITY", "WHERE", "LAST PROMPT"}, [][]cell{row})
		if _, got, _ := strings.Cut(b.String(), "\n"); got != want {
			t.Errorf("fit %v: got\n%q\nwant\n%q", fit, got, want)
		}
	}
}

// A model's text may hold what a terminal obeys: moving the cursor, setting the
// clipboard, or, by its eight-bit form, the same.
func TestTextCannotSteerATerminal(t *testing.T) {
	const text = "one\x1b]52;c;aGk=\a\n\ttwo\u009b2J\r"
	want(t, screen{terminal: true}.text(text), "one]52;c;aGk=\n\ttwo2J")
	want(t, screen{}.text(text), text)
}

// goTool runs the go command in dir with the network off, unless env opens it. Where there is none, the test is left
// out.
func goTool(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// shipTo copies what a build needs into dir: no tests and no test data.
func shipTo(t *testing.T, dir string) {
	t.Helper()
	n := 0
	wantNil(t, fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && path != "prompts":
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		case !strings.HasSuffix(path, ".go") && !strings.HasPrefix(path, "prompts/") &&
			!slices.Contains([]string{"go.mod", "go.sum", "LICENSE"}, path):
			return nil
		}
		n++
		data, err := os.ReadFile(path)
		wantNil(t, err)
		to := filepath.Join(dir, filepath.FromSlash(path))
		wantNil(t, os.MkdirAll(filepath.Dir(to), 0o755))
		return os.WriteFile(to, data, 0o644)
	}))
	if n < 50 {
		t.Fatalf("only %d files to ship", n)
	}
}

func wantVersion(t *testing.T, program, want string) {
	t.Helper()
	if out, err := exec.Command(program, "version").Output(); err != nil || string(out) != "atm-agent-mcp "+want+"\n" {
		t.Errorf("version prints %q, %v, want %s", out, err, want)
	}
}

func programName() string {
	if runtime.GOOS == "windows" {
		return "atm-agent-mcp.exe"
	}
	return "atm-agent-mcp"
}

// fileURL is a directory as GOPROXY takes it.
func fileURL(path string) string { return "file:///" + strings.TrimPrefix(filepath.ToSlash(path), "/") } // or C:/…

// This module is served as v1.2.3 from a directory, as the module proxy would, and installed from there.
func TestGoInstallHasAVersion(t *testing.T) {
	t.Parallel()
	if !longTests() {
		t.Skip("builds the program: set " + longVar)
	}
	const module, version = "github.com/randlee/atm-agent-mcp", "v1.2.3"
	proxy, cache, bin, tree := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	wantNil(t, os.MkdirAll(dir, 0o755))
	shipTo(t, filepath.Join(tree, filepath.FromSlash(module+"@"+version)))
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	wantNil(t, fs.WalkDir(os.DirFS(tree), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() { // a module's zip has no entries for directories
			return err
		}
		f, err := z.Create(path)
		wantNil(t, err)
		_, err = io.WriteString(f, readText(t, filepath.Join(tree, filepath.FromSlash(path))))
		return err
	}))
	wantNil(t, z.Close())
	for name, data := range map[string]string{"list": version + "\n", version + ".mod": readText(t, "go.mod"),
		version + ".zip":  zipped.String(),
		version + ".info": `{"Version":"` + version + `","Time":"2026-01-02T03:04:05Z"}`} {
		wantNil(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
	}
	known := filepath.Join(goTool(t, ".", nil, "env", "GOMODCACHE"), "cache", "download")
	goTool(t, t.TempDir(), []string{
		"GOPROXY=" + fileURL(proxy) + "," + fileURL(known), "GOBIN=" + bin,
		"GOMODCACHE=" + cache, "GOFLAGS=-modcacherw", // or the test couldn't remove the cache
	}, "install", module+"@"+version)
	wantVersion(t, filepath.Join(bin, programName()), "1.2.3")
}

// What a build needs is copied into a directory of another project, as CONTRIBUTING says, with the one dependency
// vendored there, and builds without network and without module cache.
func TestBuildsVendoredInAMonorepo(t *testing.T) {
	t.Parallel()
	mono := t.TempDir()
	dir := filepath.Join(mono, "third_party", "atm-agent-mcp")
	// a module around it must not matter
	wantNil(t, os.WriteFile(filepath.Join(mono, "go.mod"), []byte("module example.com/mono\n\ngo 1.25.0\n"), 0o644))
	shipTo(t, dir)
	goTool(t, dir, nil, "mod", "vendor")
	found, err := filepath.Glob(filepath.Join(dir, "vendor", "*"))
	if err != nil || len(found) != 2 || filepath.Base(found[0]) != "golang.org" ||
		filepath.Base(found[1]) != "modules.txt" {
		t.Errorf("vendored are %s, %v; the program itself needs golang.org/x/sys alone", found, err)
	}
	if !longTests() {
		return // the build takes longest
	}
	program := filepath.Join(mono, "bin", programName())
	goTool(t, mono, []string{"GOMODCACHE=" + filepath.Join(mono, "no-cache")},
		"build", "-C", "third_party/atm-agent-mcp", "-mod=vendor", "-buildvcs=false", "-o", program, ".")
	wantVersion(t, program, "devel")
}

// After a call that failed the demo says and sends nothing more.
func TestDemoEndsAtItsFirstFailedCall(t *testing.T) {
	var out strings.Builder
	d := &demoClient{out: &out, err: io.ErrUnexpectedEOF}
	d.peer = newPeer(strings.NewReader(""), io.Discard, peerOptions{trace: d.frame})
	defer d.peer.closeOut(0)
	if err := d.talk(t.TempDir()); err != d.err || out.String() != "" {
		t.Errorf("error %v, told %q", err, &out)
	}
}
