package main

// mcp_tools_test.go holds the tools to their table (what clients see of it, what is
// said of bad arguments, results that fit their schemas) and each tool of agents to
// what it asks the hub and answers: turns, waits, decisions on approvals, lists.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// What clients see of the tools, word for word: a change of a struct, a tag or
// a row shows here. After one that is meant:
// `go test -run TestToolsListGolden -update .`
func TestToolsListGolden(t *testing.T) {
	var got bytes.Buffer
	wantNil(t, json.Indent(&got, toolList(toolTable()), "", "  "))
	got.WriteByte('\n')
	const file = "testdata/tools_list.json"
	if *update {
		wantNil(t, os.WriteFile(file, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(file)
	wantNil(t, err)
	if want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n")); !bytes.Equal(got.Bytes(), want) {
		t.Errorf("tools/list is not what %s has; if that is meant, run this test with -update", file)
	}
	// Some clients cut a description, and the instructions, at 2 KB.
	if len(instructions) > 2048 || !utf8.ValidString(instructions) {
		t.Errorf("instructions of %d bytes", len(instructions))
	}
	for _, tool := range toolTable() {
		if len(tool.description) > 2048 || !strings.Contains(instructions, tool.name) {
			t.Errorf("%s: a description of %d bytes, or `instructions` in mcp_eras.go doesn't tell of it", tool.name,
				len(tool.description))
		}
	}
}

// What is ill-typed is -32602 in both eras; what makes no sense is -32007, as an error
// for a legacy client and a result for a modern one. Neither reaches the hub.
func TestBadArguments(t *testing.T) {
	type badCall struct{ tool, args, says string }
	illTyped := []badCall{
		{"codx", `{}`, `(there are codex, codex-reply, codex-review, agent_wait`},
		{"codx", `{}`, `did you mean "codex"`},
		{"codex", `[]`, "must be an object"},
		{"codex", `{"prompt":5}`, `"prompt" of tool codex must be a string, not 5`},
		{"codex", `{"promt":"x"}`, `did you mean "prompt"`},
		{"codex", `{"zzz":1}`, `"zzz" (it takes prompt, agent_file`},
		{"codex", `{"sandbox":"read_only"}`, "one of read-only, workspace-write, danger-full-access"},
		{"codex", `{"approval-policy":7}`, "one of untrusted, on-failure, on-request, never"},
		{"codex", `{"config":[]}`, "an object"},
		{"codex", `{"timeout_secs":0}`, "over 0 and at most 86400"},
		{"codex", `{"timeout_secs":86401}`, `"timeout_secs"`},
		{"codex", `{"timeout_secs":1e999}`, `"timeout_secs"`},
		{"codex", `{"background":1}`, "true or false"},
		{"agent_wait", `{"agent_ids":"codex:a"}`, "1 to 100 strings"},
		{"agent_wait", `{"agent_ids":[]}`, "1 to 100 strings"},
		{"agent_wait", `{"agent_ids":["codex:a",5]}`, "1 to 100 strings"},
		{"agent_wait", `{"agent_ids":["a"` + strings.Repeat(`,"a"`, 100) + `]}`, "1 to 100 strings"},
		{"agent_wait", `{"timeout_secs":-1}`, "from 0 to 3600"},
		{"agent_wait", `{"since":1.5}`, "a whole number"},
		{"agent_approve", approvalArgs(`"decision":"yes"`), "one of approve, approve_for_session, deny"},
		{"agent_approve", approvalArgs(`"decision":"approve","answers":{"q":5}`), `the answer to "q" must be a string`},
		{"agent_approve", approvalArgs(`"decision":"approve","answers":{"q":["x",1]}`), `"answers"`},
		{"agent_status", `{"x":1}`, "takes none"},
	}
	senseless := []badCall{
		{"codex", `{"prompt":null}`, "no prompt: give prompt, agent_file or agent_id"},
		{"codex", `{"prompt":" \n"}`, "prompt is empty"},
		{"codex", `{"prompt":"x","agent_file":"f"}`, "agent_file and prompt"},
		{"codex", `{"agent_id":"codex:a","agent_file":"f"}`, "agent_file starts"},
		{"codex", `{"agent_file":""}`, "agent_file is empty"},
		{"codex", `{"agent_id":"","prompt":"x"}`, "agent_id is empty"},
		{"codex", `{"agent_id":"codex:a","threadId":"t","prompt":"x"}`, `"codex:a" and threadId "t" are two names`},
		{"codex", `{"prompt":"x","identity":"../up"}`, "../up"},
		{"codex", `{"agent_id":"codex:a","background":true,"notify":"team-lead"}`, "without prompt none runs"},
		{"codex-reply", `{"background":true,"prompt":"x"}`, "no agent"},
		{"codex-reply", `{"agent_id":"codex:a"}`, "no prompt: say what codex:a"},
		{"codex-reply", `{"agent_id":"codex:a","prompt":""}`, "prompt is empty"},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","notify":"team-lead"}`, "give background: true too"},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":" "}`, "notify is empty"},
		{"agent_wait", `{}`, "agent_ids for several"},
		{"agent_wait", `{"agent_ids":["codex:a"," "]}`, "an empty name"},
		{"agent_wait", `{"agent_id":"codex:a","agent_ids":["codex:b"]}`, "exclude each other"},
		{"agent_wait", `{"inbox":"a b"}`, "inbox: "},
		{"agent_wait", `{"agent_id":"codex:a","turn_id":""}`, "turn_id is empty"},
		{"agent_wait", `{"agent_id":"codex:a","turn_id":"t","inbox":"ann"}`, "leave inbox out"},
		{"agent_wait", `{"agent_id":"codex:a","turn_id":"t","since":4}`, "leave since and all out"},
		{"agent_wait", `{"agent_ids":["codex:a"],"turn_id":"t"}`, "instead of agent_ids"},
		{"agent_approve", `{"approval_id":"1","action":"ls","decision":"deny"}`, "no agent"},
		{"agent_approve", `{"agent_id":"codex:a","action":"ls","decision":"deny"}`,
			"no approval_id: say which approval of codex:a"},
		{"agent_approve", `{"agent_id":"codex:a","approval_id":"1"}`, `no action: repeat the action of approval "1"`},
		{"agent_approve", approvalArgs(`"reason":"x"`), "approve_for_session"},
		{"agent_approve", approvalArgs(`"decision":"deny","answers":{"q":"x"}`), "exclude each other"},
		{"agent_approve", approvalArgs(`"decision":"approve","reason":"no"`), "reason is of a denial"},
		{"agent_interrupt", `{}`, "no agent"},
		{"agent_interrupt", `{"agent_id":"codex:a","turn_id":" "}`, "turn_id is empty"},
		{"agent_mail", `{"agent_id":"codex:a"}`, "no auto"},
		{"agent_close", `{"identity":""}`, "identity"},
		{"agent_close", `{"identity":"a","agent_id":"codex:b"}`, "only one"},
	}
	inBothEras(t, nil, func(t *testing.T, r *mcpRig) {
		for _, c := range illTyped {
			failsWith(t, r.tool(c.tool, c.args), codeInvalidParams, c.says)
		}
		for _, c := range senseless {
			r.fails(r.tool(c.tool, c.args), codeInvalidSession, c.says)
		}
		for _, name := range []string{`"id":1`, `"name":5`, `"name":null`} {
			params := `{` + map[bool]string{true: modernMeta + ","}[r.modern] + name + `}`
			failsWith(t, r.ask("tools/call", params), codeInvalidParams)
		}
		r.quiet()
		if len(r.submits)+len(r.waits) != 0 {
			t.Error("a bad call reached the hub")
		}
	})
}

func approvalArgs(more string) string {
	return `{"agent_id":"codex:a","approval_id":"1","action":"ls",` + more + `}`
}

// fits checks structuredContent against the tool's declared output schema. Only an
// error may have members that aren't declared.
func fits(t *testing.T, r *mcpRig, name string, rec json.RawMessage) {
	t.Helper()
	i := slices.IndexFunc(r.f.tools, func(x tool) bool { return x.name == name })
	schema, err := parseSchema(resultSchema(r.f.tools[i].result, errorResult{}))
	wantNil(t, err)
	value := mustJSON(t, string(rawField(rec, "result", "structuredContent")))
	why := slices.DeleteFunc(schema.problems(schema.root, value, "structuredContent"), func(s string) bool {
		return strings.Contains(s, ".error: the schema knows no member")
	})
	if len(why) > 0 {
		t.Errorf("%s: %s in %s", name, strings.Join(why, "; "), rec)
	}
}

// Every turn result that can be made stands in its declared output schema, in both
// eras, and its text is there for those that read only text.
func TestTurnResults(t *testing.T) {
	turn := func(content, status string, change func(*turnResult)) turnResult {
		r := okTurn(content)
		r.TurnStatus = status
		change(&r)
		return r
	}
	running := turnResult{AgentID: "codex:ab12", TurnID: "bg-1", Identity: "arch", Status: "busy",
		TurnStatus: "running", turnFacts: turnFacts{Notes: []string{"A note."}}}
	inBothEras(t, nil, func(t *testing.T, r *mcpRig) {
		for _, c := range []struct {
			result turnResult
			want   string
		}{
			{okTurn("the answer"), `{"isError":"$absent","content":[{"type":"text","text":"the answer"}],
				"structuredContent":{"agent_id":"codex:ab12","threadId":"01a1","turn_id":"turn-1","content":"the answer",
				"identity":"codex","team":"default","status":"idle","turn_status":"completed",
				"usage":{"total_tokens":120},"duration_ms":1500,"sandbox":"workspace-write",
				"approval_policy":"on-request"}}`},
			{turn("partial", "interrupted", func(r *turnResult) {
				r.Notes, r.Declined = []string{"A note."}, []declined{{"command", "rm -rf x", "client"}}
			}), `{"isError":true,"structuredContent":{"notes":["A note."]},
				"content":[{"text":"partial"},{"text":"$re:codex:ab12.*codex-reply with agent_id.*rm -rf x.*A note"}]}`},
			{turn("", "failed", func(r *turnResult) { r.Usage, r.TurnID, r.Status = nil, "", statusBroken }),
				`{"isError":true,"content":[{"text":"the turn failed without an answer"},
				{"text":"$re:codex with agent_id"}]}`},
			{turn("", "", func(r *turnResult) { r.Usage, r.TurnID = nil, "" }),
				`{"isError":"$absent","content":[{"text":"$re:is open; no turn was run"}]}`},
			// What is needed to get the answer of a background turn stands in content too, where a model sees it.
			{running, `{"isError":"$absent","content":[{"text":"$re:agent_wait with agent_id codex:ab12.*A note"}],
				"structuredContent":{"threadId":"$absent","turn_id":"bg-1","turn_status":"running",
				"content":"$re:^No answer yet"}}`},
			{turnResult{TurnStatus: "queued"}, `{"content":[{"text":"$re:as soon as the turns before"}]}`},
		} {
			r.f.done(r.codex("1"), c.result)
			rec := r.answerTo("1")
			fits(t, r, "codex", rec)
			hasFields(t, resultOf(t, rec), c.want)
		}
		for _, e := range []*rpcError{
			{Code: -32600, Message: "thread/start failed",
				Data: json.RawMessage(`{"error_source":"child","child_error":{"code":-32600}}`)},
			proxyError(codeIdentityConflict, "taken", "agent_id", "codex:z", "pid", 12),
		} {
			r.f.done(r.codex("1"), turnResult{err: e})
			rec := r.answerTo("1")
			if r.modern {
				fits(t, r, "codex", rec)
			}
			mustContain(t, string(rec), fmt.Sprintf(`"code":%d`, e.Code), e.Message)
			_ = eachField(e.Data, func(key string, val json.RawMessage) bool { // a reader of the error needs these
				mustContain(t, string(rec), fmt.Sprintf("%q:%s", key, val))
				return true
			})
		}
	})
}

// What the tools about all agents tell stands in their output schemas.
func TestListsAndStatus(t *testing.T) {
	now, two := time.Now(), 2
	full := sessionView{AgentID: "codex:a", Backend: "codex", BackendID: "t", Team: "default", Identity: "arch",
		Status: "idle", LastActive: now, StartedAt: now, Tag: "x", Role: "r", Interrupted: true, Resumable: true,
		Activity: "thinking",
		Source:   "client", LastError: "e", Pending: []askView{askOf(everyAsk())}, Mine: true,
		AutoMail: "paused: 10 mail turns in a row", PendingMail: &two}
	var status statusView
	limits := make(chan int, 10)
	inBothEras(t, func(o *mcpOptions) {
		o.limited = func(done func(statusView)) { done(status) }
		o.sessions = func(n int) []sessionView {
			limits <- n
			return map[int][]sessionView{50: {full, {AgentID: "b"}}}[n]
		}
	}, func(t *testing.T, r *mcpRig) {
		for _, c := range []struct {
			status statusView
			want   string
		}{
			{statusView{Team: "default", Identities: map[string]string{}, ChildError: "exit code 3"}, `{
				"content":[{"text":"$re:not running: exit code 3"}],
				"structuredContent":{"child_alive":false,"child_version":null,"backend":null,"team":"default",
				"uptime_secs":0,"sessions":0,"identities":{},"agents":[],"pending_mail":null,
				"budget":{"event_bytes_waiting":0,"event_bytes_limit":0,"output_bytes_waiting":"$any",
				"output_bytes_limit":16777216}}}`},
			{statusView{ChildAlive: true, ChildVersion: "0.169.0", Backend: "app-server", ChildPID: 7, Team: "x",
				TeamFrom: "flag", Uptime: 90 * time.Second, Sessions: 1,
				Identities: map[string]string{"arch": "codex:a"},
				Agents:     []sessionView{full}, EventBytes: 3, EventBytesLimit: 40, PendingMail: &two,
				Unsaved: "records can't be written"},
				`{"content":[{"text":"$re:Their unread messages: 2. records can't be written"}],"structuredContent":{
				"team_from":"flag","uptime_secs":90,"agents":[{"auto_mail":"paused: 10 mail turns in a row","pending_mail":2}],
				"budget":{"event_bytes_waiting":3,"event_bytes_limit":40}}}`},
		} {
			status = c.status
			rec := r.tool("agent_status", "{}")
			fits(t, r, "agent_status", rec)
			hasFields(t, resultOf(t, rec), c.want)
		}
		for _, c := range []struct {
			args  string
			limit int
			want  string
		}{
			{`{"limit":null}`, 50, `{"content":[{"text":"$re:unread messages: 2"}],
				"structuredContent":{"sessions":[{"pending_mail":2},{}]}}`},
			{`{"limit":7}`, 7, `{"content":[{"text":"$re:^No agents"}],"structuredContent":{"sessions":[]}}`},
		} {
			rec := r.tool("agent_sessions", c.args)
			fits(t, r, "agent_sessions", rec)
			hasFields(t, resultOf(t, rec), c.want)
			if got := <-limits; got != c.limit {
				t.Errorf("%s: %d", c.args, got)
			}
		}
	})
}

// Which agent a call means, whether a turn runs, and what becomes of one that runs in
// the background.
func TestTurnArguments(t *testing.T) {
	all := turnRequest{mode: modeNew, run: true, timeout: 2500 * time.Millisecond, identity: "arch", role: "ro",
		tag: "ta", cwd: "/w",
		options: sessionOptions{Model: "m", Approval: "on-request", Sandbox: "read-only",
			Config: json.RawMessage(`{"a":1}`), BaseInstructions: "bi", DeveloperInstructions: "di",
			CompactPrompt: "cp", Profile: "pr"}}
	cases := []struct {
		tool, args string
		want       turnRequest
	}{
		{"codex", `{"prompt":"p","model":"m","cwd":"/w","approval-policy":"on-failure","sandbox":"read-only",
			"config":{"a":1},"base-instructions":"bi","developer-instructions":"di","compact-prompt":"cp","profile":"pr",
			"identity":"arch","role":"ro","tag":"ta","timeout_secs":2.5,"agent_id":null}`, all},
		{"codex", `{"threadId":"t-1","prompt":"p"}`, turnRequest{mode: modeRevive, ref: "t-1", run: true}},
		{"codex", `{"prompt":"p","background":true}`, turnRequest{mode: modeNew, run: true, background: true,
			approvals: "caller"}},
		{"codex", `{"agent_id":"codex:a","background":true}`,
			turnRequest{mode: modeRevive, ref: "codex:a"}}, // no turn: reopening is answered
		{"codex-reply", `{"conversationId":"t-1","threadId":"t-1","prompt":"p"}`,
			turnRequest{mode: modeReply, ref: "t-1", run: true}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":" boss@other "}`,
			turnRequest{mode: modeReply, ref: "codex:a", run: true, background: true, approvals: "caller",
				notify: "boss@other"}},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":null,"notify":null}`,
			turnRequest{mode: modeReply, ref: "codex:a", run: true}},
	}
	inBothEras(t, nil, func(t *testing.T, r *mcpRig) {
		for _, c := range cases {
			s := r.begin("1", callParams(r.modern, c.tool, c.args))
			if s.req.correlation = ""; s.req.run {
				c.want.prompt = "p"
			}
			if got, want := fmt.Sprintf("%+v", s.req), fmt.Sprintf("%+v", c.want); got != want {
				t.Errorf("%s %s:\ngot  %s\nwant %s", c.tool, c.args, got, want)
			}
			r.f.done(s.w, okTurn(""))
			r.answerTo("1")
		}
	})
}

