package main

// mcp_foreign.go owns the tools of the child beyond codex and codex-reply: shown
// to legacy clients while a child that has them runs, and forwarded to it as
// they come (FR-1.1). Only codex mcp-server has tools at all, and no version so
// far has had more than its two. A modern client is never shown them, since the
// list it was given may not change. It must never hide a tool of ours.

import (
	"encoding/json"
	"slices"
)

// childTools takes the tools of a child that has started, or nil as it ends.
func (f *mcpFront) childTools(t *foreignTools) {
	if t != nil {
		t.list = slices.DeleteFunc(slices.Clone(t.list), func(raw json.RawMessage) bool {
			return slices.ContainsFunc(f.tools, func(own tool) bool { return own.name == stringField(raw, "name") })
		})
		if len(t.list) == 0 {
			t = nil
		}
	}
	if before := f.foreign.Swap(t); (before != nil || t != nil) && f.legacy.Load() != nil {
		f.p.notify("notifications/tools/list_changed", nil, false)
	}
}

// legacyList is tools/list with the child's behind ours.
func (f *mcpFront) legacyList() json.RawMessage {
	t := f.foreign.Load()
	if t == nil {
		return f.list
	}
	var all []json.RawMessage
	if json.Unmarshal(f.list, &all) != nil {
		panic("BUG: our own list of tools is not an array")
	}
	return toJSON(append(all, t.list...))
}

// callForeign forwards a call of the child's tool. false: it has none of that
// name.
func (f *mcpFront) callForeign(c *mcpCall, name string, args json.RawMessage) bool {
	t := f.foreign.Load()
	if c.modern || t == nil || !slices.ContainsFunc(t.list, func(raw json.RawMessage) bool { return stringField(raw, "name") == name }) {
		return false
	}
	params := map[string]any{"name": name}
	if args != nil {
		params["arguments"] = args
	}
	f.stoppable(c, t.call(params, func(res json.RawMessage, err error) {
		if err == nil {
			f.finish(c, res, nil)
			return
		}
		if e, ok := err.(*rpcError); ok {
			f.finish(c, nil, e)
			return
		}
		f.fail(c, proxyError(codeChildDead, "Codex ended while it ran its tool "+name))
	}))
	return true
}
