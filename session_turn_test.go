package main

// session_turn_test.go holds what a session gathers while a turn runs, how a thread gets its tools, and, in the world
// of session_world_test.go, the rules that have to do with time to the second: timeouts, the timer of approvals,
// interrupts that are never confirmed, requests that are never answered, progress. An agent's calls of its own tools
// are answered once, in their order, as the session's identity.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A shell may stay open for as long as its turn runs. What was kept of every item behind it grew until the turn ended.
func TestTurnRunIsBounded(t *testing.T) {
	now := time.Now()
	run := newTurnRun("T", now)
	item := func(phase, id, command string) {
		body := &itemBody{kind: "commandExecution", command: command}
		run.note(&event{kind: evItem, thread: "T", phase: phase, item: id, body: body}, now)
	}
	item("started", "server", "npm start")
	for i := range 10_000 {
		id := fmt.Sprint(i)
		item("started", id, "ls")
		item("completed", id, "ls")
	}
	if n := cap(run.open); n > 100 {
		t.Errorf("%d items are kept of a turn with one open", n)
	}
	item("started", "last", "go test")
	want(t, run.activity(), "running `go test`")
	want(t, run.silent(), "running `npm start`, running `go test`") // oldest first

	// A run that keeps so much of an answer keeps no more, and says so.
	run.most = 5
	body := &itemBody{kind: "agentMessage", text: "1234ä678"}
	run.note(&event{kind: evItem, thread: "T", phase: "completed", body: body}, now)
	want(t, run.answer, "1234\n\n[answer cut: 4 of 9 bytes shown]")
}

// Blocks of ours stand in front of what the user says, as text; an action has no
// room for them, so they wait for the next prompt.
func TestTurnCommand(t *testing.T) {
	old, now := contextFacts{Identity: "ann", Team: "t", Cwd: "/a"}, contextFacts{Identity: "ann", Team: "t", Cwd: "/b"}
	change := contextChange(old, now)
	image := []promptPart{{kind: "image", url: "data:x"}, {kind: "text", text: "this?"}}
	for _, c := range []struct {
		rule   string
		told   contextFacts
		resume string
		offer  string
		req    turnRequest
		want   string
		stays  bool
	}{
		{"nothing to say", now, "", "", turnRequest{prompt: "p"}, "p", false},
		{"all of it", old, "RESUME", "MAIL", turnRequest{prompt: "p"}, "RESUME\n\n" + change + "\n\nMAIL\n\np", false},
		{"mail alone", now, "", "MAIL", turnRequest{prompt: "p"}, "MAIL\n\np", false},
		{"parts alone", now, "", "", turnRequest{prompt: "this?", parts: image}, "", false},
		{"in front of parts", old, "", "MAIL", turnRequest{prompt: "this?", parts: image}, change + "\n\nMAIL", false},
		{"a compaction", old, "RESUME", "", turnRequest{action: actCompact}, "", true},
	} {
		s := &session{h: &hub{common: &common{cfg: &config{}}}, place: &place{}}
		r := &turnRunner{s: s, told: c.told, past: c.resume}
		got := r.command(&turn{req: c.req, mailText: c.offer}, now)
		if got.prompt != c.want || got.action != c.req.action || len(got.parts) != len(c.req.parts) {
			t.Errorf("%s: %+v, want %q", c.rule, got, c.want)
		}
		if stays := r.told == c.told && r.past == c.resume && c.told != now; stays != c.stays {
			t.Errorf("%s: the blocks stay: %v", c.rule, stays)
		}
	}
}

