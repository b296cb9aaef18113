package main

// session_child.go owns the one child: its lazy start, who waits for that, how the last one ended, the facts that are
// asked of it beside any session, and the errors that callers get of it. The hub and opening sessions ask it; the
// driver tells it of a death before it tells any session. It never starts a second child while one lives, and none
// after a death unless restart_child says so (FR-11.2).

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// childSlot holds the one child.
type childSlot struct {
	*common
	spawn func(ctx context.Context, gone func(*childDeath)) (backend, error)

	mu       sync.Mutex // guards the fields below
	be       backend
	starting chan struct{} // closed when the start under way has ended
	death    *childDeath   // how the last one ended
	last     backendInfo   // of the last one that answered
	stopping bool
}

// refusal is why no turn can run at all.
func (c *childSlot) refusal() *rpcError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusalLocked()
}

func (c *childSlot) refusalLocked() *rpcError {
	if c.stopping {
		return stoppingError()
	}
	if d := c.death; d != nil && !d.Never && !c.cfg.restartChild {
		return deathError(d, c.cfg.restartChild)
	}
	return nil
}

func (c *childSlot) up() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.be != nil
}

// ready returns the child, starting it if there is none: lazily, on the first turn (FR-1.3). It waits for the start.
func (c *childSlot) ready() (backend, *rpcError) {
	for {
		c.mu.Lock()
		if err := c.refusalLocked(); err != nil {
			c.mu.Unlock()
			return nil, err
		}
		if be := c.be; be != nil {
			c.mu.Unlock()
			return be, nil
		}
		wait := c.starting
		if wait == nil {
			wait = make(chan struct{})
			c.starting = wait
			c.mu.Unlock()
			return c.start(wait)
		}
		c.mu.Unlock()
		select {
		case <-wait:
			c.mu.Lock()
			be, death := c.be, c.death
			c.mu.Unlock()
			if be == nil && death != nil {
				return nil, deathError(death, c.cfg.restartChild) // the same answer as the one who started it
			}
		case <-c.life.Done():
			return nil, proxyError(codeSessionClosed, "this server is shutting down")
		}
	}
}

