package main

// wire_peer.go owns JSON-RPC with one other side: calls we made and wait for, replies, notifications, and the outgoing
// queue between everybody who writes to a stream and the one goroutine that does. wire_message.go has the messages.
// The fronts use it upward, the drivers downward, the mock on its own stdio; the log has a queue of its own.
// One goroutine reads (run), one writes; the reader never waits for the writer, nor for anybody it calls. Records leave
// in the order they came, so a response can't overtake the notifications before it. Putting never blocks; what may be
// dropped is dropped past the budget (FR-19.4), what may not is kept.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// Ways for a call to end without an answer from the other side.
var (
	errCallTimeout = errors.New("no answer in time")                     // was sent: the outcome is unknown
	errNotSent     = errors.New("not sent in time: too many open calls") // never left us
	errPeerGone    = errors.New("the other side is gone")
)

// call is one request of ours.
type call struct {
	id    int64
	rec   []byte // the finished record, until it is sent
	done  func(result json.RawMessage, err error)
	timer *time.Timer // ends the call without an answer; nil: it has no limit
	sent  bool        // it took one of the maxInFlight places
}

// peerOptions are fixed at birth.
type peerOptions struct {
	mode        framing                      // framingUnknown: detect and answer in kind
	noVersion   bool                         // leave "jsonrpc" out (towards app-server)
	strict      bool                         // upstream: bad JSON and non-messages are answered with an error
	nullID      bool                         // such an error has "id":null, as in JSON-RPC 2.0; else none, as in MCP
	maxInFlight int                          // calls open at once, 0 = no limit
	budget      int                          // bytes that may wait before records are dropped that may be
	quick       func(rec []byte) bool        // takes a record like one before it; false: it is handled; or nil
	handle      func(*message)               // a notification's message is valid during the call only
	trace       func(dir string, rec []byte) // nil unless frames are logged
	onWriteErr  func(error)                  // the other side no longer reads
}

// peer is one JSON-RPC connection. Everything but run may be called from any goroutine; nothing blocks.
type peer struct {
	peerOptions
	fr   *frameReader
	out  *outbox
	note message // owned by run: the last notification

	mu      sync.Mutex      // guards the fields below
	nextID  int64           // the id that was given to a call last
	open    map[int64]*call // the calls without an answer, sent or not
	waiting []*call         // those of them that are not sent yet, in order
	sentN   int             // how many of them are sent
	gone    error           // why later calls fail; nil while the other side is there
}

// newPeer starts the writing goroutine, which ends with closeOut. The owner calls run to read.
func newPeer(r io.Reader, w io.Writer, o peerOptions) *peer {
	if o.budget == 0 {
		o.budget = 16 << 20
	}
	p := &peer{peerOptions: o, fr: newFrameReader(r, maxRecord, o.mode), open: map[int64]*call{}}
	p.out = newOutbox(w, o.budget, o.onWriteErr)
	return p
}

// run reads until the stream ends, calling handle for every request and notification and the done func of every
// answered call, in the stream's order, on this goroutine. It returns io.EOF at a clean end. Open calls fail with
// errPeerGone before it returns.
func (p *peer) run() error {
	for {
		if p.fr.drained() {
			// Whoever was handed something goes first. A read of stdin would keep this thread from it until another one
			// was woken, which takes longer than a reply may.
			runtime.Gosched()
		}
		rec, err := p.fr.read()
		if err != nil {
			var long *recordTooLong
			switch {
			case errors.As(err, &long):
				p.refuse(headID(long.head), codeInvalidRequest, err.Error())
			case err == errBadHeader:
				p.refuse(nil, codeParse, err.Error())
			default:
				p.fail(errPeerGone)
				return err
			}
			continue
		}
		if p.trace != nil {
			p.trace("<", rec)
		}
		p.take(rec)
	}
}

// headID is the id of a request whose beginning is all there is, nil where it
// can't be told from that: an answer's id is none of theirs.
func headID(head []byte) (id json.RawMessage) {
	request := false
	for f := fieldsOf(head); f.next() && !f.bad; {
		switch k := rawKind(f.val); string(f.key) {
		case "id":
			if k == '"' || k == '0' {
				id = f.val
			}
		case "method":
			request = true
		}
	}
	if !request {
		return nil
	}
	return id
}

