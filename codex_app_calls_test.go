package main

// codex_app_calls_test.go holds what is said to app-server and what comes back outside of turns:
// the calls that somebody waits for (catalogs, the account, the history of threads), what
// goes out to which version, since an older or a newer Codex refuses a parameter that it
// doesn't know, the items that no recording has, and the quick reading of deltas, which may
// make no other event than the parsing of them.

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked is what a call of a test came to.
type asked struct {
	res json.RawMessage
	err error
}

// ask begins a call of the driver.
func (p *codexPeer) ask(call func() (json.RawMessage, error)) <-chan asked {
	got := make(chan asked, 1)
	go func() {
		res, err := call()
		got <- asked{res, err}
	}()
	return got
}

func (p *codexPeer) catalog(ctx context.Context, what string) <-chan asked {
	return p.ask(func() (json.RawMessage, error) { return p.b.catalog(ctx, what, "/w") })
}

// past asks for the history of t1; what is told goes to each.
func (p *codexPeer) past(ctx context.Context, each func(*event) error) <-chan asked {
	return p.ask(func() (json.RawMessage, error) { return nil, p.b.history(ctx, "t1", each) })
}

func TestAppHistory(t *testing.T) {
	const begun, stop = "started t1/u1", "ended t1/u1 "
	const said = begun + "\nitem t1/u1/i completed body={userMessage text=hi} (item/completed)"
	const message = `{"type":"userMessage","id":"i","content":[{"type":"text","text":"hi"}]}`
	turn := func(status string) string {
		return `{"thread":{"turns":[{"id":"u1","items":[` + message + `],"error":null,"status":"` + status + `"}]}}`
	}
	for _, tc := range []struct {
		name, version, answer, want string
		runs                        bool
	}{
		{"nonsense", "0.169.0", `{"thread":{"turns":[7,{"id":"u1","items":{}}]}}`,
			begun + "\n" + stop + "completed (turn/completed)", false},
		{"completed", "0.169.0", turn("completed"), said + "\n" + stop + "completed (turn/completed)", false},
		{"cut off by a kill, which only the rollout knows", "0.169.0", turn("inProgress"),
			said + "\n" + stop + "interrupted (turn/completed)", false},
		{"what runs has no end yet", "0.169.0", turn("inProgress"), said, true},
		{"0.104 calls that completed", "0.104.0", turn("completed"), said, true},
		{"0.104 keeps an image that it looked at as a message, which is not the user's", "0.104.0",
			strings.Replace(turn("completed"), message, message+`,{"type":"userMessage","id":"v","content":[{"type":"image",`+
				`"url":"data:image/png;base64,AA=="}]}`, 1), said + "\n" + stop + "completed (turn/completed)", false},
		{"one that the user sends alone is", "0.104.0",
			strings.Replace(turn("completed"), `{"type":"text","text":"hi"}`, `{"type":"image","url":"data:,x"}`, 1),
			strings.Replace(said, " text=hi", "", 1) + "\n" + stop + "completed (turn/completed)", false},
	} {
		withApp(t, tc.name, tc.version, func(p *codexPeer) {
			h := p.hear()
			if tc.runs {
				p.running()
			}
			got := p.past(p.t.Context(), func(e *event) error { h.to(*e); return nil })
			p.answer(p.expect("thread/read", `{"threadId":"t1","includeTurns":true}`), tc.answer)
			if a := <-got; a.err != nil {
				p.t.Error(a.err)
			}
			list := h.take()
			want(p.t, eventLines(list), tc.want)
			if tc.name == "completed" { // raw is a live event's
				sameJSON(p.t, list[1].raw, `{"item":`+message+`,"threadId":"t1","turnId":"u1"}`)
				sameJSON(p.t, list[2].raw,
					`{"threadId":"t1","turn":{"id":"u1","items":[],"status":"completed","error":null}}`)
			}
		})
	}
	withApp(t, "whoever listens may end it, and an error is one", "0.169.0", func(p *codexPeer) {
		n, enough := 0, errors.New("enough")
		got := p.past(p.t.Context(), func(*event) error { n++; return enough })
		p.serve("thread/read", turn("completed"))
		if a := <-got; a.err != enough || n != 1 {
			p.t.Errorf("%d events, %v", n, a.err)
		}
		got = p.past(p.t.Context(), nil)
		p.fail(p.expect("thread/read"), codeNoMethod, "Method not found") // unlike a thread that was never used
		const why = "reading the history of thread t1 from Codex: Method not found"
		if a := <-got; a.err == nil || a.err.Error() != why {
			p.t.Errorf("error %v", a.err)
		}
	})
}

