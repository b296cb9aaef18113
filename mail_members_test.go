package main

// mail_members_test.go holds joining and leaving to whose entry is whose: ours, one prepared for us, another's, a dead
// process's; to a team that is damaged or gone; the text of config.json to what nobody may change, every byte but our
// own
// entry; and the changing of a shared file to its locks, and to the writers that take none. A crew is a team with
// leases
// that the test decides on.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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
	wantNil(t, os.Chmod(path, 0o644)) // as others write it
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

func (c *crew) join() (membership, error) {
	return c.teamFile.join(c.t.Context(), c.agent, c.holder)
}

// joinSoon has little patience: for locks that nobody will give up.
func (c *crew) joinSoon() (membership, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Millisecond)
	defer cancel()
	return c.teamFile.join(ctx, c.agent, c.holder)
}

func (c *crew) mustJoin() membership {
	c.t.Helper()
	got, err := c.join()
	wantNil(c.t, err)
	return got
}

func (c *crew) mustLeave(s ...membership) {
	c.t.Helper()
	wantNil(c.t, c.leave(c.t.Context(), s...))
}

func (c *crew) mustSweep() int {
	c.t.Helper()
	c.tidy()
	n, _, err := c.sweep(c.t.Context(), c.holder)
	wantNil(c.t, err)
	return n
}

// put replaces the file as a person with an editor would.
func (c *crew) put(text string) {
	c.t.Helper()
	wantNil(c.t, os.WriteFile(c.path, []byte(text), 0o644))
}

func (c *crew) text() string { return readText(c.t, c.path) }

// holds checks the text of config.json.
func (c *crew) holds(want string) {
	c.t.Helper()
	if got := c.text(); got != want {
		c.t.Errorf("config.json is %s\nwant %s", got, want)
	}
}

// namesIn are the members in a config.json, in their order.
func namesIn(t *testing.T, path string) (names []string) {
	t.Helper()
	r, err := parseRoster([]byte(readText(t, path)))
	wantNil(t, err)
	for _, m := range r.named {
		names = append(names, m.name)
	}
	return names
}

// names are the members as list tells them.
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

func (c *crew) members(want string) {
	c.t.Helper()
	if got := c.names(); got != want {
		c.t.Errorf("members %s, want %s", got, want)
	}
}

// deadPID is a process that was and is no more.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := testChild("")
	wantNil(t, cmd.Run())
	return cmd.Process.Pid
}

// otherPID is the number of a living process that isn't this one.
func otherPID(t *testing.T) int {
	t.Helper()
	if pid := os.Getppid(); pid != 0 {
		return pid
	}
	p := startTest(t, "TestSysHelper", "ATM_TEST_SYS=wait") // under Wine, a program of Linux is nobody's parent
	t.Cleanup(p.group.close)
	t.Cleanup(p.group.kill)
	p.line(t)
	return p.cmd.Process.Pid
}

