package main

// mcp_wait_test.go holds agent_wait at the front: its arguments, its progress, a
// result that fits what a model is shown, and its end by a cancel. The test
// answers in place of the hub.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// waitRig is a front whose hub lets the test answer each wait.
type waitRig struct {
	*mcpRig
	waits chan waited
}

type waited struct {
	q    waitQuery
	done func(waitResult, *rpcError)
	stop chan bool // told when the front stops it
}

func newWaitRig(t *testing.T, modern bool, change func(*mcpOptions)) *waitRig {
	w := &waitRig{waits: make(chan waited, 10)}
	w.mcpRig = newRig(t, func(o *mcpOptions) {
		o.ForwardEvents = "off"
		o.wait = func(q waitQuery, done func(waitResult, *rpcError)) func() {
			stop := make(chan bool, 1)
			w.waits <- waited{q, done, stop}
			return func() {
				select {
				case stop <- true:
				default:
				}
			}
		}
		if change != nil {
			change(o)
		}
	})
	if w.modern = modern; !modern {
		w.hello("2025-11-25", "{}", "x")
	}
	return w
}

// call sends an agent_wait; token is a progress token, "" for none.
func (w *waitRig) call(id, token, args string) {
	params := callParams(w.modern, "agent_wait", args)
	if token != "" {
		params = `{"_meta":{"progressToken":` + token + `},` + strings.TrimPrefix(params, "{")
	}
	w.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + params + `}`)
}

func TestWaitArguments(t *testing.T) {
	w := newWaitRig(t, false, nil)
	for i, c := range []struct {
		args string
		want waitQuery
	}{
		{`{"agent_id":"codex:a"}`, waitQuery{Own: true, Agents: []string{"codex:a"}, Timeout: 45 * time.Second}},
		{`{"conversationId":"t-1"}`, waitQuery{Own: true, Agents: []string{"t-1"}, Timeout: 45 * time.Second}},
		{`{"agent_ids":["codex:a"," codex:b","codex:a"],"all":true,"since":1790000000000000,"timeout_secs":0.5}`,
			waitQuery{Own: true, Agents: []string{"codex:a", "codex:b"}, All: true, Since: 1790000000000000, Timeout: 500 * time.Millisecond}},
		{`{"agent_id":"codex:a","timeout_secs":0,"since":0,"all":false}`, waitQuery{Own: true, Agents: []string{"codex:a"}, Timeout: 1}},
		{`{"agent_id":"codex:a","timeout_secs":3600,"since":9007199254740991}`, waitQuery{Own: true, Agents: []string{"codex:a"}, Since: 9007199254740991, Timeout: time.Hour}},
	} {
		w.call(fmt.Sprint(i), "", c.args)
		got := <-w.waits
		if fmt.Sprint(got.q) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v", c.args, got.q)
		}
		got.done(waitResult{}, nil)
		w.next()
	}
}

// manyThings has of everything that agent_wait can tell.
func manyThings() waitResult {
	ok := okTurn("the answer")
	ok.Declined, ok.Notes = []declined{{"command", "rm -rf x", "client"}}, []string{"A note."}
	failed := okTurn("")
	failed.TurnStatus, failed.Usage = "failed", nil
	late := turnResult{err: proxyError(codeTimeout, "silent for 5m", "agent_id", "codex:a", "turn_id", "u-3", "partial", "half an answer")}
	return waitResult{Seq: 77, Agents: []waitAgent{
		{View: sessionView{AgentID: "codex:a", BackendID: "t-1", Identity: "arch", Status: "busy", Activity: "waiting for approval", Source: "client", Queued: 2, LastError: "e",
			Pending: []askView{askOf(everyAsk())}}, Turns: []keptTurn{
			{TurnID: "bg-1", Seq: 70, Status: "completed", Result: &ok},
			{TurnID: "u-2", Seq: 71, Status: "failed", Source: sourceMail, Result: &failed},
			{TurnID: "u-3", Seq: 72, Status: "failed", Result: &late},
			{TurnID: "bg-4", Status: "running", Activity: "running `ls`"},
		}},
		{View: sessionView{AgentID: "codex:b", Identity: "bob", Status: "idle"}},
	}}
}

