package main

// main_doctorclients.go owns doctor's look at the MCP clients of this machine: which of them start this program, which
// still start what Codex no longer has, and whether Claude Code is new enough. Only the user's and the repository's
// files are read, and of what they name nothing is started.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxClientFile is what is read of a client's configuration; Claude Code keeps the history of its projects in there.
const maxClientFile = 64 << 20

// clientServers are what MCP clients keep about their servers: Claude Code and Cursor under mcpServers, VS Code under
// servers, and Claude Code for each project once more.
type clientServers struct {
	MCPServers map[string]clientServer `json:"mcpServers"`
	Servers    map[string]clientServer `json:"servers"`
	Projects   map[string]struct {
		MCPServers map[string]clientServer `json:"mcpServers"`
	} `json:"projects"`
	EnabledPlugins map[string]any `json:"enabledPlugins"` // of Claude Code's settings; ours is atm, of any marketplace
}

type clientServer struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// checkClients looks into every file where a client of this directory may have servers registered.
func (d *doctor) checkClients(ctx context.Context) {
	root := cmp.Or(deref(readRepo(d.cfg.cwd).Root), d.cfg.cwd)
	claude := filepath.Join(cmp.Or(os.Getenv("CLAUDE_CONFIG_DIR"), d.cfg.home), ".claude.json")
	own := readClientFile(claude)
	registered := d.checkServers("Claude Code", "user", claude, own.MCPServers)
	for _, dir := range slices.Compact([]string{root, d.cfg.cwd}) {
		registered = d.checkServers("Claude Code", "local", claude, own.Projects[dir].MCPServers) || registered
	}
	shared := filepath.Join(root, ".mcp.json")
	registered = d.checkServers("Claude Code", "project", shared, readClientFile(shared).MCPServers) || registered
	for _, dir := range slices.Compact([]string{d.cfg.home, root}) {
		cursor := filepath.Join(dir, ".cursor", "mcp.json")
		d.checkServers("Cursor", "", cursor, readClientFile(cursor).MCPServers)
	}
	code := filepath.Join(root, ".vscode", "mcp.json")
	d.checkServers("VS Code", "", code, readClientFile(code).Servers)
	user := cmp.Or(os.Getenv("CLAUDE_CONFIG_DIR"), filepath.Join(d.cfg.home, ".claude"))
	for _, settings := range []string{filepath.Join(user, "settings.json"),
		filepath.Join(root, ".claude", "settings.json"), filepath.Join(root, ".claude", "settings.local.json")} {
		for plugin, on := range readClientFile(settings).EnabledPlugins {
			registered = registered || on == true && strings.HasPrefix(plugin, "atm@")
		}
	}
	if registered {
		d.checkClaudeCode(ctx)
	}
}

// readClientFile leaves out what it can't read: that client says so itself.
func readClientFile(path string) (found clientServers) {
	if data, err := readRegular(path, maxClientFile); err == nil {
		_ = json.Unmarshal(data, &found)
	}
	return found
}

// checkServers tells of the servers of one file those that are this program, or should be, and reports whether one is.
func (d *doctor) checkServers(client, scope, path string, servers map[string]clientServer) (ours bool) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		s := servers[name]
		who := fmt.Sprintf("%s's server %q (%s)", client, cutName(name), path)
		mend := fmt.Sprintf("there, give it the command `%s` and the arguments [\"serve\"]", pluginName)
		if scope != "" && validIdentity(name) == nil { // a repository's file may hold words that a shell would obey
			mend = fmt.Sprintf("claude mcp remove -s %s %s && claude mcp add -s %[1]s %[2]s -- %s serve", scope, name,
				pluginName)
		}
		switch program := baseProgram(s.Command); {
		case program == "codex" && slices.Contains(s.Args, "mcp-server"):
			d.warn(who+" starts `codex mcp-server`, a command that Codex has no more since 0.154", mend)
		case program == pluginName || program == ancestorName:
			ours = true
			if _, err := lookProgram(s.Command); err != nil && !errors.Is(err, exec.ErrDot) {
				d.warn(fmt.Sprintf("%s starts %q, which was not found", who, s.Command), mend)
				continue
			}
			d.ok("%s starts %q", who, strings.Join(append([]string{s.Command}, s.Args...), " "))
		}
	}
	return ours
}

// baseProgram is a command's last word, without the endings of Windows' programs.
func baseProgram(command string) string {
	name := strings.ToLower(filepath.Base(command))
	for _, end := range []string{".exe", ".cmd"} {
		name = strings.TrimSuffix(name, end)
	}
	return name
}

// checkClaudeCode asks for its version. What older ones lack was measured by the capabilities that they tell a server,
// and by what a plugin may bring with it.
func (d *doctor) checkClaudeCode(ctx context.Context) {
	path, err := lookProgram("claude")
	if err != nil {
		return // it may run elsewhere, or under another name
	}
	ctx, cancel := context.WithTimeout(ctx, d.wait)
	defer cancel()
	cmd := programCommand(ctx, nil, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || n != 3 {
		return
	}
	older := func(than int) bool { return slices.Compare([]int{major, minor, patch}, []int{2, 1, than}) < 0 }
	switch {
	case older(85):
		d.warn("Claude Code "+version+" shows no questions of servers, as 2.1.85 does: what agents ask for can only "+
			"be decided by agent_approve", "claude update")
	case older(105):
		d.warn("Claude Code "+version+" can't be woken by a plugin, as 2.1.105 can: mail waits for its next request",
			"claude update")
	default:
		d.ok("Claude Code %s", version)
	}
}
