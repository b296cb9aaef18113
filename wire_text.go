package main

// wire_text.go owns the cutting of texts that may be too long for where they go:
// records, log lines, messages, tables; and the word that a mistyped one most
// likely means. Everybody may call it. It must never leave half a character
// where the result is shown or encoded as JSON.

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clip cuts s to at most n characters on one line.
func clip(s string, n int) string {
	if i := strings.IndexAny(s, "\r\n"); i >= 0 {
		s = s[:i] + " …"
	}
	return clipChars(s, n)
}

// clipChars cuts to n characters, the last of which tells that it was cut.
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

// clipUTF8 cuts to at most n bytes without cutting a character in two. Like
// clipBytes it clones: a digest must not keep an answer of megabytes alive.
func clipUTF8(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// clipBytes cuts to n bytes, whatever character that hits: for what is cut again
// or only logged. It clones, since a substring would keep all of a 60 KB prompt
// alive as long as the rest.
func clipBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}

// cutMiddle keeps both ends of a text that is longer than limit bytes: what it
// is about stands at the start, what came of it at the end.
func cutMiddle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head, tail := limit/2, len(s)-limit/2
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", s[:head], tail-head, s[tail:])
}

// shorten keeps the first n characters of s, and tells if that is not all. What
// comes from others may be no UTF-8, which JSON can't hold.
func shorten(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	for i := range s {
		if n == 0 {
			return s[:i] + "…"
		}
		n--
	}
	return s
}

// oneLine has one blank for each run of white space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// cutName shortens a name for an error message.
func cutName(s string) string {
	const most = 40
	for i := range s {
		if i >= most {
			return s[:i] + "…"
		}
	}
	return s
}

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

// visible writes out what can't be seen or turns what stands beside it around:
// a title is what a person approves.
func visible(s string) string {
	hidden := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
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
