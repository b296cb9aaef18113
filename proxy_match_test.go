package main

// proxy_match_test.go owns the patterns that scripts compare JSON with, and proves that the script commands fail when
// they should. The script commands expect and jsonfile call it. A pattern is JSON, and matches what contains it: an
// object may have more members, an array must be as long. In it "$any" is any value, "$re:…" a regexp over a string
// or a number's digits, "$bind:name" any value, kept as a variable, "$absent" a member that must not be there. A last
// element "$rest" makes an array a prefix; a first element "$contains" asks that each pattern after it matches some
// element. Backslashes in a text match slashes where paths are written with them. harness-peer is a small program that
// speaks JSON-RPC on stdio and misbehaves when asked.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// matchJSON tells why got does not contain pattern. On a match it returns what
// "$bind:" captured.
func matchJSON(pattern, got any) (map[string]any, error) {
	bound := map[string]any{}
	if err := matchValue("", pattern, got, bound); err != nil {
		return nil, err
	}
	return bound, nil
}

func matchValue(at string, pattern, got any, bound map[string]any) error {
	where := at
	if where == "" {
		where = "value"
	}
	switch p := pattern.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: want an object, got %s", where, compact(got))
		}
		for key, want := range p {
			v, there := g[key]
			path := at + "." + key
			switch {
			case want == "$absent" && there:
				return fmt.Errorf("%s: must be absent, is %s", path, compact(v))
			case want == "$absent":
			case !there:
				return fmt.Errorf("%s: is missing", path)
			default:
				if err := matchValue(path, want, v, bound); err != nil {
					return err
				}
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok {
			return fmt.Errorf("%s: want an array, got %s", where, compact(got))
		}
		return matchArray(at, p, g, bound)
	case string:
		return matchString(where, p, got, bound)
	case json.Number:
		if p == got {
			return nil
		}
	default: // nil, bool
		if pattern == got {
			return nil
		}
	}
	return fmt.Errorf("%s: want %s, got %s", where, compact(pattern), compact(got))
}

func matchArray(at string, p, g []any, bound map[string]any) error {
	if len(p) > 0 && p[0] == "$contains" {
		for _, want := range p[1:] {
			if !containsMatch(at, want, g, bound) {
				return fmt.Errorf("%s: no element is %s in %s", at, compact(want), compact(g))
			}
		}
		return nil
	}
	if n := len(p); n > 0 && p[n-1] == "$rest" {
		p = p[:n-1]
		if len(g) >= len(p) {
			g = g[:len(p)]
		}
	}
	if len(p) != len(g) {
		return fmt.Errorf("%s: want %d elements, got %d: %s", at, len(p), len(g), compact(g))
	}
	for i := range p {
		if err := matchValue(fmt.Sprintf("%s[%d]", at, i), p[i], g[i], bound); err != nil {
			return err
		}
	}
	return nil
}

func containsMatch(at string, want any, g []any, bound map[string]any) bool {
	for _, v := range g {
		tried := map[string]any{} // an element that fails half way must bind nothing
		if matchValue(at, want, v, tried) == nil {
			maps.Copy(bound, tried)
			return true
		}
	}
	return false
}

func matchString(where, p string, got any, bound map[string]any) error {
	if name, ok := strings.CutPrefix(p, "$bind:"); ok {
		if before, ok := bound[name]; ok && compact(before) != compact(got) {
			return fmt.Errorf("%s: $%s is %s already, got %s", where, name, compact(before), compact(got))
		}
		bound[name] = got
		return nil
	}
	if expr, ok := strings.CutPrefix(p, "$re:"); ok {
		re, err := regexp.Compile(expr)
		if err != nil {
			return fmt.Errorf("%s: bad pattern: %w", where, err)
		}
		var text string
		switch g := got.(type) {
		case string:
			text = g
		case json.Number:
			text = g.String()
		default:
			return fmt.Errorf("%s: want text like %q, got %s", where, expr, compact(got))
		}
		if !matchPaths(re, text) {
			return fmt.Errorf("%s: want text like %q, got %s", where, expr, compact(got))
		}
		return nil
	}
	switch {
	case p == "$any":
		return nil
	case strings.HasPrefix(p, "$$"):
		p = p[1:]
	case strings.HasPrefix(p, "$"):
		return fmt.Errorf("%s: unknown pattern word %q", where, p)
	}
	if text, ok := got.(string); ok && filepath.ToSlash(text) == filepath.ToSlash(p) {
		return nil
	}
	return fmt.Errorf("%s: want %q, got %s", where, p, compact(got))
}

