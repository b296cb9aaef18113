package main

// acp_item_test.go: what each of Codex's items looks like to a client, as it
// begins and as it ends.

import (
	"encoding/json"
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
