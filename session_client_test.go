package main

// session_client_test.go holds what the hub does for a client with sessions of its own names (ACP), in the world of
// session_world_test.go but with a front that only notes what it is told. Restarts are real ones: another hub over the
// same files, and another child.

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// clientWorld is a client with sessions of its own.
type clientWorld struct {
	*world
	cfg   *config
	hub   *hub
	end   func()
	cwd   string
	notes *clientNotes
}

// clientNotes is a front that notes what it is told.
type clientNotes struct {
	mu     sync.Mutex // guards the fields below
	last   waiterID
	waits  map[waiterID]chan turnResult
	events []event
	asked  []approval
}

func (n *clientNotes) event(_ agentRef, _ waiterID, e *event) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, *e)
	return true
}

func (n *clientNotes) ask(_ agentRef, _ waiterID, q approval) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, q)
	return true
}

func (n *clientNotes) askGone(agentRef, string, string) {}

func (n *clientNotes) done(w waiterID, r turnResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits[w] <- r // twice: it has room for one, so a second answer is a deadlock that synctest reports
}

func (n *clientNotes) waiter() (waiterID, chan turnResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	n.waits[n.last] = make(chan turnResult, 1)
	return n.last, n.waits[n.last]
}

// inClientWorld runs f in such a world. Its sessions are in a repository.
func inClientWorld(t *testing.T, settings map[string]string, f func(w *clientWorld)) {
	t.Helper()
	inWorld(t, settings, noElicitation, func(inner *world) {
		w := &clientWorld{world: inner, cfg: inner.hub.cfg, cwd: filepath.Join(filepath.Dir(inner.log), "repo"),
			notes: &clientNotes{waits: map[waiterID]chan turnResult{}}}
		for _, dir := range []string{"objects", "refs"} { // what makes it a repository
			if err := os.MkdirAll(filepath.Join(w.cwd, ".git", dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(w.cwd, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.cfg.restartChild, w.cfg.noSummaries = true, true
		w.start()
		defer func() { w.end() }()
		f(w)
	})
}

func (w *clientWorld) start() {
	h, audit := newProxyHub(w.cfg, slog.New(slog.DiscardHandler), nil)
	h.child.spawn = spawnMock
	h.mail.newWatcher = func() (*watcher, error) { return nil, errNoWatch }
	h.front = w.notes
	h.start()
	w.hub = h
	w.end = func() {
		h.stop(time.Second)
		audit.close()
	}
}

// restart ends the process and starts another.
func (w *clientWorld) restart() {
	w.end()
	w.start()
}

// submit asks for a turn of the session, as an editor does: with all it knows.
func (w *clientWorld) submit(req turnRequest) (waiterID, chan turnResult) {
	id, got := w.notes.waiter()
	w.hub.submit(req, id)
	return id, got
}

// birth is the request of session/new, and the id that the client gets for it.
func (w *clientWorld) birth(session string) turnRequest {
	return turnRequest{mode: modeNew, agentID: w.hub.reg.newAgentID(), cwd: w.cwd, approvals: "client", client: &clientBirth{session: session}}
}

// again makes of that the request of a prompt, or of session/load without one.
func again(born turnRequest, prompt string) turnRequest {
	born.mode, born.ref, born.agentID, born.prompt, born.run = modeRevive, born.agentID, "", prompt, prompt != ""
	return born
}

// good waits for a result that is none of ours errors.
func (w *clientWorld) good(req turnRequest) turnResult {
	w.t.Helper()
	_, got := w.submit(req)
	r := <-got
	if r.err != nil {
		w.t.Fatalf("error %d: %s", r.err.Code, r.err.Message)
	}
	return r
}

func (w *clientWorld) bad(req turnRequest, code int, words string) {
	w.t.Helper()
	_, got := w.submit(req)
	if r := <-got; r.err == nil || r.err.Code != code || !strings.Contains(r.err.Message, words) {
		w.t.Fatalf("got %+v, want error %d with %q", r, code, words)
	}
}

// says waits for an answer.
func (w *clientWorld) says(req turnRequest, want string) {
	w.t.Helper()
	if r := w.good(req); r.Content != want || len(r.Notes) > 0 {
		w.t.Fatalf("got %q with notes %q, want %q", r.Content, r.Notes, want)
	}
}

// params is what the child was sent by a method, newest last.
func (w *clientWorld) params(method string) []json.RawMessage {
	w.t.Helper()
	synctest.Wait()
	data, err := os.ReadFile(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []json.RawMessage
	for line := range strings.Lines(string(data)) {
		if stringField(json.RawMessage(line), "method") == method {
			out = append(out, rawField(json.RawMessage(line), "params"))
		}
	}
	return out
}

// lastOf is the newest of them.
func (w *clientWorld) lastOf(method string) json.RawMessage {
	w.t.Helper()
	all := w.params(method)
	if len(all) == 0 {
		w.t.Fatalf("the child was sent no %s", method)
	}
	return all[len(all)-1]
}

// A session that was never prompted is there after a restart, without a word of
// a past that there was none of; and its first prompt isn't told of a change.
func TestWorldClientNeverPrompted(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		born.client.roots = []string{"/elsewhere"}
		if r := w.good(born); r.AgentID != born.agentID || r.Status != statusIdle || len(r.Notes) > 0 {
			t.Fatalf("born: %+v", r)
		}
		// A kill -9 now would lose nothing: the record is on disk as the answer is.
		if rec, err := w.hub.reg.load(born.agentID); err != nil || rec.ClientSession != "sess_1" || rec.Turns != 0 || rec.BackendID == "" {
			t.Fatalf("record %+v, %v", rec, err)
		}
		for range 2 {
			w.restart()
			cs, err := w.hub.clients.find("sess_1")
			if err != nil || cs.AgentID != born.agentID || cs.Cwd != w.cwd || !slices.Equal(cs.Roots, []string{"/elsewhere"}) || cs.Turns != 0 {
				t.Fatalf("after the restart: %+v, %v", cs, err)
			}
			if r := w.good(again(born, "")); r.AgentID != born.agentID || len(r.Notes) > 0 {
				t.Fatalf("loaded: %+v", r)
			}
		}
		w.says(again(born, "SAY hello"), "hello")
		if text := stringField(firstOfList(rawField(w.lastOf("turn/start"), "input")), "text"); text != "SAY hello" {
			t.Errorf("the first prompt was %q", text)
		}
		if _, err := w.hub.clients.find("sess_2"); err == nil || err.Code != codeSessionNotFound {
			t.Errorf("an unknown session: %v", err)
		}
	})
}

func firstOfList(raw json.RawMessage) (first json.RawMessage) {
	eachElement(raw, func(e json.RawMessage) {
		if first == nil {
			first = e
		}
	})
	return first
}

// A first turn that was cancelled, or a session/new, leaves what its client
// knows of and nothing else.
func TestWorldClientCancelled(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		id, _ := w.submit(again(born, "HANG"))
		synctest.Wait()
		w.hub.cancel(id)
		synctest.Wait()
		if got := w.hub.agents.view(born.agentID); got.Status != statusIdle || !got.Mine {
			t.Errorf("after its first turn was cancelled the session is %q", got.Status)
		}
		w.says(again(born, "SAY hello"), "hello")

		other := w.birth("sess_2")
		id, _ = w.submit(other)
		w.hub.cancel(id)
		synctest.Wait()
		if rec, err := w.hub.reg.load(other.agentID); err == nil {
			t.Errorf("a session that nobody was told of has a record: %+v", rec)
		}
		if n := w.hub.status().Sessions; n != 1 {
			t.Errorf("%d sessions are open, want 1", n)
		}
	})
}

// Room is made by parking the client's idle sessions too; they come back by
// their next prompt, also those that were never prompted.
func TestWorldClientParked(t *testing.T) {
	inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(w *clientWorld) {
		t := w.t
		first, second := w.birth("sess_1"), w.birth("sess_2")
		w.good(first)
		w.good(second)
		if got := w.hub.agents.view(first.agentID).Status; got != statusParked {
			t.Fatalf("the first is %q, want parked", got)
		}
		w.says(again(first, "SAY one"), "one")
		w.says(again(second, "SAY two"), "two")
		w.says(again(first, "SAY three"), "three")
		all, err := w.hub.clients.list()
		if err != nil || len(all) != 2 || all[0].Session != "sess_1" || all[0].Turns != 2 || all[0].Status != statusIdle || all[1].Status != statusParked {
			t.Errorf("sessions %+v, %v", all, err)
		}
	})
}

