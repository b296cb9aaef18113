package main

// session_ledger.go owns what is written down of sessions while they live: records and the index, audit lines, long
// answers, and the reading of their surroundings. Session loops and the hub call it. On the way to an answer they wait
// for nothing here but what it depends on: an approval's audit line, a new thread's record, the file of an answer that
// is cut.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ledger may be used from any goroutine.
type ledger struct {
	cfg   *config
	log   *slog.Logger
	reg   *registry
	audit *auditLog

	warnSave, warnAudit sync.Once // a full disk is told once

	mu       sync.Mutex        // guards the fields below
	open     map[string]record // of the open sessions, as they know them
	kept     map[string]record // of those that aren't on disk: persist_threads = false, or it can't be written
	instance string            // identity that names this instance's index
}

func newLedger(cfg *config, log *slog.Logger, reg *registry, audit *auditLog) *ledger {
	return &ledger{cfg: cfg, log: log, reg: reg, audit: audit, open: map[string]record{}, kept: map[string]record{}}
}

// named tells the identity of a session; the first one names the index.
func (l *ledger) named(identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.instance == "" {
		l.instance = identity
	}
}

// leave takes an ended session out of the index.
func (l *ledger) leave(agentID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, listed := l.open[agentID]; listed {
		delete(l.open, agentID)
		l.indexLocked()
	}
}

// onNoDisk reports a session that this process alone knows of.
func (l *ledger) onNoDisk(agentID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, kept := l.kept[agentID]
	return kept
}

// record is what is known of a session, nil if that is nothing: of an open one what the session knows, which may be
// ahead of its file. It may read the disk.
func (l *ledger) record(agentID string) *record {
	l.mu.Lock()
	known, here := l.open[agentID]
	if !here {
		known, here = l.kept[agentID]
	}
	l.mu.Unlock()
	if here {
		return &known
	}
	rec, err := l.reg.load(agentID)
	if err != nil {
		return nil // there is none, or it can't be read, which load has told
	}
	return rec
}

