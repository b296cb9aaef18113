package main

// acp_item.go owns what Codex's items look like as ACP tool calls: title, kind,
// places, input, and at their end content and output. acp_tool.go asks it for
// the face of each item and of each approval. It must never name a place that
// Codex didn't name, and never pass on a block that the schema doesn't know.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// acpLocation is a file that a tool call has to do with; path is absolute.
type acpLocation struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"` // from 1
}

// acpFace is what is told of a tool call as it begins.
type acpFace struct {
	title, name, kind string
	places            []acpLocation
	input             json.RawMessage
	content           []json.RawMessage // stays beside what the call brings
}

// maxCallTitle is how many characters of a command stand in its title; all of it is
// in the input, and a longer one in the content too.
const maxCallTitle = 2000

// face is the face of an item; false for what isn't shown as a tool call. raw is
// the item as Codex told it. done: it has ended already.
func (x *acpEncoder) face(b *itemBody, raw json.RawMessage, done bool) (f acpFace, ok bool) {
	f.kind = "other"
	switch b.kind {
	case "commandExecution":
		f = x.commandFace(b.command, b.cwd, b.actions)
	case "fileChange":
		f = x.patchFace(b.files, b.cwd, done)
	case "mcpToolCall":
		f = mcpFace(b.server, b.tool, b.arguments)
	case "dynamicToolCall":
		f.title, f.name, f.kind, f.input = b.tool, b.tool, toolKind(b.tool), clientJSON(b.arguments)
		if b.server != "" {
			f.title = b.server + "." + b.tool
		}
	case "webSearch":
		f = webFace(cmp.Or(b.query, b.text), rawField(raw, "action"))
	case "imageView":
		file := x.absolute(cmp.Or(b.path, b.text), b.cwd)
		f.title, f.name, f.kind = "View image "+x.short(file), "view_image", "read"
		f.input = toJSON(map[string]string{"path": file})
		if filepath.IsAbs(file) {
			f.places = []acpLocation{{Path: file}}
		}
	case "collabAgentToolCall":
		f = x.collabFace(b, raw)
	case "subAgentActivity":
		f.title = "Subagent " + x.subagent(stringField(raw, "agentThreadId"))
		if what := stringField(raw, "kind"); what != "" {
			f.title += " " + plainWords(what)
		}
	case "contextCompaction":
		f.title, f.kind = "Compacting the history", "think"
		if done {
			f.title = "Compacted the history"
		}
	case "userMessage", "agentMessage", "reasoning", "plan", "enteredReviewMode", "exitedReviewMode":
		return f, false
	default: // of a later Codex: told if it is something that runs and ends
		if b.status == "" {
			return f, false
		}
		f.title = plainWords(b.kind)
	}
	f.title = clipChars(visible(f.title), maxCallTitle)
	if f.title == "" {
		f.title = plainWords(b.kind)
	}
	return f, true
}

func (x *acpEncoder) commandFace(line, cwd string, actions []commandAction) acpFace {
	f := acpFace{title: shownCommand(line), name: "shell", kind: acpCommandKind(actions)}
	if len(f.title) > maxCallTitle {
		f.content = []json.RawMessage{callText(fenced(cappedText(visible(f.title))))}
	}
	for _, a := range actions {
		if at := (acpLocation{Path: a.path}); filepath.IsAbs(a.path) && !slices.Contains(f.places, at) {
			f.places = append(f.places, at)
		}
	}
	f.input = clientJSON(toJSON(struct {
		Command string `json:"command"`
		Cwd     string `json:"cwd,omitempty"`
	}{line, cwd}))
	return f
}

// acpCommandKind is "execute" unless Codex understands every part of the line.
func acpCommandKind(actions []commandAction) string {
	reads := false
	for _, a := range actions {
		switch a.kind {
		case "read":
			reads = true
		case "search", "listFiles":
		default:
			return "execute"
		}
	}
	switch {
	case len(actions) == 0:
		return "execute"
	case reads:
		return "read"
	}
	return "search"
}

