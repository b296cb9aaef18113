package main

// The configuration: its layers, defaults, where every value came from, ceilings, roles. What is higher wins:
// flags > ATM_AGENT_MCP_* > the --config file > the nearest .atm.toml > config.toml of the home > defaults (FR-12.3).
// Every command loads a config once at start. Files are read by config_layers.go, the keys are in config_settings.go,
// directories, names and the team in config_paths.go.
// One bad value never resets the others: it is a warning that names file, line and column or the variable, and the
// next layer's value holds. Only a bad flag and a bad --config file are errors. Nothing is written here.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const pluginName = "atm-agent-mcp"

// pluginNames are the tables under [plugins] that are read, a later one's values above an earlier one's: that of
// codex-mcp, this program's ancestor, and ours.
func pluginNames() []string { return []string{"codex-mcp", pluginName} }

// flagValues are the flags that were given, by name without dashes; a switch is "true" or "false". Those of a command
// that are no settings are in there too, and mean nothing here.
type flagValues map[string]string

// teamOnly is the team's flag, for a command whose other flags have a setting's name and another meaning.
func (fl flagValues) teamOnly() flagValues {
	if team, given := fl["team"]; given {
		return flagValues{"team": team}
	}
	return nil
}

// A flagError is a flag's bad value: the command exits 2.
type flagError struct {
	flag string // with its dashes
	err  error
}

func (e *flagError) Error() string { return e.flag + ": " + e.err.Error() }

// A config is complete and checked. "" means that nobody said anything, and the lower side (Codex) decides. After
// loadConfig only serveEditor changes it. What a setting means is told by its flag's help and the README.
type config struct {
	directories

	// The settings, each by its key of the table in config_settings.go.
	codexBin, backend                     string // codexBin "mock" is the built-in mock
	identity, defaultRole                 string // defaultRole is the key role
	model, fastModel, effort              string // model is fastModel where fast chose that
	sandbox, approvalPolicy, maxSandbox   string // sandbox is no wider than top; maxSandbox is the mode of top
	basePromptFile, extraInstructionsFile string // absolute paths
	forwardEvents, logLevel, logFile      string
	clientIdentity, acpMail, worktreeDir  string // worktreeDir as given: relative to each repository's root
	promptsWhileBusy                      string // acp: queue or steer
	fast, readonly, subagents             bool
	persistThreads                        bool // false: only leases are kept on disk, the audit trail goes to the log
	restartChild                          bool
	allowRules, autoMail                  bool
	maxConcurrentThreads, maxAnswerBytes  int
	maxMailMessages, maxMailMessageLength int           // maxMailMessageLength is in characters
	requestTimeout, turnLimit             time.Duration // of a turn's silence and of a turn; 0: no limit
	approvalTimeout, shutdownGrace        time.Duration // approvalTimeout 0: an approval waits for ever
	mailPollInterval, idleTimeout         time.Duration // idleTimeout 0: polling never stops
	perThreadAutoMail                     map[string]bool
	roles                                 map[string]role   // by name, as written; role adds what a role inherits
	aliases, atmRoles                     map[string]string // ATM's own tables [aliases] and [roles]: names of members
	coreTeam, coreIdentity                string            // [core] default_team and identity
	names                                 *names            // that whoever started us speaks in, nil for ours
	resume                                *string           // of --resume, "" for the newest of identity; nil: none

	// What was found.
	team, teamFrom   string // our team, and who named it
	teamExists       bool   // the team has a config.json
	clientSession    string // the id of the Claude Code session that started us, "" for none
	identityExplicit bool   // identity is --identity's: a conflict over it is an error, and takes no other name
	noSummaries      bool   // acp: sessions end without being asked for a summary, since an editor waits for nobody
	teamless         bool   // acp without --identity: sessions are in no team, have no mail and are told of neither

	// Where the values come from.
	origin    map[string]origin // by key, also roles.<name>.<key> and core.<key>
	ceilings  []ceiling         // every layer's, and those that were meant and could not be read
	top       ceiling           // the lowest of ceilings, which holds
	namedFile string            // the file of --config or ATM_CONFIG, "" for none
	files     []string          // the configuration files that were read, lowest layer first
	warnings  []string          // what a person should know, a line each
	repo      *repoFile         // the repository's .atm.toml, nil for none
	own       *config           // what holds without repo, read but not derived; nil where repo is trusted or nil
	ignored   []ignoredSetting  // settings of repo that have no effect
	notes     []string          // what the first result says of repo
}

