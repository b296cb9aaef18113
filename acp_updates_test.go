package main

// acp_updates_test.go plays recordings of real app-servers to the ACP encoder
// and compares its updates with the golden file of each; beside them stand the
// rules of a turn: what belongs to it, how it ends, what comes too late.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestACPRecordings holds the updates of real turns, live and as they are told
// when the same session is loaded.
func TestACPRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/app-server-*.jsonl")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, name := range files {
		base := strings.TrimSuffix(filepath.Base(name), ".jsonl")
		t.Run(base, func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var lines []recorded
			for line := range strings.Lines(string(data)) {
				var l recorded
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, l)
			}
			synctest.Test(t, func(t *testing.T) {
				r := newACPRig(t, acpEncoding{Cwd: "/home/u/project", Notices: true})
				r.replayACP(lines)
				got := strings.ReplaceAll(strings.Join(r.all(), "\n"), r.x.own, "OWN") + "\n"
				wantGolden(t, "testdata/acp/"+base+".golden", got)
			})
		})
	}
}

// TestACPTurn: nothing before a turn, nothing of it after its end, and of a
// review's two ids either.
func TestACPTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.delta("m0", "early")
		r.item("started", `{"type":"commandExecution","id":"c0","command":"true","status":"inProgress"}`)
		r.want("")

		r.x.event(r.ref(), &event{kind: evStarted, op: 3, thread: acpThread, turn: "t1"})
		r.begin()
		r.note("turn/started", `{"turn":{"id":"t1b"}}`)
		r.item("started", `{"type":"commandExecution","id":"c1","command":"sleep 9","status":"inProgress"}`)
		r.note("item/started", `{"turnId":"t1b","item":{"type":"commandExecution","id":"c2","command":"sleep 8","status":"inProgress"}}`)
		time.Sleep(time.Second)
		r.delta("m1", "half")
		r.news()
		r.ends("interrupted")
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c1","status":"failed","content":[{"type":"content","content":{"type":"text","text":"interrupted"}}]}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1b:c2","status":"failed","content":[{"type":"content","content":{"type":"text","text":"interrupted"}}]}`)

		r.delta("m1", "late")
		r.note("item/agentMessage/delta", `{"turnId":"t1b","itemId":"m2","delta":"late"}`)
		r.item("completed", `{"type":"commandExecution","id":"c1","command":"sleep 9","status":"failed","exitCode":1}`)
		r.note("thread/tokenUsage/updated", `{"turnId":"t1","tokenUsage":{"total":{"totalTokens":9},"last":{"totalTokens":5},"modelContextWindow":100}}`)
		r.begin() // once more, too late
		r.item("started", `{"type":"commandExecution","id":"c3","command":"true","status":"inProgress"}`)
		time.Sleep(time.Second)
		r.want("")

		r.note("turn/started", `{"turn":{"id":"t2"}}`)
		r.note("item/agentMessage/delta", `{"turnId":"t2","itemId":"m3","delta":"next"}`)
		r.want(`{"sessionUpdate":"agent_message_chunk","messageId":"codex:T:t2:m3","content":{"type":"text","text":"next"}}`)
	})
}

// TestACPTurnEndsForFront: the front ends a turn whose child is gone or whose
// client doesn't read; the turn's own end may still come.
func TestACPTurnEndsForFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("started", `{"type":"mcpToolCall","id":"c1","server":"s","tool":"t","status":"inProgress","arguments":{}}`)
		r.crowd(true)
		r.delta("m1", "joined")
		r.news()
		r.x.endTurn("the client doesn't read")
		r.want(`{"sessionUpdate":"agent_message_chunk","messageId":"codex:T:t1:m1","content":{"type":"text","text":"joined"}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c1","status":"failed","content":[{"type":"content","content":{"type":"text","text":"the client doesn't read"}}]}`)
		r.delta("m1", "more")
		r.x.endTurn("again")
		r.ends("completed")
		time.Sleep(time.Second)
		r.want("")

		r.note("turn/started", `{"turn":{"id":"t2"}}`)
		r.note("item/started", `{"turnId":"t2","item":{"type":"mcpToolCall","id":"c1","server":"s","tool":"t","status":"inProgress","arguments":{}}}`)
		r.news()
		r.x.event(r.ref(), &event{kind: evGone, err: &backendError{Message: "the Codex child process ended: signal: killed"}})
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t2:c1","status":"failed","content":[{"type":"content","content":{"type":"text","text":"the Codex child process ended: signal: killed"}}]}`)
	})
}