// Left is closed without a summary, whatever it is doing, and free for others;
// the client may open it again.
func TestWorldClientLeaves(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		w.cfg.noSummaries = false // leaving asks for none all the same
		born := w.birth("sess_1")
		w.good(born)
		w.says(again(born, "SAY hello"), "hello")
		_, running := w.submit(again(born, "HANG"))
		_, queued := w.submit(again(born, "SAY never"))
		synctest.Wait()
		leave := func() closeResult {
			done := make(chan closeResult, 1)
			w.hub.leave(born.agentID, func(r closeResult, err *rpcError) {
				if err != nil {
					t.Errorf("leaving: %s", err.Message)
				}
				done <- r
			})
			return <-done
		}
		began := time.Now()
		if r := leave(); r.Status != statusClosed || !r.Interrupted {
			t.Errorf("left: %+v", r)
		}
		about(t, "left", time.Since(began), 0)
		if r := <-running; r.TurnStatus != "interrupted" {
			t.Errorf("what ran: %+v", r)
		}
		if r := <-queued; r.err == nil || r.err.Code != codeSessionClosed {
			t.Errorf("what waited: %+v", r)
		}
		if n := len(w.params("turn/start")); n != 2 {
			t.Errorf("%d turns were started, want 2: no summary", n)
		}
		if r := leave(); !r.Already {
			t.Errorf("left again: %+v", r)
		}
		if rec, err := w.hub.reg.load(born.agentID); err != nil || rec.Status != statusClosed {
			t.Errorf("record %+v, %v", rec, err)
		}
		lock, err := w.hub.reg.acquire("codex", "")
		if err != nil {
			t.Fatalf("its name: %v", err)
		}
		lock.release()
		w.says(again(born, "SAY back"), "back")
	})
}

