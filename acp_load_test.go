package main

// acp_load_test.go owns the ACP agent under load, as far as no clock is needed for
// it: an editor that reads gets every byte, one that stops reading costs bounded
// memory, its prompt and nothing else, and session/load then shows all it missed.
// acp_bench_test.go measures the same stall. It must never wait for a time, only
// for what the disk and the stream tell.

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What waits for a client that stalls: more than the budget, which is used up
// before the turn is over.
const (
	acpManyMessages = 20
	acpOneMessage   = 1
	acpPending      = 20 << 20
)

// acpStall is an editor that stops reading in the midst of a session's turn,
// while another session goes on.
type acpStall struct {
	r           *acpBenchRig
	acp         *benchPeer
	loud, quiet string    // sessions
	on          [2]string // their agents
	big, small  benchTurn // the turns that run while nobody reads
	want        string    // the big one's text
}

func newACPStall(tb testing.TB, r *acpBenchRig, messages int) *acpStall {
	tb.Helper()
	s := &acpStall{r: r, acp: r.acpSide(tb)}
	s.loud, s.quiet = s.acp.session(r.project), s.acp.session(r.project)
	s.on = [2]string{r.agentOf(tb, s.loud), r.agentOf(tb, s.quiet)}
	s.acp.run(s.acp.prompt(s.quiet, "SAY before it"))
	size := acpPending / messages
	s.want = strings.Repeat(strings.Repeat("0123456789abcde\n", size/16+1)[:size], messages)
	s.big = s.acp.prompt(s.loud, strings.TrimSpace(strings.Repeat("BIG "+strconv.Itoa(size)+"\n", messages)))
	s.small = s.acp.prompt(s.quiet, "SAY during it")
	return s
}

// stall runs both turns and reads nothing until both are over, which only their
// records tell.
func (s *acpStall) stall() {
	tb := s.acp.tb
	tb.Helper()
	s.acp.send(s.big.rec)
	s.r.onDisk(tb, s.on[0], 1)
	s.acp.send(s.small.rec)
	s.r.onDisk(tb, s.on[1], 2)
}

// readOn reads again: each prompt must have one answer, the big one's being the
// reason why it was shown no further.
func (s *acpStall) readOn() {
	p := s.acp
	p.tb.Helper()
	rec, pong := p.request("session/list", map[string]any{})
	p.send(rec)
	p.dog.Reset(benchLimit)
	defer p.dog.Stop()
	answers := map[string]int{}
	for {
		line := p.line()
		head := line[:min(len(line), benchHead)]
		if !validJSON(bytes.TrimSpace(line)) {
			p.fail("no JSON came: %s", clip(string(line), 2000))
		}
		for _, turn := range []benchTurn{s.big, s.small} {
			if bytes.Contains(head, []byte(turn.end)) {
				answers[turn.end]++
			}
		}
		switch {
		case bytes.Contains(head, []byte(s.big.end)):
			if why := stringField(line, "error", "message"); !strings.Contains(why, "session/load tells all of it") {
				p.fail("the prompt whose updates nobody read was answered %s", clip(string(line), 2000))
			}
		case bytes.Contains(head, []byte(pong)):
			if answers[s.big.end] != 1 || answers[s.small.end] != 1 {
				p.fail("answers %v, want one to each prompt", answers)
			}
			return
		}
	}
}

// goesOn: the other session has lost nothing but what ran while nobody read.
func (s *acpStall) goesOn() {
	s.acp.tb.Helper()
	t := s.acp.prompt(s.quiet, "SAY after it")
	_, got := s.acp.capture(t, make([]byte, 1<<20))
	if text, _ := s.acp.joined(got, t); text != "after it" {
		s.acp.fail("the other session then said %q", text)
	}
}

// loads: what the client missed is told, whole.
func (s *acpStall) loads() {
	p := s.acp
	p.tb.Helper()
	rec, end := p.request("session/load", map[string]any{"sessionId": s.loud, "cwd": s.r.project, "mcpServers": []any{}})
	t := benchTurn{rec: rec, end: end, good: `"result"`, mark: `"sessionUpdate":"agent_message_chunk"`}
	_, got := p.capture(t, make([]byte, 2*acpPending))
	if text, pieces := p.joined(got, t); text != s.want {
		p.fail("session/load told %d bytes in %d pieces, not the %d there were", len(text), pieces, len(s.want))
	}
}

// agentOf is the agent of an editor's session, which its record names.
func (r *benchRig) agentOf(tb testing.TB, session string) string {
	tb.Helper()
	agent := ""
	if !poll(waitLimit(tb), func() bool {
		paths, err := filepath.Glob(filepath.Join(r.home, ".config", "atm", "agent-sessions", "*", ".records", "*.json"))
		if err != nil {
			tb.Fatal(err)
		}
		for _, path := range paths {
			if rec, err := os.ReadFile(path); err == nil && stringField(rec, "client_session") == session {
				agent = stringField(rec, "agent_id")
			}
		}
		return agent != ""
	}) {
		tb.Fatalf("no record tells of session %s", session)
	}
	return agent
}

// benchACPStalled: ≤ 64 MB while 20 MB wait for a client that doesn't read
// (peak-MB), in many messages and in one.
func benchACPStalled(b *testing.B, r *acpBenchRig, messages int) {
	var now, peak, after []float64
	for b.Loop() {
		s := newACPStall(b, r, messages)
		s.stall()
		size, most := s.acp.memory()
		now, peak = append(now, size), append(peak, most)
		s.readOn()
		s.loads()
		_, most = s.acp.memory()
		after = append(after, most)
		s.acp.close()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(now, 0.5), "rss-MB")
	b.ReportMetric(quantile(peak, 1), "peak-MB")
	b.ReportMetric(quantile(after, 1), "loaded-peak-MB")
}

// TestACPUnderLoad: sizes have twice the room that the benchmarks' numbers have,
// since the collector keeps its own time.
func TestACPUnderLoad(t *testing.T) {
	r := newACPBenchRig(t)

	t.Run("an editor that reads gets every byte of a burst", func(t *testing.T) {
		s := r.sides(t)
		prompt, whole := r.flood()
		for range 3 {
			s.burst(prompt, whole)
		}
	})

	t.Run("a session stays small", func(t *testing.T) {
		s := r.sides(t)
		s.acp.memory() // or skip
		s.fewTurns()
		if now, _ := s.acp.memory(); now > 2*20 {
			t.Errorf("%.1f MB after a few turns, want at most 20 or, in a test, 40", now)
		}
	})

	stalls := map[string]int{"many messages": acpManyMessages, "one message": acpOneMessage}
	if !longTests() {
		delete(stalls, "one message")
	}
	for name, messages := range stalls {
		t.Run("an editor that stops reading loses the prompt alone, "+name, func(t *testing.T) {
			s := newACPStall(t, r, messages)
			s.stall()
			_, peak := s.acp.memory()
			s.readOn()
			s.goesOn()
			s.loads()
			if peak > 2*64 {
				t.Errorf("%.1f MB at most while nobody read, want 64 or, in a test, 128", peak)
			}
		})
	}
}
