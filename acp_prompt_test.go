package main

// acp_prompt_test.go holds the prompts of an ACP session to their rules: each
// answered once and truly, in order, nothing of a turn behind its answer, a cancel
// at whatever moment, a client that doesn't read, a session that is loaded.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newOpenRig is a client with an open session.
func newOpenRig(t *testing.T) (r *acpFrontRig, session, agent string) {
	t.Helper()
	r = newACPFrontRig(t, nil)
	r.hello(`{"session":{"notices":{}}}`)
	session, agent = r.open()
	return r, session, agent
}

func TestACPStopReasons(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		err          *backendError
		want         string // stop reason
		code         int
		words        string
		notice       bool
	}{
		{name: "completed", status: "completed", want: "end_turn"},
		{name: "interrupted", status: "interrupted", want: "cancelled"},
		{name: "failed", status: "failed", err: &backendError{Message: "the model broke", Info: "other"}, code: codeInternal, words: "the model broke"},
		{name: "no login", status: "failed", err: &backendError{Message: "401", Info: "unauthorized"}, code: codeAuthRequired, words: "401"},
		{name: "no room", status: "failed", err: &backendError{Message: "ran out of room", Info: "contextWindowExceeded"}, want: "max_tokens", notice: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, session, _ := newOpenRig(t)
			id := r.prompt(session, "go")
			turn := r.begun("t1")
			turn.says("part")
			turn.runs("c1")
			turn.ends(tt.status, tt.err)
			var before []json.RawMessage
			if tt.want != "" {
				before = r.stops(id, tt.want)
			} else {
				before = r.fails(id, tt.code, tt.words)
			}
			all := fmt.Sprintf("%s", before)
			if strings.Contains(all, "the model broke") && strings.Contains(all, "agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"the model") {
				t.Error("the failure was told as an answer")
			}
			if has := strings.Contains(all, `"notice"`); has != tt.notice {
				t.Errorf("notice %v among %s", has, all)
			}
			turn.says("late")
			turn.runs("c2")
			r.nothing()
		})
	}
}

