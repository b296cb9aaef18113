package main

// codex_app_threads_test.go holds which session hears of a thread: subagents that
// speak before they are named, threads that nobody owns, and what comes for a
// thread before it is open.

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is told of MCP servers while an earlier turn is stopped comes once, and
// somebody may wait for it.
func TestAppServersWhileRecovering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := &heard{}
		p.a.open(1, threadSpec{}, h.to)
		m := p.expect("thread/start")
		p.say(`{"method":"mcpServer/startupStatus/updated","params":{"threadId":"t1","name":"atm","status":"starting"}}`)
		time.Sleep(20 * time.Second)
		p.say(`{"id":%s,"result":{"thread":{"id":"t1"},"model":"m"}}`, m.id)
		want(t, h.take(), "opened op=1 thread=t1 model=m\nserver thread=t1 item=atm status=starting method=mcpServer/startupStatus/updated")
	})
}
