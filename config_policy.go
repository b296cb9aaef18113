package main

// config_policy.go owns what a session may do: from a call's arguments, its profile,
// its role, our configuration and the user's own Codex configuration it makes
// the complete settings of a turn and the config that a thread is started
// with. session_opening.go calls it whenever a session gets its place.
// It must never let anything pass the ceilings (--readonly, max_sandbox) nor
// widen what the user's own Codex configuration narrowed. The trees are
// config_overrides.go's, the meaning of their words config_codex.go's. Only checkCwd
// touches the disk.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// policyInput is everything that has a say. An empty word was set by nobody.
type policyInput struct {
	Options sessionOptions
	Role    role // zero: none

	// Our configuration.
	Model    string
	Effort   string
	Sandbox  string
	Approval string
	Ceiling  ceiling   // zero: none
	Own      *ownWords // nil: Role, Sandbox and Approval are all the user's own word

	UserConfig json.RawMessage // app-server's config/read answer, nil when unknown
	Profile    map[string]any  // $CODEX_HOME/<p>.config.toml, nil when none

	Cwd, Home string
	RepoRoot  string   // "" outside a repository
	Roots     []string // what the client works in beside Cwd, absolute
	Chosen    bool     // a person chooses by the client's modes, not by arguments
}

// ownWords are the role and the words that would hold without the repository's file, which the user has not trusted:
// what it says counts only where it is narrower (config.own).
type ownWords struct {
	Role              role
	Sandbox, Approval string
}

// configPolicy is the part of a policyInput that the configuration has, for a session of that role.
func configPolicy(c *config, asRole role) policyInput {
	in := policyInput{Role: asRole, Model: c.model, Effort: c.effort, Sandbox: c.sandbox, Approval: c.approvalPolicy,
		Ceiling: c.top, Home: c.home}
	if c.own != nil {
		in.Own = &ownWords{c.ownRole(asRole.name), c.own.sandbox, c.own.approvalPolicy}
	}
	return in
}

// policy is what came of it.
type policy struct {
	Settings turnSettings
	Config   json.RawMessage // for thread/start.config: nested, never dotted, nil for none
	Notes    []string        // what the caller should know, a sentence each
}

// statedPolicy is what one source says of the settings that a turn carries.
type statedPolicy struct {
	model, effort, sandbox, approval string
	write                            map[string]any // sandbox_workspace_write
	sandboxNote, approvalNote        string         // said when the word is the one that counts
}

