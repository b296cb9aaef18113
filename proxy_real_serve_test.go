package main

// proxy_real_serve_test.go proves the main job with every real Codex of CODEX_BINS:
// the program, built as a user gets it, is driven over stdio as an MCP client
// drives it, while the scripted model answers. One rule a test, each in a home of
// its own; every test ends with an exit that leaves no process and the user's
// config.toml as it was. TestCodexTurns has what makes unattended work safe: turns in
// the background, their approvals, tasks and retries of modern clients, resuming.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCodex(t *testing.T) {
	runCodexRules(t, []codexRule{
		{"a conversation", aConversation},
		{"context and instructions reach the model", contextReachesTheModel},
		{"two agents at once", twoAgentsAtOnce},
		{"a failed model is told and survived", failedModel},
		{"an approved command runs", approvedCommand},
		{"a permanent rule is what Codex proposed", permanentRule},
		{"a declined command does not end the turn", declinedCommand},
		{"nobody to ask means declined at once", nobodyToAsk},
		{"a cancelled call stops its shell", cancelledCall},
		{"end of input stops a running shell", endOfInput},
		{"a killed proxy loses no conversation", killedProxy},
		{"a killed child is told to every caller", killedChild},
		{"config.toml is nobody's but the user's", configStays},
	})
}

// codexRule is one thing that every Codex is held to.
type codexRule struct {
	name string
	run  func(*codexLab)
}

// runCodexRules runs each rule with each Codex of CODEX_BINS.
func runCodexRules(t *testing.T, rules []codexRule) {
	t.Helper()
	bins := codexBinaries(t)
	needProcFS(t)
	prog := programPath(t)
	for _, bin := range bins {
		for _, rule := range rules {
			t.Run(bin.version+"/"+rule.name, func(t *testing.T) { rule.run(newCodexLab(t, bin, prog)) })
		}
	}
}

// askable are the capabilities of a client that can be asked.
func askable() map[string]any { return map[string]any{"elicitation": map[string]any{}} }

// echoed is what the model was told, as ECHO_INSTRUCTIONS answers it.
type echoed struct {
	Instructions    string
	Developer, User []string
}

func echoOf(t *testing.T, r turnReply) echoed {
	t.Helper()
	var e echoed
	if err := json.Unmarshal([]byte(r.Content), &e); err != nil {
		t.Fatalf("the model's echo is no JSON (%v): %s", err, r.Content)
	}
	return e
}

func anyContains(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}

func aConversation(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY first answer"}).turn()
	if first.Content != "first answer" || !regexp.MustCompile(`^codex:[a-z0-9]+$`).MatchString(first.AgentID) ||
		first.ThreadID == "" || first.TurnID == "" || first.Identity != "codex" || first.Status != "idle" {
		t.Errorf("first turn = %+v", first)
	}
	second := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "ECHO_INSTRUCTIONS"}).turn()
	if second.ThreadID != first.ThreadID || second.AgentID != first.AgentID || second.TurnID == first.TurnID {
		t.Errorf("reply is not of the same conversation: %+v after %+v", second, first)
	}
	if !anyContains(echoOf(t, second).User, "SAY first answer") {
		t.Errorf("the model does not see the first prompt: %s", second.Content)
	}
	for i, key := range []string{"threadId", "conversationId"} { // as callers of the removed command say it
		prompt := fmt.Sprintf("SAY answer %d", i)
		third := c.call("codex-reply", map[string]any{key: first.ThreadID, "prompt": prompt}).turn()
		if third.AgentID != first.AgentID || third.Content != fmt.Sprintf("answer %d", i) {
			t.Errorf("reply by %s = %+v", key, third)
		}
	}
	req := l.api.await(t, "SAY answer 1")
	if !slices.Contains(req.Assistant, "first answer") || !slices.Contains(req.Assistant, "answer 0") {
		t.Errorf("the model does not see its answers: %q", req.Assistant)
	}
	var status struct {
		Alive   bool    `json:"child_alive"`
		Version string  `json:"child_version"`
		Backend *string `json:"backend"`
	}
	structured(c.call("agent_status", map[string]any{}), &status)
	if !status.Alive || status.Version != l.bin.version || status.Backend == nil || *status.Backend != l.backend {
		t.Errorf("status = %+v", status)
	}
	structured(c.call("agent_close", map[string]any{"agent_id": first.AgentID}), nil)
	c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY no"}).fault(-32003)
	l.finish(c)
}

