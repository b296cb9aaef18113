package main

// session_client_test.go holds what the hub does for a client with sessions of its own names (ACP), in the world of
// session_world_test.go: what a session is born, loaded, left and reopened with, what its client chooses for it, and
// that all of it is there after a restart.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func ptr[T any](v T) *T { return &v }

// clientSession is what the client is told of a session of its.
func (w *clientWorld) clientSession(name string) clientSession {
	w.t.Helper()
	synctest.Wait()
	cs, err := w.hub.clients.find(name)
	if err != nil {
		w.t.Fatalf("%s: %s", name, err.Message)
	}
	return cs
}

// leave closes a session as its client leaves it.
func (w *clientWorld) leave(agent string) closeResult {
	w.t.Helper()
	done := make(chan closeResult, 1)
	w.hub.leave(agent, func(r closeResult, err *rpcError) {
		if err != nil {
			w.t.Errorf("leaving: %s", err.Message)
		}
		done <- r
	})
	return <-done
}

// A prompt that is to go into the running turn goes there where it may, and is a turn of its own in its place where it
// may not: never lost, never said twice, never under other settings than its own.
func TestWorldClientSteers(t *testing.T) {
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		s := w.born("sess_1", "SAY hello")
		type sent struct {
			id  waiterID
			got chan turnResult
		}
		post := func(prompt string, change func(*turnRequest)) sent {
			req := again(s, prompt)
			req.steer, req.orQueue, req.inOrder = true, true, true
			if change != nil {
				change(&req)
			}
			id, got := w.submit(req)
			return sent{id, got}
		}
		send := func(prompt string, change func(*turnRequest)) sent {
			c := post(prompt, change)
			synctest.Wait()
			return c
		}
		plain := func(r *turnRequest) { r.steer, r.orQueue = false, false }
		now := func(r *turnRequest) { r.inOrder = false }
		begun := 0
		order := func(want string, all ...sent) {
			t.Helper()
			texts := map[waiterID]string{}
			for _, c := range all {
				r := <-c.got
				if r.err != nil {
					r.Content = r.err.Message
				}
				texts[c.id] = r.Content
			}
			var said []string // as they were answered
			w.notes.mu.Lock()
			defer w.notes.mu.Unlock()
			for _, id := range w.notes.ended {
				if text, asked := texts[id]; asked {
					said = append(said, text)
				}
			}
			turns := w.sent("turn/start") - begun
			begun += turns
			w.is("answers and turns", fmt.Sprint(strings.Join(said, ", "), "; ", turns), want)
		}
		begun = w.sent("turn/start")

		// Two into one; what can't go in, and what comes behind that, keep their order; a request passes them.
		order("three, three, three; 1", send("HANG", nil), send("HANG", nil), send("SAY three", nil))
		first := send("HANG", nil)
		compacts := send("", func(r *turnRequest) { r.run, r.action, r.steer = true, actCompact, false })
		behind, passes := send("SAY behind", nil), send("SAY passed", now)
		order("passed, passed, , behind; 2", first, passes, compacts, behind)

		// A turn under other settings takes nothing in.
		running := send("SLOW 1000 slow", nil)
		w.retune(s.agentID, settingsChange{Sandbox: ptr(sandboxRead)})
		order("slow, narrow; 2", running, send("SAY narrow", nil))

		// What Codex refuses runs before what came behind it, in its order.
		order("armed; 1", send("REFUSE turn/steer\nREFUSE turn/steer\nSAY armed", plain))
		running = post("SLOW 1000 slow", nil)
		late, later := post("SAY late", nil), post("SAY later", nil)
		order("slow, late, later, last; 4", running, late, later, post("SAY last", plain))

		// One that is taken back leaves the turn to the others.
		running, gone := send("HANG", nil), send("HANG", nil)
		w.hub.cancel(gone.id)
		order("on, on; 1", running, send("SAY on", nil))

		// What nobody knows the fate of is told, and not said again; nothing overtakes it meanwhile.
		running = send("DROP turn/steer\nSLOW 1000 slow", nil)
		lost, queued := send("SAY lost", nil), send("SAY queued", plain)
		order("slow, REQUEST_TIMEOUT: whether the message reached the running turn is not known; agent_wait tells the "+
			"answer of the turn of "+s.agentID+", queued; 2", running, lost, queued)
	})
}

