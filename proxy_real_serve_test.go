package main

// proxy_real_serve_test.go proves the main job with every real Codex of CODEX_BINS: the program, built as a user gets
// it, is driven over stdio as an MCP client drives it, while the scripted model answers. One rule a test, each in a
// home of its own; every test ends with an exit that leaves no process and the user's config.toml as it was.
// Tasks and retries are the front's and the hub's alone: Codex is told nothing of them, and scripts hold them.
// codex_real_test.go holds mcp-server to the same rules.

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
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

func TestCodexTurns(t *testing.T) {
	runCodexRules(t, []codexRule{
		{"a background turn asks its caller", backgroundApproval},
		{"an interrupt stops a shell", interruptedShell},
		{"a busy agent is closed with a summary", closedWithSummary},
		{"an answer follows its schema", answerWithSchema},
		{"what a turn changed is told", changedFiles},
		{"a change is reviewed", reviewedChangeRule},
		{"a message goes into the running turn", steeredTurn},
		{"an agent begins with what another one knows", forkedAgent},
		{"two agents work in trees of their own", ownWorktrees},
		{"the account's limits are told", toldLimits},
	})
}

// askable are the capabilities of a client that can be asked.
func askable() map[string]any { return map[string]any{"elicitation": map[string]any{}} }

// codex calls for an agent, and again for one's next turn; more are further arguments, name and value by turns.
func (c *testClient) codex(prompt string, more ...any) *pendingCall {
	c.tb.Helper()
	return c.call("codex", argsOf(append(more, "prompt", prompt)))
}

func (c *testClient) again(agent, prompt string, more ...any) *pendingCall {
	c.tb.Helper()
	return c.call("codex-reply", argsOf(append(more, "prompt", prompt, "agent_id", agent)))
}

func argsOf(list []any) map[string]any {
	args := map[string]any{}
	for pair := range slices.Chunk(list, 2) {
		args[pair[0].(string)] = pair[1]
	}
	return args
}

// wantSaid waits for a turn that ran well and said this.
func (p *pendingCall) wantSaid(want string) turnReply {
	p.c.tb.Helper()
	r := p.turn()
	if r.Content != want {
		p.c.tb.Errorf("%s: said %q, want %q", p.what, r.Content, want)
	}
	return r
}

// echoed is what the model was told, as ECHO_INSTRUCTIONS answers it.
type echoed struct{ Developer, User []string }

func echoOf(t *testing.T, r turnReply) (e echoed) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Content), &e); err != nil {
		t.Fatalf("the model's echo is no JSON (%v): %s", err, r.Content)
	}
	return e
}

func anyContains(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}

// wantPast holds the request with that prompt to a conversation that the model must still see.
func (l *codexLab) wantPast(prompt string, answers ...string) {
	l.t.Helper()
	req := l.api.await(l.t, prompt)
	for _, answer := range answers {
		if !anyContains(req.User, "SAY "+answer) || !slices.Contains(req.Assistant, answer) {
			l.t.Errorf("the model lost %q: user %q, assistant %q", answer, req.User, req.Assistant)
		}
	}
}

func aConversation(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.codex("SAY first answer").wantSaid("first answer")
	if !regexp.MustCompile(`^codex:[a-z0-9]+$`).MatchString(first.AgentID) ||
		first.ThreadID == "" || first.TurnID == "" || first.Identity != "codex" || first.Status != "idle" {
		t.Errorf("first turn = %+v", first)
	}
	second := c.again(first.AgentID, "SAY answer").turn()
	if second.ThreadID != first.ThreadID || second.AgentID != first.AgentID || second.TurnID == first.TurnID {
		t.Errorf("reply is not of the same conversation: %+v after %+v", second, first)
	}
	for i, key := range []string{"threadId", "conversationId"} { // as callers of the removed command say it
		said := fmt.Sprintf("answer %d", i)
		third := c.call("codex-reply", map[string]any{key: first.ThreadID, "prompt": "SAY " + said}).wantSaid(said)
		if third.AgentID != first.AgentID {
			t.Errorf("reply by %s = %+v", key, third)
		}
	}
	l.wantPast("SAY answer 1", "first answer", "answer", "answer 0")
	var status struct {
		Alive   bool   `json:"child_alive"`
		Version string `json:"child_version"`
		Backend string
	}
	structured(c.call("agent_status", map[string]any{}), &status)
	if !status.Alive || status.Version != l.bin.version || status.Backend != l.backend {
		t.Errorf("status = %+v", status)
	}
	structured(c.call("agent_close", map[string]any{"agent_id": first.AgentID}), nil)
	c.again(first.AgentID, "SAY no").fault(-32003)
	l.finish(c)
}

