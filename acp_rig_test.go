package main

// acp_rig_test.go is what the tests of the ACP encoder share: a session whose
// events are made as the driver makes them, from Codex's own JSON, and whose
// updates are held to the schema and to the rules that no schema can say.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

const acpThread = "01a1fd62-52dc-7b81-9559-911d778571f0"

// acpRig is an encoder and what it sent.
type acpRig struct {
	t      testing.TB
	x      *acpEncoder
	ids    appIDs
	schema *jsonSchema

	mu      sync.Mutex // guards the fields below
	got     []string
	taken   int // of got
	crowded bool
	calls   map[string]string // tool call id → status
	called  []string
}

func newACPRig(t testing.TB, o acpEncoding) *acpRig {
	r := &acpRig{t: t, schema: acpSchema(t), calls: map[string]string{}}
	if o.Cwd == "" {
		o.Cwd = "/w"
	}
	o.Send = r.take
	o.Crowded = func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.crowded }
	r.x = newACPEncoder(o)
	t.Cleanup(func() { r.x.endTurn("") }) // its timers
	return r
}

// all are the updates so far.
func (r *acpRig) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// states are the statuses of calls.
func (r *acpRig) states(ids ...string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, id := range ids {
		out = append(out, r.calls[strings.Replace(id, ":T:", ":"+acpThread+":", 1)])
	}
	return strings.Join(out, " ")
}

// crowd says whether output waits.
func (r *acpRig) crowd(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crowded = is
}

// take is the client: it checks every update.
func (r *acpRig) take(update []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := string(update)
	r.got = append(r.got, u)
	if why := schemaSays(r.schema, "SessionUpdate", update); why != "" {
		r.t.Errorf("%s\nis not valid: %s", clip(u, 500), why)
	}
	id, status := stringField(update, "toolCallId"), stringField(update, "status")
	was, known := r.calls[id]
	switch stringField(update, "sessionUpdate") {
	case "tool_call":
		if known {
			r.t.Errorf("tool call %s is announced twice", id)
		}
		if title := stringField(update, "title"); title == "" {
			r.t.Errorf("tool call %s has no title", id)
		}
		r.calls[id] = status
		r.called = append(r.called, id)
	case "tool_call_update":
		rank := map[string]int{callPending: 1, callRunning: 2, callDone: 3, callFailed: 3}
		switch {
		case !known:
			r.t.Errorf("tool call %s is updated before it is announced", id)
		case rank[was] == 3:
			r.t.Errorf("tool call %s is updated after it was %s: %s", id, was, clip(u, 300))
		case status != "" && rank[status] <= rank[was]:
			r.t.Errorf("tool call %s goes from %s to %s", id, was, status)
		}
		if status != "" {
			r.calls[id] = status
		}
	}
	eachElement(rawField(update, "locations"), func(l json.RawMessage) {
		if p := stringField(l, "path"); !strings.HasPrefix(p, "/") {
			r.t.Errorf("location %q is not absolute", p)
		}
	})
	return true
}

// open are the ids of tool calls that have no end.
func (r *acpRig) open() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.called {
		if s := r.calls[id]; s != callDone && s != callFailed {
			ids = append(ids, id)
		}
	}
	return ids
}

// news are the updates since the last time, one a line, our own ids as OWN.
func (r *acpRig) news() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := strings.Join(r.got[r.taken:], "\n")
	r.taken = len(r.got)
	out = strings.ReplaceAll(out, r.x.own, "OWN")
	return strings.ReplaceAll(out, acpThread, "T")
}

// texts joins what one kind of chunk said.
func (r *acpRig) texts(kind string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, u := range r.got {
		if stringField([]byte(u), "sessionUpdate") == kind {
			b.WriteString(stringField([]byte(u), "content", "text"))
		}
	}
	return b.String()
}

func (r *acpRig) ref() agentRef { return agentRef{AgentID: "codex:a", Thread: acpThread} }

// note is a notification of Codex's. params without thread are the session's.
func (r *acpRig) note(method, p string) {
	if !strings.Contains(p, `"threadId"`) && method != "thread/started" {
		p = `{"threadId":"` + acpThread + `",` + p[1:]
	}
	e := r.ids.event(method, json.RawMessage(p))
	r.x.event(r.ref(), &e)
}

