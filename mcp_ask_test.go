package main

// mcp_ask_test.go holds what a modern client is asked to the 2026-07-28 revision: a
// handle is taken once, by the same call, and a retry goes on with its turn and never
// begins one, in whatever order answers, ends and cancels come. A task asks by its
// state: who gets one, its states and their words, its errors.

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The _meta of modern clients that can be asked, that take tasks, and that do both.
const (
	elicitMetaJSON = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
	tasksMetaJSON  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	tasksAskMeta   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
)

// inputCall writes the params of a call by a modern client that can be asked;
// more begins with a comma.
func inputCall(tool, args, more string) string {
	return `{` + elicitMetaJSON + `,"name":"` + tool + `","arguments":` + args + more + `}`
}

func inputAsk(id string) approval {
	return approval{id: id, kind: askCommand, action: "rm -r " + id, command: "rm -r " + id, thread: "01a1"}
}

var parkedAgent = agentRef{AgentID: "codex:ab12", Thread: "01a1", Identity: "codex"}

// parked reads the answer that asks for input: the handle and the keys.
func (r *mcpRig) parked(id string, keys ...string) (state string) {
	r.t.Helper()
	rec := r.next()
	res := resultOf(r.t, rec)
	if string(rawField(rec, "id")) != id || stringField(res, "resultType") != "input_required" {
		r.t.Fatalf("want an input_required of %s, got %s", id, rec)
	}
	n := 0
	_ = eachField(rawField(res, "inputRequests"), func(key string, val json.RawMessage) bool {
		n++
		if stringField(val, "method") != "elicitation/create" || !strings.Contains(stringField(val, "params", "message"), key) {
			r.t.Errorf("input request %s: %s", key, val)
		}
		return true
	})
	for _, key := range keys {
		if rawField(res, "inputRequests", key) == nil {
			r.t.Errorf("%s is not asked in %s", key, res)
		}
	}
	if n != len(keys) {
		r.t.Errorf("%d input requests, want %d: %s", n, len(keys), res)
	}
	if stringField(res, "_meta", metaPrefix+"serverInfo", "name") != serverName {
		r.t.Errorf("no serverInfo: %s", res)
	}
	if state = stringField(res, "requestState"); len(state) != 32 {
		r.t.Errorf("requestState %q", state)
	}
	return state
}

func retryWith(state, responses string) string {
	return `,"requestState":"` + state + `","inputResponses":` + responses
}

// park begins a call of codex whose turn asks for ask-1, and reads that it is asked.
func (r *mcpRig) park() (w waiterID, state string) {
	r.t.Helper()
	w = r.begin("1", inputCall("codex", codexArgs, "")).w
	if !r.f.ask(parkedAgent, w, inputAsk("ask-1")) {
		r.t.Fatal("a modern client with elicitation can be asked")
	}
	return w, r.parked("1", "ask-1")
}

// retry sends the call again with what came of it.
func (r *mcpRig) retry(id, state, responses string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + inputCall("codex", codexArgs, retryWith(state, responses)) + `}`)
}

// leftNothing reports what no call and no turn can need any more.
func (r *mcpRig) leftNothing() {
	r.t.Helper()
	if n := len(r.f.parked.turns) + len(r.f.parked.states) + len(r.f.waiters) + len(r.f.open); n != 0 {
		r.t.Errorf("%d things are left behind", n)
	}
}

func (r *mcpRig) refused(rec json.RawMessage, words string) {
	r.t.Helper()
	e := r.failure(rec)
	if e.Code != codeInvalidSession {
		r.t.Fatalf("want a refusal with %q, got %s", words, rec)
	}
	mustContain(r.t, e.Message, words)
}

const codexArgs = `{"prompt":"x","config":{"a":1,"b":{"c":2,"d":3}}}`