// FR-2: our context comes after the caller's own instructions, and on a reply where a fact changed.
func contextReachesTheModel(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	r := c.codex("ECHO_INSTRUCTIONS", "identity", "Scout", "developer-instructions", "CALLERS-OWN-RULE").turn()
	_, ours, ok := strings.Cut(strings.Join(echoOf(t, r).Developer, "\n"), "CALLERS-OWN-RULE")
	if !ok {
		t.Errorf("the model was not told the caller's instructions: %s", r.Content)
	}
	mustContain(t, ours, "Scout", r.Team, "lab-repo", "main", l.repo)
	want(t, r.Identity, "Scout")

	c.again(r.AgentID, "SAY same").turn()
	want(t, l.api.await(t, "SAY same").Prompt, "SAY same")
	wantNil(t, makeGitRepo(l.repo, "feature/moved"))
	c.again(r.AgentID, "SAY changed").turn()
	if after := l.api.await(t, "SAY changed").Prompt; !strings.Contains(after, "feature/moved") ||
		!strings.HasSuffix(after, "SAY changed") {
		t.Errorf("the branch changed, but the prompt was %q", after)
	}
	l.finish(c)
}

func twoAgentsAtOnce(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	one, two := c.codex("GATE one answer-one"), c.codex("GATE two answer-two")
	l.api.await(t, "GATE one")
	l.api.await(t, "GATE two") // both are at the model: neither waits for the other
	l.api.open("two")
	second := two.wantSaid("answer-two")
	if one.answered() {
		t.Error("the first agent answered although its model waits")
	}
	l.api.open("one")
	first := one.wantSaid("answer-one")
	if first.AgentID == second.AgentID || first.ThreadID == second.ThreadID ||
		strings.EqualFold(first.Identity, second.Identity) {
		t.Errorf("two agents share something: %+v, %+v", first, second)
	}
	l.finish(c)
}

func failedModel(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	agent := c.codex("SAY well").turn().AgentID
	for _, tt := range []struct{ prompt, words string }{
		{"FAIL 500 server-broke", "high demand"}, // Codex puts words of its own for a 500
		{"FAIL 400 request-broke", "request-broke"},
		{"FAILSTREAM server_error stream-broke", "stream-broke"},
	} {
		res := c.again(agent, tt.prompt).tool()
		if !res.IsError || res.Turn.TurnStatus != "failed" || res.Turn.AgentID != agent || res.Turn.Status != "idle" ||
			!strings.Contains(res.Turn.Content, tt.words) || len(res.Content) == 0 ||
			!strings.Contains(res.Content[0].Text, res.Turn.Content) {
			t.Errorf("%s, want the backend's own words %q: %s", tt.prompt, tt.words, res.raw)
		}
	}
	c.again(agent, "SAY well again").wantSaid("well again")
	if failed := c.codex("FAIL 500 at-once", "identity", "unlucky").tool(); !failed.IsError ||
		failed.Turn.AgentID == "" {
		t.Errorf("a failed first turn: %s", failed.raw)
	}
	l.finish(c)
}

// askedToRun waits for the approval and checks what it shows.
func (l *codexLab) askedToRun(c *testClient, file string) wireMessage {
	l.t.Helper()
	ask := c.awaitAsk("elicitation/create")
	mustContain(l.t, stringField(ask.Params, "message"), file, l.repo)
	mustContain(l.t, stringField(ask.Params, "agent_id"), "codex:")
	if there(file) {
		l.t.Errorf("%s is there before anyone approved", file)
	}
	return ask
}

