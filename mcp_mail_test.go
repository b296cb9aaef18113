package main

// mcp_mail_test.go holds the mail tools of a client to asking the hub who may act, in
// both eras, and to telling of what is refused; beside it agent_mail, notify, and
// waiting for mail.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// mailAsked is what a front asked the hub of a mail tool.
type mailAsked struct {
	ref, identity, tool, args string
	who                       atmCaller
}

// newMailRig is a front whose hub knows the agent codex:ab12, called ann, and
// the client's own name, lead.
func newMailRig(t *testing.T) (*mcpRig, chan mailAsked) {
	asked := make(chan mailAsked, 100)
	var ref, identity string
	r := newRig(t, func(o *mcpOptions) {
		o.mailAs = func(askedRef, askedIdentity string) (atmCaller, *rpcError) {
			ref, identity = askedRef, askedIdentity // calls come one by one here
			switch {
			case ref == "codex:ab12" || ref == "ann" || identity == "ann":
				return atmCaller{Identity: "ann", AgentID: "codex:ab12", Team: "crew"}, nil
			case ref == "" && identity == "":
				return atmCaller{Team: "crew"}, proxyError(codeIdentityRequired, "whose mail?")
			}
			return atmCaller{Identity: "ann", AgentID: "codex:ab12"}, proxyError(codeInvalidSession, "not yours") // its caller may not be used
		}
		o.atm = func(_ context.Context, who atmCaller, tool string, args json.RawMessage) (any, string, *rpcError) {
			asked <- mailAsked{ref, identity, tool, string(args), who}
			if who.Refused != nil {
				return nil, "", who.Refused
			}
			return map[string]int{"unread": 3}, "Unread: 3.", nil
		}
		o.setMail = func(ref string, auto bool, done func(sessionView, *rpcError)) {
			if ref == "codex:zz" {
				go done(sessionView{}, proxyError(codeSessionNotFound, "no such agent"))
				return
			}
			two := 2
			go done(sessionView{AgentID: "codex:ab12", Identity: "ann", AutoMail: map[bool]string{true: "on", false: "off"}[auto], PendingMail: &two}, nil)
		}
	})
	return r, asked
}

func TestMailToolsAskTheHub(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r, asked := newMailRig(t)
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		seen := map[string]bool{}
		for _, c := range []struct{ tool, args, ref, identity, rest string }{
			{"atm_pending_count", `{"agent_id":"codex:ab12"}`, "codex:ab12", "", ""},
			{"atm_pending_count", `{"threadId":"codex:ab12"}`, "codex:ab12", "", ""},
			{"atm_send", `{"identity":"ann","to":"bob","message":"m"}`, "ann", "", `"message":"m","to":"bob"`},
			{"atm_read", `{"identity":"ann","limit":5,"all":true}`, "ann", "", `"limit":5`},
			{"atm_read", `{"inbox":"ann"}`, "", "ann", ""},
			{"atm_broadcast", `{"identity":"ann","message":"m","team":null}`, "ann", "", `"message":"m"`},
		} {
			result := resultOf(t, r.ask("tools/call", callParams(modern, c.tool, c.args)))
			if string(rawField(result, "structuredContent")) != `{"unread":3}` || rawField(result, "isError") != nil {
				t.Errorf("%s", result)
			}
			mustContain(t, string(result), "Unread: 3.")
			got := <-asked
			if got.tool != c.tool || got.ref != c.ref || got.identity != c.identity || got.who.Identity != "ann" || got.who.Refused != nil ||
				!strings.Contains(got.args, c.rest) || strings.Contains(got.args, "null") {
				t.Errorf("%s %s: %+v", c.tool, c.args, got)
			}
			if got.who.Correlation == "" || seen[got.who.Correlation] {
				t.Errorf("correlation %q", got.who.Correlation)
			}
			seen[got.who.Correlation] = true
		}
	}
}