// backdate makes a file so old that nobody waits for whoever made it.
func backdate(t *testing.T, path string) {
	t.Helper()
	wantNil(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
}

// markedEntry is an entry that another process added.
func markedEntry(name string, pid int, host, leases string) string {
	return fmt.Sprintf(`{"agentId":"%s@crew","name":%q,"agentType":"codex",`+
		`"atmAgentMcp":{"pid":%d,"host":%q,"agent":"codex:old1","leases":%q}}`,
		name, name, pid, host, leases)
}

func crewOf(entries ...string) string {
	return `{"name":"crew","members":[` + strings.Join(entries, ",") + `],"after":1.0}`
}

// claudeTeam is config.json as Claude Code 2.1.197 writes it, with what a reader may not expect.
const claudeTeam = `{
  "name": "crew",
  "createdAt": 1795252642080,
  "leadAgentId": "team-lead@crew",
  "ratio": 1.50e+2,
  "members": [
    {
      "agentId": "team-lead@crew",
      "name": "team-lead",
      "agentType": "team-lead",
      "joinedAt": 1795252642080,
      "x-unknown": {"b": 1, "a": [1.0, 1e3, "\u00e9<&>"]}
    },
    17,
    {
      "agentId": "mate_one@crew",
      "name": "mate_one",
      "agentType": "general-purpose",
      "cwd": "/w"
    }
  ],
  "teamAllowedPaths": [{"toolName": "Edit", "path": "/w"}]
}`

const (
	atmTeam = `{"name":"crew","createdAt":1,"leadSessionId":"","members":[{"agentId":"prepared@crew","name":"prepared",` +
		`"agentType":"codex","model":"unknown","joinedAt":1,"cwd":"/w","isActive":true}],"zzz":0.10}`
	emptyTeam   = "{\n  \"name\": \"crew\",\n  \"members\": []\n}\n"
	compactTeam = `{"members":[]}`
)

func TestJoinAndLeave(t *testing.T) {
	for _, text := range []string{claudeTeam, atmTeam, compactTeam} {
		c := newCrew(t, text)
		if c.mustSweep() != 0 {
			t.Error("somebody was swept out")
		}
		c.holds(text)
		m := c.mustJoin()
		if !strings.HasSuffix(" "+c.names(), " codex") || !m.added || m.name != "codex" {
			t.Errorf("members %s, %+v", c.names(), m)
		}
		joined := c.text()
		if again := c.mustJoin(); again != m {
			t.Errorf("joining twice: %+v", again)
		}
		wantNil(t, c.mayUse("codex", c.agent.agentID, c.holder))
		if c.mustSweep() != 0 {
			t.Error("the entry of a live session was swept")
		}
		c.holds(joined)
		c.mustLeave(m)
		c.holds(text)
		c.mustLeave(m)
	}
}

// Both programs must read the entry: atm is strict about six fields, Claude Code writes the others in its own.
func TestJoinedEntry(t *testing.T) {
	c := newCrew(t, compactTeam)
	c.mustJoin()
	c.agent.name, c.agent.model, c.agent.sessionID = "codex-2", "", ""
	c.mustJoin()
	host, _ := os.Hostname()
	const ms = `"$re:^1[0-9]{12}$"`
	hasFields(t, json.RawMessage(c.text()), fmt.Sprintf(`{"members":[{"agentId":"codex@crew","name":"codex",
	"agentType":"codex","model":"o3","cwd":"/w",
		"tmuxPaneId":"","subscriptions":[],"isActive":true,"sessionId":"thread-1","externalBackendType":"codex",
		"externalModel":"custom:o3",
		"joinedAt":%s,"lastActive":%s,"atmAgentMcp":{"pid":%d,"host":%q,"agent":"codex:ab12","leases":"/leases"}},
		{"name":"codex-2","model":"unknown","externalModel":"unknown","sessionId":"$absent"}]}`,
		ms, ms, os.Getpid(), host))
}

// An entry that `atm add-member` prepared is used as it stands, and stays.
func TestJoinAdopts(t *testing.T) {
	c := newCrew(t, crewOf(`{"agentId":"codex@crew","name":"Codex","externalBackendType":"codex"}`))
	before := c.text()
	m := c.mustJoin()
	if m.added || m.name != "Codex" {
		t.Errorf("got %+v", m)
	}
	wantNil(t, c.mayUse("codex", "codex:ab12", c.holder))
	c.mustLeave(m)
	delete(c.held, "codex")
	c.mustSweep()
	c.holds(before)
}

func TestJoinIsTaken(t *testing.T) {
	host, _ := os.Hostname()
	us, other := os.Getpid(), otherPID(t)
	inUse := fmt.Sprintf("in use by process %d", other)
	for _, c := range []struct {
		entry string
		held  int
		want  string
	}{
		{`{"name":"CODEX","agentType":"general-purpose"}`, us, `agentType is "general-purpose"`},
		{`{"name":"codex"}`, us, `no Codex agent`},
		{`{"name":"codex","agentType":"codex"}`, other, inUse},
		{markedEntry("codex", other, host, "/other"), us, inUse},
		{markedEntry("codex", deadPID(t), "far-away", "/other"), us, "in use by process"},
	} {
		w := newCrew(t, crewOf(c.entry))
		w.held["codex"] = c.held
		_, err := w.join()
		if !errors.As(err, new(*memberTaken)) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "choose another identity") {
			t.Errorf("%s: %v", c.entry, err)
		}
		if err := w.mayUse("codex", "codex:ab12", w.holder); !errors.As(err, new(*memberTaken)) {
			t.Errorf("%s: its inbox may be read: %v", c.entry, err)
		}
		w.holds(crewOf(c.entry))
	}
	w := newCrew(t, `{"leadAgentId":"boss@crew","members":[]}`) // Claude Code may list its lead later
	if err := w.mayUse("Boss", "codex:ab12", w.holder); !errors.As(err, new(*memberTaken)) {
		t.Errorf("the lead's name: %v", err)
	}
	w = newCrew(t, compactTeam)
	w.agent.name = "Main"
	if _, err := w.join(); err == nil {
		t.Error("the name that Claude Code keeps was taken")
	}
	w.holds(compactTeam)
}