func TestWaitTellsEverything(t *testing.T) {
	for _, modern := range []bool{false, true} {
		w := newWaitRig(t, modern, nil)
		w.call("1", "", `{"agent_ids":["codex:a","codex:b"]}`)
		(<-w.waits).done(manyThings(), nil)
		rec := w.next()
		fits(t, w.mcpRig, "agent_wait", rec)
		structured := rawField(rec, "result", "structuredContent")
		var got struct {
			Seq    int64
			Next   string
			Agents []struct {
				Turns   []map[string]any
				Pending []map[string]any `json:"pending_approvals"`
			}
		}
		if err := json.Unmarshal(structured, &got); err != nil || got.Seq != 77 || len(got.Agents) != 2 || len(got.Agents[0].Turns) != 4 {
			t.Fatalf("%v: %s", err, structured)
		}
		turns := got.Agents[0].Turns
		for i, want := range []map[string]any{
			{"turn_id": "bg-1", "turn_status": "completed", "content": "the answer", "duration_ms": 1500.0, "sandbox": "workspace-write", "seq": 70.0},
			{"turn_id": "u-2", "turn_status": "failed", "source": "mail", "content": "the turn failed without an answer"},
			{"turn_id": "u-3", "turn_status": "failed", "content": "half an answer"},
			{"turn_id": "bg-4", "turn_status": "running", "activity": "running `ls`", "content": nil},
		} {
			for key, val := range want {
				if turns[i][key] != val {
					t.Errorf("turn %d: %s is %v, want %v", i, key, turns[i][key], val)
				}
			}
		}
		problem, _ := turns[2]["error"].(map[string]any)
		if problem["name"] != "REQUEST_TIMEOUT" || problem["code"] != float64(codeTimeout) || problem["error_source"] != "proxy" || problem["partial"] != nil {
			t.Errorf("error %v", problem)
		}
		mustContain(t, string(structured), `"declined":[{"kind":"command","action":"rm -rf x","reason":"client"}]`, `"notes":["A note."]`, `"total_tokens":120`,
			`"approval_id":"ask-1"`, `"turn_source":"client"`, `"queued":2`, `"last_error":"e"`)
		if got.Agents[1].Turns == nil || got.Agents[1].Pending == nil || rawField(structured, "timed_out") != nil {
			t.Errorf("nothing must be an empty list: %s", structured)
		}
		mustContain(t, got.Next, "agent_approve", "since 77")
		var texts struct{ Content []textBlock }
		if err := json.Unmarshal(resultOf(t, rec), &texts); err != nil || len(texts.Content) != 1 {
			t.Fatal(err)
		}
		w.call("2", "", `{"agent_id":"codex:x"}`)
		(<-w.waits).done(waitResult{}, proxyError(codeSessionNotFound, "no agent codex:x"))
		if e := w.failure(w.next()); e.Code != codeSessionNotFound {
			t.Errorf("%+v", e)
		}
		mustContain(t, texts.Content[0].Text, "codex:a", "arch", "the answer", "rm -rf x", "A note.", "REQUEST_TIMEOUT", "ask-1", `agent_approve {"agent_id":"codex:a"`, "bob, is idle", "since 77")
	}
}

