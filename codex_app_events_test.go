package main

// codex_app_events_test.go plays what real app-servers said, from
// testdata/recordings, to the driver and compares the events that it makes of it with
// the golden file beside each recording; tables hold what no recording has, and what
// goes out to which version: a parameter that an older or a newer Codex refuses must
// not be sent to it.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorded is one line of testdata/recordings: ">" went to Codex, "<" came
// from it. The recordings are of real Codex binaries, cut to what is needed.
type recorded struct {
	Dir string          `json:"dir"`
	Msg json.RawMessage `json:"msg"`
}

// TestAppReplay plays what real app-servers said, and lets the driver do what
// the recorded client did. The golden file beside a recording holds what the
// session heard and, behind "> ", what the driver sent in between.
func TestAppReplay(t *testing.T) { eachRecording(t, "app-server", 12, replay) }

// eachRecording compares what play makes of each recording of a backend with the
// golden file beside it; least is how many recordings there must be.
func eachRecording(t *testing.T, backend string, least int, play func(*testing.T, []recorded) string) {
	files, err := filepath.Glob("testdata/recordings/" + backend + "-*.jsonl")
	if err != nil || len(files) < least {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".jsonl"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var lines []recorded
			for _, l := range strings.Split(strings.TrimSpace(string(data)), "\n") {
				var r recorded
				if err := json.Unmarshal([]byte(l), &r); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, r)
			}
			synctest.Test(t, func(t *testing.T) {
				got := play(t, lines)
				golden := strings.TrimSuffix(name, ".jsonl") + ".golden"
				wantGolden(t, golden, got)
			})
		})
	}
}

func replay(t *testing.T, lines []recorded) string {
	p := newAppPeer(t)
	h := &heard{}
	out := &strings.Builder{}
	ids := map[string]string{} // recorded id of a call → the driver's
	ask, thread, turn, cleans, shook := "", "", "", 0, make(chan error, 1)
	flush := func() {
		switch last := h.last(); last.kind {
		case evAsk:
			ask = last.ask.id
		case evTool:
			ask = last.tool.id
		}
		h.mu.Lock()
		for _, e := range h.list {
			if e.kind == evStarted {
				turn = e.turn
			}
		}
		h.mu.Unlock()
		if s := h.take(); s != "" {
			out.WriteString(s + "\n")
		}
	}
	sent := func(m *message) { out.WriteString("> " + m.method + " " + string(m.params) + "\n") }
	run := turnSettings{Cwd: "/w", Approval: "on-request", Sandbox: "workspace-write"}
	ready := func(m message) string { // the method that a session's command begins with
		if p.a.info().atLeast(148) && m.method == "thread/settings/update" {
			return "acts"
		}
		if p.a.info().atLeast(148) && (m.method == "review/start" || m.method == "thread/compact/start") {
			return "sent"
		}
		return m.method
	}
	for i, l := range lines {
		m, err := parseMessage(l.Msg)
		if err != nil {
			t.Fatal(err)
		}
		if l.Dir == "<" {
			line := string(l.Msg)
			if m.isResponse() {
				line = `{"id":` + ids[string(m.id)] + `,"result":` + string(m.result) + "}"
				if m.err != nil {
					line = `{"id":` + ids[string(m.id)] + `,"error":` + string(toJSON(m.err)) + "}"
				}
				if id := stringField(m.result, "thread", "id"); id != "" {
					thread = id
				}
			}
			p.say("%s", line)
			flush()
			continue
		}
		flush()
		switch {
		case ready(m) == "acts":
			for _, next := range lines[i+1:] {
				if n, err := parseMessage(next.Msg); err == nil && next.Dir == ">" {
					p.a.do(2, thread, actionOf(&n, run))
					break
				}
			}
		case ready(m) == "sent":
		case m.method == "review/start", m.method == "thread/compact/start":
			p.a.do(2, thread, actionOf(&m, run))
		case m.method == "thread/read":
			go func() {
				past := &heard{}
				if err := p.a.history(t.Context(), thread, func(e *event) error { past.to(*e); return nil }); err != nil {
					t.Error(err)
				}
				h.to(event{kind: evRaw, method: "the history:"})
				for _, e := range past.list {
					h.to(e)
				}
			}()
		case m.method == "initialize":
			go func() { shook <- p.a.initialize(t.Context()) }()
		case m.method == "initialized":
			if err := <-shook; err != nil {
				t.Fatal(err)
			}
		case m.method == "thread/start":
			p.a.open(1, threadSpec{Settings: turnSettings{Cwd: stringField(m.params, "cwd"), Approval: "on-request", Sandbox: "workspace-write"}}, h.to)
		case m.method == "turn/start":
			c := command{kind: cmdTurn, settings: run}
			eachElement(rawField(m.params, "input"), func(in json.RawMessage) {
				if c.prompt == "" {
					c.prompt = stringField(in, "text")
					return
				}
				c.parts = append(c.parts, promptPart{kind: stringField(in, "type"), text: stringField(in, "text"), url: stringField(in, "url"), path: stringField(in, "path")})
			})
			p.a.do(2, thread, c)
		case m.method == "turn/interrupt":
			p.a.do(3, thread, command{kind: cmdInterrupt, turn: turn})
			if p.a.info().atLeast(148) {
				cleans++
			}
		case m.method == "":
			if word := stringField(m.result, "decision"); word != "" {
				d := map[string]decision{"accept": approve, "acceptForSession": approveForSession, "decline": deny}[word]
				p.a.do(0, thread, command{kind: cmdAnswer, ask: ask, decision: d})
				r := p.reply()
				want(t, r, string(m.id)+" "+string(m.result)) // the very words of the recorded client
				out.WriteString("> reply " + r + "\n")
			}
			if content := rawField(m.result, "contentItems"); content != nil {
				text := ""
				eachElement(content, func(part json.RawMessage) { text += stringField(part, "text") })
				p.a.do(0, thread, command{kind: cmdToolResult, ask: ask, text: text, ok: string(rawField(m.result, "success")) == "true"})
				r := p.next()
				want(t, string(r.id), string(m.id))
				sameJSON(t, r.result, string(m.result)) // the very words of the recorded client
				out.WriteString("> reply " + string(r.id) + " " + string(r.result) + "\n")
			}
			continue
		default:
			t.Fatalf("the recorded client sent %s: teach the test", m.method)
		}
		if m.method == "initialize" || m.method == "initialized" {
			ids[string(m.id)] = string(p.expect(m.method).id)
			continue
		}
		d := p.expect(m.method)
		ids[string(m.id)] = string(d.id)
		sent(d)
		for ; cleans > 0; cleans-- {
			c := p.expect("thread/backgroundTerminals/clean")
			sent(c)
			p.say(`{"id":%s,"result":{}}`, c.id)
		}
	}
	flush()
	time.Sleep(shellsGrace) // a recording may stop before the shells that it interrupted have ended
	flush()
	return out.String()
}

