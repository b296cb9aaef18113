package main

// codex_link.go owns the link to a Codex child that both drivers build on: the JSON-RPC connection from its start to
// its end, the sinks by which sessions hear of it, and the table of what it has asked and was not answered yet.
// codex_app.go and codex_mcp.go embed it. It must know no method of either dialect, and must never let a sink hear of
// the child's end before OnGone has.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"
)

// appClient is our name: what userAgent begins with, and originator upstream.
const appClient = "atm-agent-mcp"

// linkOptions say what to run and whom to tell of it.
type linkOptions struct {
	Path  string
	Args  []string // before the command's name
	Env   []string // as in exec.Cmd, and Dir too
	Dir   string
	Log   *slog.Logger // nil: nothing is logged
	Trace func(dir string, rec []byte)
	// OnGone is called once when the child has ended, before any evGone.
	OnGone func(*childDeath)
	// OnLimits hears what Codex says of one limit of the account, in either dialect; on the reading goroutine.
	OnLimits func(limit json.RawMessage)

	InitLimit time.Duration // each call of the handshake; 0: 30 s
}

// start runs one command of Codex. The error is a *childDeath, with Never set.
func (o linkOptions) start(command string, dieWithUs bool) (*child, error) {
	o.Args = append(slices.Clone(o.Args), command)
	return startChild(o, dieWithUs)
}

// childLink is the connection to one child.
type childLink struct {
	opts  linkOptions
	log   *slog.Logger
	child *child    // nil over bare pipes, in tests
	w     io.Closer // the child's stdin
	peer  *peer
	asks  askTable      // what waits for an answer: approvals, and calls of a session's own tools
	gone  chan struct{} // closed when every sink has heard of the end

	// answerOf is a decision in the child's words; of the command it may tell the answers and the reason. The driver
	// sets it before anything is read.
	answerOf func(q *openAsk, d decision, c command) any

	mu    sync.Mutex // guards the fields below, and those that a driver puts under it
	inf   backendInfo
	death *childDeath // how the child ended, nil while it lives
}

// newChildLink makes a link that doesn't read yet: see listen.
func newChildLink(kind string, w io.Closer, c *child, o linkOptions) *childLink {
	o.InitLimit = cmp.Or(o.InitLimit, 30*time.Second)
	l := &childLink{opts: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), child: c, w: w,
		gone: make(chan struct{}), inf: backendInfo{kind: kind}}
	if c != nil {
		l.inf.pid = c.pid
	}
	l.asks.prefix = fmt.Sprintf("ask-%d-", l.inf.pid)
	return l
}

// listen begins to read. Its goroutine ends at the stream's end, after tell, which is to tell every sink.
func (l *childLink) listen(r io.Reader, w io.Writer, o peerOptions, tell func(*childDeath)) {
	o.mode, o.trace, o.onWriteErr = framingNewline, l.opts.Trace, l.endDeafChild
	l.peer = newPeer(r, w, o)
	go func() {
		err := l.peer.run()
		death := streamEnd(l.child, err, l.log)
		l.mu.Lock()
		l.death = death
		l.mu.Unlock()
		if l.opts.OnGone != nil {
			l.opts.OnGone(death)
		}
		tell(death)
		l.peer.closeOut(0)
		close(l.gone)
	}()
}

// endDeafChild ends a child that no longer reads. The goroutine ends with the child.
func (l *childLink) endDeafChild(err error) {
	l.log.Debug("codex no longer reads", "error", err)
	_ = l.w.Close()
	if l.child != nil {
		go l.child.stop(time.Second)
	}
}

// ask calls and waits: for the handshake and for catalogs, never on the reading goroutine.
func (l *childLink) ask(ctx context.Context, method string, params any, limit time.Duration) (json.RawMessage, error) {
	type answer struct {
		res json.RawMessage
		err error
	}
	got := make(chan answer, 1)
	id := l.callChild("", method, params, limit, func(res json.RawMessage, err error) { got <- answer{res, err} })
	select {
	case ans := <-got:
		return ans.res, ans.err
	case <-ctx.Done():
		l.peer.abandon(id)
		return nil, ctx.Err()
	}
}

// callChild is the peer's call, and tells the log at debug how long the answer
// took. session is the client's own name for the session that it is for, "" for none.
func (l *childLink) callChild(session, method string, params any, limit time.Duration,
	done func(json.RawMessage, error)) int64 {
	if !l.log.Enabled(context.Background(), slog.LevelDebug) {
		return l.peer.call(method, params, limit, done)
	}
	began := time.Now()
	return l.peer.call(method, params, limit, func(res json.RawMessage, err error) {
		attrs := []any{"method", method}
		about, _ := params.(map[string]any)
		thread, _ := about["threadId"].(string)
		turn, _ := about["turnId"].(string)
		for _, a := range [][2]string{{"sessionId", session},
			{"thread", cmp.Or(thread, stringField(res, "thread", "id"))},
			{"turn", cmp.Or(turn, stringField(res, "turn", "id"))}} {
			if a[1] != "" {
				attrs = append(attrs, a[0], a[1])
			}
		}
		attrs = append(attrs, "failed", err != nil, "latency_ms", time.Since(began).Milliseconds())
		l.log.Debug("codex answered", attrs...)
		done(res, err)
	})
}