func (p *peer) take(rec []byte) {
	if p.quick != nil && p.quick(rec) {
		return
	}
	switch {
	case p.strict && validJSON(rec), !p.strict && utf8.Valid(rec):
	case !p.strict:
		rec = bytes.ToValidUTF8(rec, []byte("\uFFFD"))
	case utf8.Valid(rec):
		p.refuse(nil, codeParse, "Parse error: not valid JSON")
		return
	default:
		p.refuse(nil, codeParse, "Parse error: not valid UTF-8")
		return
	}
	if rawKind(rec) == '[' {
		// One answer to the whole array. Whoever sends a batch reads JSON-RPC 2.0, where the id of such an answer is
		// null.
		p.refuse(json.RawMessage("null"), codeInvalidRequest, "Invalid Request: batches are not served; send the "+
			"requests one by one, each as a record of its own")
		return
	}
	m, err := parseMessageAfter(p.note.method, rec)
	if err == nil && p.strict && !m.version {
		err = errors.New(`jsonrpc is not "2.0"`)
	}
	if err != nil {
		p.refuse(m.id, codeInvalidRequest, "Invalid Request: "+err.Error())
		return
	}
	if m.isResponse() {
		p.answered(&m)
		return
	}
	if !m.isRequest() {
		p.note = m
		p.handle(&p.note)
		p.note = message{method: m.method} // a large one must not wait here for the next
		return
	}
	req := m
	p.handle(&req)
}

// refuse answers what is no message, if the other side is to be told of that.
func (p *peer) refuse(id json.RawMessage, code int, what string) {
	if p.strict {
		p.replyError(id, &rpcError{Code: code, Message: what})
	}
}

func (p *peer) answered(m *message) {
	id, err := strconv.ParseInt(string(m.id), 10, 64)
	if err != nil {
		return // not an id of ours
	}
	c := p.retire(id)
	if c == nil {
		return // late: timed out before, nobody waits
	}
	if m.err != nil {
		c.done(nil, m.err)
		return
	}
	c.done(m.result, nil)
}

// call sends a request. done is called exactly once: with the answer (an error answer is an *rpcError) on the reading
// goroutine, or with errCallTimeout or errNotSent on a timer's, or with errPeerGone. It must not block. timeout 0 means
// none. The id can be given to abandon.
func (p *peer) call(method string, params any, timeout time.Duration, done func(json.RawMessage, error)) int64 {
	id := p.reserve()
	if !p.callAs(id, method, params, timeout, done) {
		return 0
	}
	return id
}

// reserve takes the id of a later callAs, for who must know it before the other side can say a word about the call.
func (p *peer) reserve() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextID++
	return p.nextID
}

// callAs is call under an id from reserve. false: the other side is gone.
func (p *peer) callAs(id int64, method string, params any, timeout time.Duration,
	done func(json.RawMessage, error)) bool {
	p.mu.Lock()
	if p.gone != nil {
		err := p.gone
		p.mu.Unlock()
		done(nil, err)
		return false
	}
	c := &call{id: id, done: done}
	c.rec = p.request(strconv.AppendInt(nil, c.id, 10), method, params)
	p.open[c.id] = c
	if timeout > 0 {
		c.timer = time.AfterFunc(timeout, func() { p.expire(c.id) })
	}
	if p.maxInFlight > 0 && p.sentN >= p.maxInFlight {
		p.waiting = append(p.waiting, c)
	} else {
		p.sendLocked(c)
	}
	p.mu.Unlock()
	return true
}

func (p *peer) sendLocked(c *call) {
	c.sent = true
	p.sentN++
	p.put(c.rec, keepAlways)
	c.rec = nil
}

func (p *peer) expire(id int64) {
	c := p.retire(id) // before looking whether it was sent: until then it may still be
	switch {
	case c == nil:
	case c.sent:
		c.done(nil, errCallTimeout)
	default:
		c.done(nil, errNotSent)
	}
}

// abandon forgets a call: its done is not called and its slot is free.
func (p *peer) abandon(id int64) { p.retire(id) }

// retire takes a call out and gives its slot to the next one waiting.
func (p *peer) retire(id int64) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[id]
	if c == nil {
		return nil
	}
	delete(p.open, id)
	if c.timer != nil {
		c.timer.Stop()
	}
	if !c.sent {
		p.waiting = slices.DeleteFunc(p.waiting, func(w *call) bool { return w == c })
		return c
	}
	p.sentN--
	for len(p.waiting) > 0 && p.sentN < p.maxInFlight {
		next := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.sendLocked(next)
	}
	return c
}