// The whole way: asked, answered, attached to the same turn, told.
func TestInputRetryAttaches(t *testing.T) {
	r := newModernRig(t, nil)
	w, state := r.park()

	// What the client says of the answered request means nothing any more.
	r.cancelRequest(`1`, `null`)
	// A new request with other order and spelling is the same call.
	args := `{ "config":{"b":{"d":3.0,"c":2},"a":1}, "prompt":"\u0078" }`
	withToken := strings.Replace(inputCall("codex", args, retryWith(state, `{"ask-1":{"action":"accept","content":{}},"ask-9":{"action":"accept"}}`)),
		`"_meta":{`, `"_meta":{"progressToken":"p2",`, 1)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + withToken + `}`)
	if d := <-r.decides; d.ask != "ask-1" || d.d != approve || d.by.who != byUser {
		t.Fatalf("decided %+v", d)
	}
	if rec := r.next(); stringField(rec, "params", "progressToken") != "p2" {
		t.Fatalf("no progress with the retry's token: %s", rec)
	}
	r.f.done(w, okTurn("said"))
	res := resultOf(t, r.next())
	if stringField(res, "structuredContent", "content") != "said" || stringField(res, "resultType") != "complete" {
		t.Fatalf("%s", res)
	}
	if len(r.submits)+len(r.cancels)+len(r.decides) != 0 {
		t.Error("the retry began a turn, cancelled one or decided something else")
	}
	r.refused(r.ask("tools/call", inputCall("codex", codexArgs, retryWith(state, `{}`))), "used before")
	r.leftNothing()
}

// A handle is good for one retry, also while that one is still open, and only
// for its own call.
func TestInputHandleIsSingleUse(t *testing.T) {
	r := newModernRig(t, nil)
	w, state := r.park()

	for _, c := range []struct{ params, words string }{
		{inputCall("codex", `{"prompt":"y"}`, retryWith(state, `{"ask-1":{"action":"accept"}}`)), "other arguments"},
		{inputCall("codex", `{"prompt":"x","config":{"a":1,"b":{"c":2}}}`, retryWith(state, `{}`)), "other arguments"},
		{inputCall("codex-reply", codexArgs, retryWith(state, `{"ask-1":{"action":"accept"}}`)), "another tool"},
		{inputCall("codex", codexArgs, retryWith("00"+state[2:], `{}`)), "unknown"},
		{inputCall("codex", codexArgs, retryWith("", `{}`)), "unknown"},
		{inputCall("codex", codexArgs, `,"inputResponses":{"ask-1":{"action":"accept"}}`), "without the requestState"},
		{inputCall("codex", codexArgs, `,"inputResponses":{},"requestState":null`), "without the requestState"},
	} {
		r.refused(r.ask("tools/call", c.params), c.words)
	}
	for _, more := range []string{`,"requestState":5`, retryWith(state, `[]`), retryWith(state, `"accept"`)} {
		if code, _, _ := errorOf(t, r.ask("tools/call", inputCall("codex", codexArgs, more))); code != codeInvalidParams {
			t.Errorf("%s: code %d", more, code)
		}
	}
	if len(r.decides) != 0 {
		t.Fatalf("decided by a refused retry: %+v", <-r.decides)
	}

	good := `"method":"tools/call","params":` + inputCall("codex", codexArgs, retryWith(state, `{"ask-1":{"action":"decline"}}`)) + `}`
	r.send(`{"jsonrpc":"2.0","id":2,` + good)
	if d := <-r.decides; d.d != deny {
		t.Fatalf("decided %+v", d)
	}
	r.send(`{"jsonrpc":"2.0","id":3,` + good)
	r.refused(r.next(), "used before")
	r.f.done(w, okTurn("said"))
	if rec := r.next(); string(rawField(rec, "id")) != "2" {
		t.Fatalf("%s", rec)
	}
	if len(r.submits)+len(r.decides) != 0 {
		t.Error("a refused retry began a turn or decided something")
	}
}

