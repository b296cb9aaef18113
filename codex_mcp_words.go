package main

// codex_mcp_words.go owns the words of codex mcp-server, in both directions: what
// its codex/event notifications and elicitations of 0.104 to 0.153 mean as neutral
// events, and the arguments and answers that each version's own schema takes, for
// 0.148 and later refuse a whole call for one unknown field. The driver calls it. Commands, patches and tool calls are
// read from their own begin and end events, since 0.104 makes no items of them; what nothing is made of is evRaw.

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// mcpNote is the notification that every event comes in.
const mcpNote = "codex/event"

// mcpFields are the fields of an event that anything is made of.
type mcpFields struct {
	thread, turn, typ string
	request, msg      json.RawMessage
}

func readMCPFields(params json.RawMessage) (f mcpFields) {
	_ = eachField(params, func(key string, val json.RawMessage) bool {
		switch key {
		case "_meta":
			f.thread, f.request = stringField(val, "threadId"), rawField(val, "requestId")
		case "id":
			f.turn, _ = rawString(val)
		case "msg":
			f.msg, f.typ = val, stringField(val, "type")
		}
		return true
	})
	return f
}

// mcpEvent translates one event. The ends of turns are left to the driver,
// which knows what runs: here they are what they say and no more.
func mcpEvent(f mcpFields, params json.RawMessage) event {
	e := event{kind: evRaw, thread: f.thread, turn: f.turn, method: mcpNote, raw: params}
	msg := f.msg
	text := func(key string) string { return stringField(msg, key) }
	switch f.typ {
	case "agent_message_content_delta": // 0.104 says the same again in agent_message_delta
		e.kind, e.phase, e.item, e.text = evDelta, "answer", text("item_id"), text("delta")
	case "reasoning_content_delta", "reasoning_raw_content_delta":
		e.kind, e.phase, e.item, e.text = evDelta, "reasoning", text("item_id"), text("delta")
	case "exec_command_output_delta":
		e.kind, e.phase, e.item = evDelta, "output", text("call_id")
		if b, err := base64.StdEncoding.DecodeString(text("chunk")); err == nil {
			e.text = strings.ToValidUTF8(string(b), "\uFFFD")
		}
	case "item_started", "item_completed":
		return mcpItem(e, msg, strings.TrimPrefix(f.typ, "item_"))
	case "exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin", "web_search_begin":
		e.kind, e.phase, e.item, e.body = evItem, "started", text("call_id"), mcpAct(f.typ, msg)
	case "exec_command_end", "patch_apply_end", "mcp_tool_call_end", "web_search_end":
		e.kind, e.phase, e.must, e.item, e.body = evItem, "completed", true, text("call_id"), mcpAct(f.typ, msg)
	case "plan_update":
		e.kind, e.text = evPlan, planText(rawField(msg, "plan"))
	case "turn_diff":
		e.kind, e.text = evDiff, text("unified_diff")
	case "token_count":
		if u := readUsage(rawField(msg, "info")); u != nil {
			e.kind, e.usage = evUsage, u
		}
	case "stream_error":
		e.kind, e.text, e.retry = evNotice, text("message"), true
	case "warning", "deprecation_notice":
		e.kind, e.text = evNotice, cmp.Or(text("message"), text("summary"))
	}
	return e
}

// mcpItem reads what only items tell: messages and reasoning. 0.153 has items
// for commands, patches and calls too, beside the events they are read from.
func mcpItem(e event, msg json.RawMessage, phase string) event {
	item := rawField(msg, "item")
	b := &itemBody{phase: stringField(item, "phase")}
	switch stringField(item, "type") {
	case "AgentMessage":
		b.kind = "agentMessage"
	case "Reasoning":
		b.kind = "reasoning"
	case "ContextCompaction":
		b.kind = "contextCompaction"
	default:
		return e
	}
	var texts []string
	eachElement(rawField(item, "content"), func(part json.RawMessage) {
		texts = append(texts, stringField(part, "text"))
	})
	b.text = strings.Join(texts, "")
	e.kind, e.phase, e.must, e.item, e.body = evItem, phase, phase == "completed", stringField(item, "id"), b
	return e
}

