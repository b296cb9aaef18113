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

const codexArgs = `{"prompt":"x","config":{"a":1,"b":{"c":2,"d":3}}}`

func inputAsk(id string) approval {
	return approval{id: id, kind: askCommand, action: "rm -r " + id, command: "rm -r " + id, thread: "01a1"}
}

func (r *mcpRig) asks(w waiterID, id string) bool {
	return r.f.ask(agentRef{AgentID: "codex:ab12", Thread: "01a1", Identity: "codex"}, w, inputAsk(id))
}

// parked reads the answer that asks for input, with the keys that it must have, and
// returns the handle.
func (r *mcpRig) parked(id string, keys ...string) (state string) {
	r.t.Helper()
	res := resultOf(r.t, r.answerTo(id))
	hasFields(r.t, res, `{"resultType":"input_required","requestState":"$re:^[0-9a-f]{32}$",
		"_meta":{"`+metaPrefix+`serverInfo":{"name":"`+serverName+`"}}}`)
	n := 0
	_ = eachField(rawField(res, "inputRequests"), func(key string, val json.RawMessage) bool {
		n++
		hasFields(r.t, val, `{"method":"elicitation/create","params":{"message":"$re:`+key+`"}}`)
		return true
	})
	for _, key := range keys {
		if n != len(keys) || rawField(res, "inputRequests", key) == nil {
			r.t.Errorf("asked is not %q: %s", keys, res)
		}
	}
	return stringField(res, "requestState")
}

func retryWith(state, responses string) string {
	return callWith(askMeta, "codex", codexArgs, `,"requestState":"`+state+`","inputResponses":`+responses)
}

// park begins a call of codex whose turn asks for ask-1, and reads that it is asked.
func (r *mcpRig) park() (w waiterID, state string) {
	r.t.Helper()
	r.modern = true
	w = r.begin("1", callWith(askMeta, "codex", codexArgs, "")).w
	if !r.asks(w, "ask-1") {
		r.t.Fatal("a modern client with elicitation can be asked")
	}
	return w, r.parked("1", "ask-1")
}

func (r *mcpRig) retry(id, state, responses string) {
	r.t.Helper()
	r.request(id, "tools/call", retryWith(state, responses))
}

// leftNothing reports what no call and no turn can need any more.
func (r *mcpRig) leftNothing() {
	r.t.Helper()
	if n := len(r.f.parked.turns) + len(r.f.parked.states) + len(r.f.waiters) + len(r.f.open); n != 0 {
		r.t.Errorf("%d things are left behind", n)
	}
}

func (r *mcpRig) decided(ask string, d decision) {
	r.t.Helper()
	if got := <-r.decides; got.ask != ask || got.d != d {
		r.t.Fatalf("want %s to be decided with %v, got %+v", ask, d, got)
	}
}