// A role is a named preset (FR-12.2). "" leaves a setting to the configuration.
type role struct {
	name, model, effort, sandbox, approvalPolicy string
	subagents, autoMail                          bool
}

func defaultConfig() *config {
	return &config{
		codexBin: "codex", backend: "auto", identity: "codex",
		forwardEvents: "auto", logLevel: "info", acpMail: "prompt", worktreeDir: ".worktrees",
		promptsWhileBusy: "queue", persistThreads: true, autoMail: true,
		maxConcurrentThreads: 10, maxAnswerBytes: 256 << 10,
		maxMailMessages: defaultMailMessages, maxMailMessageLength: defaultMailLength,
		requestTimeout: 300 * time.Second, approvalTimeout: 300 * time.Second, shutdownGrace: 10 * time.Second,
		mailPollInterval: 5 * time.Second, idleTimeout: 300 * time.Second,
		perThreadAutoMail: map[string]bool{}, roles: map[string]role{},
		aliases: map[string]string{}, atmRoles: map[string]string{},
		origin: map[string]origin{},
	}
}

// loadConfig reads all layers. An error is only for what must end the program: a bad flag (flagError) or a problem of
// the named file. environ is what os.Environ says, so that a misspelt variable is told too; tests leave it out.
func loadConfig(env func(string) string, cwd string, fl flagValues, environ ...string) (*config, error) {
	c := defaultConfig()
	if session, given := fl["resume"]; given {
		c.resume = &session
	}
	var err error
	if c.directories, err = findDirectories(env, cwd); err != nil {
		return nil, err
	}
	files := configFiles(c, env, fl)
	others := slices.DeleteFunc(slices.Clone(files), func(f configFile) bool { return f.layer == layerProject })
	if !c.checkRepoFile() {
		files = others
	} else if c.repo != nil && !c.repo.trusted {
		c.own = defaultConfig()
		c.own.directories = c.directories
		if err := c.own.readLayers(env, environ, fl, others); err != nil {
			return nil, err
		}
	}
	if err := c.readLayers(env, environ, fl, files); err != nil {
		return nil, err
	}
	c.noteIgnored()
	if err := c.derive(env); err != nil {
		return nil, err
	}
	if err := c.chooseTeam(env, fl); err != nil {
		return nil, err
	}
	return c, nil
}

// readLayers reads the files, the variables and the flags, lowest layer first.
func (c *config) readLayers(env func(string) string, environ []string, fl flagValues, files []configFile) error {
	for _, f := range files {
		if err := f.read(c); err != nil {
			return err
		}
	}
	for _, prefix := range []string{oldVariablePrefix, variablePrefix} {
		c.readVariables(prefix, env)
		c.warnUnknownVariables(prefix, env, environ)
	}
	for _, s := range c.settings() {
		text, given := fl[s.flag]
		if s.flag == "" || !given {
			continue
		}
		flag := "--" + s.flag
		if err := s.setText(text, c.cwd, c.home); err != nil {
			return &flagError{flag, err}
		}
		c.recordOrigin(s.name, origin{layerFlag, flag})
	}
	return nil
}

