package main

// mail_members_test.go holds joining and leaving to whose entry is whose: ours, one prepared for us, another's, a dead
// process's; to a team that is damaged or gone; and the text of config.json to what nobody may change: every byte but
// our own entry. A crew is a team with leases that the test decides on.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A crew is a team with members, and the leases of its identities.
type crew struct {
	*teamFile
	t     *testing.T
	path  string
	held  map[string]int // identity: pid
	agent newMember
}

func newCrew(t *testing.T, text string) *crew {
	t.Helper()
	root := t.TempDir()
	path := writeTeam(t, root, "crew", text)
	return &crew{
		teamFile: newTeamFile(root, "crew", "/leases"), t: t, path: path, held: map[string]int{"codex": os.Getpid()},
		agent: newMember{name: "codex", agentID: "codex:ab12", model: "o3", cwd: "/w", sessionID: "thread-1"},
	}
}

// holder is what registry.holder tells of these leases; our own are codex:ab12's.
func (c *crew) holder(identity string) (string, int, bool) {
	pid, held := c.held[strings.ToLower(identity)]
	if pid == os.Getpid() {
		return "codex:ab12", pid, held
	}
	return "codex:zz99", pid, held
}

func (c *crew) text() string {
	c.t.Helper()
	data, err := os.ReadFile(c.path)
	wantNil(c.t, err)
	return string(data)
}

func (c *crew) join(m newMember) (membership, error) {
	return c.teamFile.join(context.Background(), m, c.holder)
}

func (c *crew) mustJoin(m newMember) membership {
	c.t.Helper()
	got, err := c.join(m)
	wantNil(c.t, err)
	return got
}

func (c *crew) mustLeave(s ...membership) {
	c.t.Helper()
	wantNil(c.t, c.leave(context.Background(), s...))
}

func (c *crew) mustSweep() int {
	c.t.Helper()
	c.tidy()
	n, _, err := c.sweep(context.Background(), c.holder)
	wantNil(c.t, err)
	return n
}

// put replaces the file as a person with an editor would.
func (c *crew) put(text string) {
	c.t.Helper()
	wantNil(c.t, os.WriteFile(c.path, []byte(text), 0o644))
}

// names are the members in their order.
func (c *crew) names() string {
	c.t.Helper()
	all, err := c.list()
	wantNil(c.t, err)
	var names []string
	for _, m := range all {
		names = append(names, m.name)
	}
	return strings.Join(names, " ")
}

// deadPID is a process that was and is no more.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	wantNil(t, cmd.Run())
	return cmd.Process.Pid
}

// markedEntry is an entry that another process added.
func markedEntry(name string, pid int, host, leases string) string {
	return fmt.Sprintf(`{"agentId":"%s@crew","name":%q,"agentType":"codex","atmAgentMcp":{"pid":%d,"host":%q,"agent":"codex:old1","leases":%q}}`, name, name, pid, host, leases)
}

func crewOf(entries ...string) string {
	return `{"name":"crew","members":[` + strings.Join(entries, ",") + `],"after":1.0}`
}

func TestJoinAndLeave(t *testing.T) {
	for _, text := range []string{claudeTeam, atmTeam, compactTeam} {
		c := newCrew(t, text)
		if c.mustSweep() != 0 || c.text() != text {
			t.Errorf("sweep changed %s", c.text())
		}
		m := c.mustJoin(c.agent)
		if !strings.HasSuffix(" "+c.names(), " codex") || !m.added || m.name != "codex" {
			t.Errorf("members %s, %+v", c.names(), m)
		}
		joined := c.text()
		if again := c.mustJoin(c.agent); again != m || c.text() != joined {
			t.Errorf("joining twice: %+v, %s", again, c.text())
		}
		if err := c.mayUse("codex", c.agent.agentID, c.holder); err != nil {
			t.Error(err)
		}
		if c.mustSweep() != 0 || c.text() != joined {
			t.Error("the entry of a live session was swept")
		}
		c.mustLeave(m)
		if c.text() != text {
			t.Errorf("left %s\nof %s", c.text(), text)
		}
		c.mustLeave(m)
	}
}

