package main

// session_client.go owns what a session does for a client that has a name of its
// own for it (ACP): it is kept from its birth, what a person chooses for it is
// decided anew while it is open, and its title is kept. It runs on the session's
// own goroutine; session_hubclient.go asks for it. What reads the child's configuration
// runs in the hub's goroutines: turns wait for it, the loop never does.

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// clientPart is a session's part of that.
type clientPart struct {
	settings atomic.Pointer[sessionSettings] // published, nil until the thread is open
	shape    atomic.Pointer[sessionShape]    // published

	tunes    []tune
	tuning   bool   // the first choice is being decided: no turn starts
	title    string // before there is a place
	unsummed bool   // its end asks for no summary
}

// tune is a choice that waits. done is called once, never on the loop.
type tune struct {
	change settingsChange
	done   func(sessionSettings, *rpcError)
}

// sessionShape is what a client's session was opened with, and can't change
// while it is open.
type sessionShape struct {
	named   bool // the client has a name of its own for it
	cwd     string
	roots   []string
	servers json.RawMessage
}

// shaped notes what a session is opened with.
func (c *clientPart) shaped(req *turnRequest, rec *record) {
	shape := &sessionShape{cwd: req.cwd, servers: someServers(req.servers)}
	if rec != nil && shape.cwd == "" {
		shape.cwd = rec.CWD
	}
	if req.client != nil {
		shape.named, shape.roots = true, req.client.roots
	} else if rec != nil {
		shape.roots = rec.Roots
	}
	c.shape.Store(shape)
}

// named reports a session that a client has a name of its own for.
func (c *clientPart) named() bool {
	shape := c.shape.Load()
	return shape != nil && shape.named
}

// fits reports a request that asks of an open session nothing but what it has:
// a client says all it knows of a session with every call.
func (c *clientPart) fits(req *turnRequest) bool {
	shape, rest := c.shape.Load(), *req
	rest.cwd, rest.servers, rest.client = "", nil, nil
	return shape != nil && req.client != nil && !rest.reshapes() &&
		(req.cwd == "" || filepath.Clean(req.cwd) == filepath.Clean(shape.cwd)) &&
		slices.Equal(req.client.roots, shape.roots) &&
		(req.servers == nil || bytes.Equal(someServers(req.servers), shape.servers))
}

// someServers is nil for an object without any.
func someServers(raw json.RawMessage) json.RawMessage {
	some := false
	_ = eachField(raw, func(string, json.RawMessage) bool { some = true; return false })
	if !some {
		return nil
	}
	return raw
}

// placed goes on with what waited for the session's place.
func (s *session) placed() {
	c := &s.client
	if c.title != "" {
		s.place.rec.Title = c.title
	}
	if name := s.place.rec.ClientSession; name != "" {
		s.log = s.log.With("sessionId", name)
	}
	s.nextTune()
}

// born puts a client's session on disk before its client is told of it: it may
// ask for it after a restart, never having prompted it.
func (s *session) born() {
	p := s.place
	s.h.book.save(&p.rec)
	s.h.clients.put(p.rec.ClientSession, s.agentID)
	p.born = true
}

// advance starts the next turn, unless it has to wait for what it runs with.
func (s *session) advance() {
	if !s.offerMail() && !s.client.tuning {
		s.carry(s.m.advance())
	}
}

// showSettings publishes what the next turn runs with.
func (s *session) showSettings() {
	v := s.place.settings()
	s.client.settings.Store(&v)
}

// retune takes a choice. false: the session has ended.
func (s *session) retune(t tune) bool {
	return s.box.post(func() {
		if s.free {
			s.h.retuneLater(s.agentID, t)
			return
		}
		s.client.tunes = append(s.client.tunes, t)
		s.nextTune()
	})
}

// nextTune has the oldest choice decided, unless one is or there is no place yet.
func (s *session) nextTune() {
	c := &s.client
	if c.tuning || len(c.tunes) == 0 || s.place == nil || s.m.phase == phaseOver {
		return
	}
	c.tuning = true
	t, was := c.tunes[0], s.place
	c.tunes = slices.Delete(c.tunes, 0, 1)
	next := was.retuned(t.change)
	s.h.goWork(func() {
		err := s.h.opener.retune(next)
		if !s.box.post(func() { s.tuned(t, next, err) }) {
			s.h.retuneLater(s.agentID, t)
		}
	})
}

// tuned takes over what a choice came to; it is on disk before it is answered.
func (s *session) tuned(t tune, next *opening, err *rpcError) {
	s.client.tuning = false
	if s.free {
		s.h.retuneLater(s.agentID, t)
		return
	}
	if err == nil {
		s.place.retune(next)
		if s.thread != "" {
			s.showSettings()
		}
		if s.thread != "" || s.place.revived && !s.place.adopted {
			s.h.book.save(&s.place.rec)
		}
		s.h.book.auditChoice(&s.place.rec, s.place.settings())
	}
	v := s.place.settings()
	s.h.goWork(func() { t.done(v, err) })
	s.nextTune()
}

// setTitle keeps what the session is called. false: it has ended.
func (s *session) setTitle(title string) bool {
	return s.box.post(func() {
		switch {
		case s.free:
			s.h.goWork(func() { s.h.titleRecord(s.agentID, title) })
		case s.place == nil:
			s.client.title = title
		case s.place.rec.Title != title:
			s.place.rec.Title = title
			if s.thread != "" {
				s.h.book.save(&s.place.rec)
			}
		}
	})
}

// clientLeft hands what waits to the record, once it is free.
func (s *session) clientLeft() {
	c := &s.client
	for _, t := range c.tunes {
		s.h.retuneLater(s.agentID, t)
	}
	if s.place == nil && c.title != "" {
		s.h.goWork(func() { s.h.titleRecord(s.agentID, c.title) })
	}
	c.tunes = nil
}
