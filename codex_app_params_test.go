package main

// codex_app_params_test.go holds what goes out to the version it goes to: a
// parameter that an older or a newer Codex refuses must not be sent to it.

import (
	"encoding/json"
	"testing"
)

func TestAppTurnParamsPerVersion(t *testing.T) {
	full := turnSettings{Cwd: "/w", Model: "m", Effort: "ultra", Approval: "on-failure", Sandbox: "workspace-write", WritableRoots: []string{"/r"}, Network: true}
	for _, tc := range []struct {
		name, version string
		s             turnSettings
		want          string
	}{
		{"0.104 drops an effort it would refuse", "0.104.0", full,
			`{"threadId":"t1","cwd":"/w","model":"m","approvalPolicy":"on-failure","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/r"],"networkAccess":true,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"0.148 has no on-failure, and any effort", "0.148.0", full,
			`{"threadId":"t1","cwd":"/w","model":"m","effort":"ultra","approvalPolicy":"on-request","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/r"],"networkAccess":true,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"0.104 read-only has no network", "0.104.0", turnSettings{Cwd: "/w", Effort: "HIGH", Approval: "never", Sandbox: "read-only"},
			`{"threadId":"t1","cwd":"/w","effort":"high","approvalPolicy":"never","sandboxPolicy":{"type":"readOnly"}}`},
		{"0.169 read-only has", "0.169.0", turnSettings{Cwd: "/w", Approval: "never", Sandbox: "read-only"},
			`{"threadId":"t1","cwd":"/w","approvalPolicy":"never","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`},
		{"no roots is an empty list, never null", "0.169.0", turnSettings{Sandbox: "workspace-write"},
			`{"threadId":"t1","sandboxPolicy":{"type":"workspaceWrite","writableRoots":[],"networkAccess":false,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}}`},
		{"full access", "0.169.0", turnSettings{Sandbox: "danger-full-access"},
			`{"threadId":"t1","sandboxPolicy":{"type":"dangerFullAccess"}}`},
		{"an unknown sandbox is the narrowest", "0.169.0", turnSettings{Sandbox: "everything"},
			`{"threadId":"t1","sandboxPolicy":{"type":"readOnly","networkAccess":false}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := settingsParams(backendInfo{version: tc.version}, "t1", command{settings: tc.s})
			sameJSON(t, toJSON(got), tc.want)
		})
	}
}

func TestAppOpenParamsPerVersion(t *testing.T) {
	spec := threadSpec{Settings: turnSettings{Cwd: "/w", Model: "m", Approval: "never", Sandbox: "danger-full-access"},
		DeveloperInstructions: "D", BaseInstructions: "B", Profile: "p", Ephemeral: true, Config: json.RawMessage(`{"features":{"x":true}}`)}
	resume := spec
	resume.Thread = "t9"
	tools := threadSpec{Tools: []clientTool{{"atm_send", "sends", json.RawMessage(`{"type":"object","required":["to"]}`)}, {Name: "atm_pending_count", Description: "counts"}}}
	kept := tools
	kept.Thread = "t9"
	for _, tc := range []struct {
		name, version, method string
		s                     threadSpec
		want                  string
	}{
		{"start on 0.104 takes the profile", "0.104.0", "thread/start", spec,
			`{"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","ephemeral":true,"config":{"features":{"x":true},"profile":"p"}}`},
		{"start on 0.169 never sends it", "0.169.0", "thread/start", spec,
			`{"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","ephemeral":true,"config":{"features":{"x":true},"thread_unload_delay_secs":1}}`},
		{"resume sends everything again", "0.104.0", "thread/resume", resume,
			`{"threadId":"t9","cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","config":{"features":{"x":true},"profile":"p"}}`},
		{"resume without the turns", "0.148.0", "thread/resume", resume,
			`{"threadId":"t9","excludeTurns":true,"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only","baseInstructions":"B","developerInstructions":"D","config":{"features":{"x":true},"thread_unload_delay_secs":1}}`},
		{"tools in the one form that all versions take", "0.104.0", "thread/start", tools,
			`{"sandbox":"read-only","dynamicTools":[{"type":"function","name":"atm_send","description":"sends","inputSchema":{"type":"object","required":["to"]}},
				{"type":"function","name":"atm_pending_count","description":"counts","inputSchema":{"type":"object","properties":{}}}]}`},
		{"tools are the thread's for good", "0.104.0", "thread/resume", kept, `{"threadId":"t9","sandbox":"read-only"}`},
		{"no tools where there are none", "0.103.0", "thread/start", tools, `{"sandbox":"read-only"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info := backendInfo{version: tc.version}
			info.clientTools = info.atLeast(104)
			method, params := openParams(info, tc.s)
			want(t, method, tc.method)
			sameJSON(t, toJSON(params), tc.want)
		})
	}
}

func TestAppPromptParts(t *testing.T) {
	image, file, text := promptPart{kind: "image", url: "data:image/png;base64,AA=="}, promptPart{kind: "localImage", path: "/p.png"}, promptPart{kind: "text", text: "and this"}
	for _, tc := range []struct {
		name string
		c    command
		want string
	}{
		{"text alone", command{prompt: "hi"}, `[{"type":"text","text":"hi","text_elements":[]}]`},
		{"nothing is an empty text", command{}, `[{"type":"text","text":"","text_elements":[]}]`},
		{"parts behind the prompt", command{prompt: "context", parts: []promptPart{image, text, file}},
			`[{"type":"text","text":"context","text_elements":[]},{"type":"image","url":"data:image/png;base64,AA=="},{"type":"text","text":"and this","text_elements":[]},{"type":"localImage","path":"/p.png"}]`},
		{"parts without a prompt", command{parts: []promptPart{image}}, `[{"type":"image","url":"data:image/png;base64,AA=="}]`},
	} {
		t.Run(tc.name, func(t *testing.T) { sameJSON(t, toJSON(turnInput(tc.c)), tc.want) })
	}
}