// Both programs must read the entry: atm is strict about six fields, Claude Code writes the others in its own.
func TestJoinedEntry(t *testing.T) {
	c := newCrew(t, compactTeam)
	c.mustJoin(c.agent)
	var file struct{ Members []map[string]any }
	wantNil(t, json.Unmarshal([]byte(c.text()), &file))
	e := file.Members[0]
	for _, at := range []string{"joinedAt", "lastActive"} {
		if ms, ok := e[at].(float64); !ok || ms < 1.7e12 || ms > 1e14 {
			t.Errorf("%s is %v, not a time in ms", at, e[at])
		}
		delete(e, at)
	}
	host, _ := os.Hostname()
	want := map[string]any{
		"agentId": "codex@crew", "name": "codex", "agentType": "codex", "model": "o3", "cwd": "/w", "tmuxPaneId": "", "subscriptions": []any{},
		"isActive": true, "sessionId": "thread-1", "externalBackendType": "codex", "externalModel": "custom:o3",
		"atmAgentMcp": map[string]any{"pid": float64(os.Getpid()), "host": host, "agent": "codex:ab12", "leases": "/leases"},
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got %v\nwant %v", e, want)
	}
	c.agent.name, c.agent.model, c.agent.sessionID = "codex-2", "", ""
	c.mustJoin(c.agent)
	wantNil(t, json.Unmarshal([]byte(c.text()), &file))
	if e := file.Members[1]; e["model"] != "unknown" || e["externalModel"] != "unknown" || e["sessionId"] != nil {
		t.Errorf("without a model and a thread: %v", e)
	}
}

// An entry that `atm add-member` prepared is used as it stands, and stays.
func TestJoinAdopts(t *testing.T) {
	c := newCrew(t, crewOf(`{"agentId":"codex@crew","name":"Codex","externalBackendType":"codex"}`))
	before := c.text()
	m := c.mustJoin(c.agent)
	if m.added || m.name != "Codex" {
		t.Errorf("got %+v", m)
	}
	wantNil(t, c.mayUse("codex", "codex:ab12", c.holder))
	c.mustLeave(m)
	delete(c.held, "codex")
	if c.mustSweep() != 0 || c.text() != before {
		t.Errorf("an adopted entry was changed: %s", c.text())
	}
}

func TestJoinIsTaken(t *testing.T) {
	host, _ := os.Hostname()
	for name, c := range map[string]struct {
		entry string
		held  int
		want  string
	}{
		"another type": {`{"name":"CODEX","agentType":"general-purpose"}`, os.Getpid(), `agentType is "general-purpose"`},
		"no type":      {`{"name":"codex"}`, os.Getpid(), `no Codex agent`},
		"its lease":    {`{"name":"codex","agentType":"codex"}`, os.Getppid(), fmt.Sprintf("in use by process %d", os.Getppid())},
		"a live process whose leases are elsewhere": {markedEntry("codex", os.Getppid(), host, "/other"), os.Getpid(), fmt.Sprintf("in use by process %d", os.Getppid())},
		"another machine, leases elsewhere":         {markedEntry("codex", deadPID(t), "far-away", "/other"), os.Getpid(), "in use by process"},
	} {
		w := newCrew(t, crewOf(c.entry))
		w.held["codex"] = c.held
		before := w.text()
		_, err := w.join(w.agent)
		if !errors.As(err, new(*memberTaken)) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "choose another identity") {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.mayUse("codex", "codex:ab12", w.holder); !errors.As(err, new(*memberTaken)) {
			t.Errorf("%s: its inbox may be read: %v", name, err)
		}
		if w.text() != before {
			t.Errorf("%s: %s", name, w.text())
		}
	}
	w := newCrew(t, compactTeam)
	w.agent.name = "Main"
	if _, err := w.join(w.agent); err == nil || w.text() != compactTeam {
		t.Errorf("the name that Claude Code keeps: %v", err)
	}
}

