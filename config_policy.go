package main

// config_policy.go owns what a session may do: of a call's arguments, its profile, its role, our configuration and the
// user's own Codex configuration it makes the complete settings of a turn and the config that a thread is started with.
// session_opener.go calls resolvePolicy whenever a session is opened. It must never let anything pass the ceilings
// (--readonly, max_sandbox), nor widen what the user's own Codex configuration narrowed. What the words of Codex's
// configuration mean is config_codex.go's. Only checkCwd touches the disk.

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

// A policyInput is everything that has a say in what a session may do. What was said by nobody is empty.
type policyInput struct {
	cfg     *config
	role    role // as cfg.role gives it, zero for none
	options sessionOptions
	user    json.RawMessage // app-server's answer to config/read, nil where it is not known
	profile map[string]any  // $CODEX_HOME/<profile>.config.toml, nil where there is none

	cwd, repoRoot string   // repoRoot is "" outside a repository
	standsFor     []string // the directories that cwd stands for, where it is in a worktree that was made for the agent
	roots         []string // what the client works in beside cwd, absolute
	chosen        bool     // a person chooses by the client's modes, not by a tool's arguments
}

// A policy is what a session may do.
type policy struct {
	Settings turnSettings
	Config   json.RawMessage // for thread/start.config: nested, never dotted, nil for none
	Notes    []string        // what the caller should know, a sentence each
}

// A statedPolicy is what one source says of the settings that a turn carries. "" was not said.
type statedPolicy struct {
	model, effort, sandbox, approval string
	write                            map[string]any // the table sandbox_workspace_write
	sandboxNote, approvalNote        string         // why sandbox or approval is not as written; told if it is chosen
}

// resolvePolicy decides by tool argument > config argument > profile > role >
// our configuration > the user's Codex configuration > default.
func resolvePolicy(in policyInput) (policy, *rpcError) {
	refuse := func(what string) (policy, *rpcError) { return policy{}, proxyError(codeInvalidSession, what) }
	arg, err := expandConfig(in.options.Config)
	if err != nil {
		return refuse(err.Error())
	}
	fromArg, err := argumentWords(arg)
	if err != nil {
		return refuse(err.Error())
	}
	prof, err := expandProfile(in.profile)
	if err != nil {
		return refuse(fmt.Sprintf("profile %q: %v", in.options.Profile, err))
	}
	user, known := readUserConfig(in.user)
	argProfile, _ := arg["profile"].(string)
	var fromProfile statedPolicy
	if in.profile != nil {
		fromProfile = takeWords(prof, "the profile")
		// A profile can't select another one: Codex from 0.148 on refuses config.profile.
		delete(prof, "profile")
		delete(prof, "profiles")
	} else { // Codex before 0.148 merges [profiles.x] itself, but a turn's settings would hide its words.
		own := tableAt(user, "profiles", cmp.Or(in.options.Profile, argProfile))
		fromProfile = takeWords(maps.Clone(own), "the profile")
	}
	fromUser := userWords(user)

	// FR-12.4: what only the user's Codex configuration says of model and effort is Codex's to apply.
	out := policy{Settings: turnSettings{
		Cwd:    in.cwd,
		Model:  cmp.Or(in.options.Model, fromArg.model, fromProfile.model, in.role.model, in.cfg.model),
		Effort: cmp.Or(in.options.Effort, fromArg.effort, fromProfile.effort, in.role.effort, in.cfg.effort),

		Collaboration: in.options.Collaboration,
	}}
	choose := func(r role, c *config) statedPolicy {
		return firstWords(statedPolicy{sandbox: in.options.Sandbox, approval: in.options.Approval}, fromArg,
			fromProfile, statedPolicy{sandbox: r.sandbox, approval: r.approvalPolicy},
			statedPolicy{sandbox: c.sandbox, approval: c.approvalPolicy}, fromUser)
	}
	chosen := choose(in.role, in.cfg)
	unset, unsetWhy := defaultSandbox(in, user, known)
	if own := in.cfg.own; own != nil { // what an untrusted .atm.toml says counts only where it is narrower
		var why string
		chosen, why = narrowWords(chosen, choose(in.cfg.ownRole(in.role.name), own), unset)
		out.note(why)
	}
	out.Settings.Approval = turnApproval(chosen.approval)
	if chosen.approvalNote != "" {
		out.note(chosen.approvalNote + "; it counts as " + out.Settings.Approval)
	}
	if chosen.sandboxNote != "" {
		out.note(chosen.sandboxNote + "; it counts as " + chosen.sandbox)
	}

	top := in.cfg.top
	switch {
	case chosen.sandbox == "":
		out.Settings.Sandbox = top.cap(unset) // nobody asked for more, so nobody is told
		if top.word != sandboxRead {          // else its advice would not help
			out.note(unsetWhy)
		}
	case sandboxRank(chosen.sandbox) == 0: // each was checked where it was read; should one slip through, fail closed
		out.Settings.Sandbox = sandboxRead
		out.note(fmt.Sprintf("sandbox is read-only because %q is none of %s", chosen.sandbox, sandboxModes()))
	case top.cap(chosen.sandbox) != chosen.sandbox:
		out.Settings.Sandbox = top.word
		out.note(fmt.Sprintf("sandbox %s was asked for; %s allows %s", chosen.sandbox, top.name, top.word))
	default:
		out.Settings.Sandbox = chosen.sandbox
	}
	out.widen(in, fromArg.write, fromProfile.write, fromUser.write)

	if top.binds() {
		dropped := append(stripWidening(arg, false), stripWidening(prof, true)...)
		if len(dropped) > 0 {
			slices.Sort(dropped)
			if most := 12; len(dropped) > most {
				dropped = append(dropped[:most], fmt.Sprintf("and %d more", len(dropped)-most))
			}
			out.note(fmt.Sprintf("left out of config: %s (%s allows %s, so only settings known to keep within it pass)",
				strings.Join(slices.Compact(dropped), ", "), top.name, top.word))
		}
	}
	merged, err := mergeConfig(prof, arg)
	if err != nil {
		return refuse(fmt.Sprintf("the config argument and profile %q contradict each other: %v", in.options.Profile,
			err))
	}
	if in.options.CompactPrompt != "" {
		merged["compact_prompt"] = in.options.CompactPrompt // explicit fields win, as in the removed command
	}
	if len(merged) > 0 {
		out.Config = toJSON(merged)
	}
	return out, nil
}

