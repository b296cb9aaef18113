package main

// mail_peers_test.go owns the other two programs that write a team's files, as they were measured to behave: Claude Code
// 2.1.197 and atm 0.46. Each takes only its own lock, waits as long and as often, and writes in its own way.
// Its tests hold inboxes and config.json to them at full speed, and to a process that dies: nothing is lost.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
)

// claudeWiped is a file that tells that Claude Code emptied an inbox. It does beside atm, which rewrites the file that
// it has displaced, in place: if Claude Code has just opened that file, it reads half of it.
const claudeWiped = "claude-emptied-an-inbox"

// A peerWriter changes a file under its own lock. false: it gave up waiting for the lock.
type peerWriter struct {
	name  string
	write func(path string, edit func(was []byte) ([]byte, error)) (bool, error)
}

// claudeWrites locks as Claude Code does, with a directory and ten tries. An inbox is renamed over the old one;
// config.json is truncated and written.
func claudeWrites(path string, edit func([]byte) ([]byte, error)) (bool, error) {
	for try := 0; ; try++ {
		err := os.Mkdir(path+".lock", 0o755)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		waits := []time.Duration{5, 10, 20, 40, 80, 100, 100, 100, 100, 100}
		if try == len(waits) {
			return false, nil
		}
		time.Sleep(waits[try] * time.Millisecond) // its pace, not ours to wait for
	}
	defer os.Remove(path + ".lock")
	was, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	now, err := edit(was)
	if err != nil {
		return false, err
	}
	if filepath.Base(path) == "config.json" {
		return true, os.WriteFile(path, now, 0o644)
	}
	temp := path + ".tmp." + newMessageID()[:8]
	if err := os.WriteFile(temp, now, 0o644); err != nil {
		return false, err
	}
	return true, os.Rename(temp, path)
}

// atmWrites locks as atm does, with a flock and six tries, and exchanges the file with a temporary one of a fixed name.
// What it displaced from an inbox it merges, once.
func atmWrites(path string, edit func([]byte) ([]byte, error)) (bool, error) {
	base := strings.TrimSuffix(path, ".json")
	lock, err := os.OpenFile(base+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return false, err
	}
	defer lock.Close()
	for try := 0; ; try++ {
		err := lockFile(lock, true, false)
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) {
			return false, err
		}
		waits := []time.Duration{50, 100, 200, 400, 800}
		if try == len(waits) {
			return false, nil
		}
		time.Sleep(waits[try] * time.Millisecond) // its pace
	}
	defer unlockFile(lock)
	was, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	now, err := edit(was)
	if err != nil {
		return false, err
	}
	temp := base + ".tmp"
	defer os.Remove(temp)
	for range 2 {
		if err := errors.Join(os.WriteFile(temp, now, 0o644), syncFile(temp), exchangeFiles(temp, path)); err != nil {
			return false, err
		}
		displaced, err := os.ReadFile(temp)
		if err != nil || filepath.Base(path) == "config.json" || bytes.Equal(displaced, was) {
			return true, err
		}
		ours, err := strictMail(now)
		theirs, err2 := strictMail(displaced)
		if err := errors.Join(err, err2); err != nil {
			return false, err
		}
		was = now // the second exchange isn't looked at
		if now, err = json.MarshalIndent(mergeMail(ours, theirs), "", "  "); err != nil {
			return false, err
		}
	}
	return true, nil
}

// strictMail is atm's parser: one bad message, and it refuses the file.
func strictMail(text []byte) ([]map[string]any, error) {
	var all []map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, m := range all {
		for key, v := range m {
			_, isText := v.(string)
			_, isBool := v.(bool)
			switch key {
			case "message_id", "source_team", "summary":
				isText = isText || v == nil
			case "read":
				isText = isBool
			case "from", "text", "timestamp":
			default:
				continue
			}
			if !isText {
				return nil, fmt.Errorf("a strict reader refuses %s in %v", key, m)
			}
		}
		if m["from"] == nil || m["text"] == nil || m["timestamp"] == nil {
			return nil, fmt.Errorf("a field is missing in %v", m)
		}
	}
	return all, nil
}

func mergeMail(ours, theirs []map[string]any) []map[string]any {
	key := func(m map[string]any) string {
		if id, ok := m["message_id"].(string); ok {
			return id
		}
		return fmt.Sprint(m["from"], "|", m["text"], "|", m["timestamp"])
	}
	have := map[string]bool{}
	for _, m := range ours {
		have[key(m)] = true
	}
	for _, m := range theirs {
		if !have[key(m)] {
			ours = append(ours, m)
		}
	}
	sort.SliceStable(ours, func(i, j int) bool { return ours[i]["timestamp"].(string) < ours[j]["timestamp"].(string) })
	return ours
}