// records lists the team's sessions, newest first: the limit newest on disk, or all of them for 0, and those that are
// open here or on no disk. With an error it still lists the latter. It reads the disk.
func (l *ledger) records(limit int) ([]record, error) {
	onDisk, err := l.reg.list(limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	here := maps.Clone(l.kept)
	maps.Copy(here, l.open)
	out := slices.Collect(maps.Values(here))
	for _, r := range onDisk {
		if _, newer := here[r.AgentID]; !newer {
			out = append(out, r)
		}
	}
	sortNewestFirst(out)
	return out, err
}

// summaryPath is the file of a session's summary (FR-6.4), "" where it has none.
func (l *ledger) summaryPath(rec *record) string {
	if rec.SummaryDir == "" || !filepath.IsLocal(rec.SummaryDir) || !l.cfg.persistThreads {
		return "" // a person can edit a record
	}
	return filepath.Join(l.cfg.sessionsRoot, rec.SummaryDir, "summary.md")
}

// summary is what a session wrote as it ended, "" if that is nothing. It reads the disk.
func (l *ledger) summary(rec *record) string {
	if rec.Status == "" { // a thread that only Codex knows, and the ancestor maybe
		return l.cfg.findOldSession(rec.BackendID).text()
	}
	path := l.summaryPath(rec)
	if path == "" {
		return ""
	}
	data, err := readRegular(path, maxSummaryBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Warn("a summary could not be read", "path", path, "err", err)
	}
	return string(data)
}

// flush has all that was saved written, and then on the platter.
func (l *ledger) flush(ctx context.Context) {
	if err := l.reg.flush(ctx); err != nil {
		l.log.Warn("flushing records", "err", err)
	}
}

// close writes what is pending. Nothing may be saved after it.
func (l *ledger) close(ctx context.Context) {
	if err := l.reg.close(ctx); err != nil {
		l.log.Warn("closing records", "err", err)
	}
	if err := l.audit.flush(ctx); err != nil {
		l.log.Warn("flushing the audit log", "err", err)
	}
}

// save returns when a session's record is in its file, and has the index follow.
func (l *ledger) save(rec *record) {
	err := l.reg.save(*rec)
	if err != nil {
		l.warnUnsaved(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || !l.cfg.persistThreads {
		l.keepLocked(*rec)
	} else {
		delete(l.kept, rec.AgentID) // what was kept while the disk failed
	}
	l.openLocked(rec)
}

// put writes the record of a session that nobody has open.
func (l *ledger) put(rec *record) error {
	if l.onNoDisk(rec.AgentID) {
		l.save(rec)
		return nil
	}
	l.leave(rec.AgentID)
	return l.reg.save(*rec)
}

// noteTurn has the start or the end of a turn outlive us, and the index follow;
// see noted where the turn's result is written with it.
func (l *ledger) noteTurn(rec *record) { l.noted(rec, l.reg.noteTurn(rec.AgentID, rec, nil)) }

// noted is told of a turn's start or end that was written, or could not be.
func (l *ledger) noted(rec *record, err error) {
	if err != nil {
		l.warnUnsaved(err)
	}
	if l.onNoDisk(rec.AgentID) || err != nil || !l.cfg.persistThreads {
		l.save(rec) // a note alone resumes nothing
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.openLocked(rec)
}

// openLocked has the index list a session as it is now, as long as it is open.
func (l *ledger) openLocked(rec *record) {
	if delete(l.open, rec.AgentID); isOpen(rec.Status) {
		l.open[rec.AgentID] = *rec
	}
	l.indexLocked()
}

func (l *ledger) warnUnsaved(err error) {
	l.warnSave.Do(func() {
		l.log.Warn("session records can't be written; sessions won't survive this process", "err", err)
	})
}

// unsaved tells a user that records can't be written, "" while they can be.
func (l *ledger) unsaved() string {
	if err := l.reg.unwritten.Load(); err != nil && *err != nil {
		return "What is needed to resume agents can't be written, so they won't survive this process: " +
			errorText(*err)
	}
	return ""
}

// maxKept is how many sessions that aren't on disk are remembered.
const maxKept = 200

// keepLocked remembers a session that is on no disk, so that a parked one is found by its next reply.
func (l *ledger) keepLocked(rec record) {
	l.kept[rec.AgentID] = rec
	if len(l.kept) <= maxKept {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Values(l.kept)),
		func(a, b record) int { return a.LastActive.Compare(b.LastActive) })
	delete(l.kept, oldest.AgentID)
}

// indexLocked has this instance's registry.json list what is open (FR-5.3).
func (l *ledger) indexLocked() {
	if l.instance != "" {
		l.reg.setIndex(l.instance, slices.Collect(maps.Values(l.open)))
	}
}

// auditTurn notes a forwarded turn (FR-9.2), event "turn", or a message that goes into the turn of an id, "steer".
func (l *ledger) auditTurn(s *session, event string, t *turn, id string) {
	e := auditEntry{Event: event, Correlation: t.req.correlation, AgentID: s.agentID, Identity: s.place.rec.Identity,
		Thread: s.thread, Turn: id}
	if m := t.req.mail; m != nil {
		e.Detail = "message_ids: " + strings.Join(m.ids, " ")
		if t.req.source == sourceMail {
			e.Event = "mail_turn"
		}
	}
	if t.req.action != actPrompt {
		e.Detail = t.req.action.word()
	}
	if l.cfg.persistThreads { // else who did what is kept, not what was said
		if e.Summary = t.req.prompt; t.req.source == sourceMail {
			e.Summary = t.req.mail.words
		}
	}
	l.audit.append(e)
}

// auditMail notes what became of mail beside a turn: a frame that was taken
// note of or answered, and auto-mail's pauses.
func (l *ledger) auditMail(agentID, identity, event, recipient, summary, detail string) {
	e := auditEntry{Event: event, AgentID: agentID, Identity: identity, Recipient: recipient, Detail: detail}
	if l.cfg.persistThreads {
		e.Summary = summary
	}
	l.audit.append(e)
}

// auditChoice notes what a person chose for a session's later turns.
func (l *ledger) auditChoice(rec *record, set sessionSettings) {
	l.audit.append(auditEntry{Event: "settings", AgentID: rec.AgentID, Identity: rec.Identity, Thread: rec.BackendID,
		Detail: fmt.Sprintf("sandbox %s, approval %s, model %q, effort %q, plan mode %t, by the client", set.Sandbox,
			set.Approval, set.Model, set.Effort, set.Plan)})
}

// decisionLine is what the audit log tells of an approval.
func (l *ledger) decisionLine(s *session, p *pendingAsk, by decider, d decision) auditEntry {
	e := auditEntry{Event: "approval", Correlation: p.correlation, AgentID: s.agentID, Identity: s.place.rec.Identity,
		Thread: p.thread, Turn: p.turn, Summary: p.action, Decision: d.String(), Detail: p.kind + ", " + by.words(d)}
	if d == approveAlways {
		e.Detail += ", rule: " + string(toJSON(p.rule))
	}
	if sub := p.asker(); sub != "" {
		e.Detail += ", for subagent " + sub
	}
	return e
}

// auditNow writes a decision down before it is sent; it waits for the disk.
func (l *ledger) auditNow(e auditEntry) {
	if err := l.audit.appendNow(e); err != nil {
		l.warnAudit.Do(func() { l.log.Warn("the audit log can't be written", "err", err) })
	}
}

// auditClose notes the end of a session.
func (l *ledger) auditClose(agentID, identity, thread, how, correlation string) {
	l.audit.append(auditEntry{Event: "close", Correlation: correlation, AgentID: agentID, Identity: identity,
		Thread: thread, Detail: how})
}

// auditShutdown notes the end of the instance, if it did anything.
func (l *ledger) auditShutdown(why string) {
	if !l.audit.used.Load() {
		return
	}
	l.mu.Lock()
	instance := l.instance
	l.mu.Unlock()
	l.audit.append(auditEntry{Event: "shutdown", Identity: instance, Detail: why})
}

// fit cuts an answer to max_answer_bytes and keeps the whole in a file, which
// the cut answer names. A client with sessions of its own was told all of it.
func (l *ledger) fit(text string, p *place, turnID string) string {
	limit := l.cfg.maxAnswerBytes
	if limit <= 0 || len(text) <= limit {
		return text
	}
	shown := clipUTF8(text, limit)
	tail := fmt.Sprintf("\n\n[answer cut: %d of %d bytes shown", len(shown), len(text))
	if !p.client {
		path, err := l.keepBeside(p, turnID+".md", text)
		if err == nil {
			tail += "; the whole is in " + path
		} else if !errors.Is(err, errNotKept) {
			l.log.Warn("a long answer could not be kept", "err", err)
		}
	}
	return shown + tail + "]"
}

// errNotKept: nothing of the kind is kept on disk.
var errNotKept = errors.New("persist_threads is off, so nothing is kept on disk")

// keepBeside writes a text of a turn, which is too long for a result, to a file of the session; name is the turn's id
// with an ending.
func (l *ledger) keepBeside(p *place, name, text string) (path string, err error) {
	if !l.cfg.persistThreads {
		return "", errNotKept
	}
	if id := strings.TrimSuffix(name, filepath.Ext(name)); !validThreadID(id) {
		return "", fmt.Errorf("%q is no turn's id", cutName(id))
	}
	path = filepath.Join(l.cfg.sessionsRoot, p.rec.SummaryDir, "answers", name)
	return path, writeWhole(path, []byte(text))
}