// A crash leaves the entry; the same identity takes it over, and takes it out when it leaves.
func TestJoinAfterACrash(t *testing.T) {
	host, _ := os.Hostname()
	for name, entry := range map[string]string{
		"lease free, though the pid is another's now": markedEntry("codex", os.Getppid(), host, "/leases"),
		"lease free, another machine":                 markedEntry("codex", 1, "container-1", "/leases"),
		"leases elsewhere, process dead":              markedEntry("codex", deadPID(t), host, "/other"),
	} {
		other := `{"name":"x","y":1.50}`
		c := newCrew(t, crewOf(entry, other))
		m := c.mustJoin(c.agent)
		if !m.added || !strings.Contains(c.text(), fmt.Sprintf(`"agentType":"codex","atmAgentMcp":{"pid":%d,`, os.Getpid())) {
			t.Errorf("%s: %+v, %s", name, m, c.text())
		}
		c.mustLeave(m)
		if c.text() != crewOf(other) {
			t.Errorf("%s: left %s", name, c.text())
		}
	}
}

func TestSweep(t *testing.T) {
	host, _ := os.Hostname()
	dead := deadPID(t)
	stay := []string{
		`{"name":"prepared","agentType":"codex"}`, `{"name":"mate","agentType":"general-purpose"}`, `5`,
		markedEntry("busy", os.Getppid(), host, "/leases"),
		markedEntry("elsewhere", os.Getppid(), host, "/other"), markedEntry("far", dead, "far-away", "/other"),
		strings.Replace(markedEntry("notours", dead, host, "/leases"), `"agentType":"codex"`, `"agentType":"x"`, 1),
	}
	go1, go2, go3 := markedEntry("crashed", dead, host, "/leases"), markedEntry("crashed2", 1, "old-container", "/leases"), markedEntry("crashed3", dead, host, "/other")
	c := newCrew(t, crewOf(append([]string{go1, go2}, append(stay, go3)...)...))
	c.held["busy"] = os.Getppid()
	temp := c.path + ".tmp.123"
	touchFile(t, temp)
	old := beginningOfTime()
	wantNil(t, os.Chtimes(temp, old, old))
	if n := c.mustSweep(); n != 3 || c.text() != crewOf(stay...) {
		t.Errorf("%d removed, left %s", n, c.text())
	}
	if _, err := os.Stat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file of a crash is there: %v", err)
	}
}

// What leave finds may not be what join left.
func TestLeaveAfterOthersChanges(t *testing.T) {
	c := newCrew(t, crewOf())
	m := c.mustJoin(c.agent)
	mine := c.text()

	c.put(crewOf(`{"name":"codex","agentType":"codex","joinedAt":1}`)) // removed, and prepared by somebody
	before := c.text()
	c.mustLeave(m)
	if c.text() != before {
		t.Errorf("took out a new entry: %s", c.text())
	}

	from := strings.Index(mine, `,"atmAgentMcp"`)
	c.put(mine[:from] + "}" + mine[strings.Index(mine, `}}`)+2:]) // a writer that keeps no field it doesn't know
	c.mustLeave(m)
	if c.text() != crewOf() {
		t.Errorf("left our entry without its mark: %s", c.text())
	}

	c.put(strings.Replace(mine, `"codex:ab12"`, `"codex:next"`, 1)) // another session has the identity by now
	c.mustLeave(m)
	if c.names() != "codex" {
		t.Error("took out another session's entry")
	}

	c.put(strings.Replace(mine, `"isActive":true`, `"isActive":false,"x":1`, 1)) // used by atm's hooks
	c.mustLeave(m)
	if c.text() != crewOf() {
		t.Errorf("left %s", c.text())
	}

	// The member is removed while the session lives; it may join again.
	c.mustJoin(c.agent)
	c.put(crewOf())
	wantNil(t, c.mayUse("codex", "codex:ab12", c.holder))
	c.mustJoin(c.agent)
	if c.names() != "codex" {
		t.Errorf("members %s", c.names())
	}
}

