package main

// session_waits.go owns agent_wait in the hub: looking at sessions until a turn has
// ended or somebody must decide something; and the look-up of one agent or turn,
// open here or not. It is level-triggered and consumes nothing: it compares what
// is kept and shown with a number that the caller brings, so a call that was
// lost can be made again. It never touches a session's loop.

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// wait calls done once, from another goroutine, unless stop was called first:
// when an agent of q has a turn newer than since or a pending approval, when
// none of them has anything to do, after the timeout, or at shutdown. An
// unknown agent is an error.
func (h *hub) wait(q waitQuery, done func(waitResult, *rpcError)) (stop func()) {
	quit := make(chan struct{})
	h.waits.begin()
	h.work.start(func() {
		defer h.waits.end()
		w := &waiting{h: h, q: q}
		if err := w.resolve(); err != nil {
			done(waitResult{}, err)
			return
		}
		if r, ok := w.run(quit); ok {
			for i := range r.Agents {
				h.kept.fill(r.Agents[i].Turns)
			}
			done(r, nil)
		}
	})
	return func() { close(quit) }
}

// openWaits counts the calls of agent_wait that are open.
type openWaits struct {
	mu   sync.Mutex // guards the fields below
	open int
	over chan struct{} // closed when the last one ends, nil while nobody waits for that
}

func (o *openWaits) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open++
}

func (o *openWaits) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open--; o.open == 0 && o.over != nil {
		close(o.over)
		o.over = nil
	}
}

// none is closed when no agent_wait is open any more.
func (o *openWaits) none() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	over := make(chan struct{})
	if o.open == 0 {
		close(over)
	} else {
		o.over = over
	}
	return over
}

// waiting is one agent_wait.
type waiting struct {
	h      *hub
	q      waitQuery
	agents []string         // agent_ids, each once
	since  map[string]int64 // by agent_id

	elsewhere bool // one of them works in another process, which tells us nothing
}

// tellingLimit is how long a session may take to tell how its turn ended.
const tellingLimit = time.Second

// elsewhereEvery is how often such an agent is looked at.
const elsewhereEvery = time.Second

// resolve finds the agents and from where on each is looked at.
func (w *waiting) resolve() *rpcError {
	w.since = map[string]int64{}
	if w.q.Inbox != "" {
		if _, err := w.h.team.file.list(); errors.Is(err, errNoTeam) {
			return proxyError(codeInvalidSession, err.Error()+"; without a team there is no mail to wait for")
		}
		name, err := w.h.team.inboxOf(w.q.Inbox)
		if err != nil {
			return mailRefused(err) // else a slip of the pen would be waited for to the end
		}
		w.q.Inbox = name
	}
	for _, ref := range w.q.Agents {
		_, id, err := w.h.agents.find(ref)
		if err != nil {
			if name, none := w.h.team.inboxOf(ref); none == nil && isName(ref) {
				err.Message += fmt.Sprintf("; for the mail of member %s give {\"inbox\": %q}", name, name)
			}
			return err
		}
		if _, twice := w.since[id]; twice {
			continue
		}
		w.agents = append(w.agents, id)
		w.since[id] = w.q.Since
		if w.q.Since == 0 {
			w.since[id] = w.h.kept.base(id)
		}
	}
	return nil
}

// run looks until there is something to tell; false: nobody wants it any more.
func (w *waiting) run(quit chan struct{}) (waitResult, bool) {
	changed, unwatch := w.h.kept.watch()
	defer unwatch()
	limit := time.NewTimer(w.q.Timeout)
	defer limit.Stop()
	if w.q.Inbox != "" {
		defer w.watchMail(changed)()
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
			again = time.After(w.h.cfg.mailPollInterval)
		}
		select {
		case <-changed:
		case <-again:
		case <-limit.C: // a session that is just telling how its turn ended is let finish: else it is seen busy with it
			over, late = true, over
			limit.Reset(tellingLimit)
		case <-w.h.life.Done():
			r, _, _ = w.look()
			return r, true
		case <-quit:
			return r, false
		}
	}
}

