package main

// acp_rig_test.go owns the two rigs of the ACP tests. acpFrontRig is a client with
// pipes on both sides of a front, and a hub made of functions whose turns the test
// plays: to prove that something was not sent, a test asks for what is refused at
// once and reads up to that. acpRig is an encoder whose events are made as the
// driver makes them, from Codex's own JSON. Both hold what comes to the schema;
// acpRig also to the rules that no schema can say.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// acpFrontRig is one client of one front.
type acpFrontRig struct {
	t   *testing.T
	f   *acpFront
	in  *io.PipeWriter
	out chan json.RawMessage // closed at the end of stdout
	run chan error
	n   int
	end func() // hangs up, shuts down and ends stdout

	submits    chan submitted
	cancels    chan waiterID
	decides    chan decided
	interrupts chan acpInterrupted
	accounts   chan acpAccounted
	titles     chan string
	leaves     chan string
	backend    string
	account    string // of catalog "account"
	models     string
	known      map[string]clientSession
	past       func(ctx context.Context, each func(*event) error) *rpcError
	ready      chan struct{} // closed: catalog answers

	schema *jsonSchema // nil where it isn't at hand
	s      *acpSession // of newAskRig
	// ends is what interrupt answers, nil where the test does.
	ends func(turn string) (interruptResult, *rpcError)
}

type acpInterrupted struct {
	agent, turn string
	done        func(interruptResult, *rpcError)
}

type acpAccounted struct {
	action string
	params json.RawMessage
	answer chan acpAnswered
}

type acpAnswered struct {
	raw json.RawMessage
	e   *rpcError
}

// newACPFrontRig starts a front whose client has not said hello; change may be nil.
func newACPFrontRig(t *testing.T, change func(*acpFrontRig, *acpOptions)) *acpFrontRig {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	r := &acpFrontRig{t: t, in: inW, out: make(chan json.RawMessage, 100000), run: make(chan error, 1), schema: acpSchema(t),
		submits: make(chan submitted, 100), cancels: make(chan waiterID, 100), decides: make(chan decided, 100),
		interrupts: make(chan acpInterrupted, 100), accounts: make(chan acpAccounted, 10), titles: make(chan string, 100), leaves: make(chan string, 10),
		backend: "app-server", account: `{"account":{"type":"apiKey"},"requiresOpenaiAuth":true}`, models: `{"data":[]}`,
		known: map[string]clientSession{}, ready: make(chan struct{})}
	close(r.ready)
	o := acpOptions{R: inR, W: outW, Version: "1.2.3", Kept: true, Team: true, Env: func(string) string { return "" },
		submit: func(req turnRequest, w waiterID) { r.submits <- submitted{req, w} },
		cancel: func(w waiterID) { r.cancels <- w },
		decide: func(ask string, by decider, d decision, answers map[string][]string) bool {
			r.decides <- decided{ask, by, d, answers}
			return true
		},
		interrupt: func(agent, turn string, done func(interruptResult, *rpcError)) {
			r.interrupts <- acpInterrupted{agent, turn, done}
			if r.ends != nil {
				done(r.ends(turn))
			}
		},
		status: func() statusView {
			return statusView{Team: "default", ChildAlive: true, Backend: r.backend, ChildPID: 7}
		},
		settings: func(string) *sessionSettings {
			return &sessionSettings{Model: "m1", Effort: "low", Sandbox: "workspace-write", Approval: "on-request", BaseSandbox: "workspace-write", BaseApproval: "on-request"}
		},
		retune: func(_ string, _ settingsChange, done func(sessionSettings, *rpcError)) {
			go done(sessionSettings{}, nil)
		},
		clientSessions: func() (all []clientSession, err error) {
			for _, s := range r.known {
				all = append(all, s)
			}
			return all, nil
		},
		clientSession: func(id string) (clientSession, *rpcError) {
			if s, ok := r.known[id]; ok {
				return s, nil
			}
			return clientSession{}, proxyError(codeSessionNotFound, "no such session")
		},
		setTitle: func(_, title string) { r.titles <- title },
		leave: func(agent string, done func(closeResult, *rpcError)) {
			r.leaves <- agent
			go done(closeResult{AgentID: agent, Status: "closed"}, nil)
		},
		history: func(ctx context.Context, _ string, each func(*event) error) *rpcError {
			if r.past == nil {
				return nil
			}
			return r.past(ctx, each)
		},
		catalog: func(ctx context.Context, what, _ string) (json.RawMessage, *rpcError) {
			select {
			case <-r.ready:
			case <-ctx.Done():
				return nil, proxyError(codeSessionClosed, "stopping")
			}
			switch what {
			case "account":
				return json.RawMessage(r.account), nil
			case "models":
				return json.RawMessage(r.models), nil
			}
			return json.RawMessage(`{"config":{"mcp_servers":{"mine":{}}}}`), nil
		},
		account: func(ctx context.Context, action string, params any) (json.RawMessage, *rpcError) {
			a := acpAccounted{action, toJSON(params), make(chan acpAnswered, 1)}
			r.accounts <- a
			select {
			case ans := <-a.answer:
				return ans.raw, ans.e
			case <-ctx.Done():
				return nil, proxyError(codeSessionClosed, "stopping")
			}
		},
	}
	agents := 0
	o.newAgentID = func() string { agents++; return fmt.Sprintf("codex:agent%d", agents) }
	if change != nil {
		change(r, &o)
	}
	r.f = newACPFront(o)
	go func() { r.run <- r.f.run() }()
	go func() {
		defer close(r.out)
		fr := newFrameReader(outR, maxRecord, framingNewline)
		for {
			rec, err := fr.read()
			if err != nil {
				return
			}
			r.out <- append(json.RawMessage(nil), rec...)
		}
	}()
	var once sync.Once
	r.end = func() {
		once.Do(func() {
			inW.Close()
			if err := <-r.run; err != nil {
				t.Errorf("run: %v", err)
			}
			r.f.shutdown(time.Second)
			outW.Close()
		})
	}
	t.Cleanup(r.end)
	return r
}

