package main

// codex_app_events.go owns the translation of what codex app-server says into neutral events: notifications, items, MCP
// servers, errors, the outcome of a turn. It is pure, and called by the driver on the reading goroutine for every
// notification, so deltas cost one scan and no reflection; items of the past go the same way. It must never fail: what
// it doesn't know is evRaw, whatever its fields or words are.
// In a burst a delta is like the one before it, the same record but for its text and the time at its end, and comparing
// costs a fraction of parsing: with deltaRun an editor gets a burst at 0.64 of the child's own rate, without at 0.43.
// deltaRun must never make another event of a record than the parser does; a record that it isn't sure of is parsed.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// appIDs are what the last notification was about.
type appIDs struct{ thread, turn, item string }

// appParams are the fields of a notification that anything is made of.
type appParams struct {
	thread, turn, item                                   string
	delta, itemBody, turnBody, err, usage, plan, message json.RawMessage
	retry                                                bool
}

func readAppParams(p json.RawMessage, like appIDs) (a appParams) {
	for f := fieldsOf(p); f.next(); {
		switch val := json.RawMessage(f.val); string(f.key) {
		case "threadId", "conversationId": // the latter in what 0.104 kept from its first protocol
			a.thread, _ = rawStringLike(val, like.thread)
		case "turnId":
			a.turn, _ = rawStringLike(val, like.turn)
		case "itemId":
			a.item, _ = rawStringLike(val, like.item)
		case "delta":
			a.delta = val
		case "item":
			a.itemBody = val
		case "turn":
			a.turnBody = val
		case "thread":
			if a.thread == "" {
				a.thread = stringField(val, "id")
			}
		case "error":
			a.err = val
		case "willRetry":
			a.retry = string(val) == "true"
		case "tokenUsage":
			a.usage = val
		case "plan":
			a.plan = val
		case "message", "diff", "summary":
			a.message = val
		}
	}
	return a
}

// event translates one notification; like is what the last was about: those of one item share the strings that name it.
// An event without thread is the child's own and nobody's in particular.
func (like *appIDs) event(method string, params json.RawMessage) event {
	a := readAppParams(params, *like)
	*like = appIDs{a.thread, a.turn, a.item}
	e := event{kind: evRaw, thread: a.thread, turn: a.turn, item: a.item, method: method, raw: params, delta: a.delta}
	switch method {
	case "item/agentMessage/delta", "item/plan/delta": // the plan of plan mode is written as a message is
		e.kind, e.phase = evDelta, "answer"
		e.text, _ = rawString(a.delta)
	case "item/reasoning/summaryTextDelta", "item/reasoning/textDelta":
		e.kind, e.phase = evDelta, "reasoning"
		e.text, _ = rawString(a.delta)
	case "item/commandExecution/outputDelta", "item/fileChange/outputDelta":
		e.kind, e.phase = evDelta, "output"
		e.text, _ = rawString(a.delta)
	case "item/started", "item/completed":
		if rawKind(a.itemBody) != '{' {
			return e
		}
		e.kind, e.phase = evItem, strings.TrimPrefix(method, "item/")
		e.item = stringField(a.itemBody, "id")
		e.body = appItem(a.itemBody)
		e.must = e.phase == "completed"
	case "turn/plan/updated":
		e.kind, e.text = evPlan, planText(a.plan)
	case "turn/diff/updated":
		e.kind = evDiff
		e.text, _ = rawString(a.message)
	case "thread/tokenUsage/updated":
		if u := readUsage(a.usage); u != nil {
			e.kind, e.usage = evUsage, u
		}
	case "error":
		err := turnError(a.err)
		e.kind, e.text, e.retry = evNotice, err.Message, a.retry
	case "warning", "guardianWarning", "deprecationNotice", "configWarning":
		e.kind = evNotice
		e.text, _ = rawString(a.message)
	case "model/rerouted":
		e.kind = evNotice
		e.text = "Codex answers with model " + stringField(params, "toModel") +
			" instead of " + stringField(params, "fromModel")
	case mServerStatus:
		e.readServerStatus()
	case "turn/started":
		e.turn = stringField(a.turnBody, "id")
	case "turn/completed":
		e.kind, e.must = evEnded, true
		e.turn = stringField(a.turnBody, "id")
		e.status, e.err = turnOutcome(a.turnBody)
	}
	return e
}

