package main

// codex_app_threads_test.go holds the table of threads and turns, through the driver.
// Of turns: nothing but a turn's own end ends it, an unanswered start is never sent
// again, an interrupt reaches what runs whatever the child has told by then, and
// compactions and reviews run under the settings that the session chose. Of threads:
// subagents that speak before they are named, threads that nobody owns, and what
// comes for a thread before it is open.

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is told of MCP servers while an earlier turn is stopped comes once, and
// somebody may wait for it.
func TestAppServersWhileRecovering(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := &heard{}
		p.a.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
		m := p.expect("thread/resume")
		p.say(`{"method":"mcpServer/startupStatus/updated","params":{"threadId":"t1","name":"a","status":"starting"}}`)
		p.say(`{"id":%s,"result":{"thread":{"id":"t1","status":{"type":"idle"}}}}`, m.id)
		i := p.expect("turn/interrupt")
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"method":"mcpServer/startupStatus/updated","params":{"threadId":"t1","name":"a","status":"failed","error":"no","failureReason":"reauthenticationRequired"}}`)
		p.say(`{"method":"item/agentMessage/delta","params":{"threadId":"t1","turnId":"b","itemId":"i","delta":"old"}}`)
		want(t, h.take(), "")
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		const method = " method=mcpServer/startupStatus/updated"
		want(t, h.take(), "opened op=5 thread=t1\nserver thread=t1 item=a status=starting"+method+"\nserver thread=t1 item=a status=failed text=\"no (reauthenticationRequired)\""+method)
		p.say(`{"method":"mcpServer/startupStatus/updated","params":{"threadId":null,"name":"a","status":"ready"}}`) // of no thread
		p.say(`{"method":"mcpServer/startupStatus/updated","params":{"threadId":"t1","name":"b","status":"ready","error":null}}`)
		want(t, h.take(), "server thread=t1 item=b status=ready"+method)
	})
}

// A subagent's thread speaks before its parent names it.
func TestAppTree(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		p.say(`{"method":"turn/started","params":{"threadId":"s1","turn":{"id":"v1"}}}`)
		p.say(`{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"s1","turnId":"v1","command":"x"}}`)
		p.say(`{"method":"thread/started","params":{"thread":{"id":"s2","parentThreadId":"s1"}}}`) // a subagent's subagent
		want(t, h.take(), "")
		time.Sleep(900 * time.Millisecond)
		p.say(spawned, "t1", "s1")
		want(t, h.take(), `item thread=t1 turn=u1 item=c phase=completed body={collabAgentToolCall  "" "" completed arguments={"receiverThreadIds":["s1"]}} method=item/completed
raw thread=s1 turn=v1 method=turn/started
ask thread=s1 turn=v1 ask={ask-0-1 command "x" ""} method=item/commandExecution/requestApproval
raw thread=s2 method=thread/started`)
		p.say(`{"method":"thread/started","params":{"thread":{"id":"s3","source":{"subAgent":{"thread_spawn":{"parent_thread_id":"t1","depth":1}}}}}}`)
		want(t, h.take(), "raw thread=s3 method=thread/started")
		// one interrupt stops the tree
		p.a.do(0, "t1", command{kind: cmdInterrupt, turn: "u1"})
		var sent []string
		for range 6 {
			m := p.next()
			sent = append(sent, m.method+" "+string(m.params))
		}
		slices.Sort(sent)
		want(t, strings.Join(sent, "\n"), `thread/backgroundTerminals/clean {"threadId":"s1"}
thread/backgroundTerminals/clean {"threadId":"s2"}
thread/backgroundTerminals/clean {"threadId":"s3"}
thread/backgroundTerminals/clean {"threadId":"t1"}
turn/interrupt {"threadId":"s1","turnId":"v1"}
turn/interrupt {"threadId":"t1","turnId":"u1"}`)
		// its end is not the session's, and what it starts now is stopped too
		p.say(`{"method":"turn/completed","params":{"threadId":"s1","turn":{"id":"v1","status":"interrupted"}}}`)
		p.say(`{"method":"turn/started","params":{"threadId":"s2","turn":{"id":"w1"}}}`)
		sameJSON(t, p.expect("turn/interrupt").params, `{"threadId":"s2","turnId":"w1"}`)
		want(t, h.take(), `askGone thread=s1 turn=v1 ask={ask-0-1  "" ""}
