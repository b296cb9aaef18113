package main

// mcp_batch.go owns JSON-RPC batches, which exist in protocol version
// 2025-03-26 only: the one record that answers several requests. The peer's
// reader calls takeBatch; mcp.go hands in the answers. It must never hold back
// a message outside of the batch.

import (
	"encoding/json"
	"sync"
)

// mcpBatch collects the answers to one batch.
type mcpBatch struct {
	write func(rec []byte)

	mu   sync.Mutex // guards the fields below
	left int        // answers still missing, and one while the batch is read
	out  []byte
}

// add expects one more answer.
func (b *mcpBatch) add() {
	b.mu.Lock()
	b.left++
	b.mu.Unlock()
}

// done takes one answer, nil for a request that was cancelled. The last one
// sends the record, if there is anything in it.
func (b *mcpBatch) done(rec []byte) {
	b.mu.Lock()
	b.left--
	if rec != nil {
		sep := byte(',')
		if b.out == nil {
			sep = '['
		}
		b.out = append(append(b.out, sep), rec...)
	}
	var whole []byte
	if b.left == 0 && b.out != nil {
		whole = append(b.out, ']')
	}
	b.mu.Unlock()
	if whole != nil {
		b.write(whole)
	}
}

// takeBatch serves a record that is a JSON array, on the reading goroutine.
// false: this client has no batches, and the peer refuses it.
func (f *mcpFront) takeBatch(rec []byte) bool {
	l := f.legacy.Load()
	if l == nil || l.version != "2025-03-26" {
		return false
	}
	var items []json.RawMessage
	if json.Unmarshal(rec, &items) != nil {
		return false
	}
	if len(items) == 0 {
		f.p.replyError(nil, &rpcError{Code: codeInvalidRequest, Message: "Invalid Request: the batch is empty"})
		return true
	}
	b := &mcpBatch{left: 1, write: func(rec []byte) { f.p.write(rec, false) }}
	for _, item := range items {
		m, err := parseMessage(item)
		switch {
		case err != nil || !m.version:
			what := `jsonrpc is not "2.0"`
			if err != nil {
				what = err.Error()
			}
			b.add()
			b.done(f.p.response(m.id, nil, &rpcError{Code: codeInvalidRequest, Message: "Invalid Request: " + what}))
		case m.isResponse():
			f.p.answered(&m)
		default:
			if m.isRequest() {
				b.add()
			}
			f.dispatch(&m, b)
		}
	}
	b.done(nil)
	return true
}
