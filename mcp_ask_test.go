package main

// mcp_ask_test.go holds input_required to the 2026-07-28 revision: a handle is
// taken once, by the same call, and a retry goes on with its turn and never begins
// one, in whatever order answers, ends and cancels come.

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

const elicitMetaJSON = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// inputCall writes the params of a call by a modern client that can be asked;
// more begins with a comma.
func inputCall(tool, args, more string) string {
	return `{` + elicitMetaJSON + `,"name":"` + tool + `","arguments":` + args + more + `}`
}

func inputAsk(id string) approval {
	return approval{id: id, kind: askCommand, action: "rm -r " + id, command: "rm -r " + id, thread: "01a1"}
}

var parkedAgent = agentRef{AgentID: "codex:ab12", Thread: "01a1", Identity: "codex"}

// begin sends a call and returns its waiter.
func (r *mcpRig) begin(id, params string) waiterID {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + params + `}`)
	return (<-r.submits).w
}

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

func (r *mcpRig) refused(rec json.RawMessage, words string) {
	r.t.Helper()
	res := resultOf(r.t, rec)
	if string(rawField(res, "isError")) != "true" || string(rawField(res, "structuredContent", "error", "code")) != "-32007" {
		r.t.Fatalf("want a refusal with %q, got %s", words, rec)
	}
	mustContain(r.t, stringField(res, "structuredContent", "error", "message"), words)
}

const codexArgs = `{"prompt":"x","config":{"a":1,"b":{"c":2,"d":3}}}`

// The whole way: asked, answered, attached to the same turn, told.
func TestInputRetryAttaches(t *testing.T) {
	r := newRig(t, nil)
	w := r.begin("1", inputCall("codex", codexArgs, ""))
	if !r.f.ask(parkedAgent, w, inputAsk("ask-1")) {
		t.Fatal("a modern client with elicitation can be asked")
	}
	state := r.parked("1", "ask-1")

	// What the client says of the answered request means nothing any more.
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
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
	if len(r.f.parked.turns)+len(r.f.parked.states)+len(r.f.waiters)+len(r.f.open) != 0 {
		t.Error("something is left behind")
	}
}