func contextReachesTheModel(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	r := c.call("codex", map[string]any{"prompt": "ECHO_INSTRUCTIONS", "identity": "Scout",
		"developer-instructions": "CALLERS-OWN-RULE"}).turn()
	told := echoOf(t, r)
	at := slices.IndexFunc(told.Developer, func(s string) bool { return strings.Contains(s, "CALLERS-OWN-RULE") })
	if at < 0 {
		t.Fatalf("the model was not told the caller's instructions: %q", told.Developer)
	}
	text := told.Developer[at]
	own := strings.Index(text, "CALLERS-OWN-RULE")
	for _, fact := range []string{"Scout", r.Team, "lab-repo", "main", l.repo} {
		// FR-2: our context comes after the caller's own instructions.
		if !strings.Contains(text[own:], fact) {
			t.Errorf("context has no %q after the caller's instructions: %s", fact, text)
		}
	}
	if r.Identity != "Scout" {
		t.Errorf("identity = %q", r.Identity)
	}

	same := c.call("codex-reply", map[string]any{"agent_id": r.AgentID, "prompt": "SAY same"}).turn()
	before := l.api.await(t, "SAY same").Prompt
	if before != "SAY same" {
		t.Errorf("no fact changed, but the prompt was %q (%+v)", before, same)
	}
	if err := makeGitRepo(l.repo, "feature/moved"); err != nil {
		t.Fatal(err)
	}
	c.call("codex-reply", map[string]any{"agent_id": r.AgentID, "prompt": "SAY changed"}).turn()
	if after := l.api.await(t, "SAY changed").Prompt; !strings.Contains(after, "feature/moved") || !strings.HasSuffix(after, "SAY changed") {
		t.Errorf("the branch changed, but the prompt was %q", after)
	}
	l.finish(c)
}

func twoAgentsAtOnce(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	one := c.call("codex", map[string]any{"prompt": "GATE one answer-one"})
	two := c.call("codex", map[string]any{"prompt": "GATE two answer-two"})
	l.api.await(t, "GATE one")
	l.api.await(t, "GATE two") // both are at the model: neither waits for the other
	l.api.open("two")
	second := two.turn()
	if one.answered() {
		t.Error("the first agent answered although its model waits")
	}
	l.api.open("one")
	first := one.turn()
	if first.Content != "answer-one" || second.Content != "answer-two" {
		t.Errorf("answers = %q, %q", first.Content, second.Content)
	}
	if first.AgentID == second.AgentID || first.ThreadID == second.ThreadID || strings.EqualFold(first.Identity, second.Identity) {
		t.Errorf("two agents share something: %+v, %+v", first, second)
	}
	l.finish(c)
}

func failedModel(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY well"}).turn()
	for _, tt := range []struct{ prompt, words string }{
		{"FAIL 500 server-broke", "high demand"}, // Codex puts words of its own for a 500
		{"FAIL 400 request-broke", "request-broke"},
		{"FAILSTREAM server_error stream-broke", "stream-broke"},
	} {
		res := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": tt.prompt}).tool()
		if !res.IsError || res.Turn.TurnStatus != "failed" || res.Turn.AgentID != first.AgentID || res.Turn.Status != "idle" {
			t.Errorf("%s: %s", tt.prompt, res.raw)
		}
		if res.Turn.Content == "" || !strings.Contains(res.Turn.Content, tt.words) {
			t.Errorf("%s: content = %q, want the backend's own words", tt.prompt, res.Turn.Content)
		}
		if len(res.Content) == 0 || !strings.Contains(res.Content[0].Text, res.Turn.Content) {
			t.Errorf("%s: the text a model is shown = %v", tt.prompt, res.Content)
		}
	}
	if again := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY well again"}).turn(); again.Content != "well again" {
		t.Errorf("after failures: %+v", again)
	}
	failed := c.call("codex", map[string]any{"prompt": "FAIL 500 at-once", "identity": "unlucky"}).tool()
	if !failed.IsError || failed.Turn.AgentID == "" {
		t.Errorf("a failed first turn: %s", failed.raw)
	}
	l.finish(c)
}