// A crash leaves the entry; the same identity takes it over, and takes it out when it leaves.
func TestJoinAfterACrash(t *testing.T) {
	host, _ := os.Hostname()
	for name, entry := range map[string]string{
		"lease free, though the pid is another's now": markedEntry("codex", otherPID(t), host, "/leases"),
		"lease free, another machine":                 markedEntry("codex", 1, "container-1", "/leases"),
		"leases elsewhere, process dead":              markedEntry("codex", deadPID(t), host, "/other"),
	} {
		other := `{"name":"x","y":1.50}`
		c := newCrew(t, crewOf(entry, other))
		m := c.mustJoin()
		if !m.added || !strings.Contains(c.text(), fmt.Sprintf(`"agentType":"codex","atmAgentMcp":{"pid":%d,`,
			os.Getpid())) {
			t.Errorf("%s: %+v, %s", name, m, c.text())
		}
		c.mustLeave(m)
		c.holds(crewOf(other))
	}
}

func TestSweep(t *testing.T) {
	host, _ := os.Hostname()
	dead, other := deadPID(t), otherPID(t)
	stay := []string{
		`{"name":"prepared","agentType":"codex"}`, `{"name":"mate","agentType":"general-purpose"}`, `5`,
		markedEntry("busy", other, host, "/leases"),
		markedEntry("elsewhere", other, host, "/other"), markedEntry("far", dead, "far-away", "/other"),
		strings.Replace(markedEntry("notours", dead, host, "/leases"), `"agentType":"codex"`, `"agentType":"x"`, 1),
	}
	all := append([]string{markedEntry("crashed", dead, host, "/leases"),
		markedEntry("crashed2", 1, "old-container", "/leases")}, stay...)
	c := newCrew(t, crewOf(append(all, markedEntry("crashed3", dead, host, "/other"))...))
	c.held["busy"] = other
	unfinished := c.path + ".tmp.123"
	touchFile(t, unfinished)
	backdate(t, unfinished)
	if n := c.mustSweep(); n != 3 {
		t.Errorf("%d removed", n)
	}
	c.holds(crewOf(stay...))
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file of a crash is there: %v", err)
	}
}

// What leave finds may not be what join left.
func TestLeaveAfterOthersChanges(t *testing.T) {
	c := newCrew(t, crewOf())
	m := c.mustJoin()
	mine := c.text()
	mark := strings.Index(mine, `,"atmAgentMcp"`)
	anew := crewOf(`{"name":"codex","agentType":"codex","joinedAt":1}`)
	next := strings.Replace(mine, `"codex:ab12"`, `"codex:next"`, 1)
	for _, c2 := range []struct{ found, left string }{
		{anew, anew}, // removed, and prepared by somebody
		{mine[:mark] + "}" + mine[strings.Index(mine, `}}`)+2:],
			crewOf()}, // by a writer that keeps no field it doesn't know
		{next, next}, // another session has the identity by now
		{strings.Replace(mine, `"isActive":true`, `"isActive":false,"x":1`, 1), crewOf()}, // used by atm's hooks
	} {
		c.put(c2.found)
		c.mustLeave(m)
		c.holds(c2.left)
	}
	// The member is removed while the session lives; it may join again.
	c.mustJoin()
	c.put(crewOf())
	wantNil(t, c.mayUse("codex", "codex:ab12", c.holder))
	c.mustJoin()
	c.members("codex")
}

