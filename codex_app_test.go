package main

// codex_app_test.go holds the app-server driver to its connection, its threads and their
// turns: the handshake, threads opened, recovered and let go, what isn't known, and that
// every sink hears of the child's end once. Nothing but a turn's own end ends it, an
// unanswered start is never sent again, an interrupt reaches what runs whatever the child
// has told by then; compactions run under the settings that the session chose.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A child that reads and never answers is stopped after the limit.
func TestAppHandshake(t *testing.T) {
	for agent, version := range map[string]string{
		"atm-agent-mcp/0.104.0 (Debian 12.0.0; x86_64) dumb (atm-agent-mcp; 1.0)": "0.104.0",
		"atm-agent-mcp/0.200.1-alpha.3 (x) y":                                     "0.200.1-alpha.3",
		"somebody/1.0":                                                            "",
		"":                                                                        "",
	} {
		want(t, versionOf(agent), version)
	}
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		if i := p.b.info(); i.version != "0.169.0" || i.kind != "app-server" {
			p.t.Errorf("info %+v", i)
		}
	})
	const asked = `{"clientInfo":{"name":"atm-agent-mcp","title":"ATM agent","version":"1"},
		"capabilities":{"experimentalApi":true,"optOutNotificationMethods":%s}}`
	for name, tc := range map[string]struct {
		answer func(p *codexPeer, m *message)
		took   time.Duration
		why    string
	}{
		"silent": {func(*codexPeer, *message) {}, 30 * time.Second,
			"did not answer initialize within 30s and was stopped"},
		"refused": {func(p *codexPeer, m *message) { p.fail(m, codeInvalidRequest, "no") }, 0,
			"refused initialize: no"},
		"gone": {func(p *codexPeer, _ *message) { p.out.Close() }, 0, "closed its stdout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeerOf(t, "app-server")
				begun, done := time.Now(), p.shaking()
				m := p.expect("initialize", fmt.Sprintf(asked, toJSON(oldEventMethods())))
				go func() { // like a real one, it leaves when its stdin ends
					_, _ = io.Copy(io.Discard, p.in)
					p.out.Close()
				}()
				tc.answer(p, m)
				d, ok := (<-done).(*childDeath)
				if !ok || !d.Never || d.Reason != tc.why || time.Since(begun) != tc.took {
					t.Errorf("after %v: %+v", time.Since(begun), d)
				}
			})
		})
	}
}

// An overloaded app-server took nothing: who called may try again.
func TestAppOpenRefused(t *testing.T) {
	for _, tc := range []struct {
		message string
		code    int
		flag    string
		told    int // the code of the error that a caller gets
	}{
		{"no rollout found for thread id t9", codeInvalidRequest, " Missing", codeSessionNotFound},
		{"invalid session id: invalid character", codeInvalidRequest, " Missing", codeSessionNotFound},
		{"thread t9 already has an active writer", codeInvalidRequest, " Held", codeIdentityConflict},
		{"failed to load configuration: x", codeInvalidRequest, "", codeInvalidSession},
		{"Server overloaded; retry later.", codeOverloaded, " Busy", codeTimeout},
	} {
		withApp(t, tc.message, "0.169.0", func(p *codexPeer) {
			h := p.hear()
			p.b.open(5, threadSpec{Thread: "t9"}, h.to)
			p.fail(p.expect("thread/resume"), tc.code, tc.message)
			refused := h.last()
			e := childError("open the thread", refused.err)
			if e.Code != tc.told || !strings.Contains(e.Message, tc.message) {
				p.t.Errorf("told: %+v", e)
			}
			line := fmt.Sprintf("refused #5 t9 err={Code=%d Message=%q%s}", tc.code, tc.message, tc.flag)
			want(p.t, eventLine(refused), line)
			p.out.Close()
			h.wants() // nothing after a refusal, no gone either
		})
	}
	withApp(t, "never answered", "0.169.0", func(p *codexPeer) {
		h := p.hear()
		p.b.open(5, threadSpec{}, h.to)
		p.expect("thread/start")
		time.Sleep(59 * time.Second)
		h.wants()
		time.Sleep(time.Second)
		h.wants(`refused #5 unknown err={Message="Codex gave no answer in time" Timeout}`)
	})
}

