package main

// mcp_turns_test.go holds codex and codex-reply to their arguments, agent files among
// them, and to what they answer of a background turn.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCodexArguments(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + callParams(false, "codex", `{"prompt":"do it","model":"m","cwd":"/w",
		"approval-policy":"on-failure","sandbox":"read-only","config":{"a.b":1},"base-instructions":"bi","developer-instructions":"di",
		"compact-prompt":"cp","profile":"pr","identity":"arch","role":"ro","tag":"ta","timeout_secs":2.5,"agent_id":null}`) + `}`)
	got := (<-r.submits).req
	want := turnRequest{mode: modeNew, prompt: "do it", run: true, timeout: 2500 * time.Millisecond, identity: "arch", role: "ro", tag: "ta", cwd: "/w",
		options: sessionOptions{Model: "m", Approval: "on-request", Sandbox: "read-only", Config: json.RawMessage(`{"a.b":1}`),
			BaseInstructions: "bi", DeveloperInstructions: "di", CompactPrompt: "cp", Profile: "pr"}}
	got.correlation = ""
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBackgroundArguments(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	for i, c := range []struct {
		tool, args string
		background bool
		approvals  string
		timeout    time.Duration
	}{
		{"codex", `{"prompt":"p","background":true}`, true, "caller", 0},
		{"codex", `{"prompt":"p","background":false,"timeout_secs":3}`, false, "", 3 * time.Second},
		{"codex", `{"agent_id":"codex:a","prompt":"p","background":true}`, true, "caller", 0},
		{"codex", `{"agent_id":"codex:a","background":true}`, false, "", 0}, // there is no turn: it is reopened, and answered
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"timeout_secs":1.5}`, true, "caller", 1500 * time.Millisecond},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":null}`, false, "", 0},
	} {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i, callParams(false, c.tool, c.args)))
		got := (<-r.submits).req
		if got.background != c.background || got.approvals != c.approvals || got.timeout != c.timeout {
			t.Errorf("%s %s: %+v", c.tool, c.args, got)
		}
	}
}

// An accepted background turn says all that is needed to get its answer where
// a model sees it: in content too.
func TestBackgroundIsAccepted(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, status := range []string{"queued", "running"} {
			r := newRig(t, nil)
			if !modern {
				r.hello("2025-11-25", "{}", "x")
			}
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + callParams(modern, "codex", `{"prompt":"p","background":true}`) + `}`)
			r.f.done((<-r.submits).w, turnResult{AgentID: "codex:ab12", TurnID: "bg-1", Identity: "arch", Team: "default", Status: "busy", TurnStatus: status, Notes: []string{"A note."}})
			rec := r.next()
			fits(t, r, "codex", rec)
			var got struct {
				IsError    bool
				Content    []textBlock
				Structured map[string]any `json:"structuredContent"`
			}
			if err := json.Unmarshal(resultOf(t, rec), &got); err != nil || got.IsError || len(got.Content) != 1 {
				t.Fatalf("%s: %v", rec, err)
			}
			if got.Structured["turn_id"] != "bg-1" || got.Structured["turn_status"] != status || got.Structured["agent_id"] != "codex:ab12" || got.Structured["status"] != "busy" {
				t.Errorf("%s", rec)
			}
			if _, ok := got.Structured["threadId"]; ok {
				t.Errorf("an empty threadId: %s", rec)
			}
			mustContain(t, got.Structured["content"].(string), "agent_wait", "codex:ab12")
			mustContain(t, got.Content[0].Text, "agent_wait", "codex:ab12", "A note.")
		}
	}
}

func TestAgentFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte("---\nname: Code Reviewer\nmodel: sonnet\neffort: high\n---\nbe good\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "empty.md"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *mcpOptions) { o.DefaultCwd = filepath.Dir(dir) })
	r.hello("2025-11-25", "{}", "x")
	for i, args := range []string{
		fmt.Sprintf(`{"agent_file":"a.md","cwd":%q}`, dir),
		fmt.Sprintf(`{"agent_file":"a.md","cwd":%q}`, filepath.Base(dir)),
		fmt.Sprintf(`{"agent_file":%q}`, filepath.Join(filepath.Base(dir), "a.md")),
		fmt.Sprintf(`{"agent_file":%q}`, filepath.Join(dir, "a.md")),
	} {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, 10+i, callParams(false, "codex", args)))
		got := (<-r.submits).req
		if got.prompt != "be good" || got.agentSource != filepath.Join(dir, "a.md") || got.mode != modeNew || !got.run ||
			got.agentName != "Code Reviewer" || got.implied != "Code-Reviewer" || got.identity != "" || got.options.Model != "" ||
			string(got.options.Config) != `{"model_reasoning_effort":"high"}` || len(got.notes) != 1 {
			t.Errorf("%s: %+v", args, got)
		}
	}
	// what the call says itself comes first
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + callParams(false, "codex",
		fmt.Sprintf(`{"agent_file":%q,"identity":"me","model":"m","config":{"model_reasoning_effort":"low"}}`, filepath.Join(dir, "a.md"))) + `}`)
	got := (<-r.submits).req
	if got.identity != "me" || got.implied != "" || got.options.Model != "m" || string(got.options.Config) != `{"model_reasoning_effort":"low"}` || len(got.notes) != 0 {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"empty.md", "missing.md", "."} {
		code, msg, _ := errorOf(t, r.ask("tools/call", callParams(false, "codex", fmt.Sprintf(`{"agent_file":%q}`, filepath.Join(dir, name)))))
		if code != codeAgentFile {
			t.Errorf("%s: %d %s", name, code, msg)
		}
	}
}

func TestAddField(t *testing.T) {
	for in, want := range map[string]string{"": `{"k":"v"}`, "{}": `{"k":"v"}`, " { } ": `{"k":"v"}`, `{"a":1}`: `{"k":"v","a":1}`} {
		if got := string(addField(json.RawMessage(in), "k", "v")); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%q: %s", in, got)
		}
	}
}

func TestNotifyArgument(t *testing.T) {
	r := newRig(t, nil)
	r.hello("2025-11-25", "{}", "x")
	for _, c := range []struct{ tool, args, want string }{
		{"codex", `{"prompt":"p","background":true,"notify":" team-lead "}`, "team-lead"},
		{"codex", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":"boss@other"}`, "boss@other"},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":"team-lead"}`, "team-lead"},
		{"codex-reply", `{"agent_id":"codex:a","prompt":"p","background":true,"notify":null}`, ""},
	} {
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + callParams(false, c.tool, c.args) + `}`)
		got := <-r.submits
		if got.req.notify != c.want || !got.req.background {
			t.Errorf("%s %s: %+v", c.tool, c.args, got.req)
		}
		r.f.done(got.w, okTurn("x"))
		r.next()
	}
	for args, want := range map[string]string{
		`{"agent_id":"codex:a","prompt":"p","notify":"team-lead"}`:           "give background: true too",
		`{"agent_id":"codex:a","prompt":"p","background":true,"notify":" "}`: "notify is empty",
		`{"agent_id":"codex:a","prompt":"p","background":true,"notify":7}`:   "must be a string",
		`{"agent_id":"codex:a","background":true,"notify":"team-lead"}`:      "without prompt none runs",
	} {
		tool := "codex-reply"
		if strings.Contains(want, "none runs") {
			tool = "codex"
		}
		_, message, _ := errorOf(t, r.ask("tools/call", callParams(false, tool, args)))
		mustContain(t, message, want)
	}
	if len(r.submits) != 0 {
		t.Error("a turn was submitted")
	}
}
