package main

// wire_log.go owns what the log tells of the wire (NFR-5): at debug one line a
// message, its method and its ids; at trace the message itself, without what
// looks like a credential. The composition root makes one for each side; the
// peers call it, and commands that are no proxy don't have one. At debug it tells
// no params and no results: prompts are in there.

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
)

// maxFrameLogged cuts a record at trace. It is cut behind its redaction, so that no
// secret is cut in half and missed.
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
			log.Log(ctx, levelTrace, "frame", "side", side, "dir", dir, "record", clipBytes(redact(string(rec)), maxFrameLogged))
		}
		if err != nil {
			log.Debug("not a message", "side", side, "dir", dir, "bytes", len(rec))
			return
		}
		if !isDelta(&m) {
			log.Debug("message", messageAttrs(side, dir, &m, len(rec))...)
		} else if whole { // at debug it would be a line for each word of an answer
			log.Log(ctx, levelTrace, "piece", messageAttrs(side, dir, &m, len(rec))...)
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
func messageAttrs(side, dir string, m *message, size int) []any {
	attrs := []any{"side", side, "dir", dir, "bytes", size}
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
		add("agent", stringField(m.params, "arguments", "agent_id"))
	}
	thread := stringField(m.params, "threadId")
	if m.method == "thread/started" {
		thread = stringField(m.params, "thread", "id")
	}
	switch side {
	case "client":
		add("sessionId", cmp.Or(stringField(m.params, "sessionId"), stringField(m.result, "sessionId"))) // ACP's words
		add("toolCallId", cmp.Or(stringField(m.params, "update", "toolCallId"), stringField(m.params, "toolCall", "toolCallId"), stringField(m.params, "toolCallId")))
		// Over MCP what we forward says whose it is beside the event, and a turn's result in its structured part.
		about := []string{"_meta"}
		from := m.params
		if m.method == "" {
			about, from = []string{"structuredContent"}, m.result
		}
		add("agent", stringField(from, append(about, "agent_id")...))
		thread = cmp.Or(thread, stringField(from, append(about, "threadId")...))
		add("turn", stringField(from, append(about, "turn_id")...))
	case "codex": // mcp-server's events say it so
		thread = cmp.Or(thread, stringField(m.params, "_meta", "threadId"))
	}
	if m.method == "codex/event" {
		add("event", stringField(m.params, "msg", "type"))
	}
	add("thread", thread)
	if add("turn", stringField(m.params, "turnId")); m.method == "turn/started" || m.method == "turn/completed" {
		add("turn", stringField(m.params, "turn", "id"))
	}
	if add("item", stringField(m.params, "itemId")); strings.HasPrefix(m.method, "item/") {
		add("item", stringField(m.params, "item", "id"))
	}
	return attrs
}
