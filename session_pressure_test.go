package main

// session_pressure_test.go holds the program to FR-19.3 and FR-19.4 where a client
// doesn't read, without any clock: no session waits for it, no answer is lost,
// each event is either told or counted as dropped, and what waits is bounded.
// The benchmarks measure the same with processes.

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pausableReader is what a client reads with, when it reads.
type pausableReader struct {
	r io.Reader

	mu   sync.Mutex // guards the field below
	hold chan struct{}
}

func newPausableReader(r io.Reader) *pausableReader { return &pausableReader{r: r} }

func (p *pausableReader) Read(b []byte) (int, error) {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return p.r.Read(b)
}

// pause has the next Read wait for resume. One that is under way takes a chunk
// more.
func (p *pausableReader) pause() {
	p.mu.Lock()
	p.hold = make(chan struct{})
	p.mu.Unlock()
}

func (p *pausableReader) resume() {
	p.mu.Lock()
	close(p.hold)
	p.hold = nil
	p.mu.Unlock()
}

// told counts the codex/event notifications that came, by agent, and forgets
// them.
func (w *world) told() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for _, note := range w.notes {
		if note.method == "codex/event" {
			n[stringField(note.params, "_meta", "agent_id")]++
		}
	}
	w.notes = nil
	return n
}

func TestWorldClientThatStopsReading(t *testing.T) {
	const flood = "FLOOD 12000 9" // three of them are more than may wait; what ends them fits
	inWorld(t, nil, noElicitation, func(w *world) {
		t := w.t
		var loud []string
		for range 3 {
			loud = append(loud, w.agent("SAY hello"))
		}
		quiet := w.agent("SAY hello")
		synctest.Wait()
		w.told()

		// A client that reads gets everything.
		for _, a := range loud {
			w.tool("codex-reply", "agent_id", a, "prompt", flood).ok(t)
		}
		synctest.Wait()
		whole := w.told()
		for _, a := range loud {
			if v := w.view(a); v.Dropped != 0 || whole[a] < 12000 {
				t.Errorf("a client that reads was told %d events of %s, %d are said to be dropped", whole[a], a, v.Dropped)
			}
		}

		// One that doesn't holds up nobody.
		w.out.pause()
		var calls []*worldCall
		for _, a := range loud {
			calls = append(calls, w.tool("codex-reply", "agent_id", a, "prompt", flood))
		}
		calls = append(calls, w.tool("codex-reply", "agent_id", quiet, "prompt", "SAY still here"))
		synctest.Wait()
		for _, a := range append(loud, quiet) {
			if v := w.view(a); v.Status != statusIdle || v.Queued != 0 {
				t.Errorf("%s is %s while its client doesn't read, %d queued", a, v.Status, v.Queued)
			}
		}
		if got := w.hub.ledger.record(quiet).Digest.LastAnswer; got != "still here" {
			t.Errorf("the quiet agent's last answer is %q: its turn waits for the flood's reader", got)
		}
		if n := w.hub.front.(*mcpFront).p.queued(); n > 16<<20 || n < 8<<20 {
			t.Errorf("%d bytes wait for the client, the budget is 16 MiB", n)
		}

		// What it reads then is every answer, and each event or its drop.
		w.out.resume()
		for _, c := range calls {
			c.ok(t)
		}
		synctest.Wait()
		came, all := w.told(), 0
		for _, a := range loud { // one that was quick may have lost none
			dropped := int(w.view(a).Dropped)
			all += dropped
			if came[a]+dropped != whole[a] {
				t.Errorf("%s: %d events came and %d are counted as dropped, of %d", a, came[a], dropped, whole[a])
			}
		}
		if all == 0 {
			t.Error("nothing was dropped, so nothing was proved")
		}

		// And it is as good a client as before.
		w.tool("codex-reply", "agent_id", loud[0], "prompt", flood).ok(t)
		synctest.Wait()
		if again := w.told(); again[loud[0]] != whole[loud[0]] {
			t.Errorf("a client that reads again was told %d events, want %d", again[loud[0]], whole[loud[0]])
		}
	})
}

// A client that never reads again doesn't hold the end up either, and approvals
// that it is asked are declined by their timer: the turn goes on.
func TestWorldClientThatNeverReads(t *testing.T) {
	inWorld(t, map[string]string{"approval_timeout_secs": "5"}, `{"elicitation":{}}`, func(w *world) {
		agent := w.agent("SAY hello")
		w.out.pause()
		defer w.out.resume() // the end of the world reads it all
		w.tool("codex-reply", "agent_id", agent, "prompt", "SHELLESC true\nSAY went on")
		if got := w.view(agent); got.Status != statusBusy || len(got.Pending) != 1 {
			w.t.Fatalf("status %s, %d approvals pending", got.Status, len(got.Pending))
		}
		time.Sleep(6 * time.Second) // of the bubble
		if got := w.view(agent); got.Status != statusIdle {
			w.t.Errorf("status %s after the approval's time", got.Status)
		}
		if got := w.hub.ledger.record(agent).Digest.LastAnswer; got != "went on" {
			w.t.Errorf("last answer %q", got)
		}
	})
}