// patchFace reads the files, unless the patch is long past.
func (x *acpEncoder) patchFace(files []fileChange, cwd string, done bool) acpFace {
	f := acpFace{name: "apply_patch", kind: "edit"}
	p := acpPatch{live: !x.o.Replay, applied: done}
	kinds := map[string]int{}
	var names []string
	size := 0
	for _, c := range files {
		size += len(c.diff)
		from := x.absolute(c.path, cwd)
		to := from
		if c.move != "" {
			to = x.absolute(c.move, cwd)
		}
		if !filepath.IsAbs(to) {
			continue
		}
		word := "edit"
		var hunks []patchHunk
		switch {
		case c.kind == "add":
			word = "create"
		case c.kind == "delete":
			word = "delete"
		default:
			hunks = readPatch(c.diff)
			if c.move != "" {
				word = "move"
			}
		}
		kinds[word]++
		p.add(c, to, from, hunks)
		at := acpLocation{Path: to}
		if len(hunks) > 0 {
			at.Line = max(0, hunks[0].newAt)
		}
		f.places = append(f.places, at)
		if word == "move" {
			names = append(names, x.short(from)+" → "+x.short(to))
		} else {
			names = append(names, x.short(to))
		}
	}
	word := "edit"
	for _, w := range []string{"create", "delete", "move"} {
		if len(names) > 0 && kinds[w] == len(names) {
			word = w
		}
	}
	if word == "delete" || word == "move" {
		f.kind = word
	}
	f.title = strings.ToUpper(word[:1]) + word[1:] + " "
	switch {
	case len(names) == 0:
		f.title += "files"
	case len(names) == 1:
		f.title += names[0]
	case len(names) <= 4:
		f.title += fmt.Sprintf("%d files: %s", len(names), strings.Join(names, ", "))
	default:
		f.title += fmt.Sprintf("%d files: %s, …", len(names), strings.Join(names[:3], ", "))
	}
	f.content = p.blocks
	if p.left > 0 {
		f.content = append(f.content, callText(fmt.Sprintf("%d more files are changed that are too long to be shown.", p.left)))
	}
	f.input = patchInput(files, size <= maxACPText/2)
	return f
}

// patchInput is what Codex was told to change; diffs that are shown anyway are
// repeated only if they are short.
func patchInput(files []fileChange, diffs bool) json.RawMessage {
	type change struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
		Move string `json:"movePath,omitempty"`
		Diff string `json:"diff,omitempty"`
	}
	list := make([]change, 0, len(files))
	for _, c := range files {
		one := change{c.path, c.kind, c.move, ""}
		if diffs {
			one.Diff = c.diff
		}
		list = append(list, one)
	}
	return clientJSON(toJSON(map[string]any{"changes": list}))
}

func mcpFace(server, tool string, arguments json.RawMessage) acpFace {
	in := map[string]any{"server": server, "tool": tool}
	if args := clientJSON(arguments); args != nil {
		in["arguments"] = args
	}
	return acpFace{title: server + "." + tool, name: "mcp__" + server + "__" + tool, kind: toolKind(tool), input: toJSON(in)}
}

// toolKind guesses by the tool's first word; "other" is never wrong.
func toolKind(tool string) string {
	first, _, _ := strings.Cut(plainWords(tool), " ")
	switch first {
	case "read", "get", "list", "view", "show":
		return "read"
	case "search", "find", "query", "grep", "lookup":
		return "search"
	case "fetch", "download", "browse", "crawl":
		return "fetch"
	}
	return "other"
}

// webFace: Codex knows the query only as the search ends, and calls opening a
// page of what it found a search too.
func webFace(query string, action json.RawMessage) acpFace {
	f := acpFace{title: "Search the web", name: "web_search", kind: "search"}
	address := stringField(action, "url")
	switch stringField(action, "type") {
	case "openPage":
		f.title, f.kind = "Open "+cmp.Or(address, query), "fetch"
	case "findInPage":
		f.title = "Find " + cmp.Or(stringField(action, "pattern"), query)
		if address != "" {
			f.title += " in " + address
		}
	default:
		if query = cmp.Or(query, stringField(action, "query")); query != "" {
			f.title += " for " + query
		}
	}
	if query != "" || !isNull(action) {
		in := map[string]any{"query": query}
		if a := clientJSON(action); a != nil {
			in["action"] = a
		}
		f.input = toJSON(in)
	}
	return f
}

