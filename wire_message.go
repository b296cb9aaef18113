package main

// wire_message.go owns one JSON-RPC message: its reading from a record with its ids as they came, the error that may be
// in it with the one table of codes, and what the log tells of it (NFR-5): at debug one line a message, its method and
// its ids; at trace the message itself, without what looks like a credential.
// wire_peer.go sends and receives messages; whoever refuses something makes an error here.
// It must never rewrite what it doesn't route on, nor log params or results at debug: prompts are in there.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
)

// The codes of JSON-RPC, MCP and NFR-6: the only table of them.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeNoCapability   = -32021 // MCP 2026-07-28: the client lacks what the request needs
	codeBadVersion     = -32022 // MCP 2026-07-28: unsupported protocol version
	codeAuthRequired   = -32000 // ACP: Codex is not logged in
	codeCancelled      = -32800 // ACP, as in LSP: the client cancelled the request

	codeIdentityConflict = -32001
	codeSessionNotFound  = -32002
	codeSessionClosed    = -32003
	codeMaxSessions      = -32004
	codeChildDead        = -32005
	codeTimeout          = -32006
	codeInvalidSession   = -32007
	codeAgentFile        = -32008
	codeIdentityRequired = -32009
)

// codeName is the NFR-6 name that an error's message begins with, "" for the codes that JSON-RPC owns.
func codeName(code int) string {
	names := [...]string{"IDENTITY_CONFLICT", "SESSION_NOT_FOUND", "SESSION_CLOSED", "MAX_SESSIONS_EXCEEDED",
		"CHILD_PROCESS_DEAD", "REQUEST_TIMEOUT", "INVALID_SESSION_PARAMS", "AGENT_FILE_NOT_FOUND", "IDENTITY_REQUIRED"}
	if i := codeIdentityConflict - code; i >= 0 && i < len(names) {
		return names[i]
	}
	return ""
}

// rpcError is an error as it stands on the wire. It is the one error type that carries a code.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`

	// For a front that has words of its own on what to do; neither goes onto the wire.
	Said   string `json:"-"` // what happened, without the code's name and what to do about it; "": that is Message
	Remedy remedy `json:"-"` // what to do about it
}

// remedy is what to do about an error. Message says it to who calls our MCP tools.
type remedy int

const (
	remedyNone     remedy = iota // Said tells it all
	remedyNewChild               // Codex is gone, the session is kept: its next turn starts Codex again
	remedyGoOn                   // the turn took too long and was stopped: the session takes another one
	remedyReopen                 // the session is closed or broken: it can be opened again
	remedyRestart                // this program is shutting down: its next start has the session
	remedyLogin                  // Codex is not logged in
	remedyHeld                   // another process has it: it is to be closed there
	remedyFind                   // there is no such session: others are listed
	remedyRoom                   // so many sessions are open that one has to be closed first
)

func (e *rpcError) Error() string { return e.Message }

// proxyError makes an error of our own. For the NFR-6 codes the message begins with the code's name, since clients show
// a model nothing else, and data says that the proxy is the source. extra holds pairs of key and value for data.
func proxyError(code int, message string, extra ...any) *rpcError {
	name := codeName(code)
	if name == "" {
		return &rpcError{Code: code, Message: message, Said: message}
	}
	data := map[string]any{"error_source": "proxy", "name": name}
	for i := 0; i+1 < len(extra); i += 2 {
		data[extra[i].(string)] = extra[i+1]
	}
	return &rpcError{Code: code, Message: name + ": " + message, Data: toJSON(data), Said: message}
}

// proxyAdvice is proxyError with what to do about it: advice stands behind what happened, for who calls our MCP tools.
func proxyAdvice(code int, r remedy, what, advice string, extra ...any) *rpcError {
	e := proxyError(code, what+advice, extra...)
	e.Said, e.Remedy = what, r
	return e
}

// message is one JSON-RPC message. A request has id and method, a
// notification only method, a response id and result or err.
type message struct {
	id      json.RawMessage // raw, so that 0, "0" and 00000001 stay what they are
	method  string
	params  json.RawMessage
	result  json.RawMessage
	err     *rpcError
	version bool // "jsonrpc":"2.0" was there; Codex leaves it out
}

func (m *message) isRequest() bool  { return m.method != "" && m.id != nil }
func (m *message) isResponse() bool { return m.method == "" }

// parseMessage reads one record that is already known to be valid JSON. The
// error text says what makes it no JSON-RPC message.
func parseMessage(rec []byte) (message, error) { return parseMessageAfter("", rec) }