// TestACPPromptSays: what the hub is told of a prompt: all that the client knows
// of the session, so that one that was parked comes back as it was.
func TestACPPromptSays(t *testing.T) {
	r := newACPFrontRig(t, nil)
	r.hello(`{}`)
	id := r.start("session/new", `{"cwd":"/work/./","mcpServers":[],"additionalDirectories":["/extra/"]}`)
	sub := receive(t, r.submits)
	r.f.done(sub.w, turnResult{})
	got, _ := r.answerTo(id)
	session := stringField(got, "result", "sessionId")
	r.start("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"look"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}`, session))
	req := receive(t, r.submits).req
	if req.mode != modeRevive || req.ref != sub.req.agentID || !req.run || req.cwd != "/work" || req.prompt != "look" || req.approvals != "client" || req.source != sourceClient ||
		req.client == nil || req.client.session != session || len(req.client.roots) != 1 || req.client.roots[0] != "/extra" {
		t.Errorf("submitted %+v", req)
	}
	if len(req.parts) != 2 || req.parts[0].text != "look" || req.parts[1].url != "data:image/png;base64,aGk=" {
		t.Errorf("parts %+v", req.parts)
	}
	if title := receive(t, r.titles); title != "look" {
		t.Errorf("title %q", title)
	}
}

// TestACPQueue: prompts go to the hub in order, and what is answered without a
// turn waits for its place.
func TestACPQueue(t *testing.T) {
	r, session, _ := newOpenRig(t)
	first, second := r.prompt(session, "one"), r.prompt(session, "two")
	status, last := r.prompt(session, "/status"), r.prompt(session, "three")
	one := r.begun("t1")
	sub := receive(t, r.submits)
	if sub.req.prompt != "two" {
		t.Errorf("second is %q", sub.req.prompt)
	}
	none(t, "submitted past /status", r.submits)
	one.ends("completed", nil)
	r.stops(first, "end_turn")
	r.plays(sub, "t2").ends("completed", nil)
	r.answerTo(second)
	before := r.stops(status, "end_turn")
	if len(before) == 0 || updateKind(before[len(before)-1]) != "agent_message_chunk" {
		t.Errorf("/status said %s", before)
	}
	r.begun("t3").ends("completed", nil)
	r.stops(last, "end_turn")
	for range maxPrompts {
		r.prompt(session, "more")
	}
	r.fails(r.prompt(session, "one too many"), codeInternal, "already wait")
}

func TestACPCancelOfARunningTurn(t *testing.T) {
	r, session, agent := newOpenRig(t)
	running, queued := r.prompt(session, "run"), r.prompt(session, "wait")
	turn := r.begun("t1")
	waiting := receive(t, r.submits)
	turn.runs("c1")
	r.cancel(session)
	if c := receive(t, r.cancels); c != waiting.w {
		t.Errorf("cancelled %+v", c)
	}
	r.stops(queued, "cancelled")
	i := receive(t, r.interrupts)
	if i.agent != agent || i.turn != "t1" {
		t.Errorf("interrupted %+v", i)
	}
	turn.ends("interrupted", nil)
	i.done(interruptResult{Interrupted: true}, nil)
	before := r.stops(running, "cancelled")
	if len(before) == 0 || !strings.Contains(string(before[len(before)-1]), `"failed"`) {
		t.Errorf("the tool call was not closed: %s", before)
	}
	r.f.event(turn.a, waiting.w, &event{kind: evStarted, turn: "t2", thread: "T"}) // it had begun all the same
	r.f.done(waiting.w, turnResult{TurnStatus: "completed"})
	r.nothing()
	none(t, "interrupted again", r.interrupts)
}

// TestACPCancelWins: whatever became of a cancelled turn, its prompt is answered
// cancelled, once.
func TestACPCancelWins(t *testing.T) {
	for _, how := range []string{"completed", "failed", "error"} {
		t.Run(how, func(t *testing.T) {
			r, session, _ := newOpenRig(t)
			id := r.prompt(session, "run")
			turn := r.begun("t1")
			r.cancel(session)
			receive(t, r.interrupts)
			if how == "error" {
				r.f.done(turn.w, turnResult{err: proxyError(codeTimeout, "silent")})
			} else {
				turn.ends(how, &backendError{Message: "x"})
			}
			r.f.done(turn.w, turnResult{TurnStatus: "completed"}) // the hub never does
			r.stops(id, "cancelled")
			r.nothing()
		})
	}
}

// TestACPCancelBeforeTheTurn: nothing of the turn was told yet, so the answer
// comes at once and nothing follows it, whatever the hub had begun.
func TestACPCancelBeforeTheTurn(t *testing.T) {
	r, session, _ := newOpenRig(t)
	id := r.prompt(session, "run")
	sub := receive(t, r.submits)
	r.cancelRequest(id)
	if c := receive(t, r.cancels); c != sub.w {
		t.Errorf("cancelled %+v", c)
	}
	r.stops(id, "cancelled")
	turn := r.turn(sub.req.ref, sub.w, "t1")
	turn.says("never shown")
	turn.runs("c1")
	turn.is(&event{kind: evEnded, status: "interrupted"})
	r.nothing()
	none(t, "interrupted", r.interrupts)
	r.runsTurn(session, "again", "t2")
}

// TestACPCancelWhileCodexStarts: every prompt that waits is told that Codex is being started. That begins the turn of
// none of them, so a cancel takes all back at once.
func TestACPCancelWhileCodexStarts(t *testing.T) {
	r, session, agent := newOpenRig(t)
	ids := []string{r.prompt(session, "one"), r.prompt(session, "two")}
	waiting := []submitted{receive(t, r.submits), receive(t, r.submits)}
	for _, sub := range waiting {
		r.f.event(agentRef{AgentID: agent}, sub.w, &event{kind: evNotice, phase: startingCodex})
	}
	r.cancel(session)
	for i, sub := range waiting {
		r.stops(ids[i], "cancelled")
		if c := receive(t, r.cancels); c != sub.w {
			t.Errorf("cancelled %+v", c)
		}
	}
	r.nothing()
	none(t, "interrupted", r.interrupts)
}

// TestACPCancelOfOne: one prompt is cancelled, the others are not; a turn that
// the session doesn't know by name yet is stopped as the running one.
func TestACPCancelOfOne(t *testing.T) {
	r, session, _ := newOpenRig(t)
	running, queued := r.prompt(session, "run"), r.prompt(session, "wait")
	turn := r.begun("t1")
	waiting := receive(t, r.submits)
	r.cancelRequest(running)
	i := receive(t, r.interrupts)
	i.done(interruptResult{}, nil) // "t1" is no name that it knows
	if i = receive(t, r.interrupts); i.turn != "" {
		t.Errorf("interrupted %q", i.turn)
	}
	turn.ends("interrupted", nil)
	i.done(interruptResult{Interrupted: true}, nil)
	r.stops(running, "cancelled")
	r.plays(waiting, "t2").ends("completed", nil)
	r.stops(queued, "end_turn")
	none(t, "cancelled", r.cancels)
	r.cancelRequest(queued) // answered long ago
	r.nothing()
}

// TestACPCancelOfOtherRequests: they are answered too, with -32800.
func TestACPCancelOfOtherRequests(t *testing.T) {
	r := newACPFrontRig(t, nil)
	r.hello(`{}`)
	id := r.start("session/new", `{"cwd":"/w","mcpServers":[]}`)
	sub := receive(t, r.submits)
	r.cancelRequest(id)
	r.fails(id, codeCancelled)
	if c := receive(t, r.cancels); c != sub.w {
		t.Errorf("cancelled %+v", c)
	}
	if left := receive(t, r.leaves); left != sub.req.agentID { // the hub may have opened it already
		t.Errorf("left %q", left)
	}
	r.f.done(sub.w, turnResult{})
	r.nothing()
}

// TestACPCancelOfClose: a session whose close was cancelled took no prompts any
// more, as if it were closed.
func TestACPCancelOfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, session, _ := newOpenRig(t)
		running := r.prompt(session, "run")
		turn := r.begun("t1")
		id := r.start("session/close", fmt.Sprintf(`{"sessionId":%q}`, session))
		receive(t, r.interrupts)
		r.cancelRequest(id)
		r.fails(id, codeCancelled)
		synctest.Wait()
		turn.ends("interrupted", nil)
		r.stops(running, "cancelled")
		r.runsTurn(session, "again", "t2")
		none(t, "left", r.leaves)
	})
}