func approvedCommand(l *codexLab) {
	t, c := l.t, l.serve(askable())
	file := filepath.Join(l.home, "approved")
	call := c.codex("SHELLESC touch "+file+"\nSAY after it", "approval-policy", "on-request")
	c.reply(l.askedToRun(c, file), map[string]any{"action": "accept", "content": map[string]any{}})
	r := call.wantSaid("after it")
	if !there(file) || len(r.Declined) != 0 {
		t.Errorf("the approved command did not run: %+v", r)
	}
	file += "-2"
	call = c.again(r.AgentID, "SHELLESC touch "+file)
	c.reply(l.askedToRun(c, file), map[string]any{"decision": "approved"})
	if call.turn(); !there(file) {
		t.Error("the command approved in the words of the removed command did not run")
	}
	l.finish(c)
}

// permanentRule: only with allow_rules, only by the client's user, and as Codex
// proposed it, whatever the client names.
func permanentRule(l *codexLab) {
	for _, allowed := range []bool{false, true} {
		l.more = []string{fmt.Sprintf("ATM_AGENT_MCP_ALLOW_RULES=%v", allowed)}
		c := l.serve(askable())
		file := filepath.Join(l.home, fmt.Sprintf("rule-%v", allowed))
		call := c.codex("SHELLESC touch "+file+"\nSAY done", "approval-policy", "on-request")
		c.reply(l.askedToRun(c, file),
			json.RawMessage(`{"decision":{"approved_execpolicy_amendment":{"proposed_execpolicy_amendment":["rm"]}}}`))
		if call.wantSaid("done"); !there(file) {
			l.t.Error("the approved command did not run")
		}
		rules, _ := os.ReadFile(filepath.Join(l.codex, "rules", "default.rules")) // none, or these
		if strings.Contains(string(rules), "touch") != allowed || strings.Contains(string(rules), `"rm"`) {
			l.t.Errorf("allow_rules %v: the rules are %q", allowed, rules)
		}
		l.finish(c)
	}
}

func declinedCommand(l *codexLab) {
	t, c := l.t, l.serve(askable())
	agent := c.codex("SAY ready").turn().AgentID
	for i, answer := range []map[string]any{{"action": "decline"}, {"action": "cancel"}, {"decision": "denied"},
		{"action": "perhaps"}, {}} {
		file := filepath.Join(l.home, fmt.Sprintf("declined-%d", i))
		call := c.again(agent, fmt.Sprintf("SHELLESC touch %s\nSAY went on %d", file, i))
		c.reply(l.askedToRun(c, file), answer)
		r := call.wantSaid(fmt.Sprintf("went on %d", i))
		if there(file) {
			t.Errorf("%v: the declined command ran", answer)
		}
		if len(r.Declined) != 1 || !strings.Contains(r.Declined[0].Action, file) || r.Declined[0].Reason == "" {
			t.Errorf("%v: declined = %+v", answer, r.Declined)
		}
	}
	l.finish(c)
}

func nobodyToAsk(l *codexLab) {
	c := l.serve(map[string]any{})
	file := filepath.Join(l.home, "nobody")
	if r := c.codex("SHELLESC touch " + file + "\nSAY went on").wantSaid("went on"); there(file) ||
		len(r.Declined) != 1 {
		l.t.Errorf("the command ran (%v) although nobody could approve it: %+v", there(file), r)
	}
	l.finish(c)
}

// runningShell starts an agent whose shell runs for long, and returns the shell's pid.
func (l *codexLab) runningShell(c *testClient) (call *pendingCall, pid int) {
	l.t.Helper()
	call = c.codex(l.sleeps(), "sandbox", "danger-full-access", "approval-policy", "never", "identity", "runner")
	return call, l.sleeping(c)
}

// runner is the agent of runningShell, whose call has not told its id.
func (l *codexLab) runner(c *testClient) (agent string) {
	l.t.Helper()
	var list struct{ Sessions []map[string]any }
	structured(c.call("agent_sessions", map[string]any{}), &list)
	if len(list.Sessions) != 1 || list.Sessions[0]["identity"] != "runner" {
		l.t.Fatalf("sessions = %+v", list.Sessions)
	}
	return list.Sessions[0]["agent_id"].(string)
}

