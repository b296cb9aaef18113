package main

// session_tools.go owns the tools of the agent itself: which way a thread gets them, and the calls that the agent makes
// of them. A call runs in the hub's goroutines, one of an agent after the other, always as the session's own identity,
// whatever its arguments claim. The session's loop calls it; it must answer every call once, and never waits.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	agentToolLimit = 50 * time.Second // for a tool to run: less than the driver's limit, so that its words come first
	maxAgentCalls  = 32               // that may wait for one agent: its code mode may make several
)

// The ways in which a thread has its tools, as records keep them.
const (
	toolsDynamic = "dynamic" // the thread's own: told at thread/start, kept by Codex for good
	toolsServer  = "server"  // an MCP server that Codex starts for the thread, and for its subagents
)

// toolsWay chooses how a thread gets its tools. Subagents have no dynamic ones but their parent's MCP servers. kept is
// how the thread had them so far: what it was started with can't be taken from it, and one that was started without
// any, by an earlier version or another client, can only be given a server.
func toolsWay(info backendInfo, resumed bool, kept string, subagents bool) string {
	if info.clientTools && (resumed && kept == toolsDynamic || !resumed && !subagents) {
		return toolsDynamic
	}
	return toolsServer
}

// agentToolFunc does what an agent's model calls for, as identity. It may wait,
// at most as long as ctx. auto: the turn answers mail that came by itself.
type agentToolFunc func(ctx context.Context, agentID, identity, correlation string, auto bool, tool string,
	args json.RawMessage) (text string, ok bool)

// toolServerEntry is an entry of Codex's mcp_servers. Codex hands down next to
// nothing of its environment, and may start it in any directory.
type toolServerEntry struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Startup int               `json:"startup_timeout_sec"`
	Timeout int               `json:"tool_timeout_sec"`
	// else 0.148 and later ask, and mcp-server hangs on it
	Approval string `json:"default_tools_approval_mode"`
}

// newToolServerEntry is this program, in the configuration that it has here: everything that says where teams, sessions
// and settings are. configFile is the file of --config, "" for none.
func newToolServerEntry(exe, cwd, configFile string, environ []string) toolServerEntry {
	e := toolServerEntry{Command: exe, Cwd: cwd, Env: map[string]string{}, Startup: 20, Timeout: 60,
		Approval: "approve"}
	for _, kv := range environ {
		name, val, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "ATM_") || name == "CLAUDE_CONFIG_DIR" || name == "CODEX_HOME" ||
			name == "GOCOVERDIR" {
			e.Env[name] = val
		}
	}
	delete(e.Env, "ATM_IDENTITY") // the client's, never the agent's
	if configFile != "" {
		e.Env["ATM_CONFIG"] = configFile
	}
	return e
}

func (e toolServerEntry) of(team, identity, agentID string) toolServerEntry {
	e.Args = []string{"tools", "--team", team, "--identity", identity, "--agent", agentID}
	return e
}

// withToolServer adds the server to a thread's configuration under a name that neither the caller nor the user's own
// configuration has: Codex would mix two entries of one name.
func withToolServer(config json.RawMessage, user map[string]any, entry toolServerEntry) (json.RawMessage, error) {
	base, err := decodeConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the thread's configuration: %w", err)
	}
	name := "atm"
	for n := 2; tableAt(base, "mcp_servers", name) != nil || tableAt(user, "mcp_servers", name) != nil; n++ {
		name = fmt.Sprintf("atm_agent_%d", n)
	}
	ours, err := decodeConfig(toJSON(entry))
	if err == nil {
		base, err = mergeConfig(base, map[string]any{"mcp_servers": map[string]any{name: ours}})
	}
	if err != nil {
		return nil, fmt.Errorf("the tool server can't be added to the thread's configuration: %w", err)
	}
	return toJSON(base), nil
}

// agentToolSet is what agents have as tools of their own, set by the composition root. Without run agents have none and
// are told of none.
type agentToolSet struct {
	run    agentToolFunc
	specs  []clientTool
	server toolServerEntry
}

