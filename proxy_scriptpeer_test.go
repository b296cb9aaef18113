package main

// proxy_scriptpeer_test.go owns the script commands that hold live processes, so that
// a script reads as a dialogue: every record both sides wrote, what was matched
// already, and the waiting for one that matches. JSON arguments know variables and
// patterns (proxy_match_test.go). Waits end with a match, the peer's end or a limit; no
// command sleeps. A record on stdout that is no JSON fails the next expect.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

type scriptCommand = func(ts *testscript.TestScript, neg bool, args []string)

// peerCommands are:
//
//	start [-env K=V]... [-cwd dir] [-framing header|newline] NAME prog args…
//	init [-client name] NAME [version] [capabilities]   the legacy handshake
//	send NAME JSON… | send NAME - | send NAME file      records, from the arguments,
//	                                     the last command's stdout, or a file of JSON values
//	sendraw [-repeat n] NAME text        bytes, with Go's escapes, n times
//	request [-bind var] NAME method [params]            allocates the id, kept as $id or $var
//	call [-bind var] [-meta JSON] NAME tool [args]      request tools/call
//	expect NAME pattern                  read on until a record matches
//	expect -next NAME pattern            the very next record must match
//	expect -any NAME pattern             one that earlier expects read past may match too
//	expect -none NAME pattern            nothing from here to a ping's answer matches
//	expect -never NAME pattern           the same, and nothing before
//	reply [-error] NAME JSON             answers the request that was expected last
//	hangup NAME                          closes stdin
//	signal NAME|pid SIGNAL               to a peer, or a process that a peer started
//	exit NAME [code|text]                waits for the end; text: part of its reason
//	errlog NAME regexp                   waits for it on stderr (! it is not there now)
//	transcript NAME                      prints the dialogue, for stdout and cmp
//	noproc NAME                          waits until it and all it started are gone
//	                                     (! some are there now); Linux only
//
// And of the Agent Client Protocol:
//
//	hello NAME [capabilities]            its handshake
//	opens [-bind var] [-cwd dir] [-mcp JSON] [-times n] NAME    session/new, kept as $session or $var
//	prompt [-bind var] NAME session line…               session/prompt of one text, these lines
//	update [-next|-any|-none|-never] NAME pattern       expect, of a session/update's update
//	stops [-of var] [-says regexp] NAME [reason]        the prompt's answer, by default
//	                                     end_turn, and all that the agent said for it
func peerCommands() map[string]scriptCommand {
	return map[string]scriptCommand{
		"hello": scriptHello, "opens": scriptOpens, "prompt": scriptPrompt, "update": scriptUpdate, "stops": scriptStops,
		"start": scriptStart, "init": scriptInit, "send": scriptSend, "sendraw": scriptSendraw,
		"request": scriptRequest, "call": scriptCall, "expect": scriptExpect, "reply": scriptReply,
		"hangup": scriptHangup, "signal": scriptSignal, "exit": scriptExit, "errlog": scriptErrlog,
		"transcript": scriptTranscript, "noproc": scriptNoproc,
	}
}

func peerOf(ts *testscript.TestScript, name string) *scriptPeer {
	p := stateOf(ts).peers[name]
	if p == nil {
		ts.Fatalf("no peer %q was started", name)
	}
	return p
}

// stringList is a flag that may be given again.
type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, " ") }
func (l *stringList) Set(v string) error { *l = append(*l, v); return nil }

func scriptStart(ts *testscript.TestScript, neg bool, args []string) {
	var extra stringList
	framing, cwd := "newline", "."
	args = scriptFlags(ts, neg, false, "start [-env K=V]... [-cwd dir] [-framing header|newline] NAME prog args…", args, 2, -1, func(fl *flag.FlagSet) {
		fl.Var(&extra, "env", "")
		fl.StringVar(&framing, "framing", framing, "")
		fl.StringVar(&cwd, "cwd", cwd, "")
	})
	if framing != "newline" && framing != "header" {
		ts.Fatalf("unknown framing %q", framing)
	}
	st, name := stateOf(ts), args[0]
	if old := st.peers[name]; old != nil {
		if !old.gone() {
			ts.Fatalf("peer %q still runs", name)
		}
		old.stop() // a name may be used again; what the old one left must not outlive the script
	}
	p := &scriptPeer{state: st, changed: make(chan struct{})}
	dir := ts.MkAbs(cwd)
	live, err := startPeer(peerConfig{
		name: name, path: scriptLookPath(ts, args[1]), args: args[2:], limit: st.limit,
		env: append(append(scriptEnviron(ts), "PWD="+dir), extra...),
		dir: dir, header: framing == "header", onRecord: func(raw []byte) { p.append(false, raw) },
	})
	ts.Check(err)
	p.livePeer = live
	st.peers[name] = p
}

