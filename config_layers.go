package main

// The layers of the configuration that are files: finding the files, reading them, saying what is wrong in them, and
// whose word a repository's .atm.toml is: somebody else's text, until the user has trusted exactly this content.
// config.go reads each file once, lowest layer first, into a config; a later layer's good value replaces an earlier
// one's. A bad value, an unknown key or a file that can't be read is a warning with file, line and column and changes
// nothing else. Only in the file that --config or ATM_CONFIG names a bad value is an error. An untrusted file may set
// names, model, effort, and what is no wider than what holds without the file (mayNot); main_config.go asks the user
// and keeps the answer, never before the content was shown. Trust covers the text alone: what a trusted file names (a
// program, a prompt) may change later, as a Makefile's commands may. Trust is kept by the real path of the file's
// directory and the hash of the content, so that a changed file has none, nor a link to the file from elsewhere.

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const maxConfigSize = 1 << 20

// A configLayer is one of the places that values come from, lowest first.
type configLayer int

const (
	layerDefault configLayer = iota
	layerGlobal              // config.toml of the home
	layerProject             // the nearest .atm.toml
	layerNamed               // the file of --config or ATM_CONFIG
	layerVariable
	layerFlag
)

// String is the layer's word in JSON.
func (l configLayer) String() string {
	return [...]string{"default", "global", "project", "named", "variable", "flag"}[l]
}

// An origin says where a value came from: "--model", "ATM_AGENT_MCP_MODEL", "/repo/.atm.toml:3" or "default".
type origin struct {
	layer configLayer
	what  string
}

func (o origin) String() string {
	if o.what == "" {
		return "default"
	}
	return o.what
}

type configFile struct {
	layer configLayer
	path  string
	by    string    // what named it, for layerNamed
	repo  *repoFile // the content, for layerProject
}

// configFiles finds the files, lowest layer first. With --config the nearest .atm.toml is looked for from that
// file's directory, as ATM does.
func configFiles(c *config, env func(string) string, fl flagValues) []configFile {
	files := []configFile{{layer: layerGlobal, path: filepath.Join(c.atmHome, ".config", "atm", "config.toml")}}
	named := configFile{layer: layerNamed, path: strings.TrimSpace(env("ATM_CONFIG")), by: "ATM_CONFIG"}
	path, given := fl["config"]
	if given {
		named.path, named.by = path, "--config"
	}
	start := c.cwd
	if named.path != "" || given {
		named.path = resolvePath(named.path, c.cwd, c.home)
		start = filepath.Dir(named.path)
	}
	// Whoever names the repository's own file has given his word for it.
	if c.repo = findRepoFile(start); c.repo != nil && named.path != "" && trustKey(named.path) == c.repo.key {
		c.repo = nil
	}
	if c.repo != nil {
		files = append(files, configFile{layer: layerProject, path: c.repo.path, repo: c.repo})
	}
	if c.namedFile = named.path; named.path != "" {
		files = append(files, named)
	}
	return files
}

// read adds the file's values to c. The error is only for the named file.
func (f configFile) read(c *config) error {
	r := &fileReader{configFile: f, c: c}
	var data []byte
	var err error
	if f.repo != nil { // it was read as it was found
		data, err = f.repo.data, f.repo.err
	} else {
		data, err = readRegular(f.path, maxConfigSize)
	}
	if errors.Is(err, fs.ErrNotExist) && f.layer == layerGlobal {
		return nil
	}
	if err != nil {
		c.failClosed("max_sandbox") // there may be one in it
		r.report(fmt.Errorf("reading configuration: %w", err))
		return r.err
	}
	doc, err := parseTOML(f.path, data)
	if err != nil {
		c.failClosedIn(string(data))
		r.report(fmt.Errorf("%w (nothing in this file counts until it is right)", err))
		return r.err
	}
	if c.files = append(c.files, f.path); c.own != nil && f.layer == layerProject {
		f.dropUntrusted(c, doc)
	}
	r.fillTable(doc.get("core").table(), corePrefix, c.coreSettings())
	r.readNames(doc)
	r.plugins = r.table(doc, "", "plugins")
	r.warnMisplaced(doc, nil, false)
	for _, name := range pluginNames() {
		r.readPlugin(r.table(r.plugins, "plugins.", name))
	}
	return r.err
}

func (f configFile) at(v *tomlValue) origin {
	return origin{f.layer, fmt.Sprintf("%s:%d", f.path, v.at.line)}
}

// A fileReader puts the values of one file into a config.
type fileReader struct {
	configFile
	c       *config
	err     error      // the first problem of the named file, which ends the program
	plugins *tomlTable // the file's table plugins, nil for none: an array of that name is not read
}

