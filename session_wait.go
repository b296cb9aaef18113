package main

// session_wait.go owns what is told of sessions, turns and the whole proxy, as copies that nobody changes, so that a
// reader never waits for a session; and agent_wait, which looks at them until a turn has ended or somebody must decide
// something. The session publishes its own view after every transition; the fronts ask. agent_wait is level-triggered
// and consumes nothing: it compares what is kept and shown with a number that the caller brings, so a call that was
// lost can be made again. It never touches a session's loop.

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// sessionView is a session as agent_sessions and agent_status tell it: a copy that nobody changes.
type sessionView struct {
	AgentID     string    `json:"agent_id"`
	Backend     string    `json:"backend"`
	BackendID   string    `json:"backend_id" doc:"The Codex thread id"`
	Team        string    `json:"team"`
	Identity    string    `json:"identity"`
	AgentName   string    `json:"agent_name,omitempty"`
	AgentSource string    `json:"agent_source,omitempty"`
	Status      string    `json:"status"` // busy idle parked closed stale broken
	Interrupted bool      `json:"interrupted,omitempty"`
	LastActive  time.Time `json:"last_active_at"`
	StartedAt   time.Time `json:"started_at"`
	Tag         string    `json:"tag,omitempty"`
	Role        string    `json:"role,omitempty"`
	Resumable   bool      `json:"resumable"`
	Cwd         string    `json:"cwd"`

	Worktree *worktreePlace `json:"worktree,omitempty"`

	Turns     int       `json:"turns"`
	Queued    int       `json:"queued"`
	Activity  string    `json:"activity,omitempty"` // what it is doing, in words
	LastError string    `json:"last_error,omitempty"`
	Dropped   int64     `json:"dropped_events" doc:"Events this client did not get, since it read too slowly"`
	Tokens    int64     `json:"total_tokens"`
	Pending   []askView `json:"-"`         // each front has a shape of its own for them
	Mine      bool      `json:"open_here"` // this process holds it

	Source string `json:"turn_source,omitempty" doc:"Who wanted the running turn: client, mail, resume or summary"`

	PendingMail *int   `json:"pending_mail,omitempty" doc:"Unread messages"` // as last seen; nil without a team
	AutoMail    string `json:"auto_mail,omitempty" doc:"Whether mail starts turns: on, off, or paused and why"`

	opening bool  // its turns wait for Codex, not for each other
	mailSeq int64 // when PendingMail last grew, as a since counts
	barred  bool  // the inbox is another member's: nobody here reads it
	implied bool  // nobody asked for the identity: it may be parked
	pid     int   // of the process that holds its identity, where it isn't open here
}

// askView is a pending approval as it is shown.
type askView struct {
	ApprovalID string `json:"approval_id"`
	Kind       string `json:"kind"`
	Action     string `json:"action"` // what would be done, exactly
	Cwd        string `json:"cwd,omitempty"`
	Reason     string `json:"reason,omitempty"` // the agent's own words

	q        approval // the whole of it, for who asks
	offered  bool     // somebody can decide it; until then it may be declined at once
	byCaller bool     // agent_approve is to decide it: no person is asked
}

// sameAsk reports that two views show one approval in one state: else agent_wait must look again.
func sameAsk(x, y askView) bool { return x.ApprovalID == y.ApprovalID && x.offered == y.offered }

// statusView is the whole proxy, as agent_status tells it.
type statusView struct {
	ChildAlive   bool              `json:"child_alive" doc:"Whether the Codex process runs; it is started by the first turn"`
	ChildVersion string            `json:"-"`
	ChildPID     int               `json:"child_pid,omitempty"`
	ChildError   string            `json:"child_error,omitempty" doc:"How the last Codex process ended"` // "" while none did
	Unsaved      string            `json:"records_error,omitempty" doc:"Why agents won't survive this server, while their records can't be written"`
	Backend      string            `json:"-"` // "app-server", "mcp-server", "" before the first child
	Team         string            `json:"team"`
	TeamFrom     string            `json:"team_from,omitempty" doc:"What set the team"`
	Uptime       time.Duration     `json:"-"`
	Sessions     int               `json:"sessions" doc:"Agents open here"`
	Identities   map[string]string `json:"identities" doc:"identity to agent_id"`
	Limits       *limitsShown      `json:"limits" doc:"Of the account, as Codex told last; null where it told nothing"`
	PendingMail  *int              `json:"pending_mail" doc:"Unread mail of the agents open here; null where there is no mail"`
	Agents       []sessionView     `json:"-"` // open here, as they published themselves: no disk is read

	// Events of the child that sessions have not taken in, of how many there may be.
	EventBytes, EventBytesLimit int64 `json:"-"`
}

// closeResult is what agent_close tells.
type closeResult struct {
	AgentID     string `json:"agent_id"`
	Identity    string `json:"identity"`
	Status      string `json:"status"` // closed
	Already     bool   `json:"already_closed"`
	Interrupted bool   `json:"interrupted" doc:"A running turn was stopped"`

	Worktree *worktreeEnd `json:"worktree,omitempty"`
}