// retuned is what became of a choice.
type retuned struct {
	set sessionSettings
	err *rpcError
}

// choose makes a choice. Its outcome comes by the channel; a second one would be a deadlock.
func (w *clientWorld) choose(agent string, c settingsChange) chan retuned {
	got := make(chan retuned, 1)
	w.hub.clients.retune(agent, c, func(set sessionSettings, err *rpcError) { got <- retuned{set, err} })
	return got
}

// retune makes a choice that is taken.
func (w *clientWorld) retune(agent string, c settingsChange) sessionSettings {
	w.t.Helper()
	a := <-w.choose(agent, c)
	if a.err != nil {
		w.t.Fatalf("error %d: %s", a.err.Code, a.err.Message)
	}
	return a.set
}

// A session that was never prompted is there after a restart, without a word of a past that there was none of; and its
// first prompt isn't told of a change. A first turn that was cancelled, or a session/new, leaves what its client knows
// of and nothing else. As the process ends nobody is asked for a summary.
func TestWorldClientNeverPrompted(t *testing.T) {
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`[1]`) // a mistake in the servers costs the call, not the session
		w.bad(born, codeInvalidSession, "mcp_servers")
		w.is("open sessions", w.hub.status().Sessions, 0)
		born.servers = nil
		born.client.roots = []string{systemPath("/elsewhere")}
		if r := w.good(born); r.AgentID != born.agentID || r.Status != statusIdle || len(r.Notes) > 0 {
			t.Fatalf("born: %+v", r)
		}
		// A kill -9 now would lose nothing: the record is on disk as the answer is.
		if rec := w.record(born.agentID); rec.ClientSession != "sess_1" || rec.Turns != 0 || rec.BackendID == "" {
			t.Fatalf("record %+v", rec)
		}
		w.bad(born, codeInvalidSession, "exists already")
		for range 2 {
			w.restart()
			cs := w.clientSession("sess_1")
			if cs.AgentID != born.agentID || cs.Cwd != w.cwd || !slices.Equal(cs.Roots, born.client.roots) ||
				cs.Turns != 0 {
				t.Fatalf("after the restart: %+v", cs)
			}
			if r := w.good(again(born, "")); r.AgentID != born.agentID || len(r.Notes) > 0 {
				t.Fatalf("loaded: %+v", r)
			}
		}
		w.says(again(born, "SAY hello"), "hello")
		_, text := w.input()
		w.is("the first prompt", text, "SAY hello|")
		if _, err := w.hub.clients.find("sess_2"); err == nil || err.Code != codeSessionNotFound {
			t.Errorf("an unknown session: %v", err)
		}

		other := w.born("sess_3", "")
		id, _ := w.submit(again(other, "HANG"))
		synctest.Wait()
		w.hub.cancel(id)
		w.wantStatus(other.agentID, statusIdle)
		w.is("ours", w.view(other.agentID).Mine, true)
		w.says(again(other, "SAY hello"), "hello")
		untold := w.birth("sess_4")
		id, _ = w.submit(untold)
		w.hub.cancel(id)
		synctest.Wait()
		if rec, err := w.hub.reg.load(untold.agentID); err == nil {
			t.Errorf("a session that nobody was told of has a record: %+v", rec)
		}
		w.is("open sessions", w.hub.status().Sessions, 2)
		w.restart()
		w.is("turns, with no summary", w.sent("turn/start"), 3)
	})
}