// report says what is wrong: an error in the named file, a warning in the others.
func (r *fileReader) report(err error) {
	switch {
	case r.layer != layerNamed:
		r.c.warnf("%v", err)
	case r.err == nil:
		r.err = fmt.Errorf("%s: %w", r.by, err)
	}
}

// reportValue reports a key's bad value.
func (r *fileReader) reportValue(v *tomlValue, format string, args ...any) {
	r.report(&tomlError{r.path, v.at, fmt.Sprintf(format, args...)})
}

// warnKey warns of a key that has no effect: in the named file too, since it may be meant for another program.
func (r *fileReader) warnKey(v *tomlValue, format string, args ...any) {
	r.c.warnf("%v", &tomlError{r.path, v.key, fmt.Sprintf(format, args...)})
}

// table is the table that t has under key, nil for none; under is what stands before key in its full name.
func (r *fileReader) table(t *tomlTable, under, key string) *tomlTable {
	v := t.get(key)
	if v != nil && v.table() == nil {
		r.reportValue(v, "%s%s wants a table, not %s", under, key, v.kind())
	}
	return v.table()
}

// warnMisplaced warns of settings that stand where nobody reads them, and closes the ceilings among them, likely ones
// too. The file is ATM's as well: what stands in a table that is called like nothing of ours is somebody else's. t is
// the table at path; read: its settings are read, so that only ceilings in unknown tables of it are left to find.
func (r *fileReader) warnMisplaced(t *tomlTable, path []string, read bool) {
	for _, key := range t.keys() {
		v, below := t.get(key), append(slices.Clip(path), key)
		isTable := v.table() != nil
		if tables := v.tables(); len(tables) > 0 && mayBeOurs(below) {
			ours := t == r.plugins && slices.Contains(pluginNames(), key)
			for _, table := range tables { // those of an array are never read
				r.warnMisplaced(table, below, (ours || read) && isTable)
			}
		}
		ceiling, setting := ceilingMeant(key) != "", slices.Contains(settingNames(), key)
		role := isTable && len(path) > 0 && path[len(path)-1] == "roles" // whatever it is called
		switch {
		case role, isTable && (len(path) == 0 || !ceiling):
		case read && len(path) == 2 && setting: // fillTable reads it
		case read && ceiling:
			r.c.failClosed(key)
		case read, slices.Equal(path, []string{"roles"}), slices.Equal(path, []string{"core"}) && !ceiling: // ATM's own
		case ceiling, setting:
			r.warnKey(v, "%s has no effect here: settings stand in the table [plugins.%s]", key, pluginName)
			r.c.failClosed(key)
		}
	}
}

// mayBeOurs reports a table that has our settings, or is called nearly like one that has.
func mayBeOurs(path []string) bool {
	like := func(name string, names ...string) bool {
		return nearest(name, names) != "" ||
			slices.ContainsFunc(names, func(n string) bool { return foldWord(n) == foldWord(name) })
	}
	switch len(path) {
	case 1:
		return like(path[0], append(pluginNames(), "plugins")...) || path[0] == "core" || path[0] == "roles"
	case 2:
		return !like(path[0], "plugins") || like(path[1], pluginNames()...)
	}
	return path[2] != "per_thread_auto_mail" // its keys are agents' names
}

// readNames reads ATM's own [aliases] and [roles], which stand for a member's name where mail is addressed.
func (r *fileReader) readNames(doc *tomlTable) {
	for _, name := range []string{"aliases", "roles"} {
		into := map[string]map[string]string{"aliases": r.c.aliases, "roles": r.c.atmRoles}[name]
		table := r.table(doc, "", name)
		for _, key := range table.keys() {
			switch v := table.get(key); {
			case v.kind() == "a string":
				into[key] = v.val.(string)
				r.c.origin["["+name+"]."+key] = r.at(v) // not roles.x: that is a role of ours
			case v.table() == nil || name != "roles": // a role of ours in the wrong place is told with its keys
				r.reportValue(v, "%s.%s wants a string, not %s", name, key, v.kind())
			}
		}
	}
}