// TestACPCancelBehindALoad: a load waits for what runs in the session, and a
// cancel that came meanwhile met only the session that was being opened.
func TestACPCancelBehindALoad(t *testing.T) {
	r, session, agent := newOpenRig(t)
	r.known[session] = clientSession{Session: session, AgentID: agent}
	running := r.prompt(session, "run")
	turn := r.begun("t1")
	load := r.start("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/work","mcpServers":[]}`, session))
	r.cancel(session)
	receive(t, r.interrupts)
	turn.ends("interrupted", nil)
	r.stops(running, "cancelled")
	r.f.done(receive(t, r.submits).w, turnResult{AgentID: agent, Status: "idle"})
	if got, _ := r.answerTo(load); rawField(got, "result") == nil {
		t.Errorf("answered %s", got)
	}
}

// TestACPCancelWhileAnswered: a cancel that came while a command of ours was
// being told was answered at once, and the rest of the text came behind it.
func TestACPCancelWhileAnswered(t *testing.T) {
	r, session, agent := newOpenRig(t)
	s := r.f.sessions.ofAgent(agent)
	telling, goOn := make(chan bool), make(chan bool)
	s.enc = newACPEncoder(acpEncoding{Cwd: "/work", Send: func(update []byte) bool {
		telling <- true
		<-goOn
		return s.send(update)
	}})
	id := r.prompt(session, "/status")
	receive(t, telling)
	r.cancelRequest(id)
	r.nothing()
	close(goOn)
	before := r.stops(id, "cancelled")
	if len(before) != 1 || updateKind(before[0]) != agentChunk {
		t.Errorf("told %s", before)
	}
	r.nothing()
}

// TestACPFailuresBeforeTheTurn: what the hub says instead of running it.
func TestACPFailuresBeforeTheTurn(t *testing.T) {
	r, session, _ := newOpenRig(t)
	id := r.prompt(session, "run")
	r.f.done(receive(t, r.submits).w, turnResult{err: deathError(&childDeath{Reason: "signal: killed (SIGKILL)"}, true)})
	r.fails(id, codeInternal, "killed", "next prompt")
}

// TestACPImages: a model that takes none has them refused, and what comes behind
// keeps its place.
func TestACPImages(t *testing.T) {
	r := newACPFrontRig(t, func(r *acpFrontRig, _ *acpOptions) {
		r.models = `{"data":[{"id":"m1","model":"m1","isDefault":true,"inputModalities":["text"]}]}`
	})
	r.hello(`{}`)
	session, _ := r.open()
	picture := r.start("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}`, session))
	words := r.prompt(session, "words")
	r.fails(picture, codeInvalidParams, "m1 takes no images")
	r.begun("t1").ends("completed", nil)
	r.stops(words, "end_turn")
}