func mcpAct(typ string, msg json.RawMessage) *itemBody {
	b := &itemBody{status: stringField(msg, "status"), cwd: stringField(msg, "cwd")}
	switch typ {
	case "exec_command_begin", "exec_command_end":
		b.kind, b.command = "commandExecution", commandLine(rawField(msg, "command"))
		if dir, ok := pathOfURL(b.cwd); ok { // 0.153
			b.cwd = dir
		}
		var n int
		if raw := rawField(msg, "exit_code"); rawKind(raw) == '0' && json.Unmarshal(raw, &n) == nil {
			b.exitCode = &n
		}
		b.output = stringField(msg, "aggregated_output")
		eachElement(rawField(msg, "parsed_cmd"), func(c json.RawMessage) {
			kind := stringField(c, "type")
			if kind == "list_files" {
				kind = "listFiles" // app-server's word
			}
			b.actions = append(b.actions, commandAction{kind, stringField(c, "path"), stringField(c, "query"),
				stringField(c, "cmd")})
		})
	case "patch_apply_begin", "patch_apply_end":
		b.kind, b.files = "fileChange", mcpChanges(rawField(msg, "changes"))
		if string(rawField(msg, "success")) == "false" && b.status != "declined" { // 0.104 has no status
			b.status = "failed"
		}
	case "mcp_tool_call_begin", "mcp_tool_call_end":
		b.kind, b.server = "mcpToolCall", stringField(msg, "invocation", "server")
		b.tool = stringField(msg, "invocation", "tool")
		b.arguments = rawField(msg, "invocation", "arguments")
		b.result, b.failure = rawField(msg, "result", "Ok"), stringField(msg, "result", "Err")
	default:
		b.kind, b.text = "webSearch", stringField(msg, "query")
		b.query = b.text
	}
	return b
}

