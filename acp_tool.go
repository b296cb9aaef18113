package main

// acp_tool.go owns the tool calls that a client sees: each announced once under
// an id of its own, on its way from pending over in_progress to completed or
// failed, and closed before its turn's prompt is answered. acp_updates.go and,
// for approvals, acp_ask.go call it. It must never update a call that it hasn't
// announced or has closed, nor keep anything of a closed one but its id.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	// acpGrace is the longest that joined text waits.
	acpGrace = 20 * time.Millisecond
	// askGrace is how long a call stays pending for the approval that may come
	// with it: a millisecond later from Codex, later from a busy machine.
	askGrace = 50 * time.Millisecond
	// acpPace lies between two updates of what one call has printed so far:
	// each tells all of it.
	acpPace = 200 * time.Millisecond
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

// acpCallUpdate is a tool call or what changes of it; content and places
// replace what was there.
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
}

// acpKey names an item: its id is its turn's alone.
type acpKey struct{ thread, turn, item string }

// acpTool is a tool call that is open.
type acpTool struct {
	key    acpKey
	id     string
	face   acpFace
	status string
	body   string // the kind of its item, "" while none has been told

	asks    int    // approvals that are asked for it: it waits
	allowed bool   // one was given
	denied  string // what was said of one that wasn't
	told    bool   // that stands in its content

	server, tool string // of an MCP call: its approval doesn't name the item
	files        []fileChange
	loose        bool // Codex tells no end of it: it has ended when its turn goes on

	out     acpOutput
	dirty   bool // of out, something hasn't been told
	next    time.Time
	running time.Time // when it is called running unless somebody asks
}