// actionOf is the command that a recorded client's request stands for.
func actionOf(m *message, run turnSettings) command {
	if m.method == "thread/compact/start" {
		return command{kind: cmdTurn, action: actCompact, settings: run}
	}
	return command{kind: cmdTurn, action: actReview, prompt: stringField(m.params, "target", "instructions"), settings: run}
}

// wantGolden compares with what a file has. With UPDATE_GOLDEN set it writes what
// comes now into the file: read the difference.
func wantGolden(t *testing.T, golden, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want(t, got, string(text))
}

// What items tell of calls and commands, in the shapes of 0.104 and 0.169.
func TestAppItemFields(t *testing.T) {
	for _, tc := range []struct{ name, item, want string }{
		{"a command", `{"type":"commandExecution","id":"i","command":"cat a","cwd":"/w","status":"completed","commandActions":[{"type":"read","command":"cat a","name":"a","path":"/w/a"},{"type":"search","command":"grep x b","query":"x","path":null}],"aggregatedOutput":"one\ntwo","exitCode":0,"durationMs":51}`,
			`body={commandExecution  "" "cat a" completed exit=0 output=one|two action=read "/w/a" action=search "" ms=51}`},
		{"an MCP call", `{"type":"mcpToolCall","id":"i","server":"s","tool":"t","status":"completed","arguments":{"x":1},"result":{"content":[],"structuredContent":null},"error":null,"durationMs":2}`,
			`body={mcpToolCall  "" "" completed arguments={"x":1} result={"content":[],"structuredContent":null} ms=2}`},
		{"one that failed", `{"type":"mcpToolCall","id":"i","server":"s","tool":"t","status":"failed","arguments":null,"result":null,"error":{"message":"gone"},"durationMs":null}`,
			`body={mcpToolCall  "" "" failed failure=gone}`},
		{"a dynamic tool", `{"type":"dynamicToolCall","id":"i","namespace":null,"tool":"t","arguments":{},"status":"failed","contentItems":[{"type":"inputText","text":"no"}],"success":false}`,
			`body={dynamicToolCall  "" "" failed arguments={} result=[{"type":"inputText","text":"no"}]}`},
		{"a subagent", `{"type":"collabAgentToolCall","id":"i","tool":"spawnAgent","status":"completed","senderThreadId":"a","receiverThreadIds":["b"],"prompt":"do","model":"","reasoningEffort":null,"agentsStates":{"b":{"status":"running"}}}`,
			`body={collabAgentToolCall  "do" "" completed arguments={"receiverThreadIds":["b"],"prompt":"do"} result={"b":{"status":"running"}}}`},
		{"one that has nothing yet", `{"type":"collabAgentToolCall","id":"i","tool":"wait","status":"inProgress","receiverThreadIds":[],"prompt":null,"agentsStates":{}}`, `body={collabAgentToolCall  "" "" inProgress}`},
		{"a search", `{"type":"webSearch","id":"i","query":"how","action":{"type":"search","query":"how","queries":null}}`, `body={webSearch  "how" ""  query=how}`},
		{"a page", `{"type":"webSearch","id":"i","query":"","action":{"type":"findInPage","url":"http://x","pattern":"p"}}`, `body={webSearch  "" ""  query=p in http://x}`},
		{"an image", `{"type":"imageView","id":"i","path":"/p.png"}`, `body={imageView  "/p.png" ""  path=/p.png}`},
		{"a generated one", `{"type":"imageGeneration","id":"i","status":"failed","savedPath":"/o.png","failure":{"type":"usageLimitExceeded","limitId":"l"}}`, `body={imageGeneration  "" "" failed failure=usageLimitExceeded path=/o.png}`},
		{"a function", `{"type":"functionCallOutput","id":"i","name":"f","namespace":"n","output":"text"}`, `body={functionCallOutput  "" ""  result="text"}`},
		{"a pause", `{"type":"sleep","id":"i","durationMs":1500}`, `body={sleep  "" ""  ms=1500}`},
		{"nonsense", `{"type":7,"arguments":null,"commandActions":7,"error":"x","durationMs":"long","action":[],"result":null}`, `body={  "" "" }`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want(t, eventLine(event{kind: evItem, body: appItem(json.RawMessage(tc.item))}), "item "+tc.want)
		})
	}
}

