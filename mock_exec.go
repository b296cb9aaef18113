package main

// mock_exec.go owns what the mock Codex's model does to the world: shell
// commands, which really run, patches, and the questions that it asks the
// client first, by policy and version. Directives in mock_directive.go call it on
// the turn's goroutine. It must never leave a shell that killShells can't find.

import (
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

// mockShell is one running command. Its goroutine waits for its end.
type mockShell struct {
	turn  *mockTurn
	item  map[string]any
	begun time.Time
	kill  func()
	ended chan struct{} // closed when the process has ended

	mu   sync.Mutex // guards the fields below
	out  []byte
	late bool // the turn waits no more: the item completes by itself
	over bool
	told bool // its item was completed, by the turn or by itself
	code int
}

func (s *mockShell) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.out = append(s.out, b...)
	s.mu.Unlock()
	s.turn.outputDelta(s.item["id"].(string), string(b))
	return len(b), nil
}

// ask sends a request and waits for its answer; nobody answers a second time.
// The thread's status shows flag meanwhile.
func (t *mockTurn) ask(method string, params map[string]any, flag string) (json.RawMessage, mockEnd) {
	if t.m.mcp != nil {
		return t.mcpAsk(method, params)
	}
	params["threadId"], params["turnId"] = t.th.ID, t.id
	var result json.RawMessage
	answered := make(chan struct{})
	id := t.m.peer.call(method, params, 0, func(r json.RawMessage, err error) {
		if err == nil {
			result = r
		}
		close(answered)
	})
	end := t.wait(answered, false)
	if end != goOn {
		t.m.peer.abandon(id) // a late answer is ignored
	}
	if end == interrupted {
		t.toolEnded()
	}
	if flag == "" || t.m.old() {
		return result, end
	}
	resolved := map[string]any{"threadId": t.th.ID, "requestId": id}
	if end != goOn { // measured: the request is resolved after turn/completed
		t.after = append(t.after, func() { t.m.tell(t.th, "serverRequest/resolved", resolved) })
		return nil, end
	}
	t.m.tell(t.th, "serverRequest/resolved", resolved)
	return result, end
}

// mockDecision reads an approval's answer: accept, acceptForSession, decline,
// cancel, or failed for everything else, which never approves.
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

