package main

// main_sessions.go owns `atm-agent-mcp sessions` (FR-13.5), what the team's records say, for a person or a script, and the
// removal of those that are over; and `atm-agent-mcp summary <agent-id>` (FR-13.6), the summary that a session wrote
// as it ended, or the digest that its record keeps. main.go calls it.
// Marks nothing and locks nobody out: a session of a dead process is shown as stale, not rewritten; a running one is
// never removed.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// closeLimit is how long a command waits for the disk at its end.
const closeLimit = 5 * time.Second

// sessionRow is a session as this command tells it.
type sessionRow struct {
	AgentID     string    `json:"agent_id"`
	Backend     string    `json:"backend"`    // FR-5.2
	BackendID   string    `json:"backend_id"` // the same as thread_id
	Identity    string    `json:"identity"`
	Team        string    `json:"team"`
	Status      string    `json:"status"` // stale: of a process that died
	Interrupted bool      `json:"interrupted"`
	PID         int       `json:"pid,omitempty"` // of the process that holds it now
	RepoName    *string   `json:"repo_name"`
	RepoRoot    *string   `json:"repo_root"`
	Branch      *string   `json:"branch"`
	CWD         string    `json:"cwd"`
	StartedAt   time.Time `json:"started_at"`
	LastActive  time.Time `json:"last_active_at"`
	Turns       int       `json:"turns"`
	Tag         string    `json:"tag,omitempty"`
	Role        string    `json:"role,omitempty"`
	BackendKind string    `json:"backend_kind,omitempty"`
	ThreadID    string    `json:"thread_id"`
	Resumable   bool      `json:"resumable"`
	LastPrompt  string    `json:"last_prompt,omitempty"`
	LastError   string    `json:"last_error,omitempty"`

	rec record
}

// sessionsAsk is the command line.
type sessionsAsk struct {
	repo, identity string
	json, prune    bool
	fl             flagValues
}

func sessionsFlagSet(ask *sessionsAsk) *flag.FlagSet {
	set := flag.NewFlagSet("sessions", flag.ContinueOnError)
	set.StringVar(&ask.repo, "repo", "", "")
	set.StringVar(&ask.identity, "identity", "", "")
	set.BoolVar(&ask.json, "json", false, "")
	set.BoolVar(&ask.prune, "prune", false, "")
	set.Func("team", "", func(s string) error { ask.fl.team = &s; return nil })
	return set
}

func runSessions(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var ask sessionsAsk
	if code, done := parseFlags(sessionsFlagSet(&ask), usageOf("sessions"), args, stdout, stderr); done {
		return code
	}
	cfg, reg, all, code := openRecords(ctx, "sessions", ask.fl, ask.prune, stderr)
	if code != 0 {
		return code
	}
	defer closeRecords(ctx, reg)
	rows := ask.choose(all, cfg.cwd)
	if len(rows) == 0 {
		ask.nothing(all, cfg, stderr)
	}
	s := newScreen(stdout, os.Getenv)
	switch {
	case ask.prune:
		return ask.pruneRows(s, reg, cfg.team, all, rows, stderr)
	case ask.json:
		return printJSON(s, struct {
			Team     string       `json:"team"`
			Sessions []sessionRow `json:"sessions"`
		}{cfg.team, append([]sessionRow{}, rows...)}, stderr)
	case len(rows) > 0:
		showRows(s, rows)
		if s.terminal {
			s.line("\n%s", s.paint(inDim, fmt.Sprintf("%s in team %q", counted(len(rows), "session"), cfg.team)))
		}
	}
	return 0
}

// openRecords opens the team's records and reads them all, newest first: to change them, or only to look, when not even
// a corrupt one is set aside. The caller closes them, unless the code is not 0.
func openRecords(ctx context.Context, command string, fl flagValues, change bool, stderr io.Writer) (*config, *registry, []sessionRow, int) {
	cfg, code := configFor(command, "", fl, stderr, os.Environ()...)
	if code != 0 {
		return nil, nil, nil, code
	}
	reg := newRegistry(cfg.sessionsRoot, cfg.team, change, newLogger(stderr, "warn"))
	rows, err := readRows(reg)
	if err != nil {
		closeRecords(ctx, reg)
		complain(stderr, err.Error(), "")
		return nil, nil, nil, 1
	}
	return cfg, reg, rows, 0
}