// Only a modern client that declares forms is asked, and only what can be asked.
func TestInputOfClientsThatCannotBeAsked(t *testing.T) {
	r := newModernRig(t, nil)
	for _, caps := range []string{`{}`, `{"elicitation":{"url":{}}}`, `{"elicitation":null}`, `{"elicitation":true}`, `{"elicitation":{}}`} {
		s := r.begin("1", strings.Replace(inputCall("codex", `{"prompt":"x"}`, ""), `{"elicitation":{}}`, caps, 1))
		q := inputAsk("ask-1")
		if caps == `{"elicitation":{}}` {
			q.kind = askUnknown
		}
		if can := q.kind == askUnknown; can != (s.req.approvals == "client") || r.f.ask(parkedAgent, s.w, q) || r.f.ask(parkedAgent, 0, inputAsk("ask-2")) || r.f.ask(parkedAgent, 99, inputAsk("ask-3")) {
			t.Errorf("%s: approvals %q, or asked", caps, s.req.approvals)
		}
		r.f.done(s.w, okTurn("said"))
		resultOf(t, r.next())
	}
}

// What is asked while the client thinks, or as its retry comes, goes into the
// next answer; what it left out is asked again; what was withdrawn is not.
func TestInputSeveralAsks(t *testing.T) {
	r := newModernRig(t, nil)
	w := r.begin("1", inputCall("codex", codexArgs, "")).w
	for i := 1; i <= 4; i++ {
		if !r.f.ask(parkedAgent, w, inputAsk(fmt.Sprint("ask-", i))) {
			t.Fatalf("ask-%d was not taken", i)
		}
	}
	first := r.parked("1", "ask-1")
	r.f.askGone(parkedAgent, "ask-3", "timed out")

	r.retry("2", first, `{"ask-1":{"action":"accept"},"ask-3":{"action":"accept"},"ask-4":{"action":"cancel"}}`)
	second := r.parked("2", "ask-2")
	if second == first {
		t.Error("the handle came twice")
	}
	if a, b := <-r.decides, <-r.decides; a.ask != "ask-1" || a.d != approve || b.ask != "ask-4" || b.d != deny {
		t.Fatalf("decided %+v, %+v", a, b)
	}
	r.f.askGone(parkedAgent, "ask-2", "timed out")

	// Nothing is left to ask: the retry attaches, and is asked the next thing.
	r.retry("3", second, `{"ask-2":{"action":"accept"}}`)
	r.quiet()
	r.f.ask(parkedAgent, w, inputAsk("ask-5"))
	third := r.parked("3", "ask-5")

	// A retry that can't be asked any more leaves nothing hanging.
	params := strings.Replace(inputCall("codex", codexArgs, `,"requestState":"`+third+`"`), `{"elicitation":{}}`, `{}`, 1)
	r.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":` + params + `}`)
	if d := <-r.decides; d.ask != "ask-5" || d.d != deny {
		t.Fatalf("decided %+v", d)
	}
	if r.f.ask(parkedAgent, w, inputAsk("ask-6")) {
		t.Error("asked a client that said it can't be")
	}
	r.f.done(w, okTurn("said"))
	if rec := r.next(); string(rawField(rec, "id")) != "4" {
		t.Fatalf("%s", rec)
	}
	if len(r.decides) != 0 {
		t.Errorf("decided %+v", <-r.decides)
	}
}

// The turn ends while its client thinks: the result waits for the retry, errors
// too, and the late answer decides nothing.
func TestInputResultBeforeRetry(t *testing.T) {
	r := newModernRig(t, nil)
	for _, c := range []struct {
		result turnResult
		want   string
	}{
		{okTurn("said"), `"content":"said"`},
		{turnResult{err: proxyError(codeTimeout, "too long")}, "REQUEST_TIMEOUT"},
	} {
		w, state := r.park()
		r.f.askGone(parkedAgent, "ask-1", "timed out")
		r.f.done(w, c.result)
		if r.f.ask(parkedAgent, w, inputAsk("ask-2")) {
			t.Error("asked after the end of the turn")
		}
		params := inputCall("codex", codexArgs, retryWith(state, `{"ask-1":{"action":"accept"}}`))
		mustContain(t, string(resultOf(t, r.ask("tools/call", params))), c.want, `"resultType":"complete"`)
		r.refused(r.ask("tools/call", params), "used before")
	}
	if len(r.decides)+len(r.cancels) != 0 {
		t.Error("a late answer decided something")
	}
}