// The whole way: asked, answered, attached to the same turn, told. A handle is good for
// one retry, also while that one is still open, and only for its own call.
func TestInputRetryAttachesOnce(t *testing.T) {
	r := newRig(t, nil)
	w, state := r.park()
	r.cancelRequest(`1`, `null`) // what the client says of the answered request means nothing any more

	yes := retryWith(state, `{"ask-1":{"action":"accept"}}`)
	for _, c := range []struct{ params, words string }{
		{strings.Replace(yes, `"prompt":"x"`, `"prompt":"y"`, 1), "other arguments"},
		{strings.Replace(yes, `,"d":3`, "", 1), "other arguments"},
		{strings.Replace(yes, `"codex"`, `"codex-reply"`, 1), "another tool"},
		{strings.Replace(yes, state, "zz"+state[2:], 1), "unknown"}, // no letter that one has
		{strings.Replace(yes, state, "", 1), "unknown"},
		{strings.Replace(yes, `"requestState":"`+state+`",`, "", 1), "without the requestState"},
		{strings.Replace(yes, `"`+state+`"`, "null", 1), "without the requestState"},
	} {
		r.fails(r.ask("tools/call", c.params), codeInvalidSession, c.words)
	}
	failsWith(t, r.ask("tools/call", strings.Replace(yes, `"`+state+`"`, "5", 1)), codeInvalidParams)
	failsWith(t, r.ask("tools/call", retryWith(state, `"accept"`)), codeInvalidParams)
	if len(r.decides) != 0 {
		t.Fatalf("decided by a refused retry: %+v", <-r.decides)
	}

	// A request with other order and spelling is the same call.
	again := strings.Replace(retryWith(state, `{"ask-1":{"action":"accept","content":{}},"ask-9":{"action":"accept"}}`),
		codexArgs, `{ "config":{"b":{"d":3.0,"c":2},"a":1}, "prompt":"\u0078" }`, 1)
	r.request("1", "tools/call", withToken(again, `"p2"`))
	if d := <-r.decides; d.ask != "ask-1" || d.d != approve || d.by.who != byUser {
		t.Fatalf("decided %+v", d)
	}
	hasFields(t, r.next(), `{"method":"notifications/progress","params":{"progressToken":"p2"}}`)
	r.fails(r.ask("tools/call", retryWith(state, `{"ask-1":{"action":"decline"}}`)), codeInvalidSession, "used before")
	r.f.done(w, okTurn("said"))
	hasFields(t, r.answerTo("1"), `{"result":{"resultType":"complete","structuredContent":{"content":"said"}}}`)
	r.fails(r.ask("tools/call", retryWith(state, `{}`)), codeInvalidSession, "used before")
	if len(r.submits)+len(r.cancels)+len(r.decides) != 0 {
		t.Error("a retry began a turn, cancelled one or decided something else")
	}
	r.leftNothing()
}

// Only a modern client that declares forms is asked, and only what can be asked.
func TestInputOfClientsThatCannotBeAsked(t *testing.T) {
	r := newRig(t, nil)
	for caps, can := range map[string]bool{`{}`: false, `{"elicitation":{"url":{}}}`: false,
		`{"elicitation":null}`: false,
		`{"elicitation":true}`: false, `{"elicitation":{}}`: true} {
		s := r.begin("1", callWith(metaHead+caps+`}`, "codex", codexArgs, ""))
		unknown := inputAsk("ask-1")
		unknown.kind = askUnknown
		if can != (s.req.approvals == "client") || !can && r.asks(s.w, "ask-1") || r.f.ask(agentRef{}, s.w, unknown) ||
			r.asks(0, "ask-2") || r.asks(99, "ask-3") {
			t.Errorf("%s: approvals %q, or asked", caps, s.req.approvals)
		}
		r.f.done(s.w, okTurn("said"))
		r.answerTo("1")
	}
}

// What is asked while the client thinks, or as its retry comes, goes into the
// next answer; what it left out is asked again; what was withdrawn is not.
func TestInputSeveralAsks(t *testing.T) {
	r := newRig(t, nil)
	w, first := r.park()
	for _, ask := range []string{"ask-2", "ask-3", "ask-4"} {
		if !r.asks(w, ask) {
			t.Fatalf("%s was not taken", ask)
		}
	}
	r.f.askGone(agentRef{}, "ask-3", "timed out")
	r.retry("2", first, `{"ask-1":{"action":"accept"},"ask-3":{"action":"accept"},"ask-4":{"action":"cancel"}}`)
	second := r.parked("2", "ask-2")
	if second == first {
		t.Error("the handle came twice")
	}
	r.decided("ask-1", approve)
	r.decided("ask-4", deny)
	r.f.askGone(agentRef{}, "ask-2", "timed out")

	// Nothing is left to ask: the retry attaches, and is asked the next thing.
	r.retry("3", second, `{"ask-2":{"action":"accept"}}`)
	r.quiet()
	r.asks(w, "ask-5")
	third := r.parked("3", "ask-5")

	// A retry that can't be asked any more leaves nothing hanging.
	r.request("4", "tools/call", callWith(modernMeta, "codex", codexArgs, `,"requestState":"`+third+`"`))
	r.decided("ask-5", deny)
	if r.asks(w, "ask-6") {
		t.Error("asked a client that said it can't be")
	}
	r.f.done(w, okTurn("said"))
	r.answerTo("4")
	if len(r.decides) != 0 {
		t.Errorf("decided %+v", <-r.decides)
	}
}

