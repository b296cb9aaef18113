package main

// TOML: a reader whose values know the place each was written at. config_layers.go reads .atm.toml and config.toml with
// it, and a Codex profile ($CODEX_HOME/<p>.config.toml) becomes JSON through plain. Read are strings, decimal integers
// and floats, booleans, arrays and tables in every spelling. Whatever else TOML 1.0 has (dates, 0x.., inf, nan) and
// whatever is no TOML is an error with file, line and column, never a guess: a setting that is misread is worse than
// one that is refused. Pure: it opens no file and keeps nothing between calls.

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
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
	return [...]string{"nothing", "a string", "an integer", "a float", "a boolean", "an array", "a table"}[k]
}

// A tomlValue is one value, with the place it was written at. Lines and columns count from 1, columns in characters.
type tomlValue struct {
	kind            tomlKind // tells which of the next six fields holds the value
	str             string
	i               int64
	f               float64
	b               bool
	arr             []*tomlValue
	tab             *tomlTable
	line, col       int  // where the value begins; of a table, where its name stands
	keyLine, keyCol int  // where the value's key begins, 0 in an array
	ofTables        bool // the array was made by [[name]], so that another [[name]] may append to it
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

// A tomlTable is a table. A nil table is an empty one.
type tomlTable struct {
	order  []string // the keys as they were written
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

var (
	tomlDecimal = regexp.MustCompile(`^[+-]?(0|[1-9](_?[0-9])*)$`)
	tomlReal    = regexp.MustCompile(`^[+-]?(0|[1-9](_?[0-9])*)(\.[0-9](_?[0-9])*)?([eE][+-]?[0-9](_?[0-9])*)?$`)
	tomlDate    = regexp.MustCompile(`^([0-9]+-[0-9]+-|[0-9]+:)`)
)

// A tomlParser is a cursor over a checked document, and the document so far.
type tomlParser struct {
	name      string // the file's, for errors
	src       string // valid UTF-8, newlines are "\n", no other control character but tab
	off       int    // of the next byte of src
	line, col int    // of the next character, from 1
	root      *tomlTable
	body      *tomlTable // the table that plain key lines go to
}

// parseTOML reads a whole document; name is the file's, for errors.
func parseTOML(name string, data []byte) (*tomlTable, error) {
	p := &tomlParser{name: name, line: 1, col: 1, root: newTOMLTable(tomlHeaded)}
	p.body = p.root
	err := p.check(strings.TrimPrefix(string(data), "\ufeff"))
	for err == nil {
		p.skipLines()
		if p.eof() {
			return p.root, nil
		}
		if p.peek() == '[' {
			err = p.header()
		} else {
			err = p.pair(p.body, 0)
		}
		if err == nil {
			err = p.endLine()
		}
	}
	return nil, err
}

// check takes in the document, without a byte order mark. It refuses what may stand nowhere in one (bytes that are no
// UTF-8, control characters, a carriage return alone), so that nothing after it has to think of them, and peek's 0 can
// only mean the end.
func (p *tomlParser) check(src string) error {
	for i, r := range src {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(src[i:], "\ufffd"):
			return p.errorf("byte 0x%02X is not UTF-8", src[i])
		case r == '\r' && !strings.HasPrefix(src[i:], "\r\n"):
			return p.errorf("a carriage return must be followed by a line feed")
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return p.errorf("control character U+%04X is not allowed, write \\u%04X in a string", r, r)
		}
		if p.col++; r == '\n' {
			p.line, p.col = p.line+1, 1
		}
	}
	p.src, p.line, p.col = strings.ReplaceAll(src, "\r\n", "\n"), 1, 1
	return nil
}

// header reads [a.b] or [[a.b]] and makes it the body.
func (p *tomlParser) header() error {
	p.take("[")
	list, end := p.take("["), "]"
	if list {
		end = "]]"
	}
	p.spaces()
	keys, err := p.key()
	if err != nil {
		return err
	}
	p.spaces()
	if !p.take(end) {
		return p.errorf("the table header wants %q here, not %s", end, p.here())
	}
	t := p.root
	for _, key := range keys[:len(keys)-1] {
		if t, err = p.sub(t, key, tomlImplied); err != nil {
			return err
		}
	}
	last := keys[len(keys)-1]
	if list {
		p.body, err = p.element(t, last)
	} else {
		p.body, err = p.sub(t, last, tomlHeaded)
	}
	return err
}

// sub takes a header or a dotted key one part further down, into the table under key, which it makes where nothing is
// there yet. how says in which way: implied on the way of a header, headed at its end, dotted in a key.
func (p *tomlParser) sub(t *tomlTable, key tomlKey, how tomlOrigin) (*tomlTable, error) {
	v := t.get(key.name)
	if v == nil {
		v = &tomlValue{kind: tomlTab, tab: newTOMLTable(how), line: key.line, col: key.col}
		t.put(key, v)
		return v.tab, nil
	}
	if v.ofTables && how == tomlImplied {
		return v.arr[len(v.arr)-1].tab, nil
	}
	if v.kind != tomlTab || v.tab.origin == tomlInline {
		return nil, p.closedError(key, v)
	}
	switch {
	case how == tomlImplied:
		return v.tab, nil
	case how == tomlHeaded && v.tab.origin != tomlImplied:
		return nil, p.errorAt(key.line, key.col, "table %q is already defined at line %d", key.name, v.keyLine)
	case how == tomlDotted && v.tab.origin == tomlHeaded:
		return nil, p.errorAt(key.line, key.col, "table %q has its own header at line %d: write this key below that",
			key.name, v.keyLine)
	}
	v.tab.origin = how
	return v.tab, nil
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
		return nil, p.closedError(key, v)
	}
	v.arr = append(v.arr, e)
	return sub, nil
}