// sends appends a message to an inbox, in the writer's own fields.
func (w peerWriter) sends(path, text string) (bool, error) {
	return w.write(path, func(was []byte) ([]byte, error) {
		var all []json.RawMessage
		m := map[string]any{"from": w.name, "text": text, "summary": text, "read": false}
		if now := time.Now().UTC(); w.name == "atm" {
			if _, err := strictMail(was); err != nil {
				return nil, err
			}
			m["source_team"], m["message_id"], m["timestamp"] = "crew", newMessageID(), now.Format("2006-01-02T15:04:05.999999999-07:00")
		} else {
			m["msgV"], m["msg_id"], m["type"], m["timestamp"] = 1, newMessageID(), "message", now.Format(mailTimeLayout)
		}
		if json.Unmarshal(was, &all) != nil { // Claude Code takes such a file as empty
			all = nil
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), claudeWiped), nil, 0o644); err != nil {
				return nil, err
			}
		}
		return json.MarshalIndent(append(all, toJSON(m)), "", "  ")
	})
}

// joins adds a member to config.json. atm refuses a file in which a member has not all of its fields.
func (w peerWriter) joins(path, name string) (bool, error) {
	return w.write(path, func(was []byte) ([]byte, error) {
		var file map[string]json.RawMessage
		var members []json.RawMessage
		if err := errors.Join(json.Unmarshal(was, &file), json.Unmarshal(file["members"], &members)); err != nil {
			return nil, err
		}
		for _, m := range members {
			for _, key := range []string{"agentId", "name", "agentType", "model", "joinedAt", "cwd"} {
				if rawField(m, key) == nil {
					return nil, fmt.Errorf("a strict reader refuses %s", m)
				}
			}
		}
		entry := fmt.Sprintf(`{"agentId":"%s@crew","name":%q,"agentType":"y","model":"m","joinedAt":1,"cwd":"/w","odd":1.0}`, name, name)
		file["members"] = toJSON(append(members, json.RawMessage(entry)))
		return json.MarshalIndent(file, "", "  ")
	})
}

