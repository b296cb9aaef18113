package main

// session_team.go owns what the hub knows of mail: whose inbox is whose, who may act for whom, and the sessions'
// membership of the team. Fronts and sessions call it; what waits for files runs in its own queue, one thing after
// another, so that a session's joining never overtakes the leaving of the one before it. It must never act for an
// identity that this instance doesn't hold.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// leaveLimit is how long the members' file may be waited for as we stop.
const leaveLimit = time.Second

// sweepTries looks for dead members are made at a start, with pauses that double
// from sweepPause on: some ten seconds, longer than a dead program's lock stands.
const (
	sweepTries = 10
	sweepPause = 5 * time.Millisecond
)

// teamAgents may be used from any goroutine.
type teamAgents struct {
	*common
	agents    *agentDirectory
	names     *identities
	boxes     *inboxes
	file      *teamFile // of our own team
	addresses addressBook
	tools     *atmTools

	mu        sync.Mutex // guards the fields below
	jobs      []func()
	running   bool
	wanted    map[string]newMember  // by agent_id: who is a member, or would be
	enrolling map[string]bool       // agent_ids that are about to join
	joined    map[string]membership // by agent_id
	refused   map[string]error      // agent_ids that could not join, and why
}

func newTeamAgents(agents *agentDirectory, names *identities, file *teamFile) *teamAgents {
	p := &teamAgents{common: agents.common, agents: agents, names: names, boxes: agents.boxes, file: file,
		addresses: names.addresses, wanted: map[string]newMember{}, enrolling: map[string]bool{},
		joined: map[string]membership{}, refused: map[string]error{}}
	p.tools = newAtmTools(p.cfg, p.boxes, p.addresses, p.ledger.audit, p.log)
	return p
}

// atmSpool is where atm looks for mail that could not be delivered; "" where there is no atm that would.
func atmSpool(cfg *config) string {
	logs := filepath.Join(cfg.atmHome, ".config", "atm", "logs", "atm")
	if _, err := os.Stat(logs); err != nil {
		return ""
	}
	return filepath.Join(logs, "spool", "pending")
}

// later runs f behind everything that was given before.
func (p *teamAgents) later(f func()) {
	p.mu.Lock()
	p.jobs = append(p.jobs, f)
	start := !p.running
	p.running = true
	p.mu.Unlock()
	if start {
		p.work.start(p.runJobs)
	}
}

func (p *teamAgents) runJobs() {
	for {
		p.mu.Lock()
		if len(p.jobs) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		f := p.jobs[0]
		p.jobs = p.jobs[1:]
		p.mu.Unlock()
		f()
	}
}

// sweep takes out of the team what crashed sessions left there, tries times at most: their names may be held by who is
// just taking or leaving them, and the team's file by others.
func (p *teamAgents) sweep(tries int) {
	for try := 1; ; try++ {
		n, again, err := p.file.sweep(p.life, p.reg.holder)
		if n > 0 {
			p.log.Info("members whose process is gone removed", "team", p.cfg.team, "members", n)
		}
		if !again || p.life.Err() != nil {
			return
		}
		if try == tries {
			if err != nil {
				p.log.Warn("members whose process is gone could not be removed", "team", p.cfg.team, "err", err)
			}
			return
		}
		if pauseUntil(p.life, time.Now().Add(sweepPause<<try)) != nil {
			return
		}
	}
}

// usesMail makes a session that is open here a member.
func (p *teamAgents) usesMail(agentID string) {
	p.mu.Lock()
	_, known := p.joined[agentID]
	_, wanted := p.wanted[agentID]
	p.mu.Unlock()
	if known && wanted { // else it is the session before that is a member still, and about to leave
		return
	}
	s := p.table.agent(agentID)
	if s == nil {
		return
	}
	if v := s.shown.Load(); v.Identity != "" {
		p.join(newMember{name: v.Identity, agentID: agentID, cwd: v.Cwd, sessionID: v.BackendID})
	}
}

func (p *teamAgents) join(m newMember) {
	p.mu.Lock()
	p.wanted[m.agentID] = m
	p.mu.Unlock()
	p.enrol(m.agentID, false)
}

