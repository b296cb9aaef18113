package main

// mcp_stall_test.go holds a front to its budget while its client doesn't read:
// events are dropped and told as dropped, answers wait (FR-19.3, FR-19.4).

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// The ends of turns, which carry the whole text, were never dropped: while
// nobody read, each turn of each agent cost its text for good.
func TestStalledClientCostsTheBudget(t *testing.T) {
	in, toFront := io.Pipe()
	fromFront, out := io.Pipe()
	submits := make(chan waiterID, 1)
	f := newMCPFront(mcpOptions{R: in, W: out, ForwardEvents: "on", submit: func(_ turnRequest, w waiterID) { submits <- w }})
	running := make(chan error, 1)
	go func() { running <- f.run() }()
	lines := bufio.NewReaderSize(fromFront, 1<<20)
	say := func(rec string) {
		if _, err := io.WriteString(toFront, rec+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	read := func() json.RawMessage {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	read()
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}`)
	w := <-submits

	const size, events = 1 << 20, 24
	raw := json.RawMessage(`{"threadId":"t","turn":{"id":"u","text":"` + strings.Repeat("x", size) + `"}}`)
	took, dropped := 0, 0
	for range events {
		e := event{kind: evRaw, thread: "t", must: true, method: "turn/completed", raw: raw}
		if f.event(agentRef{AgentID: "codex:a", Thread: "t"}, w, &e) {
			took++
		} else {
			dropped++
		}
		if n := f.p.queued(); n > f.p.budget+2*size {
			t.Fatalf("%d bytes wait, the budget is %d", n, f.p.budget)
		}
	}
	if took < f.p.budget/size-1 || dropped == 0 {
		t.Fatalf("%d events taken, %d dropped", took, dropped)
	}
	f.done(w, turnResult{AgentID: "codex:a", Content: "the answer", TurnStatus: "completed"}) // never dropped

	for got := 0; ; {
		rec := read()
		if stringField(rec, "method") == "codex/event" {
			got++
			continue
		}
		if text := stringField(rec, "result", "structuredContent", "content"); text != "the answer" || got != took {
			t.Errorf("%d of %d events before %.200s", got, took, rec)
		}
		break
	}
	toFront.Close()
	go func() { _, _ = io.Copy(io.Discard, fromFront) }() // until out is closed
	if err := <-running; err != nil {
		t.Error(err)
	}
	f.shutdown(time.Second)
	out.Close()
}
