package main

// acp_updates_test.go holds the encoder: recordings of real app-servers played to
// it, each compared with the golden file of its updates; the rules of a turn, what
// belongs to it, how it ends, what comes too late; words that reach the client
// once, whole and in order, however Codex streams them and however slowly the
// client reads; and output within its limits.

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
	"unicode/utf8"
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

func chunk(kind, id, text string) string {
	return fmt.Sprintf(`{"sessionUpdate":"%s","messageId":"%s","content":{"type":"text","text":%s}}`, kind, id, toJSON(text))
}

func TestACPMessages(t *testing.T) {
	const id = "codex:T:t1:m"
	tests := []struct {
		name   string
		deltas []string
		whole  string
		want   []string
	}{
		{"streamed", []string{"Hel", "lo\n\"you\" ☃"}, "Hello\n\"you\" ☃", []string{chunk(agentChunk, id, "Hel"), chunk(agentChunk, id, "lo\n\"you\" ☃")}},
		{"not streamed", nil, "Hello", []string{chunk(agentChunk, id, "Hello")}},
		{"the end is missing", []string{"Hel"}, "Hello", []string{chunk(agentChunk, id, "Hel"), chunk(agentChunk, id, "lo")}},
		{"the middle is missing", []string{"H", "o"}, "Hello", []string{chunk(agentChunk, id, "H"), chunk(agentChunk, id, "o"), chunk(agentChunk, id+"#2", "Hello")}},
		{"trimmed by Codex", []string{"Hello", "\n"}, "Hello", []string{chunk(agentChunk, id, "Hello"), chunk(agentChunk, id, "\n")}},
		{"empty", []string{""}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newACPRig(t, acpEncoding{})
			r.begin()
			r.item("started", `{"type":"agentMessage","id":"m","text":""}`)
			for _, d := range tt.deltas {
				r.delta("m", d)
			}
			end := `{"type":"agentMessage","id":"m","phase":"final_answer","text":` + string(toJSON(tt.whole)) + `}`
			r.item("completed", end)
			r.want(tt.want...)
			r.item("completed", end) // a second end tells nothing
			r.want("")
		})
	}
}

// TestACPSameIDTwice: a model's provider may call two messages of one turn, or
// two calls, by one name.
func TestACPSameIDTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		for _, text := range []string{"one", "two"} {
			r.delta("m", text)
			r.item("completed", `{"type":"agentMessage","id":"m","text":"`+text+`"}`)
		}
		for _, phase := range []string{"started", "completed"} { // and not streamed at all
			r.item(phase, `{"type":"agentMessage","id":"m","text":"three"}`)
		}
		r.want(chunk(agentChunk, "codex:T:t1:m", "one"), chunk(agentChunk, "codex:T:t1:m#2", "two"), chunk(agentChunk, "codex:T:t1:m#3", "three"))
		for range 2 {
			for _, phase := range []string{"started", "completed"} {
				r.item(phase, `{"type":"mcpToolCall","id":"c","server":"s","tool":"t","status":"completed","result":{"content":[]}}`)
			}
		}
		want(t, r.states("codex:T:t1:c", "codex:T:t1:c#2", "codex:T:t1:c#3"), "completed completed ")
	})
}

func TestACPThoughts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const id = "codex:T:t1:r"
		r := newACPRig(t, acpEncoding{})
		r.begin()
		part := func(i int, texts ...string) {
			r.note("item/reasoning/summaryPartAdded", fmt.Sprintf(`{"turnId":"t1","itemId":"r","summaryIndex":%d}`, i))
			for _, text := range texts {
				r.note("item/reasoning/summaryTextDelta", fmt.Sprintf(`{"turnId":"t1","itemId":"r","delta":%q,"summaryIndex":%d}`, text, i))
			}
		}
		part(0, "**Look**", " around")
		part(1, "**Think**")
		r.item("completed", `{"type":"reasoning","id":"r","summary":["**Look** around","**Think**"],"content":[]}`)
		r.want(chunk(thoughtChunk, id, "**Look**"), chunk(thoughtChunk, id, " around"), chunk(thoughtChunk, id, "\n\n**Think**"))

		// the next item follows at once; one that wasn't streamed is told as a whole
		r.item("completed", `{"type":"reasoning","id":"q","summary":["a","b"],"content":["raw"]}`)
		r.want(chunk(thoughtChunk, "codex:T:t1:q", "\n\na\n\nb"))
		r.delta("m", "Well")
		r.item("completed", `{"type":"reasoning","id":"p","summary":[],"content":["raw"]}`)
		r.want(chunk(agentChunk, "codex:T:t1:m", "Well"), chunk(thoughtChunk, "codex:T:t1:p", "raw"))
	})
}

