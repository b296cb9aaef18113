package main

// mock_work.go owns what the mock Codex's model does: the directives that a line of a prompt can begin with. Shell
// commands really run, patches are really made, and the client is asked first, by policy. mock_turn.go calls them on
// the turn's goroutine. A wait must go through mockTurn.wait, or no interrupt would end it; no shell may run that
// killShells can't find.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func mockDirectives() map[string]mockDirective {
	return map[string]mockDirective{
		"SAY":      func(t *mockTurn, text string) mockEnd { return t.say(text, nil) },
		"SLOW":     slowDirective,
		"REASON":   (*mockTurn).reason,
		"SHELL":    func(t *mockTurn, line string) mockEnd { return t.shell(line, false, false) },
		"SHELLESC": func(t *mockTurn, line string) mockEnd { return t.shell(line, true, false) },
		"PATCH":    patchDirective,
		"HANG":     func(t *mockTurn, _ string) mockEnd { return t.wait(nil, true) },
	}
}

// slowDirective spreads a text over some milliseconds: SLOW ms text.
func slowDirective(t *mockTurn, arg string) mockEnd {
	ms, text := mockCount(arg, 1000)
	if text == "" {
		text = fmt.Sprintf("slow answer after %d ms, in small pieces", ms)
	}
	n := max(4, (ms+499)/500)
	it := t.messageBegin(nil)
	for _, p := range mockPieces(text, n) {
		t.delta(it, p)
		if end := t.pause(time.Duration(ms) * time.Millisecond / time.Duration(n)); end != goOn {
			return end // the partial message never completes
		}
	}
	t.messageEnd(it, text)
	return goOn
}

// ask sends a request and waits for its answer. flag is what the thread's status shows meanwhile; "" for a request that
// the status doesn't show.
func (t *mockTurn) ask(method string, params map[string]any, flag string) (json.RawMessage, mockEnd) {
	params["threadId"], params["turnId"] = t.th.ID, t.id
	t.m.told(method, params)
	t.m.double(method, params)
	if t.m.mcp != nil {
		return t.elicit(method, params)
	}
	var result json.RawMessage
	answered := make(chan struct{})
	id := t.m.peer.call(method, params, 0, func(r json.RawMessage, err error) {
		if err == nil {
			result = r
		}
		close(answered)
	})
	resolved := map[string]any{"threadId": t.th.ID, "requestId": id}
	end := t.wait(answered, false)
	if end != goOn {
		t.m.peer.abandon(id) // a late answer is ignored, and may just be writing result
		if end == interrupted {
			t.counts()
		}
		if flag != "" { // measured: the request is resolved after turn/completed
			t.after = append(t.after, func() { t.th.tell("serverRequest/resolved", resolved) })
		}
		return nil, end
	}
	if flag != "" {
		t.th.tell("serverRequest/resolved", resolved)
	}
	return result, goOn
}

// mockDecision reads an approval's answer: accept, acceptForSession, decline, cancel, or for everything else failed,
// which never approves.
func mockDecision(result json.RawMessage) string {
	d := rawField(result, "decision")
	if w, ok := rawString(d); ok && slices.Contains([]string{"accept", "acceptForSession", "decline", "cancel"}, w) {
		return w
	}
	if rawField(d, "acceptWithExecpolicyAmendment") != nil {
		return "acceptForSession"
	}
	return "failed"
}

// mustAsk tells whether a command needs the client's approval, and whether it is refused without asking.
func (t *mockTurn) mustAsk(line string, escalate bool) (ask, refused bool) {
	t.m.mu.Lock()
	allowed := t.th.allowed[line]
	t.m.mu.Unlock()
	beyond := escalate && t.settings.sandbox() != "dangerFullAccess"
	switch policy := t.settings.approval(); {
	case allowed:
		return false, false
	case policy == "untrusted":
		return true, false
	case policy == "never":
		return false, beyond
	}
	return beyond, false
}

// mockShell is one running command. A goroutine of its own waits for its end.
type mockShell struct {
	turn  *mockTurn
	item  map[string]any
	begun time.Time
	group *procGroup
	ended chan struct{} // closed when the process has ended

	mu   sync.Mutex // guards the fields below
	out  []byte
	late bool // the turn waits no more, so the command's own goroutine completes its item
	over bool // the process has ended
	told bool // the item was completed
	code int
}

func (s *mockShell) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.out = append(s.out, b...)
	s.mu.Unlock()
	s.turn.outputDelta(s.item["id"].(string), string(b))
	return len(b), nil
}