raw thread=s1 turn=v1 method=turn/completed
raw thread=s2 turn=w1 method=turn/started`)
	})
}

// What nobody claims is dropped after a second, and its requests declined.
func TestAppUnownedThreads(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		begun := time.Now()
		p.say(`{"method":"item/agentMessage/delta","params":{"threadId":"s1","turnId":"v","itemId":"i","delta":"x"}}`)
		p.say(`{"id":5,"method":"item/fileChange/requestApproval","params":{"threadId":"s1","turnId":"v","itemId":"i"}}`)
		want(t, p.reply(), `5 {"decision":"decline"}`)
		if d := time.Since(begun); d != time.Second {
			t.Errorf("after %v", d)
		}
		p.say(spawned, "t1", "s1")
		want(t, h.take(), "item thread=t1 turn=u1 item=c phase=completed body={collabAgentToolCall  \"\" \"\" completed arguments={\"receiverThreadIds\":[\"s1\"]}} method=item/completed")
		// over the limit a request isn't held any more
		for i := range maxHeldBytes / heldOverhead {
			p.say(`{"method":"x","params":{"threadId":"z%d"}}`, i)
		}
		begun = time.Now()
		p.say(`{"id":6,"method":"item/fileChange/requestApproval","params":{"threadId":"zz"}}`)
		want(t, p.reply(), `6 {"decision":"decline"}`)
		if d := time.Since(begun); d != 0 {
			t.Errorf("after %v", d)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if l := &p.a.threads.unowned; len(l.held) != 0 || l.bytes != 0 {
			t.Errorf("%d unowned threads, %d bytes kept", len(l.held), l.bytes)
		}
	})
}

// thread/start's own first words come before its answer, however slow that is.
func TestAppEventsBeforeOpened(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := &heard{}
		p.a.open(1, threadSpec{}, h.to)
		m := p.expect("thread/start")
		p.say(`{"method":"mcpServer/startupStatus/updated","params":{"threadId":"t1","name":"atm","status":"starting"}}`)
		time.Sleep(20 * time.Second)
		p.say(`{"id":%s,"result":{"thread":{"id":"t1"},"model":"m"}}`, m.id)
		want(t, h.take(), "opened op=1 thread=t1 model=m\nserver thread=t1 item=atm status=starting method=mcpServer/startupStatus/updated")
	})
}

func TestAppTurnEndsOnlyByItsOwnEnd(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"other","status":"completed"}}}`)
		p.say(`{"method":"thread/status/changed","params":{"threadId":"t1","status":{"type":"idle"}}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed","items":[{"type":"agentMessage","id":"i","phase":"commentary","text":"no"},{"type":"agentMessage","id":"i","phase":null,"text":"yes"}]}}}`)
		want(t, h.take(), `raw thread=t1 turn=other method=turn/completed
raw thread=t1 method=thread/status/changed
ended thread=t1 turn=u1 status=completed text="yes" method=turn/completed`)
		// 0.104 tells twice that a patch is declined; a second end of a turn would be no news either
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed"}}}`)
		want(t, h.take(), `raw thread=t1 turn=u1 method=turn/completed`)
	})
}

func TestAppTurnEndOvertakesTheAnswer(t *testing.T) {
	withApp(t, "", "0.104.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		m := p.expect("turn/start")
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"u1"}}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"failed","error":{"message":"boom","codexErrorInfo":"other"}}}}`)
		want(t, h.take(), "raw thread=t1 turn=u1 method=turn/started")
		p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, m.id)
		want(t, h.take(), `started op=2 thread=t1 turn=u1
ended thread=t1 turn=u1 status=failed err={0 "boom" other} method=turn/completed`)
	})
}

// turn/start is dropped without an answer: the outcome is unknown, the turn is
// interrupted, also if it begins later, and never sent again.
func TestAppTurnStartDropped(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		m := p.expect("turn/start")
		begun := time.Now()
		i := p.expect("turn/interrupt")
		if time.Since(begun) != 30*time.Second {
			t.Errorf("after %v", time.Since(begun))
		}
		sameJSON(t, i.params, `{"threadId":"t1","turnId":""}`)
		p.expect("thread/backgroundTerminals/clean")
		want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time" timeout}`)
		p.say(`{"id":%s,"result":{"turn":{"id":"late"}}}`, m.id) // too late: nobody waits
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"late"}}}`)
		i = p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"late"}`)
		want(t, h.take(), "raw thread=t1 turn=late method=turn/started")
		p.a.do(3, "t1", command{kind: cmdTurn})
		want(t, h.take(), `refused op=3 thread=t1 err={0 "thread t1 still runs turn late: interrupt it and wait for its end"}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"late","status":"interrupted"}}}`)
		want(t, h.take(), "ended thread=t1 turn=late status=interrupted method=turn/completed")
		p.a.do(4, "t1", command{kind: cmdTurn})
		p.expect("turn/start")
	})
}