// askedToRun waits for the approval and checks what it shows.
func (l *codexLab) askedToRun(c *testClient, file string) wireMessage {
	l.t.Helper()
	ask := c.awaitAsk("elicitation/create")
	var p struct {
		Message string
		AgentID string `json:"agent_id"`
		Schema  struct{ Type string }
	}
	if err := json.Unmarshal(ask.Params, &p); err != nil {
		l.t.Fatal(err)
	}
	if !strings.Contains(p.Message, file) || !strings.Contains(p.Message, l.repo) || !strings.HasPrefix(p.AgentID, "codex:") {
		l.t.Errorf("the approval does not show command, directory and agent: %s", ask.Params)
	}
	if _, err := os.Stat(file); err == nil {
		l.t.Errorf("%s is there before anyone approved", file)
	}
	return ask
}

func approvedCommand(l *codexLab) {
	t, c := l.t, l.serve(askable())
	file := filepath.Join(l.home, "approved")
	call := c.call("codex", map[string]any{"prompt": "SHELLESC touch " + file + "\nSAY after it", "approval-policy": "on-request"})
	c.reply(l.askedToRun(c, file), map[string]any{"action": "accept", "content": map[string]any{}})
	r := call.turn()
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the approved command did not run: %v", err)
	}
	if r.Content != "after it" || len(r.Declined) != 0 {
		t.Errorf("turn = %+v", r)
	}

	// The words of the removed command are understood too.
	file += "-2"
	call = c.call("codex-reply", map[string]any{"agent_id": r.AgentID, "prompt": "SHELLESC touch " + file})
	c.reply(l.askedToRun(c, file), map[string]any{"decision": "approved"})
	call.turn()
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the command approved in older words did not run: %v", err)
	}
	l.finish(c)
}

// permanentRule: only with allow_rules, only by the client's user, and as Codex
// proposed it, whatever the client names.
func permanentRule(l *codexLab) {
	t := l.t
	rules := filepath.Join(l.codex, "rules", "default.rules")
	for _, allowed := range []bool{false, true} {
		l.more = []string{fmt.Sprintf("ATM_AGENT_MCP_ALLOW_RULES=%v", allowed)}
		c := l.serve(askable())
		file := filepath.Join(l.home, fmt.Sprintf("rule-%v", allowed))
		call := c.call("codex", map[string]any{"prompt": "SHELLESC touch " + file + "\nSAY done", "approval-policy": "on-request"})
		c.reply(l.askedToRun(c, file), map[string]any{"decision": map[string]any{"approved_execpolicy_amendment": map[string]any{"proposed_execpolicy_amendment": []string{"rm"}}}})
		r := call.turn()
		if _, err := os.Stat(file); err != nil || r.Content != "done" {
			t.Errorf("the approved command did not run: %v, %+v", err, r)
		}
		text, _ := os.ReadFile(rules)
		if !allowed && len(text) > 0 {
			t.Errorf("a rule without allow_rules: %s", text)
		}
		if allowed && (!strings.Contains(string(text), "touch") || strings.Contains(string(text), `"rm"`)) {
			t.Errorf("rules are %q", text)
		}
		l.finish(c)
	}
}

func declinedCommand(l *codexLab) {
	t, c := l.t, l.serve(askable())
	agent := ""
	for i, answer := range []map[string]any{
		{"action": "decline"}, {"action": "cancel"}, {"decision": "denied"}, {"action": "perhaps"}, {},
	} {
		file := filepath.Join(l.home, fmt.Sprintf("declined-%d", i))
		args := map[string]any{"prompt": fmt.Sprintf("SHELLESC touch %s\nSAY went on %d", file, i)}
		tool := "codex"
		if agent != "" {
			tool, args["agent_id"] = "codex-reply", agent
		}
		call := c.call(tool, args)
		c.reply(l.askedToRun(c, file), answer)
		r := call.turn()
		agent = r.AgentID
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%v: the declined command ran", answer)
		}
		if r.Content != fmt.Sprintf("went on %d", i) {
			t.Errorf("%v: the turn did not go on: %+v", answer, r)
		}
		if len(r.Declined) != 1 || !strings.Contains(r.Declined[0].Action, file) || r.Declined[0].Reason == "" {
			t.Errorf("%v: declined = %+v", answer, r.Declined)
		}
	}
	l.finish(c)
}

func nobodyToAsk(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	file := filepath.Join(l.home, "nobody")
	r := c.call("codex", map[string]any{"prompt": "SHELLESC touch " + file + "\nSAY went on"}).turn()
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran although nobody could approve it")
	}
	if r.Content != "went on" || len(r.Declined) != 1 {
		t.Errorf("turn = %+v", r)
	}
	l.finish(c)
}