func (p *policy) note(s string) {
	if s != "" {
		p.Notes = append(p.Notes, s)
	}
}

// firstWords are the sandbox, the approval policy and the table of the first that has one.
func firstWords(of ...statedPolicy) (chosen statedPolicy) {
	for _, w := range of {
		if chosen.sandbox == "" {
			chosen.sandbox, chosen.sandboxNote = w.sandbox, w.sandboxNote
		}
		if chosen.approval == "" {
			chosen.approval, chosen.approvalNote = w.approval, w.approvalNote
		}
		if chosen.write == nil {
			chosen.write = w.write
		}
	}
	return chosen
}

// narrowWords takes from own what is narrower there, and says why. unset is the sandbox where nobody has a word.
func narrowWords(chosen, own statedPolicy, unset string) (statedPolicy, string) {
	var kept []string
	if chosen.sandbox != own.sandbox && sandboxRank(cmp.Or(own.sandbox, unset)) < sandboxRank(cmp.Or(chosen.sandbox,
		unset)) {
		kept = append(kept, "sandbox "+cmp.Or(chosen.sandbox, unset))
		chosen.sandbox, chosen.sandboxNote = own.sandbox, own.sandboxNote
	}
	if approvalRank(turnApproval(own.approval)) < approvalRank(turnApproval(chosen.approval)) {
		kept = append(kept, "approval policy "+turnApproval(chosen.approval))
		chosen.approval, chosen.approvalNote = own.approval, own.approvalNote
	}
	if len(kept) == 0 {
		return chosen, ""
	}
	return chosen, fmt.Sprintf("%s of the repository's .atm.toml has no effect: that file is not trusted, and it "+
		"would widen what holds without it (%s shows and accepts it)", strings.Join(kept, " and "), trustCommand)
}

func sandboxModes() string {
	return strings.Join([]string{sandboxRead, sandboxWrite, sandboxDanger}, ", ")
}

// turnApproval makes a policy a word that a turn of any version carries:
// on-failure is gone since Codex 0.148, granular ones are experimental.
func turnApproval(word string) string {
	if word == "untrusted" || word == "never" {
		return word
	}
	return "on-request"
}