// A handle is good for one retry, also while that one is still open, and only
// for its own call.
func TestInputHandleIsSingleUse(t *testing.T) {
	r := newRig(t, nil)
	w := r.begin("1", inputCall("codex", codexArgs, ""))
	r.f.ask(parkedAgent, w, inputAsk("ask-1"))
	state := r.parked("1", "ask-1")

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

func TestInputOfClientsThatCannotBeAsked(t *testing.T) {
	r := newRig(t, nil)
	for _, caps := range []string{`{}`, `{"elicitation":{"url":{}}}`, `{"elicitation":null}`, `{"elicitation":true}`} {
		params := strings.Replace(inputCall("codex", `{"prompt":"x"}`, ""), `{"elicitation":{}}`, caps, 1)
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`)
		s := <-r.submits
		if s.req.approvals != "" || r.f.ask(parkedAgent, s.w, inputAsk("ask-1")) {
			t.Errorf("%s: asked", caps)
		}
		r.f.done(s.w, okTurn("said"))
		resultOf(t, r.next())
	}
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + inputCall("codex", `{"prompt":"x"}`, "") + `}`)
	s := <-r.submits
	if s.req.approvals != "client" {
		t.Errorf("approvals %q", s.req.approvals)
	}
	q := inputAsk("ask-1")
	q.kind = askUnknown
	if r.f.ask(parkedAgent, s.w, q) || r.f.ask(parkedAgent, 0, inputAsk("ask-2")) || r.f.ask(parkedAgent, 99, inputAsk("ask-3")) {
		t.Error("asked what nobody can be asked")
	}
	r.f.done(s.w, okTurn("said"))
	resultOf(t, r.next())
}

// What is asked while the client thinks, or as its retry comes, goes into the
// next answer; what it left out is asked again; what was withdrawn is not.
func TestInputSeveralAsks(t *testing.T) {
	r := newRig(t, nil)
	w := r.begin("1", inputCall("codex", codexArgs, ""))
	for i := 1; i <= 4; i++ {
		if !r.f.ask(parkedAgent, w, inputAsk(fmt.Sprint("ask-", i))) {
			t.Fatalf("ask-%d was not taken", i)
		}
	}
	first := r.parked("1", "ask-1")
	r.f.askGone(parkedAgent, "ask-3", "timed out")

	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` +
		inputCall("codex", codexArgs, retryWith(first, `{"ask-1":{"action":"accept"},"ask-3":{"action":"accept"},"ask-4":{"action":"cancel"}}`)) + `}`)
	second := r.parked("2", "ask-2")
	if second == first {
		t.Error("the handle came twice")
	}
	if a, b := <-r.decides, <-r.decides; a.ask != "ask-1" || a.d != approve || b.ask != "ask-4" || b.d != deny {
		t.Fatalf("decided %+v, %+v", a, b)
	}
	r.f.askGone(parkedAgent, "ask-2", "timed out")

	// Nothing is left to ask: the retry attaches, and is asked the next thing.
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":` + inputCall("codex", codexArgs, retryWith(second, `{"ask-2":{"action":"accept"}}`)) + `}`)
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
	r := newRig(t, nil)
	for _, c := range []struct {
		result turnResult
		want   string
	}{
		{okTurn("said"), `"content":"said"`},
		{turnResult{err: proxyError(codeTimeout, "too long")}, "REQUEST_TIMEOUT"},
	} {
		w := r.begin("1", inputCall("codex", codexArgs, ""))
		r.f.ask(parkedAgent, w, inputAsk("ask-1"))
		state := r.parked("1", "ask-1")
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
	r := newRig(t, nil)
	for _, reason := range []string{"user", "Request timed out"} {
		w := r.begin("1", inputCall("codex", codexArgs, ""))
		r.f.ask(parkedAgent, w, inputAsk("ask-1"))
		state := r.parked("1", "ask-1")
		r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + inputCall("codex", codexArgs, retryWith(state, `{"ask-1":{"action":"accept"}}`)) + `}`)
		<-r.decides
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"` + reason + `"}}`)
		if c := <-r.cancels; c.w != w || c.detach != (reason != "user") {
			t.Errorf("%s: %+v", reason, c)
		}
		if r.f.ask(parkedAgent, w, inputAsk("ask-2")) {
			t.Error("nobody is left to be asked")
		}
		r.f.done(w, okTurn("late"))
		r.quiet()
		if len(r.f.parked.turns)+len(r.f.parked.states) != 0 {
			t.Error("a cancelled turn is still parked")
		}
	}
}

// A result waits an hour, and only so many of them wait.
func TestInputResultsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		park := func(content string) string {
			w := r.begin("1", inputCall("codex", codexArgs, ""))
			r.f.ask(parkedAgent, w, inputAsk("ask-1"))
			state := r.parked("1", "ask-1")
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
		if n := len(r.f.parked.turns) + len(r.f.parked.states); n != 0 {
			t.Errorf("%d left", n)
		}
		running := r.begin("1", inputCall("codex", codexArgs, ""))
		r.f.ask(parkedAgent, running, inputAsk("ask-1"))
		state := r.parked("1", "ask-1")
		time.Sleep(3 * parkedFor) // an approval may be given more time than a result
		r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + inputCall("codex", codexArgs, retryWith(state, `{"ask-1":{"action":"accept"}}`)) + `}`)
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
		r := newRig(t, func(o *mcpOptions) {
			o.decide = func(ask string, _ decider, _ decision, _ map[string][]string) bool {
				mu.Lock()
				defer mu.Unlock()
				decided[ask]++
				return true
			}
		})
		w := r.begin("0", inputCall("codex", codexArgs, ""))
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
		if n := len(r.f.parked.turns) + len(r.f.parked.states) + len(r.f.open); n != 0 {
			t.Errorf("seed %d: %d left behind", seed, n)
		}
		r.end()
	}
}