// newAskRig is a rig with one session, sess_1 of the agent codex:abcd, that was not
// opened over the wire, and with a hub that knows little. caps are the client's;
// change may be nil.
func newAskRig(t *testing.T, caps string, change func(*acpOptions)) *acpFrontRig {
	t.Helper()
	r := newACPFrontRig(t, func(r *acpFrontRig, o *acpOptions) {
		r.ends = func(turn string) (interruptResult, *rpcError) {
			return interruptResult{Interrupted: true, TurnID: turn}, nil
		}
		o.Kept, o.Team = false, false
		o.settings = func(string) *sessionSettings { return &sessionSettings{} }
		o.catalog = func(context.Context, string, string) (json.RawMessage, *rpcError) {
			return nil, &rpcError{Code: codeInternal, Message: "no catalog here"}
		}
		o.status = func() statusView { return statusView{Team: "default"} }
		if change != nil {
			change(o)
		}
	})
	r.hello(caps)
	r.s = newACPSession(r.f, "sess_1", "/work", nil)
	r.s.agentID, r.s.opening = "codex:abcd", false
	r.f.sessions.put(r.s)
	r.f.sessions.bind(r.s)
	return r
}

func (r *acpFrontRig) send(rec string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, rec+"\n"); err != nil {
		r.t.Fatalf("writing to the front: %v", err)
	}
}

// start sends a request and returns its id.
func (r *acpFrontRig) start(method, params string) string {
	r.t.Helper()
	r.n++
	id := fmt.Sprint(r.n)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return id
}

func (r *acpFrontRig) notify(method, params string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
}

// next reads one record of the front.
func (r *acpFrontRig) next() json.RawMessage {
	r.t.Helper()
	select {
	case rec, ok := <-r.out:
		if !ok {
			r.t.Fatal("stdout ended")
		}
		if !json.Valid(rec) {
			r.t.Fatalf("no JSON on stdout: %s", rec)
		}
		if method := stringField(rec, "method"); r.schema != nil && method != "" && method != "$/cancel_request" {
			r.valid(r.schema.byMethod(method, "Notification", "Request"), rawField(rec, "params"))
		}
		return rec
	case <-time.After(time.Minute):
		r.t.Fatal("nothing came for a minute")
	}
	return nil
}