// matchPaths matches text, also as it is with slashes: scripts write paths with them on every system.
func matchPaths(re *regexp.Regexp, text string) bool {
	return re.MatchString(text) || re.MatchString(filepath.ToSlash(text))
}

// expandVars puts variables into JSON: a string that is just "$name" becomes the
// variable's value with its type, ${name} inside a string its text. Pattern words
// and "$$…" are left alone. Without pattern, words have no meaning and "$$x" is
// the text "$x". An unknown name is an error, never an empty string.
func expandVars(v any, pattern bool, lookup func(string) (any, bool)) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, val := range v {
			name, err := expandText(key, false, lookup)
			if err != nil {
				return nil, err
			}
			if out[name], err = expandVars(val, pattern, lookup); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = expandVars(v[i], pattern, lookup); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		if pattern && isPatternWord(v) {
			return expandText(v, true, lookup)
		}
		if strings.HasPrefix(v, "$$") {
			if pattern {
				return v, nil
			}
			return v[1:], nil
		}
		if name, ok := strings.CutPrefix(v, "$"); ok && varName.MatchString(name) {
			if val, ok := lookup(name); ok {
				return val, nil
			}
			return nil, fmt.Errorf("no variable %q", name)
		}
		return expandText(v, false, lookup)
	}
	return v, nil
}

var (
	varName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	varRef  = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
)

func isPatternWord(s string) bool {
	switch s {
	case "$any", "$rest", "$absent", "$contains":
		return true
	}
	return strings.HasPrefix(s, "$re:") || strings.HasPrefix(s, "$bind:")
}

func expandText(s string, quote bool, lookup func(string) (any, bool)) (string, error) {
	var missing error
	out := varRef.ReplaceAllStringFunc(s, func(ref string) string {
		val, ok := lookup(ref[2 : len(ref)-1])
		if !ok {
			missing = fmt.Errorf("no variable %q", ref)
			return ref
		}
		text := plainText(val)
		if quote {
			text = regexp.QuoteMeta(text)
		}
		return text
	})
	return out, missing
}

// plainText is a value as an environment variable holds it.
func plainText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return compact(v)
}

func compact(v any) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprintf("%v", v)
	}
	return strings.TrimSuffix(buf.String(), "\n")
}

// clipText keeps messages readable.
func clipText(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:max], ""), len(s))
}

