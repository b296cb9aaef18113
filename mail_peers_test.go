package main

// mail_peers_test.go owns the other two programs that write a team's files, as they were measured to behave: Claude
// Code
// 2.1.197 and atm 0.46. Each takes only its own lock, waits as long and as often, and writes in its own way.
// Its tests hold inboxes and config.json to them at full speed, and to processes that die: nothing is lost. Automatic
// mail
// is held to at-least-once: serve is killed at points of its protocol while mail comes. Its benchmarks say how long
// after
// an inbox was renamed into place a turn begins, and what a hundred idle agents cost; a time is never asserted.

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
	"path/filepath"
	"slices"
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

// readShared reads as Node and Rust do: on Windows the file may be renamed meanwhile.
func readShared(path string) ([]byte, error) { return readRegular(path, 1<<30) }

// patiently tries to take a lock, at the pace of a program and as often. false: it gives up.
func patiently(waits []time.Duration, taken error, try func() error) (bool, error) {
	for _, wait := range append(waits, 0) {
		if err := try(); !errors.Is(err, taken) {
			return err == nil, err
		}
		time.Sleep(wait * time.Millisecond) // its pace, not ours to wait for
	}
	return false, nil
}

// claudeWrites locks as Claude Code does, with a directory and ten tries. An inbox is renamed over the old one;
// config.json is truncated and written.
func claudeWrites(path string, edit func([]byte) ([]byte, error)) (bool, error) {
	locked, err := patiently([]time.Duration{5, 10, 20, 40, 80, 100, 100, 100, 100, 100}, fs.ErrExist,
		func() error { return os.Mkdir(path+".lock", 0o755) })
	if !locked {
		return false, err
	}
	defer os.Remove(path + ".lock")
	was, err := readShared(path)
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
	return true, errors.Join(os.WriteFile(temp, now, 0o644), renameOver(temp, path))
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
	locked, err := patiently([]time.Duration{50, 100, 200, 400, 800}, errLocked,
		func() error { return lockFile(lock, true, false) })
	if !locked {
		return false, err
	}
	defer unlockFile(lock)
	was, err := readShared(path)
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
		displaced, err := readShared(temp)
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
	type strict struct {
		From      *string `json:"from"`
		Text      *string `json:"text"`
		Timestamp *string `json:"timestamp"`
		Read      bool    `json:"read"`
		ID        string  `json:"message_id"`
		Team      string  `json:"source_team"`
		Summary   string  `json:"summary"`
	}
	var all []map[string]any
	var checked []strict
	if err := errors.Join(json.Unmarshal(text, &all), json.Unmarshal(text, &checked)); err != nil {
		return nil, fmt.Errorf("a strict reader refuses %s: %w", text, err)
	}
	for i, m := range checked {
		if m.From == nil || m.Text == nil || m.Timestamp == nil {
			return nil, fmt.Errorf("a field is missing in %v", all[i])
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
			m["source_team"], m["message_id"] = "crew", newMessageID()
			m["timestamp"] = now.Format("2006-01-02T15:04:05.999999999-07:00")
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
		const entry = `{"agentId":"x","name":%q,"agentType":"y","model":"m","joinedAt":1,"cwd":"/w","odd":1.0}`
		file["members"] = toJSON(append(members, json.RawMessage(fmt.Sprintf(entry, name))))
		return json.MarshalIndent(file, "", "  ")
	})
}

// persistently has a program write until it is done, as from its spool.
func (w peerWriter) persistently(t *testing.T, what string, write func() (bool, error)) {
	done, err := write()
	for tries := 0; err == nil && !done && tries < 50; tries++ {
		done, err = write()
	}
	if err != nil || !done {
		t.Errorf("%s: written %v, %v", what, done, err)
	}
}

