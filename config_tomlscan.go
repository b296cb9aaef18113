package main

// The letters of TOML: a cursor over a checked document that reads blanks, keys, strings and numbers.
// Only config_toml.go uses it. It knows nothing of tables; every error it gives has the line and column of what is wrong.
// newTOMLScanner refuses what may stand nowhere in a document (bytes that are no UTF-8, control characters, a
// carriage return alone), so nothing after it has to think of them, and peek's 0 can only mean the end.

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	tomlDecimal = regexp.MustCompile(`^[+-]?(0|[1-9](_?[0-9])*)$`)
	tomlReal    = regexp.MustCompile(`^[+-]?(0|[1-9](_?[0-9])*)(\.[0-9](_?[0-9])*)?([eE][+-]?[0-9](_?[0-9])*)?$`)
	tomlDate    = regexp.MustCompile(`^([0-9]+-[0-9]+-|[0-9]+:)`)
)

// A tomlKey is one part of a key and where it begins.
type tomlKey struct {
	name      string
	line, col int
}

type tomlScanner struct {
	name      string
	src       string // valid UTF-8, newlines are "\n", no other control character but tab
	off       int
	line, col int
}

// newTOMLScanner checks the document's characters. A byte order mark at the start is left out.
func newTOMLScanner(name string, data []byte) (*tomlScanner, error) {
	src := strings.TrimPrefix(string(data), "\ufeff")
	s := &tomlScanner{name: name, src: src, line: 1, col: 1}
	for i, r := range src {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(src[i:], "\ufffd"):
			return nil, s.errorf("byte 0x%02X is not UTF-8", src[i])
		case r == '\r' && !strings.HasPrefix(src[i:], "\r\n"):
			return nil, s.errorf("a carriage return must be followed by a line feed")
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return nil, s.errorf("control character U+%04X is not allowed, write \\u%04X in a string", r, r)
		}
		if s.col++; r == '\n' {
			s.line, s.col = s.line+1, 1
		}
	}
	s.src = strings.ReplaceAll(src, "\r\n", "\n")
	s.line, s.col = 1, 1
	return s, nil
}

func (s *tomlScanner) errorf(format string, args ...any) error {
	return s.errorAt(s.line, s.col, format, args...)
}

func (s *tomlScanner) errorAt(line, col int, format string, args ...any) error {
	return &tomlError{s.name, line, col, fmt.Sprintf(format, args...)}
}

func (s *tomlScanner) eof() bool { return s.off >= len(s.src) }

// peek returns the next byte, 0 at the end.
func (s *tomlScanner) peek() byte {
	if s.eof() {
		return 0
	}
	return s.src[s.off]
}

// next steps over one byte. Columns count characters, so only a character's last byte moves the column.
func (s *tomlScanner) next() {
	c := s.src[s.off]
	s.off++
	switch {
	case c == '\n':
		s.line++
		s.col = 1
	case s.off == len(s.src) || utf8.RuneStart(s.src[s.off]):
		s.col++
	}
}

// take steps over text when it is what comes next. text has no newline.
func (s *tomlScanner) take(text string) bool {
	if !strings.HasPrefix(s.src[s.off:], text) {
		return false
	}
	for range len(text) {
		s.next()
	}
	return true
}

// here names what comes next, for an error.
func (s *tomlScanner) here() string {
	switch {
	case s.eof():
		return "the end of the file"
	case s.peek() == '\n':
		return "the end of the line"
	}
	r, _ := utf8.DecodeRuneInString(s.src[s.off:])
	return strconv.QuoteRune(r)
}

func (s *tomlScanner) spaces() {
	for s.peek() == ' ' || s.peek() == '\t' {
		s.next()
	}
}

// skipLines steps over blanks, newlines and comments.
func (s *tomlScanner) skipLines() {
	for {
		switch s.peek() {
		case ' ', '\t', '\n':
			s.next()
		case '#':
			s.comment()
		default:
			return
		}
	}
}

func (s *tomlScanner) comment() {
	for !s.eof() && s.peek() != '\n' {
		s.next()
	}
}

// endLine wants nothing more on this line but a comment.
func (s *tomlScanner) endLine() error {
	s.spaces()
	if s.peek() == '#' {
		s.comment()
	}
	if !s.eof() && s.peek() != '\n' {
		return s.errorf("the line should end here, but %s follows", s.here())
	}
	return nil
}

