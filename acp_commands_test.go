package main

// acp_commands_test.go owns the slash commands: what a prompt becomes, and what
// is answered without a turn.

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestACPSlash(t *testing.T) {
	r := newAskRig(t, `{}`, nil)
	for _, tt := range []struct {
		text, want string
		action     turnAction
		local      bool
	}{
		{"/compact", "", actCompact, false},
		{"/compact please", "", actCompact, false},
		{"/review", "", actReview, false},
		{"/review the last commit\nand its tests", "the last commit\nand its tests", actReview, false},
		{"  /review\tx", "x", actReview, false},
		{"/init", initPrompt, actPrompt, false},
		{"/init mind the docs", initPrompt + "\n\nThe user adds:\nmind the docs", actPrompt, false},
		{"/status", "/status", actPrompt, true},
		{"/mcp now", "/mcp now", actPrompt, true},
		{"/usr/bin/env is what?", "/usr/bin/env is what?", actPrompt, false},
		{"/review/this", "/review/this", actPrompt, false},
		{"/reviewer", "/reviewer", actPrompt, false},
		{"/Review", "/Review", actPrompt, false},
		{"/", "/", actPrompt, false},
		{"/ compact", "/ compact", actPrompt, false},
		{"please /compact", "please /compact", actPrompt, false},
		{"", "", actPrompt, false},
	} {
		p := &acpPrompt{s: r.s, text: tt.text}
		if p.readCommand(); (p.local != nil) != tt.local {
			t.Errorf("%q: answered here %v", tt.text, p.local != nil)
		}
		if p.text != tt.want || p.action != tt.action {
			t.Errorf("%q became %d %q", tt.text, p.action, p.text)
		}
	}
}

// TestACPSlashParts: what is attached stays with the command, as far as it can.
func TestACPSlashParts(t *testing.T) {
	r := newAskRig(t, `{}`, nil)
	image := promptPart{kind: "image", url: "data:image/png;base64,AA"}
	prompt := func(parts ...promptPart) *acpPrompt {
		p := &acpPrompt{s: r.s, parts: parts}
		for _, part := range parts {
			p.text += part.text
		}
		p.readCommand()
		return p
	}
	if p := prompt(promptPart{kind: "text", text: "/init as drawn"}, image); p.text != initPrompt+"\n\nThe user adds:\nas drawn" || len(p.parts) != 2 || p.parts[0].text != p.text || p.parts[1] != image {
		t.Errorf("/init with an image became %+v", p)
	}
	if p := prompt(promptPart{kind: "text", text: "/review "}, promptPart{kind: "text", text: "file a.go"}); p.action != actReview || p.text != "file a.go" || p.parts != nil {
		t.Errorf("/review with a file became %+v", p)
	}
	if p := prompt(image, promptPart{kind: "text", text: "/compact"}); p.action != actPrompt || len(p.parts) != 2 {
		t.Errorf("an image in front of a command became %+v", p)
	}
}

func TestACPAvailableCommands(t *testing.T) {
	var u struct {
		SessionUpdate     string
		AvailableCommands []struct {
			Name, Description string
			Input             *struct{ Hint string }
		}
	}
	if err := json.Unmarshal(availableCommands(), &u); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range u.AvailableCommands {
		names = append(names, c.Name)
		if c.Description == "" || c.Input != nil && c.Input.Hint == "" {
			t.Errorf("%s: %+v", c.Name, c)
		}
		p := &acpPrompt{s: &acpSession{}, text: "/" + c.Name}
		if p.readCommand(); p.local == nil && p.text == "/"+c.Name && p.action == actPrompt {
			t.Errorf("/%s does nothing", c.Name)
		}
	}
	if want := []string{"review", "compact", "status", "mcp", "init"}; u.SessionUpdate != "available_commands_update" || !slices.Equal(names, want) {
		t.Errorf("commands %v of %s", names, u.SessionUpdate)
	}
}

