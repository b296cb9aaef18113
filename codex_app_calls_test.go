package main

// codex_app_calls_test.go holds the calls that somebody waits for: catalogs, the
// account, the history of threads, and that an app-server with too much to do is
// asked again. The peer is codex_app_rig_test.go's; how real ones tell their
// history stands in testdata/recordings.

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
		{"failed", "0.169.0", turn(`"status":"failed","error":{"message":"boom","codexErrorInfo":"other"}`), said + stop + `failed err={0 "boom" other} method=turn/completed`, ""},
		{"cut off by a kill, which only the rollout knows", "0.169.0", turn(`"status":"inProgress","error":null`), said + stop + "interrupted method=turn/completed", ""},
	} {
		withApp(t, tc.name, tc.version, func(t *testing.T, p *appPeer) {
			got, err := p.past(tc.answer, nil)
			want(t, got, tc.want)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || err.Error() != tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
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
			withApp(t, "", version, func(t *testing.T, p *appPeer) {
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

func TestAppCatalog(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		type answer struct {
			res json.RawMessage
			err error
		}
		got := make(chan answer, 1)
		ask := func(ctx context.Context, what string) {
			go func() {
				res, err := p.a.catalog(ctx, what, "/w")
				got <- answer{res, err}
			}()
		}
		ask(context.Background(), "config")
		m := p.expect("config/read")
		sameJSON(t, m.params, `{"cwd":"/w","includeLayers":false}`)
		p.say(`{"id":%s,"result":{"config":{"model":"m"}}}`, m.id)
		sameJSON(t, (<-got).res, `{"config":{"model":"m"}}`)
		ask(context.Background(), "models") // all pages as one
		m = p.expect("model/list")
		sameJSON(t, m.params, `{}`)
		p.say(`{"id":%s,"result":{"data":[{"id":"a"}, {"id":"b"}],"nextCursor":"2"}}`, m.id)
		m = p.expect("model/list")
		sameJSON(t, m.params, `{"cursor":"2"}`)
		p.say(`{"id":%s,"result":{"data":[],"nextCursor":"2x"}}`, m.id)
		m = p.expect("model/list")
		p.say(`{"id":%s,"result":{"data":[{"id":"c"}],"nextCursor":null}}`, m.id)
		sameJSON(t, (<-got).res, `{"data":[{"id":"a"},{"id":"b"},{"id":"c"}],"nextCursor":null}`)
		ask(context.Background(), "mcp")
		m = p.expect("mcpServerStatus/list")
		p.say(`{"id":%s,"result":{"data":[],"nextCursor":null,"more":1}}`, m.id)
		sameJSON(t, (<-got).res, `{"data":[],"nextCursor":null,"more":1}`)
		ask(context.Background(), "mcp")
		for range maxPages {
			m = p.expect("mcpServerStatus/list")
			p.say(`{"id":%s,"result":{"data":[{}],"nextCursor":"on"}}`, m.id)
		}
		if a := <-got; a.err == nil || !strings.Contains(a.err.Error(), "has no end") {
			t.Errorf("endless: %s %v", a.res, a.err)
		}
		ask(context.Background(), "models")
		p.expect("model/list")
		if a := <-got; a.err == nil {
			t.Error("no answer is an error after 10 s")
		}
		ctx, cancel := context.WithCancel(context.Background())
		ask(ctx, "account")
		p.expect("account/read")
		cancel()
		if a := <-got; a.err == nil {
			t.Error("cancelled")
		}
		ask(context.Background(), "nonsense")
		if a := <-got; a.err == nil {
			t.Error("unknown catalog")
		}
	})
}

// What changes nothing is asked again of an app-server that has too much to do:
// after pauses that grow and are never the same for all, and not for ever. What
// changes something is asked once.
func TestAppOverloaded(t *testing.T) {
	withApp(t, "", "0.169.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		got := make(chan error, 1)
		read := func(ctx context.Context, do func(context.Context) error) { go func() { got <- do(ctx) }() }
		models := func(ctx context.Context) error { _, err := p.a.catalog(ctx, "models", ""); return err }
		past := func(ctx context.Context) error { return p.a.history(ctx, "t1", func(*event) error { return nil }) }
		busy := func(method string) {
			t.Helper()
			p.say(`{"id":%s,"error":{"code":-32001,"message":"Server overloaded; retry later."}}`, p.expect(method).id)
		}
		for method, do := range map[string]func(context.Context) error{"model/list": models, "thread/read": past} {
			read(t.Context(), do)
			busy(method)
			busy(method)
			p.say(`{"id":%s,"result":{"data":[]}}`, p.expect(method).id)
			if err := <-got; err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
		read(t.Context(), models)
		for pause := firstPause; pause <= longestPause; pause *= 2 {
			busy("model/list")
			time.Sleep(pause/2 - 1) // p.silent reads whatever was sent too early
			p.silent()
		}
		busy("model/list")
		if err := <-got; err == nil || !strings.Contains(err.Error(), "overloaded") {
			t.Errorf("overloaded for good: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		read(ctx, models)
		busy("model/list")
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		p.a.do(2, "t1", command{kind: cmdTurn, prompt: "hi"})
		busy("turn/start")
		time.Sleep(time.Minute)
		p.silent()
		if e := h.last(); e.kind != evRefused || e.unknown || e.err.Code != codeOverloaded {
			t.Errorf("the turn: %s", eventLine(e))
		}
	})
}