// As the process ends nobody is asked for a summary.
func TestWorldClientEndsWithoutSummary(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		born := w.birth("sess_1")
		w.good(born)
		w.says(again(born, "SAY hello"), "hello")
		w.restart()
		if n := len(w.params("turn/start")); n != 1 {
			w.t.Errorf("%d turns were started, want 1", n)
		}
	})
}

// A title is kept, wherever the session is.
func TestWorldClientTitle(t *testing.T) {
	inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			if cs, err := w.hub.clients.find("sess_1"); err != nil || cs.Title != want {
				t.Errorf("title %q, want %q: %v", cs.Title, want, err)
			}
		}
		w.hub.clients.setTitle(born.agentID, " Fix the tests ")
		check("Fix the tests")
		w.restart()
		check("Fix the tests")
		w.hub.clients.setTitle(born.agentID, "Closed "+strings.Repeat("ä", maxTitle))
		synctest.Wait()
		w.good(again(born, ""))
		if cs, _ := w.hub.clients.find("sess_1"); !strings.HasPrefix(cs.Title, "Closed ää") || len(cs.Title) > maxTitle {
			t.Errorf("title %q", cs.Title)
		}
	})
}

// The client's MCP servers and directories are the thread's whenever it is
// opened, and on no disk; the user's own servers stay.
func TestWorldClientServersAndRoots(t *testing.T) {
	inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`{"docs":{"command":"d","env":{"KEY":"secret"}}}`)
		born.client.roots = []string{"/elsewhere"}
		w.good(born)
		opened := func(method string) {
			t.Helper()
			if got := w.lastOf(method); stringField(got, "config", "mcp_servers", "docs", "env", "KEY") != "secret" {
				t.Errorf("%s: %s", method, got)
			}
		}
		opened("thread/start")
		w.says(again(born, "SAY one"), "one")
		if got := rawField(w.lastOf("turn/start"), "sandboxPolicy", "writableRoots"); string(got) != `["/elsewhere"]` {
			t.Errorf("writable roots %s", got)
		}
		w.good(w.birth("sess_2")) // parks it
		w.says(again(born, "SAY two"), "two")
		opened("thread/resume")
		w.restart()
		w.says(again(born, "SAY three"), "three")
		opened("thread/resume")
		err := filepath.WalkDir(w.cfg.sessionsRoot, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if data, _ := os.ReadFile(path); strings.Contains(string(data), "secret") {
					t.Errorf("%s has the server's key", path)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Loaded once more as it is, an open session stays as it is, also while it works;
// with other servers, directories or cwd it is opened anew, but not under a turn.
func TestWorldClientReshaped(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
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
		changed.client = &clientBirth{session: "sess_1", roots: []string{"/elsewhere"}}
		w.bad(changed, codeInvalidSession, "busy")
		if r := <-running; r.Content != "late" {
			t.Errorf("got %+v", r)
		}
		if n := len(w.params("thread/resume")); n != 0 {
			t.Errorf("opened anew %d times", n)
		}
		w.good(changed)
		sub := filepath.Join(w.cwd, "sub")
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		changed.cwd, changed.servers = sub, json.RawMessage(`{"docs":{"command":"d"}}`)
		w.good(changed)
		if n := len(w.params("thread/resume")); n != 2 {
			t.Errorf("opened anew %d times, want 2", n)
		}
		changed.prompt, changed.run = "SAY two", true
		w.says(changed, "two")
		turn, cs := w.lastOf("turn/start"), clientSession{}
		if stringField(turn, "cwd") != sub || string(rawField(turn, "sandboxPolicy", "writableRoots")) != `["/elsewhere"]` {
			t.Errorf("the turn ran with %s", turn)
		}
		if cs, _ = w.hub.clients.find("sess_1"); cs.Cwd != sub || !slices.Equal(cs.Roots, []string{"/elsewhere"}) {
			t.Errorf("kept: %+v", cs)
		}
	})
}

