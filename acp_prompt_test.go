package main

// acp_prompt_test.go holds the prompts of an ACP session to their rules: each
// answered once and truly, in order, nothing of a turn behind its answer, a cancel
// at whatever moment, a client that doesn't read, a session that is loaded.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

func TestACPStopReasons(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		err          *backendError
		want         string // stop reason
		code         int
		notice       bool
	}{
		{name: "completed", status: "completed", want: "end_turn"},
		{name: "interrupted", status: "interrupted", want: "cancelled"},
		{name: "failed", status: "failed", err: &backendError{Message: "it broke", Info: "other"}, code: codeInternal},
		{name: "no login", status: "failed", err: &backendError{Message: "401", Info: "unauthorized"}, code: codeAuthRequired},
		{name: "no room", status: "failed", err: &backendError{Message: "ran out of room", Info: "contextWindowExceeded"},
			want: "max_tokens", notice: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newOpenRig(t, `{"session":{"notices":{}}}`, nil)
			id := r.prompt("go")
			turn := r.begun("t1")
			turn.says("part")
			turn.runs("c1")
			turn.ends(tt.status, tt.err)
			var before []json.RawMessage
			if tt.want != "" {
				before = r.stops(id, tt.want)
			} else {
				before = r.fails(id, tt.code, tt.err.Message)
			}
			for _, rec := range before {
				if tt.err != nil && updateKind(rec) == agentChunk && strings.Contains(updateText(rec), tt.err.Message) {
					t.Error("the failure was told as an answer")
				}
			}
			if has := strings.Contains(kindsOf(before), "notice"); has != tt.notice {
				t.Errorf("notice %v among %s", has, before)
			}
			turn.says("late")
			turn.runs("c2")
			r.nothing()
			id = r.prompt("again") // what the hub says instead of running it
			r.f.done(receive(t, r.submits).w, turnResult{err: deathError(&childDeath{Reason: "signal: killed"}, true)})
			r.fails(id, codeInternal, "killed", "next prompt")
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
	r.session = stringField(got, "result", "sessionId")
	r.start("session/prompt", r.of(`,"prompt":[{"type":"text","text":"look"},`+
		`{"type":"image","data":"aGk=","mimeType":"image/png"}]`))
	req := receive(t, r.submits).req
	if req.mode != modeRevive || req.ref != sub.req.agentID || !req.run || req.cwd != "/work" || req.prompt != "look" ||
		req.approvals != "client" || req.source != sourceClient || req.client == nil || req.client.session != r.session ||
		fmt.Sprint(req.client.roots) != "[/extra]" {
		t.Errorf("submitted %+v", req)
	}
	if len(req.parts) != 2 || req.parts[0].text != "look" || req.parts[1].url != "data:image/png;base64,aGk=" {
		t.Errorf("parts %+v", req.parts)
	}
	want(t, receive(t, r.titles), "look")
}

// TestACPQueue: prompts go to the hub in order, and what is answered without a
// turn waits for its place.
func TestACPQueue(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	first, second := r.prompt("one"), r.prompt("two")
	status, last := r.prompt("/status"), r.prompt("three")
	one := r.begun("t1")
	sub := receive(t, r.submits)
	want(t, sub.req.prompt, "two")
	none(t, "submitted past /status", r.submits)
	one.ends("completed", nil)
	r.stops(first, "end_turn")
	r.plays(sub, "t2").ends("completed", nil)
	r.stops(second, "end_turn")
	want(t, kindsOf(r.stops(status, "end_turn")), agentChunk)
	r.begun("t3").ends("completed", nil)
	r.stops(last, "end_turn")
	for range maxPrompts {
		r.prompt("more")
	}
	r.fails(r.prompt("one too many"), codeInternal, "already wait")
}

// TestACPCancelOfARunningTurn: whatever became of a cancelled turn, its prompt is
// answered cancelled, once, behind its last updates; those that wait at once.
func TestACPCancelOfARunningTurn(t *testing.T) {
	for _, how := range []string{"interrupted", "completed", "failed", "error"} {
		t.Run(how, func(t *testing.T) {
			r := newOpenRig(t, `{}`, nil)
			running, queued := r.prompt("run"), r.prompt("wait")
			turn := r.begun("t1")
			waiting := receive(t, r.submits)
			turn.runs("c1")
			r.cancel()
			if c := receive(t, r.cancels); c != waiting.w {
				t.Errorf("cancelled %+v", c)
			}
			r.stops(queued, "cancelled")
			i := receive(t, r.interrupts)
			want(t, i.agent+" "+i.turn, r.agent+" t1")
			if how == "error" {
				r.f.done(turn.w, turnResult{err: proxyError(codeTimeout, "silent")})
			} else {
				turn.ends(how, &backendError{Message: "x"})
			}
			before := r.stops(running, "cancelled")
			if status := callStatus("codex:T:t1:c1", before...); status != callFailed && (status != callDone || how != "completed") {
				t.Errorf("the tool call is %q: %s", status, before)
			}
			r.f.done(turn.w, turnResult{TurnStatus: "completed"}) // the hub never does
			// The one that waited had begun all the same.
			r.f.event(turn.a, waiting.w, &event{kind: evStarted, turn: "t2", thread: "T"})
			r.f.done(waiting.w, turnResult{TurnStatus: "completed"})
			r.nothing()
		})
	}
}

// TestACPCancelBeforeTheTurn: nothing of the turn was told yet, so the answer comes at
// once and nothing follows it, whatever the hub had begun. That Codex is being started,
// which every prompt that waits is told, begins the turn of none.
func TestACPCancelBeforeTheTurn(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	id := r.prompt("run")
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
	r.runsTurn("again", "t2")

	ids := []string{r.prompt("one"), r.prompt("two")}
	waiting := []submitted{receive(t, r.submits), receive(t, r.submits)}
	for _, sub := range waiting {
		r.f.event(agentRef{AgentID: r.agent}, sub.w, &event{kind: evNotice, phase: startingCodex})
	}
	r.cancel()
	for i, sub := range waiting {
		r.stops(ids[i], "cancelled")
		if c := receive(t, r.cancels); c != sub.w {
			t.Errorf("cancelled %+v", c)
		}
	}
	r.nothing()
}

// TestACPCancelOfOne: one prompt is cancelled, the others are not; a turn that
// the session doesn't know by name yet is stopped as the running one.
func TestACPCancelOfOne(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	r.notSo = true
	running, queued := r.prompt("run"), r.prompt("wait")
	turn := r.begun("t1")
	waiting := receive(t, r.submits)
	r.cancelRequest(running)
	i := receive(t, r.interrupts)
	i.done(interruptResult{}, nil) // "t1" is no name that it knows
	i = receive(t, r.interrupts)
	want(t, i.turn, "")
	turn.ends("interrupted", nil)
	i.done(interruptResult{Interrupted: true}, nil)
	r.stops(running, "cancelled")
	r.plays(waiting, "t2").ends("completed", nil)
	r.stops(queued, "end_turn")
	r.cancelRequest(queued) // answered long ago
	r.nothing()
}

// TestACPCancelOfOtherRequests: they are answered too, with -32800. A session whose
// close was cancelled took no prompts any more, as if it were closed.
func TestACPCancelOfOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newOpenRig(t, `{}`, nil)
		id := r.start("session/new", `{"cwd":"/w","mcpServers":[]}`)
		sub := receive(t, r.submits)
		r.cancelRequest(id)
		r.fails(id, codeCancelled)
		if c := receive(t, r.cancels); c != sub.w {
			t.Errorf("cancelled %+v", c)
		}
		want(t, receive(t, r.leaves), sub.req.agentID) // the hub may have opened it already
		r.f.done(sub.w, turnResult{})
		r.nothing()

		running := r.prompt("run")
		turn := r.begun("t1")
		id = r.start("session/close", r.of(""))
		receive(t, r.interrupts)
		r.cancelRequest(id)
		r.fails(id, codeCancelled)
		synctest.Wait()
		turn.ends("interrupted", nil)
		r.stops(running, "cancelled")
		r.runsTurn("again", "t2")
		r.nothing()
	})
}

