package main

// acp_rig_test.go owns the rig of the ACP tests: a client with pipes on both sides of
// a front, and a hub made of functions whose turns the test plays. To prove that
// something was not sent, a test asks for what is refused at once and reads up to
// that. What is the encoder's alone is played to an encoder without a front, by
// events made as the driver makes them, from Codex's own JSON; its updates are
// compared in few words. Both hold what comes to the schema.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// acpFrontRig is one client of one front.
type acpFrontRig struct {
	*frontRig
	f *acpFront

	schema         *jsonSchema // nil where it isn't at hand
	s              *acpSession // what open made
	session, agent string      // of s

	interrupts chan acpInterrupted
	accounts   chan acpAccounted
	titles     chan string
	leaves     chan string

	// What the hub and Codex say; a test changes that before the front asks.
	status  statusView
	account string // of catalog "account"
	known   map[string]clientSession
	past    []*event      // of the session that is loaded
	ready   chan struct{} // closed: catalog answers
	misses  atomic.Bool   // the next interrupt finds no turn of that name
	// replayed is called for every event of the past; may be nil.
	replayed func()

	mu      sync.Mutex // guards the fields below
	set     sessionSettings
	changes []settingsChange
	models  string // what Codex says of its models, "" for an error
	skills  string // what it says of skills, in the same way
	asked   int    // how often for the models
	pid     int    // of Codex
}