// What agent_wait says to do next, for every state that it can find: it never says
// to wait for what has been told, or where nothing will come.
func TestWaitNextStep(t *testing.T) {
	two, none := 2, 0
	view := func(status, identity, auto string, mail *int, change func(*sessionView)) waitAgent {
		v := sessionView{AgentID: "codex:" + identity, Identity: identity, Status: status, AutoMail: auto, PendingMail: mail}
		if change != nil {
			change(&v)
		}
		return waitAgent{View: v}
	}
	idle, busy, closed := view("idle", "ann", "on", nil, nil), view("busy", "bob", "on", nil, nil), view("closed", "zoe", "", nil, nil)
	queued := view("idle", "ann", "on", nil, func(v *sessionView) { v.Queued = 1 })
	asking := view("busy", "bob", "on", &two, func(v *sessionView) { v.Pending = []askView{{}} })
	const again = "call agent_wait again with since 5"
	nothing := "No turn runs or waits, so there is nothing to wait for; "
	for _, c := range []struct {
		name string
		r    waitResult
		want string
	}{
		{"idle", waitResult{Agents: []waitAgent{idle}}, nothing + "codex-reply continues codex:ann."},
		{"finished", waitResult{Agents: []waitAgent{{View: idle.View, Turns: []keptTurn{{}}}}}, ""},
		{"closed and idle", waitResult{Agents: []waitAgent{idle, closed}}, nothing + "codex-reply continues codex:ann; codex {agent_id, prompt} reopens codex:zoe."},
		{"broken", waitResult{Agents: []waitAgent{view("broken", "eve", "", nil, nil)}}, nothing + "codex {agent_id, prompt} reopens codex:eve."},
		{"parked, stale", waitResult{Agents: []waitAgent{view("parked", "eve", "off", &two, nil), view("stale", "ann", "", nil, nil)}}, nothing + "codex-reply continues codex:eve, codex:ann."},
		{"working", waitResult{Agents: []waitAgent{idle, busy}}, "Turns are still running: " + again + ", or do other work first."},
		{"timed out", waitResult{TimedOut: true, Agents: []waitAgent{busy}}, "Turns are still running: " + again + ", or do other work first."},
		{"queued", waitResult{Agents: []waitAgent{queued}}, "Turns are still running: " + again + ", or do other work first."},
		{"asked", waitResult{Agents: []waitAgent{busy, asking}, Own: mailBox{Unread: 1}}, "Decide each of pending_approvals with agent_approve {agent_id, approval_id, action, decision}, action repeated word for word; then " + again + "."},
		{"its mail waits", waitResult{Agents: []waitAgent{view("idle", "ann", "off", &two, nil), busy}}, `Read the mail of ann with atm_read {"identity": "ann"}; then ` + again + "."},
		{"its mail waits, nothing runs", waitResult{Agents: []waitAgent{view("idle", "ann", "paused: too many", &two, nil)}}, `Read the mail of ann with atm_read {"identity": "ann"}.`},
		{"no mail", waitResult{Agents: []waitAgent{view("idle", "ann", "off", &none, nil)}}, nothing + "codex-reply continues codex:ann."},
		{"its mail is another's", waitResult{Agents: []waitAgent{view("idle", "ann", "paused: another", &two, func(v *sessionView) { v.barred = true })}}, nothing + "codex-reply continues codex:ann."},
		{"own mail", waitResult{Agents: []waitAgent{idle}, Own: mailBox{Name: "lead", Unread: 1, Ours: true}}, "Read your mail with atm_read {}."},
		{"own mail, working", waitResult{Agents: []waitAgent{busy}, Own: mailBox{Name: "lead", Unread: 1, Ours: true}}, "Read your mail with atm_read {}; then " + again + "."},
		{"inbox of ours", waitResult{Inbox: mailBox{Name: "ann", Unread: 1, Ours: true}}, `Read the mail of ann with atm_read {"inbox": "ann"}; then ` + again + "."},
		{"inbox of another", waitResult{Inbox: mailBox{Name: "Arch", Unread: 1}}, `atm_read {"inbox": "Arch"} shows the mail of Arch, which stays unread until its owner reads it; to hear of newer mail ` + again + "."},
		{"empty inbox", waitResult{Inbox: mailBox{Name: "Arch"}, Agents: []waitAgent{idle}}, "No mail for Arch yet: to wait on, " + again + "."},
	} {
		if c.r.Seq = 5; nextStep(&c.r, "") != c.want {
			t.Errorf("%s: %s", c.name, nextStep(&c.r, ""))
		}
	}

	// One turn was asked for: since would be refused beside turn_id, and what the agent does after that turn is not waited for.
	ended, runs := []keptTurn{{TurnID: "t1", Result: &turnResult{}, Status: "completed"}}, []keptTurn{{TurnID: "t1", Status: "running"}}
	for _, c := range []struct {
		agent waitAgent
		want  string
	}{
		{waitAgent{View: busy.View, Turns: ended}, ""},
		{waitAgent{View: busy.View, Turns: runs}, "The turn has not ended: call agent_wait again with turn_id t1, or do other work first."},
		{waitAgent{View: asking.View, Turns: runs}, "Decide each of pending_approvals with agent_approve {agent_id, approval_id, action, decision}, action repeated word for word; then call agent_wait again with turn_id t1."},
	} {
		if said := nextStep(&waitResult{Seq: 5, Agents: []waitAgent{c.agent}}, "t1"); said != c.want {
			t.Errorf("with turn_id: %s", said)
		}
	}
}

// Cancelling agent_wait ends the hub's wait, whichever is first, and answers
// nothing.
func TestWaitIsCancelled(t *testing.T) {
	w := newWaitRig(t, false, nil)
	w.call("1", "", `{"agent_id":"codex:a"}`)
	got := <-w.waits
	w.cancelRequest(`1`, `null`)
	<-got.stop
	got.done(manyThings(), nil) // it was on its way
	w.quiet()
	if len(w.cancels) != 0 {
		t.Error("a wait is no turn to cancel")
	}
}

func TestWaitProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var doing atomic.Value
		doing.Store("running `go test`")
		w := newWaitRig(t, false, func(o *mcpOptions) {
			o.status = func() statusView {
				return statusView{Agents: []sessionView{{AgentID: "codex:a", Identity: "arch", Activity: doing.Load().(string)}, {AgentID: "codex:b", BackendID: "t-b", Status: "idle"}, {AgentID: "codex:c", Activity: "no"}}}
			}
		})
		w.call("1", `"tok"`, `{"agent_ids":["codex:a","t-b","codex:gone"],"timeout_secs":300}`)
		got := <-w.waits
		began := time.Now()
		for _, want := range []struct {
			at   time.Duration
			text string
		}{
			{time.Second, "arch: running `go test`; codex:b: idle"},
			{11 * time.Second, "arch: running `go test`; codex:b: idle (10s)"},
			{21 * time.Second, "arch: writing; codex:b: idle"},
		} {
			token, _, text := progressOf(t, w.next())
			if at := time.Since(began); token != `"tok"` || at != want.at || text != want.text {
				t.Errorf("at %v token %s %q; want %+v", at, token, text, want)
			}
			if want.at == 11*time.Second {
				doing.Store("writing")
			}
		}
		got.done(waitResult{Seq: 1}, nil)
		resultOf(t, w.next())
		time.Sleep(time.Minute)
		w.quiet()
		w.end()
	})
}

// turn_id waits for that turn and no other, and brings its answer whole.
func TestWaitForOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := keptTurn{AgentID: "codex:a", Identity: "arch", TurnID: "bg-1", Status: "running", Activity: "thinking"}
		var unknown *rpcError
		w := newWaitRig(t, false, func(o *mcpOptions) {
			o.turn = func(ref, turn string) (keptTurn, *rpcError) {
				if ref != "codex:a" || turn != "bg-1" {
					t.Errorf("turn %s of %s", turn, ref)
				}
				return kept, unknown
			}
		})
		view := sessionView{AgentID: "codex:a", Identity: "arch", Status: "busy"}
		another := keptTurn{TurnID: "u-9", Status: "completed", Result: &turnResult{Content: "another's"}}
		w.call("1", "", `{"agent_id":"codex:a","turn_id":"bg-1","timeout_secs":60}`)
		first := <-w.waits
		if first.q.Timeout != 1 || first.q.Since != 0 {
			t.Errorf("first %+v", first.q)
		}
		first.done(waitResult{Seq: 5, TimedOut: true, Agents: []waitAgent{{View: view}}}, nil)
		second := <-w.waits
		if second.q.Since != 5 || second.q.Timeout != time.Minute {
			t.Errorf("second %+v", second.q)
		}
		time.Sleep(20 * time.Second)
		second.done(waitResult{Seq: 6, Agents: []waitAgent{{View: view, Turns: []keptTurn{another}}}}, nil) // not ours: wait on
		third := <-w.waits
		if third.q.Since != 6 || third.q.Timeout != 40*time.Second {
			t.Errorf("third %+v", third.q)
		}
		long := strings.Repeat("x", 3*waitBudget)
		done := okTurn(long)
		kept.Result, kept.Status, kept.Seq = &done, "completed", 7
		third.done(waitResult{Seq: 8, Agents: []waitAgent{{View: view, Turns: []keptTurn{another, kept}}}}, nil)
		rec := w.next()
		fits(t, w.mcpRig, "agent_wait", rec)
		structured := string(rawField(rec, "result", "structuredContent"))
		if strings.Contains(structured, "another") || !strings.Contains(structured, long) || !strings.Contains(structured, `"seq":8`) {
			t.Errorf("%.300s", structured)
		}

		kept.Result, kept.Status = nil, "running"
		w.call("2", "", `{"agent_id":"codex:a","turn_id":"bg-1","timeout_secs":10}`)
		(<-w.waits).done(waitResult{Seq: 9, TimedOut: true, Agents: []waitAgent{{View: view}}}, nil)
		late := <-w.waits
		time.Sleep(10 * time.Second)
		late.done(waitResult{Seq: 10, TimedOut: true, Agents: []waitAgent{{View: view}}}, nil)
		mustContain(t, string(resultOf(t, w.next())), `"timed_out":true`, `"activity":"thinking"`)

		w.call("5", "", `{"agent_id":"codex:a","turn_id":"bg-1"}`)
		(<-w.waits).done(waitResult{Seq: 10, TimedOut: true, Agents: []waitAgent{{View: view}}}, nil)
		(<-w.waits).done(waitResult{Seq: 10, Agents: []waitAgent{{View: view}}}, nil) // at shutdown: asking on would spin
		if ending := string(resultOf(t, w.next())); !strings.Contains(ending, `"turn_status":"running"`) || strings.Contains(ending, "timed_out") {
			t.Errorf("%s", ending)
		}

		view.Pending = []askView{askOf(everyAsk())} // the agent stands still: tell it at once
		w.call("3", "", `{"agent_id":"codex:a","turn_id":"bg-1"}`)
		(<-w.waits).done(waitResult{Seq: 11, Agents: []waitAgent{{View: view}}}, nil)
		asked := string(rawField(w.next(), "result", "structuredContent"))
		if mustContain(t, asked, `"approval_id":"ask-1"`); strings.Contains(asked, "timed_out") {
			t.Errorf("%s", asked)
		}

		unknown = proxyError(codeSessionNotFound, "no such turn")
		w.call("4", "", `{"agent_id":"codex:a","turn_id":"bg-1"}`)
		(<-w.waits).done(waitResult{Seq: 12}, nil)
		if code, _, _ := errorOf(t, w.next()); code != codeSessionNotFound {
			t.Errorf("code %d", code)
		}
		w.end()
	})
}