// key reads a.'b'."c", one or more parts.
func (s *tomlScanner) key() ([]tomlKey, error) {
	var keys []tomlKey
	for {
		k := tomlKey{line: s.line, col: s.col}
		if c := s.peek(); c == '"' || c == '\'' {
			var err error
			if k.name, err = s.text(false); err != nil {
				return nil, err
			}
		} else {
			from := s.off
			for tomlBare(s.peek()) {
				s.next()
			}
			if k.name = s.src[from:s.off]; k.name == "" {
				return nil, s.errorf("a key is wanted here, not %s", s.here())
			}
		}
		if keys = append(keys, k); len(keys) > tomlMaxDepth {
			return nil, s.errorAt(k.line, k.col, "a key has at most %d parts", tomlMaxDepth)
		}
		end := *s
		s.spaces()
		if !s.take(".") {
			*s = end // blanks after the key are the caller's
			return keys, nil
		}
		s.spaces()
	}
}

func tomlBare(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// text reads a quoted string; lines tells whether the three-quote forms are allowed (they are not as keys).
func (s *tomlScanner) text(lines bool) (string, error) {
	line, col := s.line, s.col
	quote := string(s.peek())
	s.next()
	long := lines && strings.HasPrefix(s.src[s.off:], quote+quote)
	if long {
		s.take(quote + quote)
		if s.peek() == '\n' { // right after the opening quotes a newline doesn't count
			s.next()
		}
	}
	var b strings.Builder
	for {
		c := s.peek()
		switch {
		case s.eof() || c == '\n' && !long:
			return "", s.errorAt(line, col, "the string that begins here is not closed before %s", s.here())
		case string(c) == quote && !long:
			s.next()
			return b.String(), nil
		case string(c) == quote && strings.HasPrefix(s.src[s.off:], quote+quote+quote):
			s.take(quote + quote + quote)
			// One or two quotes may stand right before the closing three.
			for range 2 {
				if s.take(quote) {
					b.WriteString(quote)
				}
			}
			return b.String(), nil
		case c == '\\' && quote == `"`:
			if err := s.escape(&b, long); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			s.next()
		}
	}
}

// escape reads what follows a backslash.
func (s *tomlScanner) escape(b *strings.Builder, long bool) error {
	line, col := s.line, s.col
	s.next()
	if long {
		// A backslash that ends its line swallows all blanks and newlines up to the next text.
		at := *s
		if s.spaces(); s.peek() == '\n' {
			for s.peek() == ' ' || s.peek() == '\t' || s.peek() == '\n' {
				s.next()
			}
			return nil
		}
		*s = at
	}
	c := s.peek()
	digits := 0
	switch c {
	case 'b':
		b.WriteByte('\b')
	case 't':
		b.WriteByte('\t')
	case 'n':
		b.WriteByte('\n')
	case 'f':
		b.WriteByte('\f')
	case 'r':
		b.WriteByte('\r')
	case '"', '\\':
		b.WriteByte(c)
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return s.errorAt(line, col, "%s after a backslash is no escape of TOML 1.0 (there are \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX \\UXXXXXXXX; in '…' a backslash is itself)", s.here())
	}
	s.next()
	if digits == 0 {
		return nil
	}
	n := 0
	for range digits {
		d := hexDigit(s.peek())
		if d < 0 {
			return s.errorAt(line, col, "\\%c wants %d hexadecimal digits", c, digits)
		}
		n = n<<4 | d
		s.next()
	}
	if n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		return s.errorAt(line, col, "U+%04X is no character (surrogates and what is above U+10FFFF are not)", n)
	}
	b.WriteRune(rune(n))
	return nil
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// scalar reads a number or a boolean into v.
func (s *tomlScanner) scalar(v *tomlValue) error {
	w := s.word()
	bad := func(format string, args ...any) error { return s.errorAt(v.line, v.col, format, args...) }
	clean := strings.ReplaceAll(w, "_", "")
	var err error
	switch {
	case w == "":
		return s.errorf("a value is wanted here, not %s", s.here())
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
func (s *tomlScanner) word() string {
	from := s.off
	for !s.eof() && strings.IndexByte(" \t\n,]}#[{=\"'", s.peek()) < 0 {
		s.next()
	}
	return s.src[from:s.off]
}