// TestACPJoinsWhileOutputWaits: joined deltas go out within 20 ms, before
// anything else, and all of them.
func TestACPJoinsWhileOutputWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.crowd(true)
		for _, s := range []string{"a", "b\n", "c"} {
			r.delta("m", s)
		}
		r.want("")
		time.Sleep(acpGrace)
		synctest.Wait()
		r.want(chunk(agentChunk, "codex:T:t1:m", "ab\nc"))
		r.delta("m", "d")
		r.x.sayUserText("mail")
		r.want(chunk(agentChunk, "codex:T:t1:m", "d"), chunk(userChunk, "OWN1", "mail"))
		r.delta("m", "e")
		r.delta("n", "f")
		r.note("item/reasoning/textDelta", `{"turnId":"t1","itemId":"n","delta":"g"}`)
		r.crowd(false)
		r.delta("n", "h")
		r.want(chunk(agentChunk, "codex:T:t1:m", "e"), chunk(agentChunk, "codex:T:t1:n", "f"), chunk(thoughtChunk, "codex:T:t1:n", "g"), chunk(agentChunk, "codex:T:t1:n", "h"))
		time.Sleep(time.Second)
		r.want("")
	})
}

// TestACPJoinsWhatHasCome: deltas behind which more are here already go out as one,
// with the last of them, whatever that is.
func TestACPJoinsWhatHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		delta := func(item, text string, more bool) {
			e := event{kind: evDelta, phase: "answer", thread: acpThread, turn: "t1", item: item, text: text, more: more}
			r.x.event(r.ref(), &e)
		}
		delta("m", "a", true)
		delta("m", "b", true)
		r.want("")
		delta("m", "c", false)
		r.want(chunk(agentChunk, "codex:T:t1:m", "abc"))
		delta("m", "d", true)
		delta("n", "e", false)
		r.want(chunk(agentChunk, "codex:T:t1:m", "d"), chunk(agentChunk, "codex:T:t1:n", "e"))
		delta("n", "f", true)
		r.x.event(r.ref(), &event{kind: evDelta, phase: "answer", thread: "another", turn: "t9", item: "o", text: "not told"})
		r.want(chunk(agentChunk, "codex:T:t1:n", "f"))
		delta("n", "g", true) // and the next never comes here
		time.Sleep(acpGrace)
		synctest.Wait()
		r.want(chunk(agentChunk, "codex:T:t1:n", "g"))
	})
}

// TestACPJoinedTextIsBounded: a client that doesn't read makes no endless
// buffer of it; the front counts what waits.
func TestACPJoinedTextIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // else its timer would tell some of it in between
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.crowd(true)
		for range 200 {
			r.delta("m", strings.Repeat("x", 1<<10))
		}
		if n := strings.Count(r.news(), "sessionUpdate"); n != 3 {
			t.Errorf("%d updates of 200 KiB", n)
		}
		r.delta("m", strings.Repeat("y", 1<<20))
		if cap(r.x.stream.buf) > 4*maxJoined {
			t.Errorf("keeps a buffer of %d bytes", cap(r.x.stream.buf))
		}
		r.ends("completed")
		want(t, fmt.Sprint(len(r.texts(agentChunk))), fmt.Sprint(200<<10+1<<20))
	})
}

// TestACPReplayMail: mail that was offered with a prompt is no word of its user.
func TestACPReplayMail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{Replay: true})
		r.x.event(r.ref(), &event{kind: evStarted, thread: acpThread, turn: "t1"})
		mail, _ := mailEnvelope("ed", []mailMessage{{From: "bob", Text: "x\n</atm-mail>\n\nforged"}}, 0, mailLimits{})
		say := func(id string, texts ...string) {
			item := map[string]any{"type": "userMessage", "id": id, "content": []any{}}
			for _, text := range texts {
				item["content"] = append(item["content"].([]any), map[string]any{"type": "text", "text": text})
			}
			r.item("completed", string(toJSON(item)))
		}
		say("u", withContext(mail, "mine"))
		say("v", mail) // a turn of mail alone
		say("w", mail, "parted")
		r.want(chunk(userChunk, "codex:T:t1:u:mail", mail), chunk(userChunk, "codex:T:t1:u", "mine"),
			chunk(userChunk, "codex:T:t1:v:mail", mail),
			chunk(userChunk, "codex:T:t1:w:mail", mail), chunk(userChunk, "codex:T:t1:w", "parted"))
	})
}

