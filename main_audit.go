package main

// main_audit.go owns `atm-agent-mcp audit` (FR-9.3): who did what, out of the team's audit trail, for a person or a
// script. main.go calls it. What the lines hold is registry_audit.go's. It only reads, without any lock: a process that
// appends or rotates meanwhile is neither delayed nor waited for.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// auditLine is an entry and its line as it stands in the file: --json passes on what a newer version has written too.
type auditLine struct {
	auditEntry
	raw json.RawMessage
}

func runAudit(_ context.Context, c *commandCall) int {
	since, err := readSince(c.flags["since"], time.Now())
	if err != nil {
		return c.refuse(err.Error())
	}
	cfg, code := c.config(c.flags.teamOnly(), "")
	if code != 0 {
		return code
	}
	lines, code := c.findAudit(cfg, since)
	s := newScreen(c.stdout, os.Getenv)
	if c.flags["json"] == "true" {
		entries := make([]json.RawMessage, len(lines))
		for i, l := range lines {
			entries[i] = l.raw
		}
		return max(code, c.printJSON(s, struct {
			Team    string            `json:"team"`
			Entries []json.RawMessage `json:"entries"`
		}{cfg.team, entries}))
	}
	if len(lines) > 0 {
		showAudit(s, lines)
	}
	return code
}

// findAudit returns the entries that are asked for, and the exit code. What can't be
// read, and why there are none, is told on stderr.
func (c *commandCall) findAudit(cfg *config, since time.Time) (lines []auditLine, code int) {
	agent, identity := c.flags["agent"], c.flags["identity"]
	// what there is, for the hint where nothing is found
	entries, agents, identities := 0, map[string]bool{}, map[string]bool{}
	bad, err := eachAuditLine(cfg.auditFile(), func(l auditLine) {
		entries++
		agents[l.AgentID], identities[l.Identity] = true, true
		if (agent == "" || l.AgentID == agent || l.Thread == agent) &&
			(identity == "" || strings.EqualFold(l.Identity, identity)) && !l.Time.Before(since) {
			lines = append(lines, l)
		}
	})
	if err != nil {
		code = c.fail(err.Error(), "")
	}
	if bad > 0 {
		complain(c.stderr, fmt.Sprintf("warning: %s of %s can't be read", counted(bad, "line"), cfg.auditFile()), "")
	}
	switch {
	case len(lines) > 0 || err != nil:
	case entries > 0:
		complain(c.stderr, fmt.Sprintf("none of the audit trail of team %q (lines: %d) is what was asked for",
			cfg.team, entries), cmp.Or(c.meantFilter("identity", slices.Sorted(maps.Keys(identities))),
			c.meantFilter("agent", slices.Sorted(maps.Keys(agents)))))
	default:
		hint := ""
		if !cfg.persistThreads {
			hint = "persist_threads is off: then the audit trail goes to the log"
		}
		complain(c.stderr, fmt.Sprintf("no audit trail in team %q (by %s)", cfg.team, cfg.teamFrom), hint)
	}
	return lines, code
}

// readSince reads a time, or an age such as 90m, 24h or 7d.
func readSince(word string, now time.Time) (time.Time, error) {
	if word == "" {
		return time.Time{}, nil
	}
	if t := parseMailTime(word); !t.IsZero() {
		return t, nil
	}
	if days, ok := strings.CutSuffix(word, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	} else if age, err := time.ParseDuration(word); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	return time.Time{}, fmt.Errorf("--since wants a time such as 2026-11-21T09:00:00Z, or an age such as 90m, 24h or "+
		"7d, not %q", cutName(word))
}

const maxAuditRead = 64 << 20 // of a file; of a longer one the last lines

// eachAuditLine calls f with every entry, oldest first, and counts the lines that are none. What one of the two files
// is wrong with keeps nobody from the other. The newer file is opened first: if another process rotates in between, it
// is found a second time under the older one's name.
func eachAuditLine(path string, f func(auditLine)) (bad int, err error) {
	var files []*os.File
	for _, p := range []string{path, path + ".1"} {
		file, err2 := openRegular(p)
		if err2 == nil {
			defer file.Close()
			files = append(files, file)
		} else if !errors.Is(err2, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("reading the audit trail: %w", err2))
		}
	}
	if len(files) == 2 {
		a, err1 := files[0].Stat()
		b, err2 := files[1].Stat()
		if err1 == nil && err2 == nil && os.SameFile(a, b) {
			files = files[:1]
		}
	}
	for _, file := range slices.Backward(files) {
		n, err2 := readAuditFile(file, f)
		bad += n
		if err2 != nil {
			err = errors.Join(err, fmt.Errorf("reading the audit trail: %w", err2))
		}
	}
	return bad, err
}

func readAuditFile(file *os.File, f func(auditLine)) (bad int, err error) {
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	from := max(0, st.Size()-maxAuditRead)
	text, err := io.ReadAll(io.NewSectionReader(file, from, st.Size()-from))
	if from > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n")) // the first line was cut
	}
	for raw := range bytes.SplitSeq(text, []byte("\n")) {
		if raw = bytes.TrimSpace(raw); len(raw) == 0 {
			continue
		}
		// A process with the ancestor's names has written its own. In a text the quotes have a backslash.
		l := auditLine{raw: bytes.Replace(raw, []byte(`"codex_id":`), []byte(`"agent_id":`), 1)}
		if json.Unmarshal(l.raw, &l.auditEntry) == nil {
			f(l)
		} else {
			bad++
		}
	}
	return bad, err
}

// showAudit prints the entries: for a person what happened, for a pipe the columns that the help promises.
func showAudit(s screen, lines []auditLine) {
	var rows [][]cell
	for _, l := range lines {
		if !s.terminal {
			rows = append(rows, plainCells(l.Time.UTC().Format(time.RFC3339Nano), l.Event, l.AgentID, l.Identity,
				l.Recipient, l.Decision, l.Correlation, l.Summary, l.Detail))
			continue
		}
		what := l.Summary
		if what == "" || strings.HasPrefix(l.Detail, "refused") {
			what = strings.TrimSpace(l.Detail + " " + l.Summary)
		}
		how := inGreen
		if l.Decision == deny.String() {
			how = inRed
		}
		rows = append(rows, []cell{{s.when(l.Time), inDim}, {l.Event, ""}, {l.Decision, how},
			{cmp.Or(l.Identity, l.AgentID), ""}, {l.Recipient, ""}, {what, ""}})
	}
	s.table([]string{"WHEN", "EVENT", "", "WHO", "TO", "WHAT"}, rows)
}