// start spawns a child; started is closed however that ends.
func (c *childSlot) start(started chan struct{}) (backend, *rpcError) {
	var dead *childDeath // it died between its answer and our noticing
	be, err := c.spawn(c.life, func(d *childDeath) {
		c.mu.Lock()
		c.be, c.death, dead = nil, d, d
		wanted := c.stopping
		c.mu.Unlock()
		if !wanted {
			c.log.Error("codex child gone", "reason", d.Reason, "stderr", d.Stderr)
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting = nil
	close(started)
	switch {
	case err != nil:
		d := &childDeath{}
		if !errors.As(err, &d) {
			d = neverStarted("", errorText(err))
		}
		c.death = d
		return nil, deathError(d, c.cfg.restartChild)
	case dead != nil:
		return nil, deathError(dead, c.cfg.restartChild)
	case c.stopping:
		c.mu.Unlock()
		be.stop(shutdownLimit) // nobody else knows of it
		c.mu.Lock()
		return nil, c.refusalLocked()
	}
	c.be, c.death, c.last = be, nil, be.info()
	c.log.Info("codex started", "backend", c.last.kind, "version", c.last.version, "pid", c.last.pid)
	return be, nil
}

// readyWithin is ready for a caller that may give up: then the start is left to those that come after.
func (c *childSlot) readyWithin(ctx context.Context) (backend, *rpcError) {
	var be backend
	var err *rpcError
	done := make(chan struct{})
	c.work.start(func() {
		defer close(done)
		be, err = c.ready()
	})
	select {
	case <-done:
		return be, err
	case <-ctx.Done():
		return nil, refusal("start", ctx.Err())
	}
}

// catalog reads a fact of the child's, starting it if need be: see backend. It waits.
func (c *childSlot) catalog(ctx context.Context, what, dir string) (json.RawMessage, *rpcError) {
	be, err := c.readyWithin(ctx)
	if err != nil {
		return nil, err
	}
	got, cerr := be.catalog(ctx, what, dir)
	return got, refusal("tell its "+what, cerr)
}

// change has the child change what isn't a turn's: see backend. It waits.
func (c *childSlot) change(ctx context.Context, action string, params any) (json.RawMessage, *rpcError) {
	be, err := c.readyWithin(ctx)
	if err != nil {
		return nil, err
	}
	got, cerr := be.change(ctx, action, params)
	return got, refusal("do "+action, cerr)
}

// refusal makes the error of a call of what the child answered, nil for none.
func refusal(what string, err error) *rpcError {
	var child *backendError
	var ours *rpcError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &child):
		return childError(what, child)
	case errors.As(err, &ours):
		return ours
	}
	return proxyError(codeInvalidSession, fmt.Sprintf("Codex could not %s: %v", what, err))
}

// close refuses every start from now on and returns the child that runs, nil if none does.
func (c *childSlot) close() backend {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	return c.be
}

// show puts what is to be said of the child into v.
func (c *childSlot) show(v *statusView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.ChildAlive, v.ChildVersion, v.Backend = c.be != nil, c.last.version, c.last.kind
	if c.be != nil {
		v.ChildPID = c.last.pid
	}
	if c.death != nil {
		v.ChildError = c.death.Error()
	}
}

// stoppingError refuses what comes while we shut down; extra holds pairs for data.
func stoppingError(extra ...any) *rpcError {
	return proxyAdvice(codeSessionClosed, remedyRestart, "this server is shutting down",
		"; start it again and call codex-reply with the same agent_id", extra...)
}

// deathError is the -32005 every caller gets (FR-11): what happened, with
// which code or signal, and what to do. again: the next call starts another.
func deathError(d *childDeath, again bool) *rpcError {
	advice, r := "", remedyNewChild
	switch {
	case d.Never:
		r = remedyNone
	case again:
		advice = ". Sessions are kept, and codex-reply with the same agent_id starts Codex again (restart_child)"
	default:
		advice = ". Sessions are kept: restart this MCP server and call codex-reply with the same agent_id, or set " +
			"restart_child = true"
	}
	return proxyAdvice(codeChildDead, r, d.Error(), advice, "reason", d.Reason, "stderr", d.Stderr)
}

// childError makes the error of a call from what the child answered; what says what was tried.
func childError(what string, e *backendError) *rpcError {
	switch {
	case e == nil:
		return proxyError(codeChildDead, "Codex is gone")
	case e.Death != nil:
		return deathError(e.Death, false)
	case e.Timeout:
		return proxyError(codeTimeout, "Codex had no answer in time when asked to "+what, "child_error", e.Data)
	case e.Busy:
		return childSays(codeTimeout, "Codex had too much to do when asked to "+what+", and nothing was done; try "+
			"again later: "+e.Message, e)
	case e.Held:
		err := childSays(codeIdentityConflict, "another process has this thread open: "+e.Message, e)
		err.Said, err.Remedy = "this session is in use by another Codex, such as its command line or an IDE's, which "+
			"doesn't say what process it is", remedyHeld
		return err
	case e.Missing:
		return childSays(codeSessionNotFound, "Codex has no such thread: "+e.Message, e)
	}
	return childSays(codeInvalidSession, "Codex refused to "+what+": "+e.Message, e)
}

// childSays is an error whose words are the child's (NFR-6).
func childSays(code int, msg string, e *backendError) *rpcError {
	err := proxyError(code, msg)
	if e.Info == infoNoLogin {
		err.Remedy = remedyLogin
	}
	if e.Code == 0 && e.Data == nil {
		return err // our own words about the child
	}
	data := map[string]any{"error_source": "child", "name": codeName(code),
		"child_error": map[string]any{"code": e.Code, "message": e.Message}}
	if e.Data != nil {
		data["child_error"] = e.Data
	}
	err.Data = toJSON(data)
	return err
}
