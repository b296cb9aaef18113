package main

// main_sessions.go owns `atm-agent-mcp sessions` (FR-13.5), what the team's records say, for a person or a script,
// and the removal of those that are over; and `atm-agent-mcp summary <agent-id>` (FR-13.6), the summary that a
// session wrote as it ended, or the digest that its record keeps. main.go calls it. Marks nothing and locks nobody
// out: a session of a dead process is shown as stale, not rewritten; a running one is never removed.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

func runSessions(ctx context.Context, c *commandCall) int {
	prune := c.flags["prune"] == "true"
	cfg, reg, all, code := c.openRecords(ctx, prune)
	if code != 0 {
		return code
	}
	defer closeRecords(ctx, reg)
	rows := c.chooseRows(all, cfg.cwd)
	if len(rows) == 0 {
		c.tellNoRows(all, cfg)
	}
	s := newScreen(c.stdout, os.Getenv)
	switch {
	case prune:
		return c.pruneRows(s, reg, cfg.team, all, rows)
	case c.flags["json"] == "true":
		return c.printJSON(s, struct {
			Team     string       `json:"team"`
			Sessions []sessionRow `json:"sessions"`
		}{cfg.team, append([]sessionRow{}, rows...)})
	case len(rows) > 0:
		showRows(s, rows)
		if s.terminal {
			s.line("\n%s", s.paint(inDim, fmt.Sprintf("%s in team %q", counted(len(rows), "session"), cfg.team)))
		}
	}
	return 0
}