type acpInterrupted struct{ agent, turn string }

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
	front, client := newFrontRig(t, 1000)
	r := &acpFrontRig{frontRig: front, schema: acpSchema(t), interrupts: make(chan acpInterrupted, 100),
		accounts: make(chan acpAccounted, 10), titles: make(chan string, 100), leaves: make(chan string, 10),
		known:   map[string]clientSession{},
		status:  statusView{Team: "default", ChildAlive: true, Backend: "app-server"},
		account: `{"account":{"type":"apiKey"},"requiresOpenaiAuth":true}`, models: `{"data":[]}`, pid: 7,
		set: sessionSettings{Sandbox: sandboxWrite, Approval: "on-request", BaseSandbox: sandboxWrite,
			BaseApproval: "on-request"}}
	client.status = r.theStatus
	client.interrupt = func(agent, turn string, done func(interruptResult, *rpcError)) {
		r.interrupts <- acpInterrupted{agent, turn}
		done(interruptResult{Interrupted: !r.misses.Swap(false), TurnID: turn}, nil)
	}
	o := acpOptions{Kept: true, Team: true, AskLimit: 5 * time.Minute, Env: func(string) string { return "" },
		clientOptions: client, settings: r.theSettings, retune: r.retune,
		clientSessions: func(context.Context, string) (all []clientSession, err error) {
			return slices.Collect(maps.Values(r.known)), nil
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
		remove: func(_ context.Context, session string) *rpcError {
			r.leaves <- "and remove " + session
			return nil
		},
		history: func(_ context.Context, _ string, each func(*event) error) *rpcError {
			for _, e := range r.past {
				if err := each(e); err != nil {
					return &rpcError{Code: codeInternal, Message: err.Error()}
				}
				if r.replayed != nil {
					r.replayed()
				}
			}
			return nil
		},
		catalog: r.catalog,
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
	r.serve(r.f.run, r.f.shutdown)
	return r
}

// newOpenRig is a client with these capabilities and an open session; change may be nil.
func newOpenRig(t *testing.T, caps string, change func(*acpFrontRig, *acpOptions)) *acpFrontRig {
	t.Helper()
	r := newACPFrontRig(t, change)
	r.hello(caps)
	r.open()
	return r
}

func (r *acpFrontRig) theStatus() statusView {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.status
	v.ChildPID = r.pid
	return v
}

func (r *acpFrontRig) theSettings(string) *sessionSettings {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.set
	return &set
}

// retune is a hub that does every change.
func (r *acpFrontRig) retune(_ string, c settingsChange, done func(sessionSettings, *rpcError)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
	put := func(into, from *string, base string) {
		if from != nil {
			*into = cmp.Or(*from, base)
		}
	}
	put(&r.set.Model, c.Model, "")
	put(&r.set.Effort, c.Effort, "")
	put(&r.set.Sandbox, c.Sandbox, r.set.BaseSandbox)
	put(&r.set.Approval, c.Approval, r.set.BaseApproval)
	if c.Plan != nil {
		if r.set.Plan = *c.Plan; r.set.Plan {
			r.set.Sandbox, r.set.Approval = sandboxRead, "on-request"
		}
	}
	go done(r.set, nil)
}

func (r *acpFrontRig) catalog(ctx context.Context, what, _ string) (json.RawMessage, *rpcError) {
	if r.ready != nil {
		select {
		case <-r.ready:
		case <-ctx.Done():
			return nil, proxyError(codeSessionClosed, "stopping")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case what == "account":
		return json.RawMessage(r.account), nil
	case what == "config":
		return json.RawMessage(`{"config":{"mcp_servers":{"db":{}}}}`), nil
	case what == "skills" && r.skills != "":
		return json.RawMessage(r.skills), nil
	case what == "models" && r.models != "":
		r.asked++
		return json.RawMessage(r.models), nil
	}
	return nil, &rpcError{Code: codeInternal, Message: "no catalog here"}
}

func (r *acpFrontRig) start(method, params string) string {
	r.t.Helper()
	r.n++
	id := fmt.Sprint(1000 + r.n)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + systemPaths(params) + `}`)
	return id
}

// of are params that name the open session, and more.
func (r *acpFrontRig) of(more string) string {
	return fmt.Sprintf(`{"sessionId":%q%s}`, r.session, more)
}

func (r *acpFrontRig) notify(method, params string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
}

// next reads one record of the front, and holds it to the schema.
func (r *acpFrontRig) next() json.RawMessage {
	r.t.Helper()
	rec := r.pipeClient.next()
	if method := stringField(rec, "method"); r.schema != nil && method != "" {
		r.valid(r.schema.byMethod(method, "Notification", "Request"), rawField(rec, "params"))
	}
	return rec
}

func (r *acpFrontRig) valid(def string, raw json.RawMessage) {
	r.t.Helper()
	if why := schemaSays(r.schema, def, raw); why != "" {
		r.t.Errorf("%.2000s is no %s: %s", raw, def, why)
	}
}

// until reads up to the first record that is wanted, and returns that with those
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

func (r *acpFrontRig) method(name string) (rec json.RawMessage, before []json.RawMessage) {
	r.t.Helper()
	return r.until(func(rec json.RawMessage) bool { return stringField(rec, "method") == name })
}

// exchange asks and reads up to the answer, and returns that with what came before.
func (r *acpFrontRig) exchange(method, params string) (answer json.RawMessage, before []json.RawMessage) {
	r.t.Helper()
	answer, before = r.answerTo(r.start(method, params))
	if result := rawField(answer, "result"); result != nil && r.schema != nil {
		r.valid(r.schema.byMethod(method, "Response"), result)
	}
	return answer, before
}

func (r *acpFrontRig) call(method, params string) json.RawMessage {
	r.t.Helper()
	rec, _ := r.answerTo(r.start(method, params))
	return rec
}

// told is what the front has sent by now.
func (r *acpFrontRig) told() []json.RawMessage {
	r.t.Helper()
	_, before := r.exchange("session/nothing", "{}")
	return before
}

// nothing fails if the front has sent anything, or the hub was asked for anything
// that the test has not taken.
func (r *acpFrontRig) nothing() {
	r.t.Helper()
	for _, rec := range r.told() {
		r.t.Errorf("the front sent %s", rec)
	}
	none(r.t, "submitted", r.submits)
	none(r.t, "cancelled", r.cancels)
	none(r.t, "decided", r.decides)
	none(r.t, "interrupted", r.interrupts)
	none(r.t, "left", r.leaves)
}

// reply answers a request of the front's; answer is its result or error with its
// key.
func (r *acpFrontRig) reply(request json.RawMessage, answer string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":` + string(rawField(request, "id")) + `,` + answer + `}`)
}

func selected(option string) string {
	return fmt.Sprintf(`"result":{"outcome":{"outcome":"selected","optionId":%q}}`, option)
}

func (r *acpFrontRig) hello(capabilities string) {
	r.t.Helper()
	got := r.call("initialize", `{"protocolVersion":1,"clientCapabilities":`+capabilities+
		`,"clientInfo":{"name":"rig","version":"1"}}`)
	if rawField(got, "result") == nil {
		r.t.Fatalf("initialize: %s", got)
	}
}

func (r *acpFrontRig) open() {
	r.t.Helper()
	id := r.start("session/new", `{"cwd":"/work","mcpServers":[]}`)
	sub := receive(r.t, r.submits)
	if sub.req.run || sub.req.mode != modeNew || sub.req.agentID == "" || sub.req.client == nil {
		r.t.Fatalf("opened with %+v", sub.req)
	}
	r.f.done(sub.w, turnResult{AgentID: sub.req.agentID, Status: "idle"})
	got, before := r.answerTo(id)
	if len(before) > 0 {
		r.t.Errorf("told %s of a session that nobody knows", before)
	}
	r.session, r.agent = stringField(got, "result", "sessionId"), sub.req.agentID
	if r.s = r.f.sessions.named(r.session); r.s == nil || r.session != sub.req.client.session {
		r.t.Fatalf("session/new: %s", got)
	}
	r.until(func(rec json.RawMessage) bool { return updateKind(rec) == "available_commands_update" })
}

// reopen starts a session/load or session/resume and returns its id.
func (r *acpFrontRig) reopen(method, session string) string {
	r.t.Helper()
	return r.start("session/"+method, fmt.Sprintf(`{"sessionId":%q,"cwd":"/work","mcpServers":[]}`, session))
}

// keeps has the hub know of a session that isn't open.
func (r *acpFrontRig) keeps(session, agent string) {
	r.known[session] = clientSession{Session: session, AgentID: agent, Cwd: systemPath("/work"), Title: "kept"}
}

func updateKind(rec json.RawMessage) string {
	return stringField(rec, "params", "update", "sessionUpdate")
}

func kindsOf(recs []json.RawMessage) string {
	var kinds []string
	for _, rec := range recs {
		kinds = append(kinds, updateKind(rec))
	}
	return strings.Join(kinds, " ")
}

func (r *acpFrontRig) prompt(text string) string {
	r.t.Helper()
	return r.start("session/prompt", r.of(`,"prompt":[{"type":"text","text":`+string(toJSON(text))+`}]`))
}

// cancel cancels all of the open session.
func (r *acpFrontRig) cancel() {
	r.t.Helper()
	r.notify("session/cancel", r.of(""))
}

func (r *acpFrontRig) cancelRequest(id string) {
	r.t.Helper()
	r.notify("$/cancel_request", `{"requestId":`+id+`}`)
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

// does reads up to an answer that is an empty result.
func (r *acpFrontRig) does(id string) (before []json.RawMessage) {
	r.t.Helper()
	rec, before := r.answerTo(id)
	if string(rawField(rec, "result")) != "{}" {
		r.t.Errorf("answered %s", rec)
	}
	return before
}

func (t *acpPlayed) is(e *event) {
	e.thread, e.turn = t.a.Thread, t.turn
	t.r.f.event(t.a, t.w, e)
}

func (t *acpPlayed) says(text string) {
	t.is(&event{kind: evDelta, item: "i-" + t.turn, phase: "answer", text: text, delta: toJSON(text)})
}

func (t *acpPlayed) runs(item string) {
	t.is(&event{kind: evItem, item: item, phase: "started", raw: json.RawMessage(`{"item":{}}`),
		body: &itemBody{kind: "commandExecution", command: "sleep 9", cwd: "/work", status: "inProgress"}})
}

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

func none[T any](t *testing.T, what string, ch <-chan T) {
	t.Helper()
	select {
	case v := <-ch:
		t.Errorf("%s: %+v", what, v)
	default:
	}
}

func failsWith(t *testing.T, rec json.RawMessage, code int, words ...string) {
	t.Helper()
	if got := string(rawField(rec, "error", "code")); got != fmt.Sprint(code) {
		t.Errorf("answered %s, want code %d", rec, code)
	}
	mustContain(t, stringField(rec, "error", "message"), words...)
}

// playCases holds a file of testdata/acp to what do makes of its lines: what comes of
// a line stands behind it, on lines that begin with "= ". "## " begins what has nothing
// to do with the lines before, "# " is a remark. -update writes the file anew.
func playCases(t *testing.T, file string, do func(line string) []string) {
	t.Helper()
	path := filepath.Join("testdata", "acp", file+".txt")
	text, err := os.ReadFile(path)
	wantNil(t, err)
	var got []string
	was := strings.Split(string(text), "\n")
	for _, line := range was {
		if strings.HasPrefix(line, "= ") {
			continue
		}
		got = append(got, line)
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		for _, out := range do(systemPaths(line)) {
			got = append(got, "= "+out)
		}
		if *update {
			continue
		}
		if at := len(got) - 1; at >= len(was) || inUnixPaths(got[at]) != inUnixPaths(was[at]) {
			t.Fatalf("%s, near line %d: of\n%s\ncame\n%s\nif that is meant, run this test with -update", path, at+1, line,
				strings.Join(got[max(0, at-2):], "\n"))
		}
	}
	wantPathGolden(t, path, strings.Join(got, "\n"))
}

// wantPathGolden is wantGolden for a text of Unix paths, which is written where paths are so.
func wantPathGolden(t *testing.T, golden, got string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		want(t, inUnixPaths(got), inUnixPaths(readText(t, golden)))
		return
	}
	wantGolden(t, golden, got)
}

const acpThread = "01a1fd62-52dc-7b81-9559-911d778571f0"

type acpRig struct {
	t      testing.TB
	x      *acpEncoder
	ids    appIDs
	review *acpReview
	talk   *acpTalk                // of the review: all that is told is of one session
	files  map[string][]fileChange // by item

	mu      sync.Mutex // guards the fields below, and the two above
	got     []string
	taken   int // of got
	crowded bool
}

func newACPRig(t testing.TB, o acpEncoding) *acpRig {
	r := &acpRig{t: t, review: newACPReview(acpSchema(t)), files: map[string][]fileChange{}}
	r.talk = r.review.session("s")
	r.talk.prompts = 1
	o.Cwd, o.Client = cmp.Or(o.Cwd, systemPath("/w")), cmp.Or(o.Client, &acpClient{})
	o.Send = r.take
	o.Crowded = func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.crowded }
	r.x = newACPEncoder(o)
	t.Cleanup(func() { r.x.endTurn("") }) // its timers
	return r
}

