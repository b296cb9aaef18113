package main

// main_watch_test.go holds watch's screen to any width and to what agents say, and --json to changes. What a terminal
// is given and gives is in main_watch_linux_test.go, two processes are in testdata/script/watch-*.txtar.

import (
	"strings"
	"testing"
	"time"
)

// watchedTeam is a team of three agents, seen at now.
func watchedTeam(now time.Time) *teamWatch {
	branch := "agent/zoe"
	w := newTeamWatch("", "red")
	w.rows = []watchRow{
		{AgentID: "codex:bbbb", Identity: "zoe", Branch: &branch, sessionNow: sessionNow{Status: statusBusy, Waiting: 1,
			Since: now.Add(-75 * time.Second), Decision: nowAsk{Kind: askCommand, Action: "rm -rf\x1b[2J \u202e数据\nbuild"},
			Queued: 2, Unread: 3, Tokens: 123456}},
		{AgentID: "codex:cccc", Identity: "bob", head: "detached at 1a2b3c4", sessionNow: sessionNow{Status: statusBusy,
			Since: now.Add(-3 * time.Hour), Doing: "running `echo 数据数据数据数据数据数据数据数据数据 ✅`"}},
		{AgentID: "codex:dddd", Identity: strings.Repeat("ida", 20), sessionNow: sessionNow{Status: statusIdle,
			Since: now.Add(-50 * time.Hour), Tokens: 99}},
	}
	w.limits = &limitsShown{AsOf: now.Format(time.RFC3339), Windows: []limitWindow{
		{Name: "primary", Used: 93, Minutes: 300, ResetsAt: now.Add(90 * time.Minute).Format(time.RFC3339)},
		{Name: "secondary", Used: 20, Minutes: 10080, ResetsAt: now.Add(-time.Minute).Format(time.RFC3339)},
	}}
	return w
}

func TestWatchedTeamOnAnyScreen(t *testing.T) {
	now := time.Now()
	w := watchedTeam(now)
	for width := 1; width < 140; width++ {
		for i, line := range strings.Split(string(w.lines(screen{terminal: true, fit: true, width: width, now: now}, 9)), "\n") {
			if columns(line) > width || strings.ContainsAny(line, "\x1b\u202e") {
				t.Errorf("at %d columns line %d takes %d: %q", width, i, columns(line), line)
			}
		}
	}
	for _, tt := range []struct {
		s    screen
		most int
		want string
	}{
		{screen{terminal: true, fit: true, width: 100, now: now}, 9, `3 agents in team "red", 1 waiting for a decision
AGENT                     STATE  FOR    MAIL  TOKENS  BRANCH               DOING
zoe                       waits  1m15s  3     123456  agent/zoe            decide: rm -rf[2J 数据 b…
bob                       busy   3h00m  0     0       detached at 1a2b3c4  running ` + "`echo 数据数据数…" + `
idaidaidaidaidaidaidaid…  idle   2d02h  0     99
Limit: 93% of the primary window (5 hours) used, resets at ` + now.Add(90*time.Minute).Format("2006-01-02 15:04") + `
Limit: the secondary window (7 days) has begun anew
`},
		{screen{terminal: true, fit: true, width: 44, now: now, color: true}, 1,
			"\x1b[1m3 agents in team \"red\", 1 waiting for a dec…\x1b[0m\n" +
				"\x1b[1mAGENT\x1b[0m  \x1b[1mSTATE\x1b[0m  \x1b[1mFOR\x1b[0m    \x1b[1mDOING\x1b[0m\n" +
				"\x1b[33mzoe\x1b[0m    \x1b[33mwaits\x1b[0m  \x1b[33m1m15s\x1b[0m  \x1b[33mdecide: rm -rf[2J 数据…\x1b[0m\n" +
				"\x1b[2m… and 2 more\x1b[0m\n" +
				"\x1b[31mLimit: 93% of the primary window (5 hours) …\x1b[0m\nLimit: the secondary window (7 days) has be…\n"},
	} {
		if got := string(w.lines(tt.s, tt.most)); got != tt.want {
			t.Errorf("at %d columns:\n%swant\n%s", tt.s.width, got, tt.want)
		}
	}
	pipe := string(w.lines(screen{now: now}, 9))
	if line := "zoe\tcodex:bbbb\twaits\t" + now.Add(-75*time.Second).UTC().Format(time.RFC3339) +
		"\t3\t123456\tagent/zoe\tdecide: rm -rf[2J 数据 build (2 queued)\n"; !strings.HasPrefix(pipe, line) {
		t.Errorf("in a pipe: %q, want it to begin with %q", pipe, line)
	}
}

// A line of --json is a change: not time, and not that Codex said the same once more.
func TestWatchTellsChanges(t *testing.T) {
	w := watchedTeam(time.Now())
	for _, step := range []struct {
		change func()
		want   []string // what each line holds
	}{
		{func() {}, []string{`"codex:bbbb"`, `"codex:cccc"`, `"codex:dddd"`, `{"limits":{"as_of":`}},
		{func() { w.limits.AsOf = "2026-01-01T00:00:00Z" }, nil},
		{func() { w.rows[1].Doing = "thinking" }, []string{`"doing":"thinking"`}},
		{func() { w.limits.Windows[0].Used = 94 }, []string{`"used_percent":94`}},
		{func() { w.rows = w.rows[1:] }, []string{`{"agent_id":"codex:bbbb","gone":true,"team":"red"}`}},
		{func() { w.limits = nil }, nil},
	} {
		step.change()
		got := strings.SplitAfter(string(w.changes()), "\n")
		if got = got[:len(got)-1]; len(got) != len(step.want) {
			t.Errorf("told %q, want %q", got, step.want)
			continue
		}
		for i, want := range step.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("told %q, want %s", got[i], want)
			}
		}
	}
}
