package main

// main_watch.go owns `atm-agent-mcp watch`: one line for each agent of the team that any process holds, who waits for a
// decision first, and the account's limits; for a person redrawn in place once a second, for a program one object a
// line, a line a change. main.go calls it. It reads what the holders tell (session_now.go) and the kernel's locks,
// asks no process for anything, and leaves the terminal as it was, whichever way it ends.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	watchEvery      = time.Second
	stateWaits      = "waits" // of an agent for a decision; the others are the words of records
	maxLimitsStored = 64 << 10
	// The alternate screen without cursor and line wrap, and the way back to what stood there before.
	beginWatching = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	endWatching   = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// watchRow is one agent as --json tells it.
type watchRow struct {
	AgentID  string `json:"agent_id"`
	Identity string `json:"identity"`
	Team     string `json:"team"`
	PID      int    `json:"pid,omitempty"` // of the process that holds the agent
	sessionNow
	Branch *string `json:"branch"`

	head string // what stands in the place of a branch where HEAD is on none
}

// teamWatch is the team as it was seen last. One goroutine at a time uses it.
type teamWatch struct {
	leases *leases
	names  *names // the names of the fields in --json
	rows   []watchRow
	limits *limitsShown      // nil: no process has told any
	told   map[string]string // the lines of --json, by agent_id, and that of the limits by ""
}

func newTeamWatch(sessionsRoot, team string) *teamWatch {
	return &teamWatch{leases: newLeases(sessionsRoot, team, false), told: map[string]string{}}
}

func runWatch(ctx context.Context, c *commandCall) int {
	cfg, code := c.config(c.flags.teamOnly(), "")
	if code != 0 {
		return code
	}
	w, s := newTeamWatch(cfg.sessionsRoot, cfg.team), newScreen(c.stdout, os.Getenv)
	w.names = c.names
	s.fit = true
	out, _ := c.stdout.(*os.File)
	asJSON, once := c.flags["json"] == "true", c.flags["once"] == "true"
	live := s.terminal && !asJSON && !once && os.Getenv("TERM") != "dumb" && terminalColors(out)
	next := func() ([]byte, error) {
		switch err := w.look(); {
		case err != nil:
			return nil, err
		case asJSON:
			return w.changes(), nil
		case live:
			return w.frame(s, out), nil
		}
		return w.lines(s, len(w.rows)), nil
	}
	var err error
	if live || asJSON && !once {
		code, err = c.follow(ctx, live, next)
	} else if text, failed := next(); failed != nil {
		err = failed
	} else {
		_, err = c.stdout.Write(text)
	}
	if err != nil {
		return c.fail(err.Error(), "")
	}
	return code
}

