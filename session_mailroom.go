package main

// session_mailroom.go owns the watch over the team's inboxes: the mailroom tells sessions when their inboxes may have
// mail, takes messages for a turn, and marks messages read once a turn has them. Sessions join as they open and leave
// as they end; session_mail.go decides what is done about mail. One watcher and one poll timer serve all sessions: an
// inbox that is left alone costs a stat at each poll. The mailroom must never make a team or an inbox, deliver from
// another member's or what was delivered, answer what nobody wrote, or read a file on a session's loop.

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
	"sync"
	"time"
)

const (
	maxGiven      = 4096 // keys of delivered messages remembered for each identity
	markPause     = 100 * time.Millisecond
	markPauseMost = time.Minute
	markAtTheEnd  = 300 * time.Millisecond // what others' locks may cost us as we stop
)

// mailroom may be used from any goroutine. run is its own, while there is a session; it ends with the hub's life.
type mailroom struct {
	*common
	team       *teamAgents
	dir        string                   // of the inboxes
	newWatcher func() (*watcher, error) // a test without processes has none
	wake       chan struct{}            // has room for one: run is to look at changed, all and respell

	mu      sync.Mutex           // guards the fields below, never held over I/O
	slots   map[string]*mailSlot // by lower-case identity
	changed map[string]bool      // the keys of slots whose inboxes have changed
	all     bool                 // any inbox may have changed
	respell bool                 // an inbox may be spelt otherwise than its slot says
	boxes   map[string]*mailSeen // by lower-case name: the inboxes that somebody here is told of
	running bool                 // run's goroutine has been started
	resting bool                 // the poll has stopped
	last    time.Time            // when anything happened last: a turn, or mail
}

// mailSlot is one identity's inbox. It stays when its session ends: what was delivered must not be delivered to the
// session that comes next.
type mailSlot struct {
	identity string
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

// mailSeen is an inbox as it was last looked into for who waits for its mail.
type mailSeen struct {
	mailBox
	info os.FileInfo
	keys map[string]bool // of the unread messages
}

func newMailroom(c *common, team *teamAgents) *mailroom {
	return &mailroom{common: c, team: team, dir: filepath.Join(c.cfg.teamsRoot, c.cfg.team, "inboxes"),
		newWatcher: newWatcher, wake: make(chan struct{}, 1),
		slots: map[string]*mailSlot{}, changed: map[string]bool{}, boxes: map[string]*mailSeen{}}
}

// join has a session's inbox looked after, and looked into at once.
func (r *mailroom) join(s *session, identity string) {
	r.attend(identity, func(sl *mailSlot) { sl.s, sl.infos, sl.strange = s, nil, "" })
}

// joinClient has the client's own inbox looked after.
func (r *mailroom) joinClient(identity string) {
	r.attend(identity, func(sl *mailSlot) { sl.client = true })
}

func (r *mailroom) attend(identity string, who func(*mailSlot)) {
	key := strings.ToLower(identity)
	r.mu.Lock()
	sl := r.slots[key]
	if sl == nil {
		sl = &mailSlot{identity: identity, unread: -1, names: []string{identity}, given: map[string]*givenMail{}}
		r.slots[key] = sl
	}
	who(sl)
	r.respell, r.changed[key] = true, true // its spelling may be another's
	start := !r.running
	r.running = true
	r.activeLocked()
	r.mu.Unlock()
	if start {
		r.work.start(r.run)
	}
	nudge(r.wake)
}

// leave forgets the session, unless the identity has another by now.
func (r *mailroom) leave(s *session, identity string) {
	r.mu.Lock()
	if sl := r.slots[strings.ToLower(identity)]; sl != nil && sl.s == s {
		sl.s = nil
	}
	r.mu.Unlock()
}

// active notes that something happens, which begins idle_timeout_ms anew.
func (r *mailroom) active() {
	r.mu.Lock()
	rested := r.resting
	r.activeLocked()
	r.mu.Unlock()
	if rested {
		nudge(r.wake)
	}
}

func (r *mailroom) activeLocked() { r.last, r.resting = time.Now(), false }

// noticed is the watcher's word that an entry of the directory changed. What is
// no open session's inbox (locks, temporary files, others' mail) wakes nobody.
func (r *mailroom) noticed(entry string) {
	name, ok := strings.CutSuffix(entry, ".json")
	if entry != "" && !ok {
		return
	}
	r.mu.Lock()
	if sl := r.slots[strings.ToLower(name)]; entry == "" {
		r.all = true
	} else if sl == nil || !sl.watched() {
		r.mu.Unlock()
		return
	} else {
		r.respell = r.respell || !slices.Contains(sl.names, name)
		r.changed[strings.ToLower(name)] = true
	}
	r.mu.Unlock()
	nudge(r.wake)
}

// watch has changed told of the inboxes' files by a watcher that has no other watch.
func (r *mailroom) watch(changed func(entry string)) (*watch, error) {
	w, err := r.newWatcher()
	if err != nil {
		return nil, err
	}
	wa, err := w.add(r.dir, changed)
	if err != nil {
		w.close()
	}
	return wa, err
}

// mailWatch is the watch over the inboxes, as far as one is to be had.
type mailWatch struct {
	wa   *watch
	told bool
}

// open watches, or watches again where the kernel had given up; false: the poll stands alone until the next try.
func (m *mailWatch) open(r *mailroom) bool {
	if m.works() {
		return true
	}
	m.close() // the watch may come to life again, as after an overflow: then each change would be told twice
	wa, err := r.watch(r.noticed)
	if err == nil {
		m.wa = wa
		r.noticed("") // what happened until now was told to nobody
		return true
	}
	if !m.told {
		m.told = true
		r.log.Info("inboxes can't be watched, mail is polled for", "interval", r.cfg.mailPollInterval, "err", err)
	}
	return false
}

func (m *mailWatch) works() bool { return m.wa != nil && m.wa.works() }

func (m *mailWatch) close() {
	if m.wa != nil {
		m.wa.owner.close()
		m.wa = nil
	}
}

// run waits for notices and polls below them: a network's file system tells nobody what another machine does.
func (r *mailroom) run() {
	var w mailWatch
	defer w.close()
	w.open(r)
	r.tell()
	poll := time.NewTimer(r.cfg.mailPollInterval)
	defer poll.Stop()
	for stopped := false; ; {
		select {
		case <-r.life.Done():
			return
		case <-r.wake:
			r.tell()
			if !w.works() {
				r.active() // there is nothing but the poll
			}
			if r.rests() || !stopped {
				continue
			}
		case <-poll.C:
			works := w.open(r)
			r.spell()
			r.lookAt(nil, true, false)
			if stopped = r.pause(works); stopped {
				continue
			}
		}
		stopped = false
		poll.Reset(r.cfg.mailPollInterval)
	}
}

// pause stops the poll while it has nothing to do: no session is open, or,
// where notices are to be had, nothing happened for idle_timeout_ms.
func (r *mailroom) pause(noticed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	open, limit := false, r.cfg.idleTimeout
	for _, sl := range r.slots {
		open = open || sl.watched()
	}
	r.resting = !open || noticed && limit > 0 && time.Since(r.last) >= limit
	return r.resting
}

func (r *mailroom) rests() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resting
}