// TestACPCancelBehindALoad: a load waits for what runs in the session, and a
// cancel that came meanwhile met only the session that was being opened.
func TestACPCancelBehindALoad(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	r.keeps(r.session, r.agent)
	running := r.prompt("run")
	turn := r.begun("t1")
	load := r.reopen("load", r.session)
	r.cancel()
	receive(t, r.interrupts)
	turn.ends("interrupted", nil)
	r.stops(running, "cancelled")
	r.f.done(receive(t, r.submits).w, turnResult{AgentID: r.agent, Status: "idle"})
	if got, _ := r.answerTo(load); rawField(got, "result") == nil {
		t.Errorf("answered %s", got)
	}
}

// TestACPCancelWhileAnswered: a cancel that came while a command of ours was
// being told was answered at once, and the rest of the text came behind it.
func TestACPCancelWhileAnswered(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	telling, goOn := make(chan bool), make(chan bool)
	r.s.enc = newACPEncoder(acpEncoding{Cwd: "/work", Send: func(update []byte) bool {
		telling <- true
		<-goOn
		return r.s.send(update)
	}})
	id := r.prompt("/status")
	receive(t, telling)
	r.cancelRequest(id)
	r.nothing()
	close(goOn)
	want(t, kindsOf(r.stops(id, "cancelled")), agentChunk)
	r.nothing()
}