// runningShell starts an agent whose shell runs for long, and returns its pid.
func (l *codexLab) runningShell(c *testClient) (call *pendingCall, pid int) {
	l.t.Helper()
	file := filepath.Join(l.home, "pid")
	call = c.call("codex", map[string]any{"sandbox": "danger-full-access", "approval-policy": "never", "identity": "runner",
		"prompt": "SHELL echo $$ > " + file + ".new; mv " + file + ".new " + file + "; exec sleep 600"})
	if !poll(c.limit, func() bool {
		text, err := os.ReadFile(file)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	}) {
		l.t.Fatalf("the shell does not run%s", c.told())
	}
	if !processAlive(pid) {
		l.t.Fatalf("the shell, process %d, is dead already", pid)
	}
	return call, pid
}

// dies waits for the end of the process.
func (l *codexLab) dies(c *testClient, pid int) {
	l.t.Helper()
	if !poll(c.limit, func() bool { return !processAlive(pid) }) {
		l.t.Errorf("still running:%s", describeProcesses([]int{pid}))
	}
}

func cancelledCall(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	call, pid := l.runningShell(c)
	call.cancel("user")
	l.dies(c, pid)
	c.start("ping", nil).result(nil)
	c.noStrays()
	var list struct {
		Sessions []struct {
			AgentID  string `json:"agent_id"`
			Identity string
		}
	}
	structured(c.call("agent_sessions", map[string]any{}), &list)
	if len(list.Sessions) != 1 || list.Sessions[0].Identity != "runner" {
		t.Fatalf("sessions = %+v", list.Sessions)
	}
	// The agent is usable, and its answer to the cancelled call never comes.
	r := c.call("codex-reply", map[string]any{"agent_id": list.Sessions[0].AgentID, "prompt": "SAY usable"}).turn()
	if r.Content != "usable" {
		t.Errorf("after the cancel: %+v", r)
	}
	l.finish(c)
}

func endOfInput(l *codexLab) {
	c := l.serve(map[string]any{})
	call, pid := l.runningShell(c)
	c.hangup()
	if m := call.wait(); m.Error == nil { // a turn that ran and was interrupted is a result, or we were shutting down
		var res callResult
		if err := json.Unmarshal(m.Result, &res); err != nil || !res.IsError || res.Turn.TurnStatus != "interrupted" {
			l.t.Errorf("the waiting caller got %s", m.Result)
		}
	} else if m.Error.Code != -32003 {
		l.t.Errorf("the waiting caller got %d: %s", m.Error.Code, m.Error.Message)
	}
	l.finish(c)
	l.dies(c, pid)
}

func killedProxy(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY remember-the-answer", "identity": "keeper"}).turn()
	if err := c.signal("KILL"); err != nil {
		t.Fatal(err)
	}
	if err := c.waitAllGone(c.limit); err != nil {
		t.Fatal(err) // the child ends by end of input
	}
	c = l.serve(map[string]any{})
	again := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY after restart"}).turn()
	if again.AgentID != first.AgentID || again.ThreadID != first.ThreadID || again.Identity != "keeper" || again.Content != "after restart" {
		t.Errorf("after kill -9: %+v, before: %+v", again, first)
	}
	req := l.api.await(t, "SAY after restart")
	if !anyContains(req.User, "SAY remember-the-answer") || !slices.Contains(req.Assistant, "remember-the-answer") {
		t.Errorf("the model lost the conversation: user %q, assistant %q", req.User, req.Assistant)
	}
	l.finish(c)
}