// Many messages from each, beside Claude Code and beside atm, while what has come is being marked read, and nobody's is
// lost. With all three at once those two lose each other's (they take different locks, which we can't heal), but never
// ours, unless they empty the inbox. How fast the machine is decides how often a send is refused, and nothing else.
func TestMailBesideOtherWriters(t *testing.T) {
	t.Parallel()
	notUnderWine(t, "nothing is renamed over a file that is open")
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
			l := newMailLab(t)
			writeInbox(t, l.path, "[]")
			second := newInboxes(l.root, "", nil, l.log) // as another process: flock conflicts with itself
			var writers, marker sync.WaitGroup
			for _, w := range tt.others {
				writers.Go(func() {
					for i := range each {
						text := fmt.Sprintf("%s %d", w.name, i)
						w.persistently(t, text, func() (bool, error) { return w.sends(l.path, text) })
					}
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			busy, marked := 0, 0
			writers.Go(func() {
				for i := range each {
					by := []*inboxes{l.inboxes, second}[i%2]
					m := mailMessage{From: "ours", Text: fmt.Sprintf("ours %d", i), ID: fmt.Sprintf("id %d", i)}
					out, _, err := by.send(t.Context(), "crew", "arch", m)
					for again := 0; again < 10 && errors.Is(err,
						errTeamBusy); again++ { // refused, so its sender sends it again
						busy++
						out, _, err = by.send(t.Context(), "crew", "arch", m)
					}
					if out != mailDelivered || err != nil {
						t.Errorf("ours %d: %v, %v", i, out, err)
					}
				}
			})
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
			msgs, _ := l.messages(mailFilter{All: true})
			for _, m := range msgs {
				got[m.Text]++
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(l.path), claudeWiped)); err == nil && len(tt.others) == 2 {
				t.Log("Claude Code read a file that atm was rewriting, and emptied the inbox; we can't keep it from " +
					"that")
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
			if left, _ := filepath.Glob(l.path + ".*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// Two of our processes join and leave beside one of the other programs, and nobody's change is lost.
func TestTeamBesideOtherWriters(t *testing.T) {
	t.Parallel()
	for _, other := range []peerWriter{{"claude", claudeWrites}, {"atm", atmWrites}} {
		t.Run(other.name, func(t *testing.T) {
			root := t.TempDir()
			first := `{"agentId":"x@crew","name":"x","agentType":"y","model":"m","joinedAt":1,"cwd":"/","odd":1.50e+2}`
			path := writeTeam(t, root, "crew", crewOf(first))
			rounds := pick(25, 100)
			want := []string{"x", fmt.Sprint("we-", rounds-1), fmt.Sprint("we2-", rounds-1)}
			for i := range rounds {
				want = append(want, fmt.Sprintf("%s-%d", other.name, i))
			}
			var writers sync.WaitGroup
			writers.Go(func() {
				for _, name := range want[3:] {
					other.persistently(t, name, func() (bool, error) { return other.joins(path, name) })
				}
			})
			for _, us := range []string{"we", "we2"} {
				writers.Go(func() {
					f := newTeamFile(root, "crew", "/leases") // as another process: flock conflicts with itself
					var before membership
					for i := range rounds {
						name := fmt.Sprintf("%s-%d", us, i)
						m, err := f.join(t.Context(), newMember{name: name, agentID: "codex:" + name, cwd: "/w"},
							nobody)
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
			names := namesIn(t, path)
			slices.Sort(names)
			slices.Sort(want)
			if !slices.Equal(names, want) || !strings.Contains(text, "1.50e+2") {
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
	x := newInboxes(root, "", nil, slog.New(slog.DiscardHandler))
	for i := 0; ; i++ {
		out, id, err := x.send(context.Background(), "crew", "arch",
			mailMessage{From: "victim", Text: strings.Repeat("x", 2000)})
		fmt.Println("MAIL", out, id, err)
	}
}

// After a kill -9 the inbox is whole, has every message that was said to be delivered, and the next writer gets past
// what was left.
func TestMailSurvivesKill(t *testing.T) {
	t.Parallel()
	for round := range 8 {
		l := newMailLab(t)
		cmd := testChild("TestMailWriterProcess", "MAIL_WRITER_ROOT="+l.root)
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
		if text := readText(t, l.path); !json.Valid([]byte(text)) {
			t.Fatalf("round %d: not whole: %q…", round, text[:min(len(text), 200)])
		}
		if _, err := os.Stat(l.path + ".lock"); err == nil {
			ageFile(t, l.path+".lock", dirLockStale+1)
		}
		left, _ := filepath.Glob(l.path + ".tmp.*")
		for _, name := range left {
			ageFile(t, name, 2*tempLifetime)
		}
		l.post("next", "still here")
		if left, _ := filepath.Glob(l.path + ".tmp.*"); len(left) > 0 {
			t.Errorf("round %d: left behind: %q", round, left)
		}
		msgs, _ := l.messages(mailFilter{})
		for _, id := range told {
			if !slices.ContainsFunc(msgs, func(m mailMessage) bool { return m.ID == id }) {
				t.Errorf("round %d: %s was delivered and is gone", round, id)
			}
		}
	}
}

// teamRig is a rig with a team, whose directory it returns.
func teamRig(tb testing.TB) (r *benchRig, team string) {
	tb.Helper()
	r = newBenchRig(tb)
	team = filepath.Join(r.home, ".claude", "teams", "default")
	wantNil(tb, os.MkdirAll(filepath.Join(team, "inboxes"), 0o755))
	wantNil(tb, os.WriteFile(filepath.Join(team, "config.json"), []byte(`{"name":"default","members":[]}`), 0o644))
	return r, team
}

// dies kills the process alone; what it started ends by itself.
func (p *benchPeer) dies() {
	_ = p.cmd.Process.Kill()
	p.hangup()
	p.stdout.Close()
	<-p.exited
}

// Servers that all start agents at once have each of them in the team when its first
// answer comes, though they wait for each other's locks.
func TestFirstAnswerComesFromAMember(t *testing.T) {
	t.Parallel()
	r, team := teamRig(t)
	const servers, agents = 4, 5
	var wg sync.WaitGroup
	for i := range servers {
		p := r.serveSide(t)
		wg.Go(func() {
			for j := range agents {
				name := fmt.Sprintf("agent-%d-%d", i, j)
				p.tool("codex", map[string]any{"identity": name, "prompt": "SAY hello"})
				if data, err := os.ReadFile(filepath.Join(team, "config.json")); err != nil ||
					!bytes.Contains(data, []byte(`"`+name+`"`)) {
					t.Errorf("%s has answered and is no member: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
}

// A kill -9 after a number of records that goes through all of a mail turn, a message in each round. All of them reach
// Codex, are marked read, and none that was marked is delivered again. What the mock Codex was sent is in its log.
func TestMailDeliveryKill(t *testing.T) {
	t.Parallel()
	r, team := teamRig(t)
	log := filepath.Join(r.home, "codex.log")
	serve := func() *benchPeer {
		return r.serveSide(t, "MOCK_CODEX_LOG="+log, "ATM_AGENT_MCP_MAIL_POLL_INTERVAL_MS=100",
			"ATM_AGENT_MCP_MAX_MAIL_MESSAGES=3")
	}
	box := newInboxes(filepath.Dir(team), "", nil, slog.New(slog.DiscardHandler))
	sent := func() map[string]int {
		got := map[string]int{}
		for _, turn := range strings.Split(deliveredIn([]byte(readText(t, log))), " | ") {
			for _, m := range strings.Split(turn, "; ") {
				got[m]++
			}
		}
		return got
	}
	unread := func() int {
		n, err := box.count(t.Context(), "default", "ann")
		wantNil(t, err)
		return n
	}

	v := serve()
	agent := stringField(v.tool("codex", map[string]any{"identity": "ann", "prompt": "SAY hello"}), "agent_id")
	rounds, total, again := 0, 0, 0
	for round := 0; round < 24; round += pick(5, 1) { // as many records later
		rounds++
		for range 1 + round%3 { // while it runs: each is a change to be noticed
			_, _, err := box.send(t.Context(), "default", "ann", mailMessage{From: "lead", Text: fmt.Sprint(total)})
			wantNil(t, err)
			total++
		}
		for range round { // records of the mail turns; the first rounds are killed before any
			if v.dog.Reset(benchLimit); round < 18 {
				v.line()
			}
		}
		v.dies()
		read := map[string]bool{}
		all, _, err := box.list(t.Context(), "default", "ann", mailFilter{All: true})
		if err != nil || len(all) != total {
			t.Fatalf("round %d: the inbox has %d messages, want %d: %v", round, len(all), total, err)
		}
		before := sent()
		for _, m := range all {
			if read["lead: "+m.Text] = m.Read; m.Read && before["lead: "+m.Text] == 0 {
				t.Fatalf("round %d: message %s was marked read and never delivered", round, m.Text)
			}
		}
		v = serve()
		v.tool("codex", map[string]any{"agent_id": agent})
		if !poll(waitLimit(t), func() bool { return unread() == 0 }) {
			t.Fatalf("round %d: %d messages stay unread", round, unread())
		}
		for text, n := range sent() {
			if read[text] && n > before[text] {
				t.Errorf("round %d: %q was delivered again after it was acknowledged", round, text)
			}
		}
	}
	got := sent()
	for i := range total {
		n := got[fmt.Sprintf("lead: %d", i)]
		if n == 0 {
			t.Errorf("message %d was lost", i)
		}
		again += n - 1
	}
	t.Logf("%d kills, %d messages, %d delivered again", rounds, total, again)
}

const (
	wakesEach = 25 // of one agent: the runaway guard pauses at 30 an hour
	idleSpan  = 11 * time.Second
)

// mailSide is a serve with a team and room for a hundred agents.
func mailSide(tb testing.TB) (p *benchPeer, boxes string, open func(identity string) (agent string)) {
	r, team := teamRig(tb)
	p = r.serveSide(tb, "ATM_AGENT_MCP_MAX_CONCURRENT_THREADS=100")
	return p, filepath.Join(team, "inboxes"), func(identity string) string {
		return stringField(p.tool("codex", map[string]any{"prompt": "hello", "cwd": r.project, "identity": identity}),
			"agent_id")
	}
}

func BenchmarkMailWake(b *testing.B) {
	b.Run("wake", benchMailWake)
	b.Run("idle100", benchMailIdle)
}

// benchMailWake: ≤ 50 ms p50 from the rename of an inbox to the start of the turn
// that brings its mail, as the client is told of it.
func benchMailWake(b *testing.B) {
	p, boxes, open := mailSide(b)
	await := func(text string) {
		p.dog.Reset(benchLimit)
		defer p.dog.Stop()
		for !bytes.Contains(p.line(), []byte(text)) {
		}
	}
	var took []float64
	agent, name := "", ""
	for i := 0; b.Loop(); i++ {
		if i%wakesEach == 0 {
			if agent != "" {
				p.tool("agent_close", map[string]any{"agent_id": agent})
			}
			name = fmt.Sprintf("agent%d", i/wakesEach)
			agent = open(name)
		}
		p.run(p.reply(agent, "SAY on")) // a client's turn: mail turns in a row are bounded
		path := filepath.Join(boxes, name+".json")
		text := fmt.Sprintf(`[{"from":"lead","text":"mail %d","timestamp":"2026-11-21T09:17:30Z","msg_id":"m%d"}]`, i,
			i)
		wantNil(b, os.WriteFile(path+".tmp.1", []byte(text), 0o644))
		begun := time.Now()
		wantNil(b, os.Rename(path+".tmp.1", path))
		await(`"type":"turn/started"`)
		took = append(took, time.Since(begun).Seconds()*1000)
		await(`"type":"turn/completed"`)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(took, 0.5), "wake-p50-ms")
	b.ReportMetric(quantile(took, 0.99), "wake-p99-ms")
}

// benchMailIdle: a hundred agents that wait for mail cost next to nothing. The
// span holds two polls.
func benchMailIdle(b *testing.B) {
	p, boxes, open := mailSide(b)
	for i := range 100 {
		name := fmt.Sprintf("agent%d", i)
		wantNil(b, os.WriteFile(filepath.Join(boxes, name+".json"), []byte("[]"), 0o644))
		open(name)
	}
	<-time.After(time.Second) // what the openings left to do
	var spent, most float64
	n := 0
	for b.Loop() {
		n++
		from := p.cpu()
		<-time.After(idleSpan)
		used := p.cpu() - from
		spent, most = spent+used, max(most, used)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(spent/float64(n)/idleSpan.Seconds(), "cpu-ms/s")
	b.ReportMetric(most/idleSpan.Seconds(), "max-cpu-ms/s")
}