// commandLine writes the words of a command as a shell would read them.
func commandLine(words json.RawMessage) string {
	var list []string
	if json.Unmarshal(words, &list) != nil {
		return ""
	}
	for i, w := range list {
		plain := func(r rune) bool {
			return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
				strings.ContainsRune("_-./=:,@%+", r)
		}
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !plain(r) }) {
			list[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// mcpChanges reads the map from path to change, in the order of the paths.
func mcpChanges(changes json.RawMessage) []fileChange {
	var out []fileChange
	_ = eachField(changes, func(path string, c json.RawMessage) bool {
		f := fileChange{path: path, kind: stringField(c, "type"), move: stringField(c, "move_path")}
		if f.diff = stringField(c, "unified_diff"); f.diff == "" {
			f.diff = stringField(c, "content")
		}
		out = append(out, f)
		return true
	})
	slices.SortFunc(out, func(a, b fileChange) int { return cmp.Compare(a.path, b.path) })
	return out
}

// mcpAsk is the neutral form of an elicitation. before is the event that came ahead of it, which alone has the model's
// reason, the host a command would reach and the rule that Codex proposes.
func mcpAsk(q *openAsk, before json.RawMessage) *approval {
	p := q.params
	a := &approval{thread: q.thread, turn: q.turn, item: stringField(p, "codex_call_id"),
		cwd: stringField(p, "codex_cwd"), reason: cmp.Or(stringField(p, "codex_reason"), stringField(before, "reason"))}
	switch stringField(p, "codex_elicitation") {
	case "exec-approval":
		a.kind, a.command = askCommand, commandLine(rawField(p, "codex_command"))
		a.action, a.forSession = a.command, true
		a.networkTo(rawField(before, "network_approval_context"))
		q.rule = proposedRule(rawField(before, "proposed_execpolicy_amendment"),
			rawField(before, "available_decisions"), "approved_execpolicy_amendment")
		_ = json.Unmarshal(q.rule, &a.rule) // what isn't a list of words is no rule
	case "patch-approval":
		a.kind, a.files = askFileChange, mcpChanges(rawField(p, "codex_changes"))
		a.forSession = true
		a.action = changesText(a.files)
		a.asksToWrite(cmp.Or(stringField(p, "codex_grant_root"), stringField(before, "grant_root")))
	default:
		a.kind = askUnknown
	}
	if a.action == "" {
		a.action = cmp.Or(stringField(p, "message"), q.method)
	}
	return a
}

// unanswerable is what an event asks that mcp-server forwards to nobody: without an end of ours the turn would hang for
// good. 0.148 and later ask so before a tool call, and for an MCP server's own questions.
func unanswerable(f mcpFields) (what string, is bool) {
	switch f.typ {
	case "elicitation_request":
		what = cmp.Or(stringField(f.msg, "request", "message"), stringField(f.msg, "message"))
		if server := stringField(f.msg, "server_name"); server != "" {
			what = strings.TrimSpace(server + ": " + what)
		}
	case "request_user_input":
		var texts []string
		for _, q := range userQuestions(rawField(f.msg, "questions")) {
			texts = append(texts, q.text)
		}
		what = strings.Join(texts, "; ")
	default:
		return "", false
	}
	return cmp.Or(what, f.typ), true
}

// mcpSchema is what matters of the child's own tools/list.
type mcpSchema struct {
	codex, reply bool // the two tools are there
	untrusted    bool // approval-policy still has the word (not in 0.153)
	profile      bool // 0.104 only
}

func readMCPSchema(list json.RawMessage) (s mcpSchema) {
	eachElement(rawField(list, "tools"), func(tool json.RawMessage) {
		switch stringField(tool, "name") {
		case "codex":
			props := rawField(tool, "inputSchema", "properties")
			words := rawStrings(rawField(props, "approval-policy", "enum"))
			s.codex, s.profile = true, rawField(props, "profile") != nil
			s.untrusted = slices.Contains(words, "untrusted")
		case "codex-reply":
			s.reply = true
		}
	})
	return s
}

// mcpPrompt is all of a command that the tools can take: text. why says what they can't.
func mcpPrompt(c command) (prompt, why string) {
	if c.action == actCompact {
		return "", "codex mcp-server can't compact a thread; use a Codex with app-server for that"
	}
	if c.schema != nil {
		return "", "codex mcp-server takes no output_schema; use a Codex with app-server for that"
	}
	prompt = c.prompt
	for _, p := range c.parts {
		if p.kind != "text" {
			return "", "codex mcp-server takes text only, and the prompt has an image; " +
				"use a Codex with app-server for that"
		}
		if prompt != "" {
			prompt += "\n"
		}
		prompt += p.text
	}
	return prompt, ""
}

// startArguments are those of the codex tool: a new thread with its first turn.
func startArguments(s mcpSchema, spec threadSpec, prompt string) map[string]any {
	set := spec.Settings
	a := map[string]any{"prompt": prompt}
	putWord(a, "cwd", set.Cwd)
	putWord(a, "model", set.Model)
	putWord(a, "sandbox", set.Sandbox)
	putWord(a, "base-instructions", spec.BaseInstructions)
	putWord(a, "developer-instructions", spec.DeveloperInstructions)
	config := fieldMap(spec.Config)
	if set.Approval == "untrusted" && !s.untrusted {
		// Without the word, a directory that isn't trusted still means it.
		projects := fieldMap(config["projects"])
		projects[set.Cwd] = json.RawMessage(`{"trust_level":"untrusted"}`)
		config["projects"] = toJSON(projects)
	} else {
		putWord(a, "approval-policy", set.Approval)
	}
	if set.Effort != "" {
		config["model_reasoning_effort"] = toJSON(set.Effort)
	}
	if set.Sandbox == sandboxWrite {
		config["sandbox_workspace_write"] = toJSON(map[string]any{
			"writable_roots": writableRoots(set), "network_access": set.Network,
			"exclude_tmpdir_env_var": set.ExcludeTmpdir, "exclude_slash_tmp": set.ExcludeSlashTmp})
	}
	if s.profile {
		putWord(a, "profile", spec.Profile)
	}
	if len(config) > 0 {
		a["config"] = config
	}
	return a
}

// elicitationReply says d in both dialects at once, so that whichever is read means the same. 0.104 takes a bare
// "denied", later ones a reason with it that the model gets to see; neither may get an error, which hangs the turn.
// rule is Codex's own proposal, which approveAlways gives back as it came.
func elicitationReply(info backendInfo, d decision, why string, rule json.RawMessage) map[string]any {
	var yes any // nil for every word that isn't one of consent
	switch d {
	case approve:
		yes = "approved"
	case approveForSession:
		yes = "approved_for_session"
	case approveAlways:
		if yes = "approved"; rule != nil {
			yes = map[string]any{"approved_execpolicy_amendment": map[string]any{"proposed_execpolicy_amendment": rule}}
		}
	case deny:
	}
	if yes != nil {
		return map[string]any{"action": "accept", "content": map[string]any{}, "decision": yes}
	}
	no := any("denied")
	if info.atLeast(148) {
		no = map[string]any{"denied": map[string]any{"rejection": cmp.Or(why, "declined")}}
	}
	return map[string]any{"action": "decline", "decision": no}
}

// readCodexConfig reads $CODEX_HOME/config.toml into the form that app-server
// answers config/read with. None at all is an empty one.
func readCodexConfig(home string) (json.RawMessage, error) {
	path := filepath.Join(home, "config.toml")
	data, err := readRegular(path, maxConfigSize)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the Codex configuration: %w", err)
	}
	table, err := parseTOML(path, data)
	if err != nil {
		return nil, fmt.Errorf("reading the Codex configuration: %w", err)
	}
	return toJSON(map[string]any{"config": table.plain()}), nil
}
