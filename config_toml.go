package main

// TOML: the values of a document with the place each was written at, and the rules about tables.
// config.go reads .atm.toml and config.toml with it, and a Codex profile ($CODEX_HOME/<p>.config.toml)
// becomes JSON through plain. The letters (keys, strings, numbers) are in config_tomlscan.go.
// Read are strings, decimal integers and floats, booleans, arrays and tables in every spelling. Whatever else TOML 1.0
// has (dates, 0x.., inf, nan) and whatever is no TOML is an error with file, line and column, never a guess: a setting
// that is misread is worse than one that is refused.
// Pure: it opens no file and keeps nothing between calls.

import (
	"fmt"
)

type tomlKind int

const (
	tomlString tomlKind = iota + 1
	tomlInt
	tomlFloat
	tomlBool
	tomlArray
	tomlTab
)

// String names a kind the way an error message wants it: "wants a string, not an integer".
func (k tomlKind) String() string {
	switch k {
	case tomlString:
		return "a string"
	case tomlInt:
		return "an integer"
	case tomlFloat:
		return "a float"
	case tomlBool:
		return "a boolean"
	case tomlArray:
		return "an array"
	case tomlTab:
		return "a table"
	}
	return "nothing"
}

// A tomlValue is one value; kind tells which field holds it.
type tomlValue struct {
	kind      tomlKind
	str       string
	i         int64
	f         float64
	b         bool
	arr       []*tomlValue
	tab       *tomlTable
	line, col int // where the value begins; of a table, where its name stands

	keyLine, keyCol int  // where the key begins, 0 in an array
	ofTables        bool // an array made by [[name]], the only kind that [[name]] may append to
}

// tables are the tables in a value: itself, or those of an array at any depth.
func (v *tomlValue) tables() []*tomlTable {
	if v.tab != nil {
		return []*tomlTable{v.tab}
	}
	var all []*tomlTable
	for _, e := range v.arr {
		all = append(all, e.tables()...)
	}
	return all
}

// tomlOrigin says which construct made a table, since that decides who may add to it.
type tomlOrigin int

const (
	// tomlImplied: only named on the way, as a is by [a.b]. One header or dotted key may still define it.
	tomlImplied tomlOrigin = iota
	// tomlHeaded: [name] or an element of [[name]]. Never headed again, not reached by dotted keys from outside.
	tomlHeaded
	// tomlDotted: made by a.b = 1. More dotted keys of the same body may add; a header may only go through it.
	tomlDotted
	// tomlInline: { … }. Complete where it closes.
	tomlInline
)

// A tomlTable keeps its keys in the order in which they were written. A nil table is an empty one.
type tomlTable struct {
	order  []string
	vals   map[string]*tomlValue
	origin tomlOrigin
}

func newTOMLTable(o tomlOrigin) *tomlTable {
	return &tomlTable{vals: map[string]*tomlValue{}, origin: o}
}

// get returns the value of key, nil when there is none.
func (t *tomlTable) get(key string) *tomlValue {
	if t == nil {
		return nil
	}
	return t.vals[key]
}

// keys returns the keys in the order in which they were written.
func (t *tomlTable) keys() []string {
	if t == nil {
		return nil
	}
	return t.order
}

// at follows path through tables; nil when a part is missing or no table.
func (t *tomlTable) at(path ...string) *tomlValue {
	var v *tomlValue
	for _, key := range path {
		if v = t.get(key); v == nil {
			return nil
		}
		t = v.tab
	}
	return v
}

// table follows path to a table; nil (an empty table) when it isn't there or is something else.
func (t *tomlTable) table(path ...string) *tomlTable {
	if len(path) == 0 {
		return t
	}
	if v := t.at(path...); v != nil {
		return v.tab
	}
	return nil
}

func (t *tomlTable) put(key tomlKey, v *tomlValue) {
	v.keyLine, v.keyCol = key.line, key.col
	t.order = append(t.order, key.name)
	t.vals[key.name] = v
}

// plain converts the table to what encoding/json takes.
func (t *tomlTable) plain() map[string]any {
	m := make(map[string]any, len(t.keys()))
	for _, key := range t.keys() {
		m[key] = t.vals[key].plain()
	}
	return m
}