// FR-14: silence is what ends a turn, and the agent is usable after it. Every event but a retry is a sign of life:
// Codex retries for ever when the network is gone, and nothing else would ever end that. A tool of ours that takes its
// time is not Codex's silence; Codex's own is, after it.
func TestWorldSilenceEndsATurn(t *testing.T) {
	const limit = 20 * time.Second
	settings := map[string]string{"request_timeout_secs": "20"}
	inWorld(t, settings, noElicitation, func(t *testing.T, w *world) {
		w.giveTools()
		agent := w.agent("SAY hello")
		slow := "SLOW 90000 a long answer that comes in very small pieces, one every half a second or so, for a " +
			"minute and a half, "
		for _, c := range []struct {
			prompt string
			ends   time.Duration // 0: by itself
			words  []string
		}{
			{"SAY so far\nHANG", limit, []string{"request_timeout_secs", "so far", agent}},
			{"OFFLINE", limit, []string{"retrying", "waiting for network"}},
			{slow + strings.Repeat("x", 400), 0, nil},
			{`CALL atm_send {"wait":45}`, 0, nil},
			{"CALL atm_send {\"wait\":45}\nHANG", 45*time.Second + limit, nil},
		} {
			from := w.now()
			call := w.reply(agent, c.prompt)
			if c.ends == 0 {
				w.is("turn", resultField(call.ok(t), "turn_status"), "completed")
				if took := w.now() - from; took < 2*limit {
					t.Fatalf("%.40q took only %v", c.prompt, took)
				}
				continue
			}
			a := call.fails(t, codeTimeout, append(c.words, "said nothing for 20s")...)
			about(t, "timed out", a.at-from, c.ends)
			if strings.Contains(a.err.Message, " timeout_secs") {
				t.Errorf("advises what would not help: %s", a.err.Message)
			}
			w.wantStatus(agent, statusIdle)
		}
	})
}

// timeout_secs is wall clock, whatever the turn does; its partial text is told.
func TestWorldWallClock(t *testing.T) {
	inWorld(t, map[string]string{"turn_limit_secs": "60"}, noElicitation, func(t *testing.T, w *world) {
		call := w.tool("codex", "timeout_secs", 20, "prompt", "SLOW 90000 begin"+strings.Repeat("n", 400))
		a := call.fails(t, codeTimeout, "limit of 20s (timeout_secs)", "begin",
			"allow the next turn longer, up to turn_limit_secs (1m0s)")
		about(t, "timed out", a.at, 20*time.Second)
		a = w.tool("codex", "prompt", "HANG").fails(t, codeTimeout, "limit of 1m0s (turn_limit_secs)",
			"raise turn_limit_secs")
		about(t, "timed out", a.at-20*time.Second, 60*time.Second)
	})
}

// Waiting for an approval is not silence; once its own timer has declined it,
// the turn goes on and may be silent for as long as any other (FR-18.4).
func TestWorldApprovalTimer(t *testing.T) {
	settings := map[string]string{"request_timeout_secs": "60", "approval_timeout_secs": "300"}
	inWorld(t, settings, elicits, func(t *testing.T, w *world) {
		a := w.tool("codex", "prompt", "SHELLESC touch x\nHANG").fails(t, codeTimeout, "said nothing for 1m0s")
		about(t, "timed out", a.at, 360*time.Second)
		withdrawn := w.times("notifications/cancelled")
		if len(withdrawn) != 1 {
			t.Fatalf("withdrawn %d times", len(withdrawn))
		}
		about(t, "withdrawn", withdrawn[0], 300*time.Second)

		from := w.now()
		res := w.tool("codex", "prompt", "SHELLESC touch y\nSAY went on").ok(t)
		about(t, "declined", w.now()-from, 300*time.Second)
		var d []declined
		err := json.Unmarshal(rawField(res, "structuredContent", "declined"), &d)
		if err != nil || len(d) != 1 || !strings.Contains(d[0].Reason, "5m0s") {
			t.Errorf("declined: %v %+v", err, d)
		}
	})
}