// An interrupted turn ends when its shells have: 0.169 tells that after the
// turn's end, and is not waited for where it doesn't. 0.104 tells nothing.
func TestAppInterruptEndsShellsFirst(t *testing.T) {
	const began = `{"method":"item/started","params":{"threadId":"t1","turnId":"u1","item":{"type":"commandExecution","id":"c1","command":"sleep 9","status":"inProgress"}}}`
	const ended = "ended thread=t1 turn=u1 status=interrupted method=turn/completed"
	for _, c := range []struct {
		version   string
		tells     bool
		wait      time.Duration
		then, end string
	}{
		{"0.169.0", true, 0, "", `item thread=t1 turn=u1 item=c1 phase=completed body={commandExecution  "" "sleep 9" failed} method=item/completed` + "\n" + ended},
		{"0.169.0", false, shellsGrace, "", ended},
		{"0.104.0", false, 0, ended, ""},
	} {
		withApp(t, "", c.version, func(t *testing.T, p *appPeer) {
			h := p.open(threadSpec{})
			p.a.do(2, "t1", command{kind: cmdTurn})
			p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, p.expect("turn/start").id)
			p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"u1"}}}`)
			p.say(began)
			h.take()
			p.a.do(0, "t1", command{kind: cmdInterrupt})
			p.say(`{"id":%s,"result":{}}`, p.expect("turn/interrupt").id)
			p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"interrupted"}}}`)
			want(t, h.take(), c.then)
			if c.tells {
				p.say(`{"method":"item/completed","params":{"threadId":"t1","turnId":"u1","item":{"type":"commandExecution","id":"c1","command":"sleep 9","status":"failed"}}}`)
			}
			time.Sleep(c.wait)
			want(t, h.take(), c.end)
		})
	}
}

// Codex's word that nothing runs ends a turn whose start was dropped, once.
func TestAppTurnStartDroppedAndNothingRuns(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		p.expect("turn/start")
		i := p.expect("turn/interrupt")
		p.expect("thread/backgroundTerminals/clean")
		want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time" timeout}`)
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		want(t, h.take(), "ended thread=t1 status=interrupted")
		p.a.do(0, "t1", command{kind: cmdInterrupt})
		i = p.expect("turn/interrupt")
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		want(t, h.take(), "")
	})
}

// 32 calls may be open; what had to wait for a slot and never got one was not
// sent, so it did not happen. A slot is freed when its call times out.
func TestAppInFlightLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0", func(o *appServerOptions) { o.TurnLimit = 5 * time.Second })
		h := p.open(threadSpec{})
		for range appInFlight {
			go func() { _, _ = p.a.catalog(context.Background(), "account", "") }()
		}
		for range appInFlight {
			p.expect("account/read")
		}
		p.a.do(2, "t1", command{kind: cmdTurn})
		time.Sleep(6 * time.Second)
		want(t, h.take(), `refused op=2 thread=t1 err={0 "Codex was too busy to be asked in time" busy}`)
		p.a.do(3, "t1", command{kind: cmdTurn})
		time.Sleep(4 * time.Second) // the first calls' 10 s are over
		p.expect("turn/start")
	})
}

func TestAppInterrupt(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		m := p.expect("turn/start")
		p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, m.id)
		h.take()
		// accepted, not begun: 0.153 and 0.169 refuse the id now and run the turn
		p.a.do(9, "t1", command{kind: cmdInterrupt, turn: "u1"})
		i := p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":""}`)
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"u1"}}}`)
		i = p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"u1"}`)
		p.say(`{"id":%s,"result":{}}`, i.id)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"interrupted"}}}`)
		want(t, h.take(), "raw thread=t1 turn=u1 method=turn/started\nended thread=t1 turn=u1 status=interrupted method=turn/completed")
		// the turn is over: nothing is sent for its id
		p.a.do(10, "t1", command{kind: cmdInterrupt, turn: "u1"})
		p.expect("thread/backgroundTerminals/clean")
		p.silent()
	})
}

// An interrupt before turn/start is answered reaches the turn all the same.
func TestAppInterruptBeforeStarted(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		p.a.do(0, "t1", command{kind: cmdInterrupt})
		m := p.expect("turn/start")
		i := p.expect("turn/interrupt")
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"id":%s,"result":{}}`, i.id)
		p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, m.id)
		i = p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":""}`)
	})
}