// TestMailBesideOtherWriters: many messages from each, beside Claude Code and beside atm, while what has come is being
// marked read, and nobody's is lost. With all three at once those two lose each other's (they take different locks,
// which we can't heal), but never ours, unless they empty the inbox. How fast the machine is decides how often a send is
// refused, and nothing else.
func TestMailBesideOtherWriters(t *testing.T) {
	claude, atm := peerWriter{"claude", claudeWrites}, peerWriter{"atm", atmWrites}
	each := pick(30, 200)
	for _, tt := range []struct {
		name   string
		others []peerWriter
		whole  []string // of whom nothing may be lost
	}{
		{"claude", []peerWriter{claude}, []string{"ours", "claude"}},
		{"atm", []peerWriter{atm}, []string{"ours", "atm"}},
		{"both", []peerWriter{claude, atm}, []string{"ours"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, dir := mailTeam(t)
			path := filepath.Join(dir, "arch.json")
			writeInbox(t, path, "[]")
			second := newInboxes(x.root, "", "", nil, x.log) // as another process: flock conflicts with itself
			var writers, marker sync.WaitGroup
			for _, w := range tt.others {
				writers.Go(func() {
					for i := range each {
						text := fmt.Sprintf("%s %d", w.name, i)
						done, err := w.sends(path, text)
						for err == nil && !done && w.name == "atm" {
							done, err = w.sends(path, text) // from its spool
						}
						if err != nil || !done {
							t.Errorf("%s: written %v, %v", text, done, err)
						}
					}
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			busy := 0
			writers.Go(func() {
				for i := range each {
					by := []*inboxes{x, second}[i%2]
					m := mailMessage{From: "ours", Text: fmt.Sprintf("ours %d", i), ID: fmt.Sprintf("id %d", i)}
					out, _, err := by.send(t.Context(), "crew", "arch", m)
					for again := 0; again < 10 && errors.Is(err, errTeamBusy); again++ { // refused, so its sender sends it again
						busy++
						out, _, err = by.send(t.Context(), "crew", "arch", m)
					}
					if out != mailDelivered || err != nil {
						t.Errorf("ours %d: %v, %v", i, out, err)
					}
				}
			})
			marked := 0
			marker.Go(func() {
				for ctx.Err() == nil {
					msgs, _, err := second.list(ctx, "crew", "arch", mailFilter{Limit: 5})
					if err != nil {
						t.Error(err)
						return
					}
					n, err := second.markRead(ctx, "crew", "arch", keysOf(msgs))
					if err != nil && ctx.Err() == nil && !errors.Is(err, errTeamBusy) {
						t.Error(err)
					}
					marked += n
				}
			})
			writers.Wait()
			cancel()
			marker.Wait()
			got := map[string]int{}
			msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{All: true})
			wantNil(t, err)
			for _, m := range msgs {
				got[m.Text]++
			}
			if _, err := os.Stat(filepath.Join(dir, claudeWiped)); err == nil && len(tt.others) == 2 {
				t.Log("Claude Code read a file that atm was rewriting, and emptied the inbox: nobody can keep it from that")
				tt.whole = nil
			}
			for _, name := range tt.whole {
				for i := range each {
					if n := got[fmt.Sprintf("%s %d", name, i)]; n != 1 {
						t.Errorf("%s %d is there %d times", name, i, n)
					}
				}
			}
			t.Logf("%d messages, %d marked read meanwhile, %d times too busy", len(msgs), marked, busy)
			if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// TestTeamBesideOtherWriters: two of our processes join and leave beside one of the other programs, and nobody's change
// is lost.
func TestTeamBesideOtherWriters(t *testing.T) {
	for _, other := range []peerWriter{{"claude", claudeWrites}, {"atm", atmWrites}} {
		t.Run(other.name, func(t *testing.T) {
			root := t.TempDir()
			path := writeTeam(t, root, "crew", crewOf(`{"agentId":"x@crew","name":"x","agentType":"y","model":"m","joinedAt":1,"cwd":"/","odd":1.50e+2}`))
			rounds := pick(25, 100)
			var writers sync.WaitGroup
			want := []string{"x"}
			writers.Go(func() {
				for i := range rounds {
					done, err := other.joins(path, fmt.Sprintf("%s-%d", other.name, i))
					for tries := 0; err == nil && !done && tries < 50; tries++ {
						done, err = other.joins(path, fmt.Sprintf("%s-%d", other.name, i))
					}
					if err != nil || !done {
						t.Errorf("%s %d: written %v, %v", other.name, i, done, err)
					}
				}
			})
			for i := range rounds {
				want = append(want, fmt.Sprintf("%s-%d", other.name, i))
			}
			for _, us := range []string{"we", "we2"} {
				want = append(want, fmt.Sprintf("%s-%d", us, rounds-1))
				writers.Go(func() {
					f := newTeamFile(root, "crew", "/leases") // as another process: flock conflicts with itself
					var before membership
					for i := range rounds {
						name := fmt.Sprintf("%s-%d", us, i)
						m, err := f.join(t.Context(), newMember{name: name, agentID: "codex:" + name, cwd: "/w"}, nobody)
						if err == nil && i > 0 {
							err = f.leave(t.Context(), before)
						}
						if before = m; err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
					}
				})
			}
			writers.Wait()
			text := readText(t, path)
			r, err := parseRoster([]byte(text))
			wantNil(t, err)
			var names []string
			for _, m := range r.named {
				names = append(names, m.name)
			}
			sort.Strings(names)
			sort.Strings(want)
			if strings.Join(names, " ") != strings.Join(want, " ") || !strings.Contains(text, "1.50e+2") {
				t.Errorf("members at the end: %v\nwant %v", names, want)
			}
		})
	}
}

// TestMailWriterProcess is no test but the process that TestMailSurvivesKill kills.
func TestMailWriterProcess(t *testing.T) {
	root := os.Getenv("MAIL_WRITER_ROOT")
	if root == "" {
		t.Skip("run by TestMailSurvivesKill")
	}
	x := newInboxes(root, "", "", nil, slog.New(slog.DiscardHandler))
	for i := 0; ; i++ {
		out, id, err := x.send(context.Background(), "crew", "arch", mailMessage{From: "victim", Text: strings.Repeat("x", 2000)})
		fmt.Println("MAIL", out, id, err)
	}
}

// TestMailSurvivesKill: after a kill -9 the inbox is whole, has every message that was said to be delivered, and the
// next writer gets past what was left.
func TestMailSurvivesKill(t *testing.T) {
	for round := range 8 {
		x, dir := mailTeam(t)
		path := filepath.Join(dir, "arch.json")
		cmd := exec.Command(os.Args[0], "-test.run=^TestMailWriterProcess$")
		cmd.Env = append(os.Environ(), "MAIL_WRITER_ROOT="+x.root)
		out, err := cmd.StdoutPipe()
		wantNil(t, err)
		wantNil(t, cmd.Start())
		var told []string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if w := strings.Fields(lines.Text()); len(w) == 4 && w[0] == "MAIL" {
				if w[1] != "delivered" {
					t.Errorf("the writer said %q", lines.Text())
				}
				told = append(told, w[2])
			}
			if len(told) == 5+7*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if text := readText(t, path); !json.Valid([]byte(text)) {
			t.Fatalf("round %d: not whole: %q…", round, text[:min(len(text), 200)])
		}
		if _, err := os.Stat(path + ".lock"); err == nil {
			ageFile(t, path+".lock", dirLockStale+1)
		}
		left, _ := filepath.Glob(path + ".tmp.*")
		for _, name := range left {
			ageFile(t, name, 2*tempLifetime)
		}
		if out, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "next", Text: "still here"}); out != mailDelivered {
			t.Fatalf("round %d: %v, %v", round, out, err)
		}
		if left, _ := filepath.Glob(path + ".tmp.*"); len(left) > 0 {
			t.Errorf("round %d: left behind: %q", round, left)
		}
		ids := map[string]bool{}
		msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{})
		wantNil(t, err)
		for _, m := range msgs {
			ids[m.ID] = true
		}
		for _, id := range told {
			if !ids[id] {
				t.Errorf("round %d: %s was delivered and is gone", round, id)
			}
		}
	}
}