// resolvePolicy decides by tool argument > config argument > profile > role >
// our configuration > the user's Codex configuration > default.
func resolvePolicy(in policyInput) (policy, *rpcError) {
	arg, err := expandConfig(in.Options.Config)
	if err != nil {
		return policy{}, proxyError(codeInvalidSession, err.Error())
	}
	prof, err := expandProfile(in.Profile)
	if err != nil {
		return policy{}, proxyError(codeInvalidSession, fmt.Sprintf("profile %q: %v", in.Options.Profile, err))
	}
	user, known := readUserConfig(in.UserConfig)
	out := policy{Settings: turnSettings{Cwd: in.Cwd}}

	fromArg, err := argumentWords(arg)
	if err != nil {
		return policy{}, proxyError(codeInvalidSession, err.Error())
	}
	profile := in.Options.Profile
	if word, ok := arg["profile"].(string); ok && profile == "" {
		profile = word
	}
	var fromProfile statedPolicy
	if prof != nil {
		fromProfile = fileWords(prof, "the profile")
		// A profile can't select another one: Codex from 0.148 on refuses config.profile.
		delete(prof, "profile")
		delete(prof, "profiles")
	} else if own := tableAt(user, "profiles", profile); own != nil {
		// Codex before 0.148 merges [profiles.x] itself, but a turn's settings would hide its words.
		fromProfile = fileWords(maps.Clone(own), "the profile")
	}
	fromUser := userWords(user)

	// FR-12.4: what only the user's Codex configuration says of model and effort is Codex's to apply.
	out.Settings.Model = cmp.Or(in.Options.Model, fromArg.model, fromProfile.model, in.Role.model, in.Model)
	out.Settings.Effort = cmp.Or(in.Options.Effort, fromArg.effort, fromProfile.effort, in.Role.effort, in.Effort)

	choose := func(r role, sandbox, approval string) statedPolicy {
		return firstWords(statedPolicy{sandbox: in.Options.Sandbox, approval: in.Options.Approval}, fromArg, fromProfile,
			statedPolicy{sandbox: r.sandbox, approval: r.approvalPolicy}, statedPolicy{sandbox: sandbox, approval: approval}, fromUser)
	}
	note := func(s string) {
		if s != "" {
			out.Notes = append(out.Notes, s)
		}
	}
	chosen := choose(in.Role, in.Sandbox, in.Approval)
	if in.Own != nil {
		var why string
		chosen, why = narrowWords(chosen, choose(in.Own.Role, in.Own.Sandbox, in.Own.Approval), func() string {
			word, _ := defaultSandbox(in, user, known)
			return word
		})
		note(why)
	}
	out.Settings.Approval = turnApproval(chosen.approval)
	note(chosen.approvalNote)
	note(chosen.sandboxNote)

	top := in.Ceiling
	switch {
	case chosen.sandbox == "":
		word, why := defaultSandbox(in, user, known)
		out.Settings.Sandbox = top.cap(word) // nobody asked for more, so nobody is told
		if top.word != sandboxRead {         // else its advice would not help
			note(why)
		}
	case sandboxRank(chosen.sandbox) == 0: // every source was checked where it was read; should one slip through, fail closed
		out.Settings.Sandbox = sandboxRead
		note(fmt.Sprintf("sandbox is read-only because %q is none of %s", chosen.sandbox, sandboxModes()))
	case top.cap(chosen.sandbox) != chosen.sandbox:
		out.Settings.Sandbox = top.word
		note(fmt.Sprintf("sandbox %s was asked for; %s allows %s", chosen.sandbox, top.name, top.word))
	default:
		out.Settings.Sandbox = chosen.sandbox
	}
	widenSettings(&out, in, top, fromArg.write, fromProfile.write, fromUser.write)

	if top.binds() {
		dropped := append(stripWidening(arg, false), stripWidening(prof, true)...)
		if len(dropped) > 0 {
			slices.Sort(dropped)
			if most := 12; len(dropped) > most {
				dropped = append(dropped[:most], fmt.Sprintf("and %d more", len(dropped)-most))
			}
			note(fmt.Sprintf("left out of config: %s (%s allows %s, so only settings known to keep within it pass)",
				strings.Join(slices.Compact(dropped), ", "), top.name, top.word))
		}
	}
	merged, err := mergeConfig(prof, arg)
	if err != nil {
		return policy{}, proxyError(codeInvalidSession, fmt.Sprintf("the config argument and profile %q contradict each other: %v", in.Options.Profile, err))
	}
	if in.Options.CompactPrompt != "" {
		merged["compact_prompt"] = in.Options.CompactPrompt // explicit fields win, as in the removed command
	}
	if len(merged) > 0 {
		out.Config = toJSON(merged)
	}
	return out, nil
}

// firstWords are the sandbox and the approval policy of the first that has one.
func firstWords(of ...statedPolicy) (chosen statedPolicy) {
	for _, w := range of {
		if chosen.sandbox == "" {
			chosen.sandbox, chosen.sandboxNote = w.sandbox, w.sandboxNote
		}
		if chosen.approval == "" {
			chosen.approval, chosen.approvalNote = w.approval, w.approvalNote
		}
	}
	return chosen
}

// narrowWords takes from own what is narrower there, and says why. unset is the sandbox where nobody has a word.
func narrowWords(chosen, own statedPolicy, unset func() string) (statedPolicy, string) {
	var kept []string
	if chosen.sandbox != own.sandbox && sandboxRank(cmp.Or(own.sandbox, unset())) < sandboxRank(cmp.Or(chosen.sandbox, unset())) {
		kept = append(kept, "sandbox "+chosen.sandbox)
		chosen.sandbox, chosen.sandboxNote = own.sandbox, own.sandboxNote
	}
	if approvalRank(turnApproval(own.approval)) < approvalRank(turnApproval(chosen.approval)) {
		kept = append(kept, "approval policy "+turnApproval(chosen.approval))
		chosen.approval, chosen.approvalNote = own.approval, own.approvalNote
	}
	if len(kept) == 0 {
		return chosen, ""
	}
	return chosen, fmt.Sprintf("%s of the repository's .atm.toml has no effect: that file is not trusted, and it would widen what holds without it (%s shows and accepts it)",
		strings.Join(kept, " and "), trustCommand)
}

