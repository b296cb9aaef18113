package main

// acp_servers.go owns the MCP servers that an ACP client brings for a session:
// reading them into Codex's words, names that Codex takes and nobody else has,
// and how they are, as Codex tells it while a thread is opened. The front calls
// readServers before it opens a session, and observe with every event. It must
// never write them anywhere, nor set what lets their tools run unasked.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// ownToolServer is what a thread's server of our own tools is called, and
	// what models read as theirs.
	ownToolServer = "atm"
	// serversWait is how long a prompt is held back for servers to start: Codex
	// (0.169) waits one second for them, and a tool that comes later is missing
	// from the turn.
	serversWait = 10 * time.Second
	// configWait is how long the names of the user's own servers are waited for.
	configWait = 20 * time.Second
)

// readServers makes Codex's mcp_servers of a client's mcpServers. taken are the
// names of the user's own. names are those that Codex gets, in the client's
// order; renamed has the client's own word for each that had to change.
func readServers(raw json.RawMessage, taken []string) (servers json.RawMessage, names []string, renamed map[string]string, e *rpcError) {
	if isNull(raw) {
		return nil, nil, nil, nil
	}
	if rawKind(raw) != '[' {
		return nil, nil, nil, badParams("mcpServers must be an array of servers, not %s", kindWord(raw))
	}
	used := map[string]bool{ownToolServer: true}
	for _, name := range taken {
		used[name] = true
	}
	table, at := map[string]any{}, -1
	renamed = map[string]string{}
	eachElement(raw, func(each json.RawMessage) {
		at++
		if e != nil {
			return
		}
		own := stringField(each, "name")
		where := fmt.Sprintf("mcpServers[%d]", at)
		if own == "" {
			e = badParams("%s has no name, which must be a string that isn't empty", where)
			return
		}
		where += fmt.Sprintf(" %q", clip(own, 100))
		var entry map[string]any
		if entry, e = readServer(each, where); e != nil {
			return
		}
		name := codexServerName(own, used)
		used[name] = true
		if name != own {
			renamed[name] = own
		}
		table[name] = entry
		names = append(names, name)
	})
	if e != nil || len(table) == 0 {
		return nil, nil, nil, e
	}
	return toJSON(table), names, renamed, nil
}

// readServer reads one server of either transport.
func readServer(raw json.RawMessage, where string) (map[string]any, *rpcError) {
	text := func(key string) (string, *rpcError) {
		val := rawField(raw, key)
		s, ok := rawString(val)
		if val == nil {
			return "", badParams("%s: %s is missing: it must be a string that isn't empty", where, key)
		}
		if !ok || s == "" || strings.ContainsRune(s, 0) {
			return "", badParams("%s: %s must be a string that isn't empty and has no NUL", where, key)
		}
		return s, nil
	}
	kind := rawField(raw, "type")
	word, isWord := rawString(kind)
	switch {
	case isNull(kind) || word == "stdio":
		command, e := text("command")
		if e != nil {
			return nil, e
		}
		args := []string{}
		val := rawField(raw, "args")
		if !isNull(val) && (rawKind(val) != '[' || json.Unmarshal(val, &args) != nil) {
			return nil, badParams("%s: args must be an array of strings", where)
		}
		env, e := readPairs(raw, "env", where)
		if e != nil {
			return nil, e
		}
		return map[string]any{"command": command, "args": args, "env": env}, nil
	case word == "http":
		address, e := text("url")
		if e != nil {
			return nil, e
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, badParams("%s: url %q is no http or https address", where, clip(address, 200))
		}
		headers, e := readPairs(raw, "headers", where)
		if e != nil {
			return nil, e
		}
		return map[string]any{"url": address, "http_headers": headers}, nil
	case word == "sse":
		return nil, badParams("%s: type \"sse\" is not supported, as mcpCapabilities say; use http or stdio", where)
	case isWord:
		return nil, badParams("%s: type %q is none of stdio (or absent) and http", where, clip(word, 100))
	}
	return nil, badParams("%s: type must be a string, not %s", where, kindWord(kind))
}

// readPairs reads env and headers: a list of name and value. The last of two
// equal names counts.
func readPairs(raw json.RawMessage, key, where string) (map[string]string, *rpcError) {
	pairs := map[string]string{}
	list := rawField(raw, key)
	if isNull(list) {
		return pairs, nil
	}
	if rawKind(list) != '[' {
		return nil, badParams("%s: %s must be an array of {name, value}, not %s", where, key, kindWord(list))
	}
	var e *rpcError
	eachElement(list, func(each json.RawMessage) {
		name, named := rawString(rawField(each, "name"))
		value, valued := rawString(rawField(each, "value"))
		switch {
		case e != nil:
		case !named || name == "" || strings.ContainsAny(name, "=\x00\r\n") && key == "env" || strings.ContainsAny(name, ":\x00\r\n ") && key == "headers":
			e = badParams("%s: %s has an entry without a usable name", where, key)
		case !valued || strings.ContainsRune(value, 0) || strings.ContainsAny(value, "\r\n") && key == "headers":
			e = badParams("%s: %s %q has no usable value, which must be a string", where, key, clip(name, 100)) // the value may be a secret
		default:
			pairs[name] = value
		}
	})
	return pairs, e
}

