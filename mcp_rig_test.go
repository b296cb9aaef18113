package main

// mcp_rig_test.go owns the client that the tests of the MCP front speak with:
// pipes on both sides of a front, and a hub made of functions. To prove that
// something was not sent, a test pings and reads up to the pong.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// mcpRig is one client of one front.
type mcpRig struct {
	t   *testing.T
	f   *mcpFront
	in  *io.PipeWriter
	out chan json.RawMessage // closed at the end of stdout
	run chan error
	n   int
	end func() // hangs up, shuts down and ends stdout

	submits chan submitted
	cancels chan cancelled
	decides chan decided
}

type submitted struct {
	req turnRequest
	w   waiterID
}

type cancelled struct {
	w      waiterID
	detach bool
}

type decided struct {
	ask     string
	by      decider
	d       decision
	answers map[string][]string
}

// newRig starts a front; change may be nil.
func newRig(t *testing.T, change func(*mcpOptions)) *mcpRig {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	r := &mcpRig{t: t, in: inW, out: make(chan json.RawMessage, 1000), run: make(chan error, 1),
		submits: make(chan submitted, 100), cancels: make(chan cancelled, 100), decides: make(chan decided, 100)}
	o := mcpOptions{R: inR, W: outW, Version: "1.2.3", DefaultCwd: t.TempDir(),
		submit:   func(req turnRequest, w waiterID) { r.submits <- submitted{req, w} },
		cancel:   func(w waiterID, detach bool) { r.cancels <- cancelled{w, detach} },
		sessions: func(int) []sessionView { return nil },
		status:   func() statusView { return statusView{Team: "default"} },
		close: func(ref, _ string, done func(closeResult, *rpcError)) {
			go done(closeResult{AgentID: ref, Identity: ref, Status: "closed"}, nil)
		},
		decide: func(ask string, by decider, d decision, answers map[string][]string) bool {
			r.decides <- decided{ask, by, d, answers}
			return true
		},
	}
	o.mailAs = func(ref, identity string) (atmCaller, *rpcError) {
		return atmCaller{}, proxyError(codeIdentityRequired, "whose mail?")
	}
	o.atm = func(_ context.Context, who atmCaller, _ string, _ json.RawMessage) (any, string, *rpcError) {
		return nil, "", who.Refused
	}
	if change != nil {
		change(&o)
	}
	r.f = newMCPFront(o)
	go func() { r.run <- r.f.run() }()
	go func() {
		defer close(r.out)
		fr := newFrameReader(outR, maxRecord, framingNewline)
		for {
			rec, err := fr.read()
			if err != nil {
				return
			}
			r.out <- append(json.RawMessage(nil), rec...)
		}
	}()
	var once sync.Once
	r.end = func() {
		once.Do(func() {
			inW.Close()
			if err := <-r.run; err != nil {
				t.Errorf("run: %v", err)
			}
			r.f.shutdown(time.Second)
			outW.Close()
		})
	}
	t.Cleanup(r.end)
	return r
}

// send writes one record.
func (r *mcpRig) send(rec string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, rec+"\n"); err != nil {
		r.t.Fatalf("writing to the front: %v", err)
	}
}

// next reads one record of the front.
func (r *mcpRig) next() json.RawMessage {
	r.t.Helper()
	var rec json.RawMessage
	select {
	case got, ok := <-r.out:
		if !ok {
			r.t.Fatal("stdout ended")
		}
		rec = got
	case <-time.After(time.Minute):
		r.t.Fatal("nothing came for a minute")
	}
	if !json.Valid(rec) {
		r.t.Fatalf("no JSON on stdout: %s", rec)
	}
	return rec
}

// ask sends a request and reads its answer, which must be the next record.
func (r *mcpRig) ask(method, params string) json.RawMessage {
	r.t.Helper()
	r.n++
	id := fmt.Sprintf("%d", 1000+r.n)
	if params != "" {
		params = `,"params":` + params
	}
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"` + params + `}`)
	rec := r.next()
	if string(rawField(rec, "id")) != id {
		r.t.Fatalf("%s was answered with %s", method, rec)
	}
	return rec
}

// quiet proves that nothing was sent but the pong.
func (r *mcpRig) quiet() {
	r.t.Helper()
	r.n++
	id := fmt.Sprintf(`"quiet-%d"`, r.n)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
	if rec := r.next(); string(rawField(rec, "id")) != id {
		r.t.Fatalf("expected nothing, got %s", rec)
	}
}

const (
	modernMetaJSON = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	modernOnly     = `{` + modernMetaJSON + `}`
)

// hello does the legacy handshake.
func (r *mcpRig) hello(version, capabilities, client string) json.RawMessage {
	r.t.Helper()
	rec := r.ask("initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"1"}}`, version, capabilities, client))
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return rec
}

// call writes the params of a tools/call in one of the eras.
func callParams(modern bool, tool, args string) string {
	meta := ""
	if modern {
		meta = modernMetaJSON + ","
	}
	return `{` + meta + `"name":"` + tool + `","arguments":` + strings.ReplaceAll(args, "\n", " ") + `}`
}

// errorOf is the JSON-RPC error of an answer.
func errorOf(t *testing.T, rec json.RawMessage) (code int, message string, data json.RawMessage) {
	t.Helper()
	var m struct {
		Error *rpcError
	}
	if err := json.Unmarshal(rec, &m); err != nil || m.Error == nil {
		t.Fatalf("no error: %s", rec)
	}
	return m.Error.Code, m.Error.Message, m.Error.Data
}

// resultOf is the result of an answer.
func resultOf(t *testing.T, rec json.RawMessage) json.RawMessage {
	t.Helper()
	result := rawField(rec, "result")
	if result == nil {
		t.Fatalf("no result: %s", rec)
	}
	return result
}

func mustContain(t *testing.T, s string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(s, want) {
			t.Errorf("%q is missing in %s", want, s)
		}
	}
}

// okTurn is a plain result.
func okTurn(content string) turnResult {
	return turnResult{AgentID: "codex:ab12", ThreadID: "01a1", TurnID: "turn-1", Content: content, Identity: "codex",
		Team: "default", Status: "idle", TurnStatus: "completed", Usage: &tokenUsage{Total: 120}, Duration: 1500 * time.Millisecond,
		Sandbox: "workspace-write", Approval: "on-request"}
}