// recordOrigin notes where a setting's value came from. The value of a ceiling is kept too, so that no higher layer
// replaces it.
func (c *config) recordOrigin(key string, from origin) {
	switch {
	case key == "max_sandbox" && c.maxSandbox != "":
		c.ceilings = append(c.ceilings, newCeiling(key, c.maxSandbox, from))
	case key == "readonly" && c.readonly:
		c.ceilings = append(c.ceilings, newCeiling(key, sandboxRead, from))
	}
	c.origin[key] = from
}

// A ceiling is the widest sandbox that one layer allows. The zero one allows all.
type ceiling struct {
	word string // a sandbox mode
	name string // as people are told: "--readonly", "max_sandbox in configuration"
	key  string // the setting: max_sandbox or readonly
	from origin // zero: the ceiling was meant by somebody and could not be read
}

func newCeiling(key, word string, from origin) ceiling {
	if sandboxRank(word) == 0 { // it was checked where it was read; should one slip through, fail closed
		word = sandboxRead
	}
	name := key + " in configuration"
	if from.layer == layerFlag {
		name = from.what
	}
	return ceiling{word, name, key, from}
}

// binds reports that the ceiling forbids some mode.
func (c ceiling) binds() bool { return c.word != "" && c.word != sandboxDanger }

// cap lowers a sandbox mode to the ceiling, an unknown mode too. "" stays: the mode that is chosen for it later must be
// capped again.
func (c ceiling) cap(mode string) string {
	if rank := sandboxRank(mode); mode == "" || !c.binds() || rank > 0 && rank <= sandboxRank(c.word) {
		return mode
	}
	return c.word
}

func (c ceiling) unreadable() bool { return c.from.what == "" }

// lowestCeiling is the ceiling that holds: no layer lifts another's. Of two equal ones, the one that was read counts.
func (c *config) lowestCeiling() (low ceiling) {
	for _, w := range c.ceilings {
		rank, least := sandboxRank(w.word), sandboxRank(low.word)
		if least == 0 || rank < least || rank == least && low.unreadable() {
			low = w
		}
	}
	return low
}

// warnf notes what a person should know. Parts of a warning may be a repository's text: so a warning is one line that
// steers no terminal, and both its length and the number of warnings are bounded.
func (c *config) warnf(format string, args ...any) {
	const most, longest = 100, 1000
	switch n := len(c.warnings); {
	case n < most:
		c.warnings = append(c.warnings, visible(oneLine(clipChars(fmt.Sprintf(format, args...), longest))))
	case n == most:
		c.warnings = append(c.warnings, "and more of that kind")
	}
}

// readVariables reads ATM_AGENT_MCP_* or the ancestor's CODEX_MCP_*; a blank one counts as not set.
func (c *config) readVariables(prefix string, env func(string) string) {
	for _, s := range c.settings() {
		for _, key := range namesOf(s.name, s.alias) {
			name := prefix + strings.ToUpper(key)
			text := strings.TrimSpace(env(name))
			if text == "" {
				continue
			}
			if err := s.setText(text, c.cwd, c.home); err != nil {
				c.warnf("%s: %v", name, err)
				c.failClosed(s.name)
			} else {
				c.recordOrigin(s.name, origin{layerVariable, name})
			}
			break
		}
	}
}

// warnUnknownVariables warns of variables with our prefix that nobody reads, with the one that was likely meant; with
// the ancestor's prefix only of those that likely mean a setting, with ATM's of those that likely mean a ceiling.
func (c *config) warnUnknownVariables(prefix string, env func(string) string, environ []string) {
	known := settingNames()
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		// Windows has them in any case, others don't
		word, ours := strings.CutPrefix(strings.ToUpper(name), prefix)
		if !ours && prefix == variablePrefix && strings.HasPrefix(word, "ATM_") { // the prefix may be what is misspelt
			for word != "" && ceilingMeant(strings.ToLower(word)) == "" {
				_, word, _ = strings.Cut(word, "_")
			}
			ours = word != ""
		}
		read := strings.TrimSpace(env(prefix + word))
		word, value = strings.ToLower(word), strings.TrimSpace(value)
		if !ours || value == "" || slices.Contains(known, word) && read == value {
			continue
		}
		meant := ""
		if key := meantKey(word, known); word == "team" || word == "config" {
			meant = "ATM_" + strings.ToUpper(word)
		} else if key != "" {
			meant = prefix + strings.ToUpper(key)
			c.failClosed(key)
		}
		if meant != "" || prefix != oldVariablePrefix {
			c.warnf("unknown variable %q%s", cutName(name), meantHint(meant))
		}
	}
}