func TestMatchJSON(t *testing.T) {
	for _, tt := range []struct {
		pattern, got string
		want         string // part of the error, "" for a match
	}{
		{`{"a":{"b":[{"c":true}]}}`, `{"a":{"b":[{"c":true,"d":null}],"x":0}}`, ""},
		{`{"a":"x"}`, `{"a":"y"}`, `.a: want "x", got "y"`},
		{`{"a":"1"}`, `{"a":1}`, `want "1", got 1`},
		{`{"a":null}`, `{"a":false}`, "want null, got false"},
		{`{"a":null}`, `{}`, "is missing"},
		{`{"a":"$any"}`, `{"a":[1]}`, ""},
		{`{"a":"$any"}`, `{}`, "is missing"},
		{`{"a":"$absent"}`, `{"b":1}`, ""},
		{`{"a":"$absent"}`, `{"a":null}`, "must be absent"},
		{`{"a":"$re:^codex:[a-z0-9]+$"}`, `{"a":"codex:k3f"}`, ""},
		{`{"a":"$re:^-3200[0-9]$"}`, `{"a":-32005}`, ""},
		{`{"a":"$re:^b"}`, `{"a":"abc"}`, `want text like "^b"`},
		{`{"a":"$re:."}`, `{"a":{}}`, "want text like"},
		{`{"a":"$re:("}`, `{"a":"x"}`, "bad pattern"},
		{`[1,2]`, `[1,2,3]`, "want 2 elements, got 3"},
		{`[1,2,"$rest"]`, `[1,2,3]`, ""},
		{`[1,2]`, `[2,1]`, "[0]: want 1, got 2"},
		{`["$contains",{"n":"b"},{"n":"a"}]`, `[{"n":"a"},{"n":"b","x":1}]`, ""},
		{`["$contains",{"n":"c"}]`, `[{"n":"a"}]`, "no element is"},
		{`9007199254740993`, `9007199254740992`, "want 9007199254740993"},
		{`"$$any"`, `"$any"`, ""},
		{`"$nay"`, `"x"`, "unknown pattern word"},
		{`["$bind:a","$bind:a"]`, `[1,2]`, "$a is 1 already"},
	} {
		if _, err := matchJSON(mustJSON(t, tt.pattern), mustJSON(t, tt.got)); (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s against %s: %v, want an error with %q", tt.pattern, tt.got, err, tt.want)
		}
	}
	for _, in := range []string{``, `{`, `{} {}`, `nul`} {
		if v, err := decodeJSON([]byte(in)); err == nil {
			t.Errorf("decoding %q gave %v, want an error", in, v)
		}
	}
}

func TestMatchBindsAndExpands(t *testing.T) {
	vars, err := matchJSON(mustJSON(t, `{"id":"$bind:id","l":["$contains",{"k":"z","v":"$bind:v"}]}`),
		mustJSON(t, `{"id":0,"l":[{"k":"y","v":"no"},{"k":"z","v":"a.b"}]}`))
	wantNil(t, err)
	lookup := func(name string) (any, bool) { v, ok := vars[name]; return v, ok }
	for _, tt := range []struct {
		in, want string
		pattern  bool
	}{
		{`{"id":"$id"}`, `{"id":0}`, false}, // a number stays one: 0 is a valid id
		{`{"${v}":"x ${v} y"}`, `{"a.b":"x a.b y"}`, false},
		{`"$re:^${v}$"`, `"$re:^a\\.b$"`, true},
		{`["$any","$v"]`, `["$any","a.b"]`, true},
		{`"echo $HOME"`, `"echo $HOME"`, false},
		{`"$$v"`, `"$v"`, false},
		{`"$$v"`, `"$$v"`, true},
	} {
		got, err := expandVars(mustJSON(t, tt.in), tt.pattern, lookup)
		if err != nil || compact(got) != tt.want {
			t.Errorf("expanding %s: got %s, %v, want %s", tt.in, compact(got), err, tt.want)
		}
	}
	for _, in := range []string{`"$nobody"`, `"x ${nobody}"`, `{"${nobody}":1}`} {
		if got, err := expandVars(mustJSON(t, in), false, lookup); err == nil {
			t.Errorf("expanding %s gave %s, want an error", in, compact(got))
		}
	}
}

func mustJSON(t *testing.T, s string) any {
	t.Helper()
	v, err := decodeJSON([]byte(s))
	wantNil(t, err)
	return v
}