// readPlugin reads the table of our settings, and the tables roles and per_thread_auto_mail in it.
func (r *fileReader) readPlugin(t *tomlTable) {
	c := r.c
	r.fillTable(t, "", c.settings(), "roles", "per_thread_auto_mail")
	autoMail := r.table(t, "", "per_thread_auto_mail")
	for _, name := range autoMail.keys() {
		v := autoMail.get(name)
		on, isBool := v.val.(bool)
		if !isBool {
			r.reportValue(v, "per_thread_auto_mail.%s: wants a boolean, not %s", name, v.kind())
			continue
		}
		c.perThreadAutoMail[name] = on
		c.origin["per_thread_auto_mail."+name] = r.at(v)
	}
	roles := r.table(t, "", "roles")
	for _, name := range roles.keys() {
		v := roles.get(name)
		switch {
		case v.table() == nil:
			r.reportValue(v, "roles.%s: wants a table, not %s", name, v.kind())
			continue
		case !identityRule.MatchString(name):
			r.reportValue(v, "roles.%s: a role's name has letters a-z, digits, - and _, and begins with a letter "+
				"or digit", name)
			continue
		}
		as := c.roles[name]
		as.name = name
		r.fillTable(v.table(), "roles."+name+".", as.settings())
		c.roles[name] = as
	}
}

// fillTable reads a table of settings; prefix is what their keys are called by in origin. The keys in also are read by
// somebody else.
func (r *fileReader) fillTable(t *tomlTable, prefix string, rows []setting, also ...string) {
	known := also
	byKey := map[string]setting{}
	for _, s := range rows {
		for _, key := range namesOf(s.name, s.alias) {
			known = append(known, key)
			byKey[key] = s
		}
	}
	for _, key := range t.keys() {
		v := t.get(key)
		s, ok := byKey[key]
		switch {
		case slices.Contains(also, key):
			continue
		case !ok && prefix == "" && key == "team":
			r.warnKey(v, "unknown key %q; a team is named by default_team under [core]", key)
			continue
		case !ok:
			if hint := meantHint(meantKey(key, known)); hint != "" || prefix != corePrefix {
				r.warnKey(v, "unknown key %q%s", prefix+key, hint)
			}
			continue
		case key != s.name && t.get(s.name) != nil:
			r.warnKey(v, "%s is the older name of %s, which is set too and counts", key, s.name)
			continue
		}
		if err := s.setTOML(v, filepath.Dir(r.path), r.c.home); err != nil {
			r.reportValue(v, "%s%s: %v", prefix, key, err)
			r.c.failClosed(s.name)
			continue
		}
		r.c.recordOrigin(prefix+s.name, r.at(v))
	}
}

const (
	projectFileName = ".atm.toml"
	maxTrustFile    = 1 << 20
	trustCommand    = "atm-agent-mcp config --trust"
)

// A repoFile is the repository's file as it was read, once: what is hashed is what is parsed and shown.
type repoFile struct {
	path    string
	key     string // the path that trust is kept by, see trustKey
	data    []byte
	sum     string // SHA-256 of data, in hex
	err     error  // why data could not be read
	refused string // why the file is ignored whole, "" where it isn't
	trusted bool   // the user has trusted exactly this content; set by checkRepoFile
}

// findRepoFile reads the nearest .atm.toml of dir, up to the root of the repository around it, nil where there is none.
// Outside a repository only dir itself is looked at: the directories above may be anybody's.
func findRepoFile(dir string) *repoFile {
	path, root := "", ""
	for at := dir; ; at = filepath.Dir(at) {
		if file := filepath.Join(at, projectFileName); path == "" && exists(file) {
			path = file
		}
		// A file in worktrees and submodules. A directory without HEAD is no repository: Codex's sandbox leaves an
		// empty one in every directory that it lets commands write to (0.169), /tmp too.
		if git := filepath.Join(at, ".git"); exists(git) && (!isDir(git) || exists(filepath.Join(git, "HEAD"))) {
			root = at
			break
		}
		if filepath.Dir(at) == at {
			break
		}
	}
	if path == "" || root == "" && filepath.Dir(path) != dir {
		return nil
	}
	f := &repoFile{path: path, key: trustKey(path)}
	names := []string{path} // a link is looked at itself too: who made it chose the file
	if filepath.Dir(path) != dir {
		names = append(names, root, filepath.Join(root,
			".git")) // somebody else's repository around us has no word here
	}
	for _, name := range names {
		if st, err := os.Lstat(name); err == nil && f.refused == "" {
			f.refused = whyNotOwn(name, st, false)
		}
	}
	if f.refused != "" {
		return f
	}
	var st fs.FileInfo
	if f.data, st, f.err = readWithInfo(path, maxConfigSize); f.err == nil {
		f.refused = whyNotOwn(path, st, true)
		sum := sha256.Sum256(f.data)
		f.sum = hex.EncodeToString(sum[:])
	}
	return f
}