// Room is made by parking the client's idle sessions too. They come back by their next prompt, also those that were
// never prompted, with the client's MCP servers and directories, which are the thread's whenever it is opened, and the
// servers on no disk. A title is kept, wherever the session is.
func TestWorldClientParked(t *testing.T) {
	inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(t *testing.T, w *clientWorld) {
		first := w.birth("sess_1")
		first.servers = json.RawMessage(`{"docs":{"command":"d","env":{"KEY":"secret"}}}`)
		first.client.roots = []string{systemPath("/elsewhere")}
		w.good(first)
		opened := func(method string) {
			t.Helper()
			key := stringField(w.lastSent(method), "config", "mcp_servers", "docs", "env", "KEY")
			w.is(method+" has the server's key", key, "secret")
		}
		opened("thread/start")
		second := w.born("sess_2", "")
		w.wantStatus(first.agentID, statusParked)
		w.says(again(first, "SAY one"), "one")
		opened("thread/resume")
		roots := string(rawField(w.lastSent("turn/start"), "sandboxPolicy", "writableRoots"))
		w.is("writable roots", roots, systemPaths(`["/elsewhere"]`))
		w.says(again(second, "SAY two"), "two")
		w.hub.clients.setTitle(first.agentID, " Fix the tests ")
		w.is("title", w.clientSession("sess_1").Title, "Fix the tests")
		w.says(again(first, "SAY three"), "three")
		all, err := w.hub.clients.list()
		if err != nil || len(all) != 2 || all[0].Session != "sess_1" || all[0].Turns != 2 ||
			all[0].Status != statusIdle ||
			all[1].Status != statusParked {
			t.Errorf("sessions %+v, %v", all, err)
		}
		w.hub.clients.setTitle(first.agentID, "Open")
		w.restart()
		w.is("title", w.clientSession("sess_1").Title, "Open")
		w.hub.clients.setTitle(first.agentID, "Closed "+strings.Repeat("ä", maxTitle))
		synctest.Wait()
		w.says(again(first, "SAY four"), "four")
		opened("thread/resume")
		if title := w.clientSession("sess_1").Title; !strings.HasPrefix(title, "Closed ää") || len(title) > maxTitle {
			t.Errorf("title %q", title)
		}
		wantNil(t, filepath.WalkDir(w.cfg.sessionsRoot, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.Contains(readText(t, path), "secret") {
				t.Errorf("%s has the server's key", path)
			}
			return err
		}))
	})
}

// Left is closed without a summary, whatever it is doing, and free for others; the client may open it again.
func TestWorldClientLeaves(t *testing.T) {
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		w.cfg.noSummaries = false // leaving asks for none all the same
		born := w.born("sess_1", "SAY hello")
		_, running := w.submit(again(born, "HANG"))
		_, queued := w.submit(again(born, "SAY never"))
		synctest.Wait()
		began := time.Now()
		if r := w.leave(born.agentID); r.Status != statusClosed || !r.Interrupted {
			t.Errorf("left: %+v", r)
		}
		about(t, "left", time.Since(began), 0)
		w.is("what ran", (<-running).TurnStatus, "interrupted")
		if r := <-queued; r.err == nil || r.err.Code != codeSessionClosed {
			t.Errorf("what waited: %+v", r)
		}
		w.is("turns, with no summary", w.sent("turn/start"), 2)
		w.is("left again", w.leave(born.agentID).Already, true)
		w.is("record", w.record(born.agentID).Status, statusClosed)
		lock, err := w.hub.reg.acquire("codex", "")
		if err != nil {
			t.Fatalf("its name: %v", err)
		}
		lock.release()
		w.says(again(born, "SAY back"), "back")
	})
}

// Loaded once more as it is, an open session stays as it is, also while it works; with other servers, directories or
// cwd it is opened anew, but not under a turn.
func TestWorldClientReshaped(t *testing.T) {
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`{}`)
		w.good(born)
		w.says(again(born, "SAY one"), "one")
		_, running := w.submit(again(born, "SLOW 60000 late"))
		synctest.Wait()
		w.good(again(born, "")) // at once
		none := again(born, "")
		none.servers = nil
		w.good(none)
		changed := again(born, "")
		changed.client = &clientBirth{session: "sess_1", roots: []string{systemPath("/elsewhere")}}
		w.bad(changed, codeInvalidSession, "busy")
		w.is("what ran", (<-running).Content, "late")
		w.is("opened anew", w.sent("thread/resume"), 0)
		w.good(changed)
		sub := filepath.Join(w.cwd, "sub")
		wantNil(t, os.Mkdir(sub, 0o700))
		changed.cwd, changed.servers = sub, json.RawMessage(`{"docs":{"command":"d"}}`)
		w.good(changed)
		w.is("opened anew", w.sent("thread/resume"), 2)
		changed.prompt, changed.run = "SAY two", true
		w.says(changed, "two")
		turn := w.lastSent("turn/start")
		w.is("cwd of the turn", stringField(turn, "cwd"), sub)
		w.is("its roots", string(rawField(turn, "sandboxPolicy", "writableRoots")), systemPaths(`["/elsewhere"]`))
		if cs := w.clientSession("sess_1"); cs.Cwd != sub || !slices.Equal(cs.Roots, []string{systemPath("/elsewhere")}) {
			t.Errorf("kept: %+v", cs)
		}
	})
}