// waitQuery is what agent_wait waits for.
type waitQuery struct {
	Agents  []string // agent_ids, threadIds or names
	Since   int64    // turns that ended after it; 0: each agent's newest turn
	All     bool
	Timeout time.Duration
	Turn    string // the one turn of the one agent that is waited for, "" for any
	Inbox   string // whose mail is waited for, with or without agents; "" for nobody's
	Own     bool   // the client's own mail is waited for too
}

// waitResult is what it tells: everything newer, and what each is doing.
type waitResult struct {
	Seq      int64 // for the next since
	TimedOut bool
	Inbox    mailBox // that was asked for
	Own      mailBox // the client's own
	Agents   []waitAgent
}

// mailBox is how an inbox stands.
type mailBox struct {
	Name   string // "" for none
	Unread int
	Ours   bool // what is read in it may be marked

	seq int64 // when mail last came, as a since counts
}

// news reports unread mail that came after since, or any for 0.
func (b *mailBox) news(since int64) bool { return b.Unread > 0 && (since == 0 || b.seq > since) }

// mailWaits reports mail that nobody delivers by himself and that can be read.
func (v *sessionView) mailWaits() bool {
	return deref(v.PendingMail) > 0 && v.AutoMail != "on" && v.Status == statusIdle && !v.barred
}

type waitAgent struct {
	View  sessionView // Pending has its open approvals
	Turns []keptTurn  // newer than since, oldest first
}

// interruptResult is what agent_interrupt tells.
type interruptResult struct {
	AgentID     string `json:"agent_id"`
	Identity    string `json:"identity"`
	TurnID      string `json:"turn_id,omitempty" doc:"The turn that was stopped"`
	Interrupted bool   `json:"interrupted" doc:"false: there was nothing to stop"`
	Queued      int    `json:"queued" doc:"Turns that still wait"`
}

// approveQuery is a decision that a caller brings, not the client's user.
type approveQuery struct {
	Agent    string // agent_id or threadId
	Ask      string // approval_id
	Action   string // must repeat the pending approval's
	By       decider
	Decision decision
	Answers  map[string][]string // to questions
}

// newView is what a record tells of a session; how the session stands is still to be said.
func newView(r *record) sessionView {
	return sessionView{AgentID: r.AgentID, Backend: "codex", BackendID: r.BackendID, Team: r.Team, Identity: r.Identity,
		AgentName: r.AgentName, AgentSource: r.AgentSource, LastActive: r.LastActive, StartedAt: r.StartedAt,
		Tag: r.Tag, Role: r.Role, Cwd: r.CWD, Worktree: r.Worktree.place(), Turns: r.Turns, LastError: r.LastError,
		implied: r.Implied}
}

// agentWaits are the calls of agent_wait that are open.
type agentWaits struct {
	*common
	agents *agentDirectory
	team   *teamAgents
	mail   *mailroom
	open   workGroup // a goroutine each
}

// wait calls done once, from another goroutine, unless stop was called first: when an agent of q has a turn newer than
// since or a pending approval, when none of them has anything to do, after the timeout, or at shutdown. An unknown
// agent is an error.
func (o *agentWaits) wait(q waitQuery, done func(waitResult, *rpcError)) (stop func()) {
	quit := make(chan struct{})
	o.open.start(func() {
		w := &waiting{agentWaits: o, q: q}
		if err := w.resolve(); err != nil {
			done(waitResult{}, err)
			return
		}
		if r, ok := w.run(quit); ok {
			for i := range r.Agents {
				o.kept.fill(r.Agents[i].Turns)
			}
			done(r, w.gone)
		}
	})
	return func() { close(quit) }
}

// waiting is one agent_wait.
type waiting struct {
	*agentWaits
	q     waitQuery
	ids   []string         // agent_ids, each once
	since map[string]int64 // by agent_id

	elsewhere bool      // one of them works in another process, which tells us nothing
	gone      *rpcError // the one turn that is waited for is not kept any more
}

const (
	tellingLimit   = time.Second // for a session to tell how its turn ended
	elsewhereEvery = time.Second // between two looks at an agent that works in another process
)

// resolve finds the agents and from where on each is looked at.
func (w *waiting) resolve() *rpcError {
	w.since = map[string]int64{}
	if w.q.Inbox != "" {
		if _, err := w.team.file.list(); errors.Is(err, errNoTeam) {
			return proxyError(codeInvalidSession, err.Error()+"; without a team there is no mail to wait for")
		}
		name, err := w.team.inboxOf(w.q.Inbox)
		if err != nil {
			return mailRefused(err) // else a slip of the pen would be waited for to the end
		}
		w.q.Inbox = name
	}
	for _, ref := range w.q.Agents {
		_, id, err := w.agents.find(ref)
		if err != nil {
			if name, none := w.team.inboxOf(ref); none == nil && isName(ref) {
				err.Message += fmt.Sprintf("; for the mail of member %s give {\"inbox\": %q}", name, name)
			}
			return err
		}
		if _, twice := w.since[id]; twice {
			continue
		}
		w.ids = append(w.ids, id)
		w.since[id] = w.q.Since
		if w.q.Since == 0 {
			w.since[id] = w.kept.base(id)
		}
	}
	if w.q.Turn != "" {
		_, err := w.agents.turn(w.ids[0], w.q.Turn)
		return err
	}
	return nil
}