func TestLongAnswersAreCutFairly(t *testing.T) {
	for _, c := range []struct {
		sizes        []int
		budget, want int
	}{
		{nil, 10, 10}, {[]int{3, 4}, 10, 3}, {[]int{5, 5}, 10, 0}, {[]int{20}, 10, 10},
		{[]int{20, 2}, 10, 8}, {[]int{1, 20, 1, 20}, 10, 4},
	} {
		whole := wholeUpTo(slices.Clone(c.sizes), c.budget)
		total, all := 0, 0
		for _, s := range c.sizes {
			total += min(s, whole)
			all += s
		}
		if all > c.budget && (whole != c.want || total > c.budget) {
			t.Errorf("%v in %d: %d, want %d", c.sizes, c.budget, whole, c.want)
		}
		if all <= c.budget && slices.ContainsFunc(c.sizes, func(s int) bool { return s > whole }) {
			t.Errorf("%v fit into %d and are cut to %d", c.sizes, c.budget, whole)
		}
	}
	w := newWaitRig(t, false, nil)
	w.call("1", "", `{"agent_id":"codex:a"}`)
	short, long := okTurn("short"), okTurn(strings.Repeat("é", waitBudget))
	(<-w.waits).done(waitResult{Agents: []waitAgent{{View: sessionView{AgentID: "codex:a", Status: "idle"},
		Turns: []keptTurn{{TurnID: "u-1", Status: "completed", Result: &short}, {TurnID: "u-2", Status: "completed", Result: &long}}}}}, nil)
	rec := w.next()
	fits(t, w.mcpRig, "agent_wait", rec)
	structured := string(rawField(rec, "result", "structuredContent"))
	mustContain(t, structured, `"content":"short"`, fmt.Sprintf(`"content_bytes":%d`, 2*waitBudget), "agent_id codex:a and turn_id u-2 brings all of it")
	if len(structured) > waitBudget+2000 {
		t.Errorf("%d bytes", len(structured))
	}
}

// Mail of an inbox beside the client's own: what is asked of the hub, and told.
func TestWaitForMail(t *testing.T) {
	w := newWaitRig(t, false, nil)
	three := 3
	for _, c := range []struct {
		args, inbox string
		r           waitResult
		says        []string
	}{
		{`{"inbox":"team-lead"}`, "team-lead", waitResult{Seq: 9, Inbox: mailBox{Name: "team-lead", Unread: 3}},
			[]string{"Unread messages of team-lead: 3.", `"unread":3`, `"agents":[]`, "stays unread", "agent_wait again with since 9"}},
		{`{"agent_id":"codex:ab12","inbox":"nobody"}`, "nobody", waitResult{Seq: 9, Inbox: mailBox{Name: "nobody"},
			Agents: []waitAgent{{View: sessionView{AgentID: "codex:ab12", Identity: "ann", Status: "idle", AutoMail: "on", PendingMail: &three}}}},
			[]string{`"auto_mail":"on"`, `"unread":0`, "No mail for nobody yet"}}, // ann's is delivered to her
	} {
		w.call("1", "", c.args)
		got := <-w.waits
		if got.q.Inbox != c.inbox || len(got.q.Agents) != len(c.r.Agents) {
			t.Errorf("%s: %+v", c.args, got.q)
		}
		got.done(c.r, nil)
		mustContain(t, string(w.next()), c.says...)
	}
}