// Lists come in pages, and end; whoever asks doesn't wait for good.
func TestAppCatalog(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		got := p.catalog(p.t.Context(), "mcp")
		for range maxPages {
			p.serve("mcpServerStatus/list", `{"data":[{}],"nextCursor":"on"}`)
		}
		if a := <-got; a.err == nil || !strings.Contains(a.err.Error(), "has no end") {
			p.t.Errorf("endless: %s %v", a.res, a.err)
		}
		got = p.catalog(p.t.Context(), "models")
		p.expect("model/list")
		if a := <-got; a.err == nil {
			p.t.Error("no answer is an error after 10 s")
		}
		ctx, cancel := context.WithCancel(p.t.Context())
		got = p.catalog(ctx, "account")
		p.expect("account/read")
		cancel()
		if a := <-got; a.err == nil {
			p.t.Error("cancelled")
		}
	})
}

// Threads are those that people began, whatever their provider, each once and not all there ever were. A Codex with an
// index of them is asked for the newest of all before the index is, the older one for no directory, since either would
// read everything on disk for it.
func TestAppThreads(t *testing.T) {
	const what = `"limit":100,"sortKey":"updated_at","modelProviders":[],"sourceKinds":["cli","vscode","exec","appServer"]`
	const data = `{"data":[{"id":"a","cwd":"/w","name":"N","preview":"p","updatedAt":7,"turns":[]},
		{"id":"sub","cwd":"/w","parentThreadId":"a"},{"id":"a","cwd":"/w","preview":"q"},{"id":"b","cwd":"/v"}],
		"nextCursor":"on"}`
	const told = `{"data":[{"id":"a","cwd":"/w","name":"N","preview":"p","updatedAt":7}]}`
	withApp(t, "with an index", "0.153.0", func(p *codexPeer) {
		got := p.catalog(p.t.Context(), "threads")
		p.answer(p.expect("thread/list", "{"+what+"}"), data)
		index := what + `,"cwd":["/w"],"useStateDbOnly":true`
		p.answer(p.expect("thread/list", "{"+index+"}"), data)
		p.answer(p.expect("thread/list", "{"+index+`,"cursor":"on"}`), `{"data":[],"nextCursor":null}`)
		sameJSON(p.t, (<-got).res, told)
	})
	withApp(t, "without one", "0.104.0", func(p *codexPeer) {
		got := p.catalog(p.t.Context(), "threads")
		p.answer(p.expect("thread/list", "{"+what+"}"), data)
		for range maxThreads/threadsPage - 1 {
			p.answer(p.expect("thread/list", "{"+what+`,"cursor":"on"}`), data)
		}
		sameJSON(p.t, (<-got).res, told)
	})
}