// trustKey is the path by which a file is known: its directory's real one, and its own name.
func trustKey(path string) string {
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(real, filepath.Base(path))
	}
	return path
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// whyNotOwn says why a file is not the user's own word, "" where it may be. mode: who may write it counts too.
func whyNotOwn(path string, st fs.FileInfo, mode bool) string {
	switch uid, shared, ok := ownerAndMode(st); {
	case ok && uid != os.Geteuid():
		return fmt.Sprintf("%s belongs to another user (%d)", path, uid)
	case ok && mode && shared:
		return fmt.Sprintf("%s can be written by its group or by others (mode %04o; chmod go-w takes that away)", path,
			st.Mode().Perm())
	}
	return ""
}

// A trustFile is where trust is kept, beside the user's own configuration: {"trusted": {path: sha256}}.
type trustFile struct{ path string }

type trustContent struct {
	Trusted map[string]string `json:"trusted"`
}

func (d directories) trust() trustFile {
	return trustFile{filepath.Join(d.atmHome, ".config", "atm", "trusted.json")}
}

// read returns what is trusted: nothing where the file can't be read, isn't ours alone or makes no sense.
func (t trustFile) read() (trusted map[string]string, st fs.FileInfo, err error) {
	data, st, err := readWithInfo(t.path, maxTrustFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	var got trustContent
	if err == nil {
		if why := whyNotOwn(t.path, st, true); why != "" {
			err = errors.New(why)
		} else if err = json.Unmarshal(data, &got); err != nil {
			err = fmt.Errorf("%s can't be understood: %w", t.path, err)
		}
	}
	if err != nil {
		return nil, st, fmt.Errorf("no repository's file is trusted: %w", err)
	}
	return got.Trusted, st, nil
}

// set trusts a content of a file by its hash, or with "" takes the trust back. A trust file that can't be understood is
// set aside first, and all earlier trust with it.
func (t trustFile) set(key, sum string, log *slog.Logger) (changed bool, err error) {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return false, err
	}
	lock, err := openOwn(t.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if err := lockFile(lock, true, true); err != nil {
		return false, err
	}
	trusted, st, err := t.read()
	if err != nil {
		if st == nil {
			if st, err = os.Lstat(t.path); err != nil {
				return false, err
			}
		}
		if err := setAside(t.path, st, err, log); err != nil {
			return false, err
		}
	}
	if trusted == nil {
		trusted = map[string]string{}
	}
	if trusted[key] == sum {
		return false, nil
	}
	if trusted[key] = sum; sum == "" {
		delete(trusted, key)
	}
	data, err := json.MarshalIndent(trustContent{trusted}, "", "  ")
	if err != nil {
		return false, err
	}
	return true, writeWhole(t.path, append(data, '\n'))
}

// checkRepoFile looks up whether the repository's file is trusted. It is false for a file that is ignored whole.
func (c *config) checkRepoFile() bool {
	if c.repo == nil {
		return true
	}
	if c.repo.refused != "" {
		c.warnf("%s, so nothing in it counts", c.repo.refused)
		c.notes = append(c.notes, c.warnings[len(c.warnings)-1])
		return false
	}
	trusted, _, err := c.directories.trust().read()
	if err != nil {
		c.warnf("%v", err)
	}
	c.repo.trusted = c.repo.err == nil && trusted[c.repo.key] == c.repo.sum
	return true
}

// noteIgnored says in a note for the first result which settings of the repository's file have no effect.
func (c *config) noteIgnored() {
	const most = 8
	var keys []string
	for i, s := range c.ignored {
		if i == most {
			keys = append(keys, fmt.Sprintf("and %d more", len(c.ignored)-most))
			break
		}
		keys = append(keys, fmt.Sprintf("%s (line %s)", s.Key, s.From[strings.LastIndexByte(s.From, ':')+1:]))
	}
	if len(keys) > 0 {
		c.notes = append(c.notes, fmt.Sprintf("ignored, since %s is not trusted: %s; the user can look at them "+
			"and accept them with `%s`",
			visible(oneLine(c.repo.path)), strings.Join(keys, ", "), trustCommand))
	}
}

// A tomlLeaf is one key of a file whose value is no table.
type tomlLeaf struct {
	path  []string   // the names of the tables around the key, and the key
	table *tomlTable // the table that has the key
	value *tomlValue
}

// leaves are the keys of a table and of those below it, in their order.
func (t *tomlTable) leaves(above ...string) (all []tomlLeaf) {
	for _, key := range t.keys() {
		v, path := t.get(key), append(slices.Clip(above), key)
		if table := v.table(); table != nil {
			all = append(all, table.leaves(path...)...)
		} else {
			all = append(all, tomlLeaf{path, t, v})
		}
	}
	return all
}

// text is the whole value on one line: what a person trusts must be seen.
func (v *tomlValue) text() string {
	if text, ok := v.val.(string); ok {
		return strconv.Quote(text)
	}
	data, err := json.Marshal(v.plain())
	if err != nil {
		return "?"
	}
	return visible(string(data))
}

// settingPath is a leaf's path within the table of our settings, with today's names: [sandbox], [roles worker model].
// It is nil for a leaf elsewhere.
func (l tomlLeaf) settingPath() []string {
	if len(l.path) < 3 || l.path[0] != "plugins" || !slices.Contains(pluginNames(), l.path[1]) {
		return nil
	}
	path := slices.Clone(l.path[2:])
	for _, s := range new(config).settings() {
		if len(path) == 1 && s.alias == path[0] {
			path[0] = s.name
		}
	}
	return path
}

// dropUntrusted takes out of an untrusted file's document what the file may not set, and notes it as ignored. Unknown
// keys stay in: they have no effect, and are told as in any file.
func (f configFile) dropUntrusted(c *config, doc *tomlTable) {
	for _, l := range doc.leaves() {
		path := l.settingPath()
		if path == nil || !f.mayNot(c.own, path, l.value) {
			continue
		}
		name := l.path[len(l.path)-1]
		delete(l.table.vals, name)
		l.table.order = slices.DeleteFunc(slices.Clone(l.table.order), func(key string) bool { return key == name })
		s := ignoredSetting{strings.Join(path, "."), l.value.text(), fmt.Sprintf("%s:%d", f.path, l.value.key.line),
			"ignored: not trusted"}
		c.ignored = append(c.ignored, s)
		c.warnf("%s: %s is ignored, since the file is not trusted: %s shows what it sets and accepts it", s.From, s.Key,
			trustCommand)
	}
}

// An ignoredSetting is a setting of an untrusted file that has no effect.
type ignoredSetting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"`
	Why   string `json:"why"`
}