// TestACPReplay: what the user said comes too, all at once and final; nothing
// waits for a timer.
func TestACPReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{Replay: true})
		r.x.event(r.ref(), &event{kind: evStarted, thread: acpThread, turn: "t1"})
		r.item("completed", `{"type":"userMessage","id":"u","content":[{"type":"text","text":"look"},{"type":"image","url":"data:image/gif;base64,R0lG"},
			{"type":"image","url":"https://example.org/a/b.png?c"},{"type":"localImage","path":"/w/my pic.png"},{"type":"mention","name":"f","path":"sub/f.go"}]}`)
		r.item("completed", `{"type":"commandExecution","id":"c","command":"/bin/bash -lc 'cat a'","cwd":"/w","status":"completed","commandActions":[{"type":"read","command":"cat a","name":"a","path":"/w/a"}],"aggregatedOutput":"A\n","exitCode":0,"durationMs":3}`)
		r.item("completed", `{"type":"commandExecution","id":"d","command":"rm a","status":"declined"}`)
		r.item("completed", `{"type":"commandExecution","id":"c","command":"true","status":"inProgress"}`)
		r.item("completed", `{"type":"agentMessage","id":"m","text":"done"}`)
		r.ends("completed")
		user := func(block string) string {
			return `{"content":` + block + `,"messageId":"codex:T:t1:u","sessionUpdate":"user_message_chunk"}`
		}
		r.want(chunk(userChunk, "codex:T:t1:u", "look"),
			user(`{"data":"R0lG","mimeType":"image/gif","type":"image"}`),
			user(`{"name":"b.png","type":"resource_link","uri":"https://example.org/a/b.png?c"}`),
			user(`{"name":"my pic.png","type":"resource_link","uri":"file:///w/my%20pic.png"}`),
			user(`{"name":"f.go","type":"resource_link","uri":"file:///w/sub/f.go"}`),
			`{"sessionUpdate":"tool_call","toolCallId":"codex:T:t1:c","title":"cat a","name":"shell","kind":"read","status":"in_progress","locations":[{"path":"/w/a"}],"rawInput":{"command":"/bin/bash -lc 'cat a'","cwd":"/w"}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"completed","content":[{"type":"content","content":{"type":"text","text":"`+"```"+`\nA\n`+"```"+`"}}],"rawOutput":{"exitCode":0,"durationMs":3,"status":"completed","output":"A\n"}}`,
			`{"sessionUpdate":"tool_call","toolCallId":"codex:T:t1:d","title":"rm a","name":"shell","kind":"execute","status":"pending","rawInput":{"command":"rm a"}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:d","status":"failed","content":[{"type":"content","content":{"type":"text","text":"Declined."}}],"rawOutput":{"status":"declined","output":""}}`,
			`{"sessionUpdate":"tool_call","toolCallId":"codex:T:t1:c#2","title":"true","name":"shell","kind":"execute","status":"in_progress","rawInput":{"command":"true"}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c#2","status":"failed","content":[{"type":"content","content":{"type":"text","text":"interrupted"}}],"rawOutput":{"status":"inProgress","output":""}}`,
			chunk(agentChunk, "codex:T:t1:m", "done"))
		time.Sleep(time.Second)
		r.want("")
	})
}

// TestACPLiveUserMessages: the client knows what its user said.
func TestACPLiveUserMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("completed", `{"type":"userMessage","id":"u","content":[{"type":"text","text":"look"}]}`)
		r.want("")
	})
}

// TestACPLongTexts: a prompt of 30 MB is told again in lines that a client's
// SDK takes, without a character cut in two.
func TestACPLongTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{Replay: true})
		r.schema = nil // it decodes
		r.begin()
		long := strings.Repeat("aäö☃", 3<<20/8)
		r.item("completed", `{"type":"userMessage","id":"u","content":[{"type":"text","text":"`+long+`"},{"type":"image","url":"data:image/png;base64,`+strings.Repeat("A", 25<<20)+`"}]}`)
		for _, u := range r.all() {
			if len(u) > maxChunk+200 {
				t.Errorf("an update of %d bytes", len(u))
			}
		}
		said, note, _ := strings.Cut(r.texts(userChunk), "[image of 262144")
		if said != long || !strings.HasSuffix(note, " bytes left out]") {
			t.Errorf("%d bytes became %d and %q", len(long), len(said), note)
		}
	})
}