// A decision waits for its audit line, which a disk that hangs can keep back; the session doesn't wait with it. A yes
// that an interrupt overtakes before the child has heard it is none.
func TestWorldDecisionWaitsForAuditAlone(t *testing.T) {
	inWorld(t, nil, elicits, func(t *testing.T, w *world) {
		accept := func(nth int) (s *session, release func()) {
			synctest.Wait()
			release = stallAudit(w.hub.ledger.audit)
			w.mu.Lock()
			id := w.asked[nth]
			w.mu.Unlock()
			w.calls.reply(id, map[string]any{"action": "accept"})
			s = w.hub.table.all()[0]
			for settling := false; !settling; { // a session that waited would never answer
				open := make(chan bool)
				s.box.do(func() { open <- len(s.asks.verdicts) == 1 })
				settling = <-open
			}
			return s, release
		}
		made := func(file string) bool {
			_, err := os.Stat(filepath.Join(filepath.Dir(w.log), file))
			return err == nil
		}
		c := w.tool("codex", "prompt", "PATCH x.txt hi\nSAY done", "sandbox", "read-only")
		s, release := accept(0)
		w.is("the child heard of it before the audit log did", made("x.txt") || len(c.got) > 0, false)
		release()
		w.is("answer", resultField(c.ok(t), "content"), "done")
		mustContain(t, readText(t, filepath.Join(w.cfg.sessionsRoot, "default", "audit.jsonl")), `"decision":"approve"`)
		w.is("done", made("x.txt"), true)

		c = w.reply(s.agentID, "PATCH y.txt hi\nSAY done")
		_, release = accept(1)
		w.tool("agent_interrupt", "agent_id", s.agentID).ok(t)
		release()
		w.is("turn", resultField(c.ok(t), "turn_status"), "interrupted")
		synctest.Wait()
		w.is("done after the interrupt", made("y.txt"), false)
	})
}

// What stops a turn is sent at once, though the no to what the turn asks waits
// for a disk that hangs: the child hears that when it can be audited, or never.
func TestWorldAStopNeverWaitsForAudit(t *testing.T) {
	for _, how := range []string{"agent_close", "agent_interrupt", "timeout"} {
		inWorld(t, map[string]string{"turn_limit_secs": "60"}, elicits, func(t *testing.T, w *world) {
			agent := w.agent("SAY hello")
			c := w.reply(agent, "SHELLESC touch x\nHANG")
			synctest.Wait()
			release := stallAudit(w.hub.ledger.audit)
			from, limit := w.now(), time.Duration(0)
			if how == "timeout" {
				limit = time.Minute
			} else {
				w.tool(how, "agent_id", agent).ok(t)
			}
			about(t, how, c.wait().at-from, limit)
			release()
			w.tool("agent_status").ok(t)
		})
	}
}

// An interrupt that Codex answers and doesn't heed: the caller waits 2 s for it, the session 10 s; then it is broken,
// its name free, and a reply says how to recover it. One whose turn can be stopped after all is recovered by codex.
// agent_close of a turn that can't be stopped doesn't hang either.
func TestWorldUnconfirmedTimeout(t *testing.T) {
	inWorld(t, map[string]string{"turn_limit_secs": "5"}, noElicitation, func(t *testing.T, w *world) {
		agent := w.agent("SAY hello")
		from := w.now()
		a := w.reply(agent, "IGNORE_INTERRUPT\nSAY half\nHANG").fails(t, codeTimeout, "limit of 5s", "half")
		about(t, "answered", a.at-from, 7*time.Second)
		w.wantStatus(agent, statusBusy)
		queued := w.reply(agent, "SAY queued").fails(t, codeSessionClosed, "broken", "call codex with", agent)
		about(t, "broken", queued.at-from, 15*time.Second)
		w.wantStatus(agent, statusBroken)
		w.reply(agent, "SAY later").fails(t, codeSessionClosed, "broken", `codex with {"agent_id": "`+agent+`"`)
		w.named("codex", "SAY the name is free, and other agents are unhurt")

		other := w.named("ann", "SAY hello")
		w.reply(other, "DROP turn/interrupt\nHANG").fails(t, codeTimeout)
		time.Sleep(confirmLimit)
		w.wantStatus(other, statusBroken)
		res := w.tool("codex", "agent_id", other, "prompt", "ECHO_INSTRUCTIONS").ok(t)
		mustContain(t, resultField(res, "content"), "SAY hello") // the conversation goes on

		turn := w.reply(other, "IGNORE_INTERRUPT\nHANG")
		synctest.Wait()
		from = w.now()
		closing := w.close(other)
		w.is("turn", resultField(turn.ok(t), "turn_status"), "interrupted")
		closing.wantClosed(w, true)
		about(t, "closed", w.now()-from, confirmLimit)
		w.named("ann", "SAY the name is free")
	})
}