// Under a read-only ceiling no program of the client's runs, nor what anybody approves, and the client is told why.
func TestWorldClientServersUnderACeiling(t *testing.T) {
	inClientWorld(t, map[string]string{"readonly": "true"}, func(t *testing.T, w *clientWorld) {
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`{"docs":{"command":"d"},"more":{"url":"u"}}`)
		r := w.good(born)
		w.is("notes", strings.Join(r.Notes, "|"),
			"MCP servers left out: docs, more (readonly in configuration allows read-only)")
		if got := w.lastSent("thread/start"); rawField(got, "config", "mcp_servers") != nil {
			t.Errorf("opened with %s", got)
		}
		if set := w.hub.clients.settings(born.agentID); len(set.Notes) != 1 || serversRefused(w.cfg) == "" {
			t.Errorf("settings %+v", set)
		}
		// An approved command leaves the sandbox: nobody is asked.
		r = w.good(again(born, "SHELLESC touch x\nSAY went on"))
		if len(r.Declined) != 1 || !strings.Contains(r.Declined[0].Reason, "whoever approves") {
			t.Errorf("declined: %+v", r.Declined)
		}
	})
}

// Another process's session is refused, with who has it.
func TestWorldClientElsewhere(t *testing.T) {
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		born := w.born("sess_1", "SAY hello")
		mine, end := w.hub, w.end
		w.start()
		defer func() {
			w.end()
			w.hub, w.end = mine, end
		}()
		w.is("agent", w.clientSession("sess_1").AgentID, born.agentID)
		w.bad(again(born, "SAY two"), codeIdentityConflict, "in use")
		if c := <-w.choose(born.agentID, settingsChange{Model: ptr("m")}); c.err == nil ||
			c.err.Code != codeIdentityConflict {
			t.Errorf("chosen for another's session: %v", c.err)
		}
		// One that it makes after we looked is found all the same.
		theirs := w.born("sess_2", "")
		if cs, err := mine.clients.find("sess_2"); err != nil || cs.AgentID != theirs.agentID {
			t.Errorf("%+v, %v", cs, err)
		}
	})
}

// The child's facts are to be had before any session, and its refusals are errors. The past is told of a session that
// is open and of one that isn't; whatever tells it ends it.
func TestWorldClientHistory(t *testing.T) {
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		if got, err := w.hub.child.catalog(t.Context(), "config", w.cwd); err != nil || rawField(got, "config") == nil {
			t.Errorf("config %s, %v", got, err)
		}
		if _, err := w.hub.child.catalog(t.Context(), "weather", ""); err == nil ||
			!strings.Contains(err.Message, "weather") {
			t.Errorf("an unknown catalog: %v", err)
		}
		born := w.born("sess_1", "")
		past := func(when, want string) {
			t.Helper()
			said := ""
			if err := w.hub.clients.history(t.Context(), born.agentID, func(e *event) error {
				if e.kind != evItem && want == "" {
					t.Errorf("%s an event of a past that there is none of: %v", when, e.kind)
				}
				if e.kind == evItem && e.body != nil && e.body.kind == "agentMessage" {
					said += e.body.text + " "
				}
				return nil
			}); err != nil {
				t.Errorf("history %s: %s", when, err.Message)
			}
			w.is(when, said, want)
		}
		past("before any turn", "")
		w.says(again(born, "SAY one"), "one")
		w.says(again(born, "SAY two"), "two")
		past("of an open session", "one two ")

		// A turn that begins just now may stand in the history before the front has heard of it: such a turn was told
		// twice, as past and as it ran.
		gate, told := make(chan struct{}), make(chan bool, 100)
		w.hub.table.agent(born.agentID).box.do(func() { <-gate })
		go w.hub.clients.history(t.Context(), born.agentID, func(*event) error { told <- true; return nil })
		synctest.Wait()
		if len(told) > 0 {
			t.Error("the past was told before what came while it was read")
		}
		close(gate)
		<-told
		w.restart()
		past("of one that isn't", "one two ")
		n := 0
		err := w.hub.clients.history(t.Context(), born.agentID, func(*event) error { n++; return errNoReply })
		if err == nil || n != 1 || !strings.Contains(err.Message, errNoReply.Error()) {
			t.Errorf("%d events after an error, %v", n, err)
		}
		if err := w.hub.clients.history(t.Context(), "codex:zzzzzzz", nil); err == nil ||
			err.Code != codeSessionNotFound {
			t.Errorf("history of nobody: %v", err)
		}
		if _, err := w.hub.child.change(t.Context(), "logout", nil); err != nil {
			t.Errorf("logout: %s", err.Message)
		}
		if _, err := w.hub.child.change(t.Context(), "dance", nil); err == nil {
			t.Error("an unknown action was done")
		}
	})
}