// commandItem is the item of a command line that hasn't begun.
func (t *mockTurn) commandItem(line string) map[string]any {
	quoted := "'" + strings.ReplaceAll(line, "'", `'\''`) + "'"
	return t.item("commandExecution", t.m.newID("call"), map[string]any{
		"command": "/bin/bash -lc " + quoted, "cwd": t.settings.Cwd, "processId": nil, "status": "inProgress",
		"commandActions":   []any{map[string]any{"type": "unknown", "command": line}},
		"aggregatedOutput": nil, "exitCode": nil, "durationMs": nil, "source": "agent"})
}

func (t *mockTurn) shell(line string, escalate, background bool) mockEnd {
	ask, refused := t.mustAsk(line, escalate)
	if refused {
		return t.toolAnswered("approval policy is Never; reject command — " +
			"you should not ask for escalated permissions if the approval policy is Never")
	}
	it := t.commandItem(line)
	late := t.m.early || t.m.mcp != nil
	if ask {
		if !late {
			t.setStatus("active", "waitingOnApproval")
			t.started(it)
		}
		if end := t.askCommand(it, line, escalate); end != goOn || it["status"] != "inProgress" {
			return end
		}
	}
	return t.runShell(it, line, !ask || late, background)
}

// askCommand asks for a command. It leaves a status other than inProgress in the item when the command must not run.
func (t *mockTurn) askCommand(it map[string]any, line string, escalate bool) mockEnd {
	params := map[string]any{"itemId": it["id"], "command": it["command"], "cwd": t.settings.Cwd,
		"commandActions": it["commandActions"]}
	if escalate {
		params["reason"] = "mock model wants it"
	}
	result, end := t.ask("item/commandExecution/requestApproval", params, "waitingOnApproval")
	if end != goOn {
		return end
	}
	decision := mockDecision(result)
	why := "rejected by user"
	switch decision {
	case "acceptForSession":
		t.m.mu.Lock()
		t.th.allowed[line] = true
		t.m.mu.Unlock()
		fallthrough
	case "accept":
		t.setStatus("active")
		return goOn
	case "failed":
		it["status"], why = "failed", "approval request failed"
	default:
		it["status"] = "declined"
	}
	t.completed(it)
	t.setStatus("active")
	if said := stringField(result, "rejection"); said != "" { // mcp-server since 0.148
		why = said
	}
	t.toolAnswered("exec_command failed: Rejected(" + strconv.Quote(why) + ")")
	if decision == "cancel" {
		return interrupted
	}
	return goOn
}

// runShell starts the command and waits for its end, unless it is a background command. show says that the item hasn't
// been shown as started yet.
func (t *mockTurn) runShell(it map[string]any, line string, show, background bool) mockEnd {
	m := t.m
	s := &mockShell{turn: t, item: it, begun: time.Now(), ended: make(chan struct{}), late: background}
	cmd := m.shell(context.Background(), line)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.settings.Cwd, s, s
	cmd.WaitDelay = 100 * time.Millisecond // a grandchild may hold the pipe
	s.group = newProcGroup(cmd)
	it["processId"], it["source"] = strconv.Itoa(10000+int(m.ids.Add(1))), "unifiedExecStartup"
	if show {
		t.started(it)
	}
	m.mu.Lock() // or a clean could miss what runs already
	err := cmd.Start()
	if err == nil {
		_ = s.group.attach(cmd) // if it fails, only the shell itself can be killed
		m.shells[s] = true
		if m.ended {
			s.kill()
		}
	}
	m.mu.Unlock()
	if err != nil {
		it["status"], it["aggregatedOutput"] = "failed", err.Error()
		t.completed(it)
		return t.toolAnswered("exec_command failed: " + err.Error())
	}
	m.turns.Go(func() { // ends with the command
		_ = cmd.Wait() // the code below says how it ended
		s.group.close()
		m.mu.Lock()
		delete(m.shells, s)
		m.mu.Unlock()
		s.mu.Lock()
		s.over, s.code = true, cmd.ProcessState.ExitCode()
		late := s.late
		s.mu.Unlock()
		close(s.ended)
		if late && t.alive() {
			t.shellItem(s)
		}
	})
	if background {
		return t.toolAnswered("Process running in the background")
	}
	if end := t.wait(s.ended, false); end != goOn {
		s.mu.Lock()
		s.late = true // it runs on; its item completes when it ends or is cleaned
		over := s.over
		s.mu.Unlock()
		if end == interrupted {
			t.counts()
			if over {
				t.shellItem(s)
			}
		}
		return end
	}
	t.shellItem(s)
	return t.toolAnswered(fmt.Sprintf("Chunk ID: %06x\nWall time: %.4f seconds\nProcess exited with code %d\n"+
		"Original token count: %d\nOutput:\n%s",
		m.ids.Load(), time.Since(s.begun).Seconds(), s.code, (len(s.out)+3)/4, s.out))
}