// acpSeen are the keys of what was told and is closed, with how often.
type acpSeen struct {
	times map[acpKey]int
	order []acpKey
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

// turnEnds forgets what no late event can name: those of the session's own
// turns are known by their turn. A subagent goes on; its last ones are kept.
func (s *acpSeen) turnEnds(own string) {
	keep := slices.DeleteFunc(s.order, func(k acpKey) bool { return k.thread == own })
	keep = slices.Clone(keep[max(0, len(keep)-maxSubagents):])
	times := map[acpKey]int{}
	for _, k := range keep {
		times[k] = s.times[k]
	}
	s.times, s.order = times, keep
}

// callID is the id of what a key names, another one if it was closed already:
// a model's provider may give two calls of one turn the same.
func (x *acpEncoder) callID(k acpKey) string {
	id := "codex:" + k.thread + ":" + k.turn + ":" + k.item
	if n := x.closed.times[k]; n > 0 {
		id += fmt.Sprintf("#%d", n+1)
	}
	return id
}

// toolItem takes an item that is a tool call as it starts or ends.
func (x *acpEncoder) toolItem(k acpKey, e *event) {
	done := e.phase == "completed"
	raw := rawField(e.raw, "item")
	t := x.tools[k]
	if t == nil {
		if !x.open || x.closed.times[k] > 0 && done && !x.o.Replay {
			return // the end of what was closed before it, or of a turn that is over
		}
		f, ok := x.face(e.body, raw, done)
		if !ok {
			return
		}
		t = x.begin(k, x.owned(k, f), e.body.status == "declined")
		t.running = x.soon(askGrace)
	} else if t.body == "" || done && (e.body.kind != "fileChange" || !slices.Equal(t.files, e.body.files)) {
		if f, ok := x.face(e.body, raw, done); ok {
			x.renew(t, x.owned(k, f))
		}
	}
	t.body, t.files, t.server, t.tool = e.body.kind, e.body.files, e.body.server, e.body.tool
	t.loose = false
	if done {
		x.ended(t, e.body, raw)
	}
}

// owned puts a subagent's name before what it does.
func (x *acpEncoder) owned(k acpKey, f acpFace) acpFace {
	if k.thread != x.thread {
		f.title = x.subagent(k.thread) + ": " + f.title
	}
	return f
}

// begin announces a call.
func (x *acpEncoder) begin(k acpKey, f acpFace, waits bool) *acpTool {
	t := &acpTool{key: k, id: x.callID(k), face: f, status: callPending}
	if x.o.Replay && !waits {
		t.status = callRunning
	}
	x.tools[k] = t
	x.order = append(x.order, t)
	x.call(acpCallUpdate{Update: callNew, ID: t.id, Title: f.title, Name: f.name, Kind: f.kind, Status: t.status,
		Content: f.content, Places: f.places, RawInput: f.input})
	return t
}

// renew tells what is known better by now.
func (x *acpEncoder) renew(t *acpTool, f acpFace) {
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
	if !slices.EqualFunc(f.content, t.face.content, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		u.Content = f.content
	}
	t.face = f
	if u.Title != "" || u.Kind != "" || u.Places != nil || u.RawInput != nil || u.Content != nil {
		x.call(u)
	}
}

// runs says that a call is under way.
func (x *acpEncoder) runs(t *acpTool) {
	if t.status == callPending {
		t.status = callRunning
		x.call(acpCallUpdate{Update: callNews, ID: t.id, Status: callRunning})
	}
}

// prints takes what a call printed. The client gets it at acpPace.
func (x *acpEncoder) prints(t *acpTool, text string) {
	if text == "" {
		return
	}
	x.runs(t)
	t.out.add(text)
	if t.dirty {
		return
	}
	t.dirty = true
	now := time.Now()
	if t.next.Before(now.Add(acpGrace)) { // its first words come with what follows them at once
		t.next = now.Add(acpGrace)
	}
	x.wakeAt(t.next)
}

// printed tells what a call has printed so far.
func (x *acpEncoder) printed(t *acpTool, now time.Time) {
	t.dirty, t.next = false, now.Add(acpPace)
	content := append(slices.Clip(t.face.content), callText(fenced(t.out.text())))
	x.call(acpCallUpdate{Update: callNews, ID: t.id, Content: content})
}

// ended closes a call as its item says.
func (x *acpEncoder) ended(t *acpTool, b *itemBody, raw json.RawMessage) {
	content, output := x.result(t, b, raw)
	status := callDone
	switch b.status {
	case "failed", "declined":
		status = callFailed
	case "inProgress", "interrupted": // of a past turn that was cut; a subagent's
		status = callFailed
		content = append(content, callText("interrupted"))
	}
	if status == callFailed && (t.denied != "" && (len(content) > 0 || !t.told) || t.denied == "" && b.status == "declined") {
		content = append(content, callText(cappedText(declinedText(t.denied))))
	}
	if b.kind == "fileChange" && b.status == "failed" && len(content) == 0 {
		content = append(content, callText("The patch could not be applied."))
	}
	if status == callDone || t.denied == "" && b.status != "declined" {
		x.runs(t)
	}
	x.close(t, status, content, output)
}

func declinedText(said string) string {
	if said == "" {
		return "Declined."
	}
	return "Declined: " + said
}

// close ends a call. content stands behind what the call has from its
// beginning; none leaves what is shown.
func (x *acpEncoder) close(t *acpTool, status string, content []json.RawMessage, output json.RawMessage) {
	if len(content) > 0 {
		content = append(slices.Clip(t.face.content), content...)
	}
	x.call(acpCallUpdate{Update: callNews, ID: t.id, Status: status, Content: content, Output: output})
	x.forget(t)
}

func (x *acpEncoder) forget(t *acpTool) {
	delete(x.tools, t.key)
	x.order = slices.DeleteFunc(x.order, func(o *acpTool) bool { return o == t })
	for id, o := range x.asked {
		if o == t {
			delete(x.asked, id)
		}
	}
	x.closed.add(t.key)
}

// closeAll ends what a turn that ends leaves open, as an interrupted Codex does.
func (x *acpEncoder) closeAll(why string, completed bool) {
	for len(x.order) > 0 {
		t := x.order[0]
		var content []json.RawMessage
		if t.out.total > 0 {
			content = append(content, callText(fenced(t.out.text())))
		}
		switch {
		case completed && (t.loose || t.body == "" && t.allowed && t.asks == 0): // nobody tells the end of these
			x.runs(t)
			x.close(t, callDone, nil, nil)
			continue
		case completed && t.body == "commandExecution" && t.asks == 0 && t.denied == "":
			x.runs(t)
			x.close(t, callDone, append(content, callText("It was still running when the turn ended.")), nil)
			continue
		}
		reason := why
		if t.denied != "" {
			reason = declinedText(t.denied)
		}
		if reason != "" {
			content = append(content, callText(cappedText(reason)))
		}
		x.close(t, callFailed, content, nil)
	}
}

// asksFor finds the call that an approval is about.
func (x *acpEncoder) asksFor(k acpKey, q *approval) *acpTool {
	if t := x.asked[q.id]; t != nil {
		return t
	}
	if t := x.tools[k]; t != nil {
		return t
	}
	if q.kind != askMCPTool {
		return nil
	}
	var busy *acpTool
	for _, t := range x.order {
		if t.body == "mcpToolCall" && t.key.thread == k.thread && t.server == q.server && t.tool == q.tool {
			if t.asks == 0 && !t.allowed && t.denied == "" {
				return t
			}
			busy = t
		}
	}
	return busy
}

func (x *acpEncoder) askKey(a agentRef, q *approval) acpKey {
	k := acpKey{cmp.Or(q.thread, a.Thread), q.turn, q.item}
	if k.item == "" {
		k.item = "ask-" + q.id
	}
	return k
}

// waitsFor notes that a call waits for an approval.
func (x *acpEncoder) waitsFor(t *acpTool, q *approval) {
	if x.asked[q.id] == nil {
		x.asked[q.id] = t
		t.asks++
	}
}

// announce makes sure that the tool call of an approval is announced, and
// returns it for session/request_permission.
func (x *acpEncoder) announce(a agentRef, q *approval) json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.meet(a)
	if q.subagent != nil {
		x.knows(q.thread, q.subagent.name)
	}
	k := x.askKey(a, q)
	t := x.asksFor(k, q)
	if t == nil {
		t = x.begin(k, x.owned(k, x.askFace(q)), true)
		t.server, t.tool, t.files = q.server, q.tool, q.files
	}
	x.waitsFor(t, q)
	u := acpCallUpdate{ID: t.id, Title: t.face.title, Kind: t.face.kind, Places: t.face.places, RawInput: t.face.input,
		Content: append(slices.Clip(t.face.content), x.askContent(q)...)}
	if t.status == callPending { // Codex asks in the middle of a command too, and status never goes back
		u.Status = callPending
	}
	return toJSON(u)
}