func scriptInit(ts *testscript.TestScript, neg bool, args []string) {
	client := "script"
	args = scriptFlags(ts, neg, false, "init [-client name] NAME [version] [capabilities]", args, 1, 3, func(fl *flag.FlagSet) {
		fl.StringVar(&client, "client", client, "")
	})
	version, caps := "2025-11-25", any(map[string]any{})
	if len(args) > 1 {
		version = args[1]
	}
	if len(args) > 2 {
		caps = stateOf(ts).value(ts, args[2], false)
	}
	p := peerOf(ts, args[0])
	id := p.request(ts, "initialize", map[string]any{
		"protocolVersion": version, "capabilities": caps,
		"clientInfo": map[string]any{"name": client, "version": "1"},
	})
	p.expect(ts, map[string]any{"id": id, "result": map[string]any{"protocolVersion": "$any"}}, false, false)
	p.send(ts, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

func scriptSend(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "send NAME JSON…|-|file", args, 2, -1, nil)
	p, st := peerOf(ts, args[0]), stateOf(ts)
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "{") || strings.HasPrefix(arg, "[") {
			p.send(ts, st.value(ts, arg, false))
			continue
		}
		if arg == "-" {
			arg = "stdout" // testscript's name for what the last command printed
		}
		dec := json.NewDecoder(strings.NewReader(ts.ReadFile(arg)))
		for n := 0; ; n++ {
			var v json.RawMessage
			if err := dec.Decode(&v); err != nil {
				if n == 0 || err != io.EOF {
					ts.Fatalf("%s: %v", arg, err)
				}
				break
			}
			p.send(ts, st.value(ts, string(v), false))
		}
	}
}

func scriptSendraw(ts *testscript.TestScript, neg bool, args []string) {
	repeat := 1
	args = scriptFlags(ts, neg, false, "sendraw [-repeat n] NAME text", args, 2, 2, func(fl *flag.FlagSet) {
		fl.IntVar(&repeat, "repeat", repeat, "")
	})
	var quoted strings.Builder
	for i := 0; i < len(args[1]); i++ {
		switch c := args[1][i]; {
		case c == '\\' && i+1 < len(args[1]):
			quoted.WriteString(args[1][i : i+2])
			i++
		case c == '"':
			quoted.WriteString(`\"`)
		default:
			quoted.WriteByte(c)
		}
	}
	text, err := strconv.Unquote(`"` + quoted.String() + `"`)
	if err != nil {
		ts.Fatalf("bad escape in %q", args[1])
	}
	ts.Check(peerOf(ts, args[0]).writeRaw(bytes.Repeat([]byte(text), repeat)))
}

func scriptRequest(ts *testscript.TestScript, neg bool, args []string) {
	name := "id"
	args = scriptFlags(ts, neg, false, "request [-bind var] NAME method [params]", args, 2, 3, func(fl *flag.FlagSet) {
		fl.StringVar(&name, "bind", name, "")
	})
	params := any(map[string]any{})
	if len(args) > 2 {
		params = stateOf(ts).value(ts, args[2], false)
	}
	id := peerOf(ts, args[0]).request(ts, args[1], params)
	stateOf(ts).bind(ts, map[string]any{name: id})
}