// A turn/start that vanishes is unknown: told to its caller, interrupted, and never sent again; nothing runs, so the
// agent is usable. A thread/start that vanishes ends by its own limit, and frees the identity.
func TestWorldStartsDropped(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		agent := w.agent("DROP turn/start\nSAY hello")
		from := w.now()
		a := w.reply(agent, "SAY lost").fails(t, codeTimeout, "not sent again")
		if d := a.at - from; d < 30*time.Second || d > 33*time.Second {
			t.Errorf("answered after %v", d)
		}
		w.is("turns", w.sent("turn/start"), 2)
		if w.sent("turn/interrupt") == 0 {
			t.Error("it was not interrupted")
		}
		w.wantStatus(agent, statusIdle)
		w.reply(agent, "DROP thread/start\nSAY found").ok(t)

		from = w.now()
		call := w.tool("codex", "identity", "lost", "prompt", "SAY lost")
		about(t, "answered", call.fails(t, codeTimeout, "open the thread").at-from, 60*time.Second)
		w.named("lost", "SAY found")
	})
}

// A child that never answers initialize is given up on, for all who wait.
func TestWorldInitializeUnanswered(t *testing.T) {
	t.Setenv("MOCK_CODEX_START", "noinit")
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		one, two := w.tool("codex", "prompt", "SAY a"), w.tool("codex", "prompt", "SAY b")
		a := one.fails(t, codeChildDead, "initialize", "30s")
		two.fails(t, codeChildDead, "initialize")
		about(t, "given up", a.at, 30*time.Second)
	})
}

// The queue of one agent holds 32; the next is refused at once and the others run in order.
// A client that is told of an item and asks for the status at once sees it there.
func TestWorldActivityIsShownBeforeItIsTold(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		look := &lookingFront{front: w.hub.front, w: w}
		w.hub.front = look
		w.agent("SAY hello")
		w.is("activities", strings.Join(look.seen, "; "), "started: writing the answer; completed: working")
	})
}

// lookingFront notes what an agent shows of itself while the client is told of its messages.
type lookingFront struct {
	front
	w    *world
	seen []string
}

func (f *lookingFront) event(a agentRef, w waiterID, e *event) bool {
	if e.kind == evItem && e.body.kind == "agentMessage" {
		f.seen = append(f.seen, e.phase+": "+f.w.hub.agents.view(a.AgentID).Activity)
	}
	return f.front.event(a, w, e)
}

func TestWorldQueueFull(t *testing.T) {
	inWorld(t, map[string]string{"request_timeout_secs": "10"}, noElicitation, func(t *testing.T, w *world) {
		agent := w.agent("SAY hello")
		running := w.reply(agent, "HANG")
		var queued []*worldCall
		for range maxQueue {
			queued = append(queued, w.reply(agent, "SAY queued"))
		}
		synctest.Wait()
		over := w.reply(agent, "SAY too many").fails(t, codeMaxSessions, "32")
		if a := running.fails(t, codeTimeout); a.at < over.at {
			t.Error("the refusal waited for the turn")
		}
		for _, c := range queued {
			c.ok(t)
		}
		w.is("turns", w.sent("turn/start"), 2+maxQueue)
	})
}

