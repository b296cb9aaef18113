package main

// session_inbox.go owns one identity's inbox: how much of it is unread, what a turn takes along, what was delivered and
// is to be marked as read, and what is answered without any turn. The mailroom has an inbox counted when its files may
// have changed, a session's pump (session_mail.go) fetches from its own and acknowledges what a turn has. It must never
// deliver from another member's inbox or what was delivered, answer what nobody wrote, or read a file on a session's
// loop.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxGiven      = 4096 // keys of delivered messages remembered for each identity
	markPause     = 100 * time.Millisecond
	markPauseMost = time.Minute
	markAtTheEnd  = 300 * time.Millisecond // what others' locks may cost us as we stop
)

// mailSlot is one identity's inbox. It stays when its session ends: what was delivered must not be delivered to the
// session that comes next.
type mailSlot struct {
	r        *mailroom     // whose mu guards the fields below
	identity string        // fixed
	s        *session      // the open session that has the identity, nil for none
	client   bool          // the inbox is the client's own
	names    []string      // how the inbox's files are spelt; more than one where others disagree
	infos    []os.FileInfo // of these files at the last count, nil for one that is missing
	unread   int           // messages in the files, -1: there is no team
	strange  string        // whose name the identity is too, as the session was last told; "" for nobody else's
	teamless bool          // there was no team at the last count
	looking  bool          // a goroutine counts
	again    bool          // the goroutine is to count once more, since something came meanwhile
	fresh    bool          // that count takes the inbox for changed, whatever the files look like

	given   map[string]*givenMail // by the message's key
	order   []*givenMail          // all of given, oldest first
	marking bool                  // a goroutine marks messages as read
}

// givenMail is a message that is never delivered again in this process.
type givenMail struct {
	key, name string
	marked    bool // the message is marked as read in its file
	left      bool // the message is not delivered: it stays unread for a person to see
}

// watched reports an inbox that somebody here wants to hear of.
func (sl *mailSlot) watched() bool { return sl.s != nil || sl.client }

// leave forgets the session, unless the identity has another by now.
func (sl *mailSlot) leave(s *session) {
	sl.r.mu.Lock()
	defer sl.r.mu.Unlock()
	if sl.s == s {
		sl.s = nil
	}
}

// look counts the inbox in a goroutine of its own: a file that is locked or large holds up no other session's mail.
func (sl *mailSlot) look() {
	r := sl.r
	r.mu.Lock()
	sl.again = true
	busy := sl.looking || !sl.watched()
	sl.looking = sl.looking || !busy
	r.mu.Unlock()
	if busy {
		return
	}
	r.work.start(func() {
		for sl.count() {
		}
	})
}

// count tells the session of an inbox what is unread in it. true: something came meanwhile, so count once more.
func (sl *mailSlot) count() (more bool) {
	r := sl.r
	r.mu.Lock()
	s, names, were, fresh := sl.s, sl.names, sl.infos, sl.fresh
	if !sl.again || !sl.watched() {
		sl.looking = false
		r.mu.Unlock()
		return false
	}
	sl.again, sl.fresh = false, false
	client := sl.client
	r.mu.Unlock()
	if client {
		r.recount(sl.identity)
	}
	if s == nil {
		return true
	}

	infos := make([]os.FileInfo, len(names))
	unread := -1
	for i, name := range names {
		infos[i], _ = pinned(os.Stat(filepath.Join(r.dir, name+".json")))
		n, err := r.team.boxes.count(r.life, r.cfg.team, name)
		if err != nil {
			if !errors.Is(err, errNoTeam) {
				r.log.Debug("an inbox can't be counted", "identity", name, "err", err)
				unread = max(unread, 0)
			}
			continue
		}
		unread = max(unread, 0) + n
	}
	fresh = fresh || !slices.EqualFunc(infos, were, func(a, b os.FileInfo) bool {
		return a == nil && b == nil || a != nil && b != nil && sameFile(a, b)
	})
	strange := ""
	if taken := (*memberTaken)(nil); unread >= 0 && errors.As(r.team.mayAct(s.agentID, sl.identity), &taken) {
		strange = taken.who()
	}
	r.mu.Lock()
	was, back, known := sl.unread, sl.teamless && unread >= 0, sl.strange
	sl.infos, sl.unread, sl.teamless, sl.strange = infos, unread, unread < 0, strange
	if fresh && unread > 0 {
		r.last = time.Now()
	}
	pending := sl.pendingLocked()
	r.mu.Unlock()
	if unread >= 0 {
		r.team.teamSeen(s.agentID, back)
	}
	if unread > 0 || unread != was || strange != known {
		s.box.do(func() { s.mail.counted(pending, fresh, strange) })
	}
	return true
}