// watchMail nudges changed as the team's inboxes change; without notification
// the poll stands alone. What it returns ends that.
func (w *waiting) watchMail(changed chan struct{}) (stop func()) {
	eyes, err := w.h.mail.newWatcher()
	if err != nil {
		return func() {}
	}
	if _, err := eyes.add(w.h.mail.dir, func(string) { nudge(changed) }); err != nil {
		w.h.log.Debug("inboxes can't be watched", "err", err)
	}
	return eyes.close
}

// look takes everything in but the answers themselves. What ended after the seq
// that it tells is left for the next call: so nothing is told twice and nothing
// passed over.
// whole is false where that could not be seen as of one moment.
func (w *waiting) look() (r waitResult, ready, whole bool) {
	whole = w.snapshot(&r)
	with, busy, asked := 0, 0, false
	w.elsewhere = false
	for i := range r.Agents {
		a, id := &r.Agents[i], w.agents[i]
		a.Turns = w.h.kept.ended(id, w.since[id], r.Seq)
		if len(a.Turns) > 0 {
			with++
		}
		if a.View.Status == statusBusy || a.View.Queued > 0 {
			busy++
			w.elsewhere = w.elsewhere || !a.View.Mine
		}
		asked = asked || len(a.View.Pending) > 0
		// Mail that is delivered by itself becomes a turn, and that is told.
		asked = asked || a.View.mailWaits() && (w.q.Since == 0 || a.View.mailSeq > w.q.Since)
	}
	asked = asked || r.Inbox.news(w.q.Since) || r.Own.news(w.q.Since)
	switch {
	case !whole:
		return r, false, false
	case asked || busy == 0 && w.q.Inbox == "":
		return r, true, true
	case w.q.Inbox != "" && len(w.agents) == 0:
		return r, false, true
	case w.q.All:
		return r, with == len(w.agents), true
	}
	return r, with > 0, true
}

// snapshot takes sessions and the seq as of one moment: else a session would be
// seen to be idle whose last turn isn't told, or one to be busy with a turn that
// is. false: a session is just telling how a turn ended, and will say so.
func (w *waiting) snapshot(r *waitResult) (whole bool) {
	if w.q.Inbox != "" {
		w.h.mail.recount(w.q.Inbox)
	}
	for {
		seq, unseen := w.h.kept.state(w.agents)
		r.Inbox = w.h.mail.box(w.q.Inbox)
		if w.q.Own {
			r.Own = w.h.mail.own()
		}
		r.Agents = r.Agents[:0]
		for _, id := range w.agents {
			v := w.h.agents.view(id)
			if !v.Mine { // what it ended before it stood so
				w.h.kept.load(id)
			}
			r.Agents = append(r.Agents, waitAgent{View: v})
		}
		if r.Seq = w.h.kept.now(); r.Seq == seq {
			return !unseen
		}
	}
}

// turn is one kept turn of an agent_id or threadId. It may read the disk.
func (h *hub) turn(ref, turnID string) (keptTurn, *rpcError) {
	_, agentID, err := h.agents.find(ref)
	if err != nil {
		return keptTurn{}, err
	}
	t := h.kept.find(agentID, turnID)
	if t == nil {
		return keptTurn{}, proxyError(codeSessionNotFound, fmt.Sprintf("agent %s has no turn %q; agent_wait tells its turns", agentID, turnID), "agent_id", agentID, "turn_id", turnID)
	}
	if t.finished() {
		return *t, nil
	}
	if t.process != h.kept.began {
		t.Activity = "working in another process"
		return *t, nil
	}
	v := h.agents.view(agentID)
	t.Activity, t.Pending = v.Activity, v.Pending
	if t.Status == "queued" && !v.opening {
		t.Activity, t.Pending = "waiting for its turn", nil
	}
	return *t, nil
}