// A thread that is opened to recover may still run a turn in this child: the turn is
// stopped before anybody hears that the thread is open.
func TestAppRecoversAThread(t *testing.T) {
	const idle, active = `{"id":"t1","status":{"type":"idle"}}`, `{"id":"t1","status":{"type":"active"}}`
	recovering := func(p *codexPeer, thread string) (h *heard) {
		h = p.hear()
		p.b.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
		p.serve("thread/resume", `{"thread":`+thread+`}`)
		return h
	}
	for _, tc := range []struct{ name, version, thread, turn string }{
		{"0.169 by status", "0.169.0", active, ""},
		{"0.104 by its last turn", "0.104.0",
			`{"id":"t1","turns":[{"id":"a","status":"completed"},{"id":"b","status":"inProgress"}]}`, "b"},
	} {
		withApp(t, tc.name, tc.version, func(p *codexPeer) {
			h := recovering(p, tc.thread)
			p.answer(p.stops(tc.turn), `{}`)
			p.request("7", mFileChange, "t1", "")
			want(p.t, p.reply(), `7 {"decision":"decline"}`)
			p.tell("item/agentMessage/delta", "t1", `,"turnId":"b","itemId":"i","delta":"old"`)
			h.wants()
			p.ended("t1", "b", "interrupted")
			h.wants("opened #5 t1 opened={}")
		})
	}
	withApp(t, "idle on 0.104 is not interrupted, that would never be answered", "0.104.0", func(p *codexPeer) {
		recovering(p, `{"id":"t1","turns":[{"id":"a","status":"completed"}]}`).wants("opened #5 t1 opened={}")
		p.silent()
	})
	withApp(t, "a turn that can't be stopped", "0.169.0", func(p *codexPeer) {
		h := recovering(p, active)
		p.answer(p.stops(""), `{}`)
		time.Sleep(10 * time.Second)
		h.wants(`refused #5 t1 err={Message="an earlier turn of thread t1 still runs ` +
			`and could not be stopped within 10s" Timeout}`)
	})
	// What is told of MCP servers meanwhile comes once, and somebody may wait for it.
	withApp(t, "its servers", "0.169.0", func(p *codexPeer) {
		h := p.hear()
		p.b.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
		m := p.expect("thread/resume")
		p.tell(mServerStatus, "t1", `,"name":"a","status":"starting"`)
		p.answer(m, `{"thread":`+idle+`}`)
		i := p.stops("")
		p.tell(mServerStatus, "t1", `,"name":"a","status":"failed","error":"no","failureReason":"reauthentication"`)
		p.tell("item/agentMessage/delta", "t1", `,"turnId":"b","itemId":"i","delta":"old"`)
		h.wants()
		p.fail(i, codeInvalidRequest, "no active turn to interrupt")
		h.wants("opened #5 t1 opened={}",
			"server t1//a starting ("+mServerStatus+")",
			`server t1//a text="no (reauthentication)" failed (`+mServerStatus+")")
		p.say(`{"method":%q,"params":{"threadId":null,"name":"a","status":"ready"}}`, mServerStatus) // of no thread
		p.tell(mServerStatus, "t1", `,"name":"b","status":"ready","error":null`)
		h.wants("server t1//b ready (" + mServerStatus + ")")
	})
}

func TestAppUnload(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.running()
		p.request("3", mFileChange, "t1", "")
		h.take()
		p.unload()
		want(p.t, p.reply(), `3 {"decision":"decline"}`)
		p.expect("thread/unsubscribe", `{"threadId":"t1"}`)
		p.ended("t1", "u1", "completed")
		p.out.Close()
		h.wants()
	})
	withApp(t, "", "0.104.0", func(p *codexPeer) {
		p.open(threadSpec{})
		p.unload()
		p.silent() // archive is all it has, and that takes the history away
		p.open(threadSpec{Thread: "t1"})
	})
}

