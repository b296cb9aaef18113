package main

// registry_audit.go owns the audit trail of FR-9: who asked which agent what, which approvals were asked and given,
// which sessions closed; one JSON line each, appended to agent-sessions/<team>/audit.jsonl by every process of the
// team. session_ledger.go and the mail tools append to it; the composition root opens and closes it.
// Never lets a caller wait for the disk (but for appendNow, whose point that is, and which no session's loop calls),
// never waits for a lock, never writes a secret that can be recognized, never rewrites a line.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

const (
	auditQueue        = 1024     // entries that wait for the disk; more are dropped and counted
	auditMaxBytes     = 10 << 20 // the file is moved to audit.jsonl.1 beyond that
	auditSummaryChars = 200      // FR-9.2
	auditDetailChars  = 2000
	// A text is cut to this many bytes for each character it may have before it is
	// redacted: a long prompt costs nothing, and no secret is cut in half and missed.
	auditClipFactor = 16
	auditNowLimit   = 5 * time.Second // a network's disk may hang
	auditCloseLimit = 2 * time.Second // the process ends without what a disk that hangs has not taken
)

var errAuditClosed = errors.New("the audit log is closed")

// auditEntry is one line. FR-9.3: agent_id and identity stand in every line.
type auditEntry struct {
	Time        time.Time `json:"time"` // set by append if zero
	Event       string    `json:"event"`
	Correlation string    `json:"correlation_id,omitempty"`
	AgentID     string    `json:"agent_id"`
	Identity    string    `json:"identity"`
	Thread      string    `json:"thread_id,omitempty"`
	Turn        string    `json:"turn_id,omitempty"`
	Recipient   string    `json:"recipient,omitempty"`
	Summary     string    `json:"summary,omitempty"` // cut to 200 characters
	Decision    string    `json:"decision,omitempty"`
	Detail      string    `json:"detail,omitempty"` // cut to 2000 characters
}

// auditLog is safe for use by many goroutines. One of its own, run, owns the file; close ends it.
type auditLog struct {
	path     string // "": entries are lines of the log
	log      *slog.Logger
	names    *names // the names of the fields in the file's lines; set before the first entry
	queue    chan auditItem
	stop     chan struct{} // closed by the first close
	exited   chan struct{} // closed when run has written what was queued
	stopping atomic.Bool   // close was called
	used     atomic.Bool   // an entry was given: there is a story that has an end
	dropped  atomic.Uint64 // entries that never reached the queue

	// Owned by run:
	maxBytes int64    // the file is rotated beyond that; doubles when rotating fails
	file     *os.File // nil before the first entry, and while the file is rotated
	told     uint64   // how many of the dropped entries were reported
	failing  bool     // the last write failed and was reported
}

// auditItem is what waits for run: an entry, or a question when all before it is written.
type auditItem struct {
	entry *auditEntry // nil: flush asks
	done  chan error  // gets the outcome, where somebody waits for it; has room for one
}

// openAudit starts the writer. The file is made by the first entry: starting a server must not wait for a disk, nor
// fail for one that can't be written. Without a path the entries are lines of the log: persist_threads = false keeps
// nothing on disk.
func openAudit(path string, log *slog.Logger) *auditLog {
	return openAuditSize(path, log, auditMaxBytes, auditQueue)
}

func openAuditSize(path string, log *slog.Logger, maxBytes int64, queue int) *auditLog {
	a := &auditLog{
		path:     path,
		maxBytes: maxBytes,
		log:      log,
		queue:    make(chan auditItem, queue),
		stop:     make(chan struct{}),
		exited:   make(chan struct{}),
	}
	go a.run()
	return a
}

// append queues the entry and returns at once; if the disk is so far behind
// that the queue is full, the entry is dropped and counted.
func (a *auditLog) append(e auditEntry) {
	a.used.Store(true)
	if a.stopping.Load() {
		a.dropped.Add(1)
		return
	}
	select {
	case a.queue <- auditItem{entry: e.clip()}:
	default:
		a.dropped.Add(1)
	}
}

// appendNow returns when the entry is in the file, behind all that was queued
// before it: an approval is on disk before the decision is sent.
func (a *auditLog) appendNow(e auditEntry) error {
	a.used.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), auditNowLimit)
	defer cancel()
	return a.wait(ctx, e.clip())
}

// flush returns when all that was queued before it is in the file.
func (a *auditLog) flush(ctx context.Context) error {
	return a.wait(ctx, nil)
}

// close writes what is queued and ends the writer, in auditCloseLimit; entries
// that come later are dropped. It may be called more than once.
func (a *auditLog) close() {
	if !a.stopping.Swap(true) {
		close(a.stop)
	}
	limit := time.NewTimer(auditCloseLimit)
	defer limit.Stop()
	select {
	case <-a.exited:
	case <-limit.C:
		a.log.Warn("the last audit entries are not on disk, which doesn't answer", "path", a.path, "entries",
			len(a.queue))
	}
}