// tell looks into the inboxes that notices were about.
func (r *mailroom) tell() {
	r.mu.Lock()
	keys, all, respell := r.changed, r.all, r.respell
	r.changed, r.all, r.respell = map[string]bool{}, false, false
	r.mu.Unlock()
	if all || respell {
		r.spell()
	}
	r.lookAt(keys, all, true)
}

// lookAt looks into inboxes that somebody wants to hear of, those of keys or all; fresh: they have changed, whatever
// the files look like.
func (r *mailroom) lookAt(keys map[string]bool, all, fresh bool) {
	r.mu.Lock()
	var slots []*mailSlot
	for key, sl := range r.slots {
		if (all || keys[key]) && sl.watched() {
			sl.fresh = sl.fresh || fresh
			slots = append(slots, sl)
		}
	}
	r.mu.Unlock()
	for _, sl := range slots {
		r.lookInto(sl)
	}
}

// look has one identity's inbox looked into, if a session is open for it.
func (r *mailroom) look(identity string) {
	r.mu.Lock()
	sl := r.slots[strings.ToLower(identity)]
	r.mu.Unlock()
	if sl != nil {
		r.lookInto(sl)
	}
}

// lookInto counts an inbox in a goroutine of its own: a file that is locked or large holds up no other session's mail.
func (r *mailroom) lookInto(sl *mailSlot) {
	r.mu.Lock()
	sl.again = true
	busy := sl.looking || !sl.watched()
	sl.looking = sl.looking || !busy
	r.mu.Unlock()
	if busy {
		return
	}
	r.work.start(func() {
		for r.count(sl) {
		}
	})
}