func scriptCall(ts *testscript.TestScript, neg bool, args []string) {
	name, meta := "id", ""
	args = scriptFlags(ts, neg, false, "call [-bind var] [-meta JSON] NAME tool [args]", args, 2, 3, func(fl *flag.FlagSet) {
		fl.StringVar(&name, "bind", name, "")
		fl.StringVar(&meta, "meta", meta, "")
	})
	st := stateOf(ts)
	params := map[string]any{"name": args[1], "arguments": any(map[string]any{})}
	if len(args) > 2 {
		params["arguments"] = st.value(ts, args[2], false)
	}
	if meta != "" {
		params["_meta"] = st.value(ts, meta, false)
	}
	id := peerOf(ts, args[0]).request(ts, "tools/call", params)
	st.bind(ts, map[string]any{name: id})
}

func scriptHello(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "hello NAME [capabilities]", args, 1, 2, nil)
	caps := any(map[string]any{})
	if len(args) > 1 {
		caps = stateOf(ts).value(ts, args[1], false)
	}
	p := peerOf(ts, args[0])
	id := p.request(ts, "initialize", map[string]any{
		"protocolVersion": 1, "clientCapabilities": caps, "clientInfo": map[string]any{"name": "script", "version": "1"},
	})
	p.expect(ts, map[string]any{"id": id, "result": map[string]any{"protocolVersion": json.Number("1")}}, false, false)
}

func scriptOpens(ts *testscript.TestScript, neg bool, args []string) {
	name, cwd, servers, times := "session", ".", "[]", 1
	args = scriptFlags(ts, neg, false, "opens [-bind var] [-cwd dir] [-mcp JSON] [-times n] NAME", args, 1, 1, func(fl *flag.FlagSet) {
		fl.IntVar(&times, "times", times, "")
		fl.StringVar(&name, "bind", name, "")
		fl.StringVar(&cwd, "cwd", cwd, "")
		fl.StringVar(&servers, "mcp", servers, "")
	})
	p := peerOf(ts, args[0])
	for range times {
		id := p.request(ts, "session/new", map[string]any{"cwd": ts.MkAbs(cwd), "mcpServers": stateOf(ts).value(ts, servers, false)})
		p.expect(ts, map[string]any{"id": id, "result": map[string]any{"sessionId": "$bind:" + name}}, false, false)
	}
}

func scriptPrompt(ts *testscript.TestScript, neg bool, args []string) {
	name := "id"
	args = scriptFlags(ts, neg, false, "prompt [-bind var] NAME session line…", args, 3, -1, func(fl *flag.FlagSet) {
		fl.StringVar(&name, "bind", name, "")
	})
	id := peerOf(ts, args[0]).request(ts, "session/prompt", map[string]any{"sessionId": args[1],
		"prompt": []any{map[string]any{"type": "text", "text": strings.Join(args[2:], "\n")}}})
	stateOf(ts).bind(ts, map[string]any{name: id})
}

func scriptUpdate(ts *testscript.TestScript, neg bool, args []string) {
	expectIn(ts, neg, "update", args, func(pattern any) any {
		return map[string]any{"method": "session/update", "params": map[string]any{"update": pattern}}
	})
}

func scriptStops(ts *testscript.TestScript, neg bool, args []string) {
	name, says := "id", ""
	args = scriptFlags(ts, neg, false, "stops [-of var] [-says regexp] NAME [reason]", args, 1, 2, func(fl *flag.FlagSet) {
		fl.StringVar(&name, "of", name, "")
		fl.StringVar(&says, "says", says, "")
	})
	reason := "end_turn"
	if len(args) > 1 {
		reason = args[1]
	}
	p, id := peerOf(ts, args[0]), stateOf(ts).vars[name]
	p.expect(ts, map[string]any{"id": id, "result": map[string]any{"stopReason": reason}}, false, false)
	said, err := matchJSON("$re:(?s)"+says, p.saidFor(id))
	ts.Check(err)
	stateOf(ts).bind(ts, said)
}

func scriptExpect(ts *testscript.TestScript, neg bool, args []string) {
	expectIn(ts, neg, "expect", args, func(pattern any) any { return pattern })
}