// Claude Code removes its team when it exits. Nothing of it may come again by us.
func TestTeamThatVanishes(t *testing.T) {
	c := newCrew(t, claudeTeam)
	m := c.mustJoin()
	wantNil(t, os.Remove(filepath.Join(c.dir, "config.lock"))) // an empty team directory gets no lock file either
	for _, gone := range []string{c.path, c.dir, filepath.Dir(c.dir)} {
		wantNil(t, os.RemoveAll(gone))
		before := filesUnder(filepath.Dir(filepath.Dir(c.dir)))
		if _, err := c.join(); !errors.Is(err, errNoTeam) || !strings.Contains(err.Error(), `joining team "crew"`) {
			t.Errorf("join: %v", err)
		}
		if _, err := c.list(); !errors.Is(err, errNoTeam) {
			t.Errorf("list: %v", err)
		}
		c.mustLeave(m)
		c.mustSweep()
		if after := filesUnder(filepath.Dir(filepath.Dir(c.dir))); len(after) != len(before) {
			t.Errorf("%q became %q", before, after)
		}
	}
}

func TestDamagedTeamIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCrew(t, compactTeam)
	c.file.looks = 3 // nobody is going to finish these
	m := c.mustJoin()
	for _, text := range []string{"", "{", claudeTeam[:200], `[]`, `{"members":{}}`, "\x00\x00\x00",
		`{"members":null}`} {
		c.put(text)
		_, err1 := c.join()
		_, _, err2 := c.sweep(t.Context(), c.holder)
		_, err3 := c.list()
		for _, err := range []error{err1, err2, err3, c.leave(t.Context(), m)} {
			if !errors.Is(err, errTeamDamaged) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("%q: %v", text, err)
			}
		}
		c.holds(text)
	}
	if files := filesUnder(c.dir); len(files) != 3 { // the directory, config.json, config.lock
		t.Errorf("left %q", files)
	}
	wantNil(t, os.Remove(c.path))
	wantNil(t, os.Mkdir(c.path, 0o755))
	if _, err := c.join(); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
	wantNil(t, os.Remove(c.path))
	c.put(strings.Repeat(" ", maxTeamConfigSize) + compactTeam)
	if _, err := c.join(); err == nil || !strings.Contains(err.Error(), "over ") {
		t.Errorf("too large: %v", err)
	}
}

// Modes and links are the team's own. A directory that we may not write to is told with what to do.
func TestJoinKeepsModeAndLink(t *testing.T) {
	needUnix(t, "no modes")
	c := newCrew(t, claudeTeam)
	real := filepath.Join(t.TempDir(), "real.json")
	wantNil(t, os.Rename(c.path, real))
	wantNil(t, os.Symlink(real, c.path))
	for _, mode := range []os.FileMode{0o600, 0o664, 0o444} {
		wantNil(t, os.Chmod(real, mode))
		m := c.mustJoin()
		c.members("team-lead mate_one codex")
		st, err := os.Lstat(real)
		wantNil(t, err)
		link, err := os.Lstat(c.path)
		wantNil(t, err)
		if st.Mode() != mode || link.Mode()&os.ModeSymlink == 0 {
			t.Errorf("mode %s, link %s", st.Mode(), link.Mode())
		}
		c.mustLeave(m)
	}

	for _, locked := range []bool{false, true} {
		c := newCrew(t, claudeTeam)
		if locked { // 0644 of another user: can be locked, but not the rest
			touchFile(t, filepath.Join(c.dir, "config.lock"))
		}
		wantNil(t, os.Chmod(c.dir, 0o555))
		t.Cleanup(func() { os.Chmod(c.dir, 0o755) })
		back := asNobody(t, c.dir)
		if _, err := c.join(); !errors.Is(err, os.ErrPermission) ||
			!strings.Contains(err.Error(), "make "+c.dir+" writable for this user") {
			t.Errorf("flock file there: %v: %v", locked, err)
		}
		c.holds(claudeTeam)
		back()
	}
}