// Where an agent file is looked for, and what its effort becomes; the scripts named
// agent-file- hold the rest (FR-16.1).
func TestAgentFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.md")
	wantNil(t, os.WriteFile(file, []byte("---\nname: Code Reviewer\nmodel: sonnet\neffort: high\n---\nbe good\n"),
		0o600))
	r := newRig(t, func(o *mcpOptions) { o.DefaultCwd = filepath.Dir(dir) })
	r.hello("2025-11-25", "{}", "x")
	for id, args := range []string{
		fmt.Sprintf(`{"agent_file":"a.md","cwd":%q}`, dir),
		fmt.Sprintf(`{"agent_file":"a.md","cwd":%q}`, filepath.Base(dir)),
		fmt.Sprintf(`{"agent_file":%q}`, filepath.Join(filepath.Base(dir), "a.md")),
		fmt.Sprintf(`{"agent_file":%q}`, file),
		fmt.Sprintf(`{"agent_file":%q,"identity":"me","model":"m","config":{"model_reasoning_effort":"low"}}`, file),
	} {
		got := r.begin(fmt.Sprint(id), callParams(false, "codex", args)).req
		said := fmt.Sprint(got.mode, got.run, got.prompt, got.agentName, got.implied, got.identity, got.options.Model,
			string(got.options.Config), len(got.notes))
		want := fmt.Sprint(modeNew, true, "be good", "Code Reviewer", "Code-Reviewer", "", "",
			`{"model_reasoning_effort":"high"}`, 1)
		if id == 4 { // what the call says itself comes first
			want = fmt.Sprint(modeNew, true, "be good", "Code Reviewer", "", "me", "m",
				`{"model_reasoning_effort":"low"}`, 0)
		}
		if said != want || got.agentSource != file {
			t.Errorf("%s: %s", args, said)
		}
	}
	failsWith(t, r.tool("codex", `{"agent_file":"nowhere.md"}`), codeAgentFile, "nowhere.md")
	for in, added := range map[string]string{"": `{"k":"v"}`, " { } ": `{"k":"v"}`, `{"a":1}`: `{"k":"v","a":1}`} {
		want(t, string(addField(json.RawMessage(in), "k", "v")), added)
	}
}

