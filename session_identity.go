package main

// session_identity.go owns who gets which name, and whether one more session has room: the lease of an identity for a
// session that opens, --identity until the first session takes it, the parking of idle sessions where the table is
// full. The opener calls this file from the hub's goroutines, which may wait. It must never give one name to two, nor a
// name of a member who is no agent of ours.

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	reserveLimit = 2 * time.Second // how long a start tries for --identity
	leaverLimit  = 2 * time.Second // how long a call waits for an identity that is about to be free
)

// identities are the names of the agents that are open here.
type identities struct {
	*common
	addresses addressBook

	tried chan struct{} // closed when --identity is leased, or could not be
	one   sync.Mutex    // held while a session finds room and a name: one at a time

	mu       sync.Mutex // guards the field below
	reserved *lease     // --identity, until the first session takes it
}

// reserve leases --identity at start, trying for 2 s: a client that restarts us may not have let the old process die
// yet. Held longer, every call that wants it is answered with who holds it.
func (n *identities) reserve() {
	if !n.cfg.identityExplicit {
		close(n.tried)
		return
	}
	n.work.start(func() {
		defer close(n.tried)
		if taken := n.addresses.strange(n.cfg.identity); taken != nil { // each call that wants it is told
			n.log.Warn("identity is a member's who is no agent of this program", "identity", n.cfg.identity, "err",
				taken.who())
			return
		}
		for until := time.Now().Add(reserveLimit); ; {
			l, err := n.reg.acquire(n.cfg.identity, "")
			if err == nil {
				n.setReserved(l)
				n.ledger.named(n.cfg.identity)
				return
			}
			if time.Now().After(until) {
				n.log.Warn("identity is held", "identity", n.cfg.identity, "err", err)
				return
			}
			if pauseUntil(n.life, time.Now().Add(100*time.Millisecond)) != nil {
				return
			}
		}
	})
}

// setReserved replaces the lease of --identity and returns the one before.
func (n *identities) setReserved(l *lease) (was *lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, n.reserved = n.reserved, l
	return was
}

// reserves reports the identity that is leased and no session's yet.
func (n *identities) reserves(identity string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reserved != nil && strings.EqualFold(identity, n.reserved.name)
}

// stop lets --identity go.
func (n *identities) stop() {
	<-n.tried
	if l := n.setReserved(nil); l != nil {
		l.release()
	}
}

// give finds room for a session and leases its identity, which p then has.
func (n *identities) give(s *session, p *opening, req turnRequest) *rpcError {
	<-n.tried // a first call may come while the process before us still holds the name
	name, implied := n.wanted(p, req)
	if !implied {
		n.awaitLeaver(name, s)
	}
	n.addresses.strange(name) // reads what is half written, if need be, while nobody waits for us
	n.one.Lock()
	defer n.one.Unlock()
	if n.table.agent(s.agentID) != s {
		return proxyError(codeSessionClosed, "the call was cancelled before its session was open")
	}
	if err := n.makeRoom(); err != nil {
		return err
	}
	name, implied = n.wanted(p, req)
	l, err := n.lease(name, implied, s.agentID, p)
	if err != nil {
		return err
	}
	p.lease, p.rec.Identity, p.rec.Implied = l, name, implied
	if implied {
		p.rec.Identity = l.name
	}
	n.table.enterName(s, p.rec.Identity)
	n.ledger.named(p.rec.Identity)
	return nil
}

// lease leases a name that was asked for, or one like it where it is implied.
func (n *identities) lease(name string, implied bool, agentID string, p *opening) (*lease, *rpcError) {
	taken := n.addresses.strange(name)
	known := ""
	if p.revived {
		known = p.rec.AgentID
	}
	switch {
	case taken == nil:
		l, err := n.acquire(name, agentID)
		if err == nil {
			return l, nil
		}
		if !implied {
			return nil, heldError(err, p.rec.AgentID, name, n.free(name))
		}
		if !errors.As(err, new(*heldBy)) {
			return nil, heldError(err, p.rec.AgentID, name, "")
		}
	case !implied:
		return nil, heldError(taken, known, name, n.free(name))
	case p.rec.Identity != "":
		p.notes = append(p.notes, fmt.Sprintf("the agent, which was %s, has another name now: %s", name, taken.who()))
	}
	l, err := n.reg.acquireFree(name, agentID, n.addresses.isStrange)
	if err != nil {
		return nil, heldError(err, p.rec.AgentID, name, "")
	}
	return l, nil
}

// acquire leases a name, taking over the lease that --identity made at start.
func (n *identities) acquire(name, agentID string) (*lease, error) {
	var l *lease
	if n.reserves(name) {
		l = n.setReserved(nil)
	}
	if l == nil {
		return n.reg.acquire(name, agentID)
	}
	if err := l.assign(agentID); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// wanted is the identity a session is to have, and whether nobody asked for it by name (FR-2.5).
func (n *identities) wanted(p *opening, req turnRequest) (name string, implied bool) {
	switch {
	case req.identity != "":
		return req.identity, false
	case p.rec.Identity != "":
		return p.rec.Identity, p.rec.Implied
	case req.implied != "":
		return req.implied, true
	case n.cfg.identityExplicit: // asked for by name, once: the first session takes it
		return n.cfg.identity, n.table.named(n.cfg.identity) != nil
	}
	return n.cfg.identity, true
}

// free is a name that a call could have instead, for an error's advice.
func (n *identities) free(name string) string {
	return n.reg.freeIdentity(name, n.addresses.isStrange)
}

// refusal is why an agent can't have another name than it has, nil where it can.
func (n *identities) refusal(agentID, had, name string) *rpcError {
	if name == "" || strings.EqualFold(name, had) {
		return nil
	}
	if holder, pid, held := n.reg.holder(name); held {
		return heldError(nameHeld(name, holder, pid), agentID, name, n.free(name))
	}
	if taken := n.addresses.strange(name); taken != nil {
		return heldError(taken, agentID, name, n.free(name))
	}
	return nil
}

// awaitLeaver waits for a session that holds a name and is about to end: whoever ends an agent and starts another
// under its name means that order.
func (n *identities) awaitLeaver(name string, s *session) {
	holder := n.table.named(name)
	if holder == nil || holder == s {
		return
	}
	stays := make(chan struct{}) // its loop says so, behind a cancel that came before
	if !holder.box.do(func() {
		if holder.m.ending == endNone {
			close(stays)
		}
	}) {
		return
	}
	limit := time.NewTimer(leaverLimit)
	defer limit.Stop()
	select {
	case <-stays:
	case <-holder.ended:
	case <-limit.C:
	case <-n.life.Done():
	}
}

// makeRoom parks the least recently used idle session with an implied identity while the table is full (FR-3.3). It
// waits for the parking.
func (n *identities) makeRoom() *rpcError {
	for {
		var oldest *session
		all := n.table.leased()
		for _, s := range all {
			v := s.shown.Load()
			if v.Status == statusIdle && v.implied &&
				(oldest == nil || v.LastActive.Before(oldest.shown.Load().LastActive)) {
				oldest = s
			}
		}
		if len(all) < n.cfg.maxConcurrentThreads {
			return nil
		}
		if oldest == nil {
			return proxyError(codeMaxSessions, fmt.Sprintf("%d sessions are open and none can be parked "+
				"(max_concurrent_threads = %d); close one with agent_close", len(all), n.cfg.maxConcurrentThreads))
		}
		done := make(chan struct{})
		if oldest.end(endPark, "", func(closeResult) { close(done) }) {
			<-done
		}
	}
}
