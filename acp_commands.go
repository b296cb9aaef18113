package main

// acp_commands.go owns the slash commands of an ACP session: the list that clients show, and what a prompt that begins
// with one becomes: an action of Codex's, a prompt in our words, or an answer of our own. acp_prompt.go calls
// readCommand before it queues a prompt. A prompt that begins with anything else, such as a path or a word that nobody
// knows, must reach the model as it was written.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// mcpWait is how long /mcp waits for Codex, which (0.169) starts every server of the user's to ask it for its tools.
const mcpWait = 30 * time.Second

// acpCommand is one slash command: what clients show of it, and what becomes of the prompt that it begins. rest is what
// stands behind the word.
type acpCommand struct {
	name, description string
	hint              string // what may stand behind the word, "" for nothing
	run               func(p *acpPrompt, rest string)
	// says answers the prompt in place of run, without a turn.
	says func(ctx context.Context, s *acpSession, rest string) string
}

// acpCommands are our own commands, in the order in which clients show them.
func acpCommands() []acpCommand {
	return []acpCommand{
		{name: "review", description: "Review the changes that are not committed", hint: "what to look for (optional)",
			run: func(p *acpPrompt, rest string) {
				p.askReview(reviewTask{target: reviewUncommitted, instructions: rest})
			}},
		{name: "review-branch", description: "Review what this branch adds to another one",
			hint: "the other branch (default: the remote's default branch)",
			run: func(p *acpPrompt, rest string) {
				base, more := splitWord(rest)
				p.askReview(reviewTask{target: reviewBranch, base: base, instructions: more})
			}},
		{name: "review-commit", description: "Review a commit", hint: "its id, branch or tag",
			run: func(p *acpPrompt, rest string) {
				commit, more := splitWord(rest)
				p.askReview(reviewTask{target: reviewCommit, commit: commit, instructions: more})
			}},
		{name: "plan", description: "Plan first: look around, ask and write a plan, in a read-only sandbox",
			hint: "what to plan (optional)", run: (*acpPrompt).planFirst},
		{name: "compact", description: "Shorten the conversation's history to free context",
			run: func(p *acpPrompt, _ string) { p.action, p.text, p.parts = actCompact, "", nil }},
		{name: "fork", description: "Begin a new session with what this one holds", says: forkText},
		{name: "rename", description: "Give the session another title", hint: "the title", says: renameText},
		{name: "status", description: "Show who the agent is, what it runs with, its context and its mail",
			says: statusText},
		{name: "mcp", description: "List the MCP servers and how they are", says: mcpText},
		{name: "logout", description: "Log Codex out, for every program that uses it here", says: logoutText},
		{name: "init", description: "Write an AGENTS.md that tells agents about this project",
			hint: "what it should heed (optional)",
			run: func(p *acpPrompt, rest string) {
				p.text = initPrompt
				if rest != "" {
					p.text += "\n\nThe user adds:\n" + rest
				}
				p.parts = withText(p.text, p.parts)
			}},
	}
}

// availableCommands is the update that tells them, and the skills behind them.
func availableCommands(skills []acpSkill) json.RawMessage {
	type input struct {
		Hint string `json:"hint"`
	}
	type listed struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Input       *input `json:"input,omitempty"`
	}
	list := []listed{}
	for _, c := range acpCommands() {
		l := listed{Name: c.name, Description: c.description}
		if c.hint != "" {
			l.Input = &input{c.hint}
		}
		list = append(list, l)
	}
	for _, k := range skills {
		list = append(list, listed{k.name, k.description, &input{"what you want of it (optional)"}})
	}
	return toJSON(struct {
		Update   string   `json:"sessionUpdate"`
		Commands []listed `json:"availableCommands"`
	}{"available_commands_update", list})
}

const (
	maxSkills       = 100             // that a session has as commands
	maxSkillWords   = 300             // of a skill's description, in characters
	skillsLimit     = 5 * time.Second // for Codex to tell the skills
	maxCommandBytes = 64              // of a command's name
)

// acpSkill is a skill of Codex's: a command under its own name.
type acpSkill struct{ name, description, path string }