func TestScriptCommandsFail(t *testing.T) {
	t.Parallel()
	limit := waitLimit(t)
	for _, tt := range []struct {
		script, want string
		soon         bool // it waits for nothing but what never comes, so it gets a short limit
	}{
		{"request p bye\nexpect p '{\"method\":\"never\"}'\n", "ended (exit code 0", false},
		{"expect p '{\"method\":\"never\"}'\n", "no record of p matched", true},
		{"request p notify '{\"count\":1}'\nexpect -next p '{\"id\":1}'\n", "the next record of p does not match",
			false},
		{"request p notify '{\"count\":1}'\nexpect -none p '{\"method\":\"note\"}'\n",
			"matches {\"method\":\"note\"}", false},
		{"request p notify '{\"count\":1}'\nexpect p '{\"method\":\"note\"}'\nexpect -never p '{\"method\":\"note\"}'\n", "matches {\"method\":\"note\"}", false},
		{"request p junk\nexpect p '{\"id\":1}'\n", "no JSON", false},
		{"request p half\nexpect p '{\"id\":9}'\n", "middle of a record", false},
		{"request p bye '{\"code\":3}'\nexit p 0\n", "exit code 3, want code 0", false},
		{"exit p\n", "still runs", true},
		{"reply p '{}'\n", "nothing to reply to", false},
		{"hangup q\n", "no peer \"q\"", false},
		{"start p harness-peer serve\n", "still runs", false},
		{"send p '{\"id\":\"$nobody\"}'\n", "no variable", false},
		{"send p '{'\n", "is not JSON", false},
		{"expect -soon p '{}'\n", "usage", false},
		{"! hangup p\n", "unsupported", false},
		{"request p bye\nerrlog p never\n", "nothing like", false},
		{"request p complain '{\"text\":\"ouch\"}'\nexpect p '{\"id\":1}'\nerrlog p ouch\n! errlog p ouch\n",
			"has \"ouch\"", false},
		{"[linux] noproc p\nexit p\n", "still runs", true},
		{"waitfile nofile\n", "waited", true},
		{"jsonfile f.json '{\"a\":2}'\n-- f.json --\n{\"a\":1}\n", "want 2, got 1", true},
		{"! jsonfile f.json '{\"a\":1}'\n-- f.json --\n{\"a\":1}\n", "matches", false},
		{"! jsonfile f.json '{}'\n", "proves nothing", false},
		{"signal 1 TERM\n", "was not started", false},
	} {
		t.Run(strings.ReplaceAll(tt.script, "\n", ";"), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "s.txtar")
			wantNil(t, os.WriteFile(file, []byte("start p harness-peer serve\n"+tt.script), 0o600))
			params := scriptParams(t, "")
			params.Files = []string{file}
			params.Setup = func(env *testscript.Env) error {
				return setupScript(env, map[bool]time.Duration{true: 200 * time.Millisecond, false: limit}[tt.soon])
			}
			r := &scriptResult{}
			r.run(func() { testscript.RunT(r, params) })
			if !r.failed || !strings.Contains(r.log.String(), tt.want) {
				t.Errorf("failed: %v; the log does not tell %q:\n%s", r.failed, tt.want, r.log.String())
			}
		})
	}
}

// scriptResult stands in for testing.T where a script must fail.
type scriptResult struct {
	log    strings.Builder
	failed bool
}

func (r *scriptResult) Skip(args ...any)                   { panic(r) }
func (r *scriptResult) Fatal(args ...any)                  { r.Log(args...); r.FailNow() }
func (r *scriptResult) Parallel()                          {}
func (r *scriptResult) Log(args ...any)                    { fmt.Fprintln(&r.log, args...) }
func (r *scriptResult) FailNow()                           { r.failed = true; panic(r) }
func (r *scriptResult) Verbose() bool                      { return true }
func (r *scriptResult) Run(_ string, f func(testscript.T)) { r.run(func() { f(r) }) }

// run runs f up to where it fails.
func (r *scriptResult) run(f func()) {
	defer func() {
		if e := recover(); e != nil && e != any(r) {
			panic(e)
		}
	}()
	f()
}

// Clean-up after a failed test leaves nothing, not even what moved to another session.
func TestStopReachesWhatAPeerLeft(t *testing.T) {
	needProcFS(t)
	path, err := exec.LookPath("harness-peer") // testscript.Main put it on PATH
	wantNil(t, err)
	c := startClient(t, peerConfig{name: "p", path: path, args: []string{"serve"}, env: os.Environ()})
	var left struct{ PID int }
	c.start("spawn", nil).result(&left)
	c.hangup()
	wantNil(t, c.waitExit(c.limit))
	if err := c.waitAllGone(time.Millisecond); err == nil || !strings.Contains(err.Error(),
		fmt.Sprintf("\t%d ", left.PID)) {
		t.Errorf("waitAllGone = %v, want the command line of %d", err, left.PID)
	}
	c.stop()
	if !poll(c.limit, func() bool { return !processAlive(left.PID) }) {
		t.Errorf("grandchild %d outlived stop", left.PID)
	}
}

