package main

// acp_servers.go owns the MCP servers that an ACP client brings for a session: reading them into Codex's words, names
// that Codex takes and nobody else has, how they are, as Codex tells it while a thread is opened, and what /mcp says of
// all. acp_session.go calls read before it opens a session, and heard as Codex tells of one. It must never write them
// anywhere, nor set what lets their tools run unasked.

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
	// ownToolServer is what a thread's server of our own tools is called, and what models read as theirs.
	ownToolServer = "atm"
	// serversWait is how long a prompt is held back for servers to start: Codex (0.169) waits one second for them, and
	// a tool that comes later is missing from the turn.
	serversWait = 10 * time.Second
	// configWait is how long the names of the user's own servers are waited for.
	configWait = 20 * time.Second
)

// acpServer is one MCP server of a session.
type acpServer struct {
	name   string // as Codex has the server
	own    string // what the client calls it, "" where it is not the client's
	status string // as evServer told it last, "" before
	why    string // the words that came with status
	told   bool   // the client knows that the server failed
}

// words tells how a server is.
func (s *acpServer) words() string {
	switch s.status {
	case "":
		return "not started yet"
	case "failed", "cancelled":
		return s.status + ": " + clip(cmp.Or(s.why, "Codex gave no reason"), 500)
	}
	return s.status
}

// userServers are the names of the MCP servers in the user's own Codex configuration as seen from a session's
// directory, switched off or not: Codex would mix two entries of one name. It waits for the child. nil where the
// configuration can't be read.
func userServers(ctx context.Context, s *acpSession) []string {
	ctx, stop := context.WithTimeout(ctx, configWait)
	defer stop()
	raw, e := s.f.catalog(ctx, "config", s.cwd)
	if e != nil {
		s.f.Log.Warn("the user's MCP servers could not be read", "err", e)
		return nil
	}
	return fieldNames(rawField(raw, "config", "mcp_servers"))
}

// fieldNames are the names of an object's fields.
func fieldNames(obj json.RawMessage) (names []string) {
	_ = eachField(obj, func(name string, _ json.RawMessage) bool {
		names = append(names, name)
		return true
	})
	return names
}

// readServers makes Codex's mcp_servers of a client's mcpServers, an array or nothing. taken are the names of the
// user's own. list are the servers in the client's order.
func readServers(raw json.RawMessage, taken []string) (table json.RawMessage, list []*acpServer, e *rpcError) {
	used := map[string]bool{ownToolServer: true}
	for _, name := range taken {
		used[name] = true
	}
	entries, at := map[string]any{}, -1
	eachElement(raw, func(each json.RawMessage) {
		at++
		if e != nil {
			return
		}
		own := stringField(each, "name")
		if own == "" {
			e = badParams("mcpServers[%d] has no name, which must be a string that isn't empty", at)
			return
		}
		r := acpServerReader{raw: each, where: fmt.Sprintf("mcpServers[%d] %q", at, clip(own, 100))}
		entry := r.read()
		if e = r.e; e != nil {
			return
		}
		name := codexServerName(own, used)
		used[name] = true
		entries[name] = entry
		list = append(list, &acpServer{name: name, own: own})
	})
	if e != nil || len(list) == 0 {
		return nil, nil, e
	}
	return toJSON(entries), list, nil
}

// acpServerReader reads one server of a client's.
type acpServerReader struct {
	raw   json.RawMessage
	where string    // the server's place and name, for e
	e     *rpcError // the first thing that is wrong with the server
}