// Under a read-only ceiling no program of the client's runs, and it is told why.
func TestWorldClientServersUnderACeiling(t *testing.T) {
	inClientWorld(t, map[string]string{"readonly": "true"}, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`{"docs":{"command":"d"},"more":{"url":"u"}}`)
		r := w.good(born)
		if len(r.Notes) != 1 || r.Notes[0] != "MCP servers left out: docs, more (readonly in configuration allows read-only)" || serversRefused(w.cfg) == "" {
			t.Errorf("notes %q", r.Notes)
		}
		if got := w.lastOf("thread/start"); rawField(got, "config", "mcp_servers") != nil {
			t.Errorf("opened with %s", got)
		}
		if set := w.hub.clients.settings(born.agentID); len(set.Notes) != 1 {
			t.Errorf("settings %+v", set)
		}
	})
}

// What a mistake in the servers costs is the call, not the session.
func TestWorldClientBadServers(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`[1]`)
		w.bad(born, codeInvalidSession, "mcp_servers")
		if n := w.hub.status().Sessions; n != 0 {
			w.t.Errorf("%d sessions are open", n)
		}
		born.servers = nil
		w.good(born)
		w.bad(born, codeInvalidSession, "exists already")
	})
}

// The child's facts are to be had before any session, and its refusals are errors.
func TestWorldClientCatalog(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		if got, err := w.hub.child.catalog(t.Context(), "config", w.cwd); err != nil || rawField(got, "config") == nil {
			t.Errorf("config %s, %v", got, err)
		}
		if _, err := w.hub.child.catalog(t.Context(), "weather", ""); err == nil || !strings.Contains(err.Message, "weather") {
			t.Errorf("an unknown catalog: %v", err)
		}
		born := w.birth("sess_1")
		w.good(born)
		if err := w.hub.clients.history(t.Context(), born.agentID, func(*event) error { t.Error("an event of a past that there is none of"); return nil }); err != nil {
			t.Errorf("history: %s", err.Message)
		}
		if err := w.hub.clients.history(t.Context(), "codex:zzzzzzz", nil); err == nil || err.Code != codeSessionNotFound {
			t.Errorf("history of nobody: %v", err)
		}
	})
}