func askOf(q approval) askView {
	return askView{ApprovalID: q.id, Kind: q.kind, Action: q.action, Cwd: q.cwd, Reason: q.reason, q: q}
}

// everyAsk has every field, which no real one has.
func everyAsk() approval {
	return approval{id: "ask-1", forSession: true, kind: askFileChange, thread: "t-sub", action: "update /w/a",
		command: "cmd", cwd: "/w", reason: "it is needed",
		files: []fileChange{{path: "/w/a", kind: "update", diff: "@@ -1 +1 @@\n-x\n+y\n"},
			{path: "/w/b", kind: "add", diff: "new"}},
		questions: []question{{id: "q1", header: "H", text: "Which?", options: []string{"A", "B"}}}}
}

// An approval is shown whole, and the call that is spelt out beside it must be one that
// agent_approve takes.
func TestApprovalIsShownWithTheCallThatDecidesIt(t *testing.T) {
	shown := askShape("t-root", askOf(everyAsk()))
	hasFields(t, toJSON(shown), `{"approval_id":"ask-1","kind":"file_change","action":"update /w/a","command":"cmd",
		"cwd":"/w","reason":"it is needed","subagent":"t-sub","for_session":true,
		"questions":[{"id":"q1","header":"H","text":"Which?","options":["A","B"]}],
		"diff":"--- /w/a\n+++ /w/a\n@@ -1 +1 @@\n-x\n+y\n--- /dev/null\n+++ /w/b\n@@ -0,0 +1,1 @@\n+new\n`+
		`\\ No newline at end of file\n"}`)
	q := everyAsk()
	for _, own := range []string{"t-sub", ""} {
		if s := askShape(own, askOf(q)); s.Subagent != "" {
			t.Errorf("the agent's own thread is no subagent: %+v", s)
		}
	}
	q.files = []fileChange{{path: "/w/a", kind: "add", diff: strings.Repeat("ä", maxShownDiff)}}
	if s := askShape("", askOf(q)); len(s.Diff) > maxShownDiff+100 || !strings.Contains(s.Diff, "diff cut") ||
		!json.Valid(toJSON(s)) {
		t.Errorf("a diff of %d bytes", len(s.Diff))
	}

	text := aboutAsk(nil, "codex:a", &shown)
	mustContain(t, text, "ask-1", "file_change", "in /w", "it is needed", "t-sub", "q1: Which? (A | B)", "+y",
		`"approve_for_session", "deny"`)
	_, rest, _ := strings.Cut(text, "agent_approve ")
	var call json.RawMessage
	wantNil(t, json.NewDecoder(strings.NewReader(rest)).Decode(&call))
	args, e := decodeArgs("agent_approve", tableRow(t, "agent_approve").args, call)
	if e != nil {
		t.Fatal(e)
	}
	got, e := readApprove(args)
	if e != nil || got.Action != shown.Action || got.Ask != "ask-1" || got.Agent != "codex:a" ||
		got.Decision != approve || got.Answers["q1"][0] != "…" {
		t.Errorf("%+v %v", got, e)
	}
}

