package main

// codex_app_actions_test.go holds the driver's compactions and reviews, their
// settings, what goes wrong with them, images in prompts, and the news of MCP
// servers, against a peer that it plays itself. How real ones go on stands in
// testdata/recordings.

import (
	"testing"
	"testing/synctest"
	"time"
)

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
	t.Run("0.169", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.169.0")
			p.open(threadSpec{})
			p.a.do(2, "t1", command{kind: cmdTurn, action: actReview, settings: settings})
			m := p.expect("thread/settings/update")
			sameJSON(t, m.params, `{"threadId":"t1","cwd":"/w","model":"m","effort":"high","approvalPolicy":"on-request","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`)
			p.silent() // nothing runs before they are taken
			p.say(`{"id":%s,"result":{}}`, m.id)
			sameJSON(t, p.expect("review/start").params, `{"threadId":"t1","target":{"type":"uncommittedChanges"},"delivery":"inline"}`)
		})
	})
	t.Run("0.104 reviews under those of the thread, which are read-only", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.104.0")
			p.open(threadSpec{})
			p.a.do(2, "t1", command{kind: cmdTurn, action: actReview, prompt: "the parser", settings: settings})
			sameJSON(t, p.expect("review/start").params, `{"threadId":"t1","target":{"type":"custom","instructions":"the parser"},"delivery":"inline"}`)
		})
	})
	for _, tc := range []struct {
		name, answer string
		action       turnAction
		want         string
	}{
		{"refused", `"error":{"code":-32600,"message":"no such model"}`, actReview,
			`refused op=2 thread=t1 err={-32600 "no such model"  timeout=false missing=false held=false}`},
		{"a version without the method reviews nothing", `"error":{"code":-32600,"message":"Invalid request: unknown variant ` + "`thread/settings/update`, expected" + `"}`, actReview,
			`refused op=2 thread=t1 err={-32600 "this Codex 0.150.0 can't be told what a review may do; use a newer one, or ask for the review in a prompt"  timeout=false missing=false held=false}`},
		{"but it compacts", `"error":{"code":-32600,"message":"Invalid request: unknown variant ` + "`thread/settings/update`, expected" + `"}`, actCompact, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, "0.150.0")
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
		})
	}
	t.Run("no answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.169.0")
			h := p.open(threadSpec{})
			p.a.do(2, "t1", command{kind: cmdTurn, action: actReview})
			p.expect("thread/settings/update")
			time.Sleep(10 * time.Second)
			want(t, h.take(), `refused op=2 thread=t1 err={0 "Codex was too busy to be asked in time"  timeout=true missing=false held=false}`)
			p.silent() // there is nothing to interrupt
		})
	})
}

// A review that goes on after its session let go of the thread must not leave
// the thread busy for good: its end goes by another id than its beginning.
func TestAppReviewEndsUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.153.0")
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
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
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.169.0")
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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, tc.version)
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
		})
	}
	t.Run("busy while it runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.104.0")
			h := p.open(threadSpec{})
			p.act(command{action: actCompact})
			m := p.expect("thread/compact/start")
			p.say(`{"id":%s,"result":{}}`, m.id)
			p.a.do(3, "t1", command{kind: cmdTurn, prompt: "hi"})
			want(t, h.take(), `refused op=3 thread=t1 err={0 "thread t1 still runs turn whose start is not answered yet: interrupt it and wait for its end"  timeout=false missing=false held=false}`)
			p.say(item)
			h.take()
			p.a.do(3, "t1", command{kind: cmdTurn, prompt: "hi"})
			want(t, h.take(), `refused op=3 thread=t1 err={0 "thread t1 still runs turn c1: interrupt it and wait for its end"  timeout=false missing=false held=false}`)
			p.a.do(4, "t1", command{kind: cmdInterrupt, turn: "c1"})
			sameJSON(t, p.expect("turn/interrupt").params, `{"threadId":"t1","turnId":"c1"}`)
		})
	})
	t.Run("refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.169.0")
			h := p.open(threadSpec{})
			p.act(command{action: actCompact})
			m := p.expect("thread/compact/start")
			p.say(`{"id":%s,"error":{"code":-32600,"message":"thread not found: t1"}}`, m.id)
			want(t, h.take(), `refused op=2 thread=t1 err={-32600 "thread not found: t1"  timeout=false missing=true held=false}`)
			p.begin(h)
		})
	})
	t.Run("it never begins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := playApp(t, "0.169.0")
			h := p.open(threadSpec{})
			p.act(command{action: actCompact})
			m := p.expect("thread/compact/start")
			p.say(`{"id":%s,"result":{}}`, m.id)
			time.Sleep(30 * time.Second)
			want(t, h.take(), `refused op=2 thread=t1 unknown err={0 "Codex gave no answer in time"  timeout=true missing=false held=false}`)
			p.expect("turn/interrupt")
		})
	})
}

func TestAppPromptParts(t *testing.T) {
	image, file, text := promptPart{kind: "image", url: "data:image/png;base64,AA=="}, promptPart{kind: "localImage", path: "/p.png"}, promptPart{kind: "text", text: "and this"}
	for _, tc := range []struct {
		name string
		c    command
		want string
	}{
		{"text alone", command{prompt: "hi"}, `[{"type":"text","text":"hi","text_elements":[]}]`},
		{"nothing is an empty text", command{}, `[{"type":"text","text":"","text_elements":[]}]`},
		{"parts behind the prompt", command{prompt: "context", parts: []promptPart{image, text, file}},
			`[{"type":"text","text":"context","text_elements":[]},{"type":"image","url":"data:image/png;base64,AA=="},{"type":"text","text":"and this","text_elements":[]},{"type":"localImage","path":"/p.png"}]`},
		{"parts without a prompt", command{parts: []promptPart{image}}, `[{"type":"image","url":"data:image/png;base64,AA=="}]`},
	} {
		t.Run(tc.name, func(t *testing.T) { sameJSON(t, toJSON(turnInput(tc.c)), tc.want) })
	}
}

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

// 0.104 tells of servers in its first protocol alone.
func TestAppOldServers(t *testing.T) {
	for _, method := range oldEventMethods() {
		if method == oldStatus || method == oldComplete {
			t.Errorf("%s is opted out of", method)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		h := p.open(threadSpec{})
		say := func(method, msg string) {
			p.say(`{"method":"codex/event/%s","params":{"id":"","msg":%s,"conversationId":"t1"}}`, method, msg)
		}
		say("mcp_startup_update", `{"type":"mcp_startup_update","server":"a","status":{"state":"starting"}}`)
		want(t, h.take(), "server thread=t1 item=a status=starting method=codex/event/mcp_startup_update")
		say("mcp_startup_update", `{"type":"mcp_startup_update","server":"a","status":{"state":"failed","error":"no \"such\""}}`)
		sameJSON(t, h.last().raw, `{"id":"","msg":{"type":"mcp_startup_update","server":"a","status":{"state":"failed","error":"no \"such\""}},"conversationId":"t1"}`)
		want(t, h.take(), `server thread=t1 item=a status=failed text="no \"such\"" method=codex/event/mcp_startup_update`)
		say("mcp_startup_complete", `{"type":"mcp_startup_complete","ready":["r"],"failed":[{"server":"a","error":"no"}],"cancelled":["c"]}`)
		want(t, h.take(), "server thread=t1 item=c status=cancelled\nraw thread=t1 method=codex/event/mcp_startup_complete")
		say("task_started", `{"type":"task_started"}`)
		want(t, h.take(), "")
	})
}
