package main

// codex_app_turns_test.go holds the driver to its turns: nothing but a turn's own
// end ends it, an unanswered start is never sent again, and an interrupt reaches
// what runs, whatever of it the child has told by then.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAppTurnEndsOnlyByItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.begin(h)
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		m := p.expect("turn/start")
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"u1"}}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"failed","error":{"message":"boom","codexErrorInfo":"other"}}}}`)
		want(t, h.take(), "raw thread=t1 turn=u1 method=turn/started")
		p.say(`{"id":%s,"result":{"turn":{"id":"u1"}}}`, m.id)
		want(t, h.take(), `started op=2 thread=t1 turn=u1
ended thread=t1 turn=u1 status=failed err={0 "boom" other timeout=false missing=false held=false} method=turn/completed`)
	})
}

// turn/start is dropped without an answer: the outcome is unknown, the turn is
// interrupted, also if it begins later, and never sent again.
func TestAppTurnStartDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
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
		want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
		p.say(`{"id":%s,"result":{"turn":{"id":"late"}}}`, m.id) // too late: nobody waits
		p.say(`{"method":"turn/started","params":{"threadId":"t1","turn":{"id":"late"}}}`)
		i = p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"late"}`)
		want(t, h.take(), "raw thread=t1 turn=late method=turn/started")
		p.a.do(3, "t1", command{kind: cmdTurn})
		want(t, h.take(), `refused op=3 thread=t1 err={0 "thread t1 still runs turn late: interrupt it and wait for its end"  timeout=false missing=false held=false}`)
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
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, c.version)
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		p.expect("turn/start")
		i := p.expect("turn/interrupt")
		p.expect("thread/backgroundTerminals/clean")
		want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
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
		want(t, h.take(), `refused op=2 thread=t1 err={0 "Codex was too busy to be asked in time"  timeout=true missing=false held=false}`)
		p.a.do(3, "t1", command{kind: cmdTurn})
		time.Sleep(4 * time.Second) // the first calls' 10 s are over
		p.expect("turn/start")
	})
}

func TestAppInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		h := p.open(threadSpec{})
		p.begin(h)
		p.a.do(9, "t1", command{kind: cmdInterrupt})
		i := p.expect("turn/interrupt")
		sameJSON(t, i.params, `{"threadId":"t1","turnId":"u1"}`)
		p.silent()
		time.Sleep(10 * time.Second)
		want(t, h.take(), `refused op=9 thread=t1 turn=u1 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
	})
}
