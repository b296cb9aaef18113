package main

// codex_app_test.go holds the app-server driver to its connection: the handshake,
// threads opened, recovered and let go, what isn't known, and that every sink
// hears of the child's end once.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAppHandshake(t *testing.T) {
	for agent, version := range map[string]string{
		"atm-agent-mcp/0.104.0 (Debian 12.0.0; x86_64) dumb (atm-agent-mcp; 1.0)": "0.104.0",
		"atm-agent-mcp/0.200.1-alpha.3 (x) y":                                     "0.200.1-alpha.3",
		"somebody/1.0":                                                            "",
		"":                                                                        "",
	} {
		want(t, versionOf(agent), version)
	}
	synctest.Test(t, func(t *testing.T) {
		p := newAppPeer(t)
		done := make(chan error, 1)
		go func() { done <- p.a.initialize(context.Background()) }()
		m := p.expect("initialize")
		if name := stringField(m.params, "clientInfo", "name"); name != "atm-agent-mcp" {
			t.Errorf("clientInfo.name %q", name)
		}
		if string(rawField(m.params, "capabilities", "experimentalApi")) != "true" {
			t.Error("experimentalApi is not asked for")
		}
		if !rawListHas(rawField(m.params, "capabilities", "optOutNotificationMethods"), "codex/event/agent_message_delta") {
			t.Error("0.104 will say everything twice")
		}
		p.say(`{"id":%s,"result":{"userAgent":"atm-agent-mcp/0.169.0 (x)"}}`, m.id)
		p.expect("initialized")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if i := p.a.info(); i.version != "0.169.0" || i.kind != "app-server" {
			t.Errorf("info %+v", i)
		}
	})
}

// A child that reads and never answers is stopped after the limit.
func TestAppHandshakeSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAppPeer(t)
		go func() { // like a real one, it leaves when its stdin ends
			_, _ = io.Copy(io.Discard, p.in)
			p.out.Close()
		}()
		begun := time.Now()
		err := p.a.initialize(context.Background())
		d, ok := err.(*childDeath)
		if !ok || !d.Never || !strings.Contains(d.Reason, "within 30s") || time.Since(begun) != 30*time.Second {
			t.Fatalf("after %v: %#v", time.Since(begun), err)
		}
	})
}

func TestAppHandshakeRefusedOrGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAppPeer(t)
		go func() {
			m := p.next()
			p.say(`{"id":%s,"error":{"code":-32600,"message":"no"}}`, m.id)
			_, _ = io.Copy(io.Discard, p.in)
			p.out.Close()
		}()
		if d, ok := p.a.initialize(context.Background()).(*childDeath); !ok || !d.Never || d.Reason != "refused initialize: no" {
			t.Errorf("%v", d)
		}
		q := newAppPeer(t)
		go func() {
			q.next()
			q.out.Close()
		}()
		if d, ok := q.a.initialize(context.Background()).(*childDeath); !ok || !d.Never || d.Reason != "closed its stdout" {
			t.Errorf("%v", d)
		}
	})
}

// An overloaded app-server took nothing: who called may try again.
func TestAppOpenRefused(t *testing.T) {
	for _, tc := range []struct {
		name    string
		code    int
		message string
		flag    string
		told    int // the code of the error that a caller gets
	}{
		{"no history", -32600, "no rollout found for thread id t9", " missing", codeSessionNotFound},
		{"not loaded", -32600, "thread not found: t9", " missing", codeSessionNotFound},
		{"no id", -32600, "invalid session id: invalid character", " missing", codeSessionNotFound},
		{"second writer", -32600, "thread t9 already has an active writer", " held", codeIdentityConflict},
		{"bad config", -32600, "failed to load configuration: x", "", codeInvalidSession},
		{"overloaded", codeOverloaded, "Server overloaded; retry later.", " busy", codeTimeout},
	} {
		withApp(t, tc.name, "0.169.0", func(t *testing.T, p *appPeer) {
			h := &heard{}
			p.a.open(5, threadSpec{Thread: "t9"}, h.to)
			p.say(`{"id":%s,"error":{"code":%d,"message":%q}}`, p.expect("thread/resume").id, tc.code, tc.message)
			if e := childError("open the thread", h.last().err); e.Code != tc.told || !strings.Contains(e.Message, tc.message) {
				t.Errorf("told: %+v", e)
			}
			want(t, h.take(), fmt.Sprintf("refused op=5 thread=t9 err={%d %q%s}", tc.code, tc.message, tc.flag))
			p.out.Close()
			want(t, h.take(), "") // nothing after a refusal, no gone either
		})
	}
}