// Claude Code removes its team when it exits. Nothing of it may come again by us.
func TestTeamThatVanishes(t *testing.T) {
	c := newCrew(t, claudeTeam)
	m := c.mustJoin(c.agent)
	for _, gone := range []string{c.path, c.dir, filepath.Dir(c.dir)} {
		wantNil(t, os.RemoveAll(gone))
		if gone == c.path { // an empty team directory gets no lock file either
			wantNil(t, os.RemoveAll(filepath.Join(c.dir, "config.lock")))
		}
		if _, err := c.join(c.agent); !errors.Is(err, errNoTeam) || !strings.Contains(err.Error(), `joining team "crew"`) {
			t.Errorf("join: %v", err)
		}
		if _, err := c.list(); !errors.Is(err, errNoTeam) {
			t.Errorf("list: %v", err)
		}
		c.mustLeave(m)
		c.mustSweep()
		if gone == c.path {
			if entries, _ := os.ReadDir(c.dir); len(entries) != 0 {
				t.Errorf("made %v", entries)
			}
		} else if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made again", gone)
		}
	}
}

func TestDamagedTeamIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCrew(t, compactTeam)
	c.file.looks = 3 // nobody is going to finish these
	m := c.mustJoin(c.agent)
	for _, text := range []string{"", "{", claudeTeam[:200], `[]`, `{"members":{}}`, "\x00\x00\x00", `{"members":null}`} {
		c.put(text)
		_, err1 := c.join(c.agent)
		_, _, err2 := c.sweep(context.Background(), c.holder)
		_, err3 := c.list()
		for _, err := range []error{err1, err2, err3, c.leave(context.Background(), m)} {
			if !errors.Is(err, errTeamDamaged) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("%q: %v", text, err)
			}
		}
		if c.text() != text {
			t.Errorf("%q became %q", text, c.text())
		}
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) != 2 { // config.json, config.lock
		t.Errorf("left %v, %v", entries, err)
	}
	wantNil(t, os.Remove(c.path))
	wantNil(t, os.Mkdir(c.path, 0o755))
	if _, err := c.join(c.agent); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
	wantNil(t, os.Remove(c.path))
	c.put(strings.Repeat(" ", maxTeamConfigSize) + compactTeam)
	if _, err := c.join(c.agent); err == nil || !strings.Contains(err.Error(), "over ") {
		t.Errorf("too large: %v", err)
	}
}

// Modes and links are the team's own.
func TestJoinKeepsModeAndLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	c := newCrew(t, claudeTeam)
	real := filepath.Join(t.TempDir(), "real.json")
	wantNil(t, os.Rename(c.path, real))
	wantNil(t, os.Symlink(real, c.path))
	for _, mode := range []os.FileMode{0o600, 0o664, 0o444} {
		wantNil(t, os.Chmod(real, mode))
		m := c.mustJoin(c.agent)
		st, err := os.Lstat(real)
		wantNil(t, err)
		link, err := os.Lstat(c.path)
		wantNil(t, err)
		if st.Mode() != mode || link.Mode()&os.ModeSymlink == 0 || c.names() != "team-lead mate_one codex" {
			t.Errorf("mode %s, link %s, members %s", st.Mode(), link.Mode(), c.names())
		}
		c.mustLeave(m)
	}
}

// A directory that we may not write to is told with what to do.
func TestJoinInAReadOnlyDirectory(t *testing.T) {
	c := newCrew(t, claudeTeam)
	wantNil(t, os.Chmod(c.dir, 0o555))
	t.Cleanup(func() { os.Chmod(c.dir, 0o755) })
	back := asNobody(t, c.dir)
	for _, locked := range []bool{false, true} {
		_, err := c.join(c.agent)
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "make "+c.dir+" writable for this user") {
			t.Errorf("flock file there: %v: %v", locked, err)
		}
		if c.text() != claudeTeam || c.names() != "team-lead mate_one" {
			t.Errorf("members %s", c.names())
		}
		if !locked && os.Getuid() == 0 {
			back()
			touchFile(t, filepath.Join(c.dir, "config.lock")) // 0644 of another user: can be locked, but not the rest
			asNobody(t, c.dir)
		}
	}
}