// count tells the session of an inbox what is unread in it. true: something came meanwhile, so count once more.
func (r *mailroom) count(sl *mailSlot) (more bool) {
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
		r.activeLocked()
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

// recount looks into an inbox, if its file has changed, for those who wait for its
// mail or are told of it. It reads the disk.
func (r *mailroom) recount(name string) {
	name = r.spelt(name)
	info, _ := pinned(os.Stat(filepath.Join(r.dir, name+".json")))
	key := strings.ToLower(name)
	r.mu.Lock()
	was := r.boxes[key]
	r.mu.Unlock()
	if was != nil && (info == nil && was.info == nil || info != nil && was.info != nil && sameFile(info, was.info)) {
		return
	}
	msgs, _, err := r.team.boxes.list(r.life, r.cfg.team, name, mailFilter{Plain: r.team.isClient(name)})
	if err != nil && !errors.Is(err, errNoTeam) {
		r.log.Debug("an inbox can't be counted", "identity", name, "err", err)
	}
	now := &mailSeen{mailBox: mailBox{Name: name, Unread: len(msgs), Ours: r.team.owns(name)}, info: info,
		keys: map[string]bool{}}
	fresh := false
	for _, m := range msgs {
		now.keys[m.Key] = true
		fresh = fresh || was == nil || !was.keys[m.Key]
	}
	r.kept.stamp(func(seq int64) {
		if now.seq = seq; !fresh && was != nil {
			now.seq = was.seq
		}
		r.mu.Lock()
		r.boxes[key] = now
		r.mu.Unlock()
	})
}

// spelt is how an inbox that is watched is spelt on disk.
func (r *mailroom) spelt(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sl := r.slots[strings.ToLower(name)]; sl != nil && len(sl.names) > 0 {
		return sl.names[0]
	}
	return name
}

// box is an inbox as it was last looked into.
func (r *mailroom) box(name string) mailBox {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.boxes[strings.ToLower(name)]; b != nil && name != "" {
		return b.mailBox
	}
	return mailBox{Name: name}
}

// own is the client's own inbox, if it has one and no agent has its name.
func (r *mailroom) own() mailBox {
	if !r.team.isClient(r.cfg.clientIdentity) {
		return mailBox{}
	}
	return r.box(r.cfg.clientIdentity)
}

// spell finds how the inboxes are spelt: a member is one whatever the case, but
// whoever listed it gave the file its name.
func (r *mailroom) spell() {
	entries, _ := os.ReadDir(r.dir) // no team, no entries
	found := map[string][]string{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			found[strings.ToLower(name)] = append(found[strings.ToLower(name)], name)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, sl := range r.slots {
		if names := found[key]; names != nil {
			sl.names = names
			if i := slices.Index(names, sl.identity); i > 0 {
				names[0], names[i] = names[i], names[0]
			}
		}
	}
}

// acknowledge: a turn has these messages of an inbox, or nobody needs to. They
// are never delivered again, and marked read as soon as the file is free.
func (r *mailroom) acknowledge(identity, name string, keys []string) {
	r.mu.Lock()
	sl := r.slots[strings.ToLower(identity)]
	if sl == nil {
		panic("BUG: mail of " + identity + " was delivered to no session")
	}
	for _, key := range keys {
		g := sl.given[key]
		if g == nil {
			g = sl.giveLocked(key, name)
		}
		g.name, g.marked, g.left = name, false, false // others may have taken our mark away
	}
	start := !sl.marking
	sl.marking = true
	r.mu.Unlock()
	if start {
		r.work.start(func() { r.mark(sl) })
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
func (r *mailroom) mark(sl *mailSlot) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(r.life, func() { time.AfterFunc(markAtTheEnd, cancel) })()
	for pause := markPause; ; {
		last := r.life.Err() != nil
		name, batch := r.unmarked(sl)
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
			r.lookInto(sl)
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
func (r *mailroom) unmarked(sl *mailSlot) (name string, batch []*givenMail) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
			mail := false
			if !known {
				mail, known = r.frame(sl, agentID, name, m)
			}
			if mail {
				msgs = append(msgs, m)
			} else if known && !left {
				done = append(done, m.Key)
			}
		}
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
func (r *mailroom) frame(sl *mailSlot, agentID, name string, m mailMessage) (mail, done bool) {
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
		r.declineShutdown(sl, agentID, m)
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
func (r *mailroom) declineShutdown(sl *mailSlot, agentID string, m mailMessage) {
	reason := fmt.Sprintf("%s is a Codex agent that an MCP client started; that client ends it by closing agent %s, "+
		"and mail does not", sl.identity, agentID)
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