// failHandshake ends a child whose handshake failed with err, and is the reason why it never served.
func (l *childLink) failHandshake(ctx context.Context, err error) *childDeath {
	d := &childDeath{Never: true, Path: l.opts.Path}
	switch {
	case errors.Is(err, errPeerGone):
		<-l.gone
		*d = *l.dead()
		d.Never = true
	case errors.Is(err, errCallTimeout) || errors.Is(err, errNotSent):
		d.Reason = fmt.Sprintf("did not answer initialize within %v and was stopped", l.opts.InitLimit)
	case ctx.Err() != nil:
		d.Reason = "was stopped before it answered initialize: " + err.Error()
	default:
		d.Reason = "refused initialize: " + err.Error()
	}
	l.stop(time.Second)
	if l.child != nil {
		d.Stderr = l.child.tail.firstError()
	}
	return d
}

func (l *childLink) info() backendInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inf
}

// dead is how the child ended, nil while it lives.
func (l *childLink) dead() *childDeath {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.death
}

// stop ends the child and returns when every sink has heard of it.
func (l *childLink) stop(grace time.Duration) {
	if l.child != nil {
		l.child.stop(grace)
	} else {
		_ = l.w.Close()
	}
	<-l.gone
}

// refused tells that a command was not done, or if err is that of a call without an answer, that nobody knows.
func refused(op opID, thread string, err error) event {
	return event{kind: evRefused, op: op, thread: thread, must: true, unknown: err == errCallTimeout,
		err: callError(err)}
}

// goneEvent is the last event of a sink whose child has ended.
func goneEvent(op opID, thread string, death *childDeath) event {
	return event{kind: evGone, op: op, thread: thread, must: true,
		err: &backendError{Message: death.Error(), Death: death}}
}

// sink delivers to one session, in order and one event at a time, whoever puts: an
// event that comes while another is being delivered waits, and who put it goes on.
type sink struct {
	to func(event)

	mu     sync.Mutex // guards the fields below; not held while to runs
	held   bool       // the thread is not opened: events wait for release
	queue  []event    // what waits, behind what is just being delivered
	busy   bool       // somebody delivers
	closed bool       // the last event was put, or the sink was cut
}

// put delivers e. After putLast or cut it does nothing.
func (s *sink) put(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.queue = append(s.queue, e)
		s.deliverLocked()
	}
}

// putLast delivers e as the last event of all, and as the only one where the thread was never opened.
func (s *sink) putLast(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.held {
		s.held, s.queue = false, nil
	}
	s.closed, s.queue = true, append(s.queue, e)
	s.deliverLocked()
}

// release delivers e and then what waited for it.
func (s *sink) release(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.held, s.queue = false, slices.Insert(s.queue, 0, e)
		s.deliverLocked()
	}
}

func (s *sink) deliverLocked() {
	if s.held || s.busy {
		return
	}
	s.busy = true
	for i := 0; i < len(s.queue); i++ {
		e := s.queue[i]
		s.mu.Unlock()
		s.to(e)
		s.mu.Lock()
	}
	clear(s.queue)
	s.busy, s.queue = false, s.queue[:0]
	if cap(s.queue) > 64 {
		s.queue = nil // what a burst took is not kept
	}
}

// cut ends the sink without a word; an event that is just being delivered may still arrive.
func (s *sink) cut() {
	s.mu.Lock()
	s.closed, s.queue = true, nil
	s.mu.Unlock()
}

// openAsk is one request of the child that waits for its answer: an approval, or the call of a tool.
type openAsk struct {
	id     string            // ours, given by add
	reqIDs []json.RawMessage // of the child's requests for it, never empty: all get the same answer
	doubt  bool              // a request id came again with other words, which nobody was shown: no yes is passed on
	shown  approval          // as it was put before the session, but without id
	method string
	thread string
	turn   string
	params json.RawMessage
	rule   json.RawMessage // a permanent rule that Codex proposed, as it came; nil for none
	timer  *time.Timer     // answers in the session's place, nil where the session keeps the time
	given  any             // the answer that the same request was given before, nil for none; set by add
}

// approvalID is what the child calls the approval, "" where it has no word for it.
func (q *openAsk) approvalID() string {
	return cmp.Or(stringField(q.params, "approvalId"), q.shown.item)
}

// standsFor reports a request that q is the approval of.
func (q *openAsk) standsFor(reqID json.RawMessage) bool {
	return slices.ContainsFunc(q.reqIDs, func(id json.RawMessage) bool { return bytes.Equal(id, reqID) })
}

// passed is the decision that the child hears: no yes where it asked for more than anybody was shown.
func (q *openAsk) passed(d decision) decision {
	if q.doubt {
		return deny
	}
	return d
}

