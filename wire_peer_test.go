package main

// wire_peer_test.go holds JSON-RPC with one other side: bad records from a client and
// from a child, calls that end exactly once, and an outgoing queue that drops only
// what may be dropped.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wire is the other side of a peer under test: what it writes, line by line,
// and what can be written to it.
type wire struct {
	t   *testing.T
	to  *io.PipeWriter
	out *bufio.Reader
}

func newWire(t *testing.T, o peerOptions) (*peer, *wire) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := newPeer(inR, outW, o)
	t.Cleanup(func() { inW.Close(); outR.Close(); p.closeOut(time.Second) })
	return p, &wire{t, inW, bufio.NewReaderSize(outR, 1<<20)}
}

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.to, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) line() string {
	w.t.Helper()
	s, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimRight(s, "\n")
}

// echo answers every request with its params, and notes notifications.
func echo(p **peer, seen *[]string) func(*message) {
	return func(m *message) {
		if m.isRequest() {
			(*p).reply(m.id, m.params)
			return
		}
		*seen = append(*seen, m.method)
	}
}

func TestPeerAnswersBadRecordsAndGoesOn(t *testing.T) {
	var p *peer
	var seen []string
	p, w := newWire(t, peerOptions{strict: true, handle: func(m *message) { echo(&p, &seen)(m) }})
	go p.run()
	for _, c := range []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":0,"method":"m","params":{"a":1}}`, `{"jsonrpc":"2.0","id":0,"result":{"a":1}}`},
		{`{"jsonrpc":"2.0","id":"0","method":"m","params":[]}`, `{"jsonrpc":"2.0","id":"0","result":[]}`},
		{`{"jsonrpc":"2.0","id":1e2,"method":"m","params":1}`, `{"jsonrpc":"2.0","id":1e2,"result":1}`},
		{`{"jsonrpc":"2.0",`, `"code":-32700`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", `not valid UTF-8`},
		{`42`, `"code":-32600`},
		{`{}`, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":7}`, `"id":7,"error":{"code":-32600`},
		{`{"id":7,"method":"m"}`, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"1.0","id":7,"method":"m"}`, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":5}`, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"m","result":1}`, `"id":7,"error":{"code":-32600`},
		{`[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: batches are not served; send the requests one by one`},
		{` [{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":8,"method":"m","params":"still here"}`, `"id":8,"result":"still here"`},
	} {
		w.send(c.in)
		if got := w.line(); !strings.Contains(got, c.want) {
			t.Errorf("%s\n got  %s\n want %s", c.in, got, c.want)
		}
	}
}

func TestPeerToleratesAnythingFromAChild(t *testing.T) {
	var seen []string
	var p *peer
	p, w := newWire(t, peerOptions{noVersion: true, mode: framingNewline, handle: func(m *message) { echo(&p, &seen)(m) }})
	go p.run()
	for _, junk := range []string{"log line", "{", "[]", "[1]", "{}", `{"id":99,"result":{}}`, `{"id":"x","result":{}}`, `{"method":"note"}`} {
		w.send(junk)
	}
	w.send(`{"id":0,"method":"ping","params":"pong"}`)
	if got := w.line(); got != `{"id":0,"result":"pong"}` {
		t.Fatal(got)
	}
	if fmt.Sprint(seen) != "[note]" {
		t.Fatal(seen)
	}
}

func TestCallEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newWire(t, peerOptions{maxInFlight: 2, handle: func(*message) {}})
		go p.run()
		var mu sync.Mutex
		got := map[string][]string{}
		call := func(name string, timeout time.Duration) {
			p.call(name, nil, timeout, func(res json.RawMessage, err error) {
				mu.Lock()
				defer mu.Unlock()
				got[name] = append(got[name], fmt.Sprintf("%s %v", res, err))
			})
		}
		call("a", time.Second)
		call("b", 2*time.Second)
		call("c", 500*time.Millisecond) // waits for a slot, and gives up before it has one
		call("d", 10*time.Second)       // gets a's slot when a gives up
		for _, want := range []string{"a", "b"} {
			if line := w.line(); !strings.Contains(line, `"method":"`+want+`"`) {
				t.Fatal(line)
			}
		}
		time.Sleep(1100 * time.Millisecond) // the bubble's clock: a is over, d is sent
		if line := w.line(); !strings.Contains(line, `"id":4,"method":"d"`) {
			t.Fatal(line)
		}
		w.send(`{"jsonrpc":"2.0","id":1,"result":"late"}`)
		w.send(`{"jsonrpc":"2.0","id":2,"error":{"code":5,"message":"no"}}`)
		w.send(`{"jsonrpc":"2.0","id":2,"result":"again"}`)
		w.to.Close()
		synctest.Wait()
		call("e", time.Second)
		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string]string{"a": "[ " + errCallTimeout.Error() + "]", "b": "[ no]", "c": "[ " + errNotSent.Error() + "]",
			"d": "[ " + errPeerGone.Error() + "]", "e": "[ " + errPeerGone.Error() + "]"} {
			if fmt.Sprint(got[name]) != want {
				t.Errorf("%s: got %q, want %q", name, got[name], want)
			}
		}
	})
}

// A client that stops reading costs the budget and no more, but for one large
// record. Deltas leave room for what ended and began; answers are kept.
func TestOutboxDropsOnlyWhatMayBeDropped(t *testing.T) {
	r, w := io.Pipe()
	o := newOutbox(w, 1000, nil)
	rec := []byte(strings.Repeat("x", 99))
	dropped := 0
	for range 50 {
		if !o.put(rec, framingNewline, dropFirst) {
			dropped++
		}
	}
	if dropped != 43 {
		t.Fatalf("%d dropped, want 43", dropped)
	}
	large := []byte(strings.Repeat("y", 5000))
	if !o.put(rec, framingNewline, dropLast) || !o.put(large, framingNewline, dropLast) {
		t.Fatal("no room for an end, or for a large one")
	}
	if o.put(rec, framingNewline, dropLast) {
		t.Fatal("ends go on past the budget")
	}
	if !o.put([]byte("answer"), framingNewline, keepAlways) {
		t.Fatal("an answer was dropped")
	}
	go func() { o.close(time.Minute); w.Close() }()
	all, err := io.ReadAll(r)
	wantNil(t, err)
	if lines := strings.Split(strings.TrimSpace(string(all)), "\n"); len(lines) != 10 || lines[9] != "answer" {
		t.Fatalf("%d lines, last %q", len(lines), lines[len(lines)-1])
	}
	if o.put(rec, framingNewline, keepAlways) {
		t.Fatal("put after close")
	}
}

func TestOutboxEndsWithItsReader(t *testing.T) {
	r, w := io.Pipe()
	told := make(chan error, 1)
	o := newOutbox(w, 1000, func(err error) { told <- err })
	r.Close()
	o.put([]byte("x"), framingNewline, keepAlways)
	if err := <-told; !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	if o.put([]byte("y"), framingNewline, keepAlways) || o.size() != 0 {
		t.Fatal("a dead outbox takes records")
	}
}
