package main

// proxy_dialogue_test.go owns the dialogue of a script with a live peer: every record
// both sides wrote, what was matched already, and the waiting for one that
// matches. The commands of proxy_scriptpeer_test.go are thin layers over it. It never
// sleeps: a wait ends with a match, the peer's end or the script's limit.

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptPeer is a live process and the dialogue with it.
type scriptPeer struct {
	*livePeer
	state *scriptState

	// Only the script's goroutine touches these.
	cursor int             // expect reads on from here
	asked  json.RawMessage // id of the request that was matched last
	lastID int             // last id we allocated

	mu      sync.Mutex    // guards the fields below
	log     []scriptEntry // both directions, in the order we saw
	changed chan struct{} // closed and replaced when log grows
}

// scriptEntry is one record of the dialogue.
type scriptEntry struct {
	ours    bool
	raw     []byte
	value   any   // decoded
	bad     error // it is no JSON
	matched bool
}

func (p *scriptPeer) append(ours bool, raw []byte) {
	e := scriptEntry{ours: ours, raw: raw}
	e.value, e.bad = decodeJSON(raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, e)
	close(p.changed)
	p.changed = make(chan struct{})
}

// send writes one record and keeps it in the dialogue, before: the answer must
// not come first.
func (p *scriptPeer) send(ts *testscript.TestScript, v any) {
	raw := []byte(compact(v))
	p.append(true, raw)
	if err := p.write(raw); err != nil {
		ts.Fatalf("%v%s", err, p.context())
	}
}

// request sends a request with an id of ours.
func (p *scriptPeer) request(ts *testscript.TestScript, method string, params any) json.Number {
	p.lastID++
	id := json.Number(strconv.Itoa(p.lastID))
	p.send(ts, map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return id
}

// expect waits for a record that matches; next: the first one that wasn't read
// yet must; skipped: those that earlier expects read past count too.
func (p *scriptPeer) expect(ts *testscript.TestScript, pattern any, next, skipped bool) {
	timer := time.NewTimer(p.state.limit)
	defer timer.Stop()
	at := p.cursor
	if skipped {
		at = 0
	}
	for {
		e, _ := p.entry(at)
		if e == nil {
			ended := p.gone() // asked first: then nothing comes after what entry sees
			var changed <-chan struct{}
			if e, changed = p.entry(at); e == nil {
				if ended {
					ts.Fatalf("%s ended (%s, %v) before a record matched %s%s", p.name, p.howEnded(), p.readErr, compact(pattern), p.context())
				}
				select {
				case <-changed:
				case <-p.exited:
				case <-timer.C:
					ts.Fatalf("waited %v: no record of %s matched %s%s", p.state.limit, p.name, compact(pattern), p.context())
				}
				continue
			}
		}
		if e.ours || e.matched {
			at++
			continue
		}
		if e.bad != nil {
			ts.Fatalf("stdout of %s carries what is no JSON (%v): %q%s", p.name, e.bad, clipText(string(e.raw), 500), p.context())
		}
		vars, err := matchJSON(pattern, e.value)
		if err == nil {
			p.take(at)
			p.cursor = max(p.cursor, at+1)
			p.state.bind(ts, vars)
			return
		}
		if next {
			ts.Fatalf("the next record of %s does not match: %v\n%s%s", p.name, err, clipText(string(e.raw), 2000), p.context())
		}
		at++
	}
}

// expectNone pings and reads up to the answer: the answer takes the same way as
// what came before it, so nothing of that is still under way.
func (p *scriptPeer) expectNone(ts *testscript.TestScript, pattern any, from int) {
	p.lastID++
	id := fmt.Sprintf("pong-%d", p.lastID)
	p.send(ts, map[string]any{"jsonrpc": "2.0", "id": id, "method": "ping"})
	asked, start := p.asked, p.cursor
	p.expect(ts, map[string]any{"id": id, "method": "$absent"}, false, false)
	end := p.cursor - 1              // without the answer itself
	p.asked, p.cursor = asked, start // what was looked at can still be expected
	for at := from; at < end; at++ {
		e, _ := p.entry(at)
		if e.ours || e.bad != nil {
			continue
		}
		if _, err := matchJSON(pattern, e.value); err == nil {
			ts.Fatalf("a record of %s matches %s: %s%s", p.name, compact(pattern), clipText(string(e.raw), 2000), p.context())
		}
	}
}

// entry returns a copy of record at, or nil and a channel that tells of more.
func (p *scriptPeer) entry(at int) (*scriptEntry, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at >= len(p.log) {
		return nil, p.changed
	}
	e := p.log[at]
	return &e, nil
}

// take marks a record as matched, and remembers whom it asks.
func (p *scriptPeer) take(at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &p.log[at]
	e.matched = true
	if req, ok := e.value.(map[string]any); ok && req["method"] != nil && req["id"] != nil {
		p.asked = json.RawMessage(compact(req["id"]))
	}
}

// saidFor joins what the agent of an ACP session said for a prompt that was
// answered: since the session's prompt before it was, if it waited for that.
func (p *scriptPeer) saidFor(id any) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var said strings.Builder
	prompts := map[string]any{} // sessions by the ids of their prompts
	var session any
	for _, e := range p.log {
		m, _ := e.value.(map[string]any)
		params, _ := m["params"].(map[string]any)
		update, _ := params["update"].(map[string]any)
		content, _ := update["content"].(map[string]any)
		key := compact(m["id"])
		switch {
		case e.ours && m["method"] == "session/prompt":
			if prompts[key] = params["sessionId"]; key == compact(id) {
				session = params["sessionId"]
				said.Reset()
			}
		case e.ours:
		case m["method"] == nil && key == compact(id):
			return said.String()
		case m["method"] == nil && session != nil && prompts[key] == session:
			said.Reset()
		case params["sessionId"] == session && update["sessionUpdate"] == "agent_message_chunk":
			text, _ := content["text"].(string)
			said.WriteString(text)
		}
	}
	return said.String()
}

// dialogue prints the last records from the given one on.
func (p *scriptPeer) dialogue(from, width int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, e := range p.log[min(from, len(p.log)):] {
		dir := "<"
		if e.ours {
			dir = ">"
		}
		fmt.Fprintf(&b, "%s %s\n", dir, clipText(string(e.raw), width))
	}
	return b.String()
}

// context is what a failed script shows of a peer.
func (p *scriptPeer) context() string {
	p.mu.Lock()
	from := max(0, len(p.log)-30)
	p.mu.Unlock()
	text := "\n[dialogue]\n" + p.dialogue(from, 400)
	if log := p.stderr.String(); log != "" {
		text += "[stderr]\n" + clipText(log[max(0, len(log)-3000):], 3000)
	}
	return text
}