// 0.104 doesn't answer an interrupt when nothing runs; it has no list of terminals to clean with it.
func TestAppInterruptNeverAnswered(t *testing.T) {
	withApp(t, "", "0.104.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		p.a.do(9, "t1", command{kind: cmdInterrupt})
		i := p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"u1"}`)
		p.silent()
		time.Sleep(10 * time.Second)
		want(t, h.take(), `refused op=9 thread=t1 turn=u1 unknown err={0 "Codex gave no answer in time" timeout}`)
	})
}

// act starts an action on t1 and reads what is sent before it.
func (p *appPeer) act(c command) {
	p.t.Helper()
	c.kind = cmdTurn
	p.a.do(2, "t1", c)
	if p.a.info().atLeast(148) {
		m := p.expect("thread/settings/update")
		p.say(`{"id":%s,"result":{}}`, m.id)
	}
}

// Nobody is asked in a review and none takes settings, so those of the session
// must be the thread's before it begins.
func TestAppReviewSettings(t *testing.T) {
	settings := turnSettings{Cwd: "/w", Model: "m", Effort: "high", Approval: "on-request", Sandbox: "read-only"}
	withApp(t, "0.169", "0.169.0", func(t *testing.T, p *appPeer) {
		p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn, action: actReview, settings: settings})
		m := p.expect("thread/settings/update")
		sameJSON(t, m.params, `{"threadId":"t1","cwd":"/w","model":"m","effort":"high","approvalPolicy":"on-request","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`)
		p.silent() // nothing runs before they are taken
		p.say(`{"id":%s,"result":{}}`, m.id)
		sameJSON(t, p.expect("review/start").params, `{"threadId":"t1","target":{"type":"uncommittedChanges"},"delivery":"inline"}`)
	})
	withApp(t, "0.104 reviews under those of the thread, which are read-only", "0.104.0", func(t *testing.T, p *appPeer) {
		p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn, action: actReview, prompt: "the parser", settings: settings})
		sameJSON(t, p.expect("review/start").params, `{"threadId":"t1","target":{"type":"custom","instructions":"the parser"},"delivery":"inline"}`)
	})
	for _, tc := range []struct {
		name, answer string
		action       turnAction
		want         string
	}{
		{"refused", `"error":{"code":-32600,"message":"no such model"}`, actReview,
			`refused op=2 thread=t1 err={-32600 "no such model"}`},
		{"a version without the method reviews nothing", `"error":{"code":-32600,"message":"Invalid request: unknown variant ` + "`thread/settings/update`, expected" + `"}`, actReview,
			`refused op=2 thread=t1 err={-32600 "this Codex 0.150.0 can't be told what a review may do; use a newer one, or ask for the review in a prompt"}`},
		{"but it compacts", `"error":{"code":-32600,"message":"Invalid request: unknown variant ` + "`thread/settings/update`, expected" + `"}`, actCompact, ""},
	} {
		withApp(t, tc.name, "0.150.0", func(t *testing.T, p *appPeer) {
			h := p.open(threadSpec{})
			p.a.do(2, "t1", command{kind: cmdTurn, action: tc.action})
			m := p.expect("thread/settings/update")
			p.say(`{"id":%s,%s}`, m.id, tc.answer)
			if want(t, h.take(), tc.want); tc.want == "" {
				p.expect("thread/compact/start")
				return
			}
			p.silent()
			p.begin(h) // the thread is free
		})
	}
	withApp(t, "no answer", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn, action: actReview})
		p.expect("thread/settings/update")
		time.Sleep(10 * time.Second)
		want(t, h.take(), `refused op=2 thread=t1 err={0 "Codex was too busy to be asked in time" busy}`)
		p.silent() // there is nothing to interrupt
	})
}

// A review that goes on after its session let go of the thread must not leave
// the thread busy for good: its end goes by another id than its beginning.
func TestAppReviewEndsUnheard(t *testing.T) {
	withApp(t, "", "0.153.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.act(command{action: actReview})
		m := p.expect("review/start")
		p.say(`{"id":%s,"result":{"turn":{"id":"r1"}}}`, m.id)
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"x1"}}}`)
		want(t, h.take(), "started op=2 thread=t1 turn=r1\nraw thread=t1 turn=r1 method=turn/started")
		p.a.do(0, "t1", command{kind: cmdUnload})
		p.expect("thread/unsubscribe")
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"r1","status":"completed"}}}`)
		p.begin(p.open(threadSpec{Thread: "t1"}))
	})
}

// A review that nobody waits for any more is not begun.
func TestAppReviewLetGo(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn, action: actReview})
		m := p.expect("thread/settings/update")
		p.a.do(0, "t1", command{kind: cmdUnload})
		p.expect("thread/unsubscribe")
		p.say(`{"id":%s,"result":{}}`, m.id)
		p.silent()
	})
}