// isCommandWord reports that clients can offer a word as a command.
func isCommandWord(word string) bool {
	return word != "" && len(word) <= maxCommandBytes && !strings.ContainsFunc(word, func(r rune) bool {
		return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// readSkills reads what Codex tells of a directory's skills. Those that are switched off are left out, those that come
// with Codex itself (their scope is system), and those whose name a command of ours has.
func readSkills(raw json.RawMessage) (list []acpSkill) {
	taken := map[string]bool{}
	for _, c := range acpCommands() {
		taken[c.name] = true
	}
	eachElement(rawField(raw, "data"), func(dir json.RawMessage) {
		eachElement(rawField(dir, "skills"), func(each json.RawMessage) {
			k := acpSkill{name: stringField(each, "name"), path: stringField(each, "path")}
			words := cmp.Or(stringField(each, "interface", "shortDescription"), stringField(each, "shortDescription"),
				stringField(each, "description"))
			k.description = clip(visible(strings.Join(strings.Fields(words), " ")), maxSkillWords)
			if rawKind(rawField(each, "enabled")) == 'f' || stringField(each, "scope") == "system" || k.path == "" ||
				!isCommandWord(k.name) || taken[k.name] || len(list) == maxSkills {
				return
			}
			taken[k.name] = true
			list = append(list, k)
		})
	})
	return list
}

// acpSkills are the skills of a session's directory, as Codex told them last.
type acpSkills struct {
	s *acpSession

	mu      sync.Mutex // guards the fields below
	list    []acpSkill
	known   bool // they were looked for
	told    bool // the client has the list of commands
	looking bool // a goroutine looks
	again   bool // what it finds may be old
	lost    bool // the child that would tell of changes is gone
}

// tell tells the client which commands there are, under the lock: no older list must come behind a newer one.
func (k *acpSkills) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = true
	k.s.put(availableCommands(k.list))
}

// look asks Codex for the skills, without waiting; the client is told where they have changed.
func (k *acpSkills) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.again, k.lost = k.looking, false
	if k.told && !k.looking {
		k.looking = k.s.f.jobs.spawn(k.fetch)
	}
}

func (k *acpSkills) fetch() {
	for again := true; again; {
		ctx, stop := context.WithTimeout(k.s.f.life, skillsLimit)
		raw, e := k.s.f.catalog(ctx, "skills", k.s.cwd)
		stop()
		list := readSkills(raw)
		k.mu.Lock()
		if e == nil && !slices.Equal(k.list, list) && k.s.f.sessions.named(k.s.id) == k.s {
			k.list = list
			k.s.put(availableCommands(list))
		}
		again, k.again = k.again, false
		k.looking, k.known = again, true
		k.mu.Unlock()
		k.s.poke()
	}
}

// event looks for the skills again where they may have changed and Codex tells nothing of that: another child opened
// the thread, or a turn has written one (0.104 has no skills/changed).
func (k *acpSkills) event(e *event) {
	k.mu.Lock()
	k.lost = k.lost || e.kind == evGone
	looks := k.lost && e.kind == evOpened || e.kind == evItem && e.phase == "completed" &&
		slices.ContainsFunc(e.body.files, func(f fileChange) bool { return filepath.Base(f.path) == "SKILL.md" })
	k.mu.Unlock()
	if looks {
		k.look()
	}
}

// areKnown reports that the skills were looked for.
func (k *acpSkills) areKnown() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known
}

// use has a prompt that begins with a skill's name bring the skill, beside the text as the user wrote it. It waits
// until the skills are known.
func (k *acpSkills) use(p *acpPrompt) {
	k.s.await(p.ctx, k.areKnown)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, skill := range k.list {
		if skill.name == p.skill {
			if p.parts == nil {
				p.parts = []promptPart{{kind: "text", text: p.text}}
			}
			p.parts = append(p.parts, promptPart{kind: "skill", text: skill.name, path: skill.path})
			p.title = promptTitle(strings.TrimPrefix(strings.TrimSpace(p.text), "/"))
			p.queues = true // no Codex so far (0.169) gives the model a skill that is steered into a turn
		}
	}
}

// splitCommand reads "/word the rest". false: the text begins with no command.
func splitCommand(text string) (word, rest string, ok bool) {
	text, ok = strings.CutPrefix(strings.TrimLeft(text, " \t\r\n"), "/")
	if !ok {
		return "", "", false
	}
	word, rest = splitWord(text)
	return word, rest, word != ""
}

