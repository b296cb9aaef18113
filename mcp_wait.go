package main

// mcp_wait.go owns agent_wait in the front: what is waited for, what is told meanwhile, and a result that a model can
// go on from. The whole result stands in structuredContent, since Claude shows a model nothing else, and stays short of
// the 25 000 tokens at which Claude Code saves a result to a file instead. callTool runs it; the hub answers from
// another goroutine. It must never use anything up: whoever asks again is told the same.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// waitBudget is how many bytes of answers one agent_wait tells: some 16 000 tokens, which leaves room for the rest.
const waitBudget = 64 << 10

// waitFiles is how many changed files of each turn agent_wait names, unless it tells of one turn.
const waitFiles = 10

// readWait turns the arguments of agent_wait into a query.
func readWait(a toolArgs) (q waitQuery, e *rpcError) {
	turn := strings.TrimSpace(a.str("turn_id"))
	q = waitQuery{Own: turn == "", Since: int64(a.num("since")), All: a.yes("all"), Turn: turn,
		Timeout: defaultWaitSecs * time.Second}
	if a.has("timeout_secs") {
		q.Timeout = max(a.secs("timeout_secs"), time.Nanosecond) // 0 looks and doesn't wait
	}
	ref, e := a.agent()
	several := a.has("agent_ids") || a.has("codex_ids")
	switch {
	case e != nil:
		return q, e
	case ref != "" && several:
		return q, invalidSession("agent_id and agent_ids exclude each other: put %q into agent_ids", ref)
	case a.has("turn_id") && turn == "":
		return q, invalidSession("turn_id is empty: leave it out to wait for any turn")
	case turn != "" && several:
		return q, invalidSession("turn_id %q is a turn of one agent: give its agent_id instead of agent_ids", turn)
	case turn != "" && a.has("inbox"):
		return q, invalidSession("turn_id %q names what to wait for: leave inbox out", turn)
	case turn != "" && (a.has("since") || a.yes("all")):
		return q, invalidSession("turn_id %q names what to wait for: leave since and all out", turn)
	case ref != "":
		q.Agents = []string{ref}
	}
	name := func(raw json.RawMessage) {
		s, _ := rawString(raw)
		if s = strings.TrimSpace(s); s == "" && e == nil {
			e = invalidSession("agent_ids has an empty name; agent_sessions lists the agents")
		}
		if !slices.Contains(q.Agents, s) {
			q.Agents = append(q.Agents, s)
		}
	}
	eachElement(a["agent_ids"], name)
	eachElement(a["codex_ids"], name)
	if len(q.Agents) > maxWaitAgents && e == nil {
		e = invalidSession("%d agents are too many at once: name at most %d", len(q.Agents), maxWaitAgents)
	}
	if e == nil && a.has("inbox") {
		q.Inbox = strings.TrimSpace(a.str("inbox"))
		if err := validIdentity(q.Inbox); err != nil {
			e = invalidSession("inbox: %v", err)
		}
	}
	if e == nil && len(q.Agents) == 0 && q.Inbox == "" {
		e = invalidSession("no agent: give agent_id or identity, agent_ids for several, or inbox to wait for mail; " +
			"agent_sessions lists them")
	}
	return q, e
}

// waitForAgents serves agent_wait.
func waitForAgents(c *mcpCall, a toolArgs) *rpcError {
	q, e := readWait(a)
	if e != nil {
		return e
	}
	c.prog.watch(func() string { return doings(c.f.status().Agents, q.Agents) })
	budget := waitBudget
	if q.Turn != "" {
		budget = 0 // that is how an answer is had whole
	}
	c.onCancel(c.f.wait(q, func(r waitResult, e *rpcError) {
		if e != nil {
			c.fail(e)
			return
		}
		c.reply(waitAnswer(c, &r, q.Turn, budget))
	}))
	return nil
}

// doings says in words what the agents that refs name are doing.
func doings(live []sessionView, refs []string) string {
	var said []string
	for _, ref := range refs {
		for i := range live {
			if v := &live[i]; v.named(ref) {
				said = append(said, cmp.Or(v.Identity, v.AgentID)+": "+cmp.Or(v.Activity,
					v.Status)) // a message has room for several
			}
		}
	}
	return clipChars(strings.Join(said, "; "), 3*progressWords)
}

// waitTurnShown is one turn in agent_wait's result.
type waitTurnShown struct {
	TurnID     string `json:"turn_id"`
	TurnStatus string `json:"turn_status" doc:"completed, failed or interrupted; queued or running while it has no result"`
	turnShown
	*reviewShown
	Source   string      `json:"source,omitempty" doc:"Who wanted the turn, unless a client did"`
	Seq      int64       `json:"seq,omitempty"`
	Activity string      `json:"activity,omitempty"`
	Bytes    int         `json:"content_bytes,omitempty" doc:"Of the whole answer, where content is only its head: agent_wait with turn_id brings all of it"`
	Error    *errorShown `json:"error,omitempty" doc:"Set on an error that is no turn's result"`
}