func (v *tomlValue) plain() any {
	switch v.kind {
	case tomlString:
		return v.str
	case tomlInt:
		return v.i
	case tomlFloat:
		return v.f
	case tomlBool:
		return v.b
	case tomlArray:
		list := make([]any, len(v.arr))
		for i, e := range v.arr {
			list[i] = e.plain()
		}
		return list
	case tomlTab:
		return v.tab.plain()
	}
	panic(fmt.Sprintf("BUG: TOML value of kind %d", v.kind))
}

// tomlError is what a document is refused with.
type tomlError struct {
	name      string
	line, col int // from 1, in characters
	what      string
}

func (e *tomlError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.name, e.line, e.col, e.what)
}

// tomlMaxDepth bounds nested arrays and inline tables, and the parts of one dotted key: a document must not be
// able to exhaust the stack.
const tomlMaxDepth = 64

// parseTOML reads a whole document; name is the file's, for errors.
func parseTOML(name string, data []byte) (*tomlTable, error) {
	s, err := newTOMLScanner(name, data)
	if err != nil {
		return nil, err
	}
	p := &tomlParser{s: s, root: newTOMLTable(tomlHeaded)}
	p.body = p.root
	for {
		s.skipLines()
		if s.eof() {
			return p.root, nil
		}
		if s.peek() == '[' {
			err = p.header()
		} else {
			err = p.pair(p.body, 0)
		}
		if err == nil {
			err = s.endLine()
		}
		if err != nil {
			return nil, err
		}
	}
}

// A tomlParser holds the document so far and the table that plain key lines go to.
type tomlParser struct {
	s    *tomlScanner
	root *tomlTable
	body *tomlTable
}

// header reads [a.b] or [[a.b]] and makes it the body.
func (p *tomlParser) header() error {
	s := p.s
	s.next()
	list := s.peek() == '['
	if list {
		s.next()
	}
	s.spaces()
	keys, err := s.key()
	if err != nil {
		return err
	}
	s.spaces()
	end := "]"
	if list {
		end = "]]"
	}
	if !s.take(end) {
		return s.errorf("the table header wants %q here, not %s", end, s.here())
	}
	t := p.root
	for _, key := range keys[:len(keys)-1] {
		if t, err = p.through(t, key); err != nil {
			return err
		}
	}
	last := keys[len(keys)-1]
	if list {
		p.body, err = p.element(t, last)
	} else {
		p.body, err = p.headed(t, last)
	}
	return err
}

// through takes a header one part further down, making what isn't there yet.
func (p *tomlParser) through(t *tomlTable, key tomlKey) (*tomlTable, error) {
	v := t.get(key.name)
	switch {
	case v == nil:
		sub := newTOMLTable(tomlImplied)
		t.put(key, &tomlValue{kind: tomlTab, tab: sub, line: key.line, col: key.col})
		return sub, nil
	case v.kind == tomlTab && v.tab.origin != tomlInline:
		return v.tab, nil
	case v.kind == tomlArray && v.ofTables:
		return v.arr[len(v.arr)-1].tab, nil
	}
	return nil, p.closed(key, v)
}

// headed makes the table a [header] names, or defines one that was only implied.
func (p *tomlParser) headed(t *tomlTable, key tomlKey) (*tomlTable, error) {
	v := t.get(key.name)
	switch {
	case v == nil:
		sub := newTOMLTable(tomlHeaded)
		t.put(key, &tomlValue{kind: tomlTab, tab: sub, line: key.line, col: key.col})
		return sub, nil
	case v.kind == tomlTab && v.tab.origin == tomlImplied:
		v.tab.origin = tomlHeaded
		return v.tab, nil
	case v.kind == tomlTab && v.tab.origin != tomlInline:
		return nil, p.s.errorAt(key.line, key.col, "table %q is already defined at line %d", key.name, v.keyLine)
	}
	return nil, p.closed(key, v)
}

// element appends a table to the array that [[header]] names.
func (p *tomlParser) element(t *tomlTable, key tomlKey) (*tomlTable, error) {
	sub := newTOMLTable(tomlHeaded)
	e := &tomlValue{kind: tomlTab, tab: sub, line: key.line, col: key.col}
	v := t.get(key.name)
	if v == nil {
		v = &tomlValue{kind: tomlArray, ofTables: true, line: key.line, col: key.col}
		t.put(key, v)
	}
	if !v.ofTables {
		return nil, p.closed(key, v)
	}
	v.arr = append(v.arr, e)
	return sub, nil
}

