package main

// acp_item_test.go holds what each of Codex's items looks like to a client, as it
// begins and as it ends: patches to what Codex writes, and whole files to what
// stands on the disk before, while and after Codex writes them.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// calls are the announcement of an item and what its end tells, without what
// every call has: ids and status, which the rig checks.
func itemFace(t *testing.T, started, completed string) (begin, end string) {
	t.Helper()
	r := newACPRig(t, acpEncoding{})
	r.begin()
	r.x.names.learn("sub-1", "Ada")
	if started != "" {
		r.item("started", started)
	}
	if completed != "" {
		r.item("completed", completed)
	}
	r.ends("completed")
	for _, u := range r.all() {
		out := "{"
		_ = eachField([]byte(u), func(key string, val json.RawMessage) bool {
			if key != "sessionUpdate" && key != "toolCallId" && (key != "status" || string(val) == `"failed"`) {
				out += "," + key + ":" + string(val)
			}
			return true
		})
		out = strings.Replace(out, "{,", "{", 1) + "}"
		if stringField([]byte(u), "sessionUpdate") == "tool_call" {
			begin += out
		} else if out != "{}" {
			end += out
		}
	}
	text := func(s string) string {
		return strings.ReplaceAll(s, `{"type":"content","content":{"type":"text",`, "{")
	}
	return strings.ReplaceAll(text(begin), "}}", "}"), strings.ReplaceAll(text(end), "}}", "}")
}

