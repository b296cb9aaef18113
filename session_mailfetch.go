package main

// session_mailfetch.go owns how unread messages become a turn: which are delivered, in which order, and what is done
// about Claude Code's system frames, which are no mail. session_mail.go asks for it in the hub's goroutines; it waits
// for files. It must never deliver what was delivered, nor answer what nobody wrote.
//
// Frames (wire/atm-files.md), in a session whose mail is delivered:
//   - idle_notification, teammate_terminated, and the answers to what we never
//     ask (shutdown_approved, shutdown_rejected, permission_response,
//     sandbox_permission_response): housekeeping, never a turn. Acknowledged
//     silently, audited; atm_read {all} still shows them.
//   - shutdown_request: answered with shutdown_rejected, whose reason says what
//     does end the agent. The session is its client's: mail, whose sender nobody
//     proves, must not end a client's work, and Claude Code's lead needs an answer.
//   - permission_request, sandbox_permission_request, mode_set_request: what an
//     agent may do is not for a model to decide, nor for mail to change. They stay
//     unread, pending mail for a person to see.
//   - task_assignment, task_completed, plan_approval_request and _response:
//     somebody's words about work, delivered as mail with their kind.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// mailFetch is what an inbox has for a turn.
type mailFetch struct {
	err     error
	refused bool // err: the inbox isn't the session's to be delivered from
	prompt  string
	turn    *mailTurn   // nil: nothing
	last    mailMessage // of the turn
}

// fetch takes the oldest unread messages for a turn. They stay unread, and are
// taken again by the next fetch until they are acknowledged.
func (r *mailroom) fetch(agentID, identity string) (got mailFetch) {
	if err := r.team.mayAct(agentID, identity); err != nil {
		if errors.Is(err, errNoTeam) {
			return mailFetch{} // it vanished: Claude Code removes its own as it exits
		}
		return mailFetch{err: err, refused: true}
	}
	r.mu.Lock()
	sl := r.slots[strings.ToLower(identity)]
	names := sl.names
	r.mu.Unlock()
	limits := mailLimits{Messages: r.cfg.maxMailMessages, Length: r.cfg.maxMailMessageLength}
	for _, name := range names {
		msgs, more, err := r.news(sl, agentID, name, limits.Messages)
		if err != nil {
			if !errors.Is(err, errNoTeam) {
				got.err = err
			}
			continue
		}
		addressed(msgs, r.cfg.team)
		prompt, used := mailEnvelope(identity, msgs, more, limits)
		if used == 0 {
			continue
		}
		turn := &mailTurn{name: name, automatic: true}
		var from []string
		for _, m := range msgs[:used] {
			turn.keys = append(turn.keys, m.Key)
			turn.ids = append(turn.ids, m.ID)
			turn.automatic = turn.automatic && m.Automatic
			from = append(from, m.From)
		}
		turn.words = fmt.Sprintf("%d messages from %s: %s", used, strings.Join(from, ", "),
			cmp.Or(msgs[0].Summary, mailSummary(msgs[0].Text)))
		return mailFetch{prompt: prompt, turn: turn, last: msgs[used-1]}
	}
	return got
}

// addressed makes each sender's name one that an answer can go to: the same name may be a member of two teams.
func addressed(msgs []mailMessage, own string) {
	for i := range msgs {
		m := &msgs[i]
		if m.SourceTeam != "" && m.SourceTeam != own && m.From != "" && !strings.Contains(m.From, "@") {
			m.From += "@" + m.SourceTeam
		}
		if m.SourceTeam == own || strings.HasSuffix(m.From, "@"+m.SourceTeam) {
			m.SourceTeam = "" // it would say nothing more
		}
	}
}

// news lists what is unread and new, about as many as are wanted, and how many
// more there are. Frames are dealt with on the way.
func (r *mailroom) news(sl *mailSlot, agentID, name string, want int) (msgs []mailMessage, more int, err error) {
	for limit := want + r.known(sl); ; limit *= 4 {
		all, rest, err := r.team.boxes.list(r.life, r.cfg.team, name, mailFilter{Limit: limit})
		if err != nil {
			return nil, 0, err
		}
		var done []string // delivered, or housekeeping
		for _, m := range all {
			r.mu.Lock()
			g := sl.given[m.Key]
			known, left := g != nil, g != nil && g.left
			r.mu.Unlock()
			switch {
			case left:
			case known || r.frame(sl, agentID, name, m):
				done = append(done, m.Key)
			default:
				msgs = append(msgs, m)
			}
		}
		msgs = r.sift(sl, name, msgs)
		if len(done) > 0 {
			r.acknowledge(sl.identity, name, done)
		}
		if len(msgs) > 0 || rest == 0 {
			return msgs, rest, nil
		}
	}
}

