package main

// acp_tool.go owns the tool calls that a client sees: each announced once under an id of its own, on its way from
// pending over in_progress to completed or failed, and closed before its turn's prompt is answered. acp_updates.go and,
// for approvals, acp_ask.go call it. It must never update a call that it hasn't announced or has closed, nor keep
// anything of a closed one but its id.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	// askGrace is how long a call stays pending for the approval that may come
	// with it: a millisecond later from Codex, later from a busy machine.
	askGrace = 50 * time.Millisecond
	// maxCallIDs of closed calls are known: more have no turn.
	maxCallIDs = 4096
)

const (
	callPending = "pending"
	callRunning = "in_progress"
	callDone    = "completed"
	callFailed  = "failed"
	callNew     = "tool_call"
	callNews    = "tool_call_update"
)

// acpCallUpdate is a tool call or what changes of it; content and places replace what was there.
type acpCallUpdate struct {
	Update   string            `json:"sessionUpdate,omitempty"`
	ID       string            `json:"toolCallId"`
	Title    string            `json:"title,omitempty"`
	Name     string            `json:"name,omitempty"`
	Kind     string            `json:"kind,omitempty"`
	Status   string            `json:"status,omitempty"`
	Content  []json.RawMessage `json:"content,omitempty"`
	Places   []acpLocation     `json:"locations,omitempty"`
	RawInput json.RawMessage   `json:"rawInput,omitempty"`
	Output   json.RawMessage   `json:"rawOutput,omitempty"`
	Meta     map[string]any    `json:"_meta,omitempty"` // of its terminal
}

// acpKey names an item: its id is its turn's alone.
type acpKey struct{ thread, turn, item string }

// acpSeen are the keys of what was told and is closed, with how often.
type acpSeen struct {
	times map[acpKey]int
	order []acpKey
}

// id is what a client knows an item by, another id if one was closed under it:
// a model's provider may give two calls of one turn the same.
func (s *acpSeen) id(k acpKey) string {
	return "codex:" + k.thread + ":" + k.turn + ":" + k.item + s.number(k)
}

// number tells things under one key apart, from the second on.
func (s *acpSeen) number(k acpKey) string {
	if n := s.times[k]; n > 0 {
		return fmt.Sprintf("#%d", n+1)
	}
	return ""
}