// playACP plays to an encoder whose turn t1 has begun, in a bubble of its own time.
func playACP(t *testing.T, o acpEncoding, play func(t *testing.T, r *acpRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, o)
		r.begin("t1")
		play(t, r)
	})
}

// take is the client: it checks every update.
func (r *acpRig) take(update []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, string(update))
	if why := schemaSays(r.review.schema, "SessionUpdate", update); why != "" {
		r.t.Errorf("%s\nis not valid: %s", clip(string(update), 500), why)
	}
	r.review.update(r.talk, json.RawMessage(update))
	r.reportLocked()
	return true
}

func (r *acpRig) reportLocked() {
	for _, problem := range r.review.problems {
		r.t.Errorf("%s: %s", problem, clip(r.got[len(r.got)-1], 300))
	}
	r.review.problems = nil
}

// crowd says whether output waits.
func (r *acpRig) crowd(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crowded = is
}

func (r *acpRig) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// news are the updates since the last time.
func (r *acpRig) news() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.taken
	r.taken = len(r.got)
	return slices.Clone(r.got[from:])
}

// told are the updates since the last time in few words, one a line.
func (r *acpRig) told() string {
	var lines []string
	for _, update := range r.news() {
		lines = append(lines, r.brief(update))
	}
	return strings.Join(lines, "\n")
}