// What each tool of one agent asks the hub and tells, and how it tells of a refusal.
func TestToolsOfOneAgent(t *testing.T) {
	two := 2
	asked := make(chan string, 1)
	var refuse *rpcError
	hub := func(o *mcpOptions) {
		o.status = func() statusView {
			return statusView{Agents: []sessionView{{AgentID: "codex:z"},
				{AgentID: "codex:a", BackendID: "t-1", Identity: "arch", Status: "idle"}}}
		}
		o.approve = func(q approveQuery, done func(decision, *rpcError)) {
			asked <- fmt.Sprintf("%s %s %q %v %q %q", q.Agent, q.Ask, q.Action, q.Decision, q.By.said, q.Answers)
			if q.By.who != byCaller {
				t.Errorf("decided by %v", q.By.who)
			}
			go done(q.Decision, refuse)
		}
		o.interrupt = func(ref, turn string, done func(interruptResult, *rpcError)) {
			asked <- ref + " " + turn
			go done(interruptResult{"codex:a", "arch", turn, turn != "", len(turn)}, refuse)
		}
		o.close = func(ref, _ string, done func(closeResult, *rpcError)) {
			asked <- ref
			go done(closeResult{AgentID: "codex:a", Identity: ref, Status: "closed", Already: ref == "gone",
				Interrupted: ref == "busy"}, refuse)
		}
		o.setMail = func(ref string, auto bool, done func(sessionView, *rpcError)) {
			asked <- fmt.Sprint(ref, " ", auto)
			word := map[bool]string{true: "on", false: "off"}[auto]
			go done(sessionView{AgentID: "codex:a", Identity: "arch", AutoMail: word, PendingMail: &two}, refuse)
		}
	}
	inBothEras(t, hub, func(t *testing.T, r *mcpRig) {
		for _, c := range []struct{ tool, args, asks, text, structured string }{
			{"agent_approve", `{"threadId":"t-1","approval_id":"1","action":"rm -rf  x","decision":"approve"}`,
				`t-1 1 "rm -rf  x" approve "" map[]`, "1 is approved: rm -rf x",
				`{"agent_id":"codex:a","identity":"arch","approval_id":"1","action":"rm -rf  x","decision":"approve"}`},
			{"agent_approve", approvalArgs(`"decision":"approve_for_session"`),
				`codex:a 1 "ls" approve_for_session "" map[]`,
				"approved for the whole session", `{"decision":"approve_for_session"}`},
			{"agent_approve", approvalArgs(`"decision":"deny","reason":"not now"`),
				`codex:a 1 "ls" deny "not now" map[]`,
				"1 is denied", `{"decision":"deny"}`},
			{"agent_approve", approvalArgs(`"decision":"approve","identity":"Arch","answers":{"q1":"x","q2":["y","z"]}`),
				`codex:a 1 "ls" approve "" map["q1":["x"] "q2":["y" "z"]]`, "approved", `{}`},
			{"agent_interrupt", `{"threadId":"t-1","turn_id":"u2"}`, "t-1 u2", "Turns that still wait for it: 2.",
				`{"turn_id":"u2","interrupted":true,"queued":2,"status":"idle"}`},
			{"agent_interrupt", `{"identity":"arch"}`, "arch ", "had no such turn to stop",
				`{"interrupted":false,"queued":0}`},
			{"agent_close", `{"identity":"busy"}`, "busy", "is closed; its running turn was interrupted.",
				`{"status":"closed"}`},
			{"agent_close", `{"identity":"gone"}`, "gone", "is closed; it was before.", `{}`},
			{"agent_mail", `{"identity":"arch","auto":false}`, "arch false",
				"Automatic mail of agent codex:a (identity arch) is off. Unread messages: 2.",
				`{"agent_id":"codex:a","identity":"arch","auto_mail":"off","pending_mail":2}`},
			{"agent_mail", `{"agent_id":"codex:a","auto":true}`, "codex:a true", "is on.", `{"auto_mail":"on"}`},
		} {
			rec := r.tool(c.tool, c.args)
			if got := <-asked; got != c.asks {
				t.Errorf("%s %s asks for %s", c.tool, c.args, got)
			}
			fits(t, r, c.tool, rec)
			hasFields(t, rawField(rec, "result", "structuredContent"), c.structured)
			mustContain(t, string(rawField(rec, "result", "content")), c.text)
			refuse = proxyError(codeSessionNotFound, "none")
			r.fails(r.tool(c.tool, c.args), codeSessionNotFound)
			refuse, _ = nil, <-asked
		}
		r.fails(r.tool("agent_approve", approvalArgs(`"decision":"approve","identity":"bob"`)), codeInvalidSession,
			"is arch and not bob")
	})
}