func TestToolsWay(t *testing.T) {
	app, mcp := backendInfo{clientTools: true}, backendInfo{}
	for _, c := range []struct {
		rule      string
		info      backendInfo
		resumed   bool
		kept      string
		subagents bool
		want      string
	}{
		{"a new thread has its own", app, false, "", false, toolsDynamic},
		{"subagents have none but their parent's servers", app, false, "", true, toolsServer},
		{"mcp-server takes none", mcp, false, "", false, toolsServer},
		{"what a thread was started with stays", app, true, toolsDynamic, true, toolsDynamic},
		{"a server is not kept by Codex", app, true, toolsServer, false, toolsServer},
		{"a thread from before is given a server", app, true, "", false, toolsServer},
		{"a thread that moves to mcp-server", mcp, true, toolsDynamic, false, toolsServer},
	} {
		if got := toolsWay(c.info, c.resumed, c.kept, c.subagents); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

// Nobody's server is lost, and none is mixed with ours.
func TestWithToolServer(t *testing.T) {
	e := newToolServerEntry("/bin/aam", "/repo", "/etc/atm.toml",
		[]string{"HOME=/h", "ATM_HOME=/a", "CLAUDE_CONFIG_DIR=/c",
			"ATM_IDENTITY=lead", "ATM_CONFIG=old.toml", "OPENAI_API_KEY=secret", "ATM_TEAM=x=y", "MATM_X=1"})
	sameJSON(t, toJSON(e.of("t1", "bob", "codex:abc")), `{"command":"/bin/aam",
		"args":["tools","--team","t1","--identity","bob","--agent","codex:abc"],
		"env":{"ATM_HOME":"/a","CLAUDE_CONFIG_DIR":"/c","ATM_CONFIG":"/etc/atm.toml","ATM_TEAM":"x=y"},"cwd":"/repo",
		"startup_timeout_sec":20,"tool_timeout_sec":60,"default_tools_approval_mode":"approve"}`)
	if e.Args != nil {
		t.Error("one agent's arguments are in another's entry")
	}

	entry := toolServerEntry{Command: "aam"}.of("t", "bob", "a")
	ours := string(toJSON(entry))
	for _, c := range []struct{ rule, config, user, want string }{
		{"none so far", ``, `{}`, `{"mcp_servers":{"atm":OURS}}`},
		{"the caller's stay, with every number as it was", `{"x":1.10,"mcp_servers":{"docs":{"command":"d"}}}`, `null`,
			`{"x":1.10,"mcp_servers":{"docs":{"command":"d"},"atm":OURS}}`},
		{"the caller's own atm", `{"mcp_servers":{"atm":{"url":"u"}}}`, `{}`,
			`{"mcp_servers":{"atm":{"url":"u"},"atm_agent_2":OURS}}`},
		{"the user's own atm", ``, `{"mcp_servers":{"atm":{"command":"x"},"atm_agent_2":{"command":"y"}}}`,
			`{"mcp_servers":{"atm_agent_3":OURS}}`},
	} {
		var user map[string]any
		wantNil(t, json.Unmarshal([]byte(c.user), &user))
		got, err := withToolServer(json.RawMessage(c.config), user, entry)
		wantNil(t, err)
		t.Run(c.rule, func(t *testing.T) { sameJSON(t, got, strings.ReplaceAll(c.want, "OURS", ours)) })
	}
	if _, err := withToolServer(json.RawMessage(`{"mcp_servers":5}`), nil, entry); err == nil {
		t.Error("a configuration without room for a server was taken")
	}
}

// toolCalls records what the hub's agents called.
type toolCalls struct {
	mu   sync.Mutex // guards the fields below
	said []string
	ends []error
}

// giveTools gives a world's agents the tool atm_send, which takes as long as its
// argument wait says, and atm_read, which fails.
func (w *world) giveTools() *toolCalls {
	calls := &toolCalls{}
	w.hub.tools.specs = []clientTool{{Name: "atm_send", Description: "send"}, {Name: "atm_read", Description: "read"}}
	w.hub.tools.run = func(ctx context.Context, agentID, identity, correlation string, auto bool, tool string,
		args json.RawMessage) (string, bool) {
		var a struct{ Wait float64 }
		if err := json.Unmarshal(args, &a); err != nil {
			return err.Error(), false
		}
		var err error
		select {
		case <-time.After(time.Duration(a.Wait * float64(time.Second))):
		case <-ctx.Done():
			err = ctx.Err()
		}
		calls.mu.Lock()
		defer calls.mu.Unlock()
		if correlation == "" {
			w.t.Error("a call without correlation id")
		}
		calls.said = append(calls.said, fmt.Sprintf("%s as %s auto=%v %s", tool, identity, auto, args))
		calls.ends = append(calls.ends, err)
		return fmt.Sprintf("%s %d", tool, len(calls.said)), tool == "atm_send"
	}
	return calls
}

func (c *toolCalls) list() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.said, "\n")
}