// follow shows what comes next once a second, until somebody ends it: on a live screen with a key or a signal, else by
// reading no more, or with a signal that is nobody's to catch. Writing has a goroutine of its own, since a terminal may
// take nothing for as long as it likes.
func (c *commandCall) follow(ctx context.Context, live bool, next func() ([]byte, error)) (code int, _ error) {
	signals, keys, written, writing := make(chan os.Signal, 1), make(chan byte), make(chan error, 1), false
	out, _ := c.stdout.(*os.File)
	var begin []byte // stands before the first frame
	if live {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		defer signal.Stop(signals)
		if in, ok := c.stdin.(*os.File); ok {
			if restore, err := giveKeys(in); err == nil { // else stdin is no terminal
				defer restore()
				go readKeys(in, keys) // ends with the process: nothing else ends the read of a terminal
			}
		}
		begin = []byte(beginWatching)
		defer func() {
			if begin != nil { // nothing was shown
				return
			}
			ended := make(chan struct{})
			go func() {
				if writing { // a frame behind the end would stay there
					<-written
				}
				c.stdout.Write([]byte(endWatching))
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(watchEvery): // a terminal that takes nothing keeps nobody
			}
		}()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for due := true; ; {
		if due && !writing {
			text, err := next()
			if err != nil {
				return 1, err
			}
			text, begin = append(begin, text...), nil
			due, writing = false, true
			go func() { _, err := c.stdout.Write(text); written <- err }()
		}
		select {
		case err := <-written:
			if writing = false; err != nil {
				return 1, fmt.Errorf("showing the agents: %w", err)
			}
		case <-tick.C:
			if due = true; out != nil && readerGone(out) {
				return 0, nil
			}
		case key, more := <-keys:
			if !more || strings.IndexByte("qQ\x03\x04\x1c", key) >= 0 { // ^C, ^D, ^\
				return 0, nil
			}
		case sig := <-signals:
			if sig == os.Interrupt {
				return 0, nil
			}
			return 128 + int(signalNumber(sig)), nil
		case <-ctx.Done():
			return 0, nil
		}
	}
}

// readKeys sends each key until the terminal is gone.
func readKeys(in io.Reader, keys chan<- byte) {
	defer close(keys)
	for key := make([]byte, 1); ; {
		if n, err := in.Read(key); n == 1 {
			keys <- key[0]
		} else if err != nil {
			return
		}
	}
}

// look reads who lives and what the living tell.
func (w *teamWatch) look() error {
	living, err := w.leases.living()
	if err != nil {
		return err
	}
	w.rows = nil
	for _, c := range living {
		if c.AgentID == "" { // a name that no agent has yet
			continue
		}
		row := watchRow{AgentID: c.AgentID, Identity: c.Identity, Team: w.leases.team, PID: c.PID,
			sessionNow: toldNow(c)}
		facts := readRepo(row.Cwd)
		row.Branch, row.head = facts.Branch, facts.Head
		w.rows = append(w.rows, row)
	}
	rank := map[string]int{stateWaits: -2, statusBusy: -1} // who needs somebody is first, then who works
	slices.SortFunc(w.rows, func(a, b watchRow) int {
		return cmp.Or(rank[a.state()]-rank[b.state()], strings.Compare(strings.ToLower(a.Identity),
			strings.ToLower(b.Identity)))
	})
	data, err := readRegular(limitsFile(w.leases.root), maxLimitsStored)
	var limits limitsShown
	if w.limits = nil; err == nil && json.Unmarshal(data, &limits) == nil {
		w.limits = &limits
	}
	return nil
}

// changes are a line for all that is otherwise than it was told.
func (w *teamWatch) changes() []byte {
	var b bytes.Buffer
	left := maps.Clone(w.told)
	tell := func(key string, compared, line json.RawMessage) {
		delete(left, key)
		if w.told[key] != string(compared) {
			w.told[key] = string(compared)
			b.Write(append(w.names.fields(line, listed), '\n'))
		}
	}
	for i := range w.rows {
		line := toJSON(&w.rows[i])
		tell(w.rows[i].AgentID, line, line)
	}
	if w.limits != nil {
		same := *w.limits
		same.AsOf = "" // that Codex said the same once more is no change
		tell("", toJSON(same), toJSON(map[string]*limitsShown{"limits": w.limits}))
	}
	delete(left, "")
	for _, id := range slices.Sorted(maps.Keys(left)) {
		delete(w.told, id)
		gone := map[string]any{w.names.word("agent_id"): id, "team": w.leases.team, "gone": true}
		b.Write(append(toJSON(gone), '\n'))
	}
	return b.Bytes()
}

// frame is what stands in the place of the frame before, as large as the terminal is now.
func (w *teamWatch) frame(s screen, out *os.File) []byte {
	width, height, _ := terminalSize(out)
	s.width, s.now = cmp.Or(width, defaultWidth), time.Now()
	height = cmp.Or(height, defaultHeight)
	most := height - 2 - len(w.limitLines(s)) // below the title and the names of the columns
	if len(w.rows) > most {
		most-- // one line says how many more there are
	}
	lines := bytes.Split(bytes.TrimSuffix(w.lines(s, most), []byte("\n")), []byte("\n"))
	text := bytes.Join(lines[:min(len(lines), height)], []byte("\x1b[K\n"))
	return slices.Concat([]byte("\x1b[H"), text, []byte("\x1b[K\x1b[J"))
}

// lines are a line for each of the first most agents, and the limits below.
func (w *teamWatch) lines(s screen, most int) []byte {
	var b bytes.Buffer
	s.out = &b
	rows, waiting := w.rows[:min(max(most, 1), len(w.rows))], 0
	var cells [][]cell
	for i := range w.rows {
		if w.rows[i].Waiting > 0 {
			waiting++
		}
	}
	for i := range rows {
		cells = append(cells, rows[i].cells(s))
	}
	if s.terminal {
		title := fmt.Sprintf("%s in team %q", counted(len(w.rows), "agent"), w.leases.team)
		if waiting > 0 {
			title += fmt.Sprintf(", %d waiting for a decision", waiting)
		}
		s.line("%s", s.paint(inBold, clipColumns(title, s.width)))
	}
	if len(cells) > 0 {
		s.table(narrowed(s, []string{"AGENT", "STATE", "FOR", "MAIL", "TOKENS", "BRANCH", "DOING"}), cells)
	}
	if rest := len(w.rows) - len(rows); rest > 0 {
		s.line("%s", s.paint(inDim, fmt.Sprintf("… and %d more", rest)))
	}
	for _, limit := range w.limitLines(s) {
		s.line("%s", s.paint(limit.how, limit.text))
	}
	return b.Bytes()
}

// cells are an agent's line: on a terminal what fits, in a pipe the columns that the help promises.
func (r *watchRow) cells(s screen) []cell {
	branch, doing, mail, tokens := cmp.Or(deref(r.Branch), r.head), r.Doing, fmt.Sprint(r.Unread), fmt.Sprint(r.Tokens)
	if r.Waiting > 0 {
		doing = "decide: " + cmp.Or(r.Decision.Action, r.Decision.Kind)
	}
	if r.Queued > 0 {
		doing += fmt.Sprintf(" (%d queued)", r.Queued)
	}
	if !s.terminal {
		return plainCells(r.Identity, r.AgentID, r.state(), s.when(r.Since), mail, tokens, branch, doing)
	}
	how := map[string]string{stateWaits: inYellow, statusBusy: inGreen}[r.state()]
	line := []cell{{clipColumns(r.Identity, 24), how}, {r.state(), how}, {elapsed(s.now, r.Since), how}, {mail, ""},
		{tokens, ""}, {branch, inDim}, {doing, ""}}
	if r.Unread > 0 {
		line[3].how = inYellow
	}
	if r.Waiting > 0 {
		line[6].how = how
	}
	return narrowed(s, line)
}

func (r *watchRow) state() string {
	if r.Waiting > 0 {
		return stateWaits
	}
	return r.Status
}

// narrowed takes from a line what a narrow terminal has no room for: tokens and branch, then mail.
func narrowed[T any](s screen, line []T) []T {
	switch {
	case s.width < 50:
		return slices.Concat(line[:3], line[6:])
	case s.width < 72:
		return slices.Concat(line[:4], line[6:])
	}
	return line
}

// limitLines are the account's limits as any process was told them last.
func (w *teamWatch) limitLines(s screen) (lines []cell) {
	switch {
	case w.limits == nil && s.terminal:
		return []cell{{clipColumns("Limit: Codex has told of none yet", s.width), inDim}}
	case w.limits == nil:
		return nil
	}
	asOf, _ := time.Parse(time.RFC3339, w.limits.AsOf)
	for i := range w.limits.Windows {
		limit := &w.limits.Windows[i]
		resets, err := time.Parse(time.RFC3339, limit.ResetsAt)
		line := cell{text: fmt.Sprintf("Limit: %s has begun anew", limit.title())}
		if err != nil || resets.After(s.now) {
			line.text = fmt.Sprintf("Limit: %v%% of %s used", limit.Used, limit.title())
			if err == nil {
				line.text += ", resets at " + s.when(resets)
			}
			if s.now.Sub(asOf) > time.Hour {
				line.text += ", as of " + s.when(asOf)
			}
			if limit.Used >= limitWarning {
				line.how = inRed
			}
		}
		if line.text = printable(line.text); s.width > 0 {
			line.text = clipColumns(line.text, s.width)
		}
		lines = append(lines, line)
	}
	return lines
}

// elapsed is how long ago a time was, in a few characters.
func elapsed(now, from time.Time) string {
	d := max(now.Sub(from), 0)
	switch {
	case from.IsZero():
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