// teamSeen makes a session a member that should be one and isn't: there was no team, or its files could not be had.
// anew: the team had vanished, and whoever made it again knows nothing of us.
func (p *teamAgents) teamSeen(agentID string, anew bool) {
	p.mu.Lock()
	_, wanted := p.wanted[agentID]
	_, known := p.joined[agentID]
	// Whose name is another's joins with its next mail: until then nobody's lock is taken at every poll.
	wanted = wanted && (anew || !known) && !p.enrolling[agentID] && !errors.As(p.refused[agentID], new(*memberTaken))
	p.mu.Unlock()
	if wanted {
		p.enrol(agentID, anew)
	}
}

func (p *teamAgents) enrol(agentID string, anew bool) {
	p.mu.Lock()
	p.enrolling[agentID] = true
	p.mu.Unlock()
	p.later(func() {
		p.mu.Lock()
		m, wanted := p.wanted[agentID]
		_, known := p.joined[agentID]
		delete(p.enrolling, agentID)
		p.mu.Unlock()
		if !wanted || known && !anew {
			p.enrolled(agentID, nil)
			return
		}
		got, err := p.file.join(p.life, m, p.reg.holder)
		p.mu.Lock()
		was := p.refused[m.agentID]
		delete(p.refused, m.agentID)
		// without a team it works without mail
		failed := err != nil && !errors.Is(err, errNoTeam) && p.life.Err() == nil
		switch {
		case err == nil:
			p.joined[m.agentID] = got
		case failed:
			p.refused[m.agentID] = err
		}
		p.mu.Unlock()
		switch {
		case err == nil:
			p.log.Info("joined the team", "agent", m.agentID, "identity", got.name, "team", p.cfg.team, "adopted",
				!got.added)
		case failed && (was == nil || err.Error() != was.Error()):
			p.log.Warn("could not join the team", "agent", m.agentID, "identity", m.name, "team", p.cfg.team, "err",
				err)
		}
		p.enrolled(agentID, err)
	})
}

// enrolled tells a session what came of its joining.
func (p *teamAgents) enrolled(agentID string, err error) {
	if s := p.table.agent(agentID); s != nil {
		s.box.do(func() { s.member.settled(err) })
	}
}

// ended takes a session out of the team that has closed, was parked or died.
func (p *teamAgents) ended(agentID string) {
	p.mu.Lock()
	delete(p.wanted, agentID) // now: when its leaving comes, the agent may be open again and want to be a member
	p.mu.Unlock()
	p.later(func() {
		p.mu.Lock()
		was, ok := p.joined[agentID]
		delete(p.joined, agentID)
		delete(p.refused, agentID)
		p.mu.Unlock()
		if ok {
			p.leave(was)
		}
		p.sweep(1) // a session that died may be listed under that name, which was held until now
	})
}

func (p *teamAgents) leave(was ...membership) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	if err := p.file.leave(ctx, was...); err != nil {
		p.log.Warn("could not leave the team; the next start does", "team", p.cfg.team, "err", err)
	}
}

// leaveAll takes out whoever is still a member as we stop, in one write.
func (p *teamAgents) leaveAll() {
	p.mu.Lock()
	var all []membership
	for id, m := range p.joined {
		all = append(all, m)
		delete(p.joined, id)
	}
	p.mu.Unlock()
	if len(all) > 0 {
		p.leave(all...)
	}
}

// inbox is the name under which a session's inbox is found: as the team lists it, which may differ in case.
func (p *teamAgents) inbox(agentID, identity string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m, ok := p.joined[agentID]; ok {
		return m.name
	}
	return identity
}

// inboxOf is the name under which anybody's inbox is found: an identity's that
// is ours, or a member's. It reads the disk.
func (p *teamAgents) inboxOf(identity string) (string, error) {
	if s := p.table.named(identity); s != nil {
		return p.inbox(s.agentID, s.shown.Load().Identity), nil
	}
	if p.owns(identity) {
		return identity, nil
	}
	to, err := p.addresses.recipient(identity, "", p.reached)
	return to.name, err
}

// mayAct reports why a name isn't its agent's: its inbox is not delivered then,
// and nothing is sent in it. nil if it is, listed or not. It reads the disk.
func (p *teamAgents) mayAct(agentID, identity string) error {
	if agentID == "" {
		if s := p.table.named(identity); s != nil {
			agentID = s.agentID
		}
	}
	return p.addresses.mayAct(identity, agentID, p.reg.holder)
}