// An agent's call is answered as the session's own identity, whatever it claims. Calls that come at once are done one
// after the other, in their order. What runs when the session ends is told so, and holds nothing up.
func TestWorldAgentCallsItsTools(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		calls := w.giveTools()
		agent := w.named("bob", "SAY hello")
		answers := func(prompt, want string) {
			t.Helper()
			w.is("answer", resultField(w.reply(agent, prompt).ok(t), "content"), want)
		}
		answers(`CALL atm_send {"to":"lead","identity":"boss","agent_id":"codex:other"}`, "DONE: atm_send 1")
		answers("CALL atm_read {}\nCALL no_such {}", "DONE: unsupported call: no_such") // Codex's own word
		began := w.now()
		answers(`CALL atm_send {"wait":3} ;; atm_send {"wait":1} ;; atm_read {}`,
			"DONE: atm_send 3 | atm_send 4 | atm_read 5")
		about(t, "three calls", w.now()-began, 4*time.Second)
		w.is("calls", calls.list(), `atm_send as bob auto=false {"to":"lead","identity":"boss","agent_id":"codex:other"}
atm_read as bob auto=false {}
atm_send as bob auto=false {"wait":3}
atm_send as bob auto=false {"wait":1}
atm_read as bob auto=false {}`)

		w.reply(agent, "CALL "+strings.Repeat(`atm_send {"wait":0.001} ;; `, maxAgentCalls+8)+"atm_send {}").ok(t)
		w.is("calls; the others were told that there are too many", len(calls.said)-5, 1+maxAgentCalls)

		turn := w.reply(agent, `CALL atm_send {"wait":45}`)
		time.Sleep(time.Second)
		mustContain(t, string(w.tool("agent_status").ok(t)), "calling atm_send")
		began = w.now()
		w.close(agent).ok(t)
		about(t, "the close", w.now()-began, 0)
		turn.wait()
		w.after(time.Millisecond)
		if end := calls.ends[len(calls.ends)-1]; !errors.Is(end, context.Canceled) {
			t.Errorf("the tool ended with %v", end)
		}
	})
}

// How a thread gets its tools: its own, or a server where subagents want them; and a record tells which, so that a
// resume needs no guess. Codex keeps a thread's tools, though we may have one less by now; a thread that was begun
// without any takes a server.
func TestWorldWaysOfTools(t *testing.T) {
	for _, c := range []struct{ way, subagents, start, resume, kept string }{
		{"dynamic", "false", `dynamic:true server:"" mail:true`, `dynamic:false server:"" mail:true`, toolsDynamic},
		{"server", "true", `dynamic:false server:"approve" mail:true`, `dynamic:false server:"approve" mail:true`,
			toolsServer},
		{"none at first", "false", `dynamic:false server:"" mail:false`, `dynamic:false server:"approve" mail:true`,
			toolsServer},
	} {
		t.Run(c.way, func(t *testing.T) {
			settings := map[string]string{"subagents": c.subagents}
			inWorld(t, settings, noElicitation, func(t *testing.T, w *world) {
				opened := func(method, want string) {
					t.Helper()
					p := w.lastSent(method)
					w.is(method, fmt.Sprintf("dynamic:%v server:%q mail:%v", rawField(p, "dynamicTools") != nil,
						stringField(p, "config", "mcp_servers", "atm", "default_tools_approval_mode"),
						strings.Contains(stringField(p, "developerInstructions"), "<team-mail>")), want)
				}
				w.giveTools()
				if c.way == "none at first" {
					w.hub.tools.run, w.hub.tools.specs = nil, nil
				}
				agent := w.agent("hello")
				opened("thread/start", c.start)
				if c.way == "server" {
					args := rawField(w.lastSent("thread/start"), "config", "mcp_servers", "atm", "args")
					sameJSON(t, args, fmt.Sprintf(`["tools","--team","default","--identity","codex","--agent",%q]`,
						agent))
				}
				w.close(agent).ok(t)
				w.giveTools() // as a version of ours that has them takes over
				w.tool("codex", "agent_id", agent, "prompt", "hi").ok(t)
				opened("thread/resume", c.resume)
				w.is("record", w.record(agent).Tools, c.kept)
				if c.way == "dynamic" {
					w.hub.tools.specs = w.hub.tools.specs[:1]
					r := w.reply(agent, "CALL atm_send {}\nCALL atm_read {}").ok(t)
					w.is("answer", resultField(r, "content"), `DONE: there is no tool "atm_read" any more`)
				}
			})
		})
	}
}