// In front of an editor is a person: a permission waits as long as they take, and a silent turn as long as they let it,
// unless somebody set a limit. What waits is declined where the turn is cancelled or everything ends.
func TestWorldEditorHasTime(t *testing.T) {
	asEditor := func(w *clientWorld) turnRequest {
		w.end()
		w.cfg.serveEditor()
		w.start()
		return w.born("sess_1", "")
	}
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		born := asEditor(w)
		id, got := w.submit(again(born, "SHELLESC touch x\nHANG"))
		w.after(100 * time.Hour)
		v := w.view(born.agentID)
		yes := decider{who: byUser}
		if v.Identity != "editor" || len(v.Pending) != 1 {
			t.Fatalf("after 100 hours: %+v", v)
		}
		w.hub.decide(v.AgentID, v.Pending[0].ApprovalID, yes, approve, nil)
		w.after(100 * time.Hour)
		if v = w.view(born.agentID); v.Status != statusBusy || len(v.Pending) != 0 || len(got) != 0 {
			t.Fatalf("after 100 silent hours: %+v", v)
		}
		w.hub.cancel(id)
		w.after(time.Second)

		id, _ = w.submit(again(born, "SHELLESC touch y\nHANG"))
		w.after(time.Hour)
		w.hub.cancel(id)
		w.after(time.Second)
		if v = w.view(born.agentID); v.Status != statusIdle || len(v.Pending) != 0 {
			t.Fatalf("after the cancel: %+v", v)
		}
		_, got = w.submit(again(born, "SHELLESC touch z\nHANG"))
		synctest.Wait()
		w.restart()
		if r := <-got; r.TurnStatus != "interrupted" || len(r.Declined) != 1 {
			t.Errorf("at the end: %+v", r)
		}
	})
	limits := map[string]string{"request_timeout_secs": "60", "approval_timeout_secs": "300"}
	inClientWorld(t, limits, func(t *testing.T, w *clientWorld) {
		born := asEditor(w)
		from := w.now()
		w.bad(again(born, "SHELLESC touch x\nHANG"), codeTimeout, "said nothing for 1m0s")
		about(t, "timed out", w.now()-from, 360*time.Second)
	})
}