// lives reports an identity that a session here has.
func (p *teamAgents) lives(identity string) bool { return p.table.named(identity) != nil }

// reached reports an identity that a session of the team has, here or in another process, or the client itself: mail to
// it is delivered or told of, listed or not. It reads the disk.
func (p *teamAgents) reached(identity string) bool {
	// as it is spelt: no member's entry tells the file
	if p.lives(identity) || identity == p.cfg.clientIdentity && p.isClient(identity) {
		return true
	}
	agentID, _, held := p.reg.holder(identity)
	return held && agentID != ""
}

// isClient reports the client's own name, unless an agent has it.
func (p *teamAgents) isClient(identity string) bool {
	return p.cfg.clientIdentity != "" && strings.EqualFold(identity, p.cfg.clientIdentity) && !p.lives(identity)
}

// owns reports an identity that this instance holds, or the client's own: only
// as those is anything sent or marked as read.
func (p *teamAgents) owns(identity string) bool {
	return p.lives(identity) || p.names.reserves(identity) ||
		p.cfg.clientIdentity != "" && strings.EqualFold(identity, p.cfg.clientIdentity)
}

// notify mails a member what a background turn brought: so a lead that doesn't
// wait hears of it. It is marked as automatic, so that no program answers it.
func (p *teamAgents) notify(agentID string, k keptTurn, member, correlation string) {
	from := p.inbox(agentID, k.Identity)
	p.usesMail(agentID)
	p.work.start(func() {
		to, err := p.addresses.recipient(member, from, p.reached)
		if err == nil {
			err = p.mayAct(agentID, k.Identity)
		}
		if err == nil {
			text := noticeText(&k)
			if shown, left := cutMail(text, p.cfg.maxMailMessageLength); left > 0 {
				text = shown + fmt.Sprintf("\n[cut: agent_wait for %s with turn_id %s brings the whole]",
					k.AgentID, k.TurnID)
			}
			_, _, err = p.boxes.send(context.Background(), to.team, to.name,
				mailMessage{From: from, SourceTeam: p.cfg.team, Text: text,
					Summary: fmt.Sprintf("%s: background turn %s", from, k.Status), Automatic: true})
		}
		if err != nil {
			p.log.Warn("a member could not be told of a background turn", "agent", agentID, "turn", k.TurnID, "member",
				member, "err", err)
		}
		e := auditEntry{Event: "notify", Correlation: correlation, AgentID: agentID, Identity: from, Turn: k.TurnID,
			Recipient: member, Detail: k.Status}
		if err != nil {
			e.Detail += "; not delivered: " + err.Error()
		}
		p.ledger.audit.append(e)
	})
}

func noticeText(k *keptTurn) string {
	head := fmt.Sprintf("Background turn %s of agent %s (%s): %s.", k.TurnID, k.Identity, k.AgentID, k.Status)
	switch r := k.Result; {
	case r.err != nil:
		return head + "\n\n" + r.err.Message
	case r.Content != "":
		return head + "\n\n" + r.Content
	}
	return head
}

// reachable refuses a member who could not be mailed. It reads the disk.
func (p *teamAgents) reachable(from, member string) *rpcError {
	if _, err := p.addresses.recipient(member, from, p.reached); err != nil {
		return proxyError(codeInvalidSession, "notify: "+err.Error())
	}
	return nil
}