func TestAppEveryoneHearsOnceThatTheChildIsGone(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		const gone = ` err={Message="the Codex child process ended: closed its stdout"}`
		h, pending, after := p.open(threadSpec{}), p.hear(), p.hear()
		p.turn(2)
		p.expect("turn/start")
		p.b.open(6, threadSpec{}, pending.to)
		p.expect("thread/start")
		p.out.Close()
		h.wants("gone #1 t1" + gone)
		pending.wants("gone #6" + gone)
		if len(p.died) != 1 {
			p.t.Errorf("OnGone was called %d times", len(p.died))
		}
		p.b.open(7, threadSpec{}, after.to)
		p.turn(8)
		p.interrupt(9, "")
		time.Sleep(2 * time.Minute)
		after.wants("gone #7" + gone)
		h.wants()
		if _, err := p.b.catalog(context.Background(), "account", ""); err == nil {
			p.t.Error("a dead child answered")
		}
	})
}

// Whatever comes that isn't known is raw or nothing, and the stream goes on.
func TestAppUnknownEverything(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.running()
		for _, line := range []string{"garbage", "{", "[]", `[{"method":"x"}]`, `{"id":null}`,
			`{"id":99999,"result":{}}`, `{"id":"x","result":1}`, "\xff\xfe",
			`{"method":"turn/completed"}`, `{"method":"turn/completed","params":null}`,
			`{"method":"turn/completed","params":[1]}`, `{"method":"configWarning","params":{"summary":"s"}}`,
			`{"method":"codex/event/agent_message","params":{"id":"u1","msg":{},"conversationId":"t1"}}`} {
			p.say("%s", line)
		}
		h.wants()
		p.say(`{"method":"brand/new","params":{"threadId":"t1","x":1},"emittedAtMs":5}`)
		p.item("started", "t1", "hologram", "i9", `,"status":"sparkling"`)
		p.tell("item/completed", "t1", `,"turnId":"u1","item":7`)
		p.tell("thread/tokenUsage/updated", "t1", `,"tokenUsage":"many"`)
		p.tell("error", "t1", `,"turnId":"u1","willRetry":true,"error":{"message":"Reconnecting... 1/2",
			"codexErrorInfo":{"brandNew":{"httpStatusCode":null}},"additionalDetails":"d"}`)
		p.ended("t1", "u1", "evaporated")
		h.wants("raw t1 (brand/new)",
			"item t1/u1/i9 started body={hologram sparkling} (item/started)",
			"raw t1/u1 (item/completed)",
			"raw t1 (thread/tokenUsage/updated)",
			`notice t1/u1 text="Reconnecting... 1/2: d" retry (error)`,
			"ended t1/u1 completed (turn/completed)")
	})
}

// A subagent's thread speaks before its parent names it.
func TestAppSubagentsAreTheSessions(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.running()
		p.started("s1", "v1")
		p.say(`{"id":0,"method":%q,"params":{"threadId":"s1","turnId":"v1","command":"x"}}`, mCommand)
		p.say(`{"method":"thread/started","params":{"thread":{"id":"s2","parentThreadId":"s1"}}}`) // below it
		h.wants()
		time.Sleep(900 * time.Millisecond)
		p.spawned("t1", "s1")
		h.wants(spawnedLine, "raw s1/v1 (turn/started)",
			"ask s1/v1 ask={ask-0-1 command action=x command=x forSession subagent={}} ("+mCommand+")",
			"raw s2 (thread/started)")
		p.say(`{"method":"thread/started","params":{"thread":{"id":"s3",
			"source":{"subAgent":{"thread_spawn":{"parent_thread_id":"t1","depth":1}}}}}}`)
		h.wants("raw s3 (thread/started)")
		// one interrupt stops the tree
		p.interrupt(0, "u1")
		var sent []string
		for range 6 {
			m := p.next()
			sent = append(sent, m.method+" "+string(m.params))
		}
		slices.Sort(sent)
		want(p.t, strings.Join(sent, "\n"), `thread/backgroundTerminals/clean {"threadId":"s1"}
thread/backgroundTerminals/clean {"threadId":"s2"}
thread/backgroundTerminals/clean {"threadId":"s3"}
thread/backgroundTerminals/clean {"threadId":"t1"}
turn/interrupt {"threadId":"s1","turnId":"v1"}
turn/interrupt {"threadId":"t1","turnId":"u1"}`)
		// the subagent's end is not the session's, and what a subagent starts now is stopped too
		p.ended("s1", "v1", "interrupted")
		p.started("s2", "w1")
		p.expect("turn/interrupt", `{"threadId":"s2","turnId":"w1"}`)
		h.wants("askGone s1/v1 ask={ask-0-1}", "raw s1/v1 (turn/completed)", "raw s2/w1 (turn/started)")
	})
}

