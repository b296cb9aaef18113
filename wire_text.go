package main

// wire_text.go owns the texts that are shown or logged: cutting what may be too long for where it goes, writing out
// what can't be seen, and finding the word that a mistyped one most likely means. Everybody may call it.
// It must never leave half a character where a result is shown or encoded as JSON.

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// clip cuts s to its first line and at most n characters.
func clip(s string, n int) string {
	if i := strings.IndexAny(s, "\r\n"); i >= 0 {
		s = s[:i] + " …"
	}
	return clipChars(s, n)
}

// clipChars cuts s to at most n characters, the last of which tells that s was cut.
func clipChars(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	i := 0
	for range n - 1 {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return s[:i] + "…"
}

// clipUTF8 cuts s to at most n bytes without cutting a character in two. It clones the rest: a substring would keep a
// prompt or an answer of megabytes alive.
func clipUTF8(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for range utf8.UTFMax - 1 { // what has no beginning of a character in so many bytes is no UTF-8: cut anywhere
		if n == 0 || utf8.RuneStart(s[n]) {
			break
		}
		n--
	}
	return strings.Clone(s[:n])
}

// cutMiddle keeps both ends of a text that is longer than limit bytes: what it
// is about stands at the start, what came of it at the end.
func cutMiddle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return joinEnds(s[:limit/2], s[len(s)-limit/2:], len(s))
}

// joinEnds joins the ends of a text of total bytes, cutting no character in two.
func joinEnds(head, tail string, total int) string {
	for n := 1; n < utf8.UTFMax && n <= len(head); n++ {
		if i := len(head) - n; utf8.RuneStart(head[i]) {
			if !utf8.FullRuneInString(head[i:]) {
				head = head[:i]
			}
			break
		}
	}
	for n := 0; n < utf8.UTFMax && tail != "" && !utf8.RuneStart(tail[0]); n++ {
		tail = tail[1:]
	}
	left := total - len(head) - len(tail)
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", strings.TrimSuffix(head, "\n"), left, tail)
}

// oneLine has one blank for each run of white space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// cutName shortens a name for an error message.
func cutName(s string) string { return clipChars(s, 40) }

// nearest returns the word of a list that a mistyped word most likely means, "" when none is near.
func nearest(word string, of []string) string {
	best, least := "", 1+max(1, min(utf8.RuneCountInString(word), 24)/3)
	if len(word) > 256 {
		return ""
	}
	w := []rune(strings.ToLower(word))
	for _, o := range of {
		if d := editDistance(w, []rune(strings.ToLower(o))); d < least {
			best, least = o, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours.
func editDistance(a, b []rune) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// didYouMean ends an error message with the nearest word, or with nothing.
func didYouMean(word string, of []string) string {
	if n := nearest(word, of); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// visible writes out what can't be seen or turns what stands beside it around: a title is what a person approves.
func visible(s string) string {
	hidden := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch high, low := utf16.EncodeRune(r); {
		case !hidden(r):
			b.WriteRune(r)
		case high != utf8.RuneError:
			fmt.Fprintf(&b, "\\u%04x\\u%04x", high, low)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// counted is a number of things, in English.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// quoteFact is a JSON string on one line, in which nothing can look like a tag, a line's end or another character than
// it is; null for nil (FR-2.4).
func quoteFact(s *string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: marshalling a string: " + err.Error())
	}
	return visible(string(text))
}