// mayNot reports a setting that an untrusted file may not have. own is the configuration without that file. A misspelt
// word passes, since it has no effect but a warning.
func (f configFile) mayNot(own *config, path []string, v *tomlValue) bool {
	text, _ := v.val.(string)
	wider := func(rank func(string) int, check func(string) (string, error), own, unset string) bool {
		word := text
		if v.val != "" {
			var err error
			if word, err = check(word); err != nil {
				return false
			}
		}
		return rank(cmp.Or(word, unset)) > rank(cmp.Or(own, unset))
	}
	key := path[len(path)-1]
	r := role{sandbox: own.sandbox, approvalPolicy: own.approvalPolicy, subagents: own.subagents,
		autoMail: own.autoMail}
	switch {
	case len(path) == 2 && path[0] == "per_thread_auto_mail": // which counts before auto_mail of a role
		return v.val == true && !own.perThreadAutoMail[key]
	case len(path) == 3 && path[0] == "roles":
		theirs := own.roleOrNone(path[1])
		r = role{sandbox: cmp.Or(theirs.sandbox, r.sandbox),
			approvalPolicy: cmp.Or(theirs.approvalPolicy, r.approvalPolicy), subagents: theirs.subagents,
			autoMail: theirs.autoMail}
		if !isSetting(r.settings(), key) {
			return false
		}
	case len(path) != 1 || !isSetting(own.settings(), key):
		return false
	}
	switch key {
	case "identity", "model", "fast_model", "fast", "reasoning_effort":
		return false
	case "role": // one of the user's own must be no wider than the user's default
		theirs, err := own.role(text)
		mine := own.roleOrNone("")
		return err == nil && (sandboxRank(cmp.Or(theirs.sandbox, own.sandbox,
			sandboxWrite)) > sandboxRank(cmp.Or(mine.sandbox, own.sandbox, sandboxWrite)) ||
			approvalRank(cmp.Or(theirs.approvalPolicy, own.approvalPolicy,
				"on-request")) > approvalRank(cmp.Or(mine.approvalPolicy, own.approvalPolicy, "on-request")))
	case "sandbox":
		return wider(sandboxRank, normalizeSandbox, r.sandbox, sandboxWrite)
	case "approval_policy":
		return wider(approvalRank, normalizePolicy, r.approvalPolicy, "on-request")
	case "max_sandbox":
		return text != "" && wider(sandboxRank, normalizeSandbox, own.lowestCeiling().word, sandboxDanger)
	case "readonly":
		return v.val == false && own.lowestCeiling().word == sandboxRead
	case "subagents":
		return v.val == true && !r.subagents
	case "auto_mail":
		return v.val == true && !r.autoMail
	case "allow_rules":
		return v.val == true && !own.allowRules
	}
	return true
}
