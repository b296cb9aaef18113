package main

// acp_diff.go owns patches on their way to a client: Codex tells the hunks of
// a file, a client wants its whole text before and after. acp_item.go calls it
// as a patch begins. It reads the files that a patch names, regular ones only
// and no more than a megabyte of each, and must never write any nor wait for
// one; where a file doesn't fit, the hunks' own text has to do.

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxDiffFile = 1 << 20 // of a file, to be shown whole
	maxDiffs    = 4 << 20 // of all texts of a patch: the rest is told, not shown
)

// patchHunk is one hunk of a unified diff.
type patchHunk struct {
	oldAt, newAt int // line numbers, from 1
	lines        []patchLine
}

// patchLine is one line of a hunk, with the line end it has in the file.
type patchLine struct {
	op   byte // ' ', '-' or '+'
	text string
}

// readPatch reads the hunks of one file. What stands between them is left out:
// headers, and what Codex writes behind the diff of a file that moves.
func readPatch(diff string) []patchHunk {
	var hunks []patchHunk
	var h *patchHunk
	olds, news := 0, 0 // lines that the header promised and that are still to come
	ends := func() {
		if h != nil && (olds != 0 || news != 0) { // not what its head says: it fits no file
			h.oldAt, h.newAt = -1, -1
		}
	}
	for line := range strings.Lines(diff) {
		op := line[0]
		switch {
		case h != nil && op == '\\': // no newline at the end of the line before
			if n := len(h.lines); n > 0 {
				h.lines[n-1].text = strings.TrimSuffix(h.lines[n-1].text, "\n")
			}
			continue
		case strings.HasPrefix(line, "@@"):
			ends()
			at, ok := hunkHead(line)
			if !ok { // as in the patches that models write: it fits no file and goes on to the next head
				at = [4]int{-1, math.MaxInt32, -1, math.MaxInt32}
			}
			hunks = append(hunks, patchHunk{oldAt: at[0], newAt: at[2]})
			h, olds, news = &hunks[len(hunks)-1], at[1], at[3]
			continue
		case h == nil, olds <= 0 && news <= 0:
			continue
		case op == '\n' || op == '\r': // a blank line of context that lost its blank
			line = " " + line
			op = ' '
		}
		switch op {
		case ' ':
			olds, news = olds-1, news-1
		case '-':
			olds--
		case '+':
			news--
		default: // no line of a hunk: what follows can't be trusted
			ends()
			h = nil
			continue
		}
		if !strings.HasSuffix(line, "\n") { // the diff's own last line
			line += "\n"
		}
		h.lines = append(h.lines, patchLine{op, line[1:]})
	}
	ends()
	return hunks
}

// side are the lines of a hunk before (but = '+') or after (but = '-').
func (h *patchHunk) side(but byte) []string {
	var out []string
	for _, l := range h.lines {
		if l.op != but {
			out = append(out, l.text)
		}
	}
	return out
}

// patched is a file's text with the hunks applied, or taken back out of it;
// false where it isn't the text they were made for.
func patched(text string, hunks []patchHunk, back bool) (string, bool) {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	var out strings.Builder
	done := 0 // lines of the text that are dealt with
	for i := range hunks {
		h := &hunks[i]
		at, from, to := h.oldAt, h.side('+'), h.side('-')
		if back {
			at, from, to = h.newAt, to, from
		}
		if len(from) > 0 {
			at-- // a hunk that takes nothing stands behind the line it names
		}
		if at < done || at+len(from) > len(lines) {
			return "", false
		}
		out.WriteString(strings.Join(lines[done:at], ""))
		if done = at + len(from); !slices.Equal(lines[at:done], from) {
			return "", false
		}
		out.WriteString(strings.Join(to, ""))
	}
	out.WriteString(strings.Join(lines[done:], ""))
	return out.String(), len(hunks) > 0
}

// hunkTexts are the hunks' own texts, before and after.
func hunkTexts(hunks []patchHunk) (before, after string) {
	var b, a strings.Builder
	for i := range hunks {
		b.WriteString(strings.Join(hunks[i].side('+'), ""))
		a.WriteString(strings.Join(hunks[i].side('-'), ""))
	}
	return b.String(), a.String()
}

// acpPatch makes the diff blocks of one patch.
type acpPatch struct {
	live    bool // the files are now what they were for Codex
	applied bool // Codex has written them already, as far as we know
	blocks  []json.RawMessage
	size    int
	left    int // files that are told but not shown
}

// add makes one file's block. path is absolute, where the file is afterwards.
func (p *acpPatch) add(c fileChange, path, from string, hunks []patchHunk) {
	var before *string
	after := ""
	switch c.kind {
	case "add":
		after = c.diff
	case "delete":
		before = &c.diff
	default:
		b, a, ok := p.whole(path, from, hunks)
		if !ok {
			b, a = hunkTexts(hunks)
		}
		before, after = &b, a
	}
	size := p.size + len(after) + len(deref(before))
	if size > maxDiffs {
		p.left++
		return
	}
	p.size = size
	p.blocks = append(p.blocks, toJSON(struct {
		Type string  `json:"type"`
		Path string  `json:"path"`
		Old  *string `json:"oldText"`
		New  string  `json:"newText"`
	}{"diff", path, before, after}))
}

// whole is a changed file's text before and after. Codex may have been faster
// than we are: then the file has the hunks already.
func (p *acpPatch) whole(path, from string, hunks []patchHunk) (before, after string, ok bool) {
	if !p.live || p.size > maxDiffs/2 {
		return "", "", false
	}
	for _, back := range []bool{p.applied, !p.applied} {
		file := from
		if back {
			file = path
		}
		data, err := readRegular(file, maxDiffFile)
		if err != nil || !utf8.Valid(data) {
			continue // it can't be shown
		}
		text := string(data)
		other, ok := patched(text, hunks, back)
		switch {
		case len(hunks) == 0: // it only moves
			return text, text, true
		case ok && back:
			return other, text, true
		case ok:
			return text, other, true
		}
	}
	return "", "", false
}