// TestACPSubagents: what subagents do is shown with their names, what they say
// is not the agent's; a call that a turn's end closed is not told again.
func TestACPSubagents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.note("thread/started", `{"thread":{"id":"sub-1","agentNickname":"Ada","agentRole":"explorer"}}`)
		r.note("turn/started", `{"threadId":"sub-1","turn":{"id":"s1"}}`)
		r.note("item/agentMessage/delta", `{"threadId":"sub-1","turnId":"s1","itemId":"m","delta":"not the agent's"}`)
		r.note("item/completed", `{"threadId":"sub-1","turnId":"s1","item":{"type":"agentMessage","id":"m","text":"not the agent's"}}`)
		r.note("item/completed", `{"threadId":"sub-1","turnId":"s1","item":{"type":"reasoning","id":"n","summary":["hm"]}}`)
		r.note("thread/tokenUsage/updated", `{"threadId":"sub-1","turnId":"s1","tokenUsage":{"total":{"totalTokens":9},"last":{"totalTokens":5},"modelContextWindow":100}}`)
		r.want("")
		start := `{"threadId":"sub-1","turnId":"s1","item":{"type":"commandExecution","id":"c1","command":"/bin/bash -lc 'ls'","cwd":"/w","status":"inProgress"}}`
		r.note("item/started", start)
		r.want(`{"sessionUpdate":"tool_call","toolCallId":"codex:sub-1:s1:c1","title":"Ada: ls","name":"shell","kind":"execute","status":"pending","rawInput":{"command":"/bin/bash -lc 'ls'","cwd":"/w"}}`)
		r.note("turn/completed", `{"threadId":"sub-1","turn":{"id":"s0","status":"completed"}}`)
		r.item("completed", `{"type":"collabAgentToolCall","id":"w","tool":"wait","status":"completed","senderThreadId":"T","receiverThreadIds":["sub-1"],"prompt":null,"agentsStates":{"sub-1":{"status":"completed","message":"found it"}}}`)
		r.want(`{"sessionUpdate":"tool_call","toolCallId":"codex:T:t1:w","title":"Wait for subagent Ada","name":"wait","kind":"other","status":"pending","rawInput":{"receiverThreadIds":["sub-1"],"tool":"wait"}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:w","status":"in_progress"}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:w","status":"completed","content":[{"type":"content","content":{"type":"text","text":"Ada: completed: found it"}}],"rawOutput":{"sub-1":{"status":"completed","message":"found it"}}}`)
		r.ends("completed") // closes the subagent's command
		r.news()
		end := strings.Replace(start, "inProgress", "completed", 1)
		r.note("item/completed", end)
		r.note("turn/started", `{"turn":{"id":"t2"}}`)
		r.note("item/completed", end)
		r.note("item/completed", strings.Replace(end, `"c1"`, `"c2"`, 1))
		if got := r.news(); strings.Contains(got, "c1") || !strings.Contains(got, "codex:sub-1:s1:c2") {
			t.Errorf("got:\n%s", got)
		}
	})
}

// TestACPLateSubagentAsks: a subagent that outlives the turn may ask; its call
// is announced and closed though no turn runs.
func TestACPLateSubagentAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.ends("completed")
		q := &approval{id: "9", kind: askCommand, thread: "sub-1", turn: "s1", item: "c1", command: "rm x", action: "rm x", subagent: &subagentRef{thread: "sub-1", name: "Ada"}}
		r.x.announce(r.ref(), q)
		r.x.decide(q, approve, "")
		r.note("item/started", `{"threadId":"sub-1","turnId":"s1","item":{"type":"commandExecution","id":"c1","command":"rm x","status":"inProgress"}}`)
		r.note("item/completed", `{"threadId":"sub-1","turnId":"s1","item":{"type":"commandExecution","id":"c1","command":"rm x","status":"completed","exitCode":0}}`)
		if r.states("codex:sub-1:s1:c1") != callDone || len(r.called) != 1 {
			t.Errorf("calls are %v", r.called)
		}
		if got := r.news(); !strings.Contains(got, `"title":"Ada: rm x"`) {
			t.Errorf("got:\n%s", got)
		}
	})
}

// TestACPPlan: steps with their statuses; a plan written as one text is one
// entry, throttled.
func TestACPPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.note("turn/plan/updated", `{"turnId":"t1","explanation":null,"plan":[{"step":"look","status":"completed"},{"step":"do \"it\"","status":"inProgress"},{"step":"tell","status":"pending"}]}`)
		r.want(`{"sessionUpdate":"plan","entries":[{"content":"look","priority":"medium","status":"completed"},{"content":"do \"it\"","priority":"medium","status":"in_progress"},{"content":"tell","priority":"medium","status":"pending"}]}`)
		r.note("turn/plan/updated", `{"turnId":"t1","plan":[]}`)
		r.want(`{"sessionUpdate":"plan","entries":[]}`)
		for i := range 100 {
			r.note("item/plan/delta", fmt.Sprintf(`{"turnId":"t1","itemId":"p","delta":"%d "}`, i))
		}
		time.Sleep(acpGrace)
		synctest.Wait()
		if got := r.news(); strings.Count(got, "\n") != 0 || !strings.Contains(got, `0 1 2 3`) || !strings.Contains(got, `in_progress`) {
			t.Errorf("got:\n%s", got)
		}
		r.item("completed", `{"type":"plan","id":"p","text":"1. all of it"}`)
		r.want(`{"sessionUpdate":"plan","entries":[{"content":"1. all of it","priority":"medium","status":"pending"}]}`)
		time.Sleep(time.Second)
		r.want("")
	})
}

func TestACPUsageAndNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		usage := `{"turnId":"t1","tokenUsage":{"total":{"totalTokens":900},"last":{"totalTokens":%d},"modelContextWindow":%s}}`
		r := newACPRig(t, acpEncoding{Notices: true})
		r.begin()
		r.note("thread/tokenUsage/updated", fmt.Sprintf(usage, 120, "null"))
		r.note("thread/tokenUsage/updated", fmt.Sprintf(usage, 120, "258400"))
		r.note("thread/tokenUsage/updated", fmt.Sprintf(usage, 120, "258400"))
		r.note("warning", `{"message":"the disk is full"}`)
		r.note("error", `{"turnId":"t1","error":{"message":"Reconnecting... 1/5"},"willRetry":true}`)
		r.note("error", `{"turnId":"t1","error":{"message":"out of luck"},"willRetry":false}`)
		r.want(`{"sessionUpdate":"usage_update","used":120,"size":258400}`,
			`{"sessionUpdate":"notice","severity":"warning","title":"the disk is full"}`,
			`{"sessionUpdate":"notice","severity":"info","title":"Codex tries again","description":"Reconnecting... 1/5"}`)

		r = newACPRig(t, acpEncoding{})
		r.begin()
		r.note("warning", `{"message":"the disk is full"}`)
		r.want("")
	})
}

// TestACPReview: the review's result is told once, though Codex tells it as an
// item and as a message.
func TestACPReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		for _, phase := range []string{"started", "completed"} {
			r.item(phase, `{"type":"enteredReviewMode","id":"e","review":"current changes"}`)
		}
		r.item("started", `{"type":"agentMessage","id":"m0","text":""}`)
		for _, phase := range []string{"started", "completed"} {
			r.item(phase, `{"type":"exitedReviewMode","id":"x","review":"Looks fine."}`)
		}
		for _, phase := range []string{"started", "completed"} {
			r.item(phase, `{"type":"agentMessage","id":"m1","text":"Looks fine."}`)
		}
		r.ends("completed")
		r.want(`{"sessionUpdate":"agent_message_chunk","messageId":"codex:T:t1:e","content":{"type":"text","text":"Reviewing current changes.\n\n"}}`,
			`{"sessionUpdate":"agent_message_chunk","messageId":"codex:T:t1:x","content":{"type":"text","text":"Looks fine."}}`)
	})
}

// TestACPManyAtOnce: events, answers of the client and timers from several
// goroutines; the rig holds every update to the rules.
func TestACPManyAtOnce(t *testing.T) {
	r := newACPRig(t, acpEncoding{})
	r.begin()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 50 {
				q := &approval{id: fmt.Sprint(g, "-", i), kind: askCommand, thread: acpThread, turn: "t1", item: fmt.Sprint("c", g, "-", i), command: "true"}
				r.x.announce(r.ref(), q)
				r.x.sayText("hm")
				r.x.decide(q, decision(i%2), "")
			}
		})
	}
	ids := appIDs{}
	for i := range 500 {
		e := ids.event("item/agentMessage/delta", fmt.Appendf(nil, `{"threadId":%q,"turnId":"t1","itemId":"m","delta":"%d "}`, acpThread, i))
		r.x.event(r.ref(), &e)
	}
	all.Wait()
	r.ends("completed")
	var said strings.Builder
	for i := range 500 {
		fmt.Fprint(&said, i, " ")
	}
	if got := strings.ReplaceAll(r.texts(agentChunk), "hm", ""); got != said.String() {
		t.Errorf("said %q", got)
	}
}

// BenchmarkACPDelta is the hot path: one delta in, one update out.
func BenchmarkACPDelta(b *testing.B) {
	for _, crowded := range []bool{false, true} {
		b.Run(fmt.Sprintf("crowded=%v", crowded), func(b *testing.B) {
			x := newACPEncoder(acpEncoding{Cwd: "/w", Send: func([]byte) bool { return true }, Crowded: func() bool { return crowded }})
			a := agentRef{Thread: acpThread}
			x.event(a, &event{kind: evStarted, thread: acpThread, turn: "t1"})
			e := event{kind: evDelta, phase: "answer", thread: acpThread, turn: "t1", item: "msg_14033_00007z",
				text: " seconds\nProcess exited with code 0", delta: json.RawMessage(`" seconds\nProcess exited with code 0"`)}
			b.ReportAllocs()
			for b.Loop() {
				x.event(a, &e)
			}
		})
	}
}