// turnOutcome reads how a turn ended. A status word that doesn't exist yet is
// a failure if there is an error, and an end like any other if not.
func turnOutcome(turn json.RawMessage) (status string, err *backendError) {
	if raw := rawField(turn, "error"); !isNull(raw) {
		err = turnError(raw)
	}
	switch status = stringField(turn, "status"); status {
	case "completed", "interrupted", "failed":
	default:
		status = "completed"
		if err != nil {
			status = "failed"
		}
	}
	if status == "failed" && err == nil {
		err = &backendError{Message: "Codex says that the turn failed, and not why"}
	}
	return status, err
}

// finalText is the last answer in a finished turn's items: from 0.148 the summary view holds the answer, before the
// list is empty. It is read only where the message itself didn't come.
func finalText(items json.RawMessage) (text string) {
	eachElement(items, func(item json.RawMessage) {
		if stringField(item, "type") == "agentMessage" && stringField(item, "phase") != "commentary" {
			text = stringField(item, "text")
		}
	})
	return text
}

// appItem is the neutral part of a ThreadItem of any type. The fields of one type
// mean the same in others, or those don't have them.
func appItem(raw json.RawMessage) *itemBody {
	b := &itemBody{}
	var texts []string
	add := func(val json.RawMessage) {
		if s, _ := rawString(val); s != "" {
			texts = append(texts, s)
		}
	}
	words := map[string]*string{"type": &b.kind, "phase": &b.phase, "query": &b.query, "path": &b.path,
		"savedPath": &b.path, "command": &b.command, "cwd": &b.cwd, "status": &b.status,
		"aggregatedOutput": &b.output, "server": &b.server, "namespace": &b.server, "tool": &b.tool,
		"name": &b.tool} // path: of an image that was viewed; savedPath: generated; name: of a functionCallOutput
	for f := fieldsOf(raw); f.next(); {
		val := json.RawMessage(f.val)
		if isNull(val) {
			continue
		}
		if word := words[string(f.key)]; word != nil {
			*word, _ = rawString(val)
		}
		switch string(f.key) {
		case "text", "prompt", "review", "query", "path": // message and plan, collaboration call, review, search, image
			add(val)
		case "content", "summary": // user message: parts with text; reasoning: plain strings
			eachElement(val, func(part json.RawMessage) {
				if rawKind(part) == '"' {
					add(part)
				} else {
					add(rawField(part, "text"))
				}
			})
		case "exitCode":
			var n int
			if rawKind(val) == '0' && json.Unmarshal(val, &n) == nil {
				b.exitCode = &n
			}
		case "commandActions":
			eachElement(val, func(a json.RawMessage) {
				b.actions = append(b.actions, commandAction{stringField(a, "type"), stringField(a, "path"),
					stringField(a, "query"), stringField(a, "command")})
			})
		case "changes":
			b.files = fileChanges(val)
		case "arguments":
			b.arguments = val
		case "result", "contentItems", "output": // MCP call, dynamic tool, function call's output
			b.result = val
		case "agentsStates": // collaboration: how the agents are, by thread
			if string(val) != "{}" {
				b.result = val
			}
		case "error":
			b.failure = stringField(val, "message")
		case "failure": // of a generated image
			b.failure = stringField(val, "type")
		case "durationMs":
			var ms float64
			if rawKind(val) == '0' && json.Unmarshal(val, &ms) == nil {
				b.duration = int64(ms)
			}
		case "action": // of a web search: a page that was opened, or searched in, has no query but an address
			if url := stringField(val, "url"); url != "" && b.query == "" {
				b.query = url
				if pattern := stringField(val, "pattern"); pattern != "" {
					b.query = pattern + " in " + url
				}
			}
		}
	}
	switch b.kind {
	case "collabAgentToolCall":
		b.arguments = collabArguments(raw)
	case "imageGeneration": // its own status doesn't say
		if b.failure != "" {
			b.status = "failed"
		}
	}
	b.text = strings.Join(texts, "\n")
	return b
}

