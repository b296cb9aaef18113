package main

// The layers of the configuration that are files: finding the files, reading them, and saying what is wrong in them.
// config.go reads each file once, lowest layer first, into a config; a later layer's good value replaces an earlier one's.
// A bad value, an unknown key or a file that can't be read is a warning with file, line and column and changes
// nothing else. Only in the file that --config or ATM_CONFIG names a bad value is an error. What a repository's file may
// set without the user's trust is decided in config_trust.go.

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
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

// A configFile is one file to read.
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
	data, err := f.content()
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
	r.readCore(doc)
	r.readNames(doc)
	r.plugins = r.table(doc, "", "plugins")
	r.warnMisplaced(doc, nil, false)
	for _, name := range pluginNames() {
		r.readPlugin(r.table(r.plugins, "plugins.", name))
	}
	return r.err
}

// content reads the file; the repository's was read as it was found.
func (f configFile) content() ([]byte, error) {
	if f.repo != nil {
		return f.repo.data, f.repo.err
	}
	return readRegular(f.path, maxConfigSize)
}

func (f configFile) at(v *tomlValue) origin {
	return origin{f.layer, fmt.Sprintf("%s:%d", f.path, v.line)}
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
	r.report(&tomlError{r.path, v.line, v.col, fmt.Sprintf(format, args...)})
}

// warnKey warns of a key that has no effect: in the named file too, since it may be meant for another program.
func (r *fileReader) warnKey(v *tomlValue, format string, args ...any) {
	r.c.warnf("%v", &tomlError{r.path, v.keyLine, v.keyCol, fmt.Sprintf(format, args...)})
}

// table is the table that t has under key, nil for none; under is what stands before key in its full name.
func (r *fileReader) table(t *tomlTable, under, key string) *tomlTable {
	v := t.get(key)
	if v == nil {
		return nil
	}
	if v.tab == nil {
		r.reportValue(v, "%s%s wants a table, not %s", under, key, v.kind)
	}
	return v.tab
}

// warnMisplaced warns of settings that stand where nobody reads them, and closes the ceilings among them, likely ones too.
// The file is ATM's as well: what stands in a table that is called like nothing of ours is somebody else's. t is the
// table at path; read: its settings are read, so that only ceilings in unknown tables of it are left to find.
func (r *fileReader) warnMisplaced(t *tomlTable, path []string, read bool) {
	for _, key := range t.keys() {
		v, below := t.get(key), append(slices.Clip(path), key)
		if tables := v.tables(); len(tables) > 0 && mayBeOurs(below) {
			ours := t == r.plugins && slices.Contains(pluginNames(), key)
			for _, table := range tables { // those of an array are never read
				r.warnMisplaced(table, below, (ours || read) && v.tab != nil)
			}
		}
		ceiling, setting := ceilingMeant(key) != "", slices.Contains(settingNames(), key)
		role := v.tab != nil && len(path) > 0 && path[len(path)-1] == "roles" // whatever it is called
		switch {
		case role, v.tab != nil && (len(path) == 0 || !ceiling):
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
		return nearest(name, names) != "" || slices.ContainsFunc(names, func(n string) bool { return foldWord(n) == foldWord(name) })
	}
	switch len(path) {
	case 1:
		return like(path[0], append(pluginNames(), "plugins")...) || path[0] == "core" || path[0] == "roles"
	case 2:
		return !like(path[0], "plugins") || like(path[1], pluginNames()...)
	}
	return path[2] != "per_thread_auto_mail" // its keys are agents' names
}

// readCore reads ATM's [core]. Its identity is the client's name and never an agent's. A file without
// [core], or with half of it, leaves the other layers' values alone.
func (r *fileReader) readCore(doc *tomlTable) {
	known := []string{"default_team", "identity"}
	for _, key := range doc.table("core").keys() {
		v := doc.at("core", key)
		into, check := &r.c.coreTeam, validTeam
		switch {
		case !slices.Contains(known, key):
			if near := nearest(key, known); near != "" {
				r.warnKey(v, "unknown key %q; did you mean %q?", "core."+key, near)
			}
			continue
		case key == "identity":
			into, check = &r.c.coreIdentity, validIdentity
		}
		err := check(v.str)
		if v.kind != tomlString {
			err = fmt.Errorf("wants a string, not %s", v.kind)
		}
		if err != nil {
			r.reportValue(v, "core.%s: %v", key, err)
			continue
		}
		*into = v.str
		r.c.origin["core."+key] = r.at(v)
	}
}

// readNames reads ATM's own [aliases] and [roles], which stand for a member's name where mail is addressed.
func (r *fileReader) readNames(doc *tomlTable) {
	for _, name := range []string{"aliases", "roles"} {
		into := map[string]map[string]string{"aliases": r.c.aliases, "roles": r.c.atmRoles}[name]
		table := r.table(doc, "", name)
		for _, key := range table.keys() {
			switch v := table.get(key); {
			case v.kind == tomlString:
				into[key] = v.str
				r.c.origin["["+name+"]."+key] = r.at(v) // not roles.x: that is a role of ours
			case v.tab == nil || name != "roles": // a role of ours in the wrong place is told with its keys
				r.reportValue(v, "%s.%s wants a string, not %s", name, key, v.kind)
			}
		}
	}
}

// readPlugin reads the table of our settings, and the tables roles and per_thread_auto_mail in it.
func (r *fileReader) readPlugin(t *tomlTable) {
	c := r.c
	fillTable(r, t, "", c, settings(), "roles", "per_thread_auto_mail")
	autoMail := r.table(t, "", "per_thread_auto_mail")
	for _, name := range autoMail.keys() {
		v := autoMail.get(name)
		if v.kind != tomlBool {
			r.reportValue(v, "per_thread_auto_mail.%s: wants a boolean, not %s", name, v.kind)
			continue
		}
		c.perThreadAutoMail[name] = v.b
		c.origin["per_thread_auto_mail."+name] = r.at(v)
	}
	roles := r.table(t, "", "roles")
	for _, name := range roles.keys() {
		v := roles.get(name)
		switch {
		case v.tab == nil:
			r.reportValue(v, "roles.%s: wants a table, not %s", name, v.kind)
			continue
		case !identityRule.MatchString(name):
			r.reportValue(v, "roles.%s: a role's name has letters a-z, digits, - and _, and begins with a letter or digit", name)
			continue
		}
		as := c.roles[name]
		as.name = name
		fillTable(r, v.tab, "roles."+name+".", &as, roleSettings())
		c.roles[name] = as
	}
}

// fillTable fills owner from a table of settings; prefix is what their keys are called by in origin. The keys in also
// are read by somebody else.
func fillTable[T any](r *fileReader, t *tomlTable, prefix string, owner *T, rows []setting[T], also ...string) {
	known := also
	byKey := map[string]setting[T]{}
	for _, s := range rows {
		for _, key := range s.names() {
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
			r.warnKey(v, "unknown key %q%s", prefix+key, meantHint(meantKey(key, known)))
			continue
		case s.find(t) != v:
			r.warnKey(v, "%s is the older name of %s, which is set too and counts", key, s.name)
			continue
		}
		if err := s.setTOML(s.field(owner), v, filepath.Dir(r.path), r.c.home); err != nil {
			r.reportValue(v, "%s%s: %v", prefix, key, err)
			r.c.failClosed(s.name)
			continue
		}
		r.c.recordOrigin(prefix+s.name, r.at(v))
	}
}