// fail ends every open call with err; later calls fail at once.
func (p *peer) fail(err error) {
	p.mu.Lock()
	if p.gone == nil {
		p.gone = err
	}
	calls := p.open
	p.open, p.waiting, p.sentN = map[int64]*call{}, nil, 0
	p.mu.Unlock()
	for _, c := range calls {
		if c.timer != nil {
			c.timer.Stop()
		}
		c.done(nil, err)
	}
}

// notify sends a notification that is not dropped.
func (p *peer) notify(method string, params any) { p.put(p.request(nil, method, params), keepAlways) }

func (p *peer) reply(id json.RawMessage, result any) {
	p.put(p.response(id, toJSON(result), nil), keepAlways)
}

// replyError answers a request with an error; a nil id leaves the id out, as MCP's 2026 schema wants where the
// request's can't be known, or with nullID makes it null.
func (p *peer) replyError(id json.RawMessage, e *rpcError) {
	if id == nil && p.nullID {
		id = json.RawMessage("null")
	}
	p.put(p.response(id, nil, e), keepAlways)
}

// request builds a request, or with a nil id a notification.
func (p *peer) request(id []byte, method string, params any) []byte {
	b := appendJSONString(append(p.head(256, id), `"method":`...), method)
	if params != nil {
		b = append(append(b, `,"params":`...), toJSON(params)...)
	}
	return append(b, '}')
}

// response builds the answer to a request: its result or, where e is given, an error.
func (p *peer) response(id, result json.RawMessage, e *rpcError) []byte {
	b := p.head(len(result)+64, id)
	if e != nil {
		return append(append(append(b, `"error":`...), toJSON(e)...), '}')
	}
	return append(append(append(b, `"result":`...), result...), '}')
}

// head begins a message: its version and its id, if it has them.
func (p *peer) head(room int, id []byte) []byte {
	b := append(make([]byte, 0, room), '{')
	if !p.noVersion {
		b = append(b, `"jsonrpc":"2.0",`...)
	}
	if id != nil {
		b = append(append(append(b, `"id":`...), id...), ',')
	}
	return b
}

// put queues one finished record; false: it was dropped.
func (p *peer) put(rec []byte, w worth) bool {
	mode := p.mode
	if mode == framingUnknown {
		mode = p.fr.seen()
	}
	if p.trace != nil {
		p.trace(">", rec)
	}
	return p.out.put(rec, mode, w)
}

// flush waits until what was written has left, for at most limit.
func (p *peer) flush(limit time.Duration) { p.out.flush(limit) }

// closeOut flushes what is queued, for at most grace, and ends the writing
// goroutine. The underlying writer is left to its owner.
func (p *peer) closeOut(grace time.Duration) { p.out.close(grace) }

// queued is how many bytes wait for the other side to read.
func (p *peer) queued() int { return p.out.size() }

// An outbox may be used from any goroutine; one of its own, run, writes.
type outbox struct {
	w      io.Writer
	budget int           // bytes that may wait before records are dropped that may be
	onErr  func(error)   // called once, when a write has failed; may be nil
	done   chan struct{} // closed when the writing goroutine has ended

	mu      sync.Mutex      // guards the fields below
	wake    sync.Cond       // tells the writing goroutine that ready or closed has changed
	chunks  [][]byte        // framed records not yet taken by the writing goroutine
	spare   []byte          // one empty chunk kept for the next record
	waiting int             // bytes in chunks and in the write under way
	ready   bool            // what waits is to be written now
	pausing bool            // pause runs
	pause   *time.Timer     // makes what waits ready after lazyPause
	soon    time.Time       // when a keepSoon record was last written without a pause
	closed  bool            // close was called: nothing more is taken
	dead    bool            // a write failed: everything is dropped from now on
	empties []chan struct{} // each is closed by run when nothing waits
}

// worth is what becomes of a record when the other side doesn't read.
type worth int

const (
	keepAlways worth = iota // responses, requests: somebody waits for them
	dropLast                // what ended and began: dropped past the budget
	dropFirst               // deltas: dropped past three quarters of it, so that there is room for the former
	keepSoon                // like keepAlways, but nobody waits: in a run of them each may wait a moment for the next
)

// chunkSize is what one write takes: a pipe holds no more, and memory grows
// by no more at a time, so a stalled reader costs the budget and not twice.
const chunkSize = 64 << 10

