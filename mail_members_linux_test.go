package main

// mail_members_linux_test.go holds members to several processes that change config.json at
// once, as Claude Code and atm do, and to a directory that isn't ours to write.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A rosterWriter is another program that changes config.json: it puts members of its own in and out, and looks each
// time whether those it left are there.
type rosterWriter struct {
	kind, dir string
	mine      map[string]bool // by name
	lost      int
}

// toggle is one change under the lock: read, check, write.
func (w *rosterWriter) toggle(round int, replace func([]byte) error) error {
	text, err := os.ReadFile(filepath.Join(w.dir, "config.json"))
	if err != nil {
		return err
	}
	var file map[string]json.RawMessage
	var members []json.RawMessage
	if err := errors.Join(json.Unmarshal(text, &file), json.Unmarshal(file["members"], &members)); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, raw := range members {
		var m struct { // atm refuses a file where one of these is missing
			Name, AgentID, AgentType, Model, CWD *string
			JoinedAt                             *int64
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		if m.Name == nil || m.AgentID == nil || m.AgentType == nil || m.Model == nil || m.CWD == nil || m.JoinedAt == nil {
			return fmt.Errorf("a strict reader refuses %s", raw)
		}
		there[*m.Name] = true
	}
	for name, in := range w.mine {
		if there[name] != in {
			w.lost++
			fmt.Printf("LOST by %s: %s is listed: %v\n", w.kind, name, there[name])
		}
	}
	name := fmt.Sprintf("%s-%d", w.kind, round%5)
	if there[name] {
		members = slices.DeleteFunc(members, func(raw json.RawMessage) bool { return stringField(raw, "name") == name })
	} else {
		members = append(members, json.RawMessage(fmt.Sprintf(`{"agentId":"%s@crew","name":%q,"agentType":"general-purpose","model":"m","joinedAt":1,"cwd":"/w","round":%d.0}`, name, name, round)))
	}
	w.mine[name] = !there[name]
	file["members"] = toJSON(members)
	out, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return replace(out)
}

// asClaude locks and writes as Claude Code 2.1.197: a directory, ten tries, truncate and write. false: no lock.
func (w *rosterWriter) asClaude(round int) (bool, error) {
	lock := filepath.Join(w.dir, "config.json.lock")
	for _, ms := range []int{5, 10, 20, 40, 80, 100, 100, 100, 100, 100, 0} {
		err := os.Mkdir(lock, 0o755)
		if err == nil {
			defer os.Remove(lock)
			return true, w.toggle(round, func(out []byte) error { return os.WriteFile(filepath.Join(w.dir, "config.json"), out, 0o644) })
		}
		if !errors.Is(err, os.ErrExist) {
			return false, err
		}
		<-time.After(time.Duration(ms) * time.Millisecond) // its pace
	}
	return false, nil
}

// asATM locks and writes as atm 0.46: a flock, one fixed temporary file, fsync, an exchange.
func (w *rosterWriter) asATM(round int) (bool, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, "config.lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for _, ms := range []int{50, 100, 200, 400, 800, 800, 800, 800, 800, 800, 0} {
		err := lockFile(f, true, false)
		if err == nil {
			defer unlockFile(f)
			return true, w.toggle(round, func(out []byte) error {
				temp, path := filepath.Join(w.dir, "config.tmp"), filepath.Join(w.dir, "config.json")
				if err := os.WriteFile(temp, out, 0o644); err != nil {
					return err
				}
				if err := errors.Join(syncFile(temp), unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)); err != nil {
					return err
				}
				return os.Remove(temp)
			})
		}
		if !errors.Is(err, errLocked) {
			return false, err
		}
		<-time.After(time.Duration(ms) * time.Millisecond) // its pace
	}
	return false, nil
}

// asWe joins and leaves with the sessions of one process.
func (w *rosterWriter) asWe(rounds int) error {
	t := newTeamFile(filepath.Dir(w.dir), "crew", "/leases")
	holder := func(string) (string, int, bool) { return "", os.Getpid(), true }
	in := map[string]membership{}
	for round := range rounds {
		all, err := t.list()
		if err != nil {
			return err
		}
		for name := range in {
			if !slices.ContainsFunc(all, func(m member) bool { return m.name == name }) {
				w.lost++
				fmt.Printf("LOST by %s: %s\n", w.kind, name)
			}
		}
		name := fmt.Sprintf("%s-%d", w.kind, round%5)
		if m, ok := in[name]; ok {
			err = t.leave(context.Background(), m)
			delete(in, name)
		} else {
			in[name], err = t.join(context.Background(), newMember{name: name, agentID: "codex:" + name, cwd: "/w"}, holder)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestRosterWriterHelper is no test: it is one of the processes of TestTeamBesideOtherWriters.
func TestRosterWriterHelper(t *testing.T) {
	kind, dir := os.Getenv("ATM_TEST_WRITER"), os.Getenv("ATM_TEST_TEAM_DIR")
	if kind == "" {
		t.Skip("runs only as a child of other tests")
	}
	w := &rosterWriter{kind: kind, dir: dir, mine: map[string]bool{}}
	const rounds = 105 // an odd number of times each: all are in at the end
	how, unlocked := w.asClaude, 0
	switch kind {
	case "atm":
		how = w.asATM
	case "we", "we2":
		wantNil(t, w.asWe(rounds))
		how = nil
	}
	for round := 0; how != nil && round < rounds; {
		done, err := how(round)
		wantNil(t, err)
		if done {
			round++
		} else if unlocked++; unlocked > 50 {
			t.Fatal("never got the lock")
		}
	}
	fmt.Printf("LOST-TOTAL %d\n", w.lost)
}

// Two of our processes and one of the other programs: nobody's change is lost. Claude Code and atm together lose
// each other's, which isn't ours to mend.
func TestTeamBesideOtherWriters(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"claude", "atm"} {
		t.Run(other, func(t *testing.T) {
			text := crewOf(`{"agentId":"x@crew","name":"x","agentType":"y","model":"m","joinedAt":1,"cwd":"/","odd":1.50e+2}`)
			path := writeTeam(t, t.TempDir(), "crew", text)
			kinds := []string{other, "we", "we2"}
			outs := make([]bytes.Buffer, len(kinds))
			var cmds []*exec.Cmd
			for i, kind := range kinds {
				cmd := exec.Command(os.Args[0], "-test.run=^TestRosterWriterHelper$")
				cmd.Env = append(os.Environ(), "ATM_TEST_WRITER="+kind, "ATM_TEST_TEAM_DIR="+filepath.Dir(path), "GORACE=atexit_sleep_ms=10")
				cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
				wantNil(t, cmd.Start())
				cmds = append(cmds, cmd)
			}
			for i, cmd := range cmds {
				if err := cmd.Wait(); err != nil || !strings.Contains(outs[i].String(), "LOST-TOTAL 0\n") {
					t.Errorf("%s: %v\n%s", kinds[i], err, outs[i].String())
				}
			}
			final, err := os.ReadFile(path)
			wantNil(t, err)
			r, err := parseRoster(final)
			wantNil(t, err)
			var names []string
			for _, m := range r.named {
				names = append(names, m.name)
			}
			slices.Sort(names)
			want := []string{"x"}
			for _, kind := range kinds {
				for i := range 5 {
					want = append(want, fmt.Sprintf("%s-%d", kind, i))
				}
			}
			slices.Sort(want)
			if !slices.Equal(names, want) || !bytes.Contains(final, []byte("1.50e+2")) {
				t.Errorf("members at the end: %v\nwant %v", names, want)
			}
		})
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