// collabFace is what the agent does with its subagents.
func (x *acpEncoder) collabFace(b *itemBody, raw json.RawMessage) acpFace {
	f := acpFace{name: strings.ReplaceAll(plainWords(b.tool), " ", "_"), kind: "other"}
	var names []string
	in := map[string]any{"tool": b.tool}
	var ids []string
	eachElement(rawField(raw, "receiverThreadIds"), func(id json.RawMessage) {
		if s, ok := rawString(id); ok {
			ids, names = append(ids, s), append(names, x.subagent(s))
		}
	})
	if len(ids) > 0 {
		in["receiverThreadIds"] = ids
	}
	switch b.tool {
	case "spawnAgent":
		f.title = "Start subagent"
	case "sendInput", "sendMessage", "followupTask":
		f.title = "Message subagent"
	case "resumeAgent":
		f.title = "Resume subagent"
	case "wait":
		f.title = "Wait for subagent"
	case "closeAgent":
		f.title = "Close subagent"
	case "interruptAgent":
		f.title = "Interrupt subagent"
	case "listAgents":
		f.title = "List subagents"
	default:
		f.title = "Subagents: " + plainWords(b.tool)
	}
	if len(names) > 0 {
		f.title += " " + strings.Join(names, ", ")
	}
	if b.text != "" {
		in["prompt"] = cappedText(b.text)
		f.content = []json.RawMessage{callText(cappedText(b.text))}
	}
	f.input = clientJSON(toJSON(in))
	return f
}

// askFace is the face of an approval whose item isn't known: Codex 0.104 asks
// before it tells of the item, and permissions have none.
func (x *acpEncoder) askFace(q *approval) acpFace {
	var f acpFace
	switch {
	case q.kind == askCommand && q.command != "":
		f = x.commandFace(q.command, q.cwd, nil)
	case q.kind == askFileChange && len(q.files) > 0:
		f = x.patchFace(q.files, q.cwd, false)
	case q.kind == askMCPTool:
		f = mcpFace(q.server, q.tool, q.arguments)
	case q.kind == askQuestion:
		f = acpFace{title: "Question: " + q.action, kind: "other"}
	case q.kind == askPermissions:
		f = acpFace{title: "More permissions: " + strings.ReplaceAll(q.action, "\n", ", "), kind: "other"}
	default:
		f = acpFace{title: q.action, kind: "other"}
	}
	f.title = clipChars(visible(f.title), maxCallTitle)
	if f.title == "" {
		f.title = "Approval"
	}
	return f
}

// askContent is what a person should know beside the face.
func (x *acpEncoder) askContent(q *approval) (out []json.RawMessage) {
	var lines []string
	add := func(line string) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, visible(line))
		}
	}
	if s := q.asker(); s != "" {
		add("Asked by subagent " + s)
	}
	add(q.reason)
	switch q.kind {
	case askCommand:
		add(strings.Join(q.more, "\n"))
		if q.cwd != "" && q.cwd != x.o.Cwd {
			add("In " + q.cwd)
		}
	case askFileChange: // the diffs say what
		add(strings.Join(q.more, "\n"))
	case askMCPTool:
		if args := clientJSON(q.arguments); args != nil && string(args) != "{}" {
			lines = append(lines, fenced(visible(string(args))))
		}
	default:
		add(q.action)
	}
	if len(lines) > 0 {
		out = append(out, callText(cappedText(strings.Join(lines, "\n\n"))))
	}
	return out
}

// absolute is where a path that Codex names is; relative to cwd, else to the
// session's.
func (x *acpEncoder) absolute(file, cwd string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(cmp.Or(cwd, x.o.Cwd), file)
}

// short is a path as a title names it.
func (x *acpEncoder) short(file string) string {
	if rel, err := filepath.Rel(x.o.Cwd, file); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return file
}

// plainWords writes a word in camelCase or snake_case as words.
func plainWords(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '_' || r == '-' || r == '.':
			r = ' '
		case 'A' <= r && r <= 'Z':
			if r += 'a' - 'A'; i > 0 {
				b.WriteByte(' ')
			}
		}
		b.WriteRune(r)
	}
	return strings.Trim(b.String(), " ")
}

// knows keeps the name of a subagent.
func (x *acpEncoder) knows(thread, name string) {
	if thread != "" && name != "" && name != "." && (len(x.names) < maxSubagents || x.names[thread] != "") {
		x.names[thread] = clip(visible(name), 100)
	}
}

// subagent is what a subagent is called: older versions give it no name.
func (x *acpEncoder) subagent(thread string) string {
	if name := x.names[thread]; name != "" {
		return name
	}
	return "subagent " + thread[max(0, len(thread)-6):]
}