// FuzzRoster: whatever is done to our entry, every byte outside of the list and of the other entries stays.
func FuzzRoster(f *testing.F) {
	for _, s := range []string{
		claudeTeam, atmTeam, emptyTeam, compactTeam, "{\"members\":[ ]}\n",
		`{"members":[1 , 2,3 ],"members":[ {"name":"x"} ]}`,
		`{"members":[0 ,{}]}`, "{\"\\u006dembers\":[\r\n\t{}\r\n]}", `{"members":[[","],{"a":","}]}`, `{"members":{}}`,
		`[]`, `null`, "",
		`{"members":[1,]}`, `{"members":[`, "\ufeff{\"members\":[]}",
		`{"members":[{"name":"c","agentType":"codex","atmAgentMcp":{"pid":1}}]}`,
	} {
		f.Add([]byte(s))
	}
	none := func(int) bool { return false }
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRoster(text)
		if err != nil {
			return
		}
		var theirs struct {
			Members []json.RawMessage `json:"members"`
		}
		if json.Unmarshal(text, &theirs) == nil && len(theirs.Members) != len(r.elems) &&
			!strings.Contains(strings.ToLower(string(text)), `members"`) {
			t.Fatalf("%d elements, encoding/json finds %d in %q", len(r.elems), len(theirs.Members), text)
		}
		one := holdsAll(t, r, applyPatches(r.text, []patch{r.with(memberEntry{Name: "codex", AgentType: "codex",
			Mark: memberMark{PID: 1}})}), none)
		last := len(one.elems) - 1
		if one.members[last].name != "codex" || len(one.elems) != len(r.elems)+1 {
			t.Fatalf("no entry in %q", one.text)
		}
		marked := holdsAll(t, r, applyPatches(one.text, []patch{one.marked(last, memberMark{PID: 22, Host: "h"})}),
			none)
		if m := marked.members[last]; m.mark == nil || m.mark.PID != 22 {
			t.Fatalf("mark %v in %q", m.mark, marked.text)
		}
		back := cutOut(marked, func(i int) bool { return i == last })
		if len(r.elems) > 0 && !bytes.Equal(back, text) {
			t.Fatalf("in and out leaves %q of %q", back, text)
		}
		holdsAll(t, r, back, none)
		for k := range min(len(r.elems), 5) {
			holdsAll(t, r, cutOut(r, func(i int) bool { return i == k }), func(i int) bool { return i == k })
			holdsAll(t, r, cutOut(r, func(i int) bool { return i != k }), func(i int) bool { return i != k })
		}
		if same := cutOut(r, none); !bytes.Equal(same, text) {
			t.Fatalf("taking nothing out makes %q of %q", same, text)
		}
	})
}

// cutOut is the text without the entries of the places that drop names.
func cutOut(r *roster, drop func(i int) bool) []byte {
	i := -1
	return applyPatches(r.text, r.without(func(member) bool {
		i++
		return drop(i)
	}))
}