func TestACPStatus(t *testing.T) {
	h := newTuned()
	unread := 3
	r := newAskRig(t, `{}`, func(o *acpOptions) {
		h.options(o)
		o.Team = true
		o.status = func() statusView {
			return statusView{ChildAlive: true, ChildVersion: "0.169.0", Backend: "app-server", ChildPID: 1, Team: "blue", Agents: []sessionView{
				{AgentID: "codex:other", Identity: "other"},
				{AgentID: "codex:abcd", Identity: "bob", Team: "blue", Cwd: "/work", Turns: 1, Tokens: 1234567, PendingMail: &unread, AutoMail: "on"}}}
		}
	})
	r.f.models.list(modelsWait)
	r.s.event(agentRef{AgentID: "codex:abcd", Thread: "t1"}, 0, &event{kind: evUsage, thread: "t1", usage: &tokenUsage{Total: 9000, Last: 25000, ContextWindow: 100000}})
	r.s.event(agentRef{AgentID: "codex:abcd", Thread: "t1"}, 0, &event{kind: evUsage, thread: "sub", usage: &tokenUsage{Total: 1, Last: 99000, ContextWindow: 100000}})
	p := &acpPrompt{s: r.s, text: "/status"}
	p.readCommand()
	got := p.local(context.Background())
	for _, want := range []string{"`codex:abcd`", "`bob` in team `blue`", "Ask (sandbox `workspace-write`, approval `on-request`)", "**Model:** Big", "**Thought level:** Medium",
		"`/work`", "0.169.0 (app-server)", "25,000 of 100,000 tokens in use (25 %)", "1,234,567 in 1 turn\n", "3 messages unread; auto-mail on"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "other") {
		t.Errorf("another agent's in\n%s", got)
	}
}

func TestACPStatusWithoutAnything(t *testing.T) {
	r := newAskRig(t, `{}`, func(o *acpOptions) {
		o.settings = func(string) *sessionSettings { return nil }
		o.Team, o.status = true, func() statusView { return statusView{Team: "default", ChildError: "exit code 3"} }
	})
	got := statusText(r.s)
	for _, want := range []string{"`codex:abcd`", "not running: exit code 3", "no team directory for `default`", "`/work`"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestACPMCPList(t *testing.T) {
	r := newAskRig(t, `{}`, func(o *acpOptions) {
		o.catalog = func(_ context.Context, what, _ string) (json.RawMessage, *rpcError) {
			if what != "mcp" {
				return nil, &rpcError{Code: codeInternal, Message: "no " + what}
			}
			return json.RawMessage(`{"data":[{"name":"web","tools":{"get":{},"fetch":{}},"authStatus":"notLoggedIn"},
				{"name":"nope","tools":{},"toolsError":"MCP startup failed: No such file","authStatus":"unsupported"},
				{"name":"idle","tools":{},"authStatus":"unsupported"}],"nextCursor":null}`), nil
		}
	})
	r.s.servers.read(serversNamed("files", "db"), []string{"db"})
	for _, e := range []event{{kind: evServer, item: "files", status: "ready"}, {kind: evServer, item: "db-2", status: "failed", text: "no such file\nat all"}, {kind: evServer, item: "plugin", status: "ready"}} {
		r.s.event(agentRef{}, 0, &e)
	}
	got := mcpText(context.Background(), r.s)
	for _, want := range []string{"- `files`: ready\n", "- `db-2` (the editor calls it `db`): failed: no such file …\n", "- `web`: 2 tools (fetch, get); not logged in\n",
		"- `nope`: failed: MCP startup failed: No such file\n", "- `idle`: no tools\n", "- `plugin`: ready\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}

	r = newAskRig(t, `{}`, nil) // whose hub has no catalog
	r.s.servers.read(serversNamed("files"), nil)
	r.s.event(agentRef{}, 0, &event{kind: evServer, item: "files", status: "ready"})
	if got := mcpText(context.Background(), r.s); !strings.Contains(got, "`files`: ready") || !strings.Contains(got, "could not be listed: no catalog here") {
		t.Errorf("without Codex:\n%s", got)
	}
}

func TestACPGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	if one, two := counted(1, "turn"), counted(2, "turn"); one != "1 turn" || two != "2 turns" {
		t.Errorf("counts %q and %q", one, two)
	}
}