// decided tells how an approval was decided. Where its item is known or comes
// with a yes, that says how the call ends.
func (x *acpEncoder) decided(q *approval, d decision, said string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.asked[q.id]
	if t == nil {
		return
	}
	delete(x.asked, q.id)
	t.asks--
	if d == deny {
		t.denied = cmp.Or(said, "by the user")
		content := []json.RawMessage{callText(cappedText(declinedText(t.denied)))}
		if t.body == "" {
			x.close(t, callFailed, content, nil)
			return
		}
		if t.told = t.out.total == 0; t.told {
			x.call(acpCallUpdate{Update: callNews, ID: t.id, Content: append(slices.Clip(t.face.content), content...)})
		}
		return
	}
	t.allowed = true
	if t.asks == 0 {
		x.runs(t)
	}
	if itemFollows := q.kind == askCommand && q.command != "" || q.kind == askFileChange; t.body == "" && !itemFollows {
		x.close(t, callDone, nil, nil)
	}
}

// extraCall tells of something of our own that has happened, as a tool call.
func (x *acpEncoder) extraCall(id, title, kind, status, text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := acpKey{thread: x.own, item: id}
	if n := x.closed.times[k]; n > 0 {
		id += fmt.Sprintf("#%d", n+1)
	}
	x.closed.add(k)
	x.call(acpCallUpdate{Update: callNew, ID: id, Title: cmp.Or(clipChars(visible(title), maxCallTitle), id), Kind: kind, Status: callPending})
	u := acpCallUpdate{Update: callNews, ID: id, Status: status}
	if text != "" {
		u.Content = []json.RawMessage{callText(cappedText(text))}
	}
	x.call(u)
}

// call sends a tool call or an update of one, behind the text before it.
func (x *acpEncoder) call(u acpCallUpdate) { x.put(toJSON(u)) }