// Cancelling the retry cancels the turn; a timed out one lets it go on.
func TestInputCancelOfRetry(t *testing.T) {
	r := newModernRig(t, nil)
	for _, reason := range []string{"user", "Request timed out"} {
		w, state := r.park()
		r.retry("2", state, `{"ask-1":{"action":"accept"}}`)
		<-r.decides
		r.cancelRequest(`2`, `"`+reason+`"`)
		r.quiet()
		if n := len(r.cancels); (n == 1) != (reason == "user") || n > 1 || n == 1 && <-r.cancels != w {
			t.Errorf("%s: cancelled %d times", reason, n)
		}
		if r.f.ask(parkedAgent, w, inputAsk("ask-2")) {
			t.Error("nobody is left to be asked")
		}
		r.f.done(w, okTurn("late"))
		r.quiet()
		r.leftNothing()
	}
}

// A result waits an hour, and only so many of them wait.
func TestInputResultsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newModernRig(t, nil)
		park := func(content string) string {
			w, state := r.park()
			time.Sleep(time.Second)
			r.f.done(w, okTurn(content))
			return state
		}
		retry := func(state string) json.RawMessage {
			return r.ask("tools/call", inputCall("codex", codexArgs, retryWith(state, `{}`)))
		}
		a, b := park("a"), park("b")
		time.Sleep(parkedFor - 2*time.Second)
		mustContain(t, string(resultOf(t, retry(a))), `"content":"a"`)
		time.Sleep(2 * time.Second)
		r.refused(retry(b), "expired")

		var states []string
		for i := range parkedResults + 1 {
			states = append(states, park(fmt.Sprint("n", i)))
		}
		r.refused(retry(states[0]), "expired")
		mustContain(t, string(resultOf(t, retry(states[1]))), `"content":"n1"`)

		big := park(strings.Repeat("x", parkedBytes))
		r.refused(retry(states[2]), "expired")
		if n := len(resultOf(t, retry(big))); n < parkedBytes {
			t.Errorf("the newest result has %d bytes", n)
		}
		r.leftNothing()
		running, state := r.park()
		time.Sleep(3 * parkedFor) // an approval may be given more time than a result
		r.retry("2", state, `{"ask-1":{"action":"accept"}}`)
		<-r.decides
		r.f.done(running, okTurn("said"))
		mustContain(t, string(resultOf(t, r.next())), `"content":"said"`)
		r.end() // nothing of this outlives the front: the bubble would not end
	})
}