func closeRecords(ctx context.Context, reg *registry) {
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	_ = reg.close(ctx) // nothing is pending: this ends its goroutines
}

// readRows reads every record of the team, newest first.
func readRows(reg *registry) ([]sessionRow, error) {
	recs, err := reg.list(0)
	if err != nil {
		return nil, err
	}
	rows := make([]sessionRow, len(recs))
	for i, r := range recs {
		rows[i] = sessionRow{AgentID: r.AgentID, Backend: r.Backend, BackendID: r.BackendID, Identity: r.Identity, Team: r.Team,
			RepoName: r.RepoName, RepoRoot: r.RepoRoot, Branch: r.Branch, CWD: r.CWD, StartedAt: r.StartedAt, LastActive: r.LastActive,
			Turns: r.Turns, Tag: redact(r.Tag), Role: r.Role, BackendKind: r.BackendKind, ThreadID: r.BackendID, Resumable: r.BackendID != "",
			LastPrompt: shownPrompt(r.Digest.LastPrompt), LastError: redact(r.LastError), rec: r}
		rows[i].Status, rows[i].Interrupted, rows[i].PID = reg.told(&r)
	}
	return rows, nil
}

// shownPrompt is a prompt without what the audit trail leaves out, nor the half
// of it at which the record has cut the prompt.
func shownPrompt(prompt string) string {
	if i := strings.LastIndexAny(prompt, " \t\n"); i >= 0 && len(prompt) > maxDigestPrompt-utf8.UTFMax {
		prompt = prompt[:i] + " …"
	}
	return redact(prompt)
}

// choose filters by --repo and --identity.
func (ask *sessionsAsk) choose(all []sessionRow, cwd string) (rows []sessionRow) {
	for _, r := range all {
		if ask.identity != "" && !strings.EqualFold(r.Identity, ask.identity) {
			continue
		}
		if ask.repo != "" && !ask.inRepo(r, cwd) {
			continue
		}
		rows = append(rows, r)
	}
	return rows
}