// keepMockRule writes a permanent rule where Codex does.
func keepMockRule(rule json.RawMessage) {
	dir := filepath.Join(os.Getenv("CODEX_HOME"), "rules")
	_ = os.MkdirAll(dir, 0o700) // the test that looks for the rule tells
	f, err := os.OpenFile(filepath.Join(dir, "default.rules"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, _ = fmt.Fprintf(f, "prefix_rule(pattern=%s, decision=\"allow\")\n", rule)
		_ = f.Close()
	}
}

// trusted are the commands that 0.104 runs without asking.
func (t *mockTurn) trusted(line string) bool {
	word, _, _ := strings.Cut(line, " ")
	return t.m.old() && slices.Contains([]string{"cat", "echo", "ls", "pwd", "true", "wc"}, word) && !strings.ContainsAny(line, "><|;&$`(")
}

// mustAsk says whether a command needs the client's word, and whether it is
// refused without asking.
func (t *mockTurn) mustAsk(line string, escalate bool) (ask, refused bool) {
	t.m.mu.Lock()
	allowed := t.th.allowed[line]
	t.m.mu.Unlock()
	sandboxed := t.settings.sandbox() != "dangerFullAccess"
	switch granular := rawField(t.settings.Approval, "granular"); {
	case allowed || t.trusted(line):
		return false, false
	case granular != nil:
		may := string(rawField(granular, "sandbox_approval")) == "true"
		return escalate && sandboxed && may, escalate && sandboxed && !may
	case t.settings.approval() == "untrusted":
		return true, false
	case t.settings.approval() == "never":
		return false, escalate && sandboxed
	case t.settings.approval() == "on-failure":
		return false, false
	}
	return escalate && sandboxed, false
}

func shellDirective(t *mockTurn, line string) mockEnd    { return t.shell(line, false, false) }
func shellEscDirective(t *mockTurn, line string) mockEnd { return t.shell(line, true, false) }
func backgroundDirective(t *mockTurn, line string) mockEnd {
	return t.shell(line, false, true)
}

// shell runs a command as Codex would.
func (t *mockTurn) shell(line string, escalate, background bool) mockEnd {
	t.toolBegins()
	ask, refused := t.mustAsk(line, escalate)
	if refused {
		t.told("approval policy is Never; reject command — you should not ask for escalated permissions if the approval policy is Never")
		t.toolEnded()
		return goOn
	}
	actions := []any{map[string]any{"type": "unknown", "command": line}}
	it := t.item("commandExecution", t.m.newID("call"), map[string]any{"command": "/bin/bash -lc '" + strings.ReplaceAll(line, "'", `'\''`) + "'", "cwd": t.settings.Cwd,
		"processId": nil, "status": "inProgress", "commandActions": actions, "aggregatedOutput": nil, "exitCode": nil, "durationMs": nil})
	if !t.m.old() {
		it["source"] = "agent"
	}
	if ask {
		if end := t.askCommand(it, line, actions, escalate); end != goOn {
			return end
		}
		if it["status"] != "inProgress" {
			return goOn
		}
	}
	return t.runShell(it, line, !ask || t.m.tellsEvents(), background)
}

// askCommand asks for a command. It leaves a status other than inProgress in
// the item when the command must not run.
func (t *mockTurn) askCommand(it map[string]any, line string, actions []any, escalate bool) mockEnd {
	params := map[string]any{"itemId": it["id"], "command": it["command"], "cwd": t.settings.Cwd, "commandActions": actions}
	amend := []string{"/bin/bash", "-lc", line}
	if !strings.ContainsAny(line, "><|;&$`'\"") {
		amend = strings.Fields(line)
	}
	params["proposedExecpolicyAmendment"] = amend
	if escalate {
		params["reason"] = "mock model wants it"
	}
	if !t.m.old() { // 0.104 starts the item only when it may run
		t.setStatus("active", "waitingOnApproval")
		t.started(it)
		params["kind"], params["environmentId"], params["startedAtMs"] = "command", "local", time.Now().UnixMilli()
		params["availableDecisions"] = []any{"accept", map[string]any{"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": amend}}, "cancel"}
	}
	t.event("exec_approval_request", map[string]any{"call_id": it["id"], "turn_id": t.id, "command": []string{"/bin/bash", "-lc", line}, "cwd": t.settings.Cwd,
		"reason": params["reason"], "proposed_execpolicy_amendment": amend})
	result, end := t.ask("item/commandExecution/requestApproval", params, "waitingOnApproval")
	if end != goOn {
		return end
	}
	decision := mockDecision(result)
	if rule := rawField(result, "decision", "acceptWithExecpolicyAmendment", "execpolicy_amendment"); rule != nil {
		keepMockRule(rule)
	}
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
		it["status"] = "failed"
	default:
		it["status"] = "declined"
	}
	t.completed(it)
	t.setStatus("active")
	why := "rejected by user"
	if decision == "failed" {
		why = "approval request failed"
	}
	if said := stringField(result, "rejection"); said != "" { // mcp-server since 0.148
		why = said
	}
	t.told("exec_command failed: Rejected(" + strconv.Quote(why) + ")")
	t.toolEnded()
	if decision == "cancel" {
		return interrupted
	}
	return goOn
}