func meantHint(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", word)
}

// failClosed looks whether a word that has no effect, or a bad value, was likely meant as a ceiling. That ceiling then
// stands at read-only, whatever another layer says: a slip of the pen must not widen what agents may do.
func (c *config) failClosed(word string) {
	key := ceilingMeant(word)
	if key != "" && !slices.ContainsFunc(c.ceilings, func(w ceiling) bool { return w.key == key && w.unreadable() }) {
		c.ceilings = append(c.ceilings, newCeiling(key, sandboxRead, origin{}))
	}
}

// failClosedIn does the same for the text of a file that can't be parsed: any line of the text may set a ceiling.
func (c *config) failClosedIn(text string) {
	text = strings.ReplaceAll(text, "\x00", "") // in UTF-16, which Windows' shells write, every other byte
	for line := range strings.Lines(text) {
		key, _, _ := strings.Cut(line, "=")
		c.failClosed(strings.TrimSpace(key[strings.LastIndexByte(key, '.')+1:]))
		if w := foldWord(line); strings.Contains(w, "maxsandbox") || strings.Contains(w, "readonly") {
			c.failClosed("max_sandbox")
		}
	}
}

// ceilingMeant is the ceiling that a word likely means, "" for none.
func ceilingMeant(word string) string {
	ceilings := []string{"max_sandbox", "readonly"}
	if fold := foldWord(word); nearest(word, ceilings) == "" && fold != "maxsandbox" && fold != "readonly" &&
		fold != "explore" {
		return "" // most words end here: comparing each with every setting would take most of the time of loading
	}
	if key := meantKey(word, settingNames()); slices.Contains(ceilings, key) {
		return key
	}
	return ""
}

// reportSetting is an error where a flag or the named file gave the setting, else a warning.
func (c *config) reportSetting(key string, err error) error {
	o := c.origin[key]
	switch o.layer {
	case layerFlag:
		return &flagError{o.what, err}
	case layerNamed:
		return fmt.Errorf("%s: %s: %w", o, key, err)
	}
	c.warnf("%s: %s: %v", o, key, err)
	return nil
}

// derive fills in what depends on more than one key, once all layers are read.
func (c *config) derive(env func(string) string) error {
	c.identityExplicit = c.origin["identity"].layer == layerFlag
	if c.defaultRole != "" {
		if _, err := c.role(c.defaultRole); err != nil {
			if err := c.reportSetting("role", err); err != nil {
				return err
			}
			c.defaultRole = ""
			delete(c.origin, "role")
		}
	}
	if c.clientIdentity == "" {
		name := strings.TrimSpace(env("ATM_IDENTITY"))
		if err := validIdentity(name); name != "" && err != nil {
			c.warnf("ATM_IDENTITY: %v", err)
			name = ""
		}
		if name != "" {
			c.clientIdentity, c.origin["client_identity"] = name, origin{layerVariable, "ATM_IDENTITY"}
		} else if c.coreIdentity != "" {
			c.clientIdentity, c.origin["client_identity"] = c.coreIdentity, c.origin["core.identity"]
		}
	}
	if !c.persistThreads && c.backend == "mcp-server" {
		c.warnf("persist_threads = false (%s): codex mcp-server writes its own history of each thread to "+
			"CODEX_HOME all the same; codex app-server doesn't", c.origin["persist_threads"])
	}
	c.top = c.lowestCeiling()
	c.maxSandbox, c.readonly = "", false
	if c.top.key != "" {
		c.maxSandbox, c.origin["max_sandbox"] = c.top.word, c.top.from
	}
	for _, w := range c.ceilings {
		switch {
		case w.unreadable() && c.top.unreadable():
			c.warnf("%s could not be read, so agents are read-only until it is mended", w.key)
		case w.key == "readonly" && !w.unreadable() && !c.readonly:
			c.readonly, c.origin["readonly"] = true, w.from
		}
	}
	if capped := c.top.cap(c.sandbox); capped != c.sandbox {
		c.sandbox, c.origin["sandbox"] = capped, c.origin["max_sandbox"]
	}
	return c.applyFast()
}

