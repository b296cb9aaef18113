package main

// acp_frontrig_test.go owns the client that the tests of the ACP front speak
// with: pipes on both sides of a front, and a hub made of functions whose turns
// the test plays. To prove that something was not sent, a test asks for what is
// refused at once and reads up to that.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// acpFrontRig is one client of one front.
type acpFrontRig struct {
	t    *testing.T
	f    *acpFront
	in   *io.PipeWriter
	outR *io.PipeReader
	out  chan json.RawMessage // closed at the end of stdout; nil until reading is called
	run  chan error
	n    int
	end  func() // hangs up, shuts down and ends stdout

	submits    chan submitted
	cancels    chan cancelled
	interrupts chan acpInterrupted
	accounts   chan acpAccounted
	titles     chan string
	leaves     chan string
	backend    string
	account    string // of catalog "account"
	models     string
	known      map[string]clientSession
	past       func(ctx context.Context, each func(*event) error) *rpcError
	ready      chan struct{} // closed: catalog answers
}

type acpInterrupted struct {
	agent, turn string
	done        func(interruptResult, *rpcError)
}

type acpAccounted struct {
	action string
	params json.RawMessage
	answer chan acpAnswered
}

type acpAnswered struct {
	raw json.RawMessage
	e   *rpcError
}

// newACPFrontRig starts a front whose client has not said hello; change may be nil.
func newACPFrontRig(t *testing.T, change func(*acpFrontRig, *acpOptions)) *acpFrontRig {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	r := &acpFrontRig{t: t, in: inW, outR: outR, run: make(chan error, 1), submits: make(chan submitted, 100), cancels: make(chan cancelled, 100),
		interrupts: make(chan acpInterrupted, 100), accounts: make(chan acpAccounted, 10), titles: make(chan string, 100), leaves: make(chan string, 10),
		backend: "app-server", account: `{"account":{"type":"apiKey"},"requiresOpenaiAuth":true}`, models: `{"data":[]}`,
		known: map[string]clientSession{}, ready: make(chan struct{})}
	close(r.ready)
	o := acpOptions{R: inR, W: outW, Version: "1.2.3", Kept: true, Team: true, Env: func(string) string { return "" },
		submit: func(req turnRequest, w waiterID) { r.submits <- submitted{req, w} },
		cancel: func(w waiterID, detach bool) { r.cancels <- cancelled{w, detach} },
		decide: func(string, decider, decision, map[string][]string) bool { return true },
		interrupt: func(agent, turn string, done func(interruptResult, *rpcError)) {
			r.interrupts <- acpInterrupted{agent, turn, done}
		},
		status: func() statusView {
			return statusView{Team: "default", ChildAlive: true, Backend: r.backend, ChildPID: 7}
		},
		settings: func(string) *sessionSettings {
			return &sessionSettings{Model: "m1", Effort: "low", Sandbox: "workspace-write", Approval: "on-request", BaseSandbox: "workspace-write", BaseApproval: "on-request"}
		},
		retune: func(_ string, _ settingsChange, done func(sessionSettings, *rpcError)) {
			go done(sessionSettings{}, nil)
		},
		clientSessions: func() (all []clientSession, err error) {
			for _, s := range r.known {
				all = append(all, s)
			}
			return all, nil
		},
		clientSession: func(id string) (clientSession, *rpcError) {
			if s, ok := r.known[id]; ok {
				return s, nil
			}
			return clientSession{}, proxyError(codeSessionNotFound, "no such session")
		},
		setTitle: func(_, title string) { r.titles <- title },
		leave: func(agent string, done func(closeResult, *rpcError)) {
			r.leaves <- agent
			go done(closeResult{AgentID: agent, Status: "closed"}, nil)
		},
		history: func(ctx context.Context, _ string, each func(*event) error) *rpcError {
			if r.past == nil {
				return nil
			}
			return r.past(ctx, each)
		},
		catalog: func(ctx context.Context, what, _ string) (json.RawMessage, *rpcError) {
			select {
			case <-r.ready:
			case <-ctx.Done():
				return nil, proxyError(codeSessionClosed, "stopping")
			}
			switch what {
			case "account":
				return json.RawMessage(r.account), nil
			case "models":
				return json.RawMessage(r.models), nil
			}
			return json.RawMessage(`{"config":{"mcp_servers":{"mine":{}}}}`), nil
		},
		account: func(ctx context.Context, action string, params any) (json.RawMessage, *rpcError) {
			a := acpAccounted{action, toJSON(params), make(chan acpAnswered, 1)}
			r.accounts <- a
			select {
			case ans := <-a.answer:
				return ans.raw, ans.e
			case <-ctx.Done():
				return nil, proxyError(codeSessionClosed, "stopping")
			}
		},
	}
	agents := 0
	o.newAgentID = func() string { agents++; return fmt.Sprintf("codex:agent%d", agents) }
	if change != nil {
		change(r, &o)
	}
	r.f = newACPFront(o)
	go func() { r.run <- r.f.run() }()
	var once sync.Once
	r.end = func() {
		once.Do(func() {
			inW.Close()
			if err := <-r.run; err != nil {
				t.Errorf("run: %v", err)
			}
			r.reading()
			r.f.shutdown(time.Second)
			outW.Close()
		})
	}
	t.Cleanup(r.end)
	return r
}