// Whatever order things come in, each request has one answer or was cancelled,
// each turn's result is told once, and no question is lost.
func TestInputAnswersOnce(t *testing.T) {
	for seed := range int64(40) {
		rnd := rand.New(rand.NewSource(seed))
		var mu sync.Mutex // guards decided
		decided := map[string]int{}
		r := newModernRig(t, func(o *mcpOptions) {
			o.decide = func(ask string, _ decider, _ decision, _ map[string][]string) bool {
				mu.Lock()
				defer mu.Unlock()
				decided[ask]++
				return true
			}
		})
		w := r.begin("0", inputCall("codex", codexArgs, "")).w
		asks, ended := 1+rnd.Intn(4), make(chan struct{})
		gaps := []int{rnd.Intn(3), rnd.Intn(3), rnd.Intn(3), rnd.Intn(3)}
		early := rnd.Intn(3) == 0
		go func() { // the session: asks, sometimes withdraws, and ends when it likes
			defer close(ended)
			for i := range asks {
				id := fmt.Sprint("ask-", i)
				r.f.ask(parkedAgent, w, inputAsk(id))
				for until := time.Now().Add(time.Minute); time.Now().Before(until); {
					mu.Lock()
					n := decided[id]
					mu.Unlock()
					if n > 0 || early && gaps[i] == 0 {
						break
					}
					if gaps[i] == 1 {
						r.f.askGone(parkedAgent, id, "timed out")
						break
					}
				}
			}
			r.f.done(w, okTurn("said"))
		}()
		results, last := 0, ""
		for id := 0; results == 0; {
			rec := r.next()
			if got := string(rawField(rec, "id")); got != fmt.Sprint(id) || got == last {
				t.Fatalf("seed %d: request %d, but answered is %s", seed, id, rec)
			} else {
				last = got
			}
			res := resultOf(t, rec)
			if stringField(res, "resultType") == "complete" {
				if stringField(res, "structuredContent", "content") != "said" {
					t.Fatalf("seed %d: %s", seed, rec)
				}
				results++
				break
			}
			answers := map[string]any{}
			_ = eachField(rawField(res, "inputRequests"), func(key string, _ json.RawMessage) bool {
				if rnd.Intn(4) > 0 {
					answers[key] = map[string]string{"action": "accept"}
				}
				return true
			})
			id++
			r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id,
				inputCall("codex", codexArgs, retryWith(stringField(res, "requestState"), string(toJSON(answers))))))
		}
		<-ended
		r.quiet()
		for ask, n := range decided {
			if n > 1 {
				t.Errorf("seed %d: %s was decided %d times", seed, ask, n)
			}
		}
		r.leftNothing()
		r.end()
	}
}

// taskRig is a client that declares tasks, and one turn at the hub.
type taskRig struct {
	*mcpRig
	turn       keptTurn
	approves   chan approveQuery
	interrupts chan string
	taskID     string
}