func TestAppOpenDropped(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := &heard{}
		p.a.open(5, threadSpec{}, h.to)
		p.expect("thread/start")
		time.Sleep(59 * time.Second)
		want(t, h.take(), "")
		time.Sleep(time.Second)
		want(t, h.take(), `refused op=5 unknown err={0 "Codex gave no answer in time" timeout}`)
	})
}

// A thread that is opened to recover may still run a turn in this child: it is
// stopped before anybody hears that the thread is open.
func TestAppRecover(t *testing.T) {
	for _, tc := range []struct{ name, version, thread, turn string }{
		{"0.169 by status", "0.169.0", `{"id":"t1","status":{"type":"active","activeFlags":[]}}`, ""},
		{"0.104 by its last turn", "0.104.0", `{"id":"t1","turns":[{"id":"a","status":"completed"},{"id":"b","status":"inProgress"}]}`, "b"},
	} {
		withApp(t, tc.name, tc.version, func(t *testing.T, p *appPeer) {
			h := &heard{}
			p.a.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
			m := p.expect("thread/resume")
			p.say(`{"id":%s,"result":{"thread":%s}}`, m.id, tc.thread)
			i := p.expect("turn/interrupt")
			sameJSON(t, i.params, fmt.Sprintf(`{"threadId":"t1","turnId":%q}`, tc.turn))
			p.expect("thread/backgroundTerminals/clean")
			p.say(`{"id":%s,"result":{}}`, i.id)
			p.say(`{"id":7,"method":"item/fileChange/requestApproval","params":{"threadId":"t1","turnId":"b","itemId":"i"}}`)
			want(t, p.reply(), `7 {"decision":"decline"}`)
			p.say(`{"method":"item/agentMessage/delta","params":{"threadId":"t1","turnId":"b","itemId":"i","delta":"old"}}`)
			want(t, h.take(), "")
			p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"b","status":"interrupted"}}}`)
			want(t, h.take(), "opened op=5 thread=t1")
		})
	}
	withApp(t, "idle on 0.104 is not interrupted, that would never be answered", "0.104.0", func(t *testing.T, p *appPeer) {
		h := &heard{}
		p.a.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
		m := p.expect("thread/resume")
		p.say(`{"id":%s,"result":{"thread":{"id":"t1","turns":[{"id":"a","status":"completed"}]}}}`, m.id)
		want(t, h.take(), "opened op=5 thread=t1")
		p.silent()
	})
	withApp(t, "a turn that can't be stopped", "0.169.0", func(t *testing.T, p *appPeer) {
		h := &heard{}
		p.a.open(5, threadSpec{Thread: "t1", Recover: true}, h.to)
		m := p.expect("thread/resume")
		p.say(`{"id":%s,"result":{"thread":{"id":"t1","status":{"type":"active"}}}}`, m.id)
		i := p.expect("turn/interrupt")
		p.expect("thread/backgroundTerminals/clean")
		p.say(`{"id":%s,"result":{}}`, i.id)
		time.Sleep(10 * time.Second)
		want(t, h.take(), `refused op=5 thread=t1 err={0 "an earlier turn of thread t1 still runs and could not be stopped within 10s" timeout}`)
	})
}

func TestAppUnload(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		p.say(`{"id":3,"method":"item/fileChange/requestApproval","params":{"threadId":"t1","turnId":"u1","itemId":"i"}}`)
		h.take()
		p.a.do(0, "t1", command{kind: cmdUnload})
		want(t, p.reply(), `3 {"decision":"decline"}`)
		sameJSON(t, p.expect("thread/unsubscribe").params, `{"threadId":"t1"}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed"}}}`)
		p.out.Close()
		want(t, h.take(), "")
	})
	withApp(t, "", "0.104.0", func(t *testing.T, p *appPeer) {
		p.open(threadSpec{})
		p.a.do(0, "t1", command{kind: cmdUnload})
		p.silent() // archive is all it has, and that takes the history away
		p.open(threadSpec{Thread: "t1"})
	})
}

func TestAppGone(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		p.a.do(2, "t1", command{kind: cmdTurn})
		p.expect("turn/start")
		pending := &heard{}
		p.a.open(6, threadSpec{}, pending.to)
		p.expect("thread/start")
		p.out.Close()
		want(t, h.take(), `gone op=1 thread=t1 err={0 "the Codex child process ended: closed its stdout"}`)
		want(t, pending.take(), `gone op=6 err={0 "the Codex child process ended: closed its stdout"}`)
		if len(p.gone) != 1 {
			t.Errorf("OnGone was called %d times", len(p.gone))
		}
		after := &heard{}
		p.a.open(7, threadSpec{}, after.to)
		p.a.do(8, "t1", command{kind: cmdTurn})
		p.a.do(9, "t1", command{kind: cmdInterrupt})
		time.Sleep(2 * time.Minute)
		want(t, after.take(), `gone op=7 err={0 "the Codex child process ended: closed its stdout"}`)
		want(t, h.take(), "")
		if _, err := p.a.catalog(context.Background(), "account", ""); err == nil {
			t.Error("a dead child answered")
		}
	})
}