func cancelledCall(l *codexLab) {
	c := l.serve(map[string]any{})
	call, pid := l.runningShell(c)
	call.cancel("user")
	l.dies(c, pid)
	c.start("ping", nil).result(nil)
	c.noStrays() // the answer to the cancelled call never comes
	c.again(l.runner(c), "SAY usable").wantSaid("usable")
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

// killedProxy: the child ends by the end of its input, and the next process has the conversation, also by --resume.
func killedProxy(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	c.codex("SAY older", "identity", "finder").turn()
	first := c.codex("SAY remember-the-answer", "identity", "keeper").turn()
	l.kill(c)
	c = l.serve(map[string]any{})
	again := c.again(first.AgentID, "SAY after restart").wantSaid("after restart")
	if again.AgentID != first.AgentID || again.ThreadID != first.ThreadID || again.Identity != "keeper" {
		t.Errorf("after kill -9: %+v, before: %+v", again, first)
	}
	l.wantPast("SAY after restart", "remember-the-answer")
	l.kill(c)
	c = l.serve(map[string]any{}, "--resume", "keeper")
	if again = c.codex("SAY by the flag").turn(); again.AgentID != first.AgentID || again.Identity != "keeper" {
		t.Errorf("resumed %+v, want %+v", again, first)
	}
	l.wantPast("SAY by the flag", "remember-the-answer", "after restart")
	if next := c.codex("SAY new").turn(); next.AgentID == first.AgentID {
		t.Error("the second call resumed it again")
	}
	c.codex("SAY no", "agent_id", "codex:zzzzzz").fault(-32002)
	l.finish(c)
}

func killedChild(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	calls := []*pendingCall{c.codex("HANG one", "identity", "one"), c.codex("HANG two", "identity", "two")}
	l.api.await(t, "HANG one")
	l.api.await(t, "HANG two")
	l.killCodex(c)
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
	c.codex("SAY late").fault(-32005) // restart_child is off
	c.start("ping", nil).result(nil)
	l.finish(c)
}

func configStays(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	r := c.codex("SAY wide", "sandbox", "workspace-write", "approval-policy", "on-failure", "cwd", l.repo).turn()
	if r.Sandbox != "workspace-write" || r.Approval != "on-request" {
		t.Errorf("effective settings = %q, %q", r.Sandbox, r.Approval)
	}
	c.again(r.AgentID, "SHELL true\nSAY done").turn()
	want(t, c.codex("SAY full", "sandbox", "danger-full-access").turn().Sandbox, "danger-full-access")
	l.configUnchanged() // while it runs
	l.finish(c)         // and after
}

// waitedFor is the structuredContent of agent_wait.
type waitedFor struct {
	Seq    int64
	Agents []struct {
		Turns   []turnReply
		Pending []struct {
			ApprovalID   string `json:"approval_id"`
			Kind, Action string
		} `json:"pending_approvals"`
	}
}

func backgroundApproval(l *codexLab) {
	t, c := l.t, l.serve(askable()) // the caller is asked all the same, not the client
	file := filepath.Join(l.home, "behind")
	agent := c.codex("SHELLESC touch "+file+"\nSAY after it", "background", true).tool().Turn.AgentID
	var w waitedFor
	structured(c.call("agent_wait", map[string]any{"agent_id": agent, "timeout_secs": 60}), &w)
	if len(w.Agents) != 1 || len(w.Agents[0].Pending) != 1 || w.Agents[0].Pending[0].Kind != "command" ||
		!strings.Contains(w.Agents[0].Pending[0].Action, file) {
		t.Fatalf("agent_wait told %+v", w)
	}
	ask := w.Agents[0].Pending[0]
	approve := map[string]any{"agent_id": agent, "approval_id": ask.ApprovalID, "action": "something else",
		"decision": "approve"}
	c.call("agent_approve", approve).fault(-32007)
	if there(file) {
		t.Error("the command ran before its approval")
	}
	approve["action"] = ask.Action
	structured(c.call("agent_approve", approve), nil)
	structured(c.call("agent_wait", map[string]any{"agent_id": agent, "timeout_secs": 60}), &w)
	if len(w.Agents[0].Turns) != 1 || w.Agents[0].Turns[0].Content != "after it" || !there(file) {
		t.Errorf("agent_wait told %+v; the approved command ran: %v", w, there(file))
	}
	c.call("agent_approve", approve).fault(-32007) // the first decision wins
	l.finish(c)
}

func interruptedShell(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	call, pid := l.runningShell(c)
	agent := l.runner(c)
	var r struct{ Interrupted bool }
	structured(c.call("agent_interrupt", map[string]any{"agent_id": agent}), &r)
	if res := call.tool(); !r.Interrupted || !res.IsError || res.Turn.TurnStatus != "interrupted" ||
		res.Turn.Status != "idle" {
		t.Errorf("interrupted %v, the caller got %s", r.Interrupted, res.raw)
	}
	l.dies(c, pid)
	c.again(agent, "SAY still here").wantSaid("still here")
	l.finish(c)
}

func closedWithSummary(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	first := c.codex("SAY begun").turn()
	hangs := c.again(first.AgentID, "HANG here")
	l.api.await(t, "HANG here")
	waits := c.again(first.AgentID, "SAY never")
	var r struct{ Status string }
	structured(c.call("agent_close", map[string]any{"agent_id": first.AgentID}), &r)
	want(t, r.Status, "closed")
	want(t, hangs.tool().Turn.TurnStatus, "interrupted")
	waits.fault(-32003)
	found := ""
	wantNil(t, filepath.WalkDir(l.home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "summary.md" {
			found = path
		}
		return nil
	}))
	if text, err := os.ReadFile(found); err != nil || len(text) == 0 {
		t.Errorf("no summary was kept: %q, %v", found, err)
	}
	again := c.codex("ECHO_INSTRUCTIONS", "agent_id", first.AgentID).turn()
	if !anyContains(echoOf(t, again).User, "SAY begun") || again.Sandbox != first.Sandbox {
		t.Errorf("reopened as %+v", again)
	}
	l.finish(c)
}

