package main

// main_release_test.go holds what .ci/release has built and installed to what a user does with it: each way of
// installing ends with a program that answers a client, says its version and how it came there, and leaves nothing;
// npm's start of it passes on signals and exit codes. And agent.json to the rules of the ACP registry, for which there
// is no validator.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// releaseVar names the directory that .ci/release works in.
const releaseVar = "ATM_RELEASE"

const releaseVersion = "1.98.7" // as .ci/release has it

func releaseDir(t *testing.T) string {
	dir := os.Getenv(releaseVar)
	if dir == "" {
		t.Skip("needs a release, built and installed: run .ci/release")
	}
	return dir
}

// A releaseHome is a user's empty home, and the programs of a release.
type releaseHome struct {
	*testing.T
	dir, home string
	npm       string // the program as npm has installed it
}

func newReleaseHome(t *testing.T) *releaseHome {
	dir := releaseDir(t)
	return &releaseHome{t, dir, t.TempDir(), filepath.Join(dir, "npm", "node_modules", ".bin", "atm-agent-mcp")}
}

func (h *releaseHome) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.home, "npm_config_offline=true"}, more...)
}

func (h *releaseHome) start(env []string, command ...string) *testClient {
	h.Helper()
	return startClient(h, peerConfig{name: command[0], path: command[0], args: command[1:], env: env,
		dir: filepath.Join(h.dir, "npm")})
}

// run runs a program to its end.
func (h *releaseHome) run(command ...string) (code int, out, errs string) {
	h.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = h.env(), filepath.Join(h.dir, "npm"), &stdout, &stderr
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func TestReleaseAnswersHoweverInstalled(t *testing.T) {
	var bundle struct {
		Command string
		Args    []string
		Env     map[string]string
	}
	wantNil(t, json.Unmarshal([]byte(readText(t, filepath.Join(releaseDir(t), "bundle.json"))), &bundle))
	var bundleEnv []string
	for name, value := range bundle.Env {
		bundleEnv = append(bundleEnv, name+"="+value)
	}
	const mock = "ATM_AGENT_MCP_CODEX_BIN=mock"
	for _, way := range []struct {
		name, told string
		env        []string
		command    []string
	}{
		{"npm", "installed by npm, ", []string{mock}, []string{newReleaseHome(t).npm}},
		{"npx", "installed by npm, ", []string{mock}, []string{"npx", "--no-install", "atm-agent-mcp"}},
		{"archive", "amd64, /", []string{mock}, []string{filepath.Join(releaseDir(t), "archive", "atm-agent-mcp")}},
		{"bundle", "installed as an MCPB bundle, ", bundleEnv, []string{bundle.Command}},
	} {
		t.Run(way.name, func(t *testing.T) {
			h := newReleaseHome(t)
			_, out, _ := h.run(append(way.command, "version")...)
			want(t, out, "atm-agent-mcp "+releaseVersion+"\n")
			if _, out, _ := h.run(append(way.command, "doctor")...); !strings.Contains(out, way.told) {
				t.Errorf("doctor says %s", out)
			}
			args := []string{"serve"}
			if way.name == "bundle" {
				args = bundle.Args
			}
			c := h.start(h.env(way.env...), append(way.command, args...)...)
			info := rawField(toJSON(c.initialize("2025-06-18", map[string]any{})), "serverInfo")
			want(t, stringField(info, "version"), releaseVersion)
			want(t, c.call("codex", map[string]any{"prompt": "SAY hello"}).turn().Content, "hello")
			c.finish()
		})
	}
}

// npm's command is a Node process between the client and the program: nobody must notice.
func TestReleaseStartedByNode(t *testing.T) {
	h := newReleaseHome(t)
	start := func() *testClient {
		c := h.start(h.env(), h.npm, "serve", "--codex-bin", "mock")
		c.initialize("2025-06-18", map[string]any{})
		c.call("codex", map[string]any{"prompt": "SAY hello"}).turn()
		return c
	}
	ended := func(c *testClient, code int) {
		t.Helper()
		if err := c.waitAllGone(c.limit); err != nil || c.cmd.ProcessState.ExitCode() != code {
			t.Errorf("%v, %s, want code %d%s", err, c.howEnded(), code, c.told())
		}
	}
	for sig, code := range map[string]int{"TERM": 128 + 15, "INT": 128 + 2} {
		c := start()
		wantNil(t, c.signal(sig))
		ended(c, code)
	}
	c := start()
	for _, pid := range c.leftovers() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Base(exe) == programName() {
			proc, err := os.FindProcess(pid)
			wantNil(t, err)
			_ = proc.Kill() // or it has just ended, as the program's Codex does
		}
	}
	ended(c, 128+9)
	c = start()
	wantNil(t, c.signal("KILL")) // then the program hears of it by the end of its stdin
	c.hangup()
	ended(c, -1)

	code, out, errs := h.run(h.npm, "watsh")
	if code != 2 || out != "" || !strings.Contains(errs, `did you mean "watch"`) {
		t.Errorf("a mistyped command: %d, %q, %q", code, out, errs)
	}
}