// What one identity sends begins in the order of the calls, each when the one before it is done; another identity's
// and what only reads doesn't wait for it, and what was cancelled in line is not done.
func TestMailIsSentInTheOrderOfTheCalls(t *testing.T) {
	begun, end, refused := make(chan string), make(chan struct{}), make(chan *rpcError, 1)
	slow := make(chan struct{})
	r := newRig(t, func(o *mcpOptions) {
		o.mailAs = func(ref, identity string) (atmCaller, *rpcError) {
			if ref == "codex:slow" { // whose mail it is takes time to find
				<-slow
			}
			return atmCaller{Identity: map[string]string{"codex:slow": "ANN", "codex:ab12": "ann"}[ref] + identity + map[string]string{"ann": "ann", "bob": "bob"}[ref]}, nil
		}
		o.atm = func(_ context.Context, who atmCaller, tool string, args json.RawMessage) (any, string, *rpcError) {
			if who.Refused != nil {
				refused <- who.Refused
				return nil, "", who.Refused
			}
			begun <- who.Identity + " " + tool + " " + stringField(args, "message")
			if tool == "atm_send" && who.Identity != "bob" {
				<-end
			}
			return struct{}{}, "done", nil
		}
	})
	r.hello("2025-11-25", "{}", "x")
	call := func(id, tool, args string) {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + callParams(false, tool, args) + `}`)
	}
	next := func(want string) {
		t.Helper()
		if got := <-begun; got != want {
			t.Fatalf("%q begins, want %q", got, want)
		}
	}
	call("1", "atm_send", `{"agent_id":"codex:slow","to":"x","message":"1"}`)
	call("2", "atm_send", `{"agent_id":"codex:ab12","to":"x","message":"2"}`)
	call("3", "atm_broadcast", `{"identity":"ann","message":"3"}`)
	call("4", "atm_send", `{"identity":"ann","to":"x","message":"4"}`)
	call("5", "atm_pending_count", `{"identity":"ann"}`)
	next("ann atm_pending_count ")
	if rec := r.next(); string(rawField(rec, "id")) != "5" {
		t.Fatalf("%s", rec)
	}
	close(slow)
	next("ANN atm_send 1")
	call("6", "atm_send", `{"identity":"bob","to":"x","message":"6"}`)
	next("bob atm_send 6")
	if rec := r.next(); string(rawField(rec, "id")) != "6" {
		t.Fatalf("%s", rec)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	if string(resultOf(t, r.ask("ping", "{}"))) != "{}" {
		t.Error("no pong")
	}
	end <- struct{}{}
	if rec := r.next(); string(rawField(rec, "id")) != "1" {
		t.Fatalf("%s", rec)
	}
	if e := <-refused; !strings.Contains(e.Message, "nothing was done") {
		t.Errorf("%+v", e)
	}
	next("ann atm_broadcast 3")
	if rec := r.next(); string(rawField(rec, "id")) != "3" {
		t.Fatalf("%s", rec)
	}
	next("ann atm_send 4")
	end <- struct{}{}
	if rec := r.next(); string(rawField(rec, "id")) != "4" {
		t.Fatalf("%s", rec)
	}
}

// What the hub refuses, and what names nobody well, is written down too: with
// no agent's name on it but the one that was asked for.
func TestMailToolsRefused(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r, asked := newMailRig(t)
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		for _, c := range []struct {
			args, identity, name, want string
			code                       int
		}{
			{`{"to":"b","message":"m"}`, "", "IDENTITY_REQUIRED", "whose mail?", codeIdentityRequired},
			{`{"to":"b","message":"m","identity":"boss"}`, "boss", "INVALID_SESSION_PARAMS", "not yours", codeInvalidSession},
			{`{"to":"b","message":"m","identity":""}`, "", "INVALID_SESSION_PARAMS", "identity", codeInvalidSession},
			{`{"to":"b","message":"m","identity":"../x"}`, "../x", "INVALID_SESSION_PARAMS", "identity", codeInvalidSession},
			{`{"to":"b","message":"m","agent_id":" "}`, "", "INVALID_SESSION_PARAMS", "agent_id is empty", codeInvalidSession},
			{`{"to":"b","message":"m","agent_id":"codex:ab12","identity":"ann"}`, "ann", "INVALID_SESSION_PARAMS", "only one of them", codeInvalidSession},
		} {
			rec := r.ask("tools/call", callParams(modern, "atm_send", c.args))
			got := <-asked
			if got.who.Refused == nil || got.who.AgentID != "" || got.who.Identity != c.identity || got.who.Owns != nil || got.who.Correlation == "" {
				t.Errorf("%s: %+v", c.args, got.who)
			}
			if modern {
				e := rawField(resultOf(t, rec), "structuredContent", "error")
				if stringField(e, "name") != c.name || !strings.Contains(stringField(e, "message"), c.want) {
					t.Errorf("%s: %s", c.args, rec)
				}
				continue
			}
			if code, message, _ := errorOf(t, rec); code != c.code || !strings.HasPrefix(message, c.name) || !strings.Contains(message, c.want) {
				t.Errorf("%s: %s", c.args, rec)
			}
		}
		for _, args := range []string{`{"to":"b","message":"m","form":"x"}`, `{"to":7,"message":"m"}`, `{"to":"b","message":"m","agent_id":1}`} {
			if code, _, _ := errorOf(t, r.ask("tools/call", callParams(modern, "atm_send", args))); code != codeInvalidParams {
				t.Errorf("%s: %d", args, code)
			}
		}
	}
}

