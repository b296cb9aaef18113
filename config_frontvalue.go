package main

// The values of front matter: plain, quoted and block scalars, lists in both spellings, null. Pure: lines in, one
// frontField out; config_frontmatter.go calls value for each key and knows what the keys are. A value that isn't understood
// must never come out as another one: it has `bad` set, and the reader still stands on the first line after it.

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// frontField is the value of one key.
type frontField struct {
	line  int    // of the key, in the file
	text  string // a scalar; null is ""
	items []string
	list  bool
	colon bool   // a plain scalar with ": " in it, which YAML forbids and many files have
	bad   string // why the value can't be used
	open  string // what was opened in it and never closed: where it ends is anyone's guess
}

// frontKey finds `key:`; the first ": " or ":" at the line's end ends the key.
var frontKey = regexp.MustCompile(`^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'#&*!|>%@\x60\[\]{},?:-](?:[^:]|:[^\s:])*?)[ \t]*:(?:[ \t]+(.*))?$`)

// frontReader walks over the lines between the --- lines.
type frontReader struct {
	lines []string
	at    int // the line looked at
	first int // the file's number of lines[0]
}

// peek goes on to the next line that is neither blank nor a comment.
func (r *frontReader) peek() (string, bool) {
	for ; r.at < len(r.lines); r.at++ {
		if t := strings.TrimLeft(r.lines[r.at], " \t"); t != "" && t[0] != '#' {
			return r.lines[r.at], true
		}
	}
	return "", false
}

// value reads what follows `key:` on the line at r.at, and goes on to the line after the value.
func (r *frontReader) value(f *frontField, rest string) {
	r.at++
	if rest == "" || rest[0] == '#' {
		next, ok := r.peek()
		t := strings.TrimSpace(next)
		switch {
		case ok && isListItem(t) && next[0] != '\t':
			r.blockList(f)
			return
		case ok && next[0] == '\t':
			r.skipIndented()
			f.bad = "a tab can't indent: use blanks"
			return
		case !ok || indentOf(next) == 0:
			return // null
		case frontKey.MatchString(t):
			r.skipIndented()
			f.bad = "it is a map, not text"
			return
		}
		rest = t
		r.at++
	}
	switch rest[0] {
	case '|', '>':
		r.blockScalar(f, rest)
	case '"', '\'':
		r.quoted(f, rest)
	case '[', '{':
		r.flow(f, rest)
	case '&', '*', '!':
		f.bad = "YAML's anchors, aliases and tags aren't understood: quote the value"
	case '%', '@', '`', ',', ']', '}':
		f.bad = "a value can't begin with " + strconv.Quote(rest[:1]) + ": quote it"
	default:
		if isListItem(rest) || rest == "?" || strings.HasPrefix(rest, "? ") || strings.HasPrefix(rest, ": ") {
			f.bad = "a value can't begin with " + strconv.Quote(rest[:min(2, len(rest))]) + ": quote it"
			break
		}
		r.plain(f, rest)
	}
	if r.skipIndented() && f.bad == "" {
		f.bad = "more lines follow that don't belong to its value: quote it, or write it as a block (|)"
	}
}

// skipIndented passes the lines that belong to a key and weren't read, and tells whether there were any.
func (r *frontReader) skipIndented() bool {
	any := false
	for {
		l, ok := r.peek()
		if !ok || indentOf(l) == 0 && l[0] != '\t' {
			return any
		}
		any = true
		r.at++
	}
}

// plain reads an unquoted scalar: it goes on over indented lines, and a comment ends it.
func (r *frontReader) plain(f *frontField, rest string) {
	text, comment := cutComment(rest)
	f.colon = hasColon(text)
	var out strings.Builder
	out.WriteString(text)
	for blank := 0; !comment; {
		i := r.at + blank
		if i >= len(r.lines) {
			break
		}
		l := strings.Trim(r.lines[i], " \t")
		if l == "" {
			blank++
			continue
		}
		if indentOf(r.lines[i]) == 0 || l[0] == '#' {
			break
		}
		l, comment = cutComment(l)
		out.WriteString(fold(blank) + l)
		f.colon = f.colon || hasColon(l)
		r.at, blank = i+1, 0
	}
	if f.text = out.String(); f.text == "~" || strings.EqualFold(f.text, "null") {
		f.text = ""
	}
}

// fold is what one line break and the blank lines after it become.
func fold(blank int) string {
	if blank == 0 {
		return " "
	}
	return strings.Repeat("\n", blank)
}