// item is an item of turn t1 as it starts or is completed.
func (r *acpRig) item(phase, item string) {
	r.note("item/"+phase, `{"turnId":"t1","item":`+item+`}`)
}

func (r *acpRig) delta(item, text string) {
	r.note("item/agentMessage/delta", fmt.Sprintf(`{"turnId":"t1","itemId":"%s","delta":%s}`, item, toJSON(text)))
}

func (r *acpRig) begin() { r.note("turn/started", `{"turn":{"id":"t1"}}`) }

// ends ends turn t1; all of its calls must be closed then.
func (r *acpRig) ends(status string) {
	r.t.Helper()
	r.note("turn/completed", fmt.Sprintf(`{"turn":{"id":"t1","status":"%s","items":[]}}`, status))
	if open := r.open(); len(open) > 0 {
		r.t.Errorf("open after the turn's end: %s", open)
	}
}

func (r *acpRig) want(lines ...string) {
	r.t.Helper()
	if got, want := r.news(), strings.Join(lines, "\n"); got != want {
		r.t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// replayACP plays a recording of a real app-server to the rig, deciding what it
// asks as the recorded client did.
func (r *acpRig) replayACP(lines []recorded) {
	thread, asked := "", map[string]*approval{}
	files := map[string][]fileChange{}
	starts := map[string]bool{}
	ref := func() agentRef { return agentRef{AgentID: "codex:a", Thread: thread} }
	for _, l := range lines {
		m, err := parseMessage(l.Msg)
		if err != nil {
			r.t.Fatal(err)
		}
		switch {
		case l.Dir == ">" && m.method == "turn/start":
			starts[string(m.id)] = true
		case l.Dir == ">" && m.method == "":
			if q := asked[string(m.id)]; q != nil {
				d := map[string]decision{"accept": approve, "acceptForSession": approveForSession}[stringField(m.result, "decision")]
				r.x.decide(q, d, "")
			}
		case l.Dir == "<" && m.isResponse():
			if id := stringField(m.result, "thread", "id"); id != "" {
				thread = id
			}
			if starts[string(m.id)] {
				r.x.event(ref(), &event{kind: evStarted, op: 1, thread: thread, turn: stringField(m.result, "turn", "id")})
			}
		case l.Dir == "<" && m.id != nil && m.method == mToolCall:
			r.x.event(ref(), &event{kind: evTool, thread: thread, turn: stringField(m.params, "turnId"), item: stringField(m.params, "callId"),
				tool: &toolCall{id: "1", name: stringField(m.params, "tool"), args: rawField(m.params, "arguments")}})
		case l.Dir == "<" && m.id != nil:
			q := newAsk(&openAsk{id: "ask" + string(m.id), method: m.method, thread: stringField(m.params, "threadId"), turn: stringField(m.params, "turnId"), params: m.params}, files[stringField(m.params, "itemId")])
			if q == nil {
				r.t.Fatalf("%s is no approval", m.method)
				return
			}
			asked[string(m.id)] = q
			r.x.event(ref(), &event{kind: evAsk, thread: q.thread, turn: q.turn, item: q.item, ask: q})
			call := r.x.announce(ref(), q)
			if why := schemaSays(r.schema, "ToolCallUpdate", call); why != "" {
				r.t.Errorf("%s is not valid: %s", call, why)
			}
			r.mu.Lock()
			if !slices.Contains(r.called, stringField(call, "toolCallId")) {
				r.t.Errorf("permission for a call that wasn't announced: %s", call)
			}
			r.got = append(r.got, "? "+string(call))
			r.mu.Unlock()
		case l.Dir == "<":
			e := r.ids.event(m.method, m.params)
			if e.body != nil {
				files[e.item] = e.body.files
			}
			r.x.event(ref(), &e)
			if e.kind == evEnded {
				if open := r.open(); len(open) > 0 {
					r.t.Errorf("open after the turn's end: %s", open)
				}
			}
		}
	}
}