// harnessPeer is the program: "serve" answers requests, "linger" stays until it is killed, "sh" runs a line of a shell
// where there is none.
func harnessPeer(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	switch args[0] {
	case "linger":
		fmt.Fprintln(stdout, "ready")
		time.Sleep(24 * time.Hour) // waiting for nothing would be a deadlock to Go's runtime
	case "sh":
		return plainShell(args[1], stdout, stderr)
	}
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Count, Code int
				Text        string
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return 2
		}
		result := any(m.Method)
		switch m.Method {
		case "notify":
			for i := range m.Params.Count {
				fmt.Fprintf(stdout, `{"method":"note","params":%d}`+"\n", i)
			}
		case "junk":
			fmt.Fprintln(stdout, "hello, I am no JSON")
		case "half":
			fmt.Fprint(stdout, `{"id":`)
			return 0
		case "complain":
			fmt.Fprintln(stderr, m.Params.Text)
		case "spawn":
			result = map[string]any{"pid": leaveProcess()}
		case "bye":
			return m.Params.Code
		}
		fmt.Fprintln(stdout, compact(map[string]any{"id": m.ID, "result": result}))
	}
	return 0
}

// plainShell runs a line as a shell of Unix would, as far as scripts go: commands one after the other, `> file`, `$$`,
// and a loop that waits for a file. It returns the exit code.
func plainShell(line string, stdout, stderr io.Writer) int {
	code := 0
	for part := range strings.SplitSeq(strings.ReplaceAll(line, "$$", strconv.Itoa(os.Getpid())), ";") {
		words := strings.Fields(part)
		if len(words) > 0 && words[0] == "exec" {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		if words[0] == "exit" {
			code, _ = strconv.Atoi(words[1])
			return code
		}
		out := stdout
		if i := slices.Index(words, ">"); i > 0 {
			f, err := os.Create(words[i+1])
			if err != nil {
				fmt.Fprintln(stderr, err)
				return 1
			}
			out, words = f, words[:i]
		}
		code = 0
		if err := plainCommand(words, out); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", words[0], err)
			code = 1
		}
		if f, ok := out.(*os.File); ok && f != stdout {
			_ = f.Close() // whoever reads the file sees what it lacks
		}
	}
	return code
}

// plainCommand runs one command of plainShell's.
func plainCommand(words []string, out io.Writer) error {
	switch words[0] {
	case "true", "do", "done":
	case "false":
		return errors.New("it is false")
	case "echo":
		fmt.Fprintln(out, strings.Join(words[1:], " "))
	case "pwd":
		dir, err := os.Getwd()
		fmt.Fprintln(out, dir)
		return err
	case "touch":
		f, err := os.OpenFile(words[1], os.O_CREATE|os.O_WRONLY, 0o666)
		if err == nil {
			err = f.Close()
		}
		return err
	case "mv":
		return os.Rename(words[1], words[2])
	case "cat":
		data, err := os.ReadFile(words[1])
		_, _ = out.Write(data)
		return err
	case "ls":
		entries, err := os.ReadDir(".")
		for _, e := range entries {
			fmt.Fprintln(out, e.Name())
		}
		return err
	case "sleep":
		d, err := time.ParseDuration(words[1] + "s")
		<-time.After(d)
		return err
	case "while": // [ ! -e file ]
		poll(time.Hour, func() bool { _, err := os.Stat(words[4]); return err == nil })
	default:
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdout, cmd.Stderr = out, out
		return cmd.Run()
	}
	return nil
}

// leaveProcess starts a process in a session of its own, and leaves it.
func leaveProcess() int {
	self, err := os.Executable()
	if err != nil {
		return 0
	}
	cmd := exec.Command(self, "linger")
	newProcGroup(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return 0
	}
	_, _ = bufio.NewReader(out).ReadString('\n') // it runs, and under its own name
	return cmd.Process.Pid
}
