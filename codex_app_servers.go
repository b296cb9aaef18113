package main

// codex_app_servers.go owns what app-server tells of the MCP servers of a
// thread: that they start, are ready, or failed and why. It is one event in one
// form, whichever of its two protocols a version says it in. The driver calls
// it on the reading goroutine. It must never invent a status.

import (
	"cmp"
	"encoding/json"
)

const (
	mServerStatus = "mcpServer/startupStatus/updated"
	oldStatus     = "codex/event/mcp_startup_update"
	oldComplete   = "codex/event/mcp_startup_complete"
)

// serverStatus makes an evServer of the notification.
func (e *event) serverStatus() {
	e.kind, e.item, e.status = evServer, stringField(e.raw, "name"), stringField(e.raw, "status")
	e.text = stringField(e.raw, "error")
	if why := stringField(e.raw, "failureReason"); why != "" && e.status == "failed" { // reauthenticationRequired
		e.text = cmp.Or(e.text, "it failed") + " (" + why + ")"
	}
	e.must = e.status != "starting"
}

// oldServerStatus makes the same of what 0.104 says in its first protocol alone:
// the id of the event's turn is empty, and the state an object.
func (a *appServer) oldServerStatus(m *message) {
	msg := rawField(m.params, "msg")
	e := event{kind: evServer, thread: stringField(m.params, "conversationId"), method: m.method, raw: m.params}
	switch m.method {
	case oldStatus:
		status := rawField(msg, "status")
		e.item, e.status, e.text = stringField(msg, "server"), stringField(status, "state"), stringField(status, "error")
		e.must = e.status != "starting"
		a.route(e)
	case oldComplete: // has those that are ready or failed a second time
		eachElement(rawField(msg, "cancelled"), func(name json.RawMessage) {
			server, _ := rawString(name)
			a.route(event{kind: evServer, thread: e.thread, item: server, status: "cancelled", must: true})
		})
		e.kind = evRaw
		a.route(e)
	}
}

// keepEarly takes from what was held for a thread the news of its MCP servers,
// which come once: they must not be lost while an earlier turn is stopped.
func (t *tree) keepEarly(items []strayItem) (rest []strayItem) {
	for _, it := range items {
		if it.req == nil && it.e.kind == evServer {
			t.early = append(t.early, it.e)
			continue
		}
		rest = append(rest, it)
	}
	return rest
}