// holdsAll checks that text has the entries of r but those dropped, byte for byte and in their order, and the rest.
func holdsAll(t *testing.T, r *roster, text []byte, dropped func(int) bool) *roster {
	t.Helper()
	now, err := parseRoster(text)
	if err != nil || !json.Valid(text) {
		t.Fatalf("%q became %q: %v", r.text, text, err)
	}
	if !bytes.Equal(r.text[:r.list.from], text[:now.list.from]) ||
		!bytes.Equal(r.text[r.list.to:], text[now.list.to:]) {
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

// Our entry looks as if the file's writer had made it. What is no team is refused in words; odd entries are nobody, not
// an error: a number for a name, a field of our mark's name that is somebody else's.
func TestRoster(t *testing.T) {
	for text, want := range map[string]string{
		emptyTeam:   "{\n  \"name\": \"crew\",\n  \"members\": [\n    {\n      \"a\": 1\n    }\n  ]\n}\n",
		compactTeam: `{"members":[{"a":1}]}`,
		atmTeam:     strings.Replace(atmTeam, "true}]", `true},{"a":1}]`, 1),
		claudeTeam: strings.Replace(claudeTeam, "\"/w\"\n    }\n  ]",
			"\"/w\"\n    },\n    {\n      \"a\": 1\n    }\n  ]", 1),
	} {
		r, err := parseRoster([]byte(text))
		wantNil(t, err)
		if got := string(applyPatches(r.text, []patch{r.with(map[string]int{"a": 1})})); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	for text, want := range map[string]string{
		" \n": "it is empty", "{": "not valid JSON", "\x00\x00": "not valid JSON", "{} {}": "not valid JSON",
		"\xff{}":    "not valid JSON",
		`"members"`: "no list", `null`: "no list", `{}`: "no list", `{"members":[],"members":1}`: "no list",
	} {
		if _, err := parseRoster([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	r, err := parseRoster([]byte(`{"members":[null,"x",[],{},{"name":7},{"name":"a","agentType":1,"joinedAt":1.50,
	"atmAgentMcp":"mine"},
		{"name":"b","externalBackendType":"codex","atmAgentMcp":{"pid":"7"}},
		{"name":"c","agentType":"codex","atmAgentMcp":{"pid":7,"host":"h","agent":"codex:x","leases":"/l"}}]}`))
	wantNil(t, err)
	all := r.named
	if len(all) != 3 || all[0].name != "a" || all[0].mark != nil || all[0].isCodex() || all[0].joinedAt != "1.50" ||
		all[1].mark != nil || !all[1].isCodex() || *all[2].mark != (memberMark{7, "h", "codex:x", "/l"}) {
		t.Errorf("got %+v", all)
	}
}

// Claude Code holds its lock while the file is empty and half written: whoever waits for the lock sees the whole. Some
// of
// its writes take no lock: one that comes between reading and writing is not written over.
func TestUpdateBesideAnotherWriter(t *testing.T) {
	c := newCrew(t, claudeTeam)
	two := strings.Replace(claudeTeam, "mate_one", "mate_two", 2)
	wantNil(t, os.Mkdir(c.path+".lock", 0o755))
	c.put(claudeTeam[:100])
	done := make(chan error, 1)
	go func() {
		_, err := c.join()
		done <- err
	}()
	c.put(two)
	wantNil(t, os.Remove(c.path+".lock"))
	wantNil(t, <-done)
	c.members("team-lead mate_two codex")

	c.put(claudeTeam)
	calls := 0
	add := func(before func()) error {
		return c.update(t.Context(), func(r *roster) ([]patch, error) {
			calls++
			before()
			return []patch{r.with(map[string]string{"name": "codex"})}, nil
		})
	}
	wantNil(t, add(func() {
		if calls == 1 {
			c.put(two)
		}
	}))
	if c.members("team-lead mate_two codex"); calls != 2 {
		t.Errorf("%d calls", calls)
	}
	// One who never stops is told of, and nothing is written over.
	if err := add(func() { c.put(crewOf(fmt.Sprintf(`{"name":"m%d"}`, calls))) }); !errors.Is(err, errTeamBusy) {
		t.Error(err)
	}
	c.members(fmt.Sprint("m", calls))

	// A process that was stopped for long finds its lock taken for stale, and neither writes nor frees another's.
	lock := c.path + ".lock"
	calls = 0
	err := add(func() {
		if calls <= sharedLoose {
			c.put(claudeTeam + strings.Repeat(" ", calls))
			return
		}
		wantNil(t, os.Mkdir(lock+".new", 0o755)) // now both locks are held; beside the old one, so that it is another
		wantNil(t, os.Remove(lock))
		wantNil(t, os.Rename(lock+".new", lock))
	})
	if _, err2 := os.Lstat(lock); !errors.Is(err, errTeamBusy) || err2 != nil {
		t.Errorf("%v, or another's lock was removed: %v", err, err2)
	}
	c.members("team-lead mate_one")
}

// Who opened the file before it was replaced, and writes afterwards, writes into the displaced one: that text, if it is
// whole, is the newest, and our change is made in it again.
func TestWriteIntoTheDisplacedFile(t *testing.T) {
	t.Parallel()
	notUnderWine(t, "nothing is renamed over a file that is open")
	for text, want := range map[string]string{
		claudeTeam: "team-lead mate_one codex", "": "team-lead mate_one codex",
		claudeTeam[:50]: "team-lead mate_one codex",
		strings.Replace(claudeTeam, "mate_one", "mate_two", 2): "team-lead mate_two codex",
	} {
		c := newCrew(t, claudeTeam)
		old, err := openShared(c.path, os.O_RDWR, 0)
		wantNil(t, err)
		defer old.Close()
		late := false
		c.file.placed = func() {
			if !late {
				late = true
				wantNil(t, old.Truncate(0))
				_, err := old.WriteAt([]byte(text), 0)
				wantNil(t, err)
			}
		}
		if c.mustJoin(); !late {
			t.Error("nothing was displaced")
		}
		c.members(want)
	}
}

// The list is kept while the file is the same, and never longer: two writes within a tick have the same time.
func TestListIsFresh(t *testing.T) {
	t.Parallel()
	c := newCrew(t, crewOf())
	for i := range 200 {
		want := fmt.Sprint("m", 100+i)
		c.put(crewOf(fmt.Sprintf(`{"name":%q}`, want)))
		if i%3 == 0 {
			_ = c.names()
		}
		c.members(want)
	}
	backdate(t, c.path)
	_ = c.names()
	first, err := c.list()
	wantNil(t, err)
	second, err := c.list()
	wantNil(t, err)
	if &first[0] != &second[0] {
		t.Error("an unchanged file was read again")
	}
	c.put(crewOf(`{"name":"new"}`))
	c.members("new")
}

// Who gives up waiting for atm's lock leaves its place to the next caller, and a lock that nobody wants is free.
func TestLockQueueGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arch.lock")
	open := func() (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) }
	locked := func() *os.File {
		f, err := open()
		wantNil(t, err)
		wantNil(t, lockFile(f, true, true))
		return f
	}
	other := locked()
	var q lockQueue
	opened := 0
	take := func(ctx context.Context) (*os.File, error) {
		return q.take(ctx, func() (*os.File, error) {
			opened++
			return open()
		})
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if f, err := take(over); !errors.Is(err, context.Canceled) {
			t.Fatalf("a lock that another holds was taken: %v, %v", f, err)
		}
	}
	if opened != 1 {
		t.Errorf("%d waits stand before the file, want 1", opened)
	}
	dropFlock(other)
	f, err := take(t.Context())
	wantNil(t, err)
	dropFlock(f)

	other = locked()
	if _, err := take(over); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	dropFlock(other)
	dropFlock(locked()) // would hang if the abandoned wait kept what it got
}

// A writer that takes atm's lock again a moment after it has freed it doesn't keep others out, though who looks every
// few
// milliseconds hardly ever finds it free. (A writer without that moment is let past by the kernel as often as not:
// flock
// wakes who waits, and gives the lock to whoever comes first.)
func TestMailPastRestlessWriter(t *testing.T) {
	l := newMailLab(t)
	l.patience = waitLimit(t)
	f, err := os.Create(strings.TrimSuffix(l.path, "json") + "lock")
	wantNil(t, err)
	defer f.Close()
	wantNil(t, lockFile(f, true, true))
	ctx, cancel := context.WithCancel(t.Context())
	var restless sync.WaitGroup
	defer restless.Wait()
	defer cancel()
	var holds atomic.Int64
	restless.Go(func() {
		busy := make([]byte, 1<<20)
		for ctx.Err() == nil {
			for start := time.Now(); time.Since(start) < 10*time.Millisecond; { // holds it, at work
				clear(busy)
			}
			unlockFile(f)
			time.Sleep(200 * time.Microsecond)
			if err := lockFile(f, true, true); err != nil {
				t.Error(err)
				return
			}
			holds.Add(1)
		}
		unlockFile(f)
	})
	const messages = 5
	for range messages {
		l.post("a", "x")
	}
	if n := holds.Load(); n > 120*messages {
		t.Errorf("%d messages came past %d holds", messages, n)
	}
}

func TestTeamLocks(t *testing.T) {
	c := newCrew(t, claudeTeam)
	dirLock, flock := c.path+".lock", filepath.Join(c.dir, "config.lock")
	busy := func(what, want string) {
		t.Helper()
		if _, err := c.joinSoon(); !errors.Is(err, errTeamBusy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
		c.holds(claudeTeam)
	}
	lockDir := func(at time.Time) {
		wantNil(t, os.Mkdir(dirLock, 0o755))
		wantNil(t, os.Chtimes(dirLock, at, at))
	}
	lockDir(time.Now())
	busy("Claude Code's lock is held", dirLock)
	backdate(t, dirLock)
	c.mustLeave(c.mustJoin()) // stale: taken over
	if _, err := os.Lstat(dirLock); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock is still there: %v", err)
	}
	lockDir(time.Now())
	touchFile(t, filepath.Join(dirLock, "x"))
	backdate(t, dirLock)
	busy("a stale lock that isn't empty", dirLock)
	wantNil(t, os.RemoveAll(dirLock))
	lockDir(time.Now().Add(time.Hour)) // a clock that was wrong made it: it is no fresher than one of last year
	c.mustLeave(c.mustJoin())

	touchFile(t, dirLock)
	if _, err := c.join(); err == nil || errors.Is(err, errTeamBusy) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a file where Claude Code's lock should be: %v", err)
	}
	wantNil(t, os.Remove(dirLock))

	f, err := os.OpenFile(flock, os.O_RDWR, 0)
	wantNil(t, err)
	wantNil(t, lockFile(f, true, false))
	busy("atm's lock is held", flock)
	if _, err := os.Lstat(dirLock); !errors.Is(err, os.ErrNotExist) {
		t.Error("the second lock was taken before the first")
	}
	dropFlock(f)
	c.mustLeave(c.mustJoin())
	wantNil(t, os.Remove(flock))
	wantNil(t, os.Mkdir(flock, 0o755))
	if _, err := c.join(); err == nil || !strings.Contains(err.Error(), flock) {
		t.Errorf("a directory where atm's lock should be: %v", err)
	}
}

// A lock of ours that a kill left is taken over when it is a second old; Claude Code's, and one of ours that is
// younger, is not.
func TestDeadProcessLock(t *testing.T) {
	needUnix(t, "directories have no mode there: its locks are stale after ten seconds")
	c := newCrew(t, claudeTeam)
	dirLock := c.path + ".lock"
	busy := func(what string) {
		t.Helper()
		if _, err := c.joinSoon(); !errors.Is(err, errTeamBusy) {
			t.Errorf("%s: %v", what, err)
		}
		wantNil(t, os.Remove(dirLock))
	}
	_, err := takeDirLock(t.Context(), c.path)
	wantNil(t, err)
	busy("a lock that is just held")
	_, err = takeDirLock(t.Context(), c.path)
	wantNil(t, err)
	ageFile(t, dirLock, 2*dirLockLeft)
	m, err := c.joinSoon()
	wantNil(t, err)
	c.mustLeave(m)
	wantNil(t, os.Mkdir(dirLock, 0o755))
	ageFile(t, dirLock, 2*dirLockLeft)
	busy("Claude Code's lock")
}