// Where npm has not installed the package with the program, its command says which one that is and what to do.
func TestReleaseWithoutItsPlatform(t *testing.T) {
	h := newReleaseHome(t)
	alone := filepath.Join(t.TempDir(), "atm-agent-mcp")
	wantNil(t, os.CopyFS(alone, os.DirFS(filepath.Join(h.dir, "npm", "node_modules", "atm-agent-mcp"))))
	shim := filepath.Join(alone, "bin", "atm-agent-mcp.js")
	other := filepath.Join(t.TempDir(), "other.js")
	wantNil(t, os.WriteFile(other, []byte(`Object.defineProperty(process, "arch", { value: "riscv64" })`), 0o600))
	for _, tt := range []struct {
		command []string
		hint    string
	}{
		{[]string{"node", shim, "serve"}, "npm install atm-agent-mcp-linux-x64@" + releaseVersion},
		{[]string{"node", "--require", other, shim, "serve"}, "go install github.com/randlee/atm-agent-mcp@latest"},
	} {
		code, out, errs := h.run(tt.command...)
		if code != 1 || out != "" || !strings.Contains(errs, tt.hint) {
			t.Errorf("%d, %q, %q, want %q", code, out, errs, tt.hint)
		}
	}
}

// What the ACP registry refuses, by its schema and its build script of February 2026.
func TestReleaseForTheACPRegistry(t *testing.T) {
	dist := filepath.Join(releaseDir(t), "repository", "dist")
	type start struct {
		Package, Archive, Cmd string
		Args                  []string
		Env                   map[string]string
	}
	var agent struct {
		ID, Name, Version, Description, Repository, License string
		Authors                                             []string
		Distribution                                        struct {
			Npx    *start
			Binary map[string]start
		}
	}
	decoder := json.NewDecoder(strings.NewReader(readText(t, filepath.Join(dist, "agent.json"))))
	decoder.DisallowUnknownFields()
	wantNil(t, decoder.Decode(&agent))
	if agent.ID != "atm-agent-mcp" || agent.Name == "" || agent.Description == "" || agent.Version != releaseVersion {
		t.Errorf("%+v", agent)
	}
	if u, err := url.Parse(agent.Repository); err != nil || u.Scheme != "https" {
		t.Errorf("repository %q, %v", agent.Repository, err)
	}
	want(t, agent.Distribution.Npx.Package, "atm-agent-mcp@"+releaseVersion)
	want(t, strings.Join(slices.Sorted(maps.Keys(agent.Distribution.Binary)), " "), "darwin-aarch64 darwin-x86_64 "+
		"linux-aarch64 linux-x86_64 windows-aarch64 windows-x86_64")
	for target, s := range agent.Distribution.Binary {
		at, asset, _ := strings.Cut(s.Archive, "/releases/download/v"+releaseVersion+"/")
		want(t, at, "https://github.com/randlee/atm-agent-mcp")
		list := exec.Command("tar", "-tf", filepath.Join(dist, asset))
		if strings.HasSuffix(asset, ".zip") {
			list = exec.Command("unzip", "-Z1", filepath.Join(dist, asset))
		}
		names, err := list.Output()
		program := strings.TrimPrefix(s.Cmd, "./")
		if err != nil || !slices.Contains(strings.Split(strings.ReplaceAll(string(names), "./", ""), "\n"), program) ||
			!slices.Equal(s.Args, []string{"acp"}) {
			t.Errorf("%s: %+v has no program in %s, %v", target, s, names, err)
		}
	}

	icon := readText(t, filepath.Join(dist, "icon.svg"))
	if !strings.Contains(icon, `width="16" height="16" viewBox="0 0 16 16"`) {
		t.Error("the icon is not 16x16")
	}
	for _, m := range regexp.MustCompile(`(?:fill|stroke)="([^"]*)"`).FindAllStringSubmatch(icon, -1) {
		if m[1] != "currentColor" && m[1] != "none" {
			t.Errorf("the icon has %s, which no theme can change", m[0])
		}
	}
}

// The links of the README give a client what its row says.
func TestInstallLinks(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	wantNil(t, err)
	part := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindSubmatch(readme)
		if found == nil {
			t.Fatalf("README.md has no %s", pattern)
		}
		text, err := url.QueryUnescape(string(found[1]))
		wantNil(t, err)
		return text
	}
	cursor, err := base64.StdEncoding.DecodeString(part(`mcp/install\?name=codex&config=([^` + "`" + `]+)`))
	wantNil(t, err)
	code, err := url.QueryUnescape(strings.TrimPrefix(part(`vscode\.dev/redirect\?url=([^)]+)`), "vscode:mcp/install?"))
	wantNil(t, err)
	if string(cursor) != `{"command":"atm-agent-mcp","args":["serve"]}` ||
		code != `{"name":"codex","command":"atm-agent-mcp","args":["serve"]}` {
		t.Errorf("Cursor gets %s, VS Code %s", cursor, code)
	}
}

// A sum that stands beside a file's address is that file's: Homebrew and clients of the MCP registry compare it.
func TestReleaseSums(t *testing.T) {
	dist := filepath.Join(releaseDir(t), "repository", "dist")
	sums := readText(t, filepath.Join(dist, "checksums.txt"))
	for name, n := range map[string]int{"atm-agent-mcp.rb": 4, "server.json": 6} {
		pairs := regexp.MustCompile(`/v`+releaseVersion+`/([^"/]+)",?\s+"?(?:sha256|fileSha256":) "([0-9a-f]{64})"`).
			FindAllStringSubmatch(readText(t, filepath.Join(dist, name)), -1)
		for _, m := range pairs {
			if !strings.Contains(sums, m[2]+"  "+m[1]+"\n") {
				t.Errorf("%s: %s has another sum than %s", name, m[1], m[2])
			}
		}
		if len(pairs) != n {
			t.Errorf("%s has %d sums, want %d", name, len(pairs), n)
		}
	}
}
