package main

// config_names_test.go holds the two names of this program apart: every text in the sources has words for both, and
// words that aren't ours stay as they are. What crosses the wire is in session_names_test.go.

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ourWords and theirWords are those that only one of the two programs says.
var (
	ourWords   = regexp.MustCompile(`agent_(?:sessions|status|close|ids?)\b|agent[ -]ids?\b|atm-agent-mcp|ATM_AGENT_MCP_`)
	theirWords = regexp.MustCompile(`codex_(?:threads|status|close|ids?)\b|codex[ -]ids?\b|codex-mcp|CODEX_MCP_`)
)

// A text that is new and has one of our words is told in theirs too, or the table of names wants another row.
func TestEveryTextHasTheAncestorsWords(t *testing.T) {
	elsewhere := map[string]string{ // what isn't told to who is spoken to in these names
		"codex_link.go":   "Codex is told who we are",
		"mail_message.go": "an agent reads it", "session_inbox.go": "mail", "session_team.go": "mail",
		"session_worktree.go": "git keeps it", "config_names.go": "the table", "main_demo.go": "a directory",
		"main_doctorchecks.go": "an address", "main_audit.go": "a line of the file",
	}
	n, seen := ancestorNames(), 0
	files, err := filepath.Glob("*.go")
	wantNil(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		wantNil(t, err)
		ast.Inspect(file, func(at ast.Node) bool {
			if field, ok := at.(*ast.Field); ok && field.Tag != nil {
				return false // the names of fields and their descriptions: both are JSON by then
			}
			lit, ok := at.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			wantNil(t, err)
			if ourWords.MatchString(text) {
				seen++
			}
			if left := ourWords.FindString(n.text(text)); left != "" && elsewhere[name] == "" {
				t.Errorf("%s: %q is still in %q", name, left, n.text(text))
			}
			return true
		})
	}
	if seen < 50 {
		t.Errorf("only %d texts have words of ours", seen)
	}
}

// Under the ancestor's names no word of anybody else's changes: not in quotes, in a path or in another word, not in
// what Codex or an agent said, nor deeper in a result than the names of our own fields are.
func TestAncestorNamesLeaveOtherWords(t *testing.T) {
	n := ancestorNames()
	for _, tc := range []struct{ ours, theirs string }{
		{`no session "agent_id"; agent_sessions lists them.`, `no session "agent_id"; codex_threads lists them.`},
		{`say "a \" agent_id": give an agent_id.`, `say "a \" agent_id": give a codex_id.`},
		{`: codex {"agent_id": "agent_id"} reopens it`, `: codex {"codex_id": "agent_id"} reopens it`},
		{`/x/agent_id/agent_close my_agent_id agent_id.txt C:\a\agent_close`,
			`/x/agent_id/agent_close my_agent_id agent_id.txt C:\a\agent_close`},
		{"atm-agent-mcp: run `atm-agent-mcp sessions` or /bin/atm-agent-mcp",
			"codex-mcp: run `codex-mcp threads` or /bin/atm-agent-mcp"},
		{"set ATM_AGENT_MCP_CLIENT_IDENTITY; ATM_AGENT_MCP_MODEL is set",
			"set CODEX_MCP_CLIENT_IDENTITY; ATM_AGENT_MCP_MODEL is set"},
		{"[plugins.atm-agent-mcp.roles.NAME], the agent identity", "[plugins.codex-mcp.roles.NAME], the agent identity"},
		{`did you mean "agent_id"? see "agent_id"`, `did you mean "codex_id"? see "agent_id"`},
		{"an agent id, agent_ids", "a codex id, codex_ids"},
	} {
		want(t, n.text(tc.ours), tc.theirs)
		want(t, (*names)(nil).text(tc.ours), tc.ours)
	}
	want(t, string(n.fields(json.RawMessage(`{"agents":[{"agent_id":"agent_id","turns":[{"content":"agent_id",`+
		`"output":{"agent_id":1}}]}],"output":{"agent_id":1},"answers":["agent_close"],"identities":{"agent_id":"a"}}`),
		listed)), `{"agents":[{"codex_id":"agent_id","turns":[{"content":"agent_id","output":{"agent_id":1}}]}],`+
		`"output":{"agent_id":1},"answers":["agent_close"],"identities":{"agent_id":"a"}}`)
	e := n.error(&rpcError{Message: "said agent_id there; give agent_id", Data: json.RawMessage(
		`{"agent_id":"a","child_error":{"message":"said agent_id there","agent_id":1}}`)})
	want(t, e.Message, "said agent_id there; give codex_id")
	want(t, string(e.Data), `{"codex_id":"a","child_error":{"message":"said agent_id there","agent_id":1}}`)
}

// The name is the program's own, whatever the path to it, and --compat goes above it.
func TestTakeNames(t *testing.T) {
	for _, tc := range []struct {
		line, left string
		theirs, ok bool
	}{
		{"codex-mcp serve", "serve", true, true},
		{`C:\Tools\Codex-MCP.EXE serve`, "serve", true, true},
		{"/usr/bin/codex-mcp", "", true, true},
		{"codex-mcp-2 serve", "serve", false, true},
		{"my-codex-mcp serve", "serve", false, true},
		{"atm-agent-mcp --compat codex-mcp serve --team x", "serve --team x", true, true},
		{"atm-agent-mcp serve --compat=codex-mcp", "serve", true, true},
		{"codex-mcp --compat atm-agent-mcp serve", "serve", false, true},
		{"codex-mcp acp login --compat x", "acp login --compat x", true, true},
		{"atm-agent-mcp serve --identity login --compat codex-mcp", "serve --identity login", true, true},
		{"atm-agent-mcp --compat", "", false, false},
		{"atm-agent-mcp serve --compat other", "", false, false},
	} {
		n, left, err := takeNames(strings.Fields(tc.line))
		if (n != nil) != tc.theirs || (err == nil) != tc.ok || strings.Join(left, " ") != tc.left {
			t.Errorf("%s: names %v, left %q, error %v", tc.line, n != nil, left, err)
		}
	}
}
