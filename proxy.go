package main

// proxy.go owns the composition root of serve and acp: it makes the hub and the
// front, wires them to each other and to the child's start, and owns the order of
// shutdown. main.go calls it. It must decide nothing about sessions.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// answersFlush is how long answers that are ready may take to reach a
	// client at the end.
	answersFlush = time.Second
	// acpFlush and acpLadder are the same for an editor: with the child's ladder,
	// two steps of acpLadder, all of it stays within a second.
	acpFlush  = 100 * time.Millisecond
	acpLadder = 300 * time.Millisecond
	// logBudget bytes of log lines may wait for a reader of stderr, and
	// logFlush is how long the last ones may take.
	logBudget = 1 << 20
	logFlush  = 100 * time.Millisecond
	// endLimit is how much longer than its grace an end may take: the steps that
	// have limits need less, so what is late is a read that nothing can end, of a
	// file system that doesn't answer.
	endLimit = 20 * time.Second
	// memoryLimit is what the collector works towards: what may wait for the
	// client and for the sessions (28 MiB), and as much again for the rest.
	memoryLimit = 48 << 20
	// gcPercent: the live heap is about a megabyte, so the collector's floor,
	// 4 MB at 100, decides how often it runs. 200 makes that seldom enough for
	// a turn not to meet it, and ten sessions still live in 15 MB.
	gcPercent = 200
)

// proxyIO is where a proxy speaks.
type proxyIO struct {
	in      io.Reader // the client's stream, both ways
	out     io.Writer
	stderr  io.Writer // for people
	version string    // this program's, as clients are told it
}

// proxyRun is what serve and serveACP have in common: the log, the hub, and the
// way to the end.
type proxyRun struct {
	log   *slog.Logger
	lines *outbox // of the log, so that nobody waits for a reader of stderr
	h     *hub
	audit *auditLog
	deaf  chan struct{} // closed when nobody will hear an answer any more
	told  sync.Once     // closes deaf

	flush time.Duration // how long answers may take at the end
	grace time.Duration // how long all else may take at the end
}