// Another process's session is refused, with who has it.
func TestWorldClientElsewhere(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		w.says(again(born, "SAY one"), "one")
		mine, end := w.hub, w.end
		w.start()
		defer func() { w.end(); w.hub, w.end = mine, end }()
		cs, err := w.hub.clients.find("sess_1")
		if err != nil || cs.AgentID != born.agentID {
			t.Fatalf("%+v, %v", cs, err)
		}
		w.bad(again(born, "SAY two"), codeIdentityConflict, "in use")
		done := make(chan *rpcError, 1)
		w.hub.clients.retune(born.agentID, settingsChange{Model: ptr("m")}, func(_ sessionSettings, err *rpcError) { done <- err })
		if err := <-done; err == nil || err.Code != codeIdentityConflict {
			t.Errorf("chosen for another's session: %v", err)
		}
		// One that it makes after we looked is found all the same.
		theirs := w.birth("sess_2")
		w.good(theirs)
		if cs, err := mine.clients.find("sess_2"); err != nil || cs.AgentID != theirs.agentID {
			t.Errorf("%+v, %v", cs, err)
		}
	})
}

// The past is told of a session that is open and of one that isn't; whatever
// tells it ends it.
func TestWorldClientHistory(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		w.says(again(born, "SAY one"), "one")
		w.says(again(born, "SAY two"), "two")
		past := func() string {
			var said []string
			if err := w.hub.clients.history(t.Context(), born.agentID, func(e *event) error {
				if e.kind == evItem && e.body != nil && e.body.kind == "agentMessage" {
					said = append(said, e.body.text)
				}
				return nil
			}); err != nil {
				t.Errorf("history: %s", err.Message)
			}
			return strings.Join(said, " ")
		}
		if got := past(); got != "one two" {
			t.Errorf("of an open session: %q", got)
		}
		w.restart()
		if got := past(); got != "one two" {
			t.Errorf("of one that isn't: %q", got)
		}
		n := 0
		err := w.hub.clients.history(t.Context(), born.agentID, func(*event) error { n++; return errNoReply })
		if err == nil || n != 1 || !strings.Contains(err.Message, errNoReply.Error()) {
			t.Errorf("%d events after an error, %v", n, err)
		}
		if _, err := w.hub.child.account(t.Context(), "logout", nil); err != nil {
			t.Errorf("logout: %s", err.Message)
		}
		if _, err := w.hub.child.account(t.Context(), "dance", nil); err == nil {
			t.Error("an unknown action was done")
		}
	})
}

// What a person says in parts reaches the child in their order, and mail stands in
// front of them.
func TestWorldClientParts(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		born := w.annOf()
		w.mail("ann", mailMessage{Text: "one"})
		w.after(polled)
		req := again(born, "look at this")
		req.parts = []promptPart{{kind: "image", url: "data:image/png;base64,AA=="}, {kind: "text", text: "look at this"}}
		w.good(req)
		var kinds []string
		eachElement(rawField(w.lastOf("turn/start"), "input"), func(part json.RawMessage) {
			kinds = append(kinds, stringField(part, "type"))
		})
		if got := strings.Join(kinds, " "); got != "text image text" || !strings.HasPrefix(w.input(), mailHead) {
			w.t.Errorf("parts %q, %q", got, w.input())
		}
		w.wantMail("[one]", "lead: one")
	})
}