// The choice of a model, an effort, a sandbox and an approval policy is what the next turn runs with, and every later
// one, also after a restart and after the child's death.
func TestWorldClientChooses(t *testing.T) {
	inClientWorld(t, map[string]string{"max_sandbox": "workspace-write"}, func(t *testing.T, w *clientWorld) {
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`{"docs":{"command":"d"}}`)
		w.good(born)
		want := sessionSettings{Model: "gpt-6.1-sol", Sandbox: sandboxWrite, Approval: "on-request",
			BaseSandbox: sandboxWrite, BaseApproval: "on-request", MaxSandbox: sandboxWrite}
		w.is("settings", string(toJSON(w.hub.clients.settings(born.agentID))), string(toJSON(want)))
		gate, open := w.gate()
		_, running := w.submit(again(born, "GATE "+gate+"\nSAY ran"))
		synctest.Wait()
		want.Model, want.Effort, want.Sandbox, want.Approval = "gpt-x", "high", sandboxRead, "never"
		got := w.retune(born.agentID, settingsChange{Model: &want.Model, Effort: &want.Effort, Sandbox: &want.Sandbox,
			Approval: &want.Approval}) // while it runs
		w.is("told", string(toJSON(got)), string(toJSON(want)))
		w.is("chosen", string(toJSON(w.hub.clients.settings(born.agentID))), string(toJSON(want)))
		open()
		<-running
		runs := func(when string) {
			t.Helper()
			w.says(again(born, "SAY hello"), "hello")
			turn := w.lastSent("turn/start")
			if stringField(turn, "model") != want.Model || stringField(turn, "effort") != want.Effort ||
				stringField(turn, "approvalPolicy") != "never" ||
				stringField(turn, "sandboxPolicy", "type") != "readOnly" {
				t.Errorf("%s the turn ran with %s", when, turn)
			}
		}
		runs("after the choice")
		w.restart()
		runs("after a restart")

		// The ceiling holds, and says so.
		past := w.retune(born.agentID, settingsChange{Sandbox: ptr(sandboxDanger)})
		if past.Sandbox != sandboxWrite || len(past.Notes) != 1 || !strings.Contains(past.Notes[0], "max_sandbox") {
			t.Errorf("past the ceiling: %+v", past)
		}
		for _, bad := range []settingsChange{{Sandbox: ptr("readOnly")}, {Approval: ptr("maybe")},
			{Effort: ptr("very high")},
			{Model: ptr("a\nb")}} {
			if c := <-w.choose(born.agentID, bad); c.err == nil || c.err.Code != codeInvalidSession {
				t.Errorf("%+v was taken: %v", bad, c.err)
			}
		}

		w.bad(again(born, "DIE 3"), codeChildDead, "")
		want.Model = "gpt-y"
		w.retune(born.agentID, settingsChange{Model: &want.Model, Sandbox: &want.Sandbox})
		runs("after a death")
		opened := w.lastSent("thread/resume")
		w.is("opened again with the model", stringField(opened, "model"), want.Model)
		w.is("and the server", stringField(opened, "config", "mcp_servers", "docs", "command"), "d")
	})
}

// A session in plan mode is read-only whatever else was chosen for it and whoever sends it a turn, also after a
// restart. Another choice ends that, and so does a caller who asks for a sandbox. A thread that was never in plan mode
// is told nothing of modes, one that another program left in it that it is over.
func TestWorldClientPlans(t *testing.T) {
	inClientWorld(t, nil, func(t *testing.T, w *clientWorld) {
		born := w.born("sess_1", "SAY hello")
		hello := again(born, "SAY hello")
		runs := func(when string, req turnRequest, want string) {
			t.Helper()
			w.good(req)
			p := w.lastSent("turn/start")
			mode := rawField(p, "collaborationMode")
			w.is(when, strings.Join([]string{stringField(p, "sandboxPolicy", "type"), stringField(p, "approvalPolicy"),
				stringField(mode, "mode"), stringField(mode, "settings", "model"),
				string(rawField(mode, "settings", "reasoning_effort"))}, " "), want)
		}
		w.retune(born.agentID, settingsChange{Approval: ptr("never"), Effort: ptr("high"), Plan: ptr(false)})
		runs("never planned", hello, "workspaceWrite never   ")
		set := w.retune(born.agentID, settingsChange{Plan: ptr(true)})
		w.is("chosen", fmt.Sprint(set.Plan, " ", set.Sandbox, " ", set.Approval), "true read-only on-request")
		const planning = `readOnly on-request plan gpt-6.1-sol "high"`
		runs("planning", hello, planning)
		w.restart()
		reply := turnRequest{mode: modeReply, ref: born.agentID, run: true, prompt: "SAY look:\nPROPOSE # Do it"}
		runs("of another caller, after a restart", reply, planning)
		r := w.good(reply)
		w.is("its answer", r.Content+r.Sandbox, "look:\n\n# Do it\nread-only")

		w.retune(born.agentID, settingsChange{Plan: ptr(false)})
		const over = `workspaceWrite never default gpt-6.1-sol "high"`
		runs("left by a choice", hello, over)
		w.retune(born.agentID, settingsChange{Plan: ptr(true)})
		reply.mode, reply.options.Sandbox = modeRevive, sandboxWrite
		runs("left by a caller", reply, over)

		w.retune(born.agentID, settingsChange{Plan: ptr(true)})
		runs("planning again", hello, planning)
		w.end()
		file := filepath.Join(w.cfg.sessionsRoot, w.cfg.team, ".records", suffixOf(born.agentID)+".json")
		rec := readText(t, file)
		wantNil(t, os.WriteFile(file, []byte(strings.Replace(rec, `"collaboration":"plan"`, `"tag":""`, 1)), 0o600))
		w.start()
		runs("planning by another program", hello, over)
	})
}