// A message for a running turn is never lost and never said twice, whatever becomes of the turn, of the message or of
// its sender.
func TestWorldSteer(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		content := func(c *worldCall, want string) {
			t.Helper()
			if got := stringField(c.ok(t), "structuredContent", "content"); got != want {
				t.Errorf("answer %q, want %q", got, want)
			}
		}
		agent := w.agent("SAY hello")
		run := func(prompt string) *worldCall {
			c := w.tool("codex-reply", "agent_id", agent, "prompt", prompt)
			synctest.Wait()
			return c
		}
		steer := func(prompt string) *worldCall {
			return w.tool("codex-reply", "agent_id", agent, "prompt", prompt, "steer", true)
		}

		// Who steers and gives up leaves the turn to whoever began it.
		turn := run("HANG")
		given := steer("HANG")
		synctest.Wait()
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": given.id})
		synctest.Wait()
		if s := w.view(agent).Status; s != statusBusy {
			t.Errorf("a caller who only steered ended the turn: %s", s)
		}
		both := steer("SAY both")
		content(turn, "both")
		content(both, "both")

		// Nor does whoever began it end it for those who steered it.
		turn = run("HANG")
		mine := steer("HANG")
		synctest.Wait()
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": turn.id})
		synctest.Wait()
		more := steer("SAY more")
		content(mine, "more")
		content(more, "more")
		turn = run("HANG")
		w.tool("codex-reply", "agent_id", agent, "prompt", "SLOW 1000 kept", "steer", true, "background", true).ok(t)
		w.calls.notify("notifications/cancelled", map[string]any{"requestId": turn.id})
		waited := w.tool("agent_wait", "agent_id", agent).ok(t)
		mustContain(t, string(waited), `"turn_status":"completed"`, `"content":"kept"`)

		// A message that came too late is a turn of its own; so is one whose turn was just stopped.
		turn = run("REFUSE turn/steer\nSLOW 1000 slow")
		late := steer("SAY late")
		content(turn, "slow")
		content(late, "late")
		turn = run("HANG")
		w.tool("agent_interrupt", "agent_id", agent)
		after := steer("SAY after")
		turn.wait()
		content(after, "after")

		// A message without an answer may have come through: it isn't said again.
		turn = run("DROP turn/steer\nSLOW 30000 slow")
		began := w.now()
		unknown := steer("SAY lost").fails(t, codeTimeout, "not known", agent)
		about(t, "the error", unknown.at-began, 10*time.Second)
		content(turn, "slow")
		if n := w.sent("turn/steer"); n != 7 {
			t.Errorf("turn/steer was sent %d times", n)
		}

		// A message that comes before the turn has a name waits for the name.
		turn = w.tool("codex-reply", "agent_id", agent, "prompt", "HANG")
		early := steer("SAY early")
		content(turn, "early")
		content(early, "early")

		// With the child's end everybody is told.
		turn = run("DROP turn/steer\nHANG")
		lost := steer("SAY never")
		synctest.Wait()
		w.hub.child.close().stop(0)
		turn.fails(t, codeChildDead)
		lost.fails(t, codeChildDead)
		if n := len(w.hub.waiters.all()); n != 0 {
			t.Errorf("%d calls wait still: %s", n, strconv.Quote(agent))
		}
	})
}
