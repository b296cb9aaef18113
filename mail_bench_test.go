package main

// mail_bench_test.go owns the numbers of mail: what a large inbox costs (10 000 messages, 20 MB), how long after an inbox
// was renamed into place a turn begins, and what a hundred idle agents cost. A time is never asserted.
// Run: go test -run '^$' -bench 'Inbox|MailWake' .

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// largeInbox also gives the file's text.
func largeInbox(tb testing.TB) (x *inboxes, path string, text string) {
	x, dir := mailTeam(tb)
	path = filepath.Join(dir, "arch.json")
	one := `{
    "from": "lead",
    "text": "` + strings.Repeat("some words and a \\\"quoted\\\" one, ", 57) + `",
    "timestamp": "2026-11-21T09:17:30.784Z",
    "read": true,
    "message_id": "6f6d2f6e-0000-4000-8000-000000000000"
  }`
	text = "[\n  " + strings.Repeat(one+",\n  ", 9990) + strings.Repeat(strings.Replace(one, "true", "false", 1)+",\n  ", 9) + strings.Replace(one, "true", "false", 1) + "\n]"
	writeInbox(tb, path, text)
	return x, path, text
}

func BenchmarkInbox(b *testing.B) {
	x, path, text := largeInbox(b)
	do := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				writeInbox(b, path, text)
				ageFile(b, path, time.Minute+time.Duration(i)*time.Millisecond) // another file than the one that is known
				b.StartTimer()
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	do("send", func() error {
		_, _, err := x.send(b.Context(), "crew", "arch", mailMessage{From: "codex", Text: "hello"})
		return err
	})
	do("count", func() error {
		_, err := x.count(b.Context(), "crew", "arch")
		return err
	})
	do("list and mark", func() error {
		msgs, _, err := x.list(b.Context(), "crew", "arch", mailFilter{Limit: 10})
		if err != nil {
			return err
		}
		_, err = x.markRead(b.Context(), "crew", "arch", keysOf(msgs))
		return err
	})
	b.Run("count unchanged", func(b *testing.B) {
		for b.Loop() {
			if _, err := x.count(b.Context(), "crew", "arch"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

const (
	wakesEach = 25 // of one agent: the runaway guard pauses at 30 an hour
	idleSpan  = 11 * time.Second
)

// mailRig is a rig with a team and room for a hundred agents.
func mailRig(tb testing.TB) (r *benchRig, boxes string) {
	r = newBenchRig(tb)
	team := filepath.Join(r.home, ".claude", "teams", "default")
	conf := filepath.Join(r.home, ".config", "atm", "config.toml")
	for path, text := range map[string]string{filepath.Join(team, "config.json"): `{"name":"default","members":[]}`,
		conf: "[plugins.atm-agent-mcp]\nmax_concurrent_threads = 100\n"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	boxes = filepath.Join(team, "inboxes")
	if err := os.Mkdir(boxes, 0o755); err != nil {
		tb.Fatal(err)
	}
	return r, boxes
}

// named opens a session of a name.
func (p *benchPeer) named(cwd, identity string) string {
	p.tb.Helper()
	return stringField(p.tool("codex", map[string]any{"prompt": "hello", "cwd": cwd, "identity": identity}), "agent_id")
}

func BenchmarkMailWake(b *testing.B) {
	b.Run("wake", benchMailWake)
	b.Run("idle100", benchMailIdle)
}

// benchMailWake: ≤ 50 ms p50 from the rename of an inbox to the start of the turn
// that brings its mail, as the client is told of it.
func benchMailWake(b *testing.B) {
	r, boxes := mailRig(b)
	p := r.serveSide(b)
	var took []float64
	agent, name := "", ""
	for i := 0; b.Loop(); i++ {
		if i%wakesEach == 0 {
			if agent != "" {
				p.tool("agent_close", map[string]any{"agent_id": agent})
			}
			name = fmt.Sprintf("agent%d", i/wakesEach)
			agent = p.named(r.project, name)
		}
		p.run(p.reply(agent, "SAY on")) // a client's turn: mail turns in a row are bounded
		path := filepath.Join(boxes, name+".json")
		text := fmt.Sprintf(`[{"from":"lead","text":"mail %d","timestamp":"2026-11-21T09:17:30.784Z","msg_id":"m%d","read":false}]`, i, i)
		if err := os.WriteFile(path+".tmp.1", []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if err := os.Rename(path+".tmp.1", path); err != nil {
			b.Fatal(err)
		}
		p.await(`"type":"turn/started"`)
		took = append(took, time.Since(begun).Seconds()*1000)
		p.await(`"type":"turn/completed"`)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(took, 0.5), "wake-p50-ms")
	b.ReportMetric(quantile(took, 0.99), "wake-p99-ms")
}

// await reads to a record that holds a text.
func (p *benchPeer) await(text string) {
	p.tb.Helper()
	p.dog.Reset(benchLimit)
	defer p.dog.Stop()
	for !bytes.Contains(p.line(), []byte(text)) {
	}
}

// benchMailIdle: a hundred agents that wait for mail cost next to nothing. The
// span holds two polls.
func benchMailIdle(b *testing.B) {
	r, boxes := mailRig(b)
	p := r.serveSide(b)
	for i := range 100 {
		name := fmt.Sprintf("agent%d", i)
		if err := os.WriteFile(filepath.Join(boxes, name+".json"), []byte("[]"), 0o644); err != nil {
			b.Fatal(err)
		}
		p.named(r.project, name)
	}
	span := time.NewTimer(time.Second) // what the openings left to do
	<-span.C
	var spent, most float64
	n := 0
	for b.Loop() {
		n++
		from := p.cpu()
		span.Reset(idleSpan)
		<-span.C
		used := p.cpu() - from
		spent, most = spent+used, max(most, used)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(spent/float64(n)/idleSpan.Seconds(), "cpu-ms/s")
	b.ReportMetric(most/idleSpan.Seconds(), "max-cpu-ms/s")
}
