package main

// acp_load_test.go owns the ACP agent under load. The benchmarks are the numbers
// that it is held to, what an editor pays for speaking to Codex through acp instead
// of to app-server itself: as in proxy_bench_test.go the same child is driven both
// ways in turns, A B A B, and both and their ratio are printed, the mock by
// BenchmarkACP, every real Codex of CODEX_BINS by BenchmarkACPCodex. The test
// asserts what depends on no clock: an editor that reads gets every byte, one that
// stops reading costs bounded memory, its prompt and nothing else, and session/load
// then shows all it missed. A time must never be asserted.
// Run: go test -run "^$" -bench ACP .

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	acpStamps = 100 // deltas of each STAMP
	acpGap    = 5   // milliseconds between two: a fast model's
)

// acpBenchRig are both sides' programs over one child.
type acpBenchRig struct {
	*benchRig
	codex string   // "" for the mock
	env   []string // of both, besides the rig's
}

// acpSides are a thread driven directly and a session of an editor, neither of
// which asks before it runs a command.
type acpSides struct {
	app, acp        *benchPeer
	thread, session string
}

// newACPBenchRig is one over the mock, which is logged in as its users are.
func newACPBenchRig(tb testing.TB) *acpBenchRig {
	tb.Helper()
	r := &acpBenchRig{benchRig: newBenchRig(tb)}
	for _, side := range []string{"direct", "served"} {
		plant(tb, r.codexHome(side), map[string]string{"auth.json": `{"OPENAI_API_KEY":"none"}`})
	}
	return r
}

// appSide is app-server, driven directly.
func (r *acpBenchRig) appSide(tb testing.TB) *benchPeer {
	tb.Helper()
	if r.codex == "" {
		return r.mockSide(tb)
	}
	p := r.startOf(tb, "direct", r.env, r.codex, "app-server")
	p.hello(map[string]any{"capabilities": map[string]any{"experimentalApi": true, // as we do
		"optOutNotificationMethods": oldEventMethods()}})
	p.send([]byte(`{"method":"initialized"}` + "\n"))
	return p
}

// acpSide is acp over it, with everything as it is by default.
func (r *acpBenchRig) acpSide(tb testing.TB) *benchPeer {
	tb.Helper()
	bin := r.codex
	if bin == "" {
		bin = "codex" // the tests' own
	}
	p := r.start(tb, "served", r.env, "acp", "--codex-bin", bin, "--log-level", "error")
	p.hello(map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}})
	return p
}

// session opens one that asks for nothing.
func (p *benchPeer) session(cwd string) string {
	p.tb.Helper()
	id := stringField(p.call("session/new", map[string]any{"cwd": cwd, "mcpServers": []any{}}), "sessionId")
	p.call("session/set_config_option", map[string]any{"sessionId": id, "configId": "mode", "value": "full"})
	return id
}

// prompt is a turn of an editor's session.
func (p *benchPeer) prompt(session, text string) benchTurn {
	rec, end := p.request("session/prompt", acpPromptParams(session, text))
	return benchTurn{rec: rec, end: end, good: `"stopReason":"end_turn"`, mark: `"sessionUpdate":"agent_message_chunk"`}
}

func (r *acpBenchRig) sides(tb testing.TB) *acpSides {
	tb.Helper()
	s := &acpSides{app: r.appSide(tb), acp: r.acpSide(tb)}
	s.thread = stringField(s.app.call("thread/start", map[string]any{"cwd": r.project, "approvalPolicy": "never",
		"sandbox": "danger-full-access"}), "thread", "id")
	s.session = s.acp.session(r.project)
	return s
}

// capture is run for a turn of which every byte matters. It decodes nothing, so that
// the time is that of the other side.
func (p *benchPeer) capture(t benchTurn) (took time.Duration, got []byte) {
	p.tb.Helper()
	p.dog.Reset(benchLimit)
	defer p.dog.Stop()
	end, begun := []byte(t.end), time.Now()
	p.send(t.rec)
	for {
		line := p.line()
		if bytes.Contains(line[:min(len(line), benchHead)], end) {
			took = time.Since(begun)
			if !bytes.Contains(line, []byte(t.good)) {
				p.fail("the turn ended with %s", clip(string(line), 2000))
			}
			return took, got
		}
		got = append(got, line...)
	}
}

