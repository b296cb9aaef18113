package main

// mail_race_test.go holds inboxes to several writers at full speed, and to a writer that dies: nothing is lost.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestMailBesideOtherWriters: many messages from each, beside Claude Code and beside atm, while what has come is being
// marked read, and nobody's is lost. With all three at once those two lose each other's (they take different locks,
// which we can't heal), but never ours, unless they empty the inbox. How fast the machine is decides how often a send is refused, and nothing else.
func TestMailBesideOtherWriters(t *testing.T) {
	t.Parallel()
	type writer struct {
		name string
		send func(path, from, text string) (bool, error)
	}
	claude, atm := writer{"claude", claudeSend}, writer{"atm", atmSend}
	each := pick(30, 200)
	tests := []struct {
		name   string
		others []writer
		whole  []string // of whom nothing may be lost
	}{
		{"claude", []writer{claude}, []string{"ours", "claude"}},
		{"atm", []writer{atm}, []string{"ours", "atm"}},
		{"both", []writer{claude, atm}, []string{"ours"}},
	}
	for _, tt := range tests {
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
						done, err := w.send(path, w.name, text)
						for err == nil && !done && w.name == "atm" {
							done, err = w.send(path, w.name, text) // from its spool
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
					by := x
					if i%2 == 1 {
						by = second
					}
					m := mailMessage{From: "ours", Text: fmt.Sprintf("ours %d", i), ID: fmt.Sprintf("id %d", i)}
					out, _, err := by.send(t.Context(), "crew", "arch", m)
					for again := 0; again < 10 && errors.Is(err, errTeamBusy); again++ { // it was refused, so its sender sends it again
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
					var keys []string
					for _, m := range msgs {
						keys = append(keys, m.Key)
					}
					n, err := second.markRead(ctx, "crew", "arch", keys)
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
			if err != nil {
				t.Fatal(err)
			}
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
			left, _ := filepath.Glob(path + ".*")
			if len(left) > 0 {
				t.Errorf("left behind: %q", left)
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
	t.Parallel()
	for round := range 8 {
		x, dir := mailTeam(t)
		path := filepath.Join(dir, "arch.json")
		cmd := exec.Command(os.Args[0], "-test.run=^TestMailWriterProcess$")
		cmd.Env = append(os.Environ(), "MAIL_WRITER_ROOT="+x.root)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
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
		for _, name := range leftovers(t, path) {
			ageFile(t, name, 2*tempLifetime)
		}
		if out, _, err := x.send(t.Context(), "crew", "arch", mailMessage{From: "next", Text: "still here"}); out != mailDelivered {
			t.Fatalf("round %d: %v, %v", round, out, err)
		}
		if left := leftovers(t, path); len(left) > 0 {
			t.Errorf("round %d: left behind: %q", round, left)
		}
		ids := map[string]bool{}
		msgs, _, err := x.list(t.Context(), "crew", "arch", mailFilter{})
		if err != nil {
			t.Fatal(err)
		}
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

func leftovers(t *testing.T, path string) []string {
	t.Helper()
	left, err := filepath.Glob(path + ".tmp.*")
	if err != nil {
		t.Fatal(err)
	}
	return left
}