// reading has the client read from now on.
func (r *acpFrontRig) reading() {
	if r.out != nil {
		return
	}
	out := make(chan json.RawMessage, 100000)
	r.out = out
	go func() {
		defer close(out)
		fr := newFrameReader(r.outR, maxRecord, framingNewline)
		for {
			rec, err := fr.read()
			if err != nil {
				return
			}
			out <- append(json.RawMessage(nil), rec...)
		}
	}()
}

func (r *acpFrontRig) send(rec string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, rec+"\n"); err != nil {
		r.t.Fatalf("writing to the front: %v", err)
	}
}

// start sends a request and returns its id.
func (r *acpFrontRig) start(method, params string) string {
	r.t.Helper()
	r.n++
	id := fmt.Sprint(r.n)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return id
}

func (r *acpFrontRig) notify(method, params string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
}

// next reads one record of the front.
func (r *acpFrontRig) next() json.RawMessage {
	r.t.Helper()
	r.reading()
	select {
	case rec, ok := <-r.out:
		if !ok {
			r.t.Fatal("stdout ended")
		}
		if !json.Valid(rec) {
			r.t.Fatalf("no JSON on stdout: %s", rec)
		}
		return rec
	case <-time.After(time.Minute):
		r.t.Fatal("nothing came for a minute")
	}
	return nil
}

// answerTo reads up to the answer to id, and returns it with what came before.
func (r *acpFrontRig) answerTo(id string) (answer json.RawMessage, before []json.RawMessage) {
	r.t.Helper()
	for {
		rec := r.next()
		if string(rawField(rec, "id")) == id && rawField(rec, "method") == nil {
			return rec, before
		}
		before = append(before, rec)
	}
}

// call asks and reads up to the answer.
func (r *acpFrontRig) call(method, params string) json.RawMessage {
	r.t.Helper()
	rec, _ := r.answerTo(r.start(method, params))
	return rec
}

// nothing fails if the front has sent anything but what is not of a turn.
func (r *acpFrontRig) nothing() {
	r.t.Helper()
	_, before := r.answerTo(r.start("session/nothing", "{}"))
	for _, rec := range before {
		r.t.Errorf("the front sent %s", rec)
	}
}

// hello does the handshake.
func (r *acpFrontRig) hello(capabilities string) {
	r.t.Helper()
	if got := r.call("initialize", `{"protocolVersion":1,"clientCapabilities":`+capabilities+`,"clientInfo":{"name":"rig","version":"1"}}`); rawField(got, "result") == nil {
		r.t.Fatalf("initialize: %s", got)
	}
}

