package main

// mcp_progress_test.go holds progress to its pace: one as a turn starts, throttled
// after it, never without a token, never after a cancel; and the words for what an
// agent is doing.

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// startCall sends a codex call with a progress token and gives its waiter.
func startCall(r *mcpRig, modern bool, id, token string) waiterID {
	r.t.Helper()
	meta := `"_meta":{"progressToken":` + token + `}`
	if modern {
		meta = strings.TrimSuffix(modernMetaJSON, "}") + `,"progressToken":` + token + `}`
	}
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + meta + `,"name":"codex","arguments":{"prompt":"hi"}}}`)
	return (<-r.submits).w
}

// progressOf reads one progress notification.
func progressOf(t *testing.T, rec json.RawMessage) (token string, n int, text string) {
	t.Helper()
	if stringField(rec, "method") != "notifications/progress" {
		t.Fatalf("no progress: %s", rec)
	}
	var p struct {
		Progress int
		Message  string
	}
	if err := json.Unmarshal(rawField(rec, "params"), &p); err != nil {
		t.Fatal(err)
	}
	return string(rawField(rec, "params", "progressToken")), p.Progress, p.Message
}

func runs(cmd string) *event {
	return &event{kind: evItem, phase: "started", body: &itemBody{kind: "commandExecution", command: cmd}}
}

func TestProgressPace(t *testing.T) {
	for _, modern := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = "off" })
			if !modern {
				r.hello("2025-06-18", "{}", "x")
			}
			a := agentRef{AgentID: "codex:a", Thread: "t", Identity: "codex"}
			w := startCall(r, modern, "1", `"tok"`)
			began := time.Now()
			last := 0
			expect := func(at time.Duration, want string) {
				t.Helper()
				token, n, text := progressOf(t, r.next())
				if got := time.Since(began); got != at || token != `"tok"` || n <= last || text != want {
					t.Errorf("at %v token %s n %d after %d: %q; want %v %q", got, token, n, last, text, at, want)
				}
				last = n
			}
			expect(10*time.Second, "waiting for its turn (10s)") // queued behind another
			time.Sleep(500 * time.Millisecond)
			r.f.event(a, w, &event{kind: evStarted, turn: "u"})
			expect(10500*time.Millisecond, "thinking") // as the turn starts
			r.f.event(a, w, runs("/bin/bash -lc 'npm test'"))
			r.f.event(a, w, runs("ls"))
			expect(11500*time.Millisecond, "running `ls`") // throttled: the newest only
			time.Sleep(2 * time.Second)
			r.f.event(a, w, runs("/bin/bash -lc 'npm test'"))
			expect(13500*time.Millisecond, "running `npm test`") // at once after a pause
			expect(23500*time.Millisecond, "running `npm test` (10s)")
			expect(33500*time.Millisecond, "running `npm test` (20s)")
			for range 1000 {
				r.f.event(a, w, &event{kind: evDelta, phase: "answer", text: "x"})
			}
			expect(34500*time.Millisecond, "writing the answer")
			r.f.event(a, w, runs("pending change"))
			r.f.done(w, okTurn("done"))
			resultOf(t, r.next())
			r.f.event(a, w, runs("late"))
			time.Sleep(time.Minute)
			r.quiet()
			r.end()
		})
	}
}

func TestNoProgressAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = "off" })
		r.hello("2025-06-18", "{}", "x")
		a := agentRef{AgentID: "codex:a"}
		w := startCall(r, false, "1", "7")
		r.f.event(a, w, &event{kind: evStarted})
		if token, _, _ := progressOf(t, r.next()); token != "7" {
			t.Errorf("token %s", token)
		}
		r.f.event(a, w, runs("pending"))
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		<-r.cancels
		r.f.event(a, w, runs("late"))
		time.Sleep(time.Minute)
		r.quiet()
		r.end()
	})
}

// Nothing is told where no usable token was given, nor for calls that don't last.
func TestNoProgressWithoutToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *mcpOptions) { o.ForwardEvents = "off" })
		r.hello("2025-06-18", "{}", "x")
		for _, token := range []string{"null", "{}", "true", "[1]"} {
			w := startCall(r, false, "1", token)
			r.f.event(agentRef{}, w, &event{kind: evStarted})
			time.Sleep(time.Minute)
			r.quiet()
			r.f.done(w, okTurn(""))
			resultOf(t, r.next())
		}
		r.end()
	})
}

func TestActivities(t *testing.T) {
	a := agentRef{Thread: "t"}
	item := func(phase string, b itemBody) event { return event{kind: evItem, phase: phase, body: &b} }
	for _, c := range []struct {
		e    event
		want string
	}{
		{event{kind: evStarted}, "thinking"},
		{*runs("/bin/bash -lc 'npm test'"), "running `npm test`"},
		{*runs("a\n\tb"), "running `a b`"},
		{*runs(strings.Repeat("x", 5000)), "running `" + strings.Repeat("x", 80) + "…`"},
		{item("completed", itemBody{kind: "commandExecution"}), "thinking"},
		{item("started", itemBody{kind: "fileChange", files: make([]fileChange, 3)}), "editing 3 files"},
		{item("started", itemBody{kind: "fileChange", files: []fileChange{{path: "/a/b.go"}}}), "editing b.go"},
		{item("started", itemBody{kind: "mcpToolCall", server: "atm", tool: "send"}), "calling atm/send"},
		{item("started", itemBody{kind: "dynamicToolCall", tool: "atm_send"}), "calling atm_send"},
		{item("started", itemBody{kind: "agentMessage"}), "writing the answer"},
		{item("started", itemBody{kind: "agentMessage", phase: "commentary"}), ""},
		{item("started", itemBody{kind: "somethingNew"}), ""},
		{event{kind: evItem}, ""},
		{event{kind: evDelta, phase: "reasoning"}, "thinking"},
		{event{kind: evDelta, phase: "output"}, ""},
		{event{kind: evNotice, text: "Reconnecting... 1/5", retry: true}, "retrying: Reconnecting... 1/5"},
		{event{kind: evNotice, text: "careful"}, ""},
		{event{kind: evAsk, ask: &approval{kind: askCommand, action: "rm x"}}, "waiting for approval of `rm x`"},
		{event{kind: evAsk, ask: &approval{kind: askQuestion}}, "waiting for an answer to its question"},
		{event{kind: evAskGone}, "thinking"},
		{event{kind: evRaw}, ""},
		{event{kind: evDelta, phase: "answer", thread: "sub"}, "a subagent is writing the answer"},
	} {
		if got := activityOf(a, &c.e); got != c.want {
			t.Errorf("%+v: %q, want %q", c.e, got, c.want)
		}
	}
}

func TestShellWords(t *testing.T) {
	for line, want := range map[string][]string{
		`/bin/bash -lc 'touch /x; ls'`: {"/bin/bash", "-lc", "touch /x; ls"},
		`/bin/bash -lc 'it'\''s'`:      {"/bin/bash", "-lc", "it's"},
		`bash -lc "echo \"a\" $b"`:     {"bash", "-lc", `echo "a" $b`},
		`a\ b c`:                       {"a b", "c"},
		`a '' b`:                       {"a", "", "b"},
		`it's`:                         {"it's"},
		`say "x`:                       {`say "x`},
		`end\`:                         {`end\`},
		"":                             nil,
	} {
		if got := shellWords(line); strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Errorf("%s: %q", line, got)
		}
	}
	if got := shownCommand(`python -c 'x'`); got != `python -c 'x'` {
		t.Error(got)
	}
}
