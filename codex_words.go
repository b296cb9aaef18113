package main

// codex_words.go owns the splitting of the command lines that app-server gives
// as one string (`/bin/bash -lc '…'`) into the words that an elicitation
// carries (argv arrays can't be had otherwise). It is pure. What it can't split
// it leaves whole; nothing is ever run from it.

import (
	"path"
	"strings"
)

// shellWords splits like a POSIX shell, without expansions. An unbalanced
// line is one word.
func shellWords(line string) []string {
	var words []string
	var w strings.Builder
	in := false // inside a word, be it an empty one
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\n':
			if in {
				words = append(words, w.String())
				w.Reset()
				in = false
			}
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return []string{line}
			}
			w.WriteString(line[i+1 : i+1+end])
			i += end + 1
			in = true
		case '"':
			closed := false
			for i++; i < len(line) && !closed; i++ {
				switch {
				case line[i] == '"':
					closed = true
					i--
				case line[i] == '\\' && i+1 < len(line) && strings.IndexByte("\"\\$`\n", line[i+1]) >= 0:
					i++
					w.WriteByte(line[i])
				default:
					w.WriteByte(line[i])
				}
			}
			if !closed {
				return []string{line}
			}
			in = true
		case '\\':
			if i+1 == len(line) {
				return []string{line}
			}
			i++
			w.WriteByte(line[i])
			in = true
		default:
			w.WriteByte(c)
			in = true
		}
	}
	if in {
		words = append(words, w.String())
	}
	return words
}

// shownCommand takes the shell around a command off: what a person wants to
// read of `/bin/bash -lc 'go test'` is `go test`. Never for an approval, whose
// exact words count.
func shownCommand(line string) string {
	words := shellWords(line)
	if len(words) == 3 && (words[1] == "-lc" || words[1] == "-c") {
		switch path.Base(words[0]) {
		case "bash", "sh", "zsh", "dash":
			return words[2]
		}
	}
	return line
}