// known is how many messages may stand unread in the file that are not news.
func (r *mailroom) known(sl *mailSlot) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, g := range sl.order {
		if !g.marked || g.left {
			n++
		}
	}
	return n
}

// sift takes out what frame has left for a person.
func (r *mailroom) sift(sl *mailSlot, name string, msgs []mailMessage) []mailMessage {
	kept := msgs[:0]
	for _, m := range msgs {
		switch m.Kind {
		case mailPermissionRequest, mailSandboxRequest, mailModeSetRequest:
			r.mu.Lock()
			sl.giveLocked(m.Key, name).left = true
			r.mu.Unlock()
			r.log.Warn("a request stays unread, since neither an agent nor mail decides what agents may do", "identity",
				sl.identity, "kind", m.Kind, "from", m.From)
			r.ledger.auditMail("", sl.identity, "mail_left", m.From, string(m.Kind), "message_id: "+m.ID)
		default:
			kept = append(kept, m)
		}
	}
	return kept
}

// frame deals with a system frame that is no mail; true: it is done with.
func (r *mailroom) frame(sl *mailSlot, agentID, name string, m mailMessage) bool {
	switch m.Kind {
	case mailIdle, mailTeammateTerminated, mailShutdownApproved, mailShutdownRejected, mailPermissionResponse,
		mailSandboxResponse:
		r.ledger.auditMail(agentID, sl.identity, "mail_noted", m.From, string(m.Kind)+": "+
			cmp.Or(m.Summary, mailSummary(m.Text)), "message_id: "+m.ID)
		return true
	case mailShutdownRequest:
		if m.Frame == nil { // words about it
			return false
		}
		return r.declineShutdown(sl, agentID, m)
	case mailPlain, mailTaskAssignment, mailTaskCompleted, mailPlanApprovalRequest, mailPlanApprovalResponse,
		mailPermissionRequest, mailSandboxRequest, mailModeSetRequest:
	}
	return false
}

// declineShutdown answers a shutdown_request. The answer's id is made of the
// request, so that one that is answered again after a crash is answered once.
func (r *mailroom) declineShutdown(sl *mailSlot, agentID string, m mailMessage) bool {
	reason := fmt.Sprintf("%s is a Codex agent that an MCP client started; that client ends it with agent_close "+
		"{\"agent_id\": %q}, and mail does not", sl.identity, agentID)
	if s := r.table.agent(agentID); s != nil && s.client.named() {
		reason = sl.identity + " is a Codex agent that somebody works with in an editor; whoever does ends it there, " +
			"and mail does not"
	}
	answer, err := json.Marshal(map[string]string{"type": string(mailShutdownRejected),
		"requestId": cmp.Or(stringField(m.Frame, "requestId"), m.ID),
		"from":      sl.identity, "reason": reason, "timestamp": time.Now().UTC().Format(mailTimeLayout)})
	if err != nil {
		panic("BUG: marshalling a frame: " + err.Error())
	}
	told := "declined"
	if err := r.reply(sl.identity, m, mailMessage{Text: string(answer), Summary: "shutdown declined",
		ID: "shutdown-rejected-" + m.Key}); err != nil {
		told = "declined; not told to the sender: " + err.Error()
	}
	r.log.Info("a request to shut down was declined", "agent", agentID, "identity", sl.identity, "from", m.From)
	r.ledger.auditMail(agentID, sl.identity, "mail_answered", m.From, string(m.Kind)+": "+reason, told+
		"; message_id: "+m.ID)
	return true
}

// errNoReply is why nobody is answered.
var errNoReply = errors.New("not answered")

// reply answers a message automatically: a member of this team who decided to write, and nobody else.
func (r *mailroom) reply(identity string, to, m mailMessage) error {
	name, team, _ := strings.Cut(to.From, "@")
	if team == "" {
		team = to.SourceTeam
	}
	switch {
	case to.Automatic:
		return fmt.Errorf("%w: the message is automatic itself", errNoReply)
	case team != "" && !strings.EqualFold(team, r.cfg.team):
		return fmt.Errorf("%w: %q is of team %q", errNoReply, cutName(name), cutName(team))
	case strings.EqualFold(name, identity):
		return fmt.Errorf("%w: it is the agent itself", errNoReply)
	}
	if err := r.team.mayAct("", identity); err != nil {
		return err
	}
	members, err := r.team.file.list()
	if err != nil {
		return err
	}
	for _, mem := range members {
		if strings.EqualFold(mem.name, name) {
			m.From, m.SourceTeam, m.Automatic = identity, r.cfg.team, true
			ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
			defer cancel()
			_, _, err := r.team.boxes.send(ctx, r.cfg.team, mem.name, m)
			return err
		}
	}
	return fmt.Errorf("%w: team %q has no member %q", errNoReply, r.cfg.team, cutName(name))
}