// In front of an editor is a person: a permission waits as long as they take, and
// a silent turn as long as they let it, unless somebody set a limit. What waits is
// declined where the turn is cancelled or everything ends.
func TestWorldEditorHasTime(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		w.end()
		w.cfg.serveEditor()
		w.start()
		born := w.birth("sess_1")
		w.good(born)
		id, got := w.submit(again(born, "SHELLESC touch x\nHANG"))
		w.after(100 * time.Hour)
		v := w.hub.agents.view(born.agentID)
		if v.Identity != "editor" || len(v.Pending) != 1 || !w.hub.decide(v.Pending[0].ApprovalID, decider{who: byUser}, approve, nil) {
			t.Fatalf("after 100 hours: %+v", v)
		}
		w.after(100 * time.Hour)
		if v = w.hub.agents.view(born.agentID); v.Status != statusBusy || len(v.Pending) != 0 || len(got) != 0 {
			t.Fatalf("after 100 silent hours: %+v", v)
		}
		w.hub.cancel(id)
		w.after(time.Second)

		id, _ = w.submit(again(born, "SHELLESC touch y\nHANG"))
		w.after(time.Hour)
		w.hub.cancel(id)
		w.after(time.Second)
		if v = w.hub.agents.view(born.agentID); v.Status != statusIdle || len(v.Pending) != 0 {
			t.Fatalf("after the cancel: %+v", v)
		}
		_, got = w.submit(again(born, "SHELLESC touch z\nHANG"))
		synctest.Wait()
		w.restart()
		if r := <-got; r.TurnStatus != "interrupted" || len(r.Declined) != 1 {
			t.Errorf("at the end: %+v", r)
		}
	})
	inClientWorld(t, map[string]string{"request_timeout_secs": "60", "approval_timeout_secs": "300"}, func(w *clientWorld) {
		w.end()
		w.cfg.serveEditor()
		w.start()
		born := w.birth("sess_1")
		w.good(born)
		from := w.now()
		w.bad(again(born, "SHELLESC touch x\nHANG"), codeTimeout, "said nothing for 1m0s")
		about(w.t, "timed out", w.now()-from, 360*time.Second)
	})
}

func (w *clientWorld) retune(agent string, c settingsChange) sessionSettings {
	w.t.Helper()
	type answer struct {
		set sessionSettings
		err *rpcError
	}
	got := make(chan answer, 1)
	w.hub.clients.retune(agent, c, func(set sessionSettings, err *rpcError) { got <- answer{set, err} })
	a := <-got
	if a.err != nil {
		w.t.Fatalf("error %d: %s", a.err.Code, a.err.Message)
	}
	return a.set
}

func (w *clientWorld) dies(req turnRequest) turnResult {
	_, got := w.submit(req)
	return <-got
}

func sameSettings(a, b sessionSettings) bool {
	return string(toJSON(a)) == string(toJSON(b))
}

func ptr[T any](v T) *T { return &v }