// closedError is the error for a key that is set to what no header and no dotted key may add to.
func (p *tomlParser) closedError(key tomlKey, v *tomlValue) error {
	what := v.kind.String()
	switch {
	case v.kind == tomlTab && v.tab.origin == tomlInline:
		what = "an inline table, which is complete where it closes"
	case v.ofTables:
		what = "an array of tables, written [[" + key.name + "]]"
	case v.kind == tomlArray:
		what = "an array of values, which no header can add to"
	}
	return p.errorAt(key.line, key.col, "key %q is already set at line %d and is %s", key.name, v.keyLine, what)
}

// pair reads key = value into t; depth counts the values around the pair.
func (p *tomlParser) pair(t *tomlTable, depth int) error {
	keys, err := p.key()
	if err != nil {
		return err
	}
	p.spaces()
	if !p.take("=") {
		return p.errorf("key %q wants \"=\" here, not %s", keys[len(keys)-1].name, p.here())
	}
	p.spaces()
	for _, key := range keys[:len(keys)-1] {
		if t, err = p.sub(t, key, tomlDotted); err != nil {
			return err
		}
	}
	last := keys[len(keys)-1]
	if old := t.get(last.name); old != nil {
		return p.errorAt(last.line, last.col, "key %q is already set at line %d", last.name, old.keyLine)
	}
	v, err := p.value(depth)
	if err != nil {
		return err
	}
	t.put(last, v)
	return nil
}