// serveEditor changes the configuration for the acp command, where a person is in front of every session: a time limit
// holds only if somebody set it, and only --identity makes a session a teammate. Without it sessions are called
// "editor", which no agent of the team is called by itself.
func (c *config) serveEditor() {
	c.restartChild, c.noSummaries, c.teamless = true, true, !c.identityExplicit
	if c.origin["request_timeout_secs"].layer == layerDefault {
		c.requestTimeout = 0
	}
	if c.origin["approval_timeout_secs"].layer == layerDefault {
		c.approvalTimeout = 0
	}
	if !c.teamless {
		return
	}
	for _, key := range []string{"identity", "acp_mail"} {
		if o := c.origin[key]; o.layer != layerDefault {
			c.warnf("%s (%s) has no effect without --identity: an editor's sessions are in no team then, and have "+
				"no mail", key, o)
		}
	}
	c.identity = "editor"
}

// applyFast lets --fast choose fast_model (FR-12.5). A model that the same layer or a higher one sets stays, and so do
// the model of a role and that of a call.
func (c *config) applyFast() error {
	if !c.fast {
		return nil
	}
	by, pin := c.origin["fast"], c.origin["model"]
	switch {
	case c.fastModel == "":
		c.fast = false
		return c.reportSetting("fast", errors.New(
			`there is no fast model: set fast_model = "…" under [plugins.atm-agent-mcp] or ATM_AGENT_MCP_FAST_MODEL`))
	case c.model != "" && pin.layer >= by.layer:
		c.warnf("%s has no effect: %s sets the model %q", by, pin, c.model)
	default:
		c.model = c.fastModel
		c.origin["model"] = origin{by.layer, fmt.Sprintf("%s (fast_model from %s)", by, c.origin["fast_model"])}
	}
	return nil
}

// role returns a role with what it inherits; "" is the default role, or no role at all. The repository's untrusted file
// can switch nothing on in it.
func (c *config) role(name string) (role, error) {
	r, err := c.plainRole(name)
	if c.own != nil {
		own := c.ownRole(r.name)
		r.subagents, r.autoMail = r.subagents && own.subagents, r.autoMail && own.autoMail
	}
	return r, err
}

// ownRole is the role in whose place the name would stand without the repository's untrusted file.
func (c *config) ownRole(name string) role {
	if name == c.defaultRole && name != c.own.defaultRole {
		name = "" // that file chose it
	}
	return c.own.roleOrNone(name)
}

// roleOrNone is the role, or what holds without a role where there is none of that name.
func (c *config) roleOrNone(name string) role {
	r, _ := c.plainRole(name)
	return r
}