// joined is the agent's text in what a client of either side has read, and in
// how many pieces it came.
func (p *benchPeer) joined(got []byte, t benchTurn) (text string, pieces int) {
	p.tb.Helper()
	var b strings.Builder
	for line := range bytes.Lines(got) {
		if !bytes.Contains(line, []byte(t.mark)) {
			continue
		}
		part := stringField(line, "params", "delta")
		if part == "" {
			part = stringField(line, "params", "update", "content", "text")
		}
		if part == "" || !validJSON(bytes.TrimSpace(line)) {
			p.fail("no text in %s", clip(string(line), 2000))
		}
		b.WriteString(part)
		pieces++
	}
	return b.String(), pieces
}

// flood is the prompt for a burst, and what tells whether its text is whole: a
// real Codex's model says the time, which differs, and not a number.
func (r *acpBenchRig) flood() (prompt string, whole func(string) bool) {
	if r.codex == "" {
		var b strings.Builder
		for i := range burst {
			fmt.Fprintf(&b, "%08d %s", i, strings.Repeat("x", 32-9))
		}
		return burstPrompt, func(text string) bool { return text == b.String() }
	}
	return fmt.Sprintf("STAMP %d 0", burst), func(text string) bool {
		words := strings.SplitAfter(text, " ")
		return len(words) == burst+1 && words[burst] == "" && slices.IsSorted(words[:burst]) &&
			!slices.ContainsFunc(words[:burst], func(w string) bool { return len(w) != len(words[0]) || w[0] != '@' })
	}
}

// burst runs a burst on both sides and wants every byte of it. It tells the
// updates that the editor got.
func (s *acpSides) burst(prompt string, whole func(string) bool) (direct, served time.Duration, updates int) {
	for side, p := range []*benchPeer{s.app, s.acp} {
		t, took := p.direct(s.thread, prompt), &direct
		if side == 1 {
			t, took = p.prompt(s.session, prompt), &served
		}
		var got []byte
		*took, got = p.capture(t)
		text, pieces := p.joined(got, t)
		if !whole(text) {
			p.fail("what came, %d bytes in %d pieces, is not what was sent", len(text), pieces)
		}
		updates = pieces
	}
	return direct, served, updates
}

func BenchmarkACP(b *testing.B) {
	r := newACPBenchRig(b)
	r.benchmarks(b, "")
	b.Run("stalled", func(b *testing.B) { benchACPStalled(b, r, acpManyMessages) })
	b.Run("stalledMessage", func(b *testing.B) { benchACPStalled(b, r, acpOneMessage) })
}

// benchmarks are those that a real Codex can be measured by as well.
func (r *acpBenchRig) benchmarks(b *testing.B, name string) {
	b.Run(name+"start", r.benchStart)
	b.Run(name+"memory", r.benchMemory)
	b.Run(name+"delta", r.benchDelta)
	b.Run(name+"burst", r.benchBurst)
	b.Run(name+"cancel", r.benchCancel)
}

// BenchmarkACPCodex is what of it a real Codex can show, whose model is scripted.
func BenchmarkACPCodex(b *testing.B) {
	for _, bin := range codexBinaries(b) {
		r := &acpBenchRig{benchRig: newBenchRig(b), codex: bin.path}
		api := startModelAPI(b)
		home := codexHome(b, api.port())
		r.project = filepath.Join(home, "work") // no temporary directory, which Codex treats in its own way
		wantNil(b, makeDemoRepo(r.project))
		r.env = []string{"TERM=dumb", "LANG=C.UTF-8", "CODEX_HOME=" + home}
		r.benchmarks(b, bin.version+"/")
	}
}

// benchStart: ≤ 20 ms from the start of the process to initialize's answer
// (served-ms/op). Codex is started for it, and not waited for.
func (r *acpBenchRig) benchStart(b *testing.B) {
	var p pairs
	for b.Loop() {
		begun := time.Now()
		app := r.appSide(b)
		direct := time.Since(begun)
		app.close()
		begun = time.Now()
		acp := r.acpSide(b)
		p.add(direct, time.Since(begun))
		acp.close()
	}
	p.report(b)
	b.ReportMetric(slices.Min(p.served), "served-min-ms")
}