// The choice of a model, an effort, a sandbox and an approval policy is what the
// next turn runs with, and every later one, also after a restart.
func TestWorldClientChooses(t *testing.T) {
	inClientWorld(t, map[string]string{"max_sandbox": "workspace-write"}, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		set := w.hub.clients.settings(born.agentID)
		want := sessionSettings{Model: "gpt-6.1-sol", Sandbox: sandboxWrite, Approval: "on-request", BaseSandbox: sandboxWrite, BaseApproval: "on-request", MaxSandbox: sandboxWrite}
		if set == nil || !sameSettings(*set, want) {
			t.Fatalf("settings %+v, want %+v", set, want)
		}
		gate := filepath.Join(t.TempDir(), "gate")
		_, running := w.submit(again(born, "GATE "+gate+"\nSAY ran"))
		synctest.Wait()
		model, effort, sandbox, never := "gpt-x", "high", sandboxRead, "never"
		got := w.retune(born.agentID, settingsChange{Model: &model, Effort: &effort, Sandbox: &sandbox, Approval: &never}) // while it runs
		want.Model, want.Effort, want.Sandbox, want.Approval = model, effort, sandbox, never
		if !sameSettings(got, want) || !sameSettings(*w.hub.clients.settings(born.agentID), want) {
			t.Errorf("chosen: %+v, want %+v", got, want)
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		<-running
		check := func(when string) {
			t.Helper()
			w.says(again(born, "SAY hello"), "hello")
			turn := w.lastOf("turn/start")
			if stringField(turn, "model") != model || stringField(turn, "effort") != effort || stringField(turn, "approvalPolicy") != never ||
				stringField(turn, "sandboxPolicy", "type") != "readOnly" {
				t.Errorf("%s the turn ran with %s", when, turn)
			}
		}
		check("after the choice")
		w.restart()
		check("after a restart")

		// The ceiling holds, and says so.
		danger := sandboxDanger
		if got := w.retune(born.agentID, settingsChange{Sandbox: &danger}); got.Sandbox != sandboxWrite || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "max_sandbox") {
			t.Errorf("past the ceiling: %+v", got)
		}
		for _, bad := range []settingsChange{{Sandbox: ptr("readOnly")}, {Approval: ptr("maybe")}, {Effort: ptr("very high")}, {Model: ptr("a\nb")}} {
			done := make(chan *rpcError, 1)
			w.hub.clients.retune(born.agentID, bad, func(_ sessionSettings, err *rpcError) { done <- err })
			if err := <-done; err == nil || err.Code != codeInvalidSession {
				t.Errorf("%+v was taken: %v", bad, err)
			}
		}
	})
}

// A prompt that comes right behind a choice runs with it, wherever the session
// is just then: the client needn't wait.
func TestWorldClientChoosesInOrder(t *testing.T) {
	inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		w.good(born)
		chosen := make(chan sessionSettings, 10)
		choose := func(model string) {
			w.hub.clients.retune(born.agentID, settingsChange{Model: &model}, func(set sessionSettings, err *rpcError) {
				if err != nil {
					t.Errorf("choosing %s: %s", model, err.Message)
				}
				chosen <- set
			})
		}
		runs := func(when, model string) {
			t.Helper()
			choose(model + "-before")
			choose(model)
			w.says(again(born, "SAY hello"), "hello")
			if got := stringField(w.lastOf("turn/start"), "model"); got != model {
				t.Errorf("%s: the turn ran with %q, want %q", when, got, model)
			}
			if first, second := <-chosen, <-chosen; first.Model != model+"-before" || second.Model != model {
				t.Errorf("%s: told %q and %q", when, first.Model, second.Model)
			}
		}
		runs("open", "m-1")
		w.good(w.birth("sess_2"))
		if got := w.hub.agents.view(born.agentID).Status; got != statusParked {
			t.Fatalf("it is %q, want parked", got)
		}
		runs("parked", "m-2")
		w.restart()
		runs("restarted", "m-3")

		// Taken back, it is what Codex chooses, not what the thread had last.
		none := ""
		if got := w.retune(born.agentID, settingsChange{Model: &none}); got.Model != "gpt-6.1-sol" {
			t.Errorf("taken back: %+v", got)
		}
	})
}

// A choice that a child's death meets is kept.
func TestWorldClientChoosesOverADeath(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born := w.birth("sess_1")
		born.servers = json.RawMessage(`{"docs":{"command":"d"}}`)
		w.good(born)
		w.says(again(born, "SAY hello"), "hello")
		if r := w.dies(again(born, "DIE 3")); r.err == nil || r.err.Code != codeChildDead {
			t.Fatalf("got %+v", r)
		}
		model := "gpt-x"
		w.retune(born.agentID, settingsChange{Model: &model})
		w.says(again(born, "SAY again"), "again")
		if got := stringField(w.lastOf("turn/start"), "model"); got != model {
			t.Errorf("the turn ran with %q", got)
		}
		opened := w.lastOf("thread/resume")
		if stringField(opened, "model") != model || stringField(opened, "config", "mcp_servers", "docs", "command") != "d" {
			t.Errorf("opened again with %s", opened)
		}
	})
}