// A record that may be dropped (a delta, nearly all there is) may as well wait a moment for the next one: a write and
// the other side's waking cost more than all else about it. Any other record, or lazySize of them, takes it along.
const (
	lazyPause = 200 * time.Microsecond
	lazySize  = 16 << 10
)

// newOutbox starts the writing goroutine; close ends it. onErr may be nil.
func newOutbox(w io.Writer, budget int, onErr func(error)) *outbox {
	o := &outbox{w: w, budget: budget, onErr: onErr, done: make(chan struct{})}
	o.wake.L = &o.mu
	o.pause = time.AfterFunc(time.Hour, o.paused)
	o.pause.Stop()
	go o.run()
	return o
}

// put queues one record. It reports false when the record was dropped: the stream is closed or dead, or the record
// isn't worth going past the budget. One large record may: else none larger than what is left would ever be told.
func (o *outbox) put(rec []byte, mode framing, w worth) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.dead {
		return false
	}
	if w == dropFirst && o.waiting+len(rec) > o.budget/4*3 || w == dropLast && o.waiting > o.budget {
		return false
	}
	last := len(o.chunks) - 1
	if last < 0 || len(o.chunks[last])+len(rec)+64 > cap(o.chunks[last]) {
		chunk := o.spare
		o.spare = nil
		if cap(chunk) < len(rec)+64 {
			chunk = make([]byte, 0, max(chunkSize, len(rec)+64))
		}
		o.chunks = append(o.chunks, chunk)
		last++
	}
	before := len(o.chunks[last])
	o.chunks[last] = appendFrame(o.chunks[last], rec, mode)
	o.waiting += len(o.chunks[last]) - before
	lazy := w == dropFirst || w == keepSoon && o.pausing
	if w == keepSoon && !lazy { // alone it goes at once: what is added to it may be seen
		now := time.Now()
		if lazy = now.Sub(o.soon) < lazyPause; !lazy {
			o.soon = now
		}
	}
	switch {
	case !lazy || last > 0 || len(o.chunks[0]) >= lazySize:
		o.ready = true
		o.wake.Signal()
	case !o.pausing:
		o.pausing = true
		o.pause.Reset(lazyPause)
	}
	return true
}

// paused is the timer: what waits has waited long enough.
func (o *outbox) paused() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pausing = false
	o.ready = len(o.chunks) > 0
	o.wake.Signal()
}

func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

// run is the writing goroutine. It writes all that waits in few calls, so a
// burst costs little and a lone answer waits for nothing.
func (o *outbox) run() {
	defer close(o.done)
	defer o.pause.Stop()
	for {
		o.mu.Lock()
		for !o.ready && !o.closed {
			o.wake.Wait()
		}
		if len(o.chunks) == 0 {
			o.mu.Unlock()
			return
		}
		chunk := o.chunks[0]
		o.chunks[0] = nil
		o.chunks = o.chunks[1:]
		o.ready = len(o.chunks) > 0
		o.mu.Unlock()

		_, err := o.w.Write(chunk)

		o.mu.Lock()
		o.waiting -= len(chunk)
		if cap(chunk) == chunkSize {
			o.spare = chunk[:0]
		}
		if err != nil {
			o.dead, o.chunks, o.waiting = true, nil, 0
		}
		if o.waiting == 0 {
			for _, empty := range o.empties {
				close(empty)
			}
			o.empties = nil
		}
		o.mu.Unlock()
		if err != nil {
			if o.onErr != nil {
				o.onErr(err)
			}
			return
		}
	}
}

// flush returns when all that was put before it is written, or after limit.
func (o *outbox) flush(limit time.Duration) {
	o.mu.Lock()
	if o.waiting == 0 {
		o.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	o.empties = append(o.empties, empty)
	o.ready = len(o.chunks) > 0
	o.wake.Signal()
	o.mu.Unlock()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
	}
}

// close lets the writer finish what is queued, for at most grace.
func (o *outbox) close(grace time.Duration) {
	o.mu.Lock()
	o.closed = true
	o.wake.Signal()
	o.mu.Unlock()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-o.done:
	case <-t.C:
	}
}

// lineWriter hands log lines to an outbox, so that whoever doesn't read our stderr can't hold a session or a reader:
// past the outbox's budget lines are lost, not waited for.
type lineWriter struct{ out *outbox }

func (w lineWriter) Write(line []byte) (int, error) {
	w.out.put(bytes.TrimRight(line, "\n"), framingNewline, dropFirst)
	return len(line), nil
}
