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

// A tomlPlace is where something stands. Lines and columns count from 1, columns in characters.
type tomlPlace struct{ line, col int }

// A tomlValue is one value, with the place it was written at.
type tomlValue struct {
	val      any       // a string, int64, float64, bool, []*tomlValue or *tomlTable
	at       tomlPlace // where the value begins; of a table, where its name stands
	key      tomlPlace // where the value's key begins; zero in an array
	ofTables bool      // the array was made by [[name]], so that another [[name]] may append to it
}

// kind names a value the way an error message wants it: "wants a string, not an integer".
func (v *tomlValue) kind() string {
	switch v.val.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case []*tomlValue:
		return "an array"
	}
	return "a table"
}

// table is the value's table, nil (an empty table) for no value and for one of another kind.
func (v *tomlValue) table() *tomlTable {
	if v == nil {
		return nil
	}
	t, _ := v.val.(*tomlTable)
	return t
}

// tables are the tables in a value: itself, or those of an array at any depth.
func (v *tomlValue) tables() []*tomlTable {
	if t := v.table(); t != nil {
		return []*tomlTable{t}
	}
	var all []*tomlTable
	list, _ := v.val.([]*tomlValue)
	for _, e := range list {
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

func (t *tomlTable) put(key tomlKey, v *tomlValue) {
	v.key = key.at
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
	switch val := v.val.(type) {
	case *tomlTable:
		return val.plain()
	case []*tomlValue:
		list := make([]any, len(val))
		for i, e := range val {
			list[i] = e.plain()
		}
		return list
	}
	return v.val
}

// tomlError is what a document is refused with.
type tomlError struct {
	name string
	tomlPlace
	what string
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
	name    string // the file's, for errors
	src     string // valid UTF-8, newlines are "\n", no other control character but tab
	off     int    // of the next byte of src
	counted int    // at is the place of this byte of src, which is not behind off
	at      tomlPlace
	root    *tomlTable
	body    *tomlTable // the table that plain key lines go to
}

// parseTOML reads a whole document; name is the file's, for errors.
func parseTOML(name string, data []byte) (*tomlTable, error) {
	p := &tomlParser{name: name, src: strings.TrimPrefix(string(data), "\ufeff"), at: tomlPlace{1, 1},
		root: newTOMLTable(tomlHeaded)}
	p.body = p.root
	err := p.check()
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

// check refuses what may stand nowhere in a document (bytes that are no UTF-8, control characters, a carriage return
// alone), so that nothing after it has to think of them, and peek's 0 can only mean the end.
func (p *tomlParser) check() error {
	for i, r := range p.src {
		rest := p.src[i:]
		p.off = i
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(rest, "\ufffd"):
			return p.errorf("byte 0x%02X is not UTF-8", rest[0])
		case r == '\r' && !strings.HasPrefix(rest, "\r\n"):
			return p.errorf("a carriage return must be followed by a line feed")
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return p.errorf("control character U+%04X is not allowed, write \\u%04X in a string", r, r)
		}
	}
	p.src, p.off = strings.ReplaceAll(p.src, "\r\n", "\n"), 0
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
		made := newTOMLTable(how)
		t.put(key, &tomlValue{val: made, at: key.at})
		return made, nil
	}
	if list, _ := v.val.([]*tomlValue); v.ofTables && how == tomlImplied {
		return list[len(list)-1].table(), nil
	}
	there := v.table()
	switch {
	case there == nil || there.origin == tomlInline:
		return nil, p.closedError(key, v)
	case how == tomlImplied:
		return there, nil
	case how == tomlHeaded && there.origin != tomlImplied:
		return nil, p.errorAt(key.at, "table %q is already defined at line %d", key.name, v.key.line)
	case how == tomlDotted && there.origin == tomlHeaded:
		return nil, p.errorAt(key.at, "table %q has its own header at line %d: write this key below that", key.name,
			v.key.line)
	}
	there.origin = how
	return there, nil
}

// element appends a table to the array that [[header]] names.
func (p *tomlParser) element(t *tomlTable, key tomlKey) (*tomlTable, error) {
	v := t.get(key.name)
	if v == nil {
		v = &tomlValue{ofTables: true, at: key.at}
		t.put(key, v)
	}
	if !v.ofTables {
		return nil, p.closedError(key, v)
	}
	made := newTOMLTable(tomlHeaded)
	list, _ := v.val.([]*tomlValue)
	v.val = append(list, &tomlValue{val: made, at: key.at})
	return made, nil
}

// closedError is the error for a key that is set to what no header and no dotted key may add to.
func (p *tomlParser) closedError(key tomlKey, v *tomlValue) error {
	what := v.kind()
	switch t := v.table(); {
	case t != nil && t.origin == tomlInline:
		what = "an inline table, which is complete where it closes"
	case v.ofTables:
		what = "an array of tables, written [[" + key.name + "]]"
	case what == "an array":
		what = "an array of values, which no header can add to"
	}
	return p.errorAt(key.at, "key %q is already set at line %d and is %s", key.name, v.key.line, what)
}

// pair reads key = value into t; depth counts the values around the pair.
func (p *tomlParser) pair(t *tomlTable, depth int) error {
	keys, err := p.key()
	if err != nil {
		return err
	}
	last := keys[len(keys)-1]
	if p.spaces(); !p.take("=") {
		return p.errorf("key %q wants \"=\" here, not %s", last.name, p.here())
	}
	p.spaces()
	for _, key := range keys[:len(keys)-1] {
		if t, err = p.sub(t, key, tomlDotted); err != nil {
			return err
		}
	}
	if old := t.get(last.name); old != nil {
		return p.errorAt(last.at, "key %q is already set at line %d", last.name, old.key.line)
	}
	v, err := p.value(depth)
	if err != nil {
		return err
	}
	t.put(last, v)
	return nil
}

func (p *tomlParser) value(depth int) (v *tomlValue, err error) {
	if depth >= tomlMaxDepth {
		return nil, p.errorf("values are nested deeper than %d", tomlMaxDepth)
	}
	v = &tomlValue{at: p.place()}
	switch p.peek() {
	case '[':
		v.val, err = p.array(v.at, depth)
	case '{':
		v.val, err = p.inline(depth)
	case '"', '\'':
		v.val, err = p.text(true)
	default:
		v.val, err = p.scalar(v.at)
	}
	return v, err
}

// array reads [ … ]: newlines, comments and a last comma are allowed.
func (p *tomlParser) array(at tomlPlace, depth int) (list []*tomlValue, err error) {
	p.take("[")
	for {
		if p.skipLines(); p.take("]") {
			return list, nil
		}
		if p.eof() {
			return nil, p.errorAt(at, "the array that begins here is never closed with \"]\"")
		}
		e, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if p.skipLines(); !p.take(",") && p.peek() != ']' && !p.eof() {
			return nil, p.errorf("the array wants \",\" or \"]\" here, not %s", p.here())
		}
	}
}

// inline reads { … } on one line, without a last comma (TOML 1.0).
func (p *tomlParser) inline(depth int) (*tomlTable, error) {
	t := newTOMLTable(tomlInline)
	p.take("{")
	if p.spaces(); p.take("}") {
		return t, nil
	}
	for {
		if err := p.pair(t, depth+1); err != nil {
			return nil, err
		}
		if p.spaces(); p.take("}") {
			return t, nil
		}
		if !p.take(",") {
			return nil, p.errorf("the inline table, which stands on one line, wants \",\" or \"}\" here, not %s",
				p.here())
		}
		if p.spaces(); p.peek() == '}' {
			return nil, p.errorf("an inline table has no comma before its \"}\" in TOML 1.0")
		}
	}
}

// A tomlKey is one part of a key and where it begins.
type tomlKey struct {
	name string
	at   tomlPlace
}

// place is where the next byte stands. It is counted on from the place that was asked for last: a document may be one
// long line.
func (p *tomlParser) place() tomlPlace {
	passed := p.src[p.counted:p.off]
	if end := strings.LastIndexByte(passed, '\n'); end >= 0 {
		p.at = tomlPlace{p.at.line + strings.Count(passed, "\n"), 1}
		passed = passed[end+1:]
	}
	p.at.col += utf8.RuneCountInString(passed)
	p.counted = p.off
	return p.at
}

func (p *tomlParser) errorf(format string, args ...any) error {
	return p.errorAt(p.place(), format, args...)
}

func (p *tomlParser) errorAt(at tomlPlace, format string, args ...any) error {
	return &tomlError{p.name, at, fmt.Sprintf(format, args...)}
}

func (p *tomlParser) eof() bool { return p.off >= len(p.src) }

// peek returns the next byte, 0 at the end.
func (p *tomlParser) peek() byte {
	if p.eof() {
		return 0
	}
	return p.src[p.off]
}

// take steps over text where text comes next, and tells whether it does.
func (p *tomlParser) take(text string) bool {
	found := strings.HasPrefix(p.src[p.off:], text)
	if found {
		p.off += len(text)
	}
	return found
}

// skip steps over all of these characters that come next.
func (p *tomlParser) skip(chars string) {
	p.off = len(p.src) - len(strings.TrimLeft(p.src[p.off:], chars))
}

// until takes everything up to one of these characters, or to the end.
func (p *tomlParser) until(chars string) string {
	from := p.off
	if n := strings.IndexAny(p.src[from:], chars); n >= 0 {
		p.off += n
	} else {
		p.off = len(p.src)
	}
	return p.src[from:p.off]
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

func (p *tomlParser) spaces() { p.skip(" \t") }

// skipLines steps over blanks, newlines and comments.
func (p *tomlParser) skipLines() {
	for p.skip(" \t\n"); p.peek() == '#'; p.skip(" \t\n") {
		p.until("\n")
	}
}

// endLine wants nothing more on this line but a comment.
func (p *tomlParser) endLine() error {
	if p.spaces(); p.peek() == '#' {
		p.until("\n")
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
		k := tomlKey{at: p.place()}
		if c := p.peek(); c == '"' || c == '\'' {
			var err error
			if k.name, err = p.text(false); err != nil {
				return nil, err
			}
		} else {
			from := p.off
			for tomlBare(p.peek()) {
				p.off++
			}
			if k.name = p.src[from:p.off]; k.name == "" {
				return nil, p.errorf("a key is wanted here, not %s", p.here())
			}
		}
		if keys = append(keys, k); len(keys) > tomlMaxDepth {
			return nil, p.errorAt(k.at, "a key has at most %d parts", tomlMaxDepth)
		}
		end := p.off
		p.spaces()
		if !p.take(".") {
			p.off = end // blanks after the key are the caller's
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
	began, quote := p.place(), p.src[p.off:p.off+1]
	end := quote
	if three := strings.Repeat(quote, 3); lines && strings.HasPrefix(p.src[p.off:], three) {
		end = three
	}
	if p.take(end); len(end) == 3 {
		p.take("\n") // right after the opening quotes a newline doesn't count
	}
	stops := quote + "\n"
	if quote == `"` {
		stops += `\`
	}
	var b strings.Builder
	for {
		b.WriteString(p.until(stops))
		switch c := p.peek(); {
		case p.eof() || c == '\n' && len(end) == 1:
			return "", p.errorAt(began, "the string that begins here is not closed before %s", p.here())
		case p.take(end):
			for range len(end) - 1 { // one or two quotes may stand right before the closing three
				if p.take(quote) {
					b.WriteString(quote)
				}
			}
			return b.String(), nil
		case c == '\\':
			text, err := p.escape(len(end) == 3)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		default:
			b.WriteByte(c)
			p.off++
		}
	}
}

// escape reads a backslash and what belongs to it.
func (p *tomlParser) escape(long bool) (string, error) {
	began := p.place()
	p.off++
	if rest := strings.TrimLeft(p.src[p.off:], " \t"); long && strings.HasPrefix(rest, "\n") {
		p.skip(" \t\n") // a backslash that ends its line swallows all up to the next text
		return "", nil
	}
	c := p.peek()
	if simple := strings.IndexByte(`btnfr"\`, c); simple >= 0 {
		p.off++
		return "\b\t\n\f\r\"\\"[simple : simple+1], nil
	}
	digits := map[byte]int{'u': 4, 'U': 8}[c]
	if digits == 0 {
		return "", p.errorAt(began, "%s after a backslash is no escape of TOML 1.0 (there are \\b \\t \\n \\f \\r "+
			"\\\" \\\\ \\uXXXX \\UXXXXXXXX; in '…' a backslash is itself)", p.here())
	}
	p.off++
	hex := p.src[p.off:min(p.off+digits, len(p.src))]
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || len(hex) < digits {
		return "", p.errorAt(began, "\\%c wants %d hexadecimal digits", c, digits)
	}
	if n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		return "", p.errorAt(began, "U+%04X is no character (surrogates and what is above U+10FFFF are not)", n)
	}
	p.off += digits
	return string(rune(n)), nil
}

// scalar reads what is no text and no list: a boolean or a number.
func (p *tomlParser) scalar(at tomlPlace) (any, error) {
	w := p.until(" \t\n,]}#[{=\"'")
	bad := func(format string, args ...any) (any, error) { return nil, p.errorAt(at, format, args...) }
	clean := strings.ReplaceAll(w, "_", "")
	switch {
	case w == "":
		return bad("a value is wanted here, not %s", p.here())
	case w == "true" || w == "false":
		return w == "true", nil
	case tomlDecimal.MatchString(w):
		n, err := strconv.ParseInt(clean, 10, 64)
		if err != nil {
			return bad("integer %s does not fit into 64 bits", w)
		}
		return n, nil
	case tomlReal.MatchString(w):
		f, err := strconv.ParseFloat(clean, 64)
		if err != nil {
			return bad("float %s does not fit into 64 bits", w)
		}
		return f, nil
	case tomlDate.MatchString(w):
		return bad("%s is a date or time, which this program doesn't read: write it in quotes", w)
	case strings.IndexByte("+-.0123456789_", w[0]) >= 0:
		return bad("%q is no number that this program reads: numbers are decimal, without inf and nan", w)
	}
	return bad("%q is no value: text is written in quotes", w)
}