func TestACPItems(t *testing.T) {
	tests := []struct{ name, started, completed, begin, end string }{
		{"command",
			`{"type":"commandExecution","id":"c","command":"/bin/bash -lc 'go test ./...'","cwd":"/w","status":"inProgress","commandActions":[{"type":"unknown","command":"go test ./..."}]}`,
			`{"type":"commandExecution","id":"c","command":"/bin/bash -lc 'go test ./...'","cwd":"/w","status":"failed","exitCode":1,"durationMs":7,"aggregatedOutput":"FAIL"}`,
			`{title:"go test ./...",name:"shell",kind:"execute",rawInput:{"command":"/bin/bash -lc 'go test ./...'","cwd":"/w"}`,
			"{status:\"failed\",content:[{\"text\":\"```\\nFAIL\\n```\"},{\"text\":\"exit code 1\"}],rawOutput:{\"exitCode\":1,\"durationMs\":7,\"status\":\"failed\",\"output\":\"FAIL\"}"},
		{"command that was killed", "",
			`{"type":"commandExecution","id":"c","command":"sleep 9","status":"failed","exitCode":-1}`,
			`{title:"sleep 9",name:"shell",kind:"execute",rawInput:{"command":"sleep 9"}`,
			`{status:"failed",content:[{"text":"stopped before it ended"}],rawOutput:{"exitCode":-1,"status":"failed","output":""}`},
		{"command that reads",
			`{"type":"commandExecution","id":"c","command":"cat a /w/b","status":"inProgress","commandActions":[{"type":"read","path":"a"},{"type":"read","path":"/w/b"},{"type":"read","path":"/w/b"},{"type":"search","path":"/w/c"}]}`, "",
			`{title:"cat a /w/b",name:"shell",kind:"read",locations:[{"path":"/w/b"},{"path":"/w/c"}],rawInput:{"command":"cat a /w/b"}`,
			`{content:[{"text":"It was still running when the turn ended."}]}`},
		{"command that searches", "",
			`{"type":"commandExecution","id":"c","command":"rg x","status":"completed","exitCode":0,"commandActions":[{"type":"search","query":"x","path":null},{"type":"listFiles","path":"src"}]}`,
			`{title:"rg x",name:"shell",kind:"search",rawInput:{"command":"rg x"}`,
			`{rawOutput:{"exitCode":0,"status":"completed","output":""}`},
		{"command with what can't be seen", "",
			`{"type":"commandExecution","id":"c","command":"echo \u001b[8m\u202e","status":"declined"}`,
			`{title:"echo \\u001b[8m\\u202e",name:"shell",kind:"execute",rawInput:{"command":"echo \u001b[8m` + "\u202e" + `"}`,
			`{status:"failed",content:[{"text":"Declined."}],rawOutput:{"status":"declined","output":""}`},
		{"patch that fails", "",
			`{"type":"fileChange","id":"p","changes":[],"status":"failed"}`,
			`{title:"Edit files",name:"apply_patch",kind:"edit",rawInput:{"changes":[]}`,
			`{status:"failed",content:[{"text":"The patch could not be applied."}],rawOutput:{"status":"failed"}`},
		{"MCP call",
			`{"type":"mcpToolCall","id":"m","server":"github","tool":"get_issue","status":"inProgress","arguments":{"n":7}}`,
			`{"type":"mcpToolCall","id":"m","server":"github","tool":"get_issue","status":"completed","arguments":{"n":7},"result":{"content":[{"type":"text","text":"*a*"},{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"resource_link","uri":"x:y","name":"y","size":"?"},{"type":"resource","resource":{"uri":"x:z","text":"t"}},{"type":"resource","resource":{"uri":"x:z"}},{"type":"new"},{"type":"text"}],"structuredContent":{"a":1},"_meta":null}}`,
			`{title:"github.get_issue",name:"mcp__github__get_issue",kind:"read",rawInput:{"arguments":{"n":7},"server":"github","tool":"get_issue"}`,
			`{content:[{"text":"*a*"},{"type":"content","content":{"data":"AA==","mimeType":"image/png","type":"image"},{"type":"content","content":{"name":"y","type":"resource_link","uri":"x:y"},{"type":"content","content":{"resource":{"text":"t","uri":"x:z"},"type":"resource"}],rawOutput:{"content":[{"type":"text","text":"*a*"},{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"resource_link","uri":"x:y","name":"y","size":"?"},{"type":"resource","resource":{"uri":"x:z","text":"t"},{"type":"resource","resource":{"uri":"x:z"},{"type":"new"},{"type":"text"}],"structuredContent":{"a":1},"_meta":null}`},
		{"MCP call whose tool fails", "",
			`{"type":"mcpToolCall","id":"m","server":"s","tool":"t","status":"failed","arguments":null,"result":{"content":[{"type":"text","text":"no"}],"isError":true},"error":null}`,
			`{title:"s.t",name:"mcp__s__t",kind:"other",rawInput:{"server":"s","tool":"t"}`,
			`{status:"failed",content:[{"text":"no"}],rawOutput:{"content":[{"type":"text","text":"no"}],"isError":true}`},
		{"MCP call that fails", "",
			`{"type":"mcpToolCall","id":"m","server":"s","tool":"searchAll","status":"failed","result":null,"error":{"message":"user rejected MCP tool call"}}`,
			`{title:"s.searchAll",name:"mcp__s__searchAll",kind:"search",rawInput:{"server":"s","tool":"searchAll"}`,
			`{status:"failed",content:[{"text":"user rejected MCP tool call"}],rawOutput:{"error":"user rejected MCP tool call"}`},
		{"dynamic tool", "",
			`{"type":"dynamicToolCall","id":"d","namespace":"files","tool":"fetch_page","arguments":{"to":"x"},"status":"completed","contentItems":[{"type":"inputText","text":"ok"},{"type":"inputImage","imageUrl":"data:image/png;base64,AA=="}],"success":true}`,
			`{title:"files.fetch_page",name:"fetch_page",kind:"fetch",rawInput:{"to":"x"}`,
			`{content:[{"text":"ok"},{"type":"content","content":{"data":"AA==","mimeType":"image/png","type":"image"}],rawOutput:[{"type":"inputText","text":"ok"},{"type":"inputImage","imageUrl":"data:image/png;base64,AA=="}]}`},
		{"web search",
			`{"type":"webSearch","id":"w","query":"","action":null}`,
			`{"type":"webSearch","id":"w","query":"go 1.25","action":{"type":"search","query":"go 1.25","queries":null}}`,
			`{title:"Search the web",name:"web_search",kind:"search"}`,
			`{title:"Search the web for go 1.25",rawInput:{"action":{"type":"search","query":"go 1.25","queries":null},"query":"go 1.25"}`},
		{"page opened", "",
			`{"type":"webSearch","id":"w","query":"https://go.dev","action":{"type":"openPage","url":"https://go.dev"}}`,
			`{title:"Open https://go.dev",name:"web_search",kind:"fetch",rawInput:{"action":{"type":"openPage","url":"https://go.dev"},"query":"https://go.dev"}`, ""},
		{"image", "",
			`{"type":"imageView","id":"i","path":"/w/pic/a.png"}`,
			`{title:"View image pic/a.png",name:"view_image",kind:"read",locations:[{"path":"/w/pic/a.png"}],rawInput:{"path":"/w/pic/a.png"}`, ""},
		{"subagent started",
			`{"type":"collabAgentToolCall","id":"s","tool":"spawnAgent","status":"inProgress","senderThreadId":"T","receiverThreadIds":[],"prompt":"look around","agentsStates":{}}`,
			`{"type":"collabAgentToolCall","id":"s","tool":"spawnAgent","status":"completed","senderThreadId":"T","receiverThreadIds":["sub-1"],"prompt":"look around","agentsStates":{"sub-1":{"status":"pendingInit","message":null}}}`,
			`{title:"Start subagent",name:"spawn_agent",kind:"other",content:[{"text":"look around"}],rawInput:{"prompt":"look around","tool":"spawnAgent"}`,
			`{title:"Start subagent Ada",rawInput:{"prompt":"look around","receiverThreadIds":["sub-1"],"tool":"spawnAgent"}{content:[{"text":"look around"},{"text":"Ada: pending init"}],rawOutput:{"sub-1":{"status":"pendingInit","message":null}}`},
		{"subagent's doings", "",
			`{"type":"subAgentActivity","id":"s","agentPath":"/root/explorer","agentThreadId":"sub-2","kind":"started"}`,
			`{title:"Subagent explorer started",kind:"other"}`, ""},
		{"compaction",
			`{"type":"contextCompaction","id":"k"}`, `{"type":"contextCompaction","id":"k"}`,
			`{title:"Compacting the history",kind:"think"}`, `{title:"Compacted the history"}`},
		{"what a later Codex does", "",
			`{"type":"imageGeneration","id":"g","status":"completed","result":"AAAA"}`,
			`{title:"image generation",kind:"other"}`, ""},
		{"what is no tool call", "", `{"type":"sleep","id":"g","durationMs":5}`, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			begin, end := itemFace(t, tt.started, tt.completed)
			want(t, begin, tt.begin)
			want(t, end, tt.end)
		})
	}
}