// Whatever comes that isn't known is raw or nothing, and the stream goes on.
func TestAppUnknownEverything(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.running()
		for _, line := range []string{
			"garbage", "{", "[]", `[{"method":"x"}]`, `{"id":null}`, `{"id":99999,"result":{}}`, `{"id":"x","result":1}`, "\xff\xfe",
			`{"method":"turn/completed"}`, `{"method":"turn/completed","params":null}`, `{"method":"turn/completed","params":[1]}`,
			`{"method":"codex/event/agent_message","params":{"id":"u1","msg":{"type":"agent_message"},"conversationId":"t1"}}`,
			`{"method":"configWarning","params":{"summary":"s"}}`,
		} {
			p.say("%s", line)
		}
		want(t, h.take(), "")
		p.say(`{"method":"brand/new","params":{"threadId":"t1","x":1},"emittedAtMs":5}`)
		p.say(`{"method":"item/started","params":{"threadId":"t1","turnId":"u1","item":{"type":"hologram","id":"i9","status":"sparkling"}}}`)
		p.say(`{"method":"item/completed","params":{"threadId":"t1","turnId":"u1","item":7}}`)
		p.say(`{"method":"thread/tokenUsage/updated","params":{"threadId":"t1","tokenUsage":"many"}}`)
		p.say(`{"method":"error","params":{"threadId":"t1","turnId":"u1","willRetry":true,"error":{"message":"Reconnecting... 1/2","codexErrorInfo":{"brandNew":{"httpStatusCode":null}},"additionalDetails":"d"}}}`)
		p.say(`{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"evaporated"}}}`)
		want(t, h.take(), `raw thread=t1 method=brand/new
item thread=t1 turn=u1 item=i9 phase=started body={hologram  "" "" sparkling} method=item/started
raw thread=t1 turn=u1 method=item/completed
raw thread=t1 method=thread/tokenUsage/updated
notice thread=t1 turn=u1 text="Reconnecting... 1/2: d" retry method=error
ended thread=t1 turn=u1 status=completed method=turn/completed`)
	})
}

func TestAppErrors(t *testing.T) {
	for _, tc := range []struct{ name, raw, info, message string }{
		{"0.104 not logged in", `{"message":"unexpected status 401 Unauthorized: Missing bearer, url: x","codexErrorInfo":"other","additionalDetails":null}`, "unauthorized", "run `codex login`"},
		{"0.169 not logged in", `{"message":"unexpected status","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":401}}}`, "unauthorized", "run `codex login`"},
		{"its own word", `{"message":"token expired","codexErrorInfo":"unauthorized"}`, "unauthorized", "run `codex login`"},
		{"says so itself", `{"message":"Run codex login to continue","codexErrorInfo":"other"}`, "unauthorized", "Run codex login"},
		{"something else", `{"message":"boom","codexErrorInfo":{"responseTooManyFailedAttempts":{"httpStatusCode":429}},"additionalDetails":"slow down"}`, "responseTooManyFailedAttempts", "boom: slow down"},
		{"nothing", `{}`, "", "Codex gave no reason"},
		{"nonsense", `7`, "", "Codex gave no reason"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := turnError(json.RawMessage(tc.raw))
			if e.Info != tc.info || !strings.Contains(e.Message, tc.message) || strings.Count(e.Message, "codex login") > 1 {
				t.Errorf("%+v", e)
			}
		})
	}
}

func BenchmarkAppDelta(b *testing.B) {
	rec := []byte(`{"method":"item/agentMessage/delta","params":{"threadId":"01a1fd66-9e5c-76e0-92a3-5717962be18f","turnId":"01a1fd66-b084-7fd2-98f3-1852e88ef645","itemId":"msg_18825_000003","delta":"some words of an answer "},"emittedAtMs":1795260852245}`)
	a := &appServer{}
	a.threads = newThreadTable(func(*message) {}, a.deliver)
	n := 0
	t := &threadTree{sink: sink{to: func(e event) { n += len(e.text) }}, opened: true}
	a.threads.addTree(t, "01a1fd66-9e5c-76e0-92a3-5717962be18f")
	b.ReportAllocs()
	for b.Loop() {
		m, err := parseMessage(rec)
		if err != nil {
			b.Fatal(err)
		}
		a.handle(&m)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deltas/s")
}