// valid holds what the front sends against the protocol's schema.
func (r *acpFrontRig) valid(def string, raw json.RawMessage) {
	r.t.Helper()
	if why := schemaSays(r.schema, def, raw); why != "" {
		r.t.Errorf("%.2000s is no %s: %s", raw, def, why)
	}
}

// until reads up to the first record that is wanted, and returns it with those
// before it.
func (r *acpFrontRig) until(want func(json.RawMessage) bool) (found json.RawMessage, before []json.RawMessage) {
	r.t.Helper()
	for {
		rec := r.next()
		if want(rec) {
			return rec, before
		}
		before = append(before, rec)
	}
}

// answerTo reads up to the answer to id, and returns it with what came before.
func (r *acpFrontRig) answerTo(id string) (answer json.RawMessage, before []json.RawMessage) {
	r.t.Helper()
	return r.until(func(rec json.RawMessage) bool {
		return string(rawField(rec, "id")) == id && rawField(rec, "method") == nil
	})
}

// method waits for a record with that method.
func (r *acpFrontRig) method(name string) (rec json.RawMessage, before []json.RawMessage) {
	r.t.Helper()
	return r.until(func(rec json.RawMessage) bool { return stringField(rec, "method") == name })
}

// exchange asks and reads up to the answer, and returns it with what came before.
func (r *acpFrontRig) exchange(method, params string) (answer json.RawMessage, before []json.RawMessage) {
	r.t.Helper()
	answer, before = r.answerTo(r.start(method, params))
	if result := rawField(answer, "result"); result != nil && r.schema != nil {
		r.valid(r.schema.byMethod(method, "Response"), result)
	}
	return answer, before
}

// call asks and reads up to the answer.
func (r *acpFrontRig) call(method, params string) json.RawMessage {
	r.t.Helper()
	rec, _ := r.answerTo(r.start(method, params))
	return rec
}

// reply answers a request of the front's; answer is its result or error with its
// key.
func (r *acpFrontRig) reply(request json.RawMessage, answer string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":` + string(rawField(request, "id")) + `,` + answer + `}`)
}

// choose answers a permission request by an option.
func (r *acpFrontRig) choose(request json.RawMessage, option string) {
	r.t.Helper()
	r.reply(request, fmt.Sprintf(`"result":{"outcome":{"outcome":"selected","optionId":%q}}`, option))
}

// nothing fails if the front has sent anything, or decided.
func (r *acpFrontRig) nothing() {
	r.t.Helper()
	_, before := r.exchange("session/nothing", "{}")
	for _, rec := range before {
		r.t.Errorf("the front sent %s", rec)
	}
	none(r.t, "decided", r.decides)
}

// hello does the handshake.
func (r *acpFrontRig) hello(capabilities string) {
	r.t.Helper()
	if got := r.call("initialize", `{"protocolVersion":1,"clientCapabilities":`+capabilities+`,"clientInfo":{"name":"rig","version":"1"}}`); rawField(got, "result") == nil {
		r.t.Fatalf("initialize: %s", got)
	}
}

// open makes a session.
func (r *acpFrontRig) open() (session, agent string) {
	r.t.Helper()
	id := r.start("session/new", `{"cwd":"/work","mcpServers":[]}`)
	sub := receive(r.t, r.submits)
	if sub.req.run || sub.req.mode != modeNew || sub.req.agentID == "" || sub.req.client == nil {
		r.t.Fatalf("opened with %+v", sub.req)
	}
	r.f.done(sub.w, turnResult{AgentID: sub.req.agentID, Status: "idle"})
	got, _ := r.answerTo(id)
	if session = stringField(got, "result", "sessionId"); session == "" || session != sub.req.client.session {
		r.t.Fatalf("session/new: %s", got)
	}
	for {
		if rec := r.next(); updateKind(rec) == "available_commands_update" {
			return session, sub.req.agentID
		}
	}
}

func updateKind(rec json.RawMessage) string {
	return stringField(rec, "params", "update", "sessionUpdate")
}