// An interrupt that comes before a review runs finds nothing, and is sent again
// as it begins, with the id that Codex wants.
func TestAppReviewInterruptedEarly(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.act(command{action: actReview})
		m := p.expect("review/start")
		p.a.do(3, "t1", command{kind: cmdInterrupt})
		i := p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":""}`)
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, i.id)
		p.say(`{"id":%s,"result":{"turn":{"id":"r1"}}}`, m.id)
		sameJSON(t, p.expect("turn/interrupt").params, `{"threadId":"t1","turnId":""}`)
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"x1","rootTurnId":"r1"}}}`)
		sameJSON(t, p.expect("turn/interrupt").params, `{"threadId":"t1","turnId":"x1"}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"r1","status":"interrupted"}}}`)
		want(t, h.take(), "started op=2 thread=t1 turn=r1\nraw thread=t1 turn=r1 method=turn/started\nended thread=t1 turn=r1 status=interrupted method=turn/completed")
	})
}

// What a compaction's id is, only its first word tells.
func TestAppCompact(t *testing.T) {
	const item = `{"method":"item/started","params":{"threadId":"t1","turnId":"c1","item":{"type":"contextCompaction","id":"i"}}}`
	const begun = `{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"c1"}}}`
	const ended = `{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"c1","status":"interrupted"}}}`
	const late = `{"method":"item/completed","params":{"threadId":"t1","turnId":"old","item":{"type":"commandExecution","id":"i"}}}`
	const lateLine = "item thread=t1 turn=old item=i phase=completed body={commandExecution  \"\" \"\" } method=item/completed\n"
	const end = "\nended thread=t1 turn=c1 status=interrupted method=turn/completed"
	for _, tc := range []struct {
		name, version string
		says          []string // "" is the answer
		want          string
	}{
		{"0.169", "0.169.0", []string{"", late, begun, ended}, lateLine + "started op=2 thread=t1 turn=c1\nraw thread=t1 turn=c1 method=turn/started" + end},
		{"0.104", "0.104.0", []string{"", late, item, ended}, lateLine + "started op=2 thread=t1 turn=c1\nitem thread=t1 turn=c1 item=i phase=started body={contextCompaction  \"\" \"\" } method=item/started" + end},
		{"it begins before it is answered", "0.169.0", []string{begun, "", ended}, "started op=2 thread=t1 turn=c1\nraw thread=t1 turn=c1 method=turn/started" + end},
		{"it ends as it begins", "0.104.0", []string{"", ended}, "started op=2 thread=t1 turn=c1" + end},
	} {
		withApp(t, tc.name, tc.version, func(t *testing.T, p *appPeer) {
			h := p.open(threadSpec{})
			p.act(command{action: actCompact})
			m := p.expect("thread/compact/start")
			for _, line := range tc.says {
				if line == "" {
					line = `{"id":` + string(m.id) + `,"result":{}}`
				}
				p.say("%s", line)
			}
			want(t, h.take(), tc.want)
			time.Sleep(time.Minute) // nor does anything come of it later
			p.silent()
			p.begin(h)
		})
	}
	withApp(t, "busy while it runs", "0.104.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.act(command{action: actCompact})
		m := p.expect("thread/compact/start")
		p.say(`{"id":%s,"result":{}}`, m.id)
		p.a.do(3, "t1", command{kind: cmdTurn, prompt: "hi"})
		want(t, h.take(), `refused op=3 thread=t1 err={0 "thread t1 still runs turn whose start is not answered yet: interrupt it and wait for its end"}`)
		p.say(item)
		h.take()
		p.a.do(3, "t1", command{kind: cmdTurn, prompt: "hi"})
		want(t, h.take(), `refused op=3 thread=t1 err={0 "thread t1 still runs turn c1: interrupt it and wait for its end"}`)
		p.a.do(4, "t1", command{kind: cmdInterrupt, turn: "c1"})
		sameJSON(t, p.expect("turn/interrupt").params, `{"threadId":"t1","turnId":"c1"}`)
	})
	withApp(t, "refused", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.act(command{action: actCompact})
		m := p.expect("thread/compact/start")
		p.say(`{"id":%s,"error":{"code":-32600,"message":"thread not found: t1"}}`, m.id)
		want(t, h.take(), `refused op=2 thread=t1 err={-32600 "thread not found: t1" missing}`)
		p.begin(h)
	})
	withApp(t, "it never begins", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.act(command{action: actCompact})
		m := p.expect("thread/compact/start")
		p.say(`{"id":%s,"result":{}}`, m.id)
		time.Sleep(30 * time.Second)
		want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time" timeout}`)
		p.expect("turn/interrupt")
	})
}