// run looks until there is something to tell; false: nobody wants it any more.
func (w *waiting) run(quit chan struct{}) (waitResult, bool) {
	changed, unwatch := w.kept.watch()
	defer unwatch()
	limit := time.NewTimer(w.q.Timeout)
	defer limit.Stop()
	if w.q.Inbox != "" {
		if wa, err := w.mail.watch(func(string) { nudge(changed) }); err == nil { // else the poll stands alone
			defer wa.owner.close()
		}
	}
	over, late := false, false
	for {
		r, ready, whole := w.look()
		if ready || over && (whole || late) {
			r.TimedOut = !ready
			return r, true
		}
		var again <-chan time.Time
		switch {
		case w.elsewhere:
			again = time.After(elsewhereEvery)
		case w.q.Inbox != "":
			again = time.After(w.cfg.mailPollInterval)
		}
		select {
		case <-changed:
		case <-again:
		case <-limit.C: // a session that is just telling how its turn ended is let finish: else it is seen busy with it
			over, late = true, over
			limit.Reset(tellingLimit)
		case <-w.life.Done():
			r, _, _ = w.look()
			return r, true
		case <-quit:
			return r, false
		}
	}
}

// look takes everything in but the answers themselves. What ended after the seq that it tells is left for the next
// call: so nothing is told twice and nothing passed over. whole is false where that could not be seen as of one moment.
func (w *waiting) look() (r waitResult, ready, whole bool) {
	whole = w.snapshot(&r)
	if w.q.Turn != "" {
		ready, whole = w.lookAtTurn(&r, whole)
		return r, ready, whole
	}
	with, busy, asked := 0, 0, false
	w.elsewhere = false
	for i := range r.Agents {
		a, id := &r.Agents[i], w.ids[i]
		a.Turns = w.kept.ended(id, w.since[id], r.Seq)
		if len(a.Turns) > 0 {
			with++
		}
		if a.View.Status == statusBusy || a.View.Queued > 0 {
			busy++
			w.elsewhere = w.elsewhere || !a.View.Mine
		}
		asked = asked || slices.ContainsFunc(a.View.Pending, func(q askView) bool { return q.offered })
		// Mail that is delivered by itself becomes a turn, and that is told.
		asked = asked || a.View.mailWaits() && (w.q.Since == 0 || a.View.mailSeq > w.q.Since)
	}
	asked = asked || r.Inbox.news(w.q.Since) || r.Own.news(w.q.Since)
	switch {
	case !whole:
		return r, false, false
	case asked || busy == 0 && w.q.Inbox == "":
		return r, true, true
	case w.q.Inbox != "" && len(w.ids) == 0:
		return r, false, true
	case w.q.All:
		return r, with == len(w.ids), true
	}
	return r, with > 0, true
}

// lookAtTurn takes in the one turn that is waited for, which is told whether or not it has ended.
func (w *waiting) lookAtTurn(r *waitResult, seen bool) (ready, whole bool) {
	a := &r.Agents[0]
	turn, err := w.agents.turn(a.View.AgentID, w.q.Turn)
	if w.gone = err; err != nil { // so many newer ones have ended meanwhile that it isn't kept any more
		return true, true
	}
	a.Turns = []keptTurn{turn}
	w.elsewhere = !turn.finished() && !a.View.Mine
	asked := slices.ContainsFunc(a.View.Pending, func(q askView) bool { return q.offered })
	whole = seen && turn.Seq <= r.Seq // else it ended after the agent was looked at, who seems busy with it
	return whole && (turn.finished() || asked), whole
}

// snapshot takes sessions and the seq as of one moment: else a session would be seen to be idle whose last turn isn't
// told, or one to be busy with a turn that is. false: a session is just telling how a turn ended, and will say so.
func (w *waiting) snapshot(r *waitResult) (whole bool) {
	if w.q.Inbox != "" {
		w.mail.recount(w.q.Inbox)
	}
	for {
		seq, unseen := w.kept.state(w.ids)
		r.Inbox = w.mail.box(w.q.Inbox)
		if w.q.Own {
			r.Own = w.mail.own()
		}
		r.Agents = r.Agents[:0]
		for _, id := range w.ids {
			v := w.agents.view(id)
			if !v.Mine { // what it ended before it stood so
				w.kept.load(id)
			}
			r.Agents = append(r.Agents, waitAgent{View: v})
		}
		if r.Seq = w.kept.now(); r.Seq == seq {
			return !unseen
		}
	}
}
