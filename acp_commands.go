package main

// acp_commands.go owns the slash commands of an ACP session: the list that
// clients show, and what a prompt that begins with one becomes: an action of
// Codex's, a prompt in our words, or an answer of our own. The front calls
// slash before it queues a prompt. What isn't one of them, as a path or a word
// that nobody knows, must reach the model as it was written.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mcpWait is how long /mcp waits for Codex, which (0.169) starts every server
// of the user's to ask it for its tools.
const mcpWait = 30 * time.Second

// availableCommands is the update that tells them.
func availableCommands() json.RawMessage {
	return json.RawMessage(`{"sessionUpdate":"available_commands_update","availableCommands":[` +
		`{"name":"review","description":"Review the uncommitted changes, or what you name","input":{"hint":"what to review (optional)"}},` +
		`{"name":"compact","description":"Shorten the conversation's history to free context"},` +
		`{"name":"status","description":"Show who the agent is, what it runs with, its context and its mail"},` +
		`{"name":"mcp","description":"List the MCP servers and how they are"},` +
		`{"name":"init","description":"Write an AGENTS.md that tells agents about this project","input":{"hint":"what it should heed (optional)"}}]}`)
}

// splitCommand reads "/word the rest". false: the text begins with no command.
func splitCommand(text string) (word, rest string, ok bool) {
	text, ok = strings.CutPrefix(strings.TrimLeft(text, " \t\r\n"), "/")
	if !ok {
		return "", "", false
	}
	end := strings.IndexAny(text, " \t\r\n")
	if end < 0 {
		end = len(text)
	}
	return text[:end], strings.TrimSpace(text[end:]), end > 0
}

// slash makes of a prompt what its command asks for. One that runs no turn gets
// p.local, which answers it when its place in the queue has come.
func (s *acpSession) slash(p *acpPrompt) {
	first := p.text
	if len(p.parts) > 0 {
		if p.parts[0].kind != "text" {
			return
		}
		first = p.parts[0].text
	}
	word, _, ok := splitCommand(first)
	if !ok {
		return
	}
	_, rest, _ := splitCommand(p.text) // with what was attached, as text
	switch word {
	case "compact":
		p.action, p.text, p.parts = actCompact, "", nil
	case "review":
		p.action, p.text, p.parts = actReview, rest, nil
	case "init":
		p.text = initPrompt
		if rest != "" {
			p.text += "\n\nThe user adds:\n" + rest
		}
		p.parts = withText(p.text, p.parts)
	case "status":
		p.local = func(context.Context) string { return s.statusText() }
	case "mcp":
		p.local = s.mcpText
	}
}

// withText are the parts of a prompt that says something else in place of all
// its text: nil where nothing else was attached.
func withText(text string, parts []promptPart) []promptPart {
	out := []promptPart{{kind: "text", text: text}}
	for _, p := range parts {
		if p.kind != "text" {
			out = append(out, p)
		}
	}
	if len(out) == 1 {
		return nil
	}
	return out
}

// initPrompt asks for the file that Codex and others read in every session.
const initPrompt = `Write a file AGENTS.md at the root of this project: what an agent that has never seen it must know to work here.

First look around: the manifest and build files, CI, README and contributing notes, the layout of the source, the tests. If there is an AGENTS.md already, keep what is right in it and mend the rest; don't begin anew.

Then write, in short sections and only what you have seen to be so:
- what the project is, in a sentence or two, and where which part of it lives;
- the exact commands to build it, to run it, to run all tests and a single one, to format and to lint;
- how its code is written: conventions that a newcomer would get wrong;
- how changes are made: commits, branches, reviews, generated files, things never to be touched;
- what surprises: environment variables, services that must run, slow or flaky parts.

No advice that holds for every project, nothing guessed, no secrets. Aim at less than two pages. Run the commands you name where that is cheap and safe, and say which you could not try. Change no other file.`