// A choice for a session that is being opened is kept, also where it never opens.
func TestWorldClientChoosesWhileOpening(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		inClientWorld(t, map[string]string{"max_concurrent_threads": "1"}, func(w *clientWorld) {
			t := w.t
			born, other := w.birth("sess_1"), w.birth("sess_2")
			w.good(born)
			w.says(again(born, "SAY one"), "one")
			w.good(other)
			w.good(again(other, "DROP config/read\nSAY it holds up the next"))
			_, got := w.submit(again(born, "SAY two"))
			synctest.Wait()
			chosen := make(chan *rpcError, 1)
			w.hub.clients.retune(born.agentID, settingsChange{Model: ptr("gpt-x")}, func(_ sessionSettings, err *rpcError) { chosen <- err })
			synctest.Wait()
			if w.hub.clients.settings(born.agentID) != nil || len(chosen) != 0 {
				t.Fatal("the session is open: config/read was not dropped")
			}
			if leaves {
				left := make(chan *rpcError, 1)
				w.hub.leave(born.agentID, func(_ closeResult, err *rpcError) { left <- err })
				if err := <-left; err != nil {
					t.Errorf("leaving: %s", err.Message)
				}
			}
			if err := <-chosen; err != nil {
				t.Errorf("leaves %v: %s", leaves, err.Message)
			}
			if r := <-got; (r.err != nil) != leaves {
				t.Errorf("leaves %v: %+v", leaves, r)
			}
			if rec, err := w.hub.reg.load(born.agentID); err != nil || rec.Settings.Model != "gpt-x" || (rec.Status == statusClosed) != leaves {
				t.Errorf("leaves %v: %+v, %v", leaves, rec, err)
			}
			time.Sleep(catalogLimit) // the opening gives up, and its locks
			synctest.Wait()
			w.good(again(born, "SAY three"))
			if got := stringField(w.lastOf("turn/start"), "model"); got != "gpt-x" {
				t.Errorf("leaves %v: the next turn ran with %q", leaves, got)
			}
		})
	}
}

// Choices that the session's end meets are kept in their order, also where the older one was just being decided.
func TestWorldClientChoosesAtTheEnd(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		t := w.t
		born, other := w.birth("sess_1"), w.birth("sess_2")
		w.good(born)
		w.says(again(born, "SAY one"), "one")
		w.good(other)
		w.good(again(other, "DROP config/read\nSAY it holds up the first choice"))
		told := make(chan *rpcError, 2)
		for _, model := range []string{"older", "newer"} {
			w.hub.clients.retune(born.agentID, settingsChange{Model: &model}, func(_ sessionSettings, err *rpcError) { told <- err })
		}
		synctest.Wait()
		if len(told) != 0 {
			t.Fatal("a choice is made: config/read was not dropped")
		}
		left := make(chan *rpcError, 1)
		w.hub.leave(born.agentID, func(_ closeResult, err *rpcError) { left <- err })
		for _, err := range []*rpcError{<-left, <-told, <-told} {
			if err != nil {
				t.Error(err.Message)
			}
		}
		time.Sleep(catalogLimit) // what was being decided gives up
		synctest.Wait()
		if rec, err := w.hub.reg.load(born.agentID); err != nil || rec.Settings.Model != "newer" {
			t.Errorf("kept is %+v, %v", rec, err)
		}
		if len(told) != 0 {
			t.Error("a choice was answered twice")
		}
	})
}

// A session that was given its name while its editor had a team is loaded without one: nothing waits for a membership
// that it will not get, nor is it told of one.
func TestWorldClientNamedWithoutATeam(t *testing.T) {
	inClientWorld(t, nil, func(w *clientWorld) {
		born := w.birth("sess_1")
		born.identity = "ann"
		w.good(born)
		w.says(again(born, "SAY one"), "one")
		w.cfg.teamless = true
		w.restart()
		began := w.now()
		born.identity = ""
		if r := w.good(again(born, "")); len(r.Notes) > 0 {
			w.t.Errorf("told %q", r.Notes)
		}
		about(w.t, "answered", w.now()-began, 0)
	})
}