// 0.104 tells of servers in its first protocol alone.
func TestAppOldServers(t *testing.T) {
	for _, method := range oldEventMethods() {
		if method == oldStatus || method == oldComplete {
			t.Errorf("%s is opted out of", method)
		}
	}
	withApp(t, "", "0.104.0", func(t *testing.T, p *appPeer) {
		h := p.open(threadSpec{})
		say := func(method, msg string) {
			p.say(`{"method":"codex/event/%s","params":{"id":"","msg":%s,"conversationId":"t1"}}`, method, msg)
		}
		say("mcp_startup_update", `{"type":"mcp_startup_update","server":"a","status":{"state":"starting"}}`)
		want(t, h.take(), "server thread=t1 item=a status=starting method=codex/event/mcp_startup_update")
		say("mcp_startup_update", `{"type":"mcp_startup_update","server":"a","status":{"state":"failed","error":"no \"such\""}}`)
		sameJSON(t, h.last().raw, `{"id":"","msg":{"type":"mcp_startup_update","server":"a","status":{"state":"failed","error":"no \"such\""}},"conversationId":"t1"}`)
		want(t, h.take(), `server thread=t1 item=a status=failed text="no \"such\"" method=codex/event/mcp_startup_update`)
		say("mcp_startup_complete", `{"type":"mcp_startup_complete","ready":["r"],"failed":[{"server":"a","error":"no"}],"cancelled":["c"]}`)
		want(t, h.take(), "server thread=t1 item=c status=cancelled\nraw thread=t1 method=codex/event/mcp_startup_complete")
		say("task_started", `{"type":"task_started"}`)
		want(t, h.take(), "")
	})
}

