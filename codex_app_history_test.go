package main

// codex_app_history_test.go holds the driver's history of threads, its account
// calls and what items tell of calls, against a peer that it plays itself. How
// real ones tell their history stands in testdata/recordings.

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// past asks for the history of t1, answers it and returns what was told.
func (p *appPeer) past(answer string, each func(*event) error) (string, error) {
	p.t.Helper()
	h := &heard{}
	if each == nil {
		each = func(e *event) error { h.to(*e); return nil }
	}
	got := make(chan error, 1)
	go func() { got <- p.a.history(context.Background(), "t1", each) }()
	m := p.expect("thread/read")
	sameJSON(p.t, m.params, `{"threadId":"t1","includeTurns":true}`)
	p.say(`{"id":%s,%s}`, m.id, answer)
	err := <-got
	return h.take(), err
}

func TestAppHistory(t *testing.T) {
	const stop = "\nended thread=t1 turn=u1 status="
	const said = "started thread=t1 turn=u1\nitem thread=t1 turn=u1 item=i phase=completed body={userMessage  \"hi\" \"\" } method=item/completed"
	turn := func(more string) string {
		return `"result":{"thread":{"turns":[{"id":"u1","items":[{"type":"userMessage","id":"i","content":[{"type":"text","text":"hi"}]}],` + more + `}]}}`
	}
	for _, tc := range []struct{ name, version, answer, want, err string }{
		{"never used, 0.169", "0.169.0", `"error":{"code":-32601,"message":"list_turns is not supported yet"}`, "", ""},
		{"never used, 0.104", "0.104.0", `"error":{"code":-32600,"message":"thread t1 is not materialized yet; includeTurns is unavailable before first user message"}`, "", ""},
		{"no such method is an error", "0.169.0", `"error":{"code":-32601,"message":"Method not found"}`, "", "reading the history of thread t1 from Codex: Method not found"},
		{"no turns", "0.169.0", `"result":{"thread":{"turns":[]}}`, "", ""},
		{"nonsense", "0.169.0", `"result":{"thread":{"turns":[7,{"id":"u1","items":{}}]}}`, "started thread=t1 turn=u1" + stop + "completed method=turn/completed", ""},
		{"completed", "0.169.0", turn(`"status":"completed","error":null`), said + stop + "completed method=turn/completed", ""},
		{"failed", "0.169.0", turn(`"status":"failed","error":{"message":"boom","codexErrorInfo":"other"}`), said + stop + `failed err={0 "boom" other timeout=false missing=false held=false} method=turn/completed`, ""},
		{"cut off by a kill, which only the rollout knows", "0.169.0", turn(`"status":"inProgress","error":null`), said + stop + "interrupted method=turn/completed", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, tc.version)
				got, err := p.past(tc.answer, nil)
				want(t, got, tc.want)
				if tc.err == "" && err != nil || tc.err != "" && (err == nil || err.Error() != tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
			})
		})
	}
	t.Run("an unknown thread is missing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, err := playApp(t, "0.104.0").past(`"error":{"code":-32600,"message":"thread not loaded: t1"}`, nil)
			var be *backendError
			if !errors.As(err, &be) || !be.Missing {
				t.Errorf("%#v", err)
			}
		})
	})
	t.Run("what runs has no end yet", func(t *testing.T) {
		for version, status := range map[string]string{"0.104.0": "completed", "0.169.0": "inProgress"} {
			synctest.Test(t, func(t *testing.T) {
				p := playApp(t, version)
				p.begin(p.open(threadSpec{}))
				got, err := p.past(turn(`"status":"`+status+`","error":null`), nil)
				if want(t, got, said); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Run("whoever listens may end it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, enough := 0, errors.New("enough")
			_, err := playApp(t, "0.169.0").past(turn(`"status":"completed"`), func(e *event) error {
				if n++; n == 2 {
					return enough
				}
				return nil
			})
			if err != enough || n != 2 {
				t.Errorf("%d events, %v", n, err)
			}
		})
	})
	t.Run("raw is a live event's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var raws []string
			_, err := playApp(t, "0.169.0").past(turn(`"status":"completed","error":null`), func(e *event) error {
				raws = append(raws, string(e.raw))
				return nil
			})
			if err != nil || len(raws) != 3 {
				t.Fatal(raws, err)
			}
			sameJSON(t, json.RawMessage(raws[1]), `{"item":{"type":"userMessage","id":"i","content":[{"type":"text","text":"hi"}]},"threadId":"t1","turnId":"u1"}`)
			sameJSON(t, json.RawMessage(raws[2]), `{"threadId":"t1","turn":{"id":"u1","items":[],"status":"completed","error":null}}`)
		})
	})
}

func TestAppAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		p := playApp(t, "0.169.0", func(o *appServerOptions) {
			o.OnAccount = func(method string, params json.RawMessage) { heard = append(heard, method+" "+string(params)) }
		})
		type answer struct {
			res json.RawMessage
			err error
		}
		got := make(chan answer, 1)
		for _, tc := range []struct {
			action         string
			params         any
			method, want   string
			answer, result string
			err            string
		}{
			{"login", map[string]any{"type": "apiKey", "apiKey": "k"}, "account/login/start", `{"type":"apiKey","apiKey":"k"}`, `"result":{"type":"apiKey"}`, `{"type":"apiKey"}`, ""},
			{"login", map[string]any{"type": "zzz"}, "account/login/start", `{"type":"zzz"}`, `"error":{"code":-32600,"message":"unknown variant"}`, "", "logging in to Codex: unknown variant"},
			{"cancelLogin", map[string]any{"loginId": "l"}, "account/login/cancel", `{"loginId":"l"}`, `"result":{"status":"canceled"}`, `{"status":"canceled"}`, ""},
			{"logout", nil, "account/logout", `{}`, `"result":{}`, `{}`, ""},
		} {
			go func() {
				res, err := p.a.account(context.Background(), tc.action, tc.params)
				got <- answer{res, err}
			}()
			m := p.expect(tc.method)
			sameJSON(t, m.params, tc.want)
			p.say(`{"id":%s,%s}`, m.id, tc.answer)
			a := <-got
			if tc.err != "" {
				if a.err == nil || a.err.Error() != tc.err {
					t.Errorf("%s: %v", tc.action, a.err)
				}
				continue
			}
			sameJSON(t, a.res, tc.result)
		}
		if _, err := p.a.account(context.Background(), "buy", nil); err == nil {
			t.Error("an unknown action")
		}
		p.say(`{"method":"account/login/completed","params":{"loginId":"l","success":false,"error":"no"}}`)
		p.say(`{"method":"account/updated","params":{"authMode":null}}`)
		p.say(`{"method":"account/rateLimits/updated","params":{}}`)
		want(t, strings.Join(heard, "\n"), "account/login/completed {\"loginId\":\"l\",\"success\":false,\"error\":\"no\"}\naccount/updated {\"authMode\":null}")
	})
}

// What items tell of calls and commands, in the shapes of 0.104 and 0.169.
func TestAppItemFields(t *testing.T) {
	for _, tc := range []struct{ name, item, want string }{
		{"a command", `{"type":"commandExecution","id":"i","command":"cat a","cwd":"/w","status":"completed","commandActions":[{"type":"read","command":"cat a","name":"a","path":"/w/a"},{"type":"search","command":"grep x b","query":"x","path":null}],"aggregatedOutput":"one\ntwo","exitCode":0,"durationMs":51}`,
			`body={commandExecution  "" "cat a" completed exit=0 output=one|two action=read "/w/a" action=search "" ms=51}`},
		{"an MCP call", `{"type":"mcpToolCall","id":"i","server":"s","tool":"t","status":"completed","arguments":{"x":1},"result":{"content":[],"structuredContent":null},"error":null,"durationMs":2}`,
			`body={mcpToolCall  "" "" completed arguments={"x":1} result={"content":[],"structuredContent":null} ms=2}`},
		{"one that failed", `{"type":"mcpToolCall","id":"i","server":"s","tool":"t","status":"failed","arguments":null,"result":null,"error":{"message":"gone"},"durationMs":null}`,
			`body={mcpToolCall  "" "" failed failure=gone}`},
		{"a dynamic tool", `{"type":"dynamicToolCall","id":"i","namespace":null,"tool":"t","arguments":{},"status":"failed","contentItems":[{"type":"inputText","text":"no"}],"success":false}`,
			`body={dynamicToolCall  "" "" failed arguments={} result=[{"type":"inputText","text":"no"}]}`},
		{"a subagent", `{"type":"collabAgentToolCall","id":"i","tool":"spawnAgent","status":"completed","senderThreadId":"a","receiverThreadIds":["b"],"prompt":"do","model":"","reasoningEffort":null,"agentsStates":{"b":{"status":"running"}}}`,
			`body={collabAgentToolCall  "do" "" completed arguments={"receiverThreadIds":["b"],"prompt":"do"} result={"b":{"status":"running"}}}`},
		{"one that has nothing yet", `{"type":"collabAgentToolCall","id":"i","tool":"wait","status":"inProgress","receiverThreadIds":[],"prompt":null,"agentsStates":{}}`, `body={collabAgentToolCall  "" "" inProgress}`},
		{"a search", `{"type":"webSearch","id":"i","query":"how","action":{"type":"search","query":"how","queries":null}}`, `body={webSearch  "how" ""  query=how}`},
		{"a page", `{"type":"webSearch","id":"i","query":"","action":{"type":"findInPage","url":"http://x","pattern":"p"}}`, `body={webSearch  "" ""  query=p in http://x}`},
		{"an image", `{"type":"imageView","id":"i","path":"/p.png"}`, `body={imageView  "/p.png" ""  path=/p.png}`},
		{"a generated one", `{"type":"imageGeneration","id":"i","status":"failed","savedPath":"/o.png","failure":{"type":"usageLimitExceeded","limitId":"l"}}`, `body={imageGeneration  "" "" failed failure=usageLimitExceeded path=/o.png}`},
		{"a function", `{"type":"functionCallOutput","id":"i","name":"f","namespace":"n","output":"text"}`, `body={functionCallOutput  "" ""  result="text"}`},
		{"a pause", `{"type":"sleep","id":"i","durationMs":1500}`, `body={sleep  "" ""  ms=1500}`},
		{"nonsense", `{"type":7,"arguments":null,"commandActions":7,"error":"x","durationMs":"long","action":[],"result":null}`, `body={  "" "" }`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want(t, eventLine(event{kind: evItem, body: appItem(json.RawMessage(tc.item))}), "item "+tc.want)
		})
	}
}