// TestACPImages: a model that takes none has them refused, and what comes behind
// keeps its place.
func TestACPImages(t *testing.T) {
	r := newOpenRig(t, `{}`, func(r *acpFrontRig, _ *acpOptions) {
		r.models = `{"data":[{"id":"m1","model":"m1","isDefault":true,"inputModalities":["text"]}]}`
	})
	picture := r.start("session/prompt", r.of(`,"prompt":[{"type":"image","data":"aGk=","mimeType":"image/png"}]`))
	words := r.prompt("words")
	r.fails(picture, codeInvalidParams, "m1 takes no images")
	r.begun("t1").ends("completed", nil)
	r.stops(words, "end_turn")
}

// said is a message that is whole.
func said(kind, id, text string) *event {
	content := []any{map[string]any{"type": "text", "text": text}}
	raw := toJSON(map[string]any{"item": map[string]any{"id": id, "type": kind, "text": text, "content": content}})
	return &event{kind: evItem, item: id, phase: "completed", body: &itemBody{kind: kind, text: text}, raw: raw}
}

// TestACPMailTurn: a turn that mail began shows first what the agent was sent,
// and has its calls closed, though nobody is answered.
func TestACPMailTurn(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	turn := r.turn(r.agent, 0, "m1")
	for _, phase := range []string{"started", "completed"} {
		mail := said("userMessage", "u1", "mail for you")
		mail.phase = phase
		turn.is(mail)
	}
	turn.says("thanks")
	turn.runs("c1")
	queued := r.prompt("user")
	sub := receive(t, r.submits)
	turn.is(&event{kind: evEnded, status: "completed"})
	r.plays(sub, "t2").ends("completed", nil)
	told := strings.ReplaceAll(kindsOf(r.stops(queued, "end_turn")), "session_info_update ", "")
	want(t, told, "user_message_chunk agent_message_chunk tool_call tool_call_update tool_call_update")
	// session/cancel stops such a turn, too.
	turn.turn = "m2"
	turn.is(&event{kind: evStarted})
	r.cancel()
	i := receive(t, r.interrupts)
	want(t, i.agent+" "+i.turn, r.agent+" ")
}