// read makes Codex's entry of a server of either transport.
func (r *acpServerReader) read() map[string]any {
	kind := rawField(r.raw, "type")
	word, isWord := rawString(kind)
	switch {
	case isNull(kind) || word == "stdio":
		command, args := r.text("command"), []string{}
		val := rawField(r.raw, "args")
		if !isNull(val) && (rawKind(val) != '[' || json.Unmarshal(val, &args) != nil) {
			r.refuse("args must be an array of strings")
		}
		return map[string]any{"command": command, "args": args, "env": r.pairs("env", "=\x00\r\n")}
	case word == "http":
		address := r.text("url")
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			r.refuse("url %q is no http or https address", clip(address, 200))
		}
		return map[string]any{"url": address, "http_headers": r.pairs("headers", ":\x00\r\n ")}
	case word == "sse":
		r.refuse("type \"sse\" is not supported, as mcpCapabilities say; use http or stdio")
	case isWord:
		r.refuse("type %q is none of stdio (or absent) and http", clip(word, 100))
	default:
		r.refuse("type must be a string, not %s", kindWord(kind))
	}
	return nil
}

func (r *acpServerReader) refuse(format string, args ...any) {
	if r.e == nil {
		r.e = badParams("%s: %s", r.where, fmt.Sprintf(format, args...))
	}
}

// text is a string that must be there.
func (r *acpServerReader) text(key string) string {
	val := rawField(r.raw, key)
	s, ok := rawString(val)
	if val == nil {
		r.refuse("%s is missing: it must be a string that isn't empty", key)
	} else if !ok || s == "" || strings.ContainsRune(s, 0) {
		r.refuse("%s must be a string that isn't empty and has no NUL", key)
	}
	return s
}

// pairs reads env and headers: a list of name and value. The last of two equal names counts.
func (r *acpServerReader) pairs(key, forbidden string) map[string]string {
	pairs, list := map[string]string{}, rawField(r.raw, key)
	if !isNull(list) && rawKind(list) != '[' {
		r.refuse("%s must be an array of {name, value}, not %s", key, kindWord(list))
	}
	eachElement(list, func(each json.RawMessage) {
		name, named := rawString(rawField(each, "name"))
		value, valued := rawString(rawField(each, "value"))
		switch {
		case !named || name == "" || strings.ContainsAny(name, forbidden):
			r.refuse("%s has an entry without a usable name", key)
		case !valued || strings.ContainsRune(value, 0) || key == "headers" && strings.ContainsAny(value, "\r\n"):
			// The value may be a secret, so it is not named.
			r.refuse("%s %q has no usable value, which must be a string", key, clip(name, 100))
		}
		pairs[name] = value
	})
	return pairs
}

// codexServerName is a name that every Codex takes ([A-Za-z0-9_-], 0.104; newer ones
// take a little more) and that isn't used.
func codexServerName(own string, used map[string]bool) string {
	var b strings.Builder
	for _, r := range own {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			b.WriteRune(r)
		} else if s := b.String(); !strings.HasSuffix(s, "_") {
			b.WriteByte('_')
		}
	}
	name := clipUTF8(b.String(), 60)
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

// ownCall is a tool call of ours that waits for a prompt to stand in.
type ownCall struct{ title, status, text string }

// acpServers are the MCP servers of a session, the client's and the user's.
type acpServers struct {
	mu      sync.Mutex            // guards the fields below
	clients []*acpServer          // the client's, in its order
	others  map[string]*acpServer // the others that Codex told of, by name
	until   time.Time             // prompts wait for the client's servers until then; zero: they don't
	news    []ownCall             // what the client is to be told
}

// read takes the servers of a session that is about to be opened, and returns
// Codex's mcp_servers. What had to be renamed is told.
func (t *acpServers) read(raw json.RawMessage, taken []string) (json.RawMessage, *rpcError) {
	table, list, e := readServers(raw, taken)
	if e != nil {
		return nil, e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients, t.others, t.until = list, nil, time.Time{}
	if len(list) > 0 {
		t.until = time.Now().Add(serversWait)
	}
	for _, s := range list {
		if s.name != s.own {
			t.news = append(t.news, ownCall{fmt.Sprintf("MCP server %q is called %q here", s.own, s.name), callDone,
				fmt.Sprintf("Codex knows the editor's MCP server %q as %q: its own name has characters that Codex "+
					"doesn't take, or is that of another server.", s.own, s.name)})
		}
	}
	return table, nil
}

// takeNews is what is to be told in a prompt that runs.
func (t *acpServers) takeNews() []ownCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := t.news
	t.news = nil
	return news
}