// TestACPLongCommand: what a title can't hold stands in the content, so that
// who approves sees all of it.
func TestACPLongCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		long := "cat <<EOF\n" + strings.Repeat("line\n", 1000) + "EOF\nrm -rf /"
		r.item("started", `{"type":"commandExecution","id":"c","command":`+string(toJSON(long))+`,"status":"inProgress"}`)
		got := r.all()[0]
		if n := len(stringField([]byte(got), "title")); n > maxCallTitle+3 {
			t.Errorf("a title of %d bytes", n)
		}
		if text := stringField(contentAt(got, 0), "content", "text"); !strings.HasSuffix(text, "rm -rf /\n```") {
			t.Errorf("the content ends with %q", text[max(0, len(text)-40):])
		}
	})
}

// TestACPBigResults: whatever a tool answers, a line stays one that a client
// takes.
func TestACPBigResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		var parts []string
		for range 10 {
			parts = append(parts, `{"type":"text","text":"`+strings.Repeat("x", 1<<20)+`"}`, `{"type":"image","mimeType":"image/png","data":"`+strings.Repeat("A", 1<<20)+`"}`)
		}
		r.item("completed", `{"type":"mcpToolCall","id":"m","server":"s","tool":"t","status":"completed","arguments":{"a":"`+strings.Repeat("y", 1<<20)+`"},"result":{"content":[`+strings.Join(parts, ",")+`]}}`)
		for _, u := range r.all() {
			if len(u) > maxDiffs+3*maxACPText {
				t.Errorf("an update of %d bytes", len(u))
			}
		}
		all := r.all()
		if last := all[len(all)-1]; !strings.Contains(last, "[image of 1048625 bytes left out]") || string(rawField([]byte(last), "rawOutput", "truncated")) != "true" {
			t.Errorf("%.300s", last)
		}
	})
}