// waitFor sends an agent_wait and returns what the hub is asked.
func (r *mcpRig) waitFor(args string) waited {
	r.t.Helper()
	r.request("1", "tools/call", callParams(r.modern, "agent_wait", args))
	return <-r.waits
}

// What agent_wait asks the hub; its cancel ends the hub's wait and answers nothing.
func TestWaitArguments(t *testing.T) {
	r := newRig(t, func(o *mcpOptions) {
		o.interrupt = func(agent, _ string, _ func(interruptResult, *rpcError)) {
			t.Errorf("a cancelled wait stopped the turn of %s", agent)
		}
	})
	r.hello("2025-11-25", "{}", "x")
	for _, c := range []struct {
		args string
		want waitQuery
	}{
		{`{"agent_id":"codex:a"}`, waitQuery{Agents: []string{"codex:a"}, Timeout: 45 * time.Second}},
		{`{"conversationId":"t-1"}`, waitQuery{Agents: []string{"t-1"}, Timeout: 45 * time.Second}},
		{`{"agent_ids":["codex:a"," codex:b","codex:a"],"all":true,"since":1790000000000000,"timeout_secs":0.5}`,
			waitQuery{Agents: []string{"codex:a", "codex:b"}, All: true, Since: 1790000000000000,
				Timeout: 500 * time.Millisecond}},
		{`{"agent_id":"codex:a","timeout_secs":0,"since":0,"all":false}`,
			waitQuery{Agents: []string{"codex:a"}, Timeout: 1}},
		{`{"inbox":"lead","timeout_secs":3600,"since":9007199254740991}`,
			waitQuery{Inbox: "lead", Since: 9007199254740991, Timeout: time.Hour}},
	} {
		c.want.Own = true
		got := r.waitFor(c.args)
		if fmt.Sprint(got.q) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v", c.args, got.q)
		}
		got.done(waitResult{}, nil)
		r.answerTo("1")
	}
	got := r.waitFor(`{"agent_id":"codex:a"}`)
	r.cancelRequest(`1`, `null`)
	<-got.stop
	got.done(waitResult{}, nil) // it was on its way
	r.quiet()
	if len(r.cancels) != 0 {
		t.Error("a wait is no turn to cancel")
	}
}

