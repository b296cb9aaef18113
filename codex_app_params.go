package main

// codex_app_params.go owns what app-server is told of a thread and of a turn,
// in each version's words, and what it is told not to say. It is pure; the
// driver calls it for initialize, thread/start, thread/resume and turn/start.
// It must send nothing of ours that isn't Codex's (agent_id,
// identity, role, …): only what stands here goes out.

import (
	"encoding/json"
	"strings"
)

// oldEventMethods silences what 0.104 says in its first protocol's words beside the second's, twice the traffic. Only
// exact names count. How MCP servers start (mcp_startup_*) it says in no other words.
func oldEventMethods() []string {
	var out []string
	for _, name := range strings.Fields(`agent_message agent_message_content_delta agent_message_delta
		agent_reasoning agent_reasoning_delta agent_reasoning_raw_content agent_reasoning_raw_content_delta
		agent_reasoning_section_break apply_patch_approval_request background_event
		collab_agent_interaction_begin collab_agent_interaction_end collab_agent_spawn_begin
		collab_agent_spawn_end collab_close_begin collab_close_end collab_resume_begin collab_resume_end
		collab_waiting_begin collab_waiting_end context_compacted deprecation_notice dynamic_tool_call_request
		elicitation_request entered_review_mode error exec_approval_request exec_command_begin exec_command_end
		exec_command_output_delta exited_review_mode get_history_entry_response item_completed item_started
		list_custom_prompts_response list_skills_response mcp_list_tools_response mcp_tool_call_begin
		mcp_tool_call_end model_reroute patch_apply_begin patch_apply_end plan_delta plan_update
		raw_response_item reasoning_content_delta reasoning_raw_content_delta remote_skill_downloaded
		request_user_input session_configured shutdown_complete skills_update_available stream_error
		task_complete task_started terminal_interaction thread_name_updated thread_rolled_back token_count
		turn_aborted turn_complete turn_diff turn_started undo_completed undo_started user_message
		view_image_tool_call warning web_search_begin web_search_end`) {
		out = append(out, "codex/event/"+name)
	}
	return out
}

// openParams are the method and parameters that open a thread. Everything is sent again on resume: 0.104 falls back to
// the configuration's defaults, newer ones forget the thread's MCP servers. Only the dynamic tools are not: no version
// takes them then, and every one has kept the thread's.
func openParams(info backendInfo, s threadSpec) (method string, params map[string]any) {
	p := map[string]any{
		// Always: a thread that starts with more makes 0.169 write
		// trust_level into the user's config.toml. The turn widens it.
		"sandbox": "read-only",
	}
	putWord(p, "cwd", s.Settings.Cwd)
	putWord(p, "model", s.Settings.Model)
	putWord(p, "approvalPolicy", approvalWord(info, s.Settings.Approval))
	putWord(p, "baseInstructions", s.BaseInstructions)
	putWord(p, "developerInstructions", s.DeveloperInstructions)
	if config := openConfig(info, s); len(config) > 0 {
		p["config"] = config
	}
	if s.Thread == "" && s.Ephemeral {
		p["ephemeral"] = true
	}
	switch {
	case s.Thread != "":
		method, p["threadId"] = "thread/resume", s.Thread
	case s.Fork != "": // it has its parent's dynamic tools
		method, p["threadId"] = "thread/fork", s.Fork
	default:
		if len(s.Tools) > 0 && info.clientTools {
			p["dynamicTools"] = dynamicTools(s.Tools)
		}
		return "thread/start", p
	}
	if info.atLeast(148) {
		p["excludeTurns"] = true
	}
	return method, p
}

// putWord sets a parameter, but not to "": that would be another setting than none.
func putWord(params map[string]any, key, word string) {
	if word != "" {
		params[key] = word
	}
}

// fieldMap is a copy of an object's fields, empty for none.
func fieldMap(obj json.RawMessage) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	_ = eachField(obj, func(key string, val json.RawMessage) bool {
		fields[key] = val
		return true
	})
	return fields
}

