package main

// main_audit.go owns `atm-agent-mcp audit` (FR-9.3): who did what, out of the
// team's audit trail, for a person or a script. main.go calls it. What the
// lines hold is registry_audit.go's. It only reads, without any lock: a process that
// appends or rotates meanwhile is neither delayed nor waited for.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// auditAsk is the command line.
type auditAsk struct {
	agent, identity, since string
	json                   bool
	fl                     flagValues
}

func auditFlagSet(ask *auditAsk) *flag.FlagSet {
	set := flag.NewFlagSet("audit", flag.ContinueOnError)
	set.StringVar(&ask.agent, "agent", "", "")
	set.StringVar(&ask.identity, "identity", "", "")
	set.StringVar(&ask.since, "since", "", "")
	set.BoolVar(&ask.json, "json", false, "")
	set.Func("team", "", func(s string) error { ask.fl.team = &s; return nil })
	return set
}

// auditLine is an entry and its line as it stands in the file: --json passes
// on what a newer version has written too.
type auditLine struct {
	auditEntry
	raw json.RawMessage
}

func runAudit(args []string, stdout, stderr io.Writer) int {
	var ask auditAsk
	if code, done := parseFlags(auditFlagSet(&ask), usageOf("audit"), args, stdout, stderr); done {
		return code
	}
	since, err := readSince(ask.since, time.Now())
	if err != nil {
		complain(stderr, err.Error(), "atm-agent-mcp help audit lists the flags")
		return 2
	}
	cfg, code := configFor("audit", "", ask.fl, stderr)
	if code != 0 {
		return code
	}
	lines, code := ask.find(cfg, since, stderr)
	s := newScreen(stdout, os.Getenv)
	if ask.json {
		entries := make([]json.RawMessage, len(lines))
		for i, l := range lines {
			entries[i] = l.raw
		}
		return max(code, printJSON(s, struct {
			Team    string            `json:"team"`
			Entries []json.RawMessage `json:"entries"`
		}{cfg.team, entries}, stderr))
	}
	if len(lines) > 0 {
		showAudit(s, lines)
	}
	return code
}

// find returns the entries that are asked for, and the exit code. What can't be
// read, and why there are none, is told on stderr.
func (ask *auditAsk) find(cfg *config, since time.Time, stderr io.Writer) (lines []auditLine, code int) {
	seen := auditSeen{}
	bad, err := eachAuditLine(cfg.auditFile(), func(l auditLine) {
		seen.note(l)
		if ask.wants(l, since) {
			l.raw = slices.Clone(l.raw)
			lines = append(lines, l)
		}
	})
	if err != nil {
		complain(stderr, err.Error(), "")
		code = 1
	}
	if bad > 0 {
		complain(stderr, fmt.Sprintf("warning: %s of %s can't be read", counted(bad, "line"), cfg.auditFile()), "")
	}
	if len(lines) == 0 && err == nil {
		ask.nothing(seen, cfg, stderr)
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
	return time.Time{}, fmt.Errorf("--since wants a time such as 2026-11-21T09:00:00Z, or an age such as 90m, 24h or 7d, not %q", cutName(word))
}

func (ask *auditAsk) wants(l auditLine, since time.Time) bool {
	return (ask.agent == "" || l.AgentID == ask.agent || l.Thread == ask.agent) &&
		(ask.identity == "" || strings.EqualFold(l.Identity, ask.identity)) &&
		!l.Time.Before(since)
}

const (
	maxAuditRead = 64 << 20 // of a file; of a longer one the last lines
	maxAuditLine = 256 << 10
)

// eachAuditLine calls f with every entry, oldest first, and counts the lines
// that are none. What one of the two files is wrong with keeps nobody from the
// other. The newer file is opened first: if another process rotates in between,
// it is found a second time under the older one's name.
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
	r := bufio.NewReaderSize(io.NewSectionReader(file, from, st.Size()-from), maxAuditLine)
	skip := from > 0 // to the end of a line that is too long, or that was cut
	for {
		raw, err := r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if raw = bytes.TrimSpace(raw); !skip && len(raw) > 0 {
			l := auditLine{raw: raw}
			if !long && json.Unmarshal(raw, &l.auditEntry) == nil {
				f(l)
			} else {
				bad++
			}
		}
		switch skip = long; {
		case errors.Is(err, io.EOF):
			return bad, nil
		case err != nil && !long:
			return bad, err
		}
	}
}

// auditSeen is who is in the trail, to say what was meant where nothing is found.
type auditSeen struct {
	entries            int
	agents, identities []string
}

func (a *auditSeen) note(l auditLine) {
	a.entries++
	for _, x := range []struct {
		word string
		into *[]string
	}{{l.AgentID, &a.agents}, {l.Identity, &a.identities}} {
		if x.word != "" && !slices.Contains(*x.into, x.word) && len(*x.into) < 1000 {
			*x.into = append(*x.into, x.word)
		}
	}
}

// nothing says on stderr why there is nothing to show.
func (ask *auditAsk) nothing(seen auditSeen, cfg *config, stderr io.Writer) {
	what, hint := fmt.Sprintf("no audit trail in team %q (by %s)", cfg.team, cfg.teamFrom), ""
	switch {
	case seen.entries > 0:
		what = fmt.Sprintf("none of the audit trail of team %q (lines: %d) is what was asked for", cfg.team, seen.entries)
		if near := nearest(ask.identity, seen.identities); near != "" && !strings.EqualFold(near, ask.identity) {
			hint = fmt.Sprintf("did you mean --identity %s?", near)
		} else if near := nearest(ask.agent, seen.agents); near != "" && near != ask.agent {
			hint = fmt.Sprintf("did you mean --agent %s?", near)
		}
	case !cfg.persistThreads:
		hint = "persist_threads is off: then the audit trail goes to the log"
	}
	complain(stderr, what, hint)
}

// showAudit prints the entries: for a person what happened, for a pipe the
// columns that the help promises.
func showAudit(s screen, lines []auditLine) {
	var rows [][]cell
	for _, l := range lines {
		if !s.terminal {
			rows = append(rows, []cell{{text: l.Time.UTC().Format(time.RFC3339Nano)}, {text: l.Event}, {text: l.AgentID}, {text: l.Identity}, {text: l.Recipient},
				{text: l.Decision}, {text: l.Correlation}, {text: l.Summary}, {text: l.Detail}})
			continue
		}
		who := l.Identity
		if who == "" {
			who = l.AgentID
		}
		what := l.Summary
		if what == "" || strings.HasPrefix(l.Detail, "refused") {
			what = strings.TrimSpace(l.Detail + " " + l.Summary)
		}
		rows = append(rows, []cell{{s.when(l.Time), inDim}, {l.Event, ""}, {l.Decision, decisionColor(l)}, {who, ""}, {l.Recipient, ""}, {what, ""}})
	}
	s.table([]string{"WHEN", "EVENT", "", "WHO", "TO", "WHAT"}, rows)
}

func decisionColor(l auditLine) string {
	if l.Decision == deny.String() {
		return inRed
	}
	return inGreen
}
