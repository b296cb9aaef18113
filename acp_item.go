package main

// acp_item.go owns what Codex's items look like in ACP: one table with a row for each kind, told as a message or as a
// tool call with title, kind, places and input, and at its end content and output; the faces of approvals too, and the
// names that titles are made of. acp_updates.go and acp_tool.go take rows from it. It must never name a place that
// Codex didn't name.

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// acpLocation is a file that a tool call has to do with; path is absolute.
type acpLocation struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"` // from 1
}

// acpFace is what is told of a tool call as the call begins.
type acpFace struct {
	title, name, kind string
	places            []acpLocation
	input             json.RawMessage
	content           []json.RawMessage // stays in front of what the call brings
	command           string            // the command where the title says what it does, for who allows it
	runsIn            string            // where a command runs that has a terminal, "" for all else
}

// maxCallTitle is how many characters of a command stand in its title; all of it is
// in the input, and a longer one in the content too.
const maxCallTitle = 2000

// acpItem is an item as it is to be shown.
type acpItem struct {
	*itemBody
	thread  string          // whose item it is
	raw     json.RawMessage // as Codex told it
	done    bool            // the item has ended
	past    bool            // the item is history: its files are others by now
	printed string          // its output as text
}

// acpItemKind is the row of one kind of item: how a client is shown it.
type acpItemKind struct {
	// message tells the item as a message; nil: it is a tool call.
	message func(m *acpMessages, k acpKey, e *event)
	// face tells what a call is as it begins, and again as it ends. A title that stays empty becomes the kind in words.
	face func(n *acpNames, i *acpItem) acpFace
	// end tells what the call that ended has to show and its raw output, beside what its face shows; nil: nothing.
	end func(n *acpNames, i *acpItem) (content []json.RawMessage, output json.RawMessage)

	failed      string // what a call that failed says if it has nothing else to say
	left        string // what a call says that is still open when its turn completes: it is done as well then
	byFiles     bool   // its face is told anew only when its files have changed
	askedByTool bool   // its approvals name server and tool, not the item
}

// itemKind is the table of kinds, by Codex's word for them.
func itemKind(word string) acpItemKind {
	switch word {
	case "userMessage":
		return acpItemKind{message: (*acpMessages).userItem}
	// The plan of plan mode is markdown of any shape. A client shows an entry of an ACP plan as one line, and a message
	// as it is written, so a plan is a message; what Codex tells in steps (turn/plan/updated) is an ACP plan.
	case "agentMessage", "plan":
		return acpItemKind{message: (*acpMessages).agentItem}
	case "reasoning":
		return acpItemKind{message: (*acpMessages).thoughtItem}
	case "enteredReviewMode", "exitedReviewMode":
		return acpItemKind{message: (*acpMessages).reviewItem}
	case "commandExecution":
		return acpItemKind{face: commandFace, end: commandEnd, left: "It was still running when the turn ended."}
	case "fileChange":
		return acpItemKind{face: (*acpNames).patchFace, end: patchEnd, byFiles: true,
			failed: "The patch could not be applied."}
	case "mcpToolCall":
		return acpItemKind{face: mcpFace, end: toolEnd, askedByTool: true}
	case "dynamicToolCall":
		return acpItemKind{face: dynamicFace, end: toolEnd}
	case "webSearch":
		return acpItemKind{face: webFace, end: webEnd}
	case "imageView":
		return acpItemKind{face: (*acpNames).imageFace, end: (*acpNames).imageEnd}
	case "imageGeneration":
		return acpItemKind{face: madeImageFace, end: (*acpNames).imageEnd, failed: "No image was made."}
	case "collabAgentToolCall":
		return acpItemKind{face: (*acpNames).collabFace, end: (*acpNames).collabEnd}
	case "subAgentActivity":
		return acpItemKind{face: (*acpNames).activityFace}
	case "contextCompaction":
		return acpItemKind{face: compactionFace}
	}
	return acpItemKind{face: laterFace}
}

// itemFace is the face of an item; false for one that isn't shown as a tool call.
func (n *acpNames) itemFace(i *acpItem) (f acpFace, ok bool) {
	f = itemKind(i.kind).face(n, i)
	f.title = cmp.Or(clipChars(visible(f.title), maxCallTitle), plainWords(i.kind))
	f.title = n.owned(i.thread, f.title)
	if f.command != "" {
		f.command = n.owned(i.thread, clipChars(visible(f.command), maxCallTitle))
	}
	return f, f.kind != ""
}