// spawned tells that a turn of a thread has started a subagent.
func (p *codexPeer) spawned(thread, subagent string) {
	p.item("completed", thread, "collabAgentToolCall", "c", `,"receiverThreadIds":["`+subagent+`"]`)
}

const spawnedLine = `item t1/u1/c completed ` +
	`body={collabAgentToolCall arguments={"receiverThreadIds":["s1"]}} (item/completed)`

// What nobody claims is dropped after a second, and its requests declined.
func TestAppUnownedThreads(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.running()
		declined := func(id string, after time.Duration) {
			p.t.Helper()
			begun := time.Now()
			p.request(id, mFileChange, "s1", "")
			want(p.t, p.reply(), id+` {"decision":"decline"}`)
			if d := time.Since(begun); d != after {
				p.t.Errorf("after %v", d)
			}
		}
		p.tell("item/agentMessage/delta", "s1", `,"turnId":"v","itemId":"i","delta":"x"`)
		declined("5", time.Second)
		// over the limit a request isn't held any more
		for i := range maxHeldBytes / heldOverhead {
			p.say(`{"method":"x","params":{"threadId":"z%d"}}`, i)
		}
		declined("6", 0)
		p.spawned("t1", "s1")
		h.wants(spawnedLine)
		time.Sleep(time.Second)
		synctest.Wait()
		if l := &p.a.threads.unowned; len(l.held) != 0 || l.bytes != 0 {
			p.t.Errorf("%d unowned threads, %d bytes kept", len(l.held), l.bytes)
		}
	})
	// thread/start's own first words come before its answer, however slow that is
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.hear()
		p.b.open(1, threadSpec{}, h.to)
		m := p.expect("thread/start")
		p.tell(mServerStatus, "t1", `,"name":"atm","status":"starting"`)
		time.Sleep(20 * time.Second)
		p.answer(m, `{"thread":{"id":"t1"},"model":"m"}`)
		h.wants("opened #1 t1 opened={model=m}", "server t1//atm starting ("+mServerStatus+")")
	})
}

func TestAppTurnEndsOnlyByItsOwnEnd(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.running()
		p.tell("item/completed", "t1", `,"turnId":"before","item":{"type":"agentMessage","id":"i","text":"late"}`)
		h.wants("raw t1/before (item/completed)") // no answer of this turn
		p.ended("t1", "other", "completed")
		p.tell("thread/status/changed", "t1", `,"status":{"type":"idle"}`)
		p.tell("turn/completed", "t1", `,"turn":{"id":"u1","status":"completed","items":[
			{"type":"agentMessage","phase":"commentary","text":"no"},{"type":"agentMessage","text":"yes"}]}`)
		p.ended("t1", "u1", "completed") // a second end is no news
		h.wants("raw t1/other (turn/completed)", "raw t1 (thread/status/changed)",
			"ended t1/u1 text=yes completed (turn/completed)", "raw t1/u1 (turn/completed)")
		late := `,"turnId":"u1","item":{"type":"agentMessage","id":"i","text":"late"}`
		p.tell("item/completed", "t1", late)
		p.turn(3)
		p.expect("turn/start")
		p.tell("item/completed", "t1", late)
		h.wants("raw t1/u1 (item/completed)", "raw t1/u1 (item/completed)") // no answer of the turn that has no name yet
	})
	// the end may overtake the answer that names the turn
	withApp(t, "", "0.104.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		p.turn(2)
		m := p.expect("turn/start")
		p.started("t1", "u1")
		p.tell("turn/completed", "t1", `,"turn":{"id":"u1","status":"failed","error":{"message":"boom"}}`)
		h.wants("raw t1/u1 (turn/started)")
		p.answer(m, `{"turn":{"id":"u1"}}`)
		h.wants("started #2 t1/u1", "ended t1/u1 failed err={Message=boom} (turn/completed)")
	})
}