func fileChanges(changes json.RawMessage) []fileChange {
	var out []fileChange
	eachElement(changes, func(c json.RawMessage) {
		f := fileChange{path: stringField(c, "path"), diff: stringField(c, "diff")}
		if kind := rawField(c, "kind"); rawKind(kind) == '{' {
			f.kind, f.move = stringField(kind, "type"), stringField(kind, "move_path")
		} else {
			f.kind, _ = rawString(kind)
		}
		out = append(out, f)
	})
	return out
}

// subthreadsOf are the threads that an item says its thread has to do with.
func subthreadsOf(params json.RawMessage) []string {
	item := rawField(params, "item")
	ids := append(rawStrings(rawField(item, "receiverThreadIds")), stringField(item, "agentThreadId"))
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

// nicknameOf is what a thread/started calls a subagent: its thread's own fields
// from 0.148, else those of its source. 0.104 has neither.
func nicknameOf(params json.RawMessage) (name, role string) {
	thread := rawField(params, "thread")
	spawn := rawField(thread, "source", "subAgent", "thread_spawn")
	return cmp.Or(stringField(thread, "agentNickname"), stringField(spawn, "agent_nickname"),
			stringField(spawn, "agent_path")),
		cmp.Or(stringField(thread, "agentRole"), stringField(spawn, "agent_role"))
}

// parentOf is the parent that a thread/started names, "" where it names none or e
// is another event: parentThreadId from 0.148, in the thread's source before.
func parentOf(e event) string {
	if e.method != "thread/started" {
		return ""
	}
	thread := rawField(e.raw, "thread")
	return cmp.Or(stringField(thread, "parentThreadId"),
		stringField(thread, "source", "subAgent", "thread_spawn", "parent_thread_id"))
}

func planText(plan json.RawMessage) string {
	var lines []string
	eachElement(plan, func(step json.RawMessage) {
		mark := "[ ] "
		switch stringField(step, "status") {
		case "inProgress":
			mark = "[>] "
		case "completed":
			mark = "[x] "
		}
		lines = append(lines, mark+stringField(step, "step"))
	})
	return strings.Join(lines, "\n")
}

// readUsage reads what a thread has used, in the words of app-server and of mcp-server.
func readUsage(raw json.RawMessage) *tokenUsage {
	type counts struct {
		TotalTokens, InputTokens, CachedInputTokens, OutputTokens, ReasoningOutputTokens int64
	}
	var u struct {
		Total, TotalTokenUsage, Last, LastTokenUsage counts
		ModelContextWindow                           int64 // null is 0
	}
	if isNull(raw) || json.Unmarshal(plainKeys(raw), &u) != nil {
		return nil
	}
	total, last := cmp.Or(u.Total, u.TotalTokenUsage), cmp.Or(u.Last, u.LastTokenUsage)
	return &tokenUsage{Total: total.TotalTokens, Input: total.InputTokens, CachedInput: total.CachedInputTokens,
		Output: total.OutputTokens, Reasoning: total.ReasoningOutputTokens, Last: last.TotalTokens,
		ContextWindow: u.ModelContextWindow}
}

// turnError reads why a turn failed, in the words of app-server and of mcp-server. The error's info is a word, or an
// object whose one key is the word and may hold an HTTP status.
func turnError(raw json.RawMessage) *backendError {
	e := &backendError{Message: cmp.Or(stringField(raw, "message"), "Codex gave no reason"), Data: raw}
	if details := stringField(raw, "additionalDetails"); details != "" && !strings.Contains(e.Message, details) {
		e.Message += ": " + details
	}
	e.Message = plainMessage(e.Message)
	info := rawField(raw, "codexErrorInfo")
	if info == nil {
		info = rawField(raw, "codex_error_info")
	}
	e.Info, _ = rawString(info)
	_ = eachField(info, func(key string, val json.RawMessage) bool {
		e.Info = key
		if string(rawField(val, "httpStatusCode")) == "401" || string(rawField(val, "http_status_code")) == "401" {
			e.Info = infoNoLogin
		}
		return false
	})
	return withLogin(e)
}

// plainMessage puts a sentence in the place of what the model's API has answered, which Codex passes on as it came,
// with more around it or not: {"error": {"message": "…"}}, {"detail": "…"}.
func plainMessage(text string) string {
	from, to := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')+1
	if from < 0 || to <= from || !validJSON([]byte(text[from:to])) {
		return text
	}
	answer := json.RawMessage(text[from:to])
	said := cmp.Or(stringField(answer, "error", "message"), stringField(answer, "message"),
		stringField(answer, "detail"), stringField(answer, "error"))
	if said == "" {
		return text
	}
	return plainMessage(text[:from] + said + text[to:]) // one may stand in another
}

// withLogin recognizes a Codex that isn't logged in. Codex itself calls that "other" before 0.148 and
// httpConnectionFailed 401 since, in words like "unexpected status 401 Unauthorized: Missing bearer, url: …".
func withLogin(e *backendError) *backendError {
	low := strings.ToLower(e.Message)
	switch {
	case e.Info == infoNoLogin:
	case strings.Contains(low, "401 unauthorized"), strings.Contains(low, "authentication required"),
		strings.Contains(low, "codex login"), strings.Contains(low, "not logged in"):
		e.Info = infoNoLogin
	default:
		return e
	}
	if !strings.Contains(low, "codex login") {
		e.Message += " (Codex is not logged in, or its key was refused: run `codex login` in a terminal and try again)"
	}
	return e
}

// codeOverloaded is app-server's code, none of ours, for a call that it did not take since it had too much to do.
const codeOverloaded = -32001

// callError translates the answer to a call that failed. Its words are the
// same from 0.104 to 0.169, its code is -32600 for nearly everything.
func callError(err error) *backendError {
	if own, ok := err.(*backendError); ok {
		return own
	}
	re, ok := err.(*rpcError)
	if !ok {
		switch err {
		case errCallTimeout:
			return &backendError{Message: "Codex gave no answer in time", Timeout: true}
		case errNotSent:
			return &backendError{Message: "Codex was too busy to be asked in time", Busy: true}
		}
		return &backendError{Message: err.Error()}
	}
	e := &backendError{Code: re.Code, Message: plainMessage(re.Message), Data: toJSON(re),
		Busy: re.Code == codeOverloaded}
	for _, words := range []string{"no rollout found", "thread not found", "thread not loaded",
		"invalid thread id", "invalid session id"} {
		e.Missing = e.Missing || strings.Contains(re.Message, words)
	}
	_ = eachField(rawField(re.Data, "codexErrorInfo"), func(key string, _ json.RawMessage) bool {
		e.Info = key
		return false
	})
	e.Held = strings.Contains(re.Message, "already has an active writer")
	return withLogin(e)
}

const (
	mServerStatus = "mcpServer/startupStatus/updated"
	oldStatus     = "codex/event/mcp_startup_update"
	oldComplete   = "codex/event/mcp_startup_complete"
)

// readServerStatus makes an evServer of the notification.
func (e *event) readServerStatus() {
	e.kind, e.item, e.status = evServer, stringField(e.raw, "name"), stringField(e.raw, "status")
	e.text = stringField(e.raw, "error")
	if why := stringField(e.raw, "failureReason"); why != "" && e.status == "failed" { // reauthenticationRequired
		e.text = cmp.Or(e.text, "it failed") + " (" + why + ")"
	}
	e.must = e.status != "starting"
}

// oldServerEvents makes the same of what 0.104 says in its first protocol alone:
// the id of the event's turn is empty, and the state an object.
func oldServerEvents(m *message) (out []event) {
	msg := rawField(m.params, "msg")
	e := event{kind: evServer, thread: stringField(m.params, "conversationId"), method: m.method, raw: m.params}
	switch m.method {
	case oldStatus:
		status := rawField(msg, "status")
		e.item, e.status = stringField(msg, "server"), stringField(status, "state")
		e.text = stringField(status, "error")
		e.must = e.status != "starting"
		out = append(out, e)
	case oldComplete: // has those that are ready or failed a second time
		for _, server := range rawStrings(rawField(msg, "cancelled")) {
			out = append(out, event{kind: evServer, thread: e.thread, item: server, status: "cancelled", must: true})
		}
		e.kind = evRaw
		out = append(out, e)
	}
	return out
}

// collabArguments: a collaboration call has no arguments of its own but fields.
func collabArguments(item json.RawMessage) json.RawMessage {
	out := []byte{'{'}
	for f := fieldsOf(item); f.next(); {
		switch string(f.key) {
		case "prompt", "receiverThreadIds", "model", "reasoningEffort":
			if val := string(f.val); val == "null" || val == `""` || val == "[]" {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(appendJSONString(out, string(f.key)), ':'), f.val...)
		}
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}

// maxDeltaRecord is how many bytes a record may have that the next ones are compared with.
const maxDeltaRecord = 64 << 10

// deltaRun knows the last delta that was parsed.
type deltaRun struct {
	rec  []byte // the record that same has just refused, for learn
	like event  // what was made of the last delta, without its text; its kind is evDelta once there is one
	head []byte // that delta's record up to the quote before its text
	tail []byte // the record from the quote behind the text, up to a number at its end
	num  int    // digits of that number (emittedAtMs of 0.169), 0: there is none
	at   int    // where the record's params begin
	back int    // how many bytes follow the params
}

// same makes the event of a record that is like the last. false: it isn't.
func (d *deltaRun) same(rec []byte) (e event, ok bool) {
	d.rec = nil
	if len(rec) > maxDeltaRecord { // nor is it kept until the next one comes
		return e, false
	}
	end := len(rec) - d.num - min(d.num, 1) // a brace follows the number
	from, to := len(d.head), end-len(d.tail)
	if d.like.kind != evDelta || to < from || !bytes.Equal(rec[:from], d.head) ||
		!bytes.Equal(rec[to:end], d.tail) || !isTime(rec[end:], d.num) {
		d.rec = rec
		return e, false
	}
	if stop, whole := scanString(rec, from-1); !whole || stop != to+1 || !utf8.Valid(rec[from:to]) {
		d.rec = rec
		return e, false
	}
	e = d.like
	e.raw, e.delta = rec[d.at:len(rec)-d.back:len(rec)-d.back], rec[from-1:to+1:to+1]
	e.text, _ = rawString(e.delta)
	return e, true
}

// isTime reports a number of n digits and the brace behind it, or with n 0 nothing.
func isTime(b []byte, n int) bool {
	if n == 0 {
		return len(b) == 0
	}
	for _, c := range b[:n] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return b[0] != '0' && b[n] == '}'
}

// learn takes the event that was made of the record that same refused.
func (d *deltaRun) learn(e *event) {
	rec := d.rec
	if rec == nil || e.kind != evDelta || rawKind(e.delta) != '"' || !utf8.Valid(rec) {
		return
	}
	paramsAt, paramsEnd := fieldAt(rec, "params")
	from, to := fieldAt(rec[paramsAt:paramsEnd], "delta")
	from, to = paramsAt+from+1, paramsAt+to-1 // within the quotes
	if from > to || string(rec[paramsAt:paramsEnd]) != string(e.raw) {
		return
	}
	tail, num := rec[to:], 0
	if n := len(tail) - 1; tail[n] == '}' && paramsEnd < len(rec)-1 { // a number inside of params is no time
		for num < n && tail[n-1-num] >= '0' && tail[n-1-num] <= '9' {
			num++
		}
		if num > 0 && tail[n-1-num] == ':' {
			tail = tail[:n-num]
		} else {
			num = 0
		}
	}
	d.like, d.num, d.at, d.back = *e, num, paramsAt, len(rec)-paramsEnd
	d.like.text, d.like.raw, d.like.delta = "", nil, nil
	d.head, d.tail = append(d.head[:0], rec[:from]...), append(d.tail[:0], tail...)
}

// fieldAt is where an object's field has its value: of two of a name the last,
// as everywhere. Without one it is an empty place.
func fieldAt(obj []byte, key string) (from, to int) {
	for f := fieldsOf(obj); f.next(); {
		if string(f.key) == key {
			from, to = f.at, f.at+len(f.val)
		}
	}
	return from, to
}