// benchMemory: ≤ 20 MB with a session that has had some turns. The child's own
// size is printed for comparison.
func (r *acpBenchRig) benchMemory(b *testing.B) {
	var now, peak, child []float64
	for b.Loop() {
		s := r.sides(b)
		s.fewTurns()
		size, _ := s.app.memory()
		child = append(child, size)
		size, most := s.acp.memory()
		now, peak = append(now, size), append(peak, most)
		s.app.close()
		s.acp.close()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(now, 0.5), "rss-MB")
	b.ReportMetric(slices.Max(peak), "peak-MB")
	b.ReportMetric(quantile(child, 0.5), "direct-MB")
}

func (s *acpSides) fewTurns() {
	for _, prompt := range []string{"SAY one", "SHELL echo two\nSAY two", "REASON why\nSAY three"} {
		s.app.run(s.app.direct(s.thread, prompt))
		s.acp.run(s.acp.prompt(s.session, prompt))
	}
}

// benchDelta: ≤ 0.2 ms may be added to a delta, p50.
func (r *acpBenchRig) benchDelta(b *testing.B) {
	s := r.sides(b)
	prompt := fmt.Sprintf("STAMP %d %d", acpStamps, acpGap)
	var direct, served, added []float64
	for b.Loop() {
		d, v := s.app.ages(s.app.direct(s.thread, prompt)), s.acp.ages(s.acp.prompt(s.session, prompt))
		direct, served = append(direct, d...), append(served, v...)
		added = append(added, quantile(v, 0.5)-quantile(d, 0.5))
	}
	b.ReportMetric(0, "ns/op")
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		b.ReportMetric(quantile(direct, q), "direct-"+name+"-ms")
		b.ReportMetric(quantile(served, q), "served-"+name+"-ms")
	}
	b.ReportMetric(quantile(added, 0.5), "added-p50-ms")
	b.ReportMetric(slices.Min(added), "added-p50-min-ms")
}

// ages runs a turn of stamps and tells how many milliseconds old each was as it
// came. Stamps that came together are as old as they are.
func (p *benchPeer) ages(t benchTurn) (all []float64) {
	p.tb.Helper()
	p.dog.Reset(benchLimit)
	defer p.dog.Stop()
	p.send(t.rec)
	for line := p.line(); !bytes.Contains(line[:min(len(line), benchHead)], []byte(t.end)); line = p.line() {
		now := time.Now().UnixNano()
		if !bytes.Contains(line, []byte(t.mark)) {
			continue
		}
		for _, part := range bytes.Split(line, []byte{'@'})[1:] {
			word, _, _ := bytes.Cut(part, []byte{' '})
			at, err := strconv.ParseInt(string(word), 10, 64)
			wantNil(p.tb, err)
			all = append(all, float64(now-at)/1e6)
		}
	}
	if len(all) != acpStamps {
		p.fail("%d of %d deltas came", len(all), acpStamps)
	}
	return all
}

// benchBurst: 20 000 deltas take ≤ 1.1 times as long (ratio), and not a byte of
// them is lost.
func (r *acpBenchRig) benchBurst(b *testing.B) {
	s := r.sides(b)
	prompt, whole := r.flood()
	s.burst(prompt, whole)
	var p pairs
	var updates []float64
	cpu := s.acp.cpu()
	for b.Loop() {
		direct, served, n := s.burst(prompt, whole)
		p.add(direct, served)
		updates = append(updates, float64(n))
	}
	p.report(b)
	b.ReportMetric(slices.Min(p.direct), "direct-min-ms")
	b.ReportMetric(slices.Min(p.served), "served-min-ms")
	b.ReportMetric(quantile(updates, 0.5), "updates")
	b.ReportMetric((s.acp.cpu()-cpu)/float64(len(p.served)), "served-cpu-ms/op")
}

