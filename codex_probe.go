package main

// codex_probe.go owns finding a Codex and what it can do: which binary, where its own
// configuration lies, whether it has app-server or mcp-server. proxy.go asks
// before it starts a child, doctor to tell. It must never start a Codex that
// does more than print its help.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

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

// childProbe finds Codex and remembers what it can do, by path, size and time
// of the file. The hub owns one.
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
			return codexBinary{}, nil, &childDeath{Never: true, Path: bin, Reason: "could not be started: finding our own executable: " + err.Error()}
		}
		return codexBinary{Path: self, Args: []string{"mock-codex"}, AppServer: true}, nil, nil
	}
	if bin == "" {
		bin = "codex"
	}
	const hint = "; install Codex with `npm install -g @openai/codex`, or name another binary with codex_bin in .atm.toml or --codex-bin"
	path, err := exec.LookPath(bin)
	if err == nil || errors.Is(err, exec.ErrDot) {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		if file := notExecutable(bin); file != "" {
			return codexBinary{}, nil, &childDeath{Never: true, Path: bin, Reason: fmt.Sprintf("could not be started: %s is not executable; chmod +x %s", file, file)}
		}
		reason := fmt.Sprintf("could not be started: %q was not found on PATH", bin)
		if strings.ContainsRune(bin, os.PathSeparator) {
			reason = fmt.Sprintf("could not be started: %q: %v", bin, errors.Unwrap(err))
		}
		return codexBinary{}, nil, &childDeath{Never: true, Path: bin, Reason: reason + hint}
	}
	found := codexBinary{Path: path}
	info, err := os.Stat(path)
	if err != nil {
		return found, nil, &childDeath{Never: true, Path: path, Reason: "could not be started: " + errorText(err) + hint}
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

// probeBackend finds the codex of bin and what it has of what want names
// ("app-server", "mcp-server", or "auto" for the better of them), by asking it
// for help on that, once per file. The error is a *childDeath.
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
		if found.AppServer, err = p.has(ctx, found.Path, info, "app-server", env); err != nil || found.AppServer || want == "app-server" {
			return found, err
		}
	}
	found.MCPServer, err = p.has(ctx, found.Path, info, "mcp-server", env)
	return found, err
}

// has asks for help on one command, or remembers.
func (p *childProbe) has(ctx context.Context, path string, info os.FileInfo, command string, env []string) (bool, error) {
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

// askForHelp runs `codex help <command>`. Where that tells nothing (a broken
// binary, a wrapper script that hangs) it isn't sure and says yes: starting
// the command then fails with the binary's own words.
func askForHelp(ctx context.Context, path, command string, env []string) (has, sure bool) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "help", command)
	cmd.Env = env
	cmd.WaitDelay = pipeDrain
	group := newProcGroup(cmd)
	cmd.Cancel = func() error { return group.kill() }
	out := &stderrTail{}
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.Start() != nil {
		return true, false
	}
	_ = group.attach(cmd)
	err := cmd.Wait()
	_ = group.close()
	text := strings.ToLower(string(out.head))
	switch {
	case err == nil && strings.Contains(text, command):
		return true, true
	case err != nil && (strings.Contains(text, "subcommand") || strings.Contains(text, "usage:")):
		return false, true // clap: unrecognized subcommand
	case err == nil && strings.Contains(text, "usage:"):
		return false, true // it printed its general help
	}
	return true, false
}