// newTaskRig starts a turn of which nothing but its acceptance is told yet.
func newTaskRig(t *testing.T) *taskRig {
	at := time.Date(2026, 11, 21, 14, 0, 0, 5e6, time.FixedZone("", 3600))
	r := &taskRig{approves: make(chan approveQuery, 10), interrupts: make(chan string, 10),
		turn: keptTurn{AgentID: "codex:ab12", Identity: "codex", TurnID: "bg-7f3k2m", Status: "running", Task: true, Created: at, Updated: at.Add(time.Second)}}
	r.mcpRig = newModernRig(t, func(o *mcpOptions) {
		o.turn = func(ref, turn string) (keptTurn, *rpcError) {
			if ref != "codex:ab12" || turn != "bg-7f3k2m" {
				return keptTurn{}, proxyError(codeSessionNotFound, "no such turn")
			}
			return r.turn, nil
		}
		o.approve = func(q approveQuery, done func(decision, *rpcError)) {
			r.approves <- q
			go done(q.Decision, nil)
		}
		o.interrupt = func(ref, turn string, done func(interruptResult, *rpcError)) {
			r.interrupts <- ref + " " + turn
			go done(interruptResult{Interrupted: true}, nil)
		}
	})
	s := r.begin(`"c"`, strings.Replace(`{`+tasksMetaJSON+`,"name":"codex","arguments":{"prompt":"x"}}`, `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
	if !s.req.background || !s.req.task || !s.req.run || s.req.approvals != "caller" {
		t.Fatalf("submitted %+v", s.req)
	}
	r.f.event(parkedAgent, s.w, &event{kind: evStarted, turn: "u1"}) // a task has no progress
	r.f.done(s.w, turnResult{AgentID: "codex:ab12", TurnID: "bg-7f3k2m", Identity: "codex", Team: "default", Status: "busy", TurnStatus: "running"})
	res := resultOf(t, r.next())
	r.taskID = stringField(res, "taskId")
	if stringField(res, "resultType") != "task" || stringField(res, "status") != "working" || r.taskID != "codex:ab12/bg-7f3k2m" ||
		string(rawField(res, "ttlMs")) != "null" || rawKind(rawField(res, "pollIntervalMs")) != '0' || rawField(res, "content") != nil ||
		stringField(res, "_meta", metaPrefix+"serverInfo", "name") != serverName {
		t.Fatalf("%s", res)
	}
	for _, name := range []string{"createdAt", "lastUpdatedAt"} {
		if _, err := time.Parse(time.RFC3339, stringField(res, name)); err != nil {
			t.Error(err)
		}
	}
	return r
}

func (r *taskRig) task(method, meta, more string) json.RawMessage {
	r.t.Helper()
	return r.ask(method, `{`+meta+`,"taskId":"`+r.taskID+`"`+more+`}`)
}

// get polls, and checks what every state has.
func (r *taskRig) get(meta, status string) json.RawMessage {
	r.t.Helper()
	res := resultOf(r.t, r.task("tasks/get", meta, ""))
	if stringField(res, "resultType") != "complete" || stringField(res, "status") != status || stringField(res, "taskId") != r.taskID ||
		stringField(res, "createdAt") != "2026-11-21T13:00:00.005Z" || stringField(res, "lastUpdatedAt") != "2026-11-21T13:00:01.005Z" {
		r.t.Fatalf("want status %s, got %s", status, res)
	}
	for _, c := range []struct{ name, of string }{{"inputRequests", "input_required"}, {"result", "completed"}, {"error", "failed"}} {
		if (rawField(res, c.name) != nil) != (c.of == status) {
			r.t.Errorf("%s in a task that is %s: %s", c.name, status, res)
		}
	}
	return res
}

func TestTaskLifecycle(t *testing.T) {
	r := newTaskRig(t)
	r.turn.Status = "queued"
	mustContain(t, stringField(r.get(tasksMetaJSON, "working"), "statusMessage"), "waiting for its turn")
	r.turn.Status, r.turn.Activity = "running", "running `make`"
	if got := stringField(r.get(tasksMetaJSON, "working"), "statusMessage"); got != "running `make`" {
		t.Errorf("statusMessage %q", got)
	}
	result := func(res turnResult) { r.turn.Result, r.turn.Status = &res, res.TurnStatus }
	result(okTurn("said"))
	res := r.get(tasksMetaJSON, "completed")
	if stringField(res, "result", "structuredContent", "content") != "said" || stringField(res, "result", "resultType") != "complete" ||
		rawField(res, "result", "isError") != nil {
		t.Errorf("%s", res)
	}
	failed := okTurn("it broke")
	failed.TurnStatus = "failed"
	result(failed)
	if res := r.get(tasksMetaJSON, "completed"); string(rawField(res, "result", "isError")) != "true" {
		t.Errorf("%s", res)
	}
	// An error of ours is a tool result for a modern client, so no failed task.
	result(turnResult{err: proxyError(codeTimeout, "too long"), TurnStatus: "failed"})
	if res := r.get(tasksMetaJSON, "completed"); string(rawField(res, "result", "structuredContent", "error", "code")) != "-32006" {
		t.Errorf("%s", res)
	}
	result(turnResult{err: badParams("no such thing"), TurnStatus: "failed"})
	if res := r.get(tasksMetaJSON, "failed"); string(rawField(res, "error", "code")) != "-32602" || stringField(res, "statusMessage") == "" {
		t.Errorf("%s", res)
	}
	stopped := okTurn("half")
	stopped.TurnStatus = "interrupted"
	result(stopped)
	r.get(tasksMetaJSON, "completed") // by a timeout, say
	r.turn.Stopped = true
	r.get(tasksMetaJSON, "cancelled")
	result(turnResult{err: proxyError(codeSessionClosed, "stopped in the queue")})
	r.get(tasksMetaJSON, "cancelled")
	result(okTurn("quicker than the cancel"))
	r.get(tasksMetaJSON, "completed")
}

func TestTaskInputRequired(t *testing.T) {
	r := newTaskRig(t)
	for _, id := range []string{"ask-1", "ask-2"} {
		q := inputAsk(id)
		r.turn.Pending = append(r.turn.Pending, askView{ApprovalID: id, Kind: q.kind, Action: q.action, q: q})
	}
	r.turn.Activity = "waiting for approval of `rm -r ask-1`"
	res := r.get(tasksAskMeta, "input_required")
	for _, id := range []string{"ask-1", "ask-2"} {
		if stringField(res, "inputRequests", id, "method") != "elicitation/create" ||
			!strings.Contains(stringField(res, "inputRequests", id, "params", "message"), "Run `rm -r "+id+"`\nasked by agent codex (codex:ab12)") {
			t.Errorf("%s", res)
		}
	}
	if again := r.get(tasksAskMeta, "input_required"); string(rawField(again, "inputRequests")) != string(rawField(res, "inputRequests")) {
		t.Errorf("the same questions differ: %s", again)
	}
	// Who can't be asked is told how the caller decides.
	mustContain(t, stringField(r.get(tasksMetaJSON, "working"), "statusMessage"), "agent_approve", "ask-1", "codex:ab12")

	ack := resultOf(t, r.task("tasks/update", tasksAskMeta, `,"inputResponses":{"ask-2":{"action":"accept","content":{}},"ask-7":{"action":"accept"}}`))
	if stringField(ack, "resultType") != "complete" || rawField(ack, "taskId") != nil {
		t.Errorf("%s", ack)
	}
	if q := <-r.approves; q.Agent != "codex:ab12" || q.Ask != "ask-2" || q.Action != "rm -r ask-2" || q.Decision != approve || q.By.who != byUser {
		t.Errorf("approved %+v", q)
	}
	resultOf(t, r.task("tasks/update", tasksAskMeta, `,"inputResponses":{"ask-1":{"action":"accept","content":{"x":"no"}},"ask-2":{"decision":"denied"}}`))
	for _, id := range []string{"ask-1", "ask-2"} {
		if q := <-r.approves; q.Ask != id || q.Decision != deny {
			t.Errorf("approved %+v", q)
		}
	}
	r.turn.Pending = nil
	resultOf(t, r.task("tasks/update", tasksAskMeta, `,"inputResponses":{"ask-1":{"action":"accept"}}`))
	if len(r.approves) != 0 {
		t.Errorf("approved %+v", <-r.approves)
	}
}

func TestTaskCancel(t *testing.T) {
	r := newTaskRig(t)
	ack := resultOf(t, r.task("tasks/cancel", tasksMetaJSON, ""))
	if stringField(ack, "resultType") != "complete" || rawField(ack, "status") != nil {
		t.Errorf("%s", ack)
	}
	if got := <-r.interrupts; got != "codex:ab12 bg-7f3k2m" {
		t.Errorf("interrupted %s", got)
	}
	done := okTurn("said")
	r.turn.Result, r.turn.Status = &done, "completed"
	resultOf(t, r.task("tasks/cancel", tasksMetaJSON, "")) // too late, and fine
	if len(r.interrupts) != 0 {
		t.Error("an ended turn was interrupted")
	}
}

func TestTaskErrors(t *testing.T) {
	r := newTaskRig(t)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		code, _, data := errorOf(t, r.task(method, modernMetaJSON, `,"inputResponses":{}`))
		if code != -32021 || rawKind(rawField(data, "requiredCapabilities", "extensions", "io.modelcontextprotocol/tasks")) != '{' {
			t.Errorf("%s without the extension: %d %s", method, code, data)
		}
		if code, _, _ := errorOf(t, r.ask(method, `{"taskId":"`+r.taskID+`"}`)); code != codeNoMethod {
			t.Errorf("%s of a legacy client: %d", method, code)
		}
		for _, id := range []string{`"codex:ab12/bg-other"`, `"codex:zz99/bg-7f3k2m"`, `"nonsense"`, `""`, `"/"`, `5`, `null`} {
			code, _, _ := errorOf(t, r.ask(method, fmt.Sprintf(`{%s,"taskId":%s,"inputResponses":{}}`, tasksMetaJSON, id)))
			if code != codeInvalidParams {
				t.Errorf("%s of task %s: %d", method, id, code)
			}
		}
	}
	for _, more := range []string{"", `,"inputResponses":[]`, `,"inputResponses":null`} {
		if code, _, _ := errorOf(t, r.task("tasks/update", tasksMetaJSON, more)); code != codeInvalidParams {
			t.Errorf("tasks/update with %q: %d", more, code)
		}
	}
	r.turn.Task = false
	if code, msg, _ := errorOf(t, r.task("tasks/get", tasksMetaJSON, "")); code != codeInvalidParams || !strings.Contains(msg, "agent_wait") {
		t.Errorf("a background turn: %d %s", code, msg)
	}
	for _, method := range []string{"tasks/list", "tasks/result"} { // of 2025-11-25
		if code, _, _ := errorOf(t, r.task(method, tasksMetaJSON, "")); code != codeNoMethod {
			t.Errorf("%s: %d", method, code)
		}
	}
	code, _, _ := errorOf(t, r.ask("subscriptions/listen", `{`+modernMetaJSON+`,"notifications":{"taskIds":["a"]}}`))
	if code != -32021 {
		t.Errorf("listening to tasks without the extension: %d", code)
	}
}

// Only server/discover tells of tasks, and only a turn of a client that declares the
// extension on the call becomes one. Where elicitation is declared too the client's
// user decides, by the task.
func TestTaskIsNegotiated(t *testing.T) {
	r := newRig(t, nil)
	if res := resultOf(t, r.ask("server/discover", modernOnly)); rawKind(rawField(res, "capabilities", "extensions", tasksExtension)) != '{' {
		t.Errorf("%s", res)
	}
	if res := resultOf(t, r.hello("2025-11-25", `{"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{}}`, "x")); rawField(res, "capabilities", "extensions") != nil {
		t.Errorf("legacy: %s", res)
	}
	const noTasks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":true}}}`
	for _, c := range []struct {
		params    string
		task      bool
		approvals string
	}{
		{`"name":"codex","arguments":{"prompt":"x"}`, false, ""}, // legacy
		{`"name":"codex","arguments":{"prompt":"x"},"task":{"ttl":1000}`, false, ""},
		{modernMetaJSON + `,"name":"codex","arguments":{"prompt":"x"}`, false, ""},
		{noTasks + `,"name":"codex","arguments":{"prompt":"x"}`, false, ""},
		{tasksMetaJSON + `,"name":"codex","arguments":{"prompt":"x"}`, true, "caller"},
		{tasksAskMeta + `,"name":"codex","arguments":{"prompt":"x"}`, true, "client"},
		{tasksAskMeta + `,"name":"codex","arguments":{"agent_id":"codex:ab12","prompt":"x"}`, true, "client"},
		{tasksAskMeta + `,"name":"codex-reply","arguments":{"agent_id":"codex:ab12","prompt":"x"}`, true, "client"},
		{tasksAskMeta + `,"name":"codex","arguments":{"agent_id":"codex:ab12"}`, false, "client"}, // reopening runs no turn
	} {
		s := r.begin("1", `{`+c.params+`}`)
		if s.req.task != c.task || s.req.background != c.task || s.req.approvals != c.approvals {
			t.Errorf("%s: submitted %+v", c.params, s.req)
		}
		// A turn that could not be accepted is no task.
		r.f.done(s.w, turnResult{err: proxyError(codeMaxSessions, "too many")})
		mustContain(t, string(r.next()), "MAX_SESSIONS_EXCEEDED")
	}
	// Cancelled before it was accepted: the turn is dropped and nobody told.
	s := r.begin("1", `{`+tasksMetaJSON+`,"name":"codex","arguments":{"prompt":"x"}}`)
	r.cancelRequest(`1`, `null`)
	if c := <-r.cancels; c != s.w {
		t.Errorf("%+v", c)
	}
	r.f.done(s.w, turnResult{AgentID: "codex:ab12", TurnID: "bg-1", TurnStatus: "running"})
	r.quiet()
}