func shownWaitTurn(n *names, k *keptTurn) waitTurnShown {
	t := waitTurnShown{TurnID: k.TurnID, TurnStatus: k.Status, Seq: k.Seq}
	if k.Source != sourceClient {
		t.Source = k.Source.String()
	}
	switch r := k.Result; {
	case r == nil:
		t.Activity = k.Activity
	case r.err != nil:
		t.Error = shownError(n.error(r.err))
		partial := stringField(r.err.Data, "partial") // an answer begun is no detail
		delete(t.Error.details, "partial")
		t.Content = &partial
	default:
		t.turnShown, t.reviewShown = shownTurn(r), r.Review
		content := contentOrWhy(r)
		t.Content = &content
	}
	return t
}

// waitShown is the result of agent_wait.
type waitShown struct {
	Seq      int64        `json:"seq" doc:"For since of the next agent_wait"`
	TimedOut bool         `json:"timed_out,omitempty" doc:"The time was over before what was waited for"`
	Next     string       `json:"next,omitempty" doc:"What to do now"`
	Unread   *int         `json:"unread,omitempty" doc:"Unread messages of the identity that was waited for"`
	Agents   []agentShown `json:"agents"`
}

// agentShown is one agent in agent_wait's result.
type agentShown struct {
	AgentID   string          `json:"agent_id"`
	ThreadID  string          `json:"threadId,omitempty"`
	Identity  string          `json:"identity,omitempty"`
	Status    string          `json:"status"`
	Activity  string          `json:"activity,omitempty" doc:"What it is doing"`
	Source    string          `json:"turn_source,omitempty" doc:"Who wanted the running turn"`
	Queued    int             `json:"queued" doc:"Turns that wait behind the running one"`
	LastError string          `json:"last_error,omitempty"`
	Mail      *int            `json:"pending_mail,omitempty" doc:"Unread messages"`
	AutoMail  string          `json:"auto_mail,omitempty" doc:"Whether mail starts turns: on, off, or paused and why"`
	Turns     []waitTurnShown `json:"turns" doc:"Oldest first"`
	Pending   []askShown      `json:"pending_approvals" doc:"What waits for a decision: agent_approve with agent_id, approval_id and the same action"`
}

// waitAnswer is agent_wait's result; turn is the turn_id that was asked for, "" for any. Answers that are more than
// budget together are cut, the longest first; budget 0 cuts none.
func waitAnswer(c *mcpCall, r *waitResult, turn string, budget int) json.RawMessage {
	agents := make([]agentShown, 0, len(r.Agents))
	var sizes []int
	for i := range r.Agents {
		v := &r.Agents[i].View
		a := agentShown{AgentID: v.AgentID, ThreadID: v.BackendID, Identity: v.Identity, Status: v.Status,
			Activity: v.Activity, Source: v.Source,
			Queued: v.Queued, LastError: v.LastError, Mail: v.PendingMail, AutoMail: v.AutoMail,
			Turns: []waitTurnShown{}, Pending: askShapes(v)}
		for j := range r.Agents[i].Turns {
			t := shownWaitTurn(c.f.Names, &r.Agents[i].Turns[j])
			sizes = append(sizes, len(deref(t.Content)))
			a.Turns = append(a.Turns, t)
		}
		agents = append(agents, a)
	}
	var texts []string
	whole := wholeUpTo(sizes, budget)
	for i := range agents {
		for j := range agents[i].Turns {
			if t := &agents[i].Turns[j]; budget > 0 {
				t.cut(c.f.Names, agents[i].AgentID, whole)
				t.Changes = t.Changes.short(waitFiles)
			}
		}
		texts = append(texts, agents[i].text(c.f.Names))
	}
	var unread *int
	if r.Inbox.Name != "" {
		unread = &r.Inbox.Unread
		texts = append(texts, fmt.Sprintf("Unread messages of %s: %d.", r.Inbox.Name, r.Inbox.Unread))
	}
	next := nextStep(c.f.Names, r, turn)
	if next != "" {
		texts = append(texts, next)
	}
	return c.toolAnswer(false, waitShown{r.Seq, r.TimedOut, next, unread, agents}, strings.Join(texts, "\n\n"))
}

// wholeUpTo is the size up to which texts stay whole if all of them together
// may have budget bytes: the short ones are not cut for the long ones' sake.
func wholeUpTo(sizes []int, budget int) int {
	sizes = slices.Sorted(slices.Values(sizes))
	left := budget
	for i, size := range sizes {
		share := left / (len(sizes) - i)
		if size > share {
			return share
		}
		left -= size
	}
	return budget
}

// cut keeps the head of an answer over most bytes and says how to get the rest.
func (t *waitTurnShown) cut(n *names, agentID string, most int) {
	whole := deref(t.Content)
	if len(whole) <= most {
		return
	}
	head := clipUTF8(whole, most)
	t.Bytes = len(whole)
	said := fmt.Sprintf("%s\n\n[answer cut: %d of %d bytes shown; agent_wait with %s %s and turn_id %s brings all "+
		"of it]", head, len(head), t.Bytes, n.word("agent_id"), agentID, t.TurnID)
	t.Content = &said
	if t.Output != nil {
		t.Output, t.OutputError = nil, "left out here, as the answer is cut; agent_wait with turn_id brings it"
	}
}