// ownTools are the calls that one agent makes of its tools: one runs, the others wait. They are the loop's.
type ownTools struct {
	s       *session
	waiting []ownToolCall
	stop    context.CancelFunc // ends the call that runs, nil for none
	acting  actingTurn         // the newest turn: what the agent calls belongs to it
}

// ownToolCall is one call, and the turn it was made in.
type ownToolCall struct {
	toolCall
	be   backend
	item string
	by   actingTurn
}

// actingTurn is what an agent's calls are known by.
type actingTurn struct {
	correlation string
	auto        bool // the turn delivers nothing but automatic mail
}

func (o *ownTools) unanswered() bool { return o.stop != nil || len(o.waiting) > 0 }

// actFor has what the agent's tools do from now on belong to a turn. Its tool servers, if it has such, are processes of
// Codex's: they read it in the lease.
func (o *ownTools) actFor(by actingTurn) {
	o.acting = by
	if p := o.s.place; p.rec.Tools == toolsServer && p.lease != nil {
		if err := p.lease.mark(by.auto); err != nil {
			o.s.log.Warn("what the agent sends may be marked wrongly as automatic or not", "err", err)
		}
	}
}

// add takes a call of one of the agent's tools. A subagent may call after the turn that began it: then it acts for the
// newest turn there was.
func (o *ownTools) add(e *event) {
	if e.tool == nil {
		return
	}
	c := ownToolCall{toolCall: *e.tool, be: o.s.place.be, item: e.item, by: o.acting}
	set := &o.s.h.tools
	known := slices.ContainsFunc(set.specs, func(t clientTool) bool { return t.Name == c.name })
	switch {
	case set.run == nil || !known:
		o.answer(c, fmt.Sprintf("there is no tool %q any more", clip(c.name, 100)), false)
	case o.s.m.ending != endNone:
		o.answer(c, "the session is ending, so "+c.name+" was not done", false)
	case len(o.waiting) >= maxAgentCalls:
		o.answer(c, fmt.Sprintf("%d calls already wait, so %s was not done; call it again later", maxAgentCalls,
			c.name), false)
	default:
		o.waiting = append(o.waiting, c)
		o.runNext()
	}
}

// runNext runs the oldest call that waits, unless one runs.
func (o *ownTools) runNext() {
	if o.stop != nil || len(o.waiting) == 0 {
		return
	}
	s, c := o.s, o.waiting[0]
	o.waiting = slices.Delete(o.waiting, 0, 1)
	ctx, stop := context.WithTimeout(s.h.life, agentToolLimit)
	o.stop = stop
	identity, thread := s.place.rec.Identity, s.thread
	s.h.work.start(func() {
		text, ok := s.h.tools.run(ctx, s.agentID, identity, c.by.correlation, c.by.auto, c.name, c.args)
		stop()
		if !s.box.do(func() {
			o.stop = nil
			o.answer(c, text, ok)
			o.runNext()
		}) {
			// the driver knows whether anybody still waits
			c.be.do(0, thread, command{kind: cmdToolResult, ask: c.id, text: text, ok: ok})
		}
	})
}

func (o *ownTools) answer(c ownToolCall, text string, ok bool) {
	c.be.do(0, o.s.thread, command{kind: cmdToolResult, ask: c.id, text: text, ok: ok})
	if cur := o.s.m.cur; cur != nil && cur.run != nil {
		cur.run.closeItem(c.item)
	}
	o.s.turns.alive()
}

// refuseAll refuses what waits, as the session ends; what runs is told to stop and answers for itself.
func (o *ownTools) refuseAll(why string) {
	waiting := o.waiting
	o.waiting = nil
	for _, c := range waiting {
		o.answer(c, why+", so "+c.name+" was not done", false)
	}
	if o.stop != nil {
		o.stop()
	}
}

func selfPath() string {
	exe, err := os.Executable()
	if err != nil {
		return os.Args[0] // as it was called
	}
	return exe
}
