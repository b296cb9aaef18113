package main

// acp_patch.go owns how a patch looks in ACP. Codex tells the hunks, and a client wants each file's whole text before
// and after: so the files that a patch names are read as it begins, regular ones only and no more than a megabyte of
// each; none is written or waited for, and where a file doesn't fit, the hunks' own text has to do. acp_item.go has its
// row.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxDiffFile = 1 << 20 // of a file, to be shown whole
	maxDiffs    = 4 << 20 // of all texts of a patch: the rest is told, not shown
	maxHunks    = 100     // of a file, to be shown each for itself
)

// patchFace reads the files, unless the patch is long past.
func (n *acpNames) patchFace(i *acpItem) acpFace {
	f := acpFace{name: "apply_patch"}
	p := acpPatch{live: !i.past, applied: i.done}
	var verbs, names []string
	size := 0
	for _, c := range i.files {
		size += len(c.diff)
		from := n.absolute(c.path, i.cwd)
		to := from
		if c.move != "" {
			to = n.absolute(c.move, i.cwd)
		}
		if !filepath.IsAbs(to) {
			continue
		}
		verb, name := "Edit", n.short(to)
		var hunks []patchHunk
		switch {
		case c.kind == "add":
			verb = "Create"
		case c.kind == "delete":
			verb = "Delete"
		default:
			hunks = readPatch(c.diff)
			if c.move != "" {
				verb, name = "Move", n.short(from)+" → "+name
			}
		}
		verbs, names = append(verbs, verb), append(names, name)
		p.add(c, to, from, hunks)
	}
	verb := "Edit"
	if all := slices.Compact(verbs); len(all) == 1 {
		verb = all[0]
	}
	f.title, f.kind = verb+" ", map[string]string{"Delete": "delete", "Move": "move"}[verb]
	f.kind = cmp.Or(f.kind, "edit")
	switch {
	case len(names) == 0:
		f.title += "files"
	case len(names) == 1:
		f.title += names[0]
	case len(names) <= 4:
		f.title += fmt.Sprintf("%d files: %s", len(names), strings.Join(names, ", "))
	default:
		f.title += fmt.Sprintf("%d files: %s, …", len(names), strings.Join(names[:3], ", "))
	}
	f.content, f.places = p.blocks, p.places
	if p.left > 0 {
		left := fmt.Sprintf("%d more files are changed that are too long to be shown.", p.left)
		f.content = append(f.content, callText(left))
	}
	f.input = patchInput(i.files, size <= maxACPText/2)
	return f
}

// patchInput is what Codex was told to change; diffs that are shown anyway are repeated only if they are short.
func patchInput(files []fileChange, diffs bool) json.RawMessage {
	type change struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
		Move string `json:"movePath,omitempty"`
		Diff string `json:"diff,omitempty"`
	}
	list := make([]change, len(files))
	for i, c := range files {
		list[i] = change{c.path, c.kind, c.move, c.diff}
		if !diffs {
			list[i].Diff = ""
		}
	}
	return clientJSON(toJSON(map[string]any{"changes": list}))
}

// patchEnd: 0.104 tells what the patch tool printed.
func patchEnd(_ *acpNames, i *acpItem) (content []json.RawMessage, output json.RawMessage) {
	if i.status != "" {
		output = toJSON(map[string]string{"status": i.status})
	}
	return addText(nil, i.printed), output
}

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

// acpPatch makes the diff blocks of one patch, with their places.
type acpPatch struct {
	live    bool // the files are now what they were for Codex
	applied bool // Codex has written them already, as far as we know
	blocks  []json.RawMessage
	places  []acpLocation
	size    int
	left    int // files that are told but not shown
}

// add shows one file: in one block where its whole text is known, else in a block for each hunk. path is absolute,
// where the file is afterwards.
func (p *acpPatch) add(c fileChange, path, from string, hunks []patchHunk) {
	switch c.kind {
	case "add":
		p.show(path, nil, nil, c.diff)
		return
	case "delete":
		p.show(path, nil, &c.diff, "")
		return
	}
	before, after, ok := p.whole(path, from, hunks)
	if !ok {
		before, after = hunkTexts(hunks)
	}
	if ok || len(hunks) == 0 || len(hunks) > maxHunks || p.size+len(before)+len(after) > maxDiffs {
		p.show(path, hunks[:min(1, len(hunks))], &before, after)
		return
	}
	for i := range hunks {
		before, after := hunkTexts(hunks[i : i+1])
		p.show(path, hunks[i:i+1], &before, after)
	}
}

// show makes one block and its place, at the line of the hunk that it begins with.
func (p *acpPatch) show(path string, first []patchHunk, before *string, after string) {
	at := acpLocation{Path: path}
	if len(first) > 0 {
		at.Line = max(0, first[0].newAt)
	}
	if !slices.Contains(p.places, at) {
		p.places = append(p.places, at)
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