func (r *acpRig) want(lines ...string) {
	r.t.Helper()
	if got, want := inUnixPaths(r.told()), inUnixPaths(strings.Join(lines, "\n")); got != want {
		r.t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// brief is briefUpdate without what only this encoder's updates have.
func (r *acpRig) brief(update string) string {
	return briefUpdate(json.RawMessage(strings.NewReplacer(r.x.own, "OWN", acpThread, "T").Replace(update)))
}

// briefUpdate is all that an update says, in few words: its kind, its fields in their
// order, the ids without what those of turn t1 have in common.
func briefUpdate(update json.RawMessage) string {
	words := []string{}
	_ = eachField(update, func(key string, val json.RawMessage) bool {
		word, _ := rawString(val)
		switch key {
		case "sessionUpdate":
			word = strings.TrimSuffix(word, "_message_chunk")
		case "toolCallId", "messageId":
			word = strings.TrimPrefix(word, "codex:T:t1:")
			if strings.HasPrefix(word, "atm:") { // random
				word = "OWN"
			}
		case "name", "kind", "status":
		case "updatedAt":
			word = "at some time"
		case "title":
			word = strconv.Quote(word)
		case "content":
			word = briefContent(val)
		case "rawInput", "rawOutput":
			word = strings.ToLower(key[3:]) + string(val)
		default:
			word = key + string(val)
		}
		words = append(words, word)
		return true
	})
	return strings.Join(words, " ")
}

func briefContent(val json.RawMessage) string {
	switch {
	case rawKind(val) == '[':
		var all []string
		eachElement(val, func(each json.RawMessage) { all = append(all, briefContent(each)) })
		return "[" + strings.Join(all, " ") + "]"
	case stringField(val, "type") == "content":
		return briefContent(rawField(val, "content"))
	case stringField(val, "type") == "text":
		return strconv.Quote(stringField(val, "text"))
	}
	return string(val)
}

// texts joins what one kind of chunk said.
func (r *acpRig) texts(kind string) string {
	var b strings.Builder
	for _, u := range r.all() {
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
	r.hears(r.ref(), method, json.RawMessage(systemPaths(p)))
}

// hears takes a notification of Codex's as the session does.
func (r *acpRig) hears(a agentRef, method string, params json.RawMessage) event {
	e := r.ids.event(method, params)
	if e.body != nil && e.body.files != nil {
		r.files[e.item] = e.body.files
	}
	r.x.event(a, &e)
	return e
}

// item is an item of turn t1 as it starts or is completed.
func (r *acpRig) item(phase, item string) { r.note("item/"+phase, `{"turnId":"t1","item":`+item+`}`) }

func (r *acpRig) delta(item, text string) {
	r.note("item/agentMessage/delta", fmt.Sprintf(`{"turnId":"t1","itemId":%q,"delta":%s}`, item, toJSON(text)))
}

func (r *acpRig) begin(turn string) { r.note("turn/started", `{"turn":{"id":"`+turn+`"}}`) }

// ends ends turn t1; all of its calls must be closed then.
func (r *acpRig) ends(status string) {
	r.t.Helper()
	r.note("turn/completed", fmt.Sprintf(`{"turn":{"id":"t1","status":"%s","items":[]}}`, status))
	r.closed()
}

func (r *acpRig) closed() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.review.close(r.talk, "the turn's end")
	r.reportLocked()
}

// ask puts an approval, and returns the tool call that goes with its request.
func (r *acpRig) ask(a agentRef, q *approval) string {
	r.t.Helper()
	r.x.event(a, &event{kind: evAsk, thread: q.thread, turn: q.turn, item: q.item, ask: q})
	call := r.x.announce(a, q)
	if why := schemaSays(r.review.schema, "ToolCallUpdate", call); why != "" {
		r.t.Errorf("%s is not valid: %s", call, why)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	status := stringField(call, "status")
	if is := r.talk.calls[stringField(call, "toolCallId")]; is == "" || status != "" && status != is {
		r.t.Errorf("permission for a call that is %q: %s", is, call)
	}
	return string(call)
}
