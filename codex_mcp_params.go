package main

// codex_mcp_params.go owns what codex mcp-server is told: the arguments of the
// tool calls in the words of each version's own schema, the answers to its
// elicitations, and the user's Codex configuration, which it can't be asked
// for and which is read from its file. The driver calls it. It must send
// nothing that the child's schema doesn't have: 0.148 and later refuse the
// whole call for one unknown field.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// mcpSchema is what matters of the child's own tools/list.
type mcpSchema struct {
	codex, reply bool // the two tools are there
	untrusted    bool // approval-policy still has the word (not in 0.153)
	profile      bool // 0.104 only
}

func readMCPSchema(list json.RawMessage) (s mcpSchema) {
	eachElement(rawField(list, "tools"), func(tool json.RawMessage) {
		switch stringField(tool, "name") {
		case "codex":
			props := rawField(tool, "inputSchema", "properties")
			words := rawField(props, "approval-policy", "enum")
			s.codex, s.untrusted, s.profile = true, rawListHas(words, "untrusted"), rawField(props, "profile") != nil
		case "codex-reply":
			s.reply = true
		}
	})
	return s
}

// mcpPrompt is all of a command that the tools can take: text. why says what
// they can't.
func mcpPrompt(c command) (prompt, why string) {
	if c.action != actPrompt {
		return "", "codex mcp-server can neither compact a thread nor review changes; use a Codex with app-server for that"
	}
	prompt = c.prompt
	for _, p := range c.parts {
		if p.kind != "text" {
			return "", "codex mcp-server takes text only, and the prompt has an image; use a Codex with app-server for that"
		}
		if prompt != "" {
			prompt += "\n"
		}
		prompt += p.text
	}
	return prompt, ""
}

// startArguments are those of the codex tool: a new thread with its first turn.
func startArguments(s mcpSchema, spec threadSpec, prompt string) map[string]any {
	set := spec.Settings
	a := map[string]any{"prompt": prompt}
	put := func(key, val string) {
		if val != "" {
			a[key] = val
		}
	}
	put("cwd", set.Cwd)
	put("model", set.Model)
	put("sandbox", set.Sandbox)
	put("base-instructions", spec.BaseInstructions)
	put("developer-instructions", spec.DeveloperInstructions)
	config := map[string]json.RawMessage{}
	_ = eachField(spec.Config, func(key string, val json.RawMessage) bool {
		config[key] = val
		return true
	})
	if set.Approval == "untrusted" && !s.untrusted {
		// Without the word, a directory that isn't trusted still means it.
		projects := map[string]json.RawMessage{}
		_ = eachField(config["projects"], func(dir string, val json.RawMessage) bool {
			projects[dir] = val
			return true
		})
		projects[set.Cwd] = json.RawMessage(`{"trust_level":"untrusted"}`)
		config["projects"] = toJSON(projects)
	} else {
		put("approval-policy", set.Approval)
	}
	if set.Effort != "" {
		config["model_reasoning_effort"] = toJSON(set.Effort)
	}
	if set.Sandbox == sandboxWrite {
		roots := set.WritableRoots
		if roots == nil {
			roots = []string{}
		}
		config["sandbox_workspace_write"] = toJSON(map[string]any{"writable_roots": roots, "network_access": set.Network,
			"exclude_tmpdir_env_var": set.ExcludeTmpdir, "exclude_slash_tmp": set.ExcludeSlashTmp})
	}
	if s.profile {
		put("profile", spec.Profile)
	}
	if len(config) > 0 {
		a["config"] = config
	}
	return a
}

// elicitationReply says d in both dialects at once, so that whichever is read
// means the same. 0.104 takes a bare "denied", later ones a reason with it that
// the model gets to see; neither may get an error, which hangs the turn. rule
// is Codex's own proposal, which approveAlways gives back as it came.
func elicitationReply(info backendInfo, d decision, why string, rule json.RawMessage) map[string]any {
	switch d {
	case approve:
		return map[string]any{"action": "accept", "content": map[string]any{}, "decision": "approved"}
	case approveForSession:
		return map[string]any{"action": "accept", "content": map[string]any{}, "decision": "approved_for_session"}
	case approveAlways:
		if rule == nil {
			return elicitationReply(info, approve, why, nil)
		}
		return map[string]any{"action": "accept", "content": map[string]any{},
			"decision": map[string]any{"approved_execpolicy_amendment": map[string]any{"proposed_execpolicy_amendment": rule}}}
	case deny:
	}
	if !info.atLeast(148) {
		return map[string]any{"action": "decline", "decision": "denied"}
	}
	why = cmp.Or(why, "declined")
	return map[string]any{"action": "decline", "decision": map[string]any{"denied": map[string]any{"rejection": why}}}
}

// maxUserConfig is how large a config.toml may be.
const maxUserConfig = 1 << 20

// readCodexConfig reads $CODEX_HOME/config.toml into the form that app-server
// answers config/read with. None at all is an empty one.
func readCodexConfig(home string) (json.RawMessage, error) {
	path := filepath.Join(home, "config.toml")
	plain := map[string]any{}
	data, err := readRegular(path, maxUserConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return toJSON(map[string]any{"config": plain}), nil
	case err != nil:
		return nil, fmt.Errorf("reading the Codex configuration: %w", err)
	}
	table, err := parseTOML(path, data)
	if err != nil {
		return nil, fmt.Errorf("reading the Codex configuration: %w", err)
	}
	return toJSON(map[string]any{"config": table.plain()}), nil
}