// openConfig is the caller's config with what has no parameter of its own.
func openConfig(info backendInfo, s threadSpec) map[string]json.RawMessage {
	c := fieldMap(s.Config)
	if s.Profile != "" && !info.atLeast(148) {
		c["profile"] = toJSON(s.Profile)
	}
	if _, ok := c["thread_unload_delay_secs"]; !ok && info.atLeast(148) {
		// Else an unsubscribed thread stays loaded for half an hour, and so
		// does its lock, that keeps others from resuming it.
		c["thread_unload_delay_secs"] = json.RawMessage("1")
	}
	return c
}

// approvalWord: on-failure exists in old versions only, and rejects the whole request in new ones.
func approvalWord(info backendInfo, word string) string {
	if word == "on-failure" && info.atLeast(148) {
		return "on-request"
	}
	return word
}

// turnInput is the prompt and the parts behind it; with parts alone there is no empty text before them.
func turnInput(c command) []any {
	text := func(s string) any { return map[string]any{"type": "text", "text": s, "text_elements": []any{}} }
	var in []any
	if c.prompt != "" || len(c.parts) == 0 {
		in = append(in, text(c.prompt))
	}
	for _, p := range c.parts {
		switch p.kind {
		case "image":
			in = append(in, map[string]any{"type": "image", "url": p.url})
		case "localImage":
			in = append(in, map[string]any{"type": "localImage", "path": p.path})
		case "skill":
			in = append(in, map[string]any{"type": "skill", "name": p.text, "path": p.path})
		default:
			in = append(in, text(p.text))
		}
	}
	return in
}

// settingsParams are what a turn runs under, complete on every turn: Codex's overrides stick.
func settingsParams(info backendInfo, thread string, c command) map[string]any {
	p := map[string]any{"threadId": thread, "sandboxPolicy": sandboxPolicy(info, c.settings)}
	putWord(p, "cwd", c.settings.Cwd)
	putWord(p, "model", c.settings.Model)
	putWord(p, "effort", effortWord(info, c.settings.Effort))
	putWord(p, "approvalPolicy", approvalWord(info, c.settings.Approval))
	return p
}

// collaborationMode says whether Codex is to plan. It sticks in every version and outlives Codex from 0.169 on, so it
// is said on every turn of a thread that has ever had another than the default one. Its model and effort win over the
// turn's own, so they are those.
func collaborationMode(info backendInfo, s turnSettings) any {
	var effort any // null: the model's own
	if word := effortWord(info, s.Effort); word != "" {
		effort = word
	}
	return map[string]any{"mode": s.Collaboration, "settings": map[string]any{"model": s.Model,
		"reasoning_effort": effort, "developer_instructions": nil}}
}

// effortWord leaves out a word that 0.104 would reject the whole turn for.
func effortWord(info backendInfo, effort string) string {
	if info.atLeast(148) {
		return effort
	}
	switch effort = strings.ToLower(effort); effort {
	case "none", "minimal", "low", "medium", "high", "xhigh":
		return effort
	}
	return ""
}

// sandboxPolicy is the object a turn takes. A word that isn't known is read-only: the narrowest.
func sandboxPolicy(info backendInfo, s turnSettings) map[string]any {
	switch s.Sandbox {
	case "danger-full-access":
		return map[string]any{"type": "dangerFullAccess"}
	case "workspace-write":
		return map[string]any{"type": "workspaceWrite", "writableRoots": writableRoots(s), "networkAccess": s.Network,
			"excludeTmpdirEnvVar": s.ExcludeTmpdir, "excludeSlashTmp": s.ExcludeSlashTmp}
	}
	p := map[string]any{"type": "readOnly"}
	if info.atLeast(148) {
		p["networkAccess"] = s.Network // 0.104 has no such field
	}
	return p
}

// writableRoots is never null, which Codex refuses.
func writableRoots(s turnSettings) []string { return append([]string{}, s.WritableRoots...) }

// dynamicTools are in the one form that all versions take: 0.104 ignores type,
// and every one wants a schema. What is more goes by namespaces, from 0.148 on.
func dynamicTools(tools []clientTool) []any {
	out := make([]any, 0, len(tools))
	for _, t := range tools {
		schema := t.Input
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out = append(out, map[string]any{"type": "function", "name": t.Name, "description": t.Description,
			"inputSchema": schema})
	}
	return out
}