func killedChild(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	calls := []*pendingCall{
		c.call("codex", map[string]any{"prompt": "HANG one", "identity": "one"}),
		c.call("codex", map[string]any{"prompt": "HANG two", "identity": "two"}),
	}
	l.api.await(t, "HANG one")
	l.api.await(t, "HANG two")
	var pids []int
	for _, pid := range childProcesses(c.cmd.Process.Pid) {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(exe) == filepath.Base(l.bin.path) {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 1 {
		t.Fatalf("the program has %d Codex children, want one%s", len(pids), describeProcesses(pids))
	}
	proc, err := os.FindProcess(pids[0])
	if err == nil {
		err = proc.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		fault := call.fault(-32005)
		if !strings.Contains(fault.Message, "SIGKILL") || !strings.Contains(string(fault.Data), "error_source") {
			t.Errorf("a waiting caller was told %q, data %s", fault.Message, fault.Data)
		}
	}
	var status struct {
		Alive bool   `json:"child_alive"`
		Error string `json:"child_error"`
	}
	structured(c.call("agent_status", map[string]any{}), &status)
	if status.Alive || !strings.Contains(status.Error, "SIGKILL") {
		t.Errorf("status = %+v", status)
	}
	c.call("codex", map[string]any{"prompt": "SAY late"}).fault(-32005) // restart_child is off
	c.start("ping", nil).result(nil)
	l.finish(c)
}

func configStays(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	r := c.call("codex", map[string]any{"prompt": "SAY wide", "sandbox": "workspace-write", "approval-policy": "on-failure", "cwd": l.repo}).turn()
	if r.Sandbox != "workspace-write" || r.Approval != "on-request" {
		t.Errorf("effective settings = %q, %q", r.Sandbox, r.Approval)
	}
	c.call("codex-reply", map[string]any{"agent_id": r.AgentID, "prompt": "SHELL true\nSAY done"}).turn()
	full := c.call("codex", map[string]any{"prompt": "SAY full", "sandbox": "danger-full-access"}).turn()
	if full.Sandbox != "danger-full-access" {
		t.Errorf("effective sandbox = %q", full.Sandbox)
	}
	l.configUnchanged() // while it runs
	l.finish(c)         // and after
}

func TestCodexTurns(t *testing.T) {
	runCodexRules(t, []codexRule{
		{"a background turn is waited for", backgroundTurn},
		{"a background turn asks its caller", backgroundApproval},
		{"an interrupt stops a background shell", interruptedShell},
		{"a modern approval is a retry", modernApproval},
		{"a task is polled", polledTask},
		{"a busy agent is closed with a summary", closedWithSummary},
		{"a killed proxy resumes by flag", resumedByFlag},
	})
}

// waitedFor is the structuredContent of agent_wait.
type waitedFor struct {
	Seq    int64
	Agents []struct {
		AgentID string `json:"agent_id"`
		Status  string
		Turns   []struct {
			TurnID     string `json:"turn_id"`
			TurnStatus string `json:"turn_status"`
			Content    string
		}
		Pending []struct {
			ApprovalID string `json:"approval_id"`
			Kind       string
			Action     string
			Command    string
		} `json:"pending_approvals"`
	}
}

func backgroundTurn(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	one := c.call("codex", map[string]any{"prompt": "SAY from behind", "background": true}).tool().Turn
	two := c.call("codex", map[string]any{"prompt": "SAY the other", "background": true}).tool().Turn
	queued := c.call("codex-reply", map[string]any{"agent_id": one.AgentID, "prompt": "SAY then this", "background": true}).tool().Turn
	if one.TurnID == "" || one.AgentID == two.AgentID || queued.TurnID == one.TurnID {
		t.Fatalf("accepted %+v, %+v, %+v", one, two, queued)
	}
	said := map[string]string{}
	since := int64(1) // all turns there ever were
	for range 10 {
		var w waitedFor
		structured(c.call("agent_wait", map[string]any{"agent_ids": []string{one.AgentID, two.AgentID}, "timeout_secs": 60, "since": since}), &w)
		since = w.Seq
		for _, a := range w.Agents {
			for _, turn := range a.Turns {
				if _, twice := said[turn.TurnID]; twice {
					t.Errorf("turn %s is told twice", turn.TurnID)
				}
				said[turn.TurnID] = turn.TurnStatus + ": " + turn.Content
			}
		}
		if len(said) == 3 {
			break
		}
	}
	for turn, want := range map[string]string{one.TurnID: "from behind", two.TurnID: "the other", queued.TurnID: "then this"} {
		if said[turn] != "completed: "+want {
			t.Errorf("turn %s told %q, want %q", turn, said[turn], want)
		}
	}
	l.finish(c)
}

func backgroundApproval(l *codexLab) {
	t, c := l.t, l.serve(askable()) // the caller is asked all the same, not the client
	file := filepath.Join(l.home, "behind")
	agent := c.call("codex", map[string]any{"prompt": "SHELLESC touch " + file + "\nSAY after it", "background": true}).tool().Turn.AgentID
	var w waitedFor
	structured(c.call("agent_wait", map[string]any{"agent_id": agent, "timeout_secs": 60}), &w)
	if len(w.Agents) != 1 || len(w.Agents[0].Pending) != 1 || w.Agents[0].Pending[0].Kind != "command" || !strings.Contains(w.Agents[0].Pending[0].Action, file) {
		t.Fatalf("agent_wait told %+v", w)
	}
	ask := w.Agents[0].Pending[0]
	approve := map[string]any{"agent_id": agent, "approval_id": ask.ApprovalID, "action": "something else", "decision": "approve"}
	c.call("agent_approve", approve).fault(-32007)
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran before its approval")
	}
	approve["action"] = ask.Action
	structured(c.call("agent_approve", approve), nil)
	structured(c.call("agent_wait", map[string]any{"agent_id": agent, "timeout_secs": 60}), &w)
	if len(w.Agents[0].Turns) != 1 || w.Agents[0].Turns[0].Content != "after it" {
		t.Errorf("agent_wait told %+v", w)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the approved command did not run: %v", err)
	}
	c.call("agent_approve", approve).fault(-32007) // the first decision wins
	l.finish(c)
}

func interruptedShell(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	call, pid := l.runningShell(c)
	var list struct {
		Sessions []struct {
			AgentID string `json:"agent_id"`
		}
	}
	structured(c.call("agent_sessions", map[string]any{}), &list)
	agent := list.Sessions[0].AgentID
	var r struct{ Interrupted bool }
	structured(c.call("agent_interrupt", map[string]any{"agent_id": agent}), &r)
	if res := call.tool(); !r.Interrupted || !res.IsError || res.Turn.TurnStatus != "interrupted" || res.Turn.Status != "idle" {
		t.Errorf("interrupted %v, the caller got %s", r.Interrupted, res.raw)
	}
	l.dies(c, pid)
	if r := c.call("codex-reply", map[string]any{"agent_id": agent, "prompt": "SAY still here"}).turn(); r.Content != "still here" {
		t.Errorf("after the interrupt: %+v", r)
	}
	l.finish(c)
}

// modern adds what a request of 2026-07-28 brings with it.
func modern(params, capabilities map[string]any) map[string]any {
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": capabilities,
	}
	return params
}

