package main

// mock_show_test.go drives what the mock Codex shows for an ACP front's tests, and
// what the environment makes of its models, logins and MCP servers. What real ones
// show stands in testdata/mock.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// items runs a turn and returns its completed items, by type, and all methods.
func (r *mockRun) items(thread, prompt string) (map[string]json.RawMessage, string) {
	r.t.Helper()
	r.send(map[string]any{"id": "q", "method": "turn/start", "params": mockPrompt(thread, prompt)})
	items, methods := map[string]json.RawMessage{}, ""
	for {
		m := r.read()
		method := stringField(m, "method")
		methods += method + "\n"
		switch method {
		case "item/completed":
			it := rawField(m, "params", "item")
			items[stringField(it, "type")] = it
		case "turn/completed":
			return items, methods
		}
	}
}

func TestMockShows(t *testing.T) {
	for _, version := range []string{"0.104.0", "0.169.0"} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"pic.png": "x", "edit.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "del.txt": "gone\n", "move.txt": "moved\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := startMock(t, version, "")
			r.initialize()
			th := r.thread(map[string]any{"cwd": dir, "sandbox": "workspace-write"})
			for _, tc := range []struct{ prompt, kind, path, want string }{
				{"VIEW pic.png", "imageView", "path", filepath.Join(dir, "pic.png")},
				{"WEBSEARCH how to", "webSearch", "query", "how to"},
				{"PLANITEM first this", "plan", "text", "first this"},
				{"OUTPUT 40 16", "commandExecution", "aggregatedOutput", "000000000000000\n000000000000001\n00000000"},
				{"OUTPUT 5 5 7", "commandExecution", "status", "failed"},
			} {
				items, _ := r.items(th, tc.prompt)
				if got := stringField(items[tc.kind], tc.path); got != tc.want {
					t.Errorf("%s: %q in %s", tc.prompt, got, items[tc.kind])
				}
			}
			if _, methods := r.items(th, "OUTPUT 40 16"); strings.Count(methods, "item/commandExecution/outputDelta") != 3 {
				t.Errorf("40 bytes in deltas of 16:\n%s", methods)
			}
			r.send(map[string]any{"id": "p", "method": "turn/start", "params": mockPrompt(th, "PLAN [x] one ;; [>] two ;; [ ] three")})
			plan, _ := r.until("turn/plan/updated")
			sameJSON(t, rawField(plan, "params", "plan"), `[{"step":"one","status":"completed"},{"step":"two","status":"inProgress"},{"step":"three","status":"pending"}]`)
			r.until("turn/completed")

			for _, tc := range []struct{ prompt, kind, diff string }{
				{"EDIT edit.txt 5 => five", "update", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"},
				{"DELETE del.txt", "delete", "gone\n"},
				{"MOVE move.txt there.txt", "update", "\n\nMoved to: " + filepath.Join(dir, "there.txt")},
			} {
				items, _ := r.items(th, tc.prompt)
				var change struct {
					Changes []struct {
						Kind struct{ Type string }
						Diff string
					}
					Status string
				}
				if err := json.Unmarshal(items["fileChange"], &change); err != nil || len(change.Changes) != 1 || change.Status != "completed" ||
					change.Changes[0].Kind.Type != tc.kind || change.Changes[0].Diff != tc.diff {
					t.Errorf("%s: %s, %v", tc.prompt, items["fileChange"], err)
				}
			}
			for name, want := range map[string]string{"edit.txt": "1\n2\n3\n4\nfive\n6\n7\n8\n9\n", "there.txt": "moved\n", "del.txt": "", "move.txt": ""} {
				if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
					t.Errorf("%s: %q", name, got)
				}
			}
			if answer, _ := r.turn(th, "EDIT edit.txt nowhere => x"); !strings.Contains(answer, "Failed to find expected lines") {
				t.Errorf("an edit of nothing: %q", answer)
			}

			r.send(map[string]any{"id": "i", "method": "turn/start", "params": map[string]any{"threadId": th, "input": []any{
				map[string]any{"type": "text", "text": "ECHO_INPUT"}, map[string]any{"type": "image", "url": "data:image/png;base64,AAAA"}, map[string]any{"type": "localImage", "path": "/x.png"}}}})
			var said string
			for said == "" {
				if m := r.read(); stringField(m, "method") == "item/completed" && stringField(m, "params", "item", "type") == "agentMessage" {
					said = stringField(m, "params", "item", "text")
				}
			}
			sameJSON(t, json.RawMessage(said), `[{"type":"text","text":"ECHO_INPUT"},{"type":"image","mime":"image/png","base64":4},{"type":"localImage","path":"/x.png"}]`)
			r.until("turn/completed")
		})
	}
}