// A prompt that comes right behind a choice runs with it, wherever the session is just then: the client needn't wait.
func TestWorldClientChoosesInOrder(t *testing.T) {
	inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(t *testing.T, w *clientWorld) {
		born := w.born("sess_1", "")
		runs := func(when, model string) {
			t.Helper()
			first := w.choose(born.agentID, settingsChange{Model: ptr(model + "-before")})
			second := w.choose(born.agentID, settingsChange{Model: &model})
			w.says(again(born, "SAY hello"), "hello")
			w.is(when+": the turn's model", stringField(w.lastSent("turn/start"), "model"), model)
			w.is(when+": told first", (<-first).set.Model, model+"-before")
			w.is(when+": told second", (<-second).set.Model, model)
		}
		runs("open", "m-1")
		w.born("sess_2", "")
		w.wantStatus(born.agentID, statusParked)
		runs("parked", "m-2")
		w.restart()
		runs("restarted", "m-3")

		// Taken back, it is what Codex chooses, not what the thread had last.
		w.is("taken back", w.retune(born.agentID, settingsChange{Model: ptr("")}).Model, "gpt-6.1-sol")
	})
}

// Choices that the opening or the end of a session meets are kept, in their order, also where the session never opens,
// and where the older one was just being decided. None is answered twice.
func TestWorldClientChoosesAtTheEdges(t *testing.T) {
	for _, c := range []struct{ opening, leaves bool }{{true, false}, {true, true}, {false, true}} {
		most := map[bool]string{true: "1", false: "10"}[c.opening] // 1: the other one parks it
		inClientWorld(t, map[string]string{"max_concurrent_threads": most}, func(t *testing.T, w *clientWorld) {
			born, other := w.born("sess_1", "SAY hello"), w.born("sess_2", "")
			w.good(again(other, "DROP config/read\nSAY it holds up what comes next"))
			var turn chan turnResult
			if c.opening {
				_, turn = w.submit(again(born, "SAY two"))
				synctest.Wait()
			}
			older := w.choose(born.agentID, settingsChange{Model: ptr("older")})
			newer := w.choose(born.agentID, settingsChange{Model: ptr("newer")})
			synctest.Wait()
			if len(older) != 0 || c.opening != (w.hub.clients.settings(born.agentID) == nil) {
				t.Fatalf("%+v: config/read was not dropped", c)
			}
			if c.leaves {
				w.leave(born.agentID)
			}
			for _, told := range []chan retuned{older, newer} {
				if a := <-told; a.err != nil {
					t.Errorf("%+v: %s", c, a.err.Message)
				}
			}
			if c.opening {
				if r := <-turn; (r.err != nil) != c.leaves {
					t.Errorf("%+v: %+v", c, r)
				}
			}
			kept := func() {
				t.Helper()
				if rec := w.record(born.agentID); rec.Settings.Model != "newer" ||
					(rec.Status == statusClosed) != c.leaves {
					t.Errorf("%+v: kept is %+v", c, rec)
				}
			}
			kept()
			w.after(catalogLimit) // what was being decided gives up, and an opening its locks
			kept()
			w.good(again(born, "SAY three"))
			w.is("the next turn's model", stringField(w.lastSent("turn/start"), "model"), "newer")
		})
	}
}