// shellItem completes the item of a command that has ended.
func (t *mockTurn) shellItem(s *mockShell) {
	s.mu.Lock()
	out, code, told := string(s.out), s.code, s.told
	s.told = true
	s.mu.Unlock()
	if told { // the command was killed while its turn waited for it
		return
	}
	it := s.item
	it["status"], it["exitCode"], it["durationMs"] = "completed", code, time.Since(s.begun).Milliseconds()
	if code != 0 {
		it["status"] = "failed"
	}
	if out != "" {
		it["aggregatedOutput"] = out
	}
	t.completed(it)
}

func (s *mockShell) kill() { s.group.kill() } // gone already is as good

func (t *mockTurn) alive() bool {
	select {
	case <-t.m.done:
		return false
	default:
		return true
	}
}

// killShells ends the shells of a thread, nil: of all.
func (m *mockServer) killShells(th *mockThread) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.shells {
		if th == nil || s.turn.th == th {
			s.mu.Lock()
			s.late = true
			s.mu.Unlock()
			s.kill()
		}
	}
}

func (t *mockTurn) inCwd(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(t.settings.Cwd, name)
}

// patchDirective adds a file: PATCH path text.
func patchDirective(t *mockTurn, arg string) mockEnd {
	name, text, _ := strings.Cut(arg, " ")
	if text == "" {
		text = "hello"
	}
	text += "\n"
	path := t.inCwd(name)
	diff := fmt.Sprintf("diff --git a/%s b/%[1]s\nnew file mode 100644\n"+
		"index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a\n"+
		"--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1 @@\n+%s", name, text)
	return t.patchFile(mockChange{name: "A " + name, path: path, kind: map[string]any{"type": "add"}, text: text,
		diff: diff, apply: func() error {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			return os.WriteFile(path, []byte(text), 0o644)
		}})
}

// mockChange is what a patch does to one file.
type mockChange struct {
	name  string // as the model hears of it: A path
	path  string
	kind  map[string]any
	text  string // what is added or deleted, the hunks of what is updated
	diff  string // as git shows it
	apply func() error
}

func (t *mockTurn) patchFile(c mockChange) mockEnd {
	inside := strings.HasPrefix(c.path, filepath.Clean(t.settings.Cwd)+string(filepath.Separator))
	free := t.settings.sandbox() == "dangerFullAccess" || t.settings.sandbox() == "workspaceWrite" && inside
	if !free && t.settings.approval() == "never" {
		return t.toolAnswered("patch rejected: writing outside of the project; rejected by user approval settings")
	}
	it := t.item("fileChange", t.m.newID("call"), map[string]any{"status": "inProgress",
		"changes": []any{map[string]any{"path": c.path, "kind": c.kind, "diff": c.text}}})
	t.started(it)
	if !free || t.settings.approval() == "untrusted" {
		if end := t.askPatch(it); end != goOn || it["status"] != "inProgress" {
			return end
		}
	}
	it["status"] = "completed"
	said := "Success. Updated the following files:\n" + c.name + "\n"
	if err := c.apply(); err != nil {
		it["status"], said = "failed", "Failed to write file "+c.path+": "+err.Error()
	}
	t.completed(it)
	t.patch += c.diff
	t.diff()
	t.toolAnswered("Exit code: 0\nWall time: 0 seconds\nOutput:\n" + said)
	t.diff()
	return goOn
}

// askPatch asks for a patch. It leaves a status other than inProgress in the item when the patch must not be applied. A
// patch whose approval is cancelled gets no item/completed.
func (t *mockTurn) askPatch(it map[string]any) mockEnd {
	t.setStatus("active", "waitingOnApproval")
	result, end := t.ask("item/fileChange/requestApproval", map[string]any{"itemId": it["id"]}, "waitingOnApproval")
	if end != goOn {
		return end
	}
	t.setStatus("active")
	decision := mockDecision(result)
	if strings.HasPrefix(decision, "accept") {
		return goOn
	}
	it["status"] = "declined"
	if decision != "cancel" || t.m.early {
		t.completed(it)
	}
	t.toolAnswered("patch rejected by user")
	if decision == "cancel" {
		return interrupted
	}
	return goOn
}