// What changes nothing is asked again of an app-server that has too much to do:
// after pauses that grow and are never the same for all, and not for ever. What
// changes something is asked once.
func TestAppOverloaded(t *testing.T) {
	withApp(t, "", "0.169.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		models := func(ctx context.Context) <-chan asked { return p.catalog(ctx, "models") }
		busy := func(method string) { p.fail(p.expect(method), codeOverloaded, "Server overloaded; retry later.") }
		past := p.past(p.t.Context(), nil)
		busy("thread/read")
		busy("thread/read")
		p.serve("thread/read", `{}`)
		if a := <-past; a.err != nil {
			p.t.Error(a.err)
		}
		got := models(p.t.Context())
		for pause := firstPause; pause <= longestPause; pause *= 2 {
			busy("model/list")
			time.Sleep(pause/2 - 1) // p.silent reads whatever was sent too early
			p.silent()
		}
		busy("model/list")
		if a := <-got; a.err == nil || !strings.Contains(a.err.Error(), "overloaded") {
			p.t.Errorf("overloaded for good: %v", a.err)
		}
		ctx, cancel := context.WithCancel(p.t.Context())
		got = models(ctx)
		busy("model/list")
		cancel()
		if a := <-got; !errors.Is(a.err, context.Canceled) {
			p.t.Errorf("cancelled: %v", a.err)
		}
		p.turn(2)
		busy("turn/start")
		time.Sleep(time.Minute)
		p.silent()
		h.wants(`refused #2 t1 err={Code=-32001 Message="Server overloaded; retry later." Busy}`)
		got = models(p.t.Context())
		busy("model/list")
		p.out.Close()
		if a := <-got; a.err == nil {
			p.t.Error("the child died in a pause")
		}
	})
}

// What items tell of calls and commands, where no recording has it.
func TestAppItemFields(t *testing.T) {
	const agents = `"type":"collabAgentToolCall","tool":"spawnAgent"`
	for _, tc := range []struct{ item, want string }{
		{`"type":"commandExecution","commandActions":[{"type":"read","path":"/w/a"},{"type":"search","path":null}]`,
			`commandExecution actions=[{read path=/w/a} {search}]`},
		{`"type":"mcpToolCall","arguments":null,"result":null,"error":{"message":"gone"},"durationMs":null`,
			`mcpToolCall failure=gone`},
		{agents + `,"receiverThreadIds":["b"],"prompt":"do","model":"","agentsStates":{"b":{}}`,
			`collabAgentToolCall text=do tool=spawnAgent ` +
				`arguments={"receiverThreadIds":["b"],"prompt":"do"} result={"b":{}}`},
		{agents + `,"receiverThreadIds":[],"prompt":null,"agentsStates":{}`, `collabAgentToolCall tool=spawnAgent`},
		{`"type":"webSearch","query":"","action":{"type":"findInPage","url":"http://x","pattern":"p"}`,
			`webSearch query="p in http://x"`},
		{`"type":"imageGeneration","savedPath":"/o.png","failure":{"type":"usageLimitExceeded"}`,
			`imageGeneration failed failure=usageLimitExceeded path=/o.png`},
		{`"type":"functionCallOutput","name":"f","namespace":"n","output":"text"`,
			`functionCallOutput server=n tool=f result="text"`},
		{`"type":"sleep","durationMs":1500`, `sleep duration=1500`},
		{`"type":7,"arguments":null,"commandActions":7,"error":"x","durationMs":"long","action":[],"result":null`, ``},
	} {
		body := appItem(json.RawMessage("{" + tc.item + "}"))
		want(t, strings.Join(fieldWords(reflect.ValueOf(*body)), " "), tc.want)
	}
}

// 0.104 tells of servers in its first protocol alone, and what was cancelled in the sum.
func TestAppOldServers(t *testing.T) {
	withApp(t, "", "0.104.0", func(p *codexPeer) {
		h := p.open(threadSpec{})
		for method, msg := range map[string]string{
			oldStatus:                  `{"server":"a","status":{"state":"failed","error":"no"}}`,
			oldComplete:                `{"ready":["r"],"failed":[{"server":"a","error":"no"}],"cancelled":["c"]}`,
			"codex/event/task_started": `{}`,
		} {
			p.say(`{"method":%q,"params":{"id":"","msg":%s,"conversationId":"t1"}}`, method, msg)
		}
		lines := strings.Split(eventLines(h.take()), "\n")
		slices.Sort(lines)
		want(p.t, strings.Join(lines, "\n"), "raw t1 ("+oldComplete+")\n"+
			"server t1//a text=no failed ("+oldStatus+")\nserver t1//c cancelled")
	})
}