// The turn ends while its client thinks: the result waits for the retry, errors too,
// and the late answer decides nothing. Cancelling the retry cancels the turn; one that
// timed out lets it go on.
func TestInputEndBeforeOrDuringTheRetry(t *testing.T) {
	r := newRig(t, nil)
	for want, result := range map[string]turnResult{
		`"content":"said"`: okTurn("said"),
		"REQUEST_TIMEOUT":  {err: proxyError(codeTimeout, "too long")},
	} {
		w, state := r.park()
		r.f.askGone(agentRef{}, "ask-1", "timed out")
		r.f.done(w, result)
		if r.asks(w, "ask-2") {
			t.Error("asked after the end of the turn")
		}
		params := retryWith(state, `{"ask-1":{"action":"accept"}}`)
		mustContain(t, string(resultOf(t, r.ask("tools/call", params))), want, `"resultType":"complete"`)
		r.fails(r.ask("tools/call", params), codeInvalidSession, "used before")
	}
	if len(r.decides)+len(r.cancels) != 0 {
		t.Error("a late answer decided something")
	}
	for reason, stops := range map[string]bool{`"user"`: true, `"Request timed out"`: false} {
		w, state := r.park()
		r.retry("2", state, `{"ask-1":{"action":"accept"}}`)
		r.decided("ask-1", approve)
		r.cancelRequest(`2`, reason)
		r.quiet()
		if n := len(r.cancels); (n == 1) != stops || n > 1 || n == 1 && <-r.cancels != w {
			t.Errorf("%s: cancelled %d times", reason, n)
		}
		if r.asks(w, "ask-2") {
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
		r := newRig(t, nil)
		park := func(content string) string {
			w, state := r.park()
			time.Sleep(time.Second)
			r.f.done(w, okTurn(content))
			return state
		}
		retry := func(state string) json.RawMessage { return r.ask("tools/call", retryWith(state, `{}`)) }
		a, b := park("a"), park("b")
		time.Sleep(parkedFor - 2*time.Second)
		mustContain(t, string(resultOf(t, retry(a))), `"content":"a"`)
		time.Sleep(2 * time.Second)
		r.fails(retry(b), codeInvalidSession, "expired")

		var states []string
		for i := range parkedResults + 1 {
			states = append(states, park(fmt.Sprint("n", i)))
		}
		if n := len(r.f.parked.turns); n != parkedResults {
			t.Errorf("%d results wait", n)
		}
		r.fails(retry(states[0]), codeInvalidSession, "expired")
		mustContain(t, string(resultOf(t, retry(states[1]))), `"content":"n1"`)
		big := park(strings.Repeat("x", parkedBytes))
		r.fails(retry(states[2]), codeInvalidSession, "expired")
		if n := len(resultOf(t, retry(big))); n < parkedBytes {
			t.Errorf("the newest result has %d bytes", n)
		}
		r.leftNothing()

		running, state := r.park()
		time.Sleep(3 * parkedFor) // an approval may be given more time than a result
		r.retry("2", state, `{"ask-1":{"action":"accept"}}`)
		r.decided("ask-1", approve)
		r.f.done(running, okTurn("said"))
		r.answerTo("2")
		r.end() // nothing of this outlives the front: the bubble would not end
	})
}