// shownDiff is one diff block.
type shownDiff struct {
	Type, Path, OldText, NewText string
	Null                         bool `json:"-"`
}

// diffsOf are the diff blocks of the patch as it is announced.
func diffsOf(t *testing.T, o acpEncoding, phase string, files string) (out []shownDiff, call json.RawMessage) {
	t.Helper()
	r := newACPRig(t, o)
	r.begin()
	status := map[string]string{"started": "inProgress", "completed": "completed"}[phase]
	r.item(phase, `{"type":"fileChange","id":"p","changes":`+files+`,"status":"`+status+`"}`)
	call = json.RawMessage(r.all()[0])
	eachElement(rawField(call, "content"), func(c json.RawMessage) {
		var d shownDiff
		if err := json.Unmarshal(c, &d); err != nil {
			t.Fatal(err)
		}
		d.Null = string(rawField(c, "oldText")) == "null"
		out = append(out, d)
	})
	return out, call
}

func change(path, kind, diff string) string {
	return string(toJSON(map[string]any{"path": path, "kind": map[string]any{"type": kind, "move_path": nil}, "diff": diff}))
}

func TestACPDiffOfChangedFile(t *testing.T) {
	const hunk = "@@ -2,3 +2,4 @@\n two\n-three\n+THREE\n+and more\n four\n"
	const before = "one\ntwo\nthree\nfour\nfive\n"
	const after = "one\ntwo\nTHREE\nand more\nfour\nfive\n"
	tests := []struct {
		name, phase string
		replay      bool
		file        string // what is there, "" for none
		diff        string
		old, new    string
	}{
		{"as it starts", "started", false, before, hunk, before, after},
		{"Codex was faster", "started", false, after, hunk, before, after},
		{"told when it is done", "completed", false, after, hunk, before, after},
		{"another text", "started", false, "something else\n", hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"no file", "started", false, "", hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"loaded", "completed", true, before, hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"too long", "started", false, before + strings.Repeat("x\n", maxDiffFile/2), hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"no text", "started", false, before + "\xff\xfe", hunk, "two\nthree\nfour\n", "two\nTHREE\nand more\nfour\n"},
		{"two hunks", "started", false, before, "@@ -1,1 +1,2 @@\n+zero\n one\n@@ -5 +6,0 @@\n-five\n", before, "zero\none\ntwo\nthree\nfour\n"},
		{"no line end at the end", "started", false, "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "a\nb", "a\nc"},
		{"line ends of DOS", "started", false, "a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", "a\r\nb\r\n", "a\r\nc\r\n"},
		{"into an empty file", "started", false, "\n", "@@ -0,0 +1,1 @@\n+x\n", "\n", "x\n\n"},
		{"headers and a blank line without its blank", "started", false, "a\n\nb\n", "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@ func x()\n a\n\n-b\n+c\n", "a\n\nb\n", "a\n\nc\n"},
		{"a model's patch, without numbers", "started", false, before, "@@ func x()\n two\n-three\n+THREE\n@@\n+end\n", "two\nthree\n", "two\nTHREE\nend\n"},
		{"numbers that lie", "started", false, before, "@@ -1,99 +1,1 @@\n-one\n@@ -3 +3 @@\n-three\n+drei\n", "one\nthree\n", "drei\n"},
		{"nothing", "started", false, before, "", before, before},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "a.go")
			if tt.file != "" {
				if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, call := diffsOf(t, acpEncoding{Cwd: dir, Replay: tt.replay}, tt.phase, "["+change(file, "update", tt.diff)+"]")
			if len(got) != 1 || got[0] != (shownDiff{"diff", file, tt.old, tt.new, false}) {
				t.Errorf("got  %+v\nwant %q → %q", got, tt.old, tt.new)
			}
			if title, kind := stringField(call, "title"), stringField(call, "kind"); title != "Edit a.go" || kind != "edit" {
				t.Errorf("%q of kind %q", title, kind)
			}
			if now, _ := os.ReadFile(file); tt.file != string(now) {
				t.Errorf("the file was changed")
			}
		})
	}
}