// defaultSandbox is the mode when nobody set one, and a word on how to widen it.
func defaultSandbox(in policyInput, user map[string]any, known bool) (word, note string) {
	cwd, why := filepath.Clean(in.cwd), ""
	switch {
	case !known: // the user may have narrowed it where we can't see
		why = "the user's Codex configuration could not be read"
	case in.cfg.home != "" && sameDir(cwd, in.cfg.home):
		why = in.cwd + " is the home directory"
	case filepath.Dir(cwd) == cwd:
		why = in.cwd + " is a root directory"
	case in.repoRoot == "":
		why = in.cwd + " is outside a git repository"
	case slices.ContainsFunc(append(in.standsFor, cwd, in.repoRoot), func(dir string) bool {
		return isUntrusted(user, dir)
	}):
		why = "the user's Codex configuration marks " + in.repoRoot + " as untrusted"
	default:
		return sandboxWrite, ""
	}
	advice := fmt.Sprintf("pass sandbox: %q", sandboxWrite)
	if in.chosen {
		advice = "choose another mode"
	}
	return sandboxRead, fmt.Sprintf("sandbox is read-only because %s; %s to let the agent edit", why, advice)
}

func isUntrusted(user map[string]any, dir string) bool {
	for project, v := range tableAt(user, "projects") {
		table, _ := v.(map[string]any)
		if level, _ := table["trust_level"].(string); level == "untrusted" && samePath(project, dir) {
			return true
		}
	}
	return false
}

// widen fills in network, writable roots and excludes, each from the
// config argument, else the profile, else the user's Codex configuration.
func (p *policy) widen(in policyInput, arg, prof, user map[string]any) {
	s, top := &p.Settings, in.cfg.top
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
		if isTrue(arg["network_access"]) || isTrue(prof["network_access"]) {
			asked = append(asked, "network_access")
		}
		inArg, _ := arg["writable_roots"].([]any)
		inProfile, _ := prof["writable_roots"].([]any)
		if len(inArg)+len(inProfile) > 0 {
			asked = append(asked, "writable_roots")
		}
		if len(asked) > 0 {
			p.note(fmt.Sprintf("left out of sandbox_workspace_write: %s (%s allows %s)", strings.Join(asked, ", "),
				top.name, top.word))
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
		if top.binds() { // nor may an argument or a profile open /tmp again
			s.ExcludeTmpdir = s.ExcludeTmpdir || isTrue(user["exclude_tmpdir_env_var"])
			s.ExcludeSlashTmp = s.ExcludeSlashTmp || isTrue(user["exclude_slash_tmp"])
		}
		p.chooseRoots(in, arg, prof, first("writable_roots"), user["writable_roots"])
	}
}

// chooseRoots fills in where a session may write beside its workspace: asked, which may be own, and what the client
// works in. Under a ceiling both are let in only where the workspace or the user's own roots (own) have them: a root
// like / would make workspace-write as wide as danger-full-access. Roots are compared as they are written, since a link
// inside the workspace may lead anywhere.
func (p *policy) chooseRoots(in policyInput, arg, prof map[string]any, asked, own any) {
	top := in.cfg.top
	_, argued := arg["writable_roots"]
	roots, relative := rootList(asked, in, argued)
	if top.binds() && argued {
		if v, ok := prof["writable_roots"]; ok {
			own = v
		}
		mine, _ := rootList(own, in, false)
		mine = append(mine, filepath.Clean(in.cwd), in.repoRoot)
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
			p.note(fmt.Sprintf("left out of writable_roots: %s (%s allows the workspace and the user's own roots)",
				strings.Join(left, ", "), top.name))
		}
	}
	var left []string
	for _, root := range in.roots {
		switch root = filepath.Clean(root); {
		case slices.Contains(roots, root), root == filepath.Clean(in.cwd):
		case top.binds() && root != in.repoRoot:
			left = append(left, root)
		default:
			roots = append(roots, root)
		}
	}
	if len(left) > 0 {
		p.note(fmt.Sprintf("the client's directories %s stay read-only (%s allows the workspace and the user's "+
			"own roots)", strings.Join(left, ", "), top.name))
	}
	if len(relative) > 0 {
		p.note("left out of writable_roots, since they are not absolute: " + strings.Join(relative, ", "))
	}
	p.Settings.WritableRoots = roots
}

// rootList reads writable_roots into absolute paths. Relative ones of an argument are taken from the session's
// directory; in a file they would mean that file's directory, so they are returned apart.
func rootList(v any, in policyInput, argued bool) (roots, relative []string) {
	base := ""
	if argued {
		base = in.cwd
	}
	list, _ := v.([]any)
	for _, e := range list {
		root, _ := e.(string)
		if root == "" {
			continue
		}
		path := resolvePath(root, base, in.cfg.home)
		switch {
		case !filepath.IsAbs(path):
			relative = append(relative, root)
		case !slices.Contains(roots, path):
			roots = append(roots, path)
		}
	}
	return roots, relative
}