func (a *auditLog) wait(ctx context.Context, entry *auditEntry) error {
	it := auditItem{entry, make(chan error, 1)}
	select {
	case a.queue <- it:
	case <-a.exited:
		return errAuditClosed
	case <-ctx.Done():
		return fmt.Errorf("waiting for the audit log: %w", ctx.Err())
	}
	select {
	case err := <-it.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the audit log: %w", ctx.Err())
	case <-a.exited:
	}
	select { // it may have been written as the writer's last
	case err := <-it.done:
		return err
	default:
		return errAuditClosed
	}
}

func (a *auditLog) run() {
	defer close(a.exited)
	defer func() {
		if a.file != nil {
			a.file.Close()
		}
	}()
	for {
		select {
		case it := <-a.queue:
			a.handle(it)
		case <-a.stop:
			for {
				select {
				case it := <-a.queue:
					a.handle(it)
				default:
					a.tellDrops()
					return
				}
			}
		}
	}
}

func (a *auditLog) handle(it auditItem) {
	var err error
	if it.entry != nil {
		err = a.write(*it.entry)
		if err != nil && !a.failing {
			a.log.Warn("audit entries can't be written; make the file writable", "path", a.path, "error", err)
		}
		a.failing = err != nil
	}
	if len(a.queue) == 0 {
		a.tellDrops()
	}
	if it.done != nil {
		it.done <- err
	}
}

// tellDrops speaks once per burst: when the writer has caught up.
func (a *auditLog) tellDrops() {
	if n := a.dropped.Load(); n > a.told {
		a.log.Warn("audit entries dropped, the disk is too slow", "path", a.path, "dropped", n-a.told)
		a.told = n
	}
}

// write appends one line by one write call. What is opened to append is written at its end whoever else writes, which
// the kernel sees to under the file's own lock, so there is none of ours to wait for.
func (a *auditLog) write(e auditEntry) error {
	e.Identity, e.Recipient = redact(e.Identity), redact(e.Recipient) // of a refused call they are whatever was given
	e.Summary = clipChars(redact(e.Summary), auditSummaryChars)
	e.Detail = clipChars(redact(e.Detail), auditDetailChars)
	e.Decision = clipChars(redact(e.Decision), auditSummaryChars)
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding audit entry: %w", err)
	}
	line = a.names.fields(line, listed)
	if a.path == "" {
		a.log.Info("audit", "entry", string(line))
		return nil
	}
	line = append(line, '\n')
	size, err := a.reopen()
	if err == nil && size > 0 && size+int64(len(line)) > a.maxBytes {
		a.rotate(int64(len(line)))
		_, err = a.reopen()
	}
	if err != nil {
		return err
	}
	if _, err := a.file.Write(line); err != nil {
		return fmt.Errorf("appending to audit log: %w", err)
	}
	return nil
}

// reopen makes a.file the file that is at the path now, which another process
// may have rotated or a person removed, and returns its size.
func (a *auditLog) reopen() (int64, error) {
	if a.file != nil {
		there, err := os.Lstat(a.path)
		mine, err2 := a.file.Stat()
		if err == nil && err2 == nil && os.SameFile(there, mine) {
			return mine.Size(), nil
		}
		a.file.Close()
		a.file = nil
	}
	f, err := openMaking(a.path, os.O_APPEND)
	if err != nil {
		return 0, fmt.Errorf("opening audit log: %w", err)
	}
	a.file = f
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("opening audit log: %w", err)
	}
	return st.Size(), nil
}

// rotate keeps one old file. The processes that want to agree by a lock that nobody waits for: while another has it,
// the file just grows. The others write on meanwhile. A line that one of them writes between its look at the name and
// the rename stands in the old file, whole; it is lost only if all of maxBytes is written once more in that moment.
func (a *auditLog) rotate(room int64) {
	lock, err := openMaking(a.path+".lock", os.O_APPEND)
	if err == nil {
		defer lock.Close()
		if err = lockFile(lock, true, false); errors.Is(err, errLocked) {
			return
		}
	}
	if err == nil {
		defer unlockFile(lock)
		size, err2 := a.reopen() // another may have rotated it just now
		if err2 != nil || size == 0 || size+room <= a.maxBytes {
			return
		}
		err = renameOver(a.path, a.path+".1")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// Windows, while another program has it open and doesn't let it be renamed. A file that grows is better
		// than a line that is lost; the next try is at twice the size.
		a.maxBytes *= 2
		a.log.Warn("audit log can't be rotated", "path", a.path, "error", err)
	}
}

// clip bounds what waits in the queue. The clones matter: a substring would
// keep a 60 KB prompt alive until it is written.
func (e auditEntry) clip() *auditEntry {
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	e.Summary = clipUTF8(e.Summary, auditSummaryChars*auditClipFactor)
	e.Decision = clipUTF8(e.Decision, auditSummaryChars*auditClipFactor)
	e.Detail = clipUTF8(e.Detail, auditDetailChars*auditClipFactor)
	return &e
}