// turn/start is dropped without an answer: the outcome is unknown, the turn is
// interrupted, also if it begins later, and never sent again.
func TestAppTurnStartDropped(t *testing.T) {
	dropped := func(p *codexPeer) (h *heard, start, stop *message) {
		h = p.open(threadSpec{})
		begun := time.Now()
		p.turn(2)
		start = p.expect("turn/start")
		stop = p.stops("")
		if time.Since(begun) != 30*time.Second {
			p.t.Errorf("after %v", time.Since(begun))
		}
		h.wants(`refused #2 t1 unknown err={Message="Codex gave no answer in time" Timeout}`)
		return h, start, stop
	}
	withApp(t, "it begins later", "0.169.0", func(p *codexPeer) {
		h, start, _ := dropped(p)
		p.answer(start, `{"turn":{"id":"late"}}`) // too late: nobody waits
		p.started("t1", "late")
		p.expect("turn/interrupt", `{"threadId":"t1","turnId":"late"}`)
		p.turn(3)
		p.ended("t1", "late", "interrupted")
		h.wants("raw t1/late (turn/started)",
			`refused #3 t1 err={Message="thread t1 still runs turn late: interrupt it and wait for its end"}`,
			"ended t1/late interrupted (turn/completed)")
		p.turn(4)
		p.expect("turn/start")
	})
	withApp(t, "nothing runs, as Codex says, and that ends it once", "0.169.0", func(p *codexPeer) {
		h, _, stop := dropped(p)
		p.fail(stop, codeInvalidRequest, "no active turn to interrupt")
		h.wants("ended t1 interrupted")
		p.interrupt(0, "")
		p.fail(p.stops(""), codeInvalidRequest, "no active turn to interrupt")
		h.wants()
	})
}

// 32 calls may be open; what had to wait for a slot and never got one was not
// sent, so it did not happen. A slot is freed when its call times out.
func TestAppInFlightLimit(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		for range appInFlight {
			go func() { _, _ = p.b.catalog(context.Background(), "account", "") }()
		}
		for range appInFlight {
			p.expect("account/read")
		}
		p.turn(2)
		time.Sleep(6 * time.Second)
		h.wants(`refused #2 t1 err={Message="Codex was too busy to be asked in time" Busy}`)
		p.turn(3)
		time.Sleep(4 * time.Second) // the first calls' 10 s are over
		p.expect("turn/start")
	}, func(o *appServerOptions) { o.TurnLimit = 5 * time.Second })
}

func TestAppInterruptReachesWhatRuns(t *testing.T) {
	withApp(t, "accepted and not begun", "0.169.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		p.turn(2)
		p.serve("turn/start", `{"turn":{"id":"u1"}}`)
		p.interrupt(9, "u1") // 0.153 and 0.169 refuse the id now and run the turn
		p.fail(p.stops(""), codeInvalidRequest, "no active turn to interrupt")
		p.started("t1", "u1")
		p.answer(p.expect("turn/interrupt", `{"threadId":"t1","turnId":"u1"}`), `{}`)
		p.ended("t1", "u1", "interrupted")
		h.wants("started #2 t1/u1", "raw t1/u1 (turn/started)", "ended t1/u1 interrupted (turn/completed)")
		p.interrupt(10, "u1") // the turn is over: nothing is sent for its id
		p.expect(methodClean)
		p.silent()
	})
	withApp(t, "not accepted yet", "0.169.0", func(p *codexPeer) {
		p.open(threadSpec{})
		p.turn(2)
		p.interrupt(0, "")
		m := p.expect("turn/start")
		p.answer(p.stops(""), `{}`)
		p.answer(m, `{"turn":{"id":"u1"}}`)
		p.stops("")
	})
	// The interrupt reached Codex before the turn had begun, and was refused when it ran.
	withApp(t, "begun meanwhile", "0.169.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		p.turn(2)
		p.serve("turn/start", `{"turn":{"id":"u1"}}`)
		p.started("t1", "u1")
		p.interrupt(9, "u1")
		p.fail(p.stops("u1"), codeInvalidRequest, "no active turn to interrupt")
		p.fail(p.expect("turn/interrupt", `{"threadId":"t1","turnId":"u1"}`), codeInvalidRequest, "no")
		h.wants("started #2 t1/u1", "raw t1/u1 (turn/started)", "refused #9 t1/u1 err={Code=-32600 Message=no}")
	})
	// 0.104 doesn't answer an interrupt when nothing runs; it has no list of terminals to clean with it.
	withApp(t, "never answered", "0.104.0", func(p *codexPeer) {
		h := p.running()
		p.interrupt(9, "")
		p.expect("turn/interrupt", `{"threadId":"t1","turnId":"u1"}`)
		p.silent()
		time.Sleep(10 * time.Second)
		h.wants(`refused #9 t1/u1 unknown err={Message="Codex gave no answer in time" Timeout}`)
	})
}

