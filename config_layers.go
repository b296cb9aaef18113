package main

// The layers of the configuration that are files: finding them, reading them, and saying what is wrong in them.
// config.go reads them once, lowest first, into a config; a later layer's good value replaces an earlier one's.
// A bad value, an unknown key or a file that can't be read is a warning with file, line and column and changes
// nothing else. Only in the file that --config or ATM_CONFIG names it is an error. What a repository's file may set
// without the user's trust is config_trust.go's.

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

// problem is an error in the named file and a warning in the others.
func (f configFile) problem(c *config, err error) error {
	if f.layer == layerNamed {
		return fmt.Errorf("%s: %w", f.by, err)
	}
	c.warnf("%v", err)
	return nil
}

func (f configFile) errorAt(line, col int, format string, args ...any) error {
	return &tomlError{f.path, line, col, fmt.Sprintf(format, args...)}
}

// read adds the file's values to c.
func (f configFile) read(c *config) error {
	data, err := f.content()
	if errors.Is(err, fs.ErrNotExist) && f.layer == layerGlobal {
		return nil
	}
	if err != nil {
		c.failClosed("max_sandbox") // there may be one in it
		return f.problem(c, fmt.Errorf("reading configuration: %w", err))
	}
	doc, err := parseTOML(f.path, data)
	if err != nil {
		c.failClosedIn(string(data))
		return f.problem(c, fmt.Errorf("%w (nothing in this file counts until it is right)", err))
	}
	if c.files = append(c.files, f.path); c.own != nil && f.layer == layerProject {
		f.doubt(c, doc)
	}
	if err := f.core(c, doc); err != nil {
		return err
	}
	if err := f.names(c, doc); err != nil {
		return err
	}
	f.misplaced(c, doc)
	if plugins := doc.get("plugins"); plugins != nil && plugins.tab == nil {
		c.failClosedBelow(plugins)
		return f.problem(c, f.errorAt(plugins.line, plugins.col, "plugins wants a table, not %s", plugins.kind))
	}
	for _, name := range pluginNames() {
		switch v := doc.at("plugins", name); {
		case v == nil:
		case v.tab == nil: // [[plugins.atm-agent-mcp]], say
			c.failClosedBelow(v)
			err = f.problem(c, f.errorAt(v.line, v.col, "plugins.%s wants a table, not %s", name, v.kind))
		default:
			err = f.plugin(c, v.tab)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// content reads the file; the repository's was read as it was found.
func (f configFile) content() ([]byte, error) {
	if f.repo != nil {
		return f.repo.data, f.repo.err
	}
	return readRegular(f.path, maxConfigSize)
}

// misplaced tells of what is ours and stands where nobody reads it. The file is ATM's too: of what is in it,
// only that is told which can't be meant for anybody else.
func (f configFile) misplaced(c *config, doc *tomlTable) {
	for _, key := range doc.keys() {
		v := doc.get(key)
		switch {
		case v.holdsTables() && likePlugin(key):
			f.wrongTable(c, v, key)
		case v.tab != nil && key != "plugins" && nearest(key, []string{"plugins"}) != "":
			for _, name := range v.tab.keys() {
				if v := v.tab.get(name); v.holdsTables() && likePlugin(name) {
					f.wrongTable(c, v, key+"."+name)
				}
			}
		case v.tab == nil && (ceilingMeant(key) != "" || slices.ContainsFunc(settings(), func(s setting[config]) bool { return s.name == key })):
			f.outside(c, v, key)
		}
	}
	for _, name := range doc.table("plugins").keys() {
		switch v := doc.at("plugins", name); {
		case v.holdsTables() && likePlugin(name) && !slices.Contains(pluginNames(), name):
			f.wrongTable(c, v, "plugins."+name)
		case v.tab == nil && ceilingMeant(name) != "":
			f.outside(c, v, name)
		}
	}
	for _, name := range doc.table("roles").keys() {
		if v := doc.at("roles", name); v.tab != nil {
			c.warnf("%v", f.errorAt(v.keyLine, v.keyCol, "[roles.%s] is written [plugins.%s.roles.%s]", name, pluginName, name))
			for _, key := range v.tab.keys() {
				c.failClosed(key)
			}
		}
	}
	for _, key := range doc.table("core").keys() {
		known := []string{"default_team", "identity"}
		if ceilingMeant(key) != "" {
			f.outside(c, doc.at("core", key), key)
		} else if near := nearest(key, known); near != "" && !slices.Contains(known, key) {
			v := doc.at("core", key)
			c.warnf("%v", f.errorAt(v.keyLine, v.keyCol, "unknown key %q; did you mean %q?", "core."+key, near))
		}
	}
}

// outside tells of a setting, a ceiling perhaps, that stands in a table where it has no effect.
func (f configFile) outside(c *config, v *tomlValue, key string) {
	c.warnf("%v", f.errorAt(v.keyLine, v.keyCol, "%s stands outside of [plugins.%s] and has no effect there", key, pluginName))
	c.failClosed(key)
}

// likePlugin reports a table's name that is one of ours, or misspelt.
func likePlugin(name string) bool {
	return nearest(name, pluginNames()) != "" || slices.ContainsFunc(pluginNames(), func(p string) bool { return foldWord(p) == foldWord(name) })
}

// wrongTable tells that the plugin's table has another name, and that a ceiling in it was meant.
func (f configFile) wrongTable(c *config, v *tomlValue, name string) {
	c.warnf("%v", f.errorAt(v.keyLine, v.keyCol, "[%s] is written [plugins.%s]", name, pluginName))
	c.failClosedBelow(v)
}

// core reads ATM's [core]. Its identity is the client's name and never an agent's. A file without
// [core], or with half of it, leaves the other layers' values alone.
func (f configFile) core(c *config, doc *tomlTable) error {
	for _, k := range []struct {
		key   string
		into  *string
		check func(string) error
	}{{"default_team", &c.coreTeam, validTeam}, {"identity", &c.coreIdentity, validIdentity}} {
		v := doc.at("core", k.key)
		if v == nil {
			continue
		}
		err := k.check(v.str)
		if v.kind != tomlString {
			err = fmt.Errorf("wants a string, not %s", v.kind)
		}
		if err != nil {
			if err = f.problem(c, f.errorAt(v.line, v.col, "core.%s: %v", k.key, err)); err != nil {
				return err
			}
			continue
		}
		*k.into = v.str
		c.origin["core."+k.key] = f.at(v)
	}
	return nil
}

// names reads ATM's own [aliases] and [roles], which stand for a member's name where mail is addressed.
func (f configFile) names(c *config, doc *tomlTable) error {
	for _, t := range []struct {
		name string
		into map[string]string
	}{{"aliases", c.aliases}, {"roles", c.atmRoles}} {
		table := doc.get(t.name)
		if table == nil {
			continue
		}
		if table.tab == nil {
			if err := f.problem(c, f.errorAt(table.line, table.col, "%s wants a table, not %s", t.name, table.kind)); err != nil {
				return err
			}
			continue
		}
		for _, key := range table.tab.keys() {
			v := table.tab.get(key)
			if v.tab != nil && t.name == "roles" {
				continue // a role of ours in the wrong place, which is told
			}
			if v.kind != tomlString {
				if err := f.problem(c, f.errorAt(v.line, v.col, "%s.%s wants a string, not %s", t.name, key, v.kind)); err != nil {
					return err
				}
				continue
			}
			t.into[key] = v.str
			c.origin["["+t.name+"]."+key] = f.at(v) // not roles.x: that is a role of ours
		}
	}
	return nil
}

func (f configFile) at(v *tomlValue) origin {
	return origin{f.layer, fmt.Sprintf("%s:%d", f.path, v.line)}
}

func (f configFile) plugin(c *config, t *tomlTable) error {
	if err := readTable(f, c, t, "", c, settings(), "roles", "per_thread_auto_mail"); err != nil {
		return err
	}
	if err := f.each(c, t, "per_thread_auto_mail", func(name string, v *tomlValue) error {
		if v.kind != tomlBool {
			return fmt.Errorf("wants a boolean, not %s", v.kind)
		}
		c.perThreadAutoMail[name] = v.b
		c.origin["per_thread_auto_mail."+name] = f.at(v)
		return nil
	}); err != nil {
		return err
	}
	return f.each(c, t, "roles", func(name string, v *tomlValue) error {
		if v.tab == nil {
			return fmt.Errorf("wants a table, not %s", v.kind)
		}
		if !identityRule.MatchString(name) {
			return errors.New("a role's name has letters a-z, digits, - and _, and begins with a letter or digit")
		}
		r := c.roles[name]
		r.name = name
		err := readTable(f, c, v.tab, "roles."+name+".", &r, roleSettings())
		c.roles[name] = r
		return err
	})
}

// each hands over the entries of the table under key; an error that take returns is given its position.
func (f configFile) each(c *config, t *tomlTable, key string, take func(string, *tomlValue) error) error {
	v := t.get(key)
	if v == nil {
		return nil
	}
	if v.tab == nil {
		return f.problem(c, f.errorAt(v.line, v.col, "%s wants a table, not %s", key, v.kind))
	}
	for _, name := range v.tab.keys() {
		e := v.tab.get(name)
		err := take(name, e)
		if err == nil {
			continue
		}
		if f.layer != layerNamed || !errors.As(err, new(*tomlError)) {
			err = f.problem(c, f.errorAt(e.line, e.col, "%s.%s: %v", key, name, err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readTable fills owner from a table of settings; prefix is what their keys are called by in origin.
func readTable[T any](f configFile, c *config, t *tomlTable, prefix string, owner *T, rows []setting[T], also ...string) error {
	known := slices.Clone(also)
	byKey := map[string]setting[T]{}
	for _, s := range rows {
		known = append(known, s.name)
		byKey[s.name] = s
		if s.alias != "" {
			known = append(known, s.alias)
			byKey[s.alias] = s
		}
	}
	for _, key := range t.keys() {
		v := t.get(key)
		s, ok := byKey[key]
		switch {
		case slices.Contains(also, key):
			continue
		case !ok:
			hint := ""
			if prefix == "" && key == "team" {
				hint = "; a team is named by default_team under [core]"
			} else if meant := meantKey(key, known); meant != "" {
				hint = fmt.Sprintf("; did you mean %q?", meant)
			}
			c.failClosed(key) // in a role's table too, where there are no ceilings
			c.failClosedBelow(v)
			c.warnf("%v", f.errorAt(v.keyLine, v.keyCol, "unknown key %q%s", prefix+key, hint))
			continue
		case s.find(t) != v:
			c.warnf("%v", f.errorAt(v.keyLine, v.keyCol, "%s is the older name of %s, which is set too and counts", key, s.name))
			continue
		}
		if err := s.setTOML(s.field(owner), v, filepath.Dir(f.path), c.home); err != nil {
			if err = f.problem(c, f.errorAt(v.line, v.col, "%s%s: %v", prefix, key, err)); err != nil {
				return err
			}
			c.failClosed(s.name)
			continue
		}
		c.took(prefix+s.name, f.at(v))
	}
	return nil
}