// serveModern starts a client that shakes no hands.
func (l *codexLab) serveModern() *testClient {
	l.t.Helper()
	return startClient(l.t, peerConfig{
		name: "atm-agent-mcp", path: l.prog, args: []string{"serve", "--codex-bin", l.bin.path, "--backend", l.backend},
		env: l.env(), dir: l.repo,
	})
}

func modernApproval(l *codexLab) {
	t, c := l.t, l.serveModern()
	file := filepath.Join(l.home, "retried")
	params := func() map[string]any {
		return modern(map[string]any{"name": "codex", "arguments": map[string]any{"prompt": "SHELLESC touch " + file + "\nSAY after it"}}, askable())
	}
	var asked struct {
		Type     string                                               `json:"resultType"`
		Requests map[string]struct{ Params struct{ Message string } } `json:"inputRequests"`
		State    string                                               `json:"requestState"`
	}
	c.start("tools/call", params()).result(&asked)
	if asked.Type != "input_required" || len(asked.Requests) != 1 || asked.State == "" {
		t.Fatalf("the call was answered %+v", asked)
	}
	retry := params()
	retry["requestState"] = asked.State
	answers := map[string]any{}
	for key, ask := range asked.Requests {
		if !strings.Contains(ask.Params.Message, file) {
			t.Errorf("asked %q", ask.Params.Message)
		}
		answers[key] = map[string]any{"action": "accept", "content": map[string]any{}}
	}
	retry["inputResponses"] = answers
	var res callResult
	c.start("tools/call", retry).result(&res)
	if res.IsError || res.Turn.Content != "after it" {
		t.Errorf("the retry was answered %+v", res)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the approved command did not run: %v", err)
	}
	c.start("tools/call", retry).result(&res) // the handle is spent: no second turn
	if !res.IsError {
		t.Errorf("a spent handle was answered %+v", res)
	}
	l.finish(c)
}