// Whatever order things come in, each request has one answer or was cancelled,
// each turn's result is told once, and no question is lost.
func TestInputAnswersOnce(t *testing.T) {
	t.Parallel()
	for seed := range int64(40) {
		rnd := rand.New(rand.NewSource(seed))
		asks, early := 1+rnd.Intn(4), rnd.Intn(3) == 0
		gap := [4]int{rnd.Intn(3), rnd.Intn(3), rnd.Intn(3), rnd.Intn(3)}
		var mu sync.Mutex // guards times
		times := map[string]int{}
		decided := make(chan string, 100)
		r := newRig(t, func(o *mcpOptions) {
			o.decide = func(_, ask string, _ decider, _ decision, _ map[string][]string) {
				mu.Lock()
				defer mu.Unlock()
				times[ask]++
				decided <- ask
			}
		})
		w := r.begin("0", callWith(askMeta, "codex", codexArgs, "")).w
		ended := make(chan bool)
		go func() { // the session: asks, sometimes withdraws, and ends when it likes
			defer close(ended)
			for i := range asks {
				id := fmt.Sprint("ask-", i)
				r.asks(w, id)
				switch {
				case early && gap[i] == 0:
				case gap[i] == 1:
					r.f.askGone(agentRef{}, id, "timed out")
				default:
					for got := ""; got != id; {
						got = <-decided
					}
				}
			}
			r.f.done(w, okTurn("said"))
		}()
		for id := 0; ; id++ {
			res := resultOf(t, r.answerTo(fmt.Sprint(id)))
			if stringField(res, "resultType") == "complete" {
				hasFields(t, res, `{"structuredContent":{"content":"said"}}`)
				break
			}
			answers := map[string]any{}
			_ = eachField(rawField(res, "inputRequests"), func(key string, _ json.RawMessage) bool {
				if rnd.Intn(4) > 0 {
					answers[key] = map[string]string{"action": "accept"}
				}
				return true
			})
			r.retry(fmt.Sprint(id+1), stringField(res, "requestState"), string(toJSON(answers)))
		}
		<-ended
		r.quiet()
		for ask, n := range times {
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
}

const taskOf = "codex:ab12/bg-7f3k2m"

func newTaskRig(t *testing.T) *taskRig {
	at := time.Date(2026, 11, 21, 14, 0, 0, 5e6, time.FixedZone("", 3600))
	r := &taskRig{approves: make(chan approveQuery, 10), interrupts: make(chan string, 10),
		turn: keptTurn{AgentID: "codex:ab12",
			Identity: "codex", TurnID: "bg-7f3k2m", Status: "running", Task: true,
			Created: at, Updated: at.Add(time.Second)}}
	r.mcpRig = newRig(t, func(o *mcpOptions) {
		o.turn = func(ref, turn string) (keptTurn, *rpcError) {
			if ref+"/"+turn != taskOf {
				return keptTurn{}, proxyError(codeSessionNotFound, "no such turn")
			}
			return r.turn, nil
		}
		o.approve = func(q approveQuery, done func(decision, *rpcError)) {
			r.approves <- q
			go done(q.Decision, nil)
		}
		o.interrupt = func(ref, turn string, done func(interruptResult, *rpcError)) {
			r.interrupts <- ref + "/" + turn
			go done(interruptResult{Interrupted: true}, nil)
		}
	})
	return r
}

func (r *taskRig) task(method, meta, more string) json.RawMessage {
	r.t.Helper()
	return r.ask(method, `{`+meta+`,"taskId":"`+taskOf+`"`+more+`}`)
}

// get polls, and checks what every state has.
func (r *taskRig) get(meta, status, want string) json.RawMessage {
	r.t.Helper()
	res := resultOf(r.t, r.task("tasks/get", meta, ""))
	hasFields(r.t, res, `{"resultType":"complete","status":"`+status+`","taskId":"`+taskOf+`",
		"createdAt":"2026-11-21T13:00:00.005Z","lastUpdatedAt":"2026-11-21T13:00:01.005Z"}`)
	hasFields(r.t, res, want)
	for name, of := range map[string]string{"inputRequests": "input_required", "result": "completed",
		"error": "failed"} {
		if (rawField(res, name) != nil) != (of == status) {
			r.t.Errorf("%s in a task that is %s: %s", name, status, res)
		}
	}
	return res
}

func TestTaskStates(t *testing.T) {
	r := newTaskRig(t)
	r.turn.Status = "queued"
	r.get(tasksMeta, "working", `{"statusMessage":"waiting for its turn"}`)
	r.turn.Status, r.turn.Activity = "running", "running make"
	r.get(tasksMeta, "working", `{"statusMessage":"running make"}`)
	ended := func(status, content string) turnResult {
		result := okTurn(content)
		result.TurnStatus = status
		return result
	}
	for _, c := range []struct {
		result  turnResult
		stopped bool // by tasks/cancel
		status  string
		want    string
	}{
		{okTurn("said"), false, "completed",
			`{"result":{"resultType":"complete","isError":"$absent","structuredContent":{"content":"said"}}}`},
		{ended("failed", "it broke"), false, "completed", `{"result":{"isError":true}}`},
		// An error of ours is a tool result for a modern client, so no failed task.
		{turnResult{err: proxyError(codeTimeout, "too long")}, false, "completed",
			`{"result":{"structuredContent":{"error":{"code":-32006}}}}`},
		{turnResult{err: badParams("no such thing")}, false, "failed",
			`{"error":{"code":-32602},"statusMessage":"$re:no such thing"}`},
		{ended("interrupted", "half"), false, "completed", `{}`}, // by a timeout, say
		{ended("interrupted", "half"), true, "cancelled", `{}`},
		{turnResult{err: proxyError(codeSessionClosed, "stopped in the queue")}, true, "cancelled", `{}`},
		{okTurn("quicker than the cancel"), true, "completed", `{}`},
	} {
		r.turn.Result, r.turn.Status, r.turn.Stopped = &c.result, c.result.TurnStatus, c.stopped
		r.get(tasksMeta, c.status, c.want)
	}
	resultOf(t, r.task("tasks/cancel", tasksMeta, "")) // too late, and fine
	if len(r.interrupts) != 0 {
		t.Error("an ended turn was interrupted")
	}
}

func TestTaskAsksAndIsCancelled(t *testing.T) {
	r := newTaskRig(t)
	r.turn.Pending = []askView{askOf(inputAsk("ask-1")), askOf(inputAsk("ask-2"))}
	res := r.get(tasksAskMeta, "input_required", `{"inputRequests":{
		"ask-1":{"method":"elicitation/create",
		"params":{"message":"$re:^Run .rm -r ask-1.\nasked by agent codex .codex:ab12"}},
		"ask-2":{"method":"elicitation/create","params":{"message":"$re:^Run .rm -r ask-2"}}}}`)
	r.get(tasksAskMeta, "input_required", `{"inputRequests":`+string(rawField(res,
		"inputRequests"))+`}`) // the same words at every poll
	// Who can't be asked is told how the caller decides.
	r.get(tasksMeta, "working", `{"statusMessage":"$re:ask-1.*agent_approve.*codex:ab12"}`)

	for _, c := range []struct{ responses, decides string }{
		{`{"ask-2":{"action":"accept","content":{}},"ask-7":{"action":"accept"}}`, "ask-2 approve;"},
		{`{"ask-1":{"action":"accept","content":{"x":"no"}},"ask-2":{"decision":"denied"}}`, "ask-1 deny;ask-2 deny;"},
		{`{"ask-3":{"action":"accept"}}`, ""},
	} {
		rec := r.task("tasks/update", tasksAskMeta, `,"inputResponses":`+c.responses)
		hasFields(t, rec, `{"result":{"resultType":"complete","taskId":"$absent"}}`)
		said := ""
		for len(r.approves) > 0 {
			q := <-r.approves
			said += q.Ask + " " + q.Decision.String() + ";"
			if q.Agent != "codex:ab12" || q.Action != "rm -r "+q.Ask || q.Decision == approve && q.By.who != byUser {
				t.Errorf("decided %+v", q)
			}
		}
		if said != c.decides {
			t.Errorf("%s: %s", c.responses, said)
		}
	}
	hasFields(t, r.task("tasks/cancel", tasksMeta, ""), `{"result":{"resultType":"complete","status":"$absent"}}`)
	want(t, receive(t, r.interrupts), taskOf)
}

func TestTaskErrors(t *testing.T) {
	r := newTaskRig(t)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		hasFields(t, r.task(method, modernMeta, `,"inputResponses":{}`),
			`{"error":{"code":-32021,"data":{"requiredCapabilities":{"extensions":{"`+tasksExtension+`":{}}}}}}`)
		failsWith(t, r.ask(method, `{"taskId":"`+taskOf+`"}`), codeNoMethod) // of a legacy client
	}
	for _, id := range []string{`"codex:ab12/bg-other"`, `"codex:zz99/bg-7f3k2m"`, `"nonsense"`, `"/"`, `5`} {
		failsWith(t, r.ask("tasks/get", `{`+tasksMeta+`,"taskId":`+id+`}`), codeInvalidParams)
	}
	for _, more := range []string{"", `,"inputResponses":[]`, `,"inputResponses":null`} {
		failsWith(t, r.task("tasks/update", tasksMeta, more), codeInvalidParams)
	}
	r.turn.Task = false // a background turn
	failsWith(t, r.task("tasks/get", tasksMeta, ""), codeInvalidParams, "agent_wait")
	failsWith(t, r.task("tasks/list", tasksMeta, ""), codeNoMethod) // of 2025-11-25
}

// Only server/discover tells of tasks, and only a turn of a client that declares the
// extension on the call becomes one. Where elicitation is declared too the client's
// user decides, by the task.
func TestTaskIsNegotiated(t *testing.T) {
	r := newRig(t, nil)
	hasFields(t, r.ask("server/discover", modernOnly),
		`{"result":{"capabilities":{"extensions":{"`+tasksExtension+`":{}}}}}`)
	hello := r.hello("2025-11-25", `{"extensions":{"`+tasksExtension+`":{}},"tasks":{}}`, "x")
	hasFields(t, hello, `{"result":{"capabilities":{"extensions":"$absent"}}}`)
	const prompt = `{"prompt":"x"}`
	for params, want := range map[string]string{
		// The first is a legacy one.
		`{"task":{},"name":"codex","arguments":{"prompt":"x"}}`:                                          "false ",
		callWith(modernMeta, "codex", prompt, ""):                                                        "false ",
		callWith(metaHead+`{"tasks":{},"extensions":{"`+tasksExtension+`":true}}}`, "codex", prompt, ""): "false ",
		callWith(tasksMeta, "codex", prompt, ""):                                                         "true caller",
		callWith(tasksAskMeta, "codex-reply", `{"agent_id":"codex:ab12","prompt":"x"}`, ""):              "true client",
		callWith(tasksAskMeta, "codex", `{"agent_id":"codex:ab12"}`,
			""): "false client", // no turn
	} {
		s := r.begin("1", params)
		if got := fmt.Sprint(s.req.task, " ", s.req.approvals); got != want || s.req.background != s.req.task {
			t.Errorf("%s: submitted %+v", params, s.req)
		}
		// A turn that could not be accepted is no task.
		r.f.done(s.w, turnResult{err: proxyError(codeMaxSessions, "too many")})
		mustContain(t, string(r.answerTo("1")), "MAX_SESSIONS_EXCEEDED")
	}
	accepted := turnResult{AgentID: "codex:ab12", TurnID: "bg-1", TurnStatus: "running"}
	w := r.begin("1", withToken(callWith(tasksMeta, "codex", prompt, ""), "1")).w
	r.f.event(agentRef{}, w, &event{kind: evStarted, turn: "u1"}) // a task has no progress
	r.f.done(w, accepted)
	hasFields(t, r.answerTo("1"), `{"result":{"resultType":"task","taskId":"codex:ab12/bg-1","status":"working",
	"ttlMs":null,"pollIntervalMs":1000,
		"createdAt":"$re:Z$","lastUpdatedAt":"$re:Z$","content":"$absent",
		"_meta":{"`+metaPrefix+`serverInfo":{"name":"`+serverName+`"}}}}`)
	// Cancelled before it was accepted: the turn is dropped and nobody told.
	w = r.begin("1", callWith(tasksMeta, "codex", prompt, "")).w
	r.cancelRequest(`1`, `null`)
	if c := <-r.cancels; c != w {
		t.Errorf("%+v", c)
	}
	r.f.done(w, accepted)
	r.quiet()
}