// TestACPMailTurn: a turn that mail began shows first what the agent was sent,
// and has its calls closed, though nobody is answered.
func TestACPMailTurn(t *testing.T) {
	r, session, agent := newOpenRig(t)
	turn := r.turn(agent, 0, "m1")
	turn.is(&event{kind: evItem, item: "u1", phase: "started", method: "item/started", body: &itemBody{kind: "userMessage", text: "mail for you"}, raw: json.RawMessage(`{"item":{}}`)})
	turn.is(&event{kind: evItem, item: "u1", phase: "completed", method: "item/completed", body: &itemBody{kind: "userMessage", text: "mail for you"}, raw: json.RawMessage(`{"item":{}}`)})
	turn.says("thanks")
	turn.runs("c1")
	queued := r.prompt(session, "user")
	sub := receive(t, r.submits)
	turn.is(&event{kind: evEnded, status: "completed"})
	r.plays(sub, "t2").ends("completed", nil)
	_, before := r.answerTo(queued)
	var kinds []string
	for _, rec := range before {
		if k := updateKind(rec); k != "session_info_update" && k != "usage_update" {
			kinds = append(kinds, k)
		}
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "user_message_chunk agent_message_chunk tool_call") || !strings.HasSuffix(got, "tool_call_update") || strings.Count(got, "user_message") != 1 {
		t.Errorf("told %s", got)
	}
	// session/cancel stops such a turn, too.
	turn.turn = "m2"
	turn.is(&event{kind: evStarted})
	r.cancel(session)
	if i := receive(t, r.interrupts); i.agent != agent || i.turn != "" {
		t.Errorf("interrupted %+v", i)
	}
}