// nextStep is one hint for a model that sees nothing but the structure. It never says to wait for what has been told
// already, or for nothing. A call that named a turn is told of that turn, since turn_id doesn't go with since.
func nextStep(n *names, r *waitResult, turn string) string {
	asked, working, told, mailed := false, false, false, ""
	var goOn, reopen, away []string
	for i := range r.Agents {
		v := &r.Agents[i].View
		asked = asked || len(v.Pending) > 0
		told = told || len(r.Agents[i].Turns) > 0
		working = working || v.Status == statusBusy || v.Queued > 0
		if mailed == "" && v.mailWaits() {
			mailed = v.Identity
		}
		switch {
		case elsewhere(v) != nil:
			away = append(away, v.AgentID)
		case v.Status == statusClosed, v.Status == statusBroken:
			reopen = append(reopen, v.AgentID)
		default:
			goOn = append(goOn, v.AgentID)
		}
	}
	again, running := fmt.Sprintf("call agent_wait again with since %d", r.Seq), "Turns are still running"
	if turn != "" {
		if working = !told || !r.Agents[0].Turns[0].finished(); working {
			again, running = "call agent_wait again with turn_id "+turn, "The turn has not ended"
		}
	}
	switch {
	case asked:
		return "Decide each of pending_approvals with agent_approve {" + n.word("agent_id") +
			", approval_id, action, decision}, action repeated word for word; then " + again + "."
	case r.Own.Unread > 0:
		return goOnWaiting("Read your mail with atm_read {}", again, working || r.Inbox.Name != "")
	case r.Inbox.Unread > 0 && r.Inbox.Ours:
		return goOnWaiting(fmt.Sprintf("Read the mail of %s with atm_read {\"inbox\": %q}", r.Inbox.Name, r.Inbox.Name),
			again, true)
	case r.Inbox.Unread > 0:
		return fmt.Sprintf("atm_read {\"inbox\": %q} shows the mail of %s, which stays unread until its owner reads "+
			"it; to hear of newer mail %s.", r.Inbox.Name, r.Inbox.Name, again)
	case mailed != "":
		return goOnWaiting(fmt.Sprintf("Read the mail of %s with atm_read {\"identity\": %q}", mailed, mailed), again,
			working)
	case working:
		return running + ": " + again + ", or do other work first."
	case r.Inbox.Name != "":
		return fmt.Sprintf("No mail for %s yet: to wait on, %s.", r.Inbox.Name, again)
	}
	if told { // the answers say what there is
		return ""
	}
	said := "No turn runs or waits, so there is nothing to wait for"
	if len(goOn) > 0 {
		said += "; codex-reply continues " + strings.Join(goOn, ", ")
	}
	if len(reopen) > 0 {
		said += "; codex {" + n.word("agent_id") + ", prompt} reopens " + strings.Join(reopen, ", ")
	}
	if len(away) > 0 {
		said += "; open in another process, which alone can continue it: " + strings.Join(away, ", ")
	}
	return said + "."
}

// goOnWaiting is a step after which there is more to wait for, or not.
func goOnWaiting(step, again string, more bool) string {
	if more {
		return step + "; then " + again + "."
	}
	return step + "."
}

// mailWaits reports mail that is not delivered by itself.
func (a *agentShown) mailWaits() bool { return deref(a.Mail) > 0 && a.AutoMail != "on" }

// text tells the same in words.
func (a *agentShown) text(n *names) string {
	var s prose
	s.add(true, "Agent %s, identity %s, is %s", a.AgentID, a.Identity, a.Status)
	s.add(a.Activity != "", ": %s", a.Activity)
	s.add(a.Queued > 0, " (turns waiting behind it: %d)", a.Queued)
	s.add(true, ".")
	s.add(a.mailWaits(), " Unread messages: %d.", deref(a.Mail))
	for i := range a.Turns {
		t := &a.Turns[i]
		took := time.Duration(deref(t.DurationMS)) * time.Millisecond
		s.add(true, "\n\nTurn %s, %s", t.TurnID, t.TurnStatus)
		s.add(t.Source != "", " (%s)", t.Source)
		s.add(took > 0, " after %s", took.Round(100*time.Millisecond))
		s.add(t.Activity != "", ": %s", t.Activity)
		if t.Error != nil {
			s.add(true, ": %s", t.Error.Message)
		} else {
			s.add(deref(t.Content) != "", ":\n%s", deref(t.Content))
		}
		for _, d := range t.Declined {
			s.add(true, "\n(Declined (%s): %s)", d.Reason, clipChars(d.Action, 200))
		}
		for _, n := range t.Notes {
			s.add(true, "\n(%s)", n)
		}
	}
	for i := range a.Pending {
		s.add(true, "\n\n%s", aboutAsk(n, a.AgentID, &a.Pending[i]))
	}
	return s.String()
}