// benchCancel: ≤ 50 ms from a cancel to the prompt's answer (served-ms/op),
// while a command runs.
func (r *acpBenchRig) benchCancel(b *testing.B) {
	s := r.sides(b)
	file := filepath.Join(r.project, "runs") // Codex tells nothing of a command's output in its first seconds
	sleeps := "SHELL touch " + file + "; exec sleep 600"
	var p pairs
	for b.Loop() {
		turn := ""
		direct := s.app.stops(s.app.direct(s.thread, sleeps), file, func(line []byte) bool {
			if id := stringField(line, "result", "turn", "id"); id != "" {
				turn = id
			}
			return bytes.Contains(line, []byte(`"type":"commandExecution"`))
		}, func() []byte {
			rec, _ := s.app.request("turn/interrupt", map[string]any{"threadId": s.thread, "turnId": turn})
			return rec
		})
		p.add(direct, s.acp.stops(s.acp.prompt(s.session, sleeps), file, func(line []byte) bool {
			return bytes.Contains(line, []byte(`"sessionUpdate":"tool_call"`))
		}, func() []byte {
			return append(toJSON(map[string]any{"jsonrpc": "2.0", "method": "session/cancel",
				"params": map[string]any{"sessionId": s.session}}), '\n')
		}))
	}
	p.report(b)
	b.ReportMetric(slices.Max(p.served), "served-max-ms")
}

// stops starts a turn whose command makes a file and runs on, and tells how long
// it takes from the record that stops it to the turn's end.
func (p *benchPeer) stops(t benchTurn, file string, begun func(line []byte) bool, stop func() []byte) time.Duration {
	p.tb.Helper()
	p.dog.Reset(benchLimit)
	defer p.dog.Stop()
	p.send(t.rec)
	for !begun(p.line()) {
	}
	if !poll(benchLimit, func() bool { return os.Remove(file) == nil }) {
		p.fail("the command made no %s", file)
	}
	rec := stop()
	since := time.Now()
	p.send(rec)
	last, _ := p.readTo(t.end, "")
	took := time.Since(since)
	if !bytes.Contains(last, []byte(`"cancelled"`)) && !bytes.Contains(last, []byte(`"interrupted"`)) {
		p.fail("the stopped turn ended with %s", last)
	}
	return took
}

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
	big, small := 0, 0
	for line := p.line(); !bytes.Contains(line[:min(len(line), benchHead)], []byte(pong)); line = p.line() {
		head := line[:min(len(line), benchHead)]
		switch {
		case !validJSON(bytes.TrimSpace(line)):
			p.fail("no JSON came: %s", clip(string(line), 2000))
		case bytes.Contains(head, []byte(s.small.end)):
			small++
		case bytes.Contains(head, []byte(s.big.end)):
			big++
			if why := stringField(line, "error", "message"); !strings.Contains(why, "session/load tells all of it") {
				p.fail("the prompt whose updates nobody read was answered %s", clip(string(line), 2000))
			}
		}
	}
	if big != 1 || small != 1 {
		p.fail("%d and %d answers, want one to each prompt", big, small)
	}
}

// goesOn: the other session has lost nothing but what ran while nobody read.
func (s *acpStall) goesOn() {
	s.acp.tb.Helper()
	t := s.acp.prompt(s.quiet, "SAY after it")
	_, got := s.acp.capture(t)
	if text, _ := s.acp.joined(got, t); text != "after it" {
		s.acp.fail("the other session then said %q", text)
	}
}

// loads: what the client missed is told, whole.
func (s *acpStall) loads() {
	p := s.acp
	p.tb.Helper()
	rec, end := p.request("session/load", map[string]any{"sessionId": s.loud, "cwd": s.r.project,
		"mcpServers": []any{}})
	t := benchTurn{rec: rec, end: end, good: `"result"`, mark: `"sessionUpdate":"agent_message_chunk"`}
	_, got := p.capture(t)
	if text, pieces := p.joined(got, t); text != s.want {
		p.fail("session/load told %d bytes in %d pieces, not the %d there were", len(text), pieces, len(s.want))
	}
}

// agentOf is the agent of an editor's session, which its record names.
func (r *benchRig) agentOf(tb testing.TB, session string) string {
	tb.Helper()
	agent := ""
	if !poll(waitLimit(tb), func() bool {
		paths, err := filepath.Glob(filepath.Join(r.home, ".config", "atm", "agent-sessions", "*", ".records",
			"*.json"))
		wantNil(tb, err)
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
	t.Parallel()
	r := newACPBenchRig(t)

	t.Run("an editor that reads gets every byte of a burst", func(t *testing.T) {
		s := r.sides(t)
		prompt, whole := r.flood()
		for range pick(1, 3) {
			s.burst(prompt, whole)
		}
	})

	t.Run("a session stays small", func(t *testing.T) {
		needProcFS(t)
		s := r.sides(t)
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