// caller is whom a client's mail tool acts as: the session that ref means, an identity, or else the client itself
// (FR-4.5); and inbox, where it reads another's. It may read the disk.
func (p *teamAgents) caller(ref, inbox string) (atmCaller, *rpcError) {
	who := atmCaller{Team: p.cfg.team, Owns: p.owns, Live: p.reached, Lead: p.isClient}
	var s *session
	if ref != "" {
		open, agentID, err := p.agents.find(ref)
		switch name := isName(ref); {
		case open != nil:
			s = open
		case name && p.owns(ref):
			who.Identity = ref
		case name && err != nil:
			if strange := p.mayAct("", ref); p.agents.named(ref) != nil &&
				(strange == nil || errors.Is(strange, errNoTeam)) {
				return who, err // an agent's that isn't open, whether the team lists it still or not
			}
			who.Identity = ref // a member's: it may be looked into, and nothing can be sent as it
		case err != nil:
			return who, err
		default:
			v := p.agents.view(agentID)
			if elsewhere(&v) != nil { // as by its name: it may be looked into
				who.Identity = v.Identity
				break
			}
			return who, proxyAdvice(codeInvalidSession, remedyReopen, fmt.Sprintf("agent %s is not open here, so "+
				"nobody can act for it", agentID), fmt.Sprintf("; codex {\"agent_id\": %q} reopens it", agentID),
				"agent_id", agentID)
		}
	}
	switch {
	case inbox != "":
		s = p.table.named(inbox)
		who.Identity = inbox
	case ref != "":
	case p.cfg.clientIdentity != "":
		who.Identity = p.cfg.clientIdentity
	default:
		return who, proxyError(codeIdentityRequired, "whose mail? Give agent_id or identity of an agent that is open "+
			"here. To have a name of your own, set client_identity (user configuration, or "+
			"ATM_AGENT_MCP_CLIENT_IDENTITY), [core].identity or ATM_IDENTITY, and restart this server; in Claude "+
			"Code with agent teams you are the team's lead without any of them")
	}
	if s != nil {
		v := s.shown.Load()
		who.AgentID, who.Identity = s.agentID, p.inbox(s.agentID, v.Identity)
		who.Strange = func() error { return p.mayAct(s.agentID, v.Identity) }
		p.usesMail(s.agentID)
	} else if !strings.EqualFold(who.Identity, p.cfg.clientIdentity) {
		identity := who.Identity
		who.Strange = func() error { return p.mayAct("", identity) }
	}
	return who, nil
}

func looksIntoInbox(tool string) bool { return tool == "atm_read" || tool == "atm_pending_count" }

// runAgentTool is how an agent's own call runs: as the agent, whatever it says of itself.
func (p *teamAgents) runAgentTool(ctx context.Context, agentID, identity, correlation string, auto bool, tool string,
	args json.RawMessage) (string, bool) {
	p.usesMail(agentID)
	who := atmCaller{Identity: p.inbox(agentID, identity), AgentID: agentID, Team: p.cfg.team, Owns: p.owns,
		Live:        p.reached,
		Correlation: correlation, Auto: auto, Strange: func() error { return p.mayAct(agentID, identity) }}
	_, text, err := p.tools.run(ctx, who, tool, args)
	if err != nil {
		return err.Message, false
	}
	return text, true // not the structure, which doesn't say that mail is no instruction
}

func agentToolSpecs() []clientTool {
	var out []clientTool
	for _, t := range atmToolSpecs() {
		out = append(out, clientTool{t.Name, t.Description, t.Input})
	}
	return out
}

// memberLimit is how long a session's first answer waits until it is a member.
const memberLimit = 2 * time.Second

// memberWait is a session's answers while it becomes a member of its team: whoever knows its name may have teammates
// write to it.
type memberWait struct {
	s       *session
	joining bool // the session is to be a member, and isn't known to be one or not to become one
	held    []heldAnswer
}

// answer gives a waiter its result, the first ones once the session is a member, if it is to be one.
func (m *memberWait) answer(w waiterID, r turnResult) {
	if !m.joining || w == 0 {
		m.s.h.answer(w, r)
		return
	}
	if len(m.held) == 0 {
		m.s.after(memberLimit, func() { m.settled(context.DeadlineExceeded) })
	}
	m.held = append(m.held, heldAnswer{w: w, result: r})
}

// settled lets the answers go that waited for the session to become a member; err says why it is none.
func (m *memberWait) settled(err error) {
	s, note, held := m.s, "", m.held
	switch {
	case errors.Is(err, errNoTeam) && s.h.cfg.teamFrom == "default": // nobody meant a team
	case errors.Is(err, context.DeadlineExceeded):
		note = fmt.Sprintf("%s is not listed in team %q yet, since others hold its files: until then Claude Code and "+
			"atm can't write to it", s.place.rec.Identity, s.h.cfg.team)
	case err != nil:
		note = fmt.Sprintf("%s is not listed in team %q, so Claude Code and atm can't write to it: %v",
			s.place.rec.Identity, s.h.cfg.team, err)
	}
	if note != "" && m.joining && len(held) == 0 {
		s.notes = append(s.notes, note)
	}
	m.joining, m.held = false, nil
	for _, a := range held {
		if note != "" {
			a.result.Notes = append(a.result.Notes, note)
		}
		s.h.answer(a.w, a.result)
	}
}
