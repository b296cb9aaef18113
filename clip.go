package main

// clip.go owns the cutting of texts that may be too long for where they go:
// records, log lines, messages, tables. Everybody may call it. It must never
// leave half a character where the result is shown or encoded as JSON.

import (
	"strings"
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