// prompt sends a text.
func (r *acpFrontRig) prompt(session, text string) string {
	r.t.Helper()
	return r.start("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}`, session, toJSON(text)))
}

// cancel cancels all of a session.
func (r *acpFrontRig) cancel(session string) {
	r.t.Helper()
	r.notify("session/cancel", fmt.Sprintf(`{"sessionId":%q}`, session))
}

// cancelRequest cancels one request.
func (r *acpFrontRig) cancelRequest(id string) {
	r.t.Helper()
	r.notify("$/cancel_request", `{"requestId":`+id+`}`)
}

// runsTurn runs a prompt to its end.
func (r *acpFrontRig) runsTurn(session, text, turn string) {
	r.t.Helper()
	id := r.prompt(session, text)
	r.begun(turn).ends("completed", nil)
	r.stops(id, "end_turn")
}

// acpPlayed is a turn that the test plays.
type acpPlayed struct {
	r    *acpFrontRig
	a    agentRef
	w    waiterID
	turn string
}

// begun takes the next submit and plays its start.
func (r *acpFrontRig) begun(turn string) *acpPlayed {
	r.t.Helper()
	return r.plays(receive(r.t, r.submits), turn)
}

// plays plays the start of what was submitted.
func (r *acpFrontRig) plays(sub submitted, turn string) *acpPlayed {
	return r.turn(sub.req.ref, sub.w, turn)
}

// turn plays the start of a turn; no waiter makes it one that mail began.
func (r *acpFrontRig) turn(agent string, w waiterID, turn string) *acpPlayed {
	t := &acpPlayed{r, agentRef{AgentID: agent, Thread: "T"}, w, turn}
	t.is(&event{kind: evStarted})
	return t
}

// stops reads up to a prompt's answer, which must be this stop reason, and returns
// what came before it.
func (r *acpFrontRig) stops(id, want string) (before []json.RawMessage) {
	r.t.Helper()
	rec, before := r.answerTo(id)
	if got := stringField(rec, "result", "stopReason"); got != want {
		r.t.Errorf("answered %s, want stopReason %q", rec, want)
	}
	return before
}

// fails reads up to an answer, which must be this error, and returns what came
// before it.
func (r *acpFrontRig) fails(id string, code int, words ...string) (before []json.RawMessage) {
	r.t.Helper()
	rec, before := r.answerTo(id)
	failsWith(r.t, rec, code, words...)
	return before
}

func (t *acpPlayed) is(e *event) {
	e.thread, e.turn = t.a.Thread, t.turn
	t.r.f.event(t.a, t.w, e)
}

// says plays a delta of the answer.
func (t *acpPlayed) says(text string) {
	t.is(&event{kind: evDelta, item: "i-" + t.turn, phase: "answer", text: text, method: "item/agentMessage/delta", raw: toJSON(map[string]string{"delta": text}), delta: toJSON(text)})
}

// runs plays the start of a command.
func (t *acpPlayed) runs(item string) {
	t.is(&event{kind: evItem, item: item, phase: "started", method: "item/started", body: &itemBody{kind: "commandExecution", command: "sleep 9", cwd: "/work", status: "inProgress"},
		raw: json.RawMessage(`{"item":{"type":"commandExecution","command":"sleep 9"}}`)})
}

// ends plays the end and the answer.
func (t *acpPlayed) ends(status string, err *backendError) {
	t.is(&event{kind: evEnded, status: status, err: err})
	res := turnResult{AgentID: t.a.AgentID, TurnID: t.turn, TurnStatus: status}
	if err != nil {
		res.Content = err.Message
	}
	t.r.f.done(t.w, res)
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came for a minute")
	}
	panic("unreachable")
}

// none fails if something is in the channel.
func none[T any](t *testing.T, what string, ch <-chan T) {
	t.Helper()
	select {
	case v := <-ch:
		t.Errorf("%s: %+v", what, v)
	default:
	}
}

// failsWith checks the code and the words of an error.
func failsWith(t *testing.T, rec json.RawMessage, code int, words ...string) {
	t.Helper()
	if got := string(rawField(rec, "error", "code")); got != fmt.Sprint(code) {
		t.Errorf("answered %s, want code %d", rec, code)
	}
	for _, w := range words {
		if msg := stringField(rec, "error", "message"); !strings.Contains(msg, w) {
			t.Errorf("message %q lacks %q", msg, w)
		}
	}
}

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