// inRepo: a repository is named by its name, its root or a directory in it.
func (ask *sessionsAsk) inRepo(r sessionRow, cwd string) bool {
	if r.RepoName != nil && *r.RepoName == ask.repo {
		return true
	}
	if r.RepoRoot == nil || ask.repo != "." && ask.repo != ".." && !strings.ContainsAny(ask.repo, `/\`) {
		return false
	}
	path := ask.repo
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	root := *r.RepoRoot
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

// nothing says on stderr why there is nothing to show.
func (ask *sessionsAsk) nothing(all []sessionRow, cfg *config, stderr io.Writer) {
	what, hint := fmt.Sprintf("no sessions in team %q (by %s)", cfg.team, cfg.teamFrom), ""
	if len(all) > 0 {
		var names, repos []string
		for _, r := range all {
			names = append(names, r.Identity)
			if r.RepoName != nil {
				repos = append(repos, *r.RepoName)
			}
		}
		what = fmt.Sprintf("none of %s in team %q is what was asked for", counted(len(all), "session"), cfg.team)
		if near := nearest(ask.identity, names); near != "" && !strings.EqualFold(near, ask.identity) {
			hint = fmt.Sprintf("did you mean --identity %s?", near)
		} else if near := nearest(ask.repo, repos); near != "" && near != ask.repo {
			hint = fmt.Sprintf("did you mean --repo %s?", near)
		}
	}
	complain(stderr, what, hint)
}

// showRows prints the list: for a person what tells sessions apart, for a pipe
// the columns that the help promises.
func showRows(s screen, rows []sessionRow) {
	header := []string{"AGENT", "IDENTITY", "STATUS", "LAST ACTIVE", "TURNS", "WHERE", "LAST PROMPT"}
	var cells [][]cell
	for _, r := range rows {
		prompt := printable(r.LastPrompt)
		row := []cell{{r.AgentID, ""}, {r.Identity, ""}, {r.statusText(s.terminal), statusColor(r.Status)},
			{s.when(r.LastActive), ""}, {fmt.Sprint(r.Turns), ""}}
		if s.terminal {
			row = append(row, cell{clipChars(printable(r.where()), 32), inDim})
		} else {
			row = append(row, cell{deref(r.RepoName), ""}, cell{deref(r.Branch), ""}, cell{r.CWD, ""})
		}
		cells = append(cells, append(row, cell{prompt, ""}))
	}
	s.fit = true
	s.table(header, cells)
}

func (r sessionRow) statusText(long bool) string {
	if long && r.Interrupted {
		return r.Status + ", interrupted"
	}
	return r.Status
}

// where is repository and branch, else the directory.
func (r sessionRow) where() string {
	switch {
	case r.RepoName == nil:
		return filepath.Base(r.CWD)
	case r.Branch == nil:
		return *r.RepoName
	}
	return *r.RepoName + "@" + *r.Branch
}

func statusColor(status string) string {
	switch status {
	case statusBusy:
		return inGreen
	case statusStale:
		return inYellow
	case statusBroken:
		return inRed
	case statusClosed, statusParked:
		return inDim
	}
	return ""
}

// pruned is one line of what --prune did.
type pruned struct {
	AgentID  string `json:"agent_id"`
	Identity string `json:"identity"`
	Status   string `json:"status"`
	Why      string `json:"reason,omitempty"` // it stays
}

// pruneRows removes those of rows that are over. all is needed to see who
// shares a directory with whom.
func (ask *sessionsAsk) pruneRows(s screen, reg *registry, team string, all, rows []sessionRow, stderr io.Writer) int {
	users := map[string]int{} // of a summary directory
	for _, r := range all {
		users[r.rec.SummaryDir]++
	}
	removed, kept := []pruned{}, []pruned{}
	code := 0
	for _, r := range rows {
		p := pruned{AgentID: r.AgentID, Identity: r.Identity, Status: r.Status}
		if r.Status == statusBusy || r.Status == statusIdle {
			continue // at work
		}
		switch err := reg.remove(r.rec, users[r.rec.SummaryDir] > 1); {
		case err == nil:
			users[r.rec.SummaryDir]--
			removed = append(removed, p)
		case errors.Is(err, errAlive):
			p.Why = err.Error()
			kept = append(kept, p)
		default:
			p.Why = err.Error()
			kept = append(kept, p)
			code = 1
			complain(stderr, err.Error(), "")
		}
	}
	locks, err := reg.dropThreadLocks()
	if err != nil {
		code = 1
		complain(stderr, err.Error(), "")
	}
	if ask.json {
		if failed := printJSON(s, struct {
			Team    string   `json:"team"`
			Removed []pruned `json:"removed"`
			Kept    []pruned `json:"kept"`
			Locks   int      `json:"thread_locks_removed"`
		}{team, removed, kept, locks}, stderr); failed != 0 {
			return failed
		}
		return code
	}
	for _, p := range removed {
		s.line("removed %s (%s, %s)", p.AgentID, printable(p.Identity), p.Status)
	}
	for _, p := range kept {
		s.line("kept %s (%s, %s): %s", p.AgentID, printable(p.Identity), p.Status, printable(p.Why))
	}
	if locks > 0 {
		s.line("removed %s that nobody holds", counted(locks, "thread lock"))
	}
	if s.terminal {
		s.line("%s", s.paint(inDim, fmt.Sprintf("removed %d of %s in team %q", len(removed), counted(len(all), "session"), team)))
	}
	return code
}

func printJSON(s screen, v any, stderr io.Writer) int {
	enc := json.NewEncoder(s.out)
	enc.SetEscapeHTML(false)
	if s.terminal {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		complain(stderr, "printing JSON: "+err.Error(), "")
		return 1
	}
	return 0
}

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
	cfg, reg, rows, code := openRecords(ctx, "summary", fl, false, stderr)
	if code != 0 {
		return code
	}
	closeRecords(ctx, reg)
	row, hint := findRow(rows, got[0])
	if row == nil {
		complain(stderr, fmt.Sprintf("no session of team %q has the id %q", cfg.team, got[0]), hint)
		return 1
	}
	text, from, err := summaryOf(cfg, row)
	if err == nil && text == "" {
		err = fmt.Errorf("session %s has neither a summary nor a turn that ended", row.AgentID)
	}
	if err != nil {
		complain(stderr, err.Error(), "")
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