func TestWaitTellsEverything(t *testing.T) {
	ok := okTurn("the answer")
	ok.Declined, ok.Notes = []declined{{"command", "rm -rf x", "client"}}, []string{"A note."}
	failed := okTurn("")
	failed.TurnStatus, failed.Usage = "failed", nil
	late := turnResult{err: proxyError(codeTimeout, "silent for 5m", "agent_id", "codex:a", "turn_id", "u-3", "partial",
		"half an answer")}
	two := 2
	many := waitResult{Seq: 77, Inbox: mailBox{Name: "lead", Unread: 3}, Agents: []waitAgent{
		{View: sessionView{AgentID: "codex:a", BackendID: "t-1", Identity: "arch", Status: "busy",
			Activity: "waiting for approval",
			Source:   "client", Queued: 2, LastError: "e", Pending: []askView{askOf(everyAsk())}}, Turns: []keptTurn{
			{TurnID: "bg-1", Seq: 70, Status: "completed", Result: &ok},
			{TurnID: "u-2", Seq: 71, Status: "failed", Source: sourceMail, Result: &failed},
			{TurnID: "u-3", Seq: 72, Status: "failed", Result: &late},
			{TurnID: "bg-4", Status: "running", Activity: "running `ls`"},
		}},
		{View: sessionView{AgentID: "codex:b", Identity: "bob", Status: "idle", AutoMail: "off", PendingMail: &two}},
	}}
	inBothEras(t, nil, func(t *testing.T, r *mcpRig) {
		r.waitFor(`{"agent_ids":["codex:a","codex:b"]}`).done(many, nil)
		rec := r.answerTo("1")
		fits(t, r, "agent_wait", rec)
		hasFields(t, rawField(rec, "result", "structuredContent"), `{"seq":77,"timed_out":"$absent","unread":3,
			"next":"$re:agent_approve.*since 77",
			"agents":[{"turn_source":"client","queued":2,"last_error":"e","pending_approvals":[{"approval_id":"ask-1"}],
			"turns":[
				{"turn_id":"bg-1","turn_status":"completed","content":"the answer","duration_ms":1500,"seq":70,
					"sandbox":"workspace-write","declined":[{"kind":"command","action":"rm -rf x","reason":"client"}],
					"notes":["A note."],"usage":{"total_tokens":120}},
				{"turn_id":"u-2","turn_status":"failed","source":"mail","content":"the turn failed without an answer"},
				{"turn_id":"u-3","turn_status":"failed","content":"half an answer",
					"error":{"name":"REQUEST_TIMEOUT","code":-32006,"error_source":"proxy","partial":"$absent"}},
				{"turn_id":"bg-4","turn_status":"running","activity":"running `+"`ls`"+`","content":"$absent"}]},
			{"auto_mail":"off","pending_mail":2,"turns":[],"pending_approvals":[]}]}`)
		mustContain(t, stringField(rawField(rec, "result", "content")[1:], "text"), "codex:a", "arch", "the answer",
			"rm -rf x", "A note.", "REQUEST_TIMEOUT", "ask-1", `agent_approve {"agent_id":"codex:a"`,
			"bob, is idle. Unread messages: 2.", "Unread messages of lead: 3.", "since 77")
		r.waitFor(`{"agent_id":"codex:x"}`).done(waitResult{}, proxyError(codeSessionNotFound, "no agent codex:x"))
		r.fails(r.answerTo("1"), codeSessionNotFound)
	})
}