// delegated is what the result of a turn has beside its answer.
type delegated struct {
	Output  json.RawMessage
	Why     string `json:"output_error"`
	Changes *turnChanges
	Limit   *limitReached
	Notes   []string
	Content string
}

func answerWithSchema(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	schema := map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}},
		"required": []string{"n"}, "additionalProperties": false}
	var good, bad delegated
	structured(c.codex(`SAY {"n": 7}`, "output_schema", schema, "identity", "ann"), &good)
	structured(c.again("ann", "SAY seven", "output_schema", schema), &bad)
	if string(good.Output) != `{"n":7}` || good.Why != "" || bad.Output != nil || bad.Why == "" ||
		bad.Content != "seven" {
		t.Errorf("outputs %+v and %+v", good, bad)
	}
	if raw := l.api.await(t, "SAY seven").Raw; !strings.Contains(raw, `"json_schema"`) ||
		!strings.Contains(raw, `"strict":true`) {
		t.Errorf("the model was not told the schema: %s", clipText(raw, 2000))
	}
	c.again("ann", "SAY plain").wantSaid("plain")
	if raw := l.api.await(t, "SAY plain").Raw; strings.Contains(raw, `"json_schema"`) {
		t.Error("the schema stuck to the next turn")
	}
	l.finish(c)
}

func changedFiles(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	var r delegated
	structured(c.codex(`RAWPATCH "*** Begin Patch\n*** Add File: a.txt\n+one\n*** Add File: b.txt\n+two\n*** End Patch"`, "sandbox", "workspace-write", "diff", true), &r)
	want := &turnChanges{Files: []changedFile{{"a.txt", "added", 1, 0}, {"b.txt", "added", 1, 0}}, Added: 2}
	if r.Changes == nil {
		t.Fatalf("no changes were told: %+v", r)
	}
	diff := readText(t, r.Changes.DiffFile)
	if r.Changes.DiffFile = ""; !reflect.DeepEqual(r.Changes, want) || !strings.Contains(diff, "+one") {
		t.Errorf("changes %+v, diff %s", r.Changes, diff)
	}
	l.finish(c)
}