// decide gives the child the decision that a command holds: the first one counts.
func (l *childLink) decide(c command) {
	if q := l.asks.take(c.ask); q != nil {
		l.answer(q, l.answerOf(q, q.passed(c.decision), c))
	}
}

// declineAsks declines what is still asked in threads that nobody has any more.
func (l *childLink) declineAsks(threads ...string) {
	for _, q := range l.asks.takeEach(func(q *openAsk) bool { return slices.Contains(threads, q.thread) }) {
		l.answer(q, l.answerOf(q, deny, command{why: "the session was closed"}))
	}
}

// answer gives the child its answer, however often it asked.
func (l *childLink) answer(q *openAsk, result any) {
	l.asks.keepAnswer(q, result)
	for _, id := range q.reqIDs {
		l.peer.reply(id, result)
	}
}

// register takes in an approval that is about to be put. false: the child only asks
// again what waits, or what has its answer, which is given once more.
func (l *childLink) register(q *openAsk, a *approval) bool {
	if l.asks.add(q, a) {
		return true
	}
	l.log.Debug("codex asks again what it asked", "thread", q.thread, "turn", q.turn, "item", a.item)
	if q.given != nil {
		l.peer.reply(q.reqIDs[0], q.given)
	}
	return false
}

// An answeredAsk is what is kept of a request that has its answer: a client may decide
// before the child's second asking is read.
type answeredAsk struct {
	id     string   // the request's
	params [32]byte // their SHA-256
	result any
}

const maxAnswered = 16 // answered requests that are kept

// askTable holds the open requests of a child.
type askTable struct {
	prefix string // makes ids unique in this process over several children

	mu   sync.Mutex // guards the fields below
	next int        // number of the last id
	open map[string]*openAsk
	done []answeredAsk // oldest first
}

// keepAnswer keeps what a request was answered.
func (t *askTable) keepAnswer(q *openAsk, result any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range q.reqIDs {
		t.done = append(t.done, answeredAsk{string(id), sha256.Sum256(q.params), result})
	}
	t.done = t.done[max(0, len(t.done)-maxAnswered):]
}

// add registers a request under a new id, which it gives to a, the approval that is about to be put. false: the
// approval waits already, since the child has asked it twice. That is so under one request id, whatever is asked, and
// under one id of the approval, where a person would read the very same again: a command may ask for several things
// under its own id.
func (t *askTable) add(q *openAsk, a *approval) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.shown = *a
	for _, was := range t.done {
		if was.id == string(q.reqIDs[0]) && was.params == sha256.Sum256(q.params) {
			q.given = was.result
			return false
		}
	}
	for _, was := range t.open {
		same := reflect.DeepEqual(was.shown, q.shown)
		switch {
		case was.standsFor(q.reqIDs[0]):
			was.doubt = was.doubt || !same
			return false
		case same && was.approvalID() != "" && was.approvalID() == q.approvalID():
			was.reqIDs = append(was.reqIDs, q.reqIDs[0])
			return false
		}
	}
	t.next++
	q.id = t.prefix + strconv.Itoa(t.next)
	a.id = q.id
	if t.open == nil {
		t.open = map[string]*openAsk{}
	}
	t.open[q.id] = q
	return true
}

// take removes the ask, so that only the first answer counts; nil for none.
func (t *askTable) take(id string) *openAsk {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.open[id]
	if q != nil {
		t.removeLocked(q)
	}
	return q
}

func (t *askTable) removeLocked(q *openAsk) {
	delete(t.open, q.id)
	if q.timer != nil {
		q.timer.Stop()
	}
}

// withdraw forgets a request of the child, and returns the ask that this removes:
// nil where there is none, or another request asks the same.
func (t *askTable) withdraw(reqID json.RawMessage) *openAsk {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.open {
		if !q.standsFor(reqID) {
			continue
		}
		if len(q.reqIDs) == 1 {
			t.removeLocked(q)
			return q
		}
		q.reqIDs = slices.DeleteFunc(q.reqIDs, func(id json.RawMessage) bool { return bytes.Equal(id, reqID) })
		return nil
	}
	return nil
}

// takeTurn removes the approvals of a turn that is over. Before 0.148 nothing else tells that they are void. The calls
// of its tools stay: Codex takes no notice of their answers, and what was done was done.
func (t *askTable) takeTurn(thread, turn string) []*openAsk {
	return t.takeEach(func(q *openAsk) bool { return q.thread == thread && q.turn == turn && q.timer == nil })
}

// takeEach removes the asks that match.
func (t *askTable) takeEach(match func(*openAsk) bool) (taken []*openAsk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.open {
		if match(q) {
			t.removeLocked(q)
			taken = append(taken, q)
		}
	}
	return taken
}

// goneAsk tells that the child no longer wants an answer to q.
func goneAsk(q *openAsk) event {
	return event{kind: evAskGone, thread: q.thread, turn: q.turn, must: true,
		ask: &approval{id: q.id, thread: q.thread, turn: q.turn}}
}
