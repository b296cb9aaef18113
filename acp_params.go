package main

// acp_params.go owns the reading of what an ACP client sends as parameters, and
// the words and codes in which it is refused: the one place where an error of
// the hub becomes one of ACP. The other acp files call it. What it says must
// name the parameter, what it is, and what it must be.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// kindWord names what a raw value is, as in "must be a string, not a number".
func kindWord(raw json.RawMessage) string {
	switch rawKind(raw) {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "missing"
}

// paramText is a string that must be there.
func paramText(params json.RawMessage, name string) (string, *rpcError) {
	raw := rawField(params, name)
	s, ok := rawString(raw)
	switch {
	case ok:
		return s, nil
	case raw == nil:
		return "", badParams("%s is missing: it must be a string", name)
	}
	return "", badParams("%s must be a string, not %s", name, kindWord(raw))
}

// paramSession is the sessionId.
func paramSession(params json.RawMessage) (string, *rpcError) {
	id, e := paramText(params, "sessionId")
	if e == nil && id == "" {
		e = badParams("sessionId is empty: it must be one that session/new or session/list gave")
	}
	return id, e
}

// paramDir is the cwd, absolute and clean.
func paramDir(params json.RawMessage) (string, *rpcError) {
	dir, e := paramText(params, "cwd")
	switch {
	case e != nil:
		return "", e
	case !filepath.IsAbs(dir):
		return "", badParams("cwd %q is not an absolute path: send the full path of the project's directory", shortName(dir))
	}
	return filepath.Clean(dir), nil
}

// paramRoots are the additionalDirectories.
func paramRoots(params json.RawMessage) ([]string, *rpcError) {
	raw := rawField(params, "additionalDirectories")
	if isNull(raw) {
		return nil, nil
	}
	if rawKind(raw) != '[' {
		return nil, badParams("additionalDirectories must be an array of absolute paths, not %s", kindWord(raw))
	}
	var roots []string
	var bad *rpcError
	eachElement(raw, func(el json.RawMessage) {
		dir, ok := rawString(el)
		switch {
		case bad != nil:
		case !ok:
			bad = badParams("additionalDirectories[%d] must be a string, not %s", len(roots), kindWord(el))
		case !filepath.IsAbs(dir):
			bad = badParams("additionalDirectories[%d] %q is not an absolute path", len(roots), shortName(dir))
		}
		roots = append(roots, filepath.Clean(dir))
	})
	return roots, bad
}

// paramServers are the mcpServers as they came, an array or nothing.
func paramServers(params json.RawMessage) (json.RawMessage, *rpcError) {
	raw := rawField(params, "mcpServers")
	if !isNull(raw) && rawKind(raw) != '[' {
		return nil, badParams("mcpServers must be an array of MCP servers, not %s", kindWord(raw))
	}
	return raw, nil
}

// noSession refuses an id that no open session has.
func noSession(id string) *rpcError {
	return &rpcError{Code: codeSessionNotFound, Message: fmt.Sprintf("no session %q is open here: session/load or session/resume opens an earlier one, session/new makes one", shortName(id)),
		Data: toJSON(map[string]any{"sessionId": id})}
}

// errACPClosing refuses what comes while we shut down.
func errACPClosing() *rpcError {
	return &rpcError{Code: codeInternal, Message: "atm-agent-mcp is shutting down: start it again and load the session"}
}

// errOnlyAppServer is for a Codex that has nothing we can serve ACP with.
func errOnlyAppServer() *rpcError {
	return &rpcError{Code: codeInternal, Message: "ACP needs `codex app-server`, which Codex has since 0.104, and this one is run as mcp-server: " +
		"update it with `npm install -g @openai/codex`, name another with --codex-bin, or take backend = \"mcp-server\" out of the configuration"}
}

// acpError is an error of the hub as an ACP client is told it: with the codes of
// ACP, and without the words that only help who calls our MCP tools.
func (f *acpFront) acpError(e *rpcError) *rpcError {
	if e == nil {
		return nil
	}
	out := &rpcError{Code: codeInternal, Message: cmp.Or(e.Said, e.Message) + acpAdvice(e), Data: e.Data}
	if codeName(e.Code) == "" {
		out.Code = e.Code
	}
	switch e.Code {
	case codeSessionNotFound:
		out.Code = codeSessionNotFound
	case codeInvalidSession, codeIdentityRequired, codeAgentFile:
		// The child's own -32602 is about what the client sent (a prompt over
		// 1 MiB characters, from 0.148 on); what it refuses otherwise isn't.
		tooLong := stringField(e.Data, "child_error", "data", "input_error_code") == "input_too_large"
		if stringField(e.Data, "error_source") != "child" || tooLong || string(rawField(e.Data, "child_error", "code")) == "-32602" {
			out.Code = codeInvalidParams
		}
		if tooLong {
			out.Message += " Send less at once: link files in place of embedding them"
		}
	}
	if e.Remedy == remedyLogin {
		return f.needsLogin(out.Message)
	}
	return out
}

// acpAdvice is what somebody with an editor can do about an error, behind the
// words for what happened.
func acpAdvice(e *rpcError) string {
	switch e.Remedy {
	case remedyNewChild:
		return ". The session is kept: the next prompt starts Codex again"
	case remedyReopen:
		return "; the next prompt opens it again"
	case remedyRestart:
		return ": start it again and load the session"
	case remedyGoOn:
		advice := ". The session keeps its context: the next prompt goes on"
		switch limit := stringField(e.Data, "limit"); limit {
		case "":
		case "request_timeout_secs":
			advice += ", --timeout sets the limit"
		default:
			advice += ", " + limit + " sets the limit"
		}
		if partial := stringField(e.Data, "partial"); partial != "" {
			advice += ". Its answer so far: " + partial
		}
		return advice
	case remedyNone, remedyLogin:
	}
	return ""
}