// open makes a session.
func (r *acpFrontRig) open() (session, agent string) {
	r.t.Helper()
	id := r.start("session/new", `{"cwd":"/work","mcpServers":[]}`)
	sub := receive(r.t, r.submits)
	if sub.req.run || sub.req.mode != modeNew || sub.req.agentID == "" || sub.req.client == nil {
		r.t.Fatalf("opened with %+v", sub.req)
	}
	r.f.done(sub.w, turnResult{AgentID: sub.req.agentID, Status: "idle"})
	got, _ := r.answerTo(id)
	if session = stringField(got, "result", "sessionId"); session == "" || session != sub.req.client.session {
		r.t.Fatalf("session/new: %s", got)
	}
	for {
		if rec := r.next(); updateKind(rec) == "available_commands_update" {
			return session, sub.req.agentID
		}
	}
}

func updateKind(rec json.RawMessage) string {
	return stringField(rec, "params", "update", "sessionUpdate")
}

// prompt sends a text.
func (r *acpFrontRig) prompt(session, text string) string {
	r.t.Helper()
	return r.start("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}`, session, toJSON(text)))
}

// acpPlayed is a turn that the test plays.
type acpPlayed struct {
	r    *acpFrontRig
	a    agentRef
	w    waiterID
	turn string
}

// begun takes the next submit and plays its start.
func (r *acpFrontRig) begun(turn string) *acpPlayed {
	r.t.Helper()
	sub := receive(r.t, r.submits)
	t := &acpPlayed{r, agentRef{AgentID: sub.req.ref, Thread: "T"}, sub.w, turn}
	t.is(&event{kind: evStarted})
	return t
}

func (t *acpPlayed) is(e *event) {
	e.thread, e.turn = t.a.Thread, t.turn
	t.r.f.event(t.a, t.w, e)
}

// says plays a delta of the answer.
func (t *acpPlayed) says(text string) {
	t.is(&event{kind: evDelta, item: "i-" + t.turn, phase: "answer", text: text, method: "item/agentMessage/delta", raw: toJSON(map[string]string{"delta": text}), delta: toJSON(text)})
}

// runs plays the start of a command.
func (t *acpPlayed) runs(item string) {
	t.is(&event{kind: evItem, item: item, phase: "started", method: "item/started", body: &itemBody{kind: "commandExecution", command: "sleep 9", cwd: "/work", status: "inProgress"},
		raw: json.RawMessage(`{"item":{"type":"commandExecution","command":"sleep 9"}}`)})
}

// ends plays the end and the answer.
func (t *acpPlayed) ends(status string, err *backendError) {
	t.is(&event{kind: evEnded, status: status, err: err})
	res := turnResult{AgentID: t.a.AgentID, TurnID: t.turn, TurnStatus: status}
	if err != nil {
		res.Content = err.Message
	}
	t.r.f.done(t.w, res)
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came for a minute")
	}
	panic("unreachable")
}

// none fails if something is in the channel.
func none[T any](t *testing.T, what string, ch <-chan T) {
	t.Helper()
	select {
	case v := <-ch:
		t.Errorf("%s: %+v", what, v)
	default:
	}
}

// stopIs checks the stop reason of an answer.
func stopIs(t *testing.T, rec json.RawMessage, want string) {
	t.Helper()
	if got := stringField(rec, "result", "stopReason"); got != want {
		t.Errorf("answered %s, want stopReason %q", rec, want)
	}
}

// failsWith checks the code and the words of an error.
func failsWith(t *testing.T, rec json.RawMessage, code int, words ...string) {
	t.Helper()
	if got := string(rawField(rec, "error", "code")); got != fmt.Sprint(code) {
		t.Errorf("answered %s, want code %d", rec, code)
	}
	for _, w := range words {
		if msg := stringField(rec, "error", "message"); !strings.Contains(msg, w) {
			t.Errorf("message %q lacks %q", msg, w)
		}
	}
}