// parseMessageAfter is parseMessage for a record behind one with the method
// last: in a run of deltas they share the string.
func parseMessageAfter(last string, rec []byte) (message, error) {
	var m message
	var hasResult, hasError, badMethod, badVersion bool
	f := fieldsOf(rec)
	for f.next() {
		switch val := json.RawMessage(f.val); string(f.key) {
		case "id":
			m.id = val
		case "method":
			var ok bool
			m.method, ok = rawStringLike(val, last)
			badMethod = !ok || m.method == ""
		case "params":
			m.params = val
		case "result":
			m.result, hasResult = val, true
		case "error":
			hasError = !isNull(val)
			if hasError {
				m.err = &rpcError{}
				if json.Unmarshal(val, m.err) != nil {
					m.err = &rpcError{Code: codeInternal, Message: "unreadable error object", Data: val}
				}
			}
		case "jsonrpc":
			m.version = string(val) == `"2.0"`
			badVersion = !m.version
		}
	}
	switch {
	case f.bad:
		return m, errors.New("a JSON-RPC message is an object")
	case badMethod:
		return m, errors.New("method is not a non-empty string")
	case badVersion:
		return m, errors.New(`jsonrpc is not "2.0"`)
	}
	switch k := rawKind(m.id); {
	case m.id == nil || k == '"' || k == '0':
	case k == 'n' && m.method == "":
	default:
		m.id = nil
		return m, errors.New("id is neither a string nor a number")
	}
	if m.method != "" {
		if hasResult || hasError {
			return m, errors.New("both a method and a result")
		}
		return m, nil
	}
	if m.id == nil || !(hasResult || hasError) {
		return m, errors.New("no method, and no result or error with an id")
	}
	return m, nil
}

// idKey is what two equal ids have in common: 7 and "7" differ, "a" and "\u0061" don't.
func idKey(id json.RawMessage) string {
	if s, ok := rawString(id); ok {
		return `"` + s
	}
	return string(bytes.TrimSpace(id))
}

func noMethod(what string) *rpcError {
	return &rpcError{Code: codeNoMethod, Message: "Method not found: " + what}
}

// maxFrameLogged cuts a record at trace. It is cut behind its redaction, so that no secret is cut in half and missed.
const maxFrameLogged = 4096

var errNotJSON = errors.New("not JSON")

// traceOf is the peers' trace hook for the traffic with a side, nil where the log wants none.
func traceOf(log *slog.Logger, side string) func(dir string, rec []byte) {
	ctx := context.Background()
	if !log.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	whole := log.Enabled(ctx, levelTrace)
	return func(dir string, rec []byte) {
		var m message
		err := errNotJSON
		if validJSON(rec) {
			m, err = parseMessage(rec)
		}
		if whole && !isDelta(&m) {
			log.Log(ctx, levelTrace, "frame", "side", side, "dir", dir, "record",
				clipUTF8(redact(string(rec)), maxFrameLogged))
		}
		if err != nil {
			log.Debug("not a message", "side", side, "dir", dir, "bytes", len(rec))
			return
		}
		if !isDelta(&m) {
			log.Debug("message", messageAttrs(side, dir, &m, rec)...)
		} else if whole { // at debug it would be a line for each word of an answer
			log.Log(ctx, levelTrace, "piece", messageAttrs(side, dir, &m, rec)...)
		}
	}
}

// isDelta: the message carries a piece of a text. Such a record is never told, since a
// secret that is cut over several of them can't be recognized; the whole text follows.
func isDelta(m *message) bool {
	word := m.method
	switch word {
	case "codex/event":
		word = stringField(m.params, "msg", "type")
	case "session/update":
		word = stringField(m.params, "update", "sessionUpdate")
	}
	word = strings.ToLower(word)
	return strings.HasSuffix(word, "delta") || strings.HasSuffix(word, "_chunk")
}

// messageAttrs names a message and what it is about.
func messageAttrs(side, dir string, m *message, rec json.RawMessage) []any {
	attrs := []any{"side", side, "dir", dir, "bytes", len(rec)}
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, key, clip(value, 200))
		}
	}
	add("method", m.method)
	if m.id != nil {
		add("request", string(m.id))
	}
	if m.err != nil {
		attrs = append(attrs, "code", m.err.Code)
	}
	if m.method == "tools/call" {
		add("tool", stringField(m.params, "name"))
	}
	for _, row := range [][]string{ // what it is about, and where the dialects say that
		{"agent", "params arguments agent_id", "params arguments codex_id", "params _meta agent_id",
			"result structuredContent agent_id"},
		{"sessionId", "params sessionId", "result sessionId"},
		{"toolCallId", "params update toolCallId", "params toolCall toolCallId", "params toolCallId"},
		{"event", "params msg type"},
		{"thread", "params threadId", "params thread id", "params _meta threadId", "result structuredContent threadId"},
		{"turn", "params turnId", "params turn id", "params _meta turn_id", "result structuredContent turn_id"},
		{"item", "params itemId", "params item id"},
	} {
		value := ""
		for _, path := range row[1:] {
			value = cmp.Or(value, stringField(rec, strings.Fields(path)...))
		}
		add(row[0], value)
	}
	return attrs
}
