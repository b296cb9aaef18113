package main

// mcp_mail.go owns the ATM tools over MCP: as a client calls them, for an agent or in its own name, and as
// `atm-agent-mcp tools` serves them to one agent, for a Codex that takes tools of its agents only from MCP servers
// (mcp-server, and subagents of every version). Codex starts that server for each thread that has it in its
// configuration, a subagent's with the same identity (FR-20.4); main.go runs it. Nothing here may decide who acts as
// whom: the hub does for a client, and the server acts as the identity that its agent has when a call begins, since the
// session may have been given another one after Codex started the server, or be closed. What is refused is audited all
// the same, and files are waited for off the reading goroutine.

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// mailTools are the rows of the ATM tools.
func mailTools() []tool {
	var rows []tool
	for _, s := range atmToolSpecs() {
		who, args := "You write as yourself (client_identity; in Claude Code as the team's lead), or as an agent "+
			"open here: agent_id or identity.", s.Args
		if looksIntoInbox(s.Name) {
			who = "Without agent_id and identity it is your own inbox (client_identity; in Claude Code the team " +
				"lead's), else that of the agent; inbox looks into any member's, and marks nothing there."
			args = slices.Concat(args, []argSpec{{name: "inbox", kind: "string", text: "Whose inbox, if not the " +
				"agent's or your own: a member's name."}})
		}
		rows = append(rows, tool{
			name: s.Name, title: s.Title, description: s.Description + " " + who,
			args:     slices.Concat(args, refArgs("The agent that is meant.")),
			required: s.Required,
			hints:    s.Hints,
			run:      func(c *mcpCall, a toolArgs) *rpcError { return callMail(c, s.Name, a) },
			result:   s.Result,
		})
	}
	return rows
}

// callMail serves one of the ATM tools. A refusal goes to the tool too, which writes it into the audit trail.
func callMail(c *mcpCall, tool string, a toolArgs) *rpcError {
	f := c.f
	ref, inbox, refused := "", strings.TrimSpace(a.str("inbox")), oneAgent(c, a)
	if refused == nil {
		ref, refused = a.agent()
	}
	if err := validIdentity(inbox); refused == nil && a.has("inbox") && err != nil {
		refused = invalidSession("inbox: %v", err)
	}
	asked := cmp.Or(inbox, strings.TrimSpace(a.str("identity"))) // for the audit trail of a refusal
	delete(a, "inbox")
	if inbox != "" {
		delete(a, "identity") // it says who looks, not whose inbox it is
	}
	f.mu.Lock()
	c.waiter = f.nextWaiter() // no turn belongs to this waiter: it only names the call in log and audit
	f.mu.Unlock()
	return c.inLine(tool, func() (who atmCaller) {
		if refused == nil {
			who, refused = f.mailAs(ref, inbox)
		}
		if refused != nil {
			who = atmCaller{Identity: asked, Refused: refused}
		}
		who.Correlation = f.correlation(c.waiter)
		return who
	}, func(ctx context.Context, who atmCaller) func() {
		structured, text, e := f.atm(ctx, who, tool, toJSON(a))
		return func() {
			own := f.ownMail != nil && strings.EqualFold(who.Identity, f.ownMail().Name)
			if e == nil && own && looksIntoInbox(tool) {
				c.reply(c.plainAnswer(false, structured, text)) // the tool itself tells what mail there is
				return
			}
			c.end(e, structured, text)
		}
	})
}

// inLine runs a mail tool off the reading goroutine, when the calls before it in the line of its caller are done.
// caller says who that is; run does what the tool does, and returns what answers the call.
func (c *mcpCall) inLine(tool string, caller func() atmCaller,
	run func(ctx context.Context, who atmCaller) (answer func())) *rpcError {
	ctx, cancel := context.WithCancel(context.Background())
	c.onCancel(cancel)
	queue := c.f.lines.enter(tool)
	e := c.work(func() {
		defer cancel()
		who := caller()
		leave := queue(who.Identity)
		if ctx.Err() != nil && who.Refused == nil {
			who.Refused = proxyError(codeTimeout, tool+" was cancelled before it began; nothing was done")
		}
		answer := run(ctx, who)
		leave()
		answer()
	})
	if e != nil {
		cancel()
	}
	return e
}

// callLines keep what one client sends in the order of its calls, each identity's
// messages by themselves: else of two messages to one member the second could stand
// first in that member's inbox. A call that only reads waits for no other.
type callLines struct {
	mu      sync.Mutex               // guards the fields below
	queuing chan struct{}            // closed when the call that came last stands in the line of an identity
	last    map[string]chan struct{} // by identity: closed when the last call in that line is done
}

// enter is called for each call as it comes. The function returned is called once, when it is known whose call it is,
// and waits until that call may begin; leave lets the next one begin.
func (l *callLines) enter(tool string) func(identity string) (leave func()) {
	if looksIntoInbox(tool) {
		return func(string) func() { return func() {} }
	}
	l.mu.Lock()
	before, queued := l.queuing, make(chan struct{})
	l.queuing = queued
	l.mu.Unlock()
	return func(identity string) func() {
		if before != nil {
			<-before
		}
		line, left := strings.ToLower(identity), make(chan struct{})
		l.mu.Lock()
		if l.last == nil {
			l.last = map[string]chan struct{}{}
		}
		ahead := l.last[line]
		l.last[line] = left
		l.mu.Unlock()
		close(queued)
		if ahead != nil {
			<-ahead
		}
		return func() {
			l.mu.Lock()
			if l.last[line] == left {
				delete(l.last, line)
			}
			l.mu.Unlock()
			close(left)
		}
	}
}