func TestAppTurnParamsPerVersion(t *testing.T) {
	full := turnSettings{Cwd: "/w", Model: "m", Effort: "ultra", Approval: "on-failure", Sandbox: "workspace-write", WritableRoots: []string{"/r"}, Network: true}
	for _, tc := range []struct {
		name, version string
		s             turnSettings
		want          string
	}{
		{"0.104 drops an effort it would refuse", "0.104.0", full,
			`{"threadId":"t1","cwd":"/w","model":"m","approvalPolicy":"on-failure","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/r"],"networkAccess":true,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"0.148 has no on-failure, and any effort", "0.148.0", full,
			`{"threadId":"t1","cwd":"/w","model":"m","effort":"ultra","approvalPolicy":"on-request","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/r"],"networkAccess":true,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"0.104 read-only has no network", "0.104.0", turnSettings{Cwd: "/w", Effort: "HIGH", Approval: "never", Sandbox: "read-only"},
			`{"threadId":"t1","cwd":"/w","effort":"high","approvalPolicy":"never","sandboxPolicy":{"type":"readOnly"}}`},
		{"0.169 read-only has", "0.169.0", turnSettings{Cwd: "/w", Approval: "never", Sandbox: "read-only"},
			`{"threadId":"t1","cwd":"/w","approvalPolicy":"never","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`},
		{"no roots is an empty list, never null", "0.169.0", turnSettings{Sandbox: "workspace-write"},
			`{"threadId":"t1","sandboxPolicy":{"type":"workspaceWrite","writableRoots":[],"networkAccess":false,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"full access", "0.169.0", turnSettings{Sandbox: "danger-full-access"},
			`{"threadId":"t1","sandboxPolicy":{"type":"dangerFullAccess"}}`},
		{"an unknown sandbox is the narrowest", "0.169.0", turnSettings{Sandbox: "everything"},
			`{"threadId":"t1","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := settingsParams(backendInfo{version: tc.version}, "t1", command{settings: tc.s})
			sameJSON(t, toJSON(got), tc.want)
		})
	}
}

func TestAppOpenParamsPerVersion(t *testing.T) {
	spec := threadSpec{Settings: turnSettings{Cwd: "/w", Model: "m", Approval: "never", Sandbox: "danger-full-access"},
		DeveloperInstructions: "D", BaseInstructions: "B", Profile: "p", Ephemeral: true, Config: json.RawMessage(`{"features":{"x":true}}`)}
	resume := spec
	resume.Thread = "t9"
	tools := threadSpec{Tools: []clientTool{{"atm_send", "sends", json.RawMessage(`{"type":"object","required":["to"]}`)}, {Name: "atm_pending_count", Description: "counts"}}}
	kept := tools
	kept.Thread = "t9"
	for _, tc := range []struct {
		name, version, method string
		s                     threadSpec
		want                  string
	}{
		{"start on 0.104 takes the profile", "0.104.0", "thread/start", spec,
			`{"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","ephemeral":true,"config":{"features":{"x":true},"profile":"p"}}`},
		{"start on 0.169 never sends it", "0.169.0", "thread/start", spec,
			`{"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","ephemeral":true,"config":{"features":{"x":true},"thread_unload_delay_secs":1}}`},
		{"resume sends everything again", "0.104.0", "thread/resume", resume,
			`{"threadId":"t9","cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","config":{"features":{"x":true},"profile":"p"}}`},
		{"resume without the turns", "0.148.0", "thread/resume", resume,
			`{"threadId":"t9","excludeTurns":true,"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","config":{"features":{"x":true},"thread_unload_delay_secs":1}}`},
		{"tools in the one form that all versions take", "0.104.0", "thread/start", tools,
			`{"sandbox":"read-only","dynamicTools":[{"type":"function","name":"atm_send","description":"sends","inputSchema":{"type":"object","required":["to"]}},
				{"type":"function","name":"atm_pending_count","description":"counts","inputSchema":{"type":"object","properties":{}}}]}`},
		{"tools are the thread's for good", "0.104.0", "thread/resume", kept, `{"threadId":"t9","sandbox":"read-only"}`},
		{"no tools where there are none", "0.103.0", "thread/start", tools, `{"sandbox":"read-only"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info := backendInfo{version: tc.version}
			info.clientTools = info.atLeast(104)
			method, params := openParams(info, tc.s)
			want(t, method, tc.method)
			sameJSON(t, toJSON(params), tc.want)
		})
	}
}

func TestAppPromptParts(t *testing.T) {
	image, file, text := promptPart{kind: "image", url: "data:image/png;base64,AA=="}, promptPart{kind: "localImage", path: "/p.png"}, promptPart{kind: "text", text: "and this"}
	for _, tc := range []struct {
		name string
		c    command
		want string
	}{
		{"text alone", command{prompt: "hi"}, `[{"type":"text","text":"hi","text_elements":[]}]`},
		{"nothing is an empty text", command{}, `[{"type":"text","text":"","text_elements":[]}]`},
		{"parts behind the prompt", command{prompt: "context", parts: []promptPart{image, text, file}},
			`[{"type":"text","text":"context","text_elements":[]},{"type":"image","url":"data:image/png;base64,AA=="},{"type":"text","text":"and this","text_elements":[]},{"type":"localImage","path":"/p.png"}]`},
		{"parts without a prompt", command{parts: []promptPart{image}}, `[{"type":"image","url":"data:image/png;base64,AA=="}]`},
	} {
		t.Run(tc.name, func(t *testing.T) { sameJSON(t, toJSON(turnInput(tc.c)), tc.want) })
	}
}