// An interrupted turn ends when its shells have: 0.169 tells that after the turn's end,
// and is not waited for where it doesn't. 0.104 tells nothing.
func TestAppInterruptEndsShellsFirst(t *testing.T) {
	const ended = "ended t1/u1 interrupted (turn/completed)"
	for name, tc := range map[string]struct {
		version   string
		tells     bool
		wait      time.Duration
		then, end []string
	}{
		"told": {"0.169.0", true, 0, nil,
			[]string{"item t1/u1/c1 completed body={commandExecution failed} (item/completed)", ended}},
		"not told": {"0.169.0", false, shellsGrace, nil, []string{ended}},
		"0.104":    {"0.104.0", false, 0, []string{ended}, nil},
	} {
		withApp(t, name, tc.version, func(p *codexPeer) {
			h := p.running()
			p.item("started", "t1", "commandExecution", "c1", "")
			h.take()
			p.interrupt(0, "")
			p.serve("turn/interrupt", `{}`)
			p.ended("t1", "u1", "interrupted")
			h.wants(tc.then...)
			if tc.tells {
				p.item("completed", "t1", "commandExecution", "c1", `,"status":"failed"`)
			}
			time.Sleep(tc.wait)
			h.wants(tc.end...)
		})
	}
}

// act starts an action on t1 as op 2 and answers what is sent before it.
func (p *codexPeer) act(action turnAction) {
	p.t.Helper()
	p.b.do(2, "t1", command{kind: cmdTurn, action: action})
	if p.b.info().atLeast(148) {
		p.serve("thread/settings/update", `{}`)
	}
}

// A compaction takes no settings, so those of the session must be the thread's before it begins.
func TestAppCompactionSettings(t *testing.T) {
	set := turnSettings{Cwd: "/w", Model: "m", Effort: "high", Approval: "on-request", Sandbox: "read-only"}
	for _, tc := range []struct {
		name, refusal string // "": they are taken
		next          string // what is sent then; "": nothing
		want          string
	}{
		{"taken", "", "thread/compact/start", ""},
		{"refused", "no such model", "", `refused #2 t1 err={Code=-32600 Message="no such model"}`},
		{"a version without the method", "Invalid request: unknown variant `thread/settings/update`, expected",
			"thread/compact/start", ""},
	} {
		withApp(t, tc.name, "0.150.0", func(p *codexPeer) {
			h := p.open(threadSpec{})
			p.b.do(2, "t1", command{kind: cmdTurn, action: actCompact, settings: set})
			m := p.expect("thread/settings/update", `{"threadId":"t1","cwd":"/w","model":"m","effort":"high",
				"approvalPolicy":"on-request","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`)
			p.silent()
			if tc.refusal == "" {
				p.answer(m, `{}`)
			} else {
				p.fail(m, codeInvalidRequest, tc.refusal)
			}
			if h.wants(tc.want); tc.next != "" {
				p.expect(tc.next)
				return
			}
			p.silent()
			p.begin(h) // the thread is free
		})
	}
	withApp(t, "no answer", "0.169.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		p.b.do(2, "t1", command{kind: cmdTurn, action: actCompact})
		p.expect("thread/settings/update")
		time.Sleep(10 * time.Second)
		h.wants(`refused #2 t1 err={Message="Codex was too busy to be asked in time" Busy}`)
		p.silent() // there is nothing to interrupt
	})
	withApp(t, "nobody waits for it any more", "0.169.0", func(p *codexPeer) {
		p.open(threadSpec{})
		p.b.do(2, "t1", command{kind: cmdTurn, action: actCompact})
		m := p.expect("thread/settings/update")
		p.unload()
		p.expect("thread/unsubscribe")
		p.answer(m, `{}`)
		p.silent()
	})
}