func sandboxModes() string {
	return strings.Join([]string{sandboxRead, sandboxWrite, sandboxDanger}, ", ")
}

// turnApproval makes a policy a word that a turn of any version carries:
// on-failure is gone since Codex 0.148, granular ones are experimental.
func turnApproval(word string) string {
	switch word {
	case "untrusted", "never":
		return word
	}
	return "on-request"
}

// defaultSandbox is the mode when nobody set one, and a word on how to widen it.
func defaultSandbox(in policyInput, user map[string]any, known bool) (word, note string) {
	cwd, why := filepath.Clean(in.Cwd), ""
	switch {
	case !known: // the user may have narrowed it where we can't see
		why = "the user's Codex configuration could not be read"
	case in.Home != "" && cwd == filepath.Clean(in.Home):
		why = in.Cwd + " is the home directory"
	case filepath.Dir(cwd) == cwd:
		why = in.Cwd + " is a root directory"
	case in.RepoRoot == "":
		why = in.Cwd + " is outside a git repository"
	case isUntrusted(user, cwd) || isUntrusted(user, in.RepoRoot):
		why = "the user's Codex configuration marks " + in.RepoRoot + " as untrusted"
	default:
		return sandboxWrite, ""
	}
	if in.Chosen {
		return sandboxRead, fmt.Sprintf("sandbox is read-only because %s; choose another mode to let the agent edit", why)
	}
	return sandboxRead, fmt.Sprintf("sandbox is read-only because %s; pass sandbox: %q to let the agent edit", why, sandboxWrite)
}

func isUntrusted(user map[string]any, dir string) bool {
	level, _ := tableAt(user, "projects", dir)["trust_level"].(string)
	return level == "untrusted"
}

// widenSettings fills in network, writable roots and excludes: each from the
// config argument, else the profile, else the user's Codex configuration.
func widenSettings(out *policy, in policyInput, top ceiling, arg, prof, user map[string]any) {
	s := &out.Settings
	first := func(key string) any {
		for _, t := range []map[string]any{arg, prof, user} {
			if v, ok := t[key]; ok {
				return v
			}
		}
		return nil
	}
	isTrue := func(v any) bool { b, _ := v.(bool); return b }
	network := isTrue(first("network_access"))

	if top.word == sandboxRead {
		var asked []string
		for _, t := range []map[string]any{arg, prof} {
			if isTrue(t["network_access"]) {
				asked = append(asked, "network_access")
			}
			if roots, _ := t["writable_roots"].([]any); len(roots) > 0 {
				asked = append(asked, "writable_roots")
			}
		}
		if len(asked) > 0 {
			slices.Sort(asked)
			out.Notes = append(out.Notes, fmt.Sprintf("left out of sandbox_workspace_write: %s (%s allows %s)",
				strings.Join(slices.Compact(asked), ", "), top.name, top.word))
		}
		return
	}
	switch s.Sandbox {
	case sandboxRead: // an argument may take the network away here, only the user grants it
		s.Network = network && isTrue(user["network_access"])
	case sandboxWrite:
		s.Network = network
		s.ExcludeTmpdir = isTrue(first("exclude_tmpdir_env_var"))
		s.ExcludeSlashTmp = isTrue(first("exclude_slash_tmp"))
		own, asked := user["writable_roots"], first("writable_roots")
		if v, ok := prof["writable_roots"]; ok {
			own = v
		}
		_, argued := arg["writable_roots"]
		roots, relative := rootList(asked, in, argued)
		if top.binds() && argued {
			// A root like / would make workspace-write as wide as danger-full-access. Compared
			// as written: a link inside the workspace may lead anywhere.
			mine, _ := rootList(own, in, false)
			mine = append(mine, filepath.Clean(in.Cwd), in.RepoRoot)
			var kept, left []string
			for _, root := range roots {
				if slices.Contains(mine, root) {
					kept = append(kept, root)
				} else {
					left = append(left, root)
				}
			}
			roots = kept
			if len(left) > 0 {
				out.Notes = append(out.Notes, fmt.Sprintf("left out of writable_roots: %s (%s allows the workspace and the user's own roots)",
					strings.Join(left, ", "), top.name))
			}
		}
		if top.binds() { // nor may an argument or a profile open /tmp again
			s.ExcludeTmpdir = s.ExcludeTmpdir || isTrue(user["exclude_tmpdir_env_var"])
			s.ExcludeSlashTmp = s.ExcludeSlashTmp || isTrue(user["exclude_slash_tmp"])
		}
		s.WritableRoots = clientRoots(out, in, top, roots)
		if len(relative) > 0 {
			out.Notes = append(out.Notes, "left out of writable_roots, since they are not absolute: "+strings.Join(relative, ", "))
		}
	}
}