// TestACPStalledClient: a client that doesn't read has its prompt failed with the
// reason once its budget is used up; the turn goes on unseen, and the next one is
// shown again.
func TestACPStalledClient(t *testing.T) {
	r, session, _ := newOpenRig(t)
	stalled := make(chan struct{})
	r.f.p.out.mu.Lock() // nothing leaves while the test holds the writer
	w := r.f.p.out.w
	r.f.p.out.w = writerFunc(func(b []byte) (int, error) { <-stalled; return w.Write(b) })
	r.f.p.out.mu.Unlock()
	id := r.prompt(session, "run")
	turn := r.begun("t1")
	turn.runs("c1")
	chunk := strings.Repeat("x", 64<<10)
	for range 20 << 4 { // 20 MiB
		turn.says(chunk)
	}
	if waits := r.f.p.queued(); waits > acpBudget+4*len(chunk) {
		t.Errorf("%d bytes wait", waits)
	}
	next := r.prompt(session, "next") // waits for the turn
	sub := receive(t, r.submits)
	close(stalled)
	before := r.fails(id, codeInternal, "session/load")
	if len(before) == 0 || !strings.Contains(string(before[len(before)-1]), `"failed"`) {
		t.Errorf("the tool call was not closed: %.200s", before[len(before)-1])
	}
	turn.says("unseen")
	turn.is(&event{kind: evEnded, status: "completed"})
	r.f.done(turn.w, turnResult{TurnStatus: "completed"})
	two := r.plays(sub, "t2")
	two.says("seen")
	two.ends("completed", nil)
	before = r.stops(next, "end_turn")
	if all := fmt.Sprintf("%s", before); strings.Contains(all, "unseen") || !strings.Contains(all, `"seen"`) {
		t.Errorf("told %s", all)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// load starts a session/load and plays its opening.
func (r *acpFrontRig) load(method, session string) (id string, sub submitted) {
	r.t.Helper()
	id = r.start(method, fmt.Sprintf(`{"sessionId":%q,"cwd":"/work","mcpServers":[]}`, session))
	return id, receive(r.t, r.submits)
}

// TestACPLoadUnderAFlood: a turn of mail's that told more than is kept while its
// session was loaded took the list of commands with it.
func TestACPLoadUnderAFlood(t *testing.T) {
	r := newACPFrontRig(t, nil)
	r.known["sess_1"] = clientSession{Session: "sess_1", AgentID: "codex:old", Cwd: "/work"}
	r.hello(`{}`)
	id, sub := r.load("session/load", "sess_1")
	turn := r.turn("codex:old", 0, "t1")
	turn.says(strings.Repeat("x", replayRoom))
	turn.says("dropped")
	r.f.done(sub.w, turnResult{})
	r.answerTo(id)
	if rec := r.next(); updateKind(rec) != agentChunk {
		t.Errorf("told %.100s", rec)
	}
	if rec := r.next(); updateKind(rec) != "available_commands_update" {
		t.Errorf("told %.100s", rec)
	}
	turn.is(&event{kind: evEnded, status: "completed"})
	r.prompt("sess_1", "next")
	next := r.begun("t2")
	next.says("shown")
	r.next() // the title
	if rec := r.next(); stringField(rec, "params", "update", "content", "text") != "shown" {
		t.Errorf("told %.300s", rec)
	}
	next.ends("completed", nil)
}

// TestACPLoadBesideAMailTurn: a turn that mail wakes while its session is loaded
// stands in the history already, and is told as it runs alone.
func TestACPLoadBesideAMailTurn(t *testing.T) {
	r := newACPFrontRig(t, func(r *acpFrontRig, _ *acpOptions) {
		r.known["sess_1"] = clientSession{Session: "sess_1", AgentID: "codex:old", Cwd: "/work"}
		r.past = func(_ context.Context, each func(*event) error) *rpcError {
			for _, turn := range []string{"t0", "t1"} {
				for _, e := range []*event{{kind: evStarted}, {kind: evItem, item: "a", phase: "completed", method: "item/completed",
					body: &itemBody{kind: "agentMessage", text: "past " + turn}, raw: json.RawMessage(`{"item":{}}`)}, {kind: evEnded, status: "completed"}} {
					e.thread, e.turn = "T", turn
					if err := each(e); err != nil {
						return &rpcError{Message: err.Error()}
					}
				}
			}
			return nil
		}
	})
	r.hello(`{}`)
	id, sub := r.load("session/load", "sess_1")
	turn := r.turn("codex:old", 0, "t1")
	turn.says("live t1")
	r.f.done(sub.w, turnResult{})
	if rec := r.next(); stringField(rec, "params", "update", "content", "text") != "past t0" {
		t.Errorf("told %.300s", rec)
	}
	if rec := r.next(); updateKind(rec) != "" { // the answer
		t.Errorf("told %.300s before the answer to %s", rec, id)
	}
	if rec := r.next(); stringField(rec, "params", "update", "content", "text") != "live t1" {
		t.Errorf("told %.300s", rec)
	}
	turn.is(&event{kind: evEnded, status: "completed"})
}

// TestACPLoadReplays: the past comes before the answer, in order, at the client's
// pace; a prompt that was sent behind the load waits for it.
func TestACPLoadReplays(t *testing.T) {
	const turns = 200
	item := func(kind, id, text string) *event {
		raw := map[string]any{"item": map[string]any{"id": id, "type": kind, "text": text, "content": []any{map[string]any{"type": "text", "text": text}}}}
		return &event{kind: evItem, item: id, phase: "completed", method: "item/completed", body: &itemBody{kind: kind, text: text}, raw: toJSON(raw)}
	}
	r := newACPFrontRig(t, func(r *acpFrontRig, _ *acpOptions) {
		r.known["sess_1"] = clientSession{Session: "sess_1", AgentID: "codex:old", Cwd: "/work", Title: "kept"}
		r.past = func(ctx context.Context, each func(*event) error) *rpcError {
			for n := range turns {
				for _, e := range []*event{{kind: evStarted}, item("userMessage", "u", "ask"), item("agentMessage", "a", fmt.Sprint(n, strings.Repeat(" x", 32<<10))), {kind: evEnded, status: "completed"}} {
					e.thread, e.turn = "T", fmt.Sprint("t", n)
					if err := each(e); err != nil {
						return &rpcError{Code: codeInternal, Message: err.Error()}
					}
				}
				if waits := r.f.p.queued(); waits > replayRoom+256<<10 {
					t.Errorf("%d bytes of the past wait", waits)
				}
			}
			return nil
		}
	})
	r.hello(`{}`)
	id, sub := r.load("session/load", "sess_1")
	if sub.req.ref != "codex:old" || sub.req.run || sub.req.mode != modeRevive || sub.req.cwd != "/work" {
		t.Errorf("opened with %+v", sub.req)
	}
	r.prompt("sess_1", "behind it")
	r.f.done(sub.w, turnResult{})
	got, before := r.answerTo(id)
	if stringField(got, "result", "sessionId") != "sess_1" {
		t.Errorf("answered %s", got)
	}
	if len(before) != 2*turns {
		t.Fatalf("%d updates, want %d", len(before), 2*turns)
	}
	for n, rec := range before {
		kind, text := updateKind(rec), stringField(rec, "params", "update", "content", "text")
		if n%2 == 0 && (kind != "user_message_chunk" || text != "ask") || n%2 == 1 && (kind != "agent_message_chunk" || !strings.HasPrefix(text, fmt.Sprint(n/2, " x"))) {
			t.Fatalf("update %d is %.200s", n, rec)
		}
	}
	if sub := receive(t, r.submits); sub.req.prompt != "behind it" || !sub.req.run {
		t.Errorf("submitted %+v", sub.req)
	}
	none(t, "a title of its own was lost", r.titles)
}

// TestACPLoadWaitsForItsTurn: what runs of the session on this connection ends
// first, whether its prompt was answered or not.
func TestACPLoadWaitsForItsTurn(t *testing.T) {
	r, session, agent := newOpenRig(t)
	r.known[session] = clientSession{Session: session, AgentID: agent, Cwd: "/work"}
	running := r.prompt(session, "run")
	turn := r.begun("t1")
	id := r.start("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/work"}`, session))
	r.call("session/nothing", `{}`) // the load was taken
	none(t, "opened", r.submits)
	turn.ends("completed", nil)
	r.stops(running, "end_turn")
	behind := r.prompt(session, "behind the load")
	r.call("session/nothing", `{}`)
	r.f.done(receive(t, r.submits).w, turnResult{err: proxyError(codeInvalidSession, "cwd /work is gone")})
	r.fails(behind, codeSessionNotFound)
	r.fails(id, codeInvalidParams, "cwd /work is gone")
	r.runsTurn(session, "the one before is still there", "t2")
}

func TestACPClose(t *testing.T) {
	r, session, agent := newOpenRig(t)
	running, queued := r.prompt(session, "run"), r.prompt(session, "wait")
	turn := r.begun("t1")
	receive(t, r.submits)
	id := r.start("session/close", fmt.Sprintf(`{"sessionId":%q}`, session))
	r.stops(queued, "cancelled")
	receive(t, r.interrupts)
	none(t, "left", r.leaves)
	turn.ends("interrupted", nil)
	r.stops(running, "cancelled")
	if left := receive(t, r.leaves); left != agent {
		t.Errorf("left %q", left)
	}
	got, _ := r.answerTo(id)
	if string(rawField(got, "result")) != "{}" {
		t.Errorf("answered %s", got)
	}
	r.fails(r.prompt(session, "x"), codeSessionNotFound)
	r.known["sess_2"] = clientSession{Session: "sess_2", AgentID: "codex:two"} // one that isn't open
	if got := r.call("session/close", `{"sessionId":"sess_2"}`); string(rawField(got, "result")) != "{}" || receive(t, r.leaves) != "codex:two" {
		t.Errorf("answered %s", got)
	}
}

// TestACPHoldsForServers: a prompt waits while the client's MCP servers start.
func TestACPHoldsForServers(t *testing.T) {
	r := newACPFrontRig(t, nil)
	r.hello(`{}`)
	id := r.start("session/new", `{"cwd":"/work","mcpServers":[{"name":"s1","command":"/bin/s","args":[],"env":[]}]}`)
	sub := receive(t, r.submits)
	if !strings.Contains(string(sub.req.servers), "/bin/s") {
		t.Errorf("servers %s", sub.req.servers)
	}
	r.f.done(sub.w, turnResult{})
	got, _ := r.answerTo(id)
	session := stringField(got, "result", "sessionId")
	held := r.prompt(session, "held")
	cancelledOne := r.prompt(session, "cancelled while held")
	r.cancelRequest(cancelledOne)
	r.stops(cancelledOne, "cancelled")
	none(t, "submitted", r.submits)
	none(t, "cancelled at the hub", r.cancels)
	a := agentRef{AgentID: sub.req.agentID, Thread: "T"}
	r.f.event(a, 0, &event{kind: evServer, item: "s1", status: "starting", thread: "T"})
	none(t, "submitted", r.submits)
	r.f.event(a, 0, &event{kind: evServer, item: "s1", status: "ready", thread: "T"})
	r.begun("t1").ends("completed", nil)
	r.stops(held, "end_turn")
}

// TestACPChoiceBeforeAPrompt: a prompt that is sent right behind a choice runs
// with it.
func TestACPChoiceBeforeAPrompt(t *testing.T) {
	var tuned func(sessionSettings, *rpcError)
	asked := make(chan bool, 1)
	r := newACPFrontRig(t, func(_ *acpFrontRig, o *acpOptions) {
		o.retune = func(_ string, _ settingsChange, done func(sessionSettings, *rpcError)) { tuned = done; asked <- true }
	})
	r.hello(`{}`)
	session, _ := r.open()
	choice := r.start("session/set_mode", fmt.Sprintf(`{"sessionId":%q,"modeId":"auto"}`, session))
	said := r.prompt(session, "behind it")
	receive(t, asked)
	r.call("session/nothing", `{}`) // the prompt was taken
	none(t, "submitted", r.submits)
	tuned(sessionSettings{Model: "m1", Sandbox: "workspace-write", Approval: "never"}, nil)
	r.answerTo(choice)
	r.begun("t1").ends("completed", nil)
	r.stops(said, "end_turn")
}

// TestACPEndsWithItsClient: whatever waits ends with the stream.
func TestACPEndsWithItsClient(t *testing.T) {
	r := newACPFrontRig(t, func(r *acpFrontRig, _ *acpOptions) { r.ready = make(chan struct{}) })
	r.hello(`{}`)
	r.start("session/new", `{"cwd":"/w","mcpServers":[]}`)
	began := time.Now()
	r.end()
	if d := time.Since(began); d > 900*time.Millisecond {
		t.Errorf("ended after %s", d)
	}
}