func (s *acpSeen) add(k acpKey) {
	if s.times == nil {
		s.times = map[acpKey]int{}
	}
	if s.times[k] == 0 {
		if len(s.order) == maxCallIDs {
			delete(s.times, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, k)
	}
	s.times[k]++
}

// forgetTurns forgets what no late event can name: those of the session's own
// turns are known by their turn. A subagent goes on; its last ones are kept.
func (s *acpSeen) forgetTurns(own string) {
	keep := slices.DeleteFunc(s.order, func(k acpKey) bool { return k.thread == own })
	keep = slices.Clone(keep[max(0, len(keep)-maxSubagents):])
	times := map[acpKey]int{}
	for _, k := range keep {
		times[k] = s.times[k]
	}
	s.times, s.order = times, keep
}

// acpOrigin is what a tool call is known by. A later one says more than those before it.
type acpOrigin int

const (
	// fromAsk is an approval. The item of the call comes with a yes, if it has one.
	fromAsk acpOrigin = iota
	// fromCall is a call of a session's own tool. 0.104 tells no end of such a
	// call, so that it has ended when its turn goes on.
	fromCall
	// fromItem is the item of the call, which tells how the call ends.
	fromItem
)

// acpTool is a tool call that is open.
type acpTool struct {
	key    acpKey
	id     string // as the client knows the call
	origin acpOrigin
	item   *itemBody // as Codex told the item last; fromAsk: what the approval says of it; fromCall: nil
	face   acpFace   // as the client was told it
	status string    // callPending or callRunning
	runsAt time.Time // when a pending call is told as running unless an approval waits; zero: not by time

	waiting []string // ids of the approvals that wait for their decision: so does the call
	allowed bool     // an approval was given
	denied  string   // why an approval was not given, "" where none was denied
	shown   bool     // denied stands in the content that the client has

	streamed acpOutput    // the output so far
	printed  acpGrowing   // the same as text, empty where the call is a terminal
	terminal *acpTerminal // of a command that the client has a terminal for, else nil
}

// content is what the call shows: its face, its terminal if it is one, and more.
func (t *acpTool) content(more ...json.RawMessage) []json.RawMessage {
	all := slices.Clip(t.face.content)
	if t.terminal != nil {
		all = append(all, toJSON(map[string]string{"type": "terminal", "terminalId": t.id}))
	}
	return append(all, more...)
}

// kind is the row of the kind of the call's item, an empty one where there is no item yet.
func (t *acpTool) kind() acpItemKind {
	if t.origin != fromItem {
		return acpItemKind{}
	}
	return itemKind(t.item.kind)
}

// acpCalls are the tool calls of one encoder, whose lock guards them.
type acpCalls struct {
	*acpStream
	seen   *acpSeen
	names  *acpNames
	replay bool // the past is told: nobody is asked any more
	// terminal is the key under which the client takes the output of terminals, "" for a client without them
	terminal string

	open []*acpTool // in the order in which they were announced
}

// find is the open call of an item, nil for none.
func (c *acpCalls) find(k acpKey) *acpTool {
	for _, t := range c.open {
		if t.key == k {
			return t
		}
	}
	return nil
}

// item takes an item that is a tool call as it starts or ends. A new call may be announced only while a turn runs.
func (c *acpCalls) item(k acpKey, e *event, turnRuns bool) {
	i := acpItem{itemBody: e.body, thread: k.thread, raw: rawField(e.raw, "item"), done: e.phase == "completed",
		past: c.replay}
	t, kind := c.find(k), itemKind(i.kind)
	if t == nil {
		if !turnRuns || c.seen.times[k] > 0 && i.done && !c.replay {
			return // the end of what was closed before it, or of a turn that is over
		}
		f, ok := c.names.itemFace(&i)
		if !ok {
			return
		}
		t = c.announce(k, f, i.status == "declined")
		if !c.replay {
			t.runsAt = time.Now().Add(askGrace)
			c.alarm.wakeAt(t.runsAt)
		}
	} else if t.origin != fromItem || i.done && !(kind.byFiles && slices.Equal(t.item.files, i.files)) {
		if f, ok := c.names.itemFace(&i); ok {
			c.renew(t, f)
		}
	}
	t.origin, t.item = fromItem, i.itemBody
	if i.done {
		c.finish(t, &i, kind)
	}
}

// toolCall takes the agent's call of one of the session's tools. From 0.148 on the
// call is an item too; of 0.104's calls only this is known.
func (c *acpCalls) toolCall(k acpKey, call *toolCall) {
	if c.find(k) != nil || c.seen.times[k] > 0 {
		return
	}
	body := &itemBody{kind: "dynamicToolCall", tool: call.name, arguments: call.args}
	f, _ := c.names.itemFace(&acpItem{itemBody: body, thread: k.thread})
	t := c.announce(k, f, false)
	t.origin = fromCall
	c.run(t)
}

// closeEarlier closes the calls that tell no end of themselves: a turn that goes
// on with another item has the answers to them.
func (c *acpCalls) closeEarlier(k acpKey) {
	for _, t := range slices.Clone(c.open) {
		if t.origin == fromCall && t.key.thread == k.thread && t.key.item != k.item {
			c.close(t, callDone, nil, nil)
		}
	}
}

// announce tells of a new call. waits: the call is not told as running by itself.
func (c *acpCalls) announce(k acpKey, f acpFace, waits bool) *acpTool {
	t := &acpTool{key: k, id: c.seen.id(k), face: f, status: callPending}
	if c.replay && !waits {
		t.status = callRunning
	}
	u := acpCallUpdate{Update: callNew, ID: t.id, Title: f.title, Name: f.name, Kind: f.kind, Status: t.status,
		Places: f.places, RawInput: f.input}
	if c.terminal != "" && f.runsIn != "" {
		t.terminal = &acpTerminal{}
		u.Meta = map[string]any{"terminal_info": map[string]string{"terminal_id": t.id, "cwd": f.runsIn}}
	}
	u.Content = t.content()
	c.open = append(c.open, t)
	c.update(u)
	return t
}

// renew tells what of a call is known better by now.
func (c *acpCalls) renew(t *acpTool, f acpFace) {
	u := acpCallUpdate{Update: callNews, ID: t.id}
	if f.title != t.face.title {
		u.Title = f.title
	}
	if f.kind != t.face.kind {
		u.Kind = f.kind
	}
	if !slices.Equal(f.places, t.face.places) {
		u.Places = f.places
	}
	if !bytes.Equal(f.input, t.face.input) {
		u.RawInput = f.input
	}
	same := slices.EqualFunc(f.content, t.face.content, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	if t.face = f; !same {
		u.Content = t.content()
	}
	if u.Title != "" || u.Kind != "" || u.Places != nil || u.RawInput != nil || u.Content != nil {
		c.update(u)
	}
}

// run tells that a call is under way.
func (c *acpCalls) run(t *acpTool) {
	if t.status == callPending {
		t.status = callRunning
		c.update(acpCallUpdate{Update: callNews, ID: t.id, Status: callRunning})
	}
}

// print takes what a call printed. The client gets it at acpPace.
func (c *acpCalls) print(t *acpTool, text string) {
	if text == "" {
		return
	}
	c.run(t)
	t.streamed.add(text)
	if t.terminal == nil {
		t.printed.add(text, &c.alarm)
		return
	}
	now := time.Now()
	if o := t.terminal; o.add(text, now, &c.alarm) && !c.crowded() {
		c.update(acpCallUpdate{Update: callNews, ID: t.id, Meta: c.data(t, o.take(now))})
	}
}

// tellPrinted tells what a call has printed, if it is time.
func (c *acpCalls) tellPrinted(t *acpTool, now time.Time) {
	u := acpCallUpdate{Update: callNews, ID: t.id}
	switch {
	case t.terminal != nil:
		if t.terminal.due(now, c.acpStream) {
			u.Meta = c.data(t, t.terminal.take(now))
			c.update(u)
		}
	case t.printed.tellable(now, c.acpStream):
		u.Content = t.content(callText(fenced(t.printed.text())))
		told := toJSON(u)
		t.printed.told(now, len(told))
		c.put(told)
	}
}

// data is what the client is told of a terminal's output.
func (c *acpCalls) data(t *acpTool, text string) map[string]any {
	if text == "" {
		return map[string]any{}
	}
	return map[string]any{c.terminal: map[string]string{"terminal_id": t.id, "data": text}}
}

// tellDue tells as running what nobody asked about, and output that has grown.
func (c *acpCalls) tellDue(now time.Time) {
	for _, t := range c.open {
		switch {
		case t.runsAt.IsZero():
		case t.runsAt.After(now):
			c.alarm.wakeAt(t.runsAt)
		default:
			if t.runsAt = (time.Time{}); len(t.waiting) == 0 && t.denied == "" {
				c.run(t)
			}
		}
		c.tellPrinted(t, now)
	}
}

// finish closes a call as its item says.
func (c *acpCalls) finish(t *acpTool, i *acpItem, kind acpItemKind) {
	var content []json.RawMessage
	var output json.RawMessage
	var words []string
	if kind.end != nil {
		if i.printed = plainOutput(i.output); t.streamed.total > len(i.output) {
			t.printed.acpPlain.add(t.streamed.end("", i.output, nil))
			i.printed = t.printed.text()
		}
		content, output = kind.end(c.names, i)
		if t.terminal != nil {
			if content = nil; deref(i.exitCode) < 0 {
				words = append(words, stoppedCommand)
			}
		}
	}
	status := callDone
	switch i.status {
	case "failed", "declined":
		if !noMatches(i) {
			status = callFailed
		}
	case "inProgress", "interrupted": // of a past turn that was cut; a subagent's
		status = callFailed
		words = append(words, "interrupted")
	}
	declined := t.denied != "" || i.status == "declined"
	if status == callFailed && (t.denied != "" && (len(content) > 0 || !t.shown) || t.denied == "" && declined) {
		words = append(words, declinedWords(t.denied))
	}
	if i.status == "failed" && len(content)+len(words) == 0 && kind.failed != "" {
		words = append(words, kind.failed)
	}
	if status == callDone || !declined {
		c.run(t)
	}
	c.close(t, status, content, output, words...)
}

// declinedWords say that a call was declined and, if it is known, why.
func declinedWords(why string) string {
	if why == "" {
		return "Declined."
	}
	return "Declined: " + why
}

// close ends a call. content stands behind what the call has from its beginning, and words of ours behind that; none of
// both leaves what is shown. All of a terminal stands in the terminal, and there the words do too.
func (c *acpCalls) close(t *acpTool, status string, content []json.RawMessage, output json.RawMessage,
	words ...string) {
	u := acpCallUpdate{Update: callNews, ID: t.id, Status: status, Output: output}
	if t.terminal != nil {
		u.Content, u.Meta = t.content(), c.terminalEnd(t, words)
	} else {
		for _, w := range words {
			content = addText(content, w)
		}
		if len(content) > 0 {
			u.Content = t.content(content...)
		}
	}
	c.update(u)
	c.open = slices.DeleteFunc(c.open, func(o *acpTool) bool { return o == t })
	c.seen.add(t.key)
}

// terminalEnd tells the end of a call's terminal. Its exit code is null where there is none, or the command was
// stopped, and so is the signal, which Codex doesn't tell.
func (c *acpCalls) terminalEnd(t *acpTool, words []string) map[string]any {
	exit, whole := map[string]any{"terminal_id": t.id, "exit_code": nil, "signal": nil}, ""
	if t.item != nil {
		if whole = t.item.output; c.replay {
			whole = cappedText(whole)
		}
		if code := t.item.exitCode; code != nil && *code >= 0 {
			exit["exit_code"] = *code
		}
	}
	end := c.data(t, t.streamed.end(t.terminal.rest.text(), whole, words))
	end["terminal_exit"] = exit
	return end
}

// closeAll ends what a turn leaves open, as an interrupted Codex does: as failed,
// for a reason where there is one. completed: the turn itself did not fail.
func (c *acpCalls) closeAll(why string, completed bool) {
	for len(c.open) > 0 {
		t, status, words := c.open[0], callFailed, why
		var content []json.RawMessage
		if t.terminal == nil && t.streamed.total > 0 {
			content = append(content, callText(fenced(t.printed.text())))
		}
		left, asked := t.kind().left, len(t.waiting) > 0
		switch {
		case completed && (t.origin == fromCall || t.origin == fromAsk && t.allowed && !asked):
			status, words, content = callDone, "", nil // nobody tells the end of these
		case completed && left != "" && !asked && t.denied == "":
			status, words = callDone, left
		case t.denied != "":
			words = declinedWords(t.denied)
		}
		if status == callDone {
			c.run(t)
		}
		c.close(t, status, content, nil, words)
	}
}

// waitsFor finds the call that waits for an approval, nil for none.
func (c *acpCalls) waitsFor(q *approval) *acpTool {
	for _, t := range c.open {
		if slices.Contains(t.waiting, q.id) {
			return t
		}
	}
	return nil
}

// askedAbout finds the call that an approval is about, nil for none. An approval of an MCP tool names server and tool,
// not the item: a call that nobody has asked about yet is the likelier one.
func (c *acpCalls) askedAbout(k acpKey, q *approval) *acpTool {
	t := c.waitsFor(q)
	if t == nil {
		t = c.find(k)
	}
	if t != nil || q.kind != askMCPTool {
		return t
	}
	for _, o := range c.open {
		if o.kind().askedByTool && o.key.thread == k.thread && o.item.server == q.server && o.item.tool == q.tool {
			if t = o; len(o.waiting) == 0 && !o.allowed && o.denied == "" {
				break
			}
		}
	}
	return t
}

// ask notes that a call waits for an approval.
func (c *acpCalls) ask(t *acpTool, q *approval) {
	if c.waitsFor(q) == nil {
		t.waiting = append(t.waiting, q.id)
	}
}

// withdraw notes that an approval waits no more, and returns the call that it was about, nil for none.
func (c *acpCalls) withdraw(q *approval) *acpTool {
	t := c.waitsFor(q)
	if t != nil {
		t.waiting = slices.DeleteFunc(t.waiting, func(id string) bool { return id == q.id })
	}
	return t
}

// announceAsk makes sure that the tool call of an approval is announced, and returns it for session/request_permission.
func (c *acpCalls) announceAsk(k acpKey, q *approval) json.RawMessage {
	t := c.askedAbout(k, q)
	if t == nil {
		t = c.announce(k, c.names.askFace(k.thread, q), true)
		t.item = &itemBody{server: q.server, tool: q.tool, files: q.files}
	}
	c.ask(t, q)
	u := acpCallUpdate{ID: t.id, Title: cmp.Or(t.face.command, t.face.title), Kind: t.face.kind, Places: t.face.places,
		RawInput: t.face.input, Content: append(slices.Clip(t.face.content), c.names.askContent(q)...)}
	if q.kind == askCommand && q.command != "" { // the exact line, with the shell around it
		u.RawInput = commandInput(q.command, q.cwd)
	}
	if len(u.Content) == 0 { // a client that shows a terminal shows nothing beside it, so there is one only then
		u.Content = t.content()
	}
	if t.status == callPending { // Codex asks in the middle of a command too, and status never goes back
		u.Status = callPending
	}
	return toJSON(u)
}

// decide tells how an approval was decided. Where its item is known or comes with a yes, that says how the call ends.
func (c *acpCalls) decide(q *approval, d decision, why string) {
	t := c.withdraw(q)
	switch {
	case t == nil:
	case d == deny:
		t.denied = cmp.Or(why, "by the user")
		if t.origin != fromItem {
			c.close(t, callFailed, nil, nil, declinedWords(t.denied))
		} else if t.shown = t.streamed.total == 0 && t.terminal == nil; t.shown {
			content := t.content(callText(cappedText(declinedWords(t.denied))))
			c.update(acpCallUpdate{Update: callNews, ID: t.id, Content: content})
		}
	default:
		t.allowed = true
		if t.terminal != nil {
			c.update(acpCallUpdate{Update: callNews, ID: t.id, Content: t.content()})
		}
		if len(t.waiting) == 0 {
			c.run(t)
		}
		itemFollows := q.kind == askCommand && q.command != "" || q.kind == askFileChange
		if t.origin != fromItem && !itemFollows {
			c.close(t, callDone, nil, nil)
		}
	}
}

// update sends a tool call or an update of one, behind the text before it.
func (c *acpCalls) update(u acpCallUpdate) { c.put(toJSON(u)) }
