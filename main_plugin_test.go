package main

// main_plugin_test.go holds the plugin in packaging/plugin to this program: its commands, tools, arguments and limits.
// Claude Code's own validator, which .ci/run starts, knows none of these.

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const pluginDir = "packaging/plugin"

// readPlugin reads a JSON file of the plugin, "../.." being the repository's root.
func readPlugin[T any](t *testing.T, path string) (v T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.FromSlash(pluginDir), filepath.FromSlash(path)))
	wantNil(t, err)
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

type pluginServers map[string]struct {
	Command string
	Args    []string
}

type pluginManifest struct {
	Name, Version, Description string
	MCPServers                 json.RawMessage
	UserConfig                 map[string]struct{ Type string }
}

// TestPluginOfBothClients: the plugin is one for Claude Code and Codex, starts this program, and asks it for what it
// has.
func TestPluginOfBothClients(t *testing.T) {
	claude := readPlugin[pluginManifest](t, ".claude-plugin/plugin.json")
	codex := readPlugin[pluginManifest](t, ".codex-plugin/plugin.json")
	if claude.Name != codex.Name || claude.Version != codex.Version || claude.Description != codex.Description {
		t.Errorf("the plugin is %q %q %q to Claude Code, %q %q %q to Codex", claude.Name, claude.Version,
			claude.Description, codex.Name, codex.Version, codex.Description)
	}
	market := readPlugin[struct {
		Plugins []struct{ Name, Source, Description string }
	}](t, "../../.claude-plugin/marketplace.json")
	if p := market.Plugins; len(p) != 1 || p[0].Name != claude.Name || p[0].Source != "./"+pluginDir ||
		p[0].Description != claude.Description {
		t.Errorf("the marketplace has %+v", p)
	}
	var path string
	var servers pluginServers
	wantNil(t, json.Unmarshal(claude.MCPServers, &servers))
	wantNil(t, json.Unmarshal(codex.MCPServers, &path))
	maps.Copy(servers, readPlugin[struct{ MCPServers pluginServers }](t, path).MCPServers)
	hooks := readPlugin[struct {
		Hooks map[string][]struct {
			Hooks []struct {
				Command string
				Args    []string
				Timeout int
			}
		}
	}](t, "hooks/hooks.json")
	for name, s := range servers {
		checkCommand(t, "server "+name, s.Command, s.Args)
	}
	for event, all := range hooks.Hooks {
		for _, h := range all[0].Hooks {
			checkCommand(t, "hook "+event, h.Command, h.Args)
			if event == "Stop" && h.Timeout < int((gateFindLimit+gateLimit+gateStartLimit+endLimit).Seconds()) {
				t.Errorf("the Stop hook is killed after %d s, before the gate ends by itself", h.Timeout)
			}
		}
	}
	monitors := readPlugin[[]struct{ Name, Command string }](t, "monitors/monitors.json")
	for _, m := range monitors {
		words := strings.Fields(m.Command)
		checkCommand(t, "monitor "+m.Name, words[0], words[1:])
		want(t, words[len(words)-1], "--follow")
	}
	if len(hooks.Hooks["Stop"]) != 1 || len(hooks.Hooks["SessionStart"]) != 1 || len(monitors) != 1 {
		t.Errorf("the hooks are %+v, the monitors %+v", hooks.Hooks, monitors)
	}
	key := strings.ToLower(strings.TrimPrefix(gateSwitch, "CLAUDE_PLUGIN_OPTION_"))
	if claude.UserConfig[key].Type != "boolean" || len(claude.UserConfig) != 1 {
		t.Errorf("the plugin's settings are %v, and the gate is switched by %s", claude.UserConfig, key)
	}
}

// checkCommand holds a command line of the plugin to the commands that there are.
func checkCommand(t *testing.T, what, program string, args []string) {
	t.Helper()
	if program != serverName || len(args) == 0 {
		t.Errorf("%s runs %s %q", what, program, args)
	} else if row, ok := findCommand(nil, args[0]); !ok {
		t.Errorf("%s runs the command %q, which is none", what, args[0])
	} else if err := row.flagSet(flagValues{}).Parse(args[1:]); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// TestPluginNamesToolsThatExist: a command or an agent of the plugin names only tools that the server has, and in
// backquotes only arguments that one of those has.
func TestPluginNamesToolsThatExist(t *testing.T) {
	args := map[string][]string{}
	for _, tool := range toolTable() {
		for _, a := range tool.args {
			args[tool.name] = append(args[tool.name], a.name)
		}
		args[tool.name] = append(args[tool.name], "") // a tool without arguments is one too
	}
	named := regexp.MustCompile(`mcp__plugin_atm_codex__([a-z_-]+)`)
	quoted := regexp.MustCompile("`([a-z]+(?:_[a-z]+)*)`")
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(pluginDir), "[ac]*s", "*.md"))
	wantNil(t, err)
	if len(files) != 8 {
		t.Errorf("there are %q", files)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		wantNil(t, err)
		head, body, ok := strings.Cut(strings.TrimPrefix(string(text), "---\n"), "\n---\n")
		if !ok || !strings.Contains(head, "description: ") {
			t.Errorf("%s has no front matter", file)
		}
		var known, allowed []string
		for _, m := range named.FindAllStringSubmatch(head, -1) {
			allowed = append(allowed, m[1])
		}
		for _, m := range named.FindAllStringSubmatch(body, -1) {
			if args[m[1]] == nil {
				t.Errorf("%s calls %s, which is no tool", file, m[1])
			}
			known = append(known, args[m[1]]...)
			allowed = slices.DeleteFunc(allowed, func(name string) bool { return name == m[1] })
		}
		for _, m := range quoted.FindAllStringSubmatch(body, -1) {
			if known != nil && !slices.Contains(known, m[1]) {
				t.Errorf("%s gives a tool %s, which is no argument of it", file, m[1])
			}
		}
		if len(allowed) > 0 {
			t.Errorf("%s allows %q and doesn't call that", file, allowed)
		}
	}
}