// statusText answers /status. It reads no disk and waits for nothing.
func (s *acpSession) statusText() string {
	v := s.f.status()
	var me sessionView
	for _, a := range v.Agents {
		if a.AgentID == s.agentID {
			me = a
		}
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "- **%s:** %s\n", name, fmt.Sprintf(format, args...))
	}
	b.WriteString("**Status**\n\n")
	line("Agent", "`%s`", s.agentID)
	if me.Identity != "" && s.f.Team {
		line("Identity", "`%s` in team `%s`", me.Identity, cmp.Or(me.Team, v.Team))
	}
	if set := s.settingsNow(); set != nil {
		for _, o := range configOptions(set, s.f.modelList(0)) {
			i := slices.IndexFunc(o.Options, func(v optionValue) bool { return v.Value == o.Current })
			if o.ID == optionMode {
				line(o.Name, "%s (sandbox `%s`, approval `%s`)", o.Options[i].Name, set.Sandbox, set.Approval)
				continue
			}
			line(o.Name, "%s", o.Options[i].Name)
		}
		for _, note := range set.Notes {
			line("Note", "%s", note)
		}
	}
	line("Directory", "`%s`", cmp.Or(me.Cwd, s.cwd))
	line("Codex", "%s", codexText(&v))
	s.opts.mu.Lock()
	u := s.opts.usage
	s.opts.mu.Unlock()
	if u.ContextWindow > 0 {
		line("Context", "%s of %s tokens in use (%d %%)", grouped(u.Last), grouped(u.ContextWindow), u.Last*100/u.ContextWindow)
	}
	line("Tokens so far", "%s in %s", grouped(max(me.Tokens, u.Total)), counted(me.Turns, "turn"))
	switch {
	case !s.f.Team:
		line("Team", "none: with `--identity NAME` this session would be a member of one, and have mail")
	case me.PendingMail != nil:
		line("Mail", "%s unread; auto-mail %s", counted(*me.PendingMail, "message"), cmp.Or(me.AutoMail, "off"))
	default:
		line("Mail", "none: there is no team directory for `%s`", cmp.Or(me.Team, v.Team))
	}
	return b.String()
}

// codexText is the child as it is.
func codexText(v *statusView) string {
	switch {
	case v.ChildAlive:
		return strings.TrimSpace(v.ChildVersion + " (" + v.Backend + ")")
	case v.ChildError != "":
		return "not running: " + clip(v.ChildError, 300)
	}
	return "not running"
}

// grouped writes a number as people read it.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// mcpText answers /mcp. It waits for Codex.
func (s *acpSession) mcpText(ctx context.Context) string {
	ctx, stop := context.WithTimeout(ctx, mcpWait)
	defer stop()
	raw, e := s.f.catalog(ctx, "mcp", s.cwd)
	own, renamed, now := s.servers.list()
	var b strings.Builder
	b.WriteString("**MCP servers**\n\n")
	if len(own) > 0 {
		b.WriteString("From the editor:\n")
		for _, name := range own {
			note := ""
			if was := renamed[name]; was != "" {
				note = fmt.Sprintf(" (the editor calls it `%s`)", codeText(was))
			}
			fmt.Fprintf(&b, "- `%s`%s: %s\n", name, note, now[name].words())
			delete(now, name)
		}
		b.WriteByte('\n')
	}
	if e != nil {
		fmt.Fprintf(&b, "The servers of the Codex configuration could not be listed: %s\n", clip(e.Message, 300))
		return b.String()
	}
	listed := map[string]string{}
	eachElement(rawField(raw, "data"), func(each json.RawMessage) {
		name := stringField(each, "name")
		if name == "" || slices.Contains(own, name) {
			return
		}
		listed[name] = listedServer(each, now[name])
		delete(now, name)
	})
	for name, is := range now { // of a plugin's, or of this thread alone
		listed[name] = is.words()
	}
	if len(listed) == 0 {
		b.WriteString("The Codex configuration has none.\n")
		return b.String()
	}
	b.WriteString("From the Codex configuration:\n")
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		fmt.Fprintf(&b, "- `%s`: %s\n", codeText(name), listed[name])
	}
	return b.String()
}

// words tells how a server is.
func (s acpServer) words() string {
	switch s.status {
	case "":
		return "not started yet"
	case "failed", "cancelled":
		return s.status + ": " + clip(cmp.Or(s.why, "Codex gave no reason"), 500)
	}
	return s.status
}

// listedServer tells one of mcpServerStatus/list: what the thread saw of it
// first, then what Codex says now.
func listedServer(raw json.RawMessage, is acpServer) string {
	var parts []string
	failure := stringField(raw, "toolsError") // 0.169
	switch {
	case is.status != "":
		parts = append(parts, is.words())
	case failure != "":
		parts = append(parts, "failed: "+clip(failure, 500))
	}
	var tools []string
	_ = eachField(rawField(raw, "tools"), func(name string, _ json.RawMessage) bool {
		tools = append(tools, name)
		return true
	})
	if len(tools) > 0 {
		slices.Sort(tools)
		parts = append(parts, counted(len(tools), "tool")+" ("+clipChars(strings.Join(tools, ", "), 300)+")")
	} else if len(parts) == 0 {
		parts = append(parts, "no tools")
	}
	if stringField(raw, "authStatus") == "notLoggedIn" {
		parts = append(parts, "not logged in")
	}
	return strings.Join(parts, "; ")
}

// codeText can stand between backquotes.
func codeText(s string) string { return strings.ReplaceAll(clip(s, 100), "`", "'") }
