package main

// mcp_toolserver.go owns the small MCP server behind `atm-agent-mcp tools`: the ATM
// tools of one agent, for a Codex that takes tools of its agents only from MCP
// servers (mcp-server, and subagents of every version). Codex starts it for
// each thread that has it in its configuration, a subagent's with the same
// identity (FR-20.4). main.go starts it. It must never act as anybody but the
// identity that its agent has as a call begins: the session may have been given
// another one since Codex started this process, or be closed.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// auditLimit is how long a call's answer waits for its line in the audit
	// trail: Codex ends this process without a word.
	auditLimit = time.Second
	// answerGrace is how long the last answers may take.
	answerGrace = time.Second
)

// toolServer serves one Codex thread.
type toolServer struct {
	p       *peer
	tools   *atmTools
	who     atmCaller
	now     func() (as lockContent, e *rpcError) // whom the calls act as by now
	strange func(identity string) error          // atmCaller's Strange
	version string

	wg   sync.WaitGroup                // of the running calls
	line callLines                     // one: all of them are one identity's
	mu   sync.Mutex                    // guards the field below
	open map[string]context.CancelFunc // by request
}

// serveTools serves the tools of the identity of cfg until Codex hangs up. With
// an agentID only as long as that agent has the identity.
func serveTools(ctx context.Context, cfg *config, agentID, version string, in io.Reader, out, stderr io.Writer) error {
	log := newLogger(stderr, cfg.logLevel)
	for _, w := range cfg.warnings {
		log.Warn(w)
	}
	path := cfg.auditFile()
	if !cfg.persistThreads {
		path = "" // to the log
	}
	audit := openAudit(path, log)
	defer audit.close()
	disk := newSyncer(log)
	defer func() { // what was sent is on the platter
		close(disk.stop)
		<-disk.exited
	}()
	book := addressBook{own: newTeamFile(cfg.teamsRoot, cfg.team, cfg.sessionsRoot), root: cfg.teamsRoot, aliases: cfg.aliases, roles: cfg.atmRoles}
	leases := newLeases(cfg.sessionsRoot, cfg.team, false) // only to look
	now := func() (lockContent, *rpcError) { return agentNow(leases, cfg.identity, agentID) }
	as, e := now()
	if e != nil {
		as.Identity = cfg.identity // each call is told why it is refused
	}
	s := &toolServer{version: version, open: map[string]context.CancelFunc{},
		tools: newAtmTools(cfg, newInboxes(cfg.teamsRoot, atmSpool(cfg), newLockNotes(cfg.sessionsRoot), disk, log), book, audit, log),
		who: atmCaller{Identity: as.Identity, AgentID: agentID, Team: cfg.team,
			Live: func(identity string) bool { _, _, held := leases.holder(identity); return held }},
		now: now, strange: func(identity string) error {
			if agentID == "" {
				return book.mayAct(identity, "", nobody)
			}
			return book.mayAct(identity, agentID, leases.holder)
		},
	}
	s.p = newPeer(in, out, peerOptions{strict: true, handle: func(m *message) { s.take(ctx, m) }})
	err := s.p.run()
	s.wg.Wait() // what was begun to be sent is sent
	s.p.closeOut(answerGrace)
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading from Codex: %w", err)
	}
	return nil
}

// agentNow tells which identity the agent has by now, which a codex {agent_id,
// identity} may have changed while its thread stayed loaded, and whether its
// turn answers automatic mail. An agent without an identity is refused: over
// mcp-server a thread's tool servers live as long as Codex, its session may not.
func agentNow(leases *leases, identity, agentID string) (lockContent, *rpcError) {
	if agentID == "" {
		return lockContent{Identity: identity}, nil
	}
	if as, held := leases.look(identity); held && as.AgentID == agentID {
		as.Identity = identity
		return as, nil
	}
	if as, held := leases.identityOf(agentID); held {
		return as, nil
	}
	return lockContent{}, proxyError(codeSessionClosed, fmt.Sprintf("agent %s no longer has the identity %q: its session is closed or parked, so it has no mail", agentID, identity),
		"agent_id", agentID, "identity", identity)
}