// claudeTeam is config.json as Claude Code 2.1.197 writes it, with what a reader may not expect.
const claudeTeam = `{
  "name": "crew",
  "createdAt": 1795252642080,
  "leadAgentId": "team-lead@crew",
  "leadSessionId": "e9a98a05-1111-2222-3333-444455556666",
  "hiddenPaneIds": [],
  "ratio": 1.50e+2,
  "members": [
    {
      "agentId": "team-lead@crew",
      "name": "team-lead",
      "agentType": "team-lead",
      "joinedAt": 1795252642080,
      "tmuxPaneId": "leader",
      "cwd": "/w",
      "subscriptions": [],
      "backendType": "in-process",
      "x-unknown": {"b": 1, "a": [1.0, 1e3, "\u00e9<&>"]}
    },
    17,
    {
      "agentId": "mate_one@crew",
      "name": "mate_one",
      "agentType": "general-purpose",
      "joinedAt": 1795252642081,
      "cwd": "/w"
    }
  ],
  "teamAllowedPaths": [{"toolName": "Edit", "path": "/w"}]
}`

const (
	atmTeam     = `{"name":"crew","description":"d","createdAt":1,"leadAgentId":"team-lead@crew","leadSessionId":"","members":[{"agentId":"prepared@crew","name":"prepared","agentType":"codex","model":"unknown","joinedAt":1,"cwd":"/w","isActive":true}],"zzz":0.10}`
	emptyTeam   = "{\n  \"name\": \"crew\",\n  \"members\": []\n}\n"
	compactTeam = `{"members":[]}`
)

// FuzzRoster: whatever is done to our entry, every byte outside of the list and of the other entries stays.
func FuzzRoster(f *testing.F) {
	for _, s := range []string{
		claudeTeam, atmTeam, emptyTeam, compactTeam, "{\"members\":[ ]}\n", `{"members":[1 , 2,3 ],"members":[ {"name":"x"} ]}`, `{"members":[0 ,{}]}`,
		"{\"\\u006dembers\":[\r\n\t{}\r\n]}", `{"members":[[","],{"a":","}]}`, `{"members":{}}`, `[]`, `null`, "", `{"members":[1,]}`, `{"members":[`, "\ufeff{\"members\":[]}",
		`{"members":[{"name":"c","agentType":"codex","atmAgentMcp":{"pid":1}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRoster(text)
		if err != nil {
			return
		}
		var theirs struct {
			Members []json.RawMessage `json:"members"`
		}
		if json.Unmarshal(text, &theirs) == nil && len(theirs.Members) != len(r.elems) && !strings.Contains(strings.ToLower(string(text)), `members"`) {
			t.Fatalf("%d elements, encoding/json finds %d in %q", len(r.elems), len(theirs.Members), text)
		}
		entry := memberEntry{Name: "codex", AgentType: "codex", Mark: memberMark{PID: 1}}
		one := holdsAll(t, r, applyPatches(r.text, []patch{r.with(entry)}), func(int) bool { return false })
		last := len(one.elems) - 1
		if one.members[last].name != "codex" || len(one.elems) != len(r.elems)+1 {
			t.Fatalf("no entry in %q", one.text)
		}
		marked := holdsAll(t, r, applyPatches(one.text, []patch{one.marked(last, memberMark{PID: 22, Host: "h"})}), func(int) bool { return false })
		if m := marked.members[last]; m.mark == nil || m.mark.PID != 22 {
			t.Fatalf("mark %v in %q", m.mark, marked.text)
		}
		back := cutOut(marked, func(i int) bool { return i == last })
		if len(r.elems) > 0 && !bytes.Equal(back, text) {
			t.Fatalf("in and out leaves %q of %q", back, text)
		}
		holdsAll(t, r, back, func(int) bool { return false })
		for k := range min(len(r.elems), 5) {
			holdsAll(t, r, cutOut(r, func(i int) bool { return i == k }), func(i int) bool { return i == k })
			holdsAll(t, r, cutOut(r, func(i int) bool { return i != k }), func(i int) bool { return i != k })
		}
		if same := cutOut(r, func(int) bool { return false }); !bytes.Equal(same, text) {
			t.Fatalf("taking nothing out makes %q of %q", same, text)
		}
	})
}