// startProxy opens the log and makes the hub; the caller gives the hub a front and
// calls until. An error has been told to people already.
func startProxy(cfg *config, io proxyIO) (*proxyRun, error) {
	logTo, err := openLog(cfg, io.stderr)
	if err != nil {
		fmt.Fprintf(io.stderr, "atm-agent-mcp: %s\n", errorText(err))
		return nil, err
	}
	p := &proxyRun{lines: newOutbox(logTo, logBudget, nil), deaf: make(chan struct{}), flush: answersFlush,
		grace: cfg.shutdownGrace}
	p.log = newLogger(cfg.names.writer(lineWriter{p.lines}), cfg.logLevel)
	for _, w := range cfg.warnings {
		p.log.Warn(w)
	}
	for _, dir := range openToAll(cfg.teamDirs()...) {
		p.log.Warn("anybody on this machine can write mail and members here; chmod o-w "+dir, "path", dir)
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	prepareProcess()
	p.h, p.audit = newProxyHub(cfg, p.log, traceOf(p.log, "codex"))
	return p, nil
}

// isDeaf is called by the front when the client reads no more.
func (p *proxyRun) isDeaf() { p.told.Do(func() { close(p.deaf) }) }

// until runs the front until the client's stream ends or a signal comes, ends
// everything, and returns the exit code. A second signal ends it at once; the
// child then ends by the end of its stdin.
func (p *proxyRun) until(ctx context.Context, run func() error, shutdown func(time.Duration),
	flush func(time.Duration)) int {
	defer p.lines.close(logFlush)
	log := p.log
	p.h.start()

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	ended := make(chan struct{}) // the client's stream is over
	go func() {
		defer close(ended)
		if err := run(); err != nil {
			log.Debug("client stream ended", "err", err)
		}
	}()
	code, why := 0, "asked to stop"
	select {
	case <-ended:
		why = "client gone"
		log.Info("client gone, shutting down")
	case <-p.deaf: // its turns would run on with nobody to answer, or to approve anything
		why = "client reads no more"
		log.Info("client reads no more, shutting down")
	case sig := <-signals:
		why = "signal: " + sig.String()
		log.Info("signal, shutting down", "signal", sig.String())
		code = 128 + int(signalNumber(sig))
		if limit, ok := endsWithin(sig); ok {
			p.grace = min(p.grace, limit)
		}
	case <-ctx.Done():
	}
	p.h.endsBy = why
	p.h.ledger.auditShutdown(why)
	down := make(chan struct{})    // closed when everything is written and reaped
	settled := make(chan struct{}) // closed when everybody who waited is answered, and records say how things stand
	go func() {
		defer close(down)
		p.h.beginStop(p.grace)
		flush(p.flush)
		close(settled)
		p.h.stop(p.grace)
		shutdown(p.flush)
		p.audit.close()
	}()
	last := time.NewTimer(p.grace + endLimit)
	defer last.Stop()
	select {
	case <-down:
	case <-last.C:
		log.Warn("exiting though a file system does not answer; the last changes may not be on disk")
	case sig := <-signals:
		// At once, but not before what the first signal has begun is out.
		select {
		case <-settled:
		case <-time.After(settleLimit):
		}
		log.Info("second signal, exiting at once", "signal", sig.String())
	}
	return code
}

// client is what a front is made with, in either protocol.
func (p *proxyRun) client(cfg *config, io proxyIO) clientOptions {
	return clientOptions{R: io.in, W: io.out, Names: cfg.names, Log: p.log, Deaf: p.isDeaf, Version: io.version,
		Trace: traceOf(p.log, "client"), submit: p.h.submit, cancel: p.h.cancel, decide: p.h.decide,
		interrupt: p.h.interrupt, status: p.h.status}
}

// serve runs the MCP proxy until its client is gone, and returns the exit code.
func serve(ctx context.Context, cfg *config, io proxyIO) int {
	p, err := startProxy(cfg, io)
	if err != nil {
		return 1
	}
	h := p.h
	front := newMCPFront(mcpOptions{clientOptions: p.client(cfg, io), ForwardEvents: cfg.forwardEvents,
		DefaultCwd: cfg.cwd, review: h.review, close: h.close, sessions: h.agents.list, limited: h.statusWithLimits,
		wait: h.waits.wait, approve: h.approve, turn: h.agents.turn, mailAs: h.team.caller, atm: h.runTool,
		setMail: h.setMail, ownMail: h.mail.own})
	h.front, h.tellsMail = front, true
	return p.until(ctx, front.run, front.shutdown, front.flush)
}

// serveACP runs the ACP agent. An editor that goes has its sessions on disk and
// waits for nothing: none is asked for a summary, and all is over within a second.
func serveACP(ctx context.Context, cfg *config, io proxyIO) int {
	cfg.serveEditor()
	p, err := startProxy(cfg, io)
	if err != nil {
		return 1
	}
	p.flush, p.grace = acpFlush, acpLadder
	h := p.h
	front := newACPFront(acpOptions{clientOptions: p.client(cfg, io), Env: os.Getenv, Kept: cfg.persistThreads,
		Team: !cfg.teamless, Steers: cfg.promptsWhileBusy == "steer", AskLimit: cfg.approvalTimeout,
		review: h.findChange, newAgentID: h.reg.newAgentID, settings: h.clients.settings, retune: h.clients.retune,
		clientSessions: h.clients.listAll, clientSession: h.clients.find, setTitle: h.clients.setTitle,
		leave: h.leave, history: h.clients.history, catalog: h.child.catalog,
		account: h.child.change, rename: h.clients.rename, remove: h.clients.remove})
	h.front, h.child.spawn = front, codexSpawner(cfg, p.log, traceOf(p.log, "codex"),
		childHooks{news: front.heard, limits: h.hearLimits})
	return p.until(ctx, front.run, front.shutdown, front.flush)
}

func signalNumber(s os.Signal) syscall.Signal {
	n, _ := s.(syscall.Signal)
	return n
}

// newProxyHub makes a hub over the files and the codex of cfg; the caller gives it a
// front, and closes the audit log after hub.stop.
func newProxyHub(cfg *config, log *slog.Logger, trace func(dir string, rec []byte)) (*hub, *auditLog) {
	path := cfg.auditFile()
	if !cfg.persistThreads {
		path = "" // to the log
	}
	audit := openAudit(path, log)
	audit.names = cfg.names
	reg := newRegistry(cfg.sessionsRoot, cfg.team, cfg.persistThreads, log)
	h := newHub(cfg, log, reg, audit)
	h.child.spawn = codexSpawner(cfg, log, trace, childHooks{limits: h.hearLimits})
	if !cfg.teamless {
		h.tools.run, h.tools.specs = h.team.runAgentTool, agentToolSpecs()
		h.tools.server = newToolServerEntry(selfPath(), cfg.cwd, cfg.namedFile, os.Environ())
	}
	return h, audit
}

// childHooks are told what isn't of a session: news, which are how logins end and that skills have changed, and the
// account's limits. Either may be nil.
type childHooks struct {
	news   func(method string, params json.RawMessage)
	limits func(limit json.RawMessage)
}

// codexSpawner is how a child is started: the codex of cfg, by the backend of
// cfg. doctor starts one the same way.
func codexSpawner(cfg *config, log *slog.Logger, trace func(dir string, rec []byte),
	hooks childHooks) func(context.Context, func(*childDeath)) (backend, error) {
	probe := &childProbe{}
	return func(ctx context.Context, gone func(*childDeath)) (backend, error) {
		codex, err := probe.probeBackend(ctx, cfg.codexBin, cfg.backend, nil)
		link := linkOptions{Path: codex.Path, Args: codex.Args, Dir: cfg.cwd, Log: log, Trace: trace, OnGone: gone,
			OnLimits: hooks.limits}
		switch {
		case err != nil:
			return nil, err
		case codex.AppServer:
			return startAppServer(ctx, appServerOptions{linkOptions: link, OnNews: hooks.news})
		case codex.MCPServer:
			be, err := startMCPServer(ctx, mcpServerOptions{linkOptions: link, Home: codexHomeDir(cfg.home)})
			if err == nil {
				return be, nil
			}
			if death := (*childDeath)(nil); !errors.As(err, &death) || !tookForPrompt(death.Stderr) {
				return nil, err
			}
		}
		return nil, neverStarted(codex.Path, missingBackend(codex.Path, cfg.backend))
	}
}

// tookForPrompt knows the words of a Codex without the command that it was
// started with (0.169): a word it doesn't know is a prompt, for which it wants a
// terminal. The help of such a Codex was asked before; this is for a help that told
// nothing.
func tookForPrompt(stderr string) bool {
	return strings.Contains(stderr, "stdin is not a terminal") || strings.Contains(stderr, "unrecognized subcommand")
}

// missingBackend says what a binary lacks and what to do about it.
func missingBackend(path, want string) string {
	switch want {
	case "mcp-server":
		return fmt.Sprintf("%s has no mcp-server command, which Codex 0.154 removed; its app-server serves the same "+
			"tools: set backend = \"auto\", or name a Codex up to 0.153 with codex_bin", path)
	case "app-server":
		return fmt.Sprintf("%s has no app-server command, so it is older than 0.104 or no Codex; update it with `npm "+
			"install -g @openai/codex`, name another with codex_bin, or set backend = \"auto\"", path)
	}
	return fmt.Sprintf("%s has neither app-server nor mcp-server, so it is no Codex, or one that is too old; install "+
		"a newer one with `npm install -g @openai/codex`, or name another with codex_bin", path)
}

// openLog is stderr, or the file of log_file in its place.
func openLog(cfg *config, stderr io.Writer) (io.Writer, error) {
	switch cfg.logFile {
	case "":
		return stderr, nil
	case os.DevNull:
		return io.Discard, nil
	}
	f, err := openOwn(cfg.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening log_file: %w", err)
	}
	return f, nil
}