// pendingLocked is what is unread and was not delivered; -1 without a team.
func (sl *mailSlot) pendingLocked() int {
	n := sl.unread
	for _, g := range sl.order {
		if !g.marked && !g.left && n > 0 {
			n--
		}
	}
	return n
}

// acknowledge: a turn has these messages of an inbox, or nobody needs to. They
// are never delivered again, and marked read as soon as the file is free.
func (sl *mailSlot) acknowledge(name string, keys []string) {
	sl.r.mu.Lock()
	for _, key := range keys {
		g := sl.given[key]
		if g == nil {
			g = sl.giveLocked(key, name)
		}
		g.name, g.marked, g.left = name, false, false // others may have taken our mark away
	}
	start := !sl.marking
	sl.marking = true
	sl.r.mu.Unlock()
	if start {
		sl.r.work.start(sl.mark)
	}
}

// giveLocked remembers a message, and forgets the oldest that can be forgotten.
func (sl *mailSlot) giveLocked(key, name string) *givenMail {
	g := &givenMail{key: key, name: name}
	sl.given[key] = g
	sl.order = append(sl.order, g)
	if len(sl.order) > maxGiven {
		if i := slices.IndexFunc(sl.order, func(o *givenMail) bool { return o.marked }); i >= 0 {
			delete(sl.given, sl.order[i].key)
			sl.order = slices.Delete(sl.order, i, i+1)
		}
	}
	return g
}

// mark marks what was delivered as read. While others hold the locks it tries
// again: late is better than not, and the messages are remembered meanwhile.
func (sl *mailSlot) mark() {
	r := sl.r
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(r.life, func() { time.AfterFunc(markAtTheEnd, cancel) })()
	for pause := markPause; ; {
		last := r.life.Err() != nil
		name, batch := sl.unmarked()
		if batch == nil {
			return
		}
		keys := make([]string, len(batch))
		for i, g := range batch {
			keys[i] = g.key
		}
		_, err := r.team.boxes.markRead(ctx, r.cfg.team, name, keys)
		if err == nil || errors.Is(err, errNoTeam) { // gone is as good as read
			r.mu.Lock()
			for _, g := range batch {
				g.marked = true
			}
			r.mu.Unlock()
			sl.look()
			pause = markPause
			continue
		}
		if last {
			r.log.Warn("mail was delivered and can't be marked read, so it is delivered again by the next start",
				"identity", name, "messages", len(keys), "err", err)
			r.mu.Lock()
			sl.marking = false
			r.mu.Unlock()
			return
		}
		r.log.Debug("mail is not marked read yet", "identity", name, "messages", len(keys), "err", err)
		select {
		case <-time.After(pause):
		case <-r.life.Done():
		}
		pause = min(2*pause, markPauseMost)
	}
}