// checkCwd makes the cwd argument an absolute directory that exists: Codex
// takes any string, and fails at the first command. Symlinks stay as given.
func checkCwd(arg, base, home string) (string, *rpcError) {
	if home == "" && (arg == "~" || strings.HasPrefix(arg, "~/")) {
		return "", invalidSession("cwd %q: the home directory is not known, give an absolute path", arg)
	}
	path := resolvePath(arg, base, home)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(arg, "~"):
		return "", invalidSession("cwd %q: %s does not exist (only a leading ~/ is expanded)", arg, path)
	case errors.Is(err, fs.ErrNotExist):
		return "", invalidSession("cwd %s does not exist", path)
	case err != nil:
		return "", invalidSession("cwd %q can't be used: %v", path, err)
	case !info.IsDir():
		return "", invalidSession("cwd %s is not a directory", path)
	}
	return path, nil
}

// turnSettings are complete on every turn, since Codex's overrides stick and
// old versions restore nothing on resume. Empty words are not sent.
type turnSettings struct {
	Cwd      string `json:"cwd"`
	Model    string `json:"model,omitempty"`
	Effort   string `json:"effort,omitempty"`
	Approval string `json:"approval_policy"` // untrusted, on-request, never
	Sandbox  string `json:"sandbox"`         // read-only, workspace-write, danger-full-access

	// Collaboration is how Codex works with its user: collabPlan or collabDefault. "" is not said, and for threads
	// that never were in plan mode.
	Collaboration string `json:"collaboration,omitempty"`

	// The user's own widening of workspace-write (and network of read-only).
	WritableRoots   []string `json:"writable_roots,omitempty"`
	Network         bool     `json:"network_access,omitempty"`
	ExcludeTmpdir   bool     `json:"exclude_tmpdir_env_var,omitempty"`
	ExcludeSlashTmp bool     `json:"exclude_slash_tmp,omitempty"`
}

// sessionOptions are the arguments of the codex tool that shape a session, as its record keeps them too. Empty means
// not given. The codex tool has the effort in Config; a person (ACP) chooses it by itself.
type sessionOptions struct {
	Model                 string          `json:"model,omitempty"`
	Effort                string          `json:"effort,omitempty"`
	Approval              string          `json:"approval_policy,omitempty"` // normalized: untrusted, on-request, never
	Sandbox               string          `json:"sandbox,omitempty"`         // normalized
	Config                json.RawMessage `json:"config,omitempty"`
	BaseInstructions      string          `json:"base_instructions,omitempty"`
	DeveloperInstructions string          `json:"developer_instructions,omitempty"`
	CompactPrompt         string          `json:"compact_prompt,omitempty"`
	Profile               string          `json:"profile,omitempty"`
	// as in turnSettings; a person (ACP) chooses it
	Collaboration string `json:"collaboration,omitempty"`
}

// Codex's words for its collaboration modes. In plan mode the model is told to plan and to ask, and no more than told:
// so the sandbox of a session in plan mode is read-only, whatever else was chosen for the session.
const (
	collabPlan    = "plan"
	collabDefault = "default"
)

// leavePlan is settings for a turn that is no part of the planning.
func (t turnSettings) leavePlan() turnSettings {
	if t.Collaboration != "" {
		t.Collaboration = collabDefault
	}
	return t
}

// over is what o asks for over what was asked for before. Who asks for a sandbox leaves plan mode, which has its own.
func (o sessionOptions) over(old sessionOptions) sessionOptions {
	out := sessionOptions{cmp.Or(o.Model, old.Model), cmp.Or(o.Effort, old.Effort), cmp.Or(o.Approval, old.Approval),
		cmp.Or(o.Sandbox, old.Sandbox), o.Config, cmp.Or(o.BaseInstructions, old.BaseInstructions),
		cmp.Or(o.DeveloperInstructions, old.DeveloperInstructions), cmp.Or(o.CompactPrompt, old.CompactPrompt),
		cmp.Or(o.Profile, old.Profile), old.Collaboration}
	if o.Sandbox != "" && old.Collaboration != "" {
		out.Collaboration = collabDefault
	}
	if o.Config == nil {
		out.Config = old.Config
	}
	return out
}