// readCommand makes of a prompt what its command asks for. A prompt that runs no
// turn gets p.local, which answers it when its place in the queue has come.
func (p *acpPrompt) readCommand() {
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
	for _, c := range acpCommands() {
		if c.name == word {
			if p.queues = true; c.says != nil {
				p.local = func(ctx context.Context) string { return c.says(ctx, p.s, rest) }
			} else {
				c.run(p, rest)
			}
			return
		}
	}
	if isCommandWord(word) {
		p.skill = word
	}
}

// splitWord cuts the first word off a text.
func splitWord(text string) (word, rest string) {
	if end := strings.IndexFunc(text, unicode.IsSpace); end >= 0 {
		return text[:end], strings.TrimSpace(text[end:])
	}
	return text, ""
}

// askReview has a prompt ask for a review, of the change that there is when its place in the queue has come. It is
// answered without a turn where there is nothing to review.
func (p *acpPrompt) askReview(task reviewTask) {
	p.local = func(ctx context.Context) string {
		if task.target == reviewCommit && task.commit == "" {
			return "Say which commit: `/review-commit` and its id, a branch or a tag."
		}
		r, err := p.s.f.review(ctx, p.s.cwd, task)
		switch {
		case err != nil:
			return "Nothing was reviewed: " + errorText(err) + "."
		case r.empty():
			text, _ := r.nothing()
			return text
		}
		p.review = r
		return ""
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
func statusText(_ context.Context, s *acpSession, _ string) string {
	v := s.f.status()
	var me sessionView
	for _, a := range v.Agents {
		if a.AgentID == s.agentID {
			me = a
		}
	}
	var b strings.Builder
	var notes []string
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "- **%s:** %s\n", name, fmt.Sprintf(format, args...))
	}
	b.WriteString("**Status**\n\n")
	line("Agent", "`%s`", s.agentID)
	if me.Identity != "" && s.f.Team {
		line("Identity", "`%s` in team `%s`", me.Identity, cmp.Or(me.Team, v.Team))
	}
	if set := s.options.settings(); set != nil {
		for _, o := range configOptions(set, s.f.models.list(0)) {
			i := slices.IndexFunc(o.Options, func(v optionValue) bool { return v.Value == o.Current })
			if o.ID == optionMode {
				line(o.Name, "%s (sandbox `%s`, approval `%s`)", o.Options[i].Name, set.Sandbox, set.Approval)
				continue
			}
			line(o.Name, "%s", o.Options[i].Name)
		}
		notes = append(notes, set.Notes...)
	}
	line("Directory", "`%s`", cmp.Or(me.Cwd, s.cwd))
	line("Codex", "%s", codexText(&v))
	s.mu.Lock()
	u := s.usage
	for _, note := range s.notes {
		if !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	s.mu.Unlock()
	if u.ContextWindow > 0 {
		line("Context", "%s of %s tokens in use (%d %%)", grouped(u.Last), grouped(u.ContextWindow),
			u.Last*100/u.ContextWindow)
	}
	line("Tokens so far", "%s in %s", grouped(max(me.Tokens, u.Total)), counted(me.Turns, "turn"))
	switch {
	case !s.f.Team:
		line("Team", "none: an agent that is started with an identity is a member of one, and has mail")
	case me.PendingMail != nil:
		line("Mail", "%s unread; auto-mail %s", counted(*me.PendingMail, "message"), cmp.Or(me.AutoMail, "off"))
	default:
		line("Mail", "none: there is no team directory for `%s`", cmp.Or(me.Team, v.Team))
	}
	for _, limit := range v.Limits.lines() {
		name, what, _ := strings.Cut(limit, ": ")
		line(name, "%s", what)
	}
	for _, note := range notes {
		line("Note", "%s", note)
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

// logoutText answers /logout. It waits for Codex.
func logoutText(ctx context.Context, s *acpSession, _ string) string {
	if _, e := s.f.account(ctx, "logout", nil); e != nil {
		return "Codex was not logged out: " + s.f.acpError(e).Message
	}
	return "Codex is logged out. Unless its model provider needs none, the next prompt asks for a login: your " +
		"editor offers the ways to log in."
}

// mcpText answers /mcp. It waits for Codex.
func mcpText(ctx context.Context, s *acpSession, _ string) string {
	ctx, stop := context.WithTimeout(ctx, mcpWait)
	defer stop()
	return s.servers.text(s.f.catalog(ctx, "mcp", s.cwd))
}
