package main

// mock_show.go owns the directives by which the mock Codex's model shows things
// rather than does them: images, plans, web searches, large outputs, edits of
// files, and what it was handed. They run on the turn's goroutine. A wait must go
// through mockTurn.wait, or an interrupt would find nobody.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// callDirective calls a function by its name, as the scripted model API does:
// CALL name {json}; view_image, update_plan (which newer models don't have), or
// a dynamic tool of the thread.
func callDirective(t *mockTurn, arg string) mockEnd {
	name, args, _ := strings.Cut(arg, " ")
	switch {
	case name == "view_image":
		return viewDirective(t, stringField(json.RawMessage(args), "path"))
	case name == "update_plan" && t.m.old():
		return t.plan(json.RawMessage(args))
	}
	return toolDirective(t, arg)
}

// viewDirective looks at an image: VIEW path. 0.104 hands it to the model in a
// message of the user.
func viewDirective(t *mockTurn, path string) mockEnd {
	if !filepath.IsAbs(path) {
		path = filepath.Join(t.settings.Cwd, path)
	}
	t.toolBegins()
	data, err := os.ReadFile(path)
	if err != nil {
		t.told(fmt.Sprintf("unable to locate image at `%s`: %v", path, err))
		t.toolEnded()
		return goOn
	}
	it := t.item("imageView", t.m.newID("call"), map[string]any{"path": path})
	t.event("view_image_tool_call", map[string]any{"call_id": it["id"], "path": path})
	t.started(it)
	t.completed(it)
	if t.m.old() {
		message := t.item("userMessage", newMockID(), map[string]any{"content": []any{map[string]any{"type": "image", "url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)}}})
		t.started(message)
		t.completed(message)
	}
	t.told("attached local image path")
	t.toolEnded()
	return goOn
}

// webSearchDirective: WEBSEARCH query. The search is the model's own, so no
// request of it follows.
func webSearchDirective(t *mockTurn, query string) mockEnd {
	fields := map[string]any{"query": query, "action": map[string]any{"type": "search", "query": query, "queries": nil}}
	if t.m.new() {
		fields["results"] = nil
	}
	it := t.item("webSearch", t.m.newID("ws"), fields)
	t.started(it)
	t.event("web_search_begin", map[string]any{"call_id": it["id"]})
	t.completed(it)
	t.event("web_search_end", map[string]any{"call_id": it["id"], "query": query, "action": map[string]any{"type": "search", "query": query}})
	return t.say("searched", nil)
}

// planDirective: PLAN [x] one ;; [>] two ;; [ ] three.
func planDirective(t *mockTurn, arg string) mockEnd {
	steps := []any{}
	for _, line := range strings.Split(arg, " ;; ") {
		status := "pending"
		switch {
		case strings.HasPrefix(line, "[x] "):
			status = "completed"
		case strings.HasPrefix(line, "[>] "):
			status = "in_progress"
		}
		_, step, _ := strings.Cut(line, "] ")
		steps = append(steps, map[string]any{"step": step, "status": status})
	}
	return t.plan(toJSON(map[string]any{"explanation": nil, "plan": steps}))
}

// plan shows the plan of a call of update_plan.
func (t *mockTurn) plan(args json.RawMessage) mockEnd {
	t.toolBegins()
	var call struct {
		Explanation any
		Plan        []struct{ Step, Status string }
	}
	_ = json.Unmarshal(args, &call) // no plan is an empty one
	steps := []any{}
	for _, s := range call.Plan {
		steps = append(steps, map[string]any{"step": s.Step, "status": strings.Replace(s.Status, "in_progress", "inProgress", 1)})
	}
	t.event("plan_update", map[string]any{"explanation": call.Explanation, "plan": call.Plan})
	t.tell("turn/plan/updated", map[string]any{"explanation": call.Explanation, "plan": steps})
	t.told("Plan updated")
	t.toolEnded()
	return goOn
}

// planItemDirective is what plan mode ends with: PLANITEM text.
func planItemDirective(t *mockTurn, text string) mockEnd {
	it := t.item("plan", t.id+"-plan", map[string]any{"text": ""})
	t.started(it)
	for _, p := range mockPieces(text, 0) {
		t.event("plan_delta", map[string]any{"thread_id": t.th.ID, "turn_id": t.id, "item_id": it["id"], "delta": p})
		t.tell("item/plan/delta", map[string]any{"itemId": it["id"], "delta": p})
	}
	it["text"] = text
	t.completed(it)
	return goOn
}

// outputDirective is a command that says n bytes in deltas of k, numbered lines
// of 16, without running anything: OUTPUT n [k] [exit code].
func outputDirective(t *mockTurn, arg string) mockEnd {
	n, rest := mockCount(arg, 100<<10)
	k, rest := mockCount(rest, 8<<10)
	code, _ := mockCount(rest, 0)
	t.toolBegins()
	line := fmt.Sprintf("mock-output %d", n)
	it := t.item("commandExecution", t.m.newID("call"), map[string]any{"command": "/bin/bash -lc '" + line + "'", "cwd": t.settings.Cwd, "processId": "1",
		"status": "inProgress", "commandActions": []any{map[string]any{"type": "unknown", "command": line}}, "aggregatedOutput": nil, "exitCode": nil, "durationMs": nil})
	if !t.m.old() {
		it["source"] = "unifiedExecStartup"
	}
	t.started(it)
	var all strings.Builder
	for i := 0; all.Len() < n; i++ {
		fmt.Fprintf(&all, "%015d\n", i)
	}
	out := all.String()[:n]
	for at := 0; at < n; at += max(1, k) {
		t.outputDelta(it["id"].(string), out[at:min(n, at+max(1, k))])
		if end := t.check(); end != goOn {
			t.toolEnded()
			return end
		}
	}
	it["status"], it["exitCode"], it["durationMs"], it["aggregatedOutput"] = "completed", code, 1, out
	if code != 0 {
		it["status"] = "failed"
	}
	t.completed(it)
	t.told(fmt.Sprintf("Process exited with code %d\nOutput:\n%s", code, out[:min(n, 400)]))
	t.toolEnded()
	return goOn
}

// echoInputDirective says what a prompt was made of: ECHO_INPUT. Of an inline
// image its type and how many characters of base64 it has.
func echoInputDirective(t *mockTurn, _ string) mockEnd {
	var parts []map[string]any
	_ = json.Unmarshal(t.input, &parts) // turnStart has seen that it is an array
	for _, p := range parts {
		delete(p, "text_elements")
		if url, _ := p["url"].(string); strings.HasPrefix(url, "data:") {
			kind, data, _ := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
			delete(p, "url")
			p["mime"], p["base64"] = kind, len(data)
		}
	}
	return t.say(string(toJSON(parts)), nil)
}

// editDirective changes lines of a file: EDIT path old => new.
func editDirective(t *mockTurn, arg string) mockEnd {
	name, change, _ := strings.Cut(arg, " ")
	from, to, _ := strings.Cut(change, " => ")
	path := t.inCwd(name)
	text, err := os.ReadFile(path)
	if err != nil || from == "" || !strings.Contains(string(text), from) {
		t.toolBegins()
		t.told("apply_patch verification failed: Failed to find expected lines in " + path)
		t.toolEnded()
		return goOn
	}
	now := strings.Replace(string(text), from, to, 1)
	return t.patchFile(mockChange{name: "M " + name, path: path, kind: map[string]any{"type": "update", "move_path": nil}, diff: mockHunk(string(text), now),
		apply: func() error { return os.WriteFile(path, []byte(now), 0o644) }})
}

// deleteDirective: DELETE path. moveDirective: MOVE path path.
func deleteDirective(t *mockTurn, name string) mockEnd {
	path := t.inCwd(name)
	text, _ := os.ReadFile(path) // if there is none, its removal fails
	return t.patchFile(mockChange{name: "D " + name, path: path, kind: map[string]any{"type": "delete"}, diff: string(text), apply: func() error { return os.Remove(path) }})
}

func moveDirective(t *mockTurn, arg string) mockEnd {
	name, to, _ := strings.Cut(arg, " ")
	path, dest := t.inCwd(name), t.inCwd(to)
	return t.patchFile(mockChange{name: "M " + to, path: path, kind: map[string]any{"type": "update", "move_path": dest}, diff: "\n\nMoved to: " + dest,
		apply: func() error { return os.Rename(path, dest) }})
}

func (t *mockTurn) inCwd(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(t.settings.Cwd, name)
}

// mockHunk is the one hunk between two texts that differ in one place, with
// three lines around it, as Codex writes the diff of an update.
func mockHunk(before, after string) string {
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	from, to := max(0, head-3), min(tail, 3)
	lines := func(list []string) int {
		n := len(list)
		if n > 0 && list[n-1] == "" {
			n--
		}
		return n
	}
	var hunk strings.Builder
	show := func(mark string, list []string) {
		for _, l := range list {
			if l != "" {
				hunk.WriteString(mark + strings.TrimSuffix(l, "\n") + "\n")
			}
		}
	}
	fmt.Fprintf(&hunk, "@@ -%d,%d +%d,%d @@\n", from+1, lines(a[from:len(a)-tail+to]), from+1, lines(b[from:len(b)-tail+to]))
	show(" ", a[from:head])
	show("-", a[head:len(a)-tail])
	show("+", b[head:len(b)-tail])
	show(" ", a[len(a)-tail:len(a)-tail+to])
	return hunk.String()
}