// expectIn is expect of what around makes of the pattern.
func expectIn(ts *testscript.TestScript, neg bool, name string, args []string, around func(any) any) {
	var next, skipped, none, never bool
	args = scriptFlags(ts, neg, false, name+" [-next|-any|-none|-never] NAME pattern", args, 2, 2, func(fl *flag.FlagSet) {
		fl.BoolVar(&next, "next", false, "")
		fl.BoolVar(&skipped, "any", false, "")
		fl.BoolVar(&none, "none", false, "")
		fl.BoolVar(&never, "never", false, "")
	})
	p, pattern := peerOf(ts, args[0]), around(stateOf(ts).value(ts, args[1], true))
	switch {
	case none:
		p.expectNone(ts, pattern, p.cursor)
	case never:
		p.expectNone(ts, pattern, 0)
	default:
		p.expect(ts, pattern, next, skipped)
	}
}

func scriptReply(ts *testscript.TestScript, neg bool, args []string) {
	isError := false
	args = scriptFlags(ts, neg, false, "reply [-error] NAME JSON", args, 2, 2, func(fl *flag.FlagSet) {
		fl.BoolVar(&isError, "error", false, "")
	})
	p := peerOf(ts, args[0])
	if p.asked == nil {
		ts.Fatalf("no request of %s was expected, so there is nothing to reply to", p.name)
	}
	member := "result"
	if isError {
		member = "error"
	}
	p.send(ts, map[string]any{"jsonrpc": "2.0", "id": p.asked, member: stateOf(ts).value(ts, args[1], false)})
}

func scriptHangup(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "hangup NAME", args, 1, 1, nil)
	peerOf(ts, args[0]).hangup()
}

func scriptSignal(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "signal NAME|pid SIGNAL", args, 2, 2, nil)
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Check(peerOf(ts, args[0]).signal(args[1]))
		return
	}
	// A number out of a record: make sure that it is one of ours.
	for _, p := range stateOf(ts).peers {
		if slices.Contains(p.leftovers(), pid) {
			sig, err := signalByName(args[1])
			ts.Check(err)
			proc, err := os.FindProcess(pid)
			ts.Check(err)
			ts.Check(proc.Signal(sig))
			return
		}
	}
	ts.Fatalf("process %d was not started by a peer of this script", pid)
}

func scriptExit(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "exit NAME [code|text]", args, 1, 2, nil)
	p := peerOf(ts, args[0])
	if err := p.waitExit(p.state.limit); err != nil {
		ts.Fatalf("%v%s", err, p.context())
	}
	if len(args) < 2 {
		return
	}
	reason := p.howEnded()
	if code, err := strconv.Atoi(args[1]); err == nil {
		if got := p.cmd.ProcessState.ExitCode(); got != code {
			ts.Fatalf("%s ended with %s, want code %d%s", p.name, reason, code, p.context())
		}
	} else if !strings.Contains(reason, args[1]) {
		ts.Fatalf("%s ended with %s, want %q%s", p.name, reason, args[1], p.context())
	}
}

func scriptErrlog(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, true, "errlog NAME regexp", args, 2, 2, nil)
	p := peerOf(ts, args[0])
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	if neg {
		if found := re.FindString(p.stderr.String()); found != "" {
			ts.Fatalf("stderr of %s has %q%s", p.name, found, p.context())
		}
		return
	}
	found := func() bool { return re.MatchString(p.stderr.String()) }
	if !poll(p.state.limit, func() bool { return found() || p.gone() }) || !found() {
		ts.Fatalf("stderr of %s has nothing like %q%s", p.name, args[1], p.context())
	}
}

func scriptTranscript(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, false, "transcript NAME", args, 1, 1, nil)
	fmt.Fprint(ts.Stdout(), peerOf(ts, args[0]).dialogue(0, 1<<20))
}

func scriptNoproc(ts *testscript.TestScript, neg bool, args []string) {
	args = scriptFlags(ts, neg, true, "noproc NAME", args, 1, 1, nil)
	if !hasProcFS() {
		ts.Fatalf("noproc needs /proc: write [linux] in front of it")
	}
	p := peerOf(ts, args[0])
	if neg {
		if len(p.leftovers()) == 0 {
			ts.Fatalf("no process of %s is left", p.name)
		}
	} else if err := p.waitAllGone(p.state.limit); err != nil {
		ts.Fatalf("%v%s", err, p.context())
	}
}

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