// unmarked is what is to be marked in one of the files; nil: the marker is done.
func (sl *mailSlot) unmarked() (name string, batch []*givenMail) {
	sl.r.mu.Lock()
	defer sl.r.mu.Unlock()
	for _, g := range sl.order {
		if !g.marked && !g.left && (name == "" || name == g.name) {
			name, batch = g.name, append(batch, g)
		}
	}
	sl.marking = batch != nil
	return name, batch
}

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
func (sl *mailSlot) fetch(agentID, identity string) (got mailFetch) {
	r := sl.r
	if err := r.team.mayAct(agentID, identity); err != nil {
		if errors.Is(err, errNoTeam) {
			return mailFetch{} // it vanished: Claude Code removes its own as it exits
		}
		return mailFetch{err: err, refused: true}
	}
	r.mu.Lock()
	names := sl.names
	r.mu.Unlock()
	for _, name := range names {
		msgs, more, err := sl.news(agentID, name, r.cfg.maxMailMessages)
		if err != nil {
			if !errors.Is(err, errNoTeam) {
				got.err = err
			}
			continue
		}
		addressed(msgs, r.cfg.team)
		prompt, used := mailEnvelope(identity, msgs, more, r.cfg.maxMailMessages, r.cfg.maxMailMessageLength)
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
func (sl *mailSlot) news(agentID, name string, want int) (msgs []mailMessage, more int, err error) {
	r := sl.r
	for limit := want + sl.known(); ; limit *= 4 {
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
			mail := false
			if !known {
				mail, known = sl.frame(agentID, name, m)
			}
			if mail {
				msgs = append(msgs, m)
			} else if known && !left {
				done = append(done, m.Key)
			}
		}
		if len(done) > 0 {
			sl.acknowledge(name, done)
		}
		if len(msgs) > 0 || rest == 0 {
			return msgs, rest, nil
		}
	}
}

// known is how many messages may stand unread in the file that are not news.
func (sl *mailSlot) known() int {
	sl.r.mu.Lock()
	defer sl.r.mu.Unlock()
	n := 0
	for _, g := range sl.order {
		if !g.marked || g.left {
			n++
		}
	}
	return n
}

// frame deals with a system frame of Claude Code's that is no mail to be delivered; done: nobody is to see it any more.
// The kinds (wire/atm-files.md), in a session whose mail is delivered:
//   - idle_notification, teammate_terminated, and the answers to what we never ask (shutdown_approved,
//     shutdown_rejected, permission_response, sandbox_permission_response): housekeeping, never a turn. Acknowledged
//     silently, audited; atm_read {all} still shows them.
//   - shutdown_request: answered with shutdown_rejected, whose reason says what does end the agent. The session is its
//     client's: mail, whose sender nobody proves, must not end a client's work, and Claude Code's lead needs an answer.
//   - permission_request, sandbox_permission_request, mode_set_request: what an agent may do is not for a model to
//     decide, nor for mail to change. They stay unread, pending mail for a person to see.
//   - task_assignment, task_completed, plan_approval_request and _response: somebody's words about work, delivered as
//     mail with their kind.
func (sl *mailSlot) frame(agentID, name string, m mailMessage) (mail, done bool) {
	r := sl.r
	switch m.Kind {
	case mailIdle, mailTeammateTerminated, mailShutdownApproved, mailShutdownRejected, mailPermissionResponse,
		mailSandboxResponse:
		r.ledger.auditMail(agentID, sl.identity, "mail_noted", m.From, string(m.Kind)+": "+
			cmp.Or(m.Summary, mailSummary(m.Text)), "message_id: "+m.ID)
		return false, true
	case mailShutdownRequest:
		if m.Frame == nil { // words about it
			return true, false
		}
		sl.declineShutdown(agentID, m)
		return false, true
	case mailPermissionRequest, mailSandboxRequest, mailModeSetRequest:
		r.mu.Lock()
		sl.giveLocked(m.Key, name).left = true
		r.mu.Unlock()
		r.log.Warn("a request stays unread, since neither an agent nor mail decides what agents may do", "identity",
			sl.identity, "kind", m.Kind, "from", m.From)
		r.ledger.auditMail("", sl.identity, "mail_left", m.From, string(m.Kind), "message_id: "+m.ID)
		return false, false
	case mailPlain, mailTaskAssignment, mailTaskCompleted, mailPlanApprovalRequest, mailPlanApprovalResponse:
	}
	return true, false
}

// declineShutdown answers a shutdown_request. The answer's id is made of the
// request, so that one that is answered again after a crash is answered once.
func (sl *mailSlot) declineShutdown(agentID string, m mailMessage) {
	r := sl.r
	reason := fmt.Sprintf("%s is a Codex agent that an MCP client started; that client ends it by closing agent %s, "+
		"and mail does not", sl.identity, agentID)
	if s := r.table.agent(agentID); s != nil && s.client.shape.named {
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
	if err := sl.reply(sl.identity, m, mailMessage{Text: string(answer), Summary: "shutdown declined",
		ID: "shutdown-rejected-" + m.Key}); err != nil {
		told = "declined; not told to the sender: " + err.Error()
	}
	r.log.Info("a request to shut down was declined", "agent", agentID, "identity", sl.identity, "from", m.From)
	r.ledger.auditMail(agentID, sl.identity, "mail_answered", m.From, string(m.Kind)+": "+reason, told+
		"; message_id: "+m.ID)
}

// errNoReply is why nobody is answered.
var errNoReply = errors.New("not answered")

// reply answers a message automatically: a member of this team who decided to write, and nobody else.
func (sl *mailSlot) reply(identity string, to, m mailMessage) error {
	r := sl.r
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