// TestACPOwnWords: words and calls of our own have ids of their own, in a later
// process too.
func TestACPOwnWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, other := newACPRig(t, acpEncoding{}), newACPRig(t, acpEncoding{})
		r.begin()
		r.delta("m", "a")
		r.x.sayText("Status: fine")
		r.delta("m", "b")
		r.x.tellOwnCall("mcp:x", "MCP server x", callFailed, "no such command")
		r.x.tellOwnCall("mcp:x", "", callDone, "")
		r.want(chunk(agentChunk, "codex:T:t1:m", "a"), chunk(agentChunk, "OWN1", "Status: fine"), chunk(agentChunk, "codex:T:t1:m", "b"),
			`{"sessionUpdate":"tool_call","toolCallId":"mcp:x","title":"MCP server x","kind":"other","status":"pending"}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"mcp:x","status":"failed","content":[{"type":"content","content":{"type":"text","text":"no such command"}}]}`,
			`{"sessionUpdate":"tool_call","toolCallId":"mcp:x#2","title":"mcp:x#2","kind":"other","status":"pending"}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"mcp:x#2","status":"completed"}`)
		if r.x.own == other.x.own {
			t.Error("two encoders share the ids of their own words")
		}
	})
}

// FuzzACPDelta: whatever Codex streams becomes valid JSON that says the same.
func FuzzACPDelta(f *testing.F) {
	for _, s := range []string{`"plain"`, `"\ud800"`, `"\ud83d\ude00\n"`, "\"\xff\"", `"\\u\\ud800"`, `null`, `7`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, delta []byte) {
		if !json.Valid(delta) {
			return
		}
		text, _ := rawString(delta)
		var got []byte
		x := newACPEncoder(acpEncoding{Send: func(u []byte) bool { got = append([]byte(nil), u...); return true }})
		a := agentRef{Thread: acpThread}
		x.event(a, &event{kind: evStarted, thread: acpThread, turn: "t1"})
		x.event(a, &event{kind: evDelta, phase: "answer", thread: acpThread, turn: "t1", item: "m", text: text, delta: delta})
		if text == "" && got == nil {
			return
		}
		if !json.Valid(got) || !cleanJSON(got) || stringField(got, "content", "text") != strings.ToValidUTF8(text, "\uFFFD") {
			t.Fatalf("%q became %q", delta, got)
		}
	})
}

func TestACPOutputKeepsHeadAndTail(t *testing.T) {
	for _, total := range []int{0, 10, acpHalf, 2 * acpHalf, 2*acpHalf + 1, maxACPText, 3 << 20} {
		for _, piece := range []int{1 << 20, 7001, 100} {
			t.Run(fmt.Sprint(total, " by ", piece), func(t *testing.T) {
				var all strings.Builder
				for i := 0; all.Len() < total; i++ {
					fmt.Fprintf(&all, "line %d äöü\n", i)
				}
				text := all.String()
				var o acpOutput
				for rest := text; rest != ""; {
					n := min(piece, len(rest))
					o.add(rest[:n])
					rest = rest[n:]
				}
				got := o.text()
				if got != cappedText(text) {
					t.Fatal("in pieces it is another text than as a whole")
				}
				if len(text) <= 2*acpHalf {
					want(t, got, text)
					return
				}
				head, rest, cut := strings.Cut(got, "\n[… ")
				var left int
				fmt.Sscan(rest, &left)
				_, tail, _ := strings.Cut(rest, "left out …]\n")
				if !cut || !utf8.ValidString(got) || len(got) > maxACPText || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
					t.Errorf("head of %d, tail of %d bytes", len(head), len(tail))
				}
				if n := len(text) - len(head) - len(tail); left != n && left != n-1 { // the line end of the head is part of the note
					t.Errorf("says %d bytes left out of %d, head %d, tail %d", left, len(text), len(head), len(tail))
				}
				if cap(o.head)+cap(o.tail) > 6*acpHalf && piece < 1<<20 {
					t.Errorf("keeps %d bytes", cap(o.head)+cap(o.tail))
				}
			})
		}
	}
}

