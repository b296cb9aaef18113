package main

// The YAML that stands between two --- lines at the head of an agent file: one map of text, lists of text, and things
// nobody here needs. Pure: text in, fields out; config_agentfile.go is its only caller and decides which fields count.
// It must never misread: a value it doesn't understand carries the reason in `bad`, a field that might stand inside
// something unfinished does too, and a file whose head only looks like front matter is all body.

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const maxFrontMatter = 64 << 10

// glued finds `key:value`, which is no pair in YAML but was surely meant as one.
var glued = regexp.MustCompile(`^([A-Za-z_][\w-]*):\S`)

// decorated finds a key behind an anchor, a tag or a question mark.
var decorated = regexp.MustCompile(`^[&!?]\S*[ \t]+([\w-]+|"[^"\\]*"|'[^']*')[ \t]*(?::|$)`)

// parseFrontMatter splits a document (\n line ends) into the fields of its head and its body. known tells which keys
// the caller looks at: an unclosed head is an error only if it would hold one of them.
func parseFrontMatter(doc string, known func(key string) bool) (fields map[string]frontField, body string, err error) {
	lines := strings.Split(doc, "\n")
	if strings.TrimRight(lines[0], " \t") != "---" {
		return nil, doc, nil
	}
	end := 1
	for end < len(lines) && strings.TrimRight(lines[end], " \t") != "---" {
		end++
	}
	closed := end < len(lines)
	s := frontScanner{frontReader: frontReader{lines: lines[1:end], first: 2}, fields: map[string]frontField{}}
	if err := s.dedent(); err != nil {
		if !closed {
			return nil, doc, nil
		}
		return nil, "", err
	}
	first, _ := s.peek()
	switch m := frontKey.FindStringSubmatch(first); {
	case strings.HasPrefix(first, "{") && closed:
		return nil, "", fmt.Errorf("line %d: front matter in braces isn't understood: write one `key: value` a line", s.line())
	case m != nil && (closed || known(unquoteKey(m[1]))):
	case m == nil && closed && (first == "" || gluedTo(first, known)):
	default: // a rule (---) in a text, not front matter
		return nil, doc, nil
	}
	if !closed {
		return nil, "", errors.New("line 1: the front matter is never closed: end it with a line ---")
	}
	if n := len(strings.Join(lines[1:end], "\n")); n > maxFrontMatter {
		return nil, "", fmt.Errorf("line 1: the front matter has %d bytes, the limit is %d KiB: move the prompt below it", n, maxFrontMatter>>10)
	}
	s.scan(known)
	return s.fields, strings.Join(lines[end+1:], "\n"), nil
}

// frontScanner walks over the lines of the head.
type frontScanner struct {
	frontReader
	fields map[string]frontField
	last   string // the key before the line looked at
	doubt  string // set once something was opened and never closed: why later fields can't be trusted
}

// dedent takes away the indentation of a map that is indented as a whole.
func (s *frontScanner) dedent() error {
	first, _ := s.peek()
	s.at = 0
	n := indentOf(first)
	if n == 0 {
		_, _ = s.peek()
		return nil
	}
	for i, l := range s.lines {
		switch {
		case indentOf(l) >= n:
			s.lines[i] = l[n:]
		case strings.TrimSpace(l) == "" || strings.HasPrefix(strings.TrimSpace(l), "#"):
			s.lines[i] = strings.TrimSpace(l)
		default:
			return fmt.Errorf("line %d: the front matter begins indented by %d, and this line is not", s.first+i, n)
		}
	}
	_, _ = s.peek()
	return nil
}

func (s *frontScanner) scan(known func(string) bool) {
	for {
		l, ok := s.peek()
		if !ok {
			return
		}
		m := frontKey.FindStringSubmatch(l)
		if m == nil {
			if g := glued.FindStringSubmatch(l); g != nil && known(g[1]) {
				s.set(g[1], frontField{line: s.line(), bad: "a blank is missing after the colon"})
			} else if d := decorated.FindStringSubmatch(l); d != nil {
				s.set(unquoteKey(d[1]), frontField{line: s.line(), bad: "YAML's anchors, tags and ? before a key aren't understood"})
			} else {
				s.spoil(fmt.Sprintf("line %d after it is no `key: value`", s.line()))
			}
			s.at++
			continue
		}
		f := frontField{line: s.line()}
		if s.doubt != "" { // not read at all: looking for the end of each would take forever in a file made for it
			f.bad = s.doubt
			s.at++
			s.skipIndented()
		} else if s.value(&f, strings.TrimRight(m[2], " \t")); f.open != "" {
			s.doubt = fmt.Sprintf("%s opened on line %d is never closed and may hold it", f.open, f.line)
		}
		s.set(unquoteKey(m[1]), f)
	}
}

func (s *frontScanner) set(key string, f frontField) {
	if was, twice := s.fields[key]; twice {
		f.bad = fmt.Sprintf("it is given twice, first on line %d", was.line)
	}
	s.fields[key], s.last = f, key
}

// spoil marks the field before a line that can't be placed: it may have been meant to go on there.
func (s *frontScanner) spoil(why string) {
	if f, ok := s.fields[s.last]; ok && f.bad == "" {
		f.bad = why
		s.fields[s.last] = f
	}
}

func gluedTo(l string, known func(string) bool) bool {
	g := glued.FindStringSubmatch(l)
	return g != nil && known(g[1])
}

func unquoteKey(k string) string {
	if k[0] == '"' || k[0] == '\'' {
		_, text := quotedItem(k)
		return text
	}
	return k
}
