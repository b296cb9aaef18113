package main

// main_summary.go owns `atm-agent-mcp summary <agent-id>` (FR-13.6): the summary
// that a session wrote as it ended, or the digest that its record keeps.
// main.go calls it. It reads and changes nothing.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func summaryFlagSet(fl *flagValues) *flag.FlagSet {
	set := flag.NewFlagSet("summary", flag.ContinueOnError)
	set.Func("team", "", func(s string) error { fl.team = &s; return nil })
	return set
}

func runSummary(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var fl flagValues
	got, code, done := parseArgs(summaryFlagSet(&fl), usageOf("summary"), 1, args, stdout, stderr)
	if done {
		return code
	}
	if len(got) == 0 || got[0] == "" {
		complain(stderr, "summary wants an agent id", "atm-agent-mcp sessions lists them")
		return 2
	}
	cfg, reg, code := openRecords("summary", fl, false, stderr)
	if code != 0 {
		return code
	}
	defer closeRecords(ctx, reg)
	rows, err := readRows(reg)
	if err != nil {
		complain(stderr, err.Error(), "")
		return 1
	}
	row, hint := findRow(rows, got[0])
	if row == nil {
		complain(stderr, fmt.Sprintf("no session of team %q has the id %q", cfg.team, got[0]), hint)
		return 1
	}
	text, from, err := summaryOf(cfg, row)
	if err != nil {
		complain(stderr, err.Error(), "")
		return 1
	}
	if text == "" {
		complain(stderr, fmt.Sprintf("session %s has neither a summary nor a turn that ended", row.AgentID), "")
		return 1
	}
	s := newScreen(stdout, os.Getenv)
	if s.terminal {
		s.line("%s  %s  %s", s.paint(inBold, row.AgentID), printable(row.Identity), s.paint(statusColor(row.Status), row.statusText(true)))
		s.line("%s\n", s.paint(inDim, clipChars(printable(fmt.Sprintf("%s, %s, last active %s; %s", row.where(), counted(row.Turns, "turn"), s.when(row.LastActive), from)), s.width)))
	}
	s.line("%s", s.text(strings.TrimRight(text, "\n")))
	return 0
}

// findRow finds a session by its agent id, or by the thread id that is accepted
// wherever that is; else it says what was likely meant.
func findRow(rows []sessionRow, ref string) (row *sessionRow, hint string) {
	var ids []string
	for i, r := range rows {
		if r.AgentID == ref || r.ThreadID == ref {
			return &rows[i], ""
		}
		ids = append(ids, suffixOf(r.AgentID))
	}
	for _, r := range rows { // newest first
		if strings.EqualFold(r.Identity, ref) {
			return nil, fmt.Sprintf("%q is an identity; the newest session of it is %s", ref, r.AgentID)
		}
	}
	if near := nearest(strings.TrimPrefix(ref, agentIDPrefix), ids); near != "" {
		return nil, fmt.Sprintf("did you mean %s?", agentIDPrefix+near)
	}
	return nil, "atm-agent-mcp sessions lists them"
}

// summaryOf is the text, and where it is from.
func summaryOf(cfg *config, row *sessionRow) (text, from string, err error) {
	if dir := row.rec.SummaryDir; dir != "" && filepath.IsLocal(dir) {
		data, err := readRegular(filepath.Join(cfg.sessionsRoot, dir, "summary.md"), maxSummaryBytes)
		switch {
		case err == nil && strings.TrimSpace(string(data)) != "":
			return string(data), "its summary", nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", "", fmt.Errorf("reading the summary of %s: %w", row.AgentID, err)
		}
	}
	d := row.rec.Digest
	return digestText(d.LastPrompt, d.LastAnswer, d.TouchedFiles), "it wrote no summary, this is its digest", nil
}