// runShell starts the command and waits for it, unless it is a background
// one. show says that the item hasn't been started yet.
func (t *mockTurn) runShell(it map[string]any, line string, show, background bool) mockEnd {
	s := &mockShell{turn: t, item: it, begun: time.Now(), ended: make(chan struct{}), late: background}
	cmd := mockCommand(line, t.settings.Cwd)
	mockOwnSession(cmd)
	cmd.Stdout, cmd.Stderr = s, s
	it["processId"] = strconv.Itoa(10000 + int(t.m.ids.Add(1)))
	if !t.m.old() {
		it["source"] = "unifiedExecStartup"
	}
	if show {
		t.started(it)
	}
	t.m.mu.Lock() // or a clean could miss what runs already
	err := cmd.Start()
	if err == nil {
		s.kill = func() { mockKillSession(cmd) }
		t.m.shells[s] = true
		if t.m.ended {
			s.kill()
		}
	}
	t.m.mu.Unlock()
	if err != nil {
		it["status"], it["aggregatedOutput"] = "failed", err.Error()
		t.completed(it)
		t.told("exec_command failed: " + err.Error())
		t.toolEnded()
		return goOn
	}
	t.m.turns.Add(1)
	go func() { // ends with the command; turns counts it
		defer t.m.turns.Done()
		_ = cmd.Wait() // the code below says how it ended
		t.m.mu.Lock()
		delete(t.m.shells, s)
		t.m.mu.Unlock()
		s.mu.Lock()
		s.over, s.code = true, cmd.ProcessState.ExitCode()
		late := s.late
		s.mu.Unlock()
		close(s.ended)
		if late && t.m.check() {
			t.shellItem(s)
		}
	}()
	if background {
		t.told("Process running in the background")
		t.toolEnded()
		return goOn
	}
	if end := t.wait(s.ended, false); end != goOn {
		s.mu.Lock()
		s.late = true // 0.169: it runs on; its item completes when it ends or is cleaned
		over := s.over
		s.mu.Unlock()
		if end == interrupted {
			t.toolEnded()
			if over {
				t.shellItem(s)
			}
		}
		return end
	}
	t.shellItem(s)
	t.told(fmt.Sprintf("Chunk ID: %06x\nWall time: %.4f seconds\nProcess exited with code %d\nOriginal token count: %d\nOutput:\n%s", t.m.ids.Load(), time.Since(s.begun).Seconds(), s.code, (len(s.out)+3)/4, s.out))
	t.toolEnded()
	return goOn
}

// shellItem completes the item of a command that has ended. 0.104 shows none
// for one that its interrupt killed.
func (t *mockTurn) shellItem(s *mockShell) {
	s.mu.Lock()
	out, code, late, told := string(s.out), s.code, s.late, s.told
	s.told = true
	s.mu.Unlock()
	if told { // it was killed while its turn waited for it
		return
	}
	if late && t.m.old() && code < 0 {
		return
	}
	it := s.item
	it["status"], it["exitCode"], it["durationMs"] = "completed", code, time.Since(s.begun).Milliseconds()
	if code != 0 {
		it["status"] = "failed"
	}
	if out != "" || t.m.old() {
		it["aggregatedOutput"] = out
	}
	t.completed(it)
}

// check says whether the process still lives.
func (m *mockServer) check() bool {
	select {
	case <-m.done:
		return false
	default:
		return true
	}
}

// killShells ends the shells of a thread, nil: of all.
func (m *mockServer) killShells(th *mockThread) {
	m.mu.Lock()
	var kill []func()
	for s := range m.shells {
		if th == nil || s.turn.th == th {
			s.mu.Lock()
			s.late = true
			s.mu.Unlock()
			kill = append(kill, s.kill)
		}
	}
	m.mu.Unlock()
	for _, k := range kill {
		k()
	}
}

// killShells is 0.104's interrupt.
func (t *mockTurn) killShells() { t.m.killShells(t.th) }