// TestACPStalledClient: a client that doesn't read has its prompt failed with the
// reason once its budget is used up; the turn goes on unseen, and the next one is
// shown again.
func TestACPStalledClient(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	stalled := make(chan struct{})
	r.f.p.out.mu.Lock() // nothing leaves while the test holds the writer
	w := r.f.p.out.w
	r.f.p.out.w = writerFunc(func(b []byte) (int, error) { <-stalled; return w.Write(b) })
	r.f.p.out.mu.Unlock()
	id := r.prompt("run")
	turn := r.begun("t1")
	turn.runs("c1")
	chunk := strings.Repeat("x", 64<<10)
	for range 20 << 4 { // 20 MiB
		turn.says(chunk)
	}
	if waits := r.f.p.queued(); waits > acpBudget+4*len(chunk) {
		t.Errorf("%d bytes wait", waits)
	}
	next := r.prompt("next") // waits for the turn
	sub := receive(t, r.submits)
	close(stalled)
	before := r.fails(id, codeInternal, "session/load")
	want(t, callStatus("codex:T:t1:c1", before...), callFailed)
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

// pastTurn adds a turn to what is told of the past.
func (r *acpFrontRig) pastTurn(turn string, items ...*event) {
	for _, e := range append(append([]*event{{kind: evStarted}}, items...), &event{kind: evEnded, status: "completed"}) {
		e.thread, e.turn = "T", turn
		r.past = append(r.past, e)
	}
}

// newLoadRig is a client that has started to load a session, which the hub has not
// opened yet.
func newLoadRig(t *testing.T, change func(r *acpFrontRig)) (r *acpFrontRig, id string, sub submitted) {
	t.Helper()
	r = newACPFrontRig(t, nil)
	r.keeps("sess_1", "codex:old")
	r.session, r.agent = "sess_1", "codex:old"
	change(r)
	r.hello(`{}`)
	id = r.reopen("load", "sess_1")
	return r, id, receive(t, r.submits)
}

// TestACPLoadUnderAFlood: a turn of mail's that told more than is kept while its
// session was loaded took the list of commands with it.
func TestACPLoadUnderAFlood(t *testing.T) {
	r, id, sub := newLoadRig(t, func(*acpFrontRig) {})
	turn := r.turn(r.agent, 0, "t1")
	turn.says(strings.Repeat("x", replayRoom))
	turn.says("dropped")
	r.f.done(sub.w, turnResult{})
	r.answerTo(id)
	want(t, updateKind(r.next())+" "+updateKind(r.next()), agentChunk+" available_commands_update")
	turn.is(&event{kind: evEnded, status: "completed"})
	r.prompt("next")
	next := r.begun("t2")
	next.says("shown")
	if told := r.told(); len(told) != 1 || updateText(told[0]) != "shown" {
		t.Errorf("told %.300s", told)
	}
	next.ends("completed", nil)
}

// TestACPLoadBesideAMailTurn: a turn that mail wakes while its session is loaded
// stands in the history already, and is told as it runs alone.
func TestACPLoadBesideAMailTurn(t *testing.T) {
	r, id, sub := newLoadRig(t, func(r *acpFrontRig) {
		r.pastTurn("t0", said("agentMessage", "a", "past t0"))
		r.pastTurn("t1", said("agentMessage", "a", "past t1"))
	})
	turn := r.turn(r.agent, 0, "t1")
	turn.says("live t1")
	r.f.done(sub.w, turnResult{})
	if _, before := r.answerTo(id); len(before) != 1 || updateText(before[0]) != "past t0" {
		t.Errorf("told %s before the answer", before)
	}
	want(t, updateText(r.next()), "live t1")
	turn.is(&event{kind: evEnded, status: "completed"})
}

// TestACPLoadReplays: the past comes before the answer, in order, at the client's
// pace; a prompt that was sent behind the load waits for it.
func TestACPLoadReplays(t *testing.T) {
	const turns = 200
	most := 0
	r, id, sub := newLoadRig(t, func(r *acpFrontRig) {
		for n := range turns {
			answer := fmt.Sprint(n, strings.Repeat(" x", 32<<10))
			r.pastTurn(fmt.Sprint("t", n), said("userMessage", "u", "ask"), said("agentMessage", "a", answer))
		}
		r.replayed = func() { most = max(most, r.f.p.queued()) }
	})
	if sub.req.ref != "codex:old" || sub.req.run || sub.req.mode != modeRevive || sub.req.cwd != "/work" {
		t.Errorf("opened with %+v", sub.req)
	}
	r.prompt("behind it")
	r.f.done(sub.w, turnResult{})
	got, before := r.answerTo(id)
	want(t, stringField(got, "result", "sessionId"), "sess_1")
	if most > replayRoom+256<<10 {
		t.Errorf("%d bytes of the past waited", most)
	}
	if len(before) != 2*turns {
		t.Fatalf("%d updates, want %d", len(before), 2*turns)
	}
	for n, rec := range before {
		told := updateKind(rec) + " " + updateText(rec)
		if n%2 == 0 && told != userChunk+" ask" || n%2 == 1 && !strings.HasPrefix(told, fmt.Sprint(agentChunk, " ", n/2, " x")) {
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
	r := newOpenRig(t, `{}`, nil)
	r.keeps(r.session, r.agent)
	running := r.prompt("run")
	turn := r.begun("t1")
	id := r.reopen("resume", r.session)
	r.told() // the load was taken
	none(t, "opened", r.submits)
	turn.ends("completed", nil)
	r.stops(running, "end_turn")
	behind := r.prompt("behind the load")
	r.told()
	r.f.done(receive(t, r.submits).w, turnResult{err: proxyError(codeInvalidSession, "cwd /work is gone")})
	r.fails(behind, codeSessionNotFound)
	r.fails(id, codeInvalidParams, "cwd /work is gone")
	r.runsTurn("the one before is still there", "t2")
}

func TestACPClose(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	running, queued := r.prompt("run"), r.prompt("wait")
	turn := r.begun("t1")
	receive(t, r.submits)
	id := r.start("session/close", r.of(""))
	r.stops(queued, "cancelled")
	receive(t, r.interrupts)
	none(t, "left", r.leaves)
	turn.ends("interrupted", nil)
	r.stops(running, "cancelled")
	want(t, receive(t, r.leaves), r.agent)
	r.does(id)
	r.fails(r.prompt("x"), codeSessionNotFound)
	r.keeps("sess_2", "codex:two") // one that isn't open
	r.does(r.start("session/close", `{"sessionId":"sess_2"}`))
	want(t, receive(t, r.leaves), "codex:two")
}

// TestACPHolds: a prompt waits while the client's MCP servers start, and for a choice
// that was sent before it.
func TestACPHolds(t *testing.T) {
	var tuned func(sessionSettings, *rpcError)
	asked := make(chan bool, 1)
	r := newACPFrontRig(t, func(r *acpFrontRig, o *acpOptions) {
		o.retune = func(_ string, _ settingsChange, done func(sessionSettings, *rpcError)) { tuned = done; asked <- true }
	})
	r.hello(`{}`)
	id := r.start("session/new", `{"cwd":"/work","mcpServers":[{"name":"s1","command":"/bin/s","args":[],"env":[]}]}`)
	sub := receive(t, r.submits)
	hasWords(t, string(sub.req.servers), "/bin/s")
	r.f.done(sub.w, turnResult{})
	got, _ := r.answerTo(id)
	r.session = stringField(got, "result", "sessionId")
	held := r.prompt("held")
	cancelled := r.prompt("cancelled while held")
	r.cancelRequest(cancelled)
	r.stops(cancelled, "cancelled")
	a := agentRef{AgentID: sub.req.agentID, Thread: "T"}
	r.f.event(a, 0, &event{kind: evServer, item: "s1", status: "starting", thread: "T"})
	r.nothing()
	r.f.event(a, 0, &event{kind: evServer, item: "s1", status: "ready", thread: "T"})
	r.begun("t1").ends("completed", nil)
	r.stops(held, "end_turn")

	choice := r.start("session/set_mode", r.of(`,"modeId":"auto"`))
	behind := r.prompt("behind it")
	receive(t, asked)
	r.nothing()
	tuned(sessionSettings{Sandbox: sandboxWrite, Approval: "never"}, nil)
	r.does(choice)
	r.begun("t2").ends("completed", nil)
	r.stops(behind, "end_turn")
}

// TestACPCodexDies: a prompt that only waited behind the turn that Codex died of goes
// to the hub once more; the one whose turn ran fails with the reason.
func TestACPCodexDies(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	ran, waited := r.prompt("run"), r.prompt("wait")
	turn := r.begun("t1")
	turn.runs("c1")
	behind := receive(t, r.submits)
	dead := turnResult{err: deathError(&childDeath{Reason: "exit code 3"}, true)}
	r.f.event(turn.a, turn.w, &event{kind: evGone})
	r.f.done(behind.w, dead)
	r.f.done(turn.w, dead)
	r.fails(ran, codeInternal, "exit code 3")
	again := receive(t, r.submits)
	want(t, again.req.prompt, "wait")
	r.f.done(again.w, dead) // but not a third time
	r.fails(waited, codeInternal, "exit code 3")
	r.nothing()
}