// An error that has no NFR-6 code keeps its own name, in both eras.
func TestMailToolsInternalError(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r := newRig(t, func(o *mcpOptions) {
			o.mailAs = func(string, string) (atmCaller, *rpcError) { return atmCaller{Identity: "ann"}, nil }
			o.atm = func(context.Context, atmCaller, string, json.RawMessage) (any, string, *rpcError) {
				return nil, "", mailRefused(fmt.Errorf("opening the inbox: %w", os.ErrPermission))
			}
		})
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		rec := r.ask("tools/call", callParams(modern, "atm_read", `{}`))
		if !modern {
			code, message, data := errorOf(t, rec)
			if code != codeInternal || message != "INTERNAL_ERROR: opening the inbox: permission denied" || stringField(data, "error_source") != "proxy" {
				t.Errorf("%s", rec)
			}
			continue
		}
		e := rawField(resultOf(t, rec), "structuredContent", "error")
		if stringField(e, "name") != "INTERNAL_ERROR" || stringField(e, "error_source") != "proxy" {
			t.Errorf("%s", rec)
		}
	}
}

// A cancelled call lets go of the inbox it waits for, and is not answered.
func TestMailToolCancelled(t *testing.T) {
	began, over := make(chan bool), make(chan error, 1)
	r := newRig(t, func(o *mcpOptions) {
		o.mailAs = func(string, string) (atmCaller, *rpcError) { return atmCaller{Identity: "ann"}, nil }
		o.atm = func(ctx context.Context, _ atmCaller, _ string, _ json.RawMessage) (any, string, *rpcError) {
			began <- true
			<-ctx.Done()
			over <- ctx.Err()
			return nil, "", mailRefused(ctx.Err())
		}
	})
	r.hello("2025-11-25", "{}", "x")
	r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` + callParams(false, "atm_send", `{"to":"b","message":"m"}`) + `}`)
	<-began
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	if err := <-over; err != context.Canceled {
		t.Error(err)
	}
	r.quiet()
	if len(r.cancels) != 0 {
		t.Error("a turn was cancelled")
	}
}

func TestAgentMail(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r, _ := newMailRig(t)
		if !modern {
			r.hello("2025-11-25", "{}", "x")
		}
		result := resultOf(t, r.ask("tools/call", callParams(modern, "agent_mail", `{"identity":"ann","auto":false}`)))
		if got := string(rawField(result, "structuredContent")); got != `{"agent_id":"codex:ab12","identity":"ann","auto_mail":"off","pending_mail":2}` {
			t.Errorf("%s", got)
		}
		mustContain(t, string(result), "Automatic mail of agent codex:ab12 (identity ann) is off. Unread messages: 2.")
		if result := resultOf(t, r.ask("tools/call", callParams(modern, "agent_mail", `{"agent_id":"codex:ab12","auto":true}`))); stringField(result, "structuredContent", "auto_mail") != "on" {
			t.Errorf("%s", result)
		}
		for args, want := range map[string]string{
			`{"auto":true}`:                                             "INVALID_SESSION_PARAMS: no agent",
			`{"agent_id":"codex:ab12"}`:                                 "INVALID_SESSION_PARAMS: no auto",
			`{"agent_id":"codex:zz","auto":true}`:                       "SESSION_NOT_FOUND: no such agent",
			`{"agent_id":"codex:ab12","auto":"on"}`:                     "must be true or false",
			`{"agent_id":"codex:ab12","identity":"ann","auto":true}`:    "only one of them",
			`{"identity":"a b","auto":true}`:                            "INVALID_SESSION_PARAMS",
			`{"agent_id":"codex:ab12","auto":null,"conversationId":""}`: "conversationId is empty",
		} {
			mustContain(t, string(r.ask("tools/call", callParams(modern, "agent_mail", args))), want)
		}
	}
}

func TestNotifyArgument(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	for _, c := range []struct{ tool, args, want string }{
		{"codex", `{"prompt":"p","background":true,"notify":" team-lead "}`, "team-lead"},
		{"codex", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":"boss@other"}`, "boss@other"},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":"team-lead"}`, "team-lead"},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":null}`, ""},
	} {
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + callParams(false, c.tool, c.args) + `}`)
		got := <-r.submits
		if got.req.notify != c.want || !got.req.background {
			t.Errorf("%s %s: %+v", c.tool, c.args, got.req)
		}
		r.f.done(got.w, okTurn("x"))
		r.next()
	}
	for args, want := range map[string]string{
		`{"agent_id":"codex:a","prompt":"p","notify":"team-lead"}`:           "give background: true too",
		`{"agent_id":"codex:a","prompt":"p","background":true,"notify":" "}`: "notify is empty",
		`{"agent_id":"codex:a","prompt":"p","background":true,"notify":7}`:   "must be a string",
		`{"agent_id":"codex:a","background":true,"notify":"team-lead"}`:      "without prompt none runs",
	} {
		tool := "codex-reply"
		if strings.Contains(want, "none runs") {
			tool = "codex"
		}
		_, message, _ := errorOf(t, r.ask("tools/call", callParams(false, tool, args)))
		mustContain(t, message, want)
	}
	if len(r.submits) != 0 {
		t.Error("a turn was submitted")
	}
}

func TestWaitForMail(t *testing.T) {
	queries := make(chan waitQuery, 10)
	three := 3
	r := newRig(t, func(o *mcpOptions) {
		o.wait = func(q waitQuery, done func(waitResult, *rpcError)) func() {
			queries <- q
			res := waitResult{Seq: 9}
			for range q.Agents {
				res.Agents = append(res.Agents, waitAgent{View: sessionView{AgentID: "codex:ab12", Identity: "ann", Status: "idle", AutoMail: "on", PendingMail: &three}})
			}
			if res.Inbox.Name = q.Inbox; q.Inbox != "" && q.Inbox != "nobody" {
				res.Inbox.Unread = 3
			}
			go done(res, nil)
			return func() {}
		}
	})
	r.hello("2025-11-25", "{}", "x")
	result := resultOf(t, r.ask("tools/call", callParams(false, "agent_wait", `{"inbox":"team-lead"}`)))
	if q := <-queries; q.Inbox != "team-lead" || len(q.Agents) != 0 {
		t.Errorf("%+v", q)
	}
	mustContain(t, string(result), "Unread messages of team-lead: 3.", `"unread":3`, `"agents":[]`)
	mustContain(t, stringField(result, "structuredContent", "next"), `atm_read {"inbox": "team-lead"}`, "stays unread", "agent_wait again with since 9")

	result = resultOf(t, r.ask("tools/call", callParams(false, "agent_wait", `{"agent_id":"codex:ab12","inbox":"nobody"}`)))
	if q := <-queries; q.Inbox != "nobody" || len(q.Agents) != 1 {
		t.Errorf("%+v", q)
	}
	mustContain(t, string(result), `"auto_mail":"on"`, `"unread":0`)
	mustContain(t, stringField(result, "structuredContent", "next"), "No mail for nobody yet") // ann's is delivered to her
	for args, want := range map[string]string{
		`{"inbox":"a b"}`: "INVALID_SESSION_PARAMS", `{"identity":""}`: "INVALID_SESSION_PARAMS", `{}`: "or inbox to wait for mail",
		`{"agent_id":"codex:ab12","turn_id":"t","inbox":"ann"}`: "leave inbox out",
	} {
		_, message, _ := errorOf(t, r.ask("tools/call", callParams(false, "agent_wait", args)))
		mustContain(t, message, want)
	}
}

// Mail in status and lists is what the sessions show of it.
func TestStatusShowsMail(t *testing.T) {
	two := 2
	views := []sessionView{{AgentID: "codex:ab12", AutoMail: "paused: 10 mail turns in a row", PendingMail: &two}}
	r := newRig(t, func(o *mcpOptions) {
		o.status = func() statusView { return statusView{Team: "crew", PendingMail: &two, Agents: views} }
		o.sessions = func(int) []sessionView { return views }
	})
	r.hello("2025-11-25", "{}", "x")
	status := rawField(resultOf(t, r.ask("tools/call", callParams(false, "agent_status", `{}`))), "structuredContent")
	if string(rawField(status, "pending_mail")) != "2" {
		t.Errorf("%s", status)
	}
	list := rawField(resultOf(t, r.ask("tools/call", callParams(false, "agent_sessions", `{}`))), "structuredContent")
	for _, shown := range []json.RawMessage{status, list} {
		mustContain(t, string(shown), `"auto_mail":"paused: 10 mail turns in a row"`, `"pending_mail":2`)
	}
}

// Some clients cut the instructions at 2 KB.
func TestInstructionsFit(t *testing.T) {
	if len(instructions) > 2048 || !utf8.ValidString(instructions) {
		t.Errorf("%d bytes", len(instructions))
	}
	for _, tool := range toolTable() {
		if !strings.Contains(instructions, tool.name) {
			t.Errorf("%s is not told of", tool.name)
		}
	}
}