// patchDirective adds a file: PATCH path text.
func patchDirective(t *mockTurn, arg string) mockEnd {
	name, text, _ := strings.Cut(arg, " ")
	if text == "" {
		text = "hello"
	}
	text += "\n"
	path := t.inCwd(name)
	return t.patchFile(mockChange{name: "A " + name, path: path, kind: map[string]any{"type": "add"}, diff: text, apply: func() error {
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
	diff  string // the text of what is added or deleted, the hunks of what is updated
	apply func() error
}

// old is the change in the words of the first protocol.
func (c mockChange) old() map[string]any {
	if c.kind["type"] == "update" {
		return map[string]any{c.path: map[string]any{"type": "update", "unified_diff": c.diff, "move_path": c.kind["move_path"]}}
	}
	return map[string]any{c.path: map[string]any{"type": c.kind["type"], "content": c.diff}}
}

// patchFile patches one file, if it may.
func (t *mockTurn) patchFile(c mockChange) mockEnd {
	t.toolBegins()
	inside := strings.HasPrefix(c.path, filepath.Clean(t.settings.Cwd)+string(filepath.Separator))
	free := t.settings.sandbox() == "dangerFullAccess" || t.settings.sandbox() == "workspaceWrite" && inside
	untrusted := t.settings.approval() == "untrusted"
	if !free && t.settings.approval() == "never" {
		t.told("patch rejected: writing outside of the project; rejected by user approval settings")
		t.toolEnded()
		return goOn
	}
	it := t.item("fileChange", t.m.newID("call"), map[string]any{"status": "inProgress",
		"changes": []any{map[string]any{"path": c.path, "kind": c.kind, "diff": c.diff}}})
	t.change = c
	t.started(it)
	if !free || untrusted {
		if end := t.askPatch(it); end != goOn || it["status"] != "inProgress" {
			return end
		}
	}
	it["status"] = "completed"
	said := "Success. Updated the following files:\n" + c.name + "\n"
	if err := c.apply(); err != nil {
		it["status"], said = "failed", "Failed to write file "+c.path+": "+err.Error()
	}
	if t.m.old() {
		t.event("exec_command_output_delta", map[string]any{"call_id": it["id"], "stream": "stdout", "chunk": ""})
		t.tell("item/fileChange/outputDelta", map[string]any{"itemId": it["id"], "delta": said})
	}
	t.completed(it)
	_, name, _ := strings.Cut(c.name, " ")
	switch c.kind["type"] {
	case "add":
		t.patch = fmt.Sprintf("diff --git a/%s b/%[1]s\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1 @@\n+%s", name, c.diff)
	case "update":
		t.patch = fmt.Sprintf("diff --git a/%s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n%s", name, c.diff)
	default:
		t.patch = fmt.Sprintf("diff --git a/%s b/%[1]s\ndeleted file mode 100644\n--- a/%[1]s\n+++ /dev/null\n", name)
	}
	t.diff()
	t.told("Exit code: 0\nWall time: 0 seconds\nOutput:\n" + said)
	t.toolEnded()
	t.diff()
	return goOn
}

// diff shows what the turn has changed; real ones repeat it.
func (t *mockTurn) diff() {
	t.event("turn_diff", map[string]any{"unified_diff": t.patch})
	t.tell("turn/diff/updated", map[string]any{"diff": t.patch})
}

// askPatch asks for a patch. It leaves a status other than inProgress in the
// item when the patch must not be applied. A cancelled one has no
// item/completed in 0.169, and in 0.104 every refused one has two.
func (t *mockTurn) askPatch(it map[string]any) mockEnd {
	params := map[string]any{"itemId": it["id"], "reason": nil, "grantRoot": nil}
	if !t.m.old() {
		t.setStatus("active", "waitingOnApproval")
		params["startedAtMs"] = time.Now().UnixMilli()
	}
	changes := t.change.old()
	if t.m.mcp != nil {
		params["changes"] = changes
	}
	t.event("apply_patch_approval_request", map[string]any{"call_id": it["id"], "turn_id": t.id, "changes": changes})
	result, end := t.ask("item/fileChange/requestApproval", params, "waitingOnApproval")
	if end != goOn {
		return end
	}
	t.setStatus("active")
	decision := mockDecision(result)
	if strings.HasPrefix(decision, "accept") {
		return goOn
	}
	it["status"] = "declined"
	if t.m.old() {
		t.tell("item/completed", map[string]any{"item": it})
	}
	if decision != "cancel" || t.m.old() {
		t.completed(it)
	}
	t.told("patch rejected by user")
	t.toolEnded()
	if decision == "cancel" {
		return interrupted
	}
	return goOn
}