// quoted reads a 'single' or "double" quoted scalar, over as many lines as it takes.
func (r *frontReader) quoted(f *frontField, rest string) {
	q, l, start := rest[0], rest[1:], r.at
	var out bytes.Buffer
	keep := 0 // blanks after this are trimmed where a line ends
	for {
		escapedEnd := false
		for len(l) > 0 {
			switch {
			case l[0] == q && q == '\'' && strings.HasPrefix(l, "''"):
				out.WriteByte('\'')
				l = l[2:]
			case l[0] == q:
				if tail := l[1:]; strings.TrimSpace(tail) != "" && !isComment(tail) {
					f.bad = "text follows the closing quote: quote the whole value, with inner quotes escaped"
				}
				f.text = out.String()
				return
			case l[0] == '\\' && q == '"' && len(l) == 1:
				escapedEnd, l = true, ""
			case l[0] == '\\' && q == '"':
				n := unescape(&out, l)
				if n == 0 {
					f.bad = "the escape " + strconv.Quote(string([]rune(l)[:min(2, utf8.RuneCountInString(l))])) + " isn't understood"
					n = 1
				}
				l = l[n:]
				keep = out.Len()
				continue
			default:
				out.WriteByte(l[0])
				blank := l[0] == ' ' || l[0] == '\t'
				l = l[1:]
				if blank {
					continue
				}
			}
			keep = out.Len()
		}
		breaks := 0
		for r.at < len(r.lines) && strings.TrimSpace(r.lines[r.at]) == "" {
			breaks++
			r.at++
		}
		if r.at >= len(r.lines) {
			r.unclosed(f, "a quote", start)
			return
		}
		l = strings.TrimLeft(r.lines[r.at], " \t")
		r.at++
		if escapedEnd { // joined without a blank; \ keeps the blanks before it
			out.WriteString(strings.Repeat("\n", breaks))
		} else {
			out.Truncate(keep)
			out.WriteString(fold(breaks))
		}
		keep = out.Len()
	}
}

// unclosed gives up on a value whose end wasn't found: the lines after its first are read as if it ended there.
func (r *frontReader) unclosed(f *frontField, what string, start int) {
	f.bad, f.open = what+" is opened and never closed", what
	r.at = start
}

// flow reads [a, 'b', "c"]. A list in a list and a map are passed over.
func (r *frontReader) flow(f *frontField, rest string) {
	start, depth, l := r.at, 0, rest
	var item strings.Builder
	flush := func() {
		if t := strings.TrimSpace(item.String()); t != "" {
			f.items = append(f.items, t)
		}
		item.Reset()
	}
	for {
		if l == "" {
			if r.at >= len(r.lines) {
				r.unclosed(f, "a bracket", start)
				return
			}
			l = " " + strings.TrimSpace(r.lines[r.at]) // at a line's end stands a blank
			r.at++
		}
		fresh := item.Len() == 0
		switch c := l[0]; {
		case fresh && (c == ' ' || c == '\t'):
		case fresh && (c == '"' || c == '\''):
			n, text := quotedItem(l)
			if n == 0 {
				r.unclosed(f, "a quote", start)
				return
			}
			item.WriteString(text)
			if l = l[n:]; l != "" && !strings.ContainsRune(" \t,]}", rune(l[0])) {
				f.bad = "text follows a closing quote in its list"
			}
			continue
		case c == '#' && (item.Len() == 0 || strings.HasSuffix(item.String(), " ")):
			l = ""
			continue
		case c == '[' || c == '{':
			if depth++; depth > 1 || c == '{' {
				f.bad = "a map, or a list in a list, is not what this key takes"
			}
		case c == ']' || c == '}':
			flush()
			if depth--; depth == 0 {
				if tail := l[1:]; strings.TrimSpace(tail) != "" && !isComment(tail) {
					f.bad = "text follows the closing bracket: quote the value"
				}
				f.list = true
				return
			}
		case c == ',':
			flush()
		case c == ':' && hasColon(l[:min(len(l), 2)]) && f.bad == "":
			f.bad = "its list holds more than plain text"
		default:
			item.WriteByte(c)
		}
		l = l[1:]
	}
}

// quotedItem reads a quoted item that ends on its line: the bytes it takes (0: it doesn't end there) and its text.
func quotedItem(l string) (int, string) {
	var out bytes.Buffer
	for i := 1; i < len(l); i++ {
		switch {
		case l[i] == '\\' && l[0] == '"':
			n := unescape(&out, l[i:])
			if n == 0 {
				return 0, ""
			}
			i += n - 1
		case l[i] == l[0] && l[0] == '\'' && strings.HasPrefix(l[i:], "''"):
			out.WriteByte('\'')
			i++
		case l[i] == l[0]:
			return i + 1, out.String()
		default:
			out.WriteByte(l[i])
		}
	}
	return 0, ""
}