// holdsAll checks that text has the entries of r but those dropped, byte for byte and in their order, and the rest.
func holdsAll(t *testing.T, r *roster, text []byte, dropped func(int) bool) *roster {
	t.Helper()
	if !json.Valid(text) {
		t.Fatalf("%q is not JSON any more: %q", r.text, text)
	}
	now, err := parseRoster(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if !bytes.Equal(r.text[:r.list.from], text[:now.list.from]) || !bytes.Equal(r.text[r.list.to:], text[now.list.to:]) {
		t.Fatalf("what is around the members changed: %q to %q", r.text, text)
	}
	at := 0
	for i, e := range r.elems {
		if dropped(i) {
			continue
		}
		if at >= len(now.elems) || !bytes.Equal(r.text[e.from:e.to], text[now.elems[at].from:now.elems[at].to]) {
			t.Fatalf("entry %d of %q is not in %q", i, r.text, text)
		}
		at++
	}
	return now
}

// Our entry looks as if the file's writer had made it.
func TestRosterLayout(t *testing.T) {
	for text, want := range map[string]string{
		emptyTeam:   "{\n  \"name\": \"crew\",\n  \"members\": [\n    {\n      \"a\": 1\n    }\n  ]\n}\n",
		compactTeam: `{"members":[{"a":1}]}`,
		atmTeam:     strings.Replace(atmTeam, "true}]", `true},{"a":1}]`, 1),
		claudeTeam:  strings.Replace(claudeTeam, "\"/w\"\n    }\n  ]", "\"/w\"\n    },\n    {\n      \"a\": 1\n    }\n  ]", 1),
	} {
		r, err := parseRoster([]byte(text))
		wantNil(t, err)
		if got := string(applyPatches(r.text, []patch{r.with(map[string]int{"a": 1})})); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

func TestRosterRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "it is empty", " \n": "it is empty", "{": "not valid JSON", "\x00\x00": "not valid JSON", "{} {}": "not valid JSON",
		"\xff{}": "not valid JSON", `[]`: "no list", `"members"`: "no list", `null`: "no list", `{}`: "no list",
		`{"members":{}}`: "no list", `{"members":null}`: "no list", `{"members":[],"members":1}`: "no list",
	} {
		if _, err := parseRoster([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Odd entries are nobody, not an error: a number for a name, a field of our mark's name that is somebody else's.
func TestRosterOddMembers(t *testing.T) {
	r, err := parseRoster([]byte(`{"members":[null,"x",[],{},{"name":7},{"name":"a","agentType":1,"joinedAt":1.50,"atmAgentMcp":"mine"},
		{"name":"b","externalBackendType":"codex","atmAgentMcp":{"pid":"7"}},{"name":"c","agentType":"codex","atmAgentMcp":{"pid":7,"host":"h","agent":"codex:x","leases":"/l"}}]}`))
	wantNil(t, err)
	all := r.named
	if len(all) != 3 || all[0].name != "a" || all[0].mark != nil || all[0].isCodex() || all[0].joinedAt != "1.50" ||
		all[1].mark != nil || !all[1].isCodex() || *all[2].mark != (memberMark{7, "h", "codex:x", "/l"}) {
		t.Errorf("got %+v", all)
	}
	if !slices.ContainsFunc(all, member.isCodex) {
		t.Error("no Codex member")
	}
}

// cutOut is the text without the entries of the places that drop names.
func cutOut(r *roster, drop func(i int) bool) []byte {
	i := -1
	return applyPatches(r.text, r.without(func(member) bool { i++; return drop(i) }))
}
