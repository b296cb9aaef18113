package main

// proxy_real_turns_test.go proves with every real Codex of CODEX_BINS what
// makes unattended work safe: turns in the background, their approvals, tasks
// and retries of modern clients, interrupts, closing with a summary, resuming.
// It is driven as proxy_real_suite_test.go is.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