func TestAppTurnParamsPerVersion(t *testing.T) {
	full := turnSettings{Cwd: "/w", Model: "m", Effort: "ultra", Approval: "on-failure", Sandbox: "workspace-write",
		WritableRoots: []string{"/r"}, Network: true}
	const roots = `"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/r"],"networkAccess":true,
		"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`
	for _, tc := range []struct {
		name, version string
		s             turnSettings
		want          string
	}{
		{"0.104 drops an effort it would refuse", "0.104.0", full,
			`{"threadId":"t1","cwd":"/w","model":"m","approvalPolicy":"on-failure",` + roots},
		{"0.148 has no on-failure, and any effort", "0.148.0", full,
			`{"threadId":"t1","cwd":"/w","model":"m","effort":"ultra","approvalPolicy":"on-request",` + roots},
		{"0.104 read-only has no network", "0.104.0",
			turnSettings{Effort: "HIGH", Approval: "never", Sandbox: "read-only"},
			`{"threadId":"t1","effort":"high","approvalPolicy":"never","sandboxPolicy":{"type":"readOnly"}}`},
		{"full access", "0.169.0", turnSettings{Sandbox: "danger-full-access"},
			`{"threadId":"t1","sandboxPolicy":{"type":"dangerFullAccess"}}`},
		{"an unknown sandbox is the narrowest", "0.169.0", turnSettings{Sandbox: "everything"},
			`{"threadId":"t1","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			params := settingsParams(backendInfo{version: tc.version}, "t1", command{settings: tc.s})
			sameJSON(t, toJSON(params), tc.want)
		})
	}
}

// TestAppCollaborationMode: the mode's own model and effort win over the turn's, so they are the turn's.
func TestAppCollaborationMode(t *testing.T) {
	s := turnSettings{Collaboration: collabPlan, Model: "m", Effort: "ultra"}
	for version, effort := range map[string]string{"0.104.0": "null", "0.153.0": `"ultra"`, "0.169.0": `"ultra"`} {
		sameJSON(t, toJSON(collaborationMode(backendInfo{version: version}, s)), `{"mode":"plan","settings":{"model":"m",
			"reasoning_effort":`+effort+`,"developer_instructions":null}}`)
	}
	if s = (&review{}).settings(s); s.Collaboration != collabDefault {
		t.Errorf("a review runs with %+v", s)
	}
}

func TestAppOpenParamsPerVersion(t *testing.T) {
	spec := threadSpec{
		Settings:              turnSettings{Cwd: "/w", Model: "m", Approval: "never", Sandbox: "danger-full-access"},
		DeveloperInstructions: "D", BaseInstructions: "B", Profile: "p", Ephemeral: true,
		Config: json.RawMessage(`{"features":{"x":true}}`)}
	resume := spec
	resume.Thread = "t9"
	tools := threadSpec{Tools: []clientTool{{"send", "sends", json.RawMessage(`{"required":["to"]}`)}, {Name: "count"}}}
	kept := tools
	kept.Thread = "t9"
	const base = `"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B",
		"developerInstructions":"D"`
	const profile = `"config":{"features":{"x":true},"profile":"p"}}`
	const unload = `"config":{"features":{"x":true},"thread_unload_delay_secs":1}}`
	for _, tc := range []struct {
		name, version string
		s             threadSpec
		want          string
	}{
		{"start on 0.104 takes the profile", "0.104.0", spec, `{"ephemeral":true,` + base + "," + profile},
		{"start on 0.169 never sends it", "0.169.0", spec, `{"ephemeral":true,` + base + "," + unload},
		{"resume sends everything again", "0.104.0", resume, `{"threadId":"t9",` + base + "," + profile},
		{"resume without the turns", "0.148.0", resume, `{"threadId":"t9","excludeTurns":true,` + base + "," + unload},
		{"tools in the one form that all versions take", "0.104.0", tools, `{"sandbox":"read-only","dynamicTools":[
			{"type":"function","name":"send","description":"sends","inputSchema":{"required":["to"]}},
			{"type":"function","name":"count","description":"","inputSchema":{"type":"object","properties":{}}}]}`},
		{"tools are the thread's for good", "0.104.0", kept, `{"threadId":"t9","sandbox":"read-only"}`},
		{"no tools where there are none", "0.103.0", tools, `{"sandbox":"read-only"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info := backendInfo{version: tc.version}
			info.clientTools = info.atLeast(104)
			method, params := openParams(info, tc.s)
			if (method == "thread/resume") != (tc.s.Thread != "") {
				t.Error(method)
			}
			sameJSON(t, toJSON(params), tc.want)
		})
	}
}

// longWay is the event of a record that nothing was known of before.
func longWay(rec string) (e event, ok bool) {
	m, err := parseMessage([]byte(rec))
	if err != nil || m.method == "" || m.id != nil {
		return e, false
	}
	return new(appIDs).event(m.method, m.params), true
}

// afterDelta is a run that has learned from rec what there is to learn.
func afterDelta(rec string) *deltaRun {
	d := &deltaRun{}
	d.same([]byte(rec))
	if e, ok := longWay(rec); ok {
		d.learn(&e)
	}
	return d
}

const deltaOf169 = `{"method":"item/agentMessage/delta","params":{"threadId":"th","turnId":"tu","itemId":"it",` +
	`"delta":"one"},"emittedAtMs":1795283347107}`

// deltaPair is a record, and a second one that is the first with a part replaced. short: in
// a burst the second must be taken the short way.
type deltaPair struct {
	first, part, with string
	short             bool
}

func (d deltaPair) second() string { return strings.Replace(d.first, d.part, d.with, 1) }

func deltaPairs() []deltaPair {
	old := strings.Replace(deltaOf169, `,"emittedAtMs":1795283347107`, "", 1)
	inside := `{"method":"item/reasoning/summaryTextDelta","params":{"delta":"one","threadId":"th","summaryIndex":0}}`
	list := []deltaPair{
		{deltaOf169, "one", "", true},
		{deltaOf169, "one", `a \"b\" \u00fc \ud83d\ude00 ü`, true},
		{deltaOf169, "347107", "999999", true},
		{old, "one", "two and more", true},
		{inside, "one", "two", true},
		{inside, ":0}", ":1}", false},
		{deltaOf169, deltaOf169, old, false},
		{deltaOf169, deltaOf169, deltaOf169[:40], false},
		{`{"method":"turn/started","params":{"delta":"one"}}`, "one", "two", false},
		{strings.Replace(deltaOf169, `"one"`, `1`, 1), `:1}`, `:2}`, false},
		{strings.Replace(deltaOf169, `"method"`, `"id":1,"method"`, 1), "one", "two", false},
		{`{"params":{"delta":"","delta":"one","x":1},"method":"item/agentMessage/delta","n":5}`, "one", "two", true},
	}
	for _, with := range []string{"\xff", `o"e`, `"`, `","delta":"x`, `"},"id":7,"x":{"a":"`, `\ud83d`, "\\"} {
		list = append(list, deltaPair{deltaOf169, "one", with, with == `\ud83d`})
	}
	for part, with := range map[string]string{`"it"`: `"is"`, "agentMessage": "commandExecution",
		`:1795`: `:0795`, "347": "3x7"} {
		list = append(list, deltaPair{deltaOf169, part, with, false})
	}
	return list
}

// FuzzDeltaRun: whatever was learned, the short way is the long one or none.
func FuzzDeltaRun(f *testing.F) {
	for _, d := range deltaPairs() {
		f.Add(d.first, d.part, d.with)
		if _, ok := afterDelta(d.first).same([]byte(d.second())); ok != d.short {
			f.Errorf("behind %s\nthe short way of %s: %v", d.first, d.second(), ok)
		}
	}
	f.Fuzz(func(t *testing.T, first, part, with string) {
		second := deltaPair{first: first, part: part, with: with}.second()
		if strings.Contains(first+second, "\n") || strings.TrimSpace(first) != first ||
			strings.TrimSpace(second) != second {
			return // no records
		}
		e, ok := afterDelta(first).same([]byte(second))
		if !ok {
			return
		}
		long, known := longWay(second)
		if !known || !reflect.DeepEqual(e, long) {
			t.Fatalf("behind %s\nthe short way of %s\nis %+v\nnot %+v (%v)", first, second, e, long, known)
		}
	})
}