// laterFace is that of a kind which only a later Codex has: told if it is something that runs and ends.
func laterFace(_ *acpNames, i *acpItem) acpFace {
	if i.status == "" {
		return acpFace{}
	}
	return acpFace{title: plainWords(i.kind), kind: "other"}
}

func dynamicFace(_ *acpNames, i *acpItem) acpFace {
	f := acpFace{title: i.tool, name: i.tool, kind: toolKind(i.tool), input: clientJSON(i.arguments)}
	if i.server != "" {
		f.title = i.server + "." + i.tool
	}
	return f
}

func (n *acpNames) imageFace(i *acpItem) acpFace {
	file := n.absolute(cmp.Or(i.path, i.text), i.cwd)
	f := acpFace{title: "View image " + n.short(file), name: "view_image", kind: "read",
		input: toJSON(map[string]string{"path": file})}
	if filepath.IsAbs(file) {
		f.places = []acpLocation{{Path: file}}
	}
	return f
}

func madeImageFace(_ *acpNames, i *acpItem) acpFace {
	f := acpFace{title: "Make an image", name: "image_generation", kind: "other"}
	if prompt := stringField(i.raw, "revisedPrompt"); prompt != "" {
		f.input = clientJSON(toJSON(map[string]string{"prompt": prompt}))
	}
	if filepath.IsAbs(i.path) {
		f.places = []acpLocation{{Path: i.path}}
	}
	return f
}

// imageEnd shows an image that was viewed or made, where it is small enough, else where it is. A file that was viewed
// in the past may be another by now; those that Codex makes stay.
func (n *acpNames) imageEnd(i *acpItem) (content []json.RawMessage, output json.RawMessage) {
	if i.failure != "" { // usageLimitExceeded
		return addText(nil, "Codex made no image: "+plainWords(i.failure)), nil
	}
	file := n.absolute(i.path, i.cwd)
	var data []byte
	if inside, _ := rawString(i.result); inside != "" && len(inside) <= maxDiffs {
		data, _ = base64.StdEncoding.DecodeString(inside) // what isn't base64 is no image
	} else if file != "" && (!i.past || i.kind == "imageGeneration") {
		data, _ = readRegular(file, maxShownImage) // what can't be read is named
	}
	switch kind := imageType(data); {
	case kind != "":
		content = append(content, contentOf(toJSON(struct {
			Type string `json:"type"`
			Data []byte `json:"data"`
			Mime string `json:"mimeType"`
		}{"image", data, kind})))
	case file != "":
		content = append(content, contentOf(acpLinkBlock(acpFileURL(file))))
	}
	return content, nil
}

func (n *acpNames) activityFace(i *acpItem) acpFace {
	f := acpFace{title: "Subagent " + n.bareName(stringField(i.raw, "agentThreadId")), kind: "other"}
	if what := stringField(i.raw, "kind"); what != "" {
		f.title += " " + plainWords(what)
	}
	return f
}

func compactionFace(_ *acpNames, i *acpItem) acpFace {
	f := acpFace{title: "Compacting the history", kind: "think"}
	if i.done {
		f.title = "Compacted the history"
	}
	return f
}

// commandFace is what a command does where Codex understands that as one kind of thing, else the command itself.
func commandFace(n *acpNames, i *acpItem) acpFace {
	f := acpFace{name: "shell"}
	line := shownCommand(i.command)
	if f.title, f.kind = n.commandWords(i); f.title != "" {
		f.command = line
	} else {
		f.title, f.kind, f.runsIn = line, "execute", cmp.Or(i.cwd, n.cwd)
	}
	if len(line) > maxCallTitle {
		f.content = []json.RawMessage{callText(fenced(cappedText(visible(line))))}
	}
	for _, a := range i.actions {
		at := acpLocation{Path: n.place(a, i.cwd)}
		if filepath.IsAbs(at.Path) && !slices.Contains(f.places, at) {
			f.places = append(f.places, at)
		}
	}
	f.input = commandInput(line, i.cwd)
	return f
}

func commandInput(line, cwd string) json.RawMessage {
	return clientJSON(toJSON(struct {
		Command string `json:"command"`
		Cwd     string `json:"cwd,omitempty"`
	}{line, cwd}))
}

