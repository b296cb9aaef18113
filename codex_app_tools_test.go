package main

// codex_app_tools_test.go holds the driver to answer each call of a dynamic tool
// exactly once, whatever becomes of the call, its session and the child: Codex
// waits for ever.

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

const atmSendCall = `{"id":%s,"method":"item/tool/call","params":{"threadId":%q,"turnId":"u1","callId":"c1","namespace":null,"tool":"atm_send","arguments":{"to":"bob"}}}`

// toolText is the text of the driver's answer to a tool call, with its request
// id and whether it is a success.
func toolText(t *testing.T, m *message) string {
	t.Helper()
	text := ""
	eachElement(rawField(m.result, "contentItems"), func(part json.RawMessage) {
		if stringField(part, "type") != "inputText" {
			t.Errorf("part %s", part)
		}
		text += stringField(part, "text")
	})
	return fmt.Sprintf("%s %s %s", m.id, rawField(m.result, "success"), text)
}

// A call is answered once, by its first result; 0.104 says it with fewer words.
func TestAppToolResult(t *testing.T) {
	for _, tc := range []struct{ version, params string }{
		{"0.104.0", `{"threadId":"t1","turnId":"u1","callId":"c1","tool":"atm_send","arguments":{"to":"bob"}}`},
		{"0.153.0", `{"threadId":"t1","turnId":"u1","callId":"c1","namespace":null,"tool":"atm_send","arguments":{"to":"bob"}}`},
		{"0.169.0", `{"threadId":"t1","turnId":"u1","callId":"exec-7","namespace":null,"tool":"atm_send","arguments":{"to":"bob"},"later":[1]}`},
	} {
		t.Run(tc.version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, tc.version)
				h := p.open(threadSpec{})
				p.begin(h)
				p.say(`{"id":0,"method":"item/tool/call","params":%s}`, tc.params)
				want(t, h.take(), fmt.Sprintf(`tool thread=t1 turn=u1 item=%s tool={tool-0-1 atm_send {"to":"bob"}} method=item/tool/call`, stringField([]byte(tc.params), "callId")))
				p.silent()
				result := command{kind: cmdToolResult, ask: "tool-0-1", text: "sent", ok: true}
				p.a.do(0, "t1", result)
				want(t, toolText(t, p.next()), "0 true sent")
				p.a.do(0, "t1", result)
				p.silent()
				time.Sleep(2 * time.Minute)
				p.silent()
			})
		})
	}
}

// Every other way out of a call has one answer too, and never an error of the
// protocol, of which the model would read nothing.
func TestAppToolAnsweredWithoutAResult(t *testing.T) {
	play := func(name string, f func(t *testing.T, p *appPeer, h *heard)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, "0.169.0")
				h := p.open(threadSpec{})
				p.begin(h)
				f(t, p, h)
			})
		})
	}
	late := command{kind: cmdToolResult, ask: "tool-0-1", text: "sent", ok: true}
	play("too late", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, `"r"`, "t1")
		time.Sleep(time.Minute + time.Second)
		want(t, toolText(t, p.next()), `"r" false atm_send had no result within 1m0s; it may or may not have been done, so look before you call it again`)
		p.a.do(0, "t1", late)
		p.silent()
	})
	play("the session let its thread go", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "4", "t1")
		p.a.do(0, "t1", command{kind: cmdUnload})
		want(t, toolText(t, p.next()), "4 false the session of this agent has ended, so atm_send can't be answered")
		p.expect("thread/unsubscribe")
		p.a.do(0, "t1", late)
		p.silent()
	})
	play("a call behind that", func(t *testing.T, p *appPeer, h *heard) {
		p.a.do(0, "t1", command{kind: cmdUnload})
		p.expect("thread/unsubscribe")
		p.say(atmSendCall, "5", "t1")
		time.Sleep(2 * time.Second)
		want(t, toolText(t, p.next()), `5 false the tool "atm_send" is not available in this session`)
		p.silent()
	})
	play("nobody's thread", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "6", "x9")
		p.silent() // it may yet turn out to be a subagent's
		time.Sleep(2 * time.Second)
		want(t, toolText(t, p.next()), `6 false the tool "atm_send" is not available in this session`)
	})
	play("without a thread", func(t *testing.T, p *appPeer, h *heard) {
		p.say(`{"id":7,"method":"item/tool/call","params":null}`)
		time.Sleep(2 * time.Second)
		want(t, toolText(t, p.next()), `7 false the tool "" is not available in this session`)
	})
	play("the turn was interrupted", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "8", "t1")
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"interrupted"}}}`)
		p.a.do(0, "t1", late)
		want(t, toolText(t, p.next()), "8 true sent") // Codex takes no notice, and what was done was done
		p.silent()
	})
	play("a subagent's is the session's", func(t *testing.T, p *appPeer, h *heard) {
		p.say(spawned, "t1", "s1")
		h.take()
		p.say(atmSendCall, "9", "s1")
		want(t, h.take(), `tool thread=s1 turn=u1 item=c1 tool={tool-0-1 atm_send {"to":"bob"}} method=item/tool/call`)
		p.a.do(0, "t1", late)
		want(t, toolText(t, p.next()), "9 true sent")
	})
	play("the child died", func(t *testing.T, p *appPeer, h *heard) {
		p.say(atmSendCall, "10", "t1")
		p.out.Close()
		synctest.Wait()
		p.a.do(0, "t1", late) // nobody is there, and nothing breaks
		if n := len(p.a.tools.open); n != 0 {
			t.Errorf("%d calls are still open", n)
		}
		time.Sleep(2 * time.Minute)
	})
}

// A session that unloads its thread while a call is on its way to it: whoever
// comes first, the call has one answer.
func TestAppToolMeetsUnload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playApp(t, "0.104.0")
		h := &heard{}
		p.a.open(1, threadSpec{}, func(e event) {
			if e.kind == evTool {
				p.a.do(0, "t1", command{kind: cmdUnload})
			}
			h.to(e)
		})
		p.say(`{"id":%s,"result":{"thread":{"id":"t1"},"model":"m"}}`, p.next().id)
		p.say(atmSendCall, "1", "t1")
		want(t, toolText(t, p.next()), "1 false the session of this agent has ended, so atm_send can't be answered")
		p.silent()
	})
}
