package main

// session_link.go owns what the MCP and the ACP front have alike of their client: its stream, the goroutines that work
// for it and the order in which both end, the names of waiters and of their turns in the audit trail. mcp.go and acp.go
// embed it. It knows no method of either protocol. Nothing in it may wait but flush, waitWork and the stream's end, and
// no reading goroutine calls those.

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const serverName = "atm-agent-mcp" // as both protocols' handshakes tell it

// clientLink is the link to the one client of a front.
type clientLink struct {
	p     *peer
	name  string        // of the protocol, as correlations begin: mcp or acp
	named atomic.Uint64 // waiters so far

	spawning sync.Mutex // guards the fields below; nothing is called under it
	stopped  bool
	working  sync.WaitGroup // goroutines of spawn
}

// connect starts the writing goroutine of the client's stream, which p.closeOut ends. deaf is called when the client
// has closed its reading side; it may be nil. o is all that the protocols don't have alike.
func (l *clientLink) connect(name string, r io.Reader, w io.Writer, log *slog.Logger, deaf func(), o peerOptions) {
	l.name = name
	o.strict = true
	o.onWriteErr = func(err error) {
		log.Warn("the client no longer reads", "err", err)
		if deaf != nil {
			deaf()
		}
	}
	l.p = newPeer(r, w, o)
}

// run reads the client's stream until it ends. What is open then is the hub's to end: a front only stops hearing.
func (l *clientLink) run() error {
	if err := l.p.run(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading from the client: %w", err)
	}
	return nil
}

// flush waits until what was answered has left, for at most limit. Requests are still taken after it.
func (l *clientLink) flush(limit time.Duration) { l.p.flush(limit) }

// spawn runs what may wait for Codex or the disk. false: we are shutting down.
func (l *clientLink) spawn(work func()) bool {
	l.spawning.Lock()
	defer l.spawning.Unlock()
	if l.stopped {
		return false
	}
	l.working.Go(work)
	return true
}

// stopWork has spawn take nothing any more.
func (l *clientLink) stopWork() {
	l.spawning.Lock()
	l.stopped = true
	l.spawning.Unlock()
}

// waitWork waits for what was spawned before stopWork, for at most limit.
func (l *clientLink) waitWork(limit time.Duration) {
	done := make(chan struct{})
	go func() { l.working.Wait(); close(done) }() // ends with the spawned
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// nextWaiter names somebody who waits for a turn.
func (l *clientLink) nextWaiter() waiterID { return waiterID(l.named.Add(1)) }

// correlation names a waiter's turn in the audit trail and the log, "" for none.
func (l *clientLink) correlation(w waiterID) string {
	if w == 0 {
		return "" // it started no turn
	}
	return l.name + "-" + strconv.FormatUint(uint64(w), 10)
}

// idInUse refuses a request whose id another one has that is still open.
func idInUse(id []byte) *rpcError {
	return &rpcError{Code: codeInvalidRequest, Message: fmt.Sprintf("Invalid Request: id %s is already in use by a "+
		"request that is still open", id)}
}