func polledTask(l *codexLab) {
	t, c := l.t, l.serveModern()
	caps := map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}
	type taskState struct {
		Type   string `json:"resultType"`
		TaskID string `json:"taskId"`
		Status string
		Result callResult
	}
	start := func(prompt string) taskState {
		var task taskState
		c.start("tools/call", modern(map[string]any{"name": "codex", "arguments": map[string]any{"prompt": prompt}}, caps)).result(&task)
		if task.Type != "task" || task.TaskID == "" || task.Status != "working" {
			t.Fatalf("the call was answered %+v", task)
		}
		return task
	}
	get := func(task taskState) (now taskState) {
		c.start("tasks/get", modern(map[string]any{"taskId": task.TaskID}, caps)).result(&now)
		return now
	}
	done, hangs := start("SAY polled"), start("HANG on")
	var now taskState
	if !poll(c.limit, func() bool { now = get(done); return now.Status != "working" }) || now.Status != "completed" || now.Result.Turn.Content != "polled" {
		t.Errorf("the task ended as %+v", now)
	}
	l.api.await(t, "HANG on")
	c.start("tasks/cancel", modern(map[string]any{"taskId": hangs.TaskID}, caps)).result(nil)
	if !poll(c.limit, func() bool { now = get(hangs); return now.Status != "working" }) || now.Status != "cancelled" {
		t.Errorf("the cancelled task ended as %+v", now)
	}
	// Another process knows the result too; what it can't know it doesn't hide.
	hangs = start("HANG again")
	l.api.await(t, "HANG again")
	if err := c.signal("KILL"); err != nil {
		t.Fatal(err)
	}
	if err := c.waitAllGone(c.limit); err != nil {
		t.Fatal(err)
	}
	c = l.serveModern()
	if now = get(done); now.Status != "completed" || now.Result.Turn.Content != "polled" {
		t.Errorf("after a restart the task is %+v", now)
	}
	if now = get(hangs); now.Status != "failed" {
		t.Errorf("after a restart the unfinished task is %+v", now)
	}
	l.finish(c)
}

func closedWithSummary(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.call("codex", map[string]any{"prompt": "SAY begun"}).turn()
	hangs := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "HANG here"})
	l.api.await(t, "HANG here")
	waits := c.call("codex-reply", map[string]any{"agent_id": first.AgentID, "prompt": "SAY never"})
	var r struct {
		Status      string
		Interrupted bool
	}
	structured(c.call("agent_close", map[string]any{"agent_id": first.AgentID}), &r)
	if res := hangs.tool(); res.Turn.TurnStatus != "interrupted" {
		t.Errorf("the running turn's caller got %s", res.raw)
	}
	waits.fault(-32003)
	if r.Status != "closed" {
		t.Errorf("closed = %+v", r)
	}
	found := ""
	_ = filepath.WalkDir(filepath.Join(l.home), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "summary.md" {
			found = path
		}
		return nil
	})
	text, err := os.ReadFile(found)
	if err != nil || len(text) == 0 {
		t.Errorf("no summary was kept: %q, %v", found, err)
	}
	again := c.call("codex", map[string]any{"agent_id": first.AgentID, "prompt": "ECHO_INSTRUCTIONS"}).turn()
	if told := echoOf(t, again); !anyContains(told.User, "SAY begun") || again.Sandbox != first.Sandbox {
		t.Errorf("reopened as %+v", again)
	}
	l.finish(c)
}

func resumedByFlag(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	c.call("codex", map[string]any{"prompt": "SAY older", "identity": "keeper"}).turn()
	first := c.call("codex", map[string]any{"prompt": "SAY remember-me", "identity": "finder"}).turn()
	if err := c.signal("KILL"); err != nil {
		t.Fatal(err)
	}
	if err := c.waitAllGone(c.limit); err != nil {
		t.Fatal(err)
	}
	c = l.serve(map[string]any{}, "--resume", "finder")
	again := c.call("codex", map[string]any{"prompt": "SAY after restart"}).turn()
	if again.AgentID != first.AgentID || again.Identity != "finder" {
		t.Errorf("resumed %+v, want %+v", again, first)
	}
	if req := l.api.await(t, "SAY after restart"); !anyContains(req.User, "SAY remember-me") || !slices.Contains(req.Assistant, "remember-me") {
		t.Errorf("the model lost the conversation: %q", req.User)
	}
	if next := c.call("codex", map[string]any{"prompt": "SAY new"}).turn(); next.AgentID == first.AgentID {
		t.Errorf("the second call resumed it again")
	}
	c.call("codex", map[string]any{"agent_id": "codex:zzzzzz", "prompt": "SAY no"}).fault(-32002)
	l.finish(c)
}