func (p *tomlParser) value(depth int) (*tomlValue, error) {
	if depth >= tomlMaxDepth {
		return nil, p.errorf("values are nested deeper than %d", tomlMaxDepth)
	}
	v := &tomlValue{line: p.line, col: p.col}
	var err error
	switch p.peek() {
	case '[':
		v.kind = tomlArray
		err = p.array(v, depth)
	case '{':
		v.kind, v.tab = tomlTab, newTOMLTable(tomlInline)
		err = p.inline(v.tab, depth)
	case '"', '\'':
		v.kind = tomlString
		v.str, err = p.text(true)
	default:
		err = p.scalar(v)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// array reads [ … ]: newlines, comments and a last comma are allowed.
func (p *tomlParser) array(v *tomlValue, depth int) error {
	p.next()
	for {
		if p.skipLines(); p.take("]") {
			return nil
		}
		if p.eof() {
			return p.errorAt(v.line, v.col, "the array that begins here is never closed with \"]\"")
		}
		e, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		v.arr = append(v.arr, e)
		if p.skipLines(); !p.take(",") && p.peek() != ']' && !p.eof() {
			return p.errorf("the array wants \",\" or \"]\" here, not %s", p.here())
		}
	}
}

// inline reads { … } on one line, without a last comma (TOML 1.0).
func (p *tomlParser) inline(t *tomlTable, depth int) error {
	p.next()
	if p.spaces(); p.take("}") {
		return nil
	}
	for {
		if err := p.pair(t, depth+1); err != nil {
			return err
		}
		if p.spaces(); p.take("}") {
			return nil
		}
		if !p.take(",") {
			return p.errorf("the inline table, which stands on one line, wants \",\" or \"}\" here, not %s", p.here())
		}
		if p.spaces(); p.peek() == '}' {
			return p.errorf("an inline table has no comma before its \"}\" in TOML 1.0")
		}
	}
}

// A tomlKey is one part of a key and where it begins.
type tomlKey struct {
	name      string
	line, col int
}

func (p *tomlParser) errorf(format string, args ...any) error {
	return p.errorAt(p.line, p.col, format, args...)
}

func (p *tomlParser) errorAt(line, col int, format string, args ...any) error {
	return &tomlError{p.name, line, col, fmt.Sprintf(format, args...)}
}

func (p *tomlParser) eof() bool { return p.off >= len(p.src) }

// peek returns the next byte, 0 at the end.
func (p *tomlParser) peek() byte {
	if p.eof() {
		return 0
	}
	return p.src[p.off]
}

// next steps over one byte. Columns count characters, so only a character's last byte moves the column.
func (p *tomlParser) next() {
	c := p.src[p.off]
	p.off++
	switch {
	case c == '\n':
		p.line++
		p.col = 1
	case p.off == len(p.src) || utf8.RuneStart(p.src[p.off]):
		p.col++
	}
}

// take steps over text where text comes next, and tells whether it does. text has no newline.
func (p *tomlParser) take(text string) bool {
	if !strings.HasPrefix(p.src[p.off:], text) {
		return false
	}
	for range len(text) {
		p.next()
	}
	return true
}

func (p *tomlParser) here() string {
	switch {
	case p.eof():
		return "the end of the file"
	case p.peek() == '\n':
		return "the end of the line"
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.off:])
	return strconv.QuoteRune(r)
}

func (p *tomlParser) spaces() {
	for p.peek() == ' ' || p.peek() == '\t' {
		p.next()
	}
}

// skipLines steps over blanks, newlines and comments.
func (p *tomlParser) skipLines() {
	for {
		switch p.peek() {
		case ' ', '\t', '\n':
			p.next()
		case '#':
			p.comment()
		default:
			return
		}
	}
}

func (p *tomlParser) comment() {
	for !p.eof() && p.peek() != '\n' {
		p.next()
	}
}

// endLine wants nothing more on this line but a comment.
func (p *tomlParser) endLine() error {
	p.spaces()
	if p.peek() == '#' {
		p.comment()
	}
	if !p.eof() && p.peek() != '\n' {
		return p.errorf("the line should end here, but %s follows", p.here())
	}
	return nil
}

// key reads a.'b'."c", one or more parts.
func (p *tomlParser) key() ([]tomlKey, error) {
	var keys []tomlKey
	for {
		k := tomlKey{line: p.line, col: p.col}
		if c := p.peek(); c == '"' || c == '\'' {
			var err error
			if k.name, err = p.text(false); err != nil {
				return nil, err
			}
		} else {
			from := p.off
			for tomlBare(p.peek()) {
				p.next()
			}
			if k.name = p.src[from:p.off]; k.name == "" {
				return nil, p.errorf("a key is wanted here, not %s", p.here())
			}
		}
		if keys = append(keys, k); len(keys) > tomlMaxDepth {
			return nil, p.errorAt(k.line, k.col, "a key has at most %d parts", tomlMaxDepth)
		}
		end := *p
		p.spaces()
		if !p.take(".") {
			*p = end // blanks after the key are the caller's
			return keys, nil
		}
		p.spaces()
	}
}

func tomlBare(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// text reads a quoted string; lines tells whether the three-quote forms are allowed (they are not as keys).
func (p *tomlParser) text(lines bool) (string, error) {
	line, col := p.line, p.col
	quote := string(p.peek())
	p.next()
	long := lines && strings.HasPrefix(p.src[p.off:], quote+quote)
	if long {
		p.take(quote + quote)
		if p.peek() == '\n' { // right after the opening quotes a newline doesn't count
			p.next()
		}
	}
	var b strings.Builder
	for {
		c := p.peek()
		switch {
		case p.eof() || c == '\n' && !long:
			return "", p.errorAt(line, col, "the string that begins here is not closed before %s", p.here())
		case string(c) == quote && !long:
			p.next()
			return b.String(), nil
		case string(c) == quote && strings.HasPrefix(p.src[p.off:], quote+quote+quote):
			p.take(quote + quote + quote)
			// One or two quotes may stand right before the closing three.
			for range 2 {
				if p.take(quote) {
					b.WriteString(quote)
				}
			}
			return b.String(), nil
		case c == '\\' && quote == `"`:
			if err := p.escape(&b, long); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			p.next()
		}
	}
}

func (p *tomlParser) escape(b *strings.Builder, long bool) error {
	line, col := p.line, p.col
	p.next()
	if long {
		// A backslash that ends its line swallows all blanks and newlines up to the next text.
		at := *p
		if p.spaces(); p.peek() == '\n' {
			for p.peek() == ' ' || p.peek() == '\t' || p.peek() == '\n' {
				p.next()
			}
			return nil
		}
		*p = at
	}
	c, digits := p.peek(), 0
	switch simple := strings.IndexByte(`btnfr"\`, c); {
	case simple >= 0:
		b.WriteByte("\b\t\n\f\r\"\\"[simple])
	case c == 'u':
		digits = 4
	case c == 'U':
		digits = 8
	default:
		return p.errorAt(line, col, "%s after a backslash is no escape of TOML 1.0 (there are \\b \\t \\n \\f \\r "+
			"\\\" \\\\ \\uXXXX \\UXXXXXXXX; in '…' a backslash is itself)", p.here())
	}
	p.next()
	if digits == 0 {
		return nil
	}
	hex := p.src[p.off:min(p.off+digits, len(p.src))]
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || len(hex) < digits {
		return p.errorAt(line, col, "\\%c wants %d hexadecimal digits", c, digits)
	}
	for range digits {
		p.next()
	}
	if n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		return p.errorAt(line, col, "U+%04X is no character (surrogates and what is above U+10FFFF are not)", n)
	}
	b.WriteRune(rune(n))
	return nil
}

func (p *tomlParser) scalar(v *tomlValue) error {
	w := p.word()
	bad := func(format string, args ...any) error { return p.errorAt(v.line, v.col, format, args...) }
	clean := strings.ReplaceAll(w, "_", "")
	var err error
	switch {
	case w == "":
		return p.errorf("a value is wanted here, not %s", p.here())
	case w == "true" || w == "false":
		v.kind, v.b = tomlBool, w == "true"
	case tomlDecimal.MatchString(w):
		v.kind = tomlInt
		if v.i, err = strconv.ParseInt(clean, 10, 64); err != nil {
			return bad("integer %s does not fit into 64 bits", w)
		}
	case tomlReal.MatchString(w):
		v.kind = tomlFloat
		if v.f, err = strconv.ParseFloat(clean, 64); err != nil {
			return bad("float %s does not fit into 64 bits", w)
		}
	case tomlDate.MatchString(w):
		return bad("%s is a date or time, which this program doesn't read: write it in quotes", w)
	case strings.IndexByte("+-.0123456789_", w[0]) >= 0:
		return bad("%q is no number that this program reads: numbers are decimal, without inf and nan", w)
	default:
		return bad("%q is no value: text is written in quotes", w)
	}
	return nil
}

// word takes everything up to a blank or a mark that ends a value.
func (p *tomlParser) word() string {
	from := p.off
	for !p.eof() && strings.IndexByte(" \t\n,]}#[{=\"'", p.peek()) < 0 {
		p.next()
	}
	return p.src[from:p.off]
}