// starting reports that a prompt should wait for the client's servers.
func (t *acpServers) starting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.until) && slices.ContainsFunc(t.clients, func(s *acpServer) bool {
		return s.status == "" || s.status == "starting"
	})
}

// heard keeps what Codex tells of a server. true: the client is to be told that one of its servers failed. It is told
// once, until the server was ready: where the thread is opened again, the words for it may be others.
func (t *acpServers) heard(name, status, why string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.clients, func(s *acpServer) bool { return s.name == name })
	if i < 0 {
		if t.others == nil {
			t.others = map[string]*acpServer{}
		}
		t.others[name] = &acpServer{name: name, status: status, why: why}
		return false
	}
	s := t.clients[i]
	s.status, s.why = status, why
	word := map[string]string{"failed": "failed to start", "cancelled": "was cancelled as it started"}[status]
	if word == "" || s.told {
		s.told = s.told && status != "ready"
		return false
	}
	s.told = true
	t.news = append(t.news, ownCall{fmt.Sprintf("MCP server %q %s", s.own, word), callFailed,
		clipChars(cmp.Or(why, "Codex gave no reason"), 2000)})
	return true
}

// forget takes it that nothing starts any more until a turn opens the thread again, which nobody may wait for.
func (t *acpServers) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.clients {
		s.status, s.why = "", ""
	}
	t.others, t.until = nil, time.Time{}
}

// text tells how all servers are, for /mcp. catalog is Codex's list of those that
// it is configured with, or e why there is none.
func (t *acpServers) text(catalog json.RawMessage, e *rpcError) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	b.WriteString("**MCP servers**\n\n")
	listed := map[string]string{}
	for name, s := range t.others { // one of a plugin's, or of this thread alone, is not in the list
		listed[name] = s.words()
	}
	clients := map[string]bool{}
	if len(t.clients) > 0 {
		b.WriteString("From the editor:\n")
		for _, s := range t.clients {
			clients[s.name] = true
			note := ""
			if s.own != s.name {
				note = fmt.Sprintf(" (the editor calls it `%s`)", codeText(s.own))
			}
			fmt.Fprintf(&b, "- `%s`%s: %s\n", s.name, note, s.words())
		}
		b.WriteByte('\n')
	}
	if e != nil {
		fmt.Fprintf(&b, "The servers of the Codex configuration could not be listed: %s\n", clip(e.Message, 300))
		return b.String()
	}
	eachElement(rawField(catalog, "data"), func(each json.RawMessage) {
		if name := stringField(each, "name"); name != "" && !clients[name] {
			listed[name] = listedServer(each, t.others[name])
		}
	})
	if len(listed) == 0 {
		b.WriteString("The Codex configuration has none.\n")
		return b.String()
	}
	b.WriteString("From the Codex configuration:\n")
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		fmt.Fprintf(&b, "- `%s`: %s\n", codeText(name), listed[name])
	}
	return b.String()
}

// listedServer tells one server of mcpServerStatus/list: what the thread saw of the
// server first, nil for nothing, then what Codex says now.
func listedServer(raw json.RawMessage, seen *acpServer) string {
	var parts []string
	failure := stringField(raw, "toolsError") // 0.169
	switch {
	case seen != nil && seen.status != "":
		parts = append(parts, seen.words())
	case failure != "":
		parts = append(parts, "failed: "+clip(failure, 500))
	}
	if tools := fieldNames(rawField(raw, "tools")); len(tools) > 0 {
		slices.Sort(tools)
		parts = append(parts, counted(len(tools), "tool")+" ("+clipChars(strings.Join(tools, ", "), 300)+")")
	} else if len(parts) == 0 {
		parts = append(parts, "no tools")
	}
	if stringField(raw, "authStatus") == "notLoggedIn" {
		parts = append(parts, "not logged in")
	}
	return strings.Join(parts, "; ")
}

// codeText can stand between backquotes.
func codeText(s string) string { return strings.ReplaceAll(clip(s, 100), "`", "'") }