// What agent_wait says to do next, for every state that it can find: it never says
// to wait for what has been told, or where nothing will come.
func TestWaitNextStep(t *testing.T) {
	const again = "call agent_wait again with since 5"
	const nothing = "No turn runs or waits, so there is nothing to wait for; "
	const working = "Turns are still running: " + again + ", or do other work first."
	const decide = "Decide each of pending_approvals with agent_approve {agent_id, approval_id, action, decision}, " +
		"action repeated word for word; then "
	two, none := 2, 0
	view := func(status, name, auto string, mail *int) waitAgent {
		return waitAgent{View: sessionView{AgentID: name, Identity: name, Status: status, AutoMail: auto,
			PendingMail: mail}}
	}
	idle, busy, mailed := view("idle", "ann", "on", nil), view("busy", "bob", "on", nil), view("idle", "ann", "off",
		&two)
	queued, asking, told, barred := idle, busy, idle, mailed
	queued.View.Queued = 1
	asking.View.Pending = []askView{{}}
	told.Turns = []keptTurn{{}}
	barred.View.barred = true // its mail is another's
	says := func(words, turn string, own, inbox mailBox, agents ...waitAgent) {
		t.Helper()
		want(t, nextStep(nil, &waitResult{Seq: 5, Agents: agents, Own: own, Inbox: inbox}, turn), words)
	}
	for _, c := range []struct {
		want   string
		agents []waitAgent
	}{
		{nothing + "codex-reply continues ann.", []waitAgent{idle}},
		{"", []waitAgent{told}},
		{nothing + "codex-reply continues ann; codex {agent_id, prompt} reopens zoe, eve.",
			[]waitAgent{idle, view("closed", "zoe", "", nil), view("broken", "eve", "", nil)}},
		{nothing + "codex-reply continues eve, ann.", []waitAgent{view("parked", "eve", "on", &two),
			view("stale", "ann", "", nil)}},
		{working, []waitAgent{idle, busy}},
		{working, []waitAgent{queued}},
		{decide + again + ".", []waitAgent{busy, asking, mailed}},
		{`Read the mail of ann with atm_read {"identity": "ann"}; then ` + again + ".", []waitAgent{mailed, busy}},
		{`Read the mail of ann with atm_read {"identity": "ann"}.`,
			[]waitAgent{view("idle", "ann", "paused: too many", &two)}},
		{nothing + "codex-reply continues ann.", []waitAgent{view("idle", "ann", "off", &none)}},
		{nothing + "codex-reply continues ann.", []waitAgent{barred}},
	} {
		says(c.want, "", mailBox{}, mailBox{}, c.agents...)
	}
	mail, nobody := mailBox{Name: "Arch", Unread: 1}, mailBox{}
	says("Read your mail with atm_read {}.", "", mail, nobody, idle)
	says("Read your mail with atm_read {}; then "+again+".", "", mail, nobody, busy)
	says(decide+again+".", "", mail, nobody, asking)
	says(`Read the mail of ann with atm_read {"inbox": "ann"}; then `+again+".", "", nobody,
		mailBox{Name: "ann", Unread: 1, Ours: true})
	says(`atm_read {"inbox": "Arch"} shows the mail of Arch, which stays unread until its owner reads it; `+
		`to hear of newer mail `+again+".",
		"", nobody, mail)
	says("No mail for Arch yet: to wait on, "+again+".", "", nobody, mailBox{Name: "Arch"}, idle)
	// One turn was asked for: since would be refused beside turn_id, and what the agent does after that turn is not
	// waited for.
	busy.Turns = []keptTurn{{TurnID: "t1", Result: &turnResult{}, Status: "completed"}}
	says("", "t1", nobody, nobody, busy)
	busy.Turns = []keptTurn{{TurnID: "t1", Status: "running"}}
	says("The turn has not ended: call agent_wait again with turn_id t1, or do other work first.", "t1", nobody, nobody,
		busy)
	asking.Turns = busy.Turns
	says(decide+"call agent_wait again with turn_id t1.", "t1", nobody, nobody, asking)
}

