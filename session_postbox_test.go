package main

// session_postbox_test.go holds what waits for sessions to its bound (invariant 3), which all postboxes share; and the
// program to FR-19.3 and FR-19.4 where a client doesn't read, without any clock: no session waits for it, no answer is
// lost, each event is either told or counted as dropped.

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Ten flooding agents share one bound, of bytes and not of letters, since a
// command's output may come in large pieces: what may be dropped is, and
// counted; what may not is kept. What a loop has taken makes room only once it
// is done with it.
func TestPostboxesShareOneBound(t *testing.T) {
	var waiting atomic.Int64
	boxes := [2]*postbox{newPostbox(&waiting), newPostbox(&waiting)}
	delta := event{kind: evDelta, raw: bytes.Repeat([]byte("x"), 1<<20-letterSize)}
	for i := range maxWaitingBytes>>20 + 10 {
		boxes[i%2].event(delta)
	}
	lost := func() int64 { return boxes[0].lost() + boxes[1].lost() }
	if lost() != 10 {
		t.Fatalf("%d dropped, want 10", lost())
	}
	boxes[0].event(event{kind: evEnded})
	got := boxes[0].take(nil)
	if len(got) != maxWaitingBytes>>21+1 {
		t.Fatalf("%d letters, want %d", len(got), maxWaitingBytes>>21+1)
	}
	if boxes[1].event(delta); lost() != 11 {
		t.Fatal("room for more while what was taken is still in hand")
	}
	boxes[0].do(func() {})
	if old := got[0]; len(boxes[0].take(got)) != 1 || old.ev.raw == nil || got[0].ev.raw != nil {
		t.Fatal("letters that are done with are kept")
	}
	if boxes[1].event(delta); lost() != 11 {
		t.Fatal("no room after letters were done with")
	}
	if rest := len(boxes[1].close()); rest != maxWaitingBytes>>21+1 {
		t.Fatalf("%d letters left", rest)
	}
	boxes[0].close()
	if waiting.Load() != 0 {
		t.Fatalf("%d bytes are counted in nobody's hand", waiting.Load())
	}
	if boxes[1].do(func() {}) {
		t.Fatal("a closed postbox takes letters")
	}
}

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