// reviewedChangeRule: a new reviewer reads the diff and can't write; one in an agent's own conversation neither, and
// that agent can afterwards.
func reviewedChangeRule(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	git := func(args ...string) {
		t.Helper()
		_, err := gitText(t.Context(), l.repo, append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)...)
		wantNil(t, err)
	}
	git("add", "-A")
	git("commit", "-q", "--allow-empty", "-m", "base")
	wantNil(t, os.WriteFile(filepath.Join(l.repo, "planted.go"), []byte("package bug\n\nvar n = 1 / 0\n"), 0o600))
	found := string(toJSON(map[string]any{"overall_correctness": "patch is incorrect", "overall_explanation": "Panics.",
		"overall_confidence_score": 1, "findings": []any{map[string]any{"title": "Division by zero", "body": "b",
			"priority": 0, "confidence_score": nil, "code_location": map[string]any{"absolute_file_path": filepath.Join(l.repo,
				"planted.go"), "line_range": map[string]any{"start": 3, "end": 3}}}}}))
	var r struct {
		delegated
		reviewShown
		AgentID string `json:"agent_id"`
		Sandbox string
	}
	ask := "SHELL cat planted.go && touch forbidden\nSAY " + found
	structured(c.call("codex-review", map[string]any{"instructions": ask, "cwd": l.repo}), &r)
	if r.Findings == nil || len(*r.Findings) != 1 || (*r.Findings)[0].File != "planted.go" ||
		(*r.Findings)[0].Severity != "critical" || *r.Verdict != "needs-attention" || r.Reviewed.Added != 3 ||
		r.Sandbox != "read-only" {
		t.Errorf("the review of a planted bug: %+v", r)
	}
	all := l.api.requests()
	raw := all[len(all)-1].Raw // behind the command
	if !strings.Contains(raw, "var n = 1 / 0") || !strings.Contains(raw, `"json_schema"`) {
		t.Errorf("the reviewer could not read, or was not told the form: %s", clipText(raw, 2000))
	}
	worker := c.codex("SAY mine", "sandbox", "workspace-write", "cwd", l.repo).wantSaid("mine")
	structured(c.call("codex-review", map[string]any{"instructions": "Once more.\n" + ask,
		"agent_id": worker.AgentID}), &r)
	l.wantPast("Once more.", "mine")
	if _, err := os.Stat(filepath.Join(l.repo, "forbidden")); err == nil {
		t.Error("a reviewer wrote")
	}
	c.again(worker.AgentID, "SHELL touch allowed")
	again := c.again(worker.AgentID, "SAY after").wantSaid("after")
	if _, err := os.Stat(filepath.Join(l.repo, "allowed")); err != nil || again.Sandbox != "workspace-write" {
		t.Errorf("after its review the agent has sandbox %s, and its file: %v", again.Sandbox, err)
	}
	l.finish(c)
}

func steeredTurn(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	agent := c.codex("SAY hello").wantSaid("hello").AgentID
	first := c.again(agent, "GATE open first answer")
	l.api.await(t, "GATE open first answer")
	queued := c.again(agent, "SAY queued")
	into := c.again(agent, "SAY steered", "steer", true, "background", true).tool().Turn // Codex has it by now
	close(l.api.gate("open"))
	if turn := first.turn(); turn.TurnID != into.TurnID || turn.Content != "steered" {
		t.Errorf("the turn said %+v, and the message went into %+v", turn, into)
	}
	queued.wantSaid("queued")
	c.again(agent, "SAY alone", "steer", true).wantSaid("alone")
	l.finish(c)
}