const (
	// auditLimit is how long a call's answer waits for its line in the audit
	// trail: Codex ends this process without a word.
	auditLimit = time.Second
	// answerGrace is how long the last answers may take.
	answerGrace = time.Second
)

// toolServer is what the MCP front of one Codex thread serves in place of the table of tools.
type toolServer struct {
	tools  *atmTools
	who    atmCaller
	named  string // the identity that the agent had when Codex was told of this server
	leases *leases
	book   addressBook
}

// serveTools serves the tools of the identity of cfg until Codex hangs up. With
// an agentID only as long as that agent has the identity.
func serveTools(cfg *config, agentID, version string, in io.Reader, out, stderr io.Writer) error {
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
	defer disk.close(context.Background()) // what was sent is on the platter
	book := addressBook{own: newTeamFile(cfg.teamsRoot, cfg.team, cfg.sessionsRoot), root: cfg.teamsRoot,
		aliases: cfg.aliases, roles: cfg.atmRoles}
	leases := newLeases(cfg.sessionsRoot, cfg.team, false) // only to look
	s := &toolServer{named: cfg.identity, leases: leases, book: book,
		tools: newAtmTools(cfg, newInboxes(cfg.teamsRoot, atmSpool(cfg), disk, log),
			book, audit, log),
		who: atmCaller{Identity: cfg.identity, AgentID: agentID, Team: cfg.team,
			Live: func(identity string) bool { _, _, held := leases.holder(identity); return held }},
	}
	if as, e := s.agentNow(); e == nil { // else each call is refused, and says why
		s.who.Identity = as.Identity
	}
	f := newMCPFront(mcpOptions{clientOptions: clientOptions{R: in, W: out, Log: log, Version: version}, agent: s})
	f.legacy.Store(&legacyClient{version: latestLegacy}) // before a hello tells more
	err := f.run()
	f.jobs.wait(nil) // what was begun to be sent is sent
	f.shutdown(answerGrace)
	return err
}

// agentNow tells which identity the agent has by now, which a codex {agent_id, identity} may have changed while its
// thread stayed loaded, and whether its turn answers automatic mail. An agent without an identity is refused: over
// mcp-server a thread's tool servers live as long as Codex, its session may not.
func (s *toolServer) agentNow() (lockContent, *rpcError) {
	agentID := s.who.AgentID
	if agentID == "" {
		return lockContent{Identity: s.named}, nil
	}
	if as, held := s.leases.look(s.named); held && as.AgentID == agentID {
		as.Identity = s.named
		return as, nil
	}
	if as, held := s.leases.identityOf(agentID); held {
		return as, nil
	}
	return lockContent{}, proxyError(codeSessionClosed, fmt.Sprintf("agent %s no longer has the identity %q: its "+
		"session is closed or parked, so it has no mail", agentID, s.named),
		"agent_id", agentID, "identity", s.named)
}

// strange is atmCaller's Strange.
func (s *toolServer) strange(identity string) error {
	if s.who.AgentID == "" {
		return s.book.mayAct(identity, "", nobody)
	}
	return s.book.mayAct(identity, s.who.AgentID, s.leases.holder)
}

// instructions are all that a model sees of the tools where Codex defers them.
func (s *toolServer) instructions() string {
	return fmt.Sprintf("Mail between you, %s, and the other members of team %s: atm_send writes to one of them, "+
		"atm_broadcast to all, atm_read reads what they wrote to you, atm_pending_count counts it.",
		s.who.Identity, s.who.Team)
}

// agentTools are the rows of the tools as Codex lists them, without results: where there is one a model is shown the
// structure alone, and the text is what says that mail is no instruction.
func agentTools() (rows []tool) {
	for _, s := range atmToolSpecs() {
		rows = append(rows, tool{name: s.Name, title: s.Title, description: s.Description, args: s.Args,
			required: s.Required, hints: s.Hints})
	}
	return rows
}

// call serves one tool, whose arguments the tool itself checks. What goes wrong with it is told to the model, as a
// result; the line is that of all calls, since they are one agent's.
func (s *toolServer) call(c *mcpCall, name string, p mcpParams) *rpcError {
	return c.inLine(name, func() atmCaller {
		// 0.104 has no callId
		return atmCaller{Correlation: cmp.Or(stringField(p.meta, "callId"), "tools-"+string(c.id))}
	}, func(ctx context.Context, call atmCaller) func() {
		who := s.who
		who.Correlation, who.Refused = call.Correlation, call.Refused
		as, gone := s.agentNow()
		if gone != nil {
			who.Refused = gone
		}
		if who.Refused == nil {
			who.Identity, who.Auto = as.Identity, as.Automatic
			who.Strange = func() error { return s.strange(as.Identity) }
			who.Owns = func(other string) bool { return strings.EqualFold(other, as.Identity) }
		}
		_, text, e := s.tools.run(ctx, who, name, p.arguments)
		if e != nil {
			text = e.Message
		}
		return func() {
			written, done := context.WithTimeout(context.WithoutCancel(ctx), auditLimit)
			defer done()
			if err := s.tools.audit.flush(written); err != nil {
				s.tools.log.Warn("the audit log can't be written", "err", err)
			}
			c.reply(c.plainAnswer(e != nil, nil, text))
		}
	})
}