func TestMockWantsLogin(t *testing.T) {
	t.Setenv("MOCK_CODEX_AUTH", "1")
	t.Setenv("MOCK_CODEX_LOGIN", "ok")
	r := startMock(t, "0.169.0", "")
	r.initialize()
	th := r.thread(map[string]any{"cwd": t.TempDir()})
	_, turn := r.turn(th, "SAY hi")
	if stringField(turn, "status") != "failed" || !strings.Contains(stringField(turn, "error", "message"), "401 Unauthorized") {
		t.Errorf("not logged in: %s", turn)
	}
	sameJSON(t, rawField(r.call("account/read", map[string]any{}), "result"), `{"account":null,"requiresOpenaiAuth":true,"userId":null,"workspaceRouting":null}`)
	r.send(map[string]any{"id": "l", "method": "account/login/start", "params": map[string]any{"type": "chatgptDeviceCode"}})
	done, _ := r.until("account/login/completed")
	if string(rawField(done, "params", "success")) != "true" || stringField(done, "params", "loginId") == "" {
		t.Errorf("%s", done)
	}
	r.until("account/updated")
	if got, _ := r.turn(th, "SAY hi"); got != "hi" {
		t.Errorf("logged in: %q", got)
	}
	r.call("account/logout", nil)
	if _, turn := r.turn(th, "SAY hi"); stringField(turn, "status") != "failed" {
		t.Errorf("logged out: %s", turn)
	}
}

func TestMockModels(t *testing.T) {
	t.Setenv("MOCK_CODEX_PAGE", "3")
	t.Setenv("MOCK_CODEX_TEXT_ONLY", "gpt-5.5")
	r := startMock(t, "0.169.0", "")
	r.initialize()
	page := rawField(r.call("model/list", map[string]any{}), "result")
	if stringField(page, "nextCursor") != "3" || strings.Count(string(page), `"inputModalities":["text","image"]`) != 3 {
		t.Errorf("%s", page)
	}
	page = rawField(r.call("model/list", map[string]any{"cursor": "3"}), "result")
	if !isNull(rawField(page, "nextCursor")) || !strings.Contains(string(page), `"inputModalities":["text"]`) {
		t.Errorf("%s", page)
	}
}

// How a thread's servers start, MOCK_MCP_START in their env says.
func TestMockServersStart(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := func(how string) map[string]any {
		return map[string]any{"command": exe, "env": map[string]any{"MOCK_MCP_START": how}}
	}
	r := startMock(t, "0.169.0", "")
	r.initialize()
	r.send(map[string]any{"id": "s", "method": "thread/start", "params": map[string]any{"cwd": t.TempDir(), "config": map[string]any{"mcp_servers": map[string]any{
		"a": server(""), "b": server("fail:why not"), "c": server("cancel"), "d": map[string]any{"command": "/nonexistent/x"},
		"e": map[string]any{"url": "http://127.0.0.1:1/mcp"}, "f": map[string]any{"command": exe, "enabled": false}, "g": server("slow:5")}}}})
	got := map[string]string{}
	for len(got) < 6 {
		m, _ := r.until(mockStatusMethod)
		if s := stringField(m, "params", "status"); s != "starting" {
			got[stringField(m, "params", "name")] = strings.TrimSpace(s + " " + stringField(m, "params", "error"))
		}
	}
	for name, want := range map[string]string{"a": "ready", "b": "failed MCP client for `b` failed to start: MCP startup failed: why not", "c": "cancelled",
		"d": "failed MCP client for `d` failed to start: MCP startup failed: No such file or directory (os error 2)", "g": "ready"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if !strings.HasPrefix(got["e"], "failed") {
		t.Errorf("e: %q", got["e"])
	}
}

// What a busy thread is asked to compact or review interrupts what runs there.
func TestMockActionsInterrupt(t *testing.T) {
	for _, method := range []string{"thread/compact/start", "review/start"} {
		r := startMock(t, "0.169.0", "")
		r.initialize()
		th := r.thread(map[string]any{"cwd": t.TempDir(), "config": map[string]any{"compact_prompt": "HANG"}})
		r.send(map[string]any{"id": "t", "method": "turn/start", "params": mockPrompt(th, "HANG")})
		r.until("turn/started")
		r.send(map[string]any{"id": "a", "method": method, "params": map[string]any{"threadId": th, "target": map[string]any{"type": "custom", "instructions": "HANG"}}})
		ended, _ := r.until("turn/completed")
		if s := stringField(ended, "params", "turn", "status"); s != "interrupted" {
			t.Errorf("%s: %s", method, s)
		}
		r.until("turn/started")
		r.send(map[string]any{"id": "i", "method": "turn/interrupt", "params": map[string]any{"threadId": th, "turnId": ""}})
		if ended, _ := r.until("turn/completed"); stringField(ended, "params", "turn", "status") != "interrupted" {
			t.Errorf("%s: %s", method, ended)
		}
		r.end()
	}
}