func forkedAgent(l *codexLab) {
	c := l.serve(map[string]any{})
	parent := c.codex("SAY known", "identity", "ann").wantSaid("known")
	child := c.codex("SAY in the fork", "fork_of", "ann", "identity", "bob").wantSaid("in the fork")
	l.wantPast("SAY in the fork", "known")
	if child.ThreadID == parent.ThreadID || child.Identity != "bob" {
		l.t.Errorf("fork %+v of %+v", child, parent)
	}
	c.again("ann", "SAY untouched").wantSaid("untouched")
	if req := l.api.await(l.t, "SAY untouched"); slices.Contains(req.Assistant, "in the fork") {
		l.t.Error("the fork's turn is in its parent")
	}
	structured(c.call("agent_close", map[string]any{"agent_id": "ann"}), nil)
	c.codex("SAY of a closed one", "fork_of", parent.AgentID).wantSaid("of a closed one")
	l.wantPast("SAY of a closed one", "known", "untouched")
	l.finish(c)
}

func toldLimits(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	var near, over delegated
	structured(c.codex("LIMIT 93 300 4102444800 still some", "identity", "ann"), &near)
	if near.Content != "still some" || !slices.ContainsFunc(near.Notes,
		func(n string) bool { return strings.Contains(n, "93% of the primary") }) {
		t.Errorf("near the limit: %+v", near)
	}
	var status struct{ Limits *limitsShown }
	structured(c.call("agent_status", map[string]any{}), &status)
	if v := status.Limits; v == nil || len(v.Windows) != 1 || v.Windows[0].Used != 93 || v.Windows[0].Minutes != 300 ||
		v.Windows[0].ResetsAt != "2100-01-01T00:00:00Z" {
		t.Errorf("limits %+v", v)
	}
	wantNil(t, json.Unmarshal(rawField(c.again("ann", "LIMIT 100 300 4102444800").tool().raw, "structuredContent"),
		&over))
	if over.Limit == nil || over.Limit.ResetsAt != "2100-01-01T00:00:00Z" ||
		!strings.Contains(over.Content, "resets at 2100-01-01") {
		t.Errorf("over the limit: %+v, %+v", over, over.Limit)
	}
	l.finish(c)
}

// ownWorktrees: two agents at once change one file each in their own trees. In its sandbox neither can commit; whoever
// does it for them can merge both.
func ownWorktrees(l *codexLab) {
	t, c := l.t, l.serve(map[string]any{})
	git := func(dir string, args ...string) string {
		t.Helper()
		out, err := gitText(t.Context(), dir, append([]string{"-c", "user.name=u", "-c", "user.email=u@h"}, args...)...)
		wantNil(t, err)
		return out
	}
	git(l.repo, "init", "-q")
	git(l.repo, "commit", "-q", "--allow-empty", "-m", "one")
	calls := map[string]*pendingCall{}
	for _, name := range []string{"ann", "bob"} {
		calls[name] = c.codex(fmt.Sprintf("SHELL echo by-%s > %[1]s.txt; git add . 2>&1\nGATE %[1]s done", name),
			"identity", name, "worktree", true, "sandbox", "workspace-write", "approval-policy", "never")
	}
	for name := range calls {
		l.api.await(t, "GATE "+name) // both are at work
	}
	for name, call := range calls {
		l.api.open(name)
		r := call.wantSaid("done")
		tree := filepath.Join(l.repo, ".worktrees", name)
		if r.Worktree.Path != tree || r.Worktree.Branch != "agent/"+name || there(filepath.Join(l.repo, name+".txt")) {
			t.Errorf("%s worked in %+v", name, r.Worktree)
		}
		want(t, git(tree, "status", "--porcelain"), "?? "+name+".txt\n")
		var closed closeResult
		structured(c.call("agent_close", map[string]any{"identity": name}), &closed)
		if closed.Worktree == nil || closed.Worktree.Removed || closed.Worktree.Changed != 1 {
			t.Errorf("closing %s: %+v", name, closed.Worktree)
		}
		git(tree, "add", ".")
		git(tree, "commit", "-q", "-m", name)
	}
	git(l.repo, "merge", "-q", "agent/ann")
	git(l.repo, "merge", "-q", "--no-edit", "agent/bob")
	mustContain(t, readText(t, filepath.Join(l.repo, "ann.txt"))+readText(t, filepath.Join(l.repo, "bob.txt")), "by-ann",
		"by-bob")
	l.finish(c)
}