// blockList reads `- a` lines; they may stand under their key without indentation.
func (r *frontReader) blockList(f *frontField) {
	f.list = true
	first, _ := r.peek()
	n := indentOf(first)
	for {
		l, ok := r.peek()
		if !ok || indentOf(l) != n || !isListItem(l[n:]) {
			if r.skipIndented() {
				f.bad = "its list holds more than plain text"
			}
			return
		}
		r.at++
		item := strings.TrimSpace(l[n+1:])
		switch {
		case item == "" || item[0] == '#':
		case item[0] == '"' || item[0] == '\'':
			used, text := quotedItem(item)
			if used == 0 {
				f.bad, f.open = "a quote is opened and never closed in its list", "a quote"
			} else if strings.TrimSpace(item[used:]) != "" && !isComment(item[used:]) {
				f.bad = "an item of its list isn't understood"
			}
			f.items = append(f.items, text)
		default:
			text, _ := cutComment(item)
			if hasColon(text) || isListItem(text) || strings.ContainsRune("[{&*!|>%@`", rune(text[0])) {
				f.bad = "its list holds more than plain text"
			}
			f.items = append(f.items, text)
		}
	}
}

// blockScalar reads | and >, with - or + and an indentation digit.
func (r *frontReader) blockScalar(f *frontField, head string) {
	head, _ = cutComment(head)
	folded, chomp, n := head[0] == '>', byte(0), 0
	for _, c := range []byte(head[1:]) {
		switch {
		case (c == '-' || c == '+') && chomp == 0:
			chomp = c
		case '1' <= c && c <= '9' && n == 0:
			n = int(c - '0')
		default:
			f.bad = "the block's head " + strconv.Quote(head) + " isn't understood"
		}
	}
	var block []string
	deepest := 0 // of the blank lines above the first with text
	for ; r.at < len(r.lines); r.at++ {
		l := r.lines[r.at]
		if blank := strings.Trim(l, " ") == ""; blank && (n == 0 || len(l) <= n) {
			if block = append(block, ""); n == 0 {
				deepest = max(deepest, len(l))
			}
			continue
		}
		if n == 0 {
			if n = indentOf(l); deepest > n {
				f.bad = "a blank line above its text is indented deeper than the text"
			}
		}
		if n == 0 || indentOf(l) < n {
			break
		}
		block = append(block, l[n:])
	}
	last := len(block)
	for last > 0 && block[last-1] == "" {
		last--
	}
	var out strings.Builder
	for i, l := range block[:last] {
		out.WriteString(l)
		if i == last-1 {
			break
		}
		// Folding: a break between two ordinary lines is a blank; beside a blank or indented line it stays.
		if folded && foldsInto(block[:last], i) {
			if block[i+1] != "" {
				out.WriteByte(' ')
			}
			continue
		}
		out.WriteByte('\n')
	}
	switch {
	case chomp == '+':
		out.WriteString(strings.Repeat("\n", len(block)-last+min(last, 1)))
	case chomp == 0 && last > 0:
		out.WriteByte('\n')
	}
	f.text = out.String()
}

// foldsInto tells whether the break after block[i] is taken away by folding: it follows an ordinary line, and the next
// line with text is an ordinary one.
func foldsInto(block []string, i int) bool {
	ordinary := func(l string) bool { return l != "" && l[0] != ' ' && l[0] != '\t' }
	if !ordinary(block[i]) {
		return false
	}
	for _, l := range block[i+1:] {
		if l != "" {
			return ordinary(l)
		}
	}
	return false
}

// unescape writes what the escape at the start of l stands for, and returns its length; 0 if it is none.
func unescape(out *bytes.Buffer, l string) int {
	if len(l) < 2 {
		return 0
	}
	const from, to = "0abtnvfre\"/\\ N_LP\t", "\x00\a\b\t\n\v\f\r\x1b\"/\\ \u0085\u00a0\u2028\u2029\t"
	if i := strings.IndexByte(from, l[1]); i >= 0 {
		out.WriteRune([]rune(to)[i])
		return 2
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[l[1]]
	if digits == 0 || len(l) < 2+digits {
		return 0
	}
	n, err := strconv.ParseUint(l[2:2+digits], 16, 32)
	if err != nil || n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		return 0
	}
	out.WriteRune(rune(n))
	return 2 + digits
}

func (r *frontReader) line() int { return r.first + r.at }

func indentOf(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }

func isListItem(l string) bool { return l == "-" || strings.HasPrefix(l, "- ") }

// isComment is asked of what follows a closed value: a comment needs a blank before it.
func isComment(tail string) bool {
	t := strings.TrimLeft(tail, " \t")
	return len(t) < len(tail) && strings.HasPrefix(t, "#")
}

func cutComment(l string) (text string, comment bool) {
	for i := 1; i < len(l); i++ {
		if l[i] == '#' && (l[i-1] == ' ' || l[i-1] == '\t') {
			return strings.TrimRight(l[:i], " \t"), true
		}
	}
	return strings.TrimRight(l, " \t"), false
}

func hasColon(l string) bool {
	return strings.Contains(l, ": ") || strings.Contains(l, ":\t") || strings.HasSuffix(l, ":")
}