// take serves one message, on the reading goroutine.
func (s *toolServer) take(ctx context.Context, m *message) {
	if m.id == nil {
		if m.method == "notifications/cancelled" {
			s.cancelled(m.params)
		}
		return
	}
	switch m.method {
	case "initialize":
		s.p.reply(m.id, s.hello(m.params))
	case "ping":
		s.p.reply(m.id, struct{}{})
	case "tools/list":
		s.p.reply(m.id, map[string]any{"tools": agentTools()})
	case "tools/call":
		s.call(ctx, m)
	default:
		s.p.replyError(m.id, noMethod(m.method))
	}
}

func (s *toolServer) hello(params json.RawMessage) any {
	version := latestLegacy
	if asked := stringField(params, "protocolVersion"); slices.Contains(mcpVersions()[1:], asked) {
		version = asked
	}
	return struct {
		Version      string         `json:"protocolVersion"`
		Capabilities map[string]any `json:"capabilities"`
		Server       serverInfo     `json:"serverInfo"`
		Instructions string         `json:"instructions"`
	}{version, map[string]any{"tools": struct{}{}}, serverInfo{serverName, "Mail of your team", s.version},
		// Codex defers the tools of some models: then this is all they see of them.
		fmt.Sprintf("Mail between you, %s, and the other members of team %s: atm_send writes to one of them, atm_broadcast to all, atm_read reads what they wrote to you, atm_pending_count counts it.", s.who.Identity, s.who.Team)}
}

// agentTools are the tools as Codex lists them. They have no output schema:
// where there is one a model is shown the structure alone, and the text is what
// says that mail is no instruction.
func agentTools() any {
	type listed struct {
		Name        string          `json:"name"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"inputSchema"`
		Hints       toolHints       `json:"annotations"`
	}
	var out []listed
	for _, t := range atmToolSpecs() {
		out = append(out, listed{t.Name, t.Title, t.Description, t.Input, t.Hints})
	}
	return out
}

// call runs one tool. What goes wrong with it is told to the model, as a result.
func (s *toolServer) call(ctx context.Context, m *message) {
	name := stringField(m.params, "name")
	if !slices.ContainsFunc(atmToolSpecs(), func(t atmToolSpec) bool { return t.Name == name }) {
		s.p.replyError(m.id, badParams("unknown tool %q", name))
		return
	}
	key, id, args := idKey(m.id), m.id, rawField(m.params, "arguments")
	who := s.who
	if who.Correlation = stringField(m.params, "_meta", "callId"); who.Correlation == "" { // 0.104 has none
		who.Correlation = "tools-" + string(id)
	}
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	twice := s.open[key] != nil
	if !twice {
		s.open[key] = cancel
	}
	s.mu.Unlock()
	if twice {
		cancel()
		s.p.replyError(id, &rpcError{Code: codeInvalidRequest, Message: fmt.Sprintf("Invalid Request: id %s is already in use by a request that is still open", id)})
		return
	}
	queue := s.line.enter(name)
	s.wg.Go(func() {
		defer cancel()
		leave := queue("")
		as, refused := s.now()
		switch {
		case refused != nil:
			who.Refused = refused
		case ctx.Err() != nil:
			who.Refused = notBegun(name)
		default:
			who.Identity, who.Auto = as.Identity, as.Automatic
			who.Strange = func() error { return s.strange(as.Identity) }
			who.Owns = func(other string) bool { return strings.EqualFold(other, as.Identity) }
		}
		_, text, e := s.tools.run(ctx, who, name, args)
		leave()
		written, done := context.WithTimeout(context.WithoutCancel(ctx), auditLimit)
		defer done()
		if err := s.tools.audit.flush(written); err != nil {
			s.tools.log.Warn("the audit log can't be written", "err", err)
		}
		if e != nil {
			text = e.Message
		}
		s.mu.Lock()
		_, wanted := s.open[key]
		delete(s.open, key)
		s.mu.Unlock()
		if wanted {
			s.p.reply(id, struct {
				Content []textBlock `json:"content"`
				IsError bool        `json:"isError,omitempty"`
			}{[]textBlock{{"text", text}}, e != nil})
		}
	})
}

// cancelled retires a call: MCP forbids a late answer.
func (s *toolServer) cancelled(params json.RawMessage) {
	key := idKey(rawField(params, "requestId"))
	s.mu.Lock()
	cancel := s.open[key]
	delete(s.open, key)
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