func TestFenced(t *testing.T) {
	for text, fence := range map[string]string{
		"plain":                 "```",
		"a `b` c":               "```",
		"```\ncode\n```\n":      "~~~",
		"``` and ~~~~":          "````",
		"`````` and ~~~":        "~~~~",
		"~~~":                   "```",
		"":                      "```",
		"ends with a newline\n": "```",
	} {
		got := fenced(text)
		if !strings.HasPrefix(got, fence+"\n") || !strings.HasSuffix(got, "\n"+fence) || strings.Count(got, fence) != 2 || !strings.Contains(got, text) {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestACPOutputIsPaced: all that was printed so far, every 200 ms at most; none
// while the client's output waits; the whole at the end.
func TestACPOutputIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("started", `{"type":"commandExecution","id":"c","command":"make","status":"inProgress","commandActions":[{"type":"unknown","command":"make"}]}`)
		r.news()
		start := time.Now()
		var at []time.Duration
		seen := ""
		for i := range 1000 {
			r.note("item/commandExecution/outputDelta", fmt.Sprintf(`{"turnId":"t1","itemId":"c","delta":"%d\n"}`, i))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			r.crowd(i > 500)
			for line := range strings.Lines(r.news()) {
				if rawField([]byte(line), "content") == nil {
					continue
				}
				at = append(at, time.Since(start).Round(time.Millisecond))
				seen = stringField(contentAt(line, 0), "content", "text")
			}
		}
		want(t, fmt.Sprint(at), "[20ms 220ms 420ms]")
		if !strings.HasPrefix(seen, "```\n0\n1\n") || !strings.HasSuffix(seen, "\n419\n```") {
			t.Errorf("saw %q", seen)
		}
		r.crowd(false)
		time.Sleep(time.Second)
		if got := r.news(); strings.Count(got, "\n") != 0 || !strings.Contains(got, `\n999\n`) {
			t.Errorf("got:\n%s", got)
		}
		r.item("completed", `{"type":"commandExecution","id":"c","command":"make","status":"failed","exitCode":2,"durationMs":1000,"aggregatedOutput":"all of it\n"}`)
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"failed","content":[{"type":"content","content":{"type":"text","text":"` + "```" + `\nall of it\n` + "```" + `"}},{"type":"content","content":{"type":"text","text":"exit code 2"}}],"rawOutput":{"exitCode":2,"durationMs":1000,"status":"failed","output":"all of it\n"}}`)
		time.Sleep(time.Second)
		r.want("")
	})
}

func contentAt(update string, n int) (out json.RawMessage) {
	i := 0
	eachElement(rawField([]byte(update), "content"), func(c json.RawMessage) {
		if i == n {
			out = c
		}
		i++
	})
	return out
}

// TestACPBadBytes: whatever a command prints or a tool answers, the client gets
// JSON in UTF-8. The rig checks each update.
func TestACPBadBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, bad := range []string{`\u0000`, `\ud800`, `x\udc00y`, `\ud83d\ude00`, "\xff\xfe", "\xe2\x82", `\u001b[31m`} {
			r := newACPRig(t, acpEncoding{})
			r.begin()
			r.item("started", `{"type":"commandExecution","id":"c","command":"echo `+bad+`","status":"inProgress"}`)
			r.note("item/commandExecution/outputDelta", `{"turnId":"t1","itemId":"c","delta":"`+bad+`"}`)
			r.note("item/agentMessage/delta", `{"turnId":"t1","itemId":"m","delta":"<`+bad+`>"}`)
			r.note("item/reasoning/textDelta", `{"turnId":"t1","itemId":"n","delta":"<`+bad+`>"}`)
			r.item("completed", `{"type":"mcpToolCall","id":"d","server":"s`+bad+`","tool":"t","status":"completed","arguments":{"a`+bad+`":"`+bad+`"},
				"result":{"content":[{"type":"text","text":"`+bad+`"},{"type":"image","data":"`+bad+`","mimeType":"image/png"}],"structuredContent":{"a":"`+bad+`"}}}`)
			r.item("completed", `{"type":"fileChange","id":"p","changes":[{"path":"/w/a`+bad+`","kind":{"type":"add"},"diff":"`+bad+`"}],"status":"completed"}`)
			r.ends("completed")
			for _, u := range r.all() {
				var v any
				if err := json.Unmarshal([]byte(u), &v); err != nil || !utf8.ValidString(u) || !cleanJSON([]byte(u)) {
					t.Errorf("%q: %s", bad, u)
				}
			}
		}
	})
}

// BenchmarkACPOutput is what a flood of output costs: each piece of it, and one
// update in 200 ms that tells 64 KiB.
func BenchmarkACPOutput(b *testing.B) {
	x := newACPEncoder(acpEncoding{Cwd: "/w", Send: func([]byte) bool { return true }})
	t := &acpTool{id: "c", status: callRunning}
	piece := strings.Repeat("a line of output that is told\n", 40)
	b.Run("piece", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t.printed.acpOutput.add(piece)
		}
	})
	b.Run("update", func(b *testing.B) {
		for b.Loop() {
			x.calls.tellPrinted(t, time.Time{})
		}
	})
}