// plainRole is role, whoever wrote it.
func (c *config) plainRole(name string) (role, error) {
	none := role{subagents: c.subagents, autoMail: c.autoMail}
	if name = cmp.Or(name, c.defaultRole); name == "" {
		return none, nil
	}
	r, ok := c.roles[name]
	if !ok {
		names := slices.Sorted(maps.Keys(c.roles))
		if len(names) == 0 {
			return none, fmt.Errorf("no role %q: none is configured; a role is a table "+
				"[plugins.%s.roles.<name>] in .atm.toml", cutName(name), pluginName)
		}
		return none, fmt.Errorf("no role %q: there are %s%s", cutName(name), strings.Join(names, ", "),
			didYouMean(name, names))
	}
	r.sandbox = c.top.cap(r.sandbox)
	if _, own := c.origin["roles."+name+".subagents"]; !own {
		r.subagents = c.subagents
	}
	if _, own := c.origin["roles."+name+".auto_mail"]; !own {
		r.autoMail = c.autoMail
	}
	return r, nil
}

// auditFile is the audit trail, which all processes of the team append to.
func (c *config) auditFile() string { return filepath.Join(c.sessionsRoot, c.team, "audit.jsonl") }

// chooseTeam finds our team. The team of the Claude Code session that started us goes before the default_team of the
// home's config.toml, and after one that anybody else named.
func (c *config) chooseTeam(env func(string) string, fl flagValues) error {
	core := c.origin["core.default_team"]
	if core.layer > layerGlobal {
		c.team, c.teamFrom = c.coreTeam, core.String()
	}
	if name := strings.TrimSpace(env("ATM_TEAM")); name != "" {
		if err := validTeam(name); err != nil {
			c.warnf("ATM_TEAM: %v", err)
		} else {
			c.team, c.teamFrom = name, "ATM_TEAM"
		}
	}
	if name, given := fl["team"]; given {
		if err := validTeam(name); err != nil {
			return &flagError{"--team", err}
		}
		c.team, c.teamFrom = name, "--team"
	}
	if c.clientSession = strings.TrimSpace(env(sessionVariable)); c.team == "" && c.clientSession != "" {
		var err error
		if c.team, err = (teamQuery{root: c.teamsRoot, sessionID: c.clientSession}).sessionTeam(); err != nil {
			c.warnf("%v", err)
		}
		c.teamFrom = sessionVariable
	}
	if c.team == "" {
		c.team, c.teamFrom = c.coreTeam, core.String()
	}
	if c.team == "" {
		c.team, c.teamFrom = defaultTeam, "default"
	}
	info, err := os.Stat(filepath.Join(c.teamsRoot, c.team, "config.json"))
	c.teamExists = err == nil && info.Mode().IsRegular()
	if c.clientIdentity == "" && c.teamFrom == sessionVariable { // whoever calls us is that team's lead
		c.clientIdentity, c.origin["client_identity"] = readLeadName(c.teamsRoot, c.team),
			origin{layerVariable, sessionVariable}
	}
	return nil
}

// A shownSetting is one line of the config command.
type shownSetting struct {
	Key   string `json:"key"`
	Value any    `json:"value"` // string, bool or int
	From  string `json:"from"`
	Layer string `json:"layer"` // default, global, project, named, variable, flag
}

// list returns every setting with where it came from, the roles' and the agents' after the plain ones.
func (c *config) list() (all []shownSetting) {
	show := func(key string, value any, from origin) {
		all = append(all, shownSetting{key, value, from.String(), from.layer.String()})
	}
	for _, s := range c.settings() {
		show(s.name, s.shown(), c.origin[s.name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.perThreadAutoMail)) {
		key := "per_thread_auto_mail." + name
		show(key, c.perThreadAutoMail[name], c.origin[key])
	}
	for _, t := range []struct {
		name string
		of   map[string]string
	}{{"aliases", c.aliases}, {"roles", c.atmRoles}} {
		for _, name := range slices.Sorted(maps.Keys(t.of)) {
			key := "[" + t.name + "]." + name
			show(key, t.of[name], c.origin[key])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.roles)) {
		r := c.roles[name]
		for _, s := range r.settings() {
			key := "roles." + name + "." + s.name
			if o, ok := c.origin[key]; ok {
				show(key, s.shown(), o)
			}
		}
	}
	return all
}