// clientRoots adds the directories that the client works in. Under a ceiling
// they are as good as an argument: what isn't the workspace or the user's own
// root stays out.
func clientRoots(out *policy, in policyInput, top ceiling, roots []string) []string {
	var left []string
	for _, root := range in.Roots {
		switch root = filepath.Clean(root); {
		case slices.Contains(roots, root), root == filepath.Clean(in.Cwd):
		case top.binds() && root != in.RepoRoot:
			left = append(left, root)
		default:
			roots = append(slices.Clip(roots), root)
		}
	}
	if len(left) > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("the client's directories %s stay read-only (%s allows the workspace and the user's own roots)",
			strings.Join(left, ", "), top.name))
	}
	return roots
}

// rootList reads writable_roots into absolute paths. Relative ones of an
// argument are taken from the session's directory; in a file they would mean
// that file's directory, so they are returned apart.
func rootList(v any, in policyInput, argued bool) (roots, relative []string) {
	list, _ := v.([]any)
	for _, e := range list {
		root, _ := e.(string)
		if root == "" {
			continue
		}
		path := expandHome(root, in.Home)
		if !filepath.IsAbs(path) {
			if !argued {
				relative = append(relative, root)
				continue
			}
			path = filepath.Join(in.Cwd, path)
		}
		if path = filepath.Clean(path); !slices.Contains(roots, path) {
			roots = append(roots, path)
		}
	}
	return roots, relative
}

// checkCwd makes the cwd argument an absolute directory that exists: Codex
// takes any string, and fails at the first command. Symlinks stay as given.
func checkCwd(arg, base, home string) (string, *rpcError) {
	bad := func(format string, args ...any) (string, *rpcError) {
		return "", proxyError(codeInvalidSession, fmt.Sprintf(format, args...))
	}
	path := expandHome(arg, home)
	if strings.HasPrefix(path, "~/") || path == "~" {
		return bad("cwd %q: the home directory is not known, give an absolute path", arg)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	path = filepath.Clean(path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(arg, "~"):
		return bad("cwd %q: %s does not exist (only a leading ~/ is expanded)", arg, path)
	case errors.Is(err, fs.ErrNotExist):
		return bad("cwd %s does not exist", path)
	case err != nil:
		return bad("cwd %q can't be used: %v", path, err)
	case !info.IsDir():
		return bad("cwd %s is not a directory", path)
	}
	return path, nil
}

// expandHome replaces a leading "~/" (or "~" alone) by the home directory.
func expandHome(path, home string) string {
	if home == "" || path != "~" && !strings.HasPrefix(path, "~/") {
		return path
	}
	return filepath.Join(home, path[1:])
}

// turnSettings are complete on every turn, since Codex's overrides stick and
// old versions restore nothing on resume. Empty words are not sent.
type turnSettings struct {
	Cwd      string `json:"cwd"`
	Model    string `json:"model,omitempty"`
	Effort   string `json:"effort,omitempty"`
	Approval string `json:"approval_policy"` // untrusted, on-request, never
	Sandbox  string `json:"sandbox"`         // read-only, workspace-write, danger-full-access

	// The user's own widening of workspace-write (and network of read-only).
	WritableRoots   []string `json:"writable_roots,omitempty"`
	Network         bool     `json:"network_access,omitempty"`
	ExcludeTmpdir   bool     `json:"exclude_tmpdir_env_var,omitempty"`
	ExcludeSlashTmp bool     `json:"exclude_slash_tmp,omitempty"`
}

// sessionOptions are the arguments of the codex tool that shape a session.
// Empty means: not given.
type sessionOptions struct {
	Model                 string
	Effort                string // a person's choice (ACP); the codex tool has it in Config
	Approval              string // normalized: untrusted, on-request, never
	Sandbox               string // normalized
	Config                json.RawMessage
	BaseInstructions      string
	DeveloperInstructions string
	CompactPrompt         string
	Profile               string
}