// closed is the error for a key whose value can't take what is asked of it.
func (p *tomlParser) closed(key tomlKey, v *tomlValue) error {
	what := v.kind.String()
	switch {
	case v.kind == tomlTab && v.tab.origin == tomlInline:
		what = "an inline table, which is complete where it closes"
	case v.ofTables:
		what = "an array of tables, written [[" + key.name + "]]"
	case v.kind == tomlArray:
		what = "an array of values, which no header can add to"
	}
	return p.s.errorAt(key.line, key.col, "key %q is already set at line %d and is %s", key.name, v.keyLine, what)
}

// pair reads key = value into t; depth counts the values it stands in.
func (p *tomlParser) pair(t *tomlTable, depth int) error {
	s := p.s
	keys, err := s.key()
	if err != nil {
		return err
	}
	s.spaces()
	if !s.take("=") {
		return s.errorf("key %q wants \"=\" here, not %s", keys[len(keys)-1].name, s.here())
	}
	s.spaces()
	for _, key := range keys[:len(keys)-1] {
		if t, err = p.dotted(t, key); err != nil {
			return err
		}
	}
	last := keys[len(keys)-1]
	if old := t.get(last.name); old != nil {
		return s.errorAt(last.line, last.col, "key %q is already set at line %d", last.name, old.keyLine)
	}
	v, err := p.value(depth)
	if err != nil {
		return err
	}
	t.put(last, v)
	return nil
}

// dotted takes a dotted key one part further down. A table with a header of its own, an inline one and an
// array are closed to it.
func (p *tomlParser) dotted(t *tomlTable, key tomlKey) (*tomlTable, error) {
	v := t.get(key.name)
	switch {
	case v == nil:
		sub := newTOMLTable(tomlDotted)
		t.put(key, &tomlValue{kind: tomlTab, tab: sub, line: key.line, col: key.col})
		return sub, nil
	case v.kind == tomlTab && v.tab.origin == tomlHeaded:
		return nil, p.s.errorAt(key.line, key.col, "table %q has its own header at line %d: write this key below that", key.name, v.keyLine)
	case v.kind == tomlTab && v.tab.origin != tomlInline:
		v.tab.origin = tomlDotted
		return v.tab, nil
	}
	return nil, p.closed(key, v)
}

// value reads one value of any kind.
func (p *tomlParser) value(depth int) (*tomlValue, error) {
	s := p.s
	if depth >= tomlMaxDepth {
		return nil, s.errorf("values are nested deeper than %d", tomlMaxDepth)
	}
	v := &tomlValue{line: s.line, col: s.col}
	var err error
	switch s.peek() {
	case '[':
		v.kind = tomlArray
		err = p.array(v, depth)
	case '{':
		v.kind, v.tab = tomlTab, newTOMLTable(tomlInline)
		err = p.inline(v.tab, depth)
	case '"', '\'':
		v.kind = tomlString
		v.str, err = s.text(true)
	default:
		err = s.scalar(v)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// array reads [ … ]: newlines, comments and a last comma are allowed.
func (p *tomlParser) array(v *tomlValue, depth int) error {
	s := p.s
	s.next()
	for {
		s.skipLines()
		if s.take("]") {
			return nil
		}
		if s.eof() {
			return s.errorAt(v.line, v.col, "the array that begins here is never closed with \"]\"")
		}
		e, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		v.arr = append(v.arr, e)
		s.skipLines()
		if !s.take(",") && s.peek() != ']' {
			if s.eof() {
				return s.errorAt(v.line, v.col, "the array that begins here is never closed with \"]\"")
			}
			return s.errorf("the array wants \",\" or \"]\" here, not %s", s.here())
		}
	}
}

// inline reads { … } on one line, without a last comma (TOML 1.0).
func (p *tomlParser) inline(t *tomlTable, depth int) error {
	s := p.s
	s.next()
	s.spaces()
	if s.take("}") {
		return nil
	}
	for {
		if err := p.pair(t, depth+1); err != nil {
			return err
		}
		s.spaces()
		if s.take("}") {
			return nil
		}
		if !s.take(",") {
			return s.errorf("the inline table, which stands on one line, wants \",\" or \"}\" here, not %s", s.here())
		}
		s.spaces()
		if s.peek() == '}' {
			return s.errorf("an inline table has no comma before its \"}\" in TOML 1.0")
		}
	}
}