// turn_id waits for that turn and no other, and brings its answer whole.
func TestWaitForOneTurn(t *testing.T) {
	long := strings.Repeat("x", 3*waitBudget)
	done := okTurn(long)
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	for _, c := range []struct {
		result *turnResult
		late   bool
		want   string
	}{
		{&done, false, `{"seq":8,"timed_out":"$absent","agents":[{"turns":[{"turn_id":"bg-1","content":"` + long + `"}]}]}`},
		{nil, true, `{"seq":8,"timed_out":true,"agents":[{"turns":[{"turn_id":"bg-1","activity":"thinking"}]}]}`},
	} {
		r.request("1", "tools/call", callParams(false, "agent_wait",
			`{"agent_id":"codex:a","turn_id":"bg-1","timeout_secs":60}`))
		got := <-r.waits
		if q := got.q; q.Turn != "bg-1" || q.Own || q.Timeout != time.Minute || fmt.Sprint(q.Agents) != "[codex:a]" {
			t.Errorf("asked for %+v", q)
		}
		got.done(waitResult{Seq: 8, TimedOut: c.late, Agents: []waitAgent{{
			View: sessionView{AgentID: "codex:a", Identity: "arch", Status: "busy"},
			Turns: []keptTurn{{AgentID: "codex:a", Identity: "arch", TurnID: "bg-1", Status: "running",
				Activity: "thinking", Result: c.result}}}}}, nil)
		rec := r.answerTo("1")
		fits(t, r, "agent_wait", rec)
		hasFields(t, rec, `{"result":{"structuredContent":`+c.want+`}}`)
	}
}

// The short answers are not cut for the long ones' sake, and a cut one says how to get
// all of it.
func TestLongAnswersAreCutFairly(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		want  int // of a budget of 10
	}{
		{nil, 10}, {[]int{3, 4}, 10}, {[]int{5, 5}, 10}, {[]int{20}, 10}, {[]int{20, 2}, 8}, {[]int{1, 20, 1, 20}, 4},
	} {
		if whole := wholeUpTo(c.sizes, 10); whole != c.want {
			t.Errorf("%v: %d, want %d", c.sizes, whole, c.want)
		}
	}
	live := []sessionView{{AgentID: "codex:a", Identity: "arch", Activity: "running `go test`"},
		{BackendID: "t-b", AgentID: "b", Status: "idle"}, {}}
	want(t, doings(live, []string{"codex:a", "t-b", "codex:gone"}), "arch: running `go test`; b: idle")
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	short, long := okTurn("short"), okTurn(strings.Repeat("é", waitBudget))
	r.waitFor(`{"agent_id":"codex:a"}`).done(waitResult{Agents: []waitAgent{{View: sessionView{AgentID: "codex:a",
		Status: "idle"},
		Turns: []keptTurn{{TurnID: "u-1", Status: "completed", Result: &short},
			{TurnID: "u-2", Status: "completed", Result: &long}}}}}, nil)
	rec := r.answerTo("1")
	fits(t, r, "agent_wait", rec)
	structured := rawField(rec, "result", "structuredContent")
	hasFields(t, structured, fmt.Sprintf(`{"agents":[{"turns":[{"content":"short"},{"content_bytes":%d,
		"content":"$re:agent_id codex:a and turn_id u-2 brings all of it"}]}]}`, 2*waitBudget))
	if len(structured) > waitBudget+2000 {
		t.Errorf("%d bytes", len(structured))
	}
}

func tableRow(t *testing.T, name string) tool {
	t.Helper()
	table := toolTable()
	i := slices.IndexFunc(table, func(row tool) bool { return row.name == name })
	if i < 0 {
		t.Fatalf("no tool %s", name)
	}
	return table[i]
}