// openRecords opens the team's records and reads them all, newest first: to change them, or only to look, when not even
// a corrupt one is set aside. The caller closes the registry, unless the code is not 0.
func (c *commandCall) openRecords(ctx context.Context, change bool) (*config, *registry, []sessionRow, int) {
	cfg, code := c.config(c.flags.teamOnly(), "")
	if code != 0 {
		return nil, nil, nil, code
	}
	reg := newRegistry(cfg.sessionsRoot, cfg.team, change, newLogger(c.stderr, "warn"))
	rows, err := readRows(reg)
	if err != nil {
		closeRecords(ctx, reg)
		return nil, nil, nil, c.fail(err.Error(), "")
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
		rows[i] = sessionRow{AgentID: r.AgentID, Backend: r.Backend, BackendID: r.BackendID, Identity: r.Identity,
			Team:     r.Team,
			RepoName: r.RepoName, RepoRoot: r.RepoRoot, Branch: r.Branch, CWD: r.CWD, StartedAt: r.StartedAt,
			LastActive: r.LastActive,
			Turns:      r.Turns, Tag: redact(r.Tag), Role: r.Role, BackendKind: r.BackendKind, ThreadID: r.BackendID,
			Resumable:  r.BackendID != "",
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

// chooseRows filters by --repo and --identity.
func (c *commandCall) chooseRows(all []sessionRow, cwd string) (rows []sessionRow) {
	identity, repo := c.flags["identity"], c.flags["repo"]
	for _, r := range all {
		if (identity == "" || strings.EqualFold(r.Identity, identity)) && (repo == "" || r.inRepo(repo, cwd)) {
			rows = append(rows, r)
		}
	}
	return rows
}

// inRepo reports whether a session works in a repository, which is named by its name, its root or a directory in it.
func (r sessionRow) inRepo(repo, cwd string) bool {
	if strings.EqualFold(deref(r.RepoName), repo) {
		return true
	}
	if r.RepoRoot == nil || repo != "." && repo != ".." && !strings.ContainsAny(repo, `/\`) {
		return false
	}
	path, root := repo, *r.RepoRoot
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	for _, p := range []*string{&path, &root} {
		if real, err := filepath.EvalSymlinks(*p); err == nil {
			*p = real
		}
	}
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

// tellNoRows says on stderr why there is nothing to show.
func (c *commandCall) tellNoRows(all []sessionRow, cfg *config) {
	if len(all) == 0 {
		hint := ""
		if old := cfg.oldSessions(); old != nil {
			newest := old[len(old)-1]
			hint = fmt.Sprintf("%s left %s, the newest is %s: atm-agent-mcp serve --resume takes them by id or "+
				"identity", ancestorName, counted(len(old), "session"), printable(cmp.Or(newest.CodexID, newest.Thread)))
		}
		complain(c.stderr, fmt.Sprintf("no sessions in team %q (by %s)", cfg.team, cfg.teamFrom), hint)
		return
	}
	var names, repos []string
	for _, r := range all {
		names, repos = append(names, r.Identity), append(repos, deref(r.RepoName))
	}
	complain(c.stderr, fmt.Sprintf("none of %s in team %q is what was asked for", counted(len(all), "session"),
		cfg.team),
		cmp.Or(c.meantFilter("identity", names), c.meantFilter("repo", repos)))
}

// meantFilter is a hint at what a filter that let nothing through likely means, "" where no word is near.
func (c *commandCall) meantFilter(flag string, there []string) string {
	if near := nearest(c.flags[flag], there); near != "" && !strings.EqualFold(near, c.flags[flag]) {
		return fmt.Sprintf("did you mean --%s %s?", flag, near)
	}
	return ""
}

// showRows prints the list: for a person what tells sessions apart, for a pipe
// the columns that the help promises.
func showRows(s screen, rows []sessionRow) {
	header := []string{"AGENT", "IDENTITY", "STATUS", "LAST ACTIVE", "TURNS", "WHERE", "LAST PROMPT"}
	var cells [][]cell
	for _, r := range rows {
		if !s.terminal {
			cells = append(cells, plainCells(r.AgentID, r.Identity, r.Status, s.when(r.LastActive), fmt.Sprint(r.Turns),
				deref(r.RepoName), deref(r.Branch), r.CWD, r.LastPrompt))
			continue
		}
		cells = append(cells, []cell{{r.AgentID, ""}, {r.Identity, ""}, {r.statusText(), statusColor(r.Status)},
			{s.when(r.LastActive), ""},
			{fmt.Sprint(r.Turns), ""}, {clipChars(printable(r.where()), 32), inDim}, {r.LastPrompt, ""}})
	}
	s.fit = true
	s.table(header, cells)
}

func (r sessionRow) statusText() string {
	if r.Interrupted {
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

// A prunedRow is one session that --prune removed, or kept and why.
type prunedRow struct {
	AgentID  string `json:"agent_id"`
	Identity string `json:"identity"`
	Status   string `json:"status"`
	Why      string `json:"reason,omitempty"` // why the session was kept

	Worktree *worktreePlace `json:"worktree,omitempty"` // that stays, though nobody knows any more whose it was
}

// pruneRows removes those of rows that are over. all tells which sessions share a summary directory.
func (c *commandCall) pruneRows(s screen, reg *registry, team string, all, rows []sessionRow) (code int) {
	users := map[string]int{} // how many sessions a summary directory has
	for _, r := range all {
		users[r.rec.SummaryDir]++
	}
	removed, kept := []prunedRow{}, []prunedRow{}
	for _, r := range rows {
		if r.Status == statusBusy || r.Status == statusIdle {
			continue // at work
		}
		p := prunedRow{AgentID: r.AgentID, Identity: r.Identity, Status: r.Status}
		err := reg.remove(r.rec, users[r.rec.SummaryDir] > 1)
		if err == nil {
			users[r.rec.SummaryDir]--
			if w := r.rec.Worktree.place(); w != nil && isDir(w.Path) {
				p.Worktree = w
			}
			removed = append(removed, p)
			continue
		}
		p.Why = err.Error()
		kept = append(kept, p)
		if !errors.Is(err, errAlive) {
			code = c.fail(err.Error(), "")
		}
	}
	locks, err := reg.dropThreadLocks()
	if err != nil {
		code = c.fail(err.Error(), "")
	}
	if c.flags["json"] == "true" {
		return max(code, c.printJSON(s, struct {
			Team    string      `json:"team"`
			Removed []prunedRow `json:"removed"`
			Kept    []prunedRow `json:"kept"`
			Locks   int         `json:"thread_locks_removed"`
		}{team, removed, kept, locks}))
	}
	for _, p := range removed {
		s.line("removed %s (%s, %s)", p.AgentID, printable(p.Identity), p.Status)
		if w := p.Worktree; w != nil {
			s.line("  its worktree %s (branch %s) stays", printable(w.Path), printable(w.Branch))
		}
	}
	for _, p := range kept {
		s.line("kept %s (%s, %s): %s", p.AgentID, printable(p.Identity), p.Status, printable(p.Why))
	}
	if locks > 0 {
		s.line("removed %s that nobody holds", counted(locks, "thread lock"))
	}
	if s.terminal {
		s.line("%s", s.paint(inDim, fmt.Sprintf("removed %d of %s in team %q", len(removed),
			counted(len(all), "session"), team)))
	}
	return code
}

// printJSON prints v, on lines of its own for a person, and returns the exit code.
func (c *commandCall) printJSON(s screen, v any) int {
	if c.names != nil {
		v = c.names.fields(toJSON(v), listed)
	}
	enc := json.NewEncoder(s.out)
	enc.SetEscapeHTML(false)
	if s.terminal {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return c.fail("printing JSON: "+err.Error(), "")
	}
	return 0
}

func runSummary(ctx context.Context, c *commandCall) int {
	if len(c.args) == 0 || c.args[0] == "" {
		complain(c.stderr, "summary wants an agent id", "atm-agent-mcp sessions lists them")
		return 2
	}
	cfg, reg, rows, code := c.openRecords(ctx, false)
	if code != 0 {
		return code
	}
	closeRecords(ctx, reg)
	row, hint := findRow(rows, c.args[0])
	s := newScreen(c.stdout, os.Getenv)
	if row == nil {
		old := cfg.findOldSession(c.args[0])
		if text := old.text(); text != "" {
			s.line("%s", s.text(text))
			return 0
		} else if old.Thread != "" {
			hint = "codex-mcp kept the session and no summary of it; atm-agent-mcp serve --resume continues it"
		}
		return c.fail(fmt.Sprintf("no session of team %q has the id %q", cfg.team, c.args[0]), hint)
	}
	text, from, err := row.summary(cfg.sessionsRoot)
	if err == nil && text == "" {
		err = fmt.Errorf("session %s has neither a summary nor a turn that ended", row.AgentID)
	}
	if err != nil {
		return c.fail(err.Error(), "")
	}
	if s.terminal {
		s.line("%s  %s  %s", s.paint(inBold, row.AgentID), printable(row.Identity),
			s.paint(statusColor(row.Status), row.statusText()))
		s.line("%s\n", s.paint(inDim, clipChars(printable(fmt.Sprintf("%s, %s, last active %s; %s", row.where(),
			counted(row.Turns, "turn"), s.when(row.LastActive), from)), s.width)))
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

// summary is what the session left behind, and which of the two that is: its summary, or its digest.
func (row *sessionRow) summary(sessionsRoot string) (text, from string, err error) {
	if dir := row.rec.SummaryDir; dir != "" && filepath.IsLocal(dir) {
		data, err := readRegular(filepath.Join(sessionsRoot, dir, "summary.md"), maxSummaryBytes)
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