// What a compaction's id is, only its first word tells.
func TestAppCompact(t *testing.T) {
	const start, raw, ended = "started #2 t1/c1", "raw t1/c1 (turn/started)", "ended t1/c1 interrupted (turn/completed)"
	for _, tc := range []struct {
		name   string
		begins bool // before it is answered
		want   []string
	}{
		{"it begins before it is answered", true, []string{start, raw, ended}},
		{"it ends as it begins", false, []string{start, ended}},
	} {
		withApp(t, tc.name, "0.169.0", func(p *codexPeer) {
			h := p.open(threadSpec{})
			p.act(actCompact)
			m := p.expect("thread/compact/start")
			p.tell("item/completed", "t1", `,"turnId":"old","item":{"type":"commandExecution","id":"i"}`)
			h.wants("item t1/old/i completed body={commandExecution} (item/completed)")
			if tc.begins {
				p.started("t1", "c1")
			}
			p.answer(m, `{}`)
			p.ended("t1", "c1", "interrupted")
			h.wants(tc.want...)
			time.Sleep(time.Minute) // nor does anything come of it later
			p.silent()
			p.begin(h)
		})
	}
	withApp(t, "busy while it runs", "0.104.0", func(p *codexPeer) {
		const busy = `refused #3 t1 err={Message="thread t1 still runs turn %s: interrupt it and wait for its end"}`
		h := p.open(threadSpec{})
		p.act(actCompact)
		p.serve("thread/compact/start", `{}`)
		p.turn(3)
		h.wants(fmt.Sprintf(busy, "whose start is not answered yet"))
		p.tell("item/started", "t1", `,"turnId":"c1","item":{"type":"contextCompaction","id":"i"}`)
		h.take()
		p.turn(3)
		h.wants(fmt.Sprintf(busy, "c1"))
		p.interrupt(4, "c1")
		p.expect("turn/interrupt", `{"threadId":"t1","turnId":"c1"}`)
	})
	withApp(t, "refused, and never begun", "0.169.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		p.act(actCompact)
		p.fail(p.expect("thread/compact/start"), codeInvalidRequest, "thread not found: t1")
		h.wants(`refused #2 t1 err={Code=-32600 Message="thread not found: t1" Missing}`)
		p.act(actCompact) // the thread is free
		p.serve("thread/compact/start", `{}`)
		time.Sleep(30 * time.Second)
		h.wants(`refused #2 t1 unknown err={Message="Codex gave no answer in time" Timeout}`)
		p.expect("turn/interrupt")
	})
}

// Two sessions that reopen a thread one after the other: the first hears nothing more.
func TestAppReopenedThreadIsTheLastSessions(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		before := p.running()
		p.request("3", mCommand, "t1", `,"command":"x"`)
		before.take()
		h := p.hear()
		p.b.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
		p.serve("thread/resume", `{"thread":{"id":"t1"}}`)
		want(p.t, p.reply(), `3 {"decision":"decline"}`)
		p.answer(p.stops("u1"), `{}`)
		p.ended("t1", "u1", "interrupted")
		h.wants("opened #5 t1 opened={}")
		before.wants()
	})
}

func TestAppErrorsSayWhatToDo(t *testing.T) {
	for _, tc := range []struct{ raw, info, message string }{
		{`{"message":"unexpected status 401 Unauthorized: Missing bearer, url: x","codexErrorInfo":"other"}`, // 0.104
			"unauthorized", "run `codex login`"},
		{`{"message":"unexpected status","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":401}}}`, // 0.169
			"unauthorized", "run `codex login`"},
		{`{"message":"Run codex login to continue","codexErrorInfo":"other"}`, "unauthorized", "Run codex login"},
		{`{"message":"boom","additionalDetails":"slow down",
			"codexErrorInfo":{"responseTooManyFailedAttempts":{"httpStatusCode":429}}}`,
			"responseTooManyFailedAttempts", "boom: slow down"},
		{`7`, "", "Codex gave no reason"},
	} {
		e := turnError(json.RawMessage(tc.raw))
		if e.Info != tc.info || !strings.Contains(e.Message, tc.message) ||
			strings.Count(e.Message, "codex login") > 1 {
			t.Errorf("%s: %+v", tc.raw, e)
		}
	}
}