// codexServerName is a name that every Codex takes ([A-Za-z0-9_-], 0.104; newer ones
// take a little more) and that isn't used.
func codexServerName(own string, used map[string]bool) string {
	var b strings.Builder
	for _, r := range own {
		if r < 0x80 && (r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			b.WriteRune(r)
		} else if s := b.String(); !strings.HasSuffix(s, "_") {
			b.WriteByte('_')
		}
	}
	name := clipBytes(b.String(), 60)
	if name != own {
		name = strings.TrimRight(name, "_")
	}
	if name == "" {
		name = "server"
	}
	free := name
	for n := 2; used[free]; n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	return free
}

// userServers are the names of the MCP servers in the user's own Codex
// configuration as seen from dir, switched off or not: Codex would mix two
// entries of one name. It waits for the child. nil where it can't be read.
func (f *acpFront) userServers(ctx context.Context, dir string) []string {
	ctx, stop := context.WithTimeout(ctx, configWait)
	defer stop()
	raw, e := f.catalog(ctx, "config", dir)
	if e != nil {
		f.Log.Warn("the user's MCP servers could not be read", "err", e)
		return nil
	}
	var names []string
	_ = eachField(rawField(raw, "config", "mcp_servers"), func(name string, _ json.RawMessage) bool {
		names = append(names, name)
		return true
	})
	return names
}

// acpServer is how one server is.
type acpServer struct {
	status string // as evServer tells it, "" before
	why    string
}

// extraCall is a tool call of ours that waits for a prompt to stand in.
type extraCall struct{ id, title, status, text string }

// acpServerState is what a session knows of its MCP servers, the client's and
// the user's.
type acpServerState struct {
	mu      sync.Mutex // guards the fields below
	names   []string   // the client's, as Codex has them
	renamed map[string]string
	now     map[string]acpServer // all that Codex told of
	until   time.Time            // prompts wait for the client's servers until then; zero: they don't
	told    map[string]bool      // failed, and the client knows
	waiting []extraCall
	calls   int
}

// set takes the servers of a session that is about to be opened: names and
// renamed as from readServers. What had to be renamed is told.
func (t *acpServerState) set(names []string, renamed map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names, t.renamed, t.now, t.told, t.until = names, renamed, map[string]acpServer{}, map[string]bool{}, time.Time{}
	if len(names) > 0 {
		t.until = time.Now().Add(serversWait)
	}
	for _, name := range slices.Sorted(maps.Keys(renamed)) {
		t.addLocked(fmt.Sprintf("MCP server %q is called %q here", renamed[name], name), "completed",
			fmt.Sprintf("Codex knows the editor's MCP server %q as %q: its own name has characters that Codex doesn't take, or is that of another server.", renamed[name], name))
	}
}

func (t *acpServerState) addLocked(title, status, text string) {
	t.calls++
	t.waiting = append(t.waiting, extraCall{fmt.Sprintf("mcp-server:%d", t.calls), title, status, text})
}

// pending reports that a prompt should wait for the client's servers: they are
// being started.
func (t *acpServerState) pending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !time.Now().Before(t.until) {
		return false
	}
	return slices.ContainsFunc(t.names, func(name string) bool {
		switch t.now[name].status {
		case "", "starting":
			return true
		}
		return false
	})
}

// take is what is to be told in a prompt that runs.
func (t *acpServerState) take() []extraCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.waiting
	t.waiting = nil
	return calls
}

// tellServers shows what there is to tell of the MCP servers, as tool calls of
// the prompt that runs. The front calls it when one begins.
func (s *acpSession) tellServers() {
	for _, c := range s.servers.take() {
		s.enc.extraCall(c.id, c.title, "other", c.status, c.text)
	}
}

// observe takes every event of the session before the front does anything else
// with it.
func (s *acpSession) observe(a agentRef, e *event) {
	switch {
	case e.kind == evServer:
		s.serverEvent(e)
	case e.kind == evGone: // whatever ran in the thread ended with the child
		s.servers.gone()
	case e.kind == evUsage && e.usage != nil && (e.thread == "" || e.thread == a.Thread):
		s.opts.mu.Lock()
		s.opts.usage = *e.usage
		s.opts.mu.Unlock()
	}
}

// serverEvent takes what Codex tells of a server as it opens the thread. One of
// the client's that failed is told in the prompt that waits or runs, else in
// the next one.
func (s *acpSession) serverEvent(e *event) {
	if !s.servers.heard(e.item, e.status, strings.TrimSpace(e.text)) {
		return
	}
	s.mu.Lock()
	asked := len(s.prompts) > 0
	s.mu.Unlock()
	if asked {
		s.tellServers()
	}
}

// heard keeps it; true: there is something to tell.
func (t *acpServerState) heard(name, status, why string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		t.now, t.told = map[string]acpServer{}, map[string]bool{}
	}
	t.now[name] = acpServer{status, why}
	switch {
	case status == "ready":
		delete(t.told, name)
		return false
	case status != "failed" && status != "cancelled" || !slices.Contains(t.names, name):
		return false
	}
	text := clipChars(cmp.Or(why, "Codex gave no reason"), 2000)
	if t.told[name] {
		return false // the thread was opened again, and the words for it may be others
	}
	t.told[name] = true
	word := "failed to start"
	if status == "cancelled" {
		word = "was cancelled as it started"
	}
	t.addLocked(fmt.Sprintf("MCP server %q %s", cmp.Or(t.renamed[name], name), word), "failed", text)
	return true
}

// gone: nothing starts any more until a turn opens the thread again, which
// nobody may wait for.
func (t *acpServerState) gone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.until = map[string]acpServer{}, time.Time{}
}

// list are the client's servers and what is known of the others, for /mcp.
func (t *acpServerState) list() (own []string, renamed map[string]string, now map[string]acpServer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names, t.renamed, maps.Clone(t.now)
}