// commandWords are title and kind of a command that does nothing but read, search or list files; "" for any other.
func (n *acpNames) commandWords(i *acpItem) (title, kind string) {
	var all []string
	for _, a := range i.actions {
		place, where, what := n.short(n.place(a, i.cwd)), "", ""
		if place != "" && place != "." {
			where = " in " + place
		}
		switch {
		case a.kind != i.actions[0].kind:
			return "", ""
		case a.kind == "read" && place != "":
			kind, what = "read", "Read file '"+place+"'"
		case a.kind == "search" && a.query != "":
			kind, what = "search", "Search for '"+a.query+"'"+where
		case a.kind == "search":
			kind, what = "search", "Search"+where
		case a.kind == "listFiles":
			kind, what = "search", "List files"+where
		default:
			return "", ""
		}
		all = append(all, what)
	}
	return strings.Join(all, ", "), kind
}

// place is the path of an action. Of the file that is read Codex tells all of it, 0.104 relative to where the command
// runs; of a directory only the last name, so that the rest is looked for in the command.
func (n *acpNames) place(a commandAction, cwd string) string {
	if a.kind == "read" {
		return n.absolute(a.path, cwd)
	}
	for _, word := range shellWords(a.command) {
		slashed := strings.TrimSuffix(strings.ReplaceAll(word, `\`, "/"), "/") // as Codex reads a path everywhere
		if a.path != "" && strings.HasSuffix(slashed, "/"+a.path) {
			return word[:len(slashed)]
		}
	}
	return a.path
}

func mcpFace(_ *acpNames, i *acpItem) acpFace {
	in := map[string]any{"server": i.server, "tool": i.tool}
	if args := clientJSON(i.arguments); args != nil {
		in["arguments"] = args
	}
	return acpFace{title: i.server + "." + i.tool, name: "mcp__" + i.server + "__" + i.tool, kind: toolKind(i.tool),
		input: toJSON(in)}
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

// webFace: Codex knows the query only as the search ends, and calls opening a page of what it found a search too.
func webFace(_ *acpNames, i *acpItem) acpFace {
	query, action := cmp.Or(i.query, i.text), rawField(i.raw, "action")
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

// collabTitle says what an agent does with its subagents.
func collabTitle(tool string) string {
	title := map[string]string{
		"spawnAgent": "Start subagent", "resumeAgent": "Resume subagent", "wait": "Wait for subagent",
		"sendInput": "Message subagent", "sendMessage": "Message subagent", "followupTask": "Message subagent",
		"interruptAgent": "Interrupt subagent", "closeAgent": "Close subagent", "listAgents": "List subagents",
	}[tool]
	return cmp.Or(title, "Subagents: "+plainWords(tool))
}

func (n *acpNames) collabFace(i *acpItem) acpFace {
	f := acpFace{title: collabTitle(i.tool), name: strings.ReplaceAll(plainWords(i.tool), " ", "_"), kind: "other"}
	in := map[string]any{"tool": i.tool}
	var ids, names []string
	eachElement(rawField(i.raw, "receiverThreadIds"), func(id json.RawMessage) {
		if s, ok := rawString(id); ok {
			ids, names = append(ids, s), append(names, n.bareName(s))
		}
	})
	if len(ids) > 0 {
		in["receiverThreadIds"] = ids
		f.title += " " + strings.Join(names, ", ")
	}
	if i.text != "" {
		in["prompt"] = cappedText(i.text)
		f.content = addText(nil, i.text)
	}
	f.input = clientJSON(toJSON(in))
	return f
}

// addText adds a text to the content of a call, unless it is empty.
func addText(content []json.RawMessage, s string) []json.RawMessage {
	if s == "" {
		return content
	}
	return append(content, callText(cappedText(s)))
}

// noMatches reports a search that has found nothing, which grep and rg tell as a failure.
func noMatches(i *acpItem) bool {
	return deref(i.exitCode) == 1 && i.output+i.printed == "" && len(i.actions) == 1 && i.actions[0].kind == "search"
}

// stoppedCommand is what a command says that Codex has killed.
const stoppedCommand = "stopped before it ended"

func commandEnd(_ *acpNames, i *acpItem) (content []json.RawMessage, output json.RawMessage) {
	if i.printed != "" {
		content = append(content, callText(fenced(i.printed)))
	}
	if code := deref(i.exitCode); noMatches(i) {
		content = addText(content, "no matches")
	} else if code > 0 {
		content = addText(content, fmt.Sprintf("exit code %d", code))
	} else if code < 0 { // Codex's number for one that it killed
		content = addText(content, stoppedCommand)
	}
	return content, toJSON(struct {
		ExitCode *int   `json:"exitCode,omitempty"`
		Duration int64  `json:"durationMs,omitempty"`
		Status   string `json:"status,omitempty"`
	}{i.exitCode, i.duration, i.status})
}

// toolEnd leaves to the raw output what the content doesn't show.
func toolEnd(_ *acpNames, i *acpItem) (content []json.RawMessage, output json.RawMessage) {
	fields := map[string]json.RawMessage{"content": i.result}
	switch rawKind(i.result) {
	case '[':
	case '{':
		_ = eachField(i.result, func(key string, val json.RawMessage) bool {
			fields[key] = val
			return true
		})
	default:
		return addText(nil, i.failure), clientJSON(i.result)
	}
	content, hidden := toolBlocks(fields["content"])
	if fields["content"] = toJSON(hidden); hidden == nil {
		delete(fields, "content")
	}
	maps.DeleteFunc(fields, func(_ string, val json.RawMessage) bool { return isNull(val) })
	if len(fields) > 0 {
		output = clientJSON(toJSON(fields))
	}
	return addText(content, i.failure), output
}

func webEnd(_ *acpNames, i *acpItem) (content []json.RawMessage, output json.RawMessage) {
	return nil, clientJSON(rawField(i.raw, "results"))
}

func (n *acpNames) collabEnd(i *acpItem) (content []json.RawMessage, output json.RawMessage) {
	var lines []string
	_ = eachField(rawField(i.raw, "agentsStates"), func(id string, state json.RawMessage) bool {
		line := n.subagent(id) + ": " + plainWords(stringField(state, "status"))
		if said := stringField(state, "message"); said != "" {
			line += ": " + said
		}
		lines = append(lines, line)
		return true
	})
	return addText(nil, strings.Join(lines, "\n\n")), nil
}

// askFace is the face of an approval whose item isn't known: Codex 0.104 asks
// before it tells of the item, and permissions have none.
func (n *acpNames) askFace(thread string, q *approval) acpFace {
	f := acpFace{title: q.action, kind: "other"}
	i := acpItem{itemBody: &itemBody{command: q.command, cwd: q.cwd, files: q.files,
		server: q.server, tool: q.tool, arguments: q.arguments}}
	switch {
	case q.kind == askCommand && q.command != "":
		f = commandFace(n, &i)
	case q.kind == askFileChange && len(q.files) > 0:
		f = n.patchFace(&i)
	case q.kind == askMCPTool:
		f = mcpFace(n, &i)
	case q.kind == askQuestion:
		f.title = "Question: " + q.action
	case q.kind == askPermissions:
		f.title = "More permissions: " + strings.ReplaceAll(q.action, "\n", ", ")
	}
	f.title = n.owned(thread, cmp.Or(clipChars(visible(f.title), maxCallTitle), "Approval"))
	return f
}

// askContent is what a person should know beside the face.
func (n *acpNames) askContent(q *approval) []json.RawMessage {
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
		if q.cwd != "" && q.cwd != n.cwd {
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
	return addText(nil, strings.Join(lines, "\n\n"))
}

// acpNames are what titles and places are made of: where the session works, and what its subagents are called.
type acpNames struct {
	cwd       string
	thread    string            // the session's own
	subagents map[string]string // by thread
}

// absolute is where a path that Codex names is; relative to cwd, else to the session's.
func (n *acpNames) absolute(file, cwd string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(cmp.Or(cwd, n.cwd), file)
}

// short is a path as a title names it.
func (n *acpNames) short(file string) string {
	if rel, err := filepath.Rel(n.cwd, file); err == nil && filepath.IsLocal(rel) {
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

// learn keeps the name of a subagent.
func (n *acpNames) learn(thread, name string) {
	if thread != "" && name != "" && name != "." && (len(n.subagents) < maxSubagents || n.subagents[thread] != "") {
		n.subagents[thread] = clip(visible(name), 100)
	}
}

// subagent is what a subagent is called: older versions give it no name.
func (n *acpNames) subagent(thread string) string {
	if name := n.subagents[thread]; name != "" {
		return name
	}
	return "subagent " + thread[max(0, len(thread)-6):]
}

// bareName is that without the word subagent, for a title that says it already.
func (n *acpNames) bareName(thread string) string {
	return strings.TrimPrefix(n.subagent(thread), "subagent ")
}

// owned puts a subagent's name before what it does.
func (n *acpNames) owned(thread, title string) string {
	if thread == n.thread {
		return title
	}
	return n.subagent(thread) + ": " + title
}