func TestACPDiffOfFilesThatComeAndGo(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("moved"), []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	move := string(toJSON(map[string]any{"path": at("old"), "kind": map[string]any{"type": "update", "move_path": at("moved")}, "diff": "@@ -1,2 +1,2 @@\n one\n-zwei\n+two\n\n\nMoved to: " + at("moved")}))
	gone := change(at("gone"), "delete", "bye\n")
	tests := []struct {
		name, files, title, kind string
		want                     []shownDiff
	}{
		{"created", "[" + change(at("new"), "add", "hi\n") + "]", "Create new", "edit", []shownDiff{{"diff", at("new"), "", "hi\n", true}}},
		{"a relative path", "[" + change("sub/new", "add", "") + "]", "Create sub/new", "edit", []shownDiff{{"diff", at("sub/new"), "", "", true}}},
		{"deleted", "[" + gone + "]", "Delete gone", "delete", []shownDiff{{"diff", at("gone"), "bye\n", "", false}}},
		{"moved", "[" + move + "]", "Move old → moved", "move", []shownDiff{{"diff", at("moved"), "one\nzwei\n", "one\ntwo\n", false}}},
		{"several", "[" + gone + "," + change(at("new"), "add", "hi\n") + "," + change("/else/where", "delete", "") + "]", "Edit 3 files: gone, new, /else/where", "edit",
			[]shownDiff{{"diff", at("gone"), "bye\n", "", false}, {"diff", at("new"), "", "hi\n", true}, {"diff", "/else/where", "", "", false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, call := diffsOf(t, acpEncoding{Cwd: dir}, "started", tt.files)
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v", got)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("got  %+v\nwant %+v", got[i], tt.want[i])
				}
			}
			if title, kind := stringField(call, "title"), stringField(call, "kind"); title != tt.title || kind != tt.kind {
				t.Errorf("%q of kind %q, want %q of kind %q", title, kind, tt.title, tt.kind)
			}
		})
	}
}

// TestACPDiffsAreBounded: a patch of any size fits a client's line.
func TestACPDiffsAreBounded(t *testing.T) {
	var files []string
	for range 9 {
		files = append(files, change("/w/f", "add", strings.Repeat("x", 1<<20)))
	}
	got, call := diffsOf(t, acpEncoding{}, "started", "["+strings.Join(files, ",")+"]")
	if len(got) != 5 || got[4].Type != "content" || len(call) > maxDiffs+maxACPText {
		t.Errorf("%d blocks of %d bytes", len(got), len(call))
	}
}

func FuzzReadPatch(f *testing.F) {
	f.Add("one\ntwo\nthree\n", "@@ -1,2 +1,3 @@\n one\n+x\n two\n")
	f.Add("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n")
	f.Add("", "@@ -0,0 +1,1 @@\n+x\n@@ -9999999 +1 @@\n x")
	f.Add("x\n", "@@\n-x\n+y\n\n\nMoved to: z")
	f.Fuzz(func(t *testing.T, text, diff string) {
		hunks := readPatch(diff)
		before, after := hunkTexts(hunks)
		if len(before) > 2*len(diff)+len(hunks) || len(after) > 2*len(diff)+len(hunks) {
			t.Fatalf("%d bytes of hunks make %d and %d", len(diff), len(before), len(after))
		}
		if there, ok := patched(text, hunks, false); ok {
			if back, ok := patched(there, hunks, true); ok && back != text {
				t.Fatalf("%q with %q is %q, and back %q", text, diff, there, back)
			}
		}
	})
}
